//! Questions about single members.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{
        Args, Argument, Arity, Command, CommandError, CommandResult, ElementWords, Flags, Group, KeySpec, Run,
    },
    context::ReadContext,
    value::SortedSet,
};

pub(super) const ZCARD: Command = Command {
    name: "zcard",
    summary: "Returns the number of members of a sorted set.",
    since: "1.2.0",
    group: Group::SortedSet,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    run: Run::Read(zcard),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1)],
    args: &[Argument::key("key")],
    ..Command::DEFAULT
};

pub(super) const ZSCORE: Command = Command {
    name: "zscore",
    summary: "Returns the score of a member.",
    arity: Arity::Exactly(3),
    run: Run::Read(zscore),
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key"), Argument::string("member")],
    elements: Some(ElementWords::REST),
    ..ZCARD
};

pub(super) const ZMSCORE: Command = Command {
    name: "zmscore",
    summary: "Returns the scores of members, a null for each that is not there.",
    since: "6.2.0",
    complexity: "O(n) for n members given",
    arity: Arity::AtLeast(3),
    run: Run::Read(zmscore),
    args: &[Argument::key("key"), Argument::string("member").multiple()],
    ..ZSCORE
};

pub(super) const ZRANK: Command = Command {
    name: "zrank",
    summary: "Returns the number of members that come before a member.",
    since: "2.0.0",
    complexity: "O(log n) for n members",
    arity: Arity::AtLeast(3),
    run: Run::Read(zrank),
    args: &[
        Argument::key("key"),
        Argument::string("member"),
        Argument::word("withscore", "WITHSCORE").optional().since("7.2.0"),
    ],
    ..ZSCORE
};

pub(super) const ZREVRANK: Command = Command {
    name: "zrevrank",
    summary: "Returns the number of members that come behind a member.",
    run: Run::Read(zrevrank),
    ..ZRANK
};

fn zcard(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let set = context.collection::<SortedSet>(args.word())?;
    let set = set.as_deref();
    reply.count(set.map_or(0, SortedSet::len));
    Ok(())
}

fn zscore(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let set = context.collection::<SortedSet>(args.word())?;
    let set = set.as_deref();
    reply_score(reply, set.and_then(|set| set.score(args.word())));
    Ok(())
}

fn zmscore(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let set = context.collection::<SortedSet>(args.word())?;
    let set = set.as_deref();
    let members = args.take_rest();
    reply.array(members.len());
    for member in members {
        reply_score(reply, set.and_then(|set| set.score(member)));
    }
    Ok(())
}

fn reply_score(reply: &mut ReplyBuffer, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

fn zrank(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply_rank(context, args, reply, |rank, _| rank)
}

fn zrevrank(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply_rank(context, args, reply, |rank, len| len - 1 - rank)
}

fn reply_rank(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    count: impl Fn(usize, usize) -> usize,
) -> CommandResult {
    let (key, member) = (args.word(), args.word());
    if args.remaining() > 1 {
        let name = args.words()[0].to_ascii_lowercase();
        return Err(CommandError::WrongArity(String::from_utf8_lossy(&name).into_owned()));
    }
    let with_score = args.token("WITHSCORE");
    args.finish()?;
    let set = context.collection::<SortedSet>(key)?;
    match set.and_then(|set| Some((set.rank(member)?, set.len()))) {
        Some(((rank, score), len)) => {
            if with_score {
                reply.array(2);
            }
            reply.count(count(rank, len));
            if with_score {
                reply.double(score);
            }
        }
        None if with_score => reply.null_array(),
        None => reply.null(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn scores_and_ranks() {
        check(
            "
            > ZADD z 1 a 2.5 b 2.5 c
            :3
            > ZCARD z
            :3
            > ZSCORE z b
            $3 2.5
            3> ZSCORE z b
            ,2.5
            > ZSCORE z x
            $-1
            3> ZMSCORE z a x c
            *3 ,1 _ ,2.5
            > ZMSCORE missing a
            *1 $-1
            > ZRANK z c
            :2
            > ZREVRANK z c
            :0
            > ZRANK z c WITHSCORE
            *2 :2 $3 2.5
            3> ZREVRANK z a WITHSCORE
            *2 :2 ,1
            > ZRANK z x
            $-1
            > ZRANK missing x WITHSCORE
            *-1
            3> ZRANK missing x WITHSCORE
            _
            > ZRANK z a OTHER
            -ERR syntax error
            > ZRANK z a WITHSCORE more
            -ERR wrong number of arguments for 'zrank' command
            > ZCARD missing
            :0
            > SET text v
            +OK
            > ZSCORE text a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            ",
        );
    }
}
