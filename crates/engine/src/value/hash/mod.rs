//! Hashes: values by field.
//!
//! ```text
//! listpack    up to hash-max-listpack-entries short fields: field, value, field, value … in Redis's
//!             bytes, in the order the fields came
//! hashtable   the rest, and all with fields that expire: a field block up to some hundred fields, a field
//!             table beyond
//! ```
//!
//! A hash only ever moves down this list, as in Redis: removing fields changes no encoding. A table whose hash has
//! become small is a block again.
//!
//! Callers that ask for fields pass the time: a field whose deadline has come is not there, though its
//! memory may not have been reclaimed yet.

mod stored;
mod template;

use std::sync::Arc;

use dunlin_structures::{Element, Listpack, Position};

pub(crate) use stored::write_deadline;
pub use template::HashTemplates;

use super::{
    Collection, CollectionRef, Layout, Object, ObjectRef, Packed, PackedForm, Record, Resources,
    field_block::FieldBlock, field_table::FieldTable, member_block::Demand, packed, shared::Shared,
};
use crate::{
    context::ExpiryChange,
    random::{Random, Selection},
};

/// Values by field.
#[derive(Debug, Clone)]
pub struct Hash {
    fields: Fields,
}

/// The table has an allocation of its own so that small hashes stay small.
#[derive(Debug, Clone)]
enum Fields {
    Listpack(Listpack),
    Block(FieldBlock),
    Table(Shared<FieldTable>),
}

impl Collection for Hash {
    type Ref<'a> = CollectionRef<'a, Self>;

    fn new(_: &Arc<Resources>) -> Self {
        Self::default()
    }

    #[inline]
    fn new_in_buffer(_: &Arc<Resources>) -> Self {
        Self::in_listpack(packed::new_listpack())
    }

    #[inline]
    fn of(object: &Object) -> Option<&Self> {
        match object {
            Object::Hash(hash) => Some(hash),
            _ => None,
        }
    }

    #[inline]
    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        match object {
            Object::Hash(hash) => Some(hash),
            _ => None,
        }
    }

    #[inline]
    fn of_ref(object: ObjectRef<'_>) -> Option<CollectionRef<'_, Self>> {
        CollectionRef::of(object)
    }

    fn into_object(self) -> Object {
        Object::Hash(self)
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
        match &self.fields {
            Fields::Listpack(listpack) => Packed::new(PackedForm::Hash, listpack.bytes()),
            Fields::Block(_) | Fields::Table(_) => None,
        }
    }

    fn leave_buffer(&mut self) {
        if let Fields::Listpack(listpack) = &mut self.fields {
            packed::leave_buffer(listpack);
        }
    }

    #[inline]
    fn into_buffer(self) -> Option<Vec<u8>> {
        match self.fields {
            Fields::Listpack(listpack) => Some(listpack.into_buffer()),
            Fields::Block(_) | Fields::Table(_) => None,
        }
    }

    #[inline]
    fn next_deadline_ms(&self) -> Option<u64> {
        Self::next_deadline_ms(self)
    }
}

impl Default for Hash {
    /// An empty hash.
    fn default() -> Self {
        Self { fields: Fields::Listpack(Listpack::new()) }
    }
}

/// The value behind a field in a listpack.
fn value_at(listpack: &Listpack, field: Position) -> Position {
    listpack.view().next(field).expect("a value stands behind each field")
}

/// The field and the value of a record.
#[inline]
fn pair(record: Record<'_>) -> (Element<'_>, Element<'_>) {
    (Element::String(record.key), Element::String(record.payload))
}

impl Hash {
    /// The fields and values of a listpack, which are in their place there.
    #[inline]
    pub(super) fn in_listpack(listpack: Listpack) -> Self {
        Self { fields: Fields::Listpack(listpack) }
    }

    /// A hash without fields, ready to get `count` of them, which decides whether it begins compact.
    pub(crate) fn for_fields(count: u64, layout: Layout<'_>) -> Self {
        let mut hash = Self::default();
        if count > layout.limits.hash_max_listpack_entries as u64 {
            let records = usize::try_from(count).unwrap_or(usize::MAX);
            hash.leave_listpack(Demand { records, bytes: 0 }, layout);
        }
        hash
    }

