//! The directory of the data files belongs to one server at a time.
//!
//! ```text
//! dir/.dunlin.lock     pid 4711                        there while a server runs, and after it was killed: the lock
//!                      host mill                       on the file counts, which the system takes back when the
//!                      appenddirname appendonlydir     process ends
//! ```
//!
//! A server that keeps something (save points, the append-only log) takes the lock when it starts, another one when it
//! first writes a file. So any number of servers that keep nothing may share a directory, and no others may.
//!
//! The lock is flock(2)'s, which every local file system and NFS know. If there is none, or the directory cannot be
//! written, the server says so and goes on; the log then still notices other writers of its files.

use std::{
    ffi::OsStr,
    fmt::{self, Display},
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::Duration,
};

use crate::config::{Config, describe, escape_control};

/// The name of the file in a data directory that servers lock.
pub(crate) const LOCK_NAME: &str = ".dunlin.lock";
/// Longest content of it that is read.
const CONTENT_BYTES_MAX: u64 = 4096;
/// How often a file is opened again that lost its name before it was locked.
const ATTEMPTS_MAX: u32 = 100;
/// How often, and for how long, a lock is waited for: a tool that looks whether there is one has it for a moment.
const RETRIES: u32 = 3;
const RETRY: Duration = Duration::from_millis(5);

/// A lock on a directory; it ends with this.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    directory: PathBuf,
    /// `None` if the directory cannot be locked.
    file: Option<File>,
}

/// The server that holds a directory.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pid: Option<u32>,
    host: Option<String>,
    appenddirname: Option<String>,
}

impl Holder {
    fn parse(text: &str) -> Self {
        let mut holder = Self::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            match name {
                "pid" => holder.pid = value.parse().ok(),
                "host" => holder.host = Some(value.to_owned()),
                "appenddirname" => holder.appenddirname = Some(value.to_owned()),
                // A field of a newer version.
                _ => {}
            }
        }
        holder
    }

    /// This process.
    fn own(config: &Config) -> Self {
        let name = config.appenddirname.to_string_lossy().into_owned();
        Self { pid: Some(std::process::id()), host: Some(host()), appenddirname: Some(name) }
    }

    fn print(&self) -> String {
        let fields = [
            ("pid", self.pid.map(|pid| pid.to_string())),
            ("host", self.host.clone()),
            ("appenddirname", self.appenddirname.clone()),
        ];
        let lines = fields.into_iter().filter_map(|(name, value)| Some(format!("{name} {}\n", value?)));
        lines.collect()
    }
}

impl Display for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(pid) = self.pid else { return out.write_str("another process") };
        write!(out, "process {pid}")?;
        match &self.host {
            Some(name) if *name != host() => {
                write!(out, " on host {}", name.chars().flat_map(escape_control).collect::<String>())
            }
            _ => Ok(()),
        }
    }
}

/// The name of this host, which a container has, too.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Another process has the directory.
#[derive(Debug)]
pub(crate) struct InUse {
    directory: PathBuf,
    holder: Holder,
}

impl Display for InUse {
    /// For messages that go on with a remedy.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the directory {} is in use by {}", self.directory.display(), self.holder)
    }
}

/// Why a directory was not locked.
enum Failure {
    InUse(Holder),
    /// The directory cannot be locked: the system's words.
    Unlockable(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Unlockable(describe(&error))
    }
}

impl DirectoryLock {
    /// Locks a directory for `holder`. A directory that cannot be locked is logged, and counts as locked.
    fn take(directory: &Path, holder: &Holder) -> Result<Self, InUse> {
        let file = match lock(&directory.join(LOCK_NAME), holder) {
            Ok(file) => Some(file),
            Err(Failure::InUse(holder)) => return Err(InUse { directory: directory.to_owned(), holder }),
            Err(Failure::Unlockable(reason)) => {
                tracing::warn!(
                    "The directory {} cannot be locked: {reason}. Make sure that no other server uses it",
                    directory.display()
                );
                None
            }
        };
        Ok(Self { directory: directory.to_owned(), file })
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        if self.file.is_some() {
            // Still locked: a server that has opened it meanwhile looks whether it has kept its name. A file left
            // behind does no harm.
            let _ = fs::remove_file(self.directory.join(LOCK_NAME));
        }
    }
}

/// Opens and locks a file, and writes its holder into it.
fn lock(path: &Path, holder: &Holder) -> Result<File, Failure> {
    let mut retries = 0;
    for _ in 0..ATTEMPTS_MAX {
        let mut file = open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) if retries < RETRIES => {
                retries += 1;
                thread::sleep(RETRY);
                continue;
            }
            Err(TryLockError::WouldBlock) => return Err(Failure::InUse(read_holder(&file))),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        if !has_name(&file, path) {
            // Its holder has ended and removed it since it was opened.
            continue;
        }
        // A file that says nothing is as locked.
        let _ = file.set_len(0).and_then(|()| file.write_all(holder.print().as_bytes()));
        return Ok(file);
    }
    Err(Failure::Unlockable(format!("{} is replaced time and again", path.display())))
}

