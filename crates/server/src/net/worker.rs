//! One worker thread: its tick.
//!
//! ```text
//! poll ─▶ newcomers on listeners ─▶ turns of ready connections ─▶ mail ─▶ turns of addressed
//!   ▲                                                             connections ─▶ deadlines ─┐
//!   └──────────── background slice ◀── sweep of one tenth of all connections ◀──────────────┘
//! ```
//!
//! The service executes requests; the [`Neighbours`] are all else that a worker has.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;
use mio::{Events, Poll, Token};

use super::connection::Kit;
use super::listener::Listener;
use super::{Clients, Limits, Neighbours, PostOffice, Service, Traffic};

/// The poller's token of the mailbox's bell.
pub(super) const BELL: Token = Token(usize::MAX);
/// Events of one poll.
pub(super) const EVENTS_MAX: usize = 1024;

/// What all workers share.
#[derive(Debug)]
pub(super) struct Shared<L> {
    pub(super) post: PostOffice<L>,
    pub(super) clients: Arc<Clients>,
    pub(super) limits: Arc<ArcSwap<Limits>>,
    pub(super) traffic: Arc<[Traffic]>,
    /// Connections of each worker, those on their way included.
    pub(super) population: Box<[AtomicUsize]>,
}

pub(super) struct Worker<S: Service> {
    service: S,
    neighbours: Neighbours<S>,
}

impl<S: Service> Worker<S> {
    pub(super) fn new(
        index: usize,
        poll: Poll,
        service: S,
        shared: Arc<Shared<S::Letter>>,
        listeners: Vec<Listener>,
    ) -> io::Result<Self> {
        Ok(Self { service, neighbours: Neighbours::new(index, poll, shared, listeners)? })
    }

    /// Works until it is told to stop.
    pub(super) fn run(self) -> io::Result<()> {
        let Self { mut service, mut neighbours } = self;
        let mut kit = Kit::new(&mut service);
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut background_at = neighbours.now.instant;
        while !neighbours.is_done() {
            match neighbours.wait(&mut events, background_at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => events.clear(),
                other => other?,
            }
            neighbours.begin_tick();
            kit.service.tick(neighbours.now);
            neighbours.go_round(&mut kit, &events);
            neighbours.pass_deadlines(&mut kit);
            neighbours.depart();
            neighbours.sweep(&mut kit);
            kit.service.end_tick();
            neighbours.release(&mut kit);
            neighbours.depart();
            if neighbours.now.instant >= background_at {
                background_at = neighbours.now.instant + kit.service.background(neighbours.now);
            }
        }
        for slot in 0..neighbours.connections.len() {
            neighbours.close(&mut kit, slot as u32);
        }
        Ok(())
    }
}
