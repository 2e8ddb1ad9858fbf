//! A sorted set that is built from members in any order and sorted once, at the end.

use dunlin_structures::Handle;

use super::{Members, Packed, Ranked, SortedSet, score_of};
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

    /// The sorted set of all members. O(n log n).
    pub fn finish(self, layout: Layout<'_>) -> SortedSet {
        let limits = layout.limits;
        let is_small = self.handles.len() <= limits.zset_max_listpack_entries
            && self.member_bytes_max <= limits.zset_max_listpack_value;
        let ranked = Ranked::from_table(self.table, self.handles);
        if !is_small {
            return SortedSet { members: Members::Ranked(Box::new(ranked)) };
        }
        let mut packed = Packed::new();
        ranked.for_range(0..ranked.len(), false, |member, score| packed.push(member, score));
        SortedSet { members: Members::Packed(packed) }
    }
}
