//! The cluster's metadata in etcd 3.4 to 3.6, over the JSON gateway that etcd serves beside gRPC.
//!
//! The gateway needs an HTTP client and nothing else: no protoc when Dunlin is built, no runtime when it runs. All calls block;
//! one thread of the server makes them.
//!
//! Invariants:
//! - A transaction that may have reached etcd is not sent again: its outcome is [`TransactionOutcome::Unknown`].
//! - Every wait has an end ([`Options::timeout_ms`]), and every answer a largest size.
//! - An answer that makes no sense is an error, never a panic.

mod gateway;
mod json;
mod tls;
mod url;
mod watch;

use dunlin_cluster::meta::{
    LeaseId, Meta, MetaError, Revision, Snapshot, Transaction, TransactionOutcome, Watch,
};

pub use url::{UrlError, parse_url};

use gateway::{Failure, Gateway};
use json::{Granted, KeptAlive, Nothing, Ranged, TransactionDone};

/// How etcd is reached.
#[derive(Debug, Clone)]
pub struct Options {
    /// The endpoints, as `http://HOST:PORT` or `https://HOST:PORT`. The first that answers is asked until it fails.
    pub endpoints: Vec<String>,
    /// The user and the password, if etcd asks for them.
    pub user: Option<(String, String)>,
    /// Certificates, for endpoints inside TLS.
    pub tls: Tls,
    /// The longest that an endpoint may take for an answer, from the connection on.
    pub timeout_ms: u64,
}

impl Options {
    /// Returns the options for some endpoints, with a timeout of three seconds.
    pub fn new(endpoints: Vec<String>) -> Self {
        Self { endpoints, user: None, tls: Tls::default(), timeout_ms: 3000 }
    }
}

/// Certificates in PEM.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// The authorities that an etcd's certificate may be signed by. `None`: those that the system trusts.
    pub authorities: Option<Vec<u8>>,
    /// The certificate that Dunlin shows, with its chain, and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// A client of etcd.
#[derive(Debug)]
pub struct Etcd {
    gateway: Gateway,
}

impl Etcd {
    /// Makes a client. Connects to nothing yet. Errors: certificates that cannot be read, or no endpoint.
    pub fn new(options: Options) -> Result<Self, String> {
        Ok(Self { gateway: Gateway::new(options)? })
    }

    fn range_of(&self, key: &str, range_end: Option<Vec<u8>>) -> Result<Snapshot, MetaError> {
        let request = json::Range::new(key, range_end);
        let answer: Ranged = self.gateway.read("/v3/kv/range", &request)?;
        answer.into_snapshot()
    }
}

impl Meta for Etcd {
    fn range(&self, prefix: &str) -> Result<Snapshot, MetaError> {
        self.range_of(prefix, Some(json::end_of_prefix(prefix)))
    }

    fn get(&self, key: &str) -> Result<Snapshot, MetaError> {
        self.range_of(key, None)
    }

    fn commit(&self, transaction: &Transaction) -> TransactionOutcome {
        let request = json::transaction(transaction);
        match self.gateway.write::<TransactionDone>("/v3/kv/txn", &request) {
            Ok(done) => match done.succeeded {
                true => TransactionOutcome::Done(done.header.revision),
                false => TransactionOutcome::Refused(done.header.revision),
            },
            Err(Failure::NotDone(error)) => TransactionOutcome::Failed(error),
            Err(Failure::Unknown(why)) => TransactionOutcome::Unknown(why),
        }
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, MetaError> {
        Ok(Box::new(watch::EtcdWatch::new(self.gateway.clone(), prefix, after)))
    }

    fn grant(&self, ttl_s: u32) -> Result<(LeaseId, u32), MetaError> {
        // A lease that was granted without an answer runs out by itself.
        let granted: Granted = self.gateway.read("/v3/lease/grant", &json::Grant::new(ttl_s))?;
        if granted.id == 0 {
            return Err(MetaError::Protocol("a lease without an id".to_owned()));
        }
        Ok((LeaseId(granted.id), granted.ttl))
    }

    fn keep_alive(&self, lease: LeaseId) -> Result<u32, MetaError> {
        let answer: KeptAlive = self.gateway.read("/v3/lease/keepalive", &json::Lease::new(lease))?;
        match answer.result.ttl {
            0 => Err(MetaError::NoLease),
            ttl_s => Ok(ttl_s),
        }
    }

    fn revoke(&self, lease: LeaseId) -> Result<(), MetaError> {
        match self.gateway.read::<Nothing>("/v3/lease/revoke", &json::Lease::new(lease)) {
            Ok(_) | Err(MetaError::NoLease) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
