//! TLS with the server under load; a binary that was built without it refuses to begin.

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod session;

use std::path::PathBuf;

#[cfg(not(feature = "tls"))]
pub use absent::{Tls, TlsStream};
#[cfg(feature = "tls")]
pub use session::{Tls, TlsStream};

/// The authorities to trust, and the client's certificate. By default: the certificates that the
/// system trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Trust these certificates (PEM) instead.
    pub cacert: Option<PathBuf>,
    /// The client's own certificate and those between it and its root (PEM).
    pub cert: Option<PathBuf>,
    /// The key of that certificate (PEM).
    pub key: Option<PathBuf>,
    /// Name that the server's certificate must have, when it is not the host's.
    pub sni: Option<String>,
    /// Trust any server.
    pub insecure: bool,
}
