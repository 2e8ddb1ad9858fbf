//! Values: which form each is written in, and how every form is read.

use std::{io, sync::Arc};

use dunlin_structures::Listpack;

use crate::{
    keyspace::EntryRef,
    value::{
        Collection, Layout, NewString, NewValue, Object, Record, Stream, StringRope, for_each_record,
        incremental_copy::{Elements, RecordForm},
        score_of,
        stream::StreamTail,
    },
};

use super::{
    Input, Output, RdbError, Version, hash,
    input::StringValue,
    list, set, sorted_set,
    stream::{self, Form},
    string, ziplist,
};

const STRING: u8 = 0;
const LIST: u8 = 1;
const SET: u8 = 2;
const ZSET: u8 = 3;
const HASH: u8 = 4;
const ZSET_2: u8 = 5;
const MODULE: u8 = 6;
const MODULE_2: u8 = 7;
const HASH_ZIPMAP: u8 = 9;
const LIST_ZIPLIST: u8 = 10;
const SET_INTSET: u8 = 11;
const ZSET_ZIPLIST: u8 = 12;
const HASH_ZIPLIST: u8 = 13;
const LIST_QUICKLIST: u8 = 14;
const STREAM_LISTPACKS: u8 = 15;
const HASH_LISTPACK: u8 = 16;
const ZSET_LISTPACK: u8 = 17;
const LIST_QUICKLIST_2: u8 = 18;
const STREAM_LISTPACKS_2: u8 = 19;
const SET_LISTPACK: u8 = 20;
const STREAM_LISTPACKS_3: u8 = 21;
const STREAM_LISTPACKS_4: u8 = 26;
/// In Valkey's versions; in Redis's it is the first of the numbers of Redis 7.4.
const HASH_2: u8 = 22;
const HASH_METADATA_PRE_GA: u8 = 22;
const HASH_LISTPACK_EX_PRE_GA: u8 = 23;
const HASH_METADATA: u8 = 24;
const HASH_LISTPACK_EX: u8 = 25;

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
    /// Adds what [`PRODUCERS_FIELD`] says to a stream; anything else has none.
    pub fn adopt_producers(&mut self, bytes: &[u8]) -> Result<(), RdbError> {
        let Contents::Object(object) = &mut self.0 else { return Ok(()) };
        if let Some(stream) = Stream::of_mut(object) {
            stream.set_producers(stream::read_producers(&mut Input::new(bytes))?);
        }
        Ok(())
    }

    /// Hands the value to `store` as the keyspace takes it. What comes back beside the result is the buffer that
    /// it was read into, where the keyspace has copied it ([`Input::recycle`]), and empty otherwise.
    pub(crate) fn store<R>(self, store: impl FnOnce(NewValue<'_>) -> R) -> (R, Vec<u8>) {
        match self.0 {
            Contents::String(mut text) => (store(NewValue::String(NewString::from_owned(&mut text))), text),
            Contents::Rope(rope) => (store(NewValue::String(NewString::Rope(Arc::new(rope)))), Vec::new()),
            Contents::Object(object) => (store(NewValue::Object(object)), Vec::new()),
        }
    }
}

/// The collection as a value, unless it is empty.
fn of_collection<T: Collection>(collection: T) -> Result<Value, RdbError> {
    if collection.is_empty() {
        return Err(RdbError::Empty);
    }
    Ok(Value(Contents::Object(collection.into_object())))
}

/// The number of the form in which files of a version have the entry's value. What no form of that version carries is
/// left out, see [`unfit`].
pub fn type_of(entry: EntryRef<'_>, version: Version) -> u8 {
    let is_packed_anew = version.has_listpacks();
    match entry.object() {
        None => STRING,
        Some(Object::Hash(hash)) if hash::has_deadlines(hash) => match version {
            Version::Valkey(_) => HASH_2,
            Version::Redis(FIELDS_EXPIRE_SINCE..) => HASH_METADATA,
            // They are left out: see `drops_deadlines`.
            Version::Redis(_) => HASH,
        },
        Some(Object::Hash(hash)) if hash.compact_bytes().is_some() => {
            if is_packed_anew {
                HASH_LISTPACK
            } else {
                HASH_ZIPLIST
            }
        }
        Some(Object::Hash(_)) => HASH,
        Some(Object::List(_)) => {
            if is_packed_anew {
                LIST_QUICKLIST_2
            } else {
                LIST_QUICKLIST
            }
        }
        Some(Object::Set(set)) if set::is_intset(set) => SET_INTSET,
        Some(Object::Set(_)) => SET,
        Some(Object::SortedSet(set)) if set.compact_bytes().is_some() => {
            if is_packed_anew {
                ZSET_LISTPACK
            } else {
                ZSET_ZIPLIST
            }
        }
        Some(Object::SortedSet(_)) => ZSET_2,
        Some(Object::Stream(stream)) => match stream_form(stream, version) {
            Form::One => STREAM_LISTPACKS,
            Form::Two => STREAM_LISTPACKS_2,
            Form::Three => STREAM_LISTPACKS_3,
            Form::Four => STREAM_LISTPACKS_4,
        },
    }
}

