//! Commands on arrays in documents.

use dunlin_json::{
    Document,
    operations::{self, Answer},
    parse,
    path::{Budget, Path},
};
use dunlin_resp::ReplyBuffer;

use super::{
    NO_SUCH_KEY,
    expand::{Format, formatted},
    integer,
    numbers::has_changed,
    paths::compiled,
    read::{GET, Reading},
    refused, reply,
    set::WRITER,
    write::Change,
};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Run},
    context::{ReadContext, WriteContext},
};

fn parse_all(words: &[&[u8]]) -> Result<Vec<Document>, CommandError> {
    words.iter().map(|word| parse(word).map_err(refused)).collect()
}

fn bytes(words: &[&[u8]]) -> usize {
    words.iter().map(|word| word.len()).sum()
}

pub(super) const ARRAPPEND: Command = Command {
    name: "json.arrappend",
    summary: "Appends values to the arrays at a path of a document, and returns their new lengths.",
    complexity: "O(1) for each value, and O(n) for the document if the path may match several values",
    arity: Arity::AtLeast(4),
    run: Run::Write(arrappend),
    flags: Flags::DENY_OOM,
    args: &[Argument::key("key"), Argument::string("path"), Argument::string("value").multiple()],
    ..WRITER
};

fn arrappend(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, path, words) = (args.word(), compiled(args.word())?, args.take_rest());
    let parsed_bytes = bytes(words);
    let change = Change { key, path: &path, event: "json.arrappend", parsed_bytes, frees: false };
    let lengths = change.run(context, None, |document| {
        let lengths = operations::arr_append(document, &path, &parse_all(words)?).map_err(refused)?;
        let changed = has_changed(&lengths);
        Ok((lengths, changed))
    })?;
    reply::answer(reply, lengths.ok_or(NO_SUCH_KEY)?, reply::count);
    Ok(())
}

pub(super) const ARRINSERT: Command = Command {
    name: "json.arrinsert",
    summary: "Inserts values before an index of the arrays at a path of a document, and returns their new lengths.",
    arity: Arity::AtLeast(5),
    run: Run::Write(arrinsert),
    args: &[
        Argument::key("key"),
        Argument::string("path"),
        Argument::integer("index"),
        Argument::string("value").multiple(),
    ],
    ..ARRAPPEND
};

fn arrinsert(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, path, index) = (args.word(), compiled(args.word())?, integer(args.word())?);
    let words = args.take_rest();
    let parsed_bytes = bytes(words);
    let change = Change { key, path: &path, event: "json.arrinsert", parsed_bytes, frees: false };
    let lengths = change.run(context, None, |document| {
        let values = parse_all(words)?;
        let lengths = operations::arr_insert(document, &path, index, &values).map_err(refused)?;
        let changed = has_changed(&lengths);
        Ok((lengths, changed))
    })?;
    reply::answer(reply, lengths.ok_or(NO_SUCH_KEY)?, reply::count);
    Ok(())
}

pub(super) const ARRPOP: Command = Command {
    name: "json.arrpop",
    summary: "Removes and returns an item of the arrays at a path of a document: the last, or that at an index.",
    complexity: "O(1), and O(n) for the document if the path may match several values",
    arity: Arity::AtLeast(2),
    run: Run::Write(arrpop),
    flags: Flags::NONE,
    args: &[
        Argument::key("key"),
        Argument::one_of(
            "format",
            &[
                Argument::word("strings", "STRINGS"),
                Argument::word("expand1", "EXPAND1"),
                Argument::word("expand", "EXPAND"),
            ],
        )
        .after("FORMAT")
        .optional(),
        Argument::block("path", &[Argument::string("path"), Argument::integer("index").optional()])
            .optional(),
    ],
    ..ARRAPPEND
};

