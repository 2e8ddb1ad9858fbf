//! Memory and keys.

use super::{Lines, Source, ratio};
use crate::process;

pub(super) fn memory(source: &Source<'_>, lines: &mut Lines) {
    let (shared, monitor) = (source.shared, &source.shared.monitor);
    let keyspace = &shared.engine.keyspace;
    let buffers = monitor.visit_buffers() as u64;
    let used = monitor.used_bytes(&shared.engine) as u64;
    let (peak, startup) = (monitor.peak_bytes(&shared.engine) as u64, monitor.startup_bytes as u64);
    let usage = keyspace.usage(None);
    let overhead = startup + usage.table_bytes as u64 + buffers;
    let dataset = used.saturating_sub(overhead);
    let resident = process::resident_bytes();
    let total = process::system_memory_bytes();

    lines.add_bytes("used_memory", used);
    lines.add_bytes("used_memory_rss", resident);
    lines.add_bytes("used_memory_peak", peak);
    lines.add("used_memory_peak_perc", format_args!("{:.2}%", 100.0 * ratio(used, peak)));
    lines.add("used_memory_overhead", overhead);
    lines.add("used_memory_startup", startup);
    lines.add("used_memory_dataset", dataset);
    let above_startup = used.saturating_sub(startup);
    lines.add("used_memory_dataset_perc", format_args!("{:.2}%", 100.0 * ratio(dataset, above_startup)));

    // Entries and tables live in pages of the pool, everything else on the heap.
    let pool = keyspace.pool().usage();
    let in_pages = (usage.entry_bytes + usage.table_bytes) as u64;
    let active = used.saturating_sub(in_pages) + pool.handed_out_bytes as u64;
    let allocator_resident = active + pool.free_resident_bytes as u64;
    lines.add("allocator_allocated", used);
    lines.add("allocator_active", active);
    lines.add("allocator_resident", allocator_resident);
    lines.add_bytes("total_system_memory", total);
    let (scripts, libraries) = (&shared.scripts, shared.libraries.now());
    let (eval, functions) = (scripts.machine_bytes() as u64, shared.libraries.machine_bytes() as u64);
    let (script_texts, library_texts) = (scripts.bytes() as u64, libraries.bytes() as u64);
    lines.add("used_memory_vm_eval", eval);
    lines.add_bytes("used_memory_lua", eval);
    lines.add("used_memory_scripts_eval", script_texts);
    lines.add("number_of_cached_scripts", scripts.len());
    lines.add("number_of_functions", libraries.functions());
    lines.add("number_of_libraries", libraries.len());
    lines.add("used_memory_vm_functions", functions);
    lines.add_bytes("used_memory_vm_total", eval + functions);
    lines.add("used_memory_functions", library_texts);
    lines.add_bytes("used_memory_scripts", script_texts + library_texts);
    lines.add_bytes("maxmemory", source.config.maxmemory);
    lines.add("maxmemory_policy", source.config.maxmemory_policy);
    let mut compare = |names: [&str; 2], outer: u64, inner: u64| {
        lines.add(names[0], format_args!("{:.2}", ratio(outer, inner)));
        lines.add(names[1], outer as i64 - inner as i64);
    };
    compare(["allocator_frag_ratio", "allocator_frag_bytes"], active, used);
    compare(["allocator_rss_ratio", "allocator_rss_bytes"], allocator_resident, active);
    compare(["rss_overhead_ratio", "rss_overhead_bytes"], resident, allocator_resident);
    compare(["mem_fragmentation_ratio", "mem_fragmentation_bytes"], resident, used);
    lines.add_all(
        &[
            "mem_not_counted_for_evict",
            "mem_replication_backlog",
            "mem_total_replication_buffers",
            "mem_clients_slaves",
        ],
        0,
    );
    lines.add("mem_clients_normal", buffers);
    lines.add_all(&["mem_cluster_links", "mem_aof_buffer"], 0);
    lines.add("mem_allocator", "mimalloc");
    lines.add("active_defrag_running", 0);
    lines.add("lazyfree_pending_objects", shared.maintenance.pending_objects());
    lines.add("lazyfreed_objects", shared.maintenance.freed_objects());
}

pub(super) fn keyspace(source: &Source<'_>, lines: &mut Lines) {
    let keyspace = &source.shared.engine.keyspace;
    for database in 0..keyspace.databases() {
        let usage = keyspace.usage(Some(database));
        if usage.keys > 0 {
            let (keys, expires) = (usage.keys, usage.expiring);
            let average_ms = usage.average_ttl_ms(source.now_ms);
            let value = format_args!("keys={keys},expires={expires},avg_ttl={average_ms}");
            lines.add(format_args!("db{database}"), value);
        }
    }
}
