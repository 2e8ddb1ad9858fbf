//! A table of records by key, owned by one collection: members of sets, fields of hashes, members of
//! sorted sets.
//!
//! ```text
//! BucketTable: hash of key → handle ─▶ Slab: record
//!
//! record   [stamp] │ key length │ payload length │ key │ payload
//! stamp    253, then 6 bytes little-endian │ 252, then 8 bytes, where it takes more than 6
//! length   one byte below 252 │ 254, then 4 bytes little-endian
//! large    255, then a pointer to a Box<Vec<u8>> that holds the record (over CELL_BYTES_MAX)
//! ```
//!
//! Index and lengths take 8 to 9 bytes and 2 bytes a record, at any size of the table. A stamp, a number
//! that its owner keeps with a record, costs those that have one 7 bytes more, or 9. The table owns all
//! its memory, so it can be dropped on any thread.

mod incremental_copy;

use std::{
    collections::HashSet,
    fmt,
    ptr::{self, NonNull},
    sync::{Arc, Mutex},
};

use dunlin_structures::{
    BucketTable, CELL_BYTES_MAX, Candidate, Entries, Handle, Members, Slab, Slot, class_bytes, prefetch_span,
};

use super::{
    CollectionLimits, Resources,
    incremental_copy::table::TableCopies,
    member_block::{Demand, is_block_cursor},
};
use crate::random::{Random, Selection};

/// First bytes that say something else than a length; the smallest of them.
pub(super) const SPECIAL_MIN: u8 = 252;
const STAMPED_FAR: u8 = 252;
const STAMPED: u8 = 253;
const LONG_LENGTH: u8 = 254;
const BOXED: u8 = 255;
const STAMP_BYTES: usize = 6;
const FAR_STAMP_BYTES: usize = 8;
/// Records on their way from memory during a walk through all of them.
const FETCHED_AHEAD: usize = 16;
/// Keys whose buckets are on their way together.
const FETCH_KEYS: usize = 64;
/// Records of a table from which on it is too large for the caches to hold it anyway.
const FETCH_RECORDS_MIN: usize = 4096;
/// A table becomes a block when it has come down to this part of a block's limit: well below, so that an owner of
/// changing size does not go to and fro.
const BLOCK_SHARE: usize = 4;
/// Most bytes of a record that are fetched ahead.
const FETCH_BYTES_MAX: usize = 256;
/// Most bytes before a record's key.
const HEAD_BYTES_MAX: usize = 1 + FAR_STAMP_BYTES + 2 * 5;
const POINTER_BYTES: usize = size_of::<usize>();

/// Records by key; see the module's head.
pub struct MemberTable {
    table: BucketTable,
    slab: Slab,
    resources: Arc<Resources>,
    /// Bytes of boxed records.
    boxed_bytes: usize,
    /// Records that are out of the table and whose cells are still to be freed.
    doomed: Vec<Handle>,
    /// Copies under way, or that were when the table last changed. A method that changes a record looks here first.
    copies: Mutex<Option<Box<TableCopies>>>,
}

/// The places of records in a table: hashes of their keys and handles, in the order of the table's buckets. Valid
/// until the table changes, and not in a copy.
#[derive(Debug)]
pub(crate) struct Places {
    table: usize,
    records: Vec<(u64, Handle)>,
}

/// A record: its key and its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The bytes that are kept with it.
    pub payload: &'a [u8],
    /// The number it is stamped with.
    pub stamp: Option<u64>,
}

struct Records<'a> {
    slab: &'a Slab,
    resources: &'a Resources,
    /// How many there are.
    len: usize,
}

impl Entries for Records<'_> {
    fn hash(&self, handle: Handle) -> u64 {
        self.resources.hash(record_at(self.slab, handle).key)
    }

    fn prefetch(&self, handle: Handle) {
        prefetch_span(self.slab.pointer(handle).as_ptr(), fetch_bytes(self.slab, self.len));
    }
}

