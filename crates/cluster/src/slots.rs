//! Slots, sets of them, and the map of slots to shards.
//!
//! A key's slot is CRC16 of its hashed part, modulo 16,384. Ownership comes in long runs, so that sets and maps are lists of
//! runs: a cluster of 1,000 shards has some thousand of them, and a balanced one of three has three.
//!
//! ```text
//! SlotSet   0-99, 200, 300-16383
//! SlotMap   0-5460 → A   5461-10922 → B   10923-16383 → C
//! ```
//!
//! Invariants of both: runs ascend, do not overlap, and are as long as can be (neighbours that could be one run are one).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::ShardId;

/// The number of slots.
pub const SLOTS: u16 = 16_384;
/// Bytes of the longest text that can be a set of slots: 8,192 runs that do not touch, as `16000,16002,…`.
const SET_BYTES_MAX: usize = 64 << 10;

/// Why a text names no slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotError {
    /// A part is neither `N` nor `N-M`.
    Syntax,
    /// A number is 16,384 or more.
    OutOfRange,
    /// A range ends before it begins.
    Backwards,
    /// A slot is named twice.
    Overlap(u16),
}

impl fmt::Display for SlotError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax => out.write_str("slots are written as 0-99,200"),
            Self::OutOfRange => write!(out, "a slot is at most {}", SLOTS - 1),
            Self::Backwards => out.write_str("a range of slots ends before it begins"),
            Self::Overlap(slot) => write!(out, "slot {slot} is named twice"),
        }
    }
}

impl std::error::Error for SlotError {}

/// A run of slots, both ends included. Its text is `7` or `0-5460`.
///
/// Invariant: `first <= last < SLOTS`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotRange {
    first: u16,
    last: u16,
}

impl SlotRange {
    /// All slots.
    pub const ALL: Self = Self { first: 0, last: SLOTS - 1 };

    /// Returns the run from `first` to `last`, both included.
    pub fn new(first: u16, last: u16) -> Result<Self, SlotError> {
        if last >= SLOTS || first >= SLOTS {
            return Err(SlotError::OutOfRange);
        }
        if first > last {
            return Err(SlotError::Backwards);
        }
        Ok(Self { first, last })
    }

    /// Returns the first slot.
    pub fn first(self) -> u16 {
        self.first
    }

    /// Returns the last slot.
    pub fn last(self) -> u16 {
        self.last
    }

    /// Returns the number of slots, 1 at least.
    #[allow(clippy::len_without_is_empty, reason = "a run is never empty")]
    pub fn len(self) -> u16 {
        self.last - self.first + 1
    }

    /// Whether the slot is one of the run.
    pub fn contains(self, slot: u16) -> bool {
        (self.first..=self.last).contains(&slot)
    }

    /// Returns the slots, ascending.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        self.first..=self.last
    }
}

impl fmt::Display for SlotRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(out, "{}", self.first),
            false => write!(out, "{}-{}", self.first, self.last),
        }
    }
}

impl fmt::Debug for SlotRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl FromStr for SlotRange {
    type Err = SlotError;

    fn from_str(text: &str) -> Result<Self, SlotError> {
        let number = |text: &str| {
            if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(SlotError::Syntax);
            }
            text.parse::<u16>().map_err(|_| SlotError::OutOfRange)
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Self::new(number(first)?, number(last)?)
    }
}

/// A set of slots. Its text is its runs, ascending, with commas between them; the empty set's is empty.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotSet(Vec<SlotRange>);

impl SlotSet {
    /// Returns the set of all slots.
    pub fn all() -> Self {
        Self(vec![SlotRange::ALL])
    }

    /// Returns the runs, ascending.
    pub fn ranges(&self) -> &[SlotRange] {
        &self.0
    }

    /// Returns the number of slots.
    pub fn len(&self) -> u16 {
        self.0.iter().map(|range| range.len()).sum()
    }

    /// Whether no slot is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the slot is in it. O(log runs).
    pub fn contains(&self, slot: u16) -> bool {
        let at = self.0.partition_point(|range| range.last < slot);
        self.0.get(at).is_some_and(|range| range.contains(slot))
    }

