//! A connection's TLS over rustls's interface without buffers.
//!
//! ```text
//! receive: held │ one read of the socket ─▶ thread's buffer ─ decrypted in place ─▶ room of the caller
//!            ▲                                    │ what is not whole, or finds no room
//!            └────────────────────────────────────┘
//! send:    plaintext ─ up to 16 KiB a record ─▶ thread's buffer ─▶ socket
//!                                                    └ what it does not take ─▶ unsent
//! ```
//!
//! Bytes of records are in a buffer of the thread; a connection keeps only what is not whole yet, finds no room or does
//! not leave. An idle connection keeps nothing but its keys. A long value is encrypted in pieces of [`STEP_BYTES`], as the
//! socket takes them.
//!
//! Invariants:
//! - The library is always given what it has not had discarded: it keeps positions in it.
//! - `plaintext` is no longer than one record, `held` than one read and a record, `unsent` than one step and a flight of a
//!   handshake.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice};

use dunlin_certificates::failure;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{CommonState, Error, HandshakeKind};
use socket2::Socket;

use super::{Identity, TlsClient, TlsServer};
use crate::stream::{Received, Sent};

/// Ciphertext that is read at once.
const READ_BYTES: usize = 64 * 1024;
/// Ciphertext that a read asks for, at least.
const READ_BYTES_MIN: usize = 4 * 1024;
/// Plaintext of one record.
const RECORD_BYTES: usize = 16 * 1024;
/// Plaintext that is encrypted before the socket is offered it.
const STEP_BYTES: usize = 4 * RECORD_BYTES;
/// Plaintext that one call takes: as much as a plain socket is offered at once.
const SENT_BYTES_MAX: usize = 512 * 1024;
/// Bytes of a record beside its plaintext, generously.
const RECORD_OVERHEAD: usize = 256;

/// Buffers that a thread lends to the session at hand.
#[derive(Default)]
struct Buffers {
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// Small pieces of plaintext on their way into one record.
    gathered: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = const {
        RefCell::new(Buffers { incoming: Vec::new(), outgoing: Vec::new(), gathered: Vec::new() })
    };
}

enum Connection {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

impl Connection {
    fn common(&self) -> &CommonState {
        match self {
            Self::Server(connection) => connection,
            Self::Client(connection) => connection,
        }
    }

    /// Goes on by one step with the front of `incoming`: how many bytes of it are done with, and the result. Plaintext
    /// goes to `take`, records that are to be sent to `outgoing`.
    fn step(
        &mut self,
        incoming: &mut [u8],
        take: &mut dyn FnMut(&[u8]),
        outgoing: &mut Vec<u8>,
        send: Option<Order<'_>>,
    ) -> (usize, Result<Step, Error>) {
        match self {
            Self::Server(connection) => act(connection.process_tls_records(incoming), take, outgoing, send),
            Self::Client(connection) => act(connection.process_tls_records(incoming), take, outgoing, send),
        }
    }
}

/// The plaintext or alert to be sent once no record waits.
#[derive(Clone, Copy)]
enum Order<'a> {
    Plaintext(&'a [u8]),
    CloseNotify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// There may be more to do.
    Advanced,
    /// The handshake needs more input.
    Handshaking,
    /// Nothing is left to do; plaintext can be sent.
    Ready,
    /// The order was carried out.
    Ordered,
    /// The peer sends nothing more.
    PeerClosed,
    /// Neither side does.
    Closed,
}

/// Acts on one state of the library.
fn act<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    take: &mut dyn FnMut(&[u8]),
    outgoing: &mut Vec<u8>,
    send: Option<Order<'_>>,
) -> (usize, Result<Step, Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Ok(Step::Advanced),
                Some(Err(error)) => break Err(error),
                Some(Ok(record)) => {
                    discard += record.discard;
                    take(record.payload);
                }
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            append(outgoing, RECORD_BYTES + RECORD_OVERHEAD, |room| match data.encode(room) {
                Ok(count) => Ok(count),
                Err(EncodeError::InsufficientSize(error)) => Err(Some(error.required_size)),
                Err(EncodeError::AlreadyEncoded) => Err(None),
            })
            .map(|()| Step::Advanced)
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Step::Advanced)
        }
        Ok(ConnectionState::WriteTraffic(mut traffic)) => match send {
            None => Ok(Step::Ready),
            Some(order) => {
                let room = match order {
                    Order::Plaintext(plaintext) => {
                        plaintext.len() + (plaintext.len() / RECORD_BYTES + 1) * RECORD_OVERHEAD
                    }
                    Order::CloseNotify => RECORD_OVERHEAD,
                };
                let encrypt = |room: &mut [u8]| {
                    let written = match order {
                        Order::Plaintext(plaintext) => traffic.encrypt(plaintext, room),
                        Order::CloseNotify => traffic.queue_close_notify(room),
                    };
                    written.map_err(|error| match error {
                        EncryptError::InsufficientSize(error) => Some(error.required_size),
                        EncryptError::EncryptExhausted => None,
                    })
                };
                append(outgoing, room, encrypt).map(|()| Step::Ordered)
            }
        },
        Ok(ConnectionState::PeerClosed) => Ok(Step::PeerClosed),
        Ok(ConnectionState::Closed) => Ok(Step::Closed),
        Ok(ConnectionState::BlockedHandshake) => Ok(Step::Handshaking),
        // Early data are never offered, and other states do not exist.
        Ok(_) => Err(Error::HandshakeNotComplete),
    };
    (discard, step)
}

