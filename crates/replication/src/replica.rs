//! A replica's end of the link.
//!
//! ```text
//! Idle ─▶ Connecting ─▶ Greeting (PING) ─▶ Introducing (AUTH, REPLCONF …) ─▶ Asking (PSYNC)
//!   ▲                                                                  +CONTINUE │ │ +FULLRESYNC
//!   │                                                       Streaming ◀──────────┘ ▼
//!   │                                                           ▲              Announced ($…)
//!   └─ any failure, in any state                                └── Loading ◀── Receiving
//! ```
//!
//! While the state is [`LinkState::Connected`] the bytes are the stream's: the caller parses it
//! ([`crate::StreamReader`]), applies it and says how far it is ([`Event::Applied`]).

use std::{collections::VecDeque, ops::Range};

use crate::{
    Framing, Id, SnapshotReader,
    peer::acknowledgement,
    request,
    wire::{line, number},
};

/// Between two attempts to connect.
const RETRY_MS: u64 = 1000;
/// Between two acknowledgements, and between two signs of life while loading.
const ACKNOWLEDGE_MS: u64 = 1000;
/// A reply of the handshake is shorter than this.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The version of Valkey whose snapshots, and with them the expiry of hash fields, are understood.
const VALKEY_VERSION: &[u8] = b"9.1.0";

/// Settings of a link.
#[derive(Debug, Clone, Default)]
pub struct ReplicaOptions {
    /// `masteruser`.
    pub user: Vec<u8>,
    /// `masterauth`; empty for none.
    pub password: Vec<u8>,
    /// The port that the primary is to show.
    pub port: u16,
    /// `replica-announce-ip`; empty for none.
    pub announce_ip: String,
    /// `repl-timeout`.
    pub timeout_ms: u64,
    /// The server is a node of a cluster, which takes what its shard has not committed, too.
    pub is_node: bool,
}

/// An input of the state machine.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// Time has passed.
    Tick,
    /// The connection has been made.
    Connected,
    /// The connection was closed, or could not be made.
    Closed(&'a str),
    /// Bytes have come.
    Received(&'a [u8]),
    /// The snapshot that was announced is loaded. The stream goes on.
    Loaded,
    /// The stream has been applied up to this offset.
    Applied(u64),
    /// The primary asks for an acknowledgement.
    AckWanted,
}

/// An output of the state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Connect to the primary.
    Connect,
    /// Send these bytes.
    Send(Vec<u8>),
    /// Close the connection: the reason, for the operator.
    Close(String),
    /// Something that the operator should know.
    Warn(String),
    /// A snapshot comes; once it is complete, the history is this one.
    BeginSnapshot {
        /// The history's id.
        id: Id,
        /// The stream's offset at the snapshot.
        offset: u64,
        /// How it comes.
        framing: Framing,
    },
    /// Bytes of the snapshot: these, and a part of those that have just come.
    Snapshot {
        /// The first ones.
        held: Vec<u8>,
        /// Place of the others among the bytes received.
        range: Range<usize>,
    },
    /// Bytes of the stream, which are to be applied once the snapshot is loaded: a part of those that have just come.
    Stream(Range<usize>),
    /// The snapshot is complete. [`Event::Loaded`] is to follow.
    EndSnapshot,
    /// The stream goes on where it was, under this id.
    Continue(Id),
    /// The replica that was asked to take over does so, or refuses.
    HandedOver(bool),
}

/// The state of a link, as ROLE and INFO name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// The link is to be made.
    Connect,
    /// The link is being made.
    Connecting,
    /// Both sides introduce themselves.
    Handshake,
    /// A snapshot comes or is loaded.
    Sync,
    /// The stream comes.
    Connected,
}

impl LinkState {
    /// Returns its name in ROLE.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Connecting => "connecting",
            Self::Handshake => "handshake",
            Self::Sync => "sync",
            Self::Connected => "connected",
        }
    }
}

