//! Sets: members without order.
//!
//! ```text
//! intset      integers only, up to set-max-intset-entries: sorted, in Redis's bytes
//! listpack    up to set-max-listpack-entries short members, in the order they came, in Redis's bytes
//! hashtable   the rest: a member block up to some hundred members, a member table beyond, both without payloads
//! ```
//!
//! A set only ever moves down this list, as in Redis 7.2: removing members changes no encoding. A table whose set has
//! become small is a block again.

mod stored;

use std::sync::Arc;

use dunlin_resp::number::parse_integer;
use dunlin_structures::{Element, IntSet, Listpack};

use crate::random::{Random, Selection};

use super::{
    Collection, CollectionRef, Layout, MemberTable, Object, ObjectRef, Packed, PackedForm, Places, Record,
    Resources, Stored,
    member_block::{Demand, MemberBlock},
    packed,
    shared::Shared,
};

/// A set of byte strings.
#[derive(Debug, Clone)]
pub struct Set {
    members: Members,
}

/// The table has an allocation of its own so that small sets stay small.
#[derive(Debug, Clone)]
enum Members {
    IntSet(IntSet),
    Listpack(Listpack),
    Block(MemberBlock),
    Table(Shared<MemberTable>),
}

/// The record of a member.
#[inline]
fn record(member: &[u8]) -> Record<'_> {
    Record { key: member, payload: b"", stamp: None }
}

impl Collection for Set {
    type Ref<'a> = CollectionRef<'a, Self>;

    fn new(_: &Arc<Resources>) -> Self {
        Self::default()
    }

    #[inline]
    fn of(object: &Object) -> Option<&Self> {
        match object {
            Object::Set(set) => Some(set),
            _ => None,
        }
    }

    #[inline]
    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        match object {
            Object::Set(set) => Some(set),
            _ => None,
        }
    }

    #[inline]
    fn of_ref(object: ObjectRef<'_>) -> Option<CollectionRef<'_, Self>> {
        CollectionRef::of(object)
    }

    fn into_object(self) -> Object {
        Object::Set(self)
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
    fn packed(&self) -> Option<Packed<'_>> {
        match &self.members {
            Members::IntSet(integers) => Packed::new(PackedForm::IntSet, integers.bytes()),
            Members::Listpack(listpack) => Packed::new(PackedForm::Set, listpack.bytes()),
            Members::Block(_) | Members::Table(_) => None,
        }
    }

    fn leave_buffer(&mut self) {
        match &mut self.members {
            Members::IntSet(integers) if integers.capacity() == packed::BUFFER_BYTES => {
                integers.shrink_to_fit()
            }
            Members::Listpack(listpack) => packed::leave_buffer(listpack),
            Members::IntSet(_) | Members::Block(_) | Members::Table(_) => {}
        }
    }

    #[inline]
    fn into_buffer(self) -> Option<Vec<u8>> {
        match self.members {
            Members::IntSet(integers) => Some(integers.into_buffer()),
            Members::Listpack(listpack) => Some(listpack.into_buffer()),
            Members::Block(_) | Members::Table(_) => None,
        }
    }

    #[inline]
    fn next_deadline_ms(&self) -> Option<u64> {
        self.table().is_some_and(MemberTable::has_doomed).then_some(0)
    }
}

impl Default for Set {
    /// An empty set.
    fn default() -> Self {
        Self { members: Members::IntSet(IntSet::new()) }
    }
}

impl Set {
    /// The members of a listpack, which are in their place there.
    #[inline]
    pub(super) fn in_listpack(listpack: Listpack) -> Self {
        Self { members: Members::Listpack(listpack) }
    }

    /// The members of an intset, which are in their place there.
    #[inline]
    pub(super) fn in_intset(integers: IntSet) -> Self {
        Self { members: Members::IntSet(integers) }
    }

    /// A set without members, ready to get `count` of them, which decides whether it begins compact.
    pub(crate) fn for_members(count: u64, layout: Layout<'_>) -> Self {
        let limits = layout.limits;
        let mut set = Self::default();
        if count > limits.set_max_intset_entries.max(limits.set_max_listpack_entries) as u64 {
            set.leave_compact(
                Demand { records: usize::try_from(count).unwrap_or(usize::MAX), bytes: 0 },
                layout,
            );
        }
        set
    }

