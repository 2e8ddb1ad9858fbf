//! Which replies wait for which durability: the disk, or replicas.
//!
//! ```text
//! level 0        the log, as durable as `appendfsync` asks for
//! level 1        the log on disk                                      CLIENT DURABILITY disk
//! level 1 + n    n replicas have it, and level 0 where that counts    min-sync-replicas n, CLIENT DURABILITY sync n
//! level LEASE    the lease of the term that is the mark               primaries of a cluster
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

impl Executor {
    /// The commitment before which a reply to the commands just served may not leave. None, where the data set was not looked at, as
    /// with INFO, which has to answer while the disk fails.
    #[inline]
    pub(super) fn commitment(&self, session: &Session) -> Commitment {
        if !self.saw_data {
            return Commitment::default();
        }
        let term = self.term.get();
        if term != 0 && !self.shared.cluster.lease.is_valid(term) {
            return Commitment { level: LEASE, mark: term };
        }
        let config = self.config.config();
        match (session.durability_mode, config.min_sync_replicas) {
            (Durability::Configured, 0) => self.commitment_to_log(config),
            _ => self.commitment_of(session, config),
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
            _ => self.shared.replication.is_replica(),
        }
    }
}
