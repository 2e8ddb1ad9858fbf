//! How many members are in a range.

use dunlin_resp::ReplyBuffer;

use super::bounds::{LexRange, ScoreRange};
use crate::{
    command::{Args, Argument, Arity, Command, CommandResult, Flags, Group, KeySpec, Run},
    context::ReadContext,
    value::SortedSet,
};

pub(super) const ZCOUNT: Command = Command {
    name: "zcount",
    summary: "Returns how many members have scores within a range.",
    since: "2.0.0",
    group: Group::SortedSet,
    complexity: "O(log n) for n members",
    arity: Arity::Exactly(4),
    run: Run::Read(zcount),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key"), Argument::double("min"), Argument::double("max")],
    ..Command::DEFAULT
};

pub(super) const ZLEXCOUNT: Command = Command {
    name: "zlexcount",
    summary: "Returns how many members are within a range of members, where all scores are equal.",
    since: "2.8.9",
    run: Run::Read(zlexcount),
    args: &[Argument::key("key"), Argument::string("min"), Argument::string("max")],
    ..ZCOUNT
};

fn zcount(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let range = ScoreRange::parse(args.word(), args.word())?;
    let set = context.collection::<SortedSet>(key)?;
    reply.count(set.map_or(0, |set| range.ranks(&set).len()));
    Ok(())
}

fn zlexcount(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let range = LexRange::parse(args.word(), args.word())?;
    let set = context.collection::<SortedSet>(key)?;
    reply.count(set.map_or(0, |set| range.ranks(&set).len()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn counting() {
        check(
            "
            > ZADD z 1 a 2 b 2 c 3 d
            :4
            > ZCOUNT z 2 2
            :2
            > ZCOUNT z (1 (3
            :2
            > ZCOUNT z -inf +inf
            :4
            > ZCOUNT z 3 1
            :0
            > ZCOUNT z (2 2
            :0
            > ZCOUNT z 0x2 1e999
            :3
            > ZCOUNT z \" 1\" \"\"
            :0
            > ZCOUNT z x 1
            -ERR min or max is not a float
            > ZCOUNT z (nan 1
            -ERR min or max is not a float
            > ZCOUNT missing 1 2
            :0
            > ZADD l 0 a 0 b 0 c
            :3
            > ZLEXCOUNT l - +
            :3
            > ZLEXCOUNT l (a [c
            :2
            > ZLEXCOUNT l + -
            :0
            > ZLEXCOUNT l a c
            -ERR min or max not valid string range item
            > ZLEXCOUNT missing - +
            :0
            ",
        );
    }
}
