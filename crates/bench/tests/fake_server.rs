//! Runs against a server of a few lines whose answers are under control: right ones, errors, nonsense,
//! too many, none.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use dunlin_bench::load::{Load, LoadError, Outcome, Plan, Progress};
use dunlin_bench::target::{Address, Credentials, Target, TargetError};
use dunlin_bench::template::{Filling, Template};
use dunlin_resp::{Value, ValueDecoder};

/// The fake's reply to a request.
type Answer = fn(&[Value]) -> Option<&'static [u8]>;

struct Fake {
    port: u16,
    requests: Arc<AtomicU64>,
}

impl Fake {
    /// Listens on a free port; a connection is closed when `answer` gives nothing.
    fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let counted = Arc::clone(&counted);
                thread::spawn(move || serve(stream.unwrap(), answer, &counted));
            }
        });
        Self { port, requests }
    }

    fn target(&self) -> Target {
        Target::new(Address::Tcp("127.0.0.1".into(), self.port))
    }

    fn run(&self, plan: &Plan) -> Result<Outcome, LoadError> {
        Load::connect(&self.target(), plan)?.run(&Progress::default(), None)
    }

    /// Runs the whole program.
    fn bench(&self, arguments: &str) -> ExitCode {
        let flags = format!("-p {} -q -n 20 -c 2 {arguments}", self.port);
        dunlin_bench::run(flags.split_whitespace().map(Into::into).collect())
    }
}

fn serve(mut stream: TcpStream, answer: Answer, counted: &AtomicU64) {
    let (mut decoder, mut unread, mut chunk) = (ValueDecoder::default(), Vec::new(), [0; 4096]);
    loop {
        let length = stream.read(&mut chunk).unwrap_or(0);
        if length == 0 {
            return;
        }
        unread.extend_from_slice(&chunk[..length]);
        // A request is an array of strings: the decoder of replies reads it.
        while let (used, Some(Value::Array(words))) = {
            let decoded = decoder.decode(&unread).unwrap();
            unread.drain(..decoded.0);
            decoded
        } {
            assert!(used > 0);
            counted.fetch_add(1, Ordering::Relaxed);
            match answer(&words) {
                Some(reply) if stream.write_all(reply).is_ok() => {}
                _ => return,
            }
        }
    }
}

fn is(words: &[Value], name: &[u8]) -> bool {
    words[0].as_bytes() == Some(name)
}

fn plan(words: &str, requests: u64, clients: usize, pipeline: usize) -> Plan {
    let mut plan = Plan::new(Template::words(words), Filling::new(Some(100), 10));
    plan.requests = Some(requests);
    (plan.clients, plan.pipeline) = (clients, pipeline);
    plan
}

fn code(code: ExitCode) -> String {
    format!("{code:?}")
}

#[test]
fn load_sends_every_request_once_and_counts_every_reply() {
    for (requests, clients, pipeline, threads) in
        [(1, 1, 1, 1), (1000, 3, 7, 2), (101, 50, 100, 1), (5000, 2, 1000, 2)]
    {
        let fake = Fake::start(|_| Some(b"$4\r\n\r\n\r\n\r\n"));
        let plan = Plan { threads, ..plan("SET key:__rand_int__ __data__", requests, clients, pipeline) };
        let outcome = fake.run(&plan).unwrap();
        assert_eq!(outcome.tally.replies, requests);
        assert_eq!(outcome.tally.payload_bytes, 4 * requests);
        assert_eq!(fake.requests.load(Ordering::Relaxed), requests);
        assert!(outcome.latencies.summary().max > 0.0);
    }
}

#[test]
fn open_loop_sends_all_its_requests() {
    let fake = Fake::start(|_| Some(b"+OK\r\n"));
    let plan = Plan { rate: Some(50_000.0), ..plan("PING", 2000, 4, 2) };
    let outcome = fake.run(&plan).unwrap();
    assert_eq!((outcome.tally.replies, outcome.unsent), (2000, 0));
    // The last request is due 40 ms after the first, however fast the server is.
    assert!(outcome.elapsed >= Duration::from_nanos(1999 * 20_000));
}

#[test]
fn slices_of_time_add_up_to_the_whole() {
    let fake = Fake::start(|_| Some(b"+OK\r\n"));
    let slice = Some(Duration::from_millis(10));
    let plan = Plan { rate: Some(10_000.0), slice, threads: 2, ..plan("PING", 1000, 4, 2) };
    let outcome = fake.run(&plan).unwrap();
    let counts: Vec<u64> = outcome.slices.iter().map(|slice| slice.count()).collect();
    // The last request is due after 100 ms.
    assert!(counts.len() >= 10, "{counts:?}");
    assert_eq!((counts.iter().sum::<u64>(), outcome.latencies.count()), (1000, 1000));
}

#[test]
fn connections_are_opened_anew_when_they_shall_not_be_kept() {
    let fake = Fake::start(|_| Some(b"+OK\r\n"));
    let plan = Plan { keep_alive: false, ..plan("PING", 100, 3, 2) };
    assert_eq!(fake.run(&plan).unwrap().tally.replies, 100);
}

