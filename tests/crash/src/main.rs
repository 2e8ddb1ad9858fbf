//! Crash harness: kills a server again and again and damages its files, and compares its recovered data with those that
//! it had acknowledged.
//!
//! ```text
//! dunlin-crash --server target/fast/dunlin kills --rounds 200 --appendfsync always
//! dunlin-crash --server target/fast/dunlin cuts
//! dunlin-crash --server target/fast/dunlin flips --rounds 100
//! dunlin-crash --server target/fast/dunlin power --rounds 40 --cuts 25 --policy always
//! ```
//!
//! `kills`: writers count upwards, each under keys of its own, as fast as they are answered; SIGKILL comes at a random
//! moment, after SIGTERM in some rounds. Afterwards every counter is at least the last number acknowledged (under
//! `everysec`: a second before the kill) and at most the last one sent. The writes of one transaction or one command
//! are there whole or not at all. `cuts`: the file ends at every byte of its last records: records that are whole
//! before the cut are there. `flips`: one bit anywhere is wrong: the server says so and refuses, or nothing is lost.
//! `power`: as `kills`, but of bytes that were not synced any part may be gone, names of files included. Needs `cc` and
//! Linux.

mod damage;
mod kills;
mod load;
mod power;
mod server;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use power::{Policy, Power};

/// Kills servers and damages their files.
#[derive(Parser)]
struct Options {
    /// The server under test.
    #[arg(long)]
    server: PathBuf,
    /// The first seed; each round has its own.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Subcommand)]
enum Scenario {
    /// SIGKILL at random moments under load.
    Kills {
        /// How often.
        #[arg(long, default_value_t = 20)]
        rounds: u64,
        /// The policy.
        #[arg(long, default_value = "always")]
        appendfsync: String,
    },
    /// Power cuts at random moments under load.
    Power {
        /// How many lives of a server.
        #[arg(long, default_value_t = 10)]
        rounds: u64,
        /// How many power cuts in each of them.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
        cuts: u64,
        /// The promise.
        #[arg(long, default_value = "always")]
        policy: Policy,
    },
    /// Files cut at every byte of their last records.
    Cuts,
    /// Files with one wrong bit.
    Flips {
        /// How many bits.
        #[arg(long, default_value_t = 60)]
        rounds: u64,
    },
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.scenario {
        Scenario::Kills { rounds, appendfsync } => {
            kills::play(&options.server, *rounds, appendfsync, options.seed)
        }
        Scenario::Power { rounds, cuts, policy } => {
            let (program, seed) = (&*options.server, options.seed);
            Power { program, rounds: *rounds, cuts: *cuts, policy: *policy, seed }.play()
        }
        Scenario::Cuts => damage::cuts(&options.server),
        Scenario::Flips { rounds } => damage::flips(&options.server, *rounds, options.seed),
    };
    match done {
        Ok(told) => {
            println!("ok: {told}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}
