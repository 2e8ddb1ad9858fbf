//! The length, count and layout of an array.

use dunlin_resp::ReplyBuffer;

use super::reply_index;
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::ReadContext,
    value::Array,
};

pub(super) const ARLEN: Command = Command {
    name: "arlen",
    summary: "Returns the largest index of an array that has a value, and one more.",
    since: "8.8.0",
    group: Group::Array,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    run: Run::Read(arlen),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key")],
    ..Command::DEFAULT
};

fn arlen(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let array = context.collection::<Array>(args.word())?;
    reply_index(reply, array.map_or(0, |array| array.len()));
    Ok(())
}

pub(super) const ARCOUNT: Command = Command {
    name: "arcount",
    summary: "Returns the number of values in an array.",
    run: Run::Read(arcount),
    ..ARLEN
};

fn arcount(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let array = context.collection::<Array>(args.word())?;
    reply_index(reply, array.map_or(0, |array| array.count()));
    Ok(())
}

pub(super) const ARINFO: Command = Command {
    name: "arinfo",
    summary: "Describes an array and how it is stored.",
    arity: Arity::AtLeast(2),
    run: Run::Read(arinfo),
    flags: Flags::NONE,
    args: &[Argument::key("key"), Argument::word("full", "FULL").optional()],
    ..ARLEN
};

fn arinfo(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let is_full = args.token("FULL");
    args.finish()?;
    let array = context.collection::<Array>(key)?.ok_or(CommandError::NoSuchKey)?;
    let next = array.cursor().filter(|last| *last < Array::INDEX_MAX).map_or(0, |last| last + 1);
    let pages = array.pages() as u64;
    let numbers = [
        ("count", array.count()),
        ("len", array.len()),
        ("next-insert-index", next),
        // Of Redis's form of arrays there are no directories here: the pages stand for its slices.
        ("slices", pages),
        ("directory-size", pages),
        ("super-dir-entries", 0),
        ("slice-size", Array::PAGE_VALUES_MAX as u64),
    ];
    reply.map(if is_full { 12 } else { 7 });
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply_index(reply, number);
    }
    if is_full {
        for (name, number) in [("dense-slices", pages), ("sparse-slices", 0)] {
            reply.bulk(name.as_bytes());
            reply_index(reply, number);
        }
        let average = array.count() as f64 / pages as f64;
        let fill = average / Array::PAGE_VALUES_MAX as f64;
        for (name, number) in
            [("avg-dense-size", average), ("avg-dense-fill", fill), ("avg-sparse-size", 0.0)]
        {
            reply.bulk(name.as_bytes());
            reply.double(number);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn arinfo_describes_an_array() {
        check(
            "
            > ARMSET a 0 x 1 y 100 z
            :3
            3> ARINFO a
            %7 $5 count :3 $3 len :101 $17 next-insert-index :0 $6 slices :1 $14 directory-size :1 $17 super-dir-entries :0 $10 slice-size :64
            > ARINSERT a v
            :0
            > ARINFO a FULL
            *24 $5 count :3 $3 len :101 $17 next-insert-index :1 $6 slices :1 $14 directory-size :1 $17 super-dir-entries :0 $10 slice-size :64 $12 dense-slices :1 $13 sparse-slices :0 $14 avg-dense-size $1 3 $14 avg-dense-fill $8 0.046875 $15 avg-sparse-size $1 0
            > ARINFO a WHOLE
            -ERR syntax error
            > ARINFO missing
            -ERR no such key
            > ARLEN missing
            :0
            > ARCOUNT missing
            :0
            ",
        );
    }
}
