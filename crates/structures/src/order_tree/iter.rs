//! Iteration over ranks.

use std::ops::Range;

use super::node::Leaf;
use super::{OrderTree, Scored};

/// The elements of a range of ranks, from both ends.
#[derive(Clone)]
pub struct OrderRange<'a> {
    tree: &'a OrderTree,
    ranks: Range<usize>,
    /// The leaf that was read last, and the number there of the next element.
    front: Option<(&'a Leaf, usize)>,
    /// The place at the end: the next element is the one before that number.
    back: Option<(&'a Leaf, usize)>,
}

impl<'a> OrderRange<'a> {
    pub(super) fn new(tree: &'a OrderTree, ranks: Range<usize>) -> OrderRange<'a> {
        let end = ranks.end.min(tree.len());
        OrderRange { tree, ranks: ranks.start.min(end)..end, front: None, back: None }
    }
}

impl Iterator for OrderRange<'_> {
    type Item = Scored;

    #[inline]
    fn next(&mut self) -> Option<Scored> {
        if self.ranks.is_empty() {
            return None;
        }
        let (leaf, at) = match self.front {
            Some((leaf, at)) if at < leaf.len() => (leaf, at),
            _ => self.tree.leaf_at(self.ranks.start),
        };
        self.front = Some((leaf, at + 1));
        self.ranks.start += 1;
        Some(leaf.get(at))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.ranks.len(), Some(self.ranks.len()))
    }

    fn nth(&mut self, n: usize) -> Option<Scored> {
        self.ranks.start = self.ranks.end.min(self.ranks.start.saturating_add(n));
        self.front = None;
        self.next()
    }
}

impl DoubleEndedIterator for OrderRange<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Scored> {
        if self.ranks.is_empty() {
            return None;
        }
        let (leaf, end) = match self.back {
            Some((leaf, end)) if end > 0 => (leaf, end),
            _ => {
                let (leaf, at) = self.tree.leaf_at(self.ranks.end - 1);
                (leaf, at + 1)
            }
        };
        self.back = Some((leaf, end - 1));
        self.ranks.end -= 1;
        Some(leaf.get(end - 1))
    }
}

impl ExactSizeIterator for OrderRange<'_> {}
