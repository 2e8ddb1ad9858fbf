//! Access stamps: the one byte of each entry by which eviction ranks keys.
//!
//! Recency (every policy but those below). The byte is the code of an *epoch*, a stretch of time. A table of 256
//! rows says when each epoch began. Codes are handed out as time passes, so they run short; a sweep over all entries
//! then merges old epochs with their neighbours and frees codes (an exponential histogram: Datar, Gionis, Indyk,
//! Motwani, 2002):
//!
//! ```text
//! age       days          hours        minutes      seconds   now
//! epochs    │      7      │    2   │ 9  │ 14│3│8│1│…│ 5│ 6│ 11│     codes in any order
//! sweep     └── 7 ────────┴── 2 ─7─┘         entries of 2 become entries of 7; then 2 is free
//! ```
//!
//! So an age is known to within a fraction of itself, from milliseconds to years, and a stamp never wraps. An entry
//! counts as old as the beginning of its epoch: it may look a little older than it is, never younger.
//!
//! Frequency (the LFU policies). The byte is the logarithmic counter of Redis: an access adds 1 with probability
//! 1 / ((counter - 5) × `lfu-log-factor` + 1), and the sweep takes 1 for each `lfu-decay-time` that passes.
//!
//! Weighed (the `auto` policies). The byte has both, an epoch of 32 and a counter of uses (`super::weighed`).
//!
//! Why a sweep and not a wider stamp: docs/decisions/0028.
//!
//! Invariants:
//! - Codes are live (a row of `Epochs::live`), retired (being merged away by the sweep under way) or free.
//! - No stamp is written with a retired or free code but by a worker whose batch began before its epoch was merged;
//!   such a stamp reads as too old until the code is used again.
//! - The lock of `epochs` is taken last: no thread takes another while holding it.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    entry::EntryRef,
    weighed::{self, Weighing},
};

const CODES: usize = 256;
/// The counter of a new key under an LFU policy.
const FREQUENCY_NEW: u8 = 5;

/// Shortest and longest epochs, in milliseconds.
const EPOCH_MS_MIN: u64 = 16;
const EPOCH_MS_MAX: u64 = 1 << 13;
/// Length of an epoch while no policy asks for a finer one: the resolution of `OBJECT IDLETIME`.
const EPOCH_MS_IDLE: u64 = 1000;
/// Entries that the sweep visits in a second at most, of which epochs must be long enough.
const SWEEP_ENTRIES_PER_SECOND: u64 = 500_000;

/// How many codes there are, and how they are spent.
#[derive(Debug)]
struct Codes {
    /// All of them.
    all: usize,
    /// A sweep begins when fewer are free…
    free_min: usize,
    /// …and merges as many epochs as it takes to have this many again.
    free_wanted: usize,
    /// Kept for entries that are stored with an age (`RESTORE … IDLETIME`, snapshots of other servers).
    free_reserved: usize,
    /// Epochs that a sweep may last.
    epochs_per_sweep: u64,
    /// Epochs in the time that a key spends in memory before it is evicted.
    epochs_per_lifetime: u64,
}

const WHOLE_BYTE: Codes = Codes {
    all: CODES,
    free_min: 64,
    free_wanted: 128,
    free_reserved: 8,
    epochs_per_sweep: 48,
    epochs_per_lifetime: 128,
};

/// Beside a counter of uses.
const UPPER_BITS: Codes = Codes {
    all: weighed::CODES,
    free_min: 8,
    free_wanted: 16,
    free_reserved: 2,
    epochs_per_sweep: 5,
    epochs_per_lifetime: 12,
};

/// The property by which stamps rank keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Ranking {
    /// When they were used last.
    #[default]
    Recency = 0,
    /// How often they are used.
    Frequency = 1,
    /// Both, weighed against each other.
    Weighed = 2,
}

impl Ranking {
    fn codes(self) -> &'static Codes {
        if self == Self::Weighed { &UPPER_BITS } else { &WHOLE_BYTE }
    }
}

