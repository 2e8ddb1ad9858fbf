//! Rows about collections: commands on one large collection.

use super::measure::{Conditions, run};
use super::rows::Transport;
use super::server::Server;
use crate::figures::{Sample, sample};

/// Members of the collections that whole commands run over.
const WHOLE_MEMBERS_MAX: u64 = 100_000;
/// How often such a command runs in one measurement.
const WHOLE_RUNS: u64 = 20;
const DATA_BYTES: usize = 16;

impl Conditions {
    /// CPU time for each request of a command at a pipeline depth, after `fill` has run once for each
    /// number of the key space.
    pub(super) fn command_cost(
        &self,
        server: &Server,
        fill: Option<&str>,
        words: &str,
        pipeline: usize,
    ) -> Result<Vec<Sample>, String> {
        if let Some(fill) = fill {
            self.fill(server, fill, self.scale.keys, DATA_BYTES)?;
        }
        let mut plan = self.plan(words, Some(self.scale.keys), DATA_BYTES);
        plan.requests = None;
        plan.pipeline = pipeline;
        plan.duration = Some(self.scale.warmup);
        run(server, Transport::Tcp, &plan)?;
        plan.duration = Some(self.scale.measured);
        let cpu_before_ns = server.cpu_ns()?;
        let outcome = run(server, Transport::Tcp, &plan)?;
        let cpu_ns = server.cpu_ns()? - cpu_before_ns;
        if outcome.tally.nulls > 0 {
            return Err(format!("{} requests found nothing", outcome.tally.nulls));
        }
        Ok(vec![
            sample("server CPU per request", "µs", cpu_ns as f64 / 1e3 / outcome.tally.replies as f64),
            sample("throughput", "requests/s", outcome.requests_per_second()),
        ])
    }

    /// CPU time of a command that works through whole collections, made by `fills`.
    pub(super) fn whole_cost(
        &self,
        server: &Server,
        fills: &[&str],
        words: &str,
    ) -> Result<Vec<Sample>, String> {
        let members = self.scale.keys.min(WHOLE_MEMBERS_MAX);
        for fill in fills {
            let mut plan = self.plan(fill, Some(members), DATA_BYTES);
            plan.requests = Some(members);
            plan.pipeline = super::measure::FILL_PIPELINE;
            run(server, Transport::Tcp, &plan)?;
        }
        let mut plan = self.plan(words, None, DATA_BYTES);
        plan.requests = Some(WHOLE_RUNS);
        plan.clients = 1;
        let cpu_before_ns = server.cpu_ns()?;
        run(server, Transport::Tcp, &plan)?;
        let cpu_ns = server.cpu_ns()? - cpu_before_ns;
        Ok(vec![sample("server CPU per command", "ms", cpu_ns as f64 / 1e6 / WHOLE_RUNS as f64)])
    }
}
