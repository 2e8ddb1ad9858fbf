//! Snapshots without a fork: the keyspace as it was at one instant, the *cut*, while commands go on.
//!
//! ```text
//!             cut: gate closed, stamps of all parts flipped               visited to the end
//! part      ──┼──────────────────────────────────────────────────────────────┼──▶ stamps of entries
//! entry A       │ old ········ visited: copied, stamped ─ changed at will          = stamps of the part
//! entry B       │ old ── about to change: copied by the writer, stamped ─ changed ─ visited: nothing to do
//! entry C       │            new: born stamped
//! FLUSHALL      │ takes the part out ─▶ snapshots adopt it, visit the rest; the last one frees it
//! ```
//!
//! Every entry has a bit for each snapshot that can be under way, and so has its part (the part of a database in a
//! stripe). If the bits are equal the snapshot has the entry or it came after the cut; if they differ it has yet to
//! see it. Bits are parities: the next snapshot flips the part's bit again, so nothing has to be cleared. While there
//! is no snapshot, all bits are equal, and a command pays for the comparison of two bytes that it has at hand.
//!
//! The walk goes over the cells of the part's slab in the order of their addresses, so that the processor fetches the
//! next ones. An entry that a snapshot has yet to see is where it was at the cut: a command that moves or removes it
//! hands it over before, or says where the rest of it goes. A younger entry is behind the part's last page at the cut,
//! or in a cell that was given back, and stamped either way. So every entry of the cut is copied once, in the state of
//! the cut, and splits and merges of buckets do not concern the walk:
//! - All changes of entries are in `keyspace/database.rs`, and begin with `preserve`.
//! - Stamps are looked at and changed under the lock of the stripe, as entries are.
//! - Which database an entry is in was settled by the cut: `SWAPDB` moves whole parts.
//!
//! Copies are [`Chunk`]s of entries in the [`Form`] of the file, made under the lock without compression, which the
//! writer of the file adds. Chunks queue in a [`SnapshotQueue`]; commands that write wait while the queue is too
//! long ([`Snapshots::is_congested`]). So the memory that a snapshot takes is bounded: by the queue, one unfinished
//! chunk for each thread and database, and what was lent and has been replaced since.
//!
//! A large collection is *copied in pieces* ([`crate::value::copy`]): when the walk is over, so that no thread copies
//! anything else meanwhile, or as soon as memory needs that. The collection changes as ever, also under another key
//! (what the snapshot has of it goes along), and counts as unseen until the last piece. While there are some pieces
//! and not the last, nothing else can be written.
//!
//! ```text
//! cut ─── walk ──────────▶ │ pieces of h ▶ │ pieces of z ▶ │
//!          ▲ HSET h f v                        ▲ ZADD z 1 m
//!          f's region is copied first     m's region, too, unless it was before
//! ```
//!
//! A large collection is not copied either but *lent* in three cases: members of a sorted set were removed and are yet
//! to be reaped, its elements belong to a stream whose groups are large themselves, or the file consists of commands.
//! The chunk has a view of it, which takes no time, and the writer of the file reads it without the lock. A command
//! that would change it is presented again until that is done (`Locked::is_viewed`). A collection that is replaced or
//! removed is left to the snapshot. A transaction or a script, which cannot wait, copies it as it copies a value that
//! any view shares (`value/shared.rs`).
//!
//! Loom checks the part of the queue that the threads share (`snapshot_queue.rs`):
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p dunlin-engine --lib loom --release
//! ```
//!
//! Why not by bucket, as the design had it: a bucket holds ten entries, and the first write into it would
//! copy all of them. Under random writes at full speed the whole keyspace would be copied within the time of
//! one write a bucket. See docs/decisions/0012-snapshots.md.

mod capture;
mod chunk;
mod incremental;
mod queue;
mod thread_buffers;

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

#[cfg(loom)]
use loom::sync::atomic::AtomicU8;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU8;

pub(crate) use capture::Capture;
use chunk::CHUNK_BYTES;
pub use chunk::{Chunk, Form};
pub(crate) use incremental::IncrementalEntry;
pub(crate) use queue::{Due, SnapshotQueue};

