//! Running a command: locks, context, handler, and the work after the locks are released.

use std::{collections::HashSet, sync::Arc};

use dunlin_resp::ReplyBuffer;
use dunlin_structures::PAGE_BYTES;

use crate::{
    command::{Access, Args, Blocking, CommandError, Entry, Group, Run},
    context::{Environment, ExclusiveContext, Garbage, KeyspaceContext, ReadContext, Worker, WriteContext},
    keyspace::{
        ClientToken, Expiration, Inside, Invalidation, Key, Keyspace, Locked, StripeSet, TRACKED_PARTS,
    },
    notify::{Event, Notice},
    offload::{Computed, Offloaded},
    propagation::{Log, LogSwitch, removal_word},
    rdb,
    serve::{self, Blocked},
};

/// A request that has been found acceptable: a known command with a right number of words.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The command.
    pub entry: &'a Entry,
    /// The words, the name first.
    pub words: &'a [&'a [u8]],
    /// The keys of the request, in the order of their positions, if they have been computed already: all or none.
    pub keys: &'a [Key<'a>],
    /// The bytes that the words were decoded from, if they are at hand; else none.
    pub encoded: &'a [u8],
}

/// How a command has gone that was not refused.
#[derive(Debug)]
pub enum Outcome {
    /// The command has been answered.
    Done,
    /// The command has been answered, and has given its pass up to close the gate: conditions that were looked at
    /// inside may have changed since.
    DoneAlone,
    /// Its client waits for keys.
    Blocked(Blocked),
    /// The command takes long, or what it has removed does: the rest is to be done apart from the worker, and answered
    /// then.
    Offloaded(Box<Offloaded>),
    /// The command has not run and is to be presented again. A key that it may change is being read apart from its
    /// worker, or what let it in has ended while it waited for the gate ([`Caller::admission`]).
    ///
    /// [`Caller::admission`]: crate::Caller::admission
    Retry,
}

/// The store and its way of running commands.
#[derive(Debug)]
pub struct Engine {
    /// The keys.
    pub keyspace: Keyspace,
    /// The receiver of the records of changes.
    pub log: LogSwitch,
}

impl Engine {
    /// A store that is not recorded anywhere.
    pub fn new(keyspace: Keyspace) -> Self {
        Self { keyspace, log: LogSwitch::default() }
    }

    /// A store whose changes can be recorded in a log, once that is turned on.
    pub fn with_log(keyspace: Keyspace, log: Arc<dyn Log>) -> Self {
        Self { keyspace, log: LogSwitch::new(log) }
    }

