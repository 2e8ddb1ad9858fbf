//! The ranking that needs no choosing: when an entry was last used *and* how often, weighed against each other.
//!
//! ```text
//! stamp     7      3 2    0
//!           │ epoch │ uses │      32 epochs (super::access), a counter of up to 7
//! ```
//!
//! The entry goes whose `log2(age) + log2(bytes) - weight × uses` is largest. A new entry has no uses; a use adds one
//! with probability `2^-(uses - 1)`. Before that, the counter loses one for each doubling of the time since the last
//! use, from half the age at which entries are evicted on.
//!
//! The weight learns from mistakes. Some evictions are noted with their reason: the entry was the oldest of the candidates
//! ([`Reason::Age`]), or the least used ([`Reason::Uses`]). A key that comes back while it is noted was a mistake for
//! that reason. The weight of uses rises while evictions for age are wrong more often than those for few uses, and falls
//! while they are wrong less often.
//!
//! If hardly any entry is ever used again the cache is thrashed, as by a loop that does not fit. Then entries without
//! uses give way first but for one in 32 of the new ones, so that a part of the loop stays (bimodal insertion: Qureshi
//! et al., 2007).
//!
//! Figures and what did not win: docs/decisions/0029.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};

/// Bits of the counter of uses in a stamp.
pub(super) const USES_BITS: u32 = 3;
/// The highest value of the counter.
pub(super) const USES_MAX: u8 = (1 << USES_BITS) - 1;
/// Epochs that a stamp can number.
pub(super) const CODES: usize = 1 << (8 - USES_BITS);

/// Octaves of age that ranks have for one unit, as a power of two: ranks are integers.
const OCTAVE_BITS: u32 = 8;
/// The weight of a use at first, its least and its most, in ranks: 2 octaves, 0.1 and 12.
const WEIGHT_FIRST: u32 = 2 << OCTAVE_BITS;
const WEIGHT_MIN: u32 = 26;
const WEIGHT_MAX: u32 = 12 << OCTAVE_BITS;
/// Mistakes between two changes of the weight.
const MISTAKES_PER_STEP: u32 = 32;
/// A step of the weight, and by how much mistakes have to differ for one.
const STEP: f64 = 1.03;
const DIFFERENCE: f64 = 1.02;
/// The part of the counts that each step leaves.
const REMEMBERED: f64 = 0.98;
/// Above all ranks by age and size: entries without uses while the cache is thrashed.
const THRASHED: u64 = 1 << 20;
/// The base of ranks: the most that uses take away.
const BASE: u64 = (USES_MAX as u64) * (WEIGHT_MAX as u64);

/// Sampled entries over which the share of those with uses is averaged, and the unit of the share.
const SHARE_SAMPLES: u32 = 2048;
const SHARE_UNIT: u32 = 1 << 24;
/// The share below which the cache counts as thrashed, and the one above which it no longer does.
const THRASHED_BELOW: u32 = SHARE_UNIT / 64;
const SOUND_ABOVE: u32 = SHARE_UNIT / 10 * 9;

/// Evictions that a part of a database notes, a power of two.
const NOTES: usize = 256;

/// The epoch in a stamp.
#[inline]
pub(super) fn code(stamp: u8) -> u8 {
    stamp >> USES_BITS
}

/// The counter of uses in a stamp.
#[inline]
pub(super) fn uses(stamp: u8) -> u8 {
    stamp & USES_MAX
}

/// A stamp. The upper bits of a code that is too large, as while stamps are converted, are dropped.
#[inline]
pub(super) fn stamp(code: u8, uses: u8) -> u8 {
    code << USES_BITS | uses
}

/// From which counter on a use that has drawn this random number is not counted.
#[inline]
pub(super) fn counted_below(random: u64) -> u8 {
    (random.leading_zeros() as u8 + 2).min(USES_MAX)
}

/// How many uses a counter has lost since an entry was last used, as many as two bits hold.
pub(super) fn lost(age_ms: u64, victim_age_ms: u64) -> u64 {
    match age_ms.checked_div(victim_age_ms.div_ceil(2)) {
        None | Some(0) => 0,
        Some(halves) => u64::from(halves.ilog2() + 1).min(3),
    }
}

/// Why an entry was evicted rather than another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The victim was older than the others, not less used.
    Age = 0,
    /// The victim was less used than the others, not older.
    Uses = 1,
}

/// Evictions of each reason, and those that were mistakes.
#[derive(Debug, Default)]
struct Tally {
    noted: [f64; 2],
    mistakes: [f64; 2],
    since_step: u32,
}

