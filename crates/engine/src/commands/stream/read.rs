//! Reading new entries: XREAD, and XREADGROUP for the consumers of a group.

use std::{collections::HashSet, mem, num::NonZeroU64};

use dunlin_resp::{Mark, Protocol, ReplyBuffer, SharedSlice};

use super::{
    budget::Budget,
    no_group_in, parse_id,
    propagation::{Deliveries, record_deliveries},
    reply_entry, reply_entry_parts, reply_id,
};
use crate::{
    command::{Args, Argument, Arity, Blocking, Command, CommandError, Flags, Group, KeySpec, Run, Wait},
    commands::timeout::parse_milliseconds,
    context::{Change, WriteContext},
    keyspace::EntryRef,
    notify::EventClass,
    value::{
        Collection, Stream, ValueType,
        stream::{Claim, ConsumerGroup, StreamEntry, StreamId, StreamLog},
    },
};

const COUNT: Argument = Argument::integer("count").after("COUNT").optional();
const MAXCOUNT: Argument = Argument::integer("maxcount").after("MAXCOUNT").optional().since("8.10.0");
const MAXSIZE: Argument = Argument::integer("maxsize").after("MAXSIZE").optional().since("8.10.0");
const BLOCK: Argument = Argument::integer("milliseconds").after("BLOCK").optional();
const STREAMS: Argument =
    Argument::block("streams", &[Argument::key("key").multiple(), Argument::string("id").multiple()])
        .after("STREAMS");

pub(super) const XREAD: Command = Command {
    name: "xread",
    summary: "Returns the entries of streams behind given IDs; waits for them if told to.",
    since: "5.0.0",
    group: Group::Stream,
    complexity: "O(log n) per stream, O(1) per entry",
    arity: Arity::AtLeast(4),
    run: Run::Block(xread),
    flags: Flags::READ_ONLY.and(Flags::BLOCKING),
    keys: &[KeySpec::behind("STREAMS", 1).limited(2).accesses()],
    args: &[COUNT, MAXCOUNT, MAXSIZE, BLOCK, STREAMS],
    ..Command::DEFAULT
};

pub(super) const XREADGROUP: Command = Command {
    name: "xreadgroup",
    summary: "Delivers new entries of streams to a consumer of a group, or tells it again what it has not acknowledged.",
    since: "5.0.0",
    group: Group::Stream,
    complexity: "O(log n) per stream, O(log n) per entry",
    arity: Arity::AtLeast(7),
    run: Run::Block(xreadgroup),
    flags: Flags::WRITE.and(Flags::BLOCKING),
    keys: &[KeySpec::behind("STREAMS", 4)
        .limited(2)
        .past(1, &[("GROUP", 2), ("COUNT", 1), ("MAXCOUNT", 1), ("MAXSIZE", 1), ("BLOCK", 1), ("CLAIM", 1)])
        .accesses()],
    args: &[
        Argument::block("group-block", &[Argument::string("group"), Argument::string("consumer")])
            .after("GROUP"),
        COUNT,
        MAXCOUNT,
        MAXSIZE,
        BLOCK,
        Argument::integer("min-idle-time").after("CLAIM").optional().since("8.4.0"),
        Argument::word("noack", "NOACK").optional(),
        STREAMS,
    ],
    ..Command::DEFAULT
};

type Outcome<'a> = Result<Blocking<'a>, CommandError>;

/// A request to read.
struct ReadRequest<'a> {
    /// Entries of each stream; 0 for all.
    count: u64,
    /// Limits of the reply over all streams.
    budget: Budget,
    /// Whether to wait if there is nothing, and for how many milliseconds.
    block: Option<Option<NonZeroU64>>,
    group: Option<(&'a [u8], &'a [u8])>,
    /// Milliseconds for which a delivery must have been idle for the consumer to take it over; `None` if it takes
    /// none.
    claim_idle_ms_min: Option<u64>,
    no_ack: bool,
    keys: &'a [&'a [u8]],
    ids: &'a [&'a [u8]],
}

