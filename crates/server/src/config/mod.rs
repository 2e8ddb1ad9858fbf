//! The configuration: one table of directives, and everything that derives from it.
//!
//! ```text
//! table ──┬── source, command_line   files, standard input, flags ─► Config
//!         │   foreign                directives of other servers
//!         ├── store                  CONFIG GET, SET; publishes Config to the workers
//!         ├── rewrite                CONFIG REWRITE
//!         └── documents              --help, --print-config, docs/configuration.md
//! ```
//! A row of the table names a field of [`Config`] and how to read, check and print it; no other
//! place knows a directive by name. A directive exists only when the server obeys it, and a value
//! that it cannot obey is refused with the reason. Directives of other servers are judged one by one
//! (see [`foreign`]).

mod cluster_wide;
mod command_line;
mod directive;
mod documents;
mod events;
mod foreign;
mod lines;
mod modules;
mod names;
mod policy;
mod rewrite;
mod settings;
mod source;
mod store;
mod table;
mod units;
mod values;
pub(crate) mod words;

pub use cluster_wide::CLUSTER_WIDE;
pub use command_line::{Launch, Request, command, parse};
pub use directive::{Change, Directive, Group, ValueError};
pub use events::{KeyspaceEvents, SubkeyEvents};
pub(crate) use foreign::is_secret;
pub use lines::{IgnoredLine, Origin, RenameLine, UserLine};
pub(crate) use modules::announced_modules;
pub(crate) use names::{NO_HOST, is_host, is_hostname, is_label};
pub(crate) use policy::policy;
pub(crate) use rewrite::{RewrittenUsers, replace as replace_file};
pub use settings::Config;
pub use source::LoadError;
pub use source::describe;
pub(crate) use source::escape_control;
pub use store::{ConfigReader, ConfigStore, Hook, RewriteError, SetError};
pub use table::{DIRECTIVES, find};
pub(crate) use units::parse_memory;
pub(crate) use values::SYNC_REPLICAS_MAX;
pub use values::{
    AppendFsync, AuditFull, AuthClients, BindAddress, CertificateUser, ClusterDurability, EndpointType,
    LogLevel, MaxmemoryPolicy, ModuleData, OutputBufferLimit, OutputBufferLimits, PeerUser, Permission,
    PrimaryAddress, PubsubDefault, ReplDisklessLoad, Sanitize, SavePoint, Secret, ShutdownFlags, Supervised,
    SyncReplicasAck, SyncReplicasMissing, SyslogFacility, VersionCheck,
};

/// Returns the reason for which a directive of another server has no effect here, `None` if it is obeyed.
///
/// # Errors
/// Returns the reason for which a file with it is refused.
pub fn foreign_effect(name: &str, value: &str) -> Result<Option<&'static str>, String> {
    let origin = Origin::Flag;
    let values = value.split_ascii_whitespace().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let values = if values.is_empty() { vec![Vec::new()] } else { values };
    if find(name.as_bytes()).is_some() {
        // Directives that both have take the same values, but for a few that name the reason at the start.
        return Ok(None);
    }
    let mut config = Config::default();
    match foreign::load(&origin, name.as_bytes(), &values, &mut config) {
        Some(Ok(())) => Ok(config.ignored.first().map(|line| line.reason)),
        Some(Err(reason)) => Err(reason.to_owned()),
        None => Err("not known".to_owned()),
    }
}

/// Returns `name value` if the value of a directive, as CONFIG GET shows it, is not the default. A secret is not shown.
pub fn difference(name: &str, value: &str) -> Option<String> {
    let directive = find(name.as_bytes()).filter(|directive| directive.name == name)?;
    if directive.is_secret() {
        return (!value.is_empty()).then(|| format!("{name} (not shown)"));
    }
    (directive.print(&Config::default()) != value.as_bytes()).then(|| format!("{name} {value}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::PathBuf;

    /// A directory of a test's own, removed in the end.
    pub(crate) struct ScratchDir(PathBuf);

    impl ScratchDir {
        pub(crate) fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("dunlin-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }

        pub(crate) fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        pub(crate) fn write(&self, name: &str, text: &str) {
            let path = self.path(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    impl Drop for ScratchDir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
