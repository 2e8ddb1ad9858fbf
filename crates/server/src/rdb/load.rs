//! Loading an RDB file into the keyspace: one thread reads and decodes, others store.
//!
//! ```text
//! file ─▶ reader (the calling thread) ─ batches of keys ─▶ storer 1 … storer n     one a core besides the reader
//!               ▲                       n short queues          │
//!               └────────────── buffers, to be used again ◀─────┘
//! ```
//!
//! Storing is mostly waiting for memory, so a batch is fetched ahead of being stored. Keys of a file are
//! distinct: the order in which batches are stored makes no difference.

use std::{
    fs::File,
    io,
    sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    time::Instant,
};

use dunlin_engine::{
    keyspace::{Key, Keyspace},
    rdb::Value,
    value::Layout,
};
use dunlin_net::Now;
use dunlin_persist::rdb::{Item, Reader};
use dunlin_replication::{History, Id, StreamPosition};

use super::{foreign::ForeignValues, tell};
use crate::{
    config::{describe, policy},
    loading::{LoadError, Reporter, helpers},
    persistence,
    shared::Shared,
};

/// Keys that are handed over together.
const BATCH_KEYS: usize = 256;
/// Batches on their way to one storer: that many are in memory twice.
const QUEUED_BATCHES_MAX: usize = 4;

/// The treatment of keys whose time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expired {
    /// Expired keys are loaded: a log that follows may have more to say of them.
    Kept,
    /// Expired keys are left out, unless the file shows a place in a stream of replication: others hold them too, and
    /// remove them when a DEL comes in the stream. A primary records it after the load, as for keys that expire then.
    Dropped,
}

/// Counts of a file's contents.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct LoadedSnapshot {
    /// Keys that were loaded.
    pub(crate) keys: u64,
    /// Keys that had expired and were left out.
    pub(crate) expired: u64,
    /// Collections without elements, which are not keys.
    pub(crate) empty: u64,
    /// Length of the file.
    pub(crate) bytes: u64,
    /// The database that the stream behind it has selected.
    pub(crate) stream_database: usize,
    /// The history of replication that it shows, and how much of its stream.
    pub(crate) stream: (Option<Id>, Option<u64>),
}

impl LoadedSnapshot {
    /// The place in a stream that it shows, if it says so.
    pub(crate) fn place(&self) -> Option<StreamPosition> {
        let (Some(id), Some(offset)) = self.stream else { return None };
        Some(StreamPosition { history: History::new(id), offset, database: self.stream_database })
    }
}

/// A key that was read.
struct Loaded {
    database: usize,
    key: Vec<u8>,
    value: Value,
    expiry_ms: Option<u64>,
    idle_seconds: u64,
}

/// Buffers that keys and strings were read into, on the way back to the reader.
type Buffers = Vec<Vec<u8>>;

/// The reader's ends of the queues between it and the storers.
struct Storers {
    queues: Vec<SyncSender<Vec<Loaded>>>,
    given_back: Receiver<Buffers>,
}

/// Loads the snapshot that the configuration names, if there is one.
pub(crate) fn load_dump(shared: &Shared) -> Result<LoadedSnapshot, LoadError> {
    let path = persistence::path(&shared.config.current());
    let begun = Instant::now();
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LoadedSnapshot::default()),
        Err(error) => {
            return Err(LoadError::Failed(format!("cannot read {}: {}", path.display(), describe(&error))));
        }
    };
    shared.loading.expect(file.metadata().map_or(0, |data| data.len()));
    let now_ms = Now::read().unix_ms;
    let mut reporter = Reporter::new(&shared.loading);
    let loaded = load(shared, &file, Expired::Dropped, now_ms, &mut reporter);
    let loaded = loaded.map_err(|error| error.of_file(&path))?;
    shared.note_loaded(loaded.keys, loaded.expired);
    shared.persistence.know(&path);
    tracing::info!(
        "DB loaded from disk: {:.3} seconds, keys loaded: {}, keys expired: {}, empty keys skipped: {}",
        begun.elapsed().as_secs_f64(),
        loaded.keys,
        loaded.expired,
        loaded.empty,
    );
    Ok(loaded)
}

/// Loads a file, whose libraries take the place of those that there are. `now_ms` is unix time. No client changes
/// the data set meanwhile. The error is one line, without the file's name.
pub(crate) fn load(
    shared: &Shared,
    file: impl io::Read,
    expired: Expired,
    now_ms: u64,
    reporter: &mut Reporter<'_>,
) -> Result<LoadedSnapshot, LoadError> {
    std::thread::scope(|scope| {
        let (give_back, given_back) = channel();
        let storers: Vec<_> = (0..helpers(shared.workers))
            .map(|storer| {
                let (sender, batches) = sync_channel(QUEUED_BATCHES_MAX);
                let participant = shared.helper(storer);
                let give_back = give_back.clone();
                (sender, scope.spawn(move || store(shared, participant, batches, give_back, now_ms)))
            })
            .collect();
        let (queues, threads): (Vec<_>, Vec<_>) = storers.into_iter().unzip();
        let read = read(shared, file, expired, now_ms, reporter, Storers { queues, given_back });
        for thread in threads {
            thread.join().map_err(|_| LoadError::Failed("a thread that stores keys failed".to_owned()))??;
        }
        read
    })
}

