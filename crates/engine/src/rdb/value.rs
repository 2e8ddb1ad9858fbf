//! Values: which form each is written in, and how every form is read.

use std::io;

use dunlin_structures::Listpack;

use crate::{
    keyspace::EntryRef,
    value::{Collection, Layout, NewString, NewValue, Object},
};

use super::{
    Input, Output, RdbError, Version, hash, list, set, sorted_set,
    stream::{self, Form},
    string,
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
    Object(Box<Object>),
}

impl Value {
    /// Hands the value to `store` as the keyspace takes it.
    pub(crate) fn store<R>(self, store: impl FnOnce(NewValue<'_>) -> R) -> R {
        match self.0 {
            Contents::String(text) => store(NewValue::String(NewString::from_owned(&mut { text }))),
            Contents::Object(object) => store(NewValue::Object(object)),
        }
    }
}

/// The collection as a value, unless it is empty.
fn of_collection<T: Collection>(collection: T) -> Result<Value, RdbError> {
    if collection.is_empty() {
        return Err(RdbError::Empty);
    }
    Ok(Value(Contents::Object(Box::new(collection.into_object()))))
}

/// The number of the form that the entry's value is written in.
pub fn type_of(entry: EntryRef<'_>) -> u8 {
    match entry.object() {
        None => STRING,
        Some(Object::Hash(hash)) if hash::has_deadlines(hash) => HASH_2,
        Some(Object::Hash(hash)) if hash.compact_bytes().is_some() => HASH_LISTPACK,
        Some(Object::Hash(_)) => HASH,
        Some(Object::List(_)) => LIST_QUICKLIST_2,
        Some(Object::Set(set)) if set::is_intset(set) => SET_INTSET,
        Some(Object::Set(_)) => SET,
        Some(Object::SortedSet(set)) if set.compact_bytes().is_some() => ZSET_LISTPACK,
        Some(Object::SortedSet(_)) => ZSET_2,
        Some(Object::Stream(_)) => STREAM_LISTPACKS_2,
    }
}

/// The oldest version that has the form of [`type_of`].
pub fn version_of(entry: EntryRef<'_>) -> Version {
    match type_of(entry) {
        HASH_2 => Version::Valkey(80),
        _ => Version::OLDEST,
    }
}

/// Stands before a key that expires: its time, in milliseconds, follows.
pub const EXPIRY_MS: u8 = 252;

/// Writes what stands before the entry's value in a file: when it expires, the type of the value, the key.
pub(crate) fn write_key<W: io::Write>(entry: EntryRef<'_>, output: &mut Output<'_, W>) -> io::Result<()> {
    if let Some(expiry) = entry.expiry() {
        output.byte(EXPIRY_MS)?;
        output.milliseconds(expiry as i64)?;
    }
    output.byte(type_of(entry))?;
    output.string(entry.key())
}

/// Writes the entry's value in the form that [`type_of`] names, without what has expired by `now_ms`.
/// O(n).
pub fn write_value<W: io::Write>(
    entry: EntryRef<'_>,
    now_ms: u64,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    match entry.object() {
        None => string::write(entry.string(), output),
        Some(Object::Hash(hash)) => hash::write(hash, now_ms, output),
        Some(Object::List(list)) => list::write(list, output),
        Some(Object::Set(set)) => set::write(set, output),
        Some(Object::SortedSet(set)) => sorted_set::write(set, output),
        Some(Object::Stream(stream)) => stream::write(stream, output),
    }
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
        STRING => Ok(Value(Contents::String(input.string()?))),
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
