//! A node's view of its shard, as a state machine: who serves, what is committed, who takes over.
//!
//! ```text
//!               record: primary is somebody else              record: this node is primary
//!  ┌─────────┐ ─────────────────────────────────▶ ┌────────┐ ─────────────────────────────▶ ┌─────────┐
//!  │ outside │                                    │ follow │                                │  lead   │
//!  └─────────┘ ◀───────────────────────────────── └────────┘ ◀───────────────────────────── └─────────┘
//!               record: no part of the shard        echoes heartbeats      record: somebody else is
//! ```
//!
//! The machine reads no clock and sends nothing: [`Shard::step`] takes an event and appends actions, which the caller carries
//! out. Times are the node's own monotonic milliseconds. The record changes by [`table`] only.
//!
//! Invariants, which `tests/simulator` checks under every fault it can think of:
//! - **Lease.** A primary answers only while it holds unexpired leases of all other members of the in-sync set. A lease counts
//!   from when its heartbeat was sent; the promise behind it counts from when the heartbeat was received, and is longer.
//! - **Commit.** A write is committed when all members have it. While the outcome of a proposal is not known, commits and leases
//!   need the members of the record before and after it.
//! - **Unknown.** A proposal whose outcome is unknown is settled when a key that it compares has moved beyond the
//!   compared revision: no copy of the proposal can succeed then, and the record says which proposal won. Until then it
//!   is proposed again.
//! - **Promise.** A node whose takeover is not settled answers no heartbeat.
//! - **Takeover.** A member that has all that it ever acknowledged has all that is committed: nothing is without it.
//!   Such a member may take over whatever the record's history is; others get copies if theirs does not fit.
//! - **Process.** Each start writes the node's record anew, by compare-and-set, before anything else. Proposals compare it, and
//!   words of earlier processes count for nothing.
//! - **Copy.** A node whose data is replaced has lost it until the primary of a record in which it is a learner
//!   confirms two things: it counts nothing from before, and it has no admission under way that does.
//! - **Lineage.** Records of a store that has not come from the one that this node has obeyed are not fed to it. The
//!   caller compares marks ([`crate::lineage`]) before [`Event::Watched`] and [`Event::Read`], and the machine those of
//!   a message with a record. A proposal compares the marks of the record's nodes, because revisions of two lines may
//!   be the same by chance.
//! - **Backup.** A store that was restored from a backup has an older record than some node, and may have let another
//!   one lead. A node that finds out that its own record is of the backup stops, and keeps its data. The signs: a
//!   linearizable read showed an older epoch than was heard of before; or a primary that may answer knows another
//!   record of the epoch, or one that is newer by its revision and older by its epoch.
//! - **Restart.** A process that has lost what it acknowledged is not a member, whatever the record says: it promises
//!   nothing, takes nothing over, and asks to be expelled. A primary that restarts leads again only in a new epoch.

mod event;
mod follow;
mod lead;
mod lines;
mod message;
mod options;
mod proposals;
pub mod table;

use std::collections::BTreeMap;

pub use event::{Action, Attach, Event, Local};
pub use message::{Known, Message, Proposal};
pub use options::{Fault, Options};
pub use table::{Facts, Transition};

use crate::{
    BootId, HistoryId, NodeId, ShardId,
    lineage::Lineage,
    meta::Revision,
    records::{Restart, ShardRecord},
};

use lead::Lead;
use lines::Halted;
use proposals::Pending;

/// The knowledge of a node's process.
#[derive(Debug, Clone)]
struct Process {
    revision: Revision,
    boot: BootId,
    restart: Option<Restart>,
}

