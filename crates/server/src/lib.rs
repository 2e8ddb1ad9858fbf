//! Threads, sockets, files, clocks, configuration: the only crate that has them.

pub mod net;
