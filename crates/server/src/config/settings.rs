//! [`Config`]: the value of every directive, typed, as workers read it.
//!
//! A configuration never changes; CONFIG SET publishes another one (see [`super::ConfigStore`]). Fields
//! carry the directive's name with `_` for `-`; [`super::DIRECTIVES`] says what each one means.

use std::net::IpAddr;
use std::path::PathBuf;

use super::{
    events::KeyspaceEvents,
    lines::{IgnoredLine, RenameLine, UserLine},
    values::{
        AppendFsync, AuditFull, AuthClients, BindAddress, CertificateUser, ClusterDurability, DatabaseLimits,
        EndpointType, LogLevel, MaxmemoryPolicy, MemoryShare, ModuleData, OutputBufferLimits, PeerUser,
        Permission, PrimaryAddress, PubsubDefault, ReplDisklessLoad, Sanitize, SavePoint, Secret,
        ShutdownFlags, Supervised, SyncReplicasAck, SyncReplicasMissing, SyslogFacility, VersionCheck,
    },
};

macro_rules! config {
    ($($(#[$attribute:meta])* $name:ident: $type:ty,)*) => {
        /// The value of every directive at one moment, and what came with it.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Config {
            $($(#[$attribute])* pub $name: $type,)*
        }

        impl Config {
            /// The value that the defaults of the table are written into.
            pub(super) fn unset() -> Self {
                Self { $($name: Default::default(),)* }
            }
        }
    };
}

config! {
    /// Whether entries are moved together if pages have become sparse.
    activedefrag: bool,
    /// Channels that a new user may listen to.
    acl_pubsub_default: PubsubDefault,
    /// File with the users; empty for none.
    aclfile: PathBuf,
    /// Entries kept.
    acllog_max_len: u64,
    /// Percent of a worker's time against fragmentation, if there is much of it.
    active_defrag_cycle_max: u32,
    /// Percent of a worker's time against fragmentation, if there is little of it.
    active_defrag_cycle_min: u32,
    /// Bytes of free memory in pages below which nothing is done.
    active_defrag_ignore_bytes: u64,
    /// Percent of free memory in pages, to what is used, from which on something is done.
    active_defrag_threshold_lower: u32,
    /// Percent of free memory in pages, to what is used, above which all is done that is allowed.
    active_defrag_threshold_upper: u32,
    /// 1 to 10: how hard the background expiry works.
    active_expire_effort: u32,
    /// Cut off a last command that is not whole.
    aof_load_truncated: bool,
    /// Note the time in the append-only file.
    aof_timestamp_enabled: bool,
    /// The base of the log is an RDB file.
    aof_use_rdb_preamble: bool,
    /// Directory of the append-only files, in `dir`.
    appenddirname: PathBuf,
    /// The beginning of their names.
    appendfilename: PathBuf,
    /// When they are made durable.
    appendfsync: AppendFsync,
    /// Whether changes are recorded in a file.
    appendonly: bool,
    /// A file, `journald`, `stderr`, or empty.
    audit_log: String,
    /// Categories of commands.
    audit_log_categories: Vec<String>,
    /// Kinds of events.
    audit_log_events: Vec<String>,
    /// Patterns of keys.
    audit_log_keys: Vec<String>,
    /// The reaction if it cannot be written.
    audit_log_when_full: AuditFull,
    /// In bytes.
    auto_aof_rewrite_min_size: u64,
    /// Growth that brings a rewrite about; 0 for never.
    auto_aof_rewrite_percentage: u32,
    /// Seconds after which a sealed backup is removed; 0 for never.
    backup_sealed_ttl: u32,
    /// Directory of backups, in `dir`.
    backupdirname: PathBuf,
    /// Addresses as written; see [`Config::bind_addresses`].
    bind: Vec<String>,
    /// Empty for the system's choice.
    bind_source_addr: String,
    /// Milliseconds after which clients no longer wait for a script; 0 for never.
    busy_reply_threshold: u64,
    /// By class of client.
    client_output_buffer_limit: OutputBufferLimits,
    /// Bytes of unparsed input a client may have.
    client_query_buffer_limit: u64,
    /// Whether reads are served while some slots have no shard.
    cluster_allow_reads_when_down: bool,
    /// Whether sharded pub/sub is served while some slots have no shard.
    cluster_allow_pubsubshard_when_down: bool,
    /// The node's name for clients that resolve it; empty for none.
    cluster_announce_hostname: String,
    /// The node's name for people; empty for none.
    cluster_announce_human_nodename: String,
    /// The node's address for others; empty for the one that reaches etcd.
    cluster_announce_ip: String,
    /// 0 for `port`.
    cluster_announce_port: u16,
    /// 0 for `tls-port`.
    cluster_announce_tls_port: u16,
    /// The failures that acknowledged writes survive.
    cluster_durability: ClusterDurability,
    /// `yes` is what other servers need to become nodes.
    cluster_enabled: bool,
    /// Authorities of etcd's certificate; empty for those of the system.
    cluster_etcd_ca_cert_file: PathBuf,
    /// The certificate that etcd is shown; empty for none.
    cluster_etcd_cert_file: PathBuf,
    /// Its key.
    cluster_etcd_key_file: PathBuf,
    /// The password of `cluster_etcd_user`.
    cluster_etcd_password: Secret,
    /// The user in etcd; empty for none.
    cluster_etcd_user: String,
    /// The machine that the node is on; empty for its host name.
    cluster_host: String,
    /// etcd's addresses and the cluster's name; empty for no cluster.
    cluster_join: String,
    /// Members of a shard that have to have a write.
    cluster_min_sync: u32,
    /// Which name of nodes clients are given.
    cluster_preferred_endpoint_type: EndpointType,
    /// Replicas of each shard.
    cluster_replicas: u32,
    /// Whether a slot without a shard makes all others unavailable.
    cluster_require_full_coverage: bool,
    /// Whether a cluster of one shard serves clients without cluster support.
    cluster_plain_clients: bool,
    /// The zone that the node is in; empty for none.
    cluster_zone: String,
    /// Bytes of a reply from which the command is logged; -1 for never.
    commandlog_reply_larger_than: i64,
    /// Entries kept.
    commandlog_large_reply_max_len: u64,
    /// Entries kept.
    commandlog_large_request_max_len: u64,
    /// Bytes of a request from which the command is logged; -1 for never.
    commandlog_request_larger_than: i64,
    /// Whether a crash leaves a core file.
    core_files: bool,
    /// Go on in the background.
    daemonize: bool,
    /// Number of databases.
    databases: u32,
    /// Limits of single databases.
    db_maxmemory: DatabaseLimits,
    /// Name of the snapshot.
    dbfilename: PathBuf,
    /// Working directory; absolute once the server has entered it.
    dir: PathBuf,
    /// The connections that may use DEBUG.
    enable_debug_command: Permission,
    /// The connections that may set protected directives at run time.
    enable_protected_configs: Permission,
    /// Fields of a hash in a listpack.
    hash_max_listpack_entries: u64,
    /// Bytes of a field or value in a listpack.
    hash_max_listpack_value: u64,
    /// Bytes of a HyperLogLog that is sparse.
    hll_sparse_max_bytes: u64,
    /// Whether `http_port` has the console.
    http_console: bool,
    /// Names of this server, besides its addresses.
    http_hosts: Vec<String>,
    /// 0 for no HTTP.
    http_port: u16,
    /// Background rounds a second.
    hz: u32,
    /// Lines that have no effect; not a directive.
    ignored: Vec<IgnoredLine>,
    /// Milliseconds from which an event is sampled; 0 for never.
    latency_monitor_threshold: u64,
    /// Whether latencies are recorded per command.
    latency_tracking: bool,
    /// In percent.
    latency_tracking_info_percentiles: Vec<f64>,
    /// Record evicted keys as UNLINK.
    lazyfree_lazy_eviction: bool,
    /// Free expired values in the background.
    lazyfree_lazy_expire: bool,
    /// Free overwritten values in the background.
    lazyfree_lazy_server_del: bool,
    /// DEL works like UNLINK.
    lazyfree_lazy_user_del: bool,
    /// FLUSHALL and FLUSHDB are ASYNC unless they say SYNC.
    lazyfree_lazy_user_flush: bool,
    /// In minutes; 0 for never.
    lfu_decay_time: u32,
    /// How slowly counters of uses grow.
    lfu_log_factor: u32,
    /// Elements of a list in a listpack, or a class of sizes.
    list_max_listpack_size: i32,
    /// Empty for standard output.
    logfile: PathBuf,
    /// The least level that is logged.
    loglevel: LogLevel,
    /// Given to the primary.
    masterauth: Secret,
    /// Given to the primary.
    masteruser: Secret,
    /// Connections at one time.
    maxclients: u32,
    /// In bytes; 0 for no limit.
    maxmemory: u64,
    /// Memory that the buffers of clients may take together.
    maxmemory_clients: MemoryShare,
    /// 0 to 100: how long a command may evict keys before it runs.
    maxmemory_eviction_tenacity: u32,
    /// The policy at the limit.
    maxmemory_policy: MaxmemoryPolicy,
    /// Keys compared for each that is evicted.
    maxmemory_samples: u32,
    /// In seconds.
    min_replicas_max_lag: u32,
    /// Replicas that writes take.
    min_replicas_to_write: u32,
    /// Replicas that replies wait for.
    min_sync_replicas: u8,
    /// Leave durability to the system during a rewrite.
    no_appendfsync_on_rewrite: bool,
    /// Which events of keys are published.
    notify_keyspace_events: KeyspaceEvents,
    /// Empty for none.
    pidfile: PathBuf,
    /// 0 for no TCP.
    port: u16,
    /// Whether clients from other hosts are refused while there is no password.
    protected_mode: bool,
    /// Longest bulk string in a request, in bytes.
    proto_max_bulk_len: u64,
    /// Microseconds to rest after each key of a snapshot in the background.
    rdb_key_save_delay: u32,
    /// Make snapshots durable as they grow.
    rdb_save_incremental_fsync: bool,
    /// The treatment of values whose types Dunlin does not have.
    module_data: ModuleData,
    /// The treatment of files and dumps of unknown versions.
    rdb_version_check: VersionCheck,
    /// Whether snapshots have checksums.
    rdbchecksum: bool,
    /// Whether strings are compressed in snapshots and dumps.
    rdbcompression: bool,
    /// Bytes of superseded files of the log that are kept for replicas.
    repl_backlog_disk_size: u64,
    /// In bytes.
    repl_backlog_size: u64,
    /// In seconds; 0 for ever.
    repl_backlog_ttl: u32,
    /// When a replica loads a snapshot while it comes.
    repl_diskless_load: ReplDisklessLoad,
    /// Whether a snapshot for replicas waits for more of them.
    repl_diskless_sync: bool,
    /// In seconds.
    repl_diskless_sync_delay: u32,
    /// 0 for any number.
    repl_diskless_sync_max_replicas: u32,
    /// In seconds.
    repl_ping_replica_period: u32,
    /// In seconds.
    repl_timeout: u32,
    /// Empty for the own one.
    replica_announce_ip: String,
    /// 0 for the own one.
    replica_announce_port: u16,
    /// Whether Sentinel reports it.
    replica_announced: bool,
    /// For Sentinel; 0 for never.
    replica_priority: u32,
    /// Refuse writes as a replica.
    replica_read_only: bool,
    /// Answer without a link.
    replica_serve_stale_data: bool,
    /// The primary, if there is one.
    replicaof: Option<PrimaryAddress>,
    /// Empty for none.
    requirepass: Secret,
    /// Whether what is read must be validated, which it always is.
    sanitize_dump_payload: Sanitize,
    /// When a snapshot is written by itself.
    save: Vec<SavePoint>,
    /// Whether a line has put its save points in the place of the default.
    save_is_loaded: bool,
    /// Members of a set in an intset.
    set_max_intset_entries: u64,
    /// Members of a set in a listpack.
    set_max_listpack_entries: u64,
    /// Bytes of a member in a listpack.
    set_max_listpack_value: u64,
    /// The effect of SIGINT.
    shutdown_on_sigint: ShutdownFlags,
    /// The effect of SIGTERM.
    shutdown_on_sigterm: ShutdownFlags,
    /// In seconds.
    shutdown_timeout: u32,
    /// Microseconds from which a command is logged; negative for never.
    slowlog_log_slower_than: i64,
    /// Entries kept.
    slowlog_max_len: u64,
    /// Refuse writes after a snapshot that failed, if there are save points.
    stop_writes_on_bgsave_error: bool,
    /// Seconds for which entries of producers are remembered.
    stream_idmp_duration: u32,
    /// Entries of a producer that are.
    stream_idmp_maxsize: u32,
    /// Bytes of a node of a stream; 0 for no limit.
    stream_node_max_bytes: u64,
    /// Entries of a node of a stream; 0 for no limit.
    stream_node_max_entries: u64,
    /// The supervisor that learns when the server is ready.
    supervised: Supervised,
    /// The acknowledgement of replicas that counts for it.
    sync_replicas_ack: SyncReplicasAck,
    /// The treatment of writes while there are too few of them.
    sync_replicas_missing: SyncReplicasMissing,
    /// Whether the log goes to syslog, too.
    syslog_enabled: bool,
    /// As what.
    syslog_facility: SyslogFacility,
    /// Under which name.
    syslog_ident: String,
    /// Connections that wait to be accepted.
    tcp_backlog: u32,
    /// Seconds between probes; 0 for off.
    tcp_keepalive: u32,
    /// As configured, 0 for one per core; see [`Config::worker_count`].
    threads: u32,
    /// Seconds after which an idle client is closed; 0 for never.
    timeout: u32,
    /// Whether clients show certificates.
    tls_auth_clients: AuthClients,
    /// Which of their names is the user.
    tls_auth_clients_user: CertificateUser,
    /// In seconds; 0 for never.
    tls_auto_reload_interval: u32,
    /// Certificates that are trusted.
    tls_ca_cert_dir: PathBuf,
    /// Certificates that are trusted.
    tls_ca_cert_file: PathBuf,
    /// The server's certificate.
    tls_cert_file: PathBuf,
    /// Of TLS 1.2, in OpenSSL's spelling.
    tls_ciphers: String,
    /// Of TLS 1.3.
    tls_ciphersuites: String,
    /// The certificate for outgoing connections; empty for the server's.
    tls_client_cert_file: PathBuf,
    /// Its key.
    tls_client_key_file: PathBuf,
    /// For a cluster.
    tls_cluster: bool,
    /// The key of the server's certificate.
    tls_key_file: PathBuf,
    /// 0 for none.
    tls_port: u16,
    /// The side whose order of cipher suites counts.
    tls_prefer_server_ciphers: bool,
    /// Empty for all.
    tls_protocols: String,
    /// Whether the link to the primary is inside TLS.
    tls_replication: bool,
    /// 0 for very many.
    tls_session_cache_size: u64,
    /// In seconds.
    tls_session_cache_timeout: u32,
    /// Whether sessions can be resumed.
    tls_session_caching: bool,
    /// Keys that clients keep copies of; 0 for no limit.
    tracking_table_max_keys: u64,
    /// Empty for none.
    unixsocket: PathBuf,
    /// Users by the process at the other end.
    unixsocket_user: Vec<PeerUser>,
    /// 0 leaves what the umask gives.
    unixsocketperm: u32,
    /// Members of a sorted set in a listpack.
    zset_max_listpack_entries: u64,
    /// Bytes of a member of a sorted set in a listpack.
    zset_max_listpack_value: u64,
    /// The lines of `rename-command`, in order.
    renames: Vec<RenameLine>,
    /// The users of `user` lines, in order.
    users: Vec<UserLine>,
}

impl Config {
    /// How many worker threads to run: `threads`, or one per core.
    pub fn worker_count(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads as usize,
        }
    }

    /// Whether the server keeps its data set in files by itself.
    pub fn keeps_data(&self) -> bool {
        self.appendonly || !self.save.is_empty()
    }

    /// The address that links to other servers come from; `None` for the system's choice.
    pub fn source_address(&self) -> Option<IpAddr> {
        self.bind_source_addr.parse().ok()
    }

    /// `bind`, understood: `*` and `::*` are all IPv4 and all IPv6 addresses, and a leading `-`
    /// marks an address that may be missing on this host.
    pub fn bind_addresses(&self) -> Vec<BindAddress> {
        let understood = |word: &String| {
            let (optional, host) = match word.strip_prefix('-') {
                Some(host) => (true, host),
                None => (false, word.as_str()),
            };
            let host = match host {
                "*" => "0.0.0.0",
                "::*" => "::",
                host => host,
            };
            BindAddress { host: host.to_owned(), optional }
        };
        self.bind.iter().map(understood).collect()
    }
}

impl Config {
    /// Whether any limit of memory may evict keys or refuse writes.
    #[inline]
    pub fn limits_memory(&self) -> bool {
        self.maxmemory != 0 || !self.db_maxmemory.is_empty()
    }

    /// Whether pushes about changes wait until these are on disk or at replicas, as replies do.
    #[inline]
    pub fn withholds_pushes(&self) -> bool {
        self.min_sync_replicas > 0 || self.appendfsync == AppendFsync::Always
    }
}
