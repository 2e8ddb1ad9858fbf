//! Obstacles to a move, and losses by it.

use std::{collections::BTreeMap, fmt};

use dunlin_resp::Value;

use super::side::{Product, Side};
use crate::{
    progress::Progress,
    server::{strings, text},
};

/// Keys that are asked about at once.
const KEYS_EACH: &str = "500";
/// Fields of a hash that are asked whether they expire.
const FIELDS_SAMPLED: &str = "100";
const TYPES: [&str; 6] = ["string", "list", "set", "zset", "hash", "stream"];
/// Types beyond those, and a command that a server has if it has the type.
const TYPES_BEYOND: [(&str, &str); 9] = [
    ("ReJSON-RL", "json.get"),
    ("MBbloom--", "bf.info"),
    ("MBbloomCF", "cf.info"),
    ("CMSk-TYPE", "cms.info"),
    ("TopK-TYPE", "topk.info"),
    ("TDIS-TYPE", "tdigest.info"),
    ("TSDB-TYPE", "ts.info"),
    ("vectorset", "vinfo"),
    ("array", "arget"),
];

/// The finding from both servers' descriptions of themselves.
pub(super) struct Plan {
    /// Reasons not to begin.
    pub(super) refusals: Vec<String>,
    /// Lines for the user.
    pub(super) notes: Vec<String>,
    /// The new server is the old one's replica already.
    pub(super) follows_already: bool,
    /// The old server understands the new one as its primary.
    pub(super) old_can_follow: bool,
    /// The old server may have keys of types that the new one lacks.
    pub(super) may_have_foreign_types: bool,
    /// Fields of hashes that expire are not known to the new server.
    pub(super) loses_field_expiries: bool,
}

/// Why `replica` cannot follow `primary`, if it cannot.
pub(super) fn incompatible(
    (primary, primary_version): (Product, (u32, u32)),
    (replica, replica_version): (Product, (u32, u32)),
) -> Option<&'static str> {
    use Product::{Dunlin, Redis, Valkey};
    match (primary, replica) {
        (Redis, _) if primary_version < (6, 2) => Some("Redis older than 6.2 is not known to this program"),
        (_, Dunlin) => None,
        (Dunlin, Redis) if replica_version < (7, 0) => {
            Some("Redis older than 7.0 does not read Dunlin's snapshots")
        }
        (Dunlin, Valkey) if replica_version < (7, 2) => Some("this Valkey does not read Dunlin's snapshots"),
        (Dunlin, _) => None,
        (Redis, Redis) | (Valkey, Valkey) if replica_version < primary_version => {
            Some("an older version does not read a newer one's snapshots")
        }
        (Redis, Redis) | (Valkey, Valkey) => None,
        (Redis, Valkey) if primary_version >= (7, 4) => Some(
            "Valkey does not read the snapshots of Redis 7.4 and newer: adopt it into Dunlin, and Dunlin into Valkey",
        ),
        (Redis, Valkey) => None,
        (Valkey, Redis) if replica_version < (7, 2) || primary_version >= (9, 0) => {
            Some("this Redis does not read Valkey's snapshots: adopt it into Dunlin, and Dunlin into Redis")
        }
        (Valkey, Redis) => None,
    }
}

/// Whether a server has hashes whose fields expire.
fn has_field_expiries(product: Product, version: (u32, u32)) -> bool {
    match product {
        Product::Dunlin => true,
        Product::Redis => version >= (7, 4),
        Product::Valkey => version >= (9, 0),
    }
}

