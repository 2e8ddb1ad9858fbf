//! Moves of slots: MIGRATESLOTS, GETSLOTMIGRATIONS, CANCELSLOTMIGRATIONS and SETSLOT for operators, IMPORT for nodes.

use std::time::Duration;

use dunlin_cluster::{MoveId, NodeId, SLOTS, SlotRange, SlotSet};
use dunlin_engine::command::{Args, CommandError, CommandResult};
use dunlin_resp::{ReplyBuffer, number::parse_integer};

use super::{cluster_wide, topology};
use crate::{
    cluster::{
        moves::{Job, Requested},
        topology::Topology,
    },
    executor::ServerContext,
    session::Replies,
};

const OUT_OF_RANGE: CommandError = CommandError::text("ERR Invalid or out of range slot");

fn slot(word: &[u8]) -> Result<u16, CommandError> {
    let number = parse_integer(word).and_then(|number| u16::try_from(number).ok());
    number.filter(|slot| *slot < SLOTS).ok_or(OUT_OF_RANGE)
}

/// Two words: the first slot of a range, and its last.
pub(super) fn slot_range(args: &mut Args<'_>) -> Result<SlotRange, CommandError> {
    let first = slot(args.word())?;
    if args.is_empty() {
        return Err(CommandError::text("ERR No end slot for final slot range"));
    }
    let last = slot(args.word())?;
    SlotRange::new(first, last).map_err(|_| {
        CommandError::owned(format!("ERR Start slot number {first} is greater than end slot number {last}."))
    })
}

/// `CLUSTER MIGRATESLOTS SLOTSRANGE first last … NODE id [SLOTSRANGE … NODE id …]`.
pub(super) fn migrate_slots(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let topology = topology(context)?;
    cluster_wide::answer(context, reply, |context| {
        let me = my_id(&topology)?;
        let moves = requested(&topology, args)?;
        moves.iter().try_for_each(|one| check_idle(context, &one.slots))?;
        Ok(context.shared.cluster.moves.request(moves, me))
    })
}

fn my_id(topology: &Topology) -> Result<NodeId, CommandError> {
    topology.me().id.parse().map_err(|_| CommandError::text("ERR this node has no id"))
}

fn new_id() -> Result<MoveId, CommandError> {
    let mut id = [0; 20];
    getrandom::fill(&mut id)
        .map_err(|error| CommandError::owned(format!("ERR a move has no id: {error}")))?;
    Ok(MoveId::from_bytes(id))
}

/// Refuses slots of which one is on its way from here.
fn check_idle(context: &ServerContext<'_, '_>, slots: &SlotSet) -> CommandResult {
    let jobs = context.shared.cluster.moves.jobs();
    let is_on_its_way = |slot: &u16| {
        jobs.iter().any(|job| job.is_export && !job.state.is_over() && job.slots.contains(*slot))
    };
    match slots.iter().find(is_on_its_way) {
        Some(slot) => Err(CommandError::owned(format!("ERR I am already migrating slot {slot}."))),
        None => Ok(()),
    }
}

