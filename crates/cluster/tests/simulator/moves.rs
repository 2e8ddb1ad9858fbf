//! Moves of slots in a small world: shards that fail over and lose what they had not committed, a store whose answers get lost,
//! clients that write to the slots all the time. A shard is one log here: how its members agree is `world.rs`'s matter.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use dunlin_cluster::{
    HistoryId, MoveId, NodeId, SLOTS, ShardId, SlotRange, SlotSet,
    meta::{Store, Transaction, TransactionOutcome},
    moves::{MoveTarget, Options, Ownership, Revisions, Source, SourceAction, SourceEvent, TargetAction},
    records::{Key, Keys, Move, Record, ShardRecord, SlotsRecord},
    shard::{Facts, Fault, table},
};

use crate::{checks::Violation, random::Random};

const STORM_MS: u64 = 12_000;
const REST_MS: u64 = 30_000;
/// The number of slots that clients use; the others are moved along.
const USED: u16 = 12;

type Keyspace = BTreeMap<u16, Vec<u64>>;

#[derive(Debug, Clone)]
enum Op {
    Write(u16, u64),
    Begin(Move),
    Import(MoveId, u16, Vec<u64>),
    Serve(MoveId),
    Drop(MoveId),
    Delete(SlotSet),
}

/// The contents of a log.
#[derive(Debug, Clone, Default)]
struct Data {
    own: Keyspace,
    importing: BTreeMap<MoveId, (Move, Keyspace)>,
}

impl Data {
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Write(slot, id) => self.own.entry(*slot).or_default().push(*id),
            Op::Begin(one) => {
                self.importing.insert(one.id, (one.clone(), Keyspace::new()));
            }
            Op::Import(id, slot, ids) => {
                let (_, data) = self.importing.get_mut(id).expect("it has begun");
                data.entry(*slot).or_default().extend(ids);
            }
            Op::Serve(id) => {
                let (_, data) = self.importing.remove(id).expect("it has begun");
                for (slot, ids) in data {
                    // Keys that were there before would be seen twice.
                    self.own.entry(slot).or_default().extend(ids);
                }
            }
            Op::Drop(id) => drop(self.importing.remove(id)),
            Op::Delete(slots) => self.own.retain(|slot, _| !slots.contains(*slot)),
        }
    }
}

struct Reply {
    client: usize,
    number: u64,
    slot: u16,
    /// The writes that the command has seen, itself included.
    seen: Vec<u64>,
    at: usize,
    known: usize,
}

struct Command {
    client: usize,
    number: u64,
    slot: u16,
    is_write: bool,
    known: usize,
}

struct Shard {
    id: ShardId,
    /// Counts processes: an answer to an earlier one has no receiver.
    process: u64,
    epoch: u64,
    log: Vec<Op>,
    commit: usize,
    data: Data,
    ownership: Ownership,
    /// The revision that the next primary will have seen before it takes over.
    watched: Option<(u64, SlotsRecord)>,
    source: Option<Source>,
    stream: Vec<(u16, Vec<u64>)>,
    target: Option<MoveTarget>,
    parked: Vec<Command>,
    replies: Vec<Reply>,
    asked: BTreeMap<(MoveId, u64), u64>,
}

enum What {
    Tick(usize, u64),
    Look(usize, u64),
    Seen(usize, u64, u64, SlotsRecord, Vec<(u64, u64)>),
    Read(usize, u64, Option<(MoveId, u64)>),
    ReadDone(usize, u64, Option<(MoveId, u64)>, u64, SlotsRecord),
    Give(usize, u64, (MoveId, u64), Transaction),
    GiveDone(usize, u64, (MoveId, u64), TransactionOutcome),
    Want(usize, u64, MoveId, usize),
    Items(usize, u64, MoveId, usize, Vec<(u16, Vec<u64>)>),
    Held(usize, MoveId, u64),
    Quiet(usize, u64),
    Command(usize, Command),
    Client(usize),
    Done(usize, u64),
    FailOver,
    Plan,
}

