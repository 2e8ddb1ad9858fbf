//! Whether two replies agree, and the table of differences that are intended.

use std::collections::BTreeSet;

use dunlin_test_support::resp::Reply;

use crate::grammar::Compare;

/// A difference that Dunlin means.
pub struct Intended {
    /// The command without its subcommand; a star at its end stands for any further letters.
    pub command: &'static str,
    /// Whether this pair of replies (ours, the oracle's) is the intended difference.
    pub holds: fn(&[Vec<u8>], &Reply, &Reply) -> bool,
    /// Why Dunlin differs.
    pub reason: &'static str,
}

/// Every intended difference; each needs a reason that a user would accept.
pub const INTENDED: &[Intended] = &[
    Intended {
        command: "OBJECT",
        holds: |_, ours, oracle| {
            (ours.bytes(), oracle.bytes()) == (Some(b"listpack".as_slice()), Some(b"hashtable".as_slice()))
        },
        reason: "small sets of strings are listpacks, as in Redis 7.2 and newer",
    },
    Intended {
        command: "OBJECT",
        holds: |_, ours, oracle| {
            (ours.bytes(), oracle.bytes()) == (Some(b"listpack".as_slice()), Some(b"quicklist".as_slice()))
        },
        reason: "small lists are listpacks, as in Redis 7.2 and newer",
    },
    Intended {
        command: "OBJECT",
        holds: |_, ours, oracle| {
            (ours.bytes(), oracle.bytes()) == (Some(b"listpack".as_slice()), Some(b"skiplist".as_slice()))
        },
        reason: "SORT reads sorted sets as they are; Redis 7.0 makes a small one large for it",
    },
    Intended { command: "SORT", holds: stale_errno, reason: STALE_ERRNO },
    Intended { command: "SORT_RO", holds: stale_errno, reason: STALE_ERRNO },
    Intended { command: "GEOSEARCH*", holds: hexadecimal, reason: HEXADECIMAL },
    Intended { command: "BITCOUNT", holds: part_first, reason: PART_FIRST },
    Intended { command: "BITPOS", holds: part_first, reason: PART_FIRST },
    Intended {
        command: "BITCOUNT",
        holds: |command, ours, oracle| {
            command.len() == 3 && ours.integer().is_some() && oracle.bytes() == Some(b"ERR syntax error")
        },
        reason: "the end of BITCOUNT's part may be left out, as in Valkey",
    },
    Intended { command: "LPOS", holds: without_opposite, reason: NO_OPPOSITE },
    Intended { command: "LREM", holds: without_opposite, reason: NO_OPPOSITE },
    Intended { command: "Z*", holds: |_, ours, oracle| same_numbers(ours, oracle), reason: SHORTEST },
    Intended { command: "BZ*", holds: |_, ours, oracle| same_numbers(ours, oracle), reason: SHORTEST },
    Intended { command: "B*", holds: endless_timeout, reason: ENDLESS_TIMEOUT },
    Intended { command: "ZRANK", holds: optional_word, reason: WITH_SCORE },
    Intended { command: "ZREVRANK", holds: optional_word, reason: WITH_SCORE },
    Intended {
        command: "HGETEX",
        holds: |command, _, _| command.get(1).is_some_and(|key| key.eq_ignore_ascii_case(b"FIELDS")),
        reason: "a key may be called FIELDS, which Valkey takes for the word",
    },
    Intended {
        command: "COMMAND",
        holds: |command, ours, oracle| {
            command.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"INFO"))
                && agree(
                    Compare::Unordered,
                    &without_pairs(ours, &[b"notes"]),
                    &without_pairs(oracle, &[b"notes"]),
                )
        },
        reason: "COMMAND INFO tells how keys are used, without the notes that Redis has for people",
    },
    Intended {
        command: "CONFIG",
        holds: |command, ours, oracle| {
            let is_pattern = |word: &Vec<u8>| word.iter().any(|byte| b"*?[".contains(byte));
            command.iter().any(is_pattern) && ours.elements().is_some() && oracle.elements().is_some()
        },
        reason: "a pattern of CONFIG GET finds the directives that Dunlin has",
    },
    Intended {
        command: "CLIENT",
        holds: |command, ours, oracle| {
            let is_list = command.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"LIST"));
            is_list && command.len() > 4 && oracle.bytes() == Some(b"ERR syntax error") && *ours != *oracle
        },
        reason: "CLIENT LIST takes any number of Valkey's filters: a mistake in the first is told first",
    },
    Intended { command: "XREAD", holds: unbalanced, reason: UNBALANCED },
    Intended { command: "XREADGROUP", holds: unbalanced, reason: UNBALANCED },
    Intended { command: "XREAD", holds: last_entry, reason: LAST_ENTRY },
    Intended { command: "XREADGROUP", holds: last_entry, reason: LAST_ENTRY },
    Intended {
        command: "XSETID",
        holds: |_, ours, oracle| {
            let text: &[u8] = b"ERR The ID specified in XSETID is smaller than current max_deleted_entry_id";
            ours.bytes() == Some(text) && oracle.bytes() != Some(text)
        },
        reason: "the last ID never falls behind that of an entry that was deleted, as in Redis 7.2 and newer",
    },
    Intended {
        command: "XGROUP",
        holds: |command, ours, oracle| {
            command.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"CREATECONSUMER"))
                && (ours.integer(), oracle.integer()) == (Some(0), Some(1))
        },
        reason: CLAIMERS,
    },
    Intended {
        command: "XAUTOCLAIM",
        holds: |_, ours, oracle| {
            let text = b"ERR Insufficient memory, failed allocating transient memory, COUNT too high.";
            !ours.is_error() && oracle.bytes() == Some(text)
        },
        reason: "COUNT is a limit, not a size of memory to be had at once",
    },
    Intended {
        command: "XINFO",
        holds: |_, ours, oracle| {
            let (ours_told, oracle_told) = (consumers(ours), consumers(oracle));
            without_claimers(ours) == without_claimers(oracle)
                && oracle_told.names.is_subset(&ours_told.names)
                && ours_told.counts.iter().zip(&oracle_told.counts).all(|(ours, oracle)| ours >= oracle)
        },
        reason: CLAIMERS,
    },
    Intended {
        command: "XINFO",
        holds: |_, ours, oracle| {
            let told = |reply| without_group_counts(&without_claimers(reply));
            told(ours) == told(oracle)
        },
        reason: "what a group has read and has yet to read is right or unknown, whatever was trimmed, deleted or set; Redis 7.0 miscounts",
    },
];

