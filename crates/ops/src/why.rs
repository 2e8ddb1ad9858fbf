//! `dunlin why`: what was slow, which command, whose, and what else went on, from the server's flight recorder.

use clap::Parser;
use dunlin_bench::server_flags::ServerFlags;

use crate::server::{ask, connect, strings};

const EXAMPLES: &str = "\
Examples:
  dunlin why                          the last minute
  dunlin why --at 14:03               that minute, UTC, as in the server log
  dunlin why --at 14:03:12            the half minute around it
  dunlin why -h db1 -p 7000 --at 2026-11-21T14:03";

/// Says what was slow, which command, whose, and what else went on.
///
/// The server keeps every second of the last hour, every ten seconds of the last day, and every five minutes of the last 30
/// days.
#[derive(Debug, Parser)]
#[command(name = "why", bin_name = "dunlin why", version, disable_help_flag = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: ServerFlags,
    /// The time that is asked about, in UTC [default: the last minute]
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Show this help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let mut client = connect(&arguments.server)?;
    let mut words = vec!["RECORDER", "WHY"];
    if let Some(at) = &arguments.at {
        words.extend(["AT", at]);
    }
    let lines = ask(&mut client, &words)?;
    strings(&lines).iter().for_each(|line| dunlin_print::say!("{line}"));
    Ok(())
}
