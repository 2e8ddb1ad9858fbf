//! Writing the log's bytes to its newest file.
//!
//! ```text
//!  ring     ───────────┬────────────────┬──────────────▶
//!                   synced           written       published
//!  file     ───────────┤  the system's  │
//!             durable  │  to lose       │
//! ```
//!
//! A failure leaves the file in doubt behind some point: behind `written` if a write failed, behind `synced` if a sync
//! did, since the system may forget bytes that it could not write, and then believe them clean. So bytes stay in the
//! ring until they are durable. The next attempt first cuts the file to that point, and writes the bytes behind it
//! again.
//!
//! If every batch is to be durable at once, the file has room ([`Writer::keep_room`]): a sync of bytes that were
//! written over others needs no write to the file system's journal.
//!
//! If a disk is slower than the log grows, the ring would fill up: [`Writer::trust_system`] gives up bytes that are
//! written though it is unknown whether they reach the disk. A sync that fails behind that leaves the log *torn*:
//! nothing of it counts as durable from there on, until a base has taken the place of that file.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::adoption::{Adoption, remove_history};
use super::check::{Check, Checksum};
use super::foreign_change::{Extent, KnownManifest, foreign_change, is_foreign_change};
use super::kept_files::KeptFiles;
use super::opening::opening;
use super::room;
use crate::manifest::{BaseFormat, Manifest, StreamId};
use crate::ring::RingReader;
use crate::storage::{File, Storage};

/// Bytes that are copied at once of a batch that does not stand in the ring as a whole.
const PIECE_BYTES: u64 = 1 << 20;

/// Batches from which on room is reserved for the next ones: the log grows fast.
const RESERVING_BYTES_MIN: u64 = 64 << 10;
/// Room that is reserved at once, and the part of the file that it is at most: more only if the batch at hand needs it.
const RESERVED_BYTES_MAX: u64 = 32 << 20;
const RESERVED_PART: u64 = 4;

/// Room that is made at once: a part of the file between these.
const ROOM_BYTES: (u64, u64) = (64 << 10, 1 << 20);
/// Bytes of a batch besides its records, at most: a time stamp, padding, a check.
const FRAME_BYTES_MAX: u64 = 32 + room::PADDING.len() as u64 + room::CHECK_BYTES_MAX;

/// Place and names of the log's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterOptions {
    /// The directory of the files (`appenddirname` in `dir`).
    pub directory: PathBuf,
    /// The beginning of their names (`appendfilename`).
    pub filename: String,
    /// Bytes of superseded files that are kept for replicas (`repl-backlog-disk-size`).
    pub retained_bytes_max: u64,
}

impl WriterOptions {
    /// The manifest's path.
    pub fn manifest_path(&self) -> PathBuf {
        self.directory.join(format!("{}.manifest", self.filename))
    }
}

/// The end of a log's newest file, as read, at which the log goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resume {
    /// Length of the file as it ended.
    pub bytes: u64,
    /// The bytes behind its last check, which get one.
    pub unproven: Option<(Checksum, u64)>,
}

/// A point of the log, and its place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Point {
    offset: u64,
    bytes: u64,
}

/// A sync of the newest file, for any thread.
#[derive(Debug)]
pub struct PendingSync {
    file: Box<dyn File>,
    /// The place in the file at which begins what is to become durable.
    from_bytes: u64,
    to: Point,
}

impl PendingSync {
    /// Makes the bytes durable that were written when it was begun. Takes as long as the disk does. Afterwards the
    /// system may drop it from memory.
    pub fn run(mut self) -> FinishedSync {
        let Self { from_bytes, to, .. } = self;
        let result = self.file.sync().map(|()| self.file.uncache(from_bytes, to.bytes - from_bytes));
        FinishedSync { result, to }
    }
}

/// The result of a sync, for [`Writer::end_sync`].
#[derive(Debug)]
#[must_use]
pub struct FinishedSync {
    result: io::Result<()>,
    to: Point,
}

/// A file of the log that another one has taken over from.
#[derive(Debug)]
pub struct Outgrown {
    file: Box<dyn File>,
    bytes: u64,
    /// End of the reserved room.
    end: u64,
}

impl Outgrown {
    /// Gives back the room behind its records. That takes its time if the disk discards it; if it fails, it goes with
    /// the file.
    pub fn end_reserving(mut self) {
        if self.end > self.bytes {
            let _ = self.file.truncate(self.bytes);
        }
    }
}

