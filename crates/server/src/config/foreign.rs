//! Directives of other servers of the protocol: configuration files that were written for them load.
//!
//! A directive that asks for what this server does anyway is obeyed by that. A directive about
//! something that does not exist here, and whose absence harms no client, has no effect: the server
//! says so at start, in a line each, and never passes it over in silence. A directive whose absence
//! would break a promise (a password, durability, encryption) is refused.
//!
//! CONFIG GET answers those of [`FACTS`], which tools ask for, with the value that is true here.

use super::settings::Config;
use super::{
    lines::{IgnoredLine, Origin},
    table::find,
};

/// A directive of other servers, or a family of them.
struct Foreign {
    /// Lowercase; a name that ends with `*` stands for all that begin so.
    names: &'static [&'static str],
    /// The values, in lowercase, that ask for what this server does.
    obeyed: &'static [&'static str],
    /// The treatment of other values.
    otherwise: Otherwise,
}

enum Otherwise {
    /// No effect, and why that does no harm.
    Ignored(&'static str),
    /// The server does not start, and what to do.
    Refused(&'static str),
}

use Otherwise::{Ignored, Refused};

const NO_REPLICATION: Otherwise =
    Ignored("this version replicates in one way, which the directive does not change");
const NO_CLUSTER: Otherwise = Ignored("nodes agree through etcd, which the directive does not concern");
const NO_MODULES: Otherwise = Ignored("the module that the directive sets up is not there");
const NO_KEY_PASSWORDS: Otherwise = Refused(
    "keys with passwords are not read: write the key without one (openssl pkey -in old.key -out new.key) into a file that only the server may read, and remove the line",
);

/// In the order of redis.conf.
#[rustfmt::skip]
static FOREIGN: &[Foreign] = &[
    Foreign { names: &["loadmodule"], obeyed: &[], otherwise: Refused("modules cannot be loaded; remove the line") },
    Foreign { names: &["mptcp", "repl-mptcp"], obeyed: &["no"], otherwise: Ignored("clients connect by plain TCP") },
    Foreign { names: &["rdma-*"], obeyed: &[], otherwise: Refused("RDMA is not available in this version; remove the line") },
    Foreign { names: &["unixsocketgroup"], obeyed: &[""], otherwise: Refused("the socket keeps the group of the process; remove the line, and use unixsocketperm or Group= in a systemd unit") },
    Foreign { names: &["max-new-connections-per-cycle", "max-new-tls-connections-per-cycle"], obeyed: &[], otherwise: Ignored("a worker accepts connections in rounds of its own") },
    Foreign { names: &["socket-mark-id"], obeyed: &["0"], otherwise: Refused("sockets are not marked; remove the line") },
    Foreign { names: &["tls-key-file-pass", "tls-client-key-file-pass"], obeyed: &[""], otherwise: NO_KEY_PASSWORDS },
    Foreign { names: &["tls-dh-params-file"], obeyed: &[""], otherwise: Ignored("keys are exchanged over elliptic curves, which need no parameters") },
    Foreign { names: &["crash-log-enabled", "crash-memcheck-enabled"], obeyed: &["no"], otherwise: Ignored("a crash leaves one line on standard error") },
    Foreign { names: &["always-show-logo"], obeyed: &["no"], otherwise: Ignored("there is no logo") },
    Foreign { names: &["hide-user-data-from-log"], obeyed: &[], otherwise: Ignored("the log shows data of users only where a file is damaged: a key, or the name of a command") },
    Foreign { names: &["log-format", "log-timestamp-format"], obeyed: &[], otherwise: Ignored("the log has one form: the process id, the time in UTC, the level and a line") },
    Foreign { names: &["set-proc-title"], obeyed: &["no"], otherwise: Ignored("the process keeps the title that it was started with") },
    Foreign { names: &["proc-title-template"], obeyed: &[], otherwise: Ignored("the process keeps the title that it was started with") },
    Foreign { names: &["locale-collate"], obeyed: &[], otherwise: Ignored("nothing is sorted by a locale in this version") },
    Foreign { names: &["rdb-del-sync-files"], obeyed: &["no"], otherwise: NO_REPLICATION },
    Foreign { names: &["repl-*", "replica-*", "slave-*", "dual-channel-replication-enabled", "propagation-error-behavior"], obeyed: &[], otherwise: NO_REPLICATION },
    Foreign { names: &["enable-module-command"], obeyed: &["no"], otherwise: Refused("modules cannot be loaded; use 'no'") },
    Foreign { names: &["replica-ignore-maxmemory", "slave-ignore-maxmemory"], obeyed: &[], otherwise: NO_REPLICATION },
    Foreign { names: &["io-threads"], obeyed: &["1"], otherwise: Ignored("every worker thread reads, executes and replies; see threads") },
    Foreign { names: &["io-threads-do-reads"], obeyed: &["no"], otherwise: Ignored("every worker thread reads, executes and replies; see threads") },
    Foreign { names: &["events-per-io-thread", "prefetch-batch-max-size"], obeyed: &[], otherwise: Ignored("every worker thread reads, executes and replies; see threads") },
    Foreign { names: &["dynamic-hz"], obeyed: &["no"], otherwise: Ignored("background work does not grow with the number of clients") },
    Foreign { names: &["oom-score-adj"], obeyed: &["no"], otherwise: Refused("the score is left alone; use 'no', and OOMScoreAdjust= in a systemd unit") },
    Foreign { names: &["oom-score-adj-values"], obeyed: &[], otherwise: Ignored("the score is left alone") },
    Foreign { names: &["disable-thp"], obeyed: &["no"], otherwise: Ignored("huge pages are used where the system offers them, and nothing is forked that they could slow down") },
    Foreign { names: &["aof-rewrite-incremental-fsync", "aof-disable-auto-gc"], obeyed: &["no"], otherwise: Ignored("files are made durable by the policy of appendfsync alone, and superseded ones are removed") },
    Foreign { names: &["cluster-databases"], obeyed: &["1"], otherwise: Ignored("a cluster has one database") },
    Foreign { names: &["cluster-node-timeout"], obeyed: &["1300"], otherwise: Ignored("a primary that is silent is replaced when its leases have run out, after 1.3 s") },
    Foreign { names: &["cluster-*", "slot-migration-*"], obeyed: &[], otherwise: NO_CLUSTER },
    Foreign { names: &["availability-zone"], obeyed: &[""], otherwise: Ignored("clients are not told of availability zones") },
    Foreign { names: &["extended-redis-compatibility"], obeyed: &[], otherwise: Ignored("INFO and HELLO always name a version of Redis") },
    Foreign { names: &["import-mode"], obeyed: &["no"], otherwise: Refused("keys expire on time always; use 'no'") },
    Foreign { names: &["hash-seed"], obeyed: &[], otherwise: Ignored("every start draws a seed of its own") },
    Foreign { names: &["list-max-ziplist-entries", "list-max-ziplist-value"], obeyed: &[], otherwise: Ignored("list-max-listpack-size is what limits the blocks of lists") },
    Foreign { names: &["list-compress-depth"], obeyed: &["0"], otherwise: Ignored("the blocks of lists are not compressed") },
    Foreign { names: &["activerehashing"], obeyed: &["no"], otherwise: Ignored("tables grow a bucket at a time and are never rehashed") },
    Foreign { names: &["active-defrag-cycle-us"], obeyed: &[], otherwise: Ignored("entries are moved in slices of half a millisecond; see active-defrag-cycle-max") },
    Foreign { names: &["active-defrag-max-scan-fields"], obeyed: &[], otherwise: Ignored("entries are moved, the elements of collections are not") },
    Foreign { names: &["jemalloc-bg-thread"], obeyed: &["no"], otherwise: Ignored("the allocator is not jemalloc") },
    Foreign { names: &["server_cpulist", "server-cpulist", "bio_cpulist", "bio-cpulist", "aof_rewrite_cpulist", "aof-rewrite-cpulist", "bgsave_cpulist", "bgsave-cpulist"], obeyed: &[""], otherwise: Ignored("threads are not bound to cores; use taskset or CPUAffinity= in a systemd unit") },
    Foreign { names: &["bf-*", "cf-*", "search-*", "ts-*", "vset-force-single-threaded-execution"], obeyed: &[], otherwise: NO_MODULES },
    Foreign { names: &["hash-min-template-entries", "hash-max-template-entries", "hash-rdb-load-min-template-entries"], obeyed: &["0"], otherwise: Ignored("every hash has its own field names") },
    Foreign { names: &["key-memory-histograms"], obeyed: &["no"], otherwise: Ignored("INFO has no histograms of keys' sizes; MEMORY USAGE gives the size of one") },
    Foreign { names: &["lookahead"], obeyed: &[], otherwise: Ignored("up to 64 commands of a connection are looked at ahead") },
    Foreign { names: &["tls-expected-peer-name"], obeyed: &[""], otherwise: Refused("the name that a certificate of a peer must have cannot be chosen here; remove the line") },
    Foreign { names: &["bgsave-default-method", "default-bgsave-method", "forkless-infrastructure-enabled"], obeyed: &[], otherwise: Ignored("snapshots are made without a fork always") },
    Foreign { names: &["preload-file"], obeyed: &[""], otherwise: Refused("copy the file to dbfilename, or the directory of a backup to appenddirname, in dir, and remove the line") },
    Foreign { names: &["ignore-warnings"], obeyed: &["", "arm64-cow-bug"], otherwise: Ignored("there is no such warning") },
];

/// Directives of others that CONFIG GET answers, and the one value that is true here. Sorted.
#[rustfmt::skip]
static FACTS: &[(&str, &str)] = &[
    ("activerehashing", "no"),
    ("always-show-logo", "no"),
    ("aof-disable-auto-gc", "no"),
    ("aof-rewrite-incremental-fsync", "no"),
    ("aof_rewrite_cpulist", ""),
    ("bgsave_cpulist", ""),
    ("bio_cpulist", ""),
    ("cluster-databases", "1"),
    ("cluster-node-timeout", "1300"),
    ("crash-log-enabled", "no"),
    ("crash-memcheck-enabled", "no"),
    ("disable-thp", "no"),
    ("dynamic-hz", "no"),
    ("enable-module-command", "no"),
    ("ignore-warnings", ""),
    ("io-threads", "1"),
    ("io-threads-do-reads", "no"),
    ("jemalloc-bg-thread", "no"),
    ("list-compress-depth", "0"),
    ("oom-score-adj", "no"),
    ("rdb-del-sync-files", "no"),
    ("server_cpulist", ""),
    ("set-proc-title", "no"),
    ("socket-mark-id", "0"),
    ("tls-client-key-file-pass", ""),
    ("tls-dh-params-file", ""),
    ("tls-key-file-pass", ""),
    ("unixsocketgroup", ""),
];

/// The answers of CONFIG GET besides the table: names and values.
pub(super) fn facts() -> impl Iterator<Item = (&'static str, &'static str)> {
    FACTS.iter().copied()
}

/// Whether CONFIG SET may have this value for a directive of others: `None` for a name that CONFIG GET does not answer,
/// an error that says why not.
pub(super) fn set(name: &[u8], value: &[u8]) -> Option<Result<(), &'static str>> {
    let (name, fact) = FACTS.iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name))?;
    if fact.as_bytes().eq_ignore_ascii_case(value) {
        return Some(Ok(()));
    }
    Some(Err(row(name).map_or("", |row| match row.otherwise {
        Refused(why) | Ignored(why) => why,
    })))
}

