//! The data set as the machine of a shard has to know it.

use std::collections::BTreeSet;

use dunlin_cluster::{
    HistoryId, NodeId, ShardId, SlotSet,
    meta::Transaction,
    records::{self, Key, Keys, Record, ShardRecord, SlotsRecord},
    shard::Local,
};
use dunlin_replication::{History, Id};

use crate::{
    config::{AppendFsync, Config},
    replication::new_id,
    shared::Shared,
    system::host::draw,
};

/// The history that an id of replication stands for.
pub(super) fn history_of(id: Id) -> HistoryId {
    id.as_str().parse().unwrap_or_else(|_| {
        // The id of a Redis or Valkey: no history of a shard has it.
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
    config.appendonly
        && config.appendfsync == AppendFsync::Always
        // A rewrite would hold up the shard's commit for as long as it takes.
        && !config.no_appendfsync_on_rewrite
}

/// The data set as a machine that begins has to know it.
pub(super) fn local(shared: &Shared, is_durable: bool, clean: bool) -> Local {
    let data = shared.replication.data(&shared.durability, is_durable);
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

/// Notes how the process has ended: nothing is added to the data set afterwards.
pub(crate) fn note_end(shared: &Shared) {
    let Some(history) = shared.cluster.clean.get().copied() else { return };
    let config = shared.config.current();
    let data = shared.replication.data(&shared.durability, false);
    if data.is_whole()
        && data.history.map(history_of) == Some(history)
        && let Err(line) = shared.cluster.ending.end(is_durable(&config), (history, data.end), &config.dir)
    {
        tracing::error!("{line}");
    }
}

/// Gives a data set with keys a place in a stream, unless it has one: at an offset that no empty data set has.
pub(super) fn take_place(shared: &Shared) -> Result<(), String> {
    let data = shared.replication.data(&shared.durability, false);
    if data.history.is_none() || data.end == 0 {
        shared.replication.restart_stream(&shared.engine, History::new(new_id()?), 1);
        shared.replication.keep_stream(&shared.durability);
    }
    Ok(())
}

/// Adds a cluster's first shard to a transaction: its data set is that of this node, with all slots. If another node is
/// faster, nothing comes of it.
pub(super) fn with_first_shard(
    transaction: Transaction,
    keys: &Keys,
    shared: &Shared,
    me: NodeId,
) -> Result<Transaction, String> {
    let data = shared.replication.data(&shared.durability, false);
    let history = data.history.ok_or("the data set has no place in a stream")?;
    let shard = ShardId::from_bytes(draw()?);
    let record = ShardRecord {
        epoch: 1,
        primary: me,
        in_sync: [me].into(),
        learners: BTreeSet::new(),
        history: records::History { id: history_of(history), from: data.end, previous: None },
        requested: None,
    };
    let mut slots = SlotsRecord::default();
    slots.slots.assign(&SlotSet::all(), Some(shard));
    let key = keys.text(Key::Shard(shard));
    Ok(transaction
        .compare(keys.text(Key::Slots), 0)
        .put(keys.text(Key::Slots), slots.encode())
        .compare(key.clone(), 0)
        .put(key, record.encode()))
}

fn has_keys(shared: &Shared) -> bool {
    shared.engine.survey_unless_long().is_none_or(|survey| survey.total().keys > 0)
}
