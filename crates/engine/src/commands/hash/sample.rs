//! Fields by chance.

use dunlin_resp::{Protocol, ReplyBuffer};
use dunlin_structures::Element;

use super::reply_text;
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Group, KeySpec, Run},
    commands::draw::parse_count,
    context::ReadContext,
    random::Random,
    value::Hash,
};

pub(super) const HRANDFIELD: Command = Command {
    name: "hrandfield",
    summary: "Returns fields of a hash, chosen at random.",
    since: "6.2.0",
    group: Group::Hash,
    complexity: "O(|count|)",
    arity: Arity::AtLeast(2),
    run: Run::Read(hrandfield),
    keys: &[KeySpec::at(1).accesses()],
    args: &[
        Argument::key("key"),
        Argument::block(
            "options",
            &[Argument::integer("count"), Argument::word("withvalues", "WITHVALUES").optional()],
        )
        .optional(),
    ],
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

fn hrandfield(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, now_ms) = (args.word(), context.now_ms());
    let mut random = Random::new(context.random());
    if args.is_empty() {
        let hash = context.collection::<Hash>(key)?;
        let hash = hash.as_deref();
        match hash.and_then(|hash| hash.random(now_ms, &mut random)) {
            Some((field, _)) => reply_text(reply, field),
            None => reply.null(),
        }
        return Ok(());
    }
    let count = parse_count(args);
    args.check()?;
    let with_values = args.token("WITHVALUES");
    args.finish()?;
    // A reply of twice as many elements must be countable too.
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(CommandError::text("ERR value is out of range"));
    }
    let Some(hash) = context.collection::<Hash>(key)?.filter(|_| count != 0) else {
        reply.array(0);
        return Ok(());
    };
    let wanted = count.unsigned_abs() as usize;
    context.weigh(wanted)?;
    let told = if count > 0 { wanted.min(hash.len(now_ms)) } else { wanted };
    let in_pairs = with_values && reply.protocol() == Protocol::Resp3;
    reply.array(if with_values && !in_pairs { 2 * told } else { told });
    let mut tell = |(field, value): (Element<'_>, Element<'_>)| {
        if in_pairs {
            reply.array(2);
        }
        reply_text(reply, field);
        if with_values {
            reply_text(reply, value);
        }
    };
    if count > 0 {
        hash.sample(wanted, now_ms, &mut random, |field, value| tell((field, value)));
    } else {
        for _ in 0..wanted {
            tell(hash.random(now_ms, &mut random).expect("a stored hash has fields"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn fields_are_drawn_with_or_without_values() {
        check(
            "
            > HSET h a 1
            :1
            > HRANDFIELD h
            $1 a
            > HRANDFIELD h 5
            *1 $1 a
            > HRANDFIELD h -2
            *2 $1 a $1 a
            > HRANDFIELD h -2 WITHVALUES
            *4 $1 a $1 1 $1 a $1 1
            3> HRANDFIELD h -2 WITHVALUES
            *2 *2 $1 a $1 1 *2 $1 a $1 1
            > HRANDFIELD h 0
            *0
            > HRANDFIELD missing
            $-1
            > HRANDFIELD missing 3
            *0
            > HRANDFIELD h x
            -ERR value is not an integer or out of range
            > HRANDFIELD h 1 NONSENSE
            -ERR syntax error
            > HRANDFIELD h 1 WITHVALUES WITHVALUES
            -ERR syntax error
            > HRANDFIELD h 9223372036854775807 WITHVALUES
            -ERR value is out of range
            ",
        );
    }
}
