//! The sockets that clients connect to: TCP on every address, and one Unix socket.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

use super::{Limits, Transport};

/// The addresses to listen on.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// `bind`: addresses or host names; `*` and `::*` are all addresses of IPv4 and IPv6; one that
    /// begins with `-` is skipped when this host does not have it.
    pub addresses: Vec<String>,
    /// The TCP port, 0 for any free one; `None` for no TCP.
    pub port: Option<u16>,
    /// The TCP port for TLS, 0 for any free one; `None` for no TLS.
    pub tls_port: Option<u16>,
    /// `tcp-backlog`.
    pub backlog: u32,
    /// `unixsocket`.
    pub unix_path: Option<PathBuf>,
    /// `unixsocketperm`; `None` leaves what the umask gives.
    pub unix_permissions: Option<u32>,
}

/// Why a listener could not be opened.
#[derive(Debug)]
pub enum ListenError {
    /// A TCP address.
    Tcp {
        /// As configured.
        address: String,
        /// The port.
        port: u16,
        /// The system's word.
        source: io::Error,
    },
    /// The Unix socket.
    Unix {
        /// As configured.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// Neither TCP nor a Unix socket is configured, or no optional address exists.
    Nothing,
    /// The system is out of something.
    System(io::Error),
}

impl fmt::Display for ListenError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { address, port, source } if source.kind() == io::ErrorKind::AddrInUse => {
                write!(
                    out,
                    "cannot listen on {address} port {port}: another process does; stop it or choose another port"
                )
            }
            Self::Tcp { address, port, source } => {
                write!(out, "cannot listen on {address} port {port}: {source}")
            }
            Self::Unix { path, source } => {
                write!(out, "cannot listen on unix socket {}: {source}", path.display())
            }
            Self::Nothing => {
                out.write_str("nothing to listen on: set port or tls-port and bind, or unixsocket")
            }
            Self::System(source) => write!(out, "cannot listen: {source}"),
        }
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Tcp { source, .. } | Self::Unix { source, .. } | Self::System(source) => Some(source),
            Self::Nothing => None,
        }
    }
}

/// An open listening socket. A Unix socket's file is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: Socket,
    /// Whether clients that connect here speak TLS.
    pub(crate) is_tls: bool,
    unix_path: Option<Arc<Path>>,
    /// Whether the path goes with it.
    owns_path: bool,
}

impl Listener {
    /// The listener of a TCP socket that listens.
    pub(crate) fn tcp(socket: Socket, is_tls: bool) -> Self {
        Self { socket, is_tls, unix_path: None, owns_path: true }
    }

    /// Whether it is the one of the Unix socket.
    pub(crate) fn is_unix(&self) -> bool {
        self.unix_path.is_some()
    }

    /// Another one on the same socket, for a worker that accepts while the first is held up.
    pub(crate) fn stand_in(&self) -> io::Result<Self> {
        let (socket, unix_path) = (self.socket.try_clone()?, self.unix_path.clone());
        Ok(Self { socket, is_tls: self.is_tls, unix_path, owns_path: false })
    }

    /// The bound TCP address.
    pub(crate) fn tcp_address(&self) -> Option<SocketAddr> {
        tcp_address(&self.socket)
    }

    /// Takes one connection off the backlog, ready for use.
    pub(crate) fn accept(&self, limits: &Limits) -> io::Result<(Socket, Transport)> {
        let (socket, peer) = self.socket.accept()?;
        if let Some(path) = &self.unix_path {
            socket.set_nonblocking(true)?;
            return Ok((socket, Transport::Unix(path.clone())));
        }
        prepare_tcp(socket, &peer, limits)
    }
}

/// Makes a TCP connection that has been accepted ready for use.
pub(crate) fn prepare_tcp(
    socket: Socket,
    peer: &SockAddr,
    limits: &Limits,
) -> io::Result<(Socket, Transport)> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    if let Some(interval) = limits.keepalive {
        // Three probes within one interval, as long as seconds allow.
        let probe = (interval / 3).max(std::time::Duration::from_secs(1));
        let keepalive = TcpKeepalive::new().with_time(interval).with_interval(probe).with_retries(3);
        socket.set_tcp_keepalive(&keepalive)?;
    }
    // A peer that is gone already may have no address left.
    let gone = || io::Error::from(io::ErrorKind::ConnectionAborted);
    let peer = peer.as_socket().ok_or_else(gone)?;
    let local = socket.local_addr()?.as_socket().ok_or_else(gone)?;
    Ok((socket, Transport::Tcp { peer, local }))
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.unix_path
            && self.owns_path
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Opens all listeners, or none.
pub(crate) fn listen(options: &ListenOptions) -> Result<Vec<Listener>, ListenError> {
    let mut listeners = Vec::new();
    for (port, is_tls) in [(options.port, false), (options.tls_port, true)] {
        let Some(port) = port else { continue };
        let sockets = listen_on(&options.addresses, port, options.backlog)?;
        listeners.extend(sockets.into_iter().map(|socket| Listener::tcp(socket, is_tls)));
    }
    if let Some(path) = &options.unix_path {
        let listener = listen_unix(path, options.unix_permissions, options.backlog)
            .map_err(|source| ListenError::Unix { path: path.clone(), source })?;
        listeners.push(listener);
    }
    if listeners.is_empty() { Err(ListenError::Nothing) } else { Ok(listeners) }
}

/// Listens on a TCP port of all these addresses, or on none; see [`ListenOptions::addresses`].
pub fn listen_on(addresses: &[String], port: u16, backlog: u32) -> Result<Vec<Socket>, ListenError> {
    listen_keeping(&[], addresses, port, backlog)
}

