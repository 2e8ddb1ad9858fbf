//! Requests and answers of the gateway. Numbers of 64 bits are text, keys and values base64, and fields of value zero are left
//! out: the mapping of Protocol Buffers to JSON.

use std::fmt;

use base64::{Engine, prelude::BASE64_STANDARD};
use dunlin_cluster::meta::{Change, Item, LeaseId, MetaError, Revision, Snapshot, Transaction, Write};
use serde::{Deserialize, Deserializer, Serialize, de};

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn decode(text: &str) -> Result<Vec<u8>, MetaError> {
    BASE64_STANDARD.decode(text).map_err(|error| MetaError::Protocol(format!("base64: {error}")))
}

fn decode_key(text: &str) -> Result<String, MetaError> {
    String::from_utf8(decode(text)?).map_err(|_| MetaError::Protocol("a key that is no text".to_owned()))
}

/// Returns the first key behind all that begin with the prefix.
pub(crate) fn end_of_prefix(prefix: &str) -> Vec<u8> {
    // UTF-8 has no byte 0xff, so the last one can be counted up.
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        Some(last) => *last += 1,
        // To etcd, this one means that there is no end.
        None => end.push(0),
    }
    end
}

/// A number as text, as newer and older gateways may write it.
fn number<'de, D: Deserializer<'de>, N: TryFrom<i64>>(deserializer: D) -> Result<N, D::Error> {
    struct Visitor;
    impl de::Visitor<'_> for Visitor {
        type Value = i64;
        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a number")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<i64, E> {
            text.parse().map_err(E::custom)
        }
        fn visit_i64<E: de::Error>(self, number: i64) -> Result<i64, E> {
            Ok(number)
        }
        fn visit_u64<E: de::Error>(self, number: u64) -> Result<i64, E> {
            number.try_into().map_err(E::custom)
        }
    }
    let number = deserializer.deserialize_any(Visitor)?;
    N::try_from(number).map_err(|_| de::Error::custom("a number out of range"))
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Header {
    #[serde(default, deserialize_with = "number")]
    pub(crate) revision: Revision,
}

#[derive(Debug, Serialize)]
pub(crate) struct Range {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    range_end: Option<String>,
}

impl Range {
    pub(crate) fn new(key: &str, range_end: Option<Vec<u8>>) -> Self {
        // An empty prefix begins at the first key there can be.
        let key = if key.is_empty() { "\0" } else { key };
        Self { key: encode(key), range_end: range_end.map(encode) }
    }
}

#[derive(Debug, Deserialize)]
struct KeyValue {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default, deserialize_with = "number")]
    mod_revision: Revision,
    #[serde(default, deserialize_with = "number")]
    lease: i64,
}

