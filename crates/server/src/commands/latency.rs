//! LATENCY: events that took long, and the distribution of every command's latency.

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Entry, Flags, Group, Run,
};
use dunlin_resp::ReplyBuffer;

use crate::{
    executor::{Handler, ServerContext},
    observe::{
        command_stats::CommandTotals,
        latency::{Series, graph},
    },
};

pub(super) const COMMANDS: &[Command] = &[LATENCY];

const SUBCOMMAND: Command = Command {
    since: "2.8.13",
    group: Group::Server,
    flags: Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::LOADING).and(Flags::STALE),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    ..Command::DEFAULT
};

const LATENCY: Command = Command {
    name: "latency",
    summary: "Shows where time was spent.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    run: Run::Container,
    subcommands: &[
        Command {
            name: "doctor",
            summary: "Judges the recorded events and says what to look at.",
            arity: Arity::Exactly(2),
            run: Run::Host(&Handler(doctor)),
            ..SUBCOMMAND
        },
        Command {
            name: "graph",
            summary: "Draws the samples of an event.",
            arity: Arity::Exactly(3),
            run: Run::Host(&Handler(draw)),
            args: &[Argument::string("event")],
            ..SUBCOMMAND
        },
        Command {
            name: "help",
            summary: "Shows this help.",
            arity: Arity::Exactly(2),
            run: Run::Host(&Handler(super::help)),
            flags: Flags::LOADING.and(Flags::STALE),
            tips: &[],
            ..SUBCOMMAND
        },
        Command {
            name: "histogram",
            summary: "Shows how the latencies of some commands, or all, are distributed.",
            since: "7.0.0",
            complexity: "O(n) in the number of commands asked for",
            arity: Arity::AtLeast(2),
            run: Run::Host(&Handler(histogram)),
            args: &[Argument::string("command").optional().multiple()],
            ..SUBCOMMAND
        },
        Command {
            name: "history",
            summary: "Shows the samples of an event: unix time and milliseconds.",
            arity: Arity::Exactly(3),
            run: Run::Host(&Handler(history)),
            args: &[Argument::string("event")],
            ..SUBCOMMAND
        },
        Command {
            name: "latest",
            summary: "Shows the newest sample of every event, and its worst.",
            arity: Arity::Exactly(2),
            run: Run::Host(&Handler(latest)),
            ..SUBCOMMAND
        },
        Command {
            name: "reset",
            summary: "Forgets some events, or all.",
            arity: Arity::AtLeast(2),
            run: Run::Host(&Handler(reset)),
            args: &[Argument::string("event").optional().multiple()],
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            ..SUBCOMMAND
        },
    ],
    ..Command::DEFAULT
};

type Context<'a, 'k> = ServerContext<'a, 'k>;

fn latest(context: &mut Context<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let events = context.shared.stats.latency.all();
    reply.array(events.len());
    for (event, series) in events {
        let latest = series.latest();
        reply.array(4);
        reply.bulk(event.as_bytes());
        reply.integer(latest.time_s as i64);
        reply.integer(latest.latency_ms as i64);
        reply.integer(series.worst_ms as i64);
    }
    Ok(())
}

fn history(context: &mut Context<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let series = context.shared.stats.latency.find(args.word());
    let series = series.map(|(_, series)| series).unwrap_or_default();
    reply.array(series.samples().len());
    for sample in series.samples() {
        reply.array(2);
        reply.integer(sample.time_s as i64);
        reply.integer(sample.latency_ms as i64);
    }
    Ok(())
}

fn reset(context: &mut Context<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply.count(context.shared.stats.latency.reset(args.take_rest()));
    Ok(())
}

fn draw(context: &mut Context<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let event = args.word();
    let Some((event, series)) = context.shared.stats.latency.find(event) else {
        return Err(CommandError::quoting_within("ERR No samples available for event '", event, "'"));
    };
    let now_s = context.executor.caller.now_ms / 1000;
    reply.verbatim(b"txt", graph(event, &series, now_s).as_bytes());
    Ok(())
}

