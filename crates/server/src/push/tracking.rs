//! Client-side caching: clients are told when keys change that they keep copies of
//! (`CLIENT TRACKING`).
//!
//! ```text
//! by keys read    stripe's table (the engine's) ─▶ one push per reader of the changed key
//! by prefix       prefix ─▶ clients            ─▶ one push per prefix and client, with all keys since the last was sent
//!
//! push ─▶ queue of the tracking client, or of the client it redirects to
//! ```
//!
//! Pushes are queued while what has changed is still locked, and written before any reply leaves that can have seen it
//! ([`dunlin_net::ClientPushes`]). Such pushes wait for no commitment: a copy that is forgotten too early does no harm.
//! A client that tracks nothing costs its commands one look at a flag.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Instant,
};

use dunlin_engine::keyspace::Invalidation;
use dunlin_net::{Client, Commitment, Push, PushList, Pushed, WorkerQueues};
use dunlin_resp::{Protocol, ReplyBuffer};

use crate::workers::blocked;

/// The head of the array of keys in what a client is told.
fn head(protocol: Protocol) -> &'static [u8] {
    match protocol {
        Protocol::Resp3 => b">2\r\n$10\r\ninvalidate\r\n",
        Protocol::Resp2 => b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n",
    }
}

/// A change.
#[derive(Debug)]
struct Invalidated {
    /// `None` for all keys.
    keys: Option<Arc<Vec<Box<[u8]>>>>,
    /// Why clients are told: those told for different reasons are told separately.
    prefix: Option<Arc<[u8]>>,
    /// The client that has changed them, 0 for none.
    writer: u64,
    /// Encoded for clients that have read a key, by protocol.
    encoded: [OnceCell<Arc<Vec<u8>>>; 2],
}

impl Invalidated {
    fn new(keys: Option<Vec<Box<[u8]>>>, prefix: Option<Arc<[u8]>>, writer: u64) -> Self {
        Self { keys: keys.map(Arc::new), prefix, writer, encoded: Default::default() }
    }

    fn push(&self, protocol: Protocol) -> Push {
        if let (Some(keys), Some(prefix)) = (&self.keys, &self.prefix) {
            let (group, items) = (Arc::clone(prefix), Arc::clone(keys));
            return Push::List(PushList { head: head(protocol), group, items });
        }
        let encoded = self.encoded[usize::from(protocol == Protocol::Resp3)].get_or_init(|| {
            let mut reply = ReplyBuffer::default();
            reply.set_protocol(protocol);
            reply.raw(head(protocol));
            match &self.keys {
                Some(keys) => {
                    reply.array(keys.len());
                    keys.iter().for_each(|key| reply.bulk(key));
                }
                None => reply.null(),
            }
            Arc::new(reply.into_bytes())
        });
        Push::Bytes(Arc::clone(encoded))
    }
}

/// A client that tracks, as the thread that changes a key needs to know it.
#[derive(Debug)]
pub(crate) struct Tracker {
    pub(crate) client: Arc<Client>,
    pub(crate) is_broadcast: bool,
    pub(crate) no_loop: bool,
    /// The client that is told in its place.
    pub(crate) redirect: Option<Arc<Client>>,
}

impl Tracker {
    /// Tells it of a change, unless it does not want to know.
    fn tell<L>(&self, invalidated: &Invalidated, queues: &WorkerQueues<L>) {
        if invalidated.keys.is_some() {
            let is_own = self.no_loop && invalidated.writer == self.client.id();
            // The client may have changed its mind since it read a key.
            if is_own || invalidated.prefix.is_some() != self.is_broadcast {
                return;
            }
        }
        let Some(target) = &self.redirect else {
            // A client that goes is not told.
            let _: Pushed = queues.push(&self.client, Commitment::default(), |listener| {
                (listener.protocol == Protocol::Resp3).then(|| invalidated.push(Protocol::Resp3))
            });
            return;
        };
        // A client that speaks RESP2 can be told only while it is subscribed.
        let pushed = queues.push(target, Commitment::default(), |listener| {
            let is_able = listener.protocol == Protocol::Resp3 || listener.is_subscribed;
            is_able.then(|| invalidated.push(listener.protocol))
        });
        if pushed == Pushed::Gone {
            self.tell_broken(target.id(), queues);
        }
    }

    #[cold]
    fn tell_broken<L>(&self, target: u64, queues: &WorkerQueues<L>) {
        self.client.broken_redirection.set(1);
        let _: Pushed = queues.push(&self.client, Commitment::default(), |listener| {
            if listener.protocol == Protocol::Resp2 {
                return None;
            }
            let mut reply = ReplyBuffer::default();
            reply.set_protocol(listener.protocol);
            reply.push(2);
            reply.bulk(b"tracking-redir-broken");
            reply.integer(target as i64);
            Some(Push::Bytes(Arc::new(reply.into_bytes())))
        });
    }
}

/// Memory of a prefix beside its text, which stands in two places: the client's own and the one of all.
pub(crate) const PREFIX_BYTES: usize = 128;

