//! CLUSTER RECOVER: an operator's word about a shard whose members are gone.

use dunlin_cluster::{NodeId, ShardId};
use dunlin_engine::command::{Args, CommandError, CommandResult};
use dunlin_resp::{ReplyBuffer, number::parse_integer};

use super::{cluster_wide, status::pairs, topology};
use crate::{
    cluster::descent::Side,
    cluster::{
        cluster_wide::ClusterChange,
        recovery::{absent_members, is_there, report_of},
    },
    executor::ServerContext,
    system::host::lease_ms,
};

pub(super) fn recover(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let topology = topology(context)?;
    if args.token("REPORT") {
        args.finish()?;
        return report(context, &topology.me().id, reply);
    }
    if args.token_with("HERE", 1) {
        let epoch = epoch(args.word())?;
        args.finish()?;
        return here(context, &topology.me().id, epoch, reply);
    }
    if args.token("RECORDS") {
        return records(context, args, &topology.me().id, reply);
    }
    if args.token_with("EMPTY", 2) {
        let (shard, epoch) = (shard(args.word())?, epoch(args.word())?);
        let successor = if args.token_with("TO", 1) { Some(self::shard(args.word())?) } else { None };
        args.finish()?;
        if cluster_wide::carry_out(context, |_| Ok(ClusterChange::GiveUp { shard, epoch, successor }))?
            .is_some()
        {
            reply.ok();
        }
        return Ok(());
    }
    Err(CommandError::Syntax)
}

/// `CLUSTER RECOVER RECORDS [KEEP ETCD|NODE]`: a store that was restored from a backup, and the operator's word which side is right.
fn records(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    me: &str,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    if args.token_with("KEEP", 1) {
        let side = match args.word() {
            word if word.eq_ignore_ascii_case(b"etcd") => Side::Etcd,
            word if word.eq_ignore_ascii_case(b"node") => Side::Node,
            _ => return Err(CommandError::Syntax),
        };
        args.finish()?;
        if cluster_wide::carry_out(context, |_| Ok(ClusterChange::Decide(side)))?.is_some() {
            reply.ok();
        }
        return Ok(());
    }
    args.finish()?;
    let descent = context.shared.cluster.descent.get();
    let strays = descent.and_then(|descent| descent.strays());
    reply.map(4);
    pairs(
        reply,
        &[
            ("node", me),
            ("obeys", if strays.is_some() { "no" } else { "yes" }),
            // Why it does not.
            ("why", strays.as_deref().unwrap_or_default()),
        ],
    );
    let lines =
        descent.filter(|_| strays.is_some()).map(|descent| descent.known_differences()).unwrap_or_default();
    reply.bulk(b"differences");
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.bulk(line.as_bytes()));
    Ok(())
}

fn epoch(word: &[u8]) -> Result<u64, CommandError> {
    let number = parse_integer(word).and_then(|number| u64::try_from(number).ok());
    number.ok_or(CommandError::text("ERR Invalid epoch"))
}

fn shard(word: &[u8]) -> Result<ShardId, CommandError> {
    let id = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
    id.ok_or_else(|| CommandError::quoting("ERR Invalid shard id: ", word))
}

const NO_SHARD: CommandError = CommandError::text("ERR this node is no part of a shard");

/// Describes what this node has, and what is known of the others of its shard.
fn report(context: &ServerContext<'_, '_>, me: &str, reply: &mut ReplyBuffer) -> CommandResult {
    let cluster = &context.shared.cluster;
    let (Some(view), Some(status), Ok(me)) =
        (cluster.moves.view().0, cluster.shard.status(), me.parse::<NodeId>())
    else {
        return Err(NO_SHARD);
    };
    let (id, (_, record)) = view.shard_of(me).ok_or(NO_SHARD)?;
    let refusal = absent_members(&view, &status, me).err().unwrap_or_default();
    let history = match status.local.history {
        None => "none",
        Some(own) if own == record.history.id => "current",
        Some(own) if Some(own) == record.history.previous => "previous",
        Some(_) => "other",
    };
    reply.map(10);
    pairs(
        reply,
        &[
            ("node", &me.to_string()),
            ("shard", &id.to_string()),
            // Why it may not be; empty if it may.
            ("refusal", &refusal),
            // The history of the shard's stream that this node's data is part of.
            ("history", history),
        ],
    );
    let ago_ms = |(_, at_ms): (u64, u64)| lease_ms().saturating_sub(at_ms) as i64;
    for (name, number) in [
        ("epoch", status.epoch as i64),
        ("offset", status.local.end as i64),
        // By the primary's last heartbeat, and how long ago that was; -1: it has not been heard of.
        ("committed", status.heard.map_or(-1, |(committed, _)| committed as i64)),
        ("heard-ms", status.heard.map_or(-1, ago_ms)),
        ("history-from", record.history.from as i64),
    ] {
        reply.bulk(name.as_bytes());
        reply.integer(number);
    }
    reply.bulk(b"nodes");
    reply.array(record.nodes().count());
    for node in record.nodes() {
        let restart = report_of(&view, id, node);
        let is_member = record.in_sync.contains(&node);
        reply.map(5);
        pairs(
            reply,
            &[
                ("id", &node.to_string()),
                ("sync", if is_member { "in-sync" } else { "learner" }),
                ("there", if is_there(&view, node) { "yes" } else { "no" }),
                // Whether it had all that it had acknowledged when it started last.
                ("start", restart.map_or("", |restart| if restart.clean { "clean" } else { "lost" })),
            ],
        );
        reply.bulk(b"offset-at-start");
        reply.integer(restart.map_or(-1, |restart| restart.offset as i64));
    }
    Ok(())
}

/// Makes this node take its shard.
fn here(context: &ServerContext<'_, '_>, me: &str, epoch: u64, reply: &mut ReplyBuffer) -> CommandResult {
    let cluster = &context.shared.cluster;
    let (Some(view), Some(status), Ok(me)) =
        (cluster.moves.view().0, cluster.shard.status(), me.parse::<NodeId>())
    else {
        return Err(NO_SHARD);
    };
    if status.epoch != epoch {
        return Err(CommandError::owned(format!(
            "ERR the shard is in epoch {} by now: look at it again",
            status.epoch
        )));
    }
    let absent =
        absent_members(&view, &status, me).map_err(|why| CommandError::owned(format!("ERR {why}")))?;
    cluster.shard.force(absent);
    reply.ok();
    Ok(())
}
