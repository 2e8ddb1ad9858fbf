//! Decides which node runs a request in a cluster: this one, another, or none. Pure.
//!
//! The order of the questions is that of redis-server: does the first key's slot have an owner, do the others' slots agree, is
//! the cluster up, and whose is the slot. No client ever sees ASK or TRYAGAIN: a slot changes hands at one instant, with
//! all of its keys.

use dunlin_engine::command::CommandError;

use super::topology::{Node, Topology};
use crate::{admission::Slots, config::EndpointType};

/// A request as routing has to know it, beside its slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Whether it may change something.
    pub(crate) writes: bool,
    /// Whether its slots are those of channels.
    pub(crate) is_sharded_pubsub: bool,
    /// Whether its client reads at replicas (`READONLY`).
    pub(crate) reads_replicas: bool,
}

/// The operator's rules while some slots are not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// `cluster-require-full-coverage`.
    pub(crate) require_full_coverage: bool,
    /// `cluster-allow-reads-when-down`.
    pub(crate) reads_when_down: bool,
    /// `cluster-allow-pubsubshard-when-down`.
    pub(crate) pubsub_when_down: bool,
    /// `cluster-plain-clients`.
    pub(crate) plain_clients: bool,
}

impl Rules {
    /// Whether slots are not asked: clients without cluster support are served, by the one shard.
    #[inline]
    pub(crate) fn may_cross_slots(self, topology: &Topology) -> bool {
        self.plain_clients && topology.shards().len() == 1
    }
}

/// The place at which a request is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// Here.
    Here,
    /// Nowhere: its keys are in several slots.
    CrossSlot,
    /// Nowhere: no shard has the slot.
    Unassigned,
    /// Nowhere: the cluster is down.
    Down,
    /// Nowhere: the cluster is down, and lets reads pass.
    DownForWrites,
    /// At the primary of this shard, which has the slot.
    Moved { slot: u16, shard: usize },
}

/// Returns the place at which a request with these slots is to run.
#[inline]
pub(crate) fn route(topology: &Topology, rules: Rules, slots: Slots, request: Request) -> Route {
    let (slot, is_one) = match slots {
        Slots::None => return Route::Here,
        Slots::One(slot) => (slot, true),
        Slots::Several(slot) => (slot, false),
    };
    let Some(shard) = topology.owner(slot) else { return Route::Unassigned };
    let is_plain = rules.may_cross_slots(topology);
    if !is_one && !is_plain {
        return Route::CrossSlot;
    }
    if !topology.is_ok(rules.require_full_coverage)
        && let Some(down) = while_down(rules, request)
    {
        return down;
    }
    let may_read_here = request.reads_replicas || request.is_sharded_pubsub;
    // A replica refuses writes by itself, with READONLY.
    let is_here =
        topology.is_mine(slot) && (topology.is_primary() || is_plain || may_read_here && !request.writes);
    if is_here { Route::Here } else { Route::Moved { slot, shard } }
}

/// The refusal of a request while the cluster is down, unless it may pass.
#[cold]
fn while_down(rules: Rules, request: Request) -> Option<Route> {
    match (request.is_sharded_pubsub, rules.reads_when_down, request.writes) {
        (true, _, _) => (!rules.pubsub_when_down).then_some(Route::Down),
        (false, false, _) => Some(Route::Down),
        (false, true, true) => Some(Route::DownForWrites),
        (false, true, false) => None,
    }
}

/// The name under which clients are sent to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endpoint<'a> {
    /// Empty: clients go on with the address that they know; `None`: the node has no such name.
    pub(crate) host: Option<&'a str>,
    pub(crate) port: u16,
}

/// Which name of a node clients are given (`cluster-preferred-endpoint-type`), and which port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndpointRule {
    pub(crate) kind: EndpointType,
    /// Whether the client is inside TLS.
    pub(crate) tls: bool,
}

