//! A running server's reports about itself: INFO, SLOWLOG, COMMANDLOG, LATENCY, COMMAND.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nothing here waits this long unless it is broken.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// The binary, serving on a Unix socket of its own, and one connection to it.
struct Server {
    child: Child,
    folder: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Server {
    fn start(flags: &[&str]) -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("dunlin-told-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("socket");
        let mut child = Command::new(env!("CARGO_BIN_EXE_dunlin"))
            .args(["server", "--port", "0", "--threads", "2", "--dir"])
            .arg(&folder)
            .arg("--unixsocket")
            .arg(&path)
            .args(flags)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        let stream = loop {
            match UnixStream::connect(&path) {
                Ok(stream) => break stream,
                Err(error) => assert!(
                    started.elapsed() < WAIT_LIMIT && child.try_wait().unwrap().is_none(),
                    "the server does not serve: {error}"
                ),
            }
            std::thread::yield_now();
        };
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        Self { child, folder, stream: BufReader::new(stream) }
    }

    /// Sends requests in one write.
    fn send(&mut self, requests: &[&[&str]]) {
        let mut bytes = Vec::new();
        for words in requests {
            write!(bytes, "*{}\r\n", words.len()).unwrap();
            words.iter().for_each(|word| write!(bytes, "${}\r\n{word}\r\n", word.len()).unwrap());
        }
        self.stream.get_mut().write_all(&bytes).unwrap();
    }

    /// A reply in RESP2, elements separated by blanks and arrays in brackets.
    fn receive(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match (kind, rest.parse::<i64>()) {
            ("$" | "*", Ok(-1)) => "nil".to_owned(),
            ("$", Ok(length)) => {
                let mut payload = vec![0; length as usize + 2];
                self.stream.read_exact(&mut payload).unwrap();
                payload.truncate(length as usize);
                String::from_utf8(payload).unwrap()
            }
            ("*", Ok(length)) => {
                let elements: Vec<String> = (0..length).map(|_| self.receive()).collect();
                format!("[{}]", elements.join(" "))
            }
            _ => rest.to_owned(),
        }
    }

    fn ask(&mut self, words: &str) -> String {
        let words: Vec<&str> = words.split(' ').collect();
        self.send(&[&words]);
        self.receive()
    }

    /// The value of an INFO line.
    #[track_caller]
    fn info(&mut self, section: &str, name: &str) -> String {
        let text = self.ask(&format!("INFO {section}"));
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("no {name} in\n{text}")).to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn commands_are_counted_exactly_however_they_are_pipelined() {
    let mut server = Server::start(&[]);
    // More than a window, in runs of different length, with errors and refusals between.
    let mut requests: Vec<&[&str]> = vec![&["set", "text", "word"]; 40];
    requests.extend(vec![&["GET", "text"][..]; 50]);
    requests.extend([&["get", "none"][..], &["incr", "text"], &["get"], &["no-such"], &["set", "n", "1"]]);
    requests.extend(vec![&["incr", "n"][..]; 7]);
    server.send(&requests);
    for _ in 0..requests.len() {
        server.receive();
    }
    let mut counted = |name: &str| {
        let line = server.info("commandstats", &format!("cmdstat_{name}"));
        let field = |name: &str| {
            let mut fields = line.split(',').filter_map(|field| field.split_once('='));
            fields.find(|(field, _)| *field == name).unwrap().1.parse::<u64>().unwrap()
        };
        (field("calls"), field("rejected_calls"), field("failed_calls"))
    };
    assert_eq!(counted("set"), (41, 0, 0));
    assert_eq!(counted("get"), (51, 1, 0));
    assert_eq!(counted("incr"), (8, 0, 1));
    assert_eq!(server.info("errorstats", "errorstat_ERR"), "count=3");
    assert_eq!(server.info("stats", "total_error_replies"), "3");
    assert_eq!(server.info("stats", "keyspace_hits"), "50");
    assert_eq!(server.info("stats", "keyspace_misses"), "1");
    assert_eq!(server.info("keyspace", "db0"), "keys=2,expires=0,avg_ttl=0");
    let histogram = server.ask("latency histogram get no-such set");
    assert!(histogram.starts_with("[get [calls 51 histogram_usec ["), "{histogram}");
    assert!(histogram.contains(" set [calls 41 "), "{histogram}");
}

#[test]
fn info_keyspace_averages_the_time_to_live() {
    const AT_MS: u64 = 4_000_000_000_000;
    let mut server = Server::start(&[]);
    let mut average_expiry_ms = |commands: &[String], expires: usize| {
        commands.iter().for_each(|command| {
            server.ask(command);
        });
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        let line = server.info("keyspace", "db0");
        let (head, average) = line.rsplit_once("avg_ttl=").unwrap();
        assert!(head.ends_with(&format!("expires={expires},")), "{line}");
        now_ms + average.parse::<u64>().unwrap()
    };
    let near = |told: u64, expected: u64| assert!(told.abs_diff(expected) < 600_000, "{told}, {expected}");
    let set = |key: &str, hours: u64| format!("set {key} v pxat {}", AT_MS + hours * 3_600_000);
    near(average_expiry_ms(&[set("a", 0), set("b", 10), "set c v".to_owned()], 2), AT_MS + 5 * 3_600_000);
    near(average_expiry_ms(&[set("b", 20)], 2), AT_MS + 10 * 3_600_000);
    near(average_expiry_ms(&[format!("pexpireat b {}", AT_MS + 4 * 3_600_000)], 2), AT_MS + 2 * 3_600_000);
    near(average_expiry_ms(&["del a".to_owned()], 1), AT_MS + 4 * 3_600_000);
    near(average_expiry_ms(&[set("d", 6), "persist b".to_owned()], 1), AT_MS + 6 * 3_600_000);
    assert_eq!(server.info("keyspace", "db0").split_once(',').unwrap().0, "keys=3");
    server.ask("persist d");
    assert_eq!(server.info("keyspace", "db0"), "keys=3,expires=0,avg_ttl=0");
}

#[test]
fn info_answers_the_sections_asked_for() {
    let mut server = Server::start(&[]);
    let titles = |text: String| -> Vec<String> {
        text.lines().filter_map(|line| line.strip_prefix("# ")).map(str::to_lowercase).collect()
    };
    let default = titles(server.ask("info"));
    assert_eq!(default, titles(server.ask("info default")));
    assert_eq!(default.first().map(String::as_str), Some("server"));
    assert!(!default.contains(&"commandstats".to_owned()));
    let all = titles(server.ask("info everything"));
    assert_eq!(all.len(), default.len() + 2);
    assert_eq!(titles(server.ask("info Keyspace server")), ["server", "keyspace"]);
    assert_eq!(server.ask("info no-such-section"), "");
    assert_eq!(server.info("server", "redis_mode"), "standalone");
    assert_eq!(server.info("replication", "role"), "master");
    assert_eq!(server.info("clients", "connected_clients"), "1");
    let used: u64 = server.info("memory", "used_memory").parse().unwrap();
    server.send(&[&["set", "long", &"x".repeat(100_000)]]);
    server.receive();
    let now: u64 = server.info("memory", "used_memory").parse().unwrap();
    assert!((100_000..120_000).contains(&(now - used)), "{used} and then {now}");
}

#[test]
fn slowlog_keeps_a_short_form_of_every_slow_command() {
    let mut server = Server::start(&["--slowlog-log-slower-than", "0", "--slowlog-max-len", "3"]);
    let long = "y".repeat(130);
    let many: Vec<&str> = std::iter::once("del").chain(std::iter::repeat_n("k", 40)).collect();
    server.send(&[&["get", "a"], &["set", "k", &long], &many, &["incr", "k"]]);
    (0..4).for_each(|_| drop(server.receive()));
    assert_eq!(server.ask("slowlog len"), "3");
    let log = server.ask("slowlog get -1");
    assert!(log.contains("[slowlog len]") && log.contains("[incr k]"), "{log}");
    assert!(log.contains(" k ... (10 more arguments)] "), "{log}");
    assert!(log.contains("/socket:0"), "the client's address: {log}");
    assert_eq!(server.ask("slowlog reset"), "OK");
    assert!(server.ask("slowlog get 1").contains("[slowlog reset]"));
    assert_eq!(server.ask("slowlog get -2"), "ERR count should be greater than or equal to -1");
}

#[test]
fn large_requests_and_replies_are_logged_by_their_size() {
    // No time decides: however slow the machine, nothing is slow.
    let flags = [
        ["--commandlog-request-larger-than", "1000"],
        ["--commandlog-reply-larger-than", "1000"],
        ["--slowlog-log-slower-than", "-1"],
    ]
    .concat();
    let mut server = Server::start(&flags);
    let value = "z".repeat(1500);
    server.send(&[&["get", "a"], &["set", "a", &value], &["get", "a"], &["get", "b"]]);
    (0..4).for_each(|_| drop(server.receive()));
    let request = server.ask("commandlog get -1 large-request");
    let size = format!("*3\r\n$3\r\nset\r\n$1\r\na\r\n$1500\r\n{value}\r\n").len();
    assert!(request.contains(&format!(" {size} [set a zzz")) && request.starts_with("[[0 "), "{request}");
    assert!(request.contains("zzz... (1372 more bytes)]"), "{request}");
    let reply = server.ask("commandlog get 10 LARGE-REPLY");
    assert!(reply.contains(" 1509 [get a] "), "{reply}");
    assert_eq!(server.ask("commandlog len large-reply"), "1");
    assert_eq!(server.ask("commandlog reset large-reply"), "OK");
    assert_eq!(server.ask("commandlog len large-reply"), "0");
    assert_eq!(server.ask("commandlog len slow"), "0");
}

#[test]
fn keys_are_found_in_whole_command_lines() {
    let mut server = Server::start(&[]);
    for (request, expected) in [
        ("command getkeys set k v", "[k]"),
        ("command getkeysandflags set k v", "[[k [OW update]]]"),
        ("command getkeysandflags SET k v GET", "[[k [RW access update]]]"),
        ("command getkeys no-such k", "ERR Invalid command specified"),
        ("command getkeys slowlog no-such", "ERR Invalid command specified"),
        ("command getkeys ping hello", "ERR The command has no key arguments"),
        ("command getkeys zunionstore out 2 a b", "[out a b]"),
        ("command getkeys zunionstore out -2 a b", "ERR Invalid arguments specified for command"),
        ("command getkeys zunionstore out 0 a b", "ERR Invalid arguments specified for command"),
        ("command getkeys zunionstore out 3 a b", "ERR Invalid arguments specified for command"),
        ("command getkeys zunionstore out x a b", "ERR Invalid arguments specified for command"),
        ("command getkeysandflags zdiffstore out 3 a b", "ERR Invalid arguments specified for command"),
        ("command getkeys zinter 1x a b", "ERR Invalid arguments specified for command"),
        ("command getkeys eval script -1 a b", "[]"),
        ("command getkeys get a b", "ERR Invalid number of arguments specified for command"),
        ("command list filterby pattern SLOWLOG|*", "[slowlog|get slowlog|help slowlog|len slowlog|reset]"),
        ("command list filterby module any", "[]"),
        ("command list filterby nothing any", "ERR syntax error"),
        ("command info no-such", "[nil]"),
        ("command docs no-such", "[]"),
        ("command no-such", "ERR unknown subcommand 'no-such'. Try COMMAND HELP."),
        ("slowlog", "ERR wrong number of arguments for 'slowlog' command"),
        ("latency graph any", "ERR No samples available for event 'any'"),
    ] {
        assert_eq!(server.ask(request), expected, "{request}");
    }
    let count: usize = server.ask("command count").parse().unwrap();
    let listed = server.ask("command list");
    let (subcommands, commands): (Vec<_>, Vec<_>) = listed.split(' ').partition(|name| name.contains('|'));
    assert_eq!(commands.len(), count);
    assert!(subcommands.contains(&"slowlog|get"), "{listed}");
}
