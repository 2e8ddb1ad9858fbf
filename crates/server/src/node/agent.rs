//! The thread `cluster`: announces the node, follows the cluster's records, and makes the server obey them.
//!
//! ```text
//! read all records ─▶ right cluster? ─▶ presence (alive/ID, on a lease) ─▶ announcement (nodes/ID) ─▶ watch
//!        ▲                                                                                             │
//!        └────────────────────── etcd fails: the server serves on ◀────────────── topology, role ◀─────┘
//! ```
//!
//! Invariants:
//! - Nothing here is on a request's way. While etcd fails, the last topology stays in force.
//! - Records that this version cannot read, of another cluster, or of a store that has not come from the one that was obeyed
//!   ([`Descent`]) change nothing, and nothing is written into them. The presence is renewed meanwhile, and not written anew.
//! - An outcome that is unknown is read back before anything else is proposed.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dunlin_cluster::{
    BootId, ClusterId, NodeId, ShardId,
    meta::{LeaseId, Meta, MetaError, Outcome, Revision, Transaction},
    records::{
        AliveRecord, ClusterRecord, ControllerRecord, Durability, Key, NodeRecord, NodeState, ProgressRecord,
        Record,
    },
    shard::Local,
};

use super::{
    Membership,
    backoff::Backoff,
    bus, controller,
    data::{is_durable, local, take_place, with_first_shard},
    identity::{Process, place_of},
    moves, probe,
    shard::{self, Restarts, Settings},
    wide,
};
use crate::{
    cluster::{
        ALIVE_MS,
        descent::{Descends, Descent},
        ending::Ending,
        inbox::Input,
        moves::HeavySlots,
        overview::Overview,
        view::View,
    },
    config::{ClusterDurability, Config},
    shared::{Shared, Stop},
    system::host::{self, draw},
};

/// The seconds of the lease that says that the node is there.
const LEASE_S: u32 = (ALIVE_MS / 1000) as u32;
/// The longest wait for changes: how late the presence is renewed and the end is noticed.
const WAIT_MS: u64 = 500;
/// Between two attempts while etcd fails.
const RETRY: Duration = Duration::from_millis(500);
/// The longest pause between two attempts while etcd has a backup that is not obeyed: the presence is renewed by them.
const BACKUP_RETRY_MAX: Duration = Duration::from_secs(2);
/// A cluster is founded when no further node has come for this long.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
/// Changes of the amount of data below this are not reported to the planner; reports are this far apart at least.
const REPORTED_BYTES_MIN: u64 = 1 << 20;
const REPORT_PAUSE: Duration = Duration::from_secs(2);
/// A revision that no key has.
const REVISION_MAX: Revision = i64::MAX as Revision;
/// Between two looks whether etcd makes changes.
const ROOM_PAUSE: Duration = Duration::from_secs(10);
/// etcd's words for an alarm of its space, or for a request beyond it.
const NO_ROOM: &str = "space exceeded";
/// Between two words about the progress of the node's moves.
const MOVES_REPORT_PAUSE: Duration = Duration::from_millis(900);
/// How much longer than its lease the presence of an earlier process is waited out.
const PRESENCE_MARGIN: Duration = Duration::from_secs(5);
/// How long the end of the server waits for another primary.
const HAND_OVER_TIME_MAX: Duration = Duration::from_secs(3);
/// How long a node without a role waits for users and settings.
const WIDE_TIME_MAX: Duration = Duration::from_secs(2);
/// How long the end of the server waits for the thread, which may be waiting for changes…
const END_TIME_MAX: Duration = Duration::from_secs(1);
/// …and if the node leaves its cluster for good, whose record it removes.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(5);
const RECORD_STAYS: &str =
    "Cluster: the record of this node may have stayed; CLUSTER FORGET at another node removes it";

/// Why the thread begins again.
#[derive(Debug)]
enum Failure {
    /// Later: a line for the log.
    Later(String),
    /// These records are not to be obeyed: a line for the log. The node follows them until they are.
    NotObeyed(String),
    /// The store as a whole is not to be obeyed: a line for the log. The node reads it anew, less and less often.
    Backup(String),
    /// The server must not go on as this node: a line for the operator.
    Fatal(String),
}

impl From<MetaError> for Failure {
    fn from(error: MetaError) -> Self {
        Self::Later(error.to_string())
    }
}

