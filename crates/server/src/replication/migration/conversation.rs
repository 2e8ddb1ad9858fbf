//! The conversation with the target of a MIGRATE: one connection, requests in a row, then their replies.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    sync::Arc,
    time::{Duration, Instant},
};

use dunlin_engine::Worker;
use dunlin_net::{Now, Stream};
use dunlin_resp::SharedSlice;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    shared::Shared,
    workers::migration::{Credentials, Migration, Target},
};

/// Bytes that are gathered before they are sent.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// A line of a reply is not longer.
const LINE_BYTES_MAX: usize = 64 << 10;
/// How long the end of the server may go unnoticed.
const LOOK: Duration = Duration::from_millis(100);

/// A connection to a target.
pub(crate) struct Connection {
    stream: Stream,
    host: Vec<u8>,
    port: Vec<u8>,
    credentials: Option<Credentials>,
    /// The database that the target has selected for it, where that is known.
    database: Option<i64>,
    /// Bytes that have been read and not looked at, from `position` on.
    input: Vec<u8>,
    position: usize,
}

/// A conversation that could not be ended.
pub(super) struct Broken {
    pub(super) error: io::Error,
    pub(super) while_writing: bool,
    /// The target has answered a key.
    pub(super) has_begun: bool,
    /// The first error line of the target before that.
    pub(super) refusal: Option<Vec<u8>>,
}

