//! Loading the log at the start, and turning it on and off.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use dunlin_engine::{LogConsumer, write_command};
use dunlin_net::Now;
use dunlin_persist::{
    Disk, RingReader,
    aof::Writer,
    manifest::{LogId, Manifest, StreamId},
};

use super::{
    LogThread, State, backup,
    left::{LeftLog, left_log, warn_of_kept},
    recover,
};
use crate::{
    aof::{loading, rewrite, start},
    config::{Config, describe},
    durability::{log_options, read_manifest},
    loading::LoadError,
    persistence,
    persistence::stamp::{LogRelation, next_id},
};

impl LogThread {
    /// Loads the data set at start.
    pub(super) fn begin(&mut self) -> Result<(), LoadError> {
        let shared = Arc::clone(&self.shared);
        let config = shared.config.current();
        if config.appendonly {
            return self.load();
        }
        let (log, relation, place) = start::load_without_log(&shared, &config)?;
        if let Some(place) = place {
            shared.replication.restore(&shared.engine, &shared.durability, shared.loader(), place)?;
        }
        if shared.replication.needs_backlog(&config) {
            shared.replication.turn_backlog_on(&shared.engine);
        }
        let mut status = shared.durability.status();
        (status.log, status.relation) = (log, relation);
        Ok(())
    }

    /// Loads the log, or at a start the data set in any form, and goes on with the log. No client changes anything
    /// meanwhile.
    pub(super) fn load(&mut self) -> Result<(), LoadError> {
        let started = Instant::now();
        let shared = Arc::clone(&self.shared);
        let config = shared.config.current();
        self.lock = Some(shared.directory.hold(&config).map_err(|in_use| in_use.to_string())?);
        let mut loaded = match self.state {
            State::Off(_) => start::load_for_log(&shared, &config)?,
            State::On(_) | State::Turning => loading::load_again(&shared, &config)?,
        };
        let id = loaded.manifest.id.take().map_or_else(|| next_id(None), Ok)?;
        loaded.manifest.id = Some(id.clone());
        tracing::info!(
            "{} commands of the append-only log loaded in {:.3} seconds",
            loaded.commands,
            started.elapsed().as_secs_f64()
        );
        let mut ring = match std::mem::replace(&mut self.state, State::Turning) {
            State::Off(ring) => ring,
            State::On(writer) => writer.close(),
            State::Turning => unreachable!("turned by this thread alone"),
        };
        ring.restart(loaded.lsn);
        let options = log_options(&config);
        let directory = options.directory.clone();
        match Writer::open(Arc::new(Disk), options, loaded.manifest, loaded.resume, ring) {
            Ok(writer) => {
                self.settle_kept(&writer, loaded.single.as_deref());
                self.state = State::On(Box::new(writer));
            }
            Err((ring, error)) => {
                self.state = State::Off(ring);
                let (directory, reason) = (directory.display(), describe(&error));
                return Err(LoadError::Failed(format!("cannot write the log in {directory}: {reason}")));
            }
        }
        if let State::On(writer) = &mut self.state
            && loaded.resume.is_none()
            && writer.manifest().base.is_some()
        {
            let database = loaded.place.map_or(0, |place| place.database);
            writer.begin_at(loaded.lsn, database).map_err(|error| {
                LoadError::Failed(format!(
                    "cannot write the log in {}: {}",
                    directory.display(),
                    describe(&error)
                ))
            })?;
        }
        shared.durability.publish(loaded.lsn, loaded.lsn);
        if let Some(place) = loaded.place.take() {
            shared.replication.restore(&shared.engine, &shared.durability, shared.loader(), place)?;
        }
        if shared.replication.needs_backlog(&config) {
            shared.replication.turn_backlog_on(&shared.engine);
        }
        if loaded.database != 0 && !shared.replication.has_place() {
            // Our records begin in database 0.
            let mut record = Vec::new();
            write_command(&mut record, &[b"SELECT", b"0"]);
            shared.durability.ring.append(shared.loader(), &record);
        }
        if let State::On(writer) = &mut self.state
            && let Err(error) = writer.set_stream(shared.replication.stream_id())
        {
            return Err(LoadError::Failed(format!(
                "cannot write the manifest of the log: {}",
                describe(&error)
            )));
        }
        {
            let _closed = shared.engine.keyspace.close();
            shared.engine.log.turn(LogConsumer::File, true);
        }
        self.remove_history();
        self.note_size();
        let mut status = shared.durability.status();
        status.base_bytes = self.log_bytes();
        status.directory = Some(directory);
        (status.log, status.relation) = (Some(id), LogRelation::On);
        drop(status);
        if loaded.holds_snapshot {
            shared.persistence.know(&persistence::path(&config));
        }
        Ok(())
    }

