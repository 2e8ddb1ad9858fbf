//! Commands that wait for keys, over real sockets, with clients on two workers.

use std::collections::HashMap;
use std::thread;

use crate::harness::{Peer, Server};

/// Sends a command that will wait, and returns once it does.
#[track_caller]
fn wait(peer: &mut Peer, observer: &mut Peer, line: &str) {
    let before = blocked(observer);
    peer.send(&line.split(' ').collect::<Vec<_>>());
    while blocked(observer) == before {
        thread::yield_now();
    }
}

/// `blocked_clients` of INFO.
fn blocked(observer: &mut Peer) -> usize {
    figure(observer, "blocked_clients")
}

fn figure(observer: &mut Peer, name: &str) -> usize {
    let info = observer.ask(&["INFO", "clients"]);
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("a line of INFO").trim().parse().unwrap()
}

#[track_caller]
fn expect(peer: &mut Peer, reply: &str) {
    assert_eq!(peer.read().replace("\r\n", " ").trim_end(), reply);
}

#[test]
fn blpop_serves_in_order_of_arrival_on_any_worker() {
    let server = Server::start(&[]);
    let mut observer = server.connect();
    let mut peers: Vec<Peer> = (0..6).map(|_| server.connect()).collect();
    for peer in &mut peers {
        wait(peer, &mut observer, "BLPOP k other 0");
    }
    assert_eq!(figure(&mut observer, "total_blocking_keys"), 2);
    observer.check("RPUSH k 0 1 2 3", ":4");
    observer.check("RPUSH other 4 5 6", ":3");
    for (number, peer) in peers.iter_mut().enumerate() {
        let key = if number < 4 { "$1 k" } else { "$5 other" };
        expect(peer, &format!("*2 {key} $1 {number}"));
    }
    observer.check("LRANGE other 0 -1", "*1 $1 6");
    while blocked(&mut observer) > 0 {
        thread::yield_now();
    }
    assert_eq!(figure(&mut observer, "total_blocking_keys"), 0);
}

#[test]
fn blpop_times_out_and_the_pipeline_behind_it_follows() {
    let server = Server::start(&[]);
    let (mut peer, mut observer) = (server.connect(), server.connect());
    peer.send_raw(b"BLPOP k 0.01\r\nBLMOVE k l LEFT LEFT 0.01\r\nPING\r\nHELLO 3\r\n");
    expect(&mut peer, "*-1");
    expect(&mut peer, "*-1");
    expect(&mut peer, "+PONG");
    peer.read();
    peer.check("BLMPOP 0.01 1 k LEFT", "_");
    peer.send_raw(b"BLPOP k 0\r\nRPUSH after 1\r\n");
    while blocked(&mut observer) == 0 {
        thread::yield_now();
    }
    observer.check("EXISTS after", ":0");
    observer.check("LPUSH k v", ":1");
    expect(&mut peer, "*2 $1 k $1 v");
    expect(&mut peer, ":1");
    observer.check("EXISTS k", ":0");
}

#[test]
fn entries_reach_all_readers_and_one_of_a_group_on_whatever_worker() {
    let server = Server::start(&[]);
    let mut observer = server.connect();
    observer.check("XGROUP CREATE s g $ MKSTREAM", "+OK");
    let mut readers: Vec<Peer> = (0..4).map(|_| server.connect()).collect();
    for reader in &mut readers {
        wait(reader, &mut observer, "XREAD BLOCK 0 STREAMS other s $ $");
    }
    let mut members: Vec<Peer> = (0..3).map(|_| server.connect()).collect();
    for (member, name) in members.iter_mut().zip(["one", "two", "three"]) {
        wait(member, &mut observer, &format!("XREADGROUP GROUP g {name} BLOCK 0 STREAMS s >"));
    }
    for (entry, member) in members.iter_mut().enumerate() {
        let id = format!("{}-1", entry + 1);
        observer.check(&format!("XADD s {id} f v"), &format!("$3 {id}"));
        let told = format!("*1 *2 $1 s *1 *2 $3 {id} *2 $1 f $1 v");
        if entry == 0 {
            readers.iter_mut().for_each(|reader| expect(reader, &told));
        }
        expect(member, &told);
    }
    observer.check("XPENDING s g", "*4 :3 $3 1-1 $3 3-1 *3 *2 $3 one $1 1 *2 $5 three $1 1 *2 $3 two $1 1");
    while blocked(&mut observer) > 0 {
        thread::yield_now();
    }
}

