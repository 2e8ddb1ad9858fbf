//! Running requests: the service that the network layer calls.
//!
//! ```text
//! input ─decode─▶ window of up to WINDOW commands
//!       ─find───▶ table entry, keys hashed, buckets and entries prefetched
//!       ─run────▶ checks, locks, handler, statistics, in order
//! ```
//!
//! Memory arrives while other commands of the pipeline are looked at; a window is as deep as the
//! first-level cache bears.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use dunlin_engine::{
    Environment, Request, Worker,
    command::{Args, CommandError, CommandResult, Entry, Flags, KeyShape, Run},
    keyspace::{Inside, Key, Keyspace},
};
use dunlin_resp::{Batch, Decoded, Limits, Protocol, ReplyBuffer, RequestDecoder};

use crate::{
    command_log::{LogEntry, LogKind, shorten},
    config::{Config, ConfigReader},
    expiry::ExpiryCycle,
    net::{Client, Next, Now, REPLY_BYTES_MAX, Served, Service},
    process::ProcessorTime,
    shared::Shared,
    statistics::Meter,
};

/// Mail between executors: none yet has anything to say.
#[derive(Debug, Clone, Copy)]
pub enum Letter {}

/// Commands that are decoded and prefetched together.
const WINDOW: usize = 64;
/// Keys between asking for a bucket and asking for the entry it names: what a miss takes, in keys.
const LEAD: usize = 8;

/// What is kept for a connection.
#[derive(Debug)]
pub struct Session {
    pub(crate) client: Arc<Client>,
    pub(crate) decoder: RequestDecoder,
    pub(crate) database: usize,
    pub(crate) protocol: Protocol,
    pub(crate) authenticated: bool,
}

/// One worker's executor.
pub struct Executor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) worker: Worker,
    pub(crate) environment: Environment,
    pub(crate) config: ConfigReader,
    expiry: ExpiryCycle,
    meter: Meter,
    /// Memory that is used again for every window.
    window: Window<'static>,
    batch: Batch,
}

/// The commands of a window, looked up.
#[derive(Debug, Default)]
struct Window<'a> {
    words: Vec<&'a [u8]>,
    keys: Vec<Key<'a>>,
    commands: Vec<Prepared>,
}

/// A command of a window.
#[derive(Debug, Clone, Copy)]
struct Prepared {
    /// Ends of its words and keys in the window.
    words_end: usize,
    keys_end: usize,
    /// Bytes that it takes of the input.
    bytes: usize,
    /// Its place in the command table, `None` for an unknown command.
    entry: Option<usize>,
}

impl Window<'_> {
    /// An empty window on the same memory: collecting nothing from a vector keeps its allocation.
    fn recycle<'b>(mut self) -> Window<'b> {
        self.words.clear();
        self.keys.clear();
        self.commands.clear();
        Window {
            words: self.words.into_iter().map(|_| -> &[u8] { unreachable!("it is empty") }).collect(),
            keys: self.keys.into_iter().map(|_| -> Key<'_> { unreachable!("it is empty") }).collect(),
            commands: self.commands,
        }
    }
}

/// How a connection goes on after one of its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// With the next command.
    Continue,
    /// The layer below decides when.
    Stop(Next),
}

impl Executor {
    /// The executor of worker `worker.id()`.
    pub(crate) fn new(shared: Arc<Shared>, mut worker: Worker) -> Self {
        worker.statistics = Arc::clone(&shared.monitor.keyspace[worker.id()]);
        let config = ConfigReader::new(Arc::clone(&shared.config));
        let environment = environment(config.config());
        let expiry = ExpiryCycle::new(worker.id(), shared.workers);
        let statistics = Arc::clone(&shared.monitor.workers[worker.id()]);
        let meter = Meter::new(statistics, &shared.commands, config.config());
        Self {
            shared,
            worker,
            environment,
            config,
            expiry,
            meter,
            window: Window::default(),
            batch: Batch::default(),
        }
    }

    fn limits(&self, session: &Session) -> Limits {
        Limits {
            bulk_bytes_max: self.environment.string_bytes_max as u64,
            authenticated: session.authenticated,
        }
    }

