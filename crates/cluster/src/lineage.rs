//! The lineage of the records: whether a state of the store has come from another one, whatever its numbers say.
//!
//! A store that is restored from a backup goes on from there, and its revisions and epochs soon reach those that nodes know. Order
//! of numbers is not descent. So each node leaves a mark, and each change of a record carries the mark of the node that makes it:
//!
//! ```text
//! lineage/A  {count, id}    one key for each node that has ever changed a record; written in the transaction of the change
//! lineage/B  {count, id}
//! ```
//!
//! The marks of a state are a vector clock. A node keeps the marks of the newest state that it has obeyed ([`Lineage`]). A state has
//! come from that one if it has each of these marks, or a later one of the same node ([`Lineage::covers`]).
//!
//! Invariants:
//! - A node's mark is written under the comparison that its mark before is still there ([`Writer`]). So a node never writes into a
//!   store that lacks what it knows to have written.
//! - The id of a mark is drawn for each transaction: equal counts of two lines differ in it.
//! - A node may not know its last change: its answer was lost, or the process ended before it came. If the store goes back behind
//!   that change, its count gets another meaning. A mark names the [runs](`crate::records::Runs`) of changes of which the writer was
//!   sure, so counts beyond that one do not hide it.
//! - A state that a node may not obey is one that it does not write into.
//! - Marks stay when their node is forgotten. Otherwise a state before the node's first change would look like one after its end.

use std::collections::BTreeMap;

use crate::{
    NodeId,
    meta::{Revision, Transaction},
    records::{Key, Keys, Mark, Record, Run, Runs},
};

/// The marks of a state of the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lineage(BTreeMap<NodeId, Mark>);

impl Mark {
    /// A mark of a version that named no runs.
    pub fn new(count: u64, id: u64) -> Self {
        Self { count, id, runs: Runs::default() }
    }

    /// Whether a state with this mark has come from the change with an earlier mark of the same node, or is its state.
    pub fn covers(self, earlier: Self) -> bool {
        if self.count <= earlier.count {
            return (self.count, self.id) == (earlier.count, earlier.id);
        }
        match (self.runs.of(earlier.count), earlier.runs.newest()) {
            (Some(here), Some(there)) => here == there,
            // That is too long ago, or of a version that named no runs.
            _ => true,
        }
    }
}

impl Lineage {
    /// Whether no record has ever been changed under marks.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a node's mark.
    pub fn mark(&self, node: NodeId) -> Option<Mark> {
        self.0.get(&node).copied()
    }

    /// Sets a node's mark.
    pub fn set(&mut self, node: NodeId, mark: Mark) {
        self.0.insert(node, mark);
    }

    /// Returns the marks.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, Mark)> + '_ {
        self.0.iter().map(|(node, mark)| (*node, *mark))
    }

    /// Returns a node whose mark of an earlier state is not in this one, nor a later one of it. O(nodes × log nodes).
    pub fn lacks(&self, earlier: &Self) -> Option<NodeId> {
        let has = |(node, known): (NodeId, Mark)| self.mark(node).is_some_and(|own| own.covers(known));
        earlier.iter().find(|one| !has(*one)).map(|(node, _)| node)
    }

    /// Whether this state has come from the earlier one, or is it.
    pub fn covers(&self, earlier: &Self) -> bool {
        self.lacks(earlier).is_none()
    }

    /// Takes the later marks of another state over, which has come from this one or led to it.
    pub fn join(&mut self, other: &Self) {
        for (node, mark) in other.iter() {
            let own = self.0.entry(node).or_insert(mark);
            if mark.count > own.count {
                *own = mark;
            }
        }
    }

    /// Returns marks that cover both states, of which neither has come from the other: an operator has decided between them.
    /// `draw` gives the ids of new marks.
    pub fn reconciled(&self, other: &Self, mut draw: impl FnMut() -> u64) -> Self {
        let mut both = self.clone();
        for (node, theirs) in other.iter() {
            let own = both.mark(node);
            if !own.is_some_and(|own| own.covers(theirs)) {
                let after = theirs.count.max(own.map_or(0, |own| own.count));
                let id = draw();
                // Of what comes before this run nothing is said: it has come from both.
                both.set(node, Mark { count: after + 1, id, runs: Runs::default().begun(Run { id, after }) });
            }
        }
        both
    }
}

impl FromIterator<(NodeId, Mark)> for Lineage {
    fn from_iter<I: IntoIterator<Item = (NodeId, Mark)>>(marks: I) -> Self {
        Self(marks.into_iter().collect())
    }
}

/// The distance at which epochs begin after an operator has decided between two lines. A node may know newer ones of
/// its line than the node that was asked, and messages of an older epoch count for nothing.
pub const DECISION_EPOCHS: u64 = 1_000;

/// A node's own mark, as it stands in the store.
#[derive(Debug, Clone)]
pub struct Writer {
    me: NodeId,
    stored: Option<(Revision, Mark)>,
    /// The run that this process has begun last.
    run: Option<u64>,
    /// The id of the last mark that was signed, while it is not known what became of it.
    open: Option<u64>,
}

impl Writer {
    /// The writer of a process that has written nothing yet.
    pub fn new(me: NodeId) -> Self {
        Self { me, stored: None, run: None, open: None }
    }