use crate::context::ExclusiveContext;
use crate::keyspace::{Database, Keyspace, LockedStripes, STAMP_BITS, SlotBits, Usage};

/// Most snapshots that are under way at once.
pub const SNAPSHOTS_MAX: usize = STAMP_BITS.len();

/// The snapshots of a keyspace that are under way.
#[derive(Debug, Default)]
pub struct Snapshots {
    /// A bit for each that is under way.
    taken: AtomicU8,
    /// A bit for each whose queue is too long.
    congested: AtomicU8,
    /// Bytes in the queue of each.
    copied_bytes: [AtomicUsize; SNAPSHOTS_MAX],
    /// Stripes that were taken out of the keyspace before all snapshots had visited them. Any of these goes
    /// on with any of them, behind this lock, a slice at a time.
    orphans: Mutex<Vec<Database>>,
}

impl Snapshots {
    /// Whether commands that write had better wait, before they lock anything, until a queue is shorter.
    #[inline]
    pub fn is_congested(&self) -> bool {
        self.congested.load(Ordering::Relaxed) != 0
    }

    /// Whether another snapshot can begin.
    pub fn has_room(&self) -> bool {
        self.taken.load(Ordering::Relaxed).count_ones() < SNAPSHOTS_MAX as u32
    }

    /// Bytes of copies that wait to be written.
    pub fn copied_bytes(&self) -> usize {
        self.copied_bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    fn claim(&self) -> Option<usize> {
        let free = |taken: u8| {
            let index = taken.trailing_ones() as usize;
            (index < SNAPSHOTS_MAX).then_some(taken | 1 << index)
        };
        let before = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).ok()?;
        Some(before.trailing_ones() as usize)
    }

    fn release(&self, index: usize) {
        self.copied_bytes[index].store(0, Ordering::Relaxed);
        self.taken.fetch_and(!(1 << index), Ordering::AcqRel);
    }

    fn orphans(&self) -> MutexGuard<'_, Vec<Database>> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over a part that has left its stripe.
    pub(crate) fn adopt(&self, part: Box<Database>) {
        self.orphans().push(*part);
    }

    /// Goes on with a part that a snapshot has not visited. Returns whether there is none.
    fn advance_orphan(&self, index: usize, budget: &mut usize) -> bool {
        let mut orphans = self.orphans();
        let Some(at) = orphans.iter().position(|orphan| orphan.is_walked_by(index)) else { return true };
        orphans[at].capture(index, budget);
        Self::drop_visited(orphans, at);
        false
    }

    /// Goes on with a collection in such a part, see [`Capture::next_piece`].
    fn next_piece(&self, index: usize, due: Due, budget: &mut usize) -> Option<bool> {
        let mut orphans = self.orphans();
        let found = orphans.iter_mut().enumerate();
        let (at, is_last) =
            found.filter_map(|(at, orphan)| Some((at, orphan.next_piece(index, due, budget)?))).next()?;
        Self::drop_visited(orphans, at);
        Some(is_last)
    }

    /// Frees a part, without the lock, once no snapshot has anything more to see of it.
    fn drop_visited(mut orphans: MutexGuard<'_, Vec<Database>>, at: usize) {
        if !orphans[at].is_captured_at_all() {
            let visited = orphans.swap_remove(at);
            drop(orphans);
            drop(visited);
        }
    }
}

/// How a snapshot is taken.
#[derive(Debug, Clone)]
pub struct SnapshotOptions {
    /// The form of its chunks.
    pub form: Form,
    /// Bytes of chunks that may wait to be written before writers have to wait, until there are half as many.
    pub queue_bytes_max: usize,
    /// Bytes from which on a collection is lent, not copied.
    pub lent_bytes_min: usize,
    /// The slots whose keys the snapshot has; `None` for all.
    pub slots: Option<Arc<SlotBits>>,
}

/// How far [`Snapshot::advance`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    /// There is more to visit.
    More,
    /// A script holds a lock for long: to be tried again later.
    Held,
    /// Everything was visited; only the queue is left.
    Complete,
}

/// A database at the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseSize {
    /// Its number.
    pub database: usize,
    /// Its keys, those included that have expired and are still there.
    pub keys: usize,
    /// Entries with an expiry.
    pub expiring: usize,
}

