//! The data structures under the keyspace; they know no keys, clients or time.
//!
//! ```text
//! PagePool ── 8 KiB pages ──┬─ Slab: cells of 8..2048 bytes behind 32-bit handles
//!                           └─ BucketTable: linear hashing from 64-bit hashes to handles
//!
//! Listpack    strings and integers in one run of bytes ── BlockDeque: a list as a deque of listpacks
//! IntSet      integers in one run of bytes
//! OrderTree   scores and handles in order, with ranks
//! LeafMap     an ordered map whose copies share the leaves that neither has changed
//! Log2Histogram  counts of numbers by powers of two
//! Rope        a long string in chunks that copies share until they change them
//! Extents     runs of pages, for the general allocator's large blocks ── Spans: a few smaller blocks of one size in each
//! ```
//!
//! [`bits`] are algorithms on strings as arrays of bits, [`hyperloglog`] those on strings as sketches of sets.
//! [`glob`] compiles patterns of names.
//!
//! Slab and table are changed by one owner at a time (`&mut self`). Beside each stands a view made of atomics
//! only ([`PageDirectory`], [`TableProbe`]) from which any thread may compute addresses to *prefetch* while
//! the owner is at work. The addresses from such a view may be stale; they are never dereferenced.

mod bit_set;
pub mod bits;
mod block;
mod block_deque;
mod bucket_table;
mod corrupt;
mod decimal;
mod extents;
pub mod geohash;
pub mod glob;
pub mod hyperloglog;
mod intset;
mod leaf_map;
mod listpack;
mod log2_histogram;
mod memory_map;
mod order_tree;
mod page_pool;
mod prefetch;
mod relocator;
mod rope;
mod slab;
mod spans;
mod tiers;

pub use block::{ThinBlock, allocation_bytes};
pub use block_deque::{
    Block, BlockDeque, BlockLimit, BlockRef, DequeRange, ListEnd, Past, SharedPast, TakenBlocks, lock_past,
};
pub use bucket_table::{
    BUCKETS_MAX, BucketProbe, BucketTable, Candidate, Entries, SLOTS_PER_BUCKET, Slot, TableProbe, Tick,
    Verdict,
};
pub use corrupt::Corrupt;
pub use extents::{EXTENT_ALIGN, EXTENT_BYTES_MIN, ExtentUsage, Extents};
pub use intset::{IntSet, IntSetRef, validate as validate_intset};
pub use leaf_map::LeafMap;
pub use listpack::{
    Element, Elements, LISTPACK_BYTES_EMPTY, LISTPACK_BYTES_MAX, Listpack, ListpackRef, Position,
    validate as validate_listpack,
};
pub use log2_histogram::{Log2Counts, Log2Histogram};
pub use order_tree::{Members, OrderRange, OrderTree, Scored};
pub use page_pool::{PAGE_BYTES, PagePool, PoolUsage};
pub use prefetch::{prefetch, prefetch_span, prefetch_span_for_write};
pub use relocator::{Relocate, Relocator};
pub use rope::{Chunk, GrowingBlock, Rope, RopeSource};
pub use slab::{CELL_BYTES_MAX, CellPosition, CellWalk, Compacted, Handle, PageDirectory, Slab, class_bytes};
pub use spans::{SPAN_ALIGN, SPAN_BYTES_ABOVE, SpanUsage, Spans, allocated_bytes};

/// Ends the process with one clear line, because the system refused `bytes` bytes of memory.
///
/// The structures give no half-done results: every insertion either happens or never returns. A server
/// that must refuse writes earlier compares its usage with its own limit before it inserts.
#[cold]
#[inline(never)]
pub fn out_of_memory(bytes: usize) -> ! {
    eprintln!("out of memory: the system refused {bytes} more bytes; free memory, or lower maxmemory");
    std::process::abort();
}
