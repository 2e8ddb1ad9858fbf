//! Sorted sets: members with scores, in the order of the scores, equal ones in the order of the
//! members' bytes.
//!
//! ```text
//! listpack    up to zset-max-listpack-entries short members: in Redis's bytes (packed)
//! skiplist    the rest: one block up to some hundred members (ranked_block), a table of members and a tree of
//!             their handles beyond (ranked); the name is Redis's, whose clients match on it
//! ```
//!
//! A sorted set only ever moves down this list, as in Redis: removing members changes no encoding. A table whose
//! set has become small is a block again.
//! Every range, by rank, score or member, becomes a range of ranks first. Scores are never NaN.

mod gathered;
mod packed;
mod ranked;
mod ranked_block;
mod score;
mod stored;
#[cfg(test)]
mod tests;

use std::{ops::Range, sync::Arc};

use dunlin_structures::{Element, Listpack};

use super::{
    Collection, CollectionRef, Layout, Object, ObjectRef, Packed as PackedBytes, PackedForm, Record,
    Resources, member_block::Demand, shared::Shared,
};
use crate::random::{Random, Selection};

pub use gathered::Gathered;
use packed::{Packed, with_text};
use ranked::Ranked;
pub(crate) use ranked::score_of;
use ranked_block::RankedBlock;
pub(crate) use score::exact_text;

/// Members with scores, in order.
#[derive(Debug, Clone)]
pub struct SortedSet {
    members: Members,
}

/// The large form has an allocation of its own so that small sets stay small.
#[derive(Debug, Clone)]
enum Members {
    Packed(Packed),
    Block(RankedBlock),
    Ranked(Shared<Ranked>),
}

/// The record of a member, as far as its size goes.
#[inline]
fn scored(member: &[u8]) -> Record<'_> {
    Record { key: member, payload: &[0; size_of::<f64>()], stamp: None }
}

impl Collection for SortedSet {
    type Ref<'a> = CollectionRef<'a, Self>;

    fn new(_: &Arc<Resources>) -> Self {
        Self::default()
    }

    #[inline]
    fn new_in_buffer(_: &Arc<Resources>) -> Self {
        Self::in_listpack(super::packed::new_listpack())
    }

    #[inline]
    fn of(object: &Object) -> Option<&Self> {
        match object {
            Object::SortedSet(set) => Some(set),
            _ => None,
        }
    }

    #[inline]
    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        match object {
            Object::SortedSet(set) => Some(set),
            _ => None,
        }
    }

    #[inline]
    fn of_ref(object: ObjectRef<'_>) -> Option<CollectionRef<'_, Self>> {
        CollectionRef::of(object)
    }

    fn into_object(self) -> Object {
        Object::SortedSet(self)
    }

    #[inline]
    fn outside_bytes(&self) -> usize {
        self.heap_bytes()
    }

    #[inline]
    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }

    #[inline]
    fn packed(&self) -> Option<PackedBytes<'_>> {
        match &self.members {
            Members::Packed(packed) => PackedBytes::new(PackedForm::SortedSet, packed.bytes()),
            Members::Block(_) | Members::Ranked(_) => None,
        }
    }

    fn leave_buffer(&mut self) {
        if let Members::Packed(packed) = &mut self.members {
            packed.leave_buffer();
        }
    }

    #[inline]
    fn into_buffer(self) -> Option<Vec<u8>> {
        match self.members {
            Members::Packed(packed) => Some(packed.into_buffer()),
            Members::Block(_) | Members::Ranked(_) => None,
        }
    }

    #[inline]
    fn next_deadline_ms(&self) -> Option<u64> {
        let has_doomed = matches!(&self.members, Members::Ranked(ranked) if ranked.has_doomed());
        has_doomed.then_some(0)
    }
}

impl Default for SortedSet {
    /// An empty sorted set.
    fn default() -> Self {
        Self { members: Members::Packed(Packed::new()) }
    }
}

impl SortedSet {
    /// The members and scores of a listpack, which are in their place there.
    #[inline]
    pub(super) fn in_listpack(listpack: Listpack) -> Self {
        Self { members: Members::Packed(Packed::from_listpack(listpack)) }
    }

    /// The members and scores of a listpack, which are in order and differ; compact if there are not
    /// too many.
    pub(crate) fn from_listpack(listpack: Listpack, layout: Layout<'_>) -> Self {
        let packed = Packed::from_listpack(listpack);
        if packed.len() <= layout.limits.zset_max_listpack_entries && packed.fits(b"") {
            return Self { members: Members::Packed(packed) };
        }
        let mut set = Self { members: Members::Packed(packed) };
        set.leave_compact(Demand::default(), layout);
        set
    }

    /// How many members. O(1).
    #[inline]
    pub fn len(&self) -> usize {
        match &self.members {
            Members::Packed(packed) => packed.len(),
            Members::Block(block) => block.len(),
            Members::Ranked(ranked) => ranked.len(),
        }
    }

