//! Values as readers see them, whichever form they stand in.

use std::{slice, sync::Arc};

use crate::{
    packed::{self, Container, Scalar, item_bytes, string_at, value_bytes},
    tree::{Large, Node, Run, link_of},
};

/// A type of values; its name is the word of JSON.TYPE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Kind {
    Null,
    Boolean,
    /// A number without fraction and exponent in its text, within the range of `i64` and `u64`.
    Integer,
    /// A double.
    Number,
    String,
    Array,
    Object,
}

impl Kind {
    /// The word of JSON.TYPE.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }
}

/// A number, exactly as it is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Number {
    Int(i64),
    /// Above `i64::MAX`.
    Uint(u64),
    Double(f64),
}

/// A value of a document, in place.
#[derive(Debug, Clone, Copy)]
pub struct ValueRef<'a>(Form<'a>);

#[derive(Debug, Clone, Copy)]
enum Form<'a> {
    /// Bytes that begin with the value, which is no link.
    Packed(&'a [u8]),
    Large(&'a Large),
    /// An element of a typed array.
    Element(f64),
}

impl<'a> ValueRef<'a> {
    /// The value of packed bytes that [`Document::as_block`](crate::Document::as_block) gave, where they stand: in a cell, or in
    /// a file that was checked.
    pub fn of_block(block: &'a [u8]) -> Self {
        Self::packed(block)
    }

    /// Bytes that the value takes, with nodes below it; of JSON.DEBUG MEMORY. O(blocks)
    pub fn memory(&self) -> usize {
        match self.0 {
            Form::Packed(bytes) => value_bytes(bytes),
            Form::Large(large) => Node::Large(Arc::new(large.clone())).heap_bytes(),
            Form::Element(_) => 0,
        }
    }

    /// The packed value that `bytes` begins with.
    #[inline]
    pub(crate) fn packed(bytes: &'a [u8]) -> Self {
        Self(Form::Packed(bytes))
    }

    #[inline]
    pub(crate) fn of(node: &'a Node) -> Self {
        match node {
            Node::Block(block) => Self(Form::Packed(block)),
            Node::Large(large) => Self(Form::Large(large)),
        }
    }

    /// A value of a run.
    #[inline]
    fn in_run(bytes: &'a [u8], links: &'a [Node]) -> Self {
        match link_of(bytes) {
            Some(link) => Self::of(&links[link]),
            None => Self::packed(bytes),
        }
    }

    /// The packed bytes of the value; `None` if it is not in one block.
    pub(crate) fn bytes(&self) -> Option<&'a [u8]> {
        match self.0 {
            Form::Packed(bytes) => Some(&bytes[..value_bytes(bytes)]),
            _ => None,
        }
    }

    /// The container in runs, if it is one.
    pub(crate) fn large(&self) -> Option<&'a Large> {
        match self.0 {
            Form::Large(large) => Some(large),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn scalar(&self) -> Option<Scalar<'a>> {
        match self.0 {
            Form::Packed(bytes) => packed::scalar(bytes),
            Form::Element(number) => Some(Scalar::Double(number)),
            Form::Large(_) => None,
        }
    }

    /// Its type.
    pub fn kind(&self) -> Kind {
        match self.scalar() {
            Some(Scalar::Null) => Kind::Null,
            Some(Scalar::Bool(_)) => Kind::Boolean,
            Some(Scalar::Int(_) | Scalar::Uint(_)) => Kind::Integer,
            Some(Scalar::Double(_)) => Kind::Number,
            Some(Scalar::String(_)) => Kind::String,
            None if self.is_object() => Kind::Object,
            None => Kind::Array,
        }
    }

    /// Whether it is an object.
    #[inline]
    pub fn is_object(&self) -> bool {
        match self.0 {
            Form::Packed(bytes) => packed::is_object(bytes[0]),
            Form::Large(large) => large.object,
            Form::Element(_) => false,
        }
    }

    /// Whether it is an array.
    #[inline]
    pub fn is_array(&self) -> bool {
        match self.0 {
            Form::Packed(bytes) => packed::is_array(bytes[0]),
            Form::Large(large) => !large.object,
            Form::Element(_) => false,
        }
    }

    /// Whether it is an array of elements of one width; its tag.
    pub(crate) fn typed(&self) -> Option<u8> {
        match self.0 {
            Form::Packed(bytes) if (packed::TYPED..packed::TYPED + 4).contains(&bytes[0]) => Some(bytes[0]),
            _ => None,
        }
    }

    /// The truth value, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self.scalar() {
            Some(Scalar::Bool(value)) => Some(value),
            _ => None,
        }
    }

    /// The bytes of a string, which are UTF-8.
    pub fn as_string(&self) -> Option<&'a [u8]> {
        match self.scalar() {
            Some(Scalar::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub fn as_number(&self) -> Option<Number> {
        match self.scalar() {
            Some(Scalar::Int(number)) => Some(Number::Int(number)),
            Some(Scalar::Uint(number)) => Some(Number::Uint(number)),
            Some(Scalar::Double(number)) => Some(Number::Double(number)),
            _ => None,
        }
    }

    /// How many items a container has; 0 of others. O(1)
    #[inline]
    pub fn len(&self) -> usize {
        match self.0 {
            Form::Large(large) => large.count(),
            Form::Packed(bytes) => match Container::at(bytes) {
                Some(container) => container.count(),
                None if self.typed().is_some() => packed::number_at(bytes, 1, 4),
                None => 0,
            },
            Form::Element(_) => 0,
        }
    }

    /// Whether it has no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value at a place of an array or object, in their order. O(1); in a large container O(log n).
    pub fn item(&self, ordinal: usize) -> Option<ValueRef<'a>> {
        if ordinal >= self.len() {
            return None;
        }
        Some(match self.0 {
            Form::Large(large) => {
                let (run, place) = large.locate(ordinal);
                let run = &large.runs[run];
                Self::in_run(&run.bytes[run.container().value_at(place)..], &run.links)
            }
            Form::Packed(bytes) => match Container::at(bytes) {
                Some(container) => Self::packed(&bytes[container.value_at(ordinal)..]),
                None => Self(Form::Element(element(bytes, ordinal))),
            },
            Form::Element(_) => return None,
        })
    }

    /// The member of that name of an object, and its place. O(log n)
    pub fn find(&self, name: &[u8]) -> Option<(usize, ValueRef<'a>)> {
        match self.0 {
            Form::Large(large) => {
                let (run, place) = large.find(name)?;
                let ordinal = large.first_of(run) + place;
                let run = &large.runs[run];
                Some((ordinal, Self::in_run(&run.bytes[run.container().value_at(place)..], &run.links)))
            }
            Form::Packed(bytes) => {
                let container = Container::at(bytes)?;
                let ordinal = container.find(name)?;
                Some((ordinal, Self::packed(&bytes[container.value_at(ordinal)..])))
            }
            Form::Element(_) => None,
        }
    }

    /// All items in their order, those of objects with their names.
    pub fn items(&self) -> Items<'a> {
        let mut items = Items {
            bytes: &[],
            left: 0,
            typed: &[],
            place: 0,
            object: self.is_object(),
            links: &[],
            runs: [].iter(),
        };
        match self.0 {
            Form::Large(large) => items.runs = large.runs.iter(),
            Form::Packed(bytes) => match Container::at(bytes) {
                Some(container) => {
                    items.bytes = container.items();
                    items.left = container.count();
                }
                None if self.typed().is_some() => {
                    items.typed = bytes;
                    items.left = self.len();
                }
                None => {}
            },
            Form::Element(_) => {}
        }
        items
    }

    /// Whether they are the same: numbers by value and kind of text, objects in any order of members. Needs no stack.
    pub fn is_same(&self, other: &ValueRef<'_>) -> bool {
        self.same(other, false)
    }

    /// Whether a filter takes them as equal: 1 and 1.0 are.
    pub fn equals(&self, other: &ValueRef<'_>) -> bool {
        self.same(other, true)
    }

    fn same(&self, other: &ValueRef<'_>, by_value: bool) -> bool {
        let mut waiting = vec![(*self, *other)];
        while let Some((a, b)) = waiting.pop() {
            match (a.scalar(), b.scalar()) {
                (None, None) => {
                    if a.is_object() != b.is_object() || a.len() != b.len() {
                        return false;
                    }
                    if a.is_object() {
                        for (name, value) in a.items() {
                            match b.find(name) {
                                Some((_, other)) => waiting.push((value, other)),
                                None => return false,
                            }
                        }
                    } else {
                        waiting
                            .extend(a.items().map(|(_, value)| value).zip(b.items().map(|(_, value)| value)));
                    }
                }
                (Some(a), Some(b)) if a == b => {}
                (Some(_), Some(_)) if by_value => match (a.as_number(), b.as_number()) {
                    (Some(a), Some(b)) if a.compare(b).is_eq() => {}
                    _ => return false,
                },
                _ => return false,
            }
        }
        true
    }

    /// How deep containers stand in one another: 0 of a scalar, 1 of an array of scalars. O(n)
    pub fn depth(&self) -> usize {
        let mut deepest = 0;
        let mut waiting = Vec::new();
        if self.is_array() || self.is_object() {
            deepest = 1;
            waiting.push(self.items());
        }
        while let Some(items) = waiting.last_mut() {
            match items.next() {
                Some((_, value)) if value.is_array() || value.is_object() => {
                    waiting.push(value.items());
                    deepest = deepest.max(waiting.len());
                }
                Some(_) => {}
                None => {
                    waiting.pop();
                }
            }
        }
        deepest
    }
}

