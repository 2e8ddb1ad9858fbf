//! The stores that the fan pages are kept in, and the two ways to keep them.

use std::collections::HashMap;

use dunlin_resp::Value;

use super::workload::Record;
use crate::memcached::Memcached;
use crate::server::shown;
use dunlin_bench::target::{Client, encode};

/// Keeps whole records: the author's way, read and rewritten one by one.
pub trait RecordStore {
    /// The text of a page's record; nothing if there is none yet.
    fn read(&mut self, page: u32) -> Result<Option<Vec<u8>>, String>;
    /// Replaces a page's record.
    fn write(&mut self, page: u32, record: &[u8]) -> Result<(), String>;
    /// All that was written since the last call is visible to others from now on. Called once a profile.
    fn commit(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// Counts in the store itself: no record travels.
pub trait CounterStore {
    /// Counts a profile: every pair of its pages, and each page itself.
    fn count(&mut self, pages: &[u32]) -> Result<(), String>;
    /// A page's record.
    fn record(&mut self, page: u32) -> Result<Record, String>;
}

/// Answers nothing and keeps nothing: shows the cost of the client itself.
pub struct Null;

impl RecordStore for Null {
    fn read(&mut self, _: u32) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }

    fn write(&mut self, _: u32, _: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

/// A map in this process: no server can be faster.
#[derive(Default)]
pub struct Ram(HashMap<u32, Vec<u8>>);

impl RecordStore for Ram {
    fn read(&mut self, page: u32) -> Result<Option<Vec<u8>>, String> {
        Ok(self.0.get(&page).cloned())
    }

    fn write(&mut self, page: u32, record: &[u8]) -> Result<(), String> {
        self.0.insert(page, record.to_vec());
        Ok(())
    }
}

/// Records as strings of a server of the Redis protocol.
pub struct RedisRecords(pub Client);

impl RecordStore for RedisRecords {
    fn read(&mut self, page: u32) -> Result<Option<Vec<u8>>, String> {
        match self.0.call(&["GET", &record_key(page)]).map_err(|error| error.to_string())? {
            Value::Null => Ok(None),
            Value::Bulk(record) => Ok(Some(record)),
            other => Err(format!("wrong answer to GET: {}", shown(&other))),
        }
    }

    fn write(&mut self, page: u32, record: &[u8]) -> Result<(), String> {
        let key = record_key(page);
        match self.0.call(&[b"SET", key.as_bytes(), record]).map_err(|error| error.to_string())? {
            Value::Simple(_) => Ok(()),
            other => Err(format!("wrong answer to SET: {}", shown(&other))),
        }
    }
}

impl RecordStore for Memcached {
    fn read(&mut self, page: u32) -> Result<Option<Vec<u8>>, String> {
        self.get(&record_key(page))
    }

    fn write(&mut self, page: u32, record: &[u8]) -> Result<(), String> {
        self.set(&record_key(page), record)
    }
}

/// Key of a page's record.
pub fn record_key(page: u32) -> String {
    format!("page:{page}")
}

/// Which collection the pages of a record are members of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collection {
    /// HINCRBY, HGETALL.
    Hash,
    /// ZINCRBY, ZRANGE.
    SortedSet,
}

/// Records as hashes or sorted sets; the page itself stands among its own members and counts its fans.
pub struct RedisCounters {
    client: Client,
    collection: Collection,
    requests: Vec<u8>,
}

impl RedisCounters {
    /// Counts over one connection.
    pub fn new(client: Client, collection: Collection) -> Self {
        Self { client, collection, requests: Vec::new() }
    }
}

impl CounterStore for RedisCounters {
    fn count(&mut self, pages: &[u32]) -> Result<(), String> {
        self.requests.clear();
        let names: Vec<String> = pages.iter().map(u32::to_string).collect();
        for page in pages {
            let key = record_key(*page);
            for other in &names {
                match self.collection {
                    Collection::Hash => encode(&["HINCRBY", &key, other, "1"], &mut self.requests),
                    Collection::SortedSet => encode(&["ZINCRBY", &key, "1", other], &mut self.requests),
                }
            }
        }
        let mut wrong = None;
        self.client
            .pipeline(&self.requests, pages.len() * pages.len(), |reply| {
                if matches!(reply, Value::Error(_) | Value::Null) {
                    wrong = Some(reply);
                }
            })
            .map_err(|error| error.to_string())?;
        match wrong {
            Some(reply) => Err(format!("wrong answer to an increment: {}", shown(&reply))),
            None => Ok(()),
        }
    }

    fn record(&mut self, page: u32) -> Result<Record, String> {
        let key = record_key(page);
        let reply = match self.collection {
            Collection::Hash => self.client.call(&["HGETALL", &key]),
            Collection::SortedSet => self.client.call(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]),
        };
        let Value::Array(elements) = reply.map_err(|error| error.to_string())? else {
            return Err(format!("page {page} is no collection"));
        };
        let mut record = Record::default();
        for pair in elements.chunks(2) {
            let numbers: Option<Vec<u64>> = pair
                .iter()
                .map(|element| std::str::from_utf8(element.as_bytes()?).ok()?.parse().ok())
                .collect();
            match numbers.as_deref() {
                Some([other, fans]) if *other == u64::from(page) => record.fans = *fans,
                Some([other, fans]) => {
                    record.shared.insert(*other as u32, *fans);
                }
                _ => return Err(format!("page {page} has members that are no counts")),
            }
        }
        Ok(record)
    }
}
