//! Streams.
//!
//! ```text
//! STREAM_LISTPACKS_2   count │ node … │ entries: length │ last ID │ first ID │ largest deleted ID │ entries
//!                      added: length │ count │ group …
//! node                 a string: its ID │ a string: the listpack
//! group                name │ last ID │ entries read: length, 2^64 − 1 for unknown
//!                      │ count │ delivery … │ count │ consumer …
//! delivery             ID │ time: i64 LE │ times delivered: length
//! consumer             name │ seen: i64 LE │ count │ ID of a delivery …
//! ```
//!
//! IDs of nodes and deliveries are 16 bytes, high bits first; other IDs are two lengths. Names are strings,
//! times unix milliseconds.
//!
//! STREAM_LISTPACKS lacks the part between the last ID and the groups, and the counts of entries that groups have
//! read: servers before Redis 7.0 do not know of it. STREAM_LISTPACKS_3 has one thing more: behind `seen` the time at
//! which a consumer last got an entry, i64 LE, -1 for never. Both are written for files of their versions only.
//!
//! ```text
//! STREAM_LISTPACKS_4   STREAM_LISTPACKS_3 │ producers
//! producers            seconds │ entries at most │ count │ producer … │ added │ duplicates: all lengths
//! producer             name │ count │ (its name for an entry, the entry's ID: two lengths), oldest first …
//! STREAM_LISTPACKS_5   STREAM_LISTPACKS_4, each group with more behind its consumers: count │ ID of a delivery that was released …
//! ```
//!
//! In older forms, a delivery that was released (XNACK) stands in an auxiliary field before the key, [`RELEASED_FIELD`]:
//!
//! ```text
//! released             count │ group …
//! group                name │ count │ (ID │ times delivered) …
//! ```

use std::{collections::BTreeMap, io, sync::Arc};

use dunlin_structures::Listpack;

use super::{
    ConsumerGroup, Delivery, ProducerLimits, Producers, ReleaseCount, Stream, StreamId, StreamLog, StreamTail,
};
use crate::{
    aof_rewrite::CommandWriter,
    digest::Digest,
    rdb::{Input, Output, PRODUCERS_FIELD, RELEASED_FIELD, RdbError, Version, read_listpack, types},
    snapshot::SnapshotQueue,
    value::{Layout, ValueType, incremental_copy::IncrementalCopy, shared::Shared, stored::Stored},
};

/// Redis's version that has the newest form of streams.
const STREAM_3_SINCE: u16 = 11;
/// Redis's version in which streams remember producers.
const PRODUCERS_SINCE: u16 = 13;
/// Redis's version in which deliveries can be released.
const RELEASED_SINCE: u16 = 14;

/// Bytes to be copied of a stream's groups and producers from which on it is lent as a whole: of more than a million deliveries,
/// or some thousand consumers.
const TAIL_BYTES_MAX: usize = 1024 * 1024;
/// The entries-read of a group for which it is unknown.
const UNKNOWN: u64 = u64::MAX;

/// When a consumer last got an entry that never got one.
const NEVER: i64 = -1;

/// The forms of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    /// STREAM_LISTPACKS, of Redis 5.
    One,
    /// STREAM_LISTPACKS_2, of Redis 7.0.
    Two,
    /// STREAM_LISTPACKS_3, of Redis 7.2.
    Three,
    /// STREAM_LISTPACKS_4, of Redis 8.6.
    Four,
    /// STREAM_LISTPACKS_5, of Redis 8.8.
    Five,
}

impl Form {
    /// The form of a stream in files of a version.
    fn of(stream: &Stream, version: Version) -> Self {
        match version {
            Version::Redis(RELEASED_SINCE..) if has_released(stream) => Self::Five,
            Version::Redis(PRODUCERS_SINCE..) if stream.producers().is_some() => Self::Four,
            Version::Valkey(_) | Version::Redis(STREAM_3_SINCE..) => Self::Three,
            _ if version.has_listpacks() => Self::Two,
            _ => Self::One,
        }
    }

