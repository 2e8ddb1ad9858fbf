//! Makes the packed form of values that come as events, from the parser or a loader, in one pass and without recursion.
//!
//! ```text
//! scratch   items of the root ▏name │ items of a container in it ▏items of the next one …
//!                              frame                              frame
//! ```
//!
//! The items of an open container stand behind those of the containers around it; when it ends, its header is put before
//! them. So a byte is moved once for each level that it stands in. An open container whose items take more than
//! [`BLOCK_BYTES_MAX`] hands them over to runs (see `tree`), so the scratch stays short however long the document is.

use std::{mem, sync::Arc};

use crate::{
    Document, Number, ValueRef,
    packed::{
        self, FALSE, NULL, SCANNED_MAX, Scalar, TRUE, compare_names, item_bytes, push_decimal, push_double,
        push_header_of, push_int, push_string, push_uint, string_at,
    },
    tree::{BLOCK_BYTES_MAX, LargeBuilder, Node, push_link},
};

/// A container that has not ended.
#[derive(Debug)]
struct Frame {
    object: bool,
    /// Offset of its items in the scratch, and of their starts.
    from: usize,
    starts: usize,
    /// Number of the first node that its items link to.
    links: usize,
    /// The earlier items of a large container, in runs; the scratch has only the latest.
    large: Option<Box<LargeBuilder>>,
}

/// Makes a document; see the head of the file.
///
/// Calls must describe one value: containers end, and in an object every value follows its name. No name and no string
/// may hold anything but UTF-8.
#[derive(Debug, Default)]
pub struct Builder {
    scratch: Vec<u8>,
    frames: Vec<Frame>,
    /// Offsets of the items of all open containers, from the first item of their container.
    starts: Vec<u32>,
    links: Vec<Node>,
    /// The document, if it does not stand in the scratch.
    root: Option<Node>,
    header: Vec<u8>,
    order: Vec<u32>,
}

impl Builder {
    /// A builder without anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many containers are open.
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Whether anything came.
    pub(crate) fn has_value(&self) -> bool {
        self.root.is_some() || !self.scratch.is_empty()
    }

    /// Whether the innermost open container is an object.
    pub(crate) fn in_object(&self) -> bool {
        self.frames.last().is_some_and(|frame| frame.object)
    }

    /// Notes where an item begins; members of objects begin with their name.
    #[inline]
    fn begin_value(&mut self) {
        if let Some(frame) = self.frames.last()
            && !frame.object
        {
            self.starts.push((self.scratch.len() - frame.from) as u32);
        }
    }

    #[inline]
    fn end_value(&mut self) {
        if let Some(frame) = self.frames.last()
            && self.scratch.len() - frame.from > BLOCK_BYTES_MAX
        {
            self.hand_over();
        }
    }

    /// The name of the next member.
    #[inline]
    pub fn name(&mut self, name: &[u8]) {
        let frame = self.frames.last().expect("a name stands in an object");
        debug_assert!(frame.object);
        self.starts.push((self.scratch.len() - frame.from) as u32);
        push_string(&mut self.scratch, name);
    }

    /// null.
    pub fn null(&mut self) {
        self.begin_value();
        self.scratch.push(NULL);
        self.end_value();
    }

    /// true or false.
    pub fn bool(&mut self, value: bool) {
        self.begin_value();
        self.scratch.push(if value { TRUE } else { FALSE });
        self.end_value();
    }

    /// An integer.
    #[inline]
    pub fn int(&mut self, number: i64) {
        self.begin_value();
        push_int(&mut self.scratch, number);
        self.end_value();
    }

    /// An integer that may be above `i64::MAX`.
    pub fn uint(&mut self, number: u64) {
        self.begin_value();
        push_uint(&mut self.scratch, number);
        self.end_value();
    }

    /// A double, which must be finite.
    pub fn double(&mut self, number: f64) {
        self.begin_value();
        push_double(&mut self.scratch, number);
        self.end_value();
    }

