//! Fields one by one.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::Element;

use super::reply_text;
use crate::{
    command::{
        Args, Argument, Arity, Command, CommandError, CommandResult, ElementWords, Flags, Group, KeySpec, Run,
    },
    context::{ExpiryChange, ReadContext, WriteContext},
    notify::EventClass,
    value::Hash,
};

pub(super) const HSET: Command = Command {
    name: "hset",
    summary: "Gives fields of a hash their values; the hash is created where it is missing.",
    since: "2.0.0",
    group: Group::Hash,
    complexity: "O(n) for n fields given",
    arity: Arity::AtLeast(4),
    run: Run::Write(hset),
    flags: Flags::DENY_OOM.and(Flags::FAST),
    keys: &[KeySpec::at(1).read_write().updates()],
    args: &[
        Argument::key("key"),
        Argument::block("field_value", &[Argument::string("field"), Argument::string("value")]).multiple(),
    ],
    elements: Some(ElementWords::BEFORE_VALUES),
    ..Command::DEFAULT
};

pub(super) const HMSET: Command = Command {
    name: "hmset",
    summary: "Gives fields of a hash their values.",
    deprecated: Some(("4.0.0", "`HSET` with multiple field-value pairs")),
    run: Run::Write(hmset),
    ..HSET
};

fn hset(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let added = set_pairs(context, args, "hset")?;
    reply.count(added);
    Ok(())
}

fn hmset(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    set_pairs(context, args, "hmset")?;
    reply.ok();
    Ok(())
}

/// Stores the pairs of a request. Returns how many fields are new.
#[inline]
fn set_pairs(context: &mut WriteContext<'_>, args: &mut Args<'_>, name: &str) -> Result<usize, CommandError> {
    let (key, pairs) = (args.word(), args.take_rest());
    if pairs.len() % 2 != 0 {
        return Err(CommandError::WrongArity(name.to_owned()));
    }
    let (layout, now_ms) = (context.layout(), context.now_ms());
    let added = context.edit_or_create(key, |hash: &mut Hash| {
        hash.expect(pairs, layout);
        pairs
            .chunks_exact(2)
            .filter(|pair| hash.set(pair[0], pair[1], ExpiryChange::Clear, now_ms, layout))
            .count()
    })?;
    context.count_changes(pairs.len() / 2);
    context.notify(EventClass::Hash, "hset", key);
    Ok(added)
}

pub(super) const HSETNX: Command = Command {
    name: "hsetnx",
    summary: "Gives a field of a hash a value unless it has one.",
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    run: Run::Write(hsetnx),
    keys: &[KeySpec::at(1).read_write().inserts()],
    args: &[Argument::key("key"), Argument::string("field"), Argument::string("value")],
    ..HSET
};

fn hsetnx(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, field, value) = (args.word(), args.word(), args.word());
    let (layout, now_ms) = (context.layout(), context.now_ms());
    let added = context.update_or_create(key, |hash: &mut Hash| {
        if hash.get(field, now_ms).is_some() {
            return (false, false);
        }
        hash.expect(&[field, value], layout);
        hash.set(field, value, ExpiryChange::Clear, now_ms, layout);
        (true, true)
    })?;
    if added {
        context.notify(EventClass::Hash, "hset", key);
    }
    reply.integer(added.into());
    Ok(())
}

pub(super) const HDEL: Command = Command {
    name: "hdel",
    summary: "Removes fields from a hash; the last one takes the hash with it.",
    arity: Arity::AtLeast(3),
    run: Run::Write(hdel),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().deletes()],
    args: &[Argument::key("key"), Argument::string("field").multiple()],
    elements: Some(ElementWords::REST),
    ..HSET
};

fn hdel(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, fields, now_ms) = (args.word(), args.take_rest(), context.now_ms());
    let layout = context.layout();
    let removed = context.update(key, |hash: &mut Hash| {
        let removed = fields.iter().filter(|field| hash.remove(field, now_ms)).count();
        hash.settle(layout);
        (removed, removed > 0)
    })?;
    let removed = removed.unwrap_or(0);
    context.count_changes(removed);
    if removed > 0 {
        context.notify(EventClass::Hash, "hdel", key);
        context.notify_if_gone(key);
    }
    reply.count(removed);
    Ok(())
}

pub(super) const HGET: Command = Command {
    name: "hget",
    summary: "Returns the value of a field of a hash.",
    since: "2.0.0",
    group: Group::Hash,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    run: Run::Read(hget),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key"), Argument::string("field")],
    elements: Some(ElementWords::REST),
    ..Command::DEFAULT
};

fn hget(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (hash, now_ms) = (context.collection::<Hash>(args.word())?, context.now_ms());
    let hash = hash.as_deref();
    reply_value(reply, hash.and_then(|hash| hash.get(args.word(), now_ms)));
    Ok(())
}