/// The values that the accesses of a batch of commands leave in stamps.
#[derive(Debug, Clone, Copy, Default)]
pub struct Access {
    /// The stamp that an access leaves as it is: that of the present epoch, or of a counter that is full.
    settled: u8,
    ranking: Ranking,
    /// Whether few of the new entries are to have a use already (`super::weighed`).
    is_thrashed: bool,
    log_factor: u32,
    /// By epoch, in two bits: how many uses a counter has lost since then.
    lost: u64,
}

impl Access {
    /// Whether an access leaves the stamp of an entry as it is.
    #[inline]
    pub(crate) fn is_settled(&self, entry: EntryRef<'_>) -> bool {
        entry.access() == self.settled
    }

    /// The touch of a single entry, with a random number if it needs one.
    #[inline]
    pub(crate) fn one(self, random: impl FnOnce() -> u64) -> Touch {
        let Self { settled, ranking, is_thrashed, log_factor, lost } = self;
        let counted_below = match ranking {
            Ranking::Recency => 0,
            Ranking::Frequency => drawn(log_factor, random),
            Ranking::Weighed => weighed::counted_below(random()),
        };
        Touch { settled, ranking, counted_below, is_thrashed, lost }
    }
}

#[cold]
#[inline(never)]
fn drawn(log_factor: u32, random: impl FnOnce() -> u64) -> u8 {
    counted_below(log_factor, random())
}

/// From which counter on an access that has drawn this random number is not counted: a counter `c` grows with
/// probability 1 / ((c - 5) × `log_factor` + 1).
fn counted_below(log_factor: u32, random: u64) -> u8 {
    let steps = (1 << 32) / (u64::from(random as u32) + 1);
    let above = match log_factor {
        0 => u64::from(u8::MAX),
        factor => (steps - 1) / u64::from(factor) + 1,
    };
    u64::from(FREQUENCY_NEW).saturating_add(above).min(u8::MAX.into()) as u8
}

/// The value that an access leaves in a stamp.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Touch {
    settled: u8,
    ranking: Ranking,
    counted_below: u8,
    is_thrashed: bool,
    lost: u64,
}

impl Touch {
    /// The stamp of a new entry.
    #[inline]
    pub(super) fn fresh(self) -> u8 {
        match self.ranking {
            Ranking::Recency => self.settled,
            Ranking::Frequency => FREQUENCY_NEW,
            Ranking::Weighed => {
                let is_favoured = self.is_thrashed && self.counted_below == weighed::USES_MAX;
                weighed::stamp(weighed::code(self.settled), u8::from(is_favoured))
            }
        }
    }

    /// Whether entries are ranked by age and uses: then the ranking learns from entries that come back.
    #[inline]
    pub(super) fn is_weighed(self) -> bool {
        self.ranking == Ranking::Weighed
    }

    /// Whether it leaves a stamp as it is.
    #[inline]
    pub(super) fn is_settled(self, stamp: u8) -> bool {
        self.settled == stamp
    }

    /// The stamp of an entry that had `stamp` before.
    #[inline]
    pub(super) fn after(self, stamp: u8) -> u8 {
        match self.ranking {
            Ranking::Recency => self.settled,
            Ranking::Frequency => stamp + u8::from(stamp < self.counted_below),
            Ranking::Weighed => {
                let lost = self.lost >> (2 * weighed::code(stamp)) & 3;
                let uses = weighed::uses(stamp).saturating_sub(lost as u8);
                weighed::stamp(weighed::code(self.settled), uses + u8::from(uses < self.counted_below))
            }
        }
    }
}

/// The epochs of a keyspace.
pub struct AccessClock {
    /// The code of the present epoch.
    current: AtomicU8,
    /// When the present epoch ends, in unix milliseconds.
    ends_ms: AtomicU64,
    ranking: AtomicU8,
    log_factor: AtomicU32,
    decay_minutes: AtomicU32,
    /// Length of epochs to come, for readers without the lock.
    length_ms: AtomicU64,
    /// How old keys are when they are evicted, in milliseconds, on a moving average; 0 while none is.
    victim_age_ms: AtomicU64,
    /// By epoch of the weighed ranking, in two bits: how many uses a counter has lost since then.
    lost: AtomicU64,
    weighing: Weighing,
    /// By code: when the epoch began, in unix milliseconds.
    starts_ms: [AtomicU64; CODES],
    epochs: Mutex<Epochs>,
    /// The sweep under way. A worker takes it to do a slice of the sweep, before locks of stripes.
    pub(crate) sweep: Mutex<Option<Sweep>>,
}