/// The machine.
#[derive(Debug)]
pub struct Shard {
    me: NodeId,
    shard: ShardId,
    boot: BootId,
    options: Options,
    known: Option<Known>,
    /// The newest epoch heard of.
    epoch_seen: u64,
    local: Local,
    /// Counts the times that the data was replaced.
    copies: u64,
    /// No node counts on what this process had before the data was replaced last: the primary has said so.
    is_counted: bool,
    commit: u64,
    lead: Option<Lead>,
    /// The node may be primary by the record without leading: its process has restarted since.
    restarted: bool,
    attach: Attach,
    /// No takeover before this time.
    promised_until_ms: u64,
    rank: u32,
    /// The last heartbeat that was answered: its sender, epoch and time.
    answered: Option<(NodeId, u64, u64)>,
    /// The commit of the primary's last heartbeat of the current epoch, and when that came.
    heard: Option<(u64, u64)>,
    pending: Option<Pending>,
    next_number: u64,
    /// The record is to be read.
    read_wanted: bool,
    read_at_ms: u64,
    reads: u64,
    /// The newest epoch heard of when the last read began.
    epoch_before_read: u64,
    propose_at_ms: u64,
    nodes: BTreeMap<NodeId, Process>,
    /// The time since which no member has all that was acknowledged, as far as this node knows.
    recovers_since_ms: Option<u64>,
    /// The marks of the newest state of the store that the node has obeyed.
    lineage: Lineage,
    /// The revisions of the marks of the record's nodes; `None`: the caller signs nothing.
    marks: Option<BTreeMap<NodeId, Revision>>,
    /// The process is about to end.
    is_ending: bool,
    /// Whether the part of the data that counts does not grow.
    is_failing: bool,
    halted: Option<Halted>,
}

impl Shard {
    /// A process that has just started, and promises everything that the one before it may have promised. `copies` counts how often
    /// its data was replaced where it was part of this shard before.
    pub fn new(
        me: NodeId,
        shard: ShardId,
        boot: BootId,
        options: Options,
        local: Local,
        copies: u64,
        now_ms: u64,
    ) -> Self {
        assert!(options.lease_ms < options.grace_ms, "a promise outlasts the lease that rests on it");
        let clean = local.clean && copies == 0 || options.fault == Some(Fault::LostIsClean);
        Self {
            me,
            shard,
            boot,
            promised_until_ms: now_ms + options.grace_ms,
            options,
            known: None,
            epoch_seen: 0,
            local: Local { clean, ..local },
            copies,
            is_counted: copies == 0,
            commit: 0,
            lead: None,
            restarted: true,
            attach: Attach::Not,
            rank: 0,
            answered: None,
            heard: None,
            pending: None,
            next_number: 0,
            read_wanted: true,
            read_at_ms: now_ms,
            reads: 0,
            epoch_before_read: 0,
            propose_at_ms: now_ms,
            nodes: BTreeMap::new(),
            recovers_since_ms: None,
            lineage: Lineage::default(),
            marks: None,
            is_ending: false,
            is_failing: false,
            halted: None,
        }
    }

    /// Returns a machine that begins with the data of this one, in the same process, and knows no record: an operator
    /// has decided which line of the store is right, and records may have any numbers. The machine promises everything
    /// that this one may have promised.
    #[must_use]
    pub fn anew(&self, now_ms: u64) -> Self {
        let (me, shard, boot, options) = (self.me, self.shard, self.boot, self.options.clone());
        let machine = Self::new(me, shard, boot, options, self.local, self.copies, now_ms);
        Self {
            local: self.local,
            is_counted: self.is_counted,
            next_number: self.next_number,
            reads: self.reads,
            lineage: self.lineage.clone(),
            is_ending: self.is_ending,
            ..machine
        }
    }

    /// Returns the record that is known, and its revision.
    pub fn known(&self) -> Option<&Known> {
        self.known.as_ref()
    }

    fn record(&self) -> Option<&ShardRecord> {
        self.known.as_ref().map(|(_, record)| record)
    }

    fn revision(&self) -> Revision {
        self.known.as_ref().map_or(0, |(revision, _)| *revision)
    }

    /// Returns the newest epoch that is known. Streams and messages of older ones are refused.
    pub fn epoch(&self) -> u64 {
        self.epoch_seen.max(self.record().map_or(0, |record| record.epoch))
    }

    /// Whether this node is the primary. A primary answers only while [`Shard::lease_until_ms`] is ahead.
    pub fn leads(&self) -> bool {
        self.lead.is_some()
    }

    /// Returns the marks of the newest state of the store that the node has obeyed. To be kept before it is acted upon.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// Whether the in-sync set is large enough for writes.
    pub fn is_writable(&self) -> bool {
        self.leads() && self.record().is_some_and(|record| record.in_sync.len() >= self.options.min_sync)
    }

    /// Returns the offset up to which everything is committed, as far as this node knows.
    pub fn commit(&self) -> u64 {
        self.commit
    }

