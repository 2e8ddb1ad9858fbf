//! Why something in a cluster waits, and what an operator can do about it. Pure.

use std::collections::BTreeSet;

use super::{
    plural, short,
    state::{ClusterState, Node, SLOTS},
};

/// etcd's words for an alarm of its space.
const NO_ROOM: &str = "space exceeded";

/// Something that waits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// Whether requests fail because of it, or soon may.
    pub(super) is_grave: bool,
    pub(super) what: String,
    pub(super) remedy: String,
}

/// All that waits, the gravest first.
pub(super) fn of(state: &ClusterState) -> Vec<Wait> {
    let mut waits = Vec::new();
    let mut add = |is_grave, what: String, remedy: &str| {
        waits.push(Wait { is_grave, what, remedy: remedy.to_owned() });
    };
    if !state.refusal.is_empty() {
        let remedy = match state.refusal.contains(NO_ROOM) {
            true => {
                "Requests are served on, but no replica can take over. Make room in etcd (`etcdctl compact`, `etcdctl defrag`, or a larger --quota-backend-bytes), then `etcdctl alarm disarm`."
            }
            false => "Requests are served on, but no replica can take over. etcd's log says more.",
        };
        add(true, format!("Nothing can change, because etcd refuses changes: {}", state.refusal), remedy);
    }
    // Without room in etcd, changes that fail are the trouble.
    if !state.trouble.is_empty() && !state.trouble.contains(NO_ROOM) {
        add(
            false,
            format!("Nothing changes, because this node does not follow etcd: {}", state.trouble),
            match state.trouble.contains("restored from a backup") {
                true => {
                    "Requests are served on. `dunlin cluster records` shows what differs, and decides which side is right."
                }
                false => {
                    "Requests are served on. Start etcd, or repair the network between it and this node."
                }
            },
        );
    }
    if state.shards.is_empty() {
        add(
            true,
            "No slot is served: the cluster is not founded yet".to_owned(),
            "It is, two seconds after the last node has come.",
        );
        return waits;
    }
    let assigned: usize = state.shards.iter().map(|shard| shard.slot_count()).sum();
    if assigned < SLOTS {
        add(
            true,
            format!("{} have no shard", plural(SLOTS - assigned, "slot")),
            "`redis-cli --cluster check` names them. The record `slots` in etcd was changed by hand, or is damaged.",
        );
    }
    if state.is_down {
        add(
            true,
            "The cluster is down: some slots are not served, and cluster-require-full-coverage stops all others".to_owned(),
            "Make these slots served again, or let the others go on: `CONFIG SET cluster-require-full-coverage no` at any node.",
        );
    }
    let free = state.nodes.iter().filter(|node| node.shard.is_empty() && node.state != "draining");
    let (free, lost): (Vec<&Node>, Vec<&Node>) = free.partition(|node| node.is_online());
    for shard in &state.shards {
        let name = format!("shard {}", short(&shard.id));
        let primary = state.primary_of(shard);
        let replicas: Vec<&Node> = state.replicas_of(shard).collect();
        if let Some(primary) = primary.filter(|primary| !primary.is_online()) {
            add(
                true,
                format!("{name} is not served: its primary {} is gone", primary.address),
                "A member that has all data takes over within two seconds. Where there is none, start that node again in its directory.",
            );
        }
        for replica in replicas.iter().filter(|replica| !replica.is_online()) {
            add(
                false,
                format!("{name} has a replica that is gone: {}", replica.address),
                "Start it again in its directory, or `dunlin cluster drain` it if it never comes back.",
            );
        }
        if replicas.len() < state.replicas {
            let what = format!("{name} has {} of {}", replicas.len(), plural(state.replicas, "replica"));
            match free.is_empty() {
                true => add(false, what, "No node is free: start another one with the same --cluster-join."),
                false => add(false, what, "A free node is about to become one."),
            }
        }
        let hosts: BTreeSet<&str> =
            primary.into_iter().chain(replicas.iter().copied()).map(|node| node.host.as_str()).collect();
        let zones: BTreeSet<&str> =
            primary.into_iter().chain(replicas.iter().copied()).map(|node| node.zone.as_str()).collect();
        let all_zones: BTreeSet<&str> =
            state.nodes.iter().map(|node| node.zone.as_str()).filter(|zone| !zone.is_empty()).collect();
        if hosts.len() > 1 && zones.len() == 1 && all_zones.len() > 1 {
            let zone = zones.first().copied().unwrap_or_default();
            add(
                false,
                format!(
                    "{name} has all its copies in one zone, {zone}: too few nodes are free in other zones"
                ),
                "Start a node there. Then `dunlin cluster drain` one of its replicas: the new one takes its place.",
            );
        }
        let in_sync = |node: &&Node| node.sync == "in-sync" && node.is_online();
        if let Some(primary) = primary.filter(|primary| !primary.is_online())
            && !replicas.iter().any(in_sync)
            && replicas.iter().any(|replica| replica.is_online())
        {
            add(
                true,
                format!(
                    "{name} waits for node {} ({}), the last that has all that was acknowledged",
                    short(&primary.id),
                    primary.address
                ),
                "Start it again in its directory. If it never comes back, `dunlin cluster recover` shows what another node of the shard has.",
            );
        }
        if !replicas.is_empty() && hosts.len() == 1 {
            let host = hosts.first().copied().unwrap_or_default();
            add(
                false,
                format!("{name} has all its copies on one machine: {host}"),
                "Start a node on another machine. On one machine, --cluster-host tells places apart.",
            );
        }
    }
    for node in state.nodes.iter().filter(|node| node.state == "draining") {
        let what = format!("node {} ({}) is being drained", short(&node.id), node.address);
        match node.shard.as_str() {
            "" => add(false, format!("{what}, and is empty"), "It can be taken away."),
            shard if state.moves.iter().any(|one| one.from == shard) => add(
                false,
                format!("{what}: its slots are on their way to other shards"),
                "It is empty when the last of them has moved.",
            ),
            shard => add(
                false,
                format!("{what}, and still is a {} of shard {}", node.role, short(shard)),
                "It stays until another node can take its place.",
            ),
        }
    }
    for one in state.moves.iter().filter(|one| !one.waits.is_empty()) {
        add(
            false,
            format!(
                "the move {} of slots {} to shard {} waits {}",
                short(&one.id),
                one.slots,
                short(&one.to),
                one.waits
            ),
            "It goes on by itself. `dunlin cluster move --cancel` ends it.",
        );
    }
    let address = |id: &str| {
        let node = state.nodes.iter().find(|node| node.id == id);
        node.map_or_else(|| short(id).to_owned(), |node| node.address.clone())
    };
    for one in &state.failed_moves {
        add(
            false,
            format!(
                "a move of slots from node {} to {} has failed: {}",
                address(&one.from),
                address(&one.to),
                one.why
            ),
            "Remove the reason. The planner begins its moves again, after a second at first and after a minute at most.",
        );
    }
    for node in lost {
        add(
            false,
            format!("node {} ({}) is gone, and holds nothing", short(&node.id), node.address),
            "Start it again, or `dunlin cluster drain` it.",
        );
    }
    // Waits with the same remedy stand together, in the place of the first.
    let remedies: Vec<String> = waits.iter().map(|wait| wait.remedy.clone()).collect();
    waits.sort_by_key(|wait| (!wait.is_grave, remedies.iter().position(|remedy| *remedy == wait.remedy)));
    waits
}

