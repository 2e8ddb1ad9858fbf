//! Small collections as bytes in the cell of their key (decision 0093).
//!
//! ```text
//! cell     head │ key │ expiry │ form: 1 byte │ bytes of the listpack, intset or JSON block
//! reading  ObjectRef: an Object on the stack whose block is those bytes
//! editing  the bytes are copied to this thread's buffer, which is the block of an Object; then back
//! ```
//!
//! A collection is packed if its form is a listpack, an intset or a block of a JSON document (which is edited outside of the
//! buffer) of at most [`PACKED_BYTES_MAX`] bytes. So a packed collection
//! has no elements that expire, owns nothing on the heap, is shared with no view and copied in no pieces.

#[cfg(test)]
mod tests;

use std::{cell::Cell, fmt, marker::PhantomData, mem::ManuallyDrop, ops::Deref};

use dunlin_json::block_bytes;
use dunlin_structures::{IntSet, Listpack};

use super::{Array, Collection, Hash, INLINE_BYTES_MAX, Json, List, Object, Set, SortedSet, ValueType};

/// Most bytes of a packed collection: as many as of a string that stands in its cell, with the form.
pub(crate) const PACKED_BYTES_MAX: usize = INLINE_BYTES_MAX - 1;
/// A collection that has left its cell comes back once it has come down to this. Between the two a collection whose
/// size goes up and down stays where it is.
pub(crate) const PACKED_AGAIN_BYTES_MAX: usize = PACKED_BYTES_MAX / 4 * 3;
/// A new collection of up to this size is most likely to be packed.
pub(crate) const PACKED_SURELY_BYTES_MAX: usize = 512;
/// Bytes of the buffer for edits: the room behind the largest packed collection takes what most commands add.
pub(super) const BUFFER_BYTES: usize = 2048;

const _: () = assert!(PACKED_BYTES_MAX < BUFFER_BYTES);

/// Type and encoding of a packed collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum PackedForm {
    Hash = 0,
    List = 1,
    IntSet = 2,
    Set = 3,
    SortedSet = 4,
    Array = 5,
    Json = 6,
}

impl PackedForm {
    /// The form whose byte stands in a cell.
    #[inline]
    pub(crate) fn of_byte(byte: u8) -> Self {
        match byte {
            0 => Self::Hash,
            1 => Self::List,
            2 => Self::IntSet,
            3 => Self::Set,
            4 => Self::SortedSet,
            5 => Self::Array,
            6 => Self::Json,
            other => unreachable!("a packed collection of form {other}"),
        }
    }

    /// The bytes of a collection at the beginning of others.
    #[inline]
    pub(crate) fn without_room(self, bytes: &[u8]) -> &[u8] {
        if self == Self::Json {
            return &bytes[..block_bytes(bytes)];
        }
        let word = |at: usize| {
            let word = bytes[at..].first_chunk().expect("a packed collection has a header");
            u32::from_le_bytes(*word) as usize
        };
        // An intset begins with its width and its length, a listpack with its bytes.
        let used = if self == Self::IntSet { 2 * size_of::<u32>() + word(0) * word(4) } else { word(0) };
        &bytes[..used]
    }

    /// The type of the collection.
    #[inline]
    pub(crate) fn value_type(self) -> ValueType {
        match self {
            Self::Hash => ValueType::Hash,
            Self::List => ValueType::List,
            Self::IntSet | Self::Set => ValueType::Set,
            Self::SortedSet => ValueType::SortedSet,
            Self::Array => ValueType::Array,
            Self::Json => ValueType::Json,
        }
    }

    /// The collection in a listpack, an intset or a block of JSON.
    #[inline]
    fn object(
        self,
        listpack: impl FnOnce() -> Listpack,
        integers: impl FnOnce() -> IntSet,
        document: impl FnOnce() -> Json,
    ) -> Object {
        match self {
            Self::Hash => Object::Hash(Hash::in_listpack(listpack())),
            Self::List => Object::List(List::in_listpack(listpack())),
            Self::IntSet => Object::Set(Set::in_intset(integers())),
            Self::Set => Object::Set(Set::in_listpack(listpack())),
            Self::SortedSet => Object::SortedSet(SortedSet::in_listpack(listpack())),
            Self::Array => Object::Array(Array::in_listpack(listpack())),
            Self::Json => Object::Json(document()),
        }
    }
}

