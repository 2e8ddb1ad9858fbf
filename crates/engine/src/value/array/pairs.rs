//! Indexes and values in a listpack.
//!
//! ```text
//! listpack   … │ index − base │ value │ index − base │ value │ …        from `start` on, in the order of the indexes
//! ```
//!
//! An index is a number of 64 bits, which the listpack has as a signed integer. A value is what its text makes of it: an integer, or
//! bytes.

use dunlin_structures::{Element, Elements, Listpack, ListpackRef, Position};

/// Bytes that a pair takes in a listpack.
pub(super) fn pair_bytes(offset: u64, value: Element<'_>) -> usize {
    Element::Integer(offset as i64).encoded_bytes() + value.encoded_bytes()
}

/// Adds a pair behind all others.
pub(super) fn push(listpack: &mut Listpack, offset: u64, value: Element<'_>) {
    listpack.push(offset as i64);
    listpack.push(value);
}

/// The offset that stands at a position.
pub(super) fn offset_at(listpack: ListpackRef<'_>, position: Position) -> u64 {
    listpack.element(position).as_integer().unwrap_or_default() as u64
}

/// The offset of the last pair, of those from `start` on.
pub(super) fn last_offset(listpack: ListpackRef<'_>, start: Option<Position>) -> Option<u64> {
    start?;
    let last = listpack.previous(listpack.last()?)?;
    Some(offset_at(listpack, last))
}

/// The position of the first pair whose offset is not below `offset`; `None` if there is none. O(pairs).
pub(super) fn first_from(
    listpack: ListpackRef<'_>,
    start: Option<Position>,
    offset: u64,
) -> Option<Position> {
    if last_offset(listpack, start).is_none_or(|last| last < offset) {
        return None;
    }
    let mut at = start?;
    while offset_at(listpack, at) < offset {
        at = listpack.next(listpack.next(at)?)?;
    }
    Some(at)
}

/// The position of a pair, if it is there. O(pairs).
pub(super) fn find(listpack: ListpackRef<'_>, start: Option<Position>, offset: u64) -> Option<Position> {
    first_from(listpack, start, offset).filter(|at| offset_at(listpack, *at) == offset)
}

/// The value of a pair. O(pairs).
pub(super) fn get<'a>(
    listpack: ListpackRef<'a>,
    start: Option<Position>,
    offset: u64,
) -> Option<Element<'a>> {
    let at = find(listpack, start, offset)?;
    Some(listpack.element(listpack.next(at)?))
}

/// Puts a pair in, which is not there, at its place. O(pairs).
pub(super) fn insert(listpack: &mut Listpack, start: Option<Position>, offset: u64, value: Element<'_>) {
    match first_from(listpack.view(), start, offset) {
        None => push(listpack, offset, value),
        Some(at) => {
            listpack.insert_before(at, offset as i64);
            listpack.insert_after(at, value);
        }
    }
}

/// Takes out the pairs with offsets from `low` to `high`. Returns how many. O(pairs).
pub(super) fn remove(listpack: &mut Listpack, start: Option<Position>, low: u64, high: u64) -> usize {
    let view = listpack.view();
    let Some(first) = first_from(view, start, low) else { return 0 };
    let (mut at, mut count) = (Some(first), 0);
    while let Some(offset) = at.filter(|at| offset_at(view, *at) <= high) {
        count += 1;
        at = view.next(offset).and_then(|value| view.next(value));
    }
    listpack.remove_run(first, count * 2);
    count
}

/// Pairs of a listpack, from both ends.
#[derive(Clone)]
pub(super) struct Pairs<'a> {
    elements: Option<Elements<'a>>,
    base: u64,
}

impl<'a> Pairs<'a> {
    /// No pairs.
    pub(super) fn none() -> Self {
        Self { elements: None, base: 0 }
    }

    /// The pairs from `start` on with offsets from `low` to `high`; their indexes are `base` larger. O(pairs).
    pub(super) fn between(
        listpack: ListpackRef<'a>,
        start: Option<Position>,
        base: u64,
        low: u64,
        high: u64,
    ) -> Self {
        let Some(first) = first_from(listpack, start, low) else { return Self::none() };
        let behind = high.checked_add(1).and_then(|behind| first_from(listpack, start, behind));
        let elements = match behind {
            None => Some(listpack.iter_from(first)),
            Some(behind) if behind == first => None,
            Some(behind) => {
                let last = listpack.previous(behind);
                last.map(|last| listpack.iter_from(first).through(last))
            }
        };
        Self { elements, base }
    }

    /// All pairs from `start` on.
    pub(super) fn all(listpack: ListpackRef<'a>, start: Option<Position>, base: u64) -> Self {
        Self { elements: start.map(|start| listpack.iter_from(start)), base }
    }

    fn index(&self, offset: Element<'_>) -> u64 {
        self.base.wrapping_add(offset.as_integer().unwrap_or_default() as u64)
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (u64, Element<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let elements = self.elements.as_mut()?;
        let (offset, value) = (elements.next()?, elements.next()?);
        Some((self.index(offset), value))
    }
}

impl DoubleEndedIterator for Pairs<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let elements = self.elements.as_mut()?;
        let (value, offset) = (elements.next_back()?, elements.next_back()?);
        Some((self.index(offset), value))
    }
}
