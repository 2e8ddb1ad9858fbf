//! The lock of a stripe: one word, a short spin, then the kernel's queue.
//!
//! ```text
//! FREE ──lock──▶ HELD ──another waits──▶ CONTENDED
//!   ▲──unlock─────┘  ▲────────unlock (wake one)─┘
//!   ▲──unlock (wake all)── LONG ◀── the holder says that it will take long (wake all)
//! ```
//!
//! The three-state mutex of Drepper, "Futexes Are Tricky" (2011), §6: an unlock makes a system call only
//! if a thread sleeps. This is not std's mutex, because the word stands in the stripe's own cache line
//! and because sets of locks are released without guards. The fourth state is for scripts that run for
//! seconds: threads that can do something else meanwhile do not wait for them.

#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
#[cfg(not(loom))]
use std::time::Instant;

#[cfg(not(loom))]
use dunlin_structures::{Log2Counts, Log2Histogram};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
const LONG: u32 = 3;

/// Tries before sleeping. Critical sections take well under a microsecond; a preempted holder is
/// not worth more than that of spinning.
const SPINS_MAX: u32 = if cfg!(loom) { 1 } else { 100 };

/// A lock without data of its own.
#[derive(Debug)]
pub(super) struct StripeLock(AtomicU32);

impl StripeLock {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    #[inline]
    pub(super) fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended(false);
        }
    }

    /// Takes the lock, unless its holder has said that it will take long. Returns whether it is taken.
    #[inline]
    pub(super) fn lock_unless_long(&self) -> bool {
        self.try_lock() || self.lock_contended(true)
    }

    #[cold]
    fn lock_contended(&self, may_give_up: bool) -> bool {
        for _ in 0..SPINS_MAX {
            std::hint::spin_loop();
            if self.0.load(Relaxed) == FREE && self.try_lock() {
                return true;
            }
        }
        loop {
            match self.0.load(Relaxed) {
                // A thread that has slept cannot know whether others still do.
                FREE => {
                    if self.0.compare_exchange(FREE, CONTENDED, Acquire, Relaxed).is_ok() {
                        return true;
                    }
                }
                HELD => _ = self.0.compare_exchange(HELD, CONTENDED, Relaxed, Relaxed),
                LONG if may_give_up => return false,
                state => wait(&self.0, state),
            }
        }
    }

    /// Says that the lock will be held for long; the caller must hold it.
    pub(super) fn mark_long(&self) {
        // Not a store: loom lets an exchange that follows one read the value before.
        self.0.swap(LONG, Release);
        wake_all(&self.0);
    }

    /// Releases the lock; the caller must hold it.
    #[inline]
    pub(super) fn unlock(&self) {
        match self.0.swap(FREE, Release) {
            CONTENDED => wake_one(&self.0),
            LONG => wake_all(&self.0),
            _ => {}
        }
    }
}

/// How long threads slept for locks and for the gate, in nanoseconds. A single one for the process: a lock has no
/// room for a pointer to it. Threads that get a lock while they spin are not in it.
#[cfg(not(loom))]
static SLEEPS: Log2Histogram = Log2Histogram::new();

/// How long threads slept for locks of stripes and for the gate since the process started, in nanoseconds.
#[cfg(not(loom))]
pub fn lock_sleeps() -> Log2Counts {
    SLEEPS.counts()
}

/// Sleeps until woken, if the word still is `expected`; may return early.
#[cfg(not(loom))]
pub(super) fn wait(word: &AtomicU32, expected: u32) {
    let begun = Instant::now();
    atomic_wait::wait(word, expected);
    SLEEPS.record(begun.elapsed().as_nanos() as u64);
}

#[cfg(not(loom))]
pub(super) fn wake_one(word: &AtomicU32) {
    atomic_wait::wake_one(word);
}

#[cfg(not(loom))]
pub(super) fn wake_all(word: &AtomicU32) {
    atomic_wait::wake_all(word);
}

/// Loom has no futex: a waiting thread looks again whenever another has taken a step.
#[cfg(loom)]
pub(super) fn wait(word: &AtomicU32, expected: u32) {
    while word.load(Relaxed) == expected {
        loom::thread::yield_now();
    }
}

#[cfg(loom)]
pub(super) fn wake_one(_: &AtomicU32) {}

#[cfg(loom)]
pub(super) fn wake_all(_: &AtomicU32) {}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{cell::UnsafeCell, sync::Arc, thread};

    #[test]
    fn holders_exclude_each_other() {
        loom::model(|| {
            let shared = Arc::new((StripeLock::new(), UnsafeCell::new(0)));
            let increment = |shared: Arc<(StripeLock, UnsafeCell<i32>)>| {
                shared.0.lock();
                // SAFETY: the lock is held.
                shared.1.with_mut(|value| unsafe { *value += 1 });
                shared.0.unlock();
            };
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || increment(shared))
            };
            increment(Arc::clone(&shared));
            other.join().unwrap();
            shared.0.lock();
            // SAFETY: the lock is held.
            shared.1.with(|value| unsafe { assert_eq!(*value, 2) });
        });
    }

    #[test]
    fn lock_unless_long_does_not_wait_for_a_long_holder() {
        loom::model(|| {
            let lock = Arc::new(StripeLock::new());
            lock.lock();
            let other = {
                let lock = Arc::clone(&lock);
                thread::spawn(move || {
                    // The thread never gets the lock: that is not given back before it ends.
                    assert!(!lock.lock_unless_long());
                })
            };
            lock.mark_long();
            other.join().unwrap();
            lock.unlock();
            assert!(lock.lock_unless_long());
        });
    }
}
