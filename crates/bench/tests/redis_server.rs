//! The built-in tests and the comparison against a real `redis-server`, which must be on PATH.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use dunlin_bench::target::{Address, Target};
use dunlin_resp::Value;

struct Redis {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Redis {
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("dunlin-bench-test-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (child, port) = Self::spawn(&folder);
        let mut redis = Self { child, folder, port };
        let mut attempts = 1;
        while redis.target().client().is_err() {
            if let Some(status) = redis.child.try_wait().unwrap() {
                // Another process may have taken the port meanwhile.
                assert!(attempts < 10, "redis-server ends at once: {status}");
                attempts += 1;
                (redis.child, redis.port) = Self::spawn(&redis.folder);
            }
            thread::sleep(Duration::from_millis(5));
        }
        redis
    }

    /// A process, and the port that it listens on if no other process takes that before.
    fn spawn(folder: &Path) -> (Child, u16) {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let spawned = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()])
            .args(["--unixsocket", "socket"])
            .current_dir(folder)
            .stdout(Stdio::null())
            .spawn();
        match spawned {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                panic!("redis-server is not on PATH: install it (Debian: apt-get install redis-server)")
            }
            spawned => (spawned.unwrap(), port),
        }
    }

    fn target(&self) -> Target {
        Target::new(Address::Unix(self.folder.join("socket")))
    }

    fn call(&self, words: &[&str]) -> Value {
        self.target().client().unwrap().call(words).unwrap()
    }

    fn bench(&self, arguments: &str) -> bool {
        let flags = format!("-p {} {arguments}", self.port);
        run(&flags)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        fs::remove_dir_all(&self.folder).unwrap();
    }
}

/// Whether the program ends with success.
fn run(arguments: &str) -> bool {
    let code = dunlin_bench::run(arguments.split_whitespace().map(Into::into).collect());
    format!("{code:?}") == format!("{:?}", ExitCode::SUCCESS)
}

#[test]
fn built_in_tests_run_without_error_replies() {
    let redis = Redis::start("all");
    assert!(redis.bench("-q -n 500 -c 5 -r 1000 -P 3"));
    assert!(redis.bench("-n 500 -c 5 -3 --threads 2 --csv"), "RESP3");
    assert!(redis.bench("-q -n 50 -c 5 -k 0 -t set,get,zadd --dbnum 3"), "a connection for each pipeline");
}

#[test]
fn sequence_fills_a_database_exactly() {
    let redis = Redis::start("fill");
    assert!(redis.bench("-q -n 12345 -P 100 --threads 2 -d 70000 -c 3 SET short:__seq_int__ x"));
    assert_eq!(redis.call(&["DBSIZE"]), Value::Integer(12345));
    assert!(redis.bench("-q -n 20 -P 5 -d 70000 SET long:__seq_int__ __data__"));
    assert_eq!(redis.call(&["STRLEN", "long:000000000019"]), Value::Integer(70000));
}

#[test]
fn errors_of_the_server_fail_the_program() {
    let redis = Redis::start("errors");
    assert!(!redis.bench("-q -n 10 NOSUCH command"));
    assert!(!redis.bench("-q -n 10 -a wrong PING"));
    assert!(!redis.bench("-q -n 10 --dbnum 99 PING"));
    assert!(!redis.bench("-q -n 10 --no-such-flag PING"));
}

#[test]
#[cfg(target_os = "linux")]
fn quick_comparison_writes_all_pages() {
    // Fails with its own clear line when redis-server is missing.
    let folder = std::env::temp_dir().join(format!("dunlin-bench-compare-{}", std::process::id()));
    let out = folder.display();
    // In this process, "dunlin" would be the test program: Redis stands on both sides.
    assert!(run(&format!(
        "compare --servers redis,other --peer other=redis-server --quick --rounds 1 --out {out}"
    )));
    for topic in ["requests", "hot-key", "memory", "growth", "expiry"] {
        let page = fs::read_to_string(folder.join(format!("{topic}.md"))).unwrap();
        assert!(page.contains("| redis | other |") || topic == "hot-key", "{page}");
        let json = fs::read_to_string(folder.join(format!("{topic}.json"))).unwrap();
        assert!(
            serde_json::from_str::<serde_json::Value>(&json).unwrap()["figures"].as_array().unwrap().len()
                >= 4
        );
        assert!(fs::read_to_string(folder.join(format!("{topic}.svg"))).unwrap().contains("</svg>"));
    }
    fs::remove_dir_all(&folder).unwrap();
}