    /// Whether any slot of the run is in it. O(log runs).
    pub fn intersects_range(&self, range: SlotRange) -> bool {
        let at = self.0.partition_point(|own| own.last < range.first);
        self.0.get(at).is_some_and(|own| own.first <= range.last)
    }

    /// Whether any slot is in both. O(runs of `other` × log runs).
    pub fn intersects(&self, other: &Self) -> bool {
        other.0.iter().any(|range| self.intersects_range(*range))
    }

    /// Whether all slots of `other` are in it.
    pub fn contains_all(&self, other: &Self) -> bool {
        other.0.iter().all(|range| {
            let at = self.0.partition_point(|own| own.last < range.first);
            self.0.get(at).is_some_and(|own| own.contains(range.first) && own.contains(range.last))
        })
    }

    /// Returns the slots, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().flat_map(|range| range.iter())
    }

    /// Adds a run, which may overlap. O(runs).
    pub fn insert(&mut self, range: SlotRange) {
        // The runs that overlap or touch it become one with it.
        let from = self.0.partition_point(|own| own.last + 1 < range.first);
        let to = from + self.0[from..].partition_point(|own| own.first <= range.last + 1);
        let mut merged = range;
        if let (Some(first), Some(last)) = (self.0[from..to].first(), self.0[from..to].last()) {
            merged = SlotRange { first: first.first.min(range.first), last: last.last.max(range.last) };
        }
        self.0.splice(from..to, [merged]);
    }

    /// Takes a run out, of which some may not be there. O(runs).
    pub fn remove(&mut self, range: SlotRange) {
        let from = self.0.partition_point(|own| own.last < range.first);
        let to = from + self.0[from..].partition_point(|own| own.first <= range.last);
        let mut kept = Vec::new();
        if let (Some(first), Some(last)) = (self.0[from..to].first(), self.0[from..to].last()) {
            if first.first < range.first {
                kept.push(SlotRange { first: first.first, last: range.first - 1 });
            }
            if last.last > range.last {
                kept.push(SlotRange { first: range.last + 1, last: last.last });
            }
        }
        self.0.splice(from..to, kept);
    }

    /// Adds all slots of another set.
    pub fn insert_all(&mut self, other: &Self) {
        other.0.iter().for_each(|range| self.insert(*range));
    }

    /// Takes all slots of another set out.
    pub fn remove_all(&mut self, other: &Self) {
        other.0.iter().for_each(|range| self.remove(*range));
    }
}

impl From<SlotRange> for SlotSet {
    fn from(range: SlotRange) -> Self {
        Self(vec![range])
    }
}

impl FromIterator<u16> for SlotSet {
    /// Panics on a slot of 16,384 or more.
    fn from_iter<I: IntoIterator<Item = u16>>(slots: I) -> Self {
        slots.into_iter().map(|slot| SlotRange::new(slot, slot).expect("a slot")).collect()
    }
}

impl FromIterator<SlotRange> for SlotSet {
    fn from_iter<I: IntoIterator<Item = SlotRange>>(ranges: I) -> Self {
        let mut set = Self::default();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

impl fmt::Display for SlotSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.0.iter().enumerate() {
            write!(out, "{}{range}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{{{self}}}")
    }
}

impl FromStr for SlotSet {
    type Err = SlotError;

    /// Reads runs in any order. A slot that is named twice is an error: its author meant something else.
    fn from_str(text: &str) -> Result<Self, SlotError> {
        if text.len() > SET_BYTES_MAX {
            return Err(SlotError::Syntax);
        }
        let mut set = Self::default();
        if text.is_empty() {
            return Ok(set);
        }
        for part in text.split(',') {
            let range = part.parse()?;
            if set.intersects_range(range) {
                let twice = range.iter().find(|slot| set.contains(*slot)).unwrap_or(range.first);
                return Err(SlotError::Overlap(twice));
            }
            set.insert(range);
        }
        Ok(set)
    }
}

impl Serialize for SlotSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SlotSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A run of slots and its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The slots.
    pub slots: SlotRange,
    /// The shard that owns them.
    pub shard: ShardId,
}

