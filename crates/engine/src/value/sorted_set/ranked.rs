//! A large sorted set: members by name in a table, and in order in a tree of their handles.
//!
//! ```text
//! MemberTable: member ─▶ record: member │ score, 8 bytes little-endian
//! OrderTree:   (score, handle of the record) in order, with counts
//! ```
//!
//! A member's bytes are kept once, its score twice. The handle of a record stays the same when its
//! score changes.
//!
//! Members that are removed by the thousand are only cut out of the tree, in O(log n). Their records are *doomed*:
//! still in the table, but of no member, since they are not in the tree; [`Ranked::reap`] takes them out of it by
//! and by. A caller that finds a record other than through the tree has to ask whether it is doomed.

use std::{collections::HashSet, fmt, ops::Range, sync::Arc};

use dunlin_structures::{Handle, OrderTree, Scored};

use crate::{
    random::{Random, Selection},
    snapshot::SnapshotQueue,
    value::{
        CollectionLimits, MemberTable, Record, Resources,
        incremental_copy::table::{CopiedTable, SharedTableCopy, TableCopy},
        member_block::Demand,
    },
};

/// Members from which on it is worth to put the removing of their records off: it takes longer than cutting them
/// out of the tree.
const DOOMED_MIN: usize = if cfg!(test) { 3 } else { 1024 };
/// Members that a copy looks at before it asks whether it is enough.
const STEP_MEMBERS: usize = 64;
/// The cost of looking at one, in bytes copied.
const STEP_COST_BYTES: usize = 8;
/// Trees of doomed records from which on none is added.
const DOOMED_TREES_MAX: usize = 512;

/// A sorted set in a table and a tree; see the module's head.
pub(super) struct Ranked {
    table: MemberTable,
    tree: OrderTree,
    doomed: Doomed,
}

/// Doomed records, in the order they had in trees that no longer serve lookups of members. None of these is empty.
#[derive(Default)]
struct Doomed {
    trees: Vec<OrderTree>,
    bytes: usize,
}

impl Doomed {
    #[inline]
    fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    /// Makes the sums right after `edit`.
    fn edit<R>(&mut self, edit: impl FnOnce(&mut Vec<OrderTree>) -> R) -> R {
        let result = edit(&mut self.trees);
        self.bytes = self.trees.iter().map(OrderTree::memory_bytes).sum();
        result
    }
}

#[inline]
pub(crate) fn score_of(record: Record<'_>) -> f64 {
    f64::from_le_bytes(record.payload.try_into().expect("the payload is a score"))
}

impl Ranked {
    pub(super) fn new(resources: &Arc<Resources>) -> Self {
        Self { table: MemberTable::new(resources), tree: OrderTree::new(), doomed: Doomed::default() }
    }

    /// Takes a table whose payloads are scores, and its records in order. O(n).
    pub(super) fn from_ordered(table: MemberTable, order: Vec<Scored>) -> Self {
        Self { table, tree: OrderTree::from_sorted(order), doomed: Doomed::default() }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.table.heap_bytes() + self.tree.memory_bytes() + self.doomed.bytes
    }

    /// The handle of a member, and its score. O(1); O(log n) while some records are doomed.
    #[inline]
    pub(super) fn find(&self, member: &[u8]) -> Option<(Handle, f64)> {
        let handle = self.table.find(member)?.handle();
        let score = score_of(self.table.record(handle));
        self.is_live(handle, score).then_some((handle, score))
    }

    /// Whether the record behind a handle is that of a member.
    #[inline]
    fn is_live(&self, handle: Handle, score: f64) -> bool {
        self.doomed.is_empty() || self.tree.rank(score, handle, &self.table).is_some()
    }

