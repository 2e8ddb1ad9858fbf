//! Iteration over the elements of blocks.

use std::ops::Range;

use super::{Block, BlockDeque, Contents};
use crate::{Element, Elements};

/// The rest of one block.
#[derive(Clone)]
enum Cursor<'a> {
    Packed(Elements<'a>),
    Plain(&'a [u8]),
    Done,
}

impl<'a> Cursor<'a> {
    fn whole(block: &'a Block) -> Cursor<'a> {
        match &block.contents {
            Contents::Packed(listpack) => Cursor::Packed(listpack.view().iter()),
            Contents::Plain(text) => Cursor::Plain(text),
        }
    }

    fn from(block: &'a Block, at: usize) -> Cursor<'a> {
        match &block.contents {
            Contents::Packed(listpack) => {
                let view = listpack.view();
                view.seek(at as i64).map_or(Cursor::Done, |position| Cursor::Packed(view.iter_from(position)))
            }
            Contents::Plain(text) => Cursor::Plain(text),
        }
    }

    fn through(block: &'a Block, at: usize) -> Cursor<'a> {
        match &block.contents {
            Contents::Packed(listpack) => {
                let view = listpack.view();
                let last = view.seek(at as i64);
                last.map_or(Cursor::Done, |position| Cursor::Packed(view.iter_through(position)))
            }
            Contents::Plain(text) => Cursor::Plain(text),
        }
    }

    #[inline]
    fn take(&mut self, next: impl FnOnce(&mut Elements<'a>) -> Option<Element<'a>>) -> Option<Element<'a>> {
        match self {
            Cursor::Packed(elements) => next(elements),
            Cursor::Plain(text) => {
                let element = Element::String(text);
                *self = Cursor::Done;
                Some(element)
            }
            Cursor::Done => None,
        }
    }
}

/// The elements of a range of numbers, from both ends.
#[derive(Clone)]
pub struct DequeRange<'a> {
    deque: &'a BlockDeque,
    left: usize,
    front: Cursor<'a>,
    /// Number of the block behind the one that `front` reads.
    front_next: usize,
    back: Cursor<'a>,
    /// Number of the block that `back` reads.
    back_block: usize,
    /// Number of the element behind the last one, until `back` is placed: most ranges are read from the
    /// front only.
    end: Option<usize>,
}

impl<'a> DequeRange<'a> {
    pub(super) fn new(deque: &'a BlockDeque, range: Range<usize>) -> DequeRange<'a> {
        let end = range.end.min(deque.len);
        let mut elements = DequeRange {
            deque,
            left: end.saturating_sub(range.start),
            front: Cursor::Done,
            front_next: 0,
            back: Cursor::Done,
            back_block: 0,
            end: Some(end),
        };
        if elements.left > 0 {
            let (block, at) = deque.locate(range.start).expect("start < end <= len");
            elements.front = Cursor::from(&deque.blocks[block], at);
            elements.front_next = block + 1;
        }
        elements
    }

    fn place_back(&mut self, end: usize) {
        let (block, at) = self.deque.locate(end - 1).expect("end <= len");
        self.back = Cursor::through(&self.deque.blocks[block], at);
        self.back_block = block;
    }
}

impl<'a> Iterator for DequeRange<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        self.left = self.left.checked_sub(1)?;
        loop {
            if let Some(element) = self.front.take(Iterator::next) {
                return Some(element);
            }
            self.front = Cursor::whole(&self.deque.blocks[self.front_next]);
            self.front_next += 1;
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for DequeRange<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        if let Some(end) = self.end.take() {
            self.place_back(end);
        }
        loop {
            if let Some(element) = self.back.take(DoubleEndedIterator::next_back) {
                return Some(element);
            }
            self.back_block -= 1;
            self.back = Cursor::whole(&self.deque.blocks[self.back_block]);
        }
    }
}

impl ExactSizeIterator for DequeRange<'_> {}
