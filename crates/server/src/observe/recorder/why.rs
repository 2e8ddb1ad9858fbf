//! `RECORDER WHY`: what was slow, in sentences that cite their figures.
//!
//! ```text
//!  ├────── usual: ten minutes before ──────┤├─ asked for ─┤
//! ```
//!
//! A figure is worth a sentence where it stands out against its usual, the median of the time before; the causes follow in
//! the order in which they explain most. All times are UTC, as in the server log.

use super::{
    HOT_SHARE_MIN,
    fields::{Field, Merged, NO_COMMAND, Sample},
    rings::{Event, EventKind, HotSecond},
};
use crate::{
    observe::quantities::{bytes, count, latency},
    system::utc::Utc,
};

/// Events that are listed at most.
const EVENTS_SHOWN_MAX: usize = 12;
/// A latency below this is never slow, in tenths of a microsecond: half a millisecond.
const SLOW_MIN: u32 = 5_000;

/// The time that is asked about, and what is known of it.
pub(crate) struct Question<'a> {
    /// First and last second.
    pub(crate) from_s: u32,
    pub(crate) to_s: u32,
    /// Seconds of a sample.
    pub(crate) step_s: u32,
    pub(crate) samples: &'a [Sample],
    /// Samples of the time before.
    pub(crate) usual: &'a [Sample],
    pub(crate) events: &'a [Event],
    /// Hot keys of the last hour only.
    pub(crate) hot_keys: &'a [HotSecond],
    /// Names of commands by their numbers.
    pub(crate) command: &'a dyn Fn(u32) -> Option<String>,
    pub(crate) facts: Facts,
}

/// The configuration that sentences depend on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Facts {
    /// In bytes; 0 for no limit.
    pub(crate) maxmemory: u64,
    /// Whether clients wait for syncs of the log.
    pub(crate) waits_for_syncs: bool,
    pub(crate) workers: usize,
}

/// The answer: one sentence or two a line.
pub(crate) fn explain(question: &Question<'_>) -> Vec<String> {
    let mut merged = Merged::default();
    question.samples.iter().for_each(|sample| merged.add(sample));
    let span = format!("{} to {} UTC", clock(question.from_s), clock(question.to_s));
    let Some(all) = merged.sample(question.from_s) else {
        return vec![format!(
            "Nothing was recorded from {span}: the server did not run, or it was too long ago."
        )];
    };
    let mut lines = vec![headline(question, &all, &span)];
    lines.extend(slow_commands(question, &all));
    lines.extend(load(question, &all));
    lines.extend(hot_key(question, &all));
    lines.extend(script(question, &all));
    lines.extend(disk(question, &all));
    lines.extend(memory(question, &all));
    lines.extend(processors(question, &all));
    lines.extend(clients(question, &all));
    lines.extend(background(question, &all));
    lines.extend(replication(question, &all));
    lines.extend(events(question));
    lines
}

/// The median of a figure over the usual time; `None` without any.
fn usual(question: &Question<'_>, field: Field) -> Option<u32> {
    let mut values: Vec<u32> = question.usual.iter().map(|sample| sample.get(field)).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// The median of a latency over the usual time's samples in which commands ran; `None` if none ran.
fn usual_latency(question: &Question<'_>, field: Field) -> Option<u32> {
    let busy = question.usual.iter().filter(|sample| sample.get(Field::Commands) > 0);
    let mut values: Vec<u32> = busy.map(|sample| sample.get(field)).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// Whether a figure is far above what is usual.
fn stands_out(value: u32, usual: Option<u32>, factor: u32, least: u32) -> bool {
    value >= least && usual.is_none_or(|usual| value / factor >= usual.max(1))
}

/// The sample with the largest figure.
fn peak<'a>(question: &Question<'a>, field: Field) -> Option<&'a Sample> {
    question.samples.iter().max_by_key(|sample| sample.get(field))
}

fn is_slow(question: &Question<'_>, all: &Sample) -> bool {
    stands_out(all.get(Field::Worst), usual_latency(question, Field::Worst), 3, SLOW_MIN)
        || stands_out(all.get(Field::P99), usual_latency(question, Field::P99), 3, SLOW_MIN / 5)
}

