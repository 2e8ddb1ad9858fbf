//! Rest of an empty server: threads look at the clock seldom while there is no key and no client asks. The next request wakes them.
//!
//! A thread that begins to rest may miss a request of that very moment. So each rests for a bounded time (decision 0090).

use std::{
    sync::atomic::{
        AtomicBool,
        Ordering::{Relaxed, SeqCst},
    },
    time::Duration,
};

/// The longest that a worker rests.
pub(crate) const REST: Duration = Duration::from_secs(2);

/// Whether threads rest.
#[derive(Debug, Default)]
pub(crate) struct Rest(AtomicBool);

impl Rest {
    /// A thread rests from now on.
    pub(crate) fn begin(&self) {
        self.0.store(true, SeqCst);
    }

    /// Whether a thread rests.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Ends the rest; whether the caller is to wake the threads.
    pub(crate) fn end(&self) -> bool {
        self.0.swap(false, SeqCst)
    }
}
