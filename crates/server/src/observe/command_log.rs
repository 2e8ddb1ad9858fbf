//! Commands worth a second look: slow ones, and those with a large request or reply.
//!
//! Three bounded logs, newest first, for `SLOWLOG` and `COMMANDLOG`. An entry keeps a short form of
//! the request; a secret is never kept.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin_engine::command::Entry;

use crate::config::Config;

/// Words of a request that are kept.
const WORDS_MAX: usize = 32;
/// Bytes of a word that are kept.
const WORD_BYTES_MAX: usize = 128;

/// The subject of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogKind {
    /// Execution time, in microseconds.
    Slow,
    /// Size of the request, in bytes.
    LargeRequest,
    /// Size of the reply, in bytes.
    LargeReply,
}

impl LogKind {
    /// The kind that `COMMANDLOG` names so.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        [("slow", Self::Slow), ("large-request", Self::LargeRequest), ("large-reply", Self::LargeReply)]
            .into_iter()
            .find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name))
            .map(|(_, kind)| kind)
    }

    /// How many entries its log keeps.
    pub(crate) fn entries_max(self, config: &Config) -> u64 {
        match self {
            Self::Slow => config.slowlog_max_len,
            Self::LargeRequest => config.commandlog_large_request_max_len,
            Self::LargeReply => config.commandlog_large_reply_max_len,
        }
    }
}

/// A command in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogEntry {
    /// Counts up from 0 in each log, and goes on after a reset.
    pub(crate) id: u64,
    /// Unix time in seconds.
    pub(crate) time_s: u64,
    /// Microseconds or bytes.
    pub(crate) value: u64,
    /// The request, shortened.
    pub(crate) words: Vec<Vec<u8>>,
    /// The client's address.
    pub(crate) peer: String,
    /// The client's name.
    pub(crate) client_name: Vec<u8>,
}

#[derive(Debug, Default)]
struct Log {
    next_id: u64,
    /// Newest first.
    entries: VecDeque<LogEntry>,
}

/// The three logs. Locked only when something is logged or looked at.
#[derive(Debug, Default)]
pub(crate) struct CommandLogs([Mutex<Log>; 3]);

impl CommandLogs {
    fn log(&self, kind: LogKind) -> MutexGuard<'_, Log> {
        self.0[kind as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry, whose `id` is given here, and drops the oldest beyond `entries_max`.
    pub(crate) fn add(&self, kind: LogKind, entries_max: u64, mut entry: LogEntry) {
        let mut log = self.log(kind);
        entry.id = log.next_id;
        log.next_id += 1;
        log.entries.push_front(entry);
        log.entries.truncate(usize::try_from(entries_max).unwrap_or(usize::MAX));
    }

    /// How many entries.
    pub(crate) fn len(&self, kind: LogKind) -> usize {
        self.log(kind).entries.len()
    }

    /// The newest entries.
    pub(crate) fn newest(&self, kind: LogKind, count: usize) -> Vec<LogEntry> {
        self.log(kind).entries.iter().take(count).cloned().collect()
    }

    /// Forgets all entries.
    pub(crate) fn reset(&self, kind: LogKind) {
        self.log(kind).entries.clear();
    }
}

/// The form in which a request is kept.
pub(crate) fn shorten(entry: &Entry, words: &[&[u8]]) -> Vec<Vec<u8>> {
    let kept = words.len().min(WORDS_MAX);
    let mut short: Vec<Vec<u8>> = Vec::with_capacity(kept);
    for (position, word) in entry.redacted(words).take(kept).enumerate() {
        if words.len() > WORDS_MAX && position == WORDS_MAX - 1 {
            short.push(format!("... ({} more arguments)", words.len() - WORDS_MAX + 1).into_bytes());
        } else if word.len() > WORD_BYTES_MAX {
            let more = format!("... ({} more bytes)", word.len() - WORD_BYTES_MAX);
            short.push([&word[..WORD_BYTES_MAX], more.as_bytes()].concat());
        } else {
            short.push(word.to_vec());
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use dunlin_engine::command::{Command, CommandTable};

    use super::*;

    fn entry(value: u64) -> LogEntry {
        LogEntry { id: 0, time_s: 1, value, words: vec![], peer: String::new(), client_name: vec![] }
    }

    #[test]
    fn command_log_lists_the_newest_first_and_drops_the_oldest() {
        let logs = CommandLogs::default();
        for value in 0..5 {
            logs.add(LogKind::Slow, 3, entry(value));
        }
        let told: Vec<(u64, u64)> =
            logs.newest(LogKind::Slow, 2).iter().map(|entry| (entry.id, entry.value)).collect();
        assert_eq!(told, [(4, 4), (3, 3)]);
        assert_eq!((logs.len(LogKind::Slow), logs.len(LogKind::LargeReply)), (3, 0));
        logs.reset(LogKind::Slow);
        logs.add(LogKind::Slow, 3, entry(9));
        assert_eq!(logs.newest(LogKind::Slow, 9)[0].id, 5, "numbers are never used again");
    }

    #[test]
    fn requests_are_shortened_and_secrets_left_out() {
        const OPEN: Command = Command { name: "open", ..Command::DEFAULT };
        const SECRET: Command =
            Command { name: "secret", secrets: Some(|words| vec![words.len() - 1]), ..Command::DEFAULT };
        let table = CommandTable::new(&[&[OPEN, SECRET]]);
        let shortened = |words: &[&[u8]]| shorten(table.find(words[0]).unwrap(), words);
        let long = vec![b'x'; 200];

        assert_eq!(shortened(&[b"secret", b"name", b"word"]), [&b"secret"[..], b"name", b"(redacted)"]);
        let word = &shortened(&[b"open", &long])[1];
        assert_eq!(word, &[&long[..128], b"... (72 more bytes)"].concat());

        let full: Vec<&[u8]> =
            std::iter::once(&b"open"[..]).chain(std::iter::repeat_n(&b"a"[..], 31)).collect();
        assert_eq!(shortened(&full).len(), 32);
        assert_eq!(shortened(&full)[31], b"a");
        let over: Vec<&[u8]> = full.iter().copied().chain([&b"a"[..]; 3]).collect();
        assert_eq!(shortened(&over).len(), 32);
        assert_eq!(shortened(&over)[31], b"... (4 more arguments)");
    }
}
