//! The methods of the table. Every measurement checks the server's answers and gives up with one line when
//! they are wrong.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::compaction::Course;
use super::rows::{Method, Row, Scale, Transport, Verb};
use super::server::Server;
use crate::figures::{Sample, sample};
use crate::load::{Load, Outcome, Plan, Progress};
use crate::template::{Filling, Template};

const VALUE_BYTES: usize = 100;
const CLIENTS: usize = 50;
pub(super) const FILL_PIPELINE: usize = 100;
const GROWTH_CLIENTS: usize = 8;
const GROWTH_PIPELINE: usize = 16;
const HOT_PIPELINE: usize = 16;
const COMMAND_PIPELINE: usize = 16;
/// Keys that are read while something happens to others.
pub(super) const LASTING_KEYS: u64 = 1000;
/// How long expired keys may stay before the row is given up.
const EXPIRY_MAX: Duration = Duration::from_secs(120);
/// How often a server is asked whether the keys are gone.
const EXPIRY_POLL: Duration = Duration::from_millis(10);
/// Bytes that the connections which ask and probe may add to used_memory.
const ASKING_BYTES: f64 = 1024.0 * 1024.0;
/// Resident memory is at rest when it moves less than this fraction in [`REST`].
const REST_FRACTION: f64 = 0.001;
const REST: Duration = Duration::from_millis(500);
const REST_MAX: Duration = Duration::from_secs(60);

/// How requests come.
#[derive(Debug, Clone, Copy)]
struct Pace {
    transport: Transport,
    /// Most under way on a connection.
    pipeline: usize,
    /// Requests a second, however the server answers; as it answers without.
    rate: Option<f64>,
}

impl Pace {
    fn closed(transport: Transport, pipeline: usize) -> Self {
        Self { transport, pipeline, rate: None }
    }

    fn open(rate: u32) -> Self {
        Self { transport: Transport::Tcp, pipeline: COMMAND_PIPELINE, rate: Some(rate.into()) }
    }
}

/// How measurements are made.
#[derive(Debug, Clone, Copy)]
pub struct Conditions {
    /// How much of everything.
    pub scale: Scale,
    /// Processor of the client, if it has one of its own.
    pub client_processor: Option<usize>,
    /// Distinguishes the random numbers of rounds.
    pub seed: u64,
}

impl Conditions {
    /// Takes one measurement of a row; its first sample is the headline. The course over time is returned
    /// beside them.
    pub fn measure(&self, row: &Row, server: &mut Server) -> Result<(Vec<Sample>, Option<Course>), String> {
        let name = server.program.name.clone();
        let failed = |error: String| format!("{} on {name}: {error}", row.name);
        if let Method::Compaction(write) = row.method {
            let (samples, course) = self.compaction(server, write).map_err(failed)?;
            return Ok((samples, Some(course)));
        }
        let samples = match row.method {
            Method::Cost(verb, transport, pipeline) => {
                self.cost(server, verb, Pace::closed(transport, pipeline))
            }
            Method::CostAtRate(verb, rate) => self.cost(server, verb, Pace::open(rate)),
            Method::HotKey(verb) => self.hot_key(server, verb),
            Method::Throughput(verb) => self.throughput(server, verb),
            Method::EmptyMemory => settled_bytes(server)
                .map(|bytes| vec![sample("resident memory, empty", "MiB", bytes / f64::from(1 << 20))]),
            Method::Memory { value_bytes, expiry } => self.memory(server, value_bytes, expiry),
            Method::Growth => self.growth(server),
            Method::Expiry => self.expiry(server),
            Method::Command { fill, words } => self.command_cost(server, fill, words, COMMAND_PIPELINE),
            Method::Whole { fills, words } => self.whole_cost(server, fills, words),
            Method::Beside { fills, words } => self.beside(server, fills, words),
            Method::Transaction => self.transaction_cost(server),
            Method::Publish => self.publish_cost(server),
            Method::ScriptTime(text) => self.script_time(server, text),
            Method::Recovery(source) => self.recovery(server, source),
            Method::Compaction(_) => unreachable!("measured above"),
        };
        Ok((samples.map_err(failed)?, None))
    }

