//! Which entry of a part gives way first, or which of several parts, where each has few (`eviction/pool.rs`).
//!
//! Some entries are sampled for each that goes; the best of them join those that earlier samples have left over, and
//! the best of all goes (the sampled LRU of Redis 3 and later). An entry is found again by hash and handle, and ranked
//! again: if it has been used meanwhile it stays.

use dunlin_structures::{Handle, Slot, prefetch};

use super::{Cells, Database};
use crate::{
    eviction::EvictionOrder,
    keyspace::{
        AccessClock,
        entry::EntryRef,
        weighed::{Notes, Reason, uses},
    },
    random::Random,
};

/// Candidates that a part keeps.
const CANDIDATES_MAX: usize = 16;
/// Most entries that are looked at for one eviction.
const SAMPLES_MAX: usize = 64;
/// Most buckets that are looked at for one eviction, if few keys expire.
const BUCKETS_MAX: usize = 1024;
/// Entries of a chain that an even sample always takes: hardly any chain has more.
const CHAIN_ENTRIES_MAX: usize = 16;
/// Most chains that an even sample draws.
const ATTEMPTS_MAX: usize = 32;

/// How keys that are to give way are found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampling<'a> {
    pub(crate) order: EvictionOrder,
    /// Whether only keys with an expiry may go.
    pub(crate) expiring_only: bool,
    pub(crate) samples: usize,
    pub(crate) clock: &'a AccessClock,
    pub(crate) now_ms: u64,
}

impl Sampling<'_> {
    /// How much an entry is worth removing; `None` if it must stay.
    #[inline]
    fn rank(&self, entry: EntryRef<'_>) -> Option<u64> {
        let expiry = entry.expiry();
        if self.expiring_only && expiry.is_none() {
            return None;
        }
        Some(match self.order {
            EvictionOrder::Recency => u64::MAX - self.clock.start_ms(entry.access()),
            EvictionOrder::Frequency => u64::from(u8::MAX - entry.access()),
            EvictionOrder::Weighed => {
                let stamp = entry.access();
                let age_ms = self.now_ms.saturating_sub(self.clock.start_ms(stamp));
                self.clock.weighing().rank(stamp, age_ms, entry.memory_bytes())
            }
            EvictionOrder::Deadline => u64::MAX - expiry?,
            EvictionOrder::Random => 0,
        })
    }
}

/// The part that a candidate is in: its stripe and its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Part {
    pub(crate) stripe: usize,
    pub(crate) database: usize,
}

/// An entry worth removing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    rank: u64,
    hash: u64,
    handle: Handle,
    stamp: u8,
    pub(crate) part: Part,
}

/// Candidates, the best last; of equal ones the one that was added first.
#[derive(Debug)]
pub(crate) struct Candidates {
    order: EvictionOrder,
    sorted: Vec<Candidate>,
    /// Evictions that may turn out to be mistakes, if the ranking learns from them.
    notes: Option<Box<Notes>>,
    /// The stamps of the last sample.
    stamps: Vec<u8>,
    /// Memory for the chain of buckets that is looked at.
    chain: Vec<Handle>,
}

impl Candidates {
    /// None yet, of several parts: each part keeps its own notes.
    pub(crate) fn of_parts(order: EvictionOrder) -> Self {
        let sorted = Vec::with_capacity(CANDIDATES_MAX);
        Self { order, sorted, notes: None, stamps: Vec::new(), chain: Vec::new() }
    }

    fn new(order: EvictionOrder) -> Self {
        let notes = (order == EvictionOrder::Weighed).then(Notes::new);
        Self { notes, ..Self::of_parts(order) }
    }

    /// Forgets the last sample, before another is taken.
    pub(crate) fn begin_sample(&mut self) {
        self.stamps.clear();
    }

    /// The ranking learns how many of the entries of this sample have uses.
    pub(crate) fn end_sample(&self, sampling: &Sampling<'_>) {
        if sampling.order == EvictionOrder::Weighed {
            let used = self.stamps.iter().filter(|stamp| uses(**stamp) > 0).count();
            sampling.clock.weighing().note_sample(self.stamps.len() as u32, used as u32);
        }
    }

    /// Takes the best one out.
    pub(crate) fn pop(&mut self) -> Option<Candidate> {
        self.sorted.pop()
    }

    /// Whether an entry of that rank would be kept.
    fn admits(&self, rank: u64) -> bool {
        self.sorted.len() < CANDIDATES_MAX || self.sorted.first().is_some_and(|worst| rank > worst.rank)
    }

