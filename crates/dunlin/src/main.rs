//! The `dunlin` binary: parses the subcommand, nothing else.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An in-memory data store that speaks the Redis protocol.
#[derive(Parser)]
#[command(name = "dunlin", version)]
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
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Server { arguments } => dunlin_server::server::main(arguments),
        Command::Check { arguments } => dunlin_server::check::main(arguments),
        Command::Convert { arguments } => dunlin_server::convert::main(arguments),
        Command::Bench { arguments } => dunlin_bench::run(arguments),
    }
}
