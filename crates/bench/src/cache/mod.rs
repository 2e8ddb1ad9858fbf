//! `dunlin bench cache`: how many requests of a trace a server answers at a memory limit, beside others.
//!
//! ```text
//! trace (CSV of Twitter or Meta, or a generator) ─→ replay: GET, and SET where it misses ─→ report
//!                                                └→ optimum: the same offline, with knowledge of the future
//! ```
//!
//! Servers are started one after the other, each with the same flags, and see the same requests in the same order.

mod cli;
mod generators;
mod optimum;
mod replay;
mod report;
mod trace;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

/// The subcommand as clap describes it.
pub fn command() -> clap::Command {
    cli::CacheArguments::command().name("cache")
}

/// Runs `dunlin bench cache` with its arguments (without the program's name and subcommands).
pub fn cache(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments = std::iter::once("dunlin bench cache".into()).chain(arguments);
    match cli::CacheArguments::try_parse_from(arguments) {
        Ok(arguments) => match arguments.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(line) => {
                eprintln!("dunlin bench cache: {line}");
                ExitCode::FAILURE
            }
        },
        Err(error) => crate::refused(&error),
    }
}
