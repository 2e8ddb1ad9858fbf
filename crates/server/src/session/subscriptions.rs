//! The subscriptions of one client. `push::pubsub` joins and leaves.

use std::{collections::BTreeSet, sync::Arc};

use dunlin_net::{Client, OutputClass};

use super::Session;

/// The kinds of subscriptions.
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
    /// Whether it has this one.
    pub(crate) fn has(&self, kind: Kind, name: &[u8]) -> bool {
        self.names[kind as usize].contains(name)
    }

    /// Adds one that is not there yet.
    pub(crate) fn add(&mut self, kind: Kind, name: Arc<[u8]>, client: &Client) {
        self.bytes += bytes_of(&name);
        self.names[kind as usize].insert(name);
        self.publish(client);
    }

    /// Takes away one that is there.
    pub(crate) fn remove(&mut self, kind: Kind, name: &[u8], client: &Client) {
        self.bytes -= bytes_of(name);
        self.names[kind as usize].remove(name);
        self.publish(client);
    }

    /// Whether it is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeSet::is_empty)
    }

    /// Shows others how many there are.
    fn publish(&self, client: &Client) {
        let [channels, patterns, shard_channels] = &self.names;
        client.channels.set(channels.len() as u64);
        client.patterns.set(patterns.len() as u64);
        client.shard_channels.set(shard_channels.len() as u64);
        client.subscribed_bytes.set(self.bytes as u64);
        let class = if self.is_empty() { OutputClass::Normal } else { OutputClass::Pubsub };
        client.set_output_class(class);
    }
}

impl Session {
    /// The names that the client has subscribed to, in order.
    pub(crate) fn subscribed(&self, kind: Kind) -> Vec<Arc<[u8]>> {
        let subscriptions = self.subscriptions.iter();
        subscriptions.flat_map(|subscriptions| subscriptions.names[kind as usize].iter().cloned()).collect()
    }

    /// The number in the confirmations of subscriptions of this kind: channels and patterns are counted together.
    pub(crate) fn subscriptions_counted_with(&self, kind: Kind) -> usize {
        let count = |kind: Kind| {
            self.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.names[kind as usize].len())
        };
        match kind {
            Kind::Channel | Kind::Pattern => count(Kind::Channel) + count(Kind::Pattern),
            Kind::ShardChannel => count(Kind::ShardChannel),
        }
    }
}
