//! Block deque: a list as a deque of listpacks, each of bounded size.
//!
//! ```text
//! blocks │ packed: listpack, count │ packed: listpack, count │ plain: one large element │ …
//! ```
//!
//! Both ends are O(1) but for the move inside one block. A position is found by passing over whole blocks
//! from the nearer end; their counts lie side by side, two to a cache line. An element that would not fit a
//! block of its own is kept alone, as a plain block.
//!
//! Which block an element goes to, when blocks split and which are merged is decided as in Redis's
//! quicklist, so that a list serializes to the same blocks here and there. Like there, removal leaves
//! neighbours apart that would fit one block.
//!
//! Invariants: no block is empty; `len` and `block_bytes` are exact; plain blocks count one element.

mod edit;
mod iter;
mod past;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZero;
use std::ops;
use std::sync::Arc;

pub use edit::ListEnd;
pub use iter::DequeRange;
use past::Pasts;
pub use past::{Past, SharedPast, lock_past};

use crate::{Element, Listpack, ListpackRef};

/// Bytes that an element takes in a block beside its text, at most.
const ENTRY_OVERHEAD: usize = 8;

/// How large blocks may grow, in the terms of the directive `list-max-listpack-size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimit {
    directive: i16,
    /// Length from which on an element is kept alone though the directive would not have it so.
    plain_bytes_min: Option<NonZero<u32>>,
}

impl BlockLimit {
    /// From the directive: -1 to -5 stand for 4, 8, 16, 32 and 64 KiB, smaller numbers for 64 KiB; others for
    /// as many elements, at most 32767, in up to 8 KiB.
    pub fn from_directive(value: i64) -> BlockLimit {
        BlockLimit { directive: value.clamp(-5, i64::from(i16::MAX)) as i16, plain_bytes_min: None }
    }

    /// This limit, but elements of `bytes` and more are kept alone, too, unless that is 0.
    pub fn with_plain_from(self, bytes: u32) -> BlockLimit {
        BlockLimit { plain_bytes_min: NonZero::new(bytes), ..self }
    }

    /// Bytes that a block may take.
    #[inline]
    pub fn bytes_max(self) -> usize {
        match self.directive {
            0.. => 8192,
            negative => 4096 << (-1 - negative),
        }
    }

    /// Whether blocks are limited by their bytes, not by a number of elements.
    fn is_in_bytes(self) -> bool {
        self.directive < 0
    }

    fn elements_max(self) -> usize {
        usize::try_from(self.directive).unwrap_or(usize::MAX)
    }

    /// Whether an element is too large to share a block.
    #[inline]
    fn is_large(self, element: Element<'_>) -> bool {
        matches!(element, Element::String(text) if text.len() > self.bytes_max())
            || self.plain_bytes_min.is_some_and(|bytes| element.text_len() >= bytes.get() as usize)
    }
}

/// A block, for callers that serialize it.
#[derive(Clone, Copy)]
pub enum BlockRef<'a> {
    /// Elements in a listpack, at least one.
    Packed(ListpackRef<'a>),
    /// A single large element.
    Plain(&'a [u8]),
}

/// A large element is never edited, and may be long: copies share it.
#[derive(Clone)]
enum Contents {
    Packed(Listpack),
    Plain(Arc<[u8]>),
}

/// The counts of an [`Arc`], which stand before its contents.
const ARC_HEAD_BYTES: usize = 2 * size_of::<usize>();

/// Elements that stand together.
#[derive(Clone)]
pub struct Block {
    contents: Contents,
    count: u32,
}

const _: () = assert!(size_of::<Block>() == 32, "two blocks to a cache line");

impl fmt::Debug for Block {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Block").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Block {
    fn packed(listpack: Listpack) -> Block {
        Block { count: listpack.len() as u32, contents: Contents::Packed(listpack) }
    }

    fn plain(element: Element<'_>) -> Block {
        Block { contents: Contents::Plain(element.text().into()), count: 1 }
    }

    #[inline]
    fn count(&self) -> usize {
        self.count as usize
    }

    /// The block, for callers that serialize it.
    #[inline]
    pub fn view(&self) -> BlockRef<'_> {
        match &self.contents {
            Contents::Packed(listpack) => BlockRef::Packed(listpack.view()),
            Contents::Plain(text) => BlockRef::Plain(text),
        }
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        match &self.contents {
            Contents::Packed(listpack) => listpack.capacity(),
            Contents::Plain(text) => ARC_HEAD_BYTES + text.len(),
        }
    }

    /// Whether there is an element whose text is `text`.
    fn contains(&self, text: &[u8]) -> bool {
        match self.view() {
            BlockRef::Packed(listpack) => listpack.find(text, 0).is_some(),
            BlockRef::Plain(own) => *own == *text,
        }
    }

    /// Whether `element` may join. As in Redis, by an estimate that is never too low.
    #[inline]
    fn admits(&self, element: Element<'_>, limit: BlockLimit) -> bool {
        match &self.contents {
            Contents::Packed(_) if limit.plain_bytes_min.is_some() && limit.is_large(element) => false,
            Contents::Packed(listpack) => {
                listpack.bytes().len() + element.text_len() + ENTRY_OVERHEAD <= limit.bytes_max()
                    && self.count() < limit.elements_max()
            }
            Contents::Plain(_) => false,
        }
    }
}

