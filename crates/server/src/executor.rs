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
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use dunlin_engine::{
    Blocked, Deferred, Environment, Event, Request, Served as ServedWaiter, Transaction, Worker,
    command::{Args, CommandError, CommandResult, ElementWords, Entry, Flags, Group, KeyShape, Run},
    keyspace::{ClientToken, Inside, Key, Keyspace},
    value::CollectionLimits,
};
use dunlin_resp::{Batch, Decoded, Limits, ReplyBuffer};

use crate::{
    access,
    apart::{Finished, Job, Unstored, pieces},
    blocked::{self, Ending},
    command_log::{LogEntry, LogKind, shorten},
    commands,
    config::{AppendFsync, Config, ConfigReader, VersionCheck},
    expiry::ExpiryCycle,
    feed::{self, Origin},
    net::{
        Address, Client, Clients, Next, Now, Outbox, PostOffice, REPLY_BYTES_MAX, Served, Service,
        WorkerContext,
    },
    pause::Held,
    process::ProcessorTime,
    pubsub::{Kind, Message, Subscribers},
    scripting::{self, Compiled, LoadedLibraries},
    session::{ClientFlags, DurabilityWait, IsHeard, Replies, Session},
    shared::Shared,
    statistics::{Measured, Meter},
    tracking::{Invalidated, Tracking},
    transaction::Queue,
};

/// Mail between executors.
#[derive(Debug, Clone)]
pub enum Letter {
    /// To every client: a pause has ended before its time.
    Unpaused,
    /// To a worker: another one is held up, and does not do what is everybody's.
    HeldUp,
    /// To every client: commands that waited for room in the log, or in the queue of a snapshot, may run.
    LogHasRoom,
    /// To a worker: the log is durable farther than before. To a client: as far as it waits for.
    Durable,
    /// To a worker: for its subscribers.
    Published(Arc<Message>),
    /// To a client: encoded already.
    Lines(Arc<Vec<u8>>),
    /// To a client: the encoded reply to its command that has waited for a key.
    Unblocked(Arc<Vec<u8>>),
    /// To a client: what became of its command that was run apart from the worker.
    Finished(Arc<Finished>),
    /// To a worker: a command of one of its clients has computed what it will store. Taken once.
    Computed(Arc<Mutex<Option<Unstored>>>),
    /// To a client that keeps copies of keys: some have changed.
    Invalidated(Arc<Invalidated>),
    /// To a client that is told in place of another.
    Redirected(Arc<Invalidated>),
    /// From a worker to itself: what was posted before has been read.
    Settled(u64),
}

/// Why a command that writes is refused after a snapshot that failed.
pub(crate) const UNSAVED: CommandError = CommandError::text(
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.",
);
/// After what time a command is presented again that has met a view of what it may change.
const HOLD_PAUSE: Duration = Duration::from_millis(1);
/// How long it waits for views to end: then it copies what they share. Views may come faster than they go.
const HOLD_MAX: Duration = Duration::from_secs(10);

/// Commands that are decoded and prefetched together.
const WINDOW: usize = 64;

/// One worker's executor.
pub struct Executor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) worker: Worker,
    pub(crate) environment: Environment,
    pub(crate) config: ConfigReader,
    now: Now,
    pub(crate) post: PostOffice<Letter>,
    clients: Arc<Clients>,
    /// Those of its clients that listen to something.
    pub(crate) subscribers: Subscribers,
    /// What `MONITOR` is to show of the turn at hand.
    pub(crate) lines: Vec<u8>,
    /// Events were published faster than a worker delivers them: nothing is run until it has caught
    /// up.
    throttled: bool,
    /// Numbers of the last [`Letter::Settled`] that was sent, and that has arrived.
    settling: (u64, u64),
    expiry: ExpiryCycle,
    meter: Meter,
    memory: MemoryCheck,
    /// The offset behind what it had recorded when it last rang the log's bell.
    rung_at: u64,
    /// Its clients that wait for the log to be durable up to a mark.
    durability_waits: Vec<(u64, Address)>,
    /// The mark that the replies of the last call are withheld to.
    withhold_to: u64,
    /// Whether a command of this call has seen the data set, or changed something that is recorded.
    pub(crate) saw_data: bool,
    /// Memory for the next transaction.
    pub(crate) spare_queue: Option<Box<Queue>>,
    /// Its scripts.
    pub(crate) compiled: Compiled,
    /// Its functions.
    pub(crate) libraries: LoadedLibraries,
    /// Memory that is used again for every window.
    window: Window<'static>,
    batch: Batch,
}

/// Bytes of arguments that may be admitted on the strength of one sum of the memory in use.
const ADMITTED_BYTES_MAX: usize = 16 * 1024;

/// What is known of the memory in use, while there is a limit.
#[derive(Debug, Default)]
struct MemoryCheck {
    /// Bytes in use when last summed up, in this window.
    used: Option<usize>,
    /// Bytes of arguments admitted since then.
    admitted: usize,
}

/// The commands of a window, looked up.
#[derive(Debug, Default)]
struct Window<'a> {
    words: Vec<&'a [u8]>,
    keys: Vec<Key<'a>>,
    commands: Vec<Prepared>,
    /// Names of elements of the collection that is being fetched from.
    elements: Vec<&'a [u8]>,
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
    /// Which of its words name elements.
    elements: Option<ElementWords>,
}

impl Window<'_> {
    /// An empty window on the same memory: collecting nothing from a vector keeps its allocation.
    fn recycle<'b>(mut self) -> Window<'b> {
        self.words.clear();
        self.keys.clear();
        self.commands.clear();
        self.elements.clear();
        Window {
            words: self.words.into_iter().map(|_| -> &[u8] { unreachable!("it is empty") }).collect(),
            keys: self.keys.into_iter().map(|_| -> Key<'_> { unreachable!("it is empty") }).collect(),
            commands: self.commands,
            elements: self.elements.into_iter().map(|_| -> &[u8] { unreachable!("it is empty") }).collect(),
        }
    }
}

/// How a connection goes on after one of its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// With the next command.
    Continue,
    /// The command has not run: it is presented again at that time, or when a letter says so.
    Postpone {
        /// `None` for a moment beyond the clock.
        until: Option<Instant>,
    },
    /// The command has not run: it is presented again in the next tick.
    Retry,
    /// The layer below decides when.
    Stop(Next),
}

