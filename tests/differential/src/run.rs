//! Runs one stream against both servers and finds the first disagreement.
//!
//! Commands go out in pipelined batches, the same bytes to both. Commands that need a conversation
//! (cursors, samples, raw bytes, time) end a batch. After the last command the whole contents of both
//! servers are compared, so that damage no reply showed is found too.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dunlin_test_support::connection::{Connection, ReadError};
use dunlin_test_support::process::Server;
use dunlin_test_support::resp::{self, Reply, quoted};

use crate::compare::{agree, intended};
use crate::generate::Step;
use crate::grammar::{Action, Compare};

/// Commands in one pipelined batch.
const BATCH_COMMANDS: usize = 50;

/// A batch ends early at this size.
const BATCH_BYTES: usize = 1 << 20;

/// How long a key that lives for 1 ms is given to be gone.
const EXPIRY_WAIT: Duration = Duration::from_millis(4);

/// Ends raw bytes; a server that has not closed the connection answers it.
const SENTINEL: &[u8] = b"PING sentinel\r\n";
const SENTINEL_REPLY: &[u8] = b"$8\r\nsentinel\r\n";

/// Pages of one iteration; more would be a cursor that never ends.
const PAGES_MAX: usize = 10_000;

/// The place and kind of a disagreement of two servers.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The index of the step; the length of the stream for the contents at its end.
    pub at: usize,
    /// The command that showed it.
    pub command: Vec<Vec<u8>>,
    /// The reply of the server under test, for a person.
    pub ours: String,
    /// The reply of the oracle, for a person.
    pub oracle: String,
}

impl Mismatch {
    /// Groups mismatches that likely have one cause: the command, and its subcommand if it has one.
    pub fn label(&self) -> String {
        let name = self.command.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
        let containers: &[&[u8]] = &[
            b"OBJECT",
            b"CLIENT",
            b"CONFIG",
            b"COMMAND",
            b"MEMORY",
            b"SLOWLOG",
            b"LATENCY",
            b"XINFO",
            b"XGROUP",
            b"SCRIPT",
            b"FUNCTION",
        ];
        let mut label = String::from_utf8_lossy(&name).into_owned();
        if containers.contains(&&name[..])
            && let Some(second) = self.command.get(1)
        {
            label.push(' ');
            label.push_str(&String::from_utf8_lossy(&second.to_ascii_uppercase()));
        }
        label.truncate(label.char_indices().nth(40).map_or(label.len(), |(at, _)| at));
        label
    }
}

/// A disagreement, or trouble that has nothing to do with the server under test.
pub enum Failure {
    /// The servers disagree.
    Mismatch(Box<Mismatch>),
    /// The run cannot go on: the oracle broke, or a server does not start.
    Trouble(String),
}

/// The two servers.
pub struct Pair {
    ours_program: PathBuf,
    ours_directives: Vec<String>,
    ours: Server,
    oracle: Server,
    /// The databases whose contents are compared.
    databases: usize,
    /// Whether the server under test offloads all commands that it can.
    pub apart: bool,
    /// The reasons of the intended differences that were met.
    pub intended: BTreeSet<&'static str>,
}

/// A connection to each server.
struct Duet {
    ours: Connection,
    oracle: Connection,
    /// The reasons of the intended differences that were met.
    intended: BTreeSet<&'static str>,
}

impl Pair {
    /// Starts both.
    pub fn start(ours: &Path, oracle: &Path, directives: &[String]) -> Result<Self, String> {
        let start = |program: &Path, directives: &[&str]| {
            // For digests of values.
            let directives = [&["--enable-debug-command", "yes"], directives].concat();
            Server::start(program, &directives).map_err(|error| format!("{}: {error}", program.display()))
        };
        let ours_directives: Vec<&str> = directives.iter().map(String::as_str).collect();
        Ok(Pair {
            ours: start(ours, &ours_directives)?,
            oracle: start(oracle, &[])?,
            ours_program: ours.to_owned(),
            ours_directives: directives.to_vec(),
            databases: 4,
            apart: false,
            intended: BTreeSet::new(),
        })
    }

    /// Stops both; an error if the server under test did not end well.
    pub fn stop(self) -> Result<(), String> {
        self.oracle.stop()?;
        self.ours.stop()
    }

