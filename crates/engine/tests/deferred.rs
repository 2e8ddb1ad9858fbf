//! Commands that are offloaded: the state that they see, the clients that wait for them, the values that they
//! store.

mod common;

use common::{Client, ConnectedHost, Store};
use dunlin_engine::{Computed, Environment, OffloadOutcome, Offloaded, Outcome, Request, Worker};
use dunlin_resp::ReplyBuffer;

/// A client whose commands may visit few elements where they stand, beside sets `s` of 0–999 and `t` of 500–1499.
fn client(store: &Store) -> Client<'_> {
    let mut client = store.client(0);
    // Tables, which views share: a block is copied.
    client.policy.collection_limits.block_max_members = 500;
    let members =
        |range: std::ops::Range<u32>| range.map(|number| format!(" m{number}")).collect::<Vec<_>>().concat();
    assert_eq!(client.say(&format!("SADD s{}", members(0..1000))), ":1000");
    assert_eq!(client.say(&format!("SADD t{}", members(500..1500))), ":1000");
    client.caller.visits_max = Some(10);
    client.caller.waits_for_views = true;
    client
}

/// Sends a command that takes long.
fn defer(client: &mut Client<'_>, line: &str) -> Offloaded {
    assert_eq!(client.say(line), "", "it is answered later");
    *client.offloaded.take().expect("the command takes long")
}

fn run(store: &Store, offloaded: Offloaded) -> OffloadOutcome {
    offloaded.run(&store.engine, &mut Worker::new(9, 9), &ConnectedHost)
}

/// How many elements the reply of a command has that reads.
fn elements(store: &Store, offloaded: Offloaded) -> usize {
    let OffloadOutcome::Answered { reply, .. } = run(store, offloaded) else { panic!("it computes nothing") };
    let text = String::from_utf8(reply.into_bytes()).unwrap();
    assert!(text.starts_with('*'), "{text}");
    text.matches("\r\n$").count()
}

fn computed(store: &Store, offloaded: Offloaded) -> Box<Computed> {
    let OffloadOutcome::Computed(computed) = run(store, offloaded) else {
        panic!("it is to store something")
    };
    Box::new(computed)
}

/// Whether a command has to wait for a view to end.
fn is_held(client: &mut Client<'_>, line: &str) -> bool {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let entry = client.store.table.find(words[0]).unwrap();
    let request = Request { entry, words: &words, keys: &[], encoded: &[] };
    let engine = &client.store.engine;
    let mut inside = Some(engine.keyspace.enter(0));
    let (environment, worker, mut reply) =
        (Environment::new(&client.policy, &client.caller), &mut client.worker, ReplyBuffer::default());
    matches!(engine.execute(&request, 0, environment, worker, &mut inside, &mut reply), Ok(Outcome::Retry))
}

#[test]
fn deferred_read_gives_the_state_of_its_begin() {
    let store = Store::new(1);
    let mut client = client(&store);
    let members = defer(&mut client, "SMEMBERS s");
    let intersection = defer(&mut client, "SINTER s t");
    client.caller.waits_for_views = false;
    assert_eq!(client.say("SREM s m0 m1 m700"), ":3");
    assert_eq!(client.say("DEL t"), ":1");
    assert_eq!(client.say("SADD missing2 m1"), ":1");
    assert_eq!(elements(&store, members), 1000);
    assert_eq!(elements(&store, intersection), 500);
    let members = defer(&mut client, "SMEMBERS s");
    assert_eq!(elements(&store, members), 997);
}

#[test]
fn writer_that_would_copy_a_lent_value_waits_alone() {
    let store = Store::new(1);
    let mut client = client(&store);
    let members = defer(&mut client, "SMEMBERS s");
    assert!(is_held(&mut client, "SADD s new"));
    assert!(is_held(&mut client, "SMOVE t s m500"));
    for line in ["SADD t new", "SISMEMBER s m1", "SCARD s", "SET other 1", "UNLINK s", "SADD s new"] {
        assert!(!is_held(&mut client, line), "{line}");
    }
    assert_eq!(elements(&store, members), 1000);
    assert_eq!(client.say("SCARD s"), ":1");
    let members = defer(&mut client, "SMEMBERS t");
    assert!(is_held(&mut client, "SREM t m500"));
    drop(members);
    assert!(!is_held(&mut client, "SREM t m500"));
}

