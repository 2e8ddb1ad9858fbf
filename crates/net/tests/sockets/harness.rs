//! A server of [`Lines`] on a free port, and clients that check bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use dunlin_net::{Client, Limits, ListenOptions, Running, WorkerContext, Workers};

use crate::lines::Lines;

/// Size of a worker's stack.
const STACK_BYTES: usize = 2 << 20;
/// Nothing here waits this long unless it is broken.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

pub struct Server {
    running: Option<Running<String>>,
    pub limits: Arc<ArcSwap<Limits>>,
    pub unix_path: PathBuf,
}

impl Server {
    pub fn start(threads: usize) -> Self {
        Self::start_with(threads, |_| {})
    }

    pub fn start_with(threads: usize, change: impl FnOnce(&mut Limits)) -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let unix_path = std::env::temp_dir().join(format!("dunlin-net-{}-{number}.sock", std::process::id()));
        let mut limits = Limits::default();
        change(&mut limits);
        let limits = Arc::new(ArcSwap::from_pointee(limits));
        let workers = Workers {
            threads,
            listen: ListenOptions {
                addresses: vec!["127.0.0.1".to_owned()],
                port: Some(0),
                tls_port: None,
                backlog: 4096,
                unix_path: Some(unix_path.clone()),
                unix_permissions: Some(0o770),
            },
            limits: limits.clone(),
            tls: Arc::default(),
        };
        // A server registers what its commands call before the first command can come.
        let is_prepared = Arc::new(AtomicBool::new(false));
        let prepare = |_| is_prepared.store(true, Ordering::Relaxed);
        let make = {
            let is_prepared = Arc::clone(&is_prepared);
            move |context: WorkerContext<_>| {
                assert!(is_prepared.load(Ordering::Relaxed), "a worker came first");
                Lines::new(context)
            }
        };
        let running = workers.listen().unwrap().start(STACK_BYTES, prepare, make).unwrap();
        Self { running: Some(running), limits, unix_path }
    }

    pub fn running(&self) -> &Running<String> {
        self.running.as_ref().expect("the server runs")
    }

    /// A new connection, not necessarily accepted yet.
    pub fn connect(&self) -> Peer {
        let stream = TcpStream::connect(self.running().addresses()[0]).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        stream.set_write_timeout(Some(WAIT_LIMIT)).unwrap();
        Peer { stream }
    }

    /// A new connection and what the server knows of it.
    pub fn meet(&self) -> (Peer, Arc<Client>) {
        let mut peer = self.connect();
        peer.send("id\n");
        let id = peer.line().parse().unwrap();
        let client = self.running().clients().find(id).unwrap();
        (peer, client)
    }

    pub fn total(&self, number: impl Fn(&dunlin_net::Traffic) -> u64) -> u64 {
        self.running().traffic().iter().map(number).sum()
    }

    pub fn stop(mut self, grace: Duration) {
        let running = self.running.take().unwrap();
        running.shutdown(grace);
        running.join().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown(Duration::ZERO);
            // A test that has failed already is not to hide it behind a second panic.
            if !std::thread::panicking() {
                running.join().unwrap();
            }
        }
    }
}

/// Waits for something that must come true.
#[track_caller]
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < WAIT_LIMIT, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

pub struct Peer {
    pub stream: TcpStream,
}

impl Peer {
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    pub fn receive(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    #[track_caller]
    pub fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let received = self.receive(expected.len());
        assert!(
            received == expected,
            "received {:?}, expected {:?}",
            received[..received.len().min(200)].escape_ascii().to_string(),
            expected[..expected.len().min(200)].escape_ascii().to_string()
        );
    }

    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        loop {
            match self.receive(1)[0] {
                b'\n' => return String::from_utf8(line).unwrap(),
                byte => line.push(byte),
            }
        }
    }

    /// Everything up to the end of the stream.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// The server has closed, with or without a reset, and has sent nothing more.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("expected the end, got {other:?} {byte:?}"),
        }
    }
}
