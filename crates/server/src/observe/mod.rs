//! Notes of a server about itself: counters, logs of commands, the flight recorder. INFO and metrics read them.

pub(crate) mod baseline;
pub(crate) mod client_line;
pub(crate) mod command_log;
pub(crate) mod command_stats;
pub(crate) mod error_counts;
pub(crate) mod hot_keys;
pub(crate) mod key_samples;
pub(crate) mod latency;
pub(crate) mod module_commands;
pub mod quantities;
pub(crate) mod recorder;
pub(crate) mod stats;
