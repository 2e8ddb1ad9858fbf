//! Against a real etcd, which each test starts on a port of its own: the conformance suite, passwords, TLS, failures.

#[path = "../../cluster/tests/conformance/mod.rs"]
mod conformance;

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use dunlin_cluster::meta::{Meta, MetaError, Outcome, Revision, Transaction};
use dunlin_etcd::{Etcd, Options, Tls};
use tempfile::TempDir;

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
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
        let url = format!("{scheme}://127.0.0.1:{}", free_port());
        let mut server = Self { child: Self::spawn(&directory, &url, flags), url, directory };
        server.wait();
        server
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

    /// Waits until it listens, and has a leader.
    fn wait(&mut self) {
        let port = self.url.rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
        let began = Instant::now();
        while std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "etcd does not listen");
            assert_eq!(self.child.try_wait().unwrap(), None, "etcd has ended");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn client(&self) -> Etcd {
        Etcd::new(patient(vec![self.url.clone()])).unwrap()
    }

    fn ctl(&self, words: &[&str]) {
        let status = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.url])
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
    assert!(matches!(client.commit(&put("a")), Outcome::Done(_)));
    server.signal("-STOP");
    let outcome = hasty.commit(&put("b").compare("b", 0));
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert!(matches!(hasty.range(""), Err(MetaError::Unavailable(_))));
    server.signal("-CONT");
    // It may be in by now, or come yet. The same again settles it: one of the two succeeds, and no more than one.
    let again = put("b").compare("b", 0);
    let began = Instant::now();
    while !matches!(client.commit(&again), Outcome::Done(_) | Outcome::Refused(_)) {
        assert!(began.elapsed() < Duration::from_secs(60), "etcd does not answer");
    }
    assert_eq!(client.get("b").unwrap().items.len(), 1);
}

#[test]
fn transaction_that_reaches_nobody_has_failed() {
    let client = hasty(vec![format!("http://127.0.0.1:{}", free_port())]);
    assert!(matches!(client.commit(&put("a")), Outcome::Failed(MetaError::Unavailable(_))));
    assert!(matches!(client.range(""), Err(MetaError::Unavailable(_))));
    let client = Etcd::new(patient(vec!["http://no-such-host.invalid:2379".to_owned()])).unwrap();
    let outcome = client.commit(&put("a"));
    assert!(matches!(outcome, Outcome::Failed(MetaError::Unavailable(_))), "{outcome:?}");
}

#[test]
fn another_endpoint_answers_where_one_is_gone() {
    let mut server = Server::start();
    let gone = format!("http://127.0.0.1:{}", free_port());
    let client = Etcd::new(patient(vec![gone, server.url.clone()])).unwrap();
    assert!(matches!(client.commit(&put("a")), Outcome::Done(_)));
    let mut watch = client.watch("", 0).unwrap();
    assert_eq!(watch.next(10_000).unwrap().len(), 1);
    // A restart in between: reads go on, over a new connection; so does the watch, after its error.
    server.stop();
    assert!(watch.next(20_000).is_err());
    server.child = Server::spawn(&server.directory, &server.url, &[]);
    server.wait();
    assert_eq!(client.range("").unwrap().items.len(), 1);
    assert!(matches!(client.commit(&put("b")), Outcome::Done(_) | Outcome::Unknown(_)));
    let began = Instant::now();
    while client.get("b").unwrap().items.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60));
        client.commit(&put("b"));
    }
    assert_eq!(watch.next(20_000).unwrap()[0].key, "b");
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
    assert!(matches!(client.commit(&put("a")), Outcome::Done(_)));
    assert_eq!(watch.next(10_000).unwrap()[0].key, "a");
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
    assert!(matches!(server.client().commit(&put("a")), Outcome::Failed(MetaError::Denied(_))));
    assert!(matches!(with("wrong").commit(&put("a")), Outcome::Failed(MetaError::Denied(_))));
    let client = with("secret");
    assert!(matches!(client.commit(&put("a")), Outcome::Done(_)));
    let mut watch = client.watch("", 0).unwrap();
    assert_eq!(watch.next(10_000).unwrap().len(), 1);
    // The token's time ends, and nobody notices.
    thread::sleep(Duration::from_secs(4));
    assert!(matches!(client.commit(&put("b")), Outcome::Done(_)));
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
    assert!(matches!(good.commit(&put("a")), Outcome::Done(_)));
    assert_eq!(good.watch("", 0).unwrap().next(10_000).unwrap().len(), 1);
    // An authority that the system does not know: the request never leaves.
    let stranger = with(Tls { authorities: None, identity });
    let outcome = stranger.commit(&put("b"));
    assert!(matches!(outcome, Outcome::Failed(MetaError::Unavailable(_))), "{outcome:?}");
    let nameless = with(Tls { authorities: Some(file("ca.pem")), identity: None });
    assert!(!matches!(nameless.commit(&put("b")), Outcome::Done(_)));
    assert_eq!(good.range("").unwrap().items.len(), 1);
    let broken = Tls { authorities: Some(b"no PEM".to_vec()), identity: None };
    assert!(Etcd::new(Options { tls: broken, ..patient(vec![server.url.clone()]) }).is_err());
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
        let client = Etcd::new(Options { timeout_ms: 3_000, ..Options::new(vec![liar(answer)]) }).unwrap();
        // The request was taken, so nobody knows.
        assert!(matches!(client.commit(&put("a")), Outcome::Unknown(_)), "{}", answer.escape_ascii());
        assert!(client.range("").is_err(), "{}", answer.escape_ascii());
        assert!(
            client.watch("", 0).unwrap().next(3_000).is_err() || answer.is_empty(),
            "{}",
            answer.escape_ascii()
        );
    }
}
