//! The server under load: its address, how a connection introduces itself, and a plain blocking
//! client for the questions asked beside the load (INFO, DBSIZE).

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use dunlin_resp::{ReplyLimits, Value, ValueDecoder, ValueError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a pipeline that go out before its replies are read: any socket takes as many.
const PIPELINE_BYTES_ALONE: usize = 16 * 1024;
/// How long the blocking client waits for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Looks at what has arrived without waiting or taking it.
const PEEK: rustix::net::RecvFlags = rustix::net::RecvFlags::PEEK.union(rustix::net::RecvFlags::DONTWAIT);

/// Where the server listens.
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

/// Who the client claims to be.
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
    /// Where it listens.
    pub address: Address,
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
        Self { address, credentials: None, database: 0, resp3: false, tracking: false }
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
                            return Ok(Stream::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(failed(last))
            }
        }
    }

    /// Opens a blocking client and introduces it.
    pub fn client(&self) -> Result<Client, TargetError> {
        let stream = self.connect()?;
        stream.set_timeout(REPLY_TIMEOUT).map_err(|source| TargetError::Io { source })?;
        let decoder = ValueDecoder::new(ReplyLimits::default());
        let mut client = Client { stream, decoder, unread: Vec::new(), next: 0 };
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
    /// Over a Unix domain socket.
    Unix(UnixStream),
}

impl Stream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
        }
    }

    /// A second handle on the same connection.
    fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why a server could not be used.
#[derive(Debug)]
pub enum TargetError {
    /// No connection.
    Connect {
        /// Where it was tried.
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

/// One blocking connection, one request at a time.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
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

    /// Sends encoded commands and gives each of their `replies` to `take`. Large batches are written
    /// beside the reading, so that a server may pause one for the other.
    pub fn pipeline(
        &mut self,
        requests: &[u8],
        replies: usize,
        mut take: impl FnMut(Value),
    ) -> Result<(), TargetError> {
        let broken = |source| TargetError::Io { source };
        let mut writer = self.stream.try_clone().map_err(broken)?;
        let (first, rest) = requests.split_at(requests.len().min(PIPELINE_BYTES_ALONE));
        writer.write_all(first).map_err(broken)?;
        thread::scope(|scope| {
            let writing = (!rest.is_empty()).then(|| scope.spawn(move || writer.write_all(rest)));
            for _ in 0..replies {
                take(self.receive()?);
            }
            match writing {
                Some(writing) => writing.join().expect("the writing thread panicked").map_err(broken),
                None => Ok(()),
            }
        })
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), TargetError> {
        self.stream.write_all(bytes).map_err(|source| TargetError::Io { source })
    }

    /// Waits for the next reply; pushes before it are dropped.
    pub fn receive(&mut self) -> Result<Value, TargetError> {
        loop {
            let (used, value) =
                self.decoder.decode(&self.unread[self.next..]).map_err(TargetError::Protocol)?;
            self.next += used;
            match value {
                Some(Value::Push(_)) => {}
                Some(value) => return Ok(value),
                None => self.fill()?,
            }
        }
    }

    /// How long a reply may take from now on.
    pub fn set_timeout(&mut self, timeout: Duration) -> Result<(), TargetError> {
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
        let peeked = match &self.stream {
            Stream::Tcp(stream) => rustix::net::recv(stream, &mut byte, PEEK),
            Stream::Unix(stream) => rustix::net::recv(stream, &mut byte, PEEK),
        };
        match peeked {
            Ok((_, length)) => length == 0,
            Err(error) => error != rustix::io::Errno::AGAIN && error != rustix::io::Errno::INTR,
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
    fn the_introduction_follows_the_settings() {
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
    fn a_refused_connection_is_one_clear_line() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let error = Target::new(Address::Tcp("127.0.0.1".into(), port)).client().unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("cannot connect to 127.0.0.1:{port}: Connection refused")),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1);
    }

    #[test]
    fn info_fields_are_found_whole() {
        let info = Info { text: "# CPU\r\nused_cpu_sys_children:9\r\nused_cpu_sys:1.25\r\n".into() };
        assert_eq!(info.number("used_cpu_sys"), Some(1.25));
        assert_eq!(info.number("used_cpu"), None);
    }
}
