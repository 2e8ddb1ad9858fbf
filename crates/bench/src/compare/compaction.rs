//! Rows about snapshots under load: throughput, latency and memory over time while a server writes its data set to
//! disk.
//!
//! ```text
//! requests/s ──────┐            ┌──────
//!                  └────────────┘
//!            before│ meanwhile  │ as long afterwards      in windows of 100 ms
//!               asked         done                   the load ends
//! ```
//!
//! The more windows there are, the slower is the slowest of them, with any server. The windows afterwards show how slow
//! it is on this machine when nothing is written, and whether the machine is as fast as it was before.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    measure::{Conditions, run, run_watched},
    rows::Transport,
    server::Server,
};
use crate::{
    figures::{Sample, sample},
    latency::Latencies,
    load::Progress,
    plot::course::{Stretch, stretches},
};

const VALUE_BYTES: usize = 100;
const PIPELINE: usize = 16;
/// How the time is divided.
pub(super) const WINDOW: Duration = Duration::from_millis(100);
/// The load before the command, and after its end at least, in measurements of requests.
const BESIDE: u32 = 2;
/// The least of that in windows: one is to be whole even if the load was slow to begin.
const BESIDE_WINDOWS_MIN: u32 = 5;
/// How long the load goes on at most: longer than the wait for the files, and as long again.
const LOAD_MAX: Duration = Duration::from_secs(1300);
const POLL: Duration = Duration::from_millis(10);
/// How long it may take in all.
const TIME_MAX: Duration = Duration::from_secs(600);

/// The course of one measurement.
#[derive(Debug, Clone)]
pub(super) struct Course {
    pub(super) server: String,
    pub(super) windows: Vec<Latencies>,
    pub(super) stretch: Stretch,
}

/// The operation that writes the data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// BGSAVE, without a log.
    Snapshot,
    /// BGREWRITEAOF, with `appendfsync everysec`.
    Rewrite,
}

impl Write {
    fn command(self) -> &'static str {
        match self {
            Self::Snapshot => "BGSAVE",
            Self::Rewrite => "BGREWRITEAOF",
        }
    }

    /// The field of INFO that says whether it goes on, and the one that says how it ended.
    fn fields(self) -> (&'static str, &'static str) {
        match self {
            Self::Snapshot => ("rdb_bgsave_in_progress", "rdb_last_bgsave_status"),
            Self::Rewrite => ("aof_rewrite_in_progress", "aof_last_bgrewrite_status"),
        }
    }
}

impl Conditions {
    /// Throughput, latency and memory under a load of SETs at full speed, before and while the data set is
    /// written; and how long that takes when nothing else happens.
    pub(super) fn compaction(&self, server: &Server, write: Write) -> Result<(Vec<Sample>, Course), String> {
        let keys = self.scale.compaction_keys;
        let told = |error: crate::target::TargetError| error.to_string();
        if write == Write::Rewrite {
            // A rewrite that begins by itself while the keys are filled in would be taken for the one that is asked
            // for.
            let words = ["CONFIG", "SET", "auto-aof-rewrite-percentage", "0", "appendonly", "yes"];
            server.client()?.call(&words).map_err(told)?;
            await_end(server, write, Instant::now(), &mut |_| Ok(()))?;
        }
        self.fill(server, "SET key:__seq_int__ __data__", keys, VALUE_BYTES)?;
        let mut plan = self.plan("SET key:__rand_int__ __data__", Some(keys), VALUE_BYTES);
        plan.requests = None;
        plan.pipeline = PIPELINE;
        plan.duration = Some(self.scale.warmup);
        run(server, Transport::Tcp, &plan)?;
        plan.duration = Some(LOAD_MAX);
        plan.slice = Some(WINDOW);
        let beside = (self.scale.measured * BESIDE).max(WINDOW * BESIDE_WINDOWS_MIN);
        let (progress, mut bytes_max, start) = (Progress::default(), 0.0_f64, Instant::now());
        let (outcome, bytes_before, stretch, loaded) = thread::scope(|scope| {
            let load = scope.spawn(|| run_watched(server, Transport::Tcp, &plan, &progress));
            thread::sleep(beside.saturating_sub(start.elapsed()));
            let bytes_before = server.resident_bytes();
            let stretch = begin_and_await(server, write, start, &mut |copied_bytes| {
                bytes_max = bytes_max.max(server.resident_bytes()? as f64 + copied_bytes);
                Ok(())
            });
            if let Ok((begun, ended)) = stretch {
                thread::sleep(beside.max(ended - begun));
            }
            let loaded = start.elapsed().min(LOAD_MAX);
            progress.stop();
            (load.join().expect("the loading thread panicked"), bytes_before, stretch, loaded)
        });
        let (outcome, bytes_before, stretch) = (outcome?, bytes_before? as f64, stretch?);
        if outcome.tally.nulls > 0 || outcome.tally.payload_bytes > 0 {
            return Err("wrong answers: a SET was answered with something else".into());
        }
        let mut windows = outcome.slices;
        // Requests under way in the end fell into a window that is not whole.
        windows.truncate(loaded.div_duration_f64(WINDOW) as usize);
        let quiet_from = Instant::now();
        let (asked, done) = begin_and_await(server, write, quiet_from, &mut |_| Ok(()))?;
        let parts = stretches(&windows, WINDOW, stretch);
        let mut samples = samples(parts.map(|(_, windows)| windows))?;
        samples.extend([
            sample("peak memory", "× of before", bytes_max / bytes_before),
            sample("time", "s", (stretch.1 - stretch.0).as_secs_f64()),
            sample("time without load", "s", (done - asked).as_secs_f64()),
        ]);
        Ok((samples, Course { server: server.program.name.clone(), windows, stretch }))
    }
}

