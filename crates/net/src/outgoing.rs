//! Connections that the server makes itself: links to primaries and to nodes of its cluster.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

/// Begins a connection without waiting for it: the socket becomes writable when it is made, or has an error.
///
/// The connection comes from `source` if this machine has the address and it is of the same family; otherwise the
/// system chooses, as it does for redis-server.
///
/// # Errors
/// When the system has no socket left, or knows at once that there is no way to the address.
pub fn begin_connection(address: SocketAddr, source: Option<IpAddr>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    if let Some(source) = source.filter(|source| source.is_ipv4() == address.is_ipv4())
        && let Err(error) = socket.bind(&SocketAddr::new(source, 0).into())
    {
        tracing::warn!("bind-source-addr {source} cannot be used: {error}");
    }
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => Err(error),
        _ => Ok(socket),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The address that a listener sees of a connection from `source`.
    fn seen(source: Option<&str>) -> IpAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let source = source.map(|source| source.parse().unwrap());
        let _socket = begin_connection(listener.local_addr().unwrap(), source).unwrap();
        listener.accept().unwrap().1.ip()
    }

    #[test]
    fn begin_connection_comes_from_its_source_if_the_machine_has_it() {
        assert_eq!(seen(Some("127.0.0.7")).to_string(), "127.0.0.7");
        assert_eq!(seen(None).to_string(), "127.0.0.1");
        // An address of another machine, and one of another family.
        assert_eq!(seen(Some("192.0.2.1")).to_string(), "127.0.0.1");
        assert_eq!(seen(Some("::1")).to_string(), "127.0.0.1");
    }
}
