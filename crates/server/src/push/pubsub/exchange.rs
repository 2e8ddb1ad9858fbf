//! [`Exchange`]: who has subscribed to what.
//!
//! ```text
//! channels         STRIPES × lock │ name ─▶ clients
//! shard channels   STRIPES × lock │ name ─▶ clients
//! patterns                   lock │ pattern ─▶ clients
//! ```
//!
//! A publisher holds the lock of its channel's stripe, then that of the patterns for reading, then those of clients'
//! push queues, one by one. A subscriber holds one of the first two kinds.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use dunlin_engine::glob::Glob;
use dunlin_net::{Client, Commitment, Listener, Push, Pushed, WorkerQueues};

use super::{Kind, bus::Bus, message::Message};

/// Locks that the names of channels are spread over.
const STRIPES: usize = 64;

/// The subscribers of one name. Adding and removing are O(1), publishing goes straight through.
#[derive(Debug, Default)]
struct Audience {
    members: Vec<Arc<Client>>,
    /// Places in `members`, by the client's number.
    places: HashMap<u64, usize>,
}

impl Audience {
    fn add(&mut self, client: &Arc<Client>) {
        self.places.insert(client.id(), self.members.len());
        self.members.push(Arc::clone(client));
    }

    fn remove(&mut self, id: u64) {
        let at = self.places.remove(&id).expect("who leaves has joined");
        self.members.swap_remove(at);
        if let Some(moved) = self.members.get(at) {
            self.places.insert(moved.id(), at);
        }
    }
}

type Audiences = HashMap<Arc<[u8]>, Audience>;

/// Adds a subscriber; the name to be shared.
fn join(audiences: &mut Audiences, name: &[u8], client: &Arc<Client>) -> Arc<[u8]> {
    let known = audiences.get_key_value(name).map(|(name, _)| Arc::clone(name));
    let name = known.unwrap_or_else(|| name.into());
    audiences.entry(Arc::clone(&name)).or_default().add(client);
    name
}

/// Takes a subscriber away.
fn leave(audiences: &mut Audiences, name: &[u8], client: u64) {
    let audience = audiences.get_mut(name).expect("who leaves has joined");
    audience.remove(client);
    if audience.members.is_empty() {
        audiences.remove(name);
    }
}

/// The audiences of patterns, and the patterns as they are matched.
#[derive(Debug, Default)]
struct Patterns {
    audiences: Audiences,
    globs: HashMap<Arc<[u8]>, Glob>,
}

impl Patterns {
    fn join(&mut self, pattern: &[u8], client: &Arc<Client>) -> Arc<[u8]> {
        let name = join(&mut self.audiences, pattern, client);
        // The subscription has made sure that it is not too complex.
        let compile = || Glob::new(pattern).unwrap_or(Glob::NOTHING);
        self.globs.entry(Arc::clone(&name)).or_insert_with(compile);
        name
    }

    fn leave(&mut self, pattern: &[u8], client: u64) {
        leave(&mut self.audiences, pattern, client);
        if !self.audiences.contains_key(pattern) {
            self.globs.remove(pattern);
        }
    }

    fn matching(&self, channel: &[u8]) -> impl Iterator<Item = (&Arc<[u8]>, &Audience)> {
        let matching = self.globs.iter().filter(|(_, glob)| glob.matches(channel));
        matching.filter_map(|(pattern, _)| self.audiences.get_key_value(pattern))
    }
}

/// The audiences of a namespace of channels.
#[derive(Debug)]
struct Channels {
    stripes: Box<[Mutex<Audiences>]>,
    hasher: RandomState,
}

impl Channels {
    fn new() -> Self {
        Self { stripes: (0..STRIPES).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }

    fn stripe(&self, name: &[u8]) -> MutexGuard<'_, Audiences> {
        lock(&self.stripes[self.hasher.hash_one(name) as usize % STRIPES])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No critical section here leaves anything half done that others would trip over.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Subscribers by channel, pattern and shard channel.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Subscriptions of all kinds: publishers look no further while it is 0.
    subscriptions: AtomicUsize,
    channels: Channels,
    shard_channels: Channels,
    patterns: RwLock<Patterns>,
    /// Messages for subscribers at other nodes.
    pub(crate) bus: Bus,
}

impl Exchange {
    pub(crate) fn new() -> Self {
        Self {
            subscriptions: AtomicUsize::new(0),
            channels: Channels::new(),
            shard_channels: Channels::new(),
            patterns: RwLock::default(),
            bus: Bus::default(),
        }
    }

