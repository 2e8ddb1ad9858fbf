//! Changing an entry in its cell.

use std::{mem::ManuallyDrop, ptr::NonNull, sync::Arc};

use dunlin_structures::Relocator;

use super::{EXPIRES, EntryRef, FAR, KIND, Kind, integer_bytes, write_expiry};
use crate::{
    keyspace::access::Touch,
    value::{BLOCK_BYTES_MAX, Collection, Object, PACKED_AGAIN_BYTES_MAX, StringRope, TextMut},
};

/// The result of working on a collection.
pub(crate) struct Edited<R> {
    /// The answer of the work.
    pub(crate) result: R,
    /// Whether no element is left.
    pub(crate) is_empty: bool,
    /// [`Collection::next_deadline_ms`].
    pub(crate) next_deadline_ms: Option<u64>,
    /// Whether it now takes more memory, or less.
    pub(crate) is_resized: bool,
    /// Whether it has become small enough to be packed.
    pub(crate) is_small: bool,
}

/// A stored entry that may be changed in place.
pub(crate) struct EntryMut<'a> {
    entry: EntryRef<'a>,
}

impl<'a> EntryMut<'a> {
    /// # Safety
    /// As for [`EntryRef::new`], and nothing else uses the entry during `'a`.
    pub(crate) unsafe fn new(cell: NonNull<u8>) -> Self {
        // SAFETY: the caller vouches.
        Self { entry: unsafe { EntryRef::new(cell) } }
    }

    /// [`EntryRef::touch`].
    #[inline]
    pub(crate) fn touch(&mut self, touch: Touch) {
        self.entry.touch(touch);
    }

    /// Moves the block of the value to where the general allocator would rather have it, unless a reply or a view shares it.
    pub(crate) fn relocate(&mut self, relocator: &mut Relocator) {
        match self.entry.kind() {
            Kind::Shared => {
                let (at, _) = self.entry.value_range();
                // SAFETY: the pointer came from an `Arc`; the entry keeps its count of it.
                let mut block =
                    unsafe { ManuallyDrop::new(Arc::from_raw(self.entry.pointer::<Vec<u8>>(at))) };
                if let Some(text) = Arc::get_mut(&mut block) {
                    relocator.vector(text);
                }
            }
            Kind::Object => {
                if let Some(mut object) = self.entry.object_pointer() {
                    // SAFETY: an object stands there, and `&mut self` makes this the only use of it.
                    unsafe { object.as_mut() }.relocate(relocator);
                }
            }
            Kind::Integer | Kind::Inline | Kind::Edited | Kind::Rope | Kind::Packed => {}
        }
    }

    /// Overwrites the expiry by one that takes as many bytes. Returns whether it could.
    pub(crate) fn set_expiry(&mut self, expiry: u64) -> bool {
        let entry = self.entry;
        let old = entry.near_expiry();
        if old.is_none() || (old == Some(FAR)) != (expiry >= FAR) {
            return false;
        }
        let (at, length) = entry.value_range();
        // SAFETY: EXPIRES is set, so an expiry stands there, and behind the value if it is far; they are ours to
        // change.
        unsafe { write_expiry(entry.cell, at + length, entry.cell.add(entry.expiry_at()), expiry) };
        true
    }

    /// Moves the entry to another cell, or within its own, with another expiry. The values that it owns move along.
    ///
    /// # Safety
    /// `to` must be valid for writes of [`EntryRef::bytes_with_expiry`] bytes and be the entry's own
    /// cell or one that does not overlap it; an old cell is not used again but to be freed.
    pub(crate) unsafe fn move_to(self, to: NonNull<u8>, expiry: Option<u64>) {
        let EntryRef { cell, .. } = self.entry;
        let (expiry_at, tail_bytes) = (self.entry.expiry_at(), self.entry.tail_bytes());
        let from_tail = self.entry.value_place(self.entry.byte(0) & EXPIRES != 0);
        let to_tail = self.entry.value_place(expiry.is_some());
        let flag = if expiry.is_some() { EXPIRES } else { 0 };
        let head = self.entry.byte(0) & !EXPIRES | flag;
        // SAFETY: all ranges lie inside the entry's old and new lengths. The tail goes first, since
        // within one cell it may be overwritten by the expiry.
        unsafe {
            cell.add(from_tail).copy_to(to.add(to_tail), tail_bytes);
            if to != cell {
                cell.copy_to_nonoverlapping(to, expiry_at);
            }
            to.write(head);
            if let Some(expiry) = expiry {
                write_expiry(to, to_tail + tail_bytes, to.add(expiry_at), expiry);
            }
        }
    }

