//! `MONITOR`: every command that runs, shown to whoever watches.
//!
//! ```text
//! +1700000000.123456 [0 127.0.0.1:50000] "SET" "key" "va\nlue"
//! ```
//!
//! The line of a command is queued for the watchers before others can see what the command does. Commands for operators
//! and passwords are not shown. Lines of one worker stand in the order of its commands; those of different workers are
//! merged as they come, and their times tell more.

use std::{
    io::Write,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use dunlin_engine::command::{Entry, Flags, Group};

use crate::net::{Client, PostOffice, Push, Pushed, Transport};

/// The clients that watch.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    watched: AtomicUsize,
    watchers: Mutex<Vec<Arc<Client>>>,
}

impl Feed {
    /// Whether anybody watches.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(SeqCst) != 0
    }

    /// Adds a client.
    pub(crate) fn join(&self, client: &Arc<Client>) {
        let mut watchers = self.watchers();
        watchers.push(Arc::clone(client));
        self.watched.store(watchers.len(), SeqCst);
    }

    /// Takes a client away.
    pub(crate) fn leave(&self, client: u64) {
        let mut watchers = self.watchers();
        watchers.retain(|watcher| watcher.id() != client);
        self.watched.store(watchers.len(), SeqCst);
    }

    /// Shows a line to all watchers.
    pub(crate) fn show<L>(&self, line: Vec<u8>, post: &PostOffice<L>) {
        if line.is_empty() {
            return;
        }
        let line = Arc::new(line);
        for watcher in &*self.watchers() {
            // Whoever has gone is about to leave.
            let _: Pushed = post.push(watcher, |_| Some(Push::Bytes(Arc::clone(&line))));
        }
    }

    fn watchers(&self) -> MutexGuard<'_, Vec<Arc<Client>>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whose command it is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// A client's.
    Client(&'a Transport),
    /// A script's.
    Script,
}

/// Whether the line of a command is shown after it has run: its own words are the last of it, and nobody else sees what it
/// does before it is answered.
pub(crate) fn is_shown_afterwards(entry: &Entry) -> bool {
    matches!(entry.command.group, Group::Connection | Group::Transactions)
}

/// The line of a command; empty for one that is not shown.
pub(crate) fn line(entry: &Entry, words: &[&[u8]], database: usize, origin: Origin<'_>) -> Vec<u8> {
    if entry.command.flags.has(Flags::ADMIN) || entry.command.flags.has(Flags::SKIP_MONITOR) {
        return Vec::new();
    }
    line_of_words(words, first_secret(entry, words), database, origin)
}

/// The line of the command that runs a script, which comes before those of what the script calls.
pub(crate) fn script_line(words: &[&[u8]], database: usize, transport: &Transport) -> Vec<u8> {
    line_of_words(words, words.len(), database, Origin::Client(transport))
}

fn line_of_words(words: &[&[u8]], first_secret: usize, database: usize, origin: Origin<'_>) -> Vec<u8> {
    let mut line = Vec::new();
    write_words(&mut line, words, first_secret, database, origin);
    line
}

fn write_words(
    lines: &mut Vec<u8>,
    words: &[&[u8]],
    first_secret: usize,
    database: usize,
    origin: Origin<'_>,
) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Writing to a vector cannot fail.
    let _ = write!(lines, "+{}.{:06} [{database} ", now.as_secs(), now.subsec_micros());
    match origin {
        Origin::Client(Transport::Tcp { peer, .. }) => drop(write!(lines, "{peer}")),
        Origin::Client(Transport::Unix(path)) => drop(write!(lines, "unix:{}", path.display())),
        Origin::Script => lines.extend_from_slice(b"lua"),
    }
    lines.push(b']');
    for (position, word) in words.iter().enumerate() {
        lines.push(b' ');
        if position >= first_secret {
            lines.extend_from_slice(b"\"(redacted)\"");
        } else {
            quote(lines, word);
        }
    }
    lines.extend_from_slice(b"\r\n");
}

/// The first word that is shown to nobody: an argument of `AUTH`, or what stands behind `AUTH` in the
/// arguments of another command with secrets.
fn first_secret(entry: &Entry, words: &[&[u8]]) -> usize {
    if !entry.command.flags.has(Flags::SENSITIVE) {
        return words.len();
    }
    let keyword = words.iter().position(|word| word.eq_ignore_ascii_case(b"AUTH"));
    keyword.map_or(entry.name_words(), |keyword| keyword + 1)
}

/// Appends a word in quotes, with what is not printable escaped.
fn quote(out: &mut Vec<u8>, word: &[u8]) {
    out.push(b'"');
    for &byte in word {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x07 => out.extend_from_slice(b"\\a"),
            0x08 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => drop(write!(out, "\\x{byte:02x}")),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::commands;

    fn line(words: &[&[u8]]) -> String {
        let table = commands::table();
        let entry = table.resolve(table.find(words[0]).unwrap(), words);
        let origin = Transport::Unix(Path::new("/tmp/s").into());
        let line = String::from_utf8(super::line(entry, words, 3, Origin::Client(&origin))).unwrap();
        line.split_once(' ').map_or(String::new(), |(_, rest)| rest.to_owned())
    }

    #[test]
    fn words_are_quoted() {
        assert_eq!(
            line(&[b"set", b"k \"\\", b"\r\n\t\x07\x08\x00\xff~"]),
            "[3 unix:/tmp/s] \"set\" \"k \\\"\\\\\" \"\\r\\n\\t\\a\\b\\x00\\xff~\"\r\n"
        );
    }

    #[test]
    fn secrets_and_operators_commands_are_not_shown() {
        let shown = |words: &str| line(&words.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        assert_eq!(shown("AUTH me secret"), "[3 unix:/tmp/s] \"AUTH\" \"(redacted)\" \"(redacted)\"\r\n");
        let hello = shown("HELLO 3 auth me secret");
        assert_eq!(hello, "[3 unix:/tmp/s] \"HELLO\" \"3\" \"auth\" \"(redacted)\" \"(redacted)\"\r\n");
        assert_eq!(shown("CONFIG SET requirepass secret"), "");
    }
}
