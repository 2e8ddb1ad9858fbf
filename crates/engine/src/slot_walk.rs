//! Walks over the keyspace in slices, for a cluster: to remove the keys of slots that its node has lost, and to weigh
//! slots.

use crate::{
    context::{Environment, Worker, WriteContext},
    execute::Engine,
    keyspace::{SLOTS, SlotBits, slot},
};

/// Entries that are looked at under one hold of a stripe's lock, about, and keys that are removed.
const VISITED_MAX: usize = 512;
const REMOVED_MAX: usize = 64;

/// How far a walk has come.
#[derive(Debug, Default)]
pub struct SlotWalk {
    stripe: usize,
    position: u64,
    /// Keys of the slots that it has come upon.
    pub found: u64,
}

/// The bytes that the keys of each slot take.
pub type SlotWeights = [u64; SLOTS as usize];

impl Engine {
    /// Goes on with a walk that adds the bytes of keys to the weights of their slots. Returns whether it has come to the end.
    /// Keys that come or go meanwhile may be missed or counted twice. The caller is inside the gate. O(keys that are looked
    /// at), which are some hundred.
    pub fn weigh_slots(&self, walk: &mut SlotWalk, weights: &mut SlotWeights) -> bool {
        if !self.keyspace.stripes().contains(&walk.stripe) {
            return true;
        }
        let Some(locked) = self.keyspace.lock_one_unless_long(walk.stripe) else { return false };
        if let Some(database) = locked.stripe(walk.stripe).database(0) {
            let mut visited = 0;
            loop {
                walk.position = database.scan(walk.position, |entry| {
                    visited += 1;
                    weights[usize::from(slot(entry.key()))] += entry.memory_bytes() as u64;
                });
                visited += 1;
                if walk.position == 0 || visited >= VISITED_MAX {
                    break;
                }
            }
        }
        if walk.position == 0 {
            walk.stripe += 1;
        }
        false
    }

    /// Goes on with a walk over the keys of these slots and, if they `leave`, removes them, which is recorded. Returns
    /// whether it has come to the end. A stripe that a script holds for long is tried again. The caller is inside the
    /// gate. O(keys that are looked at), which are some hundred.
    pub fn walk_slots(
        &self,
        walk: &mut SlotWalk,
        slots: &SlotBits,
        leave: bool,
        environment: Environment<'_>,
        worker: &mut Worker,
    ) -> bool {
        if !self.keyspace.stripes().contains(&walk.stripe) {
            return true;
        }
        let Some(mut locked) = self.keyspace.lock_one_unless_long(walk.stripe) else { return false };
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        let mut visited = 0;
        if let Some(database) = locked.stripe(walk.stripe).database(0) {
            loop {
                walk.position = database.scan(walk.position, |entry| {
                    visited += 1;
                    if slots.contains(slot(entry.key())) {
                        keys.push(entry.key().into());
                    }
                });
                // Empty buckets count, too.
                visited += 1;
                if walk.position == 0 || visited >= VISITED_MAX || keys.len() >= REMOVED_MAX {
                    break;
                }
            }
        }
        if walk.position == 0 {
            walk.stripe += 1;
        }
        walk.found += keys.len() as u64;
        if leave && !keys.is_empty() {
            worker.propagation.begin(&self.log);
            let mut words: Vec<&[u8]> = vec![b"UNLINK"];
            words.extend(keys.iter().map(|key| &**key));
            let mut context = WriteContext::new(locked.stripes(), 0, &[], environment, worker);
            words[1..].iter().for_each(|key| _ = context.remove(key));
            context.end_propagation(&words);
            worker.propagation.publish(&self.log, worker.id());
            worker.tell(environment.caller.client);
        }
        false
    }
}
