//! HOTKEYS: sessions that find the keys which cost most.

use std::time::Duration;

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run,
};
use dunlin_resp::ReplyBuffer;

use crate::{
    executor::{Handler, ServerContext},
    observe::hot_keys::HotKeyOptions,
    system::host::ProcessorTime,
};

pub(super) const COMMANDS: &[Command] = &[HOTKEYS];

const SUBCOMMAND: Command = Command {
    since: "8.6.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::ADMIN.and(Flags::NO_SCRIPT),
    ..Command::DEFAULT
};

const HOTKEYS: Command = Command {
    name: "hotkeys",
    summary: "Finds the keys that take most of the processor's time and of the network's bytes.",
    since: "8.6.0",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    run: Run::Container,
    subcommands: &[
        Command {
            name: "get",
            summary: "Returns what the session has collected, whether it runs or has ended; nothing where there is none.",
            complexity: "O(n) in the number of keys counted",
            run: Run::Host(&Handler(get)),
            tips: &["nondeterministic_output"],
            ..SUBCOMMAND
        },
        Command {
            name: "help",
            summary: "Shows this help.",
            run: Run::Host(&Handler(super::help)),
            flags: Flags::LOADING.and(Flags::STALE),
            ..SUBCOMMAND
        },
        Command {
            name: "reset",
            summary: "Forgets what the session that has ended collected.",
            run: Run::Host(&Handler(reset)),
            ..SUBCOMMAND
        },
        Command {
            name: "start",
            summary: "Starts a session: METRICS names what is counted, COUNT how many keys are told (10), DURATION after how many seconds it ends by itself, and of SAMPLE commands about one is looked at. SLOTS needs a cluster.",
            arity: Arity::AtLeast(2),
            run: Run::Host(&Handler(start)),
            args: &[
                Argument::block(
                    "metrics",
                    &[
                        Argument::integer("count"),
                        Argument::word("cpu", "CPU").optional(),
                        Argument::word("net", "NET").optional(),
                    ],
                )
                .after("METRICS"),
                Argument::integer("k").after("COUNT").optional(),
                Argument::integer("seconds").after("DURATION").optional(),
                Argument::integer("ratio").after("SAMPLE").optional(),
                Argument::block("slots", &[Argument::integer("count"), Argument::integer("slot").multiple()])
                    .after("SLOTS")
                    .optional(),
            ],
            ..SUBCOMMAND
        },
        Command {
            name: "stop",
            summary: "Ends the session; what it has collected stays.",
            run: Run::Host(&Handler(stop)),
            ..SUBCOMMAND
        },
    ],
    ..Command::DEFAULT
};

/// The metrics that can be counted.
const METRICS: i64 = 2;
/// Keys that are told at most, and unless told otherwise.
const COUNT_MAX: i64 = 64;
const COUNT_DEFAULT: usize = 10;
/// The longest session that ends by itself, in seconds.
const SECONDS_MAX: i64 = 1_000_000;

fn read_options(args: &mut Args<'_>, in_cluster: bool) -> Result<HotKeyOptions, CommandError> {
    if args.remaining() < 2 || !args.token("METRICS") {
        return Err(CommandError::text("ERR METRICS parameter is required"));
    }
    let mut options = HotKeyOptions {
        by_time: false,
        by_bytes: false,
        count: COUNT_DEFAULT,
        duration: None,
        sample_ratio: 1,
    };
    let range = CommandError::owned(format!("ERR METRICS count must be > 0 and <= {METRICS}"));
    let metrics = args.integer_in(1..=METRICS, range);
    args.check()?;
    for _ in 0..metrics {
        let mismatch = CommandError::text("ERR METRICS count does not match number of metric types provided");
        // As in Redis, a metric that it does not know counts, and is not collected.
        let metric = args.optional().ok_or(mismatch)?;
        for (name, is_wanted) in [("CPU", &mut options.by_time), ("NET", &mut options.by_bytes)] {
            if metric.eq_ignore_ascii_case(name.as_bytes()) && std::mem::replace(is_wanted, true) {
                return Err(CommandError::owned(format!("ERR METRICS {name} defined more than once!")));
            }
        }
    }
    if !options.by_time && !options.by_bytes {
        return Err(CommandError::text("ERR METRICS no valid metrics passed. Supported: CPU|NET"));
    }
    while !args.is_empty() {
        if args.token_with("COUNT", 1) {
            let range = CommandError::text("ERR COUNT must be between 1 and 64");
            options.count = args.integer_in(1..=COUNT_MAX, range) as usize;
        } else if args.token_with("DURATION", 1) {
            let range = CommandError::text("ERR DURATION must be between 1 and 1000000");
            options.duration = Some(Duration::from_secs(args.integer_in(1..=SECONDS_MAX, range) as u64));
        } else if args.token_with("SAMPLE", 1) {
            let range = CommandError::text("ERR SAMPLE ratio must be positive");
            options.sample_ratio = args.integer_in(1..=i64::from(i32::MAX), range) as u32;
        } else if args.token_with("SLOTS", 1) {
            return Err(CommandError::text(match in_cluster {
                true => "ERR SLOTS parameter is not available in this version",
                false => "ERR SLOTS parameter cannot be used in non-cluster mode",
            }));
        } else {
            return Err(CommandError::Syntax);
        }
        args.check()?;
    }
    Ok(options)
}

