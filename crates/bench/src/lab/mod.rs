//! `dunlin bench lab`: the founding experiments against several servers in the same run, written as
//! one report.
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
pub(crate) mod compaction;
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

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, builder::PossibleValuesParser};

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

/// The subcommand as clap describes it, with the names of the experiments.
pub fn command() -> clap::Command {
    let mut names = vec!["all", "list"];
    names.extend(EXPERIMENTS.iter().flat_map(|experiment| [experiment.name, experiment.founding]));
    names.sort_unstable();
    names.dedup();
    LabArguments::command()
        .name("lab")
        .mut_arg("experiments", |names_of| names_of.value_parser(PossibleValuesParser::new(names)))
}

/// Runs `dunlin bench lab` with its arguments (without the program's name and subcommands).
pub fn lab(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments = std::iter::once("dunlin bench lab".into()).chain(arguments);
    let result = match LabArguments::try_parse_from(arguments) {
        Ok(arguments) => arguments.run(),
        Err(error) => return crate::refused(&error),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("dunlin bench lab: {line}");
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
