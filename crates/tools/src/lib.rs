//! Commands for files of a data set, which need no running server.

// `println!` panics when its reader has gone.
#![cfg_attr(not(test), deny(clippy::print_stdout))]

pub mod check;
pub mod convert;
