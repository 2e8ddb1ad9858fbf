//! The figures of `dunlin top`: rates, shares and percentiles of the time between two looks, and the rows of each page.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use dunlin_server::quantities::{bytes, count, latency};

use super::{
    look::{Histogram, Look, Parts, Sample},
    table::{Cell, Page, Table},
};

/// Looks that follow each other sooner, as where the page changes, are no measure of a rate.
const RATE_SPAN_MIN: Duration = Duration::from_millis(500);
/// Samples of its own that the program keeps, for servers without a recorder.
const OWN_SAMPLES_MAX: usize = 600;

/// Two looks at a server, and what earlier ones have left.
#[derive(Debug, Default)]
pub(super) struct View {
    before: Option<Look>,
    now: Option<Look>,
    /// A sample of each look, if the server has no recorder for the user.
    own: VecDeque<Sample>,
}

/// The figures above the pages. Figures that are not known are `None`.
#[derive(Debug, Default)]
pub(super) struct Summary {
    pub(super) version: Option<String>,
    pub(super) role: Option<&'static str>,
    pub(super) uptime_s: Option<f64>,
    pub(super) rate: Option<f64>,
    pub(super) last: Option<Sample>,
    /// Whether the latencies of `last` are exact, or bounds of histograms.
    pub(super) has_longest: bool,
    pub(super) used: Option<f64>,
    pub(super) limit: Option<f64>,
    pub(super) resident: Option<f64>,
    pub(super) keys: Option<f64>,
    pub(super) evicted_rate: Option<f64>,
    pub(super) expired_rate: Option<f64>,
    pub(super) hit_share: Option<f64>,
    pub(super) clients: Option<f64>,
    pub(super) blocked: Option<f64>,
    pub(super) in_rate: Option<f64>,
    pub(super) out_rate: Option<f64>,
    /// Processor time of the server, in cores.
    pub(super) cores: Option<f64>,
    pub(super) workers: Option<f64>,
}

impl View {
    /// Takes a new look in.
    pub(super) fn add(&mut self, look: Look) {
        let at = look.at;
        let before = self.now.replace(look);
        if before.as_ref().is_some_and(|before| at.saturating_duration_since(before.at) < RATE_SPAN_MIN) {
            return;
        }
        // The page may have changed: what it asks for is compared with the last look that had it.
        self.before = before.map(|mut before| {
            let older = self.before.take();
            if let Some(older) = older {
                before.histograms = before.histograms.or(older.histograms);
            }
            before
        });
        if self.now.as_ref().is_some_and(|now| now.samples.is_empty())
            && let Some(sample) = self.own_sample()
        {
            self.own.truncate(OWN_SAMPLES_MAX - 1);
            self.own.push_front(sample);
        }
    }

    /// Forgets the looks: the next one has nothing to be compared with, as after a restart of the server.
    pub(super) fn reset(&mut self) {
        (self.before, self.now) = (None, None);
    }

    /// The newest look.
    pub(super) fn now(&self) -> Option<&Look> {
        self.now.as_ref()
    }

    /// Seconds between the looks.
    fn seconds(&self) -> Option<f64> {
        let (before, now) = (self.before.as_ref()?, self.now.as_ref()?);
        Some(now.at.saturating_duration_since(before.at).as_secs_f64().max(0.001))
    }

    /// How much a row of INFO has grown each second. A counter that was reset has grown by nothing.
    fn rate(&self, name: &str) -> Option<f64> {
        let (before, now) = (self.before.as_ref()?.info.number(name)?, self.now.as_ref()?.info.number(name)?);
        Some((now - before).max(0.0) / self.seconds()?)
    }

    /// Calls of a command since the look before, by how long they took.
    fn new_calls(&self, command: &str) -> Option<Histogram> {
        let (before, now) = (self.before.as_ref()?, self.now.as_ref()?);
        let (before, now) = (before.histograms.as_ref()?, now.histograms.as_ref()?.get(command)?);
        Some(before.get(command).map_or_else(|| now.clone(), |before| now.since(before)))
    }

