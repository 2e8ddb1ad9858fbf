//! Commands for operators of a running server, which they ask as clients: `dunlin top`, `dunlin why`, `dunlin doctor`,
//! `dunlin health`, `dunlin adopt`, `dunlin cluster`.

// `println!` panics when its reader has gone.
#![cfg_attr(not(test), deny(clippy::print_stdout))]

mod adopt;
mod cluster;
mod doctor;
mod health;
mod progress;
mod server;
// `--once` alone needs less.
#[cfg_attr(not(feature = "screen"), allow(dead_code))]
mod top;
mod why;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory, Parser};

/// `dunlin top …`: the server in the terminal, live. `words` are those behind `top`.
pub fn top(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    run::<top::Arguments>("top", words, top::run)
}

/// `dunlin why …`: what was slow. `words` are those behind `why`.
pub fn why(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    run::<why::Arguments>("why", words, why::run)
}

/// `dunlin doctor …`: the machine and the server, for a bug report. `words` are those behind `doctor`.
pub fn doctor(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    run::<doctor::Arguments>("doctor", words, doctor::run)
}

/// `dunlin health …`: what `/health` answers, for containers without other programs. `words` are those behind `health`.
pub fn health(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    run::<health::Arguments>("health", words, health::run)
}

/// `dunlin adopt …`: a data set moves to another server while both serve. `words` are those behind `adopt`.
pub fn adopt(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    run::<adopt::Arguments>("adopt", words, adopt::run)
}

/// `dunlin cluster …`: a cluster in tables, and the operator's requests. `words` are those behind `cluster`.
pub fn cluster(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    run::<cluster::Arguments>("cluster", words, cluster::run)
}

/// The commands as clap describes them, for manual pages and completions.
pub fn commands() -> Vec<clap::Command> {
    vec![
        top::Arguments::command(),
        why::Arguments::command(),
        doctor::Arguments::command(),
        health::Arguments::command(),
        adopt::Arguments::command(),
        cluster::Arguments::command(),
    ]
}

/// Reads the flags and runs a command; what went wrong is one line for the operator.
fn run<A: Parser>(
    name: &str,
    words: impl IntoIterator<Item = OsString>,
    command: fn(&A) -> Result<(), String>,
) -> ExitCode {
    let words = std::iter::once(OsString::from(format!("dunlin {name}"))).chain(words);
    match command(&A::parse_from(words)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("dunlin: {reason}");
            ExitCode::FAILURE
        }
    }
}
