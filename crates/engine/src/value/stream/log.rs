//! The entries of a stream, in nodes ordered by ID.
//!
//! Nodes stand in a deque: appending and trimming, the usual work of streams, touch one end of
//! it; an ID is found by bisection. A node that loses its last entry in the middle is taken out, which
//! moves the 40 bytes of each node to one side of it.

use std::{collections::VecDeque, mem, sync::Arc};

use dunlin_structures::{Corrupt, Listpack};

use super::{
    super::incremental_copy::nodes::{NodeCopies, SharedNodeCopy},
    NewId, StreamEntry, StreamId,
    node::{Node, NodeEntries, Placed},
};
use crate::{snapshot::SnapshotQueue, value::CollectionLimits};

/// Longest node or entry, whatever the configuration allows.
const NODE_BYTES_MAX: usize = 1 << 30;
/// Memory for a node is asked for in advance up to here.
const NODE_BYTES_EXPECTED_MAX: usize = 4096;

/// Why an entry is not added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddError {
    /// There is no ID behind the last.
    Exhausted,
    /// The ID is not behind the last.
    NotBehindLast,
    /// Fields and values are too large.
    TooLarge,
}

/// Which entries `XTRIM` and `XADD` remove, from the oldest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimTo {
    /// All but this many entries.
    Length(u64),
    /// Entries before an ID.
    From(StreamId),
}

/// How they are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trim {
    /// Which.
    pub to: TrimTo,
    /// Whether only whole nodes are removed.
    pub is_approximate: bool,
    /// At most this many entries; 0 for no limit.
    pub entries_max: u64,
}

impl Trim {
    /// Whether a log of `len` entries is trimmed enough, or its next node, with `live` entries, is more
    /// than may be removed beside the `removed`.
    fn ends_before(self, len: u64, live: u64, removed: u64) -> bool {
        matches!(self.to, TrimTo::Length(length) if len <= length)
            || self.entries_max > 0 && removed + live > self.entries_max
    }

    /// Whether all entries of the first node of `len` entries go; `next` is the node behind it.
    fn takes_whole(self, node: &Node, next: Option<&Node>, len: u64) -> bool {
        match self.to {
            TrimTo::Length(length) => len - node.live() as u64 >= length,
            // Most nodes need not be looked into.
            TrimTo::From(id) if next.is_some_and(|next| next.first <= id) => true,
            TrimTo::From(id) => node.last().is_none_or(|last| last.entry.id < id),
        }
    }

    /// Whether an entry stays, being the first of `len`.
    fn keeps(self, id: StreamId, len: u64) -> bool {
        match self.to {
            TrimTo::Length(length) => len <= length,
            TrimTo::From(first) => id >= first,
        }
    }
}

/// The entries that trimming has removed.
#[derive(Debug, Default)]
pub struct Trimmed {
    /// How many entries.
    pub entries: u64,
    /// The nodes that went whole: most of the memory, to be freed when no client waits.
    nodes: VecDeque<Node>,
}

impl Trimmed {
    /// A selection of `entries` entries, removed one by one.
    pub(super) fn singly(entries: u64) -> Self {
        Self { entries, nodes: VecDeque::new() }
    }

    /// Whether freeing it takes long enough to be done elsewhere.
    pub fn is_large(&self) -> bool {
        /// 256 KiB of nodes, as they are by default.
        const NODES_MAX: usize = 64;
        self.nodes.len() > NODES_MAX
    }
}

/// Entries by ID, and the memory of those that are gone.
#[derive(Debug, Clone, Default)]
pub struct StreamLog {
    nodes: VecDeque<Node>,
    /// Bytes that the nodes' listpacks have allocated.
    listpack_bytes: usize,
    len: u64,
    last_id: StreamId,
    /// ID of the first live entry; `0-0` if there is none.
    first_id: StreamId,
    max_deleted_id: StreamId,
    entries_added: u64,
    copies: NodeCopies,
}

