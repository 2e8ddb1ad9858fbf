//! Several commands as one: under one set of locks, nothing of others between them.
//!
//! ```text
//! Footprint ── the stripes of all keys, or the whole keyspace ──▶ Transaction ─▶ run, run, …
//! ```
//!
//! All locks are taken before the first command runs, in the one order, and held until the last has:
//! they are strictly serializable together, as a single command is. A command that looks at the
//! keyspace as a whole makes the transaction close the gate instead.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, CommandError, CommandResult, Entry, Flags, Run},
    context::{Environment, ExclusiveContext, Garbage, KeyspaceContext, Worker},
    execute::{Engine, Request, run_locked},
    keyspace::{EntryRef, Inside, Key, Keyspace, Locked, StripeSet, Watcher},
    propagation::LogSwitch,
    value::ValueType,
};

/// The stripes that the commands of a transaction will touch.
#[derive(Debug, Clone)]
pub struct Footprint {
    stripes: StripeSet,
    everything: bool,
}

impl Default for Footprint {
    fn default() -> Self {
        Self { stripes: StripeSet::EMPTY, everything: false }
    }
}

impl Footprint {
    /// The whole keyspace.
    pub fn everything() -> Self {
        Self { stripes: StripeSet::EMPTY, everything: true }
    }

    /// Adds the stripes that a command will touch.
    pub fn add(&mut self, keyspace: &Keyspace, request: &Request<'_>) {
        let command = request.entry.command;
        match command.run {
            Run::Keyspace(_) | Run::Exclusive(_) => self.everything = true,
            Run::Host(_) | Run::Help(_) | Run::Container => {
                self.everything |= command.flags.has(Flags::WHOLE_KEYSPACE);
            }
            Run::Read(_) | Run::Write(_) | Run::Block(_)
                if request.entry.has_undeclared_keys(request.words) =>
            {
                self.everything = true
            }
            Run::Read(_) | Run::Write(_) | Run::Block(_) if request.keys.is_empty() => {
                request
                    .entry
                    .key_positions(request.words)
                    .for_each(|position| self.add_key(keyspace, request.words[position]));
            }
            Run::Read(_) | Run::Write(_) | Run::Block(_) => {
                request.keys.iter().for_each(|key| self.stripes.insert(key.stripe));
            }
        }
    }

    /// Adds a key.
    pub fn add_key(&mut self, keyspace: &Keyspace, key: &[u8]) {
        self.stripes.insert(keyspace.stripe_of(key));
    }
}

/// A condition on a key, for a transaction as a whole (`EXEC IFEQ key value`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition<'a> {
    /// `IFEQ`: it holds this string.
    Equal(&'a [u8]),
    /// `IFNE`: it holds another string, or is not there.
    NotEqual(&'a [u8]),
    /// `XX`: it is there.
    Present,
    /// `NX`: it is not there.
    Missing,
}

/// A transaction that has all its locks.
#[derive(Debug)]
pub struct Transaction<'k> {
    keyspace: &'k Keyspace,
    log: &'k LogSwitch,
    locked: Locked<'k>,
    /// Values that are freed once the locks are released, before the reply leaves.
    freed: Vec<Garbage>,
    /// Whether other threads know not to wait for it.
    is_long: bool,
    /// Whether changes by its commands are left out of the record.
    is_muted: bool,
}

