//! The model of etcd in memory.
//!
//! [`Store`] has no clock: [`Store::advance`] is its time. [`MemoryMeta`] puts it behind the trait.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    Change, Item, LeaseId, Meta, MetaError, Revision, Snapshot, Transaction, TransactionOutcome,
    VALUE_BYTES_MAX, Watch, Write,
};

/// The keys, their history and the leases.
#[derive(Debug, Clone)]
pub struct Store {
    now_ms: u64,
    revision: Revision,
    items: BTreeMap<String, Item>,
    /// The changes after `compacted`, by revision.
    history: BTreeMap<Revision, Vec<Change>>,
    compacted: Revision,
    leases: BTreeMap<LeaseId, Lease>,
    next_lease: i64,
}

#[derive(Debug, Clone)]
struct Lease {
    ttl_ms: u64,
    ends_ms: u64,
}

impl Default for Store {
    /// An empty store, at revision 1 like a new etcd.
    fn default() -> Self {
        Self {
            now_ms: 0,
            revision: 1,
            items: BTreeMap::new(),
            history: BTreeMap::new(),
            compacted: 0,
            leases: BTreeMap::new(),
            next_lease: 1,
        }
    }
}

impl Store {
    /// Returns the revision of the last change.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the key's state, if it is there.
    pub fn item(&self, key: &str) -> Option<&Item> {
        self.items.get(key)
    }

    /// Returns all keys with the prefix. O(keys).
    pub fn range(&self, prefix: &str) -> Snapshot {
        let items = self.items.range(prefix.to_owned()..).map(|(_, item)| item);
        let items = items.take_while(|item| item.key.starts_with(prefix)).cloned().collect();
        Snapshot { revision: self.revision, items }
    }

    /// Runs a transaction. The outcome is known: [`TransactionOutcome::Unknown`] is the network's work.
    pub fn commit(&mut self, transaction: &Transaction) -> TransactionOutcome {
        let failed = |why: &str| TransactionOutcome::Failed(MetaError::Refused(why.to_owned()));
        let mut keys: Vec<&str> = transaction.writes.iter().map(Write::key).collect();
        keys.sort_unstable();
        if keys.windows(2).any(|pair| pair[0] == pair[1]) {
            return failed("duplicate key given in txn request");
        }
        for write in &transaction.writes {
            if let Write::Put { value, lease, .. } = write {
                if value.len() > VALUE_BYTES_MAX {
                    return failed("request is too large");
                }
                if lease.is_some_and(|lease| !self.leases.contains_key(&lease)) {
                    return TransactionOutcome::Failed(MetaError::NoLease);
                }
            }
        }
        let holds = transaction.compares.iter().all(|compare| {
            let revision = self.items.get(&compare.key).map_or(0, |item| item.revision);
            revision == compare.revision
        });
        match holds {
            true => TransactionOutcome::Done(self.apply(transaction.writes.iter().cloned())),
            false => TransactionOutcome::Refused(self.revision),
        }
    }

    /// Makes the changes of one revision. Without any there is no revision, as in etcd.
    fn apply(&mut self, writes: impl Iterator<Item = Write>) -> Revision {
        let revision = self.revision + 1;
        let mut changes = Vec::new();
        for write in writes {
            match write {
                Write::Put { key, value, lease } => {
                    let item = Item { key: key.clone(), value: value.clone(), revision, lease };
                    self.items.insert(key.clone(), item);
                    changes.push(Change { key, value: Some(value), revision, lease });
                }
                Write::Delete { key } => {
                    if self.items.remove(&key).is_some() {
                        changes.push(Change { key, value: None, revision, lease: None });
                    }
                }
            }
        }
        if !changes.is_empty() {
            self.revision = revision;
            self.history.insert(revision, changes);
        }
        self.revision
    }

