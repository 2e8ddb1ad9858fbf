//! Digests of values that do not depend on how a server keeps them: out of the replies of reading commands.
//!
//! ```text
//! TYPE, PEXPIRETIME ─▶ size ─▶ small: the whole value, many keys at once
//!                          └─▶ large: in pieces, key by key
//! ```
//!
//! Elements of sets, hashes and sorted sets are digested one by one and sorted: their order is the server's own business.

use std::hash::{DefaultHasher, Hasher};

use dunlin_resp::Value;

use super::side::Side;
use crate::server::text;

/// Elements, and bytes of strings, that are read at once.
const ELEMENTS_EACH: u64 = 1000;
const BYTES_EACH: u64 = 256 * 1024;
/// Bytes of the version and the checksum behind the value in a dump.
const DUMP_END_BYTES: usize = 2 + 8;

/// A digest of a key; `None` if it is not there.
pub(super) type Digest = Option<u64>;

/// The commands that both servers have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Questions {
    /// When a key expires, in absolute time: without, only whether it does.
    pub(super) expiry_times: bool,
    /// When fields of hashes expire.
    pub(super) field_expiries: bool,
}

fn word(word: &str) -> Vec<u8> {
    word.as_bytes().to_vec()
}

/// A digest of parts, each with its length.
fn digest_of<'p>(parts: impl Iterator<Item = &'p [u8]>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for part in parts {
        hasher.write_usize(part.len());
        hasher.write(part);
    }
    hasher.finish()
}

/// The bytes of a flat reply's items.
fn items(value: &Value) -> Vec<&[u8]> {
    match value {
        Value::Array(items) => items.iter().map(|item| item.as_bytes().unwrap_or_default()).collect(),
        _ => Vec::new(),
    }
}

/// Digests of keys of the selected database, in their order.
pub(super) fn digests(
    side: &mut Side,
    keys: &[Vec<u8>],
    questions: Questions,
) -> Result<Vec<Digest>, String> {
    let expiry = word(if questions.expiry_times { "PEXPIRETIME" } else { "PTTL" });
    let asked =
        keys.iter().flat_map(|key| [vec![word("TYPE"), key.clone()], vec![expiry.clone(), key.clone()]]);
    let facts = side.pipelined(asked)?;
    let kinds: Vec<String> =
        facts.iter().step_by(2).map(|kind| kind.as_bytes().map(text).unwrap_or_default()).collect();
    let times = facts.iter().skip(1).step_by(2).map(|time| match time {
        Value::Integer(time) if questions.expiry_times => *time,
        Value::Integer(time) => i64::from(*time >= 0),
        _ => 0,
    });
    let times: Vec<i64> = times.collect();
    let sizes = kinds.iter().zip(keys).map(|(kind, key)| {
        let command = match &**kind {
            "string" => "STRLEN",
            "list" => "LLEN",
            "set" => "SCARD",
            "zset" => "ZCARD",
            "hash" => "HLEN",
            "stream" => "XLEN",
            "array" => "ARCOUNT",
            _ => "EXISTS",
        };
        vec![word(command), key.clone()]
    });
    let sizes = side.pipelined(sizes)?;
    let mut digests = Vec::with_capacity(keys.len());
    let mut small = Vec::new();
    for (nth, (kind, size)) in kinds.iter().zip(&sizes).enumerate() {
        digests.push(None);
        let size = if let Value::Integer(size) = size { *size as u64 } else { 0 };
        let size_max = if kind == "string" { BYTES_EACH } else { ELEMENTS_EACH };
        if kind == "none" {
            continue;
        }
        if size <= size_max && kind != "stream" && kind != "array" {
            small.push(nth);
            continue;
        }
        let content = large(side, kind, &keys[nth], size, questions)?;
        digests[nth] = Some(content);
    }
    let read = small.iter().map(|nth| {
        let key = keys[*nth].clone();
        match &*kinds[*nth] {
            "string" => vec![word("GET"), key],
            "list" => vec![word("LRANGE"), key, word("0"), word("-1")],
            "set" => vec![word("SMEMBERS"), key],
            "hash" => vec![word("HGETALL"), key],
            "zset" => vec![word("ZRANGE"), key, word("0"), word("-1"), word("WITHSCORES")],
            // Servers may compress the text of a dump or not.
            "ReJSON-RL" => vec![word("JSON.GET"), key],
            _ => vec![word("DUMP"), key],
        }
    });
    let values = side.pipelined(read)?;
    for (nth, value) in small.into_iter().zip(values) {
        digests[nth] = match &*kinds[nth] {
            "string" | "ReJSON-RL" => value.as_bytes().map(|bytes| digest_of([bytes].into_iter())),
            "list" => Some(list_digest(&[items(&value)])),
            "set" => {
                Some(sorted(items(&value).iter().map(|member| digest_of([*member].into_iter())).collect()))
            }
            "zset" => Some(sorted(pairs_of_scores(&items(&value)))),
            "hash" => {
                let fields = items(&value);
                Some(sorted(pairs_of_fields(side, &keys[nth], &fields, questions)?))
            }
            // A value of a type that is compared as it is: each server puts its own version and a checksum behind it.
            _ => {
                let value = value.as_bytes().map(|dump| &dump[..dump.len().saturating_sub(DUMP_END_BYTES)]);
                value.map(|value| digest_of([value].into_iter()))
            }
        };
    }
    let with_facts = digests.into_iter().zip(kinds).zip(times).map(|((content, kind), time)| {
        let parts = [content?.to_le_bytes().to_vec(), kind.into_bytes(), time.to_le_bytes().to_vec()];
        Some(digest_of(parts.iter().map(|part| &part[..])))
    });
    Ok(with_facts.collect())
}

