//! Which replies wait for which durability: the disk, or replicas.
//!
//! ```text
//! level 0        the log, as durable as `appendfsync` asks for
//! level 1        the log on disk                                      CLIENT DURABILITY disk
//! level 1 + n    n replicas have it, and level 0 where that counts    min-sync-replicas n, CLIENT DURABILITY sync n
//! level LEASE    the lease of the term that is the mark               primaries of a cluster
//! levels COMMIT  the members of the in-sync set have it               the same, cluster-durability sync
//! levels SEEN    the same, as far as a replica knows                  replicas, cluster-durability sync
//! ```
//!
//! A reply waits for what its command may have seen ([`super::seen`]), or for the log up to its end if that is not
//! known. A connection that has chosen less than others sees what is not committed for them yet.
//!
//! A level may be out of reach as things are: the disk fails, or there are fewer replicas than it takes. Replies that wait
//! for it are refused then, with the error that the client's next write gets (docs/durability.md).
//!
//! A push about data (a message, a keyspace event, a line of MONITOR) waits for the server's own level, whatever its
//! listener has chosen: up to the log's end after the change. Invalidations do not wait: they show a name and no value
//! (docs/decisions/0054).

use std::sync::{Arc, Weak};

use dunlin_engine::{LogConsumer, command::CommandError};
use dunlin_net::{Commitment, Commitments, WorkerQueues};

use super::Executor;
use crate::{
    admission::{CLUSTERDOWN, NOREPLICAS},
    config::{AppendFsync, Config, SYNC_REPLICAS_MAX, SyncReplicasMissing},
    session::{Durability, Session},
    shared::Shared,
    workers::WorkerMessage,
};

/// The level of the log.
const LOG: u8 = 0;
/// The level of the disk.
const DISK: u8 = 1;
/// The level of a primary's lease, behind those of replicas.
const LEASE: u8 = DISK + SYNC_REPLICAS_MAX as u8 + 1;
/// The levels of a shard's commit, in terms of even and odd numbers: a term's uncommitted replies are lost with it.
const COMMIT: [u8; 2] = [LEASE + 1, LEASE + 2];
/// The levels of the shard's commit at a replica, for data sets of even and odd numbers: a copy of the primary's
/// replaces what was seen.
const SEEN: [u8; 2] = [LEASE + 3, LEASE + 4];

/// The levels for all workers: they write pushes of each other's clients.
struct Levels(Weak<Shared>);

impl Commitments for Levels {
    fn released(&self, level: u8) -> u64 {
        self.0.upgrade().map_or(0, |shared| shared.level_released(level, &shared.config.current()))
    }

    fn of_push(&self) -> Commitment {
        let shared = self.0.upgrade();
        shared.map_or_else(Commitment::default, |shared| shared.commitment_of_push(&shared.config.current()))
    }

    fn is_void(&self, level: u8) -> bool {
        self.0.upgrade().is_none_or(|shared| shared.is_level_void(level))
    }
}

/// Lets workers, and what posts pushes, know the levels.
pub(super) fn attach(shared: &Arc<Shared>, queues: &WorkerQueues<WorkerMessage>) {
    queues.set_commitments(Levels(Arc::downgrade(shared)));
}

impl Shared {
    /// The commitment before which a push about the present end of the log may not leave.
    #[inline]
    pub(crate) fn commitment_of_push(&self, config: &Config) -> Commitment {
        if self.cluster.is_sync()
            && let Some(commitment) = self.push_commitment_to_shard()
        {
            return commitment;
        }
        let tail = self.durability.tail();
        match config.min_sync_replicas {
            0 => self.commitment_to_log(tail, config),
            // Changes only behind the closed gate, so it is the role under which the push's change was recorded.
            _ if self.engine.log.follows() => self.commitment_to_log(tail, config),
            replicas => self.commitment_at(DISK + replicas, tail, config),
        }
    }

    /// The part of the commitment that the shard's commit has to meet; `None` if that is met.
    fn push_commitment_to_shard(&self) -> Option<Commitment> {
        let (term, mark) = (self.cluster.lease.term(), self.durability.tail());
        let level = match term {
            0 => SEEN[usize::from(self.replication.is_copy_odd())],
            _ => COMMIT[(term & 1) as usize],
        };
        (self.replication.shard_committed() < mark).then_some(Commitment { level, mark })
    }

    #[inline]
    fn commitment_to_log(&self, mark: u64, config: &Config) -> Commitment {
        if config.appendfsync != AppendFsync::Always || !self.engine.log.is_on_for(LogConsumer::File) {
            return Commitment::default();
        }
        self.commitment_at(LOG, mark, config)
    }

