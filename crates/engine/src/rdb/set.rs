//! Sets.
//!
//! ```text
//! SET            count │ member │ …       strings
//! SET_INTSET     a string: the intset
//! SET_LISTPACK   a string: the listpack   Redis 7.2 and newer; only read, so that 7.0 can read ours
//! ```

use std::io;

use dunlin_structures::{IntSet, Listpack};

use crate::value::{Layout, Set};

use super::{Input, Output, RdbError, unique::all_differ};

const TWICE: RdbError = RdbError::Corrupt("a set has a member twice");

/// Whether a set is written as an intset.
pub(super) fn is_intset(set: &Set) -> bool {
    set.integers().is_some()
}

pub(super) fn write<W: io::Write>(set: &Set, output: &mut Output<'_, W>) -> io::Result<()> {
    if let Some(integers) = set.integers() {
        return output.string(integers.bytes());
    }
    output.length(set.len() as u64)?;
    let mut result = Ok(());
    set.for_each(|member| {
        if result.is_ok() {
            result = output.element(member);
        }
    });
    result
}

pub(super) fn read_members<R: io::BufRead>(
    input: &mut Input<R>,
    layout: Layout<'_>,
) -> Result<Set, RdbError> {
    let count = input.length()?;
    let mut set = Set::for_members(count, layout);
    let mut member = Vec::new();
    for _ in 0..count {
        input.string_into(&mut member)?;
        if !set.insert(&member, layout) {
            return Err(TWICE);
        }
    }
    Ok(set)
}

pub(super) fn from_intset(bytes: Vec<u8>, layout: Layout<'_>) -> Result<Set, RdbError> {
    Ok(Set::from_intset(IntSet::from_bytes(bytes)?, layout))
}

pub(super) fn from_listpack(listpack: Listpack, layout: Layout<'_>) -> Result<Set, RdbError> {
    if !all_differ(listpack.view().iter()) {
        return Err(TWICE);
    }
    Ok(Set::from_listpack(listpack, layout))
}
