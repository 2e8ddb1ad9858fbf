//! Ranges of members: by rank, by score or by member, in either direction.
//!
//! All of these commands are one: they differ in the properties that their name fixes.

use std::ops::Range;

use dunlin_resp::{ReplyBuffer, number::parse_integer};

use super::{
    MemberReply,
    bounds::{LexRange, ScoreRange, index_ranks},
    set_of,
};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ExpiryChange, ReadContext, WriteContext},
    keyspace::EntryRef,
    notify::EventClass,
    value::{Gathered, SortedSet},
};

const LIMIT: Argument = Argument::block("limit", &[Argument::integer("offset"), Argument::integer("count")])
    .after("LIMIT")
    .optional();
const WITHSCORES: Argument = Argument::word("withscores", "WITHSCORES").optional();
const SORT_BY: Argument =
    Argument::one_of("sortby", &[Argument::word("byscore", "BYSCORE"), Argument::word("bylex", "BYLEX")])
        .optional()
        .since("6.2.0");
const REV: Argument = Argument::word("rev", "REV").optional().since("6.2.0");

pub(super) const ZRANGE: Command = Command {
    name: "zrange",
    summary: "Returns the members within a range of ranks, scores or members.",
    since: "1.2.0",
    group: Group::SortedSet,
    complexity: "O(log n + m) for m members returned of n",
    arity: Arity::AtLeast(4),
    run: Run::Read(zrange),
    keys: &[KeySpec::at(1).accesses()],
    args: &[
        Argument::key("key"),
        Argument::string("start"),
        Argument::string("stop"),
        SORT_BY,
        REV,
        LIMIT,
        WITHSCORES,
    ],
    ..Command::DEFAULT
};

pub(super) const ZREVRANGE: Command = Command {
    name: "zrevrange",
    summary: "Returns the members within a range of ranks, the highest first.",
    run: Run::Read(zrevrange),
    args: &[Argument::key("key"), Argument::integer("start"), Argument::integer("stop"), WITHSCORES],
    ..ZRANGE
};

pub(super) const ZRANGEBYSCORE: Command = Command {
    name: "zrangebyscore",
    summary: "Returns the members with scores within a range.",
    since: "1.0.5",
    run: Run::Read(zrangebyscore),
    args: &[Argument::key("key"), Argument::double("min"), Argument::double("max"), WITHSCORES, LIMIT],
    ..ZRANGE
};

pub(super) const ZREVRANGEBYSCORE: Command = Command {
    name: "zrevrangebyscore",
    summary: "Returns the members with scores within a range, the highest first.",
    since: "2.2.0",
    run: Run::Read(zrevrangebyscore),
    args: &[Argument::key("key"), Argument::double("max"), Argument::double("min"), WITHSCORES, LIMIT],
    ..ZRANGE
};

pub(super) const ZRANGEBYLEX: Command = Command {
    name: "zrangebylex",
    summary: "Returns the members within a range of members, where all scores are equal.",
    since: "2.8.9",
    run: Run::Read(zrangebylex),
    args: &[Argument::key("key"), Argument::string("min"), Argument::string("max"), LIMIT],
    ..ZRANGE
};

pub(super) const ZREVRANGEBYLEX: Command = Command {
    name: "zrevrangebylex",
    summary: "Returns the members within a range of members, the last first, where all scores are equal.",
    run: Run::Read(zrevrangebylex),
    args: &[Argument::key("key"), Argument::string("max"), Argument::string("min"), LIMIT],
    ..ZRANGEBYLEX
};

pub(super) const ZRANGESTORE: Command = Command {
    name: "zrangestore",
    summary: "Stores the members within a range of ranks, scores or members.",
    since: "6.2.0",
    complexity: "O(log n + m log m) for m members stored of n",
    arity: Arity::AtLeast(5),
    run: Run::Write(zrangestore),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).overwrite().updates(), KeySpec::at(2).accesses()],
    args: &[
        Argument::key("dst"),
        Argument::key("src").key_spec(1),
        Argument::string("min"),
        Argument::string("max"),
        SORT_BY,
        REV,
        LIMIT,
    ],
    ..ZRANGE
};

/// The unit of a range's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// The properties that a command's name fixes; `None` if options say it.
#[derive(Debug, Clone, Copy)]
struct Fixed {
    by: Option<By>,
    reverse: Option<bool>,
    /// Whether WITHSCORES is an option.
    scores: bool,
}

#[derive(Debug, Clone, Copy)]
enum Bounds<'a> {
    Ranks(i64, i64),
    Scores(ScoreRange),
    Members(LexRange<'a>),
}

/// A range as it was asked for.
#[derive(Debug)]
struct Query<'a> {
    bounds: Bounds<'a>,
    reverse: bool,
    offset: i64,
    /// How many members at most; negative: all.
    count: i64,
    scores: bool,
}

