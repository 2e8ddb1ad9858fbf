//! The log: one line an event, to standard output or to `logfile`, and to syslog if that is wanted.
//!
//! ```text
//! 4711:M 2026-11-21T09:37:34.314Z * Ready to accept connections
//! │    │ │                        │ message, then other fields as name=value
//! │    │ UTC, milliseconds        level: . debug  - verbose  * notice  # warning
//! │    role: M primary
//! process id
//! ```
//! Times are UTC, so that lines of several hosts sort together and no time zone database is read.
//! Control characters are escaped: an event is one line whatever a client sends. The file is opened
//! again when it has been moved away or removed, which one `stat` a line finds out; rotation needs
//! no signal. Lines that cannot be written to the file go to standard error.

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogLevel, escape_control};
use crate::process::syslog::Syslog;
use crate::system::utc::Utc;

/// Changes the level of the installed log.
#[derive(Clone)]
pub struct LogHandle {
    level: Arc<AtomicU8>,
}

impl LogHandle {
    /// From now on, lines below `level` are dropped.
    pub fn set_level(&self, level: LogLevel) {
        self.level.store(level as u8, Ordering::Relaxed);
        // tracing remembers per call site whether there is a subscriber.
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Installs the log for the whole process; call it once. `file` is empty for standard output, and
/// is created if need be: the error says why it cannot be.
pub(crate) fn install(level: LogLevel, file: &Path, mut syslog: Option<Syslog>) -> io::Result<LogHandle> {
    let sink = match file.as_os_str().is_empty() {
        true if is_journal() => Sink::Journal,
        true => Sink::StandardOutput,
        false => Sink::File(LogFile::open(file)?),
    };
    let silence =
        syslog.as_mut().and_then(|syslog| Some((syslog.connect().err()?, syslog.path().to_string())));
    let lines = Lines::new(level, sink, syslog);
    let handle = LogHandle { level: lines.level.clone() };
    tracing_subscriber::registry().with(lines).try_init().map_err(io::Error::other)?;
    if let Some((error, path)) = silence {
        tracing::warn!("syslog does not listen at {path} ({error}): lines go there from when it does");
    }
    Ok(handle)
}

/// Installs a log for a command that is no server: warnings and errors alone, as plain lines on standard error.
pub fn install_warnings() {
    let lines = Lines::new(LogLevel::Warning, Sink::Plain, None);
    // If there is a log already, it serves as well.
    let _ = tracing_subscriber::registry().with(lines).try_init();
}

enum Sink {
    /// Standard output that goes into systemd's journal, which has process and time by itself and wants the priority in
    /// front (sd-daemon(3)).
    Journal,
    /// Standard error, without process and time.
    Plain,
    StandardOutput,
    File(LogFile),
}

/// Whether standard output is the stream that systemd has opened to its journal.
fn is_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    let own = io::stdout().as_fd().try_clone_to_owned().and_then(|output| File::from(output).metadata());
    own.is_ok_and(|own| named == format!("{}:{}", own.dev(), own.ino()))
}

/// The severity of a level, as syslog(3) and the journal number them.
fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 5,
        Level::DEBUG => 6,
        Level::TRACE => 7,
    }
}

struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        // Absolute, so that a change of `dir` does not move the log.
        let path = std::path::absolute(path)?;
        let file = Self::append_to(&path)?;
        Ok(Self { path, file })
    }

    fn append_to(path: &Path) -> io::Result<File> {
        OpenOptions::new().append(true).create(true).open(path)
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let opened = self.file.metadata()?;
        let is_same = |named: std::fs::Metadata| (named.dev(), named.ino()) == (opened.dev(), opened.ino());
        if !std::fs::metadata(&self.path).is_ok_and(is_same) {
            self.file = Self::append_to(&self.path)?;
        }
        self.file.write_all(line)
    }
}

impl Sink {
    fn write(&mut self, line: &[u8]) {
        let written = match self {
            Self::Plain => io::stderr().lock().write_all(line),
            Self::StandardOutput | Self::Journal => io::stdout().lock().write_all(line),
            Self::File(file) => file.write(line),
        };
        if written.is_err() {
            // Nowhere is left to report a failure of this one.
            let _ = io::stderr().lock().write_all(line);
        }
    }
}

struct Lines {
    level: Arc<AtomicU8>,
    outputs: Mutex<(Sink, Option<Syslog>)>,
}

impl Lines {
    fn new(level: LogLevel, sink: Sink, syslog: Option<Syslog>) -> Self {
        Self { level: Arc::new(AtomicU8::new(level as u8)), outputs: Mutex::new((sink, syslog)) }
    }
}

