//! What operators see of a running server: counters, logs of commands, INFO, metrics.

pub(crate) mod client_line;
pub(crate) mod command_log;
pub(crate) mod command_stats;
pub(crate) mod error_counts;
pub(crate) mod hot_keys;
pub(crate) mod info;
pub(crate) mod latency;
pub(crate) mod metrics;
pub(crate) mod recorder;
pub(crate) mod stats;
