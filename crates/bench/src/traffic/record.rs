//! `dunlin bench record`: writes the output of MONITOR to a file.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{ArgAction, Parser};
use dunlin_resp::Value;

use super::{line, seconds};
use crate::server_flags::ServerFlags;
use crate::target::TargetError;

/// How long to wait for a command before the recorded ones are written out.
const IDLE: Duration = Duration::from_millis(200);

/// Records the commands that clients send to a server, through MONITOR.
///
/// Ends after --duration or --commands, or with Ctrl-C; what was seen until then is in the file. MONITOR
/// costs the server much of its throughput. The file holds the clients' data: only its owner may read it.
#[derive(Debug, Parser)]
#[command(name = "dunlin bench record", version, bin_name = "dunlin bench record", disable_help_flag = true)]
pub struct RecordArguments {
    #[command(flatten)]
    pub(super) server: ServerFlags,
    /// Seconds to record [default: until --commands or Ctrl-C]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Commands to record [default: until --duration or Ctrl-C]
    #[arg(long, value_name = "COMMANDS", value_parser = clap::value_parser!(u64).range(1..))]
    commands: Option<u64>,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// The recording; an existing file is refused
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl RecordArguments {
    /// Records until it is time to end.
    pub fn run(&self) -> Result<(), String> {
        let target = self.server.target()?;
        let mut client = target.client().map_err(|error| error.to_string())?;
        let mut out = BufWriter::new(create(&self.file)?);
        match client.call(&["MONITOR"]).map_err(|error| error.to_string())? {
            Value::Simple(_) => {}
            Value::Error(text) => return Err(format!("MONITOR: {}", String::from_utf8_lossy(&text))),
            other => return Err(format!("MONITOR answered {other:?}")),
        }
        client.set_timeout(IDLE).map_err(|error| error.to_string())?;
        eprintln!("recording to {}; end with Ctrl-C", self.file.display());
        let unwritable = |error: io::Error| format!("cannot write {}: {error}", self.file.display());
        let (start, mut count, mut flushed) = (Instant::now(), 0, Instant::now());
        while self.commands.is_none_or(|limit| count < limit)
            && self.duration.is_none_or(|limit| start.elapsed() < limit)
        {
            match client.receive() {
                Ok(Value::Simple(text)) if line::parse(&text).is_some() => {
                    out.write_all(&text).and_then(|()| out.write_all(b"\n")).map_err(unwritable)?;
                    count += 1;
                }
                Ok(other) => return Err(format!("MONITOR showed what is no command: {other:?}")),
                Err(TargetError::Io { source }) if is_idle(&source) => {}
                Err(error) => return Err(error.to_string()),
            }
            if flushed.elapsed() >= IDLE {
                out.flush().map_err(unwritable)?;
                flushed = Instant::now();
            }
        }
        out.flush().map_err(unwritable)?;
        dunlin_print::say!(
            "{count} commands in {:.1} s recorded to {}",
            start.elapsed().as_secs_f64(),
            self.file.display()
        );
        Ok(())
    }
}

fn create(path: &Path) -> Result<File, String> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| format!("cannot create {}: {error}", path.display()))
}

/// Whether nothing has come within the timeout.
fn is_idle(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
