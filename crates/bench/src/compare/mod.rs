//! `dunlin bench compare`: servers side by side in the same run, written as pages with plots.
//!
//! ```text
//! rows (a table) ─→ measure ─→ page (.md, .json, .svg)
//!                      │
//!                   server (child processes, /proc)
//!                      │
//! grid (--memory) ─→ page (.md, .json, .svg)
//! ```
//!
//! Invariants: servers take turns within a round, so a drift of the machine touches all alike; no
//! figure is taken from a server whose answers were wrong.

mod beside;
mod collections;
mod compaction;
mod grid;
mod measure;
mod page;
mod programs;
mod recovery;
mod rows;
mod server;

use std::ffi::OsString;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::affinity;
use crate::process;
use grid::{Grid, Kind};
use measure::Conditions;
use page::Page;
use rows::{ROWS, Row, Scale, Topic};
use server::{Program, Server};

/// Rounds of rows that need a fresh server for each measurement, unless asked for more.
const FRESH_ROUNDS: u32 = 1;
const ROUNDS: u32 = 5;
/// Flags for a server with one worker, and for one with a log that is never rewritten.
const ONE_WORKER: &[&str] = &["--threads", "1"];
const LOG: &[&str] = &["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"];

const EXAMPLES: &str = "\
Every server is started with: --bind 127.0.0.1 --port N --unixsocket PATH --save '' --appendonly no

Examples:
  Everything, against Redis from PATH and a Valkey:
    $ dunlin bench compare --peer valkey=/opt/valkey/bin/valkey-server
  Only the memory rows:
    $ dunlin bench compare --rows memory
  Bytes of keys of every shape and size (an hour and more; again after an interruption, and it goes on):
    $ dunlin bench compare --memory --peer valkey=/opt/valkey/bin/valkey-server
  Only the parts of that about hashes:
    $ dunlin bench compare --memory --only hash --peer valkey=/opt/valkey/bin/valkey-server
  Two other servers without dunlin, tiny, into a scratch folder:
    $ dunlin bench compare --servers redis,valkey --peer valkey=valkey-server --quick --out /tmp/figures";

/// Compares servers: processor time per request, memory per key, growth and expiry.
///
/// Starts each server itself, persistence off, restricted to one processor with the client on another,
/// lets them take turns, checks their answers and writes a page with a plot for each topic.
#[derive(Debug, Parser)]
#[command(name = "dunlin bench compare", bin_name = "dunlin bench compare", after_help = EXAMPLES)]
pub(crate) struct CompareArguments {
    /// Dunlin's executable; this one when omitted
    #[arg(long, value_name = "PATH")]
    dunlin: Option<PathBuf>,
    /// Redis's server
    #[arg(long, value_name = "PATH", default_value = "redis-server")]
    redis: PathBuf,
    /// Another server, with the name of its column
    #[arg(long, value_name = "[NAME=]PATH")]
    peer: Vec<String>,
    /// A server that answers every request alike: the limit to approach (its answers are not checked)
    #[arg(long, value_name = "PATH")]
    limit: Option<PathBuf>,
    /// Only these columns, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    servers: Vec<String>,
    /// Only rows or topics whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    rows: String,
    /// Measurements of each row: 5, or 1 where each needs a fresh server
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// The grid of memory instead of rows: type, members, bytes of a value, expiry of fields
    #[arg(long, conflicts_with_all = ["rows", "rounds", "keys"])]
    memory: bool,
    /// Only these types of the grid, separated by commas
    #[arg(long, value_name = "TYPES", value_delimiter = ',', requires = "memory")]
    only: Vec<Kind>,
    /// Folder for the pages
    #[arg(long, value_name = "FOLDER", default_value = "docs/benchmarks")]
    out: PathBuf,
    /// Keys of the rows about compaction and recovery: 2000000 when omitted
    #[arg(long, value_name = "KEYS", conflicts_with = "quick", value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,
    /// Tiny sizes, to try the comparison itself; the figures mean nothing
    #[arg(long)]
    quick: bool,
}

