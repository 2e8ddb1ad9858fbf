//! E1, the author's goal: one million GET/s for a realistic workload on one machine. A process of
//! Redis uses one core; he planned several of them behind a proxy.

use std::path::Path;

use super::contender::{Contender, Origin, Settings};
use super::experiment::{Cost, Experiment, Lab, Size, names};
use super::results::{Results, Section};
use dunlin_bench::figures::{sample, thousands};
use dunlin_bench::load::Plan;
use dunlin_bench::process;
use dunlin_bench::template::Template;

/// The row of the lab's table.
pub const CORES: Experiment = Experiment {
    name: "cores",
    founding: "E1",
    title: "One process against several behind a proxy: the way to a million GET/s",
    explanation: [
        "95% GET, 5% SET of {keys} keys, popular ones often (Zipf 0.99), over all processors of the servers.",
        "Puts one process of Dunlin beside one of Redis, several behind nutcracker, and several that the client shards.",
        "Look for the depth of pipelines at which a server passes a million, and what a request costs there.",
    ],
    sizes: &[KEYS],
    cost: Cost { always_s: 0.5, timed_s: 8.0, sized_s: 2.0 },
    run,
};

const KEYS: Size = Size::new("keys", 1_000_000, 100);
const VALUE_BYTES: usize = 100;
const ZIPF_EXPONENT: f64 = 0.99;
const DEPTHS: [usize; 6] = [1, 4, 16, 64, 128, 256];
const GOAL: f64 = 1e6;

fn run(lab: &Lab) -> Result<Results, String> {
    let keys = lab.scale.of(KEYS);
    let mut results = Results::new(&CORES, lab.scale);
    let mut servers = lab.start(&mut results, Settings::MemoryOnly, Contender::speaks_redis)?;
    for group in groups(lab, &mut results) {
        let server = group
            .start(Settings::MemoryOnly, &lab.server_processors)
            .map_err(|error| format!("{}: {error}", group.name))?;
        results.setting(format!("{}: {}", server.name, server.settings));
        servers.push(server);
    }
    results.setting(format!(
        "{} keys, {VALUE_BYTES} random bytes each; 50 connections, closed loop",
        thousands(keys)
    ));
    lab.prepare(&servers, keys, VALUE_BYTES)?;
    let mut section = Section::new(
        "95% GET, 5% SET",
        "Rows are requests in a pipeline. All servers run on the same processors, a proxy included.",
        &names(&servers),
    );
    let rows = DEPTHS.map(|depth| (depth.to_string(), depth));
    lab.alternate(&mut section, &servers, &rows, |round, depth, server| {
        let mut plan: Plan = lab.plan("", Some(keys), VALUE_BYTES, round);
        plan.template = Template::mix(&[(95, "GET key:__rand_int__"), (5, "SET key:__rand_int__ __data__")]);
        plan.filling.zipf_exponent = Some(ZIPF_EXPONENT);
        plan.pipeline = *depth;
        let measured = lab.timed(&plan, |plan| server.measure(plan))?;
        let tally = &measured.outcome.tally;
        let found = tally.payload_bytes / VALUE_BYTES as u64;
        if tally.nulls > 0 || tally.payload_bytes % VALUE_BYTES as u64 != 0 {
            return Err(format!("wrong answers: {} GETs found nothing", tally.nulls));
        }
        server.expect_keys(keys)?;
        let gets = found as f64 / measured.outcome.elapsed.as_secs_f64();
        let mut samples = vec![sample("GETs that found their value", "1/s", gets)];
        samples.extend(measured.samples());
        Ok(samples)
    })?;
    section.plot_curve("requests in a pipeline", "GETs that found their value");
    section.plot_curve("requests in a pipeline", "server CPU per request");
    for server in &section.table.servers {
        let reached = DEPTHS.iter().find(|depth| {
            let figure = section.table.figure(&depth.to_string(), "GETs that found their value", server);
            figure.is_some_and(|figure| figure.median() >= GOAL)
        });
        results.notes.push(match reached {
            Some(depth) => format!("{server} passes a million GET/s in pipelines of {depth}"),
            None => format!("{server} does not reach a million GET/s on these processors"),
        });
    }
    results.sections.push(section);
    results.checks.push("every GET found its key and carried the whole value".into());
    results.checks.push(format!("every server held exactly {} keys after every timed run", thousands(keys)));
    Ok(results)
}

/// Groups of Redis processes, unless the user has named some: as many as the servers have processors,
/// and at least two.
fn groups(lab: &Lab, results: &mut Results) -> Vec<Contender> {
    let is_group = |contender: &Contender| {
        matches!(contender.origin, Origin::Nutcracker { .. } | Origin::Sharded { .. })
    };
    if lab.contenders.iter().any(is_group) {
        return Vec::new();
    }
    let processes = lab.server_processors.len().max(2);
    let mut groups = Vec::new();
    for kind in ["nutcracker", "sharded"] {
        match Contender::peer(&format!("{kind}={processes}")) {
            Ok(group) => groups.push(group),
            Err(reason) => results.notes.push(format!("{kind}={processes} is left out: {reason}")),
        }
    }
    if process::found(Path::new("nutcracker")).is_none() {
        results.notes.push("on Debian, nutcracker is the package of that name".into());
    }
    groups
}