impl<'a> ReadRequest<'a> {
    fn read(args: &mut Args<'a>, of_group: bool, now_ms: u64) -> Result<Self, CommandError> {
        let mut request = Self {
            count: 0,
            budget: Budget::default(),
            block: None,
            group: None,
            claim_idle_ms_min: None,
            no_ack: false,
            keys: &[],
            ids: &[],
        };
        let only_group = |option: &str| {
            CommandError::owned(format!(
                "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
            ))
        };
        while request.keys.is_empty() {
            if args.token_with("BLOCK", 1) {
                request.block = Some(parse_milliseconds(args, now_ms)?);
            } else if args.token_with("COUNT", 1) {
                request.count = super::not_negative(args)?;
            } else if args.token_with("MAXCOUNT", 1) {
                request.budget.entries = positive(args, "MAXCOUNT")?;
            } else if args.token_with("MAXSIZE", 1) {
                request.budget.bytes = positive(args, "MAXSIZE")?;
            } else if args.token_with("STREAMS", 1) {
                let streams = args.take_rest();
                if !streams.len().is_multiple_of(2) {
                    let (name, symbol) = if of_group { ("xreadgroup", '>') } else { ("xread", '$') };
                    return Err(CommandError::owned(format!(
                        "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{symbol}' must be specified."
                    )));
                }
                (request.keys, request.ids) = streams.split_at(streams.len() / 2);
            } else if args.token_with("GROUP", 2) {
                if !of_group {
                    return Err(only_group("GROUP"));
                }
                request.group = Some((args.word(), args.word()));
            } else if args.token_with("CLAIM", 1) {
                if !of_group {
                    return Err(only_group("CLAIM"));
                }
                request.claim_idle_ms_min = Some(read_idle(args)?);
            } else if args.token("NOACK") {
                if !of_group {
                    return Err(only_group("NOACK"));
                }
                request.no_ack = true;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        if request.count > request.budget.entries as u64 {
            return Err(CommandError::text("ERR MAXCOUNT must be greater than or equal to COUNT"));
        }
        Ok(request)
    }

    /// Whether no key is named twice: the first read from a key would change the result of the second.
    fn names_each_key_once(&self) -> bool {
        let mut seen = HashSet::with_capacity(self.keys.len());
        self.keys.iter().all(|key| seen.insert(key))
    }

    /// How many entries of a stream it wants at most.
    fn entries_max(&self) -> usize {
        let of_each = if self.count == 0 { usize::MAX } else { self.count as usize };
        of_each.min(self.budget.entries)
    }

    /// The outcome if there is nothing to read; entries may come of age at a time in Unix milliseconds.
    fn find_nothing(
        &self,
        words: Option<Vec<Box<[u8]>>>,
        on_loss: bool,
        again_ms: Option<u64>,
        reply: &mut ReplyBuffer,
    ) -> Outcome<'a> {
        let refused = ReplyBuffer::null_array;
        let Some(timeout_ms) = self.block else {
            refused(reply);
            return Ok(Blocking::Done);
        };
        let value_type = ValueType::Stream;
        Ok(Blocking::Wait(Wait {
            keys: self.keys,
            value_type,
            elements_min: 1,
            timeout_ms,
            words,
            on_loss,
            again_ms,
            refused,
        }))
    }
}

/// Reads the limit of the option `name`, 1 or more.
fn positive(args: &mut Args<'_>, name: &str) -> Result<usize, CommandError> {
    let limit = args.integer();
    args.check()?;
    let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0);
    limit.ok_or_else(|| CommandError::owned(format!("ERR {name} must be a positive integer")))
}

/// Reads the idle time of `CLAIM`, in milliseconds.
fn read_idle(args: &mut Args<'_>) -> Result<u64, CommandError> {
    let idle_ms = args.integer_or(CommandError::text("ERR min-idle-time is not an integer"));
    args.check()?;
    u64::try_from(idle_ms).map_err(|_| CommandError::text("ERR min-idle-time must be a positive integer"))
}

/// Begins the answer of one stream: a pair of its own in RESP2, one of a map in RESP3.
fn reply_key(reply: &mut ReplyBuffer, key: &[u8]) {
    if reply.protocol() == Protocol::Resp2 {
        reply.array(2);
    }
    reply.bulk(key);
}

