//! A part's duties towards snapshots. Every change of an entry first hands the entry to the snapshots that have not
//! seen it, and their walks go over the part's cells. [`crate::snapshot`] says how entries reach a snapshot.

use std::sync::Arc;

use dunlin_structures::{CellPosition, Slot, prefetch};

use super::Database;
use crate::{
    keyspace::{
        entry::{EntryMut, EntryRef, STAMP_BITS},
        key::same_bytes,
    },
    snapshot::{Capture, Due, IncrementalEntry, SNAPSHOTS_MAX, SnapshotQueue},
};

/// By snapshot, its state of the part.
pub(super) type Captures = [Option<Capture>; SNAPSHOTS_MAX];

/// Gives an entry that is about to change, or `leaves` the keyspace, to the snapshots that have not seen it.
#[cold]
#[inline(never)]
pub(super) fn preserve_entry(
    captures: &mut Option<Box<Captures>>,
    stamps: u8,
    entry: EntryRef<'_>,
    leaves: bool,
) {
    let mut unseen = entry.stamps() ^ stamps;
    for (capture, bit) in captures.iter_mut().flat_map(|captures| captures.iter_mut()).zip(STAMP_BITS) {
        if let Some(capture) = capture
            && unseen & bit != 0
        {
            let (_, is_seen) = capture.add(entry, leaves);
            unseen ^= if is_seen { bit } else { 0 };
        }
    }
    entry.set_stamps(stamps ^ unseen);
}

