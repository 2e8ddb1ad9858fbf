//! Snapshots while everything changes: a snapshot holds the state that the log before its cut makes, and with
//! the log behind it, the final state.
//!
//! ```text
//! records  ─────────────┬──────────────────────▶ end
//! cut      base  =  replay of these
//! end      base  +  replay of those  =  what there is
//! ```

#[path = "../common/mod.rs"]
mod common;
mod dice;
mod large;
mod taken;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use common::START_MS;
use dice::Dice;
use dunlin_engine::{
    rdb::{Compressor, Output},
    snapshot::{Advance, Chunk, Form, SNAPSHOTS_MAX, Snapshot, SnapshotOptions},
};
use proptest::prelude::*;
use taken::{Contents, NONE, OPTIONS, Taken, check, client_of, contents, cut, difference, recorded_store};

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// A single thread, so that every step is known: several snapshots that overlap in every way.
    #[test]
    fn snapshot_is_the_state_at_its_cut(seed: u64) {
        let (store, tape) = recorded_store(1);
        let mut client = client_of(&store, 0);
        let (mut dice, mut compressor) = (Dice(seed), Compressor::default());
        // With the contents at the cut.
        let mut running: Vec<(Snapshot, (Taken, Contents))> = Vec::new();
        let mut done: Vec<Taken> = Vec::new();
        let mut left = 6_000;
        // Cuts come by chance, and with them their number: it goes on until there were some.
        let is_early = |left: usize, cuts: usize| left > 0 || cuts <= 3;
        while is_early(left, done.len()) || !running.is_empty() {
            left = usize::saturating_sub(left, 1);
            dice.play(&mut client);
            drop(client.worker.garbage.take());
            if dice.roll(20) == 0 {
                client.caller.now_ms += dice.roll(30);
                client.expire();
            }
            if is_early(left, done.len() + running.len()) && dice.roll(400) == 0 {
                match cut(&mut client, &tape, OPTIONS) {
                    Some((snapshot, taken)) => {
                        let now = contents(&store);
                        running.push((snapshot, (taken, now)));
                    }
                    None => prop_assert_eq!(running.len(), SNAPSHOTS_MAX),
                }
            }
            for at in (0..running.len()).rev() {
                let (snapshot, (taken, _)) = &mut running[at];
                if dice.roll(8) == 0 {
                    let advance = snapshot.advance(&store.engine.keyspace, dice.roll(4000) as usize);
                    taken.take(snapshot, &mut compressor);
                    if advance == Advance::Complete {
                        let (taken, then) = running.remove(at).1;
                        let found = contents(&taken.load());
                        prop_assert_eq!(difference(&found, &then), NONE);
                        done.push(taken);
                    }
                }
            }
        }
        let log = tape.bytes();
        for taken in &done {
            check(taken, &log, &store);
        }
        prop_assert!(!store.engine.keyspace.snapshots().is_congested());
    }
}

/// Shows other threads that this one has failed.
struct EndOnPanic<'a>(&'a AtomicBool);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(thread::panicking(), Relaxed);
    }
}

