//! The log ring: records of all workers in one order of bytes.
//!
//! ```text
//!            head            written by the reader            published          tail
//! offsets ────┼───────────────────────┼───────────────────────────┼───────────────┼────▶ grow for ever
//!             │ kept until on disk    │ to be written             │ being copied  │
//! memory      └─────────────── offset mod capacity, at most capacity bytes ───────┘
//! ```
//!
//! A worker that appends announces a lower bound of where (`appending[w]`), reserves its place
//! (`tail.fetch_add`), copies, and withdraws the announcement. What lies below `tail` and below every
//! announcement is *published*. Nobody waits for anybody: a record for which the ring has no room, be it
//! that the reader is behind or that the record is larger than the ring, is put *aside*, in memory of its
//! own; its place in the order stays empty. Workers keep that rare by looking for
//! [room](Ring::has_room) before they lock anything.
//!
//! Why nothing below `published` is still being copied: whoever sees a `tail` with a worker's reservation
//! also sees its announcement, which came first, or a later one of the same worker, before which the copy
//! was complete. `fetch_add` orders the former, the releasing stores to `appending[w]` the latter.
//!
//! A worker may be interrupted between reading `tail` and announcing it; the bound that it then announces is
//! below its place by far, and below what was published meanwhile. The reader remembers what it has seen.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p dunlin-persist --lib loom --release
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

#[cfg(loom)]
use loom::sync::{Arc, Mutex, MutexGuard, atomic::AtomicU64};
#[cfg(not(loom))]
use std::sync::{Arc, Mutex, MutexGuard, atomic::AtomicU64};

use dunlin_engine::Log;

use self::memory::Memory;

/// A participant that appends nothing at the moment.
const IDLE: u64 = u64::MAX;

/// A word with a cache line to itself (two, where lines are fetched in pairs).
#[derive(Debug)]
#[repr(align(128))]
struct Padded(AtomicU64);

impl Padded {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
}

/// The ring. Any participant appends; one [`RingReader`] reads.
pub struct Ring {
    memory: Memory,
    /// Behind the last reservation.
    tail: Padded,
    /// Everything before it may be overwritten.
    head: Padded,
    /// By participant: a lower bound of where it appends, or [`IDLE`].
    appending: Box<[Padded]>,
    /// Nothing behind it is published, or [`IDLE`].
    boundary: AtomicU64,
    /// Records that the ring had no room for, by their offsets.
    aside: Mutex<BTreeMap<u64, Box<[u8]>>>,
}

impl fmt::Debug for Ring {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("Ring");
        shown.field("capacity", &self.memory.capacity()).field("tail", &self.tail()).finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring of `capacity` bytes (a power of two) whose first record gets offset `start`, and its one
    /// reader. The memory is taken from the system as it is first used.
    pub fn new(capacity: usize, participants: usize, start: u64) -> (Arc<Self>, RingReader) {
        assert!(capacity.is_power_of_two());
        let ring = Arc::new(Self {
            memory: Memory::new(capacity),
            tail: Padded::new(start),
            head: Padded::new(start),
            appending: (0..participants).map(|_| Padded::new(IDLE)).collect(),
            boundary: AtomicU64::new(IDLE),
            aside: Mutex::default(),
        });
        (Arc::clone(&ring), RingReader { ring, published: start })
    }

