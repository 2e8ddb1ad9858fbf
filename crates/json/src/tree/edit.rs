//! Edits of a tree: down to the block or run of the place, which is copied if others share it, and changed there.

use std::sync::Arc;

use super::{
    BLOCK_BYTES_MAX, ITEM_BYTES_MAX, Large, LargeBuilder, Names, Node, RUN_BYTES_MAX, Run, link_of, push_link,
};
use crate::packed::{self, Container, item_bytes, push_string, string_at, value_bytes};

/// A large container with at most this many bytes, in a few runs, becomes a block again. The container has four times as many
/// bytes when it becomes large, so it does not go back and forth.
const SMALL_BYTES_MAX: usize = BLOCK_BYTES_MAX / 4;
const SMALL_RUNS_MAX: usize = 4;

/// An edit at a place, to which ordinals lead from the root.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'a> {
    /// Another value in place of the one there.
    Replace(&'a Node),
    /// This number of items goes, from the one there on.
    Remove(usize),
    /// Values before the item `at` of the array there.
    InsertValues { at: usize, values: &'a [Node] },
    /// A member behind the others of the object there, which has none of that name.
    InsertMember { name: &'a [u8], value: &'a Node },
}

impl Change<'_> {
    /// Whether the values that come are small enough to be put into a block.
    fn fits_in_block(&self) -> bool {
        let fits = |node: &Node| matches!(node, Node::Block(block) if block.len() <= ITEM_BYTES_MAX);
        match self {
            Self::Replace(node) | Self::InsertMember { value: node, .. } => fits(node),
            Self::Remove(_) => true,
            Self::InsertValues { values, .. } => {
                let bytes = |node: &Node| if let Node::Block(block) = node { block.len() } else { 0 };
                values.iter().all(fits) && values.iter().map(bytes).sum::<usize>() <= ITEM_BYTES_MAX
            }
        }
    }
}

impl Node {
    /// Does an edit. Costs O(bytes of a block, and length of the lists of runs on the way).
    ///
    /// # Panics
    /// If there is no such place.
    pub(crate) fn change(&mut self, steps: &[u32], change: &Change<'_>) {
        if steps.is_empty()
            && let Change::Replace(value) = change
        {
            *self = (*value).clone();
            return;
        }
        let mut node = self;
        let mut steps = steps;
        loop {
            if let Self::Block(block) = node {
                if change.fits_in_block() {
                    let bytes = Arc::make_mut(block);
                    change_block(bytes, steps, change);
                    if bytes.len() > BLOCK_BYTES_MAX {
                        *node = Self::Large(Arc::new(Self::enlarged(bytes)));
                    }
                    return;
                }
                let large = match Container::at(block) {
                    Some(container) if container.count() > 0 => Self::enlarged(block),
                    Some(container) => LargeBuilder::new(container.is_object()).finish(),
                    None => unreachable!("an edit leads into a container"),
                };
                *node = Self::Large(Arc::new(large));
            }
            let Self::Large(large) = &mut *node else {
                unreachable!("the block has become a large container")
            };
            let large = Arc::make_mut(large);
            let further = large.change(steps, change);
            if further.is_none()
                && let Some(block) = large.as_block()
            {
                *node = Self::block(block);
                return;
            }
            let (Some((run, link)), Self::Large(large)) = (further, node) else {
                return;
            };
            steps = &steps[1..];
            node = &mut Arc::make_mut(&mut Arc::make_mut(large).runs[run]).links[link];
        }
    }
}

/// An edit that takes place in one block.
fn change_block(bytes: &mut Vec<u8>, steps: &[u32], change: &Change<'_>) {
    let block = |node: &Node| match node {
        Node::Block(block) => Arc::clone(block),
        Node::Large(_) => unreachable!("a large value does not fit in a block"),
    };
    match change {
        Change::Replace(value) => packed::replace(bytes, steps, &block(value)),
        Change::Remove(count) => packed::remove(bytes, steps, *count),
        Change::InsertValues { at, values } => {
            let mut items = Vec::new();
            for value in *values {
                items.extend_from_slice(&block(value));
            }
            packed::insert(bytes, steps, *at, &items, values.len());
        }
        Change::InsertMember { name, value } => {
            let container = Container::at(&bytes[packed::reference_value(bytes, steps)..]);
            let at = container.expect("a member is put into an object").count();
            let mut items = Vec::new();
            push_string(&mut items, name);
            items.extend_from_slice(&block(value));
            packed::insert(bytes, steps, at, &items, 1);
        }
    }
}

