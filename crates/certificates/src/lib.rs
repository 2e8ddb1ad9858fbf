//! Certificates of peers: which are accepted, what they say, and why one is refused.
//!
//! ```text
//! clients ───┐
//! primaries ─┼─▶ PeerVerifier ─ webpki: RFC 5280 ─▶ accepted
//! nodes ─────┤                    │ refused
//! etcd ──────┘                    └▶ leaf: what OpenSSL accepts beyond that ─▶ accepted, or the reason of webpki
//! ```
//!
//! Clusters and clients of Redis come with certificates that OpenSSL accepts, so the rules here follow it where webpki
//! is stricter than safety asks for (docs/decisions/0076).

mod facts;
mod leaf;
mod reason;
mod verifier;

pub use self::facts::{CertificateFacts, Identity, has_public_key};
pub use self::reason::{failure, refusal};
pub use self::verifier::{PeerVerifier, Peers};
