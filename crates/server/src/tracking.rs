//! Client-side caching: clients are told when keys change that they keep copies of
//! (`CLIENT TRACKING`).
//!
//! ```text
//! by keys read    shard's table (the engine's) ─▶ one letter per reader of the changed key
//! by prefix       Broadcasts: prefix ─▶ clients ─▶ one letter per client and turn, with all keys
//!
//! letter ─▶ session of the tracking client ─▶ its output, or a letter to the client it redirects to
//! ```
//!
//! What was changed is told once the turn of the connection that changed it ends, before its
//! replies leave. A client that tracks nothing costs its commands one look at a flag.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use dunlin_engine::keyspace::Invalidation;
use dunlin_resp::{Protocol, ReplyBuffer};

use crate::{
    blocked,
    executor::{Executor, Letter},
    net::Address,
    session::{ClientFlags, Session},
};

/// The channel under which clients that speak RESP2 are told.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// Which of the keys that a client reads are tracked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Choice {
    /// All.
    #[default]
    All,
    /// Those of commands behind `CLIENT CACHING YES`.
    OptIn,
    /// All but those of commands behind `CLIENT CACHING NO`.
    OptOut,
}

/// What `CLIENT TRACKING ON` has asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tracking {
    /// `BCAST`: all changes of keys with these prefixes, read or not.
    pub(crate) prefixes: Option<BTreeSet<Box<[u8]>>>,
    pub(crate) choice: Choice,
    /// `NOLOOP`: not the changes that it makes itself.
    pub(crate) no_loop: bool,
    /// The client that is told in its place, 0 for none.
    pub(crate) redirect: u64,
    /// `CLIENT CACHING` was said, for the next command.
    pub(crate) caching: bool,
    /// The client that it redirects to has gone.
    pub(crate) broken: bool,
}

impl Tracking {
    /// Whether the keys of the next command are to be tracked.
    pub(crate) fn tracks_next(&self) -> bool {
        self.prefixes.is_none()
            && match self.choice {
                Choice::All => true,
                Choice::OptIn => self.caching,
                Choice::OptOut => !self.caching,
            }
    }
}

/// What has changed, on its way to a client that keeps copies.
#[derive(Debug)]
pub(crate) struct Invalidated {
    /// `None` for all keys.
    keys: Option<Vec<Box<[u8]>>>,
    /// The client that has changed them, 0 for none.
    writer: u64,
    /// Whether it is for those who want to know of all changes.
    is_broadcast: bool,
}

impl Invalidated {
    fn write(&self, reply: &mut ReplyBuffer) {
        match reply.protocol() {
            Protocol::Resp3 => {
                reply.push(2);
                reply.bulk(b"invalidate");
            }
            Protocol::Resp2 => {
                reply.array(3);
                reply.bulk(b"message");
                reply.bulk(CHANNEL);
            }
        }
        match &self.keys {
            Some(keys) => {
                reply.array(keys.len());
                keys.iter().for_each(|key| reply.bulk(key));
            }
            None => reply.null(),
        }
    }
}

/// The clients that track, as far as all workers need to know of them.
#[derive(Debug, Default)]
pub(crate) struct Trackers {
    clients: AtomicUsize,
    broadcasts: AtomicUsize,
    prefixes: RwLock<BTreeMap<Box<[u8]>, Vec<Address>>>,
}

impl Trackers {
    /// How many clients track.
    pub(crate) fn clients(&self) -> usize {
        self.clients.load(SeqCst)
    }

    /// How many prefixes somebody wants to know all changes of.
    pub(crate) fn prefixes(&self) -> usize {
        self.prefixes.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether somebody wants to know of changes of keys that he has not read.
    #[inline]
    pub(crate) fn broadcasts(&self) -> bool {
        self.broadcasts.load(SeqCst) != 0
    }

    fn join(&self, client: Address, added: &[Box<[u8]>]) {
        let mut prefixes = self.prefixes.write().unwrap_or_else(PoisonError::into_inner);
        added.iter().for_each(|prefix| prefixes.entry(prefix.clone()).or_default().push(client));
        self.broadcasts.store(prefixes.len(), SeqCst);
    }

    fn leave(&self, client: Address, left: &BTreeSet<Box<[u8]>>) {
        let mut prefixes = self.prefixes.write().unwrap_or_else(PoisonError::into_inner);
        for prefix in left {
            if let Some(clients) = prefixes.get_mut(prefix) {
                clients.retain(|other| *other != client);
                if clients.is_empty() {
                    prefixes.remove(prefix);
                }
            }
        }
        self.broadcasts.store(prefixes.len(), SeqCst);
    }

    /// Sends those who want to know of all changes those that concern them.
    fn broadcast(&self, keys: &BTreeSet<Box<[u8]>>, writer: u64, send: impl Fn(Address, Letter)) {
        for (prefix, clients) in &*self.prefixes.read().unwrap_or_else(PoisonError::into_inner) {
            // In order, so those with a prefix stand together.
            let concerned = keys.range(prefix.clone()..).take_while(|key| key.starts_with(prefix));
            let concerned: Vec<Box<[u8]>> = concerned.cloned().collect();
            if concerned.is_empty() {
                continue;
            }
            let letter = Arc::new(Invalidated { keys: Some(concerned), writer, is_broadcast: true });
            clients.iter().for_each(|client| send(*client, Letter::Invalidated(Arc::clone(&letter))));
        }
    }
}

impl Executor {
    /// Makes a client track, or track differently. Prefixes that it had already are kept.
    pub(crate) fn track(&mut self, session: &mut Session, mut tracking: Tracking) {
        let trackers = &self.shared.trackers;
        let before = session.tracking.take();
        if before.is_none() {
            trackers.clients.fetch_add(1, SeqCst);
        }
        if let Some(prefixes) = &mut tracking.prefixes {
            let known = before.and_then(|before| before.prefixes).unwrap_or_default();
            let added: Vec<Box<[u8]>> = prefixes.difference(&known).cloned().collect();
            prefixes.extend(known);
            trackers.join(session.client.address, &added);
        }
        session.tracking = Some(Box::new(tracking));
        self.note_tracking(session);
    }