    /// A level, up to a place of the log.
    fn commitment_at(&self, level: u8, mark: u64, config: &Config) -> Commitment {
        let is_met = self.level_released(level, config) >= mark;
        if is_met { Commitment::default() } else { Commitment { level, mark } }
    }

    /// Whether there are fewer replicas than a reply is to wait for, and such replies are refused.
    #[inline]
    pub(super) fn lacks_sync_replicas(&self, replicas: u8, config: &Config) -> bool {
        replicas > 0
            && config.sync_replicas_missing == SyncReplicasMissing::Refuse
            && !self.replication.is_replica()
            && self.replication.online() < usize::from(replicas)
    }

    /// Whether nothing that waits for a level now will ever be released: its term as a primary is over.
    fn is_level_void(&self, level: u8) -> bool {
        let term = self.cluster.lease.term();
        COMMIT.contains(&level) && (term == 0 || level != COMMIT[(term & 1) as usize])
    }

    /// How far a level has come.
    pub(crate) fn level_released(&self, level: u8, config: &Config) -> u64 {
        let durability = &self.durability;
        match level {
            LOG => durability.durable(),
            DISK if durability.is_off() => u64::MAX,
            DISK => durability.on_disk(),
            LEASE => self.cluster.lease.valid_term(),
            // A term before this one has ceased to commit.
            _ if COMMIT.contains(&level) => match self.cluster.lease.valid_term() {
                term if term == 0 || level != COMMIT[(term & 1) as usize] => 0,
                _ => self.replication.shard_committed(),
            },
            _ if SEEN.contains(&level) => self.replication.shard_committed(),
            _ => {
                let committed = self.replication.committed(level - DISK);
                let waits_for_log =
                    config.appendfsync == AppendFsync::Always && self.engine.log.is_on_for(LogConsumer::File);
                if waits_for_log { committed.min(durability.durable()) } else { committed }
            }
        }
    }
}

impl Executor {
    /// Whether pushes about what is changed now have to wait: then they are told behind the record of the change.
    pub(crate) fn withholds_pushes(&self) -> bool {
        self.config.config().withholds_pushes() || self.shared.cluster.is_sync()
    }

    /// The commitment before which a message of a client may not leave: up to what the client may have seen. Messages that
    /// are not about data, such as Sentinel's, wait for nothing.
    pub(crate) fn commitment_of_message(&self, session: &Session) -> Commitment {
        if !self.withholds_pushes() {
            return Commitment::default();
        }
        let config = self.config.config();
        let Commitment { level, mark } = self.shared.commitment_of_push(config);
        let mark = mark.min(self.seen_so_far(session));
        let is_met = self.shared.level_released(level, config) >= mark;
        if is_met { Commitment::default() } else { Commitment { level, mark } }
    }

    /// The commitment before which a reply to the commands just served may not leave. None if the data set was not
    /// looked at, as with INFO, which has to answer while the disk fails.
    #[inline]
    pub(super) fn commitment(&self, session: &Session) -> Commitment {
        if !self.saw_data.any() {
            return Commitment::default();
        }
        self.commitment_to(session, self.shared.durability.tail())
    }

    /// The commitment of a reply that has seen the log up to `mark` at most.
    #[inline]
    pub(super) fn commitment_to(&self, session: &Session, mark: u64) -> Commitment {
        if self.shared.cluster.is_on()
            && let Some(commitment) = self.commitment_to_shard(session, mark)
        {
            return commitment;
        }
        let config = self.config.config();
        match (session.durability_mode, config.min_sync_replicas) {
            (Durability::Configured, 0) => self.shared.commitment_to_log(mark, config),
            _ => self.commitment_of(session, mark, config),
        }
    }

    /// The first commitment of a reply on a node of a cluster; `None` if that is met.
    fn commitment_to_shard(&self, session: &Session, mark: u64) -> Option<Commitment> {
        let (shared, term) = (&self.shared, self.term.get());
        // The keys of a move may be years old: in `async`, too, all members have it before the source gives it up.
        let waits = shared.cluster.is_sync() && session.durability_mode != Durability::Async
            || session.import.is_some();
        let level = match (term, waits) {
            (0, false) => return None,
            (0, true) => SEEN[usize::from(shared.replication.is_copy_odd())],
            (_, true) => COMMIT[(term & 1) as usize],
            (_, false) if shared.cluster.lease.is_valid(term) => return None,
            (_, false) => return Some(Commitment { level: LEASE, mark: term }),
        };
        let is_met = shared.replication.shard_committed() >= mark;
        let is_led = term == 0 || shared.cluster.lease.is_valid(term);
        match (is_met, is_led) {
            (true, true) => None,
            (true, false) => Some(Commitment { level: LEASE, mark: term }),
            (false, _) => Some(Commitment { level, mark }),
        }
    }

