//! An entry: key, expiry and value in one slab cell.
//!
//! ```text
//! byte 0      kind (bits 0–2) │ LONG_KEY │ LONG_VALUE │ EXPIRES │ STAMPS (bits 3 and 7)
//! byte 1      access stamp (`super::access`)
//! byte 2      bytes of the key as stored
//! byte 3      bytes of the value as stored, low byte
//! key         its bytes; LONG_KEY: pointer to a Box<Vec<u8>>
//! expiry      EXPIRES: unix time in ms, 6 bytes little-endian; FAR where it takes more (from the year 10889 on)
//! length      LONG_VALUE: high byte of the value's length
//! value       Integer: 1–8 bytes little-endian, sign-extended │ Inline, Edited: bytes
//!             Shared: pointer from Arc<Vec<u8>> │ Rope: pointer from Arc<StringRope>
//!             Object: an Object, at the next multiple of 8
//!             Packed: form of a small collection, 1 byte; its bytes (`crate::value::packed`); perhaps room
//! far expiry  of FAR: the time, 8 bytes little-endian
//! ```
//!
//! So a key of 16 bytes with a value of 16 costs 36 bytes, 42 with an expiry. An entry has one
//! referrer, its bucket slot.
//!
//! Stamps are the parities of the snapshots that have seen the entry (`crate::snapshot`).
//!
//! This module is the only one that reads or writes cells. Invariant: a handle that stands in a
//! bucket table refers to a cell of the slab beside it that was filled by [`Shape::write`], and its
//! length is [`EntryRef::bytes`].

mod edit;
mod loose;

use std::{marker::PhantomData, ptr::NonNull, sync::Arc};

use dunlin_structures::{allocation_bytes, class_bytes};

pub(crate) use self::edit::{Edited, EntryMut};
pub(crate) use self::loose::LooseEntry;
use super::access::Touch;
use crate::value::{
    ArcRef, LongText, NewString, NewValue, Object, ObjectRef, Owned, PACKED_BYTES_MAX, Packed, PackedForm,
    StringRef, StringRope, ValueType, block_bytes, recycle,
};

const KIND: u8 = 0x07;
const LONG_KEY: u8 = 0x10;
const LONG_VALUE: u8 = 0x20;
const EXPIRES: u8 = 0x40;
/// By snapshot: its bit of an entry's stamps.
pub(crate) const STAMP_BITS: [u8; 2] = [0x08, 0x80];
const STAMPS: u8 = STAMP_BITS[0] | STAMP_BITS[1];

const HEAD_BYTES: usize = 4;
const EXPIRY_BYTES: usize = 6;
/// In the place of an expiry that takes more bytes, which stands behind the value.
const FAR: u64 = (1 << (8 * EXPIRY_BYTES)) - 1;
const FAR_BYTES: usize = 8;
const POINTER_BYTES: usize = size_of::<usize>();
const OBJECT_BYTES: usize = size_of::<Object>();
/// Bytes before those of a packed collection.
const FORM_BYTES: usize = 1;
/// Bytes of room that a packed collection which has become shorter may leave, or this part of its cell if that is more.
const ROOM_BYTES_MAX: usize = 16;
const ROOM_PART: usize = 16;
/// The alignment of cells.
const CELL_ALIGNMENT: usize = 8;
/// Longest key that stands in its entry.
const KEY_INLINE_BYTES_MAX: usize = 255;
/// Bytes of one of the slots that an index bucket of a cache line is divided into, rounded up.
const SLOT_BYTES: usize = 64usize.div_ceil(dunlin_structures::SLOTS_PER_BUCKET);

const _: () = assert!(
    HEAD_BYTES + KEY_INLINE_BYTES_MAX + EXPIRY_BYTES + 1 + crate::value::INLINE_BYTES_MAX + FAR_BYTES
        <= dunlin_structures::CELL_BYTES_MAX,
    "the largest entry fits the largest cell"
);

const _: () = assert!(FORM_BYTES + PACKED_BYTES_MAX <= crate::value::INLINE_BYTES_MAX);

const _: () = assert!(align_of::<Object>() <= CELL_ALIGNMENT, "an object may lie in a cell");

/// How the value is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Integer = 0,
    Inline = 1,
    Edited = 2,
    Shared = 3,
    Rope = 4,
    /// From here on the value is no string.
    Object = 5,
    Packed = 6,
}

