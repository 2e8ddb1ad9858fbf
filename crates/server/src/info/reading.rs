//! The source of the rows of one `INFO`: the state of the server, each part read when the first row asks for it,
//! so that rows which belong together agree.

use std::{cell::OnceCell, sync::Arc, time::Duration};

use dunlin_engine::{Counter, Statistics, Survey};
use dunlin_net::Client;

use crate::{
    config::{Config, PrimaryAddress},
    durability::Status,
    loading::LoadingProgress,
    observe::{
        command_stats::WorkerStatistics,
        hot_keys::HotKeySession,
        stats::{LargestBuffers, Rates, TrafficTotals},
    },
    persistence::saving::Progress,
    shared::Shared,
    system::host::{self, ProcessorTime},
};

/// The state of the server, as one `INFO` sees it.
pub(crate) struct Reading<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) config: &'a Config,
    /// Unix time in milliseconds.
    pub(crate) now_ms: u64,
    survey: OnceCell<Survey>,
    memory: OnceCell<Memory>,
    clients: OnceCell<Vec<Arc<Client>>>,
    traffic: OnceCell<TrafficTotals>,
    rates: OnceCell<Rates>,
    saving: OnceCell<(Option<Arc<Progress>>, Option<Duration>)>,
    rewriting: OnceCell<Rewriting>,
    log: OnceCell<Status>,
    loading: OnceCell<Option<LoadingProgress>>,
    processor: OnceCell<ProcessorTime>,
    hot_keys: OnceCell<Option<Arc<HotKeySession>>>,
}

/// Memory, in bytes.
pub(super) struct Memory {
    /// Keyspace, buffers, and what the server takes before the first command.
    pub(super) used: u64,
    pub(super) peak: u64,
    pub(super) startup: u64,
    /// Bytes that clients hold which are no replicas.
    pub(super) clients: u64,
    /// Bytes that replicas hold: their connections, and the part of the ring that is kept for those who are behind.
    pub(super) replicas: u64,
    /// Bytes of the backlog of replication.
    pub(super) backlog: u64,
    /// Bytes of the ring that are kept for replication: the backlog, and what replicas lack beyond it.
    pub(super) replication: u64,
    /// Bytes that `maxmemory` does not limit.
    pub(super) uncounted: u64,
    /// All but keys and values.
    pub(super) overhead: u64,
    /// Memory of the process.
    pub(super) resident: u64,
    /// Memory of the log's ring, with the backlog of replication.
    pub(super) log_ring: u64,
    /// Memory of `used`, with the free parts of used pages.
    pub(super) active: u64,
    /// Memory of `active`, with free pages that are resident.
    pub(super) allocator_resident: u64,
    /// Memory of the Lua machines of scripts and of functions.
    pub(super) eval_machines: u64,
    pub(super) function_machines: u64,
    /// The texts of scripts and of libraries.
    pub(super) scripts: u64,
    pub(super) functions: u64,
}

/// The state of rewriting the log.
pub(super) struct Rewriting {
    pub(super) current: Option<Arc<Progress>>,
    pub(super) scheduled: bool,
    pub(super) last_took: Option<Duration>,
    pub(super) count: u64,
    /// In a row.
    pub(super) failures: u32,
}

impl<'a> Reading<'a> {
    /// The primary, if the server is a replica.
    pub(crate) fn primary(&self) -> Option<PrimaryAddress> {
        self.shared.replication.link().primary.clone().or_else(|| self.config.replicaof.clone())
    }

    pub(crate) fn new(shared: &'a Shared, config: &'a Config, now_ms: u64) -> Self {
        Self {
            shared,
            config,
            now_ms,
            survey: OnceCell::new(),
            memory: OnceCell::new(),
            clients: OnceCell::new(),
            traffic: OnceCell::new(),
            rates: OnceCell::new(),
            saving: OnceCell::new(),
            rewriting: OnceCell::new(),
            log: OnceCell::new(),
            loading: OnceCell::new(),
            processor: OnceCell::new(),
            hot_keys: OnceCell::new(),
        }
    }

    /// A reading for a thread that is not inside the gate, which has made the survey by itself.
    pub(crate) fn surveyed(shared: &'a Shared, config: &'a Config, now_ms: u64, survey: Survey) -> Self {
        Self { survey: OnceCell::from(survey), ..Self::new(shared, config, now_ms) }
    }

    /// Keys and bytes of each database, and the keys that clients wait for.
    pub(super) fn survey(&self) -> &Survey {
        self.survey.get_or_init(|| self.shared.engine.survey())
    }

    /// How much of `value`, that of the counter `name`, came after the last reset.
    pub(super) fn since_reset(&self, name: &str, value: u64) -> u64 {
        self.shared.stats.baseline.since_reset(name, value)
    }

