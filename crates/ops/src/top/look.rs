//! A look at a server: its answers to the questions of a page, read.
//!
//! Any answer may be missing, since the user lacks the right, or since the server is another than Dunlin. A question that
//! was refused leaves its part empty, and its reason in `refused`. An answer of another shape than expected reads as empty.

use std::{
    collections::{BTreeMap, HashMap},
    time::Instant,
};

use dunlin_bench::target::{Client, TargetError};
use dunlin_resp::Value;

use super::table::Page;
use crate::server::{put, text};

/// Seconds of the recorder that the plot can show.
const SAMPLES_SPAN_S: u64 = 600;
/// How far back events are listed, in seconds.
const EVENTS_SPAN_S: u64 = 86_400;
/// How long a key that was hot is still shown, in seconds.
const HOTTEST_SPAN_S: u64 = 10;
/// Events that are listed.
const EVENTS_MAX: &str = "500";

/// Rows of INFO by their names.
#[derive(Debug, Clone, Default)]
pub(super) struct Info(HashMap<String, String>);

impl Info {
    pub(super) fn parse(text: &str) -> Self {
        let rows = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        Self(rows.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A row as a number; `None` if it is missing or something else.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        number(self.text(name)?)
    }

    /// Rows whose names begin with `prefix`, by the rest of their names. O(rows of INFO).
    pub(super) fn rows(&self, prefix: &str) -> BTreeMap<&str, Parts<'_>> {
        let parts = |value| Parts::parse(value, ',');
        self.0.iter().filter_map(|(name, value)| Some((name.strip_prefix(prefix)?, parts(value)))).collect()
    }
}

/// `name=value` pairs of a line.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Parts<'a> {
    pub(super) fn parse(line: &'a str, separator: char) -> Self {
        Self(line.split(separator).filter_map(|part| part.split_once('=')).collect())
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        number(self.text(name)?)
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// How often a command took up to each number of microseconds, cumulative as in LATENCY HISTOGRAM.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Histogram(pub(super) BTreeMap<u64, u64>);

impl Histogram {
    /// The counts added since `before`. After a reset of the server's counters, all.
    pub(super) fn since(&self, before: &Self) -> Self {
        let count = |histogram: &Self| histogram.0.values().max().copied().unwrap_or(0);
        if count(self) < count(before) {
            return self.clone();
        }
        // A bound that is missing has the count of the one below it.
        let at = |bound: u64| before.0.range(..=bound).next_back().map_or(0, |(_, count)| *count);
        Self(self.0.iter().map(|(bound, count)| (*bound, count.saturating_sub(at(*bound)))).collect())
    }

    /// The bound in microseconds below which `percent` of the calls were; `None` of no calls.
    pub(super) fn percentile(&self, percent: f64) -> Option<u64> {
        let all = self.0.values().max().copied().filter(|all| *all > 0)?;
        let rank = (all as f64 * percent / 100.0).ceil().max(1.0) as u64;
        self.0.iter().find(|(_, count)| **count >= rank).map(|(bound, _)| *bound)
    }

    /// Adds the calls of another one.
    pub(super) fn add(&mut self, other: &Self) {
        let bounds: Vec<u64> = self.0.keys().chain(other.0.keys()).copied().collect();
        let at = |histogram: &Self, bound: u64| {
            histogram.0.range(..=bound).next_back().map_or(0, |(_, count)| *count)
        };
        self.0 = bounds
            .into_iter()
            .map(|bound| (bound, at(self, bound).saturating_add(at(other, bound))))
            .collect();
    }
}

/// A second, or several, as the server's recorder or the looks of this program have it. Latencies are in tenths of a
/// microsecond.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sample {
    /// Commands a second.
    pub(super) rate: f64,
    pub(super) p50: u32,
    pub(super) p99: u32,
    pub(super) p999: u32,
    pub(super) worst: u32,
}

/// An event of the recorder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// Milliseconds since 1970.
    pub(super) time_ms: u64,
    pub(super) kind: String,
    pub(super) text: String,
}

