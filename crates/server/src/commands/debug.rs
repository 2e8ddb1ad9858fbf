//! DEBUG: what test suites ask for. Refused unless `enable-debug-command` allows it.
//!
//! A subcommand is a row of [`PARTS`]; COMMAND knows of DEBUG alone, as in Redis. Parts that look at keys
//! are the store's, in a private table.

use std::{
    ops::RangeInclusive,
    sync::{LazyLock, atomic::Ordering},
    time::{Duration, Instant},
};

use dunlin_engine::{
    Environment, Outcome, Request,
    command::{Args, Arity, Command, CommandError, CommandResult, CommandTable, Flags, Group, Run},
    commands,
    glob::Glob,
};
use dunlin_net::Next;
use dunlin_resp::{Protocol, ReplyBuffer, number::parse_integer};

use super::save;
use crate::{
    config::parse_memory,
    executor::{Flow, Handler, QUOTED_BYTES_MAX, ServerContext},
    rdb::Existing,
    session::{IsHeard, Replies},
};

pub(super) const COMMANDS: &[Command] = &[DEBUG];

const DEBUG: Command = Command {
    name: "debug",
    summary: "Looks into the server and makes it misbehave, for tests.",
    since: "1.0.0",
    group: Group::Server,
    complexity: "Depends on the subcommand.",
    arity: Arity::AtLeast(2),
    run: Run::Host(&Handler(debug)),
    flags: Flags::ADMIN
        .and(Flags::NO_SCRIPT)
        .and(Flags::LOADING)
        .and(Flags::STALE)
        .and(Flags::WHOLE_KEYSPACE),
    ..Command::DEFAULT
};

type Handle = fn(&mut ServerContext<'_, '_>, &[&[u8]], &mut ReplyBuffer) -> CommandResult;

/// A subcommand.
struct Part {
    name: &'static str,
    /// How many words may follow the name.
    operands: RangeInclusive<usize>,
    run: Handle,
    /// Lines of the help.
    help: &'static [&'static str],
}

const ANY: usize = usize::MAX;

