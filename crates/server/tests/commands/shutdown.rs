//! SHUTDOWN.

use crate::harness::Server;

#[test]
fn options_that_cannot_be_obeyed_are_refused() {
    let server = Server::start(&["--dir", "/nonexistent"]);
    let mut peer = server.connect();
    for (line, expected) in [
        ("SHUTDOWN foo", "-ERR syntax error"),
        ("SHUTDOWN SAVE NOSAVE", "-ERR syntax error"),
        ("SHUTDOWN ABORT NOW", "-ERR syntax error"),
        ("SHUTDOWN SAVE ABORT", "-ERR syntax error"),
        ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
        ("SHUTDOWN SAVE", "-ERR Errors trying to SHUTDOWN. Check logs."),
        ("PING", "+PONG"),
    ] {
        peer.check(line, expected);
    }
}

#[test]
fn shutdown_answers_what_was_served_and_closes_every_client() {
    for words in [&["SHUTDOWN"][..], &["shutdown", "nosave", "now"], &["SHUTDOWN", "SAVE", "FORCE"]] {
        let server = Server::start(&["--dir", "/nonexistent"]);
        let (mut peer, mut other) = (server.connect(), server.connect());
        other.check("PING", "+PONG");
        peer.send(&["SET", "k", "v"]);
        peer.send(words);
        peer.send(&["SET", "k", "never"]);
        assert_eq!(peer.read(), "+OK\r\n");
        assert!(peer.is_closed() && other.is_closed());
        server.join();
    }
}
