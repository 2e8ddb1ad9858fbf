//! Running the commands of a log: one thread reads and checks them, others run them.
//!
//! ```text
//! log ─▶ reader (the calling thread) ─ batches of commands ─▶ runner 0 … runner n     one a core besides the reader
//!               ▲                       n short queues           │
//!               └────────────── buffers, to be used again ◀──────┘
//! ```
//!
//! A key belongs to one runner, that of its stripe: commands on it run in the order of the log, and the values of other
//! keys does not depend on them. A command that concerns several runners, or the keyspace as a whole, is runner 0's
//! while the others have nothing to do. So are the commands behind it for a while: a log that has such commands has
//! many. With one runner, as on two cores, no runner waits for that.

use std::{
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
};

use dunlin_engine::{
    Caller, Environment, EventClasses, Policy, Request, Worker,
    command::{Args, CommandResult, CommandTable, Entry, Run},
    keyspace::Inside,
};
use dunlin_resp::{ReplyBuffer, number::parse_integer};
use dunlin_scripting::STACK_BYTES;

use super::scripts::{self, Scripts, Surroundings};
use crate::{
    config::{Config, policy},
    loading::helpers,
    lua::{LibraryChange, LoadedLibraries},
    shared::Shared,
};

/// Commands that are handed over together, and bytes that are enough. Few in tests, whose logs are short.
const BATCH_COMMANDS: usize = if cfg!(test) { 4 } else { 256 };
const BATCH_BYTES: usize = 64 << 10;
/// Batches on their way to one runner: that many are in memory twice.
const QUEUED_BATCHES_MAX: usize = 4;
/// A batch of at least this size is the only one on its way to its runner, and its memory is not kept.
const LARGE_BATCH_BYTES: usize = 1 << 20;
/// Commands whose keys are fetched ahead together.
const WINDOW: usize = 64;
/// Commands behind one that concerns several runners that are runner 0's, too: running them takes longer than to wait for the runners. Few
/// in tests, so that runners take over again.
const FOLLOWING: u32 = if cfg!(test) { 16 } else { 1024 };

/// The fault of EXEC without MULTI.
pub const ENDS_OUTSIDE: &str = "a transaction ends that has not begun";
/// The fault of MULTI without EXEC.
pub const BEGINS_INSIDE: &str = "a transaction begins inside another";

/// Commands, copied one behind the other.
#[derive(Debug, Default)]
struct Commands {
    bytes: Vec<u8>,
    /// The end of each word in `bytes`.
    word_ends: Vec<usize>,
    /// The end of each command in `word_ends`.
    command_ends: Vec<usize>,
}

impl Commands {
    fn push(&mut self, words: &[&[u8]]) {
        for word in words {
            self.bytes.extend_from_slice(word);
            self.word_ends.push(self.bytes.len());
        }
        self.command_ends.push(self.word_ends.len());
    }

    fn len(&self) -> usize {
        self.command_ends.len()
    }

    /// The words of one of them.
    fn words(&self, command: usize) -> impl ExactSizeIterator<Item = &[u8]> {
        let end_before = |ends: &[usize], at: usize| at.checked_sub(1).map_or(0, |before| ends[before]);
        let range = end_before(&self.command_ends, command)..self.command_ends[command];
        range.map(move |word| &self.bytes[end_before(&self.word_ends, word)..self.word_ends[word]])
    }

    /// The memory that they take.
    fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.word_ends.len() * size_of::<usize>()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.word_ends.clear();
        self.command_ends.clear();
    }
}

/// A command's row, and the database that it concerns.
#[derive(Debug, Clone, Copy)]
struct Target<'a> {
    entry: &'a Entry,
    database: usize,
}

/// Commands on their way to a runner.
#[derive(Debug, Default)]
struct Batch<'a> {
    commands: Commands,
    targets: Vec<Target<'a>>,
}

/// The reader's end of a runner. A runner that has panicked is passed over: the scope of its thread reports it.
#[derive(Debug)]
struct RunnerHandle<'a> {
    batch: Batch<'a>,
    queue: SyncSender<Batch<'a>>,
    given_back: Receiver<Batch<'a>>,
    /// Batches that have not come back.
    under_way: usize,
}

