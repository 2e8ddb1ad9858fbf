//! Digests of the data set, for `DEBUG DIGEST` and `DEBUG DIGEST-VALUE`.
//!
//! The digests are computed as Redis computes them, so that a data set can be compared across servers:
//!
//! ```text
//! xor(d, x)    d ← d ⊕ SHA1(x)                     order does not matter
//! mix(d, x)    xor(d, x), then d ← SHA1(d)         order matters
//! value        mix(type), mix(value), xor("!!expire!!") where the key expires
//!   list       mix(element) for each element, in place of mix(value)
//!   set        xor(member) for each member, in place of mix(value)
//!   hash       xor(d') for each field, d' being a digest of mix(field), mix(value), and xor("!!hexpire!!") if the field
//!              expires; servers of Valkey leave that out
//!   sorted set the same of members and their scores
//!   stream     mix("ms.seq"), then mix(field), mix(value) for each field, of each entry
//!   JSON       mix(text); Redis leaves documents out
//!   array      mix(index), mix(value) for each value; not compared with a server of Redis 8.8 yet
//! key          mix(name), then as its value
//! data set     for each database that is not empty: mix(number), xor of its keys' digests
//! ```
//! Numbers are 32 bits, big-endian.

use sha1::{Digest as _, Sha1};

use crate::{
    keyspace::EntryRef,
    value::{Stored, ValueType, each},
};

const EXPIRES: &[u8] = b"!!expire!!";
const FIELD_EXPIRES: &[u8] = b"!!hexpire!!";

/// A digest under construction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Digest([u8; 20]);

impl Digest {
    /// Adds something whose place does not matter.
    pub(crate) fn xor(&mut self, bytes: &[u8]) {
        self.xor_hash(Sha1::digest(bytes).into());
    }

    fn xor_hash(&mut self, hash: [u8; 20]) {
        self.0.iter_mut().zip(hash).for_each(|(mine, other)| *mine ^= other);
    }

    /// Adds something whose place matters.
    pub(crate) fn mix(&mut self, bytes: &[u8]) {
        self.mix_hash(Sha1::digest(bytes).into());
    }

    fn mix_hash(&mut self, hash: [u8; 20]) {
        self.xor_hash(hash);
        self.0 = Sha1::digest(self.0).into();
    }

    /// Adds two texts that belong together, the place of the pair among others does not matter.
    pub(crate) fn xor_pair(&mut self, one: &[u8], other: &[u8]) {
        let mut pair = Self::default();
        pair.mix(one);
        pair.mix(other);
        self.xor(&pair.0);
    }

    /// Does what [`Self::xor_pair`] does, for a field of a hash.
    pub(crate) fn xor_field(&mut self, field: &[u8], value: &[u8], expires: bool) {
        let mut pair = Self::default();
        pair.mix(field);
        pair.mix(value);
        if expires {
            pair.xor(FIELD_EXPIRES);
        }
        self.xor(&pair.0);
    }

    /// Begins with a database of the data set; call it for those that are not empty.
    pub(crate) fn mix_database(&mut self, number: usize) {
        self.mix(&(number as u32).to_be_bytes());
    }

    /// Adds a key and its value to the data set.
    pub(crate) fn add_key(&mut self, entry: EntryRef<'_>, now_ms: u64) {
        let mut digest = Self::default();
        digest.mix(entry.key());
        digest.add_value(entry, now_ms);
        self.xor(&digest.0);
    }

    /// Adds a value without its key.
    pub(crate) fn add_value(&mut self, entry: EntryRef<'_>, now_ms: u64) {
        match entry.object() {
            None => {
                self.mix(&number_of(ValueType::String).to_be_bytes());
                let (string, mut hash) = (entry.string(), Sha1::new());
                let mut buffer = itoa::Buffer::new();
                string.pieces(&mut buffer, 0..string.len()).for_each(|(_, piece)| hash.update(piece));
                self.mix_hash(hash.finalize().into());
            }
            Some(object) => {
                self.mix(&number_of(object.value_type()).to_be_bytes());
                each!(&*object, collection => collection.digest(now_ms, self));
            }
        }
        if entry.expiry().is_some() {
            self.xor(EXPIRES);
        }
    }
}

/// The number of a type in a digest.
fn number_of(value_type: ValueType) -> u32 {
    match value_type {
        ValueType::String => 0,
        ValueType::List => 1,
        ValueType::Set => 2,
        ValueType::SortedSet => 3,
        ValueType::Hash => 4,
        ValueType::Json | ValueType::Foreign => 5,
        ValueType::Stream => 6,
        ValueType::Array => 7,
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}
