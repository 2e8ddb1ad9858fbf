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
//! - **Unknown.** A proposal whose outcome is unknown is settled when a key that it compares has moved beyond the compared
//!   revision: no copy of the proposal can succeed any more, and the record says who won. Until then it is proposed again.
//! - **Promise.** A node whose takeover is not settled answers no heartbeat.
//! - **Takeover.** A member that has all that it ever acknowledged has all that is committed: nothing is without it. It may take over
//!   whatever the record's history is; others get copies where theirs does not fit.
//! - **Process.** Each start writes the node's record anew, by compare-and-set, before anything else. Proposals compare it, and
//!   words of earlier processes count for nothing.
//! - **Copy.** A node whose data is replaced has lost it, until the primary of a record in which it is a learner has said that it
//!   counts nothing from before, and has no admission under way that does.
//! - **Lineage.** Records of a store that has not come from the one that this node has obeyed are not fed to it: the caller compares
//!   marks ([`crate::lineage`]) before [`Event::Watched`] and [`Event::Read`], and the machine those of a message with a record. A
//!   proposal compares the marks of the record's nodes, because revisions of two lines may be the same by chance.
//! - **Backup.** A store that was restored from a backup has an older record than some node, and may have had another one lead. A
//!   node that finds out that its own record is of the backup stops, and keeps its data: a linearizable read showed an older epoch
//!   than was heard of before, or a primary that may answer knows another record of the epoch, or one that is newer by its revision
//!   and older by its epoch.
//! - **Restart.** A process that has lost what it acknowledged is no member, whatever the record says: it promises nothing,
//!   takes nothing over, and asks to be expelled. A primary that restarts leads again only in a new epoch.

mod follow;
mod lead;
mod message;
pub mod table;

use std::collections::{BTreeMap, BTreeSet};

pub use message::{Known, Message, Proposal};
pub use table::{Facts, Transition};

use crate::{
    BootId, HistoryId, NodeId, ShardId,
    lineage::{DECISION_EPOCHS, Lineage},
    meta::{Outcome, Revision},
    records::{Restart, ShardRecord},
    times,
};

use lead::Lead;

/// Times and wishes. All times are milliseconds.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a lease lasts, from the heartbeat's sending: L.
    pub lease_ms: u64,
    /// How long the promise behind it lasts, from the heartbeat's receipt: G. Safe while rates of clocks differ by less than
    /// G/L.
    pub grace_ms: u64,
    /// Between two heartbeats.
    pub heartbeat_ms: u64,
    /// A member with less data waits so much longer for each one with more.
    pub rank_ms: u64,
    /// A member that lacks for so long what the primary had is expelled.
    pub lag_ms: u64,
    /// The longest that commands are parked for a handover that does not come about.
    pub handover_ms: u64,
    /// Between two attempts to read or to propose.
    pub retry_ms: u64,
    /// How long a member that has lost data waits for learners to report what they have.
    pub recover_ms: u64,
    /// Members that a write needs.
    pub min_sync: usize,
    /// A rule that is broken on purpose.
    #[doc(hidden)]
    pub fault: Option<Fault>,
}

impl Default for Options {
    /// The times of [`crate::times`].
    fn default() -> Self {
        Self {
            lease_ms: times::LEASE_MS,
            grace_ms: times::PROMISE_MS,
            heartbeat_ms: times::HEARTBEAT_MS,
            rank_ms: times::RANK_MS,
            lag_ms: times::LAG_MS,
            handover_ms: times::HANDOVER_MS,
            retry_ms: times::RETRY_MS,
            recover_ms: times::RECOVER_MS,
            min_sync: 1,
            fault: None,
        }
    }
}

