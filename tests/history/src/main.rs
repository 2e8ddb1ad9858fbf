//! History checker: many connections to the same keys of one server, and no reply that an order of
//! the commands, one after the other, cannot explain.
//!
//! ```text
//! dunlin-history --server target/fast/dunlin --directive=--threads --directive=2
//! dunlin-history --server redis-server --broken torn-reads      # has to fail
//! ```
//!
//! With `--broken` the clients send several commands in the place of one. Every scenario then
//! finds a violation; a test asserts that, so that none of them passes because it looks at nothing.

mod client;
mod scenarios;
mod scripts;
mod transactions;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use dunlin_test_support::process::Server;

use crate::client::Client;
use crate::scenarios::{ALL, Scenario};

/// Hammers the same keys from many connections and checks the history.
#[derive(Parser)]
struct Options {
    /// The server under test.
    #[arg(long)]
    server: PathBuf,
    /// Scenarios to play; all unless named.
    scenarios: Vec<String>,
    /// Multiplies the number of rounds.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Lets the clients break atomicity.
    #[arg(long)]
    broken: bool,
    /// Further directives for the server under test.
    #[arg(long, allow_hyphen_values = true)]
    directive: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("history: {error}");
            ExitCode::from(2)
        }
    }
}

/// Gives the number of scenarios that failed.
fn run(options: &Options) -> Result<usize, String> {
    let chosen: Vec<&Scenario> = ALL
        .iter()
        .filter(|s| options.scenarios.is_empty() || options.scenarios.iter().any(|n| n == s.name))
        .collect();
    if chosen.len() < options.scenarios.len() {
        return Err(format!("scenarios are: {}", ALL.iter().map(|s| s.name).collect::<Vec<_>>().join(" ")));
    }
    let directives: Vec<&str> = options.directive.iter().map(String::as_str).collect();
    let server = Server::start(&options.server, &directives).map_err(|error| error.to_string())?;
    let connect = |index| Client::connect(&server, index, options.broken);
    let mut failed = 0;
    for scenario in chosen {
        let started = Instant::now();
        let flushed = connect(0)?.call(command!["FLUSHALL"])?;
        if flushed.is_error() {
            return Err(format!("FLUSHALL: {}", flushed.show()));
        }
        let rounds = ((scenario.rounds as f64 * options.scale) as usize).max(1);
        let outcome = (scenario.play)(&connect, rounds);
        let seconds = started.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => println!("ok     {:<18} {seconds:.1} s", scenario.name),
            Err(why) => {
                println!("FAILED {:<18} {why}", scenario.name);
                failed += 1;
            }
        }
    }
    server.stop()?;
    Ok(failed)
}
