//! Snapshots while everything changes: what a snapshot holds is what the log says of the time before its cut,
//! and with the log behind it, what there is in the end.
//!
//! ```text
//! records  ─────────────┬──────────────────────▶ end
//! cut      base  =  replay of these
//! end      base  +  replay of those  =  what there is
//! ```

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use common::{Client, DATABASES, START_MS, Store};
use dunlin_engine::{
    Engine, Environment, Log, Request, Worker,
    command::CommandTable,
    commands,
    keyspace::Keyspace,
    rdb::{Compressor, EXPIRY_MS, Input, Output, Version, read_value},
    snapshot::{Advance, Chunk, Form, SNAPSHOTS_MAX, Snapshot, SnapshotOptions},
    value::{CollectionLimits, Layout},
};
use dunlin_resp::ReplyBuffer;
use proptest::prelude::*;

/// A log in memory.
#[derive(Debug, Default)]
struct Tape(Mutex<Vec<u8>>);

impl Log for Tape {
    fn append(&self, _: usize, record: &[u8]) -> u64 {
        let mut tape = self.0.lock().unwrap();
        tape.extend_from_slice(record);
        tape.len() as u64
    }
}

impl Tape {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

fn recorded_store(clients: usize) -> (Store, Arc<Tape>) {
    let tape = Arc::new(Tape::default());
    let keyspace = Keyspace::new(1, clients, DATABASES, [1, 2, 3, 4]);
    let engine = Engine::with_log(keyspace, Arc::clone(&tape) as Arc<dyn Log>);
    engine.log.turn(true);
    (Store { engine, table: CommandTable::new(commands::FAMILIES) }, tape)
}

fn limits() -> CollectionLimits {
    CollectionLimits {
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

fn client_of(store: &Store, number: usize) -> Client<'_> {
    let mut client = store.client(number);
    client.environment.collection_limits = limits();
    client
}

/// What a snapshot has brought: its place in the log, its time, and the keys of databases as in a file.
struct Taken {
    offset: usize,
    cut_ms: u64,
    keys: u64,
    parts: Vec<(usize, Vec<u8>)>,
}

/// Makes a cut; `None` where there are too many under way.
fn cut(client: &mut Client<'_>, tape: &Tape, options: SnapshotOptions) -> Option<(Snapshot, Taken)> {
    let store = client.store;
    store.engine.exclusively(0, &client.environment, &mut client.worker, |context| {
        let snapshot = context.begin_snapshot(options)?;
        let (offset, cut_ms) = (tape.0.lock().unwrap().len(), context.environment().now_ms);
        Some((snapshot, Taken { offset, cut_ms, keys: 0, parts: Vec::new() }))
    })
}

impl Taken {
    fn take(&mut self, snapshot: &Snapshot, compressor: &mut Compressor) {
        for chunk in snapshot.take() {
            let mut bytes = Vec::new();
            // One way or the other, as time allows.
            let small = self.parts.len().is_multiple_of(2);
            chunk.write(&mut Output::new(&mut bytes, Some(compressor)), small).unwrap();
            self.keys += chunk.keys();
            match self.parts.last_mut() {
                // A further piece of a collection: it belongs to what is before it.
                Some((_, part)) if chunk.keys() == 0 => part.append(&mut bytes),
                _ => self.parts.push((chunk.database(), bytes)),
            }
            snapshot.release(chunk);
        }
    }

    /// The snapshot as a store. No key may be there twice.
    fn load(&self) -> Store {
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
                let is_new = store.engine.load(*database, &key, value, expiry_ms, 0, self.cut_ms).is_some();
                assert!(is_new, "{} is there twice", key.escape_ascii());
                keys += 1;
            }
        }
        assert_eq!(keys, self.keys);
        store
    }
}

/// Takes a line of RESP off a log: the number behind its mark.
fn number(log: &mut &[u8]) -> usize {
    let end = log.windows(2).position(|two| two == b"\r\n").unwrap();
    let number = std::str::from_utf8(&log[1..end]).unwrap().parse().unwrap();
    *log = &log[end + 2..];
    number
}

