//! Facts about this process and its host, for `INFO`.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What does not change while the process runs.
#[derive(Debug)]
pub(crate) struct Process {
    /// 40 hexadecimal digits, drawn afresh by every process.
    pub(crate) run_id: String,
    /// The identity of the data set's history, drawn likewise.
    replication_id: Mutex<String>,
    pub(crate) started: Instant,
    /// The same in seconds since 1970.
    pub(crate) started_s: u64,
    /// Empty where the system does not tell.
    pub(crate) executable: PathBuf,
    /// Name and release of the system, and the machine.
    pub(crate) system: String,
}

impl Process {
    /// Looks around. The error is one line for the operator.
    pub(crate) fn new() -> Result<Self, String> {
        let system = rustix::system::uname();
        let parts = [system.sysname(), system.release(), system.machine()];
        Ok(Self {
            run_id: random_id()?,
            replication_id: Mutex::new(random_id()?),
            started: Instant::now(),
            started_s: (unix_us() / 1_000_000) as u64,
            executable: std::env::current_exe().unwrap_or_default(),
            system: parts.map(|part| part.to_string_lossy()).join(" "),
        })
    }

    /// The identity of the data set's history.
    pub(crate) fn replication_id(&self) -> String {
        self.replication_id.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins another history: `DEBUG CHANGE-REPL-ID`.
    pub(crate) fn change_replication_id(&self) -> Result<(), String> {
        *self.replication_id.lock().unwrap_or_else(PoisonError::into_inner) = random_id()?;
        Ok(())
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

fn random_id() -> Result<String, String> {
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).map_err(|error| format!("cannot draw a random identity: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Microseconds since 1970.
pub(crate) fn unix_us() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()
}

/// Memory of the process that is in the machine's memory, in bytes; 0 where the system does not tell.
pub(crate) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Memory of the machine in bytes; 0 where the system does not tell.
pub(crate) fn system_memory_bytes() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let info = rustix::system::sysinfo();
        #[allow(clippy::useless_conversion, reason = "the width differs by platform")]
        u64::from(info.totalram).saturating_mul(u64::from(info.mem_unit))
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    0
}

/// Time on the processor.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ProcessorTime {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl ProcessorTime {
    /// Of the whole process.
    pub(crate) fn of_process() -> Self {
        Self::ask(libc::RUSAGE_SELF)
    }

    /// Of the calling thread; of the process where the system does not tell threads apart.
    pub(crate) fn of_thread() -> Self {
        #[cfg(any(target_os = "linux", target_os = "freebsd"))]
        return Self::ask(libc::RUSAGE_THREAD);
        #[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
        Self::of_process()
    }

    fn ask(who: libc::c_int) -> Self {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the pointer is to a whole rusage, which the call only writes to.
        let result = unsafe { libc::getrusage(who, usage.as_mut_ptr()) };
        debug_assert_eq!(result, 0, "a known target and a valid pointer");
        // SAFETY: all zeroes are a valid rusage, and the call has filled it or left it so.
        let usage = unsafe { usage.assume_init() };
        let duration = |time: libc::timeval| {
            Duration::from_secs(time.tv_sec.unsigned_abs())
                + Duration::from_micros(u64::from(time.tv_usec.unsigned_abs() as u32))
        };
        Self { user: duration(usage.ru_utime), system: duration(usage.ru_stime) }
    }
}

/// Has the calling thread take the time that others leave. On Linux a thread has a priority of its own.
pub(crate) fn lower_priority() {
    const STEPS: i32 = 10;
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(STEPS) {
        tracing::debug!("cannot lower the priority of a thread: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells() {
        let process = Process::new().unwrap();
        assert_eq!(process.run_id.len(), 40);
        let before = process.replication_id();
        assert_ne!(process.run_id, before);
        process.change_replication_id().unwrap();
        assert_ne!(process.replication_id(), before);
        assert!(process.system.split(' ').count() >= 3, "{}", process.system);
        let started = Instant::now();
        while ProcessorTime::of_thread().user + ProcessorTime::of_thread().system == Duration::ZERO {
            assert!(started.elapsed() < Duration::from_secs(60), "a busy thread uses time");
        }
        if cfg!(target_os = "linux") {
            assert!(resident_bytes() > 100_000 && system_memory_bytes() > resident_bytes());
        }
    }
}
