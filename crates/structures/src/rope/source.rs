//! Bytes that arrive in one piece and become chunks of ropes without a copy.
//!
//! ```text
//! block     ├──────────── arrived ───────────┤ room ┊ address space ┤    GrowingBlock: never moves
//!                               ▼ full
//! source    ├──────────────────────────────────────────────────────┤    RopeSource: read as one slice
//! rope      ├ head ┼─ chunk ─┼─ chunk ─┼─ chunk ─┼─ chunk ─┼─ … ─┤       the chunks of a rope, from any place on
//! ```
//!
//! A reader of the source needs the bytes as they arrived, whatever holders its chunks have: the source holds a share
//! of each chunk, and a writer copies a shared chunk before it changes the chunk.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use super::{
    Chunk, Rope,
    part::{Allocation, Mapping, Part},
};

/// Memory that the announcement of a length alone is good for.
const FIRST_BYTES_MAX: usize = 1 << 20;
/// Blocks of at least this many bytes are mappings of their own, which grow without being copied. The system limits how many
/// mappings a process has, so shorter ones come from the allocator.
const MAPPED_BYTES_MIN: usize = if cfg!(any(test, miri)) { 64 * 1024 } else { 4 << 20 };

/// A block of bytes of a known length that are still arriving. Memory follows the bytes that have arrived.
pub struct GrowingBlock {
    memory: Memory,
    arrived: usize,
    length: usize,
}

enum Memory {
    /// As long as there is room.
    Vector(Vec<u8>),
    Mapping(Mapping),
}

impl Memory {
    fn room(&mut self) -> &mut [u8] {
        match self {
            Self::Vector(bytes) => bytes,
            Self::Mapping(mapping) => mapping.bytes_mut(),
        }
    }
}

impl fmt::Debug for GrowingBlock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { arrived, length, .. } = self;
        out.debug_struct("GrowingBlock")
            .field("arrived", arrived)
            .field("length", length)
            .finish_non_exhaustive()
    }
}

impl GrowingBlock {
    /// A block for `length` bytes.
    pub fn new(length: usize) -> Self {
        let mapping = (length >= MAPPED_BYTES_MIN).then(|| Mapping::reserve(length)).flatten();
        let memory =
            mapping.map_or_else(|| Memory::Vector(vec![0; length.min(FIRST_BYTES_MAX)]), Memory::Mapping);
        Self { memory, arrived: 0, length }
    }

    /// Bytes that have arrived.
    pub fn arrived(&self) -> usize {
        self.arrived
    }

    /// Bytes that have not.
    pub fn missing(&self) -> usize {
        self.length - self.arrived
    }

    /// Lets `fill` write at most `bytes_max` of the next bytes. `fill` answers how much of the room offered it has
    /// filled from the beginning on.
    ///
    /// # Panics
    /// When it claims to have filled more.
    pub fn fill_with<E>(
        &mut self,
        bytes_max: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        if self.memory.room().len().min(self.length) == self.arrived {
            self.grow();
        }
        let room = self.memory.room();
        let end = room.len().min(self.length).min(self.arrived.saturating_add(bytes_max));
        let room = &mut room[self.arrived..end];
        let filled = fill(room)?;
        assert!(filled <= room.len(), "no more is filled than there is room");
        self.arrived += filled;
        Ok(filled)
    }

    /// Appends bytes, as many as belong to the block. Returns how many.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let mut rest = &bytes[..bytes.len().min(self.missing())];
        let count = rest.len();
        while !rest.is_empty() {
            let filled = self.fill_with(rest.len(), |room| {
                let (part, _) = rest.split_at(room.len());
                room.copy_from_slice(part);
                Ok::<_, std::convert::Infallible>(part.len())
            });
            let Ok(filled) = filled;
            rest = &rest[filled..];
        }
        count
    }

    /// Gives it room for more bytes: as many as have arrived, or a first megabyte.
    fn grow(&mut self) {
        let wanted = self.arrived.saturating_mul(2).max(FIRST_BYTES_MAX).min(self.length);
        if let Memory::Mapping(mapping) = &mut self.memory {
            if mapping.commit(wanted) {
                return;
            }
            // Its address range is not memory that the system has. The allocator's answer to that holds.
            self.memory = Memory::Vector(mapping.bytes_mut()[..self.arrived].to_vec());
        }
        if let Memory::Vector(bytes) = &mut self.memory {
            bytes.reserve_exact(wanted - bytes.len());
            bytes.resize(wanted, 0);
        }
    }
}

/// Bytes in one piece that can become the chunks of a rope.
pub struct RopeSource<const CHUNK_BYTES: usize> {
    // In front of the division, so that it is dropped first: chunks that are all that is left of an allocation are freed at
    // once then.
    allocation: Arc<Allocation>,
    division: OnceLock<Division<CHUNK_BYTES>>,
}

/// How a source is divided: once, since the parts of an allocation do not overlap.
struct Division<const CHUNK_BYTES: usize> {
    skipped: usize,
    rope: Arc<Rope<CHUNK_BYTES>>,
}

