//! MODULE, of a server that loads none, and lists those whose commands it has (decision 0098).

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, CommandTable, Flags, Group, Run,
};
use dunlin_resp::ReplyBuffer;

use crate::{
    config::announced_modules,
    executor::{Handler, ServerContext},
};

pub(super) const COMMANDS: &[Command] = &[MODULE];

const MODULE: Command = Command {
    name: "module",
    summary: "Holds the commands on modules: this server loads none.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    run: Run::Container,
    subcommands: &[
        Command {
            name: "help",
            summary: "Lists the subcommands.",
            since: "5.0.0",
            arity: Arity::Exactly(2),
            run: Run::Host(&Handler(super::help)),
            flags: Flags::LOADING.and(Flags::STALE),
            ..SUBCOMMAND
        },
        Command {
            name: "list",
            summary: "Lists the modules of Redis whose commands are there.",
            arity: Arity::Exactly(2),
            run: Run::Host(&Handler(list)),
            flags: Flags::ADMIN.and(Flags::NO_SCRIPT),
            tips: &["nondeterministic_output_order"],
            ..SUBCOMMAND
        },
        Command {
            name: "load",
            summary: "Is refused: this server loads no modules.",
            arity: Arity::AtLeast(3),
            run: Run::Host(&Handler(refuse)),
            args: &[Argument::string("path"), Argument::string("arg").optional().multiple()],
            ..SUBCOMMAND
        },
        Command {
            name: "loadex",
            summary: "Is refused: this server loads no modules.",
            since: "7.0.0",
            arity: Arity::AtLeast(3),
            run: Run::Host(&Handler(refuse)),
            args: &[
                Argument::string("path"),
                Argument::block("configs", &[Argument::string("name"), Argument::string("value")])
                    .after("CONFIG")
                    .optional()
                    .multiple()
                    .multiple_token(),
                Argument::string("args").after("ARGS").optional().multiple(),
            ],
            ..SUBCOMMAND
        },
        Command {
            name: "unload",
            summary: "Is refused: there is no module to unload.",
            arity: Arity::Exactly(3),
            run: Run::Host(&Handler(refuse)),
            args: &[Argument::string("name")],
            ..SUBCOMMAND
        },
    ],
    ..Command::DEFAULT
};

const SUBCOMMAND: Command = Command {
    since: "4.0.0",
    group: Group::Server,
    flags: Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::NO_ASYNC_LOADING),
    ..Command::DEFAULT
};

/// Writes the modules as MODULE LIST and HELLO have them.
pub(super) fn write_list(table: &CommandTable, reply: &mut ReplyBuffer) {
    reply.array(announced_modules(table).count());
    for module in announced_modules(table) {
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(module.name.as_bytes());
        reply.bulk(b"ver");
        reply.integer(module.version);
        reply.bulk(b"path");
        reply.bulk(b"");
        reply.bulk(b"args");
        reply.array(0);
    }
}

fn list(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    write_list(&context.shared.commands, reply);
    Ok(())
}

/// The answer under `enable-module-command no`, the one value that this server takes.
fn refuse(_: &mut ServerContext<'_, '_>, args: &mut Args<'_>, _: &mut ReplyBuffer) -> CommandResult {
    args.take_rest();
    Err(CommandError::text(
        "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", \
         you can run it from a local connection, otherwise you need to set this option in the \
         configuration file, and then restart the server.",
    ))
}
