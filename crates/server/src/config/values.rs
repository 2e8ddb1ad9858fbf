//! The types of directives' values.

use std::fmt;

/// A primary's address, as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrimaryAddress {
    /// A host name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// A word of `unixsocket-user`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerUser {
    /// The system's number, of a user or of a group.
    pub id: u32,
    /// Whether it is a group's.
    pub is_group: bool,
    /// The user that such processes are let in as.
    pub user: Vec<u8>,
}

impl PeerUser {
    /// Reads `uid=NUMBER:USER` or `gid=NUMBER:USER`.
    pub(super) fn parse(word: &[u8]) -> Result<Self, String> {
        let wrong = || "argument must be words of uid=NUMBER:USER or gid=NUMBER:USER".to_owned();
        let (is_group, rest) = match (word.strip_prefix(b"uid="), word.strip_prefix(b"gid=")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(wrong()),
        };
        let colon = rest.iter().position(|byte| *byte == b':').ok_or_else(wrong)?;
        let id =
            std::str::from_utf8(&rest[..colon]).ok().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        let user = rest[colon + 1..].to_vec();
        if user.is_empty() { Err(wrong()) } else { Ok(Self { id, is_group, user }) }
    }

    pub(super) fn print(&self) -> Vec<u8> {
        let kind = if self.is_group { "gid" } else { "uid" };
        [format!("{kind}={}:", self.id).as_bytes(), &self.user].concat()
    }
}

/// A word of `bind`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindAddress {
    /// An IP address or a host name.
    pub host: String,
    /// Whether the server starts without it when this host does not have the address.
    pub optional: bool,
}

/// Bytes that must not be shown in logs and error messages.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(pub(super) Vec<u8>);

impl Secret {
    /// The secret itself.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.is_empty() { "(none)" } else { "(redacted)" })
    }
}

/// A directive whose value is one of a few words.
pub(super) trait Words: Copy + PartialEq + 'static {
    /// All words, in the order in which error messages list them.
    const WORDS: &'static [&'static str];
    /// The values of [`Self::WORDS`].
    const VALUES: &'static [Self];
}

macro_rules! words {
    ($(#[$attribute:meta])* $name:ident { $($(#[$doc:meta])* $word:literal => $value:ident,)* }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub enum $name {
            $($(#[$doc])* $value,)*
        }

        impl Words for $name {
            const WORDS: &'static [&'static str] = &[$($word),*];
            const VALUES: &'static [Self] = &[$(Self::$value),*];
        }

        impl fmt::Display for $name {
            /// The word of the configuration.
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(match self { $(Self::$value => $word,)* })
            }
        }
    };
}

words! {
    /// `enable-debug-command`, `enable-protected-configs`.
    Permission {
        /// Nobody.
        #[default]
        "no" => Nobody,
        /// Every client.
        "yes" => Everybody,
        /// Clients on this host.
        "local" => Local,
    }
}

impl Permission {
    /// Whether a client may, that is on this host or not.
    pub fn allows(self, client_is_local: bool) -> bool {
        match self {
            Self::Nobody => false,
            Self::Everybody => true,
            Self::Local => client_is_local,
        }
    }
}

words! {
    /// `cluster-durability`.
    ClusterDurability {
        /// A failover may lose what the new primary had not received.
        #[default]
        "async" => Async,
        /// Every in-sync member of a shard has what was acknowledged.
        "sync" => Sync,
    }
}

words! {
    /// `cluster-preferred-endpoint-type`.
    EndpointType {
        /// Its address.
        #[default]
        "ip" => Ip,
        /// `cluster-announce-hostname`.
        "hostname" => Hostname,
        /// None: clients go on with the address that they know.
        "unknown-endpoint" => UnknownEndpoint,
    }
}

words! {
    /// `acl-pubsub-default`.
    PubsubDefault {
        /// All.
        "allchannels" => AllChannels,
        /// None.
        #[default]
        "resetchannels" => ResetChannels,
    }
}

words! {
    /// `audit-log-when-full`.
    AuditFull {
        /// Lines are dropped and counted.
        #[default]
        "drop" => Drop,
        /// Commands that would be recorded are refused.
        "refuse" => Refuse,
    }
}

