//! Mail between workers, and from other threads to workers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use std::time::Duration;

use arc_swap::ArcSwap;
use dunlin_mailbox::{Bell, Mailbox, PendingPushes, Posted};
use dunlin_resp::Protocol;
use socket2::{SockAddr, Socket};

use super::listener;
use super::{Address, Client, Limits, Listener, Push, Pushed, To, Traffic, Transport};

/// A connection on its way from the listener to its worker.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) id: u64,
    pub(super) socket: Socket,
    pub(super) transport: Transport,
}

#[derive(Debug)]
pub(super) enum Mail<L> {
    Newcomer(Newcomer),
    Letter(To, L),
    Kill(Address),
    /// These have been accepted at doors that are about to be closed.
    Callers(Vec<(Socket, SockAddr)>),
    /// Listen for TCP with these from now on.
    Doors(Vec<listener::Listener>),
    /// Answer what has been served, for at most this long, and end.
    Stop(Duration),
    /// A client's socket has not taken all pushes, or it has not taken any before: it is to have a turn.
    Full(Address),
}

/// Ends the wait of a worker's poller.
#[derive(Debug)]
pub(super) struct PollerBell(pub(super) mio::Waker);

impl Bell for PollerBell {
    fn ring(&self) {
        // It fails only when the poller is gone, and then nobody sleeps there.
        if let Err(error) = self.0.wake() {
            tracing::error!("cannot wake a worker: {error}");
        }
    }
}

pub(super) type WorkerMailbox<L> = Mailbox<Mail<L>, PollerBell>;

/// Posts mail to any worker, from any thread. Cheap to clone. A letter is received in the
/// receiving worker's next tick; letters from one thread to one worker arrive in order.
///
/// Pushes are not mail: whoever queues one for a client need not leave it to the client's worker to send it.
#[derive(Debug)]
pub struct PostOffice<L> {
    mailboxes: Arc<[WorkerMailbox<L>]>,
    /// By worker: whether it is held up by one of its clients for the time being.
    held_up: Arc<[AtomicBool]>,
    /// Clients with pushes to be written, by worker.
    pending: Arc<PendingPushes<Arc<Client>>>,
    limits: Arc<ArcSwap<Limits>>,
}

impl<L> Clone for PostOffice<L> {
    fn clone(&self) -> Self {
        let (mailboxes, held_up) = (self.mailboxes.clone(), self.held_up.clone());
        Self { mailboxes, held_up, pending: self.pending.clone(), limits: self.limits.clone() }
    }
}