    /// Returns the commit of the primary's last heartbeat of this epoch, and when that came, by this node's clock.
    pub fn heard(&self) -> Option<(u64, u64)> {
        self.heard
    }

    /// Returns what the node has.
    pub fn local(&self) -> Local {
        self.local
    }

    /// Returns how often the data was replaced since the process started.
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// Returns how this node follows.
    pub fn attach(&self) -> Attach {
        self.attach
    }

    /// Whether the stream of this epoch and history may be applied now.
    pub fn accepts(&self, epoch: u64, history: HistoryId) -> bool {
        if self.options.fault == Some(Fault::AcceptStaleEpoch) {
            return !self.leads();
        }
        !self.leads()
            && self.halted.is_none()
            && !self.takes_over()
            && self.attach == Attach::Stream
            && self.record().is_some_and(|record| record.epoch <= epoch && record.history.id == history)
            && epoch >= self.epoch()
            && self.local.history == Some(history)
    }

    /// Whether a copy that the primary made in this epoch may replace the data of this node.
    pub fn accepts_copy(&self, epoch: u64) -> bool {
        let is_at_rest = self.leads() || self.takes_over();
        self.attach == Attach::Copy && !is_at_rest && epoch == self.epoch() && self.is_learner()
    }

    fn is_learner(&self) -> bool {
        self.record().is_some_and(|record| record.learners.contains(&self.me))
    }

    fn is_member(&self) -> bool {
        self.record().is_some_and(|record| record.in_sync.contains(&self.me))
    }

    /// Whether what counts of the data is said not to grow ([`Event::Failing`]).
    pub fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// Whether this node is a member by the record only, or a learner that may not become one yet.
    pub fn is_lost(&self) -> bool {
        let is_idle = self.attach == Attach::Not || self.is_ending;
        let is_lost = !self.local.clean || is_idle && self.is_member() || self.is_failing;
        is_lost && !self.leads() && self.record().is_some_and(|record| record.has(self.me))
    }

    fn is_broken(&self, fault: Fault) -> bool {
        self.options.fault == Some(fault)
    }

    /// Takes an event; appends what is to be done.
    pub fn step(&mut self, now_ms: u64, event: Event, actions: &mut Vec<Action>) {
        if self.halted.is_some() {
            return;
        }
        match event {
            Event::Tick => {}
            Event::Watched(known) => self.adopt(now_ms, known, actions),
            Event::Read(number, known) => self.take_read(now_ms, number, known, actions),
            Event::Unreadable(why) => {
                self.halt(format!("the shard's record is not understood: {why}"), None, actions);
            }
            Event::Obeyed(lineage, marks) => {
                self.lineage.join(&lineage);
                self.marks = Some(marks);
            }
            Event::Node(node, revision, boot, restart) => {
                self.take_node(node, Process { revision, boot, restart })
            }
            Event::Outcome(number, outcome) => self.take_outcome(now_ms, number, outcome, actions),
            Event::Message(from, message) => self.take_message(now_ms, from, message, actions),
            Event::Grown(history, end, held) => self.take_grown(history, end, held, actions),
            Event::Rewound(end) => self.take_rewound(end),
            Event::Copied(history, end, held) => {
                self.replaced(Local { history: Some(history), end, held, clean: false });
                self.join(actions);
            }
            Event::Emptied => {
                self.replaced(Local::default());
                // A copy is coming, so the stream is joined as it was.
                self.attach = Attach::Copy;
            }
            Event::HandOver(to) => self.take_handover(to),
            Event::Rested => self.take_rest(),
            Event::Force(absent) => self.force(now_ms, absent, actions),
            Event::Ending => {
                self.is_ending = true;
                self.echo_again(actions);
            }
            Event::Failing(is_failing) => {
                self.is_failing = is_failing;
                self.echo_again(actions);
            }
        }
        if self.halted.is_none() {
            self.work(now_ms, actions);
        }
    }

    /// Does what is due.
    fn work(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        if self.read_wanted && now_ms >= self.read_at_ms {
            self.read_at_ms = now_ms + self.options.retry_ms;
            self.reads += 1;
            self.epoch_before_read = self.epoch_seen;
            actions.push(Action::Read(self.reads));
        }
        match self.lead.is_some() {
            true => self.work_as_primary(now_ms, actions),
            false => self.work_as_follower(now_ms, actions),
        }
    }

