//! [`ConfigStore`]: the current configuration, and CONFIG GET, SET and REWRITE on it.
//!
//! ```text
//!             set: clone ─ assign all ─ run hooks ─ publish (configuration, then generation)
//!                                                     │
//! worker: once a tick, one load of the generation ────┘ differs? load it : go on
//! ```
//! Changes are serialized by a mutex; readers never wait. A change is published only when every
//! value is valid and every hook has agreed; otherwise the hooks that ran are run backwards.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use dunlin_engine::{command::CommandError, glob::Glob};

use super::directive::{Change, Directive, ValueError};
use super::foreign;
use super::rewrite::{self, RewrittenUsers};
use super::settings::Config;
use super::table::{find, find_name, names};

/// A side effect of a change: it is given the configuration in force and the one to come, which it may
/// still settle (a working directory becomes absolute). An error, Redis's text without prefix, refuses
/// the whole change. Undoing a change calls the hook with the two swapped. A hook must not use the
/// store.
pub type Hook = Box<dyn Fn(&Config, &mut Config) -> Result<(), String> + Send + Sync>;

/// The current configuration. Shared by all threads.
pub struct ConfigStore {
    current: ArcSwap<Config>,
    /// Grows by one with every change.
    generation: AtomicU64,
    changes: Mutex<Changes>,
    /// Called after each change, once readers find it.
    published: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct Changes {
    /// Invariant: absolute, so that `dir` does not move it.
    file: Option<PathBuf>,
    hooks: Vec<(&'static [&'static str], Hook)>,
}

/// Why CONFIG SET changed nothing. Displays as the whole error line for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetError {
    /// No directive of this name, which may be any bytes.
    Unknown(Vec<u8>),
    /// A directive that cannot have this value, or cannot change.
    Failed {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for SetError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(out, "{UNKNOWN}{}'", String::from_utf8_lossy(name)),
            Self::Failed { name, reason } => {
                write!(out, "ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")
            }
        }
    }
}

impl std::error::Error for SetError {}

impl From<SetError> for CommandError {
    fn from(error: SetError) -> Self {
        match error {
            SetError::Unknown(name) => Self::quoting_within(UNKNOWN, &name, "'"),
            SetError::Failed { .. } => Self::owned(error.to_string()),
        }
    }
}

const UNKNOWN: &str = "ERR Unknown option or number of arguments for CONFIG SET - '";

/// Why CONFIG REWRITE left the file as it was. Displays as the whole error line for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RewriteError {
    /// The server was started without a file.
    NoFile,
    /// The file cannot be read, understood or replaced.
    Failed(String),
}

impl fmt::Display for RewriteError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile => out.write_str("ERR The server is running without a config file"),
            Self::Failed(reason) => write!(out, "ERR Rewriting config file: {reason}"),
        }
    }
}

impl std::error::Error for RewriteError {}

impl ConfigStore {
    /// A store that begins with `config`; `file` is what CONFIG REWRITE writes, an absolute path.
    pub fn new(config: Config, file: Option<PathBuf>) -> Self {
        debug_assert!(file.as_ref().is_none_or(|file| file.is_absolute()));
        Self {
            current: ArcSwap::from_pointee(config),
            generation: AtomicU64::new(0),
            changes: Mutex::new(Changes { file, hooks: Vec::new() }),
            published: OnceLock::new(),
        }
    }