#[derive(Debug)]
enum State {
    Idle {
        retry_at_ms: u64,
    },
    Connecting,
    Greeting,
    /// Requests that are not answered yet.
    Introducing(VecDeque<&'static str>),
    Asking,
    Announced {
        id: Id,
        offset: u64,
    },
    Receiving {
        id: Id,
        offset: u64,
        reader: SnapshotReader,
    },
    Loading {
        id: Id,
        offset: u64,
    },
    Streaming,
}

/// The machine.
#[derive(Debug)]
pub struct Replica {
    /// Settings of the link; a change counts from the next connection on.
    pub options: ReplicaOptions,
    state: State,
    /// The history that the data set has, and how far. Invariant: `None` from the moment at which a snapshot
    /// begins to replace the data set until it is loaded.
    position: Option<(Id, u64)>,
    /// Bytes of the stream that are on disk here, if there is a log.
    pub fsynced: Option<u64>,
    /// The other end is a replica that is asked to take over: `PSYNC … FAILOVER`. Ends with its answer.
    pub hands_over: bool,
    /// The only history whose copy may replace the data set. `None`: any, as the operator has named the primary.
    pub copy_of: Option<Id>,
    heard_ms: u64,
    acknowledged_ms: u64,
    /// The time since which the stream does not come.
    down_since_ms: u64,
    input: Vec<u8>,
}

impl Replica {
    /// A replica that has a history already, or none.
    pub fn new(options: ReplicaOptions, position: Option<(Id, u64)>, now_ms: u64) -> Self {
        Self {
            options,
            state: State::Idle { retry_at_ms: now_ms },
            position,
            fsynced: None,
            hands_over: false,
            copy_of: None,
            heard_ms: now_ms,
            acknowledged_ms: now_ms,
            down_since_ms: now_ms,
            input: Vec::new(),
        }
    }

    /// Returns the state of the link.
    pub fn link(&self) -> LinkState {
        match &self.state {
            State::Idle { .. } => LinkState::Connect,
            State::Connecting => LinkState::Connecting,
            State::Greeting | State::Introducing(_) | State::Asking => LinkState::Handshake,
            State::Announced { .. } | State::Receiving { .. } | State::Loading { .. } => LinkState::Sync,
            State::Streaming => LinkState::Connected,
        }
    }

    /// The history of the data set and the bytes of it that were applied; `None` while there is none.
    pub fn position(&self) -> Option<(Id, u64)> {
        self.position
    }

    /// Forgets the history: the data set is no longer the primary's.
    pub fn forget_position(&mut self) {
        self.position = None;
    }

    /// When the primary was heard of last.
    pub fn heard_ms(&self) -> u64 {
        self.heard_ms
    }

    /// The time since which the stream does not come; `None` while it does.
    pub fn down_since_ms(&self) -> Option<u64> {
        (self.link() != LinkState::Connected).then_some(self.down_since_ms)
    }

    /// Bytes of the snapshot that have come, and in all if that is known.
    pub fn snapshot_progress(&self) -> Option<(u64, Option<u64>)> {
        match &self.state {
            State::Receiving { reader, .. } => Some((reader.read(), reader.total())),
            _ => None,
        }
    }

    /// Takes an event and puts the resulting actions behind `actions`. Returns how many of the bytes that came
    /// were taken: the others are the stream's.
    pub fn step(&mut self, now_ms: u64, event: Event<'_>, actions: &mut Vec<Action>) -> usize {
        match event {
            Event::Tick => self.tick(now_ms, actions),
            Event::Connected => {
                if let State::Connecting = self.state {
                    self.heard_ms = now_ms;
                    self.state = State::Greeting;
                    actions.push(Action::Send(request(&[b"PING"])));
                }
            }
            Event::Closed(_) => self.go_idle(now_ms),
            Event::Received(bytes) => {
                self.heard_ms = now_ms;
                return self.receive(now_ms, bytes, actions);
            }
            Event::Loaded => {
                if let State::Loading { id, offset } = self.state {
                    self.position = Some((id, offset));
                    self.state = State::Streaming;
                    // At once: behind the EOF form nothing comes before it.
                    self.acknowledge(now_ms, actions);
                }
            }
            Event::Applied(offset) => {
                if let (State::Streaming, Some((_, applied))) = (&self.state, &mut self.position) {
                    debug_assert!(offset >= *applied);
                    *applied = offset;
                }
            }
            Event::AckWanted => self.acknowledge(now_ms, actions),
        }
        0
    }

    fn go_idle(&mut self, now_ms: u64) {
        if let State::Streaming = self.state {
            self.down_since_ms = now_ms;
        }
        self.input.clear();
        self.state = State::Idle { retry_at_ms: now_ms + RETRY_MS };
    }

