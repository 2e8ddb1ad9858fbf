//! E3, "Pipelining from Python": 10,000 PINGs one by one and in one pipeline, in CPU time of the client.

use std::time::{Duration, Instant};

use dunlin_resp::Value;
use rustix::time::{ClockId, clock_gettime};

use super::contender::{Contender, Settings};
use super::experiment::{Cost, Experiment, Lab, Size, names};
use super::results::{Results, Section};
use super::server::{Server, shown};
use dunlin_bench::figures::{Sample, sample};
use dunlin_bench::target::{TargetError, encode};

/// The row of the lab's table.
pub const PINGS: Experiment = Experiment {
    name: "pings",
    founding: "E3",
    title: "{pings} PINGs, one by one and in one pipeline",
    explanation: [
        "The same {pings} PINGs as single round trips and as one pipeline, over one connection.",
        "Answers what the client itself saves: its author saw 0.39 s and 0.19 s for 10,000 in Python.",
        "Look at the client's CPU time; the server's saving stands beside it.",
    ],
    sizes: &[PINGS_FULL],
    cost: Cost { always_s: 0.1, timed_s: 0.0, sized_s: 1.0 },
    run,
};

const PINGS_FULL: Size = Size::new("pings", 10_000, 100);

fn run(lab: &Lab) -> Result<Results, String> {
    let pings = lab.scale.of(PINGS_FULL) as usize;
    let mut results = Results::new(&PINGS, lab.scale);
    let servers = lab.start(&mut results, Settings::MemoryOnly, Contender::is_whole)?;
    results.setting(format!("{pings} PINGs, one connection"));
    let mut section = Section::new(
        "PINGs",
        "CPU time of the client's thread, from the sending of the first request to the last reply.",
        &names(&servers),
    );
    let rows = [("one by one".to_string(), 1), ("in one pipeline".to_string(), pings)];
    lab.alternate(&mut section, &servers, &rows, |_, depth, server| measure(server, pings, *depth))?;
    section.plot_bars("client CPU");
    results.sections.push(section);
    results.checks.push(format!("all {pings} replies were PONG, and no reply more came"));
    Ok(results)
}

fn measure(server: &Server, pings: usize, depth: usize) -> Result<Vec<Sample>, String> {
    let failed = |error: TargetError| error.to_string();
    let mut client = server.client()?;
    let mut requests = Vec::new();
    (0..depth).for_each(|_| encode(&["PING"], &mut requests));
    let server_before = server.cpu()?;
    let (cpu_before, start) = (thread_cpu(), Instant::now());
    let mut wrong = None;
    for _ in 0..pings / depth {
        client
            .pipeline(&requests, depth, |reply| {
                if reply != Value::Simple(b"PONG".to_vec()) {
                    wrong = Some(reply);
                }
            })
            .map_err(failed)?;
    }
    let (elapsed, cpu) = (start.elapsed(), thread_cpu().saturating_sub(cpu_before));
    let server_cpu = server.cpu()?.zip(server_before);
    if let Some(reply) = wrong {
        return Err(format!("wrong answer to PING: {}", shown(&reply)));
    }
    let last = client.call(&["ECHO", "last"]).map_err(failed)?;
    if last.as_bytes() != Some(b"last") {
        return Err(format!("wrong answer to ECHO: {}", shown(&last)));
    }
    let mut samples = vec![
        sample("client CPU", "ms", cpu.as_secs_f64() * 1e3),
        sample("whole run", "ms", elapsed.as_secs_f64() * 1e3),
    ];
    if let Some((after, before)) = server_cpu {
        samples.push(sample("server CPU", "ms", after.saturating_sub(before).as_secs_f64() * 1e3));
    }
    Ok(samples)
}

/// CPU time of the calling thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec as u32)
}
