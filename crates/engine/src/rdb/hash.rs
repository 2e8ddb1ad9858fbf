//! Hashes.
//!
//! ```text
//! HASH            count │ field │ value │ …      strings
//! HASH_LISTPACK   a string: the listpack         field, value, field, value …
//! HASH_ZIPLIST    a string: the ziplist          only read
//! HASH_ZIPMAP     a string: the zipmap           only read
//! ```

use std::io;

use dunlin_structures::Listpack;

use crate::value::{Hash, Layout};

use super::{Input, Output, RdbError, unique::all_differ, ziplist, zipmap};

const TWICE: RdbError = RdbError::Corrupt("a hash has a field twice");

pub(super) fn write<W: io::Write>(hash: &Hash, output: &mut Output<'_, W>) -> io::Result<()> {
    if let Some(bytes) = hash.compact_bytes() {
        return output.string(bytes);
    }
    output.length(hash.len() as u64)?;
    let mut result = Ok(());
    hash.for_each(|field, value| {
        if result.is_ok() {
            result = output.element(field).and_then(|()| output.element(value));
        }
    });
    result
}

pub(super) fn read_pairs<R: io::BufRead>(input: &mut Input<R>, layout: Layout<'_>) -> Result<Hash, RdbError> {
    let count = input.length()?;
    let mut hash = Hash::for_fields(count, layout);
    let (mut field, mut value) = (Vec::new(), Vec::new());
    for _ in 0..count {
        input.string_into(&mut field)?;
        input.string_into(&mut value)?;
        if !hash.set(&field, &value, layout) {
            return Err(TWICE);
        }
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
    zipmap::for_each(bytes, |field, value| if hash.set(field, value, layout) { Ok(()) } else { Err(TWICE) })?;
    Ok(hash)
}
