//! The append-only log at work: the thread that writes it, rewriting, and loading it.
//!
//! ```text
//! start:  source ─ which files ─▶ start ─▶ loading ─ commands ─▶ replay ─▶ keyspace
//! later:  ring ─▶ thread `log` ─ write ─ sync (a thread of its own under `everysec`) ─▶ Durability: released
//!                       ▲ orders
//!         rewrite: a snapshot becomes the base
//! ```
//!
//! [`crate::durability`] has the state that workers and INFO see.

mod group_commit;
mod loading;
mod replay;
mod rewrite;
mod scripts;
mod source;
mod start;
mod syncer;
mod thread;

pub use self::{
    loading::TORN_IN_ROOM,
    replay::{BEGINS_INSIDE, ENDS_OUTSIDE, is_for_replicas},
};
pub(crate) use self::{
    loading::load_files,
    replay::{changes_libraries, entry_in_log},
    rewrite::{begin_rewrite, rewrite_if_due},
    scripts::{Scripts, Surroundings},
    thread::{LogThread, replace_log},
};