impl<'a> RunnerHandle<'a> {
    fn push(&mut self, words: &[&[u8]], target: Target<'a>) {
        self.batch.commands.push(words);
        self.batch.targets.push(target);
        let bytes = self.batch.commands.memory_bytes();
        if bytes >= LARGE_BATCH_BYTES {
            self.settle();
        } else if bytes >= BATCH_BYTES || self.batch.targets.len() == BATCH_COMMANDS {
            self.send();
        }
    }

    /// Hands over the batch as it is.
    fn send(&mut self) {
        if self.batch.targets.is_empty() {
            return;
        }
        let spare = self.given_back.try_recv().inspect(|_| self.under_way -= 1).unwrap_or_default();
        if self.queue.send(mem::replace(&mut self.batch, spare)).is_ok() {
            self.under_way += 1;
        }
    }

    /// Waits until everything has been run.
    fn settle(&mut self) {
        self.send();
        while self.under_way > 0 && self.given_back.recv().is_ok() {
            self.under_way -= 1;
        }
    }
}

/// Gives commands to the runners.
pub(super) struct Replay<'a> {
    shared: &'a Shared,
    runners: Vec<RunnerHandle<'a>>,
    /// How many of the next commands are runner 0's; meanwhile the others have nothing to do.
    following: u32,
    database: usize,
    /// The commands since MULTI, while there is no EXEC.
    queued: Option<Commands>,
    commands: u64,
}

impl<'a> Replay<'a> {
    /// Lets `work` read a log whose commands are run as at that time, in milliseconds since 1970, in an engine that no
    /// client changes meanwhile. Returns when all of them have been run. The error is that there are no threads for it.
    pub(super) fn with<R>(
        shared: &'a Shared,
        config: &Config,
        now_ms: u64,
        work: impl FnOnce(&mut Self) -> R,
    ) -> io::Result<R> {
        let caller = Caller {
            replaying_at_ms: now_ms,
            access: shared.engine.keyspace.access_clock().access(now_ms),
            deny_blocking: true,
            waits_for_views: true,
            ..Caller::default()
        };
        let policy = Policy {
            string_bytes_max: usize::MAX,
            relaxed_versions: true,
            refuses_foreign: false,
            // No client is there to hear of them, and they would pile up.
            notifications: EventClasses::default(),
            ..policy(config)
        };
        let refused = Arc::new(AtomicU64::new(0));
        let result = thread::scope(|scope| {
            let runner = |index: usize| {
                let (queue, batches) = sync_channel(QUEUED_BATCHES_MAX);
                let (give_back, given_back) = channel();
                let (policy, refused) = (policy.clone(), Arc::clone(&refused));
                let run =
                    move || Runner::new(shared, index, (policy, caller), refused).run_all(batches, give_back);
                // A log may hold scripts.
                let thread = thread::Builder::new().name("log-replay".to_owned()).stack_size(STACK_BYTES);
                let thread = thread.spawn_scoped(scope, run);
                thread.map(|_| RunnerHandle { batch: Batch::default(), queue, given_back, under_way: 0 })
            };
            let runners = (0..helpers(shared.workers)).map(runner).collect::<io::Result<_>>()?;
            let mut replay = Self { shared, runners, following: 0, database: 0, queued: None, commands: 0 };
            let result = work(&mut replay);
            replay.settle();
            Ok(result)
        });
        let refused = refused.load(Relaxed);
        if refused > 1 {
            tracing::warn!("{refused} commands of the log were refused; the first one was told");
        }
        result
    }

    /// Commands that have come, those of transactions and these included.
    pub(super) fn commands(&self) -> u64 {
        self.commands
    }

    /// The database that is selected.
    pub(super) fn database(&self) -> usize {
        self.database
    }

    /// Whether a transaction has begun that has not ended.
    pub(super) fn is_in_transaction(&self) -> bool {
        self.queued.is_some()
    }

    /// A file begins, with database 0. Commands queued by an unfinished transaction are forgotten.
    pub(super) fn begin_file(&mut self) {
        self.database = 0;
        self.queued = None;
    }

    /// Waits until all commands have been run.
    pub(super) fn settle(&mut self) {
        self.runners.iter_mut().for_each(RunnerHandle::send);
        self.runners.iter_mut().for_each(RunnerHandle::settle);
    }