impl<const CHUNK_BYTES: usize> fmt::Debug for RopeSource<CHUNK_BYTES> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RopeSource").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// All that has arrived. O(1), but for a block that has room for more.
impl<const CHUNK_BYTES: usize> From<GrowingBlock> for RopeSource<CHUNK_BYTES> {
    fn from(block: GrowingBlock) -> Self {
        let allocation = match block.memory {
            Memory::Mapping(mapping) => Allocation::of_mapping(mapping, block.arrived),
            Memory::Vector(mut bytes) => {
                bytes.truncate(block.arrived);
                Allocation::of_vector(bytes)
            }
        };
        Self { allocation, division: OnceLock::new() }
    }
}

impl<const CHUNK_BYTES: usize> RopeSource<CHUNK_BYTES> {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.allocation.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the parts of the allocation are the chunks of the division's rope. `self` holds a share of that rope
        // and so of each chunk, and the holder of another share changes neither a rope nor a chunk that is shared.
        unsafe { self.allocation.bytes() }
    }

    /// A rope of the bytes from a place on, that shares them. O(chunks) the first time, O(1) then; `None` if the source
    /// was divided from another place on.
    pub fn rope_from(&self, skipped: usize) -> Option<Arc<Rope<CHUNK_BYTES>>> {
        let division = self.division.get_or_init(|| {
            let mut rope = Rope::default();
            // SAFETY: this is done once for each source, which has made its allocation itself; and `bytes` says why no
            // part is changed while a reader may read all.
            rope.adopt_parts(unsafe {
                Part::divide_from(Arc::clone(&self.allocation), skipped, CHUNK_BYTES)
            });
            Division { skipped, rope: Arc::new(rope) }
        });
        (division.skipped == skipped).then(|| Arc::clone(&division.rope))
    }

    /// Whether the bytes have no other holder: dropping the source frees them.
    pub fn is_last(&self) -> bool {
        self.division.get().is_none_or(|division| Arc::strong_count(&division.rope) == 1)
    }
}

impl<const CHUNK_BYTES: usize> AsRef<[u8]> for RopeSource<CHUNK_BYTES> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl<const CHUNK_BYTES: usize> Rope<CHUNK_BYTES> {
    /// Appends parts: full ones behind full chunks, but for the last.
    fn adopt_parts(&mut self, parts: impl Iterator<Item = Part>) {
        debug_assert!(self.len.is_multiple_of(CHUNK_BYTES));
        for part in parts {
            self.len += part.len();
            self.push_chunk(Chunk::of_part(part));
        }
    }

    /// Appends all bytes of a source, sharing the parts that can stand in chunks. O(chunks + `CHUNK_BYTES`), unless it
    /// was divided otherwise before.
    pub fn append_source(&mut self, source: &RopeSource<CHUNK_BYTES>) {
        let (head, rest) = Self::split_source(source, self.len);
        let Some(rest) = rest else { return self.append(source.bytes()) };
        self.append(&source.bytes()[..head]);
        debug_assert!(self.len.is_multiple_of(CHUNK_BYTES));
        self.chunks.extend(rest.chunks.iter().cloned());
        self.chunk_heap_bytes += rest.chunk_heap_bytes;
        self.len += rest.len;
    }

    /// Overwrites bytes from `at` on with all of a source, sharing its bytes if they make whole chunks; the chunks
    /// whose places they take, which may be large. O(chunks + `CHUNK_BYTES`), unless it was divided otherwise before.
    ///
    /// # Panics
    /// When they would reach behind the end.
    pub fn write_source(&mut self, at: usize, source: &RopeSource<CHUNK_BYTES>) -> Self {
        assert!(at <= self.len && source.len() <= self.len - at, "the bytes are inside");
        let mut replaced = Self::default();
        let (head, rest) = Self::split_source(source, at);
        let Some(rest) = rest else {
            self.write(at, source.bytes());
            return replaced;
        };
        self.write(at, &source.bytes()[..head]);
        let first = (at + head) / Self::CHUNK_BYTES;
        let whole = rest.len / Self::CHUNK_BYTES;
        for (to, from) in self.chunks[first..first + whole].iter_mut().zip(&rest.chunks) {
            let before = std::mem::replace(to, from.clone());
            self.chunk_heap_bytes = self.chunk_heap_bytes - before.heap_bytes() + from.heap_bytes();
            replaced.push_chunk(before);
        }
        replaced.len = whole * CHUNK_BYTES;
        let written = head + whole * CHUNK_BYTES;
        self.write(at + written, &source.bytes()[written..]);
        replaced
    }

