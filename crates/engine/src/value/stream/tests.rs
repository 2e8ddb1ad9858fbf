//! Against a `BTreeMap` of entries.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    snapshot::SnapshotQueue,
    value::{
        CollectionLimits,
        incremental_copy::{Elements, IncrementalCopy},
    },
};

type Fields = Vec<Vec<u8>>;

#[derive(Debug, Clone)]
enum Step {
    Add(u64, u64, Fields),
    Remove(u64, u64),
    Trim(Trim),
}

fn id() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![8 => (0u64..40, 0u64..4), 1 => (u64::MAX - 1..=u64::MAX, u64::MAX - 3..=u64::MAX)]
}

fn fields() -> impl Strategy<Value = Fields> {
    let text = prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "1", "-7", ""]).prop_map(|text| text.as_bytes().to_vec()),
        1 => (0usize..200).prop_map(|length| vec![b'x'; length]),
    ];
    prop::collection::vec(text, 1..4).prop_map(|names| {
        names.into_iter().flat_map(|name| [name.clone(), [b"v".to_vec(), name].concat()]).collect()
    })
}

fn trim() -> impl Strategy<Value = Trim> {
    let to = prop_oneof![
        (0u64..40).prop_map(TrimTo::Length),
        id().prop_map(|(ms, seq)| TrimTo::From(StreamId::new(ms, seq))),
    ];
    (to, any::<bool>(), prop_oneof![Just(0u64), 0u64..20])
        .prop_map(|(to, is_approximate, entries_max)| Trim { to, is_approximate, entries_max })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (id(), fields()).prop_map(|((ms, seq), fields)| Step::Add(ms, seq, fields)),
        3 => id().prop_map(|(ms, seq)| Step::Remove(ms, seq)),
        1 => trim().prop_map(Step::Trim),
    ]
}

fn collect<'a>(range: impl Iterator<Item = StreamEntry<'a>>) -> Vec<(StreamId, Fields)> {
    let fields = |entry: &StreamEntry<'_>| {
        entry
            .fields()
            .flat_map(|(name, value)| [name.text().into_owned(), value.text().into_owned()])
            .collect()
    };
    range.map(|entry| (entry.id, fields(&entry))).collect()
}

/// The group `g` has these deliveries: the consumer, of `names`, and how often.
fn assert_deliveries(stream: &Stream, names: &[&[u8]], model: &BTreeMap<StreamId, (usize, u64)>) {
    let group = stream.group(b"g").expect("created");
    let position = |name: &[u8]| names.iter().position(|known| *known == name).expect("a known name");
    let told =
        group.pending().iter().map(|(id, delivery)| (*id, (position(delivery.owner()), delivery.count)));
    assert_eq!(&told.collect::<BTreeMap<_, _>>(), model);
    assert_eq!(
        group.own_bytes(),
        group.consumers().values().map(|consumer| consumer.pending().heap_bytes()).sum()
    );
    for (name, consumer) in group.consumers() {
        let own = model.iter().filter(|(_, (owner, _))| names[*owner] == &**name).map(|(id, _)| id);
        assert!(consumer.pending().keys().eq(own));
    }
}

