//! One queue per worker: any thread posts, the worker collects, and nobody rings a bell that is
//! not needed.
//!
//! ```text
//!  poster                          worker
//!  ──────                          ──────
//!  lock                            lock
//!    queue the letter                letters? ── yes ──▶ do not sleep
//!    take `asleep`                   asleep = true
//!  unlock                          unlock
//!  was asleep? ring the bell       sleep until the bell, a socket or a deadline
//!                                  lock; asleep = false; take the letters; unlock
//! ```
//!
//! No wake-up is lost: a letter is queued either before the worker looks (then it does not sleep)
//! or after it has said that it sleeps (then the poster rings, and a bell rung before the sleep
//! begins still ends it). Only the first of many posters rings. The bell, which is a system call,
//! is rung outside of the lock.
//!
//! Beside it [`PushQueue`], for what clients are sent without having asked: any thread queues it, any thread writes it.
//!
//! A crate of its own, since loom is to try every interleaving: `--cfg loom` takes the sockets out of the libraries that
//! the server is built on.

mod push;

pub use push::{Around, PendingPushes, Posted, PushQueue};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

/// Ends the sleep of a worker; a bell rung before the sleep begins must end it too.
pub trait Bell {
    /// Any thread, also while nobody sleeps.
    fn ring(&self);
}

/// The queue of one worker. Any thread posts; the worker alone calls [`may_sleep`](Self::may_sleep) and
/// [`collect`](Self::collect).
#[derive(Debug)]
pub struct Mailbox<T, B> {
    desk: Mutex<Desk<T>>,
    bell: B,
}

#[derive(Debug)]
struct Desk<T> {
    letters: Vec<T>,
    asleep: bool,
}

impl<T, B: Bell> Mailbox<T, B> {
    /// An empty queue, whose worker is awake.
    pub fn new(bell: B) -> Self {
        Self { desk: Mutex::new(Desk { letters: Vec::new(), asleep: false }), bell }
    }

    /// Queues a letter, and wakes the worker when it sleeps. Any thread.
    pub fn post(&self, letter: T) {
        let asleep = {
            let mut desk = self.desk();
            desk.letters.push(letter);
            std::mem::take(&mut desk.asleep)
        };
        if asleep {
            self.bell.ring();
        }
    }

    /// Wakes the worker when it sleeps, for what is no letter. Any thread.
    pub fn wake(&self) {
        let asleep = std::mem::take(&mut self.desk().asleep);
        if asleep {
            self.bell.ring();
        }
    }

    /// Whether there is mail. Worker only.
    pub fn has_mail(&self) -> bool {
        !self.desk().letters.is_empty()
    }

    /// Announces that the worker is about to sleep. `false`: there is mail, it must not. Worker only.
    pub fn may_sleep(&self) -> bool {
        let mut desk = self.desk();
        desk.asleep = desk.letters.is_empty();
        desk.asleep
    }

    /// Moves all letters into the empty `letters`, oldest first; whoever calls this is awake. Worker only.
    pub fn collect(&self, letters: &mut Vec<T>) {
        debug_assert!(letters.is_empty());
        let mut desk = self.desk();
        desk.asleep = false;
        std::mem::swap(&mut desk.letters, letters);
    }

    fn desk(&self) -> MutexGuard<'_, Desk<T>> {
        // The critical sections cannot panic half-way; a poisoned queue is still a queue.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Bell for Count {
        fn ring(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_a_sleeping_worker_is_woken_and_only_once() {
        let mailbox = Mailbox::new(Count::default());
        let rings = || mailbox.bell.0.load(Ordering::Relaxed);
        mailbox.post(1);
        assert_eq!(rings(), 0, "the worker is awake");
        assert!(mailbox.has_mail() && !mailbox.may_sleep());
        let mut letters = Vec::new();
        mailbox.collect(&mut letters);
        assert_eq!(letters, [1]);
        assert!(!mailbox.has_mail() && mailbox.may_sleep());
        mailbox.post(2);
        mailbox.post(3);
        assert_eq!(rings(), 1);
        letters.clear();
        mailbox.collect(&mut letters);
        assert_eq!(letters, [2, 3]);
        mailbox.post(4);
        assert_eq!(rings(), 1, "the worker is awake again");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::{Arc, Notify};

    impl Bell for Notify {
        fn ring(&self) {
            self.notify();
        }
    }

    /// Two posters against a worker that sleeps whenever it may: loom reports a deadlock in any
    /// interleaving in which a wake-up is lost.
    #[test]
    fn loom_no_wake_up_is_lost() {
        loom::model(|| {
            let mailbox = Arc::new(Mailbox::new(Notify::new()));
            for letter in [1, 2] {
                let mailbox = mailbox.clone();
                loom::thread::spawn(move || mailbox.post(letter));
            }
            let (mut received, mut letters) = (Vec::new(), Vec::new());
            while received.len() < 2 {
                if mailbox.may_sleep() {
                    mailbox.bell.wait();
                }
                mailbox.collect(&mut letters);
                received.append(&mut letters);
            }
            received.sort_unstable();
            assert_eq!(received, [1, 2]);
        });
    }
}
