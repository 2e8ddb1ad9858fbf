//! Facts about this process and its host, for `INFO`.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Facts that do not change while the process runs.
#[derive(Debug)]
pub(crate) struct Process {
    /// 40 hexadecimal digits, drawn afresh by every process.
    pub(crate) run_id: String,
    /// The identity of the data set's history, drawn likewise.
    pub(crate) started: Instant,
    /// The start in seconds since 1970.
    pub(crate) started_s: u64,
    /// Empty if the system does not report it.
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
            started: Instant::now(),
            started_s: (unix_us() / 1_000_000) as u64,
            executable: std::env::current_exe().unwrap_or_default(),
            system: parts.map(|part| part.to_string_lossy()).join(" "),
        })
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Draws 40 hexadecimal digits.
pub(crate) fn random_id() -> Result<String, String> {
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).map_err(|error| format!("cannot draw a random identity: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Milliseconds of a clock that only goes forward; never 0.
pub(crate) fn monotonic_ms() -> u64 {
    monotonic_ns() / 1_000_000 + 1
}

/// Nanoseconds of a monotonic clock since some moment of the process's.
pub(crate) fn monotonic_ns() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

/// Milliseconds of the clock of leases, since some moment of the process's; never 0. If the system has such a clock at
/// the same cost, time goes on while the machine is suspended, as the other nodes' time does.
pub(crate) fn lease_ms() -> u64 {
    #[cfg(target_os = "linux")]
    {
        static START_NS: LazyLock<u64> = LazyLock::new(boot_ns);
        let start_ns = *START_NS;
        (boot_ns() - start_ns) / 1_000_000 + 1
    }
    #[cfg(not(target_os = "linux"))]
    monotonic_ms()
}

/// Nanoseconds since the machine was started, suspended or not.
#[cfg(target_os = "linux")]
fn boot_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Microseconds since 1970.
pub(crate) fn unix_us() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()
}

/// Memory of the process that is in the machine's memory, in bytes; 0 if the system does not report it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resident {
    pub(crate) all: u64,
    /// Without pages of files, as those of the program: what allocators and stacks hold.
    pub(crate) anonymous: u64,
}

/// Reads it.
pub(crate) fn resident() -> Resident {
    // Not `statm`, which counts pages: under Valgrind, rustix does not find out how large they are.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kilobytes.unwrap_or(0) * 1024
    };
    let all = bytes("VmRSS:");
    Resident { all, anonymous: all.saturating_sub(bytes("RssFile:")) }
}