    /// Fills a server with the keys that the request rows use.
    pub fn preload(&self, server: &Server) -> Result<(), String> {
        if server.program.is_constant {
            return Ok(());
        }
        self.fill(server, "SET key:__seq_int__ __data__", self.scale.keys, VALUE_BYTES)?;
        expect_keys(server, self.scale.keys)
    }

    pub(super) fn plan(&self, words: &str, keyspace: Option<u64>, value_bytes: usize) -> Plan {
        let mut plan = Plan::new(Template::words(words), Filling::new(keyspace, value_bytes));
        plan.clients = CLIENTS;
        plan.seed = self.seed;
        plan.pin_to = self.client_processor;
        plan
    }

    /// Sends exactly `requests` requests, numbered from 0.
    pub(super) fn fill(
        &self,
        server: &Server,
        words: &str,
        requests: u64,
        value_bytes: usize,
    ) -> Result<Outcome, String> {
        let mut plan = self.plan(words, Some(requests), value_bytes);
        plan.requests = Some(requests);
        plan.clients = GROWTH_CLIENTS;
        plan.pipeline = FILL_PIPELINE;
        run(server, Transport::Tcp, &plan)
    }

    /// A warmed-up, timed run of one command; returns its outcome and the CPU time that it cost the server.
    fn timed(
        &self,
        server: &Server,
        verb: Verb,
        Pace { transport, pipeline, rate }: Pace,
        keyspace: Option<u64>,
    ) -> Result<(Outcome, u64), String> {
        const GET: &str = "GET key:__rand_int__";
        const SET: &str = "SET key:__rand_int__ __data__";
        let words = match verb {
            Verb::Get => GET,
            Verb::Set | Verb::GetOrSet => SET,
            Verb::Xadd => "XADD growing MAXLEN ~ 1000 * field __data__",
            Verb::Pfadd => "PFADD growing __rand_int__",
        };
        let mut plan = self.plan(words, keyspace, VALUE_BYTES);
        if verb == Verb::GetOrSet {
            plan.template = Template::mix(&[(1, GET), (1, SET)]);
        }
        plan.requests = None;
        plan.pipeline = pipeline;
        plan.rate = rate;
        plan.duration = Some(self.scale.warmup);
        run(server, transport, &plan)?;
        plan.duration = Some(self.scale.measured);
        let target = server.target(transport);
        let load = Load::connect(&target, &plan).map_err(|error| error.to_string())?;
        let cpu_before_ns = server.cpu_ns()?;
        let outcome = load.run(&Progress::default(), None).map_err(|error| error.to_string())?;
        let cpu_ns = server.cpu_ns()? - cpu_before_ns;
        check_answers(server, verb, &outcome)?;
        if matches!(verb, Verb::Xadd | Verb::Pfadd) {
            // The other rows find only the preloaded keys.
            let mut client = server.client()?;
            client.call(&["DEL", "growing"]).map_err(|error| error.to_string())?;
        }
        if !server.program.is_constant {
            expect_keys(server, self.scale.keys)?;
        }
        Ok((outcome, cpu_ns))
    }

    fn cost(&self, server: &Server, verb: Verb, pace: Pace) -> Result<Vec<Sample>, String> {
        let (outcome, cpu_ns) = self.timed(server, verb, pace, Some(self.scale.keys))?;
        Ok(vec![
            sample("server CPU per request", "µs", cpu_ns as f64 / 1e3 / outcome.tally.replies as f64),
            sample("throughput", "requests/s", outcome.requests_per_second()),
        ])
    }

    fn throughput(&self, server: &Server, verb: Verb) -> Result<Vec<Sample>, String> {
        let mut samples = self.cost(server, verb, Pace::closed(Transport::Tcp, 1))?;
        samples.reverse();
        Ok(samples)
    }