/// Takes a command off a log.
fn command<'l>(log: &mut &'l [u8]) -> Vec<&'l [u8]> {
    let words = (0..number(log)).map(|_| {
        let length = number(log);
        let word = &log[..length];
        *log = &log[length + 2..];
        word
    });
    words.collect()
}

/// Runs the commands of a log. Transactions are run command by command: nobody looks in between.
fn replay(store: &Store, mut log: &[u8]) {
    let mut client = store.client(0);
    client.environment = Environment {
        now_ms: 0,
        replaying_at_ms: START_MS,
        string_bytes_max: usize::MAX,
        deny_blocking: true,
        collection_limits: limits(),
        ..Environment::default()
    };
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

/// What there is at a time: each key with its database, when it expires, and a digest of its value.
fn contents(store: &Store, now_ms: u64) -> Contents {
    let table = CommandTable::new(&[commands::debug::COMMANDS]);
    let environment = Environment { now_ms, ..Environment::default() };
    let mut worker = Worker::new(0, 0);
    let mut contents = BTreeMap::new();
    for database in 0..DATABASES {
        let mut names = Vec::new();
        store
            .engine
            .exclusively(database, &environment, &mut worker, |context| {
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
            engine.execute(&request, database, &environment, &mut worker, &mut inside, &mut reply).unwrap();
            let digest: Vec<u8> = reply.chunks().flatten().copied().collect();
            let value = format!("{expiry:?} {}", String::from_utf8(digest).unwrap().trim_end());
            contents.insert((database, String::from_utf8(name).unwrap()), value);
        }
    }
    contents
}

/// The base is the state at the cut, and leads to the state in the end.
fn check(taken: &Taken, log: &[u8], store: &Store, end_ms: u64) {
    let base = taken.load();
    let before = Store::new(1);
    replay(&before, &log[..taken.offset]);
    let (found, expected) = (contents(&base, taken.cut_ms), contents(&before, taken.cut_ms));
    assert_eq!(difference(&found, &expected), NONE, "the base is the state at the cut");
    replay(&base, &log[taken.offset..]);
    let (found, expected) = (contents(&base, end_ms), contents(store, end_ms));
    assert_eq!(difference(&found, &expected), NONE, "base and log make the state in the end");
}

type Contents = BTreeMap<(usize, String), String>;
const NONE: Vec<String> = Vec::new();

/// Some keys that two stores do not have alike.
fn difference(found: &Contents, expected: &Contents) -> Vec<String> {
    let keys: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let differ = keys.into_iter().filter(|key| found.get(key) != expected.get(key)).take(20);
    differ.map(|key| format!("{key:?}: {:?} instead of {:?}", found.get(key), expected.get(key))).collect()
}

/// Numbers from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % end
    }
}

/// Commands in the words of [`Dice::line`].
const LINES: &[&str] = &[
    "SET s:K V",
    "SET s:K V",
    "SET s:K V PX T",
    "SET s:K L",
    "SET s:K KEEPTTL V",
    "GETSET s:K N",
    "APPEND s:K V",
    "APPEND s:K L",
    "SETRANGE s:K N V",
    "SETBIT s:K N 1",
    "SETBIT s:K 3 0",
    "SET s:K N",
    "INCR s:K",
    "INCRBYFLOAT s:K 0.5",
    "GETDEL s:K",
    "MSET s:K V s:K V s:K V",
    "BITOP XOR s:K s:K s:K",
    "PFADD p:K V N",
    "PFMERGE p:K p:K p:K",
    "HSET h:K N V N V",
    "HSET h:1 N V",
    "HDEL h:K N",
    "HINCRBY h:K N 1",
    "HPEXPIRE h:K T FIELDS 2 N N",
    "HPERSIST h:K FIELDS 1 N",
    "HSETEX h:K PX T FIELDS 1 N V",
    "HGETDEL h:K FIELDS 1 N",
    "SADD t:K N V",
    "SADD t:K N",
    "SREM t:K N",
    "SPOP t:K",
    "SMOVE t:K t:K N",
    "SUNIONSTORE t:K t:K t:K",
    "ZADD z:K N V",
    "ZINCRBY z:K N V",
    "ZPOPMIN z:K",
    "ZREMRANGEBYRANK z:K 0 1",
    "ZUNIONSTORE z:K 2 z:K z:K",
    "GEOADD z:K 13.3 38.1 V",
    "RPUSH l:K V N V",
    "LPUSH l:K V",
    "LPOP l:K",
    "LMOVE l:K l:K LEFT RIGHT",
    "LTRIM l:K 1 9",
    "LSET l:K 0 V",
    "LINSERT l:K BEFORE N V",
    "LREM l:K 0 N",
    "XADD x:K * f V",
    "XADD x:K MAXLEN 7 * f V g N",
    "XTRIM x:K MAXLEN 3",
    "XGROUP CREATE x:K g 0 MKSTREAM",
    "XREADGROUP GROUP g c COUNT 2 STREAMS x:K >",
    "EXPIRE G 100",
    "PEXPIRE G T",
    "PEXPIRE G T",
    "PERSIST G",
    "DEL G",
    "UNLINK G G G",
    "RENAME G G",
    "RENAMENX G G",
    "COPY G G REPLACE",
    "COPY G G DB D REPLACE",
    "MOVE G D",
    "SORT l:K ALPHA STORE l:K",
    "GETEX s:K PX T",
    "TOUCH G",
    "GET s:K",
];
const RARE: &[&str] = &["FLUSHDB", "FLUSHALL ASYNC", "SWAPDB 0 D", "SWAPDB 1 D", "FLUSHDB ASYNC"];

