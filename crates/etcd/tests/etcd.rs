//! Against a real etcd, which each test starts on a port of its own: the conformance suite, passwords, TLS, failures.

#[path = "../../cluster/tests/conformance/mod.rs"]
mod conformance;

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use dunlin_cluster::meta::{Meta, MetaError, Revision, Transaction, TransactionOutcome};
use dunlin_etcd::{Etcd, Options, Tls};
use tempfile::TempDir;

/// This port has no listener, and no connection gets it.
const NOBODY: &str = "http://127.0.0.1:1";

/// A port that is free, and another one each time: the last may not be listened on yet.
fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        if GIVEN.lock().unwrap().insert(port) {
            return port;
        }
    }
}

/// An etcd of one member.
struct Server {
    child: Child,
    url: String,
    directory: TempDir,
}

impl Server {
    fn start() -> Self {
        Self::start_with(TempDir::new().unwrap(), "http", &[])
    }

    fn start_with(directory: TempDir, scheme: &str, flags: &[&str]) -> Self {
        let free_url = || format!("{scheme}://127.0.0.1:{}", free_port());
        let url = free_url();
        let mut server = Self { child: Self::spawn(&directory, &url, flags), url, directory };
        for _ in 0..10 {
            if server.listens() {
                return server;
            }
            // Another process has taken one of its ports meanwhile.
            server.url = free_url();
            server.child = Self::spawn(&server.directory, &server.url, flags);
        }
        panic!("etcd ends at once");
    }

    /// Starts it again, behind [`Self::stop`].
    fn restart(&mut self) {
        for _ in 0..10 {
            self.child = Self::spawn(&self.directory, &self.url, &[]);
            if self.listens() {
                return;
            }
        }
        panic!("etcd ends at once");
    }

    fn spawn(directory: &TempDir, url: &str, flags: &[&str]) -> Child {
        let peer = format!("http://127.0.0.1:{}", free_port());
        Command::new("etcd")
            .arg("--data-dir")
            .arg(directory.path().join("data"))
            .args(["--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")])
            .args(["--log-level", "error"])
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd, of the package etcd-server")
    }

    /// Waits until it listens, though it may have no leader yet: requests wait for that. `false`: it has ended.
    fn listens(&mut self) -> bool {
        let port = self.url.rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "etcd does not listen");
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            thread::sleep(Duration::from_millis(50));
        }
        // Another process may have been the one that listens.
        self.child.try_wait().unwrap().is_none()
    }

    fn client(&self) -> Etcd {
        Etcd::new(patient(vec![self.url.clone()])).unwrap()
    }

    fn ctl(&self, words: &[&str]) {
        let status = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            // Its own limits are some seconds: etcd may not serve yet, and the machine may be busy.
            .args(["--endpoints", &self.url, "--dial-timeout", "60s", "--command-timeout", "60s"])
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(status.expect("etcdctl, of the package etcd-client").success(), "{words:?}");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Suspends it. A thread of the process takes the signal and tells the others, which answer until then.
    fn suspend(&self) {
        self.signal("-STOP");
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_stopped = |task: io::Result<fs::DirEntry>| {
            let stat = task.and_then(|task| fs::read_to_string(task.path().join("stat")));
            stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
        };
        let began = Instant::now();
        // Other systems than Linux have no such files.
        while fs::read_dir(&tasks).is_ok_and(|mut tasks| !tasks.all(is_stopped)) {
            assert!(began.elapsed() < Duration::from_secs(60), "etcd is not suspended");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Long enough for a loaded machine.
fn patient(endpoints: Vec<String>) -> Options {
    Options { timeout_ms: 20_000, ..Options::new(endpoints) }
}

fn hasty(endpoints: Vec<String>) -> Etcd {
    Etcd::new(Options { timeout_ms: 1_000, ..Options::new(endpoints) }).unwrap()
}

fn put(key: &str) -> Transaction {
    Transaction::default().put(key, *b"1")
}

struct Bed(Server, Etcd);

impl conformance::Testbed for Bed {
    fn meta(&self) -> &dyn Meta {
        &self.1
    }

    fn compact(&self, revision: Revision) {
        self.0.ctl(&["compaction", &revision.to_string()]);
    }

    fn pass(&self, ms: u64) {
        thread::sleep(Duration::from_millis(ms));
    }
}

#[test]
fn etcd_conforms() {
    let server = Server::start();
    let client = server.client();
    conformance::run(&Bed(server, client));
}

#[test]
fn transaction_without_an_answer_is_unknown() {
    let server = Server::start();
    let (client, hasty) = (server.client(), hasty(vec![server.url.clone()]));
    assert!(matches!(client.commit(&put("a")), TransactionOutcome::Done(_)));
    server.suspend();
    // If this process stood still for a second before the request has left, it asks again.
    let has_not_left = |outcome: &TransactionOutcome| {
        let TransactionOutcome::Failed(MetaError::Unavailable(why)) = outcome else { return false };
        why.ends_with("timeout: resolve") || why.ends_with("timeout: connect")
    };
    let mut outcomes = (0..10).map(|_| hasty.commit(&put("b").compare("b", 0)));
    let outcome = outcomes.find(|outcome| !has_not_left(outcome)).unwrap();
    assert!(matches!(outcome, TransactionOutcome::Unknown(_)), "{outcome:?}");
    assert!(matches!(hasty.range(""), Err(MetaError::Unavailable(_))));
    server.signal("-CONT");
    // The put may be in by now, or come yet. Proposing it again settles it: exactly one of the two succeeds.
    let again = put("b").compare("b", 0);
    let began = Instant::now();
    while !matches!(client.commit(&again), TransactionOutcome::Done(_) | TransactionOutcome::Refused(_)) {
        assert!(began.elapsed() < Duration::from_secs(60), "etcd does not answer");
    }
    assert_eq!(client.get("b").unwrap().items.len(), 1);
}

#[test]
fn transaction_that_reaches_nobody_has_failed() {
    let client = hasty(vec![NOBODY.to_owned()]);
    assert!(matches!(client.commit(&put("a")), TransactionOutcome::Failed(MetaError::Unavailable(_))));
    assert!(matches!(client.range(""), Err(MetaError::Unavailable(_))));
    let client = Etcd::new(patient(vec!["http://no-such-host.invalid:2379".to_owned()])).unwrap();
    let outcome = client.commit(&put("a"));
    assert!(matches!(outcome, TransactionOutcome::Failed(MetaError::Unavailable(_))), "{outcome:?}");
}

#[test]
fn client_uses_another_endpoint_when_one_is_gone() {
    let mut server = Server::start();
    let client = Etcd::new(patient(vec![NOBODY.to_owned(), server.url.clone()])).unwrap();
    assert!(matches!(client.commit(&put("a")), TransactionOutcome::Done(_)));
    let mut watch = client.watch("", 0).unwrap();
    assert_eq!(watch.next(60_000).unwrap().len(), 1);
    // A restart in between: reads go on, over a new connection; so does the watch, after its error.
    server.stop();
    assert!(watch.next(60_000).is_err());
    server.restart();
    assert_eq!(client.range("").unwrap().items.len(), 1);
    assert!(matches!(client.commit(&put("b")), TransactionOutcome::Done(_) | TransactionOutcome::Unknown(_)));
    let began = Instant::now();
    while client.get("b").unwrap().items.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60));
        client.commit(&put("b"));
    }
    assert_eq!(watch.next(60_000).unwrap()[0].key, "b");
}

