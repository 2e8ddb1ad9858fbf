//! The service that the network layer calls.

use std::{
    any::Any,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use dunlin_engine::{Caller, Environment, GrowingBlock, Notice};
use dunlin_net::{Client, Commitment, EventLoop, Identity, Next, Now, SeenReplies, Served, Service};
use dunlin_resp::{Decoded, ReplyBuffer};

use super::{
    Executor, Flow, Turn, WorkerMessage,
    seen::SawData,
    waiting::{BLOCKED_BY_SCRIPT_PAUSE, HOLD_MAX},
    window::WINDOW,
};
use crate::{
    audit::AuditOutcome,
    observe::key_samples,
    push::pubsub::unsubscribe_all,
    session::{ClientFlags, Replies, Session, tracking::Tracking},
    system::host::monotonic_ms,
    workers::blocked,
};

/// Pause before the next attempt to store what a command has computed apart, if there was no room.
const STORE_PAUSE: Duration = Duration::from_millis(1);

impl Executor {
    /// The server itself, at the time of this tick.
    fn server(&self) -> Caller {
        Caller {
            now_ms: self.now.unix_ms,
            access: self.shared.engine.keyspace.access_clock().access(self.now.unix_ms),
            visits_max: Some(self.shared.visits_max.load(Ordering::Relaxed)),
            broadcasts: self.shared.trackers.broadcasts(),
            waits_for_views: true,
            ..Caller::default()
        }
    }

    /// Makes the commands from here on run on behalf of a client, as its session says now.
    #[inline]
    pub(crate) fn act_for(&mut self, session: &Session) {
        let shared = &*self.shared;
        let may_wait = |since| self.now.instant.duration_since(since) < HOLD_MAX;
        let keep_expired =
            self.is_write_paused() || shared.durability.is_failing() || shared.replication.is_replica();
        self.caller = Caller {
            client: blocked::token(session.client.address),
            no_touch: session.flags.has(ClientFlags::NO_TOUCH) | self.policy.stamps_changes,
            tracks: session.tracking.as_deref().is_some_and(Tracking::tracks_next),
            broadcasts: shared.trackers.broadcasts(),
            waits_for_views: session.held_since.is_none_or(may_wait),
            admission: Some(shared.engine.log.admissions()),
            keep_expired,
            ..self.caller
        };
        let imports = session.import.is_some();
        if imports != self.caller.follows_primary {
            self.follow_import(imports);
        }
    }

    /// Marks the commands from here on as another primary's, to which keys have expired or not, or as a client's own.
    #[cold]
    fn follow_import(&mut self, imports: bool) {
        let now_ms = self.now.unix_ms;
        self.caller = Caller {
            now_ms: if imports { 0 } else { now_ms },
            replaying_at_ms: if imports { now_ms } else { 0 },
            follows_primary: imports,
            deny_blocking: imports,
            ..self.caller
        };
    }
}

impl Service for Executor {
    type Session = Session;
    type Message = WorkerMessage;

    fn open(&mut self, client: &Arc<Client>) -> Session {
        let mut session = Session::new(client, &self.shared.access);
        self.audit_connection(&session, AuditOutcome::Opened);
        // A certificate is known after the handshake.
        if !client.is_tls {
            self.identify(&mut session);
        }
        session
    }

    fn identify(&mut self, session: &mut Session, identity: &Identity) {
        self.identify_certificate(session, identity);
    }

    #[inline]
    fn is_stranger(&self, session: &Session) -> bool {
        Executor::is_stranger(self, session)
    }

    #[inline]
    fn arriving<'s>(&mut self, session: &'s mut Session) -> Option<&'s mut GrowingBlock> {
        session.arrivals.as_mut()?.arriving.as_mut()
    }

    fn has_arrived(&mut self, session: &mut Session) {
        Self::complete_long_word(session);
    }

    #[inline]
    fn detached_bytes(&self, session: &Session) -> usize {
        session.arrivals.as_ref().map_or(0, |arrivals| arrivals.bytes())
    }

    fn tick(&mut self, now: Now) {
        self.now = now;
        self.refresh_config();
        if self.shared.cluster.is_on() && self.topology.refresh(&self.shared.cluster) {
            self.follow_topology();
        }
        self.caller = self.server();
        self.ticks_to_sample =
            self.ticks_to_sample.checked_sub(1).unwrap_or(key_samples::TICKS_PER_SAMPLE - 1);
        let (session, changes) = &self.hot_keys;
        if *changes != self.shared.hot_keys.changes()
            || session.as_ref().is_some_and(|session| !session.is_active(now.instant))
        {
            self.refresh_hot_keys();
        }
        if self.shared.engine.keyspace.pool().is_low() {
            self.shared.maintenance.warm_up();
        }
    }

    fn serve(
        &mut self,
        session: &mut Session,
        input: &[u8],
        reply: &mut ReplyBuffer,
        event_loop: Option<&mut EventLoop<Self>>,
    ) -> Served {
        if session.client.is_killed() {
            return Served { consumed: input.len(), next: Next::CloseNow, wanted: 0, detached: 0 };
        }
        reply.set_protocol(session.protocol);
        session.flags.set(ClientFlags::BLOCKED, false);
        self.has_served = true;
        if self.shared.rest.is_on() {
            self.end_rest();
        }
        self.saw_data = SawData::default();
        // Nested polling serves others while this one is at it.
        let outer_term = self.term.replace(0);
        let shared = Arc::clone(&self.shared);
        if let Some(replica) = &session.replica {
            replica.peer().hear(monotonic_ms());
        }
        session.notes_seen = self.keeps_marks;
        session.is_pushed_to = session.client.pushes.get().is_some() | self.keeps_marks;
        if session.is_pushed_to {
            self.pushed_to.clear();
            self.begin_seen();
            if session.client.pushes.get().is_some() {
                self.follow(session);
            }
        }
        let mut turn = Turn { inside: None, event_loop };
        if turn.event_loop.is_some() {
            turn.inside = shared.engine.keyspace.enter_unless_long(self.worker.id());
            session.as_replica = shared.replication.is_replica();
            self.act_for(session);
        }
        let mut batch = std::mem::take(&mut self.batch);
        let mut window = std::mem::take(&mut self.window);
        let (mut position, mut consumed) = (0, 0);
        let served = loop {
            batch.clear();
            let limits = self.limits(session);
            // A stranger's first bytes decide how the rest is to be read.
            let depth = if limits.authenticated { WINDOW } else { 1 };
            let decoded = session.decoder.decode(input, &mut position, &mut batch, &limits, depth);
            let mut current = window.recycle();
            Self::prepare(
                &shared,
                turn.inside.as_ref(),
                &batch,
                input,
                consumed,
                session.database,
                &mut current,
            );
            let outer_words =
                batch.has_detached().then(|| self.lend_long_words(&shared, session, &mut current));
            let (run, flow) = self.run_window(&shared, session, &current, &mut turn, reply);
            window = current.recycle();
            if run > 0 {
                consumed = batch.input_end(run - 1);
            }
            if let Some(outer_words) = outer_words {
                // Nothing but the words themselves is to hold them: a command that changes a string would find its
                // chunks shared.
                batch.clear();
                self.end_loan(session, outer_words, run > 0);
            }
            if let Flow::Stop(next) = flow {
                session.decoder.restart();
                break Served { consumed, next, wanted: 0, detached: 0 };
            }
            match decoded {
                Ok(Decoded::Full) => {}
                Ok(Decoded::Incomplete { wanted }) => {
                    let detached = match wanted {
                        0 => 0,
                        _ => Self::detach_long_word(session, &input[position..], &limits),
                    };
                    let wanted = if detached > 0 { 0 } else { wanted };
                    break Served { consumed: position, next: Next::Read, wanted, detached };
                }
                Err(error) => {
                    let line = format!("ERR {error}");
                    self.count_rejection(None, line.as_bytes());
                    if session.replies == Replies::On {
                        reply.error(line);
                    }
                    let consumed = input.len();
                    break Served { consumed, next: Next::CloseAfterReply, wanted: 0, detached: 0 };
                }
            }
        };
        drop(turn);
        debug_assert!(self.worker.notices.iter().all(|notice| matches!(notice, Notice::Client(_))));
        self.worker.notices.clear();
        self.withhold_to = self.commitment(session);
        if self.withhold_to.mark > 0 && session.notes_seen {
            self.withhold_to = self.commitment_of_seen(session, reply);
        }
        session.has_term = self.term.get() != 0;
        self.term.set(outer_term);
        self.note_seen(session);
        session.publish();
        self.drain();
        self.batch = batch;
        self.window = window;
        served
    }

    fn resume(&mut self, session: &mut Session, reply: &mut ReplyBuffer) -> Next {
        self.withhold_to = Commitment::default();
        if session.waiting.is_some() {
            if self.shared.cluster.is_on()
                && let Some(next) = self.follow_slots(session, reply)
            {
                return next;
            }
            return match session.waits_until {
                Some(until) if until <= self.now.instant => self.withdraw(session, reply),
                _ => self.look_again(session),
            };
        }
        if session.durability.is_some() {
            return self.end_durability_wait(session, reply);
        }
        self.wake(session, reply);
        Next::Read
    }

    fn deliver(
        &mut self,
        session: &mut Session,
        message: WorkerMessage,
        reply: &mut ReplyBuffer,
    ) -> Option<Next> {
        // The reply to an unblocked client exposes another client's write.
        let saw_data = match &message {
            // That a wait is over because of the role shows nothing, and leaves whatever term is over with it.
            WorkerMessage::Unblocked(unblocked) => !unblocked.closes,
            WorkerMessage::Finished(_) => true,
            _ => false,
        };
        self.saw_data = SawData::of(saw_data);
        session.notes_seen = false;
        if saw_data {
            // Another worker may have recorded the change that the answer shows, and WAIT has to wait for that.
            session.served_to = self.shared.durability.tail();
        }
        // A command that a replica let in has no term, and its answer needs no lease.
        let term = if session.has_term { self.shared.cluster.lease.last_term() } else { 0 };
        let outer_term = self.term.replace(term);
        self.withhold_to = match &message {
            WorkerMessage::Finished(finished) => {
                let mark = self.seen_apart(session, finished).min(self.shared.durability.tail());
                self.commitment_to(session, mark)
            }
            _ => self.commitment(session),
        };
        self.term.set(outer_term);
        self.note_seen(session);
        match message {
            WorkerMessage::Unpaused | WorkerMessage::HasRoom => {
                // From now on it is to be told again.
                session.waits_for_room &= matches!(message, WorkerMessage::Unpaused);
                let is_waiting =
                    session.waiting.is_some() || session.durability.is_some() || session.offloaded.is_some();
                let is_held = session.flags.has(ClientFlags::BLOCKED) && !is_waiting;
                is_held.then_some(Next::Again)
            }
            WorkerMessage::Unblocked(unblocked) if unblocked.closes => {
                Some(self.stop_demoted(session, reply, &unblocked))
            }
            WorkerMessage::Unblocked(unblocked) if session.durability.is_some() => {
                Some(self.stop_durability_wait(session, reply, &unblocked))
            }
            WorkerMessage::Unblocked(unblocked) => {
                // The client may have been served before it was told of its wait (`WorkerMessage::Waits`).
                session.waiting = session.waiting.take().or_else(|| Some(session.offloaded.take()?.is_heard));
                Some(self.stop_waiting(session, reply, &unblocked))
            }
            WorkerMessage::Waits { timeout, nanoseconds } => {
                self.wait_after_all(session, timeout, nanoseconds)
            }
            WorkerMessage::SlotsMoved => self.follow_slots(session, reply),
            WorkerMessage::Sooner => session.waiting.map(|_| Next::Park { until: self.next_look(session) }),
            WorkerMessage::Finished(finished) => {
                let next = self.finish_offload(session, &finished, reply);
                if finished.words.iter().any(|word| word.long().is_some()) {
                    self.worker.garbage.push_other(Box::new(finished));
                    self.drain();
                }
                Some(next)
            }
            WorkerMessage::Durable => {
                let (wanted, _) = session.durability?;
                self.is_fulfilled(&wanted).then(|| self.end_durability_wait(session, reply))
            }
            WorkerMessage::HeldUp
            | WorkerMessage::Awake
            | WorkerMessage::BlockedByScript(_)
            | WorkerMessage::Computed(_)
            | WorkerMessage::Migrated(_) => None,
        }
    }

    fn owes_reply(&self, session: &Session) -> bool {
        session.offloaded.is_some_and(|offloaded| offloaded.is_decided)
    }

    fn receive(&mut self, message: WorkerMessage) {
        match message {
            // Waking up is all that a released reply needs.
            WorkerMessage::Durable => self.tell_durable(),
            WorkerMessage::HasRoom => self.room_waits.tell(&self.queues),
            WorkerMessage::Awake => (self.is_awake, self.quiet_rounds) = (true, 0),
            WorkerMessage::BlockedByScript(keys) => self.worker.add_blocked_by_script(&keys),
            WorkerMessage::Unpaused
            | WorkerMessage::HeldUp
            | WorkerMessage::Unblocked(_)
            | WorkerMessage::Waits { .. }
            | WorkerMessage::Sooner
            | WorkerMessage::SlotsMoved
            | WorkerMessage::Finished(_) => {}
            WorkerMessage::Computed(result) => {
                let result = result.lock().unwrap_or_else(PoisonError::into_inner).take();
                result.into_iter().for_each(|result| self.store_computed(result));
            }
            WorkerMessage::Migrated(migration) => {
                let migration = migration.lock().unwrap_or_else(PoisonError::into_inner).take();
                migration.into_iter().for_each(|migration| self.settle_migration(migration));
            }
        }
    }

    fn discard(&mut self, garbage: Box<dyn Any + Send>) {
        self.worker.garbage.push_other(garbage);
        self.drain();
    }

    fn close(&mut self, mut session: Session) {
        self.audit_connection(&session, AuditOutcome::Closed);
        self.give_up_arrivals(&mut session);
        if let Some(queue) = session.queue.take() {
            self.recycle_queue(queue);
        }
        if session.durability.is_some() {
            self.durability_waits.retain(|(_, address)| *address != session.client.address);
            self.shared.blocked.end_durability(session.client.address);
            self.shared.replication.end_ack_wait(session.client.address);
        }
        if let Some(replica) = session.replica.take() {
            self.shared.replication.leave(&replica);
        }
        if session.waits_for_room {
            self.room_waits.remove(session.client.address);
        }
        unsubscribe_all(&self.shared.exchange, &mut session);
        self.stop_monitoring(&mut session);
        self.stop_tracking(&mut session);
        if session.has_tracked {
            self.shared.trackers.depart(session.client.id());
        }
        // A client whose command is offloaded may wait already, and not know it yet.
        let may_wait = session.waiting.is_some() || session.offloaded.is_some();
        if session.watching.is_some() || may_wait {
            let shared = Arc::clone(&self.shared);
            let inside = self.pass(&shared.engine.keyspace);
            self.unwatch(&mut session, inside.as_ref());
            if may_wait {
                self.shared.blocked.cancel_wait(session.client.address);
                self.gone_clients.push(session.client.address);
            }
            if let Some(inside) = &inside {
                self.cancel_waits(inside);
            }
        }
    }

    fn may_receive_nested(&self, message: &WorkerMessage) -> bool {
        Self::may_receive(message)
    }

    fn withhold_to(&self) -> Commitment {
        self.withhold_to
    }

    fn take_seen(&mut self) -> SeenReplies {
        self.take_seen_replies()
    }

    fn take_pushed_to(&mut self) -> Vec<Commitment> {
        std::mem::take(&mut self.pushed_to)
    }

    fn released(&self, level: u8) -> u64 {
        self.level_released(level)
    }

    fn await_release(&mut self, commitment: Commitment) -> bool {
        self.await_commitment(commitment)
    }

    fn has_lost(&self, commitment: Commitment) -> bool {
        self.has_lost_commitment(commitment)
    }

    fn refusal(&self, commitment: Commitment) -> Option<Vec<u8>> {
        self.refusal_of(commitment).map(|error| {
            let mut reply = ReplyBuffer::default();
            reply.error(error.line());
            reply.into_bytes()
        })
    }

    fn end_tick(&mut self) {
        if !self.result.is_empty() {
            self.store_postponed();
        }
        if !self.sent_keys.is_empty() {
            self.settle_postponed();
        }
        self.wake_log();
    }

    fn has_background(&self) -> bool {
        self.is_awake
    }

    fn background(&mut self, now: Now) -> Duration {
        self.is_awake = false;
        let started = Instant::now();
        self.caller = self.server();
        if self.is_abandoned {
            return Duration::from_secs(1) / self.config.config().hz;
        }
        if !self.unwatched.is_empty() || !self.gone_clients.is_empty() || self.worker.has_blocked_by_script()
        {
            self.clear_away();
        }
        self.limit_tracked();
        let config = self.config.config();
        let pause = if self.shared.active_expire.load(Ordering::Relaxed) {
            self.expiry.run(
                &self.shared,
                &mut self.worker,
                Environment::new(&self.policy, &self.caller),
                config,
                now,
            )
        } else {
            Duration::from_secs(1) / config.hz
        };
        self.wake_log();
        self.note_background(started.elapsed(), pause.is_zero());
        let pause = pause.min(self.collect_garbage()).min(self.tend_memory()).min(self.forget_departed());
        self.wake_log();
        self.drain();
        let pause =
            if self.worker.has_blocked_by_script() { pause.min(BLOCKED_BY_SCRIPT_PAUSE) } else { pause };
        let is_settled = self.result.is_empty() && self.sent_keys.is_empty();
        let pause = if is_settled { pause } else { pause.min(STORE_PAUSE) };
        self.rest(pause)
    }
}
