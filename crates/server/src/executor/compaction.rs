//! Active defragmentation: when entries are moved together, and how much of a worker's time that may take.
//!
//! ```text
//! free part of pages   0 ── threshold-lower ────────── threshold-upper ──▶
//! part of the time     none   cycle-min  ─── rises ───  cycle-max
//! ```
//!
//! Each worker looks after its share of the stripes, a slice at a time, between two looks at its clients
//! (`engine/compaction.rs`). A round that has emptied no page is not repeated until more is free, or for a while.

use std::time::{Duration, Instant};

use dunlin_engine::{Compaction, Slack, keyspace::Inside};

use super::Executor;
use crate::config::Config;

/// How long a slice takes.
const SLICE: Duration = Duration::from_micros(500);
/// How long a round without gain is not repeated if nothing changes.
const VAIN_PAUSE: Duration = Duration::from_secs(10);
/// How often a worker looks whether there is something to do.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A worker's work against fragmentation.
#[derive(Debug)]
pub(super) struct Defragmentation {
    compaction: Compaction,
    /// Percent of its time, 0 while there is nothing to do.
    effort: u32,
    /// When to go on, or to look again.
    due: Option<Instant>,
    /// When it looked last how much is free.
    looked: Option<Instant>,
    /// Pages that this round has emptied.
    pages: usize,
    /// Bytes that were free after a round without gain, and when that ended.
    vain: Option<(usize, Instant)>,
}

impl Defragmentation {
    pub(super) fn new(worker: usize, workers: usize) -> Self {
        Self {
            compaction: Compaction::new(worker, workers),
            effort: 0,
            due: None,
            looked: None,
            pages: 0,
            vain: None,
        }
    }
}

/// Percent of a worker's time that a share with that much free memory is worth; 0 for none. As Redis reckons it.
fn effort(config: &Config, workers: usize, slack: Slack) -> u32 {
    let used = (slack.page_bytes - slack.free_bytes).max(1);
    let percent = slack.free_bytes as f64 * 100.0 / used as f64;
    let (lower, upper) = (config.active_defrag_threshold_lower, config.active_defrag_threshold_upper);
    let is_little = slack.free_bytes as u64 * (workers as u64) < config.active_defrag_ignore_bytes;
    if !config.activedefrag || is_little || percent < f64::from(lower) {
        return 0;
    }
    let (least, most) = (config.active_defrag_cycle_min, config.active_defrag_cycle_max);
    let range = f64::from(upper) - f64::from(lower);
    let part = if range > 0.0 { ((percent - f64::from(lower)) / range).min(1.0) } else { 1.0 };
    (f64::from(least) + part * (f64::from(most) - f64::from(least))) as u32
}

impl Executor {
    /// Moves some entries together, if that is due. Returns how long the worker may wait before the next slice.
    pub(super) fn defragment(&mut self, inside: &Inside<'_>) -> Duration {
        let now = Instant::now();
        if let Some(due) = self.defragmentation.due
            && due > now
        {
            let is_running = self.defragmentation.effort > 0;
            return if is_running { due - now } else { Duration::MAX };
        }
        if self.defragmentation.looked.is_none_or(|looked| now >= looked + LOOK_INTERVAL) {
            self.look_at_slack(inside, now);
        }
        if self.defragmentation.effort == 0 {
            self.defragmentation.due = Some(now + LOOK_INTERVAL);
            return Duration::MAX;
        }
        self.defragment_slice(inside, now)
    }

    /// Looks how much is free, and decides how much time that is worth. The share of time changes within a round, too.
    fn look_at_slack(&mut self, inside: &Inside<'_>, now: Instant) {
        let (shared, this) = (&self.shared, &mut self.defragmentation);
        let slack = shared.engine.slack(inside, &this.compaction);
        let effort = effort(self.config.config(), shared.workers, slack);
        let is_vain = this.vain.is_some_and(|(free_bytes, then)| {
            now < then + VAIN_PAUSE && slack.free_bytes < free_bytes + slack.page_bytes / 32
        });
        this.effort = if is_vain { 0 } else { effort };
        this.looked = Some(now);
        shared.stats.defragmentation.note(self.worker.id(), this.effort, self.now.steady_ms);
    }

    fn defragment_slice(&mut self, inside: &Inside<'_>, started: Instant) -> Duration {
        let (shared, this) = (&self.shared, &mut self.defragmentation);
        let counters = &self.worker.statistics;
        loop {
            let slice = shared.engine.compact(inside, &mut this.compaction);
            counters.moved_entries.add(slice.moved as u64);
            counters.left_entries.add(slice.left as u64);
            this.pages += slice.pages;
            if slice.complete {
                if this.pages == 0 {
                    let slack = shared.engine.slack(inside, &this.compaction);
                    this.vain = Some((slack.free_bytes, started));
                }
                this.pages = 0;
                self.look_at_slack(inside, started);
                break;
            }
            if started.elapsed() >= SLICE {
                break;
            }
        }
        let took = started.elapsed();
        let effort = self.defragmentation.effort;
        let rest = match effort {
            0 => LOOK_INTERVAL,
            _ => took * (100 - effort) / effort,
        };
        self.defragmentation.due = Some(started + took + rest);
        if took.as_millis() as u64 >= self.meter.thresholds().event_ms {
            let time_s = self.caller.now_ms / 1000;
            self.shared.stats.latency.record("active-defrag-cycle", time_s, took.as_millis() as u64);
        }
        if effort > 0 { rest } else { Duration::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effort_rises_between_the_thresholds() {
        let config = Config {
            active_defrag_ignore_bytes: 1000,
            active_defrag_threshold_lower: 10,
            active_defrag_threshold_upper: 110,
            active_defrag_cycle_min: 5,
            active_defrag_cycle_max: 25,
            ..Config::default()
        };
        let effort_at =
            |free_bytes, config| effort(config, 2, Slack { page_bytes: 10_000 + free_bytes, free_bytes });
        assert_eq!(
            [999, 1000, 6000, 11_000, 90_000].map(|free| effort_at(free, &config)),
            [0, 5, 15, 25, 25]
        );
        let ignoring = Config { active_defrag_ignore_bytes: 12_001, ..config.clone() };
        assert_eq!(effort_at(6000, &ignoring), 0, "both workers together have less than that");
        let same = Config { active_defrag_threshold_upper: 10, ..config.clone() };
        assert_eq!(effort_at(1000, &same), 25);
        assert_eq!(effort_at(11_000, &Config { activedefrag: false, ..config.clone() }), 0);
    }
}
