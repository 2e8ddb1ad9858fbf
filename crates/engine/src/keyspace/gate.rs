//! The gate: every batch of commands passes it shared, global work closes it.
//!
//! A big-reader lock. Each worker has a word of its own, so passing costs no shared cache line; the thread that closes
//! the gate waits until all words are clear. Closing is rare (FLUSHALL, SWAPDB, the snapshot cut), and the wait is
//! bounded by the longest batch.
//!
//! ```text
//! enter: inside[w] = 1; closed? then inside[w] = 0, sleep, again
//! close: closed = 1; wait until all inside[] = 0        (sequentially consistent: one of the two sees the other)
//! ```
//!
//! A thread that will stay for long, inside or behind the closed gate, says so (`LONG`). Then threads that can do
//! something else do not wait for it, and a thread that still wants to close the gate waits with the gate open. So no
//! waiting thread keeps another out.

#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use super::lock::{StripeLock, wait, wake_all};

/// No thread: inside, or behind the gate.
const NO: u32 = 0;
const YES: u32 = 1;
/// Yes, and for long.
const LONG: u32 = 2;

/// A word with a cache line to itself (two, since some processors fetch lines in pairs).
#[derive(Debug)]
#[repr(align(128))]
struct Padded(AtomicU32);

/// The gate.
#[derive(Debug)]
pub struct Gate {
    closed: AtomicU32,
    inside: Box<[Padded]>,
    closer: StripeLock,
}

impl Gate {
    /// A gate for this many participants.
    pub fn new(participants: usize) -> Self {
        Self {
            closed: AtomicU32::new(0),
            inside: (0..participants).map(|_| Padded(AtomicU32::new(0))).collect(),
            closer: StripeLock::new(),
        }
    }

    /// Passes the gate; waits while it is closed. A participant is inside once at a time.
    #[inline]
    pub fn enter(&self, participant: usize) -> Inside<'_> {
        loop {
            match self.enter_unless_long(participant) {
                Some(inside) => return inside,
                None => wait(&self.closed, LONG),
            }
        }
    }

    /// Passes the gate; `None` if it stays closed for long.
    #[inline]
    pub fn enter_unless_long(&self, participant: usize) -> Option<Inside<'_>> {
        let word = &self.inside[participant].0;
        debug_assert_eq!(word.load(Relaxed), NO, "a participant entered the gate twice");
        loop {
            word.store(YES, SeqCst);
            loom_fence();
            if self.closed.load(SeqCst) == NO {
                return Some(Inside { gate: self, participant });
            }
            word.store(NO, Release);
            if self.closed.load(Relaxed) == LONG {
                return None;
            }
            wait(&self.closed, YES);
        }
    }

    /// Closes the gate and waits until no thread is inside. The caller must not be inside itself. While a thread stays
    /// inside for long, the gate is open, and others may close it.
    pub fn close(&self) -> Closed<'_> {
        loop {
            self.closer.lock();
            match self.shut() {
                Ok(closed) => return closed,
                Err(participant) => wait(&self.inside[participant].0, LONG),
            }
        }
    }

    /// Closes the gate; `None`, with the gate open again, if another thread has closed it for long, or stays inside
    /// for long.
    pub fn close_unless_long(&self) -> Option<Closed<'_>> {
        if !self.closer.lock_unless_long() {
            return None;
        }
        self.shut().ok()
    }

    /// Keeps the gate from being closed, for a thread that looks at stripes from outside of it; `None` if it stays
    /// closed for long. Threads inside work on.
    pub fn keep_open(&self) -> Option<KeptOpen<'_>> {
        self.closer.lock_unless_long().then(|| KeptOpen { gate: self })
    }

    /// Waits until no thread is inside; the caller is the closer. The error, with the gate open again, is the
    /// participant that stays for long.
    fn shut(&self) -> Result<Closed<'_>, usize> {
        self.closed.store(YES, SeqCst);
        loom_fence();
        let closed = Closed { gate: self };
        for (participant, word) in self.inside.iter().enumerate() {
            loop {
                match word.0.load(SeqCst) {
                    NO => break,
                    LONG => return Err(participant),
                    _ => {}
                }
                #[cfg(loom)]
                loom::thread::yield_now();
                #[cfg(not(loom))]
                std::thread::yield_now();
            }
        }
        Ok(closed)
    }

    /// Marks a participant inside as staying for long; or ends that.
    pub fn mark_inside(&self, participant: usize, long: bool) {
        let word = &self.inside[participant].0;
        word.store(if long { LONG } else { YES }, SeqCst);
        if !long {
            wake_all(word);
        }
    }

    /// Whether a participant inside stays for long.
    pub fn is_long_inside(&self) -> bool {
        self.inside.iter().any(|word| word.0.load(Relaxed) == LONG)
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

impl Inside<'_> {
    /// Notes that the participant will now not stay for long.
    pub fn stay_shortly(&self) {
        self.gate.mark_inside(self.participant, false);
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.inside[self.participant].0.store(NO, Release);
    }
}

/// Proof that no thread closes the gate.
#[derive(Debug)]
pub struct KeptOpen<'a> {
    gate: &'a Gate,
}

impl Drop for KeptOpen<'_> {
    fn drop(&mut self) {
        self.gate.closer.unlock();
    }
}

/// Proof that no thread is inside; the gate opens when it is dropped.
#[derive(Debug)]
pub struct Closed<'a> {
    gate: &'a Gate,
}

impl Closed<'_> {
    /// Says that the gate will stay closed for long.
    pub fn mark_long(&self) {
        self.gate.closer.mark_long();
        self.gate.closed.store(LONG, SeqCst);
        wake_all(&self.gate.closed);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        // Pairs with the load in `enter`: threads inside see everything that was done behind the closed gate.
        self.gate.closed.store(NO, Release);
        wake_all(&self.gate.closed);
        self.gate.closer.unlock();
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
                // SAFETY: no thread is inside.
                shared.1.with_mut(|value| unsafe { *value += 1 });
            }
            other.join().unwrap();
        });
    }

    #[test]
    fn gate_waiting_to_close_keeps_no_thread_out_during_a_long_stay() {
        loom::model(|| {
            let gate = Arc::new(Gate::new(2));
            let long = gate.enter(0);
            gate.mark_inside(0, true);
            let closer = {
                let gate = Arc::clone(&gate);
                thread::spawn(move || drop(gate.close()))
            };
            // If the gate stayed closed, this would wait for ever.
            drop(gate.enter(1));
            long.stay_shortly();
            drop(long);
            closer.join().unwrap();
        });
    }
}