/// Runs `dunlin bench compare` with its arguments (without the program's name and subcommands).
pub fn compare(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments = std::iter::once("dunlin bench compare".into()).chain(arguments);
    let result = match CompareArguments::try_parse_from(arguments) {
        Ok(arguments) => arguments.run(),
        Err(error) => return crate::refused(&error),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("dunlin bench compare: {line}");
            ExitCode::FAILURE
        }
    }
}

/// The settings of a whole comparison.
struct Comparison {
    programs: Vec<Program>,
    scale: Scale,
    rounds: Option<u32>,
    /// Processors this process may use.
    processors: Vec<usize>,
    machine: Vec<String>,
    bar: ProgressBar,
}

impl CompareArguments {
    fn run(&self) -> Result<(), String> {
        let programs = self.programs()?;
        let processors = affinity::allowed()
            .map_err(|error| format!("cannot tell which processors there are: {error}"))?;
        let flags = Program::flags("PORT", "SOCKET").join(" ").replace("  ", " '' ");
        let machine = process::machine(&processors);
        let flags = format!("flags of every server: {flags}");
        if self.memory {
            let programs = programs.into_iter().filter(|program| !program.is_constant).collect();
            let (only, quick) = (self.only.as_slice(), self.quick);
            let grid = Grid { programs, only, quick, settings: vec![machine, flags], processors };
            let bar = progress_bar();
            grid.run(&self.out, &bar)?;
            bar.finish_and_clear();
            dunlin_print::say!("written to {}", self.out.display());
            return Ok(());
        }
        let rows: Vec<&Row> = ROWS
            .iter()
            .filter(|row| row.name.contains(&self.rows) || row.topic.file().contains(&self.rows))
            .collect();
        if rows.is_empty() {
            let names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
            return Err(format!("no row matches '{}'; the rows are {}", self.rows, names.join(", ")));
        }
        let mut machine = vec![machine];
        machine.extend(programs.iter().map(|program| format!("{}: {}", program.name, program.version())));
        machine.push(flags);
        if self.quick {
            machine.push("**tiny sizes: these figures mean nothing**".into());
        }
        let mut scale = if self.quick { Scale::QUICK } else { Scale::FULL };
        scale.compaction_keys = self.keys.unwrap_or(scale.compaction_keys);
        let comparison =
            Comparison { programs, scale, rounds: self.rounds, processors, machine, bar: progress_bar() };
        for topic in Topic::ALL {
            let rows: Vec<&Row> = rows.iter().copied().filter(|row| row.topic == topic).collect();
            if rows.is_empty() {
                continue;
            }
            if let Some(page) = comparison.topic(topic, &rows)? {
                page.write(&self.out)?;
                comparison.bar.suspend(|| dunlin_print::say!("{}", page.markdown()));
            }
        }
        comparison.bar.finish_and_clear();
        dunlin_print::say!("written to {}", self.out.display());
        Ok(())
    }

    fn programs(&self) -> Result<Vec<Program>, String> {
        let path = match &self.dunlin {
            Some(path) => path.clone(),
            None => std::env::current_exe().map_err(|error| format!("cannot tell my own path: {error}"))?,
        };
        let mut dunlin = Program::new("dunlin", path);
        dunlin.first = vec!["server".into()];
        let mut programs = vec![dunlin, Program::new("redis", self.redis.clone())];
        for peer in &self.peer {
            let (name, path) = match peer.split_once('=') {
                Some((name, path)) => (name.to_string(), PathBuf::from(path)),
                None => (column_name(Path::new(peer)), PathBuf::from(peer)),
            };
            programs.push(Program::new(&name, path));
        }
        if let Some(path) = &self.limit {
            programs.push(Program { is_constant: true, ..Program::new("limit", path.clone()) });
        }
        if let Some(unknown) =
            self.servers.iter().find(|name| !programs.iter().any(|program| program.name == **name))
        {
            return Err(format!("there is no server '{unknown}'"));
        }
        programs.retain(|program| self.servers.is_empty() || self.servers.contains(&program.name));
        for program in &mut programs {
            program.path = process::found(&program.path)
                .ok_or_else(|| format!("{}: no such program: {}", program.name, program.path.display()))?;
        }
        Ok(programs)
    }
}

