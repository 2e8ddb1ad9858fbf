//! Durability: what the store's changes go through on their way to disk and back.
//!
//! ```text
//! workers ──records──▶ ring ──batches──▶ append-only files ──▶ recovery
//! ```
//!
//! The crate carries bytes and offsets: it knows the framing of commands, but no command's meaning. It
//! starts no thread and reads no clock; files are reached through [`Storage`], which tests make fail.

pub mod aof;
pub mod manifest;
mod ring;
pub mod storage;

pub use ring::{Ring, RingReader};
pub use storage::{Disk, File, Storage};
