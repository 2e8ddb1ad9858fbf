//! The block against a model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// Payloads and stamps by key.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

#[derive(Debug, Clone)]
enum Step {
    Put(u16, usize, Option<u64>),
    Restamp(u16, Option<u64>),
    Overwrite(u16, u8),
    Remove(u16),
    Reserve(usize, usize),
}

fn stamp() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![2 => Just(None), 1 => (1u64..50).prop_map(Some), 1 => (0u64..3).prop_map(|at| Some(at + (1 << 48)))]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u16..400, prop_oneof![8 => 0usize..30, 1 => 240usize..260], stamp())
            .prop_map(|(key, bytes, stamp)| Step::Put(key, bytes, stamp)),
        1 => (0u16..400, stamp()).prop_map(|(key, stamp)| Step::Restamp(key, stamp)),
        1 => (0u16..400, any::<u8>()).prop_map(|(key, byte)| Step::Overwrite(key, byte)),
        3 => (0u16..400).prop_map(Step::Remove),
        1 => (0usize..40, 0usize..900).prop_map(|(records, bytes)| Step::Reserve(records, bytes)),
    ]
}

/// Keys of all lengths that the hash reads in different ways, some longer than one byte of length says.
fn key(number: u16) -> Vec<u8> {
    let mut key = number.to_string().into_bytes();
    key.extend(std::iter::repeat_n(
        b'k',
        usize::from(number % 37) + if number.is_multiple_of(97) { 300 } else { 0 },
    ));
    key
}

/// The place of a key in the order, or that it would have.
fn rank_of(block: &MemberBlock, key: &[u8]) -> usize {
    (0..block.len()).take_while(|rank| block.record(block.at_rank(*rank)).key < key).count()
}

fn agrees(block: &MemberBlock, model: &Model, in_order: bool) {
    assert_eq!(block.len(), model.len());
    for (key, (payload, stamp)) in model {
        let found = block.get(key).expect("it is there");
        assert_eq!((found.key, found.payload, found.stamp), (&key[..], &payload[..], *stamp));
    }
    let walked: BTreeSet<&[u8]> = block.iter().map(|(_, record)| record.key).collect();
    assert_eq!(walked.len(), model.len());
    assert!(block.get(b"no such key").is_none());
    let stamps = model.values().filter_map(|(_, stamp)| *stamp);
    assert_eq!((block.stamped(), block.earliest_stamp()), (stamps.clone().count(), stamps.min()));
    let demand = model.iter().fold(Demand::default(), |room, (key, (payload, stamp))| {
        room.with(&Record { key, payload, stamp: *stamp })
    });
    assert_eq!((block.demand().records, block.demand().bytes), (demand.records, demand.bytes));
    if in_order {
        let ordered = (0..block.len()).map(|rank| block.record(block.at_rank(rank)).key);
        assert!(ordered.eq(model.keys().map(Vec::as_slice)));
        assert!((0..block.len()).all(|rank| block.rank_of(block.at_rank(rank)) == rank));
    }
}

proptest! {
    #[test]
    fn behaves_like_a_btree_map(
        steps in prop::collection::vec(step(), 1..700),
        in_order in any::<bool>(),
        room in 0usize..40,
    ) {
        let mut block = MemberBlock::with_room(Demand { records: room, bytes: room }, in_order);
        let mut model = Model::new();
        for step in steps {
            match step {
                Step::Put(number, bytes, stamp) => {
                    let (key, payload) = (key(number), vec![number as u8; bytes]);
                    match block.find(&key) {
                        Some(at) => block.replace(at, &payload, stamp),
                        None => {
                            let rank = in_order.then(|| rank_of(&block, &key));
                            let at = block.insert(Record { key: &key, payload: &payload, stamp });
                            if let Some(rank) = rank {
                                block.enter_order(rank, at);
                            }
                        }
                    }
                    model.insert(key, (payload, stamp));
                }
                Step::Restamp(number, stamp) => {
                    if let Some(at) = block.find(&key(number)) {
                        block.restamp(at, stamp);
                        model.get_mut(&key(number)).expect("it is there").1 = stamp;
                    }
                }
                Step::Overwrite(number, byte) => {
                    if let Some(at) = block.find(&key(number)) {
                        let payload = vec![byte; block.record(at).payload.len()];
                        block.overwrite(at, &payload);
                        model.get_mut(&key(number)).expect("it is there").0 = payload;
                    }
                }
                Step::Remove(number) => {
                    let found = block.find(&key(number));
                    prop_assert_eq!(found.is_some(), model.remove(&key(number)).is_some());
                    if let Some(at) = found {
                        if in_order {
                            let left = block.leave_order(rank_of(&block, &key(number)));
                            prop_assert_eq!(left, at);
                        }
                        block.remove(at);
                    }
                }
                Step::Reserve(records, bytes) => {
                    block.reserve(Demand { records, bytes });
                    prop_assert!(block.heap_bytes() >= block.demand().bytes + bytes);
                }
            }
        }
        agrees(&block, &model, in_order);
        agrees(&block.clone(), &model, in_order);
        let mut random = Random::new(3);
        for _ in 0..20 {
            let drawn = block.random(&mut random).map(|record| record.key);
            prop_assert_eq!(drawn.is_some(), !model.is_empty());
            prop_assert!(drawn.is_none_or(|key| model.contains_key(key)));
        }
        let half: Vec<_> = model.keys().step_by(2).cloned().collect();
        let rebuilt = block.rebuilt(half.iter().map(|key| block.get(key).expect("it is there")));
        model.retain(|key, _| half.contains(key));
        agrees(&rebuilt, &model, in_order);
    }
}

