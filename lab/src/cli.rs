//! The command line of `dunlin-lab`, and the course of a whole run.

use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::EXPERIMENTS;
use super::contender::{CLIENTS_MAX, Contender, Unusable};
use super::experiment::{Experiment, Lab, Scale};
use super::fan_pages::FAN_PAGES;
use super::report::Report;
use super::results::Results;
use super::slo::Slo;
use dunlin_bench::{affinity, process};

const ROUNDS: u32 = 3;
/// How often a run whose output is no terminal says how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(15);
/// Descriptors needed beside those of the connections.
const SPARE_DESCRIPTORS: u64 = 256;

const EXAMPLES: &str = "\
Examples:
  What there is:
    $ dunlin-lab list
  One experiment against redis-server, a tenth of its size:
    $ dunlin-lab pipelining --scale 0.1
  Everything of the first founding experiment, with a proxy before four Redis processes:
    $ dunlin-lab E1 --peer redis-server --peer nutcracker=4
  Against what runs in production today (an empty database of it):
    $ dunlin-lab --target today=redis://cache.example:6379/9
  The mixes, and the highest rate at which 999 of 1000 requests are answered within two milliseconds:
    $ dunlin-lab mixes --slo p99.9=2ms
  One page's record out of the fan pages:
    $ dunlin-lab fan-pages --query 17 --peer memcached
  The report once more, from the results of an earlier run:
    $ dunlin-lab --from lab-report/results.json";

/// Runs published experiments with in-memory stores against Dunlin and others, and writes a report.
///
/// The lab starts Dunlin and the peers itself, on free ports of the loopback interface, restricted to the
/// same processors; the load has processors of its own where the machine has two or more. Servers take
/// turns within each round. Every experiment checks the answers of each server before it reports a time,
/// and fails where they are wrong.
#[derive(Debug, Parser)]
#[command(name = "dunlin-lab", bin_name = "dunlin-lab", after_help = EXAMPLES)]
pub struct LabArguments {
    /// Experiments by name, by number in the list, or by founding experiment (E1 to E5); `all`, or none, for all;
    /// `list` explains them
    #[arg(value_name = "EXPERIMENT")]
    experiments: Vec<String>,
    /// A server that runs already: redis://, rediss://, unix:// or memcached://, whose database must be empty, or
    /// postgres:// (for the fan pages, in a schema of their own); rediss://HOST?cacert=FILE or ?insecure=true
    #[arg(long, value_name = "NAME=URL")]
    target: Vec<String>,
    /// A program to start: redis-server, valkey-server, memcached, nutcracker=K, sharded=K, [NAME=]PATH;
    /// redis-server when neither peer nor target is given. A program that is not on PATH is left out
    #[arg(long, value_name = "PEER")]
    peer: Vec<String>,
    /// Leave Dunlin out
    #[arg(long)]
    without_dunlin: bool,
    /// Dunlin's executable; the one beside this program, or on PATH, when omitted
    #[arg(long, value_name = "PATH", conflicts_with = "without_dunlin")]
    dunlin: Option<PathBuf>,
    /// Sizes and times, 1 being those of the published experiments; with a name, those of one experiment
    #[arg(long, value_name = "[EXPERIMENT=]FACTOR", default_value = "1", value_delimiter = ',', value_parser = ScaleOf::parse)]
    scale: Vec<ScaleOf>,
    /// Turns of each server in each row
    #[arg(long, value_name = "ROUNDS", default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seed of all random numbers; drawn by chance when omitted
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Processors of the servers, such as 0-3,6; half of what there is when omitted
    #[arg(long, value_name = "LIST", value_parser = processors)]
    server_processors: Option<Processors>,
    /// Processors of the load; the other half when omitted
    #[arg(long, value_name = "LIST", value_parser = processors)]
    client_processors: Option<Processors>,
    /// Print what every store of the fan pages says of this page
    #[arg(long, value_name = "PAGE")]
    query: Option<u32>,
    /// Also search the highest rate at which so many requests stay within so much time
    #[arg(long, value_name = "QUANTILE=TIME", value_parser = Slo::parse)]
    slo: Option<Slo>,
    /// Write the report once more from the results.json of an earlier run, and measure nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["experiments", "target", "peer", "query", "slo"])]
    from: Option<PathBuf>,
    /// Folder for the report
    #[arg(long, value_name = "FOLDER", default_value = "lab-report")]
    out: PathBuf,
}