#[cfg(test)]
mod tests {
    use super::{
        super::state::{FailedMove, Move, Shard},
        *,
    };

    fn node(id: &str, shard: &str, role: &str) -> Node {
        Node {
            id: id.to_owned(),
            address: format!("{id}:1"),
            host: id.to_owned(),
            state: "active".to_owned(),
            health: "online".to_owned(),
            shard: shard.to_owned(),
            role: role.to_owned(),
            ..Node::default()
        }
    }

    fn state(replicas: usize, nodes: Vec<Node>) -> ClusterState {
        let shards = vec![Shard { id: "s".to_owned(), epoch: "1".to_owned(), slots: "0-16383".to_owned() }];
        ClusterState { replicas, nodes, shards, ..ClusterState::default() }
    }

    fn told(state: &ClusterState) -> Vec<String> {
        of(state).into_iter().map(|wait| wait.what).collect()
    }

    #[test]
    fn waits_say_what_lacks() {
        let healthy = state(1, vec![node("a", "s", "primary"), node("b", "s", "replica")]);
        assert!(told(&healthy).is_empty());
        let alone = state(1, vec![node("a", "s", "primary")]);
        assert_eq!(told(&alone), ["shard s has 0 of 1 replica"]);
        let mut gone = healthy.clone();
        gone.nodes[0].health = "failed".to_owned();
        (gone.nodes[1].host, gone.nodes[1].sync) = ("a".to_owned(), "in-sync".to_owned());
        assert_eq!(
            told(&gone),
            [
                "shard s is not served: its primary a:1 is gone",
                "shard s has all its copies on one machine: a"
            ]
        );
        let mut drained = healthy.clone();
        drained.nodes.push(Node { state: "draining".to_owned(), ..node("c", "", "none") });
        drained.nodes[1].state = "draining".to_owned();
        assert_eq!(
            told(&drained),
            [
                "node b (b:1) is being drained, and still is a replica of shard s",
                "node c (c:1) is being drained, and is empty"
            ]
        );
        let mut zoned = healthy.clone();
        for (node, zone) in zoned.nodes.iter_mut().zip(["west", "west"]) {
            node.zone = zone.to_owned();
        }
        assert!(told(&zoned).is_empty(), "there is one zone");
        zoned.nodes.push(Node {
            zone: "east".to_owned(),
            state: "draining".to_owned(),
            ..node("c", "", "none")
        });
        let what = "shard s has all its copies in one zone, west: too few nodes are free in other zones";
        assert_eq!(told(&zoned)[0], what);
        let mut last = healthy.clone();
        last.nodes[0].health = "failed".to_owned();
        (last.nodes[0].sync, last.nodes[1].sync) = ("in-sync".to_owned(), "learner".to_owned());
        assert!(
            told(&last)[1].contains("waits for node a (a:1), the last that has all"),
            "{:?}",
            told(&last)
        );
        last.nodes[1].sync = "in-sync".to_owned();
        assert_eq!(told(&last).len(), 1, "it takes over");
        let mut moving = healthy.clone();
        moving.moves.push(Move {
            id: "m".to_owned(),
            slots: "5".to_owned(),
            to: "t".to_owned(),
            waits: "for node b:1: keys of these slots are still being removed".to_owned(),
            ..Move::default()
        });
        let what = "the move m of slots 5 to shard t waits for node b:1: keys of these slots are still being removed";
        assert_eq!(told(&moving), [what]);
        let mut failing = healthy.clone();
        failing.failed_moves.push(FailedMove {
            from: "a".to_owned(),
            to: "gone".to_owned(),
            why: "the target is silent".to_owned(),
        });
        assert_eq!(
            told(&failing),
            ["a move of slots from node a:1 to gone has failed: the target is silent"]
        );
        let full = "etcdserver: mvcc: database space exceeded";
        let no_room = ClusterState {
            refusal: full.to_owned(),
            trouble: format!("a change: {full}"),
            ..healthy.clone()
        };
        let [wait] = &of(&no_room)[..] else { panic!("{:?}", of(&no_room)) };
        assert_eq!(wait.what, format!("Nothing can change, because etcd refuses changes: {full}"));
        assert!(wait.is_grave && wait.remedy.contains("alarm disarm"), "{wait:?}");
        let down = ClusterState { is_down: true, ..gone.clone() };
        assert!(
            told(&down)[0].starts_with("The cluster is down: some slots are not served"),
            "{:?}",
            told(&down)
        );
        let cut = ClusterState { trouble: "no answer".to_owned(), ..healthy };
        assert_eq!(told(&cut), ["Nothing changes, because this node does not follow etcd: no answer"]);
        assert!(of(&ClusterState::default())[0].is_grave, "a cluster that is not founded serves nothing");
    }
}
