//! The listpack that owns its bytes and edits them.
//!
//! ```text
//! block   room in front │ bytes of the listpack │ room behind
//!                       ▲ mark
//! ```
//!
//! An edit moves the shorter of the two parts around its place, so that both ends are cheap: a removal in
//! front leaves room, and an addition there takes it again.

use std::{fmt, ops::Range};

use super::encoding::{END, Encoded};
use super::{
    COUNT_UNKNOWN, Element, HEADER_BYTES, LISTPACK_BYTES_EMPTY, LISTPACK_BYTES_MAX, ListpackRef, Position,
    validate,
};
use crate::{
    Corrupt,
    block::{Block, ShortMark, allocation_bytes, whole_allocation_bytes},
};

/// A listpack in a buffer of its own. Every edit is a move of the bytes before or behind it, whichever
/// are fewer: O(bytes), at the ends O(1) but when the buffer grows.
pub struct Listpack {
    /// Its mark is where the listpack begins; its header has its length.
    block: Block<ShortMark>,
}

impl Listpack {
    /// Moves its bytes to where the general allocator would rather have them.
    pub fn relocate(&mut self, relocator: &mut crate::Relocator) {
        self.block.relocate(relocator);
    }
}

impl Clone for Listpack {
    fn clone(&self) -> Self {
        Self { block: Block::from(self.bytes().to_vec()) }
    }
}

impl PartialEq for Listpack {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Listpack {}

impl Default for Listpack {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Listpack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.view()).finish()
    }
}

impl Listpack {
    /// A listpack without elements.
    pub fn new() -> Listpack {
        Self::with_capacity(LISTPACK_BYTES_EMPTY)
    }

    /// A listpack without elements, with room for `bytes` bytes in all.
    pub fn with_capacity(bytes: usize) -> Listpack {
        let mut block = Block::zeroed(bytes.max(LISTPACK_BYTES_EMPTY));
        block[0] = LISTPACK_BYTES_EMPTY as u8;
        block[LISTPACK_BYTES_EMPTY - 1] = END;
        Listpack { block }
    }

