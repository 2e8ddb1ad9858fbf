//! E5, "98,840 commands less": autocomplete with sorted sets, whose import sheds its round trips one
//! variant after the other.
//!
//! ```text
//! title     "The Number7"
//! prefixes  Th The · Nu Num Numb Numbe Number Number7
//! keys      prefix:<prefix>  sorted set of title numbers   ·   title:<number>  hash with the title
//! ```

use std::collections::BTreeMap;
use std::thread;
use std::time::Instant;

use dunlin_resp::Value;

use super::contender::{Contender, Settings};
use super::experiment::{Cost, Experiment, Lab, names};
use super::results::{Results, Section};
use super::server::{Server, shown};
use super::sessions::{self, Session, SessionPlan};
use dunlin_bench::figures::sample;
use dunlin_bench::random::Random;
use dunlin_bench::target::{Client, encode};

/// The row of the lab's table.
pub const AUTOCOMPLETE: Experiment = Experiment {
    name: "autocomplete",
    founding: "E5",
    title: "98,840 commands less: autocomplete with sorted sets",
    explanation: [
        "10,000 titles; every prefix of two or more characters of each word gets the title into its sorted set.",
        "Imports them with a ZSCORE before every ZADD, with one a title, in pipelines, and with a script.",
        "Look at commands (counted through MONITOR), round trips and bytes: the time follows from them.",
    ],
    sizes: &[],
    cost: Cost { always_s: 0.5, timed_s: 0.0, sized_s: 45.0 },
    run,
};

const TITLES: u64 = 10_000;
const QUERIES: u64 = 20_000;
const QUERY_CLIENTS: usize = 8;
/// Titles that a query shows.
const SHOWN: usize = 10;
/// Adds a title under all its prefixes, unless it is there: KEYS are the hash and the sorted sets.
const SCRIPT: &str = "if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end \
    redis.call('HSET', KEYS[1], 'title', ARGV[2]) \
    for i = 2, #KEYS do redis.call('ZADD', KEYS[i], ARGV[1], ARGV[1]) end \
    return #KEYS - 1";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// A ZSCORE before every ZADD.
    ScoreEach,
    /// A ZSCORE for each title.
    ScoreOnce,
    /// As before; the ZADDs and the HSET of a title in one pipeline.
    TitlePipeline,
    /// Everything in one pipeline.
    OnePipeline,
    /// A script for each title.
    Script,
    /// The scripts of all titles in one pipeline.
    ScriptPipeline,
}

const VARIANTS: [(&str, Variant); 6] = [
    ("1: ZSCORE before every ZADD", Variant::ScoreEach),
    ("2: one ZSCORE a title", Variant::ScoreOnce),
    ("3: a pipeline a title", Variant::TitlePipeline),
    ("4: everything in one pipeline", Variant::OnePipeline),
    ("5: a script a title", Variant::Script),
    ("6: all scripts in one pipeline", Variant::ScriptPipeline),
];

