//! The keys of slots, for a node of a cluster. The host has the rows of these handlers.
//!
//! A slot's keys all stand in one stripe, among those of other slots, and are found by walking over it. There is no index
//! (docs/decisions/0050).
//!
//! ```text
//! cursor of CLUSTERSCAN   fingerprint-{tag}-position      as in Valkey
//!                         │           │     └ cursor of SCAN, of this node
//!                         │           └ a text in the run's first slot: it routes the request
//!                         └ of the run and of this process; 0 begins, another one begins again
//! ```

use std::{
    cell::Cell,
    fmt::Write,
    sync::{Arc, OnceLock},
};

use dunlin_resp::{ReplyBuffer, number::parse_integer};

use super::scan::COUNT_DEFAULT;
use crate::{
    command::{Args, CommandError, CommandResult},
    context::KeyspaceContext,
    glob,
    keyspace::{EntryRef, SLOTS, slot},
    value::ValueType,
};

/// The refusal of commands that are for nodes of a cluster.
pub const NO_CLUSTER: CommandError = CommandError::text("ERR This instance has cluster support disabled");

/// Bytes of the characters of tags.
const TAG_CHARACTERS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The shortest text whose slot is this one, the first of several in the order of its characters: those of Valkey.
pub fn tag_of(slot: u16) -> &'static str {
    static TAGS: OnceLock<Vec<String>> = OnceLock::new();
    &TAGS.get_or_init(tags)[usize::from(slot)]
}

/// A text for each slot. Each is found with up to three characters.
fn tags() -> Vec<String> {
    const LENGTH_MAX: u32 = 3;
    let mut tags = vec![String::new(); SLOTS.into()];
    let characters = TAG_CHARACTERS.len();
    for length in 1..=LENGTH_MAX {
        for mut number in 0..characters.pow(length) {
            let mut text = vec![0; length as usize];
            for place in text.iter_mut().rev() {
                *place = TAG_CHARACTERS[number % characters];
                number /= characters;
            }
            let tag = &mut tags[usize::from(slot(&text))];
            if tag.is_empty() {
                *tag = text.into_iter().map(char::from).collect();
            }
        }
    }
    tags
}

/// The runs of slots of a node, or the refusal of a server that is none.
fn runs(context: &KeyspaceContext<'_>) -> Result<Arc<[(u16, u16)]>, CommandError> {
    context.slots().ok_or(NO_CLUSTER)
}

/// A slot's number.
fn slot_number(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|slot| *slot < SLOTS)
}

/// Looks at the slots of all keys, or of those in the stripe of one. No key is copied.
fn look_at(context: &mut KeyspaceContext<'_>, only: Option<u16>, look: impl Fn(u16)) -> CommandResult {
    let stripe = only.map(|slot| context.stripe_of_slot(slot));
    let look = |entry: EntryRef<'_>| {
        look(slot(entry.key()));
        false
    };
    context.scan(0, usize::MAX, stripe, look, |_| {})?;
    Ok(())
}

/// `CLUSTER COUNTKEYSINSLOT slot`. O(keys of a stripe).
pub fn count_keys(
    context: &mut KeyspaceContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    runs(context)?;
    let wanted = args.integer();
    args.finish()?;
    let wanted = slot_number(wanted).ok_or(CommandError::text("ERR Invalid slot"))?;
    let count = Cell::new(0);
    look_at(context, Some(wanted), |found| {
        count.set(count.get() + usize::from(found == wanted));
    })?;
    reply.count(count.get());
    Ok(())
}

/// `CLUSTER GETKEYSINSLOT slot count`. O(keys of a stripe).
pub fn keys(
    context: &mut KeyspaceContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    runs(context)?;
    let (wanted, count_max) = (args.integer(), args.integer());
    args.finish()?;
    const INVALID: CommandError = CommandError::text("ERR Invalid slot or number of keys");
    let wanted = slot_number(wanted).ok_or(INVALID)?;
    let count_max = usize::try_from(count_max).map_err(|_| INVALID)?;
    let (mark, mut count) = (reply.mark(), 0);
    let stripe = Some(context.stripe_of_slot(wanted));
    // Keys of other slots are not even copied.
    let is_wanted = |entry: EntryRef<'_>| slot(entry.key()) == wanted;
    context.scan(0, usize::MAX, stripe, is_wanted, |key| {
        if count < count_max {
            reply.bulk(key);
            count += 1;
        }
    })?;
    reply.array_since(mark, count);
    Ok(())
}

