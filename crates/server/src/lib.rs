//! Threads, sockets, files, clocks, configuration: the only crate that has them.

mod access;
mod commands;
pub mod config;
mod durability;
mod executor;
pub mod loading;
pub mod net;
mod observe;
mod persistence;
pub mod process;
mod push;
mod scripting;
mod session;
mod shared;
pub mod tools;
