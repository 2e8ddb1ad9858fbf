//! CONFIG: the configuration at run time.

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run,
};
use dunlin_resp::ReplyBuffer;

use crate::executor::{Handler, ServerContext};

pub(super) const COMMANDS: &[Command] = &[CONFIG];

const CONFIG: Command = Command {
    name: "config",
    summary: "Shows and changes the configuration.",
    since: "2.0.0",
    group: Group::Server,
    complexity: "Depends on the subcommand.",
    arity: Arity::AtLeast(2),
    subcommands: &[GET, HELP, RESETSTAT, REWRITE, SET],
    ..Command::DEFAULT
};

const OPERATOR: Flags = Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::LOADING).and(Flags::STALE);

const GET: Command = Command {
    name: "get",
    summary: "Returns the directives that match any of the patterns, with their values.",
    since: "2.0.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of directives, times the number of patterns.",
    arity: Arity::AtLeast(3),
    run: Run::Host(&Handler(get)),
    flags: OPERATOR,
    args: &[Argument::block("parameter", &[Argument::string("parameter")]).multiple()],
    ..Command::DEFAULT
};

const HELP: Command = Command {
    name: "help",
    summary: "Shows this help.",
    since: "5.0.0",
    group: Group::Server,
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(super::help)),
    flags: Flags::LOADING.and(Flags::STALE),
    ..Command::DEFAULT
};

const RESETSTAT: Command = Command {
    name: "resetstat",
    summary: "Starts the statistics that INFO shows anew.",
    since: "2.0.0",
    group: Group::Server,
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(reset_statistics)),
    flags: OPERATOR,
    ..Command::DEFAULT
};

const REWRITE: Command = Command {
    name: "rewrite",
    summary: "Writes the current values into the configuration file.",
    since: "2.8.0",
    group: Group::Server,
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(rewrite)),
    flags: OPERATOR,
    ..Command::DEFAULT
};

const SET: Command = Command {
    name: "set",
    summary: "Changes the given directives, all or none.",
    since: "2.0.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of directives given.",
    arity: Arity::AtLeast(4),
    run: Run::Host(&Handler(set)),
    flags: OPERATOR,
    args: &[Argument::block("parameter_value", &[Argument::string("parameter"), Argument::string("value")])
        .multiple()],
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..Command::DEFAULT
};

fn get(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let found = context.shared.config.get(args.take_rest());
    reply.map(found.len());
    for (name, value) in found {
        reply.bulk(name);
        reply.bulk(&value);
    }
    Ok(())
}

fn set(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (pairs, []) = args.take_rest().as_chunks::<2>() else { return Err(CommandError::Syntax) };
    let pairs: Vec<_> = pairs.iter().map(|[name, value]| (*name, *value)).collect();
    let is_local = context.session.client.transport.is_local();
    context.outside(|context| context.shared.config.set(&pairs, is_local))?;
    // The client's next command must see it; other workers do in their next tick.
    context.executor.refresh_config();
    reply.ok();
    Ok(())
}

fn reset_statistics(
    context: &mut ServerContext<'_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    context.shared.monitor.reset();
    reply.ok();
    Ok(())
}

fn rewrite(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    if let Err(error) = context.outside(|context| context.shared.config.rewrite()) {
        tracing::warn!("CONFIG REWRITE failed: {error}");
        return Err(CommandError::owned(error.to_string()));
    }
    tracing::info!("CONFIG REWRITE executed with success");
    reply.ok();
    Ok(())
}