#[rustfmt::skip]
static PARTS: &[Part] = &[
    Part { name: "assert", operands: 0..=0, run: crash, help: &[
        "ASSERT",
        "    End the process by SIGABRT, as a failed assertion does; PANIC and OOM do the same.",
    ] },
    Part { name: "change-repl-id", operands: 0..=0, run: change_replication_id, help: &[
        "CHANGE-REPL-ID",
        "    Draw another replication ID.",
    ] },
    Part { name: "client-enforce-reply-list", operands: 1..=1, run: absent, help: &[
        "CLIENT-ENFORCE-REPLY-LIST <0|1>",
        "    Answered with OK for test suites of others: a client has one kind of reply buffer here.",
    ] },
    Part { name: "dict-resizing", operands: 1..=1, run: absent, help: &[
        "DICT-RESIZING <0|1>",
        "    Answered with OK for test suites of others: tables grow bucket by bucket here.",
    ] },
    Part { name: "digest", operands: 0..=0, run: of_store, help: &[
        "DIGEST",
        "    Digest of all databases; data sets with the same digest are the same, in Redis too.",
    ] },
    Part { name: "digest-value", operands: 0..=ANY, run: of_store, help: &[
        "DIGEST-VALUE <key> [<key> ...]",
        "    Digests of the values under the keys.",
    ] },
    Part { name: "error", operands: 1..=1, run: error, help: &[
        "ERROR <string>",
        "    Answer with this error.",
    ] },
    Part { name: "hashtable-can-abort-shrink", operands: 1..=1, run: absent, help: &[
        "HASHTABLE-CAN-ABORT-SHRINK <0|1>",
        "    Answered with OK for test suites of others: tables shrink bucket by bucket here.",
    ] },
    Part { name: "help", operands: 0..=0, run: help, help: &[
        "HELP",
        "    This text.",
    ] },
    Part { name: "leak", operands: 1..=1, run: leak, help: &[
        "LEAK <string>",
        "    Allocate a copy of the string, and never free it.",
    ] },
    Part { name: "log", operands: 1..=1, run: log, help: &[
        "LOG <message>",
        "    Write a line of level warning to the server's log.",
    ] },
    Part { name: "object", operands: 1..=1, run: of_store, help: &[
        "OBJECT <key>",
        "    Show how the value under the key is stored.",
    ] },
    Part { name: "oom", operands: 0..=0, run: crash, help: &[] },
    Part { name: "panic", operands: 0..=0, run: crash, help: &[] },
    Part { name: "populate", operands: 1..=3, run: populate, help: &[
        "POPULATE <count> [<prefix>] [<size>]",
        "    Create strings `prefix:0` and so on, where there is no key; the prefix is `key`. Values",
        "    are `value:0` and so on, cut or filled with zeros to <size> bytes if that is given.",
    ] },
    Part { name: "loadaof", operands: 0..=0, run: load_log, help: &[
        "LOADAOF",
        "    Write the append-only file to disk, forget all data and load it again from there.",
    ] },
    Part { name: "protocol", operands: 1..=1, run: protocol, help: &[
        "PROTOCOL <type>",
        "    Answer with a value of that type: string, integer, double, bignum, null, array, set, map,",
        "    attrib, push, verbatim, true, false.",
    ] },
    Part { name: "quicklist-packed-threshold", operands: 1..=1, run: set_list_packed_threshold, help: &[
        "QUICKLIST-PACKED-THRESHOLD <size>",
        "    In lists that grow beyond one block from now on, keep elements of this size and more as",
        "    blocks of their own though a block would hold them; 0 for never.",
    ] },
    Part { name: "reload", operands: 0..=ANY, run: reload, help: &[
        "RELOAD [MERGE] [NOFLUSH] [NOSAVE]",
        "    Save the data set, remove it and load it again. NOSAVE loads the file that is there; NOFLUSH",
        "    keeps the data set, which must have no key of the file unless MERGE lets the file's replace it.",
        "    With NOSAVE, a file that cannot be read to its end changes nothing.",
    ] },
    Part { name: "replybuffer", operands: 2..=2, run: absent, help: &[
        "REPLYBUFFER PEAK-RESET-TIME|RESIZING <value>",
        "    Answered with OK for test suites of others: a worker's clients share a reply buffer here.",
    ] },
    Part { name: "segfault", operands: 0..=0, run: crash, help: &[
        "SEGFAULT",
        "    End the process by SIGSEGV.",
    ] },
    Part { name: "set-active-expire", operands: 1..=1, run: set_active_expire, help: &[
        "SET-ACTIVE-EXPIRE <0|1>",
        "    With 0, expired keys are removed only when they are asked for.",
    ] },
    Part { name: "sleep", operands: 1..=1, run: sleep, help: &[
        "SLEEP <seconds>",
        "    Answer after this time, decimals allowed. Only the asking client waits: the workers go on.",
        "    In a transaction, all who need its locks wait, too.",
    ] },
    Part { name: "stringmatch-len", operands: 2..=2, run: string_match_length, help: &[
        "STRINGMATCH-LEN <length> <pattern>",
        "    Whether the glob pattern matches a text of <length> times the letter `a`: 1 or 0.",
    ] },
    Part { name: "visits-max", operands: 1..=1, run: set_visits_max, help: &[
        "VISITS-MAX <elements>",
        "    Run commands that visit more elements than this apart from the worker that read them.",
    ] },
];

/// Subcommands that test suites know and this version cannot have, and why.
static UNAVAILABLE: &[(&str, &str)] = &[
    ("listpack", "listpacks are shown by nothing but OBJECT ENCODING in this version"),
    ("pause-cron", "background work cannot be paused as a whole; see SET-ACTIVE-EXPIRE"),
    ("replicate", "a command for replicas alone would let them differ from their primary"),
];

