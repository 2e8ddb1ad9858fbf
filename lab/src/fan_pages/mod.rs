//! E2, "Real-world benchmark of key/value stores": for every fan page, how many of its fans are fans of
//! which other pages. Each profile reads, changes and rewrites the whole record of every page that it
//! mentions; values grow large.

#[cfg(feature = "postgres")]
pub(super) mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
mod workload;

use std::collections::HashMap;
use std::time::{Duration, Instant};

#[cfg(feature = "postgres")]
use super::contender::Origin;
use super::contender::{Contender, Settings};
use super::experiment::{Cost, Experiment, Lab, Size};
use super::memcached::Memcached;
use super::results::{Results, Section};
use super::server::{Protocol, Server};
use dunlin_bench::figures::{Sample, sample};
use dunlin_bench::target::Target;
use store::{Collection, CounterStore, Null, Ram, RecordStore, RedisCounters, RedisRecords, record_key};
use workload::{Profiles, Record};

/// The row of the lab's table.
pub const FAN_PAGES: Experiment = Experiment {
    name: "fan-pages",
    founding: "E2",
    title: "Fan pages: whole records rewritten",
    explanation: [
        "{profiles} profiles, each a list of fan pages; for every page the number of fans it shares with others.",
        "As its author did it, reading and rewriting whole records one by one, and with counters in the store.",
        "Look at the null store (the client alone) and the RAM store (no server): they bound all others.",
    ],
    sizes: &[PROFILES],
    cost: Cost { always_s: 2.0, timed_s: 0.0, sized_s: 250.0 },
    run,
};

const PROFILES: Size = Size::new("profiles", 10_000, 20);
const PAGES: u64 = 5_000;
/// Fewest pages: the largest profile must find enough of them.
const PAGES_MIN: u64 = 500;
/// The original profiles are private; these are the same in every run.
const PROFILES_SEED: u64 = 2010;
/// Other pages that a query shows.
const QUERY_SHOWN: usize = 5;
const NULL: &str = "null store";
const RAM: &str = "RAM store";
#[cfg(feature = "sqlite")]
const SQLITE: &str = "SQLite";

/// A column: a store of this process or a server, over one of its sockets.
enum Column<'a> {
    Null,
    Ram,
    #[cfg(feature = "sqlite")]
    Sqlite,
    #[cfg(feature = "postgres")]
    Postgres(&'a str),
    Server(&'a Server, &'a Target),
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Rewrite,
    Count(Collection),
}

/// The records that one run left behind, to be compared, and its cost.
struct Run {
    records: Box<dyn FnMut(u32) -> Result<Record, String>>,
    elapsed: Duration,
    cpu: Option<Duration>,
}

fn run(lab: &Lab) -> Result<Results, String> {
    let profiles: Vec<Vec<u32>> = {
        let pages = lab.scale.count(PAGES, PAGES_MIN);
        Profiles::new(lab.scale.of(PROFILES), pages, PROFILES_SEED).collect()
    };
    let expected = records_of(&profiles);
    let rewrites: usize = profiles.iter().map(Vec::len).sum();
    let largest = expected.values().map(|record| record.encode().len()).max().unwrap_or(0);

    let mut results = Results::new(&FAN_PAGES, lab.scale);
    let servers = if lab.contenders.iter().any(Contender::keeps_keys) {
        lab.start(&mut results, Settings::MemoryOnly, |_| true)?
    } else {
        Vec::new()
    };
    results.setting(format!(
        "{} profiles of 5 to 200 pages out of {}; {rewrites} records rewritten, the largest ends with {largest} bytes; \
         one connection",
        profiles.len(),
        expected.len()
    ));
    let columns = columns(lab, &servers, &mut results)?;
    let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
    let mut section = Section::new(
        "The whole run",
        "Time of a whole run, the client's work included. Whole records: GET and SET of each, one after the other. \
         Counters: HINCRBY or ZINCRBY of every pair of pages, one pipeline a profile; in SQL upserts.",
        &names,
    );
    section.table.baseline = RAM.into();
    let ways = [
        ("whole records", Way::Rewrite),
        ("counters, hash", Way::Count(Collection::Hash)),
        ("counters, sorted set", Way::Count(Collection::SortedSet)),
    ];
    lab.bar.inc_length(u64::from(lab.rounds) * (ways.len() * columns.len()) as u64);
    for round in 0..lab.rounds {
        for (row, way) in ways {
            for turn in 0..columns.len() {
                let (name, column) = &columns[(turn + round as usize) % columns.len()];
                lab.bar.set_message(format!("{row} in {name}"));
                let failed = |error: String| format!("{row} in {name}: {error}");
                if let Some(mut done) = column.run(way, &profiles).map_err(failed)? {
                    check(column, &mut done, &expected).map_err(failed)?;
                    if let (Some(page), 0, false) = (lab.query, round, matches!(column, Column::Null)) {
                        let record = (done.records)(page).map_err(failed)?;
                        lab.bar.suspend(|| dunlin_print::say!("{name}, {row}: {}", described(page, &record)));
                    }
                    section.table.add(row, name, done.samples(rewrites));
                }
                column.erase(&expected).map_err(failed)?;
                lab.bar.inc(1);
            }
        }
    }
    section.plot_bars("whole run");
    results.sections.push(section);
    results.checks.push(format!(
        "all {} records of every store but the null store were those of a map in this process",
        expected.len()
    ));
    if let Some(record) = expected.get(&0) {
        results.notes.push(described(0, record));
    }
    Ok(results)
}

