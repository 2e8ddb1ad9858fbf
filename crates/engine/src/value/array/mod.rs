//! Arrays: values at indexes from 0 to 2^64 − 2, of which most may be empty.
//!
//! ```text
//! small    one listpack: cursor │ index │ value │ index │ value │ …        packed into its key's cell, see `value::packed`
//! large    pages of 64 such pairs, in a map by index                      pages.rs, decision 0096
//! ```
//!
//! The cursor is one more than the index of the last inserted value (ARINSERT, ARRING), 0 before the first.
//! An array becomes large when it outgrows [`SMALL_PAIRS_MAX`] or [`SMALL_BYTES_MAX`], and stays so. A clone of a large array shares it; a
//! change then copies the map's root, one leaf and one page.

mod pages;
mod pairs;
mod stored;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use dunlin_structures::{Element, LISTPACK_BYTES_MAX, Listpack, Position};

use self::{
    pages::{PAGE_PAIRS_MAX, PageRange, Pages},
    pairs::Pairs,
};
use super::{
    Collection, CollectionRef, Object, ObjectRef, Packed, PackedForm, Resources, packed, shared::Shared,
};

pub(crate) use stored::{ARRAY_MODULE, read_wrapped};

/// Values of a small array.
const SMALL_PAIRS_MAX: usize = PAGE_PAIRS_MAX;
/// Bytes of a small array's listpack.
const SMALL_BYTES_MAX: usize = 1024;

/// An array.
#[derive(Debug, Clone)]
pub struct Array {
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    Small(Listpack),
    Large(Shared<Pages>),
}

impl Default for Array {
    fn default() -> Self {
        Self::in_listpack(Listpack::new())
    }
}

impl Collection for Array {
    type Ref<'a> = CollectionRef<'a, Self>;

    fn new(_: &Arc<Resources>) -> Self {
        Self::default()
    }

    fn new_in_buffer(_: &Arc<Resources>) -> Self {
        Self::in_listpack(packed::new_listpack())
    }

    #[inline]
    fn of(object: &Object) -> Option<&Self> {
        match object {
            Object::Array(array) => Some(array),
            _ => None,
        }
    }

    #[inline]
    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        match object {
            Object::Array(array) => Some(array),
            _ => None,
        }
    }

    fn of_ref(object: ObjectRef<'_>) -> Option<CollectionRef<'_, Self>> {
        CollectionRef::of(object)
    }

    fn into_object(self) -> Object {
        Object::Array(self)
    }

    fn is_empty(&self) -> bool {
        self.count() == 0
    }

    #[inline]
    fn outside_bytes(&self) -> usize {
        self.heap_bytes()
    }

    #[inline]
    fn packed(&self) -> Option<Packed<'_>> {
        match &self.form {
            Form::Small(listpack) => Packed::new(PackedForm::Array, listpack.bytes()),
            Form::Large(_) => None,
        }
    }

    fn leave_buffer(&mut self) {
        if let Form::Small(listpack) = &mut self.form {
            packed::leave_buffer(listpack);
        }
    }

    fn into_buffer(self) -> Option<Vec<u8>> {
        match self.form {
            Form::Small(listpack) => Some(listpack.into_buffer()),
            Form::Large(_) => None,
        }
    }
}

impl Array {
    /// The largest index.
    pub const INDEX_MAX: u64 = u64::MAX - 1;
    /// Bytes of the longest value: it stands in a listpack.
    pub const VALUE_BYTES_MAX: usize = LISTPACK_BYTES_MAX - 1024;
    /// Values of a page.
    pub const PAGE_VALUES_MAX: usize = PAGE_PAIRS_MAX;

    /// The pairs of a listpack, which are in their place there.
    #[inline]
    pub(super) fn in_listpack(listpack: Listpack) -> Self {
        Self { form: Form::Small(listpack) }
    }

    /// The first pair of a small array's listpack.
    fn start(listpack: &Listpack) -> Option<Position> {
        let view = listpack.view();
        view.first().and_then(|cursor| view.next(cursor))
    }

    /// How many values there are. O(1).
    pub fn count(&self) -> u64 {
        match &self.form {
            Form::Small(listpack) => listpack.len() as u64 / 2,
            Form::Large(pages) => pages.count(),
        }
    }

    /// The largest index with a value, and one more; 0 if there is none. O(1).
    pub fn len(&self) -> u64 {
        let last = match &self.form {
            Form::Small(listpack) => pairs::last_offset(listpack.view(), Self::start(listpack)),
            Form::Large(pages) => pages.last_index(),
        };
        last.map_or(0, |last| last + 1)
    }

    /// Whether there is no value. O(1).
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Bytes outside the object that holds it. O(1).
    pub fn heap_bytes(&self) -> usize {
        /// The counts before what an `Arc` holds.
        const COUNTS_BYTES: usize = 2 * size_of::<usize>();
        match &self.form {
            Form::Small(listpack) => listpack.capacity(),
            Form::Large(pages) => COUNTS_BYTES + size_of::<Pages>() + pages.heap_bytes(),
        }
    }

