//! DEBUG, LOLWUT and the clocks.

use std::time::{Duration, Instant};

use crate::harness::Server;

#[test]
fn debug_is_refused_unless_it_is_allowed() {
    let refused = "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server.";
    let server = Server::start(&[]);
    let mut peer = server.connect();
    for (line, expected) in [
        ("DEBUG SLEEP 0", refused),
        ("DEBUG HELP", refused),
        ("DEBUG FOO", refused),
        ("DEBUG", "-ERR wrong number of arguments for 'debug' command"),
    ] {
        peer.check(line, expected);
    }
    Server::start(&["--enable-debug-command", "local"]).connect().check("DEBUG SLEEP 0", "+OK");
}

/// The replies are those of redis-server 7.0.15, digests included.
#[test]
fn replies_are_those_of_redis() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut peer = server.connect();
    let unknown = |name: &str| {
        format!("-ERR unknown subcommand or wrong number of arguments for '{name}'. Try DEBUG HELP.")
    };
    let positive = "-ERR value is out of range, must be positive";
    let begun = Instant::now();
    let zeros = "0".repeat(40);
    let fifty = "x".repeat(50);
    for (line, expected) in [
        ("DEBUG FOO", unknown("FOO").as_str()),
        ("DEBUG SLEEP", &unknown("SLEEP")),
        ("DEBUG SLEEP x", "+OK"),
        ("DEBUG sleep -1", "+OK"),
        ("DEBUG OBJECT k", "-ERR no such key"),
        ("DEBUG OBJECT k x", &unknown("OBJECT")),
        ("DEBUG DIGEST", &format!("+{zeros}")),
        ("DEBUG DIGEST-VALUE none", &format!("*1 +{zeros}")),
        (&format!("SET k {fifty}"), "+OK"),
        ("DEBUG DIGEST", "+e188ea2cf7243470a9573e317bb1dea1d9c30a0f"),
        ("DEBUG DIGEST-VALUE k m", &format!("*2 +0bd0ba55ab9ee2bf15c3c5086e54e4cc642b2cc4 +{zeros}")),
        ("DEBUG STRINGMATCH-LEN 5 a*", ":1"),
        ("DEBUG STRINGMATCH-LEN 5 a*b", ":0"),
        ("DEBUG STRINGMATCH-LEN -1 a", positive),
        ("DEBUG POPULATE", &unknown("POPULATE")),
        ("DEBUG POPULATE x", positive),
        ("DEBUG POPULATE -1", positive),
        ("DEBUG POPULATE 1 a -1", positive),
        ("DEBUG POPULATE 3 p 10 x", &unknown("POPULATE")),
        ("DEBUG POPULATE 3", "+OK"),
        ("GET key:2", "$7 value:2"),
        ("GET key:3", "$-1"),
        ("SET p:0 mine", "+OK"),
        ("DEBUG POPULATE 3 p 10", "+OK"),
        ("GET p:0", "$4 mine"),
        ("GET p:1", "$10 value:1\0\0\0"),
        ("DEBUG POPULATE 1 q 3", "+OK"),
        ("GET q:0", "$3 val"),
        ("DEBUG ERROR", &unknown("ERROR")),
        ("DEBUG ERROR foo", "-foo"),
        ("DEBUG ERROR a\nb", "-a b"),
        ("DEBUG LOG hi", "+OK"),
        ("DEBUG CHANGE-REPL-ID", "+OK"),
        ("DEBUG SET-ACTIVE-EXPIRE 1", "+OK"),
        ("DEBUG RELOAD x", "-ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options."),
        ("ROLE", "*3 $6 master :0 *0"),
        ("ROLE x", "-ERR wrong number of arguments for 'role' command"),
    ] {
        peer.check(line, expected);
    }
    let object = peer.ask(&["DEBUG", "OBJECT", "k"]);
    assert!(object.starts_with("+Value at:0x"), "{object}");
    assert!(object.contains(" refcount:1 encoding:raw serializedlength:12 lru:"), "{object}");
    let is_idle = !object.trim_end().ends_with(" lru_seconds_idle:0");
    assert!(!is_idle || begun.elapsed() >= Duration::from_secs(1), "{object}");
}