pub struct World {
    random: Random,
    fault: Option<Fault>,
    now: u64,
    queue: BinaryHeap<std::cmp::Reverse<(u64, u64)>>,
    happenings: BTreeMap<u64, What>,
    next: u64,
    keys: Keys,
    store: Store,
    shards: Vec<Shard>,
    /// The number of each client's command, and whether it waits, until when.
    clients: Vec<(u64, Option<u64>)>,
    committed: BTreeMap<u16, Vec<u64>>,
    violation: Option<Violation>,
    is_stormy: bool,
    pub given: u64,
    pub void: u64,
}

impl World {
    pub fn new(seed: u64, fault: Option<Fault>) -> Self {
        let mut random = Random::new(seed ^ 0x5107_5107);
        let keys = Keys::new("moves").expect("a name");
        let mut store = Store::default();
        let count = 2 + random.below(2) as usize;
        let ids: Vec<ShardId> = (0..count).map(|at| ShardId::from_bytes([at as u8 + 1; 20])).collect();
        let facts =
            Facts { active: true, new_history: Some(HistoryId::from_bytes([9; 20])), ..Facts::default() };
        let record = table::form(NodeId::from_bytes([1; 20]), &facts).expect("a shard");
        for id in &ids {
            store.commit(&Transaction::default().put(keys.text(Key::Shard(*id)), record.encode()));
        }
        let mut slots = SlotsRecord::default();
        for slot in 0..USED {
            slots.slots.assign(
                &SlotRange::new(slot, slot).expect("a slot").into(),
                Some(ids[slot as usize % count]),
            );
        }
        let rest = SlotRange::new(USED, SLOTS - 1).expect("slots");
        slots.slots.assign(&rest.into(), Some(ids[0]));
        store.commit(&Transaction::default().put(keys.text(Key::Slots), slots.encode()));
        let shards = ids.into_iter().map(|id| Shard {
            id,
            process: 0,
            epoch: 0,
            log: Vec::new(),
            commit: 0,
            data: Data::default(),
            ownership: Ownership::default(),
            watched: None,
            source: None,
            stream: Vec::new(),
            target: None,
            parked: Vec::new(),
            replies: Vec::new(),
            asked: BTreeMap::new(),
        });
        let mut world = Self {
            random,
            fault,
            now: 0,
            queue: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            next: 0,
            keys,
            store,
            shards: shards.collect(),
            clients: vec![(0, None); 4],
            committed: BTreeMap::new(),
            violation: None,
            is_stormy: true,
            given: 0,
            void: 0,
        };
        (0..count).for_each(|shard| world.fail_over(shard));
        (0..4).for_each(|client| world.at(100, What::Client(client)));
        world.at(300, What::Plan);
        world.at(1_000, What::FailOver);
        world
    }

    fn at(&mut self, delay: u64, what: What) {
        self.next += 1;
        self.queue.push(std::cmp::Reverse((self.now + delay, self.next)));
        self.happenings.insert(self.next, what);
    }

    fn broken(&mut self, name: &'static str, what: String) {
        self.violation.get_or_insert(Violation { name, what });
    }

    fn slots(&self) -> (u64, SlotsRecord) {
        let item = self.store.item(&self.keys.text(Key::Slots)).expect("slots");
        (item.revision, SlotsRecord::decode(&item.value).expect("a record"))
    }

    fn shard_record(&self, shard: usize) -> (u64, ShardRecord) {
        let item = self.store.item(&self.keys.text(Key::Shard(self.shards[shard].id))).expect("a shard");
        (item.revision, ShardRecord::decode(&item.value).expect("a record"))
    }

    fn index(&self, id: ShardId) -> usize {
        usize::from(id.bytes()[0]) - 1
    }

    pub fn run(mut self) -> Result<(u64, u64), Violation> {
        while let Some(std::cmp::Reverse((at, id))) = self.queue.pop() {
            self.now = at;
            self.is_stormy = self.now < STORM_MS;
            if self.now > STORM_MS + 3_000 && self.is_well() {
                break;
            }
            if self.now > STORM_MS + REST_MS {
                let what = format!("moves do not end: {:?}", self.slots().1.moving);
                return Err(Violation { name: "liveness", what });
            }
            let what = self.happenings.remove(&id).expect("scheduled");
            self.happen(what);
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
        }
        self.check_end()?;
        Ok((self.given, self.void))
    }

