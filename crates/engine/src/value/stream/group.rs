//! Consumer groups: how far a group has read, and which entries its consumers still owe an answer for.
//!
//! ```text
//! group     last ID, entries read │ pending: ID → delivery (time, count, consumer)
//! consumer  seen, active          │ pending: the IDs among them that are its own
//! by time   (time, ID) of all deliveries, from the first claim by idle time on
//! ```
//! A copy of a group, which a snapshot has, shares all parts that neither changes, but for the consumers' names and
//! times.
//!
//! A delivery that was released (XNACK) has no consumer, and the time 0: it is claimed before all others.
//!
//! Invariants:
//! - Each pending ID of the group is in the set of exactly one consumer, the one its delivery names; in none if it was
//!   released.
//! - The index by time, if there is one, holds each delivery under its present time, and nothing else.

use std::{collections::BTreeMap, sync::Arc};

use dunlin_structures::LeafMap;

use super::{StreamId, StreamLog};

/// An entry that was handed to a consumer and has not been acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Unix time of the last delivery, in milliseconds; 0 after a release.
    pub time_ms: u64,
    /// How often it was delivered.
    pub count: u64,
    /// The consumer; `None` after a release.
    pub consumer: Option<Arc<[u8]>>,
}

impl Delivery {
    /// Milliseconds since the last delivery: as long as can be after a release.
    pub fn idle_ms(&self, now_ms: u64) -> u64 {
        if self.consumer.is_none() { u64::MAX } else { now_ms.saturating_sub(self.time_ms) }
    }

    /// The consumer's name; empty after a release.
    pub fn owner(&self) -> &[u8] {
        self.consumer.as_deref().unwrap_or_default()
    }
}

/// A member of a group.
#[derive(Debug, Clone, Default)]
pub struct Consumer {
    /// Unix time of its last attempt to read or claim, in milliseconds.
    pub seen_ms: u64,
    /// Unix time at which it last got an entry.
    pub active_ms: Option<u64>,
    pending: LeafMap<StreamId, ()>,
}

impl Consumer {
    /// The entries it owes an answer for, in order.
    pub fn pending(&self) -> &LeafMap<StreamId, ()> {
        &self.pending
    }
}

/// The changes that a claim makes to a delivery.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    /// The time of delivery from now on.
    pub time_ms: u64,
    /// The count from now on; otherwise one more unless `keeps_count`.
    pub count: Option<u64>,
    /// Whether the count stays as it is.
    pub keeps_count: bool,
}

/// The change of a delivery's count by a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseCount {
    /// The delivery does not count: one less.
    Undone,
    /// The count stays.
    Kept,
    /// The count from now on.
    Exactly(u64),
}

/// Bytes of a tree that is five eighths full.
fn tree_bytes(entries: usize, bytes: usize) -> usize {
    entries * bytes * 8 / 5
}

/// A consumer group.
#[derive(Debug, Clone)]
pub struct ConsumerGroup {
    last_id: StreamId,
    entries_read: Option<u64>,
    pending: LeafMap<StreamId, Delivery>,
    /// How many of them were released.
    released: usize,
    consumers: BTreeMap<Arc<[u8]>, Consumer>,
    /// Deliveries in the order of their times. Only groups that claim by idle time pay for it.
    by_time: Option<LeafMap<(u64, StreamId), ()>>,
    /// Bytes of the consumers' names.
    name_bytes: usize,
    /// Bytes of the consumers' own sets of deliveries.
    own_bytes: usize,
}

impl ConsumerGroup {
    /// A group that has read up to `last_id`, and with that `entries_read` entries, if that is known.
    pub fn new(last_id: StreamId, entries_read: Option<u64>) -> Self {
        Self {
            last_id,
            entries_read,
            pending: LeafMap::default(),
            released: 0,
            consumers: BTreeMap::new(),
            by_time: None,
            name_bytes: 0,
            own_bytes: 0,
        }
    }

    /// The last ID that was delivered for the first time.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// The number of entries read, if that is known.
    pub fn entries_read(&self) -> Option<u64> {
        self.entries_read
    }

