//! CLUSTER NODES, REPLICAS, and what is asked about single nodes.

use std::{fmt::Write, sync::atomic::Ordering::SeqCst, time::Duration};

use dunlin_engine::command::{Args, CommandError, CommandResult};
use dunlin_net::{Commitment, Next};
use dunlin_resp::{ReplyBuffer, number::parse_integer};

use super::{cluster_wide, endpoints_for, topology};
use crate::{
    cluster::{
        PeerMessage,
        cluster_wide::ClusterChange,
        route::EndpointRule,
        topology::{Health, Node, Topology},
    },
    executor::{Flow, ServerContext},
    push::pubsub::Kind,
    shared::Stop,
};

/// How long clients get to take the last replies of a node that leaves.
const GRACE: Duration = Duration::from_secs(1);

/// A node as a line of CLUSTER NODES, without its end. There is no bus: its port is 0, and nodes send no pings.
fn line(topology: &Topology, place: usize, endpoints: EndpointRule) -> String {
    let node = &topology.nodes()[place];
    let shard = topology.shard_of(place);
    let is_replica = shard.is_some_and(|shard| shard.primary != place);
    let is_me = place == topology.my_place();
    let mut text = format!("{} {}:{}@0", node.id, node.addresses.ip, endpoints.port(node));
    let (name, human_name) = (&node.addresses.hostname, &node.human_name);
    if !name.is_empty() {
        let _ = write!(text, ",{name}");
    }
    if !human_name.is_empty() {
        let _ = write!(text, "{},nodename={human_name}", if name.is_empty() { "," } else { "" });
    }
    let mut flags = String::new();
    if is_me {
        flags.push_str("myself,");
    }
    flags.push_str(if is_replica { "slave" } else { "master" });
    if node.health == Health::Failed {
        flags.push_str(",fail");
    }
    let primary = shard.filter(|_| is_replica).map_or("-", |shard| &topology.nodes()[shard.primary].id);
    let epoch = shard.map_or(0, |shard| shard.epoch);
    let link = if node.health == Health::Failed { "disconnected" } else { "connected" };
    let _ = write!(text, " {flags} {primary} 0 0 {epoch} {link}");
    for (first, last) in shard.filter(|_| !is_replica).iter().flat_map(|shard| shard.slots.iter()) {
        let _ = match first == last {
            true => write!(text, " {first}"),
            false => write!(text, " {first}-{last}"),
        };
    }
    text
}

pub(super) fn list(
    context: &mut ServerContext<'_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let topology = topology(context)?;
    let endpoints = endpoints_for(context);
    let lines = (0..topology.nodes().len()).map(|place| line(&topology, place, endpoints) + "\n");
    reply.verbatim(b"txt", lines.collect::<String>().as_bytes());
    Ok(())
}

/// The place of the node that a request names.
fn named(topology: &Topology, args: &mut Args<'_>) -> Result<usize, CommandError> {
    let id = args.word();
    topology.find(id).ok_or_else(|| CommandError::quoting("ERR Unknown node ", id))
}

pub(super) fn replicas(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let topology = topology(context)?;
    let node = named(&topology, args)?;
    let endpoints = endpoints_for(context);
    let replicas = match topology.shard_of(node) {
        Some(shard) if shard.primary == node => &shard.replicas[..],
        Some(_) => return Err(CommandError::text("ERR The specified node is not a master")),
        None => &[],
    };
    reply.array(replicas.len());
    replicas.iter().for_each(|place| reply.bulk(line(&topology, *place, endpoints).as_bytes()));
    Ok(())
}

pub(super) fn failure_reports(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    named(&*topology(context)?, args)?;
    reply.integer(0);
    Ok(())
}

/// Links of gossip, or moves of slots: there are none.
pub(super) fn empty_list(
    context: &mut ServerContext<'_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    topology(context)?;
    reply.array(0);
    Ok(())
}

pub(super) fn relay(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    topology(context)?;
    let kind = if args.token("MESSAGE") {
        Kind::Channel
    } else if args.token("SMESSAGE") {
        Kind::ShardChannel
    } else {
        return Err(CommandError::Syntax);
    };
    let (channel, payload) = (args.word(), args.word());
    args.finish()?;
    reply.count(context.shared.exchange.publish(
        kind,
        channel,
        payload,
        Commitment::default(),
        context.executor.queues(),
    ));
    Ok(())
}

pub(super) fn failover(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let topology = topology(context)?;
    let is_forced = args.token("FORCE") || args.token("TAKEOVER");
    args.finish()?;
    cluster_wide::answer(context, reply, |context| {
        let Some(shard) = topology.my_shard().filter(|_| !topology.is_primary()) else {
            return Err(CommandError::text("ERR You should send CLUSTER FAILOVER to a replica"));
        };
        if topology.nodes()[shard.primary].health == Health::Failed && !is_forced {
            return Err(CommandError::text(
                "ERR Master is down or failed, please use CLUSTER FAILOVER FORCE",
            ));
        }
        context.shared.cluster.shard.promote().ok_or(CommandError::text(
            "ERR this replica is not in sync: it may lack what was acknowledged (docs/cluster.md)",
        ))
    })
}

