//! A snapshot's state of a stream, whose nodes change while they are copied.
//!
//! Nodes are distinguished by their first IDs, which never change, and stand in the order of these. The walk goes
//! through them from the first to the last; a node behind the walk's place that is about to change is set aside.
//!
//! ```text
//! nodes     1-0 │ 5-0 │ 9-0 │ 14-0 │ 20-0 │      20-0 is the last of the cut
//! walk      ──────────────▶
//! aside                       14-0                an entry was deleted
//! ```
//!
//! Invariant: a node whose ID is between the walk and the last of the cut, and that is not aside, is as it was at the cut. So
//! a copy of the stream can go on in its place.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dunlin_structures::Listpack;

use super::VISIT_COST_BYTES;
use crate::{
    snapshot::SnapshotQueue,
    value::stream::{StreamId, StreamLog},
};

/// A copy, as the stream and the snapshot share it.
pub(crate) type SharedNodeCopy = Arc<Mutex<NodeCopy>>;

/// A stream's copies. A copy of the stream has none.
#[derive(Debug, Default)]
pub(in crate::value) struct NodeCopies(Mutex<Vec<SharedNodeCopy>>);

/// A snapshot's state of a stream; see the module's head.
#[derive(Debug)]
pub(crate) struct NodeCopy {
    /// The ID from which on the walk goes on; `None` at the end of all IDs.
    next: Option<StreamId>,
    /// The largest ID that a node of the cut may have.
    last: StreamId,
    /// Nodes that were set aside and not fetched.
    aside: BTreeMap<StreamId, Listpack>,
    aside_bytes: usize,
    /// Nodes of the cut that are still to be copied.
    left: usize,
    /// `None` once the snapshot has ended: the stream may keep this for long.
    snapshot_queue: Option<Arc<SnapshotQueue>>,
}

/// The lock of a copy.
pub(crate) fn lock_nodes(copy: &SharedNodeCopy) -> MutexGuard<'_, NodeCopy> {
    copy.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NodeCopy {
    /// Nodes of the cut that are still to be copied.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Whether a node is of the cut and still to come, or aside.
    fn awaits(&self, id: StreamId) -> bool {
        self.next.is_some_and(|next| next <= id) && id <= self.last
    }

    /// Sets a node aside, unless that was done, or is not needed.
    fn set_aside(&mut self, id: StreamId, entries: impl FnOnce() -> Listpack) {
        let Some(snapshot_queue) = self.snapshot_queue.as_ref().filter(|_| self.awaits(id)) else { return };
        if let Entry::Vacant(place) = self.aside.entry(id) {
            let bytes = place.insert(entries()).capacity();
            self.aside_bytes += bytes;
            snapshot_queue.hold(bytes);
        }
    }

    /// Goes on for about `budget` bytes, which it lowers: nodes, and whether they are the last.
    pub(super) fn next_piece(
        &mut self,
        log: Option<&StreamLog>,
        budget: &mut usize,
    ) -> (Vec<(StreamId, Listpack)>, bool) {
        let (mut nodes, mut fetched_bytes) = (Vec::new(), 0);
        let mut there =
            log.zip(self.next).into_iter().flat_map(|(log, next)| log.listpacks_from(next)).peekable();
        while *budget > 0 {
            let first = there.peek().map(|(id, _)| *id).filter(|id| *id <= self.last);
            let aside = self.aside.first_key_value().map(|(id, _)| *id);
            let Some(id) = first.into_iter().chain(aside).min() else { break };
            let entries = match self.aside.remove(&id) {
                Some(entries) => {
                    fetched_bytes += entries.capacity();
                    entries
                }
                None => {
                    let (_, entries) = there.peek().expect("what is not aside is there");
                    *budget = budget.saturating_sub(entries.capacity());
                    Listpack::clone(entries)
                }
            };
            there.next_if(|(there, _)| *there == id);
            *budget = budget.saturating_sub(VISIT_COST_BYTES);
            nodes.push((id, entries));
            self.left = self.left.wrapping_sub(1);
            self.next = id.next();
        }
        let is_last = there.peek().is_none_or(|(id, _)| *id > self.last) && self.aside.is_empty();
        self.let_go(fetched_bytes);
        (nodes, is_last)
    }

    /// Notes that the snapshot has ended.
    pub(super) fn end(&mut self) {
        self.aside.clear();
        self.let_go(self.aside_bytes);
        self.snapshot_queue = None;
    }

    /// Notes that `bytes` bytes have left the nodes set aside.
    fn let_go(&mut self, bytes: usize) {
        self.aside_bytes -= bytes;
        if let Some(snapshot_queue) = &self.snapshot_queue {
            snapshot_queue.let_go(bytes);
        }
    }
}

impl Clone for NodeCopies {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl NodeCopies {
    fn shared(&self) -> MutexGuard<'_, Vec<SharedNodeCopy>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The copies, without the lock.
    #[inline]
    fn own(&mut self) -> &mut Vec<SharedNodeCopy> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(in crate::value) fn are_none(&mut self) -> bool {
        self.own().is_empty()
    }

    /// Begins, with a number of nodes of which `last` is the last.
    pub(in crate::value) fn begin(
        &self,
        nodes: usize,
        last: StreamId,
        snapshot_queue: &Arc<SnapshotQueue>,
    ) -> SharedNodeCopy {
        let copy = Arc::new(Mutex::new(NodeCopy {
            next: Some(StreamId::MIN),
            last,
            aside: BTreeMap::new(),
            aside_bytes: 0,
            left: nodes,
            snapshot_queue: Some(Arc::clone(snapshot_queue)),
        }));
        let mut all = self.shared();
        all.retain(|copy| lock_nodes(copy).snapshot_queue.is_some());
        all.push(Arc::clone(&copy));
        copy
    }

    /// Makes the copies of the stream that this is copied from go on with this.
    pub(in crate::value) fn carry(&self, from: &Self) {
        let carried = from.shared().clone();
        *self.shared() = carried;
    }

    /// Works on those that a snapshot still fetches from.
    #[inline]
    fn for_each(&mut self, work: impl FnMut(&mut NodeCopy)) {
        if !self.are_none() {
            self.for_each_awaited(work);
        }
    }

    #[cold]
    #[inline(never)]
    fn for_each_awaited(&mut self, mut work: impl FnMut(&mut NodeCopy)) {
        self.own().retain(|copy| {
            let mut copy = lock_nodes(copy);
            let is_awaited = copy.snapshot_queue.is_some();
            if is_awaited {
                work(&mut copy);
            }
            is_awaited
        });
    }

    /// A node is about to change.
    #[inline]
    pub(in crate::value) fn preserve(&mut self, id: StreamId, entries: &Listpack) {
        self.for_each(|copy| copy.set_aside(id, || entries.clone()));
    }

    /// A node was taken out; it comes back unless a snapshot has it now.
    pub(in crate::value) fn keep_taken(&mut self, id: StreamId, entries: Listpack) -> Option<Listpack> {
        let mut others = self.own().len();
        let mut entries = Some(entries);
        self.for_each(|copy| {
            others -= 1;
            // Most have only one copy, which need not copy a node that no other has.
            let mut taken = || if others == 0 { entries.take() } else { entries.clone() };
            copy.set_aside(id, || taken().expect("only the last copy takes a node away"));
        });
        entries
    }

    /// Nodes to come have IDs behind this one; those of the cut behind it were set aside.
    pub(in crate::value) fn note_last_id(&mut self, last_id: StreamId) {
        self.for_each(|copy| copy.last = copy.last.min(last_id));
    }
}
