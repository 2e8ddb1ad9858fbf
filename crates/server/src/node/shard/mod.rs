//! The thread `shard`: drives the machine of `dunlin-cluster` that decides who leads the node's shard.
//!
//! ```text
//! thread `cluster` ── records ──┐                        ┌──▶ thread `cluster-etcd`: proposals, reads
//! workers ── CLUSTER TELL ──────┼─▶ inbox ─▶ Shard::step ┼──▶ links to the other members
//! thread `cluster-etcd` ────────┘      ▲                 ├──▶ orders for the thread `replica`
//! the data set: its end, copies ───────┘                 └──▶ lease and topology, for workers
//! ```
//!
//! Nothing here blocks but the closing of the gate if the node loses its role. Invariants:
//! - The machine hears of data under the history that the link has agreed on with its primary, never under a newer one.
//! - A proposal that begins a history leaves only when the data set can no longer grow, and only if it ends where the
//!   proposal says.
//! - Clients are sent away before a primary follows another one, and let in when a new one knows its slots and has a lease.

mod etcd_calls;
mod orders;
mod records;
mod role;
mod start;

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    sync::{Arc, atomic::Ordering::SeqCst, mpsc::Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dunlin_cluster::{
    BootId, ClusterId, HistoryId, NodeId, ShardId,
    meta::{Meta, MetaError, Revision, TransactionOutcome},
    records::{Keys, RecordError, SlotsRecord},
    shard::{Action, Attach, Event, Local, Message, Options, Proposal, Shard, Transition},
    times,
};
use dunlin_replication::LinkState;
use mio::{Events, Poll, Token, Waker};

use self::etcd_calls::{EtcdCall, EtcdCalls};
pub(super) use self::start::{Restarts, report};
use super::{
    data::{history_of, is_durable, local},
    links::Links,
};
use crate::{
    cluster::{
        PeerMessage,
        descent::Descent,
        inbox::Input,
        view::{Stored, View},
    },
    config::PrimaryAddress,
    replication::RoleOrder,
    shared::Shared,
    system::host::lease_ms,
};

/// Between two attempts to join a stream.
const REJOIN: Duration = Duration::from_secs(1);
/// Between the first attempts to reach a primary that does not feed yet: the number of the last one, and the pause before each. In
/// `sync`, its clients wait for this node.
const RECONNECT: [(u32, Duration); 2] = [(10, Duration::from_millis(5)), (22, Duration::from_millis(40))];
/// How long the clients of a primary that has handed over wait for a sign of its successor.
const SUCCESSOR_TIME_MAX: Duration = Duration::from_millis(times::SUCCESSOR_MS);
/// Between two attempts to read the slots.
const READ_AGAIN: Duration = Duration::from_millis(500);
/// Bytes of messages that wait for another member at most: the next ones say the same, and newer.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// Between two attempts to connect to another member.
const RETRY: Duration = Duration::from_millis(times::LINK_RETRY_MS);
/// A variable of the environment with which a build with assertions, as tests use it, takes [`times::SLOW_LEASES`].
const SLOW_LEASES: &str = "DUNLIN_TEST_SLOW_LEASES";
/// Between two attempts to write `cluster-end`.
const WRITE_AGAIN: Duration = Duration::from_secs(1);
const WAKER: Token = Token(usize::MAX);

/// The part of the thread that other threads start it with.
pub(super) struct Settings {
    pub(super) me: NodeId,
    pub(super) boot: BootId,
    pub(super) keys: Keys,
    /// The store as the node obeys it.
    pub(super) meta: Arc<dyn Meta>,
    pub(super) descent: Arc<Descent>,
    pub(super) restarts: Arc<Restarts>,
    /// Only synced data count.
    pub(super) is_durable: bool,
}

/// Starts the thread.
pub(super) fn start(shared: &Arc<Shared>, settings: Settings) -> Result<JoinHandle<()>, String> {
    let failed = |error: std::io::Error| format!("cannot start the thread of the shard: {error}");
    let poll = Poll::new().map_err(failed)?;
    let waker = Waker::new(poll.registry(), WAKER).map_err(failed)?;
    // There is one thread.
    let _ = shared.cluster.shard.waker.set(waker);
    let etcd_calls = EtcdCalls::start(shared, &settings)?;
    let is_slow = cfg!(debug_assertions) && std::env::var_os(SLOW_LEASES).is_some();
    let leases = if is_slow { times::SLOW_LEASES } else { times::LEASES };
    if is_slow {
        tracing::warn!("Cluster: leases are slow, for tests ({SLOW_LEASES})");
    }
    // A connection to another member is made anew when its machine has acknowledged nothing for this time.
    let silence_max = Duration::from_millis(leases.link_silence_ms);
    let driver = Driver {
        shared: Arc::clone(shared),
        is_durable: settings.is_durable,
        settings,
        leases,
        poll,
        etcd_calls,
        links: Links::new(WAITING_BYTES_MAX, RETRY, silence_max, |figures| &figures.shard),
        view: None,
        slots: None,
        started: None,
        machine: None,
        before: None,
        role: Role::Unknown,
        joined: 0,
        cleared: 0,
        replaced: BTreeMap::new(),
        ending_failed: None,
        is_refusing: false,
        published: (0, 0, 0, 0),
        awaits_slots: Vec::new(),
    };
    thread::Builder::new().name("shard".to_owned()).spawn(move || driver.run()).map_err(failed)
}

/// The last order for the thread `replica`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Role {
    /// None yet.
    Unknown,
    /// The node follows no other.
    Detached,
    /// The node follows this primary, since then, at this attempt.
    Following(PrimaryAddress, Instant, u32),
    /// The node leads; the order's number.
    Leading(u64),
}

