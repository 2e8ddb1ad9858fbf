//! Large collections: copied in pieces while they change, or lent.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use dunlin_engine::{
    rdb::{Compressor, Output, Version},
    snapshot::{Advance, Form, SNAPSHOTS_MAX, SnapshotOptions},
};
use proptest::prelude::*;

use crate::{
    EndOnPanic,
    common::{Client, START_MS, Store},
    dice::Dice,
    taken::{NONE, OPTIONS, check, client_of, contents, cut, difference, recorded_store, replay},
};

/// Large collections are not copied as a whole, and commands that change, replace or remove one do not wait for them.
#[test]
fn large_collections_are_not_copied() {
    const FIELDS: usize = 1000;
    let (store, tape) = recorded_store(1);
    let (mut client, mut compressor) = (client_of(&store, 0), Compressor::default());
    let fill: [(&str, &dyn Fn(usize) -> String); 5] = [
        ("h", &|number| format!("HSET h:1 field:{number} {number}")),
        ("t", &|number| format!("SADD t:1 member:{number}")),
        ("z", &|number| format!("ZADD z:1 {number} member:{number}")),
        ("l", &|number| format!("RPUSH l:1 element:{number}")),
        ("x", &|number| format!("XADD x:1 {}-1 field {number}", number + 1)),
    ];
    let change = |kind: &str| match kind {
        "h" => "HINCRBY h:1 field:7 1",
        "t" => "SREM t:1 member:7",
        "z" => "ZINCRBY z:1 1 member:7",
        "l" => "LPOP l:1",
        _ => "XADD x:1 * field new",
    };
    for step in ["visited", "changed", "forced", "renamed", "moved", "removed", "replaced", "expired"] {
        client.say("FLUSHALL");
        for (_, line) in fill {
            (0..FIELDS).for_each(|number| drop(client.say(&line(number))));
        }
        let (mut snapshot, mut taken) = cut(&mut client, &tape, OPTIONS).expect("there is room");
        if step == "visited" {
            // The walk is over when the first piece comes.
            while snapshot.waiting_bytes() == 0 {
                assert_eq!(snapshot.advance(&store.engine.keyspace, 1), Advance::More);
            }
        }
        for (kind, _) in fill {
            client.caller.waits_for_views = step != "forced";
            let change = match step {
                "renamed" => {
                    client.say(&format!("RENAME {kind}:1 {kind}:2"));
                    change(kind).replacen(":1", ":2", 1)
                }
                "moved" => {
                    client.say(&format!("MOVE {kind}:1 1"));
                    client.database = 1;
                    change(kind).to_owned()
                }
                _ => change(kind).to_owned(),
            };
            let line = match step {
                "removed" => format!("DEL {kind}:1"),
                "replaced" => format!("SET {kind}:1 text"),
                "expired" if kind == "h" => {
                    let fields: String = (0..FIELDS).map(|number| format!(" field:{number}")).collect();
                    format!("HPEXPIRE h:1 1 FIELDS {FIELDS}{fields}")
                }
                "expired" => format!("PEXPIRE {kind}:1 1"),
                _ => change,
            };
            let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
            assert_eq!(client.try_run(&words).err(), None, "{step}: {line}");
            client.database = 0;
        }
        if step == "expired" {
            client.caller.now_ms += 2;
            client.expire();
        } else {
            assert!(snapshot.waiting_bytes() < 4000, "what is beside an element is copied, and no more");
        }
        while snapshot.advance(&store.engine.keyspace, 1000) != Advance::Complete {
            taken.take(&snapshot, &mut compressor);
        }
        taken.take(&snapshot, &mut compressor);
        drop(snapshot);
        check(&taken, &tape.bytes(), &store);
        assert_eq!(taken.keys, fill.len() as u64);
    }
}

