//! What systemd is told of a server (`supervised`): when it is ready, and when it ends.
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
};

use crate::config::{Config, Supervised, describe};

const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

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
        Self::socket_name(config).and_then(|name| Self::at(&name))
    }

    /// Whether there is one.
    pub(crate) fn exists(config: &Config) -> bool {
        Self::socket_name(config).is_some()
    }

    fn socket_name(config: &Config) -> Option<OsString> {
        let wanted = [Supervised::Systemd, Supervised::Auto].contains(&config.supervised);
        wanted.then(|| std::env::var_os(SOCKET_VARIABLE)).flatten()
    }

    fn at(name: &OsString) -> Option<Self> {
        let found = address(name)
            .and_then(|address| Ok(Self(Arc::new(Socket { socket: UnixDatagram::unbound()?, address }))));
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
    fn supervisor_has_a_name_of_either_kind() {
        assert!(address(OsStr::new("/run/systemd/notify")).unwrap().as_pathname().is_some());
        if cfg!(target_os = "linux") {
            assert!(address(OsStr::new("@notify")).unwrap().as_pathname().is_none());
        }
        assert!(Supervisor::at(&"x".repeat(200).into()).is_none());
        assert!(Supervisor::find(&Config::default()).is_none());
    }
}