/// Does what [`listen_on`] does, with other handles on those of `former` that listen there already.
pub(crate) fn listen_keeping(
    former: &[&Socket],
    addresses: &[String],
    port: u16,
    backlog: u32,
) -> Result<Vec<Socket>, ListenError> {
    let mut sockets = Vec::new();
    for configured in addresses {
        let (address, optional) = match configured.strip_prefix('-') {
            Some(address) => (address, true),
            None => (configured.as_str(), false),
        };
        match listen_tcp(former, address, port, backlog) {
            Ok(opened) => sockets.extend(opened),
            Err(source) if optional && is_unavailable(&source) => {
                tracing::debug!("not listening on {address}: {source}");
            }
            Err(source) => return Err(ListenError::Tcp { address: address.to_owned(), port, source }),
        }
    }
    Ok(sockets)
}

/// Whether this host lacks the address or its family, as opposed to anything going wrong.
fn is_unavailable(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::ADDRNOTAVAIL, Errno::AFNOSUPPORT, Errno::PROTONOSUPPORT]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// The socket addresses that configured ones stand for, as far as they can be found.
pub(crate) fn resolved(addresses: &[String], port: u16) -> impl Iterator<Item = SocketAddr> {
    let plain = |configured: &String| configured.strip_prefix('-').unwrap_or(configured).to_owned();
    addresses.iter().filter_map(move |configured| resolve(&plain(configured), port).ok()).flatten()
}

fn resolve(address: &str, port: u16) -> io::Result<impl Iterator<Item = SocketAddr> + use<>> {
    let host = match address {
        "*" => "0.0.0.0",
        "::*" => "::",
        host => host,
    };
    (host, port).to_socket_addrs()
}

/// The TCP address that a socket is bound to.
pub(crate) fn tcp_address(socket: &Socket) -> Option<SocketAddr> {
    socket.local_addr().ok()?.as_socket()
}

/// Starts listening on a bound socket; also on one that has been shut down.
pub(crate) fn start_listening(socket: &Socket, backlog: u32) -> io::Result<()> {
    socket.listen(backlog.min(i32::MAX as u32) as i32)
}

fn listen_tcp(former: &[&Socket], address: &str, port: u16, backlog: u32) -> io::Result<Vec<Socket>> {
    resolve(address, port)?
        .map(|address| {
            if let Some(known) = former.iter().find(|socket| tcp_address(socket) == Some(address)) {
                return known.try_clone();
            }
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            if address.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            socket.bind(&address.into())?;
            socket.set_nonblocking(true)?;
            start_listening(&socket, backlog)?;
            Ok(socket)
        })
        .collect()
}

fn listen_unix(path: &Path, permissions: Option<u32>, backlog: u32) -> io::Result<Listener> {
    remove_stale_socket(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let listener = Listener { socket, is_tls: false, unix_path: Some(path.into()), owns_path: true };
    // Clients cannot connect before `listen`, so none slips in before the permissions are set.
    if let Some(permissions) = permissions {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(permissions))?;
    }
    listener.socket.set_nonblocking(true)?;
    start_listening(&listener.socket, backlog)?;
    Ok(listener)
}

/// Removes the socket that a killed server has left behind; nothing else is ever removed.
fn remove_stale_socket(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "a file that is not a socket has this name",
        ));
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        // Accepted, or its backlog is full: either way a process listens.
        _ => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on it")),
    }
}

/// The line that a client gets before its connection is closed unserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    TooManyClients,
    NotLoopback,
}

impl Refusal {
    /// The client's error line.
    pub(crate) fn reply(self) -> &'static [u8] {
        match self {
            Self::TooManyClients => b"-ERR max number of clients reached\r\n",
            Self::NotLoopback => {
                b"-DENIED This server is in protected mode: the default user has no password, so it serves \
                  only clients of its own host, over the loopback interface or a Unix socket. To be served \
                  from elsewhere, do one of these on the server's host: set a password (CONFIG SET requirepass, \
                  or requirepass in the configuration file, then restart); or, if nobody else can reach the \
                  server's network, switch protected mode off (CONFIG SET protected-mode no, or protected-mode \
                  no in the configuration file, or --protected-mode no on the command line).\r\n"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_one_line() {
        for refusal in [Refusal::TooManyClients, Refusal::NotLoopback] {
            let reply = refusal.reply();
            assert!(reply.starts_with(b"-") && reply.ends_with(b"\r\n"));
            assert!(!reply[..reply.len() - 2].contains(&b'\n') && !reply[..reply.len() - 2].contains(&b'\r'));
        }
    }

    #[test]
    fn listener_may_lack_an_optional_address_only() {
        let options = |addresses: &[&str]| ListenOptions {
            addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
            port: Some(0),
            tls_port: None,
            backlog: 16,
            unix_path: None,
            unix_permissions: None,
        };
        // 192.0.2.0/24 is reserved for documentation: no host has it.
        assert_eq!(listen(&options(&["127.0.0.1", "-192.0.2.1"])).unwrap().len(), 1);
        assert!(matches!(listen(&options(&["127.0.0.1", "192.0.2.1"])), Err(ListenError::Tcp { .. })));
        assert!(matches!(listen(&options(&["-192.0.2.1"])), Err(ListenError::Nothing)));
    }

    #[test]
    fn listener_replaces_stale_sockets_only() {
        let directory = std::env::temp_dir().join(format!("dunlin-listener-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("socket");
        let first = listen_unix(&path, Some(0o700), 16).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(listen_unix(&path, None, 16).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(!path.exists(), "a listener removes its file");
        // A killed server leaves the file without a listener.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(listen_unix(&path, None, 16).unwrap());
        std::fs::write(&path, b"precious").unwrap();
        assert_eq!(listen_unix(&path, None, 16).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
