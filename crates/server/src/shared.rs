//! What all workers of a server share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use dunlin_engine::{Engine, command::CommandTable};

use crate::{
    commands, config::ConfigStore, maintenance::Maintenance, monitor::Monitor, pause::Pause, process::Process,
};

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
    stopping: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        engine: Engine,
        config: Arc<ConfigStore>,
        workers: usize,
        maintenance: Maintenance,
        process: Process,
    ) -> Self {
        let commands = commands::table();
        let monitor = Monitor::new(&engine, &commands, workers, process);
        let pause = Pause::new(Instant::now());
        let stopping = AtomicBool::new(false);
        Self { engine, commands, config, workers, maintenance, monitor, pause, stopping }
    }

    /// Asks the server to end; [`crate::server::run`] sees it.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
