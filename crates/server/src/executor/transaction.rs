//! Transactions as their client sees them: MULTI, EXEC, WATCH. How the commands run as one is in [`dunlin_engine::Transaction`].

use std::sync::Arc;

use dunlin_acl::{Context, Reason};
use dunlin_engine::{
    Caller, Condition, Environment, Request, Transaction,
    command::{CommandError, CommandResult, Entry},
    keyspace::{Inside, Key, Watcher},
};
use dunlin_net::Next;
use dunlin_resp::ReplyBuffer;

use crate::{
    access::AclRequest,
    admission::Check,
    executor::{Executor, Flow, QueuedRequest, Turn},
    push::monitor,
    session::{
        Session,
        transaction::{Queue, WATCH_BYTES, Watching},
    },
    shared::Shared,
};

/// Keys that a client has ceased to watch, and that are still to be let go.
#[derive(Debug)]
pub(crate) struct Unwatched {
    client: u64,
    watching: Box<Watching>,
}

/// The outcome of `EXEC`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Executed {
    /// The commands have run, and answered.
    Done(Flow),
    /// A watched key had changed, or a condition did not hold: none has run.
    Changed,
    /// A condition could not be looked at: none has run.
    Refused(CommandError),
    /// The server's role changed while EXEC waited for the gate: the queue is kept, and EXEC is to be presented again.
    Again,
}

/// A key, and what EXEC asks of it.
pub(crate) type KeyCondition<'a> = (&'a [u8], Condition<'a>);

impl Executor {
    /// Begins to queue commands.
    pub(crate) fn begin_queue(&mut self, session: &mut Session) {
        let mut queue = self.spare_queue.take().unwrap_or_default();
        queue.topology_version = self.shared.cluster.version();
        session.queue = Some(queue);
    }

    /// Forgets the queued commands and the watched keys.
    pub(crate) fn discard(&mut self, session: &mut Session, inside: Option<&Inside<'_>>) {
        if let Some(queue) = session.queue.take() {
            self.recycle_queue(queue);
        }
        self.unwatch(session, inside);
    }

    /// Keeps the memory of a queue for the next one.
    pub(crate) fn recycle_queue(&mut self, mut queue: Box<Queue>) {
        self.give_up_words(std::mem::take(&mut queue.long_words).into_iter().map(|(_, word)| word));
        self.spare_queue = queue.recycle();
    }

    /// Watches a key for changes until the next transaction.
    pub(crate) fn watch(&mut self, session: &mut Session, key: &[u8], inside: &Inside<'_>) -> CommandResult {
        if !self.unwatched.is_empty() {
            self.let_go(inside);
            // Keys that it has watched before would go together with those that it watches now.
            if self.unwatched.iter().any(|unwatched| unwatched.client == session.client.id()) {
                return Err(CommandError::Busy);
            }
        }
        let database = session.database;
        let client = &session.client;
        let watching = session.watching.get_or_insert_with(|| {
            Box::new(Watching {
                watcher: Watcher::marking(Arc::clone(client.has_dirty_watch.get_or_init(Arc::default))),
                keys: Vec::new(),
            })
        });
        if watching.keys.iter().any(|(known, name)| *known == database && **name == *key) {
            return Ok(());
        }
        self.shared.engine.watch(
            database,
            key,
            &watching.watcher,
            Environment::new(&self.policy, &self.caller),
        )?;
        watching.keys.push((database, key.into()));
        client.watched_keys.set(watching.keys.len() as u64);
        client.watched_bytes.add((WATCH_BYTES + 2 * key.len()) as u64);
        Ok(())
    }

    /// Ends the client's watches. Keys that are locked by a script are let go later.
    pub(crate) fn unwatch(&mut self, session: &mut Session, inside: Option<&Inside<'_>>) {
        let Some(watching) = session.watching.take() else { return };
        session.client.watched_keys.set(0);
        session.client.watched_bytes.set(0);
        self.unwatched.push(Unwatched { client: session.client.id(), watching });
        if let Some(inside) = inside {
            self.let_go(inside);
        }
    }

