//! Members by chance.

use dunlin_resp::ReplyBuffer;

use super::{MemberReply, reply_member};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Group, KeySpec, Run},
    commands::draw::parse_count,
    context::ReadContext,
    random::Random,
    value::SortedSet,
};

pub(super) const ZRANDMEMBER: Command = Command {
    name: "zrandmember",
    summary: "Returns members of a sorted set, chosen at random.",
    since: "6.2.0",
    group: Group::SortedSet,
    complexity: "O(|count|), with a negative count O(|count| log n) for n members",
    arity: Arity::AtLeast(2),
    run: Run::Read(zrandmember),
    keys: &[KeySpec::at(1).accesses()],
    args: &[
        Argument::key("key"),
        Argument::block(
            "options",
            &[Argument::integer("count"), Argument::word("withscores", "WITHSCORES").optional()],
        )
        .optional(),
    ],
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

fn zrandmember(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let mut random = Random::new(context.random());
    if args.is_empty() {
        let set = context.collection::<SortedSet>(key)?;
        let set = set.as_deref();
        match set.and_then(|set| set.random(&mut random)) {
            Some((member, _)) => reply_member(reply, member),
            None => reply.null(),
        }
        return Ok(());
    }
    let count = parse_count(args);
    args.check()?;
    let with_scores = args.token("WITHSCORES");
    args.finish()?;
    // A reply of twice as many elements must be countable too.
    if with_scores && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(CommandError::text("ERR value is out of range"));
    }
    let Some(set) = context.collection::<SortedSet>(key)?.filter(|_| count != 0) else {
        reply.array(0);
        return Ok(());
    };
    let wanted = count.unsigned_abs() as usize;
    context.weigh(wanted)?;
    if count > 0 {
        let mut members = MemberReply::begin(reply, wanted.min(set.len()), with_scores);
        set.sample(wanted, &mut random, |member, score| members.member(member, score));
    } else {
        let mut members = MemberReply::begin(reply, wanted, with_scores);
        for _ in 0..wanted {
            let (member, score) = set.random(&mut random).expect("a stored sorted set has members");
            members.member(member, score);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn members_are_drawn_with_or_without_scores() {
        check(
            "
            > ZADD z 1.5 a
            :1
            > ZRANDMEMBER z
            $1 a
            > ZRANDMEMBER z 5
            *1 $1 a
            > ZRANDMEMBER z -2 WITHSCORES
            *4 $1 a $3 1.5 $1 a $3 1.5
            3> ZRANDMEMBER z -2 WITHSCORES
            *2 *2 $1 a ,1.5 *2 $1 a ,1.5
            > ZRANDMEMBER z 0
            *0
            > ZRANDMEMBER missing
            $-1
            > ZRANDMEMBER missing 3
            *0
            > ZRANDMEMBER z x
            -ERR value is not an integer or out of range
            > ZRANDMEMBER z 1 NONSENSE
            -ERR syntax error
            > ZRANDMEMBER z 9223372036854775807 WITHSCORES
            -ERR value is out of range
            ",
        );
    }
}