#[test]
fn order_insert_moves_one_record() {
    let mut block = MemberBlock::with_room(Demand::default(), true);
    for name in b"abcdefghijkl" {
        let at = block.insert(Record { key: &[*name], payload: b"", stamp: None });
        block.enter_order(block.len() - 1, at);
    }
    let order = |block: &MemberBlock| {
        (0..block.len()).map(|rank| block.record(block.at_rank(rank)).key[0] as char).collect::<String>()
    };
    for (from, to, expected) in
        [(0, 11, "bcdefghijkla"), (11, 0, "abcdefghijkl"), (3, 5, "abcefdghijkl"), (5, 5, "abcefdghijkl")]
    {
        block.move_order(from, to);
        assert_eq!(order(&block), expected);
    }
}

/// The bytes of a full block, and of one that lost nearly all, are near those of the records.
#[test]
fn block_takes_little_more_than_its_records() {
    for (records, payload) in
        [(1, 100), (3, 40), (8, 10), (9, 10), (16, 0), (17, 4), (129, 10), (600, 10), (1000, 4)]
    {
        let mut block = MemberBlock::with_room(Demand::default(), false);
        let payload = vec![b'v'; payload];
        for number in 0..records {
            block.insert(Record { key: format!("f{number}").as_bytes(), payload: &payload, stamp: None });
        }
        let index = if records > LINEAR_MAX { 6 * records + 2 * GROUP_BYTES } else { 0 };
        let most = 64 + (block.demand().bytes + index) * 5 / 4;
        assert!(block.heap_bytes() <= most, "{records} take {} and not {most}", block.heap_bytes());
        for number in 1..records {
            block.remove(block.find(format!("f{number}").as_bytes()).expect("it is there"));
        }
        assert!(
            block.heap_bytes() <= SHRUNK_BYTES_MIN.max(2 * (64 + payload.len())),
            "{}",
            block.heap_bytes()
        );
    }
}

/// Keys that all begin their search in one group, as a client that knows the hash could choose them.
#[test]
fn colliding_keys_are_found() {
    let keys: Vec<Vec<u8>> = (0u32..200_000)
        .map(|number| number.to_string().into_bytes())
        .filter(|key| index::begins_in_first_group(key, 74))
        .take(1000)
        .collect();
    assert_eq!(keys.len(), 1000);
    let mut block = MemberBlock::with_room(Demand { records: 1000, bytes: 0 }, false);
    for key in &keys {
        block.insert(Record { key, payload: b"", stamp: None });
    }
    assert!(keys.iter().all(|key| block.find(key).is_some()));
    for key in &keys[..900] {
        block.remove(block.find(key).expect("it is there"));
    }
    assert!(keys[..900].iter().all(|key| block.find(key).is_none()));
    assert!(keys[900..].iter().all(|key| block.find(key).is_some()));
}

proptest! {
    /// A scan meets each key that is there throughout, and once if the index stays, however many records come and go.
    #[test]
    fn scan_meets_all_members_that_stay(
        stay in 1u16..300,
        changes in prop::collection::vec((300u16..900, any::<bool>()), 0..600),
        changes_between in 0usize..40,
    ) {
        let mut block = MemberBlock::with_room(Demand::default(), false);
        let record = |number: u16| key(number);
        for number in 0..stay {
            block.insert(Record { key: &record(number), payload: b"", stamp: None });
        }
        let (mut met, mut cursor, mut changes) = (Vec::new(), 0, changes.into_iter());
        loop {
            let before = block.groups();
            cursor = block.scan(cursor, |record| met.push(record.key.to_vec()));
            prop_assert!(before <= 1 || cursor == 0 || is_block_cursor(cursor));
            if cursor == 0 {
                break;
            }
            for (number, adds) in changes.by_ref().take(changes_between) {
                match (block.find(&record(number)), adds) {
                    (None, true) => {
                        block.insert(Record { key: &record(number), payload: b"", stamp: None });
                    }
                    (Some(at), false) => block.remove(at),
                    _ => {}
                }
            }
        }
        let mut met: Vec<_> = met.into_iter().filter(|key| (0..stay).any(|number| record(number) == *key)).collect();
        met.sort_unstable();
        let all = met.len();
        met.dedup();
        prop_assert_eq!(met.len(), usize::from(stay));
        prop_assert_eq!(all, met.len());
    }
}

/// Each form begins again at the other's cursors.
#[test]
fn scan_outlasts_a_change_of_form() {
    use crate::value::{MemberTable, Resources};
    let mut table = MemberTable::new(&Resources::for_tests());
    let mut block = MemberBlock::with_room(Demand::default(), false);
    for number in 0..300 {
        table.insert_new(Record { key: &key(number), payload: b"", stamp: None });
        block.insert(Record { key: &key(number), payload: b"", stamp: None });
    }
    let mut met = BTreeSet::new();
    let mut cursor = block.scan(0, |record| _ = met.insert(record.key.to_vec()));
    while cursor != 0 {
        cursor = table.scan(cursor, |record| _ = met.insert(record.key.to_vec()));
    }
    assert_eq!(met.len(), 300);
    met.clear();
    cursor = table.scan(0, |record| _ = met.insert(record.key.to_vec()));
    while cursor != 0 {
        cursor = block.scan(cursor, |record| _ = met.insert(record.key.to_vec()));
    }
    assert_eq!(met.len(), 300);
}
