//! Taking deliveries over from other consumers.

use std::ops::Bound;

use dunlin_resp::ReplyBuffer;

use super::{
    effect::{Deliveries, record_deliveries},
    no_group, parse_id, parse_start, reply_entry, reply_id,
};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::WriteContext,
    notify::EventClass,
    value::{
        Stream,
        stream::{Claim, ConsumerGroup, StreamId, StreamLog},
    },
};

pub(super) const XCLAIM: Command = Command {
    name: "xclaim",
    summary: "Takes deliveries over for a consumer, by ID, and returns their entries.",
    since: "5.0.0",
    group: Group::Stream,
    complexity: "O(log n) per entry",
    arity: Arity::AtLeast(6),
    run: Run::Write(xclaim),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().updates()],
    args: &[
        Argument::key("key"),
        Argument::string("group"),
        Argument::string("consumer"),
        Argument::string("min-idle-time"),
        Argument::string("id").multiple(),
        Argument::integer("ms").after("IDLE").optional(),
        Argument::unix_time("unix-time-milliseconds").after("TIME").optional(),
        Argument::integer("count").after("RETRYCOUNT").optional(),
        Argument::word("force", "FORCE").optional(),
        Argument::word("justid", "JUSTID").optional(),
        Argument::string("lastid").after("LASTID").optional(),
    ],
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

pub(super) const XAUTOCLAIM: Command = Command {
    name: "xautoclaim",
    summary: "Takes idle deliveries over for a consumer, from an ID on, and returns their entries and where to go on.",
    since: "6.2.0",
    group: Group::Stream,
    complexity: "O(log n) per delivery looked at",
    arity: Arity::AtLeast(6),
    run: Run::Write(xautoclaim),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().deletes()],
    args: &[
        Argument::key("key"),
        Argument::string("group"),
        Argument::string("consumer"),
        Argument::string("min-idle-time"),
        Argument::string("start"),
        Argument::integer("count").after("COUNT").optional(),
        Argument::word("justid", "JUSTID").optional(),
    ],
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

/// The options of `XCLAIM`.
#[derive(Default)]
struct ClaimOptions {
    ids: Vec<StreamId>,
    /// As told; what makes no sense counts as now.
    time_ms: Option<i64>,
    count: Option<u64>,
    forces: bool,
    only_ids: bool,
    last_id: StreamId,
}

impl ClaimOptions {
    fn read(args: &mut Args<'_>, now_ms: u64) -> Result<Self, CommandError> {
        let mut options = Self::default();
        while let Some(id) = args.peek().and_then(|word| StreamId::parse(word, 0)) {
            args.word();
            options.ids.push(id);
        }
        let invalid = |name| CommandError::owned(format!("ERR Invalid {name} option argument for XCLAIM"));
        while !args.is_empty() {
            if args.token("FORCE") {
                options.forces = true;
            } else if args.token("JUSTID") {
                options.only_ids = true;
            } else if args.token_with("IDLE", 1) {
                let idle_ms = args.integer_or(invalid("IDLE"));
                options.time_ms = Some((now_ms as i64).wrapping_sub(idle_ms));
            } else if args.token_with("TIME", 1) {
                options.time_ms = Some(args.integer_or(invalid("TIME")));
            } else if args.token_with("RETRYCOUNT", 1) {
                options.count = u64::try_from(args.integer_or(invalid("RETRYCOUNT"))).ok();
            } else if args.token_with("LASTID", 1) {
                options.last_id = parse_id(args.word())?;
            } else {
                let word = args.word();
                return Err(CommandError::quoting_within("ERR Unrecognized XCLAIM option '", word, "'"));
            }
            args.check()?;
        }
        Ok(options)
    }
}

/// Reads the idle time that a delivery must have to be taken over, in milliseconds.
fn read_idle(args: &mut Args<'_>, name: &str) -> Result<u64, CommandError> {
    let text = format!("ERR Invalid min-idle-time argument for {name}");
    let idle_ms = args.integer_or(CommandError::owned(text));
    args.check()?;
    Ok(u64::try_from(idle_ms).unwrap_or(0))
}

/// The error where key or group is missing; counts a hit or a miss.
fn require_group(context: &mut WriteContext<'_>, key: &[u8], name: &[u8]) -> CommandResult {
    let group = context.read_collection::<Stream>(key)?.and_then(|stream| stream.group(name));
    group.map(drop).ok_or_else(|| no_group(key, name))
}

/// Works on a group beside the log; the error where key or group is missing.
fn edit_group<R>(
    context: &mut WriteContext<'_>,
    key: &[u8],
    name: &[u8],
    edit: impl FnOnce(&mut ConsumerGroup, &StreamLog) -> (R, bool),
) -> Result<R, CommandError> {
    let edited = context.update(key, |stream: &mut Stream| {
        match stream.edit_group(name, |group, log| edit(group, log)) {
            Some((result, changed)) => (Some(result), changed),
            None => (None, false),
        }
    })?;
    edited.flatten().ok_or_else(|| no_group(key, name))
}

