//! The server's certificates and keys: loaded as a whole, reloaded when their files change, and watched for expiry.
//!
//! ```text
//! directives ─▶ TlsOptions ─ load ─▶ TlsMaterial ─▶ workers, links to primaries, INFO
//!                              ▲
//! files ─ stamps differ ───────┘   thread `tls`, each `tls-auto-reload-interval`
//! ```
//!
//! Files that cannot be loaded change nothing: the material of before stays in force, and a line of the log says why.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use dunlin_net::{
    Now,
    tls::{CertificateFacts, ClientCertificates, SharedTls, TlsClient, TlsError, TlsMaterial, TlsOptions},
};

use crate::config::{AuthClients, Config, ConfigStore};

/// How often the thread looks at the clock.
const TICK: Duration = Duration::from_secs(1);
/// Days before an expiry at which the log says so.
const WARNED_DAYS: [i64; 3] = [1, 7, 30];
const DAY_S: i64 = 86_400;

/// The identity of a state of the files: of each its device, inode, length and times.
type Stamps = Vec<(u64, u64, u64, i64, i64)>;

/// The server's TLS.
#[derive(Debug, Default)]
pub(crate) struct Tls {
    /// The configuration that workers give to new connections.
    pub(crate) for_workers: SharedTls,
    material: ArcSwapOption<TlsMaterial>,
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    /// Stamps of the files when they were looked at last.
    stamps: Stamps,
    checked_at: Option<Instant>,
    /// The kinds of certificates, serial numbers and days of which the log has said that they expire.
    warned: Vec<(&'static str, String, i64)>,
}

impl Tls {
    /// Follows a configuration: loads all files, or gives TLS up if nothing needs it.
    pub(crate) fn configure(&self, config: &Config) -> Result<(), TlsError> {
        if !is_wanted(config) {
            self.for_workers.store(None);
            self.material.store(None);
            return Ok(());
        }
        let options = options(config);
        let stamps = stamps(&options);
        let material = options.load()?;
        let mut watched = self.watched();
        watched.stamps = stamps;
        self.for_workers.store(Some(Arc::new(material.server.clone())));
        self.material.store(Some(Arc::new(material)));
        self.warn_of_expiry(&mut watched);
        Ok(())
    }

    /// The present material.
    pub(crate) fn material(&self) -> Option<Arc<TlsMaterial>> {
        self.material.load_full()
    }

    /// For a connection to a primary; `None` if it is to be plain.
    pub(crate) fn client(&self, config: &Config, host: &str) -> Option<io::Result<TlsClient>> {
        config.tls_replication.then(|| self.client_for("tls-replication", host))
    }

    /// For a connection to another server that keys move to; `None` if it is to be plain.
    pub(crate) fn cluster_client(&self, config: &Config, host: &str) -> Option<io::Result<TlsClient>> {
        config.tls_cluster.then(|| self.client_for("tls-cluster", host))
    }

    fn client_for(&self, directive: &str, host: &str) -> io::Result<TlsClient> {
        match self.material().and_then(|material| material.client(host)) {
            Some(client) => client.map_err(io::Error::other),
            None => Err(io::Error::other(format!("{directive} is on, and there is no certificate"))),
        }
    }

    /// Reloads files that have changed, if that is due, and warns of certificates that expire soon.
    fn tend(&self, config: &Config, now: Instant) {
        if self.material.load().is_none() {
            return;
        }
        let mut watched = self.watched();
        self.warn_of_expiry(&mut watched);
        let interval = Duration::from_secs(config.tls_auto_reload_interval.into());
        let is_due = watched.checked_at.is_none_or(|checked_at| now.duration_since(checked_at) >= interval);
        if interval.is_zero() || !is_due {
            return;
        }
        watched.checked_at = Some(now);
        let newest = stamps(&options(config));
        if newest == watched.stamps {
            return;
        }
        // Files that are wrong are tried again when they have changed again.
        watched.stamps = newest;
        drop(watched);
        match self.configure(config) {
            Ok(()) => tracing::info!("TLS: certificates and keys have changed and were loaded again"),
            Err(error) => tracing::warn!(
                "TLS: the files have changed and cannot be used, so what was loaded before stays: {error}"
            ),
        }
    }

