//! A cache before something slow. Of all workers that miss an entry at once, one computes it and the others wait;
//! when the one crashes, another takes over as soon as its lease has run out.
//!
//! ```text
//! cargo run -- [CALLERS]
//!
//! cache:<name>         the entry; expires
//! cache:<name>:lease   the connection that computes it; expires
//! ```
//!
//! The server is that of DUNLIN_URL, or redis://127.0.0.1:6379.

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use redis::{Client, Connection, RedisResult, Script};

const ENTRY: Duration = Duration::from_secs(60);
/// Longer than any computation takes; a crash costs the others this time.
const LEASE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(5);

/// A worker that has lost the lease in the meantime must not overwrite the result of another.
const STORE: &str = "
    if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
    redis.call('DEL', KEYS[2])
    return 1";

/// The entry of a name, out of the cache or computed.
fn cached(store: &mut Connection, name: &str, compute: impl Fn() -> String) -> RedisResult<String> {
    let (key, lease) = (format!("cache:{name}"), format!("cache:{name}:lease"));
    // No two connections to a server have the same.
    let me: u64 = redis::cmd("CLIENT").arg("ID").query(store)?;
    let look = |store: &mut Connection| redis::cmd("GET").arg(&key).query::<Option<String>>(store);
    loop {
        if let Some(entry) = look(store)? {
            return Ok(entry);
        }
        let mut take = redis::cmd("SET");
        take.arg(&lease).arg(me).arg("NX").arg("PX").arg(LEASE.as_millis() as u64);
        if take.query::<Option<String>>(store)?.is_none() {
            thread::sleep(POLL);
            continue;
        }
        // Between the look and the lease, another may have stored it.
        let entry = match look(store)? {
            Some(entry) => entry,
            None => compute(),
        };
        let script = Script::new(STORE);
        let mut store_entry = script.prepare_invoke();
        store_entry.key(&key).key(&lease).arg(me).arg(&entry).arg(ENTRY.as_millis() as u64);
        store_entry.invoke::<u64>(store)?;
        return Ok(entry);
    }
}

/// Lets `callers` threads ask for the same entry. Returns how often it was computed.
fn stampede(client: &Client, name: &str, callers: usize) -> Result<usize, Box<dyn Error>> {
    let computed = AtomicUsize::new(0);
    let compute = || {
        computed.fetch_add(1, Ordering::Relaxed);
        thread::sleep(LEASE / 50);
        "the report".to_string()
    };
    let answers: Vec<RedisResult<String>> = thread::scope(|scope| {
        let ask = || cached(&mut client.get_connection()?, name, compute);
        let asking: Vec<_> = (0..callers).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|thread| thread.join().expect("a caller panicked")).collect()
    });
    for answer in answers {
        assert_eq!(answer?, "the report");
    }
    Ok(computed.load(Ordering::Relaxed))
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let url = env::var("DUNLIN_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
    let callers = env::args().nth(1).map_or(Ok(16), |text| text.parse())?;
    let client = Client::open(url)?;
    let mut store = client
        .get_connection()
        .map_err(|error| format!("no server: {error}. Start one (make run), or name one in DUNLIN_URL."))?;
    for name in ["daily", "weekly"] {
        let keys = [format!("cache:{name}"), format!("cache:{name}:lease")];
        redis::cmd("DEL").arg(&keys).exec(&mut store)?;
    }
    println!("{callers} callers, {} computation", stampede(&client, "daily", callers)?);
    println!("{callers} callers, {} computations: it is in the cache", stampede(&client, "daily", callers)?);
    // Another worker takes the lease and is never heard of again.
    let mut taken = redis::cmd("SET");
    taken
        .arg("cache:weekly:lease")
        .arg("crashed")
        .arg("PX")
        .arg(LEASE.as_millis() as u64)
        .exec(&mut store)?;
    println!("{callers} callers after a crash, {} computation", stampede(&client, "weekly", callers)?);
    Ok(())
}
