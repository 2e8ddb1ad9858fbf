//! Removing members, by name or by range.

use std::ops::Range;

use dunlin_resp::ReplyBuffer;

use super::{
    bounds::{LexRange, ScoreRange, index_ranks},
    notify_removal,
};
use crate::{
    command::{Args, Argument, Arity, Command, CommandResult, ElementWords, Flags, Group, KeySpec, Run},
    context::WriteContext,
    value::SortedSet,
};

pub(super) const ZREM: Command = Command {
    name: "zrem",
    summary: "Removes members from a sorted set; the last one takes the sorted set with it.",
    since: "1.2.0",
    group: Group::SortedSet,
    complexity: "O(m log n) for m members given, with n members in the sorted set",
    arity: Arity::AtLeast(3),
    run: Run::Write(zrem),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().deletes()],
    args: &[Argument::key("key"), Argument::string("member").multiple()],
    elements: Some(ElementWords::REST),
    ..Command::DEFAULT
};

pub(super) const ZREMRANGEBYRANK: Command = Command {
    name: "zremrangebyrank",
    summary: "Removes the members with ranks within a range.",
    since: "2.0.0",
    complexity: "O(m log n) for m members removed of n",
    arity: Arity::Exactly(4),
    run: Run::Write(zremrangebyrank),
    flags: Flags::NONE,
    args: &[Argument::key("key"), Argument::integer("start"), Argument::integer("stop")],
    elements: None,
    ..ZREM
};

pub(super) const ZREMRANGEBYSCORE: Command = Command {
    name: "zremrangebyscore",
    summary: "Removes the members with scores within a range.",
    since: "1.2.0",
    run: Run::Write(zremrangebyscore),
    args: &[Argument::key("key"), Argument::double("min"), Argument::double("max")],
    ..ZREMRANGEBYRANK
};

pub(super) const ZREMRANGEBYLEX: Command = Command {
    name: "zremrangebylex",
    summary: "Removes the members within a range of members, where all scores are equal.",
    since: "2.8.9",
    run: Run::Write(zremrangebylex),
    args: &[Argument::key("key"), Argument::string("min"), Argument::string("max")],
    ..ZREMRANGEBYRANK
};

fn zrem(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, members) = (args.word(), args.take_rest());
    let layout = context.layout();
    let removed = context.update(key, |set: &mut SortedSet| {
        let removed = members.iter().filter(|member| set.remove(member).is_some()).count();
        set.settle(layout);
        ((removed, set.is_empty()), removed > 0)
    })?;
    let (removed, is_empty) = removed.unwrap_or_default();
    context.count_changes(removed);
    if removed > 0 {
        notify_removal(context, "zrem", key, is_empty);
    }
    reply.count(removed);
    Ok(())
}

fn zremrangebyrank(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let (key, start, end) = (args.word(), args.integer(), args.integer());
    args.check()?;
    remove_range(context, key, "zremrangebyrank", reply, |set| index_ranks(start, end, set.len()))
}

fn zremrangebyscore(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let key = args.word();
    let range = ScoreRange::parse(args.word(), args.word())?;
    remove_range(context, key, "zremrangebyscore", reply, |set| range.ranks(set))
}

fn zremrangebylex(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let key = args.word();
    let range = LexRange::parse(args.word(), args.word())?;
    remove_range(context, key, "zremrangebylex", reply, |set| range.ranks(set))
}

fn remove_range(
    context: &mut WriteContext<'_>,
    key: &[u8],
    event: &'static str,
    reply: &mut ReplyBuffer,
    ranks: impl FnOnce(&SortedSet) -> Range<usize>,
) -> CommandResult {
    let layout = context.layout();
    let removed = context.update(key, |set: &mut SortedSet| {
        let ranks = ranks(set);
        let removed = ranks.len();
        set.remove_range(ranks);
        set.settle(layout);
        ((removed, set.is_empty()), removed > 0)
    })?;
    let (removed, is_empty) = removed.unwrap_or_default();
    context.count_changes(removed);
    if removed > 0 {
        notify_removal(context, event, key, is_empty);
    }
    reply.count(removed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn removing() {
        check(
            "
            > ZADD z 1 a 2 b 3 c 4 d 5 e
            :5
            > ZREM z a x a
            :1
            > ZREMRANGEBYRANK z -1 -1
            :1
            > ZREMRANGEBYSCORE z (2 3
            :1
            > ZRANGE z 0 -1
            *2 $1 b $1 d
            > ZREMRANGEBYRANK z 5 9
            :0
            > ZREMRANGEBYRANK z 0 -1
            :2
            > EXISTS z
            :0
            > ZADD l 0 a 0 b 0 c
            :3
            > ZREMRANGEBYLEX l - (c
            :2
            > ZREM l c
            :1
            > EXISTS l
            :0
            > ZREM missing a
            :0
            > ZREMRANGEBYRANK missing x 0
            -ERR value is not an integer or out of range
            > ZREMRANGEBYSCORE missing x 0
            -ERR min or max is not a float
            > ZREMRANGEBYLEX missing x +
            -ERR min or max not valid string range item
            ",
        );
    }
}