#[test]
fn client_unblock_and_client_kill_end_a_wait() {
    let server = Server::start(&[]);
    let (mut peer, mut observer) = (server.connect(), server.connect());
    let id = peer.ask(&["CLIENT", "ID"]);
    let id = id.trim_start_matches(':').trim();
    observer.check(&format!("CLIENT UNBLOCK {id}"), ":0");
    for (line, reply) in [
        (format!("CLIENT UNBLOCK {id}"), "*-1"),
        (format!("CLIENT UNBLOCK {id} TIMEOUT"), "*-1"),
        (format!("CLIENT UNBLOCK {id} ERROR"), "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ] {
        wait(&mut peer, &mut observer, "BLPOP k 0");
        observer.check(&line, ":1");
        observer.check(&line, ":0");
        expect(&mut peer, reply);
    }
    wait(&mut peer, &mut observer, "BRPOP k 0");
    let listed = observer.ask(&["CLIENT", "LIST", "ID", id]);
    assert!(listed.contains(" flags=b ") && listed.contains(" cmd=brpop "), "{listed}");
    observer.check(&format!("CLIENT KILL ID {id}"), ":1");
    // The client gets nothing from here on, though its connection may still be there.
    observer.check("RPUSH k v", ":1");
    observer.check("LRANGE k 0 -1", "*1 $1 v");
    assert!(peer.is_closed());
}

#[test]
fn client_unblock_ends_a_wait_for_the_disk_or_for_replicas() {
    let server = Server::start(&[]);
    let (mut peer, mut observer) = (server.connect(), server.connect());
    let id = peer.ask(&["CLIENT", "ID"]);
    let id = id.trim_start_matches(':').trim();
    for protocol in ["2", "3"] {
        peer.ask(&["HELLO", protocol]);
        for (command, reply) in [("WAIT 1 0", ":0"), ("WAITAOF 0 1 0", "*2 :0 :0")] {
            for (ending, reply) in [
                ("", reply),
                (" TIMEOUT", reply),
                (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
            ] {
                wait(&mut peer, &mut observer, command);
                observer.check(&format!("CLIENT UNBLOCK {id}{ending}"), ":1");
                observer.check(&format!("CLIENT UNBLOCK {id}{ending}"), ":0");
                expect(&mut peer, reply);
            }
        }
    }
    wait(&mut peer, &mut observer, "WAIT 1 0");
    observer.check(&format!("CLIENT KILL ID {id}"), ":1");
    assert!(peer.is_closed());
}

#[test]
fn blpop_of_a_client_that_has_gone_takes_nothing() {
    let server = Server::start(&[]);
    let (mut peer, mut observer) = (server.connect(), server.connect());
    wait(&mut peer, &mut observer, "BLPOP k 0");
    drop(peer);
    while blocked(&mut observer) > 0 {
        thread::yield_now();
    }
    observer.check("RPUSH k v", ":1");
    observer.check("LRANGE k 0 -1", "*1 $1 v");
}

#[test]
fn blpop_goes_on_waiting_when_a_pause_ends() {
    let server = Server::start(&[]);
    let (mut peer, mut observer) = (server.connect(), server.connect());
    wait(&mut peer, &mut observer, "BLPOP k 0");
    observer.check("CLIENT PAUSE 60000 WRITE", "+OK");
    observer.check("CLIENT UNPAUSE", "+OK");
    observer.check("RPUSH k v", ":1");
    expect(&mut peer, "*2 $1 k $1 v");
    peer.check("CLIENT REPLY ON", "+OK");
    peer.send(&["CLIENT", "REPLY", "OFF"]);
    wait(&mut peer, &mut observer, "BLPOP k 0");
    observer.check("RPUSH k v", ":1");
    peer.check("CLIENT REPLY ON", "+OK");
}

/// Producers and consumers on both workers, over lists in different stripes; consumers time out and are
/// unblocked all along.
#[test]
fn elements_are_delivered_once() {
    const PRODUCERS: usize = 3;
    const CONSUMERS: usize = 6;
    const ELEMENTS: usize = 2_000;
    let server = Server::start(&[]);
    let mut observer = server.connect();
    let received: Vec<String> = thread::scope(|scope| {
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|number| {
                let server = &server;
                scope.spawn(move || {
                    let mut peer = server.connect();
                    peer.check(&format!("CLIENT SETNAME consumer:{number}"), "+OK");
                    let command = ["BLPOP", "BRPOP"][number % 2];
                    let timeout = if number == 0 { "0.001" } else { "0" };
                    let mut received = Vec::new();
                    loop {
                        let reply = peer.ask(&[command, "q:0", "q:1", "q:2", "end", timeout]);
                        let words: Vec<&str> = reply.split("\r\n").collect();
                        match words[..] {
                            ["*2", _, "end", ..] => return received,
                            ["*2", _, _, _, element, ..] => received.push(element.to_owned()),
                            _ => assert!(reply == "*-1\r\n" || reply.starts_with("-UNBLOCKED"), "{reply}"),
                        }
                    }
                })
            })
            .collect();
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|number| {
                let server = &server;
                scope.spawn(move || {
                    let mut peer = server.connect();
                    for element in 0..ELEMENTS {
                        peer.ask(&["LPUSH", &format!("q:{}", element % 3), &format!("{number}:{element}")]);
                    }
                })
            })
            .collect();
        let mut disturber = server.connect();
        while !producers.iter().all(|producer| producer.is_finished()) {
            let list = disturber.ask(&["CLIENT", "LIST"]);
            for line in list.lines().filter(|line| line.contains("name=consumer:")) {
                let id = line.trim_start_matches("id=").split(' ').next().unwrap();
                let ending = if id.ends_with(['1', '3']) { "ERROR" } else { "TIMEOUT" };
                disturber.ask(&["CLIENT", "UNBLOCK", id, ending]);
            }
        }
        // Each of them takes one, and only once nothing else is left: that is the order of the keys.
        observer.check("RPUSH end 1 2 3 4 5 6", ":6");
        consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect()
    });
    observer.check("DBSIZE", ":0");
    let mut times: HashMap<&str, usize> = HashMap::new();
    received.iter().for_each(|element| *times.entry(element).or_default() += 1);
    assert_eq!(received.len(), PRODUCERS * ELEMENTS, "an element was lost");
    assert!(times.values().all(|times| *times == 1), "an element was delivered twice");
}
