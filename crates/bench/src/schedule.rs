//! When requests are due in an open loop.
//!
//! Request `i` of the run is due at `i / rate`, however the server answers. Its latency counts from
//! that moment, not from when the generator got round to sending it: a server that stalls for a
//! second is charged for all the requests that had to wait (G. Tene: "How NOT to measure latency";
//! the error of not doing so is known as coordinated omission).
//!
//! Threads interleave: thread `t` of `n` sends the requests `t, t + n, t + 2n, …`.

/// The send times of one thread.
#[derive(Debug, Clone)]
pub struct Schedule {
    interval_ns: f64,
    thread: u64,
    threads: u64,
    issued: u64,
}

impl Schedule {
    /// The share of thread `thread` in a run of `rate` requests a second over all `threads`.
    pub fn new(rate: f64, thread: u64, threads: u64) -> Self {
        assert!(rate > 0.0 && thread < threads);
        Self { interval_ns: 1e9 / rate, thread, threads, issued: 0 }
    }

    /// When the next request is due, in nanoseconds from the start of the run.
    #[inline]
    pub fn next_at_ns(&self) -> u64 {
        ((self.issued * self.threads + self.thread) as f64 * self.interval_ns) as u64
    }

    /// How many requests are due at `now_ns` and not yet issued.
    pub fn due(&self, now_ns: u64) -> u64 {
        if now_ns < self.next_at_ns() {
            return 0;
        }
        // Whole intervals that have begun, over all threads; those of this thread are every n-th.
        let begun = (now_ns as f64 / self.interval_ns) as u64 + 1;
        let own = begun.saturating_sub(self.thread).div_ceil(self.threads);
        own.saturating_sub(self.issued).max(1)
    }

    /// Takes the next request: its send time in nanoseconds from the start.
    #[inline]
    pub fn issue(&mut self) -> u64 {
        let at_ns = self.next_at_ns();
        self.issued += 1;
        at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_of_one_thread_has_equal_intervals() {
        let mut schedule = Schedule::new(1000.0, 0, 1);
        assert_eq!(schedule.due(0), 1);
        assert_eq!((schedule.issue(), schedule.issue(), schedule.issue()), (0, 1_000_000, 2_000_000));
        assert_eq!(schedule.due(2_999_999), 0);
        assert_eq!(schedule.due(3_000_000), 1);
    }

    #[test]
    fn threads_share_the_rate_and_take_turns() {
        let mut times = Vec::new();
        for thread in 0..3 {
            let mut schedule = Schedule::new(100.0, thread, 3);
            times.extend((0..4).map(|_| schedule.issue()));
        }
        times.sort_unstable();
        let expected: Vec<u64> = (0..12).map(|request| request * 10_000_000).collect();
        assert_eq!(times, expected);
    }

    #[test]
    fn schedule_after_a_stall_keeps_the_times_of_missed_requests() {
        let mut schedule = Schedule::new(1000.0, 0, 1);
        schedule.issue();
        let after_stall_ns = 1_000_000_000;
        assert_eq!(schedule.due(after_stall_ns), 1000);
        let waits: Vec<u64> = (0..1000).map(|_| after_stall_ns - schedule.issue()).collect();
        assert_eq!((waits[0], waits[999]), (999_000_000, 0));
        assert_eq!(schedule.due(after_stall_ns), 0);
    }

    #[test]
    fn due_counts_exactly_what_issue_would_give() {
        for rate in [0.5, 3.0, 777.0, 1_234_567.0] {
            let mut schedule = Schedule::new(rate, 1, 2);
            let now_ns = (2000.0 / rate * 1e9) as u64;
            let due = schedule.due(now_ns);
            for _ in 0..due {
                assert!(schedule.issue() <= now_ns);
            }
            assert!(schedule.next_at_ns() > now_ns || schedule.due(now_ns) == 1);
            assert!((999..=1001).contains(&due), "{due} at {rate}");
        }
    }
}
