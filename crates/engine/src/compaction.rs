//! Compaction of the keyspace: entries of sparse pages move together, and the pages go back to the pool.
//!
//! ```text
//! share of a worker: every so-manieth stripe ─▶ try its lock ─▶ database ─▶ some pages (structures/slab/compaction.rs)
//! ```
//!
//! Each worker goes round in a share of the stripes of its own. A slice holds the lock of one stripe at a time, for some
//! dozen entries. Snapshots walk over cells by address: what they have not seen is moved only to where they come later.
//!
//! Behind the entries of a part come the blocks of its long values, if the general allocator's spans are sparse
//! ([`Compaction::relocates`]).

use dunlin_structures::{CellPosition, Compacted, Handle, Relocator};

use crate::{execute::Engine, keyspace::Inside};

/// Pages that are looked at, and about as many cells that are moved, under one lock.
const PAGES_PER_LOCK: usize = 256;
const CELLS_PER_LOCK: usize = 64;
/// Blocks of values that are moved under one lock, and about as many entries that are looked at for them.
const BLOCKS_PER_LOCK: usize = 16;
const ENTRIES_PER_LOCK: usize = 128;
/// A part is left alone while less than this share of its pages is free.
const SLACK_PARTS: usize = 32;

/// How far a worker has come with its share of the stripes.
#[derive(Debug)]
pub struct Compaction {
    worker: usize,
    workers: usize,
    stripe: usize,
    database: usize,
    position: Position,
    relocator: Relocator,
    /// Whether blocks of values are moved, too.
    pub relocates: bool,
    handles: Vec<Handle>,
}

/// How far it has come in a part.
#[derive(Debug, Clone, Copy)]
enum Position {
    Cells(CellPosition),
    Values(u64),
}

impl Position {
    const START: Self = Self::Cells(CellPosition::START);
}

impl Compaction {
    /// At the beginning of the share of a worker. `relocator` moves blocks of values.
    pub fn new(worker: usize, workers: usize, relocator: Relocator) -> Self {
        Self {
            worker,
            workers,
            stripe: worker,
            database: 0,
            position: Position::START,
            relocator,
            relocates: false,
            handles: Vec::new(),
        }
    }
}

impl Compaction {
    fn next_part(&mut self) {
        (self.database, self.position) = (self.database + 1, Position::START);
    }
}

/// Memory of entries in a share of the stripes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Slack {
    /// Bytes of pages.
    pub page_bytes: usize,
    /// Bytes of them that no entry uses.
    pub free_bytes: usize,
}

/// The result of [`Engine::compact`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CompactionSlice {
    /// Entries moved.
    pub moved: usize,
    /// Entries looked at and left.
    pub left: usize,
    /// Pages emptied.
    pub pages: usize,
    /// Blocks of values moved.
    pub relocated: usize,
    /// Whether the round over the share is complete.
    pub complete: bool,
}

impl Engine {
    /// How much of a worker's share is free. A stripe whose lock is held is left out. O(stripes × databases).
    pub fn slack(&self, _inside: &Inside<'_>, compaction: &Compaction) -> Slack {
        let mut slack = Slack::default();
        for stripe in self.keyspace.stripes().skip(compaction.worker).step_by(compaction.workers) {
            let Some(locked) = self.keyspace.try_lock_one(stripe) else { continue };
            for database in 0..self.keyspace.databases() {
                let Some(part) = locked.stripe(stripe).database(database) else { continue };
                let (page_bytes, free_bytes) = part.page_bytes();
                slack.page_bytes += page_bytes;
                slack.free_bytes += free_bytes;
            }
        }
        slack
    }