/// `CLUSTER SETSLOT`, as `redis-cli --cluster reshard` and `rebalance` use it: `IMPORTING` at the target, `MIGRATING` at the source,
/// the keys, `NODE` at all primaries. `MIGRATING` moves the slot with its keys, and answers when they are there.
pub(super) fn set_slot(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let topology = topology(context)?;
    if !topology.is_primary() {
        return Err(CommandError::text("ERR Please use SETSLOT only with masters."));
    }
    let slot = slot(args.word())?;
    let node = |name: &[u8], unknown: &'static str| {
        let place = topology.find(name).ok_or_else(|| CommandError::quoting(unknown, name))?;
        match topology.shard_of(place) {
            Some(shard) if shard.primary == place => Ok(place),
            _ => Err(CommandError::text("ERR Target node is not a master")),
        }
    };
    const UNKNOWN: &str = "ERR I don't know about node ";
    if args.token_with("MIGRATING", 1) {
        let target = args.word();
        args.finish()?;
        return cluster_wide::answer(context, reply, |context| {
            if !topology.is_mine(slot) {
                return Err(CommandError::owned(format!("ERR I'm not the owner of hash slot {slot}")));
            }
            let place = node(target, UNKNOWN)?;
            if place == topology.my_place() {
                return Err(CommandError::text("ERR Target node can not be this node."));
            }
            let (me, target) = (my_id(&topology)?, topology.nodes()[place].id.parse());
            let target = target.map_err(|_| CommandError::text("ERR Target node has no id"))?;
            let slots: SlotSet = SlotRange::new(slot, slot).into_iter().collect();
            check_idle(context, &slots)?;
            Ok(context.shared.cluster.moves.complete(Requested { id: new_id()?, slots, target }, me))
        });
    }
    if args.token_with("IMPORTING", 1) {
        let source = args.word();
        args.finish()?;
        if topology.is_mine(slot) {
            return Err(CommandError::owned(format!("ERR I'm already the owner of hash slot {slot}")));
        }
        node(source, UNKNOWN)?;
        reply.ok();
    } else if args.token_with("NODE", 1) {
        let owner = args.word();
        args.finish()?;
        let place = node(owner, "ERR Unknown node ")?;
        return confirm_owner(context, slot, place, reply);
    } else if args.token("STABLE") && args.is_empty() {
        let slots: SlotSet = SlotRange::new(slot, slot).into_iter().collect();
        check_idle(context, &slots).map_err(|_| {
            let line = "ERR the slot is on its way to another node: CLUSTER CANCELSLOTMIGRATIONS has it stay";
            CommandError::text(line)
        })?;
        reply.ok();
    } else {
        return Err(CommandError::text(
            "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP",
        ));
    }
    Ok(())
}

/// Answers once this node knows that the slot is that node's, which it may hear a moment after the nodes that have agreed on it.
fn confirm_owner(
    context: &mut ServerContext<'_, '_>,
    slot: u16,
    place: usize,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    // Client libraries give up after five seconds, and are to read why.
    const WAIT_MAX: Duration = Duration::from_secs(3);
    let topology = topology(context)?;
    let owner = topology.owner(slot).map(|shard| topology.shards()[shard].primary);
    if owner == Some(place) {
        reply.ok();
        return Ok(());
    }
    let now = context.executor.now().instant;
    let has_waited = context.session.held_since.is_some_and(|since| now.duration_since(since) >= WAIT_MAX);
    if context.in_transaction || has_waited {
        let id = |place: usize| topology.nodes()[place].id.as_str();
        return Err(CommandError::owned(format!(
            "ERR slot {slot} is of node {}: CLUSTER SETSLOT {slot} MIGRATING {} there moves it with its keys",
            owner.map_or("nobody", id),
            id(place)
        )));
    }
    context.flow = context.executor.hold(context.session);
    Ok(())
}

/// Reads the words, as Valkey does and with its errors.
fn requested(topology: &Topology, args: &mut Args<'_>) -> Result<Vec<Requested>, CommandError> {
    if !topology.is_primary() {
        return Err(CommandError::text("ERR Slot migration can only be used on primary nodes."));
    }
    let (mut moves, mut all) = (Vec::new(), SlotSet::default());
    while !args.is_empty() {
        // valkey-cli 9.1 sends the end of its C string along, which Valkey does not see.
        if !args.token("SLOTSRANGE") && !args.token("SLOTSRANGE\0") {
            return Err(CommandError::Syntax);
        }
        let mut ranges: Vec<SlotRange> = Vec::new();
        while args.peek().is_some_and(|word| parse_integer(word).is_some()) {
            let range = slot_range(args)?;
            let (first, last) = (range.first(), range.last());
            let overlaps = |other: &&SlotRange| other.first() <= last && first <= other.last();
            if let Some(other) = ranges.iter().find(overlaps) {
                return Err(CommandError::owned(format!(
                    "ERR Slot range {first}-{last} overlaps with previous range {}-{}.",
                    other.first(),
                    other.last()
                )));
            }
            ranges.push(range);
        }
        if ranges.is_empty() {
            return Err(CommandError::text("ERR No slot ranges specified"));
        }
        if !args.token_with("NODE", 1) {
            return Err(CommandError::Syntax);
        }
        let target = target(topology, args.word())?;
        let slots: SlotSet = ranges.into_iter().collect();
        if slots.intersects(&all) {
            return Err(CommandError::text("ERR Slot ranges in migrations overlap"));
        }
        all.insert_all(&slots);
        if let Some(slot) = slots.iter().find(|slot| topology.owner(*slot).is_none()) {
            return Err(CommandError::owned(format!("ERR Slot {slot} has no node served")));
        }
        if slots.iter().any(|slot| !topology.is_mine(slot)) {
            let mut owners = slots.iter().map(|slot| topology.owner(slot));
            let first = owners.next().flatten();
            return Err(CommandError::text(match owners.all(|owner| owner == first) {
                true => "ERR Slots are not served by this node.",
                false => "ERR Requested slots span multiple shards",
            }));
        }
        moves.push(Requested { id: new_id()?, slots, target });
    }
    Ok(moves)
}