/// The scale of one experiment, or of all that are not named.
#[derive(Debug, Clone, PartialEq)]
struct ScaleOf {
    experiment: Option<&'static str>,
    scale: Scale,
}

/// A list of processors.
#[derive(Debug, Clone, PartialEq)]
struct Processors(Vec<usize>);

impl LabArguments {
    /// Lists or runs the chosen experiments.
    pub fn run(&self) -> Result<(), String> {
        if self.experiments.iter().any(|name| name == "list") {
            dunlin_print::text(&list());
            return Ok(());
        }
        if let Some(file) = &self.from {
            return self.write(&Report::read(file)?);
        }
        let experiments = select(&self.experiments)?;
        let mut left_out = Vec::new();
        let mut lab = self.lab(&mut left_out)?;
        // Descriptors for the load; the servers that are started inherit the limit.
        let wanted = u64::from(CLIENTS_MAX) + SPARE_DESCRIPTORS;
        rlimit::increase_nofile_limit(wanted)
            .map_err(|error| format!("cannot raise the limit of open files: {error}"))?;
        let mut report = Report::new(&lab, &self.scales());
        for line in left_out {
            eprintln!("{line}");
            report.remark(line);
        }
        let expected = |experiment: &&Experiment| {
            experiment.expected(self.scale_of(experiment), lab.contenders.len(), self.rounds)
        };
        let mut pace = Pace::default();
        for (index, experiment) in experiments.iter().enumerate() {
            lab.scale = self.scale_of(experiment);
            let place = format!("[{}/{}] {}", index + 1, experiments.len(), experiment.name);
            let left = experiments[index..].iter().map(expected).sum();
            let [next, left] = [expected(experiment), left].map(|time| minutes(pace.estimate(time)));
            let source = pace.source();
            lab.bar.suspend(|| {
                eprintln!("{place}: about {next} min, {left} min to the end of the lab ({source})")
            });
            lab.bar.set_prefix(place);
            let start = Instant::now();
            let results = self.carry_out(experiment, &lab)?;
            pace.add(expected(experiment), start.elapsed());
            lab.bar.suspend(|| dunlin_print::say!("{}", report.terminal(&results)));
            report.results.push(results);
        }
        lab.bar.finish_and_clear();
        self.write(&report)
    }

    fn write(&self, report: &Report) -> Result<(), String> {
        report.write(&self.out)?;
        dunlin_print::say!("written to {}", self.out.join("report.html").display());
        Ok(())
    }

    /// The scale that an experiment runs at: its own, or the last that was given without a name.
    fn scale_of(&self, experiment: &Experiment) -> Scale {
        let last = |name: Option<&str>| self.scale.iter().rfind(|given| given.experiment == name);
        last(Some(experiment.name)).or(last(None)).map_or(Scale(1.0), |given| given.scale)
    }

    /// The scales as they were given.
    fn scales(&self) -> String {
        let given = self.scale.iter().map(|ScaleOf { experiment, scale }| match experiment {
            Some(name) => format!("{name}={}", scale.0),
            None => scale.0.to_string(),
        });
        given.collect::<Vec<_>>().join(", ")
    }

