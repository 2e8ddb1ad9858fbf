//! [`ClusterState`]: the answer to CLUSTER STATUS.

use dunlin_bench::target::Client;
use dunlin_resp::Value;
use indicatif::HumanBytes;

use crate::server::{ask, text};

/// Slots of a cluster.
pub(super) const SLOTS: usize = 16384;

/// The cluster as the node that was asked knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ClusterState {
    pub(super) name: String,
    /// The node that was asked.
    pub(super) me: String,
    /// The reason why it does not follow the records; empty if it does.
    pub(super) trouble: String,
    /// The reason why etcd, which answers, refuses changes; empty where it makes them.
    pub(super) refusal: String,
    /// Whether requests are answered CLUSTERDOWN.
    pub(super) is_down: bool,
    /// Replicas that each shard is to have.
    pub(super) replicas: usize,
    pub(super) durability: String,
    pub(super) controller: String,
    /// Slots that the planner leaves where they are.
    pub(super) pinned: String,
    pub(super) nodes: Vec<Node>,
    pub(super) shards: Vec<Shard>,
    pub(super) moves: Vec<Move>,
    /// The last moves between two nodes, if they have failed.
    pub(super) failed_moves: Vec<FailedMove>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) address: String,
    /// For people.
    pub(super) name: String,
    /// The machine.
    pub(super) host: String,
    pub(super) zone: String,
    pub(super) state: String,
    pub(super) health: String,
    pub(super) version: String,
    pub(super) shard: String,
    pub(super) role: String,
    /// `in-sync`, `learner`, or empty.
    pub(super) sync: String,
}

impl Node {
    pub(super) fn is_online(&self) -> bool {
        self.health == "online"
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) id: String,
    pub(super) epoch: String,
    /// As `0-99,200`.
    pub(super) slots: String,
}

impl Shard {
    pub(super) fn slot_count(&self) -> usize {
        runs(&self.slots).map_or(0, |runs| runs.iter().map(|(first, last)| last + 1 - first).sum())
    }

    /// Whether it has a slot.
    pub(super) fn has(&self, slot: usize) -> bool {
        runs(&self.slots)
            .is_some_and(|runs| runs.iter().any(|(first, last)| (*first..=*last).contains(&slot)))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) id: String,
    pub(super) slots: String,
    pub(super) from: String,
    pub(super) to: String,
    /// In the words of `CLUSTER GETSLOTMIGRATIONS`.
    pub(super) state: String,
    /// Why it waits, as "for …"; empty if it does not.
    pub(super) waits: String,
    /// Thousandths of the source's keyspace that were looked through.
    pub(super) walked: u64,
    pub(super) sent_bytes: u64,
    /// Bytes among them that the target has not committed.
    pub(super) behind_bytes: u64,
}

/// Slots that have stayed with their source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FailedMove {
    /// A node.
    pub(super) from: String,
    /// A node.
    pub(super) to: String,
    pub(super) why: String,
}

impl Move {
    /// How far it is, in a few words.
    pub(super) fn progress(&self) -> String {
        let bar: String = (0..10).map(|tenth| if self.walked > tenth * 100 { '█' } else { '░' }).collect();
        let (sent, behind) = (HumanBytes(self.sent_bytes), HumanBytes(self.behind_bytes));
        let percent = self.walked / 10;
        match self.behind_bytes {
            _ if self.state == "connecting" => "not begun".to_owned(),
            0 => format!("{bar} {percent}%, {sent} sent"),
            _ => format!("{bar} {percent}%, {sent} sent, {behind} behind"),
        }
    }
}

/// Reads slots as `0-99,200`; `None` if they are none.
pub(super) fn runs(text: &str) -> Option<Vec<(usize, usize)>> {
    let run = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last && last < SLOTS).then_some((first, last))
    };
    text.split(',').map(run).collect()
}

impl ClusterState {
    /// Asks a node.
    pub(super) fn read(client: &mut Client) -> Result<Self, String> {
        let answer = ask(client, &["CLUSTER", "STATUS"]).map_err(|error| match error.contains("disabled") {
            true => "this server is no node of a cluster: start it with --cluster-join etcd://ETCD:2379/NAME, or name another one with -h and -p".to_owned(),
            false => error,
        })?;
        Ok(Self::parse(&answer))
    }

