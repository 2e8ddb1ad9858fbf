//! XINFO: streams, groups and consumers from outside.

use dunlin_resp::ReplyBuffer;

use super::{no_such_group, reply_entries, reply_entry, reply_id, wrong_subcommand};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::ReadContext,
    value::{
        Stream,
        stream::{ConsumerGroup, ProducerLimits, Producers, StreamEntry, StreamId, StreamLog},
    },
};

pub(super) const XINFO: Command = Command {
    name: "xinfo",
    summary: "Holds the commands that tell about streams, groups and consumers.",
    since: "5.0.0",
    group: Group::Stream,
    complexity: "Depends on the subcommand.",
    arity: Arity::AtLeast(2),
    run: Run::Container,
    subcommands: &[CONSUMERS, GROUPS, HELP, STREAM],
    ..Command::DEFAULT
};

const SUBCOMMAND: Command = Command {
    since: "5.0.0",
    group: Group::Stream,
    complexity: "O(1)",
    keys: &[KeySpec::at(2).accesses()],
    ..Command::DEFAULT
};

const CONSUMERS: Command = Command {
    name: "consumers",
    summary: "Returns the consumers of a group.",
    complexity: "O(n) in the number of consumers",
    arity: Arity::Exactly(4),
    run: Run::Read(consumers),
    args: &[Argument::key("key"), Argument::string("group")],
    tips: &["nondeterministic_output"],
    ..SUBCOMMAND
};

const GROUPS: Command = Command {
    name: "groups",
    summary: "Returns the groups of a stream.",
    complexity: "O(n) in the number of groups",
    arity: Arity::Exactly(3),
    run: Run::Read(groups),
    args: &[Argument::key("key")],
    ..SUBCOMMAND
};

const HELP: Command = Command {
    name: "help",
    summary: "Lists the subcommands.",
    arity: Arity::Exactly(2),
    run: Run::Help(&[
        "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CONSUMERS <key> <groupname>",
        "    The consumers of a group.",
        "GROUPS <key>",
        "    The groups of a stream.",
        "STREAM <key> [FULL [COUNT <count>]]",
        "    A stream; FULL tells entries, groups and deliveries, ten of each unless told otherwise.",
        "HELP",
        "    This text.",
    ]),
    flags: Flags::LOADING.and(Flags::STALE),
    keys: &[],
    ..SUBCOMMAND
};

const STREAM: Command = Command {
    name: "stream",
    summary: "Returns what there is to know about a stream.",
    complexity: "O(1); with FULL O(n) in what is told",
    arity: Arity::AtLeast(3),
    run: Run::Read(stream),
    args: &[
        Argument::key("key"),
        Argument::block(
            "full-block",
            &[Argument::word("full", "FULL"), Argument::integer("count").after("COUNT").optional()],
        )
        .optional()
        .since("6.0.0"),
    ],
    ..SUBCOMMAND
};

/// Entries and deliveries that the reply of `FULL` lists without a count.
const FULL_COUNT: u64 = 10;

fn stream_of<'a>(context: &mut ReadContext<'a>, key: &[u8]) -> Result<&'a Stream, CommandError> {
    context.collection::<Stream>(key)?.ok_or(CommandError::NoSuchKey)
}

fn group_of<'a>(
    context: &mut ReadContext<'a>,
    key: &[u8],
    name: &[u8],
) -> Result<&'a ConsumerGroup, CommandError> {
    stream_of(context, key)?.group(name).ok_or_else(|| no_such_group(key, name))
}

fn consumers(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, name) = (args.word(), args.word());
    let now_ms = context.clock_ms();
    let group = group_of(context, key, name)?;
    context.weigh(group.consumers().len())?;
    reply.array(group.consumers().len());
    for (name, consumer) in group.consumers() {
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(name);
        reply.bulk(b"pending");
        reply.count(consumer.pending().len());
        reply.bulk(b"idle");
        reply.integer(now_ms.saturating_sub(consumer.seen_ms) as i64);
        reply.bulk(b"inactive");
        reply.integer(consumer.active_ms.map_or(-1, |active_ms| now_ms.saturating_sub(active_ms) as i64));
    }
    Ok(())
}

