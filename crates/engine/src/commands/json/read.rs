//! Commands that read documents.

use std::rc::Rc;

use dunlin_json::{
    Layout, ValueRef,
    operations::{self, Answer, Refusal},
    path::{Budget, Path},
};
use dunlin_resp::{Protocol, ReplyBuffer};

use super::{
    BYTES_PER_ELEMENT, NO_SUCH_KEY,
    expand::{Format, formatted, resp},
    json_of,
    paths::compiled,
    refused, reply,
};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::ReadContext,
    value::Json,
};

/// Documents of up to this many bytes are read at once, whatever the path: nothing of them need be weighed.
const LIGHT_BYTES_MAX: usize = 16 << 10;

pub(super) const GET: Command = Command {
    name: "json.get",
    summary: "Returns the values at paths of a document as JSON.",
    since: "8.0.0",
    group: Group::Json,
    complexity: "O(n) for the values, and for the document if a path may match several",
    arity: Arity::AtLeast(2),
    run: Run::Read(get),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).accesses()],
    args: &[
        Argument::key("key"),
        Argument::string("indent").after("INDENT").optional(),
        Argument::string("newline").after("NEWLINE").optional(),
        Argument::string("space").after("SPACE").optional(),
        Argument::one_of(
            "format",
            &[
                Argument::word("string", "STRING"),
                Argument::word("expand1", "EXPAND1"),
                Argument::word("expand", "EXPAND"),
            ],
        )
        .after("FORMAT")
        .optional(),
        Argument::string("path").optional().multiple(),
    ],
    ..Command::DEFAULT
};

/// The words of JSON.GET behind the key.
struct Wanted<'a> {
    layout: Layout<'a>,
    format: Format,
    paths: Vec<Rc<Path>>,
}

impl<'a> Wanted<'a> {
    fn read(args: &mut Args<'a>, protocol: Protocol) -> Result<Self, CommandError> {
        let mut wanted = Self { layout: Layout::default(), format: Format::String, paths: Vec::new() };
        while !args.is_empty() {
            let option =
                ["INDENT", "NEWLINE", "SPACE", "FORMAT"].into_iter().find(|option| args.token(option));
            let Some(option) = option else {
                // NOESCAPE was an option once, and has no meaning.
                if !args.token("NOESCAPE") {
                    wanted.paths.push(compiled(args.word())?);
                }
                continue;
            };
            if args.is_empty() {
                return Err(CommandError::WrongArity("json.get".to_owned()));
            }
            match option {
                "INDENT" => wanted.layout.indent = args.word(),
                "NEWLINE" => wanted.layout.newline = args.word(),
                "SPACE" => wanted.layout.space = args.word(),
                _ => wanted.format = Format::read(args, protocol)?,
            }
        }
        if wanted.paths.is_empty() {
            wanted.paths.push(compiled(b".")?);
        }
        if wanted.format == Format::Strings {
            return Err(CommandError::text("ERR wrong reply format"));
        }
        Ok(wanted)
    }
}

fn get(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let Wanted { layout, format, paths } = Wanted::read(args, reply.protocol())?;
    let Some(json) = context.collection::<Json>(key)? else {
        reply.null();
        return Ok(());
    };
    let root = json.root();
    if json.bytes() > LIGHT_BYTES_MAX {
        context
            .weigh(paths.iter().map(|path| shown_bytes(&json, path)).sum::<usize>() / BYTES_PER_ELEMENT)?;
    }
    if format != Format::String {
        return get_formatted(root, &paths, format, reply);
    }
    if let [path] = &paths[..]
        && layout.is_minified()
        && path.is_static()
        && let Some(value) = path.values(root, &mut Budget::default()).map_err(refused)?.first()
    {
        let (before, after): (&[u8], &[u8]) = if path.is_legacy() { (b"", b"") } else { (b"[", b"]") };
        reply::enclosed(reply, *value, before, after);
        return Ok(());
    }
    let mut out = Vec::new();
    operations::get(root, &paths, layout, &mut out).map_err(refused)?;
    reply.bulk(&out);
    Ok(())
}

/// About how many bytes of a document are read for a path, and its matches shown.
fn shown_bytes(json: &Json, path: &Path) -> usize {
    if !path.is_static() || path.is_root() {
        return json.bytes();
    }
    let values = path.values(json.root(), &mut Budget::default()).unwrap_or_default();
    values.iter().map(ValueRef::memory).sum()
}

/// The values of each path, in the types of the protocol.
fn get_formatted(
    root: ValueRef<'_>,
    paths: &[Rc<Path>],
    format: Format,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let values = paths.iter().map(|path| path.values(root, &mut Budget::default()));
    let values: Vec<_> = values.collect::<Result<_, _>>().map_err(refused)?;
    reply.array(values.len());
    for values in values {
        reply.array(values.len());
        values.into_iter().for_each(|value| formatted(reply, value, format));
    }
    Ok(())
}

pub(super) const MGET: Command = Command {
    name: "json.mget",
    summary: "Returns the values at a path of several documents as JSON.",
    arity: Arity::AtLeast(3),
    run: Run::Read(mget),
    keys: &[KeySpec::at(1).through(-2, 1).accesses()],
    args: &[Argument::key("key").multiple(), Argument::string("path")],
    ..GET
};