/// Looks at both servers; changes nothing.
pub(super) fn plan(old: &mut Side, new: &mut Side, replaces: bool) -> Result<Plan, String> {
    let (mut refusals, mut notes) = (Vec::new(), Vec::new());
    let kind = |side: &Side| (side.product, side.version);
    let mut refuse = |reason: String| refusals.push(reason);
    if let Some(reason) = incompatible(kind(old), kind(new)) {
        refuse(reason.to_owned());
    }
    let (ours, theirs) = (old.info("server")?, new.info("server")?);
    if ours.field("run_id").is_some() && ours.field("run_id") == theirs.field("run_id") {
        refuse("both are the same server".to_owned());
    }
    if ours.field("dragonfly_version").is_some() {
        refuse("the old server is Dragonfly, which feeds replicas of its own kind alone: run SAVE RDB there, and load the file".to_owned());
    }
    let replication = old.info("replication")?;
    if replication.field("role") == Some("slave") {
        let field = |name| replication.field(name).unwrap_or("?").to_owned();
        let (host, port) = (field("master_host"), field("master_port"));
        refuse(format!("the old server is a replica: adopt its primary, {host}:{port}"));
    }
    for (side, what) in [(&mut *old, "old"), (&mut *new, "new")] {
        if side.info("cluster")?.number("cluster_enabled") == Some(1.0) {
            refuse(format!("the {what} server is a member of a cluster, which has a part of the keys"));
        }
    }
    let replication = new.info("replication")?;
    let follows = replication.field("role") == Some("slave");
    let follows_already = follows
        && replication.field("master_port") == Some(&*old.port.to_string())
        && replication.field("master_host") == Some(&*old.host);
    if follows && !follows_already {
        refuse("the new server is a replica of another one".to_owned());
    }
    let keys = new.keys()?;
    if keys > 0 && !follows_already && !replaces {
        refuse(format!(
            "the new server has {keys} keys, which would be lost: --replace says that they may be"
        ));
    }
    let databases: u64 = new.directive("databases").and_then(|count| count.parse().ok()).unwrap_or(16);
    if let Some((number, keys)) =
        old.databases()?.into_iter().rfind(|(number, _)| u64::from(*number) >= databases)
    {
        refuse(format!(
            "database {number} of the old server has {keys} keys, and the new one has {databases} databases"
        ));
    }
    if (old.target.tls.is_some()) && new.directive("tls-replication").as_deref() != Some("yes") {
        refuse("the old server speaks TLS, and the new one has not set tls-replication yes".to_owned());
    }
    let limit: f64 = new.directive("maxmemory").and_then(|limit| limit.parse().ok()).unwrap_or(0.0);
    let used = old.info("memory")?.number("used_memory_dataset").unwrap_or(0.0);
    if limit > 0.0 && limit < used * 1.1 {
        notes.push(format!(
            "maxmemory of the new server is {:.0} MB, and the old one's data take {:.0} MB",
            limit / 1e6,
            used / 1e6
        ));
    }
    let modules = old.ask(&["MODULE", "LIST"]).map_or(Vec::new(), |modules| names_of_modules(&modules));
    if !modules.is_empty() {
        notes.push(format!(
            "the old server has the modules {}: keys of their types are looked for",
            modules.join(", ")
        ));
    }
    let old_can_follow = incompatible(kind(new), kind(old)).is_none();
    if !old_can_follow {
        notes.push("the old server cannot follow the new one: it will refuse writes instead, and there is no way back".to_owned());
    }
    let loses_field_expiries =
        has_field_expiries(old.product, old.version) && !has_field_expiries(new.product, new.version);
    // Redis 8.8 has arrays, and every server of Redis 8 vector sets, which MODULE LIST need not name.
    let may_have_foreign_types =
        !modules.is_empty() || old.product == Product::Redis && old.version >= (8, 0);
    Ok(Plan {
        refusals,
        notes,
        follows_already,
        old_can_follow,
        may_have_foreign_types,
        loses_field_expiries,
    })
}

/// The names in the reply to MODULE LIST, in whatever form.
fn names_of_modules(value: &Value) -> Vec<String> {
    let Value::Array(modules) = value else { return Vec::new() };
    let name = |module: &Value| {
        let fields = strings(module);
        let at = fields.iter().position(|field| field == "name")?;
        fields.get(at + 1).cloned()
    };
    modules.iter().filter_map(name).collect()
}

/// The keys by type.
#[derive(Default)]
pub(super) struct Census {
    types: BTreeMap<String, u64>,
    /// Types that not every server knows: an example key for each.
    foreign: BTreeMap<String, String>,
    /// Hashes with fields that expire, as far as they were looked at, if the new server has no such fields.
    expiring_hashes: u64,
}

impl fmt::Display for Census {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<String> = self.types.iter().map(|(name, keys)| format!("{name} {keys}")).collect();
        out.write_str(if types.is_empty() { "none" } else { "" })?;
        out.write_str(&types.join(", "))
    }
}

impl Census {
    /// Leaves out the types that the new server has.
    pub(super) fn expect_known(&mut self, new: &mut Side) {
        self.foreign.retain(|name, _| {
            let command = TYPES_BEYOND.iter().find(|(known, _)| known == name).map(|(_, command)| command);
            !command.is_some_and(|command| new.knows(command))
        });
    }

    /// Keys of types that the new server lacks, in a line for each type.
    pub(super) fn foreign(&self) -> Vec<String> {
        let line = |(name, key): (&String, &String)| {
            let keys = self.types.get(name).copied().unwrap_or(0);
            format!("{keys} keys of the type {name}, such as '{key}'")
        };
        self.foreign.iter().map(line).collect()
    }