/// Bytes of a record that are worth fetching ahead: those of the average cell. A record of 24 bytes lies in
/// two lines one time in four, and its end is compared.
#[inline]
fn fetch_bytes(slab: &Slab, records: usize) -> usize {
    (slab.used_bytes() / records.max(1)).min(FETCH_BYTES_MAX)
}

/// The mark of a stamp, and the bytes that the stamp takes behind it.
fn stamp_form(stamp: u64) -> (u8, usize) {
    if stamp >> (8 * STAMP_BYTES) == 0 { (STAMPED, STAMP_BYTES) } else { (STAMPED_FAR, FAR_STAMP_BYTES) }
}

fn length_bytes(length: usize) -> usize {
    if length < SPECIAL_MIN as usize { 1 } else { 5 }
}

impl Record<'_> {
    /// Appends the record's form.
    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.bytes(), 0);
        self.write(&mut out[start..]);
    }

    /// Bytes before the key.
    fn head_bytes(&self) -> usize {
        head_bytes(self.stamp, self.key.len(), self.payload.len())
    }

    /// Bytes in all.
    pub(super) fn bytes(&self) -> usize {
        self.head_bytes() + self.key.len() + self.payload.len()
    }

    /// Writes the record's form; `out` has as many bytes as it takes.
    pub(super) fn write(&self, out: &mut [u8]) {
        let mut rest = write_head(out, self.stamp, self.key.len(), self.payload.len());
        for part in [self.key, self.payload] {
            let (here, behind) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = behind;
        }
    }
}

/// Bytes before the key of a record with that stamp, and a key and a payload of that many bytes.
#[inline]
pub(super) fn head_bytes(stamp: Option<u64>, key_bytes: usize, payload_bytes: usize) -> usize {
    stamp.map_or(0, |stamp| 1 + stamp_form(stamp).1) + length_bytes(key_bytes) + length_bytes(payload_bytes)
}

/// Writes the part before the key; returns the place of the key.
#[inline]
pub(super) fn write_head(
    out: &mut [u8],
    stamp: Option<u64>,
    key_bytes: usize,
    payload_bytes: usize,
) -> &mut [u8] {
    let (head, rest) = out.split_at_mut(head_bytes(stamp, key_bytes, payload_bytes));
    let mut at = 0;
    if let Some(stamp) = stamp {
        let (mark, bytes) = stamp_form(stamp);
        head[0] = mark;
        head[1..=bytes].copy_from_slice(&stamp.to_le_bytes()[..bytes]);
        at = 1 + bytes;
    }
    for length in [key_bytes, payload_bytes] {
        if length < usize::from(SPECIAL_MIN) {
            head[at] = length as u8;
            at += 1;
        } else {
            head[at] = LONG_LENGTH;
            head[at + 1..at + 5].copy_from_slice(&(length as u32).to_le_bytes());
            at += 5;
        }
    }
    rest
}

/// The bytes of a record and whether they are boxed.
#[inline]
fn bytes_at(slab: &Slab, handle: Handle) -> (&[u8], bool) {
    let cell = slab.pointer(handle);
    // SAFETY: a handle in the table refers to a live cell that `place` has filled: either a whole
    // record, whose lengths say how far it reaches, or BOXED and a pointer from Box::into_raw.
    unsafe {
        let mut at = 0;
        match cell.read() {
            BOXED => {
                let boxed = cell.add(1).cast::<*const Vec<u8>>().read_unaligned();
                return ((*boxed).as_slice(), true);
            }
            STAMPED => at = 1 + STAMP_BYTES,
            STAMPED_FAR => at = 1 + FAR_STAMP_BYTES,
            _ => {}
        }
        let mut total = 0;
        for _ in 0..2 {
            let length = cell.add(at).read();
            if length < SPECIAL_MIN {
                total += usize::from(length);
                at += 1;
            } else {
                total += cell.add(at + 1).cast::<u32>().read_unaligned() as usize;
                at += 5;
            }
        }
        (NonNull::slice_from_raw_parts(cell, at + total).as_ref(), false)
    }
}

