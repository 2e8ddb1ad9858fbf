//! A file for each command family, which holds one table.

mod bitmap;
mod connection;
mod function;
mod generic;
mod geo;
mod geo_polygon;
mod hash;
mod hash_expiry;
mod hyperloglog;
mod list;
mod long_string;
mod scripting;
mod server;
mod set;
mod sort;
mod sorted_set;
mod sorted_set_lex;
mod sorted_set_newer;
mod stream;
mod stream_newer;
mod string;
mod transaction;

use crate::grammar::Family;

/// Every family there is a grammar for.
pub const ALL: &[&Family] = &[
    &string::FAMILY,
    &generic::FAMILY,
    &bitmap::FAMILY,
    &long_string::FAMILY,
    &connection::FAMILY,
    &server::FAMILY,
    &hash::FAMILY,
    &hash_expiry::FAMILY,
    &list::FAMILY,
    &set::FAMILY,
    &sort::FAMILY,
    &sorted_set::FAMILY,
    &sorted_set_lex::FAMILY,
    &sorted_set_newer::FAMILY,
    &stream_newer::FAMILY,
    &stream::FAMILY,
    &hyperloglog::FAMILY,
    &geo::FAMILY,
    &geo_polygon::FAMILY,
    &transaction::FAMILY,
    &scripting::FAMILY,
    &function::FAMILY,
];

/// The families that the server under test claims to have: a run covers them unless its arguments
/// name others.
pub const ENABLED: &[&str] = &[
    "string",
    "hash",
    "list",
    "set",
    "sorted_set",
    "sorted_set_lex",
    "geo",
    "stream",
    "sort",
    "hyperloglog",
    "generic",
    "bitmap",
    "long_string",
    "connection",
    "server",
    "transaction",
    "scripting",
    "function",
];

/// Finds a family by name.
pub fn named(name: &str) -> Option<&'static Family> {
    ALL.iter().copied().find(|family| family.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_enabled_ones_exist() {
        let mut names: Vec<_> = ALL.iter().map(|family| family.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        assert!(ENABLED.iter().all(|name| named(name).is_some()));
    }

    #[test]
    fn rows_can_all_be_drawn() {
        for family in ALL {
            assert!(!family.rows.is_empty());
            assert!(family.rows.iter().all(|row| row.weight > 0), "{}", family.name);
        }
    }
}