    /// Ends tracking for a client.
    pub(crate) fn stop_tracking(&mut self, session: &mut Session) {
        let Some(tracking) = session.tracking.take() else { return };
        let trackers = &self.shared.trackers;
        if let Some(prefixes) = &tracking.prefixes {
            trackers.leave(session.client.address, prefixes);
        }
        trackers.clients.fetch_sub(1, SeqCst);
        self.note_tracking(session);
    }

    /// Acts on what has changed in how a client tracks.
    pub(crate) fn note_tracking(&mut self, session: &mut Session) {
        let tracking = session.tracking.as_deref();
        self.environment.tracks = tracking.is_some_and(Tracking::tracks_next);
        session.client.redirection.set(tracking.map_or(0, |tracking| tracking.redirect + 1));
        let broadcasts = tracking.is_some_and(|tracking| tracking.prefixes.is_some());
        let broken = tracking.is_some_and(|tracking| tracking.broken);
        session.flags.set(ClientFlags::TRACKING, tracking.is_some());
        session.flags.set(ClientFlags::BROADCAST, broadcasts);
        session.flags.set(ClientFlags::BROKEN_REDIRECT, broken);
    }

    /// Forgets keys that clients keep copies of where there are more than `tracking-table-max-keys`.
    pub(crate) fn limit_tracked(&mut self) {
        let keys_max = self.config.config().tracking_table_max_keys as usize;
        let keyspace = &self.shared.engine.keyspace;
        if keys_max == 0 || keyspace.tracked().0 <= keys_max {
            return;
        }
        // Where a script holds a part of it, that can wait.
        let inside = keyspace.enter_unless_long(self.worker.id());
        if inside.is_none() || keyspace.is_held_for_long() {
            return;
        }
        for shard in keyspace.shards() {
            self.shared.engine.limit_tracked(shard, keys_max, &mut self.worker);
        }
    }

    /// Tells those who keep copies what has changed since this was last called; `writer` is who has
    /// changed it, 0 for nobody.
    #[cold]
    pub(crate) fn tell_invalidations(&mut self, writer: u64) {
        let trackers = &self.shared.trackers;
        let mut changed = BTreeSet::new();
        for invalidation in self.worker.invalidations.drain(..) {
            match invalidation {
                Invalidation::Everything if trackers.clients() == 0 => {}
                Invalidation::Everything => {
                    let letter = Invalidated { keys: None, writer, is_broadcast: false };
                    self.post.send_to_everyone(Letter::Invalidated(Arc::new(letter)));
                }
                Invalidation::Key { key, readers } => {
                    if !readers.is_empty() {
                        let keys = Some(vec![key.clone()]);
                        let letter = Arc::new(Invalidated { keys, writer, is_broadcast: false });
                        for reader in readers {
                            let letter = Letter::Invalidated(Arc::clone(&letter));
                            self.post.send(blocked::address(reader), letter);
                        }
                    }
                    changed.insert(key);
                }
            }
        }
        if trackers.broadcasts() {
            trackers.broadcast(&changed, writer, |client, letter| self.post.send(client, letter));
        }
    }

    /// Hands a client what has changed, or the client that it redirects to.
    pub(crate) fn deliver_invalidated(
        &self,
        session: &mut Session,
        invalidated: &Arc<Invalidated>,
        reply: &mut ReplyBuffer,
    ) {
        let Some(tracking) = &mut session.tracking else { return };
        if invalidated.keys.is_some() {
            let own = tracking.no_loop && invalidated.writer == session.client.id();
            // It may have changed its mind since the letter was sent.
            if own || invalidated.is_broadcast != tracking.prefixes.is_some() {
                return;
            }
        }
        reply.set_protocol(session.protocol);
        if tracking.redirect == 0 {
            if session.protocol == Protocol::Resp3 {
                invalidated.write(reply);
            }
        } else if let Some(other) = self.clients().find(tracking.redirect) {
            self.post.send(other.address, Letter::Redirected(Arc::clone(invalidated)));
        } else {
            tracking.broken = true;
            session.flags.set(ClientFlags::BROKEN_REDIRECT, true);
            session.publish();
            if session.protocol == Protocol::Resp3 {
                reply.push(2);
                reply.bulk(b"tracking-redir-broken");
                reply.integer(session.tracking.as_ref().map_or(0, |tracking| tracking.redirect as i64));
            }
        }
    }

    /// Hands a client what has changed in place of another.
    pub(crate) fn deliver_redirected(session: &Session, invalidated: &Invalidated, reply: &mut ReplyBuffer) {
        reply.set_protocol(session.protocol);
        // Who speaks RESP2 can be told only while he listens to messages.
        if session.protocol == Protocol::Resp3 || session.subscriptions.is_some() {
            invalidated.write(reply);
        }
    }
}
