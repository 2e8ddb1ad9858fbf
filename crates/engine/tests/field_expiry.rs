//! Fields of hashes that expire: background slices give their memory back.

mod common;

use common::{START_MS, Store};
use std::sync::{Arc, Mutex};

use dunlin_engine::{Audience, Environment, EventClass, EventClasses, Notice, keyspace::ClientToken};

/// Deadlines are rounded up to a tick.
const TICK_MS: u64 = 64;
/// Elements that a call of [`common::Client::expire`]'s size reclaims at most.
const SLICE_ELEMENTS_MAX: u64 = 3 * 16;

#[test]
fn fields_vanish_on_time_and_give_their_memory_back() {
    let store = Store::new(1);
    let mut client = store.client(0);
    for number in 0..5000 {
        client.say(&format!("HSET large field:{number} value:{number}"));
        client.say(&format!("HPEXPIRE large {} FIELDS 1 field:{number}", 1 + number % 1000));
        client.say(&format!("HSETEX small:{number} PX 700 FIELDS 1 f v"));
    }
    client.say("HSET large stays 1");
    let full_bytes = store.engine.keyspace.usage(Some(0)).heap_bytes;
    client.caller.now_ms = START_MS + 500 + TICK_MS;
    client.expire();
    let length: u64 = client.say("HLEN large")[1..].parse().expect("a number");
    assert_eq!(length, (1000 - 500 - TICK_MS) * 5 + 1);
    let reclaimed = client.worker.statistics.expired_fields.get();
    assert!((2500..=5000 - (length - 1)).contains(&reclaimed), "what the hints are due for: {reclaimed}");
    client.caller.now_ms = START_MS + 1000 + TICK_MS;
    client.expire();
    assert_eq!(client.worker.statistics.expired_fields.get(), 10_000);
    assert_eq!(client.worker.statistics.expired_keys.get(), 0);
    let usage = store.engine.keyspace.usage(Some(0));
    assert_eq!(usage.keys, 1);
    // The table of one field stays until a command removes a field.
    assert!(usage.heap_bytes < full_bytes / 5, "{} of {full_bytes} bytes", usage.heap_bytes);
    client.say("HDEL large stays");
    let usage = store.engine.keyspace.usage(Some(0));
    assert_eq!((usage.keys, usage.entry_bytes, usage.heap_bytes), (0, 0, 0));
}

#[test]
fn field_expiry_slice_reclaims_no_more_than_its_limit() {
    let store = Store::new(1);
    let mut client = store.client(0);
    for number in 0..1000 {
        client.say(&format!("HSETEX h PX 10 FIELDS 1 {number} v"));
    }
    client.caller.now_ms += 10 + TICK_MS;
    let stripe = store.engine.keyspace.key(b"h").stripe;
    let (mut before, mut complete) = (0, false);
    while !complete {
        complete = store.engine.expire(
            stripe,
            Environment::new(&client.policy, &client.caller),
            3,
            &mut client.worker,
        );
        let reclaimed = client.worker.statistics.expired_fields.get();
        assert!(reclaimed - before <= SLICE_ELEMENTS_MAX, "{} at once", reclaimed - before);
        assert!(complete || reclaimed > before, "a slice gets on");
        before = reclaimed;
    }
    assert_eq!(before, 1000);
    assert_eq!(store.engine.keyspace.usage(None).keys, 0);
}

#[test]
fn hints_survive_whatever_happens_to_the_key() {
    for scenario in [
        vec!["HSETEX a PX 100 FIELDS 1 f v"],
        vec!["HSET a f v", "HPEXPIRE a 100 FIELDS 1 f", "RENAME a b"],
        vec!["HSETEX a PX 100 FIELDS 1 f v", "COPY a b", "HPERSIST b FIELDS 1 f"],
        vec!["HSETEX a PX 100000000000 FIELDS 1 f v", "COPY a b", "HGETEX b PX 100 FIELDS 1 f"],
        vec!["HSETEX a PX 100 FIELDS 1 f 1", "HINCRBY a f 1"],
        vec!["HSETEX a PX 50 FIELDS 1 f 1", "HSET a f 1", "HPEXPIRE a 100 FIELDS 1 f"],
        vec!["HSETEX a PX 100 FIELDS 1 f v", "EXPIRE a 100", "PERSIST a"],
        vec!["HSETEX a PX 100 FIELDS 1 f v", "PEXPIRE a 10000000"],
        vec!["HSETEX a PX 100 FIELDS 1 f v", "MOVE a 1"],
        vec!["HSETEX a PX 100 FIELDS 1 f v", "SWAPDB 0 1"],
    ] {
        let store = Store::new(1);
        let mut client = store.client(0);
        for line in &scenario {
            assert!(!client.say(line).starts_with('-'), "{line}");
        }
        client.caller.now_ms += 100 + TICK_MS;
        client.expire();
        assert_eq!(client.worker.statistics.expired_fields.get(), 1, "{scenario:?}");
    }
}

