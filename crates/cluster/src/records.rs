//! The records of a cluster: small, typed, versioned, JSON. The records are all that its nodes agree on.
//!
//! ```text
//! /dunlin/NAME/cluster        what was asked for: replicas, durability        ClusterRecord
//!              nodes/ID       addresses, host and zone, state, last start      NodeRecord
//!              alive/ID       gone when its process is, a hint                 AliveRecord
//!              progress/ID    how far the node's moves of slots are, a hint    ProgressRecord
//!              lineage/ID     the last change that the node has made           Mark
//!              shards/ID      epoch, primary, in-sync set, learners, history   ShardRecord
//!              slots          who owns which, and what is being moved          SlotsRecord
//!              users · functions · settings      one list for all nodes
//!              controller     who plans                                        ControllerRecord
//! ```
//!
//! Invariants:
//! - A record has its version in the field `v`. A reader refuses a newer one ([`RecordError::Newer`]) and any field that it does
//!   not know: a change that is read, altered and written back loses nothing.
//! - Bytes of the store may come from anywhere. Decoding never panics, and allocates a small multiple of its input at
//!   most.

mod keys;
mod runs;
mod shard;

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use keys::{Key, Keys, NameError};
pub use runs::{Run, Runs};
pub use shard::{History, RequestedChange, ShardRecord};

use crate::{BootId, ClusterId, HistoryId, MoveId, NodeId, ShardId, SlotMap, SlotSet, meta::VALUE_BYTES_MAX};

/// Why a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordError {
    /// A later Dunlin has written it: its version, and the newest that this one reads.
    Newer {
        /// The version of the record.
        found: u64,
        /// The version that is known.
        known: u64,
    },
    /// The bytes are no such record.
    Malformed(String),
}

impl fmt::Display for RecordError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { found, known } => {
                write!(
                    out,
                    "the record has version {found}, and this server reads up to version {known}: upgrade it"
                )
            }
            Self::Malformed(why) => write!(out, "the record is malformed: {why}"),
        }
    }
}

impl std::error::Error for RecordError {}

/// A record of the store.
pub trait Record: Serialize + DeserializeOwned {
    /// The version that is written, and the newest that is read.
    const VERSION: u64 = 1;

    /// Refuses states that no Dunlin writes.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Returns the JSON. Panics if the record breaks [`Record::check`]: that is ours to prevent.
    fn encode(&self) -> Vec<u8> {
        if let Err(why) = self.check() {
            panic!("a record that breaks its own invariants: {why}");
        }
        let mut json = format!("{{\"v\":{}", Self::VERSION).into_bytes();
        let fields = serde_json::to_vec(self).expect("records have text for keys");
        if fields != b"{}" {
            json.push(b',');
        }
        json.extend_from_slice(&fields[1..]);
        json
    }

    /// Reads the JSON.
    fn decode(json: &[u8]) -> Result<Self, RecordError> {
        let malformed = |error: &dyn fmt::Display| RecordError::Malformed(error.to_string());
        if json.len() > VALUE_BYTES_MAX {
            return Err(RecordError::Malformed("it is too large".to_owned()));
        }
        // The version first: what follows it is that version's.
        let Version { v: found } = serde_json::from_slice(json).map_err(|error| malformed(&error))?;
        if found > Self::VERSION {
            return Err(RecordError::Newer { found, known: Self::VERSION });
        }
        if found == 0 {
            return Err(RecordError::Malformed("there is no version 0".to_owned()));
        }
        let mut fields: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(json).map_err(|error| malformed(&error))?;
        fields.remove("v");
        let record: Self = serde_json::from_value(fields.into()).map_err(|error| malformed(&error))?;
        record.check().map_err(RecordError::Malformed)?;
        Ok(record)
    }
}

#[derive(Deserialize)]
struct Version {
    v: u64,
}

/// The failures that an acknowledged write has survived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The primary has it. A failover loses the last moments of writes, as in Redis.
    Async,
    /// Every member of the in-sync set has it.
    Sync,
}

/// `cluster`: what the cluster is, and what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterRecord {
    /// Tells this cluster from another one under the same name, and from itself after etcd was emptied.
    pub id: ClusterId,
    /// Replicas of each shard, beside its primary.
    pub replicas: u8,
    /// The failures that an acknowledged write has survived.
    pub durability: Durability,
    /// Members that a write needs, the primary among them: 1 at least.
    pub min_sync: u8,
    /// When it was founded, in milliseconds of Unix time. For eyes only.
    pub created_ms: u64,
}