/// Appends what `write` writes into the room that it is given: at first `room`, then as much as it asks for.
fn append(
    outgoing: &mut Vec<u8>,
    room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Result<(), Error> {
    let start = outgoing.len();
    let mut room = room;
    loop {
        outgoing.resize(start + room, 0);
        match write(&mut outgoing[start..]) {
            Ok(count) => {
                outgoing.truncate(start + count);
                return Ok(());
            }
            Err(Some(wanted)) if wanted > room => room = wanted,
            Err(_) => {
                outgoing.truncate(start);
                return Err(Error::EncryptError);
            }
        }
    }
}

/// The TLS of one connection.
pub(crate) struct Session {
    connection: Connection,
    /// Records that were received and are not decrypted yet.
    held: Vec<u8>,
    /// Plaintext that has found no room.
    plaintext: Vec<u8>,
    /// Records that the socket has not taken.
    unsent: Vec<u8>,
    /// The peer sends nothing more.
    has_ended: bool,
    /// This side sends nothing more.
    has_finished: bool,
    /// A record was wrong: nothing more is read or sent.
    has_failed: bool,
}

impl fmt::Debug for Session {
    /// Shows no keys and no plaintext.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Session").field("is_handshaking", &self.is_handshaking()).finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn accept(server: &TlsServer) -> io::Result<Self> {
        let connection = UnbufferedServerConnection::new(server.config.clone()).map_err(io::Error::other)?;
        Ok(Self::new(Connection::Server(connection)))
    }

    pub(crate) fn connect(client: &TlsClient) -> io::Result<Self> {
        let connection = UnbufferedClientConnection::new(client.config.clone(), client.name.clone())
            .map_err(io::Error::other)?;
        Ok(Self::new(Connection::Client(connection)))
    }

    fn new(connection: Connection) -> Self {
        Self {
            connection,
            held: Vec::new(),
            plaintext: Vec::new(),
            unsent: Vec::new(),
            has_ended: false,
            has_finished: false,
            has_failed: false,
        }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.common().is_handshaking()
    }

    pub(crate) fn has_resumed(&self) -> bool {
        self.connection.common().handshake_kind() == Some(HandshakeKind::Resumed)
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub(crate) fn peer_identity(&self) -> Option<Identity> {
        Identity::of(self.connection.common().peer_certificates()?.first()?)
    }

    /// Gives `take` the plaintext of one read of the socket, at most `room` bytes.
    pub(crate) fn receive(
        &mut self,
        socket: &Socket,
        room: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Received> {
        if self.has_failed {
            return Err(io::ErrorKind::InvalidData.into());
        }
        BUFFERS.with_borrow_mut(|buffers| {
            let Buffers { incoming, outgoing, .. } = buffers;
            incoming.clear();
            incoming.extend_from_slice(&self.held);
            self.held = Vec::new();
            outgoing.clear();
            let received = self.receive_through(socket, incoming, outgoing, room, take);
            self.send_records(socket, outgoing)?;
            received
        })
    }

    fn receive_through(
        &mut self,
        socket: &Socket,
        incoming: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
        room: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Received> {
        let given = self.plaintext.len().min(room);
        if given > 0 {
            take(&self.plaintext[..given]);
            self.plaintext.drain(..given);
            if self.plaintext.is_empty() {
                self.plaintext = Vec::new();
            }
        }
        let mut received = Received { bytes: given, ..Received::default() };
        let mut start = 0;
        if !incoming.is_empty() || self.is_handshaking() {
            self.decrypt(incoming, &mut start, outgoing, room, take, &mut received)?;
        }
        // The bytes that were held may be all that the caller has room for.
        if received.bytes == 0 && !self.has_ended {
            let asked = room.clamp(READ_BYTES_MIN, READ_BYTES) + 2 * RECORD_OVERHEAD;
            let end = incoming.len();
            incoming.reserve(asked);
            let spare = &mut incoming.spare_capacity_mut()[..asked];
            match rustix::net::recv(socket, &mut *spare, RecvFlags::empty()) {
                Ok(((_, _), 0)) => self.has_ended = true,
                Ok(((_, _), count)) => {
                    // SAFETY: the system has written `count` bytes behind the end.
                    unsafe { incoming.set_len(end + count) };
                    received.has_more = count == asked;
                    self.decrypt(incoming, &mut start, outgoing, room, take, &mut received)?;
                }
                Err(Errno::AGAIN) => received.is_drained = true,
                Err(Errno::INTR) => received.has_more = true,
                Err(error) => return Err(error.into()),
            }
        } else {
            received.has_more = !self.has_ended;
        }
        self.held = incoming[start..].to_vec();
        received.has_more |= !self.plaintext.is_empty() || received.bytes == room;
        // Plaintext before the end comes first.
        received.has_ended = self.has_ended && !received.has_more;
        Ok(received)
    }

    /// Decrypts records while there is room for their plaintext.
    fn decrypt(
        &mut self,
        incoming: &mut [u8],
        start: &mut usize,
        outgoing: &mut Vec<u8>,
        room: usize,
        take: &mut dyn FnMut(&[u8]),
        received: &mut Received,
    ) -> io::Result<()> {
        let Self { connection, plaintext, has_ended, has_failed, .. } = self;
        let given = &mut received.bytes;
        while *given < room && !*has_ended {
            let mut give = |bytes: &[u8]| {
                let (now, later) = bytes.split_at(bytes.len().min(room - *given));
                take(now);
                *given += now.len();
                plaintext.extend_from_slice(later);
            };
            let (discard, step) = connection.step(&mut incoming[*start..], &mut give, outgoing, None);
            *start += discard;
            match step {
                Ok(Step::Advanced | Step::Ordered) => {}
                Ok(Step::Handshaking | Step::Ready) => break,
                Ok(Step::PeerClosed | Step::Closed) => *has_ended = true,
                Err(error) => {
                    *has_failed = true;
                    // The alert that tells the peer.
                    let _ = connection.step(&mut incoming[*start..], &mut |_| {}, outgoing, None);
                    return Err(failure(error));
                }
            }
        }
        Ok(())
    }

    /// Encrypts and sends what the socket takes. Bytes that were taken leave before any later ones.
    pub(crate) fn send(&mut self, socket: &Socket, slices: &[IoSlice<'_>]) -> io::Result<Sent> {
        if !self.flush(socket)? {
            return Ok(Sent { bytes: 0, is_full: true });
        }
        if self.is_handshaking() {
            // A client speaks first.
            self.drive(socket)?;
            return Ok(Sent { bytes: 0, is_full: true });
        }
        BUFFERS.with_borrow_mut(|buffers| {
            let Buffers { outgoing, gathered, .. } = buffers;
            outgoing.clear();
            gathered.clear();
            let mut taken = 0;
            for slice in slices {
                let mut rest = &slice[..];
                while !rest.is_empty() && self.unsent.is_empty() && taken < SENT_BYTES_MAX {
                    // Whole records need no copy; what is between them shares one.
                    if gathered.is_empty() && rest.len() >= RECORD_BYTES {
                        let (piece, behind) =
                            rest.split_at((rest.len().min(STEP_BYTES)) / RECORD_BYTES * RECORD_BYTES);
                        self.order(Order::Plaintext(piece), outgoing)?;
                        (taken, rest) = (taken + piece.len(), behind);
                    } else {
                        let (piece, behind) = rest.split_at(rest.len().min(RECORD_BYTES - gathered.len()));
                        gathered.extend_from_slice(piece);
                        rest = behind;
                        if gathered.len() == RECORD_BYTES {
                            self.order(Order::Plaintext(gathered), outgoing)?;
                            taken += gathered.len();
                            gathered.clear();
                        }
                    }
                    if outgoing.len() >= STEP_BYTES {
                        self.send_records(socket, outgoing)?;
                    }
                }
            }
            if !gathered.is_empty() && self.unsent.is_empty() {
                self.order(Order::Plaintext(gathered), outgoing)?;
                taken += gathered.len();
            }
            self.send_records(socket, outgoing)?;
            Ok(Sent { bytes: taken, is_full: self.has_unsent() })
        })
    }

    /// Sends the bytes of the handshake that are due before the peer says more.
    fn drive(&mut self, socket: &Socket) -> io::Result<()> {
        BUFFERS.with_borrow_mut(|buffers| {
            let outgoing = &mut buffers.outgoing;
            outgoing.clear();
            let Self { connection, held, plaintext, has_failed, .. } = self;
            loop {
                let mut keep = |bytes: &[u8]| plaintext.extend_from_slice(bytes);
                let (discard, step) = connection.step(held, &mut keep, outgoing, None);
                held.drain(..discard);
                match step {
                    Ok(Step::Advanced) => {}
                    Ok(_) => break,
                    Err(error) => {
                        *has_failed = true;
                        return Err(failure(error));
                    }
                }
            }
            self.send_records(socket, outgoing)
        })
    }

    /// Carries an order out, after the handshake.
    fn order(&mut self, order: Order<'_>, outgoing: &mut Vec<u8>) -> io::Result<()> {
        if self.has_finished || self.has_failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let Self { connection, held, plaintext, .. } = self;
        loop {
            let mut keep = |bytes: &[u8]| plaintext.extend_from_slice(bytes);
            let (discard, step) = connection.step(held, &mut keep, outgoing, Some(order));
            held.drain(..discard);
            match step {
                Ok(Step::Advanced | Step::Ready) => {}
                Ok(Step::PeerClosed) => self.has_ended = true,
                Ok(Step::Ordered) => return Ok(()),
                Ok(Step::Handshaking | Step::Closed) => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(error) => {
                    self.has_failed = true;
                    return Err(failure(error));
                }
            }
        }
    }

    /// Tells the peer that nothing more is sent.
    pub(crate) fn finish(&mut self, socket: &Socket) -> io::Result<()> {
        BUFFERS.with_borrow_mut(|buffers| {
            let outgoing = &mut buffers.outgoing;
            outgoing.clear();
            if self.flush(socket)? {
                self.order(Order::CloseNotify, outgoing)?;
                self.has_finished = true;
            }
            self.send_records(socket, outgoing)
        })
    }

    /// Sends records that wait, and returns whether none is left.
    pub(crate) fn flush(&mut self, socket: &Socket) -> io::Result<bool> {
        if self.unsent.is_empty() {
            return Ok(true);
        }
        let sent = write(socket, &self.unsent)?;
        self.unsent.drain(..sent);
        if self.unsent.is_empty() {
            self.unsent = Vec::new();
        }
        Ok(self.unsent.is_empty())
    }

    /// Sends records, behind those that wait; what the socket does not take waits.
    fn send_records(&mut self, socket: &Socket, outgoing: &mut Vec<u8>) -> io::Result<()> {
        if outgoing.is_empty() {
            return Ok(());
        }
        let sent = if self.flush(socket)? { write(socket, outgoing)? } else { 0 };
        self.unsent.extend_from_slice(&outgoing[sent..]);
        outgoing.clear();
        Ok(())
    }
}

/// A socket that would block, and a signal, are both "took nothing this time".
fn write(socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
    match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL) {
        Ok(count) => Ok(count),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}