impl std::fmt::Debug for AccessClock {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("AccessClock").field("current", &self.current).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Epoch {
    start_ms: u64,
    code: u8,
}

#[derive(Debug)]
struct Epochs {
    /// By when they began.
    live: Vec<Epoch>,
    free: VecDeque<u8>,
    /// Length of epochs to come.
    length_ms: u64,
    /// The meaning of the stamps, but for those that a sweep has yet to convert.
    stamped: Ranking,
    /// Up to when counters have been decayed.
    decayed_ms: u64,
    /// Entries that the last sweep has visited.
    entries: u64,
}

/// A sweep over all entries: the new value of each stamp, and how far the sweep is.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub(crate) stamps: [u8; CODES],
    retired: Vec<u8>,
    pub(crate) stripe: usize,
    pub(crate) database: usize,
    pub(crate) cursor: u64,
    pub(crate) entries: u64,
}

impl Sweep {
    fn new(stamps: [u8; CODES], retired: Vec<u8>) -> Self {
        Self { stamps, retired, stripe: 0, database: 0, cursor: 0, entries: 0 }
    }

    /// This sweep for stamps that have counters of uses in their lower bits, which stay.
    fn of_upper_bits(self) -> Self {
        let by_code = self.stamps;
        let stamps = std::array::from_fn(|stamp| {
            let (code, uses) = (weighed::code(stamp as u8), weighed::uses(stamp as u8));
            weighed::stamp(by_code[usize::from(code)], uses)
        });
        Self { stamps, ..self }
    }
}

/// Stamps that do not change.
fn unchanged() -> [u8; CODES] {
    std::array::from_fn(|code| code as u8)
}

impl Epochs {
    /// How the codes of their stamps are spent.
    fn codes(&self) -> &'static Codes {
        self.stamped.codes()
    }
}

impl Default for AccessClock {
    fn default() -> Self {
        Self {
            current: AtomicU8::new(0),
            ends_ms: AtomicU64::new(0),
            ranking: AtomicU8::new(Ranking::Recency as u8),
            log_factor: AtomicU32::new(10),
            decay_minutes: AtomicU32::new(1),
            length_ms: AtomicU64::new(EPOCH_MS_IDLE),
            victim_age_ms: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            weighing: Weighing::default(),
            starts_ms: [const { AtomicU64::new(0) }; CODES],
            epochs: Mutex::new(Epochs {
                live: Vec::new(),
                free: (0..=u8::MAX).collect(),
                length_ms: EPOCH_MS_IDLE,
                stamped: Ranking::Recency,
                decayed_ms: 0,
                entries: 0,
            }),
            sweep: Mutex::new(None),
        }
    }
}

impl AccessClock {
    fn epochs(&self) -> MutexGuard<'_, Epochs> {
        self.epochs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The property by which stamps rank keys now.
    #[inline]
    pub fn ranking(&self) -> Ranking {
        match self.ranking.load(Relaxed) {
            0 => Ranking::Recency,
            1 => Ranking::Frequency,
            _ => Ranking::Weighed,
        }
    }

    /// The weights of the ranking by age and uses.
    pub(crate) fn weighing(&self) -> &Weighing {
        &self.weighing
    }

    /// Octaves of age or size that one use of a key outweighs under the policies `auto`.
    pub fn weight_of_a_use(&self) -> f64 {
        self.weighing.weight()
    }

    /// Sets the order by which stamps rank keys, with `lfu-log-factor` and `lfu-decay-time`. Stamps of the other kind
    /// are converted by the next sweep.
    pub fn configure(&self, ranking: Ranking, log_factor: u32, decay_minutes: u32) {
        self.log_factor.store(log_factor, Relaxed);
        self.decay_minutes.store(decay_minutes, Relaxed);
        self.ranking.store(ranking as u8, Relaxed);
    }