    /// The fields and values of a listpack, whose fields must differ; compact if there are not too
    /// many.
    pub(crate) fn from_listpack(listpack: Listpack, layout: Layout<'_>) -> Self {
        let fits = listpack.len() / 2 <= layout.limits.hash_max_listpack_entries && listpack.fits(0);
        let mut hash = Self { fields: Fields::Listpack(listpack) };
        if !fits {
            hash.leave_listpack(Demand::default(), layout);
        }
        hash
    }

    /// How many fields. O(1), O(log n), in a block O(n), while some have expired and were not reclaimed.
    #[inline]
    pub fn len(&self, now_ms: u64) -> usize {
        match &self.fields {
            Fields::Listpack(listpack) => listpack.len() / 2,
            Fields::Block(block) => block.records() - block.expired(now_ms),
            Fields::Table(table) => table.records() - table.expired(now_ms),
        }
    }

    /// How many fields have expired and were not reclaimed. O(log n), O(1) if none has.
    pub fn expired(&self, now_ms: u64) -> usize {
        match &self.fields {
            Fields::Listpack(_) => 0,
            Fields::Block(block) => block.expired(now_ms),
            Fields::Table(table) => table.expired(now_ms),
        }
    }

    /// Whether there is nothing in it, not even an expired field that was not reclaimed. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        match &self.fields {
            Fields::Listpack(listpack) => listpack.is_empty(),
            Fields::Block(block) => block.records() == 0,
            Fields::Table(table) => table.records() == 0,
        }
    }

    /// The earliest deadline of a field, in unix milliseconds. O(1) if there is none.
    #[inline]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        match &self.fields {
            Fields::Listpack(_) => None,
            Fields::Block(block) => block.next_deadline_ms(),
            Fields::Table(table) => table.next_deadline_ms(),
        }
    }

    /// The latest deadline of a field, in unix milliseconds. O(log n).
    pub(crate) fn last_deadline_ms(&self) -> Option<u64> {
        match &self.fields {
            Fields::Listpack(_) => None,
            Fields::Block(block) => block.last_deadline_ms(),
            Fields::Table(table) => table.last_deadline_ms(),
        }
    }

    /// Whether all fields have expired. O(1) if one never expires.
    #[inline]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        match &self.fields {
            Fields::Listpack(_) => false,
            Fields::Block(block) => block.is_expired(now_ms),
            Fields::Table(table) => table.is_expired(now_ms),
        }
    }

    /// The bytes of a compact encoding.
    pub fn compact_bytes(&self) -> Option<&[u8]> {
        match &self.fields {
            Fields::Listpack(listpack) => Some(listpack.bytes()),
            Fields::Block(_) | Fields::Table(_) => None,
        }
    }

    /// Bytes outside the hash itself. O(1).
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        match &self.fields {
            Fields::Listpack(listpack) => listpack.capacity(),
            Fields::Block(block) => block.heap_bytes(),
            Fields::Table(table) => size_of::<FieldTable>() + table.heap_bytes(),
        }
    }

    /// The value of a field. O(1); in a listpack O(n).
    #[inline]
    pub fn get(&self, field: &[u8], now_ms: u64) -> Option<Element<'_>> {
        match &self.fields {
            Fields::Listpack(listpack) => {
                let view = listpack.view();
                Some(view.element(value_at(listpack, view.find(field, 1)?)))
            }
            Fields::Block(block) => block.get(field, now_ms).map(|record| Element::String(record.payload)),
            Fields::Table(table) => table.get(field, now_ms).map(|record| Element::String(record.payload)),
        }
    }

    /// When a field expires, in unix milliseconds, if ever; `None` if there is no such field. O(1); in
    /// a listpack O(n).
    pub fn deadline_ms(&self, field: &[u8], now_ms: u64) -> Option<Option<u64>> {
        match &self.fields {
            Fields::Listpack(listpack) => listpack.view().find(field, 1).map(|_| None),
            Fields::Block(block) => block.get(field, now_ms).map(|record| record.stamp),
            Fields::Table(table) => table.get(field, now_ms).map(|record| record.stamp),
        }
    }

    /// Makes ready for `texts`, fields and values that are about to be stored: if one is too long
    /// for the compact encoding, or they are too many together, the hash leaves it at once.
    pub fn expect(&mut self, texts: &[&[u8]], layout: Layout<'_>) {
        let Fields::Listpack(listpack) = &mut self.fields else { return };
        let limits = layout.limits;
        let bytes = || texts.iter().map(|text| Element::String(text).encoded_bytes()).sum();
        let is_new = listpack.is_empty();
        if texts.len() / 2 > limits.hash_max_listpack_entries
            || texts.iter().any(|text| text.len() > limits.hash_max_listpack_value)
            || !listpack.fits(bytes())
        {
            let room = texts.chunks_exact(2).fold(Demand::default(), |room, pair| {
                room.with(&Record { key: pair[0], payload: pair[1], stamp: None })
            });
            // Fields that are there already would leave their room empty.
            self.leave_listpack(if is_new { room } else { Demand { records: 0, bytes: room.bytes } }, layout);
        } else if is_new && texts.len() > 2 {
            // Most hashes that are written whole stay as they are.
            listpack.reserve_exact(bytes());
        }
    }

    /// Gives a field a value and, as `expiry` says, a deadline. Returns whether the field is new.
    /// O(1), O(log n) if it expires; in a listpack O(n).
    #[inline]
    pub fn set(
        &mut self,
        field: &[u8],
        value: &[u8],
        expiry: ExpiryChange,
        now_ms: u64,
        layout: Layout<'_>,
    ) -> bool {
        self.expect(&[field, value], layout);
        if let ExpiryChange::At(_) = expiry {
            self.leave_listpack(Demand::default(), layout);
        }
        let listpack = match &mut self.fields {
            Fields::Listpack(listpack) => listpack,
            Fields::Block(block) => {
                if let Some(is_new) = block.set(field, value, expiry, now_ms, layout.limits) {
                    return is_new;
                }
                return self.make_table(layout).set(field, value, expiry, now_ms);
            }
            Fields::Table(table) => return table.set(field, value, expiry, now_ms),
        };
        if let Some(position) = listpack.view().find(field, 1) {
            let position = value_at(listpack, position);
            listpack.replace(position, value);
            return false;
        }
        listpack.extend([field, value]);
        if listpack.len() / 2 > layout.limits.hash_max_listpack_entries {
            self.leave_listpack(Demand::default(), layout);
        }
        true
    }

    /// Gives a field that is there a deadline, in unix milliseconds, or takes it away. O(log n); in a
    /// listpack O(n).
    pub fn set_deadline(&mut self, field: &[u8], deadline_ms: Option<u64>, layout: Layout<'_>) {
        if deadline_ms.is_some() {
            self.leave_listpack(Demand::default(), layout);
        }
        match &mut self.fields {
            Fields::Listpack(_) => {}
            Fields::Block(block) => {
                if !block.set_deadline(field, deadline_ms, layout.limits) {
                    self.make_table(layout).set_deadline(field, deadline_ms);
                }
            }
            Fields::Table(table) => table.set_deadline(field, deadline_ms),
        }
    }

    /// Removes a field. Returns whether it was there. O(1), O(log n) if it expires; in a listpack O(n).
    pub fn remove(&mut self, field: &[u8], now_ms: u64) -> bool {
        match &mut self.fields {
            Fields::Listpack(listpack) => {
                let found = listpack.view().find(field, 1);
                found.map(|position| listpack.remove_run(position, 2)).is_some()
            }
            Fields::Block(block) => block.remove(field, now_ms),
            Fields::Table(table) => table.remove(field, now_ms),
        }
    }

    /// Reclaims fields that have expired, the earliest first and no more than `fields_max`. Returns
    /// how many. `removing` is shown each. O(log n) each.
    pub fn expire(&mut self, now_ms: u64, fields_max: usize, mut removing: impl FnMut(Element<'_>)) -> usize {
        match &mut self.fields {
            Fields::Listpack(_) => 0,
            Fields::Block(block) => block.expire(now_ms, fields_max, |record| removing(pair(record).0)),
            Fields::Table(table) => table.expire(now_ms, fields_max, |record| removing(pair(record).0)),
        }
    }

    /// Visits all fields with their values: those in a table in no order, others in the order they came. O(n).
    pub fn for_each<'a>(&'a self, now_ms: u64, mut visit: impl FnMut(Element<'a>, Element<'a>)) {
        match &self.fields {
            Fields::Listpack(listpack) => {
                let mut elements = listpack.view().iter();
                while let (Some(field), Some(value)) = (elements.next(), elements.next()) {
                    visit(field, value);
                }
            }
            Fields::Block(block) => block.for_each(now_ms, |record| {
                let (field, value) = pair(record);
                visit(field, value);
            }),
            Fields::Table(table) => table.for_each(now_ms, |record| {
                let (field, value) = pair(record);
                visit(field, value);
            }),
        }
    }

    /// [`Self::for_each`] with the deadline of each field, in unix milliseconds.
    pub(crate) fn for_each_with_deadline<'a>(
        &'a self,
        now_ms: u64,
        mut visit: impl FnMut(Element<'a>, Element<'a>, Option<u64>),
    ) {
        match &self.fields {
            Fields::Listpack(_) => self.for_each(now_ms, |field, value| visit(field, value, None)),
            Fields::Block(block) => block.for_each(now_ms, |record| {
                let (field, value) = pair(record);
                visit(field, value, record.stamp);
            }),
            Fields::Table(table) => table.for_each(now_ms, |record| {
                let (field, value) = pair(record);
                visit(field, value, record.stamp);
            }),
        }
    }

    /// Visits some fields behind `cursor` with their values and returns the next cursor, 0 at the end.
    /// A field that is there from the call with 0 to the one that returns 0 is visited at least once.
    /// A compact hash is visited whole.
    pub fn scan(&self, cursor: u64, now_ms: u64, mut visit: impl FnMut(Element<'_>, Element<'_>)) -> u64 {
        let visit_record =
            |record: Record<'_>| visit(Element::String(record.key), Element::String(record.payload));
        match &self.fields {
            Fields::Listpack(_) => {
                self.for_each(now_ms, visit);
                0
            }
            Fields::Block(block) => block.scan(cursor, now_ms, visit_record),
            Fields::Table(table) => table.scan(cursor, now_ms, visit_record),
        }
    }

    /// A field with its value, nearly uniformly chosen. O(1); in a listpack O(n).
    pub(crate) fn random(&self, now_ms: u64, random: &mut Random) -> Option<(Element<'_>, Element<'_>)> {
        match &self.fields {
            Fields::Listpack(listpack) => {
                let view = listpack.view();
                let field = view.seek(2 * random.below(listpack.len() / 2) as i64)?;
                Some((view.element(field), view.element(value_at(listpack, field))))
            }
            Fields::Block(block) => block.random(now_ms, random).map(pair),
            Fields::Table(table) => table.random(now_ms, random).map(pair),
        }
    }

    /// Visits `count` different fields, nearly uniformly chosen, or all if there are fewer.
    /// O(count), or O(n) if that is not much more.
    pub(crate) fn sample<'a>(
        &'a self,
        count: usize,
        now_ms: u64,
        random: &mut Random,
        mut visit: impl FnMut(Element<'a>, Element<'a>),
    ) {
        if let Fields::Table(table) = &self.fields {
            return table.sample(count, now_ms, random, |record| {
                let (field, value) = pair(record);
                visit(field, value);
            });
        }
        let mut selection = Selection::new(count, self.len(now_ms));
        self.for_each(now_ms, |field, value| {
            if selection.takes(random) {
                visit(field, value);
            }
        });
    }

    /// Makes a table whose hash has become small a block: to be called once a command has removed what it removes.
    #[inline]
    pub fn settle(&mut self, layout: Layout<'_>) {
        if let Fields::Table(table) = &self.fields
            && let Some(room) = table.fits_block(layout.limits)
        {
            let mut block = FieldBlock::with_room(room);
            table.records_by_field().for_each(|record| _ = block.add(record, layout.limits));
            self.fields = Fields::Block(block);
        }
    }

    /// Moves all fields out of the listpack, if they are in one: to a block if they and `more` fit one.
    fn leave_listpack(&mut self, more: Demand, layout: Layout<'_>) {
        let Fields::Listpack(listpack) = &self.fields else { return };
        let Demand { records, bytes } = more;
        let mut room = Demand { records: (listpack.len() / 2).saturating_add(records), bytes };
        self.for_each(0, |field, value| {
            let (field, value) = (field.text(), value.text());
            room.bytes += Demand::default().with(&Record { key: &field, payload: &value, stamp: None }).bytes;
        });
        if !room.fits(layout.limits) {
            self.make_table(layout);
            return;
        }
        let mut block = FieldBlock::with_room(room);
        self.for_each(0, |field, value| {
            block.add(Record { key: &field.text(), payload: &value.text(), stamp: None }, layout.limits);
        });
        self.fields = Fields::Block(block);
    }

    /// Moves all fields to a table.
    fn make_table(&mut self, layout: Layout<'_>) -> &mut FieldTable {
        let mut table = FieldTable::new(layout.resources);
        self.for_each_with_deadline(0, |field, value, deadline_ms| {
            let expiry = deadline_ms.map_or(ExpiryChange::Clear, ExpiryChange::At);
            table.set(&field.text(), &value.text(), expiry, 0);
        });
        self.fields = Fields::Table(Shared::new(table));
        match &mut self.fields {
            Fields::Table(table) => table,
            _ => unreachable!("just made"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::value::CollectionLimits;
    use crate::value::Stored;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (-8i64..8).prop_map(|integer| integer.to_string().into_bytes()),
            1 => prop::sample::select(vec!["", "00", "a", "bb"]).prop_map(|text| text.as_bytes().to_vec()),
            1 => (10usize..14).prop_map(|length| vec![b'x'; length]),
            1 => (0usize..3000).prop_map(|length| vec![b'y'; length]),
        ]
    }

    /// The expected contents of a hash: values with their deadlines.
    #[derive(Default)]
    struct Model(BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>);

    impl Model {
        fn reclaim(&mut self, now_ms: u64) {
            self.0.retain(|_, (_, deadline_ms)| deadline_ms.is_none_or(|at| at > now_ms));
        }

        fn values(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
            self.0.iter().map(|(field, (value, _))| (field.clone(), value.clone())).collect()
        }
    }

    /// Everything in a hash, by walking it whole and by scanning it.
    fn contents(hash: &Hash, now_ms: u64) -> [BTreeMap<Vec<u8>, Vec<u8>>; 2] {
        let (mut all, mut scanned, mut cursor) = (BTreeMap::new(), BTreeMap::new(), 0);
        hash.for_each(now_ms, |field, value| {
            let twice = all.insert(field.text().into_owned(), value.text().into_owned());
            assert_eq!(twice, None, "told twice");
        });
        loop {
            cursor = hash.scan(cursor, now_ms, |field, value| {
                scanned.insert(field.text().into_owned(), value.text().into_owned());
            });
            if cursor == 0 {
                return [all, scanned];
            }
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_btree_map_across_thresholds_and_deadlines(
            steps in prop::collection::vec((0u8..9, text(), text(), 0u64..20, any::<bool>()), 1..80),
            entries_max in 0usize..12,
            value_max in 10usize..4000,
            block_max_members in 0usize..24,
            block_max_bytes in 0usize..6000,
        ) {
            let limits = CollectionLimits {
                block_max_members,
                block_max_bytes,
                hash_max_listpack_entries: entries_max,
                hash_max_listpack_value: value_max,
                ..CollectionLimits::default()
            };
            let resources = Resources::for_tests();
            let layout = Layout { limits: &limits, resources: &resources };
            let (mut hash, mut model) = (Hash::default(), Model::default());
            let (mut was_table, mut now_ms) = (false, 1000);
            for (step, field, value, time, is_far) in steps {
                // Far ones take more bytes.
                let at = now_ms + 1 + time + if is_far { 1 << 48 } else { 0 };
                let known = model.0.get(&field).map(|(_, deadline_ms)| *deadline_ms);
                match step {
                    0 | 1 => {
                        prop_assert_eq!(hash.remove(&field, now_ms), model.0.remove(&field).is_some());
                    }
                    2 | 3 => {
                        let deadline_ms = (step == 2).then_some(at);
                        if let Some((_, old)) = model.0.get_mut(&field) {
                            hash.set_deadline(&field, deadline_ms, layout);
                            *old = deadline_ms;
                        }
                    }
                    4 => {
                        now_ms += time;
                        model.reclaim(now_ms);
                    }
                    5 => {
                        let reclaimed = hash.expire(now_ms, time as usize, |_| ());
                        prop_assert!(reclaimed <= time as usize);
                    }
                    _ => {
                        let (expiry, deadline_ms) = match step {
                            6 => (ExpiryChange::Keep, known.flatten()),
                            7 => (ExpiryChange::At(at), Some(at)),
                            _ => (ExpiryChange::Clear, None),
                        };
                        let is_new = model.0.insert(field.clone(), (value.clone(), deadline_ms)).is_none();
                        prop_assert_eq!(hash.set(&field, &value, expiry, now_ms, layout), is_new);
                    }
                }
                let known = model.0.get(&field);
                let found = hash.get(&field, now_ms).map(|value| value.text().into_owned());
                prop_assert_eq!(found.as_ref(), known.map(|(value, _)| value));
                prop_assert_eq!(hash.deadline_ms(&field, now_ms), known.map(|(_, deadline)| *deadline));
                prop_assert_eq!(hash.len(now_ms), model.0.len());
                prop_assert_eq!(hash.is_expired(now_ms), model.0.is_empty() && was_table);
                let next_ms = model.0.values().filter_map(|(_, deadline_ms)| *deadline_ms).min();
                prop_assert_eq!(hash.last_deadline_ms() >= next_ms, true);
                let mut reclaimed = hash.clone();
                reclaimed.expire(now_ms, usize::MAX, |_| ());
                prop_assert_eq!(reclaimed.next_deadline_ms(), next_ms);
                prop_assert_eq!(reclaimed.len(0), model.0.len());
                if step == 1 {
                    hash.settle(layout);
                }
                if let Fields::Block(block) = &hash.fields {
                    prop_assert!(block.records() <= block_max_members);
                }
                let is_table = hash.encoding() == "hashtable";
                prop_assert!(is_table || !was_table, "encodings only move on");
                prop_assert!(is_table || hash.len(now_ms) <= entries_max && next_ms.is_none());
                was_table = is_table;
            }
            for hash in [&hash, &hash.clone()] {
                for contents in contents(hash, now_ms) {
                    prop_assert_eq!(contents, model.values());
                }
            }
            let mut random = Random::new(1);
            for count in [0, 1, 3, 100] {
                let mut sample = BTreeMap::new();
                hash.sample(count, now_ms, &mut random, |field, value| {
                    sample.insert(field.text().into_owned(), value.text().into_owned());
                });
                prop_assert_eq!(sample.len(), count.min(model.0.len()));
                let values = model.values();
                prop_assert!(sample.iter().all(|(field, value)| values.get(field) == Some(value)));
                let drawn = hash.random(now_ms, &mut random);
                prop_assert_eq!(drawn.is_some(), !values.is_empty());
                let known = drawn.is_none_or(|(field, value)| {
                    values.get(&*field.text()).is_some_and(|own| *own == *value.text())
                });
                prop_assert!(known);
            }
        }
    }
}