#[test]
fn error_replies_are_counted_by_text_and_fail_the_program() {
    let fake = Fake::start(|words| match words[0].as_bytes() {
        Some(b"GET") => Some(b"-ERR no such luck\r\n"),
        Some(b"INFO") => Some(b"-ERR unknown command\r\n"),
        _ => Some(b"+OK\r\n"),
    });
    let outcome = fake.run(&plan("GET k", 30, 2, 4)).unwrap();
    assert_eq!((outcome.tally.errors, outcome.errors["ERR no such luck"]), (30, 30));
    assert_eq!(code(fake.bench("GET k")), code(ExitCode::FAILURE));
    assert_eq!(code(fake.bench("--allow-errors GET k")), code(ExitCode::SUCCESS));
    assert_eq!(code(fake.bench("SET k v")), code(ExitCode::SUCCESS));
}

#[test]
fn nonsense_ends_the_run_and_is_quoted() {
    let fake = Fake::start(|_| Some(b"HTTP/1.1 400 Bad Request\r\n"));
    let error = fake.run(&plan("GET k", 10, 1, 1)).unwrap_err();
    assert!(matches!(error, LoadError::NotAReply(_)));
    assert!(error.to_string().contains("near \"HTTP/1.1 400"), "{error}");
    assert_eq!(code(fake.bench("GET k")), code(ExitCode::FAILURE));
}

#[test]
fn load_ends_at_more_replies_than_requests() {
    let fake = Fake::start(|_| Some(b"+OK\r\n+OK\r\n"));
    assert!(matches!(fake.run(&plan("GET k", 10, 1, 1)).unwrap_err(), LoadError::Unasked));
}

#[test]
fn load_ends_when_the_connection_closes() {
    let fake = Fake::start(|_| None);
    let error = fake.run(&plan("GET k", 10, 2, 1)).unwrap_err();
    assert!(matches!(error, LoadError::Target(TargetError::Closed | TargetError::Io { .. })), "{error}");
}

#[test]
fn load_gives_up_a_silent_server() {
    let fake = Fake::start(|_| Some(b""));
    let plan = Plan { stall_max: Some(Duration::from_millis(50)), ..plan("GET k", 10, 2, 1) };
    assert!(matches!(fake.run(&plan).unwrap_err(), LoadError::Stalled(_)));
}

#[test]
fn open_loop_charges_a_silent_server_for_all_due_requests() {
    let fake = Fake::start(|_| Some(b""));
    let plan = Plan {
        requests: None,
        duration: Some(Duration::from_millis(100)),
        rate: Some(1000.0),
        stall_max: Some(Duration::from_millis(300)),
        ..plan("GET k", 0, 2, 1)
    };
    // Two requests are under way for ever, so the run cannot end well, with any other request due.
    assert!(matches!(fake.run(&plan).unwrap_err(), LoadError::Stalled(_)));
}

#[test]
fn introduction_comes_first_and_its_refusal_ends_the_run() {
    let fake =
        Fake::start(|words| Some(if is(words, b"AUTH") { b"-WRONGPASS invalid\r\n" } else { b"+OK\r\n" }));
    let mut target = fake.target();
    let plan = plan("GET k", 10, 1, 1);
    target.database = 5;
    let outcome = Load::connect(&target, &plan).unwrap().run(&Progress::default(), None).unwrap();
    assert_eq!((outcome.tally.replies, fake.requests.load(Ordering::Relaxed)), (10, 11));

    target.credentials = Some(Credentials { username: None, password: "x".into() });
    let error = Load::connect(&target, &plan).unwrap().run(&Progress::default(), None).unwrap_err();
    assert_eq!(error.to_string(), "the server refused a connection: WRONGPASS invalid");
    let error = target.client().unwrap_err();
    assert_eq!(error.to_string(), "the server refused AUTH: WRONGPASS invalid");
    assert_eq!(code(fake.bench("-a x PING")), code(ExitCode::FAILURE));
}

#[test]
fn json_and_the_cpu_time_come_from_the_server_that_was_asked() {
    let fake = Fake::start(|words| {
        Some(if is(words, b"INFO") {
            b"$43\r\nused_cpu_sys:1.000000\r\nused_cpu_user:2.0000\r\n"
        } else {
            b"+OK\r\n"
        })
    });
    let folder = std::env::temp_dir().join(format!("dunlin-bench-json-{}", std::process::id()));
    assert_eq!(code(fake.bench(&format!("--json {} SET k v", folder.display()))), code(ExitCode::SUCCESS));
    let json: serde_json::Value = serde_json::from_slice(&fs::read(&folder).unwrap()).unwrap();
    fs::remove_file(&folder).unwrap();
    assert_eq!((json[0]["test"].as_str(), json[0]["requests"].as_u64()), (Some("SET k v"), Some(20)));
    assert_eq!(json[0]["server_cpu_us_per_request"].as_f64(), Some(0.0));
}

#[test]
fn cluster_flag_is_refused_clearly() {
    let fake = Fake::start(|_| Some(b"+OK\r\n"));
    assert_eq!(code(fake.bench("--cluster PING")), code(ExitCode::FAILURE));
    assert_eq!(fake.requests.load(Ordering::Relaxed), 0);
}
