//! Handing a table over to a snapshot while it changes, see [`crate::value::handover`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_structures::Handle;

use super::MemberTable;
use crate::{
    snapshot::Intake,
    value::handover::table::{self, HandedTable, SharedTableHandover, TableHandover, TableHandovers},
};

/// What looking at a region counts for, in bytes copied.
const REGION_COST_BYTES: usize = 64;

impl MemberTable {
    /// Begins to hand all records over to a snapshot, of which so many have not expired at its cut; `in_order` where whoever asks for the pieces goes through them as members of a
    /// sorted set. None with its number is under way.
    pub(in crate::value) fn begin_handover(
        &self,
        records: usize,
        in_order: bool,
        intake: &Arc<Intake>,
    ) -> SharedTableHandover {
        let handover = TableHandover::new(records, self.table.level(), in_order, intake);
        let handover = Arc::new(Mutex::new(handover));
        self.handovers().get_or_insert_default()[intake.index()] = Some(Arc::clone(&handover));
        handover
    }

    /// Whether what changes is handed over first, or was a moment ago.
    #[inline]
    pub(in crate::value) fn is_handed_over(&mut self) -> bool {
        self.own_handovers().is_some()
    }

    /// Has the handovers of what this is a copy of go on with this.
    pub(in crate::value) fn carry_handovers(&self, other: &Self) {
        let carried = other.handovers().clone();
        *self.handovers() = carried;
    }

    /// Whether changes are handed over to it first.
    pub(in crate::value) fn has_handover(&self, handover: &SharedTableHandover) -> bool {
        self.handovers().iter().flat_map(|own| own.iter()).flatten().any(|own| Arc::ptr_eq(own, handover))
    }

    /// The region of a key among those of a handover.
    pub(in crate::value) fn region_of(&self, key: &[u8], handover: &TableHandover) -> u32 {
        handover.region_of(self.resources.hash(key))
    }

    /// Hands over the records that are about to change, or to be joined by one of a hash.
    #[inline]
    pub(super) fn preserve(&mut self, hash: impl FnOnce(&Self) -> u64) {
        if self.is_handed_over() {
            self.hand_over(hash(self));
        }
    }

    /// The same of the record behind a handle.
    #[inline]
    pub(in crate::value) fn preserve_record(&mut self, handle: Handle) {
        self.preserve(|table| table.resources.hash(table.record(handle).key));
    }

    #[cold]
    #[inline(never)]
    fn hand_over(&mut self, hash: u64) {
        let Some(mut handovers) = self.own_handovers().take() else { return };
        for place in &mut *handovers {
            let Some(handover) = place else { continue };
            let mut handover = table::locked(handover);
            let region = handover.region_of(hash);
            if handover.is_over() {
                drop(handover);
                *place = None;
            } else if !handover.has(region) {
                let before = handover.bytes();
                self.hand_over_region(&mut handover, region);
                handover.take(region);
                handover.note_growth(before);
            }
        }
        if handovers.iter().any(Option::is_some) {
            *self.own_handovers() = Some(handovers);
        }
    }

    /// Hands over the records of a region, but for those that the walk in order has passed.
    fn hand_over_region(&self, handover: &mut TableHandover, region: u32) {
        let level = handover.level();
        let has_others = self.table.level() < level;
        self.table.for_each_in_region(region, level, |handle| self.prefetch(handle));
        self.table.for_each_in_region(region, level, |handle| {
            let record = self.record(handle);
            if has_others && self.region_of(record.key, handover) != region {
                return;
            }
            if !handover.has_passed(record) {
                handover.push(record);
            }
        });
    }

    fn handovers(&self) -> MutexGuard<'_, Option<Box<TableHandovers>>> {
        self.handovers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same without the lock.
    #[inline]
    fn own_handovers(&mut self) -> &mut Option<Box<TableHandovers>> {
        self.handovers.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HandedTable for MemberTable {
    fn begin(&self, elements: usize, intake: &Arc<Intake>) -> SharedTableHandover {
        self.begin_handover(elements, false, intake)
    }

    fn has(&self, handover: &SharedTableHandover) -> bool {
        self.has_handover(handover)
    }

    fn next_piece(&self, handover: &mut TableHandover, budget: &mut usize) -> (Vec<u8>, bool) {
        let records = handover.piece(|handover| {
            while let Some(region) = handover.next_region()
                && handover.bytes() < *budget
            {
                if !handover.has(region) {
                    self.hand_over_region(handover, region);
                }
                handover.pass_region();
                *budget = budget.saturating_sub(REGION_COST_BYTES);
            }
        });
        *budget = budget.saturating_sub(records.len());
        (records, handover.next_region().is_none())
    }
}
