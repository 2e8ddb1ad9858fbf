//! Keys that clients have read and keep copies of, and the clients to notify when they change
//! (`CLIENT TRACKING`).
//!
//! ```text
//! stripe ─▶ Tracked ─▶ part ─▶ key ─▶ [client, client, …]      sorted, notified once, then forgotten
//! ```
//!
//! Clients that go leave their places behind. A walk over all parts removes them later ([`Tracked::forget`]), one part at a time under
//! the lock of the stripe.
//!
//! A key is entered under the lock under which it is read, and leaves under the one under which it
//! is changed: no change is missed. Databases make no difference: clients know keys by name alone.

use std::collections::{HashMap, HashSet};

use super::ClientToken;

/// Something that clients keep copies of has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalidation {
    /// A key: the clients that have read it, and all that want to know of any change.
    Key {
        /// Its name.
        key: Box<[u8]>,
        /// Clients that have read it since it last changed.
        readers: Vec<ClientToken>,
    },
    /// All keys.
    Everything,
}

/// Tables of a stripe, so that a walk over one is short.
pub(crate) const PARTS: usize = 16;

/// The keys of a stripe that clients keep copies of.
#[derive(Debug, Default)]
pub(crate) struct Tracked([HashMap<Box<[u8]>, Vec<ClientToken>>; PARTS]);

/// The part of a key. Its end tells names apart most often; if it does not, one part is longer than others.
fn part(key: &[u8]) -> usize {
    key.iter().rev().take(8).fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)))
        % PARTS
}

impl Tracked {
    /// Enters a reader of a key. Returns whether the key is new, and whether the reader is.
    pub(super) fn add(&mut self, key: &[u8], client: ClientToken) -> (bool, bool) {
        let part = &mut self.0[part(key)];
        let Some(readers) = part.get_mut(key) else {
            part.insert(key.into(), vec![client]);
            return (true, true);
        };
        let place = readers.binary_search_by_key(&client.0, |reader| reader.0);
        if let Err(place) = place {
            readers.insert(place, client);
        }
        (false, place.is_err())
    }

    /// Forgets a key; its readers.
    pub(super) fn take(&mut self, key: &[u8]) -> Option<Vec<ClientToken>> {
        self.0[part(key)].remove(key)
    }

    /// Forgets readers with these numbers in a part: how many keys have none left, how many readers that were, and the bytes of
    /// the names.
    pub(super) fn forget(&mut self, part: usize, gone: &HashSet<u64>) -> (usize, usize, usize) {
        let (mut keys, mut readers_gone, mut names) = (0, 0, 0);
        let part = &mut self.0[part];
        part.retain(|key, readers| {
            let before = readers.len();
            readers.retain(|reader| !gone.contains(&reader.0));
            readers_gone += before - readers.len();
            if readers.is_empty() {
                (keys, names) = (keys + 1, names + key.len());
            } else if readers.len() * 4 < readers.capacity() {
                readers.shrink_to_fit();
            }
            !readers.is_empty()
        });
        if part.len() * 4 < part.capacity() {
            part.shrink_to_fit();
        }
        (keys, readers_gone, names)
    }

    /// Any of the keys.
    pub(super) fn any(&self) -> Option<Box<[u8]>> {
        self.0.iter().find_map(|part| part.keys().next()).cloned()
    }

    /// Whether it is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(HashMap::is_empty)
    }

    /// How many keys, how many readers of all of them, and the bytes of their names.
    pub(super) fn count(&self) -> (usize, usize, usize) {
        let keys = || self.0.iter().flatten();
        (
            keys().count(),
            keys().map(|(_, readers)| readers.len()).sum(),
            keys().map(|(key, _)| key.len()).sum(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_that_are_gone_are_forgotten_part_by_part() {
        let mut tracked = Tracked::default();
        for number in 0..1000_u64 {
            let key = format!("key:{}", number % 100);
            tracked.add(key.as_bytes(), ClientToken(number, 0));
        }
        tracked.add(b"key:7", ClientToken(5000, 0));
        assert_eq!(tracked.count().0, 100);
        assert_eq!(tracked.count().1, 1001);
        let gone = (0..1000).collect();
        let sums = (0..PARTS).map(|part| tracked.forget(part, &gone));
        let (keys, readers, names) =
            sums.fold((0, 0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1, sum.2 + part.2));
        assert_eq!((keys, readers, names), (99, 1000, 99 * 6 - 9));
        assert_eq!(tracked.take(b"key:7"), Some(vec![ClientToken(5000, 0)]));
        assert!(tracked.is_empty());
    }
}
