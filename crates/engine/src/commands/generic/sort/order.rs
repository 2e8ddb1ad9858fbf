//! Putting elements in order.
//!
//! Elements are ordered by their weights, numbers or texts; equal numbers by the elements' bytes. Only
//! the part that is wanted is sorted: the rest is partitioned away in linear time.

use std::{cmp::Ordering, ops::Range};

use dunlin_resp::number::parse_integer;

use crate::value::{ExtendedFloat, parse_float};

/// Texts in one run of memory.
#[derive(Debug, Default)]
pub(super) struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    /// How many.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds the text that `write` appends.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// The text with number `at`.
    #[inline]
    pub(super) fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[at]]
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|at| self.get(at))
    }
}

/// The weights by which elements are ordered.
#[derive(Debug)]
pub(super) enum Weights<'a> {
    /// A number each.
    Numbers(Vec<f64>),
    /// A text each.
    Texts(&'a Texts),
    /// A text each, or none, which comes first.
    Optional(&'a [Option<usize>], &'a Texts),
}

/// The numbers of the elements at the places in `wanted`, in order.
pub(super) fn order(
    elements: &Texts,
    weights: &Weights<'_>,
    descending: bool,
    wanted: Range<usize>,
) -> Vec<usize> {
    let by_element = |one: usize, other: usize| elements.get(one).cmp(elements.get(other));
    match weights {
        Weights::Numbers(numbers) => {
            let keyed = numbers.iter().enumerate().map(|(at, number)| (ordinal(*number), at)).collect();
            sort(keyed, descending, wanted, by_element)
        }
        Weights::Texts(texts) => {
            let keyed = texts.iter().enumerate().map(|(at, text)| (head(text), at)).collect();
            sort(keyed, descending, wanted, |one, other| texts.get(one).cmp(texts.get(other)))
        }
        Weights::Optional(places, texts) => {
            let text = |at: usize| places[at].map(|place| texts.get(place));
            let keyed = (0..places.len()).map(|at| (text(at).map(head), at)).collect();
            sort(keyed, descending, wanted, |one, other| {
                text(one).cmp(&text(other)).then_with(|| by_element(one, other))
            })
        }
    }
}

/// The first bytes of a text as a number that orders texts as far as it reaches.
fn head(text: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = text.len().min(bytes.len());
    bytes[..length].copy_from_slice(&text[..length]);
    u64::from_be_bytes(bytes)
}

