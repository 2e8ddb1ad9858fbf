//! The audit log: who came, who was let in, what was changed and what was denied, as lines of JSON.
//!
//! ```text
//! workers ─ event ─▶ line ─▶ Queue, bounded ─▶ thread `audit` ─▶ file, journald or standard error
//!                              └ full: dropped and counted, or the command is refused (`audit-log-when-full`)
//! ```
//!
//! A line names commands, keys, directives and users; it never holds values, passwords or rules.
//!
//! Decision 0034 has why a full disk is the operator's choice.

mod event;
mod target;

use std::{
    collections::{HashSet, VecDeque},
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use arc_swap::ArcSwap;
use dunlin_engine::{
    command::{CommandTable, describe::CATEGORIES},
    glob::Glob,
};

pub(crate) use self::event::{AuditOutcome, Event, Kind, Origin};
use self::target::AuditSink;
use crate::config::{AuditFull, Config};

/// Bytes of lines that wait to be written.
const PENDING_BYTES_MAX: usize = 8 << 20;
/// How long the thread waits before it tries again what has failed.
const RETRY: Duration = Duration::from_secs(1);

/// The events that are recorded, read off the configuration once.
#[derive(Debug, Default)]
struct Wanted {
    kinds: u32,
    /// Numbers of commands, by their categories.
    commands: HashSet<usize>,
    keys: Vec<Glob>,
    refuses: bool,
}

/// The audit log of a server.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    is_on: AtomicBool,
    wanted: ArcSwap<Wanted>,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Whether nothing more fits.
    is_full: AtomicBool,
    written: AtomicU64,
    dropped: AtomicU64,
    failures: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<String>,
    bytes: usize,
    /// Lines that were dropped since the last one that was queued.
    dropped: u64,
    /// The destination of lines; `None` if the directive is not set.
    target: Option<AuditSink>,
    has_ended: bool,
}

impl Audit {
    /// Follows a configuration. The error is a line for the operator.
    pub(crate) fn configure(&self, config: &Config, table: &CommandTable) -> Result<(), String> {
        let target = AuditSink::open(&config.audit_log)?;
        let wanted = Wanted::of(config, table)?;
        let is_on = target.is_some();
        self.wanted.store(Arc::new(wanted));
        let mut queue = self.queue();
        queue.target = target;
        if !is_on {
            queue.lines.clear();
            queue.bytes = 0;
            self.is_full.store(false, Relaxed);
        }
        drop(queue);
        self.is_on.store(is_on, Relaxed);
        self.changed.notify_all();
        Ok(())
    }

    /// Whether anything is recorded.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Whether a kind of event is.
    pub(crate) fn wants(&self, kind: Kind) -> bool {
        self.is_on() && self.wanted.load().kinds & 1 << kind as u32 != 0
    }