    /// Returns the changes of keys with the prefix after a revision, in order, and the revision up to which they are complete.
    pub fn changes(&self, prefix: &str, after: Revision) -> Result<(Vec<Change>, Revision), MetaError> {
        if after + 1 < self.compacted {
            return Err(MetaError::Compacted(self.compacted));
        }
        let changes = self.history.range(after + 1..).flat_map(|(_, changes)| changes);
        let changes = changes.filter(|change| change.key.starts_with(prefix)).cloned().collect();
        Ok((changes, self.revision.max(after)))
    }

    /// Forgets the changes before a revision.
    pub fn compact(&mut self, revision: Revision) {
        self.compacted = self.compacted.max(revision.min(self.revision));
        self.history = self.history.split_off(&self.compacted);
    }

    /// Grants a lease.
    pub fn grant(&mut self, ttl_ms: u64) -> LeaseId {
        let lease = LeaseId(self.next_lease);
        self.next_lease += 1;
        self.leases.insert(lease, Lease { ttl_ms, ends_ms: self.now_ms + ttl_ms });
        lease
    }

    /// Begins a lease's time anew; returns its milliseconds, or `None` if it is over.
    pub fn keep_alive(&mut self, lease: LeaseId) -> Option<u64> {
        let now_ms = self.now_ms;
        let lease = self.leases.get_mut(&lease)?;
        lease.ends_ms = now_ms + lease.ttl_ms;
        Some(lease.ttl_ms)
    }

    /// Ends a lease and removes its keys.
    pub fn revoke(&mut self, lease: LeaseId) {
        if self.leases.remove(&lease).is_some() {
            let bound = self.items.values().filter(|item| item.lease == Some(lease));
            let writes: Vec<Write> = bound.map(|item| Write::Delete { key: item.key.clone() }).collect();
            self.apply(writes.into_iter());
        }
    }

    /// Lets time pass: leases run out.
    pub fn advance(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        let over = self.leases.iter().filter(|(_, lease)| lease.ends_ms <= self.now_ms);
        let over: Vec<LeaseId> = over.map(|(lease, _)| *lease).collect();
        over.into_iter().for_each(|lease| self.revoke(lease));
    }
}

/// A [`Store`] that several owners share. A watch of it does not wait: without a change it returns at once.
#[derive(Debug, Clone, Default)]
pub struct MemoryMeta(Arc<Mutex<Store>>);

impl MemoryMeta {
    /// Returns the store itself.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct MemoryWatch {
    store: MemoryMeta,
    prefix: String,
    after: Revision,
}

impl Watch for MemoryWatch {
    fn next(&mut self, _wait_ms: u64) -> Result<Vec<Change>, MetaError> {
        let (changes, revision) = self.store.store().changes(&self.prefix, self.after)?;
        self.after = revision;
        Ok(changes)
    }
}

impl Meta for MemoryMeta {
    fn range(&self, prefix: &str) -> Result<Snapshot, MetaError> {
        Ok(self.store().range(prefix))
    }

    fn get(&self, key: &str) -> Result<Snapshot, MetaError> {
        let store = self.store();
        Ok(Snapshot { revision: store.revision, items: store.item(key).cloned().into_iter().collect() })
    }

    fn commit(&self, transaction: &Transaction) -> TransactionOutcome {
        self.store().commit(transaction)
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, MetaError> {
        Ok(Box::new(MemoryWatch { store: self.clone(), prefix: prefix.to_owned(), after }))
    }

    fn grant(&self, ttl_s: u32) -> Result<(LeaseId, u32), MetaError> {
        Ok((self.store().grant(u64::from(ttl_s) * 1000), ttl_s))
    }

    fn keep_alive(&self, lease: LeaseId) -> Result<u32, MetaError> {
        let ttl_ms = self.store().keep_alive(lease).ok_or(MetaError::NoLease)?;
        Ok(u32::try_from(ttl_ms / 1000).unwrap_or(u32::MAX))
    }

    fn revoke(&self, lease: LeaseId) -> Result<(), MetaError> {
        self.store().revoke(lease);
        Ok(())
    }
}
