//! Threads, sockets, files, clocks, configuration: the only crate that has them.

pub mod config;
pub mod log;
pub mod net;
pub mod startup;