/// The clients that track, as far as all workers need to know of them.
#[derive(Debug, Default)]
pub(crate) struct Trackers {
    broadcasts: AtomicUsize,
    by_id: RwLock<HashMap<u64, Arc<Tracker>>>,
    prefixes: RwLock<BTreeMap<Arc<[u8]>, Vec<u64>>>,
    /// Clients that are gone, whose places among the readers of keys the next walk removes.
    gone_clients: Mutex<HashSet<u64>>,
    walk: Mutex<Walk>,
}

/// A walk over the tables of keys that clients cache, which removes clients that are gone.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The clients; none while there is no walk.
    pub(crate) leaving: HashSet<u64>,
    /// The place where it goes on.
    pub(crate) position: (usize, usize),
    /// When it goes on.
    pub(crate) due: Option<Instant>,
}

impl Trackers {
    /// Notes that a client is gone which may have read keys.
    pub(crate) fn depart(&self, client: u64) {
        lock(&self.gone_clients).insert(client);
    }

    /// The walk under way, or one that begins. `None` if another worker is at it, or if no client is gone.
    pub(crate) fn walk(&self) -> Option<MutexGuard<'_, Walk>> {
        let mut walk = self.walk.try_lock().ok()?;
        if walk.leaving.is_empty() {
            walk.leaving = std::mem::take(&mut lock(&self.gone_clients));
            walk.position = (0, 0);
        }
        (!walk.leaving.is_empty()).then_some(walk)
    }

    /// How many clients track.
    pub(crate) fn clients(&self) -> usize {
        read(&self.by_id).len()
    }

    /// The number of prefixes all changes of which some client wants to know.
    pub(crate) fn prefixes(&self) -> usize {
        read(&self.prefixes).len()
    }

    /// Whether a client wants to know of changes of keys that it has not read.
    #[inline]
    pub(crate) fn broadcasts(&self) -> bool {
        self.broadcasts.load(SeqCst) != 0
    }

    pub(crate) fn set(&self, tracker: Tracker) {
        let id = tracker.client.id();
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::new(tracker));
    }

    pub(crate) fn remove(&self, client: u64) {
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).remove(&client);
    }

    pub(crate) fn join(&self, client: u64, added: &[Box<[u8]>]) {
        let mut prefixes = self.prefixes.write().unwrap_or_else(PoisonError::into_inner);
        added.iter().for_each(|prefix| prefixes.entry((&**prefix).into()).or_default().push(client));
        self.broadcasts.store(prefixes.len(), SeqCst);
    }

    pub(crate) fn leave(&self, client: u64, left: &BTreeSet<Box<[u8]>>) {
        let mut prefixes = self.prefixes.write().unwrap_or_else(PoisonError::into_inner);
        for prefix in left {
            if let Some(clients) = prefixes.get_mut(&**prefix) {
                clients.retain(|other| *other != client);
                if clients.is_empty() {
                    prefixes.remove(&**prefix);
                }
            }
        }
        self.broadcasts.store(prefixes.len(), SeqCst);
    }

    /// Tells clients that keep copies what a client has changed (0: none). The changed keys are locked.
    pub(crate) fn tell<'n, L>(
        &self,
        invalidations: impl Iterator<Item = &'n Invalidation>,
        writer: u64,
        queues: &WorkerQueues<L>,
    ) {
        let mut changed = BTreeSet::new();
        for invalidation in invalidations {
            match invalidation {
                Invalidation::Everything => {
                    let invalidated = Invalidated::new(None, None, writer);
                    read(&self.by_id).values().for_each(|tracker| tracker.tell(&invalidated, queues));
                }
                Invalidation::Key { key, readers } => {
                    if !readers.is_empty() {
                        let invalidated = Invalidated::new(Some(vec![key.clone()]), None, writer);
                        let trackers = read(&self.by_id);
                        let trackers =
                            readers.iter().filter_map(|reader| trackers.get(&blocked::address(*reader).id));
                        trackers.for_each(|tracker| tracker.tell(&invalidated, queues));
                    }
                    changed.insert(&**key);
                }
            }
        }
        if self.broadcasts() {
            self.broadcast(&changed, writer, queues);
        }
    }

    /// Tells clients that want to know of all changes of the keys that concern them.
    fn broadcast<L>(&self, changed: &BTreeSet<&[u8]>, writer: u64, queues: &WorkerQueues<L>) {
        for (prefix, clients) in &*read(&self.prefixes) {
            // In order, so those with a prefix stand together.
            let range = (Bound::Included(&**prefix), Bound::Unbounded);
            let concerned = changed.range::<[u8], _>(range).take_while(|key| key.starts_with(prefix));
            let concerned: Vec<Box<[u8]>> = concerned.map(|key| Box::from(*key)).collect();
            if concerned.is_empty() {
                continue;
            }
            let invalidated = Invalidated::new(Some(concerned), Some(Arc::clone(prefix)), writer);
            let trackers = read(&self.by_id);
            let trackers = clients.iter().filter_map(|client| trackers.get(client));
            trackers.for_each(|tracker| tracker.tell(&invalidated, queues));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}