/// The primary that a move leads to.
fn target(topology: &Topology, name: &[u8]) -> Result<NodeId, CommandError> {
    let id: Option<NodeId> = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
    let id = id.ok_or_else(|| CommandError::quoting("ERR Invalid node name: ", name))?;
    let place = topology.find(name).ok_or_else(|| CommandError::quoting("ERR Unknown node name: ", name))?;
    if place == topology.my_place() {
        return Err(CommandError::text("ERR Target node can not be this node."));
    }
    match topology.shard_of(place) {
        Some(shard) if shard.primary == place => Ok(id),
        _ => Err(CommandError::text("ERR Target node is not a primary")),
    }
}

/// `CLUSTER CANCELSLOTMIGRATIONS`: moves from and to this node's shard end, and the slots stay.
pub(super) fn cancel(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    topology(context)?;
    args.finish()?;
    cluster_wide::answer(context, reply, |context| {
        let moves = &context.shared.cluster.moves;
        if moves.jobs().iter().all(|job| job.state.is_over()) {
            return Err(CommandError::text("ERR No migrations ongoing"));
        }
        Ok(moves.cancel())
    })
}

/// `CLUSTER GETSLOTMIGRATIONS`.
pub(super) fn list(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    topology(context)?;
    args.finish()?;
    let jobs = context.shared.cluster.moves.jobs();
    reply.array(jobs.len());
    jobs.iter().for_each(|job| describe(job, reply));
    Ok(())
}