    /// Finds the commands of the batch, hashes their keys, fetches ahead.
    fn prepare<'a>(
        shared: &Shared,
        batch: &'a Batch,
        input: &'a [u8],
        batch_start: usize,
        database: usize,
        window: &mut Window<'a>,
    ) {
        let keyspace = &shared.engine.keyspace;
        let mut input_start = batch_start;
        for index in 0..batch.len() {
            let first = window.words.len();
            window.words.extend(batch.spans(index).iter().map(|span| batch.bytes(input, *span)));
            let words = &window.words[first..];
            let entry = shared.commands.find(words[0]);
            match entry.map(|entry| (entry, entry.keys)) {
                Some((_, KeyShape::One(at))) => {
                    if let Some(word) = words.get(usize::from(at)) {
                        Self::look_ahead(keyspace, database, word, &mut window.keys);
                    }
                }
                Some((entry, KeyShape::Many)) => {
                    for spec in entry.command.keys {
                        for position in spec.positions(words) {
                            Self::look_ahead(keyspace, database, words[position], &mut window.keys);
                        }
                    }
                }
                Some((_, KeyShape::None)) | None => {}
            }
            window.commands.push(Prepared {
                words_end: window.words.len(),
                keys_end: window.keys.len(),
                bytes: batch.input_end(index) - input_start,
                entry: entry.map(|entry| entry.index),
            });
            input_start = batch.input_end(index);
        }
        let rest = window.keys.len().saturating_sub(LEAD);
        for key in &window.keys[rest..] {
            keyspace.prefetch_entry(database, key);
        }
    }

    /// Hashes a key and has its bucket fetched, and the entry of the key `LEAD` before it, whose
    /// bucket has arrived by now.
    #[inline]
    fn look_ahead<'a>(keyspace: &Keyspace, database: usize, word: &'a [u8], keys: &mut Vec<Key<'a>>) {
        if let Some(earlier) = keys.len().checked_sub(LEAD) {
            keyspace.prefetch_entry(database, &keys[earlier]);
        }
        let key = keyspace.key(word);
        keyspace.prefetch_bucket(database, &key);
        keys.push(key);
    }
}

