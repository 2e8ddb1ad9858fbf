//! A server that an experiment talks to: one process, several behind a proxy, or one that runs
//! elsewhere.
//!
//! Load goes to the `fronts`, questions (INFO, DBSIZE) and FLUSHDB to the `backends`; for a plain
//! server both are the same.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use dunlin_resp::Value;

use super::contender::{CLIENTS_MAX, free_port, loopback};
use super::mark::{self, Found, Mark};
use super::memcached::Memcached;
use dunlin_bench::figures::{Sample, sample};
use dunlin_bench::load::{Load, Outcome, Plan, Progress};
use dunlin_bench::process::{Process, ScratchFolder};
use dunlin_bench::target::{Address, Client, Target, encode};

/// Keys of the check of answers.
const CHECK_KEYS: usize = 500;
/// Resident memory is at rest when it moves less than this fraction in [`REST`].
const REST_FRACTION: f64 = 0.001;
const REST: Duration = Duration::from_millis(300);
const REST_MAX: Duration = Duration::from_secs(60);

/// The protocol of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// The Redis protocol.
    Redis,
    /// memcached's text protocol.
    Memcached,
}

/// A server of one column.
#[derive(Debug)]
pub struct Server {
    /// Its column.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Targets of the load.
    pub fronts: Vec<Target>,
    /// Holders of the data.
    pub backends: Vec<Target>,
    /// Its Unix domain socket.
    pub unix: Option<Target>,
    /// The processes that the lab has started for it; none when it ran already.
    pub processes: Vec<Process>,
    /// Flags it was started with, or its settings about persistence.
    pub settings: String,
    /// The data that a killed lab had left in it, now erased.
    pub left_behind: Option<String>,
    /// Set if it ran already and was empty: all of its data are the lab's. (Of memcached, experiments
    /// delete their keys one by one.)
    mark: Option<Mark>,
}

impl Drop for Server {
    /// Leaves a server that ran already as it was found.
    fn drop(&mut self) {
        if self.mark.is_some() {
            // If that fails, the next experiment finds the mark.
            let _ = self.ask_all(&["FLUSHDB"]);
        }
    }
}

/// The outcome of a load and its cost to the server.
pub struct Measured {
    /// Replies and latencies.
    pub outcome: Outcome,
    /// CPU time of all its processes; nothing if it does not say.
    pub cpu: Option<Duration>,
}

impl Measured {
    /// Throughput, CPU time and latencies; throughput is the headline.
    pub fn samples(&self) -> Vec<Sample> {
        let outcome = &self.outcome;
        let mut samples = vec![sample("throughput", "requests/s", outcome.requests_per_second())];
        if let Some(cpu) = self.cpu {
            let per_request = cpu.as_secs_f64() * 1e6 / outcome.tally.replies as f64;
            samples.push(sample("server CPU per request", "µs", per_request));
        }
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            samples.push(sample(name, "ms", outcome.latencies.quantile_ms(quantile)));
        }
        samples
    }
}

impl Server {
    /// A server without any process.
    pub fn new(name: &str, protocol: Protocol) -> Self {
        let (fronts, backends, processes) = (Vec::new(), Vec::new(), Vec::new());
        let (name, settings) = (name.into(), String::new());
        let (unix, left_behind, mark) = (None, None, None);
        Self { name, protocol, fronts, backends, unix, processes, settings, left_behind, mark }
    }

    /// Starts a program of Redis's flags and adds it to the server.
    pub fn add_redis(
        &mut self,
        path: &Path,
        subcommand: &[&str],
        own: &[&str],
        flags: &[&str],
        processors: &[usize],
    ) -> Result<(), String> {
        let folder = ScratchFolder::new()?;
        let socket = folder.path().join("socket");
        let (port, clients) = (free_port()?, CLIENTS_MAX.to_string());
        let shown = [own, flags, &["--maxclients", &clients]].concat();
        self.settings =
            shown.iter().map(|flag| if flag.is_empty() { "''" } else { flag }).collect::<Vec<_>>().join(" ");
        let place =
            ["--bind", "127.0.0.1", "--port", &port.to_string(), "--unixsocket", &socket.to_string_lossy()];
        let arguments =
            [subcommand, &place[..], &shown].concat().into_iter().map(String::from).collect::<Vec<_>>();
        let mut process = Process::start(path, &arguments, folder, processors)?;
        let (tcp, unix) = (loopback(port), Target::new(Address::Unix(socket)));
        process.await_ready(|| {
            let answers =
                |target: &Target| target.client().is_ok_and(|mut client| client.call(&["PING"]).is_ok());
            answers(&tcp) && answers(&unix)
        })?;
        self.fronts.push(tcp.clone());
        self.backends.push(tcp);
        self.unix = Some(unix).filter(|_| self.fronts.len() == 1);
        self.processes.push(process);
        Ok(())
    }

