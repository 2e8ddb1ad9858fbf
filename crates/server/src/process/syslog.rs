//! Lines of the server log for syslog (`syslog-enabled`): datagrams to the socket that syslog(3) writes to.
//!
//! ```text
//! <134>Nov 21 09:37:34 dunlin[4711]: Ready to accept connections
//!  │   └ UTC             └ syslog-ident, process id
//!  └ facility × 8 + severity (RFC 3164)
//! ```
//!
//! As with syslog(3), a line is lost if there is no reader or the socket is full: the thread that writes it, which may
//! be a worker, never waits. `logfile` or standard output has it all the same. The environment variable
//! `DUNLIN_SYSLOG_SOCKET` names another socket than `/dev/log`.

use std::{ffi::OsString, io, os::unix::net::UnixDatagram, path::PathBuf};

use crate::{
    config::{Config, SyslogFacility},
    system::utc::Utc,
};

/// The socket of the system's daemon.
const SOCKET: &str = "/dev/log";
const SOCKET_VARIABLE: &str = "DUNLIN_SYSLOG_SOCKET";
/// Bytes of a line; daemons cut off the rest, at 8 KiB as they come (RFC 5424 asks them for 2 KiB).
const LINE_BYTES_MAX: usize = 8 * 1024;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The connection to the daemon, while there is one.
#[derive(Debug)]
pub(crate) struct Syslog {
    path: PathBuf,
    socket: Option<UnixDatagram>,
    facility: SyslogFacility,
    ident: String,
}

impl Syslog {
    /// Returns a connection to be made, if the configuration wants lines to go to syslog; `None` otherwise.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let path = std::env::var_os(SOCKET_VARIABLE).unwrap_or_else(|| OsString::from(SOCKET));
        config.syslog_enabled.then(|| Self {
            path: path.into(),
            socket: None,
            facility: config.syslog_facility,
            ident: config.syslog_ident.clone(),
        })
    }

    /// Connects, if there is no connection yet.
    pub(crate) fn connect(&mut self) -> io::Result<()> {
        if self.socket.is_none() {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.connect(&self.path)?;
            self.socket = Some(socket);
        }
        Ok(())
    }

    /// The socket's path, for a message.
    pub(crate) fn path(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    /// Sends a line of a severity of syslog(3). A daemon that was restarted has another socket: it is connected to anew, once.
    pub(crate) fn send(&mut self, severity: u8, unix_ms: u64, message: &str) {
        let datagram = self.datagram(severity, unix_ms, message);
        for _ in 0..2 {
            let sent = self.connect().and_then(|()| match &self.socket {
                Some(socket) => socket.send(datagram.as_bytes()).map(drop),
                None => Ok(()),
            });
            match sent {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.socket = None,
            }
        }
    }

    fn datagram(&self, severity: u8, unix_ms: u64, message: &str) -> String {
        let priority = self.facility.number() * 8 + severity;
        // `2026-11-21T09:37:34.314Z`.
        let time = Utc(unix_ms).to_string();
        let month = time[5..7].parse::<usize>().ok().and_then(|month| MONTHS.get(month.wrapping_sub(1)));
        let (month, day, clock) =
            (month.unwrap_or(&"Jan"), time[8..10].trim_start_matches('0'), &time[11..19]);
        let cut = message.floor_char_boundary(LINE_BYTES_MAX);
        let (ident, process, message) = (&self.ident, std::process::id(), &message[..cut]);
        format!("<{priority}>{month} {day:>2} {clock} {ident}[{process}]: {message}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::ScratchDir;

    /// 2026-11-05 14:03:12.
    const TIME_MS: u64 = 1_793_887_392_000;

    #[test]
    fn lines_are_datagrams_and_the_daemon_may_come_and_go() {
        let dir = ScratchDir::new("syslog");
        let path = dir.path("log");
        let mut syslog = Syslog {
            path: path.clone(),
            socket: None,
            facility: SyslogFacility::Local3,
            ident: "store".to_owned(),
        };
        syslog.send(5, TIME_MS, "nobody listens");
        assert!(syslog.connect().is_err());
        for run in 0..2 {
            let daemon = UnixDatagram::bind(&path).unwrap();
            syslog.send(5, TIME_MS, &format!("run {run}"));
            let mut buffer = [0; 100];
            let count = daemon.recv(&mut buffer).unwrap();
            let expected = format!("<157>Nov  5 14:03:12 store[{}]: run {run}", std::process::id());
            assert_eq!(std::str::from_utf8(&buffer[..count]).unwrap(), expected);
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn full_daemon_holds_nobody_up_and_long_lines_are_cut() {
        let dir = ScratchDir::new("syslog-full");
        let path = dir.path("log");
        let _daemon = UnixDatagram::bind(&path).unwrap();
        let mut syslog =
            Syslog { path, socket: None, facility: SyslogFacility::User, ident: "store".to_owned() };
        for _ in 0..5_000 {
            syslog.send(4, TIME_MS, "more than it reads");
        }
        let datagram = syslog.datagram(4, TIME_MS, &"ä".repeat(LINE_BYTES_MAX));
        assert!(datagram.starts_with("<12>") && datagram.len() < LINE_BYTES_MAX + 100);
    }
}