/// The samples of the windows.
fn samples([before, meanwhile, after]: [Vec<&Latencies>; 3]) -> Result<Vec<Sample>, String> {
    let together = |windows: &[&Latencies]| {
        let mut all = Latencies::default();
        windows.iter().for_each(|window| all.add(window));
        all
    };
    let (calm, disturbed) = (together(&before), together(&meanwhile));
    if calm.count() == 0 || meanwhile.is_empty() || after.is_empty() {
        return Err("the load ended before the data set was written".into());
    }
    let rate = |all: &Latencies, windows: usize| all.count() as f64 / windows as f64 / WINDOW.as_secs_f64();
    let usual = rate(&calm, before.len());
    let slowest = |windows: &[&Latencies]| {
        windows.iter().map(|window| rate(window, 1)).fold(f64::INFINITY, f64::min) / usual
    };
    // At most as many as there were meanwhile, and the last: the new files are yet to be put in their place.
    let afterwards = &after[after.len().saturating_sub(meanwhile.len())..];
    let all_afterwards = together(afterwards);
    Ok(vec![
        sample("throughput meanwhile", "× of before", rate(&disturbed, meanwhile.len()) / usual),
        sample("slowest 100 ms", "× of before", slowest(&meanwhile)),
        sample("slowest 100 ms afterwards", "× of before", slowest(afterwards)),
        sample("throughput afterwards", "× of before", rate(&all_afterwards, afterwards.len()) / usual),
        sample("throughput before", "requests/s", usual),
        sample("p99.9 before", "ms", calm.quantile_ms(0.999)),
        sample("p99.9 meanwhile", "ms", disturbed.quantile_ms(0.999)),
    ])
}

/// Makes the server write its data set. Returns when that began and ended, from `start`.
fn begin_and_await(
    server: &Server,
    write: Write,
    start: Instant,
    look: &mut dyn FnMut(f64) -> Result<(), String>,
) -> Result<Stretch, String> {
    let begun = start.elapsed();
    server.client()?.call(&[write.command()]).map_err(|error| error.to_string())?;
    await_end(server, write, start, look)?;
    Ok((begun, start.elapsed()))
}

/// Waits until the server has stopped writing. Between two looks, `look` gets the number of bytes that a forked
/// process has copied.
pub(super) fn await_end(
    server: &Server,
    write: Write,
    start: Instant,
    look: &mut dyn FnMut(f64) -> Result<(), String>,
) -> Result<(), String> {
    let (in_progress, status) = write.fields();
    let mut client = server.client()?;
    let asked = start.elapsed();
    loop {
        let info = client.info("persistence").map_err(|error| error.to_string())?;
        let info = info.ok_or("INFO persistence was refused")?;
        look(info.number("current_cow_peak").unwrap_or(0.0))?;
        let is_pending = |field: &str| info.number(field).is_some_and(|value| value > 0.0);
        if !is_pending(in_progress) && !is_pending("aof_rewrite_scheduled") {
            return match info.field(status) {
                Some("ok") => Ok(()),
                other => Err(format!("{} ended with {}", write.command(), other.unwrap_or("nothing"))),
            };
        }
        if start.elapsed() > asked + TIME_MAX {
            return Err(format!("{} goes on after {} s", write.command(), TIME_MAX.as_secs()));
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_during_and_after_compaction_are_relative_to_before() {
        let window = |requests: u64| {
            let mut window = Latencies::default();
            window.record(1_000_000, requests);
            window
        };
        let (calm, slow, half) = (window(1000), window(200), window(500));
        let parts = [vec![&calm, &calm], vec![&half, &slow, &half], vec![&slow, &calm, &half, &calm]];
        let samples = samples(parts).unwrap();
        assert_eq!([0, 1, 2, 3, 4].map(|index| samples[index].value), [0.4, 0.2, 0.5, 2.5 / 3.0, 10_000.0]);
        assert!(super::samples([vec![&calm], vec![], vec![&calm]]).is_err());
        assert!(super::samples([vec![&calm], vec![&calm], vec![]]).is_err());
    }
}