    fn own_sample(&self) -> Option<Sample> {
        let mut all = Histogram::default();
        for name in self.now.as_ref()?.histograms.iter().flat_map(|histograms| histograms.keys()) {
            all.add(&self.new_calls(name)?);
        }
        let bound = |percent| {
            let tenths = all.percentile(percent).unwrap_or(0).saturating_mul(10);
            u32::try_from(tenths).unwrap_or(u32::MAX)
        };
        let rate = self.rate("total_commands_processed")?;
        Some(Sample { rate, p50: bound(50.0), p99: bound(99.0), p999: bound(99.9), worst: 0 })
    }

    /// Commands a second, the newest first.
    pub(super) fn history(&self) -> Vec<f64> {
        match &self.now {
            Some(now) if !now.samples.is_empty() => {
                now.samples.iter().rev().map(|sample| sample.rate).collect()
            }
            _ => self.own.iter().map(|sample| sample.rate).collect(),
        }
    }

    /// The figures above the pages.
    pub(super) fn summary(&self) -> Summary {
        let Some(now) = &self.now else { return Summary::default() };
        let info = &now.info;
        let recorded = now.samples.last().copied();
        let sum = |one: Option<f64>, other: Option<f64>| Some(one? + other?);
        let hits = sum(self.rate("keyspace_hits"), self.rate("keyspace_misses")).filter(|all| *all > 0.0);
        let databases = info.rows("db");
        let keys = databases.values().filter_map(|parts| parts.number("keys")).sum();
        Summary {
            version: info
                .text("dunlin_version")
                .map(|version| format!("dunlin {version}"))
                .or_else(|| info.text("redis_version").map(|version| format!("redis protocol {version}"))),
            role: info.text("role").map(role),
            uptime_s: info.number("uptime_in_seconds"),
            rate: self.rate("total_commands_processed").or(recorded.map(|sample| sample.rate)),
            last: recorded.or(self.own.front().copied()),
            has_longest: recorded.is_some(),
            used: info.number("used_memory"),
            limit: info.number("maxmemory").filter(|limit| *limit > 0.0),
            resident: info.number("used_memory_rss"),
            keys: info.text("role").map(|_| keys),
            evicted_rate: self.rate("evicted_keys"),
            expired_rate: self.rate("expired_keys"),
            hit_share: hits.and_then(|all| Some(self.rate("keyspace_hits")? / all)),
            clients: info.number("connected_clients"),
            blocked: info.number("blocked_clients"),
            in_rate: self.rate("total_net_input_bytes"),
            out_rate: self.rate("total_net_output_bytes"),
            cores: sum(self.rate("used_cpu_user"), self.rate("used_cpu_sys")),
            workers: info.number("worker_threads"),
        }
    }

    /// The rows of a page, unordered.
    pub(super) fn table(&self, page: Page) -> Table {
        let Some(now) = &self.now else { return Table::default() };
        match page {
            Page::Commands => self.commands(now),
            Page::Keys => hot_keys(now),
            Page::Clients => self.clients(now),
            Page::Replicas => replicas(now),
            Page::Events => events(now),
        }
    }

