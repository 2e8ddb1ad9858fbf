//! [`Exchange`]: what all workers know of subscriptions.
//!
//! ```text
//! channels         STRIPES × lock │ name ─▶ [(worker, subscribers)]
//! shard channels   STRIPES × lock │ name ─▶ [(worker, subscribers)]
//! patterns                   lock │ pattern ─▶ [(worker, subscribers)]
//! ```
//!
//! A publisher holds the lock of its channel's stripe, then that of the patterns for reading, then
//! those of mailboxes, one by one. Who subscribes holds one of the first two kinds. The number of a
//! message is drawn under those locks, so that a subscription knows which messages it missed.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use dunlin_engine::glob::Glob;

use super::{
    Kind,
    message::{Match, Message},
};

/// Locks that the names of channels are spread over.
const STRIPES: usize = 64;
/// Bytes of messages under way to one worker above which publishers wait.
const BACKLOG_BYTES_MAX: usize = 1024 * 1024;

/// A worker that the message goes to is behind: try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backlogged;

/// How many subscribers each worker has; workers without one are left out.
#[derive(Debug, Default)]
struct Audience(Vec<(usize, usize)>);

impl Audience {
    fn total(&self) -> usize {
        self.0.iter().map(|(_, subscribers)| subscribers).sum()
    }

    fn workers(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().map(|(worker, _)| *worker)
    }

    fn join(&mut self, worker: usize) {
        match self.0.iter_mut().find(|(known, _)| *known == worker) {
            Some((_, subscribers)) => *subscribers += 1,
            None => self.0.push((worker, 1)),
        }
    }

    fn leave(&mut self, worker: usize) {
        let known = self.0.iter().position(|(known, _)| *known == worker);
        let at = known.expect("who leaves has joined");
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0.swap_remove(at);
        }
    }
}

type Audiences = HashMap<Arc<[u8]>, Audience>;

/// Adds a subscriber; the name to be shared.
fn join(audiences: &mut Audiences, name: &[u8], worker: usize) -> Arc<[u8]> {
    if let Some((name, _)) = audiences.get_key_value(name) {
        let name = Arc::clone(name);
        audiences.get_mut(&name).expect("it was just there").join(worker);
        return name;
    }
    let name: Arc<[u8]> = name.into();
    audiences.entry(Arc::clone(&name)).or_default().join(worker);
    name
}

