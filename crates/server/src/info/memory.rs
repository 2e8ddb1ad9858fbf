//! Memory and keys.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    Reading, human,
    metric::{Family, Metric, Number, Row, Unit},
    ratio,
    reading::Memory,
};
use crate::system::host;

/// A gauge of bytes without a line for humans.
const fn bytes(name: &'static str, summary: &'static str, read: fn(&Reading<'_>) -> Number) -> Row {
    Row::One(Metric::gauge(name, Unit::Bytes, summary, read))
}

const fn count(name: &'static str, summary: &'static str, read: fn(&Reading<'_>) -> Number) -> Row {
    Row::One(Metric::gauge(name, Unit::Count, summary, read))
}

const fn quotient(name: &'static str, summary: &'static str, read: fn(&Reading<'_>) -> Number) -> Row {
    Row::One(Metric::gauge(name, Unit::Ratio, summary, read))
}

pub(super) const ROWS: &[Row] = &[
    Row::One(Metric::bytes(
        "used_memory",
        "All memory in use; `maxmemory` limits it without `mem_not_counted_for_evict`.",
        |reading| reading.memory().used.into(),
    )),
    Row::One(Metric::bytes("used_memory_rss", "Resident memory of the process.", |reading| {
        reading.memory().resident.into()
    })),
    Row::One(Metric::bytes("used_memory_peak", "The most that `used_memory` has been.", |reading| {
        reading.memory().peak.into()
    })),
    Row::One(Metric::gauge(
        "used_memory_peak_perc",
        Unit::Percent,
        "`used_memory` as a part of its peak.",
        |reading| percent(reading.memory().used, reading.memory().peak),
    )),
    bytes("used_memory_overhead", "`used_memory` without keys and values.", |reading| {
        reading.memory().overhead.into()
    }),
    bytes("used_memory_startup", "`used_memory` before the first command.", |reading| {
        reading.memory().startup.into()
    }),
    bytes("used_memory_dataset", "Keys and values.", |reading| reading.memory().dataset().into()),
    Row::One(Metric::gauge(
        "used_memory_dataset_perc",
        Unit::Percent,
        "Keys and values as a part of all that came after the start.",
        |reading| percent(reading.memory().dataset(), reading.memory().above_startup()),
    )),
    bytes("allocator_allocated", "Memory handed out: `used_memory`.", |reading| reading.memory().used.into()),
    bytes("allocator_active", "Memory in pages that are in use.", |reading| reading.memory().active.into()),
    bytes("allocator_resident", "The same with free pages that are resident.", |reading| {
        reading.memory().allocator_resident.into()
    }),
    Row::One(Metric::bytes("total_system_memory", "Memory of the machine.", |_| {
        host::system_memory_bytes().into()
    })),
    bytes("used_memory_lua", "Lua machines of EVAL: an older name of `used_memory_vm_eval`.", |reading| {
        reading.memory().eval_machines.into()
    }),
    bytes("used_memory_vm_eval", "Lua machines of EVAL, with garbage.", |reading| {
        reading.memory().eval_machines.into()
    }),
    Row::One(Metric::text("used_memory_lua_human", "`used_memory_lua` with a unit.", |reading| {
        human(reading.memory().eval_machines).into()
    })),
    bytes("used_memory_scripts_eval", "Texts of cached scripts.", |reading| reading.memory().scripts.into()),
    count("number_of_cached_scripts", "Cached scripts.", |reading| reading.shared.scripts.len().into()),
    count("number_of_functions", "Functions of all libraries.", |reading| {
        reading.shared.libraries.now().functions().into()
    }),
    count("number_of_libraries", "Libraries of functions.", |reading| {
        reading.shared.libraries.now().len().into()
    }),
    bytes("used_memory_vm_functions", "Lua machines of functions, with garbage.", |reading| {
        reading.memory().function_machines.into()
    }),
    Row::One(Metric::bytes("used_memory_vm_total", "All Lua machines.", |reading| {
        (reading.memory().eval_machines + reading.memory().function_machines).into()
    })),
    bytes("used_memory_functions", "Texts of libraries.", |reading| reading.memory().functions.into()),
    Row::One(Metric::bytes("used_memory_scripts", "Texts of cached scripts and libraries.", |reading| {
        (reading.memory().scripts + reading.memory().functions).into()
    })),
    Row::One(Metric::bytes("maxmemory", "The directive `maxmemory`; 0 for no limit.", |reading| {
        reading.config.maxmemory.into()
    })),
    Row::Each(Family {
        prefix: "db_maxmemory_",
        label: "database",
        summary: "Each database with a limit of its own.",
        fields: &[
            ("limit", Unit::Bytes, "Its limit, of `db-maxmemory`."),
            ("used", Unit::Bytes, "Memory of its keys, their values and their index."),
            ("evicted", Unit::Count, "Keys of it that were evicted since the start."),
        ],
        read: |reading, line| {
            let keyspace = &reading.shared.engine.keyspace;
            for (database, limit) in reading.config.db_maxmemory.iter() {
                if database < keyspace.databases() {
                    let used = (keyspace.database_bytes(database) as u64).into();
                    let evicted = keyspace.evicted(database).into();
                    line(&database, &[("limit", limit.into()), ("used", used), ("evicted", evicted)]);
                }
            }
        },
    }),
    Row::One(Metric::text("maxmemory_policy", "The directive `maxmemory-policy`.", |reading| {
        reading.config.maxmemory_policy.to_string().into()
    })),
    quotient(
        "maxmemory_auto_weight",
        "Doublings of age or size that one use of a key outweighs under the policies `auto`, as learned so far.",
        |reading| Number::Decimal(reading.shared.engine.keyspace.access_clock().weight_of_a_use(), 2),
    ),
    quotient("allocator_frag_ratio", "`allocator_active` to `allocator_allocated`.", |reading| {
        quotient_of(reading, |memory| (memory.active, memory.used))
    }),
    bytes("allocator_frag_bytes", "Their difference.", |reading| {
        difference_of(reading, |memory| (memory.active, memory.used))
    }),
    quotient("allocator_rss_ratio", "`allocator_resident` to `allocator_active`.", |reading| {
        quotient_of(reading, |memory| (memory.allocator_resident, memory.active))
    }),
    bytes("allocator_rss_bytes", "Their difference.", |reading| {
        difference_of(reading, |memory| (memory.allocator_resident, memory.active))
    }),
    quotient("rss_overhead_ratio", "`used_memory_rss` to `allocator_resident`.", |reading| {
        quotient_of(reading, |memory| (memory.resident, memory.allocator_resident))
    }),
    bytes("rss_overhead_bytes", "Their difference.", |reading| {
        difference_of(reading, |memory| (memory.resident, memory.allocator_resident))
    }),
    quotient("mem_fragmentation_ratio", "`used_memory_rss` to `used_memory`.", |reading| {
        quotient_of(reading, |memory| (memory.resident, memory.used))
    }),
    bytes("mem_fragmentation_bytes", "Their difference.", |reading| {
        difference_of(reading, |memory| (memory.resident, memory.used))
    }),
    bytes(
        "mem_not_counted_for_evict",
        "The log's ring with the backlog of replication, copies of snapshots, values that wait to be freed, garbage of scripts.",
        |reading| reading.memory().uncounted.into(),
    ),
    bytes(
        "mem_aof_ring",
        "The log's ring: segments in use and spare ones, with the backlog of replication.",
        |reading| reading.memory().log_ring.into(),
    ),
    bytes(
        "mem_replication_backlog",
        "The backlog of replication, a part of the log's ring: `repl-backlog-size` at most.",
        |reading| reading.memory().backlog.into(),
    ),
    bytes(
        "mem_total_replication_buffers",
        "The part of the log's ring that is kept for replication: the backlog, and what replicas lack beyond it.",
        |reading| reading.memory().replication.into(),
    ),
    bytes(
        "mem_clients_slaves",
        "Connections of replicas, and the part of the log's ring beyond the backlog that one of them lacks.",
        |reading| reading.memory().replicas.into(),
    ),
    bytes(
        "mem_clients_normal",
        "Connections of clients, but of replicas: buffers, subscriptions, watched keys, tracked prefixes.",
        |reading| reading.memory().clients.into(),
    ),
    bytes("mem_http_consoles", "Buffers between browsers and workers, of consoles.", |reading| {
        reading.shared.stats.console_bytes.load(Relaxed).into()
    }),
    bytes("mem_cluster_links", "Buffers of this node's connections to others of its cluster.", |reading| {
        reading.shared.cluster.links.bytes().into()
    }),
    bytes("mem_aof_buffer", "Of the log, not written to its file yet.", |reading| {
        reading.shared.durability.buffered_bytes().into()
    }),
    Row::One(Metric::always("mem_allocator", "mimalloc", "The allocator of the heap.")),
    count(
        "active_defrag_running",
        "Percent of a worker's time that goes into moving entries against fragmentation.",
        |reading| reading.shared.stats.defragmentation.effort().into(),
    ),
    count("lazyfree_pending_objects", "Values that wait to be freed in the background.", |reading| {
        reading.shared.maintenance.pending_objects().into()
    }),
    Row::One(Metric::resettable(
        "lazyfreed_objects",
        Unit::Count,
        "Values freed in the background.",
        |reading| reading.shared.maintenance.freed_objects(),
    )),
];

pub(super) const KEYSPACE_ROWS: &[Row] = &[Row::Each(Family {
    prefix: "db",
    label: "database",
    summary: "Keys of each database that has any.",
    fields: &[
        ("keys", Unit::Count, "Keys."),
        ("expires", Unit::Count, "Keys that expire."),
        ("avg_ttl", Unit::Milliseconds, "How long these have left on average."),
    ],
    read: |reading, line| {
        for (database, usage) in reading.survey().databases.iter().enumerate() {
            if usage.keys > 0 {
                let average_ms = usage.average_ttl_ms(reading.now_ms).into();
                let fields = [
                    ("keys", usage.keys.into()),
                    ("expires", usage.expiring.into()),
                    ("avg_ttl", average_ms),
                ];
                line(&database, &fields);
            }
        }
    },
})];

fn percent(part: u64, whole: u64) -> Number {
    Number::Percent(100.0 * ratio(part, whole))
}

fn quotient_of(reading: &Reading<'_>, parts: fn(&Memory) -> (u64, u64)) -> Number {
    let (outer, inner) = parts(reading.memory());
    Number::Decimal(ratio(outer, inner), 2)
}

fn difference_of(reading: &Reading<'_>, parts: fn(&Memory) -> (u64, u64)) -> Number {
    let (outer, inner) = parts(reading.memory());
    (outer as i64 - inner as i64).into()
}