    /// The members of an intset, compact if there are not too many.
    pub(crate) fn from_intset(integers: IntSet, layout: Layout<'_>) -> Self {
        let fits = integers.len() <= layout.limits.set_max_intset_entries;
        Self { members: Members::IntSet(integers) }.compact_if(fits, layout)
    }

    /// The members of a listpack, which must differ; compact if there are not too many.
    pub(crate) fn from_listpack(listpack: Listpack, layout: Layout<'_>) -> Self {
        let fits = listpack.len() <= layout.limits.set_max_listpack_entries && listpack.fits(0);
        Self { members: Members::Listpack(listpack) }.compact_if(fits, layout)
    }

    fn compact_if(mut self, fits: bool, layout: Layout<'_>) -> Self {
        if !fits {
            self.leave_compact(Demand::default(), layout);
        }
        self
    }

    /// The integers of a set that is kept as an intset.
    pub(crate) fn integers(&self) -> Option<&IntSet> {
        match &self.members {
            Members::IntSet(integers) => Some(integers),
            _ => None,
        }
    }

    /// How many members. O(1).
    #[inline]
    pub fn len(&self) -> usize {
        match &self.members {
            Members::IntSet(integers) => integers.len(),
            Members::Listpack(listpack) => listpack.len(),
            Members::Block(block) => block.len(),
            Members::Table(table) => table.len(),
        }
    }

    /// Whether there is nothing in it. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of a compact encoding.
    pub fn compact_bytes(&self) -> Option<&[u8]> {
        match &self.members {
            Members::IntSet(integers) => Some(integers.bytes()),
            Members::Listpack(listpack) => Some(listpack.bytes()),
            Members::Block(_) | Members::Table(_) => None,
        }
    }