    fn rdb_type(self) -> u8 {
        match self {
            Self::One => types::STREAM_LISTPACKS,
            Self::Two => types::STREAM_LISTPACKS_2,
            Self::Three => types::STREAM_LISTPACKS_3,
            Self::Four => types::STREAM_LISTPACKS_4,
            Self::Five => types::STREAM_LISTPACKS_5,
        }
    }
}

/// Shared as a whole: a stream is much larger than other collections' heads.
impl Stored for Shared<Stream> {
    const TYPE: ValueType = ValueType::Stream;

    fn encoding(&self) -> &'static str {
        "stream"
    }

    fn copied(&self) -> Self {
        Self::copied(self)
    }

    fn carry_copies_to(&self, copy: &Self) {
        copy.log().carry_copies(self.log());
    }

    fn is(&self, other: &Self) -> bool {
        Self::is(self, other)
    }

    #[inline]
    fn is_shared(&self) -> bool {
        Self::is_shared(self)
    }

    /// None if the parts behind the nodes, which are copied at once or shared, are too large for that.
    fn begin_copy(&self, snapshot_queue: &Arc<SnapshotQueue>) -> Option<IncrementalCopy> {
        let is_small = self.tail_bytes() <= TAIL_BYTES_MAX;
        is_small.then(|| IncrementalCopy::Nodes(self.log().begin_copy(snapshot_queue)))
    }

    fn whole_version(&self) -> Version {
        match (has_released(self), self.producers()) {
            (true, _) => Version::Redis(RELEASED_SINCE),
            (false, Some(_)) => Version::PRODUCERS,
            (false, None) => self.oldest_version(),
        }
    }

    /// Without the deliveries that were released, messages would be lost.
    fn dump_version(&self) -> Version {
        if has_released(self) { Version::Redis(RELEASED_SINCE) } else { self.oldest_version() }
    }

    fn rdb_type(&self, version: Version) -> u8 {
        Form::of(self, version).rdb_type()
    }

    fn write_rdb<W: io::Write>(
        &self,
        version: Version,
        _now_ms: u64,
        output: &mut Output<'_, W>,
    ) -> io::Result<()> {
        write(self, Form::of(self, version), output)
    }

    /// The producers and the deliveries that were released, if the form has no place for them.
    fn auxiliary_fields(&self, version: Version) -> Vec<(&'static [u8], Vec<u8>)> {
        let form = Form::of(self, version);
        let producers = self.producers().filter(|_| form < Form::Four);
        let producers = producers.map(|producers| {
            let mut bytes = Vec::new();
            let written = write_producers(producers, &mut Output::new(&mut bytes, None));
            written.expect("a vector takes everything");
            (PRODUCERS_FIELD, bytes)
        });
        let released = (form < Form::Five && has_released(self)).then(|| {
            let mut bytes = Vec::new();
            let written = write_released(self, &mut Output::new(&mut bytes, None));
            written.expect("a vector takes everything");
            (RELEASED_FIELD, bytes)
        });
        producers.into_iter().chain(released).collect()
    }

    fn read_rdb<R: io::BufRead>(
        type_number: u8,
        version: Version,
        input: &mut Input<R>,
        _: Layout<'_>,
    ) -> Option<Result<Self, RdbError>> {
        let is_known = |form: &Form| *form < Form::Four || matches!(version, Version::Redis(_));
        let form = [Form::One, Form::Two, Form::Three, Form::Four, Form::Five]
            .into_iter()
            .filter(is_known)
            .find(|form| form.rdb_type() == type_number)?;
        Some(read(input, form).map(Shared::new))
    }

    /// XADD for each entry, XSETID; XGROUP CREATE, XCLAIM for each delivery, XGROUP CREATECONSUMER for each consumer without
    /// one. XCLAIM would drop a delivery of an entry that is gone, and no command makes producers.
    fn write_commands(&self, version: Version, _: u64, commands: &mut CommandWriter<'_>) -> bool {
        let has_all_entries = self.groups().values().all(|group| has_all_entries(self, group));
        if !has_all_entries
            || has_released(self)
            || self.producers().is_some() && version == Version::PRODUCERS
        {
            return false;
        }
        write_stream(self, version, commands);
        true
    }

    fn digest(&self, _: u64, digest: &mut Digest) {
        for entry in self.log().iter() {
            digest.mix(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
            for (field, value) in entry.fields() {
                digest.mix(&field.text());
                digest.mix(&value.text());
            }
        }
    }
}