/// The level of the configuration at which an event is written, and its mark.
fn rank(level: Level) -> (LogLevel, char) {
    match level {
        Level::TRACE => (LogLevel::Debug, '.'),
        Level::DEBUG => (LogLevel::Verbose, '-'),
        Level::INFO => (LogLevel::Notice, '*'),
        _ => (LogLevel::Warning, '#'),
    }
}

/// Whether a line may be written at all. Libraries only warn: what else they say of their work is of no use to an operator, and
/// those for HTTP write all that they send, passwords among it.
fn is_for_operators(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("dunlin") || *metadata.level() <= Level::WARN
}

impl<S: Subscriber> Layer<S> for Lines {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        rank(*metadata.level()).0 as u8 >= self.level.load(Ordering::Relaxed) && is_for_operators(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let level = self.level.load(Ordering::Relaxed);
        let all = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN];
        let first = all.into_iter().find(|shown| rank(*shown).0 as u8 >= level);
        Some(first.map_or(LevelFilter::OFF, LevelFilter::from_level))
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let mut outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
        let (sink, syslog) = &mut *outputs;
        let level = *event.metadata().level();
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let head = match *sink {
            Sink::Plain => "dunlin: ".to_owned(),
            Sink::Journal => format!("<{}>", severity(level)),
            Sink::StandardOutput | Sink::File(_) => head(std::process::id(), now_ms, rank(level).1),
        };
        sink.write(line(head, &text).as_bytes());
        if let Some(syslog) = syslog {
            syslog.send(severity(level), now_ms, line(String::new(), &text).trim_end());
        }
    }
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

fn head(process: u32, now_ms: u64, mark: char) -> String {
    format!("{process}:M {} {mark} ", Utc(now_ms))
}

fn line(head: String, text: &Text) -> String {
    let mut line = head;
    line.extend(text.message.chars().chain(text.fields.chars()).flat_map(escape_control));
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::ScratchDir;

    fn logging_to(path: &Path, level: LogLevel) -> (impl Subscriber, LogHandle) {
        let lines = Lines::new(level, Sink::File(LogFile::open(path).unwrap()), None);
        let handle = LogHandle { level: lines.level.clone() };
        (tracing_subscriber::registry().with(lines), handle)
    }

    /// The lines without process and time.
    fn read(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        let prefix = format!("{}:M ", std::process::id());
        let strip =
            |line: &str| line.strip_prefix(&prefix).and_then(|rest| rest.get(25..)).map(str::to_owned);
        text.lines().map(|line| strip(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }

    #[test]
    fn libraries_only_warn() {
        let dir = ScratchDir::new("libraries");
        let path = dir.path("a.log");
        let (subscriber, _handle) = logging_to(&path, LogLevel::Debug);
        tracing::subscriber::with_default(subscriber, || {
            tracing::trace!(target: "ureq_proto::util", "authorization: secret");
            // Lines of the crate `log` have this target.
            tracing::info!(target: "log", "secret");
            tracing::warn!(target: "log", "careful");
            tracing::trace!("ours");
        });
        assert_eq!(read(&path), ["# careful", ". ours"]);
    }

    #[test]
    fn log_level_decides_and_can_change() {
        let dir = ScratchDir::new("log");
        let path = dir.path("a.log");
        let (subscriber, handle) = logging_to(&path, LogLevel::Notice);
        tracing::subscriber::with_default(subscriber, || {
            for level in [LogLevel::Notice, LogLevel::Debug, LogLevel::Warning, LogLevel::Nothing] {
                handle.set_level(level);
                tracing::error!("{level} error");
                tracing::warn!("{level} warn");
                tracing::info!(clients = 3, "{level} info");
                tracing::debug!("{level} debug");
                tracing::trace!("{level} trace\nforged");
            }
        });
        assert_eq!(
            read(&path),
            [
                "# notice error",
                "# notice warn",
                "* notice info clients=3",
                "# debug error",
                "# debug warn",
                "* debug info clients=3",
                "- debug debug",
                ". debug trace\\nforged",
                "# warning error",
                "# warning warn",
            ]
        );
    }

    #[test]
    fn log_file_moved_away_is_opened_again() {
        let dir = ScratchDir::new("rotate");
        let path = dir.path("a.log");
        let (subscriber, _) = logging_to(&path, LogLevel::Notice);
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!("one");
            std::fs::rename(&path, dir.path("a.log.1")).unwrap();
            tracing::info!("two");
            std::fs::remove_file(&path).unwrap();
            tracing::info!("three");
        });
        assert_eq!(read(&dir.path("a.log.1")), ["* one"]);
        assert_eq!(read(&path), ["* three"]);
    }
}
