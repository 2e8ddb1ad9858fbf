//! Commands on a client's own connection, but for `CLIENT`.
//!
//! Texts and flags are those of redis-server 7.0; `HELLO` does nothing unless it can do all that it
//! is asked, as later versions do it.

use dunlin_acl::{Context, DEFAULT_USER, Reason};
use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run,
};
use dunlin_net::{Next, Now};
use dunlin_resp::{Protocol, ReplyBuffer, number::parse_integer};

use super::client::check_name;
use dunlin_scripting::REDIS_VERSION;

use crate::{
    executor::{Flow, Handler, ServerContext},
    push::pubsub::unsubscribe_all,
};

pub(super) const COMMANDS: &[Command] = &[AUTH, ECHO, HELLO, PING, QUIT, RESET, SELECT];

/// Flags of the commands with which a conversation begins or ends.
const HANDSHAKE: Flags = Flags::NO_SCRIPT
    .and(Flags::LOADING)
    .and(Flags::STALE)
    .and(Flags::FAST)
    .and(Flags::NO_AUTH)
    .and(Flags::ALLOW_BUSY);

const AUTH: Command = Command {
    name: "auth",
    summary: "Says who the client is, with a password.",
    since: "1.0.0",
    group: Group::Connection,
    complexity: "O(n) in the number of passwords that the user has",
    arity: Arity::AtLeast(2),
    run: Run::Host(&Handler(auth)),
    flags: HANDSHAKE,
    secrets: Some(|words| (1..words.len()).collect()),
    args: &[Argument::string("username").since("6.0.0").optional(), Argument::string("password")],
    ..Command::DEFAULT
};

const ECHO: Command = Command {
    name: "echo",
    summary: "Answers the message it is given.",
    since: "1.0.0",
    group: Group::Connection,
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(echo)),
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
    args: &[Argument::string("message")],
    ..Command::DEFAULT
};

const HELLO: Command = Command {
    name: "hello",
    summary: "Chooses the protocol, optionally with a password and a name, and describes the server.",
    since: "6.0.0",
    group: Group::Connection,
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(hello)),
    flags: HANDSHAKE,
    secrets: Some(credentials_of_hello),
    args: &[Argument::block(
        "arguments",
        &[
            Argument::integer("protover"),
            Argument::block(
                "username_password",
                &[Argument::string("username"), Argument::string("password")],
            )
            .after("AUTH")
            .optional(),
            Argument::string("clientname").after("SETNAME").optional(),
        ],
    )
    .optional()],
    ..Command::DEFAULT
};

const PING: Command = Command {
    name: "ping",
    summary: "Answers PONG, or the message it is given.",
    since: "1.0.0",
    group: Group::Connection,
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(ping)),
    flags: Flags::FAST.and(Flags::HEALTH_CHECK).and(Flags::FOR_LISTENERS),
    args: &[Argument::string("message").optional()],
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    ..Command::DEFAULT
};

const QUIT: Command = Command {
    name: "quit",
    summary: "Closes the connection once everything has been answered.",
    since: "1.0.0",
    group: Group::Connection,
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(quit)),
    flags: HANDSHAKE.and(Flags::UNQUEUED).and(Flags::FOR_LISTENERS),
    ..Command::DEFAULT
};

const RESET: Command = Command {
    name: "reset",
    summary: "Makes the connection as good as new.",
    since: "6.2.0",
    group: Group::Connection,
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(reset)),
    flags: HANDSHAKE.and(Flags::UNQUEUED).and(Flags::FOR_LISTENERS),
    ..Command::DEFAULT
};

const SELECT: Command = Command {
    name: "select",
    summary: "Chooses the database that the commands behind it work on.",
    since: "1.0.0",
    group: Group::Connection,
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(select)),
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
    args: &[Argument::integer("index")],
    ..Command::DEFAULT
};

const WRONG_PASSWORD: CommandError =
    CommandError::text("WRONGPASS invalid username-password pair or user is disabled.");

fn auth(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (user, password) = match args.take_rest() {
        [password] => {
            if context.shared.access.default_user().needs_no_password() {
                return Err(CommandError::text(
                    "ERR AUTH <password> called without any password configured for the default user. \
                     Are you sure your configuration is correct?",
                ));
            }
            (DEFAULT_USER, *password)
        }
        [user, password] => (*user, *password),
        _ => return Err(CommandError::Syntax),
    };
    if authenticate(context, args.words()[0], user, password)? {
        reply.ok();
    }
    Ok(())
}

/// Lets a client in as a user; false if the attempt has to wait, and is presented again.
fn authenticate(
    context: &mut ServerContext<'_, '_>,
    name: &[u8],
    user: &[u8],
    password: &[u8],
) -> Result<bool, CommandError> {
    if !may_try(context)? {
        return Ok(false);
    }
    let shared = context.shared;
    let session = &mut *context.session;
    if let Some(user) = shared.access.authenticate(user, password) {
        session.client.names().user = user.name().to_vec();
        (session.user, session.authenticated) = (user, true);
        context.executor.audit_success(context.session, "password");
        return Ok(true);
    }
    let transport = &session.client.transport;
    if shared.access.failures.note(transport, context.executor.now().instant) {
        tracing::warn!(
            "many failed attempts to authenticate from {}: further ones from there are slowed down",
            transport.peer_text()
        );
    }
    let reason = Reason::Authentication;
    let place = if context.in_transaction { Context::Multi } else { Context::TopLevel };
    context.executor.note_denied(session, reason, place, name, user);
    Err(WRONG_PASSWORD)
}