struct Agent {
    shared: Arc<Shared>,
    member: Membership,
    /// The store, for changes of records.
    descent: Arc<Descent>,
    boot: BootId,
    lease: Option<LeaseId>,
    /// When the lease was renewed last.
    renewed: Instant,
    /// When the amount of data was recorded last.
    reported: Instant,
    /// When the progress of moves was recorded last.
    told: Instant,
    /// When etcd was asked last whether it makes changes.
    asked_room: Option<Instant>,
    /// The configuration whose addresses and names are announced.
    announced: Arc<Config>,
    /// The time since which another process's presence has been in the way.
    waits_since: Option<Instant>,
    /// How the last process ended: read when the data set is loaded, and taken when this one announces its start.
    ending: Option<Ending>,
    restarts: Arc<Restarts>,
    /// The revision of the last records that the server obeys; 0 for none.
    obeyed: Revision,
    wide: wide::Follower,
    /// The highest epoch seen of each shard, and its primary. The epoch of the node's own outlives the process.
    epochs: BTreeMap<ShardId, (u64, Option<NodeId>)>,
    /// The nodes that are there, and since when no other one is.
    present: (Vec<NodeId>, Instant),
    backoff: Backoff,
    /// The last line of the log about something that lasts.
    complaint: Option<String>,
    /// The file of the identity lacks what the node has obeyed since.
    is_unkept: bool,
}

/// The thread.
pub(crate) struct AgentThread {
    agent: JoinHandle<()>,
    shard: JoinHandle<()>,
}

impl AgentThread {
    /// Starts it in a server that starts.
    pub(crate) fn start(shared: &Arc<Shared>, member: Membership) -> Result<Self, String> {
        Self::start_after(None, shared, member)
    }

    /// Starts it; `ending` says whether the data set is all that was acknowledged. `None`: the file says it.
    pub(super) fn start_after(
        ending: Option<Ending>,
        shared: &Arc<Shared>,
        member: Membership,
    ) -> Result<Self, String> {
        let boot = BootId::from_bytes(draw()?);
        bus::start(shared)?;
        probe::start(shared)?;
        let config = shared.config.current();
        let restarts = Arc::<Restarts>::default();
        let (me, keys) = (member.identity.node, member.keys.clone());
        let lineage = member.identity.lineage.clone();
        let descent = Arc::new(Descent::new(me, keys.clone(), Arc::clone(&member.meta), lineage));
        // There is one.
        let _ = shared.cluster.descent.set(Arc::clone(&descent));
        let meta: Arc<dyn Meta> = Arc::clone(&descent) as Arc<dyn Meta>;
        let settings = Settings {
            me,
            boot,
            keys: keys.clone(),
            meta: Arc::clone(&meta),
            descent: Arc::clone(&descent),
            restarts: Arc::clone(&restarts),
            is_durable: is_durable(&config),
        };
        let shard = shard::start(shared, settings)?;
        moves::start(shared, me, keys.clone(), Arc::clone(&meta))?;
        wide::start(shared, meta, keys)?;
        let agent = Agent {
            shared: Arc::clone(shared),
            epochs: member.identity.epoch.into_iter().map(|(id, epoch)| (id, (epoch, None))).collect(),
            member,
            descent,
            boot,
            lease: None,
            renewed: Instant::now(),
            reported: Instant::now(),
            told: Instant::now(),
            asked_room: None,
            announced: config,
            waits_since: None,
            ending,
            restarts,
            obeyed: 0,
            wide: wide::Follower::default(),
            present: (Vec::new(), Instant::now()),
            backoff: Backoff::default(),
            complaint: None,
            is_unkept: false,
        };
        let thread = thread::Builder::new().name("cluster".to_owned()).spawn(move || agent.run());
        let agent = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Self { agent, shard })
    }

    /// Lets the shard go on without this node, within a time. If this node is the primary, another member takes over,
    /// and clients are sent there. Then the node leaves the in-sync set, so that no takeover waits for its lease to run
    /// out.
    pub(crate) fn hand_over(&self, shared: &Shared, time: Duration) {
        let cluster = &shared.cluster;
        if time.is_zero() {
            return;
        }
        let until = Instant::now() + time.min(HAND_OVER_TIME_MAX);
        let wait = |is_waiting: &dyn Fn() -> bool| {
            while is_waiting() && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
        };
        if cluster.shard.hand_over() {
            wait(&|| cluster.lease.term() != 0);
            match cluster.lease.term() {
                0 => tracing::info!("Cluster: another node leads the shard"),
                _ => tracing::warn!("Cluster: nobody else leads the shard yet: a member takes over later"),
            }
        }
        if cluster.lease.term() == 0 {
            cluster.shard.push(Input::Ending);
            wait(&|| cluster.shard.is_successor.load(SeqCst));
        }
    }

    /// Ends the agent. If etcd does not answer, that is left to the end of the process.
    pub(crate) fn end(self, shared: &Shared) {
        shared.cluster.ended.store(true, SeqCst);
        shared.cluster.shard.wake();
        let leaves = shared.cluster.leaves.load(SeqCst);
        let until = Instant::now() + if leaves { LEAVE_TIME_MAX } else { END_TIME_MAX };
        for (thread, has_record) in [(self.shard, false), (self.agent, true)] {
            while !thread.is_finished() && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
            if !thread.is_finished() {
                if leaves && has_record {
                    tracing::warn!("{RECORD_STAYS}: etcd does not answer in time");
                }
            } else if thread.join().is_err() {
                tracing::error!("a thread of the cluster failed");
            }
        }
    }
}