    /// How many of a source's bytes stand in front of the first whole chunk if it begins at a place of a rope, and a
    /// rope of those behind them, if these are a whole chunk at least.
    fn split_source(source: &RopeSource<CHUNK_BYTES>, at: usize) -> (usize, Option<Arc<Self>>) {
        let head = at.next_multiple_of(CHUNK_BYTES) - at;
        let has_chunk = source.len() >= head + CHUNK_BYTES;
        (head, has_chunk.then(|| source.rope_from(head)).flatten())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHUNK_BYTES: usize = 8 * 1024;
    const LENGTH_MAX: usize = if cfg!(miri) { 9 * CHUNK_BYTES } else { 40 * CHUNK_BYTES };

    fn numbers(length: usize, first: u8) -> Vec<u8> {
        (0..length).map(|at| first.wrapping_add((at % 251) as u8)).collect()
    }

    fn source(bytes: &[u8]) -> RopeSource<CHUNK_BYTES> {
        let mut block = GrowingBlock::new(bytes.len());
        assert_eq!(block.append(bytes), bytes.len());
        block.into()
    }

    fn rope(bytes: &[u8]) -> Rope<CHUNK_BYTES> {
        Rope::from(bytes)
    }

    /// Lengths on both sides of the places where chunks meet.
    fn length() -> impl Strategy<Value = usize> {
        let near = (0..LENGTH_MAX / CHUNK_BYTES, 0..4usize);
        prop_oneof![
            0..LENGTH_MAX,
            near.prop_map(|(chunk, near)| (chunk * CHUNK_BYTES + near).saturating_sub(2))
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 12 } else { 256 }))]

        #[test]
        fn block_has_the_bytes_that_arrive(length in length(), pieces in prop::collection::vec(1..30_000usize, 1..9)) {
            let bytes = numbers(length, 3);
            let mut block = GrowingBlock::new(length);
            for piece in pieces.iter().cycle() {
                if block.missing() == 0 {
                    break;
                }
                let arrived = block.arrived();
                let filled = block.fill_with(*piece, |room| {
                    assert!(!room.is_empty() && room.len() <= *piece);
                    room.copy_from_slice(&bytes[arrived..arrived + room.len()]);
                    Ok::<_, ()>(room.len())
                });
                prop_assert_eq!(block.arrived(), arrived + filled.unwrap());
            }
            let source: RopeSource<CHUNK_BYTES> = block.into();
            prop_assert!(source.bytes() == bytes);
        }

        #[test]
        fn source_is_appended_as_its_bytes_are(before in length(), length in length(), edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6)) {
            let (head, tail) = (numbers(before, 0), numbers(length, 100));
            let source = source(&tail);
            let mut rope = rope(&head);
            rope.append_source(&source);
            let mut expected = [head, tail.clone()].concat();
            prop_assert!(rope == expected[..]);
            check_account(&rope);
            for (at, byte) in edits {
                if !expected.is_empty() {
                    let at = at.index(expected.len());
                    expected[at] = byte;
                    rope.write(at, &[byte]);
                }
            }
            rope.append(b"behind");
            expected.extend_from_slice(b"behind");
            prop_assert!(rope == expected[..]);
            prop_assert!(source.bytes() == tail, "readers of the source see what has arrived");
            drop(source);
            rope.write(0, b"b");
            expected[0] = b'b';
            prop_assert!(rope == expected[..]);
            check_account(&rope);
        }

        #[test]
        fn source_is_written_as_its_bytes_are(at in length(), length in length(), behind in length()) {
            let mut expected = numbers(at + length + behind, 0);
            let mut rope = rope(&expected);
            let (written, before) = (numbers(length, 100), rope.clone());
            let source = source(&written);
            let replaced = rope.write_source(at, &source);
            let old = expected.clone();
            expected[at..at + length].copy_from_slice(&written);
            prop_assert!(rope == expected[..]);
            prop_assert!(before == old[..]);
            check_account(&rope);
            check_account(&replaced);
            let first = at.next_multiple_of(CHUNK_BYTES);
            prop_assert!(replaced.is_empty() || replaced == old[first..first + replaced.len()]);
        }
    }

    fn check_account(rope: &Rope<CHUNK_BYTES>) {
        assert_eq!(rope.chunk_heap_bytes, rope.chunks.iter().map(Chunk::heap_bytes).sum::<usize>());
    }

    #[test]
    fn memory_of_a_block_follows_what_has_arrived() {
        let mut block = GrowingBlock::new(512 << 20);
        block.append(b"x");
        assert_eq!(block.memory.room().len(), FIRST_BYTES_MAX);
        block.append(&vec![b'x'; FIRST_BYTES_MAX]);
        assert_eq!(block.memory.room().len(), 2 * FIRST_BYTES_MAX);
    }

    #[test]
    fn source_is_divided_once() {
        let source = source(&numbers(5 * CHUNK_BYTES, 0));
        assert!(source.is_last());
        let rope = source.rope_from(10).unwrap();
        assert!(!source.is_last());
        assert!(source.rope_from(0).is_none(), "parts do not overlap");
        assert!(*rope == source.bytes()[10..]);
        drop(rope);
        assert!(source.is_last());
        // A source that cannot share copies.
        let mut other = Rope::default();
        other.append_source(&source);
        assert!(other == *source.bytes());
    }

    #[test]
    fn rope_outlives_its_source() {
        let bytes = numbers(3 * CHUNK_BYTES + 1, 7);
        let source = source(&bytes);
        let rope = source.rope_from(0).unwrap();
        drop(source);
        let reader = std::thread::spawn({
            let rope = Arc::clone(&rope);
            move || rope.to_vec()
        });
        assert_eq!(rope.to_vec(), bytes);
        assert_eq!(reader.join().unwrap(), bytes);
    }
}