    /// Runs an experiment on a thread of the load's processors, so that nothing of it disturbs the
    /// servers; threads that it starts inherit them.
    fn carry_out(&self, experiment: &Experiment, lab: &Lab) -> Result<Results, String> {
        lab.bar.set_length(0);
        lab.bar.set_position(0);
        let result = thread::scope(|scope| {
            let running = scope.spawn(|| {
                affinity::restrict(&lab.client_processors)
                    .map_err(|error| format!("cannot restrict the load to its processors: {error}"))?;
                (experiment.run)(lab)
            });
            let (ended, end) = mpsc::channel::<()>();
            if lab.bar.is_hidden() {
                scope.spawn(move || say_progress(&lab.bar, &end));
            }
            let result = running.join();
            drop(ended);
            result.expect("the experiment panicked")
        });
        let mut results = result.map_err(|error| format!("{}: {error}", experiment.name))?;
        results.settings.insert(0, format!("scale {}", lab.scale.0));
        if lab.scale.0 < Scale::TELLING_MIN {
            results
                .notes
                .insert(0, "a trial: at a scale this small the lab only shows that it works, and its figures are not to be quoted".into());
        }
        if experiment.name != FAN_PAGES.name {
            let of_tables = lab.contenders.iter().filter(|contender| !contender.keeps_keys());
            let note =
                |contender: &Contender| format!("{} is left out: it keeps tables, not keys", contender.name);
            results.notes.extend(of_tables.map(note));
        }
        Ok(results)
    }

    /// Builds the state that the experiments share. Peers whose programs are missing are left out, with a line about each.
    fn lab(&self, left_out: &mut Vec<String>) -> Result<Lab, String> {
        let mut contenders = Vec::new();
        if !self.without_dunlin {
            contenders.push(Contender::dunlin(self.dunlin.as_deref())?);
        }
        for target in &self.target {
            contenders.push(Contender::target(target)?);
        }
        for peer in &self.peer {
            match Contender::peer(peer) {
                Ok(contender) => contenders.push(contender),
                Err(Unusable::Wrong(error)) => return Err(error),
                Err(missing) => left_out.push(format!("--peer {peer} is left out: {missing}")),
            }
        }
        if contenders.is_empty() {
            return Err(format!("no server is left to measure: {}", left_out.join("; ")));
        }
        if self.target.is_empty()
            && self.peer.is_empty()
            && process::found(Path::new("redis-server")).is_some()
        {
            contenders.extend(Contender::peer("redis-server"));
        }
        for (index, contender) in contenders.iter().enumerate() {
            if contenders[..index].iter().any(|other| other.name == contender.name) {
                return Err(format!("two servers are called '{}': name one of them NAME=…", contender.name));
            }
        }
        let allowed = affinity::allowed()
            .map_err(|error| format!("cannot tell which processors there are: {error}"))?;
        let (servers, clients) = halves(&allowed);
        let chosen = |given: &Option<Processors>, otherwise: &[usize]| match given {
            None => Ok(otherwise.to_vec()),
            Some(Processors(list)) => match list.iter().find(|processor| !allowed.contains(processor)) {
                Some(missing) => Err(format!("processor {missing} is not one of those this process may use")),
                None => Ok(list.clone()),
            },
        };
        let seed = match self.seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(|error| format!("no random seed: {error}"))?,
        };
        Ok(Lab {
            contenders,
            scale: Scale(1.0),
            rounds: self.rounds,
            seed,
            server_processors: chosen(&self.server_processors, servers)?,
            client_processors: chosen(&self.client_processors, clients)?,
            query: self.query,
            slo: self.slo,
            bar: progress_bar(),
        })
    }
}

/// Servers get the first half of the processors, rounded up, and the load the rest; one processor is
/// shared.
fn halves(processors: &[usize]) -> (&[usize], &[usize]) {
    match processors.len() {
        0 | 1 => (processors, processors),
        count => processors.split_at(count.div_ceil(2)),
    }
}

/// The real times of experiments, beside those expected from their costs.
#[derive(Debug, Default)]
struct Pace {
    expected: Duration,
    measured: Duration,
}

impl Pace {
    fn add(&mut self, expected: Duration, measured: Duration) {
        self.expected += expected;
        self.measured += measured;
    }

    /// An expected time, corrected by the run's measurements so far.
    fn estimate(&self, expected: Duration) -> Duration {
        if self.expected.is_zero() {
            return expected;
        }
        expected.mul_f64(self.measured.as_secs_f64() / self.expected.as_secs_f64())
    }

    fn source(&self) -> &'static str {
        if self.expected.is_zero() { "as on two cores" } else { "by the pace of this run" }
    }
}