    fn parse(answer: &Value) -> Self {
        let node = |value: &Value| Node {
            id: word(value, "id"),
            address: word(value, "address"),
            name: word(value, "name"),
            host: word(value, "host"),
            zone: word(value, "zone"),
            state: word(value, "state"),
            health: word(value, "health"),
            version: word(value, "version"),
            shard: word(value, "shard"),
            role: word(value, "role"),
            sync: word(value, "sync"),
        };
        let shard = |value: &Value| Shard {
            id: word(value, "id"),
            epoch: word(value, "epoch"),
            slots: word(value, "slots"),
        };
        let one_move = |value: &Value| Move {
            id: word(value, "id"),
            slots: word(value, "slots"),
            from: word(value, "from"),
            to: word(value, "to"),
            state: word(value, "state"),
            waits: word(value, "waits"),
            walked: number(value, "walked").unwrap_or(0),
            sent_bytes: number(value, "sent-bytes").unwrap_or(0),
            behind_bytes: number(value, "behind-bytes").unwrap_or(0),
        };
        let failed_move = |value: &Value| FailedMove {
            from: word(value, "from"),
            to: word(value, "to"),
            why: word(value, "why"),
        };
        let mut state = Self {
            name: word(answer, "name"),
            me: word(answer, "node"),
            trouble: word(answer, "trouble"),
            refusal: word(answer, "refusal"),
            is_down: word(answer, "state") == "fail",
            replicas: word(answer, "replicas").parse().unwrap_or(0),
            durability: word(answer, "durability"),
            controller: word(answer, "controller"),
            pinned: word(answer, "pinned"),
            nodes: list(answer, "nodes").iter().map(node).collect(),
            shards: list(answer, "shards").iter().map(shard).collect(),
            moves: list(answer, "moves").iter().map(one_move).collect(),
            failed_moves: list(answer, "failed-moves").iter().map(failed_move).collect(),
        };
        let first = |shard: &Shard| {
            let digits: String = shard.slots.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u32>().unwrap_or(u32::MAX)
        };
        state.shards.sort_by_key(first);
        let place =
            |shard: &str| state.shards.iter().position(|known| known.id == shard).unwrap_or(usize::MAX);
        state
            .nodes
            .sort_by_cached_key(|node| (place(&node.shard), node.role != "primary", node.address.clone()));
        state
    }

    pub(super) fn primary_of(&self, shard: &Shard) -> Option<&Node> {
        self.nodes.iter().find(|node| node.shard == shard.id && node.role == "primary")
    }

    pub(super) fn replicas_of(&self, shard: &Shard) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(move |node| node.shard == shard.id && node.role == "replica")
    }

    /// The one shard that a word names: by its id or the beginning of it, or by one of its nodes.
    pub(super) fn find_shard(&self, word: &str) -> Result<&Shard, String> {
        let start = word.to_ascii_lowercase();
        let found: Vec<&Shard> = self.shards.iter().filter(|shard| shard.id.starts_with(&start)).collect();
        match (&found[..], self.find(word)) {
            ([shard], Err(_)) if !word.is_empty() => Ok(shard),
            (_, Ok(node)) if found.is_empty() => {
                let shard = self.shards.iter().find(|shard| shard.id == node.shard);
                shard.ok_or_else(|| format!("node {word} is part of no shard"))
            }
            ([], Err(_)) => {
                Err(format!("no shard and no node is '{word}': `dunlin cluster status` lists them"))
            }
            _ => Err(format!("'{word}' is the beginning of several ids: give more of it")),
        }
    }

    /// The one node that a word names: an id or the beginning of it, an address, or a name.
    pub(super) fn find(&self, word: &str) -> Result<&Node, String> {
        let is_it = |node: &&Node| {
            node.id.starts_with(&word.to_ascii_lowercase()) || node.address == word || node.name == word
        };
        let found: Vec<&Node> = self.nodes.iter().filter(is_it).collect();
        match found[..] {
            [node] if !word.is_empty() => Ok(node),
            [] => Err(format!("no node is '{word}': `dunlin cluster nodes` lists them")),
            _ => Err(format!("'{word}' is the beginning of {} nodes: give more of the id", found.len())),
        }
    }
}

