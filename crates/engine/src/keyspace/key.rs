//! Keys and how they are spread: cluster slot, stripe, hash.

use ahash::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Slots of a cluster.
pub const SLOTS: u16 = 16384;

/// CRC16/XMODEM of each byte with up to 15 zeros behind it.
static CRC16: [[u16; 256]; CRC16_STEP] = crc16_tables();
/// Bytes that are looked up side by side.
const CRC16_STEP: usize = 16;

const fn crc16_tables() -> [[u16; 256]; CRC16_STEP] {
    const POLYNOMIAL: u16 = 0x1021;
    let mut tables = [[0; 256]; CRC16_STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = crc << 1 ^ if crc & 0x8000 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < CRC16_STEP {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = before << 8 ^ tables[0][(before >> 8) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// CRC16/XMODEM by tables (Kounavis and Berry, 2005). Every key of every request needs it, and keys are
/// short. So the part that is no whole step comes first, as its bytes can then be looked up side by side as
/// well (zeros in front change nothing), not last, one byte after the other.
#[inline]
fn crc16(bytes: &[u8]) -> u16 {
    let look_up = |crc: u16, (byte, table): (&u8, &[u16; 256])| crc ^ table[usize::from(*byte)];
    let (head, steps) = bytes.split_at(bytes.len() % CRC16_STEP);
    let mut crc = head.iter().rev().zip(&CRC16).fold(0, look_up);
    for step in steps.as_chunks::<CRC16_STEP>().0 {
        let mut step = *step;
        step[0] ^= (crc >> 8) as u8;
        step[1] ^= crc as u8;
        crc = step.iter().rev().zip(&CRC16).fold(0, look_up);
    }
    crc
}

/// Whether there is a `{`. Eight bytes at a time, since there mostly is none.
#[inline]
fn may_have_tag(key: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 255;
    const BRACES: u64 = ONES * b'{' as u64;
    let has = |eight: &[u8; 8]| {
        let differs = u64::from_le_bytes(*eight) ^ BRACES;
        differs.wrapping_sub(ONES) & !differs & (ONES << 7) != 0
    };
    match key.last_chunk() {
        Some(last) => has(last) || key.as_chunks().0.iter().any(has),
        None => key.contains(&b'{'),
    }
}

/// A key with the values that are computed from it once a request.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Its hash: places it in its stripe's table.
    pub hash: u64,
    /// Its stripe.
    pub stripe: usize,
    /// Its slot.
    pub slot: u16,
}

impl Key<'_> {
    /// Whether these are its bytes.
    #[inline]
    pub fn has_bytes(&self, bytes: &[u8]) -> bool {
        same_bytes(self.bytes, bytes)
    }
}

/// Whether two keys are the same: most have between 4 and 32 bytes, which two words at their ends cover, and a
/// call to compare them would take longer. The end comes first, in which keys mostly differ.
#[inline(always)]
pub(super) fn same_bytes(one: &[u8], other: &[u8]) -> bool {
    #[inline(always)]
    fn same_ends<const N: usize>(one: &[u8], other: &[u8]) -> bool {
        one.last_chunk::<N>() == other.last_chunk() && one.first_chunk::<N>() == other.first_chunk()
    }
    one.len() == other.len()
        && match one.len() {
            4..8 => same_ends::<4>(one, other),
            8..=16 => same_ends::<8>(one, other),
            17..=32 => same_ends::<16>(one, other),
            _ => one == other,
        }
}

/// The slot of a key: CRC16 of the part between the first `{` and the next `}`, if there is
/// anything, or else of the whole key, modulo 16384.
#[inline]
pub fn slot(key: &[u8]) -> u16 {
    crc16(if may_have_tag(key) { hashed_part(key) } else { key }) & (SLOTS - 1)
}

#[cold]
fn hashed_part(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    match key[open + 1..].iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(length) => &key[open + 1..open + 1 + length],
    }
}

/// Hashes keys under a secret of the process: clients that do not know it cannot make keys collide.
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
    use crc::{CRC_16_XMODEM, Crc};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn checksums_are_those_of_the_reference(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(crc16(&bytes), Crc::<u16>::new(&CRC_16_XMODEM).checksum(&bytes));
        }

        #[test]
        fn braces_are_found_wherever_they_stand(mut key in "[|-~zy]{0,40}", at in 0usize..41) {
            prop_assert!(!may_have_tag(key.as_bytes()));
            key.insert(at.min(key.len()), '{');
            prop_assert!(may_have_tag(key.as_bytes()));
        }
    }

    #[test]
    fn keys_are_the_same_where_all_their_bytes_are() {
        for length in 0..40 {
            let key: Vec<u8> = (0..length).collect();
            assert!(same_bytes(&key, &key.clone()));
            assert!(!same_bytes(&key, &[&key[..], &[0]].concat()));
            for at in 0..key.len() {
                let mut other = key.clone();
                other[at] ^= 1;
                assert!(!same_bytes(&key, &other), "byte {at} of {length}");
            }
        }
    }

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
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