/// The events that a worker's audience received.
#[derive(Debug, Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

impl Audience for Events {
    fn tell(&mut self, notices: &[Notice], _: ClientToken) {
        let events = notices.iter().filter_map(|notice| match notice {
            Notice::Event(event) => Some(format!("{} {}", event.name, String::from_utf8_lossy(&event.key))),
            _ => None,
        });
        self.0.lock().unwrap().extend(events);
    }
}

#[test]
fn events_tell_of_fields_that_expire_and_of_hashes_that_go_with_them() {
    let store = Store::new(1);
    let mut client = store.client(0);
    client.policy.notifications = EventClasses::default().and(EventClass::Hash).and(EventClass::Generic);
    let events = Events::default();
    client.worker.audience = Some(Box::new(events.clone()));
    let Events(events) = events;
    let told = |client: &mut common::Client<'_>, line: &str| -> Vec<String> {
        match line {
            "(time passes)" => {
                client.caller.now_ms += 10 + TICK_MS;
                client.expire();
            }
            line => drop(client.say(line)),
        }
        std::mem::take(&mut *events.lock().unwrap())
    };
    for (line, expected) in [
        ("HSETEX h PX 10 FIELDS 2 a 1 b 2", vec!["hset h", "hexpire h"]),
        ("HSETEX h FIELDS 1 c 3", vec!["hset h"]),
        ("(time passes)", vec!["hexpired h"]),
        ("HPEXPIRE h 10 FIELDS 1 c", vec!["hexpire h"]),
        ("HPEXPIRE h 10 NX FIELDS 1 c", vec![]),
        ("(time passes)", vec!["hexpired h", "del h"]),
        ("HSETEX h PX 100 FIELDS 1 a 1", vec!["hset h", "hexpire h"]),
        ("HPERSIST h FIELDS 1 a", vec!["hpersist h"]),
        ("HPERSIST h FIELDS 1 a", vec![]),
        ("HGETEX h FIELDS 1 a", vec![]),
        ("HGETEX h EX 10 FIELDS 1 a", vec!["hexpire h"]),
        ("HGETEX h PERSIST FIELDS 1 a", vec!["hpersist h"]),
        ("HGETEX h EX 0 FIELDS 1 a", vec!["hdel h", "del h"]),
        ("HSETEX h FIELDS 2 a 1 b 2", vec!["hset h"]),
        ("HGETDEL h FIELDS 1 a", vec!["hdel h"]),
        ("HEXPIRE h 0 FIELDS 1 b", vec!["hdel h", "del h"]),
        ("HSETEX h FIELDS 1 a 1", vec!["hset h"]),
        ("HGETDEL h FIELDS 1 a", vec!["hdel h", "del h"]),
        ("HSETEX h PXAT 1 FIELDS 1 a 1", vec!["hset h", "hdel h", "del h"]),
        ("HSET h a 1 b 2", vec!["hset h"]),
        ("HSETEX h PXAT 1 FIELDS 2 a 1 missing 2", vec!["hset h", "hdel h"]),
        ("HSETEX h PXAT 1 FIELDS 1 missing 2", vec!["hset h", "hdel h"]),
        ("HSETEX h PXAT 1 FIELDS 1 b 2", vec!["hset h", "hdel h", "del h"]),
    ] {
        assert_eq!(told(&mut client, line), expected, "{line}");
    }
    client.say("HSETEX h PX 10 FIELDS 1 a 1");
    events.lock().unwrap().clear();
    client.caller.now_ms += 10;
    assert_eq!(told(&mut client, "EXISTS h"), ["hexpired h", "del h"], "seen by a command first");

    client.policy.notifications = EventClasses::default().and(EventClass::Expired);
    client.say("HSETEX h EX 10 FIELDS 1 a 1");
    client.say("PEXPIRE h 10");
    assert_eq!(told(&mut client, "(time passes)"), ["expired h"], "the key's own time");
}
