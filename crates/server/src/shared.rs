//! What all workers of a server share.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use dunlin_engine::{Engine, command::CommandTable};

use crate::{commands, config::ConfigStore, maintenance::Maintenance};

/// What all workers of a server share.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) commands: CommandTable,
    pub(crate) config: Arc<ConfigStore>,
    /// How many workers there are.
    pub(crate) workers: usize,
    pub(crate) maintenance: Maintenance,
    stopping: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        engine: Engine,
        config: Arc<ConfigStore>,
        workers: usize,
        maintenance: Maintenance,
    ) -> Self {
        let commands = CommandTable::new(&[dunlin_engine::commands::FAMILIES, commands::FAMILIES].concat());
        Self { engine, commands, config, workers, maintenance, stopping: AtomicBool::new(false) }
    }

    /// Asks the server to end; [`crate::server::run`] sees it.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
