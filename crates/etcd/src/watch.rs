//! A watch: an answer that does not end, one line of JSON for each revision or some of them.
//!
//! The stream is opened when it is needed and kept for as long as changes come. A wait without a change ends it, and the next
//! one opens another after the last revision that was seen: a dead etcd is noticed within one wait, and nothing is missed.

use std::{
    io::{self, BufRead, BufReader, Read},
    time::Duration,
};

use dunlin_cluster::meta::{Change, MetaError, Revision, Watch};
use ureq::BodyReader;

use crate::{
    gateway::{ANSWER_BYTES_MAX, Failure, Gateway},
    json::{WatchLine, WatchRequest},
};

pub(crate) struct EtcdWatch {
    gateway: Gateway,
    prefix: String,
    after: Revision,
    stream: Option<BufReader<BodyReader<'static>>>,
}

impl EtcdWatch {
    pub(crate) fn new(gateway: Gateway, prefix: &str, after: Revision) -> Self {
        Self { gateway, prefix: prefix.to_owned(), after, stream: None }
    }

    /// Reads one line. `None`: the time is over.
    fn line(&mut self, wait_ms: u64) -> Result<Option<WatchLine>, MetaError> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let request = WatchRequest::new(&self.prefix, self.after);
                let wait = Some(Duration::from_millis(wait_ms.max(1)));
                let body =
                    self.gateway.call("/v3/watch", &request, None, wait).map_err(
                        |failure| match failure {
                            Failure::NotDone(error) => error,
                            Failure::Unknown(why) => MetaError::Unavailable(why),
                        },
                    )?;
                none.insert(BufReader::new(body.into_with_config().limit(u64::MAX).reader()))
            }
        };
        let mut line = Vec::new();
        match stream.by_ref().take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => {}
            Ok(0) => return Err(MetaError::Unavailable("etcd has closed the watch".to_owned())),
            Ok(_) => return Err(MetaError::Protocol("a line of a watch is cut off or too long".to_owned())),
            Err(error) if is_timeout(&error) => return Ok(None),
            Err(error) => return Err(MetaError::Unavailable(error.to_string())),
        }
        let line = serde_json::from_slice(&line).map_err(|error| MetaError::Protocol(error.to_string()))?;
        Ok(Some(line))
    }
}

fn is_timeout(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
        || matches!(inner, Some(ureq::Error::Timeout(_)))
}

impl Watch for EtcdWatch {
    fn next(&mut self, wait_ms: u64) -> Result<Vec<Change>, MetaError> {
        // The first line of a stream says that it has begun, so a second one is read.
        loop {
            let changes = match self.line(wait_ms) {
                Ok(Some(line)) => line.into_changes(),
                Ok(None) => {
                    self.stream = None;
                    return Ok(Vec::new());
                }
                Err(error) => Err(error),
            };
            let changes = changes.inspect_err(|_| self.stream = None)?;
            if let Some(last) = changes.last() {
                self.after = last.revision;
                return Ok(changes);
            }
        }
    }
}
