use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    rdb::{Input, Output, RdbError, Version},
    value::{CollectionLimits, Layout, Stored},
};

impl Array {
    fn assert_sound(&self) {
        match &self.form {
            Form::Small(listpack) => {
                assert!(listpack.is_empty() || listpack.len() % 2 == 1);
                assert!(listpack.bytes().len() <= SMALL_BYTES_MAX && self.count() <= SMALL_PAIRS_MAX as u64);
            }
            Form::Large(pages) => pages.assert_sound(),
        }
    }

    fn contents(&self) -> Vec<(u64, Vec<u8>)> {
        self.iter().map(|(index, value)| (index, value.text().into_owned())).collect()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Set(u64, Vec<u8>),
    /// Values at this many indexes from one on, each so far from the one before, upwards or downwards.
    SetRun(u64, u64, u64, bool),
    Remove(u64, u64),
    Seek(Option<u64>),
    /// The copy goes on; the original must stay.
    Copy,
    CopyApart,
}

fn index() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..300_u64,
        4 => 0..20_000_u64,
        1 => any::<u64>().prop_map(|index| index.min(Array::INDEX_MAX)),
        1 => (0..200_u64).prop_map(|below| Array::INDEX_MAX - below),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => any::<i64>().prop_map(|integer| integer.to_string().into_bytes()),
        3 => prop::collection::vec(any::<u8>(), 0..20),
        1 => (100..1500_usize).prop_map(|length| vec![b'x'; length]),
        1 => (4000..6000_usize).prop_map(|length| vec![b'y'; length]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (index(), value()).prop_map(|(index, value)| Step::Set(index, value)),
        4 => (index(), 1..150_u64, prop_oneof![Just(1_u64), 1..2000_u64], any::<bool>())
            .prop_map(|(first, count, apart, down)| Step::SetRun(first, count, apart, down)),
        4 => (index(), 0..200_u64).prop_map(|(low, span)| Step::Remove(low, low.saturating_add(span))),
        2 => (index(), index()).prop_map(|(one, other)| Step::Remove(one.min(other), one.max(other))),
        1 => prop::option::of(index()).prop_map(Step::Seek),
        1 => Just(Step::Copy),
        1 => Just(Step::CopyApart),
    ]
}

proptest! {
    #[test]
    fn array_behaves_as_an_ordered_map(steps in prop::collection::vec(step(), 0..60), low in index(), high in index()) {
        let mut array = Array::default();
        let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut cursor = None;
        let mut copies = Vec::new();
        for step in steps {
            match step {
                Step::Set(index, value) => {
                    prop_assert_eq!(array.set(index, &value), model.insert(index, value).is_none());
                }
                Step::SetRun(first, count, apart, down) => {
                    for number in 0..count {
                        let number = if down { count - number } else { number };
                        let index = first.saturating_add(number * apart).min(Array::INDEX_MAX);
                        let value = format!("{number}").into_bytes();
                        prop_assert_eq!(array.set(index, &value), model.insert(index, value).is_none());
                    }
                }
                Step::Remove(low, high) => {
                    let before = model.len();
                    model.retain(|index, _| !(low..=high).contains(index));
                    prop_assert_eq!(array.remove(low, high), (before - model.len()) as u64);
                }
                Step::Seek(to) => {
                    array.set_cursor(to);
                    cursor = to;
                }
                Step::Copy => copies.push((array.clone(), model.clone())),
                Step::CopyApart => {
                    let apart = array.copied();
                    prop_assert!(!apart.is_shared());
                    copies.push((std::mem::replace(&mut array, apart), model.clone()));
                }
            }
            array.assert_sound();
            prop_assert_eq!(array.count(), model.len() as u64);
            prop_assert_eq!(array.cursor(), cursor);
            prop_assert_eq!(array.len(), model.last_key_value().map_or(0, |(last, _)| last + 1));
        }
        copies.push((array, model));
        let (low, high) = (low.min(high), low.max(high));
        for (array, model) in copies {
            array.assert_sound();
            let contents: Vec<_> = model.clone().into_iter().collect();
            prop_assert_eq!(array.contents(), contents);
            let expected: Vec<u64> = model.range(low..=high).map(|(index, _)| *index).collect();
            let found: Vec<u64> = array.range(low, high, false).map(|(index, _)| index).collect();
            prop_assert_eq!(&found, &expected);
            let mut reversed: Vec<u64> = array.range(low, high, true).map(|(index, _)| index).collect();
            reversed.reverse();
            prop_assert_eq!(reversed, expected);
            for (index, value) in &model {
                prop_assert!(array.get(*index).is_some_and(|found| found.eq_bytes(value)));
                let behind = index.saturating_add(1);
                prop_assert_eq!(array.get(behind).is_some(), model.contains_key(&behind));
            }
        }
    }

    /// Files of versions with and without arrays carry all of it.
    #[test]
    fn files_carry_arrays(values in prop::collection::btree_map(index(), value(), 1..200), cursor in prop::option::of(index())) {
        let mut array = Array::default();
        values.iter().for_each(|(index, value)| _ = array.set(*index, value));
        array.set_cursor(cursor);
        for version in [Version::Redis(15), Version::Redis(14), Version::Redis(11), Version::Valkey(80)] {
            let mut bytes = Vec::new();
            array.write_rdb(version, 0, &mut Output::new(&mut bytes, None)).unwrap();
            let read = read_file(array.rdb_type(version), version, &bytes).unwrap();
            prop_assert_eq!(read.contents(), array.contents());
            prop_assert_eq!(read.cursor(), cursor);
            for cut in [0, 1, bytes.len() / 2, bytes.len() - 1] {
                prop_assert!(read_file(array.rdb_type(version), version, &bytes[..cut]).is_err());
            }
        }
    }
}