/// The collection of the last session of HOTKEYS.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct HotKeys {
    pub(super) is_active: bool,
    pub(super) duration_ms: f64,
    /// The sums of all commands with keys: microseconds and bytes.
    pub(super) all: (f64, f64),
    /// Microseconds and bytes of each key.
    pub(super) keys: BTreeMap<String, (f64, f64)>,
}

/// A look at a server.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub(super) at: Instant,
    pub(super) info: Info,
    /// The newest last.
    pub(super) samples: Vec<Sample>,
    pub(super) histograms: Option<BTreeMap<String, Histogram>>,
    pub(super) hot_keys: Option<HotKeys>,
    /// The newest hot key that the recorder knows, and its share in thousandths.
    pub(super) hottest: Option<(String, u64)>,
    /// Lines of CLIENT LIST.
    pub(super) clients: Option<Vec<String>>,
    pub(super) events: Vec<Event>,
    /// Questions that were refused, and the server's words.
    pub(super) refused: Vec<(&'static str, String)>,
}

impl Look {
    /// A look that has found nothing yet.
    pub(super) fn empty() -> Self {
        Self {
            at: Instant::now(),
            info: Info::default(),
            samples: Vec::new(),
            histograms: None,
            hot_keys: None,
            hottest: None,
            clients: None,
            events: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// Asks what `pages` need. An error is the connection's; the server's are in the look.
    pub(super) fn take(client: &mut Client, pages: &[Page]) -> Result<Self, TargetError> {
        let mut look = Self::empty();
        if let Some(info) = look.ask(client, "INFO", &["INFO", "everything"])? {
            look.info = Info::parse(&info.as_bytes().map(text).unwrap_or_default());
        }
        if look.is_locked_out() {
            // A server closes connections that go on without a password.
            return Ok(look);
        }
        let unix_s = look.info.number("server_time_usec").map_or(0, |us| (us / 1e6) as u64);
        let since = |span_s: u64| unix_s.saturating_sub(span_s).to_string();
        let (from, to) = (since(SAMPLES_SPAN_S), unix_s.to_string());
        let range = [
            "RECORDER", "RANGE", &from, &to, "POINTS", "600", "FIELDS", "commands", "p50", "p99", "p999",
            "worst",
        ];
        let samples = look.ask(client, "RECORDER RANGE", &range)?;
        look.samples = samples.as_ref().map(read_samples).unwrap_or_default();
        if pages.contains(&Page::Commands) || samples.is_none() {
            let histograms = look.ask(client, "LATENCY HISTOGRAM", &["LATENCY", "HISTOGRAM"])?;
            look.histograms = histograms.as_ref().map(read_histograms);
        }
        if pages.contains(&Page::Keys) {
            let hot_keys = look.ask(client, "HOTKEYS GET", &["HOTKEYS", "GET"])?;
            look.hot_keys = hot_keys.as_ref().and_then(read_hot_keys);
            let words = ["RECORDER", "KEYS", &since(HOTTEST_SPAN_S), &to];
            let hottest = look.ask(client, "RECORDER KEYS", &words)?;
            look.hottest = hottest.as_ref().and_then(read_hottest);
        }
        if pages.contains(&Page::Clients) {
            let list = look.ask(client, "CLIENT LIST", &["CLIENT", "LIST"])?;
            let lines = |list: Value| list.as_bytes().map(text).unwrap_or_default();
            look.clients = list.map(|list| lines(list).lines().map(str::to_owned).collect());
        }
        if pages.contains(&Page::Events) {
            let words = ["RECORDER", "EVENTS", &since(EVENTS_SPAN_S), &to, "COUNT", EVENTS_MAX];
            let events = look.ask(client, "RECORDER EVENTS", &words)?;
            look.events = events.as_ref().map(read_events).unwrap_or_default();
        }
        Ok(look)
    }

    fn ask(
        &mut self,
        client: &mut Client,
        name: &'static str,
        words: &[&str],
    ) -> Result<Option<Value>, TargetError> {
        Ok(match put(client, words)? {
            Ok(value) => Some(value),
            Err(reason) => {
                self.refused.push((name, reason));
                None
            }
        })
    }

    /// Whether the server wants a password first.
    pub(super) fn is_locked_out(&self) -> bool {
        self.refusal("INFO").is_some_and(|reason| reason.starts_with("NOAUTH"))
    }

    /// Why a question was refused.
    pub(super) fn refusal(&self, name: &str) -> Option<&str> {
        self.refused.iter().find(|(found, _)| *found == name).map(|(_, reason)| reason.as_str())
    }
}

fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        _ => &[],
    }
}