/// The record of a cluster with the wishes of a configuration.
pub(super) fn wished(config: &Config) -> Result<ClusterRecord, String> {
    Ok(ClusterRecord {
        id: ClusterId::from_bytes(draw()?),
        replicas: config.cluster_replicas as u8,
        durability: match config.cluster_durability {
            ClusterDurability::Async => Durability::Async,
            ClusterDurability::Sync => Durability::Sync,
        },
        min_sync: config.cluster_min_sync as u8,
        created_ms: (host::unix_us() / 1000) as u64,
    })
}

impl Agent {
    fn run(mut self) {
        let mut pause = RETRY;
        while self.shared.loading.is_active() && !self.is_ending() {
            thread::sleep(RETRY / 10);
        }
        if !self.is_ending()
            && let Err(line) = self.note_beginning()
        {
            return self.give_up(line);
        }
        while !self.is_ending() {
            match self.attend() {
                Ok(()) => break,
                Err(Failure::Later(reason)) => {
                    self.complain(reason);
                    pause = RETRY;
                    thread::sleep(pause);
                }
                Err(Failure::NotObeyed(reason)) => {
                    self.strays();
                    self.complain(reason);
                    pause = RETRY;
                    thread::sleep(pause);
                }
                Err(Failure::Backup(reason)) => {
                    self.strays();
                    pause = if self.complain(reason) { RETRY } else { BACKUP_RETRY_MAX.min(2 * pause) };
                    let until = Instant::now() + pause;
                    while Instant::now() < until && !self.is_ending() {
                        thread::sleep(RETRY / 10);
                    }
                }
                Err(Failure::Fatal(line)) => return self.give_up(line),
            }
        }
        if let Some(lease) = self.lease.take() {
            // A lease that is left behind runs out.
            let _ = self.member.meta.revoke(lease);
        }
        if self.shared.cluster.leaves.load(SeqCst) {
            let key = self.member.keys.text(Key::Node(self.member.identity.node));
            match self.member.meta.commit(&Transaction::default().delete(key)) {
                Outcome::Done(_) | Outcome::Refused(_) => {}
                Outcome::Failed(error) => tracing::warn!("{RECORD_STAYS}: {error}"),
                Outcome::Unknown(why) => tracing::warn!("{RECORD_STAYS}: {why}"),
            }
        }
    }

    /// Reads how the last process ended, and notes that this one runs. The data set is loaded: its source may have taken back that
    /// what is synced counts.
    fn note_beginning(&mut self) -> Result<(), String> {
        let config = self.shared.config.current();
        let ending = *self.ending.get_or_insert_with(|| Ending::read(&config.dir));
        // The data set is no longer that of an end in good order; what is synced counts on, if the next start would
        // load it.
        let is_on_disk = self.shared.durability.fsynced().is_some();
        let begins =
            Ending { is_durable: is_durable(&config) && ending.is_durable && is_on_disk, clean: None };
        self.shared.cluster.ending.keep(begins, &config.dir)
    }

    /// The server must not go on as this node: a line for the operator.
    fn give_up(&self, line: String) {
        tracing::error!("{line}");
        // The first one counts.
        let _ = self.shared.cluster.failure.set(line);
        self.shared.stop(Stop::within(Duration::ZERO));
    }

    fn is_ending(&self) -> bool {
        self.shared.cluster.ended.load(SeqCst)
    }

    /// Logs what keeps the node from following its cluster, once for as long as it lasts. Returns whether it is news.
    fn complain(&mut self, reason: String) -> bool {
        self.shared.cluster.trouble.store(Some(Arc::new(reason.clone())));
        if reason.contains(NO_ROOM) {
            self.shared.cluster.refuses.store(Some(Arc::new(reason.clone())));
        }
        let is_news = self.complaint.as_ref() != Some(&reason);
        if is_news {
            tracing::warn!("Cluster: {reason}. What was served before is served on");
            self.complaint = Some(reason);
        }
        is_news
    }

    /// The records are not obeyed. The node is there all the same, and says so: its presence is renewed, unless etcd has none.
    fn strays(&self) {
        self.shared.cluster.strays.store(true, SeqCst);
        if let Some(lease) = self.lease {
            // A lease that a backup does not know has run out.
            let _ = self.member.meta.keep_alive(lease);
        }
    }

