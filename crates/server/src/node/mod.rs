//! The server as a node of a cluster: the threads that follow the cluster's records, lead or follow in a shard, and move slots.
//! Workers see their results in [`crate::cluster`].

mod agent;
mod backoff;
mod bus;
mod cluster_wide;
mod controller;
mod data;
mod identity;
mod join;
mod links;
mod membership;
mod moves;
mod probe;
mod publish;
mod shard;

pub(crate) use self::{
    agent::AgentThread,
    data::note_end,
    join::{AgentSlot, register as register_join},
    membership::{Membership, prepare, settle},
};
