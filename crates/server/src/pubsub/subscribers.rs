//! [`Subscribers`]: the clients of one worker by what they have subscribed to; [`Subscriptions`]: the
//! same from a client's side.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{Exchange, Kind, Message};
use crate::{
    net::{Address, Client, Outbox, OutputClass},
    session::Session,
};

/// A subscription as its worker sees it.
#[derive(Debug, Clone, Copy)]
struct Member {
    client: Address,
    /// The number of the first message that it gets.
    since: u64,
}

/// The subscribers of one name. Adding and removing are O(1), delivery goes straight through.
#[derive(Debug, Default)]
struct Group {
    members: Vec<Member>,
    /// Places in `members`, by the client's number.
    places: HashMap<u64, usize>,
}

impl Group {
    fn add(&mut self, member: Member) {
        self.places.insert(member.client.id, self.members.len());
        self.members.push(member);
    }

    fn remove(&mut self, id: u64) {
        let at = self.places.remove(&id).expect("who leaves has joined");
        self.members.swap_remove(at);
        if let Some(moved) = self.members.get(at) {
            self.places.insert(moved.client.id, at);
        }
    }
}

/// The subscribers among the clients of one worker.
#[derive(Debug)]
pub(crate) struct Subscribers {
    worker: usize,
    /// By [`Kind`].
    groups: [HashMap<Arc<[u8]>, Group>; 3],
}

impl Subscribers {
    pub(crate) fn new(worker: usize) -> Self {
        Self { worker, groups: Default::default() }
    }

    /// Subscribes a client; whether it had not been before.
    pub(crate) fn subscribe(
        &mut self,
        exchange: &Exchange,
        session: &mut Session,
        kind: Kind,
        name: &[u8],
    ) -> bool {
        let subscriptions = session.subscriptions.get_or_insert_default();
        if subscriptions.names[kind as usize].contains(name) {
            return false;
        }
        let (name, since) = exchange.join(kind, name, self.worker);
        subscriptions.names[kind as usize].insert(Arc::clone(&name));
        let member = Member { client: session.client.address, since };
        self.groups[kind as usize].entry(name).or_default().add(member);
        subscriptions.publish(&session.client);
        true
    }

    /// Ends a subscription; whether there was one.
    pub(crate) fn unsubscribe(
        &mut self,
        exchange: &Exchange,
        session: &mut Session,
        kind: Kind,
        name: &[u8],
    ) -> bool {
        let Some(subscriptions) = &mut session.subscriptions else { return false };
        if !subscriptions.names[kind as usize].remove(name) {
            return false;
        }
        exchange.leave(kind, name, self.worker);
        let groups = &mut self.groups[kind as usize];
        let group = groups.get_mut(name).expect("who leaves has joined");
        group.remove(session.client.id());
        if group.members.is_empty() {
            groups.remove(name);
        }
        subscriptions.publish(&session.client);
        if subscriptions.total() == 0 {
            session.subscriptions = None;
        }
        true
    }

    /// Ends all subscriptions of a client.
    pub(crate) fn unsubscribe_all(&mut self, exchange: &Exchange, session: &mut Session) {
        for kind in Kind::ALL {
            for name in Subscriptions::names(session, kind) {
                self.unsubscribe(exchange, session, kind, &name);
            }
        }
    }

    /// Sends a message to all of this worker's clients that it is for.
    pub(crate) fn deliver(&self, exchange: &Exchange, message: &Message, outbox: &mut Outbox<'_, Session>) {
        let each = |kind: Kind, name: &[u8]| {
            let group = self.groups[kind as usize].get(name);
            let members = group.into_iter().flat_map(|group| group.members.iter());
            members.filter(|member| member.since <= message.sequence)
        };
        for member in each(message.kind, &message.channel) {
            if let Some(mut client) = outbox.client(member.client) {
                let protocol = client.session().protocol;
                client.push(message.to_channel(protocol));
            }
        }
        for matched in &message.matches {
            for member in each(Kind::Pattern, &matched.pattern) {
                if let Some(mut client) = outbox.client(member.client) {
                    let protocol = client.session().protocol;
                    client.push(message.to_pattern(matched, protocol));
                }
            }
        }
        exchange.delivered(self.worker, message);
    }
}

/// What one client has subscribed to.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    /// By [`Kind`].
    names: [BTreeSet<Arc<[u8]>>; 3],
}

impl Subscriptions {
    /// What a client has subscribed to, in order.
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
        let class = if self.total() == 0 { OutputClass::Normal } else { OutputClass::Pubsub };
        client.set_output_class(class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_however_others_come_and_go() {
        let mut group = Group::default();
        let member = |id| Member { client: Address { id, worker: 0, slot: id as u32 }, since: 0 };
        (0..100).for_each(|id| group.add(member(id)));
        (0..100).filter(|id| id % 3 != 0).for_each(|id| group.remove(id));
        (200..210).for_each(|id| group.add(member(id)));
        let mut left: Vec<u64> = group.members.iter().map(|member| member.client.id).collect();
        left.sort_unstable();
        let expected: Vec<u64> = (0..100).step_by(3).chain(200..210).collect();
        assert_eq!(left, expected);
        left.into_iter().for_each(|id| group.remove(id));
        assert!(group.members.is_empty() && group.places.is_empty());
    }
}
