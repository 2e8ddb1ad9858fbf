//! A snapshot's state of a part.

use std::{mem, sync::Arc};

use dunlin_structures::{CellPosition, CellWalk, Handle};

use super::{Chunk, Due, IncrementalEntry, SnapshotQueue};
use crate::keyspace::{EntryRef, STAMP_BITS, slot};

/// The cost of looking at an entry or a page, in bytes copied.
const VISIT_BYTES: usize = 16;
/// The cost of lending an entry, in bytes copied.
const LENT_COST_BYTES: usize = 1024;

/// A snapshot's state of a part.
pub(crate) struct Capture {
    snapshot_queue: Arc<SnapshotQueue>,
    /// The number of the database that the part was of at the cut.
    database: usize,
    /// The next cell of the walk over the part's cells, and its end: cells behind that came after the cut.
    position: CellPosition,
    end: CellPosition,
    /// Collections that are copied in pieces.
    incremental: Vec<IncrementalEntry>,
    /// Memory for the walk: the cells of a page.
    handles: Vec<Handle>,
}

impl Capture {
    /// The capture of a part whose cells `end` there: at the start if the snapshot has seen all there were at the cut.
    pub(crate) fn new(snapshot_queue: Arc<SnapshotQueue>, database: usize, end: CellPosition) -> Self {
        let position = CellPosition::START;
        Self { snapshot_queue, database, position, end, incremental: Vec::new(), handles: Vec::new() }
    }

    pub(crate) fn snapshot_queue(&self) -> &Arc<SnapshotQueue> {
        &self.snapshot_queue
    }

    /// Whether an entry is lent as it is, not copied: it is large, and commands can wait.
    pub(crate) fn lends(&self, entry: EntryRef<'_>) -> bool {
        let bytes_min = self.snapshot_queue.options.lent_bytes_min;
        !self.snapshot_queue.is_cancelled()
            && self.has(entry)
            && entry.stored_object().is_some_and(|object| object.heap_bytes() >= bytes_min)
    }

    /// Whether the snapshot is to have an entry.
    fn has(&self, entry: EntryRef<'_>) -> bool {
        self.snapshot_queue.options.slots.as_ref().is_none_or(|slots| slots.contains(slot(entry.key())))
    }

    /// Copies an entry that the snapshot has not seen, takes a view of it, or begins to have it in pieces. Returns how
    /// many bytes that took, and whether the snapshot has seen it now, so that the caller stamps it. An entry in pieces
    /// stays unseen until the last of them, or until it `leaves` the keyspace.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>, leaves: bool) -> (usize, bool) {
        if let Some(at) = self.incremental.iter().position(|known| known.is_of(entry.key())) {
            return (0, self.keep(at, entry, leaves));
        }
        let snapshot_queue = &self.snapshot_queue;
        if snapshot_queue.is_cancelled() || !self.has(entry) {
            return (0, true);
        }
        let database = self.database;
        if self.lends(entry) {
            if !leaves && let Some(begun) = IncrementalEntry::begin(entry, database, snapshot_queue) {
                self.incremental.push(begun);
                return (LENT_COST_BYTES, false);
            }
            snapshot_queue.push(Chunk::lent(
                database,
                snapshot_queue.options.form,
                snapshot_queue.lend(entry),
            ));
            return (LENT_COST_BYTES, true);
        }
        if entry.is_rope() {
            snapshot_queue.share(database, entry, leaves);
            return (LENT_COST_BYTES, true);
        }
        (snapshot_queue.copy(database, entry), true)
    }

    /// A collection that is copied in pieces is taken along to another key.
    pub(crate) fn release(&mut self, key: &[u8]) -> Option<IncrementalEntry> {
        let at = self.incremental.iter().position(|known| known.is_of(key))?;
        Some(self.incremental.swap_remove(at))
    }

    /// A collection has come to that key, and goes on from there.
    pub(crate) fn receive(&mut self, mut pieces: IncrementalEntry, key: &[u8]) {
        pieces.rename(key);
        self.incremental.push(pieces);
    }

    /// A collection that is copied in pieces changes, or `leaves` the keyspace. Returns whether the snapshot can do
    /// without it where it is.
    fn keep(&mut self, at: usize, entry: EntryRef<'_>, leaves: bool) -> bool {
        if self.snapshot_queue.is_cancelled() {
            self.incremental.swap_remove(at);
            return true;
        }
        if leaves {
            self.incremental[at].leave(entry);
        }
        leaves
    }

    /// Goes on with a collection that is copied in pieces, for about `budget` bytes, which it lowers: `None` if none is
    /// `due`, otherwise whether that was the last piece, and the snapshot has seen it. `find` knows where it stands
    /// unless it was removed.
    pub(crate) fn next_piece<'e>(
        &mut self,
        due: Due,
        budget: &mut usize,
        find: impl FnOnce(&[u8]) -> Option<EntryRef<'e>>,
    ) -> Option<bool> {
        let at = self.incremental.iter().position(|known| known.is_due(due))?;
        let known = &mut self.incremental[at];
        let found = if known.is_gone() { None } else { find(known.key()) };
        let is_last = self.snapshot_queue.is_cancelled() || known.push_next(found, budget);
        if is_last {
            self.incremental.swap_remove(at);
            if let Some(entry) = found {
                entry.set_stamps(entry.stamps() ^ STAMP_BITS[self.snapshot_queue.index()]);
            }
        }
        Some(is_last)
    }

    /// The walk.
    pub(crate) fn walk(&self) -> CellWalk {
        CellWalk { next: self.position, end: self.end }
    }

    /// Whether the walk has yet to come to the end.
    pub(crate) fn is_walking(&self) -> bool {
        self.position < self.end
    }

    /// Whether there is nothing more to be seen.
    pub(crate) fn is_complete(&self) -> bool {
        !self.is_walking() && self.incremental.is_empty()
    }

    /// Goes on with the walk for about `budget` bytes, which it lowers. Returns whether it has come to the end. `page`
    /// collects the cells from a position to the end of its page and asks for the heads of the entries there. `unseen`
    /// answers the entry of a handle that the snapshot has not seen, `fetch` asks for all of it.
    pub(crate) fn visit<'e>(
        &mut self,
        budget: &mut usize,
        page: impl Fn(CellPosition, &mut Vec<Handle>) -> CellPosition,
        unseen: impl Fn(Handle) -> Option<EntryRef<'e>>,
        fetch: impl Fn(Handle),
    ) -> bool {
        let bit = STAMP_BITS[self.snapshot_queue.index()];
        while *budget > 0 && self.is_walking() {
            let mut handles = mem::take(&mut self.handles);
            self.position = page(self.position, &mut handles);
            *budget = budget.saturating_sub((1 + handles.len()) * VISIT_BYTES);
            // Under load commands that changed them have copied most of them.
            handles.retain(|handle| unseen(*handle).inspect(|_| fetch(*handle)).is_some());
            for handle in handles.drain(..) {
                let Some(entry) = unseen(handle) else { continue };
                let (bytes, is_seen) = self.add(entry, false);
                if is_seen {
                    entry.set_stamps(entry.stamps() ^ bit);
                }
                *budget = budget.saturating_sub(bytes);
                if *budget == 0 {
                    self.position = CellPosition::behind(handle);
                    break;
                }
            }
            self.handles = handles;
        }
        !self.is_walking()
    }
}
