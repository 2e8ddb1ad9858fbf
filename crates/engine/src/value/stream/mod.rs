//! Streams: an append-only log of entries with fields, and the groups that read it together.
//!
//! ```text
//! Stream ─┬─ StreamLog ── nodes in order of ID, each a listpack of up to stream-node-max-entries
//!         ├─ groups by name ── ConsumerGroup
//!         └─ Producers, where some have asked for their entries to be added once
//! ```
//!
//! Unlike other collections an empty stream stays under its key: it remembers its last ID.

mod group;
mod id;
mod log;
mod node;
mod producers;
mod stored;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

pub use group::{Claim, Consumer, ConsumerGroup, Delivery, ReleaseCount};
pub use id::{NewId, StreamId};
pub use log::{AddError, StreamLog, StreamRange, Trim, TrimTo, Trimmed};
pub use node::StreamEntry;
pub use producers::{ProducerLimits, Producers};
pub(crate) use stored::{read_producers, read_released, write_node, write_tail};

use super::{Collection, Object, ObjectRef, Resources, shared::Shared};

/// A log of entries and its consumer groups.
#[derive(Debug, Clone, Default)]
pub struct Stream {
    log: StreamLog,
    groups: BTreeMap<Box<[u8]>, ConsumerGroup>,
    /// Bytes that the groups and their names have on the heap.
    group_bytes: usize,
    producers: Option<Box<Producers>>,
}

/// The part behind a stream's nodes in files, as it was when this was made; see [`Stream::tail`].
#[derive(Debug)]
pub(crate) struct StreamTail(Stream);

impl StreamTail {
    /// The stream as it was, but that its log has no nodes: it knows how many entries there are, not which.
    pub(crate) fn stream(&self) -> &Stream {
        &self.0
    }
}

impl Collection for Stream {
    type Ref<'a> = &'a Self;

    fn new(_: &Arc<Resources>) -> Self {
        Self::default()
    }

