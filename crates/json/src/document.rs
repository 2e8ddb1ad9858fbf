//! A document: a value that can be shared and changed.

use std::{fmt, sync::Arc};

use crate::{
    Builder, Items, packed,
    tree::{Change, Node},
    value::ValueRef,
    write::write_text,
};

/// Up to this many changes are always single edits.
const EDITS_MAX: usize = 16;
/// Bytes of a document whose rebuilding costs about as much as one edit.
const BYTES_PER_EDIT: usize = 16 << 10;

/// A JSON value of its own. A clone shares it in O(1); a change copies the block that it touches, and lists of blocks.
#[derive(Clone)]
pub struct Document {
    node: Node,
}

/// The place of a value in a document: the ordinals of the items that lead to it.
pub type Location = Vec<u32>;

impl Document {
    pub(crate) fn of(node: Node) -> Self {
        Self { node }
    }

    /// A copy of a value of a document. Values in runs and typed arrays of their own are shared. O(bytes) of others.
    pub fn copied(value: ValueRef<'_>) -> Self {
        if let Some(large) = value.large() {
            return Self::of(Node::Large(Arc::new(large.clone())));
        }
        match value.bytes() {
            Some(bytes) => Self::of(Node::block(bytes.to_vec())),
            None => {
                let mut bytes = Vec::new();
                if let Some(packed::Scalar::Double(number)) = value.scalar() {
                    packed::push_double(&mut bytes, number);
                }
                Self::of(Node::block(bytes))
            }
        }
    }

    /// A document of a string.
    pub fn string(text: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(text.len() + 5);
        packed::push_string(&mut bytes, text);
        Self::of(Node::block(bytes))
    }

    /// A document of the value.
    pub(crate) fn scalar(push: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut bytes = Vec::new();
        push(&mut bytes);
        Self::of(Node::block(bytes))
    }