    /// Changes the position, as `XGROUP SETID` does.
    pub fn set_position(&mut self, last_id: StreamId, entries_read: Option<u64>, log: &StreamLog) {
        (self.last_id, self.entries_read) = (last_id, entries_read);
        self.doubt_count(log);
    }

    /// Forgets how many entries have been read if the group is ahead of the log: entries that are added up to its
    /// last ID are never read, nor counted.
    pub(super) fn doubt_count(&mut self, log: &StreamLog) {
        if self.last_id > log.last_id() {
            self.entries_read = None;
        }
    }

    /// Moves on to an ID that others have read; a smaller one changes nothing.
    pub fn advance(&mut self, id: StreamId, log: &StreamLog) {
        if id > self.last_id {
            (self.last_id, self.entries_read) = (id, log.number_of(id));
            self.doubt_count(log);
        }
    }

    /// Follows a stream whose count of entries added was set from `before` to `after`: as many as were unread are unread
    /// still. A count that makes no sense beside `before` stays.
    pub(super) fn entries_added_set(&mut self, before: u64, after: u64) {
        if let Some(unread) = self.entries_read.and_then(|read| before.checked_sub(read)) {
            self.entries_read = after.checked_sub(unread);
        }
    }

    /// All deliveries by ID.
    pub fn pending(&self) -> &LeafMap<StreamId, Delivery> {
        &self.pending
    }

    /// All consumers by name.
    pub fn consumers(&self) -> &BTreeMap<Arc<[u8]>, Consumer> {
        &self.consumers
    }

    /// Entries that the group has yet to read, if the counts and the IDs at both ends of the log say so. O(log n).
    ///
    /// A count of entries read that a client has set is not believed if it contradicts the log.
    pub fn lag(&self, log: &StreamLog) -> Option<u64> {
        if log.is_empty() || self.last_id >= log.last_id() {
            return Some(0);
        }
        if log.is_whole() && self.last_id < log.first_id() {
            return Some(log.len());
        }
        if let Some(read) = self.entries_read
            && !log.has_gaps_behind(self.last_id)
        {
            if log.last_entry_id() <= Some(self.last_id) {
                return Some(0);
            }
            let unread = log.entries_added().checked_sub(read);
            if let Some(unread) = unread.filter(|unread| (1..=log.len()).contains(unread)) {
                return Some(unread);
            }
        }
        (log.is_whole() && self.last_id == log.first_id()).then(|| log.len() - 1)
    }

    /// Bytes outside the group itself, nearly: the tree of the consumers is taken to be five eighths full. O(1).
    pub fn heap_bytes(&self) -> usize {
        self.pending.heap_bytes()
            + self.own_bytes
            + tree_bytes(self.consumers.len(), size_of::<(Arc<[u8]>, Consumer)>())
            + self.by_time.as_ref().map_or(0, LeafMap::heap_bytes)
            + self.name_bytes
    }

    /// Bytes of the consumers' own sets of deliveries, as they are counted.
    #[cfg(test)]
    pub(super) fn own_bytes(&self) -> usize {
        self.own_bytes
    }

    /// This group without the index by time, sharing all parts that neither changes.
    pub(super) fn unindexed(&self) -> Self {
        Self { pending: self.pending.clone(), consumers: self.consumers.clone(), by_time: None, ..*self }
    }

    /// Bytes that [`Self::unindexed`] copies, nearly. O(1).
    pub(super) fn copied_bytes(&self) -> usize {
        /// Bytes of a consumer's deliveries beside their leaves.
        const ROOT_BYTES: usize = 64;
        2 * self.pending.copied_bytes()
            + tree_bytes(self.consumers.len(), size_of::<(Arc<[u8]>, Consumer)>() + ROOT_BYTES)
    }

    /// Adds a consumer. Returns whether it is new.
    pub fn create_consumer(&mut self, name: &[u8], now_ms: u64) -> bool {
        if self.consumers.contains_key(name) {
            return false;
        }
        self.name_bytes += name.len() + 2 * size_of::<usize>();
        self.consumers.insert(name.into(), Consumer { seen_ms: now_ms, ..Consumer::default() });
        true
    }