const UNBALANCED: &str = "an unbalanced list of streams is told with the command's own name, as in Redis 7.2";
const CLAIMERS: &str =
    "who claims is a consumer even if there was nothing to claim, as in Redis 7.2 and newer";

const LAST_ENTRY: &str = "XREAD takes + for the last entry, as in Redis 7.4 and newer";

fn last_entry(command: &[Vec<u8>], _: &Reply, oracle: &Reply) -> bool {
    let streams = command.iter().position(|word| word.eq_ignore_ascii_case(b"STREAMS"));
    let behind = streams.map(|at| &command[at + 1..]).unwrap_or_default();
    behind[behind.len() / 2..].iter().any(|word| word == b"+")
        && oracle.bytes() == Some(b"ERR Invalid stream ID specified as stream command argument")
}

fn unbalanced(command: &[Vec<u8>], ours: &Reply, oracle: &Reply) -> bool {
    let name = String::from_utf8_lossy(&command[0]).to_lowercase();
    let symbol = if name == "xread" { '$' } else { '>' };
    let told = format!(
        "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{symbol}' must be specified."
    );
    let oracles: &[u8] =
        b"ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.";
    ours.is_error() && ours.bytes() == Some(told.as_bytes()) && oracle.bytes() == Some(oracles)
}

/// The consumers in a reply of `XINFO`.
#[derive(Default)]
struct Consumers {
    names: BTreeSet<Vec<u8>>,
    /// How many there are, group by group.
    counts: Vec<i64>,
}

fn consumers(reply: &Reply) -> Consumers {
    let mut told = Consumers::default();
    let elements = reply.elements().unwrap_or_default();
    let value = |name: &[u8]| {
        let at = elements.iter().position(|element| element.bytes() == Some(name))?;
        elements.get(at + 1)
    };
    if value(b"pending").or(value(b"pel-count")).is_some()
        && let Some(name) = value(b"name").and_then(Reply::bytes)
    {
        told.names.insert(name.to_vec());
    }
    told.counts.extend(value(b"consumers").and_then(Reply::integer));
    for inner in elements.iter().map(consumers) {
        told.names.extend(inner.names);
        told.counts.extend(inner.counts);
    }
    told
}

