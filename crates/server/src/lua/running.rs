//! Scripts that have been running for a while: which, for how long, and whether they are to end.
//!
//! ```text
//! NONE ──first look at the clock──▶ READING ──first write──▶ WRITTEN        a script that has written
//!                                      └──────SCRIPT KILL──▶ KILLED         is not to be ended
//! ```
//!
//! Most scripts end before they ever look at the clock and are not heard of here.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use dunlin_engine::command::CommandError;

const NONE: u32 = 0;
const READING: u32 = 1;
const WRITTEN: u32 = 2;
const KILLED: u32 = 3;

/// The command by which a client ends a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `SCRIPT KILL`.
    Script,
    /// `FUNCTION KILL`.
    Function,
}

impl Kind {
    /// The reply to a client that may not wait.
    fn busy(self) -> CommandError {
        match self {
            Self::Script => CommandError::Busy,
            Self::Function => CommandError::text(
                "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.",
            ),
        }
    }

    /// The command that ends it.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Script => "SCRIPT KILL",
            Self::Function => "FUNCTION KILL",
        }
    }
}

/// The error in which a killed script or function ends.
pub(crate) const KILLED_LINE: &str = "Script killed by user with SCRIPT KILL.";

/// The state of a running script.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) kind: Kind,
    /// The function, or the SHA-1 of the script.
    pub(crate) name: Vec<u8>,
    /// The command that has called it.
    pub(crate) words: Vec<Vec<u8>>,
    pub(crate) since: Instant,
}

/// A worker's script.
#[derive(Debug, Default)]
struct Place {
    state: AtomicU32,
    /// Whether clients that it keeps out are answered BUSY.
    is_busy: AtomicBool,
    running: Mutex<Option<Running>>,
}

impl Place {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The scripts that run for long, by worker.
#[derive(Debug)]
pub(crate) struct RunningScripts {
    places: Box<[Place]>,
}

impl RunningScripts {
    pub(crate) fn new(workers: usize) -> Self {
        Self { places: (0..workers).map(|_| Place::default()).collect() }
    }

    /// Makes a script known.
    pub(crate) fn begin(&self, worker: usize, running: Running, has_written: bool) {
        let place = &self.places[worker];
        *place.running() = Some(running);
        place.is_busy.store(false, SeqCst);
        place.state.store(if has_written { WRITTEN } else { READING }, SeqCst);
    }

    /// Forgets a script.
    pub(crate) fn end(&self, worker: usize) {
        let place = &self.places[worker];
        place.state.store(NONE, SeqCst);
        place.is_busy.store(false, SeqCst);
        *place.running() = None;
    }

    /// From now on, clients that a script keeps out are answered BUSY.
    pub(crate) fn become_busy(&self, worker: usize) {
        self.places[worker].is_busy.store(true, SeqCst);
    }

    /// Whether clients are answered BUSY that a script keeps out. Before that, such clients wait.
    pub(crate) fn is_busy(&self) -> bool {
        self.places.iter().any(|place| place.is_busy.load(SeqCst))
    }

    /// Notes that a script writes: from then on it cannot be ended. Returns whether it may.
    pub(crate) fn write(&self, worker: usize) -> bool {
        let state = &self.places[worker].state;
        state.compare_exchange(READING, WRITTEN, SeqCst, SeqCst).is_ok() || state.load(SeqCst) == WRITTEN
    }

    /// Ends a script because the server stops; `false` if it has written, and has to be given up with the process.
    pub(crate) fn stop(&self, worker: usize) -> bool {
        let state = &self.places[worker].state;
        state.compare_exchange(READING, KILLED, SeqCst, SeqCst).is_ok() || state.load(SeqCst) == KILLED
    }

    /// Whether a script is to end.
    pub(crate) fn is_killed(&self, worker: usize) -> bool {
        self.places[worker].state.load(SeqCst) == KILLED
    }

