//! What is the same for all commands of a batch.

use crate::{notify::EventClasses, value::CollectionLimits};

/// Time, limits and policies under which commands run.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// Unix time in milliseconds, read once a batch.
    pub now_ms: u64,
    /// Longest string, in bytes (`proto-max-bulk-len`).
    pub string_bytes_max: usize,
    /// Whether reads leave the keys' access clocks alone (`CLIENT NO-TOUCH`).
    pub no_touch: bool,
    /// Whether the freeing of what has expired is left for later (`lazyfree-lazy-expire`).
    pub lazyfree_expire: bool,
    /// Whether the freeing of what a command replaces is (`lazyfree-lazy-server-del`).
    pub lazyfree_server_del: bool,
    /// Whether `DEL` leaves the freeing of what it removes for later (`lazyfree-lazy-user-del`).
    pub lazyfree_user_del: bool,
    /// Whether `FLUSHALL` and `FLUSHDB` do so where they are not told (`lazyfree-lazy-user-flush`).
    pub lazyfree_user_flush: bool,
    /// Whether keys that have expired stay where they are, seen by nobody (`CLIENT PAUSE`).
    pub keep_expired: bool,
    /// Whether a log is being replayed: nothing expires, since the log says itself what did.
    pub replaying: bool,
    /// Thresholds of the compact encodings.
    pub collection_limits: CollectionLimits,
    /// Which changes of keys somebody wants to be told of (`notify-keyspace-events`).
    pub notifications: EventClasses,
}

impl Environment {
    /// The time up to which keys have expired, in milliseconds since 1970.
    #[inline]
    pub fn expired_to_ms(&self) -> u64 {
        if self.replaying { 0 } else { self.now_ms }
    }
}
