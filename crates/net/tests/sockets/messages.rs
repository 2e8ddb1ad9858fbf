//! TestQueues to clients, whichever worker has them, and connections that wait for one.

use std::time::Duration;

use crate::harness::{Peer, Server, wait_until};

/// Two clients of different workers.
fn pair(server: &Server) -> ((Peer, u64), (Peer, u64)) {
    let (one, one_client) = server.meet();
    let (two, two_client) = server.meet();
    assert_ne!(one_client.address.worker, two_client.address.worker, "the emptier worker gets the next");
    ((one, one_client.id()), (two, two_client.id()))
}

#[test]
fn message_wakes_a_sleeping_worker() {
    let server = Server::start(2);
    let ((mut one, one_id), (mut two, two_id)) = pair(&server);
    for round in 0..1000 {
        one.send(format!("tell {two_id} ping {round}\n"));
        two.expect(format!("ping {round}\n"));
        two.send(format!("tell {one_id} pong {round}\n"));
        one.expect("told\n");
        one.expect(format!("pong {round}\n"));
        two.expect("told\n");
    }
}

#[test]
fn messages_arrive_in_order_behind_earlier_replies() {
    let server = Server::start(2);
    let ((mut one, one_id), _) = pair(&server);
    let requests: String = (0..1000).map(|number| format!("tell {one_id} message {number}\n")).collect();
    one.send(requests);
    let mut messages = 0;
    for _ in 0..2000 {
        let line = one.line();
        if line != "told" {
            assert_eq!(line, format!("message {messages}"));
            messages += 1;
        }
    }
    assert_eq!(messages, 1000);
}

#[test]
fn announcement_reaches_all_clients() {
    let server = Server::start(2);
    let mut peers: Vec<_> = (0..20).map(|_| server.meet().0).collect();
    peers[7].send("announce lunch\n");
    for peer in &mut peers {
        peer.expect("lunch\n");
    }
}

#[test]
fn parked_connection_is_served_again_after_its_message() {
    let server = Server::start(2);
    let ((mut one, _), (mut two, two_id)) = pair(&server);
    let client = server.running().clients().find(two_id).unwrap();
    let before = client.input_bytes_total.get();
    let requests = "echo first\npark\necho held back\necho and this\n";
    two.send(requests);
    two.expect("first\n");
    wait_until("all has arrived", || client.input_bytes_total.get() == before + requests.len() as u64);
    let more = "echo later\n".repeat(20_000);
    two.send(&more);
    wait_until("more has arrived", || {
        client.input_bytes_total.get() == before + (requests.len() + more.len()) as u64
    });
    assert_eq!(client.output_bytes_total.get(), (two_id.to_string() + "\nfirst\n").len() as u64);
    one.send(format!("tell {two_id} wake up\n"));
    two.expect("wake up\nheld back\nand this\n");
    two.expect("later\n".repeat(20_000));
}

#[test]
fn parked_connection_is_served_again_at_its_deadline() {
    let server = Server::start(1);
    let mut peer = server.connect();
    peer.send("nap 20\necho up\nnap 0\nnap 1\necho again\n");
    peer.expect("rested\nup\nrested\nrested\nagain\n");
}

#[test]
fn message_before_the_deadline_cancels_it() {
    let server = Server::start(2);
    let ((mut one, _), (mut two, two_id)) = pair(&server);
    two.send("echo napping\nnap 600000\nnap 30\necho end\n");
    two.expect("napping\n");
    one.send(format!("tell {two_id} early\n"));
    two.expect("early\nrested\nend\n");
}

#[test]
fn parked_client_that_hangs_up_is_noticed() {
    let server = Server::start(1);
    let (mut peer, _) = server.meet();
    peer.send("park\n");
    drop(peer);
    wait_until("it is gone", || server.running().clients().connected() == 0);
}

#[test]
fn client_is_killed_by_another() {
    let server = Server::start(2);
    let ((mut one, _), (mut two, two_id)) = pair(&server);
    two.send("echo parked\npark\n");
    two.expect("parked\n");
    one.send(format!("kill {two_id}\n"));
    one.expect("killed\n");
    two.expect_closed();
    wait_until("one is left", || server.running().clients().connected() == 1);
    // Messages for the dead is dropped, also when another client has its place.
    let (mut three, _) = server.meet();
    one.send(format!("tell {two_id} hello\nkill {two_id}\n"));
    one.expect("told\nkilled\n");
    three.send("echo untouched\n");
    three.expect("untouched\n");
}

#[test]
fn message_may_end_a_conversation() {
    let server = Server::start(2);
    let ((mut one, _), (mut two, two_id)) = pair(&server);
    one.send(format!("tell {two_id} leave\n"));
    assert_eq!(two.rest(), b"leave\n");
}

#[test]
fn neighbours_are_attended_to_in_the_middle_of_a_request() {
    let server = Server::start(1);
    let (mut holder, client) = server.meet();
    let (mut other, _) = server.meet();
    let holder_id = client.id();
    holder.send("echo before\nhold\necho behind\n");
    other.send("echo one\n");
    other.expect("one\n");
    // Clients that come, go, or have only begun to speak.
    for number in 0..20 {
        let mut accepted = server.connect();
        accepted.send(format!("echo {number}\nquit\n"));
        accepted.expect(format!("{number}\nbye\n"));
        accepted.expect_closed();
    }
    other.send("echo in pie");
    let mut accepted = server.connect();
    accepted.send("echo two\n");
    accepted.expect("two\n");
    other.send("ces\n");
    other.expect("in pieces\n");
    // Messages for the holder wait, in order, after its reply.
    accepted.send(format!("tell {holder_id} first\nannounce second\ntell {holder_id} third\n"));
    accepted.expect("told\ntold\nsecond\n");
    other.expect("second\n");
    holder.send("echo last\n");
    other.send("let go\n");
    other.expect("done\n");
    let expected = ["before", "held", "behind", "first", "second", "third"];
    let mut lines: Vec<String> = (0..7).map(|_| holder.line()).collect();
    // Bytes that it has sent meanwhile are read when it is back, before or behind the messages.
    lines.retain(|line| line != "last");
    assert_eq!(lines, expected);
}

#[test]
fn connection_holding_up_others_can_be_killed_and_stopped() {
    let server = Server::start(1);
    let (mut holder, client) = server.meet();
    let (mut other, _) = server.meet();
    holder.send("hold\n");
    other.send("echo here\n");
    other.expect("here\n");
    other.send(format!("kill {}\necho still\nlet go\n", client.id()));
    other.expect("killed\nstill\ndone\n");
    holder.expect("held\n");
    holder.expect_closed();
    let mut holder = server.connect();
    holder.send("hold\n");
    other.send("echo here\n");
    other.expect("here\n");
    server.stop(Duration::from_secs(1));
}