fn run(lab: &Lab) -> Result<Results, String> {
    let titles = lab.scale.count(TITLES, 50);
    let index = index(titles);
    let entries: u64 = index.values().map(|titles| titles.len() as u64).sum();
    let mut results = Results::new(&AUTOCOMPLETE, lab.scale);
    let servers = lab.start(&mut results, Settings::MemoryOnly, Contender::is_whole)?;
    results.setting(format!("{titles} titles, {} prefixes, {entries} entries; one connection", index.len()));
    let names = names(&servers);

    let mut import = Section::new(
        "The import",
        "Commands are the lines that MONITOR showed in a run of its own, which is not timed; those that a script calls \
         are not counted.",
        &names,
    );
    let rows = VARIANTS.map(|(name, variant)| (name.to_string(), variant));
    let mut counted: BTreeMap<(String, &str), u64> = BTreeMap::new();
    for server in &servers {
        for (name, variant) in VARIANTS {
            lab.bar.set_message(format!("counting {name} on {}", server.name));
            let failed = |error| format!("{name} on {}: {error}", server.name);
            let commands = count_commands(server, variant, titles).map_err(failed)?;
            counted.insert((server.name.clone(), name), commands);
            server.erase()?;
        }
    }
    lab.alternate(&mut import, &servers, &rows, |_, variant, server| {
        server.erase()?;
        let before = server.cpu()?;
        let mut importer = Importer::new(server)?;
        let start = Instant::now();
        importer.import(*variant, titles)?;
        let elapsed = start.elapsed();
        let cpu = server.cpu()?.zip(before);
        check(server, titles, &index)?;
        let name = VARIANTS.iter().find(|(_, other)| other == variant).map_or("", |(name, _)| name);
        let commands = counted.get(&(server.name.clone(), name)).copied().unwrap_or(0);
        let mut samples = vec![
            sample("whole import", "s", elapsed.as_secs_f64()),
            sample("commands", "of them", commands as f64),
            sample("round trips", "of them", importer.round_trips as f64),
            sample("sent", "KiB", importer.bytes as f64 / 1024.0),
        ];
        if let Some((after, before)) = cpu {
            samples.push(sample("server CPU", "s", after.saturating_sub(before).as_secs_f64()));
        }
        Ok(samples)
    })?;
    import.plot_bars("whole import");
    results.sections.push(import);

    let mut queries = Section::new(
        "Prefix queries",
        "A random prefix: the first ten titles of its sorted set, then their hashes in one pipeline. Eight connections, \
         closed loop; every answer is compared.",
        &names,
    );
    let rows = [("ten titles of a prefix".to_string(), ())];
    let asked = lab.scale.count(QUERIES, 200);
    lab.alternate(&mut queries, &servers, &rows, |round, (), server| {
        server.erase()?;
        Importer::new(server)?.import(Variant::OnePipeline, titles)?;
        let seed = lab.seed.wrapping_add(u64::from(round));
        let prefixes: Vec<(&String, &Vec<u64>)> = index.iter().collect();
        let plan = SessionPlan { clients: QUERY_CLIENTS, operations: asked, rate: None, seed };
        let before = server.cpu()?;
        let outcome =
            sessions::run(plan, 1, |_| Ok(Asking { client: server.client()?, prefixes: &prefixes }))?;
        let mut samples = vec![
            sample("p50", "ms", outcome.kinds[0].quantile_ms(0.5)),
            sample("p99", "ms", outcome.kinds[0].quantile_ms(0.99)),
            sample("queries", "1/s", asked as f64 / outcome.elapsed.as_secs_f64()),
        ];
        if let Some((after, before)) = server.cpu()?.zip(before) {
            let each = after.saturating_sub(before).as_secs_f64() * 1e6 / asked as f64;
            samples.push(sample("server CPU per query", "µs", each));
        }
        server.erase()?;
        Ok(samples)
    })?;
    results.sections.push(queries);
    results.checks.push(format!(
        "after each import, all {} sorted sets had exactly their titles and every title its hash",
        index.len()
    ));
    results.checks.push("every prefix query showed the titles that it should".into());
    Ok(results)
}

fn title(number: u64) -> String {
    format!("The Number{number}")
}

/// Every prefix of two or more characters of each word.
fn prefixes(title: &str) -> Vec<String> {
    let mut prefixes = Vec::new();
    for word in title.split(' ') {
        let ends = word.char_indices().map(|(at, character)| at + character.len_utf8()).skip(1);
        prefixes.extend(ends.map(|end| word[..end].to_string()));
    }
    prefixes
}

/// The titles of each prefix, as they must be after an import.
fn index(titles: u64) -> BTreeMap<String, Vec<u64>> {
    let mut index: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for number in 1..=titles {
        for prefix in prefixes(&title(number)) {
            index.entry(prefix).or_default().push(number);
        }
    }
    index
}

fn prefix_key(prefix: &str) -> String {
    format!("prefix:{prefix}")
}

fn title_key(number: u64) -> String {
    format!("title:{number}")
}

/// Imports titles over one connection and counts the commands that it sends.
struct Importer {
    client: Client,
    round_trips: u64,
    bytes: u64,
}

impl Importer {
    fn new(server: &Server) -> Result<Self, String> {
        Ok(Self { client: server.client()?, round_trips: 0, bytes: 0 })
    }