/// Which shard owns a slot. A slot may have no owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotMap(Vec<Run>);

impl SlotMap {
    /// Returns the runs, ascending. Two runs that touch have different owners.
    pub fn runs(&self) -> &[Run] {
        &self.0
    }

    /// Returns the owner of a slot. O(log runs).
    pub fn owner(&self, slot: u16) -> Option<ShardId> {
        let at = self.0.partition_point(|run| run.slots.last < slot);
        self.0.get(at).filter(|run| run.slots.contains(slot)).map(|run| run.shard)
    }

    /// Returns the slots of a shard. O(runs).
    pub fn slots_of(&self, shard: ShardId) -> SlotSet {
        self.0.iter().filter(|run| run.shard == shard).map(|run| run.slots).collect()
    }

    /// Returns the slots that have an owner. O(runs).
    pub fn owned(&self) -> SlotSet {
        self.0.iter().map(|run| run.slots).collect()
    }

    /// Returns the slots that have no owner. O(runs).
    pub fn unowned(&self) -> SlotSet {
        let mut free = SlotSet::all();
        self.0.iter().for_each(|run| free.remove(run.slots));
        free
    }

    /// Gives slots to a shard, or leaves them without one, whichever shard has them. O(runs of both).
    pub fn assign(&mut self, slots: &SlotSet, shard: Option<ShardId>) {
        let mut runs = Vec::with_capacity(self.0.len() + slots.ranges().len() + 1);
        for run in &self.0 {
            let mut rest = SlotSet::from(run.slots);
            let from = slots.0.partition_point(|range| range.last < run.slots.first);
            slots.0[from..]
                .iter()
                .take_while(|range| range.first <= run.slots.last)
                .for_each(|range| rest.remove(*range));
            runs.extend(rest.0.iter().map(|slots| Run { slots: *slots, shard: run.shard }));
        }
        if let Some(shard) = shard {
            runs.extend(slots.0.iter().map(|slots| Run { slots: *slots, shard }));
        }
        runs.sort_unstable_by_key(|run| run.slots.first);
        runs.dedup_by(|next, run| {
            let is_one = run.shard == next.shard && run.slots.last + 1 == next.slots.first;
            if is_one {
                run.slots.last = next.slots.last;
            }
            is_one
        });
        self.0 = runs;
    }

    /// Builds the map of disjoint runs. A slot with two owners is an error. O(runs × log runs).
    pub fn from_runs(runs: impl IntoIterator<Item = (SlotSet, ShardId)>) -> Result<Self, SlotError> {
        let mut owned = SlotSet::default();
        let mut all = Vec::new();
        for (slots, shard) in runs {
            for range in slots.ranges() {
                if owned.intersects_range(*range) {
                    let twice = range.iter().find(|slot| owned.contains(*slot)).unwrap_or(range.first);
                    return Err(SlotError::Overlap(twice));
                }
                owned.insert(*range);
                all.push(Run { slots: *range, shard });
            }
        }
        let mut map = Self(all);
        // Sorts and merges.
        map.assign(&SlotSet::default(), None);
        Ok(map)
    }
}

/// The form in JSON: one entry for each shard, its slots as text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    shard: ShardId,
    slots: SlotSet,
}

impl Serialize for SlotMap {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut by_shard: std::collections::BTreeMap<ShardId, SlotSet> = Default::default();
        for run in &self.0 {
            by_shard.entry(run.shard).or_default().insert(run.slots);
        }
        serializer.collect_seq(by_shard.into_iter().map(|(shard, slots)| Entry { shard, slots }))
    }
}

impl<'de> Deserialize<'de> for SlotMap {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = Vec::<Entry>::deserialize(deserializer)?;
        Self::from_runs(entries.into_iter().map(|entry| (entry.slots, entry.shard)))
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set(text: &str) -> SlotSet {
        text.parse().unwrap()
    }

