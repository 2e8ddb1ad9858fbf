//! Values of types that Dunlin does not have: those of modules, and Redis's arrays. Such values are kept as they were read, and can be
//! copied, renamed, expired, evicted, moved and written again, byte for byte. No command looks into them.
//!
//! ```text
//! MODULE_2   module id: length │ items                                        see rdb::module
//! ARRAY      count │ 0 │ element …       or      count │ 1 │ cursor │ element …       all marks and numbers lengths
//! element    index │ 0 or 3 │ a string       or 1 │ i64 LE       or 2 │ f64 LE
//! ```
//!
//! In files of versions without arrays, an array is the only string of a value of the module [`ARRAY_MODULE`].
//!
//! Sources: `module.c` and `rdb.c` of Redis 7; of arrays, which no file of a real server has confirmed yet, the documentation of
//! Redis 8.8 and the parsers of librdb and rediscope.

use std::{io, sync::Arc};

use super::{Layout, ValueType, incremental_copy::IncrementalCopy, stored::Stored};
use crate::{
    aof_rewrite::CommandWriter,
    digest::Digest,
    rdb::{Input, ModuleName, Output, RdbError, Version, skip_items, types},
    snapshot::SnapshotQueue,
};

/// The module's id of arrays in files of versions without them: `dunlin-ar`, encoding 0.
const ARRAY_MODULE: u64 = ModuleName::id_of(b"dunlin-ar");
/// The mark of a string among a module's items.
const ITEM_STRING: u64 = 5;
/// The mark behind a module's items.
const ITEM_END: u64 = 0;
/// Redis's version that has arrays.
const ARRAYS_SINCE: u16 = 14;

/// A value of a type that Dunlin does not have. Clones share it: it never changes.
#[derive(Debug, Clone)]
pub struct Foreign(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    kind: Kind,
    /// The value as files have it, behind its type; a module's with the id.
    bytes: Box<[u8]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Module(ModuleName),
    Array,
}

impl Foreign {
    /// The name that `TYPE` answers: that of the module's type, or `array`.
    pub fn type_name(&self) -> &str {
        match &self.0.kind {
            Kind::Module(name) => name.as_str(),
            Kind::Array => "array",
        }
    }

    /// Bytes outside the object that holds it.
    #[inline]
    pub(crate) fn outside_bytes(&self) -> usize {
        /// The counts before what an `Arc` holds.
        const COUNTS_BYTES: usize = 2 * size_of::<usize>();
        COUNTS_BYTES + size_of::<Kept>() + self.0.bytes.len()
    }

    /// Never: what it holds is not known.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        false
    }

    /// Never: nothing in it is known to expire.
    #[inline]
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        None
    }

    fn new(kind: Kind, bytes: Vec<u8>) -> Self {
        Self(Arc::new(Kept { kind, bytes: bytes.into() }))
    }
}

impl Stored for Foreign {
    const TYPE: ValueType = ValueType::Foreign;

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn copied(&self) -> Self {
        Self::new(self.0.kind, self.0.bytes.to_vec())
    }

    fn carry_copies_to(&self, _: &Self) {}

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn is_shared(&self) -> bool {
        // No command changes it.
        false
    }

    fn begin_copy(&self, _: &Arc<SnapshotQueue>) -> Option<IncrementalCopy> {
        None
    }

    fn rdb_type(&self, version: Version) -> u8 {
        match (self.0.kind, version) {
            (Kind::Array, Version::Redis(ARRAYS_SINCE..)) => types::ARRAY,
            _ => types::MODULE_2,
        }
    }

    fn write_rdb<W: io::Write>(
        &self,
        version: Version,
        _: u64,
        output: &mut Output<'_, W>,
    ) -> io::Result<()> {
        let bytes = &self.0.bytes;
        if self.0.kind != Kind::Array || self.rdb_type(version) == types::ARRAY {
            return output.raw(bytes);
        }
        output.length(ARRAY_MODULE)?;
        output.length(ITEM_STRING)?;
        output.string(bytes)?;
        output.length(ITEM_END)
    }

    fn is_written_in_elements(&self, _: Version) -> bool {
        false
    }

    fn dump_version(&self) -> Version {
        match self.0.kind {
            Kind::Array => Version::Redis(ARRAYS_SINCE),
            Kind::Module(_) => self.oldest_version(),
        }
    }

    fn read_rdb<R: io::BufRead>(
        type_number: u8,
        version: Version,
        input: &mut Input<R>,
        _: Layout<'_>,
    ) -> Option<Result<Self, RdbError>> {
        match type_number {
            types::MODULE_2 => Some(read_module(input)),
            types::ARRAY if matches!(version, Version::Redis(_)) => Some(read_array(input)),
            _ => None,
        }
    }

    /// No commands make it here; RESTORE does.
    fn write_commands(&self, _: Version, _: u64, _: &mut CommandWriter<'_>) -> bool {
        false
    }

    fn digest(&self, _: u64, digest: &mut Digest) {
        digest.mix(&self.0.bytes);
    }
}

/// Reads the value of a module, or an array that stands in place of one.
fn read_module<R: io::BufRead>(input: &mut Input<R>) -> Result<Foreign, RdbError> {
    let (id, bytes) = input.recorded(|input| {
        let id = input.length()?;
        skip_items(input)?;
        Ok(id)
    })?;
    if id != ARRAY_MODULE {
        return Ok(Foreign::new(Kind::Module(ModuleName::of_id(id)), bytes));
    }
    const BROKEN: RdbError = RdbError::Corrupt("an array has no known form");
    let mut items = Input::new(&bytes[..]);
    items.length()?;
    if items.length()? != ITEM_STRING {
        return Err(BROKEN);
    }
    let array = items.string()?;
    let mut elements = Input::new(&array[..]);
    skip_array(&mut elements)?;
    if items.length()? != ITEM_END || !elements.is_at_end()? {
        return Err(BROKEN);
    }
    Ok(Foreign::new(Kind::Array, array))
}

/// Reads an array.
fn read_array<R: io::BufRead>(input: &mut Input<R>) -> Result<Foreign, RdbError> {
    let ((), bytes) = input.recorded(|input| {
        skip_array(input)?;
        Ok(())
    })?;
    Ok(Foreign::new(Kind::Array, bytes))
}

/// Reads over an array. O(bytes).
fn skip_array<R: io::BufRead>(input: &mut Input<R>) -> Result<(), RdbError> {
    let count = input.length()?;
    match input.length()? {
        0 => {}
        1 => _ = input.length()?,
        _ => return Err(RdbError::Corrupt("an array has no known form")),
    }
    if count == 0 {
        return Err(RdbError::Empty);
    }
    let mut scratch = Vec::new();
    for _ in 0..count {
        input.length()?;
        match input.length()? {
            0 | 3 => input.string_into(&mut scratch)?,
            1 | 2 => _ = input.array::<8>()?,
            _ => return Err(RdbError::Corrupt("an element of an array has no known form")),
        }
    }
    Ok(())
}