fn mget(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let words = args.take_rest();
    let Some((path, keys)) = words.split_last() else { return Err(CommandError::Syntax) };
    let path = compiled(path)?;
    let documents: Vec<_> = keys.iter().map(|key| context.find(key).and_then(json_of)).collect();
    let heavy = documents.iter().flatten().filter(|json| json.bytes() > LIGHT_BYTES_MAX);
    context.weigh(heavy.map(|json| shown_bytes(json, &path)).sum::<usize>() / BYTES_PER_ELEMENT)?;
    reply.array(keys.len());
    let mut out = Vec::new();
    for document in documents {
        out.clear();
        let paths = std::slice::from_ref(&path);
        match document.map(|json| operations::get(json.root(), paths, Layout::default(), &mut out)) {
            Some(Ok(())) => reply.bulk(&out),
            // As for a key that is missing.
            None | Some(Err(_)) => reply.null(),
        }
    }
    Ok(())
}

/// A question about what is at a path.
pub(super) struct Reading<'a> {
    pub(super) key: &'a [u8],
    pub(super) path: Rc<Path>,
}

impl<'a> Reading<'a> {
    /// Reads the key, and the path if it is there.
    pub(super) fn of(args: &mut Args<'a>) -> Result<Self, CommandError> {
        let (key, path) = (args.word(), compiled(args.optional().unwrap_or(b"."))?);
        args.finish()?;
        Ok(Self { key, path })
    }

    /// The answers of an operation; `None` if the key is missing. `reads_all` says that the operation reads the values,
    /// not only their beginnings.
    pub(super) fn run<T>(
        &self,
        context: &mut ReadContext<'_>,
        reads_all: bool,
        operation: impl FnOnce(ValueRef<'_>, &Path) -> Result<Answer<T>, Refusal>,
    ) -> Result<Option<Answer<T>>, CommandError> {
        let Some(json) = context.collection::<Json>(self.key)? else { return Ok(None) };
        if json.bytes() > LIGHT_BYTES_MAX && (reads_all || !self.path.is_static()) {
            context.weigh(shown_bytes(&json, &self.path) / BYTES_PER_ELEMENT)?;
        }
        operation(json.root(), &self.path).map(Some).map_err(refused)
    }

    /// The reply for a key that is missing: null for a legacy path.
    pub(super) fn missing(&self, reply: &mut ReplyBuffer, error: CommandError) -> CommandResult {
        if !self.path.is_legacy() {
            return Err(error);
        }
        reply.null();
        Ok(())
    }
}

pub(super) const TYPE: Command = Command {
    name: "json.type",
    summary: "Returns the types of the values at a path of a document.",
    complexity: "O(1), and O(n) for the document if the path may match several values",
    run: Run::Read(types),
    args: &[Argument::key("key"), Argument::string("path").optional()],
    ..GET
};

fn types(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let types = Reading::of(args)?.run(context, false, operations::types)?;
    // RESP3 has an array around everything.
    if reply.protocol() == Protocol::Resp3 {
        reply.array(1);
    }
    let Some(types) = types else {
        reply.null();
        return Ok(());
    };
    reply::answer(reply, types, |reply, kind| match kind {
        Some(kind) => reply.bulk(kind.name().as_bytes()),
        None => reply.null(),
    });
    Ok(())
}

pub(super) const STRLEN: Command = Command {
    name: "json.strlen",
    summary: "Returns the lengths of the strings at a path of a document, in bytes.",
    run: Run::Read(strlen),
    ..TYPE
};

fn strlen(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let reading = Reading::of(args)?;
    match reading.run(context, false, operations::str_len)? {
        Some(lengths) => reply::answer(reply, lengths, reply::count),
        None => reading.missing(reply, NO_SUCH_KEY)?,
    }
    Ok(())
}

pub(super) const OBJLEN: Command = Command {
    name: "json.objlen",
    summary: "Returns how many members the objects at a path of a document have.",
    run: Run::Read(objlen),
    ..TYPE
};

fn objlen(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let reading = Reading::of(args)?;
    match reading.run(context, false, operations::obj_len)? {
        Some(lengths) => reply::answer(reply, lengths, |reply, length| match length {
            Some(length) => reply.count(length),
            None => reply.null(),
        }),
        None => {
            let text = (reading.path.given(), "' does not exist or not an object");
            reading.missing(reply, CommandError::quoting_within("ERR Path '", text.0, text.1))?;
        }
    }
    Ok(())
}

pub(super) const OBJKEYS: Command = Command {
    name: "json.objkeys",
    summary: "Returns the names of the members of the objects at a path of a document.",
    complexity: "O(n) for the members, and for the document if the path may match several values",
    run: Run::Read(objkeys),
    ..TYPE
};

fn objkeys(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let reading = Reading::of(args)?;
    match reading.run(context, true, operations::obj_keys)? {
        Some(names) => reply::answer(reply, names, |reply, names| match names {
            Some(names) => {
                reply.array(names.len());
                names.iter().for_each(|name| reply.bulk(name));
            }
            None => reply.null(),
        }),
        None => reading.missing(reply, NO_SUCH_KEY)?,
    }
    Ok(())
}

pub(super) const RESP: Command = Command {
    name: "json.resp",
    summary: "Returns the values at a path of a document in the types of the protocol.",
    complexity: "O(n) for the values, and for the document if the path may match several",
    run: Run::Read(answer_resp),
    ..TYPE
};

fn answer_resp(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let Reading { key, path } = Reading::of(args)?;
    let Some(json) = context.collection::<Json>(key)? else {
        reply.null();
        return Ok(());
    };
    context.weigh(shown_bytes(&json, &path) / BYTES_PER_ELEMENT)?;
    let values = path.values(json.root(), &mut Budget::default()).map_err(refused)?;
    if path.is_legacy() {
        let value = values.first().ok_or_else(|| refused(Refusal::NoSuchPath(path.text().to_vec())))?;
        resp(reply, *value);
    } else {
        reply.array(values.len());
        values.into_iter().for_each(|value| resp(reply, value));
    }
    Ok(())
}