/// A snapshot under way. Advance it until it is complete, even after [`Self::cancel`]: only then do its
/// stamps mean nothing again, and another one can begin in its place.
#[derive(Debug)]
pub struct Snapshot {
    snapshot_queue: Arc<SnapshotQueue>,
    databases: Vec<DatabaseSize>,
    /// The stripe that is being visited.
    stripe: usize,
    stripes: usize,
    /// The stripe with the collection of which there are some pieces already.
    in_pieces: Option<usize>,
}

impl Snapshot {
    /// The cut: everything that is there now belongs to the snapshot, and nothing that comes. The gate is
    /// closed.
    pub(crate) fn begin(locked: &mut LockedStripes<'_>, options: SnapshotOptions) -> Option<Self> {
        let keyspace = locked.keyspace();
        let index = keyspace.snapshots().claim()?;
        let snapshots = Arc::clone(keyspace.snapshots());
        let snapshot_queue = SnapshotQueue::new(index, snapshots, keyspace.mark_view(), options);
        let snapshot_queue = Arc::new(snapshot_queue);
        let mut usages = vec![Usage::default(); keyspace.databases()];
        for stripe in keyspace.stripes() {
            for (database, usage) in usages.iter_mut().enumerate() {
                if let Some(part) = locked.stripe_mut(stripe).database_mut(database) {
                    usage.add(part.usage());
                    part.begin_capture(&snapshot_queue, database);
                }
            }
        }
        let sizes = usages.iter().enumerate().map(|(database, usage)| DatabaseSize {
            database,
            keys: usage.keys,
            expiring: usage.expiring,
        });
        let databases = sizes.filter(|size| size.keys > 0).collect();
        let stripes = keyspace.stripes().len();
        Some(Self { snapshot_queue, databases, stripe: 0, stripes, in_pieces: None })
    }

    /// The databases with keys, at the cut.
    pub fn databases(&self) -> &[DatabaseSize] {
        &self.databases
    }

    /// Keys at the cut.
    pub fn keys(&self) -> u64 {
        self.databases.iter().map(|size| size.keys as u64).sum()
    }

    /// Thousandths of the keyspace that were visited.
    pub fn visited(&self) -> u16 {
        (self.stripe * 1000 / self.stripes.max(1)) as u16
    }

    /// Goes on with the visit, holding one lock at a time, until about `budget_bytes` have been copied. The
    /// caller is not inside the gate.
    pub fn advance(&mut self, keyspace: &Keyspace, budget_bytes: usize) -> Advance {
        let mut budget = budget_bytes;
        let begun = self.in_pieces.map(|_| Due::Begun);
        if let Some(due) = begun.or_else(|| self.snapshot_queue.due()) {
            return self.next_piece(keyspace, due, &mut budget);
        }
        if !self.advance_orphans(&mut budget) {
            return Advance::More;
        }
        while self.stripe < self.stripes {
            if budget == 0 {
                return Advance::More;
            }
            let Some(_open) = keyspace.keep_open() else { return Advance::Held };
            let Some(mut locked) = keyspace.lock_one_unless_long(self.stripe) else { return Advance::Held };
            if !self.advance_stripe(&mut locked.stripes(), &mut budget) {
                return Advance::More;
            }
            self.stripe += 1;
        }
        // From here on no part will be taken out of stripes for this snapshot.
        match self.advance_orphans(&mut budget) {
            true if self.snapshot_queue.incremental() == 0 => {
                self.snapshot_queue.finish_chunks();
                Advance::Complete
            }
            true => self.next_piece(keyspace, Due::Any, &mut budget),
            false => Advance::More,
        }
    }