    /// Follows the records for as long as etcd answers and the server runs.
    fn attend(&mut self) -> Result<(), Failure> {
        let mut view = self.read()?;
        if view.cluster.is_none() && self.member.identity.cluster.is_none() {
            self.found()?;
        }
        view = self.read_descendant()?;
        self.take_presence(&view)?;
        self.announce(&view)?;
        view = self.read_descendant()?;
        let mut watch = self.member.meta.watch(self.member.keys.prefix(), view.revision)?;
        self.backoff.follow(&view, Instant::now());
        while !self.is_ending() {
            if !self.descent.covers(&view.marks) {
                // This node has read more since, or etcd was restored: only a read can say.
                view = self.read_descendant()?;
                watch = self.member.meta.watch(self.member.keys.prefix(), view.revision)?;
            }
            let obeys = match self.check_cluster(&view).and_then(|()| self.obey(&view)) {
                Ok(()) => true,
                Err(Failure::NotObeyed(reason)) => {
                    self.shared.cluster.strays.store(true, SeqCst);
                    self.complain(reason);
                    false
                }
                Err(failure) => return Err(failure),
            };
            self.keep_presence(&view)?;
            self.look_for_room();
            if obeys {
                self.announce_again(&view)?;
                self.report(&view);
                self.report_moves(&view);
                self.control(&view)?;
            }
            for change in watch.next(WAIT_MS)? {
                view.apply(&self.member.keys, &change);
                self.backoff.follow(&view, Instant::now());
            }
        }
        Ok(())
    }

    /// Reads the records of the node's cluster, if they have come from those that it has obeyed.
    fn read_descendant(&mut self) -> Result<View, Failure> {
        loop {
            let asked = self.descent.joins();
            let view = self.read()?;
            self.check_cluster(&view)?;
            let is_unread = view.unreadable.keys().find(|key| key.starts_with(&self.member.keys.marks()));
            if let Some(key) = is_unread {
                return Err(Failure::NotObeyed(format!("{key}: {}", view.unreadable[key])));
            }
            match self.descent.check(&view.marks, asked) {
                Descends::Yes => {
                    // A backup that lacks no change of the records still lacks presences and starts of processes.
                    let goes_back = self.descent.goes_back(&view);
                    if self.descent.take_anew() || goes_back {
                        self.begin_anew();
                    }
                    return Ok(view);
                }
                Descends::Unknown => {}
                Descends::No(line) => {
                    self.descent.compare(&view);
                    return Err(Failure::Backup(line));
                }
            }
        }
    }

    /// The records are right again that this node did not obey. Their numbers may be lower than those that it knows.
    fn begin_anew(&mut self) {
        tracing::info!("Cluster: the records are those that this node obeys, whatever their numbers");
        self.epochs.clear();
        (self.member.identity.slots, self.member.identity.epoch) = (0, None);
        self.wide = wide::Follower::anew();
        self.shared.cluster.shard.push(Input::Anew);
        if self.obeyed != 0 {
            self.obeyed = Revision::MAX;
        }
    }

    fn read(&self) -> Result<View, Failure> {
        let keys = &self.member.keys;
        let snapshot = self.member.meta.range(keys.prefix())?;
        Ok(View::of(keys, snapshot.revision, &snapshot.items))
    }

    /// Proposes a change. Returns whether it was made; if that is unknown, everything is read again.
    fn commit(&self, transaction: &Transaction) -> Result<bool, Failure> {
        Self::outcome(self.member.meta.commit(transaction))
    }

    fn outcome(outcome: Outcome) -> Result<bool, Failure> {
        match outcome {
            Outcome::Done(_) => Ok(true),
            Outcome::Refused(_) => Ok(false),
            Outcome::Unknown(why) => {
                Err(Failure::Later(format!("etcd has not said what became of a change: {why}")))
            }
            Outcome::Failed(error) => Err(error.into()),
        }
    }

    /// Makes sure that these are the records of the node's cluster.
    fn check_cluster(&mut self, view: &View) -> Result<(), Failure> {
        let name = self.member.identity.name.clone();
        let key = self.member.keys.text(Key::Cluster);
        if let Some(error) = view.unreadable.get(&key) {
            return Err(Failure::NotObeyed(format!("{key}: {error}")));
        }
        match (&view.cluster, self.member.identity.cluster) {
            (Some((_, cluster)), Some(own)) if cluster.id == own => {
                self.shared.cluster.cluster.get_or_init(|| own);
                Ok(())
            }
            (Some((_, cluster)), None) => {
                self.member.identity.cluster = Some(cluster.id);
                self.shared.cluster.cluster.get_or_init(|| cluster.id);
                self.keep_identity()
            }
            (Some((_, cluster)), Some(own)) => {
                let line = format!(
                    "etcd has another cluster '{name}' ({}) than the one that this node is part of ({own})",
                    cluster.id
                );
                self.refuse(line)
            }
            (None, Some(own)) => self.refuse(format!(
                "etcd has no records of the cluster '{name}' ({own}), which this node is part of: it was emptied, or is another etcd"
            )),
            (None, None) => Err(Failure::Later(format!("the cluster '{name}' is not founded"))),
        }
    }

