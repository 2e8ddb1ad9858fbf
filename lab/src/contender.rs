//! The columns of the lab: programs that it starts and servers that run already.
//!
//! ```text
//! --peer redis-server | valkey-server | [NAME=]PATH     Redis's flags
//! --peer memcached                                      memcached's own protocol
//! --peer nutcracker=K                                   K processes of redis-server behind a proxy
//! --peer sharded=K                                      K processes of redis-server, the client shards
//! --target NAME=URL                                     runs already: redis://, rediss://, unix://, memcached://
//! --target NAME=postgres://…                            PostgreSQL, for the fan pages
//! ```

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

#[cfg(feature = "postgres")]
use super::fan_pages::postgres::Postgres;
use super::server::{Protocol, Server};
use dunlin_bench::process::{self, Process, ScratchFolder};
use dunlin_bench::target::{Address, Target};
use dunlin_bench::uri;

/// Most processes behind one proxy.
const SHARDS_MAX: usize = 256;
/// Connections that servers shall take.
pub const CLIENTS_MAX: u32 = 20_000;
/// Memory of memcached in MiB: nothing shall be evicted.
const MEMCACHED_MIB: &str = "8192";

/// A column.
#[derive(Debug, Clone, PartialEq)]
pub struct Contender {
    /// Heading of the column.
    pub name: String,
    /// Origin of the binary.
    pub origin: Origin,
}

/// The source of a server.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// This program's own server.
    Dunlin(PathBuf),
    /// A program that takes Redis's flags.
    Redis(PathBuf),
    /// memcached.
    Memcached(PathBuf),
    /// Processes of Redis behind twemproxy.
    Nutcracker { proxy: PathBuf, redis: PathBuf, shards: usize },
    /// Processes of Redis among which the client divides the keys.
    Sharded { redis: PathBuf, shards: usize },
    /// A server that runs already.
    Running(Target),
    /// A memcached that runs already.
    RunningMemcached(Target),
    /// A PostgreSQL that runs already, by its URL: a store of the fan pages, and of nothing else.
    Postgres(String),
}

/// The settings that an experiment asks of the servers that the lab starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Settings {
    /// Nothing is written to disk.
    #[default]
    MemoryOnly,
    /// An append-only file, written through once a second and compacted only on request: the published experiment
    /// switched that off on purpose.
    AppendOnly,
}

impl Settings {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::MemoryOnly => &["--save", "", "--appendonly", "no"],
            Self::AppendOnly => &[
                "--save",
                "",
                "--appendonly",
                "yes",
                "--appendfsync",
                "everysec",
                "--auto-aof-rewrite-percentage",
                "0",
            ],
        }
    }
}

/// Why a peer cannot take part.
#[derive(Debug)]
pub enum Unusable {
    /// A program of this name is not on PATH.
    Missing(String),
    /// The argument is wrong, for this reason.
    Wrong(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(program) => write!(formatter, "there is no `{program}` on PATH"),
            Self::Wrong(reason) => formatter.write_str(reason),
        }
    }
}

impl Contender {
    /// The server at `path`, or else the `dunlin` that stands beside this program or on PATH.
    pub fn dunlin(path: Option<&Path>) -> Result<Self, String> {
        let path = match path {
            Some(path) => program(path)?,
            None => {
                let own =
                    std::env::current_exe().map_err(|error| format!("cannot tell my own path: {error}"))?;
                process::found(&own.with_file_name("dunlin"))
                    .or_else(|| process::found(Path::new("dunlin")))
                    .ok_or(
                        "there is no `dunlin` beside this program or on PATH: name it with --dunlin PATH",
                    )?
            }
        };
        Ok(Self { name: "dunlin".into(), origin: Origin::Dunlin(path) })
    }