/// A digest of digests in any order; one that comes twice counts once, as SCAN may repeat elements.
fn sorted(mut digests: Vec<u64>) -> u64 {
    digests.sort_unstable();
    digests.dedup();
    let mut hasher = DefaultHasher::new();
    digests.iter().for_each(|digest| hasher.write_u64(*digest));
    hasher.finish()
}

/// The digest of a list in pieces: the order counts, the ends of the pieces do not.
fn list_digest(pieces: &[Vec<&[u8]>]) -> u64 {
    digest_of(pieces.iter().flatten().copied())
}

/// Scores are compared as numbers: servers print them differently.
fn pairs_of_scores(items: &[&[u8]]) -> Vec<u64> {
    let pairs = items.chunks_exact(2).map(|pair| {
        let score =
            str::from_utf8(pair[1]).ok().and_then(|score| score.parse::<f64>().ok()).unwrap_or(f64::NAN);
        digest_of([pair[0], &score.to_bits().to_le_bytes()].into_iter())
    });
    pairs.collect()
}

fn pairs_of_fields(
    side: &mut Side,
    key: &[u8],
    items: &[&[u8]],
    questions: Questions,
) -> Result<Vec<u64>, String> {
    let fields = items.len() / 2;
    let times = if questions.field_expiries && fields > 0 {
        let head = [word("HPEXPIRETIME"), key.to_vec(), word("FIELDS"), word(&fields.to_string())];
        let names = items.iter().step_by(2).map(|field| field.to_vec());
        side.pipelined(std::iter::once(head.into_iter().chain(names).collect()))?.pop()
    } else {
        None
    };
    let time_of = |nth: usize| match &times {
        Some(Value::Array(times)) => match times.get(nth) {
            Some(Value::Integer(time)) => *time,
            _ => -1,
        },
        _ => -1,
    };
    let pairs = items
        .chunks_exact(2)
        .enumerate()
        .map(|(nth, pair)| digest_of([pair[0], pair[1], &time_of(nth).to_le_bytes()].into_iter()));
    Ok(pairs.collect())
}

/// A digest of a large value, or of a stream.
fn large(side: &mut Side, kind: &str, key: &[u8], size: u64, questions: Questions) -> Result<u64, String> {
    let one = |side: &mut Side, words: Vec<Vec<u8>>| -> Result<Value, String> {
        Ok(side.pipelined(std::iter::once(words))?.pop().unwrap_or(Value::Null))
    };
    let number = |number: u64| word(&number.to_string());
    match kind {
        "string" => {
            let mut hasher = DefaultHasher::new();
            // As `digest_of` of the whole.
            hasher.write_usize(size as usize);
            for start in (0..size).step_by(BYTES_EACH as usize) {
                let end = number((start + BYTES_EACH).min(size) - 1);
                let piece = one(side, vec![word("GETRANGE"), key.to_vec(), number(start), end])?;
                hasher.write(piece.as_bytes().unwrap_or_default());
            }
            Ok(hasher.finish())
        }
        "list" => {
            let mut hasher = DefaultHasher::new();
            for start in (0..size).step_by(ELEMENTS_EACH as usize) {
                let end = number(start + ELEMENTS_EACH - 1);
                let piece = one(side, vec![word("LRANGE"), key.to_vec(), number(start), end])?;
                for item in items(&piece) {
                    hasher.write_usize(item.len());
                    hasher.write(item);
                }
            }
            Ok(hasher.finish())
        }
        "stream" => stream(side, key),
        "array" => array(side, key),
        _ => {
            let command = match kind {
                "set" => "SSCAN",
                "zset" => "ZSCAN",
                _ => "HSCAN",
            };
            let (mut digests, mut cursor) = (Vec::new(), word("0"));
            loop {
                let words = vec![word(command), key.to_vec(), cursor, word("COUNT"), number(ELEMENTS_EACH)];
                let Value::Array(parts) = one(side, words)? else { return Ok(sorted(digests)) };
                let [next, elements] = &parts[..] else { return Ok(sorted(digests)) };
                let elements = items(elements);
                match kind {
                    "set" => digests.extend(elements.iter().map(|member| digest_of([*member].into_iter()))),
                    "zset" => digests.extend(pairs_of_scores(&elements)),
                    _ => digests.extend(pairs_of_fields(side, key, &elements, questions)?),
                }
                cursor = next.as_bytes().unwrap_or(b"0").to_vec();
                if cursor == b"0" {
                    return Ok(sorted(digests));
                }
            }
        }
    }
}

