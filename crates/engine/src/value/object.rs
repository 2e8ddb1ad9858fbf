//! Values that are not strings. Each lives in a box of its own, with all the memory it needs: it can
//! be freed, copied or carried to another thread without its shard.

use std::sync::Arc;

use super::{Hash, Resources, Set, Stream, ValueType};

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
}

/// A value that is not a string.
#[derive(Debug, Clone)]
pub enum Object {
    /// A hash.
    Hash(Hash),
    /// A set.
    Set(Set),
    /// A stream: boxed, being much larger than the others.
    Stream(Box<Stream>),
}

impl Object {
    /// Its type.
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::Hash(_) => ValueType::Hash,
            Self::Set(_) => ValueType::Set,
            Self::Stream(_) => ValueType::Stream,
        }
    }

    /// The name that `OBJECT ENCODING` answers.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Hash(hash) => hash.encoding(),
            Self::Set(set) => set.encoding(),
            Self::Stream(_) => "stream",
        }
    }

    /// Bytes outside the object itself. O(1).
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Hash(hash) => hash.heap_bytes(),
            Self::Set(set) => set.heap_bytes(),
            Self::Stream(stream) => size_of::<Stream>() + stream.heap_bytes(),
        }
    }
}
