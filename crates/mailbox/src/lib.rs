//! A queue for each worker: any thread posts, the worker collects, and no thread rings a wakeup that is not needed.
//!
//! ```text
//!  poster                          worker
//!  ──────                          ──────
//!  lock                            lock
//!    queue the message                messages? ── yes ──▶ do not sleep
//!    take `asleep`                   asleep = true
//!  unlock                          unlock
//!  was asleep? ring the wakeup       sleep until the wakeup, a socket or a deadline
//!                                  lock; asleep = false; take the messages; unlock
//! ```
//!
//! No wake-up is lost: a message is queued either before the worker looks (then it does not sleep)
//! or after it has said that it sleeps (then the poster rings, and a wakeup rung before the sleep
//! begins still ends it). Only the first of many posters rings. The wakeup, which is a system call,
//! is rung outside of the lock.
//!
//! Beside it [`PushQueue`], for bytes that clients are sent without having asked: any thread queues it, any thread
//! writes it.
//!
//! A crate of its own, since loom is to try every interleaving: `--cfg loom` takes the sockets out of the libraries that
//! the server is built on.

mod push;

pub use push::{Around, Flushed, PendingPushes, Posted, PushQueue};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

/// Ends the sleep of a worker; a wakeup rung before the sleep begins must end it too.
pub trait Wakeup {
    /// Any thread, also while the worker is awake.
    fn wake(&self);
}

/// The queue of one worker. Any thread posts; the worker alone calls [`may_sleep`](Self::may_sleep) and
/// [`collect`](Self::collect).
#[derive(Debug)]
pub struct Mailbox<T, B> {
    desk: Mutex<Desk<T>>,
    wakeup: B,
}

#[derive(Debug)]
struct Desk<T> {
    messages: Vec<T>,
    asleep: bool,
}

impl<T, B: Wakeup> Mailbox<T, B> {
    /// An empty queue, whose worker is awake.
    pub fn new(wakeup: B) -> Self {
        Self { desk: Mutex::new(Desk { messages: Vec::new(), asleep: false }), wakeup }
    }

    /// Queues a message, and wakes the worker when it sleeps. Any thread.
    pub fn post(&self, message: T) {
        let asleep = {
            let mut desk = self.desk();
            desk.messages.push(message);
            std::mem::take(&mut desk.asleep)
        };
        if asleep {
            self.wakeup.wake();
        }
    }

    /// Wakes the worker when it sleeps, for an event that is no message. Any thread.
    pub fn wake(&self) {
        let asleep = std::mem::take(&mut self.desk().asleep);
        if asleep {
            self.wakeup.wake();
        }
    }

    /// Whether there are messages. Worker only.
    pub fn has_messages(&self) -> bool {
        !self.desk().messages.is_empty()
    }

    /// Announces that the worker is about to sleep. `false`: there are messages, it must not. Worker only.
    pub fn may_sleep(&self) -> bool {
        let mut desk = self.desk();
        desk.asleep = desk.messages.is_empty();
        desk.asleep
    }

    /// Moves all messages into the empty `messages`, oldest first; the caller is awake. Worker only.
    pub fn collect(&self, messages: &mut Vec<T>) {
        debug_assert!(messages.is_empty());
        let mut desk = self.desk();
        desk.asleep = false;
        std::mem::swap(&mut desk.messages, messages);
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

    impl Wakeup for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn mailbox_wakes_only_a_sleeping_worker_and_once() {
        let mailbox = Mailbox::new(Count::default());
        let rings = || mailbox.wakeup.0.load(Ordering::Relaxed);
        mailbox.post(1);
        assert_eq!(rings(), 0, "the worker is awake");
        assert!(mailbox.has_messages() && !mailbox.may_sleep());
        let mut messages = Vec::new();
        mailbox.collect(&mut messages);
        assert_eq!(messages, [1]);
        assert!(!mailbox.has_messages() && mailbox.may_sleep());
        mailbox.post(2);
        mailbox.post(3);
        assert_eq!(rings(), 1);
        messages.clear();
        mailbox.collect(&mut messages);
        assert_eq!(messages, [2, 3]);
        mailbox.post(4);
        assert_eq!(rings(), 1, "the worker is awake again");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::{Arc, Notify};

    impl Wakeup for Notify {
        fn wake(&self) {
            self.notify();
        }
    }

    /// Two posters against a worker that sleeps whenever it may: loom reports a deadlock in any
    /// interleaving in which a wake-up is lost.
    #[test]
    fn loom_no_wake_up_is_lost() {
        loom::model(|| {
            let mailbox = Arc::new(Mailbox::new(Notify::new()));
            for message in [1, 2] {
                let mailbox = mailbox.clone();
                loom::thread::spawn(move || mailbox.post(message));
            }
            let (mut received, mut messages) = (Vec::new(), Vec::new());
            while received.len() < 2 {
                if mailbox.may_sleep() {
                    mailbox.wakeup.wait();
                }
                mailbox.collect(&mut messages);
                received.append(&mut messages);
            }
            received.sort_unstable();
            assert_eq!(received, [1, 2]);
        });
    }
}