/// The row of a name in lowercase.
fn row(name: &str) -> Option<&'static Foreign> {
    let is_meant = |known: &&str| match known.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == *known,
    };
    FOREIGN.iter().find(|foreign| foreign.names.iter().any(is_meant))
}

/// Directives of others whose values are passwords, or say whose password it is.
const SECRETS: &[&str] =
    &["sentinel-pass", "sentinel-user", "tls-client-key-file-pass", "tls-key-file-pass", "user"];

/// Whether the value of a directive, ours or another server's, is never shown.
pub(crate) fn is_secret(name: &[u8]) -> bool {
    find(name).is_some_and(|directive| directive.is_secret())
        || SECRETS.iter().any(|secret| secret.as_bytes().eq_ignore_ascii_case(name))
}

/// The treatment of a line of another server: `None` for an unknown name, an error that says what to
/// do if the line must not be ignored.
pub(super) fn load(
    origin: &Origin,
    name: &[u8],
    values: &[Vec<u8>],
    config: &mut Config,
) -> Option<Result<(), &'static str>> {
    let name = String::from_utf8(name.to_ascii_lowercase()).ok()?;
    let foreign = row(&name)?;
    let value = values.join(&b' ').to_ascii_lowercase();
    if foreign.obeyed.iter().any(|obeyed| obeyed.as_bytes() == value) {
        return Some(Ok(()));
    }
    Some(match foreign.otherwise {
        Refused(why) => Err(why),
        Ignored(reason) => {
            // Of lines that repeat a directive one is told.
            config.ignored.retain(|line| line.name != name);
            config.ignored.push(IgnoredLine { origin: origin.clone(), name, reason });
            Ok(())
        }
    })
}

