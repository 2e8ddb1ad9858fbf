//! A server of Redis's flags, started on a free loopback port and a Unix socket.

use std::{fs, path::PathBuf, time::Instant};

use dunlin_resp::Value;

use super::rows::Transport;
use crate::process::{self, Process, ScratchFolder};
use crate::target::{Address, Client, Target};

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
    /// Whether it answers every request alike and keeps nothing: its answers are not checked.
    pub is_constant: bool,
}

impl Program {
    /// A program that takes Redis's flags as they are.
    pub fn new(name: &str, path: PathBuf) -> Self {
        Self { name: name.into(), path, first: Vec::new(), last: Vec::new(), is_constant: false }
    }

    /// This program in another column with further flags.
    pub fn variant(&self, name: &str, flags: &[&str]) -> Self {
        let mut variant = self.clone();
        variant.name = name.into();
        variant.last.extend(flags.iter().map(|flag| flag.to_string()));
        variant
    }

    /// First line of its output about its version.
    pub fn version(&self) -> String {
        process::version(&self.path)
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
    /// The program that it runs.
    pub program: Program,
    process: Process,
    processors: Vec<usize>,
    port: u16,
    socket: PathBuf,
}

impl Server {
    /// Starts a server restricted to `processors` and waits until it answers.
    pub fn start(program: &Program, processors: &[usize]) -> Result<Self, String> {
        Self::start_in(ScratchFolder::new()?, program, processors)
    }

    fn start_in(folder: ScratchFolder, program: &Program, processors: &[usize]) -> Result<Self, String> {
        let port = process::free_port().map_err(|error| format!("no free port: {error}"))?;
        let socket = folder.path().join("socket");
        let mut arguments = program.first.clone();
        arguments.extend(Program::flags(&port.to_string(), &socket.to_string_lossy()));
        arguments.extend(program.last.iter().cloned());
        let process = Process::start(&program.path, &arguments, folder, processors)?;
        let processors = processors.to_vec();
        let mut server = Self { program: program.clone(), process, processors, port, socket };
        let (unix, tcp) = (server.target(Transport::Unix), server.target(Transport::Tcp));
        server.process.await_ready(|| {
            unix.client().is_ok() && tcp.client().is_ok_and(|mut client| client.call(&["DBSIZE"]).is_ok())
        })?;
        Ok(server)
    }

    /// Shuts it down and starts it anew, with further flags, on the files of one name that it leaves: when
    /// that began. The server may still be loading them afterwards.
    pub fn restart_on(&mut self, name: &str, flags: &[&str]) -> Result<Instant, String> {
        let folder = ScratchFolder::new()?;
        // A server that obeys does not reply.
        let _ = self.client()?.call(&["SHUTDOWN", "NOSAVE"]);
        self.process.await_end()?;
        let (from, to) = (self.process.folder().join(name), folder.path().join(name));
        fs::rename(&from, to).map_err(|error| format!("{} is not there: {error}", from.display()))?;
        let begun = Instant::now();
        *self = Self::start_in(folder, &self.program.variant(&self.program.name, flags), &self.processors)?;
        Ok(begun)
    }

    /// How to reach it.
    pub fn target(&self, transport: Transport) -> Target {
        Target::new(match transport {
            Transport::Tcp => Address::Tcp("127.0.0.1".into(), self.port),
            Transport::Unix => Address::Unix(self.socket.clone()),
        })
    }

    /// Its port on the loopback.
    pub fn port(&self) -> u16 {
        self.port
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

    /// CPU time that it has used since it was started, in nanoseconds: see [`Process::cpu_since_start_ns`].
    pub fn cpu_since_start_ns(&self) -> Result<u64, String> {
        self.process.cpu_since_start_ns()
    }

    /// CPU time that its threads have used, in nanoseconds.
    pub fn cpu_ns(&self) -> Result<u64, String> {
        self.process.cpu_ns()
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> Result<u64, String> {
        self.process.resident_bytes()
    }
}
