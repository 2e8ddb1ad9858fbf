//! A server as a child process: started on free loopback ports, restricted to processors, measured
//! through /proc, ended when dropped.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dunlin_resp::Value;

use super::rows::Transport;
use crate::affinity;
use crate::target::{Address, Client, Target};

const START_MAX: Duration = Duration::from_secs(20);
const START_POLL: Duration = Duration::from_millis(10);

/// A server program and how to start it.
#[derive(Debug, Clone)]
pub struct Program {
    /// Name of its column.
    pub name: String,
    /// The executable.
    pub path: PathBuf,
    /// Arguments ahead of the flags (a subcommand).
    pub first: Vec<String>,
    /// Flags that come last.
    pub last: Vec<String>,
    /// It answers every request alike and keeps nothing: its answers are not checked.
    pub is_constant: bool,
}

impl Program {
    /// A program that takes Redis's flags as they are.
    pub fn new(name: &str, path: PathBuf) -> Self {
        Self { name: name.into(), path, first: Vec::new(), last: Vec::new(), is_constant: false }
    }

    /// The same program in another column with further flags.
    pub fn variant(&self, name: &str, flags: &[&str]) -> Self {
        let mut variant = self.clone();
        variant.name = name.into();
        variant.last.extend(flags.iter().map(|flag| flag.to_string()));
        variant
    }

    /// First line of what it says of its version.
    pub fn version(&self) -> String {
        let output = Command::new(&self.path).arg("--version").stdin(Stdio::null()).output();
        let text =
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        text.lines().next().unwrap_or("unknown version").trim().to_string()
    }

    /// The flags that all servers are started with.
    pub fn flags(port: &str, socket: &str) -> Vec<String> {
        let flags = [
            "--bind",
            "127.0.0.1",
            "--port",
            port,
            "--unixsocket",
            socket,
            "--save",
            "",
            "--appendonly",
            "no",
        ];
        flags.iter().map(|flag| flag.to_string()).collect()
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// What it runs.
    pub program: Program,
    child: Child,
    port: u16,
    folder: PathBuf,
}

impl Server {
    /// Starts a server restricted to `processors` and waits until it answers.
    pub fn start(program: &Program, processors: &[usize]) -> Result<Self, String> {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("dunlin-bench-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        let failed = |error: std::io::Error| format!("cannot start {}: {error}", program.path.display());
        let port = free_port().map_err(failed)?;
        let log = fs::File::create(folder.join("log")).map_err(failed)?;
        let mut command = Command::new(&program.path);
        command
            .args(&program.first)
            .args(Program::flags(&port.to_string(), &folder.join("socket").to_string_lossy()))
            .args(&program.last)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stderr(log.try_clone().map_err(failed)?)
            .stdout(log);
        // A child inherits the processors of the thread that starts it.
        let spawned = thread::scope(|scope| {
            let starter = scope.spawn(|| affinity::restrict(processors).and_then(|()| command.spawn()));
            starter.join().expect("the starting thread panicked")
        });
        let child = spawned.map_err(failed)?;
        let mut server = Self { program: program.clone(), child, port, folder };
        server.await_ready()?;
        Ok(server)
    }

    fn await_ready(&mut self) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let ended = self.child.try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = ended {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                let reason = telling_line(&log);
                return Err(format!("{} ended at once ({status}): {reason}", self.program.path.display()));
            }
            let ready = self.target(Transport::Unix).client().is_ok()
                && self
                    .target(Transport::Tcp)
                    .client()
                    .is_ok_and(|mut client| client.call(&["PING"]).is_ok());
            if ready {
                return Ok(());
            }
            if start.elapsed() > START_MAX {
                return Err(format!(
                    "{} does not answer on its port and socket",
                    self.program.path.display()
                ));
            }
            thread::sleep(START_POLL);
        }
    }

    /// How to reach it.
    pub fn target(&self, transport: Transport) -> Target {
        Target::new(match transport {
            Transport::Tcp => Address::Tcp("127.0.0.1".into(), self.port),
            Transport::Unix => Address::Unix(self.folder.join("socket")),
        })
    }

    /// A blocking client.
    pub fn client(&self) -> Result<Client, String> {
        self.target(Transport::Tcp).client().map_err(|error| format!("{}: {error}", self.program.name))
    }

    /// Number of keys in database 0.
    pub fn key_count(&self) -> Result<u64, String> {
        match self.client()?.call(&["DBSIZE"]) {
            Ok(Value::Integer(count)) => Ok(count.max(0) as u64),
            Ok(Value::Error(text)) => Err(format!("DBSIZE: {}", String::from_utf8_lossy(&text))),
            Ok(other) => Err(format!("{}: DBSIZE answered {other:?}", self.program.name)),
            Err(error) => Err(format!("{}: {error}", self.program.name)),
        }
    }

    /// CPU time that all its threads have used, in nanoseconds, from the scheduler's own count.
    pub fn cpu_ns(&self) -> Result<u64, String> {
        let tasks = format!("/proc/{}/task", self.child.id());
        let unreadable = |error: std::io::Error| format!("cannot read {tasks}: {error}");
        let mut total = 0;
        for task in fs::read_dir(&tasks).map_err(unreadable)? {
            let text =
                fs::read_to_string(task.map_err(unreadable)?.path().join("schedstat")).map_err(unreadable)?;
            total += text.split_whitespace().next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(total)
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/statm", self.child.id());
        let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
        let pages: Option<u64> = text.split_whitespace().nth(1).and_then(|field| field.parse().ok());
        Ok(pages.ok_or_else(|| format!("{path} is not understood"))? * rustix::param::page_size() as u64)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It holds nothing of value, and nothing can be done about a failure here.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The line of a log that most likely says what went wrong.
fn telling_line(log: &str) -> &str {
    let mut lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
    let tells = |line: &&str| {
        let line = line.to_ascii_lowercase();
        ["error", "fatal", "fail"].iter().any(|word| line.contains(word))
    };
    lines.clone().find(tells).or(lines.next_back()).unwrap_or("it said nothing")
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
