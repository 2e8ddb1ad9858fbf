//! Walking a sorted set.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandResult, Group, KeySpec, Run},
    commands::scan::{Omission, scan_collection},
    context::ReadContext,
    value::SortedSet,
};

pub(super) const ZSCAN: Command = Command {
    name: "zscan",
    summary: "Returns some members of a sorted set, with their scores unless told otherwise, and a cursor to go on from.",
    since: "2.8.0",
    group: Group::SortedSet,
    complexity: "O(COUNT) a call; O(n) for n members from the first call to the last",
    arity: Arity::AtLeast(3),
    run: Run::Read(zscan),
    keys: &[KeySpec::at(1).accesses()],
    args: &[
        Argument::key("key"),
        Argument::integer("cursor"),
        Argument::pattern("pattern").after("MATCH").optional(),
        Argument::integer("count").after("COUNT").optional(),
        Argument::word("noscores", "NOSCORES").optional(),
    ],
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

fn zscan(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    scan_collection(context, args, reply, Omission::Scores, SortedSet::len, |set, cursor, found| {
        set.scan(cursor, |member, score| {
            found.element(member, Some(|reply: &mut ReplyBuffer| reply.double(score)));
        })
    })
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn compact_sorted_sets_are_told_at_once() {
        check(
            "
            > ZADD z 1 one 2.5 two 3 three
            :3
            3> ZSCAN z 0 COUNT 1
            *2 $1 0 *6 $3 one $1 1 $3 two $3 2.5 $5 three $1 3
            > ZSCAN z 0 MATCH t* NOSCORES
            *2 $1 0 *2 $3 two $5 three
            > ZSCAN missing 0
            *2 $1 0 *0
            > ZSCAN z 0 NOVALUES
            -ERR NOVALUES option can only be used in HSCAN
            > HSET h f v
            :1
            > HSCAN h 0 NOSCORES
            -ERR NOSCORES option can only be used in ZSCAN
            > ZSCAN z 0 NONSENSE
            -ERR syntax error
            ",
        );
    }
}
