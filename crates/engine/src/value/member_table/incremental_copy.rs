//! Handing a table over to a snapshot while it changes, see [`crate::value::copy`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_structures::Handle;

use super::MemberTable;
use crate::{
    snapshot::SnapshotQueue,
    value::incremental_copy::table::{self, CopiedTable, SharedTableCopy, TableCopies, TableCopy},
};

/// The cost of looking at a region, in bytes copied.
const REGION_COST_BYTES: usize = 64;

impl MemberTable {
    /// Begins to hand all records over to a snapshot, of which a given number have not expired at its cut;
    /// `in_order` if the reader of the pieces goes through them as members of a sorted set. None with its number is
    /// under way.
    pub(in crate::value) fn begin_copy(
        &self,
        records: usize,
        in_order: bool,
        snapshot_queue: &Arc<SnapshotQueue>,
    ) -> SharedTableCopy {
        let copy = TableCopy::new(records, self.table.level(), in_order, snapshot_queue);
        let copy = Arc::new(Mutex::new(copy));
        self.copies().get_or_insert_default()[snapshot_queue.index()] = Some(Arc::clone(&copy));
        copy
    }

    /// Whether records are copied before they change, or were a moment ago.
    #[inline]
    pub(in crate::value) fn is_being_copied(&mut self) -> bool {
        self.own_copies().is_some()
    }

    /// Whether there are copies, for a caller that changes nothing.
    pub(super) fn has_copies(&self) -> bool {
        self.copies().is_some()
    }

    /// Makes the copies of the table that this is copied from go on with this.
    pub(in crate::value) fn carry_copies(&self, other: &Self) {
        let carried = other.copies().clone();
        *self.copies() = carried;
    }

    /// Whether changes are copied to it first.
    pub(in crate::value) fn has_copy(&self, copy: &SharedTableCopy) -> bool {
        self.copies().iter().flat_map(|own| own.iter()).flatten().any(|own| Arc::ptr_eq(own, copy))
    }

    /// The region of a key among those of a copy.
    pub(in crate::value) fn region_of(&self, key: &[u8], copy: &TableCopy) -> u32 {
        copy.region_of(self.resources.hash(key))
    }

    /// Hands over the records that are about to change, or to be joined by one of a hash.
    #[inline]
    pub(super) fn preserve(&mut self, hash: impl FnOnce(&Self) -> u64) {
        if self.is_being_copied() {
            self.hand_over(hash(self));
        }
    }

    /// Preserves the record behind a handle.
    #[inline]
    pub(in crate::value) fn preserve_record(&mut self, handle: Handle) {
        self.preserve(|table| table.resources.hash(table.record(handle).key));
    }

    #[cold]
    #[inline(never)]
    fn hand_over(&mut self, hash: u64) {
        let Some(mut copies) = self.own_copies().take() else { return };
        for place in &mut *copies {
            let Some(copy) = place else { continue };
            let mut copy = table::locked(copy);
            let region = copy.region_of(hash);
            if copy.is_over() {
                drop(copy);
                *place = None;
            } else if !copy.has(region) {
                let before = copy.bytes();
                self.hand_over_region(&mut copy, region);
                copy.take(region);
                copy.note_growth(before);
            }
        }
        if copies.iter().any(Option::is_some) {
            *self.own_copies() = Some(copies);
        }
    }

    /// Hands over the records of a region, but for those that the walk in order has passed.
    fn hand_over_region(&self, copy: &mut TableCopy, region: u32) {
        let level = copy.level();
        let has_others = self.table.level() < level;
        self.table.for_each_in_region(region, level, |handle| self.prefetch(handle));
        self.table.for_each_in_region(region, level, |handle| {
            let record = self.record(handle);
            if has_others && self.region_of(record.key, copy) != region {
                return;
            }
            if !copy.has_passed(record) {
                copy.push(record);
            }
        });
    }

    fn copies(&self) -> MutexGuard<'_, Option<Box<TableCopies>>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The copies, without the lock.
    #[inline]
    fn own_copies(&mut self) -> &mut Option<Box<TableCopies>> {
        self.copies.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CopiedTable for MemberTable {
    fn begin(&self, elements: usize, snapshot_queue: &Arc<SnapshotQueue>) -> SharedTableCopy {
        self.begin_copy(elements, false, snapshot_queue)
    }

    fn has(&self, copy: &SharedTableCopy) -> bool {
        self.has_copy(copy)
    }

    fn next_piece(&self, copy: &mut TableCopy, budget: &mut usize) -> (Vec<u8>, bool) {
        let records = copy.piece(|copy| {
            while let Some(region) = copy.next_region()
                && copy.bytes() < *budget
            {
                if !copy.has(region) {
                    self.hand_over_region(copy, region);
                }
                copy.pass_region();
                *budget = budget.saturating_sub(REGION_COST_BYTES);
            }
        });
        *budget = budget.saturating_sub(records.len());
        (records, copy.next_region().is_none())
    }
}