    /// Connects to a server that runs already. Refuses one that holds keys of a user; the keys of a killed
    /// lab are erased.
    pub fn attach(&mut self, target: Target) -> Result<(), String> {
        if matches!(target.address, Address::Unix(_)) {
            self.unix = Some(target.clone());
        }
        self.fronts.push(target.clone());
        self.backends.push(target);
        match self.protocol {
            Protocol::Redis => {
                self.take_over()?;
                self.settings = self.persistence();
            }
            Protocol::Memcached => {
                refuse_keys(Memcached::connect(&self.fronts[0])?.items()?)?;
                self.settings = "ran already".into();
            }
        }
        Ok(())
    }

    /// Makes the database of a server of the Redis protocol the lab's, if there is nothing in it.
    fn take_over(&mut self) -> Result<(), String> {
        let target = self.backends[0].clone();
        let keys = self.key_count()?;
        let of_others = match mark::find(&target)? {
            Found::None => keys,
            Found::Own => keys.saturating_sub(1),
            Found::Other(run) => {
                mark::erase_left_behind(&target, &run)?;
                self.left_behind = Some(format!("erased {keys} keys that a lab had left which was killed"));
                0
            }
        };
        refuse_keys(of_others)?;
        self.mark = Some(Mark::new(&target)?);
        Ok(())
    }

    /// The settings of a running server about its persistence.
    fn persistence(&self) -> String {
        let named = ["save", "appendonly", "appendfsync"].map(|name| match self.setting(name) {
            Ok(Some(value)) => format!("{name} '{value}'"),
            _ => format!("{name} unknown"),
        });
        format!("ran already; {}", named.join(", "))
    }

    /// A setting of the first process; nothing if it does not say.
    pub fn setting(&self, name: &str) -> Result<Option<String>, String> {
        let reply = self.backends[0].client().and_then(|mut client| client.call(&["CONFIG", "GET", name]));
        Ok(match reply.map_err(|error| error.to_string())? {
            Value::Array(pair) => {
                pair.get(1).and_then(Value::as_bytes).map(|value| String::from_utf8_lossy(value).into_owned())
            }
            _ => None,
        })
    }

    /// Whether the lab has started it.
    pub fn is_own(&self) -> bool {
        !self.processes.is_empty()
    }

    /// A blocking client.
    pub fn client(&self) -> Result<Client, String> {
        self.fronts[0].client().map_err(|error| error.to_string())
    }

    /// Asks every process the same; the replies.
    pub fn ask_all(&self, command: &[&str]) -> Result<Vec<Value>, String> {
        self.backends.iter().map(|target| ask(target, command)).collect()
    }

    /// Number of keys, the lab's mark not counted.
    pub fn key_count(&self) -> Result<u64, String> {
        let mut total: u64 = 0;
        for reply in self.ask_all(&["DBSIZE"])? {
            match reply {
                Value::Integer(count) => total += count.max(0) as u64,
                other => return Err(format!("DBSIZE answered {other:?}")),
            }
        }
        Ok(total.saturating_sub(self.mark.as_ref().map_or(0, Mark::keys)))
    }

    /// Fails unless it holds exactly `expected` keys.
    pub fn expect_keys(&self, expected: u64) -> Result<(), String> {
        match self.key_count()? {
            count if count == expected => Ok(()),
            count => Err(format!("wrong answer: it holds {count} keys instead of {expected}")),
        }
    }

