//! A database's part in a stripe: a table of handles over a slab of entries.

mod captures;
mod compaction;
mod eviction;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use dunlin_structures::{
    BucketProbe, BucketTable, Candidate, Entries, Handle, PageDirectory, PagePool, Slab, Slot, TableProbe,
    Tick, Verdict, class_bytes, prefetch, prefetch_span,
};

use self::captures::{Captures, preserve_entry};
pub(crate) use self::eviction::{Candidates, Part, Sampling};
use super::{
    KeyHasher, Usage,
    access::Touch,
    entry::{Edited, EntryMut, EntryRef, Shape},
    hidden::HiddenSlots,
    key::same_bytes,
};
use crate::{
    context::Garbage,
    notify::EventClass,
    snapshot::IncrementalEntry,
    value::{Collection, NewString, NewValue, Object, Owned, TextMut, recycle},
};

/// Milliseconds to a tick of the table's deadlines, as a power of two: 64 ms.
const DEADLINE_TICK_SHIFT: u32 = 6;
/// Most bytes of an entry that are fetched ahead; behind them the processor's own prefetcher is at
/// work.
const PREFETCH_BYTES_MAX: usize = 256;
const CACHE_LINE_BYTES: usize = 64;
/// Insertions between two looks at how large entries are on average.
const SIZE_SAMPLE_INSERTIONS: usize = 256;

/// Milliseconds until elements of a collection that a view shares are looked at again.
const VIEWED_PAUSE_MS: u64 = 1000;
/// Milliseconds until a key of a hidden slot whose time has come is looked at again.
const HIDDEN_PAUSE_MS: u64 = 1000;

/// Elements of collections that a slice of expiry reclaims, for each bucket that it may look at: an
/// entry each for the slots of a bucket, roughly.
const ELEMENTS_PER_BUCKET: usize = 16;

/// The key or elements whose time was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiration {
    /// The key.
    Key,
    /// Some elements of its collection.
    Elements,
    /// The last elements of its collection, and with them the key.
    LastElement,
}

impl Expiration {
    /// The events of it, in order.
    pub(crate) fn events(self) -> &'static [(EventClass, &'static str)] {
        const KEY: (EventClass, &str) = (EventClass::Expired, "expired");
        const ELEMENTS: (EventClass, &str) = (EventClass::Hash, "hexpired");
        const EMPTY: (EventClass, &str) = (EventClass::Generic, "del");
        match self {
            Self::Key => &[KEY],
            Self::Elements => &[ELEMENTS],
            Self::LastElement => &[ELEMENTS, EMPTY],
        }
    }
}

/// An entry on its way to another key.
pub(crate) struct Taken<'b> {
    pub(crate) value: NewValue<'b>,
    pub(crate) expiry: Option<u64>,
    /// Pieces of it that snapshots have.
    pub(crate) pieces: Vec<IncrementalEntry>,
}

/// The removals of a slice of expiry.
#[derive(Debug, Default)]
pub(crate) struct ExpirySlice {
    /// Keys removed because their own time had come.
    pub(crate) keys: usize,
    /// Elements reclaimed.
    pub(crate) elements: usize,
    /// Whether nothing more is due.
    pub(crate) complete: bool,
}

/// The entries of a part that expire.
#[derive(Debug, Default, Clone, Copy)]
struct Expiries {
    keys: usize,
    /// Their expiries in all, in unix milliseconds.
    sum_ms: u128,
}

impl Expiries {
    #[inline]
    fn add(&mut self, expiry: Option<u64>) {
        if let Some(expiry) = expiry {
            self.keys += 1;
            self.sum_ms += u128::from(expiry);
        }
    }

    #[inline]
    fn remove(&mut self, expiry: Option<u64>) {
        if let Some(expiry) = expiry {
            self.keys -= 1;
            self.sum_ms -= u128::from(expiry);
        }
    }
}

/// A part of a database.
pub struct Database {
    table: BucketTable,
    slab: Slab,
    hasher: KeyHasher,
    /// Bytes that entries own outside the slab.
    heap_bytes: usize,
    expiries: Expiries,
    /// Bytes in use when last measured.
    measured_bytes: usize,
    /// The stamps of entries that no snapshot has yet to see. New entries have them.
    stamps: u8,
    /// Snapshots' state of the part, while there are any.
    captures: Option<Box<Captures>>,
    /// Keys that eviction has found worth removing, once there is any.
    candidates: Option<Box<Candidates>>,
    probe: Box<Probe>,
}