/// A reply of `XINFO` without the number of consumers and those that have nothing pending.
fn without_claimers(reply: &Reply) -> Reply {
    let Reply::Array(kind, elements) = without_times(reply) else { return reply.clone() };
    let is_idle = |element: &Reply| {
        let pairs = element.elements().unwrap_or_default();
        let has = |name: &[u8]| {
            pairs.chunks(2).any(|pair| pair[0].bytes() == Some(name) && pair[1].integer() == Some(0))
        };
        has(b"pending") || (has(b"pel-count") && pairs.len() <= 6)
    };
    let mut kept = Vec::new();
    let mut elements = elements.iter().filter(|element| !is_idle(element));
    while let Some(element) = elements.next() {
        if element.bytes() == Some(b"consumers") {
            let consumers = elements.next().filter(|value| value.elements().is_some());
            kept.extend(consumers.map(without_claimers));
        } else {
            kept.push(without_claimers(element));
        }
    }
    Reply::Array(kind, kept)
}

/// A reply of `XINFO` without each server's own affairs, so that times of deliveries count.
pub fn without_own_affairs(reply: &Reply) -> Reply {
    without_pairs(reply, &OWN_AFFAIRS)
}

/// A reply of `XINFO` without the counts of entries that groups have read and have yet to read, which Redis
/// 7.0 miscounts.
pub fn without_group_counts(reply: &Reply) -> Reply {
    without_pairs(reply, &[b"entries-read", b"lag"])
}

/// A reply without the pairs of these names.
fn without_pairs(reply: &Reply, names: &[&[u8]]) -> Reply {
    let Reply::Array(kind, elements) = reply else { return reply.clone() };
    let mut kept = Vec::new();
    let mut elements = elements.iter();
    while let Some(element) = elements.next() {
        if element.bytes().is_some_and(|name| names.contains(&name)) {
            elements.next();
        } else {
            kept.push(without_pairs(element, names));
        }
    }
    Reply::Array(*kind, kept)
}

const WITH_SCORE: &str = "ZRANK and ZREVRANK take WITHSCORE, as in Redis 7.2 and newer";

const NO_OPPOSITE: &str = "the smallest number has no opposite: refused, as in Redis 7.2 and newer";
const STALE_ERRNO: &str =
    "Redis 7.0 takes an error number that an earlier command has left behind for one of its own";

const HEXADECIMAL: &str = "numbers may be hexadecimal, as in Redis 7.0 and unlike in newer servers";

/// Whether only the oracle refused such a number.
fn hexadecimal(command: &[Vec<u8>], ours: &Reply, oracle: &Reply) -> bool {
    let refused = oracle.bytes() == Some(b"ERR value is not a valid float");
    refused && !ours.is_error() && command.iter().any(|word| word.to_ascii_lowercase().starts_with(b"0x"))
}

const PART_FIRST: &str =
    "what part of a string is meant is read before the key is looked at, as in Redis 7.2 and newer";

/// Whether we refused the words of a part that the oracle has not looked at, or looked at in another order.
fn part_first(_: &[Vec<u8>], ours: &Reply, oracle: &Reply) -> bool {
    let is_refused = |reply: &Reply| {
        reply.is_error()
            && reply.bytes().is_some_and(|text| {
                [&b"ERR syntax error"[..], b"ERR value is not an integer or out of range"].contains(&text)
            })
    };
    let is_about_the_key = oracle.bytes().is_some_and(|text| text.starts_with(b"WRONGTYPE"));
    is_refused(ours) && (oracle.integer().is_some() || is_about_the_key || is_refused(oracle))
}

/// Whether the smallest of all integers was refused.
fn without_opposite(command: &[Vec<u8>], ours: &Reply, _: &Reply) -> bool {
    ours.is_error() && command.iter().any(|word| word == b"-9223372036854775808")
}

/// Whether only the oracle could not read a score that is one.
fn stale_errno(_: &[Vec<u8>], ours: &Reply, oracle: &Reply) -> bool {
    let refused = oracle.bytes().is_some_and(|text| text.starts_with(b"ERR One or more scores"));
    refused && matches!(ours, Reply::Array(..))
}

/// Whether a command of three words was sent with a fourth, which the oracle does not take.
fn optional_word(command: &[Vec<u8>], ours: &Reply, oracle: &Reply) -> bool {
    let refused = oracle.bytes().is_some_and(|text| text.starts_with(b"ERR wrong number of arguments"));
    command.len() == 4 && refused && ours.bytes() == Some(b"ERR syntax error")
}

