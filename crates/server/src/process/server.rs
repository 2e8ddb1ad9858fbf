//! A server from start to end.

use std::{
    ffi::OsString,
    io,
    net::SocketAddr,
    path::Path,
    process::ExitCode,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use arc_swap::ArcSwap;
use dunlin_engine::{Engine, Worker, keyspace::Keyspace};
use dunlin_net::{
    Limits, ListenOptions, Listening, Now, OutputLimit, Running, WorkerContext, Workers, listen_on,
    reserve_open_files,
};
use dunlin_persist::{Ring, RingReader};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ},
    iterator::Signals,
};

use crate::{
    aof::LogThread,
    audit, commands,
    config::{self, Config, ConfigStore, Launch, Request, ShutdownFlags, is_secret},
    durability::{Durability, LogOrder, MarkedRing, RING, SeenMarks},
    executor::{Executor, configure_access, offload_threads},
    http::HttpServer,
    loading::helpers,
    node::{self, AgentSlot, AgentThread},
    persistence::files,
    process::{
        daemon::Daemon,
        log::{self, LogHandle},
        maintenance,
        startup::{self, PidFile},
        supervisor::Supervisor,
        syslog::Syslog,
    },
    replication,
    replicator::{self, shutdown},
    sampler,
    shared::{Shared, Stop},
    system::{
        arguments,
        host::{self, Process},
    },
    tls,
    workers::{
        WorkerMessage,
        maintenance::{Maintenance, MaintenanceOrder},
    },
};

pub use crate::workers::shutdown::ShutdownOutcome;

/// `dunlin server …`: runs until it is told to stop. `words` are the words behind `server`.
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    match config::parse(words, &mut io::stdin()) {
        Ok(Request::Print(text)) => {
            dunlin_print::text(&text);
            ExitCode::SUCCESS
        }
        Ok(Request::Run(launch)) => report(run(*launch)),
        Err(error) => report(Err(error.to_string())),
    }
}

/// Says why a server did not start or ended: a line for each reason.
fn report(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(lines) => {
            lines.lines().for_each(|line| eprintln!("dunlin: {line}"));
            ExitCode::FAILURE
        }
    }
}

/// A server at work in this process.
pub struct Server {
    shared: Arc<Shared>,
    running: Running<WorkerMessage>,
    log: JoinHandle<Result<(), String>>,
    replication: replicator::Threads,
    agent: AgentSlot,
    http: Option<HttpServer>,
    audit: JoinHandle<()>,
    supervisor: Option<Supervisor>,
    /// Kept so that orders can be given before a thread waits for them.
    stopper: Sender<Stop>,
    orders: Receiver<Stop>,
}

