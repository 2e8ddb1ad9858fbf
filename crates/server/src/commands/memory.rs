//! MEMORY: what the data set and the process take.

use dunlin_engine::{
    command::{Args, Arity, Command, CommandResult, Flags, Group, Run},
    commands::memory::USAGE,
    keyspace::Usage,
};
use dunlin_net::Clients;
use dunlin_resp::ReplyBuffer;

use crate::{
    executor::{Handler, ServerContext},
    observe::stats::{ClientMemory, Held},
    replication::Kept,
    shared::Shared,
    system::{allocator, host},
};

pub(super) const COMMANDS: &[Command] = &[MEMORY];

const MEMORY: Command = Command {
    name: "memory",
    summary: "Shows what keys and the server take, and gives memory back.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "Depends on the subcommand.",
    arity: Arity::AtLeast(2),
    subcommands: &[DOCTOR, HELP, MALLOC_STATS, PURGE, STATS, USAGE],
    ..Command::DEFAULT
};

/// The tip for answers that a cluster's nodes give each.
const OF_ONE_NODE: &[&str] =
    &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"];

const DOCTOR: Command = Command {
    name: "doctor",
    summary: "Returns what is remarkable about the server's memory, in words.",
    since: "4.0.0",
    group: Group::Server,
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(doctor)),
    flags: Flags::WHOLE_KEYSPACE,
    tips: OF_ONE_NODE,
    ..Command::DEFAULT
};

const HELP: Command = Command {
    name: "help",
    summary: "Shows this help.",
    since: "4.0.0",
    group: Group::Server,
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(super::help)),
    flags: Flags::LOADING.and(Flags::STALE),
    ..Command::DEFAULT
};

const MALLOC_STATS: Command = Command {
    name: "malloc-stats",
    summary: "Returns the allocator's own statistics.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "Depends on how much memory is allocated.",
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(malloc_stats)),
    tips: OF_ONE_NODE,
    ..Command::DEFAULT
};

const PURGE: Command = Command {
    name: "purge",
    summary: "Gives memory that is not needed back to the system.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "Depends on how much memory is free.",
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(purge)),
    flags: Flags::WHOLE_KEYSPACE,
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    ..Command::DEFAULT
};

const STATS: Command = Command {
    name: "stats",
    summary: "Returns the server's use of memory in figures.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of stripes and databases.",
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(stats)),
    flags: Flags::WHOLE_KEYSPACE,
    tips: OF_ONE_NODE,
    ..Command::DEFAULT
};

/// The figures that STATS shows and DOCTOR judges, in bytes.
struct Figures {
    used: usize,
    peak: usize,
    fixed: usize,
    clients: ClientMemory,
    /// Bytes of the log's ring that are kept for replication.
    kept: Kept,
    /// Memory of the server beside them and the keyspace.
    held: Held,
    data: Usage,
    /// Databases that are not empty.
    databases: Vec<(usize, Usage)>,
    /// Allocated memory, in whole pages if it is in pages.
    active: usize,
    /// The process in the machine's memory without pages of files.
    allocator_resident: usize,
    /// The whole process in the machine's memory.
    resident: usize,
}

impl Figures {
    fn measure(shared: &Shared) -> Self {
        let (engine, stats) = (&shared.engine, &shared.stats);
        let keyspace = &engine.keyspace;
        let clients = stats.visit_clients();
        let backlog_size = shared.config.current().repl_backlog_size;
        let kept = shared.replication.kept(shared.durability.tail(), backlog_size);
        let held = shared.held();
        stats.note_held(&held);
        let pool = keyspace.pool().usage();
        let (used, data) = (stats.used_bytes(engine), keyspace.usage(None));
        // As INFO has it: entries and tables live in pages of the pool, everything else on the heap.
        let sparse = allocator::span_usage().sparse_bytes;
        let active =
            used.saturating_sub(data.entry_bytes + data.table_bytes) + pool.handed_out_bytes + sparse;
        let resident = host::resident();
        let databases = (0..keyspace.databases()).map(|number| (number, keyspace.usage(Some(number))));
        Self {
            used,
            peak: stats.peak_bytes(engine),
            fixed: stats.startup_bytes,
            clients,
            kept,
            held,
            data,
            databases: databases.filter(|(_, usage)| usage.keys > 0).collect(),
            active,
            allocator_resident: resident.anonymous as usize,
            resident: resident.all as usize,
        }
    }

