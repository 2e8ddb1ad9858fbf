//! Hashes: values by field.
//!
//! ```text
//! listpack    up to hash-max-listpack-entries short fields: field, value, field, value … in Redis's
//!             bytes, in the order the fields came
//! hashtable   the rest: a member table whose payloads are the values
//! ```
//!
//! A hash only ever moves down this list, as in Redis: removing fields changes no encoding.

use std::sync::Arc;

use dunlin_structures::{Element, Listpack, Position};

use super::{Collection, Layout, MemberTable, Object, Resources};
use crate::random::{Random, Selection};

/// Values by field.
#[derive(Debug, Clone)]
pub struct Hash {
    fields: Fields,
}

/// The table is boxed so that small hashes stay small.
#[derive(Debug, Clone)]
enum Fields {
    Listpack(Listpack),
    Table(Box<MemberTable>),
}

impl Collection for Hash {
    fn new(_: &Arc<Resources>) -> Self {
        Self::default()
    }

    fn of(object: &Object) -> Option<&Self> {
        match object {
            Object::Hash(hash) => Some(hash),
            _ => None,
        }
    }

    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        match object {
            Object::Hash(hash) => Some(hash),
            _ => None,
        }
    }

    fn into_object(self) -> Object {
        Object::Hash(self)
    }

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
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

impl Hash {
    /// Without fields, ready to get `count` of them, which decides whether it begins compact.
    pub(crate) fn for_fields(count: u64, layout: Layout<'_>) -> Self {
        let mut hash = Self::default();
        if count > layout.limits.hash_max_listpack_entries as u64 {
            hash.make_table(layout);
        }
        hash
    }

    /// The fields and values of a listpack, whose fields must differ; compact where there are not too
    /// many.
    pub(crate) fn from_listpack(listpack: Listpack, layout: Layout<'_>) -> Self {
        let fits = listpack.len() / 2 <= layout.limits.hash_max_listpack_entries && listpack.fits(0);
        let mut hash = Self { fields: Fields::Listpack(listpack) };
        if !fits {
            hash.make_table(layout);
        }
        hash
    }

    /// How many fields. O(1).
    #[inline]
    pub fn len(&self) -> usize {
        match &self.fields {
            Fields::Listpack(listpack) => listpack.len() / 2,
            Fields::Table(table) => table.len(),
        }
    }

