//! The fields of a large hash, some of which expire.
//!
//! ```text
//! table       record of a field: its value as payload, its deadline (unix ms) as stamp where it has one
//! deadlines   order tree of (deadline, handle of the record), one for each record with a stamp
//! ```
//!
//! A command that asks with the present time does not see a field whose deadline has come, wherever
//! its record still is. [`FieldTable::expire`] removes such records, a number at a time. A hash none
//! of whose fields expires pays for an empty tree, which has no nodes.
//!
//! Invariant: a record is in `deadlines` under its stamp if it has one, and nowhere else.

use std::{fmt, sync::Arc};

use dunlin_structures::{Handle, OrderTree, Scored, Slot};

use super::{CollectionLimits, MemberTable, Record, Resources, member_block::Demand};
use crate::{
    context::ExpiryChange,
    random::{Random, Selection},
};

/// Draws that may hit fields that are gone before all fields are looked at instead.
const DRAWS_MAX: usize = 100;

/// Values by field; see the module's head.
pub(super) struct FieldTable {
    table: MemberTable,
    deadlines: OrderTree,
}

/// A deadline as a score, exact up to 2^53. Later ones keep their order but for those that are within seconds of each
/// other, among which nothing is decided before the year 287396.
const fn score(deadline_ms: u64) -> f64 {
    deadline_ms as f64
}

/// Whether a field is there at a time.
#[inline]
fn lives(record: &Record<'_>, now_ms: u64) -> bool {
    record.stamp.is_none_or(|deadline_ms| deadline_ms > now_ms)
}

impl FieldTable {
    pub(super) fn new(resources: &Arc<Resources>) -> Self {
        Self { table: MemberTable::new(resources), deadlines: OrderTree::new() }
    }

    /// The records, those included of fields whose deadline has come.
    pub(super) fn records_by_field(&self) -> &MemberTable {
        &self.table
    }

    /// Fields, those included whose deadline has come and whose records are still there. O(1).
    #[inline]
    pub(super) fn records(&self) -> usize {
        self.table.len()
    }

    /// Fields whose deadline has come. O(log n), O(1) if none has.
    #[inline]
    pub(super) fn expired(&self, now_ms: u64) -> usize {
        match self.next_deadline_ms() {
            Some(next_ms) if next_ms <= now_ms => self.deadlines.count_up_to(score(now_ms)),
            _ => 0,
        }
    }

    /// The room of its records in a block, if they are few enough for one; see [`MemberTable::fits_block`].
    #[inline]
    pub(super) fn fits_block(&self, limits: &CollectionLimits) -> Option<Demand> {
        self.table.fits_block(limits)
    }

    /// Bytes that the fields take outside this struct. O(1).
    #[inline]
    pub(super) fn heap_bytes(&self) -> usize {
        self.table.heap_bytes() + self.deadlines.memory_bytes()
    }

    /// The earliest deadline. O(log n), O(1) if there is none.
    #[inline]
    pub(super) fn next_deadline_ms(&self) -> Option<u64> {
        if self.deadlines.is_empty() {
            return None;
        }
        self.deadlines.get(0).map(|first| first.score as u64)
    }

    /// The latest deadline. O(log n).
    pub(super) fn last_deadline_ms(&self) -> Option<u64> {
        let last = self.deadlines.len().checked_sub(1)?;
        self.deadlines.get(last).map(|last| last.score as u64)
    }

    /// Whether all fields have expired. O(1) if one never does.
    #[inline]
    pub(super) fn is_expired(&self, now_ms: u64) -> bool {
        self.deadlines.len() == self.table.len() && self.expired(now_ms) == self.table.len()
    }

