//! Connections come and go, in any number and over any transport.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use dunlin_net::{Transport, reserve_open_files};

use crate::harness::{Server, wait_until};

#[test]
fn unix_socket_has_its_permissions_and_goes_with_the_server() {
    let server = Server::start(1);
    let path = server.unix_path.clone();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o770);
    let mut stream = UnixStream::connect(&path).unwrap();
    let requests = "echo over a file\n".repeat(1000);
    stream.write_all(requests.as_bytes()).unwrap();
    let mut replies = vec![0; 1000 * 12];
    stream.read_exact(&mut replies).unwrap();
    assert_eq!(replies, "over a file\n".repeat(1000).as_bytes());
    let clients = server.running().clients().list();
    assert_eq!(clients.len(), 1);
    assert_eq!(clients[0].transport, Transport::Unix(path.as_path().into()));
    assert_eq!(clients[0].transport.peer_text(), format!("{}:0", path.display()));
    server.stop(Duration::ZERO);
    assert!(!path.exists());
}

#[test]
fn server_serves_two_thousand_clients_at_once() {
    let count = 2000;
    // Both ends of every connection are in this process.
    assert_eq!(reserve_open_files(2 * count + 500), Ok(2 * count + 500));
    let server = Server::start(2);
    let mut peers: Vec<_> = (0..count).map(|_| server.connect()).collect();
    for (number, peer) in peers.iter_mut().enumerate() {
        peer.send(format!("echo {number}\n"));
    }
    for (number, peer) in peers.iter_mut().enumerate() {
        peer.expect(format!("{number}\n"));
    }
    let clients = server.running().clients();
    assert_eq!(clients.connected(), count);
    let listed = clients.list();
    assert!(listed.iter().map(|client| client.id()).eq(1..=count as u64));
    let of_first = listed.iter().filter(|client| client.address.worker == 0).count();
    assert_eq!(of_first, count / 2, "workers share the connections evenly");
    for (peer, client) in peers[..10].iter_mut().zip(&listed) {
        assert_eq!(client.transport.peer_text(), peer.stream.local_addr().unwrap().to_string());
        assert_eq!(client.transport.local_text(), peer.stream.peer_addr().unwrap().to_string());
    }
    drop(peers);
    wait_until("all are gone", || clients.connected() == 0);
    assert!(clients.list().is_empty());
}

#[test]
fn connection_ends_at_a_reset() {
    let server = Server::start(1);
    let (mut peer, _) = server.meet();
    peer.send("big 50000000\n");
    peer.receive(10);
    // Closing with unread bytes resets.
    socket2::SockRef::from(&peer.stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    wait_until("it is gone", || server.running().clients().connected() == 0);
}

#[test]
fn quit_is_answered_and_nothing_after_it() {
    let server = Server::start(1);
    let mut peer = server.connect();
    peer.send("echo one\nquit\necho two\n");
    assert_eq!(peer.rest(), b"one\nbye\n");
}

/// A reply that could not be sent, because the client was gone, once went to the client that was
/// served next.
#[test]
fn unsent_reply_goes_to_no_other_client() {
    let server = Server::start(1);
    let mut other = server.connect();
    for _ in 0..100 {
        let mut vanishing = server.connect();
        vanishing.send("echo for one only\n".repeat(1000));
        socket2::SockRef::from(&vanishing.stream).set_linger(Some(Duration::ZERO)).unwrap();
        drop(vanishing);
        other.send("echo for the other\n");
        other.expect("for the other\n");
    }
}

#[test]
fn shutdown_sends_what_was_answered() {
    let server = Server::start(2);
    let mut peer = server.connect();
    let size = 30_000_000;
    peer.send(format!("big {size}\n"));
    peer.expect(format!("${size}\r\n"));
    let reader = std::thread::spawn(move || peer.rest());
    server.stop(Duration::from_secs(60));
    assert_eq!(reader.join().unwrap().len(), size + 2);
}

#[test]
fn shutdown_does_not_wait_for_clients_that_do_not_read() {
    let server = Server::start(2);
    let mut peer = server.connect();
    peer.send("big 100000000\n");
    peer.expect("$100000000\r\n");
    server.stop(Duration::from_millis(1));
}
