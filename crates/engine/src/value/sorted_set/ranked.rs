//! A large sorted set: members by name in a table, and in order in a tree of their handles.
//!
//! ```text
//! MemberTable: member ─▶ record: member │ score, 8 bytes little-endian
//! OrderTree:   (score, handle of the record) in order, with counts
//! ```
//!
//! A member's bytes are kept once, its score twice. The handle of a record stays the same when its
//! score changes.

use std::{fmt, ops::Range, sync::Arc};

use dunlin_structures::{Handle, OrderTree, Scored};

use crate::value::{MemberTable, Record, Resources};

/// A sorted set in a table and a tree; see the module's head.
pub(super) struct Ranked {
    table: MemberTable,
    tree: OrderTree,
}

#[inline]
pub(super) fn score_of(record: Record<'_>) -> f64 {
    f64::from_le_bytes(record.payload.try_into().expect("the payload is a score"))
}

impl Ranked {
    pub(super) fn new(resources: &Arc<Resources>) -> Self {
        Self { table: MemberTable::new(resources), tree: OrderTree::new() }
    }

    /// Takes a table whose payloads are scores, and its records in order. O(n).
    pub(super) fn from_ordered(table: MemberTable, order: Vec<Scored>) -> Self {
        Self { table, tree: OrderTree::from_sorted(order) }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.table.heap_bytes() + self.tree.memory_bytes()
    }

    /// The handle of a member, and its score. O(1).
    #[inline]
    pub(super) fn find(&self, member: &[u8]) -> Option<(Handle, f64)> {
        let handle = self.table.find(member)?.handle();
        Some((handle, score_of(self.table.record(handle))))
    }

    /// The rank of a member, and its score. O(log n).
    #[inline]
    pub(super) fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let (handle, score) = self.find(member)?;
        let rank = self.tree.rank(score, handle, &self.table).expect("what is in the table is in the tree");
        Some((rank, score))
    }

    /// Adds a member that is not there. O(log n).
    #[inline]
    pub(super) fn insert(&mut self, member: &[u8], score: f64) {
        let payload = &score.to_le_bytes();
        let handle = self.table.insert_new(Record { key: member, payload, stamp: None });
        self.tree.insert(score, handle, &self.table);
    }

    /// Gives the member behind a handle another score. O(log n).
    #[inline]
    pub(super) fn set_score(&mut self, handle: Handle, old: f64, new: f64) {
        self.tree.update(old, new, handle, &self.table);
        self.table.overwrite(handle, &new.to_le_bytes());
    }

    /// Removes a member; its score. O(log n).
    pub(super) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let slot = self.table.find(member)?;
        let score = score_of(self.table.record(slot.handle()));
        self.tree.remove(score, slot.handle(), &self.table);
        self.table.remove(slot);
        Some(score)
    }

    /// Removes the members with these ranks. O(log n) a member at most.
    pub(super) fn remove_range(&mut self, ranks: Range<usize>) {
        self.tree.remove_range(ranks, |entry| {
            let slot = self.table.slot_of(entry.handle).expect("what is in the tree is in the table");
            self.table.remove(slot);
        });
    }

    /// How many scores from the first on fulfil `holds`; those that do come before all others.
    #[inline]
    pub(super) fn partition_scores(&self, mut holds: impl FnMut(f64) -> bool) -> usize {
        self.tree.partition_point(|entry| holds(entry.score))
    }

    /// The same of members.
    pub(super) fn partition_members(&self, mut holds: impl FnMut(&[u8]) -> bool) -> usize {
        self.tree.partition_point(|entry| holds(self.table.record(entry.handle).key))
    }

    /// Visits the members with these ranks, from the first or from the last. O(log n + ranks).
    #[inline]
    pub(super) fn for_range<'a>(
        &'a self,
        ranks: Range<usize>,
        reverse: bool,
        visit: impl FnMut(&'a [u8], f64),
    ) {
        let range = self.tree.range(ranks);
        if reverse { self.visit(range.rev(), visit) } else { self.visit(range, visit) }
    }

    /// Visits members in an order that has nothing to do with where their records are: so these are
    /// fetched some way ahead.
    #[inline]
    fn visit<'a>(
        &'a self,
        range: impl Iterator<Item = Scored> + Clone,
        mut visit: impl FnMut(&'a [u8], f64),
    ) {
        /// Members that are fetched ahead.
        const AHEAD: usize = 16;
        let mut ahead = range.clone();
        for entry in ahead.by_ref().take(AHEAD) {
            self.table.prefetch(entry.handle);
        }
        for entry in range {
            if let Some(next) = ahead.next() {
                self.table.prefetch(next.handle);
            }
            visit(self.table.record(entry.handle).key, entry.score);
        }
    }

    /// The table, for what needs no order.
    pub(super) fn table(&self) -> &MemberTable {
        &self.table
    }
}

impl Clone for Ranked {
    fn clone(&self) -> Self {
        let mut table = MemberTable::new(self.table.resources());
        let order = self.tree.iter().map(|entry| {
            let handle = table.insert_new(self.table.record(entry.handle));
            Scored { score: entry.score, handle }
        });
        let tree = OrderTree::from_sorted(order.collect::<Vec<_>>());
        Self { table, tree }
    }
}

impl fmt::Debug for Ranked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Ranked").field("len", &self.len()).finish_non_exhaustive()
    }
}
