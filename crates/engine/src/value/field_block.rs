//! The fields of a hash in one block, some of which may expire: a field's value is the payload of its record, its deadline
//! (unix ms) the stamp.
//!
//! A field whose deadline has come is not there for callers that ask with the present time, as in a
//! [`FieldTable`](super::field_table::FieldTable).

use super::{
    CollectionLimits, Record,
    member_block::{Demand, MemberBlock},
};
use crate::{
    context::ExpiryChange,
    random::{Random, Selection},
};

/// Draws that may hit fields that are gone before all fields are looked at instead.
const DRAWS_MAX: usize = 16;

/// Values by field in one block; see the module's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FieldBlock {
    block: MemberBlock,
}

#[inline]
fn lives(record: &Record<'_>, now_ms: u64) -> bool {
    record.stamp.is_none_or(|deadline_ms| deadline_ms > now_ms)
}

impl FieldBlock {
    pub(super) fn with_room(room: Demand) -> Self {
        Self { block: MemberBlock::with_room(room, false) }
    }

    /// Fields, those included whose deadline has come and whose records are still there. O(1).
    #[inline]
    pub(super) fn records(&self) -> usize {
        self.block.len()
    }

    /// Fields whose deadline has come. O(n), O(1) if none has.
    #[inline]
    pub(super) fn expired(&self, now_ms: u64) -> usize {
        match self.next_deadline_ms() {
            Some(next_ms) if next_ms <= now_ms => {
                self.block.iter().filter(|(_, record)| !lives(record, now_ms)).count()
            }
            _ => 0,
        }
    }

    #[inline]
    pub(super) fn heap_bytes(&self) -> usize {
        self.block.heap_bytes()
    }

    /// The earliest deadline. O(1).
    #[inline]
    pub(super) fn next_deadline_ms(&self) -> Option<u64> {
        self.block.earliest_stamp()
    }

    /// The latest deadline. O(n), O(1) if there is none.
    pub(super) fn last_deadline_ms(&self) -> Option<u64> {
        self.next_deadline_ms()?;
        self.block.iter().filter_map(|(_, record)| record.stamp).max()
    }

    /// Whether all fields have expired. O(1) if one never does.
    #[inline]
    pub(super) fn is_expired(&self, now_ms: u64) -> bool {
        self.block.stamped() == self.block.len() && self.expired(now_ms) == self.block.len()
    }

    /// The record of a field that is there. O(1).
    #[inline]
    pub(super) fn get(&self, field: &[u8], now_ms: u64) -> Option<Record<'_>> {
        self.block.get(field).filter(|record| lives(record, now_ms))
    }

    /// Gives a field a value. Returns whether it was not there, or `None`, and nothing changed, if the block would
    /// outgrow the limits.
    #[inline]
    pub(super) fn set(
        &mut self,
        field: &[u8],
        value: &[u8],
        expiry: ExpiryChange,
        now_ms: u64,
        limits: &CollectionLimits,
    ) -> Option<bool> {
        let Some(at) = self.block.find(field) else {
            let record = Record { key: field, payload: value, stamp: expiry.over(None) };
            return self.add(record, limits).then_some(true);
        };
        let old = self.block.record(at);
        let was_there = lives(&old, now_ms);
        let stamp = expiry.over(old.stamp.filter(|_| was_there));
        let growth = Record { payload: value, stamp, ..old }.bytes().saturating_sub(old.bytes());
        if growth > 0 && !self.block.has_room_for(Demand { records: 0, bytes: growth }, limits) {
            return None;
        }
        self.block.replace(at, value, stamp);
        Some(!was_there)
    }

    /// Adds a field that is not there; false, and nothing changed, if the block would outgrow the limits.
    pub(super) fn add(&mut self, record: Record<'_>, limits: &CollectionLimits) -> bool {
        let fits = self.block.has_room_for(Demand::default().with(&record), limits);
        if fits {
            self.block.insert(record);
        }
        fits
    }

    /// Gives a field that is there another deadline, or none; false, and nothing changed, if the block would outgrow
    /// the limits. O(bytes) if the field had none or has none.
    pub(super) fn set_deadline(
        &mut self,
        field: &[u8],
        deadline_ms: Option<u64>,
        limits: &CollectionLimits,
    ) -> bool {
        let Some(at) = self.block.find(field) else { return true };
        let old = self.block.record(at);
        let growth = Record { stamp: deadline_ms, ..old }.bytes().saturating_sub(old.bytes());
        if growth > 0 && !self.block.has_room_for(Demand { records: 0, bytes: growth }, limits) {
            return false;
        }
        self.block.restamp(at, deadline_ms);
        true
    }

    /// Removes a field. Returns whether it was there. O(bytes).
    pub(super) fn remove(&mut self, field: &[u8], now_ms: u64) -> bool {
        let Some(at) = self.block.find(field) else { return false };
        let was_there = lives(&self.block.record(at), now_ms);
        self.block.remove(at);
        was_there
    }

    /// Removes records of fields whose deadline has come, the earliest first and no more than
    /// `records_max`. Returns how many. `removing` is shown each. O(n log n), O(1) if none has
    /// come.
    pub(super) fn expire(
        &mut self,
        now_ms: u64,
        records_max: usize,
        mut removing: impl FnMut(Record<'_>),
    ) -> usize {
        if self.next_deadline_ms().is_none_or(|next_ms| next_ms > now_ms) {
            return 0;
        }
        let mut due: Vec<(u64, usize)> = Vec::new();
        for (at, record) in self.block.iter() {
            due.extend(record.stamp.filter(|deadline_ms| *deadline_ms <= now_ms).map(|stamp| (stamp, at)));
        }
        due.sort_unstable();
        due.truncate(records_max);
        due.iter().for_each(|(_, at)| removing(self.block.record(*at)));
        due.sort_unstable_by_key(|(_, at)| *at);
        let stays = |at: &usize| due.binary_search_by_key(at, |(_, due_at)| *due_at).is_err();
        let records = self.block.iter().filter(|(at, _)| stays(at)).map(|(_, record)| record);
        self.block = self.block.rebuilt(records);
        due.len()
    }

    /// Visits all fields that are there, in the order they came. O(n).
    pub(super) fn for_each<'a>(&'a self, now_ms: u64, mut visit: impl FnMut(Record<'a>)) {
        for (_, record) in self.block.iter() {
            if lives(&record, now_ms) {
                visit(record);
            }
        }
    }

    /// Does what [`MemberBlock::scan`] does, with the fields that are there.
    pub(super) fn scan(&self, cursor: u64, now_ms: u64, mut visit: impl FnMut(Record<'_>)) -> u64 {
        self.block.scan(cursor, |record| {
            if lives(&record, now_ms) {
                visit(record);
            }
        })
    }

    /// A field that is there, nearly uniformly chosen. O(1); O(n) if nearly all have expired.
    pub(super) fn random(&self, now_ms: u64, random: &mut Random) -> Option<Record<'_>> {
        for _ in 0..DRAWS_MAX {
            let record = self.block.random(random)?;
            if lives(&record, now_ms) {
                return Some(record);
            }
        }
        let mut chosen = None;
        self.sample(1, now_ms, random, |record| chosen = Some(record));
        chosen
    }

    /// Visits `count` different fields, uniformly chosen, or all if there are fewer. O(n).
    pub(super) fn sample<'a>(
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
}
