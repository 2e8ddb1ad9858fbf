//! The listpack that owns its bytes and edits them.

use std::fmt;

use super::encoding::{END, Encoded};
use super::{
    COUNT_UNKNOWN, Element, HEADER_BYTES, LISTPACK_BYTES_EMPTY, LISTPACK_BYTES_MAX, ListpackRef, Position,
    validate,
};
use crate::Corrupt;

/// A listpack in a `Vec` of its own. Every edit is a move of the bytes behind it, O(bytes).
#[derive(Clone, PartialEq, Eq)]
pub struct Listpack {
    bytes: Vec<u8>,
}

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
    /// Without elements.
    pub fn new() -> Listpack {
        Self::with_capacity(LISTPACK_BYTES_EMPTY)
    }

    /// Without elements, with room for `bytes` bytes in all.
    pub fn with_capacity(bytes: usize) -> Listpack {
        let mut listpack = Listpack { bytes: Vec::with_capacity(bytes.max(LISTPACK_BYTES_EMPTY)) };
        listpack.bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, END]);
        listpack.write_size();
        listpack
    }

    /// Takes bytes from outside, once they pass [`validate`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Listpack, Corrupt> {
        validate(&bytes)?;
        Ok(Listpack { bytes })
    }

    /// Takes bytes that a listpack gave. Others make later calls panic.
    pub fn from_trusted(bytes: Vec<u8>) -> Listpack {
        debug_assert!(validate(&bytes).is_ok());
        Listpack { bytes }
    }

    /// The bytes, header and end included.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes, header and end included.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes allocated.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Gives back what is allocated beyond the bytes in use.
    pub fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// The reader.
    #[inline]
    pub fn view(&self) -> ListpackRef<'_> {
        ListpackRef::new(&self.bytes)
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
        self.bytes.len().saturating_add(additional) <= LISTPACK_BYTES_MAX
    }

    /// Appends an element.
    #[inline]
    pub fn push<'e>(&mut self, element: impl Into<Element<'e>>) -> Position {
        self.insert_at(self.bytes.len() - 1, element.into())
    }

    /// Puts an element before all others.
    pub fn push_front<'e>(&mut self, element: impl Into<Element<'e>>) -> Position {
        self.insert_at(HEADER_BYTES, element.into())
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
        let removed = self.end_of(position) - position.at();
        encoded.write(self.splice(position.at(), removed, encoded.entry_bytes()));
    }

    /// Removes the element at `position`; answers where the next one is now.
    pub fn remove(&mut self, position: Position) -> Option<Position> {
        self.remove_run(position, 1).1
    }

    /// Removes up to `count` elements from `position` on; answers how many there were, and where the one
    /// behind them is now.
    pub fn remove_run(&mut self, position: Position, count: usize) -> (usize, Option<Position>) {
        let mut end = position.at();
        let mut removed = 0;
        while removed < count && self.bytes[end] != END {
            end += self.view().entry_bytes(end);
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
        self.splice(self.bytes.len() - 1, 0, entries.len()).copy_from_slice(entries);
        self.add_to_count(added as isize);
    }

    /// Cuts the listpack before `position`: the element there and all behind it are answered.
    pub fn split_off(&mut self, position: Position) -> Listpack {
        let at = position.at();
        let entries = &self.bytes[at..self.bytes.len() - 1];
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
        let encoded = Encoded::new(element);
        encoded.write(self.splice(at, 0, encoded.entry_bytes()));
        self.add_to_count(1);
        Position(at as u32)
    }

    /// Makes the `removed` bytes at `at` into `inserted` bytes, and answers those for filling. The size in
    /// the header follows.
    #[inline]
    fn splice(&mut self, at: usize, removed: usize, inserted: usize) -> &mut [u8] {
        let before = self.bytes.len();
        let after = before - removed + inserted;
        assert!(after <= LISTPACK_BYTES_MAX, "the caller asks fits() first");
        if after > before {
            self.reserve(after);
            self.bytes.resize(after, END);
        }
        self.bytes.copy_within(at + removed..before, at + inserted);
        self.bytes.truncate(after);
        self.write_size();
        &mut self.bytes[at..at + inserted]
    }

    /// Makes room for `bytes` bytes in all. An eighth more than asked, not double: most listpacks are many
    /// and small, and their slack would be most of what they take.
    #[inline]
    fn reserve(&mut self, bytes: usize) {
        if bytes > self.bytes.capacity() {
            let target = (bytes + bytes / 8).next_multiple_of(16);
            self.bytes.reserve_exact(target - self.bytes.len());
        }
    }

    #[inline]
    fn write_size(&mut self) {
        let size = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&size.to_le_bytes());
    }

    /// Moves the count, unless it is unknown; one that reaches 65535 thereby becomes unknown.
    #[inline]
    fn add_to_count(&mut self, change: isize) {
        let count = u16::from_le_bytes([self.bytes[4], self.bytes[5]]);
        if count != COUNT_UNKNOWN {
            let count = (i64::from(count) as isize + change).clamp(0, COUNT_UNKNOWN as isize) as u16;
            self.bytes[4..6].copy_from_slice(&count.to_le_bytes());
        }
    }
}
