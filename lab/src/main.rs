//! `dunlin-lab`: the founding experiments against several servers in the same run, written as one report.
//!
//! ```text
//! EXPERIMENTS (a table) ─→ run(&Lab) ─→ Results ─→ report (.html, .md, .json, .csv)
//!                            │
//!                    contender ─→ server (child processes, or a URL)
//! ```
//!
//! Invariants: servers take turns within a round, so a drift of the machine touches all alike. An
//! experiment checks a server's answers before it reports a time of it. A server that the lab has not
//! started itself is measured only while its database is empty, and left empty, by the next run if this one
//! is killed.

mod autocomplete;
mod cli;
mod compaction;
mod connections;
mod contender;
mod cores;
mod experiment;
mod fan_pages;
mod http;
mod lengths;
mod mark;
mod memcached;
mod mixes;
mod pings;
mod pipelining;
mod report;
mod results;
mod round_trips;
mod server;
mod sessions;
mod slo;
mod sockets;
mod ycsb;

use std::process::ExitCode;

use clap::Parser;

use cli::LabArguments;
use experiment::Experiment;

/// All experiments, in the order they run.
static EXPERIMENTS: &[Experiment] = &[
    pipelining::PIPELINING,
    cores::CORES,
    round_trips::ROUND_TRIPS,
    fan_pages::FAN_PAGES,
    sockets::SOCKETS,
    lengths::LENGTHS,
    pings::PINGS,
    connections::CONNECTIONS,
    http::HTTP,
    mixes::MIXES,
    compaction::COMPACTION,
    autocomplete::AUTOCOMPLETE,
    ycsb::YCSB,
];

fn main() -> ExitCode {
    let result = match LabArguments::try_parse() {
        Ok(arguments) => arguments.run(),
        Err(error) => return dunlin_bench::refused(&error),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("dunlin-lab: {line}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn experiments_have_names_of_their_own_and_three_lines() {
        let names: HashSet<_> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
        assert_eq!(names.len(), EXPERIMENTS.len());
        for experiment in EXPERIMENTS {
            assert!(experiment.explanation.iter().all(|line| !line.is_empty() && line.len() <= 116));
            assert!(experiment.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'));
        }
    }
}