/// A place of the log that may have been lost though the ring has given it up.
#[derive(Debug, Clone, Copy)]
struct Tear {
    offset: u64,
    /// The number of the file that it is in.
    increment: u64,
}

/// The writing end of the log.
pub struct Writer {
    storage: Arc<dyn Storage>,
    options: WriterOptions,
    manifest: Manifest,
    /// The one on disk.
    known: KnownManifest,
    ring: RingReader,
    file: Box<dyn File>,
    extent: Extent,
    /// Another process has changed the files: nothing more is written.
    intruded: bool,
    written: Point,
    synced: Point,
    /// Bytes before it have been given up, be they durable or left to the system.
    kept: Point,
    torn: Option<Tear>,
    /// The file is in doubt behind `written`.
    in_doubt: bool,
    /// Bytes of the file that there is room for, as far as it was asked for.
    reserved_bytes: u64,
    /// Whether the file is to have room.
    keeps_room: bool,
    /// End of its room, 0 if it has none.
    room_end: u64,
    /// The place for which room was asked last.
    room_asked: u64,
    /// Bytes of all files but the newest.
    older_bytes: u64,
    /// The second of the last time stamp.
    stamped_s: u64,
    /// The manifest on disk is that of another log: this one has no base yet.
    in_background: bool,
    /// The manifest on disk still says that the log is of another stream: it could not be replaced.
    stream_is_pending: bool,
    /// Directory with the files of a log whose place this one took when it was opened.
    kept_in: Option<PathBuf>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("Writer");
        shown.field("options", &self.options).field("written", &self.written).field("synced", &self.synced);
        shown.finish_non_exhaustive()
    }
}

impl Writer {
    /// Goes on with the newest file of a manifest, whose log ends where the ring begins; begins one where there is
    /// none. If `resume` has the end of the file as it was read, no process may have written to it since. Files of
    /// another log that the manifest names are moved to where they are kept, once it is in place. The ring comes back
    /// with an error.
    pub fn open(
        storage: Arc<dyn Storage>,
        options: WriterOptions,
        manifest: Manifest,
        resume: Option<Resume>,
        ring: RingReader,
    ) -> Result<Self, (RingReader, io::Error)> {
        Self::open_or_begin(storage, options, manifest, resume, ring, false)
    }

    /// Begins a log whose base is yet to come: until [`Self::adopt_base`] the manifest on disk stays as it
    /// is. `manifest` names the files that the log will replace, as history or to be kept. The ring comes back with an
    /// error.
    pub fn begin_in_background(
        storage: Arc<dyn Storage>,
        options: WriterOptions,
        manifest: Manifest,
        ring: RingReader,
    ) -> Result<Self, (RingReader, io::Error)> {
        Self::open_or_begin(storage, options, manifest, None, ring, true)
    }

    fn open_or_begin(
        storage: Arc<dyn Storage>,
        options: WriterOptions,
        mut manifest: Manifest,
        resume: Option<Resume>,
        ring: RingReader,
        in_background: bool,
    ) -> Result<Self, (RingReader, io::Error)> {
        let offset = ring.ring().tail();
        let mut kept_in = None;
        let mut open = || {
            storage.create_directory(&options.directory)?;
            let is_new = manifest.increments.is_empty();
            if is_new {
                manifest.push_increment(&options.filename);
            }
            let newest = manifest.increments.last().expect("there is one");
            let mut file = storage.append(&options.directory.join(&newest.name))?;
            match resume {
                // A crash may have left one behind that no manifest names.
                _ if is_new => file.truncate(0)?,
                Some(Resume { bytes, .. }) if file.length()? != bytes => {
                    return Err(foreign_change(&newest.name));
                }
                _ => {}
            }
            let mut known = KnownManifest::read(&*storage, &options)?;
            let is_named = || known.bytes().is_some_and(|bytes| names(bytes, &manifest));
            if !in_background && (is_new || !is_named()) {
                let kept = match manifest.kept.is_empty() {
                    true => None,
                    false => Some(KeptFiles::begin(&*storage, &options, known.bytes())?),
                };
                known.replace(&*storage, &options, &manifest)?;
                if let Some(kept) = kept {
                    kept.take(&*storage, &options, &std::mem::take(&mut manifest.kept))?;
                    kept_in = Some(kept.directory().to_owned());
                }
            }
            if let Some((sum, length)) = resume.and_then(|resume| resume.unproven) {
                let line = Check { lsn: offset, length }.line(sum);
                write_all(&mut *file, &mut [IoSlice::new(&line)])?;
            }
            let bytes = file.length()?;
            // A former writer may have reserved more.
            file.truncate(bytes)?;
            file.sync()?;
            storage.sync_directory(&options.directory)?;
            let older = manifest.base.iter().chain(manifest.increments.iter().rev().skip(1));
            let older = older.map(|file| storage.len(&options.directory.join(&file.name)));
            let older_bytes = older.sum::<io::Result<u64>>()?;
            Ok((file, known, bytes, older_bytes))
        };
        match open() {
            Ok((file, known, bytes, older_bytes)) => {
                let start = Point { offset, bytes };
                let (written, synced, kept) = (start, start, start);
                Ok(Self {
                    storage,
                    options,
                    manifest,
                    known,
                    ring,
                    file,
                    extent: Extent::exactly(bytes),
                    intruded: false,
                    written,
                    synced,
                    kept,
                    torn: None,
                    in_doubt: false,
                    reserved_bytes: 0,
                    keeps_room: false,
                    room_end: 0,
                    room_asked: 0,
                    older_bytes,
                    stamped_s: 0,
                    in_background,
                    stream_is_pending: false,
                    kept_in,
                })
            }
            Err(error) => Err((ring, error)),
        }
    }

