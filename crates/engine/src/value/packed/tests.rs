//! Collections that go into their cells and out of them, beside std collections; their memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dunlin_resp::Protocol;
use dunlin_structures::{allocation_bytes, class_bytes};
use proptest::prelude::*;

use super::{PACKED_AGAIN_BYTES_MAX, PACKED_BYTES_MAX};
use crate::transcript::Scenario;

/// Bytes of an entry before its key, and of the form of a packed collection.
const HEAD_BYTES: usize = 4 + 1;

fn ask(scenario: &mut Scenario, line: &str) -> String {
    String::from_utf8(scenario.reply(line, Protocol::Resp2))
        .expect("texts of these tests")
        .replace("\r\n", " ")
}

fn number(scenario: &mut Scenario, line: &str) -> usize {
    let reply = ask(scenario, line);
    reply.trim_end().trim_start_matches(':').parse().unwrap_or_else(|_| panic!("{line}: {reply}"))
}

/// The elements of an array.
fn elements(scenario: &mut Scenario, line: &str) -> Vec<String> {
    let reply = ask(scenario, line);
    reply.split_whitespace().filter(|word| !word.starts_with(['*', '$'])).map(str::to_owned).collect()
}

/// Bytes of a key in the table of keys.
const SLOT_BYTES: usize = 64usize.div_ceil(dunlin_structures::SLOTS_PER_BUCKET);

/// Bytes that a key takes without its slot in the table.
fn memory(scenario: &Scenario, key: &str) -> usize {
    let keyspace = &scenario.engine.keyspace;
    let key = keyspace.key(key.as_bytes());
    let locked = keyspace.lock_one(key.stripe);
    let part = locked.stripe(key.stripe).database(0).expect("it has keys");
    part.entry(part.find(key.hash, key.bytes).expect("the key is there")).memory_bytes() - SLOT_BYTES
}

/// The sum of the memory of all keys is what the keyspace counts.
fn check_accounting(scenario: &Scenario) {
    let keyspace = &scenario.engine.keyspace;
    assert_eq!(keyspace.used_bytes(), keyspace.usage(None).bytes(), "used bytes are published");
    let (mut keys, mut bytes) = (0, 0);
    for stripe in keyspace.stripes() {
        let locked = keyspace.lock_one(stripe);
        if let Some(part) = locked.stripe(stripe).database(0) {
            part.for_each(|entry| {
                keys += 1;
                bytes += entry.memory_bytes() - SLOT_BYTES;
            });
        }
    }
    let usage = keyspace.usage(Some(0));
    assert_eq!((keys, bytes), (usage.keys, usage.entry_bytes + usage.heap_bytes));
}

/// Bytes of a cell with a packed collection.
fn packed_bytes(key: &str, bytes: usize) -> usize {
    let value_bytes = bytes + 1;
    class_bytes(HEAD_BYTES + key.len() + usize::from(value_bytes > 255) + bytes)
}

#[test]
fn list_leaves_its_cell_at_the_limit_and_returns_below_three_quarters() {
    let mut scenario = Scenario::new();
    // A head, 14 bytes and a back length.
    let bytes = |len: usize| 7 + 16 * len;
    let mut len = 0;
    let is_worth = |bytes| packed_bytes("list", bytes) <= 8 + 24 + allocation_bytes(bytes);
    while bytes(len) < PACKED_BYTES_MAX + 500 {
        len = number(&mut scenario, &format!("RPUSH list element:{len:06}"));
        let used = memory(&scenario, "list");
        if bytes(len) <= PACKED_AGAIN_BYTES_MAX && is_worth(bytes(len)) {
            assert_eq!(used, packed_bytes("list", bytes(len)), "{len} elements");
        } else {
            assert!(used < bytes(len) * 5 / 4 + 64, "{len} elements are {used} bytes");
        }
        check_accounting(&scenario);
    }
    assert!(memory(&scenario, "list") > bytes(len) + 8 + 24);
    while len > 1 {
        ask(&mut scenario, "LPOP list");
        len -= 1;
        let used = memory(&scenario, "list");
        if bytes(len) > PACKED_AGAIN_BYTES_MAX {
            assert!(used >= bytes(len) + 8 + 24, "{len} elements are {used} bytes");
        } else if is_worth(bytes(len)) {
            let packed = packed_bytes("list", bytes(len));
            assert!(
                (packed..=packed + 16.max(packed / 15)).contains(&used),
                "{len} elements are {used} bytes"
            );
        }
        check_accounting(&scenario);
    }
    assert_eq!(ask(&mut scenario, "LRANGE list 0 -1"), "*1 $14 element:000126 ");
    ask(&mut scenario, "RPOP list");
    assert_eq!(number(&mut scenario, "EXISTS list"), 0);
}