    /// The entry as it is.
    #[inline]
    pub(crate) fn as_ref(&self) -> EntryRef<'_> {
        self.entry
    }

    /// Writes the part of the entry before its value to another cell, but for the expiry and the length of the value.
    ///
    /// # Safety
    /// `to` must be valid for writes of [`EntryRef::bytes`] bytes and not overlap the entry's cell, whose key must be freed
    /// only with the new one.
    pub(crate) unsafe fn copy_key_to(&self, to: NonNull<u8>) {
        // SAFETY: the caller vouches; the range lies inside the entry.
        unsafe { self.entry.cell.copy_to_nonoverlapping(to, self.entry.expiry_at()) };
    }

    /// Overwrites an integer with one that takes as many bytes. Returns whether it could.
    #[inline]
    pub(crate) fn set_integer(&mut self, value: i64) -> bool {
        let (at, length) = self.entry.value_range();
        let fits = self.entry.kind() == Kind::Integer && length == integer_bytes(value);
        if !fits {
            return false;
        }
        if let Some(word) = self.entry.word_before(at + length) {
            let shift = 64 - 8 * length;
            // SAFETY: a word inside a live entry that is ours to change; the bytes before the value stay.
            unsafe {
                let before = u64::from_le_bytes(word.read()) & ((1 << shift) - 1);
                word.write((before | (value as u64) << shift).to_le_bytes());
            }
        } else {
            let bytes = value.to_le_bytes();
            // SAFETY: the value of a live entry that is ours to change has that length, 8 at most.
            unsafe {
                self.entry.cell.add(at).copy_from_nonoverlapping(NonNull::from(&bytes).cast(), length);
            }
        }
        true
    }

    /// Works on the bytes of an inline text, which counts as edited unless `edit` answers `None`;
    /// the outer `None` for other kinds.
    pub(crate) fn edit_inline<R>(&mut self, edit: impl FnOnce(&mut [u8]) -> Option<R>) -> Option<Option<R>> {
        if !matches!(self.entry.kind(), Kind::Inline | Kind::Edited) {
            return None;
        }
        let (at, length) = self.entry.value_range();
        // SAFETY: the range is the value of a live entry that is ours to change.
        let bytes = unsafe { NonNull::slice_from_raw_parts(self.entry.cell.add(at), length).as_mut() };
        let edited = edit(bytes);
        if edited.is_some() {
            let head = self.entry.byte(0) & !KIND | Kind::Edited as u8;
            // SAFETY: the head is the first byte of a live entry that is ours to change.
            unsafe { self.entry.cell.write(head) };
        }
        Some(edited)
    }

    /// Works on the object; `None` for strings and packed collections. A value that a view shares is copied first, before anything is looked
    /// up in it: places in a table are not places in its copy. Answers also the bytes that it took outside the cell
    /// before and takes there now.
    #[inline]
    pub(crate) fn edit_object<R>(
        &mut self,
        edit: impl FnOnce(&mut Object) -> R,
    ) -> Option<(R, usize, usize)> {
        // SAFETY: an object stands there, and `&mut self` makes this the only use of it.
        let object = unsafe { self.entry.object_pointer()?.as_mut() };
        let before = object.heap_bytes();
        if object.is_shared() {
            object.unshare();
        }
        let result = edit(object);
        Some((result, before, object.heap_bytes()))
    }

    /// [`Self::edit_object`] for a collection of a type; `None` for values of others. Memory is compared here.
    #[inline]
    pub(crate) fn edit_collection<T: Collection, R>(
        &mut self,
        edit: impl FnOnce(&mut T) -> R,
    ) -> Option<(Edited<R>, usize, usize)> {
        // SAFETY: an object stands there, and `&mut self` makes this the only use of it.
        let object = unsafe { self.entry.object_pointer()?.as_mut() };
        let before = T::of(object)?.outside_bytes();
        if object.is_shared() {
            object.unshare();
        }
        let collection = T::of_mut(object)?;
        let result = edit(collection);
        let after = collection.outside_bytes();
        let edited = Edited {
            result,
            is_empty: collection.is_empty(),
            next_deadline_ms: collection.next_deadline_ms(),
            is_resized: before != after,
            is_small: collection.packed().is_some_and(|packed| {
                packed.bytes.len() <= PACKED_AGAIN_BYTES_MAX && self.entry.packs(packed.bytes.len())
            }),
        };
        Some((edited, before, after))
    }

    /// Works on a long string, which needs room for `length` bytes; `None` for other kinds. If replies or a snapshot
    /// share it, a block is copied first, and of a rope each chunk that changes.
    pub(crate) fn edit_long<R>(&mut self, length: usize, edit: impl FnOnce(TextMut<'_>) -> R) -> Option<R> {
        if self.entry.kind() == Kind::Shared && length > BLOCK_BYTES_MAX {
            self.block_to_rope();
        }
        match self.entry.kind() {
            Kind::Rope => {
                let (at, _) = self.entry.value_range();
                // SAFETY: the entry owns one count of the Arc; it is taken out, and put back before any
                // thread can look, even if `edit` unwinds.
                let mut rope = unsafe { PutBack::<StringRope>::new(self.entry, at) };
                Some(edit(TextMut::Rope(Arc::make_mut(&mut rope.value))))
            }
            _ => self.edit_block(|block| edit(TextMut::Flat(block))),
        }
    }

    /// Works on the block of a string; `None` for other kinds. A block that is shared is copied first.
    pub(crate) fn edit_block<R>(&mut self, edit: impl FnOnce(&mut Vec<u8>) -> R) -> Option<R> {
        if self.entry.kind() != Kind::Shared {
            return None;
        }
        let (at, _) = self.entry.value_range();
        // SAFETY: as in `edit_long`.
        let mut block = unsafe { PutBack::<Vec<u8>>::new(self.entry, at) };
        Some(edit(Arc::make_mut(&mut block.value)))
    }

    /// Makes a rope of a block, which must be there; it is copied if others share it.
    #[cold]
    fn block_to_rope(&mut self) {
        let (at, _) = self.entry.value_range();
        // SAFETY: the pointer came from Arc::into_raw. The count that it stands for is used up, and the pointer of the
        // rope takes its place, as the head says next; nothing in between unwinds or looks at the entry.
        unsafe {
            let block: Arc<Vec<u8>> = Arc::from_raw(self.entry.pointer(at));
            let rope = match Arc::try_unwrap(block) {
                Ok(bytes) => StringRope::from(bytes),
                Err(shared) => StringRope::from(&shared[..]),
            };
            self.entry
                .cell
                .add(at)
                .cast::<*const StringRope>()
                .write_unaligned(Arc::into_raw(Arc::new(rope)));
            self.entry.cell.write(self.entry.byte(0) & !KIND | Kind::Rope as u8);
        }
    }
}

/// Puts an entry's `Arc` back where it was taken from.
struct PutBack<'a, T> {
    value: ManuallyDrop<Arc<T>>,
    entry: EntryRef<'a>,
    at: usize,
}

impl<'a, T> PutBack<'a, T> {
    /// # Safety
    /// `at` must be the place of a value that is an `Arc<T>` and that nothing else uses during `'a`.
    unsafe fn new(entry: EntryRef<'a>, at: usize) -> Self {
        // SAFETY: the pointer came from Arc::into_raw.
        let value = unsafe { Arc::from_raw(entry.pointer(at)) };
        Self { value: ManuallyDrop::new(value), entry, at }
    }
}

impl<T> Drop for PutBack<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the value is taken once, here; the place is the one it came from.
        unsafe {
            let value = ManuallyDrop::take(&mut self.value);
            self.entry.cell.add(self.at).cast::<*const T>().write_unaligned(Arc::into_raw(value));
        }
    }
}