impl Executor {
    /// The executor of worker `worker.id()`, with its connections to the others.
    pub(crate) fn new(shared: Arc<Shared>, mut worker: Worker, context: WorkerContext<Letter>) -> Self {
        worker.statistics = Arc::clone(&shared.monitor.keyspace[worker.id()]);
        let config = ConfigReader::new(Arc::clone(&shared.config));
        let environment = environment(config.config());
        let subscribers = Subscribers::new(worker.id());
        let expiry = ExpiryCycle::new(worker.id(), shared.workers);
        let statistics = Arc::clone(&shared.monitor.workers[worker.id()]);
        let meter = Meter::new(statistics, &shared.commands, config.config());
        Self {
            shared,
            worker,
            environment,
            config,
            now: Now::read(),
            post: context.post,
            clients: context.clients,
            subscribers,
            lines: Vec::new(),
            throttled: false,
            settling: (0, 0),
            expiry,
            meter,
            memory: MemoryCheck::default(),
            rung_at: 0,
            durability_waits: Vec::new(),
            withhold_to: 0,
            saw_data: false,
            spare_queue: None,
            compiled: Compiled::default(),
            libraries: LoadedLibraries::default(),
            window: Window::default(),
            batch: Batch::default(),
        }
    }

    /// The time of this tick.
    pub(crate) fn now(&self) -> Now {
        self.now
    }

    /// Mail to all workers.
    pub(crate) fn post(&self) -> &PostOffice<Letter> {
        &self.post
    }

    /// The clients of all workers.
    pub(crate) fn clients(&self) -> &Clients {
        &self.clients
    }

    /// The configuration as it is now, which may have changed since the tick began.
    pub(crate) fn newest_config(&mut self) -> &Config {
        self.refresh_config();
        self.config.config()
    }

    /// Whether all mail that was under way to this worker when the client's command first asked has
    /// been read. Where not, the command is to be presented again.
    pub(crate) fn settle(&mut self, session: &mut Session) -> bool {
        if session.settled_by == 0 {
            self.settling.0 += 1;
            session.settled_by = self.settling.0;
            self.post.send_to_service(self.worker.id(), Letter::Settled(session.settled_by));
        }
        self.settling.1 >= session.settled_by
    }

    /// Ends `MONITOR` for a client.
    pub(crate) fn stop_monitoring(&self, session: &mut Session) {
        if session.flags.has(ClientFlags::MONITOR) {
            session.flags.set(ClientFlags::MONITOR, false);
            session.client.listening.set(0);
            self.shared.feed.leave(session.client.address);
        }
    }

    /// Mails what was collected for `MONITOR`.
    #[cold]
    fn show_lines(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        self.shared.feed.show(lines, |watcher, lines| self.post.send(watcher, Letter::Lines(lines)));
    }

    /// Whether a client has yet to say who it is.
    #[inline]
    pub(crate) fn is_stranger(&self, session: &Session) -> bool {
        !session.authenticated && !access::is_open(self.config.config())
    }

    /// Takes a changed configuration over.
    pub(crate) fn refresh_config(&mut self) {
        if self.config.refresh() {
            let Environment { now_ms, no_touch, keep_expired, client, visits_max, waits_for_views, .. } =
                self.environment;
            let configured = environment(self.config.config());
            self.environment = Environment {
                now_ms,
                no_touch,
                keep_expired,
                client,
                visits_max,
                waits_for_views,
                ..configured
            };
            self.meter.configure(self.config.config());
        }
    }

    /// Hands over what can be freed elsewhere.
    fn dispose(&mut self) {
        if !self.worker.garbage.is_empty() {
            self.shared.maintenance.discard(self.worker.garbage.take());
        }
    }

    fn limits(&self, session: &Session) -> Limits {
        Limits {
            bulk_bytes_max: self.environment.string_bytes_max as u64,
            authenticated: !self.is_stranger(session),
        }
    }

