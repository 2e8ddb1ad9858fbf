//! MEMORY and `maxmemory`.

use crate::harness::{Peer, Server};

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

/// A figure of MEMORY STATS.
fn figure(peer: &mut Peer, name: &str) -> u64 {
    figure_of(&peer.ask(&["MEMORY", "STATS"]), name)
}

/// A figure of a reply.
fn figure_of(reply: &str, name: &str) -> u64 {
    let (_, behind) =
        reply.split_once(&format!("\r\n{name}\r\n:")).unwrap_or_else(|| panic!("{name}: {reply}"));
    behind.split("\r\n").next().unwrap().parse().unwrap()
}

#[test]
fn maxmemory_holds_from_the_next_command_on() {
    let server = Server::start(&[]);
    let (mut peer, mut other) = (server.connect(), server.connect());
    peer.check("CONFIG SET maxmemory 1", "+OK");
    peer.check("SET k v", OOM);
    other.check("INCR n", OOM);
    peer.check("GET k", "$-1");
    peer.check("SET k", "-ERR wrong number of arguments for 'set' command");
    // In one pipeline, too.
    for words in
        [&["CONFIG", "SET", "maxmemory", "0"][..], &["SET", "k", "v"], &["CONFIG", "SET", "maxmemory", "1"]]
    {
        peer.send(words);
    }
    peer.send(&["SET", "k", "w"]);
    let replies: Vec<String> = (0..4).map(|_| peer.read()).collect();
    assert_eq!(replies, ["+OK\r\n", "+OK\r\n", "+OK\r\n", &format!("{OOM}\r\n")]);
    peer.check("GET k", "$1 v");
}

#[test]
fn pipeline_stays_near_the_memory_limit() {
    let server = Server::start(&[]);
    let mut peer = server.connect();
    let limit = figure(&mut peer, "total.allocated") + (1 << 20);
    peer.check(&format!("CONFIG SET maxmemory {limit}"), "+OK");
    let value = "x".repeat(1000);
    let count = 4000;
    for number in 0..count {
        peer.send(&["SET", &format!("key:{number}"), &value]);
    }
    let refused = (0..count).filter(|_| peer.read().starts_with("-OOM")).count();
    // About 1000 of them fit.
    assert!((2500..3500).contains(&refused), "{refused}");
    let over = figure(&mut peer, "total.allocated").saturating_sub(limit);
    assert!(over < 256 * 1024, "{over} bytes over the limit");
}

#[test]
fn usage_counts_cell_heap_and_slot() {
    let server = Server::start(&[]);
    let mut peer = server.connect();
    peer.check("SET k 1", "+OK");
    // 4 bytes of head, key, value: a cell of 8; 6 for the slot.
    peer.check("MEMORY USAGE k", ":14");
    peer.check("MEMORY USAGE k SAMPLES 0", ":14");
    let large = "x".repeat(100_000);
    peer.send(&["SET", "large", &large]);
    assert_eq!(peer.read(), "+OK\r\n");
    let usage: usize = peer.ask(&["MEMORY", "USAGE", "large"])[1..].trim_end().parse().unwrap();
    assert!((100_000..100_200).contains(&usage), "{usage}");
    for (line, expected) in [
        ("MEMORY USAGE none", "$-1"),
        ("MEMORY USAGE none foo", "-ERR syntax error"),
        ("MEMORY USAGE k SAMPLES", "-ERR syntax error"),
        ("MEMORY USAGE k SAMPLES -1", "-ERR syntax error"),
        ("MEMORY USAGE k SAMPLES x", "-ERR value is not an integer or out of range"),
        ("MEMORY USAGE", "-ERR wrong number of arguments for 'memory|usage' command"),
        ("MEMORY PURGE", "+OK"),
        ("MEMORY PURGE x", "-ERR wrong number of arguments for 'memory|purge' command"),
        ("MEMORY FOO", "-ERR unknown subcommand 'FOO'. Try MEMORY HELP."),
        ("MEMORY DOCTOR", "$55 There is too little data to say anything about memory."),
    ] {
        peer.check(line, expected);
    }
    assert!(peer.ask(&["MEMORY", "MALLOC-STATS"]).starts_with('$'));
}

#[test]
fn stats_are_redis_s_map_and_add_up() {
    let server = Server::start(&[]);
    let mut peer = server.connect();
    let start = figure(&mut peer, "startup.allocated");
    peer.check("SET k v", "+OK");
    assert_eq!(figure(&mut peer, "keys.count"), 1);
    assert_eq!(figure(&mut peer, "startup.allocated"), start);
    let reply = peer.ask(&["MEMORY", "STATS"]);
    assert!(reply.starts_with("*56\r\n$14\r\npeak.allocated\r\n:"), "{reply}");
    assert!(reply.contains("$4\r\ndb.0\r\n*6\r\n$23\r\noverhead.hashtable.main\r\n:"), "{reply}");
    let [total, overhead, dataset] =
        ["total.allocated", "overhead.total", "dataset.bytes"].map(|name| figure_of(&reply, name));
    assert_eq!(total, overhead + dataset);
}