/// A number that is not negative, as an integer or as text.
fn natural(value: &Value) -> u64 {
    match value {
        Value::Integer(number) => u64::try_from(*number).unwrap_or(0),
        other => other.as_bytes().and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).unwrap_or(0),
    }
}

fn word(value: &Value) -> String {
    value.as_bytes().map(text).unwrap_or_default()
}

/// Names and values of a map in RESP2's form.
fn pairs(value: &Value) -> impl Iterator<Item = (String, &Value)> {
    items(value).chunks_exact(2).map(|pair| (word(&pair[0]), &pair[1]))
}

/// `[step, [[time, commands, p50, p99, p999, worst], …]]`.
fn read_samples(value: &Value) -> Vec<Sample> {
    let [step, samples] = items(value) else { return Vec::new() };
    let step_s = natural(step).max(1) as f64;
    let narrow = |value: &Value| u32::try_from(natural(value)).unwrap_or(u32::MAX);
    let read = |sample: &Value| match items(sample) {
        [_, commands, p50, p99, p999, worst] => Some(Sample {
            rate: natural(commands) as f64 / step_s,
            p50: narrow(p50),
            p99: narrow(p99),
            p999: narrow(p999),
            worst: narrow(worst),
        }),
        _ => None,
    };
    items(samples).iter().filter_map(read).collect()
}

/// `[command, [calls, n, histogram_usec, [bound, count, …]], …]`.
fn read_histograms(value: &Value) -> BTreeMap<String, Histogram> {
    let read = |entry: &Value| {
        let buckets =
            pairs(entry).find(|(name, _)| name == "histogram_usec").map(|(_, buckets)| items(buckets));
        let buckets = buckets.unwrap_or_default().chunks_exact(2);
        Histogram(buckets.map(|pair| (natural(&pair[0]), natural(&pair[1]))).collect())
    };
    pairs(value).map(|(name, entry)| (name, read(entry))).collect()
}

/// An array of one map; `None` if there is no session.
fn read_hot_keys(value: &Value) -> Option<HotKeys> {
    let mut hot = HotKeys::default();
    for (name, value) in pairs(items(value).first()?) {
        let ranking = || items(value).chunks_exact(2).map(|pair| (word(&pair[0]), natural(&pair[1]) as f64));
        match name.as_str() {
            "tracking-active" => hot.is_active = natural(value) == 1,
            "collection-duration-ms" => hot.duration_ms = natural(value) as f64,
            "all-commands-all-slots-us" => hot.all.0 = natural(value) as f64,
            "net-bytes-all-commands-all-slots" => hot.all.1 = natural(value) as f64,
            "by-cpu-time-us" => ranking().for_each(|(key, us)| hot.keys.entry(key).or_default().0 = us),
            "by-net-bytes" => ranking().for_each(|(key, bytes)| hot.keys.entry(key).or_default().1 = bytes),
            _ => {}
        }
    }
    Some(hot)
}

/// The last of `[[second, key, share], …]`.
fn read_hottest(value: &Value) -> Option<(String, u64)> {
    match items(items(value).last()?) {
        [_, key, share] => Some((word(key), natural(share))),
        _ => None,
    }
}