/// The role that the machine wants for the node.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    /// Nothing yet.
    Nothing,
    /// A primary, under this history.
    Lead(HistoryId, u64),
    /// A follower of this node.
    Follow(NodeId, Attach),
}

/// A proposal that begins a history, until the data set has come to rest.
#[derive(Debug)]
struct HeldProposal {
    proposal: Proposal,
    /// The order that brings it to rest.
    order: u64,
}

/// The machine, and what the thread has done for it.
struct Machine {
    id: ShardId,
    shard: Shard,
    /// The copies that it has heard of.
    copies: u64,
    wanted: Wanted,
    held: Option<HeldProposal>,
    /// The number of this time as a primary; 0: the node is none.
    term: u64,
    /// The slots were read in this term, and when they were asked for.
    knows_slots: bool,
    asked_slots: Instant,
    /// Commands are held back for a handover.
    parked: Option<Parked>,
    /// The node that has taken over, until it is heard of, and since when.
    successor: Option<(NodeId, Instant)>,
    /// The newest epoch whose primary has sent a heartbeat.
    heard_epoch: u64,
    /// The state of the store whose marks it knows.
    joins: Option<u64>,
}

/// Commands are held back.
#[derive(Debug, Clone, Copy)]
struct Parked {
    /// None is under way that was let in before, once this order has been carried out.
    order: u64,
    /// The machine knows that.
    is_rested: bool,
}

struct Driver {
    shared: Arc<Shared>,
    settings: Settings,
    leases: times::Leases,
    is_durable: bool,
    poll: Poll,
    etcd_calls: EtcdCalls,
    links: Links,
    view: Option<Arc<View>>,
    /// The newest record of slots that this node has read, or made, by itself.
    slots: Option<Stored<SlotsRecord>>,
    /// The data set at the start, until the first machine has it.
    started: Option<Local>,
    machine: Option<Machine>,
    /// A machine that begins anew, once the records are there.
    before: Option<(ShardId, Shard)>,
    role: Role,
    /// The last order to follow a node, or none.
    joined: u64,
    /// The order to throw the data set away that was given last.
    cleared: u64,
    /// By shards that this process was part of before: how often the data set was replaced in that time, and by its end.
    replaced: BTreeMap<ShardId, u64>,
    /// When the file that says whether synced data count could not be written.
    ending_failed: Option<Instant>,
    /// Clients are told that the primary has been without its lease for long.
    is_refusing: bool,
    /// The revisions that the topology was made of: of the view, of the shard's record, of the record of slots.
    published: (Revision, Revision, Revision, u64),
    /// Waiters for the newest record of slots to be in force.
    awaits_slots: Vec<Sender<()>>,
}