impl Comparison {
    /// The page of a topic; nothing where this machine or the chosen servers cannot give it.
    fn topic(&self, topic: Topic, rows: &[&Row]) -> Result<Option<Page>, String> {
        let programs = self.columns(topic);
        let alone = self.processors.len() < 2;
        if programs.is_empty() || (alone && !topic.is_pinned()) {
            self.bar.suspend(|| {
                dunlin_print::say!("{}: skipped, it needs dunlin and two processors\n", topic.title())
            });
            return Ok(None);
        }
        let (server_processors, client_processor) = match self.processors.as_slice() {
            [first, second, ..] if topic.is_pinned() => (vec![*first], Some(*second)),
            all => (all.to_vec(), None),
        };
        let rounds = self.rounds.unwrap_or(if topic.wants_fresh_server() { FRESH_ROUNDS } else { ROUNDS });
        let mut settings = self.machine.clone();
        settings.push(match client_processor {
            Some(client) => {
                format!("server on processor {}, client on processor {client}", server_processors[0])
            }
            None => format!("server and client share {} processors", server_processors.len()),
        });
        settings.push(format!("{rounds} rounds; {}", self.sizes(topic)));
        let names = programs.iter().map(|program| program.name.clone()).collect();
        let mut page = Page::new(topic, names, settings);

        self.bar.set_length(u64::from(rounds) * (rows.len() * programs.len()) as u64);
        self.bar.set_position(0);
        let conditions =
            |round: u32| Conditions { scale: self.scale, client_processor, seed: u64::from(round) + 1 };
        let mut running = if topic.wants_fresh_server() {
            Vec::new()
        } else {
            self.start_all(&programs, &server_processors, &conditions(0))?
        };
        for round in 0..rounds {
            for row in rows {
                for turn in 0..programs.len() {
                    // Each round begins with another server.
                    let index = (turn + round as usize) % programs.len();
                    let program = &programs[index];
                    self.bar.set_message(format!("{} on {}", row.name, program.name));
                    let mut fresh;
                    let server = match running.get_mut(index) {
                        Some(server) => server,
                        None => {
                            fresh = Server::start(program, &server_processors)?;
                            &mut fresh
                        }
                    };
                    let (samples, course) =
                        apart(client_processor, || conditions(round).measure(row, server))?;
                    page.table.add(row.name, &program.name, samples);
                    page.add_course(row.name, course);
                    self.bar.inc(1);
                }
            }
        }
        page.table.figures.sort_by_key(|figure| rows.iter().position(|row| row.name == figure.row));
        Ok(Some(page))
    }

    fn start_all(
        &self,
        programs: &[Program],
        processors: &[usize],
        conditions: &Conditions,
    ) -> Result<Vec<Server>, String> {
        let mut servers = Vec::new();
        for program in programs {
            self.bar.set_message(format!("filling {}", program.name));
            let server = Server::start(program, processors)?;
            conditions.preload(&server).map_err(|error| format!("filling {}: {error}", program.name))?;
            servers.push(server);
        }
        Ok(servers)
    }

