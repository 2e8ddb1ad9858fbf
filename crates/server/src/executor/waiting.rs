//! Clients that wait: for keys, for views to end, for room in queues to the disk, for the log to be durable.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use dunlin_engine::{Blocked, Environment, keyspace::Inside};
use dunlin_net::{Address, Next, WorkerQueues};
use dunlin_resp::ReplyBuffer;

use super::{Executor, Finish, Flow};
use crate::{
    admission::Wait,
    replication::AckWait,
    replicator::redirection,
    session::{ClientFlags, DurabilityWait, IsHeard, Replies, Session},
    shared::Shared,
    workers::{
        WorkerMessage,
        blocked::{self, Ending, Unblocked, error_line},
    },
};

/// The answer to a WAITAOF that asks for a log which is off.
pub(crate) const WITHOUT_LOG: &str =
    "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";

/// The pause after which a command is presented again that has met a view of a value that it may change.
const HOLD_PAUSE: Duration = Duration::from_millis(1);

/// When a wait is looked at again that has ended, or could be served, while a script holds its keys.
pub(super) const BLOCKED_BY_SCRIPT_PAUSE: Duration = Duration::from_millis(10);

/// How long it waits for views to end: then it copies what they share. Views may come faster than they go.
pub(super) const HOLD_MAX: Duration = Duration::from_secs(10);

/// Clients of a worker whose commands wait for room in the log, or in the queue of a snapshot: the thread that makes
/// room tells the worker, and the worker the waiting clients. Each is here once, however often it has been refused.
#[derive(Debug, Default)]
pub(super) struct RoomWaits(Vec<Address>);

impl RoomWaits {
    /// Notes a client that is to be told, unless it is noted already.
    fn add(&mut self, client: Address, is_here: &mut bool) {
        if !std::mem::replace(is_here, true) {
            self.0.push(client);
        }
    }

    /// A client has gone.
    pub(super) fn remove(&mut self, client: Address) {
        self.0.retain(|waiting| *waiting != client);
    }

    /// Tells all of them, in the order in which they came.
    pub(super) fn tell(&mut self, queues: &WorkerQueues<WorkerMessage>) {
        self.0.drain(..).for_each(|client| queues.send(client, WorkerMessage::HasRoom));
    }
}

impl<'r> Finish<'r> {
    /// The ending of a command that has waited.
    fn of(unblocked: &'r Unblocked) -> Self {
        let Unblocked { reply, nanoseconds, .. } = unblocked;
        Self {
            nanoseconds: *nanoseconds,
            reply_bytes: reply.len(),
            error: error_line(reply),
            event: Some("command-unblocking"),
        }
    }
}

impl Executor {
    /// Parks a client whose command waits for a key.
    #[cold]
    pub(super) fn wait(&mut self, shared: &Shared, session: &mut Session, blocked: &Blocked) -> Flow {
        shared.blocked.enter(&session.client, &blocked.waiter);
        session.waiting = Some(IsHeard(session.replies == Replies::On));
        session.flags.set(ClientFlags::BLOCKED, true);
        let timeout = blocked.timeout_ms.map(|timeout_ms| Duration::from_millis(timeout_ms.get()));
        // A moment beyond the clock is never.
        session.waits_until = timeout.and_then(|timeout| self.now.instant.checked_add(timeout));
        Flow::Stop(Next::Park { until: self.next_look(session) })
    }

    /// When a client that waits is to be looked at next: when its time is over, or what it waits for comes of age.
    pub(super) fn next_look(&self, session: &Session) -> Option<Instant> {
        let waiter = self.shared.blocked.waiter(session.client.address);
        let left_ms = waiter
            .and_then(|waiter| waiter.again_ms())
            .map(|again_ms| again_ms.saturating_sub(self.now.unix_ms));
        let again = left_ms.and_then(|left_ms| self.now.instant.checked_add(Duration::from_millis(left_ms)));
        session.waits_until.into_iter().chain(again).min()
    }

    /// Looks whether what a client waits for has come of age. If it has, the reply is on its way.
    #[cold]
    pub(super) fn look_again(&mut self, session: &Session) -> Next {
        let shared = Arc::clone(&self.shared);
        let is_due = |again_ms| again_ms <= self.now.unix_ms;
        let waiter = shared.blocked.waiter(session.client.address);
        if let Some(waiter) = waiter.filter(|waiter| waiter.again_ms().is_some_and(is_due))
            && shared.durability.may_expire()
            && !shared.engine.keyspace.snapshots().is_congested()
            && let Some(inside) = self.pass(&shared.engine.keyspace)
            // Inside the gate: a change of roles, or a failover, closes it behind these.
            && !shared.replication.is_replica()
            && !self.is_write_paused()
        {
            self.act_for(session);
            shared.engine.look_again(&waiter, Environment::new(&self.policy, &self.caller), &mut self.worker);
            drop(inside);
            self.drain();
            self.wake_log();
        }
        // If it could not be served, or not be looked at, it is not due again at once.
        let later =
            |next| if next > self.now.instant { next } else { self.now.instant + BLOCKED_BY_SCRIPT_PAUSE };
        Next::Park { until: self.next_look(session).map(later) }
    }

