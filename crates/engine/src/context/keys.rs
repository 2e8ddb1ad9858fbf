//! The keys of a request, hashed once.

use crate::keyspace::{Key, Keyspace};

/// The keys of a request whose hashes the executor has computed ahead.
#[derive(Debug)]
pub(super) struct KnownKeys<'a> {
    keys: &'a [Key<'a>],
    /// The next key that the command will probably ask for.
    next: usize,
}

impl<'a> KnownKeys<'a> {
    #[inline]
    pub(super) fn new(keys: &'a [Key<'a>]) -> Self {
        Self { keys, next: 0 }
    }

    /// The key with its hash; computed if it is not one of those at hand.
    #[inline]
    pub(super) fn resolve<'k>(&mut self, keyspace: &Keyspace, key: &'k [u8]) -> Key<'k> {
        if let Some(known) = self.keys.get(self.next)
            && std::ptr::eq(known.bytes, key)
        {
            self.next += 1;
            return Key { bytes: key, ..*known };
        }
        self.resolve_out_of_order(keyspace, key)
    }

    /// Commands mostly go through their keys in order, some twice, and some leave the first one for last.
    fn resolve_out_of_order<'k>(&mut self, keyspace: &Keyspace, key: &'k [u8]) -> Key<'k> {
        for at in [self.next.wrapping_sub(1), self.next + 1, 0] {
            if let Some(known) = self.keys.get(at)
                && std::ptr::eq(known.bytes, key)
            {
                self.next = at + 1;
                return Key { bytes: key, ..*known };
            }
        }
        keyspace.key(key)
    }
}