/// Takes a subscriber away.
fn leave(audiences: &mut Audiences, name: &[u8], worker: usize) {
    let audience = audiences.get_mut(name).expect("who leaves has joined");
    audience.leave(worker);
    if audience.0.is_empty() {
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
    fn join(&mut self, pattern: &[u8], worker: usize) -> Arc<[u8]> {
        let name = join(&mut self.audiences, pattern, worker);
        // Who subscribes has made sure that it is not too complex.
        let compile = || Glob::new(pattern).unwrap_or(Glob::NOTHING);
        self.globs.entry(Arc::clone(&name)).or_insert_with(compile);
        name
    }

    fn leave(&mut self, pattern: &[u8], worker: usize) {
        leave(&mut self.audiences, pattern, worker);
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

/// Bytes under way to a worker, on cache lines of their own: publishers add, the worker takes.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Backlog(AtomicUsize);

/// What all workers know of subscriptions.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The number of the next message.
    sequence: AtomicU64,
    /// Subscriptions of all kinds: nobody looks further while there is none.
    subscriptions: AtomicUsize,
    channels: Channels,
    shard_channels: Channels,
    patterns: RwLock<Patterns>,
    /// By worker.
    backlogs: Box<[Backlog]>,
}

impl Exchange {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            sequence: AtomicU64::new(0),
            subscriptions: AtomicUsize::new(0),
            channels: Channels::new(),
            shard_channels: Channels::new(),
            patterns: RwLock::default(),
            backlogs: (0..workers).map(|_| Backlog::default()).collect(),
        }
    }

    /// Whether anybody listens to anything.
    #[inline]
    pub(crate) fn is_heard(&self) -> bool {
        self.subscriptions.load(SeqCst) != 0
    }

    /// Adds a subscriber of this worker. The name, to be shared, and the number of the first message
    /// that the subscription gets.
    pub(super) fn join(&self, kind: Kind, name: &[u8], worker: usize) -> (Arc<[u8]>, u64) {
        self.subscriptions.fetch_add(1, SeqCst);
        let sequence = || self.sequence.load(SeqCst);
        match self.channels(kind) {
            Some(channels) => {
                let mut stripe = channels.stripe(name);
                (join(&mut stripe, name, worker), sequence())
            }
            None => {
                let mut patterns = self.patterns.write().unwrap_or_else(PoisonError::into_inner);
                (patterns.join(name, worker), sequence())
            }
        }
    }

    /// Takes a subscriber of this worker away.
    pub(super) fn leave(&self, kind: Kind, name: &[u8], worker: usize) {
        match self.channels(kind) {
            Some(channels) => leave(&mut channels.stripe(name), name, worker),
            None => self.patterns.write().unwrap_or_else(PoisonError::into_inner).leave(name, worker),
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

    /// Publishes to a channel: `post` is given each worker with a subscriber once, all in the one
    /// order of the channel. How many subscribers there are, one that the message reaches in two
    /// ways counted twice. With `may_wait`, workers that are far behind are spared.
    pub(crate) fn publish(
        &self,
        kind: Kind,
        channel: &[u8],
        payload: &[u8],
        may_wait: bool,
        mut post: impl FnMut(usize, Arc<Message>),
    ) -> Result<usize, Backlogged> {
        if !self.is_heard() {
            return Ok(0);
        }
        let is_sharded = kind == Kind::ShardChannel;
        let stripe = if is_sharded { &self.shard_channels } else { &self.channels }.stripe(channel);
        let audience = stripe.get_key_value(channel);
        // Held until the letters are posted, or a pattern's subscriber might leave meanwhile.
        let patterns = (!is_sharded).then(|| self.patterns.read().unwrap_or_else(PoisonError::into_inner));
        let matching: Vec<(&Arc<[u8]>, &Audience)> =
            patterns.iter().flat_map(|patterns| patterns.matching(channel)).collect();
        let direct = audience.map(|(_, audience)| audience);
        let all = || direct.into_iter().chain(matching.iter().map(|(_, audience)| *audience));
        let subscribers: usize = all().map(Audience::total).sum();
        if subscribers == 0 {
            return Ok(0);
        }
        let mut workers: Vec<usize> = all().flat_map(Audience::workers).collect();
        workers.sort_unstable();
        workers.dedup();
        if may_wait && workers.iter().any(|worker| self.is_behind(*worker)) {
            return Err(Backlogged);
        }
        let sequence = self.sequence.fetch_add(1, SeqCst);
        let name = audience.map_or_else(|| channel.into(), |(name, _)| Arc::clone(name));
        let matches = matching.iter().map(|(pattern, _)| Match::new(pattern)).collect();
        let message = Arc::new(Message::new(sequence, kind, name, payload, matches));
        for worker in workers {
            self.backlogs[worker].0.fetch_add(message.bytes(), Relaxed);
            post(worker, Arc::clone(&message));
        }
        Ok(subscribers)
    }

    fn is_behind(&self, worker: usize) -> bool {
        self.backlogs[worker].0.load(Relaxed) > BACKLOG_BYTES_MAX
    }

    /// Whether there is a worker that is far behind. O(workers).
    pub(crate) fn is_behind_anywhere(&self) -> bool {
        (0..self.backlogs.len()).any(|worker| self.is_behind(worker))
    }

    /// Notes that a worker has delivered a message.
    pub(super) fn delivered(&self, worker: usize, message: &Message) {
        self.backlogs[worker].0.fetch_sub(message.bytes(), Relaxed);
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
        let count = |audiences: &Audiences| audiences.get(name).map_or(0, Audience::total);
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
    use super::*;

    /// Publishes and tells who was sent what was counted.
    fn publish(exchange: &Exchange, kind: Kind, channel: &str) -> (usize, Vec<usize>) {
        let mut workers = Vec::new();
        let post = |worker, message: Arc<Message>| {
            exchange.delivered(worker, &message);
            workers.push(worker);
        };
        let count = exchange.publish(kind, channel.as_bytes(), b"payload", true, post).unwrap();
        (count, workers)
    }

    #[test]
    fn each_worker_with_a_subscriber_gets_one_letter() {
        let exchange = Exchange::new(3);
        assert_eq!(publish(&exchange, Kind::Channel, "news"), (0, vec![]));
        for (kind, name, worker) in [
            (Kind::Channel, "news", 2),
            (Kind::Channel, "news", 2),
            (Kind::Pattern, "n*", 0),
            (Kind::Pattern, "*s", 2),
            (Kind::ShardChannel, "news", 1),
        ] {
            exchange.join(kind, name.as_bytes(), worker);
        }
        assert_eq!(publish(&exchange, Kind::Channel, "news"), (4, vec![0, 2]));
        assert_eq!(publish(&exchange, Kind::Channel, "nothing"), (1, vec![0]));
        assert_eq!(publish(&exchange, Kind::ShardChannel, "news"), (1, vec![1]));
        exchange.leave(Kind::Pattern, b"n*", 0);
        exchange.leave(Kind::Channel, b"news", 2);
        assert_eq!(publish(&exchange, Kind::Channel, "news"), (2, vec![2]));
        assert_eq!(exchange.subscribers(Kind::Channel, b"news"), 1);
        exchange.leave(Kind::Channel, b"news", 2);
        assert_eq!((exchange.count(Kind::Channel), exchange.count(Kind::Pattern)), (0, 1));
    }

    #[test]
    fn a_subscription_knows_which_messages_it_has_missed() {
        let exchange = Exchange::new(1);
        let (_, first) = exchange.join(Kind::Channel, b"news", 0);
        let mut sequences = Vec::new();
        let mut publish = || {
            exchange.publish(Kind::Channel, b"news", b"", true, |_, message| sequences.push(message.sequence))
        };
        publish().unwrap();
        let (_, second) = exchange.join(Kind::Pattern, b"*", 0);
        publish().unwrap();
        assert_eq!(sequences, [first, second]);
    }

    #[test]
    fn publishers_wait_for_a_worker_that_is_behind() {
        let exchange = Exchange::new(2);
        exchange.join(Kind::Channel, b"news", 1);
        let payload = vec![0; BACKLOG_BYTES_MAX];
        let mut under_way = Vec::new();
        let mut publish = |may_wait| {
            exchange.publish(Kind::Channel, b"news", &payload, may_wait, |_, letter| under_way.push(letter))
        };
        assert_eq!(publish(true), Ok(1), "one message always fits");
        assert_eq!(publish(true), Err(Backlogged));
        assert_eq!(publish(false), Ok(1), "who cannot wait need not");
        under_way.iter().for_each(|message| exchange.delivered(1, message));
        under_way.clear();
        assert_eq!(exchange.publish(Kind::Channel, b"news", b"", true, |_, _| ()), Ok(1));
    }
}
