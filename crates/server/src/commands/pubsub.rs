//! Publish and subscribe; what happens behind these commands is in [`crate::push::pubsub`].
//!
//! Texts and flags are those of redis-server 7.0.

use dunlin_engine::{
    LogConsumer,
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    glob::Glob,
};
use dunlin_resp::ReplyBuffer;

use crate::{
    executor::{Handler, ServerContext},
    push::{
        notifier::HostNotice,
        pubsub::{self, Kind},
    },
};

pub(super) const COMMANDS: &[Command] =
    &[PSUBSCRIBE, PUBLISH, PUBSUB, PUNSUBSCRIBE, SPUBLISH, SSUBSCRIBE, SUBSCRIBE, SUNSUBSCRIBE, UNSUBSCRIBE];

const ALWAYS: Flags = Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE);

const LISTENING: Command = Command {
    group: Group::PubSub,
    flags: ALWAYS.and(Flags::NO_SCRIPT).and(Flags::FOR_LISTENERS),
    ..Command::DEFAULT
};

const SHARD_CHANNELS: &[KeySpec] = &[KeySpec::at(1).through(-1, 1).not_key()];

const SUBSCRIBE: Command = Command {
    name: "subscribe",
    summary: "Listens to channels.",
    since: "2.0.0",
    complexity: "O(n) in the number of channels",
    arity: Arity::AtLeast(2),
    run: Run::Host(&Handler(subscribe)),
    args: &[Argument::string("channel").multiple()],
    ..LISTENING
};

const PSUBSCRIBE: Command = Command {
    name: "psubscribe",
    summary: "Listens to all channels whose names match one of the patterns.",
    since: "2.0.0",
    complexity: "O(n) in the number of patterns",
    arity: Arity::AtLeast(2),
    run: Run::Host(&Handler(psubscribe)),
    args: &[Argument::block("pattern", &[Argument::pattern("pattern")]).multiple()],
    ..LISTENING
};

const SSUBSCRIBE: Command = Command {
    name: "ssubscribe",
    summary: "Listens to shard channels.",
    since: "7.0.0",
    complexity: "O(n) in the number of channels",
    arity: Arity::AtLeast(2),
    run: Run::Host(&Handler(ssubscribe)),
    keys: SHARD_CHANNELS,
    args: &[Argument::string("shardchannel").multiple()],
    ..LISTENING
};

const UNSUBSCRIBE: Command = Command {
    name: "unsubscribe",
    summary: "Stops listening to these channels, or to all.",
    since: "2.0.0",
    complexity: "O(n) in the number of channels",
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(unsubscribe)),
    args: &[Argument::string("channel").optional().multiple()],
    ..LISTENING
};

const PUNSUBSCRIBE: Command = Command {
    name: "punsubscribe",
    summary: "Stops listening to channels that match these patterns, or any pattern.",
    since: "2.0.0",
    complexity: "O(n) in the number of patterns",
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(punsubscribe)),
    args: &[Argument::pattern("pattern").optional().multiple()],
    ..LISTENING
};

const SUNSUBSCRIBE: Command = Command {
    name: "sunsubscribe",
    summary: "Stops listening to these shard channels, or to all.",
    since: "7.0.0",
    complexity: "O(n) in the number of channels",
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(sunsubscribe)),
    keys: SHARD_CHANNELS,
    args: &[Argument::string("shardchannel").optional().multiple()],
    ..LISTENING
};

const PUBLISH: Command = Command {
    name: "publish",
    summary: "Sends a message to all who listen to a channel, and tells how many they are.",
    since: "2.0.0",
    group: Group::PubSub,
    complexity: "O(n+m) in the subscribers of the channel and the patterns of all clients",
    arity: Arity::Exactly(3),
    run: Run::Host(&Handler(publish)),
    flags: ALWAYS.and(Flags::FAST).and(Flags::PUBLISHES),
    args: &[Argument::string("channel"), Argument::string("message")],
    ..Command::DEFAULT
};