impl EndpointRule {
    /// The endpoint of a node for a client.
    pub(crate) fn of(self, node: &Node) -> Endpoint<'_> {
        let addresses = &node.addresses;
        let host = match self.kind {
            EndpointType::Ip => Some(addresses.ip.as_str()),
            EndpointType::Hostname if addresses.hostname.is_empty() => Some("?"),
            EndpointType::Hostname => Some(addresses.hostname.as_str()),
            EndpointType::UnknownEndpoint => None,
        };
        Endpoint { host, port: self.port(node) }
    }

    /// The port of a node: of the kind that the client uses, if the node has one.
    pub(crate) fn port(self, node: &Node) -> u16 {
        let (first, other) = match self.tls {
            true => (node.addresses.tls_port, node.addresses.port),
            false => (node.addresses.port, node.addresses.tls_port),
        };
        if first == 0 { other } else { first }
    }
}

/// The error for a client whose request does not run here.
#[cold]
pub(crate) fn refusal(topology: &Topology, route: Route, endpoints: EndpointRule) -> Option<CommandError> {
    Some(match route {
        Route::Here => return None,
        Route::CrossSlot => CommandError::text("CROSSSLOT Keys in request don't hash to the same slot"),
        Route::Unassigned => CommandError::text("CLUSTERDOWN Hash slot not served"),
        Route::Down => CommandError::text("CLUSTERDOWN The cluster is down"),
        Route::DownForWrites => {
            CommandError::text("CLUSTERDOWN The cluster is down and only accepts read commands")
        }
        Route::Moved { slot, shard } => {
            let node = &topology.nodes()[topology.shards()[shard].primary];
            let Endpoint { host, port } = endpoints.of(node);
            CommandError::owned(format!("MOVED {slot} {}:{port}", host.unwrap_or_default()))
        }
    })
}