impl StreamLog {
    /// Begins to hand all nodes over to a snapshot. None of it is under way. O(1).
    pub(in crate::value) fn begin_copy(&self, snapshot_queue: &Arc<SnapshotQueue>) -> SharedNodeCopy {
        let last = self.nodes.back().map_or(StreamId::MIN, |node| node.first);
        self.copies.begin(self.nodes.len(), last, snapshot_queue)
    }

    /// Goes on as the original of a copy: nodes that snapshots copy are copied from here, too.
    pub(in crate::value) fn carry_copies(&self, from: &Self) {
        self.copies.carry(&from.copies);
    }

    /// Returns its knowledge of entries without the entries, for files.
    pub(super) fn without_nodes(&self) -> Self {
        Self { nodes: VecDeque::new(), listpack_bytes: 0, copies: NodeCopies::default(), ..*self }
    }

    /// Sets a node aside as it was, before it changes.
    #[inline]
    fn preserve(&mut self, at: usize) {
        let node = &self.nodes[at];
        self.copies.preserve(node.first, &node.entries);
    }

    /// Live entries. O(1).
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no live entry. O(1).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The ID of the entry added last, or the one that `XSETID` has set.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// The ID of the first live entry, `0-0` if there is none.
    pub fn first_id(&self) -> StreamId {
        self.first_id
    }

    /// The largest ID that `XDEL` has removed.
    pub fn max_deleted_id(&self) -> StreamId {
        self.max_deleted_id
    }

    /// Entries ever added.
    pub fn entries_added(&self) -> u64 {
        self.entries_added
    }

    /// How many listpacks hold the entries.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes of the listpack of each node, by its ID.
    pub fn listpacks(&self) -> impl Iterator<Item = (StreamId, &Listpack)> {
        self.nodes.iter().map(|node| (node.first, &node.entries))
    }

    /// The listpacks of nodes whose ID is `from` or larger. O(log n) to begin with.
    pub(in crate::value) fn listpacks_from(
        &self,
        from: StreamId,
    ) -> impl Iterator<Item = (StreamId, &Listpack)> {
        let first = self.nodes.partition_point(|node| node.first < from);
        self.nodes.range(first..).map(|node| (node.first, &node.entries))
    }