    /// Says where the files are kept whose place a log has taken at start, and puts the file of a Redis before 7 there, too.
    pub(super) fn settle_kept(&self, writer: &Writer, single: Option<&Path>) {
        if let Some(single) = single
            && let Err(error) = start::keep_single(writer.options(), single, writer.kept_in())
        {
            tracing::warn!("cannot move {}, so it stays: {}", single.display(), describe(&error));
        }
        writer.kept_in().into_iter().for_each(warn_of_kept);
    }

    /// `DEBUG LOADAOF`.
    pub(super) fn reload(&mut self) -> Result<(), String> {
        if matches!(&self.state, State::On(writer) if writer.ring().is_shared()) {
            return Err("the append-only file cannot be loaded again while there are replicas".to_owned());
        }
        // Its files are about to change: there is no base yet, or there will be another.
        self.await_rewriting();
        if !matches!(self.state, State::On(_)) {
            return Err("the append-only file is off".to_owned());
        }
        if matches!(&self.state, State::On(writer) if writer.is_in_background()) {
            return Err("the append-only file has no base yet".to_owned());
        }
        let shared = Arc::clone(&self.shared);
        shared.loading.begin(Now::read());
        {
            // Clients that are served from here on get LOADING.
            let _closed = shared.engine.keyspace.close();
            shared.engine.log.turn(LogConsumer::File, false);
        }
        self.flush();
        shared.alone(|context| context.flush(None, false));
        shared.libraries.flush();
        let result = self.load();
        shared.loading.end();
        match result {
            Ok(()) => Ok(()),
            Err(LoadError::Failed(line)) => Err(line),
            Err(LoadError::Abandoned) => Err("the server is ending".to_owned()),
        }
    }

    /// `CONFIG SET appendonly yes`: the log begins with the data set as it is now.
    pub(super) fn turn_on(&mut self) -> Result<(), String> {
        if matches!(self.state, State::On(_)) {
            return Ok(());
        }
        // A rewrite that was begun while the log was off is not to become its base.
        self.settle_rewriting();
        let State::Off(mut ring) = std::mem::replace(&mut self.state, State::Turning) else {
            unreachable!("turned by this thread alone");
        };
        let shared = Arc::clone(&self.shared);
        let config = shared.config.current();
        ring.resume();
        let lock = match shared.directory.hold(&config) {
            Ok(lock) => lock,
            Err(in_use) => {
                ring.park();
                self.state = State::Off(ring);
                return Err(format!("Unable to turn on AOF: {in_use}"));
            }
        };
        shared.durability.lacks_base.store(true, SeqCst);
        let held = shared.durability.status().held_log().cloned();
        // Replicas may be sent records before the cut, which the base holds.
        let (mut cut, mut database, mut stream) = (0, 0, None);
        let begun = begin_log(&config, self.left.as_ref(), held, ring).and_then(|writer| {
            let (directory, id) = (writer.directory().to_owned(), writer.manifest().id.clone());
            let begun = rewrite::begin(&shared, directory, &config, |work| {
                shared.alone_unless_long(|context| {
                    work(context).inspect(|()| {
                        shared.engine.log.turn(LogConsumer::File, true);
                        cut = shared.durability.tail();
                        database = shared.replication.stream_database();
                        stream = shared.replication.stream_id();
                        let mut status = shared.durability.status();
                        (status.log, status.relation) = (id.clone(), LogRelation::On);
                    });
                });
            });
            match begun {
                Ok(()) => Ok(writer),
                Err(error) => Err((writer.close(), format!("no snapshot can be begun: {error}"))),
            }
        });
        let failed = match begun {
            Ok(mut writer) => {
                let begun = writer.begin_at(cut, database).and_then(|()| writer.set_stream(stream));
                self.cut_at = Some(writer.increment());
                self.lock = Some(lock);
                shared.durability.status().directory = Some(writer.directory().to_owned());
                self.state = State::On(Box::new(writer));
                // Recording has begun, so that it has to end.
                begun.or_else(|error| self.turn_off().and(Err(describe(&error))))
            }
            Err((mut ring, reason)) => {
                ring.park();
                self.state = State::Off(ring);
                Err(reason)
            }
        };
        if let Err(reason) = failed {
            tracing::warn!("cannot turn the append-only log on: {reason}");
            return Err(format!("Unable to turn on AOF: {reason}"));
        }
        self.note_size();
        Ok(())
    }