    fn want_read(&mut self) {
        self.read_wanted = true;
    }

    fn take_read(&mut self, now_ms: u64, number: u64, known: Option<Known>, actions: &mut Vec<Action>) {
        let revision = known.as_ref().map_or(0, |(revision, _)| *revision);
        if let Some((_, record)) = &known
            && number == self.reads
            && record.epoch < self.epoch_before_read
        {
            let (epoch, heard) = (record.epoch, self.epoch_before_read);
            return self.halt(
                format!("its shard's record has epoch {epoch}, and another node knows {heard}: etcd was restored from a backup"),
                Some((heard, Lineage::default())),
                actions,
            );
        }
        if let Some(known) = known {
            self.adopt(now_ms, known, actions);
        }
        self.read_wanted = false;
        self.settle(number, revision, actions);
    }

    /// Takes a record. An older one is no news.
    fn adopt(&mut self, now_ms: u64, (revision, record): Known, actions: &mut Vec<Action>) {
        if revision <= self.revision() && self.known.is_some() {
            return;
        }
        if let Some((_, own)) = &self.known
            && record.epoch < own.epoch
        {
            let line = format!(
                "the shard's record went back from epoch {} to {}: it is ignored",
                own.epoch, record.epoch
            );
            actions.push(Action::Warn(line));
            return;
        }
        let is_settled = self.pending.as_ref().is_some_and(|pending| revision > pending.compare);
        let settled = if is_settled { self.pending.take() } else { None };
        let before = self.known.replace((revision, record));
        let (_, record) = self.known.as_ref().expect("just set");
        let is_first = before.is_none();
        let is_new_epoch = before.is_none_or(|(_, before)| before.epoch != record.epoch);
        let is_own = record.primary == self.me;
        // An operator may have decided for a line of the store in which it led by another history.
        let is_same = self.local.history == Some(record.history.id);
        if is_own && self.won(settled.as_ref()) {
            // A recovery has decided what there is. That may be less than what was committed. Data that is not on
            // disk here yet is on no disk that counts.
            (self.local.clean, self.is_counted) = (true, true);
            self.commit = self.commit.min(self.local.held);
        }
        self.owe();
        if is_own {
            if self.lead.is_some() && is_same {
                self.still_leads(settled.is_some(), actions);
            } else if self.lead.is_none() && !is_first && is_new_epoch && self.fits() {
                // In an epoch that it has led before, another process may have written what this one lacks.
                self.begin_to_lead(now_ms, actions);
            } else {
                self.lead = None;
                self.restarted = true;
                self.join(actions);
            }
            return;
        }
        let has_led = self.lead.take().is_some();
        self.restarted = false;
        if is_new_epoch || has_led {
            self.promised_until_ms = self.promised_until_ms.max(now_ms + self.options.grace_ms);
            self.rank = 0;
            self.heard = None;
        }
        if has_led {
            self.pass_on(actions);
        }
        self.join(actions);
    }

    /// Whether this node's data is where the record's history begins.
    fn fits(&self) -> bool {
        self.record().is_some_and(|record| {
            let history = record.history;
            self.local.clean
                && self.local.end == history.from
                && match self.local.history {
                    Some(own) => own == history.id || Some(own) == history.previous,
                    None => history.from == 0,
                }
        })
    }

    fn take_node(&mut self, node: NodeId, process: Process) {
        let is_other = self.nodes.get(&node).is_none_or(|known| known.boot != process.boot);
        if self.nodes.get(&node).is_some_and(|known| known.revision > process.revision) {
            return;
        }
        self.nodes.insert(node, process);
        if let (true, Some(lead)) = (is_other, &mut self.lead) {
            lead.forget(node);
        }
    }

    fn take_message(&mut self, now_ms: u64, from: NodeId, message: Message, actions: &mut Vec<Action>) {
        match message {
            Message::Heartbeat { .. } => self.take_heartbeat(now_ms, from, message, actions),
            Message::Echo { .. } => self.take_echo(now_ms, from, message),
            Message::Stale { record, lineage } => self.take_stale(now_ms, from, *record, *lineage, actions),
        }
    }

    fn raise_commit(&mut self, commit: u64, actions: &mut Vec<Action>) {
        if commit > self.commit {
            self.commit = commit;
            actions.push(Action::Commit(commit));
        }
    }
}

#[cfg(test)]
mod tests;
