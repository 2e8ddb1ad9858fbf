//! Health over HTTP, for load balancers and orchestrators: `GET /health`.
//!
//! ```text
//! 200 ok                      commands are served
//! 503 the data set is …       it is being loaded: clients are answered LOADING
//! 503 the append-only …       the disk fails: writes are refused
//! ```
//!
//! One thread, which never touches the keyspace or waits for a worker: the answer comes at once however
//! busy these are. Nothing secret is told, so there is no password.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::Socket;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use dunlin_net::HTTP_CLIENTS_MAX;

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
pub(crate) struct HealthServer {
    addresses: Vec<SocketAddr>,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl HealthServer {
    /// Starts to answer on these sockets, which listen already.
    pub(crate) fn start(shared: &Arc<Shared>, sockets: Vec<Socket>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(shared);
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
                    tokio::spawn(accept(listener, Arc::clone(&connections), Arc::clone(&shared)));
                }
                // Nothing is ever sent: the other end is dropped.
                let _ = stopped.await;
            });
        };
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(serve)?;
        Ok(Self { addresses, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it answers.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for HealthServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of its own has been told already, and concerns nobody else.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for HealthServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HealthServer").finish_non_exhaustive()
    }
}

/// The open connections. Where there are as many as may be, the next one waits until one of them ends, or until the
/// oldest has had [`HOLD_MIN`] and is closed: nobody keeps others out by holding a connection, and a burst of clients
/// is answered one after the other.
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

async fn accept(listener: TcpListener, connections: Arc<Connections>, shared: Arc<Shared>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!("cannot accept an HTTP client: {error}");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let room = connections.room().await;
        let shared = Arc::clone(&shared);
        let connection = tokio::spawn(async move {
            let _room = room;
            let service = service_fn(|request| {
                let response = respond(&request, &shared);
                async move { Ok::<_, Infallible>(response) }
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(HEAD_BYTES_MAX);
            // What goes wrong here is a client's doing, and its connection ends.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
        connections.enter(connection.abort_handle());
    }
}

fn respond(request: &Request<Incoming>, shared: &Shared) -> Response<Full<Bytes>> {
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let (status, text) = match request.uri().path() {
        "/health" if is_read => match complaint(shared) {
            None => (StatusCode::OK, "ok\n".to_owned()),
            Some(complaint) => (StatusCode::SERVICE_UNAVAILABLE, complaint + "\n"),
        },
        "/health" => (StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "there is /health\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// Why commands are not served as they should be.
fn complaint(shared: &Shared) -> Option<String> {
    if let Some(progress) = shared.loading.progress() {
        return Some(format!("the data set is being loaded: {:.0}%", progress.percent()));
    }
    if shared.durability.is_failing() {
        let reason = shared.durability.status().write_error.clone().unwrap_or_default();
        return Some(format!("the append-only file cannot be written: {reason}"));
    }
    None
}
