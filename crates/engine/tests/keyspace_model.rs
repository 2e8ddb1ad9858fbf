//! The whole keyspace against a map of its expected contents, while time passes.
//!
//! Keys share two hash tags, so that two stripes get tables that grow and shrink. The test checks
//! replies after every step; after every scenario, the keys, their expiries, and the memory accounts.

mod common;

use std::collections::{BTreeSet, HashMap};

use common::{Client, DATABASES, START_MS, Store};
use proptest::prelude::*;

/// Milliseconds of a tick in which background expiry is precise.
const TICK_MS: u64 = 64;
/// How long the keyspace may be left alone.
const REACH_MS: u64 = dunlin_structures::Tick::REACH * TICK_MS;

/// Bytes that a small table keeps for chains that it no longer has.
const CHAIN_DIRECTORY_BYTES_MAX: usize = 512;

#[derive(Debug, Clone)]
enum Step {
    Set(u16, Value),
    Increment(u16),
    Expire(u16, u64),
    Persist(u16),
    Delete(u16, u16),
    Rename(u16, u16),
    Copy(u16, u16, usize),
    Move(u16, usize),
    Get(u16),
    Pass(u64),
    ExpireInBackground,
    Scan,
    Select(usize),
    Swap(usize, usize),
    FlushDatabase,
    FlushAll,
    ReleaseMemory,
}

#[derive(Debug, Clone)]
enum Value {
    Integer(i64),
    Text(usize),
}

impl Value {
    fn text(&self) -> String {
        match self {
            Self::Integer(value) => value.to_string(),
            Self::Text(length) => "x".repeat(*length),
        }
    }
}

fn key(number: u16) -> String {
    let tag = if number.is_multiple_of(2) { "{even}" } else { "{odd}" };
    // Every eleventh key is too long to stand in its entry.
    let length = if number.is_multiple_of(11) { 300 } else { 4 };
    format!("{tag}{number:0length$}")
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::Integer),
        (0..100_usize).prop_map(Value::Text),
        (1530..1545_usize).prop_map(Value::Text),
        Just(Value::Text(40_000)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 0..250_u16;
    let database = || 0..DATABASES;
    // Expiries within a tick, within seconds, and beyond the reach of a bucket's hint.
    let after = prop_oneof![0..200_u64, 0..100_000_u64, 0..2_000_000_000_u64];
    let pass = prop_oneof![8 => 0..100_u64, 2 => 0..30_000_u64, 1 => 0..200_000_000_u64];
    prop_oneof![
        400 => (number(), value()).prop_map(|(key, value)| Step::Set(key, value)),
        40 => number().prop_map(Step::Increment),
        150 => (number(), after).prop_map(|(key, after)| Step::Expire(key, after)),
        50 => number().prop_map(Step::Persist),
        50 => (number(), 1..20_u16).prop_map(|(key, count)| Step::Delete(key, count)),
        80 => (number(), number()).prop_map(|(from, to)| Step::Rename(from, to)),
        80 => (number(), number(), database()).prop_map(|(from, to, database)| Step::Copy(from, to, database)),
        50 => (number(), database()).prop_map(|(key, database)| Step::Move(key, database)),
        80 => number().prop_map(Step::Get),
        60 => pass.prop_map(Step::Pass),
        40 => Just(Step::ExpireInBackground),
        10 => Just(Step::Scan),
        10 => database().prop_map(Step::Select),
        5 => (database(), database()).prop_map(|(one, other)| Step::Swap(one, other)),
        2 => Just(Step::FlushDatabase),
        1 => Just(Step::FlushAll),
        5 => Just(Step::ReleaseMemory),
    ]
}

/// The expected contents of a database: text and expiry by key.
type Expected = HashMap<String, (String, Option<u64>)>;

struct Model {
    databases: Vec<Expected>,
    selected: usize,
    now_ms: u64,
    /// When background expiry last ran.
    looked_after_ms: u64,
}

