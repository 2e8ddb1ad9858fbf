//! The cluster without I/O: its records, the rules by which they change, and nothing that reads a clock or a socket.
//!
//! Invariants:
//! - A shard's data is safe by what stands in its record and in promises between its members. No rule rests on the time of day,
//!   on a lease of the store, or on the planner.

mod id;
pub mod lineage;
pub mod meta;
pub mod moves;
pub mod planner;
pub mod records;
pub mod shard;
mod slots;
pub mod times;

pub use id::{BootId, ClusterId, HistoryId, IdError, MoveId, NodeId, ShardId};
pub use slots::{Run, SLOTS, SlotError, SlotMap, SlotRange, SlotSet};