    /// The values that accesses at a time leave in stamps. To be called once for a batch of commands.
    #[inline]
    pub fn access(&self, now_ms: u64) -> Access {
        let ranking = self.ranking();
        let access = Access { ranking, ..Access::default() };
        if ranking == Ranking::Frequency {
            return Access { settled: u8::MAX, log_factor: self.log_factor.load(Relaxed), ..access };
        }
        if now_ms >= self.ends_ms.load(Relaxed) {
            self.begin_epoch(now_ms);
        }
        let settled = self.current.load(Relaxed);
        if ranking == Ranking::Recency {
            return Access { settled, ..access };
        }
        let is_thrashed = self.weighing.is_thrashed();
        let lost = if is_thrashed { 0 } else { self.lost.load(Relaxed) };
        Access { settled: weighed::stamp(settled, weighed::USES_MAX), is_thrashed, lost, ..access }
    }

    #[cold]
    fn begin_epoch(&self, now_ms: u64) {
        // The thread that holds the lock is doing the same.
        if let Ok(mut epochs) = self.epochs.try_lock()
            && now_ms >= self.ends_ms.load(Relaxed)
        {
            self.open(&mut epochs, now_ms);
        }
    }

    fn open(&self, epochs: &mut Epochs, now_ms: u64) {
        // Without a free code the present epoch goes on.
        if epochs.free.len() > epochs.codes().free_reserved
            && epochs.live.last().is_none_or(|last| last.start_ms < now_ms)
            && let Some(code) = epochs.free.pop_front()
        {
            self.starts_ms[usize::from(code)].store(now_ms, Relaxed);
            epochs.live.push(Epoch { start_ms: now_ms, code });
            self.current.store(code, Relaxed);
        }
        self.ends_ms.store(now_ms + epochs.length_ms, Relaxed);
        if epochs.stamped == Ranking::Weighed {
            let victim_age_ms = self.victim_age_ms.load(Relaxed);
            let lost = |epoch: &Epoch| {
                weighed::lost(now_ms.saturating_sub(epoch.start_ms), victim_age_ms) << (2 * epoch.code)
            };
            self.lost.store(epochs.live.iter().map(lost).fold(0, |all, one| all | one), Relaxed);
        }
    }

    /// When the epoch of a stamp began, in unix milliseconds.
    #[inline]
    pub(crate) fn start_ms(&self, stamp: u8) -> u64 {
        self.starts_ms[usize::from(self.code(stamp))].load(Relaxed)
    }

    /// The code of the epoch in a stamp.
    #[inline]
    fn code(&self, stamp: u8) -> u8 {
        if self.ranking() == Ranking::Weighed { weighed::code(stamp) } else { stamp }
    }

    /// Milliseconds since an entry with that stamp was last used, at least that, and 0 in the present epoch.
    pub(crate) fn idle_ms(&self, stamp: u8, now_ms: u64) -> u64 {
        if self.code(stamp) == self.current.load(Relaxed) && now_ms < self.ends_ms.load(Relaxed) {
            return 0;
        }
        now_ms.saturating_sub(self.start_ms(stamp))
    }

    /// The stamp of an entry that was last used `age_ms` before `now_ms`.
    pub(crate) fn stamp_of_age(&self, age_ms: u64, now_ms: u64) -> u8 {
        let code = self.code_of_age(age_ms, now_ms);
        if self.ranking() == Ranking::Weighed { weighed::stamp(code, 0) } else { code }
    }

    fn code_of_age(&self, age_ms: u64, now_ms: u64) -> u8 {
        let at_ms = now_ms.saturating_sub(age_ms);
        let mut epochs = self.epochs();
        if epochs.live.is_empty() {
            self.open(&mut epochs, now_ms);
        }
        let behind = epochs.live.partition_point(|epoch| epoch.start_ms <= at_ms);
        let found = behind.checked_sub(1).map(|at| &epochs.live[at]);
        // With many codes free an epoch is made for nearly every age.
        let codes = epochs.codes();
        let fraction = if epochs.free.len() >= codes.free_wanted { codes.epochs_per_lifetime } else { 8 };
        if let Some(epoch) = found
            && at_ms - epoch.start_ms <= (age_ms / fraction).max(epochs.length_ms)
        {
            return epoch.code;
        }
        if epochs.free.len() > codes.free_reserved / 2
            && let Some(code) = epochs.free.pop_front()
        {
            self.starts_ms[usize::from(code)].store(at_ms, Relaxed);
            epochs.live.insert(behind, Epoch { start_ms: at_ms, code });
            return code;
        }
        // Too old rather than too young.
        let at = behind.saturating_sub(1);
        let oldest = &mut epochs.live[at];
        if oldest.start_ms > at_ms {
            oldest.start_ms = at_ms;
            self.starts_ms[usize::from(oldest.code)].store(at_ms, Relaxed);
        }
        epochs.live[at].code
    }

