//! The large form of a collection, behind a pointer that several may hold.
//!
//! ```text
//! entry ─▶ Object ─▶ Set ─▶ Shared ─┐
//!                                   ├──▶ MemberTable
//! view  ─▶ Object ─▶ Set ─▶ Shared ─┘
//! ```
//!
//! Cloning shares: it takes a view of millions of elements in no time. A command that changes a shared table
//! gets a copy of it first, so a view never changes (`docs/decisions/0013-long-commands.md`). Usually the
//! table is not shared, and then a change costs one look at the count more.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{Ordering::Acquire, fence},
    },
};

/// A value that is copied when it is changed while others hold it too.
#[derive(Debug, Clone, Default)]
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Arc::new(value))
    }

    /// Whether others hold it too.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Whether both are one and the same.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T: Clone> Shared<T> {
    /// A copy that shares nothing.
    pub(super) fn copied(&self) -> Self {
        Self::new((**self).clone())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        if self.is_shared() {
            self.0 = copied(&self.0);
        }
        // Another holder's reads have come before.
        fence(Acquire);
        // SAFETY: this is the only strong pointer, no code makes weak ones, and `&mut self` keeps it from
        // being cloned. `Arc::get_mut` would lock the weak count to be sure of a fact that holds here.
        unsafe { &mut *Arc::as_ptr(&self.0).cast_mut() }
    }
}

/// Apart from the changes that need no copy, which it would make too long to stand where they are made.
#[cold]
#[inline(never)]
fn copied<T: Clone>(shared: &Arc<T>) -> Arc<T> {
    Arc::new(T::clone(shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_never_changes() {
        let mut table = Shared::new(vec![1, 2]);
        table.push(3);
        let view = table.clone();
        assert!(table.is_shared() && view.is(&table));
        table.push(4);
        assert!(!table.is_shared() && !view.is(&table));
        assert_eq!((&*view, &*table), (&vec![1, 2, 3], &vec![1, 2, 3, 4]));
    }
}
