//! What a snapshot has of a stripe.

use std::{mem, sync::Arc};

use dunlin_structures::Handle;

use super::{Chunk, Due, Intake, piecemeal::Piecemeal};
use crate::keyspace::{EntryRef, STAMP_BITS};

/// Bytes of a chunk from which on it is handed over.
pub(super) const CHUNK_BYTES: usize = 16 * 1024;
/// Entries that are fetched from memory together.
const PREFETCH_ENTRIES: usize = 32;
/// Steps of the walk that look for them at most: where a table is nearly empty.
const PREFETCH_STEPS_MAX: usize = 16;
/// What looking at an entry or a step of the walk counts for, in bytes copied.
const VISIT_BYTES: usize = 64;
/// What lending an entry counts for, in bytes copied.
const LENT_COST_BYTES: usize = 1024;

/// What a snapshot has of a stripe.
pub(crate) struct Capture {
    intake: Arc<Intake>,
    /// Where the walk over the table goes on.
    cursor: u64,
    /// Whether it has come to the end.
    is_walked: bool,
    chunk: Chunk,
    /// Collections that are handed over in pieces.
    piecemeal: Vec<Piecemeal>,
    /// Memory for the walk.
    handles: Vec<Handle>,
}

impl Capture {
    pub(crate) fn new(intake: Arc<Intake>, database: usize) -> Self {
        let chunk = intake.chunk(database);
        Self { intake, cursor: 0, is_walked: false, chunk, piecemeal: Vec::new(), handles: Vec::new() }
    }

    pub(crate) fn intake(&self) -> &Arc<Intake> {
        &self.intake
    }

    /// Whether an entry is lent as it is, not copied: it is large, and commands can wait.
    pub(crate) fn lends(&self, entry: EntryRef<'_>) -> bool {
        let bytes_min = self.intake.options.lent_bytes_min;
        !self.intake.is_cancelled() && entry.object().is_some_and(|object| object.heap_bytes() >= bytes_min)
    }

    /// Copies an entry that the snapshot has not seen, takes a view of it, or begins to have it in pieces. How many bytes that took,
    /// and whether the snapshot has seen it now, so that the caller stamps it: what it has in pieces stays unseen until the
    /// last of them, or until it `leaves` the stripe.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>, leaves: bool) -> (usize, bool) {
        if let Some(at) = self.piecemeal.iter().position(|known| known.is_of(entry.key())) {
            return (0, self.keep(at, entry, leaves));
        }
        let intake = &self.intake;
        if intake.is_cancelled() || entry.is_expired(intake.cut_ms()) {
            return (0, true);
        }
        let database = self.chunk.database();
        if self.lends(entry) {
            if !leaves && let Some(begun) = Piecemeal::begin(entry, database, intake) {
                self.piecemeal.push(begun);
                return (LENT_COST_BYTES, false);
            }
            intake.push(Chunk::lent(database, intake.options.form, intake.lend(entry), intake.cut_ms()));
            return (LENT_COST_BYTES, true);
        }
        let before = self.chunk.memory_bytes();
        self.chunk.add(entry, intake.cut_ms());
        let copied = self.chunk.memory_bytes() - before;
        if before + copied >= CHUNK_BYTES {
            self.hand_over();
        }
        (copied, true)
    }

    /// A collection that is handed over in pieces changes, or leaves; whether the snapshot needs it no more where it is.
    fn keep(&mut self, at: usize, entry: EntryRef<'_>, leaves: bool) -> bool {
        if self.intake.is_cancelled() {
            self.piecemeal.swap_remove(at);
            return true;
        }
        if leaves {
            self.piecemeal[at].leave(entry);
        }
        leaves
    }

    /// Goes on with a collection that is handed over in pieces, for about `budget` bytes, which it lowers: `None` where none is
    /// `due`, otherwise whether that was the last piece, and the snapshot has seen it. `find` knows where it stands unless it has left.
    pub(crate) fn next_piece<'e>(
        &mut self,
        due: Due,
        budget: &mut usize,
        find: impl FnOnce(&[u8]) -> Option<EntryRef<'e>>,
    ) -> Option<bool> {
        let at = self.piecemeal.iter().position(|known| known.is_due(due))?;
        let known = &mut self.piecemeal[at];
        let found = if known.is_gone() { None } else { find(known.key()) };
        let is_last = self.intake.is_cancelled() || known.push_next(found, budget);
        if is_last {
            self.piecemeal.swap_remove(at);
            if let Some(entry) = found {
                entry.set_stamps(entry.stamps() ^ STAMP_BITS[self.intake.index()]);
            }
        }
        Some(is_last)
    }

    /// Whether the walk has yet to come to the end.
    pub(crate) fn is_walking(&self) -> bool {
        !self.is_walked
    }

    /// Whether there is nothing more to be seen.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_walked && self.piecemeal.is_empty()
    }

    fn hand_over(&mut self) {
        let empty = self.intake.chunk(self.chunk.database());
        self.intake.push(mem::replace(&mut self.chunk, empty));
    }

    /// Goes on with the walk for about `budget` bytes, which it lowers; whether it has come to the end.
    /// `scan` makes a step of it and asks for the heads of the entries, `unseen` answers the entry of a handle that the
    /// snapshot has not seen, `fetch` asks for all of it.
    pub(crate) fn visit<'e>(
        &mut self,
        budget: &mut usize,
        mut scan: impl FnMut(u64, &mut Vec<Handle>) -> u64,
        unseen: impl Fn(Handle) -> Option<EntryRef<'e>>,
        fetch: impl Fn(Handle),
    ) -> bool {
        let bit = STAMP_BITS[self.intake.index()];
        while *budget > 0 && !self.is_walked {
            let mut handles = mem::take(&mut self.handles);
            let mut steps = 0;
            loop {
                self.cursor = scan(self.cursor, &mut handles);
                steps += 1;
                if self.cursor == 0 || handles.len() >= PREFETCH_ENTRIES || steps == PREFETCH_STEPS_MAX {
                    break;
                }
            }
            let mut cost = (steps + handles.len()) * VISIT_BYTES;
            // Under load most of them have been copied by who has changed them.
            handles.retain(|handle| unseen(*handle).inspect(|_| fetch(*handle)).is_some());
            for entry in handles.drain(..).filter_map(&unseen) {
                let (bytes, is_seen) = self.add(entry, false);
                cost += bytes;
                if is_seen {
                    entry.set_stamps(entry.stamps() ^ bit);
                }
            }
            self.handles = handles;
            *budget = budget.saturating_sub(cost);
            if self.cursor == 0 {
                if !self.chunk.is_empty() {
                    self.hand_over();
                }
                self.is_walked = true;
            }
        }
        self.is_walked
    }
}