    /// A node that serves goes on with what it knows; one that starts has nothing to go on with.
    fn refuse(&self, line: String) -> Result<(), Failure> {
        match self.obeyed {
            0 => Err(Failure::Fatal(format!("{line}; correct cluster-join, or restore etcd"))),
            _ => Err(Failure::Later(format!("{line}; nothing is thrown away"))),
        }
    }

    fn keep_identity(&self) -> Result<(), Failure> {
        let directory = self.shared.config.current().dir.clone();
        self.member.identity.keep(&directory).map_err(Failure::Fatal)
    }

    /// Founds the cluster, unless another node is faster.
    fn found(&self) -> Result<(), Failure> {
        let key = self.member.keys.text(Key::Cluster);
        let cluster = wished(&self.shared.config.current()).map_err(Failure::Later)?;
        let id = cluster.id;
        if self.commit(&Transaction::default().compare(key.clone(), 0).put(key, cluster.encode()))? {
            tracing::info!("Founded the cluster '{}' ({id})", self.member.identity.name);
        }
        Ok(())
    }

    /// Makes the node's presence known, if it is not. Another process with its id is waited out for as long as a lease
    /// lasts.
    fn take_presence(&mut self, view: &View) -> Result<(), Failure> {
        let me = self.member.identity.node;
        let revision = match view.alive.get(&me) {
            None => 0,
            Some((revision, alive)) if alive.boot == self.boot || self.is_over(alive.boot) => *revision,
            Some(_) => {
                let since = *self.waits_since.get_or_insert_with(Instant::now);
                let until = since + Duration::from_secs(LEASE_S.into()) + PRESENCE_MARGIN;
                return Err(match Instant::now() < until {
                    true => Failure::Later(format!(
                        "the presence of an earlier process of node {me} is still recorded"
                    )),
                    false => Failure::Fatal(format!(
                        "another process is node {me}: its data directory was copied. Remove the file cluster-node from the copy"
                    )),
                });
            }
        };
        self.waits_since = None;
        let is_known = view.alive.get(&me).is_some_and(|(_, alive)| alive.boot == self.boot);
        match self.lease.filter(|lease| self.member.meta.keep_alive(*lease).is_ok()) {
            // Written anew it would be news for all, and say again what data there is.
            Some(_) if is_known => self.renewed = Instant::now(),
            lease => self.put_presence(revision, lease)?,
        }
        let place = place_of(&self.shared.config.current().dir);
        let process = place.map(|place| Process { boot: self.boot, place });
        if process != self.member.identity.process {
            self.member.identity.process = process;
            self.keep_identity()?;
        }
        Ok(())
    }

    /// Writes the node's presence, on a new lease if there is none.
    fn put_presence(&mut self, revision: Revision, lease: Option<LeaseId>) -> Result<(), Failure> {
        let lease = match lease {
            Some(lease) => lease,
            None => self.member.meta.grant(LEASE_S)?.0,
        };
        let used_bytes = self.shared.engine.keyspace.used_bytes() as u64;
        let HeavySlots { heavy, .. } = self.shared.cluster.moves.heavy();
        let key = self.member.keys.text(Key::Alive(self.member.identity.node));
        let alive = AliveRecord { boot: self.boot, used_bytes, heavy }.encode();
        // If the answer is lost, it is unknown which lease the presence is bound to.
        self.lease = None;
        if !self
            .commit(&Transaction::default().compare(key.clone(), revision).put_leased(key, alive, lease))?
        {
            return Err(Failure::Later("the node's presence has changed".to_owned()));
        }
        (self.lease, self.renewed) = (Some(lease), Instant::now());
        Ok(())
    }

    /// Whether a process is certain to have ended: it was the last one of this directory, whose lock this one holds.
    fn is_over(&self, boot: BootId) -> bool {
        let last = self.member.identity.process.as_ref().filter(|process| process.boot == boot);
        last.is_some_and(|last| place_of(&self.shared.config.current().dir).as_ref() == Some(&last.place))
    }

    /// Renews the presence; begins again if it has ended.
    fn keep_presence(&mut self, view: &View) -> Result<(), Failure> {
        if self.renewed.elapsed() < Duration::from_secs(LEASE_S.into()) / 3 {
            return Ok(());
        }
        let me = self.member.identity.node;
        let is_there = view.alive.get(&me).is_some_and(|(_, alive)| alive.boot == self.boot);
        match self.lease {
            Some(lease) if is_there => match self.member.meta.keep_alive(lease) {
                Ok(_) => {
                    self.renewed = Instant::now();
                    return Ok(());
                }
                Err(MetaError::NoLease) => self.lease = None,
                Err(error) => return Err(error.into()),
            },
            _ => {}
        }
        Err(Failure::Later("the node's presence has run out".to_owned()))
    }

