//! Rows about long commands: how long other clients wait while one command works through a collection of millions.
//!
//! ```text
//! probe    GET GET GET GET GET GET GET GET GET …      due at a fixed rate, however the server answers
//! command          ├── SMEMBERS ──────┤
//!          │ before│ meanwhile, and a while behind: removed values are freed in the background
//! ```

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    measure::{Conditions, LASTING_KEYS, run, run_watched},
    rows::Transport,
    server::Server,
};
use crate::{
    figures::{Sample, sample},
    load::{Outcome, Plan, Progress},
};

const DATA_BYTES: usize = 16;
/// Members under way at once while a collection is filled by one client, which waits for all of their answers before it
/// sends more: most of the time of a row is spent on that.
const FILL_PIPELINE: usize = 1000;
const PROBE_CLIENTS: usize = 4;
const PROBES_PER_SECOND: f64 = 2000.0;
/// How long the probe goes on after the answer.
const BEHIND: Duration = Duration::from_secs(2);
/// How long the command may take.
const TIME_MAX: Duration = Duration::from_secs(300);

impl Conditions {
    /// Latency of other clients' requests before a command and while it runs. `fills` are run for each member,
    /// those without a placeholder once.
    pub(super) fn beside(&self, server: &Server, fills: &[&str], words: &str) -> Result<Vec<Sample>, String> {
        self.fill(server, "SET lasting:__seq_int__ __data__", LASTING_KEYS, DATA_BYTES)?;
        for fill in fills {
            let requests = if fill.contains("__") { self.scale.long_members } else { 1 };
            let mut plan = self.plan(fill, Some(self.scale.long_members), DATA_BYTES);
            plan.requests = Some(requests);
            // In one order, as lists and streams keep it.
            plan.clients = 1;
            plan.pipeline = FILL_PIPELINE;
            run(server, Transport::Tcp, &plan)?;
        }
        let mut probe = self.plan("GET lasting:__rand_int__", Some(LASTING_KEYS), DATA_BYTES);
        probe.requests = None;
        probe.clients = PROBE_CLIENTS;
        probe.rate = Some(PROBES_PER_SECOND);
        // The probe shares processors with the server: a probe that spun would hold the workers up itself.
        probe.sleeps = true;
        let (before, ()) = probed(server, &probe, || {
            thread::sleep(self.scale.measured);
            Ok(())
        })?;

        let mut plan = self.plan(words, None, DATA_BYTES);
        plan.requests = Some(1);
        plan.clients = 1;
        plan.stall_max = Some(TIME_MAX);
        let (meanwhile, elapsed) = probed(server, &probe, || {
            let start = Instant::now();
            run(server, Transport::Tcp, &plan)?;
            let elapsed = start.elapsed();
            thread::sleep(BEHIND.min(self.scale.measured));
            Ok(elapsed)
        })?;
        Ok(vec![
            sample("p99.9 meanwhile", "ms", meanwhile.latencies.quantile_ms(0.999)),
            sample("slowest meanwhile", "ms", meanwhile.latencies.summary().max),
            sample("p99.9 before", "ms", before.latencies.quantile_ms(0.999)),
            sample("time of the command", "ms", elapsed.as_secs_f64() * 1e3),
        ])
    }
}

/// Runs `work`, and returns the probe's figures meanwhile.
fn probed<R>(
    server: &Server,
    probe: &Plan,
    work: impl FnOnce() -> Result<R, String>,
) -> Result<(Outcome, R), String> {
    let progress = Progress::default();
    let (outcome, done) = thread::scope(|scope| {
        let prober = scope.spawn(|| run_watched(server, Transport::Tcp, probe, &progress));
        let done = work();
        progress.stop();
        (prober.join().expect("the probing thread panicked"), done)
    });
    let (outcome, done) = (outcome?, done?);
    match outcome.tally.nulls {
        0 => Ok((outcome, done)),
        nulls => Err(format!("{nulls} keys were missing")),
    }
}