/// Rules that the simulator breaks, one at a time, to prove that its checks would see it.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A write is committed when most members have it.
    CommitByMajority,
    /// A lease counts from when its echo came.
    LeaseFromReceipt,
    /// A takeover compares nothing.
    TakeOverWithoutCompare,
    /// A demoted primary keeps what was not committed.
    KeepTail,
    /// An unknown outcome counts as a failure.
    UnknownIsFailure,
    /// A process that has lost its tail remains a member.
    LostIsClean,
    /// A member whose data is gone remains one.
    EmptiedIsClean,
    /// A node is believed to have what it had before its data was replaced by a copy.
    HeldOutlivesCopy,
    /// A copy counts before the primary has said that it counts nothing from before it.
    CopyCountsAtOnce,
    /// A copy counts as synced before a start would load it: the log that it begins has no base yet.
    CopyCountsWithoutBase,
    /// A heartbeat is answered although a takeover is under way.
    PromiseWhileTakingOver,
    /// A learner is admitted on the word of a process that may be gone.
    AdmitOnHearsay,
    /// A proposal is good although its process has ended.
    ProposeAfterDeath,
    /// The lease is not looked at.
    ServeWithoutLease,
    /// Replies leave before their writes are committed.
    AnswerUncommitted,
    /// A stream of an older epoch is applied.
    AcceptStaleEpoch,
    /// A store is obeyed whose numbers are high enough, whatever it has come from.
    ObeyRestored,
    /// A recovery looks at members only: one that has nothing beats a learner.
    RecoverMembersOnly,
    /// Slots: the target serves before the record says so.
    ServeImporting,
    /// Slots: a new primary serves by the record as it was before its takeover.
    ServeUnread,
    /// Slots: the source gives away what the target has not committed.
    GiveEarly,
    /// Slots: the source gives slots away while others that it was given could still vanish from its log.
    GiveUnsettled,
}

/// A node's part of its shard's data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Local {
    /// The history that it is part of; `None`: it has nothing.
    pub history: Option<HistoryId>,
    /// Where it ends.
    pub end: u64,
    /// How much of it counts: what is synced under `appendfsync always`, so that the next start loads it; everything otherwise.
    /// `held <= end`.
    pub held: u64,
    /// Whether it is all that was ever acknowledged, of this node's own word. A start decides it, and after it the replacement of
    /// the data. To be kept as durably as the data, before that is replaced: the next start has to know it.
    pub clean: bool,
}

/// How a follower gets the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attach {
    /// From where its data ends.
    Stream,
    /// After its data has been cut to this offset: [`Event::Rewound`] is to follow. Until then nothing is applied.
    Rewind(u64),
    /// After a copy of the primary's data has replaced its own: [`Event::Copied`] is to follow.
    Copy,
    /// Not at all: it is a member by the record, and has lost what it had, or the record does not say how its data belongs to the
    /// history. It is going to be a learner; in the second case it may take over before.
    Not,
}

/// An input.
#[derive(Debug, Clone)]
pub enum Event {
    /// Time has passed. To be fed at least every `heartbeat_ms / 2`.
    Tick,
    /// The record, as a watch reports it, or a message. The first one has to come by [`Event::Read`].
    Watched(Known),
    /// The record, as the read with this number shows it, which began after its [`Action::Read`]; `None`: there is none.
    Read(u64, Option<Known>),
    /// The record is one that this server does not understand. It stops, visibly.
    Unreadable(String),
    /// The node has obeyed a newer state of the store: its marks, and the revisions of the marks of the record's nodes. To be fed before
    /// the records of that state.
    Obeyed(Lineage, BTreeMap<NodeId, Revision>),
    /// A record of a node: its revision, its process, and what it had of this shard when that started. All nodes of the shard
    /// have to be reported, this one, too.
    Node(NodeId, Revision, BootId, Option<Restart>),
    /// The outcome of a proposal.
    Outcome(u64, Outcome),
    /// A message of a node.
    Message(NodeId, Message),
    /// The data has grown: the history that it is part of, its end, and how much of it counts. While the stream of the record's
    /// history has not been joined, the data may still grow in the history before.
    Grown(HistoryId, u64, u64),
    /// The data has been cut, as [`Attach::Rewind`] asked.
    Rewound(u64),
    /// The data is a copy of this history, up to this offset; and how much of it counts.
    Copied(HistoryId, u64, u64),
    /// The data is gone: a copy is being loaded in its place. A member has lost what it had.
    Emptied,
    /// The operator, or the end of the process, wants another primary: this one, or the best.
    HandOver(Option<NodeId>),
    /// No command is under way that was let in before [`Action::Park`]: the data ends where it was reported last.
    Rested,
    /// The operator wants this node to lead with what it has, although these members are gone.
    Force(BTreeSet<NodeId>),
    /// The process is about to end. A member asks to be expelled, so that nobody waits for its lease to run out.
    Ending,
    /// What counts of the data does not grow: the disk fails; or it grows again. A member asks to be expelled, and a primary
    /// hands over to one that has room.
    Failing(bool),
}

