//! Which entry of a part gives way first.
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

/// An entry worth removing.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    rank: u64,
    hash: u64,
    handle: Handle,
    stamp: u8,
}

/// The candidates of a part, the best last; of equal ones the one that was added first.
#[derive(Debug)]
pub(super) struct Candidates {
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
    fn new(order: EvictionOrder) -> Self {
        let sorted = Vec::with_capacity(CANDIDATES_MAX);
        let notes = (order == EvictionOrder::Weighed).then(Notes::new);
        Self { order, sorted, notes, stamps: Vec::new(), chain: Vec::new() }
    }

    /// Whether an entry of that rank would be kept.
    fn admits(&self, rank: u64) -> bool {
        self.sorted.len() < CANDIDATES_MAX || self.sorted.first().is_some_and(|worst| rank > worst.rank)
    }

    /// Adds an entry. Of equal ranks the one that was added first goes first: otherwise the others would stay as long as new
    /// ones come.
    fn add(&mut self, candidate: Candidate) {
        let is_same = |other: &Candidate| other.handle == candidate.handle && other.hash == candidate.hash;
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

    /// Lets the ranking learn from an eviction, of one of `keys` keys.
    fn learn(&mut self, victim: &Candidate, sampling: &Sampling<'_>, keys: usize) {
        let weighing = sampling.clock.weighing();
        let reason = if weighing.is_thrashed() { None } else { self.reason(victim, sampling) };
        let Some(notes) = &mut self.notes else { return };
        let noted = reason.filter(|reason| notes.note(victim.hash, keys, *reason));
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

    /// The entry that gives way next; `None` if the part of the table that was looked at has none.
    pub(crate) fn victim(&mut self, sampling: &Sampling<'_>, random: &mut Random) -> Option<Slot> {
        if self.has_no_victim(sampling.expiring_only) {
            return None;
        }
        let mut candidates = match self.candidates.take() {
            Some(candidates) if candidates.order == sampling.order => candidates,
            _ => Box::new(Candidates::new(sampling.order)),
        };
        self.sample(sampling, random, &mut candidates);
        let mut victim = None;
        while let Some(best) = candidates.sorted.pop() {
            let found = self.table.find(best.hash, |handle| handle == best.handle);
            let Some(slot) = found else { continue };
            let entry = self.entry(slot);
            if sampling.rank(entry).is_some_and(|rank| rank >= best.rank) {
                if sampling.order == EvictionOrder::Weighed {
                    let best = Candidate { stamp: entry.access(), ..best };
                    candidates.learn(&best, sampling, self.table.len());
                }
                victim = Some(slot);
                break;
            }
        }
        self.candidates = Some(candidates);
        victim
    }

    /// Adds the best of some entries to the candidates.
    fn sample(&self, sampling: &Sampling<'_>, random: &mut Random, candidates: &mut Candidates) {
        let cells = Cells { slab: &self.slab, hasher: &self.hasher };
        let wanted = sampling.samples.clamp(1, SAMPLES_MAX);
        let mut seen = 0;
        let place = random.bits();
        let is_weighed = sampling.order == EvictionOrder::Weighed;
        let mut stamps = std::mem::take(&mut candidates.stamps);
        stamps.clear();
        let mut scratch = std::mem::take(&mut candidates.chain);
        self.table.visit_chains(place, BUCKETS_MAX, sampling.expiring_only, &mut scratch, |chain| {
            // Not always from the first slot on: the others are to have the same chance.
            let first = random.below(chain.len());
            let taken = chain.len().min(wanted - seen);
            let handles = || chain[first..].iter().chain(&chain[..first]).copied();
            handles().take(taken).for_each(|handle| prefetch(self.slab.pointer(handle).as_ptr()));
            for handle in handles() {
                if seen == wanted {
                    break;
                }
                let entry = self.entry_of(handle);
                let Some(rank) = sampling.rank(entry) else { continue };
                seen += 1;
                let stamp = entry.access();
                if is_weighed {
                    stamps.push(stamp);
                }
                if candidates.admits(rank) {
                    let hash = dunlin_structures::Entries::hash(&cells, handle);
                    candidates.add(Candidate { rank, hash, handle, stamp });
                }
            }
            seen == wanted
        });
        candidates.chain = scratch;
        if is_weighed {
            let used = stamps.iter().filter(|stamp| uses(**stamp) > 0).count();
            sampling.clock.weighing().note_sample(seen as u32, used as u32);
        }
        candidates.stamps = stamps;
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