    /// Goes on with a collection that is copied in pieces and `due`.
    fn next_piece(&mut self, keyspace: &Keyspace, due: Due, budget: &mut usize) -> Advance {
        let index = self.snapshot_queue.index();
        let first = self.in_pieces.unwrap_or(0);
        for stripe in (first..self.stripes).chain(0..first) {
            let Some(_open) = keyspace.keep_open() else { return Advance::Held };
            let Some(mut locked) = keyspace.lock_one_unless_long(stripe) else { return Advance::Held };
            let mut locked = locked.stripes();
            let state = locked.stripe_mut(stripe);
            let piece = (0..keyspace.databases())
                .find_map(|database| state.database_mut(database)?.next_piece(index, due, budget));
            if let Some(is_last) = piece {
                self.in_pieces = (!is_last).then_some(stripe);
                return Advance::More;
            }
        }
        match self.snapshot_queue.snapshots().next_piece(index, due, budget) {
            // Between two looks it was taken along from a stripe that is yet to be looked at to one that was.
            None if due == Due::Begun && !self.is_cancelled() => {}
            piece => self.in_pieces = piece.filter(|is_last| !is_last).map(|_| first),
        }
        Advance::More
    }

    fn advance_stripe(&self, locked: &mut LockedStripes<'_>, budget: &mut usize) -> bool {
        let databases = locked.keyspace().databases();
        let state = locked.stripe_mut(self.stripe);
        (0..databases).all(|database| {
            let part = state.database_mut(database);
            part.is_none_or(|part| part.capture(self.snapshot_queue.index(), budget))
        })
    }

    /// Visits entries that were taken out of the keyspace; returns whether none are left.
    fn advance_orphans(&self, budget: &mut usize) -> bool {
        let snapshots = Arc::clone(self.snapshot_queue.snapshots());
        while !snapshots.advance_orphan(self.snapshot_queue.index(), budget) {
            if *budget == 0 {
                return false;
            }
        }
        true
    }

    /// The chunks that are ready, all that can be written: while there are some pieces of a collection, but not the last, nothing else
    /// can. Each is to be released when it has been written.
    pub fn take(&self) -> impl Iterator<Item = Chunk> + use<> {
        self.snapshot_queue.take()
    }

    /// Gives the memory of a chunk back. Returns whether writers that had to wait may go on: the caller wakes them.
    pub fn release(&self, chunk: Chunk) -> bool {
        self.snapshot_queue.release(chunk)
    }

    /// Whether there will be time to compress entries that are copied from now on. Strings to be compressed have to be
    /// noted, at the cost of the thread that copies.
    pub fn set_compresses(&self, compresses: bool) {
        self.snapshot_queue.set_compresses(compresses);
    }

    /// Whether others wait for a collection that is copied in pieces to be written.
    pub fn is_held_up(&self) -> bool {
        self.snapshot_queue.is_held_up()
    }

    /// Bytes of chunks that are ready, and of those that were taken and not released.
    pub fn waiting_bytes(&self) -> usize {
        self.snapshot_queue.waiting_bytes()
    }

    /// Gives the snapshot up: from here on entries are stamped and not copied, and no writer waits. Chunks that have
    /// been copied may still be taken.
    pub fn cancel(&self) {
        self.snapshot_queue.cancel();
    }

    /// Whether it was given up.
    pub fn is_cancelled(&self) -> bool {
        self.snapshot_queue.is_cancelled()
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.snapshot_queue.cancel();
        let snapshots = self.snapshot_queue.snapshots();
        let index = self.snapshot_queue.index();
        // If it is not complete there are entries with stamps that mean something: its bit is not
        // given to another.
        let is_walked = self.stripe == self.stripes && self.snapshot_queue.incremental() == 0;
        if is_walked && !snapshots.orphans().iter().any(|orphan| orphan.is_captured(index)) {
            snapshots.release(index);
        }
    }
}

/// Copies all entries of a database, chunk by chunk, until `show` fails. Nothing else
/// runs meanwhile.
pub(crate) fn try_for_each_chunk<E>(
    context: &ExclusiveContext<'_>,
    database: usize,
    form: Form,
    mut show: impl FnMut(&Chunk) -> Result<(), E>,
) -> Result<(), E> {
    let mut chunk = Chunk::new(database, form);
    context.try_for_each(database, |entry| {
        chunk.add(entry);
        if chunk.memory_bytes() < CHUNK_BYTES {
            return Ok(());
        }
        show(&mem::replace(&mut chunk, Chunk::new(database, form)))
    })?;
    if chunk.is_empty() { Ok(()) } else { show(&chunk) }
}
