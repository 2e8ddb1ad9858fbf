//! The built-in tests: one row each. Names, keys and order are redis-benchmark's, so that figures
//! can be laid side by side; `mget`, `hget`, `zrank`, `xadd` are additions, and those of JSON, which run if they are
//! named.

use crate::template::Template;

/// A built-in test.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// The names by which `-t` selects it; several rows may answer to one name.
    pub names: &'static [&'static str],
    /// Shown above its figures.
    pub title: &'static str,
    /// The command, words separated by blanks.
    pub command: &'static str,
}

/// Title of the row that is sent without RESP framing.
const INLINE_TITLE: &str = "PING_INLINE";

const MSET_10: &str = "MSET key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__ \
    key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__ \
    key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__";
const MGET_10: &str = "MGET key:__rand_int__ key:__rand_int__ key:__rand_int__ key:__rand_int__ key:__rand_int__ \
    key:__rand_int__ key:__rand_int__ key:__rand_int__ key:__rand_int__ key:__rand_int__";

const fn row(names: &'static [&'static str], title: &'static str, command: &'static str) -> Workload {
    Workload { names, title, command }
}

/// All built-in tests in the order they run.
pub const WORKLOADS: &[Workload] = &[
    row(&["ping_inline", "ping"], INLINE_TITLE, "PING"),
    row(&["ping_mbulk", "ping"], "PING_MBULK", "PING"),
    row(&["set"], "SET", "SET key:__rand_int__ __data__"),
    row(&["get"], "GET", "GET key:__rand_int__"),
    row(&["incr"], "INCR", "INCR counter:__rand_int__"),
    row(&["lpush"], "LPUSH", "LPUSH mylist __data__"),
    row(&["rpush"], "RPUSH", "RPUSH mylist __data__"),
    row(&["lpop"], "LPOP", "LPOP mylist"),
    row(&["rpop"], "RPOP", "RPOP mylist"),
    row(&["sadd"], "SADD", "SADD myset element:__rand_int__"),
    row(&["hset"], "HSET", "HSET myhash element:__rand_int__ __data__"),
    row(&["hget"], "HGET", "HGET myhash element:__rand_int__"),
    row(&["spop"], "SPOP", "SPOP myset"),
    row(&["zadd"], "ZADD", "ZADD myzset __rand_int__ element:__rand_int__"),
    row(&["zrank"], "ZRANK", "ZRANK myzset element:__rand_int__"),
    row(&["zpopmin"], "ZPOPMIN", "ZPOPMIN myzset"),
    row(
        &["lrange", "lrange_100", "lrange_300", "lrange_500", "lrange_600"],
        "LPUSH (needed to benchmark LRANGE)",
        "LPUSH mylist __data__",
    ),
    row(&["lrange", "lrange_100"], "LRANGE_100 (first 100 elements)", "LRANGE mylist 0 99"),
    row(&["lrange", "lrange_300"], "LRANGE_300 (first 300 elements)", "LRANGE mylist 0 299"),
    row(&["lrange", "lrange_500"], "LRANGE_500 (first 500 elements)", "LRANGE mylist 0 499"),
    row(&["lrange", "lrange_600"], "LRANGE_600 (first 600 elements)", "LRANGE mylist 0 599"),
    row(&["mset"], "MSET (10 keys)", MSET_10),
    row(&["mget"], "MGET (10 keys)", MGET_10),
    row(&["xadd"], "XADD", "XADD mystream * field __data__"),
    row(
        &["json.set"],
        "JSON.SET",
        r#"JSON.SET json:__rand_int__ $ {"name":"__data__","count":1,"tags":["a","b"],"of":{"x":2.5}}"#,
    ),
    row(&["json.get"], "JSON.GET", "JSON.GET json:__rand_int__ $.of.x"),
    row(&["json.numincrby"], "JSON.NUMINCRBY", "JSON.NUMINCRBY json:__rand_int__ $.count 1"),
];

impl Workload {
    /// Whether every server of the protocol has its command: one of a module's has a dot in its name.
    pub fn is_common(&self) -> bool {
        self.names.iter().all(|name| !name.contains('.'))
    }

    /// The template to send.
    pub fn template(&self) -> Template {
        if self.title == INLINE_TITLE {
            Template::Inline(format!("{}\r\n", self.command).into_bytes())
        } else {
            Template::words(self.command)
        }
    }
}

/// The rows that a comma-separated list names, in the table's order; the name that none answers to
/// otherwise.
pub fn select(list: &str) -> Result<Vec<&'static Workload>, String> {
    let wanted: Vec<String> = list.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
    let knows = |name: &String| WORKLOADS.iter().any(|row| row.names.contains(&name.as_str()));
    if let Some(unknown) = wanted.iter().find(|name| !knows(name)) {
        return Err(unknown.clone());
    }
    Ok(WORKLOADS
        .iter()
        .filter(|row| row.names.iter().any(|name| wanted.iter().any(|wanted| wanted == name)))
        .collect())
}

/// All names that [`select`] knows, each once.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for name in WORKLOADS.iter().flat_map(|row| row.names) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names
}

/// The names of the tests that run if none is named: those of commands that every server has.
pub fn common() -> Vec<&'static str> {
    WORKLOADS.iter().filter(|row| row.is_common()).flat_map(|row| row.names).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn rows_are_well_formed_and_titles_unique() {
        let titles: HashSet<_> = WORKLOADS.iter().map(|row| row.title).collect();
        assert_eq!(titles.len(), WORKLOADS.len());
        for row in WORKLOADS {
            assert!(!row.names.is_empty() && !row.command.is_empty());
            assert!(row.names.iter().all(|name| *name == name.to_ascii_lowercase()), "{}", row.title);
        }
        assert!(matches!(WORKLOADS[0].template(), Template::Inline(text) if text == b"PING\r\n"));
    }

    #[test]
    fn lists_select_rows_in_table_order() {
        let titles = |list| select(list).unwrap().iter().map(|row| row.title).collect::<Vec<_>>();
        assert_eq!(titles("get,SET"), ["SET", "GET"]);
        assert_eq!(titles("ping"), ["PING_INLINE", "PING_MBULK"]);
        assert_eq!(titles("lrange_300").len(), 2);
        assert_eq!(select("get,gte").unwrap_err(), "gte");
    }

    #[test]
    fn workloads_of_ten_keys_have_ten() {
        assert_eq!(MSET_10.matches("key:__rand_int__ __data__").count(), 10);
        assert_eq!(MGET_10.matches("key:__rand_int__").count(), 10);
    }
}
