//! The Yahoo! Cloud Serving Benchmark's core workloads A to F (B. Cooper and others: "Benchmarking cloud
//! serving systems with YCSB", 2010), as its own client for this protocol does them.
//!
//! ```text
//! record   hash user:<number>, ten fields of 100 bytes
//! index    sorted set of all record numbers, for scans
//! field    <record number>:<field number>: and random letters, so that a wrong one shows
//! ```

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dunlin_resp::Value;

use super::contender::{Contender, Settings};
use super::experiment::{Cost, Experiment, Lab, names};
use super::results::{Results, Section};
use super::server::{Server, shown};
use super::sessions::{self, Session, SessionOutcome, SessionPlan};
use super::slo::{self, Slo};
use dunlin_bench::distribution::{Zipf, scattered};
use dunlin_bench::figures::{Sample, sample};
use dunlin_bench::latency::Latencies;
use dunlin_bench::random::Random;
use dunlin_bench::target::{Client, encode};

/// The row of the lab's table.
pub const YCSB: Experiment = Experiment {
    name: "ycsb",
    founding: "YCSB",
    title: "YCSB's workloads A to F",
    explanation: [
        "Records of ten fields, read, updated, inserted, scanned and modified in YCSB's six mixtures, by 16 clients.",
        "Popular records are asked for by Zipf's law, in D the latest; then B with all three distributions.",
        "Look at the latency of each kind of operation; --slo adds the highest rate that keeps it.",
    ],
    sizes: &[],
    cost: Cost { always_s: 1.0, timed_s: 20.0, sized_s: 90.0 },
    run,
};

const RECORDS: u64 = 100_000;
const OPERATIONS: u64 = 100_000;
const CLIENTS: usize = 16;
const FIELDS: u64 = 10;
const FIELD_BYTES: usize = 100;
const ZIPF_EXPONENT: f64 = 0.99;
const SCAN_MAX: u64 = 100;
const INDEX: &str = "ycsb:index";
/// Records of one round trip while loading.
const LOAD_BATCH: u64 = 64;
const SLO_STEPS: u32 = 6;
const SLO_MEASURED: Duration = Duration::from_secs(2);
const SLO_METRIC: &str = "highest rate that keeps the SLO";

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Read,
    Update,
    Insert,
    Scan,
    ReadModifyWrite,
}

const OPERATIONS_ALL: [(Operation, [&str; 2]); 5] = [
    (Operation::Read, ["read, p50", "read, p99"]),
    (Operation::Update, ["update, p50", "update, p99"]),
    (Operation::Insert, ["insert, p50", "insert, p99"]),
    (Operation::Scan, ["scan, p50", "scan, p99"]),
    (Operation::ReadModifyWrite, ["read-modify-write, p50", "read-modify-write, p99"]),
];

/// Which record an operation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distribution {
    Uniform,
    /// By Zipf's law, popular records scattered over all.
    Zipfian,
    /// By Zipf's law, the last inserted first.
    Latest,
}

/// A mixture: the share of an operation in a hundred, the other operation, the distribution.
#[derive(Debug, Clone, Copy)]
struct Workload {
    often: (u64, Operation),
    otherwise: Operation,
    distribution: Distribution,
}

const fn workload(
    often: u64,
    first: Operation,
    otherwise: Operation,
    distribution: Distribution,
) -> Workload {
    Workload { often: (often, first), otherwise, distribution }
}

const B: Workload = workload(95, Operation::Read, Operation::Update, Distribution::Zipfian);
const WORKLOADS: [(&str, Workload); 6] = [
    ("A: half reads, half updates", workload(50, Operation::Read, Operation::Update, Distribution::Zipfian)),
    ("B: 95% reads, 5% updates", B),
    ("C: reads", workload(100, Operation::Read, Operation::Read, Distribution::Zipfian)),
    (
        "D: 95% reads of the latest, 5% inserts",
        workload(95, Operation::Read, Operation::Insert, Distribution::Latest),
    ),
    ("E: 95% scans, 5% inserts", workload(95, Operation::Scan, Operation::Insert, Distribution::Zipfian)),
    (
        "F: half reads, half read-modify-writes",
        workload(50, Operation::Read, Operation::ReadModifyWrite, Distribution::Zipfian),
    ),
];
const DISTRIBUTIONS: [(&str, Distribution); 3] = [
    ("uniform", Distribution::Uniform),
    ("zipfian", Distribution::Zipfian),
    ("latest", Distribution::Latest),
];

