//! [`Subscriptions`]: what one client has subscribed to.

use std::{collections::BTreeSet, sync::Arc};

use dunlin_net::{Client, OutputClass};

use super::{Exchange, Kind};
use crate::session::Session;

/// Bytes of a subscription: the name with its places in the client's set and in the exchange, and the client's place
/// under it. A name that several have subscribed to counts for each.
fn bytes_of(name: &[u8]) -> usize {
    const SUBSCRIPTION_BYTES: usize = 384;
    SUBSCRIPTION_BYTES + name.len()
}

/// The subscriptions of one client.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    /// By [`Kind`].
    names: [BTreeSet<Arc<[u8]>>; 3],
    /// Bytes of all of them.
    bytes: usize,
}

impl Subscriptions {
    /// Subscribes a client, at the place of its command among all changes.
    pub(crate) fn subscribe(exchange: &Exchange, session: &mut Session, kind: Kind, name: &[u8]) {
        let subscriptions = session.subscriptions.get_or_insert_default();
        if subscriptions.names[kind as usize].contains(name) {
            return;
        }
        let pushes = session.client.take_pushes(session.protocol);
        pushes.change(|listener| listener.is_subscribed = true);
        session.is_pushed_to = true;
        let name = exchange.join(kind, name, &session.client);
        subscriptions.bytes += bytes_of(&name);
        subscriptions.names[kind as usize].insert(name);
        subscriptions.publish(&session.client);
    }

    /// Ends a subscription, if there is one.
    pub(crate) fn unsubscribe(exchange: &Exchange, session: &mut Session, kind: Kind, name: &[u8]) {
        let Some(subscriptions) = &mut session.subscriptions else { return };
        if !subscriptions.names[kind as usize].remove(name) {
            return;
        }
        subscriptions.bytes -= bytes_of(name);
        exchange.leave(kind, name, session.client.id());
        subscriptions.publish(&session.client);
        if subscriptions.total() == 0 {
            session.subscriptions = None;
            if let Some(pushes) = session.client.pushes.get() {
                pushes.with_listener(|listener| listener.is_subscribed = false);
            }
        }
    }

    /// Ends all subscriptions of a client.
    pub(crate) fn unsubscribe_all(exchange: &Exchange, session: &mut Session) {
        for kind in Kind::ALL {
            for name in Self::names(session, kind) {
                Self::unsubscribe(exchange, session, kind, &name);
            }
        }
    }

    /// The names that a client has subscribed to, in order.
    pub(crate) fn names(session: &Session, kind: Kind) -> Vec<Arc<[u8]>> {
        let subscriptions = session.subscriptions.iter();
        subscriptions.flat_map(|subscriptions| subscriptions.names[kind as usize].iter().cloned()).collect()
    }

    /// The number in the confirmations of subscriptions of this kind: channels and patterns are
    /// counted together.
    pub(crate) fn counted_with(session: &Session, kind: Kind) -> usize {
        let count = |kind: Kind| {
            session.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.names[kind as usize].len())
        };
        match kind {
            Kind::Channel | Kind::Pattern => count(Kind::Channel) + count(Kind::Pattern),
            Kind::ShardChannel => count(Kind::ShardChannel),
        }
    }

    fn total(&self) -> usize {
        self.names.iter().map(BTreeSet::len).sum()
    }

    /// Shows others how many there are.
    fn publish(&self, client: &Client) {
        let [channels, patterns, shard_channels] = &self.names;
        client.channels.set(channels.len() as u64);
        client.patterns.set(patterns.len() as u64);
        client.shard_channels.set(shard_channels.len() as u64);
        client.subscribed_bytes.set(self.bytes as u64);
        let class = if self.total() == 0 { OutputClass::Normal } else { OutputClass::Pubsub };
        client.set_output_class(class);
    }
}