    fn close(&mut self, now_ms: u64, reason: impl Into<String>, actions: &mut Vec<Action>) {
        self.go_idle(now_ms);
        actions.push(Action::Close(reason.into()));
    }

    fn acknowledge(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        if let (State::Streaming, Some((_, offset))) = (&self.state, self.position) {
            self.acknowledged_ms = now_ms;
            let fsynced = self.fsynced.map(|fsynced| fsynced.min(offset));
            actions.push(Action::Send(acknowledgement(offset, fsynced)));
        }
    }

    fn tick(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        match &self.state {
            State::Idle { retry_at_ms } if now_ms >= *retry_at_ms => {
                (self.state, self.heard_ms) = (State::Connecting, now_ms);
                actions.push(Action::Connect);
            }
            State::Idle { .. } => {}
            // Nothing is expected meanwhile, but the primary wants to hear something.
            State::Loading { .. } => {
                self.heard_ms = now_ms;
                if now_ms.saturating_sub(self.acknowledged_ms) >= ACKNOWLEDGE_MS {
                    self.acknowledged_ms = now_ms;
                    actions.push(Action::Send(b"\n".to_vec()));
                }
            }
            _ if now_ms.saturating_sub(self.heard_ms) > self.options.timeout_ms => {
                self.close(now_ms, "the primary has been silent for repl-timeout", actions);
            }
            State::Streaming if now_ms.saturating_sub(self.acknowledged_ms) >= ACKNOWLEDGE_MS => {
                self.acknowledge(now_ms, actions);
            }
            _ => {}
        }
    }

    fn receive(&mut self, now_ms: u64, bytes: &[u8], actions: &mut Vec<Action>) -> usize {
        let mut taken = 0;
        loop {
            let rest = &bytes[taken..];
            match &mut self.state {
                State::Idle { .. } | State::Connecting => return bytes.len(),
                State::Streaming => return taken,
                // Bytes after the snapshot belong to the stream, which waits.
                State::Loading { .. } => return taken,
                _ if rest.is_empty() => return taken,
                State::Receiving { id, offset, reader } => {
                    let Some(part) = reader.take(rest) else {
                        self.close(now_ms, "the primary's frames make no sense", actions);
                        return bytes.len();
                    };
                    let range = taken + part.range.start..taken + part.range.end;
                    taken += part.taken;
                    match part.is_stream {
                        true => actions.push(Action::Stream(range)),
                        false if part.held.is_empty() && range.is_empty() => {}
                        false => actions.push(Action::Snapshot { held: part.held, range }),
                    }
                    if part.is_complete {
                        self.state = State::Loading { id: *id, offset: *offset };
                        self.acknowledged_ms = now_ms;
                        actions.push(Action::EndSnapshot);
                    }
                }
                _ => {
                    let before = self.input.len();
                    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                        if before + rest.len() > LINE_BYTES_MAX {
                            self.close(now_ms, "the primary's reply is too long", actions);
                        } else {
                            self.input.extend_from_slice(rest);
                        }
                        return bytes.len();
                    };
                    let mut whole = std::mem::take(&mut self.input);
                    whole.extend_from_slice(&rest[..=end]);
                    taken += end + 1;
                    let (text, _) = line(&whole).expect("its end was found");
                    // A primary that is busy with a snapshot sends empty lines.
                    if !text.is_empty() {
                        self.reply(now_ms, text, actions);
                    }
                }
            }
        }
    }

    /// Takes a line of the primary's.
    fn reply(&mut self, now_ms: u64, text: &[u8], actions: &mut Vec<Action>) {
        let shown = || text.escape_ascii().to_string();
        match &mut self.state {
            State::Greeting => {
                let is_fine = text.starts_with(b"+")
                    || text.starts_with(b"-NOAUTH")
                    || text.starts_with(b"-NOPERM")
                    // Its disk fails, but a replica is how to save what it has.
                    || text.starts_with(b"-MISCONF")
                    || text.starts_with(b"-ERR operation not permitted");
                match is_fine {
                    true => self.introduce(actions),
                    false => {
                        self.close(now_ms, format!("the primary answers PING with {}", shown()), actions)
                    }
                }
            }
            State::Introducing(awaited) => {
                let request = awaited.pop_front();
                let is_last = awaited.is_empty();
                if text.starts_with(b"-") {
                    match request {
                        Some("AUTH") => {
                            let reason = format!("the primary refuses masterauth: {}", shown());
                            return self.close(now_ms, reason, actions);
                        }
                        // Not every primary knows all of them.
                        Some("REPLCONF version") | None => {}
                        Some(request) => {
                            actions.push(Action::Warn(format!(
                                "the primary answers {request} with {}",
                                shown()
                            )));
                        }
                    }
                }
                if is_last {
                    self.ask(actions);
                }
            }
            State::Asking => self.decide(now_ms, text, actions),
            State::Announced { id, offset } => {
                let (id, offset) = (*id, *offset);
                match Framing::parse(text) {
                    Some(framing) => {
                        self.position = None;
                        let reader = SnapshotReader::new(framing);
                        self.state = State::Receiving { id, offset, reader };
                        actions.push(Action::BeginSnapshot { id, offset, framing });
                    }
                    None => {
                        let reason = format!("the primary sends no snapshot but {}", shown());
                        self.close(now_ms, reason, actions);
                    }
                }
            }
            _ => unreachable!("no line is expected in this state"),
        }
    }

