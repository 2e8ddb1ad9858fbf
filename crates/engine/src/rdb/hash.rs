//! Hashes.
//!
//! ```text
//! HASH             count │ field │ value │ …                          strings
//! HASH_LISTPACK    a string: the listpack                             field, value, field, value …
//! HASH_2           count │ field │ value │ deadline: i64 LE │ …       Valkey 9; -1 where it never expires
//! HASH_METADATA    earliest: i64 LE │ count │ time │ field │ value …  Redis 7.4; the time is a length:
//!                                                                     0, or 1 + what it is after the earliest
//! HASH_ZIPLIST     a string: the ziplist                              before Redis 7.0
//! ```
//!
//! Only read:
//!
//! ```text
//! HASH_LISTPACK_EX earliest: i64 LE │ a string: the listpack          field, value, deadline or 0 …
//! …_PRE_GA         as these, without the earliest, times in full      release candidates of Redis 7.4
//! HASH_ZIPMAP      a string: the zipmap
//! ```
//!
//! Times are unix milliseconds. Fields whose time has come are not written; they may be read, and are
//! treated as anywhere else.

use std::io;

use dunlin_structures::{Element, Listpack};

use crate::{
    context::ExpiryChange,
    value::{Hash, Layout},
};

use super::{Input, Output, RdbError, unique::all_differ, ziplist, zipmap};

const TWICE: RdbError = RdbError::Corrupt("a hash has a field twice");
const BEYOND_TIME: RdbError = RdbError::Corrupt("a field expires at a time that cannot be");
const NEVER: i64 = -1;

/// Whether a hash has fields that expire, so that older forms cannot carry it.
pub(super) fn has_deadlines(hash: &Hash) -> bool {
    hash.next_deadline_ms().is_some()
}

/// Whether fields expire later than Redis knows times for fields, so that its files cannot carry the hash.
pub(super) fn has_far_deadlines(hash: &Hash) -> bool {
    /// The year 10889.
    const REDIS_DEADLINE_MS_MAX: u64 = (1 << 48) - 1;
    hash.last_deadline_ms().is_some_and(|last| last > REDIS_DEADLINE_MS_MAX)
}

pub(super) fn write<W: io::Write>(hash: &Hash, now_ms: u64, output: &mut Output<'_, W>) -> io::Result<()> {
    if let Some(bytes) = hash.compact_bytes() {
        return output.string(bytes);
    }
    let with_deadlines = has_deadlines(hash);
    output.length(hash.len(now_ms) as u64)?;
    let mut result = Ok(());
    hash.for_each_with_deadline(now_ms, |field, value, deadline_ms| {
        if result.is_err() {
            return;
        }
        result = output.element(field).and_then(|()| output.element(value));
        if with_deadlines && result.is_ok() {
            result = write_deadline(deadline_ms, output);
        }
    });
    result
}

/// HASH, of a hash whose fields expire.
pub(super) fn write_without_deadlines<W: io::Write>(
    hash: &Hash,
    now_ms: u64,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    output.length(hash.len(now_ms) as u64)?;
    let mut result = Ok(());
    hash.for_each_with_deadline(now_ms, |field, value, _| {
        if result.is_ok() {
            result = output.element(field).and_then(|()| output.element(value));
        }
    });
    result
}

/// When a field of HASH_2 expires.
pub(super) fn write_deadline<W: io::Write>(
    deadline_ms: Option<u64>,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    output.milliseconds(deadline_ms.map_or(NEVER, |at| at as i64))
}

/// HASH_METADATA.
pub(super) fn write_metadata<W: io::Write>(
    hash: &Hash,
    now_ms: u64,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    let mut earliest = u64::MAX;
    hash.for_each_with_deadline(now_ms, |_, _, deadline_ms| {
        earliest = earliest.min(deadline_ms.unwrap_or(u64::MAX))
    });
    // Where all that expires has, nothing counts from it.
    output.milliseconds(if earliest == u64::MAX { 0 } else { earliest as i64 })?;
    output.length(hash.len(now_ms) as u64)?;
    let mut result = Ok(());
    hash.for_each_with_deadline(now_ms, |field, value, deadline_ms| {
        if result.is_ok() {
            let time = deadline_ms.map_or(0, |at| at - earliest + 1);
            result =
                output.length(time).and_then(|()| output.element(field)).and_then(|()| output.element(value));
        }
    });
    result
}