impl<L> PostOffice<L> {
    pub(super) fn new(mailboxes: Vec<WorkerMailbox<L>>, limits: Arc<ArcSwap<Limits>>) -> Self {
        let held_up = mailboxes.iter().map(|_| AtomicBool::new(false)).collect();
        let pending = Arc::new(PendingPushes::new(mailboxes.len()));
        Self { mailboxes: mailboxes.into(), held_up, pending, limits }
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

    pub(super) fn is_held_up(&self, worker: usize) -> bool {
        self.held_up[worker].load(Relaxed)
    }

    /// Sends a letter to one client. Dropped when the client has gone.
    pub fn send(&self, client: Address, letter: L) {
        self.post(client.worker as usize, Mail::Letter(To::Client(client), letter));
    }

    /// Sends a letter to the service of one worker.
    ///
    /// # Panics
    /// When there is no such worker.
    pub fn send_to_service(&self, worker: usize, letter: L) {
        self.post(worker, Mail::Letter(To::Service, letter));
    }

    /// Sends a letter to the service of every worker.
    pub fn send_to_services(&self, letter: L)
    where
        L: Clone,
    {
        for mailbox in &*self.mailboxes {
            mailbox.post(Mail::Letter(To::Service, letter.clone()));
        }
    }

    /// Sends a letter to every client of every worker.
    pub fn send_to_everyone(&self, letter: L)
    where
        L: Clone,
    {
        for mailbox in &*self.mailboxes {
            mailbox.post(Mail::Letter(To::EveryClient, letter.clone()));
        }
    }

    /// Closes a client, whatever waits to be sent to it.
    pub fn kill(&self, client: Address) {
        self.post(client.worker as usize, Mail::Kill(client));
    }

    /// Queues what `make` makes for a client, to be written before any reply leaves that is written from now on: by any
    /// worker, unless the client has something else to be sent first. The caller holds the locks of what the push is
    /// about. Any thread.
    pub fn push(&self, client: &Arc<Client>, make: impl FnOnce(&Listener) -> Option<Push>) -> Pushed {
        let Some(pushes) = client.pushes.get() else { return Pushed::Unable };
        let is_over_hard = |waiting: u64| {
            let limit = self.limits.load().output[client.output_class() as usize];
            limit.is_over_hard(waiting + client.output_bytes.get())
        };
        let (posted, must_close) = pushes.post(is_over_hard, make);
        match posted {
            Posted::Gone => return Pushed::Gone,
            Posted::Queued => {}
            Posted::Pending => self.note_pending(client),
        }
        if must_close {
            self.post(client.address.worker as usize, Mail::Full(client.address));
        }
        Pushed::Queued
    }

    /// Makes it possible to send pushes to a client of whichever worker, in this protocol; whether its worker is ready to.
    pub fn prepare_pushes(&self, client: &Client, protocol: Protocol) -> bool {
        let is_new = client.pushes.get().is_none();
        let pushes = client.take_pushes(protocol);
        if is_new {
            // It is given a turn.
            self.post(client.address.worker as usize, Mail::Full(client.address));
        }
        pushes.queue.has_writer()
    }

    pub(super) fn note_pending(&self, client: &Arc<Client>) {
        self.pending.add(client.address.worker as usize, Arc::clone(client));
    }

    /// Whether pushes are to be written before replies leave.
    #[inline]
    pub(super) fn has_pending_pushes(&self) -> bool {
        self.pending.any()
    }

    /// Writes all pushes that wait, those to a worker's own clients first.
    #[cold]
    pub(super) fn flush_pushes(&self, worker: usize, traffic: &Traffic) {
        /// Where so many clients of another worker wait, it is woken, to write to them at the same time.
        const SHARED_CLIENTS_MIN: usize = 32;
        for other in (0..self.workers()).filter(|other| *other != worker) {
            if self.pending.len(other) >= SHARED_CLIENTS_MIN {
                self.mailboxes[other].wake();
            }
        }
        self.pending.flush(worker, |client| {
            let Some(pushes) = client.pushes.get() else { return };
            let (written, is_full) = pushes.flush();
            if written > 0 {
                traffic.output_bytes.add(written as u64);
                traffic.writes.add(1);
            }
            if is_full {
                self.post(client.address.worker as usize, Mail::Full(client.address));
            }
        });
    }

    /// Ends all workers: nothing more is accepted or read, what has been served is answered for at
    /// most `grace`.
    pub fn stop(&self, grace: Duration) {
        for mailbox in &*self.mailboxes {
            mailbox.post(Mail::Stop(grace));
        }
    }

    pub(super) fn post(&self, worker: usize, mail: Mail<L>) {
        self.mailboxes[worker].post(mail);
    }

    pub(super) fn mailbox(&self, worker: usize) -> &WorkerMailbox<L> {
        &self.mailboxes[worker]
    }
}

/// The mail of workers that do not run.
#[cfg(test)]
pub(crate) struct Letters<L> {
    post: PostOffice<L>,
    _polls: Vec<mio::Poll>,
}

#[cfg(test)]
impl<L> Letters<L> {
    pub(crate) fn of_workers(workers: usize) -> (PostOffice<L>, Self) {
        let polls: Vec<_> = (0..workers).map(|_| mio::Poll::new().unwrap()).collect();
        let bell = |poll: &mio::Poll| mio::Waker::new(poll.registry(), super::worker::BELL).unwrap();
        let mailboxes = polls.iter().map(|poll| WorkerMailbox::new(PollerBell(bell(poll)))).collect();
        let post = PostOffice::new(mailboxes, Arc::default());
        (post.clone(), Self { post, _polls: polls })
    }

    /// What has come to a worker since this was last asked.
    pub(super) fn mail(&self, worker: usize) -> Vec<Mail<L>> {
        let mut mail = Vec::new();
        self.post.mailbox(worker).collect(&mut mail);
        mail
    }

    /// Whom the letters are for that have come to a worker since this was last asked.
    pub(crate) fn recipients(&self, worker: usize) -> Vec<To> {
        let recipient = |mail| if let Mail::Letter(to, _) = mail { to } else { panic!("no letter") };
        self.mail(worker).into_iter().map(recipient).collect()
    }
}
