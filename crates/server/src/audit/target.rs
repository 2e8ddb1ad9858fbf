//! The destinations of lines of the audit log.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::{
        fs::{MetadataExt, OpenOptionsExt},
        net::UnixDatagram,
    },
    path::{Path, PathBuf},
};

/// The socket on which journald takes entries.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// An open target.
#[derive(Debug)]
pub(super) enum AuditSink {
    StandardError,
    Journal(UnixDatagram),
    File(LogFile),
}

/// A file that an operator may rename to begin another one.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    /// Bytes of the line at hand that were written.
    written: usize,
}

impl AuditSink {
    /// The target that `audit-log` names; `None` for nothing.
    pub(super) fn open(name: &str) -> Result<Option<Self>, String> {
        match name {
            "" => Ok(None),
            "stderr" => Ok(Some(Self::StandardError)),
            "journald" => {
                let connect = || {
                    let socket = UnixDatagram::unbound()?;
                    socket.connect(JOURNAL)?;
                    Ok::<_, io::Error>(socket)
                };
                let socket = connect().map_err(|error| format!("audit-log journald: {JOURNAL}: {error}"))?;
                Ok(Some(Self::Journal(socket)))
            }
            path => {
                let path = std::path::absolute(path).map_err(|error| format!("audit-log {path}: {error}"))?;
                let file = open(&path).map_err(|error| format!("audit-log {}: {error}", path.display()))?;
                Ok(Some(Self::File(LogFile { path, file, written: 0 })))
            }
        }
    }

    /// Writes a line, or the rest of one that has failed before.
    pub(super) fn write(&mut self, line: &str) -> io::Result<()> {
        match self {
            Self::StandardError => io::stderr().lock().write_all(line.as_bytes()),
            Self::Journal(socket) => {
                let message = line.trim_end();
                let entry = format!("MESSAGE={message}\nPRIORITY=5\nSYSLOG_IDENTIFIER=dunlin-audit\n");
                socket.send(entry.as_bytes()).map(drop)
            }
            Self::File(log) => log.write(line.as_bytes()),
        }
    }

    /// Makes what was written durable, and follows a file that was renamed.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        let Self::File(log) = self else { return Ok(()) };
        log.file.sync_data()?;
        let is_there = std::fs::metadata(&log.path)
            .and_then(|named| Ok((named.dev(), named.ino()) == identity(&log.file)?))
            .unwrap_or(false);
        if !is_there {
            log.file = open(&log.path)?;
        }
        Ok(())
    }
}

impl LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        while self.written < line.len() {
            match self.file.write(&line[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.written = 0;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}
