//! The thread that asks the server, so that the screen never waits for it.
//!
//! A lost server is tried again at each interval. The thread ends when the screen has.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use dunlin_bench::target::{Client, Target, TargetError};

use super::{look::Look, table::Page};
use crate::server::put;

/// How long an answer may take before the connection is given up.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The session of HOTKEYS that a key starts.
const HOT_KEYS: [&str; 9] = ["HOTKEYS", "START", "METRICS", "2", "CPU", "NET", "COUNT", "64", "DURATION"];
const HOT_KEYS_SECONDS: &str = "60";

/// A request of the screen.
#[derive(Debug, Clone, Copy)]
pub(super) enum Request {
    Page(Page),
    Interval(Duration),
    StartHotKeys,
}

/// News from the thread.
#[derive(Debug)]
pub(super) enum Heard {
    Look(Box<Look>),
    Lost(String),
    /// A sentence about a request.
    Said(String),
}

/// Starts the thread on a connection that is open.
pub(super) fn start(
    target: Target,
    client: Client,
    page: Page,
    interval: Duration,
) -> (Sender<Request>, Receiver<Heard>) {
    let (requests, asked) = channel();
    let (heard, hear) = channel();
    let mut watch = Watch { target, client: Some(client), page, interval };
    // The process ends whether or not the thread waits for an answer.
    thread::spawn(move || watch.run(&asked, &heard));
    (requests, hear)
}

struct Watch {
    target: Target,
    client: Option<Client>,
    page: Page,
    interval: Duration,
}

impl Watch {
    fn run(&mut self, asked: &Receiver<Request>, heard: &Sender<Heard>) {
        let mut starts_hot_keys = false;
        // The first look was taken before.
        let mut due = Instant::now() + self.interval;
        loop {
            match asked.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(Request::Page(page)) => self.page = page,
                Ok(Request::Interval(interval)) => self.interval = interval,
                Ok(Request::StartHotKeys) => starts_hot_keys = true,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            due = Instant::now() + self.interval;
            for heard_now in self.turn(std::mem::take(&mut starts_hot_keys)) {
                if heard.send(heard_now).is_err() {
                    return;
                }
            }
        }
    }

    /// Connects if that is needed, does what was asked for, and looks at the server.
    fn turn(&mut self, starts_hot_keys: bool) -> Vec<Heard> {
        let mut heard = Vec::new();
        let done = self.connected().and_then(|(client, page)| {
            if starts_hot_keys {
                let words: Vec<&str> = HOT_KEYS.into_iter().chain([HOT_KEYS_SECONDS]).collect();
                heard.push(Heard::Said(match put(client, &words)? {
                    Ok(_) => "HOTKEYS counts for a minute.".to_owned(),
                    Err(reason) => reason,
                }));
            }
            Look::take(client, &[page])
        });
        heard.push(match done {
            Ok(look) => Heard::Look(Box::new(look)),
            Err(error) => {
                self.client = None;
                Heard::Lost(describe(&error))
            }
        });
        heard
    }

    fn connected(&mut self) -> Result<(&mut Client, Page), TargetError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => open(&self.target)?,
        };
        Ok((self.client.insert(client), self.page))
    }
}

/// Opens a connection that does not wait forever.
pub(super) fn open(target: &Target) -> Result<Client, TargetError> {
    let mut client = target.client()?;
    client.set_timeout(ANSWER_TIMEOUT)?;
    Ok(client)
}

/// `connection refused`: the address stands beside it.
pub(super) fn describe(error: &TargetError) -> String {
    match error {
        TargetError::Connect { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}
