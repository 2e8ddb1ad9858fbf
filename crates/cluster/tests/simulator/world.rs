//! The world of one shard: time, network, store, disks, clients, and what goes wrong.

mod clients;
mod restored;
mod store;
mod trouble;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use dunlin_cluster::{
    BootId, HistoryId, NodeId, ShardId,
    lineage::{Lineage, Writer},
    meta::{MetaError, Store, Transaction, TransactionOutcome},
    records::{Addresses, Key, Keys, Mark, NodeRecord, NodeState, Record, Restart, ShardRecord},
    shard::{
        Action, Attach, Event, Facts, Fault, Known, Local, Message, Options, Proposal, Shard, Transition,
        table,
    },
};

use crate::{
    checks::{Floor, Oracle, Violation, leases},
    node::{Entry, Node, OldLog, Process, View, Withheld, append, requested_change},
    random::Random,
};

/// How long things go wrong.
const STORM_MS: u64 = 12_000;
/// How long clients go on afterwards, and how long everything may take to be well again.
const CALM_MS: u64 = 4_000;
const REST_MS: u64 = 40_000;
const TICK_MS: u64 = 40;
/// A transaction without an answer for this long has an unknown outcome.
const STORE_TIMEOUT_MS: u64 = 300;
const CHUNK: usize = 40;

/// The nature of a run.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub seed: u64,
    /// A rule that is broken on purpose.
    pub fault: Option<Fault>,
    /// Whether anything goes wrong, beside an outage of the store.
    pub is_stormy: bool,
    /// Whether the store goes back to an earlier state once.
    pub is_restored: bool,
}

/// The events that a run has seen.
#[derive(Debug, Default, Clone, Copy)]
pub struct Seen {
    pub acknowledged: u64,
    pub takeovers: u64,
    pub handovers: u64,
    pub recoveries: u64,
    pub forced: u64,
    pub unserved: u64,
    /// Backups, known to nodes to be older, from which the store was restored and which were kept from it.
    pub forks: u64,
    pub strays: u64,
}

#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "few are under way at a time")]
enum Request {
    Propose(Proposal, Transaction, Mark),
    /// A read: how much the node has joined when it asks, and when that is.
    Read(u64, u64),
    Watch(u64, u64),
    Announce {
        restart: Option<Restart>,
        is_start: bool,
    },
    Report {
        restart: Restart,
        compare: u64,
    },
}

#[derive(Debug, Clone)]
enum Answer {
    Outcome(u64, TransactionOutcome, Mark),
    Read(u64, Option<Known>, Seal),
    Watch(Option<Known>, Vec<(NodeId, u64, BootId, Option<Restart>)>, Seal, u64),
    Started,
}

/// The marks that an answer of the store comes with, and how much the node had joined when it asked.
#[derive(Debug, Clone)]
struct Seal {
    marks: BTreeMap<NodeId, (u64, Mark)>,
    asked: u64,
}

#[derive(Debug, Clone)]
enum Packet {
    Control(Message),
    Pull { epoch: u64, history: HistoryId, end: u64 },
    Data { epoch: u64, history: HistoryId, from: u64, entries: Vec<Entry> },
    CopyWanted { epoch: u64 },
    Copy { epoch: u64, history: HistoryId, entries: Vec<Entry> },
}

#[derive(Debug, Clone)]
enum Happening {
    Tick(usize, BootId),
    Packet {
        to: usize,
        from: usize,
        packet: Packet,
    },
    Ask {
        node: usize,
        boot: BootId,
        request: Request,
    },
    Answer {
        node: usize,
        boot: BootId,
        answer: Answer,
    },
    Command {
        node: usize,
        client: usize,
        number: u64,
        is_write: bool,
        known: Floor,
    },
    Reply {
        client: usize,
        number: u64,
        is_done: bool,
        node: usize,
    },
    Release(usize, BootId),
    Sync(usize, BootId),
    Rewind(usize, BootId, u64),
    /// The log of a copy has its base, unless there has been another copy.
    Base(usize, BootId, u64),
    /// Commands that were let in before the handover have ended.
    Rest(usize, BootId),
    Load {
        node: usize,
        boot: BootId,
        epoch: u64,
        history: HistoryId,
        entries: Vec<Entry>,
    },
    Ending(usize, BootId),
    End(usize, BootId),
    Client(usize),
    Controller,
    Trouble,
    /// A node is cut off from all others, or is connected again.
    CutOff(usize, bool),
    /// An operator makes a node take the shard.
    Force,
    /// The store goes back to an earlier state.
    Restore,
    /// An operator says whether the records or the nodes are right.
    Decide,
    Start(usize),
    Heal,
}