impl Driver {
    fn run(mut self) {
        let mut events = Events::with_capacity(64);
        let tick = Duration::from_millis(Options::default().heartbeat_ms / 2);
        while !self.shared.cluster.ended.load(SeqCst) {
            if self
                .poll
                .poll(&mut events, Some(self.pause(tick)))
                .is_err_and(|error| error.kind() != ErrorKind::Interrupted)
            {
                return tracing::error!("the thread of the shard cannot wait for its sockets");
            }
            let inputs = self.shared.cluster.shard.take();
            self.note_data();
            inputs.into_iter().for_each(|input| self.take(input));
            if self.machine.is_none() {
                self.begin();
            }
            self.note_durability();
            self.note_failure();
            self.note_rest();
            self.step(Event::Tick);
            self.send_held();
            if let Some(machine) = &self.machine {
                self.shared.replication.note_shard_commit(&self.shared.durability, machine.shard.commit());
            }
            self.publish();
            self.take_role();
            self.serve();
            self.links.go_on(self.poll.registry(), &self.shared);
        }
        // Clients that still wait for a sign of the successor are sent there.
        if let Some(machine) = &mut self.machine {
            machine.successor = None;
        }
        self.publish();
        self.unpark();
        self.end();
    }

    /// How long the thread may sleep: less while a primary is to be reached.
    fn pause(&self, tick: Duration) -> Duration {
        match &self.role {
            Role::Following(_, _, attempts) if self.shared.replication.link().state == LinkState::Connect => {
                let eager = RECONNECT.iter().find(|(last, _)| attempts < last);
                eager.map_or(tick, |(_, pause)| *pause)
            }
            _ => tick,
        }
    }

    /// If `appendfsync` or `appendonly` was weakened since the start, unsynced data counts too, until the next start.
    /// Unsynced data counts once the file has ceased to vouch for synced data, not before. The file does not vouch
    /// while the machine does not stand for the data set, or the log has no base.
    fn note_durability(&mut self) {
        let config = self.shared.config.current();
        let Some(machine) = &self.machine else { return };
        let stays_durable = self.is_durable && is_durable(&config);
        let is_on_disk = self.shared.durability.fsynced().is_some();
        let counts = stays_durable && machine.shard.local().clean && is_on_disk;
        let is_still = || self.shared.replication.copies() == machine.copies;
        if self.ending_failed.is_some_and(|since| since.elapsed() < WRITE_AGAIN) {
            return;
        }
        match self.shared.cluster.ending.count_synced(counts, &config.dir, is_still) {
            Ok(()) => (self.is_durable, self.ending_failed) = (stays_durable, None),
            Err(line) => {
                tracing::error!("{line}");
                self.ending_failed = Some(Instant::now());
            }
        }
    }

    /// Reports to the machine whether the disk fails, while it is the disk that counts.
    fn note_failure(&mut self) {
        let is_failing = self.is_durable && self.shared.durability.is_failing();
        let Some(machine) = &self.machine else { return };
        if machine.shard.is_failing() != is_failing {
            if is_failing {
                tracing::warn!(
                    "Cluster: the disk fails: another member is to lead, or to go on without this node"
                );
            }
            self.step(Event::Failing(is_failing));
        }
    }

    /// The process ends: what its data set is, if that is all that it has acknowledged.
    fn end(&mut self) {
        let data = self.shared.replication.data(&self.shared.durability, self.is_durable);
        let Some(machine) = &self.machine else { return };
        let local = machine.shard.local();
        if let (true, true, Some(id)) = (local.clean, data.is_whole(), data.history) {
            // The end is looked at once more when the data set can no longer grow.
            let _ = self.shared.cluster.clean.set(history_of(id));
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Started(local) => self.started = Some(local),
            Input::Records(view) => self.take_records(view),
            Input::Anew => self.begin_anew(),
            Input::PeerMessage(peer_message) => {
                let cluster = self.cluster();
                let is_ours = self.machine.as_ref().is_some_and(|machine| machine.id == peer_message.shard);
                if is_ours && cluster == Some(peer_message.cluster) && peer_message.from != self.settings.me {
                    if let (Some(machine), Message::Heartbeat { epoch, .. }) =
                        (&mut self.machine, &peer_message.message)
                    {
                        // That node leads, so clients may be sent there.
                        machine.successor.take_if(|(successor, _)| *successor == peer_message.from);
                        machine.heard_epoch = machine.heard_epoch.max(*epoch);
                    }
                    self.step(Event::Message(peer_message.from, peer_message.message));
                }
            }
            Input::Outcome(shard, number, outcome) if self.is_machine_of(shard) => {
                self.note_lineage();
                self.step(Event::Outcome(number, outcome));
            }
            Input::Read(shard, number, read) if self.is_machine_of(shard) => match read {
                Ok(known) => {
                    self.note_lineage();
                    self.step(Event::Read(number, known));
                }
                Err(error @ RecordError::Newer { .. }) => self.step(Event::Unreadable(error.to_string())),
                // The agent reads it again.
                Err(error) => tracing::error!("Cluster: the record of shard {shard}: {error}"),
            },
            Input::Outcome(..) | Input::Read(..) => {}
            Input::Slots(term, slots) => {
                let is_newer = |known: &Stored<SlotsRecord>| {
                    slots.as_ref().is_some_and(|(revision, _)| *revision > known.0)
                };
                if self.slots.as_ref().is_none_or(is_newer) {
                    self.slots = slots;
                }
                if let Some(machine) = &mut self.machine {
                    machine.knows_slots |= machine.term == term;
                }
            }
            Input::StreamSlots(slots, done) => {
                if self.slots.as_ref().is_none_or(|known| slots.0 > known.0) {
                    self.slots = Some(slots);
                }
                self.awaits_slots.push(done);
            }
            Input::HandOver => self.step(Event::HandOver(None)),
            Input::Ending => self.step(Event::Ending),
            Input::Promote(order) => self.order_promotion(order),
            Input::Forget(node, order) => self.order_forgetting(node, order),
            Input::Force(absent) => self.step(Event::Force(absent)),
        }
    }