    /// Calls `hook` once for each change of any of the named directives, in the order of registration.
    ///
    /// # Panics
    /// If a name is not one of the table's.
    pub fn on_change(&self, names: &'static [&'static str], hook: Hook) {
        assert!(names.iter().all(|name| find(name.as_bytes()).is_some()), "unknown directive in {names:?}");
        self.lock().hooks.push((names, hook));
    }

    /// Calls `notify` after every change from now on, when readers find it.
    ///
    /// # Panics
    /// At the second call.
    pub(crate) fn on_published(&self, notify: Box<dyn Fn() + Send + Sync>) {
        assert!(self.published.set(notify).is_ok(), "one listener is told of changes");
    }

    /// Makes readers look for the configuration anew.
    fn publish(&self) {
        self.generation.fetch_add(1, Ordering::Release);
        if let Some(notify) = self.published.get() {
            notify();
        }
    }

    /// The current configuration. Takes no lock.
    pub fn current(&self) -> Arc<Config> {
        self.current.load_full()
    }

    /// Changes whenever the configuration does.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Makes every reader take the configuration anew: something beside it that workers derive from it has changed.
    pub fn touch(&self) {
        let _changes = self.lock();
        self.publish();
    }

    /// The file that the server was started with.
    pub fn file(&self) -> Option<PathBuf> {
        self.lock().file.clone()
    }

    /// CONFIG GET: names and aliases that match any pattern, each once, sorted, with their values, and directives of
    /// other servers that have one true value here. A name that is asked for without wildcards is spelled as in the
    /// question, since the client looks for that.
    pub fn get<'a>(&self, patterns: &[&'a [u8]]) -> Vec<(&'a [u8], Vec<u8>)> {
        let config = self.current.load();
        let patterns: Vec<(&[u8], Option<Glob>)> =
            patterns.iter().map(|pattern| (*pattern, compile(pattern))).collect();
        let spelling = |name: &'static str| {
            let matches = |(pattern, glob): &&(&[u8], Option<Glob>)| match glob {
                Some(glob) => glob.matches(name.as_bytes()),
                None => pattern.eq_ignore_ascii_case(name.as_bytes()),
            };
            let (pattern, _) = patterns.iter().find(matches)?;
            Some(if pattern.eq_ignore_ascii_case(name.as_bytes()) { *pattern } else { name.as_bytes() })
        };
        let own =
            names().filter_map(|(name, directive)| Some((name, spelling(name)?, directive.print(&config))));
        let facts = foreign::facts().filter_map(|(name, value)| Some((name, spelling(name)?, value.into())));
        let mut found: Vec<_> = own.chain(facts).collect();
        found.sort_unstable_by_key(|(name, ..)| *name);
        found.into_iter().map(|(_, spelling, value)| (spelling, value)).collect()
    }

    /// The directives that CONFIG SET of these pairs would change, with their values as CONFIG GET would show them. Nothing is
    /// changed.
    pub fn check(
        &self,
        pairs: &[(&[u8], &[u8])],
        client_is_local: bool,
    ) -> Result<Vec<(&'static Directive, Vec<u8>)>, SetError> {
        let old = self.current.load_full();
        let mut new = Config::clone(&old);
        let resolved = resolve(pairs, &old, client_is_local)?;
        assign_all(&resolved, &mut new)?;
        Ok(resolved.into_iter().map(|(_, directive, _)| (directive, directive.print(&new))).collect())
    }

    /// CONFIG SET: all pairs of name and value, or none. `client_is_local` says whether the client
    /// is on this host, which `enable-protected-configs local` asks for.
    pub fn set(&self, pairs: &[(&[u8], &[u8])], client_is_local: bool) -> Result<(), SetError> {
        let mut changes = self.lock();
        let old = self.current.load_full();
        let mut new = Config::clone(&old);
        let resolved = resolve(pairs, &old, client_is_local)?;
        assign_all(&resolved, &mut new)?;
        let rereads = |(_, directive, _): &Resolved<'_>| directive.is_reread().then_some(directive.name);
        let reread: Vec<&str> = resolved.iter().filter_map(rereads).collect();
        changes.run_hooks(&old, &mut new, &reread)?;
        self.current.store(Arc::new(new));
        self.publish();
        Ok(())
    }

    /// Takes the directives of a cluster from a configuration whose server has become a node.
    pub(crate) fn become_node(&self, node: &Config) {
        let _changes = self.lock();
        let mut new = Config::clone(&self.current.load_full());
        for (_, directive) in names().filter(|(_, directive)| directive.name.starts_with("cluster-")) {
            let assigned = directive.assign_argument(&directive.print(node), &mut new);
            debug_assert!(assigned.is_ok(), "{} reads what it has printed", directive.name);
        }
        new.databases = node.databases;
        self.current.store(Arc::new(new));
        self.publish();
    }

    /// Changes what a command has changed by itself, as REPLICAOF does, for CONFIG GET and CONFIG REWRITE.
    pub fn follow(&self, primary: Option<super::PrimaryAddress>) {
        let _changes = self.lock();
        let mut new = Config::clone(&self.current.load_full());
        new.replicaof = primary;
        self.current.store(Arc::new(new));
        self.publish();
    }

    /// CONFIG REWRITE: writes the current values, and the users, into the file that the server was started with.
    pub(crate) fn rewrite(&self, users: &RewrittenUsers<'_>) -> Result<(), RewriteError> {
        let changes = self.lock();
        let file: &Path = changes.file.as_deref().ok_or(RewriteError::NoFile)?;
        rewrite::rewrite_file(file, &self.current.load(), users).map_err(RewriteError::Failed)
    }

    fn lock(&self) -> MutexGuard<'_, Changes> {
        // A hook that panicked has changed nothing of ours.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Resolved<'a> = (&'static str, &'static Directive, &'a [u8]);

