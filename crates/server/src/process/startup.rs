//! The steps that a server takes once, before and after it serves: it enters its directory, leaves its process id
//! in a file, and tells the operator in a few lines what it is.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::config::{Config, ConfigStore, Supervised, describe};
use crate::process::log::LogHandle;
use crate::system::machine;

/// Makes `dir` the working directory, and absolute. The error is what the system says.
pub fn enter_directory(config: &mut Config) -> Result<(), String> {
    let enter = |dir: &Path| {
        std::env::set_current_dir(dir)?;
        std::env::current_dir()
    };
    config.dir = enter(&config.dir).map_err(|error| describe(&error))?;
    Ok(())
}

/// Keeps a crash from leaving a core file, which would hold the data set, keys and passwords, unless the configuration
/// wants one.
pub fn limit_core_files(config: &Config) -> io::Result<()> {
    if config.core_files {
        return Ok(());
    }
    let former = rustix::process::getrlimit(rustix::process::Resource::Core);
    let none = rustix::process::Rlimit { current: Some(0), maximum: former.maximum };
    Ok(rustix::process::setrlimit(rustix::process::Resource::Core, none)?)
}

/// Registers the side effects of CONFIG SET that belong to the process: `dir` and `loglevel`.
pub fn register_hooks(store: &ConfigStore, log: Option<LogHandle>) {
    store.on_change(&["dir"], Box::new(|_, new| enter_directory(new)));
    if let Some(log) = log {
        store.on_change(
            &["loglevel"],
            Box::new(move |_, new| {
                log.set_level(new.loglevel);
                Ok(())
            }),
        );
    }
}

/// The file that holds this process's id; removed when dropped, unless another process took it over.
pub struct PidFile {
    /// Invariant: absolute, so that a change of `dir` does not lose it.
    path: PathBuf,
}

impl PidFile {
    /// Writes the file; `None` for an empty path. The error names the file.
    pub fn write(path: &Path) -> Result<Option<Self>, String> {
        if path.as_os_str().is_empty() {
            return Ok(None);
        }
        let write = || {
            let path = std::path::absolute(path)?;
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o644)
                .open(&path)?;
            writeln!(file, "{}", std::process::id())?;
            Ok(Self { path })
        };
        let named = |error: io::Error| {
            format!("cannot write pidfile {}: {}; choose another --pidfile", path.display(), describe(&error))
        };
        write().map(Some).map_err(named)
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let own = std::process::id().to_string();
        if std::fs::read_to_string(&self.path).is_ok_and(|text| text.trim() == own) {
            // A file left behind does no harm: its process id is dead.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Why the server cannot listen on `address` (as an operator would write it), and what to do.
pub fn bind_failure(address: &str, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => "choose another --port or stop the process that uses it",
        io::ErrorKind::AddrNotAvailable => {
            "this host has no such address: correct --bind, or write a '-' before it"
        }
        io::ErrorKind::PermissionDenied => {
            "choose a --port above 1023, or a --unixsocket in a directory you may write"
        }
        io::ErrorKind::NotFound => "create the directory first",
        _ => "correct --bind, --port or --unixsocket",
    };
    let mut reason = describe(error);
    if let Some(first) = reason.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    format!("cannot listen on {address}: {reason}: {remedy}")
}

/// The lines that a starting server logs at level notice.
pub fn announcement(config: &Config, file: Option<&Path>) -> Vec<String> {
    let workers = config.worker_count();
    let memory = match config.maxmemory {
        0 => "no memory limit".to_owned(),
        bytes => format!("memory limit {bytes} bytes"),
    };
    let plural = if workers == 1 { "" } else { "s" };
    let mut lines = vec![
        format!(
            "Dunlin {}, process {}, {workers} worker thread{plural}, {memory}",
            env!("CARGO_PKG_VERSION"),
            std::process::id()
        ),
        match file {
            Some(file) => {
                format!("Configuration file {}, working directory {}", file.display(), config.dir.display())
            }
            None => format!(
                "No configuration file: defaults and flags, working directory {}",
                config.dir.display()
            ),
        },
    ];
    lines.extend(machine::announcement());
    lines
}

/// Warnings about this configuration on this host, as lines.
pub fn warnings(config: &Config) -> Vec<String> {
    let mut warnings: Vec<String> = config.ignored.iter().map(ToString::to_string).collect();
    if config.supervised == Supervised::Systemd && std::env::var_os("NOTIFY_SOCKET").is_none() {
        warnings.push(
            "supervised systemd: NOTIFY_SOCKET is not set, so nobody is told of the start; use Type=notify in the unit"
                .to_owned(),
        );
    }
    warnings.extend(machine::warnings(config.maxmemory, config.worker_count()));
    let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok();
    if config.port != 0 {
        warnings.extend(somaxconn.and_then(|text| backlog_warning(config.tcp_backlog, &text)));
    }
    warnings
}

/// The line of level warning about a server that lets every client in; `is_open` says whether the default user is on
/// and needs no password.
pub fn open_warning(config: &Config, is_open: bool) -> Option<&'static str> {
    let is_reachable = !config.protected_mode && is_open && listens_beyond_this_host(config);
    is_reachable.then_some(
        "Every host that reaches this one is let in as the default user: give it a password (requirepass, or ACL SETUSER default), switch it off, set protected-mode yes, or bind to 127.0.0.1",
    )
}

