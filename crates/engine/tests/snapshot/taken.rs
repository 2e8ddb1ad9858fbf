//! The contents of a snapshot, compared with the log before its cut.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use dunlin_engine::{
    Caller, Engine, Environment, Log, LogConsumer, Policy, Request, Worker,
    command::CommandTable,
    commands,
    keyspace::Keyspace,
    rdb::{Compressor, EXPIRY_MS, Input, Output, Version, read_value},
    snapshot::{Form, Snapshot, SnapshotOptions},
    value::{CollectionLimits, Layout},
};
use dunlin_resp::{ReplyBuffer, SharedSlice};

use crate::common::{Client, DATABASES, START_MS, Store};

/// How snapshots are taken: of little, so that there are many chunks.
pub(crate) const OPTIONS: SnapshotOptions =
    SnapshotOptions { form: Form::rdb(true), queue_bytes_max: 64 * 1024, lent_bytes_min: 1024, slots: None };

/// A log in memory.
#[derive(Debug, Default)]
pub(crate) struct Tape(pub(crate) Mutex<Vec<u8>>);

impl Log for Tape {
    fn append(&self, _: usize, record: &[u8]) -> u64 {
        let mut tape = self.0.lock().unwrap();
        tape.extend_from_slice(record);
        tape.len() as u64
    }

    fn append_shared(&self, participant: usize, record: Vec<SharedSlice>) -> u64 {
        self.append(participant, &record.iter().flat_map(|part| part.to_vec()).collect::<Vec<u8>>())
    }
}

impl Tape {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

pub(crate) fn recorded_store(clients: usize) -> (Store, Arc<Tape>) {
    let tape = Arc::new(Tape::default());
    let keyspace = Keyspace::new(1, clients, DATABASES, [1, 2, 3, 4]);
    let engine = Engine::with_log(keyspace, Arc::clone(&tape) as Arc<dyn Log>);
    engine.log.turn(LogConsumer::File, true);
    (Store { engine, table: CommandTable::new(commands::FAMILIES) }, tape)
}

pub(crate) fn limits() -> CollectionLimits {
    CollectionLimits {
        block_max_members: 32,
        hash_max_listpack_entries: 8,
        hash_max_listpack_value: 64,
        list_max_listpack_size: 4,
        set_max_intset_entries: 8,
        set_max_listpack_entries: 8,
        set_max_listpack_value: 64,
        zset_max_listpack_entries: 8,
        zset_max_listpack_value: 64,
        stream_node_max_bytes: 4096,
        stream_node_max_entries: 5,
        hll_sparse_max_bytes: 3000,
        ..CollectionLimits::default()
    }
}

pub(crate) fn client_of(store: &Store, number: usize) -> Client<'_> {
    let mut client = store.client(number);
    client.policy.collection_limits = limits();
    client
}

/// The contents of a snapshot: its place in the log, and the keys of databases as in a file.
pub(crate) struct Taken {
    pub(crate) offset: usize,
    pub(crate) keys: u64,
    pub(crate) parts: Vec<(usize, Vec<u8>)>,
}

/// Makes a cut; `None` if there are too many under way.
pub(crate) fn cut(
    client: &mut Client<'_>,
    tape: &Tape,
    options: SnapshotOptions,
) -> Option<(Snapshot, Taken)> {
    let store = client.store;
    store.engine.exclusively(
        0,
        Environment::new(&client.policy, &client.caller),
        &mut client.worker,
        |context| {
            let snapshot = context.begin_snapshot(options)?;
            let offset = tape.0.lock().unwrap().len();
            Some((snapshot, Taken { offset, keys: 0, parts: Vec::new() }))
        },
    )
}

impl Taken {
    pub(crate) fn take(&mut self, snapshot: &Snapshot, compressor: &mut Compressor) {
        for chunk in snapshot.take() {
            let mut bytes = Vec::new();
            // Either way, as time allows.
            let small = self.parts.len().is_multiple_of(2);
            chunk.write(&mut Output::new(&mut bytes, Some(compressor)), small).unwrap();
            self.keys += chunk.keys();
            match self.parts.last_mut() {
                // A further piece of a collection: it belongs to the entry before it.
                Some((_, part)) if chunk.keys() == 0 => part.append(&mut bytes),
                _ => self.parts.push((chunk.database(), bytes)),
            }
            snapshot.release(chunk);
        }
    }

