//! Threads that hammer one store through the gate, the locks and the prefetches.
//!
//! The checks hold for every interleaving: totals, atomicity, conserved values, closed memory
//! accounts. The threads' work is counted, never timed.

mod common;

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use common::{Client, Store};

const THREADS: usize = 4;

/// Says some lines, then runs `work` on as many threads as there are clients, then `check`.
fn hammer(lines: &[&str], work: impl Fn(usize, &mut Client<'_>) + Sync, check: impl FnOnce(&mut Client<'_>)) {
    let store = Store::new(THREADS);
    let mut client = store.client(0);
    lines.iter().for_each(|line| drop(client.say(line)));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (store, work) = (&store, &work);
            scope.spawn(move || work(number, &mut store.client(number)));
        }
    });
    check(&mut client);
    let keyspace = &store.engine.keyspace;
    assert_eq!(keyspace.used_bytes(), keyspace.usage(None).bytes());
    client.say("FLUSHALL SYNC");
    assert_eq!((keyspace.used_bytes(), keyspace.usage(None).bytes()), (0, 0));
}

#[test]
fn incr_from_many_threads_loses_no_increment() {
    const ROUNDS: usize = 20_000;
    hammer(
        &[],
        |_, client| {
            for round in 0..ROUNDS {
                client.say("INCR one");
                client.say(&format!("INCR many:{}", round % 100));
            }
        },
        |client| {
            assert_eq!(client.say("INCR one"), format!(":{}", THREADS * ROUNDS + 1));
            let total: usize = (0..100)
                .map(|number| {
                    let reply = client.say(&format!("INCR many:{number}"));
                    reply[1..].parse::<usize>().expect("a number") - 1
                })
                .sum();
            assert_eq!(total, THREADS * ROUNDS);
        },
    );
}

#[test]
fn rename_never_loses_a_key_nor_shows_it_twice() {
    const ROUNDS: usize = 20_000;
    hammer(
        &["SET ping value", "PEXPIRE ping 1000000"],
        |number, client| {
            for _ in 0..ROUNDS {
                match number {
                    // Both keys are locked for the question, so it is there exactly once.
                    0 => assert_eq!(client.say("EXISTS ping pong"), ":1"),
                    1 => drop(client.say("RENAME ping pong")),
                    _ => drop(client.say("RENAME pong ping")),
                }
            }
        },
        |client| {
            let key = if client.say("EXISTS ping") == ":1" { "ping" } else { "pong" };
            assert_eq!(client.say(&format!("GET {key}")), "$5 value");
            assert_eq!(client.say(&format!("PTTL {key}")), ":1000000");
        },
    );
}

#[test]
fn deleting_many_keys_is_one_step() {
    const ROUNDS: usize = 500;
    let keys: Vec<String> = (0..8).map(|number| format!("key:{number}")).collect();
    let all = keys.join(" ");
    let barrier = Barrier::new(THREADS);
    hammer(
        &[],
        |number, client| {
            for _ in 0..ROUNDS {
                if number == 0 {
                    keys.iter().for_each(|key| assert_eq!(client.say(&format!("SET {key} v")), "+OK"));
                }
                barrier.wait();
                if number == 0 {
                    assert_eq!(client.say(&format!("DEL {all}")), ":8");
                } else {
                    while let seen = client.say(&format!("EXISTS {all}"))
                        && seen != ":0"
                    {
                        assert_eq!(seen, ":8", "all of them or none");
                    }
                }
                barrier.wait();
            }
        },
        |client| assert_eq!(client.say("DBSIZE"), ":0"),
    );
}

#[test]
fn flushing_and_growing_race_with_prefetching() {
    const ROUNDS: usize = 30_000;
    let done = AtomicBool::new(false);
    let store = Store::new(THREADS);
    thread::scope(|scope| {
        let workers: Vec<_> = (1..THREADS)
            .map(|number| {
                let store = &store;
                scope.spawn(move || {
                    let mut client = store.client(number);
                    let long = "x".repeat(3000);
                    let long_reply = format!("$3000 {long}");
                    for round in 0..ROUNDS {
                        client.database = round / 1000 % 2;
                        // A single tag, so that one table grows fast between two flushes.
                        let key = format!("{{tag}}{number}:{}", round % 5000);
                        let text = if round % 7 == 0 { long.as_str() } else { "short" };
                        client.say(&format!("SET {key} {text}"));
                        let reply = client.say(&format!("GET {key}"));
                        // Another database may have been swapped in, or everything flushed.
                        let whole = [long_reply.as_str(), "$5 short", "$-1"].contains(&reply.as_str());
                        assert!(whole, "a torn value of {} bytes", reply.len());
                        if round % 3 == 0 {
                            client.say(&format!("PEXPIRE {key} {}", round % 50));
                        }
                        if round % 500 == 0 {
                            client.caller.now_ms += 20;
                            client.expire();
                        }
                    }
                })
            })
            .collect();
        let (store, done) = (&store, &done);
        scope.spawn(move || {
            let mut client = store.client(0);
            while !done.load(Ordering::Relaxed) {
                for line in ["SWAPDB 0 1", "FLUSHDB ASYNC", "SCAN 0 COUNT 1000", "FLUSHALL SYNC", "DBSIZE"] {
                    client.say(line);
                    drop(client.worker.garbage.take());
                    store.engine.release_memory(0);
                    thread::yield_now();
                }
            }
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.expect("no worker failed"));
    });
    let keyspace = &store.engine.keyspace;
    assert_eq!(keyspace.used_bytes(), keyspace.usage(None).bytes());
    let mut client = store.client(0);
    client.say("FLUSHALL SYNC");
    assert_eq!((keyspace.used_bytes(), keyspace.usage(None).bytes()), (0, 0));
}

#[test]
fn scan_keeps_its_promise_while_others_write() {
    const KEYS: usize = 3000;
    let scanning = AtomicBool::new(true);
    let store = Store::new(THREADS);
    let mut client = store.client(0);
    (0..KEYS).for_each(|number| assert_eq!(client.say(&format!("SET stays:{number} v")), "+OK"));
    thread::scope(|scope| {
        for number in 1..THREADS {
            let (store, scanning) = (&store, &scanning);
            scope.spawn(move || {
                let mut client = store.client(number);
                let mut round = 0;
                while scanning.load(Ordering::Relaxed) {
                    let verb = if round / 4000 % 2 == 0 { "SET" } else { "DEL" };
                    let value = if verb == "SET" { " v" } else { "" };
                    client.say(&format!("{verb} other:{number}:{}{value}", round % 4000));
                    round += 1;
                }
            });
        }
        let failures: Vec<usize> = (0..5)
            .map(|_| {
                let mut found = std::collections::BTreeSet::new();
                let mut cursor = "0".to_owned();
                loop {
                    let reply = client.say(&format!("SCAN {cursor} MATCH stays:*"));
                    let mut words = reply.split(' ').filter(|word| !word.starts_with(['*', '$']));
                    cursor = words.next().expect("a cursor").to_owned();
                    found.extend(words.map(str::to_owned));
                    if cursor == "0" {
                        break KEYS - found.len();
                    }
                }
            })
            .collect();
        scanning.store(false, Ordering::Relaxed);
        assert_eq!(failures, [0; 5], "keys that an iteration missed");
    });
}
