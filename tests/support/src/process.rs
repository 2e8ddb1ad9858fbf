//! A server under test: started in a folder of its own, stopped by its process id, its log kept.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::connection::Connection;

/// How long a server may take to answer its first PING.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A running server.
pub struct Server {
    child: Child,
    folder: PathBuf,
    port: u16,
}

/// A port without a listener now.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Whether the program is Redis or Valkey (no subcommand), by its name.
pub fn is_redis(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    name.contains("redis") || name.contains("valkey")
}

impl Server {
    /// Starts a server on a free port and on a Unix socket in a fresh folder; `directives` are further
    /// arguments such as `--threads 2`. Returns once it answers PING.
    pub fn start(program: &Path, directives: &[&str]) -> io::Result<Self> {
        Self::start_with(program, directives, |_| Ok(()))
    }

    /// Starts it as [`Self::start`] does, with something done to the folder before.
    pub fn start_with(
        program: &Path,
        directives: &[&str],
        prepare: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = std::env::temp_dir().join(format!(
            "dunlin-test-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        fs::create_dir_all(&folder)?;
        prepare(&folder)?;
        let port = free_port()?;
        let log = File::create(folder.join("log"))?;
        let mut command = Command::new(program);
        if !is_redis(program) {
            command.arg("server");
        }
        // Nothing is saved unless a test says so.
        command
            .args(["--save", "", "--bind", "127.0.0.1", "--port", &port.to_string()])
            .arg("--unixsocket")
            .arg(folder.join("socket"))
            .arg("--dir")
            .arg(&folder)
            .args(directives)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("cannot start {}: {error}", program.display()))
        })?;
        let mut server = Server { child, folder, port };
        server.await_ping()?;
        Ok(server)
    }

    fn await_ping(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("the server ended ({status}):\n{}", self.log())));
            }
            let answered = Connection::unix(&self.socket()).is_ok_and(|mut connection| {
                // Unlike PING, it is refused while the data set is being loaded.
                connection.call(&["DBSIZE"]).is_ok_and(|reply| !reply.is_error())
            });
            if answered {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("no answer to PING:\n{}", self.log())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The folder that it works in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Ends it with SIGKILL; its files stay until it is dropped.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// The path of its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// Its TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its standard output and standard error.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.join("log")).unwrap_or_default()).into_owned()
    }

    /// Whether the process has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Stops it with SIGTERM; an error if it ends late, with a failure code, or after a panic.
    pub fn stop(mut self) -> Result<(), String> {
        let status = match self.terminate() {
            Ok(status) => status,
            Err(error) => return Err(format!("{error}\n{}", self.log())),
        };
        if !status.success() {
            return Err(format!("the server ended with {status}:\n{}", self.log()));
        }
        if self.log().contains("panicked at") {
            return Err(format!("the server panicked:\n{}", self.log()));
        }
        Ok(())
    }

    fn terminate(&mut self) -> io::Result<std::process::ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        // `std` sends SIGKILL only; kill(1) is on every system that these tests run on.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status()?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child.kill()?;
        self.child.wait()?;
        Err(io::Error::other("the server did not end within 30 s of SIGTERM"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