fn run(lab: &Lab) -> Result<Results, String> {
    let (records, operations) = (lab.scale.count(RECORDS, 200), lab.scale.count(OPERATIONS, 400));
    let mut results = Results::new(&YCSB, lab.scale);
    let servers = lab.start(&mut results, Settings::MemoryOnly, Contender::is_whole)?;
    results.setting(format!(
        "{records} records of {FIELDS} fields of {FIELD_BYTES} bytes; {operations} operations a workload; {CLIENTS} \
         clients, each waiting for its reply; scans of 1 to {SCAN_MAX} records"
    ));
    let names = names(&servers);
    let measured = |round: u32, workload: &Workload, server: &Server| {
        measure(lab, server, *workload, records, operations, round)
            .and_then(|samples| server.erase().map(|()| samples))
    };

    let mut mixtures =
        Section::new("Workloads", "Closed loop; every workload begins with freshly loaded records.", &names);
    let rows = WORKLOADS.map(|(name, workload)| (name.to_string(), workload));
    lab.alternate(&mut mixtures, &servers, &rows, measured)?;
    mixtures.plot_bars("operations");
    results.sections.push(mixtures);

    let mut distributions =
        Section::new("Distributions", "Workload B, its records drawn in three ways; closed loop.", &names);
    let rows = DISTRIBUTIONS.map(|(name, distribution)| (name.to_string(), Workload { distribution, ..B }));
    lab.alternate(&mut distributions, &servers, &rows, measured)?;
    distributions.plot_bars("operations");
    results.sections.push(distributions);
    if let Some(slo) = lab.slo {
        results.setting(format!("{SLO_METRIC}: {slo}, open loop, all operations together"));
    }
    results.checks.push("every read and scan gave whole records whose fields were their own".into());
    results.checks.push(
        "every scan gave the records that follow its first; every insert was counted in the end".into(),
    );
    Ok(results)
}

fn measure(
    lab: &Lab,
    server: &Server,
    workload: Workload,
    records: u64,
    operations: u64,
    round: u32,
) -> Result<Vec<Sample>, String> {
    let table = Table::load(server, records)?;
    let plan = SessionPlan {
        clients: CLIENTS,
        operations,
        rate: None,
        seed: lab.seed.wrapping_add(u64::from(round)),
    };
    let before = server.cpu()?;
    let outcome = drive(server, &table, workload, plan)?;
    let after = server.cpu()?;
    let rate = operations as f64 / outcome.elapsed.as_secs_f64();
    let mut samples = vec![sample("operations", "1/s", rate)];
    if let Some((after, before)) = after.zip(before) {
        let each = after.saturating_sub(before).as_secs_f64() * 1e6 / operations as f64;
        samples.push(sample("server CPU per operation", "µs", each));
    }
    for ((_, [p50, p99]), latencies) in OPERATIONS_ALL.iter().zip(&outcome.kinds) {
        if latencies.count() > 0 {
            samples.push(sample(p50, "ms", latencies.quantile_ms(0.5)));
            samples.push(sample(p99, "ms", latencies.quantile_ms(0.99)));
        }
    }
    if let Some(slo) = lab.slo {
        let highest = slo::highest_rate(rate, SLO_STEPS, |rate| {
            let operations = (rate * lab.scale.time(SLO_MEASURED).as_secs_f64()).ceil() as u64;
            let open = SessionPlan { rate: Some(rate), operations, ..plan };
            Ok(keeps(slo, &drive(server, &table, workload, open)?))
        })?;
        samples.push(sample(SLO_METRIC, "1/s", highest));
    }
    // Every record, and the index.
    server.expect_keys(table.inserted() + 1)?;
    Ok(samples)
}

