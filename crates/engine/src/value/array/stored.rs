//! Arrays in memory, files and digests.
//!
//! ```text
//! ARRAY      count │ 0 │ element …       or      count │ 1 │ cursor │ element …       all marks and numbers lengths
//! element    index │ 0 or 3 │ a string       or 1 │ i64 LE       or 2 │ f64 LE
//! ```
//!
//! In files of versions without arrays, an array is the only string of a value of the module [`ARRAY_MODULE`] (decision 0095).
//!
//! Sources, of which no file of a real server has confirmed the last two: Redis's own tests, the parsers of librdb and rediscope.

use std::{io, sync::Arc};

use dunlin_resp::number::write_double;
use dunlin_structures::{Element, Relocator};

use super::{Array, Form};
use crate::{
    aof_rewrite::CommandWriter,
    digest::Digest,
    rdb::{Input, ModuleName, Output, RdbError, Version, types},
    snapshot::SnapshotQueue,
    value::{Layout, ValueType, incremental_copy::IncrementalCopy, shared::Shared, stored::Stored},
};

/// The module's id of arrays in files of versions without them: `dunlin-ar`, encoding 0.
pub(crate) const ARRAY_MODULE: u64 = ModuleName::id_of(b"dunlin-ar");
/// The mark of a string among a module's items.
const ITEM_STRING: u64 = 5;
/// The mark behind a module's items.
const ITEM_END: u64 = 0;
/// Redis's version that has arrays.
const ARRAYS_SINCE: u16 = 14;

/// The marks of elements.
mod mark {
    pub(super) const SHORT: u64 = 0;
    pub(super) const INTEGER: u64 = 1;
    pub(super) const FLOAT: u64 = 2;
    pub(super) const STRING: u64 = 3;
}

const BROKEN: RdbError = RdbError::Corrupt("an array has no known form");

impl Stored for Array {
    const TYPE: ValueType = ValueType::Array;

    /// Redis's name, whatever the form.
    fn encoding(&self) -> &'static str {
        "sliced-array"
    }

    fn copied(&self) -> Self {
        match &self.form {
            Form::Small(_) => self.clone(),
            Form::Large(pages) => Self { form: Form::Large(Shared::new(pages.apart())) },
        }
    }

    fn carry_copies_to(&self, _: &Self) {}

    fn is(&self, other: &Self) -> bool {
        match (&self.form, &other.form) {
            (Form::Small(one), Form::Small(other)) => one.bytes() == other.bytes(),
            (Form::Large(one), Form::Large(other)) => one.is(other),
            _ => false,
        }
    }

    #[inline]
    fn is_shared(&self) -> bool {
        matches!(&self.form, Form::Large(pages) if pages.is_shared())
    }

    /// None: a clone shares all pages, and a change beside it copies one of them.
    fn begin_copy(&self, _: &Arc<SnapshotQueue>) -> Option<IncrementalCopy> {
        None
    }

    fn relocate(&mut self, relocator: &mut Relocator) {
        if let Form::Small(listpack) = &mut self.form {
            listpack.relocate(relocator);
        }
    }

    fn dump_version(&self) -> Version {
        Version::Redis(ARRAYS_SINCE)
    }

    fn rdb_type(&self, version: Version) -> u8 {
        match version {
            Version::Redis(ARRAYS_SINCE..) => types::ARRAY,
            _ => types::MODULE_2,
        }
    }

    fn write_rdb<W: io::Write>(
        &self,
        version: Version,
        _: u64,
        output: &mut Output<'_, W>,
    ) -> io::Result<()> {
        if self.rdb_type(version) == types::ARRAY {
            return write(self, output);
        }
        let mut bytes = Vec::new();
        write(self, &mut Output::new(&mut bytes, None))?;
        output.length(ARRAY_MODULE)?;
        output.length(ITEM_STRING)?;
        output.string(&bytes)?;
        output.length(ITEM_END)
    }

    fn is_written_in_elements(&self, _: Version) -> bool {
        false
    }

    fn read_rdb<R: io::BufRead>(
        type_number: u8,
        version: Version,
        input: &mut Input<R>,
        _: Layout<'_>,
    ) -> Option<Result<Self, RdbError>> {
        let is_array = type_number == types::ARRAY && matches!(version, Version::Redis(_));
        is_array.then(|| read(input))
    }

    /// ARMSET, then ARSEEK, for servers that have them.
    fn write_commands(&self, version: Version, _: u64, commands: &mut CommandWriter<'_>) -> bool {
        if self.rdb_type(version) != types::ARRAY {
            return false;
        }
        let mut batch = commands.batch(b"ARMSET");
        for (index, value) in self.iter() {
            batch.item(&[Element::String(itoa::Buffer::new().format(index).as_bytes()), value]);
        }
        batch.finish();
        if let Some(last) = self.cursor() {
            let key = commands.key();
            commands.command(&[b"ARSEEK", key, itoa::Buffer::new().format(last + 1).as_bytes()]);
        }
        true
    }

    fn digest(&self, _: u64, digest: &mut Digest) {
        for (index, value) in self.iter() {
            digest.mix(itoa::Buffer::new().format(index).as_bytes());
            digest.mix(&value.text());
        }
    }
}

