//! TLS: the server's certificates, keys and rules as one value that is replaced as a whole, and the sessions of connections.
//!
//! ```text
//! TlsOptions ─ load: files, all or nothing ─▶ TlsMaterial ─▶ TlsServer ─▶ Session, one a connection
//!                                                       └──▶ TlsClient ─▶ Session of a link to a primary
//! ```
//!
//! A session keeps the material that it has begun with; new connections take what is newest.
//!
//! Decision 0033 has why records pass through buffers of the threads.

mod session;
mod sessions;
mod suites;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
/// The reason of a read or a write that has failed.
pub use dunlin_certificates::refusal;
use dunlin_certificates::{PeerVerifier, Peers};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ServerConfig};

pub(crate) use self::session::Session;
pub use dunlin_certificates::{CertificateFacts, Identity};

/// `tls-auth-clients`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// Clients show none.
    NotAsked,
    /// Clients may show one, which must be good.
    Optional,
    /// Clients must show one.
    #[default]
    Required,
}

/// The directives about TLS. Empty paths are not set.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// `tls-cert-file`.
    pub cert_file: PathBuf,
    /// `tls-key-file`.
    pub key_file: PathBuf,
    /// `tls-client-cert-file`: the certificate for outgoing connections; empty for the server's own.
    pub client_cert_file: PathBuf,
    /// `tls-client-key-file`.
    pub client_key_file: PathBuf,
    /// `tls-ca-cert-file`.
    pub ca_cert_file: PathBuf,
    /// `tls-ca-cert-dir`.
    pub ca_cert_dir: PathBuf,
    /// `tls-auth-clients`.
    pub client_certificates: ClientCertificates,
    /// Whether this server connects to others inside TLS.
    pub connects: bool,
    /// `tls-protocols`.
    pub protocols: String,
    /// `tls-ciphers`.
    pub ciphers: String,
    /// `tls-ciphersuites`.
    pub ciphersuites: String,
    /// `tls-prefer-server-ciphers`.
    pub prefers_own_ciphers: bool,
    /// `tls-session-caching`.
    pub keeps_sessions: bool,
    /// `tls-session-cache-size`; 0 for no limit.
    pub sessions_max: usize,
    /// `tls-session-cache-timeout`, in seconds.
    pub session_timeout_s: u32,
}

/// Why the directives about TLS cannot be followed: one line, with the file or the directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

/// The settings of new connections of clients. Cheap to clone.
#[derive(Clone)]
pub struct TlsServer {
    pub(crate) config: Arc<ServerConfig>,
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TlsServer").finish_non_exhaustive()
    }
}

