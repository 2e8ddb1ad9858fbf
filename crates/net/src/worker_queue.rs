//! Messages between workers, and from other threads to workers.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use std::time::Duration;

use arc_swap::ArcSwap;
use dunlin_mailbox::{Mailbox, PendingPushes, Posted, Wakeup};
use dunlin_resp::Protocol;
use socket2::{SockAddr, Socket};

use super::listener;
use super::pushes::FlushedPushes;
use super::withheld::Commitment;
use super::{Address, Client, Limits, Listener, Push, Pushed, To, Traffic, Transport};

/// A connection on its way from the listener to its worker.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) id: u64,
    pub(crate) socket: Socket,
    pub(crate) transport: Transport,
    pub(crate) is_tls: bool,
}

#[derive(Debug)]
pub(crate) enum Message<M> {
    Accepted(Accepted),
    Service(To, M),
    Kill(Address),
    /// A connection that another part of the process has made, to be admitted as one that was accepted.
    Handed(Socket, Transport),
    /// These have been accepted at listeners that are about to be closed; the last is whether that is one for TLS.
    Backlog(Vec<(Socket, SockAddr, bool)>),
    /// Listen for TCP with these from now on.
    Listeners(Vec<listener::Listener>),
    /// Answer what has been served, for at most this long, and end.
    Stop(Duration),
    /// A client's socket has not taken all pushes, or it has not taken any before: it is to have a turn.
    Full(Address),
    /// A client's next push waits for this: it is to have a turn then, or to be closed if that will never be met.
    Waiting(Address, Commitment),
}

/// Ends the wait of a worker's poller.
#[derive(Debug)]
pub(crate) struct PollerWakeup(pub(crate) mio::Waker);

impl Wakeup for PollerWakeup {
    fn wake(&self) {
        // Waking fails only when the poller is gone, and then no worker sleeps there.
        if let Err(error) = self.0.wake() {
            tracing::error!("cannot wake a worker: {error}");
        }
    }
}

/// The commitments of the service, for any thread.
pub trait Commitments: Send + Sync {
    /// How far replies and pushes of a level are released ([`Service::released`](super::Service::released)).
    fn released(&self, level: u8) -> u64;

    /// The commitment before which a push about what was changed last may not leave.
    fn of_push(&self) -> Commitment;

    /// Whether nothing that waits for a level now will ever be released.
    fn is_void(&self, level: u8) -> bool;
}

/// The commitments, once they are set.
#[derive(Default)]
struct SharedCommitments(OnceLock<Box<dyn Commitments>>);

impl std::fmt::Debug for SharedCommitments {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("SharedCommitments")
    }
}

pub(crate) type WorkerQueue<M> = Mailbox<Message<M>, PollerWakeup>;

/// Posts messages to any worker, from any thread. Cheap to clone. A message is received in the
/// receiving worker's next tick; messages from one thread to one worker arrive in order.
///
/// Pushes are not messages: a thread that queues one for a client need not leave it to the client's worker to
/// send it.
#[derive(Debug)]
pub struct WorkerQueues<M> {
    mailboxes: Arc<[WorkerQueue<M>]>,
    /// By worker: whether it is held up by one of its clients for the time being.
    held_up: Arc<[AtomicBool]>,
    /// Clients with pushes to be written, by worker.
    pending: Arc<PendingPushes<Arc<Client>, Commitment>>,
    commitments: Arc<SharedCommitments>,
    limits: Arc<ArcSwap<Limits>>,
}

impl<M> Clone for WorkerQueues<M> {
    fn clone(&self) -> Self {
        let (mailboxes, held_up) = (self.mailboxes.clone(), self.held_up.clone());
        let (pending, commitments) = (self.pending.clone(), self.commitments.clone());
        Self { mailboxes, held_up, pending, commitments, limits: self.limits.clone() }
    }
}

impl<M> WorkerQueues<M> {
    pub(crate) fn new(mailboxes: Vec<WorkerQueue<M>>, limits: Arc<ArcSwap<Limits>>) -> Self {
        let held_up = mailboxes.iter().map(|_| AtomicBool::new(false)).collect();
        let pending = Arc::new(PendingPushes::new(mailboxes.len()));
        Self { mailboxes: mailboxes.into(), held_up, pending, commitments: Arc::default(), limits }
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.mailboxes.len()
    }