proptest! {
    #[test]
    fn stream_log_behaves_like_a_btree_map(
        steps in prop::collection::vec(step(), 1..120),
        node_entries in 0usize..6,
        node_bytes in prop_oneof![Just(0usize), 60usize..400],
        bounds in (id(), id()),
    ) {
        let limits = CollectionLimits {
            stream_node_max_entries: node_entries,
            stream_node_max_bytes: node_bytes,
            ..CollectionLimits::default()
        };
        let mut log = StreamLog::default();
        let mut model: BTreeMap<StreamId, Fields> = BTreeMap::new();
        let mut added = 0;
        let mut last = StreamId::MIN;
        for step in steps {
            match step {
                Step::Add(ms, seq, fields) => {
                    let id = StreamId::new(ms, seq);
                    let pairs: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
                    let result = log.add(NewId::Exactly(id), &pairs, 0, &limits);
                    prop_assert_eq!(result.is_ok(), id > last);
                    if result.is_ok() {
                        last = id;
                        added += 1;
                        model.insert(id, fields);
                    }
                }
                Step::Remove(ms, seq) => {
                    let id = StreamId::new(ms, seq);
                    prop_assert_eq!(log.contains(id), model.contains_key(&id));
                    prop_assert_eq!(log.remove(id), model.remove(&id).is_some());
                }
                Step::Trim(trim) => {
                    let removed = log.trim(trim).entries;
                    let wanted = match trim.to {
                        TrimTo::Length(length) => model.len().saturating_sub(length as usize),
                        TrimTo::From(id) => model.range(..id).count(),
                    };
                    if trim.is_approximate || trim.entries_max > 0 {
                        prop_assert!(removed as usize <= wanted);
                        prop_assert!(trim.entries_max == 0 || removed <= trim.entries_max);
                    } else {
                        prop_assert_eq!(removed as usize, wanted);
                    }
                    (0..removed).for_each(|_| {
                        model.pop_first();
                    });
                }
            }
            prop_assert_eq!(log.len(), model.len() as u64);
            prop_assert_eq!(log.entries_added(), added);
            let first = model.first_key_value().map_or(StreamId::MIN, |(id, _)| *id);
            prop_assert_eq!(log.first_id(), first);
            prop_assert_eq!(log.last_entry_id(), model.last_key_value().map(|(id, _)| *id));
            let listpacks: usize = log.listpacks().map(|(_, listpack)| listpack.capacity()).sum();
            prop_assert!(log.heap_bytes() >= listpacks);
            prop_assert_eq!((log.heap_bytes() - listpacks) % size_of::<node::Node>(), 0, "listpacks are counted exactly");
            prop_assert!(node_entries == 0 || log.nodes() as u64 * node_entries as u64 >= log.len());
        }
        let expected: Vec<_> = model.clone().into_iter().collect();
        prop_assert_eq!(&collect(log.iter()), &expected);
        let ((start_ms, start_seq), (end_ms, end_seq)) = bounds;
        let (start, end) = (StreamId::new(start_ms, start_seq), StreamId::new(end_ms, end_seq));
        let mut within: Vec<_> = expected.iter().filter(|(id, _)| (start..=end).contains(id)).cloned().collect();
        prop_assert_eq!(&collect(log.range(start, end)), &within);
        within.reverse();
        prop_assert_eq!(&collect(log.range_reversed(start, end)), &within);
        let listpacks: Vec<_> = log.listpacks().map(|(id, listpack)| (id, listpack.clone())).collect();
        let again = StreamLog::from_parts(listpacks, log.last_id(), log.max_deleted_id(), added);
        let again = again.expect("what a log gave");
        prop_assert_eq!(&collect(again.iter()), &expected);
        prop_assert_eq!((again.len(), again.first_id()), (log.len(), log.first_id()));
    }

    #[test]
    fn stream_log_survives_any_listpack(
        elements in prop::collection::vec(
            prop_oneof![4 => -1i64..5, 1 => any::<i64>()], 0..40),
    ) {
        let mut listpack = dunlin_structures::Listpack::new();
        for element in &elements {
            listpack.push(*element);
        }
        let first = StreamId::new(5, 0);
        if let Ok(mut log) = StreamLog::from_parts([(first, listpack)], StreamId::MAX, StreamId::MIN, 1) {
            let ids: Vec<StreamId> = log.iter().map(|entry| entry.id).collect();
            prop_assert_eq!(ids.len() as u64, log.len());
            prop_assert_eq!(log.range_reversed(StreamId::MIN, StreamId::MAX).count(), ids.len());
            for id in ids {
                prop_assert!(log.remove(id));
            }
            prop_assert_eq!(log.nodes(), 0);
        }
    }

    #[test]
    fn deliveries_belong_to_one_consumer(
        steps in prop::collection::vec((0u8..8, 0u64..200, 0usize..3), 1..400),
    ) {
        const NAMES: [&[u8]; 3] = [b"ann", b"bob", b"cy"];
        let mut stream = Stream::default();
        stream.create_group(b"g", ConsumerGroup::new(StreamId::MIN, None));
        let mut model: BTreeMap<StreamId, (usize, u64)> = BTreeMap::new();
        let mut tails = Vec::new();
        for (at, (step, ms, who)) in steps.into_iter().enumerate() {
            let (id, name, now_ms) = (StreamId::new(ms, 0), NAMES[who], at as u64 / 2);
            if step == 7 {
                tails.push((stream.tail(), model.clone()));
                continue;
            }
            let result = stream.edit_group(b"g", |group, _| match step {
                0 | 1 => {
                    group.see_consumer(name, 1);
                    group.deliver([id], name, now_ms);
                    model.insert(id, (who, 1));
                    true
                }
                2 => group.acknowledge(id) == model.remove(&id).is_some(),
                3 => {
                    group.see_consumer(name, 2);
                    let claim = Claim { time_ms: now_ms, count: None, keeps_count: false };
                    group.claim(id, name, claim, now_ms);
                    let count = model.get(&id).map_or(1, |(_, count)| *count) + 1;
                    model.insert(id, (who, count));
                    true
                }
                4 => {
                    group.repeat_delivery(id, now_ms);
                    model.entry(id).and_modify(|(_, count)| *count += 1);
                    true
                }
                5 => {
                    group.index_by_time();
                    true
                }
                _ => {
                    let removed = group.remove_consumer(name).unwrap_or(0);
                    let before = model.len();
                    model.retain(|_, (owner, _)| *owner != who);
                    removed == before - model.len()
                }
            });
            prop_assert_eq!(result, Some(true));
            assert_deliveries(&stream, &NAMES, &model);
        }
        for (tail, model) in tails {
            assert_deliveries(tail.stream(), &NAMES, &model);
        }
        let by_time: Option<Vec<_>> = stream.edit_group(b"g", |group, _| {
            group.index_by_time();
            group.deliveries_by_time().collect()
        });
        let group = stream.group(b"g").expect("created");
        let mut anew: Vec<_> = group.pending().iter().map(|(id, delivery)| (delivery.time_ms, *id)).collect();
        anew.sort_unstable();
        prop_assert_eq!(by_time, Some(anew));
        prop_assert!(stream.remove_group(b"g"));
        prop_assert_eq!(stream.heap_bytes(), stream.log().heap_bytes());
    }
}

