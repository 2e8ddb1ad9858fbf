//! What is the same for all commands of a batch.

use crate::{
    keyspace::{Access, ClientToken},
    notify::EventClasses,
    value::CollectionLimits,
};

/// Time, limits and policies under which commands run.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// Unix time in milliseconds, read once a batch: keys and elements whose time is not later have expired.
    pub now_ms: u64,
    /// What accesses leave in the stamps of keys: [`crate::keyspace::AccessClock::access`] at that time.
    pub access: Access,
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
    /// The time at which a log is being replayed, 0 while none is. Then `now_ms` is 0: nothing expires,
    /// since the log says itself what did.
    pub replaying_at_ms: u64,
    /// Whether the log that is replayed is a primary's at work: whoever waits here for what it changes is served.
    pub follows_primary: bool,
    /// Whether long strings in dumps are compressed where it pays (`rdbcompression`).
    pub compress_dumps: bool,
    /// Whether dumps of versions that are not known are taken as far as they go (`rdb-version-check`).
    pub relaxed_versions: bool,
    /// Thresholds of the compact encodings.
    pub collection_limits: CollectionLimits,
    /// Whose commands they are.
    pub client: ClientToken,
    /// Whether nobody may wait for keys: in transactions and scripts.
    pub deny_blocking: bool,
    /// Whether a script runs the commands: what has no order of its own is answered in that of its bytes, so that the script
    /// comes to the same again.
    pub in_script: bool,
    /// How many elements a command may visit where it stands; one that would visit more is offloaded. `None` for any number.
    pub visits_max: Option<usize>,
    /// Whether a command waits where somebody has a view of what it may change, instead of copying that.
    pub waits_for_views: bool,
    /// Whether the client is told of later changes of the keys that it reads (`CLIENT TRACKING`).
    pub tracks: bool,
    /// Whether somebody is told of all changes (`CLIENT TRACKING … BCAST`).
    pub broadcasts: bool,
    /// Which changes of keys somebody wants to be told of (`notify-keyspace-events`).
    pub notifications: EventClasses,
}

impl Environment {
    /// Unix time in milliseconds by the clock, also while a log is replayed and nothing expires. Relative times, IDs of
    /// streams and times of access count from here.
    #[inline]
    pub fn clock_ms(&self) -> u64 {
        self.now_ms.max(self.replaying_at_ms)
    }
}
