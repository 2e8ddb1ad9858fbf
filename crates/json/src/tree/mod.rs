//! Documents of any size: one block, or a tree of blocks that are shared until they are changed.
//!
//! ```text
//! Node::Block   ● ──▶ one packed value                                  up to BLOCK_BYTES_MAX; a string of any length
//!
//! Node::Large   ● ──▶ first items of the runs │ runs: ● ● ● ●           a container of more
//!                                                     │ │ │ └──▶ run: a packed container of the next items
//!                                                     │ │ └────▶ …
//!                                                     │ └──────▶ run ─link 0─▶ Node   an item of more than ITEM_BYTES_MAX
//!                                                     └────────▶ run
//!               of an object, also: names ● ──▶ which run has the name of a hash (see `names`)
//! ```
//!
//! A copy of a node shares everything; an edit copies the lists of runs on its way, and one run or block, if they
//! are shared. Items keep their order through all runs.
//!
//! Invariants: a run has at least one item; an item that is a value of more than `ITEM_BYTES_MAX` bytes is a link, so a
//! run over `RUN_BYTES_MAX` can always be divided; links stand directly in runs, never deeper, and each has one node.

mod edit;
mod names;

use std::sync::Arc;

pub(crate) use edit::Change;
use names::Names;
pub use names::set_name_seed;

use crate::packed::{
    Container, LINK, LINK_BYTES, item_bytes, number_at, push_header_of, string_at, value_bytes,
};

/// Most bytes of a document in one block.
pub const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a value inside a run; a larger one has a node of its own.
pub(crate) const ITEM_BYTES_MAX: usize = 16 << 10;
/// A run with more is divided.
const RUN_BYTES_MAX: usize = 64 << 10;
/// Items are gathered into runs of about this size.
const RUN_BYTES: usize = 32 << 10;
/// More values of a run than these are replaced by making the run anew.
const EDITED_IN_RUN_MAX: usize = 16;
/// The counts of an `Arc`.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// A value with everything below it. Cloning shares it. O(1)
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Block(Arc<Vec<u8>>),
    Large(Arc<Large>),
}

/// A container whose items are divided into runs.
#[derive(Debug, Clone)]
pub(crate) struct Large {
    pub(crate) object: bool,
    pub(crate) runs: Vec<Arc<Run>>,
    /// How many items stand before the end of each run.
    ends: Vec<usize>,
    names: Names,
}

/// Some items of a large container that follow one another.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// A packed container of them.
    pub(crate) bytes: Vec<u8>,
    /// The nodes of its links, by their number.
    pub(crate) links: Vec<Node>,
    /// The number by which the table of names knows this run.
    id: u16,
}

impl Node {
    /// A node of a packed value.
    pub(crate) fn block(mut bytes: Vec<u8>) -> Self {
        bytes.shrink_to_fit();
        Self::Block(Arc::new(bytes))
    }

    /// Bytes on the heap, counts of sharing included. Shared blocks count in full. O(runs)
    pub(crate) fn heap_bytes(&self) -> usize {
        let mut bytes = 0;
        let mut waiting = vec![self];
        while let Some(node) = waiting.pop() {
            match node {
                Self::Block(block) => bytes += COUNTS_BYTES + size_of::<Vec<u8>>() + block.capacity(),
                Self::Large(large) => {
                    bytes += COUNTS_BYTES + size_of::<Large>() + large.names.heap_bytes();
                    bytes += large.runs.capacity() * size_of::<Arc<Run>>();
                    bytes += large.ends.capacity() * size_of::<usize>();
                    for run in &large.runs {
                        bytes += COUNTS_BYTES + size_of::<Run>() + run.bytes.capacity();
                        bytes += run.links.capacity() * size_of::<Self>();
                        waiting.extend(&run.links);
                    }
                }
            }
        }
        bytes
    }

