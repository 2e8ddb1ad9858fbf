//! What all workers of a server share.

use std::{
    sync::{Arc, atomic::AtomicBool, mpsc::Sender},
    time::{Duration, Instant},
};

use dunlin_engine::{Engine, command::CommandTable};

use crate::{
    commands, config::ConfigStore, maintenance::Maintenance, monitor::Monitor, pause::Pause,
    persistence::Persistence, process::Process,
};

/// An order to end the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stop {
    /// How long clients get to take replies that are on their way.
    pub(crate) grace: Duration,
}

/// What all workers of a server share.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) commands: CommandTable,
    pub(crate) config: Arc<ConfigStore>,
    /// How many workers there are.
    pub(crate) workers: usize,
    pub(crate) maintenance: Maintenance,
    pub(crate) monitor: Monitor,
    pub(crate) pause: Pause,
    pub(crate) persistence: Persistence,
    /// Whether keys are removed when their time has come though nobody asks for them
    /// (`DEBUG SET-ACTIVE-EXPIRE`).
    pub(crate) active_expire: AtomicBool,
    orders: Sender<Stop>,
}

impl Shared {
    pub(crate) fn new(
        engine: Engine,
        config: Arc<ConfigStore>,
        workers: usize,
        maintenance: Maintenance,
        process: Process,
        persistence: Persistence,
        orders: Sender<Stop>,
    ) -> Self {
        let commands = commands::table();
        let monitor = Monitor::new(&engine, &commands, workers, process);
        let pause = Pause::new(Instant::now());
        let active_expire = AtomicBool::new(true);
        Self { engine, commands, config, workers, maintenance, monitor, pause, persistence, active_expire, orders }
    }

    /// Asks the server to end.
    pub(crate) fn stop(&self, stop: Stop) {
        // Who waits for orders leaves only when the server is ending.
        let _ = self.orders.send(stop);
    }
}
