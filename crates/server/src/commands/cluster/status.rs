//! CLUSTER STATUS, DRAIN, PIN, UNPIN and SETREPLICAS: what `dunlin cluster` asks a node, any node.

use dunlin_cluster::{NodeId, SlotSet};
use dunlin_engine::command::{Args, CommandError, CommandResult};
use dunlin_resp::{ReplyBuffer, number::parse_integer};

use super::{cluster_wide, endpoints_for, migrate::slot_range, topology};
use crate::{
    cluster::{cluster_wide::ClusterChange, rules},
    executor::ServerContext,
};

/// Replicas of a shard at most, as `cluster-replicas` has it.
const REPLICAS_MAX: i64 = 16;

/// Writes pairs of a map.
pub(super) fn pairs(reply: &mut ReplyBuffer, pairs: &[(&str, &str)]) {
    for (name, text) in pairs {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
}

pub(super) fn status(
    context: &mut ServerContext<'_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let topology = topology(context)?;
    let endpoints = endpoints_for(context);
    let cluster = &context.shared.cluster;
    let overview = cluster.overview().unwrap_or_default();
    let demands_all = rules(context.executor.config.config()).require_full_coverage;
    reply.map(14);
    pairs(
        reply,
        &[
            ("name", cluster.name()),
            ("node", &topology.me().id),
            // Empty: etcd answers.
            ("trouble", &cluster.trouble()),
            // Why etcd, which answers, refuses changes; empty: it makes them.
            ("refusal", &cluster.refusal()),
            // Whether requests are served at all, or answered CLUSTERDOWN.
            ("state", if topology.is_ok(demands_all) { "ok" } else { "fail" }),
            ("replicas", &overview.replicas.to_string()),
            ("durability", overview.durability),
            ("min-sync", &overview.min_sync.to_string()),
            ("controller", &overview.controller),
            ("pinned", &overview.pinned),
        ],
    );
    reply.bulk(b"nodes");
    reply.array(topology.nodes().len());
    for (place, node) in topology.nodes().iter().enumerate() {
        let shard = topology.shard_of(place);
        let role = match shard {
            None => "none",
            Some(shard) if shard.primary == place => "primary",
            Some(_) => "replica",
        };
        let unknown = Default::default();
        let record = overview.nodes.get(&node.id).unwrap_or(&unknown);
        reply.map(11);
        pairs(
            reply,
            &[
                ("id", &node.id),
                ("address", &format!("{}:{}", node.addresses.ip, endpoints.port(node))),
                ("name", &node.human_name),
                ("host", &record.host),
                ("zone", &node.zone),
                ("state", record.state),
                ("health", node.health.name()),
                ("version", &record.version),
                ("shard", shard.map_or("", |shard| &shard.id)),
                ("role", role),
                // Whether it has all that is committed.
                ("sync", record.sync),
            ],
        );
    }
    reply.bulk(b"shards");
    reply.array(topology.shards().len());
    for shard in topology.shards() {
        let run = |(first, last): &(u16, u16)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        let slots: Vec<String> = shard.slots.iter().map(run).collect();
        reply.map(3);
        pairs(reply, &[("id", &shard.id), ("epoch", &shard.epoch.to_string()), ("slots", &slots.join(","))]);
    }
    reply.bulk(b"moves");
    reply.array(overview.moves.len());
    for one in &overview.moves {
        let progress = one.progress.as_ref();
        reply.map(9);
        pairs(
            reply,
            &[
                ("id", &one.id),
                ("slots", &one.slots),
                ("from", &one.from),
                ("to", &one.to),
                ("state", progress.map_or("connecting", |progress| &progress.state)),
                (
                    "waits",
                    progress.map_or("for its source, which has not begun it", |progress| &progress.waits),
                ),
            ],
        );
        for (name, number) in [
            // Thousandths of the source's keyspace.
            ("walked", progress.map_or(0, |progress| progress.walked.into())),
            ("sent-bytes", progress.map_or(0, |progress| progress.sent_bytes)),
            ("behind-bytes", progress.map_or(0, |progress| progress.behind_bytes)),
        ] {
            reply.bulk(name.as_bytes());
            reply.integer(number as i64);
        }
    }
    reply.bulk(b"failed-moves");
    reply.array(overview.failed_moves.len());
    for one in &overview.failed_moves {
        reply.map(3);
        pairs(reply, &[("from", &one.from), ("to", &one.to), ("why", &one.why)]);
    }
    Ok(())
}

pub(super) fn drain(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let topology = topology(context)?;
    let word = args.word();
    let unknown = || CommandError::quoting("ERR Unknown node ", word);
    let id = topology.find(word).map(|place| topology.nodes()[place].id.clone()).ok_or_else(unknown)?;
    let node: NodeId = id.parse().map_err(|_| unknown())?;
    let drains = match args.optional() {
        None => true,
        Some(word) if word.eq_ignore_ascii_case(b"off") => false,
        Some(_) => return Err(CommandError::Syntax),
    };
    if cluster_wide::carry_out(context, |_| Ok(ClusterChange::Drain { node, drains }))?.is_some() {
        reply.ok();
    }
    Ok(())
}

/// `CLUSTER PIN|UNPIN first last [first last …]`.
pub(super) fn change_pins(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    topology(context)?;
    let are_pinned = args.words()[1].eq_ignore_ascii_case(b"pin");
    let mut slots = SlotSet::default();
    while !args.is_empty() {
        slots.insert(slot_range(args)?);
    }
    if cluster_wide::carry_out(context, |_| Ok(ClusterChange::Pins { slots, are_pinned }))?.is_some() {
        reply.ok();
    }
    Ok(())
}

pub(super) fn set_replicas(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    topology(context)?;
    let count = parse_integer(args.word()).ok_or(CommandError::NotInteger)?;
    let replicas = u8::try_from(count)
        .ok()
        .filter(|_| (0..=REPLICAS_MAX).contains(&count))
        .ok_or_else(|| CommandError::owned(format!("ERR a shard has 0 to {REPLICAS_MAX} replicas")))?;
    if cluster_wide::carry_out(context, |_| Ok(ClusterChange::Replicas { replicas }))?.is_some() {
        reply.ok();
    }
    Ok(())
}