/// The layout of an entry to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    kind: Kind,
    key_bytes: usize,
    long_key: bool,
    expires: bool,
    is_far: bool,
    stamps: u8,
    value_bytes: usize,
}

/// Whether a collection of `bytes` bytes takes at most as much memory in a cell, behind `behind` bytes of head, key and
/// expiry, as in a block of its own. The sizes of large cells are far apart.
#[inline]
fn is_worth_packing(behind: usize, bytes: usize) -> bool {
    /// Below, an object is always more than what sizes are apart.
    const SURE_BYTES_MAX: usize = 128;
    bytes <= SURE_BYTES_MAX || {
        let value_bytes = FORM_BYTES + bytes;
        class_bytes(behind + usize::from(value_bytes > 255) + value_bytes)
            <= class_bytes(value_at(Kind::Object, behind) + OBJECT_BYTES) + allocation_bytes(bytes)
    }
}

/// How an object is stored, and how many bytes it takes in the cell. Apart from strings, whose way stays short.
#[inline(never)]
fn object_shape(key: &[u8], object: &Object, expires: bool) -> (Kind, usize) {
    let key_bytes = if key.len() > KEY_INLINE_BYTES_MAX { POINTER_BYTES } else { key.len() };
    let behind = HEAD_BYTES + key_bytes + if expires { EXPIRY_BYTES } else { 0 };
    match object.packed() {
        Some(Packed { bytes, .. }) if is_worth_packing(behind, bytes.len()) => {
            (Kind::Packed, FORM_BYTES + bytes.len())
        }
        _ => (Kind::Object, OBJECT_BYTES),
    }
}

/// Writes a packed collection to its place, and frees the object.
///
/// # Safety
/// `at` must be valid for writes of its form and its bytes, and the object not be in that place.
#[inline(never)]
unsafe fn write_packed(at: NonNull<u8>, object: Object) {
    let Packed { form, bytes } = object.packed().expect("the shape is of its bytes");
    // SAFETY: the caller vouches.
    unsafe {
        at.write(form as u8);
        at.add(FORM_BYTES).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
    }
    recycle(object);
}

/// Whether an expiry takes more bytes than stand before the value.
#[inline]
fn is_far(expiry: Option<u64>) -> bool {
    expiry.is_some_and(|expiry| expiry >= FAR)
}

impl Shape {
    pub(crate) fn new(key: &[u8], value: &NewValue<'_>, expiry: Option<u64>, stamps: u8) -> Self {
        debug_assert_eq!(stamps & !STAMPS, 0);
        let (kind, value_bytes) = match value {
            NewValue::String(NewString::Integer(value)) => (Kind::Integer, integer_bytes(*value)),
            NewValue::String(NewString::Inline(bytes)) => (Kind::Inline, bytes.len()),
            NewValue::String(NewString::Edited(bytes)) => (Kind::Edited, bytes.len()),
            NewValue::String(NewString::Shared(_)) => (Kind::Shared, POINTER_BYTES),
            NewValue::String(NewString::Rope(_)) => (Kind::Rope, POINTER_BYTES),
            NewValue::Object(object) => object_shape(key, object, expiry.is_some()),
        };
        let long_key = key.len() > KEY_INLINE_BYTES_MAX;
        let key_bytes = if long_key { POINTER_BYTES } else { key.len() };
        let (expires, is_far) = (expiry.is_some(), is_far(expiry));
        Self { kind, key_bytes, long_key, expires, is_far, stamps, value_bytes }
    }

    /// Whether the value is a packed collection.
    #[inline]
    pub(crate) fn is_packed(&self) -> bool {
        self.kind == Kind::Packed
    }

    /// Keeps the cell of an entry of `bytes` bytes for a packed collection that has become a little shorter, with room behind
    /// it: a list whose elements come and go is not moved each time.
    pub(crate) fn keep_cell(&mut self, bytes: usize) {
        let cell = class_bytes(bytes);
        let room = cell.saturating_sub(class_bytes(self.bytes()));
        if self.is_packed() && room > 0 && room <= ROOM_BYTES_MAX.max(cell / ROOM_PART) {
            let roomy = Self { value_bytes: self.value_bytes + bytes - self.bytes(), ..*self };
            // The length of its value may take a byte more.
            if class_bytes(roomy.bytes()) == cell {
                *self = roomy;
            }
        }
    }