fn groups(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let stream = stream_of(context, args.word())?;
    reply.array(stream.groups().len());
    for (name, group) in stream.groups() {
        reply.map(6);
        reply.bulk(b"name");
        reply.bulk(name);
        reply.bulk(b"consumers");
        reply.count(group.consumers().len());
        reply.bulk(b"pending");
        reply.count(group.pending().len());
        reply_position(reply, group, stream.log());
    }
    Ok(())
}

/// How far a group has read: three pairs of a map.
fn reply_position(reply: &mut ReplyBuffer, group: &ConsumerGroup, log: &StreamLog) {
    let or_null = |reply: &mut ReplyBuffer, value: Option<i64>| match value {
        Some(value) => reply.integer(value),
        None => reply.null(),
    };
    reply.bulk(b"last-delivered-id");
    reply_id(reply, group.last_id());
    reply.bulk(b"entries-read");
    or_null(reply, group.entries_read().map(|entries| entries as i64));
    reply.bulk(b"lag");
    or_null(reply, group.lag(log).map(|entries| entries as i64));
}

fn stream(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (now_ms, defaults) = (context.clock_ms(), context.layout().limits.producers);
    let stream = stream_of(context, args.word())?;
    let mut full = None;
    if !args.is_empty() {
        let is_known =
            args.token("FULL") && (args.is_empty() || args.remaining() == 2 && args.token("COUNT"));
        if !is_known {
            return Err(wrong_subcommand(args, "XINFO"));
        }
        let count = if args.is_empty() { None } else { u64::try_from(args.integer()).ok() };
        args.check()?;
        let count = count.unwrap_or(FULL_COUNT);
        context.weigh(visits_of_full(stream, count))?;
        full = Some(count);
    }
    let log = stream.log();
    reply.map(if full.is_some() { 15 } else { 16 });
    reply.bulk(b"length");
    reply.integer(log.len() as i64);
    // The names are those of Redis's index; here they count nodes, and nodes with the index itself.
    reply.bulk(b"radix-tree-keys");
    reply.count(log.nodes());
    reply.bulk(b"radix-tree-nodes");
    reply.count(log.nodes() + 1);
    let ids = [
        ("last-generated-id", log.last_id()),
        ("max-deleted-entry-id", log.max_deleted_id()),
        ("recorded-first-entry-id", log.first_id()),
    ];
    for (at, (name, id)) in ids.into_iter().enumerate() {
        if at == 2 {
            reply.bulk(b"entries-added");
            reply.integer(log.entries_added() as i64);
        }
        reply.bulk(name.as_bytes());
        reply_id(reply, id);
    }
    reply_producers(reply, stream, now_ms, defaults);
    match full {
        Some(count) => reply_full(reply, stream, count),
        None => reply_ends(reply, stream),
    }
    Ok(())
}

/// The reply about the producers that are remembered: six pairs of a map.
fn reply_producers(reply: &mut ReplyBuffer, stream: &Stream, now_ms: u64, defaults: ProducerLimits) {
    let none = Producers::new(defaults);
    let producers = stream.producers().unwrap_or(&none);
    let (names, entries) = producers.remembered(now_ms);
    for (name, value) in [
        ("idmp-duration", u64::from(producers.limits().duration_s)),
        ("idmp-maxsize", u64::from(producers.limits().entries_max)),
        ("pids-tracked", names as u64),
        ("iids-tracked", entries as u64),
        ("iids-added", producers.added()),
        ("iids-duplicates", producers.duplicates()),
    ] {
        reply.bulk(name.as_bytes());
        reply.integer(value as i64);
    }
}

fn reply_ends(reply: &mut ReplyBuffer, stream: &Stream) {
    let or_null = |reply: &mut ReplyBuffer, entry: Option<StreamEntry<'_>>| match entry {
        Some(entry) => reply_entry(reply, &entry),
        None => reply.null(),
    };
    reply.bulk(b"groups");
    reply.count(stream.groups().len());
    reply.bulk(b"first-entry");
    or_null(reply, stream.log().iter().next());
    reply.bulk(b"last-entry");
    or_null(reply, stream.log().range_reversed(StreamId::MIN, StreamId::MAX).next());
}

