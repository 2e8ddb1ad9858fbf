//! Replication without I/O: the states of a link, and nothing that reads a clock, a socket or a key.
//!
//! ```text
//! replica ([`Replica`])                         primary ([`Peer`], one for each replica)
//!   PING, AUTH, REPLCONF … ─────────────────▶   options
//!   PSYNC id offset ────────────────────────▶   [`History::decide`]
//!   ◀──────────── +CONTINUE, or +FULLRESYNC     waiting for a snapshot
//!   ◀──────────── $EOF: … RDB …                 sending
//!   loading ────── newline each second ─────▶
//!   REPLCONF ACK ───────────────────────────▶   online
//!   ◀──────────── the stream of commands        ([`StreamReader`] parses it)
//! ```
//!
//! The server feeds events in and carries actions out; `tests/simulator.rs` does the same with a network that
//! loses, delays and cuts, for some hundred seeds.
//!
//! Invariants:
//! - An offset counts bytes of the stream, none of the handshake and none of a snapshot.
//! - A replica's offset moves over whole commands, and over a transaction only with its EXEC.
//! - A primary answers no plain error to PSYNC: old replicas would fall back to SYNC, which has no offsets.

mod failover;
mod history;
mod peer;
mod replica;
mod snapshot;
mod stream;
mod wire;

pub use failover::{Failover, FailoverOptions, FailoverStep};
pub use history::{History, Id, Resync, StreamPosition};
pub use peer::{OptionError, Peer, PeerTick, Phase, SnapshotForm};
pub use replica::{Action, Event, LinkState, Replica, ReplicaOptions};
pub use snapshot::{Framing, SnapshotFrame, SnapshotPart, SnapshotReader};
pub use stream::{Frame, StreamError, StreamReader};
pub use wire::{command, request};

/// The stream's command that asks for an acknowledgement, as both Redis and Valkey send it: 37 bytes.
pub const GETACK: &[u8] = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n";
/// The stream's sign of life: 14 bytes.
pub const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
