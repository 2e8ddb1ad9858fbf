//! Hints of the node for the planner and for operators, and what etcd says of itself.

use std::{sync::Arc, time::Instant};

use dunlin_cluster::{
    meta::{MetaError, Transaction, TransactionOutcome},
    records::{AliveRecord, Key, ProgressRecord, Record},
};

use super::{Agent, MOVES_REPORT_PAUSE, NO_ROOM, REPORT_PAUSE, REPORTED_BYTES_MIN, REVISION_MAX, ROOM_PAUSE};
use crate::cluster::{moves::HeavySlots, view::View};

impl Agent {
    /// Reports how much data there is, if the planner should know: it has changed much, or slots have changed hands.
    pub(super) fn report(&mut self, view: &View) {
        let (me, used_bytes) = (self.member.identity.node, self.shared.engine.keyspace.used_bytes() as u64);
        let (Some((revision, alive)), Some(lease)) = (view.alive.get(&me), self.lease) else { return };
        let HeavySlots { heavy, slots: weighed } = self.shared.cluster.moves.heavy();
        let has_changed = used_bytes.abs_diff(alive.used_bytes) > REPORTED_BYTES_MIN.max(used_bytes / 50)
            || has_shifted(&heavy, &alive.heavy);
        let slots_changed = view.slots.as_ref().is_some_and(|(slots, _)| slots > revision);
        // The planner goes on when all loads are newer than the record of slots. A load is reported when it is that of
        // the slots that the shard has now, and it is known which of them are heavy.
        let is_ready = || {
            let leads = self.shared.cluster.lease.term() != 0;
            let is_weighed = view.slots.as_ref().is_none_or(|(slots, _)| weighed == *slots);
            (is_weighed || !leads) && self.shared.cluster.moves.is_settled(&self.shared.engine.keyspace)
        };
        let is_due = match slots_changed {
            true => is_ready(),
            false => has_changed && self.reported.elapsed() >= REPORT_PAUSE,
        };
        if !is_due || alive.boot != self.boot {
            return;
        }
        self.reported = Instant::now();
        let key = self.member.keys.text(Key::Alive(me));
        let alive = AliveRecord { boot: self.boot, used_bytes, heavy }.encode();
        // A hint: one that is lost is given again.
        self.member
            .meta
            .commit(&Transaction::default().compare(key.clone(), *revision).put_leased(key, alive, lease));
    }

    /// Says how far the moves from this node are, and why some have failed, for operators at any node.
    pub(super) fn report_moves(&mut self, view: &View) {
        let me = self.member.identity.node;
        let jobs = &self.shared.cluster.moves.jobs;
        let now = ProgressRecord { moves: jobs.progress(), failed: jobs.failures() };
        let (revision, before) = view.progress.get(&me).cloned().unwrap_or_default();
        let is_due = now.moves.len() != before.moves.len() || self.told.elapsed() >= MOVES_REPORT_PAUSE;
        let Some(lease) = self.lease.filter(|_| is_due && now != before) else { return };
        self.told = Instant::now();
        let key = self.member.keys.text(Key::Progress(me));
        let transaction = Transaction::default().compare(key.clone(), revision);
        let transaction = match now == ProgressRecord::default() {
            true => transaction.delete(key),
            false => transaction.put_leased(key, now.encode(), lease),
        };
        // For eyes: a word that is lost is followed by the next one.
        self.member.meta.commit(&transaction);
    }

    /// Looks whether etcd makes changes, by one whose comparison never holds: etcd without space refuses it before it compares, and
    /// answers reads as ever.
    pub(super) fn look_for_room(&mut self) {
        if self.asked_room.is_some_and(|asked| asked.elapsed() < ROOM_PAUSE) {
            return;
        }
        self.asked_room = Some(Instant::now());
        let key = self.member.keys.text(Key::Alive(self.member.identity.node));
        let never = Transaction::default().compare(key.clone(), REVISION_MAX).put(key, Vec::new());
        let refuses = &self.shared.cluster.refuses;
        match self.member.meta.commit(&never) {
            TransactionOutcome::Done(_) | TransactionOutcome::Refused(_) => {
                if refuses.swap(None).is_some() {
                    tracing::info!("Cluster: etcd makes changes again");
                }
            }
            TransactionOutcome::Unknown(why) | TransactionOutcome::Failed(MetaError::Refused(why))
                if why.contains(NO_ROOM) =>
            {
                if refuses.swap(Some(Arc::new(why.clone()))).is_none() {
                    tracing::warn!(
                        "Cluster: etcd refuses changes: {why}. What was served before is served on, and no replica can take over"
                    );
                }
            }
            // The store does not answer, which the next read says, too.
            TransactionOutcome::Unknown(_) | TransactionOutcome::Failed(_) => {}
        }
    }
}

/// Whether heavy slots have come or gone, or one weighs a tenth more or less.
fn has_shifted(now: &[(u16, u64)], before: &[(u16, u64)]) -> bool {
    let is_close =
        |one: &(u16, u64), other: &(u16, u64)| one.0 == other.0 && one.1.abs_diff(other.1) <= other.1 / 10;
    now.len() != before.len() || now.iter().zip(before).any(|(one, other)| !is_close(one, other))
}
