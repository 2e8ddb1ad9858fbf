//! Another topology comes into force.

use std::sync::atomic::Ordering::Relaxed;

use dunlin_cluster::SLOTS;
use dunlin_engine::keyspace::slot;
use dunlin_net::Commitment;

use crate::{
    cluster::topology::Topology, push::pubsub::Kind, shared::Shared, system::host::monotonic_ms,
    workers::WorkerMessage,
};

/// Publishes another topology. If the node has lost slots, or its role, that is done behind the closed gate, and
/// clients learn of it: those that wait for keys, and those that listen to channels of shards. The caller is not inside
/// the gate. Returns whether it is in force. It is not if a script stays inside for long: the caller has heartbeats to
/// send and cannot wait.
pub(super) fn publish(shared: &Shared, topology: Topology) -> bool {
    let cluster = &shared.cluster;
    let Some(before) = cluster.topology() else {
        cluster.store(topology);
        return true;
    };
    let switch = before.switch_to(&topology);
    let is_demoted = before.is_primary() && !topology.is_primary();
    if !replace(shared, &before, topology) {
        return false;
    }
    let Some(queues) = shared.durability.queues() else { return true };
    if let Some(addresses) = switch {
        let message = format!("{} {addresses}", cluster.name());
        // Another primary is there, whatever becomes of the data.
        let at_once = Commitment::default();
        shared.exchange.publish(Kind::Channel, b"+switch-master", message.as_bytes(), at_once, queues);
    }
    if is_demoted && cluster.serves_plain_clients(&shared.config.current()) {
        // Sentinel does it, so that clients ask it where to go. Some come back before they have heard the answer; a write that
        // is refused then disconnects them again.
        cluster.demoted_ms.store(monotonic_ms(), Relaxed);
        shared.connected(queues).disconnect_all();
    }
    true
}

fn replace(shared: &Shared, before: &Topology, topology: Topology) -> bool {
    let cluster = &shared.cluster;
    let has_lost = !before.is_part_of(&topology);
    let has_gained = (0..SLOTS).any(|slot| topology.is_mine(slot) && !before.is_mine(slot));
    let is_demoted = before.is_primary() && !topology.is_primary();
    if !has_lost && !has_gained && !is_demoted {
        cluster.store(topology);
        return true;
    }
    {
        let Some(closed) = shared.engine.keyspace.close_unless_long() else { return false };
        let is_lost = |slot| before.is_mine(slot) && !topology.is_mine(slot);
        // Transactions and scripts may be waiting for the gate with the slots as they were.
        shared.engine.log.end_admissions();
        closed.mark_moved(is_lost);
        cluster.moves.lose((0..SLOTS).filter(|slot| is_lost(*slot)));
        cluster.moves.hide(&shared.engine.keyspace, &topology);
        cluster.store(topology);
    }
    if !has_lost && !is_demoted {
        return true;
    }
    let (Some(now), Some(queues)) = (cluster.topology(), shared.durability.queues()) else { return true };
    let is_lost = |name: &[u8]| !now.is_mine(slot(name));
    let listeners = shared.exchange.subscribers_where(Kind::ShardChannel, |_, name| is_lost(name));
    let mut clients = shared.blocked.all();
    clients.extend(listeners.iter().map(|client| client.address));
    for client in clients {
        queues.send(client, WorkerMessage::SlotsMoved);
    }
    true
}