    fn is_machine_of(&self, shard: ShardId) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.id == shard)
    }

    fn cluster(&self) -> Option<ClusterId> {
        Some(self.view.as_ref()?.cluster.as_ref()?.1.id)
    }

    /// The data set as a machine that begins has to know it.
    fn local(&self, clean: bool) -> Local {
        local(&self.shared, self.is_durable, clean)
    }

    /// Reports the data set to the machine.
    fn note_data(&mut self) {
        let Some(machine) = &mut self.machine else { return };
        let data = self.shared.replication.data(&self.shared.durability, self.is_durable);
        let local = machine.shard.local();
        let history = data.history.map(history_of);
        if data.copies != machine.copies || !data.is_whole() {
            let is_news = data.copies != machine.copies;
            machine.copies = data.copies;
            let event = match history.filter(|_| data.is_whole()) {
                Some(history) => Event::Copied(history, data.end, data.held),
                None => Event::Emptied,
            };
            if is_news {
                self.step(event);
            }
            return;
        }
        let Some(history) = history else { return };
        if Some(history) != local.history {
            // The primary has agreed that the data is where its history goes on.
            let record = machine.shard.known().map(|(_, record)| record.history.id);
            let waits = matches!(machine.shard.attach(), Attach::Rewind(_) | Attach::Copy);
            if waits && record == Some(history) {
                return self.step(Event::Copied(history, data.end, data.held));
            }
            if self.shared.replication.link().stopped.is_some() && local.clean {
                return self.step(Event::Emptied);
            }
            // The machine knows whether it is of the history before, as long as the new link is not up.
        }
        if data.end > local.end || data.held > local.held && data.end == local.end {
            self.step(Event::Grown(history, data.end, data.held));
        }
    }

    /// Reports to the machine that no command is under way that was let in before it had them held back.
    fn note_rest(&mut self) {
        let Some(parked) = self.machine.as_mut().and_then(|machine| machine.parked.as_mut()) else { return };
        if !parked.is_rested && self.shared.replication.is_carried_out(parked.order) {
            parked.is_rested = true;
            // Their changes come first.
            self.note_data();
            self.step(Event::Rested);
        }
    }

    fn step(&mut self, event: Event) {
        let Some(machine) = &mut self.machine else { return };
        let mut actions = Vec::new();
        let is_told = matches!(event, Event::Message(_, Message::Stale { .. }));
        machine.shard.step(lease_ms(), event, &mut actions);
        if is_told {
            self.settings.descent.join(machine.shard.lineage());
        }
        actions.into_iter().for_each(|action| self.act(action));
    }

    fn act(&mut self, action: Action) {
        let Some(machine) = &mut self.machine else { return };
        match action {
            Action::Send(to, message) => {
                let (shard, from) = (machine.id, self.settings.me);
                if let Some(cluster) = self.cluster() {
                    self.links.send(to, &PeerMessage { cluster, shard, from, message }.encode());
                }
            }
            Action::Propose(proposal) => self.propose(proposal),
            Action::Read(number) => self.etcd_calls.run(EtcdCall::Read(machine.id, number)),
            Action::Lead { epoch, history, from } => {
                tracing::info!("Cluster: this node is its shard's primary, in epoch {epoch}");
                machine.wanted = Wanted::Lead(history, from);
                machine.term = self.shared.cluster.lease.begin();
                (machine.knows_slots, machine.asked_slots) = (false, Instant::now());
                // A record seen before the takeover may be older than the last gift of the primary before.
                self.etcd_calls.run(EtcdCall::Slots(machine.term));
            }
            Action::Follow { primary, attach, epoch } => {
                machine.wanted = Wanted::Follow(primary, attach);
                if machine.parked.is_some() && machine.heard_epoch < epoch {
                    machine.successor = Some((primary, Instant::now()));
                }
                self.end_term();
            }
            Action::Leave => {
                let is_known = machine.shard.known().is_some_and(|(_, record)| !record.has(self.settings.me));
                machine.wanted = Wanted::Nothing;
                self.end_term();
                if is_known {
                    tracing::info!("Cluster: this node has left its shard");
                    self.leave();
                }
            }
            // Each turn publishes it.
            Action::Commit(_) => {}
            Action::Park => {
                self.shared.cluster.lease.hold();
                self.shared.pause.begin_failover();
                self.shared.replication.hold_stream(true);
                // The order to lead must not be overtaken.
                let replication = &self.shared.replication;
                let is_settled =
                    matches!(self.role, Role::Leading(order) if replication.is_carried_out(order));
                let order = if is_settled { replication.order(RoleOrder::Rest) } else { u64::MAX };
                machine.parked = Some(Parked { order, is_rested: false });
            }
            Action::Unpark => self.unpark(),
            Action::ClearReport => {
                let known = self.view.as_ref().and_then(|view| view.nodes.get(&self.settings.me)).cloned();
                if let Some(known) = known {
                    self.etcd_calls.run(EtcdCall::ClearReport(self.settings.me, Box::new(known)));
                }
            }
            Action::ReportLoss(restart, compare) => {
                let known = self.view.as_ref().and_then(|view| view.nodes.get(&self.settings.me)).cloned();
                if let Some(known) = known {
                    let report = Box::new((known, restart));
                    self.etcd_calls.run(EtcdCall::ReportLoss(self.settings.me, report, machine.id, compare));
                }
            }
            Action::Warn(line) => tracing::warn!("Cluster: {line}"),
        }
    }

    /// Sends a proposal, or first lets the data set come to rest.
    fn propose(&mut self, proposal: Proposal) {
        let Some(machine) = &mut self.machine else { return };
        let (transition, subject) = (proposal.transition, proposal.subject);
        tracing::info!(
            "Cluster: proposing {transition:?} of node {subject} in epoch {}",
            proposal.record.epoch
        );
        match transition {
            Transition::TakeOver | Transition::Recover | Transition::Force => {
                let order = RoleOrder::Join { primary: None, begins: None };
                let order = self.shared.replication.order(order);
                machine.held = Some(HeldProposal { proposal, order });
                self.role = Role::Detached;
            }
            Transition::HandOver => {
                let order = machine.parked.map_or(u64::MAX, |parked| parked.order);
                machine.held = Some(HeldProposal { proposal, order });
            }
            _ => self.etcd_calls.run(EtcdCall::Propose(machine.id, Box::new(proposal))),
        }
    }

    /// Sends a proposal that was held back, if the data set is at rest, and is what the proposal says.
    fn send_held(&mut self) {
        let Some(machine) = &mut self.machine else { return };
        let is_at_rest = |held: &mut HeldProposal| self.shared.replication.is_carried_out(held.order);
        let Some(HeldProposal { proposal, .. }) = machine.held.take_if(is_at_rest) else { return };
        let data = self.shared.replication.data(&self.shared.durability, self.is_durable);
        let (begins, known) =
            (proposal.record.history, machine.shard.known().map(|(_, record)| record.history));
        let own = data.history.map(history_of);
        // The data set may still go by the name of the history before: the beginning of this one.
        let is_before = known.is_some_and(|known| own == known.previous && data.end <= known.from);
        let is_same = own == begins.previous || own.is_none() || is_before;
        if data.is_whole() && is_same && data.end == begins.from {
            return self.etcd_calls.run(EtcdCall::Propose(machine.id, Box::new(proposal)));
        }
        let reason = MetaError::Refused("the data set has changed meanwhile".to_owned());
        self.step(Event::Outcome(proposal.number, TransactionOutcome::Failed(reason)));
    }
}
