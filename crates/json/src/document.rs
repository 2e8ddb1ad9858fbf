//! A document: a value that can be shared and changed.

use std::fmt;

use crate::{
    packed,
    tree::{Change, Node},
    value::ValueRef,
    write::write_text,
};

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
            return Self::of(Node::Large(std::sync::Arc::new(large.clone())));
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

    /// The packed bytes, if the document is one block; see the head of `packed`.
    pub fn as_block(&self) -> Option<&[u8]> {
        match &self.node {
            Node::Block(block) => Some(block),
            Node::Large(_) => None,
        }
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
        let mut builder = crate::Builder::new();
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
