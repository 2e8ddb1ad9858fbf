//! How a server process starts, runs beside its workers, and ends.

pub(crate) mod daemon;
pub(crate) mod log;
pub(crate) mod maintenance;
pub mod server;
pub mod startup;
pub(crate) mod supervisor;
pub(crate) mod syslog;
