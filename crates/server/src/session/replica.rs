//! A client that is a replica, for the thread that sends it the stream and for the worker that reads from it.

use std::{
    net::Shutdown,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Release, SeqCst},
        },
    },
};

use dunlin_net::{Client, Stream, Transport};
use dunlin_replication::{Peer, Phase};

/// A client that is a replica, or has said that it will be.
pub(crate) struct ReplicaClient {
    pub(crate) client: Arc<Client>,
    pub(crate) socket: Arc<Stream>,
    pub(crate) peer: Mutex<Peer>,
    /// Whether it has asked for the stream: from then on it is sent that alone, and sends no requests.
    pub(crate) has_asked: AtomicBool,
    /// Its request that was not answered yet.
    pub(crate) wanted: Mutex<Option<Wanted>>,
    /// The ring's offset behind what it has been sent.
    pub(crate) sent: AtomicU64,
    /// Whether a thread of its own is sending it the log's files.
    pub(crate) is_catching_up: AtomicBool,
    pub(crate) is_gone: AtomicBool,
}

/// The request by which a client becomes a replica.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    /// PSYNC: the history's id, and the first byte that it lacks.
    Stream { id: Vec<u8>, offset: i64 },
    /// SYNC.
    Snapshot,
}

impl std::fmt::Debug for ReplicaClient {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ReplicaClient").field("client", &self.client.id()).finish_non_exhaustive()
    }
}

impl ReplicaClient {
    /// `now_ms` are the milliseconds of the server's own clock.
    pub(crate) fn new(client: &Arc<Client>, socket: Arc<Stream>, now_ms: u64) -> Self {
        Self {
            client: Arc::clone(client),
            socket,
            peer: Mutex::new(Peer::new(now_ms)),
            has_asked: AtomicBool::new(false),
            wanted: Mutex::default(),
            sent: AtomicU64::new(u64::MAX),
            is_catching_up: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        }
    }

    pub(crate) fn peer(&self) -> MutexGuard<'_, Peer> {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wanted(&self) -> MutexGuard<'_, Option<Wanted>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connection: its worker sees it closed.
    pub(crate) fn cut(&self, reason: &str) {
        if !self.is_gone.swap(true, SeqCst) {
            tracing::warn!("the link to the replica {} is cut: {reason}", self.client);
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }

    /// Sets the start of the stream for it, after its snapshot.
    pub(crate) fn begin_at(&self, ring_offset: u64) {
        self.sent.store(ring_offset, Release);
    }

    /// Shows how many bytes of the stream, which has come to the ring's offset `published`, it was not sent. The feeder only.
    pub(crate) fn note_lag(&self, published: u64) {
        self.client.stream_bytes.set(published.saturating_sub(self.sent.load(Acquire)));
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(SeqCst)
    }

    /// Whether it follows the stream, and has not been sent all up to the ring's `tail`, or has not acknowledged an offset.
    pub(crate) fn is_behind(&self, tail: u64, offset: u64) -> bool {
        let peer = self.peer();
        // SYNC knows no acknowledgements.
        let has_acknowledged = peer.acked >= offset || peer.is_old;
        let is_online = !self.is_gone() && peer.phase() == Phase::Online;
        is_online && (self.sent.load(Acquire) < tail || !has_acknowledged)
    }

    /// The address at which clients find it: its host, and the port that it listens on.
    pub(crate) fn address(&self) -> (String, u16) {
        let peer = self.peer();
        let announced = peer.address.clone();
        let address = announced.unwrap_or_else(|| match &self.client.transport {
            Transport::Tcp { peer, .. } => peer.ip().to_canonical().to_string(),
            Transport::Unix(_) => "127.0.0.1".to_owned(),
        });
        (address, peer.listening_port)
    }
}