/// Threads that change everything while others take snapshots as fast as they can.
#[test]
fn snapshots_hold_while_threads_write() {
    const WRITERS: usize = 3;
    const ROUNDS: usize = 60_000;
    const SNAPSHOTS_MIN: usize = 6;
    let (store, tape) = recorded_store(WRITERS + SNAPSHOTS_MAX);
    let (clock, writing, failed) = (AtomicU64::new(START_MS), AtomicBool::new(true), AtomicBool::new(false));
    let done: Mutex<Vec<Taken>> = Mutex::default();
    thread::scope(|scope| {
        let (store, tape, clock, writing, failed, done) = (&store, &tape, &clock, &writing, &failed, &done);
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                scope.spawn(move || {
                    let (mut client, mut dice) = (client_of(store, number), Dice(number as u64));
                    let has_enough = || failed.load(Relaxed) || done.lock().unwrap().len() >= SNAPSHOTS_MIN;
                    for round in (0..).take_while(|round| *round < ROUNDS || !has_enough()) {
                        client.caller.now_ms = clock.load(Relaxed);
                        dice.play(&mut client);
                        drop(client.worker.garbage.take());
                        if round % 50 == 0 {
                            clock.fetch_add(dice.roll(5), Relaxed);
                            client.expire();
                        }
                        while store.engine.keyspace.snapshots().is_congested() {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        for number in 0..SNAPSHOTS_MAX {
            scope.spawn(move || {
                let _end = EndOnPanic(failed);
                let (mut client, mut compressor) =
                    (client_of(store, WRITERS + number), Compressor::default());
                while writing.load(Relaxed) {
                    client.caller.now_ms = clock.load(Relaxed);
                    let (mut snapshot, mut taken) = cut(&mut client, tape, OPTIONS).expect("there is room");
                    while snapshot.advance(&store.engine.keyspace, 3000) != Advance::Complete {
                        taken.take(&snapshot, &mut compressor);
                        thread::yield_now();
                    }
                    taken.take(&snapshot, &mut compressor);
                    done.lock().unwrap().push(taken);
                }
            });
        }
        let results: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        writing.store(false, Relaxed);
        results.into_iter().for_each(|result| result.expect("no writer failed"));
    });
    let (log, done) = (tape.bytes(), done.into_inner().unwrap());
    // All are as good; a few of them, from everywhere, take long enough to check.
    for taken in done.iter().step_by(done.len().div_ceil(8)) {
        check(taken, &log, &store);
    }
}

#[test]
fn cancelled_snapshot_leaves_no_trace() {
    let (store, tape) = recorded_store(1);
    let (mut client, mut compressor) = (client_of(&store, 0), Compressor::default());
    (0..2000).for_each(|number| drop(client.say(&format!("SET key:{number} {number}"))));
    for _ in 0..SNAPSHOTS_MAX + 1 {
        let (mut snapshot, _) = cut(&mut client, &tape, OPTIONS).expect("there is room");
        assert_eq!(snapshot.keys(), 2000);
        assert_eq!(snapshot.advance(&store.engine.keyspace, 30_000), Advance::More);
        snapshot.cancel();
        (0..100).for_each(|number| drop(client.say(&format!("APPEND key:{number} x"))));
        while snapshot.advance(&store.engine.keyspace, 30_000) != Advance::Complete {}
    }
    let (mut snapshot, mut taken) = cut(&mut client, &tape, OPTIONS).expect("there is room");
    client.say("FLUSHALL");
    assert_eq!(store.engine.keyspace.usage(None).keys, 0);
    while snapshot.advance(&store.engine.keyspace, 30_000) != Advance::Complete {}
    taken.take(&snapshot, &mut compressor);
    drop(snapshot);
    assert_eq!(taken.keys, 2000, "what was flushed behind the cut is in the snapshot");
    check(&taken, &tape.bytes(), &store);
    assert!(store.engine.keyspace.snapshots().has_room());
}

/// Writers have to wait while no thread takes their copies, and then may go on.
#[test]
fn snapshot_queue_bounds_its_writers() {
    let (store, tape) = recorded_store(1);
    let mut client = client_of(&store, 0);
    let value = "x".repeat(1000);
    (0..2000).for_each(|number| drop(client.say(&format!("SET key:{number} {value}"))));
    let (mut snapshot, _) = cut(&mut client, &tape, OPTIONS).expect("there is room");
    let snapshots = store.engine.keyspace.snapshots();
    let mut written = 0;
    while !snapshots.is_congested() {
        client.say(&format!("SET key:{written} y"));
        written += 1;
    }
    let bytes_max = OPTIONS.queue_bytes_max + 40 * 1024;
    assert!(snapshot.waiting_bytes() <= bytes_max, "{} bytes", snapshot.waiting_bytes());
    let chunks: Vec<_> = snapshot.take().collect();
    assert!(snapshots.is_congested(), "they are in memory until they have been written");
    assert!(chunks.iter().map(Chunk::keys).sum::<u64>() <= written);
    let mut reliefs = 0;
    for chunk in chunks {
        let relieved = snapshot.release(chunk);
        reliefs += u32::from(relieved);
        let is_half = snapshot.waiting_bytes() <= OPTIONS.queue_bytes_max / 2;
        assert_eq!(snapshots.is_congested(), !is_half);
    }
    assert_eq!((reliefs, snapshot.waiting_bytes()), (1, 0));
    while snapshot.advance(&store.engine.keyspace, usize::MAX) != Advance::Complete {}
}

/// Strings that are not to be compressed when they are copied stay as they are, whenever they are written.
#[test]
fn strings_are_compressed_where_that_was_foreseen() {
    const FIRST_CHUNKS_MAX: usize = 16 * 20 * 1024;
    let (store, tape) = recorded_store(1);
    let (mut client, mut compressor) = (client_of(&store, 0), Compressor::default());
    let value = "x".repeat(1000);
    (0..2000).for_each(|number| drop(client.say(&format!("SET key:{number} {value}"))));
    let mut bytes_with = |form, compresses| {
        let options = SnapshotOptions { form, ..OPTIONS };
        let (mut snapshot, _) = cut(&mut client, &tape, options).expect("there is room");
        snapshot.set_compresses(compresses);
        while snapshot.advance(&store.engine.keyspace, usize::MAX) != Advance::Complete {}
        let mut bytes = Vec::new();
        for chunk in snapshot.take() {
            chunk.write(&mut Output::new(&mut bytes, Some(&mut compressor)), true).unwrap();
        }
        bytes.len()
    };
    assert!(bytes_with(Form::rdb(true), true) < 2000 * 100);
    // The first chunk of each part was begun with the cut.
    assert!(bytes_with(Form::rdb(true), false) > 2000 * 1000 - FIRST_CHUNKS_MAX);
    assert!(bytes_with(Form::rdb(false), true) > 2000 * 1000, "it was not asked for");
}