    /// Whether there is nothing in it. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the compact encoding.
    pub fn compact_bytes(&self) -> Option<&[u8]> {
        match &self.members {
            Members::Packed(packed) => Some(packed.bytes()),
            Members::Block(_) | Members::Ranked(_) => None,
        }
    }

    /// Bytes outside the sorted set itself. O(1).
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        match &self.members {
            Members::Packed(packed) => packed.heap_bytes(),
            Members::Block(block) => block.heap_bytes(),
            Members::Ranked(ranked) => size_of::<Ranked>() + ranked.heap_bytes(),
        }
    }

    /// The score of a member. O(1); in a listpack O(n).
    #[inline]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.members {
            Members::Packed(packed) => packed.find(member).map(|(_, score)| score),
            Members::Block(block) => block.find(member).map(|(_, score)| score),
            Members::Ranked(ranked) => ranked.find(member).map(|(_, score)| score),
        }
    }

    /// [`Self::score`] for a member of another collection.
    pub fn score_of_element(&self, member: Element<'_>) -> Option<f64> {
        with_text(member, |member| self.score(member))
    }

    /// The rank of a member, 0 for the lowest, and its score. O(log n); in a listpack O(n).
    #[inline]
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        match &self.members {
            Members::Packed(packed) => packed.rank(member),
            Members::Block(block) => block.rank(member),
            Members::Ranked(ranked) => ranked.rank(member),
        }
    }

    /// Gives a member the score that `decide` makes of its present one (`None`: it is not there);
    /// if it makes none, nothing happens. O(log n); in a listpack O(n).
    #[inline]
    pub fn update(
        &mut self,
        member: &[u8],
        layout: Layout<'_>,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) {
        let packed = match &mut self.members {
            Members::Packed(packed) => packed,
            Members::Block(block) => {
                let found = block.find(member);
                let Some(score) = decide(found.map(|(_, score)| score)) else { return };
                match found {
                    Some((at, _)) => block.set_score(at, member, score),
                    None if block.insert(member, score, layout.limits) => {}
                    None => self.make_ranked(layout).insert(member, score),
                }
                return;
            }
            Members::Ranked(ranked) => {
                let found = ranked.find(member);
                let Some(score) = decide(found.map(|(_, score)| score)) else { return };
                match found {
                    Some((handle, old)) => ranked.set_score(handle, old, score),
                    None => ranked.insert(member, score),
                }
                return;
            }
        };
        let found = packed.find(member);
        let Some(score) = decide(found.map(|(_, score)| score)) else { return };
        let limits = layout.limits;
        if let Some((position, _)) = found {
            packed.remove(position);
            packed.insert(member, score);
        } else if packed.len() < limits.zset_max_listpack_entries
            && member.len() <= limits.zset_max_listpack_value
            && packed.fits(member)
        {
            packed.insert(member, score);
        } else {
            self.leave_compact(Demand::default().with(&scored(member)), layout);
            self.insert(member, score, layout);
        }
    }

    /// Gives a member a score. O(log n); in a listpack O(n).
    pub fn insert(&mut self, member: &[u8], score: f64, layout: Layout<'_>) {
        self.update(member, layout, |_| Some(score));
    }

    /// Removes a member; its score. O(log n); in a listpack O(n).
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.members {
            Members::Packed(packed) => {
                let (position, score) = packed.find(member)?;
                packed.remove(position);
                Some(score)
            }
            Members::Block(block) => block.remove(member),
            Members::Ranked(ranked) => ranked.remove(member),
        }
    }

    /// Removes the members with these ranks, all of which exist. O(log n) a member at most; O(log n) for many, whose
    /// memory is given back by and by.
    pub fn remove_range(&mut self, ranks: Range<usize>) {
        match &mut self.members {
            Members::Packed(packed) => packed.remove_range(ranks),
            Members::Block(block) => block.remove_range(ranks),
            Members::Ranked(ranked) => ranked.remove_range(ranks),
        }
    }

    /// Gives back memory of members that were removed, of no more than `members_max`; of how many.
    pub(super) fn reap(&mut self, members_max: usize) -> usize {
        match &mut self.members {
            Members::Packed(_) | Members::Block(_) => 0,
            Members::Ranked(ranked) => ranked.reap(members_max),
        }
    }

    /// How many scores from the lowest on fulfil `holds`; those that do are below all others.
    /// O(log n); in a listpack O(n).
    #[inline]
    pub fn partition_scores(&self, mut holds: impl FnMut(f64) -> bool) -> usize {
        match &self.members {
            Members::Packed(packed) => packed.partition_point(|_, score| holds(score)),
            Members::Block(block) => block.partition_point(|_, score| holds(score)),
            Members::Ranked(ranked) => ranked.partition_scores(holds),
        }
    }

    /// How many members from the first on fulfil `holds`; those that do come before all others,
    /// which is certain only if all scores are equal. O(log n); in a listpack O(n).
    pub fn partition_members(&self, mut holds: impl FnMut(&[u8]) -> bool) -> usize {
        match &self.members {
            Members::Packed(packed) => packed.partition_point(|member, _| with_text(member, &mut holds)),
            Members::Block(block) => block.partition_point(|member, _| holds(member)),
            Members::Ranked(ranked) => ranked.partition_members(holds),
        }
    }

    /// Visits the members with these ranks, all of which exist, from the first or from the last.
    /// O(log n + ranks); in a listpack O(n).
    #[inline]
    pub fn for_range<'a>(
        &'a self,
        ranks: Range<usize>,
        reverse: bool,
        mut visit: impl FnMut(Element<'a>, f64),
    ) {
        match &self.members {
            Members::Packed(packed) if reverse => {
                packed.pairs_reversed(ranks).for_each(|(member, score)| visit(member, score));
            }
            Members::Packed(packed) => packed.pairs(ranks).for_each(|(member, score)| visit(member, score)),
            Members::Block(block) => {
                block.for_range(ranks, reverse, |member, score| visit(Element::String(member), score));
            }
            Members::Ranked(ranked) => {
                ranked.for_range(ranks, reverse, |member, score| visit(Element::String(member), score));
            }
        }
    }

    /// Visits all members: those in a table in no order, others in theirs. O(n).
    pub fn for_each<'a>(&'a self, mut visit: impl FnMut(Element<'a>, f64)) {
        match &self.members {
            Members::Packed(_) | Members::Block(_) => self.for_range(0..self.len(), false, visit),
            Members::Ranked(ranked) => {
                ranked.for_each(|member, score| visit(Element::String(member), score));
            }
        }
    }

    /// Visits some members behind `cursor` and returns the next cursor, 0 at the end: a member that is there from
    /// the call with 0 to the one that returns 0 is visited at least once. A compact sorted set is visited whole.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(Element<'_>, f64)) -> u64 {
        match &self.members {
            Members::Packed(_) => {
                self.for_each(visit);
                0
            }
            Members::Block(block) => {
                block.scan(cursor, |member, score| visit(Element::String(member), score))
            }
            Members::Ranked(ranked) => {
                ranked.scan(cursor, |member, score| visit(Element::String(member), score))
            }
        }
    }

    /// A member with its score, uniformly chosen. O(log n); in a listpack O(n).
    pub(crate) fn random(&self, random: &mut Random) -> Option<(Element<'_>, f64)> {
        let rank = random.below(self.len());
        let mut chosen = None;
        self.for_range(rank..(rank + 1).min(self.len()), false, |member, score| {
            chosen = Some((member, score));
        });
        chosen
    }

    /// Visits `count` different members, chosen by chance, or all if there are fewer. O(count), or
    /// O(n) if that is not much more.
    pub(crate) fn sample<'a>(
        &'a self,
        count: usize,
        random: &mut Random,
        mut visit: impl FnMut(Element<'a>, f64),
    ) {
        match &self.members {
            Members::Packed(_) => {}
            Members::Block(block) => {
                return block.sample(count, random, |member, score| visit(Element::String(member), score));
            }
            Members::Ranked(ranked) => {
                return ranked.sample(count, random, |member, score| visit(Element::String(member), score));
            }
        }
        let mut selection = Selection::new(count, self.len());
        self.for_each(|member, score| {
            if selection.takes(random) {
                visit(member, score);
            }
        });
    }

    /// Makes a table whose set has become small a block: to be called once a command has removed what it removes.
    #[inline]
    pub fn settle(&mut self, layout: Layout<'_>) {
        if let Members::Ranked(ranked) = &self.members
            && let Some(room) = ranked.fits_block(layout.limits)
        {
            let mut block = RankedBlock::with_room(room);
            ranked.for_range(0..ranked.len(), false, |member, score| block.push(member, score));
            self.members = Members::Block(block);
        }
    }

    /// Moves all members out of the compact encoding, to a block if they and `more` fit one.
    fn leave_compact(&mut self, more: Demand, layout: Layout<'_>) {
        let mut room = more;
        self.for_each(|member, _| with_text(member, |member| room = room.with(&scored(member))));
        if !room.fits(layout.limits) {
            self.make_ranked(layout);
            return;
        }
        let mut block = RankedBlock::with_room(room);
        self.for_each(|member, score| with_text(member, |member| block.push(member, score)));
        self.members = Members::Block(block);
    }

    /// Moves all members to a table and a tree.
    fn make_ranked(&mut self, layout: Layout<'_>) -> &mut Ranked {
        let mut ranked = Ranked::new(layout.resources);
        self.for_each(|member, score| with_text(member, |member| ranked.insert(member, score)));
        self.members = Members::Ranked(Shared::new(ranked));
        match &mut self.members {
            Members::Ranked(ranked) => ranked,
            _ => unreachable!("just made"),
        }
    }
}