impl Model {
    fn forget_expired(&mut self) {
        for database in &mut self.databases {
            database.retain(|_, (_, expiry)| expiry.is_none_or(|expiry| expiry > self.now_ms));
        }
    }

    fn here(&mut self) -> &mut Expected {
        &mut self.databases[self.selected]
    }

    /// Takes a step on both sides and compares the replies.
    fn take(&mut self, step: &Step, client: &mut Client<'_>) {
        match step {
            Step::Set(number, value) => {
                let (key, text) = (key(*number), value.text());
                assert_eq!(client.run(&[b"SET", key.as_bytes(), text.as_bytes()]), b"+OK\r\n");
                self.here().insert(key, (text, None));
            }
            Step::Increment(number) => {
                let key = key(*number);
                let current = self.here().get(&key).map_or(Ok(0), |(text, _)| text.parse::<i64>());
                let reply = client.say(&format!("INCR {key}"));
                match current.ok().and_then(|current| current.checked_add(1)) {
                    Some(sum) => {
                        assert_eq!(reply, format!(":{sum}"));
                        self.here().entry(key).or_default().0 = sum.to_string();
                    }
                    None => assert!(reply.starts_with("-ERR"), "{reply}"),
                }
            }
            Step::Expire(number, after) => {
                let key = key(*number);
                let at = self.now_ms + after;
                let reply = client.say(&format!("PEXPIRE {key} {after}"));
                let found = self.here().get_mut(&key);
                assert_eq!(reply, format!(":{}", u8::from(found.is_some())));
                if let Some((_, expiry)) = found {
                    *expiry = Some(at);
                    self.forget_expired();
                }
            }
            Step::Persist(number) => {
                let key = key(*number);
                let had = self.here().get_mut(&key).and_then(|(_, expiry)| expiry.take()).is_some();
                assert_eq!(client.say(&format!("PERSIST {key}")), format!(":{}", u8::from(had)));
            }
            Step::Delete(number, count) => {
                let keys: Vec<String> = (*number..number + count).map(key).collect();
                let here = self.here();
                let removed = keys.iter().filter(|key| here.remove(*key).is_some()).count();
                assert_eq!(client.say(&format!("DEL {}", keys.join(" "))), format!(":{removed}"));
            }
            Step::Rename(from, to) => {
                let (from, to) = (key(*from), key(*to));
                let reply = client.say(&format!("RENAME {from} {to}"));
                match self.here().remove(&from) {
                    Some(value) => {
                        assert_eq!(reply, "+OK");
                        self.here().insert(to, value);
                    }
                    None => assert_eq!(reply, "-ERR no such key"),
                }
            }
            Step::Copy(from, to, database) => {
                let (from, to) = (key(*from), key(*to));
                if from == to && *database == self.selected {
                    return;
                }
                let reply = client.say(&format!("COPY {from} {to} DB {database} REPLACE"));
                let value = self.here().get(&from).cloned();
                assert_eq!(reply, format!(":{}", u8::from(value.is_some())));
                if let Some(value) = value {
                    self.databases[*database].insert(to, value);
                }
            }
            Step::Move(number, database) => {
                let key = key(*number);
                if *database == self.selected {
                    return;
                }
                let free = !self.databases[*database].contains_key(&key);
                let value = if free { self.here().remove(&key) } else { None };
                assert_eq!(
                    client.say(&format!("MOVE {key} {database}")),
                    format!(":{}", u8::from(value.is_some()))
                );
                if let Some(value) = value {
                    self.databases[*database].insert(key, value);
                }
            }
            Step::Get(number) => {
                let key = key(*number);
                let expected = match self.here().get(&key) {
                    Some((text, _)) => format!("${}\r\n{text}\r\n", text.len()),
                    None => "$-1\r\n".to_owned(),
                };
                assert_eq!(client.run(&[b"GET", key.as_bytes()]), expected.as_bytes());
                self.check_expiry(&key, client);
            }
            Step::Pass(milliseconds) => {
                // The keyspace is promised to be looked after at least this often.
                if self.now_ms + milliseconds - self.looked_after_ms > REACH_MS {
                    self.take(&Step::ExpireInBackground, client);
                }
                self.now_ms += milliseconds;
                client.caller.now_ms = self.now_ms;
                self.forget_expired();
            }
            Step::ExpireInBackground => {
                client.expire();
                self.looked_after_ms = self.now_ms;
            }
            Step::Scan => self.check_scan(client),
            Step::Select(database) => {
                self.selected = *database;
                client.database = *database;
            }
            Step::Swap(one, other) => {
                assert_eq!(client.say(&format!("SWAPDB {one} {other}")), "+OK");
                self.databases.swap(*one, *other);
            }
            Step::FlushDatabase => {
                assert_eq!(client.say("FLUSHDB SYNC"), "+OK");
                self.here().clear();
            }
            Step::FlushAll => {
                assert_eq!(client.say("FLUSHALL ASYNC"), "+OK");
                client.worker.garbage.take();
                self.databases.iter_mut().for_each(HashMap::clear);
            }
            Step::ReleaseMemory => {
                client.store.engine.release_memory(0);
            }
        }
        let keyspace = &client.store.engine.keyspace;
        assert_eq!(keyspace.used_bytes(), keyspace.usage(None).bytes(), "after {step:?}");
    }

