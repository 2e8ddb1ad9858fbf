//! The cost of an entry in the bucket table: bytes, chains and nanoseconds, at sizes between two doublings.
//!
//! `cargo run --release -p dunlin-structures --example table_cost [ENTRIES…]` (default: 1 and 5 million).
//! Bytes are buckets, overflow buckets and directories over entries; the entries themselves are 8 bytes in a
//! slab. Times are per operation, random order, without batched prefetching.

use dunlin_structures::{BucketTable, Entries, Handle, PagePool, Slab, prefetch};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

struct Cells<'a>(&'a Slab);

impl Cells<'_> {
    fn number(&self, handle: Handle) -> u64 {
        // SAFETY: every cell of this program holds a u64, written when it was allocated.
        unsafe { self.0.pointer(handle).cast().read() }
    }
}

impl Entries for Cells<'_> {
    fn hash(&self, handle: Handle) -> u64 {
        hash(self.number(handle))
    }

    fn prefetch(&self, handle: Handle) {
        prefetch(self.0.pointer(handle).as_ptr());
    }
}

/// MurmurHash3's finalizer: a bijection that spreads consecutive numbers over all bits.
fn hash(number: u64) -> u64 {
    let mut bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ (bits >> 33)
}

struct Store {
    slab: Slab,
    table: BucketTable,
}

impl Store {
    fn insert(&mut self, number: u64) {
        let handle = self.slab.allocate(8);
        // SAFETY: the cell is 8 bytes long, aligned, and new.
        unsafe { self.slab.pointer(handle).cast().write(number) };
        self.table.insert(hash(number), handle, &Cells(&self.slab));
    }

    fn has(&self, number: u64) -> bool {
        let cells = Cells(&self.slab);
        self.table.find(hash(number), |handle| cells.number(handle) == number).is_some()
    }

    fn remove(&mut self, number: u64) {
        let cells = Cells(&self.slab);
        let slot = self.table.find(hash(number), |handle| cells.number(handle) == number);
        let handle = self.table.remove(slot.expect("inserted before"));
        self.slab.free(handle, 8);
    }
}

fn nanoseconds(count: u64, mut operation: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    for step in 0..count {
        operation(step);
    }
    start.elapsed().as_secs_f64() * 1e9 / count as f64
}

fn main() {
    let mut sizes: Vec<u64> = std::env::args().skip(1).filter_map(|size| size.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![1_000_000, 5_000_000];
    }
    for base in sizes {
        let pool = Arc::new(PagePool::new());
        let mut store = Store { slab: Slab::new(pool.clone()), table: BucketTable::new(pool.clone()) };
        println!("    entries  bytes/entry  in overflow  insert ns  hit ns  miss ns");
        let mut sum = 0.0;
        let mut inserted = 0;
        const STEPS: u64 = 8;
        for step in 0..STEPS {
            // Sizes evenly spread over a doubling.
            let target = (base as f64 * 2_f64.powf(step as f64 / STEPS as f64)) as u64;
            let insert = nanoseconds(target - inserted, |offset| store.insert(inserted + offset));
            inserted = target;
            let hit = nanoseconds(base, |step| {
                black_box(store.has(hash(step ^ 0x5555) % target));
            });
            let miss = nanoseconds(base, |step| {
                black_box(store.has(target + hash(step)));
            });
            let bytes = store.table.memory_bytes() as f64 / target as f64;
            sum += bytes;
            let overflow = 100.0 * store.table.overflow_entries() as f64 / target as f64;
            println!(
                "{target:>11}  {bytes:>11.2}  {overflow:>10.1}%  {insert:>9.0}  {hit:>6.0}  {miss:>7.0}"
            );
        }
        let remove = nanoseconds(inserted, |number| store.remove(number));
        println!("mean over the doubling: {:.2} bytes/entry; remove {remove:.0} ns", sum / STEPS as f64);
        // SAFETY: this program has one thread, and no probe.
        unsafe { store.table.release_spare() };
        store.slab.release_spare();
        pool.trim(usize::MAX);
        println!("empty again: {} bytes in the table, {:?}\n", store.table.memory_bytes(), pool.usage());
    }
}
