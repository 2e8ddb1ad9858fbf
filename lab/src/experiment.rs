//! An experiment, and the means that it gets to work with.

use std::time::Duration;

use indicatif::ProgressBar;

use super::contender::{Contender, Settings};
use super::results::{Results, Section};
use super::server::Server;
use super::slo::Slo;
use dunlin_bench::figures::{Sample, thousands};
use dunlin_bench::load::{Outcome, Plan};
use dunlin_bench::template::{Filling, Template};

/// An experiment: a row of the lab's table beside the function that carries it out.
pub struct Experiment {
    /// The name by which the command line selects it.
    pub name: &'static str,
    /// The founding experiment it belongs to (`E1` to `E5`); selects all of that.
    pub founding: &'static str,
    /// Heading in the report. `{name}` stands for the size of that name, here and in the explanation.
    pub title: &'static str,
    /// The work, the question, and the figures to look at.
    pub explanation: [&'static str; 3],
    /// Sizes that its title and explanation mention.
    pub sizes: &'static [Size],
    /// Its cost on two cores, for an estimate beforehand.
    pub cost: Cost,
    /// Carries it out. Fails if a server answers wrongly.
    pub run: fn(&Lab) -> Result<Results, String>,
}

/// Seconds of one server in one round, as they were on the two cores of docs/benchmarks.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// At any scale.
    pub always_s: f64,
    /// Besides, of measuring for a time, at a scale that does not shorten it.
    pub timed_s: f64,
    /// Besides, of work as large as the scale, at scale 1.
    pub sized_s: f64,
}

/// A number of things that follows the scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// Its name in titles and explanations.
    pub name: &'static str,
    /// The number at scale 1.
    pub full: u64,
    /// The number at the smallest scale.
    pub least: u64,
    /// The number at the largest scale.
    pub most: u64,
}

impl Size {
    /// A size of `full` things at scale 1, and at least `least` of them.
    pub const fn new(name: &'static str, full: u64, least: u64) -> Self {
        Self { name, full, least, most: u64::MAX }
    }

    /// This size, but never larger than at scale 1.
    pub const fn at_most_full(self) -> Self {
        Self { most: self.full, ..self }
    }
}

impl Experiment {
    /// The title of a run at this scale.
    pub fn title_at(&self, scale: Scale) -> String {
        self.sized(self.title, scale)
    }

    /// The explanation of a run at this scale.
    pub fn explanation_at(&self, scale: Scale) -> [String; 3] {
        self.explanation.map(|line| self.sized(line, scale))
    }

    fn sized(&self, text: &str, scale: Scale) -> String {
        self.sizes.iter().fold(text.to_string(), |text, size| {
            text.replace(&format!("{{{}}}", size.name), &thousands(scale.of(*size)))
        })
    }

    /// About how long it takes.
    pub fn expected(&self, scale: Scale, servers: usize, rounds: u32) -> Duration {
        let Cost { always_s, timed_s, sized_s } = self.cost;
        let timed = scale.time(Duration::from_secs_f64(timed_s));
        let turn = Duration::from_secs_f64(always_s + sized_s * scale.0) + timed;
        turn * servers as u32 * rounds
    }
}

/// Connections of the usual load, those of redis-benchmark.
pub const CLIENTS: usize = 50;
const MEASURED: Duration = Duration::from_millis(1500);
const WARMUP: Duration = Duration::from_millis(300);
const FILL_CLIENTS: usize = 8;
const FILL_PIPELINE: usize = 100;

/// How large everything is: 1 is the size of the published experiment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale(pub f64);

/// No measurement is shorter; below it says nothing, even in a test.
const MEASURED_MIN: Duration = Duration::from_millis(50);

impl Scale {
    /// Below it, figures are those of short times and small data: they show that the lab works.
    pub const TELLING_MIN: f64 = 0.05;
    /// Below it, times to measure for are cut: smaller data are no reason for less telling figures.
    const WHOLE_TIMES_MIN: f64 = 0.2;

    /// The number of things at this scale.
    pub fn of(self, size: Size) -> u64 {
        self.count(size.full, size.least).min(size.most)
    }

    /// A number of things, at least `least` of them.
    pub fn count(self, full: u64, least: u64) -> u64 {
        ((full as f64 * self.0).round() as u64).max(least)
    }

    /// A time to measure for: whole down to a fifth of the published size, and shorter below.
    pub fn time(self, full: Duration) -> Duration {
        full.mul_f64((self.0 / Self::WHOLE_TIMES_MIN).min(1.0)).max(MEASURED_MIN.min(full))
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
    /// Latency to keep, for which the highest rate is searched.
    pub slo: Option<Slo>,
    /// Shows how far it is.
    pub bar: ProgressBar,
}

impl Lab {
    /// A plan of the lab's usual load for a command: a closed loop of 50 connections.
    pub fn plan(&self, words: &str, keyspace: Option<u64>, value_bytes: usize, round: u32) -> Plan {
        let mut plan = Plan::new(Template::words(words), Filling::new(keyspace, value_bytes));
        plan.clients = CLIENTS;
        plan.threads = self.client_processors.len();
        plan.seed = self.seed.wrapping_add(u64::from(round) + 1);
        plan
    }

    /// Runs a plan for the usual time, warmed up before.
    pub fn timed<T>(
        &self,
        plan: &Plan,
        mut run: impl FnMut(&Plan) -> Result<T, String>,
    ) -> Result<T, String> {
        let mut plan = plan.clone();
        plan.requests = None;
        plan.duration = Some(self.scale.time(WARMUP));
        run(&plan)?;
        plan.duration = Some(self.scale.time(MEASURED));
        run(&plan)
    }

