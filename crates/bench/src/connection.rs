//! A connection under load.
//!
//! ```text
//! claimed → rendered → written → replied
//!          └ planned ┘└─ awaited (a run-length queue of send times) ─┘
//! ```
//!
//! Requests go from the thread's shared buffer straight to the socket. Only bytes that the socket did
//! not take are copied, so memory follows the bytes that are stuck, not connections × pipeline.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};

use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use crate::latency::Latencies;
use crate::load::{LoadError, Outcome};
use crate::skim::{Skimmer, Tally};
use crate::target::{Stream, Target, TargetError, encode};
use crate::template::RequestBuffer;
use crate::tls::TlsStream;

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Tls(stream) => read_whole(stream, buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn source(&mut self) -> &mut dyn mio::event::Source {
        match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream.socket_mut(),
            Self::Unix(stream) => stream,
        }
    }

    /// Sends taken bytes that are not sent yet, as far as the socket takes them; returns whether some
    /// are left.
    fn push(&mut self) -> io::Result<bool> {
        let Self::Tls(stream) = self else { return Ok(false) };
        match stream.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(stream.has_unsent()),
        }
    }
}

/// Fills the buffer as far as the socket's bytes go: as with plain sockets, a short read has emptied it.
fn read_whole(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    loop {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(filled),
            Ok(length) => filled += length,
            Err(error) if filled > 0 && error.kind() == ErrorKind::WouldBlock => return Ok(filled),
            Err(error) => return Err(error),
        }
    }
}

/// Requests that share a send time.
#[derive(Debug)]
struct Sent {
    at_ns: u64,
    count: u64,
}

/// A connection, its requests under way and its place in the stream of replies.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    skimmer: Skimmer,
    /// Start of a header line whose end has not arrived.
    tail: Vec<u8>,
    /// Bytes that the socket did not take; the first `unsent_at` of them are gone.
    unsent: Vec<u8>,
    unsent_at: usize,
    awaits_writable: bool,
    /// Requests claimed but not yet rendered, and the number of the first.
    planned: u64,
    planned_first: u64,
    sent: VecDeque<Sent>,
    /// Requests without a reply, planned ones included.
    awaited: u64,
    /// Replies to the introduction that are still to come.
    introductions: u64,
}

impl Connection {
    /// Connects; the introduction goes out ahead of the first request.
    pub fn open(target: &Target) -> Result<Self, TargetError> {
        let failed = |source| TargetError::Io { source };
        let socket = match target.connect()? {
            Stream::Tcp(stream) => {
                stream.set_nonblocking(true).map_err(failed)?;
                Socket::Tcp(TcpStream::from_std(stream))
            }
            Stream::Tls(stream) => {
                stream.socket().set_nonblocking(true).map_err(failed)?;
                Socket::Tls(Box::new(stream.map(TcpStream::from_std)))
            }
            Stream::Unix(stream) => {
                stream.set_nonblocking(true).map_err(failed)?;
                Socket::Unix(UnixStream::from_std(stream))
            }
        };
        let introduction = target.introduction();
        let mut unsent = Vec::new();
        introduction.iter().for_each(|command| encode(command, &mut unsent));
        Ok(Self {
            socket,
            skimmer: Skimmer::default(),
            tail: Vec::new(),
            unsent,
            unsent_at: 0,
            awaits_writable: false,
            planned: 0,
            planned_first: 0,
            sent: VecDeque::new(),
            awaited: 0,
            introductions: introduction.len() as u64,
        })
    }

