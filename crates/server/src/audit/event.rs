//! An event, and its line.

use std::fmt::Write;

use serde::Serialize;

use crate::system::{host, utc::Utc};

/// Bytes of a name that are shown: clients choose them.
const NAME_BYTES_MAX: usize = 256;
/// Names in one line.
const NAMES_MAX: usize = 32;

/// The kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// A client comes or goes.
    Connection,
    /// A client says who it is, or its certificate does.
    Auth,
    /// A change of users.
    Acl,
    /// CONFIG SET, REWRITE and RESETSTAT.
    Config,
    /// FLUSHALL and FLUSHDB.
    Flush,
    /// SHUTDOWN.
    Shutdown,
    /// DEBUG.
    Debug,
    /// MODULE.
    Module,
    /// REPLICAOF and FAILOVER.
    Replication,
    /// A command that a user may not run.
    Denied,
    /// A command of a chosen category, or on a chosen key.
    Command,
}

impl Kind {
    pub(crate) const ALL: [Self; 11] = [
        Self::Connection,
        Self::Auth,
        Self::Acl,
        Self::Config,
        Self::Flush,
        Self::Shutdown,
        Self::Debug,
        Self::Module,
        Self::Replication,
        Self::Denied,
        Self::Command,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Auth => "auth",
            Self::Acl => "acl",
            Self::Config => "config",
            Self::Flush => "flush",
            Self::Shutdown => "shutdown",
            Self::Debug => "debug",
            Self::Module => "module",
            Self::Replication => "replication",
            Self::Denied => "denied",
            Self::Command => "command",
        }
    }

    /// The kind of a command by its full name, if it is recorded for what it is.
    pub(crate) fn of_command(name: &str) -> Option<Self> {
        Some(match name {
            "acl|setuser" | "acl|deluser" | "acl|load" | "acl|save" => Self::Acl,
            "config|set" | "config|rewrite" | "config|resetstat" => Self::Config,
            "flushall" | "flushdb" => Self::Flush,
            "shutdown" => Self::Shutdown,
            "debug" => Self::Debug,
            "replicaof" | "slaveof" | "failover" => Self::Replication,
            name if name.starts_with("debug|") => Self::Debug,
            name if name.starts_with("module|") => Self::Module,
            _ => return None,
        })
    }
}

/// The outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AuditOutcome {
    /// A client has connected.
    Opened,
    /// A connection has ended.
    Closed,
    /// A client was let in.
    Success,
    /// A client was not let in.
    Failure,
    /// The command was refused.
    Denied,
    /// The command is about to run.
    Begun,
}

/// The origin of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Origin {
    /// TCP.
    Tcp,
    /// TCP inside TLS.
    Tls,
    /// A Unix socket.
    Unix,
}

/// An event of the audit log. Fields that are not set do not appear.
#[derive(Debug, Clone)]
pub(crate) struct Event<'a> {
    pub(crate) kind: Kind,
    pub(crate) outcome: AuditOutcome,
    /// The client's number.
    pub(crate) client: u64,
    pub(crate) address: &'a str,
    pub(crate) origin: Option<Origin>,
    pub(crate) user: &'a [u8],
    /// Its full name.
    pub(crate) command: &'a str,
    /// Why it was denied, or how a client says who it is.
    pub(crate) reason: &'a str,
    /// Keys, directives, users: never values.
    pub(crate) names: &'a [&'a [u8]],
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    event: &'static str,
    outcome: AuditOutcome,
    client: u64,
    address: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<Origin>,
    #[serde(skip_serializing_if = "String::is_empty")]
    user: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    command: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
}

impl Event<'_> {
    #[cfg(test)]
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            kind,
            outcome: AuditOutcome::Opened,
            client: 0,
            address: "",
            origin: None,
            user: b"",
            command: "",
            reason: "",
            names: &[],
        }
    }

    /// Its line, with the end of the line.
    pub(crate) fn line(&self) -> String {
        let line = Line {
            time: Utc((host::unix_us() / 1000) as u64).to_string(),
            event: self.kind.name(),
            outcome: self.outcome,
            client: self.client,
            address: self.address,
            transport: self.origin,
            user: shown(self.user),
            command: self.command,
            reason: self.reason,
            names: self.names.iter().take(NAMES_MAX).map(|name| shown(name)).collect(),
        };
        let mut line = serde_json::to_string(&line).unwrap_or_default();
        line.push('\n');
        line
    }
}

/// A name as text: bytes that are none are escaped, and a long one is cut.
fn shown(name: &[u8]) -> String {
    let cut = &name[..name.len().min(NAME_BYTES_MAX)];
    let mut shown = String::new();
    for chunk in cut.utf8_chunks() {
        shown.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    if cut.len() < name.len() {
        shown.push('…');
    }
    shown
}
