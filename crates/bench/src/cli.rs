//! The command line of `dunlin bench`: redis-benchmark's flags, and more.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser};

use crate::load::Plan;
use crate::server_flags::ServerFlags;
use crate::target::Target;
use crate::template::{Filling, KEYSPACE_MAX, Template};
use crate::workload;

/// Largest payload, as in redis-benchmark.
const DATA_BYTES_MAX: u64 = 1 << 30;

const EXAMPLES: &str = "\
Behind a command, -q, -e and --csv are still flags; a `--` before the command has them sent with it.

Placeholders in the arguments of a command:
  __rand_int__   12 random digits below -r, drawn anew for every occurrence
  __seq_int__    12 digits that count the requests (modulo -r), to fill a database exactly
  __data__       -d random bytes

Examples:
  The built-in tests against 127.0.0.1:6379:
    $ dunlin bench -q
  GET and SET on a million keys of 100 bytes, 16 requests at a time:
    $ dunlin bench -t set,get -n 1000000 -r 1000000 -d 100 -P 16
  Fill a database with exactly a million keys:
    $ dunlin bench -n 1000000 -P 100 SET key:__seq_int__ __data__
  Latency at 50,000 requests a second for ten seconds, whatever the server does:
    $ dunlin bench --rate 50000 --duration 10 --warmup 1 -r 1000000 GET key:__rand_int__
  Over a Unix domain socket, figures as JSON:
    $ dunlin bench -s /run/dunlin.sock -t get --json -
  Last argument from a file:
    $ dunlin bench -x SET page < index.html
  This server beside others, written to docs/benchmarks:
    $ dunlin bench compare --help
  Hit ratios at a memory limit, Dunlin's and others':
    $ dunlin bench cache --help
  Real traffic, recorded through MONITOR and sent again:
    $ dunlin bench record --duration 60 traffic.txt
    $ dunlin bench replay --speed 2 -p 7000 traffic.txt";

/// Measures requests per second, latency and the server's processor time per request.
///
/// Without a rate the loop is closed: a connection sends its next pipeline when the last one is
/// answered, so a slow server slows the load and hides its own delays. With --rate the loop is open:
/// requests are due on a fixed schedule and latency counts from when they were due.
#[derive(Debug, Parser)]
#[command(name = "dunlin bench", version, bin_name = "dunlin bench", disable_help_flag = true, after_help = EXAMPLES)]
pub struct BenchArguments {
    #[command(flatten)]
    pub server: ServerFlags,
    /// Database to select
    #[arg(long = "dbnum", value_name = "DATABASE", default_value_t = 0)]
    pub database: u32,
    /// Speak RESP3
    #[arg(short = '3')]
    pub resp3: bool,

    /// Parallel connections
    #[arg(short = 'c', value_name = "CONNECTIONS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub clients: u32,
    /// Requests of each test [default: 100000, or as many as --duration has time for]
    #[arg(short = 'n', value_name = "REQUESTS", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Seconds of each test, instead of -n; with -n, whichever ends first
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<Duration>,
    /// Seconds of the same load before each test that are not counted [default: none]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub warmup: Option<Duration>,
    /// Requests a second, all connections together: makes the loop an open one [default: a closed loop]
    #[arg(long, value_name = "REQUESTS_PER_SECOND", value_parser = rate)]
    pub rate: Option<f64>,
    /// Requests that a connection has under way at once
    #[arg(short = 'P', value_name = "REQUESTS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub pipeline: u32,
    /// Threads that generate load
    #[arg(long, value_name = "THREADS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// 1 keeps connections, 0 opens one for every pipeline
    #[arg(short = 'k', value_name = "0|1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub keep_alive: u8,
    /// Random keys below this number [default: one key]
    #[arg(short = 'r', value_name = "KEYSPACE", value_parser = clap::value_parser!(u64).range(1..=KEYSPACE_MAX))]
    pub keyspace: Option<u64>,
    /// Length of values in bytes
    #[arg(short = 'd', value_name = "BYTES", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=DATA_BYTES_MAX))]
    pub data_bytes: u64,
    /// Seed of all random numbers [default: another one each time]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Seconds without any reply after which a test is given up; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds_or_zero)]
    pub timeout: Duration,
    /// Ask for CLIENT TRACKING ON on every connection
    #[arg(long)]
    pub enable_tracking: bool,
    /// Follow the slots of a cluster
    #[arg(long)]
    pub cluster: bool,

    /// Tests to run, separated by commas [default: all but those of JSON]
    #[arg(short = 't', value_name = "TESTS")]
    pub tests: Option<String>,
    /// Repeat the tests for ever
    #[arg(short = 'l')]
    pub endless: bool,
    /// Only open the connections and wait
    #[arg(short = 'I')]
    pub idle: bool,
    /// Read the last argument of the command from standard input
    #[arg(short = 'x', requires = "command")]
    pub last_from_stdin: bool,

