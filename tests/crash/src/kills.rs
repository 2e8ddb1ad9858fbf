//! SIGKILL under load, now and then while the server is ending.

use std::path::Path;
use std::time::{Duration, Instant};

use dunlin_test_support::random::Random;

use crate::load::{self, Beside, Load, Writer};
use crate::server::{Folder, Server, log_directives};

/// Longest time under load, in milliseconds.
const LOAD_MS_MAX: i64 = 120;
/// How often, of 100 times, SIGTERM comes first, and how long at most, in milliseconds.
const TERM_PERCENT: u32 = 20;
const TERM_MS_MAX: i64 = 8;
/// The loss that `everysec` may have, and the error of the test's clocks.
const LOSS_MAX: Duration = Duration::from_millis(1000);

pub fn play(program: &Path, rounds: u64, appendfsync: &str, seed: u64) -> Result<String, String> {
    let folder = Folder::new("kills")?;
    let writers = Writer::all();
    let (mut lost_max, mut total) = (0, 0);
    // A moment before the kill, and one behind it: there may be long between them.
    let (mut alive_at, mut killed_at) = (Instant::now(), Instant::now());
    for round in 0..=rounds {
        let mut random = Random::new(seed + round);
        let server = Server::start(program, &folder, &log_directives(appendfsync, round))?;
        let durable_at = if appendfsync == "always" { killed_at } else { alive_at - LOSS_MAX };
        let found = load::check(&server, &writers, |writer| writer.acknowledged_by(durable_at))
            .map_err(|why| format!("round {round}, seed {seed}: {why}\n{}", server.log()))?;
        for (writer, found) in writers.iter().zip(found) {
            lost_max = lost_max.max(writer.acknowledged_by(killed_at).saturating_sub(found.whole));
            writer.begin_from(found);
        }
        if round == rounds {
            break;
        }
        let sent = || writers.iter().map(Writer::sent).sum::<u64>();
        let before = sent();
        let time = Duration::from_millis(random.between(0, LOAD_MS_MAX) as u64);
        // Every other round without rewrites, so that logs grow too.
        let beside = if round % 2 == 0 { Beside::Rewrites } else { Beside::Nothing };
        let load = Load { time, pause: Duration::ZERO, beside, seed: seed ^ (round << 8) };
        load.play(server, &writers, |server| {
            if random.chance(TERM_PERCENT) {
                server.terminate();
                std::thread::sleep(Duration::from_millis(random.between(0, TERM_MS_MAX) as u64));
            }
            alive_at = Instant::now();
            server.kill();
        })?;
        killed_at = Instant::now();
        total += sent() - before;
    }
    Ok(format!("{rounds} kills, {total} writes, at most {lost_max} acknowledged ones of a writer lost"))
}
