//! Publish and subscribe.
//!
//! ```text
//! PUBLISH ─▶ Exchange: who has subscribers? ─▶ one letter per such worker ─▶ Subscribers: to each output
//!            (channel's stripe locked)           Arc<Message>                (encoded once per protocol)
//! ```
//!
//! The [`Exchange`] is shared and knows how many subscribers of what each worker has, never which. Each
//! worker knows its own [`Subscribers`]. A message is encoded once for each protocol, whoever it goes to.
//!
//! Promises:
//! - All subscribers of a channel see its messages in one order, whatever workers they belong to:
//!   letters are posted under the lock of the channel's stripe, and mail arrives in order.
//! - A subscriber gets what was published behind its subscription and nothing from before: the
//!   exchange numbers messages, and a subscription begins at a number. Its confirmation precedes them,
//!   since mail is read between turns.
//! - What `PUBLISH` has counted a client for is sent to it unless its connection ends: who
//!   unsubscribes first waits for the mail that is under way to his worker
//!   ([`Executor::settle`](crate::executor::Executor::settle)).
//! - Mail is bounded: who publishes to a worker that is behind waits until it has caught up.

mod exchange;
mod message;
mod subscribers;

pub(crate) use exchange::{Backlogged, Exchange};
pub(crate) use message::Message;
pub(crate) use subscribers::{Subscribers, Subscriptions};

/// What can be subscribed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A channel, by its name.
    Channel,
    /// All channels whose names match.
    Pattern,
    /// A channel of a cluster's shard: a namespace of its own.
    ShardChannel,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::ShardChannel];
}
