//! The command line of `dunlin bench cache`, and its runs.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::Parser;
use dunlin_resp::Value;

use crate::affinity;
use crate::process::{self, Process, ScratchFolder};
use crate::target::{Address, Client, Target};

use super::generators::{GENERATORS, Generator, Scale};
use super::optimum;
use super::replay::{Replayed, replay};
use super::report::{Optimum, Report, Row};
use super::trace::Trace;

const EXAMPLES: &str = "\
A server is a program, or NAME=PROGRAM; one whose name has no 'redis' or 'valkey' in it is started as Dunlin is.

Examples:
  Dunlin beside redis-server, two policies, all generated traces:
    $ dunlin bench cache --server dunlin --server redis-server
  A published trace, its first ten million requests, a limit of 1 GB:
    $ dunlin bench cache --trace cluster052.csv --requests 10000000 --maxmemory 1gb --server dunlin
  A table, JSON and plots:
    $ dunlin bench cache --generators scans,shift --out /tmp/cache --server dunlin";

/// Replays traces of caches against servers at a memory limit and compares hit ratios.
///
/// A GET that finds nothing is followed by a SET of the value, as whoever uses a cache does it. All servers see the same
/// requests in the same order, over one connection. The last line of each trace is what a cache would have found that
/// knows the future.
#[derive(Debug, Parser)]
#[command(name = "dunlin bench cache", version, bin_name = "dunlin bench cache", after_help = EXAMPLES)]
pub struct CacheArguments {
    /// Server to start, again for each
    #[arg(long = "server", value_name = "[NAME=]PROGRAM", required = true)]
    servers: Vec<String>,
    /// Policies, separated by commas; a server is passed over where it has none of the name
    #[arg(
        long,
        value_name = "POLICIES",
        value_delimiter = ',',
        default_value = "allkeys-lru,allkeys-lfu,allkeys-auto"
    )]
    policies: Vec<String>,
    /// Memory limit of each server
    #[arg(long, value_name = "BYTES", default_value = "64mb", value_parser = bytes)]
    maxmemory: u64,
    /// Trace to replay, as a CSV of Twitter's or Meta's; again for each
    #[arg(long = "trace", value_name = "FILE")]
    traces: Vec<PathBuf>,
    /// Generators, separated by commas [default: all where there is no --trace]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    generators: Vec<String>,
    /// List the generators and end
    #[arg(long, exclusive = true)]
    list: bool,
    /// Requests of each trace at most
    #[arg(long, value_name = "REQUESTS", default_value_t = 1_000_000)]
    requests: usize,
    /// Keys of generated traces
    #[arg(long, value_name = "KEYS", default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(2..=1 << 31))]
    keys: u64,
    /// Bytes of generated values, about
    #[arg(long, value_name = "BYTES", default_value_t = 400)]
    value_bytes: u32,
    /// Requests sent at once
    #[arg(long, value_name = "REQUESTS", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    depth: u16,
    /// Seed of generated traces
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Further flags of every server, separated by blanks
    #[arg(long, value_name = "FLAGS", default_value = "", allow_hyphen_values = true)]
    flags: String,
    /// Folder for the table, JSON and plots
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl CacheArguments {
    /// Runs everything and prints the table.
    pub fn run(&self) -> Result<(), String> {
        if self.list {
            GENERATORS
                .iter()
                .for_each(|generator| dunlin_print::say!("{:10} {}", generator.name, generator.summary));
            return Ok(());
        }
        let processors = affinity::allowed().map_err(|error| error.to_string())?;
        let mut report = Report {
            machine: process::machine(&processors),
            limit_bytes: self.maxmemory,
            requests: self.requests as u64,
            rows: Vec::new(),
            optima: Vec::new(),
        };
        for source in self.sources()? {
            let trace = self.trace(&source)?;
            eprintln!("{}: {} requests, {} keys", trace.name, trace.requests.len(), trace.keys.len());
            for server in &self.servers {
                let (name, program) = named(server);
                let program =
                    process::found(Path::new(program)).ok_or_else(|| format!("there is no {program}"))?;
                for policy in &self.policies {
                    match self.measure(&trace, name, &program, policy, &processors)? {
                        Some(row) => {
                            eprintln!("  {name} {policy}: {:.2}%", row.hit_percent);
                            report.rows.push(row);
                        }
                        None => eprintln!("  {name} has no policy {policy}"),
                    }
                }
            }
            let hit_percent = 100.0 * optimum::hit_ratio(&trace, self.maxmemory);
            report.optima.push(Optimum { trace: trace.name, hit_percent });
        }
        dunlin_print::say!("{}", report.markdown());
        self.out.as_ref().map_or(Ok(()), |folder| report.write(folder))
    }

    /// The traces, none of which is made before its turn.
    fn sources(&self) -> Result<Vec<Source>, String> {
        let mut sources: Vec<Source> = self.traces.iter().cloned().map(Source::File).collect();
        let mut names: Vec<&str> = self.generators.iter().map(String::as_str).collect();
        if sources.is_empty() && names.is_empty() {
            names = GENERATORS.iter().map(|generator| generator.name).collect();
        }
        for name in names {
            let generator =
                Generator::find(name).ok_or_else(|| format!("there is no generator {name}: see --list"))?;
            sources.push(Source::Generator(generator));
        }
        Ok(sources)
    }

    fn trace(&self, source: &Source) -> Result<Trace, String> {
        match source {
            Source::File(path) => {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                let file =
                    File::open(path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
                Trace::read(&name, BufReader::new(file), self.requests)
            }
            Source::Generator(generator) => {
                let Self { requests, keys, value_bytes, seed, .. } = *self;
                Ok(generator.trace(Scale { requests, keys, value_bytes, seed }))
            }
        }
    }

    /// Runs a trace against a server that is started for it; `None` where the server does not have the policy.
    fn measure(
        &self,
        trace: &Trace,
        name: &str,
        program: &Path,
        policy: &str,
        processors: &[usize],
    ) -> Result<Option<Row>, String> {
        let folder = ScratchFolder::new()?;
        let socket = folder.path().join("socket");
        let file = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let own = !["redis", "valkey"].iter().any(|other| file.contains(other));
        let socket_text = socket.to_string_lossy();
        let mut arguments: Vec<&str> = if own { vec!["server"] } else { Vec::new() };
        arguments.extend(["--port", "0", "--unixsocket", &socket_text, "--save", "", "--appendonly", "no"]);
        arguments.extend(self.flags.split_whitespace());
        let arguments: Vec<String> = arguments.into_iter().map(String::from).collect();
        let mut process = Process::start(program, &arguments, folder, processors)?;
        let target = Target::new(Address::Unix(socket));
        process.await_ready(|| {
            target.client().is_ok_and(|mut client| matches!(client.call(&["PING"]), Ok(Value::Simple(_))))
        })?;
        let failed = |error: crate::target::TargetError| error.to_string();
        let mut client = target.client().map_err(failed)?;
        if let Value::Error(_) =
            client.call(&["CONFIG", "SET", "maxmemory-policy", policy]).map_err(failed)?
        {
            return Ok(None);
        }
        client.call(&["CONFIG", "SET", "maxmemory", &self.maxmemory.to_string()]).map_err(failed)?;
        let cpu_before = process.cpu_ns()?;
        let (mut used_max, mut resident_max) = (0, 0);
        let run = replay(trace, &mut client, self.depth.into(), |client| {
            used_max = used_max.max(number(client, "memory", "used_memory"));
            resident_max = resident_max.max(process.resident_bytes().unwrap_or(0));
        })?;
        let cpu_ns = process.cpu_ns()? - cpu_before;
        let keys = match client.call(&["DBSIZE"]).map_err(failed)? {
            Value::Integer(keys) => keys as u64,
            _ => 0,
        };
        let evicted = number(&mut client, "stats", "evicted_keys");
        let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        let Replayed { gets, hits, get_bytes, hit_bytes, sets, errors, error, parts, latencies } = run;
        Ok(Some(Row {
            trace: trace.name.clone(),
            server: name.to_owned(),
            policy: policy.to_owned(),
            hit_percent: percent(hits, gets),
            byte_hit_percent: percent(hit_bytes, get_bytes),
            cpu_us: cpu_ns as f64 / 1000.0 / (gets + sets).max(1) as f64,
            p50_us: latencies.quantile_ms(0.5) * 1000.0,
            p999_us: latencies.quantile_ms(0.999) * 1000.0,
            keys,
            used_bytes: used_max,
            resident_bytes: resident_max,
            evicted,
            errors,
            error,
            over_time: parts.into_iter().map(|(gets, hits)| percent(hits, gets)).collect(),
        }))
    }
}

enum Source {
    File(PathBuf),
    Generator(&'static Generator),
}

/// The name of a server, and its program.
fn named(server: &str) -> (&str, &str) {
    server.split_once('=').unwrap_or_else(|| (server.rsplit('/').next().unwrap_or(server), server))
}

/// A number of INFO; 0 where it is not there.
fn number(client: &mut Client, section: &str, field: &str) -> u64 {
    let info = client.info(section).ok().flatten();
    info.and_then(|info| info.number(field)).unwrap_or(0.0) as u64
}

/// A number of bytes with a unit, as in a server's configuration.
fn bytes(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let units = [("kb", 10), ("mb", 20), ("gb", 30), ("b", 0), ("", 0)];
    let (digits, shift) = units
        .iter()
        .find_map(|(unit, shift)| Some((lower.strip_suffix(unit)?, *shift)))
        .unwrap_or((lower.as_str(), 0));
    let number: u64 =
        digits.parse().map_err(|_| "must be a number of bytes, with kb, mb or gb".to_owned())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(|| "is out of range".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn cache_arguments_are_consistent() {
        CacheArguments::command().debug_assert();
    }

    #[test]
    fn sizes_and_names_are_understood() {
        assert_eq!((bytes("64mb"), bytes("1GB"), bytes("10")), (Ok(64 << 20), Ok(1 << 30), Ok(10)));
        assert!(bytes("0").is_err() && bytes("x").is_err() && bytes("99999999999gb").is_err());
        assert_eq!(named("/a/b/redis-server"), ("redis-server", "/a/b/redis-server"));
        assert_eq!(named("old=/a/dunlin"), ("old", "/a/dunlin"));
    }
}
