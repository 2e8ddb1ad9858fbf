//! Which keys commands name, in one tick of some: for the recorder's hot keys of a second.
//!
//! ```text
//! worker: a measured tick ─▶ keys of its windows ─▶ own table, bounded ─┐
//!                                                    recorder: once a second, takes them all
//! ```
//!
//! A tick that is not measured costs a countdown, and each window of commands a comparison. The lock of a worker's table is
//! contended only while the recorder takes it.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use super::hot_keys::HeavyKeys;

/// Ticks of which one is measured; a prime, as in `dunlin_net`'s stages, and another one.
pub(crate) const TICKS_PER_SAMPLE: u32 = 127;
/// Keys of a second below which their shares are noise, and windows of commands: the keys of one belong together.
const KEYS_MIN: u64 = 50;
const WINDOWS_MIN: u64 = 10;
/// Longer keys are left out.
const KEY_BYTES_MAX: usize = 1024;

/// The tables of all workers.
#[derive(Debug)]
pub(crate) struct KeySamples(Box<[Mutex<Table>]>);

/// The notes of one worker.
#[derive(Debug, Default)]
struct Table {
    keys: HeavyKeys,
    windows: u64,
}

/// The key that most of a second's commands named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HotKey {
    pub(crate) key: Box<[u8]>,
    /// The share of all keys that commands named, in thousandths.
    pub(crate) share: u32,
}

impl KeySamples {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Mutex::default()).collect())
    }

    /// Notes the keys of a window of a worker's commands.
    pub(crate) fn note<'a>(&self, worker: usize, keys: impl Iterator<Item = &'a [u8]>) {
        let Some(table) = self.0.get(worker) else { return };
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        table.windows += 1;
        keys.filter(|key| key.len() <= KEY_BYTES_MAX).for_each(|key| table.keys.add(key, 1));
    }

    /// The key that was named most often since the last call; `None` of few keys. Of two, the smaller one.
    pub(crate) fn take(&self) -> Option<HotKey> {
        let (mut sums, mut all, mut windows) = (HashMap::<Box<[u8]>, u64>::new(), 0, 0);
        for table in &self.0 {
            let taken = std::mem::take(&mut *table.lock().unwrap_or_else(PoisonError::into_inner));
            all += taken.keys.total;
            windows += taken.windows;
            for (key, count) in taken.keys.counters {
                *sums.entry(key).or_insert(0) += count;
            }
        }
        if all < KEYS_MIN || windows < WINDOWS_MIN {
            return None;
        }
        let (key, count) =
            sums.into_iter().max_by(|one, other| one.1.cmp(&other.1).then_with(|| other.0.cmp(&one.0)))?;
        Some(HotKey { key, share: (count * 1000 / all) as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_most_commands_is_found_over_all_workers() {
        let samples = KeySamples::new(2);
        let note = |worker, key: &'static str, count: usize| {
            (0..count).for_each(|_| samples.note(worker, [key.as_bytes()].into_iter()));
        };
        note(0, "a", 30);
        note(0, "b", 20);
        note(1, "b", 30);
        note(7, "of no worker", 1000);
        samples.note(1, [[b'x'; KEY_BYTES_MAX + 1].as_slice()].into_iter());
        assert_eq!(samples.take(), Some(HotKey { key: (*b"b").into(), share: 625 }));
        assert_eq!(samples.take(), None, "they were taken");
        note(0, "a", KEYS_MIN as usize - 1);
        assert_eq!(samples.take(), None, "too few to say anything");
        samples.note(0, std::iter::repeat_n(b"a".as_slice(), 1000));
        assert_eq!(samples.take(), None, "one client's pipeline says nothing of the others");
    }
}
