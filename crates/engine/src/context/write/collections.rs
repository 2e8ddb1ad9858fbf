//! Changing collections.

use std::any::Any;

use dunlin_structures::Slot;

use crate::{
    command::CommandError,
    keyspace::{Edited, Key},
    value::{Collection, NewValue, Object, Owned, PACKED_SURELY_BYTES_MAX, recycle},
};

use super::{ExpiryChange, WriteContext, collection_of};

/// The part of a collection that a command has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// The groups of a stream, or its memory of its past. Such a change counts, and clients that wait for the key
    /// are served; WATCH and tracking are about the entries, and hear nothing.
    Groups,
    /// The elements.
    Elements,
}

impl Change {
    /// A change of groups, if there is one.
    pub fn of_groups(changed: bool) -> Self {
        if changed { Self::Groups } else { Self::None }
    }
}

impl From<bool> for Change {
    fn from(changed: bool) -> Self {
        if changed { Self::Elements } else { Self::None }
    }
}

impl WriteContext<'_> {
    /// The collection under a key; an error if it holds another type.
    pub fn collection<T: Collection>(&mut self, key: &[u8]) -> Result<Option<T::Ref<'_>>, CommandError> {
        self.find(key).map(collection_of::<T>).transpose()
    }

    /// [`Self::collection`] that counts a hit or a miss: for keys that a command only reads.
    pub fn read_collection<T: Collection>(&mut self, key: &[u8]) -> Result<Option<T::Ref<'_>>, CommandError> {
        self.read(key).map(collection_of::<T>).transpose()
    }

    /// Works on the collection under a key; `None` if there is none, an error if the key holds
    /// another type. A collection that is empty afterwards is removed with its key.
    pub fn edit<T: Collection, R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut T) -> R,
    ) -> Result<Option<R>, CommandError> {
        self.update(key, |collection| (edit(collection), true))
    }

    /// [`Self::edit`], on a new collection if the key is missing. A collection that is left empty
    /// is not stored.
    pub fn edit_or_create<T: Collection, R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut T) -> R,
    ) -> Result<R, CommandError> {
        self.update_or_create(key, |collection| (edit(collection), true))
    }

    /// [`Self::edit`] that may find nothing to do: `edit` also returns whether, or how, it has changed something.
    pub fn update<T: Collection, R, C: Into<Change>>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut T) -> (R, C),
    ) -> Result<Option<R>, CommandError> {
        let key = self.key(key);
        let Some(slot) = self.slot(self.database, &key) else { return Ok(None) };
        if self.is_recorded() && self.has_expired_elements(&key, slot) {
            self.reclaim_elements(&key, slot);
        }
        let clock_ms = self.environment.caller.clock_ms();
        let touch = self.touch();
        let part = self.locked.stripe_mut(key.stripe).database_mut(self.database);
        let part = part.expect("the slot was found in it");
        let edited = part.edit_collection(slot, touch, edit);
        let Some(Edited { result: (result, changed), is_empty, next_deadline_ms, is_resized, .. }) = edited
        else {
            return Err(CommandError::WrongType);
        };
        if let Some(deadline_ms) = next_deadline_ms {
            part.note_element_deadline(slot, deadline_ms, clock_ms);
        }
        if is_resized {
            self.locked.publish_usage(key.stripe, self.database);
        }
        if is_empty {
            self.remove_slot(self.database, key.stripe, slot);
        }
        match changed.into() {
            Change::None => {}
            Change::Groups => self.changed_groups(self.database, &key),
            Change::Elements => self.changed_in_place(self.database, &key),
        }
        Ok(Some(result))
    }

    pub(super) fn has_expired_elements(&self, key: &Key<'_>, slot: Slot) -> bool {
        let part = self.locked.stripe(key.stripe).database(self.database);
        let now_ms = self.environment.caller.now_ms;
        match part.and_then(|part| part.entry(slot).stored_object()) {
            Some(Object::Hash(hash)) => hash.next_deadline_ms().is_some_and(|next_ms| next_ms <= now_ms),
            _ => false,
        }
    }

    /// [`Self::update`], on a new collection if the key is missing.
    pub fn update_or_create<T: Collection, R, C: Into<Change>>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut T) -> (R, C),
    ) -> Result<R, CommandError> {
        let mut edit = Some(edit);
        let mut run = |collection: &mut T| (edit.take().expect("called once"))(collection);
        if let Some(result) = self.update(key, &mut run)? {
            return Ok(result);
        }
        let mut collection = T::new_in_buffer(self.resources());
        let (result, _) = run(&mut collection);
        if collection.is_empty() {
            recycle(collection.into_object());
        } else {
            if collection.packed().is_none_or(|packed| packed.bytes.len() > PACKED_SURELY_BYTES_MAX) {
                collection.leave_buffer();
            }
            self.set_collection(key, collection, ExpiryChange::Clear);
        }
        Ok(result)
    }

    /// Stores a collection in place of any value; an empty one removes the key.
    pub fn set_collection<T: Collection>(&mut self, key: &[u8], collection: T, expiry: ExpiryChange) {
        if collection.is_empty() {
            self.remove(key);
            return;
        }
        self.set_value_in(self.database, key, NewValue::Object(collection.into_object()), expiry);
    }

    /// Frees a collection that is no longer wanted at a moment that delays no client.
    pub fn discard<T: Collection>(&mut self, collection: T) {
        self.worker.garbage.push(Owned::Object(collection.into_object()));
    }

    /// [`Self::discard`] for values that are not collections.
    pub fn discard_other<T: Any + Send>(&mut self, other: T) {
        self.worker.garbage.push_other(Box::new(other));
    }
}