#[test]
fn small_collections_of_each_type_cost_their_bytes() {
    let mut scenario = Scenario::new();
    for (key, line, bytes) in [
        ("h", "HSET h field:1 value:1 field:2 value:2", 7 + 4 * 9),
        ("l", "RPUSH l 1 200 text", 7 + 2 + 3 + 6),
        ("i", "SADD i 1 2 3 -5", 8 + 4 * 2),
        ("w", "SADD w 1 2 100000", 8 + 3 * 4),
        ("s", "SADD s 1 text", 7 + 2 + 6),
        ("z", "ZADD z 1 one 2.5 two", 7 + 5 + 2 + 5 + 5),
    ] {
        ask(&mut scenario, line);
        assert_eq!(memory(&scenario, key), packed_bytes(key, bytes), "{line}");
        ask(&mut scenario, &format!("EXPIRE {key} 100"));
        let longer = format!("{key}123456");
        assert_eq!(memory(&scenario, key), packed_bytes(&longer, bytes), "{line}");
        ask(&mut scenario, &format!("PERSIST {key}"));
        // A copy, and one that was written and read.
        ask(&mut scenario, &format!("COPY {key} c"));
        assert_eq!(memory(&scenario, "c"), packed_bytes("c", bytes), "{line}");
        ask(&mut scenario, "RENAME c d");
        assert_eq!(memory(&scenario, "d"), packed_bytes("d", bytes), "{line}");
        let dump = scenario.reply(&format!("DUMP {key}"), Protocol::Resp2);
        assert_eq!(dump, scenario.reply("DUMP d", Protocol::Resp2));
        assert_eq!(ask(&mut scenario, &format!("TYPE {key}")), ask(&mut scenario, "TYPE d"));
        ask(&mut scenario, "DEL d");
    }
    check_accounting(&scenario);
    scenario.play(
        "
        > OBJECT ENCODING i
        $6 intset
        > OBJECT ENCODING z
        $8 listpack
        > RPUSH h x
        -WRONGTYPE Operation against a key holding the wrong kind of value
        > GET h
        -WRONGTYPE Operation against a key holding the wrong kind of value
        > INCR s
        -WRONGTYPE Operation against a key holding the wrong kind of value
        > LLEN z
        -WRONGTYPE Operation against a key holding the wrong kind of value
        ",
    );
}

#[test]
fn queue_keeps_its_cell() {
    let mut scenario = Scenario::new();
    for element in 0..10 {
        ask(&mut scenario, &format!("RPUSH queue element:{element:06}"));
    }
    let full = memory(&scenario, "queue");
    for element in 10..1000 {
        ask(&mut scenario, "LPOP queue");
        assert_eq!(memory(&scenario, "queue"), full, "nine elements have the room of ten");
        ask(&mut scenario, &format!("RPUSH queue element:{element:06}"));
        assert_eq!(memory(&scenario, "queue"), full);
    }
    ask(&mut scenario, "LPOP queue 2");
    assert!(memory(&scenario, "queue") < full, "two elements are too much room");
    assert_eq!(elements(&mut scenario, "LRANGE queue 0 0"), ["element:000992"]);
    for member in 0..40 {
        ask(&mut scenario, &format!("SADD integers {}", member * 100_000));
    }
    for member in 0..39 {
        ask(&mut scenario, &format!("SREM integers {}", member * 100_000));
        assert_eq!(number(&mut scenario, "SCARD integers"), 39 - member);
        check_accounting(&scenario);
    }
}

#[test]
fn long_keys_go_along() {
    let mut scenario = Scenario::new();
    let key = "k".repeat(300);
    for element in 0..200 {
        ask(&mut scenario, &format!("RPUSH {key} element:{element:06}"));
        check_accounting(&scenario);
    }
    ask(&mut scenario, &format!("LTRIM {key} 0 2"));
    check_accounting(&scenario);
    assert_eq!(elements(&mut scenario, &format!("LRANGE {key} 0 -1")).len(), 3);
    ask(&mut scenario, &format!("DEL {key}"));
    let usage = scenario.engine.keyspace.usage(None);
    assert_eq!((usage.keys, usage.entry_bytes, usage.heap_bytes), (0, 0, 0));
}

/// The collections of the model, by key.
#[derive(Debug, Clone, PartialEq)]
enum Expected {
    Hash(BTreeMap<String, String>),
    List(VecDeque<String>),
    Set(BTreeSet<String>),
    SortedSet(BTreeMap<String, usize>),
}

impl Expected {
    fn new(kind: char) -> Self {
        match kind {
            'h' => Self::Hash(BTreeMap::new()),
            'l' => Self::List(VecDeque::new()),
            's' => Self::Set(BTreeSet::new()),
            _ => Self::SortedSet(BTreeMap::new()),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Hash(fields) => fields.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Set(members) => members.is_empty(),
            Self::SortedSet(members) => members.is_empty(),
        }
    }

    /// Adds elements, and answers the command that does.
    fn add(&mut self, key: &str, numbers: std::ops::Range<usize>, size: usize) -> String {
        let fill = "x".repeat(size);
        let mut words = String::new();
        for number in numbers {
            words += &match self {
                Self::Hash(fields) => {
                    fields.insert(format!("f{number}"), format!("v{fill}"));
                    format!(" f{number} v{fill}")
                }
                Self::List(items) => {
                    items.push_back(format!("{number}{fill}"));
                    format!(" {number}{fill}")
                }
                Self::Set(members) => {
                    members.insert(format!("{number}{fill}"));
                    format!(" {number}{fill}")
                }
                Self::SortedSet(members) => {
                    members.insert(format!("m{number}{fill}"), number % 7);
                    format!(" {} m{number}{fill}", number % 7)
                }
            };
        }
        let name = match self {
            Self::Hash(_) => "HSET",
            Self::List(_) => "RPUSH",
            Self::Set(_) => "SADD",
            Self::SortedSet(_) => "ZADD",
        };
        format!("{name} {key}{words}")
    }