    /// Reports how much data there is, if the planner should know: it has changed much, or slots have changed hands.
    fn report(&mut self, view: &View) {
        let (me, used_bytes) = (self.member.identity.node, self.shared.engine.keyspace.used_bytes() as u64);
        let (Some((revision, alive)), Some(lease)) = (view.alive.get(&me), self.lease) else { return };
        let HeavySlots { heavy, slots: weighed } = self.shared.cluster.moves.heavy();
        let has_changed = used_bytes.abs_diff(alive.used_bytes) > REPORTED_BYTES_MIN.max(used_bytes / 50)
            || has_shifted(&heavy, &alive.heavy);
        let slots_changed = view.slots.as_ref().is_some_and(|(slots, _)| slots > revision);
        // The planner goes on when all loads are newer than the record of slots. A load is reported when it is that of
        // the slots that the shard has now, and it is known which of them are heavy.
        let is_ready = || {
            let leads = self.shared.cluster.lease.term() != 0;
            let is_weighed = view.slots.as_ref().is_none_or(|(slots, _)| weighed == *slots);
            (is_weighed || !leads) && self.shared.cluster.moves.is_settled(&self.shared.engine.keyspace)
        };
        let is_due = match slots_changed {
            true => is_ready(),
            false => has_changed && self.reported.elapsed() >= REPORT_PAUSE,
        };
        if !is_due || alive.boot != self.boot {
            return;
        }
        self.reported = Instant::now();
        let key = self.member.keys.text(Key::Alive(me));
        let alive = AliveRecord { boot: self.boot, used_bytes, heavy }.encode();
        // A hint: one that is lost is given again.
        self.member
            .meta
            .commit(&Transaction::default().compare(key.clone(), *revision).put_leased(key, alive, lease));
    }

    /// Says how far the moves from this node are, and why some have failed, for operators at any node.
    fn report_moves(&mut self, view: &View) {
        let me = self.member.identity.node;
        let jobs = &self.shared.cluster.moves.jobs;
        let now = ProgressRecord { moves: jobs.progress(), failed: jobs.failures() };
        let (revision, before) = view.progress.get(&me).cloned().unwrap_or_default();
        let is_due = now.moves.len() != before.moves.len() || self.told.elapsed() >= MOVES_REPORT_PAUSE;
        let Some(lease) = self.lease.filter(|_| is_due && now != before) else { return };
        self.told = Instant::now();
        let key = self.member.keys.text(Key::Progress(me));
        let transaction = Transaction::default().compare(key.clone(), revision);
        let transaction = match now == ProgressRecord::default() {
            true => transaction.delete(key),
            false => transaction.put_leased(key, now.encode(), lease),
        };
        // For eyes: a word that is lost is followed by the next one.
        self.member.meta.commit(&transaction);
    }

    /// Looks whether etcd makes changes, by one whose comparison never holds: etcd without space refuses it before it compares, and
    /// answers reads as ever.
    fn look_for_room(&mut self) {
        if self.asked_room.is_some_and(|asked| asked.elapsed() < ROOM_PAUSE) {
            return;
        }
        self.asked_room = Some(Instant::now());
        let key = self.member.keys.text(Key::Alive(self.member.identity.node));
        let never = Transaction::default().compare(key.clone(), REVISION_MAX).put(key, Vec::new());
        let refuses = &self.shared.cluster.refuses;
        match self.member.meta.commit(&never) {
            Outcome::Done(_) | Outcome::Refused(_) => {
                if refuses.swap(None).is_some() {
                    tracing::info!("Cluster: etcd makes changes again");
                }
            }
            Outcome::Unknown(why) | Outcome::Failed(MetaError::Refused(why)) if why.contains(NO_ROOM) => {
                if refuses.swap(Some(Arc::new(why.clone()))).is_none() {
                    tracing::warn!(
                        "Cluster: etcd refuses changes: {why}. What was served before is served on, and no replica can take over"
                    );
                }
            }
            // The store does not answer, which the next read says, too.
            Outcome::Unknown(_) | Outcome::Failed(_) => {}
        }
    }

    /// Writes the node's record again if its addresses or names were changed by CONFIG SET.
    fn announce_again(&mut self, view: &View) -> Result<(), Failure> {
        let me = self.member.identity.node;
        let config = self.shared.config.current();
        let Some((revision, known)) = view.nodes.get(&me).filter(|(_, known)| known.boot == self.boot) else {
            return Ok(());
        };
        if !Arc::ptr_eq(&config, &self.announced) {
            if let Err(line) = self.member.follow(&config) {
                tracing::warn!("Cluster: the addresses of this node stay as they are: {line}");
            }
            self.announced = Arc::clone(&config);
        }
        let wished = self.record(&config, known.state);
        let record = NodeRecord { addresses: wished.addresses, name: wished.name, ..known.clone() };
        if record == *known {
            return Ok(());
        }
        let key = self.member.keys.text(Key::Node(me));
        // If the record has changed meanwhile, the next view shows it.
        self.commit(&Transaction::default().compare(key.clone(), *revision).put(key, record.encode()))?;
        Ok(())
    }