    /// Goes on with a worker's round, under one lock. The caller holds no lock.
    pub fn compact(&self, _inside: &Inside<'_>, compaction: &mut Compaction) -> CompactionSlice {
        let mut slice = CompactionSlice::default();
        let Some(mut locked) = self.keyspace.try_lock_one(compaction.stripe) else {
            slice.complete = self.next_stripe(compaction);
            return slice;
        };
        let mut stripes = locked.stripes();
        let state = stripes.stripe_mut(compaction.stripe);
        while compaction.database < self.keyspace.databases() {
            let Some(part) = state.database_mut(compaction.database) else {
                compaction.next_part();
                continue;
            };
            match compaction.position {
                Position::Cells(from) if part.is_worth_compacting(SLACK_PARTS) => {
                    let limits = (PAGES_PER_LOCK, CELLS_PER_LOCK);
                    let (next, Compacted { moved, left, pages }) = part.compact(from, limits);
                    let is_through = next == CellPosition::START;
                    compaction.position =
                        if is_through { Position::Values(0) } else { Position::Cells(next) };
                    return CompactionSlice { moved, left, pages, ..slice };
                }
                Position::Cells(_) => compaction.position = Position::Values(0),
                Position::Values(from) if compaction.relocates => {
                    let (relocator, handles) = (&mut compaction.relocator, &mut compaction.handles);
                    relocator.moved = 0;
                    let (mut next, mut entries) = (from, 0);
                    while relocator.moved < BLOCKS_PER_LOCK && entries < ENTRIES_PER_LOCK {
                        let seen;
                        (next, seen) = part.relocate(next, relocator, handles);
                        entries += seen;
                        if next == 0 {
                            break;
                        }
                    }
                    slice.relocated = relocator.moved;
                    compaction.position = Position::Values(next);
                    if next == 0 {
                        compaction.next_part();
                    }
                    return slice;
                }
                Position::Values(_) => compaction.next_part(),
            }
        }
        drop(locked);
        slice.complete = self.next_stripe(compaction);
        slice
    }

    /// Goes on to the next stripe of the share. Returns whether it was the last.
    fn next_stripe(&self, compaction: &mut Compaction) -> bool {
        let next = compaction.stripe + compaction.workers;
        let is_last = !self.keyspace.stripes().contains(&next);
        compaction.stripe = if is_last { compaction.worker } else { next };
        (compaction.database, compaction.position) = (0, Position::START);
        is_last
    }
}

#[cfg(test)]
mod tests {
    use std::{
        alloc::{Layout, alloc, dealloc},
        ptr::NonNull,
    };

    use dunlin_resp::Protocol;

    use super::*;
    use crate::transcript::Scenario;

    fn ask(scenario: &mut Scenario, line: &str) -> String {
        String::from_utf8(scenario.reply(line, Protocol::Resp2)).expect("text")
    }

    /// Moves every block.
    unsafe fn move_all(block: NonNull<u8>, bytes: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(bytes, 8).ok()?;
        // SAFETY: the block has `bytes` bytes; alignments up to 16 are the same to the system's allocator.
        unsafe {
            let moved = NonNull::new(alloc(layout))?;
            moved.copy_from_nonoverlapping(block, bytes);
            block.write_bytes(0xEE, bytes);
            dealloc(block.as_ptr(), layout);
            Some(moved)
        }
    }

    fn compaction(worker: usize) -> Compaction {
        // SAFETY: it allocates, copies and frees.
        Compaction::new(worker, 2, unsafe { Relocator::new(move_all) })
    }

    #[test]
    fn blocks_of_values_move_but_for_those_that_others_share() {
        let mut scenario = Scenario::new();
        (0..3000).for_each(|number| entry(&mut scenario, number));
        let long: Vec<_> = (0..200).map(|number| format!("e:{number}:{}", "e".repeat(40))).collect();
        for (kind, verb) in [("hash", "HSET"), ("set", "SADD"), ("list", "RPUSH"), ("sorted", "ZADD")] {
            for (number, element) in long.iter().enumerate() {
                let words = if matches!(verb, "HSET" | "ZADD") {
                    format!("{number} {element}")
                } else {
                    element.clone()
                };
                ask(&mut scenario, &format!("{verb} {kind} {words}"));
            }
        }
        (0..500).for_each(|number| _ = ask(&mut scenario, &format!("SADD integers {}", number * 110_000)));
        let dumps = |scenario: &mut Scenario| {
            let kinds = ["hash", "set", "list", "sorted", "integers"]
                .map(|kind| ask_bytes(scenario, &format!("DUMP {kind}")));
            (values(scenario), kinds)
        };
        let before = dumps(&mut scenario);
        let mut relocated = 0;
        for worker in 0..2 {
            let mut compaction = Compaction { relocates: true, ..compaction(worker) };
            let inside = scenario.engine.keyspace.enter(0);
            loop {
                let slice = scenario.engine.compact(&inside, &mut compaction);
                assert!(slice.relocated < BLOCKS_PER_LOCK + 64);
                relocated += slice.relocated;
                if slice.complete {
                    break;
                }
            }
        }
        assert!(relocated > 500 + 5, "{relocated}");
        assert!(dumps(&mut scenario) == before);
        let keyspace = &scenario.engine.keyspace;
        assert_eq!(keyspace.used_bytes(), keyspace.usage(None).bytes());
        (0..3000).for_each(|number| entry(&mut scenario, number));
        ask(&mut scenario, "FLUSHALL");
    }

