//! Clients beside each other on one to four workers, inside TLS with a certificate and plain as strangers and members: their
//! handshakes and requests arrive in any pieces and in any order. Each request is answered to its own client, with the rights
//! that this client has at that place, and none is lost.

#![no_main]

use std::sync::{Arc, LazyLock};

use dunlin_net::{
    testing::{Echo, LOGIN, Peer, SteppedWorkers, client_config},
    tls::{ClientCertificates, TlsMaterial, TlsOptions},
};
use libfuzzer_sys::fuzz_target;
use rustls::{
    ClientConfig,
    version::{TLS12, TLS13},
};

const CERTIFICATE: &str = include_str!("../tls/cert.pem");
const KEY: &str = include_str!("../tls/key.pem");
/// The common name of the certificate.
const USER: &str = "localhost";
/// Operations of one input.
const OPERATIONS_MAX: usize = 300;
/// Connections of one input: each may cost a handshake.
const CONNECTIONS_MAX: usize = 12;
/// Bytes that a client may have on their way: a stranger is closed that leaves more unread.
const WAITING_BYTES_MAX: usize = 2048;

static SERVER: LazyLock<TlsMaterial> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("dunlin-fuzz-tls-requests-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (cert_file, key_file) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&cert_file, CERTIFICATE).and_then(|()| std::fs::write(&key_file, KEY)).expect("files");
    let options = TlsOptions {
        ca_cert_file: cert_file.clone(),
        cert_file,
        key_file,
        client_certificates: ClientCertificates::Optional,
        keeps_sessions: true,
        sessions_max: 8,
        session_timeout_s: 300,
        ..TlsOptions::default()
    };
    let loaded = options.load().expect("the files are good");
    std::fs::remove_dir_all(&folder).expect("it is there");
    loaded
});

/// A configuration for each version, which resumes sessions of inputs before.
static CLIENTS: LazyLock<[Arc<ClientConfig>; 2]> =
    LazyLock::new(|| [&TLS12, &TLS13].map(|version| client_config(version, CERTIFICATE, KEY)));

/// Two plain clients and two inside TLS.
fn connect(workers: &mut SteppedWorkers<'_, Echo>, number: usize) -> Peer {
    let tls = number.checked_sub(2).map(|version| (&CLIENTS[version], USER));
    Peer::connect(workers, tls).expect("sockets")
}

/// Delivers all that is on its way. Returns whether anything was.
fn go_on(workers: &mut SteppedWorkers<'_, Echo>, peer: &mut Peer) -> bool {
    let is_under_way = peer.waiting_bytes() > 0;
    peer.deliver(usize::MAX);
    workers.settle().expect("pollers");
    peer.listen();
    is_under_way || peer.waiting_bytes() > 0
}

fuzz_target!(|data: &[u8]| {
    let [workers, operations @ ..] = data else { return };
    let mut services: Vec<Echo> = (0..=workers % 4).map(|_| Echo).collect();
    let mut workers = SteppedWorkers::new(&mut services, &SERVER.server).expect("pollers");
    let mut peers: [Peer; 4] = std::array::from_fn(|number| connect(&mut workers, number));
    let mut connections = peers.len();
    for (at, pair) in operations.chunks_exact(2).take(OPERATIONS_MAX).enumerate() {
        let (operation, number, operand) = (pair[0] % 8, usize::from(pair[0] >> 3) % 4, usize::from(pair[1]));
        let peer = &mut peers[number];
        let may_say = peer.is_ready() && peer.waiting_bytes() < WAITING_BYTES_MAX;
        match operation {
            0 if may_say => peer.say(format!("{number} {at} {}", "x".repeat(operand)).as_bytes()),
            1 if may_say => peer.say(LOGIN),
            2 => peer.deliver(operand),
            3 => peer.deliver(operand * 64),
            4 => workers.settle().expect("pollers"),
            5 => drop(workers.tick().expect("pollers")),
            6 => peer.listen(),
            7 if connections < CONNECTIONS_MAX => {
                // The one before hangs up in the middle of whatever it was saying.
                *peer = connect(&mut workers, number);
                connections += 1;
            }
            _ => {}
        }
    }
    for peer in &mut peers {
        while go_on(&mut workers, peer) {}
        assert!(peer.is_ready(), "no byte of the handshake was changed");
        assert!(peer.is_answered(), "{peer}");
    }
});