/// The value of a name in a map, or in a list of pairs.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Map(pairs) => {
            pairs.iter().find(|(key, _)| key.as_bytes() == Some(name.as_bytes())).map(|(_, value)| value)
        }
        Value::Array(items) => items
            .chunks_exact(2)
            .find(|pair| pair[0].as_bytes() == Some(name.as_bytes()))
            .map(|pair| &pair[1]),
        _ => None,
    }
}

/// A number of a map; `None` if there is none, or one below 0.
pub(super) fn number(value: &Value, name: &str) -> Option<u64> {
    match field(value, name)? {
        Value::Integer(number) => u64::try_from(*number).ok(),
        other => text(other.as_bytes()?).parse().ok(),
    }
}

/// The items of a list in a map.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    match field(value, name) {
        Some(Value::Array(items)) => items,
        _ => &[],
    }
}

/// A text of a map; empty if there is none.
pub(super) fn word(value: &Value, name: &str) -> String {
    field(value, name).and_then(Value::as_bytes).map(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_finds_one_node_by_id_address_or_name() {
        let node = |id: &str, address: &str, name: &str| Node {
            id: id.to_owned(),
            address: address.to_owned(),
            name: name.to_owned(),
            ..Node::default()
        };
        let nodes = vec![node("3f2a11", "10.0.0.7:6379", "west"), node("3f2b22", "10.0.0.8:6379", "")];
        let state = ClusterState { nodes, ..ClusterState::default() };
        for (word, expected) in [
            ("3f2a", Ok("3f2a11")),
            ("3F2B", Ok("3f2b22")),
            ("10.0.0.8:6379", Ok("3f2b22")),
            ("west", Ok("3f2a11")),
            ("3f2", Err("'3f2' is the beginning of 2 nodes: give more of the id")),
            ("x", Err("no node is 'x': `dunlin cluster nodes` lists them")),
        ] {
            let found = state.find(word).map(|node| node.id.as_str());
            assert_eq!(found, expected.map_err(str::to_owned), "{word}");
        }
        assert!(state.find("").is_err());
    }

    #[test]
    fn shards_count_their_slots() {
        for (slots, count) in [("", 0), ("5", 1), ("0-99,200", 101), ("0-16383", 16384)] {
            assert_eq!(Shard { slots: slots.to_owned(), ..Shard::default() }.slot_count(), count);
        }
        for odd in ["", "x", "1-", "-1", "5-3", "16384", "0-16384", "1,,2", "99999999999999999999"] {
            assert_eq!(runs(odd), None, "{odd}");
        }
        assert_eq!(runs("0-99, 200"), Some(vec![(0, 99), (200, 200)]));
    }

    #[test]
    fn state_finds_shards_by_their_ids_and_nodes() {
        let node =
            |id: &str, shard: &str| Node { id: id.to_owned(), shard: shard.to_owned(), ..Node::default() };
        let shard = |id: &str| Shard { id: id.to_owned(), ..Shard::default() };
        let nodes = vec![node("3f2a", "8f76"), node("4444", ""), node("8f11", "9abc")];
        let state =
            ClusterState { nodes, shards: vec![shard("8f76"), shard("9abc")], ..ClusterState::default() };
        for (word, expected) in [
            ("8f7", Some("8f76")),
            ("9", Some("9abc")),
            ("3f", Some("8f76")),
            ("4", None),
            ("8f", None),
            ("8f11", Some("9abc")),
            ("", None),
        ] {
            assert_eq!(state.find_shard(word).ok().map(|shard| shard.id.as_str()), expected, "{word}");
        }
    }

    #[test]
    fn moves_show_how_far_they_are() {
        let one = Move { state: "snapshotting".to_owned(), walked: 420, sent_bytes: 2048, ..Move::default() };
        assert_eq!(one.progress(), "█████░░░░░ 42%, 2.00 KiB sent");
        let behind = Move { behind_bytes: 1024, ..one };
        assert_eq!(behind.progress(), "█████░░░░░ 42%, 2.00 KiB sent, 1.00 KiB behind");
    }
}
