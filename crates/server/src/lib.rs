//! Threads, sockets, files, clocks, configuration: the only crate that has them.

mod commands;
pub mod config;
mod executor;
pub mod log;
pub mod net;
pub mod server;
mod shared;
pub mod startup;