    /// A copy that shares nothing. Recurses by containers in one another, of which there are 128 at most. O(bytes)
    pub(crate) fn apart(&self) -> Self {
        match self {
            Self::Block(block) => Self::block(block.to_vec()),
            Self::Large(large) => {
                let run = |run: &Arc<Run>| {
                    let links = run.links.iter().map(Self::apart).collect();
                    Arc::new(Run { bytes: run.bytes.clone(), links, id: run.id })
                };
                Self::Large(Arc::new(Large {
                    object: large.object,
                    runs: large.runs.iter().map(run).collect(),
                    ends: large.ends.clone(),
                    names: large.names.apart(),
                }))
            }
        }
    }

    /// The container of a block in runs.
    ///
    /// # Panics
    /// If it is none, or has no items.
    pub(crate) fn enlarged(bytes: &[u8]) -> Large {
        let container = Container::at(bytes).expect("a container is divided");
        let mut builder = LargeBuilder::new(container.is_object());
        builder.push_items(container.items(), container.count(), &mut Vec::new());
        builder.finish()
    }
}

impl Run {
    /// The packed container.
    #[inline]
    pub(crate) fn container(&self) -> Container<'_> {
        Container::at(&self.bytes).expect("a run is a container")
    }

    /// The node behind an item's value, if it is a link.
    #[inline]
    fn link(&self, ordinal: usize) -> Option<usize> {
        link_of(&self.bytes[self.container().value_at(ordinal)..])
    }
}

/// The number of a link; `None` if the value is none.
#[inline]
pub(crate) fn link_of(value: &[u8]) -> Option<usize> {
    (value[0] == LINK).then(|| number_at(value, 1, 4))
}

/// Appends a link.
pub(crate) fn push_link(out: &mut Vec<u8>, number: usize) {
    out.push(LINK);
    out.extend_from_slice(&(number as u32).to_le_bytes());
}

impl Large {
    /// How many items it has.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The run of an item, and the item's place there. O(log runs)
    #[inline]
    pub(crate) fn locate(&self, ordinal: usize) -> (usize, usize) {
        let run = self.ends.partition_point(|&end| end <= ordinal);
        (run, ordinal - self.first_of(run))
    }

    /// The first item of a run.
    #[inline]
    pub(crate) fn first_of(&self, run: usize) -> usize {
        if run == 0 { 0 } else { self.ends[run - 1] }
    }

    /// The member of that name: its run, and its place there. O(log n)
    pub(crate) fn find(&self, name: &[u8]) -> Option<(usize, usize)> {
        if !self.object {
            return None;
        }
        self.names.candidates(name).find_map(|run| {
            let place = self.runs[run].container().find(name)?;
            Some((run, place))
        })
    }

    /// Checks the invariants at the head of the file.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        assert_eq!(self.ends.len(), self.runs.len());
        let mut end = 0;
        for (run, &noted) in self.runs.iter().zip(&self.ends) {
            let container = run.container();
            end += container.count();
            assert!(container.count() > 0 && end == noted && container.is_object() == self.object);
            assert!(run.bytes.len() <= RUN_BYTES_MAX);
            let mut links: Vec<usize> = Vec::new();
            for ordinal in 0..container.count() {
                assert!(value_bytes(&run.bytes[container.value_at(ordinal)..]) <= ITEM_BYTES_MAX);
                links.extend(run.link(ordinal));
            }
            links.sort_unstable();
            assert!(links.iter().copied().eq(0..run.links.len()), "each node has one link");
        }
        assert_eq!(self.names.count(), if self.object { end } else { 0 });
    }

    /// Counts the items of all runs anew.
    fn count_items(&mut self) {
        self.ends.clear();
        let mut end = 0;
        for run in &self.runs {
            end += run.container().count();
            self.ends.push(end);
        }
    }
}

/// Gathers items into runs.
#[derive(Debug)]
pub(crate) struct LargeBuilder {
    large: Large,
    items: Vec<u8>,
    starts: Vec<u32>,
    links: Vec<Node>,
    order: Vec<u32>,
}

impl LargeBuilder {
    pub(crate) fn new(object: bool) -> Self {
        let large = Large { object, runs: Vec::new(), ends: Vec::new(), names: Names::default() };
        Self { large, items: Vec::new(), starts: Vec::new(), links: Vec::new(), order: Vec::new() }
    }

