//! The keys of a cluster's records.

use std::fmt;

use crate::{NodeId, ShardId};

/// Bytes of a cluster's name at most.
const NAME_BYTES_MAX: usize = 64;

/// Why a text is no cluster's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameError;

impl fmt::Display for NameError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a cluster's name has 1 to {NAME_BYTES_MAX} letters, digits, dots, dashes or underscores")
    }
}

impl std::error::Error for NameError {}

/// The place of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// `cluster`
    Cluster,
    /// `nodes/ID`
    Node(NodeId),
    /// `alive/ID`
    Alive(NodeId),
    /// `progress/ID`
    Progress(NodeId),
    /// `lineage/ID`
    Mark(NodeId),
    /// `shards/ID`
    Shard(ShardId),
    /// `slots`
    Slots,
    /// `users`
    Users,
    /// `functions`
    Functions,
    /// `settings`
    Settings,
    /// `controller`
    Controller,
}

/// Keys with a cluster's prefix, `/dunlin/NAME/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    /// Returns the keys of the cluster with this name.
    pub fn new(name: &str) -> Result<Self, NameError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            return Err(NameError);
        }
        Ok(Self { prefix: format!("/dunlin/{name}/") })
    }

    /// Returns the prefix of all keys. No other cluster's key begins with it.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the prefix of the marks of all nodes.
    pub fn marks(&self) -> String {
        format!("{}lineage/", self.prefix)
    }

    /// Returns the text of a key.
    pub fn text(&self, key: Key) -> String {
        let prefix = &self.prefix;
        match key {
            Key::Cluster => format!("{prefix}cluster"),
            Key::Node(id) => format!("{prefix}nodes/{id}"),
            Key::Alive(id) => format!("{prefix}alive/{id}"),
            Key::Progress(id) => format!("{prefix}progress/{id}"),
            Key::Mark(id) => format!("{}{id}", self.marks()),
            Key::Shard(id) => format!("{prefix}shards/{id}"),
            Key::Slots => format!("{prefix}slots"),
            Key::Users => format!("{prefix}users"),
            Key::Functions => format!("{prefix}functions"),
            Key::Settings => format!("{prefix}settings"),
            Key::Controller => format!("{prefix}controller"),
        }
    }

    /// Reads the text of a key. `None`: it is not a key of this cluster.
    pub fn parse(&self, text: &str) -> Option<Key> {
        let rest = text.strip_prefix(&self.prefix)?;
        match rest.split_once('/') {
            None => match rest {
                "cluster" => Some(Key::Cluster),
                "slots" => Some(Key::Slots),
                "users" => Some(Key::Users),
                "functions" => Some(Key::Functions),
                "settings" => Some(Key::Settings),
                "controller" => Some(Key::Controller),
                _ => None,
            },
            Some(("nodes", id)) => id.parse().ok().map(Key::Node),
            Some(("alive", id)) => id.parse().ok().map(Key::Alive),
            Some(("progress", id)) => id.parse().ok().map(Key::Progress),
            Some(("lineage", id)) => id.parse().ok().map(Key::Mark),
            Some(("shards", id)) => id.parse().ok().map(Key::Shard),
            Some(_) => None,
        }
    }
}