    /// Writes the keys `key:0` to `key:KEYS-1`, and none other.
    pub fn fill(&self, server: &Server, keys: u64, value_bytes: usize) -> Result<(), String> {
        let mut plan = self.plan("SET key:__seq_int__ __data__", Some(keys), value_bytes, 0);
        plan.requests = Some(keys);
        plan.clients = FILL_CLIENTS;
        plan.pipeline = FILL_PIPELINE;
        server.load(&plan)?;
        server.expect_keys(keys)
    }

    /// Checks the answers of servers and fills them.
    pub fn prepare(&self, servers: &[Server], keys: u64, value_bytes: usize) -> Result<(), String> {
        for server in servers {
            self.bar.set_message(format!("filling {}", server.name));
            server
                .check_answers(2 * value_bytes)
                .and_then(|()| self.fill(server, keys, value_bytes))
                .map_err(|error| format!("{}: {error}", server.name))?;
        }
        Ok(())
    }

    /// The contenders that experiments about keys can measure.
    fn keepers_of_keys(&self) -> impl Iterator<Item = &Contender> {
        self.contenders.iter().filter(|contender| contender.keeps_keys())
    }

    /// Starts, or connects to, all contenders that keep keys and that `wants` chooses.
    pub fn start(
        &self,
        results: &mut Results,
        settings: Settings,
        wants: impl Fn(&Contender) -> bool,
    ) -> Result<Vec<Server>, String> {
        let mut servers = Vec::new();
        for contender in self.keepers_of_keys().filter(|contender| wants(contender)) {
            self.bar.set_message(format!("starting {}", contender.name));
            let server = contender
                .start(settings, &self.server_processors)
                .map_err(|error| format!("{}: {error}", contender.name))?;
            self.enter(results, &server);
            servers.push(server);
        }
        if servers.is_empty() {
            return Err("no server that it could measure was chosen".into());
        }
        Ok(servers)
    }

    /// Starts contenders with an append-only file. Contenders that refuse it, or run already without
    /// one, are left out, and the results say so.
    pub fn start_appending(
        &self,
        results: &mut Results,
        wants: impl Fn(&Contender) -> bool,
    ) -> Result<Vec<Server>, String> {
        let mut servers = Vec::new();
        for contender in self.keepers_of_keys().filter(|contender| wants(contender)) {
            self.bar.set_message(format!("starting {}", contender.name));
            let server =
                contender.start(Settings::AppendOnly, &self.server_processors).and_then(
                    |server| match server.setting("appendonly")?.as_deref() {
                        Some("yes") => Ok(server),
                        other => Err(format!("appendonly is {}", other.unwrap_or("unknown"))),
                    },
                );
            match server {
                Ok(server) => {
                    self.enter(results, &server);
                    servers.push(server);
                }
                Err(reason) => {
                    results
                        .notes
                        .push(format!("{} with an append-only file is left out: {reason}", contender.name));
                }
            }
        }
        Ok(servers)
    }

    /// Puts a server among the conditions of the results.
    fn enter(&self, results: &mut Results, server: &Server) {
        results.setting(format!("{}: {}", server.name, server.settings));
        if let Some(left_behind) = &server.left_behind {
            self.tell(results, format!("{}: {left_behind}", server.name));
        }
    }

    /// Reports at once, and in the report, the lab's actions beside measuring.
    pub fn tell(&self, results: &mut Results, note: String) {
        self.bar.suspend(|| eprintln!("{note}"));
        results.notes.push(note);
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

/// Fails unless every reply carried a whole value.
pub fn expect_hits(outcome: &Outcome, value_bytes: usize) -> Result<(), String> {
    let tally = &outcome.tally;
    let expected = tally.replies * value_bytes as u64;
    if tally.nulls > 0 || tally.payload_bytes != expected {
        return Err(format!(
            "wrong answers: {} of {} GETs found nothing, {} bytes came instead of {expected}",
            tally.nulls, tally.replies, tally.payload_bytes
        ));
    }
    Ok(())
}

/// The columns of servers.
pub fn names(servers: &[Server]) -> Vec<String> {
    servers.iter().map(|server| server.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_say_the_size_of_the_run() {
        let experiment = crate::EXPERIMENTS.iter().find(|experiment| experiment.name == "mixes").unwrap();
        assert!(experiment.title_at(Scale(1.0)).starts_with("10,000,000 keys: "));
        assert!(experiment.title_at(Scale(0.1)).starts_with("1,000,000 keys: "));
        for experiment in crate::EXPERIMENTS {
            for text in [experiment.title_at(Scale(0.1)), experiment.explanation_at(Scale(0.1)).join(" ")] {
                assert!(!text.contains(['{', '}']), "{text}");
            }
        }
    }

    #[test]
    fn counts_follow_the_scale_and_times_only_shrink() {
        assert_eq!((Scale(0.001).count(1_000_000, 10), Scale(0.001).count(1000, 10)), (1000, 10));
        assert_eq!(Scale(2.0).count(1000, 10), 2000);
        let full = Duration::from_secs(2);
        assert_eq!((Scale(2.0).time(full), Scale(0.2).time(full)), (full, full));
        assert_eq!(Scale(0.1).time(full), full / 2);
        assert_eq!(Scale(0.0001).time(full), MEASURED_MIN);
    }
}
