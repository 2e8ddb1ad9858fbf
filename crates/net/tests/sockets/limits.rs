//! Clients that want too much: each is bounded or closed, and the others do not notice.

use std::time::Duration;

use dunlin_net::{Limits, OutputLimit};

use crate::harness::{Server, wait_until};

#[test]
fn client_that_does_not_read_is_served_up_to_a_bound() {
    let server = Server::start(1);
    let (mut peer, client) = server.meet();
    let count = 50_000;
    let before = client.input_bytes_total.get();
    let requests = "fill 1000\n".repeat(count);
    peer.send(&requests);
    // Everything has been received, though far from everything could be answered.
    wait_until("all requests have arrived", || {
        client.input_bytes_total.get() == before + requests.len() as u64
    });
    let line = "f".repeat(1000) + "\n";
    let waiting_max = 2 << 20;
    for _ in 0..count {
        assert!(client.output_bytes.get() <= waiting_max, "{client:?}");
        peer.expect(&line);
    }
}

fn normal(limit: OutputLimit) -> impl FnOnce(&mut Limits) {
    move |limits| limits.output[0] = limit
}

#[test]
fn hard_output_limit_closes_at_once() {
    let server = Server::start_with(1, |limits| {
        normal(OutputLimit { hard_bytes: 1 << 20, ..OutputLimit::default() })(limits);
    });
    let mut other = server.connect();
    let (mut peer, client) = server.meet();
    peer.send("big 100000000\n");
    wait_until("it is closed", || server.running().clients().find(client.id()).is_none());
    assert_eq!(server.total(|traffic| traffic.output_buffer_disconnections.get()), 1);
    other.send("echo still here\n");
    other.expect("still here\n");
}

#[test]
fn soft_output_limit_closes_in_time() {
    let soft = OutputLimit {
        soft_bytes: 1 << 20,
        soft_duration: Duration::from_millis(50),
        ..OutputLimit::default()
    };
    let server = Server::start_with(1, normal(soft));
    let (mut peer, client) = server.meet();
    peer.send("big 100000000\n");
    wait_until("it is closed", || server.running().clients().find(client.id()).is_none());
    assert_eq!(server.total(|traffic| traffic.output_buffer_disconnections.get()), 1);
}

#[test]
fn oversize_request_closes_its_client_only() {
    let server = Server::start_with(1, |limits| limits.query_buffer_max = 100_000);
    let (mut other, _) = server.meet();
    let (mut peer, client) = server.meet();
    peer.send("put 90000\n");
    peer.send(vec![0; 90_000]);
    peer.expect("0\n");
    peer.send("put 1000000\n");
    peer.send(vec![0; 100_001]);
    peer.expect_closed();
    wait_until("it is gone", || server.running().clients().find(client.id()).is_none());
    assert_eq!(server.total(|traffic| traffic.query_buffer_disconnections.get()), 1);
    other.send("echo still here\n");
    other.expect("still here\n");
}

#[test]
fn pipeline_beyond_the_query_buffer_limit_is_no_oversize_request() {
    let server = Server::start_with(1, |limits| limits.query_buffer_max = 100_000);
    let mut peer = server.connect();
    peer.send("echo x\n".repeat(200_000));
    peer.expect("x\n".repeat(200_000));
}

#[test]
fn replies_before_an_oversize_request_still_leave() {
    let server = Server::start_with(1, |limits| limits.query_buffer_max = 1000);
    let mut peer = server.connect();
    peer.send([b"echo x\nput 1000000\n", &[0; 5000][..]].concat());
    peer.expect("x\n");
    peer.expect_closed();
}

#[test]
fn clients_beyond_maxclients_are_told_so() {
    let server = Server::start_with(2, |limits| limits.clients_max = 3);
    let mut peers: Vec<_> = (0..3).map(|_| server.meet()).collect();
    let mut refused = server.connect();
    assert_eq!(refused.rest(), b"-ERR max number of clients reached\r\n");
    assert_eq!(server.total(|traffic| traffic.connections_rejected.get()), 1);
    assert_eq!(server.total(|traffic| traffic.connections_received.get()), 4);

    peers.pop();
    wait_until("there is room", || server.running().clients().connected() == 2);
    let (mut peer, client) = server.meet();
    peer.send("echo welcome\n");
    peer.expect("welcome\n");
    assert_eq!(client.id(), 4, "refused clients have no number");

    // The limit can be raised while the server runs.
    server.limits.store(Limits { clients_max: 4, ..Limits::default() }.into());
    server.meet();
}

#[test]
fn idle_clients_are_closed_after_the_timeout_but_waiting_ones_are_not() {
    let server = Server::start(1);
    let (mut waiting, waiting_client) = server.meet();
    waiting.send("echo good night\npark\n");
    waiting.expect("good night\n");
    let idle_max = Some(Duration::from_millis(50));
    server.limits.store(Limits { idle_max, ..Limits::default() }.into());
    let mut idle = server.connect();
    idle.expect_closed();
    let clients = server.running().clients();
    wait_until("only the waiting one is left", || clients.connected() == 1);
    server.running().queues().send(waiting_client.address, "good morning".to_owned());
    waiting.expect("good morning\n");
    waiting.expect_closed();
}