    /// Adds the node's next mark to a change, and the comparison that the one before is still there. `id` is drawn for it. A new run
    /// of changes begins unless the process is sure of its last one.
    #[must_use]
    pub fn sign(&mut self, transaction: Transaction, keys: &Keys, id: u64) -> (Transaction, Mark) {
        let key = keys.text(Key::Mark(self.me));
        let (after, known) = self.stored.map_or((0, Runs::default()), |(_, mark)| (mark.count, mark.runs));
        let is_sure = self.open.is_none() && self.run.is_some() && known.newest() == self.run;
        let runs = if is_sure { known } else { known.begun(Run { id, after }) };
        (self.run, self.open) = (runs.newest(), Some(id));
        let mark = Mark { count: after + 1, id, runs };
        let revision = self.stored.map_or(0, |(revision, _)| revision);
        (transaction.compare(&*key, revision).put(key, mark.encode()), mark)
    }

    /// The change with this mark is made, at this revision.
    pub fn done(&mut self, revision: Revision, mark: Mark) {
        if self.stored.is_none_or(|(known, _)| revision > known) {
            self.stored = Some((revision, mark));
        }
        self.end(mark.id);
    }

    /// The change with this mark is not made, and will not be.
    pub fn undone(&mut self, mark: Mark) {
        self.end(mark.id);
    }

    fn end(&mut self, id: u64) {
        self.open = self.open.filter(|open| *open != id);
    }

    /// The store shows this mark of the node, in a state that may be obeyed.
    pub fn seen(&mut self, stored: Option<(Revision, Mark)>) {
        self.stored = stored;
        if let Some((_, mark)) = stored {
            self.end(mark.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{Store, TransactionOutcome};

    fn node(number: u8) -> NodeId {
        NodeId::from_bytes([number; 20])
    }

    fn lineage(marks: &[(u8, u64, u64)]) -> Lineage {
        marks.iter().map(|(number, count, id)| (node(*number), Mark::new(*count, *id))).collect()
    }

    #[test]
    fn lineage_covers_what_it_has_come_from() {
        let known = lineage(&[(1, 3, 30), (2, 1, 11)]);
        for (state, covers) in [
            (lineage(&[(1, 3, 30), (2, 1, 11)]), true),
            (lineage(&[(1, 4, 41), (2, 1, 11), (3, 9, 90)]), true),
            // As long, and longer by other nodes' changes.
            (lineage(&[(1, 3, 31), (2, 1, 11)]), false),
            (lineage(&[(1, 2, 20), (2, 1, 11), (3, 99, 1)]), false),
            (lineage(&[(1, 3, 30), (3, 99, 1)]), false),
            (lineage(&[]), false),
        ] {
            assert_eq!(state.covers(&known), covers, "{state:?}");
            assert!(state.covers(&lineage(&[])), "records of before there were marks");
            let mut next = 1000;
            let decided = state.reconciled(&known, || {
                next += 1;
                next
            });
            assert!(decided.covers(&known) && decided.covers(&state), "{decided:?}");
        }
    }

    #[test]
    fn writer_changes_nothing_in_a_store_that_lacks_what_it_has_written() {
        let keys = Keys::new("c").unwrap();
        let mut store = Store::default();
        let mut writer = Writer::new(node(1));
        let write = |store: &mut Store, writer: &mut Writer, id: u64| {
            let (transaction, mark) = writer.sign(Transaction::default(), &keys, id);
            let outcome = store.commit(&transaction);
            match outcome {
                TransactionOutcome::Done(revision) => writer.done(revision, mark),
                _ => writer.undone(mark),
            }
            outcome
        };
        assert!(matches!(write(&mut store, &mut writer, 1), TransactionOutcome::Done(_)));
        let backup = store.clone();
        assert!(matches!(write(&mut store, &mut writer, 2), TransactionOutcome::Done(_)));
        let mut restored = backup;
        // Others have brought its numbers beyond those that the writer knows.
        for _ in 0..9 {
            restored.commit(&Transaction::default().put("/dunlin/c/other", "x"));
        }
        assert!(matches!(write(&mut restored, &mut writer, 3), TransactionOutcome::Refused(_)));
        assert!(
            matches!(write(&mut store, &mut writer, 4), TransactionOutcome::Done(_)),
            "its own line goes on"
        );
    }

    /// Found by the simulator (seed 13294): the store goes back behind a change whose answer was lost.
    #[test]
    fn mark_of_a_lost_count_is_not_covered_by_later_counts() {
        let keys = Keys::new("c").unwrap();
        let mut writer = Writer::new(node(1));
        let sign = |writer: &mut Writer, id| writer.sign(Transaction::default(), &keys, id).1;
        let first = sign(&mut writer, 1);
        writer.done(5, first);
        let lost = sign(&mut writer, 2);
        // The change was made, a node has obeyed it, and the store has gone back. The writer sees its mark before.
        for mut again in [writer.clone(), Writer::new(node(1))] {
            again.seen(Some((5, first)));
            let mut mark = sign(&mut again, 3);
            assert_eq!(mark.count, lost.count);
            for id in 4..9 {
                assert!(mark.covers(first) && !mark.covers(lost) && !lost.covers(mark), "{mark:?}");
                again.done(id, mark);
                mark = sign(&mut again, id);
            }
        }
        // The store has not gone back: the change is there, or is known not to be.
        writer.seen(Some((6, lost)));
        let next = sign(&mut writer, 4);
        assert!(next.covers(lost) && next.runs == lost.runs, "the run goes on: {next:?}");
        writer.undone(next);
        let other = sign(&mut writer, 5);
        assert!(other.covers(lost) && other.runs == lost.runs && !other.covers(next), "{other:?}");
        // Nodes that have obeyed any of them obey what comes after, in another process, too.
        writer.done(7, other);
        let mut process = Writer::new(node(1));
        process.seen(Some((7, other)));
        let later = sign(&mut process, 6);
        assert!([first, lost, other].iter().all(|one| later.covers(*one)) && later.runs != other.runs);
    }
}