impl Connection {
    /// Makes one; the names' addresses are tried in turn.
    pub(crate) fn make(shared: &Arc<Shared>, target: &Target) -> io::Result<Self> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let host = std::str::from_utf8(&target.host).map_err(|_| invalid("the host is no text"))?;
        let port = std::str::from_utf8(&target.port).ok().and_then(|port| port.parse::<u16>().ok());
        let port = port.filter(|port| *port > 0).ok_or_else(|| invalid("this is no port"))?;
        let unknown = |error| io::Error::new(io::ErrorKind::NotFound, error);
        let mut last = unknown(io::Error::other("the name has no address"));
        let mut socket = None;
        for address in (host, port).to_socket_addrs().map_err(unknown)? {
            match TcpStream::connect_timeout(&address, target.timeout) {
                Ok(made) => {
                    socket = Some(made);
                    break;
                }
                Err(error) => last = error,
            }
        }
        let socket = socket.ok_or(last)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let stream = match shared.tls.cluster_client(&shared.config.current(), host).transpose()? {
            Some(tls) => Stream::connect(socket.into(), &tls)?,
            None => Stream::plain(socket.into()),
        };
        let mut connection = Self {
            stream,
            host: target.host.clone(),
            port: target.port.clone(),
            credentials: target.credentials.clone(),
            database: Some(0),
            input: Vec::new(),
            position: 0,
        };
        connection.shake_hands(shared, target.timeout)?;
        Ok(connection)
    }

    /// Whether it can be used for a target.
    pub(super) fn leads_to(&self, target: &Target) -> bool {
        (&self.host, &self.port, &self.credentials) == (&target.host, &target.port, &target.credentials)
    }

    /// Does the handshake of TLS.
    fn shake_hands(&mut self, shared: &Shared, timeout: Duration) -> io::Result<()> {
        if self.stream.is_handshaking() {
            // It speaks first.
            let _ = (&self.stream).write(&[]).or_else(none_yet)?;
        }
        while self.stream.is_handshaking() {
            let awaited = if self.stream.has_unsent() { PollFlags::OUT } else { PollFlags::IN };
            self.wait(shared, awaited, timeout)?;
            self.read_some()?;
            let _ = self.stream.flush()?;
        }
        Ok(())
    }

    /// Waits until the socket is ready.
    fn wait(&self, shared: &Shared, awaited: PollFlags, timeout: Duration) -> io::Result<()> {
        let until = Instant::now() + timeout;
        loop {
            if shared.is_ending() {
                return Err(io::Error::other("the server ends"));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let step = left.min(LOOK);
            let time = Timespec { tv_sec: 0, tv_nsec: step.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.stream, awaited)], Some(&time)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes what the socket takes at once, and waits for it where it takes nothing.
    pub(crate) fn write_some(
        &mut self,
        shared: &Shared,
        bytes: &[u8],
        timeout: Duration,
    ) -> io::Result<usize> {
        match (&self.stream).write(bytes).or_else(none_yet)? {
            0 => self.wait(shared, PollFlags::OUT, timeout).map(|()| 0),
            sent => Ok(sent),
        }
    }

    /// The next line of a reply, without its end, where there is one.
    pub(crate) fn line_at_once(&mut self) -> io::Result<Option<Vec<u8>>> {
        if !self.input[self.position..].contains(&b'\n') {
            self.read_some()?;
        }
        let rest = &self.input[self.position..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            let is_endless = rest.len() > LINE_BYTES_MAX;
            let endless = || io::Error::new(io::ErrorKind::InvalidData, "the reply has no end");
            return if is_endless { Err(endless()) } else { Ok(None) };
        };
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]).to_vec();
        self.position += end + 1;
        if self.position == self.input.len() {
            self.input.clear();
            self.position = 0;
        }
        Ok(Some(line))
    }

    pub(crate) fn write_all(
        &mut self,
        shared: &Shared,
        mut bytes: &[u8],
        timeout: Duration,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            match (&self.stream).write(bytes).or_else(none_yet)? {
                0 => self.wait(shared, PollFlags::OUT, timeout)?,
                sent => bytes = &bytes[sent..],
            }
        }
        while !self.stream.flush()? {
            self.wait(shared, PollFlags::OUT, timeout)?;
        }
        Ok(())
    }

    /// Reads what there is.
    fn read_some(&mut self) -> io::Result<()> {
        let mut room = [0; 4096];
        match (&self.stream).read(&mut room) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                self.input.extend_from_slice(&room[..bytes]);
                Ok(())
            }
            Err(error) => none_yet(error).map(drop),
        }
    }

    /// The next line, without its end.
    pub(crate) fn line(&mut self, shared: &Shared, timeout: Duration) -> io::Result<Vec<u8>> {
        loop {
            let rest = &self.input[self.position..];
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]).to_vec();
                self.position += end + 1;
                return Ok(line);
            }
            if rest.len() > LINE_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the reply has no end"));
            }
            self.input.drain(..self.position);
            self.position = 0;
            let before = self.input.len();
            self.read_some()?;
            if self.input.len() == before {
                self.wait(shared, PollFlags::IN, timeout)?;
            }
        }
    }
}

/// Nothing, where the socket was not ready.
fn none_yet(error: io::Error) -> io::Result<usize> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
        _ => Err(error),
    }
}

/// Requests on their way to the socket.
struct Requests<'a> {
    shared: &'a Shared,
    connection: &'a mut Connection,
    gathered: Vec<u8>,
    timeout: Duration,
}

impl Requests<'_> {
    fn head(&mut self, words: usize) {
        self.gathered.extend_from_slice(format!("*{words}\r\n").as_bytes());
    }

    fn word(&mut self, word: &[u8]) {
        self.length(word.len());
        self.gathered.extend_from_slice(word);
        self.gathered.extend_from_slice(b"\r\n");
    }

    fn length(&mut self, length: usize) {
        self.gathered.extend_from_slice(format!("${length}\r\n").as_bytes());
    }

    /// A word in pieces; long ones are not copied.
    fn pieces(&mut self, pieces: &[SharedSlice]) -> io::Result<()> {
        self.length(pieces.iter().map(|piece| piece.len()).sum());
        for piece in pieces {
            if self.gathered.len() + piece.len() > GATHERED_BYTES_MAX {
                self.send()?;
            }
            if piece.len() > GATHERED_BYTES_MAX {
                self.connection.write_all(self.shared, piece, self.timeout)?;
            } else {
                self.gathered.extend_from_slice(piece);
            }
        }
        self.gathered.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        self.connection.write_all(self.shared, &gathered, self.timeout)?;
        self.gathered = gathered;
        self.gathered.clear();
        Ok(())
    }
}