    /// Runs a command, or queues it if it belongs to a transaction. The error says why a log cannot have it; the
    /// commands before it are run nonetheless.
    pub(super) fn command(&mut self, words: &[&[u8]]) -> Result<(), String> {
        self.commands += 1;
        let is = |name: &[u8]| words.len() == 1 && words[0].eq_ignore_ascii_case(name);
        match &mut self.queued {
            None if is(b"multi") => self.queued = Some(Commands::default()),
            None if is(b"exec") => return Err(ENDS_OUTSIDE.to_owned()),
            None => return self.hand_over(words),
            Some(_) if is(b"multi") => return Err(BEGINS_INSIDE.to_owned()),
            Some(_) if is(b"exec") => {
                let queued = self.queued.take().unwrap_or_default();
                for command in 0..queued.len() {
                    self.hand_over(&queued.words(command).collect::<Vec<_>>())?;
                }
            }
            Some(queued) => queued.push(words),
        }
        Ok(())
    }

    fn hand_over(&mut self, words: &[&[u8]]) -> Result<(), String> {
        if is_for_replicas(words) {
            return Ok(());
        }
        if let [name, index] = words
            && name.eq_ignore_ascii_case(b"select")
        {
            let databases = self.shared.engine.keyspace.databases();
            let index = parse_integer(index).and_then(|index| usize::try_from(index).ok());
            self.database = index.filter(|index| *index < databases).ok_or_else(|| {
                format!("it selects a database that there is not; set databases above {databases}")
            })?;
            return Ok(());
        }
        let entry = entry_in_log(&self.shared.commands, words)?;
        let target = Target { entry, database: self.database };
        let runner = self.runner_of(entry, words);
        self.runners[runner].push(words, target);
        Ok(())
    }

    /// The runner for a command, if it may begin with it at once.
    fn runner_of(&mut self, entry: &Entry, words: &[&[u8]]) -> usize {
        if self.runners.len() == 1 {
            return 0;
        }
        let Some(own) = self.own_runner(entry, words) else {
            if self.following == 0 {
                self.settle();
            }
            self.following = FOLLOWING;
            return 0;
        };
        match self.following {
            0 => return own,
            1 => self.runners[0].settle(),
            _ => {}
        }
        self.following -= 1;
        if self.following == 0 { own } else { 0 }
    }

    /// The runner of all that a command concerns; `None` if there is no such runner.
    fn own_runner(&self, entry: &Entry, words: &[&[u8]]) -> Option<usize> {
        if !names_its_keys(entry, words) {
            return None;
        }
        let keyspace = &self.shared.engine.keyspace;
        let mut runners =
            entry.key_positions(words).map(|at| keyspace.stripe_of(words[at]) % self.runners.len());
        let first = runners.next()?;
        runners.all(|runner| runner == first).then_some(first)
    }
}

/// Whether a command stands in the log for the sake of replicas alone, and changes no data: signs of life, questions how far
/// they are, messages to subscribers.
pub fn is_for_replicas(words: &[&[u8]]) -> bool {
    [&b"ping"[..], b"replconf", b"publish", b"spublish"]
        .iter()
        .any(|name| words[0].eq_ignore_ascii_case(name))
}

/// Finds the row of a log's command that is not about databases or transactions. The error says why a log cannot have
/// it.
pub(crate) fn entry_in_log<'a>(commands: &'a CommandTable, words: &[&[u8]]) -> Result<&'a Entry, String> {
    let entry = commands.find_row(words[0]);
    let entry = entry.ok_or_else(|| format!("unknown command '{}'", shown(words)))?;
    let entry = commands.resolve(entry, words);
    if !entry.command.arity.accepts(words.len()) {
        return Err(format!("'{}' has a wrong number of words", shown(words)));
    }
    let belongs = match entry.command.run {
        Run::Host(_) => changes_libraries(entry) || scripts::is_known(&entry.full_name()),
        Run::Container | Run::Help(_) => false,
        Run::Read(_) | Run::Write(_) | Run::Block(_) | Run::Keyspace(_) | Run::Exclusive(_) => true,
    };
    if !belongs {
        return Err(format!("'{}' does not belong into a log", shown(words)));
    }
    Ok(entry)
}

/// Whether a command concerns the keys among its words, and nothing else.
fn names_its_keys(entry: &Entry, words: &[&[u8]]) -> bool {
    matches!(entry.command.run, Run::Read(_) | Run::Write(_) | Run::Block(_))
        && !entry.has_undeclared_keys(words)
}

pub(crate) fn changes_libraries(entry: &Entry) -> bool {
    entry.container.is_some_and(|container| container.name == "function") && entry.command.is_write()
}

