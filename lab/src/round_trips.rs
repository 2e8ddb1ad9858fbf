//! E1, the next step that its author named: read, compute, write. The client does it alone, guards it
//! with WATCH, or sends it to the server as a script or a function.
//!
//! The computation is one that no single command has: the next member of a sequence modulo a prime.

use dunlin_resp::Value;

use super::contender::{Contender, Settings};
use super::experiment::{Cost, Experiment, Lab, names};
use super::mark::LIBRARY_NAME;
use super::results::{Results, Section};
use super::server::{Server, shown};
use super::sessions::{self, Session, SessionPlan};
use dunlin_bench::figures::{Sample, sample};
use dunlin_bench::random::Random;
use dunlin_bench::target::{Client, encode};

/// The row of the lab's table.
pub const ROUND_TRIPS: Experiment = Experiment {
    name: "round-trips",
    founding: "E1",
    title: "Read, compute, write: how many round trips?",
    explanation: [
        "One client reads a number, computes the next and writes it back: GET and SET, WATCH and MULTI, a",
        "script (EVALSHA), a function (FCALL), and scripts in pipelines. Every final number is compared.",
        "Look at operations per second beside the server's CPU time: a script trades one for the other.",
    ],
    sizes: &[],
    cost: Cost { always_s: 0.5, timed_s: 0.0, sized_s: 12.0 },
    run,
};

const OPERATIONS: u64 = 20_000;
const KEYS: u64 = 1000;
const PIPELINE: u64 = 16;
const FACTOR: u64 = 48_271;
const MODULUS: u64 = 2_147_483_647;
// The largest product is exact in one of Lua's doubles.
const _: () = assert!((MODULUS - 1) * FACTOR < 1 << 53);
const SCRIPT: &str = "local v = tonumber(redis.call('GET', KEYS[1])) * 48271 % 2147483647 \
                      redis.call('SET', KEYS[1], string.format('%.0f', v)) return v";
const LIBRARY: &str = "#!lua name=dunlin_lab\nredis.register_function('dunlin_lab_next', function(keys) \
                       local v = tonumber(redis.call('GET', keys[1])) * 48271 % 2147483647 \
                       redis.call('SET', keys[1], string.format('%.0f', v)) return v end)";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Two round trips, unguarded.
    GetSet,
    /// Three round trips: WATCH and GET in one, MULTI … EXEC in one, and none lost.
    Watch,
    /// A single round trip.
    Script,
    /// A single round trip.
    Function,
    /// A round trip for several.
    ScriptPipeline,
}

fn run(lab: &Lab) -> Result<Results, String> {
    let operations = lab.scale.count(OPERATIONS, 200);
    let mut results = Results::new(&ROUND_TRIPS, lab.scale);
    let servers = lab.start(&mut results, Settings::MemoryOnly, Contender::is_whole)?;
    results.setting(format!("{operations} operations over {KEYS} keys, one connection, closed loop"));
    let mut section = Section::new(
        "Read, compute, write",
        "An operation is one number read, computed and written. Latency is that of the whole operation, or of the \
         whole pipeline.",
        &names(&servers),
    );
    let rows = [
        ("GET, SET", Way::GetSet),
        ("WATCH, GET; MULTI, SET, EXEC", Way::Watch),
        ("EVALSHA", Way::Script),
        ("FCALL", Way::Function),
        ("EVALSHA, 16 in a pipeline", Way::ScriptPipeline),
    ]
    .map(|(name, way)| (name.to_string(), way));
    for server in &servers {
        server.check_answers(100).map_err(|error| format!("{}: {error}", server.name))?;
    }
    let without_functions: Vec<_> =
        servers.iter().filter(|server| !server.knows("FCALL")).map(|server| server.name.clone()).collect();
    if !without_functions.is_empty() {
        return Err(format!("{} has no functions (FCALL)", without_functions.join(", ")));
    }
    lab.alternate(&mut section, &servers, &rows, |_, way, server| {
        measure(server, *way, operations, lab.seed)
    })?;
    section.plot_bars("operations");
    results.sections.push(section);
    results.checks.push(format!("all {KEYS} numbers were those that the same steps give in this process"));
    Ok(results)
}

fn start_value(key: u64) -> u64 {
    key + 1
}

fn key(number: u64) -> String {
    format!("number:{}", number % KEYS)
}

struct Computing {
    client: Client,
    way: Way,
    sha: String,
}