    fn hot_key(&self, server: &Server, verb: Verb) -> Result<Vec<Sample>, String> {
        let pace = Pace::closed(Transport::Tcp, HOT_PIPELINE);
        let (uniform, _) = self.timed(server, verb, pace, Some(self.scale.keys))?;
        let (hot, _) = self.timed(server, verb, pace, None)?;
        let (uniform, hot) = (uniform.requests_per_second(), hot.requests_per_second());
        Ok(vec![
            sample("one key ÷ uniform keys", "×", hot / uniform),
            sample("uniform keys", "requests/s", uniform),
            sample("one key", "requests/s", hot),
        ])
    }

    fn memory(&self, server: &Server, value_bytes: usize, expiry: bool) -> Result<Vec<Sample>, String> {
        let keys = self.scale.memory_keys;
        let empty = settled_bytes(server)?;
        let words =
            if expiry { "SET key:__seq_int__ __data__ EX 86400" } else { "SET key:__seq_int__ __data__" };
        let outcome = self.fill(server, words, keys, value_bytes)?;
        check_answers(server, Verb::Set, &outcome)?;
        expect_keys(server, keys)?;
        let full = settled_bytes(server)?;
        Ok(vec![
            sample("memory per key", "B", (full - empty) / keys as f64),
            sample("resident memory, full", "MiB", full / f64::from(1 << 20)),
        ])
    }

    fn growth(&self, server: &Server) -> Result<Vec<Sample>, String> {
        let mut plan = self.plan("SET key:__seq_int__ __data__", None, 16);
        plan.requests = Some(self.scale.growth_keys);
        plan.clients = GROWTH_CLIENTS;
        plan.pipeline = GROWTH_PIPELINE;
        let outcome = run(server, Transport::Tcp, &plan)?;
        check_answers(server, Verb::Set, &outcome)?;
        expect_keys(server, self.scale.growth_keys)?;
        Ok(vec![
            sample("slowest request", "ms", outcome.latencies.summary().max),
            sample("p99.99", "ms", outcome.latencies.quantile_ms(0.9999)),
            sample("throughput", "requests/s", outcome.requests_per_second()),
        ])
    }

    fn expiry(&self, server: &Server) -> Result<Vec<Sample>, String> {
        let keys = self.scale.expiry_keys;
        self.fill(server, "SET lasting:__seq_int__ __data__", LASTING_KEYS, 16)?;
        expect_keys(server, LASTING_KEYS)?;
        let memory_before = used_memory(server)?;
        // Time enough to write the keys at 200,000 a second.
        let expires_at_s = unix_now().as_secs() + 2 + keys / 200_000;
        let expires_at = Duration::from_secs(expires_at_s);
        let words = format!("SET key:__seq_int__ __data__ EXAT {expires_at_s}");
        self.fill(server, &words, keys, 16)?;
        expect_keys(server, LASTING_KEYS + keys)?;
        let memory_full = used_memory(server)?;
        if unix_now() >= expires_at {
            return Err("the keys could not be written before they expired".into());
        }
        let memory_limit = memory_before + ASKING_BYTES + (memory_full - memory_before) * 0.1;

        let mut probe = self.plan("GET lasting:__rand_int__", Some(LASTING_KEYS), 16);
        probe.requests = None;
        probe.clients = 1;
        let progress = Progress::default();
        thread::sleep(expires_at.saturating_sub(unix_now() + Duration::from_millis(200)));
        let (gone, probed) = thread::scope(|scope| {
            let prober = scope.spawn(|| run_watched(server, Transport::Tcp, &probe, &progress));
            let gone = await_expired(server, expires_at, memory_limit);
            progress.stop();
            (gone, prober.join().expect("the probing thread panicked"))
        });
        let (gone, probed) = (gone?, probed?);
        if probed.tally.nulls > 0 {
            return Err(format!("{} keys without expiry were missing", probed.tally.nulls));
        }
        Ok(vec![
            sample("until memory is back", "s", gone.as_secs_f64()),
            sample("slowest request meanwhile", "ms", probed.latencies.summary().max),
            sample("p99.9 meanwhile", "ms", probed.latencies.quantile_ms(0.999)),
        ])
    }
}

