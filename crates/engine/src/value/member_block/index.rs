//! The index of a block: groups of 16 places, each a fingerprint and the offset of a record.
//!
//! ```text
//! fingerprint   0 empty │ 1 grave: was used, the search goes on │ 2 to 255: of a record
//! search        from the group that the hash names, group by group, until one has an empty place
//! ```

use super::{GRAVES, HEADER_BYTES, LINEAR_MAX, MemberBlock};
use crate::value::Record;

/// Places of a group.
pub(super) const GROUP: usize = 16;
/// Bytes of a group: its fingerprints and offsets.
pub(super) const GROUP_BYTES: usize = GROUP * 3;

const EMPTY: u8 = 0;
const GRAVE: u8 = 1;
const FINGERPRINT_MIN: u8 = 2;
/// Places of a group that are filled on average, at most: more would lengthen searches for keys that are not there.
const GROUP_FILLED_MAX: usize = 14;

/// Groups for `records` records.
pub(super) fn groups_for(records: usize) -> usize {
    if records <= LINEAR_MAX {
        0
    } else if records <= GROUP {
        1
    } else {
        records.div_ceil(GROUP_FILLED_MAX)
    }
}

/// Places of `groups` groups that records and graves may fill.
#[inline]
pub(super) fn places_filled_max(groups: usize) -> usize {
    match groups {
        0 => LINEAR_MAX,
        1 => GROUP,
        _ => groups * GROUP_FILLED_MAX,
    }
}

/// Cursors of blocks have this bit, those of tables are below it.
const BLOCK_CURSOR: u64 = 1 << 32;

/// Whether a cursor is that of a block.
#[inline]
pub(in crate::value) fn is_block_cursor(cursor: u64) -> bool {
    cursor & BLOCK_CURSOR != 0
}

/// The high bit of each byte that is `byte`.
#[inline]
fn equal_bytes(bytes: u128, byte: u8) -> u128 {
    const LOW: u128 = u128::MAX / 255 * 0x7f;
    let differs = bytes ^ (u128::MAX / 255 * u128::from(byte));
    !(((differs & LOW) + LOW) | differs | LOW)
}

/// A public hash: only as many can collide as a block has records.
#[inline]
fn hash(key: &[u8]) -> u64 {
    const ONE: u64 = 0x9e37_79b9_7f4a_7c15;
    const OTHER: u64 = 0xbf58_476d_1ce4_e5b9;
    /// Both halves of the product, folded (as in wyhash).
    #[inline]
    fn fold(one: u64, other: u64) -> u64 {
        let product = u128::from(one) * u128::from(other);
        product as u64 ^ (product >> 64) as u64
    }
    #[inline]
    fn eight(bytes: &[u8; 8]) -> u64 {
        u64::from_le_bytes(*bytes)
    }
    let mut state = ONE ^ key.len() as u64;
    let mut rest = key;
    while let Some((sixteen, behind)) = rest.split_first_chunk::<16>()
        && !behind.is_empty()
    {
        let (halves, _) = sixteen.as_chunks::<8>();
        state = fold(eight(&halves[0]) ^ state, eight(&halves[1]) ^ OTHER);
        rest = behind;
    }
    // Up to sixteen bytes are left, which two words at their ends cover.
    let (first, last) = if let (Some(first), Some(last)) = (rest.first_chunk(), rest.last_chunk()) {
        (eight(first), eight(last))
    } else if let (Some(first), Some(last)) = (rest.first_chunk(), rest.last_chunk()) {
        (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into())
    } else {
        let byte = |at: usize| rest.get(at).copied().map_or(0, u64::from);
        (byte(0) | byte(1) << 8 | byte(2) << 16, 0)
    };
    fold(fold(first ^ state, last ^ OTHER) ^ ONE, OTHER)
}

/// The group in which the search for a hash begins.
#[inline]
fn home(hash: u64, groups: usize) -> usize {
    (((hash >> 32) * groups as u64) >> 32) as usize
}

#[inline]
fn fingerprint(hash: u64) -> u8 {
    (hash as u8).max(FINGERPRINT_MIN)
}

impl MemberBlock {
    /// The fingerprints of a group.
    #[inline]
    fn fingerprints(&self, group: usize) -> u128 {
        let bytes = self.bytes[HEADER_BYTES + group * GROUP..].first_chunk();
        u128::from_le_bytes(*bytes.expect("the group exists"))
    }

    #[inline]
    fn offset_place(&self, groups: usize, place: usize) -> usize {
        HEADER_BYTES + groups * GROUP + 2 * place
    }