fn keeps(slo: Slo, outcome: &SessionOutcome) -> bool {
    let mut all = Latencies::default();
    outcome.kinds.iter().for_each(|latencies| all.add(latencies));
    all.quantile_ms(slo.quantile) <= slo.within_ms()
}

fn drive(
    server: &Server,
    table: &Table,
    workload: Workload,
    plan: SessionPlan,
) -> Result<SessionOutcome, String> {
    // The popularity of records is over those that were loaded; a record inserted later is as popular as
    // its scattered place among them.
    let zipf = Zipf::new(table.loaded, ZIPF_EXPONENT);
    sessions::run(plan, OPERATIONS_ALL.len(), |_| {
        Ok(Application { client: server.client()?, table, workload, zipf: zipf.clone() })
    })
}

/// Which records there are.
struct Table {
    loaded: u64,
    /// The number that the next insert gets.
    next: AtomicU64,
    /// All records below this are there.
    acknowledged: AtomicU64,
    /// Acknowledged records above.
    ahead: Mutex<BTreeSet<u64>>,
}

impl Table {
    /// Loads records into an empty server.
    fn load(server: &Server, records: u64) -> Result<Self, String> {
        server.erase()?;
        let (mut client, mut random) = (server.client()?, Random::new(records));
        let numbers: Vec<u64> = (0..records).collect();
        for batch in numbers.chunks(LOAD_BATCH as usize) {
            let mut requests = Vec::new();
            batch.iter().for_each(|number| encode_insert(*number, &mut random, &mut requests));
            expect_no_error(&mut client, &requests, 2 * batch.len())?;
        }
        let (next, acknowledged) = (AtomicU64::new(records), AtomicU64::new(records));
        Ok(Self { loaded: records, next, acknowledged, ahead: Mutex::new(BTreeSet::new()) })
    }

