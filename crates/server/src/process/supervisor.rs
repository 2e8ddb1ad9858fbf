//! Notices to systemd (`supervised`): when the server is ready, and when it ends.
//!
//! The protocol is that of sd_notify(3): datagrams of lines `NAME=value` to the Unix socket that the environment variable
//! NOTIFY_SOCKET names, in the file system or, with a leading `@`, among the abstract names of Linux.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::{
        ffi::OsStrExt,
        net::{SocketAddr, UnixDatagram},
    },
    sync::Arc,
    thread,
    time::Duration,
};

use crate::config::{Config, describe};

/// How long a notice waits for a supervisor that does not read: neither the start nor the end of the server does.
const NOTICE_TIME_MAX: Duration = Duration::from_secs(1);

/// A supervisor that wants to be told.
#[derive(Debug, Clone)]
pub(crate) struct Supervisor(Arc<Socket>);

#[derive(Debug)]
struct Socket {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Supervisor {
    /// The one that the configuration and the environment name, if there is one.
    pub(crate) fn find(config: &Config) -> Option<Self> {
        config.supervised.socket().and_then(|name| Self::at(&name))
    }

    fn at(name: &OsString) -> Option<Self> {
        let found = address(name).and_then(|address| {
            let socket = UnixDatagram::unbound()?;
            socket.set_write_timeout(Some(NOTICE_TIME_MAX))?;
            Ok(Self(Arc::new(Socket { socket, address })))
        });
        found
            .inspect_err(|error| {
                tracing::warn!("cannot reach the supervisor at {}: {}", name.display(), describe(error));
            })
            .ok()
    }

    /// Commands are served.
    pub(crate) fn ready(&self) {
        self.notify("READY=1\nSTATUS=Ready to accept connections\n");
    }

    /// The data set is being loaded.
    pub(crate) fn loading(&self) {
        self.notify("STATUS=Loading the data set\n");
    }

    /// Tells the supervisor, if it watches this process, that the server is well, twice in the time after which
    /// it would start the server anew (`WatchdogSec`). `is_well` is `None` once the server has gone.
    pub(crate) fn watch(&self, is_well: impl Fn() -> Option<bool> + Send + 'static) -> io::Result<()> {
        let watched = |name: &str| std::env::var(name).ok();
        let Some(interval) = watchdog_interval(watched("WATCHDOG_USEC"), watched("WATCHDOG_PID")) else {
            return Ok(());
        };
        let supervisor = self.clone();
        let feed = move || {
            while let Some(is_well) = is_well() {
                if is_well {
                    supervisor.notify("WATCHDOG=1\n");
                }
                thread::sleep(interval);
            }
        };
        thread::Builder::new().name("watchdog".to_owned()).spawn(feed).map(drop)
    }

    /// The server ends.
    pub(crate) fn stopping(&self) {
        self.notify("STOPPING=1\nSTATUS=Shutting down\n");
    }

    fn notify(&self, state: &str) {
        let Socket { socket, address } = &*self.0;
        if let Err(error) = socket.send_to_addr(state.as_bytes(), address) {
            tracing::warn!("cannot tell the supervisor {:?}: {}", state.trim_end(), describe(&error));
        }
    }
}

/// How often a supervisor wants to hear from this process, half of what it allows; `None` if it does not.
fn watchdog_interval(microseconds: Option<String>, process: Option<String>) -> Option<Duration> {
    let is_other = |process: String| process != std::process::id().to_string();
    if process.is_some_and(is_other) {
        return None;
    }
    let microseconds: u64 = microseconds?.parse().ok().filter(|microseconds| *microseconds > 0)?;
    Some(Duration::from_micros(microseconds / 2))
}

fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => {
            use std::os::linux::net::SocketAddrExt;
            SocketAddr::from_abstract_name(name)
        }
        _ => SocketAddr::from_pathname(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::ScratchDir;

    #[test]
    fn supervisor_hears_of_start_and_end() {
        let dir = ScratchDir::new("supervisor");
        let path = dir.path("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let supervisor = Supervisor::at(&path.into_os_string()).unwrap();
        let mut text = [0; 100];
        let mut next = || {
            let length = listener.recv(&mut text).unwrap();
            String::from_utf8(text[..length].to_vec()).unwrap()
        };
        supervisor.loading();
        assert_eq!(next(), "STATUS=Loading the data set\n");
        supervisor.ready();
        assert_eq!(next(), "READY=1\nSTATUS=Ready to accept connections\n");
        supervisor.stopping();
        assert!(next().starts_with("STOPPING=1\n"));
        drop(listener);
        supervisor.ready();
    }

    #[test]
    fn supervisor_that_does_not_read_holds_nothing_up() {
        let dir = ScratchDir::new("supervisor-that-does-not-read");
        let path = dir.path("notify");
        let _listener = UnixDatagram::bind(&path).unwrap();
        let full = UnixDatagram::unbound().unwrap();
        full.set_nonblocking(true).unwrap();
        while full.send_to(b"WATCHDOG=1\n", &path).is_ok() {}
        Supervisor::at(&path.into_os_string()).unwrap().stopping();
    }

    #[test]
    fn watchdog_is_fed_twice_in_its_time_by_the_process_that_it_watches() {
        let interval = |microseconds: &str, process: Option<String>| {
            watchdog_interval(Some(microseconds.to_owned()), process)
        };
        let own = std::process::id().to_string();
        assert_eq!(interval("60000000", None), Some(Duration::from_secs(30)));
        assert_eq!(interval("60000000", Some(own)), Some(Duration::from_secs(30)));
        assert_eq!(interval("60000000", Some("1".to_owned())), None);
        assert_eq!(interval("0", None), None);
        assert_eq!(interval("x", None), None);
        assert_eq!(watchdog_interval(None, None), None);
    }

    #[test]
    fn supervisor_has_a_name_of_either_kind() {
        assert!(address(OsStr::new("/run/systemd/notify")).unwrap().as_pathname().is_some());
        if cfg!(target_os = "linux") {
            assert!(address(OsStr::new("@notify")).unwrap().as_pathname().is_none());
        }
        assert!(Supervisor::at(&"x".repeat(200).into()).is_none());
        assert!(Supervisor::find(&Config::default()).is_none());
    }
}
