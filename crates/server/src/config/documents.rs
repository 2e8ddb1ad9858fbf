//! Texts derived from the table: the configuration file of defaults (`dunlin server --print-config`)
//! and docs/configuration.md.

use std::fmt::Write;

#[cfg(test)]
use super::directive::Change;
use super::directive::{Directive, Group};
use super::table::DIRECTIVES;

/// A configuration file that sets every directive to its default.
pub fn default_file() -> String {
    let mut out = String::from("# Every directive of dunlin server with its default.\n");
    for group in Group::ALL {
        let _ = write!(out, "\n## {}\n", group.title());
        for directive in in_group(group) {
            let _ = write!(
                out,
                "\n# {}\n# Values: {}.\n{} {}\n",
                directive.doc,
                directive.values(),
                directive.name,
                directive.default
            );
        }
    }
    out
}

/// docs/configuration.md.
#[cfg(test)]
fn configuration_page() -> String {
    let mut out = String::from(
        "# Configuration\n\
         \n\
         <!-- Generated from crates/server/src/config/table/ by\n     \
         UPDATE_DOCS=1 cargo test -p dunlin-server documentation -->\n\
         \n\
         `dunlin server [CONFIG-FILE] [--directive value ...] [-]`\n\
         \n\
         The file has the syntax of redis.conf: one directive a line, words with blanks in quotes, `#` first\n\
         in a line for a comment. Every directive is also a flag; flags are applied after the file, and the\n\
         last value wins. `-` as the last word reads more lines from standard input, before the flags.\n\
         `include PATH` reads another file in its place; the path may be a pattern (`conf.d/*.conf`), and a\n\
         relative one starts at the directory of the file that names it. Sizes take a suffix: `k`, `m`, `g`\n\
         are powers of 1000, `kb`, `mb`, `gb` of 1024. `dunlin server --print-config` prints a file with all\n\
         defaults.\n\
         \n\
         `CONFIG GET pattern ...` shows values, `CONFIG SET name value ...` changes all of the given ones or\n\
         none, and `CONFIG REWRITE` writes the current values back into the file, whose comments and order\n\
         stay. The column *change* says when a value can change: any time; protected, which is any time for\n\
         clients that `enable-protected-configs` allows; or only at start.\n",
    );
    for group in Group::ALL {
        let _ = write!(
            out,
            "\n## {}\n\n| directive | values | default | change | meaning |\n|---|---|---|---|---|\n",
            group.title()
        );
        for directive in in_group(group) {
            out.push_str(&row(directive));
        }
    }
    out.push_str(
        "\n## Directives of other servers\n\n\
         Files written for Redis or Valkey load. A directive with a value of the column *obeyed* asks for what\n\
         Dunlin does anyway. The last column has the treatment of other values; a line of the log names each\n\
         line that is ignored at start.\n\n| directive | obeyed | other values |\n|---|---|---|\n",
    );
    for (names, obeyed, otherwise) in super::foreign::rows() {
        let quoted = |words: Vec<&str>| {
            let quoted =
                |word: &&str| if word.is_empty() { "`\"\"`".to_owned() } else { format!("`{word}`") };
            words.iter().map(quoted).collect::<Vec<_>>().join(", ")
        };
        let _ = writeln!(out, "| {} | {} | {otherwise} |", quoted(names), quoted(obeyed));
    }
    out.push_str("\nCONFIG GET also answers these, with the one value that is true here: ");
    let facts = super::foreign::facts().map(|(name, value)| match value {
        "" => format!("`{name}`"),
        value => format!("`{name} {value}`"),
    });
    out.push_str(&facts.collect::<Vec<_>>().join(", "));
    out.push_str(". CONFIG SET refuses other values and gives the reason.\n");
    out
}

#[cfg(test)]
fn row(directive: &Directive) -> String {
    let names: Vec<_> = directive.names().map(|name| format!("`{name}`")).collect();
    let change = match directive.change {
        Change::Anytime => "any time",
        Change::Protected => "protected",
        Change::AtStart => "at start",
    };
    let cells = [
        names.join(", "),
        directive.values(),
        format!("`{}`", directive.default),
        change.to_owned(),
        directive.doc.to_owned(),
    ];
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}

fn in_group(group: Group) -> impl Iterator<Item = &'static Directive> {
    DIRECTIVES.iter().copied().filter(move |directive| directive.group == group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, source};

    #[test]
    fn default_file_loads_as_the_defaults() {
        let mut config = Config { hz: 99, port: 1, ..Config::default() };
        source::load_text(default_file().as_bytes(), None, &mut config).unwrap();
        // A line has put the default save points in their own place.
        assert!(std::mem::take(&mut config.save_is_loaded));
        assert_eq!(config, Config::default());
    }

    /// `UPDATE_DOCS=1 cargo test -p dunlin-server documentation` writes the page anew.
    #[test]
    fn documentation_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")).unwrap();
            std::fs::write(path, configuration_page()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            page == configuration_page(),
            "docs/configuration.md is stale: run UPDATE_DOCS=1 cargo test -p dunlin-server documentation"
        );
    }
}