    /// The peer that `--peer` names.
    pub fn peer(text: &str) -> Result<Self, Unusable> {
        // A path that leads nowhere is a slip; a program that is not installed is none.
        let program = |path: &Path| match path.components().count() {
            1 => process::found(path).ok_or_else(|| Unusable::Missing(path.display().to_string())),
            _ => program(path).map_err(Unusable::Wrong),
        };
        let redis = || program(Path::new("redis-server"));
        let shards = |text: &str| match text.parse() {
            Ok(shards) if (1..=SHARDS_MAX).contains(&shards) => Ok(shards),
            _ => {
                Err(Unusable::Wrong(format!("'{text}' is not a number of processes from 1 to {SHARDS_MAX}")))
            }
        };
        let origin = match text.split_once('=') {
            Some(("nutcracker", count)) => Origin::Nutcracker {
                proxy: program(Path::new("nutcracker"))?,
                redis: redis()?,
                shards: shards(count)?,
            },
            Some(("sharded", count)) => Origin::Sharded { redis: redis()?, shards: shards(count)? },
            Some((name, path)) => {
                return Ok(Self { name: name.into(), origin: by_program(program(Path::new(path))?) });
            }
            None => by_program(program(Path::new(text))?),
        };
        let name = match &origin {
            Origin::Redis(path) | Origin::Memcached(path) => {
                path.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
            _ => text.into(),
        };
        Ok(Self { name, origin })
    }

    /// The contender that `--target` names.
    pub fn target(text: &str) -> Result<Self, String> {
        let (name, url) =
            text.split_once('=').filter(|(name, _)| !name.contains("://")).unwrap_or(("", text));
        let origin = match url.split_once("://") {
            Some(("memcached", rest)) => Origin::RunningMemcached(uri::parse(&format!(
                "redis://{}",
                if rest.contains(':') { rest.to_string() } else { format!("{rest}:11211") }
            ))?),
            Some(("postgres" | "postgresql", _)) => {
                check_postgres(url).map_err(|error| format!("bad URL of PostgreSQL: {error}"))?;
                Origin::Postgres(url.into())
            }
            _ => Origin::Running(uri::parse(url)?),
        };
        let name = if name.is_empty() { without_secrets(url) } else { name.into() };
        Ok(Self { name, origin })
    }

    /// Whether it speaks the Redis protocol.
    pub fn speaks_redis(&self) -> bool {
        !matches!(self.origin, Origin::Memcached(_) | Origin::RunningMemcached(_) | Origin::Postgres(_))
    }

    /// Whether it keeps keys and values, as all experiments but the fan pages want it.
    pub fn keeps_keys(&self) -> bool {
        !matches!(self.origin, Origin::Postgres(_))
    }

    /// Whether it is one server with all commands: scripts, transactions and MONITOR are beyond a
    /// proxy and a client that shards.
    pub fn is_whole(&self) -> bool {
        matches!(self.origin, Origin::Dunlin(_) | Origin::Redis(_) | Origin::Running(_))
    }

    /// Version, for the report.
    pub fn version(&self) -> String {
        match &self.origin {
            Origin::Dunlin(path) | Origin::Redis(path) | Origin::Memcached(path) => process::version(path),
            Origin::Nutcracker { proxy, redis, shards } => {
                format!("{}; {shards} × {}", process::version(proxy), process::version(redis))
            }
            Origin::Sharded { redis, shards } => format!("{shards} × {}", process::version(redis)),
            Origin::Running(target) => target
                .client()
                .and_then(|mut client| client.info("server"))
                .ok()
                .flatten()
                .and_then(|info| {
                    let version = info.field("valkey_version").or(info.field("redis_version"))?;
                    Some(format!("running at {}, says version {version}", target.address))
                })
                .unwrap_or_else(|| format!("running at {}", target.address)),
            Origin::RunningMemcached(target) => format!("memcached running at {}", target.address),
            #[cfg(feature = "postgres")]
            Origin::Postgres(url) => Postgres::version(url).unwrap_or_else(|error| error),
            #[cfg(not(feature = "postgres"))]
            Origin::Postgres(_) => "PostgreSQL".into(),
        }
    }

    /// Starts it restricted to `processors`, or connects to it.
    pub fn start(&self, settings: Settings, processors: &[usize]) -> Result<Server, String> {
        let mut server = Server::new(&self.name, Protocol::Redis);
        match &self.origin {
            Origin::Dunlin(path) => {
                let threads = processors.len().to_string();
                server.add_redis(
                    path,
                    &["server"],
                    &["--threads", &threads],
                    settings.flags(),
                    processors,
                )?;
            }
            Origin::Redis(path) => server.add_redis(path, &[], &[], settings.flags(), processors)?,
            Origin::Sharded { redis, shards } => {
                for _ in 0..*shards {
                    server.add_redis(redis, &[], &[], settings.flags(), processors)?;
                }
                server.settings = format!("{shards} × {}", server.settings);
            }
            Origin::Nutcracker { proxy, redis, shards } => {
                for _ in 0..*shards {
                    server.add_redis(redis, &[], &[], settings.flags(), processors)?;
                }
                server.settings = format!("nutcracker before {shards} × {}", server.settings);
                add_nutcracker(&mut server, proxy, processors)?;
            }
            Origin::Memcached(path) => {
                server.protocol = Protocol::Memcached;
                add_memcached(&mut server, path, processors)?;
            }
            Origin::Running(target) => {
                server.attach(target.clone())?;
            }
            Origin::RunningMemcached(target) => {
                server.protocol = Protocol::Memcached;
                server.attach(target.clone())?;
            }
            Origin::Postgres(_) => return Err("it keeps tables, not keys".into()),
        }
        Ok(server)
    }
}

#[cfg(feature = "postgres")]
fn check_postgres(url: &str) -> Result<(), String> {
    super::fan_pages::postgres::check_url(url)
}

#[cfg(not(feature = "postgres"))]
fn check_postgres(_: &str) -> Result<(), String> {
    Err("this program was built without the feature `postgres`".into())
}

/// A URL as a report may show it: without user, password and options.
fn without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| *scheme != "unix") else {
        return url.into();
    };
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    format!("{scheme}://{}{path}", authority.rsplit_once('@').map_or(authority, |(_, host)| host))
}

