//! Commands, rules of users, libraries of functions and directives of the old server that the new one lacks.

use std::collections::BTreeMap;

use dunlin_resp::Value;
use dunlin_server::config::foreign_effect;

use super::side::{Product, Side};
use crate::server::{strings, text};

/// Names that are shown of each kind.
const SHOWN_MAX: usize = 20;
/// Directives that say where a server is and which files it has: each server has its own.
const PLACES: [&str; 12] = [
    "aclfile",
    "bind",
    "bind-source-addr",
    "cluster-config-file",
    "dbfilename",
    "dir",
    "logfile",
    "pidfile",
    "port",
    "replicaof",
    "slaveof",
    "unixsocket",
];

/// The findings about the old server.
#[derive(Default)]
pub(super) struct Inventory {
    /// Lines for the user.
    pub(super) notes: Vec<String>,
    /// Data that the new server cannot have.
    pub(super) losses: Vec<String>,
}

/// Looks at the old server, and asks the new one what it knows. Changes nothing. A question that a user may not ask is left out,
/// which a note says.
pub(super) fn inventory(old: &mut Side, new: &mut Side) -> Result<Inventory, String> {
    let mut found = Inventory::default();
    commands(old, new, &mut found)?;
    users(old, new, &mut found)?;
    libraries(old, &mut found);
    if new.product == Product::Dunlin {
        directives(old, &mut found);
    }
    Ok(found)
}

/// Some names, the first ones.
fn shown(names: &[String]) -> String {
    let rest = names.len().saturating_sub(SHOWN_MAX);
    let more = if rest > 0 { format!(", and {rest} more") } else { String::new() };
    format!("{}{more}", names[..names.len() - rest].join(", "))
}

/// The reply of the old server to a question, or a note that it was refused.
fn ask(old: &mut Side, words: &[&str], what: &str, found: &mut Inventory) -> Option<Value> {
    let reply = old.ask(words);
    if let Err(reason) = &reply {
        found.notes.push(format!("{what} of the old server are not known: {reason}"));
    }
    reply.ok()
}

/// Returns the full names that a server has no command for.
fn lacking(new: &mut Side, names: &[String]) -> Result<Vec<String>, String> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let words: Vec<&str> = ["COMMAND", "INFO"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let Value::Array(rows) = new.ask(&words)? else { return Ok(Vec::new()) };
    let is_there = |row: &Value| matches!(row, Value::Array(row) if !row.is_empty());
    Ok(names.iter().zip(&rows).filter(|(_, row)| !is_there(row)).map(|(name, _)| name.clone()).collect())
}

/// Commands that clients have called since the old server's start or its last CONFIG RESETSTAT.
fn commands(old: &mut Side, new: &mut Side, found: &mut Inventory) -> Result<(), String> {
    let Some(reply) = ask(old, &["INFO", "commandstats"], "the commands that clients call", found) else {
        return Ok(());
    };
    let lines = reply.as_bytes().map(text).unwrap_or_default();
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    for line in lines.lines() {
        let Some((name, facts)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(':')) else {
            continue;
        };
        let count = facts.split(',').find_map(|fact| fact.strip_prefix("calls=")?.parse().ok());
        calls.insert(name.to_lowercase(), count.unwrap_or(0));
    }
    let names: Vec<String> = calls.keys().cloned().collect();
    let mut lacking = lacking(new, &names)?;
    lacking.sort_by_key(|name| std::cmp::Reverse(calls[name]));
    if !lacking.is_empty() {
        let words: Vec<String> =
            lacking.iter().map(|name| format!("{name} ({} calls)", calls[name])).collect();
        found
            .notes
            .push(format!("clients have called commands that the new server lacks: {}", shown(&words)));
    }
    Ok(())
}

/// The part of users' rules that the new server does not know.
fn users(old: &mut Side, new: &mut Side, found: &mut Inventory) -> Result<(), String> {
    let Some(reply) = ask(old, &["ACL", "LIST"], "the users", found) else { return Ok(()) };
    let categories = new.ask(&["ACL", "CAT"]).map_or(Vec::new(), |names| strings(&names));
    let lines = strings(&reply);
    if lines.len() > 1 {
        found.notes.push(format!(
            "{} users of the old server are not moved: ACL LIST shows them, ACL SETUSER makes them",
            lines.len()
        ));
    }
    for line in lines {
        let mut words = line.split_ascii_whitespace().skip(1);
        let Some(user) = words.next() else { continue };
        let rules: Vec<&str> = words.map(|word| word.trim_matches(['(', ')'])).collect();
        let command = |rule: &&str| {
            let name = rule.strip_prefix(['+', '-'])?;
            (!name.starts_with('@')).then(|| name.to_lowercase())
        };
        let mut names: Vec<String> = rules.iter().filter_map(command).collect();
        names.sort_unstable();
        names.dedup();
        let lacking = lacking(new, &names)?;
        let is_unknown = |rule: &&&str| match rule.strip_prefix(['+', '-']) {
            Some(name) => match name.strip_prefix('@') {
                Some(category) => category != "all" && !categories.iter().any(|known| known == category),
                None => lacking.iter().any(|known| *known == name.to_lowercase()),
            },
            None => rule.starts_with("role="),
        };
        let mut unknown: Vec<String> =
            rules.iter().filter(is_unknown).map(|rule| (*rule).to_owned()).collect();
        unknown.dedup();
        if !unknown.is_empty() {
            found
                .notes
                .push(format!("rules of the user '{user}' that the new server lacks: {}", shown(&unknown)));
        }
    }
    Ok(())
}

/// Libraries of functions: those in Lua come along.
fn libraries(old: &mut Side, found: &mut Inventory) {
    // Redis before 7.0 has none, and no such command.
    let Ok(Value::Array(libraries)) = old.ask(&["FUNCTION", "LIST"]) else { return };
    for library in &libraries {
        let fields = strings(library);
        let field = |name: &str| {
            let at = fields.iter().position(|field| field == name)?;
            fields.get(at + 1).cloned()
        };
        let (name, engine) = (field("library_name").unwrap_or_default(), field("engine").unwrap_or_default());
        if !engine.eq_ignore_ascii_case("lua") {
            found.losses.push(format!("the library of functions '{name}', which is for the engine {engine}"));
        }
    }
}

/// Directives of the old server that Dunlin would refuse in its configuration file, and the number of those without effect.
fn directives(old: &mut Side, found: &mut Inventory) {
    let Some(reply) = ask(old, &["CONFIG", "GET", "*"], "the directives", found) else { return };
    let words = strings(&reply);
    let (mut refused, mut without_effect) = (Vec::new(), 0);
    for pair in words.chunks_exact(2).filter(|pair| !PLACES.contains(&&*pair[0])) {
        match foreign_effect(&pair[0], &pair[1]) {
            Ok(None) => {}
            Ok(Some(_)) => without_effect += 1,
            Err(reason) => refused.push(format!("{} ({reason})", pair[0])),
        }
    }
    if !refused.is_empty() {
        found
            .notes
            .push(format!("directives that the new server would refuse in a file: {}", shown(&refused)));
    }
    if without_effect > 0 {
        found.notes.push(format!(
            "{without_effect} directives of the old server have no effect here: docs/configuration.md says why"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_shown_in_part() {
        let names: Vec<String> = (0..25).map(|number| format!("n{number}")).collect();
        assert!(shown(&names).ends_with("n19, and 5 more"));
        assert_eq!(shown(&names[..2]), "n0, n1");
    }
}
