//! JSON.DEBUG.

use dunlin_json::{ValueRef, operations::Refusal, path::Budget};
use dunlin_resp::ReplyBuffer;

use super::{
    read::{GET, Reading},
    refused,
};
use crate::{
    command::{Args, Argument, Arity, Command, CommandResult, KeySpec, Run},
    context::ReadContext,
    value::Json,
};

pub(super) const DEBUG: Command = Command {
    name: "json.debug",
    summary: "Holds the commands that look at documents in memory.",
    complexity: "Depends on subcommand.",
    run: Run::Container,
    keys: &[],
    args: &[],
    subcommands: &[
        Command {
            name: "help",
            summary: "Lists the subcommands.",
            arity: Arity::Exactly(2),
            complexity: "O(1)",
            keys: &[],
            args: &[],
            run: Run::Help(&[
                "MEMORY <key> [path] - reports memory usage",
                "HELP                - this message",
            ]),
            ..GET
        },
        Command {
            name: "memory",
            summary: "Returns the bytes that the values at a path of a document take.",
            arity: Arity::AtLeast(3),
            keys: &[KeySpec::at(2)],
            run: Run::Read(memory),
            args: &[Argument::key("key"), Argument::string("path").optional()],
            ..GET
        },
    ],
    ..GET
};

fn memory(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let Reading { key, path } = Reading::of(args)?;
    let Some(json) = context.collection::<Json>(key)? else {
        if path.is_legacy() {
            reply.integer(0);
        } else {
            reply.array(0);
        }
        return Ok(());
    };
    let values = path.values(json.root(), &mut Budget::default()).map_err(refused)?;
    if path.is_legacy() {
        let value = values.first().ok_or_else(|| refused(Refusal::NoSuchPath(path.text().to_vec())))?;
        reply.count(value.memory());
    } else {
        reply.array(values.len());
        values.iter().map(ValueRef::memory).for_each(|bytes| reply.count(bytes));
    }
    Ok(())
}