/// Whether a group has deliveries that were released. O(groups).
fn has_released(stream: &Stream) -> bool {
    stream.groups().values().any(|group| group.released_len() > 0)
}

/// Whether all entries that a group has delivered are there.
fn has_all_entries(stream: &Stream, group: &ConsumerGroup) -> bool {
    group.pending().keys().all(|id| stream.log().contains(*id))
}

fn write_stream(stream: &Stream, version: Version, commands: &mut CommandWriter<'_>) {
    let log = stream.log();
    let key = commands.key();
    if log.is_empty() {
        // The entry goes as it comes; the stream stays.
        commands.command(&[b"XADD", key, b"MAXLEN", b"0", b"0-1", b"x", b"y"]);
    }
    for entry in log.iter() {
        let elements: Vec<_> = entry.fields().flat_map(|(field, value)| [field, value]).collect();
        commands.command_with(&[b"XADD", key, text_of(entry.id).as_bytes()], elements.into_iter());
    }
    // Before Redis 7.0 no server counts what was added and read.
    let counts = version.has_listpacks();
    let (last, deleted) = (text_of(log.last_id()), text_of(log.max_deleted_id()));
    let added = log.entries_added().to_string();
    let words: &[&[u8]] = &[
        b"XSETID",
        key,
        last.as_bytes(),
        b"ENTRIESADDED",
        added.as_bytes(),
        b"MAXDELETEDID",
        deleted.as_bytes(),
    ];
    commands.command(if counts { words } else { &words[..3] });
    for (name, group) in stream.groups() {
        let (last, read) = (text_of(group.last_id()), group.entries_read());
        let read = read.map_or_else(|| "-1".to_owned(), |read| read.to_string());
        let words: &[&[u8]] =
            &[b"XGROUP", b"CREATE", key, name, last.as_bytes(), b"ENTRIESREAD", read.as_bytes()];
        commands.command(if counts { words } else { &words[..5] });
        for (consumer, state) in group.consumers() {
            if state.pending().is_empty() {
                commands.command(&[b"XGROUP", b"CREATECONSUMER", key, name, consumer]);
            }
        }
        for (id, delivery) in group.pending().iter() {
            let (id, time, count) = (text_of(*id), delivery.time_ms.to_string(), delivery.count.to_string());
            commands.command(&[
                b"XCLAIM",
                key,
                name,
                delivery.owner(),
                b"0",
                id.as_bytes(),
                b"TIME",
                time.as_bytes(),
                b"RETRYCOUNT",
                count.as_bytes(),
                b"JUSTID",
                b"FORCE",
            ]);
        }
    }
}

fn text_of(id: StreamId) -> String {
    format!("{}-{}", id.ms, id.seq)
}

fn write<W: io::Write>(stream: &Stream, form: Form, output: &mut Output<'_, W>) -> io::Result<()> {
    let log = stream.log();
    output.length(log.nodes() as u64)?;
    log.listpacks().try_for_each(|(id, listpack)| write_node(id, listpack, output))?;
    write_tail_in(stream, form, output)
}

/// A node of a stream.
pub(crate) fn write_node<W: io::Write>(
    id: StreamId,
    listpack: &Listpack,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    output.string(&id_bytes(id))?;
    output.string(listpack.bytes())
}

/// Writes the parts behind the nodes of a stream; their number, and they, stand before.
pub(crate) fn write_tail<W: io::Write>(
    tail: &StreamTail,
    version: Version,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    write_tail_in(tail.stream(), Form::of(tail.stream(), version), output)
}

