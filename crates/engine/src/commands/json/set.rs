//! Commands that put documents and values, and take them out.

use dunlin_json::{
    Document,
    operations::{self, Condition},
    parse,
};
use dunlin_resp::ReplyBuffer;

use super::{BYTES_PER_ELEMENT, NOT_AT_THE_ROOT, json_of, paths::compiled, refused, write::Change};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ExpiryChange, WriteContext},
    notify::EventClass,
    value::Json,
};

/// A row of a command that changes a document.
pub(super) const WRITER: Command = Command {
    since: "8.0.0",
    group: Group::Json,
    complexity: "O(s) for the text, and O(n) for the document if the path may match several values",
    keys: &[KeySpec::at(1).read_write().accesses().updates()],
    ..Command::DEFAULT
};

pub(super) const SET: Command = Command {
    name: "json.set",
    summary: "Sets the JSON values at a path of a document, or creates the document.",
    arity: Arity::AtLeast(4),
    run: Run::Write(set),
    flags: Flags::DENY_OOM,
    args: &[
        Argument::key("key"),
        Argument::string("path"),
        Argument::string("value"),
        Argument::one_of("condition", &[Argument::word("nx", "NX"), Argument::word("xx", "XX")]).optional(),
        Argument::one_of(
            "type",
            &[
                Argument::word("fp16", "FP16"),
                Argument::word("bf16", "BF16"),
                Argument::word("fp32", "FP32"),
                Argument::word("fp64", "FP64"),
            ],
        )
        .after("FPHA")
        .optional()
        .since("8.8.0"),
    ],
    ..WRITER
};

/// Reads the options of JSON.SET: the condition, and the width of arrays of floating-point numbers.
fn read_options(args: &mut Args<'_>) -> Result<(Condition, Option<u8>), CommandError> {
    let (mut condition, mut width) = (None, None);
    while !args.is_empty() {
        if condition.is_none() && args.token("NX") {
            condition = Some(Condition::IfMissing);
        } else if condition.is_none() && args.token("XX") {
            condition = Some(Condition::IfThere);
        } else if width.is_none() && args.token_with("FPHA", 1) {
            let word = args.word();
            let names = ["FP16", "BF16", "FP32", "FP64"];
            let code = names.iter().position(|name| word.eq_ignore_ascii_case(name.as_bytes()));
            width = Some(code.ok_or(CommandError::Syntax)? as u8);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok((condition.unwrap_or(Condition::Always), width))
}

fn set(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, path, text) = (args.word(), compiled(args.word())?, args.word());
    let (condition, width) = read_options(args)?;
    let value = || -> Result<Document, CommandError> {
        let value = parse(text).map_err(refused)?;
        match width {
            Some(code) => value
                .with_typed_arrays(code)
                .ok_or(CommandError::text("ERR a number is out of range for FPHA")),
            None => Ok(value),
        }
    };
    let create = || -> Result<(bool, Option<Document>), CommandError> {
        if !path.is_root() {
            return Err(NOT_AT_THE_ROOT);
        }
        if condition == Condition::IfThere {
            return Ok((false, None));
        }
        Ok((true, Some(value()?)))
    };
    let change = Change { key, path: &path, event: "json.set", parsed_bytes: text.len(), frees: true };
    let done = change.run::<bool>(context, Some(&create), |document| {
        let done = operations::set(document, &path, &value()?, condition).map_err(refused)?;
        Ok((done, done))
    })?;
    answer(done, reply);
    Ok(())
}

/// OK for a change, null if a condition or the path left everything as it was.
fn answer(done: Option<bool>, reply: &mut ReplyBuffer) {
    if done == Some(true) { reply.ok() } else { reply.null() }
}

pub(super) const MERGE: Command = Command {
    name: "json.merge",
    summary: "Merges a JSON value into the values at a path of a document, as RFC 7396 has it.",
    arity: Arity::Exactly(4),
    run: Run::Write(merge),
    args: &[Argument::key("key"), Argument::string("path"), Argument::string("value")],
    ..SET
};

fn merge(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, path, text) = (args.word(), compiled(args.word())?, args.word());
    let create = || -> Result<(bool, Option<Document>), CommandError> {
        if !path.is_root() {
            return Err(NOT_AT_THE_ROOT);
        }
        Ok((true, Some(parse(text).map_err(refused)?)))
    };
    let change = Change { key, path: &path, event: "json.merge", parsed_bytes: text.len(), frees: true };
    let done = change.run::<bool>(context, Some(&create), |document| {
        let patch = parse(text).map_err(refused)?;
        let done = operations::merge(document, &path, &patch).map_err(refused)?;
        Ok((done, done))
    })?;
    answer(done, reply);
    Ok(())
}

pub(super) const MSET: Command = Command {
    name: "json.mset",
    summary: "Sets JSON values at paths of several documents, all or none of them.",
    arity: Arity::AtLeast(4),
    run: Run::Write(mset),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).through(-1, 3).read_write().accesses().updates()],
    args: &[Argument::block(
        "triplet",
        &[Argument::key("key"), Argument::string("path"), Argument::string("value")],
    )
    .multiple()],
    ..WRITER
};

