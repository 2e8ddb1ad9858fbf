//! RECORDER: what the flight recorder has kept.

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run,
};
use dunlin_resp::ReplyBuffer;

use crate::{
    config::AppendFsync,
    executor::{Handler, ServerContext},
    observe::recorder::{
        Event, FIELDS, Facts, Field, HotSecond, Merge, Merged, NO_COMMAND, Question, Sample, When, WhenError,
        explain,
    },
    shared::Shared,
    system::host::unix_us,
};

pub(super) const COMMANDS: &[Command] = &[RECORDER];

const SUBCOMMAND: Command = Command {
    since: "1.0.0",
    group: Group::Server,
    complexity: "O(n) in the number of samples",
    flags: Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::LOADING).and(Flags::STALE),
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

const RECORDER: Command = Command {
    name: "recorder",
    summary: "Shows what the server was like, each second of the last hour and more coarsely for a month. Dunlin's own.",
    since: "1.0.0",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    run: Run::Container,
    subcommands: &[
        Command {
            name: "events",
            summary: "Returns events between two times in seconds since 1970, the newest first: milliseconds since 1970, kind, text.",
            complexity: "O(n) in the number of events",
            arity: Arity::AtLeast(4),
            run: Run::Host(&Handler(events)),
            args: &[
                Argument::integer("from"),
                Argument::integer("to"),
                Argument::integer("count").after("COUNT").optional(),
            ],
            ..SUBCOMMAND
        },
        Command {
            name: "fields",
            summary: "Returns the figures of a sample: name, how several become one, meaning.",
            complexity: "O(1)",
            arity: Arity::Exactly(2),
            run: Run::Host(&Handler(fields)),
            ..SUBCOMMAND
        },
        Command {
            name: "help",
            summary: "Shows this help.",
            complexity: "O(1)",
            arity: Arity::Exactly(2),
            run: Run::Host(&Handler(super::help)),
            tips: &[],
            ..SUBCOMMAND
        },
        Command {
            name: "keys",
            summary: "Returns the hot keys of the last hour between two times in seconds since 1970, a second each: its time, the key that most commands on keys named, cut to 64 bytes, and their share in thousandths. A second without a key of a quarter or more is left out.",
            complexity: "O(n) in the number of seconds",
            arity: Arity::Exactly(4),
            run: Run::Host(&Handler(keys)),
            args: &[Argument::integer("from"), Argument::integer("to")],
            ..SUBCOMMAND
        },
        Command {
            name: "range",
            summary: "Returns samples between two times in seconds since 1970: the seconds of each, then for each its time and the named figures, or all. Of more than POINTS (600) several become one.",
            arity: Arity::AtLeast(4),
            run: Run::Host(&Handler(range)),
            args: &[
                Argument::integer("from"),
                Argument::integer("to"),
                Argument::integer("points").after("POINTS").optional(),
                Argument::string("field").after("FIELDS").optional().multiple(),
            ],
            ..SUBCOMMAND
        },
        Command {
            name: "why",
            summary: "Says what was slow and what else went on, in the last minute or AT a time: 14:03, 14:03:12, 2026-11-21T14:03, all UTC, or seconds since 1970.",
            arity: Arity::AtLeast(2),
            run: Run::Host(&Handler(why)),
            args: &[Argument::string("time").after("AT").optional()],
            ..SUBCOMMAND
        },
    ],
    ..Command::DEFAULT
};

/// Samples of one answer, unless told otherwise and at most.
const POINTS: usize = 600;
const POINTS_MAX: i64 = 10_000;
/// Events of one answer, unless told otherwise.
const EVENTS: usize = 100;
/// How much of the time before is what is usual, in seconds; and the least number of samples of it.
const USUAL_S: u32 = 600;
const USUAL_SAMPLES: u32 = 12;

type Context<'a, 'k> = ServerContext<'a, 'k>;