fn headline(question: &Question<'_>, all: &Sample, span: &str) -> String {
    let commands = all.get(Field::Commands);
    let seconds = all.get(Field::Seconds).max(1);
    let calls = match all.get(Field::Calls) {
        0 => String::new(),
        calls => format!("; scripts called {} more", count(calls.into())),
    };
    let figures = format!(
        "{} commands ran, {} a second; the 99th percentile of their latency was at most {}, the longest took {}{calls}",
        count(commands.into()),
        count((commands / seconds).into()),
        latency(all.get(Field::P99)),
        latency(all.get(Field::Worst)),
    );
    if commands == 0 {
        return format!("From {span} no command ran.");
    }
    match (usual_latency(question, Field::P99), usual_latency(question, Field::Worst)) {
        (Some(p99), Some(worst)) => {
            let verdict = match is_slow(question, all) {
                true => "the server was slower than usual",
                false => "nothing was unusually slow",
            };
            let (p99, worst) = (latency(p99), latency(worst));
            format!(
                "From {span} {verdict}: {figures}. In the ten minutes before, {p99} and {worst} were usual."
            )
        }
        _ => format!("From {span} {figures}. No command ran in the ten minutes before, to compare with."),
    }
}

fn slow_commands(question: &Question<'_>, all: &Sample) -> Vec<String> {
    let mut lines = Vec::new();
    let slow: Vec<&Event> = question.events.iter().filter(|event| event.kind == EventKind::Slow).collect();
    for event in slow.iter().take(3) {
        lines.push(format!("At {} {}.", clock_ms(event.time_ms), event.text));
    }
    let (number, of) = (all.get(Field::SlowCommands) as usize, slow.len().min(3));
    if number > of && of > 0 {
        lines.push(format!("{} more entered the slow log.", count((number - of) as u64)));
    }
    if slow.is_empty()
        && is_slow(question, all)
        && let Some(at) = peak(question, Field::Worst)
        && let Some(name) = (question.command)(at.get(Field::WorstCommand))
    {
        let long = latency(at.get(Field::Worst));
        lines.push(format!("The longest was a call of {name} at {}, {long}.", clock(at.time_s)));
    }
    // The command that took most of the time.
    let (busy, top) = (all.get(Field::BusyTime), peak(question, Field::TopTime));
    if let Some(top) = top.filter(|_| busy >= 10_000)
        && top.get(Field::TopCommand) != NO_COMMAND
        && let Some(name) = (question.command)(top.get(Field::TopCommand))
    {
        let (time, in_all) = (top.get(Field::TopTime), top.get(Field::BusyTime).max(1));
        let share = u64::from(time) * 100 / u64::from(in_all);
        if share >= 40 {
            let (calls, step) = (top.get(Field::TopCalls), question.step_s);
            let stretch = if step == 1 { "second".to_owned() } else { format!("{step} seconds") };
            lines.push(format!(
                "{name} took {share}% of the time that commands ran in the {stretch} from {}: {} of {}, in {}.",
                clock(top.time_s),
                latency(time),
                latency(in_all),
                calls_of(calls),
            ));
        }
    }
    lines
}

fn load(question: &Question<'_>, all: &Sample) -> Option<String> {
    let before = usual(question, Field::Commands)?;
    let peak = peak(question, Field::Commands)?;
    let (most, step) = (peak.get(Field::Commands), question.step_s);
    if stands_out(most, Some(before), 2, 1000 * step) {
        let figures = (count((most / step).into()), count((before / step).into()));
        return Some(format!(
            "Load rose to {} commands a second at {}; {} were usual.",
            figures.0,
            clock(peak.time_s),
            figures.1
        ));
    }
    let least = question.samples.iter().min_by_key(|sample| sample.get(Field::Commands))?;
    if before >= 100 * step && least.get(Field::Commands) < before / 4 && all.get(Field::Commands) > 0 {
        let figures = (count((least.get(Field::Commands) / step).into()), count((before / step).into()));
        return Some(format!(
            "Throughput fell to {} commands a second at {}; {} were usual.",
            figures.0,
            clock(least.time_s),
            figures.1
        ));
    }
    None
}

fn hot_key(question: &Question<'_>, all: &Sample) -> Option<String> {
    let share = all.get(Field::HotKeyShare);
    if let Some(hot) = question.hot_keys.iter().max_by_key(|hot| hot.share) {
        let (key, at) = (&hot.key, clock(hot.time_s));
        return Some(format!("One key, {key}, got {}% of the commands on keys at {at}.", hot.share / 10));
    }
    (share >= HOT_SHARE_MIN)
        .then(|| format!("One key, not known any more, got up to {}% of the commands on keys.", share / 10))
}