/// The documents as JSON.MSET leaves them, by the place of their first triplet; `None` of those that it leaves alone.
type Made = Result<Vec<(usize, Option<Json>)>, CommandError>;

fn mset(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let words = args.take_rest();
    if !words.len().is_multiple_of(3) {
        return Err(CommandError::WrongArity("json.mset".to_owned()));
    }
    let triplets: Vec<&[&[u8]]> = words.chunks_exact(3).collect();
    let paths = triplets.iter().map(|triplet| compiled(triplet[1])).collect::<Result<Vec<_>, _>>()?;
    let keys: Vec<&[u8]> = triplets.iter().map(|triplet| triplet[0]).collect();
    let texts: usize = triplets.iter().map(|triplet| triplet[2].len()).sum();
    let made: Made = context.compute(
        &keys,
        |entries| {
            let several = entries.iter().zip(&paths).filter(|(_, path)| !path.is_static());
            let read: usize =
                several.filter_map(|(entry, _)| entry.and_then(json_of)).map(|json| json.bytes()).sum();
            (texts + read) / BYTES_PER_ELEMENT
        },
        |entries, _| {
            // The place of the first triplet with the key of each.
            let mut documents: Vec<(usize, Option<Document>, bool)> = Vec::new();
            for (place, triplet) in triplets.iter().enumerate() {
                let value = parse(triplet[2]).map_err(refused)?;
                let known = documents.iter().position(|(first, ..)| keys[*first] == triplet[0]);
                let known = match known {
                    Some(known) => known,
                    None => {
                        let document = match entries[place] {
                            Some(entry) => Some(json_of(entry).ok_or(CommandError::WrongType)?.document()),
                            None => None,
                        };
                        documents.push((place, document, false));
                        documents.len() - 1
                    }
                };
                let (_, document, is_set) = &mut documents[known];
                match document {
                    Some(document) => {
                        let path = &paths[place];
                        *is_set |=
                            operations::set(document, path, &value, Condition::Always).map_err(refused)?;
                    }
                    None if paths[place].is_root() => (*document, *is_set) = (Some(value), true),
                    None => return Err(NOT_AT_THE_ROOT),
                }
            }
            let made = documents
                .into_iter()
                .map(|(place, document, is_set)| (place, document.filter(|_| is_set).map(Json::from)));
            Ok(made.collect())
        },
    )?;
    let mut changed = 0;
    for (place, json) in made? {
        if let Some(json) = json {
            context.set_collection(keys[place], json, ExpiryChange::Keep);
            context.notify(EventClass::Module, "json.mset", keys[place]);
            changed += 1;
        }
    }
    context.count_changes(changed);
    reply.ok();
    Ok(())
}

pub(super) const DEL: Command = Command {
    name: "json.del",
    summary: "Removes the values at a path of a document, or the document, and returns how many it has removed.",
    complexity: "O(n) for the document if the path may match several values",
    arity: Arity::AtLeast(2),
    run: Run::Write(del),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).read_write().deletes()],
    args: &[Argument::key("key"), Argument::string("path").optional()],
    ..WRITER
};

pub(super) const FORGET: Command = Command {
    name: "json.forget",
    summary: "Removes the values at a path of a document: JSON.DEL by another name.",
    ..DEL
};

fn del(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, path) = (args.word(), compiled(args.optional().unwrap_or(b"."))?);
    args.finish()?;
    let change = Change { key, path: &path, event: "json.del", parsed_bytes: 0, frees: true };
    let removed = change.run(context, None, |document| {
        let removed = operations::delete(document, &path).map_err(refused)?;
        Ok((removed, removed.is_some_and(|count| count > 0)))
    })?;
    match removed {
        None => reply.integer(0),
        Some(Some(count)) => reply.count(count),
        // The root is among the matches.
        Some(None) => {
            context.remove(key);
            context.count_changes(1);
            context.notify(EventClass::Module, "json.del", key);
            reply.integer(1);
        }
    }
    Ok(())
}

pub(super) const CLEAR: Command = Command {
    name: "json.clear",
    summary: "Empties the containers and sets the numbers at a path to 0, and returns how many values have changed.",
    run: Run::Write(clear),
    keys: &[KeySpec::at(1).read_write().accesses().updates()],
    ..DEL
};

fn clear(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, path) = (args.word(), compiled(args.optional().unwrap_or(b"."))?);
    args.finish()?;
    let change = Change { key, path: &path, event: "json.clear", parsed_bytes: 0, frees: true };
    let cleared = change.run(context, None, |document| {
        let cleared = operations::clear(document, &path).map_err(refused)?;
        Ok((cleared, cleared > 0))
    })?;
    reply.count(cleared.ok_or(super::NO_SUCH_KEY)?);
    Ok(())
}
