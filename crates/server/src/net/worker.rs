//! One worker thread: its tick.
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

use arc_swap::ArcSwap;
use mio::{Events, Poll, Token};

use super::connection::Kit;
use super::listener::Listener;
use super::{Clients, EventLoop, Limits, Service, Traffic, WorkerQueues};

/// The poller's token of the mailbox's waker.
pub(super) const WAKEUP: Token = Token(usize::MAX);
/// Events of one poll.
pub(super) const EVENTS_MAX: usize = 1024;

/// What all workers share.
#[derive(Debug)]
pub(super) struct Shared<M> {
    pub(super) queues: WorkerQueues<M>,
    pub(super) clients: Arc<Clients>,
    pub(super) limits: Arc<ArcSwap<Limits>>,
    pub(super) traffic: Arc<[Traffic]>,
    /// Connections of each worker, those on their way included.
    pub(super) population: Box<[AtomicUsize]>,
}

pub(super) struct Worker<S: Service> {
    service: S,
    event_loop: EventLoop<S>,
}

impl<S: Service> Worker<S> {
    pub(super) fn new(
        index: usize,
        poll: Poll,
        service: S,
        shared: Arc<Shared<S::Message>>,
        listeners: Vec<Listener>,
    ) -> io::Result<Self> {
        Ok(Self { service, event_loop: EventLoop::new(index, poll, shared, listeners)? })
    }

    /// Works until it is told to stop.
    pub(super) fn run(self) -> io::Result<()> {
        let Self { mut service, mut event_loop } = self;
        let mut kit = Kit::new(&mut service);
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut background_at = event_loop.now.instant;
        while !event_loop.is_done() {
            match event_loop.wait(&mut events, background_at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => events.clear(),
                other => other?,
            }
            event_loop.begin_tick();
            kit.service.tick(event_loop.now);
            event_loop.go_round(&mut kit, &events);
            event_loop.pass_deadlines(&mut kit);
            event_loop.depart();
            event_loop.sweep(&mut kit);
            kit.service.end_tick();
            event_loop.release(&mut kit);
            event_loop.depart();
            if event_loop.now.instant >= background_at {
                background_at = event_loop.now.instant + kit.service.background(event_loop.now);
            }
        }
        for slot in 0..event_loop.connections.len() {
            event_loop.close(&mut kit, slot as u32);
        }
        Ok(())
    }
}
