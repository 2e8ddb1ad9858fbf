//! Power cuts: a server runs with a disk that only seems to sync, and every call is recorded. Then power fails at some
//! of these calls, and a server is started on the possible contents of the disk by then.
//!
//! ```text
//! server + record.c ──▶ calls ──▶ ✂ behind one ──▶ directory ──▶ server: all writes acknowledged by then are there
//! ```
//!
//! A process that is killed loses nothing that it has written: this test shows whether it syncs what it must, and in
//! which order.

mod disk;
mod recording;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use dunlin_test_support::random::Random;
use rustix::time::{ClockId, clock_gettime};

use crate::load::{self, Beside, Found, Load, Writer};
use crate::server::{Folder, Server, log_directives};
use disk::Disk;
use recording::{Call, What};

/// Longest time under load, in milliseconds; under `everysec` nothing is durable before a second has passed.
const LOAD_MS_MAX: i64 = 150;
const EVERYSEC_LOAD_MS_MAX: i64 = 3000;
/// How often, of 100 times, a server begins without files.
const FRESH_PERCENT: u32 = 30;
/// How often, of 100 times, there is one more server before power fails: it finds data that are written and not
/// durable.
const ONE_MORE_PERCENT: u32 = 40;
/// How often, of 100 times, a server is killed instead of ending by itself.
const KILLED_PERCENT: u32 = 75;
/// How often, of 100 times, power fails beside a call that is not a write: there are few of them, and more depends on them.
const TURN_PERCENT: u32 = 60;
/// The loss that `everysec` may have, with the time that its threads take.
const EVERYSEC_LOSS_MAX: Duration = Duration::from_millis(1200);
/// Calls that a failure lists.
const TOLD_CALLS: usize = 24;
const WATCH: Duration = Duration::from_millis(5);
/// A server that has something to do calls the disk within this time.
const CALLS_WITHIN: Duration = Duration::from_millis(100);

/// The writes that are promised to be durable, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// Acknowledged writes, as `appendfsync always` has it.
    Always,
    /// The same a second ago.
    Everysec,
    /// Nothing but the data of the beginning.
    No,
    /// There is no log: writes that were acknowledged before SAVE or BGSAVE began, once they are done, and before the
    /// server ended by itself.
    Saves,
}

/// How it is played.
#[derive(Debug, Clone, Copy)]
pub struct Power<'a> {
    pub program: &'a Path,
    pub rounds: u64,
    /// Power cuts in each round.
    pub cuts: u64,
    pub policy: Policy,
    pub seed: u64,
}

/// The recording of a server, or of one behind the other.
struct Life {
    disk: Disk,
    /// When each call had been done, and the call.
    calls: Vec<(Instant, String)>,
    /// The calls that are no writes.
    turns: Vec<usize>,
    /// The longest time for which all threads were suspended.
    stall: Duration,
    begun_at: Instant,
    ended_at: Instant,
}