words! {
    /// `tls-auth-clients`.
    AuthClients {
        /// Clients show no certificates.
        "no" => No,
        /// Clients must show one.
        #[default]
        "yes" => Yes,
        /// Clients may show one.
        "optional" => Optional,
    }
}

words! {
    /// `tls-auth-clients-user`.
    CertificateUser {
        /// None.
        #[default]
        "off" => Off,
        /// The common name of the subject.
        "CN" => CommonName,
        /// A URI among the alternative names.
        "URI" => Uri,
    }
}

words! {
    /// `appendfsync`.
    AppendFsync {
        /// Before the answers leave.
        "always" => Always,
        /// Once a second.
        #[default]
        "everysec" => Everysec,
        /// When the system likes.
        "no" => No,
    }
}

/// The most that [`Config::min_sync_replicas`] can be.
pub(crate) const SYNC_REPLICAS_MAX: i64 = 16;

words! {
    /// `repl-diskless-load`.
    ReplDisklessLoad {
        /// Never.
        "disabled" => Disabled,
        /// Only if there is no data set that could be lost.
        #[default]
        "on-empty-db" => OnEmptyDb,
        /// Only if there is no data set that could be lost; another one is served until the new one is whole.
        "swapdb" => Swapdb,
        /// Always.
        "flush-before-load" => FlushBeforeLoad,
    }
}

words! {
    /// `sync-replicas-ack`.
    SyncReplicasAck {
        /// The replica has applied it.
        #[default]
        "memory" => Memory,
        /// Its log has it on disk.
        "disk" => Disk,
    }
}

words! {
    /// `sync-replicas-missing`.
    SyncReplicasMissing {
        /// Writes are refused.
        #[default]
        "refuse" => Refuse,
        /// Writes wait.
        "wait" => Wait,
    }
}

words! {
    /// `module-data`.
    ModuleData {
        /// Values of types that are not there are kept as they came.
        #[default]
        "keep" => Keep,
        /// Such values are left out.
        "skip" => Skip,
        /// Files that hold one are refused.
        "refuse" => Refuse,
    }
}

words! {
    /// `rdb-version-check`.
    VersionCheck {
        /// Unknown versions are refused.
        #[default]
        "strict" => Strict,
        /// Such files are read as far as they hold what is known.
        "relaxed" => Relaxed,
    }
}

words! {
    /// `supervised`.
    Supervised {
        /// Nobody.
        #[default]
        "no" => Nobody,
        /// Refused.
        "upstart" => Upstart,
        /// systemd, if NOTIFY_SOCKET is set.
        "systemd" => Systemd,
        /// As `systemd`.
        "auto" => Auto,
    }
}

impl Supervised {
    /// The supervisor's socket for notifications, if there is one.
    pub(crate) fn socket(self) -> Option<std::ffi::OsString> {
        [Self::Systemd, Self::Auto].contains(&self).then(|| std::env::var_os("NOTIFY_SOCKET")).flatten()
    }
}

words! {
    /// `syslog-facility`.
    SyslogFacility {
        /// Processes of users.
        "user" => User,
        /// Facilities for the administrator's own use; as the others.
        #[default]
        "local0" => Local0,
        /// Likewise.
        "local1" => Local1,
        /// Likewise.
        "local2" => Local2,
        /// Likewise.
        "local3" => Local3,
        /// Likewise.
        "local4" => Local4,
        /// Likewise.
        "local5" => Local5,
        /// Likewise.
        "local6" => Local6,
        /// Likewise.
        "local7" => Local7,
    }
}

impl SyslogFacility {
    /// Its number in RFC 3164.
    pub fn number(self) -> u8 {
        match self {
            Self::User => 1,
            // From Local0, 16, on.
            local => 15 + local as u8,
        }
    }
}

words! {
    /// `sanitize-dump-payload`: what must be validated at least.
    Sanitize {
        /// Nothing.
        #[default]
        "no" => Nothing,
        /// Everything.
        "yes" => Everything,
        /// Events of most clients.
        "clients" => Clients,
    }
}

