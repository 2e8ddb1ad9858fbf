//! Paths: which values of a document a command means.
//!
//! Two dialects decide what commands answer. A text that is `$`, or begins with `$.` or `$[`, is a JSONPath; anything else
//! is a legacy path, which is read as the JSONPath behind `$.` (`a.b`, `.a.b`, `a[0]`; `.` is the root).
//!
//! ```text
//! path      $ segment…
//! segment   .name  ..name  .*  ..*  [selector]  .[selector]  ..[selector]         blanks may stand around all but `$`
//! selector  *  │ "name", 'name' …  │ 0, -1 …  │ start:end:step  │ ?filter
//! filter    term  │ term op term  │ (filter)  │ filter && filter  │ filter || filter      && binds closer
//! term      @ segment…  │ $ segment…  │ number │ string │ true │ false │ null
//! op        ==  !=  <  <=  >  >=  =~ (a regular expression is found in the text)
//! ```
//!
//! As RedisJSON answers: an index before the first item is the first; a filter of a scalar is asked about the scalar
//! itself; a term that matches several values, or none, is nothing, which equals nothing and has no order.
//! Escapes in quoted names are `\"`, `\'` and `\\`.
//!
//! A path is compiled once ([`Path::compile`]), then evaluated any number of times ([`evaluate`](Path::evaluate)) without
//! recursion by the document's depth; filters in filters recurse up to [`FILTER_DEPTH_MAX`].

mod compile;
mod evaluate;
mod filter;
#[cfg(test)]
mod tests;

use std::fmt;

pub use evaluate::{Budget, TooExpensive};
use filter::Filter;

use crate::{Document, Location, ValueRef};

/// Most filters in one another.
pub const FILTER_DEPTH_MAX: usize = 16;
/// Most bytes of a path.
pub const PATH_BYTES_MAX: usize = 64 << 10;

/// A compiled path.
#[derive(Debug)]
pub struct Path {
    /// The text as the user gave it.
    given: Box<[u8]>,
    /// The text from `$` on.
    text: Box<[u8]>,
    legacy: bool,
    segments: Vec<Segment>,
}

/// A step of a path.
#[derive(Debug)]
struct Segment {
    /// Whether it is taken from the value and from everything below it.
    descends: bool,
    selector: Selector,
}

#[derive(Debug)]
enum Selector {
    Every,
    Names(Vec<Box<[u8]>>),
    Indexes(Vec<i64>),
    Slice { start: i64, end: Option<i64>, step: usize },
    Filter(Filter),
}

/// Why a text is no path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathError {
    /// The path from `$` on.
    text: Vec<u8>,
    /// Where in it.
    at: usize,
    expected: &'static str,
}

impl fmt::Display for PathError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 200;
        let from = self.at.saturating_sub(SHOWN_MAX);
        let before = String::from_utf8_lossy(&self.text[from..self.at]);
        let after = String::from_utf8_lossy(&self.text[self.at..self.text.len().min(self.at + SHOWN_MAX)]);
        let (position, expected) = (self.at, self.expected);
        if after.is_empty() {
            write!(out, "Error occurred on position {position}, \"{before} <<<<----\"")?;
        } else {
            write!(out, "Error occurred on position {position}, \"{before} ---->>>> {after}\"")?;
        }
        write!(out, ", expected one of the following: {expected}.")
    }
}

impl std::error::Error for PathError {}

/// The place of a new member, see [`Path::new_member`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewMember<'a> {
    /// A member of that name may be put into the object there.
    Into(Location, &'a [u8]),
    /// There is no object that could get it.
    Nowhere,
    /// The path ends with an index: arrays do not grow so.
    OutOfRange,
    /// The path may match several values.
    NotStatic,
}

impl Path {
    /// Compiles a path. O(text)
    pub fn compile(given: &[u8]) -> Result<Self, PathError> {
        compile::compile(given)
    }

    /// Whether it is in the legacy dialect.
    pub fn is_legacy(&self) -> bool {
        self.legacy
    }

    /// The text as the user gave it.
    pub fn given(&self) -> &[u8] {
        &self.given
    }

    /// The text from `$` on, as errors show it.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether it matches one value at most, whatever the document.
    pub fn is_static(&self) -> bool {
        is_static(&self.segments)
    }

    /// Shows the matches to `visit` in document order, until it returns false: locations and values.
    pub fn evaluate<'a>(
        &self,
        root: ValueRef<'a>,
        budget: &mut Budget,
        visit: impl FnMut(&[u32], ValueRef<'a>) -> bool,
    ) -> Result<(), TooExpensive> {
        evaluate::evaluate(&self.segments, root, root, 0, budget, visit)
    }

    /// The values that match, in document order; of a legacy path the first alone.
    pub fn values<'a>(
        &self,
        root: ValueRef<'a>,
        budget: &mut Budget,
    ) -> Result<Vec<ValueRef<'a>>, TooExpensive> {
        let mut values = Vec::new();
        self.evaluate(root, budget, |_, value| {
            values.push(value);
            !self.legacy
        })?;
        Ok(values)
    }

    /// The locations of all matches in the order of [`Self::evaluate`], each once.
    pub fn locations(&self, document: &Document, budget: &mut Budget) -> Result<Vec<Location>, TooExpensive> {
        let mut locations = Vec::new();
        self.evaluate(document.root(), budget, |location, _| {
            locations.push(location.to_vec());
            true
        })?;
        if !self.is_static() {
            let mut order: Vec<u32> = (0..locations.len() as u32).collect();
            let at = |&place: &u32| &locations[place as usize];
            order.sort_unstable_by(|a, b| at(a).cmp(at(b)).then(a.cmp(b)));
            let mut kept = vec![true; locations.len()];
            for pair in order.windows(2).filter(|pair| at(&pair[0]) == at(&pair[1])) {
                kept[pair[1] as usize] = false;
            }
            let mut kept = kept.into_iter();
            locations.retain(|_| kept.next() == Some(true));
        }
        Ok(locations)
    }

    /// Returns the place for a value that is set at a path without a match.
    pub fn new_member(&self, document: &Document) -> NewMember<'_> {
        if !self.is_static() {
            return NewMember::NotStatic;
        }
        let Some((last, outer)) = self.segments.split_last() else {
            return NewMember::Nowhere;
        };
        let mut parent = None;
        let found = evaluate::evaluate(
            outer,
            document.root(),
            document.root(),
            0,
            &mut Budget::default(),
            |at, value| {
                parent = Some((at.to_vec(), value));
                false
            },
        );
        match (&last.selector, parent) {
            (Selector::Names(names), Some((location, value))) if found.is_ok() && value.is_object() => {
                NewMember::Into(location, &names[0])
            }
            (Selector::Indexes(_), _) => NewMember::OutOfRange,
            _ => NewMember::Nowhere,
        }
    }
}

fn is_static(segments: &[Segment]) -> bool {
    segments.iter().all(|segment| {
        let single = match &segment.selector {
            Selector::Names(names) => names.len() == 1,
            Selector::Indexes(indexes) => indexes.len() == 1,
            _ => false,
        };
        single && !segment.descends
    })
}