impl fmt::Debug for Database {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Database").field("keys", &self.table.len()).finish_non_exhaustive()
    }
}

/// State that may be read without the lock, to fetch memory ahead.
pub(super) struct Probe {
    table: Arc<TableProbe>,
    pages: Arc<PageDirectory>,
    /// Bytes of an entry on average, [`PREFETCH_BYTES_MAX`] at most: as many are worth fetching.
    entry_bytes: AtomicUsize,
}

impl Probe {
    /// Asks for the bucket of a hash.
    #[inline]
    pub(super) fn fetch_bucket(&self, hash: u64) -> Option<BucketProbe<'_>> {
        self.table.fetch_bucket(hash)
    }

    /// Asks for the entry that a bucket seems to name, or for the bucket behind it, which is answered.
    #[inline]
    pub(super) fn fetch_entry<'a>(&'a self, bucket: BucketProbe<'a>, hash: u64) -> Option<BucketProbe<'a>> {
        match self.table.candidate(bucket, hash) {
            Candidate::Entry(handle) => self.fetch_cell(handle),
            Candidate::Overflow(next) => return Some(next),
            Candidate::None => {}
        }
        None
    }

    #[inline]
    fn fetch_cell(&self, handle: Handle) {
        let start = self.pages.address(handle);
        // The average is a size class, hence rarely exact; the last byte of the average entry
        // decides how many lines are fetched, wherever in its first line the entry begins.
        prefetch_span(start, self.entry_bytes.load(Ordering::Relaxed));
    }
}

/// How the table learns about entries when it moves their handles.
struct Cells<'a> {
    slab: &'a Slab,
    hasher: &'a KeyHasher,
}

impl Entries for Cells<'_> {
    fn hash(&self, handle: Handle) -> u64 {
        // SAFETY: handles in the table refer to entries of the slab beside it.
        let entry = unsafe { EntryRef::new(self.slab.pointer(handle)) };
        self.hasher.hash(entry.key())
    }

    fn prefetch(&self, handle: Handle) {
        prefetch(self.slab.pointer(handle).as_ptr());
    }
}

/// The tick from which on something that expires at `expiry_ms` has expired.
fn deadline(expiry_ms: u64, now_ms: u64) -> Tick {
    Tick::deadline(expiry_ms.div_ceil(1 << DEADLINE_TICK_SHIFT), now_ms >> DEADLINE_TICK_SHIFT)
}

/// Frees an entry and its cell.
///
/// # Safety
/// `handle` must refer to an entry of the slab that no thread reads again.
unsafe fn free_entry(slab: &mut Slab, handle: Handle, garbage: &mut Garbage) {
    // SAFETY: the caller vouches.
    let bytes = unsafe {
        let entry = EntryRef::new(slab.pointer(handle));
        let bytes = entry.bytes();
        if let Some(owned) = entry.take_owned() {
            garbage.push(owned);
        }
        entry.free_key();
        bytes
    };
    slab.free(handle, bytes);
}

/// The current tick.
fn now_tick(now_ms: u64) -> Tick {
    Tick::new(now_ms >> DEADLINE_TICK_SHIFT)
}

impl Database {
    pub(super) fn new(hasher: KeyHasher, pool: &Arc<PagePool>) -> Self {
        let table = BucketTable::new(Arc::clone(pool));
        let slab = Slab::new(Arc::clone(pool));
        let probe = Box::new(Probe {
            table: Arc::clone(table.probe()),
            pages: Arc::clone(slab.directory()),
            entry_bytes: AtomicUsize::new(CACHE_LINE_BYTES),
        });
        Self {
            table,
            slab,
            hasher,
            heap_bytes: 0,
            expiries: Expiries::default(),
            measured_bytes: 0,
            stamps: 0,
            captures: None,
            candidates: None,
            probe,
        }
    }

    pub(super) fn probe(&self) -> &Probe {
        &self.probe
    }

