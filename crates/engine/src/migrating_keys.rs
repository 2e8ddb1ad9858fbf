//! Keys that go to another server (MIGRATE).
//!
//! ```text
//! worker                                 a thread of its own
//! ──────                                 ───────────────────
//! lock · look up · view, claim · unlock ──▶ dump each key, send it, wait for the answer
//! lock · compare · remove · unlock      ◀── these have arrived
//! ```
//!
//! Only a value that was sent is removed: a key that a transaction, a script or the clock has changed meanwhile stays, and is
//! named to the caller. Other writers of the keys wait ([`crate::keyspace`]'s claims), readers do not.

use std::fmt;

use dunlin_resp::SharedSlice;

use crate::{
    command::CommandError,
    context::{Caller, Environment, Policy, ReadContext, Worker, WriteContext},
    execute::Engine,
    keyspace::{Claim, StripeSet, View},
    notify::EventClass,
};

/// Some keys on their way to another server, as they were when the way began.
pub struct MigratingKeys {
    database: usize,
    /// The keys that were there, in the order of the request.
    keys: Vec<Box<[u8]>>,
    policy: Policy,
    caller: Caller,
    view: View,
    claim: Claim,
}

impl fmt::Debug for MigratingKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("MigratingKeys").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

/// The outcome of an attempt to send keys away.
#[derive(Debug)]
pub enum MigrationStart {
    /// None of them is there.
    Nothing,
    /// A key is on its way already: the command is to be presented again.
    Retry,
    /// The keys that are there can be sent.
    Ready(Box<MigratingKeys>),
}

/// Keys that arrived elsewhere and were not removed here, since they are no longer what was sent.
#[derive(Debug, Default)]
pub struct NotRemoved {
    /// Keys with other values or expiries.
    pub changed: Vec<Box<[u8]>>,
    /// Keys that are gone.
    pub gone: Vec<Box<[u8]>>,
}

impl NotRemoved {
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.gone.is_empty()
    }
}

/// A key that goes, in the form in which it is sent.
#[derive(Debug)]
pub struct Dumped {
    /// The value as DUMP answers it.
    pub payload: Vec<SharedSlice>,
    /// Milliseconds that are left to it, 0 without an expiry.
    pub ttl_ms: u64,
}

impl MigratingKeys {
    /// The database that the keys are in.
    pub fn database(&self) -> usize {
        self.database
    }

    /// The keys.
    pub fn keys(&self) -> &[Box<[u8]>] {
        &self.keys
    }

    /// The nth key at this time; `None` if its own has come. O(n) in the size of its value.
    pub fn dump(&self, nth: usize, engine: &Engine, worker: &mut Worker, now_ms: u64) -> Option<Dumped> {
        let caller = Caller { now_ms, ..self.caller };
        let environment = Environment::new(&self.policy, &caller);
        let mut context =
            ReadContext::offloaded(&engine.keyspace, &self.view, self.database, environment, worker);
        let entry = self.view.find(&self.keys[nth]).filter(|entry| !entry.is_expired(now_ms))?;
        let ttl_ms = entry.expiry().map_or(0, |at_ms| (at_ms - now_ms).max(1));
        Some(Dumped { payload: context.dump(entry), ttl_ms })
    }
}

impl Engine {
    /// Looks up keys that are to go to another server. If they are to be removed (`leaves`), writers wait for those
    /// that are there. The lookups count as reads. The caller is inside the gate. O(keys).
    ///
    /// # Errors
    /// [`CommandError::Busy`] if a script holds one of them for long.
    pub fn begin_migration(
        &self,
        database: usize,
        keys: &[&[u8]],
        leaves: bool,
        environment: Environment<'_>,
        worker: &mut Worker,
    ) -> Result<MigrationStart, CommandError> {
        let mut stripes = StripeSet::EMPTY;
        keys.iter().for_each(|key| stripes.insert(self.keyspace.stripe_of(key)));
        let locked = self.keyspace.lock_set_unless_long(stripes).ok_or(CommandError::Busy)?;
        if leaves && self.keyspace.claims().include(keys.iter().copied()) {
            return Ok(MigrationStart::Retry);
        }
        let mut context = ReadContext::new(&locked, database, &[], environment, worker);
        let present: Vec<&[u8]> = keys.iter().copied().filter(|key| context.find(key).is_some()).collect();
        worker.tell(environment.caller.client);
        if present.is_empty() {
            return Ok(MigrationStart::Nothing);
        }
        Ok(MigrationStart::Ready(Box::new(MigratingKeys {
            database,
            keys: present.iter().map(|key| Box::from(*key)).collect(),
            policy: environment.policy.clone(),
            // Accesses were noted here.
            caller: Caller { no_touch: true, ..*environment.caller },
            view: View::new(&locked, database, present.iter().copied(), environment.caller.now_ms),
            claim: self.keyspace.claim(present.iter().copied().filter(|_| leaves)),
        })))
    }