    /// Whether any client listens to anything.
    #[inline]
    pub(crate) fn is_heard(&self) -> bool {
        self.subscriptions.load(SeqCst) != 0
    }

    /// Adds a subscriber. The name, to be shared.
    pub(super) fn join(&self, kind: Kind, name: &[u8], client: &Arc<Client>) -> Arc<[u8]> {
        self.subscriptions.fetch_add(1, SeqCst);
        match self.channels(kind) {
            Some(channels) => join(&mut channels.stripe(name), name, client),
            None => self.patterns.write().unwrap_or_else(PoisonError::into_inner).join(name, client),
        }
    }

    /// Takes a subscriber away.
    pub(super) fn leave(&self, kind: Kind, name: &[u8], client: u64) {
        match self.channels(kind) {
            Some(channels) => leave(&mut channels.stripe(name), name, client),
            None => self.patterns.write().unwrap_or_else(PoisonError::into_inner).leave(name, client),
        }
        self.subscriptions.fetch_sub(1, SeqCst);
    }

    /// The namespace of a kind; `None` for patterns.
    fn channels(&self, kind: Kind) -> Option<&Channels> {
        match kind {
            Kind::Pattern => None,
            Kind::Channel => Some(&self.channels),
            Kind::ShardChannel => Some(&self.shard_channels),
        }
    }

    /// The clients with a subscription of a kind that a test of client and name picks. O(subscriptions).
    pub(crate) fn subscribers_where(
        &self,
        kind: Kind,
        is_picked: impl Fn(&Client, &[u8]) -> bool,
    ) -> Vec<Arc<Client>> {
        let pick = |audiences: &Audiences, picked: &mut Vec<Arc<Client>>| {
            for (name, audience) in audiences {
                picked.extend(audience.members.iter().filter(|client| is_picked(client, name)).cloned());
            }
        };
        let mut picked = Vec::new();
        match self.channels(kind) {
            Some(channels) => channels.stripes.iter().for_each(|stripe| pick(&lock(stripe), &mut picked)),
            None => {
                let patterns = self.patterns.read().unwrap_or_else(PoisonError::into_inner);
                pick(&patterns.audiences, &mut picked);
            }
        }
        picked
    }

    /// Publishes to a channel; the message leaves once a commitment is met. Returns how many subscribers there are, one
    /// that the message reaches in two ways counted twice. O(subscribers + patterns).
    pub(crate) fn publish<L>(
        &self,
        kind: Kind,
        channel: &[u8],
        payload: &[u8],
        commitment: Commitment,
        queues: &WorkerQueues<L>,
    ) -> usize {
        self.publish_with(kind, channel, payload, |client, make| {
            // A client that has gone is about to leave.
            let _: Pushed = queues.push(client, commitment, make);
        })
    }

    /// How many subscribers [`Self::publish`] would reach. O(subscribers + patterns).
    pub(crate) fn reach(&self, kind: Kind, channel: &[u8]) -> usize {
        self.publish_with(kind, channel, b"", |_, _| {})
    }

    /// [`Self::publish`]: `push` queues for each subscriber what it is given, in the one order of the channel.
    fn publish_with(
        &self,
        kind: Kind,
        channel: &[u8],
        payload: &[u8],
        push: impl Fn(&Arc<Client>, &mut dyn FnMut(&Listener) -> Option<Push>),
    ) -> usize {
        if !self.is_heard() {
            return 0;
        }
        let send = |audience: &Audience, parts: &[&[u8]]| {
            let mut message = Message::new(parts);
            for member in &audience.members {
                push(member, &mut |listener| {
                    Some(Push::Bytes(Arc::clone(message.encoded(listener.protocol))))
                });
            }
            audience.members.len()
        };
        let (channels, title): (_, &[u8]) = match kind {
            Kind::ShardChannel => (&self.shard_channels, b"smessage"),
            Kind::Channel | Kind::Pattern => (&self.channels, b"message"),
        };
        let stripe = channels.stripe(channel);
        let audience = stripe.get(channel);
        let mut subscribers = audience.map_or(0, |audience| send(audience, &[title, channel, payload]));
        if kind != Kind::ShardChannel {
            let patterns = self.patterns.read().unwrap_or_else(PoisonError::into_inner);
            for (pattern, audience) in patterns.matching(channel) {
                subscribers += send(audience, &[b"pmessage", pattern, channel, payload]);
            }
        }
        subscribers
    }