impl Dice {
    /// A line with its words filled in: K a name, G a name with a type, N a small number, D a database, T a time to
    /// live, V a value, L a long one.
    fn line(&mut self, line: &str) -> String {
        let name = |dice: &mut Self| format!("{{{}}}{}", dice.roll(3), dice.roll(150));
        let words = line.split(' ').map(|word| match word {
            "G" => {
                let kind = ["s", "h", "t", "z", "l", "x", "p"][self.roll(7) as usize];
                format!("{kind}:{}", name(self))
            }
            "N" => self.roll(12).to_string(),
            "D" => self.roll(DATABASES as u64).to_string(),
            "T" => (1 + self.roll(400)).to_string(),
            "V" => format!("value:{}", self.roll(20)).repeat(1 + self.roll(4) as usize),
            "L" => format!("long:{}", self.roll(20)).repeat(200 + self.roll(400) as usize),
            word => match word.strip_suffix('K') {
                Some(kind) if kind.ends_with(':') => format!("{kind}{}", name(self)),
                _ => word.to_owned(),
            },
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// Runs a random command.
    fn play(&mut self, client: &mut Client<'_>) {
        client.database = self.roll(DATABASES as u64) as usize;
        if self.roll(40) == 0 {
            // A value that is built elsewhere and put in as a whole.
            let (from, to) = (self.line("DUMP G"), self.line("G"));
            let dump = client.run(&from.split(' ').map(str::as_bytes).collect::<Vec<_>>());
            if let Some(start) = dump.windows(2).position(|two| two == b"\r\n").filter(|_| dump[1] != b'-') {
                let dump = &dump[start + 2..dump.len() - 2];
                client.run(&[b"RESTORE", to.as_bytes(), b"0", dump, b"REPLACE"]);
            }
            return;
        }
        let lines = if self.roll(1500) == 0 { RARE } else { LINES };
        let line = lines[self.roll(lines.len() as u64) as usize];
        let line = self.line(line);
        client.say(&line);
    }
}

const OPTIONS: SnapshotOptions =
    SnapshotOptions { form: Form::rdb(true), queue_bytes_max: 64 * 1024, lent_bytes_min: 1024 };

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// One thread, so that every step is known: several snapshots that overlap in every way.
    #[test]
    fn a_snapshot_is_the_state_at_its_cut(seed: u64) {
        let (store, tape) = recorded_store(1);
        let mut client = client_of(&store, 0);
        let (mut dice, mut compressor) = (Dice(seed), Compressor::default());
        // With what there was at the cut.
        let mut running: Vec<(Snapshot, (Taken, Contents))> = Vec::new();
        let mut done: Vec<Taken> = Vec::new();
        let mut left = 6_000;
        while left > 0 || !running.is_empty() {
            left = usize::saturating_sub(left, 1);
            dice.play(&mut client);
            drop(client.worker.garbage.take());
            if dice.roll(20) == 0 {
                client.environment.now_ms += dice.roll(30);
                client.expire();
            }
            if left > 0 && dice.roll(400) == 0 {
                match cut(&mut client, &tape, OPTIONS) {
                    Some((snapshot, taken)) => {
                        let now = contents(&store, taken.cut_ms);
                        running.push((snapshot, (taken, now)));
                    }
                    None => prop_assert_eq!(running.len(), SNAPSHOTS_MAX),
                }
            }
            for at in (0..running.len()).rev() {
                let (snapshot, (taken, _)) = &mut running[at];
                if dice.roll(8) == 0 {
                    let advance = snapshot.advance(&store.engine.keyspace, dice.roll(4000) as usize);
                    taken.take(snapshot, &mut compressor);
                    if advance == Advance::Complete {
                        let (taken, then) = running.remove(at).1;
                        let found = contents(&taken.load(), taken.cut_ms);
                        prop_assert_eq!(difference(&found, &then), NONE);
                        done.push(taken);
                    }
                }
            }
        }
        let log = tape.bytes();
        prop_assert!(done.len() > 3);
        for taken in &done {
            check(taken, &log, &store, client.environment.now_ms);
        }
        prop_assert!(!store.engine.keyspace.snapshots().is_congested());
    }
}

/// Tells others that this thread has failed.
struct EndOnPanic<'a>(&'a AtomicBool);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(thread::panicking(), Relaxed);
    }
}

