//! Commands that wait for keys: the order in which clients are served, and their replies. Nothing is lost when threads
//! push, pop, wait and give up all at once.

mod common;

use std::{
    collections::HashSet,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use common::{Client, Store};
use dunlin_engine::{
    Environment,
    keyspace::{BlockingKeys, ClientToken, Waiter},
};

/// Clients of one worker, by number; each line is said by one of them.
struct Scenario<'a> {
    client: Client<'a>,
}

impl<'a> Scenario<'a> {
    fn new(store: &'a Store) -> Self {
        Self { client: store.client(0) }
    }

    /// The reply, `(waits)` if there is none yet.
    fn say(&mut self, number: u64, line: &str) -> String {
        self.client.caller.client = ClientToken(number, 0);
        let reply = self.client.say(line);
        match self.client.blocked.take() {
            Some(_) => {
                assert_eq!(reply, "", "who waits has no answer yet");
                "(waits)".to_owned()
            }
            None => reply,
        }
    }

    /// The clients that were served since the last call, in order, with their replies; `(sooner)` for clients that are
    /// to be looked at earlier than they were to be.
    fn served(&mut self) -> Vec<(u64, String)> {
        let text = |reply: &[u8]| String::from_utf8_lossy(reply).replace("\r\n", " ").trim_end().to_owned();
        let served = self.client.worker.served.drain(..);
        let reply = |reply: Option<Vec<u8>>| reply.map_or("(sooner)".to_owned(), |reply| text(&reply));
        served.map(|served| (served.waiter.client().0, reply(served.reply))).collect()
    }

    #[track_caller]
    fn check(&mut self, number: u64, line: &str, reply: &str, served: &[(u64, &str)]) {
        assert_eq!(self.say(number, line), reply, "reply to {line}");
        let expected: Vec<(u64, String)> =
            served.iter().map(|(number, reply)| (*number, (*reply).to_owned())).collect();
        assert_eq!(self.served(), expected, "served by {line}");
    }

    /// Runs a line of a client that is to wait.
    fn say_waiting(&mut self, number: u64, line: &str) -> String {
        self.client.caller.client = ClientToken(number, 0);
        self.client.say(line)
    }

    fn look_again(&mut self, waiter: &Waiter) {
        let engine = &self.client.store.engine;
        let _inside = engine.keyspace.enter(0);
        engine.look_again(
            waiter,
            Environment::new(&self.client.policy, &self.client.caller),
            &mut self.client.worker,
        );
    }

    fn nobody_waits(&self) {
        assert_eq!(self.client.store.engine.survey().blocking, BlockingKeys::default());
    }
}

#[test]
fn blpop_serves_in_order_of_arrival() {
    let store = Store::new(1);
    let mut scenario = Scenario::new(&store);
    scenario.check(1, "BLPOP k 0", "(waits)", &[]);
    scenario.check(2, "BRPOP other k 0", "(waits)", &[]);
    scenario.check(3, "BLMPOP 0 2 k k RIGHT COUNT 2", "(waits)", &[]);
    assert_eq!(store.engine.survey().blocking, BlockingKeys { keys: 2, on_loss: 0 });
    scenario.check(9, "RPUSH k a b", ":2", &[(1, "*2 $1 k $1 a"), (2, "*2 $1 k $1 b")]);
    scenario.check(9, "EXISTS k", ":0", &[]);
    scenario.check(9, "RPUSH k a b c", ":3", &[(3, "*2 $1 k *2 $1 c $1 b")]);
    scenario.check(9, "LRANGE k 0 -1", "*1 $1 a", &[]);
    scenario.check(1, "BLPOP k 0", "*2 $1 k $1 a", &[]);
    scenario.nobody_waits();
}

#[test]
fn served_client_can_make_other_keys_ready() {
    let store = Store::new(1);
    let mut scenario = Scenario::new(&store);
    scenario.check(1, "BLPOP c 0", "(waits)", &[]);
    scenario.check(2, "BLMOVE b c LEFT RIGHT 0", "(waits)", &[]);
    scenario.check(3, "BRPOPLPUSH a b 0", "(waits)", &[]);
    scenario.check(9, "RPUSH a x", ":1", &[(3, "$1 x"), (2, "$1 x"), (1, "*2 $1 c $1 x")]);
    scenario.check(9, "EXISTS a b c", ":0", &[]);
    scenario.nobody_waits();
}

