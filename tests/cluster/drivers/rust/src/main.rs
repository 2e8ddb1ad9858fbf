//! redis-rs as drivers; test_cluster_clients.py has the protocol. The first argument is `sync` or `async`.

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redis::cluster::{ClusterClient, ClusterClientBuilder, cluster_pipe};
use redis::{AsyncCommands, Commands, ProtocolVersion, PushKind, RedisResult, Script, Value};

const WORKERS: usize = 2;
const KEYS: usize = 32;
const PAUSE: Duration = Duration::from_millis(4);
const DEADLINE: Duration = Duration::from_secs(20);
const PAIR: &str = "return {redis.call('incr', KEYS[1]), redis.call('incr', KEYS[2])}";
const SCRIPT: &str = "return redis.call('incrby', KEYS[1], ARGV[1])";

struct Counter {
    key: String,
    /// The last reply of c and d, and the attempts whose outcome is unknown.
    last: [i64; 2],
    unknown: [i64; 2],
}

#[derive(Default)]
struct Report {
    done: i64,
    errors: i64,
    doubled: i64,
    lost: i64,
    longest_ms: u128,
    texts: Vec<String>,
}

impl Report {
    fn add(&mut self, counter: &mut Counter, kind: usize, outcome: RedisResult<Vec<i64>>, took: Duration) {
        self.longest_ms = self.longest_ms.max(took.as_millis());
        let got = match outcome {
            Ok(got) => got,
            Err(error) => {
                self.errors += 1;
                if self.texts.len() < 5 {
                    self.texts.push(format!("{error:?}"));
                }
                counter.unknown[0] += i64::from(kind != 3);
                counter.unknown[1] += i64::from(kind == 2);
                return;
            }
        };
        self.done += 1;
        for (at, value) in got.into_iter().enumerate() {
            let next = counter.last[at] + i64::from(kind != 3);
            if value < next {
                self.lost += 1;
            } else if counter.unknown[at] == 0 {
                self.doubled += value - next;
            }
            if kind != 3 {
                counter.last[at] = value;
            }
        }
    }
}

#[derive(Clone)]
enum Source {
    Sync(ClusterClient),
    Async(ClusterClient),
}

/// A worker's own connection.
enum Client {
    Sync(ClusterClient, Option<redis::cluster::ClusterConnection>),
    Async(tokio::runtime::Runtime, Box<redis::cluster_async::ClusterConnection>),
}

impl Client {
    fn new(source: &Source) -> RedisResult<Self> {
        Ok(match source {
            Source::Sync(client) => Self::Sync(client.clone(), None),
            Source::Async(client) => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let connection = runtime.block_on(client.get_async_connection())?;
                Self::Async(runtime, Box::new(connection))
            }
        })
    }

    fn step(&mut self, key: &str, kind: usize) -> RedisResult<Vec<i64>> {
        let (c, d) = (format!("{key}c"), format!("{key}d"));
        let one = |value: i64| vec![value];
        match self {
            // The library has no transactions on this kind of connection; a script does the same. The library does not
            // ask where slots are when a node refuses connections, so a connection that has failed is made anew, as by
            // the library's pools.
            Self::Sync(source, kept) => {
                let mut connection = match kept.take() {
                    Some(connection) => connection,
                    None => source.get_connection()?,
                };
                let outcome = match kind {
                    2 => Script::new(PAIR).key(&c).key(&d).invoke(&mut connection),
                    3 => connection.get(&c).map(|value: Option<i64>| one(value.unwrap_or(0))),
                    _ => connection.incr(&c, 1).map(one),
                };
                if outcome.is_ok() {
                    *kept = Some(connection);
                }
                outcome
            }
            // The library does not send a transaction again that a redirection has aborted; a script does the same.
            Self::Async(runtime, connection) => runtime.block_on(async {
                match kind {
                    2 => Script::new(PAIR).key(&c).key(&d).invoke_async(connection.as_mut()).await,
                    3 => connection.get(&c).await.map(|value: Option<i64>| one(value.unwrap_or(0))),
                    _ => connection.incr(&c, 1).await.map(one),
                }
            }),
        }
    }
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, got: T, wanted: T) -> Result<(), String> {
    if got == wanted { Ok(()) } else { Err(format!("{what}: got {got:?}, want {wanted:?}")) }
}

fn check_sync(client: &ClusterClient, prefix: &str) -> Result<(), String> {
    let text = |error| format!("{error:?}");
    let mut connection = client.get_connection().map_err(text)?;
    let (a, b) = (format!("{{{prefix}}}a"), format!("{{{prefix}}}b"));
    let mut pipe = cluster_pipe();
    for number in 0..200 {
        connection.set::<_, _, ()>(format!("{prefix}:{number}"), number).map_err(text)?;
        pipe.get(format!("{prefix}:{number}"));
    }
    expect("GET", pipe.query::<Vec<i64>>(&mut connection).map_err(text)?, (0..200).collect())?;
    connection.mset::<_, _, ()>(&[(&a, 1), (&b, 2)]).map_err(text)?;
    expect("MGET", connection.mget::<_, Vec<i64>>(&[&a, &b]).map_err(text)?, vec![1, 2])?;
    expect("EVALSHA", Script::new(SCRIPT).key(&a).arg(41).invoke(&mut connection).map_err(text)?, 42)
}