    /// The double *digits* / 10^*scale*, of up to fourteen digits.
    pub(crate) fn decimal(&mut self, digits: u64, scale: u8, negative: bool) {
        self.begin_value();
        push_decimal(&mut self.scratch, digits, scale, negative);
        self.end_value();
    }

    /// A string.
    #[inline]
    pub fn string(&mut self, text: &[u8]) {
        self.begin_value();
        push_string(&mut self.scratch, text);
        self.end_value();
    }

    /// A value of another document, as it is: blocks of large containers are shared.
    pub(crate) fn value(&mut self, value: ValueRef<'_>) {
        let Some(large) = value.large() else {
            self.begin_value();
            match value.bytes() {
                Some(bytes) => self.scratch.extend_from_slice(bytes),
                None => push_double(&mut self.scratch, value.as_number().map_or(0.0, Number::as_f64)),
            }
            self.end_value();
            return;
        };
        let node = Node::Large(Arc::new(large.clone()));
        match self.frames.last() {
            None => self.root = Some(node),
            Some(frame) => {
                let number = self.links.len() - frame.links;
                self.begin_value();
                push_link(&mut self.scratch, number);
                self.links.push(node);
                self.end_value();
            }
        }
    }

    /// A scalar of another document.
    pub(crate) fn scalar(&mut self, value: ValueRef<'_>) {
        match value.scalar() {
            Some(Scalar::Null) => self.null(),
            Some(Scalar::Bool(value)) => self.bool(value),
            Some(Scalar::Int(number)) => self.int(number),
            Some(Scalar::Uint(number)) => self.uint(number),
            Some(Scalar::Double(number)) => self.double(number),
            Some(Scalar::String(text)) => self.string(text),
            None => unreachable!("a container has no scalar"),
        }
    }

    /// An array of elements of one width: 0 FP16, 1 BF16, 2 FP32, 3 FP64, little-endian and finite.
    pub fn typed_array(&mut self, code: u8, elements: &[u8]) {
        let tag = packed::TYPED + (code & 3);
        let count = elements.len() / packed::element_bytes(tag);
        self.begin_value();
        if count == 0 {
            self.scratch.push(packed::EMPTY_ARRAY);
        } else {
            self.scratch.push(tag);
            self.scratch.extend_from_slice(&(count as u32).to_le_bytes());
            self.scratch.extend_from_slice(&elements[..count * packed::element_bytes(tag)]);
        }
        self.end_value();
    }

    /// Begins an array.
    pub fn begin_array(&mut self) {
        self.begin(false);
    }

    /// Begins an object.
    pub fn begin_object(&mut self) {
        self.begin(true);
    }

    fn begin(&mut self, object: bool) {
        self.begin_value();
        self.frames.push(Frame {
            object,
            from: self.scratch.len(),
            starts: self.starts.len(),
            links: self.links.len(),
            large: None,
        });
    }

    /// Ends the innermost open container.
    ///
    /// # Panics
    /// If there is none.
    pub fn end(&mut self) {
        let frame = self.frames.last().expect("a container is open");
        let small = frame.large.is_none() && self.links.len() == frame.links;
        if !small {
            self.end_large();
            return;
        }
        let (object, from, starts) = (frame.object, frame.from, frame.starts);
        if object {
            self.drop_doubles();
        }
        self.header.clear();
        let items = &self.scratch[from..];
        push_header_of(&mut self.header, object, items, &self.starts[starts..], &mut self.order);
        let (len, head) = (self.scratch.len(), self.header.len());
        self.scratch.resize(len + head, 0);
        self.scratch.copy_within(from..len, from + head);
        self.scratch[from..from + head].copy_from_slice(&self.header);
        self.starts.truncate(starts);
        self.frames.pop();
        self.end_value();
    }

