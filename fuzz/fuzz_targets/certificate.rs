//! Any bytes as the certificate of a peer that has shown nothing else yet: client or server, found by address or by name.
//! Nothing panics; and only the certificates that the authority has signed are accepted.

#![no_main]

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use dunlin_certificates::{CertificateFacts, Identity, PeerVerifier, Peers};
use libfuzzer_sys::fuzz_target;
use rustls::{
    client::danger::ServerCertVerifier,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::danger::ClientCertVerifier,
};

/// An authority that is a peer, too; its key is gone.
const AUTHORITY: &str = include_str!("../tls/authority.pem");
/// A moment at which it is valid.
const NOW_S: u64 = 1_800_000_000;

static VERIFIERS: LazyLock<[PeerVerifier; 3]> = LazyLock::new(|| {
    let authority = CertificateDer::from_pem_slice(AUTHORITY.as_bytes()).expect("PEM");
    [Peers::Clients, Peers::ServersOfAnyName, Peers::ServersByName].map(|peers| {
        PeerVerifier::new(peers, vec![authority.clone()], Arc::new(ring::default_provider()))
            .expect("an authority")
    })
});

fuzz_target!(|data: &[u8]| {
    let certificate = CertificateDer::from(data);
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW_S));
    let name = ServerName::try_from("localhost").expect("a name");
    let [clients, any_name, by_name] = &*VERIFIERS;
    let is_client = clients.verify_client_cert(&certificate, &[], now).is_ok();
    let is_server = any_name.verify_server_cert(&certificate, &[], &name, &[], now).is_ok();
    let is_named = by_name.verify_server_cert(&certificate, &[], &name, &[], now).is_ok();
    assert!(is_server || !is_named, "a name is one condition more");
    if is_client || is_server {
        assert!(CertificateFacts::of(&certificate).is_some() && Identity::of(&certificate).is_some());
    }
});