impl Server {
    /// Listens, loads the data set, and starts the worker threads, which answer LOADING where that takes its time. A line
    /// of the log says when commands are served. The caller owns what belongs to the whole process: working directory,
    /// log, signals, pidfile. `log` is what `CONFIG SET loglevel` changes. The error is one line for the operator.
    pub fn start(launch: Launch, log: Option<LogHandle>) -> Result<Self, String> {
        let Launch { mut config, file } = launch;
        let wanted = config.maxclients as usize;
        let room = reserve_open_files(wanted).map_err(|error| error.to_string())?;
        if room < wanted {
            tracing::warn!(
                "maxclients is {room} instead of {wanted}: the limit of open files leaves no room for more; raise it (ulimit -n)"
            );
            config.maxclients = room as u32;
        }
        node::settle(&mut config)?;
        startup::announcement(&config, file.as_deref()).iter().for_each(|line| tracing::info!("{line}"));
        startup::warnings(&config).iter().for_each(|line| tracing::warn!("{line}"));
        let supervisor = Supervisor::find(&config);
        let threads = config.worker_count();
        let limits = Arc::new(ArcSwap::from_pointee(limits(&config, false)));
        let listen = listen_options(&config);
        let http = match config.http_port {
            0 => Vec::new(),
            port => listen_on(&config.bind, port, config.tcp_backlog).map_err(|error| error.to_string())?,
        };
        let store = Arc::new(ConfigStore::new(config, file));
        register_hooks(&store, log);
        let (stopper, orders) = channel();
        let Assembled { shared, ring, discarded } = assemble(store, threads, stopper.clone())?;
        let shared = Arc::new(shared);
        let weak = Arc::downgrade(&shared);
        shared.engine.keyspace.set_on_emptied(move |context| {
            weak.upgrade().iter().for_each(|shared| shared.follow_flush(context));
        });
        shared.access.configure(&shared.config.current())?;
        register_access(&shared, Arc::clone(&limits));
        let is_open = shared.access.is_open();
        startup::open_warning(&shared.config.current(), is_open)
            .iter()
            .for_each(|line| tracing::warn!("{line}"));
        shared
            .tls
            .configure(&shared.config.current())
            .map_err(|error| format!("cannot set up TLS: {error}"))?;
        register_tls(&shared);
        shared.audit.configure(&shared.config.current(), &shared.commands)?;
        register_audit(&shared);
        let audit = audit::start(&shared.audit).map_err(|error| format!("cannot start a thread: {error}"))?;
        let workers = Workers { threads, listen, limits, tls: Arc::clone(&shared.tls.for_workers) };
        take_directory(&shared)?;
        let membership = node::prepare(&shared)?;
        // A node of a cluster is nothing before its shard has decided.
        if shared.config.current().replicaof.is_some() || membership.is_some() {
            shared.replication.expect_primary();
        }
        let listened = workers.listen().map_err(|error| error.to_string())?;
        shared.loading.begin(Now::read());
        supervisor.iter().for_each(Supervisor::loading);
        supervisor
            .iter()
            .try_for_each(|supervisor| start_watchdog(supervisor, &shared))
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        let http = match http.is_empty() {
            true => None,
            false => Some(
                HttpServer::start(&shared, http).map_err(|error| format!("cannot serve HTTP: {error}"))?,
            ),
        };
        tls::watch(&shared.tls, &Arc::downgrade(&shared.config), &shared.config.current())
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        maintenance::start(discarded, &shared).map_err(|error| format!("cannot start a thread: {error}"))?;
        sampler::start(&shared).map_err(|error| format!("cannot start a thread: {error}"))?;
        offload_threads::start(&shared).map_err(|error| format!("cannot start a thread: {error}"))?;
        shared.replication.attach(ring.second());
        let log = LogThread::new(Arc::clone(&shared), ring)
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        let make = {
            let shared = Arc::clone(&shared);
            move |context: WorkerContext<_>| {
                shared.stats.attach(context.clients.clone(), context.traffic.clone());
                shared.durability.attach(&context.queues);
                let seed = u64::from(std::process::id()) << 32 | context.worker as u64;
                host::shorten_slice();
                Executor::new(Arc::clone(&shared), Worker::new(context.worker, seed), context)
            }
        };
        let http_addresses = http.as_ref().map_or(&[][..], HttpServer::addresses);
        let addresses = addresses(&shared.config.current(), &listened.addresses(), http_addresses);
        let readiness = Arc::new(Readiness::new(addresses, supervisor.clone()));
        let loaded = {
            let readiness = Arc::clone(&readiness);
            move || readiness.advance()
        };
        let log = log.start(loaded).map_err(|error| format!("cannot start a thread: {error}"))?;
        if log.is_finished() {
            shared.directory.release();
            return Err(join_log(log).err().unwrap_or_else(|| "the log's thread has ended".to_owned()));
        }
        // Commands call hooks, so these are registered before the first command runs.
        let agent = AgentSlot::default();
        node::register_join(&shared, &agent);
        let running = listened
            .start(
                dunlin_scripting::STACK_BYTES,
                |listening| register_listening(&shared.config, listening),
                make,
            )
            .map_err(|error| format!("cannot start the worker threads: {error}"))?;
        let replication =
            replicator::Threads::start(&shared).map_err(|error| format!("cannot start a thread: {error}"))?;
        if let Some(member) = membership {
            *lock(&agent) = Some(AgentThread::start(&shared, member)?);
        }
        readiness.advance();
        Ok(Self { agent, shared, running, log, replication, http, audit, supervisor, stopper, orders })
    }

