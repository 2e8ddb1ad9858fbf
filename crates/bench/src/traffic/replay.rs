//! `dunlin bench replay`: sends the commands of a recording again.
//!
//! Every recorded client has a connection of its own, as far as `--clients` goes, so that the order of its
//! commands is kept. At a speed, commands are due at their recorded times and latencies count from
//! then: an open loop. At `max`, each connection sends its next command when the last is answered.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::{ArgAction, Parser};
use dunlin_resp::Value;

use super::line::{self, Recorded};
use crate::load::Outcome;
use crate::server_flags::ServerFlags;
use crate::target::Target;

/// Commands that are not sent again: they change the state of a connection, wait for others, or harm the server.
const SKIPPED: [&str; 21] = [
    "AUTH",
    "HELLO",
    "RESET",
    "QUIT",
    "CLIENT",
    "SELECT",
    "MONITOR",
    "SUBSCRIBE",
    "PSUBSCRIBE",
    "SSUBSCRIBE",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "SUNSUBSCRIBE",
    "SYNC",
    "PSYNC",
    "REPLCONF",
    "SHUTDOWN",
    "DEBUG",
    "FAILOVER",
    "REPLICAOF",
    "SLAVEOF",
];

/// Sends the commands of a recording to a server, at the recorded speed or another.
///
/// Calls of a script are left to the script; commands that would change the connection, subscribe, or
/// stop the server are left out, and counted.
#[derive(Debug, Parser)]
#[command(name = "dunlin bench replay", version, bin_name = "dunlin bench replay", disable_help_flag = true)]
pub struct ReplayArguments {
    #[command(flatten)]
    pub(super) server: ServerFlags,
    /// 1 is the recorded speed, 2 twice that; `max` does not wait
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = speed)]
    speed: Speed,
    /// Most connections; recorded clients beyond share them
    #[arg(long, value_name = "CONNECTIONS", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    clients: u32,
    /// End with success even if the server answered with errors
    #[arg(long)]
    allow_errors: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// A recording of `dunlin bench record`, or the output of redis-cli MONITOR
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Speed {
    Times(f64),
    Max,
}

fn speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed::Max);
    }
    match text.parse::<f64>() {
        Ok(factor) if (1e-3..=1e6).contains(&factor) => Ok(Speed::Times(factor)),
        _ => Err("must be a number from 0.001 to 1000000, or max".into()),
    }
}

/// A command that is sent again.
#[derive(Debug, PartialEq, Eq)]
struct Due {
    /// From the first command of the recording.
    after: Duration,
    database: u32,
    arguments: Vec<Vec<u8>>,
}

/// The contents of a recording.
#[derive(Debug, Default)]
struct Recording {
    /// The commands of each connection, in their order.
    connections: Vec<Vec<Due>>,
    /// How many commands were left out, by name.
    skipped: BTreeMap<String, u64>,
    /// From the first command to the last.
    length: Duration,
}

impl ReplayArguments {
    /// Replays the whole recording and prints the result.
    pub fn run(&self) -> Result<(), String> {
        let target = self.server.target()?;
        let file = File::open(&self.file)
            .map_err(|error| format!("cannot open {}: {error}", self.file.display()))?;
        let recording = Recording::read(BufReader::new(file), self.clients as usize)
            .map_err(|error| format!("{}: {error}", self.file.display()))?;
        let outcome = replay(&target, &recording, self.speed)?;
        dunlin_print::text(&text(&recording, &outcome, self.speed));
        if outcome.tally.errors > 0 && !self.allow_errors {
            return Err("the server answered with errors (--allow-errors makes that a success)".into());
        }
        Ok(())
    }
}

impl Recording {
    fn read(mut lines: impl BufRead, connections_max: usize) -> Result<Self, String> {
        let mut recording = Self::default();
        let mut clients: HashMap<String, usize> = HashMap::new();
        let (mut first, mut text, mut number) = (None, Vec::new(), 0);
        loop {
            text.clear();
            if lines.read_until(b'\n', &mut text).map_err(|error| error.to_string())? == 0 {
                break;
            }
            number += 1;
            let line = text.strip_suffix(b"\n").unwrap_or(&text);
            // redis-cli begins with MONITOR's own reply.
            if line.is_empty() || (number == 1 && line == b"OK") {
                continue;
            }
            let recorded = line::parse(line).ok_or_else(|| format!("line {number} is none of MONITOR's"))?;
            let first = *first.get_or_insert(recorded.at);
            recording.add(recorded, first, &mut clients, connections_max);
        }
        if clients.is_empty() {
            return Err("there is no command in it that could be sent again".into());
        }
        Ok(recording)
    }

