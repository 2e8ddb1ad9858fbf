//! [`Import`]: a connection by which another shard's primary sends slots.

use dunlin_engine::keyspace::SlotBits;

use crate::admission::Slots;

/// Slots that a connection's commands import.
#[derive(Debug)]
pub(crate) struct Import {
    /// The move's id.
    pub(crate) id: String,
    slots: SlotBits,
    /// How often databases had been emptied when it began.
    flushes: u64,
    /// The first error line that a command was answered with.
    failure: Option<String>,
}

impl Import {
    /// An import of these slots. `flushes` is how often databases have been emptied so far.
    pub(crate) fn new(id: String, slots: SlotBits, flushes: u64) -> Self {
        Self { id, slots, flushes, failure: None }
    }

    /// Whether keys in these slots belong to it.
    pub(crate) fn has(&self, slots: Slots) -> bool {
        match slots {
            Slots::None => true,
            Slots::One(slot) => self.slots.contains(slot),
            Slots::Several(_) => false,
        }
    }

    /// A command was answered with this line.
    pub(crate) fn fail(&mut self, line: &[u8]) {
        self.failure.get_or_insert_with(|| String::from_utf8_lossy(line).into_owned());
    }

    /// Why what has come so far is not all there.
    pub(crate) fn failure(&self, flushes: u64) -> Option<String> {
        let flushed = || "the target was emptied (FLUSHALL)".to_owned();
        self.failure.clone().or_else(|| (flushes != self.flushes).then(flushed))
    }
}