    /// Whether clients' writes are paused, with all others or not.
    pub(super) fn is_write_paused(&self) -> bool {
        let pause = &self.shared.pause;
        pause.is_set() && pause.in_force(self.now.instant).is_some()
    }

    /// Goes on with a client whose command has waited for keys, and answers it.
    pub(super) fn stop_waiting(
        &mut self,
        session: &mut Session,
        reply: &mut ReplyBuffer,
        unblocked: &Unblocked,
    ) -> Next {
        let waiter = self.shared.blocked.leave(session.client.address);
        session.flags.set(ClientFlags::BLOCKED, false);
        session.publish();
        let words: Vec<&[u8]> = waiter.iter().flat_map(|waiter| waiter.words()).collect();
        self.finish(session, &words, &Finish::of(unblocked));
        if session.waiting.take() == Some(IsHeard(true)) {
            reply.set_protocol(session.protocol);
            reply.raw(&unblocked.reply);
        }
        Next::Read
    }

    /// Ends the wait of a client whose server has become a replica, and its connection. A client that takes redirections is sent to
    /// the primary instead; WAIT and WAITAOF are about what was written here.
    #[cold]
    pub(super) fn stop_demoted(
        &mut self,
        session: &mut Session,
        reply: &mut ReplyBuffer,
        unblocked: &Unblocked,
    ) -> Next {
        if session.durability.is_some() {
            self.stop_durability_wait(session, reply, unblocked);
        } else {
            // The command may have been offloaded before it waited.
            session.waiting = session.waiting.take().or_else(|| Some(session.offloaded.take()?.is_heard));
            let redirected = session.flags.has(ClientFlags::CAN_REDIRECT).then(|| {
                let error = redirection(&self.shared)?;
                Some(Unblocked::with(blocked::encode(session.protocol, |reply| reply.error(error.line()))))
            });
            if let Some(redirected) = redirected.flatten() {
                return self.stop_waiting(session, reply, &redirected);
            }
            self.stop_waiting(session, reply, unblocked);
        }
        session.flags.set(ClientFlags::CLOSING, true);
        Next::CloseAfterReply
    }

    /// Ends a client's wait for keys. If it was served at the last moment, the reply is on its way; if a script holds
    /// the keys, it waits longer.
    pub(super) fn withdraw(&mut self, session: &mut Session, reply: &mut ReplyBuffer) -> Next {
        let shared = Arc::clone(&self.shared);
        let inside = self.pass(&shared.engine.keyspace);
        let ended = inside.map(|_| shared.blocked.end(&shared.engine, session.client.address));
        match ended {
            Some(Ok(Some(waiter))) => self.stop_waiting(session, reply, &Ending::Timeout.encode(&waiter)),
            Some(Ok(None)) => Next::Park { until: None },
            None | Some(Err(_)) => {
                Next::Park { until: self.now.instant.checked_add(BLOCKED_BY_SCRIPT_PAUSE) }
            }
        }
    }

    /// Ends the waits of clients that are gone.
    pub(super) fn cancel_waits(&mut self, _: &Inside<'_>) {
        let shared = &self.shared;
        self.gone_clients.retain(|client| {
            let ended = shared.blocked.end(&shared.engine, *client);
            if ended.is_ok() {
                shared.blocked.leave(*client);
            }
            ended.is_err()
        });
    }

    /// Presents a command again: a view exists of what it may change.
    #[cold]
    pub(crate) fn hold(&mut self, session: &mut Session) -> Flow {
        self.meter.take_back();
        session.held_since.get_or_insert(self.now.instant);
        Flow::Postpone { until: self.now.instant.checked_add(HOLD_PAUSE) }
    }

    /// For how long a command that a script keeps out is put aside, before it is presented again.
    pub(super) fn script_pause(&self) -> Wait {
        Wait::Pause(self.now.instant.checked_add(BLOCKED_BY_SCRIPT_PAUSE))
    }

    /// Puts a client's command aside that has come upon a lock which a script holds.
    #[cold]
    pub(super) fn wait_for_script(&mut self, session: &mut Session) -> Flow {
        self.meter.take_back();
        self.park(session, self.script_pause())
    }

    /// Parks a client whose command changes something that there is no room to record or to copy.
    #[cold]
    pub(super) fn wait_for_room(&mut self, session: &mut Session) -> Flow {
        self.room_waits.add(session.client.address, &mut session.waits_for_room);
        session.flags.set(ClientFlags::BLOCKED, true);
        Flow::Postpone { until: None }
    }

    /// Whether all that is wanted is there.
    pub(crate) fn is_fulfilled(&self, wanted: &DurabilityWait) -> bool {
        let confirmed = || self.shared.replication.acknowledged(wanted.mark, wanted.counts_local);
        (wanted.replicas == 0 || confirmed() >= wanted.replicas)
            && (!wanted.local || self.shared.durability.is_on_disk(wanted.mark))
    }