    /// The value.
    #[inline]
    pub fn root(&self) -> ValueRef<'_> {
        ValueRef::of(&self.node)
    }

    /// The value at a location.
    pub fn at(&self, location: &[u32]) -> Option<ValueRef<'_>> {
        location.iter().try_fold(self.root(), |value, &ordinal| value.item(ordinal as usize))
    }

    /// Bytes that it takes on the heap, with the counts of sharing. Blocks shared with clones count in full. O(blocks)
    pub fn heap_bytes(&self) -> usize {
        self.node.heap_bytes()
    }

    /// Whether one is an unchanged clone of the other: they share everything.
    pub fn is(&self, other: &Self) -> bool {
        match (&self.node, &other.node) {
            (Node::Block(one), Node::Block(other)) => Arc::ptr_eq(one, other),
            (Node::Large(one), Node::Large(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// A copy that shares nothing. O(bytes)
    pub fn apart(&self) -> Self {
        Self::of(self.node.apart())
    }

    /// The packed bytes, if the document is one block; see the head of `packed`.
    pub fn as_block(&self) -> Option<&[u8]> {
        match &self.node {
            Node::Block(block) => Some(block),
            Node::Large(_) => None,
        }
    }

    /// The document of packed bytes that [`Self::as_block`] gave, for values that were elsewhere. Bytes of another origin
    /// make a document that panics when it is read.
    pub fn from_block(block: Vec<u8>) -> Self {
        Self::of(Node::block(block))
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// Puts a value into the place of another one.
    pub fn replace(&mut self, location: &[u32], value: &Self) {
        self.untype(location);
        self.node.change(location, &Change::Replace(&value.node));
    }

    /// Removes an item of a container, and those behind it, `count` in all.
    ///
    /// # Panics
    /// If the location is the root, or no such item is there.
    pub fn remove(&mut self, location: &[u32], count: usize) {
        if count > 0 {
            self.untype(location);
            self.node.change(location, &Change::Remove(count));
        }
    }

    /// Replaces or removes (`None`) values, none of which is below another: by single edits, or by one pass over the document
    /// if that is cheaper. O(document) at most.
    ///
    /// # Panics
    /// If a location is not there, or the root is to be removed.
    pub fn change_many(&mut self, mut changes: Vec<(Location, Option<Self>)>) {
        changes.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        if changes.len() > EDITS_MAX && changes.len() * BYTES_PER_EDIT > self.heap_bytes() {
            *self = self.rebuilt(&changes);
            return;
        }
        for (location, value) in changes.iter().rev() {
            match value {
                Some(value) => self.replace(location, value),
                None => self.remove(location, 1),
            }
        }
    }

    /// A document with sorted changes. Needs no stack.
    fn rebuilt(&self, changes: &[(Location, Option<Self>)]) -> Self {
        let mut changes = changes.iter().peekable();
        if let Some((location, Some(value))) = changes.peek()
            && location.is_empty()
        {
            return value.clone();
        }
        let mut builder = Builder::new();
        // The containers on the way to the next change, and the location of the item that comes next.
        let mut open: Vec<Items<'_>> = Vec::new();
        let mut location: Location = vec![0];
        let begin = |builder: &mut Builder, value: ValueRef<'_>| {
            if value.is_object() { builder.begin_object() } else { builder.begin_array() }
        };
        begin(&mut builder, self.root());
        open.push(self.root().items());
        while let Some(items) = open.last_mut() {
            let named = items.have_names();
            if let Some((name, value)) = items.next() {
                let change = changes.next_if(|(at, _)| *at == location);
                if named && !matches!(change, Some((_, None))) {
                    builder.name(name);
                }
                match change {
                    Some((_, Some(value))) => builder.value(value.root()),
                    Some((_, None)) => {}
                    None if changes.peek().is_some_and(|(at, _)| at.starts_with(&location)) => {
                        begin(&mut builder, value);
                        open.push(value.items());
                        location.push(0);
                        continue;
                    }
                    None => builder.value(value),
                }
            } else {
                builder.end();
                open.pop();
                location.pop();
            }
            if let Some(last) = location.last_mut() {
                *last += 1;
            }
        }
        builder.finish()
    }

    /// Puts values before an item of an array, or behind the last.
    pub fn insert_values(&mut self, array: &[u32], at: usize, values: &[Self]) {
        if values.is_empty() {
            return;
        }
        let mut inside = array.to_vec();
        inside.push(0);
        self.untype(&inside);
        let values: Vec<Node> = values.iter().map(|value| value.node.clone()).collect();
        self.node.change(array, &Change::InsertValues { at, values: &values });
    }

    /// Gives an object the member, behind the others if it has none of that name.
    pub fn set_member(&mut self, object: &[u32], name: &[u8], value: &Self) {
        match self.at(object).and_then(|object| object.find(name)) {
            Some((ordinal, _)) => {
                let mut location = object.to_vec();
                location.push(ordinal as u32);
                self.replace(&location, value);
            }
            None => self.node.change(object, &Change::InsertMember { name, value: &value.node }),
        }
    }

    /// Makes the array that a location leads into, if it is typed, one of numbers that stand for themselves.
    fn untype(&mut self, location: &[u32]) {
        let Some((_, array)) = location.split_last() else {
            return;
        };
        if self.at(array).is_none_or(|value| value.typed().is_none()) {
            return;
        }
        let mut builder = Builder::new();
        builder.begin_array();
        for (_, element) in self.at(array).into_iter().flat_map(|value| value.items()) {
            builder.double(element.as_number().map_or(0.0, crate::Number::as_f64));
        }
        builder.end();
        let plain = builder.finish();
        self.node.change(array, &Change::Replace(plain.node()));
    }

    /// The minified text.
    pub fn text(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write_text(self.root(), &mut out);
        out
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        out.write_str(&String::from_utf8_lossy(&text[..text.len().min(200)]))
    }
}