    /// Keys, expired ones that are still there included.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            keys: self.table.len(),
            expiring: self.expiries.keys,
            expiry_sum_ms: self.expiries.sum_ms,
            entry_bytes: self.slab.used_bytes(),
            table_bytes: self.table.memory_bytes(),
            heap_bytes: self.heap_bytes,
        }
    }

    /// Bytes of keys and values. O(1).
    pub(crate) fn entry_bytes(&self) -> usize {
        self.slab.used_bytes() + self.heap_bytes
    }

    pub(super) fn measured_bytes(&self) -> usize {
        self.measured_bytes
    }

    /// Bytes in use when last measured, and now.
    #[inline]
    pub(super) fn measure(&mut self) -> (usize, usize) {
        let now = self.slab.used_bytes() + self.table.memory_bytes() + self.heap_bytes;
        (std::mem::replace(&mut self.measured_bytes, now), now)
    }

    #[inline]
    fn entry_of(&self, handle: Handle) -> EntryRef<'_> {
        // SAFETY: handles in the table refer to entries of the slab beside it; changing one takes
        // `&mut self`.
        unsafe { EntryRef::new(self.slab.pointer(handle)) }
    }

    #[inline]
    fn entry_mut(&mut self, slot: Slot) -> EntryMut<'_> {
        // SAFETY: as in `entry_of`; `&mut self` is borrowed for as long as the result.
        unsafe { EntryMut::new(self.slab.pointer(slot.handle())) }
    }

    /// The place of a key, expired or not. O(1).
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<Slot> {
        self.find_entry(hash, key).map(|(slot, _)| slot)
    }

    /// [`Self::find`] with the entry that stands there.
    #[inline(always)]
    pub(crate) fn find_entry(&self, hash: u64, key: &[u8]) -> Option<(Slot, EntryRef<'_>)> {
        let mut found = None;
        let slot = self.table.find(hash, |handle| {
            let entry = self.entry_of(handle);
            found = Some(entry);
            same_bytes(entry.key(), key)
        })?;
        Some((slot, found?))
    }

    /// The entry in a slot.
    #[inline]
    pub(crate) fn entry(&self, slot: Slot) -> EntryRef<'_> {
        self.entry_of(slot.handle())
    }

    /// Stores a value under a key that stands at `found`, or nowhere. `value` must not borrow from
    /// this database. O(1).
    pub(crate) fn put(
        &mut self,
        (hash, key): (u64, &[u8]),
        found: Option<Slot>,
        value: NewValue<'_>,
        expiry: Option<u64>,
        (now_ms, touch): (u64, Touch),
        garbage: &mut Garbage,
    ) {
        let shape = Shape::new(key, &value, expiry, self.stamps);
        self.heap_bytes += shape.value_heap_bytes(&value);
        self.expiries.add(expiry);
        let next_deadline_ms = [expiry, value.next_deadline_ms()].into_iter().flatten().min();
        let slot;
        match found {
            None => {
                let handle = self.slab.allocate(shape.bytes());
                // SAFETY: the cell is fresh and has the shape's size.
                unsafe { shape.write(self.slab.pointer(handle), key, value, expiry, touch.fresh()) };
                self.heap_bytes += self.entry_of(handle).key_heap_bytes();
                let cells = Cells { slab: &self.slab, hasher: &self.hasher };
                slot = self.table.insert(hash, handle, &cells);
                if touch.is_weighed()
                    && let Some(candidates) = &mut self.candidates
                {
                    candidates.note_return(hash);
                }
                if self.table.len().is_multiple_of(SIZE_SAMPLE_INSERTIONS) {
                    let average = self.slab.used_bytes() / self.table.len();
                    self.probe.entry_bytes.store(average.min(PREFETCH_BYTES_MAX), Ordering::Relaxed);
                }
            }
            Some(found) => {
                slot = found;
                self.preserve_leaving(slot);
                let handle = slot.handle();
                let entry = self.entry_of(handle);
                let old_bytes = entry.bytes();
                let old_heap_bytes = entry.value_heap_bytes();
                let old_expiry = entry.expiry();
                // SAFETY: the value is overwritten below and not read again.
                if let Some(owned) = unsafe { entry.take_owned() } {
                    garbage.push(owned);
                }
                if class_bytes(old_bytes) == class_bytes(shape.bytes()) {
                    // SAFETY: the cell holds this key, has room for the shape, and its old value
                    // has been taken out.
                    unsafe {
                        shape.write_behind_key(self.slab.pointer(handle), value, expiry);
                    }
                    self.entry_of(handle).touch(touch);
                } else {
                    let stamp = touch.after(entry.access());
                    let moved = self.slab.allocate(shape.bytes());
                    // SAFETY: the new cell is fresh; the old one is not used after it is freed.
                    unsafe {
                        shape.write(self.slab.pointer(moved), key, value, expiry, stamp);
                        EntryRef::new(self.slab.pointer(handle)).free_key();
                    }
                    self.slab.free(handle, old_bytes);
                    self.table.replace(slot, moved);
                }
                self.heap_bytes -= old_heap_bytes;
                self.expiries.remove(old_expiry);
            }
        }
        if let Some(next) = next_deadline_ms {
            self.table.note_deadline(slot, deadline(next, now_ms));
        }
    }

    /// Notes that an element of the collection in a slot expires. O(1).
    #[inline]
    pub(crate) fn note_element_deadline(&mut self, slot: Slot, deadline_ms: u64, now_ms: u64) {
        self.table.note_deadline(slot, deadline(deadline_ms, now_ms));
    }

    /// Gives an entry another expiry, or none. O(1); values that the entry owns stay where they are.
    pub(crate) fn set_expiry(&mut self, slot: Slot, expiry: Option<u64>, now_ms: u64) {
        self.preserve(slot);
        let old = self.entry(slot).expiry();
        match (old, expiry) {
            (None, None) => return,
            (Some(_), Some(expiry)) if self.entry_mut(slot).set_expiry(expiry) => {}
            _ => {
                let entry = self.entry(slot);
                let bytes = (entry.bytes(), entry.bytes_with_expiry(expiry));
                let handle = slot.handle();
                let pointer = self.slab.pointer(handle);
                if class_bytes(bytes.0) == class_bytes(bytes.1) {
                    // SAFETY: the cell has room for the other form, and `&mut self` makes this the
                    // only use of the entry.
                    unsafe { EntryMut::new(pointer).move_to(pointer, expiry) };
                } else {
                    let moved = self.slab.allocate(bytes.1);
                    // SAFETY: the new cell is fresh and has room; the old one is only freed.
                    unsafe { EntryMut::new(pointer).move_to(self.slab.pointer(moved), expiry) };
                    self.slab.free(handle, bytes.0);
                    self.table.replace(slot, moved);
                }
            }
        }
        self.expiries.remove(old);
        self.expiries.add(expiry);
        if let Some(expiry) = expiry {
            self.table.note_deadline(slot, deadline(expiry, now_ms));
        }
    }

    /// Takes an entry out, to be put elsewhere, with `buffer` to hold a short value. O(1); a long value is not copied.
    pub(crate) fn take<'b>(&mut self, slot: Slot, buffer: &'b mut Vec<u8>) -> Taken<'b> {
        self.preserve(slot);
        let pieces = self.release_pieces(slot);
        let entry = self.entry(slot);
        let (bytes, expiry) = (entry.bytes(), entry.expiry());
        let heap_bytes = entry.value_heap_bytes() + entry.key_heap_bytes();
        // SAFETY: the entry is removed below, and its value not read again.
        let value = match unsafe { entry.take_owned() } {
            Some(Owned::Block(block)) => NewValue::String(NewString::Shared(block)),
            Some(Owned::Rope(rope)) => NewValue::String(NewString::Rope(rope)),
            Some(Owned::Object(object)) => NewValue::Object(object),
            None => entry.to_new().copied_to(buffer),
        };
        self.heap_bytes -= heap_bytes;
        self.expiries.remove(expiry);
        let handle = self.table.remove(slot);
        // SAFETY: the handle is out of the table, and nothing reads the entry again.
        unsafe { EntryRef::new(self.slab.pointer(handle)).free_key() };
        self.slab.free(handle, bytes);
        Taken { value, expiry, pieces }
    }

    /// Works on the bytes of a text in place, without a change of its length; `None` for integers,
    /// which have none, for ropes, and if `edit` answers `None`.
    pub(crate) fn edit_in_place<R>(
        &mut self,
        slot: Slot,
        edit: impl FnOnce(&mut [u8]) -> Option<R>,
    ) -> Option<R> {
        let mut edit = Some(edit);
        let mut run = |bytes: &mut [u8]| (edit.take().expect("called once"))(bytes);
        if let Some(edited) = self.preserve(slot).edit_inline(&mut run) {
            return edited;
        }
        self.edit_measured(slot, |mut entry| entry.edit_block(|bytes| run(bytes))).flatten()
    }

    /// Overwrites an integer in place. Returns whether it could: another value, or one of another
    /// length, is a case for [`Self::put`].
    #[inline]
    pub(crate) fn set_integer(&mut self, slot: Slot, value: i64, touch: Touch) -> bool {
        let mut entry = self.preserve(slot);
        entry.touch(touch);
        entry.set_integer(value)
    }

    /// Works on a collection, and notes an access; `None` for values of other types. The entry is found once, and the
    /// type is known: the memory of the whole collection is looked up with each of its changes.
    #[inline]
    pub(crate) fn edit_collection<T: Collection, R>(
        &mut self,
        slot: Slot,
        touch: Touch,
        edit: impl FnOnce(&mut T) -> R,
    ) -> Option<Edited<R>> {
        let mut entry = self.preserve(slot);
        entry.touch(touch);
        if let Some(packed) = entry.as_ref().packed() {
            let object = packed.unpacked();
            return self.edit_unpacked(slot, object, edit);
        }
        let (mut edited, before, after) = entry.edit_collection(edit)?;
        self.heap_bytes = self.heap_bytes - before + after;
        if edited.is_small && !edited.is_empty {
            self.pack(slot);
            edited.is_resized = true;
        }
        Some(edited)
    }

    /// Works on the copy of the packed collection in a slot, and stores it in its place; `None`, and nothing done, if it
    /// is of another type. A collection that is empty then stays as it was, and is to be removed.
    fn edit_unpacked<T: Collection, R>(
        &mut self,
        slot: Slot,
        mut object: Object,
        edit: impl FnOnce(&mut T) -> R,
    ) -> Option<Edited<R>> {
        let Some(collection) = T::of_mut(&mut object) else {
            recycle(object);
            return None;
        };
        let result = edit(collection);
        let is_empty = collection.is_empty();
        let next_deadline_ms = collection.next_deadline_ms();
        let is_resized = if is_empty {
            recycle(object);
            false
        } else {
            self.put_back(slot, object)
        };
        Some(Edited { result, is_empty, next_deadline_ms, is_resized, is_small: false })
    }

    /// Moves a small collection into its cell.
    #[cold]
    fn pack(&mut self, slot: Slot) {
        let entry = self.entry(slot);
        let heap_bytes = entry.value_heap_bytes();
        // SAFETY: the value is overwritten next.
        if let Some(Owned::Object(object)) = unsafe { entry.take_owned() } {
            self.heap_bytes -= heap_bytes;
            self.put_back(slot, object);
        }
    }

    /// Overwrites the collection in a slot, which owns nothing, by what has become of it; whether it takes more memory
    /// now, or less.
    fn put_back(&mut self, slot: Slot, object: Object) -> bool {
        let handle = slot.handle();
        let cell = self.slab.pointer(handle);
        // SAFETY: as in `entry_of`; nothing else uses the entry while it is rewritten or moved.
        let (entry, place) = unsafe { (EntryRef::new(cell), EntryMut::new(cell)) };
        let (expiry, old_bytes) = (entry.expiry(), entry.bytes());
        let mut value = NewValue::Object(object);
        let mut shape = Shape::new(entry.key(), &value, expiry, entry.stamps());
        shape.keep_cell(old_bytes);
        if let NewValue::Object(object) = &mut value
            && !shape.is_packed()
        {
            object.leave_buffer();
        }
        let heap_bytes = shape.value_heap_bytes(&value);
        self.heap_bytes += heap_bytes;
        if class_bytes(old_bytes) == class_bytes(shape.bytes()) {
            // SAFETY: the cell holds this key and has room for the shape; its old value owns nothing.
            unsafe { shape.write_behind_key(cell, value, expiry) };
            return heap_bytes > 0;
        }
        let moved = self.slab.allocate(shape.bytes());
        let to = self.slab.pointer(moved);
        // SAFETY: the new cell is fresh and has room; the key goes along, and the old cell is only freed.
        unsafe {
            place.copy_key_to(to);
            shape.write_behind_key(to, value, expiry);
        }
        self.slab.free(handle, old_bytes);
        self.table.replace(slot, moved);
        true
    }

    /// Works on an object that is not packed; `None` for others and for strings.
    pub(crate) fn edit_object<R>(&mut self, slot: Slot, edit: impl FnOnce(&mut Object) -> R) -> Option<R> {
        let (result, before, after) = self.preserve(slot).edit_object(edit)?;
        self.heap_bytes = self.heap_bytes - before + after;
        Some(result)
    }

    /// Works on a long string, which needs room for `length` bytes; `None` for other strings. O(edit), and O(a chunk)
    /// for each that replies or a snapshot share.
    pub(crate) fn edit_long<R>(
        &mut self,
        slot: Slot,
        length: usize,
        edit: impl FnOnce(TextMut<'_>) -> R,
    ) -> Option<R> {
        self.edit_measured(slot, |mut entry| entry.edit_long(length, edit))
    }

    /// Works on an entry, and measures the memory of its value anew.
    fn edit_measured<R>(&mut self, slot: Slot, edit: impl FnOnce(EntryMut<'_>) -> R) -> R {
        self.preserve(slot);
        let before = self.entry(slot).value_heap_bytes();
        let result = edit(self.entry_mut(slot));
        self.heap_bytes = self.heap_bytes - before + self.entry(slot).value_heap_bytes();
        result
    }

    /// Removes an entry. O(1).
    pub(crate) fn remove(&mut self, slot: Slot, garbage: &mut Garbage) {
        self.preserve_leaving(slot);
        let entry = self.entry(slot);
        let heap_bytes = entry.value_heap_bytes() + entry.key_heap_bytes();
        let expiry = entry.expiry();
        self.heap_bytes -= heap_bytes;
        self.expiries.remove(expiry);
        let handle = self.table.remove(slot);
        // SAFETY: the handle is out of the table, and nothing reads the entry again.
        unsafe { free_entry(&mut self.slab, handle, garbage) };
    }

    /// Calls `visit` for the entries behind `cursor` and answers the next cursor, 0 at the end:
    /// `SCAN`'s guarantee, see [`BucketTable::scan`].
    pub(crate) fn scan(&self, cursor: u64, mut visit: impl FnMut(EntryRef<'_>)) -> u64 {
        self.table.scan(cursor, |handle| visit(self.entry_of(handle)))
    }

    /// [`Self::scan`] without repetitions ([`BucketTable::scan_once`]), some dozen entries at a time: their memory is
    /// fetched side by side. `handles` is scratch space.
    pub(crate) fn scan_once(
        &self,
        mut cursor: u64,
        handles: &mut Vec<Handle>,
        visit: impl FnMut(EntryRef<'_>),
    ) -> u64 {
        /// Calls to the table, if these find few entries.
        const CALLS_MAX: usize = 8;
        const ENTRIES_MIN: usize = 32;
        let cells = Cells { slab: &self.slab, hasher: &self.hasher };
        handles.clear();
        for _ in 0..CALLS_MAX {
            cursor = self.table.scan_once(cursor, &cells, |handle| {
                cells.prefetch(handle);
                handles.push(handle);
            });
            if cursor == 0 || handles.len() >= ENTRIES_MIN {
                break;
            }
        }
        handles.iter().map(|handle| self.entry_of(*handle)).for_each(visit);
        cursor
    }

    /// Visits all entries. O(n).
    pub(crate) fn for_each(&self, mut visit: impl FnMut(EntryRef<'_>)) {
        self.table.for_each(|handle| visit(self.entry_of(handle)));
    }

    /// An entry chosen by `random`, nearly uniformly.
    pub(crate) fn random(&self, random: u64) -> Option<EntryRef<'_>> {
        self.table.random(random).map(|handle| self.entry_of(handle))
    }

    /// Removes expired entries but those of `hidden` slots, reclaims expired elements and reaps what is left of removed ones, looking at no more than `buckets_max`
    /// buckets that may hold some; `tell` gets each key, before it changes, with the elements that go: how many, and if
    /// `name_elements` which.
    pub(crate) fn expire(
        &mut self,
        now_ms: u64,
        buckets_max: usize,
        garbage: &mut Garbage,
        name_elements: bool,
        hidden: &HiddenSlots,
        mut tell: impl FnMut(EntryRef<'_>, Expiration, &[Vec<u8>]),
    ) -> ExpirySlice {
        let elements_max = buckets_max * ELEMENTS_PER_BUCKET;
        let mut slice = ExpirySlice::default();
        let (mut freed_bytes, mut complete) = (0, true);
        let mut left = elements_max;
        let (slab, expiries) = (&mut self.slab, &mut self.expiries);
        let (captures, stamps) = (&mut self.captures, self.stamps);
        let visited = self.table.due(now_tick(now_ms), buckets_max, |handle| {
            // SAFETY: handles in the table refer to entries of the slab beside it, which no other thread uses
            // meanwhile.
            let (entry, mut changing) =
                unsafe { (EntryRef::new(slab.pointer(handle)), EntryMut::new(slab.pointer(handle))) };
            match entry.next_deadline_ms() {
                None => return Verdict::Keep,
                Some(next) if next > now_ms => return Verdict::KeepUntil(deadline(next, now_ms)),
                Some(_) => {}
            }
            if hidden.has_key(entry.key()) {
                // Its time is its owner's business.
                return Verdict::KeepUntil(deadline(now_ms + HIDDEN_PAUSE_MS, now_ms));
            }
            let is_due = entry.is_due(now_ms);
            if entry.stamps() != stamps {
                preserve_entry(captures, stamps, entry, is_due);
            }
            let before = entry.value_heap_bytes();
            let (mut end, mut names) = (Some(Expiration::Key), Vec::new());
            if !is_due {
                if entry.stored_object().is_some_and(Object::is_shared) {
                    // No command sees the elements, and the view will soon be gone.
                    return Verdict::KeepUntil(deadline(now_ms + VIEWED_PAUSE_MS, now_ms));
                }
                let edited = changing.edit_object(|object| {
                    let (reclaimed, is_empty) = object.expire(now_ms, left, |element| {
                        if name_elements {
                            names.push(element.text().into_owned());
                        }
                    });
                    left -= reclaimed;
                    left -= object.reap(left);
                    (reclaimed, is_empty)
                });
                let ((reclaimed, is_empty), ..) = edited.expect("elements belong to an object");
                slice.elements += reclaimed;
                complete &= left > 0;
                end = is_empty.then_some(Expiration::LastElement);
                if reclaimed > 0 && !is_empty {
                    tell(entry, Expiration::Elements, &names);
                }
            }
            let Some(end) = end else {
                freed_bytes += before - entry.value_heap_bytes();
                let next = entry.next_deadline_ms();
                return next.map_or(Verdict::Keep, |next| Verdict::KeepUntil(deadline(next, now_ms)));
            };
            if entry.stamps() != stamps {
                preserve_entry(captures, stamps, entry, true);
            }
            tell(entry, end, &names);
            freed_bytes += entry.key_heap_bytes() + before;
            expiries.remove(entry.expiry());
            slice.keys += usize::from(end == Expiration::Key);
            // SAFETY: the table drops the handle, and nothing reads the entry again.
            unsafe { free_entry(slab, handle, garbage) };
            Verdict::Remove
        });
        self.heap_bytes -= freed_bytes;
        slice.complete = complete && visited < buckets_max;
        slice
    }

    /// Whether the table holds memory that it does not need.
    pub(super) fn has_spare(&self) -> bool {
        self.table.has_spare()
    }

    /// Gives that memory up.
    ///
    /// # Safety
    /// No thread uses the probe meanwhile: the gate is closed.
    pub(super) unsafe fn release_spare(&mut self) {
        // SAFETY: the caller vouches.
        unsafe { self.table.release_spare() };
        self.slab.release_spare();
    }

    /// Whether something may be due. O(1).
    pub(crate) fn has_due(&self, now_ms: u64) -> bool {
        self.table.next_deadline().is_some_and(|deadline| deadline.is_due(now_tick(now_ms)))
    }

    /// Frees the memory that the entries own outside the slab; only dropping may follow.
    fn free_owned(&mut self) {
        let slab = &self.slab;
        self.table.for_each(|handle| {
            // SAFETY: handles in the table refer to entries of the slab beside it; nothing reads
            // them again.
            unsafe {
                let entry = EntryRef::new(slab.pointer(handle));
                entry.take_owned();
                entry.free_key();
            }
        });
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Only entries with something on the heap need a visit; most databases have none.
        if self.heap_bytes > 0 {
            self.free_owned();
        }
    }
}
