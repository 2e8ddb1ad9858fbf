//! Values that are not strings. Each lives in the cell of its entry and owns what else it needs: it can be taken
//! out, and be freed, copied or carried to another thread without its stripe.

use std::{ops::Deref, sync::Arc};

use dunlin_structures::{Element, Relocator};

use super::{
    Array, Foreign, Hash, Json, List, ObjectRef, Packed, Resources, Set, SortedSet, Stream, ValueType,
    incremental_copy::table::CopiedTable,
    shared::Shared,
    stored::{Stored, each},
};

/// A type of value that holds elements. A key with an empty collection does not exist; a stream never
/// counts as empty.
pub trait Collection: Sized {
    /// A reader's reference to one in a cell.
    type Ref<'a>: Deref<Target = Self>
    where
        Self: 'a;
    /// An empty collection.
    fn new(resources: &Arc<Resources>) -> Self;
    /// An empty collection that is about to be filled and stored, see [`Self::leave_buffer`].
    #[inline]
    fn new_in_buffer(resources: &Arc<Resources>) -> Self {
        Self::new(resources)
    }
    /// The collection in an object of its type.
    fn of(object: &Object) -> Option<&Self>;
    /// The value in the object, to be changed.
    fn of_mut(object: &mut Object) -> Option<&mut Self>;
    /// The collection in a reference to an object of its type.
    fn of_ref(object: ObjectRef<'_>) -> Option<Self::Ref<'_>>;
    /// The object that holds it.
    fn into_object(self) -> Object;
    /// Whether there is no element.
    fn is_empty(&self) -> bool;
    /// Bytes outside the object that holds it. O(1).
    fn outside_bytes(&self) -> usize;
    /// When the next of its elements expires, in unix milliseconds; a time long past if memory of elements that
    /// were removed has yet to be given back ([`Object::reap`]).
    #[inline]
    fn next_deadline_ms(&self) -> Option<u64> {
        None
    }
    /// The bytes that stand for it in a cell, if there it may be; see [`super::packed`].
    #[inline]
    fn packed(&self) -> Option<Packed<'_>> {
        None
    }
    /// To be called before a collection that was changed in the buffer for edits is stored: one that is too large to be
    /// packed gives back the memory that it does not need.
    #[inline]
    fn leave_buffer(&mut self) {}
    /// The whole block of a packed form, whatever is in it.
    #[inline]
    fn into_buffer(self) -> Option<Vec<u8>> {
        None
    }
}

/// A value that is not a string. A clone of one whose form is not compact shares it, see [`Shared`].
#[derive(Debug, Clone)]
pub enum Object {
    /// A hash.
    Hash(Hash),
    /// A list.
    List(List),
    /// A set.
    Set(Set),
    /// A sorted set.
    SortedSet(SortedSet),
    /// A stream: in an allocation of its own, being much larger than the others.
    Stream(Shared<Stream>),
    /// An array.
    Array(Array),
    /// A JSON document.
    Json(Json),
    /// A value of a type that Dunlin does not have.
    Foreign(Foreign),
}

const _: () = assert!(size_of::<Object>() == 24, "every small collection takes as much of its cell");

impl Object {
    /// Its type.
    pub fn value_type(&self) -> ValueType {
        fn type_of<T: Stored>(_: &T) -> ValueType {
            T::TYPE
        }
        each!(self, collection => type_of(collection))
    }

