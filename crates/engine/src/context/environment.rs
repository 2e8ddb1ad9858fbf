//! The policy and the caller of a command: the settings in force, and on whose behalf it runs.

use std::sync::Arc;

use crate::{
    command::{CommandError, CommandResult},
    keyspace::{Access, ClientToken, Keyspace},
    notify::EventClasses,
    value::CollectionLimits,
};

/// The settings that commands obey. A change makes a new policy: none changes under a command that runs.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Longest string, in bytes (`proto-max-bulk-len`).
    pub string_bytes_max: usize,
    /// Whether expired values are freed later (`lazyfree-lazy-expire`).
    pub lazyfree_expire: bool,
    /// Whether the freeing of values that a command replaces is (`lazyfree-lazy-server-del`).
    pub lazyfree_server_del: bool,
    /// Whether `DEL` leaves the freeing of removed values for later (`lazyfree-lazy-user-del`).
    pub lazyfree_user_del: bool,
    /// Whether `FLUSHALL` and `FLUSHDB` do so without an option that says which (`lazyfree-lazy-user-flush`).
    pub lazyfree_user_flush: bool,
    /// Whether long strings in dumps are compressed if it pays (`rdbcompression`).
    pub compress_dumps: bool,
    /// Whether dumps of versions that are not known are taken as far as they go (`rdb-version-check`).
    pub relaxed_versions: bool,
    /// Whether dumps of values whose types Dunlin does not have are refused (`module-data`).
    pub refuses_foreign: bool,
    /// Thresholds of the compact encodings.
    pub collection_limits: CollectionLimits,
    /// The classes of keyspace events that are published (`notify-keyspace-events`).
    pub notifications: EventClasses,
    /// The runs of slots whose keys are here, first and last, ascending; `None` without a cluster.
    pub slots: Option<Arc<[(u16, u16)]>>,
    /// Limits of the memory of databases; `None` if there are none.
    pub database_limits: Option<Arc<DatabaseLimits>>,
    /// Whether stamps say when keys were changed last, not used (`maxmemory-policy`, the policies by LRM). The host says
    /// of each caller that it does not touch ([`Caller::no_touch`]).
    pub stamps_changes: bool,
}

/// The limits of the memory of databases (`db-maxmemory`), for commands that give a database more than their words. The host
/// looks at words before a command runs, and evicts.
#[derive(Debug, Clone, Default)]
pub struct DatabaseLimits {
    /// Databases in ascending order, each with its limit in bytes.
    pub limits: Vec<(usize, usize)>,
    /// The keys that make room.
    pub evicted: EvictedKeys,
}

/// The keys that may be evicted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EvictedKeys {
    /// No key.
    #[default]
    None,
    /// Keys with an expiry, which there need not be.
    Expiring,
    /// Any key.
    All,
}

impl DatabaseLimits {
    /// Whether a database has room for `coming` bytes more. `used` is asked only if the database has a limit.
    pub fn has_room(&self, database: usize, coming: usize, used: impl FnOnce(usize) -> usize) -> bool {
        let Ok(at) = self.limits.binary_search_by_key(&database, |(number, _)| *number) else { return true };
        let limit = self.limits[at].1;
        // A value that would not fit if nothing else were there evicts nothing.
        coming <= limit
            && match self.evicted {
                EvictedKeys::None => used(database).saturating_add(coming) <= limit,
                EvictedKeys::Expiring => used(database) <= limit,
                EvictedKeys::All => true,
            }
    }
}

/// The issuer of commands, the time, and what they may do. The default is the server itself, at no time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Caller {
    /// Unix time in milliseconds, read once a batch: keys and elements whose time is not later have expired.
    pub now_ms: u64,
    /// The time at which a log is being replayed, 0 while none is. Then `now_ms` is 0: nothing expires,
    /// since the log says itself what did.
    pub replaying_at_ms: u64,
    /// The mark that accesses leave in the stamps of keys: [`crate::keyspace::AccessClock::access`] at that time.
    pub access: Access,
    /// The client; the default is none.
    pub client: ClientToken,
    /// Whether reads leave the keys' access clocks alone (`CLIENT NO-TOUCH`).
    pub no_touch: bool,
    /// Whether later changes of the keys that are read are reported to the client (`CLIENT TRACKING`).
    pub tracks: bool,
    /// Whether all changes are reported to a client (`CLIENT TRACKING … BCAST`).
    pub broadcasts: bool,
    /// Whether keys that have expired stay where they are, hidden from clients (`CLIENT PAUSE`).
    pub keep_expired: bool,
    /// Whether no command may wait for keys: in transactions and scripts.
    pub deny_blocking: bool,
    /// Whether a script runs the commands: a reply without an order of its own is put in that of its bytes, so that the
    /// script comes to the same again.
    pub in_script: bool,
    /// Whether the log that is replayed is a primary's at work: clients that wait here for its changes are served.
    pub follows_primary: bool,
    /// Whether a command waits if there is a view of what it may change, instead of copying that.
    pub waits_for_views: bool,
    /// The number of [`crate::LogSwitch::admissions`] when its commands were let in; `None` if they need not be.
    pub admission: Option<u32>,
    /// How many elements a command may visit where it stands; one that would visit more is offloaded. `None` for any number.
    pub visits_max: Option<usize>,
}

impl Caller {
    /// Unix time in milliseconds by the clock, also while a log is replayed and nothing expires. Relative times, IDs of
    /// streams and times of access count from here.
    #[inline]
    pub fn clock_ms(&self) -> u64 {
        self.now_ms.max(self.replaying_at_ms)
    }

    /// This caller, served while another one's command runs: later than when it came.
    pub(crate) fn at_time_of(self, other: &Caller) -> Caller {
        Caller {
            now_ms: other.now_ms,
            replaying_at_ms: other.replaying_at_ms,
            access: other.access,
            broadcasts: other.broadcasts,
            keep_expired: other.keep_expired,
            follows_primary: other.follows_primary,
            ..self
        }
    }
}

/// A policy and a caller: what every command is run under.
#[derive(Debug, Clone, Copy)]
pub struct Environment<'a> {
    /// The settings in force.
    pub policy: &'a Policy,
    /// The issuer of the command.
    pub caller: &'a Caller,
}

impl<'a> Environment<'a> {
    /// A policy and a caller together.
    #[inline]
    pub fn new(policy: &'a Policy, caller: &'a Caller) -> Self {
        Self { policy, caller }
    }

    /// Refuses to give a database `coming` bytes if that is more than its limit has room for. Streams and logs say what
    /// was done: their commands are not asked.
    pub(crate) fn check_room(&self, keyspace: &Keyspace, database: usize, coming: usize) -> CommandResult {
        let Some(limits) = &self.policy.database_limits else { return Ok(()) };
        let is_asked = !self.caller.follows_primary && self.caller.replaying_at_ms == 0;
        match is_asked && !limits.has_room(database, coming, |database| keyspace.database_bytes(database)) {
            true => Err(CommandError::OutOfMemory),
            false => Ok(()),
        }
    }
}
