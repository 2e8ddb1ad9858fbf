//! Long strings in chunks that are shared until they are changed.
//!
//! ```text
//! rope     length │ chunks: ● ● ● ● ●
//!                           │ │ │ │ └──▶ the last chunk: up to CHUNK_BYTES, grows by doubling
//!                           │ │ └─┴────▶ zeros, one chunk for all ropes, where nothing was ever written
//!                           │ └────────▶ a part of an allocation that came as a whole: a vector, or a block
//!                           └──────────▶ CHUNK_BYTES in a vector of their own
//! ```
//!
//! A clone of a rope shares all chunks, and so do replies and snapshots with those that they hold; a writer copies a
//! chunk that is shared before it changes the chunk. So a change costs O(its bytes), at most [`Rope::CHUNK_BYTES`] more
//! for each chunk that it touches, however long the rope is.
//!
//! Invariants: every chunk but the last has `CHUNK_BYTES` bytes, so the place of a byte is found by a division; the
//! last has at least one; `heap_bytes` is the memory of the chunks.

mod chunk;
mod part;
mod source;
#[cfg(test)]
mod tests;

use std::{fmt, ops::Range};

pub use chunk::Chunk;
use chunk::{CHUNK_BYTES_MAX, ChunkRange, grown_capacity};
use part::Part;
pub use source::{GrowingBlock, RopeSource};

/// A byte string in chunks of `CHUNK_BYTES`.
#[derive(Clone, Default)]
pub struct Rope<const CHUNK_BYTES: usize> {
    chunks: Vec<Chunk>,
    len: usize,
    /// Bytes that the chunks take on the heap.
    chunk_heap_bytes: usize,
}

impl<const CHUNK_BYTES: usize> fmt::Debug for Rope<CHUNK_BYTES> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Rope").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A copy of the bytes. O(n).
impl<const CHUNK_BYTES: usize> From<&[u8]> for Rope<CHUNK_BYTES> {
    fn from(bytes: &[u8]) -> Self {
        let mut rope = Self::default();
        rope.append(bytes);
        rope
    }
}

/// A rope of the bytes in their place: nothing is copied. O(chunks).
impl<const CHUNK_BYTES: usize> From<Vec<u8>> for Rope<CHUNK_BYTES> {
    fn from(bytes: Vec<u8>) -> Self {
        let mut rope = Self::default();
        if bytes.len() > CHUNK_BYTES {
            rope.adopt(bytes);
        } else if !bytes.is_empty() {
            rope.len = bytes.len();
            rope.push_chunk(Chunk::new(bytes));
        }
        rope
    }
}

impl<const CHUNK_BYTES: usize> Rope<CHUNK_BYTES> {
    /// Bytes of a chunk.
    pub const CHUNK_BYTES: usize = {
        assert!(CHUNK_BYTES > 0 && CHUNK_BYTES <= CHUNK_BYTES_MAX && CHUNK_BYTES.is_power_of_two());
        CHUNK_BYTES
    };

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes on the heap, as if nothing was shared but zeros. O(1).
    pub fn heap_bytes(&self) -> usize {
        self.chunk_heap_bytes + self.list_bytes()
    }

