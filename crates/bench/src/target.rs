//! The server under load: its address, how a connection introduces itself, and a plain blocking
//! client for the questions asked beside the load (INFO, DBSIZE).

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use dunlin_resp::{ReplyLimits, Value, ValueDecoder, ValueError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::tls::{Tls, TlsStream};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a pipeline that go out before its replies are read: any socket takes as many.
const PIPELINE_BYTES_ALONE: usize = 16 * 1024;
/// How long the blocking client waits for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Looks at the bytes that have arrived without waiting or taking them.
const PEEK: rustix::net::RecvFlags = rustix::net::RecvFlags::PEEK.union(rustix::net::RecvFlags::DONTWAIT);

/// The address on which the server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Host name or address, and port.
    Tcp(String, u16),
    /// Path of a Unix domain socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The user that the client claims to be, with the password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// ACL user; without one the password is the default user's.
    pub username: Option<String>,
    /// The password.
    pub password: String,
}

/// A server and how to introduce oneself to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The server's address.
    pub address: Address,
    /// How to speak TLS with it; plain when nothing.
    pub tls: Option<Tls>,
    /// Sent with AUTH.
    pub credentials: Option<Credentials>,
    /// Selected when not 0.
    pub database: u32,
    /// Whether to speak RESP3.
    pub resp3: bool,
    /// Whether connections under load ask for `CLIENT TRACKING ON`.
    pub tracking: bool,
}

impl Target {
    /// A server that asks for nothing.
    pub fn new(address: Address) -> Self {
        Self { address, tls: None, credentials: None, database: 0, resp3: false, tracking: false }
    }

    /// The commands that a connection starts with.
    pub fn introduction(&self) -> Vec<Vec<Vec<u8>>> {
        let mut commands: Vec<Vec<Vec<u8>>> = Vec::new();
        let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
        match &self.credentials {
            Some(Credentials { username: Some(username), password }) => {
                commands.push(words(&["AUTH", username, password]));
            }
            Some(Credentials { username: None, password }) => commands.push(words(&["AUTH", password])),
            None => {}
        }
        if self.resp3 {
            commands.push(words(&["HELLO", "3"]));
        }
        if self.database != 0 {
            commands.push(words(&["SELECT", &self.database.to_string()]));
        }
        if self.tracking {
            commands.push(words(&["CLIENT", "TRACKING", "ON"]));
        }
        commands
    }

    /// Opens a connection.
    pub fn connect(&self) -> Result<Stream, TargetError> {
        let failed = |source| TargetError::Connect { address: self.address.clone(), source };
        match &self.address {
            Address::Unix(path) => UnixStream::connect(path).map(Stream::Unix).map_err(failed),
            Address::Tcp(host, port) => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
                for address in (host.as_str(), *port).to_socket_addrs().map_err(failed)? {
                    match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                        Ok(stream) => {
                            stream.set_nodelay(true).map_err(failed)?;
                            return self.secured(stream).map_err(failed);
                        }
                        Err(error) => last = error,
                    }
                }
                Err(failed(last))
            }
        }
    }

    /// A TCP connection, inside TLS where that is asked for.
    fn secured(&self, stream: TcpStream) -> io::Result<Stream> {
        let Some(tls) = &self.tls else { return Ok(Stream::Tcp(stream)) };
        set_timeout(&stream, Some(CONNECT_TIMEOUT))?;
        let stream = tls.handshake(stream)?;
        set_timeout(stream.socket(), None)?;
        Ok(Stream::Tls(Box::new(stream)))
    }

    /// Opens a blocking client and introduces it.
    pub fn client(&self) -> Result<Client, TargetError> {
        let stream = self.connect()?;
        stream.set_timeout(REPLY_TIMEOUT).map_err(|source| TargetError::Io { source })?;
        let decoder = ValueDecoder::new(ReplyLimits::default());
        let timeout = REPLY_TIMEOUT;
        let mut client = Client { stream, timeout, decoder, unread: Vec::new(), next: 0 };
        for command in self.introduction() {
            if let Value::Error(text) = client.call(&command)? {
                let command = String::from_utf8_lossy(&command[0]).into_owned();
                return Err(TargetError::Refused { command, text: lossy(&text) });
            }
        }
        Ok(client)
    }
}

/// A connected socket.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over TCP, inside TLS.
    Tls(Box<TlsStream<TcpStream>>),
    /// Over a Unix domain socket.
    Unix(UnixStream),
}

