//! Edits of the block deque. All of them keep its sums, and the blocks that its pasts need, through `edit_packed`,
//! `insert_block`,
//! `detach_block` and `take_blocks`.

use std::{collections::VecDeque, mem, ops};

use super::{Block, BlockDeque, Contents, ENTRY_OVERHEAD, TakenBlocks};
use crate::{Element, LISTPACK_BYTES_EMPTY, Listpack};

/// Blocks from which on a new one at an end gets all the room that it may need at once, instead of growing:
/// the rest of the list is large enough to hide it.
const FULL_BLOCKS_MIN: usize = 8;
/// Slack of a block that is done growing, as a part of its allocation, that is not worth a copy.
const SLACK_PART: usize = 32;

/// An end of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListEnd {
    /// Number 0.
    Front,
    /// Number len - 1.
    Back,
}

impl BlockDeque {
    /// Adds an element at one end.
    pub fn push<'e>(&mut self, end: ListEnd, element: impl Into<Element<'e>>) {
        let element = element.into();
        let (beside, new) = match end {
            ListEnd::Front => (0, 0),
            ListEnd::Back => (self.blocks.len().saturating_sub(1), self.blocks.len()),
        };
        if self.admits(beside, element) {
            let bytes_max = self.limit.bytes_max();
            let additional = element.text_len() + ENTRY_OVERHEAD;
            self.edit_packed(beside, 1, |listpack| {
                listpack.reserve_within(additional, end == ListEnd::Front, bytes_max);
                match end {
                    ListEnd::Front => listpack.push_front(element),
                    ListEnd::Back => listpack.push(element),
                }
            });
        } else {
            // The block beside does not grow soon: its slack goes back.
            self.shrink(beside);
            let mut block = self.block_of(element);
            if let Contents::Packed(listpack) = &mut block.contents
                && self.blocks.len() >= FULL_BLOCKS_MIN
                && self.limit.is_in_bytes()
            {
                let bytes_max = self.limit.bytes_max();
                let additional = bytes_max.saturating_sub(listpack.bytes().len());
                listpack.reserve_within(additional, end == ListEnd::Front, bytes_max);
            }
            self.insert_block(new, block);
        }
    }

    /// Adds an element before all others.
    pub fn push_front<'e>(&mut self, element: impl Into<Element<'e>>) {
        self.push(ListEnd::Front, element);
    }

    /// Adds an element behind all others.
    pub fn push_back<'e>(&mut self, element: impl Into<Element<'e>>) {
        self.push(ListEnd::Back, element);
    }

    /// Shows the element at one end to `see`, then removes it.
    pub fn pop<R>(&mut self, end: ListEnd, see: impl FnOnce(Element<'_>) -> R) -> Option<R> {
        let block = match end {
            ListEnd::Front => 0,
            ListEnd::Back => self.blocks.len().checked_sub(1)?,
        };
        let seen;
        match &self.blocks.get(block)?.contents {
            Contents::Plain(text) => {
                seen = see(Element::String(text));
                self.remove_block(block);
            }
            Contents::Packed(listpack) => {
                let view = listpack.view();
                let position = match end {
                    ListEnd::Front => view.first(),
                    ListEnd::Back => view.last(),
                };
                let position = position.expect("no block is empty");
                seen = see(view.element(position));
                if self.blocks[block].count() == 1 {
                    self.remove_block(block);
                } else {
                    self.edit_packed(block, -1, |listpack| listpack.remove(position));
                }
            }
        }
        Some(seen)
    }

    /// Puts an element before the one with number `index`. False if there is none.
    pub fn insert_before<'e>(&mut self, index: usize, element: impl Into<Element<'e>>) -> bool {
        self.insert(index, ListEnd::Front, element.into())
    }

    /// Puts an element behind the one with number `index`. False if there is none.
    pub fn insert_after<'e>(&mut self, index: usize, element: impl Into<Element<'e>>) -> bool {
        self.insert(index, ListEnd::Back, element.into())
    }

    /// Puts an element on one side of the one with number `index`: into the same block if that has room,
    /// else beyond its border when the place is there, else between the halves of the block.
    fn insert(&mut self, index: usize, side: ListEnd, element: Element<'_>) -> bool {
        let Some((block, at)) = self.locate(index) else { return false };
        let after = side == ListEnd::Back;
        // The place of the new element among those of the block.
        let place = at + usize::from(after);
        if !self.limit.is_large(element) && self.admits(block, element) {
            self.edit_packed(block, 1, |listpack| {
                let position = listpack.view().seek(at as i64).expect("counts are exact");
                match side {
                    ListEnd::Front => listpack.insert_before(position, element),
                    ListEnd::Back => listpack.insert_after(position, element),
                }
            });
            return true;
        }
        let on_border = if after { place == self.blocks[block].count() } else { place == 0 };
        if on_border {
            let neighbour = if after { Some(block + 1) } else { block.checked_sub(1) };
            match neighbour {
                Some(neighbour) if self.admits(neighbour, element) => {
                    self.edit_packed(neighbour, 1, |listpack| match side {
                        ListEnd::Front => listpack.push(element),
                        ListEnd::Back => listpack.push_front(element),
                    });
                }
                _ => self.insert_block(block + usize::from(after), self.block_of(element)),
            }
            return true;
        }
        // Redis may leave a half empty here (an element before the first), which cannot be: not on a border.
        self.split(block, place);
        if self.limit.is_large(element) {
            self.insert_block(block + 1, self.block_of(element));
            self.merge_around(if after { block } else { block + 2 });
        } else if after {
            self.edit_packed(block + 1, 1, |listpack| listpack.push_front(element));
            self.merge_around(block);
        } else {
            self.edit_packed(block, 1, |listpack| listpack.push(element));
            self.merge_around(block + 1);
        }
        true
    }

    /// Puts an element in the place of the one with number `index`. False if there is none.
    pub fn set<'e>(&mut self, index: usize, element: impl Into<Element<'e>>) -> bool {
        let element = element.into();
        let Some((block, at)) = self.locate(index) else { return false };
        let packed = matches!(self.blocks[block].contents, Contents::Packed(_));
        match (packed, self.limit.is_large(element)) {
            (true, false) => self.edit_packed(block, 0, |listpack| {
                let position = listpack.view().seek(at as i64).expect("counts are exact");
                listpack.replace(position, element);
            }),
            (false, true) => {
                self.remove_block(block);
                self.insert_block(block, self.block_of(element));
            }
            _ => {
                self.insert_after(index, element);
                self.remove_range(index..index + 1);
            }
        }
        true
    }

    /// Removes the elements with these numbers, as far as they exist; answers how many. Frees the blocks that went.
    pub fn remove_range(&mut self, range: ops::Range<usize>) -> usize {
        self.take_range(range).0
    }

    /// Removes the elements with these numbers, as far as they exist; answers how many, and the blocks that went as
    /// a whole, which the caller may free if that delays no client. O(blocks).
    pub fn take_range(&mut self, range: ops::Range<usize>) -> (usize, TakenBlocks) {
        let count = range.end.min(self.len).saturating_sub(range.start);
        let mut left = count;
        let Some((mut block, at)) = self.locate(range.start).filter(|_| count > 0) else {
            return (0, TakenBlocks::default());
        };
        if at > 0 {
            let part = left.min(self.blocks[block].count() - at);
            self.remove_within(block, at, part);
            left -= part;
            block += 1;
        }
        let mut end = block;
        while end < self.blocks.len() && self.blocks[end].count() <= left {
            left -= self.blocks[end].count();
            end += 1;
        }
        let taken = self.take_blocks(block..end);
        if left > 0 {
            self.remove_within(block, 0, left);
        }
        (count, taken)
    }

    /// Removes all elements but those with these numbers.
    pub fn trim(&mut self, keep: ops::Range<usize>) {
        let start = keep.start.min(keep.end);
        self.remove_range(keep.end..self.len);
        self.remove_range(0..start);
        if start == keep.end {
            self.remove_range(0..self.len);
        }
    }

    /// Removes up to `count` elements whose text is `text`, the nearest to `end` first; answers how many.
    pub fn remove_equal(&mut self, text: &[u8], count: usize, end: ListEnd) -> usize {
        let mut removed = 0;
        for turn in 0..self.blocks.len() {
            if removed == count {
                break;
            }
            let block = match end {
                ListEnd::Front => turn,
                ListEnd::Back => self.blocks.len() - 1 - turn,
            };
            removed += self.remove_equal_within(block, text, count - removed, end);
        }
        // In one pass, not one by one: each removal from the deque would move half of it.
        if self.blocks.iter().any(|block| block.count == 0) {
            self.pasts.note_emptied(&self.blocks);
            let block_bytes = &mut self.block_bytes;
            self.blocks.retain(|block| {
                if block.count == 0 {
                    *block_bytes -= block.heap_bytes();
                }
                block.count > 0
            });
            self.shrink_deque();
        }
        removed
    }

    /// Removes from one block, which may be left empty.
    fn remove_equal_within(&mut self, block: usize, text: &[u8], count: usize, end: ListEnd) -> usize {
        if !self.pasts.are_none() && self.blocks[block].contains(text) {
            self.preserve(block);
        }
        let listpack = match &mut self.blocks[block].contents {
            Contents::Packed(listpack) => listpack,
            Contents::Plain(own) => {
                let equal = **own == *text;
                if equal {
                    self.blocks[block].count = 0;
                    self.len -= 1;
                }
                return usize::from(equal);
            }
        };
        let mut removed = 0;
        match end {
            ListEnd::Front => {
                let mut from = listpack.view().first();
                while removed < count
                    && let Some(position) = listpack.view().find_from(from, text, 0)
                {
                    from = listpack.remove(position);
                    removed += 1;
                }
            }
            ListEnd::Back => {
                let mut from = listpack.view().last();
                while removed < count
                    && let Some(position) = from
                {
                    from = listpack.view().previous(position);
                    if listpack.view().element(position).eq_bytes(text) {
                        listpack.remove(position);
                        removed += 1;
                    }
                }
            }
        }
        // Entries that are removed already are only counted here.
        self.edit_packed(block, -(removed as isize), |_| ());
        removed
    }

    /// Appends a listpack of any size from a serialized list as a block; one without elements is dropped.
    pub fn push_packed(&mut self, listpack: Listpack) {
        if !listpack.is_empty() {
            self.insert_block(self.blocks.len(), Block::packed(listpack));
        }
    }

    /// Appends an element of any size from a serialized list as a plain block.
    pub fn push_plain(&mut self, text: &[u8]) {
        self.insert_block(self.blocks.len(), Block::plain(Element::String(text)));
    }

    #[inline(always)]
    fn admits(&self, block: usize, element: Element<'_>) -> bool {
        self.blocks.get(block).is_some_and(|block| block.admits(element, self.limit))
    }

    /// A block of its own for an element.
    fn block_of(&self, element: Element<'_>) -> Block {
        if self.limit.is_large(element) {
            return Block::plain(element);
        }
        let mut listpack = Listpack::with_capacity(LISTPACK_BYTES_EMPTY + element.encoded_bytes());
        listpack.push(element);
        Block::packed(listpack)
    }

    /// Changes a listpack by `added` elements, or counts a change that is done.
    fn edit_packed<R>(&mut self, block: usize, added: isize, edit: impl FnOnce(&mut Listpack) -> R) -> R {
        self.preserve(block);
        let block = &mut self.blocks[block];
        let Contents::Packed(listpack) = &mut block.contents else {
            unreachable!("plain blocks are replaced, not edited")
        };
        let before = listpack.capacity();
        let answer = edit(listpack);
        // A block that shrank to a third of its room gives the rest back; it costs one copy for two thirds.
        if added < 0 && listpack.capacity() > 64 && listpack.bytes().len() < listpack.capacity() / 3 {
            listpack.shrink_to_fit();
        }
        self.block_bytes = self.block_bytes - before + listpack.capacity();
        block.count = (block.count as isize + added) as u32;
        self.len = self.len.strict_add_signed(added);
        answer
    }

    /// Removes some, not all, elements of a block.
    fn remove_within(&mut self, block: usize, at: usize, count: usize) {
        let removed =
            self.edit_packed(block, -(count as isize), |listpack| listpack.remove_range(at as i64, count));
        debug_assert_eq!(removed, count);
    }

    pub(super) fn insert_block(&mut self, at: usize, block: Block) {
        self.len += block.count();
        self.block_bytes += block.heap_bytes();
        if self.blocks.len() == self.blocks.capacity() {
            // An eighth more, not double: the deque of a list with one block stays small.
            self.blocks.reserve_exact(1 + self.blocks.len() / 8);
        }
        self.blocks.insert(at, block);
        self.pasts.note_inserted(at);
    }

    fn remove_block(&mut self, at: usize) {
        drop(self.detach_block(at));
        self.shrink_deque();
    }

    /// Takes a block out.
    fn detach_block(&mut self, at: usize) -> Block {
        self.preserve(at);
        let block = self.blocks.remove(at).expect("a block that is there");
        self.len -= block.count();
        self.block_bytes -= block.heap_bytes();
        self.pasts.note_removed(at..at + 1);
        block
    }

    /// Keeps a block as it was, before it changes.
    #[inline]
    pub(super) fn preserve(&mut self, at: usize) {
        self.pasts.keep(at, &self.blocks);
    }

    /// Takes blocks out. Whichever are fewer are moved, those or the others.
    fn take_blocks(&mut self, range: ops::Range<usize>) -> TakenBlocks {
        if range.is_empty() {
            return TakenBlocks::default();
        }
        let start = range.start;
        for block in self.blocks.range(range.clone()) {
            self.len -= block.count();
            self.block_bytes -= block.heap_bytes();
        }
        let taken = if range.len() > self.blocks.len() / 2 {
            let behind = self.blocks.split_off(range.end);
            let mut staying: VecDeque<Block> = self.blocks.drain(..range.start).collect();
            staying.extend(behind);
            mem::replace(&mut self.blocks, staying)
        } else {
            self.blocks.drain(range).collect()
        };
        self.shrink_deque();
        TakenBlocks(self.pasts.keep_taken(start, taken))
    }

    fn shrink_deque(&mut self) {
        if self.blocks.len() < self.blocks.capacity() / 3 {
            self.blocks.shrink_to_fit();
        }
    }

    /// Gives back the part of a block's allocation that it does not use.
    fn shrink(&mut self, block: usize) {
        if let Some(Block { contents: Contents::Packed(listpack), .. }) = self.blocks.get_mut(block)
            && listpack.capacity() - listpack.bytes().len() > listpack.capacity() / SLACK_PART
        {
            self.block_bytes -= listpack.capacity();
            listpack.shrink_to_fit();
            self.block_bytes += listpack.capacity();
        }
    }

    /// Makes two blocks of one: the elements from number `at` on go to the second. Neither is empty.
    fn split(&mut self, block: usize, at: usize) {
        let moved = self.blocks[block].count() - at;
        let tail = self.edit_packed(block, -(moved as isize), |listpack| {
            let position = listpack.view().seek(at as i64).expect("counts are exact");
            listpack.split_off(position)
        });
        self.insert_block(block + 1, Block::packed(tail));
    }

    /// Merges blocks that fit one around `centre`, in the order in which Redis does after a split.
    fn merge_around(&mut self, mut centre: usize) {
        if centre >= 2 && self.merge(centre - 2) {
            centre -= 1;
        }
        self.merge(centre + 1);
        if centre >= 1 && self.merge(centre - 1) {
            centre -= 1;
        }
        self.merge(centre);
    }

    /// Merges a block with the next one, if there is one and both fit one block.
    fn merge(&mut self, block: usize) -> bool {
        let (Some(first), Some(second)) = (self.blocks.get(block), self.blocks.get(block + 1)) else {
            return false;
        };
        let (Contents::Packed(one), Contents::Packed(two)) = (&first.contents, &second.contents) else {
            return false;
        };
        // Redis 7.0 estimates the merged size by taking off 11 bytes, the frame of the former ziplist; so a
        // block may exceed the limit by the difference to a listpack's frame.
        let bytes = (one.bytes().len() + two.bytes().len()).saturating_sub(11);
        let added = second.count();
        if bytes > self.limit.bytes_max() || first.count() + added > self.limit.elements_max() {
            return false;
        }
        let second = self.detach_block(block + 1);
        if let Contents::Packed(two) = &second.contents {
            self.edit_packed(block, added as isize, |one| one.append(two.view()));
        }
        true
    }
}
