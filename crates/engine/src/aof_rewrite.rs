//! Commands that make a key anew: what the base of a log consists of where it is no RDB file.
//!
//! ```text
//! string       SET
//! list, set    RPUSH, SADD                       up to 64 elements a command
//! sorted set   ZADD                              as many pairs
//!              RESTORE where a score is -0, which ZADD may not keep
//! hash         HSET, then HPEXPIREAT for each field that expires
//! stream       XADD for each entry, XSETID; XGROUP CREATE, XCLAIM for each delivery, XGROUP CREATECONSUMER for each
//!              consumer without one
//!              RESTORE where a delivery is of an entry that is gone: XCLAIM would drop it; and where producers are
//!              remembered, for servers that load that
//! any          PEXPIREAT
//! ```
//!
//! They are the commands that Redis writes (`rewriteAppendOnlyFileRio`), so that it loads them. What commands cannot say
//! is lost, as there: when a consumer was last seen.

use dunlin_structures::Element;

use crate::{
    keyspace::EntryRef,
    propagation::{write_command, write_head, write_word},
    rdb::{Version, write_dump_in},
    value::{
        Hash, LongText, Object, SortedSet, StringRef, exact_text,
        stream::{ConsumerGroup, Stream, StreamId},
    },
};

/// Items of one command at most, as in Redis.
const ITEMS_MAX: usize = 64;

/// Writes the commands that make an entry as it is, but for what has expired by `now_ms`, for servers that load a version
/// of RDB files. The text of a long string is not copied: `share` is told that it is to stand where `out` ends. Of a
/// collection, `pass` is shown `out` between commands, and may take what is there. O(n).
pub(crate) fn write(
    entry: EntryRef<'_>,
    version: Version,
    now_ms: u64,
    out: &mut Vec<u8>,
    share: impl FnOnce(usize, LongText),
    pass: &mut dyn FnMut(&mut Vec<u8>),
) {
    let key = entry.key();
    match (entry.object(), entry.long_text()) {
        (None, Some(text)) => {
            write_head(out, b'*', 3);
            write_word(out, b"SET");
            write_word(out, key);
            write_head(out, b'$', text.len());
            share(out.len(), text);
            out.extend_from_slice(b"\r\n");
        }
        (None, None) => write_string(key, entry.string(), out),
        (Some(Object::List(list)), _) => {
            let mut batch = Batch::new([b"RPUSH", key], out, pass);
            list.iter().for_each(|element| batch.item(&[element]));
            batch.finish();
        }
        (Some(Object::Set(set)), _) => {
            let mut batch = Batch::new([b"SADD", key], out, pass);
            set.for_each(|member| batch.item(&[member]));
            batch.finish();
        }
        (Some(Object::SortedSet(set)), _) if has_negative_zero(set) => {
            write_restore(entry, version, now_ms, out);
        }
        (Some(Object::SortedSet(set)), _) => {
            let mut batch = Batch::new([b"ZADD", key], out, pass);
            set.for_each(|member, score| {
                batch.item(&[Element::String(exact_text(score).as_bytes()), member])
            });
            batch.finish();
        }
        (Some(Object::Hash(hash)), _) => write_hash(key, hash, now_ms, out, pass),
        (Some(Object::Stream(stream)), _)
            if stream.groups().values().all(|group| has_all_entries(stream, group))
                && !(stream.producers().is_some() && version == Version::PRODUCERS) =>
        {
            write_stream(key, stream, version, out, pass);
        }
        (Some(Object::Stream(_)), _) => write_restore(entry, version, now_ms, out),
    }
    if let Some(expiry_ms) = entry.expiry() {
        write_command(out, &[b"PEXPIREAT", key, itoa::Buffer::new().format(expiry_ms).as_bytes()]);
    }
}

/// Writes a value that other commands would not make as it is.
fn write_restore(entry: EntryRef<'_>, version: Version, now_ms: u64, out: &mut Vec<u8>) {
    let dump = write_dump_in(version, entry, now_ms, None);
    write_command(out, &[b"RESTORE", entry.key(), b"0", &dump]);
}

/// Whether a score is the zero below zero: ZADD begins with a listpack, which knows one zero only.
fn has_negative_zero(set: &SortedSet) -> bool {
    let mut has = false;
    set.for_each(|_, score| has |= score == 0.0 && score.is_sign_negative());
    has
}

fn write_string(key: &[u8], string: StringRef<'_>, out: &mut Vec<u8>) {
    let mut number = itoa::Buffer::new();
    write_command(out, &[b"SET", key, &string.gathered(&mut number)]);
}