    #[inline]
    fn of(object: &Object) -> Option<&Self> {
        match object {
            Object::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    #[inline]
    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        match object {
            Object::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    #[inline]
    fn of_ref(object: ObjectRef<'_>) -> Option<&Self> {
        match object {
            ObjectRef::Stored(object) => Self::of(object),
            ObjectRef::Packed(_) => None,
        }
    }

    fn into_object(self) -> Object {
        Object::Stream(Shared::new(self))
    }

    /// Never: a stream without entries remembers its last ID and its groups.
    #[inline]
    fn is_empty(&self) -> bool {
        false
    }

    #[inline]
    fn outside_bytes(&self) -> usize {
        size_of::<Self>() + self.heap_bytes()
    }
}

impl Stream {
    /// The entries.
    pub fn log(&self) -> &StreamLog {
        &self.log
    }

    /// The entries, to be changed.
    pub fn log_mut(&mut self) -> &mut StreamLog {
        &mut self.log
    }

    /// Puts a log in the place of the entries.
    pub fn from_log(log: StreamLog) -> Self {
        Self { log, ..Self::default() }
    }

    /// Changes the IDs and counts, as `XSETID` does; the caller has checked that entries and IDs stay in
    /// order.
    pub fn set_ids(
        &mut self,
        last_id: StreamId,
        entries_added: Option<u64>,
        max_deleted_id: Option<StreamId>,
    ) {
        let before = self.log.entries_added();
        self.log.set_ids(last_id, entries_added, max_deleted_id);
        for group in self.groups.values_mut() {
            group.entries_added_set(before, self.log.entries_added());
            group.doubt_count(&self.log);
        }
    }

    /// The groups by name.
    pub fn groups(&self) -> &BTreeMap<Box<[u8]>, ConsumerGroup> {
        &self.groups
    }

    /// The group of that name.
    pub fn group(&self, name: &[u8]) -> Option<&ConsumerGroup> {
        self.groups.get(name)
    }

    /// Works on the group of that name, beside the log; `None` if there is no such group.
    pub fn edit_group<R>(
        &mut self,
        name: &[u8],
        edit: impl FnOnce(&mut ConsumerGroup, &mut StreamLog) -> R,
    ) -> Option<R> {
        let group = self.groups.get_mut(name)?;
        let before = group.heap_bytes();
        let result = edit(group, &mut self.log);
        self.group_bytes = self.group_bytes - before + group.heap_bytes();
        Some(result)
    }

    /// Adds a group. Returns whether the name was free.
    pub fn create_group(&mut self, name: &[u8], mut group: ConsumerGroup) -> bool {
        if self.groups.contains_key(name) {
            return false;
        }
        group.doubt_count(&self.log);
        self.group_bytes += Self::bytes_of_group(name, &group);
        self.groups.insert(name.into(), group);
        true
    }

    /// Removes a group. Returns whether it was there.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        let Some(group) = self.groups.remove(name) else { return false };
        self.group_bytes -= Self::bytes_of_group(name, &group);
        true
    }

    fn bytes_of_group(name: &[u8], group: &ConsumerGroup) -> usize {
        name.len() + size_of::<(Box<[u8]>, ConsumerGroup)>() + group.heap_bytes()
    }

    /// The producers whose entries are added once, if there have been any.
    pub fn producers(&self) -> Option<&Producers> {
        self.producers.as_deref()
    }

    /// Works on the producers, which begin with these limits.
    pub fn edit_producers<R>(&mut self, limits: ProducerLimits, edit: impl FnOnce(&mut Producers) -> R) -> R {
        edit(self.producers.get_or_insert_with(|| Box::new(Producers::new(limits))))
    }

    /// Puts producers in the place of those that there may be.
    pub fn set_producers(&mut self, producers: Producers) {
        self.producers = Some(Box::new(producers));
    }

    /// Whether a group has not read an entry yet, or has it among its deliveries. O(groups).
    pub fn is_referenced(&self, id: StreamId) -> bool {
        self.groups.values().any(|group| id > group.last_id() || group.pending().contains_key(&id))
    }

    /// Takes an entry out of the deliveries of all groups; `forgot` gets the name of each that had it. O(groups).
    pub fn forget_deliveries(&mut self, id: StreamId, mut forgot: impl FnMut(&[u8])) {
        for (name, group) in &mut self.groups {
            let before = group.heap_bytes();
            if group.acknowledge(id) {
                forgot(name);
            }
            self.group_bytes = self.group_bytes - before + group.heap_bytes();
        }
    }

    /// Trims the log, and takes the entries that are removed out of all deliveries. O(entries removed).
    pub fn trim_with_deliveries(&mut self, trim: Trim) -> Trimmed {
        let selected = self.log.select(trim, |_| false);
        let trimmed = self.log.trim(trim);
        debug_assert_eq!(trimmed.entries, selected.len() as u64);
        for id in selected {
            self.forget_deliveries(id, |_| {});
        }
        trimmed
    }

    /// Trims the log but for the entries that groups still refer to.
    pub fn trim_unreferenced(&mut self, trim: Trim) -> Trimmed {
        let selected = self.log.select(trim, |id| self.is_referenced(id));
        // Removed entries behind one that stays leave gaps, which removing remembers.
        for id in &selected {
            self.log.remove(*id);
        }
        Trimmed::singly(selected.len() as u64)
    }

    /// Bytes outside the stream itself. O(1).
    pub fn heap_bytes(&self) -> usize {
        self.log.heap_bytes() + self.bytes_beside_log()
    }

    /// Bytes of groups and producers. O(1).
    fn bytes_beside_log(&self) -> usize {
        self.group_bytes + self.producers().map_or(0, Producers::heap_bytes)
    }

    /// All but the entries; deliveries are shared until either changes them. O([`Self::tail_bytes`]).
    pub(crate) fn tail(&self) -> StreamTail {
        let groups = self.groups.iter().map(|(name, group)| (name.clone(), group.unindexed())).collect();
        StreamTail(Self {
            log: self.log.without_nodes(),
            groups,
            group_bytes: self.group_bytes,
            producers: self.producers.clone(),
        })
    }

    /// Bytes that [`Self::tail`] copies, nearly. O(groups).
    pub(super) fn tail_bytes(&self) -> usize {
        let groups = self.groups.iter().map(|(name, group)| name.len() + group.copied_bytes());
        groups.sum::<usize>()
            + self.groups.len() * size_of::<(Box<[u8]>, ConsumerGroup)>()
            + self.producers().map_or(0, Producers::heap_bytes)
    }
}
