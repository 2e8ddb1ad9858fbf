//! Changing strings.

use std::sync::Arc;

use dunlin_structures::Slot;

use crate::{
    command::CommandError,
    keyspace::{EntryRef, Key},
    value::{NewString, NewValue},
};

use super::{ExpiryChange, WriteContext, string_of};

impl WriteContext<'_> {
    /// The block that an argument of the command has arrived in, for [`NewString::from_argument`].
    #[inline]
    pub fn block_of(&self, argument: &[u8]) -> Option<Arc<Vec<u8>>> {
        self.worker.block_of(argument)
    }

    /// Stores an argument as a string, whatever the key held; see [`Self::set_string`].
    #[inline]
    pub fn set_argument(&mut self, key: &[u8], argument: &[u8], expiry: ExpiryChange) {
        let value = NewString::from_argument(argument, self.block_of(argument));
        self.set_string(key, value, expiry);
    }

    /// Stores a string, whatever the key held. With an expiry that has passed, the key is removed.
    pub fn set_string(&mut self, key: &[u8], value: NewString<'_>, expiry: ExpiryChange) {
        self.set_string_in(self.database, key, value, expiry);
    }

    /// [`Self::set_string`] in another database.
    #[inline]
    pub fn set_string_in(&mut self, database: usize, key: &[u8], value: NewString<'_>, expiry: ExpiryChange) {
        self.set_value_in(database, key, NewValue::String(value), expiry);
    }

    /// Stores the string that `decide` makes of what the key holds, if it makes one; whether it did.
    /// With an expiry that has passed, the key is removed instead.
    ///
    /// The key is looked up once.
    #[inline]
    pub fn replace_string<'v>(
        &mut self,
        key: &[u8],
        expiry: ExpiryChange,
        decide: impl FnOnce(Option<EntryRef<'_>>) -> Result<Option<NewString<'v>>, CommandError>,
    ) -> Result<bool, CommandError> {
        let key = self.key(key);
        let found = self.slot(self.database, &key);
        let mut stripe = self.locked.shard_mut(key.shard).database_mut(self.database);
        let entry = found.and_then(|slot| Some(stripe.as_deref()?.entry(slot)));
        let Some(value) = decide(entry)? else { return Ok(false) };
        // Counters: nothing moves, nothing is freed, no memory is taken.
        if let (Some(slot), Some(stripe)) = (found, &mut stripe)
            && let (NewString::Integer(integer), ExpiryChange::Keep) = (&value, expiry)
            && stripe.set_integer(slot, *integer, self.environment.now_ms)
        {
            self.changed_in_place(self.database, &key);
            return Ok(true);
        }
        self.store(self.database, &key, found, NewValue::String(value), expiry);
        Ok(true)
    }

    /// Works on the bytes of the string under a key. The result replaces the text; the expiry
    /// stays. A missing key is an empty text, and is created.
    ///
    /// Long strings are edited in their block: O(edit), not O(text).
    pub fn edit_string<R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Result<R, CommandError> {
        self.update_string(key, |text| (edit(text), true))
    }

    /// [`Self::edit_string`] that may find nothing to do: `edit` also answers whether it has changed
    /// the bytes.
    pub fn update_string<R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut Vec<u8>) -> (R, bool),
    ) -> Result<R, CommandError> {
        let key = self.key(key);
        let found = self.slot(self.database, &key);
        self.edit_found(&key, found, |text| Ok(edit(text)))
    }

    /// [`Self::edit_string`] where the key is there, `None` where it is not. An `edit` that fails has
    /// left the bytes alone.
    pub fn edit_existing_string<R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut Vec<u8>) -> Result<R, CommandError>,
    ) -> Result<Option<R>, CommandError> {
        let key = self.key(key);
        match self.slot(self.database, &key) {
            Some(slot) => {
                let edit = |text: &mut Vec<u8>| edit(text).map(|result| (result, true));
                self.edit_found(&key, Some(slot), edit).map(Some)
            }
            None => Ok(None),
        }
    }

    fn edit_found<R>(
        &mut self,
        key: &Key<'_>,
        found: Option<Slot>,
        edit: impl FnOnce(&mut Vec<u8>) -> Result<(R, bool), CommandError>,
    ) -> Result<R, CommandError> {
        let mut edit = Some(edit);
        let mut text = std::mem::take(&mut self.worker.scratch);
        text.clear();
        if let Some(slot) = found {
            let stripe = self.locked.shard_mut(key.shard).database_mut(self.database);
            let stripe = stripe.expect("the slot was found in it");
            let result = stripe.edit_shared(slot, |bytes| (edit.take().expect("called once"))(bytes));
            if let Some(result) = result {
                let (result, changed) = result?;
                if changed {
                    self.changed(self.database, key);
                }
                return Ok(result);
            }
            let value = string_of(stripe.entry(slot))?;
            text.extend_from_slice(value.text(&mut itoa::Buffer::new()));
        }
        let (result, changed) = (edit.take().expect("not called yet"))(&mut text)?;
        let value = NewValue::String(NewString::from_edited(&mut text));
        // Even where the bytes are the same: an integer has become a text.
        self.put(self.database, key, found, value, ExpiryChange::Keep);
        if changed {
            self.changed(self.database, key);
        } else {
            self.locked.publish_usage(key.shard, self.database);
        }
        self.worker.scratch = text;
        Ok(result)
    }

    /// Works on the bytes of the string under a key where its length does not change. `None`, and
    /// nothing done, where there is no such text (no key, an integer, another type) or where `edit`
    /// says so and has left the bytes alone. `edit` also answers whether it has changed them.
    pub fn edit_string_in_place<R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut [u8]) -> Option<(R, bool)>,
    ) -> Option<R> {
        let key = self.key(key);
        let slot = self.slot(self.database, &key)?;
        let stripe = self.locked.shard_mut(key.shard).database_mut(self.database);
        let (edited, changed) = stripe.expect("the slot was found in it").edit_in_place(slot, edit)?;
        if changed {
            self.changed(self.database, &key);
        }
        Some(edited)
    }
}