impl Engine {
    /// Locks what a transaction will touch; refused if a script has been holding that for long. If it is
    /// everything, the caller's pass through the gate is taken, to be given back by [`Self::commit`].
    pub fn begin<'k>(
        &'k self,
        footprint: &Footprint,
        worker: &Worker,
        inside: &mut Option<Inside<'k>>,
    ) -> Result<Transaction<'k>, CommandError> {
        let locked = if footprint.everything {
            *inside = None;
            self.keyspace.close_unless_long()
        } else if let Some(stripe) = footprint.stripes.only() {
            self.keyspace.lock_one_unless_long(stripe)
        } else {
            self.keyspace.lock_set_unless_long(footprint.stripes)
        };
        let Some(locked) = locked else {
            if inside.is_none() {
                *inside = self.keyspace.enter_unless_long(worker.id());
            }
            return Err(CommandError::Busy);
        };
        let (keyspace, log, freed) = (&self.keyspace, &self.log, Vec::new());
        Ok(Transaction { keyspace, log, locked, freed, is_long: false, is_muted: false })
    }

    /// Serves clients that waited for keys of a transaction, releases its locks, and frees what it
    /// threw away if that was asked for.
    pub fn commit<'k>(
        &'k self,
        transaction: Transaction<'k>,
        environment: Environment<'_>,
        worker: &mut Worker,
        inside: &mut Option<Inside<'k>>,
    ) {
        let Transaction { locked, freed, is_long, .. } = transaction;
        // All that its commands have changed is one record.
        worker.propagation.mute(false);
        worker.propagation.publish(&self.log, worker.id());
        worker.tell(environment.caller.client);
        if worker.ready.is_empty() {
            drop(locked);
        } else {
            self.serve_waiters(locked, environment, worker);
        }
        drop(freed);
        match inside {
            None => *inside = self.keyspace.enter_unless_long(worker.id()),
            Some(inside) if is_long => inside.stay_shortly(),
            Some(_) => {}
        }
        worker.garbage.free_marked();
    }

    /// Watches a key for changes; refused if a script has been holding its stripe for long.
    pub fn watch(
        &self,
        database: usize,
        key: &[u8],
        watcher: &Watcher,
        environment: Environment<'_>,
    ) -> CommandResult {
        let key = self.keyspace.key(key);
        let mut locked = self.keyspace.lock_one_unless_long(key.stripe).ok_or(CommandError::Busy)?;
        let present = is_present(&locked, database, &key, environment);
        locked.stripes().stripe_mut(key.stripe).watch(database, key.bytes, watcher, present);
        Ok(())
    }

    /// Ends the watch of a key; refused as [`Self::watch`].
    pub fn unwatch(&self, database: usize, key: &[u8], watcher: &Watcher) -> CommandResult {
        let stripe = self.keyspace.stripe_of(key);
        let mut locked = self.keyspace.lock_one_unless_long(stripe).ok_or(CommandError::Busy)?;
        locked.stripes().stripe_mut(stripe).unwatch(database, key, watcher);
        Ok(())
    }
}

/// Whether a key is there and has not expired.
fn is_present(locked: &Locked<'_>, database: usize, key: &Key<'_>, environment: Environment<'_>) -> bool {
    let part = locked.stripe(key.stripe).database(database);
    let entry = part.and_then(|part| Some(part.entry(part.find(key.hash, key.bytes)?)));
    entry.is_some_and(|entry| !entry.is_expired(environment.caller.now_ms))
}