    /// Heap bytes of the value that the shape was made for.
    #[inline]
    pub(crate) fn value_heap_bytes(&self, value: &NewValue<'_>) -> usize {
        match value {
            NewValue::Object(_) if self.is_packed() => 0,
            value => value.heap_bytes(),
        }
    }

    /// Bytes of the whole entry.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.value_end() + if self.is_far { FAR_BYTES } else { 0 }
    }

    fn value_end(&self) -> usize {
        self.value_at() + self.value_bytes
    }

    fn value_at(&self) -> usize {
        let behind = HEAD_BYTES + self.key_bytes + if self.expires { EXPIRY_BYTES } else { 0 };
        value_at(self.kind, behind) + usize::from(self.value_bytes > 255)
    }

    /// Fills a fresh cell.
    ///
    /// # Safety
    /// `cell` must be valid for writes of [`Self::bytes`] bytes, and the arguments those that the
    /// shape was made for.
    #[inline]
    pub(crate) unsafe fn write(
        &self,
        cell: NonNull<u8>,
        key: &[u8],
        value: NewValue<'_>,
        expiry: Option<u64>,
        access: u8,
    ) {
        // SAFETY: the caller vouches for the cell; all offsets are below `self.bytes()`.
        unsafe {
            cell.add(1).write(access);
            cell.add(2).write(self.key_bytes as u8);
            let at = cell.add(HEAD_BYTES);
            if self.long_key {
                let boxed = Box::into_raw(Box::new(key.to_vec()));
                at.cast::<*mut Vec<u8>>().write_unaligned(boxed);
            } else {
                at.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            }
            self.write_behind_key(cell, value, expiry);
        }
    }

    /// Rewrites everything but the key, in place.
    ///
    /// # Safety
    /// As for [`Self::write`]; the cell must already hold the same key, what its old value owned
    /// must have been taken out, and `value` must not borrow from the cell.
    #[inline]
    pub(crate) unsafe fn write_behind_key(
        &self,
        cell: NonNull<u8>,
        value: NewValue<'_>,
        expiry: Option<u64>,
    ) {
        debug_assert_eq!((self.expires, self.is_far), (expiry.is_some(), is_far(expiry)));
        let flags = if self.long_key { LONG_KEY } else { 0 }
            | if self.expires { EXPIRES } else { 0 }
            | if self.value_bytes > 255 { LONG_VALUE } else { 0 };
        // SAFETY: the caller vouches for the cell; all offsets are below `self.bytes()`.
        unsafe {
            cell.write(self.kind as u8 | flags | self.stamps);
            cell.add(3).write(self.value_bytes as u8);
            let mut at = cell.add(HEAD_BYTES + self.key_bytes);
            if let Some(expiry) = expiry {
                write_expiry(cell, self.value_end(), at, expiry);
                at = at.add(EXPIRY_BYTES);
            }
            if self.value_bytes > 255 {
                at.write((self.value_bytes >> 8) as u8);
                at = at.add(1);
            }
            match value {
                NewValue::String(NewString::Integer(value)) => {
                    at.copy_from_nonoverlapping(NonNull::from(&value.to_le_bytes()).cast(), self.value_bytes);
                }
                NewValue::String(NewString::Inline(bytes) | NewString::Edited(bytes)) => {
                    at.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
                }
                NewValue::String(NewString::Shared(payload)) => {
                    at.cast::<*const Vec<u8>>().write_unaligned(Arc::into_raw(payload));
                }
                NewValue::String(NewString::Rope(rope)) => {
                    at.cast::<*const StringRope>().write_unaligned(Arc::into_raw(rope));
                }
                NewValue::Object(object) if self.is_packed() => write_packed(at, object),
                NewValue::Object(object) => cell.add(self.value_at()).cast::<Object>().write(object),
            }
        }
    }
}

/// Writes an expiry to its place `at`; a far one also behind the value, which ends at `value_end`.
///
/// # Safety
/// Both must be places of the cell, and valid for writes.
#[inline]
unsafe fn write_expiry(cell: NonNull<u8>, value_end: usize, at: NonNull<u8>, expiry: u64) {
    let near = expiry.min(FAR).to_le_bytes();
    // SAFETY: the caller vouches for both places.
    unsafe {
        at.copy_from_nonoverlapping(NonNull::from(&near).cast(), EXPIRY_BYTES);
        if expiry >= FAR {
            cell.add(value_end).cast::<[u8; FAR_BYTES]>().write(expiry.to_le_bytes());
        }
    }
}