fn debug(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let allowed = context.executor.config.config().enable_debug_command;
    if !allowed.allows(context.session.client.transport.is_local()) {
        return Err(CommandError::text(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", \
             you can run it from a local connection, otherwise you need to set this option in the \
             configuration file, and then restart the server.",
        ));
    }
    let words = args.take_rest();
    let (typed, operands) = words.split_first().expect("its arity asks for a subcommand");
    let is_typed = |name: &str| name.as_bytes().eq_ignore_ascii_case(typed);
    if let Some((name, why)) = UNAVAILABLE.iter().find(|(name, _)| is_typed(name)) {
        return Err(CommandError::owned(format!(
            "ERR DEBUG {} is not available: {why}",
            name.to_uppercase()
        )));
    }
    match PARTS.iter().find(|part| is_typed(part.name) && part.operands.contains(&operands.len())) {
        Some(part) => (part.run)(context, words, reply),
        None => {
            let before = "ERR unknown subcommand or wrong number of arguments for '";
            Err(CommandError::quoting_within(
                before,
                &typed[..typed.len().min(QUOTED_BYTES_MAX)],
                "'. Try DEBUG HELP.",
            ))
        }
    }
}

/// The parts that are the store's.
static OF_STORE: LazyLock<CommandTable> = LazyLock::new(|| CommandTable::new(&[commands::debug::COMMANDS]));

/// Runs a part of the store.
fn of_store(context: &mut ServerContext<'_, '_>, words: &[&[u8]], reply: &mut ReplyBuffer) -> CommandResult {
    let entry = OF_STORE.find(words[0]).expect("a row of the store");
    let request = Request { entry, words, keys: &[], encoded: &[] };
    context.executor.see_everything();
    let (environment, worker) =
        (Environment::new(&context.executor.policy, &context.executor.caller), &mut context.executor.worker);
    let (database, inside) = (context.session.database, &mut context.turn.inside);
    let outcome = context.shared.engine.execute(&request, database, environment, worker, inside, reply)?;
    match outcome {
        Outcome::Offloaded(mut offloaded) => {
            offloaded.prepend_words(&[b"DEBUG"]);
            let debug = context.session.last_command.expect("it runs");
            let debug = &context.shared.commands.entries()[debug];
            context.flow = context.executor.offload(context.session, debug, offloaded);
        }
        Outcome::Retry => context.flow = context.executor.hold(context.session),
        Outcome::Done | Outcome::DoneAlone | Outcome::Blocked(_) => {}
    }
    Ok(())
}

const NOT_POSITIVE: CommandError = CommandError::text("ERR value is out of range, must be positive");

/// A number that is not negative.
fn positive(word: &[u8]) -> Result<u64, CommandError> {
    parse_integer(word).and_then(|value| u64::try_from(value).ok()).ok_or(NOT_POSITIVE)
}

fn populate(context: &mut ServerContext<'_, '_>, words: &[&[u8]], reply: &mut ReplyBuffer) -> CommandResult {
    let count = positive(words[1])?;
    let prefix = words.get(2).copied().unwrap_or(b"key");
    let size = words.get(3).map_or(Ok(0), |word| positive(word))?;
    let size_max = context.executor.policy.string_bytes_max as u64;
    if size > size_max {
        return Err(CommandError::StringTooLong);
    }
    let mut ignored = ReplyBuffer::default();
    for number in 0..count {
        let key = [prefix, format!(":{number}").as_bytes()].concat();
        let mut value = format!("value:{number}").into_bytes();
        if size > 0 {
            value.resize(size as usize, 0);
        }
        of_store(context, &[b"populate", &key, &value], &mut ignored)?;
        ignored.clear(0);
    }
    reply.ok();
    Ok(())
}

