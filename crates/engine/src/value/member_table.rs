//! A table of records by key, owned by one collection: members of sets, fields of hashes, members of
//! sorted sets.
//!
//! ```text
//! BucketTable: hash of key → handle ─▶ Slab: record
//!
//! record   key length │ payload length │ key │ payload
//! length   one byte below 254 │ 254, then 4 bytes little-endian
//! large    255, then a pointer to a Box<Vec<u8>> that holds the record (over CELL_BYTES_MAX)
//! ```
//!
//! 8 to 9 bytes of index and 2 bytes of lengths a record, whatever the size of the table. It owns all
//! its memory, so it can be dropped on any thread.

use std::{collections::HashSet, fmt, ptr::NonNull, sync::Arc};

use dunlin_structures::{BucketTable, CELL_BYTES_MAX, Entries, Handle, Slab, Slot, prefetch};

use super::Resources;
use crate::random::{Random, Selection};

const LONG_LENGTH: u8 = 254;
const BOXED: u8 = 255;
const POINTER_BYTES: usize = size_of::<usize>();

/// Records by key; see the module's head.
pub struct MemberTable {
    table: BucketTable,
    slab: Slab,
    resources: Arc<Resources>,
    /// Bytes of boxed records.
    boxed_bytes: usize,
}

/// A record: its key and its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The key.
    pub key: &'a [u8],
    /// What is kept with it.
    pub payload: &'a [u8],
}

struct Records<'a> {
    slab: &'a Slab,
    resources: &'a Resources,
}

impl Entries for Records<'_> {
    fn hash(&self, handle: Handle) -> u64 {
        self.resources.hash(record_at(self.slab, handle).key)
    }

    fn prefetch(&self, handle: Handle) {
        prefetch(self.slab.pointer(handle).as_ptr());
    }
}

fn length_bytes(length: usize) -> usize {
    if length < LONG_LENGTH as usize { 1 } else { 5 }
}

fn encode(out: &mut Vec<u8>, key: &[u8], payload: &[u8]) {
    for length in [key.len(), payload.len()] {
        if length < LONG_LENGTH as usize {
            out.push(length as u8);
        } else {
            out.push(LONG_LENGTH);
            out.extend_from_slice(&(length as u32).to_le_bytes());
        }
    }
    out.extend_from_slice(key);
    out.extend_from_slice(payload);
}

