//! Hit ratios of the policies on made-up traffic: the one that needs no choosing is about as good as the better of the others.

use dunlin_resp::Protocol;

use super::*;
use crate::{random::Random, transcript::Scenario};

const KEYS: usize = 20_000;
const REQUESTS: usize = 120_000;
/// Milliseconds between two requests.
const STEP_MS: u64 = 5;
/// Values of 200 to 600 bytes: room for some 3,000 keys.
const LIMIT_BYTES: usize = 1_300_000;

/// Zipf's law of exponent 1 by inversion of its continuous form.
fn popular(random: &mut Random) -> usize {
    let unit = (random.bits() >> 11) as f64 / (1_u64 << 53) as f64;
    ((KEYS as f64 + 1.0).powf(unit) as usize - 1).min(KEYS - 1)
}

/// The key of each request.
fn trace(name: &str) -> Vec<usize> {
    let mut random = Random::new(7);
    let key = |number: usize| match name {
        "popular" => popular(&mut random),
        // Others pass through, once each.
        "scans" if number / (REQUESTS / 20) % 3 == 2 => KEYS * 10 + number,
        "scans" => popular(&mut random),
        "shift" => popular(&mut random) + number * 8 / REQUESTS * (KEYS / 4),
        "loop" => number % 6000,
        _ => panic!("no such trace"),
    };
    (0..REQUESTS).map(key).collect()
}

/// Hits in percent.
fn hits(trace: &[usize], order: EvictionOrder) -> f64 {
    let mut scenario = Scenario::new();
    let how = Eviction { order, expiring_only: false, samples: 5, database: None, lazy: false };
    scenario.engine.keyspace.access_clock().configure(order.ranking(), 10, 1);
    let mut hits = 0;
    let value = "x".repeat(600);
    for key in trace {
        scenario.caller.now_ms += STEP_MS;
        scenario.caller.access = scenario.engine.keyspace.access_clock().access(scenario.caller.now_ms);
        if scenario.reply(&format!("GET k:{key}"), Protocol::Resp2) != b"$-1\r\n" {
            hits += 1;
            continue;
        }
        let length = 200 + key * 7919 % 400;
        scenario.reply(&format!("SET k:{key} {}", &value[..length]), Protocol::Resp2);
        let inside = scenario.engine.keyspace.enter(0);
        while scenario.engine.sweep_stamps(&inside, scenario.caller.now_ms, 512) {}
        let used = scenario.engine.keyspace.used_bytes();
        if used > LIMIT_BYTES {
            let most = (used - LIMIT_BYTES, usize::MAX);
            let environment = Environment::new(&scenario.policy, &scenario.caller);
            scenario.engine.evict(&inside, &how, most, environment, &mut scenario.worker);
            drop(scenario.worker.garbage.take());
        }
    }
    100.0 * f64::from(hits) / trace.len() as f64
}

#[test]
fn auto_policy_matches_the_better_of_lru_and_lfu() {
    for name in ["popular", "scans", "shift", "loop"] {
        let trace = trace(name);
        let [lru, lfu, auto] = [EvictionOrder::Recency, EvictionOrder::Frequency, EvictionOrder::Weighed]
            .map(|order| hits(&trace, order));
        println!("{name}: lru {lru:.1}, lfu {lfu:.1}, auto {auto:.1}");
        assert!(auto > lru.max(lfu) - 1.0, "{name}: lru {lru:.1}, lfu {lfu:.1}, auto {auto:.1}");
    }
}
