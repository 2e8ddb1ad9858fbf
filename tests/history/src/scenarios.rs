//! The scenarios: several clients work on the same keys at once, and every reply must satisfy a rule.
//!
//! None of them compares times. Each looks for a reply that no order of the commands, one after the
//! other, can explain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dunlin_test_support::random::Random;
use dunlin_test_support::resp::{Reply, quoted};

use crate::client::{Client, Command};
use crate::command;
use crate::scripts;
use crate::transactions;

/// The number of clients in every scenario.
pub const CLIENTS: usize = 8;

/// Gives the client with this index a connection.
pub type Connect<'a> = dyn Fn(usize) -> Result<Client, String> + Sync + 'a;

/// A scenario, and how many rounds each of its clients plays.
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// Plays it; an error names the reply that no order of the commands explains.
    pub play: fn(&Connect<'_>, usize) -> Result<(), String>,
    /// Rounds of one client at scale 1.
    pub rounds: usize,
}

/// All of them.
pub const ALL: &[Scenario] = &[
    Scenario { name: "increments", play: increments, rounds: 20_000 },
    Scenario { name: "one-winner", play: one_winner, rounds: 20_000 },
    Scenario { name: "torn-reads", play: torn_reads, rounds: 5_000 },
    Scenario { name: "all-or-nothing", play: all_or_nothing, rounds: 5_000 },
    Scenario { name: "handed-out-once", play: handed_out_once, rounds: 10_000 },
    Scenario { name: "one-place", play: one_place, rounds: 10_000 },
    Scenario { name: "whole-copies", play: whole_copies, rounds: 2_000 },
    Scenario { name: "appended-records", play: appended_records, rounds: 3_000 },
    Scenario { name: "mutual-exclusion", play: mutual_exclusion, rounds: 200 },
    Scenario { name: "no-going-back", play: no_going_back, rounds: 5_000 },
    Scenario { name: "swapped-databases", play: swapped_databases, rounds: 3_000 },
    Scenario { name: "transfers", play: transactions::transfers, rounds: 3_000 },
    Scenario { name: "scripted-transfers", play: scripts::scripted_transfers, rounds: 5_000 },
    Scenario { name: "serializable", play: transactions::serializable, rounds: 5_000 },
    Scenario { name: "serializable-scripts", play: scripts::serializable, rounds: 3_000 },
    Scenario { name: "killed-scripts", play: scripts::killed, rounds: 30 },
];

/// How many commands a client sends at a time.
const PIPELINE: usize = 20;

/// Attempts at a lock that every other client holds only for three commands.
const LOCK_TRIES_MAX: usize = 1_000_000;

/// Keys without a common hash tag, so that they lie in many shards.
pub fn keys(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|n| format!("key:{n}").into_bytes()).collect()
}

/// Plays all clients at once; gives their results in the order of their indices, or the first error.
pub fn together<T: Send>(
    connect: &Connect<'_>,
    part: impl Fn(usize, &mut Client) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    std::thread::scope(|scope| {
        let part = &part;
        let handles: Vec<_> =
            (0..CLIENTS).map(|index| scope.spawn(move || part(index, &mut connect(index)?))).collect();
        handles.into_iter().map(|handle| handle.join().expect("a client does not panic")).collect()
    })
}

pub fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// INCR: every number is handed out once, each client sees its own numbers rise, and the sum is right.
fn increments(connect: &Connect<'_>, rounds: usize) -> Result<(), String> {
    // Key 0 gets half of the load.
    let keys = keys(4);
    let histories = together(connect, |index, client| {
        let mut random = Random::new(index as u64);
        let mut seen: Vec<Vec<i64>> = vec![Vec::new(); keys.len()];
        for _ in 0..rounds / PIPELINE {
            let chosen: Vec<usize> =
                (0..PIPELINE).map(|_| if random.chance(50) { 0 } else { random.below(keys.len()) }).collect();
            let commands: Vec<Command> = chosen.iter().map(|&key| command!["INCR", keys[key]]).collect();
            for (key, reply) in chosen.into_iter().zip(client.batch(&commands)?) {
                let number = reply.integer().ok_or_else(|| reply.show())?;
                let before = seen[key].last().copied().unwrap_or(0);
                ensure(number > before, || format!("client {index} got {number} after {before}"))?;
                seen[key].push(number);
            }
        }
        Ok(seen)
    })?;
    let mut client = connect(0)?;
    for (key, name) in keys.iter().enumerate() {
        let mut all: Vec<i64> = histories.iter().flat_map(|seen| seen[key].iter().copied()).collect();
        all.sort_unstable();
        let expected: Vec<i64> = (1..=all.len() as i64).collect();
        ensure(all == expected, || format!("{}: a number is missing or was given twice", quoted(name)))?;
        let value = client.text(command!["GET", name])?;
        ensure(value == all.len().to_string().as_bytes(), || {
            format!("{} holds {} after {} INCR", quoted(name), quoted(&value), all.len())
        })?;
    }
    Ok(())
}

