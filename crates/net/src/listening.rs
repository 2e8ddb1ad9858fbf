//! The TCP sockets on which a running server listens, which can be changed while it serves.
//!
//! Workers have handles of their own on every listening socket (`net/event_loop.rs`); here are others, to know what is
//! listened on and to end it. An address that stays keeps its socket, and with it the clients in its backlog. An
//! address that goes stops listening before the new ones are opened, since these may overlap it (`127.0.0.1` and `*`);
//! if a new one fails, it listens again. The backlog is accepted first, so no established connection is reset.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use socket2::{SockAddr, Socket};

use super::WorkerQueues;
use super::listener::{self, ListenError, Listener, tcp_address};
use super::worker_queue::Message;

/// How many are accepted at a listener that is about to be closed: more than a backlog has, unless they come faster.
const BACKLOG_MAX: usize = 1 << 16;

/// The TCP sockets that all workers listen on.
#[derive(Debug)]
pub struct Listening<M> {
    queues: WorkerQueues<M>,
    /// `None` once the server has been told to stop.
    sockets: Mutex<Option<Vec<Open>>>,
}

/// A listening socket.
#[derive(Debug)]
struct Open {
    socket: Socket,
    is_tls: bool,
}

impl<M> Listening<M> {
    pub(crate) fn new(queues: WorkerQueues<M>, listeners: &[Listener]) -> io::Result<Self> {
        let of_tcp = listeners.iter().filter(|listener| listener.tcp_address().is_some());
        let open =
            |listener: &Listener| Ok(Open { socket: listener.socket.try_clone()?, is_tls: listener.is_tls });
        let sockets = of_tcp.map(open).collect::<io::Result<_>>()?;
        Ok(Self { queues, sockets: Mutex::new(Some(sockets)) })
    }

    /// Listens on these addresses and ports from now on, the second for TLS; if that fails, on the former ones.
    /// Clients that are connected stay so. The arguments are those of [`super::ListenOptions`].
    ///
    /// # Errors
    /// If an address cannot be listened on.
    pub fn change(
        &self,
        addresses: &[String],
        port: Option<u16>,
        tls_port: Option<u16>,
        backlog: u32,
    ) -> Result<(), ListenError> {
        let mut sockets = self.lock();
        let Some(former) = &*sockets else { return Ok(()) };
        let wanted: Vec<(u16, bool)> =
            port.map(|port| (port, false)).into_iter().chain(tls_port.map(|port| (port, true))).collect();
        let stays: Vec<(SocketAddr, bool)> = wanted
            .iter()
            .flat_map(|(port, is_tls)| listener::resolved(addresses, *port).map(|address| (address, *is_tls)))
            .collect();
        let ended: Vec<&Open> = former
            .iter()
            .filter(|open| {
                tcp_address(&open.socket).is_none_or(|address| !stays.contains(&(address, open.is_tls)))
            })
            .collect();
        let waiting: Vec<_> = ended.iter().flat_map(|open| backlog_of(open)).collect();
        if !waiting.is_empty() {
            // To the worker that accepts.
            self.queues.post(0, Message::Backlog(waiting));
        }
        // The system lets go of the address for others that reuse it, and of connections that have come since.
        ended.iter().for_each(|open| drop(open.socket.shutdown(Shutdown::Both)));
        let open = |(port, is_tls): &(u16, bool)| {
            let alike: Vec<&Socket> =
                former.iter().filter(|open| open.is_tls == *is_tls).map(|open| &open.socket).collect();
            let opened = listener::listen_keeping(&alike, addresses, *port, backlog)?;
            Ok(opened.into_iter().map(|socket| Open { socket, is_tls: *is_tls }).collect::<Vec<_>>())
        };
        let opened = wanted.iter().map(open).collect::<Result<Vec<_>, _>>().and_then(|opened| {
            let opened: Vec<Open> = opened.into_iter().flatten().collect();
            Ok((self.listeners(&opened).map_err(ListenError::System)?, opened))
        });
        match opened {
            Ok((listeners, opened)) => {
                for (worker, listeners) in listeners.into_iter().enumerate() {
                    self.queues.post(worker, Message::Listeners(listeners));
                }
                *sockets = Some(opened);
                Ok(())
            }
            Err(error) => {
                for Open { socket, .. } in ended {
                    if let Err(error) = listener::start_listening(socket, backlog) {
                        let address =
                            tcp_address(socket).map_or_else(String::new, |address| address.to_string());
                        tracing::warn!("cannot listen on {address} any more: {error}");
                    }
                }
                Err(error)
            }
        }
    }

    /// The listeners of every worker.
    fn listeners(&self, sockets: &[Open]) -> io::Result<Vec<Vec<Listener>>> {
        let listener = |open: &Open| Ok(Listener::tcp(open.socket.try_clone()?, open.is_tls));
        let of_one = || sockets.iter().map(listener).collect();
        (0..self.queues.workers()).map(|_| of_one()).collect()
    }

    /// Gives the handles up: the sockets are closed when the workers have given up theirs.
    pub(crate) fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Open>>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts the connections in the backlog of a listening socket.
fn backlog_of(open: &Open) -> Vec<(Socket, SockAddr, bool)> {
    let mut backlog = Vec::new();
    while backlog.len() < BACKLOG_MAX {
        match open.socket.accept() {
            Ok((socket, peer)) => backlog.push((socket, peer, open.is_tls)),
            Err(error) => match error.kind() {
                // A client that has given up; there may be others.
                io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                _ => break,
            },
        }
    }
    backlog
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::fd::AsRawFd;

    use mio::{Events, Interest, Poll, Token, unix::SourceFd};

    use super::*;
    use crate::TestQueues;

    /// A client of that address that waits in its backlog.
    fn caller(socket: &Socket) -> TcpStream {
        let peer = TcpStream::connect(tcp_address(socket).unwrap()).unwrap();
        // The client may be told first.
        let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(1));
        let descriptor = socket.as_raw_fd();
        poll.registry().register(&mut SourceFd(&descriptor), Token(0), Interest::READABLE).unwrap();
        while events.is_empty() {
            poll.poll(&mut events, None).unwrap();
        }
        peer
    }

    /// No worker runs here, so that connections stay in the backlog.
    #[test]
    fn backlog_of_a_closing_port_is_accepted() {
        let (queues, messages) = TestQueues::<()>::of_workers(2);
        let addresses = ["127.0.0.1".to_owned(), "127.0.0.2".to_owned()];
        let sockets = listener::listen_on(&addresses, 0, 16).unwrap();
        let peers: Vec<TcpStream> = sockets.iter().map(caller).collect();
        let former = tcp_address(&sockets[0]).unwrap();
        let listeners: Vec<Listener> =
            sockets.into_iter().map(|socket| Listener::tcp(socket, false)).collect();
        let listening = Listening::new(queues, &listeners).unwrap();
        listening.change(&addresses, None, None, 16).unwrap();
        assert!(TcpStream::connect(former).is_err(), "nobody else is let in");
        let [Message::Backlog(backlog), Message::Listeners(listeners)] = &messages.messages(0)[..] else {
            panic!("other messages")
        };
        assert!(listeners.is_empty());
        assert_eq!(backlog.len(), peers.len());
        for (peer, (socket, from, _)) in peers.iter().zip(backlog) {
            assert_eq!(from.as_socket(), Some(peer.local_addr().unwrap()));
            assert_eq!(tcp_address(socket), Some(peer.peer_addr().unwrap()));
        }
        assert!(matches!(messages.messages(1)[..], [Message::Listeners(_)]));
    }
}
