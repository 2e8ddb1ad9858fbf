//! Moving the entries of sparse pages together.

use dunlin_structures::{CellPosition, CellWalk, Compacted};

use super::Database;
use crate::{keyspace::entry::EntryRef, snapshot::Capture};

impl Database {
    /// Bytes of the pages of entries, and bytes of them that no entry uses. O(1).
    pub(crate) fn page_bytes(&self) -> (usize, usize) {
        (self.slab.page_bytes(), self.slab.slack_bytes())
    }

    /// Whether at least one `slack_parts`th of the pages is free.
    pub(crate) fn is_worth_compacting(&self, slack_parts: usize) -> bool {
        self.slab.slack_bytes() * slack_parts > self.slab.page_bytes()
    }

    /// Moves entries of sparse pages, from a position on, see [`dunlin_structures::Slab::compact`]. Snapshots still meet
    /// what they have not seen. At the end, pages that
    /// the slab keeps in reserve go back, too.
    pub(crate) fn compact(
        &mut self,
        from: CellPosition,
        limits: (usize, usize),
    ) -> (CellPosition, Compacted) {
        let captures = self.captures.iter().flat_map(|captures| captures.iter()).flatten();
        let walks: Vec<CellWalk> = captures.map(Capture::walk).collect();
        let (table, hasher) = (&mut self.table, &self.hasher);
        let (next, done) = self.slab.compact(from, limits, &walks, |slab, old, new| {
            // SAFETY: the cell has a copy of an entry that no thread changes meanwhile.
            let entry = unsafe { EntryRef::new(slab.pointer(new)) };
            let slot = table.find(hasher.hash(entry.key()), |handle| handle == old);
            table.replace(slot.expect("all live cells are entries of the table"), new);
        });
        if next == CellPosition::START {
            self.slab.release_spare();
        }
        (next, done)
    }
}