fn read_file(type_number: u8, version: Version, bytes: &[u8]) -> Result<Array, RdbError> {
    let (limits, resources) = (CollectionLimits::default(), Resources::for_tests());
    let layout = Layout { limits: &limits, resources: &resources };
    let object = crate::value::read_object(type_number, version, &mut Input::new(bytes), layout);
    match object.expect("a form of arrays")? {
        Object::Array(array) => Ok(array),
        other => panic!("{other:?} is no array"),
    }
}

/// Layouts by hand, from the layout's description.
#[test]
fn elements_of_files_have_four_marks() {
    let bytes = [
        b"\x05\x01\x09".as_slice(),
        b"\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x01\x02\x1f\x85\xebQ\xb8\x1e\x09@",
        b"\x02\x02\x00\x00\x00\x00\x00\x00\xf0\x3f",
        b"\x40\x64\x00\x05short",
        b"\x81\xff\xff\xff\xff\xff\xff\xff\xfe\x03\x04long",
    ]
    .concat();
    let array = read_file(28, Version::Redis(14), &bytes).unwrap();
    let values = array.contents();
    let texts: Vec<_> = values.iter().map(|(index, text)| (*index, text.as_slice())).collect();
    let expected: [(u64, &[u8]); 5] =
        [(0, b"-1"), (1, b"3.14"), (2, b"1.0"), (100, b"short"), (u64::MAX - 1, b"long")];
    assert_eq!((texts.as_slice(), array.cursor()), (expected.as_slice(), Some(9)));
    let mut written = Vec::new();
    array.write_rdb(Version::Redis(14), 0, &mut Output::new(&mut written, None)).unwrap();
    assert_eq!(
        written,
        bytes.iter().enumerate().map(|(at, byte)| if at == 35 { 3 } else { *byte }).collect::<Vec<_>>()
    );
}

#[test]
fn files_that_lie_are_refused() {
    for bytes in [
        b"\x00\x00".as_slice(),
        b"\x01\x02\x00\x03\x01x",
        b"\x01\x00\x00\x04\x01x",
        b"\x02\x00\x00\x03\x01x\x00\x03\x01y",
        b"\x01\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff\x03\x01x",
        b"\x01\x01\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00\x03\x01x",
        b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x03\x01x",
        b"\x01\x00\x00\x03\x81\x00\x00\x00\xff\xff\xff\xff\xffx",
    ] {
        assert!(read_file(28, Version::Redis(15), bytes).is_err(), "{bytes:?}");
    }
    assert!(
        crate::value::read_object(
            28,
            Version::Valkey(80),
            &mut Input::new(&b"\x01\x00\x00\x03\x01x"[..]),
            Layout { limits: &CollectionLimits::default(), resources: &Resources::for_tests() }
        )
        .is_none()
    );
}

/// An array takes little more than its values, dense or not, however it was filled.
#[test]
fn memory_follows_the_values() {
    let bytes_per_value = |indexes: &mut dyn Iterator<Item = u64>| {
        let mut array = Array::default();
        indexes.for_each(|index| _ = array.set(index, 7_i64));
        array.assert_sound();
        (array.heap_bytes() as u64).div_ceil(array.count())
    };
    let dense = bytes_per_value(&mut (0..100_000));
    let downwards = bytes_per_value(&mut (0..100_000).rev());
    let sparse = bytes_per_value(&mut (0..100_000).map(|number| number * 1_000_003));
    let sparse_downwards = bytes_per_value(&mut (0..100_000).rev().map(|number| number * 1_000_003));
    let scattered =
        bytes_per_value(&mut (0..100_000_u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1));
    println!("{dense} {downwards} {sparse} {sparse_downwards} {scattered}");
    assert!(dense <= 7 && downwards <= 8 && sparse <= 16 && sparse_downwards <= 16 && scattered <= 24);
    let mut array = Array::default();
    (0..100_000).for_each(|index| _ = array.set(index, 7_i64));
    let before = array.heap_bytes();
    (0..100_000).filter(|index| index % 64 != 0).for_each(|index| _ = array.remove(index, index));
    array.assert_sound();
    assert!(array.heap_bytes() < before / 10, "{} of {before}", array.heap_bytes());
}

/// A change beside a view copies one page.
#[test]
fn array_change_beside_a_view_copies_one_page() {
    let mut array = Array::default();
    (0..10_000).for_each(|index| _ = array.set(index, 7_i64));
    let view = array.clone();
    assert!(array.is_shared() && array.is(&view));
    array.set(5_000, 8_i64);
    assert!(!array.is_shared() && !array.is(&view));
    assert_eq!(view.get(5_000), Some(Element::Integer(7)));
    array.assert_sound();
    view.assert_sound();
}
