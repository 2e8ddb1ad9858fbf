//! The log ring: records of all workers in one order of bytes.
//!
//! ```text
//!            head            written by the reader            published          tail
//! offsets ────┼───────────────────────┼───────────────────────────┼───────────────┼────▶ grow for ever
//!             │ kept until on disk    │ to be written             │ being copied  │
//! memory    ├── segment ──┼── segment ──┼── segment ──┼── segment ──┼── segment ──┤ see [`memory`]
//! ```
//!
//! A worker that appends announces a lower bound of where (`appending[w]`), reserves its place (`tail.fetch_add`),
//! copies, and withdraws the announcement. Bytes below `tail` and below every announcement are *published*. No worker
//! waits. A record for which the ring has no room, because the reader is behind or the record is larger than the
//! ring, is put *aside*, in memory of its own; its place in the order stays empty. Workers keep that rare by looking
//! for [room](Ring::has_room) before they lock anything.
//!
//! The reader says how far writers may be ahead ([`Ring::set_room`]): if the disk hangs, memory takes the records, up
//! to there. Records that share their bytes with the data set ([`Log::append_shared`]) are put aside as they are,
//! whatever room there is: they take no memory of the ring's, and count for no room. Only up to [`SHARED_BYTES_MAX`],
//! though: the record may be the last holder of the bytes that it shares.
//!
//! Why nothing below `published` is still being copied: a thread that sees a `tail` with a worker's reservation also
//! sees its announcement, which came first. Or it sees a later one of the same worker, before which the copy was
//! complete. `fetch_add` orders the former, the releasing stores to `appending[w]` the latter.
//!
//! A worker may be interrupted between reading `tail` and announcing it; the bound that it then announces is below its
//! place by far, and below the bytes published meanwhile. The reader remembers the highest that it has seen.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p dunlin-persist --lib loom --release
//! ```

mod memory;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

#[cfg(loom)]
use loom::sync::{Arc, Mutex, MutexGuard, atomic::AtomicU64};
#[cfg(not(loom))]
use std::sync::{Arc, Mutex, MutexGuard, atomic::AtomicU64};

use dunlin_engine::Log;
use dunlin_resp::SharedSlice;

use self::memory::Memory;

/// How large a ring may become.
#[derive(Debug, Clone, Copy)]
pub struct RingSizes {
    /// Bytes of a segment, a power of two: memory is taken and given back by segments.
    pub segment_bytes: usize,
    /// Segments at most, a power of two: records beyond are put aside, one by one.
    pub segments_max: usize,
    /// Segments at most that are kept with nothing in them.
    pub spare_max: usize,
}

impl RingSizes {
    /// Bytes at most.
    pub const fn capacity(self) -> u64 {
        (self.segment_bytes * self.segments_max) as u64
    }
}

/// Bytes of records that share theirs beyond which they count as others do: as much as the longest strings, two of them.
const SHARED_BYTES_MAX: u64 = if cfg!(test) { 300 } else { 1 << 30 };

/// A participant that appends nothing at the moment.
const IDLE: u64 = u64::MAX;

/// A word with a cache line to itself (two, since some processors fetch lines in pairs).
#[derive(Debug)]
#[repr(align(128))]
struct Padded(AtomicU64);

impl Padded {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
}

/// Readers at most: the log's files, and the replicas.
const READERS_MAX: usize = 2;
/// A reader that holds nothing.
const PARKED: u64 = u64::MAX;

/// The ring. Any participant appends; [`RingReader`]s read.
pub struct Ring {
    memory: Memory,
    /// Behind the last reservation.
    tail: Padded,
    /// Everything before it may be overwritten: the least of the readers' holds.
    head: Padded,
    /// By reader: the first byte that it may still read, or [`PARKED`].
    holds: Mutex<[u64; READERS_MAX]>,
    /// The first reader's hold: how far the disk is behind.
    first_hold: AtomicU64,
    /// By participant: a lower bound of where it appends, or [`IDLE`].
    appending: Box<[Padded]>,
    /// Nothing behind it is published, or [`IDLE`].
    boundary: AtomicU64,
    /// Bytes beyond which commands that write had better wait; see [`Aside::shared_bytes`].
    room_bytes: AtomicU64,
    aside: Mutex<Aside>,
}