fn script(question: &Question<'_>, all: &Sample) -> Option<String> {
    let held = question.samples.iter().filter(|sample| sample.get(Field::Held) > 0).count() as u32;
    (all.get(Field::Held) > 0).then(|| {
        format!(
            "A script or command held keys for long, in {}: clients of these keys were answered BUSY or waited.",
            seconds_of(held * question.step_s)
        )
    })
}

fn disk(question: &Question<'_>, all: &Sample) -> Vec<String> {
    let mut lines = Vec::new();
    if all.get(Field::Unwritable) > 0 {
        lines.push("The append-only file could not be written, so writes were refused.".to_owned());
    }
    let worst = all.get(Field::SyncWorst);
    if stands_out(worst, usual(question, Field::SyncWorst), 3, 200_000)
        && let Some(at) = peak(question, Field::SyncWorst)
    {
        let who = match question.facts.waits_for_syncs {
            true => "with appendfsync always, the clients of that moment waited for it",
            false => "clients do not wait for it unless it takes longer than three seconds",
        };
        lines.push(format!(
            "The disk was slow: a sync of the log took {} at {}; {who}.",
            latency(worst),
            clock(at.time_s)
        ));
    }
    lines
}

fn memory(question: &Question<'_>, all: &Sample) -> Vec<String> {
    let mut lines = Vec::new();
    let (used, limit) = (u64::from(all.get(Field::UsedKb)) * 1024, question.facts.maxmemory);
    let evicted = all.get(Field::Evicted);
    if evicted > 0 {
        lines.push(format!(
            "{} keys were evicted: up to {} of maxmemory {} were in use.",
            count(evicted.into()),
            bytes(used),
            bytes(limit)
        ));
    } else if limit > 0 && used >= limit / 100 * 95 {
        lines.push(format!("Memory was near its limit: {} of maxmemory {}.", bytes(used), bytes(limit)));
    }
    let expired = all.get(Field::Expired);
    if stands_out(expired, usual(question, Field::Expired), 5, 1000) {
        lines.push(format!("{} keys expired, far more than usual.", count(expired.into())));
    }
    lines
}

fn processors(question: &Question<'_>, all: &Sample) -> Vec<String> {
    let mut lines = Vec::new();
    let busiest = all.get(Field::BusiestWorker);
    if busiest >= 900 {
        lines.push(format!(
            "A worker was busy {}% of its time (of {} workers): what its clients asked for had to queue.",
            busiest.min(1000) / 10,
            question.facts.workers
        ));
    }
    let (idle, own) = (all.get(Field::Idle), all.get(Field::Processor));
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let others = (1000 * cores).saturating_sub(idle * cores).saturating_sub(own);
    if idle < 100 && others > 300 * cores {
        lines.push(format!(
            "Other processes of the machine took {}% of its processors, and {}% were idle.",
            others / cores / 10,
            idle / 10
        ));
    }
    lines
}

fn clients(question: &Question<'_>, all: &Sample) -> Vec<String> {
    let mut lines = Vec::new();
    let connected = all.get(Field::Connected);
    let per_sample = peak(question, Field::Connected).map_or(0, |sample| sample.get(Field::Connected));
    if stands_out(per_sample, usual(question, Field::Connected), 5, 100) {
        lines.push(format!("{} clients connected, far more than usual.", count(connected.into())));
    }
    if all.get(Field::Rejected) > 0 {
        lines.push(format!("{} connections were refused.", count(all.get(Field::Rejected).into())));
    }
    let output = peak(question, Field::OutputKb).map_or(0, |sample| sample.get(Field::OutputKb));
    if stands_out(output, usual(question, Field::OutputKb), 4, 50 * 1024 * question.step_s) {
        let rate = u64::from(output) * 1024 / u64::from(question.step_s);
        lines.push(format!("Replies were large: {} a second were sent.", bytes(rate)));
    }
    let buffers = all.get(Field::BuffersKb);
    if stands_out(buffers, usual(question, Field::BuffersKb), 4, 64 * 1024) {
        lines.push(format!("Clients' buffers took {}.", bytes(u64::from(buffers) * 1024)));
    }
    lines
}

