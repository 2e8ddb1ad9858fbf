//! The value against a model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::snapshot::SnapshotQueue;
use crate::value::{
    CollectionLimits, Stored, for_each_record,
    incremental_copy::{Elements, IncrementalCopy},
};

fn member() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (-8i64..8).prop_map(|integer| integer.to_string().into_bytes()),
        1 => prop::sample::select(vec!["", "00", "a", "bb"]).prop_map(|text| text.as_bytes().to_vec()),
        1 => (10usize..14).prop_map(|length| vec![b'x'; length]),
        1 => (0usize..3000).prop_map(|length| vec![b'y'; length]),
    ]
}

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-3i32..3).prop_map(f64::from),
        2 => prop::sample::select(vec![0.1, -2.5, f64::INFINITY, f64::NEG_INFINITY, 1e300, 5e-324, 1e16]),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<u8>, f64),
    Remove(Vec<u8>),
    RemoveRange(usize, usize),
    Reap(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (member(), score()).prop_map(|(member, score)| Step::Put(member, score)),
        2 => member().prop_map(Step::Remove),
        1 => (0usize..40, 0usize..8).prop_map(|(start, count)| Step::RemoveRange(start, count)),
        1 => (0usize..3).prop_map(Step::Reap),
    ]
}

type Model = BTreeMap<Vec<u8>, f64>;

/// The members of the model in order.
fn ordered(model: &Model) -> Vec<(Vec<u8>, f64)> {
    let mut all: Vec<_> = model.iter().map(|(member, score)| (member.clone(), *score)).collect();
    all.sort_by(|one, other| one.1.total_cmp(&other.1).then_with(|| one.0.cmp(&other.0)));
    all
}

fn told(set: &SortedSet, ranks: Range<usize>, reverse: bool) -> Vec<(Vec<u8>, f64)> {
    let mut all = Vec::new();
    set.for_range(ranks, reverse, |member, score| all.push((member.text().into_owned(), score)));
    all
}

