//! Members one by one.

use dunlin_resp::ReplyBuffer;

use super::reply_member;
use crate::{
    command::{Args, Argument, Arity, Command, CommandResult, ElementWords, Flags, Group, KeySpec, Run},
    context::{ReadContext, WriteContext},
    notify::EventClass,
    value::Set,
};

pub(super) const SADD: Command = Command {
    name: "sadd",
    summary: "Adds members to a set, which is created where it is missing.",
    since: "1.0.0",
    group: Group::Set,
    complexity: "O(n) for n members given",
    arity: Arity::AtLeast(3),
    run: Run::Write(sadd),
    flags: Flags::DENY_OOM.and(Flags::FAST),
    keys: &[KeySpec::at(1).read_write().inserts()],
    args: &[Argument::key("key"), Argument::string("member").multiple()],
    elements: Some(ElementWords::REST),
    ..Command::DEFAULT
};

fn sadd(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, members) = (args.word(), args.take_rest());
    let layout = context.layout();
    let added = context.update_or_create(key, |set: &mut Set| {
        set.expect(members, layout);
        let added = members.iter().filter(|member| set.insert(member, layout)).count();
        (added, added > 0)
    })?;
    context.count_changes(added);
    if added > 0 {
        context.notify(EventClass::Set, "sadd", key);
    }
    reply.count(added);
    Ok(())
}

pub(super) const SREM: Command = Command {
    name: "srem",
    summary: "Removes members from a set; the last one takes the set with it.",
    complexity: "O(n) for n members given",
    run: Run::Write(srem),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().deletes()],
    ..SADD
};

fn srem(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, members) = (args.word(), args.take_rest());
    let layout = context.layout();
    let removed = context.update(key, |set: &mut Set| {
        let removed = members.iter().filter(|member| set.remove(member)).count();
        set.settle(layout);
        (removed, removed > 0)
    })?;
    let removed = removed.unwrap_or(0);
    context.count_changes(removed);
    if removed > 0 {
        context.notify(EventClass::Set, "srem", key);
        context.notify_if_gone(key);
    }
    reply.count(removed);
    Ok(())
}

pub(super) const SMOVE: Command = Command {
    name: "smove",
    summary: "Moves a member from one set to another.",
    since: "1.0.0",
    group: Group::Set,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    run: Run::Write(smove),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().accesses().deletes(), KeySpec::at(2).read_write().inserts()],
    args: &[Argument::key("source"), Argument::key("destination").key_spec(1), Argument::string("member")],
    ..Command::DEFAULT
};

fn smove(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (source, destination, member) = (args.word(), args.word(), args.word());
    let layout = context.layout();
    let Some(from) = context.collection::<Set>(source)? else {
        reply.integer(0);
        return Ok(());
    };
    let is_member = from.contains(member);
    context.collection::<Set>(destination)?;
    if is_member && source != destination {
        context.update(source, |set: &mut Set| {
            set.remove(member);
            set.settle(layout);
            ((), true)
        })?;
        context.notify(EventClass::Set, "srem", source);
        context.notify_if_gone(source);
        let added = context.update_or_create(destination, |set: &mut Set| {
            let added = set.insert(member, layout);
            (added, added)
        })?;
        if added {
            context.notify(EventClass::Set, "sadd", destination);
        }
    }
    reply.integer(i64::from(is_member));
    Ok(())
}

pub(super) const SCARD: Command = Command {
    name: "scard",
    summary: "Returns the number of members of a set.",
    since: "1.0.0",
    group: Group::Set,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    run: Run::Read(scard),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1)],
    args: &[Argument::key("key")],
    ..Command::DEFAULT
};

fn scard(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let set = context.collection::<Set>(args.word())?;
    let set = set.as_deref();
    reply.count(set.map_or(0, Set::len));
    Ok(())
}

pub(super) const SISMEMBER: Command = Command {
    name: "sismember",
    summary: "Tells whether a member is in a set.",
    arity: Arity::Exactly(3),
    run: Run::Read(sismember),
    args: &[Argument::key("key"), Argument::string("member")],
    elements: Some(ElementWords::REST),
    ..SCARD
};

fn sismember(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let set = context.collection::<Set>(args.word())?;
    let set = set.as_deref();
    let member = args.word();
    reply.integer(set.is_some_and(|set| set.contains(member)).into());
    Ok(())
}