/// Strings in chunks are shared, and changes of them copy single chunks.
#[test]
fn long_strings_are_shared() {
    let (store, tape) = recorded_store(1);
    let (mut client, mut compressor) = (client_of(&store, 0), Compressor::default());
    for form in [OPTIONS.form, Form { commands: true, ..OPTIONS.form }] {
        client.say("FLUSHALL");
        for key in ["kept", "changed", "removed", "replaced", "renamed", "moved", "copied"] {
            client.say(&format!("SETRANGE {key} 1000000 {key}"));
            client.say(&format!("SETRANGE {key} 70000 {key}"));
        }
        let options = SnapshotOptions { form, ..OPTIONS };
        let (mut snapshot, mut taken) = cut(&mut client, &tape, options.clone()).expect("there is room");
        for line in [
            "SETRANGE changed 70000 anew",
            "APPEND changed anew",
            "SETBIT changed 3000000 1",
            "DEL removed",
            "SET replaced text",
            "RENAME renamed other",
            "SETRANGE other 5 anew",
            "MOVE moved 1",
            "COPY copied copy",
            "SETRANGE copied 0 anew",
            "SETRANGE copy 200000 anew",
        ] {
            client.say(line);
        }
        assert!(snapshot.waiting_bytes() < 7 * 1000, "none of it is counted: {}", snapshot.waiting_bytes());
        while snapshot.advance(&store.engine.keyspace, 1000) != Advance::Complete {
            taken.take(&snapshot, &mut compressor);
        }
        taken.take(&snapshot, &mut compressor);
        drop(snapshot);
        assert_eq!(taken.keys, 7);
        if !form.commands {
            check(&taken, &tape.bytes(), &store);
            continue;
        }
        let before = Store::new(1);
        taken.parts.iter().for_each(|(_, commands)| replay(&before, commands));
        replay(&before, &tape.bytes()[taken.offset..]);
        let (found, expected) = (contents(&before), contents(&store));
        assert_eq!(difference(&found, &expected), NONE);
    }
}

/// Threads that give collections other keys all the time, so that these go from stripe to stripe while their pieces are asked for.
#[test]
fn collections_are_found_wherever_they_go_between_two_pieces() {
    const KINDS: [&str; 3] = ["h", "t", "l"];
    const SNAPSHOTS: usize = 20;
    let (store, tape) = recorded_store(KINDS.len() + 1);
    let mut client = client_of(&store, KINDS.len());
    for number in 0..1000 {
        client.say(&format!("HSET h:0 member:{number} {number}"));
        client.say(&format!("SADD t:0 member:{number}"));
        client.say(&format!("RPUSH l:0 element:{number}"));
    }
    let values = |store: &Store| {
        let mut values: Vec<_> = contents(store).into_values().collect();
        values.sort();
        values
    };
    let (expected, is_over) = (values(&store), AtomicBool::new(false));
    thread::scope(|scope| {
        let _end = EndOnPanic(&is_over);
        for (number, kind) in KINDS.into_iter().enumerate() {
            let (mut mover, is_over) = (client_of(&store, number), &is_over);
            scope.spawn(move || {
                for round in (0..).take_while(|_| !is_over.load(Relaxed)) {
                    mover.say(&format!("RENAME {kind}:{} {kind}:{}", round % 7, (round + 1) % 7));
                    drop(mover.worker.garbage.take());
                }
            });
        }
        let mut compressor = Compressor::default();
        for _ in 0..SNAPSHOTS {
            let (mut snapshot, mut taken) = cut(&mut client, &tape, OPTIONS).expect("there is room");
            while snapshot.advance(&store.engine.keyspace, 200) != Advance::Complete {
                taken.take(&snapshot, &mut compressor);
            }
            taken.take(&snapshot, &mut compressor);
            assert_eq!(values(&taken.load()), expected);
        }
        is_over.store(true, Relaxed);
    });
}

/// A collection takes the key of another that was removed, and that the snapshot still has to write, and is removed in
/// turn.
#[test]
fn collections_that_had_the_same_key_are_told_apart() {
    let (store, tape) = recorded_store(1);
    let (mut client, mut compressor) = (client_of(&store, 0), Compressor::default());
    for number in 0..1000 {
        client.say(&format!("HSET h:1 field:{number} {number}"));
        client.say(&format!("HSET h:2 field:{number} other"));
    }
    let (mut snapshot, mut taken) = cut(&mut client, &tape, OPTIONS).expect("there is room");
    let lines = [
        "HSET h:1 f v",
        "HSET h:2 f v",
        "DEL h:1",
        "RENAME h:2 h:1",
        "HSET h:1 g v",
        "HDEL h:1 field:7",
        "DEL h:1",
    ];
    lines.iter().for_each(|line| drop(client.say(line)));
    while snapshot.advance(&store.engine.keyspace, 1000) != Advance::Complete {
        taken.take(&snapshot, &mut compressor);
    }
    taken.take(&snapshot, &mut compressor);
    drop(snapshot);
    check(&taken, &tape.bytes(), &store);
}

