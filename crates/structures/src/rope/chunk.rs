//! The chunks of a rope: bytes that are copied when they are changed while others hold them, too.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use super::part::Part;

/// Bytes of the longest chunk that there can be.
pub(super) const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Capacity of a chunk that begins with few bytes.
const CAPACITY_MIN: usize = 4096;
/// Bytes that a chunk takes besides its own.
const HEAD_BYTES: usize = size_of::<ChunkBytes>() + 2 * size_of::<usize>();

/// Some of a rope's bytes. A clone shares them.
#[derive(Clone)]
pub struct Chunk(Arc<ChunkBytes>);

enum ChunkBytes {
    /// In a vector of their own.
    Own(Vec<u8>),
    /// In a part of an allocation that other chunks have the rest of.
    Part(Part),
}

impl AsRef<[u8]> for ChunkBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Part(part) => part,
        }
    }
}

/// The zeros that all chunks share of which nothing was ever written.
static ZEROS: OnceLock<Chunk> = OnceLock::new();

impl Chunk {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self(Arc::new(ChunkBytes::Own(bytes)))
    }

    pub(super) fn of_part(part: Part) -> Self {
        Self(Arc::new(ChunkBytes::Part(part)))
    }

    /// Zeros, as many as the longest chunk has. The zeros take no memory until they are read.
    pub(super) fn zeros() -> Self {
        ZEROS.get_or_init(|| Self::new(vec![0; CHUNK_BYTES_MAX])).clone()
    }

    /// Whether it is those zeros.
    pub(super) fn is_zeros(&self) -> bool {
        ZEROS.get().is_some_and(|zeros| Arc::ptr_eq(&self.0, &zeros.0))
    }

    /// The bytes; more than the rope has of them if they are shared zeros.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_ref().as_ref()
    }

    /// A share of the bytes, for callers that need not know of ropes.
    pub fn share(&self) -> Arc<dyn AsRef<[u8]> + Send + Sync> {
        // Named, since the other `clone` would not be one of the trait object.
        let share: Arc<ChunkBytes> = Arc::clone(&self.0);
        share
    }

    /// Bytes that it takes on the heap, counted for each holder; none for shared zeros.
    pub(super) fn heap_bytes(&self) -> usize {
        match &*self.0 {
            _ if self.is_zeros() => 0,
            ChunkBytes::Own(bytes) => HEAD_BYTES + bytes.capacity(),
            ChunkBytes::Part(part) => HEAD_BYTES + part.len(),
        }
    }

    /// Its part of an allocation, if it is one without other holders.
    pub(super) fn part_mut(&mut self) -> Option<&mut Part> {
        match Arc::get_mut(&mut self.0)? {
            ChunkBytes::Own(_) => None,
            ChunkBytes::Part(part) => Some(part),
        }
    }

    /// Overwrites some of its first `length` bytes, which are all that the rope has of them.
    pub(super) fn write(&mut self, length: usize, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= length && length <= self.bytes().len());
        if bytes.len() == length {
            // Nothing is left of the former bytes.
            if let Some(own) = self.own_mut(length) {
                own.copy_from_slice(bytes);
            } else {
                *self = Self::new(bytes.to_vec());
            }
            return;
        }
        let range = at..at + bytes.len();
        match self.own_mut(length) {
            Some(own) => own[range].copy_from_slice(bytes),
            None => {
                let mut copy = self.copied(length, length);
                copy[range].copy_from_slice(bytes);
                *self = Self::new(copy);
            }
        }
    }

    /// Appends to its first `length` bytes, which are all that the rope has of them; it may become `length_max` long.
    pub(super) fn append(&mut self, length: usize, bytes: &[u8], length_max: usize) {
        self.extend(length, length + bytes.len(), length_max, |own| own.extend_from_slice(bytes));
    }

    /// Appends zeros after the first `length` bytes, until the chunk is `length_after` long.
    pub(super) fn append_zeros(&mut self, length: usize, length_after: usize, length_max: usize) {
        // Shared zeros go on as they are.
        if !self.is_zeros() {
            self.extend(length, length_after, length_max, |own| own.resize(length_after, 0));
        }
    }

    fn extend(
        &mut self,
        length: usize,
        length_after: usize,
        length_max: usize,
        extend: impl FnOnce(&mut Vec<u8>),
    ) {
        debug_assert!(length <= length_after && length_after <= length_max);
        if let Some(ChunkBytes::Own(own)) = Arc::get_mut(&mut self.0) {
            debug_assert_eq!(own.len(), length);
            if own.capacity() < length_after {
                own.reserve_exact(grown_capacity(own.capacity(), length_after, length_max) - length);
            }
            return extend(own);
        }
        let mut copy = self.copied(length, grown_capacity(length, length_after, length_max));
        extend(&mut copy);
        *self = Self::new(copy);
    }

    /// The first `length` bytes, if they have no other holder.
    fn own_mut(&mut self, length: usize) -> Option<&mut [u8]> {
        match Arc::get_mut(&mut self.0)? {
            ChunkBytes::Own(own) => Some(&mut own[..length]),
            ChunkBytes::Part(part) => Some(&mut part[..length]),
        }
    }

    /// A copy of the first `length` bytes, with room for more.
    fn copied(&self, length: usize, capacity: usize) -> Vec<u8> {
        if self.is_zeros() && length == capacity {
            return vec![0; length];
        }
        let mut copy = Vec::with_capacity(capacity);
        copy.extend_from_slice(&self.bytes()[..length]);
        copy
    }
}

/// The capacity of a chunk that grows to `length`, so that many small pieces cost O(1) each.
pub(super) fn grown_capacity(capacity: usize, length: usize, length_max: usize) -> usize {
    (2 * capacity).max(CAPACITY_MIN).min(length_max).max(length)
}

/// A chunk with the range of its bytes that is meant.
pub(super) type ChunkRange<'a> = (&'a Chunk, Range<usize>);