/// Indexes and values, and where the next value is inserted.
fn array(side: &mut Side, key: &[u8]) -> Result<u64, String> {
    let (mut hasher, mut from) = (DefaultHasher::new(), 0_u64);
    let (last, limit) = ((u64::MAX - 1).to_string(), ELEMENTS_EACH.to_string());
    loop {
        let words =
            [word("ARSCAN"), key.to_vec(), word(&from.to_string()), word(&last), word("LIMIT"), word(&limit)];
        let Some(Value::Array(pairs)) = side.pipelined(std::iter::once(words.into()))?.pop() else { break };
        let mut next = None;
        for pair in &pairs {
            let Value::Array(parts) = pair else { continue };
            let [Value::Integer(index), value] = &parts[..] else { continue };
            hasher.write_i64(*index);
            hasher.write_u64(digest_of(std::iter::once(value.as_bytes().unwrap_or_default())));
            next = u64::try_from(*index).ok().map(|index| index + 1);
        }
        match next.filter(|_| pairs.len() as u64 == ELEMENTS_EACH) {
            Some(next) => from = next,
            None => break,
        }
    }
    let next = side.pipelined(std::iter::once(vec![word("ARNEXT"), key.to_vec()]))?.pop();
    if let Some(Value::Integer(next)) = next {
        hasher.write_i64(next);
    }
    Ok(hasher.finish())
}

/// Entries, the last ID, and the groups with their deliveries.
fn stream(side: &mut Side, key: &[u8]) -> Result<u64, String> {
    let (mut hasher, mut from) = (DefaultHasher::new(), word("-"));
    loop {
        let words = vec![
            word("XRANGE"),
            key.to_vec(),
            from,
            word("+"),
            word("COUNT"),
            word(&ELEMENTS_EACH.to_string()),
        ];
        let Some(Value::Array(entries)) = side.pipelined(std::iter::once(words))?.pop() else { break };
        for entry in &entries {
            let Value::Array(parts) = entry else { continue };
            let fields = parts.get(1).map(items).unwrap_or_default();
            let id = parts.first().and_then(Value::as_bytes).unwrap_or_default();
            hasher.write_u64(digest_of(std::iter::once(id).chain(fields)));
        }
        let last = entries.last().and_then(|entry| match entry {
            Value::Array(parts) => parts.first()?.as_bytes(),
            _ => None,
        });
        let Some(last) = last.filter(|_| entries.len() as u64 == ELEMENTS_EACH) else { break };
        from = [b"(", last].concat();
    }
    let about =
        [[word("XINFO"), word("STREAM"), key.to_vec()], [word("XINFO"), word("GROUPS"), key.to_vec()]];
    let about = side.pipelined(about.into_iter().map(Vec::from))?;
    let [facts, groups] = &about[..] else { return Ok(hasher.finish()) };
    hasher.write(&field_of(facts, "last-generated-id"));
    if let Value::Array(groups) = groups {
        for group in groups {
            for name in ["name", "pending", "last-delivered-id"] {
                hasher.write(&field_of(group, name));
                hasher.write_u8(0);
            }
        }
    }
    Ok(hasher.finish())
}

/// A field of a map that is a flat array.
fn field_of(map: &Value, name: &str) -> Vec<u8> {
    let Value::Array(parts) = map else { return Vec::new() };
    let pair = parts.chunks_exact(2).find(|pair| pair[0].as_bytes() == Some(name.as_bytes()));
    match pair.map(|pair| &pair[1]) {
        Some(Value::Integer(number)) => number.to_string().into_bytes(),
        Some(value) => value.as_bytes().unwrap_or_default().to_vec(),
        None => Vec::new(),
    }
}
