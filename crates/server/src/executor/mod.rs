//! Running requests: the service that the network layer calls.
//!
//! ```text
//! input ─decode─▶ window of up to WINDOW commands
//!       ─find───▶ table entry, keys hashed, buckets and entries prefetched
//!       ─run────▶ checks, locks, handler, statistics, in order
//! ```
//!
//! `window` looks ahead, `admission` decides whether a command may run, `waiting` keeps clients that wait, `long_words`
//! keeps long words from being copied, `offload` hands out commands that take long. `nested_poll` answers others while
//! a script takes its time, and the network layer calls `service`.
//!
//! Memory arrives while other commands of the pipeline are looked at; a window is as deep as the
//! first-level cache bears.

mod admission;
mod audit;
mod collection;
mod commitment;
mod compaction;
mod eviction;
pub(crate) mod expiry;
mod identity;
mod long_words;
mod measuring;
mod migration;
mod nested_poll;
mod offload;
pub(crate) mod offload_threads;
mod seen;
mod service;
mod slots;
mod tracking;
pub(crate) mod transaction;
mod waiting;
mod window;

use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use dunlin_acl::Context;
use dunlin_engine::{
    Caller, Engine, Environment, Notice, Outcome, Policy, Request, Transaction, Worker,
    command::{Args, CommandError, CommandResult, Entry, Flags, Run},
    keyspace::{Inside, Key, Ranking},
};
use dunlin_mailbox::Around;
use dunlin_net::{
    Address, Clients, Commitment, EventLoop, Next, Now, REPLY_BYTES_MAX, WaitingPush, WorkerContext,
    WorkerQueues,
};
use dunlin_resp::{Batch, Mark, ReplyBuffer};

use self::{
    admission::{is_http, resolve},
    compaction::Defragmentation,
    eviction::MemoryCheck,
    nested_poll::PausedScript,
    seen::{SawData, Seen},
    slots::slots_of,
    waiting::RoomWaits,
    window::Window,
};
use crate::{
    access::AclRequest,
    admission::{Check, READONLY, Verdict},
    cluster::TopologyReader,
    config::{self, Config, ConfigReader},
    executor::{expiry::ExpiryCycle, transaction::Unwatched},
    lua::{Compiled, LoadedLibraries},
    observe::{command_stats::Meter, hot_keys::HotKeySession, key_samples},
    push::{
        monitor::{self, Origin},
        notifier::HostNotice,
    },
    session::{ClientFlags, PushPosition, Replies, Session, Unfinished, transaction::Queue},
    shared::Shared,
    system::host::{self, ProcessorTime},
    workers::{
        WorkerMessage,
        drain::{drain, send_served},
        migration::Migration,
        offload::OffloadedResult,
        rest::REST,
    },
};

pub(crate) use self::admission::{QUOTED_BYTES_MAX, check_patterns};
pub(crate) use self::eviction::{eviction, filled_database};
pub(crate) use self::waiting::WITHOUT_LOG;