    /// Takes bytes from outside, once they pass [`validate`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Listpack, Corrupt> {
        validate(&bytes)?;
        Ok(Self::of(bytes))
    }

    /// Takes bytes that a listpack gave. Others make later calls panic.
    pub fn from_trusted(bytes: Vec<u8>) -> Listpack {
        debug_assert!(validate(&bytes).is_ok());
        Self::of(bytes)
    }

    fn of(bytes: Vec<u8>) -> Listpack {
        Listpack { block: Block::from(bytes) }
    }

    /// A listpack that reads the bytes of another one where they are.
    ///
    /// # Safety
    /// The bytes must stay as they are, and the listpack must be forgotten: it may be neither changed nor dropped.
    #[inline]
    pub unsafe fn lent(bytes: &[u8]) -> Listpack {
        // SAFETY: the caller vouches.
        Listpack { block: unsafe { Block::lent(bytes) } }
    }

    /// Without elements, at the beginning of a buffer as in [`Self::in_buffer`].
    #[inline]
    pub fn new_in_buffer(buffer: Vec<u8>) -> Listpack {
        let mut bytes = [0; LISTPACK_BYTES_EMPTY];
        bytes[0] = LISTPACK_BYTES_EMPTY as u8;
        bytes[LISTPACK_BYTES_EMPTY - 1] = END;
        Self::in_buffer(buffer, &bytes)
    }

    /// Copies the bytes that a listpack gave to the beginning of a buffer, which becomes its block: there is room for
    /// more behind them. The inverse is [`Self::into_buffer`].
    ///
    /// # Panics
    /// If the buffer is shorter than the bytes.
    #[inline]
    pub fn in_buffer(mut buffer: Vec<u8>, bytes: &[u8]) -> Listpack {
        buffer[..bytes.len()].copy_from_slice(bytes);
        Self::of(buffer)
    }

    /// The whole block, whatever is in it.
    #[inline]
    pub fn into_buffer(self) -> Vec<u8> {
        self.block.into_vec()
    }

    /// The bytes, header and end included.
    pub fn into_bytes(self) -> Vec<u8> {
        let range = self.range();
        let mut bytes = self.block.into_vec();
        bytes.truncate(range.end);
        bytes.drain(..range.start);
        bytes
    }

    /// The bytes, header and end included.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.block[self.range()]
    }

    #[inline]
    fn range(&self) -> Range<usize> {
        let start = self.start();
        start..start + self.size()
    }

    /// The start of the listpack in the block.
    #[inline]
    fn start(&self) -> usize {
        self.block.mark.get()
    }

    /// Bytes of the listpack.
    #[inline]
    fn size(&self) -> usize {
        let size = self.block[self.start()..].first_chunk().expect("a listpack has a header");
        u32::from_le_bytes(*size) as usize
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        let range = self.range();
        &mut self.block[range]
    }

    /// Bytes allocated.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.block.len()
    }

    /// Gives back the memory beyond the bytes in use.
    pub fn shrink_to_fit(&mut self) {
        if self.block.len() > self.size() {
            *self = self.clone();
        }
    }

    /// The reader.
    #[inline]
    pub fn view(&self) -> ListpackRef<'_> {
        ListpackRef::new(self.bytes())
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.view().len()
    }

    /// Whether there is no element.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.view().is_empty()
    }

    /// Whether `additional` more bytes of entries (see [`Element::encoded_bytes`]) stay within
    /// [`LISTPACK_BYTES_MAX`]. The edits assert it.
    #[inline]
    pub fn fits(&self, additional: usize) -> bool {
        self.size().saturating_add(additional) <= LISTPACK_BYTES_MAX
    }

    /// Appends an element.
    #[inline]
    pub fn push<'e>(&mut self, element: impl Into<Element<'e>>) -> Position {
        let encoded = Encoded::new(element.into());
        let (size, bytes) = (self.size(), encoded.entry_bytes());
        if self.room_behind() < bytes || size + bytes > LISTPACK_BYTES_MAX {
            return self.insert_encoded(size - 1, &encoded);
        }
        let at = self.range().end - 1;
        encoded.write(&mut self.block[at..at + bytes]);
        self.block[at + bytes] = END;
        self.write_header(self.start(), size + bytes, self.count_with_one_more());
        Position(size as u32 - 1)
    }

    /// Appends several elements: the end and the count in the header are written once.
    #[inline]
    pub fn extend<'e, E: Into<Element<'e>>>(&mut self, elements: impl IntoIterator<Item = E>) {
        let mut added = 0;
        let mut end = self.range().end - 1;
        for element in elements {
            let encoded = Encoded::new(element.into());
            let bytes = encoded.entry_bytes();
            // The byte behind the last entry has its place, too.
            if self.block.len() - end <= bytes {
                self.write_size(end + 1 - self.start());
                self.grow(bytes, false);
                end = self.range().end - 1;
            }
            encoded.write(&mut self.block[end..end + bytes]);
            end += bytes;
            added += 1;
        }
        self.block[end] = END;
        let size = end + 1 - self.start();
        assert!(size <= LISTPACK_BYTES_MAX, "the caller asks fits() first");
        self.write_size(size);
        self.add_to_count(added);
    }

    /// Makes room for exactly `additional` more bytes of entries, which are about to be appended.
    pub fn reserve_exact(&mut self, additional: usize) {
        if self.room_behind() < additional {
            self.move_to(allocation_bytes(self.size() + additional), false);
        }
    }

    /// Bytes of the block behind the listpack.
    #[inline]
    fn room_behind(&self) -> usize {
        self.block.len() - self.range().end
    }

    /// Puts an element before all others.
    #[inline]
    pub fn push_front<'e>(&mut self, element: impl Into<Element<'e>>) -> Position {
        let encoded = Encoded::new(element.into());
        let (size, bytes) = (self.size(), encoded.entry_bytes());
        let Some(start) = self.start().checked_sub(bytes).filter(|_| size + bytes <= LISTPACK_BYTES_MAX)
        else {
            return self.insert_encoded(HEADER_BYTES, &encoded);
        };
        let count = self.count_with_one_more();
        // Over the header that has been read.
        encoded.write(&mut self.block[start + HEADER_BYTES..start + HEADER_BYTES + bytes]);
        self.write_header(start, size + bytes, count);
        self.block.mark = ShortMark::new(start);
        Position(HEADER_BYTES as u32)
    }

    /// Puts an element before the one at `position`, and answers where it is.
    pub fn insert_before<'e>(&mut self, position: Position, element: impl Into<Element<'e>>) -> Position {
        self.insert_at(position.at(), element.into())
    }

    /// Puts an element behind the one at `position`, and answers where it is.
    pub fn insert_after<'e>(&mut self, position: Position, element: impl Into<Element<'e>>) -> Position {
        self.insert_at(self.end_of(position), element.into())
    }

    /// Puts an element in the place of the one at `position`, which stays valid.
    pub fn replace<'e>(&mut self, position: Position, element: impl Into<Element<'e>>) {
        let encoded = Encoded::new(element.into());
        let (at, bytes) = (position.at(), encoded.entry_bytes());
        let removed = self.end_of(position) - at;
        if removed == bytes {
            return encoded.write(&mut self.bytes_mut()[at..at + bytes]);
        }
        encoded.write(self.splice(at, removed, bytes));
    }

    /// Removes the element at `position`; answers where the next one is now.
    pub fn remove(&mut self, position: Position) -> Option<Position> {
        self.remove_run(position, 1).1
    }

    /// Removes up to `count` elements from `position` on. Returns how many there were, and the present
    /// position of the one behind them.
    pub fn remove_run(&mut self, position: Position, count: usize) -> (usize, Option<Position>) {
        let mut end = position.at();
        let mut removed = 0;
        let view = self.view();
        while removed < count && view.bytes()[end] != END {
            end += view.entry_bytes(end);
            removed += 1;
        }
        self.splice(position.at(), end - position.at(), 0);
        self.add_to_count(-(removed as isize));
        (removed, self.view().position(position.at()))
    }

    /// Removes up to `count` elements from number `index` on (negative: from the end); answers how many.
    pub fn remove_range(&mut self, index: i64, count: usize) -> usize {
        match self.view().seek(index) {
            Some(position) if count > 0 => self.remove_run(position, count).0,
            _ => 0,
        }
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Appends all elements of `other`: one copy of their bytes.
    pub fn append(&mut self, other: ListpackRef<'_>) {
        let entries = &other.bytes()[HEADER_BYTES..other.bytes().len() - 1];
        let added = other.len();
        self.splice(self.size() - 1, 0, entries.len()).copy_from_slice(entries);
        self.add_to_count(added as isize);
    }

    /// Cuts the listpack before `position`: the element there and all behind it are answered.
    pub fn split_off(&mut self, position: Position) -> Listpack {
        let at = position.at();
        let entries = &self.bytes()[at..self.size() - 1];
        let moved = self.view().positions_from(self.view().position(at)).count();
        let mut tail = Self::with_capacity(LISTPACK_BYTES_EMPTY + entries.len());
        tail.splice(HEADER_BYTES, 0, entries.len()).copy_from_slice(entries);
        tail.add_to_count(moved as isize);
        let removed = entries.len();
        self.splice(at, removed, 0);
        self.add_to_count(-(moved as isize));
        tail
    }

    #[inline]
    fn end_of(&self, position: Position) -> usize {
        position.at() + self.view().entry_bytes(position.at())
    }

    #[inline]
    fn insert_at(&mut self, at: usize, element: Element<'_>) -> Position {
        self.insert_encoded(at, &Encoded::new(element))
    }

    fn insert_encoded(&mut self, at: usize, encoded: &Encoded<'_>) -> Position {
        encoded.write(self.splice(at, 0, encoded.entry_bytes()));
        self.add_to_count(1);
        Position(at as u32)
    }

    /// Makes the `removed` bytes at `at` into `inserted` bytes, and answers those for filling. The size in
    /// the header follows.
    #[inline]
    fn splice(&mut self, at: usize, removed: usize, inserted: usize) -> &mut [u8] {
        let before = self.size();
        let after = before - removed + inserted;
        assert!(after <= LISTPACK_BYTES_MAX, "the caller asks fits() first");
        let behind = before - at - removed;
        let front_moves = at < behind;
        if after > before {
            self.reserve(after - before, front_moves);
        }
        let start = self.start();
        // If there is no room on the side that should move, the other one moves.
        let grown = after.saturating_sub(before);
        let moved = start + removed - inserted.min(start + removed);
        let front_moves = moved <= ShortMark::MAX
            && if front_moves { start >= grown } else { self.block.len() - start - before < grown };
        if front_moves {
            debug_assert_eq!(moved + inserted, start + removed);
            self.block.copy_within(start..start + at, moved);
            self.block.mark = ShortMark::new(moved);
        } else {
            let from = start + at + removed;
            self.block.copy_within(from..from + behind, start + at + inserted);
        }
        self.write_size(after);
        &mut self.bytes_mut()[at..at + inserted]
    }

    /// Makes room at one end for the entries about to be added there, for a listpack that is to grow up to
    /// `bytes_max` bytes: by half of what it has, and never beyond.
    #[inline]
    pub fn reserve_within(&mut self, additional: usize, in_front: bool, bytes_max: usize) {
        let (start, len) = (self.start(), self.size());
        let room = if in_front { start } else { self.room_behind() };
        if room < additional {
            let needed = len + additional;
            let capacity = (needed + needed / 2).next_multiple_of(16).min(bytes_max).max(needed);
            self.move_to(capacity, in_front);
        }
    }

    /// Makes room for `additional` bytes, on one side. About an eighth more than asked, not double: most
    /// listpacks are many and small, and their slack would be most of their memory.
    #[inline]
    fn reserve(&mut self, additional: usize, in_front: bool) {
        if self.start() < additional && self.room_behind() < additional {
            self.grow(additional, in_front);
        }
    }

    fn grow(&mut self, additional: usize, in_front: bool) {
        let needed = self.size() + additional;
        self.move_to(allocation_bytes(needed).max(whole_allocation_bytes(needed + needed / 8)), in_front);
    }

    /// Moves the bytes to a block of `capacity` bytes, all room on one side: in front only as far as a mark reaches.
    fn move_to(&mut self, capacity: usize, in_front: bool) {
        let range = self.range();
        if range.start == 0 && !in_front {
            return self.block.resize(capacity.max(self.block.len()));
        }
        let mut block = Block::zeroed(capacity);
        let room = capacity - range.len();
        let start = if in_front && room <= ShortMark::MAX { room } else { 0 };
        block[start..start + range.len()].copy_from_slice(&self.block[range]);
        block.mark = ShortMark::new(start);
        self.block = block;
    }

    #[inline]
    fn write_size(&mut self, size: usize) {
        let start = self.start();
        self.block[start..start + 4].copy_from_slice(&(size as u32).to_le_bytes());
    }

    /// Writes a header at `start` of the block.
    #[inline]
    fn write_header(&mut self, start: usize, size: usize, count: u16) {
        let [a, b, c, d] = (size as u32).to_le_bytes();
        let [e, f] = count.to_le_bytes();
        self.block[start..start + HEADER_BYTES].copy_from_slice(&[a, b, c, d, e, f]);
    }

    /// The count in the header for one element more; a count that reaches 65535 becomes unknown.
    #[inline]
    fn count_with_one_more(&self) -> u16 {
        let start = self.start();
        u16::from_le_bytes([self.block[start + 4], self.block[start + 5]]).saturating_add(1)
    }

    /// Moves the count, unless it is unknown; one that reaches 65535 thereby becomes unknown.
    #[inline]
    fn add_to_count(&mut self, change: isize) {
        let bytes = self.bytes_mut();
        let count = u16::from_le_bytes([bytes[4], bytes[5]]);
        if count != COUNT_UNKNOWN {
            let count = (i64::from(count) as isize + change).clamp(0, COUNT_UNKNOWN as isize) as u16;
            bytes[4..6].copy_from_slice(&count.to_le_bytes());
        }
    }
}