impl Large {
    /// Does an edit in a run or in the list of runs. Returns run and link of the node in which the edit has to take place
    /// instead, one step further on.
    pub(super) fn change(&mut self, steps: &[u32], change: &Change<'_>) -> Option<(usize, usize)> {
        let Some((&first, rest)) = steps.split_first() else {
            match change {
                Change::InsertValues { at, values } => self.insert_values(*at, values),
                Change::InsertMember { name, value } => self.insert_member(name, value),
                Change::Replace(_) | Change::Remove(_) => {
                    unreachable!("a large container does not change itself so")
                }
            }
            return None;
        };
        let (place, ordinal) = self.locate(first as usize);
        if rest.is_empty() {
            match change {
                Change::Replace(value) => {
                    self.replace(place, ordinal, value);
                    return None;
                }
                Change::Remove(count) => {
                    self.remove(first as usize, *count);
                    return None;
                }
                _ => {}
            }
        }
        if let Some(link) = self.runs[place].link(ordinal) {
            return Some((place, link));
        }
        let run = Arc::make_mut(&mut self.runs[place]);
        if !change.fits_in_block() {
            // The value gets a node, in which the edit goes on.
            let at = run.container().value_at(ordinal);
            let value = run.bytes[at..at + value_bytes(&run.bytes[at..])].to_vec();
            return Some((place, run.put_link(ordinal, Node::block(value))));
        }
        let mut local = Vec::with_capacity(steps.len());
        local.push(ordinal as u32);
        local.extend_from_slice(rest);
        change_block(&mut run.bytes, &local, change);
        self.keep_limits(place, ordinal);
        None
    }

    /// The container as one block, if so little of it is left that it stays one for a while.
    fn as_block(&self) -> Option<Vec<u8>> {
        let bytes: usize = self.runs.iter().take(SMALL_RUNS_MAX).map(|run| run.bytes.len()).sum();
        let links = || self.runs.iter().any(|run| !run.links.is_empty());
        if bytes > SMALL_BYTES_MAX || self.runs.len() > SMALL_RUNS_MAX || links() {
            return None;
        }
        let mut items = Vec::new();
        for run in &self.runs {
            items.extend_from_slice(run.container().items());
        }
        let mut starts = Vec::with_capacity(self.count());
        let mut at = 0;
        while at < items.len() {
            starts.push(at as u32);
            at += item_bytes(self.object, &items[at..]);
        }
        let mut block = Vec::new();
        packed::push_header_of(&mut block, self.object, &items, &starts, &mut Vec::new());
        block.extend_from_slice(&items);
        Some(block)
    }

    /// After the value of an item has grown: it moves to a node of its own if it is long, and its run is divided.
    fn keep_limits(&mut self, place: usize, ordinal: usize) {
        let run = &self.runs[place];
        if run.bytes.len() <= RUN_BYTES_MAX {
            let at = run.container().value_at(ordinal);
            if value_bytes(&run.bytes[at..]) <= ITEM_BYTES_MAX {
                return;
            }
        }
        let run = Arc::make_mut(&mut self.runs[place]);
        let at = run.container().value_at(ordinal);
        let bytes = value_bytes(&run.bytes[at..]);
        if bytes > ITEM_BYTES_MAX {
            let value = run.bytes[at..at + bytes].to_vec();
            let node = if value.len() > BLOCK_BYTES_MAX && Container::at(&value).is_some() {
                Node::Large(Arc::new(Node::enlarged(&value)))
            } else {
                Node::block(value)
            };
            run.put_link(ordinal, node);
        }
        self.divide(place);
    }

    /// Divides a run that is too long.
    fn divide(&mut self, place: usize) {
        if self.runs[place].bytes.len() <= RUN_BYTES_MAX {
            return;
        }
        let old = Arc::clone(&self.runs[place]);
        let container = old.container();
        let mut builder = LargeBuilder::new(self.object);
        builder.push_items(container.items(), container.count(), &mut old.links.clone());
        self.replace_run(place, builder.finish().runs);
    }

