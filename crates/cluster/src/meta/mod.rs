//! The store of the cluster's records, behind one narrow trait.
//!
//! [`Meta`] is a linearizable map with revisions, transactions that compare them, watches and leases: as much of etcd's
//! model as the cluster needs. `dunlin-etcd` implements it over the network. [`Store`] is the same model in memory, for
//! the simulator and for tests; one suite of conformance tests runs on both.
//!
//! Facts that callers rely on:
//! - Every change of the store has a revision, and revisions ascend. All changes of one transaction have the same one.
//! - A key that is absent has revision 0.
//! - A transaction does everything or nothing.
//! - [`TransactionOutcome::Unknown`] is neither success nor failure: the transaction may be applied later, too. A read settles it
//!   that shows a compared key at another revision, because the comparison can no longer hold.

mod memory;

use std::fmt;

pub use memory::{MemoryMeta, Store};

/// A position in the store's sequence of changes. 0: never.
pub type Revision = u64;

/// Bytes of a value at most. etcd takes requests of 1.5 MiB, and a transaction may have several values.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// A lease: keys that are bound to it go when it is not kept alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The revision of the last change.
    pub revision: Revision,
    /// The lease that the key is bound to.
    pub lease: Option<LeaseId>,
}

/// The state of some keys at one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision of the store. A watch after it sees all later changes.
    pub revision: Revision,
    /// The keys, ascending.
    pub items: Vec<Item>,
}

/// A condition of a transaction: the key was last changed at this revision, or is absent if the revision is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    /// The key.
    pub key: String,
    /// Its revision.
    pub revision: Revision,
}

/// A change of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Sets a key.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
        /// The lease that the key is bound to.
        lease: Option<LeaseId>,
    },
    /// Removes a key, which may be absent.
    Delete {
        /// The key.
        key: String,
    },
}

impl Write {
    /// Returns the key.
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// Changes that are made if all comparisons hold, at one instant.
///
/// Invariant: no key is written twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The conditions.
    pub compares: Vec<Compare>,
    /// The changes.
    pub writes: Vec<Write>,
}

impl Transaction {
    /// Adds a condition.
    #[must_use]
    pub fn compare(mut self, key: impl Into<String>, revision: Revision) -> Self {
        self.compares.push(Compare { key: key.into(), revision });
        self
    }

    /// Adds a key that is set.
    #[must_use]
    pub fn put(mut self, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.writes.push(Write::Put { key: key.into(), value: value.into(), lease: None });
        self
    }

    /// Adds a key that is set for as long as a lease lives.
    #[must_use]
    pub fn put_leased(mut self, key: impl Into<String>, value: impl Into<Vec<u8>>, lease: LeaseId) -> Self {
        self.writes.push(Write::Put { key: key.into(), value: value.into(), lease: Some(lease) });
        self
    }

    /// Adds a key that is removed.
    #[must_use]
    pub fn delete(mut self, key: impl Into<String>) -> Self {
        self.writes.push(Write::Delete { key: key.into() });
        self
    }
}

/// The end of a transaction, as far as its author knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// All changes are made, at this revision.
    Done(Revision),
    /// A comparison did not hold at this revision of the store. Nothing is changed, and nothing will be.
    Refused(Revision),
    /// The outcome is unknown: the answer was lost. The changes may be made, or be made later.
    Unknown(String),
    /// Nothing is changed, and nothing will be: the request did not leave, or the store answered an error.
    Failed(MetaError),
}

/// Why the store did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetaError {
    /// No endpoint answers, or none in time.
    Unavailable(String),
    /// The user or the password is wrong, or the user lacks a permission.
    Denied(String),
    /// The changes that were asked for are compacted away; the first that is left has this revision or a later one.
    Compacted(Revision),
    /// The lease is over.
    NoLease,
    /// The store refuses the request.
    Refused(String),
    /// The answer makes no sense, or is too large.
    Protocol(String),
}

impl fmt::Display for MetaError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => write!(out, "the metadata store does not answer: {why}"),
            Self::Denied(why) => write!(out, "the metadata store denies access: {why}"),
            Self::Compacted(revision) => write!(out, "changes before revision {revision} are compacted away"),
            Self::NoLease => out.write_str("the lease is over"),
            Self::Refused(why) => write!(out, "the metadata store refuses the request: {why}"),
            Self::Protocol(why) => write!(out, "the metadata store's answer makes no sense: {why}"),
        }
    }
}

impl std::error::Error for MetaError {}

/// A change that a watch reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: String,
    /// The new value; `None`: the key is gone.
    pub value: Option<Vec<u8>>,
    /// The revision of the change.
    pub revision: Revision,
    /// The lease that the key is bound to.
    pub lease: Option<LeaseId>,
}

/// The changes of some keys, in order.
pub trait Watch: Send {
    /// Waits for changes, for `wait_ms` milliseconds at most, and returns them; none when the time is over. The changes of one
    /// revision come together. After an error the watch is over.
    fn next(&mut self, wait_ms: u64) -> Result<Vec<Change>, MetaError>;
}

/// A store of the cluster's records. All calls block, for a time that the implementation bounds.
pub trait Meta: Send + Sync {
    /// Reads all keys that begin with the prefix, linearizably.
    fn range(&self, prefix: &str) -> Result<Snapshot, MetaError>;

    /// Reads one key, linearizably. The snapshot has one item or none.
    fn get(&self, key: &str) -> Result<Snapshot, MetaError>;

    /// Runs a transaction.
    fn commit(&self, transaction: &Transaction) -> TransactionOutcome;

    /// Watches all keys that begin with the prefix, for changes after a revision.
    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, MetaError>;

    /// Grants a lease of `ttl_s` seconds or more. Returns it with its seconds.
    fn grant(&self, ttl_s: u32) -> Result<(LeaseId, u32), MetaError>;

    /// Begins the time of a lease anew. Returns its seconds.
    fn keep_alive(&self, lease: LeaseId) -> Result<u32, MetaError>;

    /// Ends a lease; its keys go. A lease that is over already is no error.
    fn revoke(&self, lease: LeaseId) -> Result<(), MetaError>;
}