    /// Begins behind the records before the base's cut at that offset, with that database selected, durably. Nothing
    /// has been written yet. After an error the log cannot be gone on with.
    pub fn begin_at(&mut self, offset: u64, database: usize) -> io::Result<()> {
        debug_assert_eq!(self.written.bytes, 0, "nothing has been written");
        let opening = opening(offset, database);
        self.in_doubt = true;
        self.extent.grow(opening.len() as u64);
        write_opening(&mut *self.file, &opening)?;
        self.in_doubt = false;
        let begun = Point { offset, bytes: opening.len() as u64 };
        (self.written, self.synced, self.kept) = (begun, begun, begun);
        self.settle_extent();
        // Asks how far all is published, which the cut has been behind the closed gate.
        debug_assert!(offset <= self.ring.published());
        self.ring.give_up(offset);
        Ok(())
    }

    /// Ends the writing; the ring can be given to another writer.
    pub fn close(mut self) -> RingReader {
        // A part in doubt, or one that cannot be given back, is left to the next writer. Room counts as reserved.
        if !self.in_doubt && self.expect_untouched().is_ok() {
            let end = self.reserved_bytes.max(self.room_end);
            Outgrown { file: self.file, bytes: self.written.bytes, end }.end_reserving();
        }
        self.ring
    }

    /// The ring.
    pub fn ring(&self) -> &RingReader {
        &self.ring
    }

    /// Removes the files that a newer base has made superfluous.
    pub fn remove_history(&mut self) -> io::Result<()> {
        remove_history(&*self.storage, &self.options, &mut self.manifest, &mut self.known).map(drop)
    }

    /// The files.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Bytes of all files.
    pub fn log_bytes(&self) -> u64 {
        self.older_bytes + self.written.bytes
    }

    /// The offset up to which the log has been given to the system.
    pub fn written(&self) -> u64 {
        self.written.offset
    }

    /// The offset up to which the log is durable.
    pub fn synced(&self) -> u64 {
        self.torn.map_or(self.synced.offset, |tear| tear.offset)
    }

    /// Bytes of records that were written since the last sync, or since the beginning of the file.
    pub fn unsynced_bytes(&self) -> u64 {
        self.written.offset - self.synced.offset
    }

    /// Whether a part of the log may have been lost that cannot be written again: it takes a new base.
    pub fn is_torn(&self) -> bool {
        self.torn.is_some()
    }

    /// Whether there is something to write.
    pub fn has_more(&mut self) -> bool {
        self.ring.published() > self.written.offset
    }

