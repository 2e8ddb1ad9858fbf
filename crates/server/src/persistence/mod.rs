//! Snapshots, as all threads see them: the one being written, the last one, and the files that the server has loaded.
//!
//! `rdb` writes and loads them.

pub(crate) mod data_directory;
pub mod files;
mod known;
pub(crate) mod saving;
pub(crate) mod stamp;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use dunlin_engine::rdb::ModuleAux;
use dunlin_net::Now;

use self::{known::KnownFiles, saving::Saving};
use crate::config::Config;

/// The auxiliary field with the time of the cut in unix milliseconds: `ctime` has seconds.
pub(crate) const TIME_FIELD: &str = "dunlin-time";
/// The auxiliary field with the log that was beside the data set at the cut, see [`LogStamp`].
pub(crate) const LOG_FIELD: &str = "dunlin-log";

/// The state of snapshots.
#[derive(Debug)]
pub(crate) struct Persistence {
    /// Unix time of the last snapshot; of the start until there is one.
    pub(crate) last_save_s: AtomicU64,
    /// The moment of the last save by [`Now::steady_ms`]: save points count from it.
    pub(crate) last_save_steady_ms: AtomicU64,
    /// Whether the last one in the background was written, or any since: SAVE reports its failure to its client.
    pub(crate) last_save_ok: AtomicBool,
    /// How many were written.
    pub(crate) saves: AtomicU64,
    /// Changes to the data set that the last one holds.
    pub(crate) saved_changes: AtomicU64,
    /// Keys that were loaded last.
    pub(crate) loaded_keys: AtomicU64,
    /// Keys that had expired when they were to be loaded last.
    pub(crate) expired_keys: AtomicU64,
    /// Data of modules beside the keys, as they were loaded.
    module_aux: Mutex<Arc<Vec<ModuleAux>>>,
    saving: Mutex<Saving>,
    pub(crate) known: KnownFiles,
    /// Held while a snapshot is put in place, and by a caller that prevents that.
    installing: Mutex<()>,
}

impl Persistence {
    pub(crate) fn new(started_s: u64) -> Self {
        Self {
            last_save_s: AtomicU64::new(started_s),
            last_save_steady_ms: AtomicU64::new(Now::read().steady_ms),
            last_save_ok: AtomicBool::new(true),
            saves: AtomicU64::default(),
            saved_changes: AtomicU64::default(),
            loaded_keys: AtomicU64::default(),
            expired_keys: AtomicU64::default(),
            saving: Mutex::default(),
            known: KnownFiles::default(),
            installing: Mutex::default(),
            module_aux: Mutex::default(),
        }
    }

    /// The data of modules beside the keys that the data set came with.
    pub(crate) fn module_aux(&self) -> Arc<Vec<ModuleAux>> {
        Arc::clone(&self.module_aux.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps other data of modules from now on, those of a data set that was loaded.
    pub(crate) fn keep_module_aux(&self, aux: Vec<ModuleAux>) {
        *self.module_aux.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(aux);
    }

    /// Whether the last snapshot could not be written.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        !self.last_save_ok.load(Relaxed)
    }

    pub(crate) fn installing(&self) -> MutexGuard<'_, ()> {
        self.installing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a snapshot take the place of the file that has this name now: the data set holds, or has held, all that it does.
    pub(crate) fn know(&self, path: &Path) {
        self.known.add(path);
    }

    pub(crate) fn saving(&self) -> MutexGuard<'_, Saving> {
        self.saving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file of the snapshot.
pub(crate) fn path(config: &Config) -> PathBuf {
    config.dir.join(&config.dbfilename)
}
