//! TLS around a socket that may block or not.
//!
//! ```text
//! write ─→ session (plaintext → records) ─→ socket        a full socket leaves the rest in the session
//! read  ←─ session (records → plaintext) ←─ socket
//! ```
//!
//! rustls's own stream writes all that is unsent before it reads. Over a socket that does not block, a server
//! that pauses its reading until its replies are read would then wait for ever; here the two are separate.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::TlsOptions;

/// TLS to one server.
#[derive(Clone)]
pub struct Tls {
    options: TlsOptions,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl TlsOptions {
    /// Reads the certificates, for connections to `host`. Fails with one line that names the file.
    pub fn configured(&self, host: &str) -> Result<Tls, String> {
        let name = self.sni.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_string())
            .map_err(|_| format!("'{name}' cannot be the name of a server"))?;
        Ok(Tls { options: self.clone(), name, config: Arc::new(self.client_config()?) })
    }

    /// Reads the certificates. Fails with one line that names the file.
    pub fn client_config(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = if self.insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
        } else {
            builder.with_root_certificates(self.roots()?)
        };
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let private = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| format!("cannot read the key in {}: {error}", key.display()))?;
                builder
                    .with_client_auth_cert(certificates(cert)?, private)
                    .map_err(|error| format!("{} and {}: {error}", cert.display(), key.display()))
            }
            (None, None) => Ok(builder.with_no_client_auth()),
            _ => Err("a client's certificate needs its key, and the other way round".into()),
        }
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        let Some(path) = &self.cacert else {
            let found = rustls_native_certs::load_native_certs();
            // Some systems carry certificates that are no longer well-formed.
            roots.add_parsable_certificates(found.certs);
            return if roots.is_empty() {
                Err("this system has no certificates to trust; name some with cacert".into())
            } else {
                Ok(roots)
            };
        };
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(roots)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed =
        |error: &dyn fmt::Display| format!("cannot read certificates in {}: {error}", path.display());
    let read: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))?.collect();
    match read.map_err(|error| failed(&error))? {
        none if none.is_empty() => Err(failed(&"there is none")),
        some => Ok(some),
    }
}

impl Tls {
    /// Introduces both sides to each other over a socket that blocks.
    pub fn handshake<S: Read + Write>(&self, mut socket: S) -> io::Result<TlsStream<S>> {
        let mut session =
            ClientConnection::new(self.config.clone(), self.name.clone()).map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(TlsStream { session, socket })
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        (&self.options, &self.name) == (&other.options, &other.name)
    }
}

impl Eq for Tls {}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A socket inside TLS.
#[derive(Debug)]
pub struct TlsStream<S> {
    session: ClientConnection,
    socket: S,
}

impl<S> TlsStream<S> {
    /// The socket itself.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// The socket itself.
    pub fn socket_mut(&mut self) -> &mut S {
        &mut self.socket
    }

    /// This session over another handle of the socket.
    pub fn map<T>(self, change: impl FnOnce(S) -> T) -> TlsStream<T> {
        TlsStream { session: self.session, socket: change(self.socket) }
    }

    /// Whether bytes that were taken wait for the socket.
    pub fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }
}

impl<S: Read + Write> Read for TlsStream<S> {
    /// Reads from the socket only when the session holds nothing.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // A server that ends the connection without saying so has ended it all the same.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            self.session.read_tls(&mut self.socket)?;
            self.session.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

impl<S: Read + Write> Write for TlsStream<S> {
    /// Takes bytes only when the socket has taken all before them; it may take these later.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let taken = self.session.writer().write(bytes)?;
        match self.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(taken),
            result => result.map(|()| taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}

/// Trusts every certificate, but not a handshake that its key has not signed.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let folder = std::env::temp_dir().join(format!("dunlin-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let empty = folder.join("empty.pem");
        std::fs::write(&empty, "no certificate\n").unwrap();
        let wrong = |options: TlsOptions| options.configured("host").unwrap_err();
        let missing = folder.join("missing.pem");
        assert!(
            wrong(TlsOptions { cacert: Some(missing), ..TlsOptions::default() }).contains("missing.pem: ")
        );
        let none = wrong(TlsOptions { cacert: Some(empty.clone()), ..TlsOptions::default() });
        assert!(none.ends_with("empty.pem: there is none"), "{none}");
        let insecure = TlsOptions { insecure: true, ..TlsOptions::default() };
        assert!(wrong(TlsOptions { cert: Some(empty), ..insecure.clone() }).contains("needs its key"));
        assert!(insecure.configured("not a host").unwrap_err().starts_with("'not a host' cannot be"));
        assert!(insecure.configured("127.0.0.1").is_ok() && insecure.configured("cache.example").is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