fn xread<'a>(context: &mut WriteContext<'_>, args: &mut Args<'a>, reply: &mut ReplyBuffer) -> Outcome<'a> {
    let request = ReadRequest::read(args, false, context.now_ms())?;
    let mut behind = Vec::with_capacity(request.keys.len());
    let mut is_there = Vec::with_capacity(request.keys.len());
    for (key, id) in request.keys.iter().zip(request.ids) {
        let log = context.read_collection::<Stream>(key)?.map(Stream::log);
        is_there.push(log.is_some());
        let after = match *id {
            b"$" => log.map_or(StreamId::MIN, StreamLog::last_id),
            b"+" => log.map_or(StreamId::MIN, |log| {
                log.last_entry_id().and_then(StreamId::previous).unwrap_or(log.last_id())
            }),
            b">" => {
                return Err(CommandError::text(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
                ));
            }
            id => parse_id(id)?,
        };
        behind.push(after);
    }
    // As in Redis, each key counts as looked up twice.
    for (key, is_there) in request.keys.iter().zip(is_there) {
        context.count_lookup(key, is_there);
    }
    let mark = reply.mark();
    let entries_max = request.entries_max();
    let visits = |entries: &[Option<EntryRef<'_>>]| {
        let unread = entries.iter().zip(&behind).filter_map(|(entry, after)| unread(*entry, *after));
        unread.map(|(log, start)| log.entries_about(start, StreamId::MAX).min(entries_max)).sum()
    };
    let found = context.examine(request.keys, visits, |entries| {
        let (mut found, mut budget) = (0, request.budget);
        for ((key, entry), after) in request.keys.iter().zip(entries).zip(&behind) {
            if budget.is_spent() {
                break;
            }
            let Some((log, start)) = unread(*entry, *after) else { continue };
            found += 1;
            budget.spend_head(reply, |reply| reply_key(reply, key));
            let (mark, mut told) = (reply.mark(), 0);
            for entry in log.range(start, StreamId::MAX) {
                budget.spend(reply, |reply| reply_entry(reply, &entry));
                told += 1;
                if told == entries_max || budget.is_spent() {
                    break;
                }
            }
            reply.array_since(mark, told);
        }
        found
    })?;
    if found == 0 {
        // `$` means the last entry of now, also when the command is run again.
        let kept = args.words().len() - behind.len();
        let words = args.words()[..kept].iter().map(|word| Box::from(*word));
        let ids = behind.iter().map(|id| id.to_string().into_bytes().into_boxed_slice());
        return request.find_nothing(request.block.map(|_| words.chain(ids).collect()), false, None, reply);
    }
    close(reply, mark, found);
    Ok(Blocking::Done)
}

/// The entries of a stream, and the first ID behind `after`, if there are entries behind that.
fn unread(entry: Option<EntryRef<'_>>, after: StreamId) -> Option<(&StreamLog, StreamId)> {
    let log = Stream::of(entry?.stored_object()?)?.log();
    log.last_entry_id().filter(|last| *last > after)?;
    Some((log, after.next()?))
}

/// Ends the answer of `streams` streams.
fn close(reply: &mut ReplyBuffer, mark: Mark, streams: usize) {
    match reply.protocol() {
        Protocol::Resp2 => reply.array_since(mark, streams),
        Protocol::Resp3 => reply.map_since(mark, streams),
    }
}

/// The entries that a consumer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// `>`: entries that no consumer of the group has had.
    New,
    /// Entries that it has not acknowledged, behind an ID.
    HistoryBehind(StreamId),
}

impl Wanted {
    fn parse(id: &[u8]) -> Result<Self, CommandError> {
        let meaningless = |id: char| {
            CommandError::owned(format!(
                "ERR The {id} ID is meaningless in the context of XREADGROUP: you want to read the history of this \
                 consumer by specifying a proper ID, or use the > ID to get new messages. The {id} ID would just \
                 return an empty result set."
            ))
        };
        match id {
            b"$" => Err(meaningless('$')),
            b"+" => Err(meaningless('+')),
            b">" => Ok(Self::New),
            id => Ok(match parse_id(id)? {
                // Nothing is behind it; Redis takes it for `>`.
                StreamId::MAX => Self::New,
                id => Self::HistoryBehind(id),
            }),
        }
    }
}

