//! Publish and subscribe.
//!
//! ```text
//! PUBLISH ─▶ Exchange: who subscribes? ─▶ the push queue of each (encoded once per protocol)
//!            (channel's stripe locked)
//! ```
//!
//! The [`Exchange`] is shared. A publisher queues the message for all subscribers, whatever workers they belong to, and
//! they are sent it before any reply leaves from then on ([`dunlin_net::ClientPushes`]).
//!
//! Promises:
//! - All subscribers of a channel see its messages in one order: they are queued under the lock of the channel's stripe.
//! - A subscriber gets what was published behind its subscription and nothing from before: it joins under the same lock.
//!   Its confirmation precedes the messages, since its place was decided before.
//! - A message for which `PUBLISH` has counted a client is sent to it unless its connection ends, and before the client
//!   is told that it has unsubscribed.
//! - A client that has seen an effect of a command, or anything later, comes after the messages and events of that
//!   command.

mod bus;
mod exchange;
mod message;
mod subscriptions;

pub(crate) use bus::{BusMessage, BusQueue};
pub(crate) use exchange::Exchange;
pub(crate) use subscriptions::{subscribe, unsubscribe, unsubscribe_all};

pub(crate) use crate::session::subscriptions::Kind;