    fn introduce(&mut self, actions: &mut Vec<Action>) {
        let options = &self.options;
        let (mut out, mut awaited) = (Vec::new(), VecDeque::new());
        let mut say = |what: &'static str, words: &[&[u8]]| {
            crate::command(&mut out, words);
            awaited.push_back(what);
        };
        if !options.password.is_empty() {
            match options.user.is_empty() {
                true => say("AUTH", &[b"AUTH", &options.password]),
                false => say("AUTH", &[b"AUTH", &options.user, &options.password]),
            }
        }
        let port = options.port.to_string();
        say("REPLCONF listening-port", &[b"REPLCONF", b"listening-port", port.as_bytes()]);
        if !options.announce_ip.is_empty() {
            say("REPLCONF ip-address", &[b"REPLCONF", b"ip-address", options.announce_ip.as_bytes()]);
        }
        say(
            "REPLCONF capa",
            &[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2", b"capa", b"dunlin", b"capa", b"frames"],
        );
        if options.is_node {
            say("REPLCONF capa", &[b"REPLCONF", b"capa", b"node"]);
        }
        say("REPLCONF version", &[b"REPLCONF", b"version", VALKEY_VERSION]);
        self.state = State::Introducing(awaited);
        actions.push(Action::Send(out));
    }

    fn ask(&mut self, actions: &mut Vec<Action>) {
        let (id, offset) = match &self.position {
            Some((id, offset)) => (id.as_str(), (offset + 1).to_string()),
            None => ("?", "-1".to_owned()),
        };
        let mut words: Vec<&[u8]> = vec![b"PSYNC", id.as_bytes(), offset.as_bytes()];
        if self.hands_over {
            words.push(b"FAILOVER");
        }
        let words = request(&words);
        self.state = State::Asking;
        actions.push(Action::Send(words));
    }

    /// Takes the reply to PSYNC.
    fn decide(&mut self, now_ms: u64, text: &[u8], actions: &mut Vec<Action>) {
        let mut words = text.split(|byte| *byte == b' ');
        let (reply, first, second) = (words.next().unwrap_or_default(), words.next(), words.next());
        if std::mem::take(&mut self.hands_over) {
            actions.push(Action::HandedOver(matches!(reply, b"+CONTINUE" | b"+FULLRESYNC")));
        }
        match (reply, self.position) {
            (b"+FULLRESYNC", _) => {
                let (id, offset) = (first.and_then(Id::parse), second.and_then(number));
                match (id, offset) {
                    (Some(id), Some(_)) if self.copy_of.is_some_and(|wanted| wanted != id) => {
                        let reason = "another history is offered than the shard's: it is another server, or not the primary yet";
                        self.close(now_ms, reason, actions);
                    }
                    (Some(id), Some(offset)) => self.state = State::Announced { id, offset },
                    _ => self.close(now_ms, "the primary's id or offset makes no sense", actions),
                }
            }
            (b"+CONTINUE", Some((id, offset))) => {
                let id = first.and_then(Id::parse).unwrap_or(id);
                self.position = Some((id, offset));
                self.state = State::Streaming;
                self.acknowledged_ms = now_ms;
                actions.push(Action::Continue(id));
                self.acknowledge(now_ms, actions);
            }
            _ => {
                let reason = format!("the primary answers PSYNC with {}", text.escape_ascii());
                self.close(now_ms, reason, actions);
            }
        }
    }
}
