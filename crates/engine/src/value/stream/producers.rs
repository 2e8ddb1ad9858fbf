//! Producers of a stream whose entries are added once, however often they are sent (XADD's IDMP).
//!
//! ```text
//! Producers ── producer ─▶ Recent ─┬─ name of an entry ─▶ ID        the entry that was added under the name
//!                                  └─ (ID, name), oldest first      the next to be forgotten
//! ```
//! A name is forgotten a number of seconds behind the time in its entry's ID, or when a number of newer ones are there.
//! Names that are past their time may stay until the stream gets the next such entry, but are not found.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use super::StreamId;

/// For how long, and how many of them, names of entries are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerLimits {
    /// Seconds (`IDMP-DURATION`).
    pub duration_s: u32,
    /// Names of each producer (`IDMP-MAXSIZE`).
    pub entries_max: u32,
}

impl ProducerLimits {
    /// The longest time, in seconds.
    pub const DURATION_S_MAX: u32 = 86_400;
    /// The most names of a producer.
    pub const ENTRIES_MAX: u32 = 10_000;
}

impl Default for ProducerLimits {
    /// Redis's.
    fn default() -> Self {
        Self { duration_s: 100, entries_max: 100 }
    }
}

/// The newest entries of a producer.
#[derive(Debug, Clone, Default)]
struct Recent {
    ids: BTreeMap<Arc<[u8]>, StreamId>,
    /// These names, oldest first.
    order: VecDeque<(StreamId, Arc<[u8]>)>,
}

/// The producers of a stream.
#[derive(Debug, Clone)]
pub struct Producers {
    limits: ProducerLimits,
    recent: BTreeMap<Box<[u8]>, Recent>,
    /// Names remembered.
    entries: usize,
    /// Bytes of these names, and of the producers'.
    name_bytes: usize,
    /// Entries that were ever added under a name.
    added: u64,
    /// Entries that were not, because they had been.
    duplicates: u64,
    /// The producer that was looked at last for names past their time.
    swept: Box<[u8]>,
}

/// Other producers that are looked at for names past their time with each entry.
const SWEPT_AT_ONCE: usize = 2;

impl Producers {
    /// The state without any producer yet.
    pub fn new(limits: ProducerLimits) -> Self {
        Self {
            limits,
            recent: BTreeMap::new(),
            entries: 0,
            name_bytes: 0,
            added: 0,
            duplicates: 0,
            swept: Box::default(),
        }
    }

    /// How long, and how many, names are remembered.
    pub fn limits(&self) -> ProducerLimits {
        self.limits
    }

    /// Changes that, and forgets all names; nothing if it is so already. Returns whether it was not.
    pub fn set_limits(&mut self, limits: ProducerLimits) -> bool {
        if self.limits == limits {
            return false;
        }
        *self = Self { added: self.added, duplicates: self.duplicates, ..Self::new(limits) };
        true
    }

    /// Entries that were ever added under a name.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Entries that were not added because they had been.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Counts an entry that is not added because it has been.
    pub fn count_duplicate(&mut self) {
        self.duplicates = self.duplicates.saturating_add(1);
    }

    fn is_past(&self, id: StreamId, now_ms: u64) -> bool {
        id.ms.saturating_add(u64::from(self.limits.duration_s) * 1000) <= now_ms
    }

    /// The entry that was added under a producer's name for it, while that is remembered. O(log n).
    pub fn find(&self, producer: &[u8], name: &[u8], now_ms: u64) -> Option<StreamId> {
        let id = *self.recent.get(producer)?.ids.get(name)?;
        Some(id).filter(|id| !self.is_past(*id, now_ms))
    }

    /// Remembers the entry that was added under a producer's name for it, and forgets names past their time. O(log n),
    /// amortized.
    pub fn remember(&mut self, producer: &[u8], name: &[u8], id: StreamId, now_ms: u64) {
        self.added = self.added.saturating_add(1);
        self.put(producer, name, id);
        self.forget_past(producer, now_ms);
        self.sweep(now_ms);
    }

