//! A client of [`Echo`](super::Echo) whose bytes arrive when the test says so.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

use super::{LOGIN, Service, SteppedWorkers};

/// One end of a connection, plain or inside TLS.
#[derive(Debug)]
pub struct Peer {
    socket: UnixStream,
    tls: Option<ClientConnection>,
    /// Bytes on their way to the server.
    wire: VecDeque<u8>,
    user: Vec<u8>,
    /// What the server has to answer to all that was said.
    expected: Vec<u8>,
    heard: Vec<u8>,
}

impl Peer {
    /// Connects to the workers: plainly as a stranger, or inside TLS as `user`, whose certificate `tls` has.
    ///
    /// # Errors
    /// When there is no pair of sockets.
    ///
    /// # Panics
    /// When the configuration allows no session.
    pub fn connect<S: Service>(
        workers: &mut SteppedWorkers<'_, S>,
        tls: Option<(&Arc<ClientConfig>, &str)>,
    ) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        workers.accept(theirs.into(), tls.is_some());
        let user = tls.map_or("stranger", |(_, user)| user).as_bytes().to_vec();
        let tls = tls.map(|(config, _)| {
            let name = ServerName::try_from("localhost").expect("a name");
            ClientConnection::new(Arc::clone(config), name).expect("a session")
        });
        let (expected, heard) = (Vec::new(), Vec::new());
        let mut peer = Self { socket, tls, wire: VecDeque::new(), user, expected, heard };
        peer.collect();
        Ok(peer)
    }

    /// Whether requests can be said: no handshake is under way at this end.
    pub fn is_ready(&self) -> bool {
        !self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Whether the session of TLS was resumed.
    pub fn has_resumed(&self) -> bool {
        let kind = self.tls.as_ref().and_then(|tls| tls.handshake_kind());
        kind == Some(rustls::HandshakeKind::Resumed)
    }

    /// Puts a line on the wire, behind all that is there.
    ///
    /// # Panics
    /// When a handshake is under way.
    pub fn say(&mut self, line: &[u8]) {
        assert!(self.is_ready());
        for piece in [line, b"\n"] {
            match &mut self.tls {
                None => self.wire.extend(piece),
                Some(tls) => tls.writer().write_all(piece).expect("memory takes all"),
            }
        }
        self.collect();
        self.expected.extend([&self.user, b" ".as_slice(), line, b"\n"].concat());
        if line == LOGIN {
            self.user = b"member".to_vec();
        }
    }

    /// Bytes that wait to be delivered.
    pub fn waiting_bytes(&self) -> usize {
        self.wire.len()
    }

    /// Delivers up to `count` bytes; a socket that is full takes fewer.
    pub fn deliver(&mut self, count: usize) {
        let piece: Vec<u8> = self.wire.drain(..count.min(self.wire.len())).collect();
        let taken = self.socket.write(&piece).unwrap_or(0);
        piece[taken..].iter().rev().for_each(|byte| self.wire.push_front(*byte));
    }

    /// Reads what the server has sent. What TLS has to say to that goes onto the wire.
    ///
    /// # Panics
    /// When the server has broken TLS, or has said what it need not.
    pub fn listen(&mut self) {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = self.socket.read(&mut bytes) {
            match &mut self.tls {
                None => self.heard.extend_from_slice(&bytes[..count]),
                Some(tls) => {
                    let mut rest = &bytes[..count];
                    while !rest.is_empty() {
                        tls.read_tls(&mut rest).expect("memory gives all");
                        tls.process_new_packets().expect("the server keeps to TLS");
                        let _ = tls.reader().read_to_end(&mut self.heard);
                    }
                }
            }
        }
        self.collect();
        assert!(self.expected.starts_with(&self.heard), "{self}");
    }

    /// Whether everything was answered.
    pub fn is_answered(&self) -> bool {
        self.heard == self.expected
    }

    fn collect(&mut self) {
        let Some(tls) = &mut self.tls else { return };
        while tls.wants_write() {
            let mut records = Vec::new();
            tls.write_tls(&mut records).expect("memory takes all");
            self.wire.extend(records);
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tail = |bytes: &[u8]| bytes[bytes.len().saturating_sub(200)..].escape_ascii().to_string();
        write!(out, "heard …{:?}, expected …{:?}", tail(&self.heard), tail(&self.expected))
    }
}

/// The configuration of a client that trusts a certificate and shows it as its own.
///
/// # Panics
/// When the files are not good.
pub fn client_config(
    version: &'static SupportedProtocolVersion,
    certificate: &str,
    key: &str,
) -> Arc<ClientConfig> {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("a root");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(&[version]).expect("a version");
    let builder = builder.with_root_certificates(roots);
    Arc::new(builder.with_client_auth_cert(vec![certificate], key).expect("a pair"))
}