struct Client {
    target: usize,
    number: u64,
    /// When the command that waits is given up.
    waits: Option<u64>,
}

pub struct World {
    setting: Setting,
    random: Random,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    happenings: BTreeMap<usize, Happening>,
    next: usize,
    nodes: Vec<Node>,
    options: Options,
    is_durable: bool,
    keys: Keys,
    shard: ShardId,
    store: Store,
    /// The node that plans, and its changes.
    planner: (NodeId, Writer),
    /// Earlier states of the store.
    backups: Vec<Store>,
    /// Facts that nodes must not lose, since the store went back.
    restored: Option<restored::Restored>,
    store_down_until: u64,
    store_cut: Vec<bool>,
    cut: Vec<Vec<bool>>,
    loss: u64,
    clients: Vec<Client>,
    oracle: Oracle,
    seen: Seen,
    violation: Option<Violation>,
    is_trouble: bool,
    acknowledged_in_calm: u64,
    trace: bool,
}

fn boot(random: &mut Random) -> BootId {
    BootId::from_bytes(std::array::from_fn(|_| random.below(256) as u8))
}

impl World {
    pub fn new(setting: Setting) -> Self {
        let mut random = Random::new(setting.seed);
        let count = if setting.is_stormy { 2 + random.below(3) as usize } else { 3 };
        let is_durable = random.chance(60);
        let options = Options {
            min_sync: 1 + random.below(2) as usize,
            lag_ms: 2_000,
            fault: setting.fault,
            ..Options::default()
        };
        let nodes = (0..count).map(|at| Node {
            id: NodeId::from_bytes([at as u8 + 1; 20]),
            // The promise outlasts the lease by half: rates may differ by a fifth either way and a little more.
            rate: 850 + random.below(300),
            log: Vec::new(),
            synced: 0,
            history: None,
            before_copy: None,
            copies: 0,
            trusts_copies: setting.fault == Some(Fault::CopyCountsWithoutBase),
            clean: true,
            process: None,
            lineage: Lineage::default(),
            joins: 0,
            paused_until: 0,
            starts: 0,
        });
        let nodes: Vec<Node> = nodes.collect();
        let clients =
            (0..3).map(|_| Client { target: random.below(count as u64) as usize, number: 0, waits: None });
        let mut world = Self {
            setting,
            clients: clients.collect(),
            random,
            now: 0,
            queue: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            next: 0,
            cut: vec![vec![false; count]; count],
            store_cut: vec![false; count],
            nodes,
            options,
            is_durable,
            keys: Keys::new("simulated").expect("a name"),
            shard: ShardId::from_bytes([1; 20]),
            store: Store::default(),
            planner: (NodeId::from_bytes([0; 20]), Writer::new(NodeId::from_bytes([0; 20]))),
            backups: Vec::new(),
            restored: None,
            store_down_until: 0,
            loss: 0,
            oracle: Oracle::default(),
            seen: Seen::default(),
            violation: None,
            is_trouble: false,
            acknowledged_in_calm: 0,
            trace: std::env::var_os("TRACE").is_some(),
        };
        let facts =
            Facts { active: true, new_history: Some(HistoryId::from_bytes([77; 20])), ..Facts::default() };
        let record = table::form(world.nodes[0].id, &facts).expect("a shard of one");
        let key = world.keys.text(Key::Shard(world.shard));
        world.store.commit(&Transaction::default().compare(&*key, 0).put(key, record.encode()));
        (0..count).for_each(|node| world.at(node as u64 * 20, Happening::Start(node)));
        (0..3).for_each(|client| world.at(500, Happening::Client(client)));
        world.at(300, Happening::Controller);
        world.at(3_000, Happening::Trouble);
        if setting.is_restored {
            let delay = 3_000 + world.random.below(STORM_MS - 1_000);
            world.at(delay, Happening::Restore);
        }
        world
    }

    fn at(&mut self, delay: u64, happening: Happening) {
        self.next += 1;
        self.queue.push(Reverse((self.now + delay, self.next as u64, self.next)));
        self.happenings.insert(self.next, happening);
    }

