//! The data set as a start finds it, and the report of that in the node's record.

use std::sync::{Mutex, PoisonError};

use dunlin_cluster::{
    HistoryId, ShardId,
    records::{Restart, ShardRecord},
    shard::Local,
};

use crate::cluster::ending::Ending;

/// The report of this process's start, as the node's record has it.
#[derive(Debug, Default)]
pub(in super::super) struct Restarts(Mutex<Option<Restart>>);

impl Restarts {
    pub(in super::super) fn set(&self, restart: Option<Restart>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = restart;
    }

    pub(in super::super) fn get(&self) -> Option<Restart> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The report of a start, for a node that is part of a shard; and whether the data set has all that was acknowledged.
pub(in super::super) fn report(
    shard: Option<(ShardId, &ShardRecord)>,
    ending: Ending,
    local: Local,
) -> (Option<Restart>, bool) {
    let Some((id, record)) = shard else { return (None, true) };
    let clean = ending.covers(local.history, local.end);
    let history = local.history.unwrap_or(HistoryId::from_bytes([0; 20]));
    (Some(Restart { shard: id, epoch: record.epoch, history, offset: local.end, clean }), clean)
}