    /// The names with subscribers that match `pattern`. O(names).
    pub(crate) fn names(&self, kind: Kind, pattern: Option<&Glob>) -> Vec<Arc<[u8]>> {
        let mut names = Vec::new();
        self.visit(kind, |audiences| {
            let wanted = |name: &&Arc<[u8]>| pattern.is_none_or(|pattern| pattern.matches(name));
            names.extend(audiences.keys().filter(wanted).cloned());
        });
        names
    }

    /// How many names have subscribers.
    pub(crate) fn count(&self, kind: Kind) -> usize {
        let mut count = 0;
        self.visit(kind, |audiences| count += audiences.len());
        count
    }

    /// How many subscribers a name has.
    pub(crate) fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        let count = |audiences: &Audiences| audiences.get(name).map_or(0, |audience| audience.members.len());
        match self.channels(kind) {
            Some(channels) => count(&channels.stripe(name)),
            None => count(&self.patterns.read().unwrap_or_else(PoisonError::into_inner).audiences),
        }
    }

    fn visit(&self, kind: Kind, mut visit: impl FnMut(&Audiences)) {
        match self.channels(kind) {
            Some(channels) => channels.stripes.iter().for_each(|stripe| visit(&lock(stripe))),
            None => visit(&self.patterns.read().unwrap_or_else(PoisonError::into_inner).audiences),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use dunlin_resp::Protocol;

    use super::*;
    use dunlin_net::test_client;

    /// Publishes. Returns how many were counted, and which clients were sent what.
    fn publish(exchange: &Exchange, kind: Kind, channel: &str) -> (usize, Vec<(u64, String)>) {
        let sent = RefCell::new(Vec::new());
        let listener = Listener { protocol: Protocol::Resp2, is_subscribed: true };
        let count = exchange.publish_with(kind, channel.as_bytes(), b"payload", |client, make| {
            let Some(Push::Bytes(bytes)) = make(&listener) else { panic!("messages are encoded") };
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            sent.borrow_mut().push((client.id(), text.split("\r\n").nth(2).unwrap().to_owned()));
        });
        let mut sent = sent.into_inner();
        sent.sort_unstable();
        (count, sent)
    }

    #[test]
    fn publish_reaches_subscribers_of_channels_and_patterns_once_for_each() {
        let exchange = Exchange::new();
        assert_eq!(publish(&exchange, Kind::Channel, "news"), (0, vec![]));
        let clients: Vec<_> = (0..4).map(test_client).collect();
        for (kind, name, client) in [
            (Kind::Channel, "news", 2),
            (Kind::Channel, "news", 3),
            (Kind::Pattern, "n*", 0),
            (Kind::Pattern, "*s", 2),
            (Kind::ShardChannel, "news", 1),
        ] {
            exchange.join(kind, name.as_bytes(), &clients[client]);
        }
        let sent = |expected: &[(u64, &str)]| -> Vec<(u64, String)> {
            expected.iter().map(|(client, title)| (*client, (*title).to_owned())).collect()
        };
        let all = sent(&[(0, "pmessage"), (2, "message"), (2, "pmessage"), (3, "message")]);
        assert_eq!(publish(&exchange, Kind::Channel, "news"), (4, all));
        assert_eq!(publish(&exchange, Kind::Channel, "nothing"), (1, sent(&[(0, "pmessage")])));
        assert_eq!(publish(&exchange, Kind::ShardChannel, "news"), (1, sent(&[(1, "smessage")])));
        exchange.leave(Kind::Pattern, b"n*", 0);
        exchange.leave(Kind::Channel, b"news", 2);
        assert_eq!(publish(&exchange, Kind::Channel, "news"), (2, sent(&[(2, "pmessage"), (3, "message")])));
        assert_eq!(exchange.subscribers(Kind::Channel, b"news"), 1);
        exchange.leave(Kind::Channel, b"news", 3);
        assert_eq!((exchange.count(Kind::Channel), exchange.count(Kind::Pattern)), (0, 1));
    }

    #[test]
    fn audience_finds_members_however_others_come_and_go() {
        let mut audience = Audience::default();
        (0..100).for_each(|id| audience.add(&test_client(id)));
        (0..100).filter(|id| id % 3 != 0).for_each(|id| audience.remove(id));
        (200..210).for_each(|id| audience.add(&test_client(id)));
        let mut left: Vec<u64> = audience.members.iter().map(|member| member.id()).collect();
        left.sort_unstable();
        let expected: Vec<u64> = (0..100).step_by(3).chain(200..210).collect();
        assert_eq!(left, expected);
        left.into_iter().for_each(|id| audience.remove(id));
        assert!(audience.members.is_empty() && audience.places.is_empty());
    }
}
