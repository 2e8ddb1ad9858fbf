//! What an experiment is, and what it gets to work with.

use std::time::Duration;

use indicatif::ProgressBar;

use super::contender::{Contender, Settings};
use super::results::{Results, Section};
use super::server::Server;
use crate::figures::Sample;
use crate::load::Plan;
use crate::template::{Filling, Template};

/// One experiment: a row of the lab's table beside the function that carries it out.
pub struct Experiment {
    /// What the command line selects it by.
    pub name: &'static str,
    /// The founding experiment it belongs to (`E1` to `E5`); selects all of that.
    pub founding: &'static str,
    /// Heading in the report.
    pub title: &'static str,
    /// What it does, what it answers, what to look at.
    pub explanation: [&'static str; 3],
    /// Carries it out. Fails where a server answers wrongly.
    pub run: fn(&Lab) -> Result<Results, String>,
}

/// How large everything is: 1 is the size of the published experiment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale(pub f64);

/// No measurement is shorter; below it says nothing, even in a test.
const MEASURED_MIN: Duration = Duration::from_millis(50);

impl Scale {
    /// A number of things, at least `least` of them.
    pub fn count(self, full: u64, least: u64) -> u64 {
        ((full as f64 * self.0).round() as u64).max(least)
    }

    /// A time to measure for: shrinks with the scale and does not grow with it.
    pub fn time(self, full: Duration) -> Duration {
        full.mul_f64(self.0.min(1.0)).max(MEASURED_MIN.min(full))
    }
}

/// Everything that experiments share.
pub struct Lab {
    /// The columns.
    pub contenders: Vec<Contender>,
    /// Sizes.
    pub scale: Scale,
    /// How often each server has its turn.
    pub rounds: u32,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Processors of the servers that the lab starts.
    pub server_processors: Vec<usize>,
    /// Processors of the load.
    pub client_processors: Vec<usize>,
    /// A page of the fan-pages experiment to print.
    pub query: Option<u32>,
    /// Shows how far it is.
    pub bar: ProgressBar,
}

impl Lab {
    /// A plan of the lab's usual load for a command.
    pub fn plan(&self, words: &str, keyspace: Option<u64>, value_bytes: usize, round: u32) -> Plan {
        let mut plan = Plan::new(Template::words(words), Filling::new(keyspace, value_bytes));
        plan.threads = self.client_processors.len();
        plan.seed = self.seed.wrapping_add(u64::from(round) + 1);
        plan
    }

    /// Starts, or connects to, all contenders that `wants` chooses. A server that cannot have the
    /// settings is named in the results; any other failure ends the experiment.
    pub fn start(
        &self,
        results: &mut Results,
        settings: Settings,
        wants: impl Fn(&Contender) -> bool,
    ) -> Result<Vec<Server>, String> {
        let mut servers = Vec::new();
        for contender in self.contenders.iter().filter(|contender| wants(contender)) {
            self.bar.set_message(format!("starting {}", contender.name));
            let server = contender
                .start(settings, &self.server_processors)
                .map_err(|error| format!("{}: {error}", contender.name))?;
            results.setting(format!("{}: {}", server.name, server.settings));
            servers.push(server);
        }
        if servers.is_empty() {
            return Err("no server that it could measure was chosen".into());
        }
        Ok(servers)
    }

    /// Lets the servers take turns over `rows`, each round beginning with another server, and adds
    /// what `measure` gives to the section.
    pub fn alternate<Row>(
        &self,
        section: &mut Section,
        servers: &[Server],
        rows: &[(String, Row)],
        measure: impl Fn(u32, &Row, &Server) -> Result<Vec<Sample>, String>,
    ) -> Result<(), String> {
        self.bar.inc_length(u64::from(self.rounds) * (rows.len() * servers.len()) as u64);
        for round in 0..self.rounds {
            for (name, row) in rows {
                for turn in 0..servers.len() {
                    let server = &servers[(turn + round as usize) % servers.len()];
                    self.bar.set_message(format!("{}: {name} on {}", section.title, server.name));
                    let samples = measure(round, row, server)
                        .map_err(|error| format!("{name} on {}: {error}", server.name))?;
                    section.table.add(name, &server.name, samples);
                    self.bar.inc(1);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_the_scale_and_times_only_shrink() {
        assert_eq!((Scale(0.001).count(1_000_000, 10), Scale(0.001).count(1000, 10)), (1000, 10));
        assert_eq!(Scale(2.0).count(1000, 10), 2000);
        let full = Duration::from_secs(2);
        assert_eq!((Scale(2.0).time(full), Scale(0.5).time(full)), (full, full / 2));
        assert_eq!(Scale(0.0001).time(full), MEASURED_MIN);
    }
}