fn arrpop(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let mut format = Format::Strings;
    if args.token("FORMAT") {
        format = Format::read(args, reply.protocol())?;
        if format == Format::String {
            return Err(CommandError::text("ERR wrong reply format"));
        }
    }
    let path = compiled(args.optional().unwrap_or(b"."))?;
    let index = args.optional().map_or(Ok(-1), integer)?;
    args.finish()?;
    let change = Change { key, path: &path, event: "json.arrpop", parsed_bytes: 0, frees: true };
    let popped = change.run(context, None, |document| {
        // A legacy path answers for the last array, which may be the only one that was empty.
        let takes = path.is_legacy() && !path.is_static() && has_items(document, &path)?;
        let popped = operations::arr_pop(document, &path, index).map_err(refused)?;
        let changed = match &popped {
            Answer::One(item) => takes || item.is_some(),
            Answer::Each(each) => each.iter().any(|item| matches!(item, Some(Some(_)))),
        };
        Ok((popped, changed))
    })?;
    reply::answer(reply, popped.ok_or(NO_SUCH_KEY)?, |reply, item| match item {
        Some(item) => formatted(reply, item.root(), format),
        None => reply.null(),
    });
    Ok(())
}

/// Whether an array at the path has items.
fn has_items(document: &Document, path: &Path) -> Result<bool, CommandError> {
    let mut found = false;
    let evaluated = path.evaluate(document.root(), &mut Budget::default(), |_, value| {
        found |= value.is_array() && !value.is_empty();
        !found
    });
    evaluated.map_err(refused)?;
    Ok(found)
}

pub(super) const ARRTRIM: Command = Command {
    name: "json.arrtrim",
    summary: "Removes all items but those between two indexes from the arrays at a path of a document, and returns their new lengths.",
    complexity: "O(n) for the document",
    arity: Arity::Exactly(5),
    run: Run::Write(arrtrim),
    flags: Flags::NONE,
    args: &[
        Argument::key("key"),
        Argument::string("path"),
        Argument::integer("start"),
        Argument::integer("stop"),
    ],
    ..ARRAPPEND
};

fn arrtrim(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, path) = (args.word(), compiled(args.word())?);
    let (start, stop) = (integer(args.word())?, integer(args.word())?);
    let change = Change { key, path: &path, event: "json.arrtrim", parsed_bytes: 0, frees: true };
    let lengths = change.run(context, None, |document| {
        let lengths = operations::arr_trim(document, &path, start, stop).map_err(refused)?;
        let changed = has_changed(&lengths);
        Ok((lengths, changed))
    })?;
    reply::answer(reply, lengths.ok_or(NO_SUCH_KEY)?, reply::count);
    Ok(())
}

pub(super) const ARRLEN: Command = Command {
    name: "json.arrlen",
    summary: "Returns the lengths of the arrays at a path of a document.",
    complexity: "O(1), and O(n) for the document if the path may match several values",
    run: Run::Read(arrlen),
    args: &[Argument::key("key"), Argument::string("path").optional()],
    ..GET
};

fn arrlen(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let reading = Reading::of(args)?;
    match reading.run(context, false, operations::arr_len)? {
        Some(lengths) => reply::answer(reply, lengths, reply::count),
        None => reading.missing(reply, NO_SUCH_KEY)?,
    }
    Ok(())
}

pub(super) const ARRINDEX: Command = Command {
    name: "json.arrindex",
    summary: "Returns the first index of a value in the arrays at a path of a document; -1 if they lack it.",
    complexity: "O(n) for the document",
    arity: Arity::AtLeast(4),
    run: Run::Read(arrindex),
    args: &[
        Argument::key("key"),
        Argument::string("path"),
        Argument::string("value"),
        Argument::block("range", &[Argument::integer("start"), Argument::integer("stop").optional()])
            .optional(),
    ],
    ..GET
};

fn arrindex(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, path, word) = (args.word(), compiled(args.word())?, args.word());
    let start = args.optional().map_or(Ok(0), integer)?;
    let stop = args.optional().map_or(Ok(0), integer)?;
    if !args.is_empty() {
        return Err(CommandError::WrongArity("json.arrindex".to_owned()));
    }
    let value = parse(word).map_err(refused)?;
    let reading = Reading { key, path };
    let indexes =
        reading.run(context, true, |root, path| operations::arr_index(root, path, &value, start, stop))?;
    let Some(indexes) = indexes else {
        return Err(CommandError::quoting_within("ERR Path '", reading.path.given(), "' does not exist"));
    };
    reply::answer(reply, indexes, ReplyBuffer::integer);
    Ok(())
}
