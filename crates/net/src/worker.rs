//! A worker thread: its tick.
//!
//! ```text
//! poll ─▶ new connections on listeners ─▶ turns of ready connections ─▶ messages ─▶ turns of addressed
//!   ▲                                                             connections ─▶ deadlines ─┐
//!   └──────────── background slice ◀── sweep of one tenth of all connections ◀──────────────┘
//! ```
//!
//! The service executes requests; the [`EventLoop`] are all else that a worker has.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use arc_swap::ArcSwap;
use mio::{Events, Poll, Token};

use super::connection::Scratch;
use super::listener::Listener;
use super::tls::SharedTls;
use super::{Clients, EventLoop, Limits, Service, Traffic, WorkerQueues};

/// The poller's token of the mailbox's waker.
pub(crate) const WAKEUP: Token = Token(usize::MAX);
/// Events of one poll.
pub(crate) const EVENTS_MAX: usize = 1024;

/// The state that all workers share.
#[derive(Debug)]
pub(crate) struct Shared<M> {
    pub(crate) queues: WorkerQueues<M>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) limits: Arc<ArcSwap<Limits>>,
    pub(crate) tls: SharedTls,
    pub(crate) traffic: Arc<[Traffic]>,
    /// Connections of each worker, those on their way included.
    pub(crate) population: Box<[AtomicUsize]>,
}

pub(crate) struct Worker<S: Service> {
    service: S,
    event_loop: EventLoop<S>,
}

impl<S: Service> Worker<S> {
    pub(crate) fn new(
        index: usize,
        poll: Poll,
        service: S,
        shared: Arc<Shared<S::Message>>,
        listeners: Vec<Listener>,
    ) -> io::Result<Self> {
        Ok(Self { service, event_loop: EventLoop::new(index, poll, shared, listeners)? })
    }

    /// Works until it is told to stop.
    pub(crate) fn run(self) -> io::Result<()> {
        let Self { mut service, mut event_loop } = self;
        let mut scratch = Scratch::new(&mut service);
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut background_at = event_loop.now.instant;
        while !event_loop.is_done() {
            match event_loop.wait(&mut events, background_at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => events.clear(),
                other => other?,
            }
            background_at = event_loop.tick(&mut scratch, &events, background_at);
        }
        for slot in 0..event_loop.connections.len() {
            event_loop.close(&mut scratch, slot as u32);
        }
        Ok(())
    }
}

impl<S: Service> EventLoop<S> {
    /// Does one tick's work behind a poll. Returns when the next slice of background work is due.
    #[inline]
    pub(crate) fn tick(
        &mut self,
        scratch: &mut Scratch<'_, S>,
        events: &Events,
        background_at: Instant,
    ) -> Instant {
        self.begin_tick();
        scratch.service.tick(self.now);
        self.go_round(scratch, events);
        self.pass_deadlines(scratch);
        self.depart();
        self.sweep(scratch);
        scratch.service.end_tick();
        self.release(scratch);
        self.depart();
        if self.now.instant < background_at && !scratch.service.has_background() {
            return background_at;
        }
        self.now.instant + scratch.service.background(self.now)
    }
}