/// The state that the ranking has learned.
#[derive(Debug)]
pub(crate) struct Weighing {
    /// Ranks that a use takes away.
    weight: AtomicU32,
    /// The share of sampled entries that have uses.
    used_share: AtomicU32,
    is_thrashed: AtomicBool,
    tally: Mutex<Tally>,
}

impl Default for Weighing {
    fn default() -> Self {
        Self {
            weight: AtomicU32::new(WEIGHT_FIRST),
            used_share: AtomicU32::new(SHARE_UNIT / 2),
            is_thrashed: AtomicBool::new(false),
            tally: Mutex::default(),
        }
    }
}

impl Weighing {
    /// Octaves of age and size that a use outweighs.
    pub(crate) fn weight(&self) -> f64 {
        f64::from(self.weight.load(Relaxed)) / f64::from(1 << OCTAVE_BITS)
    }

    /// Whether hardly any entry is used again before it is evicted.
    #[inline]
    pub(crate) fn is_thrashed(&self) -> bool {
        self.is_thrashed.load(Relaxed)
    }

    /// How much an entry is worth removing.
    pub(crate) fn rank(&self, stamp: u8, age_ms: u64, bytes: usize) -> u64 {
        let uses = uses(stamp);
        if uses == 0 && self.is_thrashed() {
            // Any of them: the oldest of a loop is the one that it needs next.
            return BASE + THRASHED + log2(bytes as u64);
        }
        let weight = u64::from(self.weight.load(Relaxed));
        (BASE + log2(age_ms) + log2(bytes as u64)).saturating_sub(weight * u64::from(uses))
    }

    /// Learns of `sampled` entries, `used` of which have uses.
    pub(crate) fn note_sample(&self, sampled: u32, used: u32) {
        let mut share = self.used_share.load(Relaxed);
        share -= share / SHARE_SAMPLES * sampled;
        share = (share + SHARE_UNIT / SHARE_SAMPLES * used).min(SHARE_UNIT);
        self.used_share.store(share, Relaxed);
        if share < THRASHED_BELOW {
            self.is_thrashed.store(true, Relaxed);
        } else if share > SOUND_ABOVE {
            self.is_thrashed.store(false, Relaxed);
        }
    }

    /// Learns of an eviction that was noted, and of mistakes that the same part has seen meanwhile.
    pub(crate) fn learn(&self, noted: Option<Reason>, mistakes: [u32; 2]) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = noted {
            tally.noted[reason as usize] += 1.0;
        }
        for (sum, count) in tally.mistakes.iter_mut().zip(mistakes) {
            *sum += f64::from(count);
        }
        tally.since_step += mistakes[0] + mistakes[1];
        if tally.since_step < MISTAKES_PER_STEP {
            return;
        }
        tally.since_step = 0;
        let rates: [f64; 2] =
            std::array::from_fn(|reason| tally.mistakes[reason] / tally.noted[reason].max(1.0));
        let [for_age, for_uses] = rates;
        let weight = f64::from(self.weight.load(Relaxed));
        let changed = if for_age > for_uses * DIFFERENCE {
            (weight * STEP).ceil() as u32
        } else if for_uses > for_age * DIFFERENCE {
            (weight / STEP) as u32
        } else {
            weight as u32
        };
        self.weight.store(changed.clamp(WEIGHT_MIN, WEIGHT_MAX), Relaxed);
        let Tally { noted, mistakes, .. } = &mut *tally;
        noted.iter_mut().chain(mistakes).for_each(|count| *count *= REMEMBERED);
    }
}

/// The logarithm in ranks, exact at powers of two and linear between them.
fn log2(value: u64) -> u64 {
    let value = value.max(1);
    let octave = value.ilog2();
    let below = ((value << (63 - octave)) & (u64::MAX >> 1)) >> (63 - OCTAVE_BITS);
    u64::from(octave) << OCTAVE_BITS | below
}

/// Evictions of a part that are noted until others take their places. Keys belong to the sample by their hashes; it is
/// as small as the part is large, so that notes last as long as entries do.
pub(crate) struct Notes {
    /// The upper bits of a hash, its last bit replaced by the reason; 0 for none.
    places: [u32; NOTES],
    /// Mistakes since they were last taken.
    mistakes: [u32; 2],
}

impl std::fmt::Debug for Notes {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Notes").field("mistakes", &self.mistakes).finish_non_exhaustive()
    }
}

