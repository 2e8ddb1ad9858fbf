//! HTTP on `http-port`: health for load balancers, metrics for Prometheus, the console for people.
//!
//! ```text
//! accept ─▶ Connections: at most so many, the oldest gives way ─▶ hyper: head within 5 s and 8 KiB
//!        ─▶ guard: method, body, Host ─▶ routes: /health /metrics, files of the console
//!                                        └─▶ /connect: place among the consoles ─▶ WebSocket ◀─▶ pair of sockets ◀─▶ a worker,
//!                                                                                                                  or another node
//! ```
//!
//! A thread of its own, which never waits for a worker: what takes long to look at is left out (`survey_unless_long`).
//! A fault here ends a connection, never the serving of commands.

mod console;
mod consoles;
mod guard;
mod health;
mod relay;
mod routes;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::Socket;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use dunlin_net::HTTP_CLIENTS_MAX;

use self::routes::Site;
use crate::shared::Shared;

/// How long a client may take to send the head of a request, or leave its connection idle.
const HEAD_MAX: Duration = Duration::from_secs(5);
/// Bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// Pause after an accept has failed for lack of descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How long a connection is safe from being closed in favour of the next. An answer takes less than a millisecond.
const HOLD_MIN: Duration = Duration::from_millis(100);

/// The thread that answers; it ends when this is dropped.
pub(crate) struct HttpServer {
    addresses: Vec<SocketAddr>,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Starts to answer on these sockets, which listen already.
    pub(crate) fn start(shared: &Arc<Shared>, sockets: Vec<Socket>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (stop, stopped) = oneshot::channel();
        let site = Arc::new(Site::new(shared));
        let listeners = {
            let _entered = runtime.enter();
            let sockets = sockets.into_iter().map(|socket| TcpListener::from_std(socket.into()));
            sockets.collect::<io::Result<Vec<_>>>()?
        };
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
        let serve = move || {
            runtime.block_on(async move {
                let connections = Arc::new(Connections::new());
                for listener in listeners {
                    tokio::spawn(accept(listener, Arc::clone(&connections), Arc::clone(&site)));
                }
                // Nothing is ever sent: the other end is dropped.
                let _ = stopped.await;
            });
        };
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(serve)?;
        Ok(Self { addresses, stop: Some(stop), thread: Some(thread) })
    }

    /// The addresses on which it answers.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of its own has been reported already, and concerns no other thread.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for HttpServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HttpServer").finish_non_exhaustive()
    }
}

/// The two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ends {
    peer: SocketAddr,
    local: SocketAddr,
}

/// The open connections. If there are as many as may be, the next one waits until one of them ends, or until the
/// oldest has had [`HOLD_MIN`] and is closed. So no client keeps others out by holding a connection, and a burst of
/// clients is answered one after the other.
#[derive(Debug)]
struct Connections {
    free: Arc<Semaphore>,
    /// The oldest first, with the time since when it is open. Some have ended.
    open: Mutex<VecDeque<(Instant, AbortHandle)>>,
}

impl Connections {
    fn new() -> Self {
        Self { free: Arc::new(Semaphore::new(HTTP_CLIENTS_MAX as usize)), open: Mutex::default() }
    }

    /// Room for one connection, for as long as the permit is kept.
    async fn room(&self) -> OwnedSemaphorePermit {
        loop {
            let permit = Arc::clone(&self.free).acquire_owned();
            match timeout(self.wait_max(), permit).await {
                Ok(permit) => return permit.expect("nobody closes the semaphore"),
                Err(_) => self.close_oldest(),
            }
            // A closed connection gives its room back when the runtime comes to it.
            tokio::task::yield_now().await;
        }
    }

    /// Until the oldest connection has been open for [`HOLD_MIN`].
    fn wait_max(&self) -> Duration {
        let open = self.lock();
        HOLD_MIN.saturating_sub(open.front().map_or(Duration::ZERO, |(since, _)| since.elapsed()))
    }

    /// Closes the oldest connection, if it has been open for [`HOLD_MIN`].
    fn close_oldest(&self) {
        let mut open = self.lock();
        if let Some((_, connection)) = open.pop_front_if(|(since, _)| since.elapsed() >= HOLD_MIN) {
            connection.abort();
        }
    }

    fn enter(&self, connection: AbortHandle) {
        let mut open = self.lock();
        open.retain(|(_, connection)| !connection.is_finished());
        open.push_back((Instant::now(), connection));
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, AbortHandle)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: TcpListener, connections: Arc<Connections>, site: Arc<Site>) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok((stream, peer)) => (stream, peer),
            Err(error) => {
                tracing::debug!("cannot accept an HTTP client: {error}");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let room = connections.room().await;
        let site = Arc::clone(&site);
        // A connection that has gone has no address left.
        let Ok(local) = stream.local_addr() else { continue };
        let ends = Ends { peer, local };
        let connection = tokio::spawn(async move {
            let _room = room;
            let service = service_fn(|request| {
                let site = Arc::clone(&site);
                async move { Ok::<_, Infallible>(routes::respond(request, &site, ends).await) }
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(HEAD_BYTES_MAX);
            // A fault here is a client's doing, and its connection ends.
            let _ = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
        });
        connections.enter(connection.abort_handle());
    }
}
