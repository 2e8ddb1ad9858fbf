//! The table of directives, sorted by name. A new directive is one row here and one field of
//! [`super::Config`]; then `UPDATE_DOCS=1 cargo test -p dunlin-server documentation`.

use super::directive::{Change, Directive, Field, Group, Kind, Number, choice, field, number};
use super::values::{
    AppendFsync, Config, LogLevel, MaxmemoryPolicy, Permission, PubsubDefault, Sanitize, Supervised,
    VersionCheck, Words,
};

const INT_MAX: i64 = i32::MAX as i64;
/// Largest size in bytes that Redis takes where its own type is signed.
const SIGNED_MAX: u64 = i64::MAX as u64;
const MB: u64 = 1 << 20;

/// Every directive.
pub static DIRECTIVES: &[Directive] = &[
    Directive {
        name: "acl-pubsub-default",
        aliases: &[],
        group: Group::Security,
        kind: choice!(acl_pubsub_default: PubsubDefault),
        default: "resetchannels",
        change: Change::Anytime,
        doc: "Which channels of pub/sub a new user may use until rules say otherwise: none, or all.",
        settle: as_is,
    },
    Directive {
        name: "aclfile",
        aliases: &[],
        group: Group::Security,
        kind: Kind::Path(field!(aclfile)),
        default: "\"\"",
        change: Change::AtStart,
        doc: "File with the users, as ACL SAVE writes and ACL LOAD reads it; it excludes `user` lines in the configuration. The server does not start if one line of it is wrong.",
        settle: as_is,
    },
    Directive {
        name: "acllog-max-len",
        aliases: &[],
        group: Group::Security,
        kind: Kind::Integer { field: number!(acllog_max_len), min: 0, max: i64::MAX },
        default: "128",
        change: Change::Anytime,
        doc: "Entries of the log of denied commands, keys and channels (ACL LOG) that are kept.",
        settle: as_is,
    },
    Directive {
        name: "active-expire-effort",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(active_expire_effort), min: 1, max: 10 },
        default: "1",
        change: Change::Anytime,
        doc: "How long a worker looks for expired keys between two looks at its clients while there are some: 0.2 ms times this.",
        settle: as_is,
    },
    Directive {
        name: "aof-load-truncated",
        aliases: &[],
        group: Group::Persistence,
        kind: Kind::Flag(field!(aof_load_truncated)),
        default: "yes",
        change: Change::Anytime,
        doc: "Start although the last command of the append-only file is not whole, as after a crash: it is cut off, and a line of the log says where and how much.",
        settle: as_is,
    },
    Directive {
        name: "aof-timestamp-enabled",
        aliases: &[],
        group: Group::Persistence,
        kind: Kind::Flag(field!(aof_timestamp_enabled)),
        default: "no",
        change: Change::Anytime,
        doc: "Note the time in the append-only file, in a comment once a second.",
        settle: as_is,
    },
    Directive {
        name: "aof-use-rdb-preamble",
        aliases: &[],
        group: Group::Persistence,
        kind: Kind::Flag(field!(aof_use_rdb_preamble)),
        default: "yes",
        change: Change::Anytime,
        doc: "Write the state that the append-only log begins with as an RDB file rather than as commands, which are larger and take longer to load.",
        settle: as_is,
    },
    Directive {
        name: "appenddirname",
        aliases: &[],
        group: Group::Persistence,
        kind: Kind::Path(field!(appenddirname)),
        default: "appendonlydir",
        change: Change::AtStart,
        doc: "Directory of the append-only files, in `dir`.",
        settle: |config| match is_plain_name(&config.appenddirname) {
            true => Ok(()),
            false => Err("appenddirname can't be a path, just a dirname"),
        },
    },
    Directive {
        name: "appendfilename",
        aliases: &[],
        group: Group::Persistence,
        kind: Kind::Path(field!(appendfilename)),
        default: "appendonly.aof",
        change: Change::AtStart,
        doc: "What the names of the append-only files begin with.",
        settle: |config| match is_plain_name(&config.appendfilename) {
            true => Ok(()),
            false => Err("appendfilename can't be a path, just a filename"),
        },
    },
    Directive {
        name: "appendfsync",
        aliases: &[],
        group: Group::Persistence,
        kind: choice!(appendfsync: AppendFsync),
        default: "everysec",
        change: Change::Anytime,
        doc: "When what was written to the append-only file is made durable: before the answers leave (always), once a second (everysec), or when the system likes (no).",
        settle: as_is,
    },
    Directive {
        name: "appendonly",
        aliases: &[],
        group: Group::Persistence,
        kind: Kind::Flag(field!(appendonly)),
        default: "no",
        change: Change::Anytime,
        doc: "Record every change in an append-only file, and load it at start; a snapshot that holds more becomes its base.",
        settle: as_is,
    },
    Directive {
        name: "auto-aof-rewrite-min-size",
        aliases: &[],
        group: Group::Persistence,
        kind: Kind::Memory { field: field!(auto_aof_rewrite_min_size), min: 0, max: SIGNED_MAX },
        default: "64mb",
        change: Change::Anytime,
        doc: "Append-only files below this many bytes are not rewritten by themselves.",
        settle: as_is,
    },
    Directive {
        name: "auto-aof-rewrite-percentage",
        aliases: &[],
        group: Group::Persistence,
        kind: Kind::Integer { field: number!(auto_aof_rewrite_percentage), min: 0, max: INT_MAX },
        default: "100",
        change: Change::Anytime,
        doc: "Rewrite the append-only files when they have grown by so many percent; 0 for never.",
        settle: as_is,
    },
    Directive {
        name: "bind",
        aliases: &[],
        group: Group::Network,
        kind: Kind::Addresses(field!(bind)),
        default: "127.0.0.1 -::1",
        change: Change::Anytime,
        doc: "Addresses to listen on. `*` is every IPv4 address, `::*` every IPv6 address; with a leading `-` the server starts even where this host lacks the address. Empty listens on none.",
        settle: as_is,
    },
    Directive {
        name: "busy-reply-threshold",
        aliases: &["lua-time-limit"],
        group: Group::Clients,
        kind: Kind::Integer { field: number!(busy_reply_threshold), min: 0, max: i64::MAX },
        default: "5000",
        change: Change::Anytime,
        doc: "Milliseconds after which a running script is slow: from then on clients do not wait for what it has locked but are answered BUSY. 0 for never.",
        settle: as_is,
    },
    Directive {
        name: "client-output-buffer-limit",
        aliases: &[],
        group: Group::Clients,
        kind: Kind::OutputLimits(field!(client_output_buffer_limit)),
        default: "normal 0 0 0 replica 256mb 64mb 60 pubsub 32mb 8mb 60",
        change: Change::Anytime,
        doc: "Unsent replies a client of a class (normal, replica, pubsub) may pile up: it is closed above the first limit at once, above the second after that many seconds. 0 is no limit; classes left out keep theirs.",
        settle: as_is,
    },
    Directive {
        name: "client-query-buffer-limit",
        aliases: &[],
        group: Group::Clients,
        kind: Kind::Memory { field: field!(client_query_buffer_limit), min: MB, max: SIGNED_MAX },
        default: "1gb",
        change: Change::Anytime,
        doc: "Unfinished request a client may send before it is closed.",
        settle: as_is,
    },
    Directive {
        name: "commandlog-large-reply-max-len",
        aliases: &[],
        group: Group::Monitoring,
        kind: Kind::Integer { field: number!(commandlog_large_reply_max_len), min: 0, max: i64::MAX },
        default: "128",
        change: Change::Anytime,
        doc: "Entries that the log of large replies keeps.",
        settle: as_is,
    },
    Directive {
        name: "commandlog-large-request-max-len",
        aliases: &[],
        group: Group::Monitoring,
        kind: Kind::Integer { field: number!(commandlog_large_request_max_len), min: 0, max: i64::MAX },
        default: "128",
        change: Change::Anytime,
        doc: "Entries that the log of large requests keeps.",
        settle: as_is,
    },
    Directive {
        name: "commandlog-reply-larger-than",
        aliases: &[],
        group: Group::Monitoring,
        kind: Kind::Integer { field: number!(commandlog_reply_larger_than), min: -1, max: i64::MAX },
        default: "1048576",
        change: Change::Anytime,
        doc: "Commands whose reply is larger, in bytes, are logged; -1 logs none.",
        settle: as_is,
    },
    Directive {
        name: "commandlog-request-larger-than",
        aliases: &[],
        group: Group::Monitoring,
        kind: Kind::Integer { field: number!(commandlog_request_larger_than), min: -1, max: i64::MAX },
        default: "1048576",
        change: Change::Anytime,
        doc: "Commands whose request is larger, in bytes, are logged; -1 logs none.",
        settle: as_is,
    },
    Directive {
        name: "daemonize",
        aliases: &[],
        group: Group::Process,
        kind: Kind::Flag(field!(daemonize)),
        default: "no",
        change: Change::AtStart,
        doc: "Leave the terminal and go on in the background; the command returns once the server listens, or has failed. Without effect where a supervisor starts the server (`supervised`). Without `logfile` nobody sees the log.",
        settle: as_is,
    },
    Directive {
        name: "databases",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(databases), min: 1, max: INT_MAX },
        default: "16",
        change: Change::AtStart,
        doc: "Number of databases that SELECT offers.",
        settle: as_is,
    },
    Directive {
        name: "dbfilename",
        aliases: &[],
        group: Group::Persistence,
        kind: Kind::Path(field!(dbfilename)),
        default: "dump.rdb",
        change: Change::Protected,
        doc: "Name of the snapshot in dir: read at start where it is there, written by SAVE and SHUTDOWN SAVE.",
        settle: |config| {
            if config.dbfilename.as_os_str().is_empty()
                || config.dbfilename.components().count() != 1
                || config.dbfilename.as_os_str().as_encoded_bytes().contains(&b'/')
            {
                return Err("dbfilename can't be a path, just a filename");
            }
            Ok(())
        },
    },
    Directive {
        name: "dir",
        aliases: &[],
        group: Group::Process,
        kind: Kind::Path(field!(dir)),
        default: ".",
        change: Change::Protected,
        doc: "Working directory: other relative paths start here, whichever line comes first.",
        settle: as_is,
    },
    Directive {
        name: "enable-debug-command",
        aliases: &[],
        group: Group::Security,
        kind: choice!(enable_debug_command: Permission),
        default: "no",
        change: Change::AtStart,
        doc: "Who may use DEBUG: nobody, every client, or clients on this host.",
        settle: as_is,
    },
    Directive {
        name: "enable-protected-configs",
        aliases: &[],
        group: Group::Security,
        kind: choice!(enable_protected_configs: Permission),
        default: "no",
        change: Change::AtStart,
        doc: "Who may change protected directives with CONFIG SET: nobody, every client, or clients on this host.",
        settle: as_is,
    },
    Directive {
        name: "hash-max-listpack-entries",
        aliases: &["hash-max-ziplist-entries"],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(hash_max_listpack_entries), min: 0, max: i64::MAX },
        default: "512",
        change: Change::Anytime,
        doc: "Fields up to which a hash keeps the compact encoding.",
        settle: as_is,
    },
    Directive {
        name: "hash-max-listpack-value",
        aliases: &["hash-max-ziplist-value"],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(hash_max_listpack_value), min: 0, max: i64::MAX },
        default: "64",
        change: Change::Anytime,
        doc: "Bytes of a field or value up to which a hash keeps the compact encoding.",
        settle: as_is,
    },
    Directive {
        name: "hll-sparse-max-bytes",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Memory { field: field!(hll_sparse_max_bytes), min: 0, max: SIGNED_MAX },
        default: "3000",
        change: Change::Anytime,
        doc: "Bytes up to which a HyperLogLog keeps the sparse encoding.",
        settle: as_is,
    },
    Directive {
        name: "http-port",
        aliases: &[],
        group: Group::Network,
        kind: Kind::Integer { field: number!(http_port), min: 0, max: 65535 },
        default: "0",
        change: Change::AtStart,
        doc: "Port for HTTP, on the addresses of `bind`: `GET /health` answers 200 while commands are served, and 503 with the reason while the data set is being loaded or the append-only file cannot be written. 0 for no HTTP.",
        settle: as_is,
    },
    Directive {
        name: "hz",
        aliases: &[],
        group: Group::Process,
        kind: Kind::Integer { field: number!(hz), min: 0, max: INT_MAX },
        default: "10",
        change: Change::Anytime,
        doc: "Background rounds a second; values outside 1 to 500 become the nearer of the two.",
        settle: |config| {
            config.hz = config.hz.clamp(1, 500);
            Ok(())
        },
    },
    Directive {
        name: "latency-monitor-threshold",
        aliases: &[],
        group: Group::Monitoring,
        kind: Kind::Integer { field: number!(latency_monitor_threshold), min: 0, max: i64::MAX },
        default: "0",
        change: Change::Anytime,
        doc: "Events that take this many milliseconds or more are kept for LATENCY; 0 keeps none.",
        settle: as_is,
    },
    Directive {
        name: "latency-tracking",
        aliases: &[],
        group: Group::Monitoring,
        kind: Kind::Flag(field!(latency_tracking)),
        default: "yes",
        change: Change::Anytime,
        doc: "Whether the latencies of each command are recorded, for INFO latencystats and LATENCY HISTOGRAM.",
        settle: as_is,
    },
    Directive {
        name: "latency-tracking-info-percentiles",
        aliases: &[],
        group: Group::Monitoring,
        kind: Kind::Percentiles(field!(latency_tracking_info_percentiles)),
        default: "50 99 99.9",
        change: Change::Anytime,
        doc: "The percentiles that INFO latencystats shows.",
        settle: as_is,
    },
    Directive {
        name: "lazyfree-lazy-eviction",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Flag(field!(lazyfree_lazy_eviction)),
        default: "no",
        change: Change::Anytime,
        doc: "Record evicted keys as UNLINK rather than DEL. Large values that are evicted are freed in the background either way.",
        settle: as_is,
    },
    Directive {
        name: "lazyfree-lazy-expire",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Flag(field!(lazyfree_lazy_expire)),
        default: "no",
        change: Change::Anytime,
        doc: "Free large expired values in the background.",
        settle: as_is,
    },
    Directive {
        name: "lazyfree-lazy-server-del",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Flag(field!(lazyfree_lazy_server_del)),
        default: "no",
        change: Change::Anytime,
        doc: "Free large values that a command such as RENAME or SET replaces in the background.",
        settle: as_is,
    },
    Directive {
        name: "lazyfree-lazy-user-del",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Flag(field!(lazyfree_lazy_user_del)),
        default: "no",
        change: Change::Anytime,
        doc: "DEL frees large values in the background, as UNLINK does.",
        settle: as_is,
    },
    Directive {
        name: "lazyfree-lazy-user-flush",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Flag(field!(lazyfree_lazy_user_flush)),
        default: "no",
        change: Change::Anytime,
        doc: "FLUSHALL and FLUSHDB without SYNC or ASYNC free in the background.",
        settle: as_is,
    },
    Directive {
        name: "lfu-decay-time",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(lfu_decay_time), min: 0, max: INT_MAX },
        default: "1",
        change: Change::Anytime,
        doc: "Minutes after which the counters of uses of the LFU policies lose 1; 0 for never.",
        settle: as_is,
    },
    Directive {
        name: "lfu-log-factor",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(lfu_log_factor), min: 0, max: INT_MAX },
        default: "10",
        change: Change::Anytime,
        doc: "How slowly the counters of uses of the LFU policies grow: with 10, a million uses fill one.",
        settle: as_is,
    },
    Directive {
        name: "list-max-listpack-size",
        aliases: &["list-max-ziplist-size"],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(list_max_listpack_size), min: i32::MIN as i64, max: INT_MAX },
        default: "-2",
        change: Change::Anytime,
        doc: "Elements of a list in a compact block, or its size in bytes: -1 to -5 for 4 to 64 KiB. A list of one block is a listpack.",
        settle: as_is,
    },
    Directive {
        name: "logfile",
        aliases: &[],
        group: Group::Monitoring,
        kind: Kind::Path(field!(logfile)),
        default: "\"\"",
        change: Change::AtStart,
        doc: "File for the log, opened again when it is moved away; empty for standard output.",
        settle: as_is,
    },
    Directive {
        name: "loglevel",
        aliases: &[],
        group: Group::Monitoring,
        kind: choice!(loglevel: LogLevel),
        default: "notice",
        change: Change::Anytime,
        doc: "The least important lines that the log still has.",
        settle: as_is,
    },
    Directive {
        name: "maxclients",
        aliases: &[],
        group: Group::Clients,
        kind: Kind::Integer { field: number!(maxclients), min: 1, max: u32::MAX as i64 },
        default: "10000",
        change: Change::Anytime,
        doc: "Connections at one time; more are refused. The limit of open files is raised for it.",
        settle: as_is,
    },
    Directive {
        name: "maxmemory",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Memory { field: field!(maxmemory), min: 0, max: u64::MAX },
        default: "0",
        change: Change::Anytime,
        doc: "Memory above which keys are evicted by `maxmemory-policy`, or writes that need more are refused; 0 for no limit. Keys, values, their index and the buffers of clients count.",
        settle: as_is,
    },
    Directive {
        name: "maxmemory-clients",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Share(field!(maxmemory_clients)),
        default: "0",
        change: Change::Anytime,
        doc: "Memory that the buffers of clients may take together, in bytes or in percent of `maxmemory`: above it the clients with the largest are closed, but for those with CLIENT NO-EVICT. 0 for no limit.",
        settle: as_is,
    },
    Directive {
        name: "maxmemory-eviction-tenacity",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(maxmemory_eviction_tenacity), min: 0, max: 100 },
        default: "10",
        change: Change::Anytime,
        doc: "How long a command that needs memory may evict keys before it runs: up to 10 times 50 µs, from there on 15% more with each, at 100 for as long as it takes. The rest is done in the background.",
        settle: as_is,
    },
    Directive {
        name: "maxmemory-policy",
        aliases: &[],
        group: Group::Memory,
        kind: choice!(maxmemory_policy: MaxmemoryPolicy),
        default: "noeviction",
        change: Change::Anytime,
        doc: "What happens at `maxmemory`: writes that need memory are refused (noeviction), or keys are evicted: of all keys or only of those with an expiry, the least recently used, the least frequently used, any, or those that expire first.",
        settle: as_is,
    },
    Directive {
        name: "maxmemory-samples",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(maxmemory_samples), min: 1, max: INT_MAX },
        default: "5",
        change: Change::Anytime,
        doc: "Keys that are compared for each that is evicted, 64 at most. More make a better choice and take longer.",
        settle: as_is,
    },
    Directive {
        name: "no-appendfsync-on-rewrite",
        aliases: &[],
        group: Group::Persistence,
        kind: Kind::Flag(field!(no_appendfsync_on_rewrite)),
        default: "no",
        change: Change::Anytime,
        doc: "Leave it to the system to make the append-only file durable while it is being rewritten; what a crash loses then may be older than a second.",
        settle: as_is,
    },
    Directive {
        name: "notify-keyspace-events",
        aliases: &[],
        group: Group::Monitoring,
        kind: Kind::Events(field!(notify_keyspace_events)),
        default: "\"\"",
        change: Change::Anytime,
        doc: "Events of keys that are published: K to `__keyspace@<db>__:<key>`, E to `__keyevent@<db>__:<event>`; g generic commands, $ strings, l lists, s sets, h hashes, z sorted sets, t streams, x expiry, e eviction, d modules, A all of these, n new keys, m misses. Empty publishes nothing.",
        settle: as_is,
    },
    Directive {
        name: "pidfile",
        aliases: &[],
        group: Group::Process,
        kind: Kind::Path(field!(pidfile)),
        default: "\"\"",
        change: Change::AtStart,
        doc: "File that holds the process id while the server runs; empty for none. Where it cannot be written, a line of the log says so.",
        settle: as_is,
    },
    Directive {
        name: "port",
        aliases: &[],
        group: Group::Network,
        kind: Kind::Integer { field: number!(port), min: 0, max: 65535 },
        default: "6379",
        change: Change::Anytime,
        doc: "TCP port; 0 listens on no TCP address.",
        settle: as_is,
    },
    Directive {
        name: "protected-mode",
        aliases: &[],
        group: Group::Security,
        kind: Kind::Flag(field!(protected_mode)),
        default: "yes",
        change: Change::Anytime,
        doc: "While there is no password, serve only clients on this host.",
        settle: as_is,
    },
    Directive {
        name: "proto-max-bulk-len",
        aliases: &[],
        group: Group::Clients,
        kind: Kind::Memory { field: field!(proto_max_bulk_len), min: MB, max: SIGNED_MAX },
        default: "512mb",
        change: Change::Anytime,
        doc: "Longest single argument of a request, and longest string value.",
        settle: as_is,
    },
    Directive {
        name: "rdb-key-save-delay",
        aliases: &[],
        group: Group::Persistence,
        kind: Kind::Integer { field: number!(rdb_key_save_delay), min: 0, max: INT_MAX },
        default: "0",
        change: Change::Anytime,
        doc: "Microseconds to rest after each key of a snapshot in the background: for tests, which need one that takes its time.",
        settle: as_is,
    },
    Directive {
        name: "rdb-save-incremental-fsync",
        aliases: &[],
        group: Group::Persistence,
        kind: Kind::Flag(field!(rdb_save_incremental_fsync)),
        default: "yes",
        change: Change::Anytime,
        doc: "Make a snapshot durable every 4 MB while it is written, rather than all of it in the end, when the append-only log would have to wait for the disk.",
        settle: as_is,
    },
    Directive {
        name: "rdb-version-check",
        aliases: &[],
        group: Group::Persistence,
        kind: choice!(rdb_version_check: VersionCheck),
        default: "strict",
        change: Change::Anytime,
        doc: "Whether files and dumps of versions that are not known are refused (`strict`), or read as far as they hold only what is known (`relaxed`).",
        settle: as_is,
    },
    Directive {
        name: "rdbchecksum",
        aliases: &[],
        group: Group::Persistence,
        kind: Kind::Flag(field!(rdbchecksum)),
        default: "yes",
        change: Change::AtStart,
        doc: "Whether a checksum stands at the end of snapshots that are written, and has to be right in those that are read.",
        settle: as_is,
    },
    Directive {
        name: "rdbcompression",
        aliases: &[],
        group: Group::Persistence,
        kind: Kind::Flag(field!(rdbcompression)),
        default: "yes",
        change: Change::Anytime,
        doc: "Whether strings of more than 20 bytes are compressed in snapshots and in dumps, where it pays.",
        settle: as_is,
    },
    Directive {
        name: "requirepass",
        aliases: &[],
        group: Group::Security,
        kind: Kind::Secret(field!(requirepass)),
        default: "\"\"",
        change: Change::Anytime,
        doc: "Password that clients give with AUTH or HELLO; empty for none.",
        settle: as_is,
    },
    Directive {
        name: "sanitize-dump-payload",
        aliases: &[],
        group: Group::Persistence,
        kind: choice!(sanitize_dump_payload: Sanitize),
        default: "yes",
        change: Change::Anytime,
        doc: "Whether dumps and snapshots are validated through and through. They always are: `no` and `clients`, which allow less, change nothing.",
        settle: as_is,
    },
    Directive {
        name: "save",
        aliases: &[],
        group: Group::Persistence,
        kind: Kind::SavePoints(field!(save)),
        default: "3600 1 300 100 60 10000",
        change: Change::Anytime,
        doc: "When to write a snapshot by itself, in the background: after so many seconds, if there have been so many changes. Pairs on several lines add up. With any, SHUTDOWN without options and a signal write a last snapshot. `\"\"` for never.",
        settle: as_is,
    },
    Directive {
        name: "set-max-intset-entries",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(set_max_intset_entries), min: 0, max: i64::MAX },
        default: "512",
        change: Change::Anytime,
        doc: "Members up to which a set of integers keeps the compact encoding.",
        settle: as_is,
    },
    Directive {
        name: "set-max-listpack-entries",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(set_max_listpack_entries), min: 0, max: i64::MAX },
        default: "128",
        change: Change::Anytime,
        doc: "Members up to which a set keeps the compact encoding.",
        settle: as_is,
    },
    Directive {
        name: "set-max-listpack-value",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(set_max_listpack_value), min: 0, max: i64::MAX },
        default: "64",
        change: Change::Anytime,
        doc: "Bytes of a member up to which a set keeps the compact encoding.",
        settle: as_is,
    },
    Directive {
        name: "shutdown-on-sigint",
        aliases: &[],
        group: Group::Process,
        kind: Kind::Shutdown(field!(shutdown_on_sigint)),
        default: "default",
        change: Change::Anytime,
        doc: "What SIGINT does, as options of SHUTDOWN. While the server is being stopped, SIGINT ends the process at once; where a signal could not save the data set, SIGINT ends the server without.",
        settle: as_is,
    },
    Directive {
        name: "shutdown-on-sigterm",
        aliases: &[],
        group: Group::Process,
        kind: Kind::Shutdown(field!(shutdown_on_sigterm)),
        default: "default",
        change: Change::Anytime,
        doc: "What SIGTERM does, as options of SHUTDOWN. Where the data set cannot be saved, the server goes on, and the next SIGTERM tries again.",
        settle: as_is,
    },
    Directive {
        name: "shutdown-timeout",
        aliases: &[],
        group: Group::Process,
        kind: Kind::Integer { field: number!(shutdown_timeout), min: 0, max: INT_MAX },
        default: "10",
        change: Change::Anytime,
        doc: "Seconds that a shutdown waits for clients to take the replies that are being sent to them; 0 does not wait.",
        settle: as_is,
    },
    Directive {
        name: "slowlog-log-slower-than",
        aliases: &["commandlog-execution-slower-than"],
        group: Group::Monitoring,
        kind: Kind::Integer { field: number!(slowlog_log_slower_than), min: -1, max: i64::MAX },
        default: "10000",
        change: Change::Anytime,
        doc: "Commands that run longer, in microseconds, are logged; 0 logs all, -1 none.",
        settle: as_is,
    },
    Directive {
        name: "slowlog-max-len",
        aliases: &["commandlog-slow-execution-max-len"],
        group: Group::Monitoring,
        kind: Kind::Integer { field: number!(slowlog_max_len), min: 0, max: i64::MAX },
        default: "128",
        change: Change::Anytime,
        doc: "Entries that the log of slow commands keeps.",
        settle: as_is,
    },
    Directive {
        name: "stop-writes-on-bgsave-error",
        aliases: &[],
        group: Group::Persistence,
        kind: Kind::Flag(field!(stop_writes_on_bgsave_error)),
        default: "yes",
        change: Change::Anytime,
        doc: "Refuse commands that write while there are save points and the last snapshot could not be written.",
        settle: as_is,
    },
    Directive {
        name: "stream-idmp-duration",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(stream_idmp_duration), min: 1, max: 86_400 },
        default: "100",
        change: Change::Anytime,
        doc: "Seconds for which a stream remembers what its producers have added, unless XCFGSET says otherwise.",
        settle: as_is,
    },
    Directive {
        name: "stream-idmp-maxsize",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(stream_idmp_maxsize), min: 1, max: 10_000 },
        default: "100",
        change: Change::Anytime,
        doc: "Entries of each of its producers that a stream remembers, unless XCFGSET says otherwise.",
        settle: as_is,
    },
    Directive {
        name: "stream-node-max-bytes",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Memory { field: field!(stream_node_max_bytes), min: 0, max: SIGNED_MAX },
        default: "4kb",
        change: Change::Anytime,
        doc: "Bytes up to which entries of a stream share a node; 0 for no limit.",
        settle: as_is,
    },
    Directive {
        name: "stream-node-max-entries",
        aliases: &[],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(stream_node_max_entries), min: 0, max: i64::MAX },
        default: "100",
        change: Change::Anytime,
        doc: "Entries up to which a stream fills a node; 0 for no limit.",
        settle: as_is,
    },
    Directive {
        name: "supervised",
        aliases: &[],
        group: Group::Process,
        kind: choice!(supervised: Supervised),
        default: "no",
        change: Change::AtStart,
        doc: "Tell systemd when commands are served and when the server ends (`Type=notify` in the unit), where NOTIFY_SOCKET is set: `systemd` and `auto`. The server stays in the foreground then. upstart is refused.",
        settle: |config| match config.supervised {
            Supervised::Upstart => Err(
                "upstart is not told of anything: use 'no', or 'systemd' with Type=notify in a systemd unit",
            ),
            _ => Ok(()),
        },
    },
    Directive {
        name: "tcp-backlog",
        aliases: &[],
        group: Group::Network,
        kind: Kind::Integer { field: number!(tcp_backlog), min: 0, max: INT_MAX },
        default: "511",
        change: Change::AtStart,
        doc: "Connections that may wait to be accepted; the system's own limit (net.core.somaxconn) applies too.",
        settle: as_is,
    },
    Directive {
        name: "tcp-keepalive",
        aliases: &[],
        group: Group::Network,
        kind: Kind::Integer { field: number!(tcp_keepalive), min: 0, max: INT_MAX },
        default: "300",
        change: Change::Anytime,
        doc: "Seconds of silence after which the system probes whether a client is alive; 0 for off. Holds for connections accepted from then on.",
        settle: as_is,
    },
    Directive {
        name: "threads",
        aliases: &[],
        group: Group::Process,
        kind: Kind::Integer { field: number!(threads), min: 0, max: 256 },
        default: "0",
        change: Change::AtStart,
        doc: "Worker threads, each of which reads, executes and replies; 0 is one per core.",
        settle: as_is,
    },
    Directive {
        name: "timeout",
        aliases: &[],
        group: Group::Clients,
        kind: Kind::Integer { field: number!(timeout), min: 0, max: INT_MAX },
        default: "0",
        change: Change::Anytime,
        doc: "Seconds after which an idle client is closed; 0 for never.",
        settle: as_is,
    },
    Directive {
        name: "tracking-table-max-keys",
        aliases: &[],
        group: Group::Clients,
        kind: Kind::Integer { field: number!(tracking_table_max_keys), min: 0, max: i64::MAX },
        default: "1000000",
        change: Change::Anytime,
        doc: "Keys that are remembered because clients keep copies of them (CLIENT TRACKING). Above, some are forgotten as if they had changed. 0 is no limit.",
        settle: as_is,
    },
    Directive {
        name: "unixsocket",
        aliases: &[],
        group: Group::Network,
        kind: Kind::Path(field!(unixsocket)),
        default: "\"\"",
        change: Change::AtStart,
        doc: "Path of a Unix domain socket to listen on too; empty for none.",
        settle: as_is,
    },
    Directive {
        name: "unixsocketperm",
        aliases: &[],
        group: Group::Network,
        kind: Kind::FileMode(field!(unixsocketperm)),
        default: "0",
        change: Change::AtStart,
        doc: "Permission bits of that socket; 0 leaves what the umask gives.",
        settle: as_is,
    },
    Directive {
        name: "zset-max-listpack-entries",
        aliases: &["zset-max-ziplist-entries"],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(zset_max_listpack_entries), min: 0, max: i64::MAX },
        default: "128",
        change: Change::Anytime,
        doc: "Members up to which a sorted set keeps the compact encoding.",
        settle: as_is,
    },
    Directive {
        name: "zset-max-listpack-value",
        aliases: &["zset-max-ziplist-value"],
        group: Group::Memory,
        kind: Kind::Integer { field: number!(zset_max_listpack_value), min: 0, max: i64::MAX },
        default: "64",
        change: Change::Anytime,
        doc: "Bytes of a member up to which a sorted set keeps the compact encoding.",
        settle: as_is,
    },
];