fn agrees(set: &SortedSet, model: &Model) {
    let all = ordered(model);
    let len = all.len();
    assert_eq!(set.len(), len);
    assert_eq!(told(set, 0..len, false), all);
    let mut reversed = told(set, 0..len, true);
    reversed.reverse();
    assert_eq!(reversed, all);
    for start in [0, 1, len / 2] {
        for end in [start, start + 1, len] {
            let (start, end) = (start.min(len), end.min(len));
            assert_eq!(told(set, start..end.max(start), false), all[start..end.max(start)]);
        }
    }
    for (rank, (member, score)) in all.iter().enumerate() {
        assert_eq!(set.rank(member), Some((rank, *score)));
        assert_eq!(set.score(member), Some(*score));
        assert_eq!(
            set.partition_scores(|other| other < *score),
            all.iter().filter(|(_, other)| other < score).count()
        );
    }
    let mut scanned = Model::new();
    let mut cursor = 0;
    loop {
        cursor = set.scan(cursor, |member, score| {
            scanned.insert(member.text().into_owned(), score);
        });
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(&scanned, model);
    let mut random = Random::new(1);
    for count in [0, 1, 3, 100] {
        let mut sample = Model::new();
        set.sample(count, &mut random, |member, score| {
            assert_eq!(sample.insert(member.text().into_owned(), score), None, "drawn twice");
        });
        assert_eq!(sample.len(), count.min(len));
        assert!(sample.iter().all(|(member, score)| model.get(member) == Some(score)));
        let drawn = set.random(&mut random);
        assert_eq!(drawn.is_some(), len > 0);
        assert!(drawn.is_none_or(|(member, score)| model.get(&*member.text()) == Some(&score)));
    }
}

proptest! {
    #[test]
    fn behaves_like_a_sorted_model_across_the_thresholds(
        steps in prop::collection::vec(step(), 1..80),
        entries_max in 0usize..20,
        value_max in 0usize..4000,
        block_max_members in 0usize..24,
        block_max_bytes in 0usize..6000,
    ) {
        let limits = CollectionLimits {
            block_max_members,
            block_max_bytes,
            zset_max_listpack_entries: entries_max,
            zset_max_listpack_value: value_max,
            ..CollectionLimits::default()
        };
        let resources = Resources::for_tests();
        let layout = Layout { limits: &limits, resources: &resources };
        let mut set = SortedSet::default();
        let mut model = Model::new();
        let mut was_ranked = false;
        for step in steps {
            match step {
                Step::Put(member, score) => {
                    let mut present = None;
                    set.update(&member, layout, |score_before| {
                        present = score_before;
                        Some(score)
                    });
                    prop_assert_eq!(present, model.insert(member, score));
                }
                Step::Remove(member) => {
                    prop_assert_eq!(set.remove(&member), model.remove(&member));
                    set.settle(layout);
                }
                Step::RemoveRange(start, count) => {
                    let all = ordered(&model);
                    let start = start.min(all.len());
                    let end = (start + count).min(all.len());
                    set.remove_range(start..end);
                    for (member, _) in &all[start..end] {
                        model.remove(member);
                    }
                }
                Step::Reap(members) => {
                    set.reap(members);
                }
            }
            let is_ranked = set.encoding() == "skiplist";
            prop_assert!(is_ranked || !was_ranked, "encodings only move on");
            prop_assert!(is_ranked || set.len() <= entries_max);
            was_ranked = is_ranked;
        }
        agrees(&set, &model);
        agrees(&set.copied(), &model);
        while set.next_deadline_ms().is_some() {
            prop_assert!(set.reap(2) > 0);
        }
        agrees(&set, &model);
        if let Members::Ranked(ranked) = &set.members {
            prop_assert_eq!(ranked.table().len(), model.len());
        }
        let mut gathered = Gathered::new(layout);
        for (member, score) in &model {
            gathered.add(member, |_| 0.5);
            gathered.add(member, |present| {
                assert_eq!(present, Some(0.5));
                *score
            });
        }
        agrees(&gathered.finish(layout), &model);
    }

    /// Enough members for a tree of several levels, many of them with equal scores.
    #[test]
    fn large_sorted_sets_stay_in_order(steps in prop::collection::vec((0u32..3000, 0u8..6), 1000..6000)) {
        let limits = CollectionLimits::default();
        let resources = Resources::for_tests();
        let layout = Layout { limits: &limits, resources: &resources };
        let mut set = SortedSet::default();
        let mut model = Model::new();
        for (number, score) in steps {
            let member = format!("member:{number}").into_bytes();
            if score == 5 {
                prop_assert_eq!(set.remove(&member), model.remove(&member));
            } else {
                set.insert(&member, score.into(), layout);
                model.insert(member, score.into());
            }
        }
        agrees(&set, &model);
    }
}

proptest! {
    /// Pieces of a large sorted set that changes between them have its state from the beginning, in order if nothing
    /// changes.
    #[test]
    fn is_handed_over_as_it_was(
        len in 1u32..2000,
        steps in prop::collection::vec((0u32..2000, 0u8..9, 0usize..900), 0..200),
    ) {
        let limits = CollectionLimits {
            zset_max_listpack_entries: 0,
            block_max_members: 0,
            ..CollectionLimits::default()
        };
        let resources = Resources::for_tests();
        let layout = Layout { limits: &limits, resources: &resources };
        let name = |number: u32| format!("member:{number}").into_bytes();
        let mut set = SortedSet::default();
        for number in 0..len {
            set.insert(&name(number), f64::from(number % 7), layout);
        }
        let before = told(&set, 0..set.len(), true);
        let snapshot_queue = SnapshotQueue::alone();
        let mut object = set.into_object();
        let copy = IncrementalCopy::begin(&object, &snapshot_queue).unwrap();
        let (mut found, mut is_over) = (Vec::new(), false);
        let mut take = |object: &Object, bytes: usize| {
            let (Elements::Records(_, records), is_last) = copy.next_piece(Some(object), &mut { bytes })
            else {
                unreachable!()
            };
            for_each_record(&records, |record| found.push((record.key.to_vec(), score_of(record))));
            is_last
        };
        for (number, what, amount) in &steps {
            let Object::SortedSet(set) = &mut object else { unreachable!() };
            match *what {
                0..3 => set.insert(&name(*number), f64::from(*what), layout),
                3..5 => _ = set.remove(&name(*number)),
                5 => set.remove_range(*number as usize % (set.len() + 1)..(*number as usize + amount).min(set.len())),
                6 => _ = set.reap(*amount),
                7 => {
                    // As a transaction does if a view shares the value.
                    let _view = object.clone();
                    object.unshare();
                }
                _ => is_over = is_over || take(&object, *amount),
            }
        }
        while !is_over {
            is_over = take(&object, 5000);
        }
        prop_assert!(copy.is_whole());
        if steps.is_empty() {
            prop_assert_eq!(&found, &before);
        }
        let count = found.len();
        let (found, before): (Model, Model) = (found.into_iter().collect(), before.into_iter().collect());
        prop_assert_eq!((count, found), (before.len(), before));
    }
}

#[test]
fn compact_bytes_are_those_of_redis() {
    let limits = CollectionLimits::default();
    let resources = Resources::for_tests();
    let layout = Layout { limits: &limits, resources: &resources };
    let mut set = SortedSet::default();
    set.insert(b"b", 1.5, layout);
    set.insert(b"a", 1.0, layout);
    set.insert(b"7", -3.0, layout);
    // As `DUMP` of redis-server 7.0.15 has them.
    let expected = b"\x19\x00\x00\x00\x06\x00\x07\x01\xdf\xfd\x02\x81a\x02\x01\x01\x81b\x02\x831.5\x04\xff";
    assert_eq!(set.compact_bytes(), Some(expected.as_slice()));
}