fn by_program(path: PathBuf) -> Origin {
    if path.file_name().is_some_and(|name| name == "memcached") {
        Origin::Memcached(path)
    } else {
        Origin::Redis(path)
    }
}

fn program(path: &Path) -> Result<PathBuf, String> {
    process::found(path).ok_or_else(|| format!("no such program: {}", path.display()))
}

/// Puts the proxy before the processes that the server has so far.
fn add_nutcracker(server: &mut Server, proxy: &Path, processors: &[usize]) -> Result<(), String> {
    let folder = ScratchFolder::new()?;
    let (port, statistics) = (free_port()?, free_port()?);
    let mut config = format!(
        "lab:\n  listen: 127.0.0.1:{port}\n  hash: fnv1a_64\n  distribution: ketama\n  \
         auto_eject_hosts: false\n  redis: true\n  servers:\n"
    );
    for target in &server.fronts {
        config.push_str(&format!("   - {}:1\n", target.address));
    }
    let path = folder.path().join("nutcracker.yml");
    fs::write(&path, config).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    let arguments: Vec<String> =
        ["-c", "nutcracker.yml", "-a", "127.0.0.1", "-s", &statistics.to_string()].map(str::to_string).into();
    let mut process = Process::start(proxy, &arguments, folder, processors)?;
    let front = loopback(port);
    process.await_ready(|| {
        front.client().and_then(|mut client| client.call(&["GET", "ready"])).is_ok_and(|reply| {
            // While it has not yet reached its servers, it answers with errors.
            !matches!(reply, dunlin_resp::Value::Error(_))
        })
    })?;
    server.fronts = vec![front];
    server.unix = None;
    server.processes.push(process);
    Ok(())
}