/// A worker's executor.
pub struct Executor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) worker: Worker,
    /// The settings that its clients' commands obey.
    pub(crate) policy: Policy,
    /// The client whose commands are run at the moment.
    pub(crate) caller: Caller,
    pub(crate) config: ConfigReader,
    now: Now,
    pub(crate) queues: WorkerQueues<WorkerMessage>,
    clients: Arc<Clients>,
    expiry: ExpiryCycle,
    meter: Meter,
    /// The session of HOTKEYS while it collects, and what had happened to it when it was looked at last.
    hot_keys: (Option<Arc<HotKeySession>>, u64),
    /// Ticks until the keys of commands are noted for the recorder; 0 in such a tick.
    ticks_to_sample: u32,
    /// Clients have asked something since the last slice of background work.
    has_served: bool,
    /// Slices of background work in a row that had nothing to do.
    quiet_rounds: u32,
    /// The next slice is due at once: the server rests no longer.
    is_awake: bool,
    memory: MemoryCheck,
    defragmentation: Defragmentation,
    /// How often workers had been asked to give memory back when this one last looked.
    purges: u64,
    /// On whose behalf keys are evicted: what a transaction under way has changed so far is none of its business.
    evictor: Worker,
    /// The offset behind what it had recorded when it last woke the thread `log`.
    rung_at: u64,
    /// Its clients that wait for the log to be durable up to a mark.
    durability_waits: Vec<(u64, Address)>,
    /// Its clients whose commands wait for room in the log, or in the queue of a snapshot.
    room_waits: RoomWaits,
    /// Results of offloaded commands that found no room when they came.
    result: Vec<OffloadedResult>,
    /// Keys that were sent to other servers and could not be removed when that was known.
    #[expect(clippy::vec_box, reason = "they come and go in boxes")]
    sent_keys: Vec<Box<Migration>>,
    /// The commitment that the replies of the last call wait for.
    withhold_to: Commitment,
    /// The term in which commands of this call were let in, on the primary of a shard; 0 for none.
    term: Cell<u64>,
    /// Whether a command of this call has seen the data set, or changed something that is recorded.
    pub(crate) saw_data: SawData,
    /// The marks that they have seen one by one, while marks are kept.
    seen: Seen,
    /// Whether the server keeps marks of what keys have seen.
    keeps_marks: bool,
    /// The commitments of pushes that stand among the replies of the turn.
    pushed_to: Vec<Commitment>,
    /// State that is put aside while a script takes its time and others are attended to.
    paused_script: Option<PausedScript>,
    /// A transaction was given up together with the process: its locks are held to the end, which is near.
    pub(crate) is_abandoned: bool,
    /// Keys that clients have ceased to watch, and that are still to be let go.
    pub(crate) unwatched: Vec<Unwatched>,
    /// Clients that are gone and may still be waiting for keys.
    gone_clients: Vec<Address>,
    /// Memory for the next transaction.
    pub(crate) spare_queue: Option<Box<Queue>>,
    /// Its scripts.
    pub(crate) compiled: Compiled,
    /// Its functions.
    pub(crate) libraries: LoadedLibraries,
    /// The cluster that it is a node of.
    pub(crate) topology: TopologyReader,
    /// Memory that is used again for every window.
    window: Window<'static>,
    batch: Batch,
}

/// The settings that commands obey: the configuration's, and what `DEBUG` has set beside it.
fn policy(shared: &Shared, config: &Config) -> Policy {
    let mut policy = config::policy(config);
    policy.collection_limits.list_packed_threshold = shared.list_packed_threshold.load(Ordering::Relaxed);
    policy
}

/// How a connection goes on after one of its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// With the next command.
    Continue,
    /// The command has not run: it is presented again at that time, or when a message says so.
    Postpone {
        /// `None` for a moment beyond the clock.
        until: Option<Instant>,
    },
    /// The layer below decides when.
    Stop(Next),
}

impl Executor {
    /// The executor of worker `worker.id()`, with its connections to the others.
    pub(crate) fn new(
        shared: Arc<Shared>,
        mut worker: Worker,
        context: WorkerContext<WorkerMessage>,
    ) -> Self {
        worker.statistics = Arc::clone(&shared.stats.keyspace[worker.id()]);
        worker.clock_ns = host::monotonic_ns;
        worker.audience = Some(Box::new(shared.notifier(&context.queues)));
        let mut evictor = Worker::new(worker.id(), worker.random());
        evictor.statistics = Arc::clone(&worker.statistics);
        evictor.clock_ns = worker.clock_ns;
        evictor.audience = Some(Box::new(shared.notifier(&context.queues)));
        commitment::attach(&shared, &context.queues);
        let config = ConfigReader::new(Arc::clone(&shared.config));
        let policy = policy(&shared, config.config());
        let expiry = ExpiryCycle::new(worker.id(), shared.workers);
        let defragmentation = Defragmentation::new(worker.id(), shared.workers);
        let statistics = Arc::clone(&shared.stats.workers[worker.id()]);
        let meter = Meter::new(statistics, &shared.commands, config.config());
        let mut executor = Self {
            shared,
            worker,
            policy,
            caller: Caller { waits_for_views: true, ..Caller::default() },
            config,
            now: Now::read(),
            queues: context.queues,
            clients: context.clients,
            expiry,
            meter,
            hot_keys: (None, 0),
            ticks_to_sample: key_samples::TICKS_PER_SAMPLE,
            has_served: false,
            quiet_rounds: 0,
            is_awake: false,
            memory: MemoryCheck::default(),
            defragmentation,
            purges: 0,
            evictor,
            rung_at: 0,
            durability_waits: Vec::new(),
            room_waits: RoomWaits::default(),
            result: Vec::new(),
            sent_keys: Vec::new(),
            withhold_to: Commitment::default(),
            term: Cell::new(0),
            saw_data: SawData::default(),
            seen: Seen::default(),
            keeps_marks: false,
            pushed_to: Vec::new(),
            paused_script: None,
            is_abandoned: false,
            unwatched: Vec::new(),
            gone_clients: Vec::new(),
            spare_queue: None,
            compiled: Compiled::default(),
            libraries: LoadedLibraries::default(),
            topology: TopologyReader::default(),
            window: Window::default(),
            batch: Batch::default(),
        };
        executor.keep_marks();
        executor
    }