/// The rows of docs/configuration.md: names, values that are obeyed, what becomes of others.
#[cfg(test)]
pub(super) fn rows() -> impl Iterator<Item = (Vec<&'static str>, Vec<&'static str>, String)> {
    FOREIGN.iter().map(|foreign| {
        let otherwise = match foreign.otherwise {
            Ignored(reason) => format!("ignored: {reason}"),
            Refused(why) => format!("refused: {why}"),
        };
        (foreign.names.to_vec(), foreign.obeyed.to_vec(), otherwise)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{find, source};
    use std::path::Path;

    fn load(text: &str) -> Result<Vec<String>, String> {
        let mut config = Config::default();
        source::load_text(text.as_bytes(), Some(Path::new("/r.conf")), &mut config)
            .map_err(|error| error.to_string())?;
        Ok(config.ignored.iter().map(ToString::to_string).collect())
    }

    /// The directives that redis.conf of Redis 7.0 sets and this server does not have, as it sets them.
    const STOCK: &str = "always-show-logo no\nset-proc-title yes\n\
        proc-title-template \"{title} {listen-addr} {server-mode}\"\nstop-writes-on-bgsave-error yes\n\
        rdbcompression yes\nrdbchecksum yes\ndbfilename dump.rdb\nrdb-del-sync-files no\n\
        replica-serve-stale-data yes\nreplica-read-only yes\nrepl-diskless-sync yes\n\
        repl-diskless-sync-delay 5\nrepl-diskless-sync-max-replicas 0\n\
        repl-disable-tcp-nodelay no\nreplica-priority 100\nreplica-lazy-flush no\n\
        lazyfree-lazy-eviction no\ndynamic-hz yes\noom-score-adj no\noom-score-adj-values 0 200 800\ndisable-thp yes\n\
        appendfilename \"appendonly.aof\"\nappenddirname \"appendonlydir\"\nappendfsync everysec\n\
        no-appendfsync-on-rewrite no\nauto-aof-rewrite-percentage 100\nauto-aof-rewrite-min-size 64mb\n\
        aof-load-truncated yes\naof-use-rdb-preamble yes\naof-timestamp-enabled no\n\
        notify-keyspace-events \"\"\nhash-max-listpack-entries 512\nhash-max-listpack-value 64\n\
        list-max-listpack-size -2\nlist-compress-depth 0\nset-max-intset-entries 512\n\
        zset-max-listpack-entries 128\nzset-max-listpack-value 64\nhll-sparse-max-bytes 3000\n\
        stream-node-max-bytes 4096\nstream-node-max-entries 100\nactiverehashing yes\n\
        aof-rewrite-incremental-fsync yes\nrdb-save-incremental-fsync yes\njemalloc-bg-thread yes\n";

    #[test]
    fn stock_file_of_redis_loads_and_names_lines_without_effect() {
        let told = load(STOCK).unwrap();
        let obeyed = ["always-show-logo", "oom-score-adj", "list-compress-depth", "rdb-del-sync-files"];
        let expected: Vec<&str> = STOCK
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| !obeyed.contains(name) && find(name.as_bytes()).is_none())
            .collect();
        let names: Vec<&str> =
            told.iter().map(|line| line.split_once(": ").unwrap().1.split(' ').next().unwrap()).collect();
        assert_eq!(names, expected);
        assert_eq!(
            told[2],
            "/r.conf:14: repl-disable-tcp-nodelay is ignored: this version replicates in one way, which the directive does not change"
        );
    }

    #[test]
    fn foreign_directive_that_would_break_a_promise_is_refused() {
        let error = load("tls-key-file-pass x").unwrap_err();
        assert!(
            error.starts_with("/r.conf:1: '") && error.contains("keys with passwords are not read"),
            "{error}"
        );
        assert!(load("cluster-enabled no\ntls-port 0").unwrap().is_empty());
    }

    #[test]
    fn foreign_directives_have_no_name_of_ours() {
        for name in FOREIGN.iter().flat_map(|foreign| foreign.names) {
            assert!(find(name.as_bytes()).is_none(), "{name}");
        }
    }

    #[test]
    fn facts_are_sorted_values_that_a_file_may_have() {
        assert!(FACTS.is_sorted_by(|one, next| one.0 < next.0));
        for (name, value) in facts() {
            assert!(find(name.as_bytes()).is_none() && row(name).is_some(), "{name}");
            assert!(load(&format!("{name} \"{value}\"")).is_ok(), "{name}");
            assert_eq!(set(name.to_uppercase().as_bytes(), value.as_bytes()), Some(Ok(())), "{name}");
            assert!(matches!(set(name.as_bytes(), b"other"), Some(Err(why)) if !why.is_empty()), "{name}");
        }
        assert_eq!(set(b"repl-diskless-sync-period", b"60"), None);
    }

    /// The names that Redis 7.0, some later ones and Valkey 9.1 show in CONFIG GET or set in the files of their packages.
    #[test]
    fn directives_of_redis_and_valkey_are_all_known() {
        let (mut known, mut unknown) = (0, Vec::new());
        for line in NAMES.lines().filter(|line| !line.is_empty()) {
            let name = line.split(' ').next().unwrap_or_default();
            match find(name.as_bytes()).is_some() || row(name).is_some() {
                true => known += 1,
                false => unknown.push(name),
            }
        }
        assert!(unknown.is_empty() && known > 200, "{unknown:?}");
    }

    /// A name on each line.
    const NAMES: &str = include_str!("../../tests/directives-of-redis-and-valkey.txt");
}
