//! A server that is started again and again in the same directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dunlin_test_support::connection::Connection;
use dunlin_test_support::process::is_redis;
use dunlin_test_support::resp::Reply;

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A directory for a server, removed at the end.
pub struct Folder {
    path: PathBuf,
    data: PathBuf,
    is_kept: bool,
}

impl Folder {
    pub fn new(name: &str) -> Result<Self, String> {
        let told = |error: std::io::Error| error.to_string();
        let path = std::env::temp_dir().canonicalize().map_err(told)?;
        let path = path.join(format!("dunlin-crash-{name}-{}", std::process::id()));
        let data = path.join("data");
        fs::create_dir_all(&data).map_err(told)?;
        Ok(Self { path, data, is_kept: false })
    }

    /// Directory of the server's files.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Leaves its folder there. Returns the path.
    pub fn keep(mut self) -> String {
        self.is_kept = true;
        self.path.display().to_string()
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.path.join("output")).unwrap_or_default()).into_owned()
    }

    /// The newest incremental file.
    pub fn increment(&self) -> Result<PathBuf, String> {
        let directory = self.data.join("appendonlydir");
        let entries = fs::read_dir(&directory).map_err(|error| error.to_string())?;
        let names = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let newest = names.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).max();
        newest.ok_or_else(|| format!("no incremental file in {}", directory.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The directives of a log in a round: some bases are RDB files, some are commands.
pub fn log_directives(appendfsync: &str, round: u64) -> [&str; 4] {
    let preamble = if round % 4 < 2 { "yes" } else { "no" };
    ["--appendfsync", appendfsync, "--aof-use-rdb-preamble", preamble]
}

/// A running server.
pub struct Server<'a> {
    child: Child,
    folder: &'a Folder,
}

/// How a start has ended.
pub enum Started<'a> {
    Serving(Server<'a>),
    /// The server has refused, with its message.
    Refused(String),
}

impl<'a> Server<'a> {
    /// Starts a server with an append-only log; returns once it serves or has ended.
    pub fn try_start(
        program: &Path,
        folder: &'a Folder,
        directives: &[&str],
        environment: &[(&str, &Path)],
    ) -> Result<Started<'a>, String> {
        let log = File::create(folder.path.join("output")).map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        if is_redis(program) {
            command.args(["--save", ""]);
        } else {
            command.arg("server");
        }
        command
            .args(["--port", "0", "--appendonly", "yes", "--unixsocket"])
            .arg(folder.path.join("socket"))
            .arg("--dir")
            .arg(&folder.data)
            .args(directives)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|error| error.to_string())?)
            .stderr(log);
        let child =
            command.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let mut server = Server { child, folder };
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let ended = server.child.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() {
                return Ok(Started::Refused(folder.log()));
            }
            let size = server
                .connect()
                .and_then(|mut connection| connection.call(&["DBSIZE"]).map_err(|error| error.to_string()));
            // Unlike PING, it is refused while the data set is being loaded.
            if size.is_ok_and(|reply| !reply.is_error()) {
                return Ok(Started::Serving(server));
            }
            if Instant::now() > deadline {
                return Err(format!("no answer to PING:\n{}", folder.log()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Starts a server that has to serve.
    pub fn start(program: &Path, folder: &'a Folder, directives: &[&str]) -> Result<Self, String> {
        Self::start_in(program, folder, directives, &[])
    }

    /// Starts it with variables of the environment.
    pub fn start_in(
        program: &Path,
        folder: &'a Folder,
        directives: &[&str],
        environment: &[(&str, &Path)],
    ) -> Result<Self, String> {
        match Self::try_start(program, folder, directives, environment)? {
            Started::Serving(server) => Ok(server),
            Started::Refused(log) => Err(format!("the server refused to start:\n{log}")),
        }
    }

    pub fn connect(&self) -> Result<Connection, String> {
        Connection::unix(&self.folder.path.join("socket")).map_err(|error| error.to_string())
    }

    pub fn log(&self) -> String {
        self.folder.log()
    }

    /// SIGTERM, without waiting.
    pub fn terminate(&self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGKILL, unless it has ended within `time`.
    pub fn kill_after(mut self, time: Duration) {
        let until = Instant::now() + time;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.kill();
    }

    /// SIGTERM, and waits.
    pub fn stop(mut self) -> Result<(), String> {
        self.terminate();
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("ended with {status}:\n{}", self.folder.log())) }
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number under a key, 0 if there is none.
pub fn number(connection: &mut Connection, command: &[&str]) -> Result<u64, String> {
    let reply = connection.call(command).map_err(|error| error.to_string())?;
    let text = match &reply {
        Reply::Null(_) => return Ok(0),
        Reply::Line(b':', text) => text,
        other => other.bytes().ok_or_else(|| format!("{command:?} answered {}", other.show()))?,
    };
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("{command:?} answered {}", reply.show()))
}