    fn check(&mut self, checked: Result<(), Violation>) {
        if let (Err(violation), None) = (checked, &self.violation) {
            self.violation = Some(violation);
        }
    }

    /// Runs to the end.
    pub fn run(mut self) -> Result<Seen, Violation> {
        let storm_ends = if self.setting.is_stormy { 3_000 + STORM_MS } else { 70_000 };
        self.is_trouble = true;
        let mut is_healed = false;
        while let Some(Reverse((at, _, id))) = self.queue.pop() {
            self.now = at;
            if !is_healed && self.now >= storm_ends {
                is_healed = true;
                self.is_trouble = false;
                self.acknowledged_in_calm = self.oracle.acknowledged;
                self.heal();
                self.at(1_000, Happening::Decide);
            }
            if is_healed && self.now > storm_ends + CALM_MS && self.is_well() {
                break;
            }
            if self.now > storm_ends + REST_MS {
                let states: Vec<String> = self
                    .nodes
                    .iter()
                    .map(|node| format!("{:?} {} {:?}", node.id, node.log.len(), node.shard()))
                    .collect();
                let what = format!("it does not come to rest: {}\n{}", self.why_unwell(), states.join("\n"));
                return Err(Violation { name: "liveness", what });
            }
            let happening = self.happenings.remove(&id).expect("scheduled");
            if let Some(until) = self.deferred(&happening) {
                self.at(until - self.now, happening);
                continue;
            }
            self.happen(happening);
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
        }
        let primary = self.nodes.iter().find(|node| node.leads()).expect("a primary");
        self.oracle.end(primary)?;
        self.kept_at_the_end(primary)?;
        self.seen.acknowledged = self.oracle.acknowledged;
        self.seen.takeovers = self.oracle.takeovers;
        self.seen.handovers = self.oracle.handovers;
        self.seen.recoveries = self.oracle.recoveries;
        self.seen.forced = self.oracle.forced;
        Ok(self.seen)
    }

    /// A process that is stopped does nothing until it goes on.
    fn deferred(&self, happening: &Happening) -> Option<u64> {
        let node = match happening {
            Happening::Tick(node, _)
            | Happening::Packet { to: node, .. }
            | Happening::Answer { node, .. }
            | Happening::Command { node, .. }
            | Happening::Release(node, _)
            | Happening::Sync(node, _)
            | Happening::Rest(node, _)
            | Happening::Rewind(node, ..)
            | Happening::Base(node, ..)
            | Happening::Load { node, .. }
            | Happening::Ending(node, _)
            | Happening::End(node, _) => *node,
            _ => return None,
        };
        let until = self.nodes[node].paused_until;
        (until > self.now).then_some(until)
    }

    fn record(&self) -> (u64, ShardRecord) {
        let item = self.store.item(&self.keys.text(Key::Shard(self.shard))).expect("the shard is there");
        (item.revision, ShardRecord::decode(&item.value).expect("a record"))
    }

