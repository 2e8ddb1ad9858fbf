//! Applying a primary's stream: commands as they come, transactions as one, the primary's bytes into the log.
//!
//! ```text
//! bytes ─▶ frames ─▶ window of commands, or MULTI … EXEC ─▶ locks ─ run ─ the same bytes into the ring ─ unlock
//! ```
//!
//! A window is some commands in a row that need only the locks of their keys: their buckets and entries are fetched from memory side by side,
//! and one pass through the gate serves them all. Each is applied by itself, in the order of the stream.
//!
//! Invariants:
//! - The ring has exactly the primary's bytes, so offsets here are the primary's: a replica of this replica, or one
//!   that follows it after a failover, can go on from them.
//! - Nothing is applied of a transaction before its EXEC has come; it is then applied under one set of locks.
//! - Nothing expires here: the stream says what has.

use std::{
    ops::Range,
    sync::{Arc, mpsc::channel},
    thread,
    time::{Duration, Instant},
};

use dunlin_cluster::records::{Record, SlotsRecord};
use dunlin_engine::{
    Caller, Environment, Footprint, Policy, Request, Worker,
    command::{Args, CommandError, CommandResult, Entry, Group, Run},
    keyspace::Key,
};
use dunlin_net::{Now, WorkerQueues};
use dunlin_replication::{Frame, StreamReader};
use dunlin_resp::{ReplyBuffer, number::parse_integer};

use crate::{
    aof::{
        BEGINS_INSIDE, ENDS_OUTSIDE, Scripts, Surroundings, changes_libraries, entry_in_log, is_for_replicas,
    },
    cluster::{inbox::Input, moves::SLOTS_MARK},
    config::{ConfigReader, ModuleData, policy},
    lua::{LibraryChange, LoadedLibraries},
    observe::{command_stats::Meter, error_counts::ErrorSource, module_commands::ModuleCommands},
    push::pubsub::Kind,
    shared::Shared,
    workers::{WorkerMessage, drain::drain},
};

/// Between two looks whether a script, a snapshot or the log has let go.
const PAUSE: Duration = Duration::from_micros(500);
/// How long the stream waits until clients are sent to where slots are now.
const SLOTS_TIME_MAX: Duration = Duration::from_secs(1);
/// Bytes of a key's name that the operator is shown.
const KEY_BYTES_SHOWN_MAX: usize = 128;
/// Commands of a window.
const WINDOW: usize = 32;
/// Bytes of a window from which on it takes no further command: room in the log is waited for once a window.
const WINDOW_BYTES_MAX: usize = 256 << 10;
/// Memory that is kept for the next bytes.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Commands that are about to be applied one after the other.
#[derive(Default)]
struct Window {
    /// The words of all, by their places in the input.
    words: Vec<Range<usize>>,
    commands: Vec<Windowed>,
}

/// A windowed command: the end of its words and the end of the command, and its place in the command table.
#[derive(Clone, Copy)]
struct Windowed {
    words_end: usize,
    end: usize,
    entry: usize,
}

/// Applies a stream.
pub(super) struct Applier {
    shared: Arc<Shared>,
    queues: WorkerQueues<WorkerMessage>,
    config: ConfigReader,
    policy: Policy,
    caller: Caller,
    worker: Worker,
    libraries: LoadedLibraries,
    scripts: Scripts,
    reply: ReplyBuffer,
    /// The database that the stream has selected.
    database: usize,
    reader: StreamReader,
    /// Bytes that have come and are not applied, from `relayed` on.
    input: Vec<u8>,
    /// How much of `input` is in the log.
    relayed: usize,
    /// How much of `input` has been taken apart.
    parsed: usize,
    window: Window,
    /// The commands since MULTI, by their places in `input`; `None` outside of a transaction.
    block: Option<Vec<Vec<Range<usize>>>>,
    /// The primary wants an acknowledgement.
    pub(super) ack_wanted: bool,
    meter: Meter,
    /// Commands of the stream since the link was made, and the place of the last one in the command table.
    commands: u64,
    last_command: Option<usize>,
    /// A script of the stream has failed, as it will have at the primary; the operator knows.
    has_warned: bool,
}