    fn ask_bytes(scenario: &mut Scenario, line: &str) -> Vec<u8> {
        scenario.reply(line, Protocol::Resp2)
    }

    /// Runs a round of two workers. Returns how many entries were moved.
    fn round(scenario: &Scenario) -> usize {
        let mut moved = 0;
        for worker in 0..2 {
            let mut compaction = compaction(worker);
            let inside = scenario.engine.keyspace.enter(0);
            loop {
                let slice = scenario.engine.compact(&inside, &mut compaction);
                moved += slice.moved;
                if slice.complete {
                    break;
                }
            }
        }
        moved
    }

    /// Each kind of entry: integers, short and long strings and keys, expiries, collections.
    fn entry(scenario: &mut Scenario, number: usize) {
        let key = if number.is_multiple_of(7) {
            format!("{number}:{}", "k".repeat(300))
        } else {
            format!("k:{number}")
        };
        let line = match number % 6 {
            0 => format!("SET {key} {number}"),
            1 => format!("SET {key} {}", "v".repeat(number % 900)),
            2 => format!("SET {key} {number} EX 100000"),
            3 => format!("RPUSH {key} {number} b c"),
            4 => format!("SADD {key} {number}"),
            _ => format!("SET {key} {}", "w".repeat(2000 + number % 900)),
        };
        ask(scenario, &line);
    }

    /// Each key that is left, with its value and expiry.
    fn values(scenario: &mut Scenario) -> Vec<Vec<u8>> {
        let numbers = (0..30_000).step_by(5);
        let keys =
            numbers.flat_map(|number| [format!("k:{number}"), format!("{number}:{}", "k".repeat(300))]);
        keys.flat_map(|key| [format!("DUMP {key}"), format!("PEXPIRETIME {key}")])
            .map(|line| scenario.reply(&line, Protocol::Resp2))
            .collect()
    }

    fn slack(scenario: &Scenario) -> Slack {
        let inside = scenario.engine.keyspace.enter(0);
        let shares = (0..2).map(|worker| scenario.engine.slack(&inside, &compaction(worker)));
        shares.fold(Slack::default(), |sum, share| Slack {
            page_bytes: sum.page_bytes + share.page_bytes,
            free_bytes: sum.free_bytes + share.free_bytes,
        })
    }

    #[test]
    fn compaction_gives_pages_back_and_changes_no_value() {
        let mut scenario = Scenario::new();
        (0..30_000).for_each(|number| entry(&mut scenario, number));
        for number in (0..30_000).filter(|number| number % 5 != 0) {
            ask(&mut scenario, &format!("DEL k:{number} {number}:{}", "k".repeat(300)));
        }
        let before_values = values(&mut scenario);
        let before = slack(&scenario);
        let moved = round(&scenario);
        assert!((2000..12_000).contains(&moved), "{moved}");
        let after = slack(&scenario);
        assert!(after.page_bytes < before.page_bytes / 2, "{before:?}, {after:?}");
        assert!(values(&mut scenario) == before_values);
        let keyspace = &scenario.engine.keyspace;
        assert_eq!(keyspace.used_bytes(), keyspace.usage(None).bytes());
        (0..30_000).for_each(|number| entry(&mut scenario, number));
        for number in 0..30_000 {
            ask(&mut scenario, &format!("DEL k:{number} {number}:{}", "k".repeat(300)));
        }
        assert_eq!(ask(&mut scenario, "DBSIZE"), ":0\r\n");
        assert_eq!(scenario.engine.keyspace.usage(None).entry_bytes, 0);
    }

    #[test]
    fn compaction_skips_a_stripe_that_somebody_holds() {
        let mut scenario = Scenario::new();
        (0..20_000).for_each(|number| entry(&mut scenario, number));
        for number in (0..20_000).filter(|number| number % 5 != 0) {
            ask(&mut scenario, &format!("DEL k:{number} {number}:{}", "k".repeat(300)));
        }
        let lock = scenario.engine.keyspace.lock_one(0);
        let pages = lock.stripe(0).database(0).expect("it has keys").page_bytes();
        assert!(round(&scenario) > 0);
        assert_eq!(lock.stripe(0).database(0).expect("it has keys").page_bytes(), pages);
        drop(lock);
    }
}