#[test]
fn transaction_defers_nothing() {
    let store = Store::new(1);
    let mut client = client(&store);
    client.caller.deny_blocking = true;
    assert!(client.say("SMEMBERS s").starts_with("*1000 "));
    assert_eq!(client.say("SUNIONSTORE d s t"), ":1500");
}

#[test]
fn deferred_result_is_stored_while_its_sources_hold() {
    let store = Store::new(1);
    let mut client = client(&store);
    // As the host does: the view of what was computed is still there.
    client.caller.waits_for_views = false;
    for (line, reply) in [
        ("SUNIONSTORE d s t", ":1500"),
        ("SINTERSTORE d s t", ":500"),
        ("SDIFFSTORE d s t", ":500"),
        ("ZUNIONSTORE d 2 s t", ":1500"),
        ("ZRANGESTORE e d 0 99", ":100"),
        ("SORT s ALPHA STORE d", ":1000"),
    ] {
        let first = defer(&mut client, line);
        client.computed = Some(computed(&store, first));
        assert_eq!(client.say(line), reply, "{line}");
        assert!(client.offloaded.is_none() && client.computed.is_none(), "{line}");
    }
    let line = "SUNIONSTORE d s t";
    let first = defer(&mut client, line);
    let stale = computed(&store, first);
    assert_eq!(client.say("SADD s new"), ":1");
    client.computed = Some(stale);
    let second = defer(&mut client, line);
    client.computed = Some(computed(&store, second));
    assert_eq!(client.say(line), ":1501");
}

#[test]
fn deferred_xreadgroup_delivers_or_has_come_too_late() {
    let store = Store::new(1);
    let mut client = client(&store);
    client.caller.waits_for_views = false;
    for number in 1..=30 {
        client.say(&format!("XADD x {number}-0 f v"));
    }
    client.say("XGROUP CREATE x g 0");
    let line = "XREADGROUP GROUP g ann BLOCK 0 STREAMS x >";
    let first = defer(&mut client, line);
    assert_eq!(client.say("XINFO CONSUMERS x g"), "*0", "nothing is changed before it is stored");
    let stale = computed(&store, first);
    client.caller.visits_max = None;
    client.say("XREADGROUP GROUP g bob COUNT 10 STREAMS x >");
    client.caller.visits_max = Some(10);
    client.computed = Some(stale);
    let second = defer(&mut client, line);
    client.computed = Some(computed(&store, second));
    let reply = client.say(line);
    assert!(reply.contains("11-0") && reply.contains("30-0") && !reply.contains("10-0"), "{reply}");
    assert!(client.say("XPENDING x g").starts_with("*4 :30 $3 1-0 $4 30-0"), "ten are bob's, twenty ann's");

    client.say("XGROUP SETID x g 0");
    let late = defer(&mut client, line);
    let late = computed(&store, late);
    client.say("XGROUP SETID x g $");
    client.computed = Some(late);
    assert_eq!(client.say(line), "", "others were faster");
    assert!(client.blocked.take().is_some());
}

/// A stream `x` of 30 entries, all delivered to ann: 11 to 20 are twenty seconds old, the others new; every third
/// entry is deleted.
fn deliver_thirty(client: &mut Client<'_>) {
    client.caller.visits_max = None;
    client.caller.waits_for_views = false;
    for number in 1..=30 {
        client.say(&format!("XADD x {number}-0 f v{number}"));
    }
    client.say("XGROUP CREATE x g 0");
    client.say("XREADGROUP GROUP g ann STREAMS x >");
    for number in 11..=20 {
        client.say(&format!("XCLAIM x g ann 0 {number}-0 IDLE 20000 JUSTID"));
    }
    for number in (3..=30).step_by(3) {
        client.say(&format!("XDEL x {number}-0"));
    }
}