    /// Learns how old a key was that has just been evicted: epochs are to be much shorter.
    pub(crate) fn note_victim(&self, age_ms: u64) {
        let before = self.victim_age_ms.load(Relaxed);
        let after = if before == 0 { age_ms } else { (before * 15 + age_ms) / 16 };
        self.victim_age_ms.store(after.max(1), Relaxed);
        if after / self.ranking().codes().epochs_per_lifetime < self.length_ms.load(Relaxed) / 2 {
            self.shorten_epochs();
        }
    }

    #[cold]
    fn shorten_epochs(&self) {
        let Ok(mut epochs) = self.epochs.try_lock() else { return };
        let wanted_ms = self.wanted_length_ms(epochs.entries);
        if wanted_ms <= epochs.length_ms / 2 {
            self.set_length(&mut epochs, wanted_ms);
            // The present one ends now.
            self.ends_ms.store(0, Relaxed);
        }
    }

    fn set_length(&self, epochs: &mut Epochs, length_ms: u64) {
        epochs.length_ms = length_ms;
        self.length_ms.store(length_ms, Relaxed);
    }

    fn wanted_length_ms(&self, entries: u64) -> u64 {
        let codes = self.ranking().codes();
        let wanted = match self.victim_age_ms.load(Relaxed) {
            0 => EPOCH_MS_IDLE,
            age_ms => (age_ms / codes.epochs_per_lifetime).min(EPOCH_MS_IDLE),
        };
        let possible = entries * 1000 / SWEEP_ENTRIES_PER_SECOND / codes.epochs_per_sweep;
        wanted.max(possible).clamp(EPOCH_MS_MIN, EPOCH_MS_MAX)
    }

    /// The sweep that is due, if one is.
    pub(crate) fn due_sweep(&self, now_ms: u64) -> Option<Sweep> {
        let mut epochs = self.epochs();
        let ranking = self.ranking();
        if let Some(last) = epochs.live.last()
            && now_ms + EPOCH_MS_MAX < last.start_ms
        {
            // The clock was set back: epochs begin as much earlier.
            let back_ms = last.start_ms - now_ms;
            for epoch in &mut epochs.live {
                epoch.start_ms = epoch.start_ms.saturating_sub(back_ms);
                self.starts_ms[usize::from(epoch.code)].store(epoch.start_ms, Relaxed);
            }
            self.ends_ms.store(now_ms, Relaxed);
            epochs.decayed_ms = epochs.decayed_ms.min(now_ms);
        }
        if epochs.stamped != ranking {
            epochs.stamped = ranking;
            epochs.decayed_ms = now_ms;
            return Some(self.conversion(&mut epochs, ranking, now_ms));
        }
        match ranking {
            Ranking::Frequency => {
                let period_ms = u64::from(self.decay_minutes.load(Relaxed)) * 60_000;
                let periods = now_ms.saturating_sub(epochs.decayed_ms).checked_div(period_ms).unwrap_or(0);
                if periods == 0 {
                    return None;
                }
                epochs.decayed_ms += periods * period_ms;
                let periods = periods.min(u8::MAX.into()) as u8;
                Some(Sweep::new(std::array::from_fn(|code| (code as u8).saturating_sub(periods)), Vec::new()))
            }
            Ranking::Recency | Ranking::Weighed => {
                let codes = epochs.codes();
                if epochs.free.len() >= codes.free_min {
                    return None;
                }
                let sweep = merge(&mut epochs.live, codes, now_ms);
                Some(if ranking == Ranking::Weighed { sweep.of_upper_bits() } else { sweep })
            }
        }
    }