/// Records that do not stand in the ring's memory.
#[derive(Default)]
struct Aside {
    /// By their offsets.
    records: BTreeMap<u64, Record>,
    /// Bytes of those that share theirs with the data set. At most [`SHARED_BYTES_MAX`] of them are added to the room,
    /// since they are among those used.
    shared_bytes: u64,
    /// Bytes of the others.
    own_bytes: u64,
    /// The room without the shared ones.
    room_bytes: u64,
}

/// A record in parts, none of which is empty.
struct Record {
    parts: Vec<SharedSlice>,
    length: u64,
    is_shared: bool,
}

impl Record {
    fn new(mut parts: Vec<SharedSlice>, is_shared: bool) -> Self {
        parts.retain(|part| !part.is_empty());
        let length = parts.iter().map(|part| part.len() as u64).sum();
        Self { parts, length, is_shared }
    }

    /// Shows its bytes from one place to another.
    fn show(&self, from: u64, to: u64, show: &mut impl FnMut(&[u8])) {
        let mut at = 0;
        for part in &self.parts {
            let range = from.max(at)..to.min(at + part.len() as u64);
            if range.start < range.end {
                show(&part[(range.start - at) as usize..(range.end - at) as usize]);
            }
            at += part.len() as u64;
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("Ring");
        shown.field("used_bytes", &self.used_bytes()).field("tail", &self.tail()).finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring whose first record gets offset `start`, and its one reader. Three quarters of it are room until
    /// [`Ring::set_room`] changes that.
    ///
    /// # Panics
    /// If a size is not a power of two.
    pub fn new(sizes: RingSizes, participants: usize, start: u64) -> (Arc<Self>, RingReader) {
        let ring = Arc::new(Self {
            memory: Memory::new(sizes),
            tail: Padded::new(start),
            head: Padded::new(start),
            holds: Mutex::new([start, PARKED]),
            first_hold: AtomicU64::new(start),
            appending: (0..participants).map(|_| Padded::new(IDLE)).collect(),
            boundary: AtomicU64::new(IDLE),
            room_bytes: AtomicU64::new(sizes.capacity() / 4 * 3),
            aside: Mutex::new(Aside { room_bytes: sizes.capacity() / 4 * 3, ..Aside::default() }),
        });
        (Arc::clone(&ring), RingReader { ring, index: 0, published: start })
    }

    /// The offset behind the last record.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail.0.load(Acquire)
    }

    /// Bytes that the first reader has not given up yet.
    #[inline]
    pub fn used_bytes(&self) -> u64 {
        let held = self.first_hold.load(Acquire);
        self.tail.0.load(Relaxed).saturating_sub(held)
    }

    /// Bytes of memory that it takes: segments, spare ones too, and records of its own that stand aside. O(segments).
    pub fn memory_bytes(&self) -> usize {
        let aside = self.aside().own_bytes;
        self.memory.bytes() + aside as usize
    }

    /// Frees the spare segments that were not needed since the last call, but for `spare_min`.
    pub fn trim(&self, spare_min: usize) {
        self.memory.trim(spare_min);
    }

    fn holds(&self) -> MutexGuard<'_, [u64; READERS_MAX]> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is room. If not, commands that write had better wait, before they take any lock.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.used_bytes() <= self.room_bytes.load(Relaxed)
    }

    /// Says how many bytes are to be used before there is no room: less than the capacity, by the records that workers
    /// may still append after they have seen some room.
    pub fn set_room(&self, bytes: u64) {
        let mut aside = self.aside();
        aside.room_bytes = bytes;
        self.settle_room(&aside);
    }

    fn settle_room(&self, aside: &Aside) {
        self.room_bytes.store(aside.room_bytes + aside.shared_bytes.min(SHARED_BYTES_MAX), Relaxed);
    }

    /// Appends one record; the offset behind it. Never waits for the reader.
    ///
    /// # Panics
    /// When there is no such participant.
    pub fn append(&self, participant: usize, record: &[u8]) -> u64 {
        let announcement = &self.appending[participant].0;
        announcement.store(self.tail.0.load(Relaxed), Release);
        let start = self.tail.0.fetch_add(record.len() as u64, AcqRel);
        let end = start + record.len() as u64;
        if end <= self.memory.end(self.head.0.load(Acquire)) {
            // SAFETY: `start..end` was reserved by no other thread, nothing of it is published, hence neither read nor
            // released, and there can be memory for it.
            unsafe { self.memory.write(start, record) };
            self.memory.prefetch(end, record.len());
        } else {
            self.put_aside(start, Record::new(vec![record.to_vec().into()], false));
        }
        announcement.store(IDLE, Release);
        end
    }

