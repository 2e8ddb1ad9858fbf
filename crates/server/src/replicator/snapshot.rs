//! The way of a primary's snapshot into the data set.
//!
//! ```text
//! spooled    socket ─▶ file without a name ─▶ loader      the data set of before is served until all of it has come
//! directly   socket ────────────────────────▶ loader      it is loaded by the time that it has come
//! ```
//!
//! `repl-diskless-load` chooses. A link that is cut leaves a direct load without data: it begins anew.

use std::{
    fs::File,
    io::{self, Read, Seek, Write},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use dunlin_engine::LogConsumer;
use dunlin_net::Now;
use dunlin_replication::{Event, Framing, History, Id};

use super::link::{Link, READ_BYTES, TICK};
use crate::{
    config::ReplDisklessLoad,
    loading::{LoadError, Reporter},
    rdb::{Expired, LoadedSnapshot, load_snapshot},
    system::host::monotonic_ms,
};

/// A snapshot that comes: the place in the stream that it shows, and the way of its bytes.
pub(super) struct Incoming {
    id: Id,
    offset: u64,
    way: Way,
}

enum Way {
    /// Into a file without a name.
    Spooled(Spooled),
    /// To the loader.
    Direct(Arrived),
}

struct Spooled {
    file: File,
    bytes: u64,
    is_complete: bool,
}

/// The part of a snapshot that has come and that the loader has not taken.
#[derive(Default)]
struct Arrived {
    bytes: Vec<u8>,
    /// Bytes before it were taken.
    at: usize,
    /// Bytes of the snapshot in all, if that is known.
    total: u64,
    is_complete: bool,
}

impl Arrived {
    fn take(&mut self, buffer: &mut [u8]) -> usize {
        let taken = (self.bytes.len() - self.at).min(buffer.len());
        buffer[..taken].copy_from_slice(&self.bytes[self.at..self.at + taken]);
        self.at += taken;
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        }
        taken
    }
}

impl Link {
    pub(super) fn begin_snapshot(&mut self, id: Id, offset: u64, framing: Framing) {
        let config = self.shared.config.current();
        let is_direct = match config.repl_diskless_load {
            ReplDisklessLoad::Disabled => false,
            ReplDisklessLoad::OnEmptyDb | ReplDisklessLoad::Swapdb => self.has_no_data(),
            ReplDisklessLoad::FlushBeforeLoad => true,
        };
        let way = match is_direct {
            true => {
                let total = if let Framing::Size(bytes) = framing { bytes } else { 0 };
                Ok(Way::Direct(Arrived { total, ..Arrived::default() }))
            }
            false => spool_file(&config.dir)
                .map(|file| Way::Spooled(Spooled { file, bytes: 0, is_complete: false })),
        };
        let on_the_way = if is_direct { ", and is loaded on the way" } else { "" };
        tracing::info!("Full resynchronisation: a snapshot comes, of {id} at {offset}{on_the_way}");
        match way {
            Ok(way) => self.incoming = Some(Incoming { id, offset, way }),
            Err(error) => self.fail(&format!("there is no file for the snapshot: {error}")),
        }
    }

    fn has_no_data(&self) -> bool {
        self.shared.engine.keyspace.usage(None).keys == 0
            && self.shared.libraries.now().iter().next().is_none()
    }

    pub(super) fn take_snapshot(&mut self, parts: &[&[u8]]) {
        let Some(incoming) = &mut self.incoming else { return };
        match &mut incoming.way {
            Way::Direct(arrived) => parts.iter().for_each(|part| arrived.bytes.extend_from_slice(part)),
            Way::Spooled(Spooled { file, bytes, .. }) => {
                *bytes += parts.iter().map(|part| part.len() as u64).sum::<u64>();
                if let Err(error) = parts.iter().try_for_each(|part| file.write_all(part)) {
                    self.fail(&format!("the snapshot cannot be kept: {error}"));
                }
            }
        }
    }

    pub(super) fn end_snapshot(&mut self) {
        match self.incoming.as_mut().map(|incoming| &mut incoming.way) {
            Some(Way::Direct(arrived)) => arrived.is_complete = true,
            Some(Way::Spooled(spooled)) => spooled.is_complete = true,
            None => {}
        }
    }

