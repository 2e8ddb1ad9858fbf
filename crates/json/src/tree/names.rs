//! Which run of a large object has a name.
//!
//! ```text
//! partitions   ● ● ● ● ●      as many as there are names / 512; linear hashing by the low bits of the hash
//!              └──▶ entries, sorted: hash (24 bits) │ run (16 bits)         5 bytes a name
//! places       run's number ──▶ its place in the list of runs
//! ```
//!
//! Partitions are shared until they are changed, as runs are. The hash is XXH3 under a seed that the process gives once
//! ([`set_name_seed`]), so clients cannot prepare names of one hash.

use std::sync::{Arc, OnceLock};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Names of a partition, on average, before there is one more.
const PARTITION_NAMES: usize = 512;
const HASH_BITS: u32 = 24;

static SEED: OnceLock<u64> = OnceLock::new();

/// Gives the seed under which names are hashed, before the first document is made; false, and nothing done, after that.
pub fn set_name_seed(seed: u64) -> bool {
    SEED.set(seed).is_ok()
}

/// The hash of a name, in [`HASH_BITS`] bits.
fn hash_of(name: &[u8]) -> u32 {
    (xxh3_64_with_seed(name, *SEED.get_or_init(|| 0)) >> (64 - HASH_BITS)) as u32
}

/// Hash and run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry([u8; 5]);

impl Entry {
    fn new(hash: u32, run: u16) -> Self {
        let [_, a, b, c] = hash.to_be_bytes();
        let [d, e] = run.to_be_bytes();
        Self([a, b, c, d, e])
    }

    fn hash(self) -> u32 {
        u32::from_be_bytes([0, self.0[0], self.0[1], self.0[2]])
    }

    fn run(self) -> u16 {
        u16::from_be_bytes([self.0[3], self.0[4]])
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    partitions: Vec<Arc<Vec<Entry>>>,
    count: usize,
    /// The place of each run in the list, by its number.
    places: Vec<u32>,
}

impl Names {
    /// A copy that shares nothing.
    pub(super) fn apart(&self) -> Self {
        let partitions = self.partitions.iter().map(|entries| Arc::new(entries.to_vec())).collect();
        Self { partitions, count: self.count, places: self.places.clone() }
    }

    fn partition_of(&self, hash: u32) -> usize {
        let mask = self.partitions.len().next_power_of_two() - 1;
        let partition = hash as usize & mask;
        if partition < self.partitions.len() { partition } else { partition & (mask >> 1) }
    }

    /// The places of the runs that may have a name: those with a name of the same hash.
    pub(super) fn candidates(&self, name: &[u8]) -> impl Iterator<Item = usize> {
        let hash = hash_of(name);
        let entries: &[Entry] =
            if self.partitions.is_empty() { &[] } else { &self.partitions[self.partition_of(hash)] };
        let from = entries.partition_point(|entry| entry.hash() < hash);
        entries[from..]
            .iter()
            .take_while(move |entry| entry.hash() == hash)
            .map(|entry| self.places[usize::from(entry.run())] as usize)
    }

    pub(super) fn insert(&mut self, name: &[u8], run: u16) {
        if self.count >= self.partitions.len() * PARTITION_NAMES {
            self.split();
        }
        let entry = Entry::new(hash_of(name), run);
        let partition = self.partition_of(entry.hash());
        let entries = Arc::make_mut(&mut self.partitions[partition]);
        let at = entries.partition_point(|other| *other < entry);
        entries.insert(at, entry);
        self.count += 1;
    }

    pub(super) fn remove(&mut self, name: &[u8], run: u16) {
        let entry = Entry::new(hash_of(name), run);
        let partition = self.partition_of(entry.hash());
        let entries = Arc::make_mut(&mut self.partitions[partition]);
        let at = entries.binary_search(&entry).expect("a name of the object is among its names");
        entries.remove(at);
        self.count -= 1;
    }

    /// Adds a partition, which takes its entries from another one.
    fn split(&mut self) {
        let new = self.partitions.len();
        if new == 0 {
            self.partitions.push(Arc::default());
            return;
        }
        let mask = (new + 1).next_power_of_two() - 1;
        let old = new & (mask >> 1);
        let (moved, kept) =
            self.partitions[old].iter().partition(|entry| entry.hash() as usize & mask == new);
        self.partitions[old] = Arc::new(kept);
        self.partitions.push(Arc::new(moved));
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        assert_eq!(self.partitions.iter().map(|entries| entries.len()).sum::<usize>(), self.count);
        self.count
    }

    /// Notes the numbers of all runs in their order.
    pub(super) fn place(&mut self, ids: impl Iterator<Item = u16>) {
        for (place, id) in ids.enumerate() {
            let id = usize::from(id);
            if id >= self.places.len() {
                self.places.resize(id + 1, 0);
            }
            self.places[id] = place as u32;
        }
    }

    /// Notes that the last run of the list has this number.
    pub(super) fn place_last(&mut self, id: u16, place: usize) {
        let id = usize::from(id);
        if id >= self.places.len() {
            self.places.resize(id + 1, 0);
        }
        self.places[id] = place as u32;
    }

    /// A number that no run ever had; `None` if all were given.
    pub(super) fn next_id(&self) -> Option<u16> {
        u16::try_from(self.places.len()).ok()
    }

    /// Gives back the room of entries that have not come, after many were inserted.
    pub(super) fn shrink(&mut self) {
        self.partitions.iter_mut().filter_map(Arc::get_mut).for_each(Vec::shrink_to_fit);
        self.partitions.shrink_to_fit();
        self.places.shrink_to_fit();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let entries: usize =
            self.partitions.iter().map(|entries| entries.capacity() * size_of::<Entry>()).sum();
        entries
            + self.partitions.len() * (super::COUNTS_BYTES + size_of::<Vec<Entry>>())
            + self.partitions.capacity() * size_of::<Arc<Vec<Entry>>>()
            + self.places.capacity() * size_of::<u32>()
    }
}