    /// Runs a command of the store and appends its reply; on an error the reply is as it was.
    ///
    /// `inside` is the caller's pass through the gate: commands that need the keyspace to
    /// themselves give it back for a moment.
    ///
    /// # Panics
    /// For commands of the host and containers: the caller deals with those.
    #[inline]
    pub fn execute<'k>(
        &'k self,
        request: &Request<'_>,
        database: usize,
        environment: Environment<'_>,
        worker: &mut Worker,
        inside: &mut Option<Inside<'k>>,
        reply: &mut ReplyBuffer,
    ) -> Result<Outcome, CommandError> {
        self.execute_with(None, request, database, environment, worker, inside, reply)
    }

    /// [`Self::execute`] for a command that was offloaded: it stores the result that it has computed, unless one of its
    /// keys has changed since.
    #[expect(clippy::too_many_arguments, reason = "as `execute`, with one more")]
    pub fn execute_computed<'k>(
        &'k self,
        computed: Box<Computed>,
        request: &Request<'_>,
        database: usize,
        environment: Environment<'_>,
        worker: &mut Worker,
        inside: &mut Option<Inside<'k>>,
        reply: &mut ReplyBuffer,
    ) -> Result<Outcome, CommandError> {
        self.execute_with(Some(computed), request, database, environment, worker, inside, reply)
    }

    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "as `execute`, with one more")]
    fn execute_with<'k>(
        &'k self,
        computed: Option<Box<Computed>>,
        request: &Request<'_>,
        database: usize,
        environment: Environment<'_>,
        worker: &mut Worker,
        inside: &mut Option<Inside<'k>>,
        reply: &mut ReplyBuffer,
    ) -> Result<Outcome, CommandError> {
        let mark = reply.mark();
        let mut args = Args::new(request.words, request.entry.name_words());
        let result = match request.entry.command.run {
            Run::Read(_) | Run::Write(_) | Run::Block(_) => {
                let has_undeclared_keys = request.entry.has_undeclared_keys(request.words);
                let locked = if has_undeclared_keys {
                    *inside = None;
                    self.keyspace.close_unless_long()
                } else {
                    self.lock(request)
                };
                let Some(mut locked) = locked else {
                    if has_undeclared_keys {
                        *inside = self.keyspace.enter_unless_long(worker.id());
                    }
                    return Err(CommandError::Busy);
                };
                let must_wait = has_undeclared_keys && !self.is_admitted(environment)
                    || environment.caller.waits_for_views && self.must_wait(&mut locked, request, database);
                let result = if must_wait {
                    Ok(Outcome::Retry)
                } else {
                    worker.propagation.begin_alone(&self.log);
                    let locked = &mut locked;
                    let result = run_locked(
                        locked,
                        request,
                        &mut args,
                        computed,
                        database,
                        environment,
                        worker,
                        reply,
                    );
                    worker.propagation.publish_alone(&self.log, worker.id(), request);
                    result
                };
                let mut result = match result {
                    Err(CommandError::TooLong) => {
                        let protocol = reply.protocol();
                        let long_words = &worker.propagation.long_words;
                        let offloaded =
                            Offloaded::new(&locked, request, database, environment, long_words, protocol);
                        reply.rewind(mark);
                        Ok(Outcome::Offloaded(Box::new(offloaded)))
                    }
                    result => result,
                };
                worker.tell(environment.caller.client);
                if worker.ready.is_empty() {
                    locked.release();
                } else {
                    self.serve_waiters(locked, environment, worker);
                }
                if has_undeclared_keys {
                    *inside = self.keyspace.enter_unless_long(worker.id());
                    if matches!(result, Ok(Outcome::Done)) {
                        result = Ok(Outcome::DoneAlone);
                    }
                }
                if worker.garbage.is_freed_soon()
                    && matches!(result, Ok(Outcome::Done | Outcome::DoneAlone))
                    && may_wait(request, environment)
                    && let Some(garbage) = worker.garbage.take_large_marked()
                {
                    let offloaded = Offloaded::freeing(garbage, request, reply.split_off(mark));
                    result = Ok(Outcome::Offloaded(Box::new(offloaded)));
                }
                worker.garbage.free_marked();
                result
            }
            Run::Keyspace(handler) => {
                let mut context = KeyspaceContext::new(&self.keyspace, database, environment, worker);
                let result = match handler(&mut context, &mut args, reply) {
                    Err(CommandError::TooLong) => {
                        let protocol = reply.protocol();
                        let walking = Offloaded::walking(handler, request, database, environment, protocol);
                        reply.rewind(mark);
                        Ok(Outcome::Offloaded(Box::new(walking)))
                    }
                    result => result.map(|()| Outcome::Done),
                };
                worker.tell(environment.caller.client);
                result
            }
            Run::Exclusive(handler) => {
                *inside = None;
                let handle = |context: &mut ExclusiveContext<'_>| {
                    let result = handler(context, &mut args, reply);
                    context.end_propagation(request.words);
                    result
                };
                let (result, freed) = match self.keyspace.close_unless_long() {
                    Some(locked) if !self.is_admitted(environment) => {
                        locked.release();
                        *inside = self.keyspace.enter_unless_long(worker.id());
                        return Ok(Outcome::Retry);
                    }
                    Some(locked) => self.work_alone(locked, database, environment, worker, handle),
                    None => (Err(CommandError::Busy), Garbage::default()),
                };
                *inside = self.keyspace.enter_unless_long(worker.id());
                match result {
                    Ok(()) if freed.is_large() && may_wait(request, environment) => {
                        let offloaded = Offloaded::freeing(freed, request, reply.split_off(mark));
                        Ok(Outcome::Offloaded(Box::new(offloaded)))
                    }
                    result => result.map(|()| Outcome::DoneAlone),
                }
            }
            Run::Help(lines) => {
                reply.array(lines.len());
                lines.iter().for_each(|line| reply.simple(line));
                Ok(Outcome::Done)
            }
            Run::Host(_) | Run::Container => unreachable!("{} is not the store's", request.entry.full_name()),
        };
        if result.is_err() {
            reply.rewind(mark);
        }
        result
    }

    /// Whether what was let in may run behind the closed gate: no thread has ended that meanwhile.
    pub fn is_admitted(&self, environment: Environment<'_>) -> bool {
        environment.caller.admission.is_none_or(|admission| admission == self.log.admissions())
    }

    /// [`Self::exclusively`], unless a script has been running for long.
    pub fn exclusively_unless_long<R>(
        &self,
        database: usize,
        environment: Environment<'_>,
        worker: &mut Worker,
        work: impl FnOnce(&mut ExclusiveContext<'_>) -> R,
    ) -> Option<R> {
        let locked = self.keyspace.close_unless_long()?;
        Some(self.work_alone(locked, database, environment, worker, work).0)
    }

    /// Does some work while nothing else runs. The caller is not inside the gate, and is not a worker: it may wait
    /// for a script.
    pub fn exclusively<R>(
        &self,
        database: usize,
        environment: Environment<'_>,
        worker: &mut Worker,
        work: impl FnOnce(&mut ExclusiveContext<'_>) -> R,
    ) -> R {
        self.work_alone(self.keyspace.close(), database, environment, worker, work).0
    }

    /// [`Self::exclusively`] behind the closed gate; returns the values that are to be freed before the reply leaves,
    /// too.
    fn work_alone<'k, R>(
        &'k self,
        mut locked: Locked<'k>,
        database: usize,
        environment: Environment<'_>,
        worker: &mut Worker,
        work: impl FnOnce(&mut ExclusiveContext<'_>) -> R,
    ) -> (R, Garbage) {
        worker.propagation.begin(&self.log);
        let mut context = ExclusiveContext::new(locked.stripes(), database, environment, worker);
        let (result, freed) = (work(&mut context), context.finish());
        worker.propagation.publish(&self.log, worker.id());
        self.serve_waiters(locked, environment, worker);
        (result, freed)
    }

    /// Records a change of something that the keyspace does not hold. The caller is inside the gate, and
    /// holds what brings such changes into an order.
    pub fn record(&self, database: usize, worker: &mut Worker, words: &[&[u8]]) {
        worker.statistics.changes.add(1);
        worker.propagation.begin(&self.log);
        worker.propagation.replace(database, words);
        worker.propagation.publish(&self.log, worker.id());
    }

    /// Records something that changes no data, but that replicas have to know. `is_part`: of a transaction, whose record it
    /// joins. The caller is inside the gate.
    pub fn propagate(&self, database: usize, worker: &mut Worker, words: &[&[u8]], is_part: bool) {
        worker.propagation.begin(&self.log);
        worker.propagation.replace(database, words);
        if !is_part {
            worker.propagation.publish(&self.log, worker.id());
        }
    }

    /// Hands a primary's bytes over that no command of the store was run for ([`crate::Propagation::relay`]). The caller is
    /// inside the gate.
    pub fn relay(&self, worker: &mut Worker) {
        worker.propagation.publish(&self.log, worker.id());
    }

    /// Stores a value that was read from the base of a log, last used `idle_seconds` ago, unless its key is there.
    /// Returns a buffer that can be used again, or `None` if the value was not stored. The value counts as no change.
    /// The caller is inside the gate.
    pub fn load(
        &self,
        database: usize,
        key: &[u8],
        value: rdb::Value,
        expiry_ms: Option<u64>,
        idle_seconds: u64,
        now_ms: u64,
    ) -> Option<Vec<u8>> {
        let stripe = self.keyspace.stripe_of(key);
        let mut locked = self.keyspace.lock_one(stripe);
        locked.stripes().load(database, key, value, (expiry_ms, idle_seconds, now_ms))
    }

    /// Removes expired keys and fields of one stripe, looking at no more than `buckets_max` buckets that may hold some.
    /// Returns whether nothing more is to be done there now: a stripe that a script has been holding for long is left
    /// for later. The caller is inside the gate.
    pub fn expire(
        &self,
        stripe: usize,
        environment: Environment<'_>,
        buckets_max: usize,
        worker: &mut Worker,
    ) -> bool {
        let Some(mut locked) = self.keyspace.lock_one_unless_long(stripe) else { return true };
        let now_ms = environment.caller.now_ms;
        if !environment.policy.lazyfree_expire {
            worker.garbage.free_soon();
        }
        let word = removal_word(environment.policy.lazyfree_expire);
        let id = worker.id();
        worker.propagation.begin(&self.log);
        let is_waited_for = locked.stripe(stripe).queues().is_some();
        let mut stripes = locked.stripes();
        let is_observed = stripes.stripe(stripe).is_observed() | environment.caller.broadcasts;
        let mut changed: Vec<(Vec<u8>, Expiration)> = Vec::new();
        let mut complete = true;
        for database in 0..self.keyspace.databases() {
            let Some(part) = stripes.stripe_mut(stripe).database_mut(database) else { continue };
            if !part.has_due(now_ms) {
                continue;
            }
            let (notices, ready) = (&mut worker.notices, &mut worker.ready);
            let (propagation, log) = (&mut worker.propagation, &self.log);
            let (is_recorded, hidden) = (propagation.are_recorded(), self.keyspace.hidden());
            let slice = part.expire(
                now_ms,
                buckets_max,
                &mut worker.garbage,
                is_recorded,
                hidden,
                |entry, what, gone| {
                    if is_waited_for && what != Expiration::Elements {
                        ready.push_back((database, entry.key().into()));
                    }
                    if is_observed {
                        changed.push((entry.key().to_vec(), what));
                    }
                    if what == Expiration::Elements {
                        propagation.add_removal(database, entry.key(), gone);
                    } else {
                        propagation.add(database, &[word, entry.key()]);
                    }
                    propagation.publish(log, id);
                    for (class, name) in what.events() {
                        if environment.policy.notifications.has(*class) {
                            let key = entry.key().to_vec();
                            notices.push(Notice::Event(Event { class: *class, name, database, key }));
                        }
                    }
                },
            );
            for (key, what) in changed.drain(..) {
                stripes.stripe(stripe).watches().inspect(|watches| watches.expired(database, &key, what));
                let readers = stripes.untrack(stripe, &key);
                if readers.is_some() || environment.caller.broadcasts {
                    let (key, readers) = (key.into(), readers.unwrap_or_default());
                    worker.notices.push(Notice::Invalidation(Invalidation::Key { key, readers }));
                }
            }
            worker.statistics.expired_keys.add(slice.keys as u64);
            worker.statistics.expired_fields.add(slice.elements as u64);
            stripes.publish_usage(stripe, database);
            complete &= slice.complete;
        }
        self.serve_waiters(locked, environment, worker);
        worker.garbage.free_marked();
        complete
    }

    /// Makes the data set follow a primary, or end doing so. A follower records only the stream, and notes the keys
    /// with an expiry that its own clients write. The caller holds the gate closed.
    pub fn follow(&self, follows: bool) {
        self.log.follow(follows);
        self.keyspace.own_expiries().turn(follows);
    }

    /// Removes keys of a replica that its own clients have written and whose time has come, at most `keys_max`. Returns whether
    /// nothing more is to be done now. The caller is inside the gate.
    pub fn expire_own(&self, environment: Environment<'_>, keys_max: usize, worker: &mut Worker) -> bool {
        if !self.log.follows() {
            return true;
        }
        let own = self.keyspace.own_expiries();
        let due = own.take_due(environment.caller.now_ms, keys_max);
        let mut complete = due.len() < keys_max;
        worker.propagation.begin(&self.log);
        for (deadline_ms, place) in due {
            let (database, key) = (place.0, Arc::clone(&place.1));
            let Some(mut locked) = self.keyspace.lock_one_unless_long(self.keyspace.stripe_of(&key)) else {
                // A script holds the stripe: the next round tries again.
                own.note(place, deadline_ms);
                complete = true;
                continue;
            };
            WriteContext::new(locked.stripes(), database, &[], environment, worker)
                .remove_expired_at(&key, deadline_ms);
            self.serve_waiters(locked, environment, worker);
        }
        worker.garbage.free_marked();
        complete
    }

    /// Forgets those of the next `keys_max` keys of [`Self::expire_own`] that were removed, or have another expiry by now: they
    /// must not gather until the time comes. The caller is inside the gate.
    pub fn verify_own(&self, keys_max: usize) {
        let own = self.keyspace.own_expiries();
        for entry in own.next_to_verify(keys_max) {
            let (deadline_ms, (database, key)) = &entry;
            let key = self.keyspace.key(key);
            let Some(locked) = self.keyspace.lock_one_unless_long(key.stripe) else { continue };
            let part = locked.stripe(key.stripe).database(*database);
            let found = part.and_then(|part| Some(part.find_entry(key.hash, key.bytes)?.1));
            if found.is_none_or(|found| found.expiry() != Some(*deadline_ms)) {
                own.forget(&entry);
            }
        }
    }

    /// Forgets keys of one stripe that clients keep copies of, and invalidates the copies, until there are no more than
    /// `keys_max` in the whole keyspace or none in this stripe. The caller is inside the gate.
    pub fn limit_tracked(&self, stripe: usize, keys_max: usize, worker: &mut Worker) {
        let Some(mut locked) = self.keyspace.lock_one_unless_long(stripe) else { return };
        let mut stripes = locked.stripes();
        while self.keyspace.tracked().0 > keys_max
            && let Some((key, readers)) = stripes.untrack_any(stripe)
        {
            worker.notices.push(Notice::Invalidation(Invalidation::Key { key, readers }));
        }
        worker.tell(ClientToken::default());
    }

    /// Goes on with forgetting clients that are gone, in the keys that clients keep copies of: one part of a stripe,
    /// whose position it moves. Returns whether there is more to do. The caller is inside the gate, and begins at the
    /// position (0, 0).
    pub fn forget_readers(&self, gone: &HashSet<u64>, position: &mut (usize, usize)) -> bool {
        let (stripe, part) = *position;
        if !self.keyspace.stripes().contains(&stripe) {
            return false;
        }
        // A stripe that a script holds for long is left to the next slice.
        let Some(mut locked) = self.keyspace.lock_one_unless_long(stripe) else { return true };
        locked.stripes().untrack_clients(stripe, part, gone);
        *position = if part + 1 < TRACKED_PARTS { (stripe, part + 1) } else { (stripe + 1, 0) };
        true
    }

    /// Gives memory that the keyspace no longer needs back to the system, keeping a reserve of
    /// `pages_kept` pages. The caller is not inside the gate, which is closed for as long as it
    /// takes to unlink what tables have left over. Pages given back.
    pub fn release_memory(&self, pages_kept: usize) -> usize {
        let spare: Vec<usize> = {
            // If a script runs for long, the next round will do.
            let Some(_open) = self.keyspace.keep_open() else { return 0 };
            let has_spare = |stripe: &usize| {
                let locked = self.keyspace.lock_one_unless_long(*stripe);
                locked.is_some_and(|locked| locked.stripe(*stripe).has_spare())
            };
            self.keyspace.stripes().filter(has_spare).collect()
        };
        if !spare.is_empty() {
            let Some(mut locked) = self.keyspace.close_unless_long() else { return 0 };
            spare.into_iter().for_each(|stripe| locked.stripes().release_spare(stripe));
        }
        let pool = self.keyspace.pool();
        let free = pool.usage().free_resident_bytes / PAGE_BYTES;
        free.checked_sub(pages_kept).map_or(0, |excess| pool.trim(excess))
    }

    /// Whether a view shares the value of a key that the command may change, or the key is on its way to another server.
    #[inline]
    fn must_wait(&self, locked: &mut Locked<'_>, request: &Request<'_>, database: usize) -> bool {
        if !self.keyspace.has_views() || matches!(request.entry.command.run, Run::Read(_)) {
            return false;
        }
        let written = request.entry.keys_with_access(request.words);
        let written = written.filter_map(|(key, access)| (access != Access::Read).then_some(key));
        if self.keyspace.claims().include(written) {
            return true;
        }
        // Commands on strings replace a collection or refuse it.
        if matches!(request.entry.command.group, Group::String | Group::Bitmap | Group::HyperLogLog) {
            return false;
        }
        // Replacing or removing a value does not change it: the view keeps it.
        let keys = request.entry.keys_with_access(request.words);
        let changed = keys.filter_map(|(key, access)| (access == Access::ReadWrite).then_some(key));
        locked.is_viewed(database, changed)
    }

    /// Locks the stripes of the request's keys, unless a script has been holding one of them for long.
    #[inline]
    fn lock<'k>(&'k self, request: &Request<'_>) -> Option<Locked<'k>> {
        if let [key] = request.keys {
            return self.keyspace.lock_one_unless_long(key.stripe);
        }
        let mut stripes = StripeSet::EMPTY;
        if request.keys.is_empty() {
            let positions = request.entry.key_positions(request.words);
            positions.for_each(|position| stripes.insert(self.keyspace.stripe_of(request.words[position])));
        } else {
            request.keys.iter().for_each(|key| stripes.insert(key.stripe));
        }
        self.keyspace.lock_set_unless_long(stripes)
    }
}

/// Whether the client of a command that has been run can wait for its answer.
fn may_wait(request: &Request<'_>, environment: Environment<'_>) -> bool {
    /// Longer words take longer to be copied than it takes to free most values.
    const WORD_BYTES_MAX: usize = 1024;
    environment.caller.visits_max.is_some()
        && !environment.caller.deny_blocking
        && request.words.iter().all(|word| word.len() <= WORD_BYTES_MAX)
}

/// Runs a command that reads or writes values whose stripes are locked.
#[inline]
#[expect(clippy::too_many_arguments, reason = "all of it differs from command to command")]
pub(crate) fn run_locked(
    locked: &mut Locked<'_>,
    request: &Request<'_>,
    args: &mut Args<'_>,
    computed: Option<Box<Computed>>,
    database: usize,
    environment: Environment<'_>,
    worker: &mut Worker,
    reply: &mut ReplyBuffer,
) -> Result<Outcome, CommandError> {
    let result = match request.entry.command.run {
        Run::Read(handler) => {
            let mut context = ReadContext::new(locked, database, request.keys, environment, worker);
            let result = handler(&mut context, args, reply);
            if context.met_expired() && !environment.caller.keep_expired {
                let stripes = locked.stripes();
                let mut context = WriteContext::new(stripes, database, request.keys, environment, worker);
                for position in request.entry.key_positions(request.words) {
                    context.remove_expired(request.words[position]);
                }
            }
            result.map(|()| Outcome::Done)
        }
        Run::Write(handler) => {
            let computed =
                computed.and_then(|computed| computed.into_current(locked, environment, &mut worker.garbage));
            let stripes = locked.stripes();
            let context = WriteContext::new(stripes, database, request.keys, environment, worker);
            let mut context = context.of(request.entry.command);
            context.finish_with(computed);
            let result = handler(&mut context, args, reply);
            context.end_propagation(request.words);
            result.map(|()| Outcome::Done)
        }
        Run::Block(handler) => {
            let computed =
                computed.and_then(|computed| computed.into_current(locked, environment, &mut worker.garbage));
            let stripes = locked.stripes();
            let context = WriteContext::new(stripes, database, request.keys, environment, worker);
            let mut context = context.of(request.entry.command);
            context.finish_with(computed);
            let result = handler(&mut context, args, reply);
            context.end_propagation(request.words);
            result.map(|blocking| match blocking {
                Blocking::Done => Outcome::Done,
                Blocking::Wait(wait) if environment.caller.deny_blocking => {
                    (wait.refused)(reply);
                    Outcome::Done
                }
                Blocking::Wait(wait) => Outcome::Blocked(serve::block(
                    locked,
                    request,
                    wait,
                    (database, reply.protocol()),
                    environment,
                )),
            })
        }
        _ => unreachable!("{} names no keys to lock", request.entry.full_name()),
    };
    if environment.caller.tracks && request.entry.command.is_read_only() {
        track(locked, request, environment);
    }
    result
}

/// Notes that the client keeps copies of the keys that it has read, under the locks of the read.
#[cold]
fn track(locked: &mut Locked<'_>, request: &Request<'_>, environment: Environment<'_>) {
    let mut stripes = locked.stripes();
    for position in request.entry.key_positions(request.words) {
        let key = request.words[position];
        stripes.track(stripes.keyspace().stripe_of(key), key, environment.caller.client);
    }
}

#[cfg(test)]
mod tests {
    use dunlin_resp::Protocol;

    use crate::{
        Environment,
        offload::OffloadOutcome,
        transcript::{ConnectedHost, Scenario},
    };

    /// Whether large values that a command threw away are left to be freed elsewhere.
    fn leaves_garbage(scenario: &mut Scenario, line: &str) -> bool {
        scenario.reply(line, Protocol::Resp2);
        !scenario.worker.garbage.take().is_empty()
    }

    #[test]
    fn commands_that_close_the_gate_are_let_in_anew_where_the_role_has_changed() {
        let mut scenario = Scenario::new();
        scenario.reply("RPUSH list 2 1", Protocol::Resp2);
        scenario.caller.admission = Some(scenario.engine.log.admissions());
        // Another thread does so while they wait for the gate.
        scenario.engine.log.follow(true);
        for line in ["FLUSHALL", "SORT list BY weight* STORE sorted"] {
            assert_eq!(scenario.reply(line, Protocol::Resp2), b"", "{line} has run");
        }
        assert_eq!(scenario.reply("DBSIZE", Protocol::Resp2), b":1\r\n");
        scenario.caller.admission = Some(scenario.engine.log.admissions());
        assert_eq!(scenario.reply("SORT list BY weight* STORE sorted", Protocol::Resp2), b":2\r\n");
        assert_eq!(scenario.reply("FLUSHALL", Protocol::Resp2), b"+OK\r\n");
    }

    #[test]
    fn replica_expires_keys_that_its_own_clients_wrote() {
        let mut scenario = Scenario::new();
        scenario.reply("SET before v PX 1000", Protocol::Resp2);
        scenario.engine.follow(true);
        let known = |scenario: &Scenario| scenario.engine.keyspace.own_expiring_keys();
        for line in
            ["SET a v PX 1000", "SET b v", "PEXPIRE b 1000", "COPY a c", "SET gone v PX 5000", "DEL gone"]
        {
            scenario.reply(line, Protocol::Resp2);
        }
        // Its expiry is not the clients' any longer.
        for line in ["SET p v PX 1000", "SET kept v PX 1000", "PERSIST kept", "SET no v"] {
            scenario.reply(line, Protocol::Resp2);
        }
        scenario.caller.replaying_at_ms = scenario.caller.now_ms;
        scenario.reply("SET p v PX 900", Protocol::Resp2);
        scenario.reply("SET stream v PX 1000", Protocol::Resp2);
        scenario.caller.replaying_at_ms = 0;
        assert_eq!(known(&scenario), 6);
        scenario.engine.verify_own(100);
        assert_eq!(known(&scenario), 3, "a, b and c");
        scenario.reply("SWAPDB 0 1", Protocol::Resp2);
        scenario.caller.now_ms += 1000;
        let policy = scenario.policy.clone();
        let environment = Environment::new(&policy, &scenario.caller);
        assert!(!scenario.engine.expire_own(environment, 2, &mut scenario.worker));
        assert!(scenario.engine.expire_own(environment, 2, &mut scenario.worker));
        assert_eq!(known(&scenario), 0);
        scenario.reply("SWAPDB 0 1", Protocol::Resp2);
        assert_eq!(scenario.reply("DBSIZE", Protocol::Resp2), b":5\r\n", "before, p, kept, no and stream");
        for line in ["SET a v PX 1000", "FLUSHALL"] {
            scenario.reply(line, Protocol::Resp2);
        }
        assert_eq!(known(&scenario), 0);
        scenario.reply("SET a v PX 1000", Protocol::Resp2);
        scenario.engine.follow(false);
        assert_eq!(known(&scenario), 0);
    }

    #[test]
    fn large_value_is_freed_in_the_background_before_the_reply() {
        let mut scenario = Scenario::new();
        let member = "x".repeat(1000);
        for number in 0..6000 {
            scenario.reply(&format!("SADD k {member}{number}"), Protocol::Resp2);
        }
        scenario.caller.visits_max = Some(10);
        assert_eq!(scenario.reply("DEL k", Protocol::Resp2), b"", "the answer waits");
        let offloaded = scenario.offloaded.take().expect("freed apart");
        assert!(offloaded.has_run());
        let OffloadOutcome::Answered { reply, .. } =
            offloaded.run(&scenario.engine, &mut scenario.worker, &ConnectedHost)
        else {
            panic!("it computes nothing");
        };
        assert_eq!(reply.bytes(), b":1\r\n");
        assert_eq!(scenario.reply("EXISTS k", Protocol::Resp2), b":0\r\n");
    }

    #[test]
    fn used_memory_as_published_is_what_is_in_use() {
        let (short, large) = ("x".repeat(100), "x".repeat(9000));
        let mut lines: Vec<String> = [
            "SET n 100",
            "INCR n",
            "INCRBY n 100",
            "INCR n",
            "RPUSH l a",
            "LINSERT l AFTER nowhere large",
            "INCR n",
            "HSET h f v g large",
            "HPEXPIRE h 10 FIELDS 1 f",
            "HSET h f v",
            "LPOP l",
            "SADD s a b c",
            "SREM s a b c",
            "DEL h n",
        ]
        .map(|line| line.replace("large", &large))
        .into();
        for _ in 0..300 {
            lines.push(format!("LPUSH l {short}"));
        }
        lines.push(String::from("LTRIM l 0 10"));
        let (mut scenario, _records) = Scenario::recorded();
        for line in lines {
            scenario.reply(&line, Protocol::Resp2);
            scenario.caller.now_ms += 10;
            let keyspace = &scenario.engine.keyspace;
            assert_eq!(keyspace.used_bytes(), keyspace.usage(None).bytes(), "after {line}");
        }
    }

    #[test]
    fn replaced_and_expired_values_are_freed_as_configured() {
        let large = "x".repeat(100_000);
        for lazy in [false, true] {
            let mut scenario = Scenario::new();
            scenario.policy.lazyfree_server_del = lazy;
            scenario.policy.lazyfree_expire = lazy;
            assert!(!leaves_garbage(&mut scenario, &format!("SET k {large}")));
            assert_eq!(leaves_garbage(&mut scenario, "SET k 1"), lazy, "replaced");
            for line in ["GET k", "SET k 1"] {
                scenario.reply(&format!("SET k {large} PX 10"), Protocol::Resp2);
                scenario.caller.now_ms += 10;
                assert_eq!(leaves_garbage(&mut scenario, line), lazy, "expired when {line} came");
            }
        }
    }
}