    /// Appends a record that shares its bytes with others, as [`Self::append`] does.
    ///
    /// # Panics
    /// When there is no such participant.
    pub fn append_shared(&self, participant: usize, parts: Vec<SharedSlice>) -> u64 {
        let record = Record::new(parts, true);
        let length = record.length;
        let announcement = &self.appending[participant].0;
        announcement.store(self.tail.0.load(Relaxed), Release);
        let start = self.tail.0.fetch_add(length, AcqRel);
        self.put_aside(start, record);
        announcement.store(IDLE, Release);
        start + length
    }

    #[cold]
    fn put_aside(&self, start: u64, record: Record) {
        let mut aside = self.aside();
        if record.is_shared {
            aside.shared_bytes += record.length;
            self.settle_room(&aside);
        } else {
            aside.own_bytes += record.length;
        }
        aside.records.insert(start, record);
    }

    fn aside(&self) -> MutexGuard<'_, Aside> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes no record that is appended from here on until [`Self::lift_boundary`]: the reader will act between the
    /// records before and those behind. No worker appends meanwhile. Returns the offset.
    pub fn set_boundary(&self) -> u64 {
        let tail = self.tail();
        self.boundary.store(tail, Release);
        tail
    }

    /// Whether there is a boundary.
    pub fn has_boundary(&self) -> bool {
        self.boundary.load(Acquire) != IDLE
    }

    /// Takes the boundary away, if there is one.
    pub fn lift_boundary(&self) {
        self.boundary.store(IDLE, Release);
    }

    /// The offset below which all records are complete, as far as is known now: it may be less than it was.
    fn complete(&self) -> u64 {
        let tail = self.tail.0.load(Acquire);
        let complete = self.appending.iter().map(|announced| announced.0.load(Acquire)).fold(tail, u64::min);
        // Read last: a thread that sees a tail behind the boundary sees the boundary, which was set before.
        complete.min(self.boundary.load(Acquire))
    }
}

impl Log for Ring {
    fn append(&self, participant: usize, record: &[u8]) -> u64 {
        Ring::append(self, participant, record)
    }

    fn append_shared(&self, participant: usize, record: Vec<SharedSlice>) -> u64 {
        Ring::append_shared(self, participant, record)
    }
}

/// A reading end of a ring. Segments that one holds, no other gives up.
#[derive(Debug)]
pub struct RingReader {
    ring: Arc<Ring>,
    /// Its place among the readers.
    index: usize,
    /// The offset below which all records were complete at the last look.
    published: u64,
}

impl RingReader {
    /// The ring.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// The second reader, which holds nothing yet. To be called once, on the first one.
    pub fn second(&self) -> Self {
        assert_eq!(self.index, 0, "there are two readers");
        Self { ring: Arc::clone(&self.ring), index: 1, published: self.published }
    }

    /// Holds nothing from now on: records that are appended are not for this reader.
    pub fn park(&mut self) {
        self.hold(PARKED);
    }

    /// Holds records that are appended from now on; returns the offset of the first byte.
    pub fn resume(&mut self) -> u64 {
        let mut holds = self.ring.holds();
        // The head is never behind it, and does not move while `holds` is locked.
        let tail = self.ring.tail();
        holds[self.index] = tail;
        if self.index == 0 {
            self.ring.first_hold.store(tail, Release);
        }
        self.published = self.published.max(tail);
        tail
    }

    /// Whether another reader holds anything.
    pub fn is_shared(&self) -> bool {
        let holds = self.ring.holds();
        holds.iter().enumerate().any(|(index, hold)| index != self.index && *hold != PARKED)
    }