    /// Whether a command is recorded that has these keys.
    pub(crate) fn wants_command<'k>(&self, command: usize, keys: impl Iterator<Item = &'k [u8]>) -> bool {
        let wanted = self.wanted.load();
        wanted.commands.contains(&command) || !wanted.keys.is_empty() && wanted.has_key(keys)
    }

    /// Whether what would be recorded is refused, since there is no room for it.
    pub(crate) fn refuses(&self) -> bool {
        self.is_full.load(Relaxed) && self.wanted.load().refuses
    }

    /// Records an event, or counts that it was dropped.
    pub(crate) fn record(&self, event: &Event<'_>) {
        let line = event.line();
        let mut queue = self.queue();
        if queue.bytes + line.len() > PENDING_BYTES_MAX {
            queue.dropped += 1;
            self.dropped.fetch_add(1, Relaxed);
            self.is_full.store(true, Relaxed);
            return;
        }
        if std::mem::take(&mut queue.dropped) > 0 {
            tracing::warn!("the audit log takes lines again; some were dropped, and INFO counts them");
        }
        queue.bytes += line.len();
        queue.lines.push_back(line);
        let is_first = queue.lines.len() == 1;
        drop(queue);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// Lines that were written.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Lines that found no room.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Writes that failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Bytes that wait to be written.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.queue().bytes
    }

    /// Makes the thread write what waits, once more at most if that fails, and end.
    pub(crate) fn end(&self) {
        self.queue().has_ended = true;
        self.changed.notify_all();
    }

    fn run(&self) {
        let mut queue = self.queue();
        loop {
            while queue.lines.is_empty() && !queue.has_ended {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            if queue.lines.is_empty() {
                return;
            }
            let mut lines = std::mem::take(&mut queue.lines);
            let Some(mut target) = queue.target.take() else {
                (queue.bytes, queue.has_ended) = (0, queue.has_ended);
                continue;
            };
            drop(queue);
            let (result, bytes) = write(&mut target, &mut lines, &self.written);
            queue = self.queue();
            // CONFIG SET may have chosen another one meanwhile.
            queue.target.get_or_insert(target);
            queue.bytes = queue.bytes.saturating_sub(bytes);
            if let Err(error) = result {
                if self.failures.fetch_add(1, Relaxed) == 0 || queue.has_ended {
                    tracing::error!("the audit log cannot be written: {error}");
                }
                lines.append(&mut queue.lines);
                queue.lines = lines;
                if queue.has_ended {
                    return;
                }
                queue = self.changed.wait_timeout(queue, RETRY).unwrap_or_else(PoisonError::into_inner).0;
            } else {
                self.is_full.store(false, Relaxed);
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes lines off the front. Returns how many bytes of them were.
fn write(
    target: &mut AuditSink,
    lines: &mut VecDeque<String>,
    written: &AtomicU64,
) -> (io::Result<()>, usize) {
    let mut bytes = 0;
    while let Some(line) = lines.front() {
        if let Err(error) = target.write(line) {
            return (Err(error), bytes);
        }
        bytes += line.len();
        written.fetch_add(1, Relaxed);
        lines.pop_front();
    }
    (target.sync(), bytes)
}

/// Starts the thread `audit`.
pub(crate) fn start(audit: &Arc<Audit>) -> io::Result<JoinHandle<()>> {
    let audit = Arc::clone(audit);
    thread::Builder::new().name("audit".to_owned()).spawn(move || audit.run())
}

impl Wanted {
    fn of(config: &Config, table: &CommandTable) -> Result<Self, String> {
        let mut wanted = Self { refuses: config.audit_log_when_full == AuditFull::Refuse, ..Self::default() };
        for word in &config.audit_log_events {
            match word.as_str() {
                "all" => wanted.kinds = u32::MAX,
                word => match Kind::ALL.into_iter().find(|kind| kind.name() == word) {
                    Some(kind) => wanted.kinds |= 1 << kind as u32,
                    None => return Err(format!("audit-log-events: there is no event '{word}'")),
                },
            }
        }
        for word in &config.audit_log_categories {
            let name = word.strip_prefix('@').unwrap_or(word);
            let category = CATEGORIES.iter().find(|category| category.eq_ignore_ascii_case(name));
            if category.is_none() && !name.eq_ignore_ascii_case("all") {
                return Err(format!("audit-log-categories: there is no category '{word}'"));
            }
            let is_in = |categories: &[&str]| category.is_none_or(|category| categories.contains(category));
            let entries = table.entries().iter().filter(|entry| is_in(&entry.categories()));
            wanted.commands.extend(entries.map(|entry| entry.index));
        }
        for pattern in &config.audit_log_keys {
            let glob = Glob::new(pattern.as_bytes());
            wanted.keys.push(glob.map_err(|_| format!("audit-log-keys: '{pattern}' is too complex"))?);
        }
        Ok(wanted)
    }

    fn has_key<'k>(&self, mut keys: impl Iterator<Item = &'k [u8]>) -> bool {
        keys.any(|key| self.keys.iter().any(|pattern| pattern.matches(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64) -> Event<'static> {
        Event { client: number, ..Event::new(Kind::Connection) }
    }

    #[test]
    fn audit_lines_beyond_what_may_wait_are_dropped_and_counted() {
        let audit = Audit::default();
        let line = event(1_000_000).line().len();
        let fit = PENDING_BYTES_MAX / line;
        for _ in 0..fit + 10 {
            audit.record(&event(1_000_000));
        }
        assert_eq!(audit.dropped(), 10);
        assert!(audit.pending_bytes() <= PENDING_BYTES_MAX);
        assert!(!audit.refuses(), "unless it is told to");
        audit.wanted.store(Arc::new(Wanted { refuses: true, ..Wanted::default() }));
        assert!(audit.refuses());
    }
}
