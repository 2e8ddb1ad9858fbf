//! `CONFIG RESETSTAT`: a baseline, which `INFO` takes off the counters that count since the last reset.
//!
//! Workers own their counters and write them without read-modify-write, so no other thread may set them to zero.
//! Counters of metrics only grow; a reset notes what they were. The sums for each command and each error are set to
//! zero all the same, since their number is not known beforehand: an addition of that moment may survive.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The values of resettable counters at the last reset, by name; empty before the first.
#[derive(Debug, Default)]
pub(crate) struct Baseline(Mutex<BTreeMap<&'static str, u64>>);

impl Baseline {
    fn values(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much of `value`, that of the counter `name`, came after the reset.
    pub(crate) fn since_reset(&self, name: &str, value: u64) -> u64 {
        value.saturating_sub(self.values().get(name).copied().unwrap_or(0))
    }

    /// Takes the values of all counters at a reset.
    pub(crate) fn set(&self, values: BTreeMap<&'static str, u64>) {
        *self.values() = values;
    }
}
