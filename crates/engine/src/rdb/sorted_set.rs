//! Sorted sets.
//!
//! ```text
//! ZSET_2          count │ member │ score: f64 LE │ …    the greatest first
//! ZSET_LISTPACK   a string: the listpack               member, score, member, score … in order
//! ZSET_ZIPLIST    a string: the ziplist                as the listpack; before Redis 7.0
//! ```
//!
//! Only read:
//!
//! ```text
//! ZSET            count │ member │ score │ …           a score: length: u8, so many characters
//!                                                      253 NaN │ 254 infinity │ 255 minus infinity
//! ```

use std::{cmp::Ordering, io};

use dunlin_structures::{Element, Listpack};

use crate::value::{Gathered, Layout, SortedSet, parse_float};

use super::{Input, Output, RdbError, unique::all_differ, ziplist};

const TWICE: RdbError = RdbError::Corrupt("a sorted set has a member twice");
const NO_SCORE: RdbError = RdbError::Corrupt("a score is not a number");
const NAN: u8 = 253;
const INFINITY: u8 = 254;
const MINUS_INFINITY: u8 = 255;

pub(super) fn write<W: io::Write>(set: &SortedSet, output: &mut Output<'_, W>) -> io::Result<()> {
    if let Some(bytes) = set.compact_bytes() {
        return output.string(bytes);
    }
    output.length(set.len() as u64)?;
    let mut result = Ok(());
    // From behind, as Redis, whose loading then appends to the front of its list.
    set.for_range(0..set.len(), true, |member, score| {
        if result.is_ok() {
            result = output.element(member).and_then(|()| output.double(score));
        }
    });
    result
}

/// ZSET_2 or ZSET, which differ in what `read_score` reads.
pub(super) fn read_pairs<R: io::BufRead>(
    input: &mut Input<R>,
    layout: Layout<'_>,
    read_score: impl Fn(&mut Input<R>) -> Result<f64, RdbError>,
) -> Result<SortedSet, RdbError> {
    let mut gathered = Gathered::new(layout);
    let mut member = Vec::new();
    for _ in 0..input.length()? {
        input.string_into(&mut member)?;
        let score = read_score(input)?;
        if score.is_nan() {
            return Err(NO_SCORE);
        }
        add(&mut gathered, &member, score)?;
    }
    Ok(gathered.finish(layout))
}

/// The score of ZSET.
pub(super) fn score_text<R: io::BufRead>(input: &mut Input<R>) -> Result<f64, RdbError> {
    match input.byte()? {
        NAN => Err(NO_SCORE),
        INFINITY => Ok(f64::INFINITY),
        MINUS_INFINITY => Ok(f64::NEG_INFINITY),
        length => parse_float(&input.bytes(length.into())?).ok_or(NO_SCORE),
    }
}

fn add(gathered: &mut Gathered, member: &[u8], score: f64) -> Result<(), RdbError> {
    let mut is_new = true;
    gathered.add(member, |there| {
        is_new = there.is_none();
        score
    });
    if is_new { Ok(()) } else { Err(TWICE) }
}

pub(super) fn from_listpack(listpack: Listpack, layout: Layout<'_>) -> Result<SortedSet, RdbError> {
    if !listpack.len().is_multiple_of(2) {
        return Err(RdbError::Corrupt("a sorted set has a member without a score"));
    }
    if !all_differ(listpack.view().iter().step_by(2)) {
        return Err(TWICE);
    }
    let mut before: Option<(Element<'_>, f64)> = None;
    let mut elements = listpack.view().iter();
    while let (Some(member), Some(score)) = (elements.next(), elements.next()) {
        let score = score_of(score)?;
        if before.is_some_and(|(former, former_score)| {
            let by_score = former_score.partial_cmp(&score).unwrap_or(Ordering::Equal);
            by_score.then_with(|| former.text().cmp(&member.text())).is_gt()
        }) {
            return Err(RdbError::Corrupt("a sorted set is not in order"));
        }
        before = Some((member, score));
    }
    Ok(SortedSet::from_listpack(listpack, layout))
}

fn score_of(element: Element<'_>) -> Result<f64, RdbError> {
    match element {
        Element::Integer(integer) => Ok(integer as f64),
        Element::String(text) => parse_float(text).ok_or(NO_SCORE),
    }
}

pub(super) fn from_ziplist(bytes: &[u8], layout: Layout<'_>) -> Result<SortedSet, RdbError> {
    from_listpack(ziplist::to_listpack(bytes)?, layout)
}