fn span(args: &mut Args<'_>) -> Result<(u32, u32), CommandError> {
    let second = 0..=i64::from(u32::MAX);
    let wrong = || CommandError::text("ERR times are seconds since 1970");
    let (from, to) = (args.integer_in(second.clone(), wrong()), args.integer_in(second, wrong()));
    args.check()?;
    Ok((from as u32, to as u32))
}

fn range(context: &mut Context<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (from_s, to_s) = span(args)?;
    let mut points = POINTS;
    if args.token("POINTS") {
        let wrong = CommandError::text("ERR POINTS is 1 to 10000");
        points = args.integer_in(1..=POINTS_MAX, wrong) as usize;
        args.check()?;
    }
    let mut wanted: Vec<(Field, Merge)> = Vec::new();
    if args.token("FIELDS") {
        for name in args.take_rest() {
            let known = FIELDS.iter().find(|(_, known, ..)| known.as_bytes().eq_ignore_ascii_case(name));
            let (field, _, merge, _) = known.ok_or_else(|| {
                CommandError::quoting_within("ERR There is no figure '", name, "' (RECORDER FIELDS)")
            })?;
            wanted.push((*field, *merge));
        }
    } else {
        wanted.extend(FIELDS.iter().map(|(field, _, merge, _)| (*field, *merge)));
    }
    args.finish()?;
    let (step_s, samples) = context.shared.recorder.rings().range(from_s, to_s);
    let (step_s, samples) = thin(step_s, &samples, points);
    reply.array(2);
    reply.integer(step_s.into());
    reply.array(samples.len());
    for sample in &samples {
        reply.array(1 + wanted.len());
        reply.integer(sample.time_s.into());
        for (field, _) in &wanted {
            write_figure(context.shared, sample, *field, reply);
        }
    }
    Ok(())
}

/// Numbers of commands as their names.
fn write_figure(shared: &Shared, sample: &Sample, field: Field, reply: &mut ReplyBuffer) {
    if !matches!(field, Field::WorstCommand | Field::TopCommand) {
        return reply.integer(sample.get(field).into());
    }
    match command_name(shared, sample.get(field)) {
        Some(name) => reply.bulk(name.as_bytes()),
        None => reply.null(),
    }
}

fn command_name(shared: &Shared, number: u32) -> Option<String> {
    let known = |number: u32| shared.commands.entries().get(number as usize);
    (number != NO_COMMAND).then(|| known(number).map(|entry| entry.full_name())).flatten()
}

/// Merges neighbours until there are at most `points` samples, over whole multiples of the step.
fn thin(step_s: u32, samples: &[Sample], points: usize) -> (u32, Vec<Sample>) {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return (step_s, Vec::new()) };
    let span = ((last.time_s - first.time_s) / step_s + 1) as usize;
    let wider = step_s * span.div_ceil(points) as u32;
    if wider == step_s {
        return (step_s, samples.to_vec());
    }
    let mut thinned: Vec<Sample> = Vec::new();
    for group in samples.chunk_by(|one, next| one.time_s / wider == next.time_s / wider) {
        let mut merged = Merged::default();
        group.iter().for_each(|sample| merged.add(sample));
        thinned.extend(merged.sample(group[0].time_s - group[0].time_s % wider));
    }
    (wider, thinned)
}

fn events(context: &mut Context<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (from_s, to_s) = span(args)?;
    let mut count = EVENTS;
    if args.token("COUNT") {
        count =
            args.integer_in(1..=i64::from(u32::MAX), CommandError::text("ERR COUNT is 1 or more")) as usize;
        args.check()?;
    }
    args.finish()?;
    let events = events_between(context.shared, from_s, to_s, count);
    reply.array(events.len());
    for event in events {
        reply.array(3);
        reply.integer(event.time_ms as i64);
        reply.bulk(event.kind.name().as_bytes());
        reply.bulk(event.text.as_bytes());
    }
    Ok(())
}

/// The newest first.
fn events_between(shared: &Shared, from_s: u32, to_s: u32, count: usize) -> Vec<Event> {
    let rings = shared.recorder.rings();
    let (from_ms, to_ms) = (u64::from(from_s) * 1000, u64::from(to_s) * 1000 + 999);
    rings.events_between(from_ms, to_ms).rev().take(count).cloned().collect()
}

