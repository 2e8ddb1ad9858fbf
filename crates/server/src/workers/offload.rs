//! Commands on their way to the threads that run offloaded ones, and their results on the way back.

use std::sync::{
    Mutex, PoisonError, Weak,
    mpsc::{Receiver, Sender, channel},
};

use dunlin_engine::{Computed, Offloaded, OwnedWord};
use dunlin_net::{Address, Client, WorkerQueues};
use dunlin_resp::SharedSlice;

use super::WorkerMessage;

/// A command to be run.
pub(crate) struct Job {
    pub(crate) offloaded: Box<Offloaded>,
    /// Its client, while that is connected.
    pub(crate) caller: Weak<Client>,
    /// Its place in the command table.
    pub(crate) index: usize,
    pub(crate) client: Address,
    pub(crate) queues: WorkerQueues<WorkerMessage>,
    /// How often it was run without result before.
    pub(crate) rounds: u32,
}

/// A command that has computed what it will store. Its worker stores it, whether the client is still there
/// or not.
#[derive(Debug)]
pub(crate) struct OffloadedResult {
    pub(crate) computed: Computed,
    pub(crate) index: usize,
    pub(crate) client: Address,
    pub(crate) nanoseconds: u64,
    pub(crate) rounds: u32,
}

/// A command that has been run.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The words of the command, the name first.
    pub(crate) words: Vec<OwnedWord>,
    /// The reply, encoded; no piece is empty.
    pub(crate) reply: Vec<SharedSlice>,
    pub(crate) nanoseconds: u64,
}

/// The queue into which workers put such commands.
#[derive(Debug)]
pub(crate) struct Offload {
    jobs: Sender<Job>,
    /// The threads' end, until they start.
    unstarted: Mutex<Option<Receiver<Job>>>,
}

impl Offload {
    pub(crate) fn new() -> Self {
        let (jobs, receiver) = channel();
        Self { jobs, unstarted: Mutex::new(Some(receiver)) }
    }

    /// Runs a command soon, and sends its reply to the client.
    pub(crate) fn run(&self, job: Job) {
        // The threads end only when the server does; then no client waits for the reply.
        let _ = self.jobs.send(job);
    }

    /// The threads' end, once.
    pub(crate) fn take_jobs(&self) -> Option<Receiver<Job>> {
        self.unstarted.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