/// Redis's version that has the newest form of streams.
const STREAM_3_SINCE: u16 = 11;
/// Redis's version in which streams remember producers.
const PRODUCERS_SINCE: u16 = 13;
/// Redis's version in which fields of hashes expire.
const FIELDS_EXPIRE_SINCE: u16 = 12;
const EXPIRING_FIELDS: &str = "fields of hashes do not expire in servers that load this version";

/// Why no form of a version carries the entry's value; `None` where one does. Nearly O(1).
pub fn unfit(entry: EntryRef<'_>, version: Version) -> Option<&'static str> {
    match (entry.object()?, version) {
        (Object::Hash(hash), Version::Redis(..FIELDS_EXPIRE_SINCE)) if hash::has_deadlines(hash) => {
            Some(EXPIRING_FIELDS)
        }
        (Object::Hash(hash), Version::Redis(_)) if hash::has_far_deadlines(hash) => {
            Some("a field of the hash expires later than Redis knows times for fields")
        }
        (Object::List(list), version) if !version.has_listpacks() && !list::fits_ziplists(list) => {
            Some("an element of the list is too long for the packed form of this version")
        }
        _ => None,
    }
}

/// The oldest version from [`Version::OLDEST`] on that carries the entry's value.
pub fn version_of(entry: EntryRef<'_>) -> Version {
    match entry.object() {
        Some(Object::Hash(hash)) if hash::has_deadlines(hash) => Version::Valkey(80),
        _ => Version::OLDEST,
    }
}

/// [`version_of`], or the version that also carries what an auxiliary field would say in a file ([`PRODUCERS_FIELD`]).
pub(crate) fn whole_version_of(entry: EntryRef<'_>) -> Version {
    match entry.object() {
        Some(Object::Stream(stream)) if stream.producers().is_some() => Version::PRODUCERS,
        _ => version_of(entry),
    }
}

/// The auxiliary field before a key whose value is a stream with producers: their part of STREAM_LISTPACKS_4. Servers that do
/// not know it pass over it, and read the stream without them.
pub const PRODUCERS_FIELD: &[u8] = b"dunlin-stream-producers";

/// Stands before an auxiliary field: name and value, both strings, follow.
pub const AUXILIARY: u8 = 250;

/// Stands before a key that expires: its time, in milliseconds, follows.
pub const EXPIRY_MS: u8 = 252;

/// Whether the entry is a hash whose fields expire, for servers whose hashes have none that do: replicas, which are told
/// of each field that has expired.
fn drops_deadlines(entry: EntryRef<'_>, version: Version) -> bool {
    let has_deadlines = matches!(entry.object(), Some(Object::Hash(hash)) if hash::has_deadlines(hash));
    has_deadlines && matches!(version, Version::Redis(..FIELDS_EXPIRE_SINCE))
}

/// Writes what stands before the entry's value in a file: when it expires, the type of the value, the key.
pub(crate) fn write_key<W: io::Write>(
    entry: EntryRef<'_>,
    version: Version,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    if let Some(Object::Stream(stream)) = entry.object()
        && let Some(producers) = stream.producers()
        && type_of(entry, version) != STREAM_LISTPACKS_4
    {
        let mut bytes = Vec::new();
        stream::write_producers(producers, &mut Output::new(&mut bytes, None))?;
        output.byte(AUXILIARY)?;
        output.string(PRODUCERS_FIELD)?;
        output.string(&bytes)?;
    }
    if let Some(expiry) = entry.expiry() {
        output.byte(EXPIRY_MS)?;
        output.milliseconds(expiry as i64)?;
    }
    output.byte(type_of(entry, version))?;
    output.string(entry.key())
}

/// Writes the entry's value in the form that [`type_of`] names, without what has expired by `now_ms`.
/// O(n).
pub fn write_value<W: io::Write>(
    entry: EntryRef<'_>,
    version: Version,
    now_ms: u64,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    let Some(object) = entry.object() else { return string::write(entry.string(), output) };
    let is_packed_anew = version.has_listpacks();
    match object {
        Object::Hash(hash) if type_of(entry, version) == HASH_METADATA => {
            hash::write_metadata(hash, now_ms, output)
        }
        Object::Hash(hash) if drops_deadlines(entry, version) => {
            hash::write_without_deadlines(hash, now_ms, output)
        }
        Object::Hash(hash) => match hash.compact_bytes() {
            Some(bytes) if !is_packed_anew => ziplist::write(bytes, output),
            _ => hash::write(hash, now_ms, output),
        },
        Object::List(list) => list::write(list, is_packed_anew, output),
        Object::Set(set) => set::write(set, output),
        Object::SortedSet(set) => match set.compact_bytes() {
            Some(bytes) if !is_packed_anew => ziplist::write(bytes, output),
            _ => sorted_set::write(set, output),
        },
        Object::Stream(stream) => stream::write(stream, stream_form(stream, version), output),
    }
}

/// The form of a stream.
fn stream_form(stream: &Stream, version: Version) -> Form {
    match version {
        Version::Redis(PRODUCERS_SINCE..) if stream.producers().is_some() => Form::Four,
        Version::Valkey(_) | Version::Redis(STREAM_3_SINCE..) => Form::Three,
        _ if version.has_listpacks() => Form::Two,
        _ => Form::One,
    }
}

/// Writes what stands behind the nodes of a stream in [`write_value`]'s form; their number, and they, stand before.
pub(crate) fn write_tail<W: io::Write>(
    tail: &StreamTail,
    version: Version,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    let stream = tail.stream();
    stream::write_tail(stream, stream_form(stream, version), output)
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
            blocks.iter().try_for_each(|block| list::write_block(block.view(), has_listpacks, output))
        }
        Elements::Nodes(nodes) => {
            nodes.iter().try_for_each(|(id, listpack)| stream::write_node(*id, listpack, output))
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
            hash::write_deadline(record.stamp, output)
        }
    }
}

