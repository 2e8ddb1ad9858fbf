//! Files, as durability needs them: a trait, so that tests can have a disk that fails.

use std::fmt::Debug;
use std::fs;
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::removed::Removed;

#[cfg(target_os = "linux")]
use rustix::{
    fs::{Advice, FallocateFlags, fadvise, fallocate},
    io::Errno,
};

/// Longest file that [`Storage::read`] reads.
const READ_BYTES_MAX: u64 = crate::manifest::MANIFEST_BYTES_MAX;

/// A place for files.
pub trait Storage: Debug + Send + Sync {
    /// Opens a file to append to, and makes it if it is missing.
    fn append(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Puts a whole file in the place of the one of that name, durably: after any failure there is the old file or the
    /// new one.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Makes the present names in a directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Makes a directory unless it is there.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Bytes of a file.
    fn len(&self, path: &Path) -> io::Result<u64>;

    /// All of a small file; `None` if there is none.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;

    /// Gives a file that is no longer written a further name, or makes a durable copy of it if there are no
    /// further names.
    fn copy(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file another name, unless that is taken.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file, which takes its room for as long as the result exists.
    fn remove(&self, path: &Path) -> io::Result<Removed>;
}

/// A file that is appended to.
pub trait File: Debug + Send {
    /// Appends as many bytes as there is room for; returns how many.
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Makes all written bytes durable.
    fn sync(&mut self) -> io::Result<()>;

    /// Shares the open file with another thread, which may make it durable while this one goes on writing.
    fn share(&self) -> io::Result<Box<dyn File>>;

    /// Writes bytes at a place, at or behind the end of those written; the next write begins where it would have begun.
    /// On an error some of them may be there.
    fn write_ahead(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reserves room for `bytes` behind `from` if the system can, without changing the file's length: writes
    /// there cost less. [`Self::truncate`] gives it back.
    fn reserve(&mut self, from: u64, bytes: u64);

    /// Lets the system drop a durable part of the file from memory, see [`uncache`].
    fn uncache(&self, from: u64, bytes: u64);

    /// Cuts the file to a length; the next write begins there.
    fn truncate(&mut self, bytes: u64) -> io::Result<()>;

    /// Its length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Its length in bytes, as a process that opens its name would find it; `None` if it has lost that name.
    fn named_length(&self) -> io::Result<Option<u64>>;
}

/// The system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

impl Storage for Disk {
    fn append(&self, path: &Path) -> io::Result<Box<dyn File>> {
        // Not with `append`, since files with room are written before their end.
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        file.seek(SeekFrom::End(0))?;
        let metadata = file.metadata()?;
        let identity = Identity { device: metadata.dev(), inode: metadata.ino() };
        Ok(Box::new(DiskFile { file, path: path.to_owned(), identity }))
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut name = std::ffi::OsString::from("temp-");
        name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
        let temporary = path.with_file_name(name);
        let write = || {
            let mut file = fs::File::create(&temporary)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        };
        write().inspect_err(|_| drop(fs::remove_file(&temporary)))?;
        path.parent().map_or(Ok(()), |directory| self.sync_directory(directory))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => path.parent().map_or(Ok(()), |parent| self.sync_directory(parent)),
        }
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        match fs::File::open(path) {
            Ok(file) => file.take(READ_BYTES_MAX).read_to_end(&mut bytes).map(|_| Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {
                fs::copy(from, to)?;
                fs::File::open(to)?.sync_all()
            }
            linked => linked,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::symlink_metadata(to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::rename(from, to),
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) => Err(error),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<Removed> {
        let removed = Removed::about_to_be(path);
        fs::remove_file(path).map(|()| removed)
    }
}

#[derive(Debug)]
struct DiskFile {
    file: fs::File,
    path: PathBuf,
    identity: Identity,
}

/// The numbers that identify a file among all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// The identity of the file that has that name now, and its length in bytes.
    ///
    /// Asks for no times. If a process has seen a file's times, Linux (6.13 and later) gives its next write one of
    /// its own, to the nanosecond, so that each sync would have to write the inode, too.
    fn with_length(path: &Path) -> io::Result<(Self, u64)> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
            match statx(CWD, path, AtFlags::empty(), StatxFlags::INO | StatxFlags::SIZE) {
                Ok(data) => {
                    let device = makedev(data.stx_dev_major, data.stx_dev_minor);
                    return Ok((Self { device, inode: data.stx_ino }, data.stx_size));
                }
                // An old system, or a container that does not let it pass.
                Err(Errno::NOSYS | Errno::PERM) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let data = fs::metadata(path)?;
        Ok((Self { device: data.dev(), inode: data.ino() }, data.len()))
    }
}

impl File for DiskFile {
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.file.write_vectored(pieces)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn share(&self) -> io::Result<Box<dyn File>> {
        Ok(Box::new(Self { file: self.file.try_clone()?, path: self.path.clone(), identity: self.identity }))
    }

    fn write_ahead(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    fn reserve(&mut self, from: u64, bytes: u64) {
        // After a failure (a full disk, or a file system without such a call) nothing has changed.
        #[cfg(target_os = "linux")]
        let _ = fallocate(&self.file, FallocateFlags::KEEP_SIZE, from, bytes);
        #[cfg(not(target_os = "linux"))]
        let _ = (from, bytes);
    }

    fn uncache(&self, from: u64, bytes: u64) {
        uncache(&self.file, from, bytes);
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)?;
        self.file.seek(SeekFrom::Start(bytes)).map(drop)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn named_length(&self) -> io::Result<Option<u64>> {
        match Identity::with_length(&self.path) {
            Ok((named, length)) => Ok((named == self.identity).then_some(length)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Bytes that [`ReadAhead`] has on their way.
const AHEAD_BYTES: u64 = 8 << 20;

/// Reads a file to its end while the disk is at work on the next part: by itself, the system looks a fraction of a
/// megabyte ahead.
#[derive(Debug)]
pub struct ReadAhead {
    file: fs::File,
    at: u64,
    /// End of the part that was asked for.
    asked: u64,
}

impl ReadAhead {
    /// Goes on where the file is, which is `at`.
    pub fn new(file: fs::File, at: u64) -> Self {
        Self { file, at, asked: at }
    }
}

impl io::Read for ReadAhead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.asked < self.at + AHEAD_BYTES / 2 {
            let from = self.asked.max(self.at);
            self.asked = from + AHEAD_BYTES;
            // The call is advice.
            #[cfg(target_os = "linux")]
            let _ = fadvise(&self.file, from, NonZeroU64::new(AHEAD_BYTES), Advice::WillNeed);
        }
        let count = self.file.read(out)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Bytes of the file that the system may keep in one piece, and then only forgets as a whole.
const FOLIO_BYTES_MAX: u64 = 2 << 20;

/// Lets the system drop a part of a file from memory that is on disk: no process is going to read it soon, and the next
/// writes can have its pages. A part that is not on disk stays.
///
/// Why: fresh pages are dear, above all on a virtual machine whose host gives it memory as it is touched
/// (docs/decisions/0015).
pub(crate) fn uncache(file: &fs::File, from: u64, bytes: u64) {
    // The last call had to leave this part, since it had not got all of it.
    let start = from.saturating_sub(FOLIO_BYTES_MAX);
    // None would mean all of the file.
    #[cfg(target_os = "linux")]
    if let Some(length) = NonZeroU64::new(bytes).and_then(|bytes| bytes.checked_add(from - start)) {
        // The call is advice: if it fails, nothing has changed.
        let _ = fadvise(file, start, Some(length), Advice::DontNeed);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, start);
}

#[cfg(all(test, not(loom)))]
pub(crate) mod faulty {
    //! A disk that fails on request.

    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

    /// The operations that are left before things fail; shared by a disk and its files.
    #[derive(Debug)]
    pub(crate) struct Faults {
        /// Bytes that can still be written; then ENOSPC.
        pub(crate) bytes: AtomicI64,
        /// Syncs that still succeed; then one fails with EIO, and the bytes written since the last good
        /// one is forgotten, as after a power cut.
        pub(crate) syncs: AtomicI64,
        /// Bytes that the system need not keep.
        pub(crate) uncached: AtomicU64,
    }

    impl Faults {
        pub(crate) fn none() -> Arc<Self> {
            let (bytes, syncs) = (AtomicI64::new(i64::MAX), AtomicI64::new(i64::MAX));
            Arc::new(Self { bytes, syncs, uncached: AtomicU64::new(0) })
        }
    }

    #[derive(Debug)]
    pub(crate) struct FaultyDisk(pub(crate) Arc<Faults>);

    #[derive(Debug)]
    struct FaultyFile {
        file: Box<dyn File>,
        faults: Arc<Faults>,
        synced: Arc<AtomicU64>,
    }

    impl Storage for FaultyDisk {
        fn append(&self, path: &Path) -> io::Result<Box<dyn File>> {
            let file = Disk.append(path)?;
            let synced = Arc::new(AtomicU64::new(file.length()?));
            Ok(Box::new(FaultyFile { file, faults: Arc::clone(&self.0), synced }))
        }

        fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
            if self.0.bytes.load(SeqCst) < bytes.len() as i64 {
                return Err(io::Error::from_raw_os_error(28));
            }
            Disk.replace(path, bytes)
        }

        fn sync_directory(&self, path: &Path) -> io::Result<()> {
            Disk.sync_directory(path)
        }

        fn create_directory(&self, path: &Path) -> io::Result<()> {
            Disk.create_directory(path)
        }

        fn len(&self, path: &Path) -> io::Result<u64> {
            Disk.len(path)
        }

        fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
            Disk.read(path)
        }

        fn copy(&self, from: &Path, to: &Path) -> io::Result<()> {
            Disk.copy(from, to)
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            Disk.rename(from, to)
        }

        fn remove(&self, path: &Path) -> io::Result<Removed> {
            Disk.remove(path)
        }
    }

    impl File for FaultyFile {
        fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
            let room = self.faults.bytes.load(SeqCst).max(0) as usize;
            if room == 0 {
                return Err(io::Error::from_raw_os_error(28));
            }
            let first = pieces.iter().find(|piece| !piece.is_empty()).map_or(&[][..], |piece| piece);
            let written = self.file.write(&[IoSlice::new(&first[..first.len().min(room)])])?;
            self.faults.bytes.fetch_sub(written as i64, SeqCst);
            Ok(written)
        }

        fn sync(&mut self) -> io::Result<()> {
            if self.faults.syncs.fetch_sub(1, SeqCst) == 0 {
                self.file.truncate(self.synced.load(SeqCst))?;
                return Err(io::Error::from_raw_os_error(5));
            }
            let length = self.file.length()?;
            self.file.sync()?;
            self.synced.store(length, SeqCst);
            Ok(())
        }

        fn share(&self) -> io::Result<Box<dyn File>> {
            let (faults, synced) = (Arc::clone(&self.faults), Arc::clone(&self.synced));
            Ok(Box::new(Self { file: self.file.share()?, faults, synced }))
        }

        fn write_ahead(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
            let room = self.faults.bytes.load(SeqCst).max(0) as usize;
            self.file.write_ahead(at, &bytes[..bytes.len().min(room)])?;
            if room < bytes.len() { Err(io::Error::from_raw_os_error(28)) } else { Ok(()) }
        }

        fn reserve(&mut self, from: u64, bytes: u64) {
            self.file.reserve(from, bytes);
        }

        fn uncache(&self, from: u64, bytes: u64) {
            assert!(from + bytes <= self.synced.load(SeqCst), "only what is durable");
            self.faults.uncached.fetch_add(bytes, SeqCst);
            self.file.uncache(from, bytes);
        }

        fn truncate(&mut self, bytes: u64) -> io::Result<()> {
            self.synced.fetch_min(bytes, SeqCst);
            self.file.truncate(bytes)
        }

        fn length(&self) -> io::Result<u64> {
            self.file.length()
        }

        fn named_length(&self) -> io::Result<Option<u64>> {
            self.file.named_length()
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    #[test]
    fn read_ahead_gives_what_is_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let bytes: Vec<u8> = (0..2 * AHEAD_BYTES + 7).map(|at| (at % 251) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let mut file = fs::File::open(&path).unwrap();
        file.seek(SeekFrom::Start(3)).unwrap();
        let mut found = Vec::new();
        ReadAhead::new(file, 3).read_to_end(&mut found).unwrap();
        assert!(found == bytes[3..]);
    }
}