    /// The time of this tick.
    pub(crate) fn now(&self) -> Now {
        self.now
    }

    /// The policy and the caller of its commands.
    pub(crate) fn environment(&self) -> Environment<'_> {
        Environment::new(&self.policy, &self.caller)
    }

    /// Messages to all workers.
    pub(crate) fn queues(&self) -> &WorkerQueues<WorkerMessage> {
        &self.queues
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

    /// Ends `MONITOR` for a client.
    pub(crate) fn stop_monitoring(&self, session: &mut Session) {
        if session.flags.has(ClientFlags::MONITOR) {
            session.flags.set(ClientFlags::MONITOR, false);
            session.client.listening.set(0);
            self.shared.monitor.leave(session.client.id());
        }
    }

    /// Shows a client's command to monitors, unless it is presented again and was shown before.
    #[cold]
    pub(crate) fn show(
        &mut self,
        session: &mut Session,
        is_alone: bool,
        line: impl FnOnce(usize, Origin<'_>) -> Vec<u8>,
    ) {
        if session.is_shown && is_alone {
            return;
        }
        let line = line(session.database, Origin::Client(&session.client.transport));
        if !line.is_empty() {
            session.is_shown = is_alone;
            self.show_line(line);
        }
    }

    /// Shows a line to monitors: now or, if the record of the command has to be committed first, behind it.
    #[cold]
    pub(crate) fn show_line(&mut self, line: Vec<u8>) {
        if self.withholds_pushes() {
            self.worker.notices.push(HostNotice::Line(Arc::new(line)).into());
        } else {
            self.shared.monitor.show(line, Commitment::default(), &self.queues);
        }
    }

    /// Makes the place of each command of a client among all changes be decided under the command's locks.
    pub(crate) fn follow(&mut self, session: &Session) {
        if !self.worker.notices.iter().any(|notice| matches!(notice, Notice::Client(_))) {
            let position =
                session.position.get_or_init(|| Arc::new(PushPosition(Arc::clone(&session.client))));
            self.worker.notices.push(Notice::Client(Arc::clone(position) as _));
        }
    }

    /// Does what is left to be done after a command of a client that is sent pushes, or whose replies are noted.
    #[inline(never)]
    fn follow_reply(
        &mut self,
        session: &mut Session,
        entry: Option<&Entry>,
        words: &[&[u8]],
        keys: &[Key<'_>],
        mark: Mark,
        reply: &mut ReplyBuffer,
    ) {
        self.end_caching(session);
        let own = reply.bytes_since(mark);
        let [before, behind] = self.place_pushes(session, mark, reply);
        if session.notes_seen {
            self.note_reply(entry, words, keys, [before, own, behind], reply.mark());
        }
    }

    /// Puts pushes around the reply to the command that has just run, which begins at a mark; their bytes.
    fn place_pushes(&mut self, session: &Session, mark: Mark, reply: &mut ReplyBuffer) -> [usize; 2] {
        let Some(pushes) = session.client.pushes.get() else { return [0, 0] };
        let owes_reply = session.offloaded.is_some_and(|offloaded| offloaded.is_decided);
        let Some(Around { before, behind }) = pushes.settle(!owes_reply) else { return [0, 0] };
        let mut own = reply.split_off(mark);
        let pushed_to = &mut self.pushed_to;
        let mut put = |WaitingPush { commitment, push }: WaitingPush, reply: &mut ReplyBuffer| {
            if commitment.mark > 0 && pushed_to.last() != Some(&commitment) {
                pushed_to.push(commitment);
            }
            reply.raw(&push.encode());
        };
        before.into_iter().for_each(|push| put(push, reply));
        let bytes_before = reply.bytes_since(mark);
        reply.append(&mut own);
        let behind_from = reply.mark();
        behind.into_iter().for_each(|push| put(push, reply));
        [bytes_before, reply.bytes_since(behind_from)]
    }

    /// Takes a changed configuration over.
    pub(crate) fn refresh_config(&mut self) {
        if self.config.refresh() {
            let slots = self.policy.slots.take();
            self.policy = Policy { slots, ..policy(&self.shared, self.config.config()) };
            self.meter.configure(self.config.config());
            self.keep_marks();
            configure_access(&self.shared.engine, self.config.config());
        }
    }
}

impl Executor {
    /// Runs the commands of a window in order. Returns how many were run, and how to go on.
    fn run_window<'k>(
        &mut self,
        shared: &'k Shared,
        session: &mut Session,
        window: &Window<'_>,
        turn: &mut Turn<'k>,
        reply: &mut ReplyBuffer,
    ) -> (usize, Flow) {
        let (mut words_start, mut keys_start, mut input_start) = (0, 0, 0);
        self.refresh_conditions(shared, session);
        if self.ticks_to_sample == 0 {
            self.note_keys(shared, window);
        }
        let mut reply_bytes = reply.len();
        let mut last: (&[&[u8]], usize) = (&[], 0);
        let mut outcome = (window.commands.len(), Flow::Continue);
        self.meter.start();
        self.memory = MemoryCheck::default();
        for (index, prepared) in window.commands.iter().enumerate() {
            let words = &window.words[words_start..prepared.words_end];
            let keys = &window.keys[keys_start..prepared.keys_end];
            let encoded = &window.input[input_start..input_start + prepared.bytes];
            (words_start, keys_start) = (prepared.words_end, prepared.keys_end);
            input_start += prepared.bytes;
            let entry = prepared.entry.map(|entry| &shared.commands.entries()[entry]);
            let mark = reply.mark();
            let flow = self.run(shared, session, entry, words, keys, encoded, turn, reply);
            match flow {
                Flow::Postpone { until } => {
                    if session.is_pushed_to {
                        self.place_pushes(session, mark, reply);
                    }
                    outcome = (index, Flow::Stop(Next::Park { until }));
                    break;
                }
                Flow::Continue | Flow::Stop(_) => (session.is_shown, session.held_since) = (false, None),
            }
            session.commands += 1;
            if session.replies != Replies::On {
                session.settle_reply(mark, reply);
            }
            if session.is_pushed_to {
                self.follow_reply(session, entry, words, keys, mark, reply);
            }
            let reply_end = reply.len();
            let reply_len = reply_end - reply_bytes;
            reply_bytes = reply_end;
            let request_bytes = prepared.bytes + window.detached_bytes;
            if self.meter.is_due(request_bytes, reply_len) {
                self.measure(shared, session, words, request_bytes, reply_len);
            }
            last = (words, request_bytes);
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

    /// Leaves a command whose client is parked: it is counted and logged when it has been answered ([`Self::finish`]).
    #[cold]
    fn leave_unfinished(&mut self, session: &mut Session, request: &Request<'_>) {
        // A client that waits for keys, or for an offloaded command, has its words there.
        let are_kept = session.waiting.is_some() || session.offloaded.is_some();
        let words = if are_kept { &[] } else { request.words };
        session.unfinished = Some(Box::new(Unfinished {
            index: request.entry.index,
            words: words.iter().map(|word| Box::from(*word)).collect(),
            request_bytes: request.encoded.len() + self.worker.propagation.long_words.bytes(),
            nanoseconds: self.meter.set_aside(),
        }));
    }

    /// Counts a command that was left unfinished and has been answered, adding the time of its ending, and logs it if
    /// it is remarkable.
    #[cold]
    fn finish(&mut self, session: &mut Session, words: &[&[u8]], ending: &Finish<'_>) {
        let Some(unfinished) = session.unfinished.take() else { return };
        let Unfinished { index, words: own, request_bytes, nanoseconds } = *unfinished;
        let shared = Arc::clone(&self.shared);
        let own: Vec<&[u8]> = own.iter().map(|word| &**word).collect();
        let words = if own.is_empty() { words } else { &own };
        let measured = self.meter.count_alone(index, nanoseconds + ending.nanoseconds);
        let bytes = (request_bytes, ending.reply_bytes);
        self.log_measured(&shared, session, &measured, words, bytes, ending.event);
        if let Some(line) = ending.error {
            self.count_failure(&shared.commands.entries()[index], line);
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
        encoded: &[u8],
        turn: &mut Turn<'k>,
        reply: &mut ReplyBuffer,
    ) -> Flow {
        let found = entry;
        let entry = match resolve(&shared.commands, entry, words) {
            Ok(entry) => entry,
            Err(_) if entry.is_none() && is_http(words[0]) => {
                tracing::warn!(
                    "closing {}: it speaks HTTP, perhaps through a browser that was made to",
                    session.client
                );
                return Flow::Stop(Next::CloseNow);
            }
            Err(error) => {
                // A subcommand that does not exist has no entry.
                let exists =
                    |entry: &&Entry| !matches!(entry.command.run, Run::Container) || words.len() == 1;
                let entry = found.map(|entry| shared.commands.resolve(entry, words)).filter(exists);
                return self.refuse(session, entry, &error, turn.inside.as_ref(), reply);
            }
        };
        session.last_command = Some(entry.index);
        // The log knows no names but those of the table.
        let encoded = if entry.renamed.is_some() { &[] } else { encoded };
        let error = match self.admit(shared, session, entry, words, keys, turn) {
            Verdict::Run => {
                let request = Request { entry, words, keys, encoded };
                return self.perform(shared, session, request, None, turn, reply);
            }
            // Another thread carries its order out, which may be why it would be refused now.
            _ if session.awaits_order() => {
                let request = Request { entry, words, keys, encoded };
                return self.perform(shared, session, request, None, turn, reply);
            }
            Verdict::Queue => {
                let request = Request { entry, words, keys, encoded };
                let given = self.given(entry, words, session.next_database());
                let queue = session.queue.as_mut().expect("commands are queued while there is a queue");
                given.into_iter().for_each(|(database, bytes)| queue.give(database, bytes));
                queue.push(&shared.engine.keyspace, &request, &self.worker.propagation.long_words);
                if shared.cluster.is_on() {
                    queue.slots = queue.slots.join(slots_of(entry, words, keys));
                }
                reply.simple("QUEUED");
                return Flow::Continue;
            }
            Verdict::Park(wait) => return self.park(session, wait),
            Verdict::Redirect(error) => {
                return self.redirect(session, entry, &error, turn.inside.as_ref(), reply);
            }
            Verdict::Refuse(error) => {
                if error == READONLY && shared.cluster.was_just_demoted() {
                    self.refuse(session, Some(entry), &error, turn.inside.as_ref(), reply);
                    session.flags.set(ClientFlags::CLOSING, true);
                    return Flow::Stop(Next::CloseAfterReply);
                }
                error
            }
            Verdict::Deny(denial) => {
                let is_queueing = session.queue.is_some();
                let context = if is_queueing { Context::Multi } else { Context::TopLevel };
                self.deny(session, (entry, words), denial, context, session.next_database())
            }
        };
        self.refuse(session, Some(entry), &error, turn.inside.as_ref(), reply)
    }

    /// Runs one command of a transaction.
    pub(crate) fn run_queued<'k>(
        &mut self,
        shared: &'k Shared,
        session: &mut Session,
        QueuedRequest { request, transaction }: QueuedRequest<'_, 'k>,
        turn: &mut Turn<'k>,
        reply: &mut ReplyBuffer,
    ) -> Flow {
        if request.entry.command.flags.has(Flags::DENY_OOM) {
            // Eviction that has begun goes on: it only makes room.
            self.is_short_for(request.entry, request.words, session.database, turn.inside.as_ref());
        }
        let mark = reply.mark();
        let flow = self.perform(shared, session, request, Some(transaction), turn, reply);
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
        turn: &mut Turn<'k>,
        reply: &mut ReplyBuffer,
    ) -> Flow {
        let Request { entry, words, .. } = request;
        self.meter.begin(entry.index);
        let is_queued = transaction.is_some();
        if session.conditions.has(Check::Audit) {
            self.audit_command(session, entry, words);
        }
        let is_watched = shared.monitor.is_watched();
        if is_watched && !monitor::is_shown_afterwards(entry) {
            self.show(session, !is_queued, |database, origin| monitor::line(entry, words, database, origin));
        }
        let (mut flow, mut has_failed) = (Flow::Continue, false);
        let patterns = check_patterns(session, &AclRequest { entry, words, database: session.database });
        let result = match (entry.command.run.host(), transaction) {
            (None, _) if patterns.is_err() => patterns,
            (Some(handler), transaction) => {
                let Handler(handler) = handler.downcast_ref().expect("the server's own handlers");
                let mark = reply.mark();
                let mut args = Args::new(words, entry.name_words());
                let mut context = ServerContext {
                    executor: self,
                    session,
                    turn,
                    shared,
                    in_transaction: is_queued,
                    transaction,
                    flow: Flow::Continue,
                    has_failed: false,
                };
                let result = handler(&mut context, &mut args, reply);
                (flow, has_failed) = (context.flow, context.has_failed);
                // Nothing else changes what its client may do.
                self.refresh_conditions(shared, session);
                if result.is_err() {
                    reply.rewind(mark);
                }
                result
            }
            (None, None) => {
                self.saw_data.note();
                let (environment, worker) = (Environment::new(&self.policy, &self.caller), &mut self.worker);
                let (database, inside) = (session.database, &mut turn.inside);
                let result = shared.engine.execute(&request, database, environment, worker, inside, reply);
                self.send_served();
                match result {
                    Ok(Outcome::Done) => Ok(()),
                    Ok(Outcome::DoneAlone) => {
                        self.readmit(shared, session);
                        Ok(())
                    }
                    Ok(Outcome::Blocked(blocked)) => {
                        flow = self.wait(shared, session, &blocked);
                        Ok(())
                    }
                    Ok(Outcome::Offloaded(offloaded)) => {
                        flow = self.offload(session, entry, offloaded);
                        Ok(())
                    }
                    Ok(Outcome::Retry) => return self.hold(session),
                    Err(error) => Err(error),
                }
            }
            (None, Some(transaction)) => {
                let (environment, worker) = (Environment::new(&self.policy, &self.caller), &mut self.worker);
                let result = transaction.run(&request, session.database, environment, worker, reply);
                self.see(entry, words);
                result
            }
        };
        if let Err(mut error) = result {
            if error == CommandError::Busy {
                if !is_queued && !shared.running.is_busy() && !self.is_abandoned {
                    return self.wait_for_script(session);
                }
                error = shared.running.busy();
            }
            let line = error.line();
            session.note_failed_import(&line);
            if has_failed {
                self.count_failed(entry);
            } else {
                self.count_failure(entry, &line);
            }
            reply.error(&line);
        } else if has_failed {
            self.count_failed(entry);
        }
        if matches!(flow, Flow::Stop(Next::Park { .. } | Next::Await)) && !is_queued {
            self.leave_unfinished(session, &request);
        }
        if is_watched {
            if monitor::is_shown_afterwards(entry) {
                self.show(session, !is_queued, |database, origin| {
                    monitor::line(entry, words, database, origin)
                });
            }
            if !is_queued {
                // Lines that wait for their commands, of such as take no locks.
                self.worker.tell(self.caller.client);
            }
        }
        flow
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

    /// Wakes the thread `log` if this worker has recorded something since it last did.
    #[inline]
    fn wake_log(&mut self) {
        let recorded_to = self.worker.propagation.logged_to();
        if recorded_to != self.rung_at {
            self.rung_at = recorded_to;
            self.shared.durability.wake_log(recorded_to);
            self.shared.replication.note_recorded();
        }
    }

    /// Returns the worker's pause behind a slice of background work that would pause for so long: a longer one on an empty server
    /// whose clients have been silent for some rounds.
    fn rest(&mut self, pause: Duration) -> Duration {
        /// As long as the rates of INFO remember.
        const QUIET_ROUNDS: u32 = 16;
        let (shared, round) = (&self.shared, Duration::from_secs(1) / self.config.config().hz.max(1));
        let is_quiet = !std::mem::take(&mut self.has_served)
            && pause >= round / 2
            && shared.engine.keyspace.used_bytes() == 0
            && !shared.loading.is_active()
            && !shared.cluster.is_on();
        self.quiet_rounds = if is_quiet { self.quiet_rounds.saturating_add(1) } else { 0 };
        if self.quiet_rounds <= QUIET_ROUNDS {
            return pause;
        }
        shared.rest.begin();
        pause.max(REST)
    }

    /// Wakes the threads that rest.
    #[cold]
    fn end_rest(&self) {
        if self.shared.rest.end() {
            self.shared.maintenance.awake();
            self.shared.replication.feed.wake();
            self.queues.send_to_services(WorkerMessage::Awake);
        }
    }

    /// Publishes what a slice of background work has cost, and the thread's processor time so far.
    fn note_background(&self, expiry: Duration, out_of_time: bool) {
        let statistics = self.meter.statistics();
        statistics.expiry_us.add(expiry.as_micros() as u64);
        statistics.expiry_caps.add(u64::from(out_of_time));
        if expiry.as_millis() as u64 >= self.meter.thresholds().event_ms {
            let time_s = self.caller.now_ms / 1000;
            self.shared.stats.latency.record("expire-cycle", time_s, expiry.as_millis() as u64);
        }
        let used = ProcessorTime::of_thread();
        statistics.user_us.set(used.user.as_micros() as u64);
        statistics.system_us.set(used.system.as_micros() as u64);
    }
}

impl Executor {
    /// Drains its own worker ([`drain`]).
    #[inline]
    pub(crate) fn drain(&mut self) {
        drain(&mut self.worker, &self.shared.maintenance, &self.queues);
    }

    /// [`Self::drain`] between two commands of a batch: garbage waits for the end of the batch.
    #[inline]
    pub(crate) fn send_served(&mut self) {
        if !self.worker.served.is_empty() {
            send_served(&mut self.worker, &self.queues);
        }
    }
}

/// Sets the meaning of the keys' access stamps to what the configuration needs.
pub(crate) fn configure_access(engine: &Engine, config: &Config) {
    let ranking = eviction(config).map_or(Ranking::Recency, |eviction| eviction.order.ranking());
    engine.keyspace.access_clock().configure(ranking, config.lfu_log_factor, config.lfu_decay_time);
}
/// How a command ends that was left unfinished.
#[derive(Debug, Default)]
struct Finish<'r> {
    /// Time that it has taken since it was left, without that for which it has waited.
    nanoseconds: u64,
    reply_bytes: usize,
    /// The line of its reply, if that is an error.
    error: Option<&'r [u8]>,
    /// Its name in the latency monitor, unless that follows from the command.
    event: Option<&'static str>,
}

/// A handler of the server: what [`Run::Host`] holds in the rows of this crate.
pub(crate) struct Handler(
    pub(crate) fn(&mut ServerContext<'_, '_>, &mut Args<'_>, &mut ReplyBuffer) -> CommandResult,
);

/// The hold of a client's turn on the worker and the keyspace.
pub(crate) struct Turn<'k> {
    /// The pass through the gate; `None` if a transaction has closed it, or a script keeps all others out.
    pub(crate) inside: Option<Inside<'k>>,
    /// The worker's other clients; `None` if one of them is in the middle of its own turn.
    pub(crate) event_loop: Option<&'k mut EventLoop<Executor>>,
}

/// The context of the server's own commands.
pub(crate) struct ServerContext<'a, 'k> {
    pub(crate) executor: &'a mut Executor,
    pub(crate) session: &'a mut Session,
    pub(crate) shared: &'k Shared,
    pub(crate) turn: &'a mut Turn<'k>,
    /// Whether it runs among others: it can neither wait nor be presented again.
    pub(crate) in_transaction: bool,
    /// The transaction, for a command that runs commands itself.
    pub(crate) transaction: Option<&'a mut Transaction<'k>>,
    /// How the connection goes on.
    pub(crate) flow: Flow,
    /// Whether its reply is or has an error that has been counted already: one of a script's.
    pub(crate) has_failed: bool,
}

impl ServerContext<'_, '_> {
    /// Runs `work` outside the gate. Use it for work that may block on a thread that closes the gate.
    /// `None`, and nothing done, in a transaction that has closed the gate itself.
    pub(crate) fn outside_gate<R>(&mut self, work: impl FnOnce(&Shared) -> R) -> Option<R> {
        self.turn.inside.take()?;
        let result = work(self.shared);
        self.turn.inside = self.shared.engine.keyspace.enter_unless_long(self.executor.worker.id());
        Some(result)
    }
}

/// A command of a transaction.
pub(crate) struct QueuedRequest<'a, 'k> {
    pub(crate) request: Request<'a>,
    pub(crate) transaction: &'a mut Transaction<'k>,
}
