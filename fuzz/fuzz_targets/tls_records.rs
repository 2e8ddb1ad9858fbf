//! A conversation inside TLS whose peer, or an attacker between, does what the bytes say: sends, cuts the stream of
//! records anywhere, flips, drops and adds bytes, ends its side. Nothing panics, and the server reads a prefix of what
//! the client has sent, or all of it if the stream is whole.

#![no_main]

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    sync::{Arc, LazyLock},
};

use dunlin_net::{
    Stream,
    tls::{ClientCertificates, TlsMaterial, TlsOptions},
};
use libfuzzer_sys::fuzz_target;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};

const CERTIFICATE: &str = include_str!("../tls/cert.pem");
const KEY: &str = include_str!("../tls/key.pem");
/// Operations of one input.
const OPERATIONS_MAX: usize = 400;

static SERVER: LazyLock<TlsMaterial> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("dunlin-fuzz-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (cert_file, key_file) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&cert_file, CERTIFICATE).and_then(|()| std::fs::write(&key_file, KEY)).expect("files");
    let options = TlsOptions {
        cert_file,
        key_file,
        client_certificates: ClientCertificates::NotAsked,
        keeps_sessions: true,
        sessions_max: 8,
        session_timeout_s: 300,
        ..TlsOptions::default()
    };
    let loaded = options.load().expect("the files are good");
    std::fs::remove_dir_all(&folder).expect("it is there");
    loaded
});

/// A configuration for each version.
static CLIENTS: LazyLock<[Arc<ClientConfig>; 2]> = LazyLock::new(|| {
    [&TLS12, &TLS13].map(|version| {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).expect("PEM")).expect("a root");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(&[version]).expect("a version");
        Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
    })
});

struct Conversation {
    server: Stream,
    client: ClientConnection,
    socket: UnixStream,
    /// Records on their way to the server.
    wire: VecDeque<u8>,
    sent: Vec<u8>,
    read: Vec<u8>,
    answered: usize,
    is_meddled_with: bool,
    has_ended: bool,
    has_failed: bool,
}

impl Conversation {
    /// Takes what the client has to send.
    fn collect(&mut self) {
        while self.client.wants_write() {
            let mut records = Vec::new();
            if self.client.write_tls(&mut records).is_err() {
                return;
            }
            self.wire.extend(records);
        }
    }

    /// Delivers at most `count` bytes.
    fn deliver(&mut self, count: usize) {
        let piece: Vec<u8> = self.wire.drain(..count.min(self.wire.len())).collect();
        let taken = self.socket.write(&piece).unwrap_or(0);
        piece[taken..].iter().rev().for_each(|byte| self.wire.push_front(*byte));
    }

    fn server_reads(&mut self) {
        let mut buffer = [0; 700];
        while !self.has_failed {
            match (&self.server).read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => self.read.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.has_failed = true,
            }
        }
    }

    fn server_writes(&mut self, count: usize) {
        if self.has_failed {
            return;
        }
        match (&self.server).write(&vec![b'a'; count]) {
            Ok(taken) => self.answered += taken,
            Err(error) => self.has_failed |= error.kind() != ErrorKind::WouldBlock,
        }
    }

    fn client_reads(&mut self) {
        let mut records = [0; 4096];
        while let Ok(count @ 1..) = self.socket.read(&mut records) {
            let mut rest = &records[..count];
            while !rest.is_empty() {
                if !matches!(self.client.read_tls(&mut rest), Ok(1..))
                    || self.client.process_new_packets().is_err()
                {
                    return;
                }
                let mut plaintext = Vec::new();
                let _ = self.client.reader().read_to_end(&mut plaintext);
                assert!(plaintext.iter().all(|byte| *byte == b'a'));
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let [version, operations @ ..] = data else { return };
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    ours.set_nonblocking(true).and_then(|()| theirs.set_nonblocking(true)).expect("they may");
    let name = ServerName::try_from("localhost").expect("a name");
    let client =
        ClientConnection::new(Arc::clone(&CLIENTS[usize::from(version & 1)]), name).expect("a client");
    let server = Stream::accept(ours.into(), &SERVER.server).expect("a session");
    let mut talk = Conversation {
        server,
        client,
        socket: theirs,
        wire: VecDeque::new(),
        sent: Vec::new(),
        read: Vec::new(),
        answered: 0,
        is_meddled_with: false,
        has_ended: false,
        has_failed: false,
    };
    if version & 2 == 0 {
        // Behind an undisturbed handshake.
        for _ in 0..6 {
            talk.collect();
            talk.deliver(usize::MAX);
            talk.server_reads();
            talk.client_reads();
        }
        assert!(!talk.server.is_handshaking() && !talk.client.is_handshaking());
    }
    for pair in operations.chunks_exact(2).take(OPERATIONS_MAX) {
        let (operation, operand) = (pair[0], usize::from(pair[1]));
        match operation % 10 {
            0 if !talk.has_ended => {
                let text: Vec<u8> = (0..operand * 70).map(|at| (at + talk.sent.len()) as u8).collect();
                // The client takes no more than there is room for.
                let taken = talk.client.writer().write(&text).unwrap_or(0);
                talk.sent.extend_from_slice(&text[..taken]);
            }
            1 => talk.collect(),
            2 => talk.deliver(operand),
            3 => talk.deliver(operand * 256),
            4 => talk.server_reads(),
            5 => talk.server_writes(operand * 40),
            6 => talk.client_reads(),
            7 if !talk.client.is_handshaking() => {
                talk.client.send_close_notify();
                talk.has_ended = true;
                talk.collect();
            }
            8 if !talk.wire.is_empty() => {
                let at = operand % talk.wire.len();
                talk.wire[at] ^= 1 << (operation >> 5);
                talk.is_meddled_with = true;
            }
            9 => {
                match operation >> 5 {
                    0 => drop(talk.wire.pop_front()),
                    1 => talk.wire.push_front(operand as u8),
                    2 => talk.wire.extend([operand as u8; 5]),
                    kind => talk.wire.extend([20 + kind, 3, 3, 0, operand as u8]),
                }
                talk.is_meddled_with = true;
            }
            _ => {}
        }
        assert!(talk.sent.starts_with(&talk.read), "the server reads what was sent");
    }
    for _ in 0..2000 {
        talk.client_reads();
        talk.collect();
        if talk.wire.is_empty() && !talk.client.wants_write() {
            break;
        }
        talk.deliver(1 << 16);
        talk.server_reads();
    }
    talk.server_reads();
    assert!(talk.sent.starts_with(&talk.read));
    if !talk.is_meddled_with && !talk.client.is_handshaking() {
        assert!(!talk.has_failed && talk.read == talk.sent, "all of it arrives");
    }
});