fn histogram(context: &mut Context<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let table = &context.shared.commands;
    let names = args.take_rest();
    let entries: Vec<&Entry> = if names.is_empty() {
        table.entries().iter().collect()
    } else {
        // A container stands for all its subcommands.
        let named = names.iter().filter_map(|name| table.find_full(name));
        named
            .flat_map(|entry| std::iter::once(entry).chain(&table.entries()[entry.subcommands.clone()]))
            .collect()
    };
    let totals = entries.iter().map(|entry| {
        (entry.full_name(), CommandTotals::of(&context.shared.stats.workers, entry.index).latencies)
    });
    let totals: Vec<_> = totals.filter(|(_, latencies)| latencies.count() > 0).collect();
    reply.map(totals.len());
    for (name, latencies) in totals {
        let rows = latencies.cumulative();
        reply.bulk(name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(latencies.count() as i64);
        reply.bulk(b"histogram_usec");
        reply.map(rows.len());
        for (bound_us, count) in rows {
            reply.integer(bound_us as i64);
            reply.integer(count as i64);
        }
    }
    Ok(())
}

fn doctor(context: &mut Context<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let config = context.executor.config.config();
    let now_s = context.executor.caller.now_ms / 1000;
    let report = diagnose(
        &context.shared.stats.latency.all(),
        now_s,
        config.latency_monitor_threshold,
        config.slowlog_log_slower_than,
    );
    reply.verbatim(b"txt", report.as_bytes());
    Ok(())
}

/// The findings about the events, with advice.
fn diagnose(events: &[(&'static str, Series)], now_s: u64, threshold_ms: u64, slower_than_us: i64) -> String {
    if threshold_ms == 0 && events.is_empty() {
        return "The latency monitor is off. CONFIG SET latency-monitor-threshold <milliseconds> turns it on.\n"
            .to_owned();
    }
    if events.is_empty() {
        return format!("No event has taken {threshold_ms} ms or more since the monitor was turned on.\n");
    }
    let mut report = "Events over the threshold:\n\n".to_owned();
    for (number, (event, series)) in events.iter().enumerate() {
        let summary = series.summary(now_s);
        report += &format!(
            "{}. {event}: {} spikes (average {} ms, mean deviation {} ms, one every {:.2} s). Worst ever: {} ms.\n",
            number + 1,
            summary.samples,
            summary.average_ms,
            summary.deviation_ms,
            summary.period_s,
            series.worst_ms
        );
    }
    report += "\nWhat to look at:\n\n";
    let threshold_us = i64::try_from(threshold_ms).unwrap_or(i64::MAX).saturating_mul(1000);
    let has = |wanted: &str| events.iter().any(|(event, _)| *event == wanted);
    if has("command") || has("fast-command") {
        if slower_than_us < 0 {
            report += "- The slow log is off: CONFIG SET slowlog-log-slower-than <microseconds> shows which commands are slow.\n";
        } else if threshold_us > 0 && slower_than_us > threshold_us {
            report += &format!(
                "- The slow log misses some of these commands: CONFIG SET slowlog-log-slower-than {threshold_us} shows them all.\n"
            );
        }
        report += "- SLOWLOG GET tells which commands were slow. Work that grows with the size of a value is best split: SCAN in place of KEYS, ranges in place of whole collections.\n";
    }
    if has("fast-command") {
        report += "- Commands of constant time were slow, so the process was kept from running: look for other load on this machine, swapping, or fewer cores than worker threads.\n";
    }
    if has("expire-cycle") {
        report +=
            "- Many keys expire at the same time: spread their expiry, or lower active-expire-effort.\n";
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::latency::LatencyMonitor;

    #[test]
    fn latency_doctor_says_what_to_do() {
        let monitor = LatencyMonitor::default();
        assert!(diagnose(&monitor.all(), 9, 0, 10_000).contains("is off"));
        assert!(diagnose(&monitor.all(), 9, 5, 10_000).starts_with("No event"));
        monitor.record("command", 3, 40);
        let report = diagnose(&monitor.all(), 9, 5, 10_000);
        assert!(
            report.contains("1. command: 1 spikes (average 40 ms, mean deviation 0 ms, one every 6.00 s)")
        );
        assert!(report.contains("slowlog-log-slower-than 5000"));
        assert!(!report.contains("expire"));
        assert!(diagnose(&monitor.all(), 9, 5, -1).contains("The slow log is off"));
    }
}
