//! Values as commands see them; how they are stored stays behind these types.

mod array;
mod extended;
mod field_block;
mod field_table;
mod foreign;
pub(crate) mod hash;
pub(crate) mod incremental_copy;
pub(crate) mod json;
mod limits;
pub(crate) mod list;
mod member_block;
mod member_table;
mod module;
mod object;
mod packed;
mod set;
mod shared;
mod sorted_set;
mod stored;
pub mod stream;
mod string;

use std::sync::Arc;

use dunlin_structures::PagePool;

use crate::keyspace::KeyHasher;

pub use array::{Array, ArrayRange};
pub use extended::ExtendedFloat;
pub use foreign::Foreign;
pub use hash::{Hash, HashTemplates};
pub use json::Json;
pub use limits::{CollectionLimits, Layout};
pub use list::{List, ListRange};
pub use member_table::{MemberTable, Record};
pub(crate) use member_table::{Places, for_each_record};
pub use object::{Collection, Object};
pub use packed::{CollectionRef, ObjectRef, Packed, PackedForm};
pub(crate) use packed::{PACKED_AGAIN_BYTES_MAX, PACKED_BYTES_MAX, PACKED_SURELY_BYTES_MAX, recycle};
pub use set::Set;
pub(crate) use sorted_set::score_of;
pub use sorted_set::{Gathered, SortedSet};
pub(crate) use stored::{Stored, each, read_object};
pub use stream::Stream;
pub use string::{ArcRef, NewString, NewText, Payload, RopeRef, StringRef, StringRope, TextMut, parse_float};
pub(crate) use string::{BLOCK_BYTES_MAX, EMBEDDED_BYTES_MAX, INLINE_BYTES_MAX, LongText, shared_slices};

/// The types of values, with the names that `TYPE` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ValueType {
    String,
    Hash,
    List,
    Set,
    SortedSet,
    Stream,
    Array,
    Json,
    /// A type that Dunlin does not have; see [`Foreign`].
    Foreign,
}

impl ValueType {
    /// All of them that have a name of their own.
    const ALL: [Self; 8] = [
        Self::String,
        Self::Hash,
        Self::List,
        Self::Set,
        Self::SortedSet,
        Self::Stream,
        Self::Array,
        Self::Json,
    ];

    /// The type of that name, in any letter case.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// The name that `TYPE` answers and `SCAN … TYPE` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "zset",
            Self::Stream => "stream",
            Self::Array => "array",
            Self::Json => "ReJSON-RL",
            Self::Foreign => "foreign",
        }
    }
}

/// A value to be stored.
#[derive(Debug)]
pub(crate) enum NewValue<'a> {
    /// A string.
    String(NewString<'a>),
    /// Anything else.
    Object(Object),
}

impl NewValue<'_> {
    /// Heap bytes that the value will take outside its entry's cell, unless it is packed.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::String(NewString::Shared(block)) => block_bytes(block.capacity()),
            Self::String(NewString::Rope(rope)) => rope_bytes(rope),
            Self::String(_) => 0,
            Self::Object(object) => object.heap_bytes(),
        }
    }

    /// When something is next to be done about its elements, in unix milliseconds.
    #[inline]
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        match self {
            Self::String(_) => None,
            Self::Object(object) => object.next_deadline_ms(),
        }
    }

    /// This value, with the short bytes that it borrows moved to `buffer`.
    pub(crate) fn copied_to(self, buffer: &mut Vec<u8>) -> NewValue<'_> {
        match self {
            Self::String(string) => NewValue::String(string.copied_to(buffer)),
            Self::Object(object) => NewValue::Object(object),
        }
    }
}

/// Heap bytes of a vector of this capacity in a box or `Arc` of its own.
pub(crate) fn block_bytes(capacity: usize) -> usize {
    capacity + size_of::<Vec<u8>>() + COUNTS_BYTES
}

/// Heap bytes of a rope in an `Arc`.
pub(crate) fn rope_bytes(rope: &StringRope) -> usize {
    rope.heap_bytes() + size_of::<StringRope>() + COUNTS_BYTES
}

/// The counts of an `Arc`.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// The memory that a value owned on the heap, taken out of its entry.
#[derive(Debug)]
pub(crate) enum Owned {
    /// The block of a long string.
    Block(Arc<Vec<u8>>),
    /// The rope of a longer one.
    Rope(Arc<StringRope>),
    /// Anything but a string.
    Object(Object),
}

impl Owned {
    /// About how many bytes its freeing gives back.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Block(block) => block.capacity(),
            Self::Rope(rope) => rope.heap_bytes(),
            Self::Object(object) => object.heap_bytes(),
        }
    }
}

/// Resources of collections from their keyspace: memory, and a secret to hash members under.
#[derive(Debug)]
pub struct Resources {
    pub(crate) pool: Arc<PagePool>,
    hasher: KeyHasher,
}

impl Resources {
    pub(crate) fn new(pool: Arc<PagePool>, hasher: KeyHasher) -> Arc<Self> {
        Arc::new(Self { pool, hasher })
    }

    #[inline]
    pub(crate) fn hash(&self, member: &[u8]) -> u64 {
        self.hasher.hash(member)
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Arc<Self> {
        Self::new(Arc::default(), KeyHasher::new([1, 2, 3, 4]))
    }
}