#[test]
fn blmove_with_a_late_error_loses_no_element() {
    let store = Store::new(1);
    let mut scenario = Scenario::new(&store);
    scenario.check(1, "BLMOVE a text LEFT RIGHT 0", "(waits)", &[]);
    scenario.check(9, "SET text v", "+OK", &[]);
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    scenario.check(9, "RPUSH a x", ":1", &[(1, wrong)]);
    scenario.check(9, "LLEN a", ":1", &[]);
    scenario.nobody_waits();
}

#[test]
fn blmovem_with_count_is_served_by_the_first_elements() {
    let store = Store::new(1);
    let mut scenario = Scenario::new(&store);
    scenario.check(1, "BLMOVEM a b LEFT RIGHT 0 COUNT 5 BULK", "(waits)", &[]);
    scenario.check(2, "BLPOP b 0", "(waits)", &[]);
    let served = [(1, "*2 $1 x $1 y"), (2, "*2 $1 b $1 x")];
    scenario.check(9, "RPUSH a x y", ":2", &served);
    scenario.check(9, "LRANGE b 0 -1", "*1 $1 y", &[]);
    scenario.check(9, "EXISTS a", ":0", &[]);
    scenario.check(1, "BLMOVEM a b LEFT RIGHT 0", "(waits)", &[]);
    scenario.check(9, "RPUSH a x y", ":2", &[(1, "*1 $1 x")]);
    scenario.nobody_waits();
}

#[test]
fn blmovem_with_exactly_waits_for_all_of_its_elements() {
    let store = Store::new(1);
    let mut scenario = Scenario::new(&store);
    scenario.check(1, "BLMOVEM a b LEFT LEFT 0 EXACTLY 3 OBO", "(waits)", &[]);
    scenario.check(9, "RPUSH a 1 2", ":2", &[]);
    scenario.check(9, "EXISTS b", ":0", &[]);
    // Clients that are content with fewer do not wait behind it, whether they came before or after.
    scenario.check(2, "BLPOP a 0", "*2 $1 a $1 1", &[]);
    scenario.check(3, "BLMOVEM a c LEFT LEFT 0 EXACTLY 2 OBO", "(waits)", &[]);
    scenario.check(9, "RPUSH a 3", ":2", &[(3, "*2 $1 3 $1 2")]);
    scenario.check(4, "BLMPOP 0 1 a LEFT COUNT 9", "(waits)", &[]);
    scenario.check(9, "RPUSH a 1 2", ":2", &[(4, "*2 $1 a *2 $1 1 $1 2")]);
    scenario.check(9, "RPUSH a 1 2", ":2", &[]);
    scenario.check(9, "LINSERT a BEFORE 1 0", ":3", &[(1, "*3 $1 2 $1 1 $1 0")]);
    scenario.check(9, "LRANGE b 0 -1", "*3 $1 2 $1 1 $1 0", &[]);
    scenario.check(9, "EXISTS a", ":0", &[]);
    scenario.nobody_waits();
}

#[test]
fn blmovem_is_served_by_every_way_in_which_its_source_grows() {
    let store = Store::new(1);
    let mut scenario = Scenario::new(&store);
    for (line, reply) in [
        ("LMOVE feed a LEFT RIGHT", "$1 9"),
        ("LMOVEM feed a LEFT RIGHT COUNT 3 BULK", "*3 $1 9 $1 8 $1 7"),
        ("SORT feed STORE a", ":3"),
        ("COPY feed a REPLACE", ":1"),
    ] {
        scenario.check(9, "RPUSH a 1 2", ":2", &[]);
        scenario.check(9, "RPUSH feed 9 8 7", ":3", &[]);
        scenario.check(1, "BLMOVEM a b LEFT RIGHT 0 EXACTLY 3 BULK", "(waits)", &[]);
        assert_eq!(scenario.say(9, line), reply, "{line}");
        assert_eq!(scenario.served().len(), 1, "{line}");
        scenario.say(9, "DEL a b feed");
    }
    scenario.nobody_waits();
}

#[test]
fn blmovem_may_take_what_it_puts_back() {
    let store = Store::new(1);
    let mut scenario = Scenario::new(&store);
    scenario.check(1, "BLMOVEM a a LEFT RIGHT 0 EXACTLY 2 BULK", "(waits)", &[]);
    scenario.check(2, "BLPOP a 0", "(waits)", &[]);
    scenario.check(9, "RPUSH a 1 2 3", ":3", &[(1, "*2 $1 1 $1 2"), (2, "*2 $1 a $1 3")]);
    scenario.check(9, "LRANGE a 0 -1", "*2 $1 1 $1 2", &[]);
    scenario.nobody_waits();
}

