//! The server as a node of a cluster: the threads that follow the cluster's records, lead or follow in a shard, and move slots.
//! Workers see their results in [`crate::cluster`].

mod agent;
mod bus;
mod controller;
mod data;
mod ending;
mod identity;
mod links;
mod membership;
mod moves;
mod publish;
mod shard;
mod wide;

pub(crate) use self::{
    agent::AgentThread,
    ending::note_end,
    membership::{Membership, prepare, settle},
};