    fn check_expiry(&mut self, key: &str, client: &mut Client<'_>) {
        let expected = match self.here().get(key) {
            None => -2,
            Some((_, None)) => -1,
            Some((_, Some(expiry))) => *expiry as i64,
        };
        assert_eq!(client.say(&format!("PEXPIRETIME {key}")), format!(":{expected}"), "{key}");
    }

    fn check_scan(&mut self, client: &mut Client<'_>) {
        let (mut cursor, mut found) = ("0".to_owned(), BTreeSet::new());
        loop {
            let reply = client.say(&format!("SCAN {cursor} COUNT 7"));
            let mut words = reply.split(' ').filter(|word| !word.starts_with(['*', '$']));
            cursor = words.next().expect("a cursor").to_owned();
            found.extend(words.map(str::to_owned));
            if cursor == "0" {
                break;
            }
        }
        let expected: BTreeSet<String> = self.here().keys().cloned().collect();
        assert_eq!(found, expected);
    }

    /// Everything that is there, and nothing else.
    fn check_all(&mut self, client: &mut Client<'_>) {
        for database in 0..DATABASES {
            (self.selected, client.database) = (database, database);
            self.check_scan(client);
            let keys: Vec<String> = self.here().keys().cloned().collect();
            for key in keys {
                let expected = self.here()[&key].0.clone();
                let reply = client.run(&[b"GET", key.as_bytes()]);
                assert_eq!(reply, format!("${}\r\n{expected}\r\n", expected.len()).as_bytes());
                self.check_expiry(&key, client);
            }
        }
    }

    /// Background expiry alone removes due keys, and the counts are right.
    fn check_background(&mut self, client: &mut Client<'_>) {
        // Expired keys are due when the next tick begins.
        let pending = self.now_ms % TICK_MS;
        self.take(&Step::Pass((TICK_MS - pending) % TICK_MS), client);
        client.expire();
        for (database, expected) in self.databases.iter().enumerate() {
            let usage = client.store.engine.keyspace.usage(Some(database));
            assert_eq!(usage.keys, expected.len(), "database {database}");
            let expiring = expected.values().filter(|(_, expiry)| expiry.is_some()).count();
            assert_eq!(usage.expiring, expiring, "database {database}");
        }
    }
}

