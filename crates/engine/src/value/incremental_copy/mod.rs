//! A snapshot's state of a large collection that changes while it is written.
//!
//! A collection of millions of elements takes a second to write, and no command is to wait for that long. So it is
//! handed over in pieces, under the lock of its stripe each, and changes between them. Elements that are about to
//! change are set aside first, as they were at the cut:
//!
//! ```text
//! hashes, sets, sorted sets   regions of records     table.rs
//! lists                       blocks by number       dunlin_structures::Past
//! streams                     nodes by ID            nodes.rs
//! ```
//!
//! The bytes before the elements in the file are written when the copy begins. The groups of a stream stand behind its
//! elements; a copy of them shares all parts that neither side changes. Both are of the cut, too, since a command that
//! changes anything begins the copy first.

pub(in crate::value) mod nodes;
pub(in crate::value) mod table;

use std::sync::Arc;

use dunlin_structures::{Block, Listpack, SharedPast, lock_past};

use super::{
    Collection, List, Object, Stream,
    stored::{Stored, each},
    stream::StreamId,
};
use crate::snapshot::SnapshotQueue;
use nodes::{SharedNodeCopy, lock_nodes};
use table::SharedTableCopy;

/// The cost of going on by a block or a node, in bytes copied.
const VISIT_COST_BYTES: usize = 64;

/// A copy, as the thread that takes the pieces has it.
pub(crate) enum IncrementalCopy {
    /// A copy of a table's records.
    Records(RecordForm, SharedTableCopy),
    /// A copy of a list's blocks.
    Blocks(SharedPast, Arc<SnapshotQueue>),
    /// A copy of a stream's nodes.
    Nodes(SharedNodeCopy),
}

/// The form of a table's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordForm {
    /// Members of a set.
    Member,
    /// Members of a sorted set.
    ScoredMember,
    /// Fields of a hash.
    Field,
    /// Fields of a hash of which some expire.
    ExpiringField,
}

/// Elements of a collection as they were at the cut.
#[derive(Debug)]
pub(crate) enum Elements {
    /// Records of a table, one behind the other.
    Records(RecordForm, Vec<u8>),
    /// Blocks of a list, in order.
    Blocks(Vec<Block>),
    /// Nodes of a stream, in order.
    Nodes(Vec<(StreamId, Listpack)>),
}

impl Elements {
    /// Bytes that they take in memory. O(blocks).
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Records(_, records) => records.len(),
            Self::Blocks(blocks) => blocks.iter().map(Block::heap_bytes).sum(),
            Self::Nodes(nodes) => nodes.iter().map(|(_, listpack)| listpack.capacity()).sum(),
        }
    }
}

impl IncrementalCopy {
    /// Begins: from here on, parts that are about to change are set aside first. None of that snapshot is under way.
    /// `None` if the collection is not made of parts that can be set aside. O(1), but for a bit for some ten records
    /// of a table.
    pub(crate) fn begin(object: &Object, snapshot_queue: &Arc<SnapshotQueue>) -> Option<Self> {
        each!(object, collection => collection.begin_copy(snapshot_queue))
    }

    /// How many elements, as they are counted in the file, are still to be copied.
    pub(crate) fn left(&self) -> usize {
        match self {
            Self::Records(_, copy) => table::locked(copy).left(),
            Self::Blocks(past, _) => lock_past(past).left(),
            Self::Nodes(copy) => lock_nodes(copy).left(),
        }
    }

    /// Goes on for about `budget` bytes, which it lowers, and more if changes have set more aside: the elements, and
    /// whether they are the last. `object` is the collection, or what is in its place.
    pub(crate) fn next_piece(&self, object: Option<&Object>, budget: &mut usize) -> (Elements, bool) {
        match self {
            Self::Records(form, copy) => {
                let table = object.and_then(Object::copied_table).filter(|table| table.has(copy));
                let (records, is_last) = match table {
                    Some(table) => table.next_piece(&mut table::locked(copy), budget),
                    None => (Vec::new(), true),
                };
                (Elements::Records(*form, records), is_last)
            }
            Self::Blocks(past, snapshot_queue) => next_blocks(past, snapshot_queue, object, budget),
            Self::Nodes(copy) => {
                let log = object.and_then(Stream::of).map(Stream::log);
                let (nodes, is_last) = lock_nodes(copy).next_piece(log, budget);
                (Elements::Nodes(nodes), is_last)
            }
        }
    }

    /// Whether every element of the cut was copied once.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Records(_, copy) => table::locked(copy).is_whole(),
            Self::Blocks(past, _) => lock_past(past).left() == 0,
            Self::Nodes(copy) => lock_nodes(copy).left() == 0,
        }
    }
}

impl Drop for IncrementalCopy {
    /// The reader of the pieces has gone.
    fn drop(&mut self) {
        match self {
            Self::Records(_, copy) => table::locked(copy).end(),
            Self::Blocks(past, snapshot_queue) => {
                let kept_bytes = lock_past(past).end();
                snapshot_queue.let_go(kept_bytes);
            }
            Self::Nodes(copy) => lock_nodes(copy).end(),
        }
    }
}