    fn commitment_of(&self, session: &Session, mark: u64, config: &Config) -> Commitment {
        // A replica shows its primary's data; its own log may be asked for. A command that ran on a primary still waits for
        // replicas if the server has become a replica since: without them the write is lost.
        let is_replica = session.as_replica && self.shared.replication.is_replica();
        match session.durability_mode {
            Durability::Async => Commitment::default(),
            Durability::Disk if self.shared.engine.log.is_on_for(LogConsumer::File) => {
                self.shared.commitment_at(DISK, mark, config)
            }
            _ => match session.sync_replicas(config) {
                0 => self.shared.commitment_to_log(mark, config),
                _ if is_replica => self.shared.commitment_to_log(mark, config),
                replicas => self.shared.commitment_at(DISK + replicas, mark, config),
            },
        }
    }

    /// How far a level has come.
    pub(super) fn level_released(&self, level: u8) -> u64 {
        self.shared.level_released(level, self.config.config())
    }

    /// Asks to be woken when a commitment is met; `false`: it is.
    pub(super) fn await_commitment(&mut self, Commitment { level, mark }: Commitment) -> bool {
        let (shared, worker) = (&self.shared, self.worker.id());
        match level {
            LOG => shared.durability.await_durable(worker, mark),
            DISK => shared.durability.await_sync(worker, mark),
            LEASE => {
                shared.cluster.lease.wait();
                shared.cluster.lease.valid_term() < mark
            }
            _ if level > LEASE => {
                shared.cluster.lease.wait();
                shared.replication.await_shard_commit(worker);
                // A primary that is alone commits what it has.
                shared.cluster.shard.wake();
                self.level_released(level) < mark
            }
            _ => {
                let waits_for_log = shared.durability.durable() < mark
                    && self.config.config().appendfsync == AppendFsync::Always;
                if waits_for_log {
                    shared.durability.await_durable(worker, mark);
                }
                shared.replication.await_commit(worker);
                self.level_released(level) < mark
            }
        }
    }

    /// The error that a reply gets in its place which waits for a level that is out of reach; `None` while it may be reached.
    /// The level may be within reach again later, and the change then be durable: the text says so.
    pub(super) fn refusal_of(&self, Commitment { level, mark }: Commitment) -> Option<CommandError> {
        let (shared, config) = (&self.shared, self.config.config());
        let refuse = |error: CommandError, place: &str| {
            let text = format!(". The command has run, but what it has written or seen is not {place} yet");
            let line = error.line();
            let line = line.strip_suffix(b".").unwrap_or(&line);
            Some(CommandError::Text([line, text.as_bytes()].concat().into()))
        };
        let waits_for_log = || {
            config.appendfsync == AppendFsync::Always
                && shared.engine.log.is_on_for(LogConsumer::File)
                && shared.durability.durable() < mark
        };
        match level {
            LOG | DISK if shared.durability.is_failing() => refuse(shared.durability.refusal(), "on disk"),
            LOG | DISK => None,
            _ if (level == LEASE || COMMIT.contains(&level)) && shared.cluster.lease.is_long_gone() => {
                refuse(CLUSTERDOWN, "committed")
            }
            LEASE => None,
            _ if COMMIT.contains(&level) => match shared.cluster.lacks_members() {
                true => refuse(NOREPLICAS, "at enough members of the shard"),
                false => None,
            },
            _ if SEEN.contains(&level) => None,
            _ if shared.durability.is_failing() && waits_for_log() => {
                refuse(shared.durability.refusal(), "on disk")
            }
            _ if shared.lacks_sync_replicas(level - DISK, config) => refuse(NOREPLICAS, "at enough replicas"),
            _ => None,
        }
    }

    /// Whether a reply waits in vain: for a term that is over, or for replicas of a server that has been demoted, and whatever they
    /// lack is gone.
    pub(super) fn has_lost_commitment(&self, Commitment { level, mark }: Commitment) -> bool {
        match level {
            LOG | DISK => false,
            LEASE => self.shared.cluster.lease.term() != mark,
            _ if COMMIT.contains(&level) => {
                let term = self.shared.cluster.lease.term();
                term == 0 || level != COMMIT[(term & 1) as usize]
            }
            _ if SEEN.contains(&level) => level != SEEN[usize::from(self.shared.replication.is_copy_odd())],
            _ => self.shared.replication.is_replica(),
        }
    }
}