/// Prints now and then how far an experiment is, until the other end of the channel is gone.
fn say_progress(bar: &ProgressBar, end: &mpsc::Receiver<()>) {
    let start = Instant::now();
    while end.recv_timeout(PROGRESS_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let (done, all) = (bar.position(), bar.length().unwrap_or(0));
        eprintln!(
            "{}: {done} of {all} turns, {} min; {}",
            bar.prefix(),
            minutes(start.elapsed()),
            bar.message()
        );
    }
}

/// The experiments that the names or numbers choose, in the table's order.
fn select(names: &[String]) -> Result<Vec<&'static Experiment>, String> {
    let chooses = |name: &str, experiment: &Experiment| {
        experiment.name == name
            || experiment.founding.eq_ignore_ascii_case(name)
            || number(experiment).to_string() == name
    };
    for name in names {
        if name != "all" && !EXPERIMENTS.iter().any(|experiment| chooses(name, experiment)) {
            let known: Vec<_> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
            let mut founding: Vec<_> = EXPERIMENTS.iter().map(|experiment| experiment.founding).collect();
            founding.sort_unstable();
            founding.dedup();
            return Err(format!(
                "there is no experiment '{name}'; there are {}; and of all founding experiments, {}",
                known.join(", "),
                founding.join(", ")
            ));
        }
    }
    let wanted = |experiment: &&Experiment| {
        names.is_empty() || names.iter().any(|name| name == "all" || chooses(name, experiment))
    };
    Ok(EXPERIMENTS.iter().filter(wanted).collect())
}

/// An experiment's number in the list.
fn number(experiment: &Experiment) -> usize {
    EXPERIMENTS.iter().position(|other| other.name == experiment.name).map_or(0, |index| index + 1)
}

/// The text of `lab list`.
fn list() -> String {
    let mut text = String::new();
    for experiment in EXPERIMENTS {
        let Experiment { name, founding, .. } = experiment;
        let title = experiment.title_at(Scale(1.0));
        text.push_str(&format!("{}. {name} ({founding}): {title}\n", number(experiment)));
        for line in experiment.explanation_at(Scale(1.0)) {
            text.push_str(&format!("    {line}\n"));
        }
    }
    text
}

fn progress_bar() -> ProgressBar {
    let target =
        if stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{prefix} {elapsed} {wide_bar} {pos}/{len} {msg}")
        .expect("the template is a constant that parses");
    ProgressBar::with_draw_target(Some(0), target).with_style(style)
}

impl ScaleOf {
    /// Reads `0.1` or `mixes=0.1`.
    fn parse(text: &str) -> Result<Self, String> {
        let (experiment, factor) = match text.split_once('=') {
            None => (None, text),
            Some((name, factor)) => match EXPERIMENTS.iter().find(|experiment| experiment.name == name) {
                Some(experiment) => (Some(experiment.name), factor),
                None => return Err(format!("there is no experiment '{name}'")),
            },
        };
        match factor.parse::<f64>() {
            Ok(factor) if (1e-6..=100.0).contains(&factor) => Ok(Self { experiment, scale: Scale(factor) }),
            _ => Err("must be a number from 0.000001 to 100".into()),
        }
    }
}

/// Minutes for people.
fn minutes(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() / 60.0)
}