#[test]
fn xread_with_limits_is_served_with_no_more() {
    let store = Store::new(1);
    let mut scenario = Scenario::new(&store);
    scenario.check(1, "XREAD MAXCOUNT 1 BLOCK 0 STREAMS s t $ $", "(waits)", &[]);
    scenario.check(9, "XADD t 1 a 1", "$3 1-0", &[(1, "*1 *2 $1 t *1 *2 $3 1-0 *2 $1 a $1 1")]);
    scenario.check(9, "XGROUP CREATE s g 0 MKSTREAM", "+OK", &[]);
    scenario.check(1, "XREADGROUP GROUP g c MAXSIZE 1 BLOCK 0 STREAMS s >", "(waits)", &[]);
    scenario.check(9, "XADD s 1 a 1", "$3 1-0", &[(1, "*1 *2 $1 s *1 *2 $3 1-0 *2 $1 a $1 1")]);
    scenario.nobody_waits();
}

#[test]
fn blpop_is_served_however_a_list_appears() {
    let store = Store::new(1);
    let mut scenario = Scenario::new(&store);
    scenario.check(1, "BLPOP k 0", "(waits)", &[]);
    scenario.check(9, "SET k v", "+OK", &[]);
    scenario.check(9, "SADD s m", ":1", &[]);
    scenario.check(9, "RENAME s k", "+OK", &[]);
    scenario.check(9, "DEL k", ":1", &[]);
    scenario.check(9, "RPUSH q 1 2 3", ":3", &[]);
    scenario.check(9, "COPY q k", ":1", &[(1, "*2 $1 k $1 1")]);
    scenario.check(9, "DEL k", ":1", &[]);
    scenario.check(1, "BLPOP k 0", "(waits)", &[]);
    scenario.check(9, "LMOVE q k LEFT LEFT", "$1 1", &[(1, "*2 $1 k $1 1")]);
    scenario.check(1, "BLPOP k 0", "(waits)", &[]);
    scenario.check(9, "RENAME q k", "+OK", &[(1, "*2 $1 k $1 2")]);
    scenario.check(9, "DEL k", ":1", &[]);
    scenario.check(1, "BLPOP k 0", "(waits)", &[]);
    scenario.client.database = 1;
    scenario.check(2, "BLPOP k 0", "(waits)", &[]);
    scenario.client.database = 2;
    scenario.check(9, "RPUSH k a b", ":2", &[]);
    scenario.check(9, "SWAPDB 2 1", "+OK", &[(2, "*2 $1 k $1 a")]);
    scenario.client.database = 1;
    scenario.check(9, "MOVE k 0", ":1", &[(1, "*2 $1 k $1 b")]);
    scenario.nobody_waits();
}

#[test]
fn blocked_clients_wait_for_values_of_their_type() {
    let store = Store::new(1);
    let mut scenario = Scenario::new(&store);
    scenario.check(1, "BZPOPMIN k 0", "(waits)", &[]);
    scenario.check(2, "BLPOP k 0", "(waits)", &[]);
    scenario.check(3, "BZPOPMAX j k 0", "(waits)", &[]);
    scenario.check(4, "BZMPOP 0 2 k j MIN COUNT 2", "(waits)", &[]);
    scenario.check(9, "RPUSH k x", ":1", &[(2, "*2 $1 k $1 x")]);
    let served =
        [(1, "*3 $1 k $1 a $1 1"), (3, "*3 $1 k $1 d $1 4"), (4, "*2 $1 k *2 *2 $1 b $1 2 *2 $1 c $1 3")];
    scenario.check(9, "ZADD k 2 b 1 a 4 d 3 c", ":4", &served);
    scenario.check(9, "EXISTS k", ":0", &[]);
    scenario.check(9, "ZADD k 1 a 2 b", ":2", &[]);
    scenario.check(1, "BZPOPMAX k 0", "*3 $1 k $1 b $1 2", &[]);
    scenario.check(1, "BZMPOP 0 1 k MID", "-ERR syntax error", &[]);
    scenario.check(1, "BZPOPMIN k x", "-ERR timeout is not a float or out of range", &[]);
    scenario.nobody_waits();
}