/// How many entries, consumers and deliveries [`reply_full`] lists, at most.
fn visits_of_full(stream: &Stream, count: u64) -> usize {
    let of_group = |group: &ConsumerGroup| {
        let (pending, consumers) = (group.pending().len(), group.consumers().len());
        consumers + limited(pending, count) + limited(pending, count.saturating_mul(consumers as u64))
    };
    limited(stream.log().len() as usize, count) + stream.groups().values().map(of_group).sum::<usize>()
}

fn reply_full(reply: &mut ReplyBuffer, stream: &Stream, count: u64) {
    reply.bulk(b"entries");
    reply_entries(reply, stream.log().iter(), count);
    reply.bulk(b"groups");
    reply.array(stream.groups().len());
    for (name, group) in stream.groups() {
        reply.map(7);
        reply.bulk(b"name");
        reply.bulk(name);
        reply_position(reply, group, stream.log());
        reply.bulk(b"pel-count");
        reply.count(group.pending().len());
        reply.bulk(b"pending");
        reply.array(limited(group.pending().len(), count));
        for (id, delivery) in group.pending().iter().take(limited(group.pending().len(), count)) {
            reply.array(4);
            reply_id(reply, *id);
            reply.bulk(delivery.owner());
            reply.integer(delivery.time_ms as i64);
            reply.integer(delivery.count as i64);
        }
        reply_consumers(reply, group, count);
    }
}

fn reply_consumers(reply: &mut ReplyBuffer, group: &ConsumerGroup, count: u64) {
    reply.bulk(b"consumers");
    reply.array(group.consumers().len());
    for (name, consumer) in group.consumers() {
        reply.map(5);
        reply.bulk(b"name");
        reply.bulk(name);
        reply.bulk(b"seen-time");
        reply.integer(consumer.seen_ms as i64);
        reply.bulk(b"active-time");
        reply.integer(consumer.active_ms.map_or(-1, |active_ms| active_ms as i64));
        reply.bulk(b"pel-count");
        reply.count(consumer.pending().len());
        reply.bulk(b"pending");
        reply.array(limited(consumer.pending().len(), count));
        for id in consumer.pending().keys().take(limited(consumer.pending().len(), count)) {
            let delivery = group.pending().get(id);
            reply.array(3);
            reply_id(reply, *id);
            reply.integer(delivery.map_or(0, |delivery| delivery.time_ms as i64));
            reply.integer(delivery.map_or(0, |delivery| delivery.count as i64));
        }
    }
}

/// How many of `length` the reply lists; a count of 0 lists all.
fn limited(length: usize, count: u64) -> usize {
    if count == 0 { length } else { length.min(count as usize) }
}

#[cfg(test)]
mod tests {
    use dunlin_resp::Protocol;

    use crate::transcript::{Scenario, check};

    /// Plays lines on a stream of five entries, 1 to 5, with a group at its beginning. After each line stand how many entries
    /// the group has read, and how many it has yet to read; `_` for unknown counts.
    fn check_lag(lines: &[(&str, &str, &str)]) {
        let mut scenario = Scenario::new();
        for ms in 1..=5 {
            scenario.reply(&format!("XADD s {ms} f v"), Protocol::Resp3);
        }
        scenario.reply("XGROUP CREATE s g 0", Protocol::Resp3);
        for (line, read, lag) in lines {
            let reply = scenario.reply(line, Protocol::Resp3);
            assert_ne!(reply.first(), Some(&b'-'), "{line}");
            let groups = scenario.reply("XINFO GROUPS s", Protocol::Resp3);
            let groups = String::from_utf8(groups).expect("text").replace("\r\n", " ");
            let number = |text: &str| if text == "_" { "_".to_owned() } else { format!(":{text}") };
            let wanted = format!("$12 entries-read {} $3 lag {} ", number(read), number(lag));
            assert!(groups.contains(&wanted), "behind {line}: {groups}instead of {wanted}");
        }
    }

