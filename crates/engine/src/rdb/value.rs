//! Values: which form each is written in, and how every form is read.

use std::{io, sync::Arc};

use dunlin_structures::Listpack;

use crate::{
    keyspace::EntryRef,
    value::{
        Collection, HashTemplates, Layout, NewString, NewValue, Object, Record, Stored, Stream, StringRope,
        each, for_each_record,
        hash::write_deadline,
        incremental_copy::{Elements, RecordForm},
        list::write_block,
        read_object, score_of,
        stream::{read_producers, read_released, write_node},
    },
};

use super::{Input, Output, RdbError, Version, input::StringValue, string};

/// The numbers of types, each a form of a value.
pub(crate) mod types {
    pub(crate) const STRING: u8 = 0;
    pub(crate) const LIST: u8 = 1;
    pub(crate) const SET: u8 = 2;
    pub(crate) const ZSET: u8 = 3;
    pub(crate) const HASH: u8 = 4;
    pub(crate) const ZSET_2: u8 = 5;
    pub(crate) const MODULE: u8 = 6;
    pub(crate) const MODULE_2: u8 = 7;
    pub(crate) const HASH_ZIPMAP: u8 = 9;
    pub(crate) const LIST_ZIPLIST: u8 = 10;
    pub(crate) const SET_INTSET: u8 = 11;
    pub(crate) const ZSET_ZIPLIST: u8 = 12;
    pub(crate) const HASH_ZIPLIST: u8 = 13;
    pub(crate) const LIST_QUICKLIST: u8 = 14;
    pub(crate) const STREAM_LISTPACKS: u8 = 15;
    pub(crate) const HASH_LISTPACK: u8 = 16;
    pub(crate) const ZSET_LISTPACK: u8 = 17;
    pub(crate) const LIST_QUICKLIST_2: u8 = 18;
    pub(crate) const STREAM_LISTPACKS_2: u8 = 19;
    pub(crate) const SET_LISTPACK: u8 = 20;
    pub(crate) const STREAM_LISTPACKS_3: u8 = 21;
    pub(crate) const STREAM_LISTPACKS_4: u8 = 26;
    pub(crate) const STREAM_LISTPACKS_5: u8 = 27;
    pub(crate) const ARRAY: u8 = 28;
    pub(crate) const HASH_TEMPLATE: u8 = 29;
    pub(crate) const HASH_TEMPLATE_REF: u8 = 30;
    pub(crate) const HASH_TEMPLATE_ARRAY: u8 = 31;
    pub(crate) const HASH_TEMPLATE_ARRAY_REF: u8 = 32;
    /// In Valkey's versions; in Redis's it is the first of the numbers of Redis 7.4.
    pub(crate) const HASH_2: u8 = 22;
    pub(crate) const HASH_METADATA_PRE_GA: u8 = 22;
    pub(crate) const HASH_LISTPACK_EX_PRE_GA: u8 = 23;
    pub(crate) const HASH_METADATA: u8 = 24;
    pub(crate) const HASH_LISTPACK_EX: u8 = 25;
}

/// A value that was read and belongs to no key yet.
#[derive(Debug)]
pub struct Value(Contents);

#[derive(Debug)]
enum Contents {
    String(Vec<u8>),
    Rope(StringRope),
    Object(Object),
}

impl Value {
    /// The name of its type, if Dunlin does not have that type and keeps the value as it came.
    pub fn foreign_type(&self) -> Option<&str> {
        match &self.0 {
            Contents::Object(Object::Foreign(value)) => Some(value.type_name()),
            _ => None,
        }
    }

    /// Adds the contents of a field of [`is_stream_field`] to a stream; values of other types have none.
    ///
    /// # Errors
    /// If the contents break a rule of the format.
    pub fn adopt_field(&mut self, name: &[u8], bytes: &[u8]) -> Result<(), RdbError> {
        let Contents::Object(object) = &mut self.0 else { return Ok(()) };
        let Some(stream) = Stream::of_mut(object) else { return Ok(()) };
        let mut input = Input::new(bytes);
        match name {
            PRODUCERS_FIELD => stream.set_producers(read_producers(&mut input)?),
            _ => read_released(stream, &mut input)?,
        }
        Ok(())
    }