    #[test]
    fn slot_set_reads_what_it_writes() {
        for (text, shown) in [
            ("", ""),
            ("7", "7"),
            ("0-16383", "0-16383"),
            ("5,3,4", "3-5"),
            ("10-20,0-9", "0-20"),
            ("0,2,4-6", "0,2,4-6"),
        ] {
            assert_eq!(set(text).to_string(), shown, "{text}");
        }
    }

    #[test]
    fn slot_set_refuses_nonsense() {
        for (text, error) in [
            ("x", SlotError::Syntax),
            (",", SlotError::Syntax),
            ("1-", SlotError::Syntax),
            ("+1", SlotError::Syntax),
            ("1-2-3", SlotError::Syntax),
            ("16384", SlotError::OutOfRange),
            ("0-99999", SlotError::OutOfRange),
            ("9-8", SlotError::Backwards),
            ("0-9,9", SlotError::Overlap(9)),
        ] {
            assert_eq!(text.parse::<SlotSet>(), Err(error), "{text}");
        }
        assert!("1,".repeat(SET_BYTES_MAX).parse::<SlotSet>().is_err());
    }

    fn range() -> impl Strategy<Value = SlotRange> {
        // Few numbers, so that runs touch and overlap; the ends of the space are among them.
        let slot = prop_oneof![0u16..40, SLOTS - 20..SLOTS];
        (slot.clone(), slot).prop_map(|(a, b)| SlotRange::new(a.min(b), a.max(b)).unwrap())
    }

    fn is_canonical(set: &SlotSet) -> bool {
        set.ranges().windows(2).all(|pair| pair[0].last + 1 < pair[1].first)
    }

    proptest! {
        #[test]
        fn slot_set_behaves_as_a_set(steps in prop::collection::vec((any::<bool>(), range()), 0..20)) {
            let (mut set, mut model) = (SlotSet::default(), BTreeSet::new());
            for (add, range) in steps {
                if add {
                    set.insert(range);
                    model.extend(range.iter());
                } else {
                    set.remove(range);
                    range.iter().for_each(|slot| { model.remove(&slot); });
                }
                prop_assert!(is_canonical(&set));
                prop_assert_eq!(set.len() as usize, model.len());
                prop_assert!(set.iter().eq(model.iter().copied()));
                prop_assert!((0..50).all(|slot| set.contains(slot) == model.contains(&slot)));
                prop_assert_eq!(&set.to_string().parse::<SlotSet>().unwrap(), &set);
                prop_assert_eq!(set.intersects_range(range), range.iter().any(|slot| model.contains(&slot)));
                let whole = SlotSet::from(range);
                prop_assert_eq!(set.contains_all(&whole), range.iter().all(|slot| model.contains(&slot)));
            }
        }

        #[test]
        fn slot_map_behaves_as_a_table(steps in prop::collection::vec((range(), range(), 0u8..4), 0..20)) {
            let (mut map, mut model) = (SlotMap::default(), vec![None; SLOTS as usize]);
            for (one, other, owner) in steps {
                let shard = (owner > 0).then(|| ShardId::from_bytes([owner; 20]));
                let slots: SlotSet = [one, other].into_iter().collect();
                map.assign(&slots, shard);
                slots.iter().for_each(|slot| model[slot as usize] = shard);
                prop_assert!((0..SLOTS).all(|slot| map.owner(slot) == model[slot as usize]));
                prop_assert!(map.runs().windows(2).all(|pair| pair[0].slots.last < pair[1].slots.first
                    && (pair[0].shard != pair[1].shard || pair[0].slots.last + 1 < pair[1].slots.first)));
                let json = serde_json::to_string(&map).unwrap();
                prop_assert_eq!(&serde_json::from_str::<SlotMap>(&json).unwrap(), &map);
                prop_assert_eq!(map.owned().len() + map.unowned().len(), SLOTS);
            }
        }
    }

    #[test]
    fn slot_map_refuses_two_owners() {
        let (a, b) = (ShardId::from_bytes([1; 20]), ShardId::from_bytes([2; 20]));
        let two = SlotMap::from_runs([(set("0-10"), a), (set("10-20"), b)]);
        assert_eq!(two, Err(SlotError::Overlap(10)));
    }
}
