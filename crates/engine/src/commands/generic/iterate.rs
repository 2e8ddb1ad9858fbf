//! Walking a database.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run},
    commands::scan::{COUNT_DEFAULT, parse_cursor},
    context::KeyspaceContext,
    glob,
    keyspace::EntryRef,
};

pub(super) const DBSIZE: Command = Command {
    name: "dbsize",
    summary: "Returns how many keys the selected database has.",
    since: "1.0.0",
    group: Group::Server,
    complexity: "O(stripes); O(n) for n keys while slots move to or from the node",
    arity: Arity::Exactly(1),
    run: Run::Keyspace(dbsize),
    flags: Flags::FAST.and(Flags::KEYSPACE),
    tips: &["request_policy:all_shards", "response_policy:agg_sum"],
    ..Command::DEFAULT
};

pub(super) const KEYS: Command = Command {
    name: "keys",
    summary: "Returns all keys that match a pattern.",
    since: "1.0.0",
    complexity: "O(n) for n keys in the database; O(1) where the pattern is a key's very name",
    arity: Arity::Exactly(2),
    run: Run::Keyspace(keys),
    flags: Flags::DANGEROUS,
    args: &[Argument::pattern("pattern")],
    tips: &["request_policy:all_shards", "nondeterministic_output_order"],
    ..Command::DEFAULT
};

pub(super) const RANDOMKEY: Command = Command {
    name: "randomkey",
    summary: "Returns one of the keys, chosen at random.",
    since: "1.0.0",
    complexity: "O(stripes), expected",
    arity: Arity::Exactly(1),
    run: Run::Keyspace(randomkey),
    tips: &["request_policy:all_shards", "nondeterministic_output"],
    ..Command::DEFAULT
};

pub(super) const SCAN: Command = Command {
    name: "scan",
    summary: "Returns some of the keys and a cursor to go on from.",
    since: "2.8.0",
    complexity: "O(COUNT) a call; O(n) for n keys from the first call to the last",
    arity: Arity::AtLeast(2),
    run: Run::Keyspace(scan),
    args: &[
        Argument::integer("cursor"),
        Argument::pattern("pattern").after("MATCH").optional(),
        Argument::integer("count").after("COUNT").optional(),
        Argument::string("type").after("TYPE").optional().since("6.0.0"),
    ],
    tips: &["nondeterministic_output", "request_policy:special"],
    ..Command::DEFAULT
};

fn dbsize(context: &mut KeyspaceContext<'_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply.count(context.visible_keys()?);
    Ok(())
}

fn keys(context: &mut KeyspaceContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let pattern = args.word();
    let (mark, mut count) = (reply.mark(), 0);
    if let Some(key) = glob::literal(pattern) {
        if context.contains(key)? {
            reply.bulk(key);
            count = 1;
        }
    } else {
        let stripe = context.shard_of_pattern(pattern);
        let filter = glob::filter(pattern)?;
        context.for_each_key(stripe, |key| {
            if filter.as_ref().is_none_or(|glob| glob.matches(key)) {
                reply.bulk(key);
                count += 1;
            }
        })?;
    }
    reply.array_since(mark, count);
    Ok(())
}

fn randomkey(context: &mut KeyspaceContext<'_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    match context.random_key()? {
        Some(key) => reply.bulk(&key),
        None => reply.null(),
    }
    Ok(())
}

