//! Commands for files of a data set, which need no running server.

// `println!` panics when its reader has gone.
#![cfg_attr(not(test), deny(clippy::print_stdout))]

pub mod check;
pub mod convert;

use clap::CommandFactory;

/// The commands as clap describes them, for manual pages and completions.
pub fn commands() -> Vec<clap::Command> {
    vec![check::Arguments::command().name("check"), convert::Arguments::command().name("convert")]
}