words! {
    /// `loglevel`: the least important lines that are still written.
    LogLevel {
        /// Everything.
        #[default]
        "debug" => Debug,
        /// Rare but unimportant events too.
        "verbose" => Verbose,
        /// Events that an operator wants to know.
        "notice" => Notice,
        /// Only what needs attention.
        "warning" => Warning,
        /// Nothing at all.
        "nothing" => Nothing,
    }
}

words! {
    /// `maxmemory-policy`.
    MaxmemoryPolicy {
        /// Least recently used among keys with an expiry.
        "volatile-lru" => VolatileLru,
        /// Least frequently used among keys with an expiry.
        "volatile-lfu" => VolatileLfu,
        /// Any key with an expiry.
        "volatile-random" => VolatileRandom,
        /// The key that expires soonest.
        "volatile-ttl" => VolatileTtl,
        /// Least recently changed among keys with an expiry.
        "volatile-lrm" => VolatileLrm,
        /// By age, uses and size, among keys with an expiry.
        "volatile-auto" => VolatileAuto,
        /// Least recently used.
        "allkeys-lru" => AllkeysLru,
        /// Least frequently used.
        "allkeys-lfu" => AllkeysLfu,
        /// Any key.
        "allkeys-random" => AllkeysRandom,
        /// Least recently changed.
        "allkeys-lrm" => AllkeysLrm,
        /// By age, uses and size, weighed as the cache has learned.
        "allkeys-auto" => AllkeysAuto,
        /// Writes that need memory are refused.
        #[default]
        "noeviction" => Noeviction,
    }
}

/// A part of memory, given in bytes or in percent of `maxmemory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryShare {
    /// This many bytes; 0 for no limit.
    Bytes(u64),
    /// This many percent; no limit without `maxmemory`.
    Percent(u8),
}

impl Default for MemoryShare {
    fn default() -> Self {
        Self::Bytes(0)
    }
}

impl MemoryShare {
    /// The limit in bytes, under this `maxmemory`; `None` if there is none.
    pub fn limit(self, maxmemory: u64) -> Option<u64> {
        let bytes = match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (u128::from(maxmemory) * u128::from(percent) / 100) as u64,
        };
        (bytes > 0).then_some(bytes)
    }
}

/// `db-maxmemory`: limits of databases, by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseLimits(Vec<(usize, u64)>);

impl DatabaseLimits {
    /// Whether it is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The limit of a database, in bytes.
    pub fn of(&self, database: usize) -> Option<u64> {
        let at = self.0.binary_search_by_key(&database, |(number, _)| *number).ok()?;
        Some(self.0[at].1)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Changes the limit of a database; 0 for none.
    pub(super) fn set(&mut self, database: usize, bytes: u64) {
        let place = self.0.binary_search_by_key(&database, |(number, _)| *number);
        match (place, bytes) {
            (Ok(at), 0) => drop(self.0.remove(at)),
            (Ok(at), _) => self.0[at].1 = bytes,
            (Err(_), 0) => {}
            (Err(at), _) => self.0.insert(at, (database, bytes)),
        }
    }

    /// Removes all.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// `shutdown-on-sigterm` and `shutdown-on-sigint`: what SHUTDOWN would be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShutdownFlags {
    /// Write a snapshot even without save points.
    pub save: bool,
    /// Write no snapshot.
    pub nosave: bool,
    /// Do not wait.
    pub now: bool,
    /// Exit whatever fails.
    pub force: bool,
}

/// `client-output-buffer-limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputBufferLimits {
    /// Ordinary clients, MONITOR included.
    pub normal: OutputBufferLimit,
    /// Replicas.
    pub replica: OutputBufferLimit,
    /// Clients with at least one subscription.
    pub pubsub: OutputBufferLimit,
}

/// The limit of one class of clients. Zero is not a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputBufferLimit {
    /// A client above it is closed at once.
    pub hard_bytes: u64,
    /// A client above it for `soft_seconds` is closed.
    pub soft_bytes: u64,
    /// How long a client may stay above `soft_bytes`.
    pub soft_seconds: u32,
}

/// A snapshot is due after `seconds` with at least `changes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavePoint {
    /// Since the last snapshot.
    pub seconds: u64,
    /// Since the last snapshot.
    pub changes: u64,
}