    /// Bytes outside the set itself. O(1).
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        match &self.members {
            Members::IntSet(integers) => integers.capacity(),
            Members::Listpack(listpack) => listpack.capacity(),
            Members::Block(block) => block.heap_bytes(),
            Members::Table(table) => size_of::<MemberTable>() + table.heap_bytes(),
        }
    }

    /// Whether a member is there. O(1); O(n) in a listpack, O(log n) in an intset.
    #[inline]
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.members {
            Members::IntSet(integers) => {
                parse_integer(member).is_some_and(|integer| integers.view().contains(integer))
            }
            Members::Listpack(listpack) => listpack.view().find(member, 0).is_some(),
            Members::Block(block) => block.find(member).is_some(),
            Members::Table(table) => table.contains(member),
        }
    }

    /// [`Self::contains`] for a member of another set.
    pub fn contains_element(&self, member: Element<'_>) -> bool {
        match (member, &self.members) {
            (Element::Integer(integer), Members::IntSet(integers)) => integers.view().contains(integer),
            (Element::Integer(integer), _) => self.contains(itoa::Buffer::new().format(integer).as_bytes()),
            (Element::String(text), _) => self.contains(text),
        }
    }

    /// Makes ready for `members`, which are about to be added. If that many could not stay in the
    /// compact encoding (they may repeat each other), the set leaves it at once, as Redis does,
    /// instead of halfway.
    pub fn expect(&mut self, members: &[&[u8]], layout: Layout<'_>) {
        let (count, limits) = (members.len(), layout.limits);
        let is_new = self.is_empty();
        let may_stay = match &self.members {
            Members::IntSet(_) => {
                let fits = count <= limits.set_max_intset_entries;
                fits && !(is_new && members.first().is_some_and(|member| parse_integer(member).is_none()))
            }
            Members::Listpack(_) => count <= limits.set_max_listpack_entries,
            Members::Block(_) => count <= limits.block_max_members,
            Members::Table(_) => true,
        };
        if may_stay {
            return;
        }
        if is_new && count <= limits.set_max_listpack_entries {
            self.members = Members::Listpack(Listpack::new());
        } else {
            let room = members.iter().fold(Demand::default(), |room, member| room.with(&record(member)));
            self.leave_compact(room, layout);
        }
    }

    /// Adds a member. Returns whether it is new. O(1); in a compact encoding O(n).
    #[inline]
    pub fn insert(&mut self, member: &[u8], layout: Layout<'_>) -> bool {
        match &mut self.members {
            Members::Table(table) => table.insert(member, b"").1,
            Members::Block(block) => {
                if block.find(member).is_some() {
                    return false;
                }
                if block.has_room_for(Demand::default().with(&record(member)), layout.limits) {
                    block.insert(record(member));
                } else {
                    self.make_table(layout).insert(member, b"");
                }
                true
            }
            Members::Listpack(listpack) => {
                if listpack.view().find(member, 0).is_some() {
                    return false;
                }
                if listpack.len() < layout.limits.set_max_listpack_entries
                    && member.len() <= layout.limits.set_max_listpack_value
                    && listpack.fits(Element::String(member).encoded_bytes())
                {
                    listpack.push(member);
                } else {
                    self.insert_beside_compact(member, layout);
                }
                true
            }
            Members::IntSet(integers) => match parse_integer(member) {
                Some(integer) => {
                    let added = integers.insert(integer);
                    if added && integers.len() > layout.limits.set_max_intset_entries {
                        self.leave_compact(Demand::default(), layout);
                    }
                    added
                }
                None => self.insert_beside_integers(member, layout),
            },
        }
    }

    /// Adds a member that the compact encoding cannot take, which ends with that.
    fn insert_beside_compact(&mut self, member: &[u8], layout: Layout<'_>) {
        self.leave_compact(Demand::default().with(&record(member)), layout);
        self.insert(member, layout);
    }

    /// [`Self::insert`] of a member of another set.
    pub fn insert_element(&mut self, member: Element<'_>, layout: Layout<'_>) -> bool {
        match member {
            Element::Integer(integer) => self.insert(itoa::Buffer::new().format(integer).as_bytes(), layout),
            Element::String(text) => self.insert(text, layout),
        }
    }

    /// Adds a member that is not an integer to an intset, which ends with that.
    fn insert_beside_integers(&mut self, member: &[u8], layout: Layout<'_>) -> bool {
        let Members::IntSet(integers) = &self.members else { unreachable!("called on intsets") };
        let view = integers.view();
        let digits = |integer: Option<i64>| integer.map_or(0, |integer| Element::Integer(integer).text_len());
        let longest = digits(view.min()).max(digits(view.max())).max(member.len());
        let bytes = Element::String(member).encoded_bytes();
        if view.len() < layout.limits.set_max_listpack_entries
            && longest <= layout.limits.set_max_listpack_value
            && Listpack::new().fits(bytes)
        {
            let mut listpack = Listpack::new();
            for integer in view.iter() {
                listpack.push(integer);
            }
            listpack.push(member);
            self.members = Members::Listpack(listpack);
        } else {
            self.insert_beside_compact(member, layout);
        }
        true
    }

    /// Removes a member. Returns whether it was there. O(1); in a compact encoding O(n).
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.members {
            Members::IntSet(integers) => {
                parse_integer(member).is_some_and(|integer| integers.remove(integer))
            }
            Members::Listpack(listpack) => {
                let found = listpack.view().find(member, 0);
                found.map(|position| listpack.remove(position)).is_some()
            }
            Members::Block(block) => {
                let found = block.find(member);
                found.map(|at| block.remove(at)).is_some()
            }
            Members::Table(table) => {
                let found = table.find(member);
                found.map(|slot| table.remove(slot)).is_some()
            }
        }
    }

    /// Makes a table whose set has become small a block: to be called once a command has removed what it removes.
    #[inline]
    pub fn settle(&mut self, layout: Layout<'_>) {
        if let Members::Table(table) = &self.members
            && let Some(room) = table.fits_block(layout.limits)
        {
            let mut block = MemberBlock::with_room(room, false);
            table.for_each(|record| _ = block.insert(record));
            self.members = Members::Block(block);
        }
    }

    /// Whether it is in a table.
    pub(crate) fn is_in_table(&self) -> bool {
        self.table().is_some()
    }

    /// The places of another set's members in this one, which is in a table. O(members log members).
    pub(crate) fn places(&self, others: &Self) -> Places {
        let mut names = Vec::with_capacity(others.len());
        others.for_each(|member| names.push(member.text()));
        self.table().expect("a set in a table").places(names.iter().map(|name| &**name))
    }

    /// Removes members of another set, which stood at those places when this one was last changed. O(places); their
    /// memory is given back later, by [`Object::reap`].
    pub(crate) fn doom(&mut self, others: &Self, places: &Places) {
        match &mut self.members {
            Members::Table(table) if table.has(places) => table.doom(places),
            // The table was copied since, because a view shares it.
            _ => others.for_each(|member| _ = self.remove(&member.text())),
        }
    }

    /// See [`Object::reap`].
    pub(super) fn reap(&mut self, members_max: usize) -> usize {
        match &mut self.members {
            Members::Table(table) if table.has_doomed() => table.reap(members_max),
            _ => 0,
        }
    }

    /// Visits all members: integers ascending, those of a listpack in the order they came, others
    /// in no order. O(n).
    pub fn for_each<'a>(&'a self, mut visit: impl FnMut(Element<'a>)) {
        match &self.members {
            Members::IntSet(integers) => integers.view().iter().map(Element::Integer).for_each(visit),
            Members::Listpack(listpack) => listpack.view().iter().for_each(visit),
            Members::Block(block) => {
                block.iter().for_each(|(_, record)| visit(Element::String(record.key)));
            }
            Members::Table(table) => table.for_each(|record| visit(Element::String(record.key))),
        }
    }

    /// Visits some members behind `cursor` and returns the next cursor, 0 at the end: a member that is there from
    /// the call with 0 to the one that returns 0 is visited at least once. A compact set is visited whole.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(Element<'_>)) -> u64 {
        match &self.members {
            Members::IntSet(_) | Members::Listpack(_) => {
                self.for_each(visit);
                0
            }
            Members::Block(block) => block.scan(cursor, |record| visit(Element::String(record.key))),
            Members::Table(table) => table.scan(cursor, |record| visit(Element::String(record.key))),
        }
    }

    /// A member, nearly uniformly chosen. O(1); in a listpack O(n).
    pub(crate) fn random(&self, random: &mut Random) -> Option<Element<'_>> {
        match &self.members {
            Members::IntSet(integers) => {
                integers.view().get(random.below(integers.len())).map(Element::Integer)
            }
            Members::Listpack(listpack) => listpack.view().get(random.below(listpack.len()) as i64),
            Members::Block(block) => block.random(random).map(|record| Element::String(record.key)),
            Members::Table(table) => table.random(random.bits()).map(|record| Element::String(record.key)),
        }
    }

    /// Visits `count` different members, nearly uniformly chosen, or all if there are fewer.
    /// O(count), or O(n) if that is not much more.
    pub(crate) fn sample<'a>(
        &'a self,
        count: usize,
        random: &mut Random,
        mut visit: impl FnMut(Element<'a>),
    ) {
        if let Members::Table(table) = &self.members {
            return table.sample(count, random, |record| visit(Element::String(record.key)));
        }
        let mut selection = Selection::new(count, self.len());
        self.for_each(|member| {
            if selection.takes(random) {
                visit(member);
            }
        });
    }

    /// Moves all members out of a compact encoding, to a block if they and `more` fit one.
    fn leave_compact(&mut self, more: Demand, layout: Layout<'_>) {
        let Demand { records, bytes } = more;
        let mut room = Demand { records: self.len().saturating_add(records), bytes };
        self.for_each(|member| room.bytes += Demand::default().with(&record(&member.text())).bytes);
        if !room.fits(layout.limits) {
            self.make_table(layout);
            return;
        }
        let mut block = MemberBlock::with_room(room, false);
        self.for_each(|member| _ = block.insert(record(&member.text())));
        self.members = Members::Block(block);
    }

    /// Moves all members to a table.
    fn make_table(&mut self, layout: Layout<'_>) -> &mut MemberTable {
        let mut table = MemberTable::new(layout.resources);
        self.for_each(|member| {
            match member {
                Element::Integer(integer) => {
                    table.insert(itoa::Buffer::new().format(integer).as_bytes(), b"")
                }
                Element::String(text) => table.insert(text, b""),
            };
        });
        self.members = Members::Table(Shared::new(table));
        match &mut self.members {
            Members::Table(table) => table,
            _ => unreachable!("just made"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::value::CollectionLimits;

    fn members(set: &Set) -> BTreeSet<Vec<u8>> {
        let mut members = BTreeSet::new();
        set.for_each(|member| assert!(members.insert(member.text().into_owned()), "told twice"));
        members
    }

    fn member() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (-8i64..8).prop_map(|integer| integer.to_string().into_bytes()),
            1 => any::<i64>().prop_map(|integer| integer.to_string().into_bytes()),
            1 => prop::sample::select(vec!["", "00", "-0", "+1", "a", "bb", "a member of some length"])
                .prop_map(|text| text.as_bytes().to_vec()),
            1 => (60usize..70).prop_map(|length| vec![b'x'; length]),
        ]
    }

    #[test]
    fn doomed_members_are_gone_at_once_and_their_memory_later() {
        let (limits, resources) = (CollectionLimits::default(), Resources::for_tests());
        let layout = Layout { limits: &limits, resources: &resources };
        let filled = |numbers: std::ops::Range<u32>| {
            let mut set = Set::for_members(u64::MAX, layout);
            numbers.for_each(|number| _ = set.insert(format!("m{number}").as_bytes(), layout));
            set
        };
        for is_copied in [false, true] {
            let (mut set, others) = (filled(0..1000), filled(100..400));
            let places = set.places(&others);
            let view = is_copied.then(|| set.clone());
            if view.is_some() {
                // As a command that changes it does.
                set = set.copied();
            }
            set.doom(&others, &places);
            let left: BTreeSet<_> =
                members(&filled(0..100)).union(&members(&filled(400..1000))).cloned().collect();
            assert_eq!((set.len(), members(&set)), (700, left.clone()));
            assert!(view.is_none_or(|view| members(&view) == members(&filled(0..1000))));
            // A copy has the memory of its members alone.
            assert_eq!(set.next_deadline_ms(), (!is_copied).then_some(0));
            let reaped: Vec<usize> =
                std::iter::from_fn(|| Some(set.reap(128)).filter(|&count| count > 0)).collect();
            assert_eq!(reaped, if is_copied { vec![] } else { vec![128, 128, 44] });
            assert_eq!((set.next_deadline_ms(), members(&set)), (None, left));
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_btree_set_across_the_thresholds(
            steps in prop::collection::vec((any::<bool>(), member()), 1..80),
            intset_max in 0usize..12,
            listpack_max in 0usize..12,
            block_max_members in 0usize..24,
            block_max_bytes in 0usize..400,
        ) {
            let limits = CollectionLimits {
                block_max_members,
                block_max_bytes,
                set_max_intset_entries: intset_max,
                set_max_listpack_entries: listpack_max,
                ..CollectionLimits::default()
            };
            let resources = Resources::for_tests();
            let layout = Layout { limits: &limits, resources: &resources };
            let mut set = Set::default();
            let mut model = BTreeSet::new();
            let mut least = 0;
            for (add, member) in steps {
                if add {
                    prop_assert_eq!(set.insert(&member, layout), model.insert(member.clone()));
                } else {
                    prop_assert_eq!(set.remove(&member), model.remove(&member));
                    set.settle(layout);
                }
                if let Members::Block(block) = &set.members {
                    prop_assert!(block.demand().records <= block_max_members);
                    prop_assert!(block.demand().bytes <= block_max_bytes);
                }
                prop_assert_eq!(set.contains(&member), add);
                prop_assert_eq!(set.len(), model.len());
                let rank = ["intset", "listpack", "hashtable"].iter().position(|name| *name == set.encoding());
                prop_assert!(rank >= Some(least), "encodings only move on");
                least = rank.expect("a known encoding");
                match set.encoding() {
                    "intset" => prop_assert!(set.len() <= intset_max),
                    "listpack" => prop_assert!(set.len() <= listpack_max),
                    _ => {}
                }
            }
            prop_assert_eq!(&members(&set), &model);
            prop_assert_eq!(&members(&set.clone()), &model);
            let mut scanned = BTreeSet::new();
            let mut cursor = 0;
            loop {
                cursor = set.scan(cursor, |member| { scanned.insert(member.text().into_owned()); });
                if cursor == 0 { break }
            }
            prop_assert_eq!(&scanned, &model);
            let mut random = Random::new(1);
            for count in [0, 1, 3, 100] {
                let mut sample = BTreeSet::new();
                set.sample(count, &mut random, |member| { sample.insert(member.text().into_owned()); });
                prop_assert_eq!(sample.len(), count.min(model.len()));
                prop_assert!(sample.is_subset(&model));
                let drawn = set.random(&mut random).map(|member| member.text().into_owned());
                prop_assert_eq!(drawn.is_some(), !model.is_empty());
                prop_assert!(drawn.is_none_or(|member| model.contains(&member)));
            }
        }
    }
}