/// Threads that change everything while others take snapshots as fast as they can.
#[test]
fn snapshots_hold_while_threads_write() {
    const WRITERS: usize = 3;
    const ROUNDS: usize = 60_000;
    const SNAPSHOTS_MIN: usize = 6;
    let (store, tape) = recorded_store(WRITERS + SNAPSHOTS_MAX);
    let (clock, writing, failed) = (AtomicU64::new(START_MS), AtomicBool::new(true), AtomicBool::new(false));
    let done: Mutex<Vec<Taken>> = Mutex::default();
    thread::scope(|scope| {
        let (store, tape, clock, writing, failed, done) = (&store, &tape, &clock, &writing, &failed, &done);
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                scope.spawn(move || {
                    let (mut client, mut dice) = (client_of(store, number), Dice(number as u64));
                    let has_enough = || failed.load(Relaxed) || done.lock().unwrap().len() >= SNAPSHOTS_MIN;
                    for round in (0..).take_while(|round| *round < ROUNDS || !has_enough()) {
                        client.environment.now_ms = clock.load(Relaxed);
                        dice.play(&mut client);
                        drop(client.worker.garbage.take());
                        if round % 50 == 0 {
                            clock.fetch_add(dice.roll(5), Relaxed);
                            client.expire();
                        }
                        while store.engine.keyspace.snapshots().is_congested() {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        for number in 0..SNAPSHOTS_MAX {
            scope.spawn(move || {
                let _end = EndOnPanic(failed);
                let (mut client, mut compressor) =
                    (client_of(store, WRITERS + number), Compressor::default());
                while writing.load(Relaxed) {
                    client.environment.now_ms = clock.load(Relaxed);
                    let (mut snapshot, mut taken) = cut(&mut client, tape, OPTIONS).expect("there is room");
                    while snapshot.advance(&store.engine.keyspace, 3000) != Advance::Complete {
                        taken.take(&snapshot, &mut compressor);
                        thread::yield_now();
                    }
                    taken.take(&snapshot, &mut compressor);
                    done.lock().unwrap().push(taken);
                }
            });
        }
        let results: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        writing.store(false, Relaxed);
        results.into_iter().for_each(|result| result.expect("no writer failed"));
    });
    let (log, done) = (tape.bytes(), done.into_inner().unwrap());
    // All are as good; a few of them, from everywhere, take long enough to check.
    for taken in done.iter().step_by(done.len().div_ceil(8)) {
        check(taken, &log, &store, clock.load(Relaxed));
    }
}

#[test]
fn a_cancelled_snapshot_leaves_no_trace() {
    let (store, tape) = recorded_store(1);
    let (mut client, mut compressor) = (client_of(&store, 0), Compressor::default());
    (0..2000).for_each(|number| drop(client.say(&format!("SET key:{number} {number}"))));
    for _ in 0..SNAPSHOTS_MAX + 1 {
        let (mut snapshot, _) = cut(&mut client, &tape, OPTIONS).expect("there is room");
        assert_eq!(snapshot.keys(), 2000);
        assert_eq!(snapshot.advance(&store.engine.keyspace, 30_000), Advance::More);
        snapshot.cancel();
        (0..100).for_each(|number| drop(client.say(&format!("APPEND key:{number} x"))));
        while snapshot.advance(&store.engine.keyspace, 30_000) != Advance::Complete {}
    }
    let (mut snapshot, mut taken) = cut(&mut client, &tape, OPTIONS).expect("there is room");
    client.say("FLUSHALL");
    assert_eq!(store.engine.keyspace.usage(None).keys, 0);
    while snapshot.advance(&store.engine.keyspace, 30_000) != Advance::Complete {}
    taken.take(&snapshot, &mut compressor);
    drop(snapshot);
    assert_eq!(taken.keys, 2000, "what was flushed behind the cut is in the snapshot");
    check(&taken, &tape.bytes(), &store, START_MS);
    assert!(store.engine.keyspace.snapshots().has_room());
}

/// Writers are told to wait while nobody takes what they copy, and that they may go on.
#[test]
fn the_queue_is_bounded_by_who_writes() {
    let (store, tape) = recorded_store(1);
    let mut client = client_of(&store, 0);
    let value = "x".repeat(1000);
    (0..2000).for_each(|number| drop(client.say(&format!("SET key:{number} {value}"))));
    let (mut snapshot, _) = cut(&mut client, &tape, OPTIONS).expect("there is room");
    let snapshots = store.engine.keyspace.snapshots();
    let mut written = 0;
    while !snapshots.is_congested() {
        client.say(&format!("SET key:{written} y"));
        written += 1;
    }
    let bytes_max = OPTIONS.queue_bytes_max + 40 * 1024;
    assert!(snapshot.waiting_bytes() <= bytes_max, "{} bytes", snapshot.waiting_bytes());
    let chunks: Vec<_> = snapshot.take().collect();
    assert!(snapshots.is_congested(), "they are in memory until they have been written");
    assert!(chunks.iter().map(Chunk::keys).sum::<u64>() <= written);
    let mut reliefs = 0;
    for chunk in chunks {
        let relieved = snapshot.release(chunk);
        reliefs += u32::from(relieved);
        let is_half = snapshot.waiting_bytes() <= OPTIONS.queue_bytes_max / 2;
        assert_eq!(snapshots.is_congested(), !is_half);
    }
    assert_eq!((reliefs, snapshot.waiting_bytes()), (1, 0));
    while snapshot.advance(&store.engine.keyspace, usize::MAX) != Advance::Complete {}
}

/// What is not to be compressed when it is copied stays as it is, whenever it is written.
#[test]
fn strings_are_compressed_where_that_was_foreseen() {
    const FIRST_CHUNKS_MAX: usize = 16 * 20 * 1024;
    let (store, tape) = recorded_store(1);
    let (mut client, mut compressor) = (client_of(&store, 0), Compressor::default());
    let value = "x".repeat(1000);
    (0..2000).for_each(|number| drop(client.say(&format!("SET key:{number} {value}"))));
    let mut bytes_with = |form, compresses| {
        let options = SnapshotOptions { form, ..OPTIONS };
        let (mut snapshot, _) = cut(&mut client, &tape, options).expect("there is room");
        snapshot.set_compresses(compresses);
        while snapshot.advance(&store.engine.keyspace, usize::MAX) != Advance::Complete {}
        let mut bytes = Vec::new();
        for chunk in snapshot.take() {
            chunk.write(&mut Output::new(&mut bytes, Some(&mut compressor)), true).unwrap();
        }
        bytes.len()
    };
    assert!(bytes_with(Form::rdb(true), true) < 2000 * 100);
    // The first chunk of each stripe was begun with the cut.
    assert!(bytes_with(Form::rdb(true), false) > 2000 * 1000 - FIRST_CHUNKS_MAX);
    assert!(bytes_with(Form::rdb(false), true) > 2000 * 1000, "it was not asked for");
}

/// Large collections are neither copied, nor does anyone wait for them who changes, replaces or removes one.
#[test]
fn large_collections_are_not_copied() {
    const FIELDS: usize = 1000;
    let (store, tape) = recorded_store(1);
    let (mut client, mut compressor) = (client_of(&store, 0), Compressor::default());
    let fill: [(&str, &dyn Fn(usize) -> String); 5] = [
        ("h", &|number| format!("HSET h:1 field:{number} {number}")),
        ("t", &|number| format!("SADD t:1 member:{number}")),
        ("z", &|number| format!("ZADD z:1 {number} member:{number}")),
        ("l", &|number| format!("RPUSH l:1 element:{number}")),
        ("x", &|number| format!("XADD x:1 {}-1 field {number}", number + 1)),
    ];
    let change = |kind: &str| match kind {
        "h" => "HINCRBY h:1 field:7 1",
        "t" => "SREM t:1 member:7",
        "z" => "ZINCRBY z:1 1 member:7",
        "l" => "LPOP l:1",
        _ => "XADD x:1 * field new",
    };
    for step in ["visited", "changed", "forced", "removed", "replaced", "expired"] {
        client.say("FLUSHALL");
        for (_, line) in fill {
            (0..FIELDS).for_each(|number| drop(client.say(&line(number))));
        }
        let (mut snapshot, mut taken) = cut(&mut client, &tape, OPTIONS).expect("there is room");
        if step == "visited" {
            // The walk is over when the first piece comes.
            while snapshot.waiting_bytes() == 0 {
                assert_eq!(snapshot.advance(&store.engine.keyspace, 1), Advance::More);
            }
        }
        for (kind, _) in fill {
            client.environment.waits_for_views = step != "forced";
            let line = match step {
                "removed" => format!("DEL {kind}:1"),
                "replaced" => format!("SET {kind}:1 text"),
                "expired" if kind == "h" => {
                    let fields: String = (0..FIELDS).map(|number| format!(" field:{number}")).collect();
                    format!("HPEXPIRE h:1 1 FIELDS {FIELDS}{fields}")
                }
                "expired" => format!("PEXPIRE {kind}:1 1"),
                _ => change(kind).to_owned(),
            };
            let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
            assert_eq!(client.try_run(&words).err(), None, "{step}: {line}");
        }
        if step == "expired" {
            client.environment.now_ms += 2;
            client.expire();
        } else {
            assert!(snapshot.waiting_bytes() < 4000, "what is beside an element is copied, and no more");
        }
        while snapshot.advance(&store.engine.keyspace, 1000) != Advance::Complete {
            taken.take(&snapshot, &mut compressor);
        }
        taken.take(&snapshot, &mut compressor);
        drop(snapshot);
        check(&taken, &tape.bytes(), &store, client.environment.now_ms);
        assert_eq!(taken.keys, fill.len() as u64);
    }
}

/// Commands on large collections: B is one of two, M a member, of which there may be [`MEMBERS`], I the ID of an entry.
const LARGE_LINES: &[&str] = &[
    "HSET h:B M V",
    "HSET h:B M N M V",
    "HDEL h:B M M M",
    "HPEXPIRE h:B T FIELDS 1 M",
    "SADD t:B M M",
    "SREM t:B M M",
    "SPOP t:B",
    "SPOP t:B 100",
    "SMOVE t:B t:B M",
    "ZADD z:B N M N M",
    "ZINCRBY z:B N M",
    "ZREM z:B M M",
    "ZPOPMAX z:B 9",
    "ZREMRANGEBYRANK z:B 3 20",
    "RPUSH l:B V N V",
    "LPUSH l:B V N",
    "LPOP l:B 3",
    "RPOP l:B 2",
    "LMOVE l:B l:B LEFT RIGHT",
    "LSET l:B M N",
    "LINSERT l:B BEFORE N V",
    "LREM l:B 3 N",
    "XADD x:B * f V",
    "XADD x:B MAXLEN ~ 1500 * f V g N",
    "XADD x:B N-N f V",
    "XDEL x:B I I I",
    "XTRIM x:B MAXLEN 1400",
    "XREADGROUP GROUP g c COUNT 2 STREAMS x:B >",
    "XACK x:B g I",
];
/// Those that change all of one, or move it.
const RARE_LARGE_LINES: &[&str] = &[
    "ZREMRANGEBYRANK z:B 100 1600",
    "SPOP t:B 1500",
    "ZUNIONSTORE z:B 1 z:B WEIGHTS 2",
    "SUNIONSTORE t:B t:B t:B",
    "RENAME z:B z:B",
    "RENAME h:B h:B",
    "COPY t:B t:B REPLACE",
    "COPY z:B z:B REPLACE",
    "COPY h:B h:B DB 1 REPLACE",
    "DEL h:B",
    "UNLINK t:B",
    "EXPIRE z:B 1000",
    "PERSIST z:B",
    "PEXPIRE t:B T",
    "LTRIM l:B 200 -1",
    "LTRIM l:B 0 500",
    "LREM l:B 0 N",
    "LINSERT l:B AFTER N L",
    "RENAME l:B l:B",
    "COPY l:B l:B REPLACE",
    "SORT l:B ALPHA STORE l:B",
    "DEL l:B",
    "XTRIM x:B MAXLEN 3",
    "XTRIM x:B MINID I",
    "XGROUP CREATE x:B g 0 MKSTREAM",
    "XTRIM x:B MAXLEN 0",
    "XSETID x:B 1-1",
    "RENAME x:B x:B",
    "COPY x:B x:B REPLACE",
    "UNLINK x:B",
    "PEXPIRE l:B T",
    "SWAPDB 0 1",
    "FLUSHDB",
];
const MEMBERS: u64 = 4000;

impl Dice {
    fn large_line(&mut self) -> String {
        let lines = if self.roll(40) == 0 { RARE_LARGE_LINES } else { LARGE_LINES };
        let line = lines[self.roll(lines.len() as u64) as usize];
        let line = self.line(line);
        let words = line.split(' ').map(|word| match word.strip_suffix('B') {
            Some(kind) if kind.ends_with(':') => format!("{kind}{}", self.roll(2)),
            // The number of one that there was in the beginning.
            _ if word == "M" && line.starts_with("LSET") => self.roll(MEMBERS / 2).to_string(),
            _ if word == "I" => format!("{}-1", 1 + self.roll(MEMBERS)),
            _ if word == "M" => format!("member:{}", self.roll(MEMBERS)),
            _ => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// As many members for each large collection as there usually are.
    fn fill(&mut self, client: &mut Client<'_>) {
        client.environment.waits_for_views = false;
        for _ in 0..MEMBERS / 2 {
            let line = self.line("HSET h:0 M V SADD t:0 M ZADD z:0 N M");
            let words: Vec<_> = line.split(' ').collect();
            for command in [&words[..4], &words[4..7], &words[7..]] {
                client.say(&command.join(" ").replace('M', &format!("member:{}", self.roll(MEMBERS))));
            }
            client.say(&self.line("RPUSH l:0 V N"));
        }
        client.say("DEL x:0");
        for number in 1..MEMBERS {
            client.say(&format!("XADD x:0 {number}-1 f {number}"));
        }
        client.say("XGROUP CREATE x:0 g 0");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Large collections in pieces that changes come between, of one snapshot or two.
    #[test]
    fn collections_change_while_they_are_handed_over(seed: u64) {
        const PIECE_BYTES_MAX: usize = 3000;
        let (store, tape) = recorded_store(1);
        let mut client = client_of(&store, 0);
        let (mut dice, mut compressor) = (Dice(seed), Compressor::default());
        let mut pieces = 0;
        for _ in 0..3 {
            dice.fill(&mut client);
            let options = SnapshotOptions { queue_bytes_max: 40_000 << dice.roll(4), ..OPTIONS };
            let mut running = Vec::new();
            for _ in 0..1 + dice.roll(SNAPSHOTS_MAX as u64) {
                (0..dice.roll(200)).for_each(|_| drop(client.say(&dice.large_line())));
                let now_ms = client.environment.now_ms;
                running.push((cut(&mut client, &tape, options).unwrap(), contents(&store, now_ms)));
            }
            while !running.is_empty() {
                client.environment.now_ms += dice.roll(3);
                client.expire();
                client.environment.waits_for_views = dice.roll(20) > 0;
                client.database = usize::from(dice.roll(10) == 0);
                let line = dice.large_line();
                let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
                // Where somebody else has a view, it is left undone.
                let _ = client.try_run(&words);
                drop(client.worker.garbage.take());
                for at in (0..running.len()).rev() {
                    if dice.roll(3) > 0 {
                        continue;
                    }
                    let ((snapshot, taken), _) = &mut running[at];
                    let advance = snapshot.advance(&store.engine.keyspace, dice.roll(PIECE_BYTES_MAX as u64) as usize);
                    let before = taken.parts.last().map_or(0, |(_, part)| part.len());
                    taken.take(snapshot, &mut compressor);
                    pieces += usize::from(taken.parts.last().is_some_and(|(_, part)| part.len() > before && before > 0));
                    if advance == Advance::Complete {
                        let ((snapshot, taken), then) = running.remove(at);
                        prop_assert_eq!(snapshot.waiting_bytes(), 0);
                        let found = contents(&taken.load(), taken.cut_ms);
                        prop_assert_eq!(difference(&found, &then), NONE);
                        drop(snapshot);
                        check(&taken, &tape.bytes(), &store, client.environment.now_ms);
                    }
                }
            }
            prop_assert!(store.engine.keyspace.snapshots().has_room());
        }
        prop_assert!(pieces > 5, "{} pieces", pieces);
        prop_assert!(!store.engine.keyspace.snapshots().is_congested());
    }
}

/// A file that knows the longest piece that it was given.
#[derive(Default)]
struct Pieces {
    bytes: Vec<u8>,
    longest: usize,
}

impl io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        self.longest = self.longest.max(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is lent is not copied as a whole either where the file consists of commands.
#[test]
fn large_collections_become_commands_in_pieces() {
    const FIELDS: usize = 5000;
    const PIECE_BYTES_MAX: usize = 20 * 1024;
    let (store, tape) = recorded_store(1);
    let mut client = client_of(&store, 0);
    for number in 0..FIELDS {
        client.say(&format!("HSET h:1 field:{number} {number}"));
        client.say(&format!("HPEXPIREAT h:1 {} FIELDS 1 field:{number}", START_MS + 1_000_000));
        client.say(&format!("SADD t:1 member:{number}"));
        client.say(&format!("ZADD z:1 {number} member:{number}"));
        client.say(&format!("RPUSH l:1 element:{number}"));
        client.say(&format!("XADD x:1 {}-1 field {number}", number + 1));
    }
    client.say("XGROUP CREATE x:1 group 0");
    client.say("XREADGROUP GROUP group reader STREAMS x:1 >");
    let form = Form { commands: true, version: Some(Version::Valkey(80)), ..Form::rdb(false) };
    let options = SnapshotOptions { form, ..OPTIONS };
    let (mut snapshot, taken) = cut(&mut client, &tape, options).expect("there is room");
    while snapshot.advance(&store.engine.keyspace, 1000) != Advance::Complete {}
    assert!(snapshot.waiting_bytes() < 1000, "nothing is copied");
    let mut pieces = Pieces::default();
    for chunk in snapshot.take() {
        chunk.write(&mut Output::new(&mut pieces, None), false).unwrap();
    }
    assert!(pieces.bytes.len() > 20 * PIECE_BYTES_MAX);
    assert!(pieces.longest < PIECE_BYTES_MAX, "{} bytes", pieces.longest);
    let made = Store::new(1);
    replay(&made, &pieces.bytes);
    let (found, expected) = (contents(&made, taken.cut_ms), contents(&store, taken.cut_ms));
    assert_eq!(difference(&found, &expected), NONE);
}