    fn has_keys(&self) -> Result<bool, Failure> {
        let survey = self.shared.engine.survey_unless_long();
        let survey = survey.ok_or_else(|| Failure::Later("a script holds the keyspace".to_owned()))?;
        Ok(survey.total().keys > 0)
    }

    /// Writes the node's record if it says something else: always at a start, before the first message is sent.
    fn announce(&mut self, view: &View) -> Result<(), Failure> {
        let me = self.member.identity.node;
        let before = view.nodes.get(&me);
        let is_new = before.is_none() && view.shard_of(me).is_none();
        let brings_data = is_new && self.has_keys()?;
        if brings_data {
            self.begin_with_data(view)?;
        }
        let state = before.map_or(NodeState::Active, |(_, record)| match record.state {
            NodeState::Draining => NodeState::Draining,
            NodeState::Joining | NodeState::Active => NodeState::Active,
        });
        if let Some(ending) = self.ending.take() {
            let is_durable = is_durable(&self.shared.config.current());
            let local = local(&self.shared, is_durable, false);
            let of = view.shard_of(me).map(|(id, (_, record))| (id, record));
            let (restart, clean) = shard::report(of, ending, local);
            self.restarts.set(restart);
            self.shared.cluster.shard.push(Input::Started(Local { clean, ..local }));
        }
        let record = self.record(&self.shared.config.current(), state);
        if before.is_some_and(|(_, known)| *known == record) {
            return Ok(());
        }
        let (key, revision) =
            (self.member.keys.text(Key::Node(me)), before.map_or(0, |(revision, _)| *revision));
        let mut transaction = Transaction::default().compare(key.clone(), revision).put(key, record.encode());
        if brings_data {
            let keys = &self.member.keys;
            transaction = with_first_shard(transaction, keys, &self.shared, me).map_err(Failure::Later)?;
        }
        let made = match brings_data {
            true => Self::outcome(self.descent.commit(&transaction))?,
            false => self.commit(&transaction)?,
        };
        match made {
            true if brings_data => {
                tracing::info!(
                    "Cluster: the data set of this node is the cluster's, which has one shard now"
                );
                Ok(())
            }
            true => Ok(()),
            false => Err(Failure::Later("the node's record has changed".to_owned())),
        }
    }

    /// Refuses a data set if the cluster has one already; gives it a place in a stream, which no empty data set has.
    fn begin_with_data(&self, view: &View) -> Result<(), Failure> {
        let name = &self.member.identity.name;
        if view.slots.is_some() || !view.shards.is_empty() {
            return Err(Failure::Fatal(format!(
                "the data set has keys, and so may the cluster '{name}', which has shards: nothing was changed. Join with an empty data directory, or bring this data set into a cluster with another name"
            )));
        }
        take_place(&self.shared).map_err(Failure::Later)
    }

    fn record(&self, config: &Config, state: NodeState) -> NodeRecord {
        self.member.record(config, state, self.boot, self.restarts.get())
    }

    /// Makes the server obey the records.
    fn obey(&mut self, view: &View) -> Result<(), Failure> {
        let asked = self.descent.joins();
        if !self.descent.covers(&view.marks) {
            // The next turn reads.
            return Ok(());
        }
        match self.descent.check(&view.marks, asked) {
            Descends::Yes if self.descent.take_anew() => self.begin_anew(),
            Descends::Yes => {}
            Descends::Unknown => return Ok(()),
            Descends::No(line) => return Err(Failure::Backup(line)),
        }
        if let Some((key, error)) = view.unreadable.iter().next() {
            return Err(Failure::NotObeyed(format!("{key}: {error}")));
        }
        for (id, (_, shard)) in &view.shards {
            let (known, primary) = self.epochs.entry(*id).or_default();
            // A node that was away may obey a backup, and bring it to the same epoch: with another primary.
            let is_other = primary.is_some_and(|primary| primary != shard.primary);
            if shard.epoch < *known || shard.epoch == *known && is_other {
                return Err(Failure::Backup(format!(
                    "the record of shard {id} has epoch {} of node {} after {known}: etcd was restored from a backup. This node keeps its data and does not obey; see docs/cluster.md",
                    shard.epoch, shard.primary
                )));
            }
            (*known, *primary) = (shard.epoch, Some(shard.primary));
        }
        self.note_newest(view)?;
        if let Some(cluster) = self.member.identity.cluster {
            self.shared.cluster.wide.found(cluster);
        }
        self.follow_wide(view);
        self.shared.cluster.trouble.store(None);
        self.shared.cluster.strays.store(false, SeqCst);
        if view.nodes.contains_key(&self.member.identity.node) && self.obeyed != view.revision {
            self.obeyed = view.revision;
            self.shared.cluster.overview.store(Some(Arc::new(Overview::of(view))));
            let view = Arc::new(view.clone());
            self.descent.keep_view(&view);
            self.shared.cluster.shard.push(Input::Records(view));
        }
        if let Some(complaint) = self.complaint.take() {
            tracing::info!("Cluster: following the records again, after: {complaint}");
        }
        Ok(())
    }

