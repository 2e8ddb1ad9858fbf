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
            Notice::Event(event) => {
                let elements = std::iter::once(&event.key).chain(&event.subkeys);
                let text: Vec<_> = elements.map(|word| String::from_utf8_lossy(word)).collect();
                Some(format!("{} {}", event.name, text.join(" ")))
            }
            _ => None,
        });
        self.0.lock().unwrap().extend(events);
    }
}

/// The events of each line, or of the time that passes.
fn check_events(notifications: EventClasses, lines: &[(&str, &[&str])]) {
    let store = Store::new(1);
    let mut client = store.client(0);
    client.policy.notifications = notifications;
    let events = Events::default();
    client.worker.audience = Some(Box::new(events.clone()));
    let Events(events) = events;
    let told = |client: &mut common::Client<'_>, line: &str| -> Vec<String> {
        match line {
            "(its time has come)" => client.caller.now_ms += 10,
            "(time passes)" => {
                client.caller.now_ms += 10 + TICK_MS;
                client.expire();
            }
            line => drop(client.say(line)),
        }
        std::mem::take(&mut *events.lock().unwrap())
    };
    for (line, expected) in lines {
        assert_eq!(told(&mut client, line), *expected, "{line}");
    }
}

#[test]
fn events_tell_of_fields_that_expire_and_of_hashes_that_go_with_them() {
    let notifications = EventClasses::default().and(EventClass::Hash).and(EventClass::Generic);
    let lines: &[(&str, &[&str])] = &[
        ("HSETEX h PX 10 FIELDS 2 a 1 b 2", &["hset h", "hexpire h"]),
        ("HSETEX h FIELDS 1 c 3", &["hset h"]),
        ("(time passes)", &["hexpired h"]),
        ("HPEXPIRE h 10 FIELDS 1 c", &["hexpire h"]),
        ("HPEXPIRE h 10 NX FIELDS 1 c", &[]),
        ("(time passes)", &["hexpired h", "del h"]),
        ("HSETEX h PX 100 FIELDS 1 a 1", &["hset h", "hexpire h"]),
        ("HPERSIST h FIELDS 1 a", &["hpersist h"]),
        ("HPERSIST h FIELDS 1 a", &[]),
        ("HGETEX h FIELDS 1 a", &[]),
        ("HGETEX h EX 10 FIELDS 1 a", &["hexpire h"]),
        ("HGETEX h PERSIST FIELDS 1 a", &["hpersist h"]),
        ("HGETEX h EX 0 FIELDS 1 a", &["hdel h", "del h"]),
        ("HSETEX h FIELDS 2 a 1 b 2", &["hset h"]),
        ("HGETDEL h FIELDS 1 a", &["hdel h"]),
        ("HEXPIRE h 0 FIELDS 1 b", &["hdel h", "del h"]),
        ("HSETEX h FIELDS 1 a 1", &["hset h"]),
        ("HGETDEL h FIELDS 1 a", &["hdel h", "del h"]),
        ("HSETEX h PXAT 1 FIELDS 1 a 1", &["hset h", "hdel h", "del h"]),
        ("HSET h a 1 b 2", &["hset h"]),
        ("HSETEX h PXAT 1 FIELDS 2 a 1 missing 2", &["hset h", "hdel h"]),
        ("HSETEX h PXAT 1 FIELDS 1 missing 2", &["hset h", "hdel h"]),
        ("HSETEX h PXAT 1 FIELDS 1 b 2", &["hset h", "hdel h", "del h"]),
        ("HSETEX h PX 10 FIELDS 1 a 1", &["hset h", "hexpire h"]),
        ("(its time has come)", &[]),
        // A command sees it first.
        ("EXISTS h", &["hexpired h", "del h"]),
    ];
    check_events(notifications, lines);
    // The key's own time.
    let lines: &[(&str, &[&str])] =
        &[("HSETEX h EX 10 FIELDS 1 a 1", &[]), ("PEXPIRE h 10", &[]), ("(time passes)", &["expired h"])];
    check_events(EventClasses::default().and(EventClass::Expired), lines);
}

#[test]
fn events_name_the_fields_that_they_are_about_if_that_is_wanted() {
    let notifications = EventClasses::default()
        .and(EventClass::Hash)
        .and(EventClass::Generic)
        .and(EventClass::Set)
        .with_subkeys();
    let lines: &[(&str, &[&str])] = &[
        ("HSET h a 1 b 2 a 3", &["hset h a b a"]),
        ("HMSET h c 1", &["hset h c"]),
        ("HSETNX h d 1", &["hset h d"]),
        ("HSETNX h d 2", &[]),
        ("HINCRBY h n 1", &["hincrby h n"]),
        ("HINCRBYFLOAT h n 1.5", &["hincrbyfloat h n"]),
        ("HDEL h n nosuch n d", &["hdel h n d"]),
        ("HDEL h nosuch", &[]),
        ("HEXPIRE h 100 FIELDS 3 a nosuch b", &["hexpire h a b"]),
        ("HEXPIRE h 100 NX FIELDS 2 a c", &["hexpire h c"]),
        ("HPERSIST h FIELDS 3 a nosuch c", &["hpersist h a c"]),
        ("HGETEX h EX 100 FIELDS 2 nosuch a", &["hexpire h a"]),
        ("HGETEX h PERSIST FIELDS 2 a c", &["hpersist h a"]),
        ("HGETEX h PXAT 1 FIELDS 2 c nosuch", &["hdel h c"]),
        ("HSETEX h EX 100 FIELDS 2 x 1 y 2", &["hset h x y", "hexpire h x y"]),
        ("HSETEX h PXAT 1 FIELDS 2 x 1 y 2", &["hset h x y", "hdel h x y"]),
        ("HGETDEL h FIELDS 2 nosuch b", &["hdel h b"]),
        ("HPEXPIREAT h 1 FIELDS 2 a nosuch", &["hdel h a", "del h"]),
        ("HSET h a 1 b 2 c 3", &["hset h a b c"]),
        ("HPEXPIRE h 10 FIELDS 1 a", &["hexpire h a"]),
        ("(time passes)", &["hexpired h a"]),
        ("HPEXPIRE h 10 FIELDS 2 b c", &["hexpire h b c"]),
        ("(time passes)", &["hexpired h b c", "del h"]),
        ("HSETEX h PX 10 FIELDS 2 a 1 b 2", &["hset h a b", "hexpire h a b"]),
        ("(its time has come)", &[]),
        ("EXISTS h", &["hexpired h a b", "del h"]),
        ("SADD s a", &["sadd s"]),
        ("HSETEX h PX 10 FIELDS 1 b 1", &["hset h b", "hexpire h b"]),
        ("HSET h a 1", &["hset h a"]),
        ("(its time has come)", &[]),
        ("HSET h c 1", &["hset h c"]),
        ("DEL h", &["del h"]),
    ];
    check_events(notifications, lines);
}