fn background(question: &Question<'_>, all: &Sample) -> Vec<String> {
    let span = |field: Field| {
        let with: Vec<&Sample> = question.samples.iter().filter(|sample| sample.get(field) > 0).collect();
        Some((clock(with.first()?.time_s), clock(with.last()?.time_s + question.step_s)))
    };
    let mut lines = Vec::new();
    for (field, what) in [
        (Field::Snapshot, "A snapshot was written"),
        (Field::Rewrite, "The log was rewritten"),
        (Field::Loading, "A data set was loaded"),
    ] {
        if let Some((from, to)) = span(field).filter(|_| all.get(field) > 0) {
            lines.push(format!("{what} from {from} to {to}."));
        }
    }
    lines
}

fn replication(question: &Question<'_>, all: &Sample) -> Vec<String> {
    let mut lines = Vec::new();
    if all.get(Field::LinkDown) > 0 {
        lines.push("The link to the primary was down, so reads may have been old.".to_owned());
    }
    let lag = all.get(Field::ReplicaLagKb);
    if stands_out(lag, usual(question, Field::ReplicaLagKb), 4, 1024) {
        lines.push(format!("A replica was {} behind.", bytes(u64::from(lag) * 1024)));
    }
    lines
}

fn events(question: &Question<'_>) -> Vec<String> {
    let others: Vec<&Event> = question.events.iter().filter(|event| event.kind != EventKind::Slow).collect();
    if others.is_empty() {
        return Vec::new();
    }
    let mut lines = vec!["Events:".to_owned()];
    for event in others.iter().take(EVENTS_SHOWN_MAX) {
        lines.push(format!("  {}  {}", clock_ms(event.time_ms), event.text));
    }
    if others.len() > EVENTS_SHOWN_MAX {
        lines.push(format!("  and {} more (RECORDER EVENTS)", others.len() - EVENTS_SHOWN_MAX));
    }
    lines
}

/// `14:03:12`.
fn clock(time_s: u32) -> String {
    Utc(u64::from(time_s) * 1000).to_string()[11..19].to_owned()
}

/// `14:03:12` of milliseconds.
fn clock_ms(time_ms: u64) -> String {
    Utc(time_ms).to_string()[11..19].to_owned()
}

fn calls_of(calls: u32) -> String {
    if calls == 1 { "1 call".to_owned() } else { format!("{} calls", count(calls.into())) }
}

