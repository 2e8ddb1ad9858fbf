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
//! A reply waits for all that its commands may have seen: up to the log's end behind them. A connection that has chosen less
//! than others sees what is not committed for them yet.

use dunlin_engine::LogConsumer;
use dunlin_net::Commitment;

use super::Executor;
use crate::{
    config::{AppendFsync, Config, SYNC_REPLICAS_MAX},
    session::{Durability, Session},
};

/// The level of the log.
const LOG: u8 = 0;
/// The level of the disk.
const DISK: u8 = 1;
/// The level of a primary's lease, behind those of replicas.
const LEASE: u8 = DISK + SYNC_REPLICAS_MAX as u8 + 1;
/// The levels of a shard's commit, in terms of even and odd numbers: a term's uncommitted replies are lost with it.
const COMMIT: [u8; 2] = [LEASE + 1, LEASE + 2];
/// The same at a replica, for data sets of even and odd numbers: a copy of the primary's replaces what was seen.
const SEEN: [u8; 2] = [LEASE + 3, LEASE + 4];

impl Executor {
    /// The commitment before which a reply to the commands just served may not leave. None, where the data set was not looked at, as
    /// with INFO, which has to answer while the disk fails.
    #[inline]
    pub(super) fn commitment(&self, session: &Session) -> Commitment {
        if !self.saw_data {
            return Commitment::default();
        }
        if self.shared.cluster.is_on()
            && let Some(commitment) = self.commitment_to_shard(session)
        {
            return commitment;
        }
        let config = self.config.config();
        match (session.durability_mode, config.min_sync_replicas) {
            (Durability::Configured, 0) => self.commitment_to_log(config),
            _ => self.commitment_of(session, config),
        }
    }

    /// What a reply waits for on a node of a cluster, first of all; `None` where that is met.
    fn commitment_to_shard(&self, session: &Session) -> Option<Commitment> {
        let (shared, term) = (&self.shared, self.term.get());
        let waits = shared.cluster.is_sync() && session.durability_mode != Durability::Async;
        let level = match (term, waits) {
            (0, false) => return None,
            (0, true) => SEEN[usize::from(shared.replication.is_copy_odd())],
            (_, true) => COMMIT[(term & 1) as usize],
            (_, false) if shared.cluster.lease.is_valid(term) => return None,
            (_, false) => return Some(Commitment { level: LEASE, mark: term }),
        };
        let mark = shared.durability.tail();
        let is_met = shared.replication.shard_committed() >= mark;
        let is_led = term == 0 || shared.cluster.lease.is_valid(term);
        match (is_met, is_led) {
            (true, true) => None,
            (true, false) => Some(Commitment { level: LEASE, mark: term }),
            (false, _) => Some(Commitment { level, mark }),
        }
    }

    #[inline]
    fn commitment_to_log(&self, config: &Config) -> Commitment {
        if config.appendfsync != AppendFsync::Always || !self.shared.engine.log.is_on_for(LogConsumer::File) {
            return Commitment::default();
        }
        self.commitment_at(LOG)
    }

    fn commitment_of(&self, session: &Session, config: &Config) -> Commitment {
        // A replica shows its primary's data; its own log may be asked for.
        let is_replica = self.shared.replication.is_replica();
        match session.durability_mode {
            Durability::Async => Commitment::default(),
            Durability::Disk if self.shared.engine.log.is_on_for(LogConsumer::File) => {
                self.commitment_at(DISK)
            }
            _ => match session.sync_replicas(config) {
                0 => self.commitment_to_log(config),
                _ if is_replica => self.commitment_to_log(config),
                replicas => self.commitment_at(DISK + replicas),
            },
        }
    }

    /// A level, up to the log's end.
    fn commitment_at(&self, level: u8) -> Commitment {
        let mark = self.shared.durability.tail();
        let is_met = self.level_released(level) >= mark;
        if is_met { Commitment::default() } else { Commitment { level, mark } }
    }

    /// How far a level has come.
    pub(super) fn level_released(&self, level: u8) -> u64 {
        let durability = &self.shared.durability;
        match level {
            LOG => durability.durable(),
            DISK if durability.is_off() => u64::MAX,
            DISK => durability.on_disk(),
            LEASE => self.shared.cluster.lease.valid_term(),
            _ if COMMIT.contains(&level) => match self.shared.cluster.lease.valid_term() {
                0 => 0,
                _ => self.shared.replication.shard_committed(),
            },
            _ if SEEN.contains(&level) => self.shared.replication.shard_committed(),
            _ => {
                let committed = self.shared.replication.committed(level - DISK);
                let waits_for_log = self.config.config().appendfsync == AppendFsync::Always
                    && self.shared.engine.log.is_on_for(LogConsumer::File);
                if waits_for_log { committed.min(durability.durable()) } else { committed }
            }
        }
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