    /// The offset of the record in a place of the index, if there is one.
    pub(super) fn record_in_place(&self, place: usize) -> Option<usize> {
        let is_filled = self.bytes[HEADER_BYTES + place] >= FINGERPRINT_MIN;
        is_filled.then(|| self.u16_at(self.offset_place(self.groups(), place)))
    }

    /// The first place on the way of a hash for which `is_it` holds among those that have its fingerprint.
    #[inline]
    fn search(&self, hash: u64, mut is_it: impl FnMut(usize) -> bool) -> Option<(usize, usize)> {
        let groups = self.groups();
        let byte = fingerprint(hash);
        let mut group = home(hash, groups);
        for _ in 0..groups {
            let fingerprints = self.fingerprints(group);
            let mut matches = equal_bytes(fingerprints, byte);
            while matches != 0 {
                let place = group * GROUP + matches.trailing_zeros() as usize / 8;
                let at = self.u16_at(self.offset_place(groups, place));
                if is_it(at) {
                    return Some((place, at));
                }
                matches &= matches - 1;
            }
            if equal_bytes(fingerprints, EMPTY) != 0 {
                return None;
            }
            group = if group + 1 == groups { 0 } else { group + 1 };
        }
        None
    }

    /// [`MemberBlock::find`] if there is an index.
    #[inline]
    pub(super) fn find_indexed(&self, key: &[u8]) -> Option<usize> {
        self.search(hash(key), |at| self.record(at).key == key).map(|(_, at)| at)
    }

    /// Visits some records behind `cursor` and returns the next cursor, 0 at the end; as [`MemberTable::scan`], which begins
    /// again at a cursor from here, as this does at one of a table.
    ///
    /// A cursor is a bound of hashes: all records with lower ones were visited, however the index was made anew since.
    ///
    /// [`MemberTable::scan`]: crate::value::MemberTable::scan
    pub(in crate::value) fn scan(&self, cursor: u64, mut visit: impl FnMut(Record<'_>)) -> u64 {
        let groups = self.groups();
        if groups == 0 {
            self.iter().for_each(|(_, record)| visit(record));
            return 0;
        }
        let from = if is_block_cursor(cursor) { u64::from(cursor as u32) } else { 0 };
        let first = home(from << 32, groups);
        let end = ((first as u64 + 1) << 32).div_ceil(groups as u64);
        let mut group = first;
        for _ in 0..groups {
            for place in group * GROUP..(group + 1) * GROUP {
                let Some(at) = self.record_in_place(place) else { continue };
                let record = self.record(at);
                if (from..end).contains(&(hash(record.key) >> 32)) {
                    visit(record);
                }
            }
            // A search for a hash of these goes no further.
            if equal_bytes(self.fingerprints(group), EMPTY) != 0 {
                break;
            }
            group = if group + 1 == groups { 0 } else { group + 1 };
        }
        if end >> 32 != 0 { 0 } else { BLOCK_CURSOR | end }
    }

    /// Enters the record at an offset into the index, if there is one.
    pub(super) fn enter_index(&mut self, key: &[u8], at: usize) {
        let groups = self.groups();
        if groups == 0 {
            return;
        }
        let hash = hash(key);
        let mut group = home(hash, groups);
        let free = loop {
            let fingerprints = self.fingerprints(group);
            let free = equal_bytes(fingerprints, EMPTY) | equal_bytes(fingerprints, GRAVE);
            if free != 0 {
                break group * GROUP + free.trailing_zeros() as usize / 8;
            }
            group = if group + 1 == groups { 0 } else { group + 1 };
        };
        if self.bytes[HEADER_BYTES + free] == GRAVE {
            self.write_u16(GRAVES, self.u16_at(GRAVES) - 1);
        }
        self.bytes[HEADER_BYTES + free] = fingerprint(hash);
        self.write_u16(self.offset_place(groups, free), at);
    }

    /// Takes the record at an offset out of the index, if there is one.
    pub(super) fn leave_index(&mut self, at: usize) {
        let groups = self.groups();
        if groups == 0 {
            return;
        }
        let found = self.search(hash(self.record(at).key), |other| other == at);
        let (place, _) = found.expect("each record is in the index");
        // A search that came through this group would otherwise end here.
        let was_passed = groups > 1 && equal_bytes(self.fingerprints(place / GROUP), EMPTY) == 0;
        if was_passed {
            self.write_u16(GRAVES, self.u16_at(GRAVES) + 1);
        }
        self.bytes[HEADER_BYTES + place] = if was_passed { GRAVE } else { EMPTY };
    }
}

#[cfg(test)]
pub(super) fn begins_in_first_group(key: &[u8], groups: usize) -> bool {
    home(hash(key), groups) == 0
}