pub(super) const SMISMEMBER: Command = Command {
    name: "smismember",
    summary: "Tells of each of several members whether it is in a set.",
    since: "6.2.0",
    complexity: "O(n) for n members given",
    arity: Arity::AtLeast(3),
    run: Run::Read(smismember),
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key"), Argument::string("member").multiple()],
    elements: Some(ElementWords::REST),
    ..SCARD
};

fn smismember(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let set = context.collection::<Set>(args.word())?;
    let set = set.as_deref();
    let members = args.take_rest();
    reply.array(members.len());
    for member in members {
        reply.integer(set.is_some_and(|set| set.contains(member)).into());
    }
    Ok(())
}

pub(super) const SMEMBERS: Command = Command {
    name: "smembers",
    summary: "Returns all members of a set.",
    complexity: "O(n) for n members",
    run: Run::Read(smembers),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).accesses()],
    tips: &["nondeterministic_output_order"],
    ..SCARD
};

fn smembers(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let Some(set) = context.collection::<Set>(args.word())? else {
        reply.set(0);
        return Ok(());
    };
    context.weigh(set.len())?;
    reply.set(set.len());
    set.for_each(|member| reply_member(reply, member));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::{Scenario, check};

    #[test]
    fn members_come_and_go() {
        check(
            "
            > SADD s 3 1 2 3
            :3
            > SADD s 3
            :0
            > SCARD s
            :3
            > SMEMBERS s
            *3 $1 1 $1 2 $1 3
            3> SMEMBERS s
            ~3 $1 1 $1 2 $1 3
            > SISMEMBER s 2
            :1
            > SISMEMBER s 02
            :0
            > SMISMEMBER s 1 x 3
            *3 :1 :0 :1
            > SREM s 1 x 2
            :2
            > TYPE s
            +set
            > SREM s 3
            :1
            > EXISTS s
            :0
            > SREM s 3
            :0
            > SCARD s
            :0
            3> SMEMBERS s
            ~0
            > SMISMEMBER s 1 2
            *2 :0 :0
            ",
        );
    }

    #[test]
    fn encodings_follow_the_members() {
        let mut scenario = Scenario::new();
        scenario.play(
            "
            > SADD s 1 2
            :2
            > OBJECT ENCODING s
            $6 intset
            > SADD s a
            :1
            > OBJECT ENCODING s
            $8 listpack
            > SMEMBERS s
            *3 $1 1 $1 2 $1 a
            > SREM s a
            :1
            > OBJECT ENCODING s
            $8 listpack
            > SADD s a_member_of_more_than_sixty-four_bytes_is_too_long_for_a_listpack_
            :1
            > OBJECT ENCODING s
            $9 hashtable
            > SREM s a_member_of_more_than_sixty-four_bytes_is_too_long_for_a_listpack_
            :1
            > OBJECT ENCODING s
            $9 hashtable
            > COPY s t
            :1
            > SADD t 5
            :1
            > SCARD s
            :2
            ",
        );
        let repeated = ["x"; 129].join(" ");
        scenario.play(&format!("> SADD r {repeated}\n:1\n> OBJECT ENCODING r\n$9 hashtable"));
        let integers: Vec<String> = (0..512).map(|integer| integer.to_string()).collect();
        let integers = integers.join(" ");
        scenario.play(&format!("> SADD i {integers}\n:512\n> OBJECT ENCODING i\n$6 intset"));
        scenario.play("> SADD i 512\n:1\n> OBJECT ENCODING i\n$9 hashtable\n> SISMEMBER i 77\n:1");
    }

    #[test]
    fn moving_from_set_to_set() {
        check(
            "
            > SADD a 1 x
            :2
            > SMOVE a b 1
            :1
            > SMOVE a b 1
            :0
            > SMEMBERS b
            *1 $1 1
            > SMOVE a a x
            :1
            > SMOVE a a y
            :0
            > SMOVE a b x
            :1
            > EXISTS a
            :0
            > SET text v
            +OK
            > SMOVE a text x
            :0
            > SMOVE b text x
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SMOVE text b x
            -WRONGTYPE Operation against a key holding the wrong kind of value
            ",
        );
    }

    #[test]
    fn wrong_types_and_wrong_arity_are_refused() {
        check(
            "
            > SET text v
            +OK
            > SADD text 1
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SREM text 1
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SCARD text
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SMEMBERS text
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SADD s 1
            :1
            > GET s
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SADD s
            -ERR wrong number of arguments for 'sadd' command
            > SMOVE s t
            -ERR wrong number of arguments for 'smove' command
            ",
        );
    }
}