/// Opens the file, for writing if that is allowed: a lock needs less.
fn open(path: &Path) -> io::Result<File> {
    let options = || {
        let mut options = OpenOptions::new();
        options.read(true).mode(0o644).custom_flags(libc::O_NOFOLLOW);
        options
    };
    match options().write(true).create(true).truncate(false).open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            options().open(path).map_err(|_| error)
        }
        opened => opened,
    }
}

fn read_holder(file: &File) -> Holder {
    let mut text = String::new();
    // A holder that cannot be read stays unknown.
    let _ = file.take(CONTENT_BYTES_MAX).read_to_string(&mut text);
    Holder::parse(&text)
}

fn has_name(file: &File, path: &Path) -> bool {
    let identity = |data: fs::Metadata| (data.dev(), data.ino());
    let opened = file.metadata().map(identity).ok();
    opened.is_some() && fs::symlink_metadata(path).map(identity).ok() == opened
}

/// The directories that this server has locked.
#[derive(Debug, Default)]
pub(crate) struct DataDirectory {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The lock of `dir`, from when the server keeps something there.
    current: Option<Arc<DirectoryLock>>,
    /// All locks in use: the log, and a snapshot that is being written, stay where they have begun.
    all: Vec<Weak<DirectoryLock>>,
}

impl DataDirectory {
    /// Takes the directory of a configuration for this server, unless it has it. A writer there keeps the lock until it
    /// is done.
    pub(crate) fn hold(&self, config: &Config) -> Result<Arc<DirectoryLock>, InUse> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.all.retain(|lock| lock.strong_count() > 0);
        let held = state.all.iter().filter_map(Weak::upgrade).find(|lock| lock.directory == config.dir);
        let lock = match held {
            Some(lock) => lock,
            None => {
                let lock = Arc::new(DirectoryLock::take(&config.dir, &Holder::own(config))?);
                state.all.push(Arc::downgrade(&lock));
                lock
            }
        };
        state.current = Some(Arc::clone(&lock));
        Ok(lock)
    }

    /// Lets go of the directory: the server has ended, and threads that look on may outlive it.
    pub(crate) fn release(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).current = None;
    }

    /// Takes the directory of a configuration if this server had the one before.
    pub(crate) fn follow(&self, config: &Config) -> Result<(), InUse> {
        let is_held = self.state.lock().unwrap_or_else(PoisonError::into_inner).current.is_some();
        if is_held { self.hold(config).map(drop) } else { Ok(()) }
    }
}

/// Refuses files of a running server, and a directory that it is about to write files of.
///
/// The error is one line, without a prefix.
pub fn expect_unused(path: &Path) -> Result<(), String> {
    let path = std::path::absolute(path).map_err(|error| describe(&error))?;
    let directory = if path.is_dir() { path.as_path() } else { path.parent().unwrap_or(Path::new("/")) };
    let holder_of = |directory: &Path| {
        let file = File::open(directory.join(LOCK_NAME)).ok()?;
        let is_held = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        is_held.then(|| InUse { directory: directory.to_owned(), holder: read_holder(&file) })
    };
    // The directory of a log lies in the one that its server has locked.
    let is_log_of = |in_use: &InUse| {
        directory.file_name().and_then(OsStr::to_str) == in_use.holder.appenddirname.as_deref()
    };
    let above = || directory.parent().and_then(holder_of).filter(is_log_of);
    match holder_of(directory).or_else(above) {
        Some(in_use) => Err(format!("{in_use}: stop that server first")),
        None => Ok(()),
    }
}

/// Refuses a file that some process has open for writing, as a server of another kind has its log.
pub fn expect_unwritten(path: &Path) -> Result<(), String> {
    if !dunlin_persist::is_being_written(path) {
        return Ok(());
    }
    let who = match processes_with(path).as_slice() {
        [] => "another process".to_owned(),
        [(pid, name)] => format!("process {pid} ({name})"),
        several => {
            let several = several.iter().map(|(pid, name)| format!("{pid} ({name})"));
            format!("processes {}", several.collect::<Vec<_>>().join(", "))
        }
    };
    Err(format!("{} is open for writing in {who}: stop it first", path.display()))
}

