//! Commands that make a key anew: the base of a log consists of them if it is no RDB file.
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
//! JSON         JSON.SET of the root
//! any          PEXPIREAT
//! ```
//!
//! The commands are those that Redis writes (`rewriteAppendOnlyFileRio`), so that Redis loads them. As there, one
//! fact that no command can state is lost: when a consumer was last seen.

use dunlin_structures::Element;

use crate::{
    keyspace::EntryRef,
    propagation::{write_command, write_head, write_word},
    rdb::{Version, write_dump_in},
    value::{LongText, Stored, StringRef, each},
};

/// Items of one command at most, as in Redis.
const ITEMS_MAX: usize = 64;

/// Writes the commands that make an entry as it is, but for elements that have expired by `now_ms`, for servers that
/// load a version of RDB files. The text of a long string is not copied: `share` gets it, and its place is where
/// `out` ends. Between the commands of a collection, `pass` sees `out` and may take its bytes. O(n).
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
        (Some(object), _) => {
            let mut commands = CommandWriter { key, out, pass };
            if !each!(&*object, collection => collection.write_commands(version, now_ms, &mut commands)) {
                let dump = write_dump_in(version, entry, now_ms, None);
                write_command(out, &[b"RESTORE", key, b"0", &dump]);
            }
        }
    }
    if let Some(expiry_ms) = entry.expiry() {
        write_command(out, &[b"PEXPIREAT", key, itoa::Buffer::new().format(expiry_ms).as_bytes()]);
    }
}

fn write_string(key: &[u8], string: StringRef<'_>, out: &mut Vec<u8>) {
    let mut number = itoa::Buffer::new();
    write_command(out, &[b"SET", key, &string.gathered(&mut number)]);
}

/// Takes the commands that make a collection.
pub(crate) struct CommandWriter<'w> {
    key: &'w [u8],
    out: &'w mut Vec<u8>,
    pass: &'w mut dyn FnMut(&mut Vec<u8>),
}

impl<'w> CommandWriter<'w> {
    /// The key of the collection.
    pub(crate) fn key(&self) -> &'w [u8] {
        self.key
    }

    /// Adds a command with these words.
    pub(crate) fn command(&mut self, words: &[&[u8]]) {
        write_command(self.out, words);
        (self.pass)(self.out);
    }

    /// Adds a command with these words, the key among them, and elements behind them.
    pub(crate) fn command_with<'e>(
        &mut self,
        words: &[&[u8]],
        elements: impl ExactSizeIterator<Item = Element<'e>>,
    ) {
        write_head(self.out, b'*', words.len() + elements.len());
        words.iter().for_each(|word| write_word(self.out, word));
        elements.for_each(|element| write_element(element, self.out));
        (self.pass)(self.out);
    }

    /// Adds commands of one name, the key behind it, to be followed by items.
    pub(crate) fn batch<'b>(&'b mut self, name: &'b [u8]) -> Batch<'b> {
        let Self { key, out, pass } = self;
        Batch { head: [name, key], out, pass: &mut **pass, items: Vec::new(), count: 0, words: 0 }
    }
}

fn write_element(element: Element<'_>, out: &mut Vec<u8>) {
    match element {
        Element::Integer(value) => write_word(out, itoa::Buffer::new().format(value).as_bytes()),
        Element::String(text) => write_word(out, text),
    }
}

/// Commands of one kind with up to [`ITEMS_MAX`] items each.
pub(crate) struct Batch<'b> {
    /// The beginning of each command: its name and the key.
    head: [&'b [u8]; 2],
    out: &'b mut Vec<u8>,
    pass: &'b mut dyn FnMut(&mut Vec<u8>),
    /// The items of the next command.
    items: Vec<u8>,
    count: usize,
    words: usize,
}

impl Batch<'_> {
    /// Adds an item, whose elements are `words`.
    pub(crate) fn item(&mut self, words: &[Element<'_>]) {
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

    /// Adds the last command.
    pub(crate) fn finish(mut self) {
        if self.count > 0 {
            self.flush();
        }
    }
}