const SPUBLISH: Command = Command {
    name: "spublish",
    summary: "Sends a message to all who listen to a shard channel, and tells how many they are.",
    since: "7.0.0",
    group: Group::PubSub,
    complexity: "O(n) in the subscribers of the channel",
    arity: Arity::Exactly(3),
    run: Run::Host(&Handler(spublish)),
    flags: ALWAYS.and(Flags::FAST).and(Flags::PUBLISHES),
    keys: &[KeySpec::at(1).not_key()],
    args: &[Argument::string("shardchannel"), Argument::string("message")],
    ..Command::DEFAULT
};

const ASKING: Command = Command { group: Group::PubSub, flags: ALWAYS, ..Command::DEFAULT };

const PUBSUB: Command = Command {
    name: "pubsub",
    summary: "Tells what is listened to.",
    since: "2.8.0",
    group: Group::PubSub,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    run: Run::Container,
    subcommands: &[
        Command {
            name: "channels",
            summary: "Lists the channels with subscribers, all or those whose names match.",
            since: "2.8.0",
            complexity: "O(n) in the number of such channels",
            arity: Arity::AtLeast(2),
            run: Run::Host(&Handler(channels)),
            args: &[Argument::pattern("pattern").optional()],
            ..ASKING
        },
        Command {
            name: "help",
            summary: "Shows this help.",
            since: "6.2.0",
            group: Group::PubSub,
            arity: Arity::Exactly(2),
            run: Run::Host(&Handler(super::help)),
            flags: Flags::LOADING.and(Flags::STALE),
            ..Command::DEFAULT
        },
        Command {
            name: "numpat",
            summary: "Counts the different patterns with subscribers.",
            since: "2.8.0",
            arity: Arity::Exactly(2),
            run: Run::Host(&Handler(pattern_count)),
            ..ASKING
        },
        Command {
            name: "numsub",
            summary: "Counts the subscribers of each of these channels, without those of patterns.",
            since: "2.8.0",
            complexity: "O(n) in the number of channels asked for",
            arity: Arity::AtLeast(2),
            run: Run::Host(&Handler(subscriber_counts)),
            args: &[Argument::string("channel").optional().multiple()],
            ..ASKING
        },
        Command {
            name: "shardchannels",
            summary: "Lists the shard channels with subscribers, all or those whose names match.",
            since: "7.0.0",
            complexity: "O(n) in the number of such channels",
            arity: Arity::AtLeast(2),
            run: Run::Host(&Handler(shard_channels)),
            args: &[Argument::pattern("pattern").optional()],
            ..ASKING
        },
        Command {
            name: "shardnumsub",
            summary: "Counts the subscribers of each of these shard channels.",
            since: "7.0.0",
            complexity: "O(n) in the number of channels asked for",
            arity: Arity::AtLeast(2),
            run: Run::Host(&Handler(shard_subscriber_counts)),
            args: &[Argument::string("shardchannel").optional().multiple()],
            ..ASKING
        },
    ],
    ..Command::DEFAULT
};

type Context<'a, 'b, 'k> = &'a mut ServerContext<'b, 'k>;

/// Writes the confirmation of a subscription, or of its end.
fn confirm(
    context: Context<'_, '_, '_>,
    title: &str,
    kind: Kind,
    name: Option<&[u8]>,
    reply: &mut ReplyBuffer,
) {
    reply.push(3);
    reply.bulk(title.as_bytes());
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.count(context.session.subscriptions_counted_with(kind));
    context.session.pushed = true;
}

fn join(
    context: Context<'_, '_, '_>,
    title: &str,
    kind: Kind,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    for name in args.take_rest() {
        pubsub::subscribe(&context.shared.exchange, context.session, kind, name);
        confirm(context, title, kind, Some(name), reply);
    }
    Ok(())
}

fn leave(
    context: Context<'_, '_, '_>,
    title: &str,
    kind: Kind,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let mut leave = |context: Context<'_, '_, '_>, name: &[u8]| {
        pubsub::unsubscribe(&context.shared.exchange, context.session, kind, name);
        confirm(context, title, kind, Some(name), reply);
    };
    if !args.is_empty() {
        args.take_rest().iter().for_each(|name| leave(context, name));
        return Ok(());
    }
    let names = context.session.subscribed(kind);
    names.iter().for_each(|name| leave(context, name));
    if names.is_empty() {
        confirm(context, title, kind, None, reply);
    }
    Ok(())
}

