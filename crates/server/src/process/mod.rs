//! How a server process starts, runs beside its workers, and ends.

pub(crate) mod allocator;
pub(crate) mod daemon;
pub(crate) mod data_directory;
pub(crate) mod host;
pub(crate) mod log;
pub(crate) mod maintenance;
pub(crate) mod removal;
pub mod server;
pub mod startup;
pub(crate) mod supervisor;