/// Whether two replies are the same but for the spelling of numbers.
fn same_numbers(ours: &Reply, oracle: &Reply) -> bool {
    if let (Some(a), Some(b)) = (ours.elements(), oracle.elements()) {
        let agree = a.iter().zip(b).all(|(a, b)| same_numbers(a, b));
        return ours.kind() == oracle.kind() && a.len() == b.len() && agree;
    }
    let number = |reply: &Reply| std::str::from_utf8(reply.bytes()?).ok()?.parse().ok().map(f64::to_bits);
    ours == oracle || ours.kind() == oracle.kind() && number(ours).is_some() && number(ours) == number(oracle)
}

const SHORTEST: &str = "scores are told in the shortest text that reads back, as in Redis 7.2 and newer";

const ENDLESS_TIMEOUT: &str =
    "a timeout that is too long is called out of range, not negative, as in Redis 7.2 and newer";

fn endless_timeout(_: &[Vec<u8>], ours: &Reply, oracle: &Reply) -> bool {
    ours.bytes() == Some(b"ERR timeout is out of range") && oracle.bytes() == Some(b"ERR timeout is negative")
}

/// Whether `ours` and the oracle's reply to a command agree under a rule.
pub fn agree(rule: Compare, ours: &Reply, oracle: &Reply) -> bool {
    if ours == oracle {
        return true;
    }
    match rule {
        Compare::Exact | Compare::Transaction => false,
        Compare::Unordered => !ours.is_error() && sorted(ours) == sorted(oracle),
        Compare::UnorderedPairs => match (ours.elements(), oracle.elements()) {
            (Some(a), Some(b)) => ours.kind() == oracle.kind() && pairs(a) == pairs(b),
            _ => false,
        },
        Compare::Near(distance) => match (ours.integer(), oracle.integer()) {
            (Some(a), Some(b)) => (a < 0) == (b < 0) && a.abs_diff(b) <= distance as u64 && a >= 0,
            _ => match (ours.elements(), oracle.elements()) {
                (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| agree(rule, a, b)),
                _ => false,
            },
        },
        Compare::Shape => same_shape(ours, oracle),
        Compare::Times => without_times(ours) == without_times(oracle),
        Compare::Outcome => ours.is_error() == oracle.is_error() && !ours.is_error(),
    }
}

/// The entry of the table above that a difference falls under.
pub fn intended(command: &[Vec<u8>], ours: &Reply, oracle: &Reply) -> Option<&'static Intended> {
    let name = command.first().map(Vec::as_slice).unwrap_or_default();
    INTENDED.iter().find(|entry| {
        let is_named = match entry.command.strip_suffix('*') {
            Some(prefix) => {
                name.get(..prefix.len()).is_some_and(|name| name.eq_ignore_ascii_case(prefix.as_bytes()))
            }
            None => entry.command.as_bytes().eq_ignore_ascii_case(name),
        };
        is_named && (entry.holds)(command, ours, oracle)
    })
}

/// Names in `XINFO` whose values are each server's own, or that Redis 7.0 does not report.
const OWN_AFFAIRS: [&[u8]; 12] = [
    b"idle",
    b"inactive",
    b"seen-time",
    b"active-time",
    b"radix-tree-keys",
    b"radix-tree-nodes",
    b"idmp-duration",
    b"idmp-maxsize",
    b"pids-tracked",
    b"iids-tracked",
    b"iids-added",
    b"iids-duplicates",
];
/// Larger integers are unix times in milliseconds.
const TIME_MIN: i64 = 1_000_000_000_000;

/// A reply with nothing in the place of times.
fn without_times(reply: &Reply) -> Reply {
    let nothing = Reply::Null(b'_');
    match reply {
        Reply::Array(kind, elements) => {
            let is_delivery = matches!(
                &elements[..],
                [Reply::Bulk(..), Reply::Bulk(..), Reply::Line(b':', _), Reply::Line(b':', _)]
            );
            let mut kept = Vec::new();
            let mut elements = elements.iter().enumerate();
            while let Some((at, element)) = elements.next() {
                if element.bytes().is_some_and(|name| OWN_AFFAIRS.contains(&name)) {
                    elements.next();
                } else if is_delivery && at == 2 {
                    kept.push(nothing.clone());
                } else {
                    kept.push(without_times(element));
                }
            }
            Reply::Array(*kind, kept)
        }
        Reply::Line(b':', _) if reply.integer().is_some_and(|integer| integer > TIME_MIN) => nothing,
        other => other.clone(),
    }
}