/// The name of a command, as it can be shown.
fn shown(words: &[&[u8]]) -> String {
    String::from_utf8_lossy(words[0]).escape_debug().to_string()
}

/// Runs the commands of a runner.
struct Runner<'a> {
    shared: &'a Shared,
    policy: Policy,
    caller: Caller,
    worker: Worker,
    libraries: LoadedLibraries,
    scripts: Scripts,
    /// Commands of all runners that were answered with an error.
    refused: Arc<AtomicU64>,
    reply: ReplyBuffer,
}

impl<'a> Runner<'a> {
    fn new(
        shared: &'a Shared,
        runner: usize,
        (policy, caller): (Policy, Caller),
        refused: Arc<AtomicU64>,
    ) -> Self {
        Self {
            shared,
            policy,
            caller,
            worker: Worker::new(shared.helper(runner), 0),
            libraries: LoadedLibraries::default(),
            scripts: Scripts::default(),
            refused,
            reply: ReplyBuffer::default(),
        }
    }

    fn run_all(&mut self, batches: Receiver<Batch<'a>>, give_back: Sender<Batch<'a>>) {
        for mut batch in batches {
            self.run_batch(&batch);
            if batch.commands.memory_bytes() >= LARGE_BATCH_BYTES {
                batch = Batch::default();
            }
            batch.commands.clear();
            batch.targets.clear();
            // The reader may have come to its end.
            let _ = give_back.send(batch);
        }
    }

    fn run_batch(&mut self, batch: &Batch<'a>) {
        let keyspace = &self.shared.engine.keyspace;
        let (mut words, mut keys, mut ends) = (Vec::new(), Vec::new(), Vec::with_capacity(WINDOW));
        let mut command = 0;
        let same_database = batch.targets.chunk_by(|one, next| one.database == next.database);
        for window in same_database.flat_map(|targets| targets.chunks(WINDOW)) {
            words.clear();
            keys.clear();
            ends.clear();
            for Target { entry, .. } in window {
                let start = words.len();
                words.extend(batch.commands.words(command));
                if names_its_keys(entry, &words[start..]) {
                    keys.extend(
                        entry.key_positions(&words[start..]).map(|at| keyspace.key(words[start + at])),
                    );
                }
                ends.push((words.len(), keys.len()));
                command += 1;
            }
            let mut inside = Some(keyspace.enter(self.worker.id()));
            if let Some(inside) = &inside {
                keyspace.prefetch(inside, window[0].database, &keys);
            }
            let (mut words_start, mut keys_start) = (0, 0);
            for (target, (words_end, keys_end)) in window.iter().zip(&ends) {
                let words = &words[mem::replace(&mut words_start, *words_end)..*words_end];
                let keys = &keys[mem::replace(&mut keys_start, *keys_end)..*keys_end];
                let request = Request { entry: target.entry, words, keys, encoded: &[] };
                self.run(&request, target.database, &mut inside);
            }
        }
    }

    fn run(&mut self, request: &Request<'_>, database: usize, inside: &mut Option<Inside<'a>>) {
        let (shared, Request { entry, words, .. }) = (self.shared, *request);
        let result = if let Run::Host(_) = entry.command.run {
            *inside = None;
            let result = self.run_of_host(entry, words, database);
            *inside = Some(shared.engine.keyspace.enter(self.worker.id()));
            result
        } else {
            let (environment, worker, reply) =
                (Environment::new(&self.policy, &self.caller), &mut self.worker, &mut self.reply);
            shared.engine.execute(request, database, environment, worker, inside, reply).map(drop)
        };
        self.reply.clear(usize::MAX);
        // No audience is there for notices.
        debug_assert!(self.worker.notices.is_empty());
        drop(self.worker.garbage.take());
        // Redis does not look at replies here, and neither is a log that it wrote worth losing for one.
        if let Err(error) = result
            && self.refused.fetch_add(1, Relaxed) == 0
        {
            let line = error.line();
            tracing::warn!("'{}' in the log was refused: {}", shown(words), String::from_utf8_lossy(&line));
        }
    }