    /// Whether there is nothing in it. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name that `OBJECT ENCODING` answers.
    pub fn encoding(&self) -> &'static str {
        match &self.fields {
            Fields::Listpack(_) => "listpack",
            Fields::Table(_) => "hashtable",
        }
    }

    /// The bytes of a compact encoding.
    pub fn compact_bytes(&self) -> Option<&[u8]> {
        match &self.fields {
            Fields::Listpack(listpack) => Some(listpack.bytes()),
            Fields::Table(_) => None,
        }
    }

    /// Bytes outside the hash itself. O(1).
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        match &self.fields {
            Fields::Listpack(listpack) => listpack.capacity(),
            Fields::Table(table) => size_of::<MemberTable>() + table.heap_bytes(),
        }
    }

    /// The value of a field. O(1); in a listpack O(n).
    #[inline]
    pub fn get(&self, field: &[u8]) -> Option<Element<'_>> {
        match &self.fields {
            Fields::Listpack(listpack) => {
                let view = listpack.view();
                Some(view.element(value_at(listpack, view.find(field, 1)?)))
            }
            Fields::Table(table) => table.get(field).map(Element::String),
        }
    }

    /// Makes ready for `texts`, fields and values that are about to be stored: where one is too long
    /// for the compact encoding, or they are too many together, the hash leaves it at once.
    pub fn expect(&mut self, texts: &[&[u8]], layout: Layout<'_>) {
        let Fields::Listpack(listpack) = &self.fields else { return };
        let limits = layout.limits;
        let bytes = || texts.iter().map(|text| Element::String(text).encoded_bytes()).sum();
        if texts.len() / 2 > limits.hash_max_listpack_entries
            || texts.iter().any(|text| text.len() > limits.hash_max_listpack_value)
            || !listpack.fits(bytes())
        {
            self.make_table(layout);
        }
    }

    /// Gives a field a value; whether the field is new. O(1); in a listpack O(n).
    #[inline]
    pub fn set(&mut self, field: &[u8], value: &[u8], layout: Layout<'_>) -> bool {
        self.expect(&[field, value], layout);
        let listpack = match &mut self.fields {
            Fields::Listpack(listpack) => listpack,
            Fields::Table(table) => {
                return match table.find(field) {
                    Some(slot) => {
                        table.replace(slot, value);
                        false
                    }
                    None => table.insert(field, value).1,
                };
            }
        };
        if let Some(position) = listpack.view().find(field, 1) {
            let position = value_at(listpack, position);
            listpack.replace(position, value);
            return false;
        }
        listpack.push(field);
        listpack.push(value);
        if listpack.len() / 2 > layout.limits.hash_max_listpack_entries {
            self.make_table(layout);
        }
        true
    }

    /// Removes a field; whether it was there. O(1); in a listpack O(n).
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.fields {
            Fields::Listpack(listpack) => {
                let found = listpack.view().find(field, 1);
                found.map(|position| listpack.remove_run(position, 2)).is_some()
            }
            Fields::Table(table) => {
                let found = table.find(field);
                found.map(|slot| table.remove(slot)).is_some()
            }
        }
    }

    /// Visits all fields with their values: those of a listpack in the order they came, others in no
    /// order. O(n).
    pub fn for_each<'a>(&'a self, mut visit: impl FnMut(Element<'a>, Element<'a>)) {
        match &self.fields {
            Fields::Listpack(listpack) => {
                let mut elements = listpack.view().iter();
                while let (Some(field), Some(value)) = (elements.next(), elements.next()) {
                    visit(field, value);
                }
            }
            Fields::Table(table) => {
                table.for_each(|record| visit(Element::String(record.key), Element::String(record.payload)));
            }
        }
    }

    /// Visits some fields behind `cursor` with their values and answers the next cursor, 0 at the
    /// end: what is there from the call with 0 to the one that answers 0 is visited at least once.
    /// A compact hash is visited whole.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(Element<'_>, Element<'_>)) -> u64 {
        if let Fields::Table(table) = &self.fields {
            return table.scan(cursor, |record| {
                visit(Element::String(record.key), Element::String(record.payload));
            });
        }
        self.for_each(visit);
        0
    }

    /// A field with its value, nearly uniformly chosen. O(1); in a listpack O(n).
    pub(crate) fn random(&self, random: &mut Random) -> Option<(Element<'_>, Element<'_>)> {
        match &self.fields {
            Fields::Listpack(listpack) => {
                let field = listpack.view().seek(2 * random.below(self.len()) as i64)?;
                let view = listpack.view();
                Some((view.element(field), view.element(value_at(listpack, field))))
            }
            Fields::Table(table) => table
                .random(random.bits())
                .map(|record| (Element::String(record.key), Element::String(record.payload))),
        }
    }

    /// Visits `count` different fields, nearly uniformly chosen, or all where there are fewer.
    /// O(count), or O(n) where that is not much more.
    pub(crate) fn sample<'a>(
        &'a self,
        count: usize,
        random: &mut Random,
        mut visit: impl FnMut(Element<'a>, Element<'a>),
    ) {
        if let Fields::Table(table) = &self.fields {
            return table.sample(count, random, |record| {
                visit(Element::String(record.key), Element::String(record.payload));
            });
        }
        let mut selection = Selection::new(count, self.len());
        self.for_each(|field, value| {
            if selection.takes(random) {
                visit(field, value);
            }
        });
    }

    /// Moves all fields to a table.
    fn make_table(&mut self, layout: Layout<'_>) {
        let mut table = Box::new(MemberTable::new(layout.resources));
        self.for_each(|field, value| {
            table.insert(&field.text(), &value.text());
        });
        self.fields = Fields::Table(table);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::value::CollectionLimits;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (-8i64..8).prop_map(|integer| integer.to_string().into_bytes()),
            1 => prop::sample::select(vec!["", "00", "a", "bb"]).prop_map(|text| text.as_bytes().to_vec()),
            1 => (10usize..14).prop_map(|length| vec![b'x'; length]),
            1 => (0usize..3000).prop_map(|length| vec![b'y'; length]),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_btree_map_across_the_thresholds(
            steps in prop::collection::vec((0u8..3, text(), text()), 1..80),
            entries_max in 0usize..12,
            value_max in 10usize..4000,
        ) {
            let limits = CollectionLimits {
                hash_max_listpack_entries: entries_max,
                hash_max_listpack_value: value_max,
                ..CollectionLimits::default()
            };
            let resources = Resources::for_tests();
            let layout = Layout { limits: &limits, resources: &resources };
            let mut hash = Hash::default();
            let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            let mut was_table = false;
            for (step, field, value) in steps {
                if step == 0 {
                    prop_assert_eq!(hash.remove(&field), model.remove(&field).is_some());
                } else {
                    let is_new = model.insert(field.clone(), value.clone()).is_none();
                    prop_assert_eq!(hash.set(&field, &value, layout), is_new);
                }
                let found = hash.get(&field).map(|value| value.text().into_owned());
                prop_assert_eq!(found.as_ref(), model.get(&field));
                prop_assert_eq!(hash.len(), model.len());
                let is_table = hash.encoding() == "hashtable";
                prop_assert!(is_table || !was_table, "encodings only move on");
                prop_assert!(is_table || hash.len() <= entries_max);
                was_table = is_table;
            }
            let collect = |hash: &Hash| {
                let mut all = BTreeMap::new();
                hash.for_each(|field, value| {
                    let twice = all.insert(field.text().into_owned(), value.text().into_owned());
                    assert_eq!(twice, None, "told twice");
                });
                all
            };
            prop_assert_eq!(&collect(&hash), &model);
            prop_assert_eq!(&collect(&hash.clone()), &model);
            let (mut cursor, mut scanned) = (0, BTreeMap::new());
            loop {
                cursor = hash.scan(cursor, |field, value| {
                    scanned.insert(field.text().into_owned(), value.text().into_owned());
                });
                if cursor == 0 { break }
            }
            prop_assert_eq!(&scanned, &model);
            let mut random = Random::new(1);
            for count in [0, 1, 3, 100] {
                let mut sample = BTreeMap::new();
                hash.sample(count, &mut random, |field, value| {
                    sample.insert(field.text().into_owned(), value.text().into_owned());
                });
                prop_assert_eq!(sample.len(), count.min(model.len()));
                prop_assert!(sample.iter().all(|(field, value)| model.get(field) == Some(value)));
                let drawn = hash.random(&mut random);
                prop_assert_eq!(drawn.is_some(), !model.is_empty());
                let known = drawn.is_none_or(|(field, value)| {
                    model.get(&*field.text()).is_some_and(|own| *own == *value.text())
                });
                prop_assert!(known);
            }
        }
    }
}
