//! Order tree: the elements of a sorted set in order, as a B+tree that knows how many elements lie where.
//!
//! ```text
//! inner  │ count │ count │ …  up to 64 children
//!        │ first │ first │ …  the smallest (score, member) below each child
//!            │       └──────────────┐
//! leaf   │ score × 85 │ member handle × 85 │ len │  = 1 KiB
//! ```
//!
//! Elements are ordered by score, equal scores by the bytes of their members. The tree keeps 12 bytes an
//! element, the score and the member's handle; the bytes it asks from the caller's [`Members`], and only to
//! compare equal scores. All positions are ranks: a bound becomes a rank by [`OrderTree::partition_point`],
//! a rank an iterator by [`OrderTree::range`], each O(log n). There are no parent pointers and no links
//! between leaves: an iterator descends anew for each leaf, once in some fifty elements.
//!
//! Invariants:
//! - counts and firsts are exact, so every handle in the tree is that of an element present;
//! - nodes are at least half full, but for those on the tree's left and right border, and never empty;
//! - the root has two children or is a leaf; the empty tree has no node.
//!
//! Source of the sharing between siblings before a split: Knuth, TAOCP 3, 6.2.4 (B*-trees).

mod iter;
mod node;
#[cfg(test)]
mod tests;

use std::ops;

pub use iter::OrderRange;
use node::{Edges, FANOUT_MAX, Inner, LEAF_MAX, Leaf, Node, Usage};

use crate::Handle;

/// The holder of the bytes of members.
pub trait Members {
    /// The bytes of the member behind a handle that the tree was given.
    fn bytes(&self, handle: Handle) -> &[u8];
}

/// An element: its score, never NaN, and the handle of its member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored {
    /// The first key of the order; -0 equals 0.
    pub score: f64,
    /// The member, by whose bytes elements of equal score are ordered.
    pub handle: Handle,
}

impl Scored {
    /// Whether the element comes before the pair of `score` and `member`.
    #[inline]
    pub fn precedes<M: Members + ?Sized>(self, score: f64, member: &[u8], members: &M) -> bool {
        self.score < score || self.score == score && members.bytes(self.handle) < member
    }

    /// Whether the element comes behind the pair of `score` and `member`.
    #[inline]
    pub fn follows<M: Members + ?Sized>(self, score: f64, member: &[u8], members: &M) -> bool {
        self.score > score || self.score == score && members.bytes(self.handle) > member
    }
}

/// Elements in order, with their ranks.
#[derive(Default)]
pub struct OrderTree {
    root: Option<Node>,
    len: usize,
    usage: Usage,
}

impl OrderTree {
    /// A tree without elements; allocates nothing.
    pub fn new() -> OrderTree {
        OrderTree::default()
    }