/// Commands on large collections: B is one of two, M a member, of which there may be [`MEMBERS`], I the ID of an entry.
const LARGE_LINES: &[&str] = &[
    "HSET h:B M V",
    "HSET h:B M N M V",
    "HDEL h:B M M M",
    "HPEXPIRE h:B T FIELDS 1 M",
    "SADD t:B M M",
    "SREM t:B M M",
    "SPOP t:B",
    "SPOP t:B 100",
    "SMOVE t:B t:B M",
    "ZADD z:B N M N M",
    "ZINCRBY z:B N M",
    "ZREM z:B M M",
    "ZPOPMAX z:B 9",
    "ZREMRANGEBYRANK z:B 3 20",
    "RPUSH l:B V N V",
    "LPUSH l:B V N",
    "LPOP l:B 3",
    "RPOP l:B 2",
    "LMOVE l:B l:B LEFT RIGHT",
    "LSET l:B M N",
    "LINSERT l:B BEFORE N V",
    "LREM l:B 3 N",
    "XADD x:B * f V",
    "XADD x:B MAXLEN ~ 1500 * f V g N",
    "XADD x:B N-N f V",
    "XDEL x:B I I I",
    "XTRIM x:B MAXLEN 1400",
    "XREADGROUP GROUP g c COUNT 2 STREAMS x:B >",
    "XACK x:B g I I I I",
    "XCLAIM x:B g d 0 I I I",
    "XAUTOCLAIM x:B g e 0 I COUNT 20",
];
/// Commands that change all of one, or move it.
const RARE_LARGE_LINES: &[&str] = &[
    "ZREMRANGEBYRANK z:B 100 1600",
    "SPOP t:B 1500",
    "ZUNIONSTORE z:B 1 z:B WEIGHTS 2",
    "SUNIONSTORE t:B t:B t:B",
    "RENAME z:B z:B",
    "RENAME h:B h:B",
    "RENAME t:B t:B",
    "MOVE z:B 1",
    "MOVE t:B 1",
    "COPY t:B t:B REPLACE",
    "COPY z:B z:B REPLACE",
    "COPY h:B h:B DB 1 REPLACE",
    "DEL h:B",
    "UNLINK t:B",
    "EXPIRE z:B 1000",
    "PERSIST z:B",
    "PEXPIRE t:B T",
    "LTRIM l:B 200 -1",
    "LTRIM l:B 0 500",
    "LREM l:B 0 N",
    "LINSERT l:B AFTER N L",
    "RENAME l:B l:B",
    "MOVE l:B 1",
    "COPY l:B l:B REPLACE",
    "SORT l:B ALPHA STORE l:B",
    "DEL l:B",
    "XTRIM x:B MAXLEN 3",
    "XTRIM x:B MINID I",
    "XGROUP CREATE x:B g 0 MKSTREAM",
    "XGROUP DELCONSUMER x:B g d",
    "XGROUP DESTROY x:B g",
    "XTRIM x:B MAXLEN 0",
    "XSETID x:B 1-1",
    "RENAME x:B x:B",
    "MOVE x:B 1",
    "COPY x:B x:B REPLACE",
    "UNLINK x:B",
    "PEXPIRE l:B T",
    "SWAPDB 0 1",
    "FLUSHDB",
];
const MEMBERS: u64 = 4000;

