//! Threads that each wait for one reply before they decide on the next request: how applications with
//! dependent round trips behave. [`Load`](dunlin_bench::load) is for requests that do not depend on replies.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dunlin_bench::latency::Latencies;
use dunlin_bench::random::Random;
use dunlin_bench::schedule::Schedule;

/// An application thread with its connection.
pub trait Session: Send {
    /// Does one operation; its kind, as an index of the caller's own table. Fails on a wrong answer.
    fn step(&mut self, number: u64, random: &mut Random) -> Result<usize, String>;
}

/// How many threads do how much.
#[derive(Debug, Clone, Copy)]
pub struct SessionPlan {
    /// Threads, each with a connection of its own.
    pub clients: usize,
    /// Operations of all threads together.
    pub operations: u64,
    /// Operations a second for an open loop, latencies counting from when an operation was due; closed
    /// without.
    pub rate: Option<f64>,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// Latencies and duration of a run of sessions.
pub struct SessionOutcome {
    /// Latencies of each kind of operation.
    pub kinds: Vec<Latencies>,
    /// From the start to the end of the last thread.
    pub elapsed: Duration,
}

/// Runs sessions made by `make`, which gets the number of the thread, over `kinds` kinds of operations.
pub fn run<S: Session>(
    plan: SessionPlan,
    kinds: usize,
    make: impl Fn(usize) -> Result<S, String>,
) -> Result<SessionOutcome, String> {
    let sessions = (0..plan.clients).map(make).collect::<Result<Vec<S>, String>>()?;
    let mut seeds = Random::new(plan.seed);
    let claimed = AtomicU64::new(0);
    let start = Instant::now();
    let results: Vec<Result<Vec<Latencies>, String>> = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (index, session) in sessions.into_iter().enumerate() {
            let (random, claimed) = (Random::new(seeds.draw()), &claimed);
            let schedule = plan.rate.map(|rate| Schedule::new(rate, index as u64, plan.clients as u64));
            threads.push(scope.spawn(move || drive(session, plan, schedule, kinds, random, claimed, start)));
        }
        threads.into_iter().map(|thread| thread.join().expect("a session panicked")).collect()
    });
    let elapsed = start.elapsed();
    let mut total = vec![Latencies::default(); kinds];
    for result in results {
        for (total, latencies) in total.iter_mut().zip(result?) {
            total.add(&latencies);
        }
    }
    Ok(SessionOutcome { kinds: total, elapsed })
}

fn drive<S: Session>(
    mut session: S,
    plan: SessionPlan,
    mut schedule: Option<Schedule>,
    kinds: usize,
    mut random: Random,
    claimed: &AtomicU64,
    start: Instant,
) -> Result<Vec<Latencies>, String> {
    let mut latencies = vec![Latencies::default(); kinds];
    loop {
        let number = claimed.fetch_add(1, Ordering::Relaxed);
        if number >= plan.operations {
            return Ok(latencies);
        }
        let from = match &mut schedule {
            None => start.elapsed(),
            Some(schedule) => {
                let due = Duration::from_nanos(schedule.issue());
                thread::sleep(due.saturating_sub(start.elapsed()));
                due
            }
        };
        let kind = session.step(number, &mut random)?;
        latencies[kind].record(start.elapsed().saturating_sub(from).as_nanos() as u64, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Odd;

    impl Session for Odd {
        fn step(&mut self, number: u64, _: &mut Random) -> Result<usize, String> {
            if number == 1_000_000 { Err("too many".into()) } else { Ok((number % 2) as usize) }
        }
    }

    #[test]
    fn operations_are_shared_out_and_counted_by_kind() {
        for rate in [None, Some(1e6)] {
            let plan = SessionPlan { clients: 3, operations: 1001, rate, seed: 1 };
            let outcome = run(plan, 2, |_| Ok(Odd)).unwrap();
            let counts: Vec<u64> = outcome.kinds.iter().map(Latencies::count).collect();
            assert_eq!(counts, [501, 500]);
        }
    }

    #[test]
    fn sessions_fail_on_one_wrong_answer() {
        let plan = SessionPlan { clients: 2, operations: 1_000_001, rate: None, seed: 1 };
        assert_eq!(run(plan, 2, |_| Ok(Odd)).err().unwrap(), "too many");
        let plan = SessionPlan { operations: 1, ..plan };
        assert_eq!(run(plan, 2, |_| Err::<Odd, _>("no way in".into())).err().unwrap(), "no way in");
    }
}
