//! The data set as the machine of a shard has to know it.

use dunlin_cluster::{HistoryId, shard::Local};
use dunlin_replication::Id;

use crate::{
    config::{AppendFsync, Config},
    shared::Shared,
};

/// The history that an id of replication stands for.
pub(super) fn history_of(id: Id) -> HistoryId {
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
pub(super) fn is_durable(config: &Config) -> bool {
    config.appendonly && config.appendfsync == AppendFsync::Always
}

/// The data set as a machine that begins has to know it.
pub(super) fn local(shared: &Shared, is_durable: bool, clean: bool) -> Local {
    let data = shared.replication.data(&shared.engine, &shared.durability, is_durable);
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
