//! How large a collection may grow before it leaves its compact encoding.

use std::sync::Arc;

use super::{Resources, member_block::BLOCK_RECORD_BYTES_MAX, stream::ProducerLimits};

/// Members up to which a collection stays in one block (docs/decisions/0086).
const BLOCK_MEMBERS_MAX: usize = 1024;

/// The thresholds of the compact encodings; each field but those of blocks and the
/// threshold of lists is the directive of its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionLimits {
    /// Members of a hash, set or sorted set in one block; no directive.
    pub block_max_members: usize,
    /// Bytes of the members of such a block; no directive.
    pub block_max_bytes: usize,
    /// Fields of a hash in a listpack.
    pub hash_max_listpack_entries: usize,
    /// Bytes of a field, and of a value, of a hash in a listpack.
    pub hash_max_listpack_value: usize,
    /// Bytes (negative: by Redis's classes -1 to -5) or elements of a list in a listpack, and of each block of
    /// a quicklist.
    pub list_max_listpack_size: i64,
    /// Bytes from which on an element of a quicklist is a block of its own, even if a block would hold
    /// it; 0 for never: `DEBUG QUICKLIST-PACKED-THRESHOLD`.
    pub list_packed_threshold: u32,
    /// Bytes of a HyperLogLog, its header included, that is sparse.
    pub hll_sparse_max_bytes: usize,
    /// Members of a set of integers in an intset.
    pub set_max_intset_entries: usize,
    /// Members of a set in a listpack.
    pub set_max_listpack_entries: usize,
    /// Bytes of a member of a set in a listpack.
    pub set_max_listpack_value: usize,
    /// Bytes of a node of a stream; 0 for no limit.
    pub stream_node_max_bytes: usize,
    /// Entries of a node of a stream; 0 for no limit.
    pub stream_node_max_entries: usize,
    /// For how long, and how many, entries of producers of a stream are remembered if the stream does not say.
    pub producers: ProducerLimits,
    /// Members of a sorted set in a listpack.
    pub zset_max_listpack_entries: usize,
    /// Bytes of a member of a sorted set in a listpack.
    pub zset_max_listpack_value: usize,
}

impl Default for CollectionLimits {
    /// The defaults of Redis 7.2 and newer.
    fn default() -> Self {
        Self {
            block_max_members: BLOCK_MEMBERS_MAX,
            block_max_bytes: BLOCK_RECORD_BYTES_MAX,
            hash_max_listpack_entries: 512,
            hash_max_listpack_value: 64,
            list_max_listpack_size: -2,
            list_packed_threshold: 0,
            hll_sparse_max_bytes: 3000,
            set_max_intset_entries: 512,
            set_max_listpack_entries: 128,
            set_max_listpack_value: 64,
            stream_node_max_bytes: 4096,
            stream_node_max_entries: 100,
            producers: ProducerLimits::default(),
            zset_max_listpack_entries: 128,
            zset_max_listpack_value: 64,
        }
    }
}

/// Thresholds for the layout of a collection that grows, and the source of its memory.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    /// The thresholds of now.
    pub limits: &'a CollectionLimits,
    /// For values that outgrow them.
    pub resources: &'a Arc<Resources>,
}