    /// Registers with a poller.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.socket.source(), token, Interest::READABLE)
    }

    /// Requests without a reply.
    pub fn awaited(&self) -> u64 {
        self.awaited
    }

    /// Plans `count` requests, the first of them with number `first`. All earlier ones must have been
    /// rendered or be numbered directly before.
    pub fn plan(&mut self, first: u64, count: u64, at_ns: u64) {
        if self.planned == 0 {
            self.planned_first = first;
        }
        self.planned += count;
        self.awaited += count;
        match self.sent.back_mut() {
            Some(last) if last.at_ns == at_ns => last.count += count,
            _ => self.sent.push_back(Sent { at_ns, count }),
        }
    }

    /// Writes until everything planned is sent or the socket is full.
    pub fn flush(
        &mut self,
        buffer: &mut RequestBuffer,
        registry: &Registry,
        token: Token,
    ) -> Result<(), LoadError> {
        loop {
            while self.unsent_at < self.unsent.len() {
                match write(&mut self.socket, &self.unsent[self.unsent_at..])? {
                    0 => return self.await_writable(true, registry, token),
                    written => self.unsent_at += written,
                }
            }
            self.unsent.clear();
            self.unsent_at = 0;
            if self.planned == 0 {
                let is_left = self.socket.push().map_err(|source| TargetError::Io { source })?;
                return self.await_writable(is_left, registry, token);
            }
            let count = self.planned.min(buffer.requests_max() as u64);
            let bytes = buffer.fresh(count as usize, self.planned_first);
            self.planned -= count;
            self.planned_first += count;
            let written = write(&mut self.socket, bytes)?;
            self.unsent.extend_from_slice(&bytes[written..]);
        }
    }

    fn await_writable(&mut self, wanted: bool, registry: &Registry, token: Token) -> Result<(), LoadError> {
        if self.awaits_writable != wanted {
            self.awaits_writable = wanted;
            let interest = if wanted { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            registry.reregister(self.socket.source(), token, interest).map_err(LoadError::Setup)?;
        }
        Ok(())
    }

    /// Reads and counts the replies that have arrived. `scratch` is the thread's read buffer; `now`
    /// returns the time since the start of the run, asked once after each read. Returns how many requests
    /// were answered.
    pub fn receive(
        &mut self,
        scratch: &mut [u8],
        read_closed: bool,
        now: impl Fn() -> u64,
        outcome: &mut Outcome,
        mut on_error: impl FnMut(&[u8]),
    ) -> Result<u64, LoadError> {
        let mut answered = 0;
        loop {
            let kept = self.tail.len();
            scratch[..kept].copy_from_slice(&self.tail);
            let length = match self.socket.read(&mut scratch[kept..]) {
                Ok(0) => return Err(TargetError::Closed.into()),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(answered),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(source) => return Err(TargetError::Io { source }.into()),
            };
            let input = &scratch[..kept + length];
            answered += self.count(input, now(), outcome, &mut on_error)?;
            // A short read emptied the socket. Only if the peer has closed, its end comes next.
            if kept + length < scratch.len() && !read_closed {
                return Ok(answered);
            }
        }
    }

    fn count(
        &mut self,
        input: &[u8],
        now_ns: u64,
        outcome: &mut Outcome,
        on_error: &mut impl FnMut(&[u8]),
    ) -> Result<u64, LoadError> {
        let mut used = 0;
        if self.introductions > 0 {
            let (mut tally, mut refusal) = (Tally::default(), None);
            used = self.skimmer.skim(input, self.introductions, &mut tally, |text| {
                refusal.get_or_insert_with(|| String::from_utf8_lossy(text).into_owned());
            })?;
            self.introductions -= tally.replies;
            if let Some(text) = refusal {
                return Err(TargetError::Refused { command: "a connection".into(), text }.into());
            }
        }
        let before = outcome.tally.replies;
        if self.introductions == 0 {
            let Outcome { tally, .. } = outcome;
            used += self.skimmer.skim(&input[used..], u64::MAX, tally, on_error)?;
        }
        self.tail.clear();
        self.tail.extend_from_slice(&input[used..]);
        let answered = outcome.tally.replies - before;
        self.settle(answered, now_ns, &mut outcome.latencies)?;
        Ok(answered)
    }

    /// Takes `answered` requests off the queue of send times.
    fn settle(&mut self, answered: u64, now_ns: u64, latencies: &mut Latencies) -> Result<(), LoadError> {
        if answered > self.awaited - self.planned {
            return Err(LoadError::Unasked);
        }
        self.awaited -= answered;
        let mut left = answered;
        while left > 0 {
            let front = self.sent.front_mut().ok_or(LoadError::Unasked)?;
            let count = left.min(front.count);
            latencies.record(now_ns.saturating_sub(front.at_ns), count);
            left -= count;
            front.count -= count;
            if front.count == 0 {
                self.sent.pop_front();
            }
        }
        Ok(())
    }
}

/// Bytes taken by the socket; 0 when it takes none.
fn write(socket: &mut Socket, bytes: &[u8]) -> Result<usize, LoadError> {
    loop {
        match socket.write(bytes) {
            Ok(written) => return Ok(written),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(source) => return Err(TargetError::Io { source }.into()),
        }
    }
}