    /// Other data that the new server cannot have.
    pub(super) fn losses(&self) -> Vec<String> {
        let expiring = (self.expiring_hashes > 0).then(|| {
            let hashes = self.expiring_hashes;
            format!("the expiry of fields in {hashes} hashes or more: the new server keeps such fields for ever once it is the primary")
        });
        expiring.into_iter().collect()
    }
}

/// Counts the keys of a server by type.
pub(super) fn census(side: &mut Side, looks_at_fields: bool) -> Result<Census, String> {
    let mut census = Census::default();
    let mut progress = Progress::of_keys("types", side.keys()?);
    for (database, _) in side.databases()? {
        side.ask(&["SELECT", &database.to_string()])?;
        let mut cursor = "0".to_owned();
        loop {
            let reply = side.ask(&["SCAN", &cursor, "COUNT", KEYS_EACH])?;
            let (next, keys) = scanned(&reply).ok_or("the server does not answer SCAN as it should")?;
            count_types(side, &keys, looks_at_fields, &mut census)?;
            progress.advance(keys.len() as u64);
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
    }
    side.ask(&["SELECT", "0"])?;
    Ok(census)
}

fn count_types(
    side: &mut Side,
    keys: &[Vec<u8>],
    looks_at_fields: bool,
    census: &mut Census,
) -> Result<(), String> {
    let replies = side.pipelined(keys.iter().map(|key| vec![b"TYPE".to_vec(), key.clone()]))?;
    let mut hashes = Vec::new();
    for (key, reply) in keys.iter().zip(replies) {
        let name = reply.as_bytes().map(text).unwrap_or_default();
        // The key has expired meanwhile.
        if name == "none" {
            continue;
        }
        if !TYPES.contains(&&*name) {
            census.foreign.entry(name.clone()).or_insert_with(|| text(key));
        }
        if name == "hash" {
            hashes.push(key);
        }
        *census.types.entry(name).or_default() += 1;
    }
    if looks_at_fields {
        let word = |word: &str| word.as_bytes().to_vec();
        let fields = hashes.iter().map(|key| vec![word("HRANDFIELD"), key.to_vec(), word(FIELDS_SAMPLED)]);
        let fields = side.pipelined(fields)?;
        let questions = hashes.iter().zip(fields).filter_map(|(key, fields)| {
            let Value::Array(fields) = fields else { return None };
            let count = fields.len().to_string();
            let head = [word("HPTTL"), key.to_vec(), word("FIELDS"), word(&count)];
            Some(
                head.into_iter()
                    .chain(fields.iter().filter_map(|field| Some(field.as_bytes()?.to_vec())))
                    .collect(),
            )
        });
        let questions: Vec<Vec<Vec<u8>>> = questions.filter(|words: &Vec<Vec<u8>>| words.len() > 4).collect();
        for reply in side.pipelined(questions.into_iter())? {
            let expires = |value: &Value| matches!(value, Value::Integer(0..));
            census.expiring_hashes +=
                u64::from(matches!(&reply, Value::Array(times) if times.iter().any(expires)));
        }
    }
    Ok(())
}

/// The next cursor and the keys in a reply to SCAN.
pub(super) fn scanned(reply: &Value) -> Option<(String, Vec<Vec<u8>>)> {
    let Value::Array(parts) = reply else { return None };
    let [cursor, Value::Array(keys)] = &parts[..] else { return None };
    Some((text(cursor.as_bytes()?), keys.iter().filter_map(|key| Some(key.as_bytes()?.to_vec())).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_led_across_where_they_cannot_go() {
        use Product::{Dunlin, Redis, Valkey};
        let may = |primary, replica| incompatible(primary, replica).is_none();
        let (redis, valkey) =
            (|major, minor| (Redis, (major, minor)), |major, minor| (Valkey, (major, minor)));
        let dunlin = (Dunlin, (0, 1));
        for primary in [redis(6, 2), redis(7, 0), redis(8, 2), valkey(7, 2), valkey(9, 1), dunlin] {
            assert!(may(primary, dunlin), "{primary:?}");
        }
        for replica in [redis(7, 0), redis(8, 0), valkey(7, 2), valkey(9, 1)] {
            assert!(may(dunlin, replica), "{replica:?}");
        }
        for (primary, replica) in [
            (redis(5, 0), dunlin),
            (dunlin, redis(6, 2)),
            (redis(7, 4), valkey(9, 0)),
            (valkey(9, 0), redis(7, 2)),
            (redis(8, 0), redis(7, 2)),
        ] {
            assert!(!may(primary, replica), "{primary:?} {replica:?}");
        }
        assert!(may(redis(7, 2), valkey(8, 0)));
    }
}
