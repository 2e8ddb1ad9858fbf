//! The list of moves for operators: `CLUSTER GETSLOTMIGRATIONS`.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use dunlin_cluster::{
    MoveId, NodeId, SlotSet,
    records::{MoveFailure, MoveProgress},
};

use super::{Requested, View};
use crate::system::host;

/// Moves that have ended and are kept in the list.
const ENDED_MAX: usize = 32;
/// How long a failure is of interest: for some of the longest pauses between two attempts.
const FAILURE_SHOWN: Duration = Duration::from_secs(300);

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
    /// The slots stay; no operator ended the move.
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
    /// Unix time of the last change of state.
    pub(crate) updated_s: u64,
    /// The moment of that change by the monotonic clock.
    updated_at: Instant,
    /// Unix time of the last word of the other side.
    pub(crate) heard_s: u64,
    pub(crate) state: JobState,
    /// Why it has ended.
    pub(crate) message: String,
    /// Bytes that were sent, and that the target has committed.
    pub(crate) sent: u64,
    pub(crate) held: u64,
    /// Thousandths of the source's keyspace that were looked through for keys of the slots.
    pub(crate) walked: u16,
    /// Why it waits, as "for …"; empty if it does not.
    pub(crate) waits: String,
}

impl Job {
    /// How far it is, for its record.
    fn progress(&self) -> MoveProgress {
        MoveProgress {
            id: self.id,
            state: self.state.name().to_owned(),
            walked: self.walked,
            sent_bytes: self.sent,
            behind_bytes: self.sent.saturating_sub(self.held),
            waits: self.waits.clone(),
        }
    }
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

    /// How far the moves from this node are.
    pub(crate) fn progress(&self) -> Vec<MoveProgress> {
        let jobs = self.lock();
        jobs.iter().filter(|job| job.is_export && !job.state.is_over()).map(Job::progress).collect()
    }

    /// The last move from this node to each target that has ended, if it has failed lately.
    pub(crate) fn failures(&self) -> Vec<MoveFailure> {
        let jobs = self.lock();
        let is_end = |job: &&Job| job.is_export && matches!(job.state, JobState::Success | JobState::Failed);
        let mut seen = BTreeSet::new();
        let last = jobs.iter().filter(is_end).filter_map(|job| Some((job.target?, job)));
        let last = last.filter(|(to, _)| seen.insert(*to)).collect::<Vec<_>>();
        let is_shown = |job: &Job| job.state == JobState::Failed && job.updated_at.elapsed() <= FAILURE_SHOWN;
        let failed = last.into_iter().filter(|(_, job)| is_shown(job));
        failed.map(|(to, job)| MoveFailure { to, why: job.message.clone() }).collect()
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
            updated_at: Instant::now(),
            heard_s: now_s,
            state: JobState::Connecting,
            message: String::new(),
            sent: 0,
            held: 0,
            walked: 0,
            waits: String::new(),
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
                (job.updated_s, job.updated_at) = (now_s(), Instant::now());
                job.waits.clear();
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
            (job.updated_s, job.updated_at) = (now_s(), Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::view::tests::node_id;

    #[test]
    fn jobs_name_the_last_failure_of_each_target() {
        let jobs = Jobs::default();
        let add = |number: u8, to: u8, end: Option<JobState>| {
            let id = MoveId::from_bytes([number; 20]);
            jobs.add(id, true, SlotSet::all(), Some(node_id(1)), Some(node_id(to)));
            if let Some(state) = end {
                jobs.note(id, true, |job| (job.state, job.message) = (state, format!("reason {number}")));
            }
        };
        let failures = || jobs.failures().into_iter().map(|one| (one.to, one.why)).collect::<Vec<_>>();
        add(1, 2, Some(JobState::Failed));
        add(2, 2, Some(JobState::Failed));
        add(3, 3, Some(JobState::Failed));
        // The next attempt, and one that an operator ended, say nothing.
        add(4, 2, None);
        add(5, 3, Some(JobState::Cancelled));
        let expected = [(node_id(3), "reason 3".to_owned()), (node_id(2), "reason 2".to_owned())];
        assert_eq!(failures(), expected);
        add(6, 3, Some(JobState::Success));
        assert_eq!(failures(), expected[1..]);
        jobs.lock().iter_mut().for_each(|job| job.updated_at -= FAILURE_SHOWN + Duration::from_secs(1));
        assert_eq!(failures(), []);
    }
}