/// Reads `0-3,6`.
fn processors(text: &str) -> Result<Processors, String> {
    let bad = || format!("'{text}' is not a list of processors such as 0-3,6");
    let number = |text: &str| text.parse::<usize>().ok().filter(|number| *number < 4096).ok_or_else(bad);
    let mut list = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(bad());
        }
        list.extend(first..=last);
    }
    list.sort_unstable();
    list.dedup();
    Ok(Processors(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Result<Vec<&'static str>, String> {
        let list: Vec<String> = list.iter().map(|name| name.to_string()).collect();
        Ok(select(&list)?.iter().map(|experiment| experiment.name).collect())
    }

    #[test]
    fn experiments_are_chosen_by_name_and_by_founding_experiment() {
        assert_eq!(names(&["fan-pages", "pipelining"]).unwrap(), ["pipelining", "fan-pages"]);
        assert!(names(&["e1"]).unwrap().contains(&"pipelining"));
        assert_eq!(names(&[]).unwrap().len(), EXPERIMENTS.len());
        assert_eq!(names(&["all"]).unwrap().len(), EXPERIMENTS.len());
        assert_eq!(names(&["1", "2"]).unwrap(), ["pipelining", "cores"]);
        assert!(names(&["0"]).is_err());
        let error = names(&["E9"]).unwrap_err();
        assert!(error.starts_with("there is no experiment 'E9'; there are pipelining, "), "{error}");
        assert!(error.ends_with("E1, E2, E3, E4, E5, YCSB"), "{error}");
    }

    #[test]
    fn estimates_follow_the_pace_of_the_run() {
        let seconds = Duration::from_secs;
        let mut pace = Pace::default();
        assert_eq!(pace.estimate(seconds(30)), seconds(30));
        pace.add(seconds(10), seconds(20));
        pace.add(seconds(10), seconds(40));
        assert_eq!(pace.estimate(seconds(30)), seconds(90));
    }

    #[test]
    fn missing_programs_are_left_out_and_wrong_paths_refused() {
        let lab = |line: &str, left_out: &mut Vec<String>| {
            LabArguments::try_parse_from(line.split_whitespace())
                .unwrap()
                .lab(left_out)
                .map(|lab| lab.contenders.len())
        };
        let mut left_out = Vec::new();
        assert_eq!(
            lab("lab --dunlin /bin/sh --peer no-such-program --peer nutcracker-2=/bin/sh", &mut left_out),
            Ok(2)
        );
        assert_eq!(left_out, ["--peer no-such-program is left out: there is no `no-such-program` on PATH"]);
        assert!(lab("lab --dunlin /bin/sh --peer a=/no/such", &mut left_out).is_err());
        let nobody = lab("lab --without-dunlin --peer no-such-program", &mut left_out).unwrap_err();
        assert!(nobody.starts_with("no server is left to measure: "), "{nobody}");
    }

    #[test]
    fn scales_are_of_all_or_of_one() {
        let parse = |line: &str| LabArguments::try_parse_from(line.split_whitespace());
        let lab = parse("lab --scale 0.5,mixes=0.01 --scale ycsb=0.1").unwrap();
        let scale = |name: &str| {
            lab.scale_of(EXPERIMENTS.iter().find(|experiment| experiment.name == name).unwrap()).0
        };
        assert_eq!([scale("mixes"), scale("ycsb"), scale("pings")], [0.01, 0.1, 0.5]);
        assert_eq!(lab.scales(), "0.5, mixes=0.01, ycsb=0.1");
        let defaulted = parse("lab --scale mixes=0.01").unwrap();
        assert_eq!(defaulted.scale_of(&EXPERIMENTS[0]).0, 1.0);
        for bad in ["0", "nan", "nothing=1", "mixes=", "mixes=1000"] {
            assert!(parse(&format!("lab --scale {bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn processors_are_lists_of_ranges() {
        assert_eq!(processors("0-3,6,2"), Ok(Processors(vec![0, 1, 2, 3, 6])));
        for bad in ["", "a", "3-1", "1-", "99999"] {
            assert!(processors(bad).is_err(), "{bad}");
        }
        assert_eq!(halves(&[0, 1, 2]), (&[0, 1][..], &[2][..]));
        assert_eq!(halves(&[5]), (&[5][..], &[5][..]));
    }

    #[test]
    fn servers_have_names_of_their_own() {
        let parse = |line: &str| LabArguments::try_parse_from(line.split_whitespace()).unwrap();
        let error = parse("lab --without-dunlin --peer a=/bin/sh --peer a=/bin/sh")
            .lab(&mut Vec::new())
            .err()
            .unwrap();
        assert!(error.starts_with("two servers are called 'a'"), "{error}");
        let lab =
            parse("lab --without-dunlin --peer a=/bin/sh --target b=unix:///s").lab(&mut Vec::new()).unwrap();
        let columns: Vec<_> = lab.contenders.iter().map(|contender| contender.name.as_str()).collect();
        assert_eq!(columns, ["b", "a"]);
    }
}