fn xreadgroup<'a>(
    context: &mut WriteContext<'_>,
    args: &mut Args<'a>,
    reply: &mut ReplyBuffer,
) -> Outcome<'a> {
    let request = ReadRequest::read(args, true, context.now_ms())?;
    let (name, consumer) =
        request.group.ok_or(CommandError::text("ERR Missing GROUP option for XREADGROUP"))?;
    let mut wanted = Vec::with_capacity(request.keys.len());
    for (key, id) in request.keys.iter().zip(request.ids) {
        if context.read_collection::<Stream>(key)?.and_then(|stream| stream.group(name)).is_none() {
            return Err(no_group_in(key, name, " in XREADGROUP with GROUP option"));
        }
        wanted.push(Wanted::parse(id)?);
    }
    let reading = GroupReading { request: &request, name, consumer, wanted };
    // To claim by idle time may have to visit all deliveries, however few are wanted.
    let most = if request.claim_idle_ms_min.is_some() { usize::MAX } else { request.entries_max() };
    if context.may_offload(most.saturating_mul(request.keys.len()))
        && request.names_each_key_once()
        && let Some(read) = reading.offloaded(context, reply.protocol())?
    {
        let again_ms = read.iter().filter_map(|read| read.done.again_ms).min();
        let served = reading.finish(context, read, reply)?;
        return if served { Ok(Blocking::Done) } else { request.find_nothing(None, true, again_ms, reply) };
    }
    let now_ms = context.clock_ms();
    let mark = reply.mark();
    let (mut served, mut again_ms, mut budget) = (0, None, request.budget);
    for (at, key) in request.keys.iter().enumerate() {
        if budget.is_spent() {
            break;
        }
        context.count_lookup(key, true);
        let done = context.update(key, |stream: &mut Stream| {
            let done = stream
                .edit_group(name, |group, log| reading.read(at, group, log, now_ms, &mut budget, reply));
            let done = done.unwrap_or_default();
            let changes = done.changes();
            (done, Change::of_groups(changes))
        })?;
        let done = done.unwrap_or_default();
        served += usize::from(done.has_answered);
        again_ms = again_ms.into_iter().chain(done.again_ms).min();
        reading.record(context, key, done);
    }
    if served == 0 {
        return request.find_nothing(None, true, again_ms, reply);
    }
    close(reply, mark, served);
    Ok(Blocking::Done)
}

/// A consumer reading on.
struct GroupReading<'a> {
    request: &'a ReadRequest<'a>,
    name: &'a [u8],
    consumer: &'a [u8],
    /// The entries wanted of each key.
    wanted: Vec<Wanted>,
}

/// The changes that reading a stream has made to its group.
#[derive(Default)]
struct Done {
    /// Whether the consumer is new.
    is_new: bool,
    has_answered: bool,
    /// Whether the group has read on.
    has_read: bool,
    /// The entries whose deliveries have changed.
    ids: Vec<StreamId>,
    /// The Unix time in milliseconds from which on there is a delivery to take over, if there was nothing.
    again_ms: Option<u64>,
}

impl Done {
    fn changes(&self) -> bool {
        self.is_new || self.has_answered
    }
}

/// The result of an offloaded read of a stream: its group from now on, and the reply.
struct OffloadedRead {
    group: ConsumerGroup,
    done: Done,
    reply: Vec<SharedSlice>,
}

