//! Long words: lent to the engine while their commands run, and given up so that no client waits until they are freed.

use std::{mem, sync::Arc};

use dunlin_engine::{LONG_WORD_BYTES_MIN, LongWord, LongWords};
use dunlin_resp::{Limits, SharedSlice};

use super::{Executor, window::Window};
use crate::{session::Session, shared::Shared};

/// Freeing this many bytes takes some ten microseconds; a thread is not woken for less.
const FREED_APART_BYTES_MIN: usize = 1 << 20;

impl Executor {
    /// Lends the engine the long words of the command at hand, the only one of its window; the ones lent before, of a
    /// script that takes its time, come back to be put back ([`Self::end_loan`]).
    #[cold]
    pub(super) fn lend_long_words(
        &mut self,
        shared: &Shared,
        session: &Session,
        window: &mut Window<'_>,
    ) -> LongWords {
        let Some(arrivals) = &session.arrivals else { return LongWords::default() };
        let entry = window.commands.first().and_then(|command| command.entry);
        if entry.is_some_and(|entry| shared.commands.entries()[entry].stores_words()) {
            // Dividing takes up to a millisecond; nothing is locked here.
            arrivals.words.iter().for_each(|word| drop(word.rope_from(0)));
        }
        window.detached_bytes = arrivals.bytes();
        mem::replace(&mut self.worker.propagation.long_words, arrivals.words.iter().cloned().collect())
    }

    /// Takes lent words back after the command has run, or was put off.
    #[cold]
    pub(super) fn end_loan(&mut self, session: &mut Session, outer: LongWords, has_run: bool) {
        self.worker.propagation.long_words = outer;
        if has_run {
            session.decoder.forget_detached();
            if let Some(arrivals) = session.arrivals.take() {
                self.give_up_words(arrivals.words);
            }
        }
    }

    /// Drops words; elsewhere if that frees much.
    pub(crate) fn give_up_words(&mut self, words: impl IntoIterator<Item = Arc<LongWord>>) {
        for word in words {
            let is_last = Arc::strong_count(&word) == 1 && word.is_last();
            if is_last && word.len() >= FREED_APART_BYTES_MIN {
                self.worker.garbage.push_other(Box::new(word));
            }
        }
    }

    /// Moves a long argument into its own block while it is still being received. Returns how many bytes at the end of
    /// the input are there now.
    pub(super) fn detach_long_word(session: &mut Session, input: &[u8], limits: &Limits) -> usize {
        let Some(detached) = session.decoder.detach(input, limits, LONG_WORD_BYTES_MIN) else { return 0 };
        let beginning = &input[input.len() - detached.arrived..];
        session.arrivals.get_or_insert_default().begin(detached, beginning);
        detached.arrived
    }

    /// Bytes have been added to the block of a client's word: once that is full, decoding goes on.
    pub(super) fn complete_long_word(session: &mut Session) {
        if let Some(word) = session.arrivals.as_mut().and_then(|arrivals| arrivals.complete()) {
            session.decoder.attach(SharedSlice::new(word.clone(), 0..word.len()));
        }
    }

    /// Long words of a request that was still arriving when its connection ended.
    pub(super) fn give_up_arrivals(&mut self, session: &mut Session) {
        session.decoder.forget_detached();
        let Some(mut arrivals) = session.arrivals.take() else { return };
        self.give_up_words(mem::take(&mut arrivals.words));
        if arrivals.bytes() >= FREED_APART_BYTES_MIN {
            self.worker.garbage.push_other(arrivals);
        }
    }
}
