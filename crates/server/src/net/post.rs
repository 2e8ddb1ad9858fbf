//! Mail between workers, and from other threads to workers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use std::time::Duration;

use dunlin_mailbox::{Bell, Mailbox};
use socket2::{SockAddr, Socket};

use super::listener::Listener;
use super::{Address, To, Transport};

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
    Doors(Vec<Listener>),
    /// Answer what has been served, for at most this long, and end.
    Stop(Duration),
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
#[derive(Debug)]
pub struct PostOffice<L> {
    mailboxes: Arc<[WorkerMailbox<L>]>,
    /// By worker: whether it is held up by one of its clients for the time being.
    held_up: Arc<[AtomicBool]>,
}

impl<L> Clone for PostOffice<L> {
    fn clone(&self) -> Self {
        Self { mailboxes: self.mailboxes.clone(), held_up: self.held_up.clone() }
    }
}

impl<L> PostOffice<L> {
    pub(super) fn new(mailboxes: Vec<WorkerMailbox<L>>) -> Self {
        let held_up = mailboxes.iter().map(|_| AtomicBool::new(false)).collect();
        Self { mailboxes: mailboxes.into(), held_up }
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
        let post =
            PostOffice::new(polls.iter().map(|poll| WorkerMailbox::new(PollerBell(bell(poll)))).collect());
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