fn write_tail_in<W: io::Write>(stream: &Stream, form: Form, output: &mut Output<'_, W>) -> io::Result<()> {
    let log = stream.log();
    output.length(log.len())?;
    write_id(log.last_id(), output)?;
    if form > Form::One {
        write_id(log.first_id(), output)?;
        write_id(log.max_deleted_id(), output)?;
        output.length(log.entries_added())?;
    }
    output.length(stream.groups().len() as u64)?;
    for (name, group) in stream.groups() {
        output.string(name)?;
        write_group(group, form, output)?;
    }
    match stream.producers() {
        Some(producers) if form >= Form::Four => write_producers(producers, output),
        None if form >= Form::Four => write_producers(&Producers::new(ProducerLimits::default()), output),
        _ => Ok(()),
    }
}

/// Writes what is remembered of producers.
fn write_producers<W: io::Write>(producers: &Producers, output: &mut Output<'_, W>) -> io::Result<()> {
    output.length(producers.limits().duration_s.into())?;
    output.length(producers.limits().entries_max.into())?;
    output.length(producers.len() as u64)?;
    for (producer, count, entries) in producers.iter() {
        output.string(producer)?;
        output.length(count as u64)?;
        for (name, id) in entries {
            output.string(name)?;
            write_id(id, output)?;
        }
    }
    output.length(producers.added())?;
    output.length(producers.duplicates())
}

/// Reads what is remembered of producers.
pub(crate) fn read_producers<R: io::BufRead>(input: &mut Input<R>) -> Result<Producers, RdbError> {
    let mut limit = |max: u32| {
        let limit = u32::try_from(input.length()?).ok().filter(|limit| (1..=max).contains(limit));
        limit.ok_or(RdbError::Corrupt(
            "a stream remembers producers for too long, or too many of their entries",
        ))
    };
    let duration_s = limit(ProducerLimits::DURATION_S_MAX)?;
    let entries_max = limit(ProducerLimits::ENTRIES_MAX)?;
    let mut producers = Producers::new(ProducerLimits { duration_s, entries_max });
    for _ in 0..input.length()? {
        let producer = input.string()?;
        for _ in 0..input.length()? {
            let name = input.string()?;
            if !producers.restore(&producer, &name, read_id(input)?) {
                return Err(RdbError::Corrupt("a producer has an entry twice, or too many of them"));
            }
        }
    }
    let (added, duplicates) = (input.length()?, input.length()?);
    producers.restore_counts(added, duplicates);
    Ok(producers)
}

fn write_group<W: io::Write>(
    group: &ConsumerGroup,
    form: Form,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    write_id(group.last_id(), output)?;
    if form > Form::One {
        output.length(group.entries_read().unwrap_or(UNKNOWN))?;
    }
    let owned = |delivery: &Delivery| form >= Form::Five || delivery.consumer.is_some();
    output.length(match form >= Form::Five {
        true => group.pending().len(),
        false => group.pending().len() - group.released_len(),
    } as u64)?;
    for (id, delivery) in group.pending().iter().filter(|(_, delivery)| owned(delivery)) {
        output.raw(&id_bytes(*id))?;
        output.milliseconds(delivery.time_ms as i64)?;
        output.length(delivery.count)?;
    }
    output.length(group.consumers().len() as u64)?;
    for (name, consumer) in group.consumers() {
        output.string(name)?;
        output.milliseconds(consumer.seen_ms as i64)?;
        if form >= Form::Three {
            output.milliseconds(consumer.active_ms.map_or(NEVER, |at| at as i64))?;
        }
        output.length(consumer.pending().len() as u64)?;
        for id in consumer.pending().keys() {
            output.raw(&id_bytes(*id))?;
        }
    }
    if form < Form::Five {
        return Ok(());
    }
    output.length(group.released_len() as u64)?;
    group.released().try_for_each(|(id, _)| output.raw(&id_bytes(*id)))
}

