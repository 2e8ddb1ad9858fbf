//! Moving slots from one shard to another, as two state machines: one at each shard's primary.
//!
//! ```text
//! source   Sending ── little is left ──▶ Parked ── the target has all ──▶ Giving ── done ──▶ given: MOVED, delete
//!             ▲                            │ too long                       │ refused, and still the owner
//!             └────────────────────────────┴────────────────────────────────┘
//! target   Importing ────── the record names this shard ──▶ serve
//!             └──────────── the move is gone from the record ──▶ drop
//! ```
//!
//! The source sends a snapshot of the slots and then their records: one stream, whose positions count from 0. The
//! target writes it into its own shard's log, in which it is committed like everything else, and invisible. Ownership
//! changes by **one** transaction, which only the source proposes, and which compares the record of slots and the
//! records of both shards.
//!
//! Invariants:
//! - The source executes nothing on the slots from [`SourceAction::Park`] until it knows the outcome.
//! - The source gives the slots away only when the target's shard has committed all that was ever executed on them.
//! - The source gives nothing away before all that it was given itself is visible, and committed. Then imported slots that a new
//!   primary finds are either all its shard's or none ([`MoveTarget::settle`]).
//! - A failover of either shard changes its record, so the transaction fails, and the move is void.
//! - A new primary serves no slot before it has read the record of slots *after* its takeover ([`Ownership`]): a transaction of
//!   the primary before may have come in until then, and none can afterwards.

use crate::{
    MoveId, NodeId, ShardId, SlotSet,
    meta::{Revision, Transaction, TransactionOutcome},
    records::{Key, Keys, Move, Record, SlotsRecord},
    shard::Fault,
    times,
};

/// Limits of a move. Times are milliseconds.
#[derive(Debug, Clone)]
pub struct Options {
    /// Commands are parked when the target lacks no more than this, in positions of the stream.
    pub park_below: u64,
    /// The longest that commands are parked before a proposal.
    pub park_ms: u64,
    /// Pause after commands were parked without success.
    pub again_ms: u64,
    /// Between two attempts to read or to propose.
    pub retry_ms: u64,
    /// A rule that is broken on purpose.
    #[doc(hidden)]
    pub fault: Option<Fault>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            park_below: 1 << 16,
            park_ms: times::MOVE_PARK_MS,
            again_ms: times::MOVE_AGAIN_MS,
            retry_ms: times::RETRY_MS,
            fault: None,
        }
    }
}

/// This shard's part of the record of slots.
#[derive(Debug, Clone, Default)]
pub struct Ownership {
    known: Option<(Revision, SlotsRecord)>,
    /// The epoch in which this node leads and has read the record since.
    read_in: Option<u64>,
}

impl Ownership {
    /// Takes the record, from a watch or from a read that began while this node led in an epoch.
    pub fn take(&mut self, revision: Revision, record: SlotsRecord, led_when_asked: Option<u64>) {
        if led_when_asked.is_some() {
            self.read_in = self.read_in.max(led_when_asked);
        }
        if self.known.as_ref().is_none_or(|(known, _)| *known < revision) {
            self.known = Some((revision, record));
        }
    }

    /// Returns the record and its revision.
    pub fn known(&self) -> Option<&(Revision, SlotsRecord)> {
        self.known.as_ref()
    }

    /// Whether the primary of this shard, which began to lead in this epoch, may serve the slot.
    pub fn serves(&self, shard: ShardId, epoch: u64, slot: u16) -> bool {
        self.is_read(epoch)
            && self.known.as_ref().is_some_and(|(_, record)| record.slots.owner(slot) == Some(shard))
    }

    /// Whether the record was read since this node leads.
    pub fn is_read(&self, epoch: u64) -> bool {
        self.read_in.is_some_and(|read_in| read_in >= epoch)
    }
}

/// Both shards' records, as far as the transaction compares them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revisions {
    /// The source's revision and epoch.
    pub from: (Revision, u64),
    /// The target's revision and epoch.
    pub to: (Revision, u64),
}

impl Revisions {
    /// Each shard's record as it was later.
    fn later(self, other: Self) -> Self {
        Self { from: self.from.max(other.from), to: self.to.max(other.to) }
    }
}