    /// Whether the snapshot that comes is to be loaded now: it is complete, or is loaded on the way.
    pub(super) fn loads_now(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| match &incoming.way {
            Way::Direct(_) => true,
            Way::Spooled(spooled) => spooled.is_complete,
        })
    }

    /// Puts the snapshot in the place of the data set.
    pub(super) fn load(&mut self) {
        let Some(Incoming { id, offset, way }) = &mut self.incoming else { return };
        let (id, offset) = (*id, *offset);
        let (spooled, bytes) = match way {
            Way::Direct(arrived) => (None, arrived.total),
            Way::Spooled(Spooled { file, bytes, .. }) => (Some(file.try_clone()), *bytes),
        };
        let shared = Arc::clone(&self.shared);
        self.replace_data(id, offset, bytes, |link, reporter| {
            let failed = |error: io::Error| LoadError::Failed(error.to_string());
            let mut source = Arrival::new(link);
            if let Some(file) = spooled {
                let mut file = file.map_err(failed)?;
                file.rewind().map_err(failed)?;
                source.file = Some(file);
            }
            let now_ms = Now::read().unix_ms;
            let loaded = load_snapshot(&shared, &mut source, Expired::Kept, now_ms, reporter)?;
            // The file has ended; what is behind it says whether it is whole.
            source.drain().map_err(failed)?;
            Ok(loaded)
        });
        self.incoming = None;
    }

    /// Replaces the data set by what `load` loads, which is the state of a history at an offset.
    fn replace_data(
        &mut self,
        id: Id,
        offset: u64,
        bytes: u64,
        load: impl FnOnce(&mut Self, &mut Reporter<'_>) -> Result<LoadedSnapshot, LoadError>,
    ) {
        let shared = Arc::clone(&self.shared);
        let (replication, begun) = (&shared.replication, Instant::now());
        replication.feed.cut_all();
        let has_log = match self.empty() {
            Ok(has_log) => has_log,
            Err(reason) => return self.fail(&reason),
        };
        shared.loading.expect(bytes);
        self.publish();
        match load(self, &mut Reporter::new(&shared.loading)) {
            Ok(loaded) => {
                self.applier.begin(loaded.stream_database);
                replication.select(loaded.stream_database);
                replication.restart_stream(&shared.engine, History::new(id), offset);
                replication.end_copy(&shared.durability);
                shared.note_loaded(loaded.keys, loaded.expired);
                shared.loading.end();
                tracing::info!(
                    "The primary's data set is loaded: {} keys in {:.3} seconds",
                    loaded.keys,
                    begun.elapsed().as_secs_f64()
                );
            }
            Err(error) => {
                // Half of a data set is none.
                shared.alone(|context| context.flush(None, false));
                shared.libraries.flush();
                self.end_history();
                shared.loading.end();
                match error {
                    // The link connects anew, and begins anew.
                    _ if self.connection.is_none() => {}
                    LoadError::Failed(_) if replication.has_order() => self.disconnect("the role changes"),
                    LoadError::Failed(reason)
                        if !shared.loading.is_abandoned() && !replication.has_ended() =>
                    {
                        self.give_up(&format!("the snapshot cannot be loaded: {reason}"));
                    }
                    _ => self.disconnect("loading was given up"),
                }
            }
        }
        self.turn_log_on(has_log);
        // The data on disk is of the data set before.
        self.note_fsynced();
        let (actions, _) = self.step(Event::Loaded);
        self.act(actions, &[]);
    }

    /// Removes the data set, which another one is to replace, and begins to load. Returns whether there was a log: it
    /// is off from here on, since a log of the former data is of no use.
    pub(super) fn empty(&self) -> Result<bool, String> {
        let shared = &self.shared;
        let has_log = !shared.durability.is_off();
        let was_whole = shared.replication.begin_copy();
        let prepare = || {
            // A node of a cluster has promised to have what is on its disk.
            shared.cluster.ending.void(&shared.config.current().dir)?;
            if has_log { shared.durability.turn(false) } else { Ok(()) }
        };
        if let Err(reason) = prepare() {
            if was_whole {
                shared.replication.abandon_copy();
            }
            return Err(reason);
        }
        shared.loading.begin(Now::read());
        {
            let _closed = shared.engine.keyspace.close();
            shared.engine.log.turn(LogConsumer::Replicas, false);
        }
        shared.alone(|context| context.flush(None, false));
        shared.libraries.flush();
        shared.module_commands.begin_anew();
        shared.persistence.keep_module_aux(Vec::new());
        Ok(has_log)
    }

    /// Marks the data set as having no history: what others have of the one before is not here.
    fn end_history(&self) {
        let replication = &self.shared.replication;
        replication.end_stream_for_replicas(&self.shared.engine);
        if let Err(reason) = replication.change_id(&self.shared.durability) {
            tracing::error!("{reason}");
        }
    }

    /// Begins another log, if there was one.
    pub(super) fn turn_log_on(&self, had_log: bool) {
        if had_log
            && self.shared.config.current().appendonly
            && let Err(reason) = self.shared.durability.turn(true)
        {
            tracing::error!("the append-only file stays off: {reason}");
        }
    }
}