    /// The offset behind the last record.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail.0.load(Acquire)
    }

    /// Bytes that the reader has not given up yet.
    #[inline]
    pub fn used_bytes(&self) -> u64 {
        let head = self.head.0.load(Acquire);
        self.tail.0.load(Relaxed).saturating_sub(head)
    }

    /// Whether a quarter of the ring or more is free. Where not, commands that write had better wait,
    /// before they take any lock.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.used_bytes() <= self.memory.capacity() as u64 / 4 * 3
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
        if end - self.head.0.load(Acquire) <= self.memory.capacity() as u64 {
            // SAFETY: `start..end` was reserved by nobody else, nothing of it is published, and it is
            // less than one capacity ahead of what the reader still reads.
            unsafe { self.memory.write(start, record) };
            self.memory.prefetch(end, record.len());
        } else {
            self.put_aside(start, record);
        }
        announcement.store(IDLE, Release);
        end
    }

    #[cold]
    fn put_aside(&self, start: u64, record: &[u8]) {
        self.aside().insert(start, record.into());
    }

    fn aside(&self) -> MutexGuard<'_, BTreeMap<u64, Box<[u8]>>> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets nothing that is appended from here on be published until [`Self::lift_boundary`]: the reader
    /// will do something between what is before and what is behind. Nobody appends meanwhile. The offset.
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

    /// The offset below which all records are complete, as far as can be told now: it may be less than it was.
    fn complete(&self) -> u64 {
        let tail = self.tail.0.load(Acquire);
        let complete = self.appending.iter().map(|announced| announced.0.load(Acquire)).fold(tail, u64::min);
        // Read last: who sees a tail behind the boundary sees the boundary, which was set before.
        complete.min(self.boundary.load(Acquire))
    }
}

impl Log for Ring {
    fn append(&self, participant: usize, record: &[u8]) -> u64 {
        Ring::append(self, participant, record)
    }
}

/// The reading end of a ring: there is one.
#[derive(Debug)]
pub struct RingReader {
    ring: Arc<Ring>,
    /// The offset below which all records were complete when somebody asked last.
    published: u64,
}

impl RingReader {
    /// The ring.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Gives up all there is, and lets the next record have offset `start`. Nobody appends meanwhile.
    pub fn restart(&mut self, start: u64) {
        self.ring.lift_boundary();
        debug_assert_eq!(self.ring.complete(), self.ring.tail(), "somebody appends");
        self.ring.aside().clear();
        self.ring.tail.0.store(start, Release);
        self.ring.head.0.store(start, Release);
        self.published = start;
    }

    /// The offset below which all records are complete. It never goes back. O(participants).
    pub fn published(&mut self) -> u64 {
        self.published = self.published.max(self.ring.complete());
        self.published
    }

    /// Shows the bytes `from..to` in order, in pieces. They must be published and not given up.
    pub fn read(&mut self, from: u64, to: u64, mut show: impl FnMut(&[u8])) {
        assert!(from <= to && self.ring.head.0.load(Relaxed) <= from);
        let mut at = from;
        let aside = self.ring.aside();
        // A record that began before `from` may reach into it.
        let first = aside.range(..=from).next_back().map_or(from, |(start, _)| *start);
        for (start, record) in aside.range(first..to) {
            let end = start + record.len() as u64;
            if end <= at {
                continue;
            }
            // SAFETY: below, and the caller says that it is published.
            unsafe { self.ring.memory.read(at, (*start).max(at), &mut show) };
            at = at.max(*start);
            let piece = &record[(at - start) as usize..];
            let piece = &piece[..piece.len().min((to - at) as usize)];
            show(piece);
            at += piece.len() as u64;
        }
        drop(aside);
        // SAFETY: the bytes were copied before they were published, which the caller has seen, and
        // nobody overwrites them before `give_up`, which needs `&mut self`.
        unsafe { self.ring.memory.read(at, to, &mut show) };
    }

    /// The bytes `from..to` where they stand, in two parts; `None` where they stand in more, since some of
    /// them were put aside. They must be published and not given up.
    pub fn slices(&self, from: u64, to: u64) -> Option<[&[u8]; 2]> {
        assert!(from <= to && self.ring.head.0.load(Relaxed) <= from);
        // A record that began before `from` may reach into it.
        if self.ring.aside().range(..to).next_back().is_some() {
            return None;
        }
        // SAFETY: as in `read`; the borrow ends before `give_up` can be called.
        unsafe { self.ring.memory.slices(from, to) }
    }