pub(super) const HMGET: Command = Command {
    name: "hmget",
    summary: "Returns the values of fields of a hash.",
    complexity: "O(n) for n fields given",
    arity: Arity::AtLeast(3),
    run: Run::Read(hmget),
    args: &[Argument::key("key"), Argument::string("field").multiple()],
    ..HGET
};

fn hmget(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (hash, now_ms) = (context.collection::<Hash>(args.word())?, context.now_ms());
    let hash = hash.as_deref();
    let fields = args.take_rest();
    reply.array(fields.len());
    for field in fields {
        reply_value(reply, hash.and_then(|hash| hash.get(field, now_ms)));
    }
    Ok(())
}

pub(super) const HEXISTS: Command = Command {
    name: "hexists",
    summary: "Tells whether a hash has a field.",
    run: Run::Read(hexists),
    keys: &[KeySpec::at(1)],
    ..HGET
};

fn hexists(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (hash, now_ms) = (context.collection::<Hash>(args.word())?, context.now_ms());
    let hash = hash.as_deref();
    let field = args.word();
    reply.integer(hash.is_some_and(|hash| hash.get(field, now_ms).is_some()).into());
    Ok(())
}

pub(super) const HSTRLEN: Command = Command {
    name: "hstrlen",
    summary: "Returns the length of the value of a field, in bytes.",
    since: "3.2.0",
    run: Run::Read(hstrlen),
    keys: &[KeySpec::at(1)],
    ..HGET
};

fn hstrlen(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (hash, now_ms) = (context.collection::<Hash>(args.word())?, context.now_ms());
    let hash = hash.as_deref();
    let field = args.word();
    reply.count(hash.and_then(|hash| hash.get(field, now_ms)).map_or(0, Element::text_len));
    Ok(())
}

/// A field's value, or that there is none.
#[inline]
pub(super) fn reply_value(reply: &mut ReplyBuffer, value: Option<Element<'_>>) {
    match value {
        Some(value) => reply_text(reply, value),
        None => reply.null(),
    }
}

#[cfg(test)]
mod tests {
    use crate::transcript::{Scenario, check};

    #[test]
    fn hsetnx_of_a_field_that_is_there_changes_nothing_not_even_the_encoding() {
        let long = "x".repeat(65);
        check(&format!(
            "
            > HSET h a 1
            :1
            > HSETNX h a {long}
            :0
            > OBJECT ENCODING h
            $8 listpack
            > HSETNX h b {long}
            :1
            > OBJECT ENCODING h
            $9 hashtable
            "
        ));
    }

    #[test]
    fn fields_come_and_go() {
        check(
            "
            > HSET h a 1 b two a 3
            :2
            > HSET h a 4
            :0
            > HGET h a
            $1 4
            > HGET h c
            $-1
            3> HGET missing c
            _
            > HMGET h b c a
            *3 $3 two $-1 $1 4
            > HMGET missing b
            *1 $-1
            > HMSET h c x
            +OK
            > HSETNX h c y
            :0
            > HSETNX h d y
            :1
            > HEXISTS h d
            :1
            > HEXISTS h e
            :0
            > HSTRLEN h b
            :3
            > HSTRLEN h a
            :1
            > HSTRLEN h e
            :0
            > HDEL h a b e c
            :3
            > TYPE h
            +hash
            > HDEL h d
            :1
            > EXISTS h
            :0
            > HDEL h d
            :0
            ",
        );
    }

    #[test]
    fn encodings_follow_the_fields() {
        let long = "x".repeat(65);
        let mut scenario = Scenario::new();
        scenario.play(&format!(
            "
            > HSET h a 1
            :1
            > OBJECT ENCODING h
            $8 listpack
            > HSET h a {long}
            :0
            > OBJECT ENCODING h
            $9 hashtable
            > HSET h a 1
            :0
            > OBJECT ENCODING h
            $9 hashtable
            > HGET h a
            $1 1
            > COPY h t
            :1
            > HSET t a 2
            :0
            > HGET h a
            $1 1
            "
        ));
        for number in 0..512 {
            scenario.play(&format!("> HSET many {number} {number}\n:1"));
        }
        scenario.play("> OBJECT ENCODING many\n$8 listpack\n> HSET many x y\n:1");
        scenario.play("> OBJECT ENCODING many\n$9 hashtable\n> HGET many 77\n$2 77\n> HLEN many\n:513");
    }

    #[test]
    fn mistakes_are_told_and_change_nothing() {
        check(
            "
            > HSET h a 1 b
            -ERR wrong number of arguments for 'hset' command
            > HMSET h a 1 b
            -ERR wrong number of arguments for 'hmset' command
            > EXISTS h
            :0
            > SET text v
            +OK
            > HSET text a 1
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > HSETNX text a 1
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > HGET text a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > HMGET text a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > HDEL text a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > HGET h
            -ERR wrong number of arguments for 'hget' command
            ",
        );
    }
}