    /// Sends a batch in one round trip and fails at the first error reply.
    fn send(&mut self, requests: &[u8], count: usize) -> Result<Vec<Value>, String> {
        self.round_trips += 1;
        self.bytes += requests.len() as u64;
        let mut replies = Vec::with_capacity(count);
        self.client
            .pipeline(requests, count, |reply| replies.push(reply))
            .map_err(|error| error.to_string())?;
        match replies.iter().find(|reply| matches!(reply, Value::Error(_))) {
            Some(error) => Err(format!("answered with {}", shown(error))),
            None => Ok(replies),
        }
    }

    fn call(&mut self, command: &[&str]) -> Result<Value, String> {
        let mut request = Vec::new();
        encode(command, &mut request);
        Ok(self.send(&request, 1)?.pop().unwrap_or(Value::Null))
    }

    fn import(&mut self, variant: Variant, titles: u64) -> Result<(), String> {
        let sha = match variant {
            Variant::Script | Variant::ScriptPipeline => {
                let sha = self.call(&["SCRIPT", "LOAD", SCRIPT])?;
                String::from_utf8_lossy(sha.as_bytes().unwrap_or_default()).into_owned()
            }
            _ => String::new(),
        };
        let (mut batch, mut batched) = (Vec::new(), 0);
        for number in 1..=titles {
            let (text, id) = (title(number), number.to_string());
            let keys: Vec<String> = prefixes(&text).iter().map(|prefix| prefix_key(prefix)).collect();
            let hash = title_key(number);
            match variant {
                Variant::ScoreEach => {
                    for key in &keys {
                        self.expect_new(key, &id)?;
                        self.call(&["ZADD", key, &id, &id])?;
                    }
                    self.call(&["HSET", &hash, "title", &text])?;
                }
                Variant::ScoreOnce => {
                    self.expect_new(&keys[0], &id)?;
                    for key in &keys {
                        self.call(&["ZADD", key, &id, &id])?;
                    }
                    self.call(&["HSET", &hash, "title", &text])?;
                }
                Variant::TitlePipeline | Variant::OnePipeline => {
                    if variant == Variant::TitlePipeline {
                        self.expect_new(&keys[0], &id)?;
                        batch.clear();
                        batched = 0;
                    }
                    keys.iter().for_each(|key| encode(&["ZADD", key, &id, &id], &mut batch));
                    encode(&["HSET", &hash, "title", &text], &mut batch);
                    batched += keys.len() + 1;
                    if variant == Variant::TitlePipeline {
                        self.send(&batch, batched)?;
                    }
                }
                Variant::Script | Variant::ScriptPipeline => {
                    let count = (keys.len() + 1).to_string();
                    let mut command = vec!["EVALSHA", sha.as_str(), &count, &hash];
                    command.extend(keys.iter().map(String::as_str));
                    command.extend([id.as_str(), text.as_str()]);
                    if variant == Variant::Script {
                        self.call(&command)?;
                    } else {
                        encode(&command, &mut batch);
                        batched += 1;
                    }
                }
            }
        }
        if matches!(variant, Variant::OnePipeline | Variant::ScriptPipeline) {
            self.send(&batch, batched)?;
        }
        Ok(())
    }

    /// The question before a write: the title must not be there yet.
    fn expect_new(&mut self, key: &str, id: &str) -> Result<(), String> {
        match self.call(&["ZSCORE", key, id])? {
            Value::Null => Ok(()),
            other => Err(format!("wrong answer to ZSCORE of what is not there: {}", shown(&other))),
        }
    }
}

/// Imports while another connection counts the lines of MONITOR.
fn count_commands(server: &Server, variant: Variant, titles: u64) -> Result<u64, String> {
    const LAST: &str = "lab:last";
    let mut monitor = server.client()?;
    match monitor.call(&["MONITOR"]).map_err(|error| error.to_string())? {
        Value::Simple(_) => {}
        other => return Err(format!("MONITOR answered {}", shown(&other))),
    }
    thread::scope(|scope| {
        let counting = scope.spawn(move || {
            let mut commands = 0;
            loop {
                match monitor.receive().map_err(|error| error.to_string())? {
                    Value::Simple(line) => {
                        if memchr::memmem::find(&line, LAST.as_bytes()).is_some() {
                            return Ok(commands);
                        }
                        // `[0 lua]` marks the commands that a script calls.
                        let is_inner = memchr::memmem::find(&line, b" lua] ").is_some();
                        let is_import =
                            [&b"\"ZSCORE\""[..], b"\"ZADD\"", b"\"HSET\"", b"\"EVALSHA\"", b"\"SCRIPT\""]
                                .iter()
                                .any(|name| memchr::memmem::find(&line, name).is_some());
                        commands += u64::from(is_import && !is_inner);
                    }
                    other => return Err(format!("MONITOR showed {}", shown(&other))),
                }
            }
        });
        let mut importer = Importer::new(server)?;
        importer.import(variant, titles)?;
        importer.call(&["ECHO", LAST])?;
        counting.join().expect("the counting thread panicked")
    })
}

