//! A client's socket, plain or inside TLS: reads and writes return bytes and readiness.
//!
//! ```text
//!              receive                 send
//!  socket ─────────────▶ plaintext ─────────────▶ socket
//!     └─ records ─ Session ─┘   └─ Session ─ records ─┘      inside TLS
//! ```
//!
//! Neither call waits. A plain socket costs one branch more than none.
//!
//! Invariants:
//! - Plaintext that was taken leaves without further calls for it, but for [`Stream::flush`] if [`Stream::has_unsent`].
//! - A session is locked for one read or one write, never while something else is waited for.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::Socket;

use super::tls::{Identity, Session, TlsClient, TlsServer};

/// Unread input that is thrown away before closing, so that the peer is not sent a reset.
const DISCARDED_BYTES_MAX: usize = 1024 * 1024;

/// The outcome of a read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Received {
    /// Bytes of plaintext.
    pub(crate) bytes: usize,
    /// There may be more right away.
    pub(crate) has_more: bool,
    /// The socket has said that it has nothing more.
    pub(crate) is_drained: bool,
    /// The peer has ended its side.
    pub(crate) has_ended: bool,
}

impl Received {
    /// The outcome of a plain read with `room` bytes of room.
    #[inline]
    pub(crate) fn of(received: Result<usize, Errno>, room: usize) -> io::Result<Self> {
        let nothing = Self::default();
        match received {
            Ok(0) => Ok(Self { has_ended: true, ..nothing }),
            Ok(bytes) => Ok(Self { bytes, has_more: bytes == room, ..nothing }),
            Err(Errno::AGAIN) => Ok(Self { is_drained: true, ..nothing }),
            Err(Errno::INTR) => Ok(Self { has_more: true, ..nothing }),
            Err(error) => Err(error.into()),
        }
    }
}

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Bytes of plaintext that were taken.
    pub(crate) bytes: usize,
    /// The socket's buffer is full.
    pub(crate) is_full: bool,
}

/// A connected socket that does not block, plain or inside TLS.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    tls: Option<Box<Mutex<Session>>>,
}

impl Stream {
    /// A plain one.
    pub fn plain(socket: Socket) -> Self {
        Self { socket, tls: None }
    }

    /// The server's side of TLS.
    ///
    /// # Errors
    /// If the configuration allows no session.
    pub fn accept(socket: Socket, server: &TlsServer) -> io::Result<Self> {
        Ok(Self { socket, tls: Some(Box::new(Mutex::new(Session::accept(server)?))) })
    }

    /// The client's side of TLS, which begins the handshake with the first read or write.
    ///
    /// # Errors
    /// If the configuration allows no session.
    pub fn connect(socket: Socket, client: &TlsClient) -> io::Result<Self> {
        Ok(Self { socket, tls: Some(Box::new(Mutex::new(Session::connect(client)?))) })
    }

    /// The socket underneath, for its addresses and options.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Whether it is inside TLS.
    #[inline]
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether the handshake of TLS is still under way.
    pub fn is_handshaking(&self) -> bool {
        self.session().is_some_and(|session| session.is_handshaking())
    }

    /// Whether the handshake has resumed an earlier session.
    pub(crate) fn has_resumed(&self) -> bool {
        self.session().is_some_and(|session| session.has_resumed())
    }

    /// The certificate that the peer has shown, if it has one.
    pub fn peer_identity(&self) -> Option<Identity> {
        self.session()?.peer_identity()
    }

    /// Reads once, into the spare capacity of `buffer`.
    #[inline]
    pub(crate) fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<Received> {
        let room = buffer.capacity() - buffer.len();
        if let Some(mut session) = self.session() {
            return session.receive(&self.socket, room, &mut |bytes| buffer.extend_from_slice(bytes));
        }
        let spare = rustix::buffer::spare_capacity(buffer);
        Received::of(rustix::net::recv(&self.socket, spare, RecvFlags::empty()).map(|(_, count)| count), room)
    }

    /// Reads once, into `room`.
    #[inline]
    pub(crate) fn receive_into(&self, room: &mut [u8]) -> io::Result<Received> {
        if let Some(mut session) = self.session() {
            let mut at = 0;
            return session.receive(&self.socket, room.len(), &mut |bytes| {
                room[at..][..bytes.len()].copy_from_slice(bytes);
                at += bytes.len();
            });
        }
        let received = rustix::net::recv(&self.socket, &mut *room, RecvFlags::empty());
        Received::of(received.map(|(count, _)| count), room.len())
    }

    /// Writes what the socket takes, without raising SIGPIPE. The calls for sockets pass over what those for files look
    /// at on their way.
    #[inline]
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<Sent> {
        if let Some(mut session) = self.session() {
            return session.send(&self.socket, &[IoSlice::new(bytes)]);
        }
        plain_sent(rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL), bytes.len())
    }

    /// [`Self::send`] of several runs of bytes.
    pub(crate) fn send_slices(&self, slices: &[IoSlice<'_>]) -> io::Result<Sent> {
        if let Some(mut session) = self.session() {
            return session.send(&self.socket, slices);
        }
        let offered = slices.iter().map(|slice| slice.len()).sum();
        plain_sent(rustix::io::writev(&self.socket, slices), offered)
    }

    /// Whether records wait for the socket.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.session().is_some_and(|session| session.has_unsent())
    }

    /// Sends records that wait, and returns whether none is left.
    ///
    /// # Errors
    /// As of a write.
    pub fn flush(&self) -> io::Result<bool> {
        self.session().map_or(Ok(true), |mut session| session.flush(&self.socket))
    }

    /// Shuts the socket down.
    ///
    /// # Errors
    /// If it is not connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }

    /// Ends a conversation so that the peer reads the last words: closing a socket with unread input resets the
    /// connection, which may overtake them.
    pub(crate) fn finish(&self) {
        if let Some(mut session) = self.session() {
            // A peer that has stopped reading is not told.
            let _ = session.finish(&self.socket);
        }
        finish(&self.socket);
    }

    #[inline]
    fn session(&self) -> Option<MutexGuard<'_, Session>> {
        let tls = self.tls.as_ref()?;
        // A session that failed half-way refuses all further records.
        Some(tls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A socket that would block, and a signal, are both "took nothing this time".
#[inline]
fn plain_sent(written: Result<usize, Errno>, offered: usize) -> io::Result<Sent> {
    match written {
        Ok(bytes) => Ok(Sent { bytes, is_full: bytes < offered }),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Sent { bytes: 0, is_full: offered > 0 }),
        Err(error) => Err(error.into()),
    }
}

/// Shuts a socket down for writing and throws away what it has received.
pub(crate) fn finish(socket: &Socket) {
    if socket.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let mut discarded = [0; 4096];
    for _ in 0..DISCARDED_BYTES_MAX / discarded.len() {
        match rustix::io::read(socket, &mut discarded) {
            Ok(count) if count == discarded.len() => {}
            _ => return,
        }
    }
}

/// Fails with [`io::ErrorKind::WouldBlock`] if nothing can be read now, for users without a poller of readiness.
impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let received = self.receive_into(buffer)?;
            if received.bytes > 0 || received.has_ended {
                return Ok(received.bytes);
            }
            if !received.has_more {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
    }
}

/// Fails with [`io::ErrorKind::WouldBlock`] if the socket takes nothing now. Inside TLS, bytes that were taken may
/// still wait for the socket ([`Stream::has_unsent`]).
impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.send_slices(slices)? {
            Sent { bytes: 0, is_full: true } => Err(io::ErrorKind::WouldBlock.into()),
            Sent { bytes, .. } => Ok(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match Stream::flush(self)? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