#[inline]
fn record_at(slab: &Slab, handle: Handle) -> Record<'_> {
    decode(bytes_at(slab, handle).0)
}

#[inline]
fn decode(bytes: &[u8]) -> Record<'_> {
    let (stamp, bytes) = decode_stamp(bytes);
    let (key_bytes, rest) = decode_length(bytes);
    let (_, rest) = decode_length(rest);
    let (key, payload) = rest.split_at(key_bytes);
    Record { key, payload, stamp }
}

#[inline]
fn decode_stamp(bytes: &[u8]) -> (Option<u64>, &[u8]) {
    match bytes {
        [STAMPED, a, b, c, d, e, f, rest @ ..] => {
            (Some(u64::from_le_bytes([*a, *b, *c, *d, *e, *f, 0, 0])), rest)
        }
        [STAMPED_FAR, a, b, c, d, e, f, g, h, rest @ ..] => {
            (Some(u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h])), rest)
        }
        bytes => (None, bytes),
    }
}

/// Shows each of the records that stand one behind the other.
pub(crate) fn for_each_record(mut bytes: &[u8], mut show: impl FnMut(Record<'_>)) {
    while !bytes.is_empty() {
        let (record, rest) = decode_first(bytes);
        bytes = rest;
        show(record);
    }
}

/// The record at the head of `bytes`, and the bytes behind it.
#[inline]
pub(super) fn decode_first(bytes: &[u8]) -> (Record<'_>, &[u8]) {
    let (stamp, bytes) = decode_stamp(bytes);
    let (key_bytes, rest) = decode_length(bytes);
    let (payload_bytes, rest) = decode_length(rest);
    let (key, rest) = rest.split_at(key_bytes);
    let (payload, rest) = rest.split_at(payload_bytes);
    (Record { key, payload, stamp }, rest)
}

#[inline]
fn decode_length(bytes: &[u8]) -> (usize, &[u8]) {
    match bytes {
        [LONG_LENGTH, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        [length, rest @ ..] => (usize::from(*length), rest),
        [] => unreachable!("a record has two lengths"),
    }
}

impl MemberTable {
    /// An empty table.
    pub fn new(resources: &Arc<Resources>) -> Self {
        Self {
            table: BucketTable::new(Arc::clone(&resources.pool)),
            slab: Slab::new(Arc::clone(&resources.pool)),
            resources: Arc::clone(resources),
            boxed_bytes: 0,
            doomed: Vec::new(),
            copies: Mutex::default(),
        }
    }

    /// How many records.
    #[inline]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Bytes that the table owns. O(1).
    pub fn heap_bytes(&self) -> usize {
        let doomed = self.doomed.capacity() * size_of::<Handle>();
        self.table.memory_bytes()
            + self.slab.page_bytes()
            + self.slab.overhead_bytes()
            + self.boxed_bytes
            + doomed
    }

    /// The room of its records in a block, if one may hold them. O(n).
    pub(super) fn room_in_block(&self, limits: &CollectionLimits) -> Option<Demand> {
        let mut room = Demand::default();
        if self.len() <= limits.block_max_members {
            self.for_each(|record| room = room.with(&record));
        }
        (room.records == self.len() && room.fits(limits)).then_some(room)
    }

    /// [`Self::room_in_block`], if the table has become so small that its owner should move to a block, and no snapshot is
    /// copying it. O(n), O(1) if it is large.
    #[inline]
    pub(super) fn fits_block(&self, limits: &CollectionLimits) -> Option<Demand> {
        let is_small = self.len() <= limits.block_max_members / BLOCK_SHARE
            && self.slab.used_bytes() + self.boxed_bytes <= limits.block_max_bytes / BLOCK_SHARE;
        if is_small && !self.has_doomed() && !self.has_copies() { self.room_in_block(limits) } else { None }
    }

    /// The place of the record of a key. O(1).
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<Slot> {
        self.find_hashed(self.resources.hash(key), key)
    }

    #[inline]
    fn find_hashed(&self, hash: u64, key: &[u8]) -> Option<Slot> {
        self.table.find(hash, |handle| record_at(&self.slab, handle).key == key)
    }

    /// The place of the record behind a handle. O(1).
    pub fn slot_of(&self, handle: Handle) -> Option<Slot> {
        self.table.find(self.resources.hash(self.record(handle).key), |other| other == handle)
    }

    /// Whether there is a record of that key. O(1).
    pub fn contains(&self, key: &[u8]) -> bool {
        self.find(key).is_some()
    }

    /// The payload of a key's record. O(1).
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        Some(self.record(self.find(key)?.handle()).payload)
    }

    /// The record behind a handle; handles are valid until their record is removed or replaced.
    #[inline]
    pub fn record(&self, handle: Handle) -> Record<'_> {
        record_at(&self.slab, handle)
    }

    /// Adds a record unless there is one of that key: its handle, and whether it was added. O(1).
    #[inline]
    pub fn insert(&mut self, key: &[u8], payload: &[u8]) -> (Handle, bool) {
        let hash = self.resources.hash(key);
        if let Some(slot) = self.find_hashed(hash, key) {
            return (slot.handle(), false);
        }
        (self.add(hash, Record { key, payload, stamp: None }), true)
    }

    /// Adds a record whose key is not in the table; its handle. O(1).
    pub fn insert_new(&mut self, record: Record<'_>) -> Handle {
        self.add(self.resources.hash(record.key), record)
    }

    fn add(&mut self, hash: u64, record: Record<'_>) -> Handle {
        self.preserve(|_| hash);
        let handle = self.place(record);
        let records = Records { slab: &self.slab, resources: &self.resources, len: self.table.len() };
        self.table.insert(hash, handle, &records);
        handle
    }

    /// Gives a record another payload, and takes its stamp; its handle from now on. O(1).
    pub fn replace(&mut self, slot: Slot, payload: &[u8]) -> Handle {
        self.replace_stamped(slot, payload, None)
    }

    /// Gives a record another payload and another stamp, or none; its handle from now on. O(1).
    pub fn replace_stamped(&mut self, slot: Slot, payload: &[u8], stamp: Option<u64>) -> Handle {
        let handle = slot.handle();
        self.preserve_record(handle);
        let (bytes, boxed) = bytes_at(&self.slab, handle);
        let old = decode(bytes);
        let new = Record { payload, stamp, ..old };
        let stays = !boxed && new.bytes() <= CELL_BYTES_MAX && new.head_bytes() == old.head_bytes();
        if stays && class_bytes(new.bytes()) == class_bytes(bytes.len()) {
            let (new_bytes, payload_at) = (new.bytes(), new.head_bytes() + new.key.len());
            let mut head = [0; HEAD_BYTES_MAX];
            let head = &mut head[..new.head_bytes()];
            write_head(head, new.stamp, new.key.len(), new.payload.len());
            let cell = self.slab.pointer(handle);
            // SAFETY: the record's cell has room for all records of its class, and `&mut self` makes
            // this the only use of it; the key stays where it is.
            unsafe {
                let mut cell = NonNull::slice_from_raw_parts(cell, new_bytes);
                cell.as_mut()[..head.len()].copy_from_slice(head);
                cell.as_mut()[payload_at..].copy_from_slice(payload);
            }
            return handle;
        }
        let key = NonNull::from(old.key);
        // SAFETY: the key's bytes stay where they are until the old record is freed below: cells do
        // not move.
        let key = unsafe { key.as_ref() };
        let moved = self.place(Record { key, payload, stamp });
        self.free(handle);
        self.table.replace(slot, moved);
        moved
    }

    /// Gives a record another payload of the same length; the handle stays. O(1).
    #[inline]
    pub fn overwrite(&mut self, handle: Handle, payload: &[u8]) {
        self.preserve_record(handle);
        let (bytes, boxed) = bytes_at(&self.slab, handle);
        let length = decode(bytes).payload.len();
        assert_eq!(length, payload.len(), "the payload keeps its length");
        let at = bytes.len() - length;
        let cell = self.slab.pointer(handle);
        // SAFETY: the record is live, `at` and the payload's length stay within it, and `&mut self`
        // makes this the only use of it; BOXED says that a pointer from Box::into_raw stands there.
        unsafe {
            if boxed {
                let record = cell.add(1).cast::<*mut Vec<u8>>().read_unaligned();
                (&mut *record)[at..].copy_from_slice(payload);
            } else {
                cell.add(at).copy_from_nonoverlapping(NonNull::from(payload).cast(), length);
            }
        }
    }

    /// Fetches a record, which is about to be read, from memory.
    #[inline]
    pub fn prefetch(&self, handle: Handle) {
        self.fetch(handle, self.fetch_bytes());
    }

    #[inline]
    fn fetch(&self, handle: Handle, bytes: usize) {
        prefetch_span(self.slab.pointer(handle).as_ptr(), bytes);
    }

    #[inline]
    fn fetch_bytes(&self) -> usize {
        fetch_bytes(&self.slab, self.len())
    }

    /// Fetches the records of some keys, which are about to be asked for, from memory, unless the table is
    /// small. O(keys).
    pub(crate) fn prefetch_keys(&self, keys: &[&[u8]]) {
        if self.len() >= FETCH_RECORDS_MIN {
            let bytes = self.fetch_bytes();
            self.candidates(keys, |handle| self.fetch(handle, bytes));
        }
    }

    /// Passes the first record that each key's bucket names for it to `tell`, nearly always the right one if there is
    /// one: all buckets are fetched side by side, those in overflow last (docs/decisions/0011).
    fn candidates(&self, keys: &[&[u8]], mut tell: impl FnMut(Handle)) {
        let probe = self.table.probe();
        for keys in keys.chunks(FETCH_KEYS) {
            let mut buckets = [None; FETCH_KEYS];
            for (bucket, key) in buckets.iter_mut().zip(keys) {
                let hash = self.resources.hash(key);
                *bucket = probe.fetch_bucket(hash).map(|found| (hash, found));
            }
            for _ in 0..2 {
                for bucket in &mut buckets[..keys.len()] {
                    let Some((hash, found)) = bucket.take() else { continue };
                    match probe.candidate(found, hash) {
                        Candidate::Entry(handle) => tell(handle),
                        Candidate::Overflow(next) => *bucket = Some((hash, next)),
                        Candidate::None => {}
                    }
                }
            }
        }
    }

    /// The resources that the table was made with.
    pub fn resources(&self) -> &Arc<Resources> {
        &self.resources
    }

    /// Gives a record another stamp, or none; its handle from now on. O(1) if it had a stamp and
    /// gets one of as many bytes, O(payload) otherwise.
    pub fn restamp(&mut self, slot: Slot, stamp: Option<u64>) -> Handle {
        let old = self.record(slot.handle());
        match (old.stamp, stamp) {
            (None, None) => slot.handle(),
            (Some(old), Some(stamp)) if stamp_form(old) == stamp_form(stamp) => {
                self.preserve_record(slot.handle());
                self.write_stamp(slot.handle(), stamp);
                slot.handle()
            }
            _ => {
                // The old record is freed before the call returns.
                let payload = old.payload.to_vec();
                self.replace_stamped(slot, &payload, stamp)
            }
        }
    }

    /// Removes a record. O(1).
    pub fn remove(&mut self, slot: Slot) {
        self.preserve_record(slot.handle());
        let handle = self.table.remove(slot);
        self.free(handle);
    }

    /// The places of the records of some keys that are there. O(keys log keys).
    pub(crate) fn places<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Places {
        let place = |key| {
            let hash = self.resources.hash(key);
            self.find_hashed(hash, key).map(|slot| (hash, slot.handle()))
        };
        let mut records: Vec<_> = keys.filter_map(place).collect();
        records.sort_unstable_by_key(|(hash, _)| self.table.bucket_of(*hash));
        Places { table: ptr::from_ref(self).addr(), records }
    }

    /// Whether places are of this table, and not of the one that it was copied from.
    pub(crate) fn has(&self, places: &Places) -> bool {
        places.table == ptr::from_ref(self).addr()
    }

    /// Removes the records at some of its places, since which it has not changed; [`Self::reap`] frees their cells
    /// later. O(places), and one access to memory for each, since neither keys nor records are looked at.
    pub(crate) fn doom(&mut self, places: &Places) {
        assert!(self.has(places), "places in a table are no places in its copy");
        self.doomed.reserve_exact(places.records.len());
        for records in places.records.chunks(FETCH_KEYS) {
            for (hash, _) in records {
                _ = self.table.probe().fetch_bucket(*hash);
            }
            for (hash, handle) in records {
                self.preserve(|_| *hash);
                let slot = self.table.find(*hash, |other| other == *handle);
                self.doomed.push(self.table.remove(slot.expect("the table has not changed")));
            }
        }
    }

    /// Whether cells of removed records are still to be freed.
    #[inline]
    pub(crate) fn has_doomed(&self) -> bool {
        !self.doomed.is_empty()
    }

    /// Frees cells of removed records, no more than `records_max`. Returns how many.
    pub(crate) fn reap(&mut self, records_max: usize) -> usize {
        let bytes = self.fetch_bytes();
        let reaped = self.doomed.split_off(self.doomed.len().saturating_sub(records_max));
        for handles in reaped.chunks(FETCH_KEYS) {
            handles.iter().for_each(|handle| self.fetch(*handle, bytes));
            handles.iter().for_each(|handle| self.free(*handle));
        }
        if self.doomed.is_empty() {
            self.doomed = Vec::new();
        }
        reaped.len()
    }

    /// Visits some records behind `cursor` and returns the next cursor, 0 at the end: a record that is there from the
    /// call with 0 to the one that returns 0 is visited at least once. Begins again at a cursor of the block that the
    /// table was before.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(Record<'_>)) -> u64 {
        let cursor = if is_block_cursor(cursor) { 0 } else { cursor };
        self.table.scan(cursor, |handle| visit(self.record(handle)))
    }

    /// Visits all records, in no order. O(n). Records are fetched from memory some time before they are
    /// visited: the table leads to them in an order that no processor foresees.
    pub fn for_each<'a>(&'a self, mut visit: impl FnMut(Record<'a>)) {
        let (mut fetched, mut next) = ([None; FETCHED_AHEAD], 0);
        let bytes = self.fetch_bytes();
        self.table.for_each(|handle| {
            self.fetch(handle, bytes);
            if let Some(handle) = fetched[next].replace(handle) {
                visit(self.record(handle));
            }
            next = (next + 1) % FETCHED_AHEAD;
        });
        let (newer, older) = fetched.split_at(next);
        older.iter().chain(newer).flatten().for_each(|handle| visit(self.record(*handle)));
    }

    /// A record chosen by 64 random bits, nearly uniformly.
    pub fn random(&self, random: u64) -> Option<Record<'_>> {
        self.table.random(random).map(|handle| self.record(handle))
    }

    /// Visits `count` different records, nearly uniformly chosen, or all if there are fewer.
    /// O(count) expected, or O(n) if that is not much more.
    pub(crate) fn sample<'a>(&'a self, count: usize, random: &mut Random, mut visit: impl FnMut(Record<'a>)) {
        if count >= self.len() / 4 {
            let mut selection = Selection::new(count, self.len());
            return self.for_each(|record| {
                if selection.takes(random) {
                    visit(record);
                }
            });
        }
        // Three of four draws or more are new.
        let mut drawn = HashSet::with_capacity(count);
        while drawn.len() < count {
            let handle = self.table.random(random.bits()).expect("there are more than are drawn");
            if drawn.insert(handle) {
                visit(self.record(handle));
            }
        }
    }

    /// Overwrites the stamp of a record that has one of as many bytes.
    fn write_stamp(&mut self, handle: Handle, stamp: u64) {
        debug_assert_eq!(self.record(handle).stamp.map(stamp_form), Some(stamp_form(stamp)));
        let cell = self.slab.pointer(handle);
        let (bytes, length) = (stamp.to_le_bytes(), stamp_form(stamp).1);
        // SAFETY: a stamped record begins with its mark and the stamp, in its cell or, if that is BOXED, in the
        // vector of the pointer from Box::into_raw; `&mut self` makes this the only use of it.
        unsafe {
            let start = match cell.read() {
                BOXED => {
                    let mut boxed = cell.add(1).cast::<NonNull<Vec<u8>>>().read_unaligned();
                    NonNull::from(boxed.as_mut().as_mut_slice()).cast()
                }
                _ => cell,
            };
            start.add(1).copy_from_nonoverlapping(NonNull::from(&bytes).cast(), length);
        }
    }

    /// Writes a record into a cell of its own.
    fn place(&mut self, record: Record<'_>) -> Handle {
        let bytes = record.bytes();
        if bytes <= CELL_BYTES_MAX {
            let handle = self.slab.allocate(bytes);
            // SAFETY: the cell is fresh, has room for `bytes` bytes, and is zeroed or was written
            // before.
            let cell = unsafe { NonNull::slice_from_raw_parts(self.slab.pointer(handle), bytes).as_mut() };
            record.write(cell);
            return handle;
        }
        let mut boxed = Box::new(vec![0; bytes]);
        record.write(&mut boxed);
        self.boxed_bytes += bytes + size_of::<Vec<u8>>();
        let handle = self.slab.allocate(1 + POINTER_BYTES);
        // SAFETY: the cell is fresh and has room for the mark and the pointer.
        unsafe {
            let cell = self.slab.pointer(handle);
            cell.write(BOXED);
            cell.add(1).cast::<*mut Vec<u8>>().write_unaligned(Box::into_raw(boxed));
        }
        handle
    }

    /// Frees the cell of a record that is out of the table.
    fn free(&mut self, handle: Handle) {
        let (bytes, boxed) = bytes_at(&self.slab, handle);
        let length = bytes.len();
        if boxed {
            self.boxed_bytes -= length + size_of::<Vec<u8>>();
            // SAFETY: BOXED says that a pointer from Box::into_raw stands here; the record is not
            // used again.
            unsafe { free_boxed(&self.slab, handle) };
            self.slab.free(handle, 1 + POINTER_BYTES);
        } else {
            self.slab.free(handle, length);
        }
    }
}

