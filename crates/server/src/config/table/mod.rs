//! The table of directives, a file for each group, sorted by name in it. A new directive is one row there and one field of
//! [`super::Config`]; then `UPDATE_DOCS=1 cargo test -p dunlin-server documentation`.

mod clients;
mod cluster;
mod memory;
mod monitoring;
mod network;
mod persistence;
mod process;
mod replication;
mod security;
mod tls;

use std::sync::LazyLock;

use super::{directive::Directive, settings::Config};

const INT_MAX: i64 = i32::MAX as i64;
/// Largest size in bytes that Redis takes if its own type is signed.
const SIGNED_MAX: u64 = i64::MAX as u64;
const MB: u64 = 1 << 20;

/// Every directive, by name.
pub static DIRECTIVES: LazyLock<Vec<&Directive>> = LazyLock::new(|| {
    let mut rows: Vec<_> = GROUPS.iter().copied().flatten().collect();
    rows.sort_unstable_by_key(|directive| directive.name);
    rows
});

/// The rows of each group.
static GROUPS: [&[Directive]; 10] = [
    network::ROWS,
    clients::ROWS,
    security::ROWS,
    memory::ROWS,
    process::ROWS,
    monitoring::ROWS,
    persistence::ROWS,
    replication::ROWS,
    cluster::ROWS,
    tls::ROWS,
];

impl Default for Config {
    /// The default of every directive.
    fn default() -> Self {
        let mut config = Self::unset();
        for directive in DIRECTIVES.iter() {
            directive.assign_default(&mut config);
        }
        config
    }
}

fn as_is(_: &mut Config) -> Result<(), &'static str> {
    Ok(())
}

/// The directive of this name or alias, in any case. O(number of directives).
pub fn find(name: &[u8]) -> Option<&'static Directive> {
    find_name(name).map(|(_, directive)| directive)
}

/// Does what [`find`] does, and returns the name or alias in the table's spelling.
pub(super) fn find_name(name: &[u8]) -> Option<(&'static str, &'static Directive)> {
    names().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name))
}

/// Every name and alias with its directive.
pub(super) fn names() -> impl Iterator<Item = (&'static str, &'static Directive)> {
    DIRECTIVES.iter().copied().flat_map(|directive| directive.names().map(move |name| (name, directive)))
}

/// Whether a name names something in the directory at hand.
fn is_plain_name(name: &std::path::Path) -> bool {
    name.file_name() == Some(name.as_os_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_are_sorted_and_names_are_unique() {
        for rows in GROUPS {
            assert!(rows.is_sorted_by(|one, next| one.name < next.name));
            assert!(rows.iter().all(|row| row.group == rows[0].group), "{}", rows[0].name);
        }
        let mut seen = BTreeSet::new();
        for (name, _) in names() {
            assert!(seen.insert(name), "{name} twice");
            let spelled = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(name.bytes().all(spelled), "{name}");
        }
    }

    #[test]
    fn rows_have_documentation_and_the_field_of_their_name() {
        let debug = format!("{:?}", Config::default());
        for directive in DIRECTIVES.iter() {
            let name = directive.name;
            assert!(directive.doc.ends_with('.') && directive.doc.len() > 20, "{name}");
            assert!(!directive.values().is_empty(), "{name}");
            assert!(debug.contains(&format!("{}: ", name.replace('-', "_"))), "{name}");
        }
    }

    #[test]
    fn defaults_print_as_they_are_written() {
        let config = Config::default();
        for directive in DIRECTIVES.iter() {
            let printed = super::super::words::join(directive.name, &directive.words(&config));
            let printed = String::from_utf8(printed).unwrap();
            assert_eq!(
                printed,
                format!("{} {}", directive.name, directive.default),
                "the default is not in its canonical spelling"
            );
        }
    }

    #[test]
    fn config_rows_read_and_write_their_own_field_only() {
        for directive in DIRECTIVES.iter() {
            let mut config = Config::default();
            let other = [
                "7",
                "yes",
                "no",
                "warning",
                "local",
                "now",
                "normal 1 2 3",
                "12 13",
                "2mb",
                "600",
                "relaxed",
                "systemd",
                "allkeys-lru",
                "KEx",
                "allchannels",
                "CN",
                "refuse",
                "uid=7:alice",
                "disk",
                "wait",
                "3:2gb",
                "local7",
                "sync",
                "hostname",
                "swapdb",
                "10.0.0.5",
            ];
            let changed = other.iter().any(|value| {
                directive.assign_argument(value.as_bytes(), &mut config).is_ok()
                    && !directive.is_same(&config, &Config::default())
            });
            assert!(changed, "{}", directive.name);
            for untouched in DIRECTIVES.iter().filter(|row| row.name != directive.name) {
                assert!(
                    untouched.is_same(&config, &Config::default()),
                    "{} changed {}",
                    directive.name,
                    untouched.name
                );
            }
        }
    }

    #[test]
    fn names_are_found_in_any_case_and_by_alias() {
        assert_eq!(find(b"MaxMemory").unwrap().name, "maxmemory");
        assert_eq!(find(b"commandlog-execution-slower-than").unwrap().name, "slowlog-log-slower-than");
        assert!(find(b"maxmemor").is_none());
    }
}