impl Applier {
    pub(super) fn new(shared: &Arc<Shared>, queues: &WorkerQueues<WorkerMessage>) -> Self {
        let mut worker = Worker::new(shared.applier(), 0);
        worker.statistics = Arc::clone(&shared.stats.keyspace[shared.workers]);
        worker.audience = Some(Box::new(shared.notifier(queues)));
        let config = ConfigReader::new(Arc::clone(&shared.config));
        let statistics = Arc::clone(&shared.stats.workers[shared.workers]);
        Self {
            meter: Meter::new(statistics, &shared.commands, config.config()),
            commands: 0,
            last_command: None,
            shared: Arc::clone(shared),
            queues: queues.clone(),
            policy: policy(config.config()),
            caller: Caller::default(),
            config,
            worker,
            libraries: LoadedLibraries::default(),
            scripts: Scripts::default(),
            reply: ReplyBuffer::default(),
            database: 0,
            reader: StreamReader::default(),
            input: Vec::new(),
            relayed: 0,
            parsed: 0,
            window: Window::default(),
            block: None,
            ack_wanted: false,
            has_warned: false,
        }
    }

    /// Leaves clients that a script keeps from being served to a worker, which looks at them again before long. If the
    /// server is a primary by then, the worker records what they change; this thread does not.
    pub(super) fn leave_kept_out(&mut self) {
        if self.worker.has_blocked_by_script() {
            let keys = Arc::new(self.worker.take_blocked_by_script());
            self.queues.send_to_service(0, WorkerMessage::BlockedByScript(keys));
        }
    }

    /// The workers' message queues.
    pub(super) fn queues(&self) -> &WorkerQueues<WorkerMessage> {
        &self.queues
    }

    /// The database that the stream has selected.
    pub(super) fn database(&self) -> usize {
        self.database
    }

    /// Commands of the stream since the link was made, and the place of the last one in the command table.
    pub(super) fn applied(&self) -> (u64, Option<usize>) {
        (self.commands, self.last_command)
    }

