//! The wakeup of the log's thread: rung after every tick that has recorded something, so it must cost
//! nothing while the thread is awake or pauses on purpose.
//!
//! ```text
//! state  AWAKE ─ rest ─▶ RESTING   any ring wakes it
//!              ─ nap ──▶ NAPPING   only an urgent one does
//!              ─ sleep ▶ ASLEEP    none does, there is no log: an order does (`wake`)
//! ```
//!
//! No ring is lost: the worker appends before it looks at the state, the thread sets the state before it
//! looks whether there is something to do. With a fence between the two on both sides, one of them sees
//! the other. A wake-up before the sleep begins ends it too.

use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicU8,
    Ordering::{Relaxed, SeqCst},
    fence,
};
use std::thread::{self, Thread};
use std::time::Duration;

const AWAKE: u8 = 0;
const RESTING: u8 = 1;
const NAPPING: u8 = 2;
const ASLEEP: u8 = 3;

#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    state: AtomicU8,
    thread: OnceLock<Thread>,
}

impl Wakeup {
    /// The calling thread is the one to be woken.
    pub(crate) fn attach(&self) {
        self.thread.get_or_init(thread::current);
    }

    /// There is something to do; `urgent` if it cannot wait for the end of a nap.
    #[inline]
    pub(crate) fn notify(&self, urgent: bool) {
        fence(SeqCst);
        match self.state.load(Relaxed) {
            RESTING => self.wake(),
            NAPPING if urgent => self.wake(),
            _ => {}
        }
    }

    /// Wakes the thread in any state.
    #[cold]
    pub(crate) fn wake(&self) {
        self.state.store(AWAKE, SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Sleeps until a ring or the end of `time_max`, unless `has_work` says that there is something to do.
    pub(crate) fn rest(&self, time_max: Option<Duration>, has_work: impl FnOnce() -> bool) {
        self.state.store(RESTING, SeqCst);
        fence(SeqCst);
        if !has_work() {
            match time_max {
                Some(time) => thread::park_timeout(time),
                None => thread::park(),
            }
        }
        self.state.store(AWAKE, SeqCst);
    }

    /// Sleeps until it is woken in any state.
    pub(crate) fn sleep(&self) {
        self.state.store(ASLEEP, SeqCst);
        thread::park();
        self.state.store(AWAKE, SeqCst);
    }

    /// Sleeps for `time`, or until an urgent ring.
    pub(crate) fn nap(&self, time: Duration) {
        self.state.store(NAPPING, SeqCst);
        thread::park_timeout(time);
        self.state.store(AWAKE, SeqCst);
    }
}