    /// Remembers the newest record of slots, and the epoch of the node's shard, in its file before they are obeyed. By an older
    /// record of slots, keys would be removed that came with a move since; by an older epoch, a node would lead beside its successor.
    ///
    /// If the file cannot be written, the node obeys all the same: the file protects only a restart onto a backup of
    /// etcd. A node that has obeyed nothing yet, or joins a shard, waits for the file: no other node needs it yet, and
    /// without the file it would recognise no backup at all.
    fn note_newest(&mut self, view: &View) -> Result<(), Failure> {
        let mut identity = self.member.identity.clone();
        if let Some((revision, _)) = &view.slots {
            // Marks say more than a number.
            if *revision < identity.slots && identity.lineage.is_empty() {
                return Err(Failure::Backup(format!(
                    "the record of slots has revision {revision} after {}: etcd was restored from a backup. This node keeps its data and does not obey; see docs/cluster.md",
                    identity.slots
                )));
            }
            identity.slots = *revision;
        }
        if let Some((id, (_, record))) = view.shard_of(identity.node) {
            identity.epoch = Some((id, record.epoch));
        }
        identity.lineage = self.descent.kept();
        let known = &self.member.identity;
        if identity == *known && !self.is_unkept {
            return Ok(());
        }
        let is_first = self.obeyed == 0 || identity.begins_after(known);
        let kept = identity.keep(&self.shared.config.current().dir);
        match &kept {
            Ok(()) if self.is_unkept => {
                tracing::info!("Cluster: the file of this node has what it obeys again")
            }
            Ok(()) => {}
            Err(line) if is_first => return Err(Failure::NotObeyed(line.clone())),
            Err(line) if !self.is_unkept => tracing::warn!(
                "Cluster: {line}. This node follows its cluster; after a restart it would take an older backup of etcd for the truth"
            ),
            Err(_) => {}
        }
        (self.is_unkept, self.member.identity) = (kept.is_err(), identity);
        Ok(())
    }

    /// Puts users, functions and settings in force. A node that has no role yet gets none before they are.
    fn follow_wide(&mut self, view: &View) {
        let in_force = self.wide.follow(&self.shared, view, self.shared.cluster.lease.term() != 0);
        if let Some(in_force) = in_force.filter(|_| self.obeyed == 0) {
            // The log names the parts that cannot be in force.
            let _ = in_force.recv_timeout(WIDE_TIME_MAX);
        }
    }

    /// Plans, if this node is the controller.
    fn control(&mut self, view: &View) -> Result<(), Failure> {
        let present: Vec<NodeId> = view.alive.keys().copied().collect();
        if present != self.present.0 {
            self.present = (present, Instant::now());
        }
        let (me, keys) = (self.member.identity.node, &self.member.keys);
        let Some(lease) = self.lease else { return Ok(()) };
        match &view.controller {
            None => {
                let controller = ControllerRecord { node: me, boot: self.boot }.encode();
                let key = keys.text(Key::Controller);
                self.commit(
                    &Transaction::default().compare(key.clone(), 0).put_leased(key, controller, lease),
                )?;
            }
            Some(own) if own.1.node == me && own.1.boot == self.boot => {
                let is_settled = self.present.1.elapsed() >= SETTLED_AFTER;
                let limits = self.backoff.limits(view, Instant::now());
                let mut draw = || draw().unwrap_or_default();
                if let Some(transaction) = controller::propose(view, keys, is_settled, limits, &mut draw) {
                    let transaction = controller::signed(transaction, keys, own, lease);
                    Self::outcome(self.descent.commit(&transaction))?;
                }
            }
            Some(_) => {}
        }
        Ok(())
    }
}

/// Whether heavy slots have come or gone, or one weighs a tenth more or less.
fn has_shifted(now: &[(u16, u64)], before: &[(u16, u64)]) -> bool {
    let is_close =
        |one: &(u16, u64), other: &(u16, u64)| one.0 == other.0 && one.1.abs_diff(other.1) <= other.1 / 10;
    now.len() != before.len() || now.iter().zip(before).any(|(one, other)| !is_close(one, other))
}