    /// Everything but keys and values.
    fn overhead(&self) -> usize {
        self.fixed + self.clients.all + self.held.total() + self.data.table_bytes
    }

    fn dataset(&self) -> usize {
        self.used.saturating_sub(self.overhead())
    }

    /// Bytes that came with keys and clients.
    fn grown(&self) -> usize {
        self.used.saturating_sub(self.fixed)
    }
}

/// A ratio, 0 of nothing.
fn ratio(one: usize, other: usize) -> f64 {
    if other == 0 { 0.0 } else { one as f64 / other as f64 }
}

fn difference(one: usize, other: usize) -> i64 {
    one as i64 - other as i64
}

enum Figure {
    Count(i64),
    Real(f64),
}

fn stats(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    use Figure::{Count, Real};
    let figures = Figures::measure(context.shared);
    let count = |bytes: usize| Count(bytes as i64);
    // Names and their order are Redis's. Figures of things that this server does not have are zero.
    let first = [
        ("peak.allocated", count(figures.peak)),
        ("total.allocated", count(figures.used)),
        ("startup.allocated", count(figures.fixed)),
        ("replication.backlog", Count(figures.kept.backlog as i64)),
        ("clients.slaves", Count(figures.clients.replicas as i64 + figures.kept.for_replicas as i64)),
        ("clients.normal", count(figures.clients.all.saturating_sub(figures.clients.replicas))),
        ("cluster.links", count(context.shared.cluster.links.bytes())),
        ("aof.buffer", count(context.shared.durability.buffered_bytes() as usize)),
        ("lua.caches", count(figures.held.scripts)),
        ("functions.caches", count(figures.held.functions)),
    ];
    let last = [
        ("overhead.total", count(figures.overhead())),
        ("keys.count", count(figures.data.keys)),
        ("keys.bytes-per-key", count(figures.grown().checked_div(figures.data.keys).unwrap_or(0))),
        ("dataset.bytes", count(figures.dataset())),
        ("dataset.percentage", Real(ratio(figures.dataset(), figures.grown()) * 100.0)),
        ("peak.percentage", Real(ratio(figures.used, figures.peak) * 100.0)),
        ("allocator.allocated", count(figures.used)),
        ("allocator.active", count(figures.active)),
        ("allocator.resident", count(figures.allocator_resident)),
        ("allocator-fragmentation.ratio", Real(ratio(figures.active, figures.used))),
        ("allocator-fragmentation.bytes", Count(difference(figures.active, figures.used))),
        ("allocator-rss.ratio", Real(ratio(figures.allocator_resident, figures.active))),
        ("allocator-rss.bytes", Count(difference(figures.allocator_resident, figures.active))),
        ("rss-overhead.ratio", Real(ratio(figures.resident, figures.allocator_resident))),
        ("rss-overhead.bytes", Count(difference(figures.resident, figures.allocator_resident))),
        ("fragmentation", Real(ratio(figures.resident, figures.used))),
        ("fragmentation.bytes", Count(difference(figures.resident, figures.used))),
    ];
    let write = |reply: &mut ReplyBuffer, (name, figure): (&str, Figure)| {
        reply.bulk(name.as_bytes());
        match figure {
            Count(value) => reply.integer(value),
            Real(value) => reply.double(value),
        }
    };
    reply.map(first.len() + figures.databases.len() + last.len());
    first.into_iter().for_each(|row| write(reply, row));
    for (number, usage) in &figures.databases {
        reply.bulk(format!("db.{number}").as_bytes());
        reply.map(3);
        write(reply, ("overhead.hashtable.main", count(usage.table_bytes)));
        // Expiries stand in the entries, and slots are found by their stripes.
        write(reply, ("overhead.hashtable.expires", Count(0)));
        write(reply, ("overhead.hashtable.slot-to-keys", Count(0)));
    }
    last.into_iter().for_each(|row| write(reply, row));
    Ok(())
}