fn assign_all(resolved: &[Resolved<'_>], config: &mut Config) -> Result<(), SetError> {
    resolved.iter().try_for_each(|(name, directive, value)| {
        let failed =
            |error: ValueError| SetError::Failed { name: (*name).to_owned(), reason: error.to_string() };
        directive.assign_argument(value, config).map_err(failed)
    })
}

/// Finds the directives of all pairs. The first mistake is told, with the name as it was typed.
fn resolve<'a>(
    pairs: &[(&'a [u8], &'a [u8])],
    config: &Config,
    client_is_local: bool,
) -> Result<Vec<Resolved<'a>>, SetError> {
    let mut resolved: Vec<Resolved<'a>> = Vec::with_capacity(pairs.len());
    for &(typed, value) in pairs {
        let shown = String::from_utf8_lossy(typed);
        let failed =
            |reason: &str| Err(SetError::Failed { name: shown.to_string(), reason: reason.to_owned() });
        let Some((name, directive)) = find_name(typed) else {
            match foreign::set(typed, value) {
                Some(Ok(())) => continue,
                Some(Err(why)) => return failed(why),
                None => return Err(SetError::Unknown(typed.to_vec())),
            }
        };
        match directive.change {
            Change::AtStart => return failed("can't set immutable config"),
            Change::Protected if !config.enable_protected_configs.allows(client_is_local) => {
                return failed("can't set protected config");
            }
            Change::Protected | Change::Anytime => {}
        }
        if resolved.iter().any(|(_, earlier, _)| std::ptr::eq(*earlier, directive)) {
            return failed("duplicate parameter");
        }
        resolved.push((name, directive, value));
    }
    Ok(resolved)
}

impl Changes {
    /// Runs the hooks of directives that differ, and of those that are read again.
    fn run_hooks(&mut self, old: &Config, new: &mut Config, reread: &[&str]) -> Result<(), SetError> {
        let changed = |name: &&&'static str| {
            reread.contains(*name) || find(name.as_bytes()).is_some_and(|row| !row.is_same(old, new))
        };
        let due: Vec<_> = self
            .hooks
            .iter()
            .filter_map(|(names, hook)| Some((*names.iter().find(changed)?, hook)))
            .collect();
        for (index, (name, hook)) in due.iter().enumerate() {
            let Err(reason) = hook(old, new) else { continue };
            for (name, hook) in due.iter().take(index).rev() {
                // Going back to values that were in force a moment ago.
                if let Err(reason) = hook(new, &mut old.clone()) {
                    tracing::warn!("cannot restore {name} after a refused CONFIG SET: {reason}");
                }
            }
            return Err(SetError::Failed { name: (*name).to_owned(), reason });
        }
        Ok(())
    }
}

/// A worker's reference to the configuration, renewed once a tick.
pub struct ConfigReader {
    store: Arc<ConfigStore>,
    generation: u64,
    config: Arc<Config>,
}