    fn put(&mut self, producer: &[u8], name: &[u8], id: StreamId) {
        if !self.recent.contains_key(producer) {
            self.name_bytes += producer.len();
            self.recent.insert(producer.into(), Recent::default());
        }
        let recent = self.recent.get_mut(producer).expect("just inserted");
        if let Some(former) = recent.ids.remove(name) {
            recent.order.retain(|(id, other)| *id != former || **other != *name);
            self.entries -= 1;
            self.name_bytes -= name.len();
        }
        let name: Arc<[u8]> = name.into();
        self.name_bytes += name.len();
        self.entries += 1;
        recent.ids.insert(Arc::clone(&name), id);
        recent.order.push_back((id, name));
        if recent.order.len() > self.limits.entries_max as usize {
            self.forget_oldest(producer);
        }
    }

    /// Forgets the oldest name of a producer, and the producer with its last one.
    fn forget_oldest(&mut self, producer: &[u8]) {
        let Some(recent) = self.recent.get_mut(producer) else { return };
        if let Some((_, name)) = recent.order.pop_front() {
            recent.ids.remove(&name);
            self.entries -= 1;
            self.name_bytes -= name.len();
        }
        if recent.order.is_empty() {
            self.recent.remove(producer);
            self.name_bytes -= producer.len();
        }
    }

    fn forget_past(&mut self, producer: &[u8], now_ms: u64) {
        while let Some((id, _)) = self.recent.get(producer).and_then(|recent| recent.order.front())
            && self.is_past(*id, now_ms)
        {
            self.forget_oldest(producer);
        }
    }

    /// Looks at some producers, others each time, for names past their time.
    fn sweep(&mut self, now_ms: u64) {
        for _ in 0..SWEPT_AT_ONCE {
            let behind = (Bound::Excluded(&*self.swept), Bound::Unbounded);
            let next = self.recent.range::<[u8], _>(behind).next();
            let Some(next) = next.or(self.recent.iter().next()).map(|(name, _)| name.clone()) else { return };
            self.forget_past(&next, now_ms);
            self.swept = next;
        }
    }

    /// How many producers, and how many of their entries, are remembered. O(producers).
    pub fn remembered(&self, now_ms: u64) -> (usize, usize) {
        let live = |recent: &Recent| recent.order.iter().filter(|(id, _)| !self.is_past(*id, now_ms)).count();
        let counts = self.recent.values().map(live).filter(|count| *count > 0);
        counts.fold((0, 0), |(producers, entries), count| (producers + 1, entries + count))
    }

    /// How many producers there are, also those that are past their time.
    pub fn len(&self) -> usize {
        self.recent.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.recent.is_empty()
    }

