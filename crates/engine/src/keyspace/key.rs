//! Keys and how they are spread: cluster slot, shard, hash.

use ahash::RandomState;
use crc::{CRC_16_XMODEM, Crc, Table};
use std::hash::{BuildHasher, Hasher};

/// Slots of a cluster.
pub const SLOTS: u16 = 16384;

/// Sixteen bytes a step; slots are computed for every key of every request.
static CRC16: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_XMODEM);

/// A key with what is computed from it once a request.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Its hash: places it in its shard's table.
    pub hash: u64,
    /// Its shard.
    pub shard: usize,
}

/// The slot of a key: CRC16 of what stands between the first `{` and the next `}`, if there is
/// anything, or else of the whole key, modulo 16384.
#[inline]
pub fn slot(key: &[u8]) -> u16 {
    let tag = match key.iter().position(|byte| *byte == b'{') {
        None => key,
        Some(open) => match key[open + 1..].iter().position(|byte| *byte == b'}') {
            None | Some(0) => key,
            Some(length) => &key[open + 1..open + 1 + length],
        },
    };
    CRC16.checksum(tag) & (SLOTS - 1)
}

/// Hashes keys under a secret of the process: who does not know it cannot make keys collide.
#[derive(Debug, Clone)]
pub(crate) struct KeyHasher(RandomState);

impl KeyHasher {
    pub(crate) fn new(seeds: [u64; 4]) -> Self {
        Self(RandomState::with_seeds(seeds[0], seeds[1], seeds[2], seeds[3]))
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(CRC16.checksum(b"123456789"), 0x31c3);
        for (key, expected) in [("foo", 12182), ("bar", 5061), ("", 0), ("123456789", 12739)] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn hash_tags_keep_keys_together() {
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_ne!(slot(b"foo{}{bar}"), slot(b"bar"));
        assert_ne!(slot(b"foo{bar"), slot(b"bar"));
    }
}
