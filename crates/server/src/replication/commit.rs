//! How far replicas have the log: what replies wait for that are to survive the primary.
//!
//! ```text
//! REPLCONF ACK ─▶ worker: offsets of all replicas that follow, the n-th greatest ─▶ committed(n) ─▶ workers that wait
//! ```
//!
//! Invariant: a committed offset never goes back. A replica that has gone had what it has acknowledged.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicU64, AtomicUsize,
        Ordering::{Acquire, SeqCst},
    },
};

use dunlin_replication::Phase;

use super::{ReplicaClient, Replication};
use crate::{
    config::{self, Config, SyncReplicasAck},
    durability::Durability,
    workers::WorkerMessage,
};

/// Replicas that a reply can wait for, at most.
const SYNC_REPLICAS_MAX: usize = config::SYNC_REPLICAS_MAX as usize;

/// The state.
#[derive(Debug)]
pub(super) struct Commits {
    /// By number of replicas less one, the ring's offset that at least that many have.
    committed: [AtomicU64; SYNC_REPLICAS_MAX],
    /// The ring's offset that the members of the in-sync set have, in a cluster.
    shard: AtomicU64,
    /// Replicas that follow the stream.
    online: AtomicUsize,
    /// By worker, whether it is to be woken by the next acknowledgement.
    awaited: Box<[AtomicBool]>,
}

impl Commits {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            committed: Default::default(),
            shard: AtomicU64::new(0),
            online: AtomicUsize::new(0),
            awaited: (0..workers).map(|_| AtomicBool::new(false)).collect(),
        }
    }
}

/// The ring's offset at one of replication; 0 for what is before the log's beginning. The base wraps if a copy of a
/// primary was shorter than the log before.
pub(super) fn ring_mark(offset: u64, base: u64) -> u64 {
    (offset.wrapping_sub(base) as i64).max(0) as u64
}

impl Replication {
    /// Returns the ring's offset up to which `replicas` replicas have the log.
    #[inline]
    pub(crate) fn committed(&self, replicas: u8) -> u64 {
        self.commits.committed[usize::from(replicas).clamp(1, SYNC_REPLICAS_MAX) - 1].load(SeqCst)
    }

    /// Replicas that follow the stream.
    #[inline]
    pub(crate) fn online(&self) -> usize {
        self.commits.online.load(SeqCst)
    }

    /// Registers a worker to be woken by the next acknowledgement, which replicas are asked for. The caller looks once
    /// more afterwards.
    pub(crate) fn await_commit(&self, worker: usize) {
        self.commits.awaited[worker].store(true, SeqCst);
        if !self.feed.acks_wanted.swap(true, SeqCst) {
            self.feed.wake();
        }
    }

    /// The ring's offset up to which the shard has committed.
    #[inline]
    pub(crate) fn shard_committed(&self) -> u64 {
        self.commits.shard.load(SeqCst)
    }

    /// Registers a worker to be woken when the shard has committed more. The caller looks once more afterwards.
    pub(crate) fn await_shard_commit(&self, worker: usize) {
        self.commits.awaited[worker].store(true, SeqCst);
    }

    /// The shard has committed its stream up to an offset of replication. This may be an earlier one than before, if
    /// an operator has let a node take the shard that lacks something.
    pub(crate) fn note_shard_commit(&self, durability: &Durability, offset: u64) {
        let mark = ring_mark(offset, self.base.load(Acquire)).min(durability.tail());
        if self.commits.shard.swap(mark, SeqCst) < mark {
            self.wake_awaiting(durability);
        }
    }

    /// The data set is another one: nothing of it is known to be committed.
    pub(super) fn forget_shard_commit(&self) {
        self.commits.shard.store(0, SeqCst);
    }

    fn wake_awaiting(&self, durability: &Durability) {
        let Some(queues) = durability.queues() else { return };
        for (worker, is_awaited) in self.commits.awaited.iter().enumerate() {
            if is_awaited.swap(false, SeqCst) {
                queues.send_to_service(worker, WorkerMessage::Durable);
            }
        }
    }

    /// Looks again how far replicas are. O(replicas).
    pub(crate) fn note_commits(&self, durability: &Durability, config: &Config) {
        let replicas = self.replicas();
        let follows =
            |replica: &&Arc<ReplicaClient>| !replica.is_gone() && replica.peer().phase() == Phase::Online;
        let confirmed = |replica: &Arc<ReplicaClient>| {
            let peer = replica.peer();
            match config.sync_replicas_ack {
                SyncReplicasAck::Memory => peer.acked,
                SyncReplicasAck::Disk => peer.fsynced,
            }
        };
        let mut offsets: Vec<u64> = replicas.iter().filter(follows).map(confirmed).collect();
        // Replies that now wait for more replicas than there are may be refused.
        let is_fewer = self.commits.online.swap(offsets.len(), SeqCst) > offsets.len();
        offsets.sort_unstable_by(|one, other| other.cmp(one));
        let end = self.offset(durability.tail());
        let base = self.base.load(Acquire);
        let mut has_changed = is_fewer;
        // Uncommitted writes of a demoted server are lost, whatever replicas of its own acknowledge from now on.
        let is_primary = !self.is_replica();
        let offsets = offsets.into_iter().take_while(|_| is_primary);
        for (committed, offset) in self.commits.committed.iter().zip(offsets) {
            // Clamps to the log's end. Every replica has what precedes the log's start.
            let mark = ring_mark(offset.min(end), base);
            has_changed |= committed.fetch_max(mark, SeqCst) < mark;
        }
        if has_changed {
            self.wake_awaiting(durability);
        }
    }

    /// Wakes workers whose clients wait for replicas: the server has ceased to be a primary.
    pub(crate) fn end_commits(&self, durability: &Durability) {
        let Some(queues) = durability.queues() else { return };
        (0..self.commits.awaited.len())
            .for_each(|worker| queues.send_to_service(worker, WorkerMessage::Durable));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_right_behind_a_copy_that_is_shorter_than_the_log() {
        // The ring stands at 250 when a copy of 200 bytes of history is loaded.
        let base = 200u64.wrapping_sub(250);
        assert_eq!((ring_mark(200, base), ring_mark(210, base)), (250, 260));
        assert_eq!((ring_mark(100, 40), ring_mark(30, 40)), (60, 0));
    }
}