    /// Replaces a server under test that has ended; gives its log.
    fn revive(&mut self) -> Result<Option<String>, Failure> {
        if self.ours.is_running() {
            return Ok(None);
        }
        let log = self.ours.log();
        let directives: Vec<&str> = self.ours_directives.iter().map(String::as_str).collect();
        self.ours = Server::start(&self.ours_program, &directives)
            .map_err(|error| Failure::Trouble(format!("the server under test does not restart: {error}")))?;
        Ok(Some(log))
    }

    fn connect(&self) -> Result<Duet, Failure> {
        let connect = |server: &Server, name: &str| {
            Connection::unix(&server.socket())
                .map_err(|error| Failure::Trouble(format!("cannot connect to {name}: {error}")))
        };
        Ok(Duet {
            ours: connect(&self.ours, "the server under test")?,
            oracle: connect(&self.oracle, "the oracle")?,
            intended: BTreeSet::new(),
        })
    }

    /// Runs a stream on emptied servers.
    pub fn run(&mut self, steps: &[Step]) -> Result<(), Failure> {
        self.revive()?;
        let result = self.run_stream(steps);
        if let Err(Failure::Mismatch(mut mismatch)) = result {
            // A crash may close the connection shortly before the process is seen to have ended.
            if mismatch.ours.starts_with("connection closed") {
                std::thread::sleep(Duration::from_millis(200));
            }
            if let Some(log) = self.revive()? {
                mismatch.ours.push_str(&format!("\nthe server ended; its log:\n{log}"));
            }
            return Err(Failure::Mismatch(mismatch));
        }
        result
    }

    fn run_stream(&mut self, steps: &[Step]) -> Result<(), Failure> {
        let mut duet = self.connect()?;
        if self.apart {
            let reply = duet.ours.call(&["DEBUG", "VISITS-MAX", "0"]);
            if !matches!(&reply, Ok(reply) if reply.bytes() == Some(b"OK")) {
                return Err(Failure::Trouble(format!("the server under test runs nothing apart: {reply:?}")));
            }
        }
        let flush =
            Step { arguments: vec![b"FLUSHALL".to_vec()], compare: Compare::Exact, action: Action::Send };
        duet.batch(&[flush], 0, &mut Queue::default())?;

        let mut queue = Queue::default();
        let mut at = 0;
        while at < steps.len() {
            let length = batch_length(&steps[at..]);
            if length > 0 {
                duet.batch(&steps[at..at + length], at, &mut queue)?;
                at += length;
            } else {
                self.converse(&mut duet, &steps[at], at, &mut queue)?;
                at += 1;
            }
        }
        self.intended.append(&mut duet.intended);
        // A connection of its own, because the stream may have left its own in any state.
        self.connect()?.compare_contents(self.databases, steps.len())
    }

    /// A step that needs more than one exchange.
    fn converse(&self, duet: &mut Duet, step: &Step, at: usize, queue: &mut Queue) -> Result<(), Failure> {
        // Commands that it would have to send at once would only be queued.
        if step.action != Action::Send && queue.0.is_some() {
            duet.batch(&[plain(&[b"DISCARD"])], at, queue)?;
        }
        match step.action {
            Action::Send => duet.batch(std::slice::from_ref(step), at, queue),
            Action::Raw => self.connect()?.raw(&step.arguments[0], at),
            Action::LetExpire => {
                duet.batch(std::slice::from_ref(step), at, queue)?;
                std::thread::sleep(EXPIRY_WAIT);
                // The oracle drops an expired key at the latest when a command asks for it.
                let key = step.arguments.get(1).cloned().unwrap_or_default();
                duet.batch(&[plain(&[b"EXISTS", &key])], at, queue)
            }
            Action::Forget => {
                duet.batch(std::slice::from_ref(step), at, queue)?;
                let key = step.arguments.get(1).cloned().unwrap_or_default();
                duet.batch(&[plain(&[b"DEL", &key])], at, queue)
            }
            Action::Iterate { cursor } => duet.iterate(step, cursor, at, queue),
            Action::Sample { listed_by } => duet.sample(step, listed_by, at, queue),
        }
    }
}

