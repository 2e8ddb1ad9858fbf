//! The settings of the cluster: values of the directives that `config/cluster_wide.rs` lists.

pub(super) use dunlin_cluster::records::SettingsRecord;

use crate::cluster::view::Stored;
use crate::{config, shared::Shared};

/// The record after CONFIG SET of these directives.
pub(super) fn plan(known: Option<&Stored<SettingsRecord>>, pairs: &[(&str, Vec<u8>)]) -> SettingsRecord {
    let mut record = known.map_or_else(SettingsRecord::default, |(_, record)| record.clone());
    for (name, value) in pairs {
        // No directive of the list takes anything else.
        record.settings.insert((*name).to_owned(), String::from_utf8_lossy(value).into_owned());
    }
    record
}

/// Puts the settings in force that differ. The error names those that this server cannot have.
pub(super) fn put(shared: &Shared, record: &SettingsRecord) -> Result<(), String> {
    let current = shared.config.current();
    let (mut faults, mut pairs) = (Vec::new(), Vec::new());
    for (name, value) in &record.settings {
        match config::find(name.as_bytes()).filter(|directive| directive.is_cluster_wide()) {
            Some(directive) if directive.print(&current) == value.as_bytes() => {}
            Some(_) => pairs.push((name.as_bytes(), value.as_bytes())),
            None => faults.push(format!("the cluster's setting '{name}' is unknown to this version")),
        }
    }
    if pairs.is_empty() || shared.config.set(&pairs, true).is_ok() {
        for (name, value) in &pairs {
            tracing::info!(
                "Cluster: {} is {} by the cluster's settings",
                name.escape_ascii(),
                value.escape_ascii()
            );
        }
    } else {
        // Each setting by itself, so that one of them does not keep out the others.
        faults.extend(pairs.iter().filter_map(|pair| {
            let refused = shared.config.set(&[*pair], true).err()?;
            Some(format!("a setting of the cluster is refused here: {refused}"))
        }));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}
