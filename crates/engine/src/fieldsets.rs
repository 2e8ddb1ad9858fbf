//! Fieldsets: lists of field names that clients have prepared for `HIMPORT SET`.
//!
//! A fieldset belongs to the client that has prepared it, or to the script that has: it ends with the client's
//! connection, `RESET`, or the script. The worker of the client keeps it ([`crate::Worker::fieldsets`]).
//!
//! Invariants: no fieldset names a field twice; the fieldsets of a client take [`BYTES_MAX`] at most.

use std::{collections::HashMap, sync::Arc};

use crate::{
    command::{CommandError, CommandResult},
    context::Caller,
    keyspace::ClientToken,
};

/// Bytes of all fieldsets of a client, or of a script.
pub const BYTES_MAX: usize = if cfg!(test) { 16 * 1024 } else { 64 << 20 };

/// Bytes that a fieldset takes beside its names, about.
const FIELDSET_BYTES: usize = 128;

/// Names of fields, in the order in which they were prepared.
#[derive(Debug)]
pub struct Fieldset {
    names: Box<[u8]>,
    /// The end of each name.
    ends: Box<[u32]>,
}

impl Fieldset {
    /// A fieldset of these names; an error if one is there twice. O(n log n).
    fn new(names: &[&[u8]]) -> Result<Self, CommandError> {
        let mut sorted = names.to_vec();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(CommandError::text("ERR duplicate field name in fieldset"));
        }
        let ends = names.iter().scan(0, |end, name| {
            *end += name.len() as u32;
            Some(*end)
        });
        Ok(Self { names: names.concat().into(), ends: ends.collect() })
    }

    /// How many names there are: one at least.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.names[start as usize..*end as usize])
    }
}

/// The fieldsets of one client, by their names.
#[derive(Debug, Default)]
struct Prepared {
    sets: HashMap<Box<[u8]>, Arc<Fieldset>>,
    bytes: usize,
}

/// Bytes that a fieldset takes with its name.
fn bytes_of(name: &[u8], fields: usize, names_bytes: usize) -> usize {
    FIELDSET_BYTES
        .saturating_add(name.len())
        .saturating_add(names_bytes)
        .saturating_add(fields.saturating_mul(size_of::<u32>()))
}

impl Prepared {
    fn remove(&mut self, name: &[u8]) -> bool {
        let Some(removed) = self.sets.remove(name) else { return false };
        self.bytes -= bytes_of(name, removed.count(), removed.names.len());
        true
    }
}

/// The fieldsets of a worker's clients, and of the script that runs.
#[derive(Debug, Default)]
pub struct Fieldsets {
    clients: HashMap<ClientToken, Prepared>,
    script: Prepared,
}

impl Fieldsets {
    /// Prepares a fieldset for a client or its script, in place of one of that name.
    ///
    /// # Errors
    /// A name twice, or more than [`BYTES_MAX`]: then nothing changes.
    pub fn prepare(&mut self, caller: &Caller, name: &[u8], fields: &[&[u8]]) -> CommandResult {
        let names_bytes = fields.iter().map(|field| field.len()).sum();
        let bytes = bytes_of(name, fields.len(), names_bytes);
        let prepared = match caller.in_script {
            true => &mut self.script,
            false => self.clients.entry(caller.client).or_default(),
        };
        let replaced = prepared.sets.get(name).map_or(0, |set| bytes_of(name, set.count(), set.names.len()));
        let room = BYTES_MAX - (prepared.bytes - replaced);
        let set = if bytes > room {
            Err(CommandError::owned(format!("ERR the fieldsets of a client take {BYTES_MAX} bytes at most")))
        } else {
            Fieldset::new(fields)
        };
        if let Ok(set) = set {
            prepared.remove(name);
            prepared.bytes += bytes;
            prepared.sets.insert(name.into(), Arc::new(set));
            return Ok(());
        }
        self.drop_empty(caller);
        set.map(drop)
    }