impl<'a> Query<'a> {
    /// Reads the bounds and the options behind the keys.
    fn parse(args: &mut Args<'a>, fixed: Fixed) -> Result<Self, CommandError> {
        let (low, high) = (args.word(), args.word());
        let Fixed { mut by, mut reverse, .. } = fixed;
        let (mut offset, mut count, mut scores) = (0, -1, false);
        while !args.is_empty() {
            if fixed.scores && args.token("WITHSCORES") {
                scores = true;
            } else if args.token_with("LIMIT", 2) {
                (offset, count) = (args.integer(), args.integer());
                args.check()?;
            } else if reverse.is_none() && args.token("REV") {
                reverse = Some(true);
            } else if by.is_none() && args.token("BYLEX") {
                by = Some(By::Lex);
            } else if by.is_none() && args.token("BYSCORE") {
                by = Some(By::Score);
            } else {
                return Err(CommandError::Syntax);
            }
        }
        let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
        if count != -1 && by == By::Rank {
            return Err(CommandError::text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if scores && by == By::Lex {
            return Err(CommandError::text(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        // The highest bound comes first if the highest member does.
        let (low, high) = if reverse && by != By::Rank { (high, low) } else { (low, high) };
        let bounds = match by {
            By::Rank => {
                let index = |word| parse_integer(word).ok_or(CommandError::NotInteger);
                Bounds::Ranks(index(low)?, index(high)?)
            }
            By::Score => Bounds::Scores(ScoreRange::parse(low, high)?),
            By::Lex => Bounds::Members(LexRange::parse(low, high)?),
        };
        Ok(Self { bounds, reverse, offset, count, scores })
    }

    /// The ranks of the members asked for.
    fn ranks(&self, set: &SortedSet) -> Range<usize> {
        let ranks = match self.bounds {
            Bounds::Ranks(start, end) => {
                let ranks = index_ranks(start, end, set.len());
                if !self.reverse {
                    return ranks;
                }
                return set.len() - ranks.end..set.len() - ranks.start;
            }
            Bounds::Scores(range) => range.ranks(set),
            Bounds::Members(range) => range.ranks(set),
        };
        // A negative offset leaves nothing, as in Redis.
        let skipped = usize::try_from(self.offset).unwrap_or(usize::MAX).min(ranks.len());
        let count = usize::try_from(self.count).unwrap_or(usize::MAX).min(ranks.len() - skipped);
        if self.reverse {
            let end = ranks.end - skipped;
            end - count..end
        } else {
            let start = ranks.start + skipped;
            start..start + count
        }
    }
}

fn zrange(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    answer(context, args, reply, None, None)
}

fn zrevrange(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    answer(context, args, reply, Some(By::Rank), Some(true))
}

fn zrangebyscore(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    answer(context, args, reply, Some(By::Score), Some(false))
}

fn zrevrangebyscore(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    answer(context, args, reply, Some(By::Score), Some(true))
}

fn zrangebylex(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    answer(context, args, reply, Some(By::Lex), Some(false))
}

fn zrevrangebylex(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    answer(context, args, reply, Some(By::Lex), Some(true))
}

fn answer(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    by: Option<By>,
    reverse: Option<bool>,
) -> CommandResult {
    let key = args.word();
    let query = Query::parse(args, Fixed { by, reverse, scores: true })?;
    let Some(set) = context.collection::<SortedSet>(key)? else {
        reply.array(0);
        return Ok(());
    };
    let ranks = query.ranks(&set);
    context.weigh(ranks.len())?;
    let mut members = MemberReply::begin(reply, ranks.len(), query.scores);
    set.for_range(ranks, query.reverse, |member, score| members.member(member, score));
    Ok(())
}

fn zrangestore(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let (destination, source) = (args.word(), args.word());
    let query = Query::parse(args, Fixed { by: None, reverse: None, scores: false })?;
    context.check_entries(&[source], |entry| set_of(entry).map(drop).ok_or(CommandError::WrongType))?;
    let elements = |entries: &[Option<EntryRef<'_>>]| {
        entries[0].and_then(set_of).map_or(0, |set| query.ranks(&set).len())
    };
    let result = context.compute(&[source], elements, |entries, layout| {
        let (limits, mut told, mut is_compact) = (layout.limits, 0, true);
        let mut gathered = Gathered::new(layout);
        if let Some(set) = entries[0].and_then(set_of) {
            set.for_range(query.ranks(&set), query.reverse, |member, score| {
                let text = member.text();
                told += 1;
                is_compact &=
                    told <= limits.zset_max_listpack_entries && text.len() <= limits.zset_max_listpack_value;
                // Redis adds them one by one: a listpack, as long as it is one, forgets the sign of a zero.
                gathered.add(&text, |_| if is_compact { score + 0.0 } else { score });
            });
        }
        gathered.finish(layout)
    })?;
    store(context, destination, result, "zrangestore", reply);
    Ok(())
}

/// Stores the result of a command, reports it, and answers how many members it has.
pub(in crate::commands) fn store(
    context: &mut WriteContext<'_>,
    destination: &[u8],
    result: SortedSet,
    event: &'static str,
    reply: &mut ReplyBuffer,
) {
    reply.count(result.len());
    if result.is_empty() {
        if context.remove(destination) {
            context.notify(EventClass::Generic, "del", destination);
        }
        return;
    }
    context.set_collection(destination, result, ExpiryChange::Clear);
    context.notify(EventClass::SortedSet, event, destination);
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn stored_zeros_lose_their_sign_while_the_result_is_compact() {
        let long = "m".repeat(65);
        check(&format!(
            "
            > ZADD z 1 a 1 b 1 {long} 1 n
            :4
            > ZUNIONSTORE u 1 z WEIGHTS -0
            :4
            > ZRANGESTORE d u 0 -1
            :4
            > ZRANGE d 0 -1 WITHSCORES
            *8 $1 a $1 0 $1 b $1 0 $65 {long} $2 -0 $1 n $2 -0
            "
        ));
    }

    #[test]
    fn zrange_by_rank() {
        check(
            "
            > ZADD z 1 a 2 b 3 c
            :3
            > ZRANGE z 0 -1
            *3 $1 a $1 b $1 c
            > ZRANGE z 0 0 REV WITHSCORES
            *2 $1 c $1 3
            3> ZRANGE z 1 5 WITHSCORES
            *2 *2 $1 b ,2 *2 $1 c ,3
            > ZREVRANGE z 0 1
            *2 $1 c $1 b
            > ZRANGE z -2 -2
            *1 $1 b
            > ZRANGE z 2 1
            *0
            > ZRANGE z -9223372036854775808 9223372036854775807
            *3 $1 a $1 b $1 c
            > ZRANGE missing 0 -1
            *0
            > ZRANGE z x 1
            -ERR value is not an integer or out of range
            > ZRANGE z 0 1 LIMIT 0 1
            -ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX
            > ZRANGE z 0 1 BYRANK
            -ERR syntax error
            ",
        );
    }

    #[test]
    fn zrange_by_score() {
        check(
            "
            > ZADD z 1 a 2 b 2 c 3 d
            :4
            > ZRANGEBYSCORE z (1 3
            *3 $1 b $1 c $1 d
            > ZRANGEBYSCORE z -inf +inf WITHSCORES LIMIT 1 2
            *4 $1 b $1 2 $1 c $1 2
            > ZREVRANGEBYSCORE z 3 (1 LIMIT 1 1
            *1 $1 c
            > ZRANGE z 3 1 BYSCORE REV LIMIT 1 -1
            *3 $1 c $1 b $1 a
            > ZRANGE z 1 3 BYSCORE LIMIT -1 2
            *0
            > ZRANGEBYSCORE z 1 3 BYSCORE
            -ERR syntax error
            > ZRANGEBYSCORE z a 3
            -ERR min or max is not a float
            ",
        );
    }

    #[test]
    fn zrange_by_member() {
        check(
            "
            > ZADD z 0 a 0 b 0 c 0 d
            :4
            > ZRANGEBYLEX z - (c
            *2 $1 a $1 b
            > ZREVRANGEBYLEX z + [b LIMIT 0 2
            *2 $1 d $1 c
            > ZRANGE z [d [b BYLEX REV
            *3 $1 d $1 c $1 b
            > ZRANGE z - + BYLEX WITHSCORES
            -ERR syntax error, WITHSCORES not supported in combination with BYLEX
            > ZRANGEBYLEX z a +
            -ERR min or max not valid string range item
            > SET text v
            +OK
            > ZRANGEBYLEX text - +
            -WRONGTYPE Operation against a key holding the wrong kind of value
            ",
        );
    }

    #[test]
    fn storing() {
        check(
            "
            > ZADD z 1 a 2 b 3 c
            :3
            > SET d text EX 10
            +OK
            > ZRANGESTORE d z 0 1 REV
            :2
            > ZRANGE d 0 -1 WITHSCORES
            *4 $1 b $1 2 $1 c $1 3
            > TTL d
            :-1
            > ZRANGESTORE z z (1 +inf BYSCORE
            :2
            > ZRANGESTORE d missing 0 -1
            :0
            > EXISTS d
            :0
            > ZRANGESTORE d z 0 1 WITHSCORES
            -ERR syntax error
            ",
        );
    }
}