    /// Finds the commands of the batch, hashes their keys, fetches ahead.
    fn prepare<'a>(
        shared: &Shared,
        inside: Option<&Inside<'_>>,
        batch: &'a Batch,
        input: &'a [u8],
        batch_start: usize,
        database: usize,
        window: &mut Window<'a>,
    ) {
        let keyspace = &shared.engine.keyspace;
        let mut input_start = batch_start;
        let (mut names_elements, mut repeats) = (false, 0);
        for index in 0..batch.len() {
            let first = window.words.len();
            window.words.extend(batch.spans(index).iter().map(|span| batch.bytes(input, *span)));
            let words = &window.words[first..];
            let entry = shared.commands.find(words[0]);
            match entry.map(|entry| (entry, entry.keys)) {
                Some((_, KeyShape::One(at))) => {
                    if let Some(word) = words.get(usize::from(at)) {
                        let same = window.keys.last().filter(|last| has_bytes(last, word));
                        repeats += usize::from(same.is_some());
                        window.keys.push(
                            same.map_or_else(|| keyspace.key(word), |last| Key { bytes: word, ..*last }),
                        );
                    }
                }
                Some((entry, KeyShape::Many)) => {
                    for spec in entry.command.keys {
                        for position in spec.positions(words) {
                            window.keys.push(keyspace.key(words[position]));
                        }
                    }
                }
                Some((_, KeyShape::None)) | None => {}
            }
            let elements = entry.and_then(|entry| entry.elements);
            window.commands.push(Prepared {
                words_end: window.words.len(),
                keys_end: window.keys.len(),
                bytes: batch.input_end(index) - input_start,
                entry: entry.map(|entry| entry.index),
                elements,
            });
            names_elements |= elements.is_some();
            input_start = batch.input_end(index);
        }
        if window.keys.len() > 1
            && let Some(inside) = inside
        {
            // One key alone is looked up at once, be it asked for again and again.
            if repeats + 1 < window.keys.len() {
                keyspace.prefetch(inside, database, &window.keys);
            }
            if names_elements {
                Self::prefetch_elements(keyspace, inside, database, window);
            }
        }
    }

    /// Fetches ahead into collections: the elements that commands of the window name, where several
    /// commands in a row have the same key. For one alone it would cost more than it spares.
    fn prefetch_elements(keyspace: &Keyspace, inside: &Inside<'_>, database: usize, window: &mut Window<'_>) {
        let Window { words, keys, commands, elements } = window;
        let (mut words_start, mut keys_start) = (0, 0);
        let mut collection: Option<Key<'_>> = None;
        elements.clear();
        for command in commands.iter() {
            let words = &words[words_start..command.words_end];
            let key = keys[keys_start..command.keys_end].first();
            (words_start, keys_start) = (command.words_end, command.keys_end);
            let (Some(names), Some(key)) = (command.elements, key) else { continue };
            match &collection {
                Some(last) if last.hash == key.hash => {}
                last => {
                    if let (Some(last), 2..) = (last, elements.len()) {
                        keyspace.prefetch_elements(inside, database, last, elements);
                    }
                    elements.clear();
                    collection = Some(*key);
                }
            }
            elements.extend(names.of(words).take(WINDOW - elements.len()));
        }
        if let (Some(last), 2..) = (&collection, elements.len()) {
            keyspace.prefetch_elements(inside, database, last, elements);
        }
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
        if self.throttled {
            self.throttled = shared.exchange.is_behind_anywhere();
            if self.throttled {
                return (0, Flow::Stop(Next::Again));
            }
        }
        let (mut words_start, mut keys_start) = (0, 0);
        let mut reply_bytes = reply.len();
        let mut last: (&[&[u8]], usize) = (&[], 0);
        let mut outcome = (window.commands.len(), Flow::Continue);
        self.meter.start();
        self.memory = MemoryCheck::default();
        for (index, prepared) in window.commands.iter().enumerate() {
            let words = &window.words[words_start..prepared.words_end];
            let keys = &window.keys[keys_start..prepared.keys_end];
            (words_start, keys_start) = (prepared.words_end, prepared.keys_end);
            let entry = prepared.entry.map(|entry| &shared.commands.entries()[entry]);
            let mark = reply.mark();
            let flow = self.run(shared, session, entry, words, keys, inside, reply);
            match flow {
                Flow::Postpone { until } => {
                    outcome = (index, Flow::Stop(Next::Park { until }));
                    break;
                }
                Flow::Retry => {
                    self.meter.take_back();
                    outcome = (index, Flow::Stop(Next::Again));
                    break;
                }
                Flow::Continue | Flow::Stop(_) => (session.settled_by, session.held_since) = (0, None),
            }
            session.commands += 1;
            if session.tracking.is_some() {
                self.end_caching(session);
            }
            if session.replies != Replies::On {
                session.settle_reply(mark, reply);
            }
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
    #[inline(never)]
    pub(crate) fn measure(
        &mut self,
        shared: &Shared,
        session: &Session,
        words: &[&[u8]],
        request_bytes: usize,
        reply_bytes: usize,
    ) {
        let Some(measured) = self.meter.finish() else { return };
        self.log_measured(shared, session, &measured, words, request_bytes, reply_bytes);
    }

    /// Logs what was measured if it is remarkable.
    fn log_measured(
        &self,
        shared: &Shared,
        session: &Session,
        measured: &Measured,
        words: &[&[u8]],
        request_bytes: usize,
        reply_bytes: usize,
    ) {
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
    pub(crate) fn count_error(&self, entry: Option<&Entry>, line: &[u8], has_run: bool) {
        let statistics = self.meter.statistics();
        statistics.count_error(CommandError::code(line));
        if let Some(entry) = entry {
            let counters = &statistics.commands[entry.index];
            let counter = if has_run { &counters.failed } else { &counters.rejected };
            counter.add(1);
        }
    }

    /// Counts a command that a script has called.
    #[inline]
    pub(crate) fn count_call(&self, entry: &Entry) {
        self.meter.statistics().commands[entry.index].calls.add(1);
    }

    /// Whether more memory is in use than `maxmemory`.
    pub(crate) fn is_short_of_memory(&mut self) -> bool {
        self.over_memory_limit(&[])
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
            Err(_) if entry.is_none() && is_http(words[0]) => {
                tracing::warn!(
                    "closing {}: it speaks HTTP, perhaps through a browser that was made to",
                    session.client
                );
                return Flow::Stop(Next::CloseNow);
            }
            Err(error) => {
                let line = self.refuse(session, entry, &error);
                // A subcommand that does not exist is nobody's.
                let exists =
                    |entry: &&Entry| !matches!(entry.command.run, Run::Container) || words.len() == 1;
                let entry = entry.map(|entry| shared.commands.resolve(entry, words)).filter(exists);
                self.count_error(entry, &line, false);
                reply.error(&line);
                return Flow::Continue;
            }
        };
        session.last_command = Some(entry.index);
        if shared.engine.keyspace.snapshots().is_congested()
            && let Some(flow) = Self::wait_for_snapshot(session, entry)
        {
            return flow;
        }
        if shared.engine.log.is_on()
            && let Some(flow) = self.is_held_by_log(shared, session, entry, reply)
        {
            return flow;
        }
        if shared.pause.is_set()
            && let Some(flow) = self.postpone(shared, session, entry)
        {
            return flow;
        }
        if self.is_kept_out(shared, session, entry, inside) {
            let line = self.refuse(session, Some(entry), &shared.running.busy());
            self.count_error(Some(entry), &line, false);
            reply.error(&line);
            return Flow::Continue;
        }
        let request = Request { entry, words, keys };
        if let Some(queue) = &mut session.queue
            && !entry.command.flags.has(Flags::UNQUEUED)
        {
            queue.push(&shared.engine.keyspace, &request);
            reply.simple("QUEUED");
            return Flow::Continue;
        }
        self.perform(shared, session, request, None, inside, reply)
    }

    /// What becomes of a command that changes something while the log cannot be written, or has no room.
    #[inline]
    fn is_held_by_log(
        &mut self,
        shared: &Shared,
        session: &mut Session,
        entry: &Entry,
        reply: &mut ReplyBuffer,
    ) -> Option<Flow> {
        let (durability, command) = (&shared.durability, entry.command);
        let ends_queue =
            || session.queue.as_ref().is_some_and(|queue| queue.writes && command.name == "exec");
        let writes = command.is_write() || ends_queue();
        // As in Redis, PING tells too that something is wrong.
        if durability.is_failing() && (writes || command.name == "ping") {
            let line = self.refuse(session, Some(entry), &durability.refusal());
            self.count_error(Some(entry), &line, false);
            reply.error(&line);
            return Some(Flow::Continue);
        }
        if (writes || scripting::may_write(command)) && !durability.has_room() {
            session.flags.set(ClientFlags::BLOCKED, true);
            return Some(Flow::Postpone { until: None });
        }
        None
    }

    /// Whether a script that has been running for long keeps a command from running: it has closed the
    /// gate, or it holds shards and the command looks at all of them.
    #[inline]
    fn is_kept_out<'k>(
        &self,
        shared: &'k Shared,
        session: &Session,
        entry: &Entry,
        inside: &mut Option<Inside<'k>>,
    ) -> bool {
        if inside.is_none() {
            *inside = shared.engine.keyspace.enter_unless_long(self.worker.id());
        }
        if inside.is_none() {
            // Watched keys are in the keyspace; nothing else that these commands touch is.
            let is_allowed = entry.command.flags.has(Flags::ALLOW_BUSY)
                && entry.command.name != "watch"
                && session.watching.is_none();
            return !is_allowed;
        }
        let looks_at_all = matches!(entry.command.run, Run::Keyspace(_))
            || (entry.command.flags.has(Flags::WHOLE_KEYSPACE) && !entry.command.flags.has(Flags::NO_SCRIPT));
        looks_at_all && shared.engine.keyspace.is_held_for_long()
    }

    /// Runs one command of a transaction.
    pub(crate) fn run_queued<'k>(
        &mut self,
        shared: &'k Shared,
        session: &mut Session,
        QueuedRequest { request, transaction }: QueuedRequest<'_, 'k>,
        inside: &mut Option<Inside<'k>>,
        reply: &mut ReplyBuffer,
    ) -> Flow {
        let mark = reply.mark();
        let flow = self.perform(shared, session, request, Some(transaction), inside, reply);
        let request_bytes = request.words.iter().map(|word| word.len()).sum();
        let reply_bytes = reply.bytes_since(mark);
        if self.meter.is_due(request_bytes, reply_bytes) {
            self.measure(shared, session, request.words, request_bytes, reply_bytes);
        }
        flow
    }

    /// Runs one command that has been admitted.
    #[inline]
    fn perform<'k>(
        &mut self,
        shared: &'k Shared,
        session: &mut Session,
        request: Request<'_>,
        transaction: Option<&mut Transaction<'k>>,
        inside: &mut Option<Inside<'k>>,
        reply: &mut ReplyBuffer,
    ) -> Flow {
        let Request { entry, words, .. } = request;
        self.meter.begin(entry.index);
        let mut flow = Flow::Continue;
        let result = match (entry.command.run.host(), transaction) {
            (Some(handler), transaction) => {
                let Handler(handler) = handler.downcast_ref().expect("the server's own handlers");
                let mark = reply.mark();
                let mut args = Args::new(words, entry.name_words());
                let mut context = ServerContext {
                    executor: self,
                    session,
                    inside,
                    shared,
                    in_transaction: transaction.is_some(),
                    transaction,
                    flow: Flow::Continue,
                };
                let result = handler(&mut context, &mut args, reply);
                flow = context.flow;
                if result.is_err() {
                    reply.rewind(mark);
                }
                result
            }
            (None, None) => {
                self.saw_data = true;
                let (environment, worker) = (&self.environment, &mut self.worker);
                let result =
                    shared.engine.execute(&request, session.database, environment, worker, inside, reply);
                if !self.worker.served.is_empty() {
                    self.mail_served();
                }
                if let Some(blocked) = self.worker.blocked.take() {
                    flow = self.wait(shared, session, &blocked);
                }
                if let Some(deferred) = self.worker.deferred.take() {
                    flow = self.run_apart(shared, session, entry, deferred);
                }
                result
            }
            (None, Some(transaction)) => {
                let (environment, worker) = (&self.environment, &mut self.worker);
                transaction.run(&request, session.database, environment, worker, reply)
            }
        };
        if !self.worker.events.is_empty() {
            self.publish_events();
        }
        if let Err(mut error) = result {
            if error == CommandError::Viewed {
                return self.hold(session);
            }
            if error == CommandError::Busy {
                error = shared.running.busy();
            }
            let line = error.line();
            self.count_error(Some(entry), &line, true);
            reply.error(&line);
        }
        if shared.feed.is_watched() && flow != Flow::Retry {
            let origin = Origin::Client(&session.client.transport);
            feed::write_line(&mut self.lines, entry, words, session.database, origin);
        }
        flow
    }

    /// The line that tells why a command is refused. One of a transaction spoils it; `EXEC` ends it.
    #[cold]
    fn refuse(&mut self, session: &mut Session, entry: Option<&Entry>, error: &CommandError) -> Vec<u8> {
        let line = error.line().into_owned();
        if entry.is_some_and(|entry| entry.command.name == "exec") {
            self.discard(session);
            let reason = line.strip_prefix(b"ERR ").unwrap_or(&line);
            return [b"EXECABORT Transaction discarded because of: ", reason].concat();
        }
        if let Some(queue) = &mut session.queue {
            queue.aborted = true;
        }
        line
    }

    /// Ends what `CLIENT CACHING` has said of the command that has just run.
    #[cold]
    fn end_caching(&mut self, session: &mut Session) {
        let last = session.last_command.map(|index| &self.shared.commands.entries()[index]);
        let is_client =
            last.and_then(|entry| entry.container).is_some_and(|container| container.name == "client");
        if let Some(tracking) = &mut session.tracking
            && tracking.caching
            && !is_client
            && session.queue.is_none()
        {
            tracking.caching = false;
            self.note_tracking(session);
        }
    }

    /// Publishes what commands have reported of keys, in order.
    #[cold]
    fn publish_events(&mut self) {
        let mut events = std::mem::take(&mut self.worker.events);
        let (exchange, kinds) = (&self.shared.exchange, self.config.config().notify_keyspace_events);
        let publish = |channel: &[u8], payload: &[u8]| {
            let post = |worker, message| self.post.send_to_service(worker, Letter::Published(message));
            let published = exchange.publish(Kind::Channel, channel, payload, false, post);
            debug_assert!(published.is_ok(), "only who may wait is told to");
        };
        for Event { name, database, key, .. } in events.drain(..) {
            if kinds.by_key {
                let prefix = format!("__keyspace@{database}__:");
                publish(&[prefix.as_bytes(), &key].concat(), name.as_bytes());
            }
            if kinds.by_event {
                publish(format!("__keyevent@{database}__:{name}").as_bytes(), &key);
            }
        }
        self.worker.events = events;
        self.throttled = exchange.is_behind_anywhere();
    }

    /// Sends the replies to clients that a command has served.
    #[cold]
    pub(crate) fn mail_served(&mut self) {
        for ServedWaiter { waiter, reply } in self.worker.served.drain(..) {
            self.post.send(blocked::address(waiter.client), Letter::Unblocked(Arc::new(reply)));
        }
    }

    /// Parks a client whose command waits for a key.
    #[cold]
    fn wait(&mut self, shared: &Shared, session: &mut Session, blocked: &Blocked) -> Flow {
        shared.blocked.enter(&blocked.waiter);
        session.waiting = Some(IsHeard(session.replies == Replies::On));
        session.flags.set(ClientFlags::BLOCKED, true);
        let timeout = blocked.timeout_ms.map(|timeout_ms| Duration::from_millis(timeout_ms.get()));
        // A moment beyond the clock is never.
        let until = timeout.and_then(|timeout| self.now.instant.checked_add(timeout));
        Flow::Stop(Next::Park { until })
    }

    /// Has a command run apart from the worker; its client waits for the reply.
    #[cold]
    fn run_apart(
        &mut self,
        shared: &Shared,
        session: &mut Session,
        entry: &Entry,
        deferred: Box<Deferred>,
    ) -> Flow {
        self.meter.take_back();
        session.apart = Some(IsHeard(session.replies == Replies::On));
        let (client, post) = (session.client.address, self.post.clone());
        shared.apart.run(Job { deferred, index: entry.index, client, post, rounds: 0 });
        Flow::Stop(Next::Park { until: None })
    }

    /// Stores what a command has computed apart from the worker.
    fn store_computed(&mut self, unstored: Unstored) {
        /// How often it is computed anew because its keys have changed, before that is done where it stands.
        const ROUNDS_MAX: u32 = 3;
        let shared = Arc::clone(&self.shared);
        let (durability, is_recorded) = (&shared.durability, shared.engine.log.is_on());
        let admission = match is_recorded && durability.is_failing() {
            true => Err(durability.refusal()),
            false => Ok(()),
        };
        let lacks_room = is_recorded && admission.is_ok() && !durability.has_room()
            || shared.engine.keyspace.snapshots().is_congested();
        let mut inside = shared.engine.keyspace.enter_unless_long(self.worker.id());
        // Where the log or a snapshot is behind, or a script has closed the gate for long, the next tick will do.
        if lacks_room || inside.is_none() {
            let again = Letter::Computed(Arc::new(Mutex::new(Some(unstored))));
            return self.post.send_to_service(self.worker.id(), again);
        }
        let Unstored { mut computed, index, client, nanoseconds, rounds } = unstored;
        let words = std::mem::take(&mut computed.words);
        let (database, protocol) = (computed.database, computed.protocol);
        let entry = &shared.commands.entries()[index];
        let texts: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
        let request = Request { entry, words: &texts, keys: &[] };
        let mut reply = ReplyBuffer::default();
        reply.set_protocol(protocol);
        self.environment.client = blocked::token(client);
        self.environment.broadcasts = shared.trackers.broadcasts();
        self.environment.tracks = false;
        // Its own view is among those that there are.
        self.environment.waits_for_views = false;
        if rounds >= ROUNDS_MAX {
            self.environment.visits_max = None;
        }
        self.worker.computed = Some(Box::new(computed));
        let (environment, worker) = (&self.environment, &mut self.worker);
        let result = admission.and_then(|()| {
            shared.engine.execute(&request, database, environment, worker, &mut inside, &mut reply)
        });
        drop(inside);
        self.environment.visits_max = Some(shared.visits_max.load(Ordering::Relaxed));
        self.worker.computed = None;
        if let Some(deferred) = self.worker.deferred.take() {
            let (post, rounds) = (self.post.clone(), rounds + 1);
            return shared.apart.run(Job { deferred, index, client, post, rounds });
        }
        if let Err(error) = result {
            let error = if error == CommandError::Busy { shared.running.busy() } else { error };
            reply.error(error.line());
        }
        if !self.worker.served.is_empty() {
            self.mail_served();
        }
        if !self.worker.events.is_empty() {
            self.publish_events();
        }
        if !self.worker.invalidations.is_empty() {
            self.tell_invalidations(client.id);
        }
        self.dispose();
        let finished = Finished { index, words, reply: pieces(&mut reply), nanoseconds };
        self.post.send(client, Letter::Finished(Arc::new(finished)));
    }

    /// Goes on with a client whose command has been run, and answers it.
    fn finish_apart(&mut self, session: &mut Session, finished: &Finished, reply: &mut ReplyBuffer) -> Next {
        let measured = self.meter.count_apart(finished.index, finished.nanoseconds);
        let words: Vec<&[u8]> = finished.words.iter().map(|word| &**word).collect();
        let bytes = |lengths: &mut dyn Iterator<Item = usize>| lengths.sum();
        let request_bytes = bytes(&mut words.iter().map(|word| word.len()));
        let reply_bytes = bytes(&mut finished.reply.iter().map(|piece| piece.len()));
        let shared = Arc::clone(&self.shared);
        self.log_measured(&shared, session, &measured, &words, request_bytes, reply_bytes);
        let last = finished.reply.last().map(|piece| &piece[..]).unwrap_or_default();
        if last.starts_with(b"-") && finished.reply.len() == 1 {
            let line = &last[1..last.len() - 2];
            self.count_error(Some(&shared.commands.entries()[finished.index]), line, true);
        }
        if session.apart.take() == Some(IsHeard(true)) {
            reply.set_protocol(session.protocol);
            let others = finished.reply.len().saturating_sub(1);
            finished.reply[..others].iter().for_each(|piece| reply.raw_shared(piece));
            reply.raw(last);
        }
        Next::Read
    }

    /// Has a command presented again: somebody has a view of what it may change.
    #[cold]
    fn hold(&mut self, session: &mut Session) -> Flow {
        self.meter.take_back();
        session.held_since.get_or_insert(self.now.instant);
        Flow::Postpone { until: self.now.instant.checked_add(HOLD_PAUSE) }
    }

    /// Goes on with a client whose command has waited, and answers it.
    fn stop_waiting(
        &mut self,
        session: &mut Session,
        reply: &mut ReplyBuffer,
        answer: impl FnOnce(&mut ReplyBuffer),
    ) -> Next {
        self.shared.blocked.leave(session.client.address);
        session.flags.set(ClientFlags::BLOCKED, false);
        session.publish();
        if session.waiting.take() == Some(IsHeard(true)) {
            reply.set_protocol(session.protocol);
            answer(reply);
        }
        Next::Read
    }

    /// Ends a client's wait for keys; false where it waits for none, or a reply is on its way.
    fn withdraw(&self, session: &Session) -> bool {
        if session.waiting.is_none() {
            return false;
        }
        let _inside = self.shared.engine.keyspace.enter(self.worker.id());
        self.shared.blocked.end(&self.shared.engine, session.client.address).is_some()
    }

    /// Whether the command exists and may run now.
    #[inline]
    fn admit<'t>(
        &mut self,
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
        if !session.authenticated
            && !entry.command.flags.has(Flags::NO_AUTH)
            && !access::is_open(self.config.config())
        {
            return Err(CommandError::text("NOAUTH Authentication required."));
        }
        if session.queue.is_some() && entry.command.flags.has(Flags::NO_MULTI) {
            return Err(CommandError::text("ERR Command not allowed inside a transaction"));
        }
        if session.is_restricted() {
            commands::check_restrictions(session, entry)?;
        }
        if shared.loading.is_active() && !entry.command.flags.has(Flags::LOADING) {
            return Err(CommandError::text("LOADING Redis is loading the dataset in memory"));
        }
        if shared.persistence.has_failed()
            && (commands::writes(session, entry) || entry.command.name == "ping")
            && shared.denies_writes(self.config.config())
        {
            return Err(UNSAVED);
        }
        if (entry.command.flags.has(Flags::DENY_OOM) || session.queue.is_some())
            && self.over_memory_limit(words)
            && session.queue.as_ref().is_none_or(|queue| queue.needs_memory(entry))
        {
            return Err(CommandError::OutOfMemory);
        }
        Ok(entry)
    }

    /// Rings the log's bell if this worker has recorded something since it last did.
    #[inline]
    fn ring_bell(&mut self) {
        let recorded_to = self.worker.effects.logged_to();
        if recorded_to != self.rung_at {
            self.rung_at = recorded_to;
            self.shared.durability.ring_bell();
        }
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

    /// How far the log must be durable before what was just served may be told: as far as it is
    /// recorded, since that is what the commands may have seen. 0 where nothing needs to be durable, as
    /// with INFO, which has to answer while the disk fails.
    #[inline]
    fn durability_mark(&self) -> u64 {
        if !self.saw_data {
            return 0;
        }
        let config = self.config.config();
        if config.appendfsync != AppendFsync::Always || !self.shared.engine.log.is_on() {
            return 0;
        }
        let durability = &self.shared.durability;
        let tail = durability.tail();
        if tail > durability.durable() { tail } else { 0 }
    }

    /// Whether a pause holds the command back. `CLIENT UNPAUSE` always passes, or nobody could end
    /// a pause of everything.
    #[cold]
    fn postpone(&self, shared: &Shared, session: &mut Session, entry: &Entry) -> Option<Flow> {
        let (held, until) = shared.pause.in_force(self.now.instant)?;
        let ends_it = entry.command.name == "unpause" && entry.container.is_some();
        if ends_it || (held == Held::Writes && !commands::is_held_with_writes(session, entry)) {
            return None;
        }
        session.flags.set(ClientFlags::BLOCKED, true);
        Some(Flow::Postpone { until })
    }

    /// A command that writes waits while a snapshot has too much to write. Those of a transaction wait once,
    /// before the first runs.
    #[cold]
    fn wait_for_snapshot(session: &mut Session, entry: &Entry) -> Option<Flow> {
        let is_queued = session.queue.is_some() && !entry.command.flags.has(Flags::UNQUEUED);
        let command = entry.command;
        // The keys tell a script that is run from what is done with scripts.
        let is_script = command.group == Group::Scripting && !command.keys.is_empty();
        let writes = commands::writes(session, entry) || is_script && !command.flags.has(Flags::READ_ONLY);
        if is_queued || !writes {
            return None;
        }
        session.flags.set(ClientFlags::BLOCKED, true);
        Some(Flow::Postpone { until: None })
    }

    /// Whether more memory is in use than `maxmemory`. The sum is as old as this window of the
    /// pipeline, or as [`ADMITTED_BYTES_MAX`].
    fn over_memory_limit(&mut self, words: &[&[u8]]) -> bool {
        let limit = self.config.config().maxmemory;
        if limit == 0 {
            return false;
        }
        let shared = &self.shared;
        let used = *self.memory.used.get_or_insert_with(|| shared.monitor.used_bytes(&shared.engine));
        self.memory.admitted += words.iter().map(|word| word.len()).sum::<usize>();
        let over = used as u64 > limit;
        if over || self.memory.admitted > ADMITTED_BYTES_MAX {
            self.memory = MemoryCheck::default();
        }
        over
    }
}

