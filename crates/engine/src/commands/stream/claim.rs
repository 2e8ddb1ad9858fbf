//! Taking deliveries over from other consumers.

use std::mem;

use dunlin_resp::{Protocol, ReplyBuffer, SharedSlice};

use super::{
    no_group, parse_id, parse_start,
    propagation::{Deliveries, record_deliveries},
    reply_entry, reply_id,
};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{Change, WriteContext},
    keyspace::EntryRef,
    notify::EventClass,
    value::{
        Collection, Stream,
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
    /// As given; a time that makes no sense counts as now.
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

/// The error if key or group is missing; counts a hit or a miss.
fn require_group(context: &mut WriteContext<'_>, key: &[u8], name: &[u8]) -> CommandResult {
    let group = context.read_collection::<Stream>(key)?.and_then(|stream| stream.group(name));
    group.map(drop).ok_or_else(|| no_group(key, name))
}

/// The group of that name beside the log, if an entry is a stream that has it.
fn group_in<'a>(entry: Option<EntryRef<'a>>, name: &[u8]) -> Option<(&'a ConsumerGroup, &'a StreamLog)> {
    let stream = Stream::of(entry?.stored_object()?)?;
    Some((stream.group(name)?, stream.log()))
}

/// Works on a group beside the log; the error if key or group is missing.
fn edit_group<R>(
    context: &mut WriteContext<'_>,
    key: &[u8],
    name: &[u8],
    edit: impl FnOnce(&mut ConsumerGroup, &StreamLog) -> (R, bool),
) -> Result<R, CommandError> {
    let edited = context.update(key, |stream: &mut Stream| {
        match stream.edit_group(name, |group, log| edit(group, log)) {
            Some((result, changed)) => (Some(result), Change::of_groups(changed)),
            None => (None, Change::None),
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
    let now_ms = context.clock_ms();
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
        group.advance(options.last_id, log);
        let is_new = group.see_consumer(consumer, now_ms);
        let mark = reply.mark();
        let mut claimed = 0;
        for id in &options.ids {
            if !log.contains(*id) {
                // The entry is gone, so no consumer owes an acknowledgement for it.
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
    context.count_changes(usize::from(is_new) + ids.len());
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

/// A consumer that takes over idle deliveries, from an ID on.
struct AutoClaim<'a> {
    consumer: &'a [u8],
    idle_ms_min: u64,
    start: StreamId,
    /// How many deliveries are taken or given up, at most.
    count: u64,
    only_ids: bool,
    now_ms: u64,
}

/// The deliveries that can be taken over.
struct Takeover {
    claimed: Vec<StreamId>,
    /// Deliveries whose entries are gone.
    deleted: Vec<StreamId>,
    /// The delivery to go on from; the least ID where there is none.
    next: StreamId,
}

impl Takeover {
    /// How many deliveries it changes.
    fn len(&self) -> usize {
        self.claimed.len() + self.deleted.len()
    }
}

/// A takeover that an offloaded command has found, with its reply.
struct OffloadedClaim {
    takeover: Takeover,
    /// The group from now on, and whether the consumer is new in it, if many deliveries change.
    taken: Option<(ConsumerGroup, bool)>,
    reply: Vec<SharedSlice>,
}

impl AutoClaim<'_> {
    /// How many deliveries are looked at, at most.
    fn attempts(&self) -> u64 {
        self.count.saturating_mul(ATTEMPTS_FACTOR)
    }

    fn find(&self, group: &ConsumerGroup, log: &StreamLog) -> Takeover {
        let mut found = Takeover { claimed: Vec::new(), deleted: Vec::new(), next: StreamId::MIN };
        for (attempt, (&id, delivery)) in (0..).zip(group.pending().range(self.start..)) {
            if attempt == self.attempts() || found.len() as u64 == self.count {
                found.next = id;
                break;
            }
            if !log.contains(id) {
                found.deleted.push(id);
            } else if delivery.idle_ms(self.now_ms) >= self.idle_ms_min {
                found.claimed.push(id);
            }
        }
        found
    }

    /// Makes the found deliveries the consumer's; returns whether the consumer is new.
    fn take(&self, found: &Takeover, group: &mut ConsumerGroup) -> bool {
        let is_new = group.see_consumer(self.consumer, self.now_ms);
        let claim = Claim { time_ms: self.now_ms, count: None, keeps_count: self.only_ids };
        for id in &found.claimed {
            group.claim(*id, self.consumer, claim, self.now_ms);
        }
        for id in &found.deleted {
            group.acknowledge(*id);
        }
        is_new
    }

    fn reply(&self, found: &Takeover, log: &StreamLog, reply: &mut ReplyBuffer) {
        reply.array(3);
        reply_id(reply, found.next);
        reply.array(found.claimed.len());
        found.claimed.iter().for_each(|id| reply_claimed(reply, log, *id, self.only_ids));
        reply.array(found.deleted.len());
        found.deleted.iter().for_each(|id| reply_id(reply, *id));
    }

    /// Finds the deliveries and writes the reply on an offload thread, if there may be many. A few deliveries
    /// are left to be taken under the locks; for many a copy of the group is made, to be put in its place.
    fn find_offloaded(
        &self,
        context: &mut WriteContext<'_>,
        (key, name): (&[u8], &[u8]),
        protocol: Protocol,
    ) -> Result<Option<OffloadedClaim>, CommandError> {
        let attempts = usize::try_from(self.attempts()).unwrap_or(usize::MAX);
        if !context.may_offload(attempts) {
            return Ok(None);
        }
        let taken_in_place_max = context.caller().visits_max;
        let found = context.compute_offloaded(
            key,
            |entry| group_in(entry, name).map_or(0, |(group, _)| group.pending().len().min(attempts)),
            |entry, _| {
                let (group, log) = group_in(entry, name)?;
                let takeover = self.find(group, log);
                let mut reply = ReplyBuffer::default();
                reply.set_protocol(protocol);
                self.reply(&takeover, log, &mut reply);
                let taken = taken_in_place_max.is_some_and(|max| takeover.len() > max).then(|| {
                    let mut group = group.clone();
                    let is_new = self.take(&takeover, &mut group);
                    (group, is_new)
                });
                Some(OffloadedClaim { takeover, taken, reply: reply.take_pieces() })
            },
        )?;
        Ok(found.flatten())
    }

    /// Takes over the deliveries that were found without the locks, and replies; those deliveries, and whether
    /// the consumer is new.
    fn finish(
        &self,
        context: &mut WriteContext<'_>,
        (key, name): (&[u8], &[u8]),
        found: OffloadedClaim,
        reply: &mut ReplyBuffer,
    ) -> Result<(Takeover, bool), CommandError> {
        let OffloadedClaim { takeover, taken, reply: pieces } = found;
        let (is_new, former) = edit_group(context, key, name, |group, _| {
            let (is_new, former) = match taken {
                Some((copy, is_new)) => (is_new, Some(mem::replace(group, copy))),
                None => (self.take(&takeover, group), None),
            };
            ((is_new, former), is_new || takeover.len() > 0)
        })?;
        context.discard_other(former);
        reply.append_pieces(&pieces);
        Ok((takeover, is_new))
    }
}

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
    let now_ms = context.clock_ms();
    let claim = AutoClaim { consumer, idle_ms_min, start, count, only_ids, now_ms };
    let (takeover, is_new) = match claim.find_offloaded(context, (key, name), reply.protocol())? {
        Some(found) => claim.finish(context, (key, name), found, reply)?,
        None => edit_group(context, key, name, |group, log| {
            let takeover = claim.find(group, log);
            let is_new = claim.take(&takeover, group);
            claim.reply(&takeover, log, reply);
            let changed = is_new || takeover.len() > 0;
            ((takeover, is_new), changed)
        })?,
    };
    let Takeover { claimed, deleted, .. } = takeover;
    let (ids, has_read) = ([claimed, deleted].concat(), false);
    context.count_changes(usize::from(is_new) + ids.len());
    record_deliveries(context, &Deliveries { key, group: name, consumer, is_new, ids, has_read });
    if is_new {
        context.notify(EventClass::Stream, "xgroup-createconsumer", key);
    }
    Ok(())
}
