//! The gate: every batch of commands passes it shared, global work closes it.
//!
//! A big-reader lock. Each worker has a word of its own, so passing costs no shared cache line; the
//! one that closes the gate waits until all words are clear. Closing is rare (FLUSHALL, SWAPDB, the
//! snapshot cut), and the wait is bounded by the longest batch.
//!
//! ```text
//! enter: inside[w] = 1; closed? then inside[w] = 0, sleep, again
//! close: closed = 1; wait until all inside[] = 0        (sequentially consistent: one of the two sees the other)
//! ```

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard, atomic::AtomicU32};
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard, atomic::AtomicU32};

use super::lock::{wait, wake_all};

/// A word with a cache line to itself (two, where lines are fetched in pairs).
#[derive(Debug)]
#[repr(align(128))]
struct Padded(AtomicU32);

/// The gate.
#[derive(Debug)]
pub struct Gate {
    closed: AtomicU32,
    inside: Box<[Padded]>,
    closer: Mutex<()>,
}

impl Gate {
    /// A gate for this many participants.
    pub fn new(participants: usize) -> Self {
        Self {
            closed: AtomicU32::new(0),
            inside: (0..participants).map(|_| Padded(AtomicU32::new(0))).collect(),
            closer: Mutex::new(()),
        }
    }

    /// Passes the gate; waits while it is closed. A participant is inside once at a time.
    #[inline]
    pub fn enter(&self, participant: usize) -> Inside<'_> {
        let word = &self.inside[participant].0;
        debug_assert_eq!(word.load(Relaxed), 0, "a participant entered the gate twice");
        loop {
            word.store(1, SeqCst);
            loom_fence();
            if self.closed.load(SeqCst) == 0 {
                return Inside { gate: self, participant };
            }
            word.store(0, Release);
            wait(&self.closed, 1);
        }
    }

    /// Closes the gate and waits until nobody is inside. The caller must not be inside itself.
    pub fn close(&self) -> Closed<'_> {
        let closer = self.closer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.closed.store(1, SeqCst);
        loom_fence();
        for word in &self.inside {
            while word.0.load(SeqCst) != 0 {
                #[cfg(loom)]
                loom::thread::yield_now();
                #[cfg(not(loom))]
                std::thread::yield_now();
            }
        }
        Closed { gate: self, _closer: closer }
    }
}

/// Loom takes sequentially consistent loads and stores for acquire and release, which lets each side
/// miss the other's store; it does model fences. The processor needs none here.
#[inline(always)]
fn loom_fence() {
    #[cfg(loom)]
    loom::sync::atomic::fence(SeqCst);
}

/// Proof of being inside; leaving is dropping it.
#[derive(Debug)]
pub struct Inside<'a> {
    gate: &'a Gate,
    participant: usize,
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.inside[self.participant].0.store(0, Release);
    }
}

/// Proof that nobody is inside; the gate opens when it is dropped.
#[derive(Debug)]
pub struct Closed<'a> {
    gate: &'a Gate,
    _closer: MutexGuard<'a, ()>,
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        // Pairs with the load in `enter`: what was done behind the closed gate is seen inside.
        self.gate.closed.store(0, Release);
        wake_all(&self.gate.closed);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{cell::UnsafeCell, sync::Arc, thread};

    #[test]
    fn closing_excludes_everyone_inside() {
        loom::model(|| {
            let shared = Arc::new((Gate::new(1), UnsafeCell::new(0)));
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let _inside = shared.0.enter(0);
                    // SAFETY: the gate is not closed while we are inside.
                    shared.1.with(|value| unsafe { *value });
                })
            };
            {
                let _closed = shared.0.close();
                // SAFETY: nobody is inside.
                shared.1.with_mut(|value| unsafe { *value += 1 });
            }
            other.join().unwrap();
        });
    }
}