fn subscribe(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    join(context, "subscribe", Kind::Channel, args, reply)
}

fn psubscribe(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    for pattern in args.rest() {
        Glob::new(pattern)?;
    }
    join(context, "psubscribe", Kind::Pattern, args, reply)
}

fn ssubscribe(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    // Redis lets SUBSCRIBE and PSUBSCRIBE pass for the sake of old clients, which never sent this one.
    if context.in_transaction {
        return Err(CommandError::text("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    join(context, "ssubscribe", Kind::ShardChannel, args, reply)
}

fn unsubscribe(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    leave(context, "unsubscribe", Kind::Channel, args, reply)
}

fn punsubscribe(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    leave(context, "punsubscribe", Kind::Pattern, args, reply)
}

fn sunsubscribe(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    leave(context, "sunsubscribe", Kind::ShardChannel, args, reply)
}

fn publish(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    send(context, Kind::Channel, args, reply)
}

fn spublish(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    send(context, Kind::ShardChannel, args, reply)
}

fn send(
    context: Context<'_, '_, '_>,
    kind: Kind,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let (channel, payload) = (args.word(), args.word());
    let shared = context.shared;
    let exchange = &shared.exchange;
    if context.in_transaction && context.executor.withholds_pushes() {
        // The message may show what the transaction has changed, whose record comes at the end.
        if exchange.is_heard() || exchange.bus.is_attached() {
            let (channel, payload) = (channel.into(), payload.into());
            context.executor.worker.notices.push(HostNotice::Message { kind, channel, payload }.into());
        }
        reply.count(exchange.reach(kind, args.words()[1]));
    } else {
        // Events of earlier commands of the same transaction come first.
        context.executor.worker.tell(context.executor.caller.client);
        let commitment = context.executor.commitment_of_message(context.session);
        reply.count(exchange.publish(kind, channel, payload, commitment, context.executor.queues()));
        exchange.bus.send(kind, channel, payload, commitment);
    }
    // Nodes of a cluster, replicas among them, get it from their bus.
    if !exchange.bus.is_attached() && context.shared.engine.log.is_on_for(LogConsumer::Replicas) {
        let (database, worker) = (context.session.database, &mut context.executor.worker);
        context.shared.engine.propagate(database, worker, args.words(), context.in_transaction);
    }
    Ok(())
}

fn list(
    context: Context<'_, '_, '_>,
    kind: Kind,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let pattern = args.optional();
    if !args.is_empty() {
        let typed = String::from_utf8_lossy(args.words()[1]);
        return Err(CommandError::quoting_within(
            "ERR unknown subcommand or wrong number of arguments for '",
            &typed.as_bytes()[..typed.len().min(crate::executor::QUOTED_BYTES_MAX)],
            "'. Try PUBSUB HELP.",
        ));
    }
    let pattern = pattern.map(Glob::new).transpose()?;
    let names = context.shared.exchange.names(kind, pattern.as_ref());
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name));
    Ok(())
}

fn channels(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    list(context, Kind::Channel, args, reply)
}

fn shard_channels(
    context: Context<'_, '_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    list(context, Kind::ShardChannel, args, reply)
}

fn count_each(
    context: Context<'_, '_, '_>,
    kind: Kind,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let names = args.take_rest();
    reply.array(2 * names.len());
    for name in names {
        reply.bulk(name);
        reply.count(context.shared.exchange.subscribers(kind, name));
    }
    Ok(())
}

fn subscriber_counts(
    context: Context<'_, '_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    count_each(context, Kind::Channel, args, reply)
}

fn shard_subscriber_counts(
    context: Context<'_, '_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    count_each(context, Kind::ShardChannel, args, reply)
}

fn pattern_count(context: Context<'_, '_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply.count(context.shared.exchange.count(Kind::Pattern));
    Ok(())
}
