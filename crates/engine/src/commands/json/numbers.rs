//! Commands that change numbers, truth values and strings.

use dunlin_json::{
    operations::{self, Answer, Arithmetic, Refusal},
    parse,
};
use dunlin_resp::ReplyBuffer;

use super::{NO_SUCH_KEY, paths::compiled, refused, reply, set::WRITER, write::Change};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Run},
    context::WriteContext,
};

/// Whether a writer has changed any match.
pub(super) fn has_changed<T>(answer: &Answer<T>) -> bool {
    match answer {
        Answer::One(_) => true,
        Answer::Each(each) => each.iter().any(Option::is_some),
    }
}

pub(super) const NUMINCRBY: Command = Command {
    name: "json.numincrby",
    summary: "Adds a number to the numbers at a path of a document, and returns the new ones.",
    complexity: "O(1), and O(n) for the document if the path may match several values",
    arity: Arity::Exactly(4),
    run: Run::Write(numincrby),
    args: &[Argument::key("key"), Argument::string("path"), Argument::double("value")],
    ..WRITER
};

fn numincrby(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    arithmetic(context, args, reply, Arithmetic::Add, "json.numincrby")
}

pub(super) const NUMMULTBY: Command = Command {
    name: "json.nummultby",
    summary: "Multiplies the numbers at a path of a document by a number, and returns the new ones.",
    run: Run::Write(nummultby),
    ..NUMINCRBY
};

fn nummultby(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    arithmetic(context, args, reply, Arithmetic::Multiply, "json.nummultby")
}

pub(super) const NUMPOWBY: Command = Command {
    name: "json.numpowby",
    summary: "Raises the numbers at a path of a document to a power, and returns the new ones.",
    run: Run::Write(numpowby),
    ..NUMINCRBY
};

fn numpowby(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    arithmetic(context, args, reply, Arithmetic::Power, "json.numpowby")
}

fn arithmetic(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    operation: Arithmetic,
    event: &'static str,
) -> CommandResult {
    let (key, path, word) = (args.word(), compiled(args.word())?, args.word());
    let change = Change { key, path: &path, event, parsed_bytes: word.len(), frees: false };
    let numbers = change.run(context, None, |document| {
        let operand = operations::operand(word).map_err(|refusal| match refusal {
            Refusal::Text(_) => CommandError::owned(format!("ERR {refusal}")),
            _ => refused(refusal),
        })?;
        let numbers = operations::arithmetic(document, &path, operation, operand).map_err(refused)?;
        let changed = has_changed(&numbers);
        Ok((numbers, changed))
    })?;
    reply::numbers(reply, numbers.ok_or(NO_SUCH_KEY)?);
    Ok(())
}

pub(super) const TOGGLE: Command = Command {
    name: "json.toggle",
    summary: "Negates the truth values at a path of a document, and returns the new ones.",
    arity: Arity::AtLeast(2),
    run: Run::Write(toggle),
    flags: Flags::DENY_OOM,
    args: &[Argument::key("key"), Argument::string("path").optional()],
    ..NUMINCRBY
};

fn toggle(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, path) = (args.word(), compiled(args.optional().unwrap_or(b"."))?);
    args.finish()?;
    let change = Change { key, path: &path, event: "json.toggle", parsed_bytes: 0, frees: false };
    let toggled = change.run(context, None, |document| {
        let toggled = operations::toggle(document, &path).map_err(refused)?;
        let changed = has_changed(&toggled);
        Ok((toggled, changed))
    })?;
    match toggled.ok_or(NO_SUCH_KEY)? {
        Answer::One(value) => reply.bulk(if value { b"true" } else { b"false" }),
        each => reply::answer(reply, each, |reply, value| reply.integer(value.into())),
    }
    Ok(())
}

pub(super) const STRAPPEND: Command = Command {
    name: "json.strappend",
    summary: "Appends a string to the strings at a path of a document, and returns their new lengths.",
    arity: Arity::AtLeast(3),
    run: Run::Write(strappend),
    flags: Flags::DENY_OOM,
    args: &[Argument::key("key"), Argument::string("path").optional(), Argument::string("value")],
    ..NUMINCRBY
};

fn strappend(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let path = compiled(if args.remaining() > 1 { args.word() } else { b"." })?;
    let word = args.word();
    if !args.is_empty() {
        return Err(CommandError::WrongArity("json.strappend".to_owned()));
    }
    let change = Change { key, path: &path, event: "json.strappend", parsed_bytes: word.len(), frees: false };
    let lengths = change.run(context, None, |document| {
        let suffix = parse(word).map_err(refused)?;
        let lengths = operations::str_append(document, &path, &suffix).map_err(refused)?;
        let changed = has_changed(&lengths);
        Ok((lengths, changed))
    })?;
    reply::answer(reply, lengths.ok_or(NO_SUCH_KEY)?, reply::count);
    Ok(())
}