fn describe(job: &Job, reply: &mut ReplyBuffer) {
    let id = |id: Option<NodeId>| id.map_or_else(String::new, |id| id.to_string());
    let ranges: Vec<String> = job
        .slots
        .ranges()
        .iter()
        .map(|range| match range.len() {
            1 => range.first().to_string(),
            _ => format!("{}-{}", range.first(), range.last()),
        })
        .collect();
    let texts: [(&str, String); 5] = [
        ("name", job.id.to_string()),
        ("operation", if job.is_export { "EXPORT" } else { "IMPORT" }.to_owned()),
        ("slot_ranges", ranges.join(" ")),
        ("target_node", id(job.target)),
        ("source_node", id(job.source)),
    ];
    reply.map(12);
    for (name, text) in texts {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    for (name, time_s) in
        [("create_time", job.created_s), ("last_update_time", job.updated_s), ("last_ack_time", job.heard_s)]
    {
        reply.bulk(name.as_bytes());
        reply.integer(time_s as i64);
    }
    for (name, text) in [("state", job.state.name()), ("message", job.message.as_str())] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    // Nothing forks.
    for (name, bytes) in [("cow_size", 0), ("remaining_repl_size", job.sent.saturating_sub(job.held))] {
        reply.bulk(name.as_bytes());
        reply.integer(bytes as i64);
    }
}

/// `CLUSTER IMPORT BEGIN move | PLACE n | OWNED move`: the words of a source to its target.
pub(super) fn import(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let topology = topology(context)?;
    let flushes = context.shared.engine.keyspace.flushes();
    if args.token_with("BEGIN", 1) {
        let id = move_id(args)?;
        let begun =
            context.shared.cluster.moves.begin_import(&context.shared.engine.keyspace, &topology, &id)?;
        context.session.import = Some(Box::new(begun));
        reply.ok();
        // From here on only what it asks for is answered.
        context.session.pushed = true;
        context.session.replies = Replies::Off;
    } else if args.token_with("PLACE", 1) {
        let place = args.integer();
        args.finish()?;
        context.session.pushed = true;
        let session = &mut context.session;
        let import = session.import.as_ref().ok_or(CommandError::text("ERR no import has begun"))?;
        if let Some(why) = import.failure(flushes) {
            return Err(CommandError::owned(format!("ERR the import has failed: {why}")));
        }
        if !topology.imports(&import.id) {
            return Err(CommandError::text("ERR the move of slots has ended"));
        }
        // The command is answered when everything before it is as durable as any write.
        context.executor.see_everything();
        reply.integer(place);
    } else if args.token_with("OWNED", 1) {
        let _ = move_id(args)?;
        context.session.pushed = true;
        let import = context.session.import.as_ref().ok_or(CommandError::text("ERR no import has begun"))?;
        let slots = (0..SLOTS).filter(|slot| import.has(crate::admission::Slots::One(*slot)));
        reply.integer(i64::from(slots.into_iter().all(|slot| topology.is_mine(slot))));
    } else {
        return Err(CommandError::Syntax);
    }
    Ok(())
}

fn move_id(args: &mut Args<'_>) -> Result<String, CommandError> {
    let word = args.word();
    args.finish()?;
    std::str::from_utf8(word)
        .map(str::to_owned)
        .map_err(|_| CommandError::text("ERR this is no id of a move"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::topology::tests::three_shards;

    /// The answers are those of Valkey 9.1.
    #[test]
    fn migrateslots_refuses_what_valkey_refuses() {
        let topology = three_shards(0);
        let (other, replica) = (format!("{:040x}", 1), format!("{:040x}", 3));
        let (me, unknown) = (format!("{:040x}", 0), "f".repeat(40));
        for (line, expected) in [
            ("a b".to_owned(), "ERR syntax error".to_owned()),
            ("SLOTSRANGE 1".to_owned(), "ERR No end slot for final slot range".to_owned()),
            ("SLOTSRANGE 1 2".to_owned(), "ERR syntax error".to_owned()),
            (format!("SLOTSRANGE 1 2 3 NODE {other}"), "ERR Invalid or out of range slot".to_owned()),
            ("SLOTSRANGE 1 2 NODE".to_owned(), "ERR syntax error".to_owned()),
            (format!("SLOTSRANGE 1 2 NODE {me}"), "ERR Target node can not be this node.".to_owned()),
            ("SLOTSRANGE 1 2 NODE abc".to_owned(), "ERR Invalid node name: abc".to_owned()),
            (format!("SLOTSRANGE 1 2 NODE {unknown}"), format!("ERR Unknown node name: {unknown}")),
            (
                format!("SLOTSRANGE 2 1 NODE {other}"),
                "ERR Start slot number 2 is greater than end slot number 1.".to_owned(),
            ),
            (format!("SLOTSRANGE 1 16384 NODE {other}"), "ERR Invalid or out of range slot".to_owned()),
            (format!("SLOTSRANGE x 3 NODE {other}"), "ERR No slot ranges specified".to_owned()),
            (
                format!("SLOTSRANGE 9000 9001 NODE {other}"),
                "ERR Slots are not served by this node.".to_owned(),
            ),
            (
                format!("SLOTSRANGE 1 2 2 3 NODE {other}"),
                "ERR Slot range 2-3 overlaps with previous range 1-2.".to_owned(),
            ),
            (
                format!("SLOTSRANGE 5460 5461 NODE {other}"),
                "ERR Requested slots span multiple shards".to_owned(),
            ),
            (
                format!("SLOTSRANGE 1 2 NODE {other} SLOTSRANGE 2 3 NODE {other}"),
                "ERR Slot ranges in migrations overlap".to_owned(),
            ),
            (format!("SLOTSRANGE 1 2 NODE {other} extra"), "ERR syntax error".to_owned()),
            (format!("SLOTSRANGE 1 2 NODE {replica}"), "ERR Target node is not a primary".to_owned()),
            (format!("SLOTSRANGE NODE {other}"), "ERR No slot ranges specified".to_owned()),
        ] {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let error = requested(&topology, &mut Args::new(&words, 0)).unwrap_err();
            assert_eq!(String::from_utf8_lossy(&error.line()), expected, "{line}");
        }
        let line = format!("SLOTSRANGE 1 2 7 7 NODE {other}");
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let moves = requested(&topology, &mut Args::new(&words, 0)).unwrap();
        assert_eq!(moves[0].slots.to_string(), "1-2,7");
    }
}