    /// Adds an entry. Of equal ranks the one that was added first goes first: otherwise the others would stay as long as new
    /// ones come.
    fn add(&mut self, candidate: Candidate) {
        let is_same = |other: &Candidate| {
            other.handle == candidate.handle && other.hash == candidate.hash && other.part == candidate.part
        };
        match self.sorted.iter().position(is_same) {
            Some(known) if self.sorted[known].rank >= candidate.rank => return,
            Some(known) => drop(self.sorted.remove(known)),
            None if self.sorted.len() == CANDIDATES_MAX => drop(self.sorted.remove(0)),
            None => {}
        }
        let at = self.sorted.partition_point(|other| other.rank < candidate.rank);
        self.sorted.insert(at, candidate);
    }

    /// Why an entry goes rather than the other candidates and those of the last sample; `None` if it is both the oldest
    /// and the least used, or neither.
    fn reason(&self, victim: &Candidate, sampling: &Sampling<'_>) -> Option<Reason> {
        let age_ms = |stamp| sampling.now_ms.saturating_sub(sampling.clock.start_ms(stamp));
        // Epochs are coarse: of about the same age is as old.
        let (age_max_ms, uses_min) = (age_ms(victim.stamp) / 5 * 6, uses(victim.stamp));
        let others = || self.sorted.iter().map(|other| other.stamp).chain(self.stamps.iter().copied());
        let is_oldest = others().all(|stamp| age_ms(stamp) <= age_max_ms);
        let is_least_used = others().all(|stamp| uses(stamp) >= uses_min);
        match (is_oldest, is_least_used) {
            (true, false) => Some(Reason::Age),
            (false, true) => Some(Reason::Uses),
            _ => None,
        }
    }

    /// Lets the ranking learn from an eviction for a reason, of one of `keys` keys.
    fn learn(&mut self, hash: u64, reason: Option<Reason>, sampling: &Sampling<'_>, keys: usize) {
        let weighing = sampling.clock.weighing();
        let reason = if weighing.is_thrashed() { None } else { reason };
        let Some(notes) = &mut self.notes else { return };
        let noted = reason.filter(|reason| notes.note(hash, keys, *reason));
        let mistakes = notes.take_mistakes();
        if noted.is_some() || mistakes != [0, 0] {
            weighing.learn(noted, mistakes);
        }
    }

    /// A key is stored that was not there.
    pub(super) fn note_return(&mut self, hash: u64) {
        if let Some(notes) = &mut self.notes {
            notes.note_return(hash);
        }
    }
}

impl Database {
    /// Whether no key could give way.
    pub(crate) fn has_no_victim(&self, expiring_only: bool) -> bool {
        if expiring_only { self.expiries.keys == 0 } else { self.is_empty() }
    }

    /// Entries that may give way.
    pub(crate) fn victims(&self, expiring_only: bool) -> usize {
        if expiring_only { self.expiries.keys } else { self.len() }
    }

    /// The candidates of the part, to be put back.
    fn take_candidates(&mut self, order: EvictionOrder) -> Box<Candidates> {
        match self.candidates.take() {
            Some(candidates) if candidates.order == order => candidates,
            _ => Box::new(Candidates::new(order)),
        }
    }

    /// The entry that gives way next; `None` if the part of the table that was looked at has none.
    pub(crate) fn victim(&mut self, sampling: &Sampling<'_>, random: &mut Random) -> Option<Slot> {
        if self.has_no_victim(sampling.expiring_only) {
            return None;
        }
        let mut candidates = self.take_candidates(sampling.order);
        candidates.begin_sample();
        self.sample(sampling, random, &mut candidates);
        candidates.end_sample(sampling);
        let mut victim = None;
        while let Some(best) = candidates.pop() {
            let Some((slot, stamp)) = self.find_candidate(&best, sampling) else { continue };
            if sampling.order == EvictionOrder::Weighed {
                let reason = candidates.reason(&Candidate { stamp, ..best }, sampling);
                candidates.learn(best.hash, reason, sampling, self.table.len());
            }
            victim = Some(slot);
            break;
        }
        self.candidates = Some(candidates);
        victim
    }