/// SETNX: of all clients that want a key, exactly one gets it, and its value is there.
fn one_winner(connect: &Connect<'_>, rounds: usize) -> Result<(), String> {
    let won = together(connect, |index, client| {
        let mut won = Vec::new();
        for first in (0..rounds).step_by(PIPELINE) {
            let commands: Vec<Command> = (first..first + PIPELINE)
                .map(|round| command!["SETNX", format!("prize:{round}"), index.to_string()])
                .collect();
            let replies = client.batch(&commands)?;
            won.extend(
                (first..)
                    .zip(replies)
                    .filter(|(_, reply)| reply.integer() == Some(1))
                    .map(|(round, _)| round),
            );
        }
        Ok(won)
    })?;
    let mut winners: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, rounds) in won.iter().enumerate() {
        for &round in rounds {
            if let Some(other) = winners.insert(round, index) {
                return Err(format!("clients {other} and {index} both won prize:{round}"));
            }
        }
    }
    ensure(winners.len() == rounds.next_multiple_of(PIPELINE), || "a prize has no winner".into())?;
    let mut client = connect(0)?;
    for (round, winner) in winners {
        let holder = client.text(command!["GET", format!("prize:{round}")])?;
        ensure(holder == winner.to_string().as_bytes(), || {
            format!("prize:{round} was won by {winner} and holds {}", quoted(&holder))
        })?;
    }
    Ok(())
}

/// MSET and MGET over many shards: a reader sees all of one write or nothing of it.
fn torn_reads(connect: &Connect<'_>, rounds: usize) -> Result<(), String> {
    let keys = keys(10);
    let write = |value: &str| {
        let mut command = command!["MSET"];
        for key in &keys {
            command.extend([key.clone(), value.as_bytes().to_vec()]);
        }
        command
    };
    connect(0)?.call(write("0"))?;
    together(connect, |index, client| {
        let mut random = Random::new(index as u64);
        for round in 0..rounds {
            if index.is_multiple_of(2) {
                client.call(write(&format!("{index}:{round}")))?;
                continue;
            }
            let mut asked = keys.clone();
            random.shuffle(&mut asked);
            let mut command = command!["MGET"];
            command.extend(asked);
            let reply = client.call(command)?;
            let values: BTreeSet<&Reply> = reply.elements().unwrap_or_default().iter().collect();
            ensure(values.len() == 1, || format!("one MGET saw several MSETs:\n{}", reply.show()))?;
        }
        Ok(())
    })?;
    Ok(())
}

/// MSETNX over overlapping sets of keys: a client that is refused has written nothing.
fn all_or_nothing(connect: &Connect<'_>, rounds: usize) -> Result<(), String> {
    let outcomes = together(connect, |index, client| {
        let mut won = Vec::new();
        for round in 0..rounds {
            // Neighbours share one key each, in opposite orders.
            let (a, b) = (index, (index + 1) % CLIENTS);
            let (a, b) = if index.is_multiple_of(2) { (a, b) } else { (b, a) };
            let name = |place: usize| format!("seat:{round}:{place}");
            let me = index.to_string();
            won.push(client.integer(command!["MSETNX", name(a), me, name(b), me])? == 1);
        }
        Ok(won)
    })?;
    let mut client = connect(0)?;
    for round in 0..rounds {
        let mut expected = vec![None; CLIENTS];
        let winners = outcomes.iter().enumerate().filter_map(|(index, won)| won[round].then_some(index));
        for index in winners {
            for place in [index, (index + 1) % CLIENTS] {
                if let Some(other) = expected[place].replace(index) {
                    return Err(format!("round {round}: clients {other} and {index} both have seat {place}"));
                }
            }
        }
        let mut command = command!["MGET"];
        command.extend((0..CLIENTS).map(|place| format!("seat:{round}:{place}").into_bytes()));
        let reply = client.call(command)?;
        let held: Vec<Option<usize>> = reply
            .elements()
            .unwrap_or_default()
            .iter()
            .map(|seat| seat.bytes().and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()))
            .collect();
        ensure(held == expected, || {
            format!("round {round}: seats are held by {held:?}, won by {expected:?}")
        })?;
    }
    Ok(())
}