    /// The record of a field that is there. O(1).
    #[inline]
    pub(super) fn get(&self, field: &[u8], now_ms: u64) -> Option<Record<'_>> {
        let record = self.table.record(self.table.find(field)?.handle());
        lives(&record, now_ms).then_some(record)
    }

    /// Gives a field a value. Returns whether it was not there. O(1), O(log n) if fields expire.
    #[inline]
    pub(super) fn set(&mut self, field: &[u8], value: &[u8], expiry: ExpiryChange, now_ms: u64) -> bool {
        let Some(slot) = self.table.find(field) else {
            let stamp = expiry.over(None);
            let handle = self.table.insert_new(Record { key: field, payload: value, stamp });
            self.note(handle, stamp);
            return true;
        };
        let old = self.table.record(slot.handle());
        let (was_there, old) = (lives(&old, now_ms), old.stamp);
        let stamp = expiry.over(old.filter(|_| was_there));
        self.forget(slot.handle(), old);
        let handle = self.table.replace_stamped(slot, value, stamp);
        self.note(handle, stamp);
        !was_there
    }

    /// Gives a field that is there another deadline, or none. O(log n).
    pub(super) fn set_deadline(&mut self, field: &[u8], deadline_ms: Option<u64>) {
        let Some(slot) = self.table.find(field) else { return };
        let old = self.table.record(slot.handle()).stamp;
        if old == deadline_ms {
            return;
        }
        self.forget(slot.handle(), old);
        let handle = self.table.restamp(slot, deadline_ms);
        self.note(handle, deadline_ms);
    }

    /// Removes a field. Returns whether it was there. O(1), O(log n) if it expires.
    pub(super) fn remove(&mut self, field: &[u8], now_ms: u64) -> bool {
        let Some(slot) = self.table.find(field) else { return false };
        let was_there = lives(&self.table.record(slot.handle()), now_ms);
        self.remove_record(slot);
        was_there
    }

    /// Removes records of fields whose deadline has come, the earliest first and no more than
    /// `records_max`. Returns how many. `removing` is shown each. O(log n) each.
    pub(super) fn expire(
        &mut self,
        now_ms: u64,
        records_max: usize,
        mut removing: impl FnMut(Record<'_>),
    ) -> usize {
        let mut removed = 0;
        while removed < records_max {
            let first = self.deadlines.get(0).filter(|first| first.score <= score(now_ms));
            let Some(first) = first else { break };
            let slot = self.table.slot_of(first.handle).expect("what has a deadline is in the table");
            removing(self.table.record(first.handle));
            self.remove_record(slot);
            removed += 1;
        }
        removed
    }

    /// Visits all fields that are there, in no order. O(n).
    pub(super) fn for_each<'a>(&'a self, now_ms: u64, mut visit: impl FnMut(Record<'a>)) {
        self.table.for_each(|record| {
            if lives(&record, now_ms) {
                visit(record);
            }
        });
    }

    /// Does what [`MemberTable::scan`] does, with the fields that are there.
    pub(super) fn scan(&self, cursor: u64, now_ms: u64, mut visit: impl FnMut(Record<'_>)) -> u64 {
        self.table.scan(cursor, |record| {
            if lives(&record, now_ms) {
                visit(record);
            }
        })
    }

    /// A field that is there, nearly uniformly chosen. O(1); O(n) if nearly all have expired.
    pub(super) fn random(&self, now_ms: u64, random: &mut Random) -> Option<Record<'_>> {
        for _ in 0..DRAWS_MAX {
            let record = self.table.random(random.bits())?;
            if lives(&record, now_ms) {
                return Some(record);
            }
        }
        let mut chosen = None;
        self.select(1, now_ms, random, |record| chosen = Some(record));
        chosen
    }

    /// Does what [`MemberTable::sample`] does, with the fields that are there. O(n) while some have
    /// expired and still have their records.
    pub(super) fn sample<'a>(
        &'a self,
        count: usize,
        now_ms: u64,
        random: &mut Random,
        visit: impl FnMut(Record<'a>),
    ) {
        if self.expired(now_ms) > 0 {
            self.select(count, now_ms, random, visit);
        } else {
            self.table.sample(count, random, visit);
        }
    }

    /// [`Self::sample`] by looking at each field. O(n).
    fn select<'a>(
        &'a self,
        count: usize,
        now_ms: u64,
        random: &mut Random,
        mut visit: impl FnMut(Record<'a>),
    ) {
        let mut selection = Selection::new(count, self.records() - self.expired(now_ms));
        self.for_each(now_ms, |record| {
            if selection.takes(random) {
                visit(record);
            }
        });
    }

    fn remove_record(&mut self, slot: Slot) {
        let stamp = self.table.record(slot.handle()).stamp;
        self.forget(slot.handle(), stamp);
        self.table.remove(slot);
    }

    /// Puts a record with a deadline into the order.
    #[inline]
    fn note(&mut self, handle: Handle, deadline_ms: Option<u64>) {
        if let Some(deadline_ms) = deadline_ms {
            self.deadlines.insert(score(deadline_ms), handle, &self.table);
        }
    }

    /// Takes a record with a deadline out of the order, before it moves or goes.
    #[inline]
    fn forget(&mut self, handle: Handle, deadline_ms: Option<u64>) {
        if let Some(deadline_ms) = deadline_ms {
            let was_there = self.deadlines.remove(score(deadline_ms), handle, &self.table);
            debug_assert!(was_there, "what has a deadline is in the order");
        }
    }
}

impl Clone for FieldTable {
    fn clone(&self) -> Self {
        let table = self.table.clone();
        let deadlines = self.deadlines.iter().map(|Scored { score, handle }| {
            let copy = table.find(self.table.record(handle).key).expect("all records are copied");
            Scored { score, handle: copy.handle() }
        });
        let deadlines = OrderTree::from_sorted(deadlines);
        Self { table, deadlines }
    }
}

impl fmt::Debug for FieldTable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FieldTable").field("table", &self.table).finish_non_exhaustive()
    }
}