#[test]
fn blocking_commands_that_cannot_wait_answer_nil() {
    let store = Store::new(1);
    let mut scenario = Scenario::new(&store);
    scenario.client.caller.deny_blocking = true;
    scenario.check(1, "BLPOP k 0", "*-1", &[]);
    scenario.check(1, "BLMPOP 0 1 k LEFT", "*-1", &[]);
    scenario.check(1, "BLMOVE k l LEFT LEFT 0", "$-1", &[]);
    scenario.check(1, "BRPOPLPUSH k l 0", "$-1", &[]);
    scenario.nobody_waits();
}

#[test]
fn mistakes_are_told_at_once() {
    let store = Store::new(1);
    let mut scenario = Scenario::new(&store);
    scenario.check(9, "SET text v", "+OK", &[]);
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    for (line, expected) in [
        ("BLPOP k text 0", wrong),
        ("BLMOVE text k LEFT LEFT 0", wrong),
        ("BLPOP k -1", "-ERR timeout is negative"),
        ("BLPOP k x", "-ERR timeout is not a float or out of range"),
        ("BLPOP k inf", "-ERR timeout is out of range"),
        ("BRPOP k -inf", "-ERR timeout is negative"),
        ("BLMPOP x 1 k MIDDLE", "-ERR syntax error"),
        ("BLMPOP x 1 k LEFT", "-ERR timeout is not a float or out of range"),
        ("BLMPOP 0 0 k LEFT", "-ERR numkeys should be greater than 0"),
        ("BLMOVE k k LEFT UP x", "-ERR syntax error"),
        ("BLMOVE k k LEFT LEFT 9223372036854775", "-ERR timeout is out of range"),
    ] {
        scenario.check(1, line, expected, &[]);
    }
    scenario.nobody_waits();
}

#[test]
fn withdrawn_client_is_not_served_and_the_next_one_is() {
    let store = Store::new(1);
    let mut scenario = Scenario::new(&store);
    scenario.client.caller.client = ClientToken(1, 0);
    scenario.client.say("BLPOP k j 0.5");
    let blocked = scenario.client.blocked.take().unwrap();
    assert_eq!(blocked.timeout_ms.map(|timeout_ms| timeout_ms.get()), Some(500));
    scenario.check(2, "BLPOP k 0", "(waits)", &[]);
    let inside = store.engine.keyspace.enter(0);
    assert_eq!(store.engine.withdraw(&blocked.waiter), Some(true));
    assert_eq!(store.engine.withdraw(&blocked.waiter), Some(false), "once");
    drop(inside);
    scenario.check(9, "RPUSH k a", ":1", &[(2, "*2 $1 k $1 a")]);
    scenario.check(9, "RPUSH j a", ":1", &[]);
    scenario.nobody_waits();
}

/// Entries come of age while consumers wait: the consumer that came first gets them, and each says when to look at it
/// again.
#[test]
fn deliveries_that_come_of_age_are_served_in_order() {
    let store = Store::new(2);
    let mut scenario = Scenario::new(&store);
    let block = |scenario: &mut Scenario<'_>, number, line: &str| {
        assert_eq!(scenario.say_waiting(number, line), "");
        scenario.client.blocked.take().unwrap().waiter
    };
    scenario.check(9, "XGROUP CREATE s g $ MKSTREAM", "+OK", &[]);
    let start_ms = scenario.client.caller.now_ms;
    let bob = block(&mut scenario, 2, "XREADGROUP GROUP g bob BLOCK 0 CLAIM 100 STREAMS s >");
    let cyd = block(&mut scenario, 3, "XREADGROUP GROUP g cyd BLOCK 0 CLAIM 50 STREAMS s >");
    assert_eq!((bob.again_ms(), cyd.again_ms()), (None, None), "nothing to come of age");
    // Bob gets the new entry; Cyd can take it over next.
    let new = "*1 *2 $1 s *1 *4 $3 1-0 *2 $1 a $1 1 :0 :0";
    scenario.check(9, "XADD s 1 a 1", "$3 1-0", &[(2, new), (3, "(sooner)")]);
    assert_eq!(cyd.again_ms(), Some(start_ms + 50));
    let dan = block(&mut scenario, 4, "XREADGROUP GROUP g dan BLOCK 0 CLAIM 40 STREAMS s >");
    assert_eq!(dan.again_ms(), Some(start_ms + 40));
    // After a command that makes a delivery older, waiters are looked at sooner.
    let older = format!("XCLAIM s g ann 0 1 TIME {} JUSTID", start_ms - 20);
    scenario.check(9, &older, "*1 $3 1-0", &[(3, "(sooner)"), (4, "(sooner)")]);
    assert_eq!((cyd.again_ms(), dan.again_ms()), (Some(start_ms + 30), Some(start_ms + 20)));
    // A look before the time finds nothing; one after it serves the client that has waited for longest.
    scenario.look_again(&dan);
    assert_eq!(scenario.served(), []);
    scenario.client.caller.now_ms = start_ms + 35;
    scenario.look_again(&dan);
    let old = "*1 *2 $1 s *1 *4 $3 1-0 *2 $1 a $1 1 :55 :1";
    assert_eq!(scenario.served(), [(3, old.to_owned())]);
    assert_eq!(dan.again_ms(), Some(start_ms + 75), "it was just delivered");
    scenario.look_again(&cyd);
    assert_eq!(scenario.served(), [], "who has been served is looked at in vain");
    // Entries that are acknowledged or deleted do not come of age.
    scenario.check(9, "XACK s g 1", ":1", &[]);
    assert_eq!(dan.again_ms(), None);
    scenario.check(9, "XGROUP DESTROY s g", ":1", &[(4, GROUP_GONE)]);
    scenario.nobody_waits();
}

