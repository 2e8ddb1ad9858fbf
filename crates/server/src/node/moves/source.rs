//! The source of a move: a thread, which sends the slots and gives them away. `dunlin_cluster::moves::Source` decides.

use std::{
    io::{self, Write},
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use dunlin_cluster::{
    meta::{Meta, Revision, Transaction, TransactionOutcome},
    moves::{Options, Revisions, Source, SourceAction, SourceEvent},
    records::{Key, Keys, Move, NodeRecord, Record, SlotsRecord},
};
use dunlin_engine::keyspace::SlotBits;
use dunlin_replication::request;

use super::filter::{Filter, Unfit};
use crate::{
    cluster::{
        inbox::Input,
        moves::JobState,
        view::{Stored, View},
    },
    persistence::saving::Progress,
    rdb::KeySink,
    replication::{Hold, connection::Connection},
    shared::Shared,
    workers::{
        WorkerMessage,
        migration::{Credentials, MigrationTarget},
    },
};

/// For each wait of a socket.
const LINK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a target that takes nothing may hold up clients that write: the copies of their changes wait for it.
const CONGESTED_TIME_MAX: Duration = Duration::from_millis(300);
/// How long the target may owe a word of what it has committed.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long the target may be busy with keys that it is removing, or have not read the record.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(60);
/// How long parked commands wait for a target that does not know yet that the slots are its own.
const HANDOVER_TIME_MAX: Duration = Duration::from_secs(2);
/// How long they wait for this node's own agent, which notes the record on disk before it is obeyed.
const AGENT_TIME_MAX: Duration = Duration::from_millis(500);
/// Between two looks.
const PAUSE: Duration = Duration::from_micros(500);
const BEGIN_PAUSE: Duration = Duration::from_millis(20);
const RETRY: Duration = Duration::from_millis(200);
/// Bytes of the ring that are looked at in one turn.
const TURN_BYTES: u64 = 1 << 20;
/// Commands are parked for good when the target lacks at most this many bytes.
const NEAR_BYTES: u64 = 256 << 10;
/// If the target does not come near for this long, commands on the slots are held back in short spells.
const THROTTLE_AFTER: Duration = Duration::from_secs(2);
const THROTTLE_TIME: Duration = Duration::from_millis(30);
const THROTTLE_PAUSE: Duration = Duration::from_millis(30);

/// Everything that a move needs.
pub(super) struct SourceTask {
    pub(super) shared: Arc<Shared>,
    pub(super) meta: Arc<dyn Meta>,
    pub(super) keys: Keys,
    pub(super) one: Move,
    pub(super) target: NodeRecord,
}

impl SourceTask {
    /// Makes commands on the move's slots wait. When this returns, none of them runs.
    fn park(&self) {
        let Shared { cluster, engine, .. } = &*self.shared;
        cluster.park(engine, self.one.id, &self.one.slots);
    }

    /// Lets them run again, or sends them away.
    fn unpark(&self) {
        self.shared.cluster.unpark(&self.shared.engine.keyspace, self.one.id);
        if let Some(queues) = self.shared.durability.queues() {
            queues.send_to_everyone(WorkerMessage::Unpaused);
        }
    }
}

/// A move under way.
pub(super) struct Handle(thread::JoinHandle<()>);

impl Handle {
    /// Starts the thread.
    pub(super) fn start(order: SourceTask) -> io::Result<Self> {
        thread::Builder::new().name("move".to_owned()).spawn(move || run(&order)).map(Self)
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.is_finished()
    }
}

/// Runs a move to its end.
fn run(order: &SourceTask) {
    let (moves, id) = (&order.shared.cluster.moves, order.one.id);
    tracing::info!("Move {id}: slots {} go to {}", order.one.slots, order.target.addresses.host);
    let begun = Instant::now();
    let bits: Arc<SlotBits> = Arc::new(order.one.slots.iter().collect());
    let mut sender = Sender::new(order, &bits);
    let sent = sender.send_snapshot(Arc::clone(&bits));
    let end = match sent {
        Ok(()) => sender.follow(),
        Err(_) if !sender.is_named() => End::Gone("cancelled"),
        Err(error) => End::Failed(error.to_string()),
    };
    let (took_ms, sent_bytes) = (begun.elapsed().as_millis(), sender.place);
    // The log is not held for a move that is over, however long the record takes to say so.
    drop(sender);
    let (state, message) = match end {
        End::Given => (JobState::Success, String::new()),
        End::Gone(why) => (JobState::Cancelled, why.to_owned()),
        End::Failed(why) => {
            strike_off(order);
            (JobState::Failed, why)
        }
    };
    match state {
        JobState::Success => tracing::info!("Move {id}: done in {took_ms} ms, {sent_bytes} bytes"),
        _ => tracing::warn!("Move {id}: the slots stay here: {message}"),
    }
    moves.jobs.note(id, true, |job| (job.state, job.message) = (state, message));
}

/// Takes a move off the record: this node is still the owner, and proposes nothing after that.
fn strike_off(order: &SourceTask) {
    let key = order.keys.text(Key::Slots);
    while !order.shared.is_ending() {
        if let Some((revision, mut record)) = read_slots(order) {
            let before = record.moving.len();
            record.moving.retain(|one| one.id != order.one.id);
            if record.moving.len() == before {
                return;
            }
            let change = Transaction::default().compare(&*key, revision).put(&*key, record.encode());
            if let TransactionOutcome::Done(_) = order.meta.commit(&change) {
                return;
            }
        }
        thread::sleep(RETRY);
    }
}

/// Reads the record of slots, linearizably.
fn read_slots(order: &SourceTask) -> Option<(Revision, SlotsRecord)> {
    let snapshot = order.meta.get(&order.keys.text(Key::Slots)).ok()?;
    let item = snapshot.items.first()?;
    Some((item.revision, SlotsRecord::decode(&item.value).ok()?))
}

/// How a move has ended.
enum End {
    /// The slots are the target's.
    Given,
    /// The record has ceased to name the move.
    Gone(&'static str),
    /// The move is to be struck off the record.
    Failed(String),
}

/// The connection and what has been sent on it.
struct Sender<'a> {
    order: &'a SourceTask,
    connection: Option<Connection>,
    filter: Filter<'a>,
    hold: Option<Arc<Hold>>,
    /// The ring's bytes up to here have been looked at.
    at: u64,
    /// Bytes of the move's stream so far.
    place: u64,
    /// The place that the target was asked for last, the last one that it has answered, and when that was.
    asked: u64,
    held: u64,
    heard: Instant,
    output: Vec<u8>,
    /// The progress of the snapshot, once it has begun.
    progress: Option<Arc<Progress>>,
}

impl<'a> Sender<'a> {
    fn new(order: &'a SourceTask, bits: &'a SlotBits) -> Self {
        Self {
            order,
            connection: None,
            filter: Filter::new(&order.shared.commands, bits),
            hold: None,
            at: 0,
            place: 0,
            asked: 0,
            held: 0,
            heard: Instant::now(),
            output: Vec::new(),
            progress: None,
        }
    }

    fn state(&self, state: JobState) {
        self.order.shared.cluster.moves.jobs.note(self.order.one.id, true, |job| job.state = state);
    }

    /// Whether the move is still in the record that this node knows.
    fn is_named(&self) -> bool {
        let (view, _) = self.order.shared.cluster.moves.view();
        let id = self.order.one.id;
        !self.order.shared.is_ending() && view.is_none_or(|view| view.moves().any(|one| one.id == id))
    }

    fn connect(&self) -> io::Result<Connection> {
        let shared = &self.order.shared;
        let config = shared.config.current();
        let addresses = &self.order.target.addresses;
        let port = if config.tls_cluster { addresses.tls_port } else { addresses.port };
        let user = config.masteruser.bytes();
        let credentials = (!config.masterauth.is_empty()).then(|| Credentials {
            user: (!user.is_empty()).then(|| user.to_vec()),
            password: config.masterauth.bytes().to_vec(),
        });
        let target = MigrationTarget {
            host: addresses.host.clone().into_bytes(),
            port: port.to_string().into_bytes(),
            database: 0,
            timeout: LINK_TIMEOUT,
            copy: false,
            replace: false,
            credentials: credentials.clone(),
        };
        let mut connection =
            Connection::make(&shared.tls, &shared.config.current(), shared.ending_flag(), &target)?;
        if let Some(Credentials { user, password }) = credentials {
            let user = user.unwrap_or_else(|| b"default".to_vec());
            self.ask(&mut connection, &[b"AUTH", &user, &password])?;
        }
        Ok(connection)
    }

    /// Sends a request and waits for its reply, which is one line.
    fn ask(&self, connection: &mut Connection, words: &[&[u8]]) -> io::Result<Vec<u8>> {
        connection.write_all(&request(words), LINK_TIMEOUT)?;
        let line = connection.line(LINK_TIMEOUT)?;
        match line.strip_prefix(b"-") {
            Some(error) => Err(io::Error::other(String::from_utf8_lossy(error).into_owned())),
            None => Ok(line),
        }
    }

    /// Makes the target begin, and sends the keys as they are at one instant.
    fn send_snapshot(&mut self, bits: Arc<SlotBits>) -> io::Result<()> {
        let (shared, id) = (Arc::clone(&self.order.shared), self.order.one.id.to_string());
        let until = Instant::now() + BEGIN_TIME_MAX;
        let mut connection = self.connect()?;
        while let Err(error) = self.ask(&mut connection, &[b"CLUSTER", b"IMPORT", b"BEGIN", id.as_bytes()]) {
            let passes = error.to_string().starts_with("TRYAGAIN");
            if !passes || Instant::now() > until || !self.is_named() {
                return Err(error);
            }
            let why = error.to_string();
            let why = why.trim_start_matches("TRYAGAIN ");
            let addresses = &self.order.target.addresses;
            let waits = format!("for node {}:{}: {why}", addresses.host, addresses.port);
            shared.cluster.moves.jobs.note(self.order.one.id, true, |job| job.waits = waits);
            thread::sleep(BEGIN_PAUSE);
        }
        self.connection = Some(connection);
        self.heard = Instant::now();
        self.state(JobState::Snapshotting);
        let hold = shared.replication.hold(&shared.engine, &shared.durability);
        let cut = loop {
            let mut tail = 0;
            let cut = shared.alone_unless_long(|context| {
                let cut = shared.cut_of_slots(context, Arc::clone(&bits))?;
                tail = shared.durability.tail();
                hold.advance(tail);
                Some(cut)
            });
            if let Some(Some(cut)) = cut {
                self.at = tail;
                break cut;
            }
            if !self.is_named() {
                return Err(io::Error::other("the move has ended"));
            }
            thread::sleep(BEGIN_PAUSE);
        };
        self.hold = Some(hold);
        self.progress = Some(Arc::clone(&cut.progress));
        shared.write_slots_to(cut, self)?;
        shared.cluster.moves.jobs.note(self.order.one.id, true, |job| {
            (job.state, job.walked) = (JobState::Replicating, 1000);
        });
        Ok(())
    }

    /// Keeps the records of the slots that have come, as far as one turn goes. Returns whether there is more.
    fn gather(&mut self) -> Result<bool, String> {
        let mut unfit = Ok(());
        let from = self.at;
        let (filter, output) = (&mut self.filter, &mut self.output);
        self.at = self.order.shared.replication.read_held(from, TURN_BYTES, |bytes| {
            if unfit.is_ok() {
                unfit = filter.take(bytes, output);
            }
        });
        unfit.map_err(|unfit| match unfit {
            Unfit::Flushed => "the source was emptied (FLUSHALL)".to_owned(),
            Unfit::Malformed(why) => why,
        })?;
        if let Some(hold) = &self.hold {
            hold.advance(self.at);
        }
        Ok(self.at - from == TURN_BYTES)
    }

    /// Sends the records that have come, as far as one turn goes. Returns whether there is more.
    fn send_records(&mut self) -> Result<bool, String> {
        let has_more = self.gather()?;
        let mut output = std::mem::take(&mut self.output);
        let sent = self.write_all(&output);
        output.clear();
        output.shrink_to(TURN_BYTES as usize);
        self.output = output;
        sent.map_err(|error| error.to_string())?;
        self.ask_for_place().map_err(|error| error.to_string())?;
        Ok(has_more)
    }

    /// Asks the target to say when its shard has committed all of this.
    fn ask_for_place(&mut self) -> io::Result<()> {
        if self.place > self.asked
            && let Some(connection) = &mut self.connection
        {
            if self.asked == self.held {
                self.heard = Instant::now();
            }
            self.asked = self.place;
            let place = self.place.to_string();
            let words: [&[u8]; 4] = [b"CLUSTER", b"IMPORT", b"PLACE", place.as_bytes()];
            connection.write_all(&request(&words), LINK_TIMEOUT)?;
        }
        Ok(())
    }

    /// Reads what the target says.
    fn hear(&mut self) -> Result<(), String> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        while let Some(line) = connection.line_at_once().map_err(|error| error.to_string())? {
            let number = line.strip_prefix(b":").and_then(|digits| std::str::from_utf8(digits).ok());
            let Some(held) = number.and_then(|digits| digits.parse().ok()) else {
                return Err(format!("the target answers {}", String::from_utf8_lossy(&line)));
            };
            (self.held, self.heard) = (held, Instant::now());
            self.order.shared.cluster.moves.jobs.hear(self.order.one.id, self.place, held);
        }
        if self.held < self.asked && self.heard.elapsed() > SILENCE_MAX {
            return Err("the target is silent".to_owned());
        }
        Ok(())
    }

    /// Sends what comes until the slots are given away, or stay.
    fn follow(&mut self) -> End {
        let order = self.order;
        let moves = &order.shared.cluster.moves;
        let begun = Instant::now();
        let now_ms = || begun.elapsed().as_millis() as u64;
        let options = Options { park_below: NEAR_BYTES, ..Options::default() };
        let mut machine = Source::new(order.one.clone(), order.keys.clone(), options, 0);
        let mut actions = Vec::new();
        let mut broken: Option<String> = None;
        let mut views = u64::MAX;
        let mut throttle = WriteThrottle { since: Instant::now(), is_on: false };
        // Keys of earlier moves became this shard's by the record, after they were committed: nothing is left to settle.
        machine.step(now_ms(), SourceEvent::Settled, &mut actions);
        loop {
            let mut has_more = false;
            if broken.is_none() {
                let result = self.send_records().and_then(|more| {
                    has_more = more;
                    self.hear()
                });
                if let Err(why) = result.and_then(|()| self.check_room()) {
                    broken = Some(why);
                    // Nothing more is sent. Whose the slots are may be open for as long as the store does not answer.
                    self.hold = None;
                }
            }
            let (view, count) = moves.view();
            if count != views
                && let Some(view) = view
            {
                views = count;
                if let Some(revisions) = revisions(&view, &order.one) {
                    machine.step(now_ms(), SourceEvent::Shards(revisions), &mut actions);
                }
                if let Some((revision, record)) = &view.slots {
                    machine.step(now_ms(), SourceEvent::Slots(*revision, record, None), &mut actions);
                }
            }
            if broken.is_some() || order.shared.is_ending() {
                machine.step(now_ms(), SourceEvent::Cancel, &mut actions);
            }
            machine.step(now_ms(), SourceEvent::Held(self.held), &mut actions);
            machine.step(now_ms(), SourceEvent::End(self.place), &mut actions);
            if actions.is_empty() {
                let lag = self.place - self.held;
                throttle.keep(
                    lag,
                    machine.is_parked(),
                    || order.park(),
                    || {
                        order.unpark();
                    },
                );
            }
            let is_idle = actions.is_empty() && !has_more;
            while !actions.is_empty() {
                for action in std::mem::take(&mut actions) {
                    match action {
                        SourceAction::Park => {
                            order.park();
                            throttle.is_on = false;
                            self.state(JobState::Paused);
                            let until = order.shared.durability.tail();
                            while broken.is_none() && self.at < until {
                                broken = self.send_records().err();
                            }
                            if broken.is_some() {
                                // The target lacks what could not be sent, though it has all that was.
                                machine.step(now_ms(), SourceEvent::Cancel, &mut actions);
                            }
                            machine.step(now_ms(), SourceEvent::End(self.place), &mut actions);
                            machine.step(now_ms(), SourceEvent::Parked, &mut actions);
                        }
                        SourceAction::Unpark => {
                            order.unpark();
                            throttle = WriteThrottle { since: Instant::now(), is_on: false };
                            self.state(JobState::Replicating);
                        }
                        SourceAction::Propose { number, transaction } => {
                            let outcome = order.meta.commit(&transaction);
                            machine.step(now_ms(), SourceEvent::Outcome(number, outcome), &mut actions);
                        }
                        SourceAction::Read(number) => {
                            if let Some((revision, record)) = read_slots(order) {
                                let event = SourceEvent::Slots(revision, &record, Some(number));
                                machine.step(now_ms(), event, &mut actions);
                            }
                        }
                        SourceAction::Given(revision, record) => {
                            self.hand_over((revision, record));
                            order.unpark();
                            return End::Given;
                        }
                        SourceAction::Ended(why) => {
                            order.unpark();
                            return broken.map_or(End::Gone(why), End::Failed);
                        }
                    }
                }
            }
            if is_idle {
                thread::sleep(PAUSE);
            }
        }
    }

    /// The records that wait in memory are not without bound: those of the log, and those of the slots out of it.
    fn check_room(&self) -> Result<(), String> {
        let config = self.order.shared.config.current();
        let limit = config.client_output_buffer_limit.replica.hard_bytes;
        let limit = if limit == 0 { u64::MAX } else { limit };
        let waiting = self.order.shared.durability.tail() - self.at + self.output.len() as u64;
        if waiting > limit.max(config.repl_backlog_size) {
            return Err(
                "the target is behind by more than client-output-buffer-limit replica allows".to_owned()
            );
        }
        Ok(())
    }

    /// Waits until the target answers for the slots, and this node does not: parked clients are sent there, not to and fro.
    fn hand_over(&mut self, given: Stored<SlotsRecord>) {
        let (shared, one) = (Arc::clone(&self.order.shared), &self.order.one);
        let (until, id) = (Instant::now() + HANDOVER_TIME_MAX, one.id.to_string());
        // Answers that it owes to earlier questions come first.
        while self.held < self.asked && self.hear().is_ok() && Instant::now() < until {
            thread::sleep(PAUSE);
        }
        while let Some(mut connection) = self.connection.take() {
            let owned = self.ask(&mut connection, &[b"CLUSTER", b"IMPORT", b"OWNED", id.as_bytes()]);
            if owned.is_ok_and(|line| line == b":0") && Instant::now() < until {
                self.connection = Some(connection);
                thread::sleep(PAUSE);
            }
        }
        let first = one.slots.iter().next().unwrap_or(0);
        let is_mine = || shared.cluster.topology().is_some_and(|topology| topology.is_mine(first));
        let (until, mut given) = (Instant::now() + AGENT_TIME_MAX, Some(given));
        while is_mine() && !shared.is_ending() {
            if Instant::now() >= until
                && let Some(given) = given.take()
            {
                // Its agent cannot read the records, or cannot obey them. This one vouches for no term.
                shared.cluster.shard.push(Input::Slots(0, Some(given)));
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Sends the bytes of the snapshot.
impl Write for Sender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_named() {
            return Err(io::Error::other("the move has ended"));
        }
        let shared = Arc::clone(&self.order.shared);
        self.check_room().map_err(io::Error::other)?;
        let mut stalled: Option<Instant> = None;
        loop {
            let Some(connection) = &mut self.connection else {
                return Err(io::ErrorKind::NotConnected.into());
            };
            match connection.write_some(bytes, CONGESTED_TIME_MAX) {
                Ok(0) => {}
                Ok(sent) => {
                    self.place += sent as u64;
                    let walked = self.progress.as_ref().map_or(0, |progress| progress.visited.load(Relaxed));
                    shared.cluster.moves.jobs.note(self.order.one.id, true, |job| {
                        (job.walked, job.sent) = (walked, self.place);
                    });
                    return Ok(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    let since = *stalled.get_or_insert_with(Instant::now);
                    let is_congested = shared.engine.keyspace.snapshots().is_congested();
                    if is_congested || since.elapsed() > LINK_TIMEOUT {
                        return Err(io::Error::other("the target takes its snapshot too slowly"));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl KeySink for Sender<'_> {
    /// Most writes on a node are not about the slots: such a write does not wait for the end of the walk.
    fn meanwhile(&mut self) -> io::Result<()> {
        self.gather().and_then(|_| self.check_room()).map_err(io::Error::other)
    }
}

/// Holds commands back if the target does not catch up with them.
struct WriteThrottle {
    /// The time of its last change.
    since: Instant,
    is_on: bool,
}

impl WriteThrottle {
    fn keep(&mut self, lag: u64, is_parked: bool, park: impl FnOnce(), unpark: impl FnOnce()) {
        if is_parked {
            self.since = Instant::now();
            return;
        }
        let elapsed = self.since.elapsed();
        match self.is_on {
            false if lag > NEAR_BYTES && elapsed >= THROTTLE_AFTER => {
                park();
                *self = Self { since: Instant::now(), is_on: true };
            }
            true if lag <= NEAR_BYTES || elapsed >= THROTTLE_TIME => {
                unpark();
                // The next spell is soon, unless the target has caught up.
                let pause = if lag > NEAR_BYTES { THROTTLE_AFTER - THROTTLE_PAUSE } else { Duration::ZERO };
                let since = Instant::now().checked_sub(pause).unwrap_or_else(Instant::now);
                *self = Self { since, is_on: false };
            }
            _ => {}
        }
    }
}

/// The records of both shards as the transaction compares them.
fn revisions(view: &View, one: &Move) -> Option<Revisions> {
    let of = |shard| view.shards.get(shard).map(|(revision, record)| (*revision, record.epoch));
    Some(Revisions { from: of(&one.from)?, to: of(&one.to)? })
}
