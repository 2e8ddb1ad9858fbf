//! A small sorted set: member, score, member, score … in a listpack, in order.
//!
//! Scores that are integers up to 2^62 are elements of that kind, others the text of `%.17g`: the
//! bytes are those of Redis 7.0.

use std::ops::Range;

use dunlin_structures::{Element, Listpack, Position};

use super::score::exact_text;
use crate::value::packed::leave_buffer;

/// A sorted set in a listpack.
#[derive(Debug, Clone)]
pub(super) struct Packed {
    listpack: Listpack,
}

/// The integer that a score is kept as.
fn integer_of(score: f64) -> Option<i64> {
    const MAGNITUDE_MAX: f64 = (1_u64 << 62) as f64;
    (score.abs() <= MAGNITUDE_MAX && score.trunc() == score).then_some(score as i64)
}

/// The score that an element stands for.
#[inline]
fn score_of(element: Element<'_>) -> f64 {
    match element {
        Element::Integer(integer) => integer as f64,
        Element::String(text) => crate::value::parse_float(text).unwrap_or_default(),
    }
}

/// Calls `with` with the text of an element, which is not allocated.
#[inline]
pub(super) fn with_text<R>(element: Element<'_>, with: impl FnOnce(&[u8]) -> R) -> R {
    match element {
        Element::Integer(integer) => with(itoa::Buffer::new().format(integer).as_bytes()),
        Element::String(text) => with(text),
    }
}

impl Packed {
    /// [`Listpack::relocate`].
    pub(super) fn relocate(&mut self, relocator: &mut dunlin_structures::Relocator) {
        self.listpack.relocate(relocator);
    }

    pub(super) fn new() -> Self {
        Self { listpack: Listpack::new() }
    }

    /// The members and scores of a listpack, which are in order and differ.
    #[inline]
    pub(super) fn from_listpack(listpack: Listpack) -> Self {
        Self { listpack }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.listpack.len() / 2
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.listpack.bytes()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.listpack.capacity()
    }

    /// See [`crate::value::Collection::leave_buffer`].
    pub(super) fn leave_buffer(&mut self) {
        leave_buffer(&mut self.listpack);
    }

    /// The whole block of the listpack, whatever is in it.
    #[inline]
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.listpack.into_buffer()
    }

    /// Whether a member can be added as far as the listpack's own limit goes.
    pub(super) fn fits(&self, member: &[u8]) -> bool {
        /// Bytes that a score takes at most, generously.
        const SCORE_BYTES_MAX: usize = 32;
        self.listpack.fits(Element::String(member).encoded_bytes() + SCORE_BYTES_MAX)
    }

    /// The position of a member, and its score. O(n).
    #[inline]
    pub(super) fn find(&self, member: &[u8]) -> Option<(Position, f64)> {
        let view = self.listpack.view();
        let position = view.find(member, 1)?;
        let score = view.next(position).expect("a score stands behind each member");
        Some((position, score_of(view.element(score))))
    }

    /// The rank of a member, and its score. O(n).
    pub(super) fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let (found, score) = self.find(member)?;
        let before = self.listpack.view().positions_from(self.listpack.view().first());
        Some((before.take_while(|position| *position < found).count() / 2, score))
    }

    /// Adds a member that is not there. O(n).
    pub(super) fn insert(&mut self, member: &[u8], score: f64) {
        let mut elements = self.listpack.view().iter();
        let behind = loop {
            let position = elements.position();
            let (Some(other), Some(other_score)) = (elements.next(), elements.next()) else { break None };
            let other_score = score_of(other_score);
            if other_score > score || other_score == score && with_text(other, |other| other > member) {
                break position;
            }
        };
        let Some(position) = behind else { return self.push(member, score) };
        let position = self.listpack.insert_before(position, member);
        match integer_of(score) {
            Some(integer) => self.listpack.insert_after(position, integer),
            None => self.listpack.insert_after(position, exact_text(score).as_bytes()),
        };
    }

    /// Adds a member that comes behind all others.
    pub(super) fn push(&mut self, member: &[u8], score: f64) {
        self.listpack.push(member);
        match integer_of(score) {
            Some(integer) => self.listpack.push(integer),
            None => self.listpack.push(exact_text(score).as_bytes()),
        };
    }

    /// Removes the member at a position. O(n).
    pub(super) fn remove(&mut self, position: Position) {
        self.listpack.remove_run(position, 2);
    }

    /// Removes the members with these ranks. O(n).
    pub(super) fn remove_range(&mut self, ranks: Range<usize>) {
        self.listpack.remove_range(2 * ranks.start as i64, 2 * ranks.len());
    }

    /// How many members from the first on fulfil `holds`; those that do come before all others.
    pub(super) fn partition_point(&self, mut holds: impl FnMut(Element<'_>, f64) -> bool) -> usize {
        self.pairs(0..self.len()).take_while(|(member, score)| holds(*member, *score)).count()
    }

    /// The members with these ranks and their scores, from the first.
    pub(super) fn pairs(&self, ranks: Range<usize>) -> impl Iterator<Item = (Element<'_>, f64)> {
        let start = self.listpack.view().seek(2 * ranks.start as i64);
        let mut elements = start.map(|start| self.listpack.view().iter_from(start));
        ranks.map_while(move |_| {
            let elements = elements.as_mut()?;
            Some((elements.next()?, score_of(elements.next()?)))
        })
    }

    /// The members with these ranks and their scores, from the last.
    pub(super) fn pairs_reversed(&self, ranks: Range<usize>) -> impl Iterator<Item = (Element<'_>, f64)> {
        let last = ranks.end.checked_sub(1).and_then(|last| self.listpack.view().seek(2 * last as i64 + 1));
        let mut elements = last.map(|last| self.listpack.view().iter_through(last));
        ranks.map_while(move |_| {
            let elements = elements.as_mut()?;
            let score = score_of(elements.next_back()?);
            Some((elements.next_back()?, score))
        })
    }
}