    /// A sweep that gives all entries stamps of another kind.
    fn conversion(&self, epochs: &mut Epochs, ranking: Ranking, now_ms: u64) -> Sweep {
        match ranking {
            Ranking::Frequency => Sweep::new([FREQUENCY_NEW; CODES], Vec::new()),
            Ranking::Recency | Ranking::Weighed => {
                // How long ago the keys were used is not known: since the change of policy.
                epochs.live.clear();
                epochs.free = (0..ranking.codes().all).map(|code| code as u8).collect();
                self.open(epochs, now_ms);
                let current = self.current.load(Relaxed);
                let stamp = if ranking == Ranking::Weighed { weighed::stamp(current, 0) } else { current };
                Sweep::new([stamp; CODES], Vec::new())
            }
        }
    }

    /// All entries have been visited.
    pub(crate) fn end_sweep(&self, sweep: &Sweep) {
        let mut epochs = self.epochs();
        epochs.free.extend(&sweep.retired);
        epochs.entries = sweep.entries;
        let wanted_ms = self.wanted_length_ms(sweep.entries);
        self.set_length(&mut epochs, wanted_ms);
        // If evictions have ended, fine epochs are of no use.
        let age_ms = self.victim_age_ms.load(Relaxed);
        if age_ms > 0 {
            let doubled = age_ms.saturating_mul(2);
            let forgotten = doubled > EPOCH_MS_IDLE * WHOLE_BYTE.epochs_per_lifetime;
            self.victim_age_ms.store(if forgotten { 0 } else { doubled }, Relaxed);
        }
    }

    /// Databases have changed places: the sweep under way begins anew, to miss no entry.
    pub(crate) fn restart_sweep(&self) {
        let mut sweep = self.sweep.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sweep) = &mut *sweep {
            (sweep.stripe, sweep.database, sweep.cursor, sweep.entries) = (0, 0, 0, 0);
        }
    }
}

/// Merges epochs with their older neighbours, as few as will do: the span of a merged epoch is a small part of its
/// age.
fn merge(live: &mut Vec<Epoch>, codes: &Codes, now_ms: u64) -> Sweep {
    let kept_max = codes.all - codes.free_wanted;
    let mut kept = Vec::new();
    for octaves in -6..=6 {
        kept = spared(live, now_ms, octaves);
        if kept.iter().filter(|kept| **kept).count() <= kept_max {
            break;
        }
    }
    let (mut stamps, mut retired) = (unchanged(), Vec::new());
    let mut leader = 0;
    for (epoch, kept) in live.iter().zip(&kept) {
        if *kept {
            leader = epoch.code;
        } else {
            stamps[usize::from(epoch.code)] = leader;
            retired.push(epoch.code);
        }
    }
    let mut kept = kept.into_iter();
    live.retain(|_| kept.next().unwrap_or(true));
    Sweep::new(stamps, retired)
}