/// WAIT and WAITAOF.
impl Executor {
    /// Whether all that is wanted is there.
    pub(crate) fn is_fulfilled(&self, wanted: &DurabilityWait) -> bool {
        !wanted.replicas && wanted.local_mark.is_none_or(|mark| self.shared.durability.synced() >= mark)
    }

    /// Answers how many have what was wanted.
    pub(crate) fn answer_durability(&self, wanted: &DurabilityWait, reply: &mut ReplyBuffer) {
        if !wanted.counts_local {
            return reply.integer(0);
        }
        let local = wanted.local_mark.is_some_and(|mark| self.shared.durability.synced() >= mark);
        reply.array(2);
        reply.integer(local.into());
        reply.integer(0);
    }

    /// Lets a client wait; it has been parked.
    pub(crate) fn await_durability(&mut self, session: &mut Session, wanted: DurabilityWait) {
        session.durability = Some((wanted, IsHeard(session.replies == Replies::On)));
        session.flags.set(ClientFlags::BLOCKED, true);
        if let Some(mark) = wanted.local_mark {
            self.durability_waits.push((mark, session.client.address));
            // It may have come to the mark meanwhile.
            self.tell_durable();
        }
    }

    /// Tells the clients whose mark the log has come to, and sees to it that the worker learns of the
    /// next one.
    fn tell_durable(&mut self) {
        while let Some(next) = self.durability_waits.iter().map(|(mark, _)| *mark).min()
            && !self.shared.durability.await_sync(self.worker.id(), next)
        {
            let synced = self.shared.durability.synced();
            let post = &self.post;
            self.durability_waits.retain(|(mark, address)| {
                if *mark <= synced {
                    post.send(*address, Letter::Durable);
                }
                *mark > synced
            });
        }
    }

