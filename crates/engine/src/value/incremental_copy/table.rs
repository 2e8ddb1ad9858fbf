//! A snapshot's state of a table, whose records change while they are copied.
//!
//! The records are divided into *regions* by the low bits of their keys' hashes, some ten records each.
//!
//! ```text
//! region      0 1 2 3 4 5 6 7 8 …            walk ───▶ takes all records of the next region
//! taken       x x x x     x                  a change ▶ takes all records of its key's region first
//!                 walk ▲  ▲ a change
//! ```
//!
//! Invariant: the records of a region that is not taken are those of the cut, however the table has changed, and
//! however often it has split and merged buckets. So each record of the cut is copied once, as it was,
//! and none that came later is. A copy of the table has the same records in such a region: it can go on in the place of
//! the table.
//!
//! The walk over a sorted set is in its order, which makes the file quick to load. Then a region's records are
//! those that the walk has not passed, and the walk passes over records in a region that was taken.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    snapshot::{SNAPSHOTS_MAX, SnapshotQueue},
    value::{Record, score_of},
};

/// A copy, as the table and the snapshot share it. Locked for as long as it takes to take a region, or a piece.
pub(crate) type SharedTableCopy = Arc<Mutex<TableCopy>>;

/// A table's copies, by snapshot.
pub(in crate::value) type TableCopies = [Option<SharedTableCopy>; SNAPSHOTS_MAX];

/// A table that can be copied in pieces.
pub(crate) trait CopiedTable {
    /// Begins: from here on, records are copied before they change. None of that snapshot is under way.
    /// `elements` of them have not expired at its cut. O(1), but for a bit for some ten elements.
    fn begin(&self, elements: usize, snapshot_queue: &Arc<SnapshotQueue>) -> SharedTableCopy;

    /// Whether changes are copied to it first.
    fn has(&self, copy: &SharedTableCopy) -> bool;

    /// Goes on for about `budget` bytes, which it lowers, and more if changes have copied more: the records, and
    /// whether they are the last.
    fn next_piece(&self, copy: &mut TableCopy, budget: &mut usize) -> (Vec<u8>, bool);
}

/// A snapshot's state of a table; see the module's head.
pub(crate) struct TableCopy {
    /// Bits of a hash that give its region.
    level: u32,
    /// A bit for each region that a change has taken.
    taken: Vec<u64>,
    /// Whether there is any.
    is_any_taken: bool,
    passed: Passed,
    /// Records that were copied and not fetched, one behind the other.
    records: Vec<u8>,
    /// Records of the cut that are still to be copied.
    left: usize,
    /// `None` once the snapshot has ended: the table may keep this for long.
    snapshot_queue: Option<Arc<SnapshotQueue>>,
}

/// How far the walk has come.
enum Passed {
    /// Regions below this one.
    Regions(u32),
    /// Members from this one upwards; none at first.
    Members(Option<(f64, Vec<u8>)>),
}