fn keys(context: &mut Context<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (from_s, to_s) = span(args)?;
    args.finish()?;
    let hot: Vec<HotSecond> =
        context.shared.recorder.rings().hot_keys_between(from_s, to_s).cloned().collect();
    reply.array(hot.len());
    for HotSecond { time_s, key, share } in hot {
        reply.array(3);
        reply.integer(time_s.into());
        reply.bulk(key.as_bytes());
        reply.integer(share.into());
    }
    Ok(())
}

fn fields(_: &mut Context<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply.array(FIELDS.len());
    for (_, name, merge, meaning) in FIELDS {
        reply.array(3);
        reply.bulk(name.as_bytes());
        let rule = match merge {
            Merge::Sum => "sum",
            Merge::Max => "max",
            Merge::Mean => "mean",
            Merge::Last => "last",
            Merge::With(_) => "with",
        };
        reply.bulk(rule.as_bytes());
        reply.bulk(meaning.as_bytes());
    }
    Ok(())
}

fn why(context: &mut Context<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let now_s = (unix_us() / 1_000_000) as u32;
    let mut when = When::LastMinute;
    if args.token("AT") {
        let word = args.optional().unwrap_or_default();
        when = When::parse(word, now_s).map_err(|error| match error {
            WhenError::Syntax => CommandError::text(
                "ERR a time is 14:03, 14:03:12, 2026-11-21T14:03 or 2026-11-21T14:03:12, all UTC, or seconds since 1970",
            ),
            WhenError::Future => CommandError::text("ERR that time is yet to come"),
        })?;
    }
    args.finish()?;
    let lines = answer(context.shared, when.span(now_s));
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.bulk(line.as_bytes()));
    Ok(())
}

fn answer(shared: &Shared, (from_s, to_s): (u32, u32)) -> Vec<String> {
    let (step_s, samples, usual) = {
        let rings = shared.recorder.rings();
        let to_s = to_s.min(rings.last_s());
        let (step_s, _) = rings.range(from_s, to_s);
        // A stretch that is shorter than a sample is answered by the one that it lies in.
        let (step_s, samples) = rings.range(from_s - from_s % step_s, to_s);
        let before_s = USUAL_S.max(USUAL_SAMPLES * step_s);
        let (usual_step, usual) = rings.range(from_s.saturating_sub(before_s), from_s.saturating_sub(1));
        // If the time before is kept more coarsely, its counts are no measure.
        (step_s, samples, if usual_step == step_s { usual } else { Vec::new() })
    };
    let mut events = events_between(shared, from_s, to_s, usize::MAX);
    events.reverse();
    let hot_keys: Vec<HotSecond> = shared.recorder.rings().hot_keys_between(from_s, to_s).cloned().collect();
    let config = shared.config.current();
    let command = |number| command_name(shared, number);
    explain(&Question {
        from_s,
        to_s,
        step_s,
        samples: &samples,
        usual: &usual,
        events: &events,
        hot_keys: &hot_keys,
        command: &command,
        facts: Facts {
            maxmemory: config.maxmemory,
            waits_for_syncs: config.appendonly && config.appendfsync == AppendFsync::Always,
            workers: shared.workers,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorder_range_thins_to_the_points_that_are_wanted() {
        let samples: Vec<Sample> = (0..100)
            .map(|second| {
                let mut sample = Sample::new(1000 + second);
                sample.set(Field::Commands, 1);
                sample
            })
            .collect();
        assert_eq!(thin(1, &samples, 100).1.len(), 100);
        let (step_s, thinned) = thin(1, &samples, 10);
        assert_eq!((step_s, thinned.len()), (10, 10));
        assert!(thinned.iter().all(|sample| sample.get(Field::Commands) == 10));
        assert_eq!(thinned[0].time_s, 1000);
        assert_eq!(thin(1, &[], 10), (1, Vec::new()));
    }
}