    fn end_durability_wait(&mut self, session: &mut Session, reply: &mut ReplyBuffer) -> Next {
        session.flags.set(ClientFlags::BLOCKED, false);
        self.durability_waits.retain(|(_, address)| *address != session.client.address);
        if let Some((wanted, IsHeard(true))) = session.durability.take() {
            reply.set_protocol(session.protocol);
            self.answer_durability(&wanted, reply);
        }
        Next::Again
    }
}

/// What commands are to know of the configuration.
pub(crate) fn environment(config: &Config) -> Environment {
    Environment {
        now_ms: 0,
        string_bytes_max: config.proto_max_bulk_len as usize,
        no_touch: false,
        keep_expired: false,
        replaying_at_ms: 0,
        compress_dumps: config.rdbcompression,
        relaxed_versions: config.rdb_version_check == VersionCheck::Relaxed,
        client: ClientToken::default(),
        deny_blocking: false,
        visits_max: None,
        waits_for_views: true,
        tracks: false,
        broadcasts: false,
        notifications: config.notify_keyspace_events.published(),
        lazyfree_expire: config.lazyfree_lazy_expire,
        lazyfree_server_del: config.lazyfree_lazy_server_del,
        lazyfree_user_del: config.lazyfree_lazy_user_del,
        lazyfree_user_flush: config.lazyfree_lazy_user_flush,
        collection_limits: CollectionLimits {
            hash_max_listpack_entries: config.hash_max_listpack_entries as usize,
            hash_max_listpack_value: config.hash_max_listpack_value as usize,
            list_max_listpack_size: i64::from(config.list_max_listpack_size),
            list_packed_threshold: 0,
            hll_sparse_max_bytes: config.hll_sparse_max_bytes as usize,
            set_max_intset_entries: config.set_max_intset_entries as usize,
            set_max_listpack_entries: config.set_max_listpack_entries as usize,
            set_max_listpack_value: config.set_max_listpack_value as usize,
            zset_max_listpack_entries: config.zset_max_listpack_entries as usize,
            zset_max_listpack_value: config.zset_max_listpack_value as usize,
            stream_node_max_bytes: config.stream_node_max_bytes as usize,
            stream_node_max_entries: config.stream_node_max_entries as usize,
        },
    }
}