/// A change of a stream between two pieces.
#[derive(Debug, Clone)]
enum Turn {
    Change(Step),
    /// The last ID becomes that of the last entry, or one not far behind it.
    Reset(u64),
    /// As a transaction does if a view shares the stream.
    Copy,
    Piece(usize),
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        8 => step().prop_map(Turn::Change),
        1 => (0u64..10).prop_map(Turn::Reset),
        1 => Just(Turn::Copy),
        3 => (1usize..400).prop_map(Turn::Piece),
    ]
}

proptest! {
    /// The nodes of a stream are copied one by one as they were in the beginning, in order, however the stream
    /// changes.
    #[test]
    fn nodes_are_handed_over_as_they_were(
        before in prop::collection::vec((fields(), 1u64..20), 0..60),
        turns in prop::collection::vec(turn(), 0..80),
    ) {
        let limits = CollectionLimits { stream_node_max_entries: 3, ..CollectionLimits::default() };
        let mut log = StreamLog::default();
        let add = |log: &mut StreamLog, ms: u64, seq: u64, fields: &Fields| {
            let pairs: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
            let _ = log.add(NewId::Exactly(StreamId::new(ms, seq)), &pairs, 0, &limits);
        };
        let mut last = 0;
        for (fields, step) in &before {
            last += step;
            add(&mut log, last / 4, last % 4, fields);
        }
        let expected: Vec<_> = log.listpacks().map(|(id, listpack)| (id, listpack.bytes().to_vec())).collect();
        let snapshot_queue = SnapshotQueue::alone();
        let mut object = Stream::from_log(log).into_object();
        let copy = IncrementalCopy::begin(&object, &snapshot_queue).unwrap();
        prop_assert_eq!(copy.left(), expected.len());
        let (mut given, mut is_over) = (Vec::new(), false);
        let mut take = |object: &Object, bytes: usize| {
            let (Elements::Nodes(nodes), is_last) = copy.next_piece(Some(object), &mut { bytes }) else {
                unreachable!()
            };
            given.extend(nodes.into_iter().map(|(id, listpack)| (id, listpack.bytes().to_vec())));
            is_last
        };
        for turn in &turns {
            match turn {
                Turn::Copy => {
                    let _view = object.clone();
                    object.unshare();
                    continue;
                }
                Turn::Piece(bytes) => {
                    is_over = is_over || take(&object, *bytes);
                    continue;
                }
                _ => {}
            }
            let log = Stream::of_mut(&mut object).unwrap().log_mut();
            match turn {
                Turn::Change(Step::Add(ms, seq, fields)) => add(log, *ms, *seq, fields),
                Turn::Change(Step::Remove(ms, seq)) => _ = log.remove(StreamId::new(*ms, *seq)),
                Turn::Change(Step::Trim(trim)) => _ = log.trim(*trim),
                Turn::Reset(more) => {
                    let last = log.last_entry_id().unwrap_or_default();
                    log.set_ids(StreamId { ms: last.ms.saturating_add(*more), ..last }, None, None);
                }
                Turn::Copy | Turn::Piece(_) => {}
            }
        }
        while !is_over {
            is_over = take(&object, 1000);
        }
        prop_assert!(copy.is_whole());
        prop_assert_eq!(&given, &expected);
        prop_assert_eq!(snapshot_queue.waiting_bytes(), 0);
    }
}
