//! Workers without threads, and peers without a second process: a test says in which order bytes arrive and workers tick.
//!
//! ```text
//! Peer ─ wire ─ deliver(n) ─▶ pair of sockets ─▶ SteppedWorkers: settle() ─▶ Echo
//! ```

mod echo;
mod peer;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};
use mio::{Events, Poll, Waker};
use socket2::Socket;

pub use self::echo::{Echo, EchoSession, LOGIN};
pub use self::peer::{Peer, client_config};
use super::connection::Scratch;
use super::tls::TlsServer;
use super::worker::{EVENTS_MAX, Shared, WAKEUP};
use super::worker_queue::{PollerWakeup, WorkerQueue};
use super::{Clients, EventLoop, Limits, Service, Traffic, Transport, WorkerQueues};

/// The event loops of workers, one for each service, driven by the caller.
pub struct SteppedWorkers<'s, S: Service> {
    workers: Vec<Stepped<'s, S>>,
}

struct Stepped<'s, S: Service> {
    scratch: Scratch<'s, S>,
    event_loop: EventLoop<S>,
    events: Events,
    background_at: Instant,
}

impl<S: Service> Stepped<'_, S> {
    /// Takes one tick, if there is anything to do. Returns whether there was.
    fn tick(&mut self) -> io::Result<bool> {
        let is_busy = self.event_loop.look(&mut self.events)?;
        if is_busy {
            self.background_at = self.event_loop.tick(&mut self.scratch, &self.events, self.background_at);
        }
        Ok(is_busy)
    }
}

impl<'s, S: Service> SteppedWorkers<'s, S> {
    /// Event loops around these services, whose connections inside TLS begin with `tls`.
    ///
    /// # Errors
    /// When the system has no room for a poller.
    pub fn new(services: &'s mut [S], tls: &TlsServer) -> io::Result<Self> {
        let polls = services.iter().map(|_| Poll::new()).collect::<io::Result<Vec<_>>>()?;
        let wakers = polls.iter().map(|poll| Waker::new(poll.registry(), WAKEUP));
        let mailboxes = wakers.map(|waker| Ok(WorkerQueue::new(PollerWakeup(waker?))));
        let mailboxes = mailboxes.collect::<io::Result<Vec<_>>>()?;
        let limits = Arc::new(ArcSwap::from_pointee(Limits::default()));
        let shared = Arc::new(Shared {
            queues: WorkerQueues::new(mailboxes, Arc::clone(&limits)),
            clients: Arc::new(Clients::default()),
            limits,
            tls: Arc::new(ArcSwapOption::from_pointee(tls.clone())),
            traffic: polls.iter().map(|_| Traffic::default()).collect(),
            population: polls.iter().map(|_| Default::default()).collect(),
        });
        let workers = services.iter_mut().zip(polls).enumerate().map(|(index, (service, poll))| {
            Ok(Stepped {
                scratch: Scratch::new(service),
                event_loop: EventLoop::new(index, poll, Arc::clone(&shared), Vec::new())?,
                events: Events::with_capacity(EVENTS_MAX),
                background_at: Instant::now(),
            })
        });
        Ok(Self { workers: workers.collect::<io::Result<_>>()? })
    }

    /// Admits a connection, as the first worker does for one that it has accepted.
    pub fn accept(&mut self, socket: Socket, is_tls: bool) {
        let transport = Transport::Unix(Path::new("/tmp/stepped").into());
        self.workers[0].event_loop.welcome(socket, transport, is_tls);
    }

    /// Lets each worker take one tick. Returns whether any had something to do.
    ///
    /// # Errors
    /// When a poller fails.
    pub fn tick(&mut self) -> io::Result<bool> {
        self.workers.iter_mut().try_fold(false, |is_busy, worker| Ok(worker.tick()? | is_busy))
    }

    /// Lets the workers tick until nothing is left to do.
    ///
    /// # Errors
    /// When a poller fails.
    pub fn settle(&mut self) -> io::Result<()> {
        while self.tick()? {}
        Ok(())
    }
}
