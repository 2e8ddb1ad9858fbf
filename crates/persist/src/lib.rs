//! Durable data: files of the data set, and the log of its changes.
//!
//! ```text
//! workers ──records──▶ ring ──batches──▶ append-only files ──▶ recovery
//! ```
//!
//! Nothing here opens a socket or reads a clock, nothing knows of clients, and the only thread is the one by which a
//! [`SyncedFile`] goes to disk. How values look in a file is [`dunlin_engine::rdb`]'s business; this crate knows files.
//! The log's files are reached through [`Storage`], which tests make fail.

pub mod aof;
mod lease;
pub mod manifest;
pub mod rdb;
mod removed;
mod replace;
mod ring;
pub mod storage;
mod synced;

pub use lease::{is_being_written, is_unused};
pub use removed::Removed;
pub use replace::{Replacement, directory_and_name, replace_file};
pub use ring::{Ring, RingReader, RingSizes};
pub use storage::{Disk, File, ReadAhead, Storage};
pub use synced::{SyncedFile, SyncedFileOptions};