    /// Bytes outside the log itself. O(1).
    pub fn heap_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.listpack_bytes
    }

    /// The log of nodes from outside, whose listpacks have been found sound. The IDs and counts are taken as given, but
    /// for those that the nodes show more exactly.
    pub fn from_parts(
        listpacks: impl IntoIterator<Item = (StreamId, Listpack)>,
        last_id: StreamId,
        max_deleted_id: StreamId,
        entries_added: u64,
    ) -> Result<Self, Corrupt> {
        let mut log = Self { last_id, max_deleted_id, entries_added, ..Self::default() };
        for (first, listpack) in listpacks {
            let before = log.nodes.back().and_then(|node| node.last()).map(|placed| placed.entry.id);
            if before.is_some_and(|before| first <= before) {
                return Err(Corrupt("stream nodes are out of order"));
            }
            let node = Node::from_listpack(first, listpack)?;
            // Redis may leave such a node behind.
            if node.live() == 0 {
                continue;
            }
            log.len += node.live() as u64;
            log.listpack_bytes += node.entries.capacity();
            log.nodes.push_back(node);
        }
        log.first_id = log.iter().next().map_or(StreamId::MIN, |entry| entry.id);
        let last = log.nodes.back().and_then(|node| node.last()).map(|placed| placed.entry.id);
        if last.is_some_and(|last| last > last_id) {
            return Err(Corrupt("stream has entries behind its last ID"));
        }
        Ok(log)
    }

    /// The ID that an entry would get at `now_ms`.
    fn next_id(&self, id: NewId, now_ms: u64) -> Result<StreamId, AddError> {
        let last = self.last_id;
        if last == StreamId::MAX {
            return Err(AddError::Exhausted);
        }
        let id = match id {
            NewId::Auto if now_ms > last.ms => StreamId::new(now_ms, 0),
            NewId::Auto => last.next().ok_or(AddError::Exhausted)?,
            NewId::Millisecond(ms) if ms == last.ms => {
                let seq = last.seq.checked_add(1).ok_or(AddError::NotBehindLast)?;
                StreamId { ms, seq }
            }
            NewId::Millisecond(ms) => StreamId::new(ms, 0),
            NewId::Exactly(id) => id,
        };
        if id > last { Ok(id) } else { Err(AddError::NotBehindLast) }
    }

    /// Appends an entry of fields and values, alternating; its ID. O(1) amortized.
    pub fn add(
        &mut self,
        id: NewId,
        pairs: &[&[u8]],
        now_ms: u64,
        limits: &CollectionLimits,
    ) -> Result<StreamId, AddError> {
        let id = self.next_id(id, now_ms)?;
        let bytes = pairs.iter().map(|item| item.len()).sum::<usize>();
        if bytes > NODE_BYTES_MAX {
            return Err(AddError::TooLarge);
        }
        let bytes_max = match limits.stream_node_max_bytes {
            0 => NODE_BYTES_MAX,
            bytes => bytes.min(NODE_BYTES_MAX),
        };
        let entries_max = limits.stream_node_max_entries;
        match self.nodes.back_mut() {
            Some(node) if !node.is_full(bytes, bytes_max, entries_max) => {
                self.copies.preserve(node.first, &node.entries);
                let before = node.entries.capacity();
                node.push(id, pairs);
                self.listpack_bytes = self.listpack_bytes - before + node.entries.capacity();
            }
            full => {
                // A stream that has filled a node will fill the next; a new one may stay small.
                let expected = match &full {
                    Some(_) => bytes_max.min(NODE_BYTES_EXPECTED_MAX),
                    None => 0,
                };
                if let Some(full) = full {
                    let before = full.entries.capacity();
                    full.entries.shrink_to_fit();
                    self.listpack_bytes = self.listpack_bytes - before + full.entries.capacity();
                }
                let node = Node::new(id, pairs, expected);
                self.listpack_bytes += node.entries.capacity();
                self.nodes.push_back(node);
            }
        }
        self.len += 1;
        self.entries_added += 1;
        self.last_id = id;
        if self.len == 1 {
            self.first_id = id;
        }
        Ok(id)
    }

    /// The number of the node that an entry of that ID would stand in; O(log n).
    fn node_of(&self, id: StreamId) -> Option<usize> {
        self.nodes.partition_point(|node| node.first <= id).checked_sub(1)
    }

    /// Roughly how many entries have an ID from `start` through `end`: as many as the nodes that reach into the
    /// range have on average. O(log n).
    pub fn entries_about(&self, start: StreamId, end: StreamId) -> usize {
        let Some(last) = self.node_of(end) else { return 0 };
        let nodes = (last + 1).saturating_sub(self.node_of(start).unwrap_or(0));
        let entries_per_node = self.len.div_ceil(self.nodes.len() as u64) as usize;
        nodes * entries_per_node
    }

    /// Whether there is a live entry of that ID. O(log n).
    pub fn contains(&self, id: StreamId) -> bool {
        self.get(id).is_some()
    }

    /// The live entry of that ID. O(log n).
    pub fn get(&self, id: StreamId) -> Option<StreamEntry<'_>> {
        let node = &self.nodes[self.node_of(id)?];
        let mut entries = node.iter();
        let placed = entries.find(|placed| placed.entry.id >= id)?;
        (placed.entry.id == id && placed.is_live).then_some(placed.entry)
    }

    /// Removes an entry, as `XDEL` does. Returns whether it was there. O(log n).
    pub fn remove(&mut self, id: StreamId) -> bool {
        let removed = self.remove_entry(id);
        if removed {
            self.max_deleted_id = self.max_deleted_id.max(id);
            if id == self.first_id || self.len == 0 {
                self.find_first();
            }
        }
        removed
    }

    fn remove_entry(&mut self, id: StreamId) -> bool {
        let Some(at) = self.node_of(id) else { return false };
        self.preserve(at);
        let before = self.nodes[at].entries.capacity();
        if !self.nodes[at].delete(id) {
            return false;
        }
        self.listpack_bytes = self.listpack_bytes - before + self.nodes[at].entries.capacity();
        self.len -= 1;
        if self.nodes[at].live() == 0 {
            self.take_node(at);
        }
        true
    }

    fn take_node(&mut self, at: usize) -> Node {
        let node = self.nodes.remove(at).expect("the node is there");
        self.listpack_bytes -= node.entries.capacity();
        self.give_room_back();
        node
    }

    /// The first `count` nodes. Whichever are fewer are moved, those or the others: memory for a hundred thousand,
    /// fresh from the system, would take longer to come by than they take to be looked at.
    fn take_front(&mut self, count: usize) -> VecDeque<Node> {
        if count > self.nodes.len() / 2 {
            let rest = self.nodes.split_off(count);
            return mem::replace(&mut self.nodes, rest);
        }
        let front = self.nodes.drain(..count).collect();
        self.give_room_back();
        front
    }

    /// Lets copies keep nodes that were taken out; returns the others.
    fn keep_taken(&mut self, nodes: VecDeque<Node>) -> VecDeque<Node> {
        if self.copies.are_none() {
            return nodes;
        }
        let others = nodes.into_iter().filter_map(|mut node| {
            node.entries = self.copies.keep_taken(node.first, node.entries)?;
            Some(node)
        });
        others.collect()
    }

    /// A long queue that has been trimmed gives its memory back.
    fn give_room_back(&mut self) {
        if self.nodes.len() < self.nodes.capacity() / 4 {
            self.nodes.shrink_to(self.nodes.len() * 2);
        }
    }

    fn find_first(&mut self) {
        self.first_id = self.iter().next().map_or(StreamId::MIN, |entry| entry.id);
    }

    /// Removes entries from the oldest on. O(nodes removed), which are looked at but not moved if fewer stay.
    pub fn trim(&mut self, trim: Trim) -> Trimmed {
        let (mut removed, mut whole, mut ends) = (0, 0, true);
        while let Some(node) = self.nodes.get(whole) {
            let live = node.live() as u64;
            ends = trim.ends_before(self.len, live, removed);
            if ends || !trim.takes_whole(node, self.nodes.get(whole + 1), self.len) {
                break;
            }
            self.listpack_bytes -= node.entries.capacity();
            self.len -= live;
            removed += live;
            whole += 1;
        }
        let nodes = self.take_front(whole);
        let nodes = self.keep_taken(nodes);
        if !ends && !trim.is_approximate && !self.nodes.is_empty() {
            removed += self.trim_front_node(trim);
        }
        if removed > 0 {
            self.find_first();
        }
        Trimmed { entries: removed, nodes }
    }

    /// The IDs of the entries that [`Self::trim`] would remove but for those that `keeps` says; in place
    /// of the latter, younger ones are removed if a length is to be reached. O(entries).
    pub(super) fn select(&self, trim: Trim, mut keeps: impl FnMut(StreamId) -> bool) -> Vec<StreamId> {
        let (mut len, mut selected) = (self.len, Vec::new());
        for (at, node) in self.nodes.iter().enumerate() {
            if trim.ends_before(len, node.live() as u64, selected.len() as u64)
                || trim.is_approximate && !trim.takes_whole(node, self.nodes.get(at + 1), len)
            {
                break;
            }
            for placed in node.iter().filter(|placed| placed.is_live) {
                if trim.keeps(placed.entry.id, len) {
                    return selected;
                }
                if !keeps(placed.entry.id) {
                    selected.push(placed.entry.id);
                    len -= 1;
                }
            }
        }
        selected
    }

    /// Removes entries of the first node, which has some behind the bound.
    fn trim_front_node(&mut self, trim: Trim) -> u64 {
        self.preserve(0);
        let mut len = self.len;
        let node = self.nodes.front_mut().expect("the caller looked at it");
        let before = node.entries.capacity();
        let removed = node.delete_while(|placed| {
            if trim.keeps(placed.entry.id, len) {
                return None;
            }
            len -= u64::from(placed.is_live);
            Some(true)
        });
        self.listpack_bytes = self.listpack_bytes - before + node.entries.capacity();
        self.len -= removed as u64;
        // Entries behind the bound may all have been deleted before.
        if node.live() == 0 {
            self.take_node(0);
        }
        removed as u64
    }

    /// Changes the log's part of `XSETID`; the caller has checked that entries and IDs stay in order.
    pub(super) fn set_ids(
        &mut self,
        last_id: StreamId,
        entries_added: Option<u64>,
        max_deleted_id: Option<StreamId>,
    ) {
        self.copies.note_last_id(last_id);
        self.last_id = last_id;
        self.entries_added = entries_added.unwrap_or(self.entries_added);
        self.max_deleted_id = max_deleted_id.unwrap_or(self.max_deleted_id);
    }

    /// The ID of the last live entry.
    pub fn last_entry_id(&self) -> Option<StreamId> {
        self.range_reversed(StreamId::MIN, StreamId::MAX).next().map(|entry| entry.id)
    }

    /// All live entries in order.
    pub fn iter(&self) -> StreamRange<'_> {
        self.range(StreamId::MIN, StreamId::MAX)
    }

    /// The live entries from `start` to `end`, both included. O(log n) to begin with.
    pub fn range(&self, start: StreamId, end: StreamId) -> StreamRange<'_> {
        let at = self.node_of(start).unwrap_or(0);
        StreamRange::new(self, at, start, end, false)
    }

    /// The entries from `end` to `start`.
    pub fn range_reversed(&self, start: StreamId, end: StreamId) -> StreamRange<'_> {
        match self.node_of(end) {
            Some(at) => StreamRange::new(self, at, start, end, true),
            None => StreamRange::new(self, self.nodes.len(), start, end, true),
        }
    }

    /// Whether no entry behind the first one has been removed.
    pub(super) fn is_whole(&self) -> bool {
        self.max_deleted_id == StreamId::MIN || self.max_deleted_id < self.first_id
    }

    /// Whether an entry behind `start` has been removed, and not merely trimmed away, so that counting
    /// entries from there may miscount.
    pub(super) fn has_gaps_behind(&self, start: StreamId) -> bool {
        self.len > 0 && !self.is_whole() && start < self.max_deleted_id
    }

    /// The number of an entry among all ever added, counted from 1, if it can be known; of an ID without an entry, how
    /// many are not behind it.
    pub(crate) fn number_of(&self, id: StreamId) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if self.len == 0 && id <= self.last_id || id == self.last_id {
            return Some(self.entries_added);
        }
        if id > self.last_id {
            return None;
        }
        match id.cmp(&self.first_id) {
            std::cmp::Ordering::Less if self.is_whole() => Some(self.entries_added.saturating_sub(self.len)),
            std::cmp::Ordering::Equal if self.is_whole() => {
                Some(self.entries_added.saturating_sub(self.len) + 1)
            }
            _ => None,
        }
    }
}