    /// Gives up the bytes before `offset`: they may be overwritten.
    pub fn give_up(&mut self, offset: u64) {
        debug_assert!(offset <= self.published);
        self.ring.head.0.store(offset, Release);
        let mut aside = self.ring.aside();
        while let Some(first) = aside.first_entry()
            && first.key() + first.get().len() as u64 <= offset
        {
            first.remove();
        }
    }
}

#[cfg(not(loom))]
mod memory {
    use std::cell::UnsafeCell;

    /// A line of the processor's cache.
    const LINE_BYTES: usize = 64;
    /// How far ahead of the last record the memory of others is fetched.
    const PREFETCH_BYTES: usize = 256;

    /// Bytes that many threads write and one reads, each its own part.
    pub(super) struct Memory(Box<[UnsafeCell<u8>]>);

    // SAFETY: access is through the unsafe functions below, whose callers keep to their own parts.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(super) fn new(capacity: usize) -> Self {
            let bytes = Box::into_raw(vec![0_u8; capacity].into_boxed_slice());
            // SAFETY: `UnsafeCell<u8>` has the layout of `u8`, and the box is whole.
            Self(unsafe { Box::from_raw(bytes as *mut [UnsafeCell<u8>]) })
        }

        pub(super) fn capacity(&self) -> usize {
            self.0.len()
        }

        fn place(&self, offset: u64) -> usize {
            offset as usize & (self.0.len() - 1)
        }

        /// # Safety
        /// Nobody else reads or writes these bytes meanwhile; there are at most as many as the capacity.
        #[inline]
        pub(super) unsafe fn write(&self, offset: u64, bytes: &[u8]) {
            debug_assert!(bytes.len() <= self.0.len());
            let at = self.place(offset);
            let first = bytes.len().min(self.0.len() - at);
            let base = self.0.as_ptr() as *mut u8;
            // SAFETY: both parts are inside the box, and the caller is alone there.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.add(at), first) };
            if first < bytes.len() {
                // SAFETY: as above.
                unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr().add(first), base, bytes.len() - first)
                };
            }
        }

        /// Fetches where the records behind the next one will be: nobody has touched that for a whole round.
        #[inline]
        pub(super) fn prefetch(&self, end: u64, length: usize) {
            let from = end + PREFETCH_BYTES as u64;
            for at in (0..length.min(PREFETCH_BYTES)).step_by(LINE_BYTES) {
                let place = self.place(from + at as u64);
                dunlin_structures::prefetch(self.0.as_ptr().wrapping_add(place).cast());
            }
        }

        /// # Safety
        /// Nobody writes these bytes meanwhile; there are at most as many as the capacity.
        pub(super) unsafe fn read(&self, from: u64, to: u64, show: &mut impl FnMut(&[u8])) {
            // SAFETY: the caller's.
            let slices = unsafe { self.slices(from, to) };
            slices.into_iter().flatten().filter(|slice| !slice.is_empty()).for_each(show);
        }

        /// The bytes, which may go on at the beginning.
        ///
        /// # Safety
        /// As for [`Self::read`], as long as the slices are borrowed.
        pub(super) unsafe fn slices(&self, from: u64, to: u64) -> Option<[&[u8]; 2]> {
            let (at, length) = (self.place(from), (to - from) as usize);
            debug_assert!(length <= self.0.len());
            let first = length.min(self.0.len() - at);
            let base = self.0.as_ptr() as *const u8;
            // SAFETY: the parts are inside the box, and nobody writes them.
            let part = |at, length| unsafe { std::slice::from_raw_parts(base.add(at), length) };
            Some([part(at, first), part(0, length - first)])
        }
    }
}

#[cfg(loom)]
mod memory {
    use loom::cell::UnsafeCell;

