//! Records by key in one block of the heap: the form of collections that outgrew Redis's compact encodings, but are not large.
//!
//! ```text
//! block    header │ fingerprints: 16 a group │ offsets: u16, 16 a group │ order: u16 each │ record … │ room
//! header   count: u16 │ groups: u16 │ graves: u16 │ places of the order: u16 │ bytes of records: u32 │
//!          stamped records: u16 │ earliest stamp: u64                               little-endian
//! record   as in a member table, without cells
//! ```
//!
//! A record is named by its offset, which later records' changes leave alone. The records stand one behind the other without gaps: a
//! change of length moves the bytes behind it and adds the difference to the offsets that point there, one pass over two
//! bytes a record.
//!
//! The index is a hash table of groups of 16 places, searched 16 fingerprints at a time (as Abseil's Swiss tables, 2017). A
//! block of [`LINEAR_MAX`] records or fewer has none: its records are looked through.
//!
//! The order, if the owner keeps one, names the records by rank.
//!
//! The block has no pointer and no secret in it: its bytes mean the same wherever they are. So its hash is public:
//! keys that collide cost a search through all records of the block, as in a listpack.
//!
//! Invariants: an offset is at most `u16::MAX`; records + graves fill no more than [`places_filled_max`] places; the
//! order, if there is one, has `count` entries.

mod index;
#[cfg(test)]
mod tests;

use dunlin_structures::{Relocator, ThinBlock, allocation_bytes};

use super::{
    CollectionLimits, Record,
    member_table::{SPECIAL_MIN, decode_first, head_bytes, write_head},
};
use crate::random::Random;
pub(super) use index::is_block_cursor;
use index::{GROUP, GROUP_BYTES, groups_for, places_filled_max};

/// Records from which on there is an index.
const LINEAR_MAX: usize = 8;
/// Most bytes of records: offsets have 16 bits.
pub(super) const BLOCK_RECORD_BYTES_MAX: usize = u16::MAX as usize;
/// Blocks below this size do not shrink.
const SHRUNK_BYTES_MIN: usize = 128;
/// Draws from the index that may hit empty places before a record is counted off instead.
const DRAWS_MAX: usize = 64;

const COUNT: usize = 0;
const GROUPS: usize = 2;
const GRAVES: usize = 4;
const ORDER_PLACES: usize = 6;
const RECORD_BYTES: usize = 8;
const STAMPED: usize = 12;
const EARLIEST: usize = 14;
const HEADER_BYTES: usize = 22;
/// The earliest stamp if there is none.
const NO_STAMP: u64 = u64::MAX;

/// Records by key in one block; see the module's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MemberBlock {
    bytes: ThinBlock,
}

/// The room that records are about to need.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Demand {
    /// How many records.
    pub records: usize,
    /// Their bytes.
    pub bytes: usize,
}

impl Demand {
    /// The demand with one record more.
    pub(super) fn with(self, record: &Record<'_>) -> Self {
        Self { records: self.records + 1, bytes: self.bytes + record.bytes() }
    }

    /// Whether a block may hold them.
    #[inline]
    pub(super) fn fits(self, limits: &CollectionLimits) -> bool {
        self.records <= limits.block_max_members
            && self.bytes <= limits.block_max_bytes.min(BLOCK_RECORD_BYTES_MAX)
    }
}

impl MemberBlock {
    /// Moves its bytes to where the general allocator would rather have them.
    pub(super) fn relocate(&mut self, relocator: &mut Relocator) {
        self.bytes.relocate(relocator);
    }

    /// A block without records, with room for some; `in_order` if the owner keeps an order.
    pub(super) fn with_room(room: Demand, in_order: bool) -> Self {
        let order_places = if in_order { room.records.max(1) } else { 0 };
        Self::laid_out(groups_for(room.records), order_places, room.bytes)
    }

