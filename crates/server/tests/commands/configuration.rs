//! CONFIG, and what directives do the moment they change.

use crate::harness::Server;

#[test]
fn values_are_shown_and_changed() {
    let server = Server::start(&[]);
    let mut peer = server.connect();
    for (line, expected) in [
        ("CONFIG GET hz", "*2 $2 hz $2 10"),
        ("config get h? maxmemory-p*", "*4 $2 hz $2 10 $16 maxmemory-policy $10 noeviction"),
        ("CONFIG GET nothing-like-this", "*0"),
        ("CONFIG SET hz 20 timeout 100", "+OK"),
        ("CONFIG GET hz timeout", "*4 $2 hz $2 20 $7 timeout $3 100"),
        (
            "CONFIG SET hz 30 timeout -1",
            "-ERR CONFIG SET failed (possibly related to argument 'timeout') - argument must be between 0 and 2147483647 inclusive",
        ),
        ("CONFIG GET hz", "*2 $2 hz $2 20"),
        ("CONFIG", "-ERR wrong number of arguments for 'config' command"),
        ("CONFIG GET", "-ERR wrong number of arguments for 'config|get' command"),
        ("CONFIG SET", "-ERR wrong number of arguments for 'config|set' command"),
        ("CONFIG SET hz", "-ERR wrong number of arguments for 'config|set' command"),
        ("CONFIG SET hz 10 timeout", "-ERR syntax error"),
        ("CONFIG SET foo 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'foo'"),
        (
            "CONFIG SET databases 1",
            "-ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config",
        ),
        (
            "CONFIG SET dir /",
            "-ERR CONFIG SET failed (possibly related to argument 'dir') - can't set protected config",
        ),
        ("CONFIG RESETSTAT", "+OK"),
        ("CONFIG RESETSTAT x", "-ERR wrong number of arguments for 'config|resetstat' command"),
        ("CONFIG REWRITE", "-ERR The server is running without a config file"),
        ("CONFIG FOO", "-ERR unknown subcommand 'FOO'. Try CONFIG HELP."),
    ] {
        peer.check(line, expected);
    }
    let help = peer.ask(&["CONFIG", "HELP"]);
    let beginning = "*11\r\n+CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n+GET ";
    assert!(help.starts_with(beginning), "{help}");
}

#[test]
fn maxclients_beyond_the_open_files_is_refused_with_the_possible_number() {
    let server = Server::start(&["--maxclients", "100"]);
    let mut peer = server.connect();
    let reply = peer.ask(&["CONFIG", "SET", "maxclients", "4000000000"]);
    let number = reply
        .strip_prefix(
            "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able to handle the specified number of clients, try with ",
        )
        .and_then(|rest| rest.trim_end().parse::<u64>().ok());
    assert!(number.is_some_and(|number| number > 0 && number < 4_000_000_000), "{reply}");
    peer.check("CONFIG GET maxclients", "*2 $10 maxclients $3 100");
}

#[test]
fn limits_of_connections_follow_the_configuration() {
    let server = Server::start(&[]);
    let mut peer = server.connect();
    peer.check("CONFIG SET maxclients 1", "+OK");
    let mut refused = server.connect();
    assert_eq!(refused.read(), "-ERR max number of clients reached\r\n");
    peer.check("CONFIG SET maxclients 2", "+OK");
    server.connect().check("PING", "+PONG");

    peer.check("CONFIG SET proto-max-bulk-len 1mb", "+OK");
    // The length alone is refused; with its bytes behind it, the peer might still be writing.
    peer.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048577\r\n");
    assert_eq!(peer.read(), "-ERR Protocol error: invalid bulk length\r\n");
}

#[test]
fn config_rewrite_changes_the_file() {
    let path = std::env::temp_dir().join(format!("dunlin-rewrite-{}.conf", std::process::id()));
    std::fs::write(&path, "# mine\nhz 11\nsave 900 1\nrdbcompression yes\n").unwrap();
    let server = Server::start(&[path.to_str().unwrap()]);
    let mut peer = server.connect();
    peer.check("CONFIG GET hz save", "*4 $2 hz $2 11 $4 save $0");
    peer.check("CONFIG SET hz 12", "+OK");
    peer.check("CONFIG REWRITE", "+OK");
    let text = std::fs::read_to_string(&path).unwrap();
    // The flag of the harness has the last word.
    assert!(text.starts_with("# mine\nhz 12\nsave \"\"\nrdbcompression yes\n"), "{text}");
    std::fs::remove_file(&path).unwrap();
}