    /// As above, a cell a byte, so that loom sees who meets whom where.
    pub(super) struct Memory(Box<[UnsafeCell<u8>]>);

    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(super) fn new(capacity: usize) -> Self {
            Self((0..capacity).map(|_| UnsafeCell::new(0)).collect())
        }

        pub(super) fn capacity(&self) -> usize {
            self.0.len()
        }

        pub(super) unsafe fn write(&self, offset: u64, bytes: &[u8]) {
            for (at, byte) in (offset..).zip(bytes) {
                // SAFETY: the caller vouches, and loom checks.
                self.0[at as usize % self.0.len()].with_mut(|cell| unsafe { *cell = *byte });
            }
        }

        pub(super) unsafe fn read(&self, from: u64, to: u64, show: &mut impl FnMut(&[u8])) {
            for at in from..to {
                // SAFETY: as above.
                let byte = self.0[at as usize % self.0.len()].with(|cell| unsafe { *cell });
                show(&[byte]);
            }
        }

        pub(super) fn prefetch(&self, _end: u64, _length: usize) {}

        /// There are no slices of cells.
        pub(super) unsafe fn slices(&self, _from: u64, _to: u64) -> Option<[&[u8]; 2]> {
            None
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(reader: &mut RingReader, from: u64, to: u64) -> Vec<u8> {
        let mut all = Vec::new();
        reader.read(from, to, |piece| all.extend_from_slice(piece));
        all
    }

    #[test]
    fn records_come_out_in_order_whatever_their_size() {
        let (ring, mut reader) = Ring::new(16, 1, 1000);
        let mut all = Vec::new();
        for length in [3, 5, 40, 1, 16, 17, 0, 7] {
            let record: Vec<u8> = (0..length).map(|at| (all.len() + at) as u8).collect();
            all.extend_from_slice(&record);
            assert_eq!(ring.append(0, &record), 1000 + all.len() as u64);
        }
        let end = 1000 + all.len() as u64;
        assert_eq!(reader.published(), end);
        assert!(!ring.has_room());
        for from in 0..all.len() {
            for to in from..=all.len() {
                let (start, stop) = (1000 + from as u64, 1000 + to as u64);
                assert_eq!(bytes(&mut reader, start, stop), all[from..to]);
                let stands = reader.slices(start, stop).map(|slices| slices.concat());
                assert_eq!(stands, (to < 9).then(|| all[from..to].to_vec()), "the third record is aside");
            }
        }
        reader.give_up(1010);
        assert_eq!(bytes(&mut reader, 1010, end), all[10..]);
        reader.give_up(end);
        assert!(ring.has_room() && ring.aside().is_empty());
        ring.append(0, b"next");
        assert!(ring.aside().is_empty(), "there is room again");
        assert_eq!(bytes(&mut reader, end, end + 4), b"next");
        assert_eq!(reader.slices(end, end + 4).unwrap().concat(), b"next");
    }

    #[test]
    fn nothing_behind_the_boundary_is_published_until_it_is_lifted() {
        let (ring, mut reader) = Ring::new(64, 1, 0);
        ring.append(0, b"before");
        assert_eq!(ring.set_boundary(), 6);
        assert_eq!(ring.append(0, b"behind"), 12);
        assert_eq!((reader.published(), ring.tail(), ring.has_boundary()), (6, 12, true));
        assert_eq!(bytes(&mut reader, 0, 6), b"before");
        reader.give_up(6);
        ring.lift_boundary();
        assert!(!ring.has_boundary());
        assert_eq!(reader.published(), 12);
        assert_eq!(bytes(&mut reader, 6, 12), b"behind");
    }

    #[test]
    fn what_was_published_stays_so_when_a_worker_announces_an_old_tail() {
        let (ring, mut reader) = Ring::new(64, 2, 0);
        ring.append(0, b"before");
        assert_eq!(reader.published(), 6);
        // The other worker read the tail before that, and was interrupted.
        ring.appending[1].0.store(0, Release);
        ring.append(0, b"behind");
        assert_eq!(reader.published(), 6, "it may be that the worker has its place there");
        assert_eq!(bytes(&mut reader, 0, 6), b"before");
        reader.give_up(6);
        ring.appending[1].0.store(IDLE, Release);
        assert_eq!(reader.published(), 12);
    }

    proptest! {
        /// Against a plain vector: appends of any size, with the reader anywhere behind.
        #[test]
        fn a_reader_that_lags_misses_nothing(steps in prop::collection::vec((0..50_usize, 0..80_u64), 1..200)) {
            let (ring, mut reader) = Ring::new(32, 2, 0);
            let (mut all, mut head) = (Vec::new(), 0);
            for (step, (length, consumed)) in steps.into_iter().enumerate() {
                let record: Vec<u8> = (0..length).map(|at| (step * 31 + at) as u8).collect();
                ring.append(step % 2, &record);
                all.extend_from_slice(&record);
                let end = reader.published();
                prop_assert_eq!(end, all.len() as u64);
                prop_assert_eq!(bytes(&mut reader, head, end), &all[head as usize..]);
                head = (head + consumed).min(end);
                reader.give_up(head);
            }
        }
    }

    /// Threads that write as fast as they can: each one's records arrive whole and in its order.
    #[test]
    fn writers_do_not_mix_their_records() {
        const WRITERS: usize = 4;
        const RECORDS: u32 = 20_000;
        let (ring, mut reader) = Ring::new(4096, WRITERS, 0);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let ring = Arc::clone(&ring);
                scope.spawn(move || {
                    for number in 0..RECORDS {
                        let mut record = vec![writer as u8; 8 + (number % 13) as usize];
                        record[1..5].copy_from_slice(&number.to_le_bytes());
                        record[5] = record.len() as u8;
                        ring.append(writer, &record);
                    }
                });
            }
            let (mut next, mut at, mut pending) = ([0; WRITERS], 0, Vec::new());
            while next != [RECORDS; WRITERS] {
                let to = reader.published();
                reader.read(at, to, |piece| pending.extend_from_slice(piece));
                reader.give_up(to);
                at = to;
                let mut rest = &pending[..];
                while let Some((record, behind)) =
                    rest.get(5).and_then(|length| rest.split_at_checked(usize::from(*length)))
                {
                    let writer = usize::from(record[0]);
                    assert_eq!(u32::from_le_bytes(record[1..5].try_into().unwrap()), next[writer]);
                    assert!(record[6..].iter().all(|byte| usize::from(*byte) == writer));
                    next[writer] += 1;
                    rest = behind;
                }
                pending = rest.to_vec();
            }
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    /// What takes more preemptions takes hours to try, and few mistakes need them (Musuvathi and Qadeer, 2007).
    const PREEMPTIONS_MAX: usize = 3;

    /// Two writers and a reader on a ring that is too small for both: every interleaving yields one of
    /// the two orders, whole, and no byte is read while it is written.
    #[test]
    fn published_records_are_complete() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(PREEMPTIONS_MAX);
        model.check(|| {
            let (ring, mut reader) = Ring::new(4, 2, 0);
            let writers: Vec<_> = (0..2)
                .map(|writer| {
                    let ring = Arc::clone(&ring);
                    loom::thread::spawn(move || ring.append(writer, &[writer as u8 + 1; 3]))
                })
                .collect();
            let mut all = Vec::new();
            let first = reader.published();
            reader.read(0, first, |piece| all.extend_from_slice(piece));
            assert!(matches!(first, 0 | 3 | 6), "half a record was published");
            reader.give_up(first);
            writers.into_iter().for_each(|writer| _ = writer.join().unwrap());
            assert_eq!(reader.published(), 6);
            reader.read(first, 6, |piece| all.extend_from_slice(piece));
            assert!(all == [1, 1, 1, 2, 2, 2] || all == [2, 2, 2, 1, 1, 1], "{all:?}");
        });
    }
}
