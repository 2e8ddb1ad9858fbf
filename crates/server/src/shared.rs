//! The state that all workers of a server share.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
        mpsc::Sender,
    },
    time::{Duration, Instant},
};

use dunlin_engine::{
    Caller, Engine, Environment, ExclusiveContext, LogConsumer, Policy, Worker, command::CommandTable,
};
use dunlin_net::WorkerQueues;
use dunlin_replication::GETACK;

use crate::{
    access::Access,
    audit::Audit,
    cluster::Cluster,
    config::{ConfigStore, policy},
    durability::Durability,
    loading::{Loading, helpers},
    lua::{LibraryCache, RunningScripts, ScriptCache},
    observe::{
        hot_keys::HotKeys,
        key_samples::KeySamples,
        module_commands::ModuleCommands,
        recorder::Recorder,
        stats::{Held, Stats},
    },
    persistence::{Persistence, data_directory::DataDirectory},
    push::{monitor::Monitor, notifier::Notifier, pubsub::Exchange, rights::Connected, tracking::Trackers},
    replication::Replication,
    system::host::{Process, unix_us},
    tls::Tls,
    workers::{
        WorkerMessage, blocked::BlockedClients, maintenance::Maintenance, offload::Offload, pause::Pause,
        rest::Rest, shutdown::Shutdown,
    },
};

/// An order to end the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stop {
    /// How long clients get to take replies that are on their way.
    pub(crate) grace: Duration,
    /// How long replicas get to take what they lack.
    pub(crate) replicas: Duration,
}

impl Stop {
    /// Clients and replicas get the same time.
    pub(crate) fn within(grace: Duration) -> Self {
        Self { grace, replicas: grace }
    }
}

/// The state that all workers of a server share.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) commands: Arc<CommandTable>,
    pub(crate) access: Arc<Access>,
    pub(crate) config: Arc<ConfigStore>,
    pub(crate) tls: Arc<Tls>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) directory: Arc<DataDirectory>,
    /// How many workers there are.
    pub(crate) workers: usize,
    pub(crate) maintenance: Maintenance,
    pub(crate) offload: Offload,
    pub(crate) stats: Stats,
    pub(crate) pause: Pause,
    pub(crate) shutdown: Shutdown,
    pub(crate) rest: Rest,
    pub(crate) persistence: Persistence,
    pub(crate) blocked: BlockedClients,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) monitor: Arc<Monitor>,
    pub(crate) hot_keys: HotKeys,
    pub(crate) key_samples: KeySamples,
    pub(crate) recorder: Recorder,
    pub(crate) scripts: ScriptCache,
    pub(crate) libraries: LibraryCache,
    pub(crate) running: RunningScripts,
    pub(crate) durability: Durability,
    pub(crate) loading: Loading,
    pub(crate) trackers: Arc<Trackers>,
    pub(crate) replication: Replication,
    pub(crate) cluster: Cluster,
    pub(crate) module_commands: ModuleCommands,
    /// Whether keys are removed when their time has come even if no client asks for them
    /// (`DEBUG SET-ACTIVE-EXPIRE`).
    pub(crate) active_expire: AtomicBool,
    /// Bytes from which on elements of lists are blocks of their own though a block would hold them, 0 for
    /// never (`DEBUG QUICKLIST-PACKED-THRESHOLD`).
    pub(crate) list_packed_threshold: AtomicU32,
    /// How many elements a command may visit before it is offloaded (`DEBUG VISITS-MAX`).
    pub(crate) visits_max: AtomicUsize,
    /// Whether the server was asked to end.
    ending: Arc<AtomicBool>,
    orders: Sender<Stop>,
}

/// The default of [`Shared::visits_max`]: less than a millisecond's work.
const VISITS_MAX: usize = 10_000;

impl Shared {
    #[expect(clippy::too_many_arguments, reason = "one caller; a struct would only rename them")]
    pub(crate) fn new(
        engine: Engine,
        commands: Arc<CommandTable>,
        config: Arc<ConfigStore>,
        workers: usize,
        maintenance: Maintenance,
        process: Process,
        durability: Durability,
        id: dunlin_replication::Id,
        orders: Sender<Stop>,
    ) -> Self {
        let persistence = Persistence::new(process.started_s);
        let access = Arc::new(Access::new(&commands, &config.current()));
        let stats = Stats::new(&engine, &commands, workers, process);
        let pause = Pause::new(Instant::now());
        let exchange = Arc::new(Exchange::new());
        let monitor = Arc::<Monitor>::default();
        let trackers = Arc::default();
        let active_expire = AtomicBool::new(true);
        let replication = Replication::new(id, workers);
        replication.ask_for_replicas(&config.current());
        Self {
            engine,
            commands,
            access,
            config,
            tls: Arc::default(),
            audit: Arc::default(),
            directory: Arc::default(),
            workers,
            maintenance,
            offload: Offload::new(),
            stats,
            pause,
            shutdown: Shutdown::default(),
            rest: Rest::default(),
            persistence,
            blocked: BlockedClients::new(workers),
            exchange,
            monitor,
            hot_keys: HotKeys::default(),
            key_samples: KeySamples::new(workers),
            recorder: Recorder::default(),
            scripts: ScriptCache::new(workers),
            libraries: LibraryCache::new(workers),
            running: RunningScripts::new(workers),
            durability,
            loading: Loading::default(),
            trackers,
            replication,
            cluster: Cluster::default(),
            module_commands: ModuleCommands::default(),
            active_expire,
            list_packed_threshold: AtomicU32::new(0),
            visits_max: AtomicUsize::new(VISITS_MAX),
            ending: Arc::default(),
            orders,
        }
    }