    /// Gives up all there is, and lets the next record have offset `start`. No worker appends meanwhile.
    ///
    /// # Panics
    /// If another reader holds something.
    pub fn restart(&mut self, start: u64) {
        assert!(!self.is_shared(), "another reader would lose its place");
        self.ring.lift_boundary();
        debug_assert_eq!(self.ring.complete(), self.ring.tail(), "somebody appends");
        let mut aside = self.ring.aside();
        (aside.records, aside.shared_bytes, aside.own_bytes) = (BTreeMap::new(), 0, 0);
        self.ring.settle_room(&aside);
        drop(aside);
        // SAFETY: no worker appends, the caller says, and the reader is here.
        unsafe { self.ring.memory.clear() };
        self.ring.tail.0.store(start, Release);
        self.ring.head.0.store(start, Release);
        self.ring.holds()[self.index] = start;
        if self.index == 0 {
            self.ring.first_hold.store(start, Release);
        }
        self.published = start;
    }

    /// The offset below which all records are complete. The offset never goes back. O(participants).
    pub fn published(&mut self) -> u64 {
        self.published = self.published.max(self.ring.complete());
        self.published
    }

    /// Shows the bytes `from..to` in order, in pieces. These bytes must be published and not given up.
    pub fn read(&mut self, from: u64, to: u64, mut show: impl FnMut(&[u8])) {
        assert!(from <= to && self.ring.head.0.load(Relaxed) <= from);
        let mut at = from;
        let aside = self.ring.aside();
        // A record that began before `from` may reach into it.
        let first = aside.records.range(..=from).next_back().map_or(from, |(start, _)| *start);
        for (start, record) in aside.records.range(first..to) {
            let end = start + record.length;
            if end <= at {
                continue;
            }
            // SAFETY: below, and the caller says that it is published.
            unsafe { self.ring.memory.read(at, (*start).max(at), &mut show) };
            at = at.max(*start);
            record.show(at - start, to - start, &mut show);
            at = end.min(to);
        }
        drop(aside);
        // SAFETY: the bytes were copied before they were published, which the caller has seen, and
        // no thread overwrites them before `give_up`, which needs `&mut self`.
        unsafe { self.ring.memory.read(at, to, &mut show) };
    }

    /// The bytes `from..to` where they stand, in order; `None` if some of them were put aside. These bytes
    /// must be published and not given up.
    pub fn slices(&self, from: u64, to: u64) -> Option<Vec<&[u8]>> {
        assert!(from <= to && self.ring.head.0.load(Relaxed) <= from);
        // A record that began before `from` may reach into it.
        if self.ring.aside().records.range(..to).next_back().is_some() {
            return None;
        }
        // SAFETY: as in `read`; the borrow ends before `give_up` can be called.
        #[cfg(not(loom))]
        return Some(unsafe { self.ring.memory.slices(from, to) });
        // There are no slices of loom's cells.
        #[cfg(loom)]
        None
    }

    /// Gives up the bytes before `offset`: they may be overwritten, once no other reader holds them.
    pub fn give_up(&mut self, offset: u64) {
        debug_assert!(offset <= self.published);
        self.hold(offset);
    }

    fn hold(&mut self, offset: u64) {
        let published = self.published();
        let mut holds = self.ring.holds();
        holds[self.index] = offset;
        if self.index == 0 {
            self.ring.first_hold.store(offset, Release);
        }
        let head = self.ring.head.0.load(Relaxed);
        let offset = holds.iter().fold(published, |least, hold| least.min(*hold));
        if offset <= head {
            return;
        }
        // SAFETY: all of it is published, so no thread writes there, and no reader holds it; the lock keeps others from
        // releasing; a worker that appends goes by the old head until it changes.
        unsafe { self.ring.memory.release(head, offset) };
        self.ring.head.0.store(offset, Release);
        drop(holds);
        let mut done = Vec::new();
        let mut aside = self.ring.aside();
        while let Some(first) = aside.records.first_entry()
            && first.key() + first.get().length <= offset
        {
            done.push(first.remove());
        }
        let shared_bytes: u64 =
            done.iter().filter(|record| record.is_shared).map(|record| record.length).sum();
        aside.own_bytes -= done.iter().map(|record| record.length).sum::<u64>() - shared_bytes;
        if shared_bytes > 0 {
            aside.shared_bytes -= shared_bytes;
            self.ring.settle_room(&aside);
        }
        drop(aside);
        // Strings that were replaced meanwhile may be large: freed here, since no client waits.
        drop(done);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