impl Notes {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self { places: [0; NOTES], mistakes: [0; 2] })
    }

    /// Whether evictions of a key are noted, given the number of keys.
    fn samples(hash: u64, keys: usize) -> bool {
        let one_in = (keys / NOTES).next_power_of_two() as u64;
        (hash >> 16) & (one_in - 1) == 0
    }

    fn place(hash: u64) -> (usize, u32) {
        ((hash >> 40) as usize % NOTES, (hash as u32 ^ (hash >> 32) as u32) | 1)
    }

    /// Notes an eviction from among `keys` keys. Returns whether it belongs to the sample.
    pub(crate) fn note(&mut self, hash: u64, keys: usize, reason: Reason) -> bool {
        let is_sampled = Self::samples(hash, keys);
        if is_sampled {
            let (place, mark) = Self::place(hash);
            self.places[place] = mark & !1 | reason as u32;
        }
        is_sampled
    }

    /// A key is stored that was not there: if its eviction is noted, it was a mistake.
    pub(crate) fn note_return(&mut self, hash: u64) {
        let (place, mark) = Self::place(hash);
        let found = self.places[place];
        if found | 1 == mark && found > 1 {
            self.places[place] = 0;
            self.mistakes[(found & 1) as usize] += 1;
        }
    }

    /// The mistakes since they were last taken.
    pub(crate) fn take_mistakes(&mut self) -> [u32; 2] {
        std::mem::take(&mut self.mistakes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_exact_at_powers_of_two_and_grow_between() {
        for octave in 0..64 {
            assert_eq!(log2(1 << octave), octave << OCTAVE_BITS);
        }
        assert_eq!(log2(0), 0);
        assert_eq!(log2(3), (1 << OCTAVE_BITS) + (1 << OCTAVE_BITS) / 2);
        assert!((1..5000_u64).all(|value| log2(value) <= log2(value + 1)));
        assert!(log2(u64::MAX) < 64 << OCTAVE_BITS);
    }

    #[test]
    fn use_counter_loses_one_for_each_doubling_of_the_age() {
        let lost: Vec<u64> = [0, 49, 50, 99, 100, 199, 200, 1000].map(|age| lost(age, 100)).into();
        assert_eq!(lost, [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(super::lost(1000, 0), 0, "nothing is evicted");
    }

    #[test]
    fn rank_puts_old_large_and_little_used_keys_first() {
        let weighing = Weighing::default();
        let rank = |uses, age_ms, bytes| weighing.rank(stamp(3, uses), age_ms, bytes);
        assert!(rank(0, 2000, 100) > rank(0, 1000, 100));
        assert!(rank(0, 1000, 200) > rank(0, 1000, 100));
        assert!(rank(0, 1000, 100) > rank(1, 1000, 100));
        // Two octaves at first.
        assert_eq!(rank(0, 1000, 100), rank(1, 4000, 100));
        weighing.note_sample(1000, 0);
        weighing.note_sample(1000, 0);
        assert!(!weighing.is_thrashed());
        (0..200).for_each(|_| weighing.note_sample(50, 0));
        assert!(weighing.is_thrashed());
        assert!(rank(0, 1, 1) > rank(1, u64::MAX, 1 << 40), "entries without uses go first, however old");
        (0..200).for_each(|_| weighing.note_sample(50, 50));
        assert!(!weighing.is_thrashed());
    }

    #[test]
    fn weight_follows_the_mistakes() {
        let weighing = Weighing::default();
        let first = weighing.weight();
        for _ in 0..1000 {
            weighing.learn(Some(Reason::Age), [1, 0]);
            weighing.learn(Some(Reason::Uses), [0, 0]);
        }
        let risen = weighing.weight();
        assert!(risen > first * 2.0, "{risen}");
        for _ in 0..10_000 {
            weighing.learn(Some(Reason::Age), [0, 0]);
            weighing.learn(Some(Reason::Uses), [0, 1]);
        }
        assert!(weighing.weight() < 0.2, "{}", weighing.weight());
    }

    #[test]
    fn key_that_returns_while_noted_is_a_mistake() {
        let mut notes = Notes::new();
        let hash = 0x1234_5678_9ABC_DEF0;
        notes.note_return(hash);
        assert_eq!(notes.take_mistakes(), [0, 0]);
        for reason in [Reason::Age, Reason::Uses] {
            assert!(notes.note(hash, 100, reason));
            notes.note_return(hash ^ 1 << 33);
            notes.note_return(hash);
            notes.note_return(hash);
            assert_eq!(notes.take_mistakes()[reason as usize], 1);
            assert_eq!(notes.take_mistakes(), [0, 0]);
        }
        let sampled = (0..10_000_u64).filter(|key| {
            let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            notes.note(hash, NOTES * 16, Reason::Age)
        });
        assert!((400..900).contains(&sampled.count()), "one in sixteen");
    }
}