    /// About how many bytes the value takes.
    pub(crate) fn bytes(&self) -> usize {
        match &self.0 {
            Contents::String(text) => text.len(),
            Contents::Rope(rope) => rope.heap_bytes(),
            Contents::Object(object) => object.heap_bytes(),
        }
    }

    /// Hands the value to `store` as the keyspace takes it. Returns the result and the buffer that the value was read
    /// into if the keyspace has copied it ([`Input::recycle`]), and empty otherwise.
    pub(crate) fn store<R>(self, store: impl FnOnce(NewValue<'_>) -> R) -> (R, Vec<u8>) {
        match self.0 {
            Contents::String(mut text) => (store(NewValue::String(NewString::from_owned(&mut text))), text),
            Contents::Rope(rope) => (store(NewValue::String(NewString::Rope(Arc::new(rope)))), Vec::new()),
            Contents::Object(object) => (store(NewValue::Object(object)), Vec::new()),
        }
    }
}

/// The number of the form in which files of a version have the entry's value. Parts that no form of that version
/// carries are left out, see [`unfit`].
pub fn type_of(entry: EntryRef<'_>, version: Version) -> u8 {
    match entry.object() {
        None => types::STRING,
        Some(object) => each!(&*object, collection => collection.rdb_type(version)),
    }
}

/// Why no form of a version carries the entry's value; `None` if one does. Nearly O(1).
pub fn unfit(entry: EntryRef<'_>, version: Version) -> Option<&'static str> {
    each!(&*entry.object()?, collection => collection.unfit(version))
}

/// The oldest version from [`Version::OLDEST`] on that carries the entry's value.
pub fn version_of(entry: EntryRef<'_>) -> Version {
    entry
        .object()
        .map_or(Version::OLDEST, |object| each!(&*object, collection => collection.oldest_version()))
}

/// The version of a dump of the entry's value, see [`Stored::dump_version`].
pub(crate) fn dump_version_of(entry: EntryRef<'_>) -> Version {
    entry.object().map_or(Version::OLDEST, |object| each!(&*object, collection => collection.dump_version()))
}

/// [`version_of`], or the version that also carries the contents of an auxiliary field in a file ([`PRODUCERS_FIELD`]).
pub(crate) fn whole_version_of(entry: EntryRef<'_>) -> Version {
    entry.object().map_or(Version::OLDEST, |object| each!(&*object, collection => collection.whole_version()))
}

/// The auxiliary field before a key whose value is a stream with producers: their part of STREAM_LISTPACKS_4. Servers that do
/// not know it pass over it, and read the stream without them.
pub const PRODUCERS_FIELD: &[u8] = b"dunlin-stream-producers";

/// The auxiliary field before a key whose value is a stream with deliveries that were released: what STREAM_LISTPACKS_5 says of
/// them. Servers that do not know it read the stream without them.
pub const RELEASED_FIELD: &[u8] = b"dunlin-stream-released";

/// Whether an auxiliary field is a part of the stream under the next key.
pub fn is_stream_field(name: &[u8]) -> bool {
    name == PRODUCERS_FIELD || name == RELEASED_FIELD
}

/// Stands before an auxiliary field: name and value, both strings, follow.
pub const AUXILIARY: u8 = 250;

/// Stands before a key that expires: its time, in milliseconds, follows.
pub const EXPIRY_MS: u8 = 252;

/// Writes what stands before the entry's value in a file: when it expires, the type of the value, the key.
pub(crate) fn write_key<W: io::Write>(
    entry: EntryRef<'_>,
    version: Version,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    let auxiliary = entry
        .object()
        .map_or_else(Vec::new, |object| each!(&*object, collection => collection.auxiliary_fields(version)));
    for (name, bytes) in auxiliary {
        output.byte(AUXILIARY)?;
        output.string(name)?;
        output.string(&bytes)?;
    }
    if let Some(expiry) = entry.expiry() {
        output.byte(EXPIRY_MS)?;
        output.milliseconds(expiry as i64)?;
    }
    output.byte(type_of(entry, version))?;
    output.string(entry.key())
}

/// Writes the entry's value in the form that [`type_of`] names, without elements that have expired by `now_ms`.
/// O(n).
pub fn write_value<W: io::Write>(
    entry: EntryRef<'_>,
    version: Version,
    now_ms: u64,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    match entry.object() {
        None => string::write(entry.string(), output),
        Some(object) => each!(&*object, collection => collection.write_rdb(version, now_ms, output)),
    }
}

/// Writes some elements of a collection, in the form of [`write_value`] for a collection that is not compact.
pub(crate) fn write_elements<W: io::Write>(
    elements: &Elements,
    version: Version,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    match elements {
        Elements::Records(form, records) => {
            let mut written = Ok(());
            for_each_record(records, |record| {
                if written.is_ok() {
                    written = write_record(record, *form, output);
                }
            });
            written
        }
        Elements::Blocks(blocks) => {
            let has_listpacks = version.has_listpacks();
            blocks.iter().try_for_each(|block| write_block(block.view(), has_listpacks, output))
        }
        Elements::Nodes(nodes) => {
            nodes.iter().try_for_each(|(id, listpack)| write_node(*id, listpack, output))
        }
    }
}

/// An element that is a record of a table.
fn write_record<W: io::Write>(
    record: Record<'_>,
    form: RecordForm,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    output.string(record.key)?;
    match form {
        RecordForm::Member => Ok(()),
        RecordForm::ScoredMember => output.double(score_of(record)),
        RecordForm::Field => output.string(record.payload),
        RecordForm::ExpiringField => {
            output.string(record.payload)?;
            write_deadline(record.stamp, output)
        }
    }
}

/// Whether [`write_elements`] writes the entry's value, if it is large, as [`write_value`] does.
pub(crate) fn is_written_in_elements(entry: EntryRef<'_>, version: Version) -> bool {
    entry
        .object()
        .is_none_or(|object| each!(&*object, collection => collection.is_written_in_elements(version)))
}

/// Reads a value of a file, which may refer to the file's templates. See [`read_value`].
pub fn read_value_of_file<R: io::BufRead>(
    type_number: u8,
    version: Version,
    templates: &HashTemplates,
    input: &mut Input<R>,
    layout: Layout<'_>,
) -> Result<Value, RdbError> {
    let hash = match version {
        Version::Redis(_) => templates.read_hash(type_number, input, layout),
        Version::Valkey(_) => None,
    };
    match hash {
        Some(hash) => Ok(Value(Contents::Object(hash?.into_object()))),
        None => read_value(type_number, version, input, layout),
    }
}

/// Reads a value of a form. A value in the form of a compact encoding that is over its limits leaves it at once, as
/// everywhere. O(n).
pub fn read_value<R: io::BufRead>(
    type_number: u8,
    version: Version,
    input: &mut Input<R>,
    layout: Layout<'_>,
) -> Result<Value, RdbError> {
    if type_number == types::STRING {
        return Ok(Value(match input.string_value()? {
            StringValue::Text(text) => Contents::String(text),
            StringValue::Rope(rope) => Contents::Rope(rope),
        }));
    }
    match read_object(type_number, version, input, layout) {
        Some(object) => {
            let object = object?;
            let is_empty = each!(&object, collection => collection.is_empty());
            if is_empty { Err(RdbError::Empty) } else { Ok(Value(Contents::Object(object))) }
        }
        None if matches!(type_number, types::HASH_TEMPLATE_REF | types::HASH_TEMPLATE_ARRAY_REF) => {
            Err(RdbError::Corrupt("a hash refers to a template, which only files have"))
        }
        None if type_number == types::MODULE => {
            let text = "the value is a module's in a form that only the module can read; servers from Redis 4.0 on write another";
            Err(RdbError::Unsupported(text.to_owned()))
        }
        None => {
            Err(RdbError::Unsupported(format!("there is no type of value with the number {type_number}")))
        }
    }
}

/// Reads a listpack. O(n).
pub(crate) fn read_listpack<R: io::BufRead>(input: &mut Input<R>) -> Result<Listpack, RdbError> {
    Ok(Listpack::from_bytes(input.string()?)?)
}