    /// Builds the tree from elements in ascending order (by score, then by member); all nodes are full. O(n).
    pub fn from_sorted(elements: impl IntoIterator<Item = Scored>) -> OrderTree {
        let mut usage = Usage::default();
        let mut level: Vec<Node> = Vec::new();
        let mut len = 0;
        let mut last: Option<Box<Leaf>> = None;
        for entry in elements {
            debug_assert!(!entry.score.is_nan(), "scores are never NaN");
            len += 1;
            match &mut last {
                Some(leaf) if leaf.len() < LEAF_MAX => {
                    debug_assert!(leaf.get(leaf.len() - 1).score <= entry.score, "ascending order");
                    leaf.push(entry);
                }
                _ => {
                    usage.leaves += 1;
                    level.extend(last.replace(Leaf::of(entry)).map(Node::Leaf));
                }
            }
        }
        level.extend(last.map(Node::Leaf));
        while level.len() > 1 {
            let mut above: Vec<Node> = Vec::with_capacity(level.len().div_ceil(FANOUT_MAX));
            for child in level {
                match above.last_mut() {
                    Some(Node::Inner(inner)) if inner.len() < FANOUT_MAX => inner.push(child),
                    _ => {
                        usage.inners += 1;
                        above.push(Node::Inner(Inner::of(child)));
                    }
                }
            }
            level = above;
        }
        OrderTree { root: level.pop(), len, usage }
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

    /// Bytes that the nodes take on the heap, exactly. O(1).
    pub fn memory_bytes(&self) -> usize {
        self.usage.leaves * size_of::<Leaf>() + self.usage.inners * size_of::<Inner>()
    }

    /// Adds an element that is not in the tree; its member's bytes are in `members` already. O(log n).
    pub fn insert<M: Members + ?Sized>(&mut self, score: f64, handle: Handle, members: &M) {
        debug_assert!(!score.is_nan(), "scores are never NaN");
        self.len += 1;
        let entry = Scored { score, handle };
        let member = members.bytes(handle);
        let before = |other: Scored| other.precedes(score, member, members);
        match &mut self.root {
            None => {
                self.usage.leaves += 1;
                self.root = Some(Node::Leaf(Leaf::of(entry)));
            }
            Some(Node::Leaf(leaf)) if leaf.len() < LEAF_MAX => {
                leaf.insert(leaf.partition_point(before), entry)
            }
            Some(Node::Inner(inner)) if inner.len() < FANOUT_MAX => {
                inner.insert(entry, before, &mut self.usage);
            }
            root @ Some(_) => {
                let old = root.take().expect("matched as Some");
                self.usage.inners += 1;
                let mut inner = Inner::of(old);
                inner.insert(entry, before, &mut self.usage);
                *root = Some(Node::Inner(inner));
            }
        }
    }

    /// Removes an element; answers whether it was there. Its member's bytes must still be in `members`.
    /// O(log n).
    pub fn remove<M: Members + ?Sized>(&mut self, score: f64, handle: Handle, members: &M) -> bool {
        let Some(rank) = self.rank(score, handle, members) else { return false };
        self.remove_range(rank..rank + 1, |_| ());
        true
    }

    /// Gives an element another score; answers whether it was there. O(log n), and quickest when the element
    /// stays between its neighbours.
    pub fn update<M: Members + ?Sized>(&mut self, old: f64, new: f64, handle: Handle, members: &M) -> bool {
        let Some(rank) = self.rank(old, handle, members) else { return false };
        if !self.update_in_place(rank, new, handle, members) {
            self.remove_range(rank..rank + 1, |_| ());
            self.insert(new, handle, members);
        }
        true
    }

    /// Sets the score if the neighbours in the same leaf show that the order stays as it is.
    fn update_in_place<M: Members + ?Sized>(
        &mut self,
        mut rank: usize,
        score: f64,
        handle: Handle,
        members: &M,
    ) -> bool {
        let mut node = self.root.as_mut().expect("a rank names an element");
        let leaf = loop {
            match node {
                Node::Leaf(leaf) => break leaf,
                Node::Inner(inner) => {
                    let (index, rest) = inner.child_with(rank);
                    (node, rank) = (inner.child_mut(index), rest);
                }
            }
        };
        if rank == 0 || rank + 1 >= leaf.len() {
            return false;
        }
        let member = members.bytes(handle);
        let stays = leaf.get(rank - 1).precedes(score, member, members)
            && leaf.get(rank + 1).follows(score, member, members);
        if stays {
            leaf.set_score(rank, score);
        }
        stays
    }

    /// Removes the elements with these ranks, as far as they exist, and passes each to `removed`, ascending;
    /// returns how many. O(log n) for each leaf touched.
    pub fn remove_range(&mut self, ranks: ops::Range<usize>, mut removed: impl FnMut(Scored)) -> usize {
        let count = ranks.end.min(self.len).saturating_sub(ranks.start);
        let mut left = count;
        while left > 0 {
            let edges = Edges { left: true, right: true };
            let gone = match self.root.as_mut().expect("elements are left") {
                Node::Leaf(leaf) => leaf.remove(ranks.start, left, &mut removed),
                Node::Inner(inner) => inner.remove(ranks.start, left, edges, &mut self.usage, &mut removed),
            };
            left -= gone;
            self.len -= gone;
            self.settle_root();
        }
        count
    }

    /// Takes the elements with these ranks out, as far as they exist: in trees of their own, in order. O(log n),
    /// and O(1) for each inner node that goes.
    pub fn cut_range(&mut self, ranks: ops::Range<usize>) -> Vec<OrderTree> {
        let mut left = ranks.end.min(self.len).saturating_sub(ranks.start);
        let mut cut = Vec::new();
        if left == self.len && left > 0 {
            return vec![std::mem::take(self)];
        }
        while left > 0 {
            let edges = Edges { left: true, right: true };
            let gone = match self.root.as_mut().expect("elements are left") {
                Node::Leaf(leaf) => {
                    let mut elements = Vec::new();
                    leaf.remove(ranks.start, left, &mut |entry| elements.push(entry));
                    OrderTree::from_sorted(elements)
                }
                Node::Inner(inner) => {
                    let (node, len) = inner.cut(ranks.start, left, edges, &mut self.usage);
                    let mut tree = OrderTree { usage: node.usage(), root: Some(node), len };
                    tree.settle_root();
                    tree
                }
            };
            left -= gone.len;
            self.len -= gone.len;
            self.settle_root();
            cut.push(gone);
        }
        cut
    }

    fn settle_root(&mut self) {
        if self.len == 0 {
            self.root = None;
            self.usage = Usage::default();
            return;
        }
        loop {
            self.root = match self.root.take() {
                Some(Node::Inner(inner)) if inner.len() == 1 => {
                    self.usage.inners -= 1;
                    Some(inner.into_only_child())
                }
                root => {
                    self.root = root;
                    return;
                }
            };
        }
    }

    /// The number of elements before the first that does not fulfil `holds`; those that do must come before
    /// all others. O(log n).
    #[inline]
    pub fn partition_point(&self, holds: impl FnMut(Scored) -> bool) -> usize {
        self.partition(holds).0
    }

    /// The partition point, and the last element that fulfils `holds`.
    #[inline]
    fn partition(&self, mut holds: impl FnMut(Scored) -> bool) -> (usize, Option<Scored>) {
        let Some(mut node) = self.root.as_ref() else { return (0, None) };
        let mut rank = 0;
        loop {
            match node {
                Node::Leaf(leaf) => {
                    let at = leaf.partition_point(holds);
                    return (rank + at, at.checked_sub(1).map(|at| leaf.get(at)));
                }
                Node::Inner(inner) => {
                    let index = inner.boundary(&mut holds);
                    node = inner.child(index);
                    node.prefetch();
                    rank += inner.count_before(index);
                }
            }
        }
    }

    /// How many elements have a score below `score`. O(log n).
    pub fn count_below(&self, score: f64) -> usize {
        self.partition_point(|entry| entry.score < score)
    }

    /// How many elements have a score of at most `score`. O(log n).
    pub fn count_up_to(&self, score: f64) -> usize {
        self.partition_point(|entry| entry.score <= score)
    }

    /// The rank of an element, 0 for the smallest. O(log n).
    pub fn rank<M: Members + ?Sized>(&self, score: f64, handle: Handle, members: &M) -> Option<usize> {
        let member = members.bytes(handle);
        // Up to and with the element, so that it is the last of its part and in the leaf that was reached.
        let (end, last) =
            self.partition(|entry| entry.handle == handle || !entry.follows(score, member, members));
        last.filter(|last| last.handle == handle && last.score == score).map(|_| end - 1)
    }

    /// The element of a rank. O(log n).
    pub fn get(&self, rank: usize) -> Option<Scored> {
        (rank < self.len).then(|| {
            let (leaf, at) = self.leaf_at(rank);
            leaf.get(at)
        })
    }

    /// The leaf with the element of a rank, and its number there.
    fn leaf_at(&self, mut rank: usize) -> (&Leaf, usize) {
        let mut node = self.root.as_ref().expect("a rank names an element");
        loop {
            match node {
                Node::Leaf(leaf) => return (leaf, rank),
                Node::Inner(inner) => {
                    let (index, rest) = inner.child_with(rank);
                    (node, rank) = (inner.child(index), rest);
                }
            }
        }
    }

    /// Scores and handles from `rank` to the end of its leaf: 1 to 85 of them, none beyond the last element.
    /// For callers that fetch members ahead. O(log n).
    pub fn run(&self, rank: usize) -> (&[f64], &[Handle]) {
        if rank >= self.len {
            return (&[], &[]);
        }
        let (leaf, at) = self.leaf_at(rank);
        (&leaf.scores()[at..], &leaf.handles()[at..])
    }

    /// The elements with these ranks, as far as they exist, from both ends. O(log n) for each leaf.
    pub fn range(&self, ranks: ops::Range<usize>) -> OrderRange<'_> {
        OrderRange::new(self, ranks)
    }

    /// All elements, ascending, from both ends.
    pub fn iter(&self) -> OrderRange<'_> {
        self.range(0..self.len)
    }
}

impl<'a> IntoIterator for &'a OrderTree {
    type Item = Scored;
    type IntoIter = OrderRange<'a>;

    fn into_iter(self) -> OrderRange<'a> {
        self.iter()
    }
}