fn measure(server: &Server, way: Way, operations: u64, seed: u64) -> Result<Vec<Sample>, String> {
    let mut client = server.client()?;
    for number in 0..KEYS {
        call(&mut client, &["SET", &key(number), &start_value(number).to_string()])?;
    }
    let sha = match call(&mut client, &["SCRIPT", "LOAD", SCRIPT])?.as_bytes() {
        Some(sha) => String::from_utf8_lossy(sha).into_owned(),
        None => return Err("SCRIPT LOAD gave no digest".into()),
    };
    call(&mut client, &["FUNCTION", "LOAD", "REPLACE", LIBRARY])?;
    let steps = if way == Way::ScriptPipeline { operations.div_ceil(PIPELINE) } else { operations };
    let plan = SessionPlan { clients: 1, operations: steps, rate: None, seed };
    let cpu_before = server.cpu()?;
    let outcome =
        sessions::run(plan, 1, |_| Ok(Computing { client: server.client()?, way, sha: sha.clone() }))?;
    let cpu_after = server.cpu()?;
    let done = if way == Way::ScriptPipeline { steps * PIPELINE } else { steps };
    check(&mut client, done)?;
    call(&mut client, &["FUNCTION", "DELETE", LIBRARY_NAME])?;
    server.erase()?;

    let mut samples = vec![sample("operations", "1/s", done as f64 / outcome.elapsed.as_secs_f64())];
    if let Some((after, before)) = cpu_after.zip(cpu_before) {
        let cpu = after.saturating_sub(before).as_secs_f64() * 1e6 / done as f64;
        samples.push(sample("server CPU per operation", "µs", cpu));
    }
    samples.push(sample("p50", "ms", outcome.kinds[0].quantile_ms(0.5)));
    samples.push(sample("p99", "ms", outcome.kinds[0].quantile_ms(0.99)));
    Ok(samples)
}

/// Whether every key has been taken as many steps as it should.
fn check(client: &mut Client, operations: u64) -> Result<(), String> {
    for number in 0..KEYS {
        let steps = (operations + KEYS - 1 - number) / KEYS;
        let expected = (0..steps).fold(start_value(number), |value, _| next(value)).to_string();
        let reply = call(client, &["GET", &key(number)])?;
        if reply.as_bytes() != Some(expected.as_bytes()) {
            return Err(format!("wrong answer: {} is {} instead of {expected}", key(number), shown(&reply)));
        }
    }
    Ok(())
}

fn next(value: u64) -> u64 {
    value * FACTOR % MODULUS
}

/// A call whose error reply is a failure.
fn call(client: &mut Client, command: &[&str]) -> Result<Value, String> {
    match client.call(command).map_err(|error| error.to_string())? {
        Value::Error(text) => Err(format!("{}: {}", command[0], String::from_utf8_lossy(&text))),
        reply => Ok(reply),
    }
}

fn number(reply: &Value) -> Result<u64, String> {
    let text = reply.as_bytes().and_then(|text| std::str::from_utf8(text).ok());
    text.and_then(|text| text.parse().ok()).ok_or_else(|| format!("wrong answer to GET: {}", shown(reply)))
}

impl Computing {
    /// Several commands in one round trip; none of their replies may be an error.
    fn batch(&mut self, commands: &[&[&str]]) -> Result<Vec<Value>, String> {
        let mut requests = Vec::new();
        commands.iter().for_each(|command| encode(command, &mut requests));
        let mut replies = Vec::with_capacity(commands.len());
        self.client
            .pipeline(&requests, commands.len(), |reply| replies.push(reply))
            .map_err(|error| error.to_string())?;
        match replies.iter().find(|reply| matches!(reply, Value::Error(_))) {
            Some(error) => Err(format!("answered with {}", shown(error))),
            None => Ok(replies),
        }
    }
}

impl Session for Computing {
    fn step(&mut self, operation: u64, _: &mut Random) -> Result<usize, String> {
        let key = key(operation);
        match self.way {
            Way::GetSet => {
                let value = number(&call(&mut self.client, &["GET", &key])?)?;
                call(&mut self.client, &["SET", &key, &next(value).to_string()])?;
            }
            Way::Watch => loop {
                let read = self.batch(&[&["WATCH", &key], &["GET", &key]])?;
                let value = next(number(&read[1])?).to_string();
                let written = self.batch(&[&["MULTI"], &["SET", &key, &value], &["EXEC"]])?;
                // Another client's write in between makes EXEC null: once more.
                if written[2] != Value::Null {
                    break;
                }
            },
            Way::Script => {
                let sha = self.sha.clone();
                call(&mut self.client, &["EVALSHA", &sha, "1", &key])?;
            }
            Way::Function => {
                call(&mut self.client, &["FCALL", "dunlin_lab_next", "1", &key])?;
            }
            Way::ScriptPipeline => {
                let sha = self.sha.clone();
                let keys: Vec<String> =
                    (0..PIPELINE).map(|index| self::key(operation * PIPELINE + index)).collect();
                let commands: Vec<[&str; 4]> =
                    keys.iter().map(|key| ["EVALSHA", sha.as_str(), "1", key.as_str()]).collect();
                let commands: Vec<&[&str]> = commands.iter().map(<[&str; 4]>::as_slice).collect();
                self.batch(&commands)?;
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_is_the_published_one() {
        // Park and Miller's generator with the factor of 1993: the 10,000th number after 1.
        assert_eq!((0..10_000).fold(1, |value, _| next(value)), 399_268_537);
    }
}