fn seconds_of(seconds: u32) -> String {
    if seconds == 1 { "1 second".to_owned() } else { format!("{seconds} seconds") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 14:03:00 on a day of 2026.
    const START: u32 = 1_795_269_780;

    fn second(at: u32, figures: &[(Field, u64)]) -> Sample {
        let mut sample = Sample::new(START + at);
        for (field, value) in
            [(Field::Commands, 10_000), (Field::P99, 400), (Field::Worst, 3_000), (Field::Idle, 500)]
        {
            sample.set(field, value);
        }
        figures.iter().for_each(|(field, value)| sample.set(*field, *value));
        sample
    }

    fn answer(samples: &[Sample], events: &[Event], facts: Facts) -> Vec<String> {
        let usual: Vec<Sample> = (0..600).map(|_| second(0, &[])).collect();
        let command = |number| (number == 7).then(|| "keys".to_owned());
        explain(&Question {
            from_s: START,
            to_s: START + 59,
            step_s: 1,
            samples,
            usual: &usual,
            events,
            hot_keys: &[],
            command: &command,
            facts,
        })
    }

    #[test]
    fn why_names_the_hot_key() {
        let samples = [second(3, &[(Field::HotKeyShare, 620)])];
        let lines = answer(&samples, &[], Facts::default());
        assert_eq!(lines[1], "One key, not known any more, got up to 62% of the commands on keys.");
        let hot = |at, key: &str, share| HotSecond { time_s: START + at, key: key.into(), share };
        let question = Question {
            from_s: START,
            to_s: START + 59,
            step_s: 1,
            samples: &samples,
            usual: &[],
            events: &[],
            hot_keys: &[hot(2, "user:2", 300), hot(3, "user:1", 620)],
            command: &|_| None,
            facts: Facts::default(),
        };
        let lines = explain(&question);
        assert!(
            lines.contains(&"One key, user:1, got 62% of the commands on keys at 14:03:03.".to_owned()),
            "{lines:?}"
        );
    }

    #[test]
    fn why_says_that_nothing_was_slow() {
        let calm: Vec<Sample> = (0..60).map(|at| second(at, &[])).collect();
        assert_eq!(
            answer(&calm, &[], Facts::default()),
            [
                "From 14:03:00 to 14:03:59 UTC nothing was unusually slow: 600,000 commands ran, 10,000 a second; \
                 the 99th percentile of their latency was at most 40 µs, the longest took 300 µs. In the ten \
                 minutes before, 40 µs and 300 µs were usual."
            ]
        );
        assert_eq!(
            answer(&[], &[], Facts::default()),
            [
                "Nothing was recorded from 14:03:00 to 14:03:59 UTC: the server did not run, or it was too long ago."
            ]
        );
    }

    #[test]
    fn why_compares_with_seconds_in_which_commands_ran() {
        let idle = Sample::new(START - 1);
        let ask = |usual: &[Sample]| {
            let samples =
                [second(0, &[(Field::Commands, 1), (Field::Calls, 2_000_000), (Field::Worst, 9_000)])];
            explain(&Question {
                from_s: START,
                to_s: START + 59,
                step_s: 1,
                samples: &samples,
                usual,
                events: &[],
                hot_keys: &[],
                command: &|_| None,
                facts: Facts::default(),
            })
        };
        let figures = "1 commands ran, 1 a second; the 99th percentile of their latency was at most 40 µs, the longest \
                       took 900 µs; scripts called 2,000,000 more.";
        assert_eq!(
            ask(&[idle; 600])[0],
            format!(
                "From 14:03:00 to 14:03:59 UTC {figures} No command ran in the ten minutes before, to compare with."
            )
        );
        let mut usual = [idle; 600];
        usual[5] = second(0, &[(Field::Worst, 8_000)]);
        assert_eq!(
            ask(&usual)[0],
            format!(
                "From 14:03:00 to 14:03:59 UTC nothing was unusually slow: {figures} In the ten minutes before, 40 µs \
                 and 800 µs were usual."
            )
        );
    }

    #[test]
    fn why_names_the_command_and_its_client() {
        let mut samples: Vec<Sample> = (0..60).map(|at| second(at, &[])).collect();
        samples[12] = second(
            12,
            &[
                (Field::Worst, 8_120_000),
                (Field::WorstCommand, 7),
                (Field::SlowCommands, 1),
                (Field::BusyTime, 9_900_000),
                (Field::TopTime, 8_120_000),
                (Field::TopCommand, 7),
                (Field::TopCalls, 1),
                (Field::Commands, 300),
            ],
        );
        let event = Event {
            number: 0,
            time_ms: (u64::from(START) + 12) * 1000,
            kind: EventKind::Slow,
            text: "KEYS * took 812.0 ms (client 10.0.0.5:1234, name worker)".to_owned(),
        };
        let lines = answer(&samples, &[event], Facts::default());
        assert!(lines[0].contains("the server was slower than usual"), "{}", lines[0]);
        assert_eq!(
            lines[1..],
            [
                "At 14:03:12 KEYS * took 812.0 ms (client 10.0.0.5:1234, name worker).",
                "keys took 82% of the time that commands ran in the second from 14:03:12: 812 ms of 990 ms, in 1 call.",
                "Throughput fell to 300 commands a second at 14:03:12; 10,000 were usual.",
            ]
        );
    }

    #[test]
    fn why_names_what_else_went_on() {
        let all = second(
            5,
            &[
                (Field::SyncWorst, 18_000_000),
                (Field::Evicted, 1204),
                (Field::UsedKb, 990),
                (Field::BusiestWorker, 990),
                (Field::Snapshot, 1),
                (Field::Rejected, 3),
                (Field::Held, 1),
                (Field::ReplicaLagKb, 4096),
            ],
        );
        let facts = Facts { maxmemory: 1 << 20, waits_for_syncs: true, workers: 4 };
        let event = Event {
            number: 1,
            time_ms: (u64::from(START) + 5) * 1000,
            kind: EventKind::Config,
            text: "hz changed".to_owned(),
        };
        assert_eq!(
            answer(&[all], &[event], facts)[1..],
            [
                "A script or command held keys for long, in 1 second: clients of these keys were answered BUSY or waited.",
                "The disk was slow: a sync of the log took 1.8 s at 14:03:05; with appendfsync always, the clients of \
                 that moment waited for it.",
                "1,204 keys were evicted: up to 990.0 KiB of maxmemory 1.0 MiB were in use.",
                "A worker was busy 99% of its time (of 4 workers): what its clients asked for had to queue.",
                "3 connections were refused.",
                "A snapshot was written from 14:03:05 to 14:03:06.",
                "A replica was 4.0 MiB behind.",
                "Events:",
                "  14:03:05  hz changed",
            ]
        );
    }
}