impl Transaction<'_> {
    /// Ends the watch of a key whose stripe is locked; returns the key if it has expired meanwhile and is still there,
    /// without a notice so far.
    pub fn unwatch(
        &mut self,
        database: usize,
        key: &[u8],
        watcher: &Watcher,
        environment: Environment<'_>,
    ) -> bool {
        let key = self.keyspace.key(key);
        let was_present = self.locked.stripe(key.stripe).saw(database, key.bytes, watcher);
        let expired = was_present && !is_present(&self.locked, database, &key, environment);
        self.locked.stripes().stripe_mut(key.stripe).unwatch(database, key.bytes, watcher);
        expired
    }

    /// Whether a condition holds for a key whose stripe is locked; an error if a value of another type is to be compared.
    pub fn holds(
        &self,
        database: usize,
        key: &[u8],
        condition: Condition<'_>,
        environment: Environment<'_>,
    ) -> Result<bool, CommandError> {
        let key = self.keyspace.key(key);
        let part = self.locked.stripe(key.stripe).database(database);
        let entry = part.and_then(|part| Some(part.find_entry(key.hash, key.bytes)?.1));
        let entry = entry.filter(|entry| !entry.is_expired(environment.caller.now_ms));
        let is_text = |entry: EntryRef<'_>, text| match entry.value_type() {
            ValueType::String => Ok(entry.string().is_text(text)),
            _ => Err(CommandError::WrongType),
        };
        Ok(match (condition, entry) {
            (Condition::Present, entry) => entry.is_some(),
            (Condition::Missing, entry) => entry.is_none(),
            (Condition::Equal(_), None) => false,
            (Condition::NotEqual(_), None) => true,
            (Condition::Equal(text), Some(entry)) => is_text(entry, text)?,
            (Condition::NotEqual(text), Some(entry)) => !is_text(entry, text)?,
        })
    }

    /// Says that the transaction will take long: others do not wait for its locks if they can do
    /// something else, which is to refuse what they were asked.
    pub fn take_long(&mut self, worker: &Worker) {
        self.is_long = true;
        self.locked.mark_long(worker.id());
    }

    /// Ends it as if it had never been, when the process is about to end: nothing of it is recorded, and no client
    /// will see its changes, since its locks are never released. No thread may wait for these.
    pub fn abandon(self, worker: &mut Worker, inside: &mut Option<Inside<'_>>) {
        worker.propagation.forget();
        worker.ready.clear();
        worker.notices.clear();
        std::mem::forget(self.locked);
        std::mem::forget(inside.take());
    }

    /// Leaves changes by its commands out of the record from now on, or does not. Expiries are recorded all the same.
    pub fn mute(&mut self, muted: bool) {
        self.is_muted = muted;
    }

    /// Records a change of something that the keyspace does not hold, made by a command of the host whose
    /// footprint is everything.
    pub fn record(&self, database: usize, worker: &mut Worker, words: &[&[u8]]) {
        worker.statistics.changes.add(1);
        worker.propagation.begin(self.log);
        worker.propagation.replace(database, words);
    }

    /// Runs a command of the store that is in the transaction's footprint, and appends its reply; on
    /// an error the reply is as it was.
    ///
    /// # Panics
    /// For commands of the host and containers: the caller deals with those.
    pub fn run(
        &mut self,
        request: &Request<'_>,
        database: usize,
        environment: Environment<'_>,
        worker: &mut Worker,
        reply: &mut ReplyBuffer,
    ) -> CommandResult {
        let mark = reply.mark();
        let mut args = Args::new(request.words, request.entry.name_words());
        worker.propagation.begin(self.log);
        worker.propagation.mute(self.is_muted);
        let result = match request.entry.command.run {
            Run::Read(_) | Run::Write(_) | Run::Block(_) => {
                debug_assert!(environment.caller.deny_blocking, "a part of a transaction waits for nothing");
                let locked = &mut self.locked;
                run_locked(locked, request, &mut args, None, database, environment, worker, reply).map(drop)
            }
            // Behind the closed gate the locks of stripes are free to be taken.
            Run::Keyspace(handler) => {
                let mut context = KeyspaceContext::new(self.keyspace, database, environment, worker);
                handler(&mut context, &mut args, reply)
            }
            Run::Exclusive(handler) => {
                let mut context = ExclusiveContext::new(self.locked.stripes(), database, environment, worker);
                let result = handler(&mut context, &mut args, reply);
                context.end_propagation(request.words);
                self.freed.push(context.finish());
                result
            }
            Run::Help(lines) => {
                reply.array(lines.len());
                lines.iter().for_each(|line| reply.simple(line));
                Ok(())
            }
            Run::Host(_) | Run::Container => not_the_stores(request.entry),
        };
        if result.is_err() {
            reply.rewind(mark);
        }
        result
    }
}

fn not_the_stores(entry: &Entry) -> ! {
    unreachable!("{} is not the store's", entry.full_name())
}
