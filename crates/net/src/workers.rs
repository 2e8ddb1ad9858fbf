//! Starting and stopping the worker threads.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use mio::{Poll, Waker};

use super::listener::{self, ListenError, ListenOptions, Listener};
use super::listening::Listening;
use super::tls::SharedTls;
use super::worker::{Shared, WAKEUP, Worker};
use super::worker_queue::{PollerWakeup, WorkerQueue};
use super::{Clients, Limits, Service, Traffic, WorkerQueues};

/// The surroundings of a service: given to it when it is made, on its worker's thread.
#[derive(Debug)]
pub struct WorkerContext<M> {
    /// Which worker, from 0.
    pub worker: usize,
    /// Messages to all workers.
    pub queues: WorkerQueues<M>,
    /// All clients.
    pub clients: Arc<Clients>,
    /// The counts of each worker.
    pub traffic: Arc<[Traffic]>,
}

/// How to start.
#[derive(Debug)]
pub struct Workers {
    /// Number of threads, at least 1.
    pub threads: usize,
    /// The addresses to listen on.
    pub listen: ListenOptions,
    /// The limits, replaced whenever the configuration changes.
    pub limits: Arc<ArcSwap<Limits>>,
    /// The configuration of TLS that new connections begin with, replaced whenever it changes.
    pub tls: SharedTls,
}

/// Why the workers could not start.
#[derive(Debug)]
pub enum StartError {
    /// A listener.
    Listen(ListenError),
    /// A poller or a thread.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(error) => error.fmt(out),
            Self::System(error) => write!(out, "cannot start the worker threads: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<ListenError> for StartError {
    fn from(error: ListenError) -> Self {
        Self::Listen(error)
    }
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl Workers {
    /// Opens the listeners: from now on clients can connect, and wait.
    pub fn listen(self) -> Result<Listened, ListenError> {
        let Self { threads, listen, limits, tls } = self;
        Ok(Listened { threads, listeners: listener::listen(&listen)?, limits, tls })
    }

    /// Opens the listeners and starts the threads.
    ///
    /// # Panics
    /// When `threads` is 0.
    pub fn start<S: Service>(
        self,
        stack_bytes: usize,
        make: impl Fn(WorkerContext<S::Message>) -> S + Clone + Send + 'static,
    ) -> Result<Running<S::Message>, StartError> {
        Ok(self.listen()?.start(stack_bytes, |_| {}, make)?)
    }
}

/// Open listeners, for workers that are yet to start.
#[derive(Debug)]
pub struct Listened {
    threads: usize,
    listeners: Vec<Listener>,
    limits: Arc<ArcSwap<Limits>>,
    tls: SharedTls,
}

impl Listened {
    /// The TCP addresses that are bound.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(Listener::tcp_address).collect()
    }

    /// Starts the threads `worker-0`, `worker-1`, …; `make` builds each worker's service on its thread, whose
    /// stack has `stack_bytes`. `prepare` gets the addresses to be changed, before the first client is served. When this returns,
    /// clients are served.
    ///
    /// # Errors
    /// When the system has no room for a poller or a thread.
    ///
    /// # Panics
    /// When there is to be no thread.
    pub fn start<S: Service>(
        self,
        stack_bytes: usize,
        prepare: impl FnOnce(Arc<Listening<S::Message>>),
        make: impl Fn(WorkerContext<S::Message>) -> S + Clone + Send + 'static,
    ) -> io::Result<Running<S::Message>> {
        assert!(self.threads > 0, "a server has at least one worker");
        let addresses = self.addresses();
        let mut listeners = self.listeners;
        let mut polls = Vec::with_capacity(self.threads);
        let mut mailboxes = Vec::with_capacity(self.threads);
        for _ in 0..self.threads {
            let poll = Poll::new()?;
            mailboxes.push(WorkerQueue::new(PollerWakeup(Waker::new(poll.registry(), WAKEUP)?)));
            polls.push(poll);
        }
        let shared = Arc::new(Shared {
            queues: WorkerQueues::new(mailboxes, Arc::clone(&self.limits)),
            clients: Arc::new(Clients::default()),
            limits: self.limits,
            tls: self.tls,
            traffic: (0..self.threads).map(|_| Traffic::default()).collect(),
            population: (0..self.threads).map(|_| Default::default()).collect(),
        });
        let listening = Arc::new(Listening::new(shared.queues.clone(), &listeners)?);
        prepare(Arc::clone(&listening));
        let mut threads = Vec::with_capacity(self.threads);
        for (index, poll) in polls.into_iter().enumerate() {
            let context = WorkerContext {
                worker: index,
                queues: shared.queues.clone(),
                clients: shared.clients.clone(),
                traffic: shared.traffic.clone(),
            };
            // The first worker accepts; the others do while it is held up.
            let stand_ins = if index + 1 < self.threads {
                listeners.iter().map(Listener::stand_in).collect::<io::Result<_>>()?
            } else {
                Vec::new()
            };
            let listeners = std::mem::replace(&mut listeners, stand_ins);
            let (make, shared) = (make.clone(), shared.clone());
            let thread = std::thread::Builder::new().name(format!("worker-{index}"));
            let thread = thread
                .stack_size(stack_bytes)
                .spawn(move || Worker::new(index, poll, make(context), shared, listeners)?.run())?;
            threads.push(thread);
        }
        Ok(Running { shared, threads, addresses, listening })
    }
}

/// Workers at work.
#[derive(Debug)]
pub struct Running<M> {
    shared: Arc<Shared<M>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    addresses: Vec<SocketAddr>,
    listening: Arc<Listening<M>>,
}

impl<M> Running<M> {
    /// Messages to the workers; any thread may hold a clone.
    pub fn queues(&self) -> &WorkerQueues<M> {
        &self.shared.queues
    }

    /// All clients.
    pub fn clients(&self) -> &Arc<Clients> {
        &self.shared.clients
    }

    /// The counts of each worker.
    pub fn traffic(&self) -> &[Traffic] {
        &self.shared.traffic
    }

    /// The TCP addresses bound at the start.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Ends all workers: what has been served is answered for at most `grace`.
    pub fn shutdown(&self, grace: Duration) {
        self.listening.close();
        self.shared.queues.stop(grace);
    }

    /// Waits until all workers have ended.
    ///
    /// # Errors
    /// When a poller has failed.
    ///
    /// # Panics
    /// When a worker has panicked.
    pub fn join(self) -> io::Result<()> {
        for thread in self.threads {
            match thread.join() {
                Ok(ended) => ended?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    }
}