impl Power<'_> {
    pub fn play(self) -> Result<String, String> {
        let workshop = Folder::new("power-record")?;
        let recorder = Recorder::make(workshop.data())?;
        let writers = Writer::all();
        let mut folder = Folder::new("power")?;
        let (mut calls, mut writes) = (0, 0);
        let sent = || writers.iter().map(Writer::sent).sum::<u64>();
        for round in 0..self.rounds {
            let mut random = Random::new(self.seed + (round << 16));
            if random.chance(FRESH_PERCENT) {
                folder = Folder::new(&format!("power-{round}"))?;
                writers.iter().for_each(|writer| writer.begin_from(Found::default()));
            }
            let before = sent();
            let life = self.live(&folder, &recorder, &writers, round, &mut random)?;
            (calls, writes) = (calls + life.calls.len(), writes + sent().saturating_sub(before));
            for cut in 0..self.cuts {
                let left = Folder::new(&format!("power-{round}-{cut}"))?;
                let found = match self.cut(&life, &left, &writers, round, &mut random) {
                    Ok(found) => found,
                    Err(why) => {
                        let (seed, files) = (self.seed, left.keep());
                        return Err(format!(
                            "round {round}, cut {cut}, seed {seed}: {why}\nthe files: {files}"
                        ));
                    }
                };
                // Life goes on behind the last one.
                if cut + 1 == self.cuts {
                    writers.iter().zip(found).for_each(|(writer, found)| writer.begin_from(found));
                    folder = left;
                }
            }
        }
        Ok(format!("{} power cuts in {calls} calls, {writes} writes", self.rounds * self.cuts))
    }

    fn directives(&self, round: u64) -> [&'static str; 4] {
        match self.policy {
            Policy::Always => log_directives("always", round),
            Policy::Everysec => log_directives("everysec", round),
            Policy::No => log_directives("no", round),
            // With save points a server saves when it ends.
            Policy::Saves => ["--appendonly", "no", "--save", "3600 1"],
        }
    }

    /// Servers start in a folder, serve writers for a while, and end.
    fn live(
        &self,
        folder: &Folder,
        recorder: &Recorder,
        writers: &[Writer],
        round: u64,
        random: &mut Random,
    ) -> Result<Life, String> {
        let mut disk = Disk::of(folder.data()).map_err(|error| error.to_string())?;
        let environment = recorder.environment(folder.data());
        let (now, now_ns) = (Instant::now(), monotonic_ns());
        let is_over = AtomicBool::new(false);
        let (served, stall) = thread::scope(|scope| {
            let watching = scope.spawn(|| longest_stall(&is_over));
            let mut serve = || {
                loop {
                    let directives = self.directives(round);
                    let server = Server::start_in(self.program, folder, &directives, &environment)?;
                    let now = Instant::now();
                    let found =
                        load::check(&server, writers, |writer| self.durable(writer, now, Duration::ZERO))?;
                    writers.iter().zip(found).for_each(|(writer, found)| writer.go_on_from(found));
                    self.serve(server, recorder, writers, random)?;
                    // Records that one server did not sync in its second, the next may.
                    if self.policy == Policy::Everysec || !random.chance(ONE_MORE_PERCENT) {
                        return Ok(());
                    }
                }
            };
            let served: Result<(), String> = serve();
            is_over.store(true, Relaxed);
            (served, watching.join().expect("a thread that sleeps does not panic"))
        });
        served?;
        let recorded = recorder.take()?;
        let when = |call: &Call| now + Duration::from_nanos(call.at_ns - now_ns);
        let calls = recorded.iter().map(|call| (when(call), call.what.show())).collect();
        let is_turn = |call: &Call| !matches!(call.what, What::Write { .. });
        let turns = (0..recorded.len()).filter(|at| is_turn(&recorded[*at])).collect();
        disk.record(recorded)?;
        Ok(Life { disk, calls, turns, stall, begun_at: now, ended_at: Instant::now() })
    }

    /// The last number of a writer that is durable at a moment, as promised, on a machine that suspends threads for up
    /// to `stall`. Under `everysec` that may be the one that writes, the one that syncs, and the one that records it,
    /// one after the other.
    fn durable(&self, writer: &Writer, at: Instant, stall: Duration) -> u64 {
        match self.policy {
            Policy::Always => writer.acknowledged_by(at),
            Policy::Everysec => writer.acknowledged_by(at - EVERYSEC_LOSS_MAX - 3 * stall),
            Policy::No => writer.base(),
            Policy::Saves => writer.saved_by(at),
        }
    }

    /// The last moment at which power can have failed if `calls` calls of a life were done by then: at the end of it,
    /// if these are all.
    fn moment_of(&self, life: &Life, calls: usize) -> Instant {
        match (self.policy, calls.checked_sub(1)) {
            // A server that is killed does not sync the acknowledged writes of its last second.
            (policy, _) if policy != Policy::Everysec && calls == life.calls.len() => life.ended_at,
            (_, Some(last)) => life.calls[last].0,
            (_, None) => life.begun_at,
        }
    }

    fn serve(
        &self,
        server: Server<'_>,
        recorder: &Recorder,
        writers: &[Writer],
        random: &mut Random,
    ) -> Result<(), String> {
        // A rewritten file is synced, and so is one that grows fast, before its second is over; and a disk that is busy
        // with it would have more lost.
        let (time_ms_max, pauses_ms) = match self.policy {
            Policy::Everysec => (EVERYSEC_LOAD_MS_MAX, [1, 1, 5]),
            _ => (LOAD_MS_MAX, [0, 0, 5]),
        };
        let time = Duration::from_millis(random.between(0, time_ms_max) as u64);
        let kind = random.below(pauses_ms.len());
        let beside = match kind {
            _ if self.policy == Policy::Saves => Beside::Saves,
            0 => Beside::Rewrites,
            _ => Beside::Nothing,
        };
        let load = Load { time, pause: Duration::from_millis(pauses_ms[kind]), beside, seed: random.bits() };
        let is_killed = random.chance(KILLED_PERCENT);
        let mut is_saved = false;
        load.play(server, writers, |server| match is_killed {
            true => recorder.kill(server),
            false => is_saved = server.stop().is_ok(),
        })?;
        if is_saved {
            writers.iter().for_each(|writer| writer.note_saved(Instant::now()));
        }
        Ok(())
    }

    /// Power fails at some moment of a life, and a server starts on the rest; returns the numbers that each writer
    /// finds.
    fn cut(
        &self,
        life: &Life,
        folder: &Folder,
        writers: &[Writer],
        round: u64,
        random: &mut Random,
    ) -> Result<Vec<Found>, String> {
        let moment = match random.chance(TURN_PERCENT) && !life.turns.is_empty() {
            true => random.pick(&life.turns) + random.below(2),
            false => random.below(life.calls.len() + 1),
        };
        let tell = |why: String| {
            let from = moment.saturating_sub(TOLD_CALLS);
            let line = |(at, call): &(Instant, String)| {
                format!("  {:4} ms  {call}\n", (*at - life.begun_at).as_millis())
            };
            let told: String = life.calls[from..moment].iter().map(line).collect();
            format!("{why}\npower failed behind call {moment} of {}:\n{told}", life.calls.len())
        };
        life.disk.leave(moment, random, folder.data()).map_err(|error| tell(error.to_string()))?;
        let server = Server::start(self.program, folder, &self.directives(round)).map_err(tell)?;
        let at = self.moment_of(life, moment);
        let found = load::check(&server, writers, |writer| self.durable(writer, at, life.stall));
        let found = found.map_err(|why| tell(format!("{why}\n{}", server.log())))?;
        server.stop()?;
        Ok(found)
    }
}