    /// The TCP addresses that it has listened on from the start.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.running.addresses()
    }

    /// The addresses that it answers HTTP on.
    pub fn http_addresses(&self) -> &[SocketAddr] {
        self.http.as_ref().map_or(&[], HttpServer::addresses)
    }

    /// The configuration, as it is at this moment.
    pub fn config(&self) -> Arc<Config> {
        self.shared.config.current()
    }

    /// A handle to stop it with, from any thread.
    pub fn stopper(&self) -> Stopper {
        Stopper { shared: Arc::clone(&self.shared), orders: self.stopper.clone() }
    }

    /// Waits until it is told to stop, by SHUTDOWN or by a [`Stopper`], and has ended. The error is one
    /// line for the operator.
    pub fn wait(self) -> Result<(), String> {
        // The server holds a sender of its own, so the channel never closes.
        if let Ok(stop) = self.orders.recv() {
            self.supervisor.iter().for_each(Supervisor::stopping);
            self.shared.loading.abandon();
            let agent = lock(&self.agent).take();
            if let Some(agent) = agent {
                agent.hand_over(&self.shared, stop.grace);
                agent.end(&self.shared);
            }
            shutdown::drain(&self.shared, stop.replicas);
            self.running.shutdown(stop.grace);
        }
        self.running.join().map_err(|error| format!("a worker failed: {error}"))?;
        self.replication.join(&self.shared);
        self.shared.end_saving();
        self.shared.durability.end_rewriting();
        // The last replies may have waited for it.
        self.shared.durability.order(LogOrder::Stop);
        let ended = join_log(self.log);
        node::note_end(&self.shared);
        sampler::finish(&self.shared);
        self.shared.directory.release();
        self.shared.audit.end();
        if self.audit.join().is_err() {
            tracing::error!("the thread of the audit log failed");
        }
        ended.and_then(|()| self.shared.cluster.failure().map_or(Ok(()), Err))
    }
}

/// Says once that commands are served: when the data set has been loaded and the workers have started, whichever comes last.
struct Readiness {
    /// The addresses on which the server listens.
    addresses: Vec<String>,
    supervisor: Option<Supervisor>,
    missing: AtomicU32,
}

impl Readiness {
    fn new(addresses: Vec<String>, supervisor: Option<Supervisor>) -> Self {
        Self { addresses, supervisor, missing: AtomicU32::new(2) }
    }

    /// Notes that one of the two has come.
    fn advance(&self) {
        if self.missing.fetch_sub(1, Relaxed) == 1 {
            tracing::info!("Ready to accept connections on {}", self.addresses.join(", "));
            self.supervisor.iter().for_each(Supervisor::ready);
        }
    }
}

/// How old the newest sample of a server that is well may be: the maintenance thread takes ten a second.
const SAMPLE_AGE_MAX: Duration = Duration::from_secs(10);

/// Tells a supervisor that watches the server that it is well, for as long as it is.
fn start_watchdog(supervisor: &Supervisor, shared: &Arc<Shared>) -> io::Result<()> {
    let shared = Arc::downgrade(shared);
    supervisor.watch(move || {
        let shared = shared.upgrade()?;
        let is_well = shared.stats.sampled_at().is_none_or(|at| at.elapsed() < SAMPLE_AGE_MAX);
        Some(is_well)
    })
}