    /// The snapshot as a store. No key may be there twice.
    pub(crate) fn load(&self) -> Store {
        let store = Store::new(1);
        let (limits, mut keys) = (limits(), 0);
        let layout = Layout { limits: &limits, resources: store.engine.keyspace.resources() };
        for (database, bytes) in &self.parts {
            let mut input = Input::new(&bytes[..]);
            while !input.is_at_end().unwrap() {
                let (mut number, mut expiry_ms) = (input.byte().unwrap(), None);
                if number == EXPIRY_MS {
                    expiry_ms = Some(input.milliseconds().unwrap() as u64);
                    number = input.byte().unwrap();
                }
                let key = input.string().unwrap();
                let value = read_value(number, Version::Valkey(80), &mut input, layout).unwrap();
                let is_new = store.engine.load(*database, &key, value, expiry_ms, 0, START_MS).is_some();
                assert!(is_new, "{} is there twice", key.escape_ascii());
                keys += 1;
            }
        }
        assert_eq!(keys, self.keys);
        store
    }
}

/// Takes a line of RESP off a log: the number behind its mark.
pub(crate) fn number(log: &mut &[u8]) -> usize {
    let end = log.windows(2).position(|two| two == b"\r\n").unwrap();
    let number = std::str::from_utf8(&log[1..end]).unwrap().parse().unwrap();
    *log = &log[end + 2..];
    number
}

/// Takes a command off a log.
pub(crate) fn command<'l>(log: &mut &'l [u8]) -> Vec<&'l [u8]> {
    let words = (0..number(log)).map(|_| {
        let length = number(log);
        let word = &log[..length];
        *log = &log[length + 2..];
        word
    });
    words.collect()
}

/// Runs the commands of a log. Transactions are run command by command: no other client looks in
/// between.
pub(crate) fn replay(store: &Store, mut log: &[u8]) {
    let mut client = store.client(0);
    client.policy = Policy { string_bytes_max: usize::MAX, collection_limits: limits(), ..Policy::default() };
    client.caller = Caller { replaying_at_ms: START_MS, deny_blocking: true, ..Caller::default() };
    while !log.is_empty() {
        let words = command(&mut log);
        match words[..] {
            [b"MULTI"] | [b"EXEC"] => {}
            [b"SELECT", database] => {
                client.database = std::str::from_utf8(database).unwrap().parse().unwrap()
            }
            _ => drop(client.run(&words)),
        }
        drop(client.worker.garbage.take());
    }
}

/// The contents of a store, be they expired: each key with its database, when it expires, and a digest of its value.
pub(crate) fn contents(store: &Store) -> Contents {
    let table = CommandTable::new(&[commands::debug::COMMANDS]);
    // At this time nothing has expired.
    let (policy, caller) = (Policy::default(), Caller { now_ms: 0, ..Caller::default() });
    let environment = Environment::new(&policy, &caller);
    let mut worker = Worker::new(0, 0);
    let mut contents = BTreeMap::new();
    for database in 0..DATABASES {
        let mut names = Vec::new();
        store
            .engine
            .exclusively(database, environment, &mut worker, |context| {
                context.try_for_each(database, |entry| {
                    names.push((entry.key().to_vec(), entry.expiry()));
                    Ok::<_, ()>(())
                })
            })
            .unwrap();
        for (name, expiry) in names {
            let words: [&[u8]; 2] = [b"digest-value", &name];
            let request =
                Request { entry: table.find(words[0]).unwrap(), words: &words, keys: &[], encoded: &[] };
            let (mut reply, mut inside) = (ReplyBuffer::default(), Some(store.engine.keyspace.enter(0)));
            let engine = &store.engine;
            engine.execute(&request, database, environment, &mut worker, &mut inside, &mut reply).unwrap();
            let digest: Vec<u8> = reply.chunks().flatten().copied().collect();
            let value = format!("{expiry:?} {}", String::from_utf8(digest).unwrap().trim_end());
            contents.insert((database, String::from_utf8(name).unwrap()), value);
        }
    }
    contents
}

/// The base is the state at the cut, and leads to the state in the end.
pub(crate) fn check(taken: &Taken, log: &[u8], store: &Store) {
    let base = taken.load();
    let before = Store::new(1);
    replay(&before, &log[..taken.offset]);
    let (found, expected) = (contents(&base), contents(&before));
    assert_eq!(difference(&found, &expected), NONE, "the base is the state at the cut");
    replay(&base, &log[taken.offset..]);
    let (found, expected) = (contents(&base), contents(store));
    assert_eq!(difference(&found, &expected), NONE, "base and log make the state in the end");
}

pub(crate) type Contents = BTreeMap<(usize, String), String>;
pub(crate) const NONE: Vec<String> = Vec::new();

/// Some keys that two stores do not have alike.
pub(crate) fn difference(found: &Contents, expected: &Contents) -> Vec<String> {
    let keys: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let differ = keys.into_iter().filter(|key| found.get(key) != expected.get(key)).take(20);
    differ.map(|key| format!("{key:?}: {:?} instead of {:?}", found.get(key), expected.get(key))).collect()
}