#[test]
fn deliveries_are_taken_over_apart_as_where_they_stand() {
    for line in [
        // Few are taken where they stand, many by a copy of the group.
        "XAUTOCLAIM x g bob 0 0 COUNT 3",
        "XAUTOCLAIM x g bob 0 0 COUNT 10",
        "XAUTOCLAIM x g bob 0 0 COUNT 11",
        "XAUTOCLAIM x g bob 0 5-0 COUNT 20",
        "XAUTOCLAIM x g bob 0 (5-0 COUNT 20 JUSTID",
        "XAUTOCLAIM x g ann 0 0 COUNT 9223372036854775",
        "XAUTOCLAIM x g bob 10000 0 COUNT 2",
        "XAUTOCLAIM x g bob 10000 0 COUNT 1000",
        "XAUTOCLAIM x g bob 90000 1-0 COUNT 4",
        "XAUTOCLAIM x g bob 90000 31-0 COUNT 30",
    ] {
        let (here, there) = (Store::new(1), Store::new(1));
        let (mut plain, mut deferring) = (client(&here), client(&there));
        deliver_thirty(&mut plain);
        deliver_thirty(&mut deferring);
        let before = deferring.say("XINFO STREAM x FULL COUNT 0");
        deferring.caller.visits_max = Some(10);
        let first = defer(&mut deferring, line);
        let computed = computed(&there, first);
        deferring.caller.visits_max = None;
        assert_eq!(deferring.say("XINFO STREAM x FULL COUNT 0"), before, "{line}: nothing is changed yet");
        deferring.caller.visits_max = Some(10);
        deferring.computed = Some(computed);
        assert_eq!(deferring.say(line), plain.say(line), "{line}");
        assert!(deferring.offloaded.is_none(), "{line}");
        deferring.caller.visits_max = None;
        for question in ["XINFO STREAM x FULL COUNT 0", "XPENDING x g", "XPENDING x g - + 100 bob"] {
            assert_eq!(deferring.say(question), plain.say(question), "{line}, then {question}");
        }
    }
}

#[test]
fn deferred_xautoclaim_that_comes_too_late_begins_anew() {
    let store = Store::new(1);
    let mut client = client(&store);
    deliver_thirty(&mut client);
    client.caller.visits_max = Some(10);
    let line = "XAUTOCLAIM x g bob 0 0 COUNT 100 JUSTID";
    let first = defer(&mut client, line);
    let stale = computed(&store, first);
    assert_eq!(client.say("XACK x g 1-0 3-0"), ":2");
    client.computed = Some(stale);
    let second = defer(&mut client, line);
    client.computed = Some(computed(&store, second));
    let reply = client.say(line);
    assert!(reply.starts_with("*3 $3 0-0 *19 $3 2-0 $3 4-0 "), "{reply}");
    assert!(reply.contains(" *9 $3 6-0 $3 9-0 "), "{reply}");
    assert_eq!(client.say("XPENDING x g"), "*4 :19 $3 2-0 $4 29-0 *1 *2 $3 bob $2 19");
}

#[test]
fn takeovers_of_few_are_not_offloaded() {
    let store = Store::new(1);
    let mut client = client(&store);
    deliver_thirty(&mut client);
    client.caller.visits_max = Some(10);
    assert!(client.say("XAUTOCLAIM x g bob 0 0 COUNT 1").starts_with("*3 $3 2-0 "));
    client.caller.visits_max = Some(30);
    assert!(client.say("XAUTOCLAIM x g bob 0 0 COUNT 100").starts_with("*3 $3 0-0 "));
    assert!(client.offloaded.is_none());
}

#[test]
fn long_accounts_of_groups_are_given_apart() {
    let store = Store::new(1);
    let mut client = client(&store);
    deliver_thirty(&mut client);
    for number in 0..20 {
        client.say(&format!("XGROUP CREATECONSUMER x g c{number}"));
    }
    for line in
        ["XPENDING x g", "XINFO CONSUMERS x g", "XINFO STREAM x FULL", "XPENDING x g IDLE 10000 - + 1"]
    {
        client.caller.visits_max = None;
        let plain = client.say(line);
        client.caller.visits_max = Some(10);
        let offloaded = defer(&mut client, line);
        let OffloadOutcome::Answered { reply, .. } = run(&store, offloaded) else {
            panic!("{line} changes nothing")
        };
        let told = String::from_utf8(reply.into_bytes()).unwrap().replace("\r\n", " ");
        assert_eq!(told.trim_end(), plain, "{line}");
    }
    assert!(client.say("XINFO STREAM x").starts_with("*32 "));
}

#[test]
fn elements_of_the_first_list_are_told_apart_and_removed() {
    let store = Store::new(1);
    let mut client = client(&store);
    client.caller.waits_for_views = false;
    for number in 0..30 {
        client.say(&format!("RPUSH l {number}"));
    }
    let line = "LMPOP 2 missing l RIGHT COUNT 20";
    let first = defer(&mut client, line);
    client.computed = Some(computed(&store, first));
    let reply = client.say(line);
    assert!(reply.starts_with("*2 $1 l *20 $2 29") && reply.ends_with("$2 10"), "{reply}");
    assert_eq!(client.say("LLEN l"), ":10");
}