/// Whether a key is the one before once more: keys that differ mostly end differently.
#[inline]
fn has_bytes(key: &Key<'_>, bytes: &[u8]) -> bool {
    key.bytes.len() == bytes.len() && key.bytes.last() == bytes.last() && key.bytes == bytes
}

/// How much of a stranger's words an error shows.
pub(crate) const QUOTED_BYTES_MAX: usize = 128;

/// Whether a line of an HTTP request has arrived in place of a command: a page in somebody's browser
/// may be sending orders in his name. The lines are those that every such request has.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

fn unknown_command(words: &[&[u8]]) -> CommandError {
    // As in Redis, a word ends at its first NUL here.
    let shown = |word: &[u8], room: usize| {
        let word = word.split(|byte| *byte == 0).next().unwrap_or_default();
        word[..word.len().min(room)].to_vec()
    };
    let mut text = shown(words[0], QUOTED_BYTES_MAX);
    text.extend_from_slice(b"', with args beginning with: ");
    let mut room = QUOTED_BYTES_MAX;
    for word in &words[1..] {
        if room == 0 {
            break;
        }
        let quoted = [b"'", shown(word, room).as_slice(), b"' "].concat();
        room = room.saturating_sub(quoted.len());
        text.extend_from_slice(&quoted);
    }
    CommandError::quoting("ERR unknown command '", &text)
}

