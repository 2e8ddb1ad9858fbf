//! Threads, sockets, files, clocks, configuration: the only crate that has them.

mod access;
mod allocator;
mod blocked;
mod command_log;
mod commands;
pub mod config;
mod executor;
mod expiry;
mod feed;
mod info;
mod latency;
pub mod log;
mod maintenance;
mod monitor;
pub mod net;
mod pause;
mod persistence;
mod process;
mod pubsub;
mod scripting;
pub mod server;
mod session;
mod shared;
pub mod startup;
mod statistics;
mod tracking;
mod transaction;