/// Writes a claimed entry: all of it, or its ID.
fn reply_claimed(reply: &mut ReplyBuffer, log: &StreamLog, id: StreamId, only_ids: bool) {
    match log.get(id).filter(|_| !only_ids) {
        Some(entry) => reply_entry(reply, &entry),
        None => reply_id(reply, id),
    }
}

fn xclaim(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, name, consumer) = (args.word(), args.word(), args.word());
    let now_ms = context.environment().clock_ms();
    require_group(context, key, name)?;
    let idle_ms_min = read_idle(args, "XCLAIM")?;
    let options = ClaimOptions::read(args, now_ms)?;
    let time_ms = options.time_ms.and_then(|time_ms| u64::try_from(time_ms).ok());
    let claim = Claim {
        time_ms: time_ms.filter(|time_ms| *time_ms <= now_ms).unwrap_or(now_ms),
        count: options.count,
        keeps_count: options.only_ids,
    };
    let (is_new, ids) = edit_group(context, key, name, |group, log| {
        let mut touched = Vec::new();
        let mut changed = options.last_id > group.last_id();
        group.advance(options.last_id);
        let is_new = group.see_consumer(consumer, now_ms);
        let mark = reply.mark();
        let mut claimed = 0;
        for id in &options.ids {
            if !log.contains(*id) {
                // The entry is gone, so nobody owes an answer for it.
                if group.acknowledge(*id) {
                    changed = true;
                    touched.push(*id);
                }
                continue;
            }
            let takes = match group.pending().get(id) {
                Some(delivery) => idle_ms_min == 0 || delivery.idle_ms(now_ms) >= idle_ms_min,
                None => options.forces,
            };
            if takes {
                group.claim(*id, consumer, claim, now_ms);
                reply_claimed(reply, log, *id, options.only_ids);
                touched.push(*id);
                claimed += 1;
            }
        }
        reply.array_since(mark, claimed);
        ((is_new, touched), changed || is_new || claimed > 0)
    })?;
    let has_read = options.last_id > StreamId::MIN && ids.is_empty();
    record_deliveries(context, &Deliveries { key, group: name, consumer, is_new, ids, has_read });
    if is_new {
        context.notify(EventClass::Stream, "xgroup-createconsumer", key);
    }
    Ok(())
}

/// Deliveries that are looked at for each that may be taken.
const ATTEMPTS_FACTOR: u64 = 10;
/// The largest `COUNT`: Redis sizes an array of IDs by it.
const COUNT_MAX: i64 = i64::MAX / 16;

fn xautoclaim(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, name, consumer) = (args.word(), args.word(), args.word());
    let idle_ms_min = read_idle(args, "XAUTOCLAIM")?;
    let start = parse_start(args.word())?;
    let (mut count, mut only_ids) = (100, false);
    while !args.is_empty() {
        if args.token_with("COUNT", 1) {
            count = args.integer_in(1..=COUNT_MAX, CommandError::text("ERR COUNT must be > 0")) as u64;
            args.check()?;
        } else if args.token("JUSTID") {
            only_ids = true;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    require_group(context, key, name)?;
    let now_ms = context.environment().clock_ms();
    let (is_new, ids) = edit_group(context, key, name, |group, log| {
        let is_new = group.see_consumer(consumer, now_ms);
        let claim = Claim { time_ms: now_ms, count: None, keeps_count: only_ids };
        let (mut claimed, mut deleted) = (Vec::new(), Vec::new());
        let mut attempts = count.saturating_mul(ATTEMPTS_FACTOR);
        let mut from = Bound::Included(start);
        let next = loop {
            let found = group.pending().range((from, Bound::Unbounded)).next();
            let Some((&id, delivery)) = found else { break StreamId::MIN };
            if attempts == 0 || count == 0 {
                break id;
            }
            attempts -= 1;
            from = Bound::Excluded(id);
            let is_idle = delivery.idle_ms(now_ms) >= idle_ms_min;
            if !log.contains(id) {
                group.acknowledge(id);
                deleted.push(id);
                count -= 1;
            } else if is_idle {
                group.claim(id, consumer, claim, now_ms);
                claimed.push(id);
                count -= 1;
            }
        };
        reply.array(3);
        reply_id(reply, next);
        reply.array(claimed.len());
        claimed.iter().for_each(|id| reply_claimed(reply, log, *id, only_ids));
        reply.array(deleted.len());
        deleted.iter().for_each(|id| reply_id(reply, *id));
        let changed = is_new || !claimed.is_empty() || !deleted.is_empty();
        claimed.append(&mut deleted);
        ((is_new, claimed), changed)
    })?;
    let has_read = false;
    record_deliveries(context, &Deliveries { key, group: name, consumer, is_new, ids, has_read });
    if is_new {
        context.notify(EventClass::Stream, "xgroup-createconsumer", key);
    }
    Ok(())
}