    /// Removes elements, and answers the command that does.
    fn remove(&mut self, key: &str, count: usize) -> String {
        match self {
            Self::List(items) => {
                items.drain(..count.min(items.len()));
                format!("LPOP {key} {count}")
            }
            Self::Hash(fields) => {
                let gone: Vec<String> = fields.keys().take(count).cloned().collect();
                gone.iter().for_each(|field| _ = fields.remove(field));
                format!("HDEL {key} none {}", gone.join(" "))
            }
            Self::Set(members) => {
                let gone: Vec<String> = members.iter().take(count).cloned().collect();
                gone.iter().for_each(|member| _ = members.remove(member));
                format!("SREM {key} none {}", gone.join(" "))
            }
            Self::SortedSet(members) => {
                let gone: Vec<String> = members.keys().take(count).cloned().collect();
                gone.iter().for_each(|member| _ = members.remove(member));
                format!("ZREM {key} none {}", gone.join(" "))
            }
        }
    }

    fn check(&self, scenario: &mut Scenario, key: &str) {
        let pairs = |words: &[String]| -> Vec<(String, String)> {
            words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
        };
        match self {
            Self::Hash(fields) => {
                let found: BTreeMap<_, _> =
                    pairs(&elements(scenario, &format!("HGETALL {key}"))).into_iter().collect();
                assert_eq!(&found, fields);
            }
            Self::List(items) => {
                assert_eq!(VecDeque::from(elements(scenario, &format!("LRANGE {key} 0 -1"))), *items)
            }
            Self::Set(members) => {
                let found: BTreeSet<_> = elements(scenario, &format!("SMEMBERS {key}")).into_iter().collect();
                assert_eq!(&found, members);
            }
            Self::SortedSet(members) => {
                let mut expected: Vec<_> =
                    members.iter().map(|(member, score)| (*score, member.clone())).collect();
                expected.sort();
                let found = pairs(&elements(scenario, &format!("ZRANGE {key} 0 -1 WITHSCORES")));
                let found: Vec<_> = found
                    .into_iter()
                    .map(|(member, score)| (score.parse().expect("a score"), member))
                    .collect();
                assert_eq!(found, expected);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn collections_are_those_of_std_in_cells_and_outside(
        steps in proptest::collection::vec(
            (0..10u8, prop::sample::select(vec!['h', 'l', 's', 'z']), 0..3u8, 0..60usize, 1..30usize,
                prop_oneof![3 => 0..20usize, 1 => 0..90usize]),
            1..120,
        ),
    ) {
        let mut scenario = Scenario::new();
        let mut model: BTreeMap<String, Expected> = BTreeMap::new();
        for (step, kind, place, number, count, size) in steps {
            let key = format!("{kind}{place}");
            let other = format!("{kind}{}", (place + 1) % 3);
            match step {
                0..=3 => {
                    let expected = model.entry(key.clone()).or_insert_with(|| Expected::new(kind));
                    let count = if step == 0 { count } else { 1 };
                    let line = expected.add(&key, number..number + count, size);
                    ask(&mut scenario, &line);
                }
                4..=6 => if let Some(expected) = model.get_mut(&key) {
                    let line = expected.remove(&key, if step == 4 { count } else { 1 });
                    ask(&mut scenario, &line);
                    if expected.is_empty() {
                        model.remove(&key);
                    }
                },
                7 => {
                    ask(&mut scenario, &format!("EXPIRE {key} 100000"));
                    ask(&mut scenario, &format!("PERSIST {other}"));
                }
                8 => if let Some(expected) = model.remove(&key) {
                    ask(&mut scenario, &format!("RENAME {key} {other}"));
                    model.insert(other.clone(), expected);
                },
                _ => if let Some(expected) = model.get(&key).cloned() {
                    ask(&mut scenario, &format!("COPY {key} {other} REPLACE"));
                    model.insert(other.clone(), expected);
                },
            }
            for key in [key, other] {
                match model.get(&key) {
                    Some(expected) => expected.check(&mut scenario, &key),
                    None => prop_assert_eq!(self::number(&mut scenario, &format!("EXISTS {key}")), 0),
                }
            }
            check_accounting(&scenario);
        }
        let keys: Vec<String> = model.keys().cloned().collect();
        if !keys.is_empty() {
            prop_assert_eq!(self::number(&mut scenario, &format!("UNLINK {}", keys.join(" "))), keys.len());
        }
        let usage = scenario.engine.keyspace.usage(None);
        prop_assert_eq!((usage.keys, usage.entry_bytes, usage.heap_bytes), (0, 0, 0));
    }
}