    /// Writes the workers' new records, as one batch; returns whether there were any. `stamp_s` is the time in
    /// seconds since 1970 if batches are to carry it.
    ///
    /// A batch ends where a record does: the end of the published part is one, and no other is known here.
    pub fn write(&mut self, stamp_s: Option<u64>) -> io::Result<bool> {
        self.settle_stream()?;
        self.settle_doubt()?;
        let (from, to) = (self.written.offset, self.ring.published());
        if to <= from {
            return Ok(false);
        }
        self.expect_untouched()?;
        self.make_room(to - from)?;
        self.reserve(to - from);
        let stamp = stamp_s.filter(|now_s| *now_s != self.stamped_s).map(|now_s| format!("#TS:{now_s}\r\n"));
        let stamp = stamp.unwrap_or_default().into_bytes();
        let mut sum = Checksum::default();
        sum.add(&stamp);
        let length = stamp.len() as u64 + (to - from);
        let (check, padding) = self.frame(to, length);
        self.in_doubt = true;
        self.extent.grow(self.written.bytes + check.length + room::CHECK_BYTES_MAX);
        let line = match self.ring.slices(from, to) {
            Some(slices) => {
                slices.iter().for_each(|part| sum.add(part));
                sum.add(padding);
                let line = check.line(sum);
                let frame = [&stamp[..]].into_iter().chain(slices).chain([padding, &line[..]]);
                write_all(&mut *self.file, &mut frame.map(IoSlice::new).collect::<Vec<_>>())?;
                line
            }
            None => {
                write_all(&mut *self.file, &mut [IoSlice::new(&stamp)])?;
                self.write_by_pieces(from, to, &mut sum)?;
                sum.add(padding);
                let line = check.line(sum);
                write_all(&mut *self.file, &mut [padding, &line].map(IoSlice::new))?;
                line
            }
        };
        self.in_doubt = false;
        self.written = Point { offset: to, bytes: self.written.bytes + check.length + line.len() as u64 };
        self.settle_extent();
        self.stamped_s = stamp_s.unwrap_or(self.stamped_s);
        Ok(true)
    }

    /// Returns the check of a batch of `length` bytes before padding, and its padding.
    fn frame(&self, lsn: u64, length: u64) -> (Check, &'static [u8]) {
        let check = Check { lsn, length };
        // A check has the same length for every sum.
        let end = || self.written.bytes + length + check.line(Checksum::default()).len() as u64;
        match self.room_end > 0 && room::cuts_a_line(end()) {
            true => (Check { lsn, length: length + room::PADDING.len() as u64 }, room::PADDING),
            false => (check, b""),
        }
    }

    /// Writes records that do not stand in the ring as a whole, copied piece by piece: a worker that puts a record
    /// aside does not wait for the disk.
    fn write_by_pieces(&mut self, from: u64, to: u64, sum: &mut Checksum) -> io::Result<()> {
        let mut at = from;
        let mut piece = Vec::new();
        while at < to {
            let end = to.min(at + PIECE_BYTES);
            piece.clear();
            self.ring.read(at, end, |part| piece.extend_from_slice(part));
            sum.add(&piece);
            write_all(&mut *self.file, &mut [IoSlice::new(&piece)])?;
            at = end;
        }
        Ok(())
    }

    /// Reserves room if a log that grows by batches of `batch_bytes` is about to need it.
    fn reserve(&mut self, batch_bytes: u64) {
        let end = self.written.bytes + batch_bytes + batch_bytes.min(RESERVED_BYTES_MAX);
        if batch_bytes < RESERVING_BYTES_MIN || end <= self.reserved_bytes {
            return;
        }
        let from = self.written.bytes.max(self.reserved_bytes);
        let bytes = (self.written.bytes / RESERVED_PART).min(RESERVED_BYTES_MAX).max(end - from);
        self.file.reserve(from, bytes);
        // A reservation that has failed is not tried again at each batch.
        self.reserved_bytes = from + bytes;
    }

    /// Whether the file is to end with room from now on, for batches that are made durable one by one.
    pub fn keep_room(&mut self, keeps: bool) -> io::Result<()> {
        self.keeps_room = keeps;
        if keeps { Ok(()) } else { self.do_without_room() }
    }

    /// Makes sure that a batch of `batch_bytes` finds room, and that room is left behind it; or that there is none.
    fn make_room(&mut self, batch_bytes: u64) -> io::Result<()> {
        // In front of room, a power cut tears one batch at most: bytes before must be durable.
        let is_durable = self.synced == self.written;
        if !self.keeps_room || !is_durable || batch_bytes > room::BATCH_BYTES_MAX - FRAME_BYTES_MAX {
            return self.do_without_room();
        }
        let needed = self.written.bytes + batch_bytes + FRAME_BYTES_MAX + room::BYTES_MIN;
        if needed <= self.room_end {
            return Ok(());
        }
        if needed <= self.room_asked {
            // The system has refused it: go on without room.
            return self.end_room();
        }
        let from = self.room_end.max(self.written.bytes);
        let more = (self.written.bytes / RESERVED_PART).clamp(ROOM_BYTES.0, ROOM_BYTES.1);
        self.room_end = (needed + more).next_multiple_of(room::LINE_BYTES);
        self.room_asked = self.room_end;
        self.extent.grow(self.room_end);
        match self.file.write_ahead(from, &room::bytes(from, self.room_end)) {
            Ok(()) => {
                self.settle_extent();
                Ok(())
            }
            Err(_) => self.end_room(),
        }
    }