/// Memory of the machine in bytes; 0 if the system does not report it.
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
    /// The processor time of the whole process.
    pub(crate) fn of_process() -> Self {
        Self::ask(libc::RUSAGE_SELF)
    }

    /// The processor time of the calling thread; of the process if the system does not count threads by themselves.
    pub(crate) fn of_thread() -> Self {
        #[cfg(any(target_os = "linux", target_os = "freebsd"))]
        return Self::ask(libc::RUSAGE_THREAD);
        #[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
        Self::of_process()
    }

    /// All of it.
    pub(crate) fn total(self) -> Duration {
        self.user + self.system
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

/// How long the machine's processors have had nothing to do, all of them together, since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdleTime(Duration);

impl IdleTime {
    /// `None` if the system does not report it. Costs some ten microseconds.
    pub(crate) fn now() -> Option<Self> {
        #[cfg(target_os = "linux")]
        {
            let ticks = idle_ticks(&std::fs::read_to_string("/proc/stat").ok()?)?;
            // Not rustix's, which does not find it out under Valgrind.
            // SAFETY: it only returns a number.
            let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
            Some(Self(Duration::from_secs_f64(ticks as f64 / per_second as f64)))
        }
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// The time since then.
    pub(crate) fn since(&self, before: &Self) -> Duration {
        self.0.saturating_sub(before.0)
    }
}

/// Ticks without work, and with nothing but the disk to wait for: `cpu user nice system idle iowait …`.
#[cfg(target_os = "linux")]
fn idle_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().skip(3);
    let (idle, waiting) = (fields.next()?.parse::<u64>().ok()?, fields.next()?.parse::<u64>().ok()?);
    idle.checked_add(waiting)
}

/// Leaves the calling thread the time that others do not take: a small share if there is none. When it is woken, it
/// interrupts no thread (the policy for batch work, sched(7), unless the operator has chosen another one). On Linux a
/// thread has a priority of its own.
///
/// The idle policy would disturb others less still, but a thread that waits for a lock of such a thread waits until a
/// processor is idle, and without privileges there is no way back from it.
pub(crate) fn lower_priority() {
    const STEPS: i32 = 10;
    #[cfg(target_os = "linux")]
    {
        let batch = |to: &mut libc::sched_attr| to.sched_policy = libc::SCHED_BATCH as u32;
        let nice = rustix::process::nice(STEPS).map_err(std::io::Error::from);
        if let Err(error) = nice.and_then(|_| change_scheduling(batch)) {
            tracing::debug!("cannot lower the priority of a thread: {error}");
        }
    }
}

/// Makes the calling thread run as soon as it is woken, in shorter turns: for those that serve clients beside
/// threads that compute. Its share of the time stays, and a policy that the operator has chosen, too.
///
/// On Linux from 6.12 on a thread that is woken takes the processor from one with a longer slice (a custom slice of
/// EEVDF, sched_setattr(2)). Without a shorter slice it waits until that one's is over, which only the next tick of
/// the clock finds out: 1 to 10 ms. Other systems, and Linux before, have nothing of the kind.
pub(crate) fn shorten_slice() {
    #[cfg(target_os = "linux")]
    {
        /// The shortest there is.
        const SLICE: Duration = Duration::from_micros(100);
        let shorter = |to: &mut libc::sched_attr| to.sched_runtime = SLICE.as_nanos() as u64;
        if let Err(error) = change_scheduling(shorter) {
            tracing::debug!("cannot shorten the slice of a thread: {error}");
        }
    }
}

/// How the calling thread is scheduled.
#[cfg(target_os = "linux")]
fn scheduling() -> std::io::Result<libc::sched_attr> {
    let mut scheduling = std::mem::MaybeUninit::<libc::sched_attr>::zeroed();
    let bytes = size_of::<libc::sched_attr>();
    // SAFETY: the pointer is to `bytes` bytes, which the call only writes to.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, scheduling.as_mut_ptr(), bytes, 0) };
    match result {
        // SAFETY: all zeroes are valid, and the call has filled them.
        0 => Ok(unsafe { scheduling.assume_init() }),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Changes how the calling thread is scheduled, if that is by the usual policy or the one for batch work.
#[cfg(target_os = "linux")]
fn change_scheduling(change: impl FnOnce(&mut libc::sched_attr)) -> std::io::Result<()> {
    let mut wanted = scheduling()?;
    if ![libc::SCHED_OTHER, libc::SCHED_BATCH].map(|policy| policy as u32).contains(&wanted.sched_policy) {
        return Ok(());
    }
    change(&mut wanted);
    // SAFETY: the pointer is to attributes with their size in them, which the call only reads.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Draws the bytes of an id.
///
/// # Errors
/// The error is a line, if the system has no random numbers.
pub(crate) fn draw() -> Result<[u8; 20], String> {
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).map_err(|error| format!("cannot draw a random identity: {error}"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_facts_come_from_the_system() {
        let process = Process::new().unwrap();
        assert_eq!(process.run_id.len(), 40);
        assert!(process.system.split(' ').count() >= 3, "{}", process.system);
        let started = Instant::now();
        while ProcessorTime::of_thread().total() == Duration::ZERO {
            assert!(started.elapsed() < Duration::from_secs(60), "a busy thread uses time");
        }
        if cfg!(target_os = "linux") {
            let Resident { all, anonymous } = resident();
            assert!(anonymous > 100_000 && all > anonymous && system_memory_bytes() > all);
            assert!(IdleTime::now().is_some());
        }
    }

    #[test]
    fn leases_run_on_the_clock_that_goes_on_while_the_machine_is_suspended() {
        let (leases, monotonic) = (lease_ms(), monotonic_ms());
        assert!(leases > 0);
        #[cfg(target_os = "linux")]
        {
            let boot_ms = || boot_ns() / 1_000_000;
            let (before, lease, after) = (boot_ms(), lease_ms(), boot_ms());
            let (next_before, next, next_after) = (boot_ms(), lease_ms(), boot_ms());
            // As much of it has passed as of the boot clock, give or take a rounded millisecond.
            let passed = (next_before.saturating_sub(after).saturating_sub(1))..=(next_after - before + 1);
            assert!(passed.contains(&(next - lease)), "{passed:?} {lease} {next}");
        }
        while monotonic_ms() == monotonic {
            std::hint::spin_loop();
        }
        assert!(lease_ms() >= leases);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn scheduling_keeps_its_low_priority_with_a_shorter_slice() {
        let changed = std::thread::spawn(|| {
            lower_priority();
            let before = scheduling().unwrap();
            shorten_slice();
            (before, scheduling().unwrap())
        });
        let (before, after) = changed.join().unwrap();
        let kept = |of: &libc::sched_attr| (of.sched_policy, of.sched_nice, of.sched_flags);
        assert_eq!((kept(&after), after.sched_nice > 0), (kept(&before), true));
        assert_eq!(after.sched_policy, libc::SCHED_BATCH as u32);
        // Zero says that the system knows no slices of threads.
        assert_eq!(after.sched_runtime, before.sched_runtime.min(100_000));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn idle_ticks_are_read_from_proc_stat() {
        let line = "cpu  10 20 30 4000 500 6 7 8 9 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        assert_eq!(idle_ticks(line), Some(4500));
        for other in [
            "",
            "cpu ",
            "cpu  1 2 3",
            "cpu  1 2 3 x 5",
            "cpu0 1 2 3 4 5",
            "cpu  1 2 3 18446744073709551615 1",
        ] {
            assert_eq!(idle_ticks(other), None, "{other}");
        }
    }
}