/// Waits until only the lasting keys are counted and the memory is back. Returns how long after
/// `expires_at` that was.
fn await_expired(server: &Server, expires_at: Duration, memory_limit: f64) -> Result<Duration, String> {
    thread::sleep(expires_at.saturating_sub(unix_now()));
    loop {
        let asked_at = unix_now();
        if server.key_count()? == LASTING_KEYS && used_memory(server)? <= memory_limit {
            return Ok(asked_at.saturating_sub(expires_at));
        }
        if asked_at > expires_at + EXPIRY_MAX {
            return Err(format!("the memory was not back after {} s", EXPIRY_MAX.as_secs()));
        }
        thread::sleep(EXPIRY_POLL);
    }
}

pub(super) fn run(server: &Server, transport: Transport, plan: &Plan) -> Result<Outcome, String> {
    run_watched(server, transport, plan, &Progress::default())
}

pub(super) fn run_watched(
    server: &Server,
    transport: Transport,
    plan: &Plan,
    progress: &Progress,
) -> Result<Outcome, String> {
    let target = server.target(transport);
    let outcome = Load::connect(&target, plan)
        .and_then(|load| load.run(progress, None))
        .map_err(|error| error.to_string())?;
    match outcome.errors.iter().next() {
        Some((text, count)) => Err(format!("{count} requests were answered with: {text}")),
        None => Ok(outcome),
    }
}

/// Whether every GET found its whole value and nothing was answered with an error.
fn check_answers(server: &Server, verb: Verb, outcome: &Outcome) -> Result<(), String> {
    let tally = &outcome.tally;
    if tally.replies == 0 {
        return Err("no request was answered".into());
    }
    if let Some((text, count)) = outcome.errors.iter().next() {
        return Err(format!("{count} requests were answered with: {text}"));
    }
    if server.program.is_constant {
        return Ok(());
    }
    match verb {
        Verb::Get => check_payload(outcome, VALUE_BYTES as u64),
        // How many have read is a matter of chance.
        Verb::GetOrSet if tally.nulls > 0 || !tally.payload_bytes.is_multiple_of(VALUE_BYTES as u64) => {
            Err(format!("{} of {} were null, {} bytes came", tally.nulls, tally.replies, tally.payload_bytes))
        }
        Verb::GetOrSet => Ok(()),
        Verb::Set | Verb::Pfadd => check_payload(outcome, 0),
        // The texts of IDs differ in length.
        Verb::Xadd if tally.nulls > 0 => Err(format!("{} of {} were null", tally.nulls, tally.replies)),
        Verb::Xadd => Ok(()),
    }
}

/// Checks that every reply has brought `bytes_per_reply` bytes of payload, and that none was null.
fn check_payload(outcome: &Outcome, bytes_per_reply: u64) -> Result<(), String> {
    let tally = &outcome.tally;
    let payload_bytes = tally.replies * bytes_per_reply;
    if tally.nulls > 0 || tally.payload_bytes != payload_bytes {
        return Err(format!(
            "wrong answers: {} of {} were null, {} bytes came instead of {payload_bytes}",
            tally.nulls, tally.replies, tally.payload_bytes
        ));
    }
    Ok(())
}

fn expect_keys(server: &Server, expected: u64) -> Result<(), String> {
    match server.key_count()? {
        count if count == expected => Ok(()),
        count => Err(format!("the server holds {count} keys instead of {expected}")),
    }
}

fn used_memory(server: &Server) -> Result<f64, String> {
    let info = server.client()?.info("memory").map_err(|error| error.to_string())?;
    info.and_then(|info| info.number("used_memory")).ok_or_else(|| "INFO has no used_memory".to_string())
}

/// Resident memory once it has come to rest, in bytes.
fn settled_bytes(server: &Server) -> Result<f64, String> {
    let start = Instant::now();
    let mut last = server.resident_bytes()? as f64;
    loop {
        thread::sleep(REST);
        let bytes = server.resident_bytes()? as f64;
        if (bytes - last).abs() <= last * REST_FRACTION {
            return Ok(bytes);
        }
        if start.elapsed() > REST_MAX {
            return Err("the resident memory does not come to rest".into());
        }
        last = bytes;
    }
}

fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