    /// One line for each test
    #[arg(short = 'q')]
    pub quiet: bool,
    /// Comma-separated values
    #[arg(long, conflicts_with = "quiet")]
    pub csv: bool,
    /// Write the results as JSON to a file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Decimals of latencies in milliseconds
    #[arg(long, value_name = "DIGITS", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=6))]
    pub precision: u8,
    /// Show error replies as they come, at most one a second
    #[arg(short = 'e')]
    pub show_errors: bool,
    /// End with success even if the server answered with errors
    #[arg(long)]
    pub allow_errors: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,

    /// A command to send instead of the built-in tests
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// A test that is ready to run.
#[derive(Debug, Clone)]
pub struct Test {
    /// Shown above its figures.
    pub title: String,
    /// The load.
    pub plan: Plan,
    /// Whether a null reply means that there was nothing to read, so that hits are worth a line.
    pub can_miss: bool,
}

/// Flags without a value that people put after the command.
const TRAILING_FLAGS: [&str; 3] = ["-q", "-e", "--csv"];

/// Commands that answer null where there is nothing to read.
const CAN_MISS: [&str; 12] = [
    "GET", "GETDEL", "GETEX", "HGET", "JSON.GET", "LINDEX", "LPOP", "RPOP", "SPOP", "ZRANK", "ZREVRANK",
    "ZSCORE",
];

impl BenchArguments {
    /// Reads the words behind `dunlin bench`.
    pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut words: Vec<OsString> = words.into_iter().collect();
        words.insert(0, "dunlin bench".into());
        let mut arguments = Self::try_parse_from(&words)?;
        if !words.iter().any(|word| word == "--") {
            // The line is parsed again with these flags in front, so that clap checks them like all others.
            let is_flag = |word: &OsString| TRAILING_FLAGS.iter().any(|flag| word == flag);
            let trailing = arguments.command.iter().skip(1).rev().take_while(|word| is_flag(word)).count();
            if trailing > 0 {
                words[1..].rotate_right(trailing);
                arguments = Self::try_parse_from(&words)?;
            }
        }
        Ok(arguments)
    }

    /// The server that the flags name.
    pub fn target(&self) -> Result<Target, String> {
        let mut target = self.server.target()?;
        if self.database != 0 {
            target.database = self.database;
        }
        target.resp3 = self.resp3;
        target.tracking = self.enable_tracking;
        Ok(target)
    }

    /// The tests that the flags name. Reads standard input when told to.
    pub fn tests(&self, stdin: &mut dyn Read) -> Result<Vec<Test>, String> {
        let mut named: Vec<(String, bool, Template)> = Vec::new();
        if self.command.is_empty() {
            let common = workload::common().join(",");
            let selected = workload::select(self.tests.as_deref().unwrap_or(&common)).map_err(|name| {
                format!("there is no test '{name}'; the tests are {}", workload::names().join(", "))
            })?;
            named.extend(selected.iter().map(|row| {
                let command = row.command.split_whitespace().next().unwrap_or_default();
                (row.title.to_string(), can_miss(command.as_bytes()), row.template())
            }));
        } else {
            let mut arguments: Vec<Vec<u8>> =
                self.command.iter().cloned().map(OsStringExt::into_vec).collect();
            let title: Vec<_> = arguments.iter().map(|argument| String::from_utf8_lossy(argument)).collect();
            let title = title.join(" ");
            if self.last_from_stdin {
                let mut last = Vec::new();
                stdin
                    .read_to_end(&mut last)
                    .map_err(|error| format!("cannot read standard input: {error}"))?;
                arguments.push(last);
            }
            named.push((title, can_miss(&arguments[0]), Template::command(&arguments)));
        }
        let test = |(title, can_miss, template)| Test { title, plan: self.plan(template), can_miss };
        Ok(named.into_iter().map(test).collect())
    }

    fn plan(&self, template: Template) -> Plan {
        let data_bytes = usize::try_from(self.data_bytes).unwrap_or(usize::MAX);
        let mut plan = Plan::new(template, Filling::new(self.keyspace, data_bytes));
        plan.requests = self.requests.or(if self.duration.is_some() { None } else { plan.requests });
        plan.duration = self.duration;
        plan.clients = self.clients as usize;
        plan.threads = self.threads as usize;
        plan.pipeline = self.pipeline as usize;
        plan.rate = self.rate;
        plan.keep_alive = self.keep_alive == 1;
        plan.stall_max = Some(self.timeout).filter(|timeout| !timeout.is_zero());
        plan
    }
}

fn can_miss(command: &[u8]) -> bool {
    CAN_MISS.iter().any(|name| command.eq_ignore_ascii_case(name.as_bytes()))
}

