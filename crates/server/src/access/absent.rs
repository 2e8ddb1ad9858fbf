//! Commands that rules of users may name though this server lacks them.
//!
//! A file of users that was written for Redis 8 or Valkey names commands of their bundled modules. Such rules are kept as they
//! are: they allow nothing, and count from the day that the command is there.
//!
//! Sources: `COMMAND LIST` of redis-server 8.2 and Valkey 9.1; for modules, the command references of Redis 8.10.

/// Full names in lower case. A name of a command that is there has no effect.
#[rustfmt::skip]
pub(super) const COMMANDS: &[&str] = &[
    // Redis 7.0 and Valkey 9.1, those of Sentinel's user among them.
    "client|import-source", "cluster|syncslots",
    // Redis 8.4 to 8.10.
    "blmovem", "increx", "lmovem", "sdiffcard", "sunioncard", "xcfgset",
    // Arrays.
    "arcount", "ardel", "ardelrange", "arget", "argetrange", "argrep", "arinfo", "arinsert", "arlastitems", "arlen", "armget",
    "armset", "arnext", "arop", "arring", "arscan", "arseek", "arset",
    // Vector sets.
    "vadd", "vcard", "vdim", "vemb", "vgetattr", "vinfo", "vismember", "vlinks", "vrandmember", "vrange", "vrem", "vsetattr", "vsim",
    // Filters and sketches.
    "bf.add", "bf.card", "bf.debug", "bf.exists", "bf.info", "bf.insert", "bf.loadchunk", "bf.madd", "bf.mexists", "bf.reserve",
    "bf.scandump",
    "cf.add", "cf.addnx", "cf.compact", "cf.count", "cf.debug", "cf.del", "cf.exists", "cf.info", "cf.insert", "cf.insertnx",
    "cf.loadchunk", "cf.mexists", "cf.reserve", "cf.scandump",
    "cms.incrby", "cms.info", "cms.initbydim", "cms.initbyprob", "cms.merge", "cms.query",
    "topk.add", "topk.count", "topk.incrby", "topk.info", "topk.list", "topk.query", "topk.reserve",
    "tdigest.add", "tdigest.byrank", "tdigest.byrevrank", "tdigest.cdf", "tdigest.create", "tdigest.info", "tdigest.max",
    "tdigest.merge", "tdigest.min", "tdigest.quantile", "tdigest.rank", "tdigest.reset", "tdigest.revrank", "tdigest.trimmed_mean",
    // Time series.
    "ts.add", "ts.alter", "ts.create", "ts.createrule", "ts.decrby", "ts.del", "ts.deleterule", "ts.get", "ts.incrby", "ts.info",
    "ts.madd", "ts.mget", "ts.mrange", "ts.mrevrange", "ts.nrange", "ts.nrevrange", "ts.queryindex", "ts.querylabels", "ts.range",
    "ts.read", "ts.revrange",
    // Search.
    "ft._list", "ft.aggregate", "ft.aliasadd", "ft.aliasdel", "ft.aliasupdate", "ft.alter", "ft.config", "ft.config|get",
    "ft.config|help", "ft.config|set", "ft.create", "ft.cursor", "ft.cursor|del", "ft.cursor|read", "ft.dictadd", "ft.dictdel",
    "ft.dictdump", "ft.dropindex", "ft.explain", "ft.explaincli", "ft.hybrid", "ft.info", "ft.profile", "ft.search",
    "ft.spellcheck", "ft.sugadd", "ft.sugdel", "ft.sugget", "ft.suglen", "ft.syndump", "ft.synupdate", "ft.tagvals",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_commands_are_names_of_commands_each_once() {
        let mut seen = std::collections::HashSet::new();
        for name in COMMANDS {
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || b".|_-".contains(&byte);
            assert!(name.bytes().all(is_plain) && seen.insert(name), "{name}");
        }
    }
}