/// The lock of a copy.
pub(crate) fn locked(copy: &SharedTableCopy) -> MutexGuard<'_, TableCopy> {
    copy.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TableCopy {
    /// A copy of a table of `records` records, with the number of address bits of its buckets. `in_order` if the walk
    /// is that of a sorted set, from the last member to the first.
    pub(in crate::value) fn new(
        records: usize,
        level: u32,
        in_order: bool,
        snapshot_queue: &Arc<SnapshotQueue>,
    ) -> Self {
        let passed = if in_order { Passed::Members(None) } else { Passed::Regions(0) };
        Self {
            level,
            taken: vec![0; (1_usize << level).div_ceil(u64::BITS as usize)],
            is_any_taken: false,
            passed,
            records: Vec::new(),
            left: records,
            snapshot_queue: Some(Arc::clone(snapshot_queue)),
        }
    }

    pub(in crate::value) fn level(&self) -> u32 {
        self.level
    }

    /// The region of a hash.
    #[inline]
    pub(in crate::value) fn region_of(&self, hash: u64) -> u32 {
        hash as u32 & ((1 << self.level) - 1)
    }

    /// Whether a region's records were copied, but for those that the walk in order has passed.
    #[inline]
    pub(in crate::value) fn has(&self, region: u32) -> bool {
        let is_taken = self.taken[region as usize / 64] & 1 << (region % 64) != 0;
        is_taken || matches!(self.passed, Passed::Regions(end) if region < end)
    }

    /// Whether the walk in order may come by members that were copied.
    pub(in crate::value) fn is_any_taken(&self) -> bool {
        self.is_any_taken
    }

    /// Notes that a change has taken a region.
    pub(in crate::value) fn take(&mut self, region: u32) {
        self.taken[region as usize / 64] |= 1 << (region % 64);
        self.is_any_taken = true;
    }

    /// Whether the walk in order has passed a member.
    pub(in crate::value) fn has_passed(&self, member: Record<'_>) -> bool {
        let Passed::Members(Some((last, name))) = &self.passed else { return false };
        let order = score_of(member).partial_cmp(last).expect("scores are numbers");
        order.then_with(|| member.key.cmp(name)).is_ge()
    }

    /// The region that the walk comes to next; `None` at the end.
    pub(in crate::value) fn next_region(&self) -> Option<u32> {
        match self.passed {
            Passed::Regions(next) if next < 1 << self.level => Some(next),
            _ => None,
        }
    }

    /// The walk has taken that region.
    pub(in crate::value) fn pass_region(&mut self) {
        if let Passed::Regions(next) = &mut self.passed {
            *next += 1;
        }
    }

    /// The last member that the walk in order has passed.
    pub(in crate::value) fn last_passed(&self) -> Option<(f64, &[u8])> {
        match &self.passed {
            Passed::Members(Some((score, member))) => Some((*score, member)),
            _ => None,
        }
    }

    /// The walk in order has come to a member.
    pub(in crate::value) fn pass_member(&mut self, score: f64, member: &[u8]) {
        if let Passed::Members(passed) = &mut self.passed {
            let (last, name) = passed.get_or_insert_default();
            *last = score;
            name.clear();
            name.extend_from_slice(member);
        }
    }

    /// Records of the cut that are still to be copied.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Hands a record over.
    #[inline]
    pub(in crate::value) fn push(&mut self, record: Record<'_>) {
        record.append_to(&mut self.records);
        self.left = self.left.wrapping_sub(1);
    }

    /// Bytes of records that wait to be fetched.
    pub(in crate::value) fn bytes(&self) -> usize {
        self.records.len()
    }

    /// Says that a change has copied records since there were `before` bytes: they take memory until they are
    /// fetched.
    pub(in crate::value) fn note_growth(&self, before: usize) {
        if let Some(snapshot_queue) = &self.snapshot_queue {
            snapshot_queue.hold(self.records.len() - before);
        }
    }

    /// Whether the snapshot has ended.
    pub(in crate::value) fn is_over(&self) -> bool {
        self.snapshot_queue.is_none()
    }

    /// Returns the records that changes have copied since the last piece, and those that `walk` adds. These no
    /// longer count as held.
    pub(in crate::value) fn piece(&mut self, walk: impl FnOnce(&mut Self)) -> Vec<u8> {
        if let Some(snapshot_queue) = &self.snapshot_queue {
            snapshot_queue.let_go(self.records.len());
        }
        walk(self);
        mem::take(&mut self.records)
    }

    /// Whether every record of the cut was copied once.
    pub(crate) fn is_whole(&self) -> bool {
        self.left == 0 && self.records.is_empty()
    }

    /// Notes that the snapshot has ended.
    pub(crate) fn end(&mut self) {
        self.taken = Vec::new();
        self.piece(|_| ());
        self.snapshot_queue = None;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::value::{MemberTable, Resources, for_each_record};

    /// A change of a table between two pieces. Numbers choose keys.
    #[derive(Debug, Clone)]
    enum Step {
        Add(u32),
        Replace(u32, usize),
        Stamp(u32, Option<u64>),
        Overwrite(u32),
        Remove(u32),
        Doom(u32, u32),
        Copy,
        Piece(usize),
    }

    const KEYS: u32 = 3000;

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let key = 0..KEYS;
        let step = prop_oneof![
            4 => key.clone().prop_map(Step::Add),
            3 => (key.clone(), 0..40_usize).prop_map(|(key, length)| Step::Replace(key, length)),
            2 => (key.clone(), prop::option::of(1..100_u64)).prop_map(|(key, stamp)| Step::Stamp(key, stamp)),
            2 => key.clone().prop_map(Step::Overwrite),
            4 => key.clone().prop_map(Step::Remove),
            1 => (key, 1..900_u32).prop_map(|(key, count)| Step::Doom(key, count)),
            1 => Just(Step::Copy),
            4 => (0..600_usize).prop_map(Step::Piece),
        ];
        prop::collection::vec(step, 1..150)
    }

    fn name(key: u32) -> Vec<u8> {
        format!("key:{key}").into_bytes()
    }

    type Found = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

    fn note(found: &mut Found, record: Record<'_>) {
        let former = found.insert(record.key.to_vec(), (record.payload.to_vec(), record.stamp));
        assert!(former.is_none(), "{} is there twice", record.key.escape_ascii());
    }

    fn take(table: &MemberTable, copy: &SharedTableCopy, bytes: usize, found: &mut Found) -> bool {
        let mut budget = bytes;
        let (records, is_last) = table.next_piece(&mut locked(copy), &mut budget);
        for_each_record(&records, |record| note(found, record));
        is_last
    }

    fn step(table: &mut MemberTable, step: &Step) {
        let find = |table: &MemberTable, key: u32| table.find(&name(key));
        match *step {
            Step::Add(key) => _ = table.insert(&name(key), b"new"),
            Step::Replace(key, length) => {
                if let Some(slot) = find(table, key) {
                    table.replace(slot, &vec![b'r'; length]);
                }
            }
            Step::Stamp(key, stamp) => {
                if let Some(slot) = find(table, key) {
                    table.restamp(slot, stamp);
                }
            }
            Step::Overwrite(key) => {
                if let Some(slot) = find(table, key) {
                    let length = table.record(slot.handle()).payload.len();
                    table.overwrite(slot.handle(), &vec![b'o'; length]);
                }
            }
            Step::Remove(key) => {
                if let Some(slot) = find(table, key) {
                    table.remove(slot);
                }
            }
            Step::Doom(first, count) => {
                let names: Vec<_> = (first..first + count).map(name).collect();
                let places = table.places(names.iter().map(|name| &name[..]));
                table.doom(&places);
                table.reap(count as usize / 2);
            }
            Step::Copy => {
                let copy = table.clone();
                copy.carry_copies(table);
                *table = copy;
            }
            Step::Piece(_) => {}
        }
    }

    proptest! {
        #[test]
        fn table_copy_hands_each_initial_record_over_once(
            len in 0..KEYS,
            before in steps(),
            after in steps(),
            room in any::<bool>(),
        ) {
            let mut table = MemberTable::new(&Resources::for_tests());
            (0..len).for_each(|key| _ = table.insert(&name(key), &key.to_le_bytes()));
            before.iter().for_each(|change| step(&mut table, change));
            let snapshot_queue = SnapshotQueue::alone();
            let (mut expected, mut found) = (Found::new(), Found::new());
            table.for_each(|record| note(&mut expected, record));
            let copy = table.begin(expected.len(), &snapshot_queue);
            if room {
                // The table shrinks below the regions that there are.
                (0..len).for_each(|key| step(&mut table, &Step::Remove(key)));
            }
            let mut is_over = false;
            for change in &after {
                step(&mut table, change);
                if let Step::Piece(bytes) = *change
                    && !is_over
                {
                    is_over = take(&table, &copy, bytes, &mut found);
                }
            }
            while !is_over {
                is_over = take(&table, &copy, 1000, &mut found);
            }
            prop_assert!(found == expected);
            prop_assert!(locked(&copy).is_whole());
            prop_assert_eq!(snapshot_queue.waiting_bytes(), 0);
            locked(&copy).end();
            step(&mut table, &Step::Add(KEYS));
            prop_assert!(!table.is_being_copied(), "what is over is forgotten with the next change");
        }
    }
}
