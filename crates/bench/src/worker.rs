//! A generating thread: its connections, its poller, its share of the load.

use std::io;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

#[cfg(target_os = "linux")]
use crate::alarm::Alarm;
use crate::connection::Connection;
use crate::latency::Latencies;
use crate::load::{LoadError, Outcome, Plan, Progress};
use crate::schedule::Schedule;
use crate::target::Target;
use crate::template::RequestBuffer;

/// Read buffer: several times the usual contents of a socket, and more than a header line.
const READ_BYTES: usize = 256 * 1024;
/// The poller wakes at least this often to look at the end of the run.
const POLL_MAX: Duration = Duration::from_millis(100);
/// The poller's clock is this coarse; shorter waits are spun, or left to the alarm.
const POLL_GRAIN: Duration = Duration::from_millis(1);
/// The poller's token of the alarm.
#[cfg(target_os = "linux")]
const ALARM: Token = Token(usize::MAX);

/// The state of a generating thread.
pub struct Worker<'a> {
    target: &'a Target,
    plan: &'a Plan,
    progress: &'a Progress,
    connections: Vec<Connection>,
    schedule: Option<Schedule>,
    /// Wakes it when a request is due; without, it spins shortly before.
    #[cfg(target_os = "linux")]
    alarm: Option<Alarm>,
    buffer: RequestBuffer,
    poll: Poll,
    scratch: Vec<u8>,
    errors: ErrorReporter,
    outcome: Outcome,
    /// Requests without a reply on all connections.
    awaited: u64,
    /// No further requests will be sent.
    exhausted: bool,
    /// The next connection in the search for one with room (open loop).
    cursor: usize,
    last_reply_ns: u64,
}

/// Passes error texts to the spectator, at most one a second.
struct ErrorReporter {
    sender: Option<mpsc::Sender<String>>,
    last: Option<Instant>,
}

impl ErrorReporter {
    fn report(&mut self, text: &[u8]) {
        let Some(sender) = &self.sender else { return };
        if self.last.is_none_or(|last| last.elapsed() >= Duration::from_secs(1)) {
            self.last = Some(Instant::now());
            // A spectator that has gone is no reason to stop.
            let _ = sender.send(String::from_utf8_lossy(text).into_owned());
        }
    }
}

impl<'a> Worker<'a> {
    /// A worker that has registered its connections and sent nothing.
    pub fn new(
        target: &'a Target,
        plan: &'a Plan,
        progress: &'a Progress,
        mut connections: Vec<Connection>,
        schedule: Option<Schedule>,
        buffer: RequestBuffer,
        error_texts: Option<mpsc::Sender<String>>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        for (index, connection) in connections.iter_mut().enumerate() {
            connection.register(poll.registry(), Token(index))?;
        }
        #[cfg(target_os = "linux")]
        let alarm = plan.sleeps.then(|| Alarm::new(poll.registry(), ALARM)).transpose()?;
        Ok(Self {
            #[cfg(target_os = "linux")]
            alarm,
            target,
            plan,
            progress,
            connections,
            schedule,
            buffer,
            poll,
            scratch: vec![0; READ_BYTES],
            errors: ErrorReporter { sender: error_texts, last: None },
            outcome: Outcome::default(),
            awaited: 0,
            exhausted: false,
            cursor: 0,
            last_reply_ns: 0,
        })
    }