    fn add(
        &mut self,
        recorded: Recorded,
        first: Duration,
        clients: &mut HashMap<String, usize>,
        connections_max: usize,
    ) {
        let name = String::from_utf8_lossy(&recorded.arguments[0]).to_ascii_uppercase();
        if recorded.is_from_script() {
            return;
        }
        if SKIPPED.contains(&name.as_str()) {
            *self.skipped.entry(name).or_default() += 1;
            return;
        }
        let after = recorded.at.saturating_sub(first);
        self.length = self.length.max(after);
        let next = clients.len() % connections_max;
        let connection = *clients.entry(recorded.client).or_insert(next);
        if connection == self.connections.len() {
            self.connections.push(Vec::new());
        }
        self.connections[connection].push(Due {
            after,
            database: recorded.database,
            arguments: recorded.arguments,
        });
    }
}

/// Sends everything; counts replies and errors.
fn replay(target: &Target, recording: &Recording, speed: Speed) -> Result<Outcome, String> {
    let clients = recording.connections.iter().map(|_| target.client());
    let clients = clients.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    let start = Instant::now();
    let outcomes: Vec<Result<Outcome, String>> = thread::scope(|scope| {
        let running: Vec<_> = (clients.into_iter().zip(&recording.connections))
            .map(|(mut client, commands)| {
                scope.spawn(move || {
                    let (mut outcome, mut database) = (Outcome::default(), target.database);
                    for due in commands {
                        if due.database != database {
                            let number = due.database.to_string();
                            client.call(&["SELECT", &number]).map_err(|error| error.to_string())?;
                            database = due.database;
                        }
                        let from = match speed {
                            Speed::Max => start.elapsed(),
                            Speed::Times(factor) => {
                                let due = due.after.div_f64(factor);
                                thread::sleep(due.saturating_sub(start.elapsed()));
                                due
                            }
                        };
                        let reply = client.call(&due.arguments).map_err(|error| error.to_string())?;
                        let latency = start.elapsed().saturating_sub(from);
                        outcome.latencies.record(latency.as_nanos() as u64, 1);
                        outcome.tally.replies += 1;
                        if let Value::Error(text) = reply {
                            outcome.tally.errors += 1;
                            outcome.count_error(&text);
                        }
                    }
                    outcome.elapsed = start.elapsed();
                    Ok(outcome)
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("a replaying thread panicked")).collect()
    });
    let mut total = Outcome::default();
    for outcome in outcomes {
        total.add(outcome?);
    }
    Ok(total)
}

fn text(recording: &Recording, outcome: &Outcome, speed: Speed) -> String {
    let mut text = format!(
        "{} commands over {} connections in {:.2} s ({:.0} a second); recorded in {:.2} s\n",
        outcome.tally.replies,
        recording.connections.len(),
        outcome.elapsed.as_secs_f64(),
        outcome.requests_per_second(),
        recording.length.as_secs_f64()
    );
    text.push_str(match speed {
        Speed::Max => "closed loop: latency from sending\n",
        Speed::Times(_) => "open loop: latency from when a command was due\n",
    });
    let figures = outcome.latencies.summary().columns().map(|(name, value)| format!("{name} {value:.3}"));
    text.push_str(&format!("latency (ms): {}\n", figures.join(", ")));
    for (name, count) in &recording.skipped {
        text.push_str(&format!("left out: {count} × {name}\n"));
    }
    for (error, count) in &outcome.errors {
        text.push_str(&format!("ERROR REPLIES: {count} × {error}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDING: &str = "OK\n\
        10.000000 [0 a:1] \"SET\" \"k\" \"1\"\n\
        10.500000 [2 b:1] \"get\" \"k\"\n\
        11.000000 [0 lua] \"GET\" \"k\"\n\
        11.250000 [0 a:1] \"INCR\" \"k\"\n\
        12.000000 [0 c:1] \"SHUTDOWN\"\n";

    #[test]
    fn clients_keep_their_order_and_their_connections() {
        let recording = Recording::read(RECORDING.as_bytes(), 10).unwrap();
        let names = |connection: &Vec<Due>| -> Vec<(u64, u32, Vec<u8>)> {
            let row = |due: &Due| (due.after.as_millis() as u64, due.database, due.arguments[0].clone());
            connection.iter().map(row).collect()
        };
        let connections: Vec<_> = recording.connections.iter().map(names).collect();
        assert_eq!(
            connections,
            [vec![(0, 0, b"SET".to_vec()), (1250, 0, b"INCR".to_vec())], vec![(500, 2, b"get".to_vec())]]
        );
        assert_eq!(recording.skipped.get("SHUTDOWN"), Some(&1));
        assert_eq!(recording.length, Duration::from_millis(1250));
        assert_eq!(Recording::read(RECORDING.as_bytes(), 1).unwrap().connections.len(), 1);
    }

    #[test]
    fn recording_errors_name_their_line() {
        let error = |text: &str| Recording::read(text.as_bytes(), 10).unwrap_err();
        assert_eq!(error("OK\nhello\n"), "line 2 is none of MONITOR's");
        assert_eq!(error("OK\n"), "there is no command in it that could be sent again");
    }

    #[test]
    fn speeds() {
        assert_eq!((speed("2"), speed("max")), (Ok(Speed::Times(2.0)), Ok(Speed::Max)));
        assert!(speed("0").is_err() && speed("fast").is_err());
    }
}