    fn commands(&self, now: &Look) -> Table {
        let rows_before = self.before.as_ref().map(|before| before.info.rows("cmdstat_"));
        let seconds = self.seconds();
        let grown = |name: &str, parts: &Parts<'_>, figure: &str| {
            let before = rows_before.as_ref()?.get(name).map_or(Some(0.0), |before| before.number(figure))?;
            Some((parts.number(figure)? - before).max(0.0))
        };
        let commands = now.info.rows("cmdstat_");
        let all_us: f64 = commands.iter().filter_map(|(name, parts)| grown(name, parts, "usec")).sum();
        let row = |(name, parts): (&&str, &Parts<'_>)| {
            let new = |figure| grown(name, parts, figure);
            let rate = |figure| per_second(new(figure).zip(seconds).map(|(new, seconds)| new / seconds));
            let mean = new("calls").filter(|calls| *calls > 0.0).and_then(|calls| Some(new("usec")? / calls));
            let new_calls = self.new_calls(name);
            let bound = |percent| {
                let us = new_calls.as_ref().and_then(|calls| calls.percentile(percent));
                duration(us.map(|us| us as f64))
            };
            let share = new("usec").filter(|_| all_us > 0.0).map(|us| us / all_us);
            vec![
                Cell::words(&name.replace('|', " ")),
                rate("calls"),
                percent(share),
                duration(mean),
                bound(50.0),
                bound(99.0),
                rate("failed_calls"),
                rate("rejected_calls"),
                whole(parts.number("calls")),
            ]
        };
        let rows: Vec<_> = commands.iter().map(row).collect();
        let none = "No command has run yet.";
        Table { note: note(now, &rows, &["INFO"], none), rows }
    }

    fn clients(&self, now: &Look) -> Table {
        let lines = now.clients.as_deref().unwrap_or_default();
        let before: HashMap<&str, Parts<'_>> = self
            .before
            .iter()
            .flat_map(|before| before.clients.iter().flatten())
            .map(|line| Parts::parse(line, ' '))
            .filter_map(|parts| Some((parts.text("id")?, parts)))
            .collect();
        let seconds = self.seconds();
        let row = |line: &String| {
            let parts = Parts::parse(line, ' ');
            let before = parts.text("id").and_then(|id| before.get(id));
            let grown =
                |figure: &str| Some((parts.number(figure)? - before?.number(figure)?).max(0.0) / seconds?);
            let words = |figure| Cell::words(parts.text(figure).unwrap_or_default());
            vec![
                words("addr"),
                words("name"),
                words("user"),
                per_second(grown("tot-cmds")),
                size(parts.number("tot-mem")),
                span_cell(parts.number("idle")),
                Cell::words(&parts.text("cmd").unwrap_or_default().replace('|', " ")),
                size(grown("tot-net-out")),
                size(grown("tot-net-in")),
                size(parts.number("omem")),
                span_cell(parts.number("age")),
                whole(parts.number("db")),
                words("flags"),
                words("lib-name"),
            ]
        };
        let rows: Vec<_> = lines.iter().map(row).collect();
        Table { note: note(now, &rows, &["CLIENT LIST"], ""), rows }
    }
}

/// The sentence below a page's title: why it has no rows, or what about them is missing.
fn note(now: &Look, rows: &[Vec<Cell>], questions: &[&str], none: &str) -> Option<String> {
    let refused =
        questions.iter().find_map(|name| Some(format!("{name} is refused: {}", now.refusal(name)?)));
    refused.or_else(|| (rows.is_empty() && !none.is_empty()).then(|| none.to_owned()))
}

fn role(name: &str) -> &'static str {
    if name == "slave" { "replica" } else { "primary" }
}

fn hot_keys(now: &Look) -> Table {
    let Some(hot) = &now.hot_keys else {
        let hottest = now.hottest.as_ref().map_or_else(String::new, |(key, share)| {
            format!("Just now, {}% of the commands on keys named {key}.\n", share / 10)
        });
        let none = format!(
            "{hottest}No session of HOTKEYS has run. s starts one for a minute; the server times each command meanwhile."
        );
        return Table { note: note(now, &[], &["HOTKEYS GET"], &none), rows: Vec::new() };
    };
    let (all_us, all_bytes) = hot.all;
    let share = |part: f64, all: f64| percent((all > 0.0).then(|| part / all));
    let row = |(key, (us, sent)): (&String, &(f64, f64))| {
        vec![
            Cell::words(key),
            share(*us, all_us),
            share(*sent, all_bytes),
            duration(Some(*us)),
            size(Some(*sent)),
        ]
    };
    let state = if hot.is_active { "runs; its keys of" } else { "has ended, s starts another; its keys of" };
    let note = format!("A session of HOTKEYS {state} {}:", span(hot.duration_ms / 1000.0));
    Table { rows: hot.keys.iter().map(row).collect(), note: Some(note) }
}

