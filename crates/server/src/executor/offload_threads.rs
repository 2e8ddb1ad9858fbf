//! Commands that would hold up a worker, run by threads of their own.
//!
//! What is run and on what is the engine's ([`Offloaded`]): a handler on a view of its keys. Here is who runs it
//! and how its reply comes back: in pieces that a socket takes one after the other, each freed when it has
//! left, because giving hundreds of megabytes back to the system at once would hold up the worker after all.
//!
//! The threads are of low priority: they take the time that workers leave. A command that looks at the keyspace as a whole
//! ends early where its client has gone or the server ends ([`Caller`]).

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use dunlin_engine::{Computed, Host, OffloadOutcome, Offloaded, OwnedWord, Worker};
use dunlin_net::{Address, Client, WorkerQueues};
use dunlin_resp::SharedSlice;

use crate::{executor::WorkerMessage, shared::Shared, system::host::lower_priority};

/// Workers for each thread that runs such commands.
const WORKERS_PER_THREAD: usize = 4;

/// After what time a command looks again whether a script still holds the keys that it needs.
const PAUSE: Duration = Duration::from_millis(1);

/// A command to be run.
pub(crate) struct Job {
    pub(crate) offloaded: Box<Offloaded>,
    /// Its client, while that is connected.
    pub(crate) caller: Weak<Client>,
    /// Its place in the command table.
    pub(crate) index: usize,
    pub(crate) client: Address,
    pub(crate) queues: WorkerQueues<WorkerMessage>,
    /// How often it was run in vain before.
    pub(crate) rounds: u32,
}

/// The client that waits for a command.
struct Caller<'a> {
    client: Weak<Client>,
    shared: &'a Shared,
}

impl Host for Caller<'_> {
    fn is_wanted(&self) -> bool {
        let client = self.client.upgrade();
        client.is_some_and(|client| !client.is_killed()) && !self.shared.is_ending()
    }

    fn pause(&self) {
        thread::sleep(PAUSE);
    }
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

/// Where workers hand in such commands.
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

    /// Has a command run soon, and its reply sent to the client.
    pub(crate) fn run(&self, job: Job) {
        // The threads end only when the server does; then nobody waits for the reply.
        let _ = self.jobs.send(job);
    }
}

/// Starts the threads; they end with the server.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let receiver = shared.offload.unstarted.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(receiver) = receiver else { return Ok(()) };
    let jobs = Arc::new(Mutex::new(receiver));
    for number in 0..shared.workers.div_ceil(WORKERS_PER_THREAD) {
        let (jobs, shared) = (Arc::clone(&jobs), Arc::downgrade(shared));
        thread::Builder::new()
            .name(format!("offload-{number}"))
            .spawn(move || run(&jobs, &shared, number))?;
    }
    Ok(())
}

fn run(jobs: &Mutex<Receiver<Job>>, shared: &Weak<Shared>, number: usize) {
    lower_priority();
    // It passes no gate and counts for nobody: its number is of no meaning.
    let mut worker = Worker::new(usize::MAX, u64::from(std::process::id()) << 32 | 1 << 31 | number as u64);
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let (Ok(job), Some(shared)) = (job, shared.upgrade()) else { return };
        let started = Instant::now();
        let Job { offloaded, caller, index, client, queues, rounds } = job;
        let caller = Caller { client: caller, shared: &shared };
        // Its view ends here, before anyone can ask what came of it.
        let outcome = offloaded.run(&shared.engine, &mut worker, &caller);
        let nanoseconds = started.elapsed().as_nanos() as u64;
        match outcome {
            OffloadOutcome::Answered { words, mut reply } => {
                let finished = Finished { words, reply: reply.take_pieces(), nanoseconds };
                queues.send(client, WorkerMessage::Finished(Arc::new(finished)));
            }
            OffloadOutcome::Computed(computed) => {
                let result = OffloadedResult { computed, index, client, nanoseconds, rounds };
                let worker = client.worker as usize;
                queues.send_to_service(worker, WorkerMessage::Computed(Arc::new(Mutex::new(Some(result)))));
            }
            // The client stays without an answer for the moment that it is still there.
            OffloadOutcome::Abandoned => {}
        }
    }
}