    /// Removes those keys of a migrating that have arrived and are what was sent, and records it as one DEL. The caller
    /// is inside the gate. O(keys).
    ///
    /// # Errors
    /// The migrating itself, and nothing done, if a script holds one of them for long.
    pub fn remove_departed(
        &self,
        migrating: Box<MigratingKeys>,
        has_arrived: impl Fn(usize) -> bool,
        environment: Environment<'_>,
        worker: &mut Worker,
    ) -> Result<NotRemoved, Box<MigratingKeys>> {
        let arrived = || migrating.keys.iter().enumerate().filter(|(nth, _)| has_arrived(*nth));
        let mut stripes = StripeSet::EMPTY;
        arrived().for_each(|(_, key)| stripes.insert(self.keyspace.stripe_of(key)));
        let Some(mut locked) = self.keyspace.lock_set_unless_long(stripes) else { return Err(migrating) };
        let (database, now_ms) = (migrating.database, environment.caller.now_ms);
        let mut not_removed = NotRemoved::default();
        let mut removal: Vec<&[u8]> = vec![b"DEL"];
        for (_, key) in arrived() {
            let Some(sent) = migrating.view.find(key) else { continue };
            match migrating.view.present(&locked, key, now_ms) {
                Some(entry) if entry.has_value_of(sent) && entry.expiry() == sent.expiry() => {
                    removal.push(key);
                }
                Some(_) => not_removed.changed.push(key.clone()),
                // There, too, it expires by itself.
                None if sent.is_expired(now_ms) => {}
                None => not_removed.gone.push(key.clone()),
            }
        }
        worker.propagation.begin(&self.log);
        let mut context = WriteContext::new(locked.stripes(), database, &[], environment, worker);
        for key in &removal[1..] {
            context.remove(key);
            context.notify(EventClass::Generic, "del", key);
        }
        context.end_propagation(&removal);
        worker.propagation.publish(&self.log, worker.id());
        worker.tell(environment.caller.client);
        self.serve_waiters(locked, environment, worker);
        let MigratingKeys { view, claim, .. } = *migrating;
        drop(claim);
        // Its shares of values, which may be the last ones, are freed elsewhere.
        worker.garbage.push_other(Box::new(view));
        Ok(not_removed)
    }
}

#[cfg(test)]
mod tests {
    use dunlin_resp::Protocol;

    use super::*;
    use crate::transcript::Scenario;

    fn depart(scenario: &mut Scenario, keys: &[&str]) -> MigrationStart {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let environment = Environment::new(&scenario.policy, &scenario.caller);
        scenario.engine.begin_migration(0, &keys, true, environment, &mut scenario.worker).unwrap()
    }

    fn remove(scenario: &mut Scenario, migrating: Box<MigratingKeys>) -> NotRemoved {
        let environment = Environment::new(&scenario.policy, &scenario.caller);
        scenario.engine.remove_departed(migrating, |_| true, environment, &mut scenario.worker).unwrap()
    }

    fn reply(scenario: &mut Scenario, line: &str) -> String {
        String::from_utf8(scenario.reply(line, Protocol::Resp2)).unwrap()
    }

    #[test]
    fn migrate_removes_sent_keys_and_keeps_changed_ones() {
        let mut scenario = Scenario::new();
        for line in
            ["SET a 1", "SET b 1", "SET c 1 PX 50", "RPUSH d x", "SET e 1", "SET f 1", "SET g 1 PX 50"]
        {
            reply(&mut scenario, line);
        }
        let MigrationStart::Ready(migrating) =
            depart(&mut scenario, &["a", "none", "b", "c", "d", "e", "f", "g"])
        else {
            panic!("they are there");
        };
        assert_eq!(migrating.keys().len(), 7);
        // As transactions and scripts do, the commands of this scenario wait for nothing.
        for line in ["SET b 2", "PEXPIRE c 500", "RPUSH d y", "DEL e", "GET f"] {
            reply(&mut scenario, line);
        }
        scenario.caller.now_ms += 100;
        let not_removed = remove(&mut scenario, migrating);
        assert_eq!(not_removed.changed, [&b"b"[..], b"c", b"d"].map(Box::from));
        assert_eq!(not_removed.gone, [&b"e"[..]].map(Box::from));
        assert_eq!(reply(&mut scenario, "EXISTS a b c d e f g"), ":3\r\n");
    }

    #[test]
    fn writers_wait_for_keys_on_their_way_and_readers_do_not() {
        let mut scenario = Scenario::new();
        scenario.caller.waits_for_views = true;
        reply(&mut scenario, "SET a 1");
        let MigrationStart::Ready(migrating) = depart(&mut scenario, &["a"]) else { panic!("it is there") };
        assert!(matches!(depart(&mut scenario, &["a"]), MigrationStart::Retry));
        assert!(matches!(depart(&mut scenario, &["none"]), MigrationStart::Nothing));
        for line in ["SET a 2", "INCR a", "DEL a", "APPEND a x", "EXPIRE a 100", "RENAME a b"] {
            assert_eq!(reply(&mut scenario, line), "", "{line} is to be presented again");
        }
        assert_eq!(reply(&mut scenario, "GET a"), "$1\r\n1\r\n");
        assert_eq!(reply(&mut scenario, "SET b 1"), "+OK\r\n");
        let dumped =
            migrating.dump(0, &scenario.engine, &mut scenario.worker, scenario.caller.now_ms).unwrap();
        assert_eq!((dumped.ttl_ms, dumped.payload.len()), (0, 1));
        assert!(remove(&mut scenario, migrating).is_empty());
        assert_eq!(reply(&mut scenario, "INCR a"), ":1\r\n");
    }

    #[test]
    fn migrate_removal_is_one_record() {
        let (mut scenario, records) = Scenario::recorded();
        reply(&mut scenario, "MSET a 1 b 1");
        let MigrationStart::Ready(migrating) = depart(&mut scenario, &["b", "a"]) else {
            panic!("they are there")
        };
        records.take();
        remove(&mut scenario, migrating);
        assert_eq!(records.take(), ["DEL b a"]);
    }
}