    /// Cuts the room off, until it is asked for again.
    fn do_without_room(&mut self) -> io::Result<()> {
        self.room_asked = 0;
        self.end_room()
    }

    /// Cuts the room off. The next bytes must not be mixed up with it.
    fn end_room(&mut self) -> io::Result<()> {
        if self.room_end > self.written.bytes {
            self.expect_untouched()?;
            self.file.truncate(self.written.bytes)?;
            self.room_end = 0;
            self.settle_extent();
        }
        self.room_end = 0;
        Ok(())
    }

    /// All that was done to the file has lasted.
    fn settle_extent(&mut self) {
        self.extent = Extent::exactly(self.written.bytes.max(self.room_end));
    }

    /// Makes all written bytes durable. No other sync is under way.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.synced == self.written {
            return Ok(());
        }
        let result = self.file.sync();
        self.end_sync(FinishedSync { result, to: self.written })
    }

    /// Begins a sync of the written bytes, to be run on another thread while this one goes on; `None` if
    /// nothing is to be made durable. At most one sync is under way, and none when the file is to change.
    pub fn begin_sync(&self) -> io::Result<Option<PendingSync>> {
        if self.synced == self.written {
            return Ok(None);
        }
        Ok(Some(PendingSync { file: self.file.share()?, from_bytes: self.synced.bytes, to: self.written }))
    }

    /// Takes note of the result of a sync.
    pub fn end_sync(&mut self, sync: FinishedSync) -> io::Result<()> {
        if let Err(error) = sync.result.and_then(|()| self.expect_untouched()) {
            if self.kept.offset > self.synced.offset && self.torn.is_none() {
                self.torn = Some(Tear { offset: self.synced.offset, increment: self.increment() });
            }
            self.written = self.kept;
            self.in_doubt = true;
            self.extent.doubt();
            return Err(error);
        }
        self.synced = sync.to;
        if self.kept.offset < sync.to.offset {
            self.give_up(sync.to);
        }
        Ok(())
    }

    fn give_up(&mut self, to: Point) {
        self.kept = to;
        self.ring.give_up(to.offset);
    }

    /// Leaves it to the system when the written bytes become durable.
    pub fn trust_system(&mut self) -> io::Result<()> {
        if self.kept != self.written {
            self.expect_untouched()?;
            self.give_up(self.written);
        }
        Ok(())
    }

    /// Cuts off the bytes that a failed attempt has left behind.
    fn settle_doubt(&mut self) -> io::Result<()> {
        if self.in_doubt {
            self.expect_untouched()?;
            self.file.truncate(self.written.bytes)?;
            self.in_doubt = false;
            (self.reserved_bytes, self.room_end, self.room_asked) = (0, 0, 0);
            self.settle_extent();
        }
        Ok(())
    }

    /// Looks whether the newest file is the one that this writer has left.
    fn expect_untouched(&mut self) -> io::Result<()> {
        let length = self.file.named_length()?.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "the append-only file has been moved away or removed")
        })?;
        self.intruded |= !self.extent.allows(length);
        if self.intruded {
            return Err(foreign_change(self.manifest.increments.last().map_or("it", |file| &file.name)));
        }
        Ok(())
    }

    /// Whether all that the files hold is this writer's.
    pub fn is_untouched(&mut self) -> bool {
        self.expect_untouched().is_ok() && self.known.expect(&*self.storage, &self.options).is_ok()
    }

    /// Makes the manifest say whose stream the log is, durably. No base is being put in place meanwhile. After a
    /// failure nothing more is written before it has succeeded: records of one stream never stand in a log that is said
    /// to be another's.
    pub fn set_stream(&mut self, stream: Option<StreamId>) -> io::Result<()> {
        if self.manifest.stream != stream {
            self.manifest.stream = stream;
            // That of a log without a base comes into place with its base.
            self.stream_is_pending = !self.in_background;
        }
        self.settle_stream()
    }

    /// Tries again to make the manifest say whose stream the log is, if that has failed.
    fn settle_stream(&mut self) -> io::Result<()> {
        if self.stream_is_pending {
            let replaced = self.known.replace(&*self.storage, &self.options, &self.manifest);
            self.intruded |= replaced.as_ref().is_err_and(is_foreign_change);
            replaced?;
            self.stream_is_pending = false;
        }
        Ok(())
    }

    /// Whether the log has no base yet, see [`Self::begin_in_background`].
    pub fn is_in_background(&self) -> bool {
        self.in_background
    }

    /// The number of the file that grows.
    pub fn increment(&self) -> u64 {
        self.manifest.increments.last().map_or(0, |file| file.sequence)
    }

    /// Changes how many bytes of superseded files are kept for replicas, from the next base on.
    pub fn retain(&mut self, bytes_max: u64) {
        self.options.retained_bytes_max = bytes_max;
    }

    /// Begins to put a new base in the place of the old one and of all incremental files before the one numbered
    /// `since`. Until [`Self::end_adopting`] the files stay as they are; records are written as ever meanwhile.
    pub fn begin_adopting(&mut self, since: u64, format: BaseFormat) -> io::Result<Adoption> {
        // From here on the manifest is the adoption's.
        self.settle_stream()?;
        let (storage, options) = (Arc::clone(&self.storage), self.options.clone());
        let mut manifest = self.manifest.clone();
        let base = manifest.next_base(&options.filename, format);
        manifest.replace_base(base.clone(), since);
        let known = self.known.clone();
        Ok(Adoption { storage, options, manifest, known, base, since, older_bytes: 0, kept: None })
    }

    /// Takes note of a base that is in place.
    pub fn end_adopting(&mut self, adoption: Adoption) {
        self.older_bytes = adoption.older_bytes;
        self.manifest = adoption.manifest;
        self.manifest.kept.clear();
        self.known = adoption.known;
        self.in_background = false;
        self.torn = self.torn.filter(|tear| tear.increment >= adoption.since);
    }

    /// Begins the next incremental file, with that database selected. The old one, which is answered, is made durable
    /// first; no other sync is under way.
    pub fn rotate(&mut self, database: usize) -> io::Result<Outgrown> {
        while self.write(None)? {}
        self.do_without_room()?;
        self.sync()?;
        let mut manifest = self.manifest.clone();
        let name = manifest.push_increment(&self.options.filename).name.clone();
        let path = self.options.directory.join(&name);
        let mut file = self.storage.append(&path)?;
        // As in `open`.
        file.truncate(0)?;
        let opening = opening(self.written.offset, database);
        write_opening(&mut *file, &opening)?;
        // After a failure the file stays: the manifest may be in place nonetheless. A file that no manifest
        // names does no harm, and is used again.
        if !self.in_background {
            let replaced = self.known.replace(&*self.storage, &self.options, &manifest);
            self.intruded |= replaced.as_ref().is_err_and(is_foreign_change);
            replaced?;
        }
        let file = std::mem::replace(&mut self.file, file);
        let end = std::mem::take(&mut self.reserved_bytes);
        let outgrown = Outgrown { file, bytes: self.written.bytes, end };
        self.manifest = manifest;
        self.older_bytes += self.written.bytes;
        self.written.bytes = opening.len() as u64;
        self.synced = self.written;
        self.kept = self.written;
        self.settle_extent();
        Ok(outgrown)
    }

    /// Directory with the files of a log whose place this one took when it was opened.
    pub fn kept_in(&self) -> Option<&Path> {
        self.kept_in.as_deref()
    }

    /// Place and names of its files.
    pub fn options(&self) -> &WriterOptions {
        &self.options
    }

    /// The directory of the files.
    pub fn directory(&self) -> &Path {
        &self.options.directory
    }
}

/// Whether a manifest on disk names the same log.
fn names(bytes: &[u8], manifest: &Manifest) -> bool {
    Manifest::parse(bytes).is_ok_and(|found| found.id == manifest.id)
}

/// Writes the opening of an empty file, durably.
fn write_opening(file: &mut dyn File, opening: &[u8]) -> io::Result<()> {
    write_all(file, &mut [IoSlice::new(opening)])?;
    file.sync()
}

fn write_all(file: &mut dyn File, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
    // Removes empty pieces, be they all.
    IoSlice::advance_slices(&mut pieces, 0);
    while !pieces.is_empty() {
        match file.write(pieces) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut pieces, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests;
