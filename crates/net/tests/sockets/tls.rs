//! TLS and strangers over stepped workers: handshake and first requests cut at every byte, beside the traffic of others.

use std::sync::{Arc, LazyLock};

use dunlin_net::testing::{Echo, LOGIN, Peer, SteppedWorkers, client_config};
use dunlin_net::tls::{ClientCertificates, TlsMaterial, TlsOptions};
use rustls::client::Resumption;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, SupportedProtocolVersion};

const CERTIFICATE: &str = include_str!("../../../../fuzz/tls/cert.pem");
const KEY: &str = include_str!("../../../../fuzz/tls/key.pem");
/// The common name of the certificate.
const USER: &str = "localhost";

static SERVER: LazyLock<TlsMaterial> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/tls/");
    let options = TlsOptions {
        cert_file: format!("{folder}cert.pem").into(),
        key_file: format!("{folder}key.pem").into(),
        ca_cert_file: format!("{folder}cert.pem").into(),
        client_certificates: ClientCertificates::Optional,
        keeps_sessions: true,
        session_timeout_s: 300,
        ..TlsOptions::default()
    };
    options.load().expect("the files are good")
});

fn full_config(version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let mut config = Arc::unwrap_or_clone(client_config(version, CERTIFICATE, KEY));
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// Goes on until nothing is on its way.
fn converse(workers: &mut SteppedWorkers<'_, Echo>, peer: &mut Peer) {
    loop {
        peer.deliver(usize::MAX);
        workers.settle().unwrap();
        peer.listen();
        if peer.waiting_bytes() == 0 {
            return;
        }
    }
}

/// Makes the handshake up to the flight after which this end may say requests.
fn until_ready(workers: &mut SteppedWorkers<'_, Echo>, peer: &mut Peer) {
    while !peer.is_ready() {
        peer.deliver(usize::MAX);
        workers.settle().unwrap();
        peer.listen();
    }
}

/// A client by certificate whose last flight and first requests arrive in two pieces, while others have left their requests
/// in all buffers of the workers.
fn cut_at_every_byte(config: &Arc<ClientConfig>, workers: usize, step: usize, resumes: bool) {
    let mut services: Vec<Echo> = (0..workers).map(|_| Echo).collect();
    let mut workers = SteppedWorkers::new(&mut services, &SERVER.server).unwrap();
    let mut strangers: Vec<Peer> = (0..4).map(|_| Peer::connect(&mut workers, None).unwrap()).collect();
    let mut members: Vec<Peer> = (0..4).map(|_| Peer::connect(&mut workers, None).unwrap()).collect();
    for member in &mut members {
        member.say(LOGIN);
        converse(&mut workers, member);
    }
    if resumes {
        let mut first = Peer::connect(&mut workers, Some((config, USER))).unwrap();
        converse(&mut workers, &mut first);
    }
    let (mut cut, mut length) = (0, 0);
    while cut <= length {
        for (number, other) in strangers.iter_mut().chain(&mut members).enumerate() {
            other.say(format!("INCR low:{number}").as_bytes());
            converse(&mut workers, other);
            assert!(other.is_answered(), "{other}");
        }
        let mut peer = Peer::connect(&mut workers, Some((config, USER))).unwrap();
        until_ready(&mut workers, &mut peer);
        assert_eq!(peer.has_resumed(), resumes);
        peer.say(format!("SET app {cut}").as_bytes());
        peer.say(b"GET app");
        length = peer.waiting_bytes();
        peer.deliver(cut);
        workers.settle().unwrap();
        converse(&mut workers, &mut peer);
        assert!(peer.is_answered(), "cut at {cut} of {length}: {peer}");
        cut += step;
    }
    assert!(length > 50);
}

#[test]
fn tls_13_handshake_and_first_requests_may_be_cut_at_every_byte() {
    cut_at_every_byte(&full_config(&TLS13), 1, 1, false);
}

#[test]
fn tls_12_handshake_and_first_requests_may_be_cut_at_every_byte() {
    cut_at_every_byte(&full_config(&TLS12), 1, 1, false);
}

#[test]
fn tls_sessions_that_are_resumed_may_be_cut_at_every_byte() {
    for version in [&TLS12, &TLS13] {
        cut_at_every_byte(&client_config(version, CERTIFICATE, KEY), 1, 1, true);
    }
}

#[test]
fn tls_first_requests_keep_to_their_client_on_every_number_of_workers() {
    for workers in 2..=4 {
        for version in [&TLS12, &TLS13] {
            cut_at_every_byte(&full_config(version), workers, 37, false);
            cut_at_every_byte(&client_config(version, CERTIFICATE, KEY), workers, 37, true);
        }
    }
}