    /// Bytes of the stream that have come and are not applied.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.input.len()
    }

    /// The stream goes on after a snapshot, in this database.
    pub(super) fn begin(&mut self, database: usize) {
        self.cut();
        self.database = database;
    }

    /// The connection was cut: what has come and was not applied comes again.
    pub(super) fn cut(&mut self) {
        self.reader = StreamReader::default();
        self.window = Window::default();
        self.input.clear();
        (self.relayed, self.parsed, self.block, self.ack_wanted) = (0, 0, None, false);
        (self.commands, self.last_command) = (0, None);
        // A command that was refused before it ran has left its bytes in the record.
        self.worker.propagation.forget();
    }

    /// Applies what has come, as far as it is complete. The error is a line for the operator: the stream has something
    /// that this server cannot hold.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.input.extend_from_slice(bytes);
        self.config.refresh();
        self.meter.configure(self.config.config());
        // The primary has accepted these commands: limits for this server's own clients do not hold for them.
        let policy = policy(self.config.config());
        self.policy =
            Policy { string_bytes_max: usize::MAX, relaxed_versions: true, refuses_foreign: false, ..policy };
        self.caller = Caller {
            replaying_at_ms: Now::read().unix_ms,
            follows_primary: true,
            deny_blocking: true,
            broadcasts: self.shared.trackers.broadcasts(),
            ..Caller::default()
        };
        loop {
            let frame = self.reader.next(&self.input[self.parsed..]);
            let frame = match frame {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => {
                    self.apply_window()?;
                    return Err(format!("the stream makes no sense: {error}"));
                }
            };
            match self.windowed(&frame) {
                Some(entry) => self.add_to_window(entry, frame)?,
                None => {
                    self.apply_window()?;
                    self.frame(frame)?;
                }
            }
        }
        self.apply_window()?;
        self.relay_rest();
        self.input.drain(..self.relayed);
        self.parsed -= self.relayed;
        if let Some(block) = &mut self.block {
            let moved = self.relayed;
            block.iter_mut().flatten().for_each(|word| *word = word.start - moved..word.end - moved);
        }
        self.relayed = 0;
        if self.input.is_empty() {
            self.input.shrink_to(KEPT_BYTES_MAX);
        }
        // The log's file and the replicas behind this one.
        self.shared.durability.wake_log(self.shared.durability.tail());
        self.shared.replication.note_recorded();
        Ok(())
    }

    /// Returns the command of a frame if it needs nothing but the locks of the keys among its words.
    fn windowed(&self, frame: &Frame) -> Option<usize> {
        if self.block.is_some() {
            return None;
        }
        let words = &frame.words;
        let bytes = |word: &Range<usize>| &self.input[self.parsed + word.start..self.parsed + word.end];
        let entry = self.shared.commands.find_row(bytes(&words[0]))?;
        let needs_only_keys = matches!(entry.command.run, Run::Write(_) | Run::Block(_))
            && entry.command.undeclared_keys.is_none();
        (needs_only_keys && entry.command.arity.accepts(words.len())).then_some(entry.index)
    }

    fn add_to_window(&mut self, entry: usize, frame: Frame) -> Result<(), String> {
        let (start, window) = (self.parsed, &mut self.window);
        window.words.extend(frame.words.iter().map(|word| start + word.start..start + word.end));
        self.parsed += frame.end;
        let (words_end, end) = (window.words.len(), self.parsed);
        window.commands.push(Windowed { words_end, end, entry });
        self.reader.recycle(frame.words);
        let is_full = window.commands.len() == WINDOW || end - self.relayed >= WINDOW_BYTES_MAX;
        if is_full { self.apply_window() } else { Ok(()) }
    }

    /// Applies the commands that have gathered.
    fn apply_window(&mut self) -> Result<(), String> {
        if self.window.commands.is_empty() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let (input, mut window) = (std::mem::take(&mut self.input), std::mem::take(&mut self.window));
        let result = self.apply_commands(&shared, &input, &window);
        drain(&mut self.worker, &shared.maintenance, &self.queues);
        self.input = input;
        window.words.clear();
        window.commands.clear();
        self.window = window;
        result
    }

    fn apply_commands(&mut self, shared: &Shared, input: &[u8], window: &Window) -> Result<(), String> {
        self.wait_for_room();
        let keyspace = &shared.engine.keyspace;
        let words: Vec<&[u8]> = window.words.iter().map(|word| &input[word.clone()]).collect();
        let entry_of = |command: &Windowed| &shared.commands.entries()[command.entry];
        let (mut keys, mut keys_ends, mut start) = (Vec::<Key<'_>>::with_capacity(WINDOW), [0; WINDOW], 0);
        for (command, keys_end) in window.commands.iter().zip(&mut keys_ends) {
            let words = &words[start..command.words_end];
            keys.extend(entry_of(command).key_positions(words).map(|at| keyspace.key(words[at])));
            (start, *keys_end) = (command.words_end, keys.len());
        }
        let mut inside = Some(keyspace.enter(self.worker.id()));
        if let Some(inside) = &inside {
            keyspace.prefetch(inside, self.database, &keys);
        }
        // A cut that comes before a command sees a SELECT come once more, which is no harm.
        shared.replication.select(self.database);
        let (mut start, mut keys_start) = (0, 0);
        self.meter.start();
        for (command, keys_end) in window.commands.iter().zip(keys_ends) {
            let (entry, words) = (entry_of(command), &words[start..command.words_end]);
            let request = Request { entry, words, keys: &keys[keys_start..keys_end], encoded: &[] };
            (start, keys_start) = (command.words_end, keys_end);
            let record = &input[self.relayed..command.end];
            self.worker.propagation.relay(record);
            self.relayed = command.end;
            self.begin_command(entry.index);
            let result = loop {
                let (environment, worker, reply) =
                    (Environment::new(&self.policy, &self.caller), &mut self.worker, &mut self.reply);
                let result =
                    shared.engine.execute(&request, self.database, environment, worker, &mut inside, reply);
                if !matches!(result, Err(CommandError::Busy)) {
                    break result.map(drop);
                }
                drop(inside.take());
                thread::sleep(PAUSE);
                inside = Some(keyspace.enter(self.worker.id()));
            };
            if inside.is_none() {
                inside = Some(keyspace.enter(self.worker.id()));
            }
            // After a failure before it could change anything.
            shared.engine.relay(&mut self.worker);
            self.reply.clear(KEPT_BYTES_MAX);
            if self.meter.is_due(record.len(), 0) {
                self.meter.finish();
            }
            if let Err(error) = result {
                self.meter.finish();
                self.count_failed(entry, &error);
                return Err(refusal(entry, words, &error));
            }
        }
        self.meter.finish();
        Ok(())
    }

    /// Counts a command that is about to run.
    fn begin_command(&mut self, index: usize) {
        self.meter.begin(index);
        self.commands += 1;
        self.last_command = Some(index);
    }

    /// Counts a command that is over, with the time since it began.
    fn count_command(&mut self, words: &[&[u8]], begun: Instant) {
        if let Some(entry) = words.first().and_then(|name| self.shared.commands.find_row(name)) {
            self.meter.count_alone(entry.index, begun.elapsed().as_nanos() as u64);
            self.commands += 1;
            self.last_command = Some(entry.index);
        }
    }

    fn count_failed(&self, entry: &Entry, error: &CommandError) {
        let statistics = self.meter.statistics();
        statistics.errors.count(&error.line(), ErrorSource::Server);
        statistics.commands[entry.index].failed.add(1);
    }

    fn frame(&mut self, frame: Frame) -> Result<(), String> {
        let start = self.parsed;
        self.parsed += frame.end;
        let words =
            frame.words.into_iter().map(|word| start + word.start..start + word.end).collect::<Vec<_>>();
        let is = |name: &[u8]| words.len() == 1 && self.input[words[0].clone()].eq_ignore_ascii_case(name);
        match &mut self.block {
            None if is(b"multi") => {
                // Its bytes go into the log with the rest of the transaction.
                self.relay_until(start);
                self.block = Some(Vec::new());
                Ok(())
            }
            None if is(b"exec") => Err(ENDS_OUTSIDE.to_owned()),
            None => self.commands(vec![words], false),
            Some(_) if is(b"multi") => Err(BEGINS_INSIDE.to_owned()),
            Some(block) if is(b"exec") => {
                let block = std::mem::take(block);
                self.block = None;
                self.commands(block, true)
            }
            Some(block) => {
                block.push(words);
                Ok(())
            }
        }
    }

    /// Applies commands that belong together, and puts their bytes into the log, all up to what has been taken apart.
    fn commands(&mut self, block: Vec<Vec<Range<usize>>>, is_transaction: bool) -> Result<(), String> {
        let input = std::mem::take(&mut self.input);
        let block: Vec<Vec<&[u8]>> =
            block.iter().map(|words| words.iter().map(|word| &input[word.clone()]).collect()).collect();
        let record = &input[self.relayed..self.parsed];
        let result = match (&*block, is_transaction) {
            ([words], false) => self.single(words, record),
            _ => self.transaction(&block, record),
        };
        drop(block);
        self.input = input;
        result
    }

    /// The database that a command selects, if it selects one.
    fn selected(&self, words: &[&[u8]]) -> Result<Option<usize>, String> {
        if words.len() != 2 || !words[0].eq_ignore_ascii_case(b"select") {
            return Ok(None);
        }
        let databases = self.shared.engine.keyspace.databases();
        let index = parse_integer(words[1]).and_then(|index| usize::try_from(index).ok());
        let index = index.filter(|index| *index < databases);
        index.map(Some).ok_or_else(|| {
            format!("it selects a database that there is not here; set databases above {databases}")
        })
    }

    /// Whether the stream's own commands, about the link and not about data, include this one; then it is done.
    fn is_of_link(&mut self, words: &[&[u8]]) -> Result<bool, String> {
        let is = |name: &[u8]| words[0].eq_ignore_ascii_case(name);
        if let Some(database) = self.selected(words)? {
            self.database = database;
        } else if is(b"ping") {
        } else if is(b"replconf") {
            self.ack_wanted |= words.get(1).is_some_and(|option| option.eq_ignore_ascii_case(b"getack"));
            self.take_slots(words);
        } else if (is(b"publish") || is(b"spublish")) && words.len() == 3 {
            let kind = if is(b"publish") { Kind::Channel } else { Kind::ShardChannel };
            let commitment = self.queues.commitment_of_push();
            self.shared.exchange.publish(kind, words[1], words[2], commitment, &self.queues);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Takes the owners of slots, from a primary of a cluster that is about to remove keys: this node sends clients
    /// there before it removes them, too. A record that makes no sense here is the agent's to complain about.
    fn take_slots(&self, words: &[&[u8]]) {
        let cluster = &self.shared.cluster;
        let [_, option, revision, record] = words else { return };
        if *option != SLOTS_MARK || !cluster.is_on() {
            return;
        }
        let revision = parse_integer(revision).and_then(|revision| u64::try_from(revision).ok());
        let (Some(revision), Ok(record)) = (revision, SlotsRecord::decode(record)) else { return };
        let (done, is_done) = channel();
        cluster.shard.push(Input::StreamSlots((revision, record), done));
        // The thread of the shard may be waiting for a long script, or about to end: then the stream goes on.
        let _ = is_done.recv_timeout(SLOTS_TIME_MAX);
    }

    fn single(&mut self, words: &[&[u8]], record: &[u8]) -> Result<(), String> {
        let begun = Instant::now();
        // Its bytes are in the log with the next command, or at the end of what has come.
        if self.is_of_link(words)? {
            self.count_command(words, begun);
            return Ok(());
        }
        if self.passes_over(words) {
            self.pass_over(self.database, words);
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let entry = entry_in_log(&shared.commands, words)?;
        self.wait_for_room();
        self.worker.propagation.relay(record);
        self.relayed = self.parsed;
        self.meter.start();
        self.begin_command(entry.index);
        let result = if changes_libraries(entry) {
            // A snapshot that is cut has the change and its place in the stream, or neither.
            let _inside = shared.engine.keyspace.enter(self.worker.id());
            let result = self.change_libraries(entry, words);
            shared.replication.select(self.database);
            shared.engine.relay(&mut self.worker);
            result
        } else if let Run::Host(_) = entry.command.run {
            let result = self.host(entry, words);
            let _inside = shared.engine.keyspace.enter(self.worker.id());
            shared.replication.select(self.database);
            shared.engine.relay(&mut self.worker);
            result
        } else {
            let request = Request { entry, words, keys: &[], encoded: &[] };
            let mut inside = Some(shared.engine.keyspace.enter(self.worker.id()));
            // A cut that comes before the command sees a SELECT come once more, which is no harm.
            shared.replication.select(self.database);
            loop {
                let (environment, worker, reply) =
                    (Environment::new(&self.policy, &self.caller), &mut self.worker, &mut self.reply);
                let result =
                    shared.engine.execute(&request, self.database, environment, worker, &mut inside, reply);
                if !matches!(result, Err(CommandError::Busy)) {
                    // After a failure before it could change anything.
                    let _inside = inside.unwrap_or_else(|| shared.engine.keyspace.enter(self.worker.id()));
                    shared.engine.relay(&mut self.worker);
                    break result.map(drop);
                }
                drop(inside.take());
                thread::sleep(PAUSE);
                inside = Some(shared.engine.keyspace.enter(self.worker.id()));
            }
        };
        self.meter.finish();
        self.settle(entry, words, result)
    }

    fn transaction(&mut self, block: &[Vec<&[u8]>], record: &[u8]) -> Result<(), String> {
        let begun = Instant::now();
        let shared = Arc::clone(&self.shared);
        let engine = &shared.engine;
        let mut footprint = Footprint::default();
        let mut entries = Vec::with_capacity(block.len());
        for words in block {
            // Refused as a whole, before something of it is here.
            let is_without_row =
                self.selected(words)?.is_some() || is_for_replicas(words) || self.passes_over(words);
            let entry = if is_without_row { None } else { Some(entry_in_log(&shared.commands, words)?) };
            if let Some(entry) = entry
                && !matches!(entry.command.run, Run::Host(_))
            {
                footprint.add(&engine.keyspace, &Request { entry, words, keys: &[], encoded: &[] });
            }
            entries.push(entry);
        }
        self.wait_for_room();
        self.worker.propagation.relay(record);
        self.relayed = self.parsed;
        // Scripts of an old primary lock what they need themselves.
        let is_script =
            |entry: &&Entry| matches!(entry.command.run, Run::Host(_)) && !changes_libraries(entry);
        for (words, entry) in block.iter().zip(&entries) {
            if let Some(entry) = entry.filter(is_script) {
                self.meter.start();
                self.begin_command(entry.index);
                let result = self.host(entry, words);
                self.meter.finish();
                self.settle(entry, words, result)?;
            }
        }
        let mut inside = Some(engine.keyspace.enter(self.worker.id()));
        let mut transaction = loop {
            match engine.begin(&footprint, &self.worker, &mut inside) {
                Ok(transaction) => break transaction,
                Err(_) => {
                    drop(inside.take());
                    thread::sleep(PAUSE);
                    inside = Some(engine.keyspace.enter(self.worker.id()));
                }
            }
        };
        let (mut results, mut passed_over) = (Vec::new(), Vec::new());
        self.count_command(&[b"multi"], Instant::now());
        self.meter.start();
        for (words, entry) in block.iter().zip(&entries) {
            if let Some(entry) = entry.filter(|entry| !is_script(entry)) {
                self.begin_command(entry.index);
            }
            match entry {
                None => {
                    let begun = Instant::now();
                    let is_of_link = self.is_of_link(words);
                    self.count_command(words, begun);
                    if !is_of_link.inspect_err(|_| _ = self.meter.finish())? {
                        passed_over.push((self.database, words));
                    }
                }
                Some(entry) if is_script(entry) => {}
                Some(entry) if changes_libraries(entry) => {
                    let result = self.change_libraries(entry, words);
                    results.push((*entry, words, result));
                }
                Some(entry) => {
                    let request = Request { entry, words, keys: &[], encoded: &[] };
                    let (environment, worker, reply) =
                        (Environment::new(&self.policy, &self.caller), &mut self.worker, &mut self.reply);
                    let result = transaction.run(&request, self.database, environment, worker, reply);
                    results.push((*entry, words, result));
                }
            }
        }
        self.meter.finish();
        // Nothing is cut before the transaction is in the log.
        shared.replication.select(self.database);
        engine.commit(
            transaction,
            Environment::new(&self.policy, &self.caller),
            &mut self.worker,
            &mut inside,
        );
        drop(inside);
        self.count_command(&[b"exec"], begun);
        passed_over.into_iter().for_each(|(database, words)| self.pass_over(database, words));
        let mut refused = None;
        for (entry, words, result) in results {
            refused = refused.or(self.settle(entry, words, result).err());
        }
        refused.map_or(Ok(()), Err)
    }

    /// Whether a command is one of a module that is not here, and the link goes on without it.
    fn passes_over(&self, words: &[&[u8]]) -> bool {
        ModuleCommands::has(&self.shared.commands, words)
            && self.shared.config.current().module_data != ModuleData::Refuse
    }

    /// Goes on without a command of a module. The caller is not inside the gate.
    fn pass_over(&self, database: usize, words: &[&[u8]]) {
        let shared = &self.shared;
        shared.module_commands.pass_over(&shared.engine, self.worker.id(), database, words);
    }

    /// Changes libraries. The caller is inside the gate, or keeps it closed, until the record is in the log.
    fn change_libraries(&mut self, entry: &Entry, words: &[&[u8]]) -> CommandResult {
        let shared = &self.shared;
        let change = LibraryChange::read(&mut Args::new(words, entry.name_words()))?;
        self.libraries.apply(&shared.libraries, &shared.commands, &change, || ()).map(drop)
    }

    /// Runs a command of scripts. The caller is not inside the gate.
    fn host(&mut self, entry: &Entry, words: &[&[u8]]) -> CommandResult {
        let shared = Arc::clone(&self.shared);
        let (environment, worker) = (Environment::new(&self.policy, &self.caller), &mut self.worker);
        let surroundings = Surroundings { shared: &shared, environment, worker, database: self.database };
        self.scripts.command(&entry.full_name(), words, surroundings, &mut self.reply)
    }

    /// Ends a command: clients that it has served are answered, and what it has thrown away is freed. The error is that the
    /// command was refused here: the data sets would differ from there on.
    fn settle(&mut self, entry: &Entry, words: &[&[u8]], result: CommandResult) -> Result<(), String> {
        self.reply.clear(KEPT_BYTES_MAX);
        drain(&mut self.worker, &self.shared.maintenance, &self.queues);
        let Err(error) = result else { return Ok(()) };
        self.count_failed(entry, &error);
        let refusal = refusal(entry, words, &error);
        // A script of an old primary may have failed there, too, after it had changed something.
        if entry.command.group == Group::Scripting && !changes_libraries(entry) {
            if !std::mem::replace(&mut self.has_warned, true) {
                tracing::warn!("{refusal}. The data sets may differ");
            }
            return Ok(());
        }
        Err(refusal)
    }

    /// Waits while a snapshot or the log is behind: clients that write would. Not if the server is to get another role:
    /// the disk may be full for good.
    fn wait_for_room(&self) {
        let shared = &self.shared;
        while (shared.engine.keyspace.snapshots().is_congested() || !shared.durability.has_room())
            && !shared.replication.has_ended()
            && !shared.replication.has_order()
        {
            thread::sleep(PAUSE);
        }
    }

    /// Puts into the log what has been taken apart and no command of the store was run for.
    fn relay_rest(&mut self) {
        if self.block.is_none() {
            self.relay_until(self.parsed);
        }
    }

    fn relay_until(&mut self, end: usize) {
        if self.relayed < end {
            self.worker.propagation.relay(&self.input[self.relayed..end]);
            self.relayed = end;
            let _inside = self.shared.engine.keyspace.enter(self.worker.id());
            self.shared.replication.select(self.database);
            self.shared.engine.relay(&mut self.worker);
        }
    }
}

/// Why the link stops, for the operator.
fn refusal(entry: &Entry, words: &[&[u8]], error: &CommandError) -> String {
    format!("{} was refused here: {}", shown(entry, words), String::from_utf8_lossy(&error.line()))
}

/// A command of the stream for the operator: its name, and its first key.
fn shown(entry: &Entry, words: &[&[u8]]) -> String {
    let name = entry.full_name().to_uppercase();
    match entry.key_positions(words).next().and_then(|at| words.get(at)) {
        Some(key) => {
            let key = &key[..key.len().min(KEY_BYTES_SHOWN_MAX)];
            format!("'{name}' of the primary's stream for the key '{}'", key.escape_ascii())
        }
        None => format!("'{name}' of the primary's stream"),
    }
}
