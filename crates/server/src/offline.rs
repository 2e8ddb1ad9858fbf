//! A data set without a server, for `dunlin check` and `dunlin convert`: its files, and a store that they are loaded into.

use std::{fs::File, io, path::Path, sync::mpsc::channel};

use dunlin_engine::{
    Caller, Environment, ExclusiveContext, Worker,
    command::{CommandTable, Entry},
    snapshot::Form,
};
use dunlin_persist::{
    Replacement,
    aof::WriterOptions,
    manifest::{BaseFormat, Manifest},
};

use crate::{
    aof,
    cluster::ending::Ending,
    commands,
    config::{Config, ConfigStore, policy},
    durability::Base,
    loading::LoadError,
    process::server::assemble,
    shared::Shared,
};
pub use crate::{
    aof::{BEGINS_INSIDE, ENDS_OUTSIDE, TORN_IN_ROOM, is_for_replicas},
    config::describe,
    persistence::{
        data_directory::{expect_unused, expect_unwritten},
        files,
    },
    process::log::install_warnings,
};

/// The commands that a log may hold.
pub struct LogCommands(CommandTable);

impl LogCommands {
    /// All commands of the server, under their own names.
    pub fn new() -> Self {
        Self(commands::table())
    }

    /// The command of a request, or why a log cannot hold it.
    pub fn find(&self, words: &[&[u8]]) -> Result<&Entry, String> {
        aof::entry_in_log(&self.0, words)
    }
}

impl Default for LogCommands {
    fn default() -> Self {
        Self::new()
    }
}

/// A store that no client sees.
pub struct Store {
    shared: Shared,
}

impl Store {
    /// An empty one. The error is one line for the operator.
    pub fn new(databases: u32) -> Result<Self, String> {
        let config = Config { databases: databases as _, ..Config::default() };
        let threads = config.worker_count();
        let (stopper, _orders) = channel();
        let assembled = assemble(ConfigStore::new(config, None).into(), threads, stopper)?;
        Ok(Self { shared: assembled.shared })
    }

    /// Loads files, in the order of a log. The error is one line for the operator.
    pub fn load(&self, parts: &[files::Part]) -> Result<(), String> {
        match aof::load_files(&self.shared, parts) {
            Ok(()) => Ok(()),
            Err(LoadError::Failed(line)) => Err(line),
            Err(LoadError::Abandoned) => unreachable!("nobody abandons it"),
        }
    }

    /// Bytes that have been loaded, and those of all files.
    pub fn progress(&self) -> (u64, u64) {
        self.shared.loading.progress().map_or((0, 0), |at| (at.bytes_loaded, at.bytes_total))
    }

    /// How many libraries of functions there are.
    pub fn libraries(&self) -> usize {
        self.shared.libraries.now().len()
    }

    /// Does something with all of it, at the beginning of time, when nothing has expired.
    pub fn with<R>(&self, work: impl FnOnce(&ExclusiveContext<'_>) -> R) -> R {
        let (policy, caller) = (policy(&self.shared.config.current()), Caller::default());
        let environment = Environment::new(&policy, &caller);
        self.shared.engine.exclusively(0, environment, &mut Worker::new(0, 0), |context| work(context))
    }

    /// Writes it into a file: as the base of a log, or as a snapshot. `note` gets the number of keys of each part.
    pub fn write(
        &self,
        context: &ExclusiveContext<'_>,
        form: Form,
        is_base: bool,
        file: &mut File,
        note: impl FnMut(u64),
    ) -> io::Result<()> {
        self.shared.write_as(context, form, is_base, file, note)
    }
}

/// Notes, if the data set at a path is a cluster node's, that what it has synced does not count: the files are about to
/// change. The path is a file of the data set, or the directory of a log. The error is one line for the operator.
pub fn forget_synced(path: &Path) -> Result<(), String> {
    let path = std::path::absolute(path).map_err(|error| describe(&error))?;
    // A file of a log lies two levels below the directory of the server.
    path.ancestors().take(3).filter(|directory| directory.is_dir()).try_for_each(Ending::forget_synced)
}

/// Puts a base in the place of a log that no server writes, of that manifest.
pub fn replace_log(
    options: &WriterOptions,
    manifest: Manifest,
    file: Replacement,
    format: BaseFormat,
) -> io::Result<()> {
    aof::replace_log(options, manifest, None, Base { file, format }).map(drop)
}
