//! Commands that walk over the keyspace on offload threads, while others change it between two slices.

mod common;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

use common::{Client, ConnectedHost, Store};
use dunlin_engine::{Host, OffloadOutcome, Offloaded, Worker};
use proptest::prelude::*;

/// A host that does something before each slice, when nothing is locked; its answer says whether the walk goes on.
struct Meddler<F> {
    slices: Cell<usize>,
    meddle: RefCell<F>,
}

impl<F: FnMut(usize) -> bool> Meddler<F> {
    fn new(meddle: F) -> Self {
        Self { slices: Cell::new(0), meddle: RefCell::new(meddle) }
    }
}

impl<F: FnMut(usize) -> bool> Host for Meddler<F> {
    fn is_wanted(&self) -> bool {
        let slice = self.slices.replace(self.slices.get() + 1);
        (self.meddle.borrow_mut())(slice)
    }

    fn pause(&self) {
        unreachable!("no script runs here")
    }
}

/// A client whose commands may visit few enough keys at once that every walk is offloaded.
fn client(store: &Store) -> Client<'_> {
    let mut client = store.client(0);
    client.caller.visits_max = Some(0);
    client
}

fn set(client: &mut Client<'_>, key: &str) {
    assert_eq!(client.say(&format!("SET {key} v")), "+OK");
}

fn defer(client: &mut Client<'_>, line: &str) -> Offloaded {
    assert_eq!(client.say(line), "", "{line} is answered later");
    *client.offloaded.take().expect("the command takes long")
}

/// Runs a offloaded command and returns its reply.
fn reply(store: &Store, offloaded: Offloaded, host: &dyn Host) -> Option<String> {
    match offloaded.run(&store.engine, &mut Worker::new(9, 9), host) {
        OffloadOutcome::Answered { reply, .. } => Some(String::from_utf8(reply.into_bytes()).unwrap()),
        OffloadOutcome::Abandoned => None,
        OffloadOutcome::Computed(_) => panic!("it computes nothing"),
    }
}

/// The keys among the bulks of a reply, and how often each is there.
fn count_keys(reply: &str, prefix: &str) -> BTreeMap<String, usize> {
    let mut keys = BTreeMap::new();
    for key in reply.split("\r\n").filter(|line| line.starts_with(prefix)) {
        *keys.entry(key.to_owned()).or_default() += 1;
    }
    keys
}

fn names(range: std::ops::Range<usize>) -> BTreeSet<String> {
    range.map(|number| format!("key:{number}")).collect()
}

#[test]
fn walks_answer_apart_what_they_answer_where_they_stand() {
    let store = Store::new(1);
    let mut client = client(&store);
    for number in 0..3000 {
        set(&mut client, &format!("key:{number}"));
    }
    for key in names(0..500) {
        assert_eq!(client.say(&format!("PEXPIRE {key} 1")), ":1");
    }
    for line in ["SADD set a", "SET {tag}:1 v", "SET {tag}:2 v"] {
        assert!(client.say(line).starts_with(['+', ':']));
    }
    client.caller.now_ms += 1;
    let lines = [
        "KEYS *",
        "KEYS key:2*",
        "KEYS {tag}:*",
        "KEYS *none*",
        "SCAN 0 COUNT 1000000",
        "SCAN 0 COUNT 1000000 MATCH *9 TYPE string",
        "SCAN 0 COUNT 1000000 TYPE set",
        "SCAN 0 COUNT 1000000 MATCH {tag}:*",
    ];
    for line in lines {
        client.caller.visits_max = None;
        let expected = client.run(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        client.caller.visits_max = Some(0);
        let offloaded = defer(&mut client, line);
        let got = reply(&store, offloaded, &ConnectedHost).unwrap();
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.split("\r\n").map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&got), sorted(&String::from_utf8(expected).unwrap()), "{line}");
    }
}

#[test]
fn walk_of_few_or_named_keys_or_in_multi_answers_in_place() {
    let store = Store::new(1);
    let mut client = client(&store);
    for number in 0..40 {
        set(&mut client, &format!("key:{number}"));
    }
    assert_eq!(client.say("KEYS key:1"), "*1 $5 key:1");
    assert_eq!(client.say("DBSIZE"), ":40");
    assert!(client.say("RANDOMKEY").starts_with("$"));
    client.caller.visits_max = Some(40);
    assert!(client.say("KEYS *").starts_with("*40 "));
    assert!(client.say("SCAN 0 COUNT 1000").starts_with("*2 $1 0 *40 "));
    client.caller.visits_max = Some(39);
    drop(defer(&mut client, "KEYS *"));
    drop(defer(&mut client, "SCAN 0 COUNT 1000"));
    assert!(client.say("SCAN 0 COUNT 39").starts_with("*2 "));
    client.caller.deny_blocking = true;
    assert!(client.say("KEYS *").starts_with("*40 "));
    assert!(client.say("SCAN 0 COUNT 1000").starts_with("*2 $1 0 *40 "));
}