    fn inserted(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// A record was inserted: readers may ask for it once all before it are there.
    fn acknowledge(&self, number: u64) {
        let mut ahead = self.ahead.lock().expect("no holder panics");
        ahead.insert(number);
        let mut limit = self.acknowledged.load(Ordering::Relaxed);
        while ahead.remove(&limit) {
            limit += 1;
        }
        self.acknowledged.store(limit, Ordering::Release);
    }

    /// A record that is there.
    fn choose(&self, distribution: Distribution, zipf: &Zipf, random: &mut Random) -> u64 {
        let limit = self.acknowledged.load(Ordering::Acquire);
        match distribution {
            Distribution::Uniform => random.below(limit),
            Distribution::Zipfian => scattered(zipf.sample(random), self.loaded),
            Distribution::Latest => limit - zipf.sample(random).min(limit),
        }
    }
}

fn record_key(number: u64) -> String {
    format!("user:{number:012}")
}

fn field_name(field: u64) -> String {
    format!("field{field}")
}

/// The beginning of a field's value.
fn mark(number: u64, field: u64) -> String {
    format!("{number}:{field}:")
}

fn field_value(number: u64, field: u64, random: &mut Random) -> Vec<u8> {
    let mut value = mark(number, field).into_bytes();
    while value.len() < FIELD_BYTES {
        value.push(b'a' + random.below(26) as u8);
    }
    value
}

/// HSET of a whole record, and ZADD of its number.
fn encode_insert(number: u64, random: &mut Random, out: &mut Vec<u8>) {
    let mut command = vec![b"HSET".to_vec(), record_key(number).into_bytes()];
    for field in 0..FIELDS {
        command.push(field_name(field).into_bytes());
        command.push(field_value(number, field, random));
    }
    encode(&command, out);
    encode(&["ZADD", INDEX, &number.to_string(), &number.to_string()], out);
}

fn encode_update(number: u64, random: &mut Random, out: &mut Vec<u8>) {
    let field = random.below(FIELDS);
    let value = field_value(number, field, random);
    encode(&[b"HSET", record_key(number).as_bytes(), field_name(field).as_bytes(), &value], out);
}

fn expect_no_error(client: &mut Client, requests: &[u8], replies: usize) -> Result<Vec<Value>, String> {
    let mut seen = Vec::with_capacity(replies);
    client.pipeline(requests, replies, |reply| seen.push(reply)).map_err(|error| error.to_string())?;
    match seen.iter().find(|reply| matches!(reply, Value::Error(_))) {
        Some(error) => Err(format!("answered with {}", shown(error))),
        None => Ok(seen),
    }
}

/// Fails unless a reply to HGETALL is the whole record.
fn expect_record(number: u64, reply: &Value) -> Result<(), String> {
    let Value::Array(elements) = reply else {
        return Err(format!("wrong answer: record {number} is {}", shown(reply)));
    };
    let mut seen = 0u64;
    for pair in elements.chunks(2) {
        let field = pair[0].as_bytes().and_then(|name| name.strip_prefix(b"field"));
        let field: Option<u64> = field.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let value = pair.get(1).and_then(Value::as_bytes);
        let right = field.zip(value).is_some_and(|(field, value)| {
            seen |= 1 << field.min(63);
            value.len() == FIELD_BYTES && value.starts_with(mark(number, field).as_bytes())
        });
        if !right {
            let value = pair.get(1).map_or("nothing".into(), shown);
            return Err(format!("wrong answer: record {number} has {} = {value}", shown(&pair[0])));
        }
    }
    if seen != (1 << FIELDS) - 1 || elements.len() != 2 * FIELDS as usize {
        return Err(format!("wrong answer: record {number} has {} fields", elements.len() / 2));
    }
    Ok(())
}

/// A client of the workload.
struct Application<'a> {
    client: Client,
    table: &'a Table,
    workload: Workload,
    zipf: Zipf,
}

impl Application<'_> {
    fn read(&mut self, number: u64) -> Result<(), String> {
        let reply = self.client.call(&["HGETALL", &record_key(number)]).map_err(|error| error.to_string())?;
        expect_record(number, &reply)
    }

    fn update(&mut self, number: u64, random: &mut Random) -> Result<(), String> {
        let mut request = Vec::new();
        encode_update(number, random, &mut request);
        match expect_no_error(&mut self.client, &request, 1)?.pop() {
            Some(Value::Integer(0)) => Ok(()),
            other => Err(format!("wrong answer to HSET of a field that is there: {other:?}")),
        }
    }

    fn insert(&mut self, random: &mut Random) -> Result<(), String> {
        let number = self.table.next.fetch_add(1, Ordering::Relaxed);
        let mut requests = Vec::new();
        encode_insert(number, random, &mut requests);
        expect_no_error(&mut self.client, &requests, 2)?;
        self.table.acknowledge(number);
        Ok(())
    }

    /// Records from one on in the order of their numbers: from the index, then each in one pipeline.
    fn scan(&mut self, first: u64, count: u64) -> Result<(), String> {
        // Records that were there before must be found; those being inserted may be.
        let certain = self.table.acknowledged.load(Ordering::Acquire);
        let (from, limit) = (first.to_string(), count.to_string());
        let command = ["ZRANGEBYSCORE", INDEX, &from, "+inf", "LIMIT", "0", &limit];
        let reply = self.client.call(&command).map_err(|error| error.to_string())?;
        let found: Option<Vec<u64>> = match &reply {
            Value::Array(members) => members
                .iter()
                .map(|member| std::str::from_utf8(member.as_bytes()?).ok()?.parse().ok())
                .collect(),
            _ => None,
        };
        let found = found.ok_or_else(|| format!("wrong answer to a scan: {}", shown(&reply)))?;
        let expected = count.min(certain - first) as usize;
        let follows = |(index, number): (usize, &u64)| index >= expected || *number == first + index as u64;
        if found.len() < expected || !found.iter().enumerate().all(follows) {
            return Err(format!("wrong answer: a scan of {count} records from {first} gave {found:?}"));
        }
        let mut requests = Vec::new();
        found.iter().for_each(|number| encode(&["HGETALL", &record_key(*number)], &mut requests));
        let replies = expect_no_error(&mut self.client, &requests, found.len())?;
        found.iter().zip(&replies).try_for_each(|(number, reply)| expect_record(*number, reply))
    }
}