impl Executor {
    /// Runs the commands of a window in order. How many were run, and how to go on.
    fn run_window<'k>(
        &mut self,
        shared: &'k Shared,
        session: &mut Session,
        window: &Window<'_>,
        inside: &mut Option<Inside<'k>>,
        reply: &mut ReplyBuffer,
    ) -> (usize, Flow) {
        let (mut words_start, mut keys_start) = (0, 0);
        let mut reply_bytes = reply.len();
        let mut last: (&[&[u8]], usize) = (&[], 0);
        let mut outcome = (window.commands.len(), Flow::Continue);
        self.meter.start();
        for (index, prepared) in window.commands.iter().enumerate() {
            let words = &window.words[words_start..prepared.words_end];
            let keys = &window.keys[keys_start..prepared.keys_end];
            (words_start, keys_start) = (prepared.words_end, prepared.keys_end);
            let entry = prepared.entry.map(|entry| &shared.commands.entries()[entry]);
            let flow = self.run(shared, session, entry, words, keys, inside, reply);
            let reply_end = reply.len();
            let reply_len = reply_end - reply_bytes;
            reply_bytes = reply_end;
            if self.meter.is_due(prepared.bytes, reply_len) {
                self.measure(shared, session, words, prepared.bytes, reply_len);
            }
            last = (words, prepared.bytes);
            let flow = match flow {
                Flow::Continue if reply_end >= REPLY_BYTES_MAX => Flow::Stop(Next::Again),
                other => other,
            };
            if flow != Flow::Continue {
                outcome = (index + 1, flow);
                break;
            }
        }
        self.measure(shared, session, last.0, last.1, 0);
        outcome
    }

    /// Ends the run of measured commands whose last one had these words, and logs that one if it is
    /// remarkable by itself.
    fn measure(
        &mut self,
        shared: &Shared,
        session: &Session,
        words: &[&[u8]],
        request_bytes: usize,
        reply_bytes: usize,
    ) {
        let Some(measured) = self.meter.finish() else { return };
        let thresholds = self.meter.thresholds();
        let entry = &shared.commands.entries()[measured.index];
        // A run of several has taken its time together: none of them is to blame.
        let nanoseconds = if measured.count == 1 { measured.nanoseconds } else { 0 };
        let (request, response) = (request_bytes as u64, reply_bytes as u64);
        let time_s = self.environment.now_ms / 1000;
        if nanoseconds / 1_000_000 >= thresholds.event_ms {
            let is_fast = entry.command.flags.has(Flags::FAST);
            let event = if is_fast { "fast-command" } else { "command" };
            shared.monitor.latency.record(event, time_s, nanoseconds / 1_000_000);
        }
        if entry.command.flags.has(Flags::SKIP_SLOWLOG) {
            return;
        }
        let kinds = [
            (LogKind::Slow, measured.count == 1 && nanoseconds >= thresholds.slow_ns, nanoseconds / 1000),
            (LogKind::LargeRequest, request > thresholds.request_bytes, request),
            (LogKind::LargeReply, response > thresholds.reply_bytes, response),
        ];
        for (kind, _, value) in kinds.into_iter().filter(|(_, applies, _)| *applies) {
            let logged = LogEntry {
                id: 0,
                time_s,
                value,
                words: shorten(entry, words),
                peer: session.client.transport.peer_text(),
                client_name: session.client.names().name.clone(),
            };
            shared.monitor.logs.add(kind, kind.entries_max(self.config.config()), logged);
        }
    }

    /// Counts an error reply, and a command that was not run at all as rejected.
    #[cold]
    fn count_error(&self, entry: Option<&Entry>, line: &str, has_run: bool) {
        let statistics = self.meter.statistics();
        statistics.count_error(CommandError::code(line));
        if let Some(entry) = entry {
            let counters = &statistics.commands[entry.index];
            let counter = if has_run { &counters.failed } else { &counters.rejected };
            counter.add(1);
        }
    }

    /// Runs one command, or tells why not.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "one caller; a struct would only rename them")]
    fn run<'k>(
        &mut self,
        shared: &'k Shared,
        session: &mut Session,
        entry: Option<&'k Entry>,
        words: &[&[u8]],
        keys: &[Key<'_>],
        inside: &mut Option<Inside<'k>>,
        reply: &mut ReplyBuffer,
    ) -> Flow {
        let entry = match self.admit(shared, session, entry, words) {
            Ok(entry) => entry,
            Err(error) => {
                let line = error.line();
                // A subcommand that does not exist is nobody's.
                let exists =
                    |entry: &&Entry| !matches!(entry.command.run, Run::Container) || words.len() == 1;
                let entry = entry.map(|entry| shared.commands.resolve(entry, words)).filter(exists);
                self.count_error(entry, &line, false);
                reply.error(line.as_bytes());
                return Flow::Continue;
            }
        };
        self.meter.begin(entry.index);
        let mut flow = Flow::Continue;
        let result = match entry.command.run {
            Run::Host(handler) => {
                let Handler(handler) = handler.downcast_ref().expect("the server's own handlers");
                let mark = reply.mark();
                let mut args = Args::new(words, entry.name_words());
                let mut context =
                    ServerContext { executor: self, session, inside, shared, flow: Flow::Continue };
                let result = handler(&mut context, &mut args, reply);
                flow = context.flow;
                if result.is_err() {
                    reply.rewind(mark);
                }
                result
            }
            _ => {
                let request = Request { entry, words, keys };
                let database = session.database;
                let (environment, worker) = (&self.environment, &mut self.worker);
                shared.engine.execute(&request, database, environment, worker, inside, reply)
            }
        };
        if let Err(error) = result {
            let line = error.line();
            self.count_error(Some(entry), &line, true);
            reply.error(line.as_bytes());
        }
        flow
    }

    /// Whether the command exists and may run now.
    #[inline]
    fn admit<'t>(
        &self,
        shared: &'t Shared,
        session: &Session,
        entry: Option<&'t Entry>,
        words: &[&[u8]],
    ) -> Result<&'t Entry, CommandError> {
        let mut entry = entry.ok_or_else(|| unknown_command(words))?;
        if !entry.subcommands.is_empty()
            && let Some(name) = words.get(1)
        {
            entry = shared
                .commands
                .find_subcommand(entry, name)
                .ok_or_else(|| unknown_subcommand(entry, name))?;
        }
        if !entry.command.arity.accepts(words.len()) || matches!(entry.command.run, Run::Container) {
            return Err(CommandError::WrongArity(entry.full_name()));
        }
        if !session.authenticated && !entry.command.flags.has(Flags::NO_AUTH) {
            return Err(CommandError::text("NOAUTH Authentication required."));
        }
        if entry.command.flags.has(Flags::DENY_OOM) && self.over_memory_limit() {
            return Err(CommandError::OutOfMemory);
        }
        Ok(entry)
    }

    /// Publishes what a slice of background work has cost, and the thread's processor time so far.
    fn note_background(&self, expiry: Duration, out_of_time: bool) {
        let statistics = self.meter.statistics();
        statistics.expiry_us.add(expiry.as_micros() as u64);
        statistics.expiry_caps.add(u64::from(out_of_time));
        if expiry.as_millis() as u64 >= self.meter.thresholds().event_ms {
            let time_s = self.environment.now_ms / 1000;
            self.shared.monitor.latency.record("expire-cycle", time_s, expiry.as_millis() as u64);
        }
        let used = ProcessorTime::of_thread();
        statistics.user_us.set(used.user.as_micros() as u64);
        statistics.system_us.set(used.system.as_micros() as u64);
    }

    fn over_memory_limit(&self) -> bool {
        false
    }
}

/// What commands are to know of the configuration.
fn environment(config: &Config) -> Environment {
    Environment {
        now_ms: 0,
        string_bytes_max: config.proto_max_bulk_len as usize,
        no_touch: false,
        lazyfree_user_del: config.lazyfree_lazy_user_del,
        lazyfree_user_flush: config.lazyfree_lazy_user_flush,
    }
}

