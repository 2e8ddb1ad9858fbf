//! A sorted set that is built from members in any order and sorted once, at the end.

use dunlin_structures::{Handle, Scored};

use super::{Members, Packed, Ranked, RankedBlock, SortedSet, score_of};
use crate::value::shared::Shared;
use crate::value::{Layout, MemberTable, Record};

/// Members with scores that are not in order yet.
#[derive(Debug)]
pub struct Gathered {
    table: MemberTable,
    /// The records of the table.
    handles: Vec<Handle>,
    member_bytes_max: usize,
}

impl Gathered {
    /// Nothing yet.
    pub fn new(layout: Layout<'_>) -> Self {
        Self { table: MemberTable::new(layout.resources), handles: Vec::new(), member_bytes_max: 0 }
    }

    /// Gives a member the score that `merge` makes of the one that it has here. O(1).
    pub fn add(&mut self, member: &[u8], merge: impl FnOnce(Option<f64>) -> f64) {
        if let Some(slot) = self.table.find(member) {
            let handle = slot.handle();
            let score = merge(Some(score_of(self.table.record(handle))));
            self.table.overwrite(handle, &score.to_le_bytes());
            return;
        }
        let payload = &merge(None).to_le_bytes();
        self.handles.push(self.table.insert_new(Record { key: member, payload, stamp: None }));
        self.member_bytes_max = self.member_bytes_max.max(member.len());
    }

    /// The members in order. O(n log n).
    pub fn sort(self) -> Ordered {
        let Self { table, handles, member_bytes_max } = self;
        let scored = |handle| Scored { score: score_of(table.record(handle)), handle };
        let mut order: Vec<Scored> = handles.into_iter().map(scored).collect();
        order.sort_unstable_by(|one, other| {
            let by_score = one.score.partial_cmp(&other.score).expect("scores are never NaN");
            by_score.then_with(|| table.record(one.handle).key.cmp(table.record(other.handle).key))
        });
        Ordered { table, order, member_bytes_max }
    }

    /// The sorted set of all members. O(n log n).
    pub fn finish(self, layout: Layout<'_>) -> SortedSet {
        self.sort().finish(layout)
    }
}

/// Gathered members in order.
#[derive(Debug)]
pub struct Ordered {
    table: MemberTable,
    order: Vec<Scored>,
    member_bytes_max: usize,
}

impl Ordered {
    /// How many members.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Visits all members from the first to the last. O(n).
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], f64)) {
        for entry in &self.order {
            visit(self.table.record(entry.handle).key, entry.score);
        }
    }

    /// The sorted set of all members. O(n).
    pub fn finish(self, layout: Layout<'_>) -> SortedSet {
        let limits = layout.limits;
        let members = if self.len() <= limits.zset_max_listpack_entries
            && self.member_bytes_max <= limits.zset_max_listpack_value
        {
            let mut packed = Packed::new();
            self.for_each(|member, score| packed.push(member, score));
            Members::Packed(packed)
        } else if let Some(room) = self.table.room_in_block(limits) {
            let mut block = RankedBlock::with_room(room);
            self.for_each(|member, score| block.push(member, score));
            Members::Block(block)
        } else {
            Members::Ranked(Shared::new(Ranked::from_ordered(self.table, self.order)))
        };
        SortedSet { members }
    }
}