    /// Bytes that the list of the chunks takes. O(1).
    pub fn list_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Chunk>()
    }

    /// How long a chunk is.
    #[inline]
    fn chunk_len(&self, index: usize) -> usize {
        CHUNK_BYTES.min(self.len - index * CHUNK_BYTES)
    }

    /// The chunks that a range lies in, each with its part of the range. Bytes behind the end are left out.
    pub fn chunks(&self, range: Range<usize>) -> impl DoubleEndedIterator<Item = ChunkRange<'_>> {
        let range = range.start.min(self.len)..range.end.min(self.len);
        let first = range.start / Self::CHUNK_BYTES;
        let last = if range.is_empty() { first } else { range.end.div_ceil(CHUNK_BYTES) };
        (first..last).map(move |index| {
            let start = index * CHUNK_BYTES;
            (&self.chunks[index], range.start.max(start) - start..range.end.min(start + CHUNK_BYTES) - start)
        })
    }

    /// The bytes of a range in order, in pieces of which none is empty.
    pub fn slices(&self, range: Range<usize>) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.chunks(range).map(|(chunk, range)| &chunk.bytes()[range])
    }

    /// The byte at a place; `None` behind the end. O(1).
    #[inline]
    pub fn get(&self, at: usize) -> Option<u8> {
        (at < self.len).then(|| self.chunks[at / Self::CHUNK_BYTES].bytes()[at % CHUNK_BYTES])
    }

    /// Copies bytes from `at` on to `out`. Returns how many there were. O(out).
    pub fn read(&self, at: usize, out: &mut [u8]) -> usize {
        let mut read = 0;
        for slice in self.slices(at..at.saturating_add(out.len())) {
            out[read..read + slice.len()].copy_from_slice(slice);
            read += slice.len();
        }
        read
    }

    /// All bytes. O(n).
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        self.slices(0..self.len).for_each(|slice| bytes.extend_from_slice(slice));
        bytes
    }

    /// Works on a chunk, and keeps the account.
    fn edit_chunk(&mut self, index: usize, edit: impl FnOnce(&mut Chunk)) {
        let chunk = &mut self.chunks[index];
        let before = chunk.heap_bytes();
        edit(chunk);
        self.chunk_heap_bytes = self.chunk_heap_bytes - before + chunk.heap_bytes();
    }

    fn push_chunk(&mut self, chunk: Chunk) {
        self.chunk_heap_bytes += chunk.heap_bytes();
        self.chunks.push(chunk);
    }

    /// Appends a vector where it stands, behind full chunks. O(chunks).
    fn adopt(&mut self, bytes: Vec<u8>) {
        debug_assert!(self.len.is_multiple_of(CHUNK_BYTES));
        self.len += bytes.len();
        self.chunks.reserve(bytes.len().div_ceil(CHUNK_BYTES));
        Part::divide(bytes, CHUNK_BYTES).for_each(|part| self.push_chunk(Chunk::of_part(part)));
    }

    /// Overwrites bytes from `at` on. O(bytes + `CHUNK_BYTES`).
    ///
    /// # Panics
    /// When they would reach behind the end.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.len && bytes.len() <= self.len - at, "the bytes are inside");
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let (index, place) = (at / Self::CHUNK_BYTES, at % CHUNK_BYTES);
            let length = self.chunk_len(index);
            let (part, behind) = rest.split_at(rest.len().min(length - place));
            self.edit_chunk(index, |chunk| chunk.write(length, place, part));
            (at, rest) = (at + part.len(), behind);
        }
    }

    /// Appends bytes. O(bytes), amortized over many calls with few bytes.
    pub fn append(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        let last_length = self.len % Self::CHUNK_BYTES;
        if last_length > 0 && !rest.is_empty() {
            let part;
            (part, rest) = rest.split_at(rest.len().min(CHUNK_BYTES - last_length));
            self.edit_chunk(self.chunks.len() - 1, |chunk| chunk.append(last_length, part, CHUNK_BYTES));
            self.len += part.len();
        }
        let (whole_chunks, tail) = rest.split_at(rest.len() - rest.len() % CHUNK_BYTES);
        if whole_chunks.len() > CHUNK_BYTES {
            // A single large allocation takes far fewer page faults than many of the size of a chunk.
            self.adopt(whole_chunks.to_vec());
            rest = tail;
        }
        for part in rest.chunks(CHUNK_BYTES) {
            // A string that begins with few bytes may go on so.
            let capacity =
                if self.chunks.is_empty() { part.len() } else { grown_capacity(0, part.len(), CHUNK_BYTES) };
            let mut chunk = Vec::with_capacity(capacity);
            chunk.extend_from_slice(part);
            self.push_chunk(Chunk::new(chunk));
            self.len += part.len();
        }
    }

    /// Appends zeros until it is `len` long; does nothing if it is. O(`CHUNK_BYTES` + chunks): whole chunks of zeros
    /// take no memory.
    pub fn grow(&mut self, len: usize) {
        let last_length = self.len % Self::CHUNK_BYTES;
        if last_length > 0 && len > self.len {
            let length_after = CHUNK_BYTES.min(last_length + (len - self.len));
            let last = self.chunks.len() - 1;
            self.edit_chunk(last, |chunk| chunk.append_zeros(last_length, length_after, CHUNK_BYTES));
            self.len += length_after - last_length;
        }
        if len > self.len {
            self.chunks.resize_with(len.div_ceil(CHUNK_BYTES), Chunk::zeros);
            self.len = len;
        }
    }
}

impl<const CHUNK_BYTES: usize> Drop for Rope<CHUNK_BYTES> {
    fn drop(&mut self) {
        let mut parts: Vec<&mut Part> = self.chunks.iter_mut().filter_map(Chunk::part_mut).collect();
        Part::prepare_drop(&mut parts);
    }
}

impl<const CHUNK_BYTES: usize> PartialEq<[u8]> for Rope<CHUNK_BYTES> {
    fn eq(&self, other: &[u8]) -> bool {
        let mut rest = other;
        self.len == other.len()
            && self.slices(0..self.len).all(|slice| {
                let part;
                (part, rest) = rest.split_at(slice.len());
                part == slice
            })
    }
}