    /// Answers how many have what was wanted.
    pub(crate) fn answer_durability(&self, wanted: &DurabilityWait, reply: &mut ReplyBuffer) {
        let confirmed = self.shared.replication.acknowledged(wanted.mark, wanted.counts_local) as i64;
        if !wanted.counts_local {
            return reply.integer(confirmed);
        }
        let durability = &self.shared.durability;
        if wanted.local && durability.is_off() {
            // The log was turned off meanwhile.
            return reply.error(WITHOUT_LOG);
        }
        let local = !durability.is_off() && durability.is_on_disk(wanted.mark);
        reply.array(2);
        reply.integer(local.into());
        reply.integer(confirmed);
    }

    /// Lets a client wait; it has been parked.
    pub(crate) fn await_durability(&mut self, session: &mut Session, wanted: DurabilityWait) {
        session.durability = Some((wanted, IsHeard(session.replies == Replies::On)));
        session.flags.set(ClientFlags::BLOCKED, true);
        self.shared.blocked.enter_durability(session.client.address, wanted);
        if wanted.local {
            self.durability_waits.push((wanted.mark, session.client.address));
            // The log may have come to the mark meanwhile.
            self.tell_durable();
        }
        if wanted.replicas > 0 {
            let DurabilityWait { mark, replicas, counts_local, .. } = wanted;
            let client = session.client.address;
            self.shared.replication.await_acks(AckWait { mark, replicas, fsynced: counts_local, client });
            // Replicas may have acknowledged it meanwhile.
            self.shared.replication.note_acknowledged(&self.shared.durability, self.config.config());
        }
    }

    /// Tells the clients whose mark the log has come to, and makes sure that the worker learns of the
    /// next one.
    pub(super) fn tell_durable(&mut self) {
        while let Some(next) = self.durability_waits.iter().map(|(mark, _)| *mark).min()
            && !self.shared.durability.await_sync(self.worker.id(), next)
        {
            let (durability, queues) = (&self.shared.durability, &self.queues);
            self.durability_waits.retain(|(mark, address)| {
                let is_on_disk = durability.is_on_disk(*mark);
                if is_on_disk {
                    queues.send(*address, WorkerMessage::Durable);
                }
                !is_on_disk
            });
        }
    }

    /// Ends a client's wait for the disk or for replicas, unless another thread has ended it, whose reply is on its
    /// way.
    pub(super) fn end_durability_wait(&mut self, session: &mut Session, reply: &mut ReplyBuffer) -> Next {
        match self.shared.blocked.end_durability(session.client.address) {
            Some(wanted) => {
                let answer = |reply: &mut ReplyBuffer| self.answer_durability(&wanted, reply);
                let unblocked = Unblocked::with(blocked::encode(session.protocol, answer));
                self.stop_durability_wait(session, reply, &unblocked)
            }
            None => Next::Park { until: None },
        }
    }

    /// Goes on with a client whose wait for the disk or for replicas has ended, and answers it.
    pub(super) fn stop_durability_wait(
        &mut self,
        session: &mut Session,
        reply: &mut ReplyBuffer,
        unblocked: &Unblocked,
    ) -> Next {
        session.flags.set(ClientFlags::BLOCKED, false);
        session.publish();
        self.durability_waits.retain(|(_, address)| *address != session.client.address);
        self.shared.replication.end_ack_wait(session.client.address);
        self.finish(session, &[], &Finish::of(unblocked));
        if let Some((_, IsHeard(true))) = session.durability.take() {
            reply.set_protocol(session.protocol);
            reply.raw(&unblocked.reply);
        }
        Next::Again
    }

    /// Goes on with a client whose command has slept, and answers it.
    pub(super) fn wake(&mut self, session: &mut Session, reply: &mut ReplyBuffer) {
        let Some((since, is_heard)) = session.asleep.take() else { return };
        let mark = reply.mark();
        if is_heard == IsHeard(true) {
            reply.set_protocol(session.protocol);
            reply.ok();
        }
        let (nanoseconds, reply_bytes) = (since.elapsed().as_nanos() as u64, reply.bytes_since(mark));
        self.finish(session, &[], &Finish { nanoseconds, reply_bytes, ..Finish::default() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_net::{TestQueues, To};

    /// Three of many clients are refused, one of them over and over, and one hangs up: two are told, once.
    #[test]
    fn room_is_told_of_to_those_who_wait_for_it() {
        let (queues, messages) = TestQueues::of_workers(1);
        let client = |slot| Address { id: 100 + u64::from(slot), worker: 0, slot };
        let (mut waits, mut is_here) = (RoomWaits::default(), [false; 50]);
        for slot in [7, 3, 30, 7, 7] {
            waits.add(client(slot), &mut is_here[slot as usize]);
        }
        waits.remove(client(3));
        waits.tell(&queues);
        assert_eq!(messages.recipients(0), [To::Client(client(7)), To::Client(client(30))]);
        waits.tell(&queues);
        assert_eq!(messages.recipients(0), [], "who was told waits no longer");
        waits.add(client(3), &mut false);
        waits.tell(&queues);
        assert_eq!(messages.recipients(0), [To::Client(client(3))]);
    }
}