/// The next blocks of a list.
fn next_blocks(
    past: &SharedPast,
    snapshot_queue: &SnapshotQueue,
    object: Option<&Object>,
    budget: &mut usize,
) -> (Elements, bool) {
    let deque = object.and_then(List::of).and_then(List::deque).filter(|deque| deque.has_past(past));
    let mut past = lock_past(past);
    let kept_bytes = past.kept_bytes();
    let (mut blocks, mut is_last) = (Vec::new(), false);
    while *budget > 0 && !is_last {
        match past.give(deque) {
            Some((block, is_copy)) => {
                let copied_bytes = if is_copy { block.heap_bytes() } else { 0 };
                *budget = budget.saturating_sub(copied_bytes + VISIT_COST_BYTES);
                blocks.push(block);
            }
            None => is_last = true,
        }
    }
    snapshot_queue.let_go(kept_bytes - past.kept_bytes());
    (Elements::Blocks(blocks), is_last)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use dunlin_structures::{BlockRef, ListEnd};

    use super::*;
    use crate::{
        context::ExpiryChange,
        value::{
            CollectionLimits, Hash, Layout, Resources, Set, SortedSet,
            stream::{NewId, StreamLog},
        },
    };

    /// A transaction copies a value that a view shares, and goes on with the copy.
    #[test]
    fn copy_of_a_list_goes_on_in_its_place() {
        let limits = CollectionLimits { list_max_listpack_size: 4, ..CollectionLimits::default() };
        let resources = Resources::for_tests();
        let layout = Layout { limits: &limits, resources: &resources };
        let mut list = List::default();
        (0..100).for_each(|number| list.push(ListEnd::Back, &[format!("{number}").as_bytes()], layout));
        let mut object = list.into_object();
        let snapshot_queue = SnapshotQueue::alone();
        let copy = IncrementalCopy::begin(&object, &snapshot_queue).expect("it has blocks");
        let _view = object.clone();
        object.unshare();
        let list = List::of_mut(&mut object).expect("it is a list");
        for index in [0, 50, 99] {
            list.set(index, b"new", layout);
        }
        list.push(ListEnd::Front, &[b"new"], layout);
        list.remove_range(20..30);
        assert!(snapshot_queue.waiting_bytes() > 0);
        let mut elements = Vec::new();
        loop {
            let (Elements::Blocks(blocks), is_last) = copy.next_piece(Some(&object), &mut 100) else {
                unreachable!()
            };
            for block in &blocks {
                let BlockRef::Packed(listpack) = block.view() else { unreachable!() };
                elements.extend(listpack.iter().map(|element| element.text().into_owned()));
            }
            if is_last {
                break;
            }
        }
        assert!(copy.is_whole());
        assert_eq!(snapshot_queue.waiting_bytes(), 0);
        let expected: Vec<_> = (0..100).map(|number| number.to_string().into_bytes()).collect();
        assert_eq!(elements, expected);
    }

    /// Memory of members that were removed at once is yet to be given back when the cut is made, and while pieces are taken.
    #[test]
    fn former_members_of_a_set_are_not_handed_over() {
        let (limits, resources) = (CollectionLimits::default(), Resources::for_tests());
        let layout = Layout { limits: &limits, resources: &resources };
        let (mut set, mut others) = (Set::for_members(u64::MAX, layout), Set::for_members(u64::MAX, layout));
        for number in 0..1000_u32 {
            set.insert(&number.to_le_bytes(), layout);
            if number >= 700 {
                others.insert(&number.to_le_bytes(), layout);
            }
        }
        let places = set.places(&others);
        set.doom(&others, &places);
        let mut object = set.into_object();
        let copy = IncrementalCopy::begin(&object, &SnapshotQueue::alone())
            .expect("its table has its members alone");
        assert_eq!(copy.left(), 700);
        let (mut bytes, mut is_last) = (0, false);
        while !is_last {
            object.reap(10);
            Set::of_mut(&mut object).expect("it is a set").insert(format!("new {bytes}").as_bytes(), layout);
            let piece;
            (piece, is_last) = copy.next_piece(Some(&object), &mut 1000);
            bytes += piece.memory_bytes();
        }
        assert!(copy.is_whole() && bytes > 0);
    }

    /// A command that changes a value looks whether it is lent while there is a snapshot: a copy that is over must not
    /// keep a snapshot alive.
    #[test]
    fn copy_that_is_over_forgets_its_snapshot() {
        let limits = CollectionLimits {
            list_max_listpack_size: 4,
            set_max_listpack_entries: 4,
            hash_max_listpack_entries: 4,
            zset_max_listpack_entries: 4,
            block_max_members: 8,
            ..CollectionLimits::default()
        };
        let resources = Resources::for_tests();
        let layout = Layout { limits: &limits, resources: &resources };
        let (mut list, mut set) = (List::default(), Set::default());
        let (mut hash, mut sorted_set, mut log) =
            (Hash::default(), SortedSet::default(), StreamLog::default());
        for number in 1..100 {
            let text = format!("element {number}").into_bytes();
            list.push(ListEnd::Back, &[&text], layout);
            set.insert(&text, layout);
            hash.set(&text, b"value", ExpiryChange::Clear, 0, layout);
            sorted_set.insert(&text, 1.0, layout);
            log.add(NewId::Exactly(StreamId::new(number, 0)), &[&text, b"value"], 0, &limits)
                .expect("it is larger");
        }
        let objects = [
            list.into_object(),
            set.into_object(),
            hash.into_object(),
            sorted_set.into_object(),
            Stream::from_log(log).into_object(),
        ];
        for object in objects {
            for _ in 0..3 {
                let snapshot_queue = SnapshotQueue::alone();
                let copy = IncrementalCopy::begin(&object, &snapshot_queue).expect("it is not compact");
                while !copy.next_piece(Some(&object), &mut 1000).1 {}
                assert!(copy.is_whole() && Arc::strong_count(&snapshot_queue) > 1);
                drop(copy);
                assert_eq!(Arc::strong_count(&snapshot_queue), 1, "{}", object.value_type().name());
            }
        }
    }
}
