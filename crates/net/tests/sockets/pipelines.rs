//! Requests in any number of pieces, replies of any size.

use std::net::Shutdown;

use crate::harness::{Server, wait_until};

#[test]
fn request_may_be_split_at_every_byte() {
    let server = Server::start(1);
    let request = b"echo one\nput 6\nhello\necho two\n";
    for split in 1..request.len() {
        let (mut peer, client) = server.meet();
        let before = client.input_bytes_total.get();
        peer.send(&request[..split]);
        wait_until("the first part has arrived", || client.input_bytes_total.get() == before + split as u64);
        peer.send(&request[split..]);
        peer.expect("one\n542\ntwo\n");
    }
}

#[test]
fn request_may_come_byte_by_byte() {
    let server = Server::start(1);
    let (mut peer, client) = server.meet();
    for byte in b"echo drop by drop\nput 4\nabc\n" {
        let before = client.input_bytes_total.get();
        peer.send([*byte]);
        wait_until("the byte has arrived", || client.input_bytes_total.get() == before + 1);
    }
    peer.expect("drop by drop\n304\n");
}

#[test]
fn pipeline_of_100_000_requests_in_one_write() {
    let server = Server::start(2);
    let mut peer = server.connect();
    let requests: String = (0..100_000).map(|number| format!("echo {number}\n")).collect();
    let replies: String = (0..100_000).map(|number| format!("{number}\n")).collect();
    peer.send(requests);
    peer.expect(replies);
}

/// Client libraries write a whole pipeline before they read its first reply: neither side may wait
/// for the other, however far the replies exceed what the sockets' buffers hold.
#[test]
fn client_may_write_everything_before_it_reads() {
    let server = Server::start(1);
    let mut peer = server.connect();
    let count = 60_000;
    peer.send("fill 1000\n".repeat(count) + "echo end\n");
    let line = "f".repeat(1000) + "\n";
    for _ in 0..count {
        peer.expect(&line);
    }
    peer.expect("end\n");
}

#[test]
fn large_shared_replies_arrive_whole_and_in_order() {
    let server = Server::start(1);
    let mut peer = server.connect();
    let mut expected = Vec::new();
    for size in [1, 16_383, 16_384, 65_535, 65_536, 3_000_000, 20_000_000] {
        peer.send(format!("echo before\nbig {size}\necho after\n"));
        expected.extend_from_slice(format!("before\n${size}\r\n").as_bytes());
        expected.resize(expected.len() + size, b'b');
        expected.extend_from_slice(b"\r\nafter\n");
    }
    peer.expect(expected);
}

#[test]
fn large_argument_arrives_whole_between_small_requests() {
    let server = Server::start(1);
    let mut peer = server.connect();
    for size in [60_000, 65_536, 65_537, 1_000_000, 10_000_000] {
        let payload: Vec<u8> = (0..size).map(|number| (number * 7 % 251) as u8).collect();
        let sum: u64 = payload.iter().map(|&byte| u64::from(byte)).sum();
        peer.send([format!("echo a\nput {size}\n").as_bytes(), &payload, b"echo b\n"].concat());
        peer.expect(format!("a\n{sum}\nb\n"));
    }
}

#[test]
fn announced_argument_costs_no_memory_before_it_arrives() {
    let server = Server::start(1);
    let (mut peer, client) = server.meet();
    let before = client.input_bytes_total.get();
    peer.send("put 500000000\n");
    peer.send(vec![b'x'; 40_000]);
    let arrived = before + 14 + 40_000;
    wait_until("it has arrived", || {
        client.input_bytes_total.get() == arrived && client.query_buffer_bytes.get() == 14 + 40_000
    });
    assert!(client.query_buffer_free_bytes.get() <= 1 << 20, "{client:?}");
}

#[test]
fn idle_client_owns_no_buffers() {
    let server = Server::start(1);
    let (mut peer, client) = server.meet();
    peer.send([&b"put 1000000\n"[..], &vec![0; 1_000_000], b"big 5000000\n"].concat());
    peer.expect("0\n$5000000\r\n");
    peer.receive(5_000_002);
    wait_until("buffers are empty", || {
        client.output_bytes.get() == 0
            && client.query_buffer_bytes.get() == 0
            && client.query_buffer_free_bytes.get() == 0
    });
}

#[test]
fn half_closed_client_gets_every_reply() {
    let server = Server::start(2);
    let mut peer = server.connect();
    peer.send("echo a\necho b\necho unfinished");
    peer.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(peer.rest(), b"a\nb\n");

    // Also when the replies exceed what the sockets hold, and requests were still held back.
    let mut peer = server.connect();
    peer.send("fill 1000\n".repeat(20_000));
    peer.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(peer.rest().len(), 20_000 * 1001);
    wait_until("both are gone", || server.running().clients().connected() == 0);
}

#[test]
fn lone_request_costs_one_read_and_one_write() {
    let server = Server::start(1);
    let mut peer = server.connect();
    for _ in 0..1000 {
        peer.send("echo x\n");
        peer.expect("x\n");
    }
    let reads = server.total(|traffic| traffic.reads.get());
    let writes = server.total(|traffic| traffic.writes.get());
    assert!(reads <= 1000 && writes <= 1000, "{reads} reads and {writes} writes");
}