/// Writes an array as ARRAY. O(n).
fn write<W: io::Write>(array: &Array, output: &mut Output<'_, W>) -> io::Result<()> {
    output.length(array.count())?;
    match array.cursor() {
        Some(cursor) => {
            output.length(1)?;
            output.length(cursor)?;
        }
        None => output.length(0)?,
    }
    for (index, value) in array.iter() {
        output.length(index)?;
        match value {
            Element::Integer(integer) => {
                output.length(mark::INTEGER)?;
                output.raw(&integer.to_le_bytes())?;
            }
            Element::String(text) => match exact_float(text) {
                Some(float) => {
                    output.length(mark::FLOAT)?;
                    output.raw(&float.to_le_bytes())?;
                }
                None => {
                    output.length(mark::STRING)?;
                    output.string(text)?;
                }
            },
        }
    }
    Ok(())
}

/// The text of a float in an array: the shortest that reads back as it, with a point.
fn float_text(float: f64, out: &mut Vec<u8>) {
    out.clear();
    write_double(out, float);
    if out.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-') {
        out.extend_from_slice(b".0");
    }
}

/// The float that a text is, if [`float_text`] makes the same text of it.
fn exact_float(text: &[u8]) -> Option<f64> {
    /// Bytes of the longest such text.
    const TEXT_BYTES_MAX: usize = 32;
    let is_number = text.first().is_some_and(|first| first.is_ascii_digit() || *first == b'-');
    if !is_number || text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let float: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let mut canonical = Vec::with_capacity(TEXT_BYTES_MAX);
    float_text(float, &mut canonical);
    (float.is_finite() && canonical == text).then_some(float)
}

/// Reads an array as ARRAY has it. O(n log n).
///
/// # Errors
/// If an index comes twice or is too large, or an element has no known form.
fn read<R: io::BufRead>(input: &mut Input<R>) -> Result<Array, RdbError> {
    let count = input.length()?;
    let cursor = match input.length()? {
        0 => None,
        1 => Some(input.length()?),
        _ => return Err(BROKEN),
    };
    if count == 0 {
        return Err(RdbError::Empty);
    }
    if cursor.is_some_and(|cursor| cursor > Array::INDEX_MAX) {
        return Err(RdbError::Corrupt("the cursor of an array is too large"));
    }
    let (mut array, mut text) = (Array::default(), Vec::new());
    for _ in 0..count {
        let index = input.length()?;
        if index > Array::INDEX_MAX {
            return Err(RdbError::Corrupt("an index of an array is too large"));
        }
        let mark = input.length()?;
        let value = match mark {
            mark::INTEGER => Element::Integer(i64::from_le_bytes(input.array()?)),
            mark::FLOAT => {
                float_text(f64::from_le_bytes(input.array()?), &mut text);
                Element::String(&text)
            }
            mark::SHORT | mark::STRING => {
                input.string_into(&mut text)?;
                Element::String(&text)
            }
            _ => return Err(RdbError::Corrupt("an element of an array has no known form")),
        };
        if text.len() > Array::VALUE_BYTES_MAX {
            return Err(RdbError::Corrupt("an element of an array is too long"));
        }
        if !array.set(index, value) {
            return Err(RdbError::Corrupt("an array has an index twice"));
        }
    }
    array.set_cursor(cursor);
    Ok(array)
}

/// Reads an array from the items of a value of [`ARRAY_MODULE`], its id included.
///
/// # Errors
/// As [`read`], and if they are not one string.
pub(crate) fn read_wrapped(items: &[u8]) -> Result<Array, RdbError> {
    let mut items = Input::new(items);
    items.length()?;
    if items.length()? != ITEM_STRING {
        return Err(BROKEN);
    }
    let bytes = items.string()?;
    let mut elements = Input::new(&bytes[..]);
    let array = read(&mut elements)?;
    if items.length()? != ITEM_END || !elements.is_at_end()? {
        return Err(BROKEN);
    }
    Ok(array)
}