fn backlog_warning(backlog: u32, somaxconn: &str) -> Option<String> {
    let system: u32 = somaxconn.trim().parse().ok()?;
    (system < backlog).then(|| {
        format!("tcp-backlog {backlog} is cut to {system} by the system: raise it with sysctl net.core.somaxconn={backlog}")
    })
}

fn listens_beyond_this_host(config: &Config) -> bool {
    let is_loopback = |host: &str| match host.parse::<std::net::IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost",
    };
    (config.port != 0 || config.tls_port != 0)
        && config.bind_addresses().iter().any(|address| !is_loopback(&address.host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::ScratchDir;

    #[test]
    fn pidfile_lives_as_long_as_its_server() {
        let dir = ScratchDir::new("pid");
        let path = dir.path("a.pid");
        let file = PidFile::write(&path).unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        drop(file);
        assert!(!path.exists());

        let file = PidFile::write(&path).unwrap();
        std::fs::write(&path, "1\n").unwrap();
        drop(file);
        assert!(path.exists(), "it belongs to another process now");

        assert!(PidFile::write(Path::new("")).unwrap().is_none());
        assert_eq!(
            PidFile::write(Path::new("/nonexistent/a.pid")).err().unwrap(),
            "cannot write pidfile /nonexistent/a.pid: No such file or directory; choose another --pidfile"
        );
    }

    #[test]
    fn directory_that_is_missing_is_refused_as_in_redis() {
        let dir = ScratchDir::new("enter");
        dir.write("file", "");
        for (path, expected) in [
            (dir.path("none"), "No such file or directory"),
            (dir.path("file"), "Not a directory"),
            (PathBuf::new(), "No such file or directory"),
        ] {
            let mut config = Config { dir: path.clone(), ..Config::default() };
            assert_eq!(enter_directory(&mut config).unwrap_err(), expected);
            assert_eq!(config.dir, path);
        }
    }

    #[test]
    fn failures_to_listen_say_what_to_do() {
        let error = io::Error::from_raw_os_error(98);
        assert_eq!(
            bind_failure("127.0.0.1:6379", &error),
            "cannot listen on 127.0.0.1:6379: address already in use: choose another --port or stop the process that uses it"
        );
    }

    #[test]
    fn announcements_name_what_matters_and_no_password() {
        let mut config = Config { maxmemory: 1024, threads: 2, dir: "/data".into(), ..Config::default() };
        crate::config::find(b"requirepass").unwrap().assign_argument(b"hush", &mut config).unwrap();
        let text = announcement(&config, Some(Path::new("/etc/dunlin.conf"))).join("\n");
        for part in ["2 worker threads", "memory limit 1024 bytes", "/etc/dunlin.conf", "/data"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("hush"));
    }

    #[test]
    fn warnings_are_given_where_they_apply() {
        assert_eq!(backlog_warning(511, "4096\n"), None);
        assert_eq!(
            backlog_warning(511, "128\n").unwrap(),
            "tcp-backlog 511 is cut to 128 by the system: raise it with sysctl net.core.somaxconn=511"
        );
        let open = Config { protected_mode: false, bind: vec!["*".into()], ..Config::default() };
        assert!(listens_beyond_this_host(&open));
        assert!(open_warning(&open, true).is_some_and(|line| line.contains("requirepass")));
        assert_eq!(open_warning(&open, false), None, "the default user has a password, or is off");
        let local = Config { bind: vec!["127.0.0.1".into(), "-::1".into()], ..open };
        assert!(!listens_beyond_this_host(&local));
    }
}
