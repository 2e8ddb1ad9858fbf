//! [`State`]: the answer to CLUSTER STATUS.

use dunlin_bench::target::Client;
use dunlin_resp::Value;

use crate::server::{ask, text};

/// The cluster as the node that was asked knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) name: String,
    /// The node that was asked.
    pub(super) me: String,
    /// The reason why it does not follow the records; empty where it does.
    pub(super) trouble: String,
    /// Replicas that each shard is to have.
    pub(super) replicas: usize,
    pub(super) durability: String,
    pub(super) controller: String,
    pub(super) nodes: Vec<Node>,
    pub(super) shards: Vec<Shard>,
    pub(super) moves: Vec<Move>,
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
        let length = |run: &str| {
            let (first, last) = run.split_once('-').unwrap_or((run, run));
            Some(last.parse::<usize>().ok()? + 1 - first.parse::<usize>().ok()?)
        };
        self.slots.split(',').filter_map(length).sum()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) id: String,
    pub(super) slots: String,
    pub(super) from: String,
    pub(super) to: String,
}

impl State {
    /// Asks a node.
    pub(super) fn read(client: &mut Client) -> Result<Self, String> {
        let answer = ask(client, &["CLUSTER", "STATUS"]).map_err(|error| match error.contains("disabled") {
            true => "this server is no node of a cluster: start it with --cluster-join etcd://ETCD:2379/NAME, or name another one with -h and -p".to_owned(),
            false => error,
        })?;
        Ok(Self::parse(&answer))
    }

    fn parse(answer: &Value) -> Self {
        let list = |name: &str| match field(answer, name) {
            Some(Value::Array(items)) => items.as_slice(),
            _ => &[],
        };
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
        };
        let mut state = Self {
            name: word(answer, "name"),
            me: word(answer, "node"),
            trouble: word(answer, "trouble"),
            replicas: word(answer, "replicas").parse().unwrap_or(0),
            durability: word(answer, "durability"),
            controller: word(answer, "controller"),
            nodes: list("nodes").iter().map(node).collect(),
            shards: list("shards").iter().map(shard).collect(),
            moves: list("moves").iter().map(one_move).collect(),
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

fn word(value: &Value, name: &str) -> String {
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
        let state = State { nodes, ..State::default() };
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
    }
}