impl Stream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => set_timeout(stream, Some(timeout)),
            Self::Tls(stream) => set_timeout(stream.socket(), Some(timeout)),
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
        }
    }

    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Self::Tls(stream) => stream.socket().set_nonblocking(nonblocking),
            Self::Unix(stream) => stream.set_nonblocking(nonblocking),
        }
    }

    /// Whether bytes that it has taken have not gone out yet.
    fn has_unsent(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.has_unsent())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Tls(stream) => stream.socket().as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

fn set_timeout(stream: &TcpStream, timeout: Option<Duration>) -> io::Result<()> {
    stream.set_read_timeout(timeout)?;
    stream.set_write_timeout(timeout)
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(stream) => stream.flush(),
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
        }
    }
}

/// Why a server could not be used.
#[derive(Debug)]
pub enum TargetError {
    /// No connection.
    Connect {
        /// The address that was tried.
        address: Address,
        /// The system's reason.
        source: io::Error,
    },
    /// The connection broke.
    Io {
        /// The system's reason.
        source: io::Error,
    },
    /// The server closed the connection.
    Closed,
    /// The server does not speak the protocol.
    Protocol(ValueError),
    /// The server refused the introduction.
    Refused {
        /// The command it refused.
        command: String,
        /// Its words.
        text: String,
    },
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { address, source } => write!(f, "cannot connect to {address}: {source}"),
            Self::Io { source } => write!(f, "the connection broke: {source}"),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Protocol(error) => write!(f, "the server does not speak the Redis protocol: {error}"),
            Self::Refused { command, text } => write!(f, "the server refused {command}: {text}"),
        }
    }
}

impl std::error::Error for TargetError {}

/// A blocking connection, one request at a time.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    /// How long it waits for the server.
    timeout: Duration,
    decoder: ValueDecoder,
    unread: Vec<u8>,
    next: usize,
}

impl Client {
    /// Sends a command and waits for its reply; pushes in between are dropped.
    pub fn call<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Value, TargetError> {
        let mut request = Vec::new();
        encode(command, &mut request);
        self.stream.write_all(&request).map_err(|source| TargetError::Io { source })?;
        self.receive()
    }

    /// Sends encoded commands and gives each of their `replies` to `take`. Of large batches, replies are
    /// taken while the rest is still written, so that a server may pause one for the other.
    pub fn pipeline(
        &mut self,
        requests: &[u8],
        replies: usize,
        mut take: impl FnMut(Value),
    ) -> Result<(), TargetError> {
        if requests.len() <= PIPELINE_BYTES_ALONE {
            self.send(requests)?;
            for _ in 0..replies {
                take(self.receive()?);
            }
            return Ok(());
        }
        let broken = |source| TargetError::Io { source };
        self.stream.set_nonblocking(true).map_err(broken)?;
        let exchanged = self.exchange(requests, replies, &mut take);
        self.stream.set_nonblocking(false).map_err(broken)?;
        exchanged
    }

    /// Writes and reads as the socket, which does not block, lets it.
    fn exchange(
        &mut self,
        mut requests: &[u8],
        mut replies: usize,
        take: &mut impl FnMut(Value),
    ) -> Result<(), TargetError> {
        while replies > 0 || !requests.is_empty() || self.stream.has_unsent() {
            let written = if requests.is_empty() {
                self.stream.flush().map(|()| 0)
            } else {
                self.stream.write(requests)
            };
            requests = &requests[unless_blocked(written)?.unwrap_or(0)..];
            while replies > 0
                && let Some(value) = self.decoded()?
            {
                replies -= 1;
                take(value);
            }
            if replies > 0 {
                match self.fill() {
                    Err(TargetError::Io { source }) => {
                        unless_blocked::<()>(Err(source))?;
                    }
                    filled => {
                        filled?;
                        continue;
                    }
                }
            }
            self.wait(!requests.is_empty() || self.stream.has_unsent(), replies > 0)?;
        }
        Ok(())
    }

