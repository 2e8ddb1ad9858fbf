//! Scripts in a log, as Redis before 7.0 has them: there they were recorded as they were called, and their changes come
//! from running them again.
//!
//! Such scripts were written for a server that made them deterministic, and so does this one: elements without an order
//! come in that of their bytes. Chance is the same in any run of a script (the scripting crate sees to that).

use std::collections::HashSet;

use dunlin_engine::{
    Caller, Environment, Request, Worker,
    command::{Args, CommandError, CommandResult, Flags, Run},
};
use dunlin_resp::{ReplyBuffer, number::parse_integer};
use dunlin_scripting::{LogLevel, Machine, ScriptHost, Sha};

use crate::{
    lua::{self, MACHINE_BYTES_MAX, operands},
    shared::Shared,
};

const UNKNOWN: CommandError = CommandError::text("NOSCRIPT No matching script. Please use EVAL.");
const UNORDERED: &[&[u8]] = &[b"hkeys", b"hvals", b"keys", b"sdiff", b"sinter", b"smembers", b"sunion"];

/// The scripts of a log.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    /// Made when the first one comes.
    machine: Option<Box<Machine>>,
    known: HashSet<Sha>,
}

/// The surroundings of scripts.
pub(crate) struct Surroundings<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) environment: Environment<'a>,
    pub(crate) worker: &'a mut Worker,
    pub(crate) database: usize,
}

/// Whether a command is one of scripts that belongs into a log.
pub(super) fn is_known(name: &str) -> bool {
    ["eval", "evalsha", "script|load", "script|flush"].contains(&name)
}

impl Scripts {
    /// Runs a command of scripts, whose full name is given. The caller is not inside the gate.
    pub(crate) fn command(
        &mut self,
        name: &str,
        words: &[&[u8]],
        surroundings: Surroundings<'_>,
        reply: &mut ReplyBuffer,
    ) -> CommandResult {
        match (name, words) {
            ("eval", [_, text, ..]) => {
                let sha = self.load(text)?;
                self.run(&sha, words, surroundings, reply)
            }
            ("evalsha", [_, digits, ..]) => {
                let sha = Sha::parse(digits).filter(|sha| self.known.contains(sha)).ok_or(UNKNOWN)?;
                self.run(&sha, words, surroundings, reply)
            }
            ("script|load", [_, _, text]) => self.load(text).map(drop),
            ("script|flush", _) => {
                *self = Self::default();
                Ok(())
            }
            _ => Err(CommandError::text("ERR This command is not available while a log is loaded")),
        }
    }

    fn load(&mut self, text: &[u8]) -> Result<Sha, CommandError> {
        let sha = Sha::of(text);
        if !self.known.contains(&sha) {
            let code = lua::parse(text)?.text;
            let machine = self.machine.get_or_insert_with(|| Box::new(Machine::new(MACHINE_BYTES_MAX)));
            machine.load(sha, code).map_err(lua::not_compiled)?;
            self.known.insert(sha);
        }
        Ok(sha)
    }

    fn run(
        &mut self,
        sha: &Sha,
        words: &[&[u8]],
        surroundings: Surroundings<'_>,
        reply: &mut ReplyBuffer,
    ) -> CommandResult {
        let operands = operands(&mut Args::new(words, 1), CommandError::NotInteger)?;
        let machine = self.machine.as_mut().ok_or(UNKNOWN)?;
        let caller = Caller { in_script: true, ..*surroundings.environment.caller };
        let environment = Environment { caller: &caller, ..surroundings.environment };
        let mut calls = Calls { surroundings: Surroundings { environment, ..surroundings } };
        machine
            .run(sha, operands.keys, operands.arguments, &mut calls, reply)
            .map_err(|line| CommandError::Text(line.into()))
    }
}

/// A script of the log at work. No client changes anything: its commands need not be one transaction.
struct Calls<'a> {
    surroundings: Surroundings<'a>,
}

impl Calls<'_> {
    fn run(&mut self, words: &[&[u8]], reply: &mut ReplyBuffer) -> CommandResult {
        let Surroundings { shared, environment, worker, database } = &mut self.surroundings;
        let entry = shared
            .commands
            .find(words[0])
            .ok_or(CommandError::text("ERR Unknown Redis command called from script"))?;
        let entry = shared.commands.resolve(entry, words);
        if !entry.command.arity.accepts(words.len()) || matches!(entry.command.run, Run::Container) {
            return Err(CommandError::text("ERR Wrong number of args calling Redis command from script"));
        }
        if entry.command.flags.has(Flags::NO_SCRIPT) {
            return Err(CommandError::text("ERR This Redis command is not allowed from script"));
        }
        let full_name = entry.full_name();
        match (entry.command.run.host(), &*full_name, words) {
            (None, ..) => {
                let name = entry.command.name;
                let mark = reply.mark();
                let mut inside = Some(shared.engine.keyspace.enter(worker.id()));
                let request = Request { entry, words, keys: &[], encoded: &[] };
                shared.engine.execute(&request, *database, *environment, worker, &mut inside, reply)?;
                drop(inside);
                drop(worker.garbage.take());
                if UNORDERED.contains(&name.as_bytes()) {
                    put_in_order(reply, mark);
                }
                Ok(())
            }
            (Some(_), "select", [_, index]) => {
                let index = parse_integer(index).and_then(|index| usize::try_from(index).ok());
                let exists = |index: &usize| *index < shared.engine.keyspace.databases();
                *database = index.filter(exists).ok_or(CommandError::text("ERR DB index is out of range"))?;
                reply.ok();
                Ok(())
            }
            (Some(_), "ping", [_]) => {
                reply.simple("PONG");
                Ok(())
            }
            (Some(_), "echo" | "ping", [_, text]) => {
                reply.bulk(text);
                Ok(())
            }
            (Some(_), "command|count", _) => {
                reply.count(shared.commands.commands().count());
                Ok(())
            }
            (Some(_), name, _) => answer_of_server(name, words, environment.caller.replaying_at_ms, reply),
        }
    }
}

