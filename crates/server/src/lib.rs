//! The server: the service that executes commands, and the process around it. Threads, files, clocks and configuration
//! are here and in no crate below but `net`, which has sockets and threads.

// `println!` panics when its reader has gone.
#![cfg_attr(not(test), deny(clippy::print_stdout))]

mod access;
mod admission;
mod aof;
mod audit;
mod cluster;
mod commands;
pub mod config;
mod durability;
mod executor;
mod http;
mod info;
pub mod loading;
mod lua;
mod metrics;
mod node;
mod observe;
pub mod offline;
mod persistence;
pub mod process;
mod push;
mod rdb;
mod replication;
mod replicator;
mod sampler;
mod scripting;
mod session;
mod shared;
mod system;
mod tls;
mod workers;

pub use observe::quantities;
pub use system::{allocator::Allocator, machine};
