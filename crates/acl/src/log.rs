//! [`AclLog`]: the latest denials, like ones together.

use std::collections::VecDeque;

use crate::Reason;

/// Entries among which a like one is looked for, from the newest on.
const SCANNED_MAX: usize = 10;

/// Longest time between two denials that count as one entry, in milliseconds.
const GROUPING_MS_MAX: u64 = 60_000;

/// Bytes of an object or name that are kept: clients choose both.
const KEPT_BYTES_MAX: usize = 1024;

/// Bytes of the line about a client that are kept: clients choose their names.
const CLIENT_BYTES_MAX: usize = 4096;

/// How a denied request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// By itself.
    TopLevel,
    /// In a transaction: when it was queued, or when it was run.
    Multi,
    /// In a script or function.
    Script,
}

impl Context {
    /// The name in `ACL LOG`.
    pub fn name(self) -> &'static str {
        match self {
            Self::TopLevel => "toplevel",
            Self::Multi => "multi",
            Self::Script => "lua",
        }
    }
}

/// A denial that is to be noted.
#[derive(Debug, Clone, Copy)]
pub struct Denied<'a> {
    /// The kind of the object.
    pub reason: Reason,
    /// How the request was sent.
    pub context: Context,
    /// The command, key, channel or database.
    pub object: &'a [u8],
    /// The user's name; of a failed authentication, the name that was given.
    pub user: &'a [u8],
    /// The client as `CLIENT LIST` shows it.
    pub client: &'a str,
    /// Milliseconds since 1970.
    pub now_ms: u64,
    /// Milliseconds of a clock that only goes forward.
    pub steady_ms: u64,
}

/// An entry.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// Unique since the start.
    pub id: u64,
    /// How often it has happened.
    pub count: u64,
    /// The kind of the object.
    pub reason: Reason,
    /// How the request was sent.
    pub context: Context,
    /// The command, key, channel or database, its first 1,024 bytes.
    pub object: Box<[u8]>,
    /// The user's name, its first 1,024 bytes.
    pub user: Box<[u8]>,
    /// The client of the last time.
    pub client: Box<str>,
    /// When it happened first, in milliseconds since 1970.
    pub created_ms: u64,
    /// When it happened last.
    pub updated_ms: u64,
    /// The moment of the last change by the clock that only goes forward, for its age.
    pub updated_steady_ms: u64,
}

/// The latest denials, the newest first.
#[derive(Debug, Default)]
pub struct AclLog {
    entries: VecDeque<LogEntry>,
    /// Entries that there have been.
    created: u64,
}

impl AclLog {
    /// Notes a denial: like one of the newest entries, or as an entry of its own. `entries_max` are kept.
    pub fn note(&mut self, denied: Denied<'_>, entries_max: usize) {
        let kept = |text: &[u8]| -> Box<[u8]> { text[..text.len().min(KEPT_BYTES_MAX)].into() };
        let (object, user) = (kept(denied.object), kept(denied.user));
        let client: Box<str> = denied.client[..denied.client.floor_char_boundary(CLIENT_BYTES_MAX)].into();
        let is_like = |entry: &LogEntry| {
            entry.reason == denied.reason
                && entry.context == denied.context
                && denied.steady_ms.saturating_sub(entry.updated_steady_ms) <= GROUPING_MS_MAX
                && (&entry.object, &entry.user) == (&object, &user)
        };
        let like = self.entries.iter().take(SCANNED_MAX).position(is_like);
        let entry = match like.and_then(|at| self.entries.remove(at)) {
            Some(entry) => LogEntry {
                client,
                count: entry.count + 1,
                updated_ms: denied.now_ms,
                updated_steady_ms: denied.steady_ms,
                ..entry
            },
            None => {
                self.created += 1;
                LogEntry {
                    id: self.created - 1,
                    count: 1,
                    reason: denied.reason,
                    context: denied.context,
                    object,
                    user,
                    client,
                    created_ms: denied.now_ms,
                    updated_ms: denied.now_ms,
                    updated_steady_ms: denied.steady_ms,
                }
            }
        };
        self.entries.push_front(entry);
        self.trim(entries_max);
    }

    /// Lets the oldest entries go, so that no more than `entries_max` stay.
    pub fn trim(&mut self, entries_max: usize) {
        self.entries.truncate(entries_max);
    }

    /// Lets all entries go.
    pub fn reset(&mut self) {
        self.entries.clear();
    }

    /// The entries, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &LogEntry> {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(object: &str, now_ms: u64) -> Denied<'_> {
        Denied {
            reason: Reason::Key,
            context: Context::TopLevel,
            object: object.as_bytes(),
            user: b"app",
            client: "id=1",
            now_ms,
            steady_ms: now_ms,
        }
    }

    fn shown(log: &AclLog) -> Vec<(u64, u64, String)> {
        let text = |entry: &LogEntry| String::from_utf8_lossy(&entry.object).into_owned();
        log.iter().map(|entry| (entry.id, entry.count, text(entry))).collect()
    }

    #[test]
    fn acl_log_groups_like_denials() {
        let mut log = AclLog::default();
        for (object, now_ms) in [("a", 0), ("b", 10), ("a", 60_000), ("a", 120_001)] {
            log.note(denied(object, now_ms), 128);
        }
        let expected = [(2, 1, "a"), (0, 2, "a"), (1, 1, "b")];
        assert_eq!(shown(&log), expected.map(|(id, count, text)| (id, count, text.to_owned())));
        let first = log.iter().nth(1).unwrap();
        assert_eq!((first.created_ms, first.updated_ms), (0, 60_000));
        log.note(Denied { context: Context::Multi, ..denied("a", 120_002) }, 128);
        log.note(Denied { reason: Reason::Channel, ..denied("a", 120_002) }, 128);
        log.note(Denied { user: b"other", ..denied("a", 120_002) }, 128);
        assert_eq!(log.iter().count(), 6);
    }

    #[test]
    fn acl_log_looks_at_the_newest_ten() {
        let mut log = AclLog::default();
        let names: Vec<String> = (0..11).map(|number| number.to_string()).collect();
        names.iter().for_each(|name| log.note(denied(name, 0), 128));
        log.note(denied("1", 0), 128);
        assert_eq!(shown(&log)[0], (1, 2, "1".to_owned()));
        log.note(denied("0", 0), 128);
        assert_eq!(shown(&log)[0], (11, 1, "0".to_owned()));
    }

    #[test]
    fn acl_log_is_bounded() {
        let mut log = AclLog::default();
        for number in 0..100 {
            log.note(denied(&number.to_string(), 0), 3);
        }
        assert_eq!(shown(&log).len(), 3);
        log.note(denied(&"x".repeat(1 << 20), 0), 3);
        assert_eq!(log.iter().next().unwrap().object.len(), KEPT_BYTES_MAX);
        log.note(Denied { client: &"é".repeat(1 << 20), ..denied("z", 0) }, 3);
        assert_eq!(log.iter().next().unwrap().client.len(), CLIENT_BYTES_MAX);
        log.note(denied("y", 0), 0);
        assert_eq!(log.iter().count(), 0);
    }
}
