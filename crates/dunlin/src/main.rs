//! The `dunlin` binary: parses the subcommand, and writes its own manual; nothing else.

// `println!` panics when its reader has gone.
#![cfg_attr(not(test), deny(clippy::print_stdout))]

mod documents;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, error::ErrorKind};

// Under musl, too: its own allocator has one lock for all threads, and `MEMORY PURGE` and INFO ask this one.
#[global_allocator]
static ALLOCATOR: dunlin_server::Allocator = dunlin_server::Allocator;

const EXAMPLES: &str = "\
Examples:
  dunlin server --port 7000 --dir /var/lib/dunlin
  dunlin server --help                  every directive, with its default
  dunlin top                            a running server, live
  dunlin why --at 14:03                 what was slow then
  dunlin bench -t set,get -r 1000000    against a server on this machine";

/// An in-memory data store that speaks the Redis protocol.
#[derive(Parser)]
#[command(name = "dunlin", version, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves clients: dunlin server [CONFIG-FILE] [--directive value …]
    #[command(disable_help_flag = true)]
    Server {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Shows a running server in the terminal, live (dunlin top --help)
    #[command(disable_help_flag = true)]
    Top {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Says what was slow in a running server, and why (dunlin why --help)
    #[command(disable_help_flag = true)]
    Why {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Prints the machine and a running server for a bug report (dunlin doctor --help)
    #[command(disable_help_flag = true)]
    Doctor {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Asks the /health of a server (dunlin health --help)
    #[command(disable_help_flag = true)]
    Health {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Moves the data set of a running server into another one, without downtime (dunlin adopt --help)
    #[command(disable_help_flag = true)]
    Adopt {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Shows a cluster, and says why something waits (dunlin cluster --help)
    #[command(disable_help_flag = true)]
    Cluster {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Verifies files of a server, and cuts damaged ones (dunlin check --help)
    #[command(disable_help_flag = true)]
    Check {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Writes the files of a data set in another form, also for older servers (dunlin convert --help)
    #[command(disable_help_flag = true)]
    Convert {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Measures a server of the Redis protocol (dunlin bench --help)
    #[command(disable_help_flag = true)]
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Prints completions of the command line for a shell
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    /// Writes manual pages into a directory
    Man {
        /// Made where it is missing
        directory: PathBuf,
    },
}

/// Shows help, the version, or the fault of the command line; returns the code to end with. Users who are used to
/// redis-server do not type a subcommand.
fn refused(error: &clap::Error) -> ExitCode {
    // If even that cannot be printed, the code still shows the failure.
    let _ = error.print();
    if matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand) {
        let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
        eprintln!("\nA server is started with: dunlin server {}", words.collect::<Vec<_>>().join(" "));
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refused(&error),
    };
    dunlin_print::code(run(arguments.command))
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::Server { arguments } => dunlin_server::process::server::main(arguments),
        Command::Top { arguments } => dunlin_ops::top(arguments),
        Command::Why { arguments } => dunlin_ops::why(arguments),
        Command::Doctor { arguments } => dunlin_ops::doctor(arguments),
        Command::Health { arguments } => dunlin_ops::health(arguments),
        Command::Adopt { arguments } => dunlin_ops::adopt(arguments),
        Command::Cluster { arguments } => dunlin_ops::cluster(arguments),
        Command::Check { arguments } => dunlin_tools::check::main(arguments),
        Command::Convert { arguments } => dunlin_tools::convert::main(arguments),
        Command::Bench { arguments } => dunlin_bench::run(arguments),
        Command::Completions { shell } => documents::complete(shell),
        Command::Man { directory } => documents::write_manual(&directory),
    }
}