fn add_memcached(server: &mut Server, path: &Path, processors: &[usize]) -> Result<(), String> {
    let port = free_port()?;
    let (port_text, threads) = (port.to_string(), processors.len().to_string());
    let clients = CLIENTS_MAX.to_string();
    let flags = [
        "-l",
        "127.0.0.1",
        "-p",
        &port_text,
        "-U",
        "0",
        "-t",
        &threads,
        "-m",
        MEMCACHED_MIB,
        "-I",
        "128m",
        "-c",
        &clients,
        "-M",
    ];
    let mut arguments: Vec<String> = flags.map(str::to_string).into();
    if rustix::process::geteuid().is_root() {
        // This server refuses to be root unless a flag says so.
        arguments.extend(["-u".to_string(), "root".to_string()]);
    }
    server.settings = arguments.join(" ").replace(&port_text, "PORT");
    let mut process = Process::start(path, &arguments, ScratchFolder::new()?, processors)?;
    let target = loopback(port);
    process.await_ready(|| target.connect().is_ok())?;
    server.fronts.push(target.clone());
    server.backends.push(target);
    server.processes.push(process);
    Ok(())
}

/// A free port of the loopback interface.
pub fn free_port() -> Result<u16, String> {
    process::free_port().map_err(|error| format!("no free port: {error}"))
}

/// A server on a port of the loopback interface.
pub fn loopback(port: u16) -> Target {
    Target::new(Address::Tcp("127.0.0.1".into(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_programs_and_groups_of_them() {
        let peer = Contender::peer("other=/bin/sh").unwrap();
        assert_eq!((peer.name.as_str(), peer.origin), ("other", Origin::Redis("/bin/sh".into())));
        assert_eq!(Contender::peer("/bin/sh").unwrap().name, "sh");
        let refused = |peer| match Contender::peer(peer).unwrap_err() {
            Unusable::Wrong(error) => error,
            Unusable::Missing(program) => panic!("{program} is said to be missing"),
        };
        assert_eq!(refused("/no/such"), "no such program: /no/such");
        assert!(refused("sharded=0").contains("from 1 to 256"));
    }

    #[test]
    fn targets_are_urls_with_or_without_a_name() {
        let target = Contender::target("mine=redis://host:7000/3").unwrap();
        let Origin::Running(at) = &target.origin else { panic!("{target:?}") };
        assert_eq!(
            (target.name.as_str(), at.address.to_string(), at.database),
            ("mine", "host:7000".into(), 3)
        );
        assert_eq!(Contender::target("unix:///tmp/a=b").unwrap().name, "unix:///tmp/a=b");
        let memcached = Contender::target("memcached://cache").unwrap();
        assert!(!memcached.speaks_redis());
        let Origin::RunningMemcached(at) = &memcached.origin else { panic!("{memcached:?}") };
        assert_eq!(at.address.to_string(), "cache:11211");
        assert!(Contender::target("mine=http://host").is_err());
        let secret = Contender::target("redis://ann:p%40ss@host:7000/3").unwrap();
        assert_eq!(secret.name, "redis://host:7000/3");
        assert!(!Contender::target("mine=rediss://host?insecure").unwrap().name.contains("insecure"));
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn postgresql_is_a_target_by_either_name() {
        let sql = Contender::target("sql=postgres://ann:secret@db/fans").unwrap();
        assert_eq!((sql.name.as_str(), sql.keeps_keys(), sql.speaks_redis()), ("sql", false, false));
        let unnamed = Contender::target("postgresql://ann:secret@db:5433/fans").unwrap();
        assert_eq!(unnamed.name, "postgresql://db:5433/fans");
        assert!(Contender::target("postgres://db:port").unwrap_err().starts_with("bad URL of PostgreSQL: "));
    }
}