/// The bytes of a record and whether they are boxed.
#[inline]
fn bytes_at(slab: &Slab, handle: Handle) -> (&[u8], bool) {
    let cell = slab.pointer(handle);
    // SAFETY: a handle in the table refers to a live cell that `place` has filled: either a whole
    // record, whose lengths say how far it reaches, or BOXED and a pointer from Box::into_raw.
    unsafe {
        if cell.read() == BOXED {
            let boxed = cell.add(1).cast::<*const Vec<u8>>().read_unaligned();
            return ((*boxed).as_slice(), true);
        }
        let mut at = 0;
        let mut total = 0;
        for _ in 0..2 {
            let length = cell.add(at).read();
            if length < LONG_LENGTH {
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
    let (key_length, rest) = decode_length(bytes);
    let (_, rest) = decode_length(rest);
    let (key, payload) = rest.split_at(key_length);
    Record { key, payload }
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
        }
    }

    /// How many records.
    #[inline]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Bytes that the table owns. O(1).
    pub fn heap_bytes(&self) -> usize {
        self.table.memory_bytes() + self.slab.page_bytes() + self.slab.overhead_bytes() + self.boxed_bytes
    }

    /// Where the record of a key stands. O(1).
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<Slot> {
        self.find_hashed(self.resources.hash(key), key)
    }

    #[inline]
    fn find_hashed(&self, hash: u64, key: &[u8]) -> Option<Slot> {
        self.table.find(hash, |handle| record_at(&self.slab, handle).key == key)
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
    pub fn insert(&mut self, key: &[u8], payload: &[u8]) -> (Handle, bool) {
        let hash = self.resources.hash(key);
        if let Some(slot) = self.find_hashed(hash, key) {
            return (slot.handle(), false);
        }
        let handle = self.place(key, payload);
        let records = Records { slab: &self.slab, resources: &self.resources };
        self.table.insert(hash, handle, &records);
        (handle, true)
    }

    /// Gives a record another payload; its handle from now on. O(1).
    pub fn replace(&mut self, slot: Slot, payload: &[u8]) -> Handle {
        let (bytes, boxed) = bytes_at(&self.slab, slot.handle());
        let old = decode(bytes);
        if !boxed && old.payload.len() == payload.len() {
            let at = bytes.len() - payload.len();
            // SAFETY: the record's cell reaches to `bytes.len()`, and `&mut self` makes this the only
            // use of it.
            unsafe {
                let cell = self.slab.pointer(slot.handle());
                cell.add(at).copy_from_nonoverlapping(NonNull::from(payload).cast(), payload.len());
            }
            return slot.handle();
        }
        let key = old.key.to_vec();
        let handle = self.place(&key, payload);
        self.free(slot.handle());
        self.table.replace(slot, handle);
        handle
    }

    /// Removes a record. O(1).
    pub fn remove(&mut self, slot: Slot) {
        let handle = self.table.remove(slot);
        self.free(handle);
    }

    /// Visits some records behind `cursor` and answers the next cursor, 0 at the end: what is there
    /// from the call with 0 to the one that answers 0 is visited at least once.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(Record<'_>)) -> u64 {
        self.table.scan(cursor, |handle| visit(self.record(handle)))
    }

    /// Visits all records, in no order. O(n).
    pub fn for_each<'a>(&'a self, mut visit: impl FnMut(Record<'a>)) {
        self.table.for_each(|handle| visit(self.record(handle)));
    }

    /// A record chosen by 64 random bits, nearly uniformly.
    pub fn random(&self, random: u64) -> Option<Record<'_>> {
        self.table.random(random).map(|handle| self.record(handle))
    }

    /// Visits `count` different records, nearly uniformly chosen, or all where there are fewer.
    /// O(count) expected, or O(n) where that is not much more.
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

    /// Writes a record into a cell of its own.
    fn place(&mut self, key: &[u8], payload: &[u8]) -> Handle {
        let bytes = length_bytes(key.len()) + length_bytes(payload.len()) + key.len() + payload.len();
        let mut record = Vec::with_capacity(bytes);
        encode(&mut record, key, payload);
        if bytes <= CELL_BYTES_MAX {
            let handle = self.slab.allocate(bytes);
            // SAFETY: the cell is fresh and has room for `bytes` bytes.
            unsafe {
                let cell = self.slab.pointer(handle);
                cell.copy_from_nonoverlapping(NonNull::from(record.as_slice()).cast(), bytes);
            }
            return handle;
        }
        self.boxed_bytes += bytes + size_of::<Vec<u8>>();
        let handle = self.slab.allocate(1 + POINTER_BYTES);
        // SAFETY: the cell is fresh and has room for the mark and the pointer.
        unsafe {
            let cell = self.slab.pointer(handle);
            cell.write(BOXED);
            cell.add(1).cast::<*mut Vec<u8>>().write_unaligned(Box::into_raw(Box::new(record)));
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

impl Clone for MemberTable {
    fn clone(&self) -> Self {
        let mut copy = Self::new(&self.resources);
        self.for_each(|record| {
            copy.insert(record.key, record.payload);
        });
        copy
    }
}

impl Drop for MemberTable {
    fn drop(&mut self) {
        if self.boxed_bytes > 0 {
            self.table.for_each(|handle| {
                if bytes_at(&self.slab, handle).1 {
                    // SAFETY: it is boxed, and the table is on its way out.
                    unsafe { free_boxed(&self.slab, handle) };
                }
            });
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

    proptest! {
        #[test]
        fn behaves_like_a_hash_map(
            steps in proptest::collection::vec((0..3u8, 0..40u8, 0..4000usize), 1..300),
        ) {
            let mut table = MemberTable::new(&Resources::for_tests());
            let mut model: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
            for (step, key, length) in steps {
                let key = vec![key; 1 + usize::from(key) * 20];
                let payload = vec![step; length];
                match step {
                    0 => {
                        let added = table.insert(&key, &payload).1;
                        prop_assert_eq!(added, !model.contains_key(&key));
                        model.entry(key).or_insert(payload);
                    }
                    1 => if let Some(slot) = table.find(&key) {
                        table.replace(slot, &payload);
                        model.insert(key, payload);
                    },
                    _ => if let Some(slot) = table.find(&key) {
                        table.remove(slot);
                        model.remove(&key);
                    },
                }
                prop_assert_eq!(table.len(), model.len());
            }
            for copy in [&table, &table.clone()] {
                let mut seen = 0;
                copy.for_each(|record| {
                    assert_eq!(model[record.key], record.payload);
                    seen += 1;
                });
                prop_assert_eq!(seen, model.len());
            }
        }
    }
}