    fn laid_out(groups: usize, order_places: usize, record_bytes: usize) -> Self {
        let size =
            ThinBlock::HEAD_BYTES + HEADER_BYTES + groups * GROUP_BYTES + order_places * 2 + record_bytes;
        let mut block = Self { bytes: ThinBlock::zeroed(allocation_bytes(size)) };
        block.write_u16(GROUPS, groups);
        block.write_u16(ORDER_PLACES, order_places);
        block.set_earliest(NO_STAMP);
        block
    }

    #[inline]
    fn u16_at(&self, at: usize) -> usize {
        usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]))
    }

    #[inline]
    fn write_u16(&mut self, at: usize, value: usize) {
        debug_assert!(value <= usize::from(u16::MAX));
        self.bytes[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
    }

    /// How many records. O(1).
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.u16_at(COUNT)
    }

    #[inline]
    fn groups(&self) -> usize {
        self.u16_at(GROUPS)
    }

    /// Bytes that the block takes on the heap. O(1).
    #[inline]
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.size()
    }

    /// Bytes of the records.
    #[inline]
    fn record_bytes(&self) -> usize {
        let bytes = self.bytes[RECORD_BYTES..].first_chunk().expect("a block has a header");
        u32::from_le_bytes(*bytes) as usize
    }

    fn set_record_bytes(&mut self, bytes: usize) {
        self.bytes[RECORD_BYTES..RECORD_BYTES + 4].copy_from_slice(&(bytes as u32).to_le_bytes());
    }

    /// Start of the order.
    #[inline]
    fn order_start(&self) -> usize {
        HEADER_BYTES + self.groups() * GROUP_BYTES
    }

    /// Start of the records.
    #[inline]
    fn start(&self) -> usize {
        self.order_start() + self.u16_at(ORDER_PLACES) * 2
    }

    /// The records.
    #[inline]
    fn records(&self) -> &[u8] {
        let start = self.start();
        &self.bytes[start..start + self.record_bytes()]
    }

    /// The room of its records.
    pub(super) fn demand(&self) -> Demand {
        Demand { records: self.len(), bytes: self.record_bytes() }
    }

    /// Whether `more` may come beside its records.
    #[inline]
    pub(super) fn has_room_for(&self, more: Demand, limits: &CollectionLimits) -> bool {
        let own = self.demand();
        Demand { records: own.records + more.records, bytes: own.bytes + more.bytes }.fits(limits)
    }

    /// The record at an offset. O(1).
    #[inline]
    pub(super) fn record(&self, at: usize) -> Record<'_> {
        decode_first(&self.records()[at..]).0
    }

    /// All records with their offsets, in the order they came.
    #[inline]
    pub(super) fn iter(&self) -> Records<'_> {
        Records { records: self.records(), at: 0 }
    }

    /// The offset of the record of a key. O(1).
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Option<usize> {
        if self.groups() > 0 {
            return self.find_indexed(key);
        }
        self.find_unindexed(key)
    }

    /// [`Self::find`] without an index: most records are passed by the two bytes of their lengths.
    #[inline]
    fn find_unindexed(&self, key: &[u8]) -> Option<usize> {
        let records = self.records();
        let mut at = 0;
        while let [key_bytes, payload_bytes, rest @ ..] = &records[at..] {
            let (has_key, bytes) = if (*key_bytes).max(*payload_bytes) < SPECIAL_MIN {
                let key_bytes = usize::from(*key_bytes);
                let has_key = key_bytes == key.len() && &rest[..key_bytes] == key;
                (has_key, 2 + key_bytes + usize::from(*payload_bytes))
            } else {
                let (record, behind) = decode_first(&records[at..]);
                (record.key == key, records.len() - at - behind.len())
            };
            if has_key {
                return Some(at);
            }
            at += bytes;
        }
        None
    }

    /// The record of a key. O(1).
    #[inline]
    pub(super) fn get(&self, key: &[u8]) -> Option<Record<'_>> {
        self.find(key).map(|at| self.record(at))
    }

    /// Adds a record whose key is not there, and for which there is room in offsets and counts. Returns its offset. A
    /// record that the order is to have is entered there by [`Self::enter_order`]. O(1), at times O(bytes).
    pub(super) fn insert(&mut self, record: Record<'_>) -> usize {
        let bytes = record.bytes();
        self.reserve(Demand { records: 1, bytes });
        let at = self.record_bytes();
        let start = self.start() + at;
        record.write(&mut self.bytes[start..start + bytes]);
        self.set_record_bytes(at + bytes);
        self.write_u16(COUNT, self.len() + 1);
        self.note_stamp(None, record.stamp);
        self.enter_index(record.key, at);
        at
    }

    /// Gives the record at an offset another payload and another stamp, or none. O(bytes) if its length changes.
    pub(super) fn replace(&mut self, at: usize, payload: &[u8], stamp: Option<u64>) {
        let old = self.record(at);
        let (old_stamp, old_head, key_bytes, old_payload) = (
            old.stamp,
            head_bytes(old.stamp, old.key.len(), old.payload.len()),
            old.key.len(),
            old.payload.len(),
        );
        let head = head_bytes(stamp, key_bytes, payload.len());
        self.reserve(Demand {
            records: 0,
            bytes: (head + payload.len()).saturating_sub(old_head + old_payload),
        });
        let payload_at = at + head + key_bytes;
        // The part that becomes shorter makes room for the other.
        if payload.len() < old_payload {
            self.resize_part(at, at + old_head + key_bytes, old_payload, payload.len());
            self.resize_part(at, at, old_head, head);
        } else {
            self.resize_part(at, at, old_head, head);
            self.resize_part(at, payload_at, old_payload, payload.len());
        }
        let start = self.start();
        write_head(&mut self.bytes[start + at..], stamp, key_bytes, payload.len());
        self.bytes[start + payload_at..][..payload.len()].copy_from_slice(payload);
        self.note_stamp(old_stamp, stamp);
    }

    /// Gives the record at an offset another stamp, or none. O(bytes) if its length changes.
    pub(super) fn restamp(&mut self, at: usize, stamp: Option<u64>) {
        let old = self.record(at);
        let (old_stamp, key_bytes, payload_bytes) = (old.stamp, old.key.len(), old.payload.len());
        let old_head = head_bytes(old_stamp, key_bytes, payload_bytes);
        let head = head_bytes(stamp, key_bytes, payload_bytes);
        self.reserve(Demand { records: 0, bytes: head.saturating_sub(old_head) });
        self.resize_part(at, at, old_head, head);
        let start = self.start();
        write_head(&mut self.bytes[start + at..], stamp, key_bytes, payload_bytes);
        self.note_stamp(old_stamp, stamp);
    }

    /// Overwrites the payload of the record at an offset with one of the same length. O(1).
    #[inline]
    pub(super) fn overwrite(&mut self, at: usize, payload: &[u8]) {
        let record = self.record(at);
        assert_eq!(record.payload.len(), payload.len(), "the payload keeps its length");
        let start = self.start() + at + record.bytes() - payload.len();
        self.bytes[start..start + payload.len()].copy_from_slice(payload);
    }

    /// Removes the record at an offset, which has left the order before. O(bytes).
    pub(super) fn remove(&mut self, at: usize) {
        self.leave_index(at);
        let record = self.record(at);
        let (bytes, stamp) = (record.bytes(), record.stamp);
        self.write_u16(COUNT, self.len() - 1);
        self.resize_part(at, at, bytes, 0);
        self.note_stamp(stamp, None);
        let used = self.start() + self.record_bytes();
        if self.bytes.len() > SHRUNK_BYTES_MIN && used < self.bytes.len() / 2 {
            self.rebuild(Demand::default(), groups_for(self.len()));
        }
    }

    /// Makes a part of the record at `at` longer or shorter; there is room for it. The offsets of the records behind it follow.
    fn resize_part(&mut self, at: usize, part_at: usize, old: usize, new: usize) {
        if old == new {
            return;
        }
        let start = self.start();
        let end = self.record_bytes();
        self.bytes.copy_within(start + part_at + old..start + end, start + part_at + new);
        self.set_record_bytes(end + new - old);
        let change = (new as u16).wrapping_sub(old as u16);
        let offsets = HEADER_BYTES + self.groups() * GROUP;
        for offset in self.bytes[offsets..start].as_chunks_mut::<2>().0 {
            let before = u16::from_le_bytes(*offset);
            let after = if usize::from(before) > at { before.wrapping_add(change) } else { before };
            *offset = after.to_le_bytes();
        }
    }

    /// Makes room beside the records, so that adding them moves nothing.
    pub(super) fn reserve(&mut self, more: Demand) {
        let records = self.len() + more.records;
        let order_places = self.u16_at(ORDER_PLACES);
        let index_is_full = records + self.u16_at(GRAVES) > places_filled_max(self.groups());
        if index_is_full || order_places > 0 && records > order_places {
            // A quarter more, so that the index is made anew once a fifth of the records has come.
            let ahead =
                if index_is_full && more.records == 1 && records > LINEAR_MAX + 1 { records / 4 } else { 0 };
            let groups = if index_is_full { groups_for(records + ahead) } else { self.groups() };
            return self.rebuild(more, groups);
        }
        let size = self.start() + self.record_bytes() + more.bytes;
        if size > self.bytes.len() {
            self.bytes.resize(allocation_bytes(ThinBlock::HEAD_BYTES + size));
        }
    }

    /// Moves everything to a block with room for `more`, and an index of `groups` groups.
    fn rebuild(&mut self, more: Demand, groups: usize) {
        let records = self.len() + more.records;
        let order_places = match self.u16_at(ORDER_PLACES) {
            0 => 0,
            places if more.records == 0 || records > places => records.max(1) + records / 4,
            places => places,
        };
        let mut new = Self::laid_out(groups, order_places, self.record_bytes() + more.bytes);
        let fixed = [COUNT..GROUPS, RECORD_BYTES..HEADER_BYTES];
        for part in fixed {
            new.bytes[part.clone()].copy_from_slice(&self.bytes[part]);
        }
        let (from, to) = (self.order_start(), new.order_start());
        let order_bytes = if order_places > 0 { self.len() * 2 } else { 0 };
        new.bytes[to..to + order_bytes].copy_from_slice(&self.bytes[from..from + order_bytes]);
        let start = new.start();
        new.bytes[start..start + self.record_bytes()].copy_from_slice(self.records());
        for (at, record) in self.iter() {
            new.enter_index(record.key, at);
        }
        *self = new;
    }

    /// A block of some of its records, in an order only if `records` come in it.
    pub(super) fn rebuilt<'a>(&'a self, records: impl Iterator<Item = Record<'a>> + Clone) -> Self {
        let in_order = self.u16_at(ORDER_PLACES) > 0;
        let room = records.clone().fold(Demand::default(), |room, record| room.with(&record));
        let mut new = Self::with_room(room, in_order);
        for (rank, record) in records.enumerate() {
            let at = new.insert(record);
            if in_order {
                new.enter_order(rank, at);
            }
        }
        new
    }

    // Stamps.

    /// How many records have a stamp. O(1).
    #[inline]
    pub(super) fn stamped(&self) -> usize {
        self.u16_at(STAMPED)
    }

    /// The earliest stamp. O(1).
    #[inline]
    pub(super) fn earliest_stamp(&self) -> Option<u64> {
        (self.stamped() > 0).then(|| self.earliest())
    }

    #[inline]
    fn earliest(&self) -> u64 {
        u64::from_le_bytes(*self.bytes[EARLIEST..].first_chunk().expect("a block has a header"))
    }

    fn set_earliest(&mut self, stamp: u64) {
        self.bytes[EARLIEST..EARLIEST + 8].copy_from_slice(&stamp.to_le_bytes());
    }

    /// A record has another stamp now.
    #[inline]
    fn note_stamp(&mut self, old: Option<u64>, new: Option<u64>) {
        if old != new {
            self.count_stamp(old, new);
        }
    }

    #[cold]
    fn count_stamp(&mut self, old: Option<u64>, new: Option<u64>) {
        let stamped = self.stamped() + usize::from(new.is_some()) - usize::from(old.is_some());
        self.write_u16(STAMPED, stamped);
        let earliest = self.earliest();
        if let Some(new) = new
            && new <= earliest
        {
            self.set_earliest(new);
        } else if old == Some(earliest) {
            let earliest = self.iter().filter_map(|(_, record)| record.stamp).min();
            self.set_earliest(earliest.unwrap_or(NO_STAMP));
        }
    }

    // The order.

    /// The offset of the record of a rank, in a block with an order. O(1).
    #[inline]
    pub(super) fn at_rank(&self, rank: usize) -> usize {
        self.u16_at(self.order_start() + 2 * rank)
    }

    /// The rank of the record at an offset. O(n), of two bytes each, 32 at a time.
    #[inline]
    pub(super) fn rank_of(&self, at: usize) -> usize {
        let start = self.order_start();
        let order = self.bytes[start..start + 2 * self.len()].as_chunks::<2>().0;
        // Compared in 16 bits, and whole chunks without a branch, so that the compiler compares 8 by an instruction: in wider
        // numbers the search would take eight times as long.
        let at = at as u16;
        let is_it = |offset: &[u8; 2]| u16::from_le_bytes(*offset) == at;
        let (chunks, _) = order.as_chunks::<32>();
        let has_it = |chunk: &[[u8; 2]; 32]| {
            chunk.iter().fold(0, |hit: u16, offset| hit | u16::from(is_it(offset)).wrapping_neg()) != 0
        };
        let first = chunks.iter().position(has_it).unwrap_or(chunks.len()) * 32;
        first + order[first..].iter().position(is_it).expect("each record is in the order")
    }

    /// Gives the record at an offset, which was just added, its rank. O(n), of two bytes each.
    pub(super) fn enter_order(&mut self, rank: usize, at: usize) {
        let start = self.order_start();
        let last = self.len() - 1;
        self.bytes.copy_within(start + 2 * rank..start + 2 * last, start + 2 * rank + 2);
        self.write_u16(start + 2 * rank, at);
    }

    /// Takes the record of a rank, which is about to be removed or to get another rank, out of the order; its
    /// offset. O(n), of two bytes each.
    pub(super) fn leave_order(&mut self, rank: usize) -> usize {
        let at = self.at_rank(rank);
        let start = self.order_start();
        let end = start + 2 * self.len();
        self.bytes.copy_within(start + 2 * rank + 2..end, start + 2 * rank);
        at
    }

    /// Gives the record of a rank another rank, among the others. O(ranks between), of two bytes each.
    #[inline]
    pub(super) fn move_order(&mut self, from: usize, to: usize) {
        let at = self.at_rank(from);
        let start = self.order_start();
        let place = |rank: usize| start + 2 * rank;
        if from < to {
            self.bytes.copy_within(place(from + 1)..place(to + 1), place(from));
        } else {
            self.bytes.copy_within(place(to)..place(from), place(to + 1));
        }
        self.write_u16(place(to), at);
    }

    /// A record, uniformly chosen. O(1).
    pub(super) fn random(&self, random: &mut Random) -> Option<Record<'_>> {
        if self.len() == 0 {
            return None;
        }
        let places = self.groups() * GROUP;
        for _ in 0..if places > 0 { DRAWS_MAX } else { 0 } {
            if let Some(at) = self.record_in_place(random.below(places)) {
                return Some(self.record(at));
            }
        }
        self.iter().nth(random.below(self.len())).map(|(_, record)| record)
    }
}

/// The records of a block with their offsets.
#[derive(Debug, Clone)]
pub(super) struct Records<'a> {
    records: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = (usize, Record<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.records.is_empty() {
            return None;
        }
        let (record, rest) = decode_first(self.records);
        let at = self.at;
        self.at += self.records.len() - rest.len();
        self.records = rest;
        Some((at, record))
    }
}
