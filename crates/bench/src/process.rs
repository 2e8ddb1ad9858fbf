//! A program as a child process: in a folder of its own, restricted to processors, measured through
//! `/proc`, ended when dropped.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::affinity;
use crate::cleanup::{self, locked};

const START_MAX: Duration = Duration::from_secs(20);
const END_MAX: Duration = Duration::from_secs(60);
const START_POLL: Duration = Duration::from_millis(10);

/// A folder for files that are not needed afterwards; removed when dropped.
#[derive(Debug)]
pub struct ScratchFolder(PathBuf);

impl ScratchFolder {
    /// A new, empty folder.
    pub fn new() -> Result<Self, String> {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("dunlin-bench-{}-{number}", std::process::id()));
        cleanup::create_folder(&path)
            .map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        Ok(Self(path))
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        cleanup::remove(&self.0);
    }
}

/// A running program.
#[derive(Debug)]
pub struct Process {
    path: PathBuf,
    id: u32,
    child: Arc<Mutex<Child>>,
    folder: ScratchFolder,
}

impl Process {
    /// Starts `path` with `arguments` in `folder`, restricted to `processors`. Its output goes into the folder's file
    /// `log`. The process ends with the thread that starts it, at the latest.
    pub fn start(
        path: &Path,
        arguments: &[String],
        folder: ScratchFolder,
        processors: &[usize],
    ) -> Result<Self, String> {
        let failed = |error: io::Error| format!("cannot start {}: {error}", path.display());
        let log = fs::File::create(folder.path().join("log")).map_err(failed)?;
        let mut command = Command::new(path);
        command
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stderr(log.try_clone().map_err(failed)?)
            .stdout(log);
        let processors = processors.to_vec();
        let prepare = move || {
            affinity::restrict(&processors)?;
            // However the starting thread ends, the kernel takes the child along.
            set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)
        };
        // SAFETY: between fork and exec the closure makes two system calls; it takes no lock and allocates nothing.
        unsafe { command.pre_exec(prepare) };
        let child = cleanup::spawn(&mut command).map_err(failed)?;
        let id = locked(&child).id();
        Ok(Self { path: path.to_path_buf(), id, child, folder })
    }

    /// Waits until `is_ready`; fails with the program's output when it ends before.
    pub fn await_ready(&mut self, mut is_ready: impl FnMut() -> bool) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let ended = locked(&self.child).try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = ended {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                let reason = telling_line(&log);
                return Err(format!("{} ended at once ({status}): {reason}", self.path.display()));
            }
            if is_ready() {
                return Ok(());
            }
            if start.elapsed() > START_MAX {
                return Err(format!("{} does not answer on its port and socket", self.path.display()));
            }
            thread::sleep(START_POLL);
        }
    }

    /// Waits until it has ended by itself.
    pub fn await_end(&mut self) -> Result<(), String> {
        let start = Instant::now();
        while locked(&self.child).try_wait().map_err(|error| error.to_string())?.is_none() {
            if start.elapsed() > END_MAX {
                return Err(format!("{} does not end", self.path.display()));
            }
            thread::sleep(START_POLL);
        }
        Ok(())
    }

    /// The folder that it runs in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// CPU time that it has used since it was started, also by threads that have ended, in nanoseconds; no finer than a
    /// tick of the system's clock, which are mostly 100 a second.
    pub fn cpu_since_start_ns(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/stat", self.id);
        let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
        let ticks = used_ticks(&text).ok_or_else(|| format!("{path} is not understood"))?;
        Ok(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
    }

    /// CPU time that the threads it has at the moment have used, in nanoseconds, from the scheduler's own count.
    pub fn cpu_ns(&self) -> Result<u64, String> {
        let tasks = format!("/proc/{}/task", self.id);
        let unreadable = |error: io::Error| format!("cannot read {tasks}: {error}");
        let mut total = 0;
        for task in fs::read_dir(&tasks).map_err(unreadable)? {
            let text =
                fs::read_to_string(task.map_err(unreadable)?.path().join("schedstat")).map_err(unreadable)?;
            total += text.split_whitespace().next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(total)
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/statm", self.id);
        let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
        let pages: Option<u64> = text.split_whitespace().nth(1).and_then(|field| field.parse().ok());
        Ok(pages.ok_or_else(|| format!("{path} is not understood"))? * rustix::param::page_size() as u64)
    }
}

/// The ticks in a line of `/proc/PID/stat`: in the program and in the system for it. Other fields stand before them,
/// the program's name among them, in parentheses.
fn used_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11).map(|field| field.parse::<u64>().ok());
    Some(fields.next()?? + fields.next()??)
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process holds nothing of value, and nothing can be done about a failure here.
        let mut child = locked(&self.child);
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The line of a log that most likely names the fault.
fn telling_line(log: &str) -> &str {
    let mut lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
    let tells = |line: &&str| {
        let line = line.to_ascii_lowercase();
        ["error", "fatal", "fail"].iter().any(|word| line.contains(word))
    };
    lines.clone().find(tells).or(lines.next_back()).unwrap_or("it said nothing")
}

