//! Traces of caches: requests in order, read from published formats.
//!
//! ```text
//! Twitter  timestamp,key,key size,value size,client,operation,TTL              no header
//! Meta     key,op,size,op_count,key_size,…  or  op_time,key,key_size,op,…      a header names the columns
//! ```
//!
//! Twitter: J. Yang, Y. Yue, K. V. Rashmi, "A large scale analysis of hundreds of in-memory cache clusters", OSDI 2020.
//! Meta: the traces of kvcache that CacheLib publishes.

use std::collections::HashMap;
use std::io::BufRead;

/// Longest value that a trace may ask for.
pub const VALUE_BYTES_MAX: u32 = 64 << 20;

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads, and stores if nothing is found.
    Get,
    /// Stores.
    Set,
    /// Removes.
    Delete,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The number of its key.
    pub key: u32,
    /// The operation.
    pub operation: Operation,
    /// Bytes of the value.
    pub value_bytes: u32,
    /// Seconds until a stored value expires; 0 for never.
    pub ttl_s: u32,
}

/// Requests in order, and the names of their keys.
#[derive(Debug, Default)]
pub struct Trace {
    /// Its name in reports.
    pub name: String,
    /// In order.
    pub requests: Vec<Request>,
    /// By number.
    pub keys: Vec<Box<str>>,
}

/// The meaning of the columns.
struct Columns {
    key: usize,
    operation: usize,
    value_bytes: usize,
    ttl_s: Option<usize>,
    repeats: Option<usize>,
}

const TWITTER: Columns = Columns { key: 1, operation: 5, value_bytes: 3, ttl_s: Some(6), repeats: None };

impl Columns {
    /// The columns that a header names; `None` if the line is not a header.
    fn of_header(line: &str) -> Option<Self> {
        let place = |names: &[&str]| line.split(',').position(|column| names.contains(&column.trim()));
        Some(Self {
            key: place(&["key"])?,
            operation: place(&["op"])?,
            value_bytes: place(&["size", "value_size"])?,
            ttl_s: place(&["ttl"]),
            repeats: place(&["op_count"]),
        })
    }
}

impl Trace {
    /// Reads up to `requests_max` requests. The error names the line.
    pub fn read(name: &str, lines: impl BufRead, requests_max: usize) -> Result<Self, String> {
        let mut trace = Self { name: name.to_owned(), ..Self::default() };
        let mut numbers: HashMap<Box<str>, u32> = HashMap::new();
        let mut columns = TWITTER;
        for (index, line) in lines.lines().enumerate() {
            let failed = |reason: &str| format!("{name}, line {}: {reason}", index + 1);
            let line = line.map_err(|error| failed(&error.to_string()))?;
            if index == 0
                && let Some(named) = Columns::of_header(&line)
            {
                columns = named;
                continue;
            }
            if line.is_empty() {
                continue;
            }
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            let field = |at: usize| fields.get(at).copied().ok_or_else(|| failed("a column is missing"));
            let number = |at: usize| {
                // Meta writes some of them as fractions.
                let value: f64 = field(at)?.parse().map_err(|_| failed("a number is none"))?;
                Ok::<u32, String>(value.max(0.0).min(f64::from(u32::MAX)) as u32)
            };
            let operation = match field(columns.operation)?.to_ascii_lowercase().as_str() {
                "get" | "gets" | "get_lease" => Operation::Get,
                "delete" => Operation::Delete,
                "set" | "add" | "replace" | "cas" | "append" | "prepend" | "incr" | "decr" | "set_lease" => {
                    Operation::Set
                }
                _ => return Err(failed("the operation is unknown")),
            };
            let value_bytes = number(columns.value_bytes)?.min(VALUE_BYTES_MAX);
            let ttl_s = columns.ttl_s.map_or(Ok(0), number)?;
            let repeats = columns.repeats.map_or(Ok(1), number)?.max(1);
            let key = field(columns.key)?;
            let next = trace.keys.len() as u32;
            let key = *numbers.entry(key.into()).or_insert_with(|| {
                trace.keys.push(key.into());
                next
            });
            for _ in 0..repeats {
                if trace.requests.len() == requests_max {
                    return Ok(trace);
                }
                trace.requests.push(Request { key, operation, value_bytes, ttl_s });
            }
        }
        Ok(trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Trace, String> {
        Trace::read("t", text.as_bytes(), 100)
    }

    #[test]
    fn published_formats_are_read() {
        let twitter =
            read("0,q:q:1,48,213,10,get,0\n0,yDq,48,27,3,set,100\n1,q:q:1,48,213,10,delete,0\n").unwrap();
        assert_eq!(twitter.keys, ["q:q:1".into(), "yDq".into()]);
        let of = |key, operation, value_bytes, ttl_s| Request { key, operation, value_bytes, ttl_s };
        let expected =
            [of(0, Operation::Get, 213, 0), of(1, Operation::Set, 27, 100), of(0, Operation::Delete, 213, 0)];
        assert_eq!(twitter.requests, expected);
        let meta = read("key,op,size,op_count,key_size\n1668,GET,82.0,2,22\n7,SET,13,1,20\n").unwrap();
        assert_eq!(
            meta.requests,
            [of(0, Operation::Get, 82, 0), of(0, Operation::Get, 82, 0), of(1, Operation::Set, 13, 0)]
        );
        let newer = read("op_time,key,key_size,op,op_count,size,cache_hits,ttl\n0,9,5,GET_LEASE,1,10,1,60\n")
            .unwrap();
        assert_eq!(newer.requests, [of(0, Operation::Get, 10, 60)]);
    }

    #[test]
    fn trace_errors_name_their_line() {
        for (text, expected) in [
            ("0,k,1,2,3,get,0\n0,k", "line 2: a column is missing"),
            ("0,k,1,x,3,get,0", "line 1: a number is none"),
            ("0,k,1,2,3,frobnicate,0", "line 1: the operation is unknown"),
        ] {
            assert!(read(text).unwrap_err().contains(expected));
        }
    }
}
