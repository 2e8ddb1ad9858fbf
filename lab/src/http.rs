//! E3, "gevent, eventlet, Node.js": `ab -n 1000 -c 100` against a hello world. Beside Node.js's stands
//! Dunlin's own HTTP endpoint, which reports its health to load balancers.

use std::path::Path;
use std::process::Command;

use super::contender::{Origin, free_port};
use super::experiment::{Cost, Experiment, Lab, Size};
use super::results::{Results, Section};
use dunlin_bench::figures::{Sample, sample};
use dunlin_bench::process::{self, Process, ScratchFolder};

/// The row of the lab's table.
pub const HTTP: Experiment = Experiment {
    name: "http",
    founding: "E3",
    title: "HTTP: the health endpoint beside a hello world",
    explanation: [
        "ab -n {requests} -c 100, from Debian's apache2-utils, against Dunlin's health endpoint and Node.js's hello world.",
        "Its authors saw 0.201 s for gevent, 0.450 s for eventlet and 0.172 s for Node.js.",
        "Look at the time of the whole run; the endpoint needs no worker, so it answers however busy they are.",
    ],
    sizes: &[REQUESTS],
    cost: Cost { always_s: 0.2, timed_s: 0.0, sized_s: 0.2 },
    run,
};

const REQUESTS: Size = Size::new("requests", 1000, CONNECTIONS);
const CONNECTIONS: u64 = 100;
const HELLO: &str = "require('http').createServer((request, response) => {
    response.writeHead(200, { 'Content-Type': 'text/plain' });
    response.end('hello world\\n');
}).listen(Number(process.argv[1]), '127.0.0.1');";

/// Something that answers over HTTP.
struct Endpoint {
    name: &'static str,
    process: Process,
    port: u16,
    path: &'static str,
}

fn run(lab: &Lab) -> Result<Results, String> {
    let mut results = Results::new(&HTTP, lab.scale);
    let Some(ab) = process::found(Path::new("ab")) else {
        let missing = "the experiment is left out: `ab` is missing (on Debian in the package apache2-utils)";
        lab.tell(&mut results, missing.into());
        return Ok(results);
    };
    let mut endpoints = Vec::new();
    for contender in &lab.contenders {
        match &contender.origin {
            Origin::Dunlin(path) => endpoints.push(dunlin(path, &lab.server_processors)?),
            _ => results.notes.push(format!("{} is left out: it does not speak HTTP", contender.name)),
        }
    }
    match process::found(Path::new("node")) {
        Some(node) => endpoints.push(hello(&node, &lab.server_processors)?),
        None => results.notes.push("Node.js is left out: there is no `node` on PATH".into()),
    }
    let requests = lab.scale.of(REQUESTS);
    results.setting(format!("ab -n {requests} -c {CONNECTIONS}, a connection for each request"));
    let names: Vec<String> = endpoints.iter().map(|endpoint| endpoint.name.to_string()).collect();
    let mut section =
        Section::new("ab", "As ab reports it; every request must be answered with 200.", &names);
    lab.bar.inc_length(u64::from(lab.rounds) * endpoints.len() as u64);
    for round in 0..lab.rounds {
        for turn in 0..endpoints.len() {
            let endpoint = &endpoints[(turn + round as usize) % endpoints.len()];
            lab.bar.set_message(format!("ab on {}", endpoint.name));
            let samples =
                measure(&ab, endpoint, requests).map_err(|error| format!("{}: {error}", endpoint.name))?;
            section.table.add("hello", endpoint.name, samples);
            lab.bar.inc(1);
        }
    }
    section.plot_bars("whole run");
    results.sections.push(section);
    results
        .checks
        .push(format!("all {requests} requests of every run were answered with 200 and a whole body"));
    Ok(results)
}

fn dunlin(path: &Path, processors: &[usize]) -> Result<Endpoint, String> {
    let (port, http_port) = (free_port()?, free_port()?);
    let threads = processors.len().to_string();
    let arguments = [
        "server",
        "--bind",
        "127.0.0.1",
        "--port",
        &port.to_string(),
        "--http-port",
        &http_port.to_string(),
        "--threads",
        &threads,
        "--save",
        "",
    ];
    start("dunlin, GET /health", path, &arguments.map(String::from), http_port, "/health", processors)
}

fn hello(node: &Path, processors: &[usize]) -> Result<Endpoint, String> {
    let port = free_port()?;
    let arguments = ["-e", HELLO, &port.to_string()].map(String::from);
    start("Node.js, hello world", node, &arguments, port, "/", processors)
}

fn start(
    name: &'static str,
    program: &Path,
    arguments: &[String],
    port: u16,
    path: &'static str,
    processors: &[usize],
) -> Result<Endpoint, String> {
    let mut process = Process::start(program, arguments, ScratchFolder::new()?, processors)?;
    process.await_ready(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok())?;
    Ok(Endpoint { name, process, port, path })
}

fn measure(ab: &Path, endpoint: &Endpoint, requests: u64) -> Result<Vec<Sample>, String> {
    let url = format!("http://127.0.0.1:{}{}", endpoint.port, endpoint.path);
    let before = endpoint.process.cpu_ns()?;
    let output = Command::new(ab)
        .args(["-q", "-n", &requests.to_string(), "-c", &CONNECTIONS.to_string(), &url])
        .output()
        .map_err(|error| format!("cannot run ab: {error}"))?;
    let after = endpoint.process.cpu_ns()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("ab failed: {}", why.lines().next().unwrap_or("it said nothing")));
    }
    let (elapsed_s, p99_ms) = figures(&said, requests)?;
    Ok(vec![
        sample("whole run", "s", elapsed_s),
        sample("requests", "1/s", requests as f64 / elapsed_s),
        sample("p99", "ms", p99_ms),
        sample("server CPU per request", "µs", after.saturating_sub(before) as f64 / 1e3 / requests as f64),
    ])
}

/// Seconds of the whole run and the 99th percentile in milliseconds, out of ab's output; fails unless
/// every request was answered well.
fn figures(said: &str, requests: u64) -> Result<(f64, f64), String> {
    let field = |name: &str| {
        let line = said.lines().find_map(|line| line.trim_start().strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let (complete, failed) = (field("Complete requests:"), field("Failed requests:"));
    let refused = field("Non-2xx responses:").unwrap_or(0.0);
    if complete != Some(requests as f64) || failed != Some(0.0) || refused > 0.0 {
        return Err(format!(
            "wrong answers: {complete:?} of {requests} requests complete, {failed:?} failed, {refused} not with 200"
        ));
    }
    field("Time taken for tests:").zip(field("99%")).ok_or_else(|| "ab's report is not understood".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "Concurrency Level:      100\nTime taken for tests:   0.172 seconds\n\
        Complete requests:      1000\nFailed requests:        0\n  50%     15\n  99%     31\n 100%     40 (longest request)\n";

    #[test]
    fn report_of_ab_is_read() {
        assert_eq!(figures(SAID, 1000), Ok((0.172, 31.0)));
        assert!(figures(SAID, 999).is_err());
        assert!(
            figures(&SAID.replace("Failed requests:        0", "Failed requests:        3"), 1000).is_err()
        );
        assert!(
            figures(&format!("{SAID}Non-2xx responses:      7\n"), 1000)
                .unwrap_err()
                .contains("7 not with 200")
        );
    }
}