fn load_log(context: &mut ServerContext<'_, '_>, _: &[&[u8]], reply: &mut ReplyBuffer) -> CommandResult {
    let result = context.outside_gate(|shared| shared.durability.reload());
    let result = result.unwrap_or_else(|| Err("it cannot be done in a transaction".to_owned()));
    result.map_err(|error| {
        CommandError::owned(format!("ERR Error trying to load the AOF files, check server logs: {error}"))
    })?;
    reply.ok();
    Ok(())
}

fn change_replication_id(
    context: &mut ServerContext<'_, '_>,
    _: &[&[u8]],
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let changed =
        context.outside_gate(|shared| shared.replication.change_id(&shared.durability)).unwrap_or(Ok(()));
    changed.map_err(|error| CommandError::owned(format!("ERR {error}")))?;
    reply.ok();
    Ok(())
}

/// Ends the process as the fault of that name would.
fn crash(_: &mut ServerContext<'_, '_>, words: &[&[u8]], _: &mut ReplyBuffer) -> CommandResult {
    let name = String::from_utf8_lossy(words[0]).to_uppercase();
    tracing::error!("DEBUG {name} ends the process");
    if name == "SEGFAULT" {
        // The handler of the standard library takes the first one, and leaves the next to the system.
        for _ in 0..100 {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::SEGV);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    std::process::abort()
}

/// Answers a switch of a mechanism that this server does not have.
fn absent(_: &mut ServerContext<'_, '_>, _: &[&[u8]], reply: &mut ReplyBuffer) -> CommandResult {
    reply.ok();
    Ok(())
}

fn leak(_: &mut ServerContext<'_, '_>, words: &[&[u8]], reply: &mut ReplyBuffer) -> CommandResult {
    Box::leak(words[1].to_vec().into_boxed_slice());
    reply.ok();
    Ok(())
}

fn error(_: &mut ServerContext<'_, '_>, words: &[&[u8]], _: &mut ReplyBuffer) -> CommandResult {
    Err(CommandError::Text(words[1].to_vec().into()))
}

fn log(_: &mut ServerContext<'_, '_>, words: &[&[u8]], reply: &mut ReplyBuffer) -> CommandResult {
    tracing::warn!("DEBUG LOG: {}", String::from_utf8_lossy(words[1]));
    reply.ok();
    Ok(())
}

fn reload(context: &mut ServerContext<'_, '_>, words: &[&[u8]], reply: &mut ReplyBuffer) -> CommandResult {
    if context.in_transaction {
        return Err(CommandError::text("ERR DEBUG RELOAD is not available inside a transaction"));
    }
    let (mut flush, mut save, mut existing) = (true, true, Existing::Refused);
    for word in &words[1..] {
        match word.to_ascii_lowercase().as_slice() {
            b"merge" => existing = Existing::Replaced,
            b"noflush" => flush = false,
            b"nosave" => save = false,
            _ => {
                let text = "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.";
                return Err(CommandError::text(text));
            }
        }
    }
    let shared = context.shared;
    let reloaded = save::alone(context, |exclusive| {
        if save {
            shared.save(exclusive)?;
        } else {
            shared.check_dump(exclusive)?;
        }
        if flush {
            exclusive.flush(None, false);
        }
        shared.load(exclusive, existing)
    })?;
    match reloaded {
        Ok(true) => reply.ok(),
        Ok(false) => return Err(CommandError::text("ERR there is no file to load")),
        Err(reason) => return Err(CommandError::owned(format!("ERR {reason}"))),
    }
    Ok(())
}

fn set_active_expire(
    context: &mut ServerContext<'_, '_>,
    words: &[&[u8]],
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let on = parse_integer(words[1]).is_some_and(|value| value != 0);
    context.shared.active_expire.store(on, Ordering::Relaxed);
    reply.ok();
    Ok(())
}

fn set_visits_max(
    context: &mut ServerContext<'_, '_>,
    words: &[&[u8]],
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let elements = parse_integer(words[1]).and_then(|elements| usize::try_from(elements).ok());
    context.shared.visits_max.store(elements.ok_or(CommandError::NotInteger)?, Ordering::Relaxed);
    reply.ok();
    Ok(())
}

fn set_list_packed_threshold(
    context: &mut ServerContext<'_, '_>,
    words: &[&[u8]],
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let Some(size) = parse_memory(words[1]).and_then(|size| u32::try_from(size).ok()) else {
        return Err(CommandError::text(
            "ERR argument must be a memory value bigger than 1 and smaller than 4gb",
        ));
    };
    context.shared.list_packed_threshold.store(size, Ordering::Relaxed);
    context.shared.config.touch();
    reply.ok();
    Ok(())
}

fn sleep(context: &mut ServerContext<'_, '_>, words: &[&[u8]], reply: &mut ReplyBuffer) -> CommandResult {
    // A word that is not a number is not a time, as in Redis.
    let seconds = std::str::from_utf8(words[1]).ok().and_then(|text| text.trim().parse::<f64>().ok());
    let wanted = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default();
    let now = Instant::now();
    match now.checked_add(wanted) {
        // The commands of a transaction follow each other: its locks are held meanwhile, as all of Redis is.
        Some(_) if context.in_transaction => {
            std::thread::sleep(wanted);
            reply.ok();
        }
        Some(until) if !wanted.is_zero() => {
            context.session.asleep = Some((now, IsHeard(context.session.replies == Replies::On)));
            context.flow = Flow::Stop(Next::Park { until: Some(until) });
        }
        _ => reply.ok(),
    }
    Ok(())
}

fn string_match_length(
    context: &mut ServerContext<'_, '_>,
    words: &[&[u8]],
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let length = positive(words[1])?;
    if length > context.executor.policy.string_bytes_max as u64 {
        return Err(CommandError::StringTooLong);
    }
    let glob = Glob::new(words[2])?;
    let text = vec![b'a'; length as usize];
    reply.integer(glob.matches(&text).into());
    Ok(())
}

fn protocol(_: &mut ServerContext<'_, '_>, words: &[&[u8]], reply: &mut ReplyBuffer) -> CommandResult {
    match words[1].to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.integer(12345),
        b"double" => reply.double(3141.0 / 1000.0),
        b"bignum" => reply.big_number("1234567999999999999999999999999999999"),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|value| reply.integer(value));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|value| reply.integer(value));
        }
        b"map" => {
            reply.map(3);
            for key in 0..3 {
                reply.integer(key);
                reply.boolean(key == 1);
            }
        }
        b"attrib" => {
            if reply.protocol() == Protocol::Resp3 {
                reply.raw(b"|1\r\n");
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.integer(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" => {
            if reply.protocol() == Protocol::Resp2 {
                return Err(CommandError::text("ERR RESP2 is not supported by this command"));
            }
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.integer(42);
            reply.bulk(b"Some real reply following the push reply");
        }
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        b"verbatim" => reply.verbatim(b"txt", b"This is a verbatim\nstring"),
        _ => {
            return Err(CommandError::text(
                "ERR Wrong protocol type name. Please use one of the following: string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}

fn help(_: &mut ServerContext<'_, '_>, _: &[&[u8]], reply: &mut ReplyBuffer) -> CommandResult {
    let lines: Vec<&str> = PARTS.iter().flat_map(|part| part.help).copied().collect();
    reply.array(lines.len() + 1);
    reply.simple("DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    lines.iter().for_each(|line| reply.simple(line));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_parts_of_the_store_have_rows() {
        let run = of_store as *const ();
        for part in PARTS.iter().filter(|part| std::ptr::eq(part.run as *const (), run)) {
            assert!(OF_STORE.find(part.name.as_bytes()).is_some(), "{}", part.name);
        }
    }
}