impl GroupReading<'_> {
    /// Reads from the stream of one key, and replies with the entries.
    fn read(
        &self,
        at: usize,
        group: &mut ConsumerGroup,
        log: &StreamLog,
        now_ms: u64,
        budget: &mut Budget,
        reply: &mut ReplyBuffer,
    ) -> Done {
        if budget.is_spent() {
            return Done::default();
        }
        let is_new = group.see_consumer(self.consumer, now_ms);
        let mut done = Done { is_new, ..Done::default() };
        match self.wanted[at] {
            Wanted::New => {
                let idle = self.find_idle(group, log, now_ms);
                let has_unread = log.last_entry_id() > Some(group.last_id());
                if idle.is_empty() && !has_unread {
                    done.again_ms = self.request.claim_idle_ms_min.and_then(|idle_ms_min| {
                        let mut deliveries = group.deliveries_by_time();
                        let oldest = deliveries.find(|(_, id)| log.contains(*id));
                        oldest.map(|(time_ms, _)| time_ms.saturating_add(idle_ms_min))
                    });
                    return done;
                }
                budget.spend_head(reply, |reply| reply_key(reply, self.request.keys[at]));
                let mark = reply.mark();
                done.ids = self.claim(&idle, group, log, now_ms, budget, reply);
                let mut told = done.ids.len();
                if has_unread && told < self.request.entries_max() && (told == 0 || !budget.is_spent()) {
                    done.has_read = true;
                    let entries_max = self.request.entries_max() - told;
                    let unread = self.deliver(group, log, now_ms, entries_max, budget, reply);
                    told += unread.len();
                    if !self.request.no_ack {
                        done.ids.extend(unread);
                    }
                }
                reply.array_since(mark, told);
            }
            Wanted::HistoryBehind(id) => {
                budget.spend_head(reply, |reply| reply_key(reply, self.request.keys[at]));
                let entries_max = self.request.entries_max();
                done.ids = repeat(reply, budget, group, log, (self.consumer, id), entries_max, now_ms);
            }
        }
        done.has_answered = true;
        done
    }

    /// The entries whose deliveries the consumer takes over, those first that have been idle for longest. A delivery whose
    /// entry is gone stays where it is.
    fn find_idle(&self, group: &mut ConsumerGroup, log: &StreamLog, now_ms: u64) -> Vec<StreamId> {
        let Some(idle_ms_min) = self.request.claim_idle_ms_min else { return Vec::new() };
        group.index_by_time();
        let idle = group.idle_deliveries(idle_ms_min, now_ms).filter(|id| log.contains(*id));
        idle.take(self.request.entries_max()).collect()
    }

    /// Takes deliveries over for the consumer, and replies with each, how long it was idle and how often it was made
    /// before. Returns which these are.
    fn claim(
        &self,
        ids: &[StreamId],
        group: &mut ConsumerGroup,
        log: &StreamLog,
        now_ms: u64,
        budget: &mut Budget,
        reply: &mut ReplyBuffer,
    ) -> Vec<StreamId> {
        let claim = Claim { time_ms: now_ms, count: None, keeps_count: false };
        let mut claimed = Vec::with_capacity(ids.len());
        for id in ids {
            if !claimed.is_empty() && budget.is_spent() {
                break;
            }
            let (Some(entry), Some(delivery)) = (log.get(*id), group.pending().get(id)) else { continue };
            let (idle_ms, count) = (delivery.idle_ms(now_ms), delivery.count);
            budget.spend(reply, |reply| reply_aged(reply, &entry, idle_ms, count));
            group.claim(*id, self.consumer, claim, now_ms);
            claimed.push(*id);
        }
        claimed
    }

    /// Hands the entries behind the group's last to the consumer, at most `entries_max`. Returns which these are.
    fn deliver(
        &self,
        group: &mut ConsumerGroup,
        log: &StreamLog,
        now_ms: u64,
        entries_max: usize,
        budget: &mut Budget,
        reply: &mut ReplyBuffer,
    ) -> Vec<StreamId> {
        let mut delivered = Vec::new();
        let start = group.last_id().next().unwrap_or(StreamId::MAX);
        for entry in log.range(start, StreamId::MAX).take(entries_max) {
            budget.spend(reply, |reply| match self.request.claim_idle_ms_min {
                Some(_) => reply_aged(reply, &entry, 0, 0),
                None => reply_entry(reply, &entry),
            });
            group.read(entry.id, log);
            delivered.push(entry.id);
            if budget.is_spent() {
                break;
            }
        }
        if !self.request.no_ack {
            group.deliver(delivered.iter().copied(), self.consumer, now_ms);
        }
        delivered
    }

    /// Roughly how many entries the streams have for the consumer; 0 only if they have none.
    fn entries_about(&self, entries: &[Option<EntryRef<'_>>], now_ms: u64) -> usize {
        let entries_max = self.request.entries_max();
        let of_stream = |(entry, wanted): (&Option<EntryRef<'_>>, &Wanted)| {
            let stream = Stream::of((*entry)?.stored_object()?)?;
            let group = stream.group(self.name)?;
            let unread = match wanted {
                // If there is nothing the command may have to wait, and nothing is to be offloaded.
                Wanted::New if stream.log().last_entry_id() <= Some(group.last_id()) => 0,
                Wanted::New => stream.log().entries_about(group.last_id().next()?, StreamId::MAX),
                Wanted::HistoryBehind(_) => group.consumers().get(self.consumer)?.pending().len(),
            };
            let idle = match (wanted, self.request.claim_idle_ms_min) {
                (Wanted::New, Some(idle_ms_min)) => {
                    group.idle_deliveries_about(idle_ms_min, now_ms, entries_max.min(IDLE_COUNTED_MAX))
                }
                _ => 0,
            };
            Some(idle + unread.min(entries_max))
        };
        entries.iter().zip(&self.wanted).filter_map(of_stream).sum()
    }

    /// Reads from copies of the groups, without the locks, if there is much to read: under the locks, the command
    /// then only puts the copies in their place.
    fn offloaded(
        &self,
        context: &mut WriteContext<'_>,
        protocol: Protocol,
    ) -> Result<Option<Vec<OffloadedRead>>, CommandError> {
        let now_ms = context.clock_ms();
        let read = context.compute_all_offloaded(
            self.request.keys,
            |entries| self.entries_about(entries, now_ms),
            |entries, _| {
                let mut budget = self.request.budget;
                let streams = entries.iter().map(|entry| Stream::of((*entry)?.stored_object()?));
                let read = streams.enumerate().map(|(at, stream)| {
                    let mut group = stream?.group(self.name)?.clone();
                    let mut reply = ReplyBuffer::default();
                    reply.set_protocol(protocol);
                    let done = self.read(at, &mut group, stream?.log(), now_ms, &mut budget, &mut reply);
                    Some(OffloadedRead { group, done, reply: reply.take_pieces() })
                });
                read.collect::<Option<Vec<_>>>()
            },
        )?;
        Ok(read.flatten())
    }

    /// Puts the groups of an offloaded read in their place, and replies; returns whether there was a reply.
    fn finish(
        &self,
        context: &mut WriteContext<'_>,
        read: Vec<OffloadedRead>,
        reply: &mut ReplyBuffer,
    ) -> Result<bool, CommandError> {
        let served = read.iter().filter(|read| read.done.has_answered).count();
        match reply.protocol() {
            _ if served == 0 => {}
            Protocol::Resp2 => reply.array(served),
            Protocol::Resp3 => reply.map(served),
        }
        for (key, OffloadedRead { group, done, reply: pieces }) in self.request.keys.iter().zip(read) {
            reply.append_pieces(&pieces);
            let former = context.update(key, |stream: &mut Stream| {
                let former = stream.edit_group(self.name, |place, _| mem::replace(place, group));
                (former, Change::of_groups(done.changes()))
            })?;
            context.discard_other(former);
            self.record(context, key, done);
        }
        Ok(served > 0)
    }

    /// Records and reports the changes that reading a stream has made.
    fn record(&self, context: &mut WriteContext<'_>, key: &[u8], done: Done) {
        let Done { is_new, has_read, ids, has_answered, .. } = done;
        context.count_changes(usize::from(is_new) + usize::from(has_answered));
        if is_new || has_read || !ids.is_empty() {
            let (group, consumer) = (self.name, self.consumer);
            record_deliveries(context, &Deliveries { key, group, consumer, is_new, ids, has_read });
        }
        if is_new {
            context.notify(EventClass::Stream, "xgroup-createconsumer", key);
        }
    }
}

