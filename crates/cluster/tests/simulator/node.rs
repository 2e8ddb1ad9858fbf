//! A simulated node: its disk, its process, and what the server will do around the machine.

use std::collections::BTreeMap;

use dunlin_cluster::{
    BootId, HistoryId, NodeId,
    lineage::{Lineage, Writer},
    meta::Revision,
    records::{RequestedChange, ShardRecord},
    shard::{Attach, Local, Shard},
};

use crate::checks::Floor;

/// A record of the log. Two logs with the same chain at one place are the same up to there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub id: u64,
    pub chain: u64,
}

/// Appends an entry.
pub fn append(log: &mut Vec<Entry>, id: u64) {
    let before = log.last().map_or(0, |entry| entry.chain);
    let chain = (before ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ 0x1234_5678;
    log.push(Entry { id, chain });
}

/// Whether one of the logs is the beginning of the other.
pub fn agree(one: &[Entry], other: &[Entry]) -> bool {
    let shared = one.len().min(other.len());
    shared == 0 || one[shared - 1] == other[shared - 1]
}

/// A reply that waits for its effects to be committed.
#[derive(Debug, Clone)]
pub struct Withheld {
    pub client: usize,
    pub number: u64,
    /// The length of the log that the reply has seen.
    pub seen: u64,
    pub is_write: bool,
    pub known: Floor,
}

/// The running process.
pub struct Process {
    pub boot: BootId,
    /// `None` until its start is written down, and while the node is not part of the shard that it has left.
    pub shard: Option<Shard>,
    /// Set once it has left the shard: the number of replacements of its data until then.
    pub left: Option<u64>,
    pub withheld: Vec<Withheld>,
    pub parked: bool,
    /// The proposals that were sent, and when they are given up.
    pub asked: BTreeMap<u64, u64>,
    /// Until then the link to the primary before is not cut.
    pub linked_until: u64,
    /// Signs its changes.
    pub writer: Writer,
    /// The revisions of all marks, as it has obeyed them last.
    pub marks: BTreeMap<NodeId, Revision>,
    /// The store is not the one that the node has obeyed.
    pub strays: bool,
    pub view: View,
}

/// The newest view of the records.
#[derive(Default)]
pub struct View {
    /// When it came.
    pub came: u64,
    /// The revision of the shard's record.
    pub record: Revision,
    /// The revisions of nodes' records.
    pub nodes: BTreeMap<NodeId, Revision>,
}

/// The log that a start loads as long as the one of a copy has no base.
#[derive(Debug, Clone)]
pub struct OldLog {
    pub entries: Vec<Entry>,
    pub history: Option<HistoryId>,
}

/// A node: what survives a crash, and the process.
pub struct Node {
    pub id: NodeId,
    /// Local milliseconds for a thousand of the world's.
    pub rate: u64,
    /// Everything that the process has.
    pub log: Vec<Entry>,
    /// How much of it is on disk.
    pub synced: usize,
    /// The history that the data goes by: the one before, until the link to the next one's primary is up.
    pub history: Option<HistoryId>,
    /// The data is a copy, and its log has no base yet.
    pub before_copy: Option<OldLog>,
    /// Counts the times that the data was replaced.
    pub copies: u64,
    /// A rule that is broken on purpose: a copy counts at once.
    pub trusts_copies: bool,
    /// The last process ended in good order, or everything is synced before it counts.
    pub clean: bool,
    pub process: Option<Process>,
    /// The marks of the newest state of the store that it has obeyed, in its file.
    pub lineage: Lineage,
    /// Counts the changes of that: an answer to a question of before is old news.
    pub joins: u64,
    pub paused_until: u64,
    pub starts: u64,
}

impl Node {
    /// Returns the time of the node's own clock. Clocks begin anywhere.
    pub fn clock(&self, now: u64) -> u64 {
        1_000_000 * (1 + u64::from(self.id.bytes()[0])) + now * self.rate / 1000
    }

    pub fn shard(&self) -> Option<&Shard> {
        self.process.as_ref().and_then(|process| process.shard.as_ref())
    }

    pub fn local(&self, is_durable: bool) -> Local {
        let held = match is_durable {
            true if self.has_base() => self.synced,
            true => 0,
            false => self.log.len(),
        };
        Local { history: self.history, end: self.log.len() as u64, held: held as u64, clean: self.clean }
    }

    /// Whether a start would load what is synced.
    pub fn has_base(&self) -> bool {
        self.before_copy.is_none() || self.trusts_copies
    }

    /// The data is replaced. A start loads the former data, as long as the new log has no base.
    pub fn replace(&mut self) {
        let entries = self.log[..self.synced].to_vec();
        self.before_copy.get_or_insert(OldLog { entries, history: self.history });
        (self.log, self.synced) = (Vec::new(), 0);
        self.copies += 1;
    }

    /// Keeps marks that the node obeys.
    pub fn join(&mut self, lineage: &Lineage) {
        if !self.lineage.covers(lineage) {
            self.lineage.join(lineage);
            self.joins += 1;
        }
    }

    pub fn leads(&self) -> bool {
        self.shard().is_some_and(Shard::leads)
    }

    pub fn is_streaming(&self) -> bool {
        self.shard().is_some_and(|shard| !shard.leads() && shard.attach() == Attach::Stream)
    }
}

/// Returns what an operator may ask for, a record, by chance.
pub fn requested_change(record: &ShardRecord, pick: usize, is_release: bool) -> Option<RequestedChange> {
    let others: Vec<NodeId> = record.in_sync.iter().copied().filter(|node| *node != record.primary).collect();
    let node = *others.get(pick % others.len().max(1))?;
    Some(if is_release { RequestedChange::Release(node) } else { RequestedChange::HandOver(node) })
}
