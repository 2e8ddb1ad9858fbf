//! Orders to the thread `log`.

use std::{io, path::PathBuf, sync::mpsc::Sender};

use dunlin_persist::{
    Replacement,
    aof::Adoption,
    manifest::{BaseFormat, StreamId},
};

/// An order to the thread.
#[derive(Debug)]
pub(crate) enum LogOrder {
    /// Record changes from now on, or no longer.
    Turn { on: bool, done: Sender<Result<(), String>> },
    /// Make the manifest say whose stream of replication the log is.
    SetStream { stream: Option<StreamId>, done: Sender<Result<(), String>> },
    /// Empty the data set and load the log again.
    Reload { done: Sender<Result<(), String>> },
    /// Begin the next file behind the ring's boundary: a snapshot was cut there.
    Rotate,
    /// Put a snapshot in the place of the log before its cut.
    Adopt(io::Result<Base>),
    /// Begin a backup in a directory, and turn the log on for it.
    BeginBackupWithLog { directory: PathBuf, done: Sender<Result<(), String>> },
    /// Make the log up to the ring's boundary a backup.
    SealBackup { done: Sender<Result<(), String>> },
    /// Turn the log off that was on for a backup's sake alone.
    EndLogOfBackup,
    /// The snapshot is in place.
    EndAdopting(Box<io::Result<Adoption>>),
    /// Make everything durable and end.
    Stop,
}

/// A base that is written and waits to be put in place.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) file: Replacement,
    pub(crate) format: BaseFormat,
}