/// The program that records the calls of a server, one at a time.
struct Recorder {
    library: PathBuf,
    record: PathBuf,
    stop: PathBuf,
}

impl Recorder {
    /// Makes the library with the C compiler.
    fn make(directory: &Path) -> Result<Self, String> {
        let (source, library) = (directory.join("record.c"), directory.join("record.so"));
        fs::write(&source, include_str!("record.c")).map_err(|error| error.to_string())?;
        let compiled = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .arg("-lpthread")
            .status()
            .map_err(|error| format!("cc cannot be run: {error}"))?;
        if !compiled.success() {
            return Err("record.c does not compile".to_owned());
        }
        Ok(Self { library, record: directory.join("record"), stop: directory.join("stop") })
    }

    fn environment<'a>(&'a self, directory: &'a Path) -> [(&'static str, &'a Path); 4] {
        [
            ("LD_PRELOAD", &self.library),
            ("RECORD_DIRECTORY", directory),
            ("RECORD_FILE", &self.record),
            ("RECORD_STOP", &self.stop),
        ]
    }

    /// Kills the server between two calls; if none comes, it can be killed at once.
    fn kill(&self, server: Server<'_>) {
        let _ = fs::write(&self.stop, "");
        server.kill_after(CALLS_WITHIN);
        let _ = fs::remove_file(&self.stop);
    }

    /// The calls that were recorded since.
    fn take(&self) -> Result<Vec<Call>, String> {
        let record = fs::read(&self.record).map_err(|error| format!("nothing was recorded: {error}"))?;
        fs::remove_file(&self.record).map_err(|error| error.to_string())?;
        recording::read(&record)
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// By how much a thread was woken too late, at most, until something is over.
fn longest_stall(is_over: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !is_over.load(Relaxed) {
        let begun = Instant::now();
        thread::sleep(WATCH);
        longest = longest.max(begun.elapsed() - WATCH);
    }
    longest
}