    /// Waits until the socket can be written or read.
    fn wait(&self, for_writing: bool, for_reading: bool) -> Result<(), TargetError> {
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::OUT, for_writing);
        wanted.set(PollFlags::IN, for_reading);
        if wanted.is_empty() {
            return Ok(());
        }
        let timeout = Timespec::try_from(self.timeout)
            .map_err(|_| TargetError::Io { source: io::ErrorKind::InvalidInput.into() })?;
        match poll(&mut [PollFd::new(&self.stream, wanted)], Some(&timeout)) {
            Ok(0) => Err(TargetError::Io { source: io::ErrorKind::TimedOut.into() }),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(TargetError::Io { source: error.into() }),
        }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), TargetError> {
        self.stream.write_all(bytes).map_err(|source| TargetError::Io { source })
    }

    /// Waits for the next reply; pushes before it are dropped.
    pub fn receive(&mut self) -> Result<Value, TargetError> {
        loop {
            if let Some(value) = self.decoded()? {
                return Ok(value);
            }
            self.fill()?;
        }
    }

    /// The next reply of those that have arrived.
    fn decoded(&mut self) -> Result<Option<Value>, TargetError> {
        loop {
            let (used, value) =
                self.decoder.decode(&self.unread[self.next..]).map_err(TargetError::Protocol)?;
            self.next += used;
            match value {
                Some(Value::Push(_)) => {}
                other => return Ok(other),
            }
        }
    }

    /// How long a reply may take from now on.
    pub fn set_timeout(&mut self, timeout: Duration) -> Result<(), TargetError> {
        self.timeout = timeout;
        self.stream.set_timeout(timeout).map_err(|source| TargetError::Io { source })
    }

    fn fill(&mut self) -> Result<(), TargetError> {
        self.unread.drain(..self.next);
        self.next = 0;
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(TargetError::Closed),
            Ok(length) => {
                self.unread.extend_from_slice(&chunk[..length]);
                Ok(())
            }
            Err(source) => Err(TargetError::Io { source }),
        }
    }

    /// Whether the server has closed the connection; asked while no reply is due.
    pub fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        let read = match &mut self.stream {
            Stream::Tcp(stream) => rustix::net::recv(stream, &mut byte, PEEK).map_err(io::Error::from),
            Stream::Unix(stream) => rustix::net::recv(stream, &mut byte, PEEK).map_err(io::Error::from),
            // Other messages of TLS (tickets, its own end) can only be recognised by taking them.
            Stream::Tls(stream) => stream.socket().set_nonblocking(true).and_then(|()| {
                let read = stream.read(&mut byte);
                stream.socket().set_nonblocking(false)?;
                read.map(|length| (length, length))
            }),
        };
        match read {
            Ok((_, length)) => length == 0,
            Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
    }

    /// A section of INFO; nothing when the server refuses.
    pub fn info(&mut self, section: &str) -> Result<Option<Info>, TargetError> {
        Ok(self.call(&["INFO", section])?.as_bytes().map(|text| Info { text: lossy(text) }))
    }

    /// CPU time that the server has used so far, in seconds; nothing when it does not say.
    pub fn cpu_seconds(&mut self) -> Result<Option<f64>, TargetError> {
        Ok(self
            .info("cpu")?
            .and_then(|info| Some(info.number("used_cpu_user")? + info.number("used_cpu_sys")?)))
    }
}

/// The text of an INFO reply.
#[derive(Debug, Clone)]
pub struct Info {
    text: String,
}

impl Info {
    /// The value of a numeric field.
    pub fn number(&self, field: &str) -> Option<f64> {
        self.field(field)?.parse().ok()
    }

    /// The value of a field.
    pub fn field(&self, field: &str) -> Option<&str> {
        self.text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::trim_end)
    }
}

/// The result of a socket that does not block; nothing if it would have to wait.
fn unless_blocked<T>(result: io::Result<T>) -> Result<Option<T>, TargetError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(source) => Err(TargetError::Io { source }),
    }
}

/// Appends a command as an array of bulk strings.
pub fn encode<A: AsRef<[u8]>>(command: &[A], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
    for argument in command {
        out.extend_from_slice(format!("${}\r\n", argument.as_ref().len()).as_bytes());
        out.extend_from_slice(argument.as_ref());
        out.extend_from_slice(b"\r\n");
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn introduction_follows_the_settings() {
        let mut target = Target::new(Address::Tcp("localhost".into(), 1));
        assert!(target.introduction().is_empty());
        target.credentials = Some(Credentials { username: Some("ann".into()), password: "secret".into() });
        target.resp3 = true;
        target.database = 3;
        let mut sent = Vec::new();
        for command in target.introduction() {
            encode(&command, &mut sent);
        }
        assert_eq!(
            String::from_utf8(sent).unwrap(),
            "*3\r\n$4\r\nAUTH\r\n$3\r\nann\r\n$6\r\nsecret\r\n*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n"
        );
    }

    #[test]
    fn connection_refused_is_one_clear_line() {
        // Port 1 has no listener; one that was free a moment ago may be another test's by now.
        let error = Target::new(Address::Tcp("127.0.0.1".into(), 1)).client().unwrap_err().to_string();
        assert!(error.starts_with("cannot connect to 127.0.0.1:1: Connection refused"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }

    #[test]
    fn info_fields_are_found_whole() {
        let info = Info { text: "# CPU\r\nused_cpu_sys_children:9\r\nused_cpu_sys:1.25\r\n".into() };
        assert_eq!(info.number("used_cpu_sys"), Some(1.25));
        assert_eq!(info.number("used_cpu"), None);
    }
}