    /// The name that `TYPE` answers.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Foreign(value) => value.type_name(),
            _ => self.value_type().name(),
        }
    }

    /// The name that `OBJECT ENCODING` answers.
    pub fn encoding(&self) -> &'static str {
        each!(self, collection => Stored::encoding(collection))
    }

    /// Bytes outside the object itself. O(1).
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        each!(self, collection => collection.outside_bytes())
    }

    /// See [`Collection::packed`].
    #[inline]
    pub(crate) fn packed(&self) -> Option<Packed<'_>> {
        match self {
            Self::Hash(hash) => hash.packed(),
            Self::List(list) => list.packed(),
            Self::Set(set) => set.packed(),
            Self::SortedSet(set) => set.packed(),
            Self::Array(array) => array.packed(),
            Self::Json(json) => json.packed(),
            Self::Stream(_) | Self::Foreign(_) => None,
        }
    }

    /// See [`Collection::leave_buffer`].
    pub(crate) fn leave_buffer(&mut self) {
        match self {
            Self::Hash(hash) => hash.leave_buffer(),
            Self::List(list) => list.leave_buffer(),
            Self::Set(set) => set.leave_buffer(),
            Self::SortedSet(set) => set.leave_buffer(),
            Self::Array(array) => array.leave_buffer(),
            Self::Stream(_) | Self::Json(_) | Self::Foreign(_) => {}
        }
    }

    /// The whole block of a packed form, whatever is in it.
    #[inline]
    pub(super) fn into_buffer(self) -> Option<Vec<u8>> {
        match self {
            Self::Hash(hash) => hash.into_buffer(),
            Self::List(list) => list.into_buffer(),
            Self::Set(set) => set.into_buffer(),
            Self::SortedSet(set) => set.into_buffer(),
            Self::Array(array) => array.into_buffer(),
            Self::Stream(_) | Self::Json(_) | Self::Foreign(_) => None,
        }
    }

    /// A copy that shares nothing. O(n).
    pub(crate) fn copied(&self) -> Self {
        match self {
            Self::Hash(hash) => Self::Hash(hash.copied()),
            Self::List(list) => Self::List(list.copied()),
            Self::Set(set) => Self::Set(set.copied()),
            Self::SortedSet(set) => Self::SortedSet(set.copied()),
            Self::Stream(stream) => Self::Stream(stream.copied()),
            Self::Array(array) => Self::Array(array.copied()),
            Self::Json(json) => Self::Json(json.copied()),
            Self::Foreign(value) => Self::Foreign(value.copied()),
        }
    }

    /// Puts a copy of it that shares nothing in its place, with the state of snapshots. O(n).
    pub(crate) fn unshare(&mut self) {
        fn unshare<T: Stored>(collection: &mut T) {
            let copy = collection.copied();
            collection.carry_copies_to(&copy);
            *collection = copy;
        }
        each!(self, collection => unshare(collection));
    }

    /// Whether `other` is an unchanged clone of it: the same large form, or equal compact ones.
    /// O(bytes) if compact.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Hash(hash), Self::Hash(other)) => hash.is(other),
            (Self::List(list), Self::List(other)) => list.is(other),
            (Self::Set(set), Self::Set(other)) => set.is(other),
            (Self::SortedSet(set), Self::SortedSet(other)) => set.is(other),
            (Self::Stream(stream), Self::Stream(other)) => stream.is(other),
            (Self::Array(array), Self::Array(other)) => array.is(other),
            (Self::Json(json), Self::Json(other)) => json.is(other),
            (Self::Foreign(value), Self::Foreign(other)) => value.is(other),
            _ => false,
        }
    }

    /// Whether changing it would copy it first, because a view shares it.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        each!(self, collection => Stored::is_shared(collection))
    }

    /// Fetches elements, which are about to be asked for by name, from memory, if they are in a table.
    pub(crate) fn prefetch_elements(&self, names: &[&[u8]]) {
        if let Some(table) = each!(self, collection => Stored::table(collection)) {
            table.prefetch_keys(names);
        }
    }

    /// The table that is copied in pieces, or what has it.
    pub(super) fn copied_table(&self) -> Option<&dyn CopiedTable> {
        each!(self, collection => Stored::copied_table(collection))
    }

    /// When something is next to be done about its elements, see [`Collection::next_deadline_ms`].
    #[inline]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        each!(self, collection => collection.next_deadline_ms())
    }

    /// Gives back memory of elements that were removed, of no more than `elements_max`; returns of how many. Only
    /// the memory shows it.
    pub(crate) fn reap(&mut self, elements_max: usize) -> usize {
        each!(self, collection => Stored::reap(collection, elements_max))
    }

    /// Moves the block of a compact form to where the general allocator would rather have it.
    pub(crate) fn relocate(&mut self, relocator: &mut Relocator) {
        each!(self, collection => Stored::relocate(collection, relocator));
    }

    /// Whether all its elements have expired.
    #[inline]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        each!(self, collection => Stored::is_expired(collection, now_ms))
    }

    /// Reclaims elements that have expired, no more than `elements_max`. Returns how many, and whether
    /// none is left in the collection. `removing` is shown each.
    pub fn expire(
        &mut self,
        now_ms: u64,
        elements_max: usize,
        removing: impl FnMut(Element<'_>),
    ) -> (usize, bool) {
        each!(self, collection => Stored::expire(collection, now_ms, elements_max, removing))
    }
}