    /// Appends items. Values of more than [`ITEM_BYTES_MAX`] move to nodes of their own; the nodes of links are taken
    /// from `links`, which stays as long as it is. No name may be there already; see [`Self::push_members`].
    pub(crate) fn push_items(&mut self, mut items: &[u8], count: usize, links: &mut [Node]) {
        for _ in 0..count {
            let name = if self.large.object { value_bytes(items) } else { 0 };
            let (name, rest) = items.split_at(name);
            let (value, rest) = rest.split_at(value_bytes(rest));
            items = rest;
            self.starts.push(self.items.len() as u32);
            self.items.extend_from_slice(name);
            if let Some(link) = link_of(value) {
                push_link(&mut self.items, self.links.len());
                self.links.push(links[link].clone());
            } else if value.len() > ITEM_BYTES_MAX {
                push_link(&mut self.items, self.links.len());
                self.links.push(Node::block(value.to_vec()));
            } else {
                self.items.extend_from_slice(value);
            }
            if self.items.len() >= RUN_BYTES {
                self.end_run();
            }
        }
    }

    /// [`Self::push_items`] of members whose names may be there already: the last value wins, in the place of the first.
    /// Among the items themselves no name is there twice.
    pub(crate) fn push_members(&mut self, items: &[u8], count: usize, links: &mut [Node]) {
        self.end_run();
        let mut kept = Vec::new();
        let mut kept_count = 0;
        let mut known: Vec<(usize, usize, &[u8])> = Vec::new();
        let mut rest = items;
        for _ in 0..count {
            let (item, after) = rest.split_at(item_bytes(true, rest));
            rest = after;
            let (name, name_bytes) = string_at(item);
            match self.large.find(name) {
                Some((run, place)) => known.push((run, place, &item[name_bytes..])),
                None => {
                    kept.extend_from_slice(item);
                    kept_count += 1;
                }
            }
        }
        // A run that is divided moves those behind it, which have got their values by then. Ordinals stay.
        known.sort_unstable();
        for same_run in known.chunk_by(|a, b| a.0 == b.0).rev() {
            let run = same_run[0].0;
            if same_run.len() > EDITED_IN_RUN_MAX {
                let values: Vec<(usize, &[u8])> =
                    same_run.iter().map(|&(_, place, value)| (place, value)).collect();
                self.large.replace_in_run(run, &values, links);
                continue;
            }
            let first = self.large.first_of(run);
            for &(_, place, value) in same_run {
                let node = match link_of(value) {
                    Some(link) => links[link].clone(),
                    None => Node::block(value.to_vec()),
                };
                self.large.change(&[(first + place) as u32], &Change::Replace(&node));
            }
        }
        self.push_items(&kept, kept_count, links);
        self.end_run();
    }

    fn end_run(&mut self) {
        if self.starts.is_empty() {
            return;
        }
        let mut bytes = Vec::new();
        push_header_of(&mut bytes, self.large.object, &self.items, &self.starts, &mut self.order);
        bytes.reserve_exact(self.items.len());
        bytes.extend_from_slice(&self.items);
        self.items.clear();
        let mut links = std::mem::take(&mut self.links);
        links.shrink_to_fit();
        let end = self.large.count() + self.starts.len();
        self.starts.clear();
        bytes.shrink_to_fit();
        self.large.ends.push(end);
        self.large.runs.push(Arc::new(Run { bytes, links, id: 0 }));
        let last = self.large.runs.len() - 1;
        self.large.names_gain_run(last);
    }

    pub(crate) fn finish(mut self) -> Large {
        self.end_run();
        self.large.names.shrink();
        self.large.runs.shrink_to_fit();
        self.large.ends.shrink_to_fit();
        self.large
    }

    /// Items and runs so far in bytes of their own lists, for limits of memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.starts.is_empty() && self.large.runs.is_empty()
    }
}

const _: () = assert!(ITEM_BYTES_MAX + RUN_BYTES <= RUN_BYTES_MAX && LINK_BYTES < ITEM_BYTES_MAX);
