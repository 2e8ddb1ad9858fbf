//! Commands that are offloaded: handed out, stored, answered.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use dunlin_engine::{
    Caller, Environment, LongWords, Offloaded, Outcome, OwnedWord, Request,
    command::{CommandError, Entry},
};
use dunlin_net::Next;
use dunlin_resp::ReplyBuffer;

use super::{
    Executor, Finish, Flow,
    admission::{StoreFacts, storage_conditions},
};
use crate::{
    admission::{Verdict, decide},
    session::{ClientFlags, IsHeard, OffloadedCommand, Replies, Session},
    workers::{
        WorkerMessage,
        blocked::{self, error_line},
        offload::{Finished, Job, OffloadedResult},
    },
};

impl Executor {
    /// Offloads a command; its client waits for the reply.
    #[cold]
    pub(crate) fn offload(&self, session: &mut Session, entry: &Entry, offloaded: Box<Offloaded>) -> Flow {
        let is_heard = IsHeard(session.replies == Replies::On);
        session.offloaded = Some(OffloadedCommand { is_heard, is_decided: offloaded.is_decided() });
        let (caller, client) = (Arc::downgrade(&session.client), session.client.address);
        let queues = self.queues.clone();
        self.shared.offload.run(Job { offloaded, caller, index: entry.index, client, queues, rounds: 0 });
        Flow::Stop(Next::Await)
    }

    /// Stores what a command has computed apart from the worker.
    pub(super) fn store_computed(&mut self, result: OffloadedResult) {
        /// How often it is computed anew because its keys have changed, before that is done where it stands.
        const ROUNDS_MAX: u32 = 3;
        let shared = Arc::clone(&self.shared);
        let entry = &shared.commands.entries()[result.index];
        // A failover counts on nothing being written while it pauses writes, nor afterwards by a server that is
        // not a primary. The failover closes the gate after its pause, so this is asked inside.
        let mut inside = self.pass(&shared.engine.keyspace);
        let conditions = storage_conditions(&shared, self.config.config());
        let mut facts = StoreFacts { shared: &shared, now: self.now.instant };
        let (admission, is_parked) = match decide(conditions, entry, &mut facts) {
            Verdict::Park(_) => (Ok(()), true),
            Verdict::Refuse(error) | Verdict::Redirect(error) => (Err(error), false),
            Verdict::Run | Verdict::Queue | Verdict::Deny(_) => (Ok(()), false),
        };
        let is_parked = is_parked || {
            let texts: Vec<&[u8]> = result.computed.words.iter().map(|word| &**word).collect();
            self.is_computed_parked(&shared, entry, &texts)
        };
        // The result waits if the log or a snapshot is behind, or a script has closed the gate for long, or may hold
        // the keys.
        let waits = shared.engine.keyspace.is_held_for_long() && !shared.running.is_busy();
        if is_parked || waits || inside.is_none() {
            return self.result.push(result);
        }
        let OffloadedResult { mut computed, index, client, nanoseconds, rounds } = result;
        let words = std::mem::take(&mut computed.words);
        let (database, protocol) = (computed.database, computed.protocol);
        let texts: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
        let request = Request { entry, words: &texts, keys: &[], encoded: &[] };
        let mut reply = ReplyBuffer::default();
        reply.set_protocol(protocol);
        let connected = self.clients.find(client.id).filter(|client| !client.is_killed());
        let is_tls = connected.as_ref().is_some_and(|client| client.is_tls);
        // Its slot may have left this node since it began.
        let admission = admission.and_then(|()| self.route_computed(&shared, entry, &texts, is_tls));
        let caller = Caller {
            client: blocked::token(client),
            // Its own view is among those that there are.
            waits_for_views: false,
            admission: Some(shared.engine.log.admissions()),
            // A client that has gone waits for nothing.
            deny_blocking: connected.is_none(),
            visits_max: self.caller.visits_max.filter(|_| rounds < ROUNDS_MAX),
            broadcasts: shared.trackers.broadcasts(),
            tracks: false,
            ..self.caller
        };
        self.worker.propagation.long_words = words.iter().filter_map(OwnedWord::long).cloned().collect();
        let (environment, worker) = (Environment::new(&self.policy, &caller), &mut self.worker);
        let result = admission.and_then(|()| {
            let (engine, computed, inside) = (&shared.engine, Box::new(computed), &mut inside);
            engine.execute_computed(computed, &request, database, environment, worker, inside, &mut reply)
        });
        drop(inside);
        self.worker.propagation.long_words = LongWords::default();
        self.drain();
        match result {
            Ok(Outcome::Done | Outcome::DoneAlone) => {}
            Ok(Outcome::Offloaded(offloaded)) => {
                let (queues, rounds) = (self.queues.clone(), rounds + 1);
                // A command that stores something goes on when its client has gone.
                return shared.offload.run(Job {
                    offloaded,
                    caller: Weak::new(),
                    index,
                    client,
                    queues,
                    rounds,
                });
            }
            Ok(Outcome::Blocked(blocked)) => {
                // Others have taken what it was to get: now it waits.
                let connected = connected.expect("a client that has gone may not wait");
                shared.blocked.enter(&connected, &blocked.waiter);
                let timeout = blocked.timeout_ms.map(|timeout_ms| Duration::from_millis(timeout_ms.get()));
                return self.queues.send(client, WorkerMessage::Waits { timeout, nanoseconds });
            }
            // The command does not wait for views: the role has changed while it waited for the gate.
            Ok(Outcome::Retry) => {
                let refusal = shared.replication.write_refusal(self.config.config());
                reply.error(refusal.unwrap_or_else(|| shared.running.busy()).line());
            }
            Err(CommandError::Busy) => reply.error(shared.running.busy().line()),
            Err(error) => reply.error(error.line()),
        }
        let finished = Finished { words, reply: reply.take_pieces(), nanoseconds };
        self.queues.send(client, WorkerMessage::Finished(Arc::new(finished)));
    }