/// A number that orders as this weight does; 0 and -0 are equal.
fn ordinal(weight: f64) -> u64 {
    const SIGN: u64 = 1 << 63;
    let bits = (weight + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// Sorts by key, equal keys by `compare`, and answers the places that are wanted. Keys alone decide
/// nearly all comparisons, so a second pass looks at the bytes behind them.
fn sort<K: Ord>(
    mut keyed: Vec<(K, usize)>,
    descending: bool,
    wanted: Range<usize>,
    compare: impl Fn(usize, usize) -> Ordering,
) -> Vec<usize> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let directed = |ordering: Ordering| if descending { ordering.reverse() } else { ordering };
    let by_all = |one: &(K, usize), other: &(K, usize)| {
        directed(one.0.cmp(&other.0).then_with(|| compare(one.1, other.1)))
    };
    if wanted.end < keyed.len() {
        keyed.select_nth_unstable_by(wanted.end - 1, by_all);
        keyed.truncate(wanted.end);
    }
    if wanted.start > 0 {
        keyed.select_nth_unstable_by(wanted.start, by_all);
        keyed.drain(..wanted.start);
    }
    if descending {
        keyed.sort_unstable_by(|one, other| other.0.cmp(&one.0));
    } else {
        keyed.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    }
    for equals in keyed.chunk_by_mut(|one, other| one.0 == other.0) {
        equals.sort_unstable_by(|one, other| directed(compare(one.1, other.1)));
    }
    keyed.into_iter().map(|(_, at)| at).collect()
}

/// Reads a weight as C's `strtod` does: blanks before it are passed over, a NUL ends it, nothing is 0,
/// hexadecimal digits are fine; numbers that a double cannot hold are not.
pub(super) fn weight(text: &[u8]) -> Option<f64> {
    if let Some(integer) = parse_integer(text) {
        return Some(integer as f64);
    }
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let text = &text[text.iter().take_while(|byte| blank(byte)).count()..];
    let number = parse_float(text).or_else(|| {
        let is_hexadecimal = text.iter().any(|byte| matches!(byte, b'x' | b'X'));
        is_hexadecimal.then(|| parse_float(ExtendedFloat::parse(text)?.to_text()?.as_bytes())).flatten()
    })?;
    // C reports numbers that come too close to 0.
    let digits = text.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or_default();
    let is_zero = !digits.iter().any(|byte| matches!(byte, b'1'..=b'9'));
    (number.is_normal() || number.is_infinite() || is_zero).then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(list: &[Vec<u8>]) -> Texts {
        let mut texts = Texts::default();
        list.iter().for_each(|text| texts.push(|out| out.extend_from_slice(text)));
        texts
    }

    #[test]
    fn ordinals_order_as_numbers_do() {
        let ascending = [f64::NEG_INFINITY, -1e300, -2.5, -1.0, -0.0, 1e-300, 1.0, 2.5, f64::INFINITY];
        assert!(ascending.windows(2).all(|two| ordinal(two[0]) < ordinal(two[1])));
        assert_eq!(ordinal(0.0), ordinal(-0.0));
    }

    #[test]
    fn weights_read_as_in_c() {
        for (text, expected) in [
            ("5", Some(5.0)),
            ("-1.5e2", Some(-150.0)),
            ("", Some(0.0)),
            (" 7", Some(7.0)),
            ("\t\n7", Some(7.0)),
            ("7 ", None),
            (" ", None),
            ("7\0x", Some(7.0)),
            ("\0", Some(0.0)),
            ("0x10", Some(16.0)),
            ("inf", Some(f64::INFINITY)),
            ("nan", None),
            ("1e400", None),
            ("1e-400", None),
            ("0e-400", Some(0.0)),
            ("0.000", Some(0.0)),
            ("x", None),
            ("1e", None),
        ] {
            assert_eq!(weight(text.as_bytes()), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn sort_with_limit_gives_that_part_of_the_full_sort(
            list in prop::collection::vec(prop::collection::vec(0u8..3, 0..12), 0..60),
            numbers in prop::collection::vec(-3i8..3, 60),
            descending: bool,
            ends in (0usize..70, 0usize..70),
        ) {
            let elements = texts(&list);
            let count = list.len();
            let wanted = ends.0.min(ends.1).min(count)..ends.0.max(ends.1).min(count);
            let numbers: Vec<f64> = numbers[..count].iter().map(|number| f64::from(*number)).collect();
            let places: Vec<Option<usize>> = (0..count).map(|at| (numbers[at] > 0.0).then_some(at)).collect();
            let mut expected: Vec<usize> = (0..count).collect();
            for (weights, key) in [
                (Weights::Texts(&elements), 0),
                (Weights::Numbers(numbers.clone()), 1),
                (Weights::Optional(&places, &elements), 2),
            ] {
                expected.sort_by(|one, other| {
                    let by_element = list[*one].cmp(&list[*other]);
                    let ascending = match key {
                        0 => by_element,
                        1 => numbers[*one].partial_cmp(&numbers[*other]).unwrap().then(by_element),
                        _ => places[*one].map(|_| &list[*one]).cmp(&places[*other].map(|_| &list[*other]))
                            .then(by_element),
                    };
                    if descending { ascending.reverse() } else { ascending }
                });
                let found = order(&elements, &weights, descending, wanted.clone());
                let told = |order: &[usize]| -> Vec<&Vec<u8>> { order.iter().map(|at| &list[*at]).collect() };
                prop_assert_eq!(told(&found), told(&expected[wanted.clone()]));
            }
        }
    }
}