/// An engine with all that belongs to it, before there are threads.
pub(crate) struct Assembled {
    pub(crate) shared: Shared,
    /// The ring's end for the log's thread.
    ring: RingReader,
    /// The orders for the maintenance thread.
    discarded: Receiver<MaintenanceOrder>,
}

/// Makes an empty engine for `threads` workers. The error is one line for the operator.
pub(crate) fn assemble(
    store: Arc<ConfigStore>,
    threads: usize,
    stopper: Sender<Stop>,
) -> Result<Assembled, String> {
    let databases = store.current().databases as usize;
    // Behind the helpers, those that replicate, the one that changes what is the cluster's, and the one that removes keys of slots.
    let participants = threads + 1 + helpers(threads) + 4;
    let (writers, ring) = Ring::new(RING, participants, 0);
    let keyspace = Keyspace::new(threads, participants, databases, seeds()?);
    let commands = Arc::new(commands::table_of(&store.current())?);
    let marks = Arc::<SeenMarks>::default();
    let (ring_of, marks_of) = (Arc::clone(&writers), Arc::clone(&marks));
    let log = MarkedRing { ring: ring_of, marks: marks_of, commands: Arc::clone(&commands) };
    let engine = Engine::with_log(keyspace, Arc::new(log));
    configure_access(&engine, &store.current());
    let (maintenance, discarded) = Maintenance::new();
    let durability = Durability::new(writers, marks, threads);
    let id = replication::new_id()?;
    let shared =
        Shared::new(engine, commands, store, threads, maintenance, Process::new()?, durability, id, stopper);
    Ok(Assembled { shared, ring, discarded })
}

/// Waits until the log's thread has ended.
fn join_log(log: JoinHandle<Result<(), String>>) -> Result<(), String> {
    log.join().map_err(|_| "the log's thread failed".to_owned())?
}

/// Stops a server.
#[derive(Clone)]
pub struct Stopper {
    shared: Arc<Shared>,
    orders: Sender<Stop>,
}

impl Stopper {
    /// As SHUTDOWN with these options would: replicas that are behind get `shutdown-timeout`, unless `now` is among the options,
    /// and SHUTDOWN ABORT may end the wait. With `save`, a snapshot follows, without which the server goes on unless `force` is among
    /// the options. Clients that are being answered get `shutdown-timeout`, too, to take their replies. A snapshot waits for a script; all other clients
    /// are served meanwhile. Blocks until the outcome is known.
    pub fn stop(&self, flags: ShutdownFlags) -> ShutdownOutcome {
        let shared = &self.shared;
        if shutdown::waits(flags, shared) {
            return match shutdown::begin(shared, flags) {
                (wait, true) => shutdown::carry_out(shared, &wait, flags),
                (wait, false) => wait.outcome(),
            };
        }
        if !shutdown::save_last(shared, flags) {
            return ShutdownOutcome::NotSaved;
        }
        // Without a receiver, the server has ended already.
        let _ = self.orders.send(Stop::within(shutdown::grace(flags, &shared.config.current())));
        ShutdownOutcome::Ends
    }

    /// Snapshots written so far.
    fn saves(&self) -> u64 {
        self.shared.persistence.saves.load(Relaxed)
    }
}

/// Runs a server until SIGTERM, SIGINT or SHUTDOWN. The error is one line for the operator.
fn run(mut launch: Launch) -> Result<(), String> {
    let config = &mut launch.config;
    // Before there is a thread.
    arguments::hide_secrets(is_secret);
    startup::limit_core_files(config).map_err(|error| format!("cannot limit core files: {error}"))?;
    startup::enter_directory(config)
        .map_err(|reason| format!("cannot enter dir {}: {reason}", config.dir.display()))?;
    // Before there is a thread. A supervisor wants to see the process that it has started.
    let daemon = match config.daemonize && Supervisor::find(config).is_none() {
        true => Some(Daemon::detach().map_err(|error| format!("cannot go on in the background: {error}"))?),
        false => None,
    };
    let log = log::install(config.loglevel, &config.logfile, Syslog::new(config))
        .map_err(|error| format!("cannot open logfile {}: {error}", config.logfile.display()))?;
    let has_logfile = !config.logfile.as_os_str().is_empty();
    let ended = run_logged(launch, log, daemon);
    if has_logfile && let Err(line) = &ended {
        // The caller prints the error to standard error, which is not the log.
        tracing::error!("{line}");
    }
    ended
}