/// An output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send a message.
    Send(NodeId, Message),
    /// Run a transaction; [`Event::Outcome`] is to follow.
    Propose(Proposal),
    /// Read the record, linearizably; [`Event::Read`] with the number is to follow unless the store does not answer.
    Read(u64),
    /// This node is the primary: write under this history, from this offset.
    Lead {
        /// The epoch.
        epoch: u64,
        /// The history.
        history: HistoryId,
        /// Its first offset.
        from: u64,
    },
    /// Another node is. Replies that are withheld have an unknown outcome.
    Follow {
        /// The primary.
        primary: NodeId,
        /// The epoch.
        epoch: u64,
        /// How its stream is joined.
        attach: Attach,
    },
    /// The node is no part of the shard.
    Leave,
    /// Everything up to here is committed.
    Commit(u64),
    /// Hold commands back: a handover begins. [`Event::Rested`] is to follow.
    Park,
    /// Let them go on: it did not come about.
    Unpark,
    /// Write this node's record without the report of a restart that lost data: the node is a learner now.
    ClearReport,
    /// Write into this node's record what it has and that this is not all that it had acknowledged, as it would have at a restart;
    /// only if the shard's record is still of this revision. The node's record is written anew even if it says so already.
    ReportLoss(Restart, Revision),
    /// A line for the operator.
    Warn(String),
}

/// A proposal whose outcome is not known yet.
#[derive(Debug, Clone)]
struct Pending {
    proposal: Proposal,
    /// The revision that it compares.
    compare: Revision,
    /// The number of the first copy that was sent.
    first: u64,
    /// The answer was lost: the record has to be read.
    is_unknown: bool,
    /// A copy of it was refused, by the record or by another key that it compares.
    was_refused: bool,
    /// Another key that it compares has moved on: seen after this read had begun.
    void_since: Option<u64>,
}

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
    /// Nobody counts on what this process had before the data was replaced last: the primary has said so.
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
    /// Since when no member has all that was acknowledged, as far as this node knows.
    recovers_since_ms: Option<u64>,
    /// The marks of the newest state of the store that the node has obeyed.
    lineage: Lineage,
    /// The revisions of the marks of the record's nodes; `None`: the caller signs nothing.
    marks: Option<BTreeMap<NodeId, Revision>>,
    /// The process is about to end.
    is_ending: bool,
    /// What counts of the data does not grow.
    is_failing: bool,
    halted: Option<Halted>,
}

/// A machine that takes no part any more.
#[derive(Debug)]
struct Halted {
    /// The epoch of the record that contradicts its own, and its marks, if they came along. An operator's decision ends the stop: a
    /// record far above both epochs, in a state that has come from both lines.
    by: Option<(u64, Lineage)>,
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

    /// Returns a machine that begins with the data of this one, in the same process, and knows no record: an operator has decided which
    /// line of the store is right, and records may have any numbers. It promises everything that this one may have promised.
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

    /// Whether this node is the primary. It answers only while [`Shard::lease_until_ms`] is ahead.
    pub fn leads(&self) -> bool {
        self.lead.is_some()
    }