    #[test]
    fn lag_follows_trimming() {
        const READ: &str = "XREADGROUP GROUP g c STREAMS s >";
        const READ_ONE: &str = "XREADGROUP GROUP g c COUNT 1 STREAMS s >";
        check_lag(&[(READ_ONE, "1", "4"), ("XTRIM s MAXLEN 1", "1", "1"), (READ, "5", "0")]);
        check_lag(&[("XTRIM s MAXLEN 2", "_", "2"), (READ_ONE, "4", "1"), ("XADD s 6 f v", "4", "2")]);
        check_lag(&[(READ_ONE, "1", "4"), ("XTRIM s MAXLEN 0", "1", "0"), ("XADD s 6 f v", "1", "1")]);
    }

    #[test]
    fn lag_is_unknown_while_entries_ahead_have_been_deleted() {
        const READ_ONE: &str = "XREADGROUP GROUP g c COUNT 1 STREAMS s >";
        check_lag(&[
            (READ_ONE, "1", "4"),
            (READ_ONE, "2", "3"),
            ("XDEL s 3", "2", "_"),
            (READ_ONE, "_", "_"),
            (READ_ONE, "5", "0"),
        ]);
        check_lag(&[("XDEL s 1", "_", "4"), (READ_ONE, "2", "3"), ("XDEL s 2", "2", "3")]);
        check_lag(&[(READ_ONE, "1", "4"), (READ_ONE, "2", "3"), ("XDEL s 2", "2", "3")]);
    }

    #[test]
    fn lag_stays_what_it_is_when_counts_are_set() {
        const READ: &str = "XREADGROUP GROUP g c STREAMS s >";
        const READ_ONE: &str = "XREADGROUP GROUP g c COUNT 1 STREAMS s >";
        check_lag(&[
            (READ_ONE, "1", "4"),
            ("XSETID s 200 ENTRIESADDED 210", "206", "4"),
            (READ, "210", "0"),
            ("XTRIM s MAXLEN 1", "210", "0"),
            ("XSETID s 200 ENTRIESADDED 1", "1", "0"),
            ("XADD s 201 f v", "1", "1"),
        ]);
        check_lag(&[(READ_ONE, "1", "4"), ("XCLAIM s g c 0 1 LASTID 3", "_", "_"), (READ, "5", "0")]);
    }

    #[test]
    fn producers_are_told() {
        check(
            "
            > XADD s IDMP p 1 * a 1
            $15 1700000000000-0
            > XADD s IDMP p 1 * a 1
            $15 1700000000000-0
            > XADD s IDMPAUTO q * a 1
            $15 1700000000000-1
            > XCFGSET s IDMP-DURATION 100
            +OK
            > XINFO STREAM s
            *32 $6 length :2 $15 radix-tree-keys :1 $16 radix-tree-nodes :2 $17 last-generated-id $15 1700000000000-1 $20 max-deleted-entry-id $3 0-0 $13 entries-added :2 $23 recorded-first-entry-id $15 1700000000000-0 $13 idmp-duration :100 $12 idmp-maxsize :100 $12 pids-tracked :2 $12 iids-tracked :2 $10 iids-added :2 $15 iids-duplicates :1 $6 groups :0 $11 first-entry *2 $15 1700000000000-0 *2 $1 a $1 1 $10 last-entry *2 $15 1700000000000-1 *2 $1 a $1 1
            @ +100000
            > XGROUP CREATE t g 0 MKSTREAM
            +OK
            3> XINFO STREAM t FULL
            %15 $6 length :0 $15 radix-tree-keys :0 $16 radix-tree-nodes :1 $17 last-generated-id $3 0-0 $20 max-deleted-entry-id $3 0-0 $13 entries-added :0 $23 recorded-first-entry-id $3 0-0 $13 idmp-duration :100 $12 idmp-maxsize :100 $12 pids-tracked :0 $12 iids-tracked :0 $10 iids-added :0 $15 iids-duplicates :0 $7 entries *0 $6 groups *1 %7 $4 name $1 g $17 last-delivered-id $3 0-0 $12 entries-read _ $3 lag :0 $9 pel-count :0 $7 pending *0 $9 consumers *0
            ",
        );
    }
}
