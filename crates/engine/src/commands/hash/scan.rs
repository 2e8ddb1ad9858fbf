//! Walking a hash.

use dunlin_resp::ReplyBuffer;

use super::reply_text;
use crate::{
    command::{Args, Argument, Arity, Command, CommandResult, Group, KeySpec, Run},
    commands::scan::{Omission, scan_collection},
    context::ReadContext,
    value::Hash,
};

pub(super) const HSCAN: Command = Command {
    name: "hscan",
    summary: "Returns some fields of a hash, with their values unless told otherwise, and a cursor to go on from.",
    since: "2.8.0",
    group: Group::Hash,
    complexity: "O(COUNT) a call; O(n) for n fields from the first call to the last",
    arity: Arity::AtLeast(3),
    run: Run::Read(hscan),
    keys: &[KeySpec::at(1).accesses()],
    args: &[
        Argument::key("key"),
        Argument::integer("cursor"),
        Argument::pattern("pattern").after("MATCH").optional(),
        Argument::integer("count").after("COUNT").optional(),
        Argument::word("novalues", "NOVALUES").optional(),
    ],
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

fn hscan(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let now_ms = context.now_ms();
    let len = |hash: &Hash| hash.len(now_ms);
    scan_collection(context, args, reply, Omission::Values, len, |hash, cursor, found| {
        hash.scan(cursor, now_ms, |field, value| {
            found.element(field, Some(|reply: &mut ReplyBuffer| reply_text(reply, value)));
        })
    })
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn compact_hashes_are_told_at_once() {
        check(
            "
            > HSET h one 1 two 2 three 3
            :3
            > HSCAN h 0 COUNT 1
            *2 $1 0 *6 $3 one $1 1 $3 two $1 2 $5 three $1 3
            > HSCAN h 0 MATCH t*
            *2 $1 0 *4 $3 two $1 2 $5 three $1 3
            > HSCAN h 0 NOVALUES MATCH t*
            *2 $1 0 *2 $3 two $5 three
            > HSCAN missing 0
            *2 $1 0 *0
            > HSCAN h x
            -ERR invalid cursor
            > HSCAN h 0 NONSENSE
            -ERR syntax error
            ",
        );
    }
}