    /// The script that has been running longest.
    pub(crate) fn longest(&self) -> Option<Running> {
        self.longest_place().map(|(_, running)| running)
    }

    fn longest_place(&self) -> Option<(&Place, Running)> {
        let running = self.places.iter().filter_map(|place| Some((place, place.running().clone()?)));
        running.min_by_key(|(_, running)| running.since)
    }

    /// The reply to a client whose keys a script holds.
    pub(crate) fn busy(&self) -> CommandError {
        self.longest().map_or(Kind::Script, |running| running.kind).busy()
    }

    /// Ends the script that has been running longest.
    pub(crate) fn kill(&self, kind: Kind) -> Result<(), CommandError> {
        const NOT_BUSY: CommandError = CommandError::text("NOTBUSY No scripts in execution right now.");
        let (place, running) = self.longest_place().ok_or(NOT_BUSY)?;
        if place.state.load(SeqCst) == WRITTEN {
            return Err(CommandError::text(
                "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either \
                 wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
            ));
        }
        if running.kind != kind {
            return Err(running.kind.busy());
        }
        match place.state.compare_exchange(READING, KILLED, SeqCst, SeqCst) {
            Ok(_) | Err(KILLED) => Ok(()),
            Err(WRITTEN) => self.kill(kind),
            Err(_) => Err(NOT_BUSY),
        }
    }
}

/// How long a script runs before others get to know of it.
const KNOWN_AFTER: Duration = Duration::from_millis(10);

/// How often the worker's other clients are attended to, at most.
const OTHERS_INTERVAL: Duration = Duration::from_millis(10);

/// How long a script keeps threads of a cluster's node waiting. Heartbeats come to workers and leave by a thread that closes the
/// gate; a shard's lease ends after 900 ms without them.
const HEARTBEATS_AFTER: Duration = Duration::from_millis(100);

/// A script's own look at the clock.
#[derive(Debug)]
pub(crate) struct Watch {
    since: Instant,
    /// When others get to know of it; `None` when they have.
    known_at: Option<Instant>,
    /// When the script is marked so that threads do not wait for it; `None` when it is, or never will be.
    marked_at: Option<Instant>,
    /// When clients that it keeps out are answered BUSY; `None` when they are, or never will be.
    busy_at: Option<Instant>,
    /// When the worker's other clients are to be attended to; `None` while it is not marked.
    others_at: Option<Instant>,
}

/// The step that a script has to take because of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// To make itself known.
    Known,
    /// To mark what it holds so that threads do not wait for it.
    Marked,
    /// To answer clients BUSY, after this time.
    Busy(Duration),
    /// To have the worker's other clients attended to.
    Others,
}

impl Watch {
    /// A watch over a script that begins now. `is_node`: of a server that is a node of a cluster.
    pub(crate) fn new(busy_after_ms: u64, is_node: bool) -> Self {
        let since = Instant::now();
        let after = |duration: Duration| since.checked_add(duration);
        let busy_at = after(Duration::from_millis(busy_after_ms)).filter(|_| busy_after_ms > 0);
        let heartbeats_at = after(HEARTBEATS_AFTER).filter(|_| is_node);
        let marked_at = busy_at.into_iter().chain(heartbeats_at).min();
        Self { since, known_at: after(KNOWN_AFTER), marked_at, busy_at, others_at: None }
    }

    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Whether others know of it.
    pub(crate) fn is_known(&self) -> bool {
        self.known_at.is_none()
    }

    /// Returns the step that is due now: each once, in order.
    pub(crate) fn due(&mut self) -> Due {
        self.due_at(Instant::now())
    }

    fn due_at(&mut self, now: Instant) -> Due {
        let is_due = |at: &mut Instant| *at <= now;
        if self.known_at.is_some() {
            return self.known_at.take_if(is_due).map_or(Due::Nothing, |_| Due::Known);
        }
        if self.marked_at.take_if(is_due).is_some() {
            self.others_at = Some(now);
            return Due::Marked;
        }
        if self.others_at.is_some() && self.busy_at.take_if(is_due).is_some() {
            return Due::Busy(now - self.since);
        }
        match self.others_at {
            Some(at) if at <= now => Due::Others,
            _ => Due::Nothing,
        }
    }