fn sorted(reply: &Reply) -> Reply {
    match reply {
        Reply::Array(kind, elements) => {
            let mut elements: Vec<_> = elements.iter().map(sorted).collect();
            elements.sort();
            Reply::Array(*kind, elements)
        }
        other => other.clone(),
    }
}

fn pairs(elements: &[Reply]) -> Vec<&[Reply]> {
    let mut pairs: Vec<_> = elements.chunks(2).collect();
    pairs.sort();
    pairs
}

/// The modules of HELLO are left out: JSON is one here, and Redis 7.0 has none.
fn same_shape(a: &Reply, b: &Reply) -> bool {
    match (a, b) {
        (Reply::Array(x, a), Reply::Array(y, b)) => {
            let is_of_modules = |at: usize| at > 0 && a[at - 1].bytes() == Some(b"modules");
            let agree = |(at, (a, b))| is_of_modules(at) || same_shape(a, b);
            x == y && a.len() == b.len() && a.iter().zip(b).enumerate().all(agree)
        }
        _ => a.kind() == b.kind() && !a.is_error(),
    }
}

#[cfg(test)]
mod tests {
    use dunlin_test_support::resp::parse;

    use super::*;

    #[test]
    fn rules_each_accept_and_refuse() {
        use Compare::*;
        let table: &[(Compare, &str, &str, bool)] = &[
            (Exact, ":1\r\n", ":1\r\n", true),
            (Exact, ":1\r\n", "$1\r\n1\r\n", false),
            (Exact, "*-1\r\n", "$-1\r\n", false),
            (Exact, "-ERR a\r\n", "-ERR b\r\n", false),
            (Unordered, "*2\r\n:1\r\n:2\r\n", "*2\r\n:2\r\n:1\r\n", true),
            (Unordered, "*2\r\n:1\r\n:2\r\n", "*2\r\n:1\r\n:1\r\n", false),
            (Unordered, "*1\r\n:1\r\n", "~1\r\n:1\r\n", false),
            (UnorderedPairs, "*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n", "*4\r\n:3\r\n:4\r\n:1\r\n:2\r\n", true),
            (UnorderedPairs, "*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n", "*4\r\n:1\r\n:4\r\n:3\r\n:2\r\n", false),
            (Near(5), ":100\r\n", ":104\r\n", true),
            (Near(5), ":100\r\n", ":106\r\n", false),
            (Near(5), ":-1\r\n", ":-2\r\n", false),
            (Near(5), ":-1\r\n", ":0\r\n", false),
            (Shape, ":1\r\n", ":9\r\n", true),
            (Shape, "*1\r\n:1\r\n", "*2\r\n:1\r\n:1\r\n", false),
            (Shape, "-ERR a\r\n", "-ERR b\r\n", false),
            (Times, "*4\r\n$4\r\nidle\r\n:7\r\n$1\r\na\r\n:1\r\n", "*2\r\n$1\r\na\r\n:1\r\n", true),
            (Times, "*2\r\n$4\r\nidle\r\n:7\r\n", "*2\r\n$1\r\na\r\n:1\r\n", false),
            (Times, ":1700000000001\r\n", ":1700000000000\r\n", true),
            (Times, ":17\r\n", ":18\r\n", false),
            (Times, "*4\r\n$0\r\n\r\n$0\r\n\r\n:1\r\n:9\r\n", "*4\r\n$0\r\n\r\n$0\r\n\r\n:2\r\n:9\r\n", true),
            (
                Times,
                "*4\r\n$0\r\n\r\n$0\r\n\r\n:1\r\n:8\r\n",
                "*4\r\n$0\r\n\r\n$0\r\n\r\n:1\r\n:9\r\n",
                false,
            ),
            (Outcome, "+a\r\n", "*0\r\n", true),
            (Outcome, "-ERR a\r\n", "*0\r\n", false),
            (Outcome, "-ERR a\r\n", "-ERR b\r\n", false),
        ];
        for (rule, ours, oracle, expected) in table {
            let read = |text: &str| parse(text.as_bytes()).expect("the table holds replies").0;
            assert_eq!(agree(*rule, &read(ours), &read(oracle)), *expected, "{rule:?} {ours:?} {oracle:?}");
        }
    }
}