#[test]
fn long_keys_weigh_more() {
    let store = Store::new(1);
    let mut client = client(&store);
    client.caller.visits_max = Some(1000);
    for number in 0..20 {
        set(&mut client, &format!("{}{number}", "x".repeat(10_000)));
    }
    let keys = defer(&mut client, "KEYS x*y");
    assert_eq!(reply(&store, keys, &ConnectedHost).unwrap(), "*0\r\n");
    let scan = defer(&mut client, "SCAN 0 COUNT 1000 MATCH x*1");
    assert_eq!(count_keys(&reply(&store, scan, &ConnectedHost).unwrap(), "x").len(), 2);
}

#[test]
fn randomkey_searches_apart_where_nearly_everything_has_expired() {
    let store = Store::new(1);
    let mut client = client(&store);
    for number in 0..500 {
        assert_eq!(client.say(&format!("SET key:{number} v PX 1")), "+OK");
    }
    set(&mut client, "survivor");
    client.caller.now_ms += 1;
    for _ in 0..20 {
        let answer = client.say("RANDOMKEY");
        if let Some(offloaded) = client.offloaded.take() {
            let answer = reply(&store, *offloaded, &ConnectedHost).unwrap();
            assert_eq!(answer, "$8\r\nsurvivor\r\n");
        } else {
            assert_eq!(answer, "$8 survivor");
        }
    }
    assert_eq!(client.say("DEL survivor"), ":1");
    let offloaded = defer(&mut client, "RANDOMKEY");
    assert_eq!(reply(&store, offloaded, &ConnectedHost).unwrap(), "$-1\r\n");
}

#[test]
fn walk_ends_early_when_its_client_is_gone() {
    let store = Store::new(1);
    let mut client = client(&store);
    for number in 0..10_000 {
        set(&mut client, &format!("key:{number}"));
    }
    for line in ["KEYS *", "SCAN 0 COUNT 1000000"] {
        let offloaded = defer(&mut client, line);
        let host = Meddler::new(|slice| slice < 3);
        assert_eq!(reply(&store, offloaded, &host), None, "{line}");
        assert_eq!(host.slices.get(), 4, "{line}");
    }
}

#[test]
fn walk_ends_well_when_its_database_is_emptied_or_swapped() {
    for line in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1"] {
        let store = Store::new(2);
        let mut client = client(&store);
        for number in 0..20_000 {
            set(&mut client, &format!("key:{number}"));
        }
        let mut other = store.client(1);
        let offloaded = defer(&mut client, "KEYS *");
        let host = Meddler::new(|slice| {
            if slice == 20 {
                assert_eq!(other.say(line), "+OK");
                set(&mut other, "late:1");
            }
            true
        });
        let text = reply(&store, offloaded, &host).unwrap();
        let keys = count_keys(&text, "key:");
        assert!(keys.len() < 20_000 && keys.values().all(|count| *count == 1), "{line}");
        assert!(text.starts_with('*') && count_keys(&text, "late:").values().all(|count| *count == 1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// The keys below `stay` are there throughout, each of the others comes and goes: the tables of all stripes grow and shrink
    /// through several doublings while the walk goes on.
    #[test]
    fn walk_meets_each_key_that_stays_once(
        stay in 1_usize..3000,
        guests in 0_usize..4000,
        changes in proptest::collection::vec((any::<bool>(), 0..2000_usize), 1..20),
        line in prop_oneof![Just("KEYS *"), Just("KEYS key:*"), Just("SCAN 0 COUNT 1000000000")],
    ) {
        let store = Store::new(2);
        let mut client = client(&store);
        names(0..stay).iter().for_each(|key| set(&mut client, key));
        (0..guests).for_each(|guest| set(&mut client, &format!("guest:{guest}")));
        let mut other = store.client(1);
        let (mut changes, mut present) = (changes.into_iter().cycle(), guests);
        let offloaded = defer(&mut client, line);
        let host = Meddler::new(|_| {
            let (grow, amount) = changes.next().expect("they come again");
            let next = if grow { (present + amount).min(8000) } else { present.saturating_sub(amount) };
            (present..next).for_each(|guest| set(&mut other, &format!("guest:{guest}")));
            for guest in next..present {
                assert_eq!(other.say(&format!("DEL guest:{guest}")), ":1");
            }
            present = next;
            true
        });
        let text = reply(&store, offloaded, &host).unwrap();
        let keys = count_keys(&text, "key:");
        prop_assert!(keys.values().all(|count| *count == 1));
        prop_assert_eq!(keys.into_keys().collect::<BTreeSet<_>>(), names(0..stay));
        prop_assert!(count_keys(&text, "guest:").values().all(|count| *count == 1));
    }
}