/// A small collection as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed<'a> {
    pub(crate) form: PackedForm,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Packed<'a> {
    /// A collection of these bytes, unless they are too many for a cell.
    #[inline]
    pub(crate) fn new(form: PackedForm, bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() <= PACKED_BYTES_MAX).then_some(Self { form, bytes })
    }

    /// A copy to be changed, in this thread's buffer; see [`recycle`].
    #[inline]
    pub(crate) fn unpacked(self) -> Object {
        self.form.object(
            || Listpack::in_buffer(take_buffer(), self.bytes),
            || IntSet::in_buffer(take_buffer(), self.bytes),
            || Json::in_block(self.bytes),
        )
    }
}

thread_local! {
    /// The block of the collection that is being changed on this thread, between two of them. Empty before the first, and
    /// while it is in use.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

#[inline]
fn take_buffer() -> Vec<u8> {
    let buffer = BUFFER.take();
    if buffer.len() == BUFFER_BYTES { buffer } else { vec![0; BUFFER_BYTES] }
}

/// A listpack without elements in this thread's buffer: for a collection that is about to be filled and stored.
#[inline]
pub(super) fn new_listpack() -> Listpack {
    Listpack::new_in_buffer(take_buffer())
}

/// Makes a listpack that is in a buffer for edits, and stays outside of its cell, one without room that it does not need.
pub(super) fn leave_buffer(listpack: &mut Listpack) {
    if listpack.capacity() == BUFFER_BYTES {
        listpack.shrink_to_fit();
    }
}

/// Frees an object. The buffer for edits is kept, if that is what the object is in.
#[inline]
pub(crate) fn recycle(object: Object) {
    if let Some(buffer) = object.into_buffer()
        && buffer.len() == BUFFER_BYTES
    {
        BUFFER.set(buffer);
    }
}

/// A collection in a cell, for readers.
#[derive(Debug)]
pub enum ObjectRef<'a> {
    /// An object that stands in the cell.
    Stored(&'a Object),
    /// An object that was made to read a packed collection.
    Packed(PackedObject<'a>),
}

/// An object whose block is a packed collection.
pub struct PackedObject<'a> {
    /// Never changed, and never dropped, since it does not own its block.
    object: ManuallyDrop<Object>,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> From<Packed<'a>> for ObjectRef<'a> {
    #[inline]
    fn from(packed: Packed<'a>) -> Self {
        // SAFETY: the bytes live as long as the result; its object is only lent, and never dropped.
        let object = unsafe {
            packed.form.object(
                || Listpack::lent(packed.bytes),
                || IntSet::lent(packed.bytes),
                || Json::lent(packed.bytes),
            )
        };
        Self::Packed(PackedObject { object: ManuallyDrop::new(object), bytes: PhantomData })
    }
}

impl fmt::Debug for PackedObject<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(out)
    }
}

impl Deref for ObjectRef<'_> {
    type Target = Object;

    #[inline]
    fn deref(&self) -> &Object {
        match self {
            Self::Stored(object) => object,
            Self::Packed(packed) => &packed.object,
        }
    }
}

/// A collection of a known type in a cell, for readers.
pub struct CollectionRef<'a, T> {
    object: ObjectRef<'a>,
    collection: PhantomData<&'a T>,
}

impl<'a, T: Collection> CollectionRef<'a, T> {
    /// The collection in an object of its type.
    #[inline]
    pub(crate) fn of(object: ObjectRef<'a>) -> Option<Self> {
        T::of(&object).is_some().then_some(Self { object, collection: PhantomData })
    }
}

impl<T: Collection> Deref for CollectionRef<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        T::of(&self.object).expect("the type was looked at when this was made")
    }
}

impl<T: Collection + fmt::Debug> fmt::Debug for CollectionRef<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}