/// Answers a command about the server as one would that has just started: the script was recorded, so the server that ran it
/// let it change nothing because of the answer.
fn answer_of_server(name: &str, words: &[&[u8]], now_ms: u64, reply: &mut ReplyBuffer) -> CommandResult {
    match name {
        "time" => {
            reply.array(2);
            reply.bulk_integer((now_ms / 1000) as i64);
            reply.bulk_integer((now_ms % 1000 * 1000) as i64);
        }
        "lastsave" => reply.integer((now_ms / 1000) as i64),
        // No client is there to hear it.
        "publish" | "spublish" | "pubsub|numpat" | "slowlog|len" | "commandlog|len" => reply.integer(0),
        "pubsub|channels" | "pubsub|shardchannels" | "slowlog|get" | "commandlog|get" => reply.array(0),
        "pubsub|numsub" | "pubsub|shardnumsub" => {
            let channels = words.get(2..).unwrap_or_default();
            reply.array(2 * channels.len());
            for channel in channels {
                reply.bulk(channel);
                reply.integer(0);
            }
        }
        "waitaof" => {
            reply.array(2);
            reply.integer(0);
            reply.integer(0);
        }
        "readonly" | "readwrite" | "slowlog|reset" | "commandlog|reset" | "memory|purge" => reply.ok(),
        "info" | "lolwut" | "memory|doctor" | "memory|malloc-stats" => reply.bulk(b""),
        "memory|stats" | "command|docs" | "command|info" | "command|list" => reply.array(0),
        "memory|usage" => reply.null(),
        _ => return Err(CommandError::text("ERR This command is not available while a log is loaded")),
    }
    Ok(())
}

impl ScriptHost for Calls<'_> {
    fn call(&mut self, words: &[&[u8]], reply: &mut ReplyBuffer) {
        if let Err(error) = self.run(words, reply) {
            reply.error(error.line());
        }
    }

    fn may_call(&mut self, words: &[&[u8]]) -> Option<bool> {
        self.surroundings.shared.commands.find_row(words.first()?).map(|_| true)
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        lua::log(level, message);
    }

    fn set_replication(&mut self, _: u8) {}

    fn interrupted(&mut self) -> Option<&'static str> {
        self.surroundings.shared.loading.is_abandoned().then_some("the server is ending")
    }
}

/// Puts the elements of an array of strings, or of a set, which was replied behind `mark`, in the order of their bytes.
fn put_in_order(reply: &mut ReplyBuffer, mark: dunlin_resp::Mark) {
    let whole: Vec<u8> = reply.chunks().flatten().copied().collect();
    let start = whole.len() - reply.bytes_since(mark);
    let line = |bytes: &[u8]| bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
    let Some(head) = line(&whole[start..]) else { return };
    let (mut elements, mut rest) = (Vec::new(), &whole[start + head..]);
    while let Some(text) = line(rest) {
        let length = std::str::from_utf8(&rest[1..text]).ok().and_then(|text| text.trim_end().parse().ok());
        let Some((element, behind)) =
            length.and_then(|length: usize| rest.split_at_checked(text + length + 2))
        else {
            return;
        };
        elements.push((&element[text..], element));
        rest = behind;
    }
    elements.sort_unstable();
    reply.rewind(mark);
    reply.raw(&whole[start..start + head]);
    elements.iter().for_each(|(_, element)| reply.raw(element));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_without_order_is_sorted_by_bytes() {
        let mut reply = ReplyBuffer::default();
        reply.ok();
        let mark = reply.mark();
        reply.array(4);
        for text in [&b"b"[..], b"10", b"9", b"a\r\n"] {
            reply.bulk(text);
        }
        put_in_order(&mut reply, mark);
        assert_eq!(reply.into_bytes(), b"+OK\r\n*4\r\n$2\r\n10\r\n$1\r\n9\r\n$3\r\na\r\n\r\n$1\r\nb\r\n");
        let mut reply = ReplyBuffer::default();
        let mark = reply.mark();
        reply.set(0);
        put_in_order(&mut reply, mark);
        assert_eq!(reply.into_bytes(), b"*0\r\n");
    }
}