impl Number {
    /// As a double, rounded.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Int(number) => number as f64,
            Self::Uint(number) => number as f64,
            Self::Double(number) => number,
        }
    }

    /// Their order by value; integers exactly.
    pub fn compare(self, other: Self) -> std::cmp::Ordering {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.cmp(&b),
            (Self::Uint(a), Self::Uint(b)) => a.cmp(&b),
            (Self::Int(_), Self::Uint(_)) => std::cmp::Ordering::Less,
            (Self::Uint(_), Self::Int(_)) => std::cmp::Ordering::Greater,
            // No stored double is a NaN.
            (a, b) => a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(std::cmp::Ordering::Equal),
        }
    }
}

/// How many of `bytes` belong to the packed value that they begin with, which [`Document::as_block`] gave. O(1)
///
/// [`Document::as_block`]: crate::Document::as_block
#[inline]
pub fn block_bytes(bytes: &[u8]) -> usize {
    value_bytes(bytes)
}

/// Items of a container; see [`ValueRef::items`]. Names are empty in arrays.
#[derive(Debug, Clone)]
pub struct Items<'a> {
    /// The items of a packed container that are left, and how many they are.
    bytes: &'a [u8],
    left: usize,
    /// A typed array, and the place of its next element.
    typed: &'a [u8],
    place: usize,
    object: bool,
    links: &'a [Node],
    runs: slice::Iter<'a, Arc<Run>>,
}

impl<'a> Items<'a> {
    /// Whether the items have names.
    pub fn have_names(&self) -> bool {
        self.object
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = (&'a [u8], ValueRef<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            let run = self.runs.next()?;
            let container = run.container();
            self.bytes = container.items();
            self.left = container.count();
            self.links = &run.links;
        }
        self.left -= 1;
        if self.object {
            let (name, bytes) = string_at(self.bytes);
            let value = &self.bytes[bytes..];
            self.bytes = &value[value_bytes(value)..];
            return Some((name, ValueRef::in_run(value, self.links)));
        }
        if !self.typed.is_empty() {
            self.place += 1;
            return Some((&[], ValueRef(Form::Element(element(self.typed, self.place - 1)))));
        }
        let value = self.bytes;
        self.bytes = &value[item_bytes(false, value)..];
        Some((&[], ValueRef::in_run(value, self.links)))
    }
}

/// An element of a typed array.
fn element(bytes: &[u8], ordinal: usize) -> f64 {
    let width = packed::element_bytes(bytes[0]);
    let at = 5 + ordinal * width;
    crate::typed::element(bytes[0] & 3, &bytes[at..at + width])
}