    /// Puts runs into the place of one that has the same items, or the same names.
    fn replace_run(&mut self, place: usize, mut parts: Vec<Arc<Run>>) {
        if let [part] = &mut parts[..] {
            Arc::make_mut(part).id = self.runs[place].id;
            self.runs[place] = Arc::clone(part);
            return;
        }
        self.names_lose_run(place);
        let count = parts.len();
        self.runs.splice(place..=place, parts);
        self.count_items();
        for part in place..place + count {
            if self.names_gain_run(part) {
                break;
            }
        }
        self.place_runs();
    }

    /// Gives members of a run other values: places in their order, with values or links to `links`. O(run)
    pub(super) fn replace_in_run(&mut self, place: usize, values: &[(usize, &[u8])], links: &[Node]) {
        let old = Arc::clone(&self.runs[place]);
        let mut all_links = old.links.clone();
        let mut values = values.iter().peekable();
        let mut items = Vec::with_capacity(old.bytes.len());
        let mut rest = old.container().items();
        let count = old.container().count();
        for ordinal in 0..count {
            let (item, after) = rest.split_at(item_bytes(true, rest));
            rest = after;
            match values.next_if(|(place, _)| *place == ordinal) {
                None => items.extend_from_slice(item),
                Some((_, value)) => {
                    items.extend_from_slice(&item[..value_bytes(item)]);
                    match link_of(value) {
                        Some(link) => {
                            push_link(&mut items, all_links.len());
                            all_links.push(links[link].clone());
                        }
                        None => items.extend_from_slice(value),
                    }
                }
            }
        }
        let mut builder = LargeBuilder::new(true);
        builder.push_items(&items, count, &mut all_links);
        self.replace_run(place, builder.finish().runs);
    }

    fn replace(&mut self, place: usize, ordinal: usize, value: &Node) {
        let run = Arc::make_mut(&mut self.runs[place]);
        match value {
            Node::Block(block) if block.len() <= ITEM_BYTES_MAX => {
                run.drop_link(ordinal);
                packed::replace(&mut run.bytes, &[ordinal as u32], block);
            }
            node => {
                run.put_link(ordinal, node.clone());
            }
        }
        self.divide(place);
    }

    /// Removes items from one on, in all runs that have them.
    fn remove(&mut self, first: usize, count: usize) {
        let mut left = count;
        let (mut place, mut ordinal) = self.locate(first);
        while left > 0 {
            let has = self.runs[place].container().count();
            let here = left.min(has - ordinal);
            left -= here;
            if here == has {
                self.names_lose_run(place);
                self.runs.remove(place);
            } else {
                if self.object {
                    let run = &self.runs[place];
                    let id = run.id;
                    for removed in ordinal..ordinal + here {
                        self.names.remove(run.container().name(removed), id);
                    }
                }
                let run = Arc::make_mut(&mut self.runs[place]);
                for removed in ordinal..ordinal + here {
                    run.drop_link(removed);
                }
                packed::remove(&mut run.bytes, &[ordinal as u32], here);
                place += 1;
            }
            ordinal = 0;
        }
        self.count_items();
        self.place_runs();
    }

    fn insert_values(&mut self, at: usize, values: &[Node]) {
        let mut items = Vec::new();
        let mut links = Vec::new();
        for value in values {
            push_value(&mut items, value, &mut links);
        }
        if self.runs.is_empty() {
            let mut builder = LargeBuilder::new(self.object);
            builder.push_items(&items, values.len(), &mut links);
            *self = builder.finish();
            return;
        }
        let (place, ordinal) = if at == self.count() {
            let last = self.runs.len() - 1;
            (last, self.runs[last].container().count())
        } else {
            self.locate(at)
        };
        self.append_to_run(place, ordinal, &items, values.len(), links);
    }

    fn insert_member(&mut self, name: &[u8], value: &Node) {
        let mut items = Vec::new();
        let mut links = Vec::new();
        push_string(&mut items, name);
        push_value(&mut items, value, &mut links);
        let Some(last) = self.runs.len().checked_sub(1) else {
            let mut builder = LargeBuilder::new(true);
            builder.push_items(&items, 1, &mut links);
            *self = builder.finish();
            return;
        };
        self.names.insert(name, self.runs[last].id);
        let ordinal = self.runs[last].container().count();
        self.append_to_run(last, ordinal, &items, 1, links);
    }

