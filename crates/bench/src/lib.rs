//! Load generator for servers of the Redis protocol.
//!
//! ```text
//! cli ─→ drive ─→ load ─→ worker ─→ connection ─→ skim      one run
//!          │        └ template, schedule, latency
//!          └→ report
//! compare ─→ load                                           servers side by side
//! cache                                                     hit ratios at a memory limit
//!      └ process, figures, plot
//! traffic                                                   MONITOR recorded and replayed
//! ```
//!
//! The lab (`lab/`, a workspace and a program of its own) drives servers through what is public here.
//!
//! The generator must cost less than the server it measures: requests are rendered ahead and only
//! their digits change, replies are counted and not built.

// `println!` panics when its reader has gone.
#![cfg_attr(not(test), deny(clippy::print_stdout))]

pub mod affinity;
#[cfg(target_os = "linux")]
mod alarm;
#[cfg(all(target_os = "linux", feature = "compare"))]
mod cache;
#[cfg(all(target_os = "linux", feature = "compare"))]
mod cleanup;
mod cli;
#[cfg(all(target_os = "linux", feature = "compare"))]
mod compare;
mod connection;
pub mod distribution;
mod drive;
#[cfg(all(target_os = "linux", feature = "compare"))]
pub mod figures;
pub mod latency;
pub mod load;
#[cfg(all(target_os = "linux", feature = "compare"))]
pub mod plot;
#[cfg(all(target_os = "linux", feature = "compare"))]
pub mod process;
pub mod random;
mod report;
pub mod schedule;
pub mod server_flags;
pub mod skim;
pub mod target;
pub mod template;
pub mod tls;
mod traffic;
pub mod uri;
mod worker;
mod workload;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;

/// How to get a binary with everything, for one that was built without.
#[cfg(not(all(feature = "compare", feature = "tls")))]
const FULL_BUILD: &str = "in Dunlin's sources, `make install FULL=1` builds one with everything";

/// The command as clap describes it, for manual pages and completions: with the subcommands that this build has.
pub fn command() -> clap::Command {
    let command = cli::BenchArguments::command().name("bench").subcommands(traffic::commands());
    #[cfg(all(target_os = "linux", feature = "compare"))]
    let command =
        command.subcommands([cache::command(), compare::CompareArguments::command().name("compare")]);
    command
}

/// Runs `dunlin bench`; `arguments` are those behind the subcommand. `cache` and `compare` as
/// the first of them put servers side by side, `record` and `replay` are about real traffic, everything
/// else loads one server.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter().peekable();
    let subcommands = ["cache", "compare", "record", "replay"];
    match arguments.next_if(|first| subcommands.iter().any(|name| first == name)) {
        None => drive::bench(arguments),
        Some(name) if name == "record" => traffic::record(arguments),
        Some(name) if name == "replay" => traffic::replay(arguments),
        Some(name) => side_by_side(&name.to_string_lossy(), arguments),
    }
}

#[cfg(all(target_os = "linux", feature = "compare"))]
fn side_by_side(name: &str, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match name {
        "cache" => cache::cache(arguments),
        _ => compare::compare(arguments),
    }
}

#[cfg(not(all(target_os = "linux", feature = "compare")))]
fn side_by_side(name: &str, _: impl Iterator<Item = OsString>) -> ExitCode {
    if cfg!(target_os = "linux") {
        eprintln!("dunlin bench {name}: this binary was built without it; {FULL_BUILD}");
    } else {
        eprintln!("dunlin bench {name}: reads /proc and pins processes, which only Linux offers");
    }
    ExitCode::FAILURE
}

/// Shows help or the fault of a command line; returns the code to end with.
pub fn refused(error: &clap::Error) -> ExitCode {
    // If even that cannot be printed, the code still shows the failure.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}
