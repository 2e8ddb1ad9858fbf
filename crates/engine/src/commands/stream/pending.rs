//! Deliveries: acknowledging them and looking at them.

use dunlin_resp::ReplyBuffer;

use super::{no_group, parse_end, parse_ids, parse_start, reply_id};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{Change, ReadContext, WriteContext},
    value::{
        Stream,
        stream::{ConsumerGroup, StreamId},
    },
};

pub(super) const XACK: Command = Command {
    name: "xack",
    summary: "Acknowledges entries that were delivered to a group and returns how many there were.",
    since: "5.0.0",
    group: Group::Stream,
    complexity: "O(log n) per entry",
    arity: Arity::AtLeast(4),
    run: Run::Write(xack),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().updates()],
    args: &[Argument::key("key"), Argument::string("group"), Argument::string("id").multiple()],
    ..Command::DEFAULT
};

fn xack(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, name, ids) = (args.word(), args.word(), args.take_rest());
    let acknowledged = context.update(key, |stream: &mut Stream| {
        let edited = stream.edit_group(name, |group, _| {
            let ids = parse_ids(ids)?;
            Ok(ids.into_iter().filter(|id| group.acknowledge(*id)).count())
        });
        let acknowledged: Result<usize, CommandError> = edited.unwrap_or(Ok(0));
        let changed = acknowledged.as_ref().is_ok_and(|count| *count > 0);
        (acknowledged, Change::of_groups(changed))
    })?;
    context.count_lookup(key, acknowledged.is_some());
    let acknowledged = acknowledged.transpose()?.unwrap_or(0);
    context.count_changes(acknowledged);
    reply.count(acknowledged);
    Ok(())
}

pub(super) const XPENDING: Command = Command {
    name: "xpending",
    summary: "Returns what was delivered to a group and not acknowledged: an overview, or one by one.",
    since: "5.0.0",
    group: Group::Stream,
    complexity: "O(n) in the number of consumers, or of deliveries looked at",
    arity: Arity::AtLeast(3),
    run: Run::Read(xpending),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).accesses()],
    args: &[
        Argument::key("key"),
        Argument::string("group"),
        Argument::block(
            "filters",
            &[
                Argument::integer("min-idle-time").after("IDLE").optional().since("6.2.0"),
                Argument::string("start"),
                Argument::string("end"),
                Argument::integer("count"),
                Argument::string("consumer").optional(),
            ],
        )
        .optional(),
    ],
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

/// The deliveries that the reply lists one by one.
struct Filter<'a> {
    idle_ms_min: i64,
    start: StreamId,
    end: StreamId,
    count: u64,
    consumer: Option<&'a [u8]>,
}

impl<'a> Filter<'a> {
    /// Reads `[IDLE min-idle-time] start end count [consumer]`, the count first as Redis does.
    fn read(args: &mut Args<'a>) -> Result<Option<Self>, CommandError> {
        let words = args.words().len();
        if words == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&words) {
            return Err(CommandError::Syntax);
        }
        let mut idle_ms_min = 0;
        if args.token("IDLE") {
            idle_ms_min = args.integer();
            args.check()?;
            if words < 8 {
                return Err(CommandError::Syntax);
            }
        }
        let (start, end) = (args.word(), args.word());
        let count = super::not_negative(args)?;
        let (start, end) = (parse_start(start)?, parse_end(end)?);
        Ok(Some(Self { idle_ms_min, start, end, count, consumer: args.optional() }))
    }
}

fn xpending(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, name) = (args.word(), args.word());
    let filter = Filter::read(args)?;
    let now_ms = context.clock_ms();
    let group = context.collection::<Stream>(key)?.and_then(|stream| stream.group(name));
    let group = group.ok_or_else(|| no_group(key, name))?;
    context.weigh(match &filter {
        None => group.consumers().len(),
        // Deliveries that are not idle enough are looked at, too.
        Some(filter) if filter.idle_ms_min != 0 => group.pending().len(),
        Some(filter) => group.pending().len().min(usize::try_from(filter.count).unwrap_or(usize::MAX)),
    })?;
    match filter {
        None => reply_overview(reply, group),
        Some(filter) => reply_deliveries(reply, group, &filter, now_ms),
    }
    Ok(())
}

fn reply_overview(reply: &mut ReplyBuffer, group: &ConsumerGroup) {
    let pending = group.pending();
    reply.array(4);
    reply.count(pending.len());
    let (Some((first, _)), Some((last, _))) = (pending.first_key_value(), pending.last_key_value()) else {
        reply.null();
        reply.null();
        return reply.null_array();
    };
    reply_id(reply, *first);
    reply_id(reply, *last);
    let busy = || group.consumers().iter().filter(|(_, consumer)| !consumer.pending().is_empty());
    reply.array(busy().count());
    for (name, consumer) in busy() {
        reply.array(2);
        reply.bulk(name);
        reply.bulk_integer(consumer.pending().len() as i64);
    }
}

fn reply_deliveries(reply: &mut ReplyBuffer, group: &ConsumerGroup, filter: &Filter<'_>, now_ms: u64) {
    let (start, end) = (filter.start, filter.end);
    let mark = reply.mark();
    let mut told = 0;
    let mut tell = |id: StreamId| {
        let Some(delivery) = group.pending().get(&id) else { return true };
        let is_released = delivery.consumer.is_none();
        let idle_ms = (now_ms as i64).wrapping_sub(delivery.time_ms as i64);
        if !is_released && filter.idle_ms_min != 0 && idle_ms < filter.idle_ms_min {
            return true;
        }
        reply.array(4);
        reply_id(reply, id);
        reply.bulk(delivery.owner());
        reply.integer(if is_released { -1 } else { idle_ms.max(0) });
        reply.integer(delivery.count as i64);
        told += 1;
        told as u64 != filter.count
    };
    if filter.count > 0 {
        match filter.consumer.map(|name| group.consumers().get(name)) {
            None => {
                group.pending().range(start..=end).all(|(id, _)| tell(*id));
            }
            Some(Some(consumer)) => {
                consumer.pending().range(start..=end).all(|(id, ())| tell(*id));
            }
            Some(None) => {}
        }
    }
    reply.array_since(mark, told);
}