fn unknown_subcommand(container: &Entry, name: &[u8]) -> CommandError {
    let container = container.command.name.to_uppercase();
    let shown = &name[..name.len().min(QUOTED_BYTES_MAX)];
    CommandError::quoting_within("ERR unknown subcommand '", shown, &format!("'. Try {container} HELP."))
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
    /// The pass through the gate; `None` where a transaction has closed it.
    pub(crate) inside: &'a mut Option<Inside<'k>>,
    /// Whether it runs among others: it can neither wait nor be presented again.
    pub(crate) in_transaction: bool,
    /// The transaction, for a command that runs commands itself.
    pub(crate) transaction: Option<&'a mut Transaction<'k>>,
    /// How the connection goes on.
    pub(crate) flow: Flow,
}

impl ServerContext<'_, '_> {
    /// Does something outside of the gate: what may wait for somebody who closes it, or for somebody who
    /// waits for that. `None`, and nothing done, in a transaction that has closed the gate itself.
    pub(crate) fn outside_gate<R>(&mut self, work: impl FnOnce(&Shared) -> R) -> Option<R> {
        self.inside.take()?;
        let result = work(self.shared);
        *self.inside = self.shared.engine.keyspace.enter_unless_long(self.executor.worker.id());
        Some(result)
    }
}

/// A command of a transaction.
pub(crate) struct QueuedRequest<'a, 'k> {
    pub(crate) request: Request<'a>,
    pub(crate) transaction: &'a mut Transaction<'k>,
}

impl Service for Executor {
    type Session = Session;
    type Letter = Letter;

    fn open(&mut self, client: &Arc<Client>) -> Session {
        Session::new(client, access::is_open(self.newest_config()))
    }

    fn tick(&mut self, now: Now) {
        self.now = now;
        self.environment.now_ms = now.unix_ms;
        self.refresh_config();
        if self.shared.engine.keyspace.pool().is_low() {
            self.shared.maintenance.warm_up();
        }
        self.environment.visits_max = Some(self.shared.visits_max.load(Ordering::Relaxed));
        self.environment.collection_limits.list_packed_threshold =
            self.shared.list_packed_threshold.load(Ordering::Relaxed);
    }