/// Reads the file and hands its keys to the storers in turn.
fn read(
    shared: &Shared,
    file: impl io::Read,
    expired: Expired,
    now_ms: u64,
    reporter: &mut Reporter<'_>,
    Storers { queues, given_back }: Storers,
) -> Result<LoadedSnapshot, LoadError> {
    let config = shared.config.current();
    let options = super::read_options(&config);
    let keyspace = &shared.engine.keyspace;
    let limits = policy(&config).collection_limits;
    let layout = Layout { limits: &limits, resources: keyspace.resources() };
    let mut reader = Reader::open(file, options).map_err(|error| error.to_string())?;
    let (mut found, mut libraries) = (LoadedSnapshot::default(), Vec::new());
    let mut foreign = ForeignValues::new(config.module_data);
    let (mut batch, mut turns) = (Vec::with_capacity(BATCH_KEYS), (0..queues.len()).cycle());
    let mut hand_over = |batch: &mut Vec<Loaded>| {
        let batch = std::mem::replace(batch, Vec::with_capacity(BATCH_KEYS));
        let storer = turns.next().map(|turn| &queues[turn]);
        // A storer that has ended has an error, which the caller gets.
        storer.is_some_and(|storer| storer.send(batch).is_ok())
    };
    let is_past = |at: i64| u64::try_from(at).is_ok_and(|at| at <= now_ms) || at < 0;
    while let Some(item) = reader.next(layout).map_err(|error| error.to_string())? {
        match item {
            Item::Aux { name, value } => {
                match &name[..] {
                    b"repl-stream-db" => {
                        let database = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
                        found.stream_database = database.unwrap_or(0);
                    }
                    b"repl-id" => found.stream.0 = Id::parse(&value),
                    b"repl-offset" => {
                        found.stream.1 = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
                    }
                    _ => {}
                }
                tell(&name, &value, now_ms);
            }
            Item::Function(code) => libraries.push(code),
            Item::ModuleAux(module) => {
                tracing::warn!("The file holds data of the module {module}, which are passed over");
            }
            Item::Key { value: None, .. } => found.empty += 1,
            // Fields come before the keys.
            Item::Key { expiry_ms: Some(at), .. }
                if expired == Expired::Dropped && found.place().is_none() && is_past(at) =>
            {
                found.expired += 1;
            }
            Item::Key { database, key, value: Some(value), expiry_ms, idle_seconds } => {
                let database = usize::try_from(database).ok();
                let database = database.filter(|database| *database < keyspace.databases()).ok_or_else(|| {
                    format!(
                        "at byte {}: key \"{}\" is in a database that does not exist: raise databases above {}",
                        reader.offset(),
                        key.escape_ascii(),
                        keyspace.databases()
                    )
                })?;
                let admitted = foreign.admit(&value).map_err(|why| {
                    format!("at byte {}: key \"{}\" {why}", reader.offset(), key.escape_ascii())
                })?;
                if !admitted {
                    continue;
                }
                let expiry_ms = expiry_ms.map(|at| u64::try_from(at).unwrap_or(0));
                let idle_seconds = idle_seconds.unwrap_or(0);
                batch.push(Loaded { database, key, value, expiry_ms, idle_seconds });
                found.keys += 1;
                if batch.len() == BATCH_KEYS {
                    if !(hand_over(&mut batch) && reporter.report(reader.offset())) {
                        return Err(LoadError::Abandoned);
                    }
                    given_back.try_iter().for_each(|buffers| reader.recycle(buffers));
                }
            }
        }
    }
    hand_over(&mut batch);
    foreign.report();
    shared.libraries.replace_all(&shared.commands, &libraries)?;
    found.bytes = reader.offset();
    Ok(found)
}

/// Stores the batches that come.
fn store(
    shared: &Shared,
    participant: usize,
    batches: Receiver<Vec<Loaded>>,
    give_back: Sender<Buffers>,
    now_ms: u64,
) -> Result<(), LoadError> {
    let keyspace: &Keyspace = &shared.engine.keyspace;
    for batch in batches {
        let inside = keyspace.enter(participant);
        let mut keys: Vec<Key<'_>> = Vec::with_capacity(BATCH_KEYS);
        for same in batch.chunk_by(|a, b| a.database == b.database) {
            keys.clear();
            keys.extend(same.iter().map(|loaded| keyspace.key(&loaded.key)));
            keyspace.prefetch(&inside, same[0].database, &keys);
        }
        drop(keys);
        let mut buffers = Vec::with_capacity(2 * batch.len());
        for Loaded { database, key, value, expiry_ms, idle_seconds } in batch {
            let stored = shared.engine.load(database, &key, value, expiry_ms, idle_seconds, now_ms);
            let buffer = stored.ok_or_else(|| format!("key \"{}\" is there twice", key.escape_ascii()))?;
            buffers.extend([key, buffer]);
        }
        // The reader may have come to its end.
        let _ = give_back.send(buffers);
    }
    Ok(())
}