fn replicas(now: &Look) -> Table {
    let info = &now.info;
    let mut rows = Vec::new();
    if let (Some(host), Some(port)) = (info.text("master_host"), info.text("master_port")) {
        let heard = info.number("master_last_io_seconds_ago").filter(|seconds| *seconds >= 0.0);
        let (read, applied) = (info.number("slave_read_repl_offset"), info.number("slave_repl_offset"));
        rows.push(vec![
            Cell::words(&address(host, port)),
            Cell::words("primary"),
            Cell::words(&format!("link {}", info.text("master_link_status").unwrap_or("unknown"))),
            size(read.zip(applied).map(|(read, applied)| (read - applied).max(0.0))),
            span_cell(heard),
            whole(applied),
        ]);
    }
    let end = info.number("master_repl_offset");
    // `slave0` is a replica, `slave_repl_offset` a figure.
    let is_replica = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    for (_, parts) in info.rows("slave").into_iter().filter(|(rest, _)| is_replica(rest)) {
        let offset = parts.number("offset");
        rows.push(vec![
            Cell::words(&address(
                parts.text("ip").unwrap_or_default(),
                parts.text("port").unwrap_or_default(),
            )),
            Cell::words("replica"),
            Cell::words(parts.text("state").unwrap_or_default()),
            size(end.zip(offset).map(|(end, offset)| (end - offset).max(0.0))),
            span_cell(parts.number("lag")),
            whole(offset),
        ]);
    }
    Table { note: note(now, &rows, &["INFO"], "This server has no replicas."), rows }
}

fn events(now: &Look) -> Table {
    let row = |event: &super::look::Event| {
        let of_day_s = event.time_ms / 1000 % 86_400;
        let (hour, minute, second) = (of_day_s / 3600, of_day_s / 60 % 60, of_day_s % 60);
        vec![
            Cell::number(event.time_ms as f64, format!("{hour:02}:{minute:02}:{second:02}")),
            Cell::words(&event.kind),
            Cell::words(&event.text),
        ]
    };
    let rows: Vec<_> = now.events.iter().map(row).collect();
    Table { note: note(now, &rows, &["RECORDER EVENTS"], "No event in the last day."), rows }
}

fn address(host: &str, port: &str) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn cell(figure: Option<f64>, write: impl Fn(f64) -> String) -> Cell {
    figure.map_or_else(Cell::missing, |figure| Cell::number(figure, write(figure)))
}

fn whole(figure: Option<f64>) -> Cell {
    cell(figure, |figure| count(figure.max(0.0) as u64))
}

fn size(figure: Option<f64>) -> Cell {
    cell(figure, |figure| bytes(figure.max(0.0) as u64))
}

/// Microseconds.
fn duration(figure: Option<f64>) -> Cell {
    cell(figure, |us| short_latency((us * 10.0).round() as u32))
}

fn percent(figure: Option<f64>) -> Cell {
    cell(figure, percentage)
}

fn per_second(figure: Option<f64>) -> Cell {
    cell(figure, frequency)
}

fn span_cell(figure: Option<f64>) -> Cell {
    cell(figure, span)
}

/// Tenths of a microsecond; below ten microseconds they count.
pub(super) fn short_latency(tenths: u32) -> String {
    if (1..100).contains(&tenths) { format!("{}.{} µs", tenths / 10, tenths % 10) } else { latency(tenths) }
}

/// A share of one as `12%`, small ones with a digit more.
pub(super) fn percentage(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 9.95 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
}

/// Events a second; few of them with a digit more.
pub(super) fn frequency(rate: f64) -> String {
    if rate > 0.0 && rate < 9.95 { format!("{rate:.1}") } else { count(rate.round().max(0.0) as u64) }
}

