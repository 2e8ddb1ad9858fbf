//! Locked stripes: the holder of the locks, and the way to the state that they guard.
//!
//! [`Locked`] owns the locks and gives them back when dropped. [`LockedStripes`] borrows it, all of
//! it, for one command after the other: it is two words, so contexts carry it about by value.

use std::{collections::HashSet, sync::atomic::Ordering::Relaxed};

use super::{
    ClientToken, Keyspace, Ranking, StripeSet,
    gate::Closed,
    stripe::{Stripe, StripeState},
};
use crate::{context::Garbage, rdb};

/// Small enough for registers, since nearly every command holds one: a set of stripes is 128 bytes.
#[derive(Debug)]
enum Held<'k> {
    One(usize),
    Set(Box<StripeSet>),
    All(Closed<'k>),
}

impl Held<'_> {
    #[inline]
    fn has(&self, stripe: usize) -> bool {
        match self {
            Self::One(one) => *one == stripe,
            Self::Set(set) => set.contains(stripe),
            Self::All(_) => true,
        }
    }
}

/// The locks of some stripes, or the closed gate in place of all of them.
#[derive(Debug)]
pub struct Locked<'k> {
    keyspace: &'k Keyspace,
    held: Held<'k>,
}

impl<'k> Locked<'k> {
    /// The holder of one stripe's lock, which has been taken.
    #[inline]
    pub(super) fn one(keyspace: &'k Keyspace, stripe: usize) -> Self {
        Self { keyspace, held: Held::One(stripe) }
    }

    /// The holder of the locks of a set, which have been taken.
    #[inline]
    pub(super) fn set(keyspace: &'k Keyspace, stripes: StripeSet) -> Self {
        Self { keyspace, held: Held::Set(Box::new(stripes)) }
    }

    /// The holder of all stripes: no other thread is inside the gate.
    pub(super) fn all(keyspace: &'k Keyspace, closed: Closed<'k>) -> Self {
        Self { keyspace, held: Held::All(closed) }
    }

    /// The keyspace.
    #[inline]
    pub fn keyspace(&self) -> &'k Keyspace {
        self.keyspace
    }

    /// Says that the locks will be held for long by a participant of the gate: others do not wait for
    /// them if they can do something else.
    pub(crate) fn mark_long(&self, participant: usize) {
        let stripes = &self.keyspace.stripes;
        match &self.held {
            Held::One(stripe) => stripes[*stripe].mark_long(),
            Held::Set(set) => set.iter().for_each(|stripe| stripes[stripe].mark_long()),
            Held::All(closed) => return closed.mark_long(),
        }
        self.keyspace.gate.mark_inside(participant, true);
    }

    /// Gives the locks back. Mostly there is one, and nothing else to drop.
    #[inline]
    pub(crate) fn release(self) {
        if let Held::One(stripe) = self.held {
            self.keyspace.stripes[stripe].unlock();
            std::mem::forget(self);
        }
    }

    /// Keys of these slots are another server's from now on: transactions whose clients watch one must not happen.
    ///
    /// # Panics
    /// Unless the gate is closed.
    pub fn mark_moved(&self, is_gone: impl Fn(u16) -> bool) {
        let stripes = self.keyspace.stripes();
        stripes
            .filter_map(|stripe| self.stripe(stripe).watches())
            .for_each(|watches| watches.moved(&is_gone));
    }

    /// Whether the closed gate stands for all locks.
    pub(crate) fn is_everything(&self) -> bool {
        matches!(self.held, Held::All(_))
    }

    /// The state of a locked stripe.
    ///
    /// # Panics
    /// When the stripe is not locked: a command whose key specification lies.
    #[inline]
    pub(crate) fn stripe(&self, stripe: usize) -> &StripeState {
        assert!(self.held.has(stripe), "stripe {stripe} is not locked");
        // SAFETY: the lock is held by self (or the gate is closed), and `&self` keeps
        // `LockedStripes` from existing meanwhile.
        unsafe { self.keyspace.stripes[stripe].state() }
    }

    /// Whether all of a set are locked.
    pub(crate) fn holds(&self, stripes: &StripeSet) -> bool {
        match &self.held {
            Held::One(one) => stripes.iter().all(|stripe| stripe == *one),
            Held::Set(set) => set.contains_all(stripes),
            Held::All(_) => true,
        }
    }

    /// Locks a set of stripes as well, unless one of them is taken: it does not wait, because that would be out of
    /// order. Returns whether all of them are locked now.
    pub(crate) fn extend(&mut self, stripes: &StripeSet) -> bool {
        let mut all = match &self.held {
            Held::All(_) => return true,
            Held::Set(set) => **set,
            Held::One(one) => {
                let mut set = StripeSet::EMPTY;
                set.insert(*one);
                set
            }
        };
        for stripe in stripes.iter() {
            if all.contains(stripe) {
                continue;
            }
            if !self.keyspace.stripes[stripe].try_lock() {
                return false;
            }
            all.insert(stripe);
            // At once, so that it is given back with the others.
            self.held = Held::Set(Box::new(all));
        }
        true
    }

    /// The locked stripes, to be changed.
    #[inline]
    pub(crate) fn stripes(&mut self) -> LockedStripes<'_> {
        LockedStripes { keyspace: self.keyspace, held: &self.held }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        match &self.held {
            Held::One(stripe) => self.keyspace.stripes[*stripe].unlock(),
            Held::Set(stripes) => stripes.iter().for_each(|stripe| self.keyspace.stripes[stripe].unlock()),
            Held::All(_) => {}
        }
    }
}