    /// Notes that a consumer has called. Returns whether this was the first time.
    pub fn see_consumer(&mut self, name: &[u8], now_ms: u64) -> bool {
        let is_new = self.create_consumer(name, now_ms);
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.seen_ms = now_ms;
        }
        is_new
    }

    /// Removes a consumer with its deliveries. Returns how many these were.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let consumer = self.consumers.remove(name)?;
        self.name_bytes -= name.len() + 2 * size_of::<usize>();
        self.own_bytes -= consumer.pending.heap_bytes();
        for id in consumer.pending.keys() {
            if let Some(delivery) = self.pending.remove(id) {
                self.forget_time(delivery.time_ms, *id);
            }
        }
        Some(consumer.pending.len())
    }

    /// Moves on to an entry that is being delivered for the first time.
    pub fn read(&mut self, id: StreamId, log: &StreamLog) {
        if id <= self.last_id {
            return;
        }
        self.entries_read = match self.entries_read {
            // Nothing has been removed between the last entry and this one. No further than the log can say it.
            Some(read) if self.last_id >= log.first_id() && !log.has_gaps_behind(self.last_id) => {
                Some(read.saturating_add(1).min(i64::MAX as u64))
            }
            _ => log.number_of(id),
        };
        self.last_id = id;
    }

    /// Hands entries to a consumer, which now owes an acknowledgement for them, in place of any former one.
    pub fn deliver(&mut self, ids: impl IntoIterator<Item = StreamId>, name: &[u8], now_ms: u64) {
        let Some((name, _)) = self.consumers.get_key_value(name) else { return };
        let name = Arc::clone(name);
        for id in ids {
            self.assign(id, Delivery { time_ms: now_ms, count: 1, consumer: Some(Arc::clone(&name)) });
            self.consumer_mut(&name).active_ms = Some(now_ms);
        }
    }

    /// Puts a delivery in place of the one there may be.
    fn assign(&mut self, id: StreamId, delivery: Delivery) {
        let (time_ms, name) = (delivery.time_ms, delivery.consumer.clone());
        self.released += usize::from(name.is_none());
        if let Some(former) = self.pending.insert(id, delivery) {
            self.forget_time(former.time_ms, id);
            if former.consumer.is_none() || former.consumer != name {
                self.disown(&former, id);
            }
        }
        self.note_time(time_ms, id);
        if let Some(name) = name {
            self.edit_own(&name, |own| own.insert(id, ()));
        }
    }

    /// Takes a delivery from the consumer that it names, or from those that were released.
    fn disown(&mut self, delivery: &Delivery, id: StreamId) {
        match &delivery.consumer {
            Some(name) => _ = self.edit_own(name, |own| own.remove(&id)),
            None => self.released -= 1,
        }
    }

    /// Works on the deliveries of a consumer.
    fn edit_own<R>(&mut self, name: &[u8], edit: impl FnOnce(&mut LeafMap<StreamId, ()>) -> R) -> R {
        let own = &mut self.consumer_mut(name).pending;
        let before = own.heap_bytes();
        let result = edit(own);
        let after = own.heap_bytes();
        self.own_bytes = self.own_bytes - before + after;
        result
    }

    fn note_time(&mut self, time_ms: u64, id: StreamId) {
        if let Some(by_time) = &mut self.by_time {
            by_time.insert((time_ms, id), ());
        }
    }

    fn forget_time(&mut self, time_ms: u64, id: StreamId) {
        if let Some(by_time) = &mut self.by_time {
            by_time.remove(&(time_ms, id));
        }
    }

    /// All deliveries that [`Self::idle_deliveries`] can find: the index is made if there is none, which takes
    /// O(n log n) once.
    pub fn index_by_time(&mut self) {
        let pending = &self.pending;
        self.by_time.get_or_insert_with(|| {
            let mut times: Vec<_> = pending.iter().map(|(id, delivery)| (delivery.time_ms, *id)).collect();
            times.sort_unstable();
            times.into_iter().map(|key| (key, ())).collect()
        });
    }

    /// Deliveries in the order of their times, oldest first, each with its time in milliseconds; none before
    /// [`Self::index_by_time`].
    pub fn deliveries_by_time(&self) -> impl Iterator<Item = (u64, StreamId)> {
        self.by_time.iter().flat_map(LeafMap::keys).copied()
    }

    /// Deliveries that have been idle for at least `idle_ms_min` milliseconds, longest first.
    pub fn idle_deliveries(&self, idle_ms_min: u64, now_ms: u64) -> impl Iterator<Item = StreamId> {
        // Deliveries that were released have the time 0.
        let is_idle = move |(time_ms, _): &(u64, StreamId)| {
            *time_ms == 0 || now_ms.saturating_sub(*time_ms) >= idle_ms_min
        };
        self.deliveries_by_time().take_while(is_idle).map(|(_, id)| id)
    }

    /// Roughly how many of them there are, up to a number; 0 only if there are none. Without an index they count
    /// all, since making it visits all. O(max).
    pub fn idle_deliveries_about(&self, idle_ms_min: u64, now_ms: u64, max: usize) -> usize {
        match self.by_time {
            Some(_) => self.idle_deliveries(idle_ms_min, now_ms).take(max).count(),
            None => self.pending.len(),
        }
    }

    fn consumer_mut(&mut self, name: &[u8]) -> &mut Consumer {
        self.consumers.get_mut(name).expect("deliveries name consumers of their group")
    }

    /// Takes an acknowledgement. Returns whether there was a delivery.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(delivery) = self.pending.remove(&id) else { return false };
        self.forget_time(delivery.time_ms, id);
        self.disown(&delivery, id);
        true
    }

    /// Notes that a reply lists a delivery to its consumer once more.
    pub fn repeat_delivery(&mut self, id: StreamId, now_ms: u64) {
        if let Some(delivery) = self.pending.get_mut(&id) {
            let former_ms = std::mem::replace(&mut delivery.time_ms, now_ms);
            delivery.count += 1;
            self.forget_time(former_ms, id);
            self.note_time(now_ms, id);
        }
    }

    /// Makes a delivery one of a consumer of the group; one that does not exist begins with a count
    /// of 1.
    pub fn claim(&mut self, id: StreamId, name: &[u8], claim: Claim, now_ms: u64) {
        let Some((name, _)) = self.consumers.get_key_value(name) else { return };
        let name = Arc::clone(name);
        let count = self.pending.get(&id).map_or(1, |delivery| delivery.count);
        let count = claim.count.unwrap_or(count + u64::from(!claim.keeps_count));
        self.assign(id, Delivery { time_ms: claim.time_ms, count, consumer: Some(Arc::clone(&name)) });
        self.consumer_mut(&name).active_ms = Some(now_ms);
    }

    /// Puts a consumer back as it was saved.
    pub fn restore_consumer(&mut self, name: &[u8], seen_ms: u64, active_ms: Option<u64>) -> bool {
        let is_new = self.create_consumer(name, seen_ms);
        self.consumer_mut(name).active_ms = active_ms;
        is_new
    }

    /// Puts a delivery back as it was saved; `false` if the consumer is missing or the entry has
    /// been delivered already.
    pub fn restore_delivery(&mut self, id: StreamId, name: &[u8], time_ms: u64, count: u64) -> bool {
        let Some((name, _)) = self.consumers.get_key_value(name) else { return false };
        if self.pending.contains_key(&id) {
            return false;
        }
        let consumer = Some(Arc::clone(name));
        self.assign(id, Delivery { time_ms, count, consumer });
        true
    }

    /// Takes a delivery from its consumer, so that any other may claim it at once; `creates` makes one, with a count of 0, if
    /// there is none. Returns whether there is one now.
    pub fn release(&mut self, id: StreamId, count: ReleaseCount, creates: bool) -> bool {
        let Some(former) = self.pending.get(&id).map_or(creates.then_some(0), |found| Some(found.count))
        else {
            return false;
        };
        let count = match count {
            ReleaseCount::Undone => former.saturating_sub(1),
            ReleaseCount::Kept => former,
            ReleaseCount::Exactly(count) => count,
        };
        self.assign(id, Delivery { time_ms: 0, count, consumer: None });
        true
    }

    /// How many deliveries were released.
    pub fn released_len(&self) -> usize {
        self.released
    }

    /// Deliveries that were released, in the order of their IDs. O(n) in the number of all deliveries, if there are any.
    pub fn released(&self) -> impl Iterator<Item = (&StreamId, &Delivery)> {
        self.pending.iter().filter(|(_, delivery)| delivery.consumer.is_none()).take(self.released)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::{NewId, Stream, Trim, TrimTo};
    use super::*;
    use crate::value::CollectionLimits;

    #[derive(Debug, Clone)]
    enum Step {
        /// An entry this many milliseconds behind the last ID.
        Add(u64),
        Delete(u64),
        TrimToLength(u64),
        TrimFrom(u64),
        /// Trims entries that no group refers to.
        TrimUnreferenced(u64),
        Read(usize),
        /// XCLAIM with LASTID.
        Advance(u64),
        /// XGROUP SETID to an ID, with the true number of entries read or none.
        Move(u64, bool),
        /// XSETID: a last ID larger than it must be by the first number, and a count of entries added larger by the
        /// second.
        Reset(u64, Option<u64>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let id = || 0u64..60;
        prop_oneof![
            12 => (1u64..3).prop_map(Step::Add),
            4 => id().prop_map(Step::Delete),
            2 => (0u64..6).prop_map(Step::TrimToLength),
            1 => id().prop_map(Step::TrimFrom),
            1 => (0u64..6).prop_map(Step::TrimUnreferenced),
            8 => (1usize..4).prop_map(Step::Read),
            1 => id().prop_map(Step::Advance),
            1 => (id(), any::<bool>()).prop_map(|(id, counts)| Step::Move(id, counts)),
            1 => (0u64..4, prop::option::of(0u64..80)).prop_map(|(more, added)| Step::Reset(more, added)),
        ]
    }

    /// A stream with a group, and the IDs of its entries.
    struct Pair {
        stream: Stream,
        live: BTreeSet<StreamId>,
    }

    impl Pair {
        fn edit<R>(&mut self, edit: impl FnOnce(&mut ConsumerGroup, &mut StreamLog) -> R) -> R {
            self.stream.edit_group(b"g", edit).expect("it was created")
        }

        /// How many entries the group has yet to read.
        fn unread_behind(&self, id: StreamId) -> u64 {
            self.live.iter().filter(|other| **other > id).count() as u64
        }

        fn run(&mut self, step: &Step) {
            let trim = |to| Trim { to, is_approximate: false, entries_max: 0 };
            match *step {
                Step::Add(ms) => {
                    let id = StreamId::new(self.stream.log().last_id().ms + ms, 0);
                    let limits =
                        CollectionLimits { stream_node_max_entries: 3, ..CollectionLimits::default() };
                    self.stream.log_mut().add(NewId::Exactly(id), &[b"f", b"v"], 0, &limits).unwrap();
                    self.live.insert(id);
                }
                Step::Delete(ms) => {
                    let id = StreamId::new(ms, 0);
                    assert_eq!(self.stream.log_mut().remove(id), self.live.remove(&id));
                }
                Step::TrimToLength(length) => {
                    self.stream.log_mut().trim(trim(TrimTo::Length(length)));
                }
                Step::TrimFrom(ms) => {
                    self.stream.log_mut().trim(trim(TrimTo::From(StreamId::new(ms, 0))));
                }
                Step::TrimUnreferenced(length) => {
                    self.stream.trim_unreferenced(trim(TrimTo::Length(length)));
                }
                Step::Read(count) => self.edit(|group, log| {
                    let unread = log.range(group.last_id().next().unwrap(), StreamId::MAX).take(count);
                    unread
                        .map(|entry| entry.id)
                        .collect::<Vec<_>>()
                        .iter()
                        .for_each(|id| group.read(*id, log));
                }),
                Step::Advance(ms) => self.edit(|group, log| group.advance(StreamId::new(ms, 0), log)),
                Step::Move(ms, counts) => {
                    let id = StreamId::new(ms, 0);
                    let read = self.stream.log().entries_added() - self.unread_behind(id);
                    self.edit(|group, log| group.set_position(id, counts.then_some(read), log));
                }
                Step::Reset(more_ms, added) => {
                    let last_ms = self.stream.log().last_entry_id().map_or(0, |id| id.ms);
                    let last_ms = last_ms.max(self.stream.log().max_deleted_id().ms);
                    let last_id = StreamId::new(last_ms + more_ms, 0);
                    let added = added.map(|more| self.live.len() as u64 + more);
                    self.stream.set_ids(last_id, added, None);
                }
            }
            self.live = self.stream.log().iter().map(|entry| entry.id).collect();
        }
    }

    proptest! {
        /// A lag that is known is the number of entries behind the group's last ID. The lag is always known if entries
        /// are added, trimmed and read only.
        #[test]
        fn lag_is_the_number_of_unread_entries(
            steps in prop::collection::vec(step(), 1..80),
            deletes in any::<bool>(),
        ) {
            let mut pair = Pair { stream: Stream::default(), live: BTreeSet::new() };
            pair.stream.create_group(b"g", ConsumerGroup::new(StreamId::MIN, None));
            let keeps_count = |step: &Step| {
                matches!(step, Step::Add(_) | Step::TrimToLength(_) | Step::TrimFrom(_) | Step::Read(_))
            };
            for step in steps.iter().filter(|step| deletes || keeps_count(step)) {
                pair.run(step);
                let group = pair.stream.group(b"g").unwrap();
                let unread = pair.unread_behind(group.last_id());
                match group.lag(pair.stream.log()) {
                    Some(lag) => prop_assert_eq!(lag, unread, "{:?}", step),
                    None => prop_assert!(deletes, "{:?}", step),
                }
            }
        }
    }

    /// Counts that a client has set are not believed against the log.
    #[test]
    fn lag_is_never_more_than_there_is() {
        let mut stream = Stream::default();
        let limits = CollectionLimits::default();
        for ms in 1..=5 {
            let id = NewId::Exactly(StreamId::new(ms, 0));
            stream.log_mut().add(id, &[b"f", b"v"], 0, &limits).unwrap();
        }
        let log = stream.log();
        let lag = |id: u64, read: u64| ConsumerGroup::new(StreamId::new(id, 0), Some(read)).lag(log);
        assert_eq!(lag(3, 3), Some(2));
        assert_eq!(lag(3, 7), None);
        assert_eq!(lag(3, 5), None);
        assert_eq!(lag(3, u64::MAX), None);
        assert_eq!(lag(0, 7), Some(5));
        assert_eq!(lag(1, 7), Some(4));
        assert_eq!(lag(5, 1), Some(0));
        assert_eq!(lag(9, 1), Some(0));
    }

    /// Entries that are added up to its last ID are none that it has yet to read.
    #[test]
    fn lag_of_a_group_ahead_of_its_stream_does_not_count_what_it_skips() {
        for way in [&[Step::Add(1), Step::Move(3, true)][..], &[Step::Advance(2)]] {
            let mut pair = Pair { stream: Stream::default(), live: BTreeSet::new() };
            pair.stream.create_group(b"g", ConsumerGroup::new(StreamId::MIN, None));
            way.iter().for_each(|step| pair.run(step));
            for (step, lag) in [(1, Some(0)), (1, Some(0)), (1, None)] {
                pair.run(&Step::Add(step));
                assert_eq!(pair.stream.group(b"g").unwrap().lag(pair.stream.log()), lag, "{way:?}");
            }
        }
    }
}
