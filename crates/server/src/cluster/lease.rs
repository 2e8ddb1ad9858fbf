//! The lease of a shard's primary, as workers see it.
//!
//! ```text
//! admission   serving?  no: the command is parked
//! execution
//! reply       the term that the command was admitted in, and its lease: one clock read     no: the reply is withheld
//! ```
//!
//! A *term* is one time of this process as a primary; its number never comes again. A reply may leave if the lease of its term was valid
//! at some moment behind its execution. Other replies wait for that, and are lost with the term.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, SeqCst},
};

use crate::system::host::lease_ms;

/// How long a primary may be without its lease before clients are told: longer than a takeover takes.
const ABSENCE_MS_MAX: u64 = 10_000;

/// The lease.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// The number of the term; 0: the node is not a primary.
    term: AtomicU64,
    /// Its beginning and its end, in milliseconds of [`lease_ms`].
    begun_ms: AtomicU64,
    until_ms: AtomicU64,
    /// Whether commands are let in: the term's slots are known, and no handover holds them back.
    is_serving: AtomicBool,
    /// Terms so far.
    terms: AtomicU64,
    /// A reply waits for the lease.
    is_awaited: AtomicBool,
}

impl Lease {
    /// A term begins. Nothing is served in it yet.
    pub(crate) fn begin(&self) -> u64 {
        let term = self.terms.fetch_add(1, SeqCst) + 1;
        self.until_ms.store(0, SeqCst);
        self.begun_ms.store(lease_ms(), SeqCst);
        self.term.store(term, SeqCst);
        term
    }

    /// The term is over.
    pub(crate) fn end(&self) {
        self.is_serving.store(false, SeqCst);
        self.until_ms.store(0, SeqCst);
        self.term.store(0, SeqCst);
    }

    /// Stops letting commands in.
    pub(crate) fn hold(&self) {
        self.is_serving.store(false, SeqCst);
    }

    /// Whether the primary has been without its lease for long: what waits for it is refused. Reads the clock.
    pub(crate) fn is_long_gone(&self) -> bool {
        let last_ms = self.until_ms.load(SeqCst).max(self.begun_ms.load(SeqCst));
        self.term() != 0 && lease_ms().saturating_sub(last_ms) > ABSENCE_MS_MAX
    }

    /// Registers the workers to be woken when the lease is valid again, or the term over. The caller looks once more
    /// afterwards.
    pub(crate) fn wait(&self) {
        self.is_awaited.store(true, SeqCst);
    }

    /// Whether the workers are to be woken now.
    pub(crate) fn take_awaited(&self) -> bool {
        self.valid_term() != 0 && self.is_awaited.swap(false, SeqCst)
    }

    /// Extends the term until then. Returns whether `is_serving` has changed: whether commands are let in or held back.
    pub(crate) fn extend(&self, until_ms: u64, is_serving: bool) -> bool {
        self.until_ms.store(until_ms, SeqCst);
        self.is_serving.swap(is_serving, SeqCst) != is_serving
    }

    /// The term, while commands are let in; 0 otherwise.
    #[inline]
    pub(crate) fn serving_term(&self) -> u64 {
        if self.is_serving.load(Acquire) { self.term.load(Acquire) } else { 0 }
    }

    /// The term; 0 if the node is not a primary.
    pub(crate) fn term(&self) -> u64 {
        self.term.load(SeqCst)
    }

    /// The number of the last term, which may be over; 0 if there was none.
    pub(crate) fn last_term(&self) -> u64 {
        self.terms.load(SeqCst)
    }

    /// The term, if its lease is valid now; 0 otherwise.
    pub(crate) fn valid_term(&self) -> u64 {
        let term = self.term();
        if term != 0 && self.is_valid(term) { term } else { 0 }
    }

    /// Whether the lease of a term is valid now. Reads the clock.
    #[inline]
    pub(crate) fn is_valid(&self, term: u64) -> bool {
        // The end first: the end of a later term is stored behind its number.
        let until_ms = self.until_ms.load(SeqCst);
        lease_ms() < until_ms && self.term.load(SeqCst) == term
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_of_an_earlier_term_is_never_valid() {
        let lease = Lease::default();
        assert!(!lease.is_valid(0));
        let first = lease.begin();
        assert!(!lease.is_valid(first) && lease.serving_term() == 0);
        assert!(lease.extend(u64::MAX, true) && !lease.extend(u64::MAX, true));
        assert!(lease.is_valid(first) && lease.serving_term() == first);
        assert!(lease.extend(lease_ms(), false));
        assert!(!lease.is_long_gone(), "it has just run out");
        assert!(!lease.is_valid(first), "it has run out");
        lease.end();
        let second = lease.begin();
        lease.extend(u64::MAX, true);
        assert!(!lease.is_valid(first) && lease.is_valid(second));
    }
}