/// The settings of a connection to another server. Cheap to clone.
#[derive(Clone)]
pub struct TlsClient {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TlsClient").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The TLS settings that workers give new connections; nothing without TLS.
pub type SharedTls = Arc<ArcSwapOption<TlsServer>>;

/// All that the directives about TLS come to.
#[derive(Debug)]
pub struct TlsMaterial {
    /// For clients that connect.
    pub server: TlsServer,
    client: Option<Arc<ClientConfig>>,
    /// The server's certificate.
    pub server_certificate: CertificateFacts,
    /// The certificate for outgoing connections, if there is another.
    pub client_certificate: Option<CertificateFacts>,
    /// The trusted certificate that expires first.
    pub ca_certificate: Option<CertificateFacts>,
}

impl TlsMaterial {
    /// For a connection to another server; `None` if none are made.
    ///
    /// # Errors
    /// If the host cannot be the name of a server.
    pub fn client(&self, host: &str) -> Option<Result<TlsClient, TlsError>> {
        let config = Arc::clone(self.client.as_ref()?);
        let name = ServerName::try_from(host.to_owned());
        Some(match name {
            Ok(name) => Ok(TlsClient { config, name }),
            Err(_) => fail(format!("'{host}' cannot be the name of a server")),
        })
    }
}

fn fail<T>(reason: impl Into<String>) -> Result<T, TlsError> {
    Err(TlsError(reason.into()))
}

fn named<'a, E: fmt::Display>(what: &'a str, path: &'a Path) -> impl Fn(E) -> TlsError + 'a {
    move |error| TlsError(format!("{what} {}: {error}", path.display()))
}

impl TlsOptions {
    /// Reads all files, and checks that they fit each other. Nothing is kept of files that do not.
    ///
    /// # Errors
    /// With the file, or the directive, that is wrong.
    pub fn load(&self) -> Result<TlsMaterial, TlsError> {
        if self.cert_file.as_os_str().is_empty() {
            return fail("tls-cert-file is not set");
        }
        if self.key_file.as_os_str().is_empty() {
            return fail("tls-key-file is not set");
        }
        let trusts = self.client_certificates != ClientCertificates::NotAsked || self.connects;
        let has_authorities =
            !self.ca_cert_file.as_os_str().is_empty() || !self.ca_cert_dir.as_os_str().is_empty();
        if trusts && !has_authorities {
            return fail(
                "tls-ca-cert-file or tls-ca-cert-dir must be set where tls-auth-clients, tls-replication or tls-cluster is on",
            );
        }
        let provider = suites::provider(&self.ciphers, &self.ciphersuites).map_err(TlsError)?;
        let provider = Arc::new(provider);
        let own = Pair::load("tls-cert-file", &self.cert_file, "tls-key-file", &self.key_file, &provider)?;
        let authorities = self.authorities()?;
        let ca_certificate =
            authorities.iter().filter_map(CertificateFacts::of).min_by_key(|facts| facts.expires_s);
        let other =
            match (self.client_cert_file.as_os_str().is_empty(), self.client_key_file.as_os_str().is_empty())
            {
                (true, true) => None,
                (false, false) => Some(Pair::load(
                    "tls-client-cert-file",
                    &self.client_cert_file,
                    "tls-client-key-file",
                    &self.client_key_file,
                    &provider,
                )?),
                _ => {
                    return fail(
                        "tls-client-cert-file and tls-client-key-file are set together or not at all",
                    );
                }
            };
        let server_certificate = own.facts.clone();
        let client_certificate = other.as_ref().map(|pair| pair.facts.clone());
        let client = match self.connects {
            true => {
                let verifier = verifier(Peers::ServersOfAnyName, &authorities, &provider)?;
                Some(Arc::new(self.client_config(&provider, verifier, other.as_ref().unwrap_or(&own))?))
            }
            false => None,
        };
        let server = TlsServer { config: Arc::new(self.server_config(&provider, &authorities, own)?) };
        Ok(TlsMaterial { server, client, server_certificate, client_certificate, ca_certificate })
    }

    /// The files that are read, for a thread that watches them for changes.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let paths = [
            &self.cert_file,
            &self.key_file,
            &self.client_cert_file,
            &self.client_key_file,
            &self.ca_cert_file,
            &self.ca_cert_dir,
        ];
        paths.into_iter().map(PathBuf::as_path).filter(|path| !path.as_os_str().is_empty())
    }

    fn server_config(
        &self,
        provider: &Arc<CryptoProvider>,
        authorities: &[CertificateDer<'static>],
        own: Pair,
    ) -> Result<ServerConfig, TlsError> {
        let refused = |error: rustls::Error| TlsError(format!("tls: {error}"));
        let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(&suites::protocols(&self.protocols).map_err(TlsError)?)
            .map_err(refused)?;
        let builder = match self.client_certificates {
            ClientCertificates::NotAsked => builder.with_no_client_auth(),
            ClientCertificates::Optional => {
                builder.with_client_cert_verifier(verifier(Peers::ClientsWithout, authorities, provider)?)
            }
            ClientCertificates::Required => {
                builder.with_client_cert_verifier(verifier(Peers::Clients, authorities, provider)?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(own.key)));
        config.ignore_client_order = self.prefers_own_ciphers;
        if self.keeps_sessions && self.session_timeout_s > 0 {
            config.session_storage =
                Arc::new(sessions::SessionCache::new(self.sessions_max, self.session_timeout_s));
            config.ticketer = sessions::ticketer(self.session_timeout_s).map_err(refused)?;
        } else {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(config)
    }

    fn client_config(
        &self,
        provider: &Arc<CryptoProvider>,
        verifier: Arc<PeerVerifier>,
        pair: &Pair,
    ) -> Result<ClientConfig, TlsError> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(&suites::protocols(&self.protocols).map_err(TlsError)?)
            .map_err(|error| TlsError(format!("tls: {error}")))?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        Ok(builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair.key.clone()))))
    }

    /// The certificates that are trusted.
    fn authorities(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let mut authorities = Vec::new();
        if !self.ca_cert_file.as_os_str().is_empty() {
            authorities.extend(certificates("tls-ca-cert-file", &self.ca_cert_file)?);
        }
        if !self.ca_cert_dir.as_os_str().is_empty() {
            let path = &self.ca_cert_dir;
            let mut files = std::fs::read_dir(path)
                .and_then(|entries| {
                    entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()
                })
                .map_err(named("tls-ca-cert-dir", path))?;
            files.sort_unstable();
            for file in files.iter().filter(|file| file.is_file()) {
                // Other files may lie there.
                authorities.extend(certificates("tls-ca-cert-dir", file).unwrap_or_default());
            }
            if authorities.is_empty() {
                return fail(format!(
                    "tls-ca-cert-dir {}: no file in it holds a certificate",
                    path.display()
                ));
            }
        }
        Ok(authorities)
    }
}