    fn why_unwell(&self) -> &'static str {
        let (_, record) = self.record();
        let Some(primary) = self.nodes.iter().find(|node| node.id == record.primary) else {
            return "no primary";
        };
        let Some(shard) = primary.shard() else { return "no process" };
        if !shard.leads() {
            "the primary does not lead"
        } else if record.in_sync.len() != self.nodes.len() {
            "not everybody is in sync"
        } else if shard.lease_until_ms() <= primary.clock(self.now) {
            "no lease"
        } else if shard.commit() != primary.log.len() as u64 {
            "not all is committed"
        } else if self.nodes.iter().any(|node| node.log.len() != primary.log.len()) {
            "not everybody has everything"
        } else if self.oracle.acknowledged == self.acknowledged_in_calm {
            "nothing was acknowledged"
        } else {
            ""
        }
    }

    fn is_well(&self) -> bool {
        self.why_unwell().is_empty()
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Tick(node, boot) => {
                if self.is_running(node, boot) {
                    self.tick(node);
                    self.at(TICK_MS, Happening::Tick(node, boot));
                }
            }
            Happening::Packet { to, from, packet } => self.receive(to, from, packet),
            Happening::Ask { node, boot, request } => self.store_asked(node, boot, request),
            Happening::Answer { node, boot, answer } => {
                if self.is_running(node, boot) {
                    self.answered(node, answer);
                }
            }
            Happening::Command { node, client, number, is_write, known } => {
                self.command(node, client, number, is_write, known)
            }
            Happening::Reply { client, number, is_done, node } => self.replied(client, number, is_done, node),
            Happening::Release(node, boot) => {
                if self.is_running(node, boot) {
                    self.release(node);
                }
            }
            Happening::Sync(node, boot) => {
                if self.is_running(node, boot) {
                    self.sync(node);
                }
            }
            Happening::Rewind(node, boot, to) => {
                if self.is_running(node, boot) {
                    self.rewind(node, to);
                }
            }
            Happening::Base(node, boot, copies) => {
                if self.is_running(node, boot) && self.nodes[node].copies == copies {
                    self.nodes[node].before_copy = None;
                    self.grown(node);
                }
            }
            Happening::Rest(node, boot) => {
                if self.is_running(node, boot) {
                    self.step(node, Event::Rested);
                }
            }
            Happening::Load { node, boot, epoch, history, entries } => {
                if self.is_running(node, boot) {
                    self.load(node, epoch, history, entries);
                }
            }
            Happening::Ending(node, boot) => {
                if self.is_running(node, boot) {
                    self.step(node, Event::Ending);
                    let delay = self.random.below(600);
                    self.at(delay, Happening::End(node, boot));
                }
            }
            Happening::End(node, boot) => {
                if self.is_running(node, boot) {
                    self.crash(node, true);
                    let delay = 50 + self.random.below(4_000);
                    self.at(delay, Happening::Start(node));
                }
            }
            Happening::Client(client) => self.client(client),
            Happening::Controller => self.controller(),
            Happening::Trouble => self.trouble(),
            Happening::CutOff(node, is_cut) => self.cut_off(node, is_cut && self.is_trouble),
            Happening::Force => self.force(),
            Happening::Restore => self.restore(),
            Happening::Decide => self.decide(),
            Happening::Start(node) => self.start(node),
            Happening::Heal => self.heal(),
        }
        let checked = self.oracle.histories(&self.nodes);
        let checked =
            checked.and_then(|()| if self.oracle.is_forked { Ok(()) } else { leases(&self.nodes, self.now) });
        self.check(checked.and_then(|()| self.kept()));
    }

    fn is_running(&self, node: usize, boot: BootId) -> bool {
        self.nodes[node].process.as_ref().is_some_and(|process| process.boot == boot)
    }

    // Network.

    fn send(&mut self, from: usize, to: usize, packet: Packet) {
        let copies = if self.random.chance(3) { 2 } else { 1 };
        for _ in 0..copies {
            if self.cut[from][to] || self.is_trouble && self.random.chance(self.loss) {
                continue;
            }
            let delay = match self.random.below(100) {
                0 if self.is_trouble => 300 + self.random.below(3_000),
                1..=5 if self.is_trouble => 20 + self.random.below(300),
                _ => 1 + self.random.below(8),
            };
            self.at(delay, Happening::Packet { to, from, packet: packet.clone() });
        }
    }

    fn index(&self, id: NodeId) -> usize {
        usize::from(id.bytes()[0]) - 1
    }

    fn receive(&mut self, to: usize, from: usize, packet: Packet) {
        let from_id = self.nodes[from].id;
        let node = &self.nodes[to];
        let Some(shard) = node.shard() else { return };
        match packet {
            Packet::Control(message) => self.step(to, Event::Message(from_id, message)),
            Packet::Pull { epoch, history, end } => {
                if !shard.leads() || node.history != Some(history) || epoch > shard.epoch() {
                    return;
                }
                let limit =
                    if shard.sends_uncommitted(from_id) { node.log.len() } else { shard.commit() as usize };
                let limit = limit.min(end as usize + CHUNK);
                if let Some(entries) = node.log.get(end as usize..limit).filter(|entries| !entries.is_empty())
                {
                    let packet =
                        Packet::Data { epoch: shard.epoch(), history, from: end, entries: entries.to_vec() };
                    self.send(to, from, packet);
                }
            }
            Packet::Data { epoch, history, from, entries } => {
                let is_left_over = !shard.accepts(epoch, history);
                if is_left_over && !self.is_linked_still(to, history) {
                    return;
                }
                if epoch < shard.epoch() && !is_left_over {
                    let what =
                        format!("{:?} applies a stream of epoch {epoch} in {}", node.id, shard.epoch());
                    self.check(Err(Violation { name: "I6", what }));
                }
                let node = &mut self.nodes[to];
                node.history = Some(history);
                let Some(known) = (node.log.len() as u64).checked_sub(from) else { return };
                if let Some(new) = entries.get(known as usize..).filter(|new| !new.is_empty()) {
                    node.log.extend_from_slice(new);
                    self.grown(to);
                }
            }
            Packet::CopyWanted { epoch } => {
                if shard.leads() && epoch == shard.epoch() {
                    let entries = node.log[..shard.commit() as usize].to_vec();
                    let history = node.history.expect("a primary has one");
                    self.send(to, from, Packet::Copy { epoch, history, entries });
                }
            }
            Packet::Copy { epoch, history, entries } => {
                if !shard.accepts_copy(epoch) {
                    return;
                }
                // The former data is gone before the copy is there.
                let boot = self.nodes[to].process.as_ref().expect("it runs").boot;
                self.empty(to);
                let delay = self.random.below(200);
                self.at(delay, Happening::Load { node: to, boot, epoch, history, entries });
            }
        }
    }

    /// Whether the link to the primary before, whose history the data still goes by, is not cut yet.
    fn is_linked_still(&self, at: usize, history: HistoryId) -> bool {
        let node = &self.nodes[at];
        let is_linked = node.process.as_ref().is_some_and(|process| self.now < process.linked_until);
        let follows =
            |shard: &Shard| shard.attach() == Attach::Stream && !shard.leads() && !shard.takes_over();
        is_linked && node.shard().is_some_and(follows) && node.history == Some(history)
    }

    fn empty(&mut self, at: usize) {
        self.nodes[at].replace();
        self.step(at, Event::Emptied);
    }

    /// Writes the base of the log that follows a replacement of the data.
    fn begin_base(&mut self, at: usize) {
        let (copies, boot) = (self.nodes[at].copies, self.nodes[at].process.as_ref().expect("it runs").boot);
        let delay = if self.random.chance(20) { self.random.below(4_000) } else { self.random.below(300) };
        self.at(delay, Happening::Base(at, boot, copies));
    }

    /// A copy is there. A copy of an earlier epoch came over a link that has ended.
    fn load(&mut self, at: usize, epoch: u64, history: HistoryId, entries: Vec<Entry>) {
        let node = &mut self.nodes[at];
        let is_awaited = node.shard().is_some_and(|shard| shard.accepts_copy(epoch));
        if !is_awaited || !node.log.is_empty() {
            return self.begin_base(at);
        }
        let end = entries.len() as u64;
        (node.log, node.synced) = (entries, end as usize);
        node.history = Some(history);
        let held = node.local(self.is_durable).held;
        self.step(at, Event::Copied(history, end, held));
        self.begin_base(at);
    }

    /// An operator ends the process, which first hands its role over.
    fn end(&mut self, at: usize) {
        let Some(process) = &self.nodes[at].process else { return };
        let boot = process.boot;
        let mut delay = 0;
        if self.nodes[at].leads() {
            self.step(at, Event::HandOver(None));
            delay = self.random.below(1_000);
        }
        self.at(delay, Happening::Ending(at, boot));
    }

    // Nodes.

    fn start(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            return;
        }
        let boot = boot(&mut self.random);
        self.nodes[node].starts += 1;
        self.nodes[node].paused_until = 0;
        self.nodes[node].process = Some(Process {
            boot,
            shard: None,
            left: None,
            withheld: Vec::new(),
            parked: false,
            asked: BTreeMap::new(),
            linked_until: 0,
            writer: Writer::new(self.nodes[node].id),
            marks: BTreeMap::new(),
            strays: false,
            view: View::default(),
        });
        self.at(0, Happening::Tick(node, boot));
        if !self.is_durable {
            self.at(1_000, Happening::Sync(node, boot));
        }
    }

    fn crash(&mut self, node: usize, is_orderly: bool) {
        if self.nodes[node].process.take().is_none() {
            return;
        }
        let alive = self.alive(node);
        self.store.commit(&Transaction::default().delete(alive));
        let random = &mut self.random;
        let node = &mut self.nodes[node];
        if self.trace {
            println!(
                "{:>6} {:?} ends, orderly: {is_orderly}, durable: {}",
                self.now, node.id, self.is_durable
            );
        }
        if let Some(OldLog { entries, history }) = node.before_copy.take() {
            // The next process loads what there was before the copy.
            (node.synced, node.log, node.history) = (entries.len(), entries, history);
            node.clean &= node.trusts_copies && self.is_durable;
            return;
        }
        if is_orderly {
            // A process that had lost something has lost it still.
            node.synced = node.log.len();
            return;
        }
        let kept = node.synced + random.below((node.log.len() - node.synced) as u64 + 1) as usize;
        node.log.truncate(kept);
        node.synced = kept;
        node.clean &= self.is_durable;
    }

    fn tick(&mut self, at: usize) {
        let now = self.now;
        let is_part = self.record().1.has(self.nodes[at].id);
        let node = &mut self.nodes[at];
        let (history, offset, clean) = (node.history, node.log.len() as u64, node.clean);
        let process = node.process.as_mut().expect("it runs");
        if process.left.is_some() {
            return self.rejoin(at);
        }
        if process.shard.is_none() {
            let shard = self.shard;
            let history = history.unwrap_or(HistoryId::from_bytes([0; 20]));
            let restart = is_part.then_some(Restart { shard, epoch: 0, history, offset, clean });
            self.ask(at, Request::Announce { restart, is_start: true });
            return;
        }
        let late: Vec<u64> =
            process.asked.iter().filter(|(_, until)| **until <= now).map(|(number, _)| *number).collect();
        process.asked.retain(|number, _| !late.contains(number));
        for number in late {
            self.step(at, Event::Outcome(number, TransactionOutcome::Unknown("timeout".to_owned())));
        }
        self.step(at, Event::Tick);
        if self.random.chance(40) {
            self.ask(at, Request::Watch(self.nodes[at].joins, self.now));
        }
        self.pull(at);
        self.release(at);
    }

    /// The node has left the shard, and throws its data away.
    fn leave(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.replace();
        (node.history, node.clean) = (None, false);
        let process = node.process.as_mut().expect("it runs");
        process.left = process.shard.take().map(|shard| shard.copies() + 1);
        process.withheld.clear();
        process.asked.clear();
        self.begin_base(at);
    }

    /// A node that has left the shard begins anew, once it hears that it is part of it again.
    fn rejoin(&mut self, at: usize) {
        let is_heard = self.store_down_until <= self.now && !self.store_cut[at] && self.random.chance(40);
        if !is_heard || !self.record().1.has(self.nodes[at].id) {
            return;
        }
        let (options, shard, now) = (self.options.clone(), self.shard, self.nodes[at].clock(self.now));
        let me = self.nodes[at].id;
        let process = self.nodes[at].process.as_mut().expect("it runs");
        let local = Local { clean: true, ..Local::default() };
        let copies = process.left.take().expect("it has left");
        process.shard = Some(Shard::new(me, shard, process.boot, options, local, copies, now));
        self.step(at, Event::Tick);
    }

    fn pull(&mut self, at: usize) {
        let node = &self.nodes[at];
        let Some(shard) = node.shard() else { return };
        let Some((_, record)) = shard.known() else { return };
        let to = self.index(record.primary);
        if shard.leads() || to == at {
            return;
        }
        let epoch = shard.epoch();
        let packet = match (shard.attach(), shard.local().history) {
            (Attach::Stream, Some(history)) => Packet::Pull { epoch, history, end: node.log.len() as u64 },
            (Attach::Copy, _) => Packet::CopyWanted { epoch },
            _ => return,
        };
        self.send(at, to, packet);
    }

    fn sync(&mut self, at: usize) {
        let boot = self.nodes[at].process.as_ref().expect("it runs").boot;
        self.nodes[at].synced = self.nodes[at].log.len();
        if self.is_durable {
            self.tell_growth(at);
        } else {
            self.at(1_000, Happening::Sync(at, boot));
        }
    }

    fn grown(&mut self, at: usize) {
        self.tell_growth(at);
        let Some(boot) = self.nodes[at].process.as_ref().map(|process| process.boot) else { return };
        if self.is_durable {
            let delay = 2 + self.random.below(30);
            self.at(delay, Happening::Sync(at, boot));
        }
    }

    fn tell_growth(&mut self, at: usize) {
        let local = self.nodes[at].local(self.is_durable);
        if let Some(history) = local.history {
            self.step(at, Event::Grown(history, local.end, local.held));
        }
    }

    fn rewind(&mut self, at: usize, to: u64) {
        let process = self.nodes[at].process.as_ref().expect("it runs");
        if self.nodes[at].shard().is_some_and(Shard::takes_over) {
            // Its data is at rest.
            return self.at(TICK_MS, Happening::Rewind(at, process.boot, to));
        }
        if self.nodes[at].shard().is_some_and(|shard| shard.attach() == Attach::Rewind(to)) {
            let node = &mut self.nodes[at];
            node.log.truncate(to as usize);
            node.synced = node.synced.min(to as usize);
            node.history = node.shard().and_then(Shard::known).map(|known| known.1.history.id);
            self.step(at, Event::Rewound(to));
        }
    }

    fn step(&mut self, at: usize, event: Event) {
        let now = self.nodes[at].clock(self.now);
        let Some(process) = self.nodes[at].process.as_mut() else { return };
        let boot = process.boot;
        let Some(shard) = process.shard.as_mut() else { return };
        let mut actions = Vec::new();
        shard.step(now, event, &mut actions);
        // The manifest of the log has the history's id before anything of it is recorded; obligations end with it. A follower's data
        // goes by the history before until the link is up.
        let (local, leads) = (shard.local(), shard.leads());
        let record = shard.known().map(|(_, record)| record.history);
        let is_before = |record: dunlin_cluster::records::History| {
            Some(record.id) == local.history && record.previous == self.nodes[at].history
        };
        if leads || self.nodes[at].history.is_none() || !record.is_some_and(is_before) {
            self.nodes[at].history = local.history;
        }
        self.nodes[at].clean = local.clean && self.nodes[at].has_base();
        if let Some(lineage) = self.nodes[at].shard().map(|shard| shard.lineage().clone()) {
            self.nodes[at].join(&lineage);
        }
        let mut leaves = false;
        for action in actions {
            if self.trace && !matches!(action, Action::Send(..) | Action::Read(_)) {
                println!(
                    "{:>6} {:?} {} of {}: {action:?}",
                    self.now,
                    self.nodes[at].id,
                    self.nodes[at].synced,
                    self.nodes[at].log.len()
                );
            }
            match action {
                Action::Send(to, message) => {
                    let to = self.index(to);
                    self.send(at, to, Packet::Control(message));
                }
                Action::Propose(proposal) => {
                    if proposal.transition == Transition::TakeOver {
                        let unheard =
                            self.nodes[at].shard().and_then(Shard::known).map(|known| known.1.primary);
                        unheard.into_iter().for_each(|node| self.flap(self.index(node)));
                    }
                    let until = self.now + STORE_TIMEOUT_MS;
                    self.nodes[at].process.as_mut().expect("it runs").asked.insert(proposal.number, until);
                    self.propose(at, proposal);
                }
                Action::Read(number) => self.ask(at, Request::Read(number, self.nodes[at].joins)),
                Action::Lead { from, .. } => {
                    assert_eq!(from, self.nodes[at].log.len() as u64, "a history begins where the data ends");
                }
                Action::Follow { attach, .. } => {
                    let process = self.nodes[at].process.as_mut().expect("it runs");
                    // Their outcome is unknown; clients find out by waiting too long.
                    process.withheld.clear();
                    process.parked = false;
                    process.linked_until = self.now + self.random.below(400);
                    if let Attach::Rewind(to) = attach {
                        let delay = self.random.below(60);
                        self.at(delay, Happening::Rewind(at, boot, to));
                    }
                }
                // A node that stops keeps its data.
                Action::Leave => {
                    let known = self.nodes[at].shard().and_then(Shard::known);
                    leaves = known.is_some_and(|(_, record)| !record.has(self.nodes[at].id));
                }
                Action::Commit(commit) => {
                    let checked = self.oracle.commit(&self.nodes[at], commit);
                    self.check(checked);
                }
                Action::Park => {
                    self.nodes[at].process.as_mut().expect("it runs").parked = true;
                    let delay = self.random.below(20);
                    self.at(delay, Happening::Rest(at, boot));
                }
                Action::Unpark => self.nodes[at].process.as_mut().expect("it runs").parked = false,
                Action::ClearReport => self.ask(at, Request::Announce { restart: None, is_start: false }),
                Action::ReportLoss(..)
                    if self.nodes[at].process.as_ref().is_some_and(|process| process.strays) => {}
                Action::ReportLoss(restart, compare) => self.ask(at, Request::Report { restart, compare }),
                Action::Warn(_) => {}
            }
        }
        if leaves {
            self.leave(at);
        }
    }
}
