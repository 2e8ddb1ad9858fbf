//! Values that are not strings. Each lives in the cell of its entry and owns what else it needs: it can be taken
//! out, and be freed, copied or carried to another thread without its stripe.

use std::sync::Arc;

use dunlin_structures::Element;

use super::{
    Hash, List, MemberTable, Resources, Set, SortedSet, Stream, ValueType,
    incremental_copy::table::CopiedTable, shared::Shared,
};

/// A type of value that holds elements. A key with an empty collection does not exist; a stream never
/// counts as empty.
pub trait Collection: Sized {
    /// An empty collection.
    fn new(resources: &Arc<Resources>) -> Self;
    /// The collection in an object of its type.
    fn of(object: &Object) -> Option<&Self>;
    /// The same, to be changed.
    fn of_mut(object: &mut Object) -> Option<&mut Self>;
    /// The object that holds it.
    fn into_object(self) -> Object;
    /// Whether there is no element.
    fn is_empty(&self) -> bool;
    /// Bytes outside the object that holds it. O(1).
    fn outside_bytes(&self) -> usize;
    /// When the next of its elements expires, in unix milliseconds; a time long past where memory of elements that
    /// were removed has yet to be given back ([`Object::reap`]).
    #[inline]
    fn next_deadline_ms(&self) -> Option<u64> {
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
    /// A stream: apart, being much larger than the others.
    Stream(Shared<Stream>),
}

const _: () = assert!(size_of::<Object>() == 24, "every small collection takes as much of its cell");

impl Object {
    /// Its type.
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::Hash(_) => ValueType::Hash,
            Self::List(_) => ValueType::List,
            Self::Set(_) => ValueType::Set,
            Self::SortedSet(_) => ValueType::SortedSet,
            Self::Stream(_) => ValueType::Stream,
        }
    }

    /// The name that `OBJECT ENCODING` answers.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Hash(hash) => hash.encoding(),
            Self::List(list) => list.encoding(),
            Self::Set(set) => set.encoding(),
            Self::SortedSet(set) => set.encoding(),
            Self::Stream(_) => "stream",
        }
    }

    /// Bytes outside the object itself. O(1).
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Hash(hash) => hash.outside_bytes(),
            Self::List(list) => list.outside_bytes(),
            Self::Set(set) => set.outside_bytes(),
            Self::SortedSet(set) => set.outside_bytes(),
            Self::Stream(stream) => stream.outside_bytes(),
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
        }
    }

    /// Takes a copy of it that shares nothing in its place, with what snapshots have of it. O(n).
    pub(crate) fn unshare(&mut self) {
        let copy = self.copied();
        match (&copy, &*self) {
            (Self::List(copy), Self::List(list)) => {
                if let (Some(copy), Some(deque)) = (copy.deque(), list.deque()) {
                    copy.carry_pasts(deque);
                }
            }
            (Self::Stream(copy), Self::Stream(stream)) => copy.log().carry_copies(stream.log()),
            (copy, object) => {
                if let (Some(copy), Some(table)) = (copy.table(), object.table()) {
                    copy.carry_copies(table);
                }
            }
        }
        *self = copy;
    }

    /// The table that is copied in pieces, or what has it.
    pub(super) fn copied_table(&self) -> Option<&dyn CopiedTable> {
        match self {
            Self::Hash(hash) => hash.copied_table(),
            Self::Set(set) => set.copied_table(),
            Self::SortedSet(set) => set.copied_table(),
            Self::List(_) | Self::Stream(_) => None,
        }
    }

    /// Whether it is what `other` was made from by cloning, unchanged: the same large form, or equal compact
    /// ones. O(bytes) where compact.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Hash(hash), Self::Hash(other)) => hash.is(other),
            (Self::List(list), Self::List(other)) => list.is(other),
            (Self::Set(set), Self::Set(other)) => set.is(other),
            (Self::SortedSet(set), Self::SortedSet(other)) => set.is(other),
            (Self::Stream(stream), Self::Stream(other)) => stream.is(other),
            _ => false,
        }
    }

    /// Whether changing it would copy it first, because somebody has a view of it.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Self::Hash(hash) => hash.is_shared(),
            Self::List(list) => list.is_shared(),
            Self::Set(set) => set.is_shared(),
            Self::SortedSet(set) => set.is_shared(),
            Self::Stream(stream) => stream.is_shared(),
        }
    }

    /// Fetches elements, which are about to be asked for by name, from memory, where they are in a table.
    pub(crate) fn prefetch_elements(&self, names: &[&[u8]]) {
        if let Some(table) = self.table() {
            table.prefetch_keys(names);
        }
    }

    /// The table of its elements, where they are in one.
    fn table(&self) -> Option<&MemberTable> {
        match self {
            Self::Hash(hash) => hash.table(),
            Self::Set(set) => set.table(),
            Self::SortedSet(set) => set.table(),
            Self::List(_) | Self::Stream(_) => None,
        }
    }

    /// When something is next to be done about its elements, see [`Collection::next_deadline_ms`].
    #[inline]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        match self {
            Self::Hash(hash) => hash.next_deadline_ms(),
            Self::Set(set) => set.next_deadline_ms(),
            Self::SortedSet(set) => set.next_deadline_ms(),
            _ => None,
        }
    }

    /// Gives back memory of elements that were removed, of no more than `elements_max`; of how many. Nobody
    /// can tell but by the memory.
    pub(crate) fn reap(&mut self, elements_max: usize) -> usize {
        match self {
            Self::Set(set) => set.reap(elements_max),
            Self::SortedSet(set) => set.reap(elements_max),
            _ => 0,
        }
    }

    /// Whether all its elements have expired.
    #[inline]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        match self {
            Self::Hash(hash) => hash.is_expired(now_ms),
            _ => false,
        }
    }

    /// Reclaims elements that have expired, no more than `elements_max`; how many, and whether none is
    /// left in the collection. `removing` is shown each.
    pub fn expire(
        &mut self,
        now_ms: u64,
        elements_max: usize,
        removing: impl FnMut(Element<'_>),
    ) -> (usize, bool) {
        match self {
            Self::Hash(hash) => (hash.expire(now_ms, elements_max, removing), hash.is_empty()),
            _ => (0, false),
        }
    }
}
