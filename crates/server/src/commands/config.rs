//! CONFIG: the configuration at run time.

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run,
};
use dunlin_resp::ReplyBuffer;

use super::{cluster::cluster_wide, replication::ensure_backlog};
use crate::{
    cluster::cluster_wide::ClusterChange,
    config::{self, Config, RewrittenUsers, is_secret},
    executor::{Handler, ServerContext},
    info::{self, Reading},
    shared::Shared,
};

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
    secrets: Some(secret_values),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..Command::DEFAULT
};

/// The values of secret directives in a request of `CONFIG SET`. If a value has no name, for example because
/// blanks in a password are not quoted, all words behind the first secret may be parts of it.
fn secret_values(words: &[&[u8]]) -> Vec<usize> {
    let mut secrets = (2..words.len()).step_by(2).filter(|at| is_secret(words[*at])).map(|at| at + 1);
    if words.len().is_multiple_of(2) {
        secrets.filter(|at| *at < words.len()).collect()
    } else {
        secrets.next().map_or_else(Vec::new, |first| (first..words.len()).collect())
    }
}

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
    if pairs.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"cluster-join")) {
        return join(context, &pairs, reply);
    }
    if context.shared.cluster.is_on() {
        return set_on_node(context, &pairs, is_local, reply);
    }
    set_here(context, &pairs, is_local, reply)
}

/// CONFIG SET cluster-join, with other directives of the cluster: the server becomes the first node of a cluster, with its data.
fn join(
    context: &mut ServerContext<'_, '_>,
    pairs: &[(&[u8], &[u8])],
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let carried = cluster_wide::wait_for(context, |context| {
        let failed = |name: &str, reason: &str| {
            CommandError::owned(format!(
                "ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"
            ))
        };
        if context.shared.cluster.is_on() {
            return Err(failed("cluster-join", "the server is a node of a cluster already"));
        }
        let mut config = Config::clone(&context.shared.config.current());
        for (name, value) in pairs {
            let directive = config::find(name).filter(|directive| directive.name.starts_with("cluster-"));
            let Some(directive) = directive else {
                let name = String::from_utf8_lossy(name);
                return Err(failed(&name, "with cluster-join, only directives of the cluster are set"));
            };
            let assigned = directive.assign_argument(value, &mut config);
            assigned.map_err(|error| failed(directive.name, &error.to_string()))?;
        }
        Ok(context.shared.cluster.join(config))
    })?;
    if carried.is_some() {
        context.executor.refresh_config();
        reply.ok();
    }
    Ok(())
}

/// CONFIG SET on a node of a cluster: directives that are the cluster's change on all nodes, before the others do on this one.
fn set_on_node(
    context: &mut ServerContext<'_, '_>,
    pairs: &[(&[u8], &[u8])],
    is_local: bool,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    const USERS: CommandError = CommandError::text(
        "ERR CONFIG SET failed (possibly related to argument 'requirepass') - users are the cluster's: use ACL SETUSER default resetpass >PASSWORD",
    );
    let directives = context.shared.config.check(pairs, is_local)?;
    if directives.iter().any(|(directive, _)| directive.name == "requirepass") {
        return Err(USERS);
    }
    let of_cluster: Vec<(&'static str, Vec<u8>)> = directives
        .into_iter()
        .filter(|(directive, _)| directive.is_cluster_wide())
        .map(|(directive, value)| (directive.name, value))
        .collect();
    if !of_cluster.is_empty()
        && cluster_wide::carry_out(context, |_| Ok(ClusterChange::Settings { pairs: of_cluster }))?.is_none()
    {
        return Ok(());
    }
    let is_own = |name: &[u8]| config::find(name).is_none_or(|directive| !directive.is_cluster_wide());
    let own: Vec<_> = pairs.iter().copied().filter(|(name, _)| is_own(name)).collect();
    set_here(context, &own, is_local, reply)
}

fn set_here(
    context: &mut ServerContext<'_, '_>,
    pairs: &[(&[u8], &[u8])],
    is_local: bool,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let turned = turn_log(context, pairs)?;
    if let Err(error) = context.shared.config.set(pairs, is_local) {
        if let Some(on) = turned {
            let back = |shared: &Shared| shared.durability.turn(!on);
            // There is no other error to return: what was asked for has failed already.
            let _ = context.outside_gate(back);
        }
        return Err(error.into());
    }
    // The client's next command must see it; other workers do in their next tick.
    context.executor.refresh_config();
    ensure_backlog(context);
    reply.ok();
    Ok(())
}

/// Turns the append-only log on or off if that is among the changes. Returns which of the two it was.
/// This waits for the log's thread, which closes the gate, so no lock may be held: neither of keys nor of
/// the configuration.
fn turn_log(
    context: &mut ServerContext<'_, '_>,
    pairs: &[(&[u8], &[u8])],
) -> Result<Option<bool>, CommandError> {
    let wanted = pairs.iter().rev().find(|(name, _)| name.eq_ignore_ascii_case(b"appendonly"));
    let Some((name, value)) = wanted else { return Ok(None) };
    let on = match value.to_ascii_lowercase().as_slice() {
        b"yes" => true,
        b"no" => false,
        // The configuration says what is wrong.
        _ => return Ok(None),
    };
    let failed = |reason: String| {
        let name = String::from_utf8_lossy(name);
        CommandError::owned(format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"
        ))
    };
    if on == context.executor.newest_config().appendonly {
        return Ok(None);
    }
    if context.executor.caller.deny_blocking {
        return Err(failed("it cannot be changed in a transaction or a script".to_owned()));
    }
    if context.shared.loading.is_active() {
        return Err(failed("the data set is being loaded; try again later".to_owned()));
    }
    let turned = context.outside_gate(|shared| shared.durability.turn(on));
    turned.unwrap_or(Ok(())).map_err(failed)?;
    Ok(Some(on))
}

fn reset_statistics(
    context: &mut ServerContext<'_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let now_ms = context.executor.caller.now_ms;
    info::reset(&Reading::new(context.shared, context.executor.config.config(), now_ms));
    reply.ok();
    Ok(())
}

fn rewrite(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (config, access) = (context.shared.config.current(), &context.shared.access);
    let are_in = |loaded: &Config| access.has_users_of(loaded);
    let users = RewrittenUsers { lines: access.lines(&config), are_in: &are_in };
    if let Err(error) = context.shared.config.rewrite(&users) {
        tracing::warn!("CONFIG REWRITE failed: {error}");
        return Err(CommandError::owned(error.to_string()));
    }
    tracing::info!("CONFIG REWRITE executed with success");
    reply.ok();
    Ok(())
}