    /// Says whether a worker is held up by one of its clients: it gets no new ones while others can take
    /// them.
    pub fn hold_up(&self, worker: usize, held_up: bool) {
        self.held_up[worker].store(held_up, Relaxed);
    }

    pub(crate) fn is_held_up(&self, worker: usize) -> bool {
        self.held_up[worker].load(Relaxed)
    }

    /// Sends a message to one client. Dropped when the client has gone.
    pub fn send(&self, client: Address, message: M) {
        self.post(client.worker as usize, Message::Service(To::Client(client), message));
    }

    /// Sends a message to the service of one worker. Dropped when there is no such worker.
    pub fn send_to_service(&self, worker: usize, message: M) {
        self.post(worker, Message::Service(To::Service, message));
    }

    /// Sends a message to the service of every worker.
    pub fn send_to_services(&self, message: M)
    where
        M: Clone,
    {
        for mailbox in &*self.mailboxes {
            mailbox.post(Message::Service(To::Service, message.clone()));
        }
    }

    /// Sends a message to every client of every worker.
    pub fn send_to_everyone(&self, message: M)
    where
        M: Clone,
    {
        for mailbox in &*self.mailboxes {
            mailbox.post(Message::Service(To::EveryClient, message.clone()));
        }
    }

    /// Serves a connection that no listener accepted: one end of a pair, non-blocking, whose client is where
    /// `transport` says. Refuses it if a connection from there would be refused. Any thread.
    pub fn hand_over(&self, socket: Socket, transport: Transport) {
        self.post(0, Message::Handed(socket, transport));
    }

    /// Closes a client, whatever waits to be sent to it.
    pub fn kill(&self, client: Address) {
        self.post(client.worker as usize, Message::Kill(client));
    }

    /// Sets the service's commitments, once, before any push waits for one.
    pub fn set_commitments(&self, commitments: impl Commitments + 'static) {
        self.commitments.0.get_or_init(|| Box::new(commitments));
    }

    /// The commitment before which a push about what was changed last may not leave.
    pub fn commitment_of_push(&self) -> Commitment {
        self.commitments.0.get().map_or_else(Commitment::default, |commitments| commitments.of_push())
    }

    /// Whether a commitment will never be met: what waits for it never leaves.
    pub fn is_void(&self, commitment: Commitment) -> bool {
        commitment.mark != 0 && self.commitments.0.get().is_some_and(|all| all.is_void(commitment.level))
    }

    /// Whether what waits for a commitment may leave.
    pub fn is_met(&self, Commitment { level, mark }: Commitment) -> bool {
        mark == 0 || self.commitments.0.get().is_some_and(|all| all.released(level) >= mark)
    }

    /// Queues what `make` makes for a client, to be written before any reply leaves that is written once a commitment is
    /// met: by any worker, unless the client has something else to be sent first. The caller holds the locks of what the
    /// push is about. Any thread.
    pub fn push(
        &self,
        client: &Arc<Client>,
        commitment: Commitment,
        make: impl FnOnce(&Listener) -> Option<Push>,
    ) -> Pushed {
        let Some(pushes) = client.pushes.get() else { return Pushed::Unable };
        let is_over_hard = |waiting: u64| {
            let limit = self.limits.load().output[client.output_class() as usize];
            limit.is_over_hard(waiting + client.output_bytes.get())
        };
        let (posted, must_close) = pushes.post(commitment, is_over_hard, make);
        match posted {
            Posted::Gone => return Pushed::Gone,
            Posted::Queued => {}
            Posted::Pending => self.note_pending(client),
        }
        if must_close {
            self.post(client.address.worker as usize, Message::Full(client.address));
        }
        Pushed::Queued
    }

    /// Makes it possible to send pushes to a client of whichever worker, in this protocol. Returns whether its worker
    /// is ready to.
    pub fn prepare_pushes(&self, client: &Client, protocol: Protocol) -> bool {
        let is_new = client.pushes.get().is_none();
        let pushes = client.take_pushes(protocol);
        if is_new {
            // That worker gives it a turn.
            self.post(client.address.worker as usize, Message::Full(client.address));
        }
        pushes.queue.has_writer()
    }