/// Live entries of a stream in one direction.
#[derive(Clone)]
pub struct StreamRange<'a> {
    log: &'a StreamLog,
    /// The node of `entries`.
    at: usize,
    entries: Option<NodeEntries<'a>>,
    start: StreamId,
    end: StreamId,
    is_reversed: bool,
}

impl<'a> StreamRange<'a> {
    fn new(log: &'a StreamLog, at: usize, start: StreamId, end: StreamId, is_reversed: bool) -> Self {
        let mut range = Self { log, at, entries: None, start, end, is_reversed };
        range.enter_node();
        range
    }

    fn enter_node(&mut self) {
        let node = self.log.nodes.get(self.at);
        self.entries = node.map(|node| if self.is_reversed { node.iter_reversed() } else { node.iter() });
    }
}

impl<'a> Iterator for StreamRange<'a> {
    type Item = StreamEntry<'a>;

    fn next(&mut self) -> Option<StreamEntry<'a>> {
        loop {
            for Placed { entry, is_live, .. } in self.entries.as_mut()? {
                let is_past = if self.is_reversed { entry.id < self.start } else { entry.id > self.end };
                if is_past {
                    self.entries = None;
                    return None;
                }
                if is_live && entry.id >= self.start && entry.id <= self.end {
                    return Some(entry);
                }
            }
            self.at = if self.is_reversed { self.at.wrapping_sub(1) } else { self.at + 1 };
            self.enter_node();
        }
    }
}