#[test]
fn debug_digest_ignores_order() {
    let options = ["--enable-debug-command", "yes"];
    let digest = |keys: &[&str]| {
        let server = Server::start(&options);
        let mut peer = server.connect();
        keys.iter().for_each(|key| peer.check(&format!("SET {key} 1"), "+OK"));
        peer.ask(&["DEBUG", "DIGEST"])
    };
    assert_eq!(digest(&["a", "b", "c"]), digest(&["c", "a", "b"]));
    assert_ne!(digest(&["a", "b", "c"]), digest(&["a", "b"]));
}

#[test]
fn debug_protocol_answers_every_type() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut peer = server.connect();
    for (name, expected) in [
        ("string", "$11 Hello World"),
        ("integer", ":12345"),
        ("double", "$5 3.141"),
        ("bignum", "$37 1234567999999999999999999999999999999"),
        ("null", "$-1"),
        ("array", "*3 :0 :1 :2"),
        ("set", "*3 :0 :1 :2"),
        ("map", "*6 :0 :0 :1 :1 :2 :0"),
        ("attrib", "$39 Some real reply following the attribute"),
        ("push", "-ERR RESP2 is not supported by this command"),
        ("verbatim", "$25 This is a verbatim\nstring"),
        ("true", ":1"),
        ("FALSE", ":0"),
        (
            "foo",
            "-ERR Wrong protocol type name. Please use one of the following: string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
        ),
    ] {
        peer.check(&format!("DEBUG PROTOCOL {name}"), expected);
    }
}

#[test]
fn debug_sleep_holds_up_no_other_client() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let (mut sleeper, mut other) = (server.connect(), server.connect());
    let begun = Instant::now();
    sleeper.send(&["SET", "k", "1"]);
    sleeper.send(&["DEBUG", "SLEEP", "0.2"]);
    sleeper.send(&["INCR", "k"]);
    assert_eq!(sleeper.read(), "+OK\r\n");
    // Whichever worker has it: all other clients are served.
    for _ in 0..4 {
        server.connect().check("PING", "+PONG");
    }
    other.check("PING", "+PONG");
    assert_eq!(sleeper.read(), "+OK\r\n");
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!(sleeper.read(), ":2\r\n");
}

#[test]
fn clocks_and_the_flock() {
    let server = Server::start(&[]);
    let mut peer = server.connect();
    let unix = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let before = unix();
    let time = peer.ask(&["TIME"]);
    let parts: Vec<&str> = time.split("\r\n").collect();
    assert_eq!(parts[0], "*2");
    let (seconds, micros): (u64, u64) = (parts[2].parse().unwrap(), parts[4].parse().unwrap());
    assert!((before..=unix()).contains(&seconds) && micros < 1_000_000, "{time}");
    let started: u64 = peer.ask(&["LASTSAVE"])[1..].trim_end().parse().unwrap();
    assert!(started <= seconds && started + 60 > seconds);

    let version = format!("Dunlin ver. {}\n\r\n", env!("CARGO_PKG_VERSION"));
    let flock = peer.ask(&["LOLWUT"]);
    assert!(flock.ends_with(&version) && flock.contains("Dunlins over the flats."), "{flock}");
    let small = peer.ask(&["LOLWUT", "VERSION", "1", "20", "3"]);
    assert!(small.len() < flock.len());
    let plain = peer.ask(&["LOLWUT", "VERSION", "99"]);
    assert!(plain.ends_with(&version) && plain.starts_with("$18\r\nDunlin"), "{plain}");
    peer.check("LOLWUT VERSION x", "-ERR value is not an integer or out of range");
}
