//! [`PeerVerifier`]: the verification of one kind of peers, for rustls.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use crate::leaf::{self, Purpose};

/// The kind of peers that a verifier looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peers {
    /// Clients, which must show a certificate.
    Clients,
    /// Clients, which may show one.
    ClientsWithout,
    /// Servers that are found by address, whatever name they have: primaries, nodes of a cluster. Redis does it so.
    ServersOfAnyName,
    /// Servers whose certificates name the host that was asked for.
    ServersByName,
}

/// Accepts the peers whose certificates the authorities vouch for.
#[derive(Debug)]
pub struct PeerVerifier {
    peers: Peers,
    roots: Arc<RootCertStore>,
    /// The same as they were given.
    authorities: Vec<CertificateDer<'static>>,
    /// The rules of webpki for clients; nothing for servers.
    clients: Option<Arc<dyn ClientCertVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl PeerVerifier {
    /// A verifier that trusts `authorities`, of which at least one has to be readable.
    ///
    /// # Errors
    /// When none is.
    pub fn new(
        peers: Peers,
        authorities: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authorities.iter().cloned());
        if roots.is_empty() {
            return Err(VerifierBuilderError::NoRootAnchors);
        }
        let roots = Arc::new(roots);
        let builder =
            || WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let clients = match peers {
            Peers::Clients => Some(builder().build()?),
            Peers::ClientsWithout => Some(builder().allow_unauthenticated().build()?),
            Peers::ServersOfAnyName | Peers::ServersByName => None,
        };
        Ok(Self { peers, roots, authorities, clients, provider })
    }

    /// Asks webpki first, and the rules of [`leaf`] about a certificate that it refuses.
    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        now: UnixTime,
        purpose: Purpose,
        by_webpki: Result<(), Error>,
    ) -> Result<(), Error> {
        by_webpki.or_else(|error| {
            let algorithms = &self.provider.signature_verification_algorithms;
            leaf::accept(end_entity, &self.authorities, now, purpose, algorithms).unwrap_or(Err(error))
        })
    }

    fn verify_tls12(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        match leaf::key_of_old_version(cert) {
            Some(key) => leaf::verify_tls12_signature(message, &key, signature, algorithms),
            None => verify_tls12_signature(message, cert, signature, algorithms),
        }
    }

    fn verify_tls13(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        match leaf::key_of_old_version(cert) {
            Some(key) => {
                rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
            }
            None => verify_tls13_signature(message, cert, signature, algorithms),
        }
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for PeerVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.peers == Peers::Clients
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.clients.as_ref().map_or(&[], |clients| clients.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let clients =
            self.clients.as_ref().ok_or_else(|| Error::General("no verifier of clients".to_owned()))?;
        let by_webpki = clients.verify_client_cert(end_entity, intermediates, now).map(|_| ());
        self.verify(end_entity, now, Purpose::Client, by_webpki)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_tls12(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_tls13(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let by_webpki = ParsedCertificate::try_from(end_entity).and_then(|certificate| {
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                &self.roots,
                intermediates,
                now,
                self.provider.signature_verification_algorithms.all,
            )
        });
        self.verify(end_entity, now, Purpose::Server, by_webpki)?;
        if self.peers != Peers::ServersOfAnyName {
            // A certificate before version 3 has no alternative names, and is refused here.
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_tls12(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_tls13(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}