fn start(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    const RUNNING: CommandError = CommandError::text("ERR hotkey tracking session already in progress");
    let (hot_keys, now) = (&context.shared.hot_keys, context.executor.now());
    if hot_keys.session().is_some_and(|session| session.is_active(now.instant)) {
        return Err(RUNNING);
    }
    if !hot_keys.start(read_options(args, context.shared.cluster.is_on())?, context.shared.workers, now) {
        return Err(RUNNING);
    }
    context.executor.refresh_hot_keys();
    reply.ok();
    Ok(())
}

fn stop(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    if context.shared.hot_keys.stop(context.executor.now().instant) {
        context.executor.refresh_hot_keys();
        reply.ok();
    } else {
        reply.null();
    }
    Ok(())
}

fn reset(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    if !context.shared.hot_keys.reset(context.executor.now().instant) {
        return Err(CommandError::text("ERR hotkey tracking session in progress, stop tracking first"));
    }
    reply.ok();
    Ok(())
}

fn get(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let Some(session) = context.shared.hot_keys.session() else {
        reply.null();
        return Ok(());
    };
    let (options, now) = (&session.options, context.executor.now().instant);
    let collected = session.collected();
    let processor_time = ProcessorTime::of_process();
    // An array of one map, so that answers of the nodes of a cluster can be put together.
    reply.array(1);
    reply.map(7 + 3 * usize::from(options.by_time) + 2 * usize::from(options.by_bytes));
    pair(reply, "tracking-active", i64::from(session.is_active(now)));
    pair(reply, "sample-ratio", i64::from(options.sample_ratio));
    reply.bulk(b"selected-slots");
    reply.array(1);
    reply.array(2);
    reply.integer(0);
    reply.integer(SLOT_MAX);
    pair(reply, "all-commands-all-slots-us", microseconds(collected.nanoseconds));
    pair(reply, "net-bytes-all-commands-all-slots", collected.bytes as i64);
    pair(reply, "collection-start-time-unix-ms", session.started_ms as i64);
    pair(reply, "collection-duration-ms", session.age(now).as_millis() as i64);
    if options.by_time {
        let since = |now: Duration, then: Duration| now.saturating_sub(then).as_millis() as i64;
        pair(reply, "total-cpu-time-user-ms", since(processor_time.user, session.processor_time.user));
        pair(reply, "total-cpu-time-sys-ms", since(processor_time.system, session.processor_time.system));
    }
    if options.by_bytes {
        pair(reply, "total-net-bytes", collected.sampled_bytes as i64);
    }
    if options.by_time {
        ranking(reply, "by-cpu-time-us", &collected.by_time, microseconds);
    }
    if options.by_bytes {
        ranking(reply, "by-net-bytes", &collected.by_bytes, |bytes| bytes as i64);
    }
    Ok(())
}

/// The last one of the slots; without a cluster all of them are here.
const SLOT_MAX: i64 = 16_383;

/// Begun ones count whole: what has cost something is not told to have cost nothing.
fn microseconds(nanoseconds: u64) -> i64 {
    nanoseconds.div_ceil(1000) as i64
}

fn pair(reply: &mut ReplyBuffer, name: &str, value: i64) {
    reply.bulk(name.as_bytes());
    reply.integer(value);
}

/// Keys and what they have cost, in one array.
fn ranking(reply: &mut ReplyBuffer, name: &str, keys: &[(Box<[u8]>, u64)], unit: fn(u64) -> i64) {
    reply.bulk(name.as_bytes());
    reply.array(2 * keys.len());
    for (key, cost) in keys {
        reply.bulk(key);
        reply.integer(unit(*cost));
    }
}
