//! Recording real traffic through MONITOR, and replaying it at its own or another speed.
//!
//! A recording is the text that MONITOR shows, one command a line, so that what `redis-cli MONITOR` has
//! written can be replayed too:
//!
//! ```text
//! 1339518083.107412 [0 127.0.0.1:60866] "SET" "greeting" "h\xc3\xa9llo"
//! seconds since 1970 [database client]  arguments, quoted
//! ```

mod line;
mod record;
mod replay;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser};

/// The subcommands as clap describes them.
pub fn commands() -> [clap::Command; 2] {
    [record::RecordArguments::command().name("record"), replay::ReplayArguments::command().name("replay")]
}

/// Runs `dunlin bench record` with its arguments (without the program's name and subcommands).
pub fn record(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments = std::iter::once("dunlin bench record".into()).chain(arguments);
    match record::RecordArguments::try_parse_from(arguments) {
        Ok(arguments) => ended("record", arguments.run()),
        Err(error) => crate::refused(&error),
    }
}

/// Runs `dunlin bench replay` with its arguments (without the program's name and subcommands).
pub fn replay(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments = std::iter::once("dunlin bench replay".into()).chain(arguments);
    match replay::ReplayArguments::try_parse_from(arguments) {
        Ok(arguments) => ended("replay", arguments.run()),
        Err(error) => crate::refused(&error),
    }
}

fn ended(name: &str, result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("dunlin bench {name}: {line}");
            ExitCode::FAILURE
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("must be a number of seconds above 0".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::BenchArguments;

    /// The flags of a subcommand that name a server.
    fn server_flags(mut command: clap::Command) -> Vec<String> {
        command.build();
        let of_server = |flag: &&clap::Arg| flag.get_help_heading() == Some("Server");
        command.get_arguments().filter(of_server).map(|flag| format!("{flag}")).collect()
    }

    #[test]
    fn record_and_replay_take_the_flags_of_bench_that_name_a_server() {
        let expected = server_flags(BenchArguments::command());
        assert!(expected.len() >= 10, "{expected:?}");
        for command in [record::RecordArguments::command(), replay::ReplayArguments::command()] {
            let name = command.get_name().to_string();
            assert_eq!(server_flags(command), expected, "{name}");
        }
        let words = "record -h db -p 7000 -a secret --user ann --commands 5 traffic.txt".split(' ');
        let recorded = record::RecordArguments::try_parse_from(words).unwrap();
        let words = "replay -s /run/dunlin.sock traffic.txt".split(' ');
        let replayed = replay::ReplayArguments::try_parse_from(words).unwrap();
        assert_eq!(recorded.server.target().unwrap().address.to_string(), "db:7000");
        assert_eq!(replayed.server.target().unwrap().address.to_string(), "/run/dunlin.sock");
    }
}