/// The replies that are owed.
struct Owed {
    auth: bool,
    select: bool,
    removals: usize,
    /// The keys that were sent; those whose time has come are not.
    keys: Vec<usize>,
}

/// Sends the keys of a migration and reads what becomes of them: `arrived`, and the target's first error line.
pub(super) fn send(
    shared: &Shared,
    connection: &mut Connection,
    migration: &Migration,
    worker: &mut Worker,
    arrived: &mut [bool],
) -> Result<Option<Vec<u8>>, Broken> {
    let broken = |error, while_writing| Broken { error, while_writing, has_begun: false, refusal: None };
    let owed = write_requests(shared, connection, migration, worker).map_err(|error| broken(error, true))?;
    let (timeout, database) = (migration.target.timeout, migration.target.database);
    // Until all is well, it is not known.
    connection.database = None;
    let mut error_line = None;
    for is_owed in [owed.auth, owed.select] {
        if is_owed {
            let line = connection.line(shared, timeout).map_err(|error| broken(error, false))?;
            error_line = error_line.or_else(|| line.strip_prefix(b"-").map(<[u8]>::to_vec));
        }
    }
    let is_refused = error_line.is_some();
    // An error in front of the first key's reply is reported with that.
    let mut refusal = None;
    let replies = std::iter::repeat_n(None, owed.removals).chain(owed.keys.iter().copied().map(Some));
    for (count, key) in replies.enumerate() {
        let line = connection.line(shared, timeout).map_err(|error| Broken {
            error,
            while_writing: false,
            has_begun: count > 0,
            refusal: refusal.clone(),
        })?;
        match line.strip_prefix(b"-") {
            None if !is_refused => key.into_iter().for_each(|key| arrived[key] = true),
            own => {
                refusal.get_or_insert_with(|| {
                    error_line.take().unwrap_or_else(|| own.unwrap_or_default().to_vec())
                });
            }
        }
    }
    if refusal.is_none() && !is_refused {
        connection.database = Some(database);
    }
    Ok(refusal)
}

fn write_requests(
    shared: &Shared,
    connection: &mut Connection,
    migration: &Migration,
    worker: &mut Worker,
) -> io::Result<Owed> {
    let target = &migration.target;
    let select = connection.database != Some(target.database);
    let mut requests = Requests { shared, connection, gathered: Vec::new(), timeout: target.timeout };
    if let Some(Credentials { user, password }) = &target.credentials {
        requests.head(2 + usize::from(user.is_some()));
        requests.word(b"AUTH");
        user.iter().for_each(|user| requests.word(user));
        requests.word(password);
    }
    if select {
        requests.head(2);
        requests.word(b"SELECT");
        requests.word(target.database.to_string().as_bytes());
    }
    for key in &migration.gone {
        requests.head(2);
        requests.word(b"DEL");
        requests.word(key);
    }
    let mut keys = Vec::new();
    for (nth, key) in migration.departure.iter().flat_map(|departure| departure.keys().iter().enumerate()) {
        let now_ms = Now::read().unix_ms;
        let dumped = migration.departure.as_ref();
        let dumped = dumped.and_then(|departure| departure.dump(nth, &shared.engine, worker, now_ms));
        let Some(dumped) = dumped else { continue };
        keys.push(nth);
        requests.head(4 + usize::from(target.replace));
        requests.word(b"RESTORE");
        requests.word(key);
        requests.word(dumped.ttl_ms.to_string().as_bytes());
        requests.pieces(&dumped.payload)?;
        if target.replace {
            requests.word(b"REPLACE");
        }
    }
    requests.send()?;
    Ok(Owed { auth: target.credentials.is_some(), select, removals: migration.gone.len(), keys })
}