/// Runs the server, once there is a log and perhaps a terminal that was left.
fn run_logged(launch: Launch, log: LogHandle, daemon: Option<Daemon>) -> Result<(), String> {
    // Redis's own configuration file names one that only root can write.
    let pidfile = PidFile::write(&launch.config.pidfile).unwrap_or_else(|reason| {
        tracing::warn!("{reason}");
        None
    });
    let signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|error| format!("cannot handle signals: {error}"))?;
    // A file that must not grow is an error of the write, not the end of the process.
    signal_hook::flag::register(SIGXFSZ, Arc::default())
        .map_err(|error| format!("cannot handle signals: {error}"))?;
    let server = Server::start(launch, Some(log))?;
    obey_signals(signals, server.stopper()).map_err(|error| format!("cannot start a thread: {error}"))?;
    if let Some(daemon) = daemon {
        daemon.started().map_err(|error| format!("cannot give up standard error: {error}"))?;
    }
    server.wait()?;
    drop(pidfile);
    tracing::warn!("Dunlin is now ready to exit, bye bye");
    Ok(())
}

/// Makes SIGTERM and SIGINT stop the server, as `shutdown-on-sigterm` and `shutdown-on-sigint` say. While it is being
/// stopped, SIGINT ends the process at once. If the data set could not be saved, SIGTERM tries again, as a supervisor
/// wants it, and SIGINT, as from an operator who has read why, ends the server without. SIGHUP, as of a rotation of
/// logs or a terminal that was closed, leaves the server at work: a log file that was moved away is opened anew by the
/// next line.
fn obey_signals(mut signals: Signals, stopper: Stopper) -> io::Result<()> {
    let obey = move || {
        let stopping = Arc::new(AtomicBool::new(false));
        // Snapshots that had been written when a signal could not write one.
        let failed_at = Arc::new(Mutex::new(None));
        for signal in signals.forever() {
            if signal == SIGHUP {
                tracing::info!("Received SIGHUP: the log goes on here");
                continue;
            }
            let config = stopper.shared.config.current();
            let (name, mut flags) = match signal {
                SIGTERM => ("SIGTERM", config.shutdown_on_sigterm),
                _ => ("SIGINT", config.shutdown_on_sigint),
            };
            if stopping.swap(true, Relaxed) {
                if signal == SIGINT {
                    tracing::warn!("Received SIGINT while shutting down, exiting at once");
                    std::process::exit(1);
                }
                continue;
            }
            let has_failed = *lock(&failed_at) == Some(stopper.saves());
            if signal == SIGINT && has_failed {
                tracing::warn!(
                    "Received SIGINT after the data set could not be saved, shutting down without"
                );
                flags = ShutdownFlags { save: false, nosave: true, ..flags };
            } else {
                tracing::warn!("Received {name}, shutting down");
            }
            let (stopper, is_stopping, failed_at) =
                (stopper.clone(), Arc::clone(&stopping), Arc::clone(&failed_at));
            // Apart from this thread, since the snapshot may take long, or fail; then all is as before.
            let stop = move || match stopper.stop(flags) {
                ShutdownOutcome::Ends => {}
                ShutdownOutcome::Aborted => {
                    is_stopping.store(false, Relaxed);
                    tracing::warn!("The shutdown that {name} has begun is called off");
                }
                ShutdownOutcome::NotSaved => {
                    *lock(&failed_at) = Some(stopper.saves());
                    is_stopping.store(false, Relaxed);
                    tracing::warn!(
                        "The data set could not be saved, so the server goes on. Remove the cause and send SIGTERM again; to end without saving, send SIGINT now, or use SHUTDOWN NOSAVE"
                    );
                }
            };
            if let Err(error) = std::thread::Builder::new().name("shutdown".to_owned()).spawn(stop) {
                tracing::error!("cannot start a thread: {error}");
                stopping.store(false, Relaxed);
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(obey).map(drop)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers what a change of the configuration sets in motion.
fn register_hooks(store: &ConfigStore, log: Option<LogHandle>) {
    startup::register_hooks(store, log);
    store.on_change(
        &["maxclients"],
        Box::new(|_, new| {
            let wanted = new.maxclients as usize;
            let room = reserve_open_files(wanted).unwrap_or_default();
            if room < wanted {
                return Err(format!(
                    "The operating system is not able to handle the specified number of clients, try with {room}"
                ));
            }
            Ok(())
        }),
    );
}

/// Makes passwords, and the limits of connections, follow the configuration. Whether others than this host may
/// connect depends on both.
fn register_access(shared: &Shared, published: Arc<ArcSwap<Limits>>) {
    let (store, access) = (&shared.config, &shared.access);
    published.store(Arc::new(limits(&store.current(), access.is_open())));
    let opened = (Arc::downgrade(store), Arc::downgrade(access), Arc::clone(&published));
    access.on_opened(Box::new(move || {
        let (store, access, published) = &opened;
        if let (Some(store), Some(access)) = (store.upgrade(), access.upgrade()) {
            published.store(Arc::new(limits(&store.current(), access.is_open())));
        }
    }));
    let users = Arc::downgrade(access);
    store.on_published(Box::new(move || users.upgrade().into_iter().for_each(|users| users.touch())));
    let users = Arc::clone(access);
    store.on_change(
        &["requirepass"],
        Box::new(move |_, new| {
            users.require_password(new.requirepass.bytes());
            Ok(())
        }),
    );
    let users = Arc::clone(access);
    store.on_change(
        &["acllog-max-len"],
        Box::new(move |_, new| {
            users.trim_log(new.acllog_max_len as usize);
            Ok(())
        }),
    );
    let access = Arc::clone(access);
    store.on_change(
        &[
            "maxclients",
            "timeout",
            "tcp-keepalive",
            "client-query-buffer-limit",
            "client-output-buffer-limit",
            "protected-mode",
            "requirepass",
        ],
        Box::new(move |_, new| {
            published.store(Arc::new(limits(new, access.is_open())));
            Ok(())
        }),
    );
}

/// Makes the directives about TLS, and files that they name, take effect for new connections.
fn register_tls(shared: &Shared) {
    let (tls, store) = (Arc::clone(&shared.tls), Arc::downgrade(&shared.config));
    shared.config.on_change(
        &[
            "tls-port",
            "tls-replication",
            "tls-cluster",
            "tls-auth-clients",
            "tls-ca-cert-dir",
            "tls-ca-cert-file",
            "tls-cert-file",
            "tls-key-file",
            "tls-client-cert-file",
            "tls-client-key-file",
            "tls-ciphers",
            "tls-ciphersuites",
            "tls-protocols",
            "tls-prefer-server-ciphers",
            "tls-session-caching",
            "tls-session-cache-size",
            "tls-session-cache-timeout",
        ],
        Box::new(move |_, new| {
            tls.configure(new).map_err(|error| {
                tracing::warn!("CONFIG SET: cannot set up TLS: {error}");
                "Unable to update TLS configuration. Check server logs.".to_owned()
            })?;
            tls::watch(&tls, &store, new).map_err(|error| format!("cannot start a thread: {error}"))
        }),
    );
}

/// Makes the directives about the audit log take effect.
fn register_audit(shared: &Shared) {
    let (audit, commands) = (Arc::clone(&shared.audit), commands::table());
    shared.config.on_change(
        &["audit-log", "audit-log-categories", "audit-log-events", "audit-log-keys", "audit-log-when-full"],
        Box::new(move |_, new| audit.configure(new, &commands)),
    );
}

/// Takes the data directory, from now on if the server keeps something there, and whenever it begins to.
fn take_directory(shared: &Shared) -> Result<(), String> {
    let config = shared.config.current();
    if config.keeps_data() {
        let held = shared.directory.hold(&config);
        held.map_err(|in_use| format!("{in_use}: stop that server, or give this one another --dir"))?;
        files::remove_unfinished(&config.dir);
        files::remove_unfinished(&config.dir.join(&config.appenddirname));
    }
    let directory = Arc::clone(&shared.directory);
    let follow = move |_: &Config, new: &mut Config| {
        let taken = if new.keeps_data() { directory.hold(new).map(drop) } else { directory.follow(new) };
        taken.map_err(|in_use| in_use.to_string())
    };
    shared.config.on_change(&["dir", "save"], Box::new(follow));
    Ok(())
}

/// Makes `bind`, `port` and `tls-port` take effect while the server runs.
fn register_listening(store: &ConfigStore, listening: Arc<Listening<WorkerMessage>>) {
    store.on_change(
        &["port", "tls-port", "bind"],
        Box::new(move |old, new| {
            let ListenOptions { addresses, port, tls_port, backlog, .. } = listen_options(new);
            listening.change(&addresses, port, tls_port, backlog).map_err(|error| {
                tracing::warn!("CONFIG SET: {error}");
                let reason = if (old.port, old.tls_port) == (new.port, new.tls_port) {
                    "Failed to bind to specified addresses."
                } else {
                    "Unable to listen on this port. Check server logs."
                };
                reason.to_owned()
            })
        }),
    );
}

/// The addresses of a server, as an operator would write them.
fn addresses(config: &Config, tcp: &[SocketAddr], http: &[SocketAddr]) -> Vec<String> {
    let mut addresses: Vec<String> = tcp.iter().map(ToString::to_string).collect();
    if !config.unixsocket.as_os_str().is_empty() {
        addresses.push(config.unixsocket.display().to_string());
    }
    addresses.extend(http.iter().map(|address| format!("http://{address}/health")));
    addresses
}

fn seeds() -> Result<[u64; 4], String> {
    let mut seeds = [0; 4];
    for seed in &mut seeds {
        *seed = getrandom::u64().map_err(|error| format!("cannot draw a random seed: {error}"))?;
    }
    Ok(seeds)
}

fn listen_options(config: &Config) -> ListenOptions {
    let some = |path: &Path| (!path.as_os_str().is_empty()).then(|| path.to_owned());
    ListenOptions {
        addresses: config.bind.clone(),
        port: (config.port != 0).then_some(config.port),
        tls_port: (config.tls_port != 0).then_some(config.tls_port),
        backlog: config.tcp_backlog,
        unix_path: some(&config.unixsocket),
        unix_permissions: (config.unixsocketperm != 0).then_some(config.unixsocketperm),
    }
}

/// The part of a configuration that the network layer enforces. `is_open`: whether clients are let in without authentication.
pub(crate) fn limits(config: &Config, is_open: bool) -> Limits {
    let seconds = |count: u32| (count > 0).then(|| Duration::from_secs(count.into()));
    let output = &config.client_output_buffer_limit;
    Limits {
        clients_max: config.maxclients as usize,
        idle_max: seconds(config.timeout),
        keepalive: seconds(config.tcp_keepalive),
        query_buffer_max: config.client_query_buffer_limit,
        output: [output.normal, output.replica, output.pubsub].map(|limit| OutputLimit {
            hard_bytes: limit.hard_bytes,
            soft_bytes: limit.soft_bytes,
            soft_duration: Duration::from_secs(limit.soft_seconds.into()),
        }),
        loopback_only: config.protected_mode && is_open,
    }
}
