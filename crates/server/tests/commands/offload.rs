//! Commands that are offloaded, over real sockets.

use crate::harness::{Peer, Server};

#[track_caller]
fn expect(peer: &mut Peer, reply: &str) {
    assert_eq!(peer.read().replace("\r\n", " ").trim_end(), reply);
}

#[test]
fn offloaded_commands_are_answered_in_order() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut peer = server.connect();
    peer.check("DEBUG VISITS-MAX x", "-ERR value is not an integer or out of range");
    peer.check("DEBUG VISITS-MAX 0", "+OK");
    peer.send_raw(b"RPUSH l a b\r\nLRANGE l 0 -1\r\nPING\r\nSUNIONSTORE d l\r\nSADD s 1 2\r\nSUNIONSTORE d s\r\nSMEMBERS d\r\n");
    for reply in [
        ":2",
        "*2 $1 a $1 b",
        "+PONG",
        "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ":2",
        ":2",
        "*2 $1 1 $1 2",
    ] {
        expect(&mut peer, reply);
    }
    peer.send_raw(b"MULTI\r\nSMEMBERS d\r\nSINTERSTORE e d s\r\nEXEC\r\n");
    for reply in ["+OK", "+QUEUED", "+QUEUED", "*2 *2 $1 1 $1 2 :2"] {
        expect(&mut peer, reply);
    }
    peer.send_raw(b"CLIENT REPLY SKIP\r\nSMEMBERS d\r\nPING\r\n");
    expect(&mut peer, "+PONG");
    peer.send_raw(b"HELLO 3\r\n");
    peer.read();
    peer.check("SMEMBERS d", "~2 $1 1 $1 2");
    peer.check("SORT l ALPHA DESC", "*2 $1 b $1 a");
    peer.check("SORT s STORE sorted", ":2");
    peer.check("LRANGE sorted 0 -1", "*2 $1 1 $1 2");
    peer.check("SORT l", "-ERR One or more scores can't be converted into double");
}

#[test]
fn long_replies_arrive_whole_while_others_are_served() {
    const MEMBERS: usize = 100_000;
    let server = Server::start(&[]);
    let (mut peer, mut other) = (server.connect(), server.connect());
    let members: Vec<String> = (0..MEMBERS).map(|number| format!("member:{number:06}")).collect();
    for part in members.chunks(10_000) {
        let words: Vec<&str> = ["RPUSH", "l"].into_iter().chain(part.iter().map(String::as_str)).collect();
        peer.ask(&words);
    }
    for _ in 0..5 {
        peer.send(&["LRANGE", "l", "0", "-1"]);
        other.check("PING", "+PONG");
        let reply = peer.read();
        let told = reply.lines().filter(|line| line.starts_with("member:"));
        assert!(told.eq(members.iter().map(String::as_str)));
        // The list is read while there is a view of it, and afterwards changed.
        other.check("LLEN l", ":100000");
        other.check("LSET l 0 member:000000", "+OK");
    }
    peer.send_raw(b"LRANGE l 0 -1\r\nRPUSH l last\r\nLRANGE l -1 -1\r\n");
    assert_eq!(peer.read().lines().count(), 1 + 2 * MEMBERS);
    expect(&mut peer, ":100001");
    expect(&mut peer, "*1 $4 last");
}

#[test]
fn deliveries_are_taken_over_while_others_are_served() {
    const ENTRIES: usize = 20_000;
    let server = Server::start(&[]);
    let (mut peer, mut other) = (server.connect(), server.connect());
    peer.ask(&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]);
    let added: Vec<String> = (1..=ENTRIES).map(|number| format!("XADD s {number}-0 f v\r\n")).collect();
    for part in added.chunks(1_000) {
        peer.send_raw(part.concat().as_bytes());
        part.iter().for_each(|_| drop(peer.read()));
    }
    peer.ask(&["XREADGROUP", "GROUP", "g", "c0", "STREAMS", "s", ">"]);
    for round in 1..=3 {
        let consumer = format!("c{round}");
        peer.send(&["XAUTOCLAIM", "s", "g", &consumer, "0", "0", "COUNT", "15000", "JUSTID"]);
        other.check("PING", "+PONG");
        let reply = peer.read();
        assert!(reply.starts_with("*3\r\n$7\r\n15001-0\r\n*15000\r\n$3\r\n1-0\r\n"), "{}", &reply[..40]);
        assert!(reply.ends_with("$7\r\n15000-0\r\n*0\r\n"));
        // The command has run when it is answered.
        let told = format!("*4 :20000 $3 1-0 $7 20000-0 *2 *2 $2 c0 $4 5000 *2 $2 {consumer} $5 15000");
        other.check("XPENDING s g", &told);
    }
}

#[test]
fn offloaded_writes_of_a_client_that_left_are_stored() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let (mut peer, mut other) = (server.connect(), server.connect());
    other.check("DEBUG VISITS-MAX 0", "+OK");
    other.check("SADD s 1 2 3", ":3");
    peer.send_raw(b"SUNIONSTORE d s\r\n");
    drop(peer);
    while other.ask(&["EXISTS", "d"]) != ":1\r\n" {
        std::thread::yield_now();
    }
    other.check("SCARD d", ":3");
}