/// Ports for servers: below those that Linux gives to connections by itself (32,768 and up), one of which could take a port
/// before its server listens on it.
const PORTS: std::ops::Range<u16> = 30_000..32_768;

/// A port of the loopback interface without a listener; another one than the last, which may not be in use yet.
pub fn free_port() -> io::Result<u16> {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let count = u32::from(PORTS.end - PORTS.start);
    for _ in 0..count {
        // Other processes choose ports, too: each begins elsewhere.
        let place =
            std::process::id().wrapping_mul(61).wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % count;
        let port = PORTS.start + place as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no port from 30,000 to 32,767 is free"))
}

/// A program by its path, or by its name on PATH and in Debian's directories of daemons; absolute,
/// since programs are started in other folders.
pub fn found(program: &Path) -> Option<PathBuf> {
    let candidates: Vec<PathBuf> = if program.components().count() > 1 {
        vec![program.to_path_buf()]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
        folders.map(|folder| folder.join(program)).collect()
    };
    candidates.into_iter().find(|path| path.is_file()).and_then(|path| std::path::absolute(path).ok())
}

/// First line of a program's output about its version.
pub fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let said = output.map_or(Vec::new(), |output| [output.stdout, output.stderr].concat());
    String::from_utf8_lossy(&said).lines().next().unwrap_or("unknown version").trim().to_string()
}

/// A description of the machine, in one line.
pub fn machine(processors: &[usize]) -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown", |(_, name)| name.trim());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let gibibytes =
        memory_kib(&memory).map_or("unknown".into(), |kib| format!("{:.1}", kib / f64::from(1 << 20)));
    format!("{} processors ({model}), {gibibytes} GiB of memory, Linux {}", processors.len(), kernel.trim())
}

/// All of the machine's memory, by `/proc/meminfo`.
fn memory_kib(meminfo: &str) -> Option<f64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix("kB")?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "17 (a) b (c) S 1 17 17 0 -1 4194560 900 0 3 0 21 4 0 0 20 0 6 0 1234 5678 90";
        assert_eq!(used_ticks(stat), Some(25));
        assert_eq!(used_ticks("17 (a) S 1 17"), None);
    }

    #[test]
    fn process_error_quotes_a_program_that_ends_at_once() {
        let script = "echo starting; echo 'fatal: no luck' >&2; echo bye; exit 3".to_string();
        let folder = ScratchFolder::new().unwrap();
        let kept = folder.path().to_path_buf();
        let processors = affinity::allowed().unwrap();
        let mut process =
            Process::start(Path::new("/bin/sh"), &["-c".into(), script], folder, &processors).unwrap();
        let error = process.await_ready(|| false).unwrap_err();
        assert!(error.starts_with("/bin/sh ended at once") && error.ends_with("fatal: no luck"), "{error}");
        drop(process);
        assert!(!kept.exists());
    }

    #[test]
    fn memory_is_read_where_it_is_told() {
        assert_eq!(memory_kib("MemTotal:        8142344 kB\nMemFree:   1 kB\n"), Some(8_142_344.0));
        assert_eq!(memory_kib("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn programs_are_found_by_name_and_by_path() {
        assert!(found(Path::new("sh")).unwrap().is_absolute());
        assert_eq!(found(Path::new("/bin/sh")), Some("/bin/sh".into()));
        assert_eq!(found(Path::new("no-such-program")), None);
    }
}