fn plain(arguments: &[&[u8]]) -> Step {
    Step {
        arguments: arguments.iter().map(|argument| argument.to_vec()).collect(),
        compare: Compare::Exact,
        action: Action::Send,
    }
}

/// How many steps from the front can share a batch.
fn batch_length(steps: &[Step]) -> usize {
    let mut bytes = 0;
    steps
        .iter()
        .take(BATCH_COMMANDS)
        .take_while(|step| {
            let fits = bytes < BATCH_BYTES;
            bytes += step.arguments.iter().map(Vec::len).sum::<usize>();
            fits && step.action == Action::Send
        })
        .count()
}

/// The commands of the transaction at hand, and their rules; `None` outside of one.
#[derive(Default)]
struct Queue(Option<Vec<(Compare, Vec<Vec<u8>>)>>);

impl Queue {
    /// The rule for a reply to this step; EXEC is judged by its queued commands.
    fn agree(&mut self, step: &Step, ours: &Reply, oracle: &Reply) -> bool {
        let is_named = |name: &str| {
            step.arguments.first().is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
        };
        if is_named("MULTI") && *oracle == Reply::Line(b'+', b"OK".to_vec()) {
            self.0 = Some(Vec::new());
        } else if is_named("DISCARD") || is_named("RESET") {
            self.0 = None;
        }
        if let Some(queued) = &mut self.0
            && *oracle == Reply::Line(b'+', b"QUEUED".to_vec())
        {
            queued.push((step.compare, step.arguments.clone()));
            return ours == oracle;
        }
        if step.compare != Compare::Transaction {
            return agree(step.compare, ours, oracle);
        }
        let queued = self.0.take().unwrap_or_default();
        match (ours.elements(), oracle.elements()) {
            (Some(a), Some(b)) if a.len() == b.len() && b.len() == queued.len() => queued
                .iter()
                .zip(a)
                .zip(b)
                .all(|(((rule, command), a), b)| agree(*rule, a, b) || intended(command, a, b).is_some()),
            _ => ours == oracle,
        }
    }
}

fn mismatch(at: usize, command: &[Vec<u8>], ours: String, oracle: String) -> Failure {
    Failure::Mismatch(Box::new(Mismatch { at, command: command.to_vec(), ours, oracle }))
}

/// A reply, or why there is none.
fn shown(reply: Option<&Reply>, error: Option<&ReadError>) -> String {
    match (reply, error) {
        (Some(reply), _) => reply.show(),
        (None, Some(error)) => error.to_string(),
        (None, None) => "nothing".into(),
    }
}