    fn is_well(&self) -> bool {
        let (_, record) = self.slots();
        record.moving.is_empty()
            && self.shards.iter().all(|shard| {
                let own = record.slots.slots_of(shard.id);
                shard.commit == shard.log.len()
                    && shard.data.importing.is_empty()
                    && shard.source.is_none()
                    && shard.data.own.keys().all(|slot| own.contains(*slot))
                    && shard.ownership.is_read(shard.epoch)
            })
    }

    fn check_end(&self) -> Result<(), Violation> {
        let (_, record) = self.slots();
        for (slot, committed) in &self.committed {
            let owner = record.slots.owner(*slot).map(|id| self.index(id)).expect("an owner");
            let found = self.shards[owner].data.own.get(slot).cloned().unwrap_or_default();
            let distinct: BTreeSet<u64> = found.iter().copied().collect();
            if !found.starts_with(committed) || distinct.len() != found.len() {
                return Err(Violation {
                    name: "I12",
                    what: format!("slot {slot} has {found:?} of {committed:?}"),
                });
            }
        }
        Ok(())
    }

    fn is_running(&self, shard: usize, process: u64) -> bool {
        self.shards[shard].process == process
    }

    #[allow(
        clippy::collapsible_match,
        reason = "the last arm is for what comes too late, not for what has no effect"
    )]
    fn happen(&mut self, what: What) {
        match what {
            What::Tick(shard, process) if self.is_running(shard, process) => self.tick(shard),
            What::Look(shard, process) => {
                let (revision, record) = self.slots();
                let shards: Vec<(u64, u64)> = (0..self.shards.len())
                    .map(|at| {
                        let (revision, record) = self.shard_record(at);
                        (revision, record.epoch)
                    })
                    .collect();
                let delay = self.delay();
                self.at(delay, What::Seen(shard, process, revision, record, shards));
            }
            What::Seen(shard, process, revision, record, shards) if self.is_running(shard, process) => {
                self.seen(shard, revision, record, &shards);
            }
            What::Read(shard, process, number) => {
                let (revision, record) = self.slots();
                if !self.is_lost() {
                    let delay = self.delay();
                    self.at(delay, What::ReadDone(shard, process, number, revision, record));
                }
            }
            What::ReadDone(shard, process, number, revision, record) if self.is_running(shard, process) => {
                let epoch = self.shards[shard].epoch;
                match number {
                    None => {
                        self.shards[shard].ownership.take(revision, record, Some(epoch));
                        self.settle(shard);
                    }
                    Some((id, number)) => self.source(shard, |source, now, actions| {
                        if source.moving().id == id {
                            source.step(now, SourceEvent::Slots(revision, &record, Some(number)), actions);
                        }
                    }),
                }
            }
            What::Give(shard, process, number, transaction) => {
                let outcome = self.store.commit(&transaction);
                if matches!(outcome, TransactionOutcome::Done(_)) {
                    self.given += 1;
                }
                if !self.is_lost() {
                    let delay = self.delay();
                    self.at(delay, What::GiveDone(shard, process, number, outcome));
                }
            }
            What::GiveDone(shard, process, number, outcome) if self.is_running(shard, process) => {
                self.outcome(shard, number, outcome);
            }
            What::Want(shard, to_process, id, place) => self.wanted(shard, to_process, id, place),
            What::Items(shard, process, id, place, items) if self.is_running(shard, process) => {
                self.import(shard, id, place, items);
            }
            What::Held(shard, id, held) => {
                if self.shards[shard].source.as_ref().is_some_and(|source| source.moving().id == id) {
                    self.source(shard, |source, now, actions| {
                        source.step(now, SourceEvent::Held(held), actions)
                    });
                }
            }
            What::Quiet(shard, process) if self.is_running(shard, process) => {
                self.source(shard, |source, now, actions| source.step(now, SourceEvent::Parked, actions));
            }
            What::Command(shard, command) => self.command(shard, command),
            What::Client(client) => self.client(client),
            What::Done(client, number) => {
                if self.clients[client].0 == number {
                    self.clients[client].1 = None;
                }
            }
            What::FailOver => {
                if self.is_stormy {
                    let shard = self.random.below(self.shards.len() as u64) as usize;
                    self.fail_over(shard);
                    let delay = 200 + self.random.below(2_500);
                    self.at(delay, What::FailOver);
                }
            }
            What::Plan => self.plan(),
            _ => {}
        }
    }

    fn is_lost(&mut self) -> bool {
        self.is_stormy && self.random.chance(15)
    }

    fn delay(&mut self) -> u64 {
        match self.random.below(12) {
            0 if self.is_stormy => self.random.below(1_500),
            _ => 1 + self.random.below(12),
        }
    }

    /// Another member takes over: what was not committed is gone, and the record has another epoch.
    fn fail_over(&mut self, at: usize) {
        let (revision, mut record) = self.shard_record(at);
        record.epoch += 1;
        let key = self.keys.text(Key::Shard(self.shards[at].id));
        let outcome =
            self.store.commit(&Transaction::default().compare(&*key, revision).put(key, record.encode()));
        assert!(matches!(outcome, TransactionOutcome::Done(_)));
        let keep = {
            let shard = &self.shards[at];
            shard.commit + self.random.below((shard.log.len() - shard.commit) as u64 + 1) as usize
        };
        let shard = &mut self.shards[at];
        shard.log.truncate(keep);
        shard.data = Data::default();
        shard.log.iter().for_each(|op| shard.data.apply(op));
        shard.process += 1;
        shard.epoch = record.epoch;
        shard.ownership = Ownership::default();
        if let Some((revision, record)) = shard.watched.clone() {
            shard.ownership.take(revision, record, None);
        }
        (shard.source, shard.target) = (None, None);
        shard.parked.clear();
        shard.replies.clear();
        shard.asked.clear();
        let process = shard.process;
        self.at(1, What::Tick(at, process));
    }

    fn tick(&mut self, at: usize) {
        let process = self.shards[at].process;
        self.at(20, What::Tick(at, process));
        if !self.shards[at].ownership.is_read(self.shards[at].epoch) && self.random.chance(30) {
            let delay = self.delay();
            self.at(delay, What::Read(at, process, None));
        }
        if self.random.chance(30) && !self.is_lost() {
            let delay = self.delay();
            self.at(delay, What::Look(at, process));
        }
        let now = self.now;
        let late = self.shards[at].asked.iter().filter(|(_, until)| **until <= now);
        let late: Vec<(MoveId, u64)> = late.map(|(number, _)| *number).collect();
        for number in late {
            self.outcome(at, number, TransactionOutcome::Unknown(String::new()));
        }
        if self.is_settled(at) {
            self.source(at, |source, now, actions| source.step(now, SourceEvent::Settled, actions));
        }
        self.source(at, |source, now, actions| source.step(now, SourceEvent::Tick, actions));
        if self.random.chance(60) {
            let shard = &mut self.shards[at];
            shard.commit += self.random.below((shard.log.len() - shard.commit) as u64 + 1) as usize;
            if !self.is_stormy {
                shard.commit = shard.log.len();
            }
            self.committed(at);
        }
        if let Some(target) = &self.shards[at].target {
            let (id, from, place) = (target.moving().id, target.moving().from, target.received() as usize);
            let from = self.index(from);
            if !self.is_lost() {
                let delay = self.delay();
                self.at(delay, What::Want(from, process, id, place));
            }
        }
    }

    fn outcome(&mut self, at: usize, (id, number): (MoveId, u64), outcome: TransactionOutcome) {
        if self.shards[at].asked.remove(&(id, number)).is_some() {
            self.source(at, |source, now, actions| {
                if source.moving().id == id {
                    source.step(now, SourceEvent::Outcome(number, outcome), actions);
                }
            });
        }
    }

    fn committed(&mut self, at: usize) {
        let commit = self.shards[at].commit;
        let (ready, rest) =
            std::mem::take(&mut self.shards[at].replies).into_iter().partition(|reply| reply.at <= commit);
        self.shards[at].replies = rest;
        let ready: Vec<Reply> = ready;
        for reply in ready {
            let known = self.committed.entry(reply.slot).or_default();
            let shared = known.len().min(reply.seen.len());
            if known[..shared] != reply.seen[..shared] || reply.seen.len() < reply.known {
                let what =
                    format!("slot {}: {:?} is answered, {:?} was there", reply.slot, reply.seen, known);
                self.broken("I12", what);
                return;
            }
            if reply.seen.len() > known.len() {
                *known = reply.seen;
            }
            self.at(3, What::Done(reply.client, reply.number));
        }
        let mut actions = Vec::new();
        let Some(target) = &mut self.shards[at].target else { return };
        target.committed(commit as u64, &mut actions);
        let (id, from) = (target.moving().id, target.moving().from);
        for action in actions {
            let TargetAction::Held(held) = action else { continue };
            let (from, delay) = (self.index(from), self.delay());
            self.at(delay, What::Held(from, id, held));
        }
    }

    fn push(&mut self, at: usize, op: Op) {
        let shard = &mut self.shards[at];
        shard.data.apply(&op);
        shard.log.push(op);
    }

    fn seen(&mut self, at: usize, revision: u64, record: SlotsRecord, shards: &[(u64, u64)]) {
        self.shards[at].watched = Some((revision, record.clone()));
        self.shards[at].ownership.take(revision, record, None);
        self.settle(at);
        let Some(source) = &self.shards[at].source else { return };
        let (from, to) = (self.index(source.moving().from), self.index(source.moving().to));
        let revisions = Revisions { from: shards[from], to: shards[to] };
        let (revision, record) = self.shards[at].ownership.known().cloned().expect("just taken");
        self.source(at, |source, now, actions| {
            source.step(now, SourceEvent::Shards(revisions), actions);
            source.step(now, SourceEvent::Slots(revision, &record, None), actions);
        });
    }

    /// Brings this shard in line with the record of slots, once it has been read.
    fn settle(&mut self, at: usize) {
        let epoch = self.shards[at].epoch;
        if !self.shards[at].ownership.is_read(epoch) {
            return;
        }
        let (revision, record) = self.shards[at].ownership.known().cloned().expect("read");
        let me = self.shards[at].id;
        let mut actions = Vec::new();
        if let Some(target) = &mut self.shards[at].target {
            target.slots_are(&record, epoch, &mut actions);
            if target.is_over() {
                self.shards[at].target = None;
            }
        }
        let imported: Vec<Move> =
            self.shards[at].data.importing.values().map(|(one, _)| one.clone()).collect();
        for one in imported {
            match MoveTarget::settle(&one, &record, epoch) {
                Some(TargetAction::Serve) => self.push(at, Op::Serve(one.id)),
                Some(_) => {
                    self.void += 1;
                    self.push(at, Op::Drop(one.id));
                }
                None => {}
            }
        }
        if self.shards[at].source.is_none() {
            let owned = record.slots.slots_of(me);
            let strangers: SlotSet =
                self.shards[at].data.own.keys().copied().filter(|slot| !owned.contains(*slot)).collect();
            if !strangers.is_empty() {
                self.push(at, Op::Delete(strangers));
            }
        }
        for one in &record.moving {
            if one.to == me
                && one.to_epoch == epoch
                && self.shards[at].target.is_none()
                && !self.shards[at].data.importing.contains_key(&one.id)
            {
                self.push(at, Op::Begin(one.clone()));
                self.shards[at].target = Some(MoveTarget::new(one.clone()));
            }
            if one.from == me
                && one.from_epoch == epoch
                && self.shards[at].source.is_none()
                && self.shards[at].data.importing.is_empty()
            {
                let options = Options { park_below: 4, fault: self.fault, ..Options::default() };
                let mut source = Source::new(one.clone(), self.keys.clone(), options, self.now);
                let own = &self.shards[at].data.own;
                let stream: Vec<_> = own
                    .iter()
                    .filter(|(slot, _)| one.slots.contains(**slot))
                    .map(|(slot, ids)| (*slot, ids.clone()))
                    .collect();
                let mut actions = Vec::new();
                source.step(self.now, SourceEvent::Slots(revision, &record, None), &mut actions);
                source.step(self.now, SourceEvent::End(stream.len() as u64), &mut actions);
                assert!(actions.is_empty());
                (self.shards[at].source, self.shards[at].stream) = (Some(source), stream);
            }
        }
    }

    /// Whether everything that came to a shard by moves is visible, and committed.
    fn is_settled(&self, at: usize) -> bool {
        let shard = &self.shards[at];
        let served = shard.log.iter().rposition(|op| matches!(op, Op::Serve(_)));
        shard.data.importing.is_empty() && served.is_none_or(|place| place < shard.commit)
    }

    fn source(&mut self, at: usize, step: impl FnOnce(&mut Source, u64, &mut Vec<SourceAction>)) {
        let Some(mut source) = self.shards[at].source.take() else { return };
        let mut actions = Vec::new();
        step(&mut source, self.now, &mut actions);
        let (id, slots) = (source.moving().id, source.moving().slots.clone());
        let process = self.shards[at].process;
        let is_over = source.is_over();
        self.shards[at].source = Some(source);
        for action in actions {
            match action {
                SourceAction::Park => {
                    let delay = self.random.below(5);
                    self.at(delay, What::Quiet(at, process));
                }
                SourceAction::Unpark => self.unpark(at),
                SourceAction::Propose { number, transaction } => {
                    self.shards[at].asked.insert((id, number), self.now + 300);
                    if !self.is_lost() {
                        let delay = self.delay();
                        self.at(delay, What::Give(at, process, (id, number), transaction));
                    }
                }
                SourceAction::Read(number) => {
                    let delay = self.delay();
                    self.at(delay, What::Read(at, process, Some((id, number))));
                }
                SourceAction::Given(revision, record) => {
                    for command in std::mem::take(&mut self.shards[at].parked) {
                        self.at(1, What::Done(command.client, command.number));
                    }
                    self.push(at, Op::Delete(slots.clone()));
                    self.shards[at].ownership.take(revision, record, None);
                }
                SourceAction::Ended(_) => self.unpark(at),
            }
        }
        if is_over {
            self.shards[at].source = None;
        }
    }

    fn unpark(&mut self, at: usize) {
        for command in std::mem::take(&mut self.shards[at].parked) {
            self.execute(at, command);
        }
    }

    fn wanted(&mut self, at: usize, to_process: u64, id: MoveId, place: usize) {
        let Some(source) = self.shards[at].source.as_ref().filter(|source| source.moving().id == id) else {
            return;
        };
        let to = self.index(source.moving().to);
        let stream = &self.shards[at].stream;
        if place < stream.len() {
            let items = stream[place..(place + 5).min(stream.len())].to_vec();
            let delay = self.delay();
            self.at(delay, What::Items(to, to_process, id, place, items));
        }
    }

    fn import(&mut self, at: usize, id: MoveId, place: usize, items: Vec<(u16, Vec<u64>)>) {
        let is_next = self.shards[at]
            .target
            .as_ref()
            .is_some_and(|target| target.moving().id == id && target.received() as usize == place);
        if !is_next {
            return;
        }
        let end = place + items.len();
        for (slot, ids) in items {
            self.push(at, Op::Import(id, slot, ids));
        }
        let offset = self.shards[at].log.len() as u64;
        self.shards[at].target.as_mut().expect("it imports").imported(end as u64, offset);
    }

    fn client(&mut self, client: usize) {
        let delay = 5 + self.random.below(30);
        self.at(delay, What::Client(client));
        if self.clients[client].1.is_some_and(|until| until > self.now) {
            return;
        }
        let (number, slot) = (self.clients[client].0 + 1, self.random.below(USED.into()) as u16);
        self.clients[client] = (number, Some(self.now + 600));
        let (_, record) = self.slots();
        let owner = record.slots.owner(slot).map(|id| self.index(id)).expect("an owner");
        let at =
            if self.random.chance(80) { owner } else { self.random.below(self.shards.len() as u64) as usize };
        let known = self.committed.get(&slot).map_or(0, Vec::len);
        let is_write = self.random.chance(60);
        let delay = self.delay();
        self.at(delay, What::Command(at, Command { client, number, slot, is_write, known }));
    }

    fn command(&mut self, at: usize, command: Command) {
        let shard = &self.shards[at];
        let is_parked = shard
            .source
            .as_ref()
            .is_some_and(|source| source.is_parked() && source.moving().slots.contains(command.slot));
        let is_importing = shard.target.as_ref().is_some_and(|target| target.slots().contains(command.slot));
        let mut serves = shard.ownership.serves(shard.id, shard.epoch, command.slot);
        serves |= self.fault == Some(Fault::ServeImporting) && is_importing;
        if self.fault == Some(Fault::ServeUnread) {
            serves |= shard
                .ownership
                .known()
                .is_some_and(|(_, record)| record.slots.owner(command.slot) == Some(shard.id));
        }
        if !serves {
            self.at(2, What::Done(command.client, command.number));
        } else if is_parked {
            self.shards[at].parked.push(command);
        } else {
            self.execute(at, command);
        }
    }

    fn execute(&mut self, at: usize, command: Command) {
        let (_, record) = self.slots();
        let Command { client, number, slot, is_write, known } = command;
        if record.slots.owner(slot) != Some(self.shards[at].id) {
            let what = format!(
                "{:?} serves slot {slot}, which is {:?}'s",
                self.shards[at].id,
                record.slots.owner(slot)
            );
            self.broken("I7", what);
            return;
        }
        if is_write {
            let id = client as u64 * 1_000_000 + number;
            self.push(at, Op::Write(slot, id));
            let shard = &mut self.shards[at];
            if shard.source.as_ref().is_some_and(|source| source.moving().slots.contains(slot)) {
                shard.stream.push((slot, vec![id]));
                let end = shard.stream.len() as u64;
                self.source(at, |source, now, actions| source.step(now, SourceEvent::End(end), actions));
            }
        }
        let shard = &mut self.shards[at];
        let seen = shard.data.own.get(&slot).cloned().unwrap_or_default();
        shard.replies.push(Reply { client, number, slot, seen, at: shard.log.len(), known });
    }

    /// The planner: begins moves, ends void ones, and sometimes takes one back.
    fn plan(&mut self) {
        let delay = 100 + self.random.below(300);
        self.at(delay, What::Plan);
        let (revision, mut record) = self.slots();
        let before = record.clone();
        let epochs: Vec<u64> = (0..self.shards.len()).map(|at| self.shard_record(at).1.epoch).collect();
        let ids: Vec<ShardId> = self.shards.iter().map(|shard| shard.id).collect();
        let epoch = |id: ShardId| epochs[ids.iter().position(|other| *other == id).expect("a shard")];
        record.moving.retain(|one| epoch(one.from) == one.from_epoch && epoch(one.to) == one.to_epoch);
        if self.is_stormy && !record.moving.is_empty() && self.random.chance(5) {
            record.moving.pop();
        }
        let is_free = |id: ShardId| !record.moving.iter().any(|one| one.from == id || one.to == id);
        let from = ids[self.random.below(ids.len() as u64) as usize];
        let to = ids[self.random.below(ids.len() as u64) as usize];
        if self.is_stormy && from != to && is_free(from) && is_free(to) {
            let owned = record.slots.slots_of(from);
            let slots: SlotSet = owned.iter().take(USED.into()).filter(|_| self.random.chance(50)).collect();
            if !slots.is_empty() {
                let id = MoveId::from_bytes(std::array::from_fn(|_| self.random.below(256) as u8));
                record.moving.push(Move {
                    id,
                    slots,
                    from,
                    to,
                    from_epoch: epoch(from),
                    to_epoch: epoch(to),
                });
            }
        }
        if record != before {
            let key = self.keys.text(Key::Slots);
            self.store.commit(&Transaction::default().compare(&*key, revision).put(key, record.encode()));
        }
    }
}
