//! The store: keyspace, values and commands.
//!
//! Nothing here opens a socket or a file, starts a thread, reads a clock or asks the system for
//! randomness: time and seeds are arguments. The host provides connections, configuration and the
//! process, behind [`command::Run::Host`].

#[cfg(test)]
mod accounting;
mod aof_rewrite;
pub mod command;
pub mod commands;
mod compaction;
mod context;
mod digest;
mod eviction;
mod execute;
mod fieldsets;
pub mod keyspace;
mod long_words;
mod migrating_keys;
mod notify;
mod offload;
mod propagation;
mod random;
pub mod rdb;
mod serve;
mod slot_walk;
pub mod snapshot;
mod stale;
mod statistics;
mod survey;
mod transaction;
#[cfg(test)]
mod transcript;
pub mod value;

pub use compaction::{Compaction, CompactionSlice, Slack};
pub use context::{
    BlockedByScript, Caller, DatabaseLimits, Environment, EvictedKeys, ExclusiveContext, ExpiryChange,
    Garbage, Host, KeyspaceContext, Policy, ReadContext, Worker, WriteContext,
};
pub use dunlin_structures::{
    GrowingBlock, PAGE_BYTES, glob, hyperloglog::self_test as hyperloglog_self_test,
};
pub use eviction::{Evicted, Eviction, EvictionOrder};
pub use execute::{Engine, Outcome, Request};
pub use fieldsets::Fieldsets;
pub use long_words::{LONG_WORD_BYTES_MIN, LongWord, LongWords, OwnedWord};
pub use migrating_keys::{Dumped, MigratingKeys, MigrationStart, NotRemoved};
pub use notify::{Audience, ClientPosition, Event, EventClass, EventClasses, Notice};
pub use offload::{Computed, OffloadOutcome, Offloaded};
pub use propagation::{Log, LogConsumer, LogSwitch, Propagation, write_command};
pub use serve::{Blocked, Served};
pub use slot_walk::{SlotWalk, SlotWeights};
pub use statistics::{Counter, Statistics};
pub use survey::Survey;
pub use transaction::{Condition, Footprint, Transaction};