    /// Makes a client wait whose command was computed apart, and came too late with it.
    pub(super) fn wait_after_all(
        &self,
        session: &mut Session,
        timeout: Option<Duration>,
        nanoseconds: u64,
    ) -> Option<Next> {
        // Nothing if it has been served before it came to know of its wait.
        session.waiting = Some(session.offloaded.take()?.is_heard);
        session.unfinished.iter_mut().for_each(|unfinished| unfinished.nanoseconds += nanoseconds);
        session.flags.set(ClientFlags::BLOCKED, true);
        session.waits_until = timeout.and_then(|timeout| self.now.instant.checked_add(timeout));
        Some(Next::Park { until: self.next_look(session) })
    }

    /// Tries again to store what could not be stored. Done at the end of each tick: a thread that makes room
    /// wakes all workers, and a slice of background work comes soon.
    #[cold]
    pub(super) fn store_postponed(&mut self) {
        let postponed = std::mem::take(&mut self.result);
        postponed.into_iter().for_each(|result| self.store_computed(result));
    }

    /// Goes on with a client whose command has been run, and answers it.
    pub(super) fn finish_offload(
        &mut self,
        session: &mut Session,
        finished: &Finished,
        reply: &mut ReplyBuffer,
    ) -> Next {
        let words: Vec<&[u8]> = finished.words.iter().map(|word| &**word).collect();
        let reply_bytes = finished.reply.iter().map(|piece| piece.len()).sum();
        let last = finished.reply.last().map(|piece| &piece[..]).unwrap_or_default();
        let error = error_line(last).filter(|_| finished.reply.len() == 1);
        let nanoseconds = finished.nanoseconds;
        session.flags.set(ClientFlags::BLOCKED, false);
        session.publish();
        self.finish(session, &words, &Finish { nanoseconds, reply_bytes, error, event: None });
        if session.offloaded.take().is_some_and(|offloaded| offloaded.is_heard == IsHeard(true)) {
            reply.set_protocol(session.protocol);
            reply.append_pieces(&finished.reply);
        }
        Next::Read
    }
}