/// An input of the source.
#[derive(Debug, Clone)]
pub enum SourceEvent<'a> {
    /// Time has passed.
    Tick,
    /// The stream of the slots ends here: the snapshot is part of it. `u64::MAX` while the snapshot is not complete.
    End(u64),
    /// The target's shard has committed the stream up to here.
    Held(u64),
    /// Slots that came to the source by earlier moves are visible in its log, and that is committed. To be said once,
    /// before which nothing is parked; the machine is made only when no import is under way, so that the snapshot is
    /// whole.
    Settled,
    /// The last command on the slots has ended, after [`SourceAction::Park`]. The stream ends where the last `End`
    /// said.
    Parked,
    /// The record of slots: from a watch, or from the read with this number, which began after its [`SourceAction::Read`].
    Slots(Revision, &'a SlotsRecord, Option<u64>),
    /// The records of both shards.
    Shards(Revisions),
    /// The outcome of the proposal with this number. Numbers of proposals and reads are a move's own: the caller keeps answers
    /// to different moves apart.
    Outcome(u64, TransactionOutcome),
    /// The operator ends the move.
    Cancel,
}

/// An output of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceAction {
    /// Hold commands on the slots back, and say when the last one has ended.
    Park,
    /// Let them run: the source is the owner still.
    Unpark,
    /// Run the transaction that gives the slots away.
    Propose {
        /// Its number.
        number: u64,
        /// The changes.
        transaction: Transaction,
    },
    /// Read the record of slots, linearizably.
    Read(u64),
    /// The slots are the target's, by this record: answer MOVED to what is parked, and delete the keys.
    Given(Revision, SlotsRecord),
    /// The move is over and the slots have stayed: the reason.
    Ended(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Sending {
        not_before_ms: u64,
    },
    Parking {
        since_ms: u64,
        is_quiet: bool,
    },
    /// The proposal's number, what it compares, and whether its answer is lost.
    Giving {
        number: u64,
        compare: Revision,
        revisions: Revisions,
        is_unknown: bool,
        /// A shard's record has moved on, so that no copy can succeed: seen after this read had begun.
        void_since: Option<u64>,
    },
    Over,
}

/// The source's side of a move.
#[derive(Debug)]
pub struct Source {
    one: Move,
    keys: Keys,
    options: Options,
    state: State,
    end: u64,
    held: u64,
    is_settled: bool,
    slots: Option<(Revision, SlotsRecord)>,
    revisions: Option<Revisions>,
    next_number: u64,
    read_at_ms: u64,
    reads: u64,
    is_cancelled: bool,
}

impl Source {
    /// Begins: the record names the move, and this node leads its source in the epoch that the move names.
    pub fn new(one: Move, keys: Keys, options: Options, now_ms: u64) -> Self {
        let state = State::Sending { not_before_ms: now_ms };
        Self {
            one,
            keys,
            options,
            state,
            end: u64::MAX,
            held: 0,
            is_settled: false,
            slots: None,
            revisions: None,
            next_number: 0,
            read_at_ms: now_ms,
            reads: 0,
            is_cancelled: false,
        }
    }

    /// Returns the move.
    pub fn moving(&self) -> &Move {
        &self.one
    }

    /// Whether commands on the slots are held back.
    pub fn is_parked(&self) -> bool {
        matches!(self.state, State::Parking { .. } | State::Giving { .. })
    }

    /// Whether the machine has nothing more to do.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Takes an event; appends what is to be done.
    pub fn step(&mut self, now_ms: u64, event: SourceEvent, actions: &mut Vec<SourceAction>) {
        if self.is_over() {
            return;
        }
        match event {
            SourceEvent::Tick => {}
            SourceEvent::End(end) => self.end = end,
            SourceEvent::Held(held) => self.held = self.held.max(held),
            SourceEvent::Settled => self.is_settled = true,
            SourceEvent::Parked => {
                if let State::Parking { is_quiet, .. } = &mut self.state {
                    *is_quiet = true;
                }
            }
            // News may come late: a record never goes back.
            SourceEvent::Shards(news) => {
                self.revisions = Some(self.revisions.map_or(news, |known| known.later(news)));
            }
            SourceEvent::Slots(revision, record, read) => {
                self.take_slots(now_ms, revision, record, read, actions)
            }
            SourceEvent::Outcome(number, outcome) => self.take_outcome(now_ms, number, outcome, actions),
            SourceEvent::Cancel => self.is_cancelled = true,
        }
        self.work(now_ms, actions);
    }