impl Dice {
    fn large_line(&mut self) -> String {
        let lines = if self.roll(40) == 0 { RARE_LARGE_LINES } else { LARGE_LINES };
        let line = lines[self.roll(lines.len() as u64) as usize];
        let line = self.line(line);
        let words = line.split(' ').map(|word| match word.strip_suffix('B') {
            Some(kind) if kind.ends_with(':') => format!("{kind}{}", self.roll(2)),
            // The number of one that there was in the beginning.
            _ if word == "M" && line.starts_with("LSET") => self.roll(MEMBERS / 2).to_string(),
            _ if word == "I" => format!("{}-1", 1 + self.roll(MEMBERS)),
            _ if word == "M" => format!("member:{}", self.roll(MEMBERS)),
            _ => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// As many members for each large collection as there usually are.
    fn fill(&mut self, client: &mut Client<'_>) {
        client.caller.waits_for_views = false;
        for _ in 0..MEMBERS / 2 {
            let line = self.line("HSET h:0 M V SADD t:0 M ZADD z:0 N M");
            let words: Vec<_> = line.split(' ').collect();
            for command in [&words[..4], &words[4..7], &words[7..]] {
                client.say(&command.join(" ").replace('M', &format!("member:{}", self.roll(MEMBERS))));
            }
            client.say(&self.line("RPUSH l:0 V N"));
        }
        client.say("DEL x:0");
        for number in 1..MEMBERS {
            client.say(&format!("XADD x:0 {number}-1 f {number}"));
        }
        client.say("XGROUP CREATE x:0 g 0");
        client.say("XREADGROUP GROUP g c COUNT 3000 STREAMS x:0 >");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Large collections in pieces that changes come between, of one snapshot or two.
    #[test]
    fn collections_change_while_they_are_handed_over(seed: u64) {
        const PIECE_BYTES_MAX: usize = 3000;
        let (store, tape) = recorded_store(1);
        let mut client = client_of(&store, 0);
        let (mut dice, mut compressor) = (Dice(seed), Compressor::default());
        let mut pieces = 0;
        for _ in 0..3 {
            dice.fill(&mut client);
            let options = SnapshotOptions { queue_bytes_max: 40_000 << dice.roll(4), ..OPTIONS };
            let mut running = Vec::new();
            for _ in 0..1 + dice.roll(SNAPSHOTS_MAX as u64) {
                let lines = (0..dice.roll(200)).map(|_| dice.large_line()).collect::<Vec<_>>();
                // There is something to be copied.
                let keeps = |line: &&String| !matches!(line.as_str(), "FLUSHDB" | "SWAPDB 0 1");
                lines.iter().filter(keeps).for_each(|line| drop(client.say(line)));
                running.push((cut(&mut client, &tape, options.clone()).unwrap(), contents(&store)));
            }
            while !running.is_empty() {
                client.caller.now_ms += dice.roll(3);
                client.expire();
                client.caller.waits_for_views = dice.roll(20) > 0;
                client.database = usize::from(dice.roll(10) == 0);
                let line = dice.large_line();
                let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
                // If another client has a view, it is left undone.
                let _ = client.try_run(&words);
                drop(client.worker.garbage.take());
                for at in (0..running.len()).rev() {
                    if dice.roll(3) > 0 {
                        continue;
                    }
                    let ((snapshot, taken), _) = &mut running[at];
                    let advance = snapshot.advance(&store.engine.keyspace, dice.roll(PIECE_BYTES_MAX as u64) as usize);
                    let before = taken.parts.last().map_or(0, |(_, part)| part.len());
                    taken.take(snapshot, &mut compressor);
                    pieces += usize::from(taken.parts.last().is_some_and(|(_, part)| part.len() > before && before > 0));
                    if advance == Advance::Complete {
                        let ((snapshot, taken), then) = running.remove(at);
                        prop_assert_eq!(snapshot.waiting_bytes(), 0);
                        let found = contents(&taken.load());
                        prop_assert_eq!(difference(&found, &then), NONE);
                        drop(snapshot);
                        check(&taken, &tape.bytes(), &store);
                    }
                }
            }
            prop_assert!(store.engine.keyspace.snapshots().has_room());
        }
        prop_assert!(pieces > 5, "{} pieces", pieces);
        prop_assert!(!store.engine.keyspace.snapshots().is_congested());
    }
}

/// A file that knows the longest piece that it was given.
#[derive(Default)]
struct Pieces {
    bytes: Vec<u8>,
    longest: usize,
}

impl io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        self.longest = self.longest.max(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Collections that are lent are not copied as a whole either if the file consists of commands.
#[test]
fn large_collections_become_commands_in_pieces() {
    const FIELDS: usize = 5000;
    const PIECE_BYTES_MAX: usize = 20 * 1024;
    let (store, tape) = recorded_store(1);
    let mut client = client_of(&store, 0);
    for number in 0..FIELDS {
        client.say(&format!("HSET h:1 field:{number} {number}"));
        client.say(&format!("HPEXPIREAT h:1 {} FIELDS 1 field:{number}", START_MS + 1_000_000));
        client.say(&format!("SADD t:1 member:{number}"));
        client.say(&format!("ZADD z:1 {number} member:{number}"));
        client.say(&format!("RPUSH l:1 element:{number}"));
        client.say(&format!("XADD x:1 {}-1 field {number}", number + 1));
    }
    client.say("XGROUP CREATE x:1 group 0");
    client.say("XREADGROUP GROUP group reader STREAMS x:1 >");
    let form = Form { commands: true, version: Some(Version::Valkey(80)), ..Form::rdb(false) };
    let options = SnapshotOptions { form, ..OPTIONS };
    let (mut snapshot, _) = cut(&mut client, &tape, options.clone()).expect("there is room");
    while snapshot.advance(&store.engine.keyspace, 1000) != Advance::Complete {}
    assert!(snapshot.waiting_bytes() < 1000, "nothing is copied");
    let mut pieces = Pieces::default();
    for chunk in snapshot.take() {
        chunk.write(&mut Output::new(&mut pieces, None), false).unwrap();
    }
    assert!(pieces.bytes.len() > 20 * PIECE_BYTES_MAX);
    assert!(pieces.longest < PIECE_BYTES_MAX, "{} bytes", pieces.longest);
    let made = Store::new(1);
    replay(&made, &pieces.bytes);
    let (found, expected) = (contents(&made), contents(&store));
    assert_eq!(difference(&found, &expected), NONE);
}