/// The start of a value of that kind whose place is free from `behind` on; the high byte of a length comes first.
#[inline]
fn value_at(kind: Kind, behind: usize) -> usize {
    if kind == Kind::Object { behind.next_multiple_of(align_of::<Object>()) } else { behind }
}

/// Bytes that an integer needs, 1 to 8, its sign included.
#[inline]
fn integer_bytes(value: i64) -> usize {
    let significant = 65 - (value ^ (value >> 63)).leading_zeros() as usize;
    significant.div_ceil(8)
}

/// A stored entry.
#[derive(Clone, Copy)]
pub struct EntryRef<'a> {
    cell: NonNull<u8>,
    lifetime: PhantomData<&'a u8>,
}

impl<'a> EntryRef<'a> {
    /// # Safety
    /// `cell` must hold an entry (the module's invariant) that nothing else changes during `'a`.
    #[inline]
    pub(crate) unsafe fn new(cell: NonNull<u8>) -> Self {
        Self { cell, lifetime: PhantomData }
    }

    #[inline]
    fn byte(self, at: usize) -> u8 {
        // SAFETY: only called with offsets inside the head of a live entry.
        unsafe { self.cell.add(at).read() }
    }

    #[inline]
    fn slice(self, at: usize, length: usize) -> &'a [u8] {
        // SAFETY: only called with ranges inside a live entry, which is not changed during 'a.
        unsafe { NonNull::slice_from_raw_parts(self.cell.add(at), length).as_ref() }
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match self.byte(0) & KIND {
            0 => Kind::Integer,
            1 => Kind::Inline,
            2 => Kind::Edited,
            3 => Kind::Shared,
            4 => Kind::Rope,
            5 => Kind::Object,
            6 => Kind::Packed,
            other => unreachable!("entry of kind {other}"),
        }
    }

    /// The key.
    #[inline]
    pub fn key(self) -> &'a [u8] {
        let stored = self.slice(HEAD_BYTES, usize::from(self.byte(2)));
        if self.byte(0) & LONG_KEY == 0 { stored } else { self.long_key() }
    }

    #[cold]
    fn long_key(self) -> &'a [u8] {
        // SAFETY: LONG_KEY says that a pointer from Box::into_raw stands here; it lives as long as
        // the entry.
        unsafe { &*self.cell.add(HEAD_BYTES).cast::<*const Vec<u8>>().read_unaligned() }
    }

    #[inline]
    fn expiry_at(self) -> usize {
        HEAD_BYTES + usize::from(self.byte(2))
    }

    /// When the entry expires, in unix milliseconds.
    #[inline]
    pub fn expiry(self) -> Option<u64> {
        let near = self.near_expiry()?;
        Some(if near == FAR { self.far_expiry() } else { near })
    }

    /// The expiry if it is not far, FAR otherwise.
    #[inline]
    fn near_expiry(self) -> Option<u64> {
        (self.byte(0) & EXPIRES != 0).then(|| {
            let mut bytes = [0; 8];
            bytes[..EXPIRY_BYTES].copy_from_slice(self.slice(self.expiry_at(), EXPIRY_BYTES));
            u64::from_le_bytes(bytes)
        })
    }

    #[cold]
    fn far_expiry(self) -> u64 {
        let (at, length) = self.value_range();
        let mut bytes = [0; FAR_BYTES];
        bytes.copy_from_slice(self.slice(at + length, FAR_BYTES));
        u64::from_le_bytes(bytes)
    }

    /// Whether its time has come, or that of all its elements.
    #[inline]
    pub fn is_expired(self, now_ms: u64) -> bool {
        self.is_due(now_ms) || self.stored_object().is_some_and(|object| object.is_expired(now_ms))
    }

    /// Whether its own time has come.
    #[inline]
    pub(crate) fn is_due(self, now_ms: u64) -> bool {
        self.expiry().is_some_and(|expiry| expiry <= now_ms)
    }

    /// When something is next to be done about it: when it or one of its elements expires.
    pub(crate) fn next_deadline_ms(self) -> Option<u64> {
        let of_elements = self.stored_object().and_then(Object::next_deadline_ms);
        [self.expiry(), of_elements].into_iter().flatten().min()
    }

    /// Whether a collection of `bytes` bytes may stand in the entry's cell.
    #[inline]
    fn packs(self, bytes: usize) -> bool {
        let behind = self.expiry_at() + if self.byte(0) & EXPIRES != 0 { EXPIRY_BYTES } else { 0 };
        is_worth_packing(behind, bytes)
    }

    /// Start and length of the stored value.
    #[inline]
    fn value_range(self) -> (usize, usize) {
        let flags = self.byte(0);
        let behind = self.expiry_at() + if flags & EXPIRES != 0 { EXPIRY_BYTES } else { 0 };
        let at = value_at(self.kind(), behind);
        let low = usize::from(self.byte(3));
        if flags & LONG_VALUE == 0 { (at, low) } else { (at + 1, low | usize::from(self.byte(at)) << 8) }
    }

    /// Bytes of the whole entry in its cell.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        let (at, length) = self.value_range();
        at + length + if self.near_expiry() == Some(FAR) { FAR_BYTES } else { 0 }
    }

    /// The value that [`Self::bytes`] would have with another expiry, or without.
    pub(crate) fn bytes_with_expiry(self, expiry: Option<u64>) -> usize {
        self.tail_bytes() + self.value_place(expiry.is_some()) + if is_far(expiry) { FAR_BYTES } else { 0 }
    }

    /// Bytes of the value, with the high byte of its length, if it has one.
    fn tail_bytes(self) -> usize {
        let (at, length) = self.value_range();
        at + length - self.value_place(self.byte(0) & EXPIRES != 0)
    }

    /// The start of the value if it had an expiry, or had none: with the high byte of its length, if it has one.
    #[inline]
    fn value_place(self, expires: bool) -> usize {
        value_at(self.kind(), self.expiry_at() + if expires { EXPIRY_BYTES } else { 0 })
    }

    /// Bytes of the entry as a whole: cell, heap, slot in the index.
    pub fn memory_bytes(self) -> usize {
        class_bytes(self.bytes()) + self.key_heap_bytes() + self.value_heap_bytes() + SLOT_BYTES
    }

    /// Returns the address of the entry's cell in memory, for DEBUG OBJECT.
    pub(crate) fn address(self) -> *const u8 {
        self.cell.as_ptr()
    }

    /// The value of an entry that holds a string.
    ///
    /// # Panics
    /// For other types.
    #[inline]
    pub fn string(self) -> StringRef<'a> {
        let (at, length) = self.value_range();
        match self.kind() {
            Kind::Integer => StringRef::Integer(self.integer(at, length)),
            Kind::Inline | Kind::Edited => StringRef::Inline(self.slice(at, length)),
            // SAFETY: Shared says that a pointer from Arc::into_raw stands here; the entry owns one
            // count of it.
            Kind::Shared => StringRef::Shared(unsafe { ArcRef::new(&*self.pointer(at)) }),
            // SAFETY: Rope says the same.
            Kind::Rope => StringRef::Rope(unsafe { ArcRef::new(&*self.pointer(at)) }),
            Kind::Object | Kind::Packed => unreachable!("an object is no string"),
        }
    }

    /// The integer whose bytes, 1 to 8, stand at `at`.
    #[inline]
    fn integer(self, at: usize, length: usize) -> i64 {
        match self.word_before(at + length) {
            // SAFETY: a word inside a live entry.
            Some(word) => i64::from_le_bytes(unsafe { word.read() }) >> (64 - 8 * length),
            None => {
                let stored = self.slice(at, length);
                let negative = stored.last().is_some_and(|byte| byte & 0x80 != 0);
                let mut bytes = if negative { [0xff; 8] } else { [0; 8] };
                bytes[..length].copy_from_slice(stored);
                i64::from_le_bytes(bytes)
            }
        }
    }

    /// The eight bytes of the entry that end where its value does, at `end`: an integer is the upper part of them,
    /// so that one load or store takes the place of a copy of a variable number of bytes. `None` in the smallest
    /// of entries.
    #[inline]
    fn word_before(self, end: usize) -> Option<NonNull<[u8; 8]>> {
        // SAFETY: only called with the end of a live entry, which begins no later than the word.
        end.checked_sub(8).map(|at| unsafe { self.cell.add(at).cast() })
    }

    /// Whether the value is anything but a string.
    #[inline]
    pub fn is_object(self) -> bool {
        self.byte(0) & KIND >= Kind::Object as u8
    }

    /// The value of an entry that holds anything but a string.
    #[inline]
    pub fn object(self) -> Option<ObjectRef<'a>> {
        match self.packed() {
            Some(packed) => Some(packed.into()),
            None => self.stored_object().map(ObjectRef::Stored),
        }
    }

    /// The bytes of a packed collection.
    #[inline]
    pub(crate) fn packed(self) -> Option<Packed<'a>> {
        (self.byte(0) & KIND == Kind::Packed as u8).then(|| {
            let (at, length) = self.value_range();
            let form = PackedForm::of_byte(self.byte(at));
            Packed { form, bytes: form.without_room(self.slice(at + FORM_BYTES, length - FORM_BYTES)) }
        })
    }

    /// The value of an entry that holds anything but a string or a packed collection. All collections with elements that
    /// expire are such, all that a view shares, and all that are copied in pieces.
    #[inline]
    pub(crate) fn stored_object(self) -> Option<&'a Object> {
        // SAFETY: an object stands there, which nothing changes during 'a.
        self.object_pointer().map(|object| unsafe { object.as_ref() })
    }

    #[inline]
    fn object_pointer(self) -> Option<NonNull<Object>> {
        (self.kind() == Kind::Object).then(|| {
            let at = self.value_place(self.byte(0) & EXPIRES != 0);
            // SAFETY: Object says that one stands at this place of a live entry.
            unsafe { self.cell.add(at).cast() }
        })
    }

    /// The pointer that stands at `at`; the caller knows the type behind it.
    #[inline]
    fn pointer<T>(self, at: usize) -> *const T {
        // SAFETY: only called for Shared and Rope entries with the value's place.
        unsafe { self.cell.add(at).cast::<*const T>().read_unaligned() }
    }

    /// The type of the value.
    pub fn value_type(self) -> ValueType {
        match self.packed() {
            Some(packed) => packed.form.value_type(),
            None => self.stored_object().map_or(ValueType::String, Object::value_type),
        }
    }

    /// The name that `TYPE` answers.
    pub fn type_name(&self) -> &str {
        self.stored_object().map_or_else(|| self.value_type().name(), Object::type_name)
    }

    /// The name that `OBJECT ENCODING` answers.
    pub fn encoding(self) -> &'static str {
        if let Some(object) = self.object() {
            return object.encoding();
        }
        match (self.kind(), self.string()) {
            (Kind::Integer, _) => "int",
            (Kind::Inline, value) if value.len() <= crate::value::EMBEDDED_BYTES_MAX => "embstr",
            _ => "raw",
        }
    }

    /// Heap bytes that a long key takes outside the cell.
    #[inline]
    pub(crate) fn key_heap_bytes(self) -> usize {
        if self.byte(0) & LONG_KEY == 0 { 0 } else { block_bytes(self.key().len()) }
    }

    /// Heap bytes that the value takes outside the cell.
    #[inline]
    pub(crate) fn value_heap_bytes(self) -> usize {
        match self.kind() {
            Kind::Shared | Kind::Rope => self.string().heap_bytes(),
            Kind::Object => self.stored_object().map_or(0, Object::heap_bytes),
            _ => 0,
        }
    }

    /// Whether the value was edited in place, which `OBJECT ENCODING` may show.
    pub(crate) fn is_edited(self) -> bool {
        self.kind() == Kind::Edited
    }

    /// The value as it would be stored again: objects are copied in depth.
    pub(crate) fn to_new(self) -> NewValue<'a> {
        if let Some(object) = self.copied_object() {
            return NewValue::Object(object);
        }
        NewValue::String(match self.string().to_new() {
            NewString::Inline(bytes) if self.is_edited() => NewString::Edited(bytes),
            other => other,
        })
    }

    /// A copy of an object that shares nothing with it. O(n).
    pub(crate) fn copied_object(self) -> Option<Object> {
        self.object().map(|object| object.copied())
    }

    /// Whether the value is that of `other`: an object as it was, the same block, or the same short text.
    pub(crate) fn has_value_of(self, other: EntryRef<'_>) -> bool {
        match (self.object(), other.object()) {
            (Some(object), Some(other)) => object.is(&other),
            (None, None) => self.kind() == other.kind() && self.string().is(other.string()),
            _ => false,
        }
    }

    /// The access stamp.
    #[inline]
    pub(crate) fn access(self) -> u8 {
        self.byte(1)
    }

    /// Notes an access. The store is left out if it would change nothing, so that reading a hot key
    /// does not dirty its cache line.
    #[inline]
    pub(crate) fn touch(self, touch: Touch) {
        let stamp = self.byte(1);
        if !touch.is_settled(stamp) {
            self.set_access(touch.after(stamp));
        }
    }

    /// Replaces the access stamp.
    #[inline]
    pub(crate) fn set_access(self, stamp: u8) {
        // SAFETY: byte 1 of a live entry; it is never part of a borrowed slice, and the stripe's
        // lock, which every user of the entry holds, is exclusive.
        unsafe { self.cell.add(1).write(stamp) };
    }

    /// Which snapshots have seen the entry.
    #[inline]
    pub(crate) fn stamps(self) -> u8 {
        self.byte(0) & STAMPS
    }

    /// Notes which snapshots have seen the entry.
    pub(crate) fn set_stamps(self, stamps: u8) {
        debug_assert_eq!(stamps & !STAMPS, 0);
        let head = self.byte(0) & !STAMPS | stamps;
        // SAFETY: as for `touch`, with byte 0.
        unsafe { self.cell.write(head) };
    }

    /// Whether the value is a string in chunks.
    #[inline]
    pub(crate) fn is_rope(self) -> bool {
        self.kind() == Kind::Rope
    }

    /// The text of a long string, shared with the entry.
    pub(crate) fn long_text(self) -> Option<LongText> {
        match self.kind() {
            Kind::Shared | Kind::Rope => self.string().to_new().long_text(),
            Kind::Integer | Kind::Inline | Kind::Edited | Kind::Object | Kind::Packed => None,
        }
    }

    /// Takes out the memory that the value owns on the heap; the value must be overwritten or the cell freed.
    ///
    /// # Safety
    /// The caller must be the only one to use the entry, and not read its value again.
    pub(crate) unsafe fn take_owned(self) -> Option<Owned> {
        let (at, _) = self.value_range();
        match self.kind() {
            // SAFETY: the pointer came from Arc::into_raw; the count it stands for passes to the
            // result.
            Kind::Shared => Some(Owned::Block(unsafe { Arc::from_raw(self.pointer(at)) })),
            // SAFETY: as above.
            Kind::Rope => Some(Owned::Rope(unsafe { Arc::from_raw(self.pointer(at)) })),
            // SAFETY: Object says that one stands here; it passes to the result.
            Kind::Object => Some(Owned::Object(unsafe { self.cell.add(at).cast::<Object>().read() })),
            Kind::Integer | Kind::Inline | Kind::Edited | Kind::Packed => None,
        }
    }

    /// Frees the memory that the key owns on the heap; the cell must be freed next.
    ///
    /// # Safety
    /// As for [`Self::take_owned`].
    pub(crate) unsafe fn free_key(self) {
        if self.byte(0) & LONG_KEY != 0 {
            // SAFETY: the pointer came from Box::into_raw and is not used again.
            unsafe { drop(Box::from_raw(self.cell.add(HEAD_BYTES).cast::<*mut Vec<u8>>().read_unaligned())) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Writes an entry into a buffer and hands it to `check`.
    fn with_entry(key: &[u8], value: NewString<'_>, expiry: Option<u64>, check: impl FnOnce(EntryRef<'_>)) {
        let value = NewValue::String(value);
        let shape = Shape::new(key, &value, expiry, STAMP_BITS[1]);
        let mut cell = vec![0xaa_u8; shape.bytes()];
        let pointer = NonNull::from(cell.as_mut_slice()).cast();
        // SAFETY: the buffer has the shape's size; the entry is used alone and freed once.
        unsafe {
            shape.write(pointer, key, value, expiry, 7);
            let entry = EntryRef::new(pointer);
            assert_eq!(entry.bytes(), shape.bytes());
            assert_eq!((entry.access(), entry.stamps()), (7, STAMP_BITS[1]));
            check(entry);
            entry.take_owned();
            entry.free_key();
        }
    }

    /// None, one that most have, one that takes more bytes, those between.
    fn expiry() -> impl Strategy<Value = Option<u64>> {
        proptest::option::of(prop_oneof![0..=FAR, FAR - 2..FAR + 3, any::<u64>()])
    }

    proptest! {
        #[test]
        fn expiry_change_moves_no_other_byte_of_an_entry(
            key in proptest::collection::vec(any::<u8>(), 0..20),
            text in proptest::collection::vec(any::<u8>(), 0..600),
            expiries in proptest::collection::vec(expiry(), 1..6),
            moves in any::<bool>(),
        ) {
            let value = NewValue::String(NewString::Inline(&text));
            let new_cell = || vec![0xaa_u8; Shape::new(&key, &value, Some(FAR), 0).bytes()];
            let mut cells = vec![new_cell()];
            let pointer = NonNull::from(cells[0].as_mut_slice()).cast();
            // SAFETY: all cells have room for the largest shape, and the entry is used alone.
            let mut entry = unsafe {
                Shape::new(&key, &value, None, 0).write(pointer, &key, NewValue::String(NewString::Inline(&text)), None, 7);
                EntryRef::new(pointer)
            };
            for expiry in expiries {
                // SAFETY: as above.
                let mut place = unsafe { EntryMut::new(entry.cell) };
                let in_place = expiry.is_some_and(|expiry| place.set_expiry(expiry));
                if !in_place {
                    let bytes = entry.bytes_with_expiry(expiry);
                    let to = if moves {
                        cells.push(new_cell());
                        NonNull::from(cells.last_mut().unwrap().as_mut_slice()).cast()
                    } else {
                        entry.cell
                    };
                    // SAFETY: as above.
                    entry = unsafe {
                        place.move_to(to, expiry);
                        EntryRef::new(to)
                    };
                    prop_assert_eq!(entry.bytes(), bytes);
                }
                prop_assert_eq!(entry.expiry(), expiry);
                prop_assert_eq!((entry.key(), entry.access()), (&key[..], 7));
                prop_assert_eq!(entry.string().to_vec(), text.clone());
            }
        }

        #[test]
        fn entry_reads_back_what_was_written(
            key in proptest::collection::vec(any::<u8>(), 0..600),
            text in proptest::collection::vec(any::<u8>(), 0..20_000),
            expiry in expiry(),
        ) {
            with_entry(&key, NewString::from_text(&text), expiry, |entry| {
                assert_eq!(entry.key(), key);
                assert_eq!(entry.string().to_vec(), text);
                assert_eq!(entry.expiry(), expiry);
            });
        }

        #[test]
        fn integers_keep_their_value(value: i64, shift in 0..64) {
            let value = value >> shift;
            with_entry(b"k", NewString::Integer(value), None, |entry| {
                assert_eq!(entry.string().integer(), Some(value));
                assert_eq!(entry.encoding(), "int");
            });
        }

        #[test]
        fn integer_of_the_same_length_replaces_another_in_place(
            key in proptest::collection::vec(any::<u8>(), 0..12),
            (value, other) in any::<(i64, i64)>(),
            (shift, other_shift) in (0..64, 0..64),
            expiry in expiry(),
        ) {
            let (value, other) = (value >> shift, other >> other_shift);
            with_entry(&key, NewString::Integer(value), expiry, |entry| {
                // SAFETY: no other thread uses the entry.
                let is_set = unsafe { EntryMut::new(entry.cell) }.set_integer(other);
                assert_eq!(is_set, integer_bytes(value) == integer_bytes(other));
                assert_eq!(entry.string().integer(), Some(if is_set { other } else { value }));
                assert_eq!((entry.key(), entry.expiry()), (&key[..], expiry));
            });
        }
    }

    #[test]
    fn sixteen_and_sixteen_cost_thirty_six() {
        with_entry(b"key:000000000001", NewString::Inline(b"value:0000000001"), None, |entry| {
            assert_eq!(entry.bytes(), 36);
        });
        with_entry(b"key:000000000001", NewString::Inline(b"value:0000000001"), Some(1), |entry| {
            assert_eq!(entry.bytes(), 42);
        });
    }
}