    /// Removes all keys of a server of the Redis protocol.
    pub fn erase(&self) -> Result<(), String> {
        match &self.mark {
            Some(mark) => mark.erase_others(&self.backends[0])?,
            None => drop(self.ask_all(&["FLUSHDB"])?),
        }
        self.expect_keys(0)
    }

    /// Whether it has a command.
    pub fn knows(&self, command: &str) -> bool {
        let reply = ask(&self.backends[0], &["COMMAND", "INFO", command]);
        matches!(reply, Ok(Value::Array(rows)) if rows.iter().any(|row| matches!(row, Value::Array(_))))
    }

    /// CPU time used so far by all its processes; nothing if it does not say.
    pub fn cpu(&self) -> Result<Option<Duration>, String> {
        if self.is_own() {
            let times: Result<Vec<u64>, String> = self.processes.iter().map(Process::cpu_ns).collect();
            return Ok(Some(Duration::from_nanos(times?.iter().sum())));
        }
        match self.protocol {
            Protocol::Redis => {
                let seconds = self.client()?.cpu_seconds().map_err(|error| error.to_string())?;
                Ok(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
            }
            Protocol::Memcached => Ok(None),
        }
    }

    /// Resident memory of all its processes in bytes, once it has come to rest.
    pub fn settled_bytes(&self) -> Result<f64, String> {
        let start = Instant::now();
        let mut last = self.resident_bytes()?;
        loop {
            thread::sleep(REST);
            let bytes = self.resident_bytes()?;
            if (bytes - last).abs() <= last * REST_FRACTION {
                return Ok(bytes);
            }
            if start.elapsed() > REST_MAX {
                return Err("the resident memory does not come to rest".into());
            }
            last = bytes;
        }
    }

    fn resident_bytes(&self) -> Result<f64, String> {
        if self.is_own() {
            let sizes: Result<Vec<u64>, String> =
                self.processes.iter().map(Process::resident_bytes).collect();
            return Ok(sizes?.iter().sum::<u64>() as f64);
        }
        let info = self.client()?.info("memory").map_err(|error| error.to_string())?;
        info.and_then(|info| info.number("used_memory_rss"))
            .ok_or_else(|| "INFO has no used_memory_rss".into())
    }

    /// Loads it; several fronts share the load evenly. Fails when a request is answered with an error.
    pub fn load(&self, plan: &Plan) -> Result<Outcome, String> {
        self.load_at(&self.fronts, plan)
    }

    fn load_at(&self, fronts: &[Target], plan: &Plan) -> Result<Outcome, String> {
        let outcomes: Vec<Result<Outcome, String>> = thread::scope(|scope| {
            let running: Vec<_> = (fronts.iter().enumerate())
                .map(|(index, target)| scope.spawn(move || load(target, &share(plan, index, fronts.len()))))
                .collect();
            running.into_iter().map(|thread| thread.join().expect("a loading thread panicked")).collect()
        });
        let mut total = Outcome::default();
        for outcome in outcomes {
            total.add(outcome?);
        }
        match total.errors.iter().next() {
            Some((text, count)) => Err(format!("{count} requests were answered with: {text}")),
            None => Ok(total),
        }
    }

    /// Loads it between two looks at its CPU time.
    pub fn measure(&self, plan: &Plan) -> Result<Measured, String> {
        self.measure_at(&self.fronts, plan)
    }

    /// Loads it through other sockets than its fronts.
    pub fn measure_at(&self, fronts: &[Target], plan: &Plan) -> Result<Measured, String> {
        let before = self.cpu()?;
        let outcome = self.load_at(fronts, plan)?;
        let after = self.cpu()?;
        if outcome.tally.replies == 0 {
            return Err("no request was answered".into());
        }
        let cpu = after.zip(before).map(|(after, before)| after.saturating_sub(before));
        Ok(Measured { outcome, cpu })
    }

    /// Writes values of many lengths and reads them back, byte for byte; leaves nothing behind. A server
    /// that keeps the wrong bytes shows here, and not in the counters of a load.
    pub fn check_answers(&self, value_bytes_max: usize) -> Result<(), String> {
        let mut client = self.client()?;
        let value = |index: usize| -> Vec<u8> {
            let length = index * value_bytes_max / (CHECK_KEYS - 1);
            (0..length).map(|at| (at * 31 + index * 7 + at / 251) as u8).collect()
        };
        let key = |index: usize| format!("lab:check:{index}").into_bytes();
        let mut requests = Vec::new();
        for index in 0..CHECK_KEYS {
            encode(&[b"SET".to_vec(), key(index), value(index)], &mut requests);
        }
        for index in 0..CHECK_KEYS {
            encode(&[b"GET".to_vec(), key(index)], &mut requests);
        }
        for index in 0..CHECK_KEYS {
            encode(&[b"DEL".to_vec(), key(index)], &mut requests);
        }
        let mut replies = Vec::with_capacity(3 * CHECK_KEYS);
        client
            .pipeline(&requests, 3 * CHECK_KEYS, |reply| replies.push(reply))
            .map_err(|error| error.to_string())?;
        for (number, reply) in replies.iter().enumerate() {
            let (command, index) = (number / CHECK_KEYS, number % CHECK_KEYS);
            let (asked, right) = match command {
                0 => ("SET", *reply == Value::Simple(b"OK".to_vec())),
                1 => ("GET", reply.as_bytes() == Some(&value(index))),
                _ => ("DEL", *reply == Value::Integer(1)),
            };
            if !right {
                return Err(format!("wrong answer to {asked} lab:check:{index}: {}", shown(reply)));
            }
        }
        Ok(())
    }
}

/// Refuses a server that holds keys: they belong to a user.
fn refuse_keys(keys: u64) -> Result<(), String> {
    match keys {
        0 => Ok(()),
        keys => Err(format!(
            "holds {keys} keys, and the lab erases what it writes: name an empty database (…/9), or empty it"
        )),
    }
}

/// Asks a question on a connection of its own.
fn ask(target: &Target, command: &[&str]) -> Result<Value, String> {
    match target.client().and_then(|mut client| client.call(command)).map_err(|error| error.to_string())? {
        Value::Error(text) => Err(format!("{}: {}", command.join(" "), String::from_utf8_lossy(&text))),
        reply => Ok(reply),
    }
}

/// Loads one front. Each counts its own requests, so that a sequence fills the keys of each.
fn load(target: &Target, plan: &Plan) -> Result<Outcome, String> {
    Load::connect(target, plan)
        .and_then(|load| load.run(&Progress::default(), None))
        .map_err(|error| error.to_string())
}

/// The part of a plan that one of several fronts gets: its connections, requests and keys.
fn share(plan: &Plan, index: usize, fronts: usize) -> Plan {
    if fronts == 1 {
        return plan.clone();
    }
    let part = |total: u64| (total + (fronts - 1 - index) as u64) / fronts as u64;
    let mut share = plan.clone();
    share.clients = (part(plan.clients as u64) as usize).max(1);
    share.threads = plan.threads.div_ceil(fronts);
    share.requests = plan.requests.map(part);
    share.rate = plan.rate.map(|rate| rate / fronts as f64);
    if plan.filling.keyspace_given {
        share.filling.keyspace = part(plan.filling.keyspace).max(1);
    }
    share.seed = plan.seed.wrapping_add(index as u64 * 0x9e37);
    share
}

/// A reply for an error line: its start, readable.
pub fn shown(reply: &Value) -> String {
    const SHOWN_MAX: usize = 60;
    match reply.as_bytes() {
        Some(bytes) => {
            let start = bytes[..bytes.len().min(SHOWN_MAX)].escape_ascii();
            format!("\"{start}\" ({} bytes)", bytes.len())
        }
        None => format!("{reply:?}").chars().take(SHOWN_MAX).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_bench::template::{Filling, Template};

    #[test]
    fn fronts_share_a_plan_without_rest() {
        let mut plan = Plan::new(Template::words("SET key:__seq_int__ x"), Filling::new(Some(1001), 1));
        plan.requests = Some(1001);
        let shares: Vec<_> = (0..3).map(|index| share(&plan, index, 3)).collect();
        assert_eq!(shares.iter().map(|share| share.requests.unwrap()).sum::<u64>(), 1001);
        assert_eq!(shares.iter().map(|share| share.clients).collect::<Vec<_>>(), [17, 17, 16]);
        assert!(shares.iter().all(|share| share.filling.keyspace == share.requests.unwrap()));
    }
}
