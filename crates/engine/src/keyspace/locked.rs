//! Locked shards: who holds the locks, and the way to what they guard.
//!
//! [`Locked`] owns the locks and gives them back when dropped. [`LockedShards`] borrows it, all of
//! it, for one command after the other: it is two words, so contexts carry it about by value.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    ClientToken, Keyspace, ShardSet, access_clock_ago,
    gate::Closed,
    shard::{Shard, ShardState},
};
use crate::{context::Garbage, rdb};

/// Small enough for registers, since nearly every command holds one: a set of shards is 128 bytes.
#[derive(Debug)]
enum Held<'k> {
    One(usize),
    Set(Box<ShardSet>),
    All(Closed<'k>),
}

impl Held<'_> {
    #[inline]
    fn has(&self, shard: usize) -> bool {
        match self {
            Self::One(one) => *one == shard,
            Self::Set(set) => set.contains(shard),
            Self::All(_) => true,
        }
    }
}

/// The locks of some shards, or the closed gate in place of all of them.
#[derive(Debug)]
pub struct Locked<'k> {
    keyspace: &'k Keyspace,
    held: Held<'k>,
}

impl<'k> Locked<'k> {
    /// What holds the lock of one shard, which has been taken.
    #[inline]
    pub(super) fn one(keyspace: &'k Keyspace, shard: usize) -> Self {
        Self { keyspace, held: Held::One(shard) }
    }

    /// What holds the locks of a set, which have been taken.
    #[inline]
    pub(super) fn set(keyspace: &'k Keyspace, shards: ShardSet) -> Self {
        Self { keyspace, held: Held::Set(Box::new(shards)) }
    }

    /// What stands for all locks: nobody else is inside the gate.
    pub(super) fn all(keyspace: &'k Keyspace, closed: Closed<'k>) -> Self {
        Self { keyspace, held: Held::All(closed) }
    }

    /// The keyspace.
    #[inline]
    pub fn keyspace(&self) -> &'k Keyspace {
        self.keyspace
    }

    /// Says that the locks will be held for long by a participant of the gate: others do not wait for
    /// them where they can do something else.
    pub(crate) fn mark_long(&self, participant: usize) {
        let shards = &self.keyspace.shards;
        match &self.held {
            Held::One(shard) => shards[*shard].mark_long(),
            Held::Set(set) => set.iter().for_each(|shard| shards[shard].mark_long()),
            Held::All(closed) => return closed.mark_long(),
        }
        self.keyspace.gate.mark_inside(participant, true);
    }

    /// Gives the locks back. Mostly there is one, and nothing else to drop.
    #[inline]
    pub(crate) fn release(self) {
        if let Held::One(shard) = self.held {
            self.keyspace.shards[shard].unlock();
            std::mem::forget(self);
        }
    }

    /// Whether the closed gate stands for all locks.
    pub(crate) fn is_everything(&self) -> bool {
        matches!(self.held, Held::All(_))
    }

    /// The state of a locked shard.
    ///
    /// # Panics
    /// When the shard is not locked: a command whose key specification lies.
    #[inline]
    pub(crate) fn shard(&self, shard: usize) -> &ShardState {
        assert!(self.held.has(shard), "shard {shard} is not locked");
        // SAFETY: the lock is held by self (or the gate is closed), and `&self` keeps
        // `LockedShards` from existing meanwhile.
        unsafe { self.keyspace.shards[shard].state() }
    }

    /// Whether all of a set are locked.
    pub(crate) fn holds(&self, shards: &ShardSet) -> bool {
        match &self.held {
            Held::One(one) => shards.iter().all(|shard| shard == *one),
            Held::Set(set) => set.contains_all(shards),
            Held::All(_) => true,
        }
    }

    /// Locks a set of shards as well, unless one of them is taken: nobody is waited for, because that
    /// would be out of order. Whether all of them are locked now.
    pub(crate) fn extend(&mut self, shards: &ShardSet) -> bool {
        let mut all = match &self.held {
            Held::All(_) => return true,
            Held::Set(set) => **set,
            Held::One(one) => {
                let mut set = ShardSet::EMPTY;
                set.insert(*one);
                set
            }
        };
        for shard in shards.iter() {
            if all.contains(shard) {
                continue;
            }
            if !self.keyspace.shards[shard].try_lock() {
                return false;
            }
            all.insert(shard);
            // At once, so that it is given back with the others.
            self.held = Held::Set(Box::new(all));
        }
        true
    }

    /// The locked shards, to be changed.
    #[inline]
    pub(crate) fn shards(&mut self) -> LockedShards<'_> {
        LockedShards { keyspace: self.keyspace, held: &self.held }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        match &self.held {
            Held::One(shard) => self.keyspace.shards[*shard].unlock(),
            Held::Set(shards) => shards.iter().for_each(|shard| self.keyspace.shards[shard].unlock()),
            Held::All(_) => {}
        }
    }
}