fn seconds_or_zero(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn seconds(text: &str) -> Result<Duration, String> {
    seconds_or_zero(text).and_then(|duration| {
        if duration.is_zero() { Err("must be above 0".to_string()) } else { Ok(duration) }
    })
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && (1e-3..=1e9).contains(&rate) => Ok(rate),
        _ => Err("must be a number from 0.001 to 1000000000".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Address, Credentials};

    fn parse(line: &str) -> Result<BenchArguments, clap::Error> {
        BenchArguments::read(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn defaults_are_those_of_redis_benchmark() {
        let arguments = parse("").unwrap();
        assert_eq!(arguments.target().unwrap(), Target::new(Address::Tcp("127.0.0.1".into(), 6379)));
        let tests = arguments.tests(&mut std::io::empty()).unwrap();
        assert_eq!(tests.len(), workload::WORKLOADS.iter().filter(|row| row.is_common()).count());
        assert!(tests.iter().all(|test| !test.title.starts_with("JSON")), "not every server has it");
        let plan = &tests[0].plan;
        assert_eq!((plan.requests, plan.clients, plan.pipeline, plan.threads), (Some(100_000), 50, 1, 1));
        assert_eq!((plan.filling.data_bytes, plan.keep_alive, plan.rate), (3, true, None));
    }

    #[test]
    fn flags_all_reach_the_plan() {
        let arguments = parse(
            "-h db -p 7000 -c 8 -n 77 -d 10 -r 500 -P 16 -t get --threads 2 -a pw --user ann --dbnum 4 -k 0 \
             -3 --seed 5 --rate 1000 --timeout 0 -q --precision 1 -e --allow-errors -l",
        )
        .unwrap();
        let target = arguments.target().unwrap();
        assert_eq!(target.address, Address::Tcp("db".into(), 7000));
        assert_eq!(
            target.credentials,
            Some(Credentials { username: Some("ann".into()), password: "pw".into() })
        );
        assert_eq!((target.database, target.resp3), (4, true));
        let tests = arguments.tests(&mut std::io::empty()).unwrap();
        let plan = &tests[0].plan;
        assert_eq!((tests.len(), tests[0].title.as_str()), (1, "GET"));
        assert_eq!((plan.requests, plan.clients, plan.pipeline, plan.threads), (Some(77), 8, 16, 2));
        assert_eq!((plan.filling.keyspace, plan.filling.data_bytes, plan.keep_alive), (500, 10, false));
        assert_eq!((plan.rate, plan.stall_max), (Some(1000.0), None));
        assert_eq!(parse("--duration 1.5").unwrap().plan(Template::words("PING")).requests, None);
        assert_eq!(
            parse("-s /tmp/x.sock").unwrap().target().unwrap().address,
            Address::Unix("/tmp/x.sock".into())
        );
    }

    #[test]
    fn command_takes_all_words_behind_it() {
        let arguments = parse("-r 10 ZADD key -1 -n __rand_int__").unwrap();
        let tests = arguments.tests(&mut std::io::empty()).unwrap();
        assert_eq!(tests[0].title, "ZADD key -1 -n __rand_int__");
        assert_eq!(tests[0].plan.requests, Some(100_000));
        let from_stdin = parse("-x SET page").unwrap().tests(&mut &b"a b\n"[..]).unwrap();
        assert_eq!(from_stdin[0].plan.template, Template::command(&["SET", "page", "a b\n"]));
    }

    #[test]
    fn flags_behind_the_command_are_flags() {
        let arguments = parse("GET key -q -e").unwrap();
        assert!(arguments.quiet && arguments.show_errors);
        assert_eq!(arguments.command, ["GET", "key"]);
        assert!(parse("PING --csv").unwrap().csv);
        assert!(parse("PING --csv -q").is_err(), "one layout only");
        for (line, command) in [
            ("-q ZADD key -1 -q x", &["ZADD", "key", "-1", "-q", "x"][..]),
            ("-- ECHO -q", &["ECHO", "-q"]),
            ("-n 5 -- -q -q", &["-q", "-q"]),
        ] {
            let arguments = parse(line).unwrap();
            assert_eq!(arguments.command, command, "{line}");
            assert_eq!(arguments.quiet, line.starts_with("-q"), "{line}");
        }
    }

    #[test]
    fn help_names_the_default_of_every_flag_with_a_value() {
        let command = <BenchArguments as clap::CommandFactory>::command();
        for flag in command.get_arguments().filter(|flag| flag.get_action().takes_values()) {
            let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
            let has_default = !flag.get_default_values().is_empty() || help.contains("[default: ");
            // Without these, the options that refine them have no effect.
            let optional =
                ["socket", "uri", "password", "user", "cacert", "cert", "key", "sni", "json", "duration"];
            assert!(
                has_default || flag.is_positional() || optional.contains(&flag.get_id().as_str()),
                "{flag}: {help}"
            );
        }
    }

    #[test]
    fn mistakes_are_refused() {
        for line in [
            "--bogus",
            "-c 0",
            "-P 0",
            "-n 0",
            "-d 0",
            "-r 0",
            "-k 2",
            "--rate 0",
            "--rate nan",
            "--duration 0",
            "--duration -1",
            "-x",
            "--user ann",
            "-n many",
            "-p 70000",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        let unknown = parse("-t nosuch").unwrap().tests(&mut std::io::empty()).unwrap_err();
        assert!(unknown.starts_with("there is no test 'nosuch'; the tests are ping_inline, "), "{unknown}");
    }

    #[test]
    fn help_teaches_with_examples() {
        let help = <BenchArguments as clap::CommandFactory>::command().render_long_help().to_string();
        assert!(help.contains("__rand_int__") && help.contains("$ dunlin bench -t set,get"));
    }
}