/// GETSET: a value that is put in comes out exactly once.
fn handed_out_once(connect: &Connect<'_>, rounds: usize) -> Result<(), String> {
    let taken = together(connect, |index, client| {
        let mut taken = Vec::new();
        for first in (0..rounds).step_by(PIPELINE) {
            let commands: Vec<Command> = (first..first + PIPELINE)
                .map(|round| command!["GETSET", "baton", format!("{index}:{round}")])
                .collect();
            taken.extend(client.batch(&commands)?);
        }
        Ok(taken)
    })?;
    let mut all: Vec<Vec<u8>> =
        taken.into_iter().flatten().filter_map(|reply| reply.bytes().map(<[u8]>::to_vec)).collect();
    all.push(connect(0)?.text(command!["GET", "baton"])?);
    let count = all.len();
    let distinct: BTreeSet<Vec<u8>> = all.into_iter().collect();
    let put_in = CLIENTS * rounds.next_multiple_of(PIPELINE);
    ensure(count == put_in && distinct.len() == put_in, || {
        format!("{put_in} values went in, {count} came out, {} of them distinct", distinct.len())
    })
}

/// RENAME to and fro: at every moment the value is in exactly one of the places.
fn one_place(connect: &Connect<'_>, rounds: usize) -> Result<(), String> {
    let places = keys(3);
    connect(0)?.call(command!["SET", places[0], "the one"])?;
    together(connect, |index, client| {
        let mut random = Random::new(index as u64);
        for _ in 0..rounds {
            if index.is_multiple_of(2) {
                let from = random.below(places.len());
                let to = (from + 1 + random.below(places.len() - 1)) % places.len();
                let reply = client.call(command!["RENAME", places[from], places[to]])?;
                let refused = reply.is_error() && reply.bytes() == Some(b"ERR no such key");
                ensure(refused || !reply.is_error(), || reply.show())?;
            } else {
                let count = client.integer(command!["EXISTS", places[0], places[1], places[2]])?;
                ensure(count == 1, || format!("the value is in {count} places"))?;
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// COPY of a large value while it is overwritten: a copy is one of the values, never a mixture.
fn whole_copies(connect: &Connect<'_>, rounds: usize) -> Result<(), String> {
    let fill = |n: usize| vec![b'a' + (n % 26) as u8; 20_000];
    connect(0)?.call(command!["MSET", "source", fill(0), "copy", fill(0)])?;
    together(connect, |index, client| {
        for round in 0..rounds {
            match index % 4 {
                0 | 1 => {
                    client.call(command!["SET", "source", fill(index + round)])?;
                }
                2 => {
                    client.call(command!["COPY", "source", "copy", "REPLACE"])?;
                }
                _ => {
                    let value = client.text(command!["GET", "copy"])?;
                    let whole = value.len() == 20_000 && value.iter().all(|byte| *byte == value[0]);
                    ensure(whole, || format!("a mixed copy: {}", quoted(&value)))?;
                }
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// APPEND: every record is in the value once, in its client's order, and ends where the reply said.
fn appended_records(connect: &Connect<'_>, rounds: usize) -> Result<(), String> {
    let record = |index: usize, round: usize| format!("{index:02}:{round:08};").into_bytes();
    let ends = together(connect, |index, client| {
        let mut ends = Vec::new();
        for first in (0..rounds).step_by(PIPELINE) {
            let commands: Vec<Command> = (first..first + PIPELINE)
                .map(|round| command!["APPEND", "journal", record(index, round)])
                .collect();
            for reply in client.batch(&commands)? {
                ends.push(reply.integer().ok_or_else(|| reply.show())? as usize);
            }
        }
        Ok(ends)
    })?;
    let journal = connect(0)?.text(command!["GET", "journal"])?;
    let size = record(0, 0).len();
    let written: usize = ends.iter().map(Vec::len).sum();
    ensure(journal.len() == written * size, || {
        format!("{written} records of {size} bytes make {} bytes", journal.len())
    })?;
    for (index, ends) in ends.iter().enumerate() {
        for (round, &end) in ends.iter().enumerate() {
            let found = end.checked_sub(size).and_then(|start| journal.get(start..end));
            ensure(found == Some(&record(index, round)), || {
                format!("client {index} was told that record {round} ends at {end}, where there is another")
            })?;
        }
    }
    Ok(())
}

/// SET NX as a lock around a read, a change and a write: no change is lost.
fn mutual_exclusion(connect: &Connect<'_>, rounds: usize) -> Result<(), String> {
    together(connect, |index, client| {
        for _ in 0..rounds {
            // Bounded, because a client that failed may have taken the lock with it.
            let mut tries = 0;
            while client.call(command!["SET", "lock", index.to_string(), "NX"])?.bytes() != Some(b"OK") {
                tries += 1;
                ensure(tries < LOCK_TRIES_MAX, || "nobody gives the lock back".into())?;
                std::thread::yield_now();
            }
            let inside: i64 = match client.call(command!["GET", "inside"])?.bytes() {
                Some(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0),
                None => 0,
            };
            client.call(command!["SET", "inside", (inside + 1).to_string()])?;
            let holder = client.text(command!["GETDEL", "lock"])?;
            ensure(holder == index.to_string().as_bytes(), || {
                format!("client {index} held a lock that {} took", quoted(&holder))
            })?;
        }
        Ok(())
    })?;
    let inside = connect(0)?.text(command!["GET", "inside"])?;
    ensure(inside == (CLIENTS * rounds).to_string().as_bytes(), || {
        format!("{} changes were made, {} are left", CLIENTS * rounds, quoted(&inside))
    })
}

/// A single writer counts up: no client reads a number older than one that was read, or
/// acknowledged, before.
fn no_going_back(connect: &Connect<'_>, rounds: usize) -> Result<(), String> {
    connect(0)?.call(command!["SET", "clock", "0"])?;
    let newest = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    together(connect, |index, client| {
        if index == 0 {
            let written = (1..=rounds as u64).try_for_each(|round| {
                client.call(command!["SET", "clock", round.to_string()])?;
                newest.fetch_max(round, Ordering::SeqCst);
                Ok(())
            });
            // The readers stop whether or not all went well.
            done.store(true, Ordering::SeqCst);
            return written;
        }
        while !done.load(Ordering::SeqCst) {
            let floor = newest.load(Ordering::SeqCst);
            let text = client.text(command!["GET", "clock"])?;
            let read: u64 = std::str::from_utf8(&text)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| quoted(&text))?;
            if read < floor {
                done.store(true, Ordering::SeqCst);
                return Err(format!("read {read} after {floor} was known"));
            }
            newest.fetch_max(read, Ordering::SeqCst);
        }
        Ok(())
    })?;
    Ok(())
}

/// SWAPDB while others read: an MGET sees one database, not both.
fn swapped_databases(connect: &Connect<'_>, rounds: usize) -> Result<(), String> {
    let keys = keys(10);
    let mut client = connect(0)?;
    for (database, value) in [("1", "one"), ("0", "zero")] {
        client.call(command!["SELECT", database])?;
        let mut command = command!["MSET"];
        for key in &keys {
            command.extend([key.clone(), value.into()]);
        }
        client.call(command)?;
    }
    together(connect, |index, client| {
        for round in 0..rounds {
            if index < 2 {
                client.call(command!["SWAPDB", "0", "1"])?;
                continue;
            }
            if round % 100 == 0 {
                client.call(command!["SELECT", (index % 2).to_string()])?;
            }
            let mut command = command!["MGET"];
            command.extend(keys.iter().cloned());
            let reply = client.call(command)?;
            let values: BTreeSet<&Reply> = reply.elements().unwrap_or_default().iter().collect();
            ensure(values.len() == 1, || format!("one MGET saw two databases:\n{}", reply.show()))?;
        }
        Ok(())
    })?;
    Ok(())
}