/// A snapshot that is loaded, while the stream behind it is kept and the primary is shown that the replica is alive.
struct Arrival<'a> {
    link: &'a mut Link,
    /// The file that keeps it, if it was kept.
    file: Option<File>,
    buffer: Vec<u8>,
    /// More may come at the link.
    is_open: bool,
    /// When the primary was last shown a sign of life, and INFO how far the link is.
    shown: Instant,
}

impl<'a> Arrival<'a> {
    fn new(link: &'a mut Link) -> Self {
        Self { link, file: None, buffer: vec![0; READ_BYTES], is_open: true, shown: Instant::now() }
    }

    /// Whether all of the snapshot is here. An error if it cannot be loaded any further.
    fn is_complete(&self) -> io::Result<bool> {
        let shared = &self.link.shared;
        match &self.link.incoming {
            _ if shared.replication.has_order() => Err(io::Error::other("the role changes")),
            _ if shared.replication.has_ended() || shared.loading.is_abandoned() => {
                Err(io::Error::other("the server ends"))
            }
            None => Err(io::Error::other("the link was lost")),
            Some(Incoming { way: Way::Direct(arrived), .. }) => Ok(arrived.is_complete),
            Some(_) => Ok(true),
        }
    }

    /// Takes what has come at the link, and waits up to `time` for it.
    fn advance(&mut self, time: Duration) -> io::Result<()> {
        if self.is_open {
            let is_readable = self.link.connection.as_ref().is_some_and(|connection| connection.readable);
            self.link.wait(if is_readable { Duration::ZERO } else { time })?;
            self.receive()?;
        }
        if self.shown.elapsed() >= TICK {
            self.shown = Instant::now();
            self.link.pass_time();
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        let Self { link, buffer, .. } = self;
        let Some(connection) = link.connection.as_mut().filter(|connection| connection.readable) else {
            return Ok(());
        };
        let end = match (&connection.stream).read(buffer) {
            Ok(0) => "it was closed".to_owned(),
            Ok(bytes) => {
                let received = &buffer[..bytes];
                let (actions, taken) = link.step(Event::Received(received));
                link.act(actions, received);
                // If there is no room, the rest waits at the primary. Nothing is after a snapshot that is not
                // complete.
                self.is_open = link.keep_stream(&received[taken..]);
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                connection.readable = false;
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => error.to_string(),
        };
        match self.is_complete()? {
            // The snapshot is loaded all the same, and the stream goes on elsewhere: the link sees its end again behind
            // it.
            true => self.is_open = false,
            false => self.link.lose(&end),
        }
        Ok(())
    }

    /// Waits for the end of the snapshot, whose file has ended.
    fn drain(&mut self) -> io::Result<()> {
        while !self.is_complete()? {
            self.advance(TICK)?;
            if let Some(Incoming { way: Way::Direct(arrived), .. }) = &mut self.link.incoming {
                arrived.bytes.clear();
                arrived.at = 0;
            }
        }
        Ok(())
    }
}

impl Read for Arrival<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let is_complete = self.is_complete()?;
            if let Some(file) = &mut self.file {
                let read = file.read(buffer)?;
                self.advance(Duration::ZERO)?;
                return Ok(read);
            }
            if let Some(Incoming { way: Way::Direct(arrived), .. }) = &mut self.link.incoming {
                let taken = arrived.take(buffer);
                if taken > 0 || is_complete {
                    return Ok(taken);
                }
            }
            self.advance(TICK)?;
        }
    }
}

/// A file in a folder that has no name, and goes away with its handle.
pub(super) fn spool_file(folder: &Path) -> io::Result<File> {
    let path = folder.join(format!("temp-{}.{}.rdb", monotonic_ms(), std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
