//! Nodes of the order tree, and operations on one node or two neighbours.

use std::mem::offset_of;

use super::Scored;
use crate::{Handle, prefetch};

/// Elements of a full leaf: as many as fit 1 KiB.
pub(super) const LEAF_MAX: usize = 85;
/// Children of a full inner node.
pub(super) const FANOUT_MAX: usize = 64;

const _: () = assert!(size_of::<Leaf>() == 1024, "a leaf fills an allocator's 1 KiB cell");

/// Nodes alive, from which the memory in use follows.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Usage {
    pub leaves: usize,
    pub inners: usize,
}

impl Usage {
    fn forget(&mut self, gone: Usage) {
        self.leaves -= gone.leaves;
        self.inners -= gone.inners;
    }
}

/// Whether a node lies on the left and the right border of the tree.
#[derive(Clone, Copy)]
pub(super) struct Edges {
    pub left: bool,
    pub right: bool,
}

impl Edges {
    fn child(self, index: usize, len: usize) -> Edges {
        Edges { left: self.left && index == 0, right: self.right && index + 1 == len }
    }
}

/// How many numbers from 0 on fulfil `holds`, given that they come before all that do not.
#[inline]
fn partition(len: usize, mut holds: impl FnMut(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Moves items between two neighbouring arrays, so that the left one holds `target` of them.
#[inline]
fn balance<T>(left: &mut [T], left_len: usize, right: &mut [T], right_len: usize, target: usize) {
    if target > left_len {
        let moved = target - left_len;
        left[left_len..target].swap_with_slice(&mut right[..moved]);
        right[..right_len].rotate_left(moved);
    } else {
        let moved = left_len - target;
        right[..right_len + moved].rotate_right(moved);
        right[..moved].swap_with_slice(&mut left[target..left_len]);
    }
}

pub(super) struct Leaf {
    scores: [f64; LEAF_MAX],
    /// Beyond `len`: any handles.
    handles: [Handle; LEAF_MAX],
    len: u32,
}

impl Leaf {
    pub fn of(entry: Scored) -> Box<Leaf> {
        Box::new(Leaf { scores: [entry.score; LEAF_MAX], handles: [entry.handle; LEAF_MAX], len: 1 })
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub fn scores(&self) -> &[f64] {
        &self.scores[..self.len()]
    }

    #[inline]
    pub fn handles(&self) -> &[Handle] {
        &self.handles[..self.len()]
    }

    #[inline]
    pub fn get(&self, index: usize) -> Scored {
        Scored { score: self.scores[index], handle: self.handles[index] }
    }

    #[inline]
    pub fn partition_point(&self, mut holds: impl FnMut(Scored) -> bool) -> usize {
        partition(self.len(), |index| holds(self.get(index)))
    }

    #[inline]
    pub fn set_score(&mut self, index: usize, score: f64) {
        self.scores[index] = score;
    }

    /// Puts `entry` before the one with number `at`; the leaf is not full.
    #[inline]
    pub fn insert(&mut self, at: usize, entry: Scored) {
        let len = self.len();
        self.scores.copy_within(at..len, at + 1);
        self.handles.copy_within(at..len, at + 1);
        self.scores[at] = entry.score;
        self.handles[at] = entry.handle;
        self.len += 1;
    }

    /// Appends to a leaf that is not full.
    pub fn push(&mut self, entry: Scored) {
        self.insert(self.len(), entry);
    }

    /// Removes up to `count` elements from `at` on, and answers how many there were.
    pub fn remove(&mut self, at: usize, count: usize, removed: &mut impl FnMut(Scored)) -> usize {
        let len = self.len();
        let end = len.min(at.saturating_add(count));
        (at..end).for_each(|index| removed(self.get(index)));
        self.scores.copy_within(end..len, at);
        self.handles.copy_within(end..len, at);
        self.len -= (end - at) as u32;
        end - at
    }

    fn balance(&mut self, right: &mut Leaf, target: usize) {
        let (left_len, right_len) = (self.len(), right.len());
        balance(&mut self.scores, left_len, &mut right.scores, right_len, target);
        balance(&mut self.handles, left_len, &mut right.handles, right_len, target);
        self.len = target as u32;
        right.len = (left_len + right_len - target) as u32;
    }
}

pub(super) enum Node {
    Leaf(Box<Leaf>),
    Inner(Box<Inner>),
}

impl Node {
    fn len(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len(),
            Node::Inner(inner) => inner.len(),
        }
    }

    fn max(&self) -> usize {
        match self {
            Node::Leaf(_) => LEAF_MAX,
            Node::Inner(_) => FANOUT_MAX,
        }
    }

    pub fn is_full(&self) -> bool {
        self.len() == self.max()
    }

    /// Elements below.
    pub fn count(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len(),
            Node::Inner(inner) => inner.counts[..inner.len()].iter().map(|&count| count as usize).sum(),
        }
    }

    /// The memory of it and of all nodes below. O(inner nodes).
    pub fn usage(&self) -> Usage {
        match self {
            Node::Leaf(_) => Usage { leaves: 1, inners: 0 },
            Node::Inner(inner) if matches!(inner.child(0), Node::Leaf(_)) => {
                Usage { leaves: inner.len(), inners: 1 }
            }
            Node::Inner(inner) => {
                let mut usage = Usage { leaves: 0, inners: 1 };
                for index in 0..inner.len() {
                    let below = inner.child(index).usage();
                    usage.leaves += below.leaves;
                    usage.inners += below.inners;
                }
                usage
            }
        }
    }

    /// The smallest element below.
    fn first(&self) -> Scored {
        match self {
            Node::Leaf(leaf) => leaf.get(0),
            Node::Inner(inner) => inner.first(0),
        }
    }

    /// Fetches all lines that a search in the node may look at. A search looks at one after the other,
    /// and most nodes of a large tree are in no cache.
    #[inline]
    pub fn prefetch(&self) {
        const LINE_BYTES: usize = 64;
        let (start, bytes): (*const u8, usize) = match self {
            Node::Leaf(leaf) => ((&raw const **leaf).cast(), size_of::<Leaf>()),
            Node::Inner(inner) => ((&raw const **inner).cast(), offset_of!(Inner, first_handles)),
        };
        for at in (0..bytes).step_by(LINE_BYTES) {
            prefetch(start.wrapping_add(at));
        }
    }

    /// Moves elements or children between two neighbours of one kind; the left one gets `target`.
    fn balance(&mut self, right: &mut Node, target: usize) {
        match (self, right) {
            (Node::Leaf(left), Node::Leaf(right)) => left.balance(right, target),
            (Node::Inner(left), Node::Inner(right)) => left.balance(right, target),
            _ => unreachable!("siblings are of one kind"),
        }
    }

    /// A node without contents that stands right of this one.
    fn empty_sibling(&self, usage: &mut Usage) -> Node {
        match self {
            Node::Leaf(leaf) => {
                usage.leaves += 1;
                let mut sibling = Leaf::of(leaf.get(0));
                sibling.len = 0;
                Node::Leaf(sibling)
            }
            Node::Inner(inner) => {
                usage.inners += 1;
                Node::Inner(Inner::empty(inner.first(0)))
            }
        }
    }

    fn forget(&self, usage: &mut Usage) {
        match self {
            Node::Leaf(_) => usage.leaves -= 1,
            Node::Inner(_) => usage.inners -= 1,
        }
    }
}

/// Children with the facts asked most about them, side by side, in the order in which a search needs them.
#[repr(C)]
pub(super) struct Inner {
    /// Elements below each child.
    counts: [u32; FANOUT_MAX],
    /// The smallest element below each child: score, and member for equal scores.
    first_scores: [f64; FANOUT_MAX],
    first_handles: [Handle; FANOUT_MAX],
    /// `Some` up to `len`.
    children: [Option<Node>; FANOUT_MAX],
    len: u32,
}

impl Inner {
    fn empty(filler: Scored) -> Box<Inner> {
        Box::new(Inner {
            counts: [0; FANOUT_MAX],
            first_scores: [0.0; FANOUT_MAX],
            first_handles: [filler.handle; FANOUT_MAX],
            children: [const { None }; FANOUT_MAX],
            len: 0,
        })
    }

    pub fn of(child: Node) -> Box<Inner> {
        let mut inner = Inner::empty(child.first());
        inner.push(child);
        inner
    }

    /// Appends a child to a node that is not full.
    pub fn push(&mut self, child: Node) {
        self.insert_child(self.len(), child);
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub fn first(&self, index: usize) -> Scored {
        Scored { score: self.first_scores[index], handle: self.first_handles[index] }
    }

    #[inline]
    pub fn child(&self, index: usize) -> &Node {
        self.children[index].as_ref().expect("index < len")
    }

    #[inline]
    pub fn child_mut(&mut self, index: usize) -> &mut Node {
        self.children[index].as_mut().expect("index < len")
    }

    /// The only child of a node that has one.
    pub fn into_only_child(mut self) -> Node {
        debug_assert_eq!(self.len, 1);
        self.children[0].take().expect("index < len")
    }

    /// The child in which elements stop fulfilling `holds`.
    #[inline]
    pub fn boundary(&self, mut holds: impl FnMut(Scored) -> bool) -> usize {
        partition(self.len(), |index| holds(self.first(index))).saturating_sub(1)
    }

    /// Elements below the children before `index`.
    #[inline]
    pub fn count_before(&self, index: usize) -> usize {
        self.counts[..index].iter().map(|&count| count as usize).sum()
    }

    /// The child with the element of rank `rank` below this node, and that element's rank there.
    #[inline]
    pub fn child_with(&self, mut rank: usize) -> (usize, usize) {
        /// Children whose counts are added up at once.
        const GROUP: usize = 8;
        let mut passed = 0;
        for group in self.counts[..self.len()].chunks(GROUP) {
            let total: usize = group.iter().map(|&count| count as usize).sum();
            if rank < total {
                break;
            }
            rank -= total;
            passed += group.len();
        }
        for (index, &count) in self.counts[..self.len()].iter().enumerate().skip(passed) {
            match rank.checked_sub(count as usize) {
                Some(rest) => rank = rest,
                None => return (index, rank),
            }
        }
        unreachable!("a rank below this node's count")
    }

    /// Inserts below this node, which is not full. `before` says whether an entry comes before `entry`.
    pub fn insert(&mut self, entry: Scored, before: impl Fn(Scored) -> bool, usage: &mut Usage) {
        let mut node = self;
        let mut edges = Edges { left: true, right: true };
        loop {
            let mut index = node.boundary(&before);
            node.child(index).prefetch();
            if node.child(index).is_full() {
                node.make_room(index, &before, edges, usage);
                index = node.boundary(&before);
            }
            node.counts[index] += 1;
            if index == 0 && !before(node.first(0)) {
                node.first_scores[0] = entry.score;
                node.first_handles[0] = entry.handle;
            }
            edges = edges.child(index, node.len());
            match node.child_mut(index) {
                Node::Leaf(leaf) => {
                    let at = leaf.partition_point(&before);
                    return leaf.insert(at, entry);
                }
                Node::Inner(inner) => node = inner,
            }
        }
    }

    /// Removes up to `count` elements from rank `at` on, as far as they share a leaf; answers how many.
    pub fn remove(
        &mut self,
        at: usize,
        count: usize,
        edges: Edges,
        usage: &mut Usage,
        removed: &mut impl FnMut(Scored),
    ) -> usize {
        let (index, offset) = self.child_with(at);
        let child_edges = edges.child(index, self.len());
        let gone = match self.child_mut(index) {
            Node::Leaf(leaf) => leaf.remove(offset, count, removed),
            Node::Inner(inner) => inner.remove(offset, count, child_edges, usage, removed),
        };
        self.counts[index] -= gone as u32;
        if self.counts[index] == 0 {
            self.remove_child(index, usage);
        } else {
            self.refresh(index);
            self.settle(index, child_edges, usage);
        }
        gone
    }

    /// Takes the elements from rank `at` on out, up to `count` of them and as far as they share a node: the largest
    /// that has no others, or a part of a leaf. That node, and how many elements it has.
    pub fn cut(&mut self, at: usize, count: usize, edges: Edges, usage: &mut Usage) -> (Node, usize) {
        let (index, offset) = self.child_with(at);
        let below = self.counts[index] as usize;
        if offset == 0 && below <= count {
            let node = self.take_child(index);
            usage.forget(node.usage());
            return (node, below);
        }
        let child_edges = edges.child(index, self.len());
        let (node, gone) = match self.child_mut(index) {
            Node::Leaf(leaf) => {
                let mut part: Option<Box<Leaf>> = None;
                let gone = leaf.remove(offset, count, &mut |entry| match &mut part {
                    Some(part) => part.push(entry),
                    None => part = Some(Leaf::of(entry)),
                });
                (Node::Leaf(part.expect("a rank below this node's count")), gone)
            }
            Node::Inner(inner) => inner.cut(offset, count, child_edges, usage),
        };
        self.counts[index] -= gone as u32;
        self.refresh(index);
        self.settle(index, child_edges, usage);
        (node, gone)
    }

    /// Makes room in a full child, or in the one that takes its place for elements that `before` places.
    ///
    /// A leaf first gives to a sibling: leaves stay above 80% full under random insertion, while splitting
    /// at once would leave 69%. At the tree's borders a split is as uneven as can be, so that ascending or
    /// descending insertion leaves full nodes behind.
    fn make_room(&mut self, index: usize, before: impl Fn(Scored) -> bool, edges: Edges, usage: &mut Usage) {
        /// A sibling with less free is left alone: the move would soon be needed again.
        const FREE_MIN: usize = LEAF_MAX / 10;
        let edges = edges.child(index, self.len());
        let at = match self.child(index) {
            Node::Leaf(leaf) => {
                let free = |index: usize| LEAF_MAX - self.child(index).len();
                let left = if index > 0 { free(index - 1) } else { 0 };
                let right = if index + 1 < self.len() { free(index + 1) } else { 0 };
                if left.max(right) >= FREE_MIN {
                    return self.share(if left >= right { index - 1 } else { index });
                }
                leaf.partition_point(before)
            }
            // The child after whose border the entry falls: at the last one, everything is before it.
            Node::Inner(inner) => match inner.boundary(before) {
                at if at + 1 == inner.len() => inner.len(),
                at => at,
            },
        };
        let child = self.child_mut(index);
        let len = child.len();
        let keep = if edges.right && at == len {
            len - 1
        } else if edges.left && at == 0 {
            1
        } else {
            len / 2
        };
        let mut sibling = child.empty_sibling(usage);
        child.balance(&mut sibling, keep);
        self.insert_child(index + 1, sibling);
        self.refresh(index);
    }

    /// Merges a child that is less than half full with a sibling if both fit one node; otherwise takes
    /// from the sibling. A child on a border of the tree may run empty instead, so that a queue's
    /// elements are not moved before they are taken.
    fn settle(&mut self, index: usize, edges: Edges, usage: &mut Usage) {
        let child = self.child(index);
        let max = child.max();
        if child.len() >= max / 2 || self.len() == 1 {
            return;
        }
        let left = index.saturating_sub(1);
        let total = self.child(left).len() + self.child(left + 1).len();
        if total <= max {
            let (first, second) = self.pair(left);
            first.balance(second, total);
            self.refresh(left);
            self.remove_child(left + 1, usage);
        } else if !edges.left && !edges.right {
            self.share(left);
        }
    }

    /// Gives the children `index` and `index + 1` the same number of elements or children.
    fn share(&mut self, index: usize) {
        let (left, right) = self.pair(index);
        let total = left.len() + right.len();
        left.balance(right, total / 2);
        self.refresh(index);
        self.refresh(index + 1);
    }

    fn pair(&mut self, index: usize) -> (&mut Node, &mut Node) {
        match &mut self.children[index..index + 2] {
            [Some(left), Some(right)] => (left, right),
            _ => unreachable!("index + 1 < len"),
        }
    }

    /// Reads the facts kept here about a child again.
    fn refresh(&mut self, index: usize) {
        let child = self.child(index);
        let (count, first) = (child.count(), child.first());
        self.counts[index] = count as u32;
        self.first_scores[index] = first.score;
        self.first_handles[index] = first.handle;
    }

    fn insert_child(&mut self, at: usize, child: Node) {
        let len = self.len();
        self.counts.copy_within(at..len, at + 1);
        self.first_scores.copy_within(at..len, at + 1);
        self.first_handles.copy_within(at..len, at + 1);
        self.children[at..=len].rotate_right(1);
        self.children[at] = Some(child);
        self.len += 1;
        self.refresh(at);
    }

    fn remove_child(&mut self, at: usize, usage: &mut Usage) {
        self.child(at).forget(usage);
        self.take_child(at);
    }

    fn take_child(&mut self, at: usize) -> Node {
        let len = self.len();
        let child = self.children[at].take().expect("at < len");
        self.counts.copy_within(at + 1..len, at);
        self.first_scores.copy_within(at + 1..len, at);
        self.first_handles.copy_within(at + 1..len, at);
        self.children[at..len].rotate_left(1);
        self.len -= 1;
        child
    }

    fn balance(&mut self, right: &mut Inner, target: usize) {
        let (left_len, right_len) = (self.len(), right.len());
        balance(&mut self.counts, left_len, &mut right.counts, right_len, target);
        balance(&mut self.first_scores, left_len, &mut right.first_scores, right_len, target);
        balance(&mut self.first_handles, left_len, &mut right.first_handles, right_len, target);
        balance(&mut self.children, left_len, &mut right.children, right_len, target);
        self.len = target as u32;
        right.len = (left_len + right_len - target) as u32;
    }
}
