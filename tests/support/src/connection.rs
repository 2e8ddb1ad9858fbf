//! A pipelining client over a Unix socket or TCP.
//!
//! Writing and reading go on at the same time if a batch is large, because a server may stop
//! reading while its replies are not taken.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::resp::{self, Malformed, Reply};

/// A batch up to this size fits the socket buffers, so it can be written before reading.
const PLAIN_WRITE_MAX: usize = 32 << 10;

/// How long a server may take over one batch.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => (&*stream).write_all(bytes),
            Stream::Tcp(stream) => (&*stream).write_all(bytes),
        }
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&*stream).read(buffer),
            Stream::Tcp(stream) => (&*stream).read(buffer),
        }
    }
}

/// A client connection with its unread bytes.
pub struct Connection {
    stream: Stream,
    input: Vec<u8>,
    start: usize,
}

/// How reading a reply can fail.
#[derive(Debug)]
pub enum ReadError {
    /// The server closed the connection, the socket failed, or the timeout passed.
    Io(io::Error),
    /// The server sent something that is not RESP.
    Invalid(String),
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReadError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                f.write_str("connection closed")
            }
            ReadError::Io(error) if error.kind() == io::ErrorKind::WouldBlock => {
                f.write_str("no reply in time")
            }
            ReadError::Io(error) => write!(f, "{error}"),
            ReadError::Invalid(what) => write!(f, "not RESP: {what}"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        ReadError::Io(error)
    }
}

impl Connection {
    /// Connects to a Unix socket.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        Ok(Connection { stream: Stream::Unix(stream), input: Vec::new(), start: 0 })
    }

    /// Connects to a port of this machine.
    pub fn tcp(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        Ok(Connection { stream: Stream::Tcp(stream), input: Vec::new(), start: 0 })
    }

    /// Sets how long a read waits before it fails.
    pub fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match &self.stream {
            Stream::Unix(stream) => stream.set_read_timeout(Some(timeout)),
            Stream::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends one command and gives its reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Result<Reply, ReadError> {
        let mut bytes = Vec::new();
        resp::encode_command(arguments, &mut bytes);
        self.send(&bytes)?;
        self.read_reply()
    }

    /// Sends a batch of encoded commands and reads that many replies; on failure the replies before it
    /// and the reason.
    pub fn exchange(&mut self, bytes: &[u8], count: usize) -> (Vec<Reply>, Option<ReadError>) {
        if bytes.len() <= PLAIN_WRITE_MAX {
            // A failed write still leaves replies to read: the server may have said why it closed.
            let written = self.send(bytes);
            let (replies, error) = self.read_replies(count);
            return (replies, error.or(written.err().map(ReadError::Io)));
        }
        let writer = match &self.stream {
            Stream::Unix(stream) => stream.try_clone().map(Stream::Unix),
            Stream::Tcp(stream) => stream.try_clone().map(Stream::Tcp),
        };
        let writer = match writer {
            Ok(writer) => writer,
            Err(error) => return (Vec::new(), Some(error.into())),
        };
        std::thread::scope(|scope| {
            let handle = scope.spawn(move || writer.write_all(bytes));
            let (replies, error) = self.read_replies(count);
            if error.is_some() {
                // Wakes a writer that the server no longer reads from.
                let _ = match &self.stream {
                    Stream::Unix(stream) => stream.shutdown(std::net::Shutdown::Both),
                    Stream::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both),
                };
            }
            let written = handle.join().expect("the writer does not panic");
            (replies, error.or(written.err().map(ReadError::Io)))
        })
    }

    fn read_replies(&mut self, count: usize) -> (Vec<Reply>, Option<ReadError>) {
        let mut replies = Vec::with_capacity(count);
        while replies.len() < count {
            match self.read_reply() {
                Ok(reply) => replies.push(reply),
                Err(error) => return (replies, Some(error)),
            }
        }
        (replies, None)
    }

    /// Reads the next reply.
    pub fn read_reply(&mut self) -> Result<Reply, ReadError> {
        loop {
            match resp::parse(&self.input[self.start..]) {
                Ok((reply, used)) => {
                    self.start += used;
                    return Ok(reply);
                }
                Err(Malformed::Incomplete) => self.fill()?,
                Err(Malformed::Invalid(what)) => return Err(ReadError::Invalid(what)),
            }
        }
    }

    /// Reads the bytes that the server sends until it closes the connection, is silent for the read
    /// timeout, or the bytes end with `last`; returns whether it closed.
    pub fn read_until(&mut self, last: &[u8]) -> (Vec<u8>, bool) {
        loop {
            if !last.is_empty() && self.input[self.start..].ends_with(last) {
                return (self.take_input(), false);
            }
            match self.fill() {
                Ok(()) => {}
                Err(error) => {
                    let silent = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                    return (self.take_input(), !silent);
                }
            }
        }
    }

    fn take_input(&mut self) -> Vec<u8> {
        let bytes = self.input.split_off(self.start);
        self.input.clear();
        self.start = 0;
        bytes
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.input.drain(..self.start);
            self.start = 0;
        }
        let old = self.input.len();
        self.input.resize(old + (64 << 10).max(old / 2), 0);
        let result = loop {
            match self.stream.read(&mut self.input[old..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match result {
            Ok(0) => {
                self.input.truncate(old);
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Ok(n) => {
                self.input.truncate(old + n);
                Ok(())
            }
            Err(error) => {
                self.input.truncate(old);
                Err(error)
            }
        }
    }
}