impl Database {
    /// Lets snapshots that have not seen an entry have it before it changes. Everything that changes an entry begins with
    /// this, and is given the entry.
    #[inline]
    pub(super) fn preserve(&mut self, slot: Slot) -> EntryMut<'_> {
        self.preserve_as(slot, false)
    }

    /// Preserves an entry for snapshots before it, or its value, is removed.
    #[inline]
    pub(super) fn preserve_leaving(&mut self, slot: Slot) {
        self.preserve_as(slot, true);
    }

    #[inline]
    fn preserve_as(&mut self, slot: Slot, leaves: bool) -> EntryMut<'_> {
        let cell = self.slab.pointer(slot.handle());
        // SAFETY: as in `entry_of`; captures and slab are different parts of `self`.
        let entry = unsafe { EntryRef::new(cell) };
        if entry.stamps() != self.stamps {
            preserve_entry(&mut self.captures, self.stamps, entry, leaves);
        }
        // SAFETY: as in `entry_mut`; the reference above is not used again.
        unsafe { EntryMut::new(cell) }
    }

    /// Lends a large value to the snapshots that have not seen it.
    pub(in crate::keyspace) fn lend(&mut self, slot: Slot) {
        let captures = || self.captures.iter().flat_map(|captures| captures.iter()).flatten();
        if self.entry(slot).stamps() != self.stamps
            && captures().any(|capture| capture.lends(self.entry(slot)))
        {
            self.preserve(slot);
        }
    }

    /// The pieces that snapshots have of an entry, which moves elsewhere and takes them along.
    #[inline]
    pub(super) fn release_pieces(&mut self, slot: Slot) -> Vec<IncrementalEntry> {
        let cell = self.slab.pointer(slot.handle());
        // SAFETY: as in `preserve_as`.
        let entry = unsafe { EntryRef::new(cell) };
        let mut pieces = Vec::new();
        if entry.stamps() != self.stamps {
            let captures = self.captures.iter_mut().flat_map(|captures| captures.iter_mut()).flatten();
            pieces.extend(captures.filter_map(|capture| capture.release(entry.key())));
            (0..SNAPSHOTS_MAX).for_each(|index| self.settle_capture(index));
        }
        pieces
    }

    /// Lets pieces of a collection, which has come to a key that stands in `slot`, go on from there.
    pub(crate) fn receive_pieces(&mut self, slot: Slot, pieces: Vec<IncrementalEntry>) {
        let cell = self.slab.pointer(slot.handle());
        // SAFETY: as in `preserve_as`.
        let entry = unsafe { EntryRef::new(cell) };
        for incremental in pieces {
            let (snapshot_queue, database) =
                (Arc::clone(incremental.snapshot_queue()), incremental.database());
            let index = snapshot_queue.index();
            let capture = &mut self.captures.get_or_insert_default()[index];
            let capture =
                capture.get_or_insert_with(|| Capture::new(snapshot_queue, database, CellPosition::START));
            capture.receive(incremental, entry.key());
            entry.set_stamps(entry.stamps() ^ STAMP_BITS[index]);
        }
    }

    /// A snapshot begins: it has yet to see all entries there are, as keys of `database`. The gate is
    /// closed.
    pub(crate) fn begin_capture(&mut self, snapshot_queue: &Arc<SnapshotQueue>, database: usize) {
        if !self.is_empty() {
            let captures = self.captures.get_or_insert_default();
            let capture = Capture::new(Arc::clone(snapshot_queue), database, self.slab.end());
            let previous = captures[snapshot_queue.index()].replace(capture);
            debug_assert!(previous.is_none(), "a snapshot's bit is given away once at a time");
            self.stamps ^= STAMP_BITS[snapshot_queue.index()];
        }
    }

    /// Shows a snapshot entries that it has not seen, about `budget` bytes of them, which it lowers.
    /// Returns whether it has seen all, but for pieces of collections ([`Self::next_piece`]).
    pub(crate) fn capture(&mut self, index: usize, budget: &mut usize) -> bool {
        let Some(captures) = &mut self.captures else { return true };
        let Some(capture) = &mut captures[index] else { return true };
        let (slab, probe, stamps) = (&self.slab, &self.probe, self.stamps);
        let visited = capture.visit(
            budget,
            |position, handles| {
                slab.visit_page(position, |handle| {
                    prefetch(slab.pointer(handle).as_ptr());
                    handles.push(handle);
                })
            },
            |handle| {
                // SAFETY: the slab's live cells are the entries.
                let entry = unsafe { EntryRef::new(slab.pointer(handle)) };
                let is_new = (entry.stamps() ^ stamps) & STAMP_BITS[index] != 0;
                is_new.then_some(entry)
            },
            |handle| probe.fetch_cell(handle),
        );
        if visited {
            self.settle_capture(index);
        }
        visited
    }

    /// Goes on with a collection of which a snapshot has pieces, see [`Capture::next_piece`].
    pub(crate) fn next_piece(&mut self, index: usize, due: Due, budget: &mut usize) -> Option<bool> {
        let capture = self.captures.as_mut()?[index].as_mut()?;
        let (table, slab, hasher) = (&self.table, &self.slab, &self.hasher);
        let is_last = capture.next_piece(due, budget, |key| {
            // SAFETY: handles in the table refer to entries of the slab beside it.
            let entry = |handle| unsafe { EntryRef::new(slab.pointer(handle)) };
            let slot = table.find(hasher.hash(key), |handle| same_bytes(entry(handle).key(), key))?;
            Some(entry(slot.handle()))
        })?;
        if is_last {
            self.settle_capture(index);
        }
        Some(is_last)
    }

    /// Forgets a snapshot's state of the part, if that is all.
    fn settle_capture(&mut self, index: usize) {
        let Some(captures) = &mut self.captures else { return };
        if captures[index].as_ref().is_some_and(Capture::is_complete) {
            captures[index] = None;
            if captures.iter().all(Option::is_none) {
                self.captures = None;
            }
        }
    }

    /// Whether a snapshot's walk has yet to come to the end.
    pub(crate) fn is_walked_by(&self, index: usize) -> bool {
        let capture = self.captures.as_ref().and_then(|captures| captures[index].as_ref());
        capture.is_some_and(Capture::is_walking)
    }

    /// Whether a snapshot has yet to see entries.
    pub(crate) fn is_captured(&self, index: usize) -> bool {
        self.captures.as_ref().is_some_and(|captures| captures[index].is_some())
    }

    /// Whether any snapshot has.
    pub(crate) fn is_captured_at_all(&self) -> bool {
        self.captures.is_some()
    }

    /// The part was taken out of its stripe: it goes to the snapshots that have not seen all of it, or is
    /// handed back.
    pub(crate) fn retire(self: Box<Self>) -> Option<Box<Self>> {
        let capture = self.captures.as_ref().and_then(|captures| captures.iter().flatten().next());
        let Some(snapshots) = capture.map(|capture| Arc::clone(capture.snapshot_queue().snapshots())) else {
            return Some(self);
        };
        snapshots.adopt(self);
        None
    }
}