/// Blocks that were taken out of a deque, to be freed when no client waits.
#[derive(Default)]
pub struct TakenBlocks(VecDeque<Block>);

impl TakenBlocks {
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A list of strings and integers.
pub struct BlockDeque {
    blocks: VecDeque<Block>,
    len: usize,
    /// Sum of the blocks' heap bytes.
    block_bytes: usize,
    limit: BlockLimit,
    pasts: Pasts,
}

impl Clone for BlockDeque {
    fn clone(&self) -> BlockDeque {
        // A copy's blocks have no slack, so their bytes are counted anew.
        let mut copy = BlockDeque::new(self.limit);
        copy.blocks.reserve_exact(self.blocks.len());
        self.blocks.iter().for_each(|block| copy.insert_block(copy.blocks.len(), block.clone()));
        copy
    }
}

impl BlockDeque {
    /// A deque without elements; allocates nothing.
    pub fn new(limit: BlockLimit) -> BlockDeque {
        BlockDeque { blocks: VecDeque::new(), len: 0, block_bytes: 0, limit, pasts: Pasts::default() }
    }

    /// The elements of a listpack, which becomes the only block at any size.
    pub fn from_listpack(listpack: Listpack, limit: BlockLimit) -> BlockDeque {
        let mut deque = BlockDeque::new(limit);
        deque.push_packed(listpack);
        deque
    }

    /// The listpack that holds all elements, if there is only one block.
    pub fn single_listpack(&self) -> Option<&Listpack> {
        match self.blocks.front() {
            Some(Block { contents: Contents::Packed(listpack), .. }) if self.blocks.len() == 1 => {
                Some(listpack)
            }
            _ => None,
        }
    }

    /// Takes the listpack of [`Self::single_listpack`] out, and leaves no element.
    pub fn take_single_listpack(&mut self) -> Option<Listpack> {
        self.single_listpack()?;
        self.preserve(0);
        match std::mem::replace(self, BlockDeque::new(self.limit)).blocks.pop_front()?.contents {
            Contents::Packed(listpack) => Some(listpack),
            Contents::Plain(_) => unreachable!("just seen to be a listpack"),
        }
    }

    /// All elements in one listpack; `None` if they do not fit into one. O(n).
    pub fn to_listpack(&self) -> Option<Listpack> {
        let bytes = self.blocks().map(|block| match block {
            BlockRef::Packed(listpack) => listpack.bytes().len(),
            BlockRef::Plain(text) => Element::String(text).encoded_bytes(),
        });
        let bytes = bytes.sum();
        if !Listpack::new().fits(bytes) {
            return None;
        }
        let mut all = Listpack::with_capacity(bytes);
        for block in self.blocks() {
            match block {
                BlockRef::Packed(listpack) => all.append(listpack),
                BlockRef::Plain(text) => {
                    all.push(text);
                }
            }
        }
        Some(all)
    }

    /// How large blocks may grow.
    pub fn limit(&self) -> BlockLimit {
        self.limit
    }

    /// Number of elements. O(1).
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes on the heap, exactly as they were asked from the allocator. O(1).
    pub fn memory_bytes(&self) -> usize {
        self.block_bytes + self.blocks.capacity() * size_of::<Block>()
    }

    /// The blocks in order.
    pub fn blocks(&self) -> impl DoubleEndedIterator<Item = BlockRef<'_>> + ExactSizeIterator {
        self.blocks.iter().map(Block::view)
    }

    /// The element with number `index`. O(blocks from the nearer end).
    pub fn get(&self, index: usize) -> Option<Element<'_>> {
        let (block, at) = self.locate(index)?;
        Some(match &self.blocks[block].contents {
            Contents::Packed(listpack) => listpack.view().get(at as i64).expect("counts are exact"),
            Contents::Plain(text) => Element::String(text),
        })
    }

    /// The elements with these numbers, as far as they exist, from both ends.
    pub fn range(&self, range: ops::Range<usize>) -> DequeRange<'_> {
        DequeRange::new(self, range)
    }

    /// All elements, from both ends.
    pub fn iter(&self) -> DequeRange<'_> {
        self.range(0..self.len)
    }

    /// The block of the element with number `index`, and its number there.
    #[inline]
    fn locate(&self, index: usize) -> Option<(usize, usize)> {
        if index >= self.len {
            return None;
        }
        if index <= self.len / 2 {
            let mut before = 0;
            for (at, block) in self.blocks.iter().enumerate() {
                if index < before + block.count() {
                    return Some((at, index - before));
                }
                before += block.count();
            }
        } else {
            let mut start = self.len;
            for (at, block) in self.blocks.iter().enumerate().rev() {
                start -= block.count();
                if index >= start {
                    return Some((at, index - start));
                }
            }
        }
        unreachable!("the blocks count {} elements together", self.len)
    }
}

impl<'a> IntoIterator for &'a BlockDeque {
    type Item = Element<'a>;
    type IntoIter = DequeRange<'a>;

    fn into_iter(self) -> DequeRange<'a> {
        self.iter()
    }
}
