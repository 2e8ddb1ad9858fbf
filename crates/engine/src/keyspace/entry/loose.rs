//! Entries outside of slabs.

use std::{cell::UnsafeCell, ptr::NonNull, sync::Arc};

use super::{CELL_ALIGNMENT, EntryRef, Shape};
use crate::value::{NewValue, Object, StringRope};

/// An entry outside any slab: the state of one in a database at some moment. Long values are shared with that one.
pub(crate) struct LooseEntry {
    /// As aligned as a slab's cells are.
    cell: Box<[UnsafeCell<u64>]>,
}

const _: () = {
    assert!(align_of::<u64>() == CELL_ALIGNMENT);
    // Values that a cell owns and shares may be used by several threads.
    const fn is_free<T: Send + Sync>() {}
    is_free::<Object>();
    is_free::<Arc<Vec<u8>>>();
    is_free::<Arc<StringRope>>();
};

impl LooseEntry {
    /// The entry as it is now. O(1) but for values of few bytes, which are copied.
    pub(crate) fn of(entry: EntryRef<'_>) -> Self {
        let value = match entry.object() {
            Some(object) => NewValue::Object((*object).clone()),
            None => entry.to_new(),
        };
        let (key, expiry) = (entry.key(), entry.expiry());
        let shape = Shape::new(key, &value, expiry, 0);
        let cell: Box<[_]> =
            (0..shape.bytes().div_ceil(CELL_ALIGNMENT)).map(|_| UnsafeCell::new(0)).collect();
        let loose = Self { cell };
        // SAFETY: the buffer is fresh, has the shape's size, and its bytes may be written through a shared reference.
        unsafe { shape.write(loose.start(), key, value, expiry, entry.access()) };
        loose
    }

    fn start(&self) -> NonNull<u8> {
        NonNull::from(&self.cell[..]).cast()
    }

    /// The entry; accesses to it are not noted.
    pub(crate) fn get(&self) -> EntryRef<'_> {
        // SAFETY: the cell was filled by `Shape::write` and is not changed.
        unsafe { EntryRef::new(self.start()) }
    }
}

impl Drop for LooseEntry {
    fn drop(&mut self) {
        // SAFETY: nothing reads the entry again.
        unsafe {
            self.get().take_owned();
            self.get().free_key();
        }
    }
}
