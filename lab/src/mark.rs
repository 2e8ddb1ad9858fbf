//! The mark of the lab in a server that ran already: by it the next run distinguishes the keys of a killed
//! lab from a user's.
//!
//! ```text
//! key      lab:mark → "dunlin-lab RUN is at work …"     there as long as the lab's keys are
//! client   name=dunlin-lab:RUN                                 a connection that ends with the process
//! ```
//!
//! Invariant: nothing is erased but where the mark is found, its run is over, and every key has a name that
//! the lab gives.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use dunlin_resp::Value;

use super::server::shown;
use dunlin_bench::target::{Client, Target, TargetError, encode};

/// The library of functions that the lab loads.
pub const LIBRARY_NAME: &str = "dunlin_lab";
const KEY: &str = "lab:mark";
const BEFORE_RUN: &str = "dunlin-lab ";
const BEHIND_RUN: &str = " is at work in this database and will erase it";
/// How the keys of all experiments begin.
const NAMES: [&str; 8] = ["key:", "lab:", "number:", "page:", "prefix:", "title:", "user:", "ycsb:"];
/// A server may need a moment to see that a process has ended.
const END_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);
const SCAN_COUNT: &str = "1000";

/// A database that is the lab's as long as this lives.
#[derive(Debug)]
pub struct Mark {
    /// The connection that says so. If clients have no names there is no key either: by it the next run
    /// would take this one for over.
    named: Option<Client>,
}

/// The mark that is found in a database.
pub enum Found {
    /// No mark.
    None,
    /// The mark of this very run: another column is the same database.
    Own,
    /// The mark of another run.
    Other(String),
}

impl Mark {
    /// Marks a database in which there is nothing yet.
    pub fn new(target: &Target) -> Result<Self, String> {
        let mut named = target.client().map_err(text)?;
        if let Value::Error(_) = named.call(&["CLIENT", "SETNAME", &client_name(run())]).map_err(text)? {
            return Ok(Self { named: None });
        }
        match named.call(&["SET", KEY, &note()]).map_err(text)? {
            Value::Simple(_) => Ok(Self { named: Some(named) }),
            other => Err(format!("wrong answer to SET {KEY}: {}", shown(&other))),
        }
    }

    /// How many keys it takes.
    pub fn keys(&self) -> u64 {
        u64::from(self.named.is_some())
    }

    /// Empties the database but for the mark, which is missing at no time that a kill could hit.
    pub fn erase_others(&self, target: &Target) -> Result<(), String> {
        let mut requests = Vec::new();
        encode(&["FLUSHDB"], &mut requests);
        if self.named.is_some() {
            encode(&["SET", KEY, &note()], &mut requests);
        }
        let mut refusal = None;
        let mut client = target.client().map_err(text)?;
        client
            .pipeline(&requests, 1 + self.keys() as usize, |reply| {
                if !matches!(reply, Value::Simple(_)) {
                    refusal = Some(reply);
                }
            })
            .map_err(text)?;
        refusal.map_or(Ok(()), |reply| Err(format!("FLUSHDB: {}", shown(&reply))))
    }
}

/// Looks for a mark.
pub fn find(target: &Target) -> Result<Found, String> {
    let reply = target.client().and_then(|mut client| client.call(&["GET", KEY])).map_err(text)?;
    let of_run = |value: &[u8]| {
        let run = std::str::from_utf8(value).ok()?.strip_prefix(BEFORE_RUN)?.strip_suffix(BEHIND_RUN)?;
        Some(if run == self::run() { Found::Own } else { Found::Other(run.into()) })
    };
    Ok(match &reply {
        Value::Bulk(value) => of_run(value).unwrap_or(Found::None),
        _ => Found::None,
    })
}

/// Erases the keys that another run has left. Fails if that run may not be over, or if a key is not the
/// lab's.
pub fn erase_left_behind(target: &Target, run: &str) -> Result<(), String> {
    let mut client = target.client().map_err(text)?;
    let start = Instant::now();
    while is_at_work(&mut client, run)? {
        if start.elapsed() > END_MAX {
            return Err("another lab is at work in it".into());
        }
        thread::sleep(POLL);
    }
    let mut cursor = b"0".to_vec();
    loop {
        let (next, page) = scan(&mut client, &cursor)?;
        let is_ours = |key: &Value| {
            key.as_bytes().is_some_and(|key| NAMES.iter().any(|name| key.starts_with(name.as_bytes())))
        };
        if let Some(key) = page.iter().find(|key| !is_ours(key)) {
            return Err(format!(
                "a lab that was killed has left keys in it, but {} is not one of them: nothing was erased",
                shown(key)
            ));
        }
        cursor = next;
        if cursor == b"0" {
            break;
        }
    }
    match client.call(&["FLUSHDB"]).map_err(text)? {
        Value::Simple(_) => {}
        other => return Err(format!("FLUSHDB: {}", shown(&other))),
    }
    // The server may have no such library, and may not know functions at all.
    let _ = client.call(&["FUNCTION", "DELETE", LIBRARY_NAME]).map_err(text)?;
    Ok(())
}

/// The next cursor, and keys.
fn scan(client: &mut Client, cursor: &[u8]) -> Result<(Vec<u8>, Vec<Value>), String> {
    let command = [b"SCAN".as_slice(), cursor, b"COUNT", SCAN_COUNT.as_bytes()];
    let reply = client.call(&command).map_err(text)?;
    if let Value::Array(pair) = &reply
        && let [Value::Bulk(next), Value::Array(page)] = pair.as_slice()
    {
        return Ok((next.clone(), page.clone()));
    }
    Err(format!("wrong answer to SCAN: {}", shown(&reply)))
}

/// Whether a connection of that run is open.
fn is_at_work(client: &mut Client, run: &str) -> Result<bool, String> {
    let reply = client.call(&["CLIENT", "LIST"]).map_err(text)?;
    let list = match &reply {
        Value::Error(_) => None,
        list => list.as_bytes(),
    };
    let list = list.ok_or_else(|| {
        format!(
            "it has the mark of another lab, and CLIENT LIST does not tell whether that is over: {}",
            shown(&reply)
        )
    })?;
    Ok(memchr::memmem::find(list, format!(" name={} ", client_name(run)).as_bytes()).is_some())
}

/// This process among all that have ever run.
fn run() -> &'static str {
    static RUN: OnceLock<String> = OnceLock::new();
    RUN.get_or_init(|| {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        format!("{}-{}", since.as_nanos(), std::process::id())
    })
}

fn client_name(run: &str) -> String {
    format!("dunlin-lab:{run}")
}

fn note() -> String {
    format!("{BEFORE_RUN}{}{BEHIND_RUN}", run())
}

fn text(error: TargetError) -> String {
    error.to_string()
}