    /// The place in the gate of the thread that loads, behind those of the workers.
    pub(crate) fn loader(&self) -> usize {
        self.workers
    }

    /// The place in the gate of a thread that works beside it, of [`crate::loading::helpers`].
    pub(crate) fn helper(&self, index: usize) -> usize {
        self.loader() + 1 + index
    }

    /// The place in the gate and in the log of the thread that applies a primary's stream.
    pub(crate) fn applier(&self) -> usize {
        self.helper(helpers(self.workers))
    }

    /// The number of the thread that sends the log to replicas.
    pub(crate) fn feeder(&self) -> usize {
        self.applier() + 1
    }

    /// The number of the thread that removes keys of slots which are another shard's.
    pub(crate) fn mover(&self) -> usize {
        self.agent() + 1
    }

    /// The number of the thread that puts the cluster's functions in force.
    pub(crate) fn agent(&self) -> usize {
        self.feeder() + 1
    }

    /// The clients, their waits and their subscriptions.
    pub(crate) fn connected<'a>(&'a self, queues: &'a WorkerQueues<WorkerMessage>) -> Connected<'a> {
        Connected {
            clients: self.stats.clients(),
            exchange: &self.exchange,
            blocked: &self.blocked,
            engine: &self.engine,
            commands: &self.commands,
            queues,
        }
    }

    /// The audience of a worker's commands.
    pub(crate) fn notifier(&self, queues: &WorkerQueues<WorkerMessage>) -> Notifier {
        let is_shard_sync = self.cluster.sync_flag();
        Notifier::new(&self.exchange, &self.monitor, &self.trackers, &self.config, is_shard_sync, queues)
    }

    /// The memory in use beside the keyspace and what clients hold. O(workers).
    pub(crate) fn held(&self) -> Held {
        let (eval_heaps, function_heaps) = (&self.scripts.heaps, &self.libraries.heaps);
        let heap_bytes = eval_heaps.used_bytes() + function_heaps.used_bytes();
        let limited_bytes = eval_heaps.limited_bytes() + function_heaps.limited_bytes();
        Held {
            scripts: self.scripts.bytes() + eval_heaps.limited_bytes(),
            functions: self.libraries.now().bytes() + function_heaps.limited_bytes(),
            script_garbage: heap_bytes.saturating_sub(limited_bytes),
            tracked: self.engine.keyspace.tracked_bytes(),
            log: self.durability.ring().memory_bytes(),
            snapshots: self.engine.keyspace.snapshots().copied_bytes(),
            garbage: self.maintenance.pending_bytes(),
            consoles: self.stats.console_bytes.load(Relaxed),
        }
    }

    /// Whether it was asked to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(SeqCst)
    }

    /// The flag itself, for threads that wait for sockets.
    pub(crate) fn ending_flag(&self) -> &Arc<AtomicBool> {
        &self.ending
    }

    /// Asks the server to end.
    pub(crate) fn stop(&self, stop: Stop) {
        self.ending.store(true, SeqCst);
        // The thread that waits for orders leaves only when the server is ending.
        let _ = self.orders.send(stop);
    }

    /// Does some work behind the closed gate, outside of any worker. Scripts are waited for.
    pub(crate) fn alone<R>(&self, work: impl FnOnce(&mut ExclusiveContext<'_>) -> R) -> R {
        let (policy, caller) = self.policy_and_caller();
        self.engine.exclusively(0, Environment::new(&policy, &caller), &mut Worker::new(0, 0), work)
    }

    /// [`Self::alone`], unless a script has been running for long.
    pub(crate) fn alone_unless_long<R>(
        &self,
        work: impl FnOnce(&mut ExclusiveContext<'_>) -> R,
    ) -> Option<R> {
        let (policy, caller) = self.policy_and_caller();
        let environment = Environment::new(&policy, &caller);
        self.engine.exclusively_unless_long(0, environment, &mut Worker::new(0, 0), work)
    }

    /// Asks replicas how far they are, unless nothing more may be put into the stream. The caller has closed the gate.
    pub(crate) fn ask_replicas(&self) {
        let is_primary = !self.replication.is_replica() && !self.replication.stream_ended.load(SeqCst);
        if is_primary && self.engine.log.is_on_for(LogConsumer::Replicas) {
            self.durability.ring().append(self.feeder(), GETACK);
            self.durability.wake_log(self.durability.tail());
        }
    }

    /// The settings in force, and the server itself at this time.
    fn policy_and_caller(&self) -> (Policy, Caller) {
        let now_ms = (unix_us() / 1000) as u64;
        (policy(&self.config.current()), Caller { now_ms, ..Caller::default() })
    }

    /// Changes to the data set so far.
    pub(crate) fn changes(&self) -> u64 {
        self.stats.keyspace_total(|counters| &counters.changes)
    }

    /// Notes that a snapshot was loaded: `keys` of its keys, while `expired` others had expired.
    pub(crate) fn note_loaded(&self, keys: u64, expired: u64) {
        self.persistence.loaded_keys.store(keys, Relaxed);
        self.persistence.expired_keys.store(expired, Relaxed);
        self.persistence.saved_changes.store(self.changes(), Relaxed);
    }
}