    /// How many pages there are; 1 of a small array.
    pub fn pages(&self) -> usize {
        match &self.form {
            Form::Small(_) => 1,
            Form::Large(pages) => pages.pages(),
        }
    }

    /// The index of the value that was inserted last, or before which the cursor was set; `None` if the next goes to index 0.
    pub fn cursor(&self) -> Option<u64> {
        match &self.form {
            Form::Small(listpack) => {
                let cursor = listpack.view().get(0)?.as_integer()? as u64;
                cursor.checked_sub(1)
            }
            Form::Large(pages) => pages.cursor,
        }
    }

    /// Sets [`Self::cursor`].
    pub fn set_cursor(&mut self, cursor: Option<u64>) {
        match &mut self.form {
            Form::Small(listpack) => {
                let next = cursor.map_or(0, |last| last.wrapping_add(1)) as i64;
                match listpack.view().first() {
                    Some(first) => listpack.replace(first, next),
                    None => _ = listpack.push(next),
                }
            }
            Form::Large(pages) => pages.cursor = cursor,
        }
    }

    /// The value at an index. O(log n).
    pub fn get(&self, index: u64) -> Option<Element<'_>> {
        match &self.form {
            Form::Small(listpack) => pairs::get(listpack.view(), Self::start(listpack), index),
            Form::Large(pages) => pages.get(index),
        }
    }

    /// Puts a value at an index, which is at most [`Self::INDEX_MAX`]. Returns whether the place was empty. O(log n).
    ///
    /// # Panics
    /// If the value is longer than [`Self::VALUE_BYTES_MAX`].
    pub fn set<'v>(&mut self, index: u64, value: impl Into<Element<'v>>) -> bool {
        let value = value.into();
        debug_assert!(index <= Self::INDEX_MAX);
        if let Form::Small(listpack) = &mut self.form {
            if listpack.is_empty() {
                listpack.push(0_i64);
            }
            let start = Self::start(listpack);
            let found = pairs::find(listpack.view(), start, index);
            let bytes = listpack.bytes().len() + pairs::pair_bytes(index, value);
            let has_place = found.is_some() || listpack.len() / 2 < SMALL_PAIRS_MAX;
            if has_place && bytes <= SMALL_BYTES_MAX {
                match found.and_then(|at| listpack.view().next(at)) {
                    Some(place) => listpack.replace(place, value),
                    None => pairs::insert(listpack, start, index, value),
                }
                return found.is_none();
            }
        }
        self.large().set(index, value)
    }

    /// The pages, which a small array becomes.
    fn large(&mut self) -> &mut Pages {
        if let Form::Small(_) = &self.form {
            let mut pages = Pages::default();
            pages.cursor = self.cursor();
            self.iter().for_each(|(index, value)| _ = pages.set(index, value));
            let small = std::mem::replace(&mut self.form, Form::Large(Shared::new(pages)));
            packed::recycle(Self { form: small }.into_object());
        }
        match &mut self.form {
            Form::Large(pages) => pages,
            Form::Small(_) => unreachable!("it was made large"),
        }
    }

    /// Takes out the values at indexes from `low` to `high`. Returns how many. O(log n + pages).
    pub fn remove(&mut self, low: u64, high: u64) -> u64 {
        if low > high || self.range(low, high, false).next().is_none() {
            return 0;
        }
        match &mut self.form {
            Form::Small(listpack) => {
                let start = Self::start(listpack);
                pairs::remove(listpack, start, low, high) as u64
            }
            Form::Large(pages) => pages.remove(low, high),
        }
    }

    /// The values with their indexes, in their order.
    pub fn iter(&self) -> ArrayRange<'_> {
        self.range(0, u64::MAX, false)
    }

    /// The values at indexes from `low` to `high`, both included, in their order or the other way round. O(log n) to begin with.
    pub fn range(&self, low: u64, high: u64, reversed: bool) -> ArrayRange<'_> {
        ArrayRange(match &self.form {
            Form::Small(listpack) => {
                let view = listpack.view();
                let pairs = match low <= high {
                    true => Pairs::between(view, Self::start(listpack), 0, low, high),
                    false => Pairs::none(),
                };
                Range::Small(pairs, reversed)
            }
            Form::Large(pages) => Range::Large(pages.range(low, high, reversed)),
        })
    }
}

/// Values of an array with their indexes.
pub struct ArrayRange<'a>(Range<'a>);

enum Range<'a> {
    /// Pairs, and whether they come the other way round.
    Small(Pairs<'a>, bool),
    Large(PageRange<'a>),
}

impl<'a> Iterator for ArrayRange<'a> {
    type Item = (u64, Element<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Range::Small(pairs, false) => pairs.next(),
            Range::Small(pairs, true) => pairs.next_back(),
            Range::Large(range) => range.next(),
        }
    }
}