    /// Sends and receives until the plan is fulfilled.
    pub fn run(mut self, start: Instant) -> Result<Outcome, LoadError> {
        if self.schedule.is_none() {
            for index in 0..self.connections.len() {
                self.send_pipeline(index, start)?;
            }
        }
        let mut events = Events::with_capacity(1024);
        let mut last_activity_ns = 0;
        loop {
            let now_ns = nanoseconds(start);
            self.cut_slices(now_ns);
            self.look_at_the_end(now_ns);
            if self.schedule.is_some() && !self.exhausted {
                self.send_due(start)?;
            }
            if self.exhausted && self.awaited == 0 {
                break;
            }
            let timeout = self.poll_timeout(start)?;
            match self.poll.poll(&mut events, Some(timeout)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(LoadError::Setup(error)),
            }
            let mut answered = 0;
            for event in &events {
                answered += self.handle(event, start)?;
            }
            if answered > 0 {
                self.last_reply_ns = nanoseconds(start);
                self.progress.add_replies(answered);
            }
            if answered > 0 || self.awaited == 0 {
                last_activity_ns = now_ns;
            } else if let Some(limit) = self.plan.stall_max
                && Duration::from_nanos(now_ns.saturating_sub(last_activity_ns)) > limit
            {
                return Err(LoadError::Stalled(limit));
            }
        }
        self.outcome.elapsed = Duration::from_nanos(self.last_reply_ns);
        if self.plan.slice.is_some() {
            self.outcome.slices.push(std::mem::take(&mut self.outcome.latencies));
            for slice in &self.outcome.slices {
                self.outcome.latencies.add(slice);
            }
        }
        Ok(self.outcome)
    }

    /// Sets the latencies of slices that are over aside.
    fn cut_slices(&mut self, now_ns: u64) {
        let Some(slice) = self.plan.slice else { return };
        while now_ns >= (self.outcome.slices.len() as u64 + 1) * slice.as_nanos() as u64 {
            self.outcome.slices.push(std::mem::take(&mut self.outcome.latencies));
        }
    }

    fn handle(&mut self, event: &mio::event::Event, start: Instant) -> Result<u64, LoadError> {
        let Token(index) = event.token();
        // The alarm is heard by waking.
        let Some(connection) = self.connections.get_mut(index) else { return Ok(0) };
        let mut answered = 0;
        if event.is_writable() {
            connection.flush(&mut self.buffer, self.poll.registry(), Token(index))?;
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            let Self { errors, outcome, scratch, .. } = self;
            let mut texts: Vec<Vec<u8>> = Vec::new();
            answered = connection.receive(
                scratch,
                event.is_read_closed() || event.is_error(),
                || nanoseconds(start),
                outcome,
                |text| texts.push(text.to_vec()),
            )?;
            for text in texts {
                errors.report(&text);
                outcome.count_error(&text);
            }
            self.awaited -= answered;
            if answered > 0 && self.connections[index].awaited() == 0 {
                self.next_pipeline(index, start)?;
            }
        }
        Ok(answered)
    }

    /// A connection has all its replies.
    fn next_pipeline(&mut self, index: usize, start: Instant) -> Result<(), LoadError> {
        if self.exhausted {
            return Ok(());
        }
        if !self.plan.keep_alive {
            self.connections[index] = Connection::open(self.target)?;
            let connection = &mut self.connections[index];
            connection.register(self.poll.registry(), Token(index)).map_err(LoadError::Setup)?;
        }
        if self.schedule.is_none() { self.send_pipeline(index, start) } else { Ok(()) }
    }

    /// Closed loop: the next pipeline of a connection.
    fn send_pipeline(&mut self, index: usize, start: Instant) -> Result<(), LoadError> {
        let now_ns = nanoseconds(start);
        self.look_at_the_end(now_ns);
        if self.exhausted {
            return Ok(());
        }
        let (first, count) = self.progress.claim(self.plan.pipeline as u64, self.plan.requests);
        if count == 0 {
            self.exhausted = true;
            return Ok(());
        }
        self.awaited += count;
        self.connections[index].plan(first, count, now_ns);
        self.connections[index].flush(&mut self.buffer, self.poll.registry(), Token(index))
    }

