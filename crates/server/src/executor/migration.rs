//! The worker's part of a MIGRATE: keys are looked up, handed out, and removed when they have arrived elsewhere.

use std::sync::Arc;

use dunlin_engine::{
    Caller, Environment, MigrationStart,
    command::{CommandError, CommandResult},
};
use dunlin_net::Next;
use dunlin_resp::ReplyBuffer;

use super::{
    Executor, Flow, ServerContext,
    admission::{StoreFacts, storage_conditions},
};
use crate::{
    admission::{Check, Verdict, decide},
    replicator,
    session::{IsHeard, OffloadedCommand, Replies},
    workers::{
        WorkerMessage, blocked,
        migration::{Migration, MigrationTarget},
        offload::Finished,
    },
};

impl ServerContext<'_, '_> {
    /// Sends keys to another server; the client waits for the reply.
    ///
    /// # Errors
    /// [`CommandError::Busy`] if a script holds one of them for long.
    pub(crate) fn migrate(
        &mut self,
        target: MigrationTarget,
        keys: &[&[u8]],
        words: &[&[u8]],
        reply: &mut ReplyBuffer,
    ) -> CommandResult {
        if self.turn.inside.is_none() {
            return Err(CommandError::Busy);
        }
        let (executor, session) = (&mut *self.executor, &mut *self.session);
        executor.see_everything();
        let environment = Environment::new(&executor.policy, &executor.caller);
        let start = self.shared.engine.begin_migration(
            session.database,
            keys,
            !target.copy,
            environment,
            &mut executor.worker,
        )?;
        match start {
            MigrationStart::Nothing => reply.simple("NOKEY"),
            MigrationStart::Retry => self.flow = executor.hold(session),
            MigrationStart::Ready(migrating) => {
                let is_heard = IsHeard(session.replies == Replies::On);
                session.offloaded = Some(OffloadedCommand { is_heard, is_decided: false });
                let (client, queues) = (session.client.address, executor.queues.clone());
                let migration = Migration::new(target, words, migrating, client, queues);
                replicator::send_keys(&executor.shared, Box::new(migration));
                self.flow = Flow::Stop(Next::Await);
            }
        }
        Ok(())
    }
}

impl Executor {
    /// Goes on with a migration whose keys have been sent: removes those that have arrived, or sends them again.
    pub(super) fn settle_migration(&mut self, mut migration: Box<Migration>) {
        let shared = Arc::clone(&self.shared);
        let Some(migrating) = migration.take_migrating().filter(|_| !migration.keeps_keys()) else {
            return self.finish_migration(*migration);
        };
        // Asked inside the gate, which a change of the role closes.
        let inside = self.pass(&shared.engine.keyspace);
        if shared.replication.is_replica() {
            // Nothing is removed that is another server's by now.
            migration.fail(CommandError::text(
                "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
            ));
            return self.finish_migration(*migration);
        }
        let is_tls = self.clients.find(migration.client.id).is_some_and(|client| client.is_tls);
        let is_parked = match self.parks_departed(&shared, migrating.keys(), is_tls) {
            Ok(is_parked) => is_parked,
            Err(moved) => {
                migration.fail(moved);
                return self.finish_migration(*migration);
            }
        };
        // The keys are elsewhere by now: fewer replicas than there should be do not keep them here.
        let conditions = storage_conditions(&shared, self.config.config()).without(Check::FewReplicas);
        let entry = shared.commands.find_row(b"migrate").expect("the command that has sent them");
        let mut facts = StoreFacts { shared: &shared, now: self.now.instant };
        let may_run = decide(conditions, entry, &mut facts) == Verdict::Run;
        if is_parked || inside.is_none() || !may_run {
            migration.keep(migrating);
            return self.sent_keys.push(migration);
        }
        let client = migration.client;
        let caller = Caller {
            client: blocked::token(client),
            broadcasts: shared.trackers.broadcasts(),
            tracks: false,
            ..self.caller
        };
        let (database, environment) = (migrating.database(), Environment::new(&self.policy, &caller));
        let (engine, worker) = (&shared.engine, &mut self.worker);
        let removed =
            engine.remove_departed(migrating, |nth| migration.has_arrived(nth), environment, worker);
        let again = match removed {
            Ok(not_removed) => migration.again(not_removed),
            Err(migrating) => {
                migration.keep(migrating);
                return self.sent_keys.push(migration);
            }
        };
        if let Some(changed) = again.as_ref().filter(|changed| !changed.is_empty()) {
            let keys: Vec<&[u8]> = changed.iter().map(|key| &**key).collect();
            match engine.begin_migration(database, &keys, true, environment, worker) {
                Ok(MigrationStart::Ready(migrating)) => migration.keep(migrating),
                Ok(MigrationStart::Nothing) => {}
                Ok(MigrationStart::Retry) => migration.fail(CommandError::text(
                    "ERR another client moves one of the keys, which are still here",
                )),
                Err(error) => migration.fail(error),
            }
            migration.note_gone(changed);
        }
        drop(inside);
        self.drain();
        match again.is_some() && migration.goes_on() {
            true => replicator::send_keys(&shared, migration),
            false => self.finish_migration(*migration),
        }
    }

    fn finish_migration(&self, migration: Migration) {
        let client = migration.client;
        let (words, result, took) = migration.finish();
        let mut reply = ReplyBuffer::default();
        match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.line()),
        }
        let finished = Finished { words, reply: reply.take_pieces(), nanoseconds: took.as_nanos() as u64 };
        self.queues.send(client, WorkerMessage::Finished(Arc::new(finished)));
    }

    /// Tries again with migrations that had to wait for a pause, a script, the log or a snapshot.
    #[cold]
    pub(super) fn settle_postponed(&mut self) {
        let postponed = std::mem::take(&mut self.sent_keys);
        postponed.into_iter().for_each(|migration| self.settle_migration(migration));
    }
}