/// Seconds as `3 d 4 h`: the two largest units.
pub(super) fn span(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::top::look::{Event, HotKeys, Info};

    const BEFORE: &str = "dunlin_version:0.1.0\r\nrole:master\r\nuptime_in_seconds:93784\r\nconnected_clients:120\r\n\
        blocked_clients:3\r\nused_memory:1610612736\r\nmaxmemory:4294967296\r\nused_memory_rss:2147483648\r\n\
        total_commands_processed:1000\r\ntotal_net_input_bytes:0\r\ntotal_net_output_bytes:0\r\nevicted_keys:0\r\n\
        expired_keys:0\r\nkeyspace_hits:0\r\nkeyspace_misses:0\r\nused_cpu_user:1.0\r\nused_cpu_sys:1.0\r\n\
        worker_threads:2\r\nmaster_repl_offset:5000\r\n\
        slave0:ip=10.0.0.2,port=6379,state=online,offset=4000,lag=1\r\nslave_repl_offset:7\r\n\
        cmdstat_get:calls=900,usec=900,usec_per_call=1.00,rejected_calls=0,failed_calls=0\r\n\
        cmdstat_client|list:calls=3,usec=90,usec_per_call=30.00,rejected_calls=0,failed_calls=0\r\n\
        db0:keys=40,expires=0,avg_ttl=0\r\ndb7:keys=2,expires=0,avg_ttl=0\r\n";

    const NOW: &str = "dunlin_version:0.1.0\r\nrole:master\r\nuptime_in_seconds:93786\r\nconnected_clients:120\r\n\
        blocked_clients:3\r\nused_memory:1610612736\r\nmaxmemory:4294967296\r\nused_memory_rss:2147483648\r\n\
        total_commands_processed:21000\r\ntotal_net_input_bytes:2048\r\ntotal_net_output_bytes:4194304\r\n\
        evicted_keys:0\r\nexpired_keys:7\r\nkeyspace_hits:900\r\nkeyspace_misses:100\r\nused_cpu_user:3.0\r\n\
        used_cpu_sys:2.0\r\nworker_threads:2\r\nmaster_repl_offset:5000\r\n\
        slave0:ip=10.0.0.2,port=6379,state=online,offset=4000,lag=1\r\nslave_repl_offset:7\r\n\
        cmdstat_get:calls=20900,usec=30900,usec_per_call=1.00,rejected_calls=2,failed_calls=0\r\n\
        cmdstat_set:calls=10,usec=10000,usec_per_call=1000.00,rejected_calls=0,failed_calls=1\r\n\
        cmdstat_client|list:calls=3,usec=90,usec_per_call=30.00,rejected_calls=0,failed_calls=0\r\n\
        db0:keys=40,expires=0,avg_ttl=0\r\ndb7:keys=2,expires=0,avg_ttl=0\r\n";

    fn histograms(get: u64) -> Option<std::collections::BTreeMap<String, Histogram>> {
        Some([("get".to_owned(), Histogram([(1, get), (16, get + 10)].into()))].into())
    }

    /// A view of two looks, two seconds apart.
    pub(in crate::top) fn sample_view() -> View {
        let client = |calls| {
            format!(
                "id=5 addr=10.0.0.9:50000 name=worker user=app db=0 age=7200 idle=3 tot-mem=2048 cmd=client|list tot-cmds={calls} flags=N"
            )
        };
        let before = Look {
            info: Info::parse(BEFORE),
            histograms: histograms(890),
            clients: Some(vec![client(10)]),
            ..Look::empty()
        };
        let sample = |rate| Sample { rate, p50: 90, p99: 1_200, p999: 12_345, worst: 30_000 };
        let now = Look {
            at: before.at + Duration::from_secs(2),
            info: Info::parse(NOW),
            samples: (0..120).map(|second| sample(f64::from(second * 100))).collect(),
            histograms: histograms(20_890),
            clients: Some(vec![client(70)]),
            hot_keys: Some(HotKeys {
                is_active: true,
                duration_ms: 12_000.0,
                all: (1000.0, 4096.0),
                keys: [("user:1".to_owned(), (250.0, 1024.0)), ("user:2".to_owned(), (500.0, 0.0))].into(),
            }),
            events: vec![
                Event { time_ms: 50_592_000, kind: "config".into(), text: "maxmemory changed".into() },
                Event { time_ms: 50_590_000, kind: "server".into(), text: "the server started".into() },
            ],
            ..Look::empty()
        };
        let mut view = View::default();
        view.add(before);
        view.add(now);
        view
    }

    fn texts(table: &Table) -> Vec<Vec<&str>> {
        table.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect()).collect()
    }

    #[test]
    fn rates_are_those_of_the_time_between_the_looks() {
        let summary = sample_view().summary();
        assert_eq!((summary.rate, summary.out_rate), (Some(10_000.0), Some(2_097_152.0)));
        assert_eq!((summary.hit_share, summary.expired_rate), (Some(0.9), Some(3.5)));
        assert_eq!((summary.cores, summary.keys, summary.role), (Some(1.5), Some(42.0), Some("primary")));
        assert_eq!(summary.last.unwrap().worst, 30_000);
    }

    #[test]
    fn pages_have_their_rows() {
        let view = sample_view();
        let commands = view.table(Page::Commands);
        assert_eq!(
            texts(&commands),
            [
                ["client list", "0", "0%", "–", "–", "–", "0", "0", "3"],
                ["get", "10,000", "75%", "1.5 µs", "1.0 µs", "1.0 µs", "0", "1.0", "20,900"],
                ["set", "5.0", "25%", "1.00 ms", "–", "–", "0.5", "0", "10"],
            ]
        );
        assert_eq!(
            texts(&view.table(Page::Keys)),
            [["user:1", "25%", "25%", "250 µs", "1.0 KiB"], ["user:2", "50%", "0%", "500 µs", "0 bytes"]]
        );
        assert_eq!(
            texts(&view.table(Page::Clients))[0][..8],
            ["10.0.0.9:50000", "worker", "app", "30", "2.0 KiB", "3 s", "client list", "–"]
        );
        assert_eq!(
            texts(&view.table(Page::Replicas)),
            [["10.0.0.2:6379", "replica", "online", "1000 bytes", "1 s", "4,000"]]
        );
        assert_eq!(texts(&view.table(Page::Events))[0], ["14:03:12", "config", "maxmemory changed"]);
        for page in Page::ALL {
            for row in &view.table(page).rows {
                assert_eq!(row.len(), page.columns().len(), "{page:?}");
            }
        }
    }

    #[test]
    fn server_without_a_recorder_gets_samples_of_the_looks() {
        let mut view = View::default();
        let look = |info, get| Look { info: Info::parse(info), histograms: histograms(get), ..Look::empty() };
        let before = look(BEFORE, 890);
        let at = before.at;
        view.add(before);
        assert_eq!(view.summary().last, None);
        view.add(Look { at: at + Duration::from_secs(2), ..look(NOW, 20_890) });
        let summary = view.summary();
        assert_eq!(summary.last.unwrap(), Sample { rate: 10_000.0, p50: 10, p99: 10, p999: 10, worst: 0 });
        assert!(!summary.has_longest);
        assert_eq!(view.history(), [10_000.0]);
        view.reset();
        assert_eq!((view.summary().rate, view.history().len()), (None, 1));
    }

    #[test]
    fn refused_questions_are_notes_of_their_pages() {
        let mut view = View::default();
        let refused = ["INFO", "CLIENT LIST", "HOTKEYS GET", "RECORDER EVENTS"];
        let no = "NOPERM User app has no permissions".to_owned();
        view.add(Look { refused: refused.map(|name| (name, no.clone())).into(), ..Look::empty() });
        for page in Page::ALL {
            let table = view.table(page);
            assert!(table.rows.is_empty() && table.note.unwrap().contains("is refused: NOPERM"), "{page:?}");
        }
        assert_eq!(view.summary().keys, None);
    }

    #[test]
    fn figures_are_written_shortly() {
        assert_eq!([0.0, 0.005, 0.099, 0.5, 1.0].map(percentage), ["0%", "0.5%", "9.9%", "50%", "100%"]);
        assert_eq!([0.0, 0.25, 9.94, 12.6, 1e9].map(frequency), ["0", "0.2", "9.9", "13", "1,000,000,000"]);
        let spans = [-1.0, 59.0, 61.0, 7260.0, 93_784.0].map(span);
        assert_eq!(spans, ["0 s", "59 s", "1 min 1 s", "2 h 1 min", "1 d 2 h"]);
    }
}
