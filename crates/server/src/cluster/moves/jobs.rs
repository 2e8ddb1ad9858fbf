//! The list of moves for operators: `CLUSTER GETSLOTMIGRATIONS`.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use dunlin_cluster::{MoveId, NodeId, SlotSet};

use super::{Requested, View};
use crate::system::host;

/// Moves that have ended and are kept in the list.
const ENDED_MAX: usize = 32;

/// How far a move is. The words are those of Valkey, as far as there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobState {
    /// The source reaches the target.
    Connecting,
    /// The source sends the snapshot.
    Snapshotting,
    /// The source sends what has changed since.
    Replicating,
    /// Commands wait; the slots are being given away.
    Paused,
    /// The slots are the target's.
    Success,
    /// The slots stay, without anybody's wish.
    Failed,
    /// The slots stay.
    Cancelled,
}

impl JobState {
    /// The word in `CLUSTER GETSLOTMIGRATIONS`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Snapshotting => "snapshotting",
            Self::Replicating => "replicating",
            Self::Paused => "failover-paused",
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether it has ended.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Success | Self::Failed | Self::Cancelled)
    }
}

/// A move of this node.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) id: MoveId,
    pub(crate) is_export: bool,
    pub(crate) slots: SlotSet,
    pub(crate) source: Option<NodeId>,
    pub(crate) target: Option<NodeId>,
    /// Unix time in seconds.
    pub(crate) created_s: u64,
    /// Of the last change of state.
    pub(crate) updated_s: u64,
    /// Of the last word of the other side.
    pub(crate) heard_s: u64,
    pub(crate) state: JobState,
    /// Why it has ended.
    pub(crate) message: String,
    /// Bytes that were sent, and that the target has committed.
    pub(crate) sent: u64,
    pub(crate) held: u64,
}

/// The list, newest first.
#[derive(Debug, Default)]
pub(crate) struct Jobs(Mutex<VecDeque<Job>>);

fn now_s() -> u64 {
    (host::unix_us() / 1_000_000) as u64
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Job>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn list(&self) -> Vec<Job> {
        self.lock().iter().cloned().collect()
    }

    fn add(
        &self,
        id: MoveId,
        is_export: bool,
        slots: SlotSet,
        source: Option<NodeId>,
        target: Option<NodeId>,
    ) {
        let mut jobs = self.lock();
        if jobs.iter().any(|job| job.id == id && job.is_export == is_export) {
            return;
        }
        let now_s = now_s();
        jobs.push_front(Job {
            id,
            is_export,
            slots,
            source,
            target,
            created_s: now_s,
            updated_s: now_s,
            heard_s: now_s,
            state: JobState::Connecting,
            message: String::new(),
            sent: 0,
            held: 0,
        });
        let ended = jobs.iter().filter(|job| job.state.is_over()).count();
        if ended > ENDED_MAX
            && let Some(at) = jobs.iter().rposition(|job| job.state.is_over())
        {
            jobs.remove(at);
        }
    }

    /// An operator has asked for it.
    pub(crate) fn request(&self, one: &Requested, me: NodeId) {
        self.add(one.id, true, one.slots.clone(), Some(me), Some(one.target));
    }

    /// A move of the record begins at its source or its target.
    fn begin(&self, id: MoveId, is_export: bool, view: Option<&View>) {
        let Some((view, one)) = view.and_then(|view| Some((view, view.moves().find(|one| one.id == id)?)))
        else {
            return;
        };
        let primary = |shard| view.shards.get(shard).map(|(_, shard)| shard.primary);
        self.add(id, is_export, one.slots.clone(), primary(&one.from), primary(&one.to));
    }

    pub(crate) fn begin_import(&self, id: MoveId, view: Option<&View>) {
        self.begin(id, false, view);
    }

    pub(crate) fn begin_export(&self, id: MoveId, view: &View) {
        self.begin(id, true, Some(view));
    }

    /// Notes how far a move is.
    pub(crate) fn note(&self, id: MoveId, is_export: bool, change: impl FnOnce(&mut Job)) {
        let mut jobs = self.lock();
        let Some(job) = jobs.iter_mut().find(|job| job.id == id && job.is_export == is_export) else {
            return;
        };
        let before = job.state;
        if !before.is_over() {
            change(job);
            if job.state != before {
                job.updated_s = now_s();
            }
        }
    }

    /// Notes that the other side has said something.
    pub(crate) fn hear(&self, id: MoveId, sent: u64, held: u64) {
        self.note(id, true, |job| (job.heard_s, job.sent, job.held) = (now_s(), sent, held));
    }

    /// Ends the imports of which the record says what has become.
    pub(crate) fn settle_imports(&self, view: &View, is_mine: impl Fn(u16) -> bool) {
        let mut jobs = self.lock();
        for job in jobs.iter_mut().filter(|job| !job.is_export && !job.state.is_over()) {
            if view.moves().any(|one| one.id == job.id) {
                continue;
            }
            let has_come = job.slots.iter().next().is_some_and(&is_mine);
            job.state = if has_come { JobState::Success } else { JobState::Failed };
            if !has_come {
                job.message = "the move has ended, and what came of it is removed".to_owned();
            }
            job.updated_s = now_s();
        }
    }
}