impl Session for Application<'_> {
    fn step(&mut self, _: u64, random: &mut Random) -> Result<usize, String> {
        let (share, often) = self.workload.often;
        let operation = if random.below(100) < share { often } else { self.workload.otherwise };
        let number = self.table.choose(self.workload.distribution, &self.zipf, random);
        match operation {
            Operation::Read => self.read(number)?,
            Operation::Update => self.update(number, random)?,
            Operation::Insert => self.insert(random)?,
            Operation::Scan => self.scan(number, 1 + random.below(SCAN_MAX))?,
            Operation::ReadModifyWrite => {
                self.read(number)?;
                self.update(number, random)?;
            }
        }
        Ok(OPERATIONS_ALL.iter().position(|(known, _)| *known == operation).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(records: u64) -> Table {
        let (next, acknowledged) = (AtomicU64::new(records), AtomicU64::new(records));
        Table { loaded: records, next, acknowledged, ahead: Mutex::new(BTreeSet::new()) }
    }

    #[test]
    fn workloads_are_those_of_the_paper() {
        let shares =
            WORKLOADS.map(|(name, workload)| (name.as_bytes()[0], workload.often.0, workload.distribution));
        assert_eq!(
            shares,
            [
                (b'A', 50, Distribution::Zipfian),
                (b'B', 95, Distribution::Zipfian),
                (b'C', 100, Distribution::Zipfian),
                (b'D', 95, Distribution::Latest),
                (b'E', 95, Distribution::Zipfian),
                (b'F', 50, Distribution::Zipfian),
            ]
        );
    }

    #[test]
    fn readers_see_inserts_in_order_only() {
        let table = table(10);
        table.acknowledge(11);
        assert_eq!(table.acknowledged.load(Ordering::Relaxed), 10);
        table.acknowledge(10);
        assert_eq!(table.acknowledged.load(Ordering::Relaxed), 12);
    }

    #[test]
    fn latest_distribution_prefers_new_records() {
        let (table, zipf, mut random) = (table(1000), Zipf::new(1000, ZIPF_EXPONENT), Random::new(1));
        let mut seen = vec![0; 1000];
        for _ in 0..10_000 {
            seen[table.choose(Distribution::Latest, &zipf, &mut random) as usize] += 1;
        }
        assert!(seen[999] > seen[998] && seen[998] > seen[900] && seen[999] > 1000, "{:?}", &seen[990..]);
        for distribution in [Distribution::Uniform, Distribution::Zipfian] {
            assert!((0..10_000).all(|_| table.choose(distribution, &zipf, &mut random) < 1000));
        }
    }

    #[test]
    fn record_with_a_foreign_or_missing_field_is_wrong() {
        let mut random = Random::new(1);
        let mut elements = Vec::new();
        for field in 0..FIELDS {
            elements.push(Value::Bulk(field_name(field).into_bytes()));
            elements.push(Value::Bulk(field_value(7, field, &mut random)));
        }
        assert_eq!(expect_record(7, &Value::Array(elements.clone())), Ok(()));
        assert!(expect_record(8, &Value::Array(elements.clone())).is_err());
        let mut swapped = elements.clone();
        swapped.swap(1, 3);
        assert!(expect_record(7, &Value::Array(swapped)).is_err());
        elements.truncate(18);
        assert!(expect_record(7, &Value::Array(elements)).is_err());
        assert!(expect_record(7, &Value::Null).is_err());
    }
}
