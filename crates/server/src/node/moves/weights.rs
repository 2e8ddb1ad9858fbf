//! Which slots of a primary are heavy, for the planner: a walk over the keyspace in short turns, whenever the data set has changed
//! much or slots have changed hands.

use std::time::{Duration, Instant};

use dunlin_cluster::{ShardId, SlotSet, meta::Revision};
use dunlin_engine::{SlotWalk, SlotWeights};

use super::manager::{Manager, TURN};
use crate::cluster::{moves::HeavySlots, view::View};

/// Between two turns of a walk.
pub(super) const WEIGHING_PAUSE: Duration = Duration::from_millis(20);
/// Bytes from which on a slot can be heavy, and its part of all bytes.
const HEAVY_BYTES_MIN: u64 = 1 << 20;
const HEAVY_PART: u64 = 200;
/// Heavy slots that are reported at most.
const HEAVY_SLOTS_MAX: usize = 64;
/// Changes of the data set below this are no reason to weigh anew.
const CHANGED_BYTES_MIN: u64 = 16 << 20;
/// Data sets that change all the time are weighed for a hundredth of it at most.
const TIME_PART: u32 = 100;

/// A walk under way.
pub(super) struct Weighing {
    walk: SlotWalk,
    weights: Box<SlotWeights>,
    /// The record of slots when it began, and the slots that the shard had by it.
    slots: Revision,
    own: SlotSet,
    took: Duration,
}

/// The walk before.
pub(super) struct Weighed {
    /// The newest record of slots for which it holds.
    slots: Revision,
    own: SlotSet,
    used_bytes: u64,
    took: Duration,
    at: Instant,
}

impl Weighed {
    /// Whether another walk is due. Of a record that leaves the shard its slots, as that of a move that begins or fails, only a
    /// data set that has changed much is a reason.
    fn is_outdated(&self, slots: Revision, own: &SlotSet, used_bytes: u64) -> bool {
        let changed = used_bytes.abs_diff(self.used_bytes);
        let is_much = changed > CHANGED_BYTES_MIN.max(used_bytes / 50);
        self.own != *own || is_much && (self.slots != slots || self.at.elapsed() > self.took * TIME_PART)
    }
}

impl Manager {
    /// Goes on with a walk, or begins one if that is due.
    pub(super) fn weigh(&mut self, view: &View, mine: ShardId, leads: bool) {
        let slots = view.slots.as_ref().map_or(0, |(revision, _)| *revision);
        let used_bytes = self.shared.engine.keyspace.used_bytes() as u64;
        let own = view.slots.as_ref().map(|(_, record)| record.slots.slots_of(mine)).unwrap_or_default();
        let is_due = self.weighed.as_ref().is_none_or(|before| before.is_outdated(slots, &own, used_bytes));
        if !leads || self.removal.is_some() {
            self.weighing = None;
            return;
        }
        // Slots that change hands meanwhile are weighed next time.
        let begin = || is_due.then(|| Weighing::begin(slots, own.clone()));
        let Some(mut weighing) = self.weighing.take().or_else(begin) else {
            self.confirm(slots);
            return;
        };
        let begun = Instant::now();
        let mut is_over = false;
        while !is_over && begun.elapsed() < TURN {
            let keyspace = &self.shared.engine.keyspace;
            let Some(_inside) = keyspace.enter_unless_long(self.shared.mover()) else { break };
            is_over = self.shared.engine.weigh_slots(&mut weighing.walk, &mut weighing.weights);
        }
        weighing.took += begun.elapsed();
        if !is_over {
            self.weighing = Some(weighing);
            return;
        }
        let total: u64 = weighing.weights.iter().sum();
        let heavy_min = HEAVY_BYTES_MIN.max(total / HEAVY_PART);
        let weight = |slot: u16| weighing.weights[usize::from(slot)];
        let mut heavy: Vec<(u16, u64)> =
            own.iter().map(|slot| (slot, weight(slot))).filter(|(_, bytes)| *bytes > heavy_min).collect();
        heavy.sort_unstable_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        heavy.truncate(HEAVY_SLOTS_MAX);
        heavy.sort_unstable();
        self.shared.cluster.moves.set_heavy(HeavySlots { heavy, slots: weighing.slots });
        let Weighing { slots, own, took, .. } = weighing;
        tracing::debug!("Cluster: slots are weighed, in {} ms of this thread's time", took.as_millis());
        self.weighed = Some(Weighed { slots, own, used_bytes, took, at: Instant::now() });
    }

    /// The last weights hold under this record, too.
    fn confirm(&mut self, slots: Revision) {
        if let Some(before) = self.weighed.as_mut().filter(|before| before.slots != slots) {
            before.slots = slots;
            let HeavySlots { heavy, .. } = self.shared.cluster.moves.heavy();
            self.shared.cluster.moves.set_heavy(HeavySlots { heavy, slots });
        }
    }
}

impl Weighing {
    fn begin(slots: Revision, own: SlotSet) -> Self {
        let weights = vec![0; usize::from(dunlin_cluster::SLOTS)].into_boxed_slice();
        let weights = weights.try_into().expect("it has that length");
        Self { walk: SlotWalk::default(), weights, slots, own, took: Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_hold_while_a_shard_keeps_its_slots_and_its_data() {
        let set = |last: u16| (0..=last).collect::<SlotSet>();
        let (mega, now) = (1 << 20, Instant::now());
        let took = Duration::from_secs(60);
        let weighed = Weighed { slots: 5, own: set(9), used_bytes: 100 * mega, took, at: now };
        for (slots, last, used_bytes, is_outdated) in [
            (5, 9, 100 * mega, false),
            // A move has begun, or has failed.
            (6, 9, 100 * mega, false),
            (6, 9, 110 * mega, false),
            (6, 8, 100 * mega, true),
            // Data that change all the time are weighed anew for another record, or later.
            (5, 9, 150 * mega, false),
            (6, 9, 150 * mega, true),
        ] {
            let is_due = weighed.is_outdated(slots, &set(last), used_bytes);
            assert_eq!(is_due, is_outdated, "{slots} {last} {used_bytes}");
        }
    }
}