/// The stripes that a [`Locked`] holds, borrowed mutably from it: there is one at a time.
#[derive(Debug)]
pub(crate) struct LockedStripes<'a> {
    keyspace: &'a Keyspace,
    held: &'a Held<'a>,
}

impl<'a> LockedStripes<'a> {
    /// Whether the closed gate stands for all locks.
    pub(crate) fn is_everything(&self) -> bool {
        matches!(self.held, Held::All(_))
    }

    /// The keyspace.
    #[inline]
    pub(crate) fn keyspace(&self) -> &'a Keyspace {
        self.keyspace
    }

    #[inline]
    fn locked(&self, stripe: usize) -> &'a Stripe {
        assert!(self.held.has(stripe), "stripe {stripe} is not locked");
        &self.keyspace.stripes[stripe]
    }

    /// The state of a locked stripe.
    ///
    /// # Panics
    /// When the stripe is not locked: a command whose key specification lies.
    #[inline]
    pub(crate) fn stripe(&self, stripe: usize) -> &StripeState {
        // SAFETY: the stripe is locked, and `&self` keeps `stripe_mut` from being called meanwhile.
        unsafe { self.locked(stripe).state() }
    }

    /// The state of a locked stripe, to be changed.
    ///
    /// # Panics
    /// As [`Self::stripe`].
    #[inline]
    pub(crate) fn stripe_mut(&mut self, stripe: usize) -> &mut StripeState {
        // SAFETY: the stripe is locked, and `&mut self` makes this the only reference.
        unsafe { self.locked(stripe).state_mut() }
    }

    /// Notes that a client keeps a copy of a key of a locked stripe.
    pub(crate) fn track(&mut self, stripe: usize, key: &[u8], client: ClientToken) {
        let (new_key, new_reader) = self.stripe_mut(stripe).track(key, client);
        self.keyspace.tracked[0].fetch_add(new_key.into(), Relaxed);
        self.keyspace.tracked[1].fetch_add(new_reader.into(), Relaxed);
        self.keyspace.tracked[2].fetch_add(if new_key { key.len() } else { 0 }, Relaxed);
    }

    /// Forgets the clients that keep copies of a key of a locked stripe, and returns them.
    pub(crate) fn untrack(&mut self, stripe: usize, key: &[u8]) -> Option<Vec<ClientToken>> {
        let readers = self.stripe_mut(stripe).untrack(key)?;
        self.keyspace.tracked[0].fetch_sub(1, Relaxed);
        self.keyspace.tracked[1].fetch_sub(readers.len(), Relaxed);
        self.keyspace.tracked[2].fetch_sub(key.len(), Relaxed);
        Some(readers)
    }

    /// Forgets any one key of a locked stripe that clients keep copies of; returns the key and these clients.
    pub(crate) fn untrack_any(&mut self, stripe: usize) -> Option<(Box<[u8]>, Vec<ClientToken>)> {
        let key = self.stripe(stripe).any_tracked()?;
        let readers = self.untrack(stripe, &key)?;
        Some((key, readers))
    }

    /// Forgets clients that are gone in one part of the keys of a locked stripe that clients keep copies of.
    pub(crate) fn untrack_clients(&mut self, stripe: usize, part: usize, gone: &HashSet<u64>) {
        let forgotten = self.stripe_mut(stripe).untrack_clients(part, gone);
        self.note_untracked(forgotten);
    }

    /// Forgets all keys of a locked stripe that clients keep copies of.
    pub(crate) fn untrack_all(&mut self, stripe: usize) {
        let forgotten = self.stripe_mut(stripe).untrack_all();
        self.note_untracked(forgotten);
    }

    fn note_untracked(&self, (keys, readers, names): (usize, usize, usize)) {
        self.keyspace.tracked[0].fetch_sub(keys, Relaxed);
        self.keyspace.tracked[1].fetch_sub(readers, Relaxed);
        self.keyspace.tracked[2].fetch_sub(names, Relaxed);
    }

    /// Stores a value that was read from a file, unless its key is there: then there is no buffer to give back
    /// ([`rdb::Value::store`]). Told are when it expires, how many seconds ago it was used, and the time on the clock
    /// in milliseconds.
    pub(crate) fn load(
        &mut self,
        database: usize,
        key: &[u8],
        value: rdb::Value,
        (expiry_ms, idle_seconds, now_ms): (Option<u64>, u64, u64),
    ) -> Option<Vec<u8>> {
        let key = self.keyspace.key(key);
        let clock = self.keyspace.access_clock();
        let touch = clock.access(now_ms).one(|| 0);
        let (part, new) = self.stripe_mut(key.stripe).database_or_new(database);
        if part.find(key.hash, key.bytes).is_some() {
            return None;
        }
        let mut replaced = Garbage::default();
        let (_, buffer) = value.store(|value| {
            part.put((key.hash, key.bytes), None, value, expiry_ms, (now_ms, touch), &mut replaced);
        });
        if idle_seconds > 0
            && clock.ranking() != Ranking::Frequency
            && let Some(slot) = part.find(key.hash, key.bytes)
        {
            part.entry(slot).set_access(clock.stamp_of_age(idle_seconds.saturating_mul(1000), now_ms));
        }
        if new {
            self.publish_new(key.stripe, database);
        }
        self.publish_usage(key.stripe, database);
        Some(buffer)
    }

    /// Publishes how much memory the stripe uses, after a change in `database`.
    #[inline]
    pub(crate) fn publish_usage(&mut self, stripe: usize, database: usize) {
        let (bytes, database_bytes) = self.stripe_mut(stripe).measure(database);
        self.locked(stripe).set_used_bytes(bytes, database, database_bytes);
    }

    /// Publishes a database that has just been created to prefetching.
    pub(crate) fn publish_new(&mut self, stripe: usize, database: usize) {
        // SAFETY: the stripe is locked, and the database was not published before.
        unsafe { self.locked(stripe).publish(database) };
    }

    /// Lets the tables of a stripe give up the memory they no longer need.
    pub(crate) fn release_spare(&mut self, stripe: usize) {
        assert!(matches!(self.held, Held::All(_)));
        // SAFETY: no thread prefetches behind the closed gate.
        unsafe { self.stripe_mut(stripe).release_spare() };
        for database in 0..self.keyspace.databases() {
            self.publish_usage(stripe, database);
        }
    }

    /// Publishes a database that was replaced to prefetching and statistics.
    pub(crate) fn publish_database(&mut self, stripe: usize, database: usize) {
        assert!(matches!(self.held, Held::All(_)));
        // SAFETY: the gate is closed.
        unsafe { self.locked(stripe).publish(database) };
        let state = self.stripe(stripe);
        let database_bytes = state.database(database).map_or(0, |part| part.measured_bytes());
        self.locked(stripe).set_used_bytes(state.used_bytes(), database, database_bytes);
    }
}