/// How many watches the server has been asked for.
fn watches(server: &Server) -> u32 {
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let mut lines =
        answer.lines().filter(|line| line.starts_with("grpc_server_started_total{grpc_method=\"Watch\""));
    lines.next().map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
}

#[test]
fn watch_stays_open_while_nothing_changes() {
    let server = Server::start();
    let client = server.client();
    let mut watch = client.watch("", 0).unwrap();
    for _ in 0..20 {
        assert_eq!(watch.next(20).unwrap(), []);
    }
    assert_eq!(watches(&server), 1);
    assert!(matches!(client.commit(&put("a")), TransactionOutcome::Done(_)));
    assert_eq!(watch.next(60_000).unwrap()[0].key, "a");
    assert_eq!(watches(&server), 1);
}

#[test]
fn password_is_asked_for() {
    let server = Server::start_with(
        TempDir::new().unwrap(),
        "http",
        &["--auth-token", "simple", "--auth-token-ttl", "2"],
    );
    server.ctl(&["user", "add", "root:secret"]);
    server.ctl(&["auth", "enable"]);
    let with = |password: &str| {
        let user = Some(("root".to_owned(), password.to_owned()));
        Etcd::new(Options { user, ..patient(vec![server.url.clone()]) }).unwrap()
    };
    assert!(matches!(server.client().range(""), Err(MetaError::Denied(_))));
    assert!(matches!(server.client().commit(&put("a")), TransactionOutcome::Failed(MetaError::Denied(_))));
    assert!(matches!(with("wrong").commit(&put("a")), TransactionOutcome::Failed(MetaError::Denied(_))));
    let client = with("secret");
    assert!(matches!(client.commit(&put("a")), TransactionOutcome::Done(_)));
    let mut watch = client.watch("", 0).unwrap();
    assert_eq!(watch.next(60_000).unwrap().len(), 1);
    // The token's time ends without a sign.
    thread::sleep(Duration::from_secs(4));
    assert!(matches!(client.commit(&put("b")), TransactionOutcome::Done(_)));
    assert_eq!(client.range("").unwrap().items.len(), 2);
}