const GROUP_GONE: &str = "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option";

#[test]
fn client_needing_a_taken_lock_is_served_before_later_ones() {
    let store = Store::new(2);
    let keyspace = &store.engine.keyspace;
    // Locks are taken in ascending order: a thread that waits for that of `taken` does not hold that of `key`.
    let key =
        (0..).map(|number| format!("k{number}")).find(|key| keyspace.stripe_of(key.as_bytes()) > 0).unwrap();
    let taken =
        (0..).map(|number| format!("t{number}")).find(|key| keyspace.stripe_of(key.as_bytes()) == 0).unwrap();
    let mut scenario = Scenario::new(&store);
    scenario.check(1, &format!("BLPOP {key} {taken} 0"), "(waits)", &[]);
    thread::scope(|scope| {
        let lock = keyspace.lock_one(0);
        let pusher = scope.spawn(|| {
            let mut client = store.client(1);
            assert_eq!(client.say(&format!("RPUSH {key} x")), ":1");
            let served: Vec<u64> =
                client.worker.served.iter().map(|served| served.waiter.client().0).collect();
            assert_eq!(served, [1]);
        });
        while scenario.say(9, &format!("LLEN {key}")) == ":0" {
            thread::yield_now();
        }
        scenario.check(2, &format!("BLPOP {key} 0"), "(waits)", &[]);
        scenario.check(3, &format!("BLMPOP 0 1 {key} LEFT"), "(waits)", &[]);
        scenario.check(4, &format!("BLMOVE {key} {key} LEFT LEFT 0"), "(waits)", &[]);
        drop(lock);
        pusher.join().unwrap();
    });
    let one = format!("${} {key}", key.len());
    let (two, three) = (format!("*2 {one} $1 y"), format!("*2 {one} *1 $1 z"));
    scenario.check(9, &format!("RPUSH {key} y z"), ":2", &[(2, &two), (3, &three)]);
    scenario.check(9, &format!("RPUSH {key} v"), ":1", &[(4, "$1 v")]);
    scenario.nobody_waits();
}

const THREADS: usize = 4;
const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The messages to a thread of the test below: its waiter, and the reply.
type Messages = Mutex<Vec<(Arc<Waiter>, Vec<u8>)>>;

/// A thread that is a producer and, while it does not wait, a consumer.
struct Actor<'a> {
    number: usize,
    client: Client<'a>,
    messages: &'a [Messages],
    /// The command that waits, with its keys.
    waiting: Option<(Arc<Waiter>, Vec<&'static str>)>,
    /// Elements that were given to it.
    taken: Vec<String>,
    /// How many it has made.
    made: usize,
    random: u64,
}