    pub(crate) fn clients(&self) -> &[Arc<Client>] {
        self.clients.get_or_init(|| self.shared.stats.clients().map(|all| all.list()).unwrap_or_default())
    }

    /// The largest buffers of a client in the last seconds, and now.
    pub(super) fn largest_buffers(&self) -> LargestBuffers {
        self.memory();
        self.shared.stats.recent_buffers()
    }

    pub(super) fn traffic(&self) -> &TrafficTotals {
        self.traffic.get_or_init(|| self.shared.stats.traffic())
    }

    pub(super) fn rates(&self) -> &Rates {
        self.rates.get_or_init(|| self.shared.stats.rates())
    }

    /// The sum of a counter over all workers.
    pub(super) fn of_workers(&self, counter: fn(&WorkerStatistics) -> &Counter) -> u64 {
        self.shared.stats.workers.iter().map(|worker| counter(worker).get()).sum()
    }

    /// The sum of a counter of changes to the keyspace over all workers.
    pub(super) fn of_keyspace(&self, counter: fn(&Statistics) -> &Counter) -> u64 {
        self.shared.stats.keyspace_total(counter)
    }

    pub(super) fn processor(&self) -> &ProcessorTime {
        self.processor.get_or_init(ProcessorTime::of_process)
    }

    /// The snapshot that is being saved, and how long the last one took.
    pub(super) fn saving(&self) -> (Option<&Progress>, Option<Duration>) {
        let (current, last_took) = self.saving.get_or_init(|| self.shared.background_save());
        (current.as_deref(), *last_took)
    }

    pub(super) fn rewriting(&self) -> &Rewriting {
        self.rewriting.get_or_init(|| {
            let rewriting = self.shared.durability.rewriting();
            Rewriting {
                current: rewriting.current.clone(),
                scheduled: rewriting.scheduled,
                last_took: rewriting.last_took,
                count: rewriting.count,
                failures: rewriting.failures,
            }
        })
    }

    /// The state of the log's files.
    pub(super) fn log(&self) -> &Status {
        self.log.get_or_init(|| self.shared.durability.status().clone())
    }

    /// How far loading is; `None` when nothing is loaded.
    pub(super) fn loading(&self) -> Option<&LoadingProgress> {
        self.loading.get_or_init(|| self.shared.loading.progress()).as_ref()
    }

    /// The session of `HOTKEYS`, if there is one.
    pub(super) fn hot_keys(&self) -> Option<&HotKeySession> {
        self.hot_keys.get_or_init(|| self.shared.hot_keys.session()).as_deref()
    }

    pub(super) fn memory(&self) -> &Memory {
        self.memory.get_or_init(|| self.read_memory())
    }

    fn read_memory(&self) -> Memory {
        let (shared, stats) = (self.shared, &self.shared.stats);
        let keyspace = &shared.engine.keyspace;
        let clients = stats.visit_clients();
        let kept = shared.replication.kept(shared.durability.tail(), self.config.repl_backlog_size);
        let held = shared.held();
        stats.note_held(&held);
        let used = stats.used_bytes(&shared.engine) as u64;
        let startup = stats.startup_bytes as u64;
        let usage = self.survey().total();
        // Entries and tables live in pages of the pool, everything else on the heap.
        let pool = keyspace.pool().usage();
        let in_pages = (usage.entry_bytes + usage.table_bytes) as u64;
        let active = used.saturating_sub(in_pages) + pool.handed_out_bytes as u64;
        Memory {
            used,
            peak: stats.peak_bytes(&shared.engine) as u64,
            startup,
            clients: (clients.all - clients.replicas.min(clients.all)) as u64,
            replicas: clients.replicas as u64 + kept.for_replicas,
            backlog: kept.backlog,
            replication: kept.backlog + kept.for_replicas,
            uncounted: held.uncounted() as u64,
            overhead: startup + (usage.table_bytes + clients.all + held.total()) as u64,
            resident: host::resident_bytes(),
            active,
            allocator_resident: active + pool.free_resident_bytes as u64,
            log_ring: held.log as u64,
            eval_machines: shared.scripts.heaps.used_bytes() as u64,
            function_machines: shared.libraries.heaps.used_bytes() as u64,
            scripts: shared.scripts.bytes() as u64,
            functions: shared.libraries.now().bytes() as u64,
        }
    }
}

impl Memory {
    pub(super) fn dataset(&self) -> u64 {
        self.used.saturating_sub(self.overhead)
    }

    pub(super) fn above_startup(&self) -> u64 {
        self.used.saturating_sub(self.startup)
    }
}