    /// Makes the manifest say whose stream the log is. Without a log, no replica asks for it.
    pub(super) fn set_stream(&mut self, stream: Option<StreamId>) -> Result<(), String> {
        if self.is_adopting {
            // The rewrite writes the manifest, too.
            self.await_rewriting();
        }
        match &mut self.state {
            State::On(writer) => writer.set_stream(stream).map_err(|error| describe(&error)),
            State::Off(_) | State::Turning => Ok(()),
        }
    }

    /// `CONFIG SET appendonly no`.
    pub(super) fn turn_off(&mut self) -> Result<(), String> {
        let shared = Arc::clone(&self.shared);
        shared.durability.backup().fail(backup::LOG_STOPPED);
        {
            let _closed = shared.engine.keyspace.close();
            shared.engine.log.turn(LogConsumer::File, false);
            shared.durability.status().relation = LogRelation::Off;
        }
        // A snapshot that was to be its base comes to nothing.
        self.cut_at = None;
        self.settle_rewriting();
        shared.durability.rewriting().scheduled = false;
        shared.durability.ring.lift_boundary();
        shared.durability.status().directory = None;
        self.flush();
        let state = std::mem::replace(&mut self.state, State::Turning);
        self.lock = None;
        let mut ring = match state {
            State::On(mut writer) => {
                let is_untouched = writer.is_untouched();
                let is_own = !writer.is_in_background() && is_untouched;
                if !is_untouched {
                    shared.durability.status().relation = LogRelation::Apart;
                }
                let (options, ring) = (writer.options().clone(), writer.close());
                if is_own {
                    self.left = left_log(&options);
                }
                ring
            }
            State::Off(ring) => ring,
            State::Turning => unreachable!("turned by this thread alone"),
        };
        let tail = ring.ring().tail();
        ring.park();
        self.state = State::Off(ring);
        recover(&shared.durability, &mut self.retry_at);
        // Replies that were withheld for the log's sake need not wait now, and clients that wait for the disk
        // learn of that.
        shared.durability.lacks_base.store(false, SeqCst);
        shared.durability.publish(tail, tail);
        Ok(())
    }
}

/// Begins a new log that has no base yet. The directory's former log is to become history, if this process has
/// `left` it, and to be kept otherwise; until then it stays as it is. On an error the ring comes back.
///
/// `held` is the log that the data set holds all of.
pub(super) fn begin_log(
    config: &Config,
    left: Option<&LeftLog>,
    held: Option<LogId>,
    ring: RingReader,
) -> Result<Writer, (RingReader, String)> {
    let options = log_options(config);
    let mut manifest = match read_manifest(&options) {
        Ok(manifest) => manifest.unwrap_or_default(),
        Err(reason) => return Err((ring, reason)),
    };
    let id = match next_id(held.filter(|held| is_of(&manifest, held)).as_ref()) {
        Ok(id) => id,
        Err(reason) => return Err((ring, reason)),
    };
    match left {
        Some(left) if left.is_in(&options, &manifest) => manifest.supersede(),
        _ => manifest.set_aside(),
    }
    manifest.id = Some(id);
    let directory = options.directory.clone();
    Writer::begin_in_background(Arc::new(Disk), options, manifest, ring)
        .map_err(|(ring, error)| (ring, format!("{}: {}", directory.display(), describe(&error))))
}

/// Whether a directory holds that log or an earlier generation of it, or none.
pub(super) fn is_of(manifest: &Manifest, log: &LogId) -> bool {
    manifest.files().next().is_none() || manifest.id.as_ref().is_some_and(|id| id.name == log.name)
}