/// Below this many bytes of data, proportions mean nothing.
const JUDGED_BYTES_MIN: usize = 5 << 20;

fn doctor(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let figures = Figures::measure(context.shared);
    let clients = context.shared.stats.clients().map_or(0, Clients::connected);
    let limit = context.executor.config.config().maxmemory;
    let text = diagnosis(&figures, clients, limit);
    reply.verbatim(b"txt", text.as_bytes());
    Ok(())
}

fn diagnosis(figures: &Figures, clients: usize, limit: u64) -> String {
    const CLIENT_BYTES_MAX: usize = 200 * 1024;
    if figures.grown() < JUDGED_BYTES_MIN {
        return "There is too little data to say anything about memory.\n".to_owned();
    }
    let percent = |part: usize, whole: usize| (ratio(part, whole) * 100.0) as u64;
    let mut findings = Vec::new();
    if figures.peak > figures.used + figures.used / 2 {
        findings.push(format!(
            "Peak: {}% of what is used now was used once. Memory that came back is given to the system soon; MEMORY PURGE does it at once.",
            percent(figures.peak, figures.used)
        ));
    }
    if figures.resident > figures.used + figures.used / 2 {
        findings.push(format!(
            "Fragmentation: the process takes {}% of what is used. If that lasts, MEMORY PURGE gives back what is free.",
            percent(figures.resident, figures.used)
        ));
    }
    if figures.clients.all / clients.max(1) > CLIENT_BYTES_MAX {
        findings.push(format!(
            "Clients: their buffers take {} bytes each on average. Look for slow readers in CLIENT LIST, and see client-output-buffer-limit.",
            figures.clients.all / clients.max(1)
        ));
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit > 0 && figures.used > limit - limit / 10 {
        findings.push(format!(
            "Limit: {}% of maxmemory is used. Above it, maxmemory-policy says what happens.",
            percent(figures.used, limit)
        ));
    }
    match findings.is_empty() {
        true => "Nothing remarkable about memory.\n".to_owned(),
        false => findings.join("\n") + "\n",
    }
}

fn malloc_stats(_: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply.verbatim(b"txt", &allocator::report());
    Ok(())
}

fn purge(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    // A transaction holds the gate itself; then the next round of maintenance will do.
    context.outside_gate(|shared| {
        shared.engine.release_memory(0);
        shared.durability.ring().trim(0);
    });
    context.shared.maintenance.request_purge();
    allocator::collect();
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_doctor_finds_what_is_wrong() {
        const MB: usize = 1 << 20;
        let healthy = || Figures {
            used: 100 * MB,
            peak: 110 * MB,
            fixed: MB,
            clients: ClientMemory { all: MB, replicas: 0 },
            kept: Kept::default(),
            held: Held::default(),
            data: Usage::default(),
            databases: Vec::new(),
            active: 110 * MB,
            allocator_resident: 115 * MB,
            resident: 120 * MB,
        };
        for (figures, clients, limit, expected) in [
            (healthy(), 10, 0, "Nothing remarkable"),
            (Figures { used: MB, peak: MB, ..healthy() }, 10, 0, "too little data"),
            (Figures { peak: 160 * MB, ..healthy() }, 10, 0, "Peak: 160%"),
            (Figures { resident: 170 * MB, ..healthy() }, 10, 0, "Fragmentation: the process takes 170%"),
            (
                Figures { clients: ClientMemory { all: 10 * MB, replicas: 0 }, ..healthy() },
                10,
                0,
                "Clients: their buffers take 1048576 bytes",
            ),
            (healthy(), 10, 105 << 20, "Limit: 95% of maxmemory"),
        ] {
            let text = diagnosis(&figures, clients, limit);
            assert!(text.contains(expected) && text.lines().count() == 1, "{text}");
        }
    }
}