/// The stores: those of this process, then each server over each of its sockets.
fn columns<'a>(
    lab: &'a Lab,
    servers: &'a [Server],
    results: &mut Results,
) -> Result<Vec<(String, Column<'a>)>, String> {
    let mut columns = vec![(NULL.to_string(), Column::Null), (RAM.to_string(), Column::Ram)];
    #[cfg(feature = "sqlite")]
    {
        columns.push((SQLITE.into(), Column::Sqlite));
        results.setting(format!("{SQLITE}: {}, {}", sqlite::Sqlite::version(), sqlite::SETTINGS));
    }
    #[cfg(not(feature = "sqlite"))]
    results.notes.push("SQLite is left out: this program was built without the feature `sqlite`".into());
    #[cfg(feature = "postgres")]
    for Contender { name, origin } in &lab.contenders {
        if let Origin::Postgres(url) = origin {
            if postgres::Postgres::sweep(url).map_err(|error| format!("{name}: {error}"))? {
                lab.tell(results, format!("{name}: dropped the schema that a lab had left which was killed"));
            }
            columns.push((name.clone(), Column::Postgres(url)));
            results.setting(format!("{name}: {}", postgres::SETTINGS));
        }
    }
    #[cfg(not(feature = "postgres"))]
    let _ = lab;
    for server in servers {
        let tcp = &server.fronts[0];
        match &server.unix {
            Some(unix) if unix != tcp => {
                columns.push((format!("{} TCP", server.name), Column::Server(server, tcp)));
                columns.push((format!("{} Unix", server.name), Column::Server(server, unix)));
            }
            _ => columns.push((server.name.clone(), Column::Server(server, tcp))),
        }
    }
    Ok(columns)
}

impl Column<'_> {
    /// Does the job; nothing if the store has no such way.
    fn run(&self, way: Way, profiles: &[Vec<u32>]) -> Result<Option<Run>, String> {
        match (self, way) {
            (Self::Null, Way::Rewrite) => rewrite(Null, profiles, self).map(Some),
            (Self::Ram, Way::Rewrite) => rewrite(Ram::default(), profiles, self).map(Some),
            #[cfg(feature = "sqlite")]
            (Self::Sqlite, Way::Rewrite) => rewrite(sqlite::Sqlite::new()?, profiles, self).map(Some),
            #[cfg(feature = "sqlite")]
            (Self::Sqlite, Way::Count(Collection::Hash)) => {
                count(sqlite::Sqlite::new()?, profiles, self).map(Some)
            }
            #[cfg(feature = "postgres")]
            (Self::Postgres(url), Way::Rewrite) => {
                rewrite(postgres::Postgres::new(url)?, profiles, self).map(Some)
            }
            #[cfg(feature = "postgres")]
            (Self::Postgres(url), Way::Count(Collection::Hash)) => {
                count(postgres::Postgres::new(url)?, profiles, self).map(Some)
            }
            (Self::Server(server, target), way) => match (server.protocol, way) {
                (Protocol::Memcached, Way::Rewrite) => {
                    rewrite(Memcached::connect(target)?, profiles, self).map(Some)
                }
                (Protocol::Memcached, Way::Count(_)) => Ok(None),
                (Protocol::Redis, Way::Rewrite) => {
                    let client = target.client().map_err(|error| error.to_string())?;
                    rewrite(RedisRecords(client), profiles, self).map(Some)
                }
                (Protocol::Redis, Way::Count(collection)) => {
                    let client = target.client().map_err(|error| error.to_string())?;
                    count(RedisCounters::new(client, collection), profiles, self).map(Some)
                }
            },
            _ => Ok(None),
        }
    }

    /// Leaves a server as it was.
    fn erase(&self, records: &HashMap<u32, Record>) -> Result<(), String> {
        match self {
            Self::Server(server, target) => match server.protocol {
                Protocol::Redis => server.erase(),
                Protocol::Memcached => {
                    Memcached::connect(target)?.delete(records.keys().map(|page| record_key(*page)))
                }
            },
            _ => Ok(()),
        }
    }

    fn cpu(&self) -> Result<Option<Duration>, String> {
        match self {
            Self::Server(server, _) => server.cpu(),
            _ => Ok(None),
        }
    }
}

