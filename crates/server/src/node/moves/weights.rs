//! Which slots of a primary are heavy, for the planner: a walk over the keyspace in short turns, whenever the data set has changed
//! much or slots have changed hands.

use std::time::{Duration, Instant};

use dunlin_cluster::{ShardId, meta::Revision};
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
    /// The revision of the record of slots when it began.
    slots: Revision,
    took: Duration,
}

/// The walk before.
pub(super) struct Weighed {
    slots: Revision,
    used_bytes: u64,
    took: Duration,
    at: Instant,
}

impl Manager {
    /// Goes on with a walk, or begins one where that is due.
    pub(super) fn weigh(&mut self, view: &View, mine: ShardId, leads: bool) {
        let slots = view.slots.as_ref().map_or(0, |(revision, _)| *revision);
        let used_bytes = self.shared.engine.keyspace.used_bytes() as u64;
        let is_due = self.weighed.as_ref().is_none_or(|before| {
            let changed = used_bytes.abs_diff(before.used_bytes);
            let is_much = changed > CHANGED_BYTES_MIN.max(used_bytes / 50);
            before.slots != slots || is_much && before.at.elapsed() > before.took * TIME_PART
        });
        if !leads || self.removal.is_some() {
            self.weighing = None;
            return;
        }
        // Slots that change hands meanwhile are weighed next time.
        let Some(mut weighing) = self.weighing.take().or_else(|| is_due.then(|| Weighing::begin(slots)))
        else {
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
        let own = view.slots.as_ref().map(|(_, record)| record.slots.slots_of(mine)).unwrap_or_default();
        let total: u64 = weighing.weights.iter().sum();
        let heavy_min = HEAVY_BYTES_MIN.max(total / HEAVY_PART);
        let weight = |slot: u16| weighing.weights[usize::from(slot)];
        let mut heavy: Vec<(u16, u64)> =
            own.iter().map(|slot| (slot, weight(slot))).filter(|(_, bytes)| *bytes > heavy_min).collect();
        heavy.sort_unstable_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        heavy.truncate(HEAVY_SLOTS_MAX);
        heavy.sort_unstable();
        self.shared.cluster.moves.set_heavy(HeavySlots { heavy, slots: weighing.slots });
        let (slots, took) = (weighing.slots, weighing.took);
        tracing::debug!("Cluster: slots are weighed, in {} ms of this thread's time", took.as_millis());
        self.weighed = Some(Weighed { slots, used_bytes, took, at: Instant::now() });
    }
}

impl Weighing {
    fn begin(slots: Revision) -> Self {
        let weights = vec![0; usize::from(dunlin_cluster::SLOTS)].into_boxed_slice();
        let weights = weights.try_into().expect("it has that length");
        Self { walk: SlotWalk::default(), weights, slots, took: Duration::ZERO }
    }
}
