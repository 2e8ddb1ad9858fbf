//! Keys that clients have read and keep copies of, and the clients to notify when they change
//! (`CLIENT TRACKING`).
//!
//! ```text
//! stripe ─▶ Tracked ─▶ key ─▶ [client, client, …]      sorted, notified once, then forgotten
//! ```
//!
//! A key is entered under the lock under which it is read, and leaves under the one under which it
//! is changed: no change is missed. Databases make no difference: clients know keys by name alone.

use std::collections::HashMap;

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

/// The keys of a stripe that clients keep copies of.
#[derive(Debug, Default)]
pub(crate) struct Tracked(HashMap<Box<[u8]>, Vec<ClientToken>>);

impl Tracked {
    /// Enters a reader of a key; whether the key is new, and whether the reader is.
    pub(super) fn add(&mut self, key: &[u8], client: ClientToken) -> (bool, bool) {
        let Some(readers) = self.0.get_mut(key) else {
            self.0.insert(key.into(), vec![client]);
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
        self.0.remove(key)
    }

    /// Any of the keys.
    pub(super) fn any(&self) -> Option<Box<[u8]>> {
        self.0.keys().next().cloned()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many keys, how many readers of all of them, and the bytes of their names.
    pub(super) fn count(&self) -> (usize, usize, usize) {
        let names = self.0.keys().map(|key| key.len()).sum();
        (self.0.len(), self.0.values().map(Vec::len).sum(), names)
    }
}