    fn take_slots(
        &mut self,
        now_ms: u64,
        revision: Revision,
        record: &SlotsRecord,
        read: Option<u64>,
        actions: &mut Vec<SourceAction>,
    ) {
        if self.slots.as_ref().is_none_or(|(known, _)| *known < revision) {
            self.slots = Some((revision, record.clone()));
        }
        let Some((revision, record)) = &self.slots else { return };
        let first = self.one.slots.ranges().first().map(|range| range.first());
        let owner = first.and_then(|slot| record.slots.owner(slot));
        if owner != Some(self.one.from) {
            self.state = State::Over;
            actions.push(SourceAction::Given(*revision, record.clone()));
            return;
        }
        let is_named = record.moving.iter().any(|one| one.id == self.one.id);
        let is_settled = match &self.state {
            State::Giving { compare, .. } => revision > compare,
            _ => true,
        };
        if !is_named && is_settled {
            self.end_with("the record does not name it any more", actions);
        } else if let State::Giving { number, compare, revisions, is_unknown, void_since } = &mut self.state {
            if *revision > *compare {
                // Another change of the record came first: the proposal can no longer succeed.
                self.send_again(now_ms, actions);
                return;
            }
            let (Some(read), true) = (read, *is_unknown) else { return };
            if self.revisions.is_none_or(|now| now == *revisions) {
                self.next_number += 1;
                (*number, *is_unknown) = (self.next_number, false);
                let number = *number;
                self.propose(number, actions);
            } else {
                match *void_since {
                    Some(since) if read > since => self.send_again(now_ms, actions),
                    Some(_) => {}
                    None => *void_since = Some(self.reads),
                }
            }
        }
    }

    fn take_outcome(
        &mut self,
        now_ms: u64,
        answered: u64,
        outcome: TransactionOutcome,
        actions: &mut Vec<SourceAction>,
    ) {
        let State::Giving { number, is_unknown, .. } = &mut self.state else { return };
        if *number != answered {
            return;
        }
        match outcome {
            TransactionOutcome::Done(revision) => {
                self.state = State::Over;
                actions.extend(self.given().map(|record| SourceAction::Given(revision, record)));
            }
            TransactionOutcome::Unknown(_) if self.options.fault == Some(Fault::UnknownIsFailure) => {
                self.send_again(now_ms, actions)
            }
            // Refused: an earlier copy may be in, so the record decides.
            TransactionOutcome::Refused(_)
            | TransactionOutcome::Unknown(_)
            | TransactionOutcome::Failed(_) => *is_unknown = true,
        }
    }

    /// Back to sending: the source is the owner, and known to be.
    fn send_again(&mut self, now_ms: u64, actions: &mut Vec<SourceAction>) {
        if self.is_parked() {
            actions.push(SourceAction::Unpark);
        }
        self.state = State::Sending { not_before_ms: now_ms + self.options.again_ms };
    }

    fn end_with(&mut self, why: &'static str, actions: &mut Vec<SourceAction>) {
        if self.is_parked() {
            actions.push(SourceAction::Unpark);
        }
        self.state = State::Over;
        actions.push(SourceAction::Ended(why));
    }

    fn work(&mut self, now_ms: u64, actions: &mut Vec<SourceAction>) {
        match &mut self.state {
            State::Sending { not_before_ms } => {
                let is_near =
                    self.end != u64::MAX && self.end.saturating_sub(self.held) <= self.options.park_below;
                if self.is_cancelled {
                    self.end_with("cancelled", actions);
                } else if is_near
                    && now_ms >= *not_before_ms
                    && self.is_current()
                    && (self.is_settled || self.options.fault == Some(Fault::GiveUnsettled))
                {
                    self.state = State::Parking { since_ms: now_ms, is_quiet: false };
                    actions.push(SourceAction::Park);
                }
            }
            State::Parking { since_ms, is_quiet } => {
                let has_all = self.held >= self.end || self.options.fault == Some(Fault::GiveEarly);
                if self.is_cancelled || now_ms >= *since_ms + self.options.park_ms {
                    self.send_again(now_ms, actions);
                } else if *is_quiet
                    && has_all
                    && self.is_current()
                    && let (Some((revision, _)), Some(revisions)) = (&self.slots, self.revisions)
                {
                    self.next_number += 1;
                    let number = self.next_number;
                    self.state = State::Giving {
                        number,
                        compare: *revision,
                        revisions,
                        is_unknown: false,
                        void_since: None,
                    };
                    self.propose(number, actions);
                }
            }
            State::Giving { is_unknown: true, .. } if now_ms >= self.read_at_ms => {
                self.read_at_ms = now_ms + self.options.retry_ms;
                self.reads += 1;
                actions.push(SourceAction::Read(self.reads));
            }
            State::Giving { .. } | State::Over => {}
        }
    }

    /// Whether both shards are in the epochs that the move names.
    fn is_current(&self) -> bool {
        self.revisions.is_some_and(|revisions| {
            revisions.from.1 == self.one.from_epoch && revisions.to.1 == self.one.to_epoch
        })
    }

