//! docs/commands: a page per group of commands and an index, generated from the table.
//!
//! `UPDATE_DOCS=1 cargo test -p dunlin-server documentation` writes them anew.

use std::collections::BTreeMap;
use std::fmt::Write;

use dunlin_engine::command::{CommandTable, Entry, Group};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands");
const NOTE: &str = "<!-- Generated from the command table by\n     \
                    UPDATE_DOCS=1 cargo test -p dunlin-server documentation -->\n";

/// All pages by file name.
fn pages(table: &CommandTable) -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    let mut index = format!(
        "# Commands\n\n{NOTE}\nWords in capitals are written as they stand, in any letter case; the others are \
         replaced. `[ ]` may be left\nout, `|` separates alternatives, `...` repeats.\n\n\
         [Differences from Redis and Valkey](differences.md): commands of later versions, and of Dunlin alone.\n"
    );
    for group in Group::ALL {
        let commands: Vec<&Entry> = table.commands().filter(|entry| entry.command.group == group).collect();
        if commands.is_empty() {
            continue;
        }
        let _ = write!(index, "\n## [{}]({}.md)\n\n", title(group), group.name());
        let mut page = format!("# Commands: {}\n\n{NOTE}", title(group));
        for entry in commands {
            let subcommands = &table.entries()[entry.subcommands.clone()];
            let name = entry.full_name().to_uppercase();
            let anchor = entry.full_name().replace('.', "");
            let _ =
                writeln!(index, "- [{name}]({}.md#{anchor}): {}", group.name(), cell(entry.command.summary));
            page.push_str(&section("##", entry, !subcommands.is_empty()));
            for subcommand in subcommands {
                page.push_str(&section("###", subcommand, false));
            }
        }
        pages.insert(format!("{}.md", group.name()), page);
    }
    pages.insert("differences.md".to_owned(), super::differences::page(table, NOTE));
    pages.insert("README.md".to_owned(), index);
    pages
}

fn title(group: Group) -> String {
    group.name().replace('-', " ")
}

fn cell(text: &str) -> String {
    text.replace('<', "\\<")
}

/// The page's part about one command.
fn section(heading: &str, entry: &Entry, is_container: bool) -> String {
    let command = entry.command;
    let name = entry.full_name().to_uppercase().replace('|', " ");
    let mut out = format!("\n{heading} {name}\n\n{}\n", cell(command.summary));
    if let Some((since, replacement)) = command.deprecated {
        let _ = write!(out, "\nDeprecated since {since}: use {replacement}.\n");
    }
    if is_container && matches!(command.run, dunlin_engine::command::Run::Container) {
        return out;
    }
    let _ = write!(out, "\n```text\n{}\n```\n\n", entry.syntax());
    let _ = writeln!(out, "- Since: {}", command.since);
    let _ = writeln!(out, "- Time: {}", cell(command.complexity));
    let flags = entry.flag_names();
    if !flags.is_empty() {
        let _ = writeln!(out, "- Flags: {}", flags.join(", "));
    }
    let categories: Vec<String> = entry.categories().iter().map(|category| format!("@{category}")).collect();
    let _ = writeln!(out, "- Categories: {}", categories.join(", "));
    out
}

#[test]
fn documentation_of_commands_is_up_to_date() {
    let pages = pages(&super::table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        // Only what this test writes is there; a folder that does not exist needs no clearing.
        let _ = std::fs::remove_dir_all(FOLDER);
        std::fs::create_dir_all(FOLDER).unwrap();
        for (name, text) in &pages {
            std::fs::write(format!("{FOLDER}/{name}"), text).unwrap();
        }
    }
    let files = std::fs::read_dir(FOLDER).into_iter().flatten().map(|file| {
        let file = file.unwrap();
        (file.file_name().into_string().unwrap(), std::fs::read_to_string(file.path()).unwrap())
    });
    assert!(
        files.collect::<BTreeMap<_, _>>() == pages,
        "docs/commands is stale: run UPDATE_DOCS=1 cargo test -p dunlin-server documentation"
    );
}