    pub(crate) fn note_pending(&self, client: &Arc<Client>) {
        self.pending.add(client.address.worker as usize, Arc::clone(client));
    }

    /// Whether pushes are to be written before replies leave.
    #[inline]
    pub(crate) fn has_pending_pushes(&self) -> bool {
        self.pending.any()
    }

    /// Writes all pushes that wait, those to a worker's own clients first.
    #[cold]
    pub(crate) fn flush_pushes(&self, worker: usize, traffic: &Traffic) {
        /// If at least this many clients of another worker wait, that worker is woken to write to them
        /// at the same time.
        const SHARED_CLIENTS_MIN: usize = 32;
        for other in (0..self.workers()).filter(|other| *other != worker) {
            if self.pending.len(other) >= SHARED_CLIENTS_MIN {
                self.mailboxes[other].wake();
            }
        }
        let is_met = |commitment| self.is_met(commitment);
        self.pending.flush(worker, is_met, |client| {
            let FlushedPushes { bytes, is_full, awaited } = client.pushes.get()?.flush(is_met);
            if bytes > 0 {
                traffic.output_bytes.add(bytes as u64);
                traffic.writes.add(1);
            }
            let owner = client.address.worker as usize;
            if is_full {
                self.post(owner, Message::Full(client.address));
            }
            if let Some(commitment) = awaited {
                self.post(owner, Message::Waiting(client.address, commitment));
            }
            awaited
        });
    }

    /// Forgets the pushes of a client that has gone.
    pub(crate) fn forget_pushes(&self, client: &Client) {
        self.pending.remove(client.address.worker as usize, |waiting| waiting.id() == client.id());
    }

    /// Ends all workers: nothing more is accepted or read, what has been served is answered for at
    /// most `grace`.
    pub fn stop(&self, grace: Duration) {
        for mailbox in &*self.mailboxes {
            mailbox.post(Message::Stop(grace));
        }
    }

    /// No worker has a connection that this process has made: messages to one are dropped.
    pub(crate) fn post(&self, worker: usize, messages: Message<M>) {
        if let Some(mailbox) = self.mailboxes.get(worker) {
            mailbox.post(messages);
        }
    }

    pub(crate) fn mailbox(&self, worker: usize) -> &WorkerQueue<M> {
        &self.mailboxes[worker]
    }
}

/// The messages of workers that do not run.
#[cfg(any(test, feature = "testing"))]
pub struct TestQueues<M> {
    queues: WorkerQueues<M>,
    _polls: Vec<mio::Poll>,
}

#[cfg(any(test, feature = "testing"))]
impl<M> TestQueues<M> {
    /// The queues, and the receiving end of them.
    ///
    /// # Panics
    /// When the system has no room for pollers.
    pub fn of_workers(workers: usize) -> (WorkerQueues<M>, Self) {
        let polls: Vec<_> = (0..workers).map(|_| mio::Poll::new().unwrap()).collect();
        let waker = |poll: &mio::Poll| mio::Waker::new(poll.registry(), super::worker::WAKEUP).unwrap();
        let mailboxes = polls.iter().map(|poll| WorkerQueue::new(PollerWakeup(waker(poll)))).collect();
        let queues = WorkerQueues::new(mailboxes, Arc::default());
        (queues.clone(), Self { queues, _polls: polls })
    }

    /// The messages that have come to a worker since this was last asked.
    pub(crate) fn messages(&self, worker: usize) -> Vec<Message<M>> {
        let mut messages = Vec::new();
        self.queues.mailbox(worker).collect(&mut messages);
        messages
    }

    /// Whom the messages are for that have come to a worker since this was last asked.
    ///
    /// # Panics
    /// When one is for the event loop itself.
    pub fn recipients(&self, worker: usize) -> Vec<To> {
        let recipient =
            |messages| if let Message::Service(to, _) = messages { to } else { panic!("no message") };
        self.messages(worker).into_iter().map(recipient).collect()
    }
}