impl Actor<'_> {
    fn random(&mut self, below: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % below
    }

    fn key(&mut self) -> &'static str {
        KEYS[self.random(KEYS.len())]
    }

    /// Says a line, and sends others the replies that it has brought them.
    fn say(&mut self, line: &str) -> String {
        let reply = self.client.say(line);
        for served in self.client.worker.served.drain(..) {
            let number = served.waiter.client().0 as usize;
            let reply = served.reply.expect("nobody waits for time to pass");
            self.messages[number].lock().unwrap().push((served.waiter, reply));
        }
        reply
    }

    /// Notes the elements of a reply: the bulk strings that name their makers.
    fn take(&mut self, reply: &str) {
        self.taken.extend(
            reply.split(' ').filter(|word| word.contains(':') && !word.starts_with(':')).map(str::to_owned),
        );
    }

    fn read_messages(&mut self) {
        let messages = std::mem::take(&mut *self.messages[self.number].lock().unwrap());
        for (waiter, reply) in messages {
            let (waiting, keys) = self.waiting.take().expect("only who waits is served");
            assert!(Arc::ptr_eq(&waiter, &waiting), "and only once");
            // Elements that BLMOVE has moved are not taken: they are somewhere else.
            if keys.len() != 1 {
                self.take(&String::from_utf8_lossy(&reply).replace("\r\n", " "));
            }
        }
    }

    fn act(&mut self, sequence: usize) {
        self.read_messages();
        match self.random(5) {
            0 | 1 => {
                let (key, number) = (self.key(), self.number);
                self.say(&format!("RPUSH {key} {number}:{sequence}"));
                self.made += 1;
            }
            2 if self.waiting.is_none() => {
                let (one, other) = (self.key(), self.key());
                // A single key shows BLMOVE's waiters.
                let (line, keys) = match self.random(3) {
                    0 => (format!("BLPOP {one} {other} 0"), vec![one, other]),
                    1 => (format!("BLMPOP 0 2 {one} {other} RIGHT COUNT 2"), vec![one, other]),
                    _ => (format!("BLMOVE {one} {other} LEFT RIGHT 0"), vec![one]),
                };
                let reply = self.say(&line);
                match self.client.blocked.take() {
                    Some(blocked) => self.waiting = Some((blocked.waiter, keys)),
                    None if keys.len() == 1 => {}
                    None => self.take(&reply),
                }
            }
            3 if self.waiting.is_some() => {
                let (waiter, _) = self.waiting.as_ref().expect("just looked");
                let engine = &self.client.store.engine;
                let inside = engine.keyspace.enter(self.number);
                let withdrawn = engine.withdraw(waiter) == Some(true);
                drop(inside);
                if withdrawn {
                    self.waiting = None;
                }
                // A client that is too late for that has been served: the reply is on its way.
                while !withdrawn && self.waiting.is_some() {
                    thread::yield_now();
                    self.read_messages();
                }
            }
            _ => {
                let key = self.key();
                let reply = self.say(&format!("LPOP {key}"));
                self.take(&reply);
            }
        }
    }
}

#[test]
fn elements_are_taken_once_and_no_client_is_forgotten() {
    const PHASES: usize = 3_000;
    const STEPS: usize = 8;
    let store = Store::new(THREADS);
    let messages: Vec<Messages> = (0..THREADS).map(|_| Messages::default()).collect();
    let barrier = Barrier::new(THREADS);
    let made = AtomicUsize::new(0);
    let taken: Mutex<Vec<String>> = Mutex::default();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (store, messages, barrier, made, taken) = (&store, &messages, &barrier, &made, &taken);
            scope.spawn(move || {
                let mut client = store.client(number);
                client.caller.client = ClientToken(number as u64, 0);
                let random = number as u64 + 1;
                let mut actor =
                    Actor { number, client, messages, waiting: None, taken: Vec::new(), made: 0, random };
                for phase in 0..PHASES {
                    for step in 0..STEPS {
                        actor.act(phase * STEPS + step);
                    }
                    // No thread acts between these two: clients that still wait have nothing to wait for.
                    barrier.wait();
                    actor.read_messages();
                    for key in actor.waiting.iter().flat_map(|(_, keys)| keys.clone()).collect::<Vec<_>>() {
                        assert_eq!(actor.client.say(&format!("LLEN {key}")), ":0", "{key} was forgotten");
                    }
                    barrier.wait();
                }
                if let Some((waiter, _)) = actor.waiting.take() {
                    let inside = store.engine.keyspace.enter(number);
                    assert_eq!(store.engine.withdraw(&waiter), Some(true));
                    drop(inside);
                }
                made.fetch_add(actor.made, SeqCst);
                taken.lock().unwrap().append(&mut actor.taken);
            });
        }
    });
    assert_eq!(store.engine.survey().blocking, BlockingKeys::default());
    let mut client = store.client(0);
    let mut all = taken.into_inner().unwrap();
    for key in KEYS {
        let left = client.say(&format!("LRANGE {key} 0 -1"));
        all.extend(left.split(' ').filter(|word| word.contains(':')).map(str::to_owned));
    }
    let different: HashSet<&String> = all.iter().collect();
    assert_eq!(different.len(), all.len(), "an element was given away twice");
    assert_eq!(all.len(), made.load(SeqCst), "an element was lost");
}