    /// The entry that was the best of `candidates`, which are of several parts, this one among them; `None` if it is gone, or
    /// has been used meanwhile.
    pub(crate) fn victim_of_parts(
        &mut self,
        best: &Candidate,
        candidates: &Candidates,
        sampling: &Sampling<'_>,
    ) -> Option<Slot> {
        let (slot, stamp) = self.find_candidate(best, sampling)?;
        if sampling.order == EvictionOrder::Weighed {
            let reason = candidates.reason(&Candidate { stamp, ..*best }, sampling);
            let mut own = self.take_candidates(sampling.order);
            own.learn(best.hash, reason, sampling, self.table.len());
            self.candidates = Some(own);
        }
        Some(slot)
    }

    /// The place of a candidate that is still worth as much, and its access stamp.
    fn find_candidate(&self, candidate: &Candidate, sampling: &Sampling<'_>) -> Option<(Slot, u8)> {
        let slot = self.table.find(candidate.hash, |handle| handle == candidate.handle)?;
        let entry = self.entry(slot);
        let is_worth = sampling.rank(entry).is_some_and(|rank| rank >= candidate.rank);
        is_worth.then(|| (slot, entry.access()))
    }

    /// Adds the best of some entries, of neighbouring buckets, to the candidates.
    fn sample(&self, sampling: &Sampling<'_>, random: &mut Random, candidates: &mut Candidates) {
        let mut left = sampling.samples.clamp(1, SAMPLES_MAX);
        let mut scratch = std::mem::take(&mut candidates.chain);
        self.table.visit_chains(random.bits(), BUCKETS_MAX, sampling.expiring_only, &mut scratch, |chain| {
            let first = random.below(chain.len());
            left -= self.sample_chain(chain, first, left, sampling, Part::default(), candidates);
            left == 0
        });
        candidates.chain = scratch;
    }

    /// Adds them to candidates of several parts. All entries are as likely to be the first, also in long chains: otherwise those
    /// would stay if all are of equal rank, and the chains grow.
    pub(crate) fn sample_evenly(
        &self,
        sampling: &Sampling<'_>,
        random: &mut Random,
        part: Part,
        candidates: &mut Candidates,
    ) {
        let mut left = sampling.samples.clamp(1, SAMPLES_MAX);
        let mut scratch = std::mem::take(&mut candidates.chain);
        for attempt in 1..=ATTEMPTS_MAX {
            // Few keys of many may expire: the last attempt goes on until it meets one.
            let is_last = attempt == ATTEMPTS_MAX;
            let buckets_max = if is_last { BUCKETS_MAX } else { 1 };
            let place = random.bits();
            self.table.visit_chains(place, buckets_max, sampling.expiring_only, &mut scratch, |chain| {
                if is_last || random.below(CHAIN_ENTRIES_MAX) < chain.len() {
                    let first = random.below(chain.len());
                    left -= self.sample_chain(chain, first, left, sampling, part, candidates);
                }
                left == 0
            });
            if left == 0 {
                break;
            }
        }
        candidates.chain = scratch;
    }

    /// Adds the best of up to `entries_max` entries of a chain, from one of its slots on: the others are to have the same chance. How
    /// many were looked at.
    fn sample_chain(
        &self,
        chain: &[Handle],
        first: usize,
        entries_max: usize,
        sampling: &Sampling<'_>,
        part: Part,
        candidates: &mut Candidates,
    ) -> usize {
        let cells = Cells { slab: &self.slab, hasher: &self.hasher };
        let is_weighed = sampling.order == EvictionOrder::Weighed;
        let handles = || chain[first..].iter().chain(&chain[..first]).copied();
        handles().take(entries_max).for_each(|handle| prefetch(self.slab.pointer(handle).as_ptr()));
        let mut seen = 0;
        for handle in handles() {
            if seen == entries_max {
                break;
            }
            let entry = self.entry_of(handle);
            let Some(rank) = sampling.rank(entry) else { continue };
            seen += 1;
            let stamp = entry.access();
            if is_weighed {
                candidates.stamps.push(stamp);
            }
            if candidates.admits(rank) {
                let hash = dunlin_structures::Entries::hash(&cells, handle);
                candidates.add(Candidate { rank, hash, handle, stamp, part });
            }
        }
        seen
    }

    /// Replaces the access stamps of the entries behind a cursor. The next cursor, 0 at the end, and how many entries
    /// there were.
    pub(crate) fn sweep_stamps(
        &self,
        cursor: u64,
        stamps: &[u8; 256],
        handles: &mut Vec<Handle>,
    ) -> (u64, usize) {
        let mut entries = 0;
        let next = self.scan_once(cursor, handles, |entry| {
            entries += 1;
            let before = entry.access();
            let after = stamps[usize::from(before)];
            if after != before {
                entry.set_access(after);
            }
        });
        (next, entries)
    }
}
