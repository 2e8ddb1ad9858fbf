//! Which shard has which slots: shares by memory, and the moves that come closest to them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{Plan, Step};
use crate::{
    SLOTS, ShardId, SlotSet,
    records::{Move, SlotsRecord},
};

/// The weight of an empty slot, in bytes: without data, slots are spread by their number, and some megabytes of data move none.
pub(super) const SLOT_BYTES: u64 = 4096;

/// A shard's part of the balance. All amounts are bytes.
struct Part {
    shard: ShardId,
    /// Its slots that may be moved, but for the heavy ones, and their mean weight.
    slots: SlotSet,
    slot_bytes: u64,
    /// Its heavy slots that may be moved, and their weights.
    heavy: Vec<(u16, u64)>,
    /// Bytes of all its slots.
    load: u64,
    share: u64,
    /// How far from its share it may be.
    slack: u64,
}

impl Plan<'_> {
    pub(super) fn move_slots(&mut self) {
        let (revision, before) = &self.view.slots;
        let mut record = before.clone();
        self.end_void_moves(&mut record);
        let parts = self.parts(&record);
        self.assign_unowned(&mut record, &parts);
        if record.slots == before.slots {
            self.begin_moves(&mut record, &parts);
        }
        if record != *before {
            self.steps.push(Step::Slots { compare: *revision, record });
        }
    }

    /// A move whose shards have had a failover since is void: its target drops what it has, and the source keeps the slots. So is
    /// one whose source stays away, which would keep its target from moving anything: a proposal of the source that comes late
    /// compares the record that this changes.
    fn end_void_moves(&self, record: &mut SlotsRecord) {
        let epoch = |shard: &ShardId| self.view.shards.get(shard).map(|(_, record)| record.epoch);
        record.moving.retain(|one| {
            epoch(&one.from) == Some(one.from_epoch)
                && epoch(&one.to) == Some(one.to_epoch)
                && !self.view.stranded.contains(&one.id)
        });
    }

    /// Whether the shard's primary is there.
    fn is_served(&self, shard: ShardId) -> bool {
        self.view.shards.get(&shard).is_some_and(|(_, record)| self.is_up(record.primary))
    }

    /// The memory of a shard is that of its smallest node.
    fn weight(&self, shard: ShardId) -> u64 {
        let Some((_, record)) = self.view.shards.get(&shard) else { return 0 };
        let weights =
            record.in_sync.iter().filter_map(|node| self.view.nodes.get(node)).map(|node| node.record.weight);
        weights.min().unwrap_or(0).max(1)
    }

    /// The parts of the shards whose primaries are there. The loads of the others are unknown.
    fn parts(&self, record: &SlotsRecord) -> Vec<Part> {
        let served = self.view.shards.keys().filter(|shard| self.is_served(**shard));
        let mut slots: BTreeMap<ShardId, SlotSet> =
            served.map(|shard| (*shard, SlotSet::default())).collect();
        for run in record.slots.runs() {
            if let Some(slots) = slots.get_mut(&run.shard) {
                slots.insert(run.slots);
            }
        }
        // Each shard that is away may have as much too much as it is allowed. Without that, one that flaps would move slots.
        let away = (self.view.shards.len() - slots.len()) as u64;
        let tolerance = self.limits.tolerance * (1 + away);
        let load = |shard: &ShardId, slots: &SlotSet| {
            let bytes = self.view.bytes.get(shard).copied().unwrap_or(0);
            bytes + u64::from(slots.len()) * SLOT_BYTES
        };
        let total: u64 = slots.iter().map(|(shard, slots)| load(shard, slots)).sum();
        let weights: BTreeMap<ShardId, u64> = slots
            .keys()
            .map(|shard| (*shard, if self.leaving.contains(shard) { 0 } else { self.weight(*shard) }))
            .collect();
        let weight_sum: u128 = weights.values().map(|weight| u128::from(*weight)).sum::<u128>().max(1);
        let parts = slots.into_iter().map(|(shard, mut slots)| {
            let load = load(&shard, &slots);
            let is_mine = |slot: &(u16, u64)| slots.contains(slot.0);
            let mut heavy: Vec<(u16, u64)> =
                self.view.heavy.iter().map(|(slot, bytes)| (*slot, *bytes)).filter(is_mine).collect();
            slots.remove_all(&heavy.iter().map(|(slot, _)| *slot).collect());
            let light = load.saturating_sub(heavy.iter().map(|(_, bytes)| bytes).sum());
            let slot_bytes = (light / u64::from(slots.len().max(1))).max(1);
            // A shard that is to end gives all that it has.
            if !self.leaving.contains(&shard) {
                slots.remove_all(&record.pinned);
                heavy.retain(|(slot, _)| !record.pinned.contains(*slot));
            }
            let share = (u128::from(total) * u128::from(weights[&shard]) / weight_sum) as u64;
            Part { shard, slot_bytes, slots, heavy, load, share, slack: share / 100 * tolerance }
        });
        parts.collect()
    }

    /// Slots without an owner have no data, so that they need no move: they are spread by weight.
    fn assign_unowned(&mut self, record: &mut SlotsRecord, parts: &[Part]) {
        let free = record.slots.unowned();
        let takers: Vec<ShardId> =
            parts.iter().map(|part| part.shard).filter(|shard| !self.leaving.contains(shard)).collect();
        if free.is_empty() || takers.is_empty() {
            return;
        }
        // At the beginning, all shards that there will be should be there: otherwise slots that have just been assigned
        // would move.
        let weights: Vec<u128> = takers.iter().map(|shard| u128::from(self.weight(*shard))).collect();
        let sum: u128 = weights.iter().sum();
        let count = u128::from(free.len());
        let mut slots = free.iter();
        let (mut until, mut given) = (0u128, 0u128);
        for (shard, weight) in takers.iter().zip(weights) {
            until += weight;
            let upto = count * until / sum;
            let part: SlotSet = slots.by_ref().take((upto - given) as usize).collect();
            given = upto;
            record.slots.assign(&part, Some(*shard));
        }
    }

    /// Lets the shards furthest above their shares give to those furthest below.
    fn begin_moves(&mut self, record: &mut SlotsRecord, parts: &[Part]) {
        let mut busy: BTreeSet<ShardId> = record.moving.iter().flat_map(|one| [one.from, one.to]).collect();
        while record.moving.len() < self.limits.moves_max {
            let Some(one) = self.next_move(&busy, parts) else { return };
            busy.extend([one.from, one.to]);
            record.moving.push(one);
        }
    }

    fn next_move(&mut self, busy: &BTreeSet<ShardId>, parts: &[Part]) -> Option<Move> {
        let is_ready = |part: &&Part| !busy.contains(&part.shard) && !self.touched.contains(&part.shard);
        let gives = |part: &&Part| {
            let has_any = !part.slots.is_empty() || !part.heavy.is_empty();
            has_any && (part.load > part.share + part.slack || part.share == 0)
        };
        let mut givers: Vec<&Part> = parts.iter().filter(is_ready).filter(gives).collect();
        givers.sort_unstable_by_key(|part| Reverse((part.load - part.share, part.shard)));
        // The slots of some may be too heavy for any other.
        let (from, to, slots) = givers.into_iter().find_map(|from| {
            let to = parts
                .iter()
                .filter(is_ready)
                .filter(|part| part.shard != from.shard && part.share > 0)
                // A part that has its share is given more only by a shard that is to end.
                .filter(|part| part.load < part.share || from.share == 0)
                .filter(|part| !self.view.paused.contains(&(from.shard, part.shard)))
                .max_by_key(|part| (part.share.saturating_sub(part.load), part.shard))?;
            Some((from, to, self.slots_to_give(from, to)?))
        })?;
        let epoch = |shard: ShardId| self.view.shards.get(&shard).map_or(0, |(_, record)| record.epoch);
        let (from, to) = (from.shard, to.shard);
        let (from_epoch, to_epoch) = (epoch(from), epoch(to));
        let id = self.new_move();
        Some(Move { id, slots, from, to, from_epoch, to_epoch })
    }

    /// The slots of a shard that come closest to its surplus, and for which another shard has room. Light ones do as
    /// long as there are enough of them. A heavy one goes alone, and only if the larger of the two loads becomes
    /// smaller by more than the slack: otherwise it would go to and fro.
    fn slots_to_give(&self, from: &Part, to: &Part) -> Option<SlotSet> {
        let is_leaving = from.share == 0;
        let (excess, room) = (from.load - from.share, to.share.saturating_sub(to.load));
        let wanted = excess.min(room);
        let light = u64::from(from.slots.len());
        if light * from.slot_bytes < wanted || light == 0 {
            let beyond = to.load.saturating_sub(to.share);
            let fits = |(_, bytes): &&(u16, u64)| bytes + beyond + from.slack <= excess + room;
            let fitting = || from.heavy.iter().filter(fits);
            let largest = fitting().filter(|(_, bytes)| *bytes <= wanted).max_by_key(|(_, bytes)| *bytes);
            let smallest = fitting().min_by_key(|(_, bytes)| *bytes);
            let any = from.heavy.first().filter(|_| is_leaving && light == 0);
            if let Some((slot, _)) = largest.or(smallest).or(any) {
                return Some([*slot].into_iter().collect());
            }
        }
        // Less than a slot cannot be given.
        if excess <= from.slot_bytes && !is_leaving {
            return None;
        }
        let most = (self.limits.move_bytes_max / from.slot_bytes).clamp(1, u64::from(SLOTS));
        let count = match is_leaving {
            // Such a shard gives what it has, whether there is room or not.
            true if room < from.slot_bytes => (excess / from.slot_bytes).clamp(1, 64),
            _ => (wanted / from.slot_bytes).max(1),
        };
        let count = count.min(most).min(light);
        (count > 0).then(|| last_slots(&from.slots, count as u16))
    }
}

/// Returns the last slots of a set: whole runs as far as possible, which keeps the map short.
fn last_slots(slots: &SlotSet, count: u16) -> SlotSet {
    let skipped = slots.len() - count;
    let mut last = slots.clone();
    let first: SlotSet = slots.iter().take(skipped.into()).collect();
    last.remove_all(&first);
    last
}