fn openssl(directory: &Path, command: &str) {
    let status = Command::new("openssl")
        .args(command.split(' '))
        .current_dir(directory)
        .stderr(Stdio::null())
        .status();
    assert!(status.expect("openssl").success(), "{command}");
}

fn authority(directory: &Path) {
    openssl(
        directory,
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 30 -subj /CN=authority",
    );
}

fn sign(directory: &Path, name: &str, extensions: &str) {
    std::fs::write(directory.join("extensions"), extensions).unwrap();
    openssl(
        directory,
        &format!("req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"),
    );
    openssl(
        directory,
        &format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 30 -extfile extensions"
        ),
    );
}

#[test]
fn tls_proves_both_ends() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().to_owned();
    let file = |name: &str| std::fs::read(path.join(name)).unwrap();
    authority(&path);
    sign(&path, "server", "subjectAltName=IP:127.0.0.1");
    sign(&path, "client", "extendedKeyUsage=clientAuth");
    let name = |name: &str| path.join(name).to_str().unwrap().to_owned();
    let (certificate, key, authorities) = (name("server.pem"), name("server.key"), name("ca.pem"));
    let flags = [
        "--cert-file",
        &certificate,
        "--key-file",
        &key,
        "--client-cert-auth",
        "--trusted-ca-file",
        &authorities,
    ];
    let server = Server::start_with(directory, "https", &flags);
    let with = |tls: Tls| Etcd::new(Options { tls, ..patient(vec![server.url.clone()]) }).unwrap();
    let identity = Some((file("client.pem"), file("client.key")));
    let good = with(Tls { authorities: Some(file("ca.pem")), identity: identity.clone() });
    assert!(matches!(good.commit(&put("a")), TransactionOutcome::Done(_)));
    assert_eq!(good.watch("", 0).unwrap().next(60_000).unwrap().len(), 1);
    // An authority that the system does not know: the request never leaves.
    let stranger = with(Tls { authorities: None, identity });
    let outcome = stranger.commit(&put("b"));
    assert!(matches!(outcome, TransactionOutcome::Failed(MetaError::Unavailable(_))), "{outcome:?}");
    let nameless = with(Tls { authorities: Some(file("ca.pem")), identity: None });
    assert!(!matches!(nameless.commit(&put("b")), TransactionOutcome::Done(_)));
    assert_eq!(good.range("").unwrap().items.len(), 1);
    let broken = Tls { authorities: Some(b"no PEM".to_vec()), identity: None };
    assert!(Etcd::new(Options { tls: broken, ..patient(vec![server.url.clone()]) }).is_err());
}

#[test]
fn self_signed_certificate_is_good_for_its_own_names() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().to_owned();
    openssl(
        &path,
        "req -x509 -newkey rsa:2048 -nodes -keyout own.key -out own.pem -days 30 -subj /CN=own \
         -addext subjectAltName=IP:127.0.0.1",
    );
    let pem = std::fs::read(path.join("own.pem")).unwrap();
    let name = |name: &str| path.join(name).to_str().unwrap().to_owned();
    let server = Server::start_with(
        directory,
        "https",
        &["--cert-file", &name("own.pem"), "--key-file", &name("own.key")],
    );
    let at = |url: String| {
        let tls = Tls { authorities: Some(pem.clone()), identity: None };
        Etcd::new(Options { tls, ..patient(vec![url]) }).unwrap()
    };
    assert!(matches!(at(server.url.clone()).commit(&put("a")), TransactionOutcome::Done(_)));
    let other = at(server.url.replace("127.0.0.1", "localhost")).commit(&put("b"));
    assert!(matches!(other, TransactionOutcome::Failed(MetaError::Unavailable(_))), "{other:?}");
}

/// Answers every request with the same bytes.
fn liar(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer);
        }
    });
    url
}

#[test]
fn answers_that_make_no_sense_are_errors() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nnothing"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops",
        b"HTTP/1.1 200 OK\r\n",
        b"SSH-2.0-no\r\n",
        b"",
    ] {
        let client = Etcd::new(patient(vec![liar(answer)])).unwrap();
        // The request was taken, so its outcome is unknown.
        assert!(
            matches!(client.commit(&put("a")), TransactionOutcome::Unknown(_)),
            "{}",
            answer.escape_ascii()
        );
        assert!(client.range("").is_err(), "{}", answer.escape_ascii());
        let wait_ms = if answer.is_empty() { 3_000 } else { 60_000 };
        assert!(
            client.watch("", 0).unwrap().next(wait_ms).is_err() || answer.is_empty(),
            "{}",
            answer.escape_ascii()
        );
    }
}