fn write_hash(key: &[u8], hash: &Hash, now_ms: u64, out: &mut Vec<u8>, pass: &mut dyn FnMut(&mut Vec<u8>)) {
    let mut batch = Batch::new([b"HSET", key], out, pass);
    hash.for_each(now_ms, |field, value| batch.item(&[field, value]));
    batch.finish();
    hash.for_each_with_deadline(now_ms, |field, _, deadline_ms| {
        if let Some(at) = deadline_ms {
            let at = at.to_string();
            write_command(out, &[b"HPEXPIREAT", key, at.as_bytes(), b"FIELDS", b"1", &field.text()]);
            pass(out);
        }
    });
}

/// Whether all entries that a group has delivered are there.
fn has_all_entries(stream: &Stream, group: &ConsumerGroup) -> bool {
    group.pending().keys().all(|id| stream.log().contains(*id))
}

fn write_stream(
    key: &[u8],
    stream: &Stream,
    version: Version,
    out: &mut Vec<u8>,
    pass: &mut dyn FnMut(&mut Vec<u8>),
) {
    let log = stream.log();
    if log.is_empty() {
        // The entry goes as it comes; the stream stays.
        write_command(out, &[b"XADD", key, b"MAXLEN", b"0", b"0-1", b"x", b"y"]);
    }
    for entry in log.iter() {
        write_head(out, b'*', 3 + 2 * entry.len());
        [&b"XADD"[..], key, text_of(entry.id).as_bytes()].iter().for_each(|word| write_word(out, word));
        for (field, value) in entry.fields() {
            write_element(field, out);
            write_element(value, out);
        }
        pass(out);
    }
    // Before Redis 7.0 nobody counts what was added and read.
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
    write_command(out, if counts { words } else { &words[..3] });
    for (name, group) in stream.groups() {
        let (last, read) = (text_of(group.last_id()), group.entries_read());
        let read = read.map_or_else(|| "-1".to_owned(), |read| read.to_string());
        let words: &[&[u8]] =
            &[b"XGROUP", b"CREATE", key, name, last.as_bytes(), b"ENTRIESREAD", read.as_bytes()];
        write_command(out, if counts { words } else { &words[..5] });
        for (consumer, state) in group.consumers() {
            if state.pending().is_empty() {
                write_command(out, &[b"XGROUP", b"CREATECONSUMER", key, name, consumer]);
            }
        }
        for (id, delivery) in group.pending().iter() {
            let (id, time, count) = (text_of(*id), delivery.time_ms.to_string(), delivery.count.to_string());
            let words: [&[u8]; 12] = [
                b"XCLAIM",
                key,
                name,
                &delivery.consumer,
                b"0",
                id.as_bytes(),
                b"TIME",
                time.as_bytes(),
                b"RETRYCOUNT",
                count.as_bytes(),
                b"JUSTID",
                b"FORCE",
            ];
            write_command(out, &words);
            pass(out);
        }
    }
}

fn text_of(id: StreamId) -> String {
    format!("{}-{}", id.ms, id.seq)
}

fn write_element(element: Element<'_>, out: &mut Vec<u8>) {
    match element {
        Element::Integer(value) => write_word(out, itoa::Buffer::new().format(value).as_bytes()),
        Element::String(text) => write_word(out, text),
    }
}

/// Commands of one kind with up to [`ITEMS_MAX`] items each.
struct Batch<'b> {
    /// What each command begins with: its name and the key.
    head: [&'b [u8]; 2],
    out: &'b mut Vec<u8>,
    pass: &'b mut dyn FnMut(&mut Vec<u8>),
    /// The items of the next command.
    items: Vec<u8>,
    count: usize,
    words: usize,
}

impl<'b> Batch<'b> {
    fn new(head: [&'b [u8]; 2], out: &'b mut Vec<u8>, pass: &'b mut dyn FnMut(&mut Vec<u8>)) -> Self {
        Self { head, out, pass, items: Vec::new(), count: 0, words: 0 }
    }

    fn item(&mut self, words: &[Element<'_>]) {
        words.iter().for_each(|word| write_element(*word, &mut self.items));
        self.words += words.len();
        self.count += 1;
        if self.count == ITEMS_MAX {
            self.flush();
        }
    }

    fn flush(&mut self) {
        write_head(self.out, b'*', self.head.len() + self.words);
        self.head.iter().for_each(|word| write_word(self.out, word));
        self.out.append(&mut self.items);
        (self.count, self.words) = (0, 0);
        (self.pass)(self.out);
    }

    fn finish(mut self) {
        if self.count > 0 {
            self.flush();
        }
    }
}
