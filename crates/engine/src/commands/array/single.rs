//! Values one by one.

use dunlin_resp::ReplyBuffer;

use super::{check_values, parse_index, removed, reply_value, set_from};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ReadContext, WriteContext},
    notify::EventClass,
    value::Array,
};

pub(super) const ARSET: Command = Command {
    name: "arset",
    summary: "Puts values at consecutive indexes of an array, and returns how many of the places were empty.",
    since: "8.8.0",
    group: Group::Array,
    complexity: "O(log n) for each value",
    arity: Arity::AtLeast(4),
    run: Run::Write(arset),
    flags: Flags::DENY_OOM.and(Flags::FAST),
    keys: &[KeySpec::at(1).read_write().updates()],
    args: &[Argument::key("key"), Argument::integer("index"), Argument::string("value").multiple()],
    ..Command::DEFAULT
};

fn arset(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, first) = (args.word(), parse_index(args.word())?);
    let values = args.take_rest();
    if Array::INDEX_MAX - first < values.len() as u64 - 1 {
        return Err(CommandError::text("ERR array index overflow"));
    }
    check_values(values)?;
    let added = context.update_or_create(key, |array: &mut Array| (set_from(array, first, values), true))?;
    context.count_changes(values.len());
    context.notify(EventClass::Array, "arset", key);
    reply.count(added);
    Ok(())
}

pub(super) const ARMSET: Command = Command {
    name: "armset",
    summary: "Puts values at indexes of an array, and returns how many of the places were empty.",
    run: Run::Write(armset),
    args: &[
        Argument::key("key"),
        Argument::block("data", &[Argument::integer("index"), Argument::string("value")]).multiple(),
    ],
    ..ARSET
};

fn armset(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, words) = (args.word(), args.take_rest());
    if !words.len().is_multiple_of(2) {
        return Err(CommandError::WrongArity("armset".to_owned()));
    }
    let pairs = words.chunks_exact(2).map(|pair| Ok((parse_index(pair[0])?, pair[1])));
    let pairs: Vec<(u64, &[u8])> = pairs.collect::<Result<_, CommandError>>()?;
    check_values(words)?;
    let added = context.update_or_create(key, |array: &mut Array| {
        (pairs.iter().filter(|(index, value)| array.set(*index, *value)).count(), true)
    })?;
    context.count_changes(pairs.len());
    context.notify(EventClass::Array, "armset", key);
    reply.count(added);
    Ok(())
}

pub(super) const ARDEL: Command = Command {
    name: "ardel",
    summary: "Removes the values at indexes of an array; the last one takes the array with it.",
    complexity: "O(log n) for each index",
    arity: Arity::AtLeast(3),
    run: Run::Write(ardel),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().deletes()],
    args: &[Argument::key("key"), Argument::integer("index").multiple()],
    ..ARSET
};

fn ardel(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let indexes = parse_indexes(args)?;
    let count = context.update(key, |array: &mut Array| {
        let count: u64 = indexes.iter().map(|index| array.remove(*index, *index)).sum();
        (count, count > 0)
    })?;
    removed(context, key, "ardel", count.unwrap_or(0), reply);
    Ok(())
}

fn parse_indexes(args: &mut Args<'_>) -> Result<Vec<u64>, CommandError> {
    args.take_rest().iter().map(|word| parse_index(word)).collect()
}

pub(super) const ARGET: Command = Command {
    name: "arget",
    summary: "Returns the value at an index of an array.",
    complexity: "O(log n)",
    arity: Arity::Exactly(3),
    run: Run::Read(arget),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key"), Argument::integer("index")],
    ..ARSET
};

fn arget(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let array = context.collection::<Array>(args.word())?;
    let index = parse_index(args.word())?;
    reply_value(reply, array.as_deref().and_then(|array| array.get(index)));
    Ok(())
}

pub(super) const ARMGET: Command = Command {
    name: "armget",
    summary: "Returns the values at indexes of an array.",
    complexity: "O(log n) for each index",
    arity: Arity::AtLeast(3),
    run: Run::Read(armget),
    args: &[Argument::key("key"), Argument::integer("index").multiple()],
    ..ARGET
};