/// Whether an attempt to authenticate is looked at now. An attempt from an address with many failures waits
/// before, and a transaction, which cannot wait, is refused.
fn may_try(context: &mut ServerContext<'_, '_>) -> Result<bool, CommandError> {
    let now = Now::read().instant;
    let session = &mut *context.session;
    let attempt_at = match session.attempt_at {
        Some(attempt_at) => attempt_at,
        None => match context.shared.access.failures.delay(&session.client.transport, now) {
            None => return Ok(true),
            Some(_) if context.in_transaction => return Err(WRONG_PASSWORD),
            Some(delay) => now + delay,
        },
    };
    if attempt_at <= now {
        session.attempt_at = None;
        return Ok(true);
    }
    session.attempt_at = Some(attempt_at);
    context.flow = Flow::Postpone { until: Some(attempt_at) };
    Ok(false)
}

fn echo(_: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply.bulk(args.word());
    Ok(())
}

/// The user and the password in a request of `HELLO`, wherever `AUTH` stands: a request that is refused for something
/// before it may hold a password, too.
fn credentials_of_hello(words: &[&[u8]]) -> Vec<usize> {
    let (mut found, mut at) = (Vec::new(), 1);
    while let Some(option) = words.get(at) {
        at += 1;
        if option.eq_ignore_ascii_case(b"AUTH") {
            found.extend((at..at + 2).filter(|at| *at < words.len()));
            at += 2;
        } else if option.eq_ignore_ascii_case(b"SETNAME") {
            at += 1;
        }
    }
    found
}

fn hello(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let mut protocol = None;
    if let Some(word) = args.optional() {
        protocol = Some(match parse_integer(word) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err(CommandError::text("NOPROTO unsupported protocol version")),
            None => {
                return Err(CommandError::text("ERR Protocol version is not an integer or out of range"));
            }
        });
    }
    let (mut credentials, mut name) = (None, None);
    while !args.is_empty() {
        if args.token_with("AUTH", 2) {
            credentials = Some((args.word(), args.word()));
        } else if args.token_with("SETNAME", 1) {
            let word = args.word();
            check_name(word)?;
            name = Some(word);
        } else {
            return Err(CommandError::quoting_within("ERR Syntax error in HELLO option '", args.word(), "'"));
        }
    }
    if let Some((user, password)) = credentials
        && !authenticate(context, args.words()[0], user, password)?
    {
        return Ok(());
    }
    if context.executor.is_stranger(context.session) {
        return Err(CommandError::text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH \
             <user> <pass> option can be used to authenticate the client and select the RESP protocol \
             version at the same time",
        ));
    }
    if let Some(name) = name {
        context.session.client.names().name = name.to_vec();
    }
    if let Some(protocol) = protocol {
        context.session.speak(protocol);
        reply.set_protocol(protocol);
    }
    describe_server(context, reply);
    Ok(())
}

fn describe_server(context: &ServerContext<'_, '_>, reply: &mut ReplyBuffer) {
    let session = &context.session;
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(REDIS_VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.integer(if session.protocol == Protocol::Resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(session.client.id() as i64);
    reply.bulk(b"mode");
    reply.bulk(if context.shared.cluster.is_on() { b"cluster" } else { b"standalone" });
    reply.bulk(b"role");
    reply.bulk(if context.shared.replication.is_replica() { b"replica" } else { b"master" });
    reply.bulk(b"modules");
    super::module::write_list(&context.shared.commands, reply);
}

fn ping(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    match args.optional() {
        _ if !args.is_empty() => return Err(CommandError::WrongArity("ping".to_owned())),
        message if context.session.only_listens() => {
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(message.unwrap_or_default());
        }
        Some(message) => reply.bulk(message),
        None => reply.simple("PONG"),
    }
    Ok(())
}

fn quit(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    context.flow = Flow::Stop(Next::CloseAfterReply);
    reply.ok();
    Ok(())
}

fn reset(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    unsubscribe_all(&context.shared.exchange, context.session);
    context.executor.stop_monitoring(context.session);
    context.executor.discard(context.session, context.turn.inside.as_ref());
    context.executor.stop_tracking(context.session);
    context.executor.forget_fieldsets(context.session);
    context.session.reset(&context.shared.access);
    context.executor.identify(context.session);
    context.executor.act_for(context.session);
    reply.set_protocol(context.session.protocol);
    reply.simple("RESET");
    Ok(())
}

fn select(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let index = args.integer();
    args.finish()?;
    let index = i32::try_from(index).map_err(|_| {
        CommandError::text("ERR value is out of range, value must between -2147483648 and 2147483647")
    })?;
    context.session.database = usize::try_from(index)
        .ok()
        .filter(|index| *index < context.shared.engine.keyspace.databases())
        .ok_or(CommandError::text("ERR DB index is out of range"))?;
    reply.ok();
    Ok(())
}