/// `[[milliseconds, kind, text], …]`.
fn read_events(value: &Value) -> Vec<Event> {
    let read = |event: &Value| match items(event) {
        [time, kind, line] => Some(Event { time_ms: natural(time), kind: word(kind), text: word(line) }),
        _ => None,
    };
    items(value).iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn array<const N: usize>(items: [Value; N]) -> Value {
        Value::Array(items.into())
    }

    #[test]
    fn info_is_read_row_by_row() {
        let info =
            Info::parse("# Server\r\nversion:7.4\r\ndb0:keys=3,expires=1\r\ndb12:keys=x\r\n\r\nbroken\r\n");
        assert_eq!(info.text("version"), Some("7.4"));
        assert_eq!(
            (info.number("version"), info.number("db0"), info.number("none")),
            (Some(7.4), None, None)
        );
        let databases = info.rows("db");
        assert_eq!(databases.keys().copied().collect::<Vec<_>>(), ["0", "12"]);
        assert_eq!((databases["0"].number("expires"), databases["12"].number("keys")), (Some(1.0), None));
        assert_eq!(Info::parse("a:nan\nb:inf").number("a"), None);
    }

    #[test]
    fn percentiles_are_those_of_the_time_between_two_looks() {
        let histogram = |pairs: &[(u64, u64)]| Histogram(pairs.iter().copied().collect());
        let before = histogram(&[(1, 100), (1000, 110)]);
        let after = histogram(&[(1, 100), (4, 190), (1000, 210)]);
        let new = after.since(&before);
        assert_eq!(new, histogram(&[(1, 0), (4, 90), (1000, 100)]));
        assert_eq!((new.percentile(50.0), new.percentile(99.0)), (Some(4), Some(1000)));
        assert_eq!(after.since(&after).percentile(50.0), None);
        // CONFIG RESETSTAT in between.
        assert_eq!(before.since(&after), before);
        let mut sum = histogram(&[(2, 5)]);
        sum.add(&histogram(&[(1, 1), (4, 3)]));
        assert_eq!(sum, histogram(&[(1, 1), (2, 6), (4, 8)]));
    }

    #[test]
    fn answers_are_read() {
        let sample = array([1, 300, 10, 20, 30, 40].map(Value::Integer));
        let samples = read_samples(&array([Value::Integer(10), array([sample])]));
        assert_eq!(samples, [Sample { rate: 30.0, p50: 10, p99: 20, p999: 30, worst: 40 }]);
        let buckets = array([16, 2].map(Value::Integer));
        let entry = array([bulk("calls"), Value::Integer(2), bulk("histogram_usec"), buckets]);
        assert_eq!(read_histograms(&array([bulk("get"), entry]))["get"].0, [(16, 2)].into());
        let ranking = array([bulk("k\x1b"), Value::Integer(7)]);
        let fields = [bulk("tracking-active"), Value::Integer(1), bulk("by-cpu-time-us"), ranking];
        let hot = read_hot_keys(&array([Value::Array(fields.into())])).unwrap();
        assert_eq!((hot.is_active, hot.keys), (true, [("k".to_owned(), (7.0, 0.0))].into()));
        let hottest = array([array([Value::Integer(5), bulk("k"), Value::Integer(620)])]);
        assert_eq!(read_hottest(&hottest), Some(("k".to_owned(), 620)));
        let events = read_events(&array([array([Value::Integer(5), bulk("config"), bulk("maxmemory")])]));
        assert_eq!(events, [Event { time_ms: 5, kind: "config".into(), text: "maxmemory".into() }]);
    }

    #[test]
    fn answers_of_other_shapes_are_empty() {
        for odd in [
            Value::Null,
            Value::Integer(-1),
            bulk("text"),
            array([]),
            array([Value::Integer(-5)]),
            array([array([]), array([array([bulk("x")])])]),
            array([bulk("get"), bulk("histogram_usec")]),
        ] {
            assert!(read_samples(&odd).is_empty());
            assert!(read_events(&odd).is_empty());
            assert_eq!(read_hottest(&odd), None);
            assert!(read_histograms(&odd).values().all(|histogram| histogram.percentile(50.0).is_none()));
            assert!(read_hot_keys(&odd).is_none_or(|hot| hot.keys.is_empty()));
        }
    }
}