impl KeyValue {
    fn lease(&self) -> Option<LeaseId> {
        (self.lease != 0).then_some(LeaseId(self.lease))
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Ranged {
    header: Header,
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

impl Ranged {
    pub(crate) fn into_snapshot(self) -> Result<Snapshot, MetaError> {
        let items = self.kvs.into_iter().map(|kv| {
            Ok(Item {
                key: decode_key(&kv.key)?,
                value: decode(&kv.value)?,
                revision: kv.mod_revision,
                lease: kv.lease(),
            })
        });
        Ok(Snapshot { revision: self.header.revision, items: items.collect::<Result<_, _>>()? })
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct TransactionRequest {
    compare: Vec<CompareRequest>,
    success: Vec<WriteRequest>,
}

#[derive(Debug, Serialize)]
struct CompareRequest {
    key: String,
    target: &'static str,
    result: &'static str,
    mod_revision: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum WriteRequest {
    RequestPut { key: String, value: String, lease: String },
    RequestDeleteRange { key: String },
}

pub(crate) fn transaction(transaction: &Transaction) -> TransactionRequest {
    let compare = transaction.compares.iter().map(|compare| CompareRequest {
        key: encode(&compare.key),
        target: "MOD",
        result: "EQUAL",
        mod_revision: compare.revision.to_string(),
    });
    let success = transaction.writes.iter().map(|write| match write {
        Write::Put { key, value, lease } => WriteRequest::RequestPut {
            key: encode(key),
            value: encode(value),
            lease: lease.map_or(0, |lease| lease.0).to_string(),
        },
        Write::Delete { key } => WriteRequest::RequestDeleteRange { key: encode(key) },
    });
    TransactionRequest { compare: compare.collect(), success: success.collect() }
}

#[derive(Debug, Deserialize)]
pub(crate) struct TransactionDone {
    pub(crate) header: Header,
    #[serde(default)]
    pub(crate) succeeded: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Grant {
    #[serde(rename = "TTL")]
    ttl: String,
}

impl Grant {
    pub(crate) fn new(ttl_s: u32) -> Self {
        Self { ttl: ttl_s.to_string() }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Granted {
    #[serde(rename = "ID", default, deserialize_with = "number")]
    pub(crate) id: i64,
    #[serde(rename = "TTL", default, deserialize_with = "number")]
    pub(crate) ttl: u32,
}

#[derive(Debug, Serialize)]
pub(crate) struct Lease {
    #[serde(rename = "ID")]
    id: String,
}

impl Lease {
    pub(crate) fn new(lease: LeaseId) -> Self {
        Self { id: lease.0.to_string() }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct KeptAlive {
    pub(crate) result: Kept,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Kept {
    #[serde(rename = "TTL", default, deserialize_with = "number")]
    pub(crate) ttl: u32,
}

/// An answer of which nothing is needed.
#[derive(Debug, Deserialize)]
pub(crate) struct Nothing {}

#[derive(Debug, Serialize)]
pub(crate) struct Authenticate<'a> {
    pub(crate) name: &'a str,
    pub(crate) password: &'a str,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Token {
    pub(crate) token: String,
}

/// An error of gRPC, as the gateway shows it: at the top, or as the only field of a stream's line.
#[derive(Debug, Deserialize)]
pub(crate) struct GatewayError {
    #[serde(default, alias = "grpc_code")]
    pub(crate) code: u32,
    #[serde(default)]
    pub(crate) message: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct WatchRequest {
    create_request: CreateWatch,
}

#[derive(Debug, Serialize)]
struct CreateWatch {
    key: String,
    range_end: String,
    start_revision: String,
}

impl WatchRequest {
    pub(crate) fn new(prefix: &str, after: Revision) -> Self {
        let Range { key, range_end } = Range::new(prefix, Some(end_of_prefix(prefix)));
        let start_revision = (after + 1).to_string();
        Self { create_request: CreateWatch { key, range_end: range_end.unwrap_or_default(), start_revision } }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct WatchLine {
    result: Option<WatchResult>,
    error: Option<GatewayError>,
}

#[derive(Debug, Deserialize)]
struct WatchResult {
    #[serde(default)]
    canceled: bool,
    #[serde(default)]
    cancel_reason: String,
    #[serde(default, deserialize_with = "number")]
    compact_revision: Revision,
    #[serde(default)]
    events: Vec<WatchEvent>,
}

#[derive(Debug, Deserialize)]
struct WatchEvent {
    #[serde(default, rename = "type")]
    kind: String,
    kv: KeyValue,
}

impl WatchLine {
    pub(crate) fn into_changes(self) -> Result<Vec<Change>, MetaError> {
        if let Some(error) = self.error {
            return Err(MetaError::Unavailable(error.message));
        }
        let Some(result) = self.result else {
            return Err(MetaError::Protocol("a line of a watch without a result".to_owned()));
        };
        if result.compact_revision > 0 {
            return Err(MetaError::Compacted(result.compact_revision));
        }
        if result.canceled {
            return Err(MetaError::Denied(result.cancel_reason));
        }
        let changes = result.events.into_iter().map(|event| {
            let value = if event.kind == "DELETE" { None } else { Some(decode(&event.kv.value)?) };
            Ok(Change {
                key: decode_key(&event.kv.key)?,
                value,
                revision: event.kv.mod_revision,
                lease: event.kv.lease(),
            })
        });
        changes.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_lines_are_read() {
        let line = |text: &str| serde_json::from_str::<WatchLine>(text).unwrap().into_changes();
        assert_eq!(line(r#"{"result":{"header":{"revision":"2"},"created":true}}"#), Ok(vec![]));
        let change = Change { key: "a".into(), value: Some(b"1".to_vec()), revision: 2, lease: None };
        let put = r#"{"result":{"events":[{"kv":{"key":"YQ==","mod_revision":"2","value":"MQ=="}}]}}"#;
        assert_eq!(line(put), Ok(vec![change.clone()]));
        let delete = r#"{"result":{"events":[{"type":"DELETE","kv":{"key":"YQ==","mod_revision":"3"}}]}}"#;
        assert_eq!(line(delete), Ok(vec![Change { value: None, revision: 3, ..change }]));
        let compacted = r#"{"result":{"canceled":true,"compact_revision":"3"}}"#;
        assert_eq!(line(compacted), Err(MetaError::Compacted(3)));
    }

    #[test]
    fn hostile_answers_are_errors() {
        let line = |text: &str| match serde_json::from_str::<WatchLine>(text) {
            Ok(line) => line.into_changes().is_err(),
            Err(_) => true,
        };
        for text in [
            "{}",
            "[]",
            r#"{"result":{"events":[{"kv":{"key":"*"}}]}}"#,
            r#"{"result":{"events":[{"kv":{"key":"/w==","value":""}}]}}"#,
            r#"{"result":{"events":[{"kv":{"key":"YQ==","mod_revision":"-1"}}]}}"#,
            r#"{"result":{"events":[{"kv":{"key":"YQ==","mod_revision":"99999999999999999999"}}]}}"#,
            r#"{"error":{"grpc_code":14,"message":"gone"}}"#,
        ] {
            assert!(line(text), "{text}");
        }
    }

    #[test]
    fn prefix_range_ends_before_its_successor() {
        assert_eq!(end_of_prefix("/a/"), b"/a0");
        assert_eq!(end_of_prefix(""), b"\0");
    }
}
