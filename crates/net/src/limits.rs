//! The limits that the layer enforces, as the configuration has them at this moment.

use std::time::Duration;

/// `client-output-buffer-limit` of one class of clients. Zero bytes mean no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Above this the client is closed at once.
    pub hard_bytes: u64,
    /// Above this for `soft_duration` the client is closed.
    pub soft_bytes: u64,
    /// How long the soft limit may be exceeded.
    pub soft_duration: Duration,
}

impl OutputLimit {
    /// Whether a client that has this much output waiting is to be closed at once.
    #[inline]
    pub(crate) fn is_over_hard(&self, waiting_bytes: u64) -> bool {
        self.hard_bytes > 0 && waiting_bytes > self.hard_bytes
    }
}

/// A snapshot; a change of the configuration publishes a new one, which workers see in their next tick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// `maxclients`.
    pub clients_max: usize,
    /// `timeout`: clients without a request for this long are closed. `None` for never.
    pub idle_max: Option<Duration>,
    /// `tcp-keepalive`, for connections accepted from now on. `None` for off.
    pub keepalive: Option<Duration>,
    /// `client-query-buffer-limit`, in bytes.
    pub query_buffer_max: u64,
    /// `client-output-buffer-limit`, by [`crate::OutputClass`].
    pub output: [OutputLimit; 3],
    /// Whether TCP clients from other hosts are refused: `protected-mode` is on and the default
    /// user has no password.
    pub loopback_only: bool,
}

impl Default for Limits {
    /// The defaults of redis.conf, open to all hosts.
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        let minute = Duration::from_secs(60);
        Self {
            clients_max: 10_000,
            idle_max: None,
            keepalive: Some(Duration::from_secs(300)),
            query_buffer_max: 1 << 30,
            output: [
                OutputLimit::default(),
                OutputLimit { hard_bytes: 256 * MIB, soft_bytes: 64 * MIB, soft_duration: minute },
                OutputLimit { hard_bytes: 32 * MIB, soft_bytes: 8 * MIB, soft_duration: minute },
            ],
            loopback_only: false,
        }
    }
}