/// Whether the server holds exactly the data that an import must leave.
fn check(server: &Server, titles: u64, index: &BTreeMap<String, Vec<u64>>) -> Result<(), String> {
    server.expect_keys(index.len() as u64 + titles)?;
    let mut client = server.client()?;
    let mut requests = Vec::new();
    for prefix in index.keys() {
        encode(&["ZRANGE", &prefix_key(prefix), "0", "-1"], &mut requests);
    }
    let (mut prefixes, mut wrong) = (index.iter(), None);
    client
        .pipeline(&requests, index.len(), |reply| {
            let Some((prefix, titles)) = prefixes.next() else { return };
            if members(&reply).as_ref() != Some(titles) && wrong.is_none() {
                wrong = Some(format!("wrong answer: prefix {prefix} has {}", shown(&reply)));
            }
        })
        .map_err(|error| error.to_string())?;
    let mut requests = Vec::new();
    (1..=titles).for_each(|number| encode(&["HGET", &title_key(number), "title"], &mut requests));
    let mut number = 0;
    client
        .pipeline(&requests, titles as usize, |reply| {
            number += 1;
            if reply.as_bytes() != Some(title(number).as_bytes()) && wrong.is_none() {
                wrong = Some(format!("wrong answer: title {number} is {}", shown(&reply)));
            }
        })
        .map_err(|error| error.to_string())?;
    wrong.map_or(Ok(()), Err)
}

fn members(reply: &Value) -> Option<Vec<u64>> {
    let Value::Array(members) = reply else { return None };
    members.iter().map(|member| std::str::from_utf8(member.as_bytes()?).ok()?.parse().ok()).collect()
}

/// A user who types.
struct Asking<'a> {
    client: Client,
    prefixes: &'a [(&'a String, &'a Vec<u64>)],
}

impl Session for Asking<'_> {
    fn step(&mut self, _: u64, random: &mut Random) -> Result<usize, String> {
        let (prefix, titles) = self.prefixes[random.below(self.prefixes.len() as u64) as usize];
        let expected = &titles[..titles.len().min(SHOWN)];
        let last = (SHOWN - 1).to_string();
        let command = ["ZRANGE", &prefix_key(prefix), "0", &last];
        let found = self.client.call(&command).map_err(|error| error.to_string())?;
        if members(&found).as_deref() != Some(expected) {
            return Err(format!("wrong answer: prefix {prefix} has {}", shown(&found)));
        }
        let mut requests = Vec::new();
        expected.iter().for_each(|number| encode(&["HGET", &title_key(*number), "title"], &mut requests));
        let (mut numbers, mut wrong) = (expected.iter(), None);
        self.client
            .pipeline(&requests, expected.len(), |reply| {
                let Some(number) = numbers.next() else { return };
                if reply.as_bytes() != Some(title(*number).as_bytes()) {
                    wrong = Some(format!("wrong answer: title {number} is {}", shown(&reply)));
                }
            })
            .map_err(|error| error.to_string())?;
        wrong.map_or(Ok(0), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_those_of_the_published_rule() {
        assert_eq!(prefixes("The No7"), ["Th", "The", "No", "No7"]);
        let entries: usize = (1..=TITLES).map(|number| prefixes(&title(number)).len()).sum();
        assert_eq!(entries, 108_894);
    }

    #[test]
    fn index_has_every_title_under_its_prefixes() {
        let index = index(12);
        assert_eq!((index["The"].len(), &index["Number1"][..]), (12, &[1, 10, 11, 12][..]));
    }
}
