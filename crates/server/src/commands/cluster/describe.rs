//! CLUSTER SLOTS, SHARDS and INFO.

use std::fmt::Write;

use dunlin_engine::command::{Args, CommandResult};
use dunlin_resp::ReplyBuffer;

use super::{endpoints_for, topology};
use crate::{
    cluster::{
        route::EndpointRule,
        rules,
        topology::{Health, Node, Shard, Topology},
    },
    config::EndpointType,
    executor::ServerContext,
};

/// Writes the endpoint of a node, which may be unknown.
fn write_endpoint(node: &Node, endpoints: EndpointRule, reply: &mut ReplyBuffer) {
    match endpoints.of(node).host {
        Some(host) => reply.bulk(host.as_bytes()),
        None => reply.null(),
    }
}

pub(super) fn slots(
    context: &mut ServerContext<'_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let topology = topology(context)?;
    let endpoints = endpoints_for(context);
    let mut runs: Vec<(u16, u16, &Shard)> = Vec::new();
    for shard in topology.shards() {
        runs.extend(shard.slots.iter().map(|(first, last)| (*first, *last, shard)));
    }
    runs.sort_unstable_by_key(|(first, ..)| *first);
    reply.array(runs.len());
    for (first, last, shard) in runs {
        let replicas = shard.replicas.iter().map(|node| &topology.nodes()[*node]);
        let replicas: Vec<&Node> = replicas.filter(|node| node.health == Health::Online).collect();
        reply.array(3 + replicas.len());
        reply.integer(first.into());
        reply.integer(last.into());
        write_member(&topology.nodes()[shard.primary], endpoints, reply);
        replicas.into_iter().for_each(|node| write_member(node, endpoints, reply));
    }
    Ok(())
}

/// Writes a node as CLUSTER SLOTS has it.
fn write_member(node: &Node, endpoints: EndpointRule, reply: &mut ReplyBuffer) {
    reply.array(4);
    write_endpoint(node, endpoints, reply);
    reply.integer(endpoints.port(node).into());
    reply.bulk(node.id.as_bytes());
    let shows_ip = endpoints.kind != EndpointType::Ip;
    let shows_name = endpoints.kind != EndpointType::Hostname && !node.addresses.hostname.is_empty();
    reply.map(usize::from(shows_ip) + usize::from(shows_name));
    if shows_ip {
        reply.bulk(b"ip");
        reply.bulk(node.addresses.ip.as_bytes());
    }
    if shows_name {
        reply.bulk(b"hostname");
        reply.bulk(node.addresses.hostname.as_bytes());
    }
}

pub(super) fn shards(
    context: &mut ServerContext<'_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let topology = topology(context)?;
    let endpoints = endpoints_for(context);
    let replication = &context.shared.replication;
    let own_offset = replication.offset(context.shared.durability.tail());
    reply.array(topology.shards().len());
    for shard in topology.shards() {
        reply.map(3);
        reply.bulk(b"slots");
        reply.array(2 * shard.slots.len());
        for (first, last) in shard.slots.iter() {
            reply.integer((*first).into());
            reply.integer((*last).into());
        }
        reply.bulk(b"nodes");
        reply.array(shard.members().count());
        for member in shard.members() {
            let node = &topology.nodes()[member];
            let offset = if member == topology.my_place() { own_offset } else { node.offset };
            let role: &[u8] = if member == shard.primary { b"master" } else { b"replica" };
            write_node(node, (role, offset), endpoints, reply);
        }
        reply.bulk(b"id");
        reply.bulk(shard.id.as_bytes());
    }
    Ok(())
}

/// Writes a node as CLUSTER SHARDS has it.
fn write_node(node: &Node, (role, offset): (&[u8], u64), endpoints: EndpointRule, reply: &mut ReplyBuffer) {
    let addresses = &node.addresses;
    let (has_port, has_tls) = (addresses.port != 0, addresses.tls_port != 0);
    let has_name = !addresses.hostname.is_empty();
    reply.map(6 + usize::from(has_port) + usize::from(has_tls) + usize::from(has_name));
    reply.bulk(b"id");
    reply.bulk(node.id.as_bytes());
    if has_port {
        reply.bulk(b"port");
        reply.integer(addresses.port.into());
    }
    if has_tls {
        reply.bulk(b"tls-port");
        reply.integer(addresses.tls_port.into());
    }
    reply.bulk(b"ip");
    reply.bulk(addresses.ip.as_bytes());
    reply.bulk(b"endpoint");
    write_endpoint(node, endpoints, reply);
    if has_name {
        reply.bulk(b"hostname");
        reply.bulk(addresses.hostname.as_bytes());
    }
    reply.bulk(b"role");
    reply.bulk(role);
    reply.bulk(b"replication-offset");
    reply.integer(offset as i64);
    reply.bulk(b"health");
    reply.bulk(node.health.name().as_bytes());
}

pub(super) fn info(
    context: &mut ServerContext<'_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let topology = topology(context)?;
    let demands_all = rules(context.executor.config.config()).require_full_coverage;
    // A primary that may not answer, yet or any longer, says so to clients that wait for it.
    let is_ok = topology.is_ok(demands_all)
        && (!topology.is_primary() || context.shared.cluster.lease.serving_term() != 0);
    reply.verbatim(b"txt", info_text(&topology, is_ok).as_bytes());
    Ok(())
}

/// The lines of CLUSTER INFO. Counts of messages are those of a bus, which there is none of.
fn info_text(topology: &Topology, is_ok: bool) -> String {
    let failed = |shard: &&Shard| topology.nodes()[shard.primary].health == Health::Failed;
    let slots_failed = topology.failed();
    let nodes_failed = topology.nodes().iter().filter(|node| node.health == Health::Failed).count();
    let primaries_failed = topology.shards().iter().filter(failed).count();
    let size = topology.shards().iter().filter(|shard| !shard.slots.is_empty()).count();
    let epoch = topology.shards().iter().map(|shard| shard.epoch).max().unwrap_or(0);
    let mut text = String::new();
    let mut line = |name: &str, value: u64| {
        let _ = write!(text, "{name}:{value}\r\n");
    };
    line("cluster_slots_assigned", topology.assigned().into());
    line("cluster_slots_ok", (topology.assigned() - slots_failed).into());
    line("cluster_slots_pfail", 0);
    line("cluster_slots_fail", slots_failed.into());
    line("cluster_nodes_pfail", 0);
    line("cluster_nodes_fail", nodes_failed as u64);
    line("cluster_voting_nodes_pfail", 0);
    line("cluster_voting_nodes_fail", primaries_failed as u64);
    line("cluster_known_nodes", topology.nodes().len() as u64);
    line("cluster_size", size as u64);
    line("cluster_current_epoch", epoch);
    line("cluster_my_epoch", topology.my_shard().map_or(0, |shard| shard.epoch));
    line("cluster_stats_messages_sent", 0);
    line("cluster_stats_messages_received", 0);
    line("total_cluster_links_buffer_limit_exceeded", 0);
    let state = if is_ok { "ok" } else { "fail" };
    format!("cluster_state:{state}\r\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::topology::tests::three_shards;

    #[test]
    fn cluster_info_counts_slots_and_nodes() {
        let text = info_text(&three_shards(1), true);
        for line in [
            "cluster_state:ok",
            "cluster_slots_assigned:16384",
            "cluster_slots_ok:16384",
            "cluster_known_nodes:5",
            "cluster_size:3",
            "cluster_current_epoch:3",
            "cluster_my_epoch:2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
