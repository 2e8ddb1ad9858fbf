//! Keys on their way to another server: commands that would change one of them wait.
//!
//! Invariants:
//! - A key is claimed under the lock of its stripe. A thread that holds that lock knows of all claims of the key.
//! - A claim holds for a name in all databases: a writer of the same name elsewhere waits for nothing, but not for long.
//! - Transactions and scripts do not wait. The claimant compares keys before it removes them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// The claimed keys of a keyspace.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// How many names there are, for a look without the lock.
    count: AtomicUsize,
    names: Mutex<HashMap<Box<[u8]>, usize>>,
}

/// A claim of some keys, while it lives.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Claims>,
    names: Vec<Box<[u8]>>,
}

impl Claims {
    /// Claims keys whose stripes are locked. O(keys).
    pub(super) fn claim<'a>(self: &Arc<Self>, keys: impl Iterator<Item = &'a [u8]>) -> Claim {
        let names: Vec<Box<[u8]>> = keys.map(Box::from).collect();
        let mut claimed = self.lock();
        names.iter().for_each(|name| *claimed.entry(name.clone()).or_default() += 1);
        self.count.store(claimed.len(), Relaxed);
        drop(claimed);
        Claim { claims: Arc::clone(self), names }
    }

    /// Whether one of these keys is claimed; their stripes are locked.
    #[inline]
    pub(crate) fn include<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> bool {
        self.count.load(Relaxed) > 0 && self.find(keys)
    }

    #[cold]
    fn find<'a>(&self, mut keys: impl Iterator<Item = &'a [u8]>) -> bool {
        let claimed = self.lock();
        keys.any(|key| claimed.contains_key(key))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, usize>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claimed = self.claims.lock();
        for name in &self.names {
            if let Some(count) = claimed.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    claimed.remove(name);
                }
            }
        }
        self.claims.count.store(claimed.len(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_claimed_until_its_last_claim_ends() {
        let claims = Arc::new(Claims::default());
        let includes = |key: &[u8]| claims.include([key].into_iter());
        let first = claims.claim([&b"a"[..], b"b"].into_iter());
        let second = claims.claim([&b"b"[..]].into_iter());
        assert_eq!([includes(b"a"), includes(b"b"), includes(b"c")], [true, true, false]);
        drop(first);
        assert_eq!([includes(b"a"), includes(b"b")], [false, true]);
        drop(second);
        assert!(!includes(b"b"));
    }
}
