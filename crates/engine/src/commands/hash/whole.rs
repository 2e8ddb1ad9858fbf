//! Whole hashes.

use dunlin_resp::ReplyBuffer;

use super::reply_text;
use crate::{
    command::{Args, Argument, Arity, Command, CommandResult, Flags, Group, KeySpec, Run},
    context::ReadContext,
    value::Hash,
};

pub(super) const HGETALL: Command = Command {
    name: "hgetall",
    summary: "Returns all fields of a hash with their values.",
    since: "2.0.0",
    group: Group::Hash,
    complexity: "O(n) for n fields",
    arity: Arity::Exactly(2),
    run: Run::Read(hgetall),
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key")],
    tips: &["nondeterministic_output_order"],
    ..Command::DEFAULT
};

fn hgetall(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (hash, now_ms) = (context.collection::<Hash>(args.word())?, context.now_ms());
    let hash = hash.as_deref();
    context.weigh(hash.map_or(0, |hash| hash.len(now_ms)))?;
    reply.map(hash.map_or(0, |hash| hash.len(now_ms)));
    if let Some(hash) = hash {
        hash.for_each(now_ms, |field, value| {
            reply_text(reply, field);
            reply_text(reply, value);
        });
    }
    Ok(())
}

pub(super) const HKEYS: Command =
    Command { name: "hkeys", summary: "Returns all fields of a hash.", run: Run::Read(hkeys), ..HGETALL };

fn hkeys(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (hash, now_ms) = (context.collection::<Hash>(args.word())?, context.now_ms());
    let hash = hash.as_deref();
    context.weigh(hash.map_or(0, |hash| hash.len(now_ms)))?;
    reply.array(hash.map_or(0, |hash| hash.len(now_ms)));
    if let Some(hash) = hash {
        hash.for_each(now_ms, |field, _| reply_text(reply, field));
    }
    Ok(())
}

pub(super) const HVALS: Command = Command {
    name: "hvals",
    summary: "Returns the values of all fields of a hash.",
    run: Run::Read(hvals),
    ..HGETALL
};

fn hvals(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (hash, now_ms) = (context.collection::<Hash>(args.word())?, context.now_ms());
    let hash = hash.as_deref();
    context.weigh(hash.map_or(0, |hash| hash.len(now_ms)))?;
    reply.array(hash.map_or(0, |hash| hash.len(now_ms)));
    if let Some(hash) = hash {
        hash.for_each(now_ms, |_, value| reply_text(reply, value));
    }
    Ok(())
}

pub(super) const HLEN: Command = Command {
    name: "hlen",
    summary: "Returns the number of fields of a hash.",
    complexity: "O(1)",
    run: Run::Read(hlen),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1)],
    tips: &[],
    ..HGETALL
};

fn hlen(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (hash, now_ms) = (context.collection::<Hash>(args.word())?, context.now_ms());
    let hash = hash.as_deref();
    reply.count(hash.map_or(0, |hash| hash.len(now_ms)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn hgetall_hkeys_hvals_give_the_whole_hash() {
        check(
            "
            > HSET h a 1 b two
            :2
            > HGETALL h
            *4 $1 a $1 1 $1 b $3 two
            3> HGETALL h
            %2 $1 a $1 1 $1 b $3 two
            > HKEYS h
            *2 $1 a $1 b
            3> HVALS h
            *2 $1 1 $3 two
            > HLEN h
            :2
            > HLEN missing
            :0
            > HKEYS missing
            *0
            3> HGETALL missing
            %0
            > HGETALL missing
            *0
            > SET text v
            +OK
            > HGETALL text
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > HLEN text
            -WRONGTYPE Operation against a key holding the wrong kind of value
            ",
        );
    }
}