async fn hear(
    pushes: &mut tokio::sync::mpsc::UnboundedReceiver<redis::PushInfo>,
    kind: PushKind,
) -> Result<(), String> {
    let message = async {
        loop {
            match pushes.recv().await {
                Some(push) if push.kind == kind => return push.data.last().cloned(),
                Some(_) => {}
                None => return None,
            }
        }
    };
    let found = tokio::time::timeout(DEADLINE, message).await.map_err(|_| format!("no {kind:?}"))?;
    expect("message", found, Some(Value::BulkString(b"hello".to_vec())))
}

async fn check_async(addresses: &[String], prefix: &str) -> Result<(), String> {
    let text = |error| format!("{error:?}");
    let (sender, mut pushes) = tokio::sync::mpsc::unbounded_channel();
    let builder = ClusterClientBuilder::new(addresses.to_vec())
        .use_protocol(ProtocolVersion::RESP3)
        .push_sender(sender);
    let mut connection = builder.build().map_err(text)?.get_async_connection().await.map_err(text)?;
    let (a, b) = (format!("{{{prefix}}}a"), format!("{{{prefix}}}b"));
    for number in 0..200 {
        connection.set::<_, _, ()>(format!("{prefix}:{number}"), number).await.map_err(text)?;
    }
    let mut pipe = redis::pipe();
    pipe.incr(&a, 1).get(&a);
    expect("pipeline", pipe.query_async::<Vec<i64>>(&mut connection).await.map_err(text)?, vec![1, 1])?;
    connection.mset::<_, _, ()>(&[(&a, 1), (&b, 2)]).await.map_err(text)?;
    expect("MGET", connection.mget::<_, Vec<i64>>(&[&a, &b]).await.map_err(text)?, vec![1, 2])?;
    let exec: Vec<i64> =
        redis::pipe().atomic().incr(&a, 1).incr(&b, 1).query_async(&mut connection).await.map_err(text)?;
    expect("EXEC", exec, vec![2, 3])?;
    expect(
        "EVALSHA",
        Script::new(SCRIPT).key(&a).arg(40).invoke_async(&mut connection).await.map_err(text)?,
        42,
    )?;
    connection.subscribe(prefix).await.map_err(text)?;
    connection.publish::<_, _, ()>(prefix, "hello").await.map_err(text)?;
    hear(&mut pushes, PushKind::Message).await?;
    connection.ssubscribe(prefix).await.map_err(text)?;
    connection.spublish::<_, _, ()>(prefix, "hello").await.map_err(text)?;
    hear(&mut pushes, PushKind::SMessage).await
}

struct Driver {
    source: Source,
    addresses: Vec<String>,
    report: Arc<Mutex<Report>>,
    ends: Arc<AtomicBool>,
    workers: Vec<JoinHandle<Vec<Counter>>>,
}

impl Driver {
    fn check(&self, prefix: &str) -> Result<String, String> {
        match &self.source {
            Source::Sync(client) => check_sync(client, prefix)?,
            Source::Async(_) => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.map_err(|error| error.to_string())?.block_on(check_async(&self.addresses, prefix))?;
            }
        }
        Ok(String::new())
    }

    fn load(&mut self, prefix: &str) -> Result<String, String> {
        for worker in 0..WORKERS {
            let mut client = Client::new(&self.source).map_err(|error| format!("{error:?}"))?;
            let (report, ends) = (self.report.clone(), self.ends.clone());
            let counter =
                |at| Counter { key: format!("{{{prefix}-{worker}-{at}}}"), last: [0; 2], unknown: [0; 2] };
            let mut counters: Vec<Counter> = (0..KEYS).map(counter).collect();
            self.workers.push(thread::spawn(move || {
                for step in 0.. {
                    if ends.load(Ordering::Relaxed) {
                        break;
                    }
                    let (counter, kind) = (&mut counters[step % KEYS], step / KEYS % 4);
                    let began = Instant::now();
                    let outcome = client.step(&counter.key, kind);
                    report.lock().expect("no panics").add(counter, kind, outcome, began.elapsed());
                    thread::sleep(PAUSE);
                }
                counters
            }));
        }
        Ok(String::new())
    }

    fn report(&self) -> String {
        let Report { done, errors, doubled, lost, longest_ms, texts } =
            std::mem::take(&mut *self.report.lock().expect("no panics"));
        format!("{done} {errors} {doubled} {lost} {longest_ms} {}", texts.join(" | "))
    }

    fn stop(&mut self) -> String {
        self.ends.store(true, Ordering::Relaxed);
        let counters = self.workers.drain(..).flat_map(|worker| worker.join().expect("no panics"));
        let lines = counters.map(|Counter { key, last, unknown }| {
            format!("{key}c={}:{} {key}d={}:{}", last[0], unknown[0], last[1], unknown[1])
        });
        lines.collect::<Vec<_>>().join(" ")
    }
}

fn main() -> RedisResult<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let addresses: Vec<String> =
        arguments[2].split(',').map(|address| format!("redis://{address}")).collect();
    // Of the library's cluster only: its class for Sentinel does not take a node for one.
    if arguments[1] != "cluster" {
        std::process::exit(2);
    }
    let client = ClusterClient::new(addresses.clone())?;
    let source = if arguments[0] == "sync" { Source::Sync(client) } else { Source::Async(client) };
    let mut driver =
        Driver { source, addresses, report: Arc::default(), ends: Arc::default(), workers: Vec::new() };
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[..] {
            ["check", prefix] => driver.check(prefix),
            ["load", prefix] => driver.load(prefix),
            ["report"] => Ok(driver.report()),
            _ => Ok(driver.stop()),
        };
        let line = match answer {
            Ok(answer) => format!("ok {answer}"),
            Err(error) => format!("failed {error}"),
        };
        println!("{}", line.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    Ok(())
}
