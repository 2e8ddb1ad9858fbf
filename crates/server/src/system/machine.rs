//! Facts of the machine that slow a store down or end it: what was found, and what to do if something is wrong.
//!
//! A starting server logs the lines with advice; `dunlin doctor` prints all.

use std::{
    fs,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

/// A fact of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its name.
    pub name: &'static str,
    /// Its state.
    pub state: String,
    /// The remedy, if something is wrong.
    pub advice: Option<String>,
}

impl Finding {
    fn good(name: &'static str, state: impl Into<String>) -> Self {
        Self { name, state: state.into(), advice: None }
    }

    fn new(name: &'static str, state: impl Into<String>, is_wrong: bool, advice: &str) -> Self {
        Self { name, state: state.into(), advice: is_wrong.then(|| advice.to_owned()) }
    }
}

/// The limits of the control group that the process is in (cgroup version 2, or 1).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CgroupLimits {
    /// Processors, as a number of them; `None` for no limit.
    pub(crate) processors: Option<f64>,
    /// Bytes.
    pub(crate) memory: Option<u64>,
}

impl CgroupLimits {
    /// Reads the limits; none if there are no control groups.
    pub(crate) fn read() -> Self {
        let groups = read("/proc/self/cgroup");
        Self::of(&groups, &|path| fs::read_to_string(path).ok())
    }

