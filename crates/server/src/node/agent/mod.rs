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

mod presence;
mod records;
mod reports;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dunlin_cluster::{
    BootId, ClusterId, NodeId, ShardId,
    meta::{LeaseId, Meta, MetaError, Revision, Transaction, TransactionOutcome},
    records::{ClusterRecord, ControllerRecord, Durability, Key, Record},
};

use super::{
    Membership,
    backoff::Backoff,
    bus, cluster_wide, controller,
    data::is_durable,
    moves, probe,
    shard::{self, Restarts, Settings},
};
use crate::{
    cluster::{
        ALIVE_MS,
        descent::{Descends, Descent},
        ending::Ending,
        inbox::Input,
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
    cluster_wide: cluster_wide::Follower,
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
        cluster_wide::start(shared, meta, keys)?;
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
            cluster_wide: cluster_wide::Follower::default(),
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

/// The record of a cluster with what a configuration asks for.
pub(super) fn requested(config: &Config) -> Result<ClusterRecord, String> {
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
                TransactionOutcome::Done(_) | TransactionOutcome::Refused(_) => {}
                TransactionOutcome::Failed(error) => tracing::warn!("{RECORD_STAYS}: {error}"),
                TransactionOutcome::Unknown(why) => tracing::warn!("{RECORD_STAYS}: {why}"),
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
        self.cluster_wide = cluster_wide::Follower::anew();
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

    fn outcome(outcome: TransactionOutcome) -> Result<bool, Failure> {
        match outcome {
            TransactionOutcome::Done(_) => Ok(true),
            TransactionOutcome::Refused(_) => Ok(false),
            TransactionOutcome::Unknown(why) => {
                Err(Failure::Later(format!("etcd has not said what became of a change: {why}")))
            }
            TransactionOutcome::Failed(error) => Err(error.into()),
        }
    }

    /// Founds the cluster, unless another node is faster.
    fn found(&self) -> Result<(), Failure> {
        let key = self.member.keys.text(Key::Cluster);
        let cluster = requested(&self.shared.config.current()).map_err(Failure::Later)?;
        let id = cluster.id;
        if self.commit(&Transaction::default().compare(key.clone(), 0).put(key, cluster.encode()))? {
            tracing::info!("Founded the cluster '{}' ({id})", self.member.identity.name);
        }
        Ok(())
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