/// Deliveries that are counted before a claim of many is offloaded.
const IDLE_COUNTED_MAX: usize = 16 * 1024;

/// An entry in the reply of a claim by idle time: with the milliseconds since its last delivery, and how many there
/// were.
fn reply_aged(reply: &mut ReplyBuffer, entry: &StreamEntry<'_>, idle_ms: u64, deliveries: u64) {
    reply.array(4);
    reply_entry_parts(reply, entry);
    reply.integer(idle_ms as i64);
    reply.integer(deliveries as i64);
}

/// Replies with a consumer's unacknowledged entries behind an ID; returns which deliveries that repeats.
fn repeat(
    reply: &mut ReplyBuffer,
    budget: &mut Budget,
    group: &mut ConsumerGroup,
    log: &StreamLog,
    (consumer, id): (&[u8], StreamId),
    entries_max: usize,
    now_ms: u64,
) -> Vec<StreamId> {
    let start = id.next().unwrap_or(StreamId::MAX);
    let pending = group.consumers().get(consumer).map(|consumer| consumer.pending().range(start..));
    let ids: Vec<StreamId> = pending.into_iter().flatten().take(entries_max).map(|(id, ())| *id).collect();
    let (mark, mut told, mut repeated) = (reply.mark(), 0, Vec::new());
    for id in ids {
        let entry = log.get(id);
        budget.spend(reply, |reply| match &entry {
            Some(entry) => reply_entry(reply, entry),
            // The entry is gone, the delivery is not.
            None => {
                reply.array(2);
                reply_id(reply, id);
                reply.null_array();
            }
        });
        told += 1;
        if entry.is_some() {
            group.repeat_delivery(id, now_ms);
            repeated.push(id);
        }
        if budget.is_spent() {
            break;
        }
    }
    reply.array_since(mark, told);
    repeated
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn entries_behind_an_id_are_read() {
        check(
            "
            > XADD s 1 a 1
            $3 1-0
            > XADD s 2 b 2
            $3 2-0
            > XREAD COUNT 1 STREAMS s 0
            *1 *2 $1 s *1 *2 $3 1-0 *2 $1 a $1 1
            3> XREAD STREAMS s missing 1 0
            %1 $1 s *1 *2 $3 2-0 *2 $1 b $1 2
            > XREAD STREAMS s $
            *-1
            > XREAD STREAMS s +
            *1 *2 $1 s *1 *2 $3 2-0 *2 $1 b $1 2
            > XREAD STREAMS s
            -ERR wrong number of arguments for 'xread' command
            > XREAD STREAMS s t 0
            -ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified.
            ",
        );
    }

    #[test]
    fn xreadgroup_delivers_once_and_repeats_pending_entries() {
        check(
            "
            > XADD s 1 a 1
            $3 1-0
            > XADD s 2 b 2
            $3 2-0
            > XGROUP CREATE s streams 0
            +OK
            > XREADGROUP COUNT 1 GROUP streams ann STREAMS s >
            *1 *2 $1 s *1 *2 $3 1-0 *2 $1 a $1 1
            3> XREADGROUP GROUP streams bob STREAMS s >
            %1 $1 s *1 *2 $3 2-0 *2 $1 b $1 2
            > XREADGROUP GROUP streams bob STREAMS s >
            *-1
            > XDEL s 1
            :1
            > XREADGROUP GROUP streams ann STREAMS s 0
            *1 *2 $1 s *1 *2 $3 1-0 *-1
            > XACK s streams 1 2 3
            :2
            > XREADGROUP GROUP nobody ann STREAMS s >
            -NOGROUP No such key 's' or consumer group 'nobody' in XREADGROUP with GROUP option
            ",
        );
    }

    #[test]
    fn xreadgroup_claims_idle_entries_before_new_ones() {
        check(
            "
            > XADD s 1 a 1
            $3 1-0
            > XADD s 2 b 2
            $3 2-0
            > XADD s 3 c 3
            $3 3-0
            > XGROUP CREATE s g 0
            +OK
            > XREADGROUP GROUP g ann COUNT 1 STREAMS s >
            *1 *2 $1 s *1 *2 $3 1-0 *2 $1 a $1 1
            @ +10
            > XREADGROUP GROUP g ann COUNT 1 STREAMS s >
            *1 *2 $1 s *1 *2 $3 2-0 *2 $1 b $1 2
            @ +5
            > XREADGROUP GROUP g bob CLAIM 15 COUNT 1 STREAMS s >
            *1 *2 $1 s *1 *4 $3 1-0 *2 $1 a $1 1 :15 :1
            > XPENDING s g - + 10
            *2 *4 $3 1-0 $3 bob :0 :2 *4 $3 2-0 $3 ann :5 :1
            3> XREADGROUP GROUP g bob CLAIM 5 COUNT 2 STREAMS s >
            %1 $1 s *2 *4 $3 2-0 *2 $1 b $1 2 :5 :1 *4 $3 3-0 *2 $1 c $1 3 :0 :0
            > XREADGROUP GROUP g bob CLAIM 5 STREAMS s >
            *-1
            @ +20
            > XCLAIM s g ann 0 3 IDLE 50 JUSTID
            *1 $3 3-0
            > XREADGROUP CLAIM 20 GROUP g ann STREAMS s >
            *1 *2 $1 s *3 *4 $3 3-0 *2 $1 c $1 3 :50 :1 *4 $3 1-0 *2 $1 a $1 1 :20 :2 *4 $3 2-0 *2 $1 b $1 2 :20 :2
            > XREADGROUP GROUP g ann CLAIM 0 STREAMS s 0
            *1 *2 $1 s *3 *2 $3 1-0 *2 $1 a $1 1 *2 $3 2-0 *2 $1 b $1 2 *2 $3 3-0 *2 $1 c $1 3
            > XDEL s 2
            :1
            > XACK s g 3
            :1
            > XREADGROUP GROUP g cyd CLAIM 0 NOACK STREAMS s >
            *1 *2 $1 s *1 *4 $3 1-0 *2 $1 a $1 1 :0 :4
            > XPENDING s g - + 10
            *2 *4 $3 1-0 $3 cyd :0 :5 *4 $3 2-0 $3 ann :0 :4
            > XADD s 4 d 4
            $3 4-0
            > XREADGROUP GROUP g cyd NOACK CLAIM 1 STREAMS s >
            *1 *2 $1 s *1 *4 $3 4-0 *2 $1 d $1 4 :0 :0
            > XPENDING s g
            *4 :2 $3 1-0 $3 2-0 *2 *2 $3 ann $1 1 *2 $3 cyd $1 1
            > XGROUP DELCONSUMER s g cyd
            :1
            > XREADGROUP GROUP g bob CLAIM 0 STREAMS s >
            *-1
            ",
        );
    }

    #[test]
    fn claims_are_refused_where_they_make_no_sense() {
        check(
            "
            > XADD s 1 a 1
            $3 1-0
            > XGROUP CREATE s g 0
            +OK
            > XREADGROUP GROUP g ann CLAIM 5.5 STREAMS s >
            -ERR min-idle-time is not an integer
            > XREADGROUP GROUP g ann CLAIM -0 STREAMS s >
            -ERR min-idle-time is not an integer
            > XREADGROUP GROUP g ann CLAIM STREAMS s >
            -ERR min-idle-time is not an integer
            > XREADGROUP GROUP g ann CLAIM -1 STREAMS s >
            -ERR min-idle-time must be a positive integer
            > XREADGROUP GROUP g CLAIM 5 ann STREAMS s >
            -ERR syntax error
            > XREADGROUP GROUP g ann STREAMS s > CLAIM 5
            -ERR Invalid stream ID specified as stream command argument
            > XREADGROUP GROUP g ann STREAMS s CLAIM >
            -ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.
            > XREAD COUNT 2 CLAIM 10 STREAMS s 0-0
            -ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.
            > XREADGROUP GROUP g ann CLAIM 9223372036854775807 STREAMS s >
            *1 *2 $1 s *1 *4 $3 1-0 *2 $1 a $1 1 :0 :0
            ",
        );
    }
}
