//! The users of the cluster: lines of an ACL file, passwords as hashes.

pub(super) use dunlin_cluster::records::UsersRecord;
use dunlin_engine::command::CommandError;

use crate::{
    cluster::{cluster_wide::ClusterChange, view::Stored},
    session::order::Carried,
    shared::Shared,
};

/// The record after a change.
pub(super) fn plan(
    shared: &Shared,
    known: Option<&Stored<UsersRecord>>,
    change: &ClusterChange,
) -> Result<(UsersRecord, Carried), CommandError> {
    let config = shared.config.current();
    let lines = known.map(|(_, record)| bytes_of(record));
    let mut draft = shared
        .access
        .draft(lines.as_deref(), &config)
        .map_err(|why| CommandError::owned(format!("ERR the cluster's users are not understood: {why}")))?;
    let mut carried = Carried::Ok;
    match change {
        ClusterChange::SetUser { name, rules } => {
            let rules: Vec<&[u8]> = rules.iter().map(Vec::as_slice).collect();
            draft
                .set(name, &rules, &config)
                .map_err(|error| CommandError::quoting("", &[b"ERR ", &error.text()[..]].concat()))?;
        }
        ClusterChange::RemoveUsers { names } => {
            carried = Carried::Count(names.iter().filter(|name| draft.remove(name)).count());
        }
        ClusterChange::ReplaceUsers { lines } => return Ok((record_of(lines)?, carried)),
        _ => unreachable!("it changes no user"),
    }
    Ok((record_of(&draft.lines())?, carried))
}

fn bytes_of(record: &UsersRecord) -> Vec<&[u8]> {
    record.users.iter().map(String::as_bytes).collect()
}

fn record_of(lines: &[Vec<u8>]) -> Result<UsersRecord, CommandError> {
    const NO_TEXT: CommandError =
        CommandError::text("ERR names and rules of a cluster's users have to be UTF-8");
    let text = |line: &Vec<u8>| String::from_utf8(line.clone()).map_err(|_| NO_TEXT);
    Ok(UsersRecord { users: lines.iter().map(text).collect::<Result<_, _>>()? })
}

/// Puts the users in force. The error is why they are not: all of them are, or none. The client `own` stays connected.
pub(super) fn put(shared: &Shared, record: &UsersRecord, own: Option<u64>) -> Result<(), String> {
    let config = shared.config.current();
    let (before, changes) = shared.access.replace_all(&bytes_of(record), &config)?;
    let is_gone =
        |user: &&std::sync::Arc<dunlin_acl::User>| !changes.iter().any(|change| change.after.is_same(user));
    let gone: Vec<&[u8]> = before.iter().filter(is_gone).map(|user| user.name()).collect();
    // Before the workers run, there are no clients.
    if let Some(queues) = shared.durability.queues() {
        shared.connected(queues).follow(&gone, &changes, own);
    }
    Ok(())
}
