//! Moves of slots between shards, as the server carries them out. The rules are `dunlin_cluster::moves`'s; decision 0059 has the
//! reasons.
//!
//! ```text
//! source: thread `move`                              target: a worker, for the connection
//! ───────────────────────────────────────            ───────────────────────────────────────────────
//! CLUSTER IMPORT BEGIN move ────────────────────▶    the record names the move; nothing is left in its slots
//! snapshot of the slots, their records ─────────▶    commands, executed and recorded like any other's
//! CLUSTER IMPORT PLACE n ───────────────────────▶    answered like any write: when the shard has committed it
//! parks the slots' commands, gives the slots away in one transaction
//! CLUSTER IMPORT OWNED move ────────────────────▶    1 as soon as its topology has them
//! MOVED to what was parked, removes the keys
//! ```
//!
//! Keys are *hidden* that stand in slots which are not this shard's: imported ones, and those that were given away and are not
//! removed yet. The record of slots alone says whose slots are whose, so nothing has to be made visible.
//!
//! Invariants:
//! - Hidden are all keys of slots that are in `stale` and not this shard's.
//! - The thread `moves` of a shard's primary removes keys of stale slots that are another shard's by the newest record that it
//!   knows, unless they were imported by a move which that record names. A slot takes no import before such keys are gone.
//! - A move belongs to one process of its source. If that process or the connection ends, the move is struck off the
//!   record, and what was imported is removed.

mod filter;
mod manager;
mod source;
mod weights;

pub(super) use self::manager::start;
