//! Changing strings.

use std::sync::Arc;

use dunlin_structures::Slot;

use crate::{
    command::CommandError,
    keyspace::{EntryRef, Key},
    long_words::{LONG_WORD_BYTES_MIN, LongWord},
    value::{BLOCK_BYTES_MAX, LongText, NewString, NewValue, StringRope, TextMut},
};

use super::{ExpiryChange, WriteContext, string_of};

impl WriteContext<'_> {
    /// Stores a string in place of any value. With an expiry that has passed, the key is removed.
    pub fn set_string(&mut self, key: &[u8], value: NewString<'_>, expiry: ExpiryChange) {
        self.set_string_in(self.database, key, value, expiry);
    }

    /// [`Self::set_string`] in another database.
    #[inline]
    pub fn set_string_in(&mut self, database: usize, key: &[u8], value: NewString<'_>, expiry: ExpiryChange) {
        self.set_value_in(database, key, NewValue::String(value), expiry);
    }

    /// The long word of the command whose bytes these are.
    #[inline]
    pub(crate) fn long_word(&self, word: &[u8]) -> Option<Arc<LongWord>> {
        self.worker.propagation.long_words.find(word).map(Arc::clone)
    }

    /// Stores a word of the command as a string in place of any value; as [`Self::set_string`].
    #[inline]
    pub fn set_word(&mut self, key: &[u8], word: &[u8], expiry: ExpiryChange) {
        if word.len() < LONG_WORD_BYTES_MIN {
            self.set_string(key, NewString::from_text(word), expiry);
        } else {
            self.set_long_word(key, word, expiry);
        }
    }

    #[cold]
    fn set_long_word(&mut self, key: &[u8], word: &[u8], expiry: ExpiryChange) {
        let value = NewString::from_word(word, self.long_word(word).as_deref());
        self.set_string(key, value, expiry);
        self.note_stored(key, word);
    }

    /// Says that the value of a key is now the bytes of a word of the command: a record need not copy them.
    #[inline]
    pub fn note_stored(&mut self, key: &[u8], word: &[u8]) {
        if word.len() > BLOCK_BYTES_MAX && self.is_recorded() {
            self.share_stored(key, word);
        }
    }

    #[cold]
    fn share_stored(&mut self, key: &[u8], word: &[u8]) {
        if self.worker.propagation.long_words.find(word).is_some() {
            return;
        }
        let key = self.key(key);
        let Some(slot) = self.slot(self.database, &key) else { return };
        let part = self.locked.stripe(key.stripe).database(self.database);
        if let Some(LongText::Rope(rope)) = part.and_then(|part| part.entry(slot).long_text()) {
            self.worker.propagation.note_stored(word, rope);
        }
    }

    /// Stores the string that `decide` makes of the key's value, if it makes one; returns whether it did.
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
        let touch = self.touch();
        let mut part = self.locked.stripe_mut(key.stripe).database_mut(self.database);
        let entry = found.and_then(|slot| Some(part.as_deref()?.entry(slot)));
        let Some(value) = decide(entry)? else { return Ok(false) };
        // Counters: nothing moves, nothing is freed, no memory is taken.
        if let (Some(slot), Some(part)) = (found, &mut part)
            && let (NewString::Integer(integer), ExpiryChange::Keep) = (&value, expiry)
            && part.set_integer(slot, *integer, touch)
        {
            self.changed_in_place(self.database, &key);
            return Ok(true);
        }
        self.store(self.database, &key, found, NewValue::String(value), expiry);
        Ok(true)
    }

    /// Works on the bytes of a string under a key that is not a rope: the caller has seen that. The result replaces
    /// the text; the expiry stays. A missing key is an empty text, and is created.
    ///
    /// Long strings are edited in their block: O(edit), not O(text).
    pub fn edit_string<R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Result<R, CommandError> {
        let edit = |text: TextMut<'_>| match text {
            TextMut::Flat(text) => (edit(text), true),
            TextMut::Rope(_) => unreachable!("the string was seen to be short"),
        };
        self.update_string(key, 0, edit)
    }

    /// Works on the text under a key, which is to be at least `length` bytes long: a caller that makes it longer than
    /// it is has said so. The expiry stays. A missing key is an empty text, and is created. `edit` also returns whether
    /// it has changed the bytes.
    ///
    /// Long strings are edited where they stand: O(edit), not O(text).
    pub fn update_string<R>(
        &mut self,
        key: &[u8],
        length: usize,
        edit: impl FnOnce(TextMut<'_>) -> (R, bool),
    ) -> Result<R, CommandError> {
        let key = self.key(key);
        let found = self.slot(self.database, &key);
        self.edit_found(&key, found, |_| Ok(length), edit)
    }

    /// Appends to the string under a key, if the key is there. Returns its length afterwards. `check` is asked with the
    /// length before.
    pub fn append_to_existing(
        &mut self,
        key: &[u8],
        tail: &[u8],
        check: impl FnOnce(usize) -> Result<(), CommandError>,
    ) -> Result<Option<usize>, CommandError> {
        let key = self.key(key);
        let Some(slot) = self.slot(self.database, &key) else { return Ok(None) };
        let length = |before: usize| check(before).map(|()| before + tail.len());
        let long = self.long_word(tail);
        let append = |mut text: TextMut<'_>| {
            text.append_word(tail, long.as_deref());
            (text.len(), true)
        };
        self.edit_found(&key, Some(slot), length, append).map(Some)
    }

    /// Overwrites the text under a key from `offset` on, which grows with zeros as needed and is created if it is
    /// missing.
    pub fn overwrite_string(&mut self, key: &[u8], offset: usize, part: &[u8]) -> Result<(), CommandError> {
        let long = self.long_word(part);
        let end = offset + part.len();
        let replaced = self.update_string(key, end, |mut text| {
            text.grow(end);
            (text.write_word(offset, part, long.as_deref()), true)
        })?;
        if !replaced.is_empty() {
            self.worker.garbage.push_other(Box::new(replaced));
        }
        Ok(())
    }

    /// `length` says of the length that the text has which one it is to have, or why it stays as it is.
    fn edit_found<R>(
        &mut self,
        key: &Key<'_>,
        found: Option<Slot>,
        length: impl FnOnce(usize) -> Result<usize, CommandError>,
        edit: impl FnOnce(TextMut<'_>) -> (R, bool),
    ) -> Result<R, CommandError> {
        let mut edit = Some(edit);
        let mut edit = |text: TextMut<'_>| (edit.take().expect("called once"))(text);
        let mut text = Vec::new();
        let length = if let Some(slot) = found {
            if self.environment.policy.stamps_changes {
                self.stamp_change(key, slot);
            }
            let part = self.locked.stripe_mut(key.stripe).database_mut(self.database);
            let part = part.expect("the slot was found in it");
            let length = length(string_of(part.entry(slot))?.len())?;
            if let Some((result, changed)) = part.edit_long(slot, length, &mut edit) {
                self.settle_edit(key, changed);
                return Ok(result);
            }
            text = std::mem::take(&mut self.worker.scratch);
            text.clear();
            string_of(part.entry(slot))?.write_to(&mut text);
            length
        } else {
            length(0)?
        };
        let ((result, changed), value) = if length <= BLOCK_BYTES_MAX {
            (edit(TextMut::Flat(&mut text)), NewString::from_edited(&mut text))
        } else {
            let mut rope = StringRope::from(&text[..]);
            (edit(TextMut::Rope(&mut rope)), NewString::Rope(Arc::new(rope)))
        };
        // Even if the bytes are the same: an integer has become a text.
        self.put(self.database, key, found, NewValue::String(value), ExpiryChange::Keep);
        self.settle_edit(key, changed);
        self.worker.scratch = text;
        Ok(result)
    }

    /// A text was worked on. Even if its bytes are the same, it may take another amount of memory: it was copied
    /// because it was shared, or has become a rope.
    fn settle_edit(&mut self, key: &Key<'_>, changed: bool) {
        if changed {
            self.changed(self.database, key);
        } else {
            self.locked.publish_usage(key.stripe, self.database);
        }
    }

    /// Works on the bytes of the string under a key without a change of its length. `None`, and
    /// nothing done, if there is no such text (no key, an integer, another type) or if `edit` says
    /// so and has left the bytes alone. `edit` also answers whether it has changed them.
    pub fn edit_string_in_place<R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut [u8]) -> Option<(R, bool)>,
    ) -> Option<R> {
        let key = self.key(key);
        let slot = self.slot(self.database, &key)?;
        let part = self.locked.stripe_mut(key.stripe).database_mut(self.database);
        let (edited, changed) = part.expect("the slot was found in it").edit_in_place(slot, edit)?;
        if changed && self.environment.policy.stamps_changes {
            self.stamp_change(&key, slot);
        }
        self.settle_edit(&key, changed);
        Some(edited)
    }
}