    fn warn_of_expiry(&self, watched: &mut Watched) {
        let Some(material) = self.material() else { return };
        let now_s = now_s();
        for (kind, facts) in certificates(&material) {
            let Some(facts) = facts else { continue };
            let days = (facts.expires_s - now_s).div_euclid(DAY_S);
            let Some(threshold) = WARNED_DAYS.into_iter().find(|threshold| days < *threshold) else {
                continue;
            };
            let threshold = if facts.expires_s <= now_s { 0 } else { threshold };
            let mark = (kind, facts.serial.clone(), threshold);
            if watched.warned.contains(&mark) {
                continue;
            }
            watched.warned.retain(|(of, ..)| *of != kind);
            watched.warned.push(mark);
            match threshold {
                0 => tracing::warn!("TLS: the certificate {} ({kind}) has expired", facts.serial),
                _ => tracing::warn!(
                    "TLS: the certificate {} ({kind}) expires in {} hours",
                    facts.serial,
                    (facts.expires_s - now_s) / 3600
                ),
            }
        }
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The certificates that INFO and the log tell of.
pub(crate) fn certificates(material: &TlsMaterial) -> [(&'static str, Option<&CertificateFacts>); 3] {
    let own = &material.server_certificate;
    [
        ("server", Some(own)),
        ("client", material.client_certificate.as_ref()),
        ("authority", material.ca_certificate.as_ref()),
    ]
}

/// Seconds since 1970.
pub(crate) fn now_s() -> i64 {
    (Now::read().unix_ms / 1000) as i64
}

/// Whether anything needs TLS.
fn is_wanted(config: &Config) -> bool {
    config.tls_port != 0 || config.tls_replication || config.tls_cluster
}

/// Starts the thread `tls`; it ends with the server.
pub(crate) fn start(tls: &Arc<Tls>, store: &Arc<ConfigStore>) -> io::Result<()> {
    let (tls, store): (Weak<Tls>, Weak<ConfigStore>) = (Arc::downgrade(tls), Arc::downgrade(store));
    thread::Builder::new().name("tls".to_owned()).spawn(move || {
        loop {
            thread::sleep(TICK);
            let (Some(tls), Some(store)) = (tls.upgrade(), store.upgrade()) else { return };
            tls.tend(&store.current(), Instant::now());
        }
    })?;
    Ok(())
}

fn options(config: &Config) -> TlsOptions {
    TlsOptions {
        cert_file: config.tls_cert_file.clone(),
        key_file: config.tls_key_file.clone(),
        client_cert_file: config.tls_client_cert_file.clone(),
        client_key_file: config.tls_client_key_file.clone(),
        ca_cert_file: config.tls_ca_cert_file.clone(),
        ca_cert_dir: config.tls_ca_cert_dir.clone(),
        client_certificates: match config.tls_auth_clients {
            AuthClients::No => ClientCertificates::NotAsked,
            AuthClients::Optional => ClientCertificates::Optional,
            AuthClients::Yes => ClientCertificates::Required,
        },
        connects: config.tls_replication || config.tls_cluster,
        protocols: config.tls_protocols.clone(),
        ciphers: config.tls_ciphers.clone(),
        ciphersuites: config.tls_ciphersuites.clone(),
        prefers_own_ciphers: config.tls_prefer_server_ciphers,
        keeps_sessions: config.tls_session_caching,
        sessions_max: config.tls_session_cache_size as usize,
        session_timeout_s: config.tls_session_cache_timeout,
    }
}

/// The state of all files, those in directories included.
fn stamps(options: &TlsOptions) -> Stamps {
    let mut stamps = Stamps::new();
    let mut add = |path: &Path| {
        if let Ok(metadata) = fs::metadata(path) {
            let modified =
                metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
            let changed =
                metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec());
            stamps.push((metadata.dev(), metadata.ino(), metadata.len(), modified, changed));
        } else {
            stamps.push((0, 0, 0, 0, 0));
        }
    };
    for path in options.files() {
        add(path);
        if let Ok(entries) = fs::read_dir(path) {
            let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
            paths.sort_unstable();
            paths.iter().for_each(|path| add(path));
        }
    }
    stamps
}