    /// The rank of a member, and its score. O(log n).
    #[inline]
    pub(super) fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let handle = self.table.find(member)?.handle();
        let score = score_of(self.table.record(handle));
        let rank = self.tree.rank(score, handle, &self.table);
        debug_assert!(rank.is_some() || !self.doomed.is_empty(), "what is in the table is in the tree");
        Some((rank?, score))
    }

    /// Adds a member that is not there. O(log n).
    #[inline]
    pub(super) fn insert(&mut self, member: &[u8], score: f64) {
        if !self.doomed.is_empty() && self.revive(member, score) {
            return;
        }
        let payload = &score.to_le_bytes();
        let handle = self.table.insert_new(Record { key: member, payload, stamp: None });
        self.tree.insert(score, handle, &self.table);
    }

    /// Adds a member that has a doomed record, if it has. O(log n) a tree of those.
    #[cold]
    fn revive(&mut self, member: &[u8], score: f64) -> bool {
        let Some(slot) = self.table.find(member) else { return false };
        let (handle, table) = (slot.handle(), &self.table);
        let old = score_of(table.record(handle));
        self.doomed.edit(|trees| {
            let found = trees.iter_mut().position(|tree| tree.remove(old, handle, table));
            let found = found.expect("what is in the table and in no tree is doomed");
            if trees[found].is_empty() {
                trees.swap_remove(found);
            }
        });
        self.table.overwrite(handle, &score.to_le_bytes());
        self.tree.insert(score, handle, &self.table);
        true
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
        let was_there = self.tree.remove(score, slot.handle(), &self.table);
        was_there.then(|| {
            self.table.remove(slot);
            score
        })
    }

    /// Removes the members with these ranks. O(log n) a member at most; O(log n) for many, whose records are
    /// doomed.
    pub(super) fn remove_range(&mut self, ranks: Range<usize>) {
        if ranks.len() >= DOOMED_MIN && self.doomed.trees.len() < DOOMED_TREES_MAX {
            // The receiver of the copy does not ask which records are doomed.
            let Self { table, tree, .. } = self;
            if table.is_being_copied() {
                tree.range(ranks.clone()).for_each(|entry| table.preserve_record(entry.handle));
            }
            let cut = self.tree.cut_range(ranks);
            return self.doomed.edit(|trees| trees.extend(cut));
        }
        let Self { table, tree, .. } = self;
        tree.remove_range(ranks, |entry| remove_record(table, entry.handle));
    }

    /// The room of its members in a block, if they are few enough for one; see [`MemberTable::fits_block`].
    #[inline]
    pub(super) fn fits_block(&self, limits: &CollectionLimits) -> Option<Demand> {
        if self.has_doomed() { None } else { self.table.fits_block(limits) }
    }

    /// Whether some records are doomed.
    #[inline]
    pub(super) fn has_doomed(&self) -> bool {
        !self.doomed.is_empty()
    }

    /// Removes doomed records, no more than `records_max`. Returns how many.
    pub(super) fn reap(&mut self, records_max: usize) -> usize {
        let Self { table, doomed, .. } = self;
        doomed.edit(|trees| {
            let mut left = records_max;
            while left > 0
                && let Some(tree) = trees.last_mut()
            {
                left -= tree.remove_range(0..left, |entry| remove_record(table, entry.handle));
                if tree.is_empty() {
                    trees.pop();
                }
            }
            records_max - left
        })
    }

    /// How many scores from the first on fulfil `holds`; those that do come before all others.
    #[inline]
    pub(super) fn partition_scores(&self, mut holds: impl FnMut(f64) -> bool) -> usize {
        self.tree.partition_point(|entry| holds(entry.score))
    }

    /// The partition point of members.
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

    /// Visits all members in no order. O(n).
    pub(super) fn for_each<'a>(&'a self, mut visit: impl FnMut(&'a [u8], f64)) {
        if self.has_doomed() {
            return self.for_range(0..self.len(), false, visit);
        }
        self.table.for_each(|record| visit(record.key, score_of(record)));
    }

    /// Visits some members behind `cursor`, see [`MemberTable::scan`].
    pub(super) fn scan(&self, cursor: u64, mut visit: impl FnMut(&[u8], f64)) -> u64 {
        self.table.scan(cursor, |record| {
            if !self.has_doomed() || self.find(record.key).is_some() {
                visit(record.key, score_of(record));
            }
        })
    }

    /// Visits `count` different members, chosen by chance, or all if there are fewer. O(count), or O(n) if that
    /// is not much more.
    pub(super) fn sample<'a>(
        &'a self,
        count: usize,
        random: &mut Random,
        mut visit: impl FnMut(&'a [u8], f64),
    ) {
        if !self.has_doomed() {
            return self.table.sample(count, random, |record| visit(record.key, score_of(record)));
        }
        if count >= self.len() / 4 {
            let mut selection = Selection::new(count, self.len());
            return self.for_each(|member, score| {
                if selection.takes(random) {
                    visit(member, score);
                }
            });
        }
        let mut drawn = HashSet::with_capacity(count);
        while drawn.len() < count {
            let rank = random.below(self.len());
            if drawn.insert(rank) {
                self.for_range(rank..rank + 1, false, &mut visit);
            }
        }
    }

    /// The table, to fetch records ahead.
    pub(super) fn table(&self) -> &MemberTable {
        &self.table
    }
}

impl CopiedTable for Ranked {
    fn begin(&self, elements: usize, snapshot_queue: &Arc<SnapshotQueue>) -> SharedTableCopy {
        debug_assert!(!self.has_doomed(), "no record is that of no member");
        self.table.begin_copy(elements, true, snapshot_queue)
    }

    fn has(&self, copy: &SharedTableCopy) -> bool {
        self.table.has_copy(copy)
    }

    fn next_piece(&self, copy: &mut TableCopy, budget: &mut usize) -> (Vec<u8>, bool) {
        let precedes = |(score, member)| move |entry: Scored| entry.precedes(score, member, &self.table);
        let mut end = match copy.last_passed() {
            Some(last) => self.tree.partition_point(precedes(last)),
            None => self.len(),
        };
        let records = copy.piece(|copy| {
            while end > 0 && copy.bytes() < *budget {
                let start = end.saturating_sub(STEP_MEMBERS);
                let mut last = None;
                self.for_range(start..end, true, |member, score| {
                    let is_taken = copy.is_any_taken() && copy.has(self.table.region_of(member, copy));
                    if !is_taken {
                        copy.push(Record { key: member, payload: &score.to_le_bytes(), stamp: None });
                    }
                    last = Some((score, member));
                });
                if let Some((score, member)) = last {
                    copy.pass_member(score, member);
                }
                *budget = budget.saturating_sub((end - start) * STEP_COST_BYTES);
                end = start;
            }
        });
        *budget = budget.saturating_sub(records.len());
        (records, end == 0)
    }
}

/// Removes the record behind a handle that has left the tree.
fn remove_record(table: &mut MemberTable, handle: Handle) {
    let slot = table.slot_of(handle).expect("what is in a tree is in the table");
    table.remove(slot);
}

impl Clone for Ranked {
    fn clone(&self) -> Self {
        let mut table = MemberTable::new(self.table.resources());
        let order = self.tree.iter().map(|entry| {
            let handle = table.insert_new(self.table.record(entry.handle));
            Scored { score: entry.score, handle }
        });
        let tree = OrderTree::from_sorted(order.collect::<Vec<_>>());
        Self { table, tree, doomed: Doomed::default() }
    }
}

impl fmt::Debug for Ranked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Ranked").field("len", &self.len()).finish_non_exhaustive()
    }
}
