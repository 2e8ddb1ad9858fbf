//! Where a running server listens for TCP, which can be changed while it serves.
//!
//! Workers have handles of their own on every listening socket (`net/neighbours.rs`); here are others, to know what is
//! listened on and to end it. An address that stays keeps its socket, and with it whoever waits in its backlog. One that
//! goes stops listening before the new ones are opened, since these may overlap it (`127.0.0.1` and `*`); where a new one
//! cannot be had, it listens again.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use socket2::Socket;

use super::PostOffice;
use super::listener::{self, ListenError, Listener, tcp_address};
use super::post::Mail;

/// The TCP sockets that all workers listen on.
#[derive(Debug)]
pub struct Listening<L> {
    post: PostOffice<L>,
    /// `None` once the server has been told to stop.
    sockets: Mutex<Option<Vec<Socket>>>,
}

impl<L> Listening<L> {
    pub(super) fn new(post: PostOffice<L>, listeners: &[Listener]) -> io::Result<Self> {
        let of_tcp = listeners.iter().filter(|listener| listener.tcp_address().is_some());
        let sockets = of_tcp.map(|listener| listener.socket.try_clone()).collect::<io::Result<_>>()?;
        Ok(Self { post, sockets: Mutex::new(Some(sockets)) })
    }

    /// Listens on these addresses and this port from now on; where that fails, on the former ones. Clients that are
    /// connected stay so. The arguments are those of [`super::ListenOptions`].
    pub fn change(&self, addresses: &[String], port: Option<u16>, backlog: u32) -> Result<(), ListenError> {
        let mut sockets = self.lock();
        let Some(former) = &*sockets else { return Ok(()) };
        let (addresses, port) = port.map_or((&[][..], 0), |port| (addresses, port));
        let stays: Vec<SocketAddr> = listener::resolved(addresses, port).collect();
        let ended: Vec<&Socket> = former
            .iter()
            .filter(|socket| tcp_address(socket).is_none_or(|address| !stays.contains(&address)))
            .collect();
        // The system lets go of what waits in the backlog, and of the address for others that reuse it.
        ended.iter().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
        let opened = listener::listen_keeping(former, addresses, port, backlog)
            .and_then(|opened| Ok((self.doors(&opened).map_err(ListenError::System)?, opened)));
        match opened {
            Ok((doors, opened)) => {
                for (worker, listeners) in doors.into_iter().enumerate() {
                    self.post.post(worker, Mail::Doors(listeners));
                }
                *sockets = Some(opened);
                Ok(())
            }
            Err(error) => {
                for socket in ended {
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
    fn doors(&self, sockets: &[Socket]) -> io::Result<Vec<Vec<Listener>>> {
        let of_one = || sockets.iter().map(|socket| Ok(Listener::tcp(socket.try_clone()?))).collect();
        (0..self.post.workers()).map(|_| of_one()).collect()
    }

    /// Gives the handles up: the sockets are closed when the workers have given up theirs.
    pub(super) fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Socket>>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