/// The other processes that have a file open, as far as the system reports them.
fn processes_with(path: &Path) -> Vec<(u32, String)> {
    let Ok(file) = fs::metadata(path) else { return Vec::new() };
    let own = std::process::id();
    let is_same = |data: fs::Metadata| (data.dev(), data.ino()) == (file.dev(), file.ino());
    let has_it = |pid: &u32| {
        let opened = fs::read_dir(format!("/proc/{pid}/fd")).ok().into_iter().flatten().flatten();
        opened.into_iter().any(|entry| fs::metadata(entry.path()).is_ok_and(is_same))
    };
    let named = |pid: u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        (pid, name.trim_end().chars().flat_map(escape_control).collect())
    };
    let numbers = fs::read_dir("/proc").ok().into_iter().flatten().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != own).filter(has_it).map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::ScratchDir;

    fn config(dir: &ScratchDir) -> Config {
        Config { dir: dir.path(""), ..Config::default() }
    }

    #[test]
    fn holder_reads_back_what_it_prints() {
        let holder = Holder::own(&Config::default());
        assert_eq!(Holder::parse(&holder.print()), holder);
        assert_eq!(holder.to_string(), format!("process {}", std::process::id()));
        let other = Holder::parse("pid 7\nhost elsewhere\nnewer thing\n");
        assert_eq!(other.to_string(), "process 7 on host elsewhere");
        assert_eq!(Holder::parse("").to_string(), "another process");
        assert_eq!(Holder::parse("pid x\n\u{1b}[2J").pid, None);
    }

    #[test]
    fn directory_lock_has_one_holder_and_leaves_no_file() {
        let dir = ScratchDir::new("lock");
        let (one, other) = (DataDirectory::default(), DataDirectory::default());
        let lock = one.hold(&config(&dir)).unwrap();
        one.hold(&config(&dir)).unwrap();
        let refusal = other.hold(&config(&dir)).unwrap_err().to_string();
        assert!(refusal.ends_with(&format!("is in use by process {}", std::process::id())), "{refusal}");
        drop(one);
        other.hold(&config(&dir)).unwrap_err();
        drop(lock);
        assert!(!dir.path(LOCK_NAME).exists());
        other.hold(&config(&dir)).unwrap();
    }

    #[test]
    fn directory_lock_of_a_killed_process_is_free() {
        let dir = ScratchDir::new("stale-lock");
        dir.write(LOCK_NAME, "pid 1\nhost elsewhere\n");
        expect_unused(&dir.path("dump.rdb")).unwrap();
        let held = DataDirectory::default();
        held.hold(&config(&dir)).unwrap();
        let text = fs::read_to_string(dir.path(LOCK_NAME)).unwrap();
        assert!(text.starts_with(&format!("pid {}\n", std::process::id())), "{text}");
    }

    #[test]
    fn directory_lock_stays_with_whoever_still_writes_there() {
        let (dir, next) = (ScratchDir::new("log-lock"), ScratchDir::new("next-lock"));
        let (held, other) = (DataDirectory::default(), DataDirectory::default());
        held.follow(&config(&dir)).unwrap();
        let free = other.hold(&config(&dir)).unwrap();
        drop((free, other));
        let log = held.hold(&config(&dir)).unwrap();
        held.follow(&config(&next)).unwrap();
        let other = DataDirectory::default();
        other.hold(&config(&dir)).unwrap_err();
        other.hold(&config(&next)).unwrap_err();
        held.follow(&config(&dir)).unwrap();
        other.hold(&config(&next)).unwrap();
        drop(log);
        other.hold(&config(&dir)).unwrap_err();
    }

    #[test]
    fn directory_that_cannot_be_locked_is_used_all_the_same() {
        let dir = ScratchDir::new("unlockable");
        fs::create_dir(dir.path(LOCK_NAME)).unwrap();
        let held = DataDirectory::default();
        held.hold(&config(&dir)).unwrap();
        drop(held);
        assert!(dir.path(LOCK_NAME).is_dir());
    }

    #[test]
    fn tools_refuse_the_files_of_a_server_and_of_its_log() {
        let dir = ScratchDir::new("tools");
        for path in ["dump.rdb", "appendonlydir/a.manifest", "backup/a.aof"] {
            dir.write(path, "");
        }
        let held = DataDirectory::default();
        held.hold(&config(&dir)).unwrap();
        let own = format!("process {}: stop that server first", std::process::id());
        for path in ["", "dump.rdb", "none.rdb", "appendonlydir", "appendonlydir/a.manifest"] {
            let refusal = expect_unused(&dir.path(path)).unwrap_err();
            assert!(refusal.ends_with(&own), "{path}: {refusal}");
        }
        expect_unused(&dir.path("backup/a.aof")).unwrap();
        drop(held);
        expect_unused(&dir.path("dump.rdb")).unwrap();
    }
}