    fn serve(&mut self, session: &mut Session, input: &[u8], reply: &mut ReplyBuffer) -> Served {
        if session.client.is_killed() {
            return Served { consumed: input.len(), next: Next::CloseNow, wanted: 0 };
        }
        reply.set_protocol(session.protocol);
        session.flags.set(ClientFlags::BLOCKED, false);
        self.saw_data = false;
        let shared = Arc::clone(&self.shared);
        let mut inside = shared.engine.keyspace.enter_unless_long(self.worker.id());
        self.environment.no_touch = session.flags.has(ClientFlags::NO_TOUCH);
        self.environment.tracks = session.tracking.as_deref().is_some_and(Tracking::tracks_next);
        self.environment.broadcasts = shared.trackers.broadcasts();
        self.environment.client = blocked::token(session.client.address);
        let has_patience = |since| self.now.instant.duration_since(since) < HOLD_MAX;
        self.environment.waits_for_views = session.held_since.is_none_or(has_patience);
        self.environment.keep_expired = shared.pause.is_set()
            && shared.pause.in_force(self.now.instant).is_some()
            || shared.durability.is_failing();
        let mut batch = std::mem::take(&mut self.batch);
        let mut window = std::mem::take(&mut self.window);
        let (mut position, mut consumed) = (0, 0);
        let served = loop {
            batch.clear();
            let limits = self.limits(session);
            // What a stranger says first decides how the rest is to be read.
            let depth = if limits.authenticated { WINDOW } else { 1 };
            let decoded = session.decoder.decode(input, &mut position, &mut batch, &limits, depth);
            let mut current = window.recycle();
            Self::prepare(&shared, inside.as_ref(), &batch, input, consumed, session.database, &mut current);
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
                    if session.replies == Replies::On {
                        reply.error(format!("ERR {error}"));
                    }
                    break Served { consumed: input.len(), next: Next::CloseAfterReply, wanted: 0 };
                }
            }
        };
        drop(inside);
        self.withhold_to = self.durability_mark();
        session.publish();
        if !self.worker.invalidations.is_empty() {
            self.tell_invalidations(session.client.id());
        }
        if !self.lines.is_empty() {
            self.show_lines();
        }
        self.dispose();
        self.batch = batch;
        self.window = window;
        served
    }

    fn resume(&mut self, session: &mut Session, reply: &mut ReplyBuffer) -> Next {
        self.withhold_to = 0;
        if session.waiting.is_some() {
            // Where it was served at the last moment, the reply is on its way.
            return match self.withdraw(session) {
                true => self.stop_waiting(session, reply, |reply| Ending::Timeout.answer(reply)),
                false => Next::Park { until: None },
            };
        }
        if session.durability.is_some() {
            return self.end_durability_wait(session, reply);
        }
        if let Some(answer) = session.answer_later.take() {
            reply.set_protocol(session.protocol);
            answer(reply);
        }
        Next::Read
    }

    fn deliver(&mut self, session: &mut Session, letter: Letter, reply: &mut ReplyBuffer) -> Option<Next> {
        // What a client that has waited is answered is a change that somebody else has made.
        self.saw_data = matches!(letter, Letter::Unblocked(_) | Letter::Finished(_));
        self.withhold_to = self.durability_mark();
        match letter {
            Letter::Unpaused | Letter::LogHasRoom => {
                let is_waiting = session.waiting.is_some() || session.durability.is_some();
                let is_held = session.flags.has(ClientFlags::BLOCKED) && !is_waiting;
                is_held.then_some(Next::Again)
            }
            Letter::Unblocked(encoded) => Some(self.stop_waiting(session, reply, |reply| {
                reply.raw(&encoded);
            })),
            Letter::Finished(finished) => Some(self.finish_apart(session, &finished, reply)),
            Letter::Lines(lines) => {
                if session.flags.has(ClientFlags::MONITOR) {
                    reply.raw(&lines);
                }
                None
            }
            Letter::Durable => {
                let (wanted, _) = session.durability?;
                self.is_fulfilled(&wanted).then(|| self.end_durability_wait(session, reply))
            }
            Letter::Invalidated(invalidated) => {
                self.deliver_invalidated(session, &invalidated, reply);
                None
            }
            Letter::Redirected(invalidated) => {
                Self::deliver_redirected(session, &invalidated, reply);
                None
            }
            Letter::HeldUp | Letter::Published(_) | Letter::Settled(_) | Letter::Computed(_) => None,
        }
    }

    fn receive(&mut self, letter: Letter, outbox: &mut Outbox<'_, Session>) {
        match letter {
            // Waking up is all that a released reply needs.
            Letter::Durable => self.tell_durable(),
            Letter::Unpaused
            | Letter::HeldUp
            | Letter::LogHasRoom
            | Letter::Lines(_)
            | Letter::Unblocked(_)
            | Letter::Finished(_)
            | Letter::Invalidated(_)
            | Letter::Redirected(_) => {}
            Letter::Published(message) => self.subscribers.deliver(&self.shared.exchange, &message, outbox),
            Letter::Settled(number) => self.settling.1 = number,
            Letter::Computed(unstored) => {
                let unstored = unstored.lock().unwrap_or_else(PoisonError::into_inner).take();
                unstored.into_iter().for_each(|unstored| self.store_computed(unstored));
            }
        }
    }

    fn close(&mut self, mut session: Session) {
        if session.durability.is_some() {
            self.durability_waits.retain(|(_, address)| *address != session.client.address);
        }
        self.subscribers.unsubscribe_all(&self.shared.exchange, &mut session);
        self.stop_monitoring(&mut session);
        self.stop_tracking(&mut session);
        if session.watching.is_some() {
            let shared = Arc::clone(&self.shared);
            let _inside = shared.engine.keyspace.enter(self.worker.id());
            self.unwatch(&mut session);
        }
        if session.waiting.is_some() {
            self.withdraw(&session);
            self.shared.blocked.leave(session.client.address);
        }
    }

    fn withhold_to(&self) -> u64 {
        self.withhold_to
    }

    fn released(&self) -> u64 {
        self.shared.durability.durable()
    }

    fn await_release(&mut self, mark: u64) -> bool {
        self.shared.durability.await_durable(self.worker.id(), mark)
    }

    fn end_tick(&mut self) {
        self.ring_bell();
    }

    fn background(&mut self, now: Now) -> Duration {
        let started = Instant::now();
        self.environment.broadcasts = self.shared.trackers.broadcasts();
        self.limit_tracked();
        let config = self.config.config();
        let pause = if self.shared.active_expire.load(Ordering::Relaxed) {
            self.expiry.run(&self.shared, &mut self.worker, &self.environment, config, now)
        } else {
            Duration::from_secs(1) / config.hz
        };
        self.ring_bell();
        self.note_background(started.elapsed(), pause.is_zero());
        if !self.worker.invalidations.is_empty() {
            self.tell_invalidations(0);
        }
        if !self.worker.events.is_empty() {
            self.publish_events();
        }
        if !self.worker.served.is_empty() {
            self.mail_served();
        }
        self.dispose();
        pause
    }
}
