//! A sorted set in one block: members by name in its index, by rank in its order; a score is the payload of a record, 8
//! bytes little-endian.

use std::ops::Range;

use crate::{
    random::{Random, Selection},
    value::{
        CollectionLimits, Record,
        member_block::{Demand, MemberBlock},
    },
};

use super::score_of;

/// Members of which fewer are removed one by one, each of which moves the bytes behind it.
const REBUILT_MIN: usize = 8;

/// A sorted set in one block; see the module's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RankedBlock {
    block: MemberBlock,
}

impl RankedBlock {
    pub(super) fn with_room(room: Demand) -> Self {
        Self { block: MemberBlock::with_room(room, true) }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.block.len()
    }

    #[inline]
    pub(super) fn heap_bytes(&self) -> usize {
        self.block.heap_bytes()
    }

    /// The offset of a member, and its score. O(1).
    #[inline]
    pub(super) fn find(&self, member: &[u8]) -> Option<(usize, f64)> {
        let at = self.block.find(member)?;
        Some((at, score_of(self.block.record(at))))
    }

    /// The member of a rank and its score. O(1).
    #[inline]
    pub(super) fn get(&self, rank: usize) -> (&[u8], f64) {
        let record = self.block.record(self.block.at_rank(rank));
        (record.key, score_of(record))
    }

    /// How many members from the first on fulfil `holds`; those that do come before all others. O(log n).
    #[inline]
    pub(super) fn partition_point(&self, mut holds: impl FnMut(&[u8], f64) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            let (member, score) = self.get(middle);
            if holds(member, score) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// How many members come before one with that score.
    #[inline]
    fn before(&self, member: &[u8], score: f64) -> usize {
        self.partition_point(|other, other_score| {
            other_score < score || other_score == score && other < member
        })
    }

    /// The rank of a member, and its score. O(n), of two bytes each: less than to compare with log n members.
    #[inline]
    pub(super) fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let (at, score) = self.find(member)?;
        Some((self.block.rank_of(at), score))
    }

    /// Adds a member that is not there; false, and nothing changed, if the block would outgrow the limits. O(n), of two
    /// bytes each.
    #[inline]
    pub(super) fn insert(&mut self, member: &[u8], score: f64, limits: &CollectionLimits) -> bool {
        let payload = &score.to_le_bytes();
        let record = Record { key: member, payload, stamp: None };
        let fits = self.block.has_room_for(Demand::default().with(&record), limits);
        if fits {
            let rank = self.before(member, score);
            let at = self.block.insert(record);
            self.block.enter_order(rank, at);
        }
        fits
    }

    /// Adds a member that is not there, and comes behind all others.
    pub(super) fn push(&mut self, member: &[u8], score: f64) {
        let rank = self.len();
        let at = self.block.insert(Record { key: member, payload: &score.to_le_bytes(), stamp: None });
        self.block.enter_order(rank, at);
    }

    /// Gives the member at an offset another score. O(n), of two bytes each.
    #[inline]
    pub(super) fn set_score(&mut self, at: usize, member: &[u8], new: f64) {
        let from = self.block.rank_of(at);
        // The place that it would have if its old place were still taken.
        let to = self.before(member, new);
        self.block.overwrite(at, &new.to_le_bytes());
        self.block.move_order(from, if to > from { to - 1 } else { to });
    }

    /// Removes a member; its score. O(bytes).
    pub(super) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let (rank, score) = self.rank(member)?;
        self.remove_rank(rank);
        Some(score)
    }

    fn remove_rank(&mut self, rank: usize) {
        let at = self.block.leave_order(rank);
        self.block.remove(at);
    }

    /// Removes the members with these ranks. O(bytes).
    pub(super) fn remove_range(&mut self, ranks: Range<usize>) {
        if ranks.len() < REBUILT_MIN {
            return ranks.rev().for_each(|rank| self.remove_rank(rank));
        }
        let stay = (0..ranks.start).chain(ranks.end..self.len());
        let record = |rank| self.block.record(self.block.at_rank(rank));
        self.block = self.block.rebuilt(stay.map(record));
    }

    /// Visits the members with these ranks, from the first or from the last. O(ranks).
    #[inline]
    pub(super) fn for_range<'a>(
        &'a self,
        ranks: Range<usize>,
        reverse: bool,
        mut visit: impl FnMut(&'a [u8], f64),
    ) {
        let visit = |rank| {
            let (member, score) = self.get(rank);
            visit(member, score);
        };
        if reverse { ranks.rev().for_each(visit) } else { ranks.for_each(visit) }
    }

    /// Does what [`MemberBlock::scan`] does.
    pub(super) fn scan(&self, cursor: u64, mut visit: impl FnMut(&[u8], f64)) -> u64 {
        self.block.scan(cursor, |record| visit(record.key, score_of(record)))
    }

    /// Visits `count` different members, uniformly chosen, or all if there are fewer. O(n).
    pub(super) fn sample<'a>(
        &'a self,
        count: usize,
        random: &mut Random,
        mut visit: impl FnMut(&'a [u8], f64),
    ) {
        let mut selection = Selection::new(count, self.len());
        self.for_range(0..self.len(), false, |member, score| {
            if selection.takes(random) {
                visit(member, score);
            }
        });
    }
}
