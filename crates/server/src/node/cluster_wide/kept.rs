//! The last users and settings of the cluster, in files of the data directory: in force from the start of a node until etcd answers.
//!
//! ```text
//! dir/cluster-users       the record, as etcd has it
//! dir/cluster-settings    the record
//! ```

use std::{io, path::PathBuf};

use dunlin_cluster::{meta::VALUE_BYTES_MAX, records::Record};

use super::{
    settings::{self, SettingsRecord},
    users::{self, UsersRecord},
};
use crate::{
    config::{describe, replace_file},
    shared::Shared,
};

const USERS: &str = "cluster-users";
const SETTINGS: &str = "cluster-settings";

fn path(shared: &Shared, name: &str) -> PathBuf {
    shared.config.current().dir.join(name)
}

pub(super) fn keep_users(shared: &Shared, record: &UsersRecord) {
    keep(shared, USERS, record);
}

pub(super) fn keep_settings(shared: &Shared, record: &SettingsRecord) {
    keep(shared, SETTINGS, record);
}

fn keep(shared: &Shared, name: &str, record: &impl Record) {
    let path = path(shared, name);
    if let Err(error) = replace_file(&path, &record.encode()) {
        tracing::warn!("Cluster: cannot write {}: {}", path.display(), describe(&error));
    }
}

/// Puts in force what the directory has. The error is a line for the operator.
pub(in super::super) fn load(shared: &Shared) -> Result<(), String> {
    if let Some(record) = read(shared, USERS)? {
        users::put(shared, &record, None).map_err(|why| named(shared, USERS, &why))?;
    }
    if let Some(record) = read(shared, SETTINGS)?
        && let Err(why) = settings::put(shared, &record)
    {
        tracing::warn!("Cluster: {why}");
    }
    Ok(())
}

fn named(shared: &Shared, name: &str, why: &str) -> String {
    format!("{}: {why}; without the file, the node starts with its own users", path(shared, name).display())
}

fn read<R: Record>(shared: &Shared, name: &str) -> Result<Option<R>, String> {
    use io::Read;
    let mut json = Vec::new();
    let opened = std::fs::File::open(path(shared, name));
    let read = opened.and_then(|file| file.take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut json));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(named(shared, name, &describe(&error))),
        Ok(_) => R::decode(&json).map(Some).map_err(|error| named(shared, name, &error.to_string())),
    }
}