    fn of(groups: &str, file: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut limits = Self::default();
        let unified = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
        // Limits hold for all groups below: each on the way to the root may have one.
        let mut path = unified.trim_end_matches('/');
        loop {
            let folder = format!("/sys/fs/cgroup{path}");
            if let Some(text) = file(&format!("{folder}/cpu.max")) {
                limits.lower_processors(quota(&text));
            }
            if let Some(text) = file(&format!("{folder}/memory.max")) {
                limits.lower_memory(text.trim().parse().ok());
            }
            match path.rfind('/') {
                Some(at) => path = &path[..at],
                None => break,
            }
        }
        // Version 1 has no single tree.
        let old = |name: &str| {
            file(name).and_then(|text| text.trim().parse::<i64>().ok()).filter(|value| *value > 0)
        };
        let (quota, period) =
            (old("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), old("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
        if let (Some(quota), Some(period)) = (quota, period) {
            limits.lower_processors(Some(quota as f64 / period as f64));
        }
        // No limit is a number close to 2^63 there.
        let memory = old("/sys/fs/cgroup/memory/memory.limit_in_bytes").filter(|bytes| *bytes < 1 << 60);
        limits.lower_memory(memory.map(|bytes| bytes as u64));
        limits
    }

    fn lower_processors(&mut self, other: Option<f64>) {
        self.processors = match (self.processors, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    fn lower_memory(&mut self, other: Option<u64>) {
        self.memory = match (self.memory, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

/// `200000 100000` of cpu.max: microseconds in each period, and the period.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then(|| quota / period)
}

/// Everything but what depends on a configuration.
pub fn findings() -> Vec<Finding> {
    let mut findings = vec![
        overcommit(&read("/proc/sys/vm/overcommit_memory")),
        huge_pages(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
        clock_source(&read("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        swap(&read("/proc/meminfo")),
        backlog(&read("/proc/sys/net/core/somaxconn")),
        open_files(),
        ip_version_6(&read("/proc/net/if_inet6")),
    ];
    let limits = CgroupLimits::read();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let of_group =
        limits.processors.map_or_else(String::new, |limit| format!(", the control group allows {limit:.1}"));
    findings.push(Finding::good("processors", format!("{processors} to be used{of_group}")));
    let memory = limits.memory.map_or_else(|| "none".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    findings.push(Finding::good("memory limit of the control group", memory));
    findings.retain(|finding| !finding.state.is_empty());
    findings
}

/// How long a small write takes to be on the disk under a directory, as the median of five.
pub fn disk(directory: &Path) -> Finding {
    const NAME: &str = "disk";
    const SLOW: Duration = Duration::from_millis(50);
    match sync_time(directory) {
        Ok(time) => Finding::new(
            NAME,
            format!("a sync takes {:.1} ms", time.as_secs_f64() * 1000.0),
            time > SLOW,
            "with appendfsync always each group of writes waits as long: use a faster disk, or everysec",
        ),
        Err(error) => Finding::new(
            NAME,
            format!("{}: {error}", directory.display()),
            true,
            "nothing can be written there",
        ),
    }
}

fn sync_time(directory: &Path) -> std::io::Result<Duration> {
    let path = directory.join(format!(".dunlin-disk-{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
    // Its name goes at once, so that nothing stays.
    fs::remove_file(&path)?;
    let mut times = [Duration::ZERO; 5];
    for time in &mut times {
        let begun = Instant::now();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        *time = begun.elapsed();
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

/// The text of a file of the system; empty if there is none.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn overcommit(text: &str) -> Finding {
    let mode = text.trim();
    Finding::new(
        "overcommit",
        if mode.is_empty() { String::new() } else { format!("vm.overcommit_memory is {mode}") },
        mode == "2",
        "addresses that are reserved ahead may be refused: sysctl vm.overcommit_memory=0",
    )
}

/// Pages are asked for with madvise, so both `always` and `madvise` serve.
fn huge_pages(text: &str) -> Finding {
    let mode = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(mode, _)| mode);
    Finding::new(
        "huge pages",
        mode,
        mode == "never",
        "look-ups in a large data set take longer: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    )
}

fn clock_source(text: &str) -> Finding {
    let source = text.trim();
    Finding::new(
        "clock source",
        source,
        ["hpet", "acpi_pm", "jiffies", "refined-jiffies"].contains(&source),
        "reading the time is slow: choose tsc or the hypervisor's in /sys/devices/system/clocksource/clocksource0, if there is one",
    )
}

fn swap(meminfo: &str) -> Finding {
    let kilobytes = |name: &str| -> u64 {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
    };
    let (total, free) = (kilobytes("SwapTotal:"), kilobytes("SwapFree:"));
    let used = total.saturating_sub(free);
    Finding::new(
        "swap",
        if total == 0 {
            "none".to_owned()
        } else {
            format!("{} of {} MiB are used", used >> 10, total >> 10)
        },
        total > 0 && used * 10 > total,
        "memory that was swapped out takes milliseconds to come back: give the machine more, or set maxmemory lower",
    )
}

fn backlog(text: &str) -> Finding {
    let most = text.trim();
    let is_low = most.parse::<u32>().is_ok_and(|most| most < 511);
    Finding::new(
        "connections that wait",
        if most.is_empty() { String::new() } else { format!("net.core.somaxconn is {most}") },
        is_low,
        "many clients that connect at once are refused: sysctl net.core.somaxconn=4096",
    )
}

fn open_files() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let shown = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    Finding::new(
        "open files",
        format!("{}, at most {}", shown(limit.current), shown(limit.maximum)),
        limit.maximum.is_some_and(|limit| limit < 10_240),
        "there is no room for maxclients 10000: raise the limit (LimitNOFILE= of systemd, ulimit -n)",
    )
}

fn ip_version_6(text: &str) -> Finding {
    Finding::good("IPv6", if text.is_empty() { "none" } else { "there" })
}

/// The line about its limits that a starting server logs at level notice.
pub(crate) fn announcement() -> Option<String> {
    let CgroupLimits { processors, memory } = CgroupLimits::read();
    let mut parts = Vec::new();
    parts.extend(processors.map(|limit| format!("{limit:.1} processors")));
    parts.extend(memory.map(|bytes| format!("{} MiB of memory", bytes >> 20)));
    (!parts.is_empty()).then(|| format!("Limits of the control group: {}", parts.join(", ")))
}

/// The warnings of a starting server.
pub(crate) fn warnings(maxmemory: u64, workers: usize) -> Vec<String> {
    let mut warnings: Vec<String> = findings()
        .into_iter()
        // `tcp-backlog` and `maxclients` have warnings of their own.
        .filter(|finding| !["connections that wait", "open files"].contains(&finding.name))
        .filter_map(|Finding { name, state, advice }| {
            advice.map(|advice| format!("{name}: {state}: {advice}"))
        })
        .collect();
    warnings.extend(limit_warnings(CgroupLimits::read(), maxmemory, workers));
    warnings
}

fn limit_warnings(limits: CgroupLimits, maxmemory: u64, workers: usize) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(limit) = limits.memory {
        let most = limit / 10 * 9;
        if maxmemory == 0 {
            warnings.push(format!(
                "The control group allows {} MiB, and maxmemory is not set: beyond it, the system ends the server; set maxmemory to {}mb or less",
                limit >> 20,
                (limit / 4 * 3) >> 20
            ));
        } else if maxmemory > most {
            warnings.push(format!(
                "maxmemory is {} MiB of the {} MiB that the control group allows: replication, scripts and fragmentation need room, too; set it to {}mb or less",
                maxmemory >> 20,
                limit >> 20,
                (limit / 4 * 3) >> 20
            ));
        }
    }
    if let Some(processors) = limits.processors
        && workers as f64 > processors.ceil()
    {
        warnings.push(format!(
            "threads {workers} are more than the {processors:.1} processors that the control group allows: they stop one another; leave threads out"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_judged_by_what_its_files_say() {
        let is_wrong = |finding: Finding| finding.advice.is_some();
        assert!(is_wrong(overcommit("2\n")) && !is_wrong(overcommit("1\n")) && !is_wrong(overcommit("")));
        assert!(
            is_wrong(huge_pages("always madvise [never]\n"))
                && !is_wrong(huge_pages("always [madvise] never\n"))
        );
        assert!(!is_wrong(huge_pages("nonsense")));
        assert!(is_wrong(clock_source("hpet\n")) && !is_wrong(clock_source("tsc\n")));
        assert!(is_wrong(swap("SwapTotal: 1000 kB\nSwapFree: 500 kB\n")));
        assert!(!is_wrong(swap("SwapTotal: 1000 kB\nSwapFree: 990 kB\n")) && !is_wrong(swap("")));
        assert!(is_wrong(backlog("128\n")) && !is_wrong(backlog("4096\n")));
    }

    #[test]
    fn limits_of_control_groups_are_the_lowest_on_the_way_to_the_root() {
        let of = |groups: &str, files: &[(&str, &str)]| {
            let file =
                |path: &str| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
            CgroupLimits::of(groups, &file)
        };
        assert_eq!(of("", &[]), CgroupLimits::default());
        let unified = [
            ("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "536870912\n"),
            ("/sys/fs/cgroup/memory.max", "max\n"),
        ];
        assert_eq!(
            of("0::/a/b\n", &unified),
            CgroupLimits { processors: Some(1.5), memory: Some(512 << 20) }
        );
        let in_container = [("/sys/fs/cgroup/cpu.max", "50000 100000\n")];
        assert_eq!(of("0::/\n", &in_container).processors, Some(0.5));
        let old = [
            ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(of("4:memory:/x\n", &old), CgroupLimits::default());
    }

    #[test]
    fn limits_are_compared_with_the_configuration() {
        let limits = CgroupLimits { processors: Some(1.5), memory: Some(1 << 30) };
        assert_eq!(limit_warnings(limits, 512 << 20, 2), Vec::<String>::new());
        assert!(limit_warnings(limits, 0, 2)[0].contains("set maxmemory to 768mb"));
        assert!(limit_warnings(limits, 1 << 30, 2)[0].contains("set it to 768mb"));
        assert!(limit_warnings(limits, 512 << 20, 4)[0].contains("threads 4 are more than the 1.5"));
        assert_eq!(limit_warnings(CgroupLimits::default(), 0, 64), Vec::<String>::new());
    }

    #[test]
    fn disk_is_measured_and_nothing_stays() {
        let dir = crate::config::tests::ScratchDir::new("disk");
        assert!(disk(dir.path("").as_path()).state.contains("a sync takes"));
        assert_eq!(fs::read_dir(dir.path("")).unwrap().count(), 0);
        assert!(disk(Path::new("/nonexistent")).advice.is_some());
    }
}
