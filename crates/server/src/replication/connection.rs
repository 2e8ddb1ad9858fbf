//! A connection on which this server is the client: requests are written whole, replies read as lines. MIGRATE and moves of
//! slots use it.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use dunlin_net::{Stream, tls::refusal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    config::Config,
    tls::Tls,
    workers::migration::{Credentials, MigrationTarget},
};

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
    /// The database that the target has selected for it, if that is known.
    pub(crate) database: Option<i64>,
    /// Bytes that have been read and not looked at, from `position` on.
    input: Vec<u8>,
    position: usize,
    /// Whether the server ends: nothing is waited for then.
    ending: Arc<AtomicBool>,
}

impl Connection {
    /// Makes one; the names' addresses are tried in turn.
    pub(crate) fn make(
        tls: &Tls,
        config: &Config,
        ending: &Arc<AtomicBool>,
        target: &MigrationTarget,
    ) -> io::Result<Self> {
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
        let stream = match tls.cluster_client(config, host).transpose()? {
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
            ending: Arc::clone(ending),
        };
        connection.shake_hands(target.timeout).inspect_err(|error| {
            if let Some(reason) = refusal(error) {
                tracing::warn!("TLS to {host}:{port} fails: {reason}");
            }
        })?;
        Ok(connection)
    }

    /// Whether it can be used for a target.
    pub(crate) fn leads_to(&self, target: &MigrationTarget) -> bool {
        (&self.host, &self.port, &self.credentials) == (&target.host, &target.port, &target.credentials)
    }

    /// Does the handshake of TLS.
    fn shake_hands(&mut self, timeout: Duration) -> io::Result<()> {
        if self.stream.is_handshaking() {
            // This end speaks first.
            let _ = (&self.stream).write(&[]).or_else(none_yet)?;
        }
        while self.stream.is_handshaking() {
            let awaited = if self.stream.has_unsent() { PollFlags::OUT } else { PollFlags::IN };
            self.wait(awaited, timeout)?;
            self.read_some()?;
            let _ = self.stream.flush()?;
        }
        Ok(())
    }

    /// Waits until the socket is ready.
    fn wait(&self, awaited: PollFlags, timeout: Duration) -> io::Result<()> {
        let until = Instant::now() + timeout;
        loop {
            if self.ending.load(SeqCst) {
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

    /// Writes what the socket takes at once, and waits for it if it takes nothing.
    pub(crate) fn write_some(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<usize> {
        match (&self.stream).write(bytes).or_else(none_yet)? {
            0 => self.wait(PollFlags::OUT, timeout).map(|()| 0),
            sent => Ok(sent),
        }
    }

    /// Returns the next line of a reply, without its end, if there is one.
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

    pub(crate) fn write_all(&mut self, mut bytes: &[u8], timeout: Duration) -> io::Result<()> {
        while !bytes.is_empty() {
            match (&self.stream).write(bytes).or_else(none_yet)? {
                0 => self.wait(PollFlags::OUT, timeout)?,
                sent => bytes = &bytes[sent..],
            }
        }
        while !self.stream.flush()? {
            self.wait(PollFlags::OUT, timeout)?;
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
    pub(crate) fn line(&mut self, timeout: Duration) -> io::Result<Vec<u8>> {
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
                self.wait(PollFlags::IN, timeout)?;
            }
        }
    }
}

/// Nothing if the socket was not ready.
fn none_yet(error: io::Error) -> io::Result<usize> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
        _ => Err(error),
    }
}