impl ConfigReader {
    /// Begins with the current configuration.
    pub fn new(store: Arc<ConfigStore>) -> Self {
        // The generation first: a change in between costs a second refresh, never a missed one.
        let generation = store.generation();
        let config = store.current();
        Self { store, generation, config }
    }

    /// Takes the current configuration and returns whether it differs from before. Costs one load if it does not.
    pub fn refresh(&mut self) -> bool {
        let generation = self.store.generation();
        if generation == self.generation {
            return false;
        }
        self.generation = generation;
        self.config = self.store.current();
        true
    }

    /// The configuration at the last refresh.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The store, for changes.
    pub fn store(&self) -> &Arc<ConfigStore> {
        &self.store
    }
}

/// A pattern of CONFIG GET, compiled; `None` for a name, in which nothing is special.
fn compile(pattern: &[u8]) -> Option<Glob> {
    let is_name = !pattern.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['));
    // No name is as long as what a pattern that is too complex would match.
    (!is_name).then(|| Glob::ignoring_case(pattern).unwrap_or(Glob::NOTHING))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn store() -> ConfigStore {
        let config =
            Config { enable_protected_configs: crate::config::Permission::Local, ..Config::default() };
        ConfigStore::new(config, None)
    }

    fn pairs<'a>(words: &'a str) -> Vec<(&'a [u8], &'a [u8])> {
        let pair =
            |pair: &'a str| pair.split_once('=').map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        words.split(';').map(|text| pair(text).unwrap()).collect()
    }

    fn get(store: &ConfigStore, patterns: &[&str]) -> String {
        let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.as_bytes()).collect();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let line = |(name, value): (&[u8], Vec<u8>)| format!("{}={}", text(name), text(&value));
        store.get(&patterns).into_iter().map(line).collect::<Vec<_>>().join(";")
    }

    /// The texts are those of redis-server 7.0.15, except if a directive has other limits.
    #[test]
    fn refusals_have_the_texts_of_redis() {
        let failed = |name: &str, reason: &str| {
            format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")
        };
        let cases = [
            ("x=1", "ERR Unknown option or number of arguments for CONFIG SET - 'x'".to_owned()),
            (
                "foo=1;databases=2",
                "ERR Unknown option or number of arguments for CONFIG SET - 'foo'".to_owned(),
            ),
            ("databases=2;foo=1", failed("databases", "can't set immutable config")),
            ("DATABASES=2", failed("DATABASES", "can't set immutable config")),
            ("hz=abc", failed("hz", "argument couldn't be parsed into an integer")),
            ("hz=", failed("hz", "argument couldn't be parsed into an integer")),
            ("hz=010", failed("hz", "argument couldn't be parsed into an integer")),
            ("hz=10;HZ=11", failed("HZ", "duplicate parameter")),
            ("hz=x;maxclients=x", failed("hz", "argument couldn't be parsed into an integer")),
            ("maxmemory=-1", failed("maxmemory", "argument must be a memory value")),
            ("maxmemory=1.5g", failed("maxmemory", "argument must be a memory value")),
            ("latency-tracking=maybe", failed("latency-tracking", "argument must be 'yes' or 'no'")),
            (
                "LOGLEVEL=foo",
                failed(
                    "loglevel",
                    "argument(s) must be one of the following: debug, verbose, notice, warning, nothing",
                ),
            ),
            (
                "maxmemory-policy=foo",
                failed(
                    "maxmemory-policy",
                    "argument(s) must be one of the following: volatile-lru, volatile-lfu, volatile-random, volatile-ttl, volatile-lrm, volatile-auto, allkeys-lru, allkeys-lfu, allkeys-random, allkeys-lrm, allkeys-auto, noeviction",
                ),
            ),
            (
                "tcp-keepalive=-1",
                failed("tcp-keepalive", "argument must be between 0 and 2147483647 inclusive"),
            ),
            ("maxclients=0", failed("maxclients", "argument must be between 1 and 4294967295 inclusive")),
            (
                "proto-max-bulk-len=1",
                failed(
                    "proto-max-bulk-len",
                    "argument must be between 1048576 and 9223372036854775807 inclusive",
                ),
            ),
            (
                "slowlog-log-slower-than=-5",
                failed(
                    "slowlog-log-slower-than",
                    "argument must be between -1 and 9223372036854775807 inclusive",
                ),
            ),
            (
                "active-expire-effort=11",
                failed("active-expire-effort", "argument must be between 1 and 10 inclusive"),
            ),
            (
                "shutdown-on-sigterm=now foo",
                failed(
                    "shutdown-on-sigterm",
                    "argument(s) must be one of the following: default, save, nosave, now, force",
                ),
            ),
            (
                "latency-tracking-info-percentiles=50 200",
                failed(
                    "latency-tracking-info-percentiles",
                    "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
                ),
            ),
            (
                "latency-tracking-info-percentiles=50 abc",
                failed(
                    "latency-tracking-info-percentiles",
                    "Invalid latency-tracking-info-percentiles parameters",
                ),
            ),
            (
                "client-output-buffer-limit=normal 1 2",
                failed(
                    "client-output-buffer-limit",
                    "Wrong number of arguments in buffer limit configuration.",
                ),
            ),
            (
                "client-output-buffer-limit=master 1 2 3",
                failed(
                    "client-output-buffer-limit",
                    "Invalid client class specified in buffer limit configuration.",
                ),
            ),
            (
                "client-output-buffer-limit=normal 1 -2 3",
                failed(
                    "client-output-buffer-limit",
                    "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
                ),
            ),
            ("save=foo", failed("save", "Invalid save parameters")),
            (
                "shutdown-on-sigterm=save now nosave",
                failed(
                    "shutdown-on-sigterm",
                    "shutdown options SAVE and NOSAVE can't be used simultaneously",
                ),
            ),
            ("appendonly=maybe", failed("appendonly", "argument must be 'yes' or 'no'")),
        ];
        let store = store();
        let before = store.current();
        for (pairs_text, expected) in cases {
            let error = store.set(&pairs(pairs_text), true).unwrap_err();
            assert_eq!(error.to_string(), expected, "{pairs_text}");
        }
        assert!(Arc::ptr_eq(&before, &store.current()) && store.generation() == 0, "nothing has changed");
    }

    #[test]
    fn config_get_shows_directives_of_other_servers_as_here() {
        let store = store();
        assert_eq!(
            get(&store, &["SUPERVISED", "cluster-en*", "tls-port"]),
            "cluster-enabled=no;SUPERVISED=no;tls-port=0"
        );
        store.set(&pairs("tls-port=0;hz=20"), true).unwrap();
        assert_eq!(get(&store, &["hz", "replicaof"]), "hz=20;replicaof=");
        let primary = crate::config::PrimaryAddress { host: "host".to_owned(), port: 7000 };
        store.follow(Some(primary));
        assert_eq!(get(&store, &["replicaof", "SLAVEOF"]), "replicaof=host 7000;SLAVEOF=host 7000");
        let error = store.set(&pairs("hz=30;io-threads=4"), true).unwrap_err().to_string();
        assert!(error.contains("'io-threads'") && error.contains("see threads"), "{error}");
        assert_eq!(get(&store, &["hz"]), "hz=20");
    }

    #[test]
    fn values_are_set_together_and_shown_as_redis_shows_them() {
        let store = store();
        for (set, patterns, expected) in [
            ("hz=1000", &["hz"][..], "hz=500"),
            ("maxmemory=1GB;hz=20", &["MAXMEMORY", "hz", "h?"], "hz=20;MAXMEMORY=1073741824"),
            ("hz=20", &["h?", "HZ"], "hz=20"),
            (
                "client-output-buffer-limit=normal 1mb 2kb 3 pubsub 5 6 7",
                &["client-output*"],
                "client-output-buffer-limit=normal 1048576 2048 3 slave 268435456 67108864 60 pubsub 5 6 7",
            ),
            ("client-output-buffer-limit=", &["x"], ""),
            ("shutdown-on-sigterm=now force", &["*sigterm"], "shutdown-on-sigterm=now force"),
            ("shutdown-on-sigterm=default", &["*sigterm"], "shutdown-on-sigterm=default"),
            (
                "latency-tracking-info-percentiles=50 99.95",
                &["*percentiles"],
                "latency-tracking-info-percentiles=50 99.95",
            ),
            ("latency-tracking-info-percentiles=", &["*percentiles"], "latency-tracking-info-percentiles="),
            ("requirepass=a b", &["requirepass"], "requirepass=a b"),
            (
                "commandlog-execution-slower-than=7",
                &["*slower*"],
                "commandlog-execution-slower-than=7;slowlog-log-slower-than=7",
            ),
        ] {
            store.set(&pairs(set), true).unwrap();
            assert_eq!(get(&store, patterns), expected, "{set}");
        }
        assert_eq!(
            get(&store, &["unixsocket*"]),
            "unixsocket=;unixsocket-user=;unixsocketgroup=;unixsocketperm=0"
        );
    }

    #[test]
    fn config_set_takes_every_printed_value() {
        let config = Config::default();
        for (name, directive) in names() {
            let mut again = config.clone();
            directive.assign_argument(&directive.print(&config), &mut again).unwrap_or_else(|error| {
                panic!("{name}: {error}");
            });
            assert_eq!(again, config, "{name}");
        }
    }

    #[test]
    fn protected_directives_ask_who_is_there() {
        let text = "ERR CONFIG SET failed (possibly related to argument 'dir') - can't set protected config";
        assert_eq!(store().set(&pairs("dir=/"), false).unwrap_err().to_string(), text);
        assert_eq!(store().set(&pairs("dir=/"), true), Ok(()));
        let closed = ConfigStore::new(Config::default(), None);
        assert_eq!(closed.set(&pairs("dir=/"), true).unwrap_err().to_string(), text);
    }

    #[test]
    fn config_hook_that_fails_undoes_earlier_ones() {
        let store = store();
        let level = Arc::new(Mutex::new("notice".to_owned()));
        let seen = level.clone();
        store.on_change(
            &["loglevel"],
            Box::new(move |_, new| {
                *seen.lock().unwrap() = new.loglevel.to_string();
                Ok(())
            }),
        );
        let fails = Arc::new(AtomicBool::new(true));
        let failing = fails.clone();
        store.on_change(
            &["dir", "maxclients"],
            Box::new(move |_, new| {
                if failing.load(Ordering::Relaxed) {
                    return Err("No such file or directory".to_owned());
                }
                new.dir = "/settled".into();
                Ok(())
            }),
        );
        let change = pairs("dir=/nowhere;loglevel=debug");
        assert_eq!(
            store.set(&change, true).unwrap_err().to_string(),
            "ERR CONFIG SET failed (possibly related to argument 'dir') - No such file or directory"
        );
        assert_eq!(*level.lock().unwrap(), "notice");
        assert_eq!(get(&store, &["dir", "loglevel"]), "dir=.;loglevel=notice");

        fails.store(false, Ordering::Relaxed);
        store.set(&change, true).unwrap();
        assert_eq!(*level.lock().unwrap(), "debug");
        assert_eq!(get(&store, &["dir", "loglevel"]), "dir=/settled;loglevel=debug");
    }

    #[test]
    fn hooks_run_only_for_values_that_differ() {
        let store = store();
        store.on_change(&["hz"], Box::new(|_, _| panic!("hz has not changed")));
        store.set(&pairs("hz=10;timeout=5"), true).unwrap();
    }

    #[test]
    fn readers_see_a_change_at_their_next_refresh() {
        let store = Arc::new(store());
        let mut reader = ConfigReader::new(store.clone());
        assert!(!reader.refresh());
        store.set(&pairs("timeout=5"), true).unwrap();
        assert_eq!(reader.config().timeout, 0);
        assert!(reader.refresh() && !reader.refresh());
        assert_eq!(reader.config().timeout, 5);
    }

    #[test]
    fn config_rewrite_needs_a_file() {
        let error = store().rewrite(&RewrittenUsers::UNCHANGED).unwrap_err();
        assert_eq!(error.to_string(), "ERR The server is running without a config file");
    }
}