fn unknown_command(words: &[&[u8]]) -> CommandError {
    /// How much of a stranger's words is shown.
    const SHOWN_BYTES_MAX: usize = 128;
    let shown =
        |word: &[u8], room: usize| String::from_utf8_lossy(&word[..word.len().min(room)]).into_owned();
    let mut arguments = String::new();
    for word in &words[1..] {
        if arguments.len() >= SHOWN_BYTES_MAX {
            break;
        }
        arguments += &format!("'{}' ", shown(word, SHOWN_BYTES_MAX - arguments.len()));
    }
    let name = shown(words[0], SHOWN_BYTES_MAX);
    CommandError::owned(format!("ERR unknown command '{name}', with args beginning with: {arguments}"))
}

fn unknown_subcommand(container: &Entry, name: &[u8]) -> CommandError {
    let shown = String::from_utf8_lossy(&name[..name.len().min(128)]);
    let container = container.command.name.to_uppercase();
    CommandError::owned(format!("ERR unknown subcommand '{shown}'. Try {container} HELP."))
}

/// A handler of the server: what [`Run::Host`] holds in the rows of this crate.
pub(crate) struct Handler(
    pub(crate) fn(&mut ServerContext<'_, '_>, &mut Args<'_>, &mut ReplyBuffer) -> CommandResult,
);

/// What the server's own commands are given.
pub(crate) struct ServerContext<'a, 'k> {
    pub(crate) executor: &'a mut Executor,
    pub(crate) session: &'a mut Session,
    pub(crate) shared: &'k Shared,
    /// The pass through the gate; a command that works on the whole keyspace gives it back first.
    pub(crate) inside: &'a mut Option<Inside<'k>>,
    /// How the connection goes on.
    pub(crate) flow: Flow,
}

impl Service for Executor {
    type Session = Session;
    type Letter = Letter;

    fn open(&mut self, client: &Arc<Client>) -> Session {
        Session {
            client: Arc::clone(client),
            decoder: RequestDecoder::default(),
            database: 0,
            protocol: Protocol::Resp2,
            authenticated: true,
        }
    }

    fn tick(&mut self, now: Now) {
        self.environment.now_ms = now.unix_ms;
        if self.config.refresh() {
            let now_ms = self.environment.now_ms;
            self.environment = Environment { now_ms, ..environment(self.config.config()) };
            self.meter.configure(self.config.config());
        }
    }

    fn serve(&mut self, session: &mut Session, input: &[u8], reply: &mut ReplyBuffer) -> Served {
        reply.set_protocol(session.protocol);
        let shared = Arc::clone(&self.shared);
        let mut inside = Some(shared.engine.keyspace.enter(self.worker.id()));
        let mut batch = std::mem::take(&mut self.batch);
        let mut window = std::mem::take(&mut self.window);
        let (mut position, mut consumed) = (0, 0);
        let served = loop {
            batch.clear();
            let limits = self.limits(session);
            let decoded = session.decoder.decode(input, &mut position, &mut batch, &limits, WINDOW);
            let mut current = window.recycle();
            Self::prepare(&shared, &batch, input, consumed, session.database, &mut current);
            let (run, flow) = self.run_window(&shared, session, &current, &mut inside, reply);
            window = current.recycle();
            if run > 0 {
                consumed = batch.input_end(run - 1);
            }
            if let Flow::Stop(next) = flow {
                session.decoder.restart();
                break Served { consumed, next, wanted: 0 };
            }
            match decoded {
                Ok(Decoded::Full) => {}
                Ok(Decoded::Incomplete { wanted }) => {
                    break Served { consumed: position, next: Next::Read, wanted };
                }
                Err(error) => {
                    reply.error(format!("ERR {error}"));
                    break Served { consumed: input.len(), next: Next::CloseAfterReply, wanted: 0 };
                }
            }
        };
        drop(inside);
        if !self.worker.garbage.is_empty() {
            self.shared.maintenance.discard(self.worker.garbage.take());
        }
        self.batch = batch;
        self.window = window;
        served
    }

    fn resume(&mut self, _: &mut Session, _: &mut ReplyBuffer) -> Next {
        Next::Read
    }

    fn deliver(&mut self, _: &mut Session, letter: Letter, _: &mut ReplyBuffer) -> Option<Next> {
        match letter {}
    }

    fn receive(&mut self, letter: Letter) {
        match letter {}
    }

    fn close(&mut self, _: Session) {}

    fn background(&mut self, now: Now) -> Duration {
        let started = Instant::now();
        let pause = self.expiry.run(&self.shared.engine, &mut self.worker, self.config.config(), now);
        self.note_background(started.elapsed(), pause.is_zero());
        if !self.worker.garbage.is_empty() {
            self.shared.maintenance.discard(self.worker.garbage.take());
        }
        pause
    }
}