    /// Returns the marks of the newest state of the store that the node has obeyed. To be kept before it is acted upon.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// Whether the machine has stopped because another line of the store contradicted its own, and this record comes after both: an
    /// operator has decided ([`DECISION_EPOCHS`]), and a new machine may begin. Half of them are left for the epochs that a line may
    /// have had beyond those that the operator's node and this one know.
    pub fn may_begin_anew(&self, record: &ShardRecord, lineage: &Lineage) -> bool {
        let by = self.halted.as_ref().and_then(|halted| halted.by.as_ref());
        by.is_some_and(|(epoch, marks)| {
            record.epoch >= (*epoch).max(self.epoch()) + DECISION_EPOCHS / 2
                && lineage.covers(marks)
                && lineage.covers(&self.lineage)
        })
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

    /// Whether the outcome of a takeover by this node is open. It applies no stream meanwhile, cuts nothing and takes no copy: its
    /// new history begins where its data ended.
    pub fn takes_over(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| {
            let transition = pending.proposal.transition;
            matches!(transition, Transition::TakeOver | Transition::Recover | Transition::Force)
        })
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

    /// Takes no part any more, visibly, and keeps the data.
    fn halt(&mut self, why: String, by: Option<(u64, Lineage)>, actions: &mut Vec<Action>) {
        actions.push(Action::Warn(format!("this node stops, and keeps its data: {why}")));
        actions.push(Action::Leave);
        self.lead = None;
        self.halted = Some(Halted { by });
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
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.is_unknown) else { return };
        // An answer that was overtaken settles nothing.
        self.read_wanted = true;
        if pending.compare != revision {
            return;
        }
        let has_moved = |(node, revision): &(NodeId, Revision)| {
            self.nodes.get(node).is_some_and(|process| process.revision > *revision)
        };
        if pending.proposal.nodes.iter().any(has_moved) {
            // No copy of it can succeed any more. One may have succeeded before: a read decides that began after this was seen.
            match pending.void_since {
                Some(read) if number > read => self.give_up(actions),
                Some(_) => {}
                None => pending.void_since = Some(self.reads),
            }
            return;
        }
        // A member that was absent is there, and may be so for good. It may also be absent once more, when a lost copy comes: that is
        // void as soon as this node's own record has moved, which it compares, too.
        if pending.proposal.transition == Transition::Force && pending.was_refused {
            return self.report(actions);
        }
        // The record has not moved: a lost proposal may still come, and so may this copy of it. One of them wins, or neither.
        self.read_wanted = false;
        self.next_number += 1;
        // Nodes of the record may have changed other records meanwhile.
        let marks = self.record().map(|record| self.marks_of(record)).unwrap_or_default();
        let Some(pending) = &mut self.pending else { return };
        (pending.is_unknown, pending.proposal.number, pending.proposal.marks) =
            (false, self.next_number, marks);
        actions.push(Action::Propose(pending.proposal.clone()));
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
            // A recovery has decided what there is. It may be less than what was committed, and what is not on disk here yet is so
            // nowhere that counts.
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

    /// Whether the record is what this proposal made of it.
    fn won(&self, settled: Option<&Pending>) -> bool {
        let record = self.record();
        settled.is_some_and(|settled| {
            let is_decision = matches!(settled.proposal.transition, Transition::Recover | Transition::Force);
            is_decision && record == Some(&settled.proposal.record)
        })
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

    fn take_outcome(&mut self, now_ms: u64, number: u64, outcome: Outcome, actions: &mut Vec<Action>) {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.proposal.number == number) else {
            return;
        };
        match outcome {
            Outcome::Done(revision) => {
                let record = pending.proposal.record.clone();
                self.adopt(now_ms, (revision, record), actions);
            }
            // Nothing was sent before it. A member that is there again has the word.
            Outcome::Refused(_)
                if pending.proposal.transition == Transition::Force
                    && pending.proposal.number == pending.first =>
            {
                pending.was_refused = true;
                self.give_up(actions);
            }
            // An earlier copy of it may have succeeded, so the record decides.
            Outcome::Refused(_) => {
                (pending.is_unknown, pending.was_refused) = (true, true);
                self.want_read();
            }
            Outcome::Unknown(_) if self.options.fault == Some(Fault::UnknownIsFailure) => {
                self.give_up(actions)
            }
            Outcome::Unknown(_) => {
                pending.is_unknown = true;
                self.want_read();
            }
            // This copy was never sent, which says nothing of the ones before it.
            Outcome::Failed(_) if pending.proposal.number != pending.first => {
                pending.is_unknown = true;
                self.want_read();
            }
            Outcome::Failed(error) => {
                actions.push(Action::Warn(format!("{:?} failed: {error}", pending.proposal.transition)));
                self.give_up(actions);
            }
        }
        self.propose_at_ms = now_ms + self.options.retry_ms;
    }

    /// The pending proposal is known to be nothing.
    fn give_up(&mut self, actions: &mut Vec<Action>) {
        let pending = self.pending.take();
        let is_force = |pending: &Pending| pending.proposal.transition == Transition::Force;
        if pending.is_some_and(|pending| is_force(&pending) && pending.was_refused) {
            let line = "the shard was not taken: its record, or the presence of a member, has changed";
            actions.push(Action::Warn(line.to_owned()));
        }
        self.read_wanted = false;
        if self.lead.is_some() {
            self.still_leads(true, actions);
        }
    }

    fn take_message(&mut self, now_ms: u64, from: NodeId, message: Message, actions: &mut Vec<Action>) {
        match message {
            Message::Heartbeat { .. } => self.take_heartbeat(now_ms, from, message, actions),
            Message::Echo { .. } => self.take_echo(now_ms, from, message),
            // The lower revision is the backup's. A primary that may answer does not yield to that.
            Message::Stale { record, lineage }
                if self.contradicts(&record)
                    && self.is_of_another_line(&lineage)
                    && (record.0 > self.revision() || now_ms >= self.lease_until_ms()) =>
            {
                self.halt(
                    format!("node {from} leads its shard by another record: etcd was restored from a backup"),
                    Some((record.1.epoch, *lineage)),
                    actions,
                );
            }
            // The first record has to be read: an older one may have this node for a learner, who owes nothing.
            Message::Stale { .. } if self.known.is_none() => {}
            Message::Stale { record, lineage }
                if lineage.covers(&self.lineage) || self.is_broken(Fault::ObeyRestored) =>
            {
                self.lineage.join(&lineage);
                self.adopt(now_ms, *record, actions);
            }
            // The sender has seen less than this node, or another line of the store. The store knows.
            Message::Stale { record, .. } if record.0 > self.revision() => self.want_read(),
            Message::Stale { .. } => {}
        }
    }

    /// Returns the message with the record that this node knows.
    fn stale(&self) -> Option<Message> {
        let record = Box::new(self.known.clone()?);
        Some(Message::Stale { record, lineage: Box::new(self.lineage.clone()) })
    }

    /// Returns the marks that a change of this record compares: those of its other nodes. This node's own is the signer's to compare.
    fn marks_of(&self, record: &ShardRecord) -> Vec<(NodeId, Revision)> {
        let Some(marks) = self.marks.as_ref().filter(|_| !self.is_broken(Fault::ObeyRestored)) else {
            return Vec::new();
        };
        let others = record.nodes().filter(|node| *node != self.me);
        others.map(|node| (node, marks.get(&node).copied().unwrap_or(0))).collect()
    }

    /// Whether a record cannot be of the same line of the store as the one that is known: within a line, revisions and epochs rise
    /// together, and an epoch has one primary. If the record is in a state that has come from all that this node has obeyed, an
    /// operator has decided, and a new machine is to begin ([`Self::anew`]).
    pub fn contradicts(&self, (revision, record): &Known) -> bool {
        self.known.as_ref().is_some_and(|(own_revision, own)| match record.epoch.cmp(&own.epoch) {
            std::cmp::Ordering::Less => revision > own_revision,
            std::cmp::Ordering::Equal => record.primary != own.primary,
            std::cmp::Ordering::Greater => revision < own_revision,
        })
    }

    /// Whether marks are of a line of the store from which this node's has not come, and which has not come from this node's. Without
    /// marks nothing is known of the line.
    fn is_of_another_line(&self, lineage: &Lineage) -> bool {
        lineage.is_empty() || !self.lineage.covers(lineage) && !lineage.covers(&self.lineage)
    }

    /// Proposes a transition, if the table allows it.
    fn propose(
        &mut self,
        now_ms: u64,
        transition: Transition,
        subject: NodeId,
        facts: &Facts,
        mut nodes: Vec<(NodeId, Revision)>,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some((revision, before)) = &self.known else { return false };
        if self.pending.is_some() || now_ms < self.propose_at_ms {
            return false;
        }
        let marks = self.marks_of(before);
        let Ok(record) = table::change(transition, before, subject, facts) else { return false };
        // A proposal must not outlive its process: the next one may have got further, and would be cut back by it.
        let own = self.nodes.get(&self.me).filter(|own| own.boot == self.boot);
        let Some(own) = own.map(|own| own.revision) else { return false };
        if !self.is_broken(Fault::ProposeAfterDeath) && nodes.iter().all(|(node, _)| *node != self.me) {
            nodes.push((self.me, own));
        }
        self.next_number += 1;
        let is_blind = transition == Transition::TakeOver && self.is_broken(Fault::TakeOverWithoutCompare);
        let compare = (!is_blind).then_some(*revision);
        let absent = facts.absent.iter().copied().collect();
        let proposal =
            Proposal { number: self.next_number, transition, subject, compare, nodes, marks, absent, record };
        self.pending = Some(Pending {
            compare: *revision,
            first: proposal.number,
            is_unknown: false,
            was_refused: false,
            void_since: None,
            proposal: proposal.clone(),
        });
        actions.push(Action::Propose(proposal));
        true
    }

    /// Returns a history's id that nothing has had: no other process makes it, and this one makes it for one epoch.
    fn new_history(&self) -> HistoryId {
        let mut bytes = self.boot.bytes();
        let epoch = self.epoch().to_be_bytes();
        bytes[12..].iter_mut().zip(epoch).for_each(|(byte, epoch)| *byte ^= epoch);
        HistoryId::from_bytes(bytes)
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