/// The error for a script that calls a command which does not run here.
#[cold]
pub(crate) fn script_refusal(route: Route) -> Option<CommandError> {
    Some(CommandError::text(match route {
        Route::Here => return None,
        Route::Down => "ERR Script attempted to execute a command while the cluster is down",
        Route::DownForWrites => {
            "ERR Script attempted to execute a write command while the cluster is down and readonly"
        }
        Route::CrossSlot | Route::Unassigned | Route::Moved { .. } => {
            "ERR Script attempted to access a non local key in a cluster node"
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        super::topology::{
            Shard,
            tests::{node, three_shards},
        },
        *,
    };

    const STRICT: Rules = Rules {
        require_full_coverage: true,
        reads_when_down: false,
        pubsub_when_down: true,
        plain_clients: false,
    };
    const READ: Request = Request { writes: false, is_sharded_pubsub: false, reads_replicas: false };
    const WRITE: Request = Request { writes: true, ..READ };
    const REPLICA_READ: Request = Request { reads_replicas: true, ..READ };
    const CHANNEL: Request = Request { is_sharded_pubsub: true, ..READ };

    /// Slots 0 to 10 only, at node 0.
    fn partial() -> Topology {
        let shard =
            Shard { id: "s".into(), epoch: 1, primary: 0, replicas: vec![1], slots: Arc::from([(0, 10)]) };
        Topology::new(vec![node(0), node(1)], vec![shard], 0)
    }

    #[test]
    fn route_asks_in_the_order_of_redis() {
        let moved = |slot, shard| Route::Moved { slot, shard };
        let (primary, replica, joining) = (three_shards(0), three_shards(3), three_shards(4));
        for (topology, slots, request, expected) in [
            (&primary, Slots::None, WRITE, Route::Here),
            (&primary, Slots::One(5), WRITE, Route::Here),
            (&primary, Slots::One(6000), READ, moved(6000, 1)),
            (&primary, Slots::Several(5), READ, Route::CrossSlot),
            (&primary, Slots::Several(6000), READ, Route::CrossSlot),
            (&replica, Slots::One(5), READ, moved(5, 0)),
            (&replica, Slots::One(5), REPLICA_READ, Route::Here),
            (&replica, Slots::One(6000), REPLICA_READ, moved(6000, 1)),
            (&replica, Slots::One(5), Request { writes: true, ..REPLICA_READ }, moved(5, 0)),
            (&replica, Slots::One(5), CHANNEL, Route::Here),
            (&joining, Slots::One(5), REPLICA_READ, moved(5, 0)),
        ] {
            assert_eq!(route(topology, STRICT, slots, request), expected, "{slots:?} {request:?}");
        }
    }

    #[test]
    fn route_of_plain_clients_is_here_where_there_is_one_shard() {
        let plain = Rules { plain_clients: true, ..STRICT };
        let one = |me| {
            let slots = Arc::from([(0, 16383)]);
            let shard = Shard { id: "s".into(), epoch: 1, primary: 0, replicas: vec![1], slots };
            Topology::new((0..3).map(node).collect(), vec![shard], me)
        };
        for (topology, rules, slots, request, expected) in [
            (one(0), plain, Slots::Several(5), WRITE, Route::Here),
            (one(0), STRICT, Slots::Several(5), WRITE, Route::CrossSlot),
            (one(1), plain, Slots::Several(5), READ, Route::Here),
            (one(1), plain, Slots::One(5), WRITE, Route::Here),
            (one(2), plain, Slots::One(5), READ, Route::Moved { slot: 5, shard: 0 }),
            (three_shards(0), plain, Slots::Several(5), READ, Route::CrossSlot),
            (three_shards(3), plain, Slots::One(5), READ, Route::Moved { slot: 5, shard: 0 }),
        ] {
            assert_eq!(route(&topology, rules, slots, request), expected, "{slots:?} {request:?}");
        }
    }

    #[test]
    fn route_of_a_cluster_that_is_down() {
        let topology = partial();
        let lax = Rules { require_full_coverage: false, ..STRICT };
        let reads = Rules { reads_when_down: true, ..STRICT };
        let deaf = Rules { pubsub_when_down: false, ..STRICT };
        for (rules, slots, request, expected) in [
            (STRICT, Slots::One(11), READ, Route::Unassigned),
            (STRICT, Slots::Several(11), READ, Route::Unassigned),
            (STRICT, Slots::Several(5), READ, Route::CrossSlot),
            (STRICT, Slots::One(5), READ, Route::Down),
            (STRICT, Slots::None, WRITE, Route::Here),
            (lax, Slots::One(5), WRITE, Route::Here),
            (lax, Slots::One(11), READ, Route::Unassigned),
            (reads, Slots::One(5), READ, Route::Here),
            (reads, Slots::One(5), WRITE, Route::DownForWrites),
            (STRICT, Slots::One(5), CHANNEL, Route::Here),
            (deaf, Slots::One(5), CHANNEL, Route::Down),
        ] {
            assert_eq!(route(&topology, rules, slots, request), expected, "{rules:?} {slots:?} {request:?}");
        }
    }

    #[test]
    fn refusals_name_the_endpoint_that_is_wanted() {
        let mut named = node(1);
        named.addresses.hostname = "one.example".to_owned();
        named.addresses.tls_port = 9001;
        let shard =
            |primary| Shard { id: "s".into(), epoch: 1, primary, replicas: vec![], slots: Arc::from([]) };
        let topology = Topology::new(vec![node(0), named], vec![shard(0), shard(1)], 0);
        for (kind, tls, shard, expected) in [
            (EndpointType::Ip, false, 1, "MOVED 7 127.0.0.1:7001"),
            (EndpointType::Ip, true, 1, "MOVED 7 127.0.0.1:9001"),
            (EndpointType::Ip, true, 0, "MOVED 7 127.0.0.1:7000"),
            (EndpointType::Hostname, false, 1, "MOVED 7 one.example:7001"),
            (EndpointType::Hostname, false, 0, "MOVED 7 ?:7000"),
            (EndpointType::UnknownEndpoint, false, 1, "MOVED 7 :7001"),
        ] {
            let error = refusal(&topology, Route::Moved { slot: 7, shard }, EndpointRule { kind, tls });
            assert_eq!(error.unwrap().to_string(), expected);
        }
        assert_eq!(
            refusal(&topology, Route::Here, EndpointRule { kind: EndpointType::Ip, tls: false }),
            None
        );
    }
}
