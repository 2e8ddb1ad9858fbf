//! Large collections on their way into a file, piece by piece.

use std::{mem, sync::Arc};

use super::{Chunk, Due, SnapshotQueue, chunk::Piece};
use crate::{
    keyspace::{EntryRef, LentEntry},
    rdb::{Output, Version, is_written_in_elements, write_key},
    value::{Collection, Stream, incremental_copy::IncrementalCopy, stream::StreamTail},
};

/// A collection that is copied in pieces. While it is in a part, it counts as one that the snapshot has not seen.
pub(crate) struct IncrementalEntry {
    snapshot_queue: Arc<SnapshotQueue>,
    /// The number of its database at the cut.
    database: usize,
    /// Its present key in its part; its key at the cut is in the head.
    key: Box<[u8]>,
    /// The bytes before its elements in the file, until they were copied.
    head: Vec<u8>,
    /// The part behind them, if there is one.
    tail: Option<Box<StreamTail>>,
    version: Version,
    copy: IncrementalCopy,
    /// The collection, if it was removed.
    gone: Option<LentEntry>,
}

impl IncrementalEntry {
    /// Begins, if the collection and the file allow it.
    pub(super) fn begin(
        entry: EntryRef<'_>,
        database: usize,
        snapshot_queue: &Arc<SnapshotQueue>,
    ) -> Option<Self> {
        let form = snapshot_queue.options.form;
        let version = form.version_of(entry);
        if form.commands || !is_written_in_elements(entry, version) {
            return None;
        }
        let object = entry.stored_object()?;
        let copy = IncrementalCopy::begin(object, snapshot_queue)?;
        let tail = Stream::of(object).map(|stream| Box::new(stream.tail()));
        let mut head = Vec::new();
        let mut output = Output::new(&mut head, None);
        let written = write_key(entry, version, &mut output).and_then(|()| output.length(copy.left() as u64));
        written.expect("a vector takes everything");
        let (key, snapshot_queue) = (entry.key().into(), Arc::clone(snapshot_queue));
        snapshot_queue.begin_pieces();
        Some(Self { snapshot_queue, database, key, head, tail, version, copy, gone: None })
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether it is the collection under a key of its part.
    pub(super) fn is_of(&self, key: &[u8]) -> bool {
        !self.is_gone() && *self.key == *key
    }

    /// The number of its database at the cut.
    pub(crate) fn database(&self) -> usize {
        self.database
    }

    /// The snapshot that it is for.
    pub(crate) fn snapshot_queue(&self) -> &Arc<SnapshotQueue> {
        &self.snapshot_queue
    }

    /// The collection has another key now, of that part or of another.
    pub(super) fn rename(&mut self, key: &[u8]) {
        self.key = key.into();
    }

    /// Whether it was removed.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    pub(super) fn is_due(&self, due: Due) -> bool {
        match due {
            Due::Begun => self.head.is_empty(),
            Due::Gone => self.is_gone(),
            Due::Any => true,
        }
    }

    /// The collection is removed: the snapshot has a view of it from now on, which is the only one.
    pub(super) fn leave(&mut self, entry: EntryRef<'_>) {
        self.snapshot_queue.note_gone();
        self.gone = Some(self.snapshot_queue.lend(entry));
    }

    /// Puts the next piece into the queue, of about `budget` bytes, which it lowers. Returns whether it is the last.
    /// The collection is the value of the entry `found`, unless it was removed.
    pub(super) fn push_next(&mut self, found: Option<EntryRef<'_>>, budget: &mut usize) -> bool {
        let entry = self.gone.as_ref().map(LentEntry::get).or(found);
        let (elements, is_last) = self.copy.next_piece(entry.and_then(EntryRef::stored_object), budget);
        let is_sound = !is_last || self.copy.is_whole();
        let tail = if is_last { self.tail.take() } else { None };
        let piece = Piece { head: mem::take(&mut self.head), elements, tail, is_sound };
        let chunk = Chunk::piece(self.database, self.snapshot_queue.options.form, self.version, piece);
        self.snapshot_queue.push_piece(chunk, is_last);
        is_last
    }
}

impl Drop for IncrementalEntry {
    fn drop(&mut self) {
        self.snapshot_queue.end_pieces(self.gone.take());
    }
}
