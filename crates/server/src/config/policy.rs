//! The part of the configuration that commands obey.

use std::sync::Arc;

use dunlin_engine::{
    DatabaseLimits, EvictedKeys, Policy,
    value::{CollectionLimits, stream::ProducerLimits},
};

use super::{
    settings::Config,
    values::{MaxmemoryPolicy, ModuleData, VersionCheck},
};

/// The part of the configuration that commands obey.
pub(crate) fn policy(config: &Config) -> Policy {
    Policy {
        string_bytes_max: config.proto_max_bulk_len as usize,
        compress_dumps: config.rdbcompression,
        relaxed_versions: config.rdb_version_check == VersionCheck::Relaxed,
        refuses_foreign: config.module_data != ModuleData::Keep,
        notifications: config.notify_keyspace_events.published(),
        lazyfree_expire: config.lazyfree_lazy_expire,
        lazyfree_server_del: config.lazyfree_lazy_server_del,
        lazyfree_user_del: config.lazyfree_lazy_user_del,
        lazyfree_user_flush: config.lazyfree_lazy_user_flush,
        slots: None,
        database_limits: database_limits(config),
        stamps_changes: matches!(
            config.maxmemory_policy,
            MaxmemoryPolicy::AllkeysLrm | MaxmemoryPolicy::VolatileLrm
        ),
        collection_limits: CollectionLimits {
            hash_max_listpack_entries: config.hash_max_listpack_entries as usize,
            hash_max_listpack_value: config.hash_max_listpack_value as usize,
            list_max_listpack_size: i64::from(config.list_max_listpack_size),
            list_packed_threshold: 0,
            hll_sparse_max_bytes: config.hll_sparse_max_bytes as usize,
            set_max_intset_entries: config.set_max_intset_entries as usize,
            set_max_listpack_entries: config.set_max_listpack_entries as usize,
            set_max_listpack_value: config.set_max_listpack_value as usize,
            zset_max_listpack_entries: config.zset_max_listpack_entries as usize,
            zset_max_listpack_value: config.zset_max_listpack_value as usize,
            stream_node_max_bytes: config.stream_node_max_bytes as usize,
            stream_node_max_entries: config.stream_node_max_entries as usize,
            producers: ProducerLimits {
                duration_s: config.stream_idmp_duration,
                entries_max: config.stream_idmp_maxsize,
            },
            ..CollectionLimits::default()
        },
    }
}

/// The limits of databases; `None` if there are none.
fn database_limits(config: &Config) -> Option<Arc<DatabaseLimits>> {
    use MaxmemoryPolicy::{
        AllkeysAuto, AllkeysLfu, AllkeysLrm, AllkeysLru, AllkeysRandom, Noeviction, VolatileAuto,
        VolatileLfu, VolatileLrm, VolatileLru, VolatileRandom, VolatileTtl,
    };
    if config.db_maxmemory.is_empty() {
        return None;
    }
    let evicted = match config.maxmemory_policy {
        Noeviction => EvictedKeys::None,
        VolatileAuto | VolatileLfu | VolatileLrm | VolatileLru | VolatileRandom | VolatileTtl => {
            EvictedKeys::Expiring
        }
        AllkeysAuto | AllkeysLfu | AllkeysLrm | AllkeysLru | AllkeysRandom => EvictedKeys::All,
    };
    let limit = |(database, limit)| (database, usize::try_from(limit).unwrap_or(usize::MAX));
    Some(Arc::new(DatabaseLimits { limits: config.db_maxmemory.iter().map(limit).collect(), evicted }))
}