/// CLUSTER FORGET: the record of a node that has gone is removed. A node that is there is drained, so that it can be
/// stopped: it takes no further slots and no role.
pub(super) fn forget(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let topology = topology(context)?;
    let word = args.word();
    cluster_wide::answer(context, reply, |context| {
        let unknown = || CommandError::quoting("ERR Unknown node ", word);
        let place = topology.find(word).ok_or_else(unknown)?;
        if place == topology.my_place() {
            return Err(CommandError::text("ERR I tried hard but I can't forget myself..."));
        }
        if topology.my_shard().is_some_and(|shard| shard.primary == place) {
            return Err(CommandError::text("ERR Can't forget my master!"));
        }
        let node = &topology.nodes()[place];
        let id = node.id.parse().map_err(|_| unknown())?;
        let leads = topology.shard_of(place).filter(|shard| shard.primary == place);
        let cluster = &context.shared.cluster;
        if node.health == Health::Online {
            if leads.is_some_and(|shard| !shard.slots.is_empty()) {
                return Err(CommandError::text(
                    "ERR The node is the primary of slots: drain it before it is forgotten (CLUSTER DRAIN)",
                ));
            }
            let change = ClusterChange::Drain { node: id, drains: true };
            return Ok(cluster.cluster_wide.order(change, context.session.client.id()));
        }
        if leads.is_some() {
            return Err(CommandError::text("ERR The node is the primary of slots: they would be lost"));
        }
        Ok(cluster.shard.forget(id))
    })
}

/// CLUSTER MEET: nodes meet in etcd, so one that is not there yet is to be started.
pub(super) fn meet(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let topology = topology(context)?;
    let (host, word) = (args.word(), args.word());
    let port = parse_integer(word).and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
    let port = port.ok_or_else(|| CommandError::quoting("ERR Invalid base port specified: ", word))?;
    let is_it = |node: &Node| {
        let addresses = &node.addresses;
        let is_named = [&addresses.ip, &addresses.hostname].iter().any(|name| name.as_bytes() == host);
        is_named && (addresses.port == port || addresses.tls_port == port)
    };
    if !topology.nodes().iter().any(is_it) {
        return Err(CommandError::text(
            "ERR CLUSTER MEET is not for hands: a node joins by itself when it is started with this cluster's cluster-join (docs/cluster.md)",
        ));
    }
    reply.ok();
    Ok(())
}

/// CLUSTER RESET: a node that is drained leaves the cluster, and its process ends. The node waits for the shard to let
/// it go.
pub(super) fn reset(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    const WAIT_MAX: Duration = Duration::from_secs(10);
    let topology = topology(context)?;
    // Nothing else would be left of the node either way.
    let _ = args.token("HARD") || args.token("SOFT");
    args.finish()?;
    let cluster = &context.shared.cluster;
    let overview = cluster.overview();
    let is_drained = overview
        .and_then(|overview| overview.nodes.get(&topology.me().id).map(|node| node.state == "draining"))
        .unwrap_or(false);
    let has_slots = topology.is_primary() && topology.my_shard().is_some_and(|shard| !shard.slots.is_empty());
    if context.in_transaction {
        return Err(CommandError::text("ERR CLUSTER RESET ends the process, and no transaction"));
    }
    if !is_drained || has_slots {
        return Err(CommandError::text(
            "ERR CLUSTER RESET is not for hands while the node has a place in the cluster: drain it first (CLUSTER DRAIN)",
        ));
    }
    if topology.my_shard().is_some() {
        let now = context.executor.now().instant;
        if context.session.held_since.is_some_and(|since| now.duration_since(since) >= WAIT_MAX) {
            return Err(CommandError::text("ERR the node's shard has not let it go yet: try again later"));
        }
        context.flow = context.executor.hold(context.session);
        return Ok(());
    }
    tracing::warn!("CLUSTER RESET by {}: the node leaves the cluster, and ends", context.session.client);
    cluster.leaves.store(true, SeqCst);
    context.shared.stop(Stop::within(GRACE));
    context.flow = Flow::Stop(Next::CloseAfterReply);
    reply.ok();
    Ok(())
}

pub(super) fn tell(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    topology(context)?;
    let peer_message = PeerMessage::decode(&args.words()[2..]);
    let peer_message = peer_message.filter(|peer_message| context.shared.cluster.is_of(peer_message.cluster));
    context.shared.cluster.shard.deliver(
        peer_message.ok_or(CommandError::text("ERR CLUSTER TELL is for the nodes of this cluster"))?,
    );
    reply.ok();
    Ok(())
}

pub(super) fn my_id(
    context: &mut ServerContext<'_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    reply.bulk(topology(context)?.me().id.as_bytes());
    Ok(())
}

pub(super) fn my_shard_id(
    context: &mut ServerContext<'_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let topology = topology(context)?;
    let shard = topology.my_shard().ok_or(CommandError::text("ERR this node has no shard yet"))?;
    reply.bulk(shard.id.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cluster::topology::tests::three_shards, config::EndpointType};

    #[test]
    fn cluster_nodes_has_the_fields_that_clients_parse() {
        let topology = three_shards(3);
        let endpoints = EndpointRule { kind: EndpointType::Ip, tls: false };
        let zeros = "0".repeat(39);
        for (place, expected) in [
            (0, format!("{zeros}0 127.0.0.1:7000@0 master - 0 0 1 connected 0-5460")),
            (3, format!("{zeros}3 127.0.0.1:7003@0 myself,slave {zeros}0 0 0 1 connected")),
            (4, format!("{zeros}4 127.0.0.1:7004@0 master - 0 0 0 connected")),
        ] {
            assert_eq!(line(&topology, place, endpoints), expected);
        }
    }
}
