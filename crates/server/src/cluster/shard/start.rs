//! The data set as a start finds it, and the report of that in the node's record.

use std::sync::{Mutex, PoisonError};

use dunlin_cluster::{
    HistoryId, ShardId,
    records::{Restart, ShardRecord},
    shard::Local,
};
use dunlin_replication::Id;

use crate::{
    cluster::ending::Ending,
    config::{AppendFsync, Config},
    shared::Shared,
};

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

/// The history that an id of replication stands for.
pub(in super::super) fn history_of(id: Id) -> HistoryId {
    id.as_str().parse().unwrap_or_else(|_| {
        // Another house's: no history of a shard has it.
        let mut bytes = [0; 20];
        bytes.copy_from_slice(&id.as_str().as_bytes()[..20]);
        HistoryId::from_bytes(bytes)
    })
}

pub(super) fn id_of(history: HistoryId) -> Id {
    Id::from_random(history.bytes())
}

/// Whether what counts as a node's data is what is synced.
pub(in super::super) fn is_durable(config: &Config) -> bool {
    config.appendonly && config.appendfsync == AppendFsync::Always
}

/// The data set as a machine that begins has to know it.
pub(in super::super) fn local(shared: &Shared, is_durable: bool, clean: bool) -> Local {
    let data = shared.replication.data(shared, is_durable);
    match data.history {
        Some(id) if data.is_whole() => {
            Local { history: Some(history_of(id)), end: data.end, held: data.held.min(data.end), clean }
        }
        // Keys without a place in a stream are part of no history.
        _ if shared.engine.keyspace.used_bytes() > 0 && has_keys(shared) => {
            Local { history: Some(history_of(shared.replication.history().id)), clean, ..Local::default() }
        }
        _ => Local { clean, ..Local::default() },
    }
}

fn has_keys(shared: &Shared) -> bool {
    shared.engine.survey_unless_long().is_none_or(|survey| survey.total().keys > 0)
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