fn armget(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let array = context.collection::<Array>(args.word())?;
    let indexes = parse_indexes(args)?;
    reply.array(indexes.len());
    for index in indexes {
        reply_value(reply, array.as_deref().and_then(|array| array.get(index)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::{Scenario, check};

    #[test]
    fn arset_and_arget_put_and_return_values() {
        check(
            "
            > ARSET a 0 hello 12 3.14 007
            :4
            > ARSET a 0 world
            :0
            > ARMGET a 0 1 2 3 4
            *5 $5 world $2 12 $4 3.14 $3 007 $-1
            3> ARGET a 9
            _
            > ARMSET a 1 x 100 y 1 z
            :1
            > ARGET a 1
            $1 z
            > ARLEN a
            :101
            > ARCOUNT a
            :5
            > TYPE a
            +array
            > OBJECT ENCODING a
            $12 sliced-array
            > ARDEL a 1 1 50
            :1
            > ARDEL a 0 2 3 100
            :4
            > EXISTS a
            :0
            > ARGET a 0
            $-1
            > ARDEL a 0
            :0
            ",
        );
    }

    #[test]
    fn indexes_reach_to_the_end_of_64_bits() {
        check(
            "
            > ARSET a 18446744073709551614 last
            :1
            > ARLEN a
            :18446744073709551615
            > ARGET a 18446744073709551614
            $4 last
            > ARSCAN a 0 18446744073709551614
            *1 *2 :18446744073709551614 $4 last
            > ARSET a 18446744073709551613 x y z
            -ERR array index overflow
            > ARSET a 18446744073709551615 x
            -ERR invalid array index
            > ARGET a -1
            -ERR invalid array index
            > ARGET missing x
            -ERR invalid array index
            > ARMSET a 1 b x
            -ERR wrong number of arguments for 'armset' command
            > ARMSET a 1 b -1 c
            -ERR invalid array index
            > ARCOUNT a
            :1
            > ARDEL a 1 nothing
            -ERR invalid array index
            ",
        );
    }

    #[test]
    fn arrays_are_a_type_of_their_own() {
        check(
            "
            > SET text v
            +OK
            > ARSET text 0 v
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > ARGET text 0
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > ARSET a 0 1 2 3
            :3
            > GET a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SORT a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SCAN 0 TYPE array COUNT 100
            *2 $1 0 *1 $1 a
            > COPY a b
            :1
            > ARSET b 0 other
            :0
            > ARMGET a 0 1 2
            *3 $1 1 $1 2 $1 3
            > RENAME b c
            +OK
            > ARGET c 0
            $5 other
            ",
        );
    }

    /// DUMP and RESTORE of small and large arrays, with a cursor.
    #[test]
    fn dump_and_restore_keep_values_and_cursor() {
        let mut scenario = Scenario::new();
        for (key, count) in [("small", 5), ("large", 500)] {
            for number in 0..count {
                let index = u64::from(number % 2 == 0) * 1_000_000 + number;
                scenario.play(&format!("> ARSET {key} {index} v{number}\n:1"));
            }
            scenario.play(&format!("> ARINSERT {key} -7 2.50 1.0\n:2\n> COPY {key} copy REPLACE\n:1"));
            let dump = scenario.reply(&format!("DUMP {key}"), dunlin_resp::Protocol::Resp2);
            let start = dump.iter().position(|byte| *byte == b'\n').unwrap() + 1;
            let text: String =
                dump[start..dump.len() - 2].iter().map(|byte| format!("\\x{byte:02x}")).collect();
            scenario.play(&format!("> RESTORE again 0 \"{text}\" REPLACE\n+OK"));
            let resp = dunlin_resp::Protocol::Resp2;
            for question in ["ARSCAN {} 0 2000000", "ARNEXT {}", "ARLEN {}"] {
                let ask = |key: &str| question.replace("{}", key);
                let expected = scenario.reply(&ask(key), resp);
                assert_eq!(scenario.reply(&ask("again"), resp), expected);
                assert_eq!(scenario.reply(&ask("copy"), resp), expected);
            }
        }
    }
}