fn scan(context: &mut KeyspaceContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let cursor = parse_cursor(args)?;
    let (mut pattern, mut type_name, mut count) = (None, None, COUNT_DEFAULT);
    while !args.is_empty() {
        if args.token_with("COUNT", 1) {
            let wanted = args.integer();
            args.check()?;
            count = usize::try_from(wanted).ok().filter(|count| *count > 0).ok_or(CommandError::Syntax)?;
        } else if args.token_with("MATCH", 1) {
            pattern = Some(args.word());
        } else if args.token_with("TYPE", 1) {
            type_name = Some(args.word());
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let stripe = pattern.and_then(|pattern| context.shard_of_pattern(pattern));
    let filter = pattern.map(glob::filter).transpose()?.flatten();
    let (mut keys, mut found) = (ReplyBuffer::default(), 0);
    let is_of_type = |entry: EntryRef<'_>| {
        type_name.is_none_or(|name| name.eq_ignore_ascii_case(entry.type_name().as_bytes()))
    };
    let cursor = context.scan(cursor, count, stripe, is_of_type, |key| {
        if filter.as_ref().is_none_or(|glob| glob.matches(key)) {
            keys.bulk(key);
            found += 1;
        }
    })?;
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(cursor).as_bytes());
    reply.array(found);
    reply.append(&mut keys);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dunlin_resp::Protocol;

    use crate::transcript::{Scenario, check};

    /// The cursor and the keys of a reply to SCAN.
    fn parse(reply: &[u8]) -> (String, Vec<String>) {
        let text = String::from_utf8(reply.to_vec()).expect("keys are text here");
        let mut bulks = text.split("\r\n").filter(|line| !line.starts_with(['*', '$']) && !line.is_empty());
        let cursor = bulks.next().expect("a cursor").to_owned();
        (cursor, bulks.map(str::to_owned).collect())
    }

    /// All keys that a whole iteration finds, and the number of its calls.
    fn scan_all(scenario: &mut Scenario, options: &str) -> (BTreeSet<String>, usize) {
        let (mut cursor, mut found, mut calls) = ("0".to_owned(), BTreeSet::new(), 0);
        loop {
            let (next, keys) = parse(&scenario.reply(&format!("SCAN {cursor} {options}"), Protocol::Resp2));
            calls += 1;
            for key in keys {
                assert!(found.insert(key.clone()), "{key} was told twice though nothing has changed");
            }
            if next == "0" {
                return (found, calls);
            }
            cursor = next;
        }
    }

    fn names(range: std::ops::Range<usize>) -> BTreeSet<String> {
        range.map(|number| format!("key:{number}")).collect()
    }

    #[test]
    fn scan_finds_every_key_once_while_nothing_changes() {
        let mut scenario = Scenario::new();
        for key in names(0..3000) {
            scenario.play(&format!("> SET {key} v\n+OK"));
        }
        let (found, calls) = scan_all(&mut scenario, "");
        assert_eq!(found, names(0..3000));
        assert!((30..=400).contains(&calls), "about ten keys a call: {calls} calls");
        assert_eq!(scan_all(&mut scenario, "COUNT 1000000").1, 1);
        assert_eq!(scan_all(&mut scenario, "MATCH key:29??").0, names(2900..3000));
        assert_eq!(scan_all(&mut scenario, "TYPE STRING MATCH *").0.len(), 3000);
        assert_eq!(scan_all(&mut scenario, "TYPE hash").0.len(), 0);
    }

    #[test]
    fn scan_keeps_its_promise_while_the_table_grows_and_shrinks() {
        let mut scenario = Scenario::new();
        for key in names(0..1000) {
            scenario.play(&format!("> SET {key} v\n+OK"));
        }
        let (mut cursor, mut found, mut extra) = ("0".to_owned(), BTreeSet::new(), 0);
        for call in 0.. {
            let (next, keys) = parse(&scenario.reply(&format!("SCAN {cursor}"), Protocol::Resp2));
            found.extend(keys);
            if next == "0" {
                break;
            }
            cursor = next;
            for _ in 0..200 {
                if call % 20 < 10 {
                    scenario.play(&format!("> SET extra:{extra} v\n+OK"));
                    extra += 1;
                } else if extra > 0 {
                    extra -= 1;
                    scenario.play(&format!("> DEL extra:{extra}\n:1"));
                }
            }
        }
        assert!(found.is_superset(&names(0..1000)), "all that was there throughout is told");
    }

    #[test]
    fn keys_with_a_hash_tag_looks_in_one_slot() {
        let mut scenario = Scenario::new();
        for key in names(0..500) {
            scenario.play(&format!("> SET {key} v\n+OK\n> SET {{tag}}:{key} v\n+OK"));
        }
        let expected: BTreeSet<String> = names(0..500).iter().map(|key| format!("{{tag}}:{key}")).collect();
        let (found, calls) = scan_all(&mut scenario, "MATCH {tag}:*");
        assert_eq!(found, expected);
        let (found, more_calls) = scan_all(&mut scenario, "MATCH *{tag}*");
        assert_eq!(found, expected);
        assert!(calls < more_calls);
        let (_, keys) =
            parse(&[b"$1\r\n0\r\n", &scenario.reply("KEYS {tag}:*", Protocol::Resp2)[..]].concat());
        assert_eq!(keys.into_iter().collect::<BTreeSet<_>>(), expected);
    }

    #[test]
    fn mistakes_are_told() {
        check(
            "
            > SCAN x
            -ERR invalid cursor
            > SCAN 18446744073709551616
            -ERR invalid cursor
            > SCAN -
            -ERR invalid cursor
            > SCAN -0
            *2 $1 0 *0
            > SCAN 18446744073709551615
            *2 $1 0 *0
            > SCAN 0 COUNT 0
            -ERR syntax error
            > SCAN 0 COUNT x FOO
            -ERR value is not an integer or out of range
            > SCAN 0 MATCH
            -ERR syntax error
            > SCAN 0 FOO x
            -ERR syntax error
            > SCAN 0 TYPE nothing
            *2 $1 0 *0
            > SCAN
            -ERR wrong number of arguments for 'scan' command
            ",
        );
    }

    #[test]
    fn keys_lists_what_matches_and_has_not_expired() {
        check(
            "
            > KEYS *
            *0
            > SET one 1
            +OK
            > SET two 2
            +OK
            > KEYS one
            *1 $3 one
            > KEYS o?e
            *1 $3 one
            > KEYS t[a-w]*
            *1 $3 two
            > KEYS three
            *0
            > PEXPIRE one 1
            :1
            @ +1
            > KEYS one
            *0
            > KEYS *
            *1 $3 two
            > DBSIZE
            :2
            ",
        );
    }

    #[test]
    fn randomkey_is_fair_and_never_expired() {
        let mut scenario = Scenario::new();
        scenario.play("> RANDOMKEY\n$-1\n3> RANDOMKEY\n_");
        for key in names(0..100) {
            scenario.play(&format!("> SET {key} v\n+OK"));
        }
        let draw = |scenario: &mut Scenario| scenario.reply("RANDOMKEY", Protocol::Resp2);
        let drawn: BTreeSet<Vec<u8>> = (0..3000).map(|_| draw(&mut scenario)).collect();
        assert_eq!(drawn.len(), 100, "each of a hundred keys is among three thousand draws");
        for key in names(0..100) {
            scenario.play(&format!("> PEXPIRE {key} 1\n:1"));
        }
        scenario.play("> SET survivor v\n+OK\n@ +1");
        for _ in 0..100 {
            scenario.play("> RANDOMKEY\n$8 survivor");
        }
        scenario.play("> DEL survivor\n:1\n> RANDOMKEY\n$-1");
    }
}
