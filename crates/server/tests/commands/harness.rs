//! A whole server on a free port, and clients that speak words and read raw replies.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use dunlin_server::config::{self, Request, ShutdownFlags};
use dunlin_server::process::server::{self, Stopper};

/// Nothing here waits this long unless it is broken.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

pub struct Server {
    pub address: SocketAddr,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Server {
    /// A server with these words behind `dunlin server`; the first may be a configuration file.
    pub fn start(words: &[&str]) -> Self {
        // Another test, or another process, may have taken the port meanwhile.
        let is_taken = |error: &String| error.contains("another process does");
        let mut started = Self::try_start(words);
        for _ in 0..10 {
            if started.as_ref().is_err_and(is_taken) {
                started = Self::try_start(words);
            }
        }
        let server = started.unwrap();
        let (address, stopper) = (server.addresses()[0], server.stopper());
        Self { address, stopper, thread: Some(std::thread::spawn(|| server.wait())) }
    }

    fn try_start(words: &[&str]) -> Result<server::Server, String> {
        let mut all: Vec<&str> = words.iter().copied().take_while(|word| !word.starts_with("--")).collect();
        // Port 0 would mean no TCP at all, so a free one is sought.
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let rest = &words[all.len()..];
        all.extend(["--bind", "127.0.0.1", "--port", &port, "--threads", "2", "--save", ""]);
        all.extend(rest);
        let parsed = config::parse(all.iter().map(Into::into), &mut std::io::empty());
        let Ok(Request::Run(launch)) = parsed else { panic!("{words:?}") };
        server::Server::start(*launch, None)
    }

    pub fn connect(&self) -> Peer {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        Peer { stream: BufReader::new(stream) }
    }

    /// Waits until the server has ended by itself.
    pub fn join(mut self) {
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stopper.stop(ShutdownFlags { now: true, ..ShutdownFlags::default() });
            let _ = thread.join();
        }
    }
}

pub struct Peer {
    stream: BufReader<TcpStream>,
}

impl Peer {
    pub fn send(&mut self, words: &[&str]) {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
    }

    /// Bytes that are no whole request.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// A reply, raw.
    pub fn read(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let Some(length) = line.get(1..).and_then(|text| text.trim_end().parse::<i64>().ok()) else {
            return line;
        };
        match line.as_bytes()[0] {
            b'$' | b'=' if length >= 0 => {
                let mut text = vec![0; length as usize + 2];
                self.stream.read_exact(&mut text).unwrap();
                line += &String::from_utf8_lossy(&text);
            }
            b'*' | b'~' | b'>' => (0..length).for_each(|_| line += &self.read()),
            b'%' => (0..2 * length).for_each(|_| line += &self.read()),
            // An attribute precedes the reply.
            b'|' => (0..2 * length + 1).for_each(|_| line += &self.read()),
            _ => {}
        }
        line
    }

    pub fn ask(&mut self, words: &[&str]) -> String {
        self.send(words);
        self.read()
    }

    /// Sends a line of words and checks the reply, CR LF shown as a blank.
    #[track_caller]
    pub fn check(&mut self, line: &str, expected: &str) {
        let words: Vec<&str> = line.split(' ').map(|word| if word == "\"\"" { "" } else { word }).collect();
        assert_eq!(self.ask(&words).replace("\r\n", " ").trim_end(), expected, "reply to {line}");
    }

    /// Whether the server has closed the connection, with nothing more to read.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).is_ok() && rest.is_empty()
    }
}