    /// The producers with how many entries of theirs are there, and these, oldest first, each with the producer's name
    /// for it.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], usize, impl Iterator<Item = (&[u8], StreamId)>)> {
        self.recent.iter().map(|(producer, recent)| {
            let entries = recent.order.iter().map(|(id, name)| (&**name, *id));
            (&**producer, recent.order.len(), entries)
        })
    }

    /// Puts an entry back as it was saved; `false` if the producer has the name already, or more entries than are
    /// remembered.
    pub fn restore(&mut self, producer: &[u8], name: &[u8], id: StreamId) -> bool {
        let recent = self.recent.get(producer);
        let fits = recent.is_none_or(|recent| {
            recent.order.len() < self.limits.entries_max as usize && !recent.ids.contains_key(name)
        });
        if fits {
            self.put(producer, name, id);
        }
        fits
    }

    /// Puts the counts back as they were saved.
    pub fn restore_counts(&mut self, added: u64, duplicates: u64) {
        (self.added, self.duplicates) = (added, duplicates);
    }

    /// Bytes on the heap, the structure's own among them, nearly: trees are taken to be five eighths full. O(1).
    pub fn heap_bytes(&self) -> usize {
        let tree = |entries: usize, bytes: usize| entries * bytes * 8 / 5;
        size_of::<Self>()
            + tree(self.recent.len(), size_of::<(Box<[u8]>, Recent)>())
            + tree(self.entries, size_of::<(Arc<[u8]>, StreamId)>())
            + self.entries * (size_of::<(StreamId, Arc<[u8]>)>() + 2 * size_of::<usize>())
            + self.name_bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits(duration_s: u32, entries_max: u32) -> ProducerLimits {
        ProducerLimits { duration_s, entries_max }
    }

    fn id(ms: u64) -> StreamId {
        StreamId::new(ms, 0)
    }

    #[test]
    fn names_are_forgotten_with_time() {
        let mut producers = Producers::new(limits(1, 10));
        producers.remember(b"p", b"a", id(1000), 1000);
        producers.remember(b"q", b"a", id(1500), 1500);
        assert_eq!(producers.find(b"p", b"a", 1999), Some(id(1000)));
        assert_eq!(producers.find(b"p", b"a", 2000), None);
        assert_eq!((producers.remembered(1999), producers.remembered(2000)), ((2, 2), (1, 1)));
        producers.remember(b"q", b"b", id(2600), 2600);
        assert_eq!(producers.len(), 1, "the sweep has taken the other one");
        assert_eq!((producers.added(), producers.duplicates()), (3, 0));
        assert!(!producers.set_limits(limits(1, 10)));
        assert_eq!(producers.find(b"q", b"b", 2600), Some(id(2600)));
        assert!(producers.set_limits(limits(2, 10)));
        assert_eq!((producers.remembered(0), producers.added()), ((0, 0), 3));
    }

    proptest! {
        /// Against a list per producer.
        #[test]
        fn producer_finds_its_newest_names(
            steps in prop::collection::vec((0u8..3, 0u8..12, 0u64..400), 1..200),
            entries_max in 1u32..5,
        ) {
            let mut producers = Producers::new(limits(1, entries_max));
            let mut model: BTreeMap<u8, Vec<(u8, u64)>> = BTreeMap::new();
            let mut now_ms = 1000;
            for (producer, name, pause_ms) in steps {
                now_ms += pause_ms;
                let list = model.entry(producer).or_default();
                let known = list.iter().find(|(other, ms)| *other == name && ms + 1000 > now_ms).map(|(_, ms)| id(*ms));
                prop_assert_eq!(producers.find(&[producer], &[name], now_ms), known);
                if known.is_none() {
                    producers.remember(&[producer], &[name], id(now_ms), now_ms);
                    list.retain(|(other, _)| *other != name);
                    list.push((name, now_ms));
                    let old = list.len().saturating_sub(entries_max as usize);
                    list.drain(..old);
                }
                let live: Vec<usize> = model
                    .values()
                    .map(|list| list.iter().filter(|(_, ms)| ms + 1000 > now_ms).count())
                    .filter(|count| *count > 0)
                    .collect();
                prop_assert_eq!(producers.remembered(now_ms), (live.len(), live.iter().sum()));
            }
            let mut copy = Producers::new(producers.limits());
            for (producer, count, entries) in producers.iter() {
                prop_assert!(count <= entries_max as usize);
                for (name, id) in entries {
                    prop_assert!(copy.restore(producer, name, id));
                    prop_assert!(!copy.restore(producer, name, id));
                }
            }
            prop_assert_eq!(copy.remembered(now_ms), producers.remembered(now_ms));
            prop_assert_eq!(copy.heap_bytes(), producers.heap_bytes());
            let names: Vec<Vec<u8>> = producers.iter().map(|(name, ..)| name.to_vec()).collect();
            for name in names {
                while producers.recent.contains_key(&name[..]) {
                    producers.forget_oldest(&name);
                }
            }
            prop_assert_eq!((producers.entries, producers.name_bytes), (0, 0));
        }
    }
}