/// Whether the entry's value is written by [`write_elements`], where it is large, as by [`write_value`].
pub(crate) fn is_written_in_elements(entry: EntryRef<'_>, version: Version) -> bool {
    // It counts all times from the earliest.
    type_of(entry, version) != HASH_METADATA && !drops_deadlines(entry, version)
}

/// Reads a value of a form. What has the right form for a compact encoding but is over its limits leaves it
/// at once, as everywhere. O(n).
pub fn read_value<R: io::BufRead>(
    type_number: u8,
    version: Version,
    input: &mut Input<R>,
    layout: Layout<'_>,
) -> Result<Value, RdbError> {
    if let Version::Valkey(_) = version
        && type_number == HASH_2
    {
        return of_collection(hash::read_triples(input, layout)?);
    }
    match type_number {
        STRING => Ok(Value(match input.string_value()? {
            StringValue::Text(text) => Contents::String(text),
            StringValue::Rope(rope) => Contents::Rope(rope),
        })),
        HASH => of_collection(hash::read_pairs(input, layout)?),
        HASH_LISTPACK => of_collection(hash::from_listpack(read_listpack(input)?, layout)?),
        HASH_ZIPLIST => of_collection(hash::from_ziplist(&input.string()?, layout)?),
        HASH_ZIPMAP => of_collection(hash::from_zipmap(&input.string()?, layout)?),
        HASH_METADATA_PRE_GA => of_collection(hash::read_metadata(input, None, layout)?),
        HASH_METADATA => {
            let earliest = input.milliseconds()?;
            of_collection(hash::read_metadata(input, Some(earliest), layout)?)
        }
        HASH_LISTPACK_EX_PRE_GA => of_collection(hash::from_triples(&read_listpack(input)?, layout)?),
        HASH_LISTPACK_EX => {
            input.milliseconds()?;
            of_collection(hash::from_triples(&read_listpack(input)?, layout)?)
        }
        LIST => of_collection(list::read_elements(input, layout)?),
        LIST_ZIPLIST => of_collection(list::from_ziplist(&input.string()?, layout)?),
        LIST_QUICKLIST => of_collection(list::read_ziplists(input, layout)?),
        LIST_QUICKLIST_2 => of_collection(list::read_blocks(input, layout)?),
        SET => of_collection(set::read_members(input, layout)?),
        SET_INTSET => of_collection(set::from_intset(input.string()?, layout)?),
        SET_LISTPACK => of_collection(set::from_listpack(read_listpack(input)?, layout)?),
        ZSET => of_collection(sorted_set::read_pairs(input, layout, sorted_set::score_text)?),
        ZSET_2 => of_collection(sorted_set::read_pairs(input, layout, Input::double)?),
        ZSET_ZIPLIST => of_collection(sorted_set::from_ziplist(&input.string()?, layout)?),
        ZSET_LISTPACK => of_collection(sorted_set::from_listpack(read_listpack(input)?, layout)?),
        STREAM_LISTPACKS => of_collection(stream::read(input, Form::One)?),
        STREAM_LISTPACKS_2 => of_collection(stream::read(input, Form::Two)?),
        STREAM_LISTPACKS_3 => of_collection(stream::read(input, Form::Three)?),
        STREAM_LISTPACKS_4 => of_collection(stream::read(input, Form::Four)?),
        MODULE | MODULE_2 => {
            Err(RdbError::Unsupported("the value belongs to a module, and there are no modules".to_owned()))
        }
        other => Err(RdbError::Unsupported(format!("there is no type of value with the number {other}"))),
    }
}

/// Reads a listpack. O(n).
pub(super) fn read_listpack<R: io::BufRead>(input: &mut Input<R>) -> Result<Listpack, RdbError> {
    Ok(Listpack::from_bytes(input.string()?)?)
}