/// When a field expires: `None` for never.
fn deadline(time_ms: i64) -> Result<Option<u64>, RdbError> {
    let at = u64::try_from(time_ms).map_err(|_| BEYOND_TIME)?;
    Ok((at > 0).then_some(at))
}

/// Adds a field that must be new.
fn add(
    hash: &mut Hash,
    field: &[u8],
    value: &[u8],
    deadline_ms: Option<u64>,
    layout: Layout<'_>,
) -> Result<(), RdbError> {
    let expiry = deadline_ms.map_or(ExpiryChange::Clear, ExpiryChange::At);
    // At the beginning of time nothing has expired, so that twins are found whatever their deadlines.
    if hash.set(field, value, expiry, 0, layout) { Ok(()) } else { Err(TWICE) }
}

pub(super) fn read_pairs<R: io::BufRead>(input: &mut Input<R>, layout: Layout<'_>) -> Result<Hash, RdbError> {
    let count = input.length()?;
    let mut hash = Hash::for_fields(count, layout);
    let (mut field, mut value) = (Vec::new(), Vec::new());
    for _ in 0..count {
        input.string_into(&mut field)?;
        input.string_into(&mut value)?;
        add(&mut hash, &field, &value, None, layout)?;
    }
    Ok(hash)
}

/// HASH_2.
pub(super) fn read_triples<R: io::BufRead>(
    input: &mut Input<R>,
    layout: Layout<'_>,
) -> Result<Hash, RdbError> {
    let count = input.length()?;
    let mut hash = Hash::for_fields(count, layout);
    let (mut field, mut value) = (Vec::new(), Vec::new());
    for _ in 0..count {
        input.string_into(&mut field)?;
        input.string_into(&mut value)?;
        let at = match input.milliseconds()? {
            NEVER => None,
            at => deadline(at)?,
        };
        add(&mut hash, &field, &value, at, layout)?;
    }
    Ok(hash)
}

/// HASH_METADATA; times count from `earliest`, or are whole where there is none.
pub(super) fn read_metadata<R: io::BufRead>(
    input: &mut Input<R>,
    earliest: Option<i64>,
    layout: Layout<'_>,
) -> Result<Hash, RdbError> {
    let count = input.length()?;
    let mut hash = Hash::for_fields(count, layout);
    let (mut field, mut value) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let time = i64::try_from(input.length()?).map_err(|_| BEYOND_TIME)?;
        input.string_into(&mut field)?;
        input.string_into(&mut value)?;
        let at = match (time, earliest) {
            (0, _) => None,
            (time, None) => deadline(time)?,
            (time, Some(earliest)) => deadline(earliest.checked_add(time - 1).ok_or(BEYOND_TIME)?)?,
        };
        add(&mut hash, &field, &value, at, layout)?;
    }
    Ok(hash)
}

/// HASH_LISTPACK_EX, behind the earliest time.
pub(super) fn from_triples(listpack: &Listpack, layout: Layout<'_>) -> Result<Hash, RdbError> {
    let mut hash = Hash::default();
    let mut elements = listpack.view().iter();
    while let Some(field) = elements.next() {
        let (Some(value), Some(time)) = (elements.next(), elements.next()) else {
            return Err(RdbError::Corrupt("a hash has a field without a value or a time"));
        };
        let Element::Integer(time) = time else { return Err(BEYOND_TIME) };
        add(&mut hash, &field.text(), &value.text(), deadline(time)?, layout)?;
    }
    Ok(hash)
}

pub(super) fn from_listpack(listpack: Listpack, layout: Layout<'_>) -> Result<Hash, RdbError> {
    if !listpack.len().is_multiple_of(2) {
        return Err(RdbError::Corrupt("a hash has a field without a value"));
    }
    if !all_differ(listpack.view().iter().step_by(2)) {
        return Err(TWICE);
    }
    Ok(Hash::from_listpack(listpack, layout))
}

pub(super) fn from_ziplist(bytes: &[u8], layout: Layout<'_>) -> Result<Hash, RdbError> {
    from_listpack(ziplist::to_listpack(bytes)?, layout)
}

pub(super) fn from_zipmap(bytes: &[u8], layout: Layout<'_>) -> Result<Hash, RdbError> {
    let mut hash = Hash::default();
    zipmap::for_each(bytes, |field, value| add(&mut hash, field, value, None, layout))?;
    Ok(hash)
}
