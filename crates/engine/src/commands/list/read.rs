//! Looking at elements.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::ListEnd;

use super::{from_front, inclusive, parse_signed_count, reply_element};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::ReadContext,
    value::List,
};

pub(super) const LLEN: Command = Command {
    name: "llen",
    summary: "Returns the length of a list.",
    since: "1.0.0",
    group: Group::List,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    run: Run::Read(llen),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1)],
    args: &[Argument::key("key")],
    ..Command::DEFAULT
};

fn llen(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let list = context.collection::<List>(args.word())?;
    reply.count(list.map_or(0, |list| list.len()));
    Ok(())
}

pub(super) const LINDEX: Command = Command {
    name: "lindex",
    summary: "Returns an element of a list by its number.",
    complexity: "O(n) for n blocks from the nearer end to the element",
    arity: Arity::Exactly(3),
    run: Run::Read(lindex),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key"), Argument::integer("index")],
    ..LLEN
};

fn lindex(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let list = context.collection::<List>(args.word())?;
    // As in Redis, the number is looked at only if there is a list.
    let Some(list) = list else {
        reply.null();
        return Ok(());
    };
    let index = args.integer();
    args.finish()?;
    match usize::try_from(from_front(index, list.len())).ok().and_then(|index| list.get(index)) {
        Some(element) => reply_element(reply, element),
        None => reply.null(),
    }
    Ok(())
}

pub(super) const LRANGE: Command = Command {
    name: "lrange",
    summary: "Returns the elements of a list from one number through another.",
    complexity: "O(s + n) for s blocks from the nearer end to the first of n elements",
    arity: Arity::Exactly(4),
    run: Run::Read(lrange),
    args: &[Argument::key("key"), Argument::integer("start"), Argument::integer("stop")],
    ..LINDEX
};

fn lrange(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, start, stop) = (args.word(), args.integer(), args.integer());
    args.finish()?;
    let Some(list) = context.collection::<List>(key)? else {
        reply.array(0);
        return Ok(());
    };
    let range = list.range(inclusive(start, stop, list.len()));
    context.weigh(range.len())?;
    reply.array(range.len());
    range.for_each(|element| reply_element(reply, element));
    Ok(())
}

pub(super) const LPOS: Command = Command {
    name: "lpos",
    summary: "Returns the numbers of elements that equal one.",
    since: "6.0.6",
    complexity: "O(n) for n elements looked at",
    arity: Arity::AtLeast(3),
    run: Run::Read(lpos),
    args: &[
        Argument::key("key"),
        Argument::string("element"),
        Argument::integer("rank").after("RANK").optional(),
        Argument::integer("num-matches").after("COUNT").optional(),
        Argument::integer("len").after("MAXLEN").optional(),
    ],
    ..LINDEX
};

fn lpos(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, text) = (args.word(), args.word());
    let search = Search::parse(args)?;
    let Some(list) = context.collection::<List>(key)? else {
        match search.count {
            Some(_) => reply.array(0),
            None => reply.null(),
        }
        return Ok(());
    };
    context.weigh(list.len().min(search.elements_max))?;
    let looked_at = list.positions(text, search.from).take(search.elements_max);
    let mut found = looked_at.flatten().skip(search.skipped);
    match search.count {
        None => match found.next() {
            Some(index) => reply.count(index),
            None => reply.null(),
        },
        Some(count) => {
            let mark = reply.mark();
            let mut told = 0;
            for index in found.take(count) {
                reply.count(index);
                told += 1;
            }
            reply.array_since(mark, told);
        }
    }
    Ok(())
}

/// The arguments of LPOS.
struct Search {
    from: ListEnd,
    /// Matches that are passed over.
    skipped: usize,
    /// The number of matches in the reply, if it is to be an array.
    count: Option<usize>,
    /// How many elements are looked at.
    elements_max: usize,
}