impl Run {
    fn samples(&self, rewrites: usize) -> Vec<Sample> {
        let mut samples = vec![sample("whole run", "s", self.elapsed.as_secs_f64())];
        samples.push(sample("records updated", "1/s", rewrites as f64 / self.elapsed.as_secs_f64()));
        if let Some(cpu) = self.cpu {
            samples.push(sample("server CPU", "s", cpu.as_secs_f64()));
        }
        samples
    }
}

/// The author's way.
fn rewrite(
    mut store: impl RecordStore + 'static,
    profiles: &[Vec<u32>],
    column: &Column,
) -> Result<Run, String> {
    let (start, cpu_before) = (Instant::now(), column.cpu()?);
    for pages in profiles {
        for page in pages {
            let mut record = read_record(&mut store, *page)?;
            record.count(*page, pages);
            store.write(*page, &record.encode())?;
        }
        store.commit()?;
    }
    let elapsed = start.elapsed();
    let cpu = column.cpu()?.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    Ok(Run { records: Box::new(move |page| read_record(&mut store, page)), elapsed, cpu })
}

fn read_record(store: &mut impl RecordStore, page: u32) -> Result<Record, String> {
    match store.read(page)? {
        None => Ok(Record::default()),
        Some(text) => Record::decode(&text)
            .ok_or_else(|| format!("wrong answer: page {page} has no record but other bytes")),
    }
}

/// The store's own way.
fn count(
    mut store: impl CounterStore + 'static,
    profiles: &[Vec<u32>],
    column: &Column,
) -> Result<Run, String> {
    let (start, cpu_before) = (Instant::now(), column.cpu()?);
    for pages in profiles {
        store.count(pages)?;
    }
    let elapsed = start.elapsed();
    let cpu = column.cpu()?.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    Ok(Run { records: Box::new(move |page| store.record(page)), elapsed, cpu })
}

/// The records as they must be in the end.
fn records_of(profiles: &[Vec<u32>]) -> HashMap<u32, Record> {
    let mut records: HashMap<u32, Record> = HashMap::new();
    for pages in profiles {
        for page in pages {
            records.entry(*page).or_default().count(*page, pages);
        }
    }
    records
}

fn check(column: &Column, run: &mut Run, expected: &HashMap<u32, Record>) -> Result<(), String> {
    if matches!(column, Column::Null) {
        return Ok(());
    }
    for (page, expected) in expected {
        let record = (run.records)(*page)?;
        if record != *expected {
            return Err(format!(
                "wrong answer: {} instead of {}",
                described(*page, &record),
                described(*page, expected)
            ));
        }
    }
    Ok(())
}

/// "page 3 has 406 fans; …"
fn described(page: u32, record: &Record) -> String {
    let nearest: Vec<String> = (record.nearest(QUERY_SHOWN).iter())
        .map(|(other, fans)| format!("{fans} of them are also fans of page {other}"))
        .collect();
    format!("page {page} has {} fans; {}", record.fans, nearest.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that loses the last byte of long records.
    struct Cutting(Ram);

    impl RecordStore for Cutting {
        fn read(&mut self, page: u32) -> Result<Option<Vec<u8>>, String> {
            self.0.read(page)
        }

        fn write(&mut self, page: u32, record: &[u8]) -> Result<(), String> {
            self.0.write(page, &record[..record.len().min(1000)])
        }
    }

    #[test]
    fn stores_agree_and_one_that_cuts_values_fails() {
        let profiles: Vec<_> = Profiles::new(60, 1000, 1).collect();
        let expected = records_of(&profiles);
        let mut run = rewrite(Ram::default(), &profiles, &Column::Ram).unwrap();
        check(&Column::Ram, &mut run, &expected).unwrap();
        let cut = rewrite(Cutting(Ram::default()), &profiles, &Column::Ram)
            .and_then(|mut run| check(&Column::Ram, &mut run, &expected));
        assert!(cut.unwrap_err().starts_with("wrong answer: page "));
        #[cfg(feature = "sqlite")]
        for way in [Way::Rewrite, Way::Count(Collection::Hash)] {
            let mut run = Column::Sqlite.run(way, &profiles).unwrap().unwrap();
            check(&Column::Sqlite, &mut run, &expected).unwrap();
        }
    }
}