    fn end_large(&mut self) {
        self.hand_over();
        let frame = self.frames.pop().expect("a container is open");
        let large = frame.large.expect("items were handed over").finish();
        let node = Node::Large(Arc::new(large));
        if self.frames.is_empty() {
            self.root = Some(node);
            return;
        }
        let outer = self.frames.last().expect("a container is open");
        push_link(&mut self.scratch, self.links.len() - outer.links);
        self.links.push(node);
        self.end_value();
    }

    /// Moves the items of the innermost container from the scratch to its runs.
    fn hand_over(&mut self) {
        if self.in_object() {
            self.drop_doubles();
        }
        let frame = self.frames.last_mut().expect("a container is open");
        let large = frame.large.get_or_insert_with(|| Box::new(LargeBuilder::new(frame.object)));
        let count = self.starts.len() - frame.starts;
        let items = &self.scratch[frame.from..];
        let links = &mut self.links[frame.links..];
        if frame.object && !large.is_empty() {
            large.push_members(items, count, links);
        } else {
            large.push_items(items, count, links);
        }
        self.scratch.truncate(frame.from);
        self.starts.truncate(frame.starts);
        self.links.truncate(frame.links);
    }

    /// Of the members of the innermost object that have the same name, keeps the first's place and the last's value.
    fn drop_doubles(&mut self) {
        let frame = self.frames.last().expect("a container is open");
        let (from, starts) = (frame.from, &self.starts[frame.starts..]);
        let items = &self.scratch[from..];
        let name = |ordinal: usize| string_at(&items[starts[ordinal] as usize..]).0;
        let mut doubles = false;
        if starts.len() <= SCANNED_MAX {
            for ordinal in 1..starts.len() {
                doubles |= (0..ordinal).any(|earlier| name(earlier) == name(ordinal));
            }
        } else {
            self.order.clear();
            self.order.extend(0..starts.len() as u32);
            self.order.sort_unstable_by(|&a, &b| compare_names(name(a as usize), name(b as usize)));
            doubles = self.order.windows(2).any(|pair| name(pair[0] as usize) == name(pair[1] as usize));
        }
        if !doubles {
            return;
        }
        // By name, then by place: the first of each name is followed by the others.
        let mut order: Vec<u32> = (0..starts.len() as u32).collect();
        order.sort_by(|&a, &b| compare_names(name(a as usize), name(b as usize)).then(a.cmp(&b)));
        let mut value_of: Vec<Option<u32>> = vec![None; starts.len()];
        for same in order.chunk_by(|&a, &b| name(a as usize) == name(b as usize)) {
            value_of[same[0] as usize] = same.last().copied();
        }
        let mut kept = Vec::with_capacity(items.len());
        let mut kept_starts = Vec::with_capacity(starts.len());
        for (ordinal, value) in value_of.into_iter().enumerate() {
            if let Some(value) = value {
                kept_starts.push(kept.len() as u32);
                let at = starts[value as usize] as usize;
                debug_assert_eq!(name(value as usize), name(ordinal));
                kept.extend_from_slice(&items[at..at + item_bytes(true, &items[at..])]);
            }
        }
        let first = frame.starts;
        self.scratch.truncate(from);
        self.scratch.extend_from_slice(&kept);
        self.starts.truncate(first);
        self.starts.extend_from_slice(&kept_starts);
    }

    /// The document.
    ///
    /// # Panics
    /// If a container has not ended, or nothing came.
    pub fn finish(self) -> Document {
        assert!(self.frames.is_empty(), "all containers have ended");
        Document::of(self.into_node())
    }

    fn into_node(mut self) -> Node {
        if let Some(root) = self.root.take() {
            return root;
        }
        let bytes = mem::take(&mut self.scratch);
        assert!(!bytes.is_empty(), "a value came");
        let container = packed::Container::at(&bytes);
        if bytes.len() > BLOCK_BYTES_MAX && container.is_some_and(|container| container.count() > 0) {
            return Node::Large(Arc::new(Node::enlarged(&bytes)));
        }
        Node::block(bytes)
    }
}
