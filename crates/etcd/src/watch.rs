//! A watch: an answer that does not end, one line of JSON for each revision or some of them.
//!
//! ```text
//! etcd ─▶ stream ─▶ thread `etcd-watch` ─▶ lines, a few at most ─▶ next(): waits for as long as its caller likes
//! ```
//!
//! The stream is opened when it is needed, and again behind the last revision that was seen when it has ended or was silent for
//! [`SILENCE`]: nothing is missed. An etcd that is stopped is found out by its callers' other requests, which have timeouts.

use std::{
    io::{self, BufRead, BufReader, Read},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use dunlin_cluster::meta::{Change, MetaError, Revision, Watch};
use ureq::BodyReader;

use crate::{
    gateway::{ANSWER_BYTES_MAX, Failure, Gateway},
    json::{WatchLine, WatchRequest},
};

/// How long a stream may be silent before another one is opened, and how long the thread of a watch that was given up may live.
const SILENCE: Duration = Duration::from_secs(20);
/// Lines that wait for the caller at most.
const LINES_MAX: usize = 4;

/// A line, or how the stream has ended: `None` for silence.
type Line = Result<WatchLine, Option<MetaError>>;

pub(crate) struct EtcdWatch {
    gateway: Gateway,
    prefix: String,
    after: Revision,
    lines: Option<Receiver<Line>>,
}

impl EtcdWatch {
    pub(crate) fn new(gateway: Gateway, prefix: &str, after: Revision) -> Self {
        Self { gateway, prefix: prefix.to_owned(), after, lines: None }
    }

    /// Opens a stream, and starts the thread that reads it.
    fn open(&self) -> Result<Receiver<Line>, MetaError> {
        let request = WatchRequest::new(&self.prefix, self.after);
        let body = self.gateway.call("/v3/watch", &request, None, Some(SILENCE));
        let body = body.map_err(|failure| match failure {
            Failure::NotDone(error) => error,
            Failure::Unknown(why) => MetaError::Unavailable(why),
        })?;
        let stream = BufReader::new(body.into_with_config().limit(u64::MAX).reader());
        let (sender, lines) = sync_channel(LINES_MAX);
        thread::Builder::new()
            .name("etcd-watch".to_owned())
            .spawn(move || read_all(stream, &sender))
            .map_err(|error| MetaError::Unavailable(format!("cannot start a thread: {error}")))?;
        Ok(lines)
    }

    /// Waits for a line. `None`: the time is over.
    fn line(&mut self, until: Instant) -> Result<Option<WatchLine>, MetaError> {
        loop {
            if self.lines.is_none() {
                self.lines = Some(self.open()?);
            }
            let Some(lines) = &self.lines else { continue };
            match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Ok(line)) => return Ok(Some(line)),
                Ok(Err(Some(error))) => return Err(error),
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Ok(Err(None)) | Err(RecvTimeoutError::Disconnected) => self.lines = None,
            }
        }
    }
}

/// Reads lines until the stream ends, or their receiver is gone.
fn read_all(mut stream: BufReader<BodyReader<'static>>, lines: &SyncSender<Line>) {
    loop {
        let line = read_line(&mut stream);
        let is_last = line.is_err();
        if lines.send(line).is_err() || is_last {
            return;
        }
    }
}

fn read_line(stream: &mut BufReader<BodyReader<'static>>) -> Line {
    let mut line = Vec::new();
    match stream.by_ref().take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line) {
        Ok(_) if line.ends_with(b"\n") => {}
        Ok(0) => return Err(Some(MetaError::Unavailable("etcd has closed the watch".to_owned()))),
        Ok(_) => {
            return Err(Some(MetaError::Protocol("a line of a watch is cut off or too long".to_owned())));
        }
        Err(error) if is_timeout(&error) => return Err(None),
        Err(error) => return Err(Some(MetaError::Unavailable(error.to_string()))),
    }
    serde_json::from_slice(&line).map_err(|error| Some(MetaError::Protocol(error.to_string())))
}

fn is_timeout(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
        || matches!(inner, Some(ureq::Error::Timeout(_)))
}

impl Watch for EtcdWatch {
    fn next(&mut self, wait_ms: u64) -> Result<Vec<Change>, MetaError> {
        let until = Instant::now() + Duration::from_millis(wait_ms.max(1));
        // The first line of a stream says that it has begun, so a second one is read.
        loop {
            let changes = match self.line(until) {
                Ok(Some(line)) => line.into_changes(),
                Ok(None) => return Ok(Vec::new()),
                Err(error) => Err(error),
            };
            let changes = changes.inspect_err(|_| self.lines = None)?;
            if let Some(last) = changes.last() {
                self.after = last.revision;
                return Ok(changes);
            }
        }
    }
}