/// Which slots `CLUSTER SLOT-STATS` shows, and in which order.
enum Shown {
    Range(u16, u16),
    Ordered { ascending: bool, limit: usize },
}

/// `CLUSTER SLOT-STATS SLOTSRANGE first last | ORDERBY key-count [LIMIT n] [ASC | DESC]`. O(keys), O(slots × log slots).
pub fn statistics(
    context: &mut KeyspaceContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let runs = runs(context)?;
    let shown = shown_slots(args)?;
    let is_shown = |slot: u16| match shown {
        Shown::Range(first, last) => (first..=last).contains(&slot),
        Shown::Ordered { .. } => true,
    };
    let owned = runs.iter().flat_map(|(first, last)| *first..=*last);
    let mut counts: Vec<(u16, usize)> = owned.filter(|slot| is_shown(*slot)).map(|slot| (slot, 0)).collect();
    let mut places = vec![None; SLOTS.into()];
    counts.iter().enumerate().for_each(|(at, (slot, _))| places[usize::from(*slot)] = Some(at));
    if !counts.is_empty() {
        let cells: Vec<Cell<usize>> = counts.iter().map(|_| Cell::new(0)).collect();
        look_at(context, None, |found| {
            if let Some(at) = places[usize::from(found)] {
                let cell: &Cell<usize> = &cells[at];
                cell.set(cell.get() + 1);
            }
        })?;
        counts.iter_mut().zip(cells).for_each(|(count, cell)| count.1 = cell.get());
    }
    if let Shown::Ordered { ascending, limit } = shown {
        // Equal ones stand in the order of their slots.
        counts.sort_by(|one, other| if ascending { one.1.cmp(&other.1) } else { other.1.cmp(&one.1) });
        counts.truncate(limit);
    }
    reply.array(counts.len());
    for (slot, count) in counts {
        reply.array(2);
        reply.integer(slot.into());
        reply.map(1);
        reply.bulk(b"key-count");
        reply.count(count);
    }
    Ok(())
}

fn shown_slots(args: &mut Args<'_>) -> Result<Shown, CommandError> {
    const OUT_OF_RANGE: CommandError = CommandError::text("ERR Invalid or out of range slot");
    let subcommand = args.words()[1];
    let wrong = || {
        let name = String::from_utf8_lossy(subcommand).into_owned();
        CommandError::owned(format!(
            "ERR unknown subcommand or wrong number of arguments for '{name}'. Try CLUSTER HELP."
        ))
    };
    if args.token("SLOTSRANGE") {
        let &[first, last] = args.take_rest() else { return Err(wrong()) };
        let number = |word: &[u8]| {
            let number = parse_integer(word).and_then(slot_number);
            number.ok_or(OUT_OF_RANGE)
        };
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(CommandError::owned(format!(
                "ERR Start slot number {first} is greater than end slot number {last}"
            )));
        }
        return Ok(Shown::Range(first, last));
    }
    if !args.token("ORDERBY") {
        return Err(wrong());
    }
    if !args.token("key-count") {
        return Err(CommandError::text("ERR Unrecognized sort metric for ORDERBY."));
    }
    const TWICE: CommandError = CommandError::text("ERR Multiple filters of the same type are disallowed.");
    let (mut order, mut limit) = (None, None);
    while !args.is_empty() {
        if args.token("ASC") {
            order = order.map_or(Ok(Some(true)), |_| Err(TWICE))?;
        } else if args.token("DESC") {
            order = order.map_or(Ok(Some(false)), |_| Err(TWICE))?;
        } else if args.token_with("LIMIT", 1) {
            let number = parse_integer(args.word());
            let number = number.and_then(|number| usize::try_from(number).ok());
            let number = number.filter(|number| (1..=usize::from(SLOTS)).contains(number)).ok_or(
                CommandError::text("ERR Limit has to lie in between 1 and 16384 (maximum number of slots)."),
            )?;
            limit = limit.map_or(Ok(Some(number)), |_: usize| Err(TWICE))?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(Shown::Ordered { ascending: order.unwrap_or(false), limit: limit.unwrap_or(SLOTS.into()) })
}

/// The place at which `CLUSTERSCAN` goes on.
struct Cursor<'a> {
    fingerprint: &'a [u8],
    slot: u16,
    position: u64,
}

