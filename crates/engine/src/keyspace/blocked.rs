//! Clients that wait for keys: their commands, in the order they came.
//!
//! ```text
//! stripe ─▶ (database, key) ─▶ queue: waiter, waiter, …      first come, first served
//! ```
//!
//! A waiter stands in the queues of all keys that it waits for, in whatever stripes these live, or in none. Entering,
//! serving and withdrawing it happen under the locks of all stripes of its command at once. So a thread that holds one
//! of them knows that the waiter is not being served elsewhere, and no waiter is served twice.
//!
//! A stripe without waiters has no [`Queues`] at all: a writer then pays for one look at a pointer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use dunlin_resp::Protocol;

use super::StripeSet;
use crate::{command::Command, context::Caller, value::ValueType};

/// The host's token of a client: two numbers that mean nothing here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ClientToken(pub u64, pub u64);

/// A client whose command waits for keys.
#[derive(Debug)]
pub struct Waiter {
    /// The issuer of the command.
    pub(crate) caller: Caller,
    /// The protocol of its reply.
    pub protocol: Protocol,
    pub(crate) command: &'static Command,
    /// The words of the command as it was sent.
    pub(crate) words: Vec<Box<[u8]>>,
    /// The words that it is run again with, if values that depended on the moment of the request have been settled.
    pub(crate) settled_words: Option<Vec<Box<[u8]>>>,
    pub(crate) database: usize,
    /// The keys it waits for, without repetitions, each with its stripe.
    pub(crate) keys: Vec<(usize, Box<[u8]>)>,
    /// The stripes of all keys of its command, also of those that it does not wait for.
    pub(crate) stripes: StripeSet,
    /// The type that it waits for.
    pub(crate) value_type: ValueType,
    /// How many elements the value must have.
    pub(crate) elements_min: usize,
    /// Whether it is also to be served when a key goes, or holds another type.
    pub(crate) on_loss: bool,
    /// Whether the client has gone: nothing more is given to it.
    pub(crate) is_gone: AtomicBool,
    /// When its command is to be run again though no key has changed, in Unix milliseconds; [`NEVER`] without. Changed
    /// under the locks that it is served under.
    pub(crate) again_ms: AtomicU64,
}

/// No time.
pub(crate) const NEVER: u64 = u64::MAX;

impl Waiter {
    /// The command that waits, its words as they were sent, and its database.
    pub fn request(&self) -> (&'static Command, Vec<&[u8]>, usize) {
        (self.command, self.words.iter().map(|word| &**word).collect(), self.database)
    }

    /// Its client.
    pub fn client(&self) -> ClientToken {
        self.caller.client
    }

    /// Says that the client has gone, ahead of its withdrawal: locks may be long in coming.
    pub fn leave(&self) {
        self.is_gone.store(true, Relaxed);
    }

    /// When the command is to be run again though no key has changed, in Unix milliseconds
    /// ([`Engine::look_again`](crate::Engine::look_again)).
    pub fn again_ms(&self) -> Option<u64> {
        Some(self.again_ms.load(Relaxed)).filter(|again_ms| *again_ms != NEVER)
    }

    /// The words of the command as it was sent.
    pub fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.words.iter().map(|word| &**word)
    }

    /// Whether the client has gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }
}

/// The waiters for one key, oldest first; never empty.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiters: VecDeque<Arc<Waiter>>,
    /// How many of them want to know of a loss.
    on_loss: usize,
}

impl Queue {
    pub(crate) fn get(&self, at: usize) -> Option<&Arc<Waiter>> {
        self.waiters.get(at)
    }

    /// Whether one of them wants to know of a loss.
    pub(crate) fn has_on_loss(&self) -> bool {
        self.on_loss > 0
    }

    /// How many elements a value of that type must have for a client that waits for it; `None` if none does. O(n) if
    /// waiters want different types or numbers.
    pub(crate) fn elements_wanted(&self, value_type: ValueType) -> Option<usize> {
        let mut least = None;
        for waiter in &self.waiters {
            if waiter.value_type == value_type && !waiter.is_gone() {
                let wanted = least.map_or(waiter.elements_min, |least| waiter.elements_min.min(least));
                least = Some(wanted);
                if wanted <= 1 {
                    break;
                }
            }
        }
        least
    }
}

/// The queues of a stripe; those of a database by its number.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    databases: BTreeMap<usize, BTreeMap<Box<[u8]>, Queue>>,
}

impl Queues {
    /// The clients that wait for a key.
    pub(crate) fn get(&self, database: usize, key: &[u8]) -> Option<&Queue> {
        self.databases.get(&database)?.get(key)
    }

    /// Enters a waiter behind all others.
    pub(crate) fn push(&mut self, key: &[u8], waiter: &Arc<Waiter>) {
        let keys = self.databases.entry(waiter.database).or_default();
        if !keys.contains_key(key) {
            keys.insert(key.into(), Queue::default());
        }
        let queue = keys.get_mut(key).expect("just inserted");
        queue.waiters.push_back(Arc::clone(waiter));
        queue.on_loss += usize::from(waiter.on_loss);
    }

    /// Takes a waiter out. Returns whether it stood there. O(n) for n waiters before it.
    pub(crate) fn remove(&mut self, key: &[u8], waiter: &Arc<Waiter>) -> bool {
        let Some(keys) = self.databases.get_mut(&waiter.database) else { return false };
        let Some(queue) = keys.get_mut(key) else { return false };
        let Some(at) = queue.waiters.iter().position(|other| Arc::ptr_eq(other, waiter)) else {
            return false;
        };
        queue.waiters.remove(at);
        queue.on_loss -= usize::from(waiter.on_loss);
        if queue.waiters.is_empty() {
            keys.remove(key);
            if keys.is_empty() {
                self.databases.remove(&waiter.database);
            }
        }
        true
    }

    /// Whether no client waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.databases.is_empty()
    }

    /// The keys of a database that clients wait for.
    pub(crate) fn keys(&self, database: usize) -> impl Iterator<Item = &[u8]> {
        self.databases.get(&database).into_iter().flat_map(|keys| keys.keys().map(|key| &**key))
    }

    /// How many keys clients wait for, and to how many of the keys' clients a loss matters.
    pub(crate) fn count(&self) -> BlockingKeys {
        let mut count = BlockingKeys::default();
        for queue in self.databases.values().flat_map(BTreeMap::values) {
            count.keys += 1;
            count.on_loss += usize::from(queue.has_on_loss());
        }
        count
    }
}

/// Keys that clients wait for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockingKeys {
    /// All of them.
    pub keys: usize,
    /// Waiters whose clients would learn of their loss, too.
    pub on_loss: usize,
}
