//! Values of modules that a module has changed elsewhere: here they are no longer what they say.

use crate::{execute::Engine, keyspace::Inside, value::Object};

impl Engine {
    /// Marks the value under a key as stale if it is one of a module. Returns whether it was not marked before; `None`, and nothing
    /// done, while a script holds the key's stripe for long. The caller is inside the gate.
    pub fn mark_stale(&self, database: usize, key: &[u8], _: &Inside<'_>) -> Option<bool> {
        let key = self.keyspace.key(key);
        let locked = self.keyspace.lock_one_unless_long(key.stripe)?;
        let marked = locked.stripe(key.stripe).database(database).and_then(|part| {
            let (_, entry) = part.find_entry(key.hash, key.bytes)?;
            match entry.stored_object()? {
                Object::Foreign(value) => Some(value.mark_stale()),
                _ => None,
            }
        });
        Some(marked.unwrap_or(false))
    }
}