    /// The columns of a topic: which servers, with how many workers.
    fn columns(&self, topic: Topic) -> Vec<Program> {
        let dunlin = self.programs.iter().find(|program| program.name == "dunlin");
        let keeps_keys = |program: &&Program| !program.is_constant;
        match topic {
            Topic::Workers => dunlin.map_or(Vec::new(), |dunlin| {
                vec![
                    dunlin.variant("one worker", ONE_WORKER),
                    dunlin.variant("two workers", &["--threads", "2"]),
                ]
            }),
            Topic::HotKey | Topic::LongCommands | Topic::Compaction | Topic::Recovery => {
                self.programs.iter().filter(keeps_keys).cloned().collect()
            }
            Topic::DurableWrites => {
                let durable = |program: &Program| {
                    program.variant(&program.name, &[LOG, &["--appendfsync", "always"]].concat())
                };
                self.programs.iter().filter(keeps_keys).map(durable).collect()
            }
            Topic::Log => {
                let programs = self.programs.iter().filter(keeps_keys);
                programs
                    .flat_map(|program| {
                        let one = if program.name == "dunlin" { ONE_WORKER } else { &[] };
                        [
                            program.variant(&program.name, one),
                            program.variant(&format!("{}+log", program.name), &[one, LOG].concat()),
                        ]
                    })
                    .collect()
            }
            _ => {
                let one_worker = |program: &Program| match program.name.as_str() {
                    "dunlin" => program.variant("dunlin", ONE_WORKER),
                    _ => program.clone(),
                };
                let wanted = |program: &&Program| topic == Topic::Requests || !program.is_constant;
                self.programs.iter().filter(wanted).map(one_worker).collect()
            }
        }
    }

    fn sizes(&self, topic: Topic) -> String {
        match topic {
            Topic::Memory => format!("{} keys", self.scale.memory_keys),
            Topic::Compaction | Topic::Recovery => format!("{} keys", self.scale.compaction_keys),
            Topic::Growth => format!("{} keys", self.scale.growth_keys),
            Topic::Expiry => format!("{} keys", self.scale.expiry_keys),
            Topic::LongCommands => format!("{} members", self.scale.long_members),
            _ => format!(
                "{} keys; {} s measured after {} s of warm-up",
                self.scale.keys,
                self.scale.measured.as_secs_f64(),
                self.scale.warmup.as_secs_f64()
            ),
        }
    }
}

/// Measures on a thread of the client's processor, so that nothing of the client disturbs the server.
fn apart<R: Send>(
    processor: Option<usize>,
    measure: impl FnOnce() -> Result<R, String> + Send,
) -> Result<R, String> {
    thread::scope(|scope| {
        let measuring = scope.spawn(|| {
            affinity::pin(processor).map_err(|error| format!("cannot pin the client: {error}"))?;
            measure()
        });
        measuring.join().expect("the measuring thread panicked")
    })
}

fn progress_bar() -> ProgressBar {
    let target =
        if stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}")
        .expect("the template is a constant that parses");
    ProgressBar::with_draw_target(Some(0), target).with_style(style)
}

/// `/opt/valkey/bin/valkey-server` → `valkey`.
fn column_name(path: &Path) -> String {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    name.strip_suffix("-server").map_or(name.clone(), str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> CompareArguments {
        CompareArguments::try_parse_from(std::iter::once("compare").chain(line.split_whitespace())).unwrap()
    }

    #[test]
    fn columns_are_named_after_their_programs() {
        assert_eq!(column_name(Path::new("/opt/bin/valkey-server")), "valkey");
        assert_eq!(column_name(Path::new("keydb")), "keydb");
        let programs = parse("--redis /bin/sh --peer other=/bin/sh --limit /bin/sh --dunlin /bin/sh")
            .programs()
            .unwrap();
        let names: Vec<_> =
            programs.iter().map(|program| (program.name.as_str(), program.is_constant)).collect();
        assert_eq!(names, [("dunlin", false), ("redis", false), ("other", false), ("limit", true)]);
    }

    #[test]
    fn programs_and_rows_that_do_not_exist_are_named() {
        assert_eq!(parse("--redis /no/such").programs().unwrap_err(), "redis: no such program: /no/such");
        assert_eq!(parse("--servers nobody").programs().unwrap_err(), "there is no server 'nobody'");
        let error = parse("--servers dunlin --rows nothing").run().unwrap_err();
        assert!(error.starts_with("no row matches 'nothing'; the rows are get-tcp-1, "), "{error}");
    }
}