    /// Lets go what clients have ceased to watch.
    pub(crate) fn let_go(&mut self, _: &Inside<'_>) {
        let engine = &self.shared.engine;
        self.unwatched.retain_mut(|Unwatched { watching, .. }| {
            let Watching { watcher, keys } = &mut **watching;
            keys.retain(|(database, key)| engine.unwatch(*database, key, watcher).is_err());
            if keys.is_empty() {
                watcher.clear();
            }
            !keys.is_empty()
        });
    }

    /// Runs the queued commands as one if all conditions hold, each answering in turn behind the header of an array.
    pub(crate) fn execute_queue<'k>(
        &mut self,
        shared: &'k Shared,
        session: &mut Session,
        (words, conditions): (&[&[u8]], &[KeyCondition<'_>]),
        mut queue: Box<Queue>,
        turn: &mut Turn<'k>,
        reply: &mut ReplyBuffer,
    ) -> Result<Executed, CommandError> {
        self.refresh_access(session);
        let keyspace = &shared.engine.keyspace;
        // Whether a watched key has changed is known for certain only under its lock.
        for (_, key) in session.watching.iter().flat_map(|watching| &watching.keys) {
            queue.footprint.add_key(keyspace, key);
        }
        conditions.iter().for_each(|(key, _)| queue.footprint.add_key(keyspace, key));
        let begun = shared.engine.begin(&queue.footprint, &self.worker, &mut turn.inside);
        let Ok(mut transaction) = begun else {
            if !shared.running.is_busy() && !self.is_abandoned {
                session.queue = Some(queue);
                return Err(CommandError::Busy);
            }
            self.unwatch(session, turn.inside.as_ref());
            let reason = shared.running.busy().line();
            let text = [b"EXECABORT Transaction discarded because of: ", &reason[..]].concat();
            return Err(CommandError::Text(text.into()));
        };
        if !shared.engine.is_admitted(Environment::new(&self.policy, &self.caller)) {
            self.end_transaction(shared, transaction, turn);
            session.queue = Some(queue);
            return Ok(Executed::Again);
        }
        self.worker.mark_client();
        self.saw_data.note();
        let denied_before = self.caller.deny_blocking;
        self.caller = Caller { deny_blocking: true, ..self.caller };
        let has_changed = self.end_watches(session, &mut transaction);
        let holds = self.conditions_hold(session.database, conditions, &transaction);
        let executed = if let Err(error) = holds {
            self.see_everything();
            Executed::Refused(error)
        } else if has_changed || holds == Ok(false) {
            self.see_everything();
            Executed::Changed
        } else {
            reply.array(queue.len());
            let long_words = queue.long_words.iter().map(|(_, word)| Arc::clone(word)).collect();
            let outer = std::mem::replace(&mut self.worker.propagation.long_words, long_words);
            let flow = self.run_queue(shared, session, &queue, &mut transaction, turn, reply);
            self.worker.propagation.long_words = outer;
            Executed::Done(flow)
        };
        if shared.monitor.is_watched() {
            // Before others can see what its commands have done.
            self.show(session, true, |database, origin| monitor::plain_line(words, database, origin));
        }
        self.caller = Caller { deny_blocking: denied_before, ..self.caller };
        self.end_transaction(shared, transaction, turn);
        self.recycle_queue(queue);
        Ok(executed)
    }

    /// Whether all conditions hold for keys that are locked.
    fn conditions_hold(
        &self,
        database: usize,
        conditions: &[KeyCondition<'_>],
        transaction: &Transaction<'_>,
    ) -> Result<bool, CommandError> {
        let environment = Environment::new(&self.policy, &self.caller);
        for (key, condition) in conditions {
            if !transaction.holds(database, key, *condition, environment)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Ends the watches of a client whose locks are held. Returns whether one of the keys has changed.
    fn end_watches(&mut self, session: &mut Session, transaction: &mut Transaction<'_>) -> bool {
        let Some(watching) = session.watching.take() else { return false };
        let mut changed = watching.watcher.is_dirty();
        for (database, key) in &watching.keys {
            changed |= transaction.unwatch(
                *database,
                key,
                &watching.watcher,
                Environment::new(&self.policy, &self.caller),
            );
        }
        watching.watcher.clear();
        session.client.watched_keys.set(0);
        session.client.watched_bytes.set(0);
        changed
    }

    /// Commits a transaction and sends what it has served; or gives it up with the process.
    pub(crate) fn end_transaction<'k>(
        &mut self,
        shared: &'k Shared,
        transaction: Transaction<'k>,
        turn: &mut Turn<'k>,
    ) {
        if self.is_abandoned {
            return transaction.abandon(&mut self.worker, &mut turn.inside);
        }
        shared.engine.commit(
            transaction,
            Environment::new(&self.policy, &self.caller),
            &mut self.worker,
            &mut turn.inside,
        );
        self.send_served();
    }

    /// Whether a client's user may still run a command that was queued: rules may have changed since.
    #[inline]
    fn check_queued(&self, session: &Session, entry: &Entry, words: &[&[u8]]) -> CommandResult {
        if !session.conditions.has(Check::Access) {
            return Ok(());
        }
        let request = AclRequest { entry, words, database: session.database };
        session.user.decide(&request).map_err(|denial| {
            // This notes the denial; its text is another one here.
            let _ = self.deny(session, (entry, words), denial, Context::Multi, session.database);
            let reason = match denial.reason {
                Reason::Command => "no permission to execute the command or subcommand",
                Reason::Key => "no permission to touch the specified keys",
                Reason::Channel => "no permission to access one of the channels used as arguments",
                Reason::Database => "no permission to access the database",
                Reason::Authentication | Reason::Certificate => "no permission",
            };
            CommandError::owned(format!(
                "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
                 This command is no longer allowed for the following reason: {reason}"
            ))
        })
    }

    fn run_queue<'k>(
        &mut self,
        shared: &'k Shared,
        session: &mut Session,
        queue: &Queue,
        transaction: &mut Transaction<'k>,
        turn: &mut Turn<'k>,
        reply: &mut ReplyBuffer,
    ) -> Flow {
        let mut start = 0;
        let mut words: Vec<&[u8]> = queue
            .words
            .iter()
            .map(|end| {
                let word = &queue.bytes[start..*end];
                start = *end;
                word
            })
            .collect();
        queue.long_words.iter().for_each(|(at, word)| words[*at] = word.bytes());
        let mut keys: Vec<Key<'_>> = Vec::new();
        let (mut words_start, mut keys_start) = (0, 0);
        let mut flow = Flow::Continue;
        for queued in &queue.commands {
            let words = &words[words_start..queued.words_end];
            let hashes = &queue.keys[keys_start..queued.keys_end];
            (words_start, keys_start) = (queued.words_end, queued.keys_end);
            let entry = &shared.commands.entries()[queued.entry];
            keys.clear();
            let positions = entry.key_positions(words).zip(hashes);
            keys.extend(positions.map(|(at, (hash, stripe, slot))| Key {
                bytes: words[at],
                hash: *hash,
                stripe: *stripe,
                slot: *slot,
            }));
            if let Err(error) = self.check_queued(session, entry, words) {
                self.count_rejection(Some(entry), &error.line());
                reply.error(error.line());
                continue;
            }
            let request =
                QueuedRequest { request: Request { entry, words, keys: &keys, encoded: &[] }, transaction };
            match self.run_queued(shared, session, request, turn, reply) {
                stop @ Flow::Stop(Next::CloseAfterReply | Next::CloseNow) => flow = stop,
                Flow::Continue | Flow::Postpone { .. } | Flow::Stop(_) => {}
            }
            if self.is_abandoned {
                break;
            }
        }
        // Here, because EXEC's own words are not those of the last command.
        let start = queue.commands.iter().rev().nth(1).map_or(0, |queued| queued.words_end);
        self.measure(shared, session, &words[start..], 0, 0);
        flow
    }
}