/// Writes the deliveries that were released, with the names of their groups.
fn write_released<W: io::Write>(stream: &Stream, output: &mut Output<'_, W>) -> io::Result<()> {
    let groups = || stream.groups().iter().filter(|(_, group)| group.released_len() > 0);
    output.length(groups().count() as u64)?;
    for (name, group) in groups() {
        output.string(name)?;
        output.length(group.released_len() as u64)?;
        for (id, delivery) in group.released() {
            output.raw(&id_bytes(*id))?;
            output.length(delivery.count)?;
        }
    }
    Ok(())
}

/// Reads the deliveries that were released into the stream to which they belong.
pub(crate) fn read_released<R: io::BufRead>(
    stream: &mut Stream,
    input: &mut Input<R>,
) -> Result<(), RdbError> {
    for _ in 0..input.length()? {
        let name = input.string()?;
        for _ in 0..input.length()? {
            let (id, count) = (id_of(input.array()?), ReleaseCount::Exactly(input.length()?));
            let is_new = stream.edit_group(&name, |group, _| {
                !group.pending().contains_key(&id) && group.release(id, count, true)
            });
            if is_new != Some(true) {
                return Err(RdbError::Corrupt(
                    "a delivery that was released has no group, or is there twice",
                ));
            }
        }
    }
    Ok(())
}

fn read<R: io::BufRead>(input: &mut Input<R>, form: Form) -> Result<Stream, RdbError> {
    let mut nodes = Vec::new();
    for _ in 0..input.length()? {
        let id = <[u8; 16]>::try_from(input.string()?);
        let id = id.map_err(|_| RdbError::Corrupt("the ID of a stream's node has not 16 bytes"))?;
        nodes.push((id_of(id), read_listpack(input)?));
    }
    let len = input.length()?;
    let last_id = read_id(input)?;
    let (max_deleted_id, entries_added) = if form == Form::One {
        (StreamId::MIN, len)
    } else {
        // The first entry is found anew.
        read_id(input)?;
        (read_id(input)?, input.length()?)
    };
    let log = StreamLog::from_parts(nodes, last_id, max_deleted_id, entries_added)?;
    if log.len() != len {
        return Err(RdbError::Corrupt("a stream states another number of entries than it has"));
    }
    let mut stream = Stream::from_log(log);
    for _ in 0..input.length()? {
        let name = input.string()?;
        let group = read_group(input, form, stream.log())?;
        if !stream.create_group(&name, group) {
            return Err(RdbError::Corrupt("a stream has a group twice"));
        }
    }
    if form >= Form::Four {
        stream.set_producers(read_producers(input)?);
    }
    Ok(stream)
}

fn read_group<R: io::BufRead>(
    input: &mut Input<R>,
    form: Form,
    log: &StreamLog,
) -> Result<ConsumerGroup, RdbError> {
    let last_id = read_id(input)?;
    let entries_read = match form {
        Form::One => log.number_of(last_id),
        Form::Two | Form::Three | Form::Four | Form::Five => {
            Some(input.length()?).filter(|read| *read != UNKNOWN)
        }
    };
    let mut group = ConsumerGroup::new(last_id, entries_read);
    let mut deliveries = BTreeMap::new();
    for _ in 0..input.length()? {
        let (id, time_ms) = (id_of(input.array()?), time(input)?);
        if deliveries.insert(id, (time_ms, input.length()?)).is_some() {
            return Err(RdbError::Corrupt("a group has a delivery twice"));
        }
    }
    for _ in 0..input.length()? {
        let (name, seen_ms) = (input.string()?, time(input)?);
        let active_ms = match form {
            Form::One | Form::Two => Some(seen_ms),
            Form::Three | Form::Four | Form::Five => u64::try_from(input.milliseconds()?).ok(),
        };
        if !group.restore_consumer(&name, seen_ms, active_ms) {
            return Err(RdbError::Corrupt("a group has a consumer twice"));
        }
        for _ in 0..input.length()? {
            let id = id_of(input.array()?);
            let delivery = deliveries.remove(&id);
            let (time_ms, count) =
                delivery.ok_or(RdbError::Corrupt("a consumer has a delivery that its group has not"))?;
            group.restore_delivery(id, &name, time_ms, count);
        }
    }
    if form == Form::Five {
        for _ in 0..input.length()? {
            let id = id_of(input.array()?);
            let (_, count) = deliveries
                .remove(&id)
                .ok_or(RdbError::Corrupt("a group has released a delivery that it has not"))?;
            group.release(id, ReleaseCount::Exactly(count), true);
        }
    }
    if !deliveries.is_empty() {
        return Err(RdbError::Corrupt("a group has a delivery that no consumer has"));
    }
    Ok(group)
}

