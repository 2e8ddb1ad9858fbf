//! `MONITOR`: every command that runs, shown to the clients that watch.
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

use dunlin_engine::command::{Entry, Flags};

use dunlin_net::{Client, Commitment, Push, Pushed, Transport, WorkerQueues};

/// The clients that watch.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    watched: AtomicUsize,
    watchers: Mutex<Vec<Arc<Client>>>,
}

impl Monitor {
    /// Whether any client watches.
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

    /// Shows a line to all watchers once a commitment is met, unless it is empty.
    pub(crate) fn show<L>(
        &self,
        line: impl Into<Arc<Vec<u8>>>,
        commitment: Commitment,
        queues: &WorkerQueues<L>,
    ) {
        let line = line.into();
        if line.is_empty() {
            return;
        }
        for watcher in &*self.watchers() {
            // A client that has gone is about to leave.
            let _: Pushed = queues.push(watcher, commitment, |_| Some(Push::Bytes(Arc::clone(&line))));
        }
    }

    fn watchers(&self) -> MutexGuard<'_, Vec<Arc<Client>>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The issuer of the command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// A client's.
    Client(&'a Transport),
    /// A script's.
    Script,
}

/// Whether the line of a command is shown after it has run: it names the database that the command has chosen, or follows
/// those of the commands that it runs.
pub(crate) fn is_shown_afterwards(entry: &Entry) -> bool {
    matches!(entry.command.name, "exec" | "reset" | "select")
}

/// The line of a command; empty for one that is not shown.
pub(crate) fn line(entry: &Entry, words: &[&[u8]], database: usize, origin: Origin<'_>) -> Vec<u8> {
    if entry.command.flags.has(Flags::ADMIN) || entry.command.flags.has(Flags::SKIP_MONITOR) {
        return Vec::new();
    }
    line_of_words(entry.redacted(words), database, origin)
}

/// The line of a command without secrets.
pub(crate) fn plain_line(words: &[&[u8]], database: usize, origin: Origin<'_>) -> Vec<u8> {
    line_of_words(words.iter().copied(), database, origin)
}

fn line_of_words<'w>(words: impl Iterator<Item = &'w [u8]>, database: usize, origin: Origin<'_>) -> Vec<u8> {
    let mut line = Vec::new();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Writing to a vector cannot fail.
    let _ = write!(line, "+{}.{:06} [{database} ", now.as_secs(), now.subsec_micros());
    match origin {
        Origin::Client(Transport::Tcp { peer, .. }) => drop(write!(line, "{peer}")),
        Origin::Client(Transport::Unix(path)) => drop(write!(line, "unix:{}", path.display())),
        Origin::Script => line.extend_from_slice(b"lua"),
    }
    line.push(b']');
    for word in words {
        line.push(b' ');
        quote(&mut line, word);
    }
    line.extend_from_slice(b"\r\n");
    line
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

    use dunlin_engine::command::Argument;

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
        assert_eq!(shown("CONFIG SET requirepass secret"), "");
    }

    #[test]
    fn secrets_are_redacted_and_nothing_else_is() {
        for (request, expected) in [
            ("AUTH secret", "AUTH *"),
            ("AUTH me secret", "AUTH * *"),
            ("HELLO", "HELLO"),
            ("HELLO 3", "HELLO 3"),
            ("HELLO 3 SETNAME auth", "HELLO 3 SETNAME auth"),
            ("HELLO 3 SETNAME auth AUTH me secret", "HELLO 3 SETNAME auth AUTH * *"),
            ("hello 3 auth me secret setname auth", "hello 3 auth * * setname auth"),
            ("HELLO 3 AUTH secret", "HELLO 3 AUTH *"),
            ("HELLO AUTH me secret", "HELLO AUTH * *"),
            ("HELLO 3 BY AUTH me secret", "HELLO 3 BY AUTH * *"),
            ("CONFIG GET requirepass", "CONFIG GET requirepass"),
            ("CONFIG SET hz 10 RequirePass secret", "CONFIG SET hz 10 RequirePass *"),
            ("CONFIG SET requirepass secret hz 10", "CONFIG SET requirepass * hz 10"),
            ("CONFIG SET requirepass my secret", "CONFIG SET requirepass * *"),
            ("CONFIG SET hz", "CONFIG SET hz"),
            ("CONFIG SET masterauth secret masteruser me", "CONFIG SET masterauth * masteruser *"),
            ("CONFIG SET tls-key-file-pass secret", "CONFIG SET tls-key-file-pass *"),
            ("SET requirepass secret", "SET requirepass secret"),
            ("MIGRATE h 1 k 0 10 COPY AUTH secret", "MIGRATE h 1 k 0 10 COPY AUTH *"),
            (
                "MIGRATE h 1 auth 0 10 auth2 me secret KEYS auth k",
                "MIGRATE h 1 auth 0 10 auth2 * * KEYS auth k",
            ),
            ("MIGRATE h 1 k 0 10 AUTH2 me", "MIGRATE h 1 k 0 10 AUTH2 *"),
            ("ECHO AUTH", "ECHO AUTH"),
        ] {
            let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
            let table = commands::table();
            let entry = table.resolve(table.find(words[0]).unwrap(), &words);
            let shown: Vec<&[u8]> = entry.redacted(&words).collect();
            let shown = String::from_utf8(shown.join(&b' ')).unwrap().replace("(redacted)", "*");
            assert_eq!(shown, expected, "{request}");
        }
    }

    /// A row whose documented arguments have a password in them must say where it stands.
    #[test]
    fn rows_with_passwords_say_where_these_stand() {
        fn names_a_password(arguments: &[Argument]) -> bool {
            let is_one = |argument: &Argument| argument.name.contains("password");
            arguments.iter().any(|argument| is_one(argument) || names_a_password(argument.children))
        }
        let table = commands::table();
        let with_passwords = table.entries().iter().filter(|entry| names_a_password(entry.command.args));
        let names: Vec<String> = with_passwords
            .inspect(|entry| assert!(entry.command.secrets.is_some(), "{}", entry.full_name()))
            .map(Entry::full_name)
            .collect();
        assert_eq!(names, ["auth", "hello", "migrate"]);
    }
}
