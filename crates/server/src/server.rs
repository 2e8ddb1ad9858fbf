//! A server from start to end.

use std::{ffi::OsString, io, path::Path, process::ExitCode, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use dunlin_engine::{Engine, Worker, keyspace::Keyspace};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{
    config::{self, Config, ConfigStore, Launch, Request},
    executor::Executor,
    log,
    maintenance::{self, Maintenance},
    net::{Limits, ListenOptions, OutputLimit, Workers, reserve_open_files},
    process::Process,
    shared::Shared,
    startup::{self, PidFile},
};

/// `dunlin server …`: runs until it is told to stop. `words` are the words behind `server`.
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    match config::parse(words, &mut io::stdin()) {
        Ok(Request::Print(text)) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Ok(Request::Run(launch)) => report(run(*launch)),
        Err(error) => report(Err(error.to_string())),
    }
}

fn report(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("dunlin: {line}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a server until SIGTERM, SIGINT or SHUTDOWN. The error is one line for the operator.
fn run(launch: Launch) -> Result<(), String> {
    let Launch { mut config, file } = launch;
    startup::enter_directory(&mut config)
        .map_err(|reason| format!("cannot enter dir {}: {reason}", config.dir.display()))?;
    let log = log::install(config.loglevel, &config.logfile)
        .map_err(|error| format!("cannot open logfile {}: {error}", config.logfile.display()))?;
    let pidfile = PidFile::write(&config.pidfile)?;
    let clients_max = reserve_open_files(config.maxclients as usize).map_err(|error| error.to_string())?;
    config.maxclients = clients_max as u32;

    let threads = config.worker_count();
    let limits = Arc::new(ArcSwap::from_pointee(limits(&config)));
    let listen = listen_options(&config);
    let databases = config.databases as usize;
    let announced = config.clone();
    let store = Arc::new(ConfigStore::new(config, file.clone()));
    startup::register_hooks(&store, log);

    let engine = Engine { keyspace: Keyspace::new(threads, threads, databases, seeds()?) };
    let (maintenance, orders) = Maintenance::new();
    let shared = Arc::new(Shared::new(engine, Arc::clone(&store), threads, maintenance, Process::new()?));
    maintenance::start(orders, &shared).map_err(|error| format!("cannot start a thread: {error}"))?;
    let mut signals =
        Signals::new([SIGTERM, SIGINT]).map_err(|error| format!("cannot handle signals: {error}"))?;
    let workers = Workers { threads, listen, limits };
    let make = {
        let shared = Arc::clone(&shared);
        move |context: crate::net::WorkerContext<_>| {
            let seed = u64::from(std::process::id()) << 32 | context.worker as u64;
            shared.monitor.attach(context.clients.clone(), context.traffic.clone());
            Executor::new(Arc::clone(&shared), Worker::new(context.worker, seed), context)
        }
    };
    let running = workers.start(make).map_err(|error| error.to_string())?;
    announce(&announced, file.as_deref(), running.addresses());

    while !shared.is_stopping() {
        if let Some(signal) = signals.wait().next() {
            let name = if signal == SIGTERM { "SIGTERM" } else { "SIGINT" };
            tracing::warn!("Received {name}, shutting down");
            shared.stop();
        }
    }
    running.shutdown(Duration::from_secs(1));
    running.join().map_err(|error| format!("a worker failed: {error}"))?;
    drop(pidfile);
    tracing::warn!("Dunlin is now ready to exit, bye bye");
    Ok(())
}

fn announce(config: &Config, file: Option<&Path>, tcp: &[std::net::SocketAddr]) {
    let mut addresses: Vec<String> = tcp.iter().map(ToString::to_string).collect();
    if !config.unixsocket.as_os_str().is_empty() {
        addresses.push(config.unixsocket.display().to_string());
    }
    for line in startup::announcement(config, file, &addresses) {
        tracing::info!("{line}");
    }
    for line in startup::warnings(config) {
        tracing::warn!("{line}");
    }
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
        backlog: config.tcp_backlog,
        unix_path: some(&config.unixsocket),
        unix_permissions: (config.unixsocketperm != 0).then_some(config.unixsocketperm),
    }
}

/// What the network layer enforces of a configuration.
pub(crate) fn limits(config: &Config) -> Limits {
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
        loopback_only: config.protected_mode && config.requirepass.is_empty(),
    }
}