/// A time that may have been set to anything; before 1970 counts as 1970.
fn time<R: io::BufRead>(input: &mut Input<R>) -> Result<u64, RdbError> {
    Ok(input.milliseconds()?.max(0) as u64)
}

fn id_bytes(id: StreamId) -> [u8; 16] {
    (u128::from(id.ms) << 64 | u128::from(id.seq)).to_be_bytes()
}

fn id_of(bytes: [u8; 16]) -> StreamId {
    let number = u128::from_be_bytes(bytes);
    StreamId::new((number >> 64) as u64, number as u64)
}

fn write_id<W: io::Write>(id: StreamId, output: &mut Output<'_, W>) -> io::Result<()> {
    output.length(id.ms)?;
    output.length(id.seq)
}

fn read_id<R: io::BufRead>(input: &mut Input<R>) -> Result<StreamId, RdbError> {
    Ok(StreamId::new(input.length()?, input.length()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sixty seconds, five entries; `p` has added 1-1 as `x`; two were added, one came again.
    const PRODUCERS: &[u8] = b"\x3c\x05\x01\x01p\x01\x01x\x01\x01\x02\x01";

    #[test]
    fn producers_are_written_as_redis_writes_them_and_read_back() {
        let mut producers = Producers::new(ProducerLimits { duration_s: 60, entries_max: 5 });
        assert!(producers.restore(b"p", b"x", StreamId::new(1, 1)));
        producers.restore_counts(2, 1);
        let mut stream = Stream::default();
        stream.set_producers(producers);
        let mut bytes = Vec::new();
        write(&stream, Form::Four, &mut Output::new(&mut bytes, None)).expect("a vector takes everything");
        assert!(bytes.ends_with(PRODUCERS), "{bytes:02x?}");
        let stream = read(&mut Input::new(&bytes[..]), Form::Four).expect("what was just written");
        let producers = stream.producers().expect("read");
        assert_eq!(producers.limits(), ProducerLimits { duration_s: 60, entries_max: 5 });
        assert_eq!(producers.find(b"p", b"x", 0), Some(StreamId::new(1, 1)));
        assert_eq!((producers.added(), producers.duplicates()), (2, 1));
        bytes.clear();
        write(&stream, Form::Three, &mut Output::new(&mut bytes, None)).expect("a vector takes everything");
        let stream = read(&mut Input::new(&bytes[..]), Form::Three).expect("what was just written");
        assert!(stream.producers().is_none());
    }

    #[test]
    fn producers_that_cannot_be_are_refused() {
        let refuses = |bytes: &[u8]| read_producers(&mut Input::new(bytes)).is_err();
        assert!(!refuses(PRODUCERS));
        for length in 0..PRODUCERS.len() {
            assert!(refuses(&PRODUCERS[..length]), "cut to {length}");
        }
        assert!(refuses(b"\x00\x05\x00\x00\x00"), "no time");
        assert!(refuses(b"\x3c\x00\x00\x00\x00"), "no room");
        assert!(refuses(b"\x3c\x01\x01\x01p\x02\x01x\x01\x01\x01y\x01\x02\x00\x00"), "too many entries");
        assert!(refuses(b"\x3c\x05\x01\x01p\x02\x01x\x01\x01\x01x\x01\x02\x00\x00"), "a name twice");
    }
}
