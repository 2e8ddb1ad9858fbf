//! The flight recorder: what the server was like, each second of the last hour and more coarsely for a month, and what
//! happened. Always on.
//!
//! ```text
//! counters of workers, logs, states ─ once a second ─▶ sampler ─▶ rings ──▶ RECORDER WHY · RANGE · EVENTS
//!                                                                   └ every 10 s ─▶ recorder.dunlin in `dir`
//! ```
//!
//! The thread `recorder` ([`crate::sampler`]) reads counters that are there anyway; no command does anything for it.
//! Its memory is allocated once. The file is kept if the server keeps a data set; a file that cannot be written costs
//! the recorder its past, and clients nothing.

mod fields;
mod file;
mod rings;
mod when;
mod why;

use std::{
    fs::File,
    io,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use dunlin_engine::command::CommandTable;

use self::rings::Rings;
pub(crate) use self::{
    fields::{FIELDS, Field, Merge, Merged, NO_COMMAND, Sample},
    rings::{Event, EventKind, HOT_KEY_BYTES_MAX, HotSecond},
    when::{When, WhenError},
    why::{Facts, Question, explain},
};
use crate::{
    config::{Config, describe},
    system::host::unix_us,
};

/// From this share of the commands on keys on, in thousandths, a key is hot.
pub(crate) const HOT_SHARE_MIN: u32 = 250;
/// The age of a server at which it makes a file if there is none yet.
const FIRST_FILE_AGE: Duration = Duration::from_secs(60);
/// How often a file that could not be opened is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// The recorder, as all threads see it.
#[derive(Debug)]
pub(crate) struct Recorder {
    rings: Mutex<Rings>,
    storage: Mutex<Storage>,
}

/// The file and what it lacks.
#[derive(Debug, Default)]
struct Storage {
    file: Option<(PathBuf, File)>,
    pending: Vec<file::Piece>,
    /// A failure has been logged, and none is until it has worked again.
    is_failing: bool,
    retry_at: Option<Instant>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { rings: Mutex::new(Rings::new()), storage: Mutex::default() }
    }
}

impl Recorder {
    /// The samples and events. Held for the copying of some of them.
    pub(crate) fn rings(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn storage(&self) -> MutexGuard<'_, Storage> {
        self.storage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an event of now.
    pub(crate) fn note(&self, kind: EventKind, text: String) {
        self.note_at((unix_us() / 1000) as u64, kind, text);
    }

    /// Notes an event of a time in milliseconds since 1970.
    pub(crate) fn note_at(&self, time_ms: u64, kind: EventKind, text: String) {
        let piece = file::event_piece(self.rings().note(time_ms, kind, text));
        self.storage().add([piece]);
    }

    pub(crate) fn add(&self, sample: Sample) {
        let mut pieces = Vec::new();
        let mut rings = self.rings();
        let places = |ring: usize, sample: &Sample| {
            let (step_s, length) = rings::RESOLUTIONS[ring];
            let place = (sample.time_s / step_s) as usize % length;
            pieces.push(file::sample_piece(ring, place, sample));
        };
        rings.add(sample, places);
        drop(rings);
        self.storage().add(pieces);
    }

    /// Writes what the file lacks, opening it if there is a directory for it. `uptime` is that of the server.
    pub(crate) fn flush(&self, config: &Config, commands: &CommandTable, uptime: Duration) {
        let mut storage = self.storage();
        let wanted = file_path(config);
        if storage.file.as_ref().map(|(path, _)| path) != wanted.as_ref() {
            storage.file = None;
            storage.pending.clear();
            let Some(path) = wanted else { return };
            // A server that ends at once, as of a test or a check, leaves nothing behind.
            if uptime < FIRST_FILE_AGE && !path.exists() {
                return;
            }
            if storage.retry_at.is_some_and(|at| Instant::now() < at) {
                return;
            }
            match file::create(&path, commands_hash(commands), &self.rings()) {
                Ok(file) => storage.file = Some((path, file)),
                Err(error) => return storage.fail(&error),
            }
        }
        let pending = std::mem::take(&mut storage.pending);
        let Some((_, file)) = &storage.file else { return };
        match file::write(file, &pending) {
            Ok(()) => (storage.is_failing, storage.retry_at) = (false, None),
            Err(error) => storage.fail(&error),
        }
    }

    /// Takes over what the file of an earlier run has, before there are samples of this one.
    pub(crate) fn load(&self, config: &Config, commands: &CommandTable) {
        let Some(path) = file_path(config) else { return };
        let now_s = (unix_us() / 1_000_000) as u32;
        match file::load(&path, commands_hash(commands), now_s) {
            Ok(Some(rings)) => *self.rings() = rings,
            Ok(None) => {}
            Err(error) => tracing::warn!("cannot read {}: {}", path.display(), describe(&error)),
        }
    }
}

impl Storage {
    fn add(&mut self, pieces: impl IntoIterator<Item = file::Piece>) {
        if self.file.is_some() {
            self.pending.extend(pieces);
        }
    }

    /// The file could not be written: it is begun anew, later.
    fn fail(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!("the flight recorder cannot write its file: {}", describe(error));
        }
        self.file = None;
        self.retry_at = Some(Instant::now() + RETRY_INTERVAL);
    }
}

/// Path of the file, while the server keeps a data set.
fn file_path(config: &Config) -> Option<PathBuf> {
    config.keeps_data().then(|| config.dir.join(file::FILE_NAME))
}

fn commands_hash(commands: &CommandTable) -> u64 {
    let names: Vec<String> = commands.entries().iter().map(|entry| entry.full_name()).collect();
    file::names_hash(names.iter().map(String::as_str))
}