impl Duet {
    fn batch(&mut self, steps: &[Step], first: usize, queue: &mut Queue) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        for step in steps {
            resp::encode_command(&step.arguments, &mut bytes);
        }
        // If the batch is worth a thread, both work at once: the oracle on this thread, the server
        // under test on another; else one after the other.
        let (ours, ours_error) = self.ours.exchange(&bytes, steps.len());
        let (oracle, oracle_error) = self.oracle.exchange(&bytes, steps.len());
        for (index, step) in steps.iter().enumerate() {
            let (a, b) = (ours.get(index), oracle.get(index));
            if let (Some(a), Some(b)) = (a, b) {
                if queue.agree(step, a, b) {
                    continue;
                }
                if let Some(entry) = intended(&step.arguments, a, b) {
                    self.intended.insert(entry.reason);
                    continue;
                }
            } else if a.is_none() && b.is_none() {
                // Both closed the connection here; the commands behind were sent to no server.
                return Err(Failure::Trouble(format!(
                    "both servers stopped answering at {}: {} / {}",
                    crate::report::command_line(&step.arguments),
                    shown(None, ours_error.as_ref()),
                    shown(None, oracle_error.as_ref())
                )));
            }
            let (ours, oracle) = (shown(a, ours_error.as_ref()), shown(b, oracle_error.as_ref()));
            return Err(mismatch(first + index, &step.arguments, ours, oracle));
        }
        Ok(())
    }

    /// Sends one command to each and gives both replies.
    fn both(&mut self, at: usize, ours: &[Vec<u8>], oracle: &[Vec<u8>]) -> Result<(Reply, Reply), Failure> {
        let a = self.ours.call(ours);
        let b = self.oracle.call(oracle);
        match (a, b) {
            (Ok(a), Ok(b)) => Ok((a, b)),
            (a, Ok(b)) => Err(mismatch(at, ours, shown(a.as_ref().ok(), a.as_ref().err()), b.show())),
            (_, Err(error)) => Err(Failure::Trouble(format!("the oracle: {error}"))),
        }
    }

    fn iterate(&mut self, step: &Step, cursor: usize, at: usize, queue: &mut Queue) -> Result<(), Failure> {
        let (ours, oracle) = self.both(at, &step.arguments, &step.arguments)?;
        if page(&oracle).is_none() {
            return if queue.agree(step, &ours, &oracle) {
                Ok(())
            } else {
                Err(mismatch(at, &step.arguments, ours.show(), oracle.show()))
            };
        }
        // HSCAN and ZSCAN give pairs, unless an option says otherwise; the others single elements.
        let name = step.arguments[0].to_ascii_uppercase();
        let are_alone = step.arguments.iter().any(|word| word.eq_ignore_ascii_case(b"NOSCORES"));
        let width = if matches!(&name[..], b"HSCAN" | b"ZSCAN") && !are_alone { 2 } else { 1 };
        let ours = follow(&mut self.ours, ours, &step.arguments, cursor, width);
        let oracle = follow(&mut self.oracle, oracle, &step.arguments, cursor, width);
        match (ours, oracle) {
            (Ok(a), Ok(b)) => {
                let together =
                    |pages: BTreeSet<Vec<Reply>>| Reply::Array(b'*', pages.into_iter().flatten().collect());
                let (ours, oracle) = (together(a), together(b));
                if ours == oracle {
                    return Ok(());
                }
                match intended(&step.arguments, &ours, &oracle) {
                    Some(entry) => {
                        self.intended.insert(entry.reason);
                        Ok(())
                    }
                    None => Err(mismatch(at, &step.arguments, ours.show(), oracle.show())),
                }
            }
            (a, b) => {
                let show = |pages: Result<BTreeSet<Vec<Reply>>, String>| match pages {
                    Ok(all) => format!("{} elements", all.len()),
                    Err(error) => error,
                };
                Err(mismatch(at, &step.arguments, show(a), show(b)))
            }
        }
    }

    /// The replies differ by chance; each has to be made of its own server's elements.
    fn sample(
        &mut self,
        step: &Step,
        listed_by: Option<&'static str>,
        at: usize,
        queue: &mut Queue,
    ) -> Result<(), Failure> {
        let (ours, oracle) = self.both(at, &step.arguments, &step.arguments)?;
        let fail =
            |why: &str| mismatch(at, &step.arguments, format!("{}\n({why})", ours.show()), oracle.show());
        let counted = |reply: &Reply| reply.elements().map(<[Reply]>::len);
        let chosen = oracle != ours && !oracle.is_error() && oracle.bytes() != Some(b"QUEUED");
        if !chosen {
            return if queue.agree(step, &ours, &oracle) { Ok(()) } else { Err(fail("not the same")) };
        }
        if ours.kind() != oracle.kind() || counted(&ours) != counted(&oracle) {
            return Err(fail("another shape"));
        }
        let question = match listed_by {
            None => vec![b"EXISTS".to_vec(), ours.bytes().unwrap_or_default().to_vec()],
            Some(command) => {
                let key = step.arguments.get(1).cloned().unwrap_or_default();
                let mut question: Vec<Vec<u8>> =
                    command.split(' ').map(|word| word.as_bytes().to_vec()).collect();
                question.insert(1, key);
                question
            }
        };
        let listed = self.ours.call(&question).map_err(|error| fail(&error.to_string()))?;
        let known = match listed_by {
            None => listed.integer() == Some(1),
            Some(_) => {
                let all = leaves(&listed);
                leaves(&ours).is_subset(&all)
            }
        };
        if known { Ok(()) } else { Err(fail("made of what is not there")) }
    }

    fn raw(&mut self, bytes: &[u8], at: usize) -> Result<(), Failure> {
        let mut results = Vec::new();
        for connection in [&mut self.ours, &mut self.oracle] {
            // A server that closes at once may refuse the rest of the bytes.
            let _ = connection.send(&[bytes, SENTINEL].concat());
            let (reply, closed) = connection.read_until(SENTINEL_REPLY);
            results.push((reply, closed));
        }
        if results[0] == results[1] {
            return Ok(());
        }
        let show = |(reply, closed): &(Vec<u8>, bool)| {
            format!("{}{}", quoted(reply), if *closed { ", then closed" } else { "" })
        };
        Err(mismatch(at, &[bytes.to_vec()], show(&results[0]), show(&results[1])))
    }

    fn compare_contents(&mut self, databases: usize, at: usize) -> Result<(), Failure> {
        for database in 0..databases {
            let number = database.to_string();
            self.batch(&[plain(&[b"SELECT", number.as_bytes()])], at, &mut Queue::default())?;
            let keys = plain(&[b"KEYS", b"*"]);
            let (ours, oracle) = self.both(at, &keys.arguments, &keys.arguments)?;
            if !agree(Compare::Unordered, &ours, &oracle) {
                return Err(mismatch(at, &keys.arguments, ours.show(), oracle.show()));
            }
            let names: Vec<Vec<u8>> = oracle
                .elements()
                .unwrap_or_default()
                .iter()
                .filter_map(|key| key.bytes().map(<[u8]>::to_vec))
                .collect();
            for key in names {
                self.compare_key(&key, at)?;
            }
        }
        Ok(())
    }

    fn compare_key(&mut self, key: &[u8], at: usize) -> Result<(), Failure> {
        let kind = plain(&[b"TYPE", key]);
        let (ours, oracle) = self.both(at, &kind.arguments, &kind.arguments)?;
        if ours != oracle {
            return Err(mismatch(at, &kind.arguments, ours.show(), oracle.show()));
        }
        let mut expiry = plain(&[b"PEXPIRETIME", key]);
        // A server may stand still for a while; times of life are far longer.
        expiry.compare = Compare::Near(60_000);
        let mut steps = vec![expiry, plain(&[b"OBJECT", b"ENCODING", key])];
        let mut contents = match oracle.bytes().unwrap_or_default() {
            b"string" => vec![(plain(&[b"GET", key]), Compare::Exact)],
            b"hash" => vec![(plain(&[b"HGETALL", key]), Compare::UnorderedPairs)],
            b"list" => vec![(plain(&[b"LRANGE", key, b"0", b"-1"]), Compare::Exact)],
            b"set" => vec![(plain(&[b"SMEMBERS", key]), Compare::Unordered)],
            b"zset" => vec![(plain(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]), Compare::Exact)],
            b"stream" => vec![(plain(&[b"XRANGE", key, b"-", b"+"]), Compare::Exact)],
            _ => vec![],
        };
        steps.extend(contents.drain(..).map(|(mut step, rule)| {
            step.compare = rule;
            step
        }));
        self.batch(&steps, at, &mut Queue::default())
    }
}

