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
//! HASH_TEMPLATE…   see `template`
//! ```
//!
//! Times are unix milliseconds. Fields whose time has come are not written; they may be read, and are
//! treated as anywhere else.

use std::{io, sync::Arc};

use dunlin_structures::{Element, Listpack, Relocator};

use super::{Fields, Hash, template};
use crate::{
    aof_rewrite::CommandWriter,
    context::ExpiryChange,
    digest::Digest,
    rdb::{Input, Output, RdbError, Version, all_differ, read_listpack, types, ziplist, zipmap},
    snapshot::SnapshotQueue,
    value::{
        Layout, MemberTable, ValueType,
        incremental_copy::{IncrementalCopy, RecordForm, table::CopiedTable},
        stored::Stored,
    },
};

const TWICE: RdbError = RdbError::Corrupt("a hash has a field twice");
const BEYOND_TIME: RdbError = RdbError::Corrupt("a field expires at a time that cannot be");
const NEVER: i64 = -1;

/// Redis's version in which fields of hashes expire.
const FIELDS_EXPIRE_SINCE: u16 = 12;
const EXPIRING_FIELDS: &str = "fields of hashes do not expire in servers that load this version";

impl Stored for Hash {
    const TYPE: ValueType = ValueType::Hash;

    fn copied(&self) -> Self {
        match &self.fields {
            Fields::Table(table) => Self { fields: Fields::Table(table.copied()) },
            _ => self.clone(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (&self.fields, &other.fields) {
            (Fields::Listpack(one), Fields::Listpack(other)) => one.bytes() == other.bytes(),
            (Fields::Block(one), Fields::Block(other)) => one == other,
            (Fields::Table(one), Fields::Table(other)) => one.is(other),
            _ => false,
        }
    }

    #[inline]
    fn is_shared(&self) -> bool {
        matches!(&self.fields, Fields::Table(table) if table.is_shared())
    }

    fn relocate(&mut self, relocator: &mut Relocator) {
        match &mut self.fields {
            Fields::Listpack(listpack) => listpack.relocate(relocator),
            Fields::Block(block) => block.relocate(relocator),
            Fields::Table(_) => {}
        }
    }

    fn copied_table(&self) -> Option<&dyn CopiedTable> {
        match &self.fields {
            Fields::Table(table) => Some(table.records_by_field()),
            Fields::Listpack(_) | Fields::Block(_) => None,
        }
    }

    fn table(&self) -> Option<&MemberTable> {
        match &self.fields {
            Fields::Listpack(_) | Fields::Block(_) => None,
            Fields::Table(table) => Some(table.records_by_field()),
        }
    }

    fn encoding(&self) -> &'static str {
        match &self.fields {
            Fields::Listpack(_) => "listpack",
            Fields::Block(_) | Fields::Table(_) => "hashtable",
        }
    }

    fn carry_copies_to(&self, copy: &Self) {
        if let (Some(copy), Some(table)) = (copy.table(), self.table()) {
            copy.carry_copies(table);
        }
    }

    fn begin_copy(&self, snapshot_queue: &Arc<SnapshotQueue>) -> Option<IncrementalCopy> {
        let form = if has_deadlines(self) { RecordForm::ExpiringField } else { RecordForm::Field };
        // Fields included that have expired.
        let fields = self.len(0);
        Some(IncrementalCopy::Records(form, self.copied_table()?.begin(fields, snapshot_queue)))
    }

    #[inline]
    fn is_expired(&self, now_ms: u64) -> bool {
        Self::is_expired(self, now_ms)
    }

    fn expire(
        &mut self,
        now_ms: u64,
        elements_max: usize,
        removing: impl FnMut(Element<'_>),
    ) -> (usize, bool) {
        (Self::expire(self, now_ms, elements_max, removing), self.is_empty())
    }

    fn oldest_version(&self) -> Version {
        if has_deadlines(self) { Version::Valkey(80) } else { Version::OLDEST }
    }

    fn unfit(&self, version: Version) -> Option<&'static str> {
        match version {
            Version::Redis(..FIELDS_EXPIRE_SINCE) if has_deadlines(self) => Some(EXPIRING_FIELDS),
            Version::Redis(_) if has_far_deadlines(self) => {
                Some("a field of the hash expires later than Redis knows times for fields")
            }
            _ => None,
        }
    }

    fn rdb_type(&self, version: Version) -> u8 {
        match version {
            Version::Valkey(_) if has_deadlines(self) => types::HASH_2,
            Version::Redis(FIELDS_EXPIRE_SINCE..) if has_deadlines(self) => types::HASH_METADATA,
            // The deadlines are left out: see `drops_deadlines`.
            Version::Redis(_) if has_deadlines(self) => types::HASH,
            _ if self.compact_bytes().is_none() => types::HASH,
            _ if version.has_listpacks() => types::HASH_LISTPACK,
            _ => types::HASH_ZIPLIST,
        }
    }

    fn write_rdb<W: io::Write>(
        &self,
        version: Version,
        now_ms: u64,
        output: &mut Output<'_, W>,
    ) -> io::Result<()> {
        if self.rdb_type(version) == types::HASH_METADATA {
            return write_metadata(self, now_ms, output);
        }
        if drops_deadlines(self, version) {
            return write_without_deadlines(self, now_ms, output);
        }
        match self.compact_bytes() {
            Some(bytes) if !version.has_listpacks() => ziplist::write(bytes, output),
            _ => write(self, now_ms, output),
        }
    }

    fn is_written_in_elements(&self, version: Version) -> bool {
        // HASH_METADATA counts all times from the earliest.
        self.rdb_type(version) != types::HASH_METADATA && !drops_deadlines(self, version)
    }

    fn read_rdb<R: io::BufRead>(
        type_number: u8,
        version: Version,
        input: &mut Input<R>,
        layout: Layout<'_>,
    ) -> Option<Result<Self, RdbError>> {
        Some(match type_number {
            types::HASH_2 if matches!(version, Version::Valkey(_)) => read_triples(input, layout),
            types::HASH => read_pairs(input, layout),
            types::HASH_LISTPACK => read_listpack(input).and_then(|listpack| from_listpack(listpack, layout)),
            types::HASH_ZIPLIST => input.string().and_then(|bytes| from_ziplist(&bytes, layout)),
            types::HASH_ZIPMAP => input.string().and_then(|bytes| from_zipmap(&bytes, layout)),
            types::HASH_METADATA_PRE_GA => read_metadata(input, None, layout),
            types::HASH_METADATA => {
                input.milliseconds().and_then(|earliest| read_metadata(input, Some(earliest), layout))
            }
            types::HASH_LISTPACK_EX_PRE_GA => {
                read_listpack(input).and_then(|listpack| from_triples(&listpack, layout))
            }
            types::HASH_LISTPACK_EX => input
                .milliseconds()
                .and_then(|_| read_listpack(input))
                .and_then(|listpack| from_triples(&listpack, layout)),
            _ if matches!(version, Version::Redis(_)) => {
                return template::read_whole(type_number, input, layout);
            }
            _ => return None,
        })
    }

    /// HSET, then HPEXPIREAT for each field that expires.
    fn write_commands(&self, _: Version, now_ms: u64, commands: &mut CommandWriter<'_>) -> bool {
        let mut batch = commands.batch(b"HSET");
        self.for_each(now_ms, |field, value| batch.item(&[field, value]));
        batch.finish();
        self.for_each_with_deadline(now_ms, |field, _, deadline_ms| {
            if let Some(at) = deadline_ms {
                let at = at.to_string();
                let key = commands.key();
                commands.command(&[b"HPEXPIREAT", key, at.as_bytes(), b"FIELDS", b"1", &field.text()]);
            }
        });
        true
    }

    fn digest(&self, now_ms: u64, digest: &mut Digest) {
        self.for_each_with_deadline(now_ms, |field, value, deadline_ms| {
            digest.xor_field(&field.text(), &value.text(), deadline_ms.is_some());
        });
    }
}

/// Whether a form has no place for the times at which fields expire: in files for replicas, to which each field that has
/// expired is sent.
fn drops_deadlines(hash: &Hash, version: Version) -> bool {
    has_deadlines(hash) && matches!(version, Version::Redis(..FIELDS_EXPIRE_SINCE))
}

/// Whether a hash has fields that expire, so that older forms cannot carry it.
fn has_deadlines(hash: &Hash) -> bool {
    hash.next_deadline_ms().is_some()
}

/// Whether fields expire later than Redis knows times for fields, so that its files cannot carry the hash.
fn has_far_deadlines(hash: &Hash) -> bool {
    /// The year 10889.
    const REDIS_DEADLINE_MS_MAX: u64 = (1 << 48) - 1;
    hash.last_deadline_ms().is_some_and(|last| last > REDIS_DEADLINE_MS_MAX)
}

fn write<W: io::Write>(hash: &Hash, now_ms: u64, output: &mut Output<'_, W>) -> io::Result<()> {
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
fn write_without_deadlines<W: io::Write>(
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
pub(crate) fn write_deadline<W: io::Write>(
    deadline_ms: Option<u64>,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    output.milliseconds(deadline_ms.map_or(NEVER, |at| at as i64))
}

/// HASH_METADATA.
fn write_metadata<W: io::Write>(hash: &Hash, now_ms: u64, output: &mut Output<'_, W>) -> io::Result<()> {
    let mut earliest = u64::MAX;
    hash.for_each_with_deadline(now_ms, |_, _, deadline_ms| {
        earliest = earliest.min(deadline_ms.unwrap_or(u64::MAX))
    });
    // If all that expires has expired, nothing counts from it.
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
pub(super) fn add(
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

fn read_pairs<R: io::BufRead>(input: &mut Input<R>, layout: Layout<'_>) -> Result<Hash, RdbError> {
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
fn read_triples<R: io::BufRead>(input: &mut Input<R>, layout: Layout<'_>) -> Result<Hash, RdbError> {
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

/// HASH_METADATA; times count from `earliest`, or are whole if there is none.
fn read_metadata<R: io::BufRead>(
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
fn from_triples(listpack: &Listpack, layout: Layout<'_>) -> Result<Hash, RdbError> {
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

fn from_listpack(listpack: Listpack, layout: Layout<'_>) -> Result<Hash, RdbError> {
    if !listpack.len().is_multiple_of(2) {
        return Err(RdbError::Corrupt("a hash has a field without a value"));
    }
    if !all_differ(listpack.view().iter().step_by(2)) {
        return Err(TWICE);
    }
    Ok(Hash::from_listpack(listpack, layout))
}

fn from_ziplist(bytes: &[u8], layout: Layout<'_>) -> Result<Hash, RdbError> {
    from_listpack(ziplist::to_listpack(bytes)?, layout)
}

fn from_zipmap(bytes: &[u8], layout: Layout<'_>) -> Result<Hash, RdbError> {
    let mut hash = Hash::default();
    zipmap::for_each(bytes, |field, value| add(&mut hash, field, value, None, layout))?;
    Ok(hash)
}
