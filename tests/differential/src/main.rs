//! Differential test: random command streams to Dunlin and to an oracle, replies compared.
//!
//! ```text
//! dunlin-differential --server target/fast/dunlin --oracle redis-server --commands 1000000
//! dunlin-differential --server target/fast/dunlin --families string --seed 42 --streams 1
//! ```
//!
//! With `--replay-in` the streams go to the first server alone, which records them in its append-only log;
//! then it is killed, and the second server's data set from the log is compared (replay.rs).
//!
//! ```text
//! dunlin-differential --server target/fast/dunlin --replay-in target/fast/dunlin --families stream
//! ```
//!
//! Each stream has a seed of its own, which is printed when the stream fails; the failing stream is
//! made as short as possible and printed as a transcript. The run goes on after a failure until it has
//! found several distinct ones.

mod compare;
mod families;
mod generate;
mod grammar;
mod minimize;
mod replay;
mod report;
mod run;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;

use crate::generate::{Generator, Step};
use crate::grammar::Family;
use crate::replay::Replay;
use crate::run::{Failure, Mismatch, Pair};

/// Random command streams to Dunlin and an oracle, replies compared.
#[derive(Parser)]
struct Options {
    /// The server under test.
    #[arg(long)]
    server: PathBuf,
    /// The server that is right.
    #[arg(long, default_value = "redis-server")]
    oracle: PathBuf,
    /// The server that loads what the server under test has recorded; there is no oracle then.
    #[arg(long)]
    replay_in: Option<PathBuf>,
    /// The log is rewritten before it is loaded.
    #[arg(long, requires = "replay_in")]
    rewrite: bool,
    /// The log is converted into an RDB file of this version before it is loaded.
    #[arg(long, requires = "replay_in", value_name = "VERSION")]
    through: Option<u16>,
    /// Families to draw commands from, by name; `all` for every one there is a grammar for.
    #[arg(long, value_delimiter = ',')]
    families: Vec<String>,
    /// Commands in all.
    #[arg(long, default_value_t = 100_000)]
    commands: usize,
    /// Commands in one stream.
    #[arg(long, default_value_t = 2_000)]
    stream_length: usize,
    /// Streams to run; overrides --commands.
    #[arg(long)]
    streams: Option<usize>,
    /// The seed of the first stream; drawn from the clock unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// Distinct failures after which to stop.
    #[arg(long, default_value_t = 10)]
    failures: usize,
    /// Seconds to spend on shortening each failing stream.
    #[arg(long, default_value_t = 10)]
    shorten_seconds: u64,
    /// Have the server under test run whatever it can apart from its workers (`DEBUG VISITS-MAX 0`).
    #[arg(long)]
    apart: bool,
    /// Further directives for the server under test, such as `--directive=--threads --directive=2`.
    #[arg(long, allow_hyphen_values = true)]
    directive: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("differential: {error}");
            ExitCode::from(2)
        }
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Family>, String> {
    if names.iter().any(|name| name == "all") {
        return Ok(families::ALL.to_vec());
    }
    let enabled: Vec<&str> = if names.is_empty() {
        families::ENABLED.to_vec()
    } else {
        names.iter().map(String::as_str).collect()
    };
    enabled
        .into_iter()
        .map(|name| families::named(name).ok_or_else(|| format!("no family '{name}'")))
        .collect()
}

fn run(options: &Options) -> Result<bool, String> {
    let drawn = chosen(&options.families)?;
    // Keys of every enabled family exist in a run of one family too, so that types can be wrong.
    let mut known = chosen(&[])?;
    known.extend(drawn.iter().filter(|family| !families::ENABLED.contains(&family.name)));
    known.retain(|family| !family.private);
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64 >> 10);
    let first_seed = options.seed.unwrap_or(clock);
    let streams = options.streams.unwrap_or(options.commands.div_ceil(options.stream_length));
    let names: Vec<&str> = drawn.iter().map(|family| family.name).collect();
    println!(
        "families {}, seed {first_seed}, {streams} streams of {}",
        names.join(" "),
        options.stream_length
    );
    if let Some(reader) = &options.replay_in {
        let mut replay = Replay::new(&options.server, reader, &options.directive);
        (replay.rewrites, replay.through) = (options.rewrite, options.through);
        let trial = &mut |steps: &[Step]| replay.run(steps);
        return judge(options, &drawn, &known, (first_seed, streams), trial);
    }
    let mut pair = Pair::start(&options.server, &options.oracle, &options.directive)?;
    pair.apart = options.apart;
    let trial = &mut |steps: &[Step]| pair.run(steps);
    let is_good = judge(options, &drawn, &known, (first_seed, streams), trial)?;
    for reason in &pair.intended {
        println!("  intended difference met: {reason}");
    }
    pair.stop()?;
    Ok(is_good)
}

/// Runs one stream.
type Trial<'a> = &'a mut dyn FnMut(&[Step]) -> Result<(), Failure>;

/// Tries streams of these seeds and reports the differences; returns whether there were none.
fn judge(
    options: &Options,
    drawn: &[&'static Family],
    known: &[&'static Family],
    (first_seed, streams): (u64, usize),
    trial: Trial<'_>,
) -> Result<bool, String> {
    let started = Instant::now();
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let mut sent = 0;
    for seed in (0..streams).map(|index| first_seed.wrapping_add(index as u64)) {
        let steps = Generator::new(seed, drawn, known).stream(options.stream_length);
        sent += steps.len();
        match trial(&steps) {
            Ok(()) => {}
            Err(Failure::Trouble(what)) => return Err(format!("seed {seed}: {what}")),
            Err(Failure::Mismatch(mismatch)) => {
                let label = mismatch.label();
                let times = found.entry(label.clone()).or_default();
                *times += 1;
                if *times == 1 {
                    let time = Duration::from_secs(options.shorten_seconds);
                    let (steps, mismatch) = shorten(trial, steps, *mismatch, time);
                    println!("\n{label}: seed {seed}\n{}", report::transcript(&steps, &mismatch));
                }
                if found.len() >= options.failures {
                    println!("stopping after {} distinct failures", found.len());
                    break;
                }
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{sent} commands in {seconds:.1} s, {} distinct failures", found.len());
    for (label, times) in &found {
        println!("  {times:5} streams: {label}");
    }
    Ok(found.is_empty())
}

/// Makes a failing stream as short as it can be while it still fails at the same command.
fn shorten(trial: Trial<'_>, steps: Vec<Step>, mismatch: Mismatch, time: Duration) -> (Vec<Step>, Mismatch) {
    let label = mismatch.label();
    let mut last = mismatch;
    let failing = steps[..steps.len().min(last.at + 1)].to_vec();
    let kept = minimize::minimize(&failing, time, |part| match trial(part) {
        Err(Failure::Mismatch(found)) if found.label() == label => {
            last = *found;
            true
        }
        _ => false,
    });
    (kept, last)
}