/// # Safety
/// The record must be boxed and not be used again.
unsafe fn free_boxed(slab: &Slab, handle: Handle) {
    // SAFETY: the caller vouches.
    unsafe {
        drop(Box::from_raw(slab.pointer(handle).add(1).cast::<*mut Vec<u8>>().read_unaligned()));
    }
}

impl Members for MemberTable {
    fn bytes(&self, handle: Handle) -> &[u8] {
        self.record(handle).key
    }
}

impl Clone for MemberTable {
    fn clone(&self) -> Self {
        let mut copy = Self::new(&self.resources);
        self.for_each(|record| {
            copy.insert_new(record);
        });
        copy
    }
}

impl Drop for MemberTable {
    fn drop(&mut self) {
        if self.boxed_bytes > 0 {
            let free = |handle| {
                if bytes_at(&self.slab, handle).1 {
                    // SAFETY: it is boxed, and the table is on its way out.
                    unsafe { free_boxed(&self.slab, handle) };
                }
            };
            self.doomed.iter().copied().for_each(free);
            self.table.for_each(free);
        }
    }
}

impl fmt::Debug for MemberTable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("MemberTable").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn prefetch_fetches_what_will_be_read() {
        const RECORDS: usize = 5000;
        let mut table = MemberTable::new(&Resources::for_tests());
        let keys: Vec<Vec<u8>> = (0..2 * RECORDS).map(|number| number.to_string().into_bytes()).collect();
        let (present, absent) = keys.split_at(RECORDS);
        present.iter().for_each(|key| assert!(table.insert(key, b"").1));
        let fetched = |keys: &[Vec<u8>]| {
            let (keys, mut fetched): (Vec<&[u8]>, _) =
                (keys.iter().map(Vec::as_slice).collect(), HashSet::new());
            table.candidates(&keys, |handle| _ = fetched.insert(table.record(handle).key.to_vec()));
            fetched
        };
        let hits = fetched(present).len();
        assert!(hits > RECORDS * 9 / 10, "{hits} of {RECORDS}");
        let needless = fetched(absent).len();
        assert!(needless < RECORDS / 5, "{needless} of {RECORDS}");
        table.prefetch_keys(&[b"1", b"no such key"]);
    }

    /// Numbers that take six bytes, and eight.
    fn stamp() -> impl Strategy<Value = u64> {
        const EDGE: u64 = 1 << (8 * STAMP_BYTES);
        prop_oneof![0..EDGE, EDGE - 2..EDGE + 2, any::<u64>()]
    }

    proptest! {
        #[test]
        fn behaves_like_a_hash_map(
            steps in proptest::collection::vec(
                (0..6u8, 0..40u8, 0..4000usize, proptest::option::of(stamp())),
                1..300,
            ),
        ) {
            let mut table = MemberTable::new(&Resources::for_tests());
            let mut model: HashMap<Vec<u8>, (Vec<u8>, Option<u64>)> = HashMap::new();
            for (step, key, length, stamp) in steps {
                let key = vec![key; 1 + usize::from(key) * 20];
                let payload = vec![step; length];
                match (step, table.find(&key)) {
                    (0, found) => {
                        let (handle, added) = table.insert(&key, &payload);
                        prop_assert_eq!(added, found.is_none());
                        prop_assert_eq!(table.slot_of(handle).map(|slot| slot.handle()), Some(handle));
                        model.entry(key).or_insert((payload, None));
                    }
                    (1, Some(slot)) => {
                        let handle = table.replace_stamped(slot, &payload, stamp);
                        prop_assert_eq!(table.record(handle).payload, &payload);
                        model.insert(key, (payload, stamp));
                    }
                    (2, Some(slot)) => {
                        let handle = table.restamp(slot, stamp);
                        prop_assert_eq!(table.record(handle).stamp, stamp);
                        model.get_mut(&key).expect("it is in the table").1 = stamp;
                    }
                    (3, Some(slot)) => {
                        table.remove(slot);
                        model.remove(&key);
                    }
                    (4, _) => {
                        let smaller: Vec<Vec<u8>> = model.keys().filter(|other| **other < key).cloned().collect();
                        let places = table.places(smaller.iter().map(Vec::as_slice));
                        table.doom(&places);
                        model.retain(|other, _| *other >= key);
                        prop_assert_eq!(table.has_doomed(), !table.doomed.is_empty());
                    }
                    (5, _) => {
                        let doomed = table.doomed.len();
                        let reaped = table.reap(length);
                        prop_assert_eq!((reaped, table.doomed.len()), (doomed.min(length), doomed - reaped));
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len());
            }
            let copy = table.clone();
            prop_assert!(!copy.has_doomed());
            for copy in [&table, &copy] {
                let mut seen = 0;
                copy.for_each(|record| {
                    let (payload, stamp) = &model[record.key];
                    assert_eq!((record.payload, record.stamp), (payload.as_slice(), *stamp));
                    seen += 1;
                });
                prop_assert_eq!(seen, model.len());
            }
            table.reap(usize::MAX);
            prop_assert_eq!(table.boxed_bytes, copy.boxed_bytes);
            prop_assert_eq!(table.slab.used_bytes(), copy.slab.used_bytes(), "all cells were freed once");
        }
    }
}