impl Search {
    fn parse(args: &mut Args<'_>) -> Result<Self, CommandError> {
        let mut search = Self { from: ListEnd::Front, skipped: 0, count: None, elements_max: usize::MAX };
        while !args.is_empty() {
            if args.token_with("RANK", 1) {
                let rank = parse_signed_count(args)?;
                if rank == 0 {
                    return Err(CommandError::text(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
                         negative to start from the end of the list",
                    ));
                }
                search.from = if rank < 0 { ListEnd::Back } else { ListEnd::Front };
                search.skipped = rank.unsigned_abs() as usize - 1;
            } else if args.token_with("COUNT", 1) {
                search.count = Some(or_all(args, "ERR COUNT can't be negative"));
            } else if args.token_with("MAXLEN", 1) {
                search.elements_max = or_all(args, "ERR MAXLEN can't be negative");
            } else {
                return Err(CommandError::Syntax);
            }
            args.check()?;
        }
        Ok(search)
    }
}

/// A number that is not negative; 0 stands for all there is.
fn or_all(args: &mut Args<'_>, error: &'static str) -> usize {
    match args.integer_in(0..=i64::MAX, CommandError::text(error)) {
        0 => usize::MAX,
        count => count as usize,
    }
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn elements_are_found_by_number() {
        check(
            "
            > RPUSH l a 1 -7 99999999999 a
            :5
            > LLEN l
            :5
            > LLEN missing
            :0
            > LINDEX l 0
            $1 a
            > LINDEX l -2
            $11 99999999999
            > LINDEX l 5
            $-1
            3> LINDEX l -6
            _
            > LINDEX l 9223372036854775807
            $-1
            > LINDEX l -9223372036854775808
            $-1
            > LINDEX missing x
            $-1
            > LINDEX l x
            -ERR value is not an integer or out of range
            > LRANGE l 1 2
            *2 $1 1 $2 -7
            > LRANGE l -2 100
            *2 $11 99999999999 $1 a
            > LRANGE l 3 1
            *0
            > LRANGE l 5 9
            *0
            > LRANGE l -9223372036854775808 0
            *1 $1 a
            > LRANGE l 0 9223372036854775807
            *5 $1 a $1 1 $2 -7 $11 99999999999 $1 a
            > LRANGE l 0 -6
            *0
            > LRANGE missing 0 -1
            *0
            > LRANGE missing 0 x
            -ERR value is not an integer or out of range
            ",
        );
    }

    #[test]
    fn elements_are_found_by_their_text() {
        check(
            "
            > RPUSH l a b c 1 2 3 c c
            :8
            > LPOS l c
            :2
            > LPOS l 2
            :4
            > LPOS l x
            $-1
            3> LPOS l x
            _
            > LPOS l c RANK 2
            :6
            > LPOS l c RANK -1
            :7
            > LPOS l c COUNT 0
            *3 :2 :6 :7
            > LPOS l c COUNT 2 RANK -1
            *2 :7 :6
            > LPOS l c COUNT 1 RANK 4
            *0
            > LPOS l c COUNT 0 MAXLEN 7
            *2 :2 :6
            > LPOS l c MAXLEN 2
            $-1
            > LPOS l c RANK -1 MAXLEN 1
            :7
            > LPOS missing c
            $-1
            > LPOS missing c COUNT 1
            *0
            > LPOS l c RANK 0
            -ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list
            > LPOS l c COUNT -1
            -ERR COUNT can't be negative
            > LPOS l c MAXLEN -1
            -ERR MAXLEN can't be negative
            > LPOS l c RANK x
            -ERR value is not an integer or out of range
            > LPOS l c RANK -9223372036854775808
            -ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807
            > LPOS l c RANK
            -ERR syntax error
            > LPOS missing c NONSENSE
            -ERR syntax error
            ",
        );
    }

    #[test]
    fn reads_of_other_types_are_refused() {
        check(
            "
            > SET text v
            +OK
            > LLEN text
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > LINDEX text x
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > LRANGE text 0 1
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > LPOS text c
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > LLEN
            -ERR wrong number of arguments for 'llen' command
            ",
        );
    }
}