    /// Returns the record without the move, and with the slots in the target's hands.
    fn given(&self) -> Option<SlotsRecord> {
        let (_, record) = self.slots.as_ref()?;
        let mut record = record.clone();
        record.moving.retain(|one| one.id != self.one.id);
        record.slots.assign(&self.one.slots, Some(self.one.to));
        Some(record)
    }

    fn propose(&self, number: u64, actions: &mut Vec<SourceAction>) {
        let State::Giving { compare, revisions, .. } = &self.state else { return };
        let Some(record) = self.given() else { return };
        let key = |key| self.keys.text(key);
        let transaction = Transaction::default()
            .compare(key(Key::Slots), *compare)
            .compare(key(Key::Shard(self.one.from)), revisions.from.0)
            .compare(key(Key::Shard(self.one.to)), revisions.to.0)
            .put(key(Key::Slots), record.encode());
        actions.push(SourceAction::Propose { number, transaction });
    }
}

/// An output of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetAction {
    /// Tell the source that the stream is committed up to here.
    Held(u64),
    /// The slots are this shard's: what was imported becomes visible, here and on the replicas.
    Serve,
    /// Throw away what was imported, here and on the replicas.
    Drop,
}

/// The target's side of a move. This side lives in the shard's log: a new primary of the target finds what was imported
/// there, and asks [`MoveTarget::settle`] what to do with it.
#[derive(Debug, Clone)]
pub struct MoveTarget {
    one: Move,
    /// Places of the stream, and the offsets of this shard's log at which they stand; ascending.
    places: std::collections::VecDeque<(u64, u64)>,
    received: u64,
    held: u64,
    is_over: bool,
}

/// Places at most that wait to be committed. The next ones are merged into the last.
const PLACES_MAX: usize = 1_024;

impl MoveTarget {
    /// Begins: the record names the move, and this node leads its target in the epoch that the move names.
    pub fn new(one: Move) -> Self {
        Self { one, places: Default::default(), received: 0, held: 0, is_over: false }
    }

    /// Returns the move.
    pub fn moving(&self) -> &Move {
        &self.one
    }

    /// Returns the slots, which clients do not see yet.
    pub fn slots(&self) -> &SlotSet {
        &self.one.slots
    }

    /// Returns the place of the stream that comes next.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether the machine has nothing more to do.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The stream up to `place` is in this shard's log, which ends at `offset`.
    pub fn imported(&mut self, place: u64, offset: u64) {
        debug_assert!(place >= self.received, "the stream comes in order");
        self.received = place;
        if self.places.len() == PLACES_MAX {
            self.places.pop_back();
        }
        self.places.push_back((place, offset));
    }

    /// This shard has committed its log up to `offset`.
    pub fn committed(&mut self, offset: u64, actions: &mut Vec<TargetAction>) {
        let before = self.held;
        while let Some((place, _)) = self.places.front().filter(|(_, at)| *at <= offset) {
            self.held = *place;
            self.places.pop_front();
        }
        if self.held > before {
            actions.push(TargetAction::Held(self.held));
        }
    }

    /// The record of slots: from a watch, or read by a new primary after its takeover.
    pub fn slots_are(&mut self, record: &SlotsRecord, epoch: u64, actions: &mut Vec<TargetAction>) {
        if self.is_over {
            return;
        }
        if let Some(action) = Self::settle(&self.one, record, epoch) {
            self.is_over = true;
            actions.push(action);
        }
    }

    /// Returns what becomes of imported slots, given the record and this shard's epoch: `None` while the move goes on.
    /// The first slot stands for all: none of them is given on before the import is visible and committed.
    pub fn settle(one: &Move, record: &SlotsRecord, epoch: u64) -> Option<TargetAction> {
        let first = one.slots.ranges().first()?.first();
        if record.slots.owner(first) == Some(one.to) {
            return Some(TargetAction::Serve);
        }
        let goes_on = epoch == one.to_epoch && record.moving.iter().any(|other| other.id == one.id);
        (!goes_on).then_some(TargetAction::Drop)
    }
}

/// A move that an operator or the planner may follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The move.
    pub id: MoveId,
    /// The primary that sends.
    pub source: NodeId,
    /// The part of the data that the target has.
    pub held: u64,
    /// The data.
    pub end: u64,
}

impl Source {
    /// Returns how far the move is.
    pub fn progress(&self, source: NodeId) -> Progress {
        Progress { id: self.one.id, source, held: self.held, end: self.end }
    }
}