fn as_is(_: &mut Config) -> Result<(), &'static str> {
    Ok(())
}

/// The directive of this name or alias, in any case. O(number of directives).
pub fn find(name: &[u8]) -> Option<&'static Directive> {
    find_name(name).map(|(_, directive)| directive)
}

/// As [`find`], and the name or alias in the table's spelling.
pub(super) fn find_name(name: &[u8]) -> Option<(&'static str, &'static Directive)> {
    names().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name))
}

/// Every name and alias with its directive.
pub(super) fn names() -> impl Iterator<Item = (&'static str, &'static Directive)> {
    DIRECTIVES.iter().flat_map(|directive| directive.names().map(move |name| (name, directive)))
}

/// Whether a name names something in the directory at hand.
fn is_plain_name(name: &std::path::Path) -> bool {
    name.file_name() == Some(name.as_os_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_are_sorted_and_names_are_unique() {
        assert!(DIRECTIVES.is_sorted_by(|one, next| one.name < next.name));
        let mut seen = BTreeSet::new();
        for (name, _) in names() {
            assert!(seen.insert(name), "{name} twice");
            let spelled = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(name.bytes().all(spelled), "{name}");
        }
    }

    #[test]
    fn rows_have_documentation_and_the_field_of_their_name() {
        let debug = format!("{:?}", Config::default());
        for directive in DIRECTIVES {
            let name = directive.name;
            assert!(directive.doc.ends_with('.') && directive.doc.len() > 20, "{name}");
            assert!(!directive.values().is_empty(), "{name}");
            assert!(debug.contains(&format!("{}: ", name.replace('-', "_"))), "{name}");
        }
    }

    #[test]
    fn defaults_print_as_they_are_written() {
        let config = Config::default();
        for directive in DIRECTIVES {
            let printed = super::super::words::join(directive.name, &directive.words(&config));
            let printed = String::from_utf8(printed).unwrap();
            assert_eq!(
                printed,
                format!("{} {}", directive.name, directive.default),
                "the default is not in its canonical spelling"
            );
        }
    }

    #[test]
    fn every_row_reads_and_writes_its_own_field_only() {
        for directive in DIRECTIVES {
            let mut config = Config::default();
            let other = [
                "7",
                "yes",
                "no",
                "warning",
                "local",
                "now",
                "normal 1 2 3",
                "12 13",
                "2mb",
                "600",
                "relaxed",
                "systemd",
                "allkeys-lru",
                "KEx",
                "allchannels",
            ];
            let changed = other.iter().any(|value| {
                directive.assign_argument(value.as_bytes(), &mut config).is_ok()
                    && !directive.is_same(&config, &Config::default())
            });
            assert!(changed, "{}", directive.name);
            for untouched in DIRECTIVES.iter().filter(|row| row.name != directive.name) {
                assert!(
                    untouched.is_same(&config, &Config::default()),
                    "{} changed {}",
                    directive.name,
                    untouched.name
                );
            }
        }
    }

    #[test]
    fn names_are_found_in_any_case_and_by_alias() {
        assert_eq!(find(b"MaxMemory").unwrap().name, "maxmemory");
        assert_eq!(find(b"commandlog-execution-slower-than").unwrap().name, "slowlog-log-slower-than");
        assert!(find(b"maxmemor").is_none());
    }
}