    /// Notes that others have been attended to since `begun`: half of the time, at least, is the script's.
    pub(crate) fn attended(&mut self, begun: Instant) {
        let now = Instant::now();
        self.others_at = now.checked_add((now - begun).max(OTHERS_INTERVAL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(kind: Kind) -> Running {
        Running { kind, name: b"x".to_vec(), words: Vec::new(), since: Instant::now() }
    }

    fn line(error: CommandError) -> String {
        String::from_utf8(error.line().into_owned()).unwrap()
    }

    /// The steps of a script that looks at the clock at these milliseconds, and attends to others in no time.
    fn steps(busy_after_ms: u64, is_node: bool, times_ms: &[u64]) -> Vec<Due> {
        let mut watch = Watch::new(busy_after_ms, is_node);
        let mut look = |time_ms: &u64| {
            let now = watch.since + Duration::from_millis(*time_ms);
            let due = watch.due_at(now);
            if due == Due::Others {
                watch.others_at = Some(now + OTHERS_INTERVAL);
            }
            due
        };
        times_ms.iter().map(&mut look).collect()
    }

    #[test]
    fn script_in_a_cluster_lets_others_in_long_before_busy() {
        use Due::{Busy, Known, Marked, Nothing, Others};
        let busy = |after_ms| Busy(Duration::from_millis(after_ms));
        let times = [1, 99, 100, 101, 102, 120, 5_000, 5_001, 5_002];
        assert_eq!(
            steps(5_000, false, &times),
            [Nothing, Known, Nothing, Nothing, Nothing, Nothing, Marked, busy(5_001), Others]
        );
        assert_eq!(
            steps(5_000, true, &times),
            [Nothing, Known, Marked, Others, Nothing, Others, busy(5_000), Others, Nothing]
        );
        assert_eq!(steps(0, true, &times)[6..], [Others, Nothing, Nothing], "nobody is ever answered BUSY");
        assert_eq!(steps(0, false, &times)[2..], [Nothing; 7]);
        assert_eq!(steps(20, true, &[10, 20, 21, 22]), [Known, Marked, busy(21), Others]);
    }

    #[test]
    fn clients_are_answered_busy_once_a_script_says_so_and_until_it_ends() {
        let scripts = RunningScripts::new(2);
        scripts.begin(1, running(Kind::Script), false);
        assert!(!scripts.is_busy());
        scripts.become_busy(1);
        assert!(scripts.is_busy());
        scripts.end(1);
        assert!(!scripts.is_busy());
    }

    #[test]
    fn script_kill_and_first_write_exclude_each_other() {
        let scripts = RunningScripts::new(2);
        assert!(line(scripts.kill(Kind::Script).unwrap_err()).starts_with("NOTBUSY"));
        scripts.begin(1, running(Kind::Script), false);
        assert!(!scripts.is_killed(1));
        assert!(line(scripts.kill(Kind::Function).unwrap_err()).contains("SCRIPT KILL"));
        assert_eq!(scripts.kill(Kind::Script), Ok(()));
        assert_eq!(scripts.kill(Kind::Script), Ok(()), "again, before it has noticed");
        assert!(scripts.is_killed(1) && !scripts.write(1));
        scripts.end(1);

        scripts.begin(0, running(Kind::Function), false);
        assert!(scripts.write(0) && scripts.write(0));
        assert!(line(scripts.kill(Kind::Function).unwrap_err()).starts_with("UNKILLABLE"));
        assert!(line(scripts.busy()).contains("FUNCTION KILL"));
        scripts.end(0);
        assert!(scripts.longest().is_none());
    }
}