impl<'a> Cursor<'a> {
    /// Reads a cursor; `None` for the first one.
    fn parse(text: &'a [u8]) -> Result<Option<Self>, CommandError> {
        const INVALID: CommandError = CommandError::text("ERR Invalid cursor");
        if text == b"0" {
            return Ok(None);
        }
        let open = text.windows(2).position(|pair| pair == b"-{").ok_or(INVALID)?;
        let close = text.windows(2).rposition(|pair| pair == b"}-");
        let close = close.filter(|close| *close > open).ok_or(INVALID)?;
        let position = std::str::from_utf8(&text[close + 2..]).ok().and_then(|text| text.parse().ok());
        Ok(Some(Self {
            fingerprint: &text[..open],
            // As the request was routed.
            slot: slot(text),
            position: position.ok_or(INVALID)?,
        }))
    }
}

/// `CLUSTERSCAN cursor [MATCH pattern] [COUNT n] [TYPE type] [SLOT slot]`: walks over all nodes of a cluster, a run of slots
/// after the other. O(COUNT).
pub fn scan(
    context: &mut KeyspaceContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let runs = runs(context)?;
    let cursor = Cursor::parse(args.word())?;
    let (mut pattern, mut value_type, mut count, mut only) = (None, None, COUNT_DEFAULT, None);
    while !args.is_empty() {
        if args.token_with("COUNT", 1) {
            let wanted = args.integer();
            args.check()?;
            count = usize::try_from(wanted).ok().filter(|count| *count > 0).ok_or(CommandError::Syntax)?;
        } else if args.token_with("MATCH", 1) {
            pattern = Some(args.word());
        } else if args.token_with("TYPE", 1) {
            let name = args.word();
            let known = ValueType::named(name);
            value_type = Some(
                known.ok_or_else(|| CommandError::quoting_within("ERR unknown type name '", name, "'"))?,
            );
        } else if args.token_with("SLOT", 1) {
            let number = parse_integer(args.word()).and_then(slot_number);
            only = Some(number.ok_or(CommandError::text("ERR Invalid or out of range slot"))?);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let filter = pattern.map(glob::filter).transpose()?.flatten();
    let Some(cursor) = cursor else {
        // Whichever node gets it says where the walk begins.
        reply_scan(reply, &format!("0-{{{}}}-0", tag_of(only.unwrap_or(0))), 0, ReplyBuffer::default());
        return Ok(());
    };
    if only.is_some_and(|only| only != cursor.slot) {
        return Err(CommandError::text("ERR Cursor slot mismatch with SLOT argument"));
    }
    let first = cursor.slot;
    let run = runs.iter().find(|(begin, end)| (*begin..=*end).contains(&first));
    let last = only.or(run.map(|(_, end)| *end)).unwrap_or(first);
    let range = [first.to_be_bytes(), last.to_be_bytes()].concat();
    let fingerprint = format!("{:08x}", context.fingerprint(&range) as u32);
    let position = if cursor.fingerprint == fingerprint.as_bytes() { cursor.position } else { 0 };
    let stripe = (first == last).then(|| context.stripe_of_slot(first));
    let (mut keys, mut found) = (ReplyBuffer::default(), 0);
    let is_wanted = |entry: EntryRef<'_>| {
        value_type.is_none_or(|value_type| entry.value_type() == value_type)
            && (first..=last).contains(&slot(entry.key()))
    };
    let next = context.scan(position, count, stripe, is_wanted, |key| {
        if filter.as_ref().is_none_or(|glob| glob.matches(key)) {
            keys.bulk(key);
            found += 1;
        }
    })?;
    let mut text = String::new();
    match next {
        0 if only.is_some() || last + 1 == SLOTS => text.push('0'),
        0 => drop(write!(text, "0-{{{}}}-0", tag_of(last + 1))),
        next => drop(write!(text, "{fingerprint}-{{{}}}-{next}", tag_of(first))),
    }
    reply_scan(reply, &text, found, keys);
    Ok(())
}

fn reply_scan(reply: &mut ReplyBuffer, cursor: &str, found: usize, mut keys: ReplyBuffer) {
    reply.array(2);
    reply.bulk(cursor.as_bytes());
    reply.array(found);
    reply.append(&mut keys);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dunlin_resp::Protocol;

    use super::*;
    use crate::{
        command::{Arity, Command, CommandTable, Group, Run},
        commands::FAMILIES,
        transcript::Scenario,
    };

    const ROWS: &[Command] = &[
        Command { name: "count", arity: Arity::Exactly(2), run: Run::Keyspace(count_keys), ..ROW },
        Command { name: "list", arity: Arity::Exactly(3), run: Run::Keyspace(keys), ..ROW },
        Command { name: "walk", arity: Arity::AtLeast(2), run: Run::Keyspace(scan), ..ROW },
        Command { name: "stats", arity: Arity::AtLeast(2), run: Run::Keyspace(statistics), ..ROW },
    ];
    const ROW: Command = Command { group: Group::Cluster, ..Command::DEFAULT };

    /// A node with these slots and a table of the handlers.
    fn node(runs: &[(u16, u16)]) -> (Scenario, CommandTable) {
        let mut scenario = Scenario::new();
        scenario.policy.slots = Some(Arc::from(runs));
        (scenario, CommandTable::new(&[FAMILIES, &[ROWS]].concat()))
    }

    fn reply(scenario: &mut Scenario, table: &CommandTable, line: &str) -> String {
        String::from_utf8(scenario.reply_from(table, line, Protocol::Resp2)).unwrap().replace("\r\n", " ")
    }

    #[test]
    fn tags_are_those_of_valkey_and_lead_to_their_slots() {
        for (slot, tag) in [(0, "06S"), (1, "Qi"), (6, "1Y7"), (100, "0or"), (5461, "8M"), (13907, "0")] {
            assert_eq!(tag_of(slot), tag);
        }
        assert!((0..SLOTS).all(|number| slot(tag_of(number).as_bytes()) == number));
    }

    #[test]
    fn keys_of_a_slot_are_counted_and_listed() {
        let (mut scenario, table) = node(&[(0, SLOTS - 1)]);
        for number in 0..100 {
            scenario.play(&format!("> SET {{foo}}:{number} v\n+OK\n> SET other:{number} v\n+OK"));
        }
        assert_eq!(reply(&mut scenario, &table, "COUNT 12182"), ":100 ");
        assert_eq!(reply(&mut scenario, &table, "COUNT 0"), ":0 ");
        assert_eq!(reply(&mut scenario, &table, "LIST 12182 3").matches("{foo}:").count(), 3);
        assert_eq!(reply(&mut scenario, &table, "LIST 12182 1000").matches("{foo}:").count(), 100);
        assert_eq!(reply(&mut scenario, &table, "LIST 12182 0"), "*0 ");
        scenario.play("> PEXPIRE {foo}:0 1\n:1\n@ +1");
        assert_eq!(reply(&mut scenario, &table, "COUNT 12182"), ":99 ");
        for (line, error) in [
            ("COUNT -1", "-ERR Invalid slot "),
            ("COUNT 16384", "-ERR Invalid slot "),
            ("COUNT x", "-ERR value is not an integer or out of range "),
            ("LIST 16384 1", "-ERR Invalid slot or number of keys "),
            ("LIST 0 -1", "-ERR Invalid slot or number of keys "),
        ] {
            assert_eq!(reply(&mut scenario, &table, line), error, "{line}");
        }
        scenario.policy.slots = None;
        assert_eq!(
            reply(&mut scenario, &table, "COUNT 0"),
            "-ERR This instance has cluster support disabled "
        );
    }

    #[test]
    fn statistics_show_owned_slots_only() {
        let (mut scenario, table) = node(&[(0, 0), (12180, 12183)]);
        scenario.play("> SET {foo}1 v\n+OK\n> SET {foo}2 v\n+OK\n> SET bar v\n+OK");
        let of = |slot: u16, count: usize| format!("*2 :{slot} *2 $9 key-count :{count} ");
        let all = [of(12182, 2), of(0, 0), of(12180, 0), of(12181, 0), of(12183, 0)].concat();
        assert_eq!(reply(&mut scenario, &table, "STATS ORDERBY key-count"), format!("*5 {all}"));
        let least = format!("*1 {}", of(0, 0));
        assert_eq!(reply(&mut scenario, &table, "STATS ORDERBY key-count LIMIT 1 ASC"), least);
        let range = format!("*2 {}{}", of(12182, 2), of(12183, 0));
        assert_eq!(reply(&mut scenario, &table, "STATS SLOTSRANGE 12182 12190"), range);
        assert_eq!(reply(&mut scenario, &table, "STATS SLOTSRANGE 1 2"), "*0 ");
    }

    /// All keys that a walk finds between the slots of its first and last cursor, and its end.
    fn walk(
        scenario: &mut Scenario,
        table: &CommandTable,
        from: &str,
        options: &str,
    ) -> (BTreeSet<String>, String) {
        let (mut cursor, mut found) = (from.to_owned(), BTreeSet::new());
        loop {
            let text = reply(scenario, table, &format!("WALK {cursor} {options}"));
            let mut bulks = text.split(' ').filter(|word| !word.is_empty() && !word.starts_with(['*', '$']));
            cursor = bulks.next().unwrap().to_owned();
            for key in bulks {
                assert!(found.insert(key.to_owned()), "{key} came twice though nothing has changed");
            }
            if cursor == "0" || cursor.starts_with("0-") {
                return (found, cursor);
            }
        }
    }

    #[test]
    fn clusterscan_walks_over_a_run_and_on_to_the_next() {
        let (mut scenario, table) = node(&[(0, 8000), (10_000, SLOTS - 1)]);
        let keys: Vec<String> = (0..2000).map(|number| format!("key:{number}")).collect();
        keys.iter().for_each(|key| scenario.play(&format!("> SET {key} v\n+OK")));
        let within = |first: u16, last: u16| -> BTreeSet<String> {
            keys.iter().filter(|key| (first..=last).contains(&slot(key.as_bytes()))).cloned().collect()
        };
        assert_eq!(reply(&mut scenario, &table, "WALK 0"), "*2 $9 0-{06S}-0 *0 ");
        let next = format!("0-{{{}}}-0", tag_of(8001));
        assert_eq!(walk(&mut scenario, &table, "0-{06S}-0", ""), (within(0, 8000), next.clone()));
        let third = format!("0-{{{}}}-0", tag_of(10_000));
        assert_eq!(walk(&mut scenario, &table, &third, "COUNT 100"), (within(10_000, SLOTS - 1), "0".into()));
        let slot_of_one = slot(b"key:1");
        let one = format!("0-{{{}}}-0", tag_of(slot_of_one));
        let only = format!("SLOT {slot_of_one}");
        assert_eq!(walk(&mut scenario, &table, &one, &only), (within(slot_of_one, slot_of_one), "0".into()));
        // A cursor of another node, or of other slots, begins again.
        let (found, _) = walk(&mut scenario, &table, "feedbeef-{06S}-77", "");
        assert_eq!(found, within(0, 8000));
        for (line, error) in [
            ("WALK x", "-ERR Invalid cursor "),
            ("WALK 0-{06S}", "-ERR Invalid cursor "),
            ("WALK 0-{06S}-x", "-ERR Invalid cursor "),
            ("WALK 0 FOO", "-ERR syntax error "),
            ("WALK 0 COUNT 0", "-ERR syntax error "),
            ("WALK 0 SLOT 16384", "-ERR Invalid or out of range slot "),
            ("WALK 0-{06S}-0 SLOT 5", "-ERR Cursor slot mismatch with SLOT argument "),
            ("WALK 0-{06S}-0 TYPE foo", "-ERR unknown type name 'foo' "),
        ] {
            assert_eq!(reply(&mut scenario, &table, line), error, "{line}");
        }
    }
}