    /// Open loop: sends due requests, as far as connections have room.
    fn send_due(&mut self, start: Instant) -> Result<(), LoadError> {
        let connections = self.connections.len();
        let now_ns = nanoseconds(start);
        // Requests that fall due at the very end of the time are no longer part of it.
        let last_ns = self.plan.duration.map_or(u64::MAX, |duration| duration.as_nanos() as u64 - 1);
        let due = self.schedule.as_ref().map(|schedule| schedule.due(now_ns.min(last_ns)));
        let Some(due) = due else { return Ok(()) };
        let share = due.div_ceil(connections as u64);
        let mut left = due;
        for _ in 0..connections {
            if left == 0 {
                break;
            }
            let index = self.cursor;
            self.cursor = (self.cursor + 1) % connections;
            let room = (self.plan.pipeline as u64).saturating_sub(self.connections[index].awaited());
            let mut taken = 0;
            while taken < room.min(share).min(left) && !self.exhausted {
                taken += self.send_one(index);
            }
            left -= taken;
            if taken > 0 {
                self.connections[index].flush(&mut self.buffer, self.poll.registry(), Token(index))?;
            }
        }
        Ok(())
    }

    /// Plans the next scheduled request on a connection; 0 when there is none left.
    fn send_one(&mut self, index: usize) -> u64 {
        let (first, count) = self.progress.claim(1, self.plan.requests);
        let Some(schedule) = self.schedule.as_mut().filter(|_| count == 1) else {
            self.exhausted = true;
            return 0;
        };
        let at_ns = schedule.issue();
        self.awaited += 1;
        self.connections[index].plan(first, 1, at_ns);
        1
    }

    /// Ends the sending when the time is over. Requests that an open loop still owes are charged for
    /// their wait.
    fn look_at_the_end(&mut self, now_ns: u64) {
        if self.exhausted {
            return;
        }
        let over = self.plan.duration.is_some_and(|duration| now_ns >= duration.as_nanos() as u64);
        if !over && !self.progress.is_stopped() {
            return;
        }
        self.exhausted = true;
        let end_ns = self.plan.duration.map_or(now_ns, |duration| now_ns.min(duration.as_nanos() as u64));
        let Some(schedule) = &mut self.schedule else { return };
        let overdue = charge_unsent(schedule, end_ns, now_ns, &mut self.outcome.latencies);
        self.outcome.unsent += overdue;
    }

    fn poll_timeout(&mut self, start: Instant) -> Result<Duration, LoadError> {
        let mut wait = POLL_MAX;
        if let Some(duration) = self.plan.duration.filter(|_| !self.exhausted) {
            wait = wait.min(duration.saturating_sub(start.elapsed()) + POLL_GRAIN);
        }
        if let Some(schedule) = self.schedule.as_ref().filter(|_| !self.exhausted) {
            let until = Duration::from_nanos(schedule.next_at_ns()).saturating_sub(start.elapsed());
            if self.awaited >= (self.connections.len() * self.plan.pipeline) as u64 {
                // No connection has room: the next reply makes some.
                return Ok(wait);
            }
            #[cfg(target_os = "linux")]
            if let Some(alarm) = &mut self.alarm {
                let due_at = start + Duration::from_nanos(schedule.next_at_ns());
                alarm.set(due_at).map_err(LoadError::Setup)?;
                return Ok(wait);
            }
            wait = wait.min(if until > POLL_GRAIN * 2 { until - POLL_GRAIN * 2 } else { Duration::ZERO });
        }
        Ok(wait)
    }
}

/// Takes all requests due before `end_ns` off the schedule, charging each for its wait until
/// `now_ns`. Returns how many there were.
fn charge_unsent(schedule: &mut Schedule, end_ns: u64, now_ns: u64, latencies: &mut Latencies) -> u64 {
    let mut unsent = 0;
    while schedule.next_at_ns() < end_ns {
        latencies.record(now_ns.saturating_sub(schedule.issue()), 1);
        unsent += 1;
    }
    unsent
}

fn nanoseconds(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_due_but_unsent_are_charged_for_their_wait() {
        let mut schedule = Schedule::new(1000.0, 0, 1);
        let mut latencies = Latencies::default();
        let end_ns = 10_000_000;
        assert_eq!(charge_unsent(&mut schedule, end_ns, end_ns, &mut latencies), 10);
        let summary = latencies.summary();
        assert!((summary.max - 10.0).abs() < 0.02 && (summary.min - 1.0).abs() < 0.01, "{summary:?}");
        assert_eq!(charge_unsent(&mut schedule, end_ns, end_ns, &mut latencies), 0);
    }
}