/// The shards that a [`Locked`] holds, borrowed mutably from it: there is one at a time.
#[derive(Debug)]
pub(crate) struct LockedShards<'a> {
    keyspace: &'a Keyspace,
    held: &'a Held<'a>,
}

impl<'a> LockedShards<'a> {
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
    fn locked(&self, shard: usize) -> &'a Shard {
        assert!(self.held.has(shard), "shard {shard} is not locked");
        &self.keyspace.shards[shard]
    }

    /// The state of a locked shard.
    ///
    /// # Panics
    /// When the shard is not locked: a command whose key specification lies.
    #[inline]
    pub(crate) fn shard(&self, shard: usize) -> &ShardState {
        // SAFETY: the shard is locked, and `&self` keeps `shard_mut` from being called meanwhile.
        unsafe { self.locked(shard).state() }
    }

    /// The state of a locked shard, to be changed.
    ///
    /// # Panics
    /// As [`Self::shard`].
    #[inline]
    pub(crate) fn shard_mut(&mut self, shard: usize) -> &mut ShardState {
        // SAFETY: the shard is locked, and `&mut self` makes this the only reference.
        unsafe { self.locked(shard).state_mut() }
    }

    /// Notes that a client keeps a copy of a key of a locked shard.
    pub(crate) fn track(&mut self, shard: usize, key: &[u8], client: ClientToken) {
        let (new_key, new_reader) = self.shard_mut(shard).track(key, client);
        self.keyspace.tracked[0].fetch_add(new_key.into(), Relaxed);
        self.keyspace.tracked[1].fetch_add(new_reader.into(), Relaxed);
    }

    /// Forgets who keeps copies of a key of a locked shard: who that was.
    pub(crate) fn untrack(&mut self, shard: usize, key: &[u8]) -> Option<Vec<ClientToken>> {
        let readers = self.shard_mut(shard).untrack(key)?;
        self.keyspace.tracked[0].fetch_sub(1, Relaxed);
        self.keyspace.tracked[1].fetch_sub(readers.len(), Relaxed);
        Some(readers)
    }

    /// Forgets any one key of a locked shard that clients keep copies of: that key, and who that was.
    pub(crate) fn untrack_any(&mut self, shard: usize) -> Option<(Box<[u8]>, Vec<ClientToken>)> {
        let key = self.shard(shard).any_tracked()?;
        let readers = self.untrack(shard, &key)?;
        Some((key, readers))
    }

    /// Forgets all keys of a locked shard that clients keep copies of.
    pub(crate) fn untrack_all(&mut self, shard: usize) {
        let (keys, readers) = self.shard_mut(shard).untrack_all();
        self.keyspace.tracked[0].fetch_sub(keys, Relaxed);
        self.keyspace.tracked[1].fetch_sub(readers, Relaxed);
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
        let (stripe, new) = self.shard_mut(key.shard).database_or_new(database);
        if stripe.find(key.hash, key.bytes).is_some() {
            return None;
        }
        let mut replaced = Garbage::default();
        let (_, buffer) = value.store(|value| {
            stripe.put((key.hash, key.bytes), None, value, expiry_ms, now_ms, &mut replaced);
        });
        if idle_seconds > 0
            && let Some(slot) = stripe.find(key.hash, key.bytes)
        {
            stripe.entry(slot).touch(access_clock_ago(now_ms, idle_seconds));
        }
        if new {
            self.publish_new(key.shard, database);
        }
        self.publish_usage(key.shard, database);
        Some(buffer)
    }

    /// Tells everyone how much memory the shard uses, after a change in `database`.
    #[inline]
    pub(crate) fn publish_usage(&mut self, shard: usize, database: usize) {
        let bytes = self.shard_mut(shard).measure(database);
        self.locked(shard).set_used_bytes(bytes);
    }

    /// Tells prefetching about a database that has just been created.
    pub(crate) fn publish_new(&mut self, shard: usize, database: usize) {
        // SAFETY: the shard is locked, and the database was not published before.
        unsafe { self.locked(shard).publish(database) };
    }

    /// Lets the tables of a shard give up the memory they no longer need.
    pub(crate) fn release_spare(&mut self, shard: usize) {
        assert!(matches!(self.held, Held::All(_)));
        // SAFETY: nobody prefetches behind the closed gate.
        unsafe { self.shard_mut(shard).release_spare() };
        for database in 0..self.keyspace.databases() {
            self.publish_usage(shard, database);
        }
    }

    /// Tells prefetching and statistics about a database that was replaced.
    pub(crate) fn publish_database(&mut self, shard: usize, database: usize) {
        assert!(matches!(self.held, Held::All(_)));
        // SAFETY: the gate is closed.
        unsafe { self.locked(shard).publish(database) };
        let bytes = self.shard(shard).used_bytes();
        self.locked(shard).set_used_bytes(bytes);
    }
}