    /// The fieldset of that name.
    pub(crate) fn find(&self, caller: &Caller, name: &[u8]) -> Option<Arc<Fieldset>> {
        let prepared = match caller.in_script {
            true => &self.script,
            false => self.clients.get(&caller.client)?,
        };
        prepared.sets.get(name).map(Arc::clone)
    }

    /// Removes a fieldset. Returns whether it was there.
    pub fn discard(&mut self, caller: &Caller, name: &[u8]) -> bool {
        let removed = match caller.in_script {
            true => self.script.remove(name),
            false => self.clients.get_mut(&caller.client).is_some_and(|prepared| prepared.remove(name)),
        };
        self.drop_empty(caller);
        removed
    }

    /// Removes all fieldsets of a client or its script; how many there were.
    pub fn discard_all(&mut self, caller: &Caller) -> usize {
        let removed = match caller.in_script {
            true => Some(std::mem::take(&mut self.script)),
            false => self.clients.remove(&caller.client),
        };
        removed.map_or(0, |prepared| prepared.sets.len())
    }

    /// Removes all fieldsets of a client that is gone or begins anew.
    pub fn forget(&mut self, client: ClientToken) {
        self.clients.remove(&client);
    }

    /// Removes the fieldsets of the script that has ended.
    pub fn end_script(&mut self) {
        if !self.script.sets.is_empty() {
            self.script = Prepared::default();
        }
    }

    /// Bytes of a client's fieldsets.
    pub fn bytes(&self, client: ClientToken) -> usize {
        self.clients.get(&client).map_or(0, |prepared| prepared.bytes)
    }

    fn drop_empty(&mut self, caller: &Caller) {
        if self.clients.get(&caller.client).is_some_and(|prepared| prepared.sets.is_empty()) {
            self.clients.remove(&caller.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fieldsets_are_a_clients_own_and_their_bytes_come_back() {
        let mut sets = Fieldsets::default();
        let [one, two] = [1, 2].map(|id| Caller { client: ClientToken(id, 0), ..Caller::default() });
        let script = Caller { in_script: true, ..one };
        sets.prepare(&one, b"s", &[b"a", b"", b"long"]).unwrap();
        let names = |set: Arc<Fieldset>| set.names().map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(names(sets.find(&one, b"s").unwrap()), [&b"a"[..], b"", b"long"]);
        assert!(sets.find(&two, b"s").is_none() && sets.find(&script, b"s").is_none());
        let bytes = sets.bytes(one.client);
        sets.prepare(&one, b"s", &[b"b", b"", b"long"]).unwrap();
        assert_eq!(sets.bytes(one.client), bytes);
        sets.prepare(&script, b"s", &[b"x"]).unwrap();
        assert_eq!((sets.bytes(one.client), sets.bytes(two.client)), (bytes, 0));
        sets.end_script();
        assert!(sets.find(&script, b"s").is_none());
        assert!(sets.discard(&one, b"s") && !sets.discard(&one, b"s") && !sets.discard(&two, b"s"));
        assert!(sets.clients.is_empty());
    }

    #[test]
    fn refused_fieldset_leaves_the_old_one() {
        let (mut sets, caller) = (Fieldsets::default(), Caller::default());
        assert!(sets.prepare(&caller, b"s", &[b"a", b"b", b"a"]).is_err());
        assert!(sets.clients.is_empty());
        sets.prepare(&caller, b"s", &[b"a"]).unwrap();
        assert!(sets.prepare(&caller, b"s", &[b"b", b"b"]).is_err());
        let long = vec![b'x'; BYTES_MAX];
        assert!(sets.prepare(&caller, b"s", &[&long]).is_err());
        assert_eq!(sets.find(&caller, b"s").unwrap().names().collect::<Vec<_>>(), [b"a"]);
        let half = &long[..BYTES_MAX / 2];
        sets.prepare(&caller, b"t", &[half]).unwrap();
        sets.prepare(&caller, b"t", &[half]).expect("it takes the place of the one before");
        assert!(sets.prepare(&caller, b"u", &[half]).is_err());
        assert_eq!(sets.discard_all(&caller), 2);
        assert_eq!(sets.bytes(caller.client), 0);
    }
}