    /// Puts items before one of a run, whose names are noted already.
    fn append_to_run(&mut self, place: usize, ordinal: usize, items: &[u8], count: usize, links: Vec<Node>) {
        let run = Arc::make_mut(&mut self.runs[place]);
        let first_link = run.links.len();
        let mut renumbered = Vec::with_capacity(items.len());
        let mut rest = items;
        for _ in 0..count {
            let bytes = item_bytes(self.object, rest);
            let name = if self.object { value_bytes(rest) } else { 0 };
            match link_of(&rest[name..]) {
                Some(link) => {
                    renumbered.extend_from_slice(&rest[..name]);
                    push_link(&mut renumbered, first_link + link);
                }
                None => renumbered.extend_from_slice(&rest[..bytes]),
            }
            rest = &rest[bytes..];
        }
        run.links.extend(links);
        packed::insert(&mut run.bytes, &[], ordinal, &renumbered, count);
        self.count_items();
        self.divide(place);
    }

    /// Notes the names of a run, which gets a number. Returns whether all runs have got new numbers, with their names.
    pub(super) fn names_gain_run(&mut self, place: usize) -> bool {
        if !self.object {
            return false;
        }
        let Some(id) = self.names.next_id() else {
            self.number_runs();
            return true;
        };
        Arc::make_mut(&mut self.runs[place]).id = id;
        self.names.place_last(id, place);
        self.note_names(place);
        false
    }

    fn note_names(&mut self, place: usize) {
        let run = &self.runs[place];
        let mut rest = run.container().items();
        while !rest.is_empty() {
            self.names.insert(string_at(rest).0, run.id);
            rest = &rest[item_bytes(true, rest)..];
        }
    }

    /// Forgets the names of a run.
    fn names_lose_run(&mut self, place: usize) {
        if !self.object {
            return;
        }
        let run = &self.runs[place];
        let mut rest = run.container().items();
        while !rest.is_empty() {
            self.names.remove(string_at(rest).0, run.id);
            rest = &rest[item_bytes(true, rest)..];
        }
    }

    /// Gives all runs numbers anew, after 65,536 of them. O(n)
    fn number_runs(&mut self) {
        assert!(self.runs.len() <= usize::from(u16::MAX), "an object has less than two gigabytes");
        self.names = Names::default();
        for place in 0..self.runs.len() {
            Arc::make_mut(&mut self.runs[place]).id = place as u16;
            self.names.place_last(place as u16, place);
            self.note_names(place);
        }
    }

    fn place_runs(&mut self) {
        if self.object {
            self.names.place(self.runs.iter().map(|run| run.id));
        }
    }
}

/// Appends a value, or a link to its node.
fn push_value(items: &mut Vec<u8>, value: &Node, links: &mut Vec<Node>) {
    match value {
        Node::Block(block) if block.len() <= ITEM_BYTES_MAX => items.extend_from_slice(block),
        node => {
            push_link(items, links.len());
            links.push(node.clone());
        }
    }
}

impl Run {
    /// Puts a node into the place of an item's value; returns its number.
    fn put_link(&mut self, ordinal: usize, node: Node) -> usize {
        self.drop_link(ordinal);
        let number = self.links.len();
        self.links.push(node);
        let mut link = Vec::with_capacity(super::LINK_BYTES);
        push_link(&mut link, number);
        packed::replace(&mut self.bytes, &[ordinal as u32], &link);
        number
    }

    /// Forgets the node of an item that is about to be replaced or removed.
    fn drop_link(&mut self, ordinal: usize) {
        let Some(number) = self.link(ordinal) else {
            return;
        };
        // Until its bytes go, they are no other node's link.
        let at = self.container().value_at(ordinal);
        self.bytes[at + 1..at + 5].fill(0xff);
        self.links.swap_remove(number);
        let last = self.links.len();
        if number == last {
            return;
        }
        // The node that was the last has its number now.
        let container = self.container();
        let moved = (0..container.count())
            .map(|other| container.value_at(other))
            .find(|&at| link_of(&self.bytes[at..]) == Some(last))
            .expect("each node has its link");
        self.bytes[moved + 1..moved + 5].copy_from_slice(&(number as u32).to_le_bytes());
    }
}
