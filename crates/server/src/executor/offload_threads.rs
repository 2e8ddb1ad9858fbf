//! Commands that would hold up a worker, run by threads of their own.
//!
//! The work itself is the engine's ([`Offloaded`]): a handler on a view of its keys. Here are the threads that run it
//! and how its reply comes back: in pieces that a socket takes one after the other, each freed when it has left.
//! Giving hundreds of megabytes back to the system at once would hold up the worker after all.
//!
//! The threads are of low priority: they take the time that workers leave. A command that looks at the keyspace as a
//! whole ends early if its client has gone or the server ends ([`Caller`]).

use std::{
    io,
    sync::{Arc, Mutex, PoisonError, Weak, mpsc::Receiver},
    thread,
    time::{Duration, Instant},
};

use dunlin_engine::{Host, OffloadOutcome, Worker};
use dunlin_net::Client;

use crate::{
    shared::Shared,
    system::host::lower_priority,
    workers::{
        WorkerMessage,
        offload::{Finished, Job, OffloadedResult},
    },
};

/// Workers for each thread that runs such commands.
const WORKERS_PER_THREAD: usize = 4;

/// After what time a command looks again whether a script still holds the keys that it needs.
const PAUSE: Duration = Duration::from_millis(1);

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

/// Starts the threads; they end with the server.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let Some(receiver) = shared.offload.take_jobs() else { return Ok(()) };
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
    // This worker passes no gate and has no counters that are read: its number is of no meaning.
    let mut worker = Worker::new(usize::MAX, u64::from(std::process::id()) << 32 | 1 << 31 | number as u64);
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let (Ok(job), Some(shared)) = (job, shared.upgrade()) else { return };
        let started = Instant::now();
        let Job { offloaded, caller, index, client, queues, rounds } = job;
        let caller = Caller { client: caller, shared: &shared };
        // Its view ends here, before any client can ask what came of it.
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