/// For each epoch whether it stays, if those may be merged that span together no more than their age times two to the
/// power of `octaves`.
fn spared(live: &[Epoch], now_ms: u64, octaves: i32) -> Vec<bool> {
    let mut kept = vec![true; live.len()];
    let mut leader_ms = None;
    for (at, epoch) in live.iter().enumerate() {
        // The last epoch is going on.
        let Some(next) = live.get(at + 1) else { break };
        let age_ms = now_ms.saturating_sub(next.start_ms);
        let span_ms_max = if octaves < 0 { age_ms >> -octaves } else { age_ms << octaves };
        match leader_ms {
            Some(leader_ms) if next.start_ms - leader_ms <= span_ms_max => kept[at] = false,
            _ => leader_ms = Some(epoch.start_ms),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START_MS: u64 = 1_700_000_000_000;

    /// A clock with entries that it sweeps at once, each with the time of its last use.
    struct Model {
        clock: AccessClock,
        now_ms: u64,
        entries: Vec<(u8, u64)>,
    }

    impl Model {
        fn new() -> Self {
            Self { clock: AccessClock::default(), now_ms: START_MS, entries: Vec::new() }
        }

        fn pass(&mut self, milliseconds: u64) {
            self.now_ms += milliseconds;
            self.clock.access(self.now_ms);
            if let Some(mut sweep) = self.clock.due_sweep(self.now_ms) {
                for (stamp, _) in &mut self.entries {
                    *stamp = sweep.stamps[usize::from(*stamp)];
                }
                sweep.entries = self.entries.len() as u64;
                self.clock.end_sweep(&sweep);
            }
        }

        fn add(&mut self, age_ms: u64) {
            let stamp = match age_ms {
                0 => self.clock.access(self.now_ms).one(|| 0).fresh(),
                age_ms => self.clock.stamp_of_age(age_ms, self.now_ms),
            };
            self.entries.push((stamp, self.now_ms - age_ms));
        }

        fn check(&self) {
            for (stamp, used_ms) in &self.entries {
                let (age, idle) = (self.now_ms - used_ms, self.clock.idle_ms(*stamp, self.now_ms));
                assert!(idle + EPOCH_MS_MAX > age, "{idle} ms idle, {age} ms old: too young");
                assert!(idle <= age + age / 2 + 2 * EPOCH_MS_MAX, "{idle} ms idle, {age} ms old: too old");
            }
        }
    }

    proptest! {
        #[test]
        fn ages_are_known_to_within_a_part_of_themselves(
            steps in proptest::collection::vec(
                prop_oneof![4 => 1..2_000_u64, 2 => 1..100_000_u64, 1 => 1..100_000_000_u64], 1..1500),
            ages in proptest::collection::vec(prop_oneof![0..1000_u64, 0..10_000_000_000_u64], 0..20),
        ) {
            let mut model = Model::new();
            model.pass(0);
            ages.iter().for_each(|age| model.add(*age));
            for step in steps {
                model.pass(step);
                model.add(0);
                model.check();
            }
        }
    }

    #[test]
    fn idle_time_of_an_hour_is_not_twenty_five_minutes() {
        let mut model = Model::new();
        model.pass(0);
        model.add(0);
        for _ in 0..3600 {
            model.pass(1000);
            model.add(0);
        }
        let idle = model.clock.idle_ms(model.entries[0].0, model.now_ms);
        assert!((3_600_000..3_700_000).contains(&idle), "{idle}");
    }

    #[test]
    fn epochs_shorten_where_keys_are_evicted_young() {
        let mut model = Model::new();
        model.pass(0);
        for _ in 0..100 {
            model.clock.note_victim(2000);
        }
        let stamps: Vec<u8> = (0..100)
            .map(|_| {
                model.pass(20);
                model.add(0);
                model.entries.last().unwrap().0
            })
            .collect();
        let distinct: std::collections::BTreeSet<_> = stamps[50..].iter().collect();
        assert!(distinct.len() > 40, "{}", distinct.len());
        model.check();
    }

    #[test]
    fn lfu_counter_grows_logarithmically_and_decays_with_time() {
        let clock = AccessClock::default();
        clock.configure(Ranking::Frequency, 10, 1);
        assert!(clock.due_sweep(START_MS).is_some(), "stamps are converted");
        let mut random = crate::random::Random::new(7);
        let mut count = |uses: usize| {
            let access = clock.access(START_MS);
            (0..uses).fold(access.one(|| 0).fresh(), |stamp, _| access.one(|| random.bits()).after(stamp))
        };
        // The table of redis.conf: 10 after 100 uses, 18 after 1,000, 142 after 100,000.
        assert_eq!(count(0), 5);
        assert!((8..=12).contains(&count(100)));
        assert!((15..=22).contains(&count(1000)));
        assert!((125..=160).contains(&count(100_000)));
        assert!(clock.due_sweep(START_MS + 59_999).is_none());
        let sweep = clock.due_sweep(START_MS + 180_000).unwrap();
        assert_eq!((sweep.stamps[0], sweep.stamps[2], sweep.stamps[200]), (0, 0, 197));
        assert!(clock.due_sweep(START_MS + 180_001).is_none());
    }

    #[test]
    fn clock_set_back_makes_no_key_younger() {
        let mut model = Model::new();
        model.pass(0);
        model.add(0);
        model.pass(100_000);
        let idle = model.clock.idle_ms(model.entries[0].0, model.now_ms);
        model.now_ms -= 50_000;
        model.pass(0);
        assert_eq!(model.clock.idle_ms(model.entries[0].0, model.now_ms), idle);
    }
}
