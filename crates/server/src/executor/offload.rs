//! Commands that are offloaded: handed out, stored, answered.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use dunlin_engine::{
    LongWords, Offloaded, OwnedWord, Request,
    command::{CommandError, Entry},
};
use dunlin_net::{Next, WorkerQueues};
use dunlin_resp::ReplyBuffer;

use super::{
    Executor, Finish, Flow, WorkerMessage,
    admission::{StoreFacts, storage_conditions},
};
use crate::{
    admission::{Verdict, decide},
    executor::{
        blocked::{self, error_line},
        offload_threads::{Finished, Job, OffloadedResult},
    },
    session::{ClientFlags, IsHeard, OffloadedCommand, Replies, Session},
    shared::Shared,
};

impl Executor {
    /// Has a command offloaded; its client waits for the reply.
    #[cold]
    pub(super) fn offload(
        shared: &Shared,
        session: &mut Session,
        entry: &Entry,
        offloaded: Box<Offloaded>,
        queues: WorkerQueues<WorkerMessage>,
    ) -> Flow {
        let is_heard = IsHeard(session.replies == Replies::On);
        session.offloaded = Some(OffloadedCommand { is_heard, is_decided: offloaded.is_decided() });
        let (caller, client) = (Arc::downgrade(&session.client), session.client.address);
        shared.offload.run(Job { offloaded, caller, index: entry.index, client, queues, rounds: 0 });
        Flow::Stop(Next::Await)
    }

    /// Stores what a command has computed apart from the worker.
    pub(super) fn store_computed(&mut self, result: OffloadedResult) {
        /// How often it is computed anew because its keys have changed, before that is done where it stands.
        const ROUNDS_MAX: u32 = 3;
        let shared = Arc::clone(&self.shared);
        let entry = &shared.commands.entries()[result.index];
        let (admission, is_parked) =
            match decide(storage_conditions(&shared), entry, &mut StoreFacts { shared: &shared }) {
                Verdict::Park(_) => (Ok(()), true),
                Verdict::Refuse(error) => (Err(error), false),
                Verdict::Run | Verdict::Queue | Verdict::Deny(_) => (Ok(()), false),
            };
        let mut inside = self.pass(&shared.engine.keyspace);
        // Where the log or a snapshot is behind, or a script has closed the gate for long.
        if is_parked || inside.is_none() {
            return self.result.push(result);
        }
        let OffloadedResult { mut computed, index, client, nanoseconds, rounds } = result;
        let words = std::mem::take(&mut computed.words);
        let (database, protocol) = (computed.database, computed.protocol);
        let texts: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
        let request = Request { entry, words: &texts, keys: &[], encoded: &[] };
        let mut reply = ReplyBuffer::default();
        reply.set_protocol(protocol);
        self.environment.client = blocked::token(client);
        self.environment.broadcasts = shared.trackers.broadcasts();
        self.environment.tracks = false;
        // Its own view is among those that there are.
        self.environment.waits_for_views = false;
        let connected = self.clients.find(client.id).filter(|client| !client.is_killed());
        // Who has gone waits for nothing.
        self.environment.deny_blocking = connected.is_none();
        if rounds >= ROUNDS_MAX {
            self.environment.visits_max = None;
        }
        self.worker.computed = Some(Box::new(computed));
        self.worker.propagation.long_words = words.iter().filter_map(OwnedWord::long).cloned().collect();
        let (environment, worker) = (&self.environment, &mut self.worker);
        let result = admission.and_then(|()| {
            shared.engine.execute(&request, database, environment, worker, &mut inside, &mut reply)
        });
        drop(inside);
        self.environment.visits_max = Some(shared.visits_max.load(Ordering::Relaxed));
        self.environment.deny_blocking = false;
        self.worker.computed = None;
        self.worker.propagation.long_words = LongWords::default();
        let mut job = self.worker.offloaded.take().map(|offloaded| {
            let (queues, rounds) = (self.queues.clone(), rounds + 1);
            // A command that stores something goes on when its client has gone.
            Job { offloaded, caller: Weak::new(), index, client, queues, rounds }
        });
        if let Some(job) = job.take_if(|job| !job.offloaded.has_run()) {
            return shared.offload.run(job);
        }
        if let Err(error) = result {
            let error = if error == CommandError::Busy { shared.running.busy() } else { error };
            reply.error(error.line());
        }
        if !self.worker.served.is_empty() {
            self.send_served();
        }
        self.dispose();
        if let Some(job) = job {
            return shared.offload.run(job);
        }
        if let Some((blocked, connected)) = self.worker.blocked.take().zip(connected) {
            // Others have taken what it was to get: now it waits.
            shared.blocked.enter(&connected, &blocked.waiter);
            let timeout = blocked.timeout_ms.map(|timeout_ms| Duration::from_millis(timeout_ms.get()));
            return self.queues.send(client, WorkerMessage::Waits { timeout, nanoseconds });
        }
        let finished = Finished { words, reply: reply.take_pieces(), nanoseconds };
        self.queues.send(client, WorkerMessage::Finished(Arc::new(finished)));
    }

    /// Has a client wait whose command was computed apart, and came too late with it.
    pub(super) fn wait_after_all(
        &self,
        session: &mut Session,
        timeout: Option<Duration>,
        nanoseconds: u64,
    ) -> Option<Next> {
        // Nothing where it has been served before it came to know of its wait.
        session.waiting = Some(session.offloaded.take()?.is_heard);
        session.unfinished.iter_mut().for_each(|unfinished| unfinished.nanoseconds += nanoseconds);
        session.flags.set(ClientFlags::BLOCKED, true);
        session.waits_until = timeout.and_then(|timeout| self.now.instant.checked_add(timeout));
        Some(Next::Park { until: self.next_look(session) })
    }

    /// Tries again to store what could not be stored. Done at the end of each tick: who makes room wakes all
    /// workers, and a slice of background work comes soon.
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
        self.finish(session, &words, &Finish { nanoseconds, reply_bytes, error, event: None });
        if session.offloaded.take().is_some_and(|offloaded| offloaded.is_heard == IsHeard(true)) {
            reply.set_protocol(session.protocol);
            reply.append_pieces(&finished.reply);
        }
        Next::Read
    }
}
