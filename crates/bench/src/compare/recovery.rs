//! Rows about recovery: how fast a started server has the contents of its files.
//!
//! ```text
//! first server    fill ─ SAVE, or the log as it was written ─ SHUTDOWN
//! second server                                    start ─ LOADING … ─ all keys are there
//!                                                  │◀────── measured ──────▶│
//! ```

use std::{
    thread,
    time::{Duration, Instant},
};

use dunlin_resp::Value;

use super::{
    compaction::{Write, await_end},
    measure::Conditions,
    server::Server,
};
use crate::figures::{Sample, sample};

const VALUE_BYTES: usize = 100;
/// How often the second server is asked whether it has everything.
const POLL: Duration = Duration::from_millis(5);
/// How long that may take.
const TIME_MAX: Duration = Duration::from_secs(600);

/// The file that a server recovers from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The file that SAVE writes.
    Snapshot,
    /// The append-only log, a SET for each key, never rewritten.
    Log,
}

impl Source {
    /// The name of the files in the server's folder, with defaults.
    fn name(self) -> &'static str {
        match self {
            Self::Snapshot => "dump.rdb",
            Self::Log => "appendonlydir",
        }
    }

    /// The flags that make a server load them.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Snapshot => &[],
            Self::Log => &["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"],
        }
    }
}

impl Conditions {
    /// How many keys a second a server has when it is started on the files of another.
    pub(super) fn recovery(&self, server: &mut Server, source: Source) -> Result<Vec<Sample>, String> {
        let keys = self.scale.compaction_keys;
        let told = |error: crate::target::TargetError| error.to_string();
        if source == Source::Log {
            let words = ["CONFIG", "SET", "auto-aof-rewrite-percentage", "0", "appendonly", "yes"];
            server.client()?.call(&words).map_err(told)?;
            await_end(server, Write::Rewrite, Instant::now(), &mut |_| Ok(()))?;
        }
        self.fill(server, "SET key:__seq_int__ __data__", keys, VALUE_BYTES)?;
        if source == Source::Snapshot {
            match server.client()?.call(&["SAVE"]).map_err(told)? {
                Value::Simple(_) => {}
                other => return Err(format!("SAVE answered {other:?}")),
            }
        }
        let begun = server.restart_on(source.name(), source.flags())?;
        let took = await_keys(server, keys, begun)?;
        let cpu_ns = server.cpu_since_start_ns()?;
        Ok(vec![
            sample("keys loaded", "keys/s", keys as f64 / took.as_secs_f64()),
            sample("time", "s", took.as_secs_f64()),
            sample("CPU per key", "µs", cpu_ns as f64 / 1e3 / keys as f64),
        ])
    }
}

/// Waits until a server has loaded `keys` keys. Returns how long after `begun` that was.
fn await_keys(server: &Server, keys: u64, begun: Instant) -> Result<Duration, String> {
    let mut client = server.client()?;
    loop {
        match client.call(&["DBSIZE"]).map_err(|error| error.to_string())? {
            Value::Integer(count) if count.max(0) as u64 == keys => return Ok(begun.elapsed()),
            Value::Error(text) if text.starts_with(b"LOADING") => {}
            other => return Err(format!("DBSIZE answered {other:?} after loading, not {keys}")),
        }
        if begun.elapsed() > TIME_MAX {
            return Err(format!("it loads after {} s", TIME_MAX.as_secs()));
        }
        thread::sleep(POLL);
    }
}
