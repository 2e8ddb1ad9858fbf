//! Digests of the data set, for `DEBUG DIGEST` and `DEBUG DIGEST-VALUE`.
//!
//! They are computed as Redis computes them, so that a data set can be compared across servers:
//!
//! ```text
//! xor(d, x)    d ← d ⊕ SHA1(x)                     order does not matter
//! mix(d, x)    xor(d, x), then d ← SHA1(d)         order matters
//! value        mix(type), mix(value), xor("!!expire!!") where the key expires
//!   list       mix(element) for each element, in place of mix(value)
//!   set        xor(member) for each member, in place of mix(value)
//!   hash       xor(d') for each field, d' being a digest of mix(field), mix(value)
//!   sorted set the same of members and their scores
//!   stream     mix("ms.seq"), then mix(field), mix(value) for each field, of each entry
//! key          mix(name), then as its value
//! data set     for each database that is not empty: mix(number), xor of its keys' digests
//! ```
//! Numbers are 32 bits, big-endian.

use sha1::{Digest as _, Sha1};

use crate::{
    keyspace::EntryRef,
    value::{Object, exact_text},
};

/// The number of each type in a digest.
const TYPE_STRING: u32 = 0;
const TYPE_LIST: u32 = 1;
const TYPE_SET: u32 = 2;
const TYPE_SORTED_SET: u32 = 3;
const TYPE_HASH: u32 = 4;
const TYPE_STREAM: u32 = 6;
const EXPIRES: &[u8] = b"!!expire!!";

/// A digest under construction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Digest([u8; 20]);

impl Digest {
    /// Adds something whose place does not matter.
    fn xor(&mut self, bytes: &[u8]) {
        self.xor_hash(Sha1::digest(bytes).into());
    }

    fn xor_hash(&mut self, hash: [u8; 20]) {
        self.0.iter_mut().zip(hash).for_each(|(mine, other)| *mine ^= other);
    }

    /// Adds something whose place matters.
    fn mix(&mut self, bytes: &[u8]) {
        self.mix_hash(Sha1::digest(bytes).into());
    }

    fn mix_hash(&mut self, hash: [u8; 20]) {
        self.xor_hash(hash);
        self.0 = Sha1::digest(self.0).into();
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
                self.mix(&TYPE_STRING.to_be_bytes());
                let (string, mut hash) = (entry.string(), Sha1::new());
                let mut buffer = itoa::Buffer::new();
                string.pieces(&mut buffer, 0..string.len()).for_each(|(_, piece)| hash.update(piece));
                self.mix_hash(hash.finalize().into());
            }
            Some(Object::Hash(hash)) => {
                self.mix(&TYPE_HASH.to_be_bytes());
                hash.for_each(now_ms, |field, value| {
                    let mut pair = Self::default();
                    pair.mix(&field.text());
                    pair.mix(&value.text());
                    self.xor(&pair.0);
                });
            }
            Some(Object::List(list)) => {
                self.mix(&TYPE_LIST.to_be_bytes());
                list.iter().for_each(|element| self.mix(&element.text()));
            }
            Some(Object::Set(set)) => {
                self.mix(&TYPE_SET.to_be_bytes());
                set.for_each(|member| self.xor(&member.text()));
            }
            Some(Object::SortedSet(set)) => {
                self.mix(&TYPE_SORTED_SET.to_be_bytes());
                set.for_each(|member, score| {
                    let mut pair = Self::default();
                    pair.mix(&member.text());
                    pair.mix(exact_text(score).as_bytes());
                    self.xor(&pair.0);
                });
            }
            Some(Object::Stream(stream)) => {
                self.mix(&TYPE_STREAM.to_be_bytes());
                for entry in stream.log().iter() {
                    self.mix(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
                    for (field, value) in entry.fields() {
                        self.mix(&field.text());
                        self.mix(&value.text());
                    }
                }
            }
        }
        if entry.expiry().is_some() {
            self.xor(EXPIRES);
        }
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}