fn verifier(
    peers: Peers,
    authorities: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<PeerVerifier>, TlsError> {
    let verifier = PeerVerifier::new(peers, authorities.to_vec(), Arc::clone(provider));
    verifier.map(Arc::new).map_err(|_| {
        TlsError("tls-ca-cert-file and tls-ca-cert-dir hold no certificate that can be trusted".to_owned())
    })
}

/// A certificate with those between it and its root, and its key.
struct Pair {
    key: CertifiedKey,
    facts: CertificateFacts,
}

impl Pair {
    fn load(
        cert_directive: &str,
        cert_file: &Path,
        key_directive: &str,
        key_file: &Path,
        provider: &CryptoProvider,
    ) -> Result<Self, TlsError> {
        let chain = certificates(cert_directive, cert_file)?;
        let text = std::fs::read(key_file).map_err(named(key_directive, key_file))?;
        let der = match PrivateKeyDer::from_pem_slice(&text) {
            _ if is_encrypted(&text) => {
                return fail(format!(
                    "{key_directive} {}: the key is encrypted, which is not supported: write it without a password \
                     (openssl pkey -in old.key -out new.key) into a file that only the server may read",
                    key_file.display()
                ));
            }
            Ok(der) => der,
            Err(error) => return Err(named(key_directive, key_file)(error)),
        };
        let key = provider.key_provider.load_private_key(der).map_err(named(key_directive, key_file))?;
        let Some(facts) = CertificateFacts::of(&chain[0]) else {
            return fail(format!("{cert_directive} {}: the certificate cannot be read", cert_file.display()));
        };
        if let Some(public) = key.public_key()
            && !dunlin_certificates::has_public_key(&chain[0], &public)
        {
            return fail(format!(
                "{key_directive} {} is not the key of the certificate in {cert_directive} {}",
                key_file.display(),
                cert_file.display()
            ));
        }
        let now_s =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        if facts.expires_s < now_s as i64 {
            return fail(format!("{cert_directive} {}: the certificate has expired", cert_file.display()));
        }
        if facts.begins_s > now_s as i64 {
            return fail(format!(
                "{cert_directive} {}: the certificate is not valid yet",
                cert_file.display()
            ));
        }
        Ok(Self { key: CertifiedKey::new(chain, key), facts })
    }
}

fn is_encrypted(text: &[u8]) -> bool {
    let has = |words: &[u8]| text.windows(words.len()).any(|window| window == words);
    has(b"ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED")
}

/// The certificates in a file: at least one.
fn certificates(directive: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = std::fs::read(path).map_err(named(directive, path))?;
    let certificates = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(named(directive, path))?;
    if certificates.is_empty() {
        return fail(format!("{directive} {}: there is no certificate in it", path.display()));
    }
    Ok(certificates)
}