impl Record for ClusterRecord {
    fn check(&self) -> Result<(), String> {
        match self.min_sync {
            0 => Err("min_sync is 1 at least".to_owned()),
            members if usize::from(members) > usize::from(self.replicas) + 1 => {
                Err("min_sync is larger than a shard's number of nodes".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// The addresses at which a node serves. A port of 0 is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Addresses {
    /// The name or address that clients and nodes connect to.
    pub host: String,
    /// The port for clients.
    pub port: u16,
    /// The port for clients inside TLS.
    pub tls_port: u16,
    /// The port for replication links, if it is another one.
    pub replication_port: u16,
    /// A name that clients resolve. Empty: none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hostname: String,
}

/// The state of a node's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// The node has announced itself and is not ready to hold data.
    Joining,
    /// The node may hold data.
    Active,
    /// The node is to be emptied.
    Draining,
}

/// A node's part of its shard's data when its process started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restart {
    /// The shard.
    pub shard: ShardId,
    /// The epoch that it had seen.
    pub epoch: u64,
    /// The history that its data is part of.
    pub history: HistoryId,
    /// The end of its data in that history.
    pub offset: u64,
    /// Whether it has all that it had acknowledged: after a clean shutdown, or under `appendfsync always`.
    pub clean: bool,
}

/// `nodes/ID`: a node, written by itself at each start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRecord {
    /// The addresses at which it serves.
    pub addresses: Addresses,
    /// Its name for people. Empty: none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The machine. Two nodes with the same one die together.
    pub host: String,
    /// The zone. Two nodes with the same one may be cut off together. Empty: unknown.
    #[serde(default)]
    pub zone: String,
    /// Bytes of memory that it may use for data: its share of slots follows it.
    pub weight: u64,
    /// The version of Dunlin.
    pub version: String,
    /// The state of its life.
    pub state: NodeState,
    /// The start of the process that wrote the record.
    pub boot: BootId,
    /// Its part of the shard's data at that start; `None` if it had nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
}

impl Record for NodeRecord {}

/// `alive/ID`: bound to a lease of the node. A hint for the planner and for eyes; safety never rests on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AliveRecord {
    /// The start of the process.
    pub boot: BootId,
    /// Bytes of memory that its data takes.
    pub used_bytes: u64,
    /// Slots that take much more than others, and their bytes: a primary's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heavy: Vec<(u16, u64)>,
}

impl Record for AliveRecord {}

/// `progress/ID`: how far the moves of slots are whose source the node is. Bound to its lease, absent without anything to say. For eyes
/// only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressRecord {
    /// The moves.
    pub moves: Vec<MoveProgress>,
    /// The last move to each target that has ended, if it failed a short time ago.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<MoveFailure>,
}

impl Record for ProgressRecord {}

/// `lineage/ID`: the mark of the last change of a record that the node has made, written with that change ([`crate::lineage`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// Counts the node's changes, from 1.
    pub count: u64,
    /// Drawn for the change.
    pub id: u64,
    /// The last runs of its changes.
    #[serde(default, skip_serializing_if = "Runs::is_empty")]
    pub runs: Runs,
}

impl Record for Mark {}

/// The reason why slots have stayed with their source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveFailure {
    /// The primary that was to have them.
    pub to: NodeId,
    /// The reason, for people.
    pub why: String,
}

/// How far a move of slots is. Fields that a reader does not know are for later readers' eyes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveProgress {
    /// The move.
    pub id: MoveId,
    /// The state, in the words of `CLUSTER GETSLOTMIGRATIONS`.
    pub state: String,
    /// Thousandths of the source's data set that were looked through for keys of the slots.
    pub walked: u16,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// Bytes among them that the target has not committed.
    pub behind_bytes: u64,
    /// Why it waits, as "for …"; empty if it does not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waits: String,
}

/// A move of slots that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// Its id.
    pub id: MoveId,
    /// The slots, all of which belong to the source.
    pub slots: SlotSet,
    /// The shard that gives them away.
    pub from: ShardId,
    /// The shard that gets them.
    pub to: ShardId,
    /// The epoch of the source's record when it began. A failover of the source ends the move.
    pub from_epoch: u64,
    /// The epoch of the target's record when it began. A failover of the target ends the move.
    pub to_epoch: u64,
}

/// `slots`: who owns which, and what is being moved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotsRecord {
    /// The owners.
    pub slots: SlotMap,
    /// The moves that have begun and not ended.
    #[serde(default)]
    pub moving: Vec<Move>,
    /// Slots that an operator has pinned: the planner leaves them where they are, unless their shard is to end.
    #[serde(default, skip_serializing_if = "SlotSet::is_empty")]
    pub pinned: SlotSet,
}

impl Record for SlotsRecord {
    fn check(&self) -> Result<(), String> {
        let mut moving = SlotSet::default();
        for (at, one) in self.moving.iter().enumerate() {
            if one.slots.is_empty() || one.from == one.to {
                return Err(format!("the move {} moves nothing", one.id));
            }
            if !self.slots.slots_of(one.from).contains_all(&one.slots) {
                return Err(format!("the move {} moves slots that its source does not own", one.id));
            }
            if moving.intersects(&one.slots) || self.moving[..at].iter().any(|other| other.id == one.id) {
                return Err(format!("the move {} moves slots that are being moved", one.id));
            }
            moving.insert_all(&one.slots);
        }
        Ok(())
    }
}

/// `users`: the ACL, the same on all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsersRecord {
    /// The users, each as a line of an ACL file: `user NAME RULES…`.
    pub users: Vec<String>,
}

impl Record for UsersRecord {}

/// `functions`: the libraries, the same on all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionsRecord {
    /// The code of each library, by its name.
    pub libraries: BTreeMap<String, String>,
}

impl Record for FunctionsRecord {}

/// `settings`: directives that are the cluster's and not a node's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsRecord {
    /// The values, by the directives' names.
    pub settings: BTreeMap<String, String>,
}

impl Record for SettingsRecord {}

/// `controller`: the node that plans, bound to its lease. Two at once are harmless: every proposal compares revisions, and
/// compares and rewrites this record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerRecord {
    /// The node.
    pub node: NodeId,
    /// The start of its process.
    pub boot: BootId,
}

impl Record for ControllerRecord {}

#[cfg(test)]
mod tests;
