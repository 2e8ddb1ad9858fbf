//! docs/commands/differences.md: commands and directives that not all of Redis, Valkey and Dunlin have, generated from the
//! tables of Dunlin and from what is known here of the other servers.

use std::fmt::Write;

use dunlin_engine::command::{CommandTable, Entry};

use crate::config::DIRECTIVES;

/// Names of directives that Redis or Valkey knows, one a line.
const FOREIGN_DIRECTIVES: &str = include_str!("../../tests/directives-of-redis-and-valkey.txt");

/// Commands by the version that brought them, from Redis 7.2 on. Redis 7.0 is complete here: tests/wire/test_command_table.py compares it.
///
/// Names are full and in lower case; `*` at the end stands for the rest of a family.
/// Sources: COMMAND of redis-server 7.0 and Valkey 9.1; the command references of Redis 8.10.
#[rustfmt::skip]
const NEWER: &[(&str, &[&str])] = &[
    ("Redis 7.2", &["client|no-touch", "client|setinfo", "cluster|myshardid", "waitaof"]),
    ("Redis 7.4, Valkey 9.0", &["hexpire", "hexpireat", "hexpiretime", "hpersist", "hpexpire", "hpexpireat", "hpexpiretime", "hpttl", "httl"]),
    ("Valkey 8.0", &["client|capa", "script|show"]),
    ("Redis 8.2, Valkey 8.0", &["cluster|slot-stats"]),
    ("Redis 8.0, Valkey 9.0", &["hgetex", "hsetex"]),
    ("Redis 8.0, Valkey 9.1", &["hgetdel"]),
    ("Valkey 8.1", &["client|import-source", "commandlog"]),
    ("Valkey 9.0", &["cluster|cancelslotmigrations", "cluster|flushslot", "cluster|getslotmigrations", "cluster|migrateslots", "cluster|syncslots", "delifeq"]),
    ("Valkey 9.1", &["clusterscan"]),
    ("Redis 8.0: vector sets", &["vadd", "vcard", "vdim", "vemb", "vgetattr", "vinfo", "vismember", "vlinks", "vrandmember", "vrange", "vrem", "vsetattr", "vsim"]),
    ("Redis 8.0: JSON", &["json.*"]),
    ("Redis 8.0: search", &["ft.*"]),
    ("Redis 8.0: filters and sketches", &["bf.*", "cf.*", "cms.*", "tdigest.*", "topk.*"]),
    ("Redis 8.0: time series", &["ts.*"]),
    ("Redis 8.2", &["xackdel", "xdelex"]),
    ("Redis 8.4", &["cluster|migration", "delex", "digest"]),
    ("Redis 8.4, Valkey 9.1", &["msetex"]),
    ("Redis 8.6", &["hotkeys", "xcfgset"]),
    ("Redis 8.8", &["increx", "xnack"]),
    ("Redis 8.8: arrays", &["arcount", "ardel", "ardelrange", "arget", "argetrange", "argrep", "arinfo", "arinsert", "arlastitems", "arlen", "armget", "armset", "arnext", "arop", "arring", "arscan", "arseek", "arset"]),
    ("Redis 8.10", &["backup", "blmovem", "himport", "lmovem", "sdiffcard", "sunioncard"]),
];

/// Commands that neither Redis nor Valkey has.
#[rustfmt::skip]
const OWN: &[&str] = &[
    "client|durability", "cluster|drain", "cluster|pin", "cluster|recover", "cluster|setreplicas", "cluster|status", "cluster|unpin", "recorder",
];

/// The commands of the table that a name of [`NEWER`] stands for.
fn found<'a>(table: &'a CommandTable, name: &str) -> Vec<&'a Entry> {
    match name.strip_suffix('*') {
        Some(family) => table.commands().filter(|entry| entry.full_name().starts_with(family)).collect(),
        None => table.find_full(name.as_bytes()).into_iter().collect(),
    }
}

/// The name of a command with a link to its section.
fn link(entry: &Entry) -> String {
    let name = entry.full_name();
    let words = name.replace('|', " ").to_uppercase();
    let anchor = name.replace('|', "-").replace('.', "");
    format!("[{words}]({}.md#{anchor})", entry.command.group.name())
}

/// The page.
pub(super) fn page(table: &CommandTable, note: &str) -> String {
    let mut out = format!(
        "# Differences from Redis and Valkey\n\n{note}\n\
         All commands of Redis 7.0 are here. Each command's arity, flags, keys and categories are compared with redis-server 7.0 and\n\
         Valkey 9.1 by `tests/wire/test_command_table.py`. Behaviour that differs on purpose:\n\n\
         - A [cluster](../cluster.md#redis-cli---cluster) arranges itself through etcd: slots are not assigned by hand, nodes have no gossip.\n\
         - [Modules](../formats/rdb.md) cannot be loaded; their values are kept and moved.\n\
         - [Scripts](../security.md) have limits that hostile ones cannot pass.\n\n\
         ## Commands of later versions\n\n| since | here | not here |\n|---|---|---|\n"
    );
    for (version, names) in NEWER {
        let (mut here, mut absent) = (Vec::new(), Vec::new());
        for name in *names {
            match found(table, name) {
                entries if entries.is_empty() => {
                    absent.push(format!("`{}`", name.replace('|', " ").to_uppercase()))
                }
                entries => here.extend(entries.into_iter().map(link)),
            }
        }
        let _ = writeln!(out, "| {version} | {} | {} |", here.join(", "), absent.join(", "));
    }
    out.push_str("\n## Commands of Dunlin alone\n\n| command | purpose |\n|---|---|\n");
    for name in OWN {
        for entry in found(table, name) {
            let _ = writeln!(out, "| {} | {} |", link(entry), entry.command.summary.replace('<', "\\<"));
        }
    }
    out.push_str(
        "\n## Directives\n\nFiles of Redis and Valkey load: [what becomes of each directive that has no meaning \
         here](../configuration.md#directives-of-other-servers).\n\
         Neither Redis nor Valkey has these directives ([values and meaning](../configuration.md)):\n\n",
    );
    let foreign: Vec<&str> = FOREIGN_DIRECTIVES.lines().collect();
    let mut own: Vec<String> = DIRECTIVES
        .iter()
        .filter(|directive| !directive.names().any(|name| foreign.contains(&name)))
        .map(|directive| format!("`{}`", directive.name))
        .collect();
    own.sort();
    let _ = writeln!(out, "{}.", own.join(", "));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_commands_that_exist_each_once() {
        let table = super::super::table();
        for name in OWN {
            assert_eq!(found(&table, name).len(), 1, "{name}");
        }
        let mut names: Vec<&str> = NEWER.iter().flat_map(|(_, names)| *names).chain(OWN).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "a name stands twice");
    }
}