/// Bytes of a store in which some databases once held something in both stripes, and nothing now.
fn emptied_bytes(databases: &[usize]) -> usize {
    let store = Store::new(1);
    let mut client = store.client(0);
    for database in databases {
        client.database = *database;
        for number in [0, 1] {
            client.say(&format!("SET {} v", key(number)));
            client.say(&format!("DEL {}", key(number)));
        }
    }
    store.engine.release_memory(0);
    store.engine.keyspace.usage(None).bytes()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn keyspace_is_a_map_whose_keys_expire(
        steps in proptest::collection::vec(step(), 1..1500),
    ) {
        let store = Store::new(1);
        let mut client = store.client(0);
        let databases = vec![Expected::new(); DATABASES];
        let mut model = Model { databases, selected: 0, now_ms: START_MS, looked_after_ms: START_MS };
        for step in &steps {
            model.take(step, &mut client);
        }
        model.check_background(&mut client);
        model.check_all(&mut client);

        // Everything away, key by key: the accounts close at nothing.
        for database in 0..DATABASES {
            client.database = database;
            for key in model.databases[database].keys() {
                prop_assert_eq!(client.say(&format!("UNLINK {key}")), ":1");
            }
        }
        let usage = store.engine.keyspace.usage(None);
        prop_assert_eq!((usage.keys, usage.expiring, usage.entry_bytes, usage.heap_bytes), (0, 0, 0, 0));
        store.engine.release_memory(0);
        let keyspace = &store.engine.keyspace;
        prop_assert_eq!(keyspace.used_bytes(), keyspace.usage(None).bytes());
        // A table that once had chains keeps the directory of their buckets, but no bucket.
        let tables = 2 * DATABASES;
        let left_bytes = keyspace.used_bytes() - emptied_bytes(&[0, 1, 2, 3]).min(keyspace.used_bytes());
        prop_assert!(left_bytes <= tables * CHAIN_DIRECTORY_BYTES_MAX, "{left_bytes} bytes");
    }
}

#[test]
fn keys_with_an_expiry_vanish_on_time_without_access() {
    let store = Store::new(1);
    let mut client = store.client(0);
    for number in 0..20_000 {
        client.say(&format!("SET key:{number} v"));
        client.say(&format!("PEXPIRE key:{number} {}", 1 + number % 1000));
    }
    client.say("SET stays v");
    client.caller.now_ms = START_MS + 500 + TICK_MS;
    client.expire();
    let left = store.engine.keyspace.usage(Some(0)).keys;
    assert!((9_000 - 64 * 20..=10_001).contains(&left), "about half: {left}");
    client.caller.now_ms = START_MS + 1000 + TICK_MS;
    client.expire();
    let usage = store.engine.keyspace.usage(Some(0));
    assert_eq!((usage.keys, usage.expiring), (1, 0));
    assert_eq!(client.worker.statistics.expired_keys.get(), 20_000);
}

#[test]
fn hints_survive_overwriting_renaming_and_persisting() {
    // Each scenario leaves a key that must vanish; neighbours that lose their expiry must stay.
    for scenario in [
        vec!["SET a 1", "PEXPIRE a 100", "RENAME a b"],
        vec!["SET a 1", "PEXPIRE a 100", "COPY a b", "PERSIST a"],
        vec!["SET a 1", "PEXPIRE a 100", "INCR a"],
        vec!["SET a 1", "PEXPIRE a 100000000000", "PEXPIRE a 100"],
        vec!["SET a 1", "PEXPIRE a 50", "SET a 2", "PEXPIRE a 100"],
        vec!["SET a 1", "PEXPIRE a 50", "PERSIST a", "PEXPIRE a 100"],
        vec!["SET a 1", "PEXPIRE a 100", "MOVE a 1"],
        vec!["SET a 1", "PEXPIRE a 100", "SWAPDB 0 1"],
    ] {
        let store = Store::new(1);
        let mut client = store.client(0);
        for line in &scenario {
            assert!(!client.say(line).starts_with('-'), "{line}");
        }
        client.caller.now_ms += 100 + TICK_MS;
        client.expire();
        assert_eq!(store.engine.keyspace.usage(None).expiring, 0, "{scenario:?}");
        assert_eq!(client.worker.statistics.expired_keys.get(), 1, "{scenario:?}");
    }
}