    /// Runs a command of libraries or scripts. The caller is not inside the gate.
    fn run_of_host(&mut self, entry: &Entry, words: &[&[u8]], database: usize) -> CommandResult {
        let shared = self.shared;
        if changes_libraries(entry) {
            let change = LibraryChange::read(&mut Args::new(words, entry.name_words()))?;
            return self.libraries.apply(&shared.libraries, &shared.commands, &change, || ()).map(drop);
        }
        let (environment, worker) = (Environment::new(&self.policy, &self.caller), &mut self.worker);
        let surroundings = Surroundings { shared, environment, worker, database };
        self.scripts.command(&entry.full_name(), words, surroundings, &mut self.reply)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{config::ConfigStore, config::KeyspaceEvents, process::server::assemble};

    const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    const DATABASES: usize = 2;

    #[test]
    fn commands_come_back_as_they_were_given() {
        let mut commands = Commands::default();
        let given: [&[&[u8]]; 4] = [&[b"SET", b"a", b""], &[b"FLUSHALL"], &[b"DEL", b"", b"x"], &[b""]];
        for _ in 0..2 {
            given.iter().for_each(|words| commands.push(words));
            assert_eq!(commands.len(), given.len());
            for (at, words) in given.iter().enumerate() {
                assert_eq!(commands.words(at).collect::<Vec<_>>(), *words);
            }
            commands.clear();
        }
        assert_eq!(commands.len(), 0);
    }

    /// A command line of a log, whose result depends on the commands before.
    fn line() -> impl Strategy<Value = String> {
        let key = || prop::sample::select(&KEYS[..]);
        let database = || 0..DATABASES;
        prop_oneof![
            40 => (key(), 0..10).prop_map(|(key, digit)| format!("APPEND {key} {digit}")),
            40 => (key(), 0..10).prop_map(|(key, digit)| format!("RPUSH list-{key} {digit}")),
            5 => key().prop_map(|key| format!("DEL {key}")),
            5 => database().prop_map(|database| format!("SELECT {database}")),
            2 => (key(), key()).prop_map(|(from, to)| format!("RENAME {from} {to}")),
            2 => (key(), key(), database())
                .prop_map(|(from, to, database)| format!("COPY {from} {to} DB {database} REPLACE")),
            2 => (key(), database()).prop_map(|(key, database)| format!("MOVE {key} {database}")),
            2 => (key(), key()).prop_map(|(from, to)| format!("LMOVE list-{from} list-{to} LEFT RIGHT")),
            2 => (key(), key()).prop_map(|(one, other)| format!("MSET {one} 1 {other} 2")),
            1 => Just("SWAPDB 0 1".to_owned()),
            1 => Just("FLUSHDB".to_owned()),
            1 => key().prop_map(|key| format!("EVAL return(redis.call('append',KEYS[1],'s')) 1 {key}")),
        ]
    }

    /// The values of all keys behind those commands, run by the runners of `workers` workers.
    fn replayed(lines: &[String], workers: usize) -> Vec<Vec<u8>> {
        let notify_keyspace_events = KeyspaceEvents::parse(b"AKE").unwrap();
        let config = Config { notify_keyspace_events, ..Config::default() };
        let (stopper, _orders) = channel();
        let store = Arc::new(ConfigStore::new(config.clone(), None));
        let shared = assemble(store, workers, stopper).unwrap().shared;
        Replay::with(&shared, &config, 1, |replay| {
            assert_eq!(replay.runners.len(), helpers(workers));
            for line in lines {
                replay.command(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()).unwrap();
            }
        })
        .unwrap();
        let dump = |database: usize, key: &str| {
            let words = [&b"DUMP"[..], key.as_bytes()];
            let entry = shared.commands.find(words[0]).unwrap();
            let request = Request { entry, words: &words, keys: &[], encoded: &[] };
            let mut worker = Worker::new(shared.loader(), 0);
            let mut inside = Some(shared.engine.keyspace.enter(worker.id()));
            let (policy, caller) = (policy(&config), Caller::default());
            let environment = Environment::new(&policy, &caller);
            let mut reply = ReplyBuffer::default();
            let executed =
                shared.engine.execute(&request, database, environment, &mut worker, &mut inside, &mut reply);
            executed.unwrap();
            reply.into_bytes()
        };
        (0..DATABASES)
            .flat_map(|database| {
                KEYS.map(|key| [dump(database, key), dump(database, &format!("list-{key}"))])
            })
            .flatten()
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn replay_by_any_number_of_runners_gives_the_same(lines in prop::collection::vec(line(), 0..400)) {
            let one = replayed(&lines, 2);
            prop_assert_eq!(&replayed(&lines, 3), &one);
            prop_assert_eq!(&replayed(&lines, 6), &one);
        }
    }
}