/// The cursor and the elements of one page.
fn page(reply: &Reply) -> Option<(&[u8], &[Reply])> {
    match reply.elements()? {
        [cursor, elements] => Some((cursor.bytes()?, elements.elements()?)),
        _ => None,
    }
}

/// The elements of all pages of one iteration.
fn follow(
    connection: &mut Connection,
    first: Reply,
    command: &[Vec<u8>],
    cursor: usize,
    width: usize,
) -> Result<BTreeSet<Vec<Reply>>, String> {
    let mut command = command.to_vec();
    let mut all = BTreeSet::new();
    let mut reply = first;
    for _ in 0..PAGES_MAX {
        let Some((next, elements)) = page(&reply) else {
            return Err(format!("not a page: {}", reply.show()));
        };
        all.extend(elements.chunks(width).map(<[Reply]>::to_vec));
        if next == b"0" {
            return Ok(all);
        }
        command[cursor] = next.to_vec();
        reply = connection.call(&command).map_err(|error| error.to_string())?;
    }
    Err(format!("no end after {PAGES_MAX} pages"))
}

/// The texts at the leaves of a reply.
fn leaves(reply: &Reply) -> BTreeSet<Vec<u8>> {
    match reply {
        Reply::Array(_, elements) => elements.iter().flat_map(leaves).collect(),
        other => other.bytes().map(<[u8]>::to_vec).into_iter().collect(),
    }
}
