//! Threads, sockets, files, clocks, configuration: the only crate that has them.

mod commands;
pub mod config;
mod executor;
mod expiry;
pub mod log;
mod maintenance;
pub mod net;
pub mod server;
mod shared;
pub mod startup;
