//! Walking over the keyspace on an offload thread (`docs/decisions/0013-long-commands.md`).
//!
//! ```text
//! gate kept open, a stripe locked    look at some hundred entries, copy the keys that are wanted
//! nothing locked                    match the copies, write the reply
//! again, until all stripes are done
//! ```
//!
//! A stripe's position is a cursor of its table, so a key that is there throughout comes once. Between two slices the
//! table may grow, shrink, be emptied or be exchanged for that of another database.

use dunlin_structures::Handle;

use crate::{
    command::CommandError,
    keyspace::{Database, EntryRef, KeptOpen, Keyspace, Locked},
};

/// Entries that a slice looks at: some ten microseconds' work, the longest wait of others. A snapshot takes as long.
const SLICE_ENTRIES: usize = 256;
/// Bytes of keys that a slice copies before it ends.
const SLICE_BYTES: usize = 16 * 1024;

/// The host of a command that is offloaded.
pub trait Host {
    /// Whether the client still waits for the reply.
    fn is_wanted(&self) -> bool;

    /// Waits a moment: a script has been holding for long the stripe that the command needs next.
    fn pause(&self);
}

/// A locked stripe. Fields are dropped in order: the lock goes before the gate can be closed.
pub(super) struct Held<'a> {
    stripe: usize,
    locked: Locked<'a>,
    /// For a caller that is not inside the gate.
    _open: Option<KeptOpen<'a>>,
}

impl Held<'_> {
    /// The stripe's part of a database, unless that has always been empty.
    pub(super) fn database(&self, database: usize) -> Option<&Database> {
        self.locked.stripe(self.stripe).database(database)
    }
}

/// Locks a stripe. Without a host the caller is inside the gate, and an error comes if a script has been holding the
/// stripe for long. With one it is not inside, and waits for the script, unless the command is abandoned meanwhile.
pub(super) fn hold<'a>(
    keyspace: &'a Keyspace,
    stripe: usize,
    host: Option<&dyn Host>,
) -> Result<Held<'a>, CommandError> {
    let Some(host) = host else {
        let locked = keyspace.lock_one_unless_long(stripe).ok_or(CommandError::Busy)?;
        return Ok(Held { stripe, locked, _open: None });
    };
    loop {
        if !host.is_wanted() {
            return Err(CommandError::Abandoned);
        }
        if let Some(open) = keyspace.keep_open()
            && let Some(locked) = keyspace.lock_one_unless_long(stripe)
        {
            return Ok(Held { stripe, locked, _open: Some(open) });
        }
        host.pause();
    }
}

/// The place that a walk has come to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) stripe: usize,
    /// The position in the stripe's table; 0 at its beginning, and at its end.
    pub(super) position: u64,
}

/// A walk over a database, and the keys that its last slice has copied.
pub(super) struct Walk<'a> {
    keyspace: &'a Keyspace,
    database: usize,
    host: &'a dyn Host,
    handles: Vec<Handle>,
    keys: Vec<u8>,
    /// The end of each of them.
    ends: Vec<usize>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(keyspace: &'a Keyspace, database: usize, host: &'a dyn Host) -> Self {
        Self { keyspace, database, host, handles: Vec::new(), keys: Vec::new(), ends: Vec::new() }
    }

    /// Goes on through a stripe's table for a slice, or some more than `entries_max` entries, and copies the keys of
    /// those that are wanted. Returns how many were looked at.
    pub(super) fn copy_keys(
        &mut self,
        place: &mut Place,
        entries_max: usize,
        wanted: impl Fn(EntryRef<'_>) -> bool,
    ) -> Result<usize, CommandError> {
        // A single long key does not make the buffer large for good.
        self.keys.clear();
        self.keys.shrink_to(2 * SLICE_BYTES);
        self.ends.clear();
        let entries_max = entries_max.min(SLICE_ENTRIES);
        let mut entries = 0;
        let held = hold(self.keyspace, place.stripe, Some(self.host))?;
        let Some(database) = held.database(self.database) else {
            place.position = 0;
            return Ok(0);
        };
        loop {
            place.position = database.scan_once(place.position, &mut self.handles, |entry| {
                entries += 1;
                if wanted(entry) {
                    self.keys.extend_from_slice(entry.key());
                    self.ends.push(self.keys.len());
                }
            });
            if place.position == 0 || entries >= entries_max || self.keys.len() >= SLICE_BYTES {
                return Ok(entries);
            }
        }
    }

    /// The keys that were copied.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.keys[start..*end])
    }

    /// Visits some entries of a stripe under its lock.
    pub(super) fn visit(
        &mut self,
        place: &mut Place,
        visit: impl FnMut(EntryRef<'_>),
    ) -> Result<(), CommandError> {
        let held = hold(self.keyspace, place.stripe, Some(self.host))?;
        let part = held.database(self.database);
        place.position = part.map_or(0, |part| part.scan_once(place.position, &mut self.handles, visit));
        Ok(())
    }
}
