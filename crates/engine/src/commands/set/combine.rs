//! Differences, intersections and unions.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::Element;

use super::{reply_member, set_of};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ExpiryChange, ReadContext, WriteContext},
    keyspace::EntryRef,
    notify::EventClass,
    value::{CollectionRef, Layout, Set},
};

pub(super) const SDIFF: Command = Command {
    name: "sdiff",
    summary: "Returns the members of the first set that are in none of the others.",
    since: "1.0.0",
    group: Group::Set,
    complexity: "O(n) for n members in all sets",
    arity: Arity::AtLeast(2),
    run: Run::Read(sdiff),
    keys: &[KeySpec::at(1).through(-1, 1).accesses()],
    args: &[Argument::key("key").multiple()],
    tips: &["nondeterministic_output_order"],
    ..Command::DEFAULT
};

pub(super) const SDIFFSTORE: Command = Command {
    name: "sdiffstore",
    summary: "Stores the members of the first set that are in none of the others.",
    arity: Arity::AtLeast(3),
    run: Run::Write(sdiffstore),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).overwrite().updates(), KeySpec::at(2).through(-1, 1).accesses()],
    args: &[Argument::key("destination"), Argument::key("key").key_spec(1).multiple()],
    tips: &[],
    ..SDIFF
};

pub(super) const SINTER: Command = Command {
    name: "sinter",
    summary: "Returns the members that are in all of the sets.",
    complexity: "O(n × m) for n members of the smallest of m sets",
    run: Run::Read(sinter),
    ..SDIFF
};

pub(super) const SINTERSTORE: Command = Command {
    name: "sinterstore",
    summary: "Stores the members that are in all of the sets.",
    complexity: "O(n × m) for n members of the smallest of m sets",
    run: Run::Write(sinterstore),
    keys: &[KeySpec::at(1).read_write().updates(), KeySpec::at(2).through(-1, 1).accesses()],
    ..SDIFFSTORE
};

pub(super) const SUNION: Command = Command {
    name: "sunion",
    summary: "Returns the members that are in any of the sets.",
    run: Run::Read(sunion),
    ..SDIFF
};

pub(super) const SUNIONSTORE: Command = Command {
    name: "sunionstore",
    summary: "Stores the members that are in any of the sets.",
    run: Run::Write(sunionstore),
    ..SDIFFSTORE
};

fn sdiff(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let sets = read_sets(context, args.take_rest())?;
    let sets = borrowed(&sets);
    context.weigh(total(&sets))?;
    let mut found = Vec::new();
    difference(&sets, context.layout(), |member| found.push(member));
    reply_members(reply, &found);
    Ok(())
}

fn sinter(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let sets = read_sets(context, args.take_rest())?;
    let sets = borrowed(&sets);
    context.weigh(lookups(&sets))?;
    let mut found = Vec::new();
    intersection(&sets, |member| found.push(member));
    reply_members(reply, &found);
    Ok(())
}

fn sunion(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let sets = read_sets(context, args.take_rest())?;
    let sets = borrowed(&sets);
    context.weigh(total(&sets))?;
    let built;
    let united = match sets.iter().flatten().collect::<Vec<_>>()[..] {
        [only] => *only,
        _ => {
            built = union(&sets, context.layout());
            &built
        }
    };
    reply.set(united.len());
    united.for_each(|member| reply_member(reply, member));
    Ok(())
}

fn sdiffstore(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    store(context, args, reply, "sdiffstore", total, |sets, layout| {
        let mut result = Set::default();
        difference(sets, layout, |member| {
            result.insert_element(member, layout);
        });
        result
    })
}

fn sinterstore(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    store(context, args, reply, "sinterstore", lookups, |sets, layout| {
        let mut result = Set::default();
        intersection(sets, |member| {
            result.insert_element(member, layout);
        });
        result
    })
}

fn sunionstore(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    store(context, args, reply, "sunionstore", total, union)
}

/// The sets under the keys of a command that reads.
pub(super) fn read_sets<'a>(
    context: &mut ReadContext<'a>,
    keys: &[&[u8]],
) -> Result<Vec<Option<CollectionRef<'a, Set>>>, CommandError> {
    keys.iter().map(|key| context.collection::<Set>(key)).collect()
}

pub(super) fn borrowed<'s>(sets: &'s [Option<CollectionRef<'_, Set>>]) -> Vec<Option<&'s Set>> {
    sets.iter().map(Option::as_deref).collect()
}

/// How many members there are in all sets together.
pub(super) fn total(sets: &[Option<&Set>]) -> usize {
    sets.iter().flatten().map(|set| set.len()).sum()
}

/// How many members an intersection looks for at most.
pub(super) fn lookups(sets: &[Option<&Set>]) -> usize {
    let smallest = sets.iter().map(|set| set.map_or(0, Set::len)).min().unwrap_or(0);
    smallest.saturating_mul(sets.len())
}

/// Stores the result of `combine` on the sets, and replies with its number of members.
fn store(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    name: &'static str,
    weigh: fn(&[Option<&Set>]) -> usize,
    combine: impl FnOnce(&[Option<&Set>], Layout<'_>) -> Set,
) -> CommandResult {
    let (destination, sources) = (args.word(), args.take_rest());
    context.check_entries(sources, |entry| set_of(entry).map(drop).ok_or(CommandError::WrongType))?;
    let elements = |entries: &[Option<EntryRef<'_>>]| weigh(&borrowed(&sets_of(entries)));
    let result = context
        .compute(sources, elements, |entries, layout| combine(&borrowed(&sets_of(entries)), layout))?;
    reply.count(result.len());
    if !result.is_empty() {
        context.set_collection(destination, result, ExpiryChange::Clear);
        context.notify(EventClass::Set, name, destination);
    } else if context.remove(destination) {
        context.notify(EventClass::Generic, "del", destination);
    }
    Ok(())
}

fn sets_of<'a>(entries: &[Option<EntryRef<'a>>]) -> Vec<Option<CollectionRef<'a, Set>>> {
    entries.iter().map(|entry| set_of((*entry)?)).collect()
}

fn reply_members(reply: &mut ReplyBuffer, members: &[Element<'_>]) {
    reply.set(members.len());
    for member in members {
        reply_member(reply, *member);
    }
}

/// Visits the members of the first set that are in no other.
fn difference<'a>(sets: &[Option<&'a Set>], layout: Layout<'_>, mut visit: impl FnMut(Element<'a>)) {
    without_others(sets, layout, |first, is_left| {
        first.for_each(|member| {
            if is_left(member) {
                visit(member);
            }
        });
    });
}

/// Calls `work` with the first set, if it is there, and with whether one of its members is in no other set.
pub(super) fn without_others<'a, R>(
    sets: &[Option<&'a Set>],
    layout: Layout<'_>,
    work: impl FnOnce(&'a Set, &dyn Fn(Element<'_>) -> bool) -> R,
) -> Option<R> {
    let (first, others) = sets.split_first()?;
    let first = (*first)?;
    let mut others: Vec<&Set> = others.iter().flatten().copied().collect();
    // Many small sets are one lookup when they are one set.
    let merged;
    if others.len() > 2 && others.iter().map(|other| other.len()).sum::<usize>() < first.len() {
        merged = union(&sets[1..], layout);
        others = vec![&merged];
    }
    // The largest is the likeliest to have a member.
    others.sort_by_key(|other| std::cmp::Reverse(other.len()));
    Some(work(first, &|member| !others.iter().any(|other| other.contains_element(member))))
}

/// The smallest set and the others by size, or `None` if one is missing: its intersection with
/// anything is empty.
pub(super) fn by_size<'a>(sets: &[Option<&'a Set>]) -> Option<(&'a Set, Vec<&'a Set>)> {
    let mut sets = sets.iter().copied().collect::<Option<Vec<_>>>()?;
    sets.sort_by_key(|set| set.len());
    let others = sets.split_off(1);
    Some((sets[0], others))
}

/// Visits the members that are in all sets.
fn intersection<'a>(sets: &[Option<&'a Set>], mut visit: impl FnMut(Element<'a>)) {
    let Some((smallest, others)) = by_size(sets) else { return };
    smallest.for_each(|member| {
        if others.iter().all(|other| other.contains_element(member)) {
            visit(member);
        }
    });
}

/// The members that are in any set.
pub(super) fn union(sets: &[Option<&Set>], layout: Layout<'_>) -> Set {
    let mut result = Set::default();
    for set in sets.iter().flatten() {
        set.for_each(|member| {
            result.insert_element(member, layout);
        });
    }
    result
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dunlin_resp::Protocol;

    use crate::transcript::{Scenario, check};

    #[test]
    fn combining_small_sets() {
        check(
            "
            > SADD a 1 2 3 4
            :4
            > SADD b 2 3 x
            :3
            > SADD c 3 4
            :2
            > SDIFF a b
            *2 $1 1 $1 4
            3> SDIFF a b c
            ~1 $1 1
            > SDIFF a a
            *0
            > SDIFF missing a
            *0
            > SDIFF a missing
            *4 $1 1 $1 2 $1 3 $1 4
            3> SINTER a b c
            ~1 $1 3
            > SINTER a missing
            *0
            3> SUNION a c
            ~4 $1 1 $1 2 $1 3 $1 4
            > SUNION missing missing
            *0
            ",
        );
    }

    #[test]
    fn storing_replaces_the_destination() {
        check(
            "
            > SADD a 1 2 3
            :3
            > SADD b 2 3 4
            :3
            > SET d v EX 100
            +OK
            > SINTERSTORE d a b
            :2
            > TTL d
            :-1
            > OBJECT ENCODING d
            $6 intset
            > SMEMBERS d
            *2 $1 2 $1 3
            > SUNIONSTORE a a b
            :4
            > SMEMBERS a
            *4 $1 1 $1 2 $1 3 $1 4
            > SDIFFSTORE a a b
            :1
            > SMEMBERS a
            *1 $1 1
            > SDIFFSTORE a a a
            :0
            > EXISTS a
            :0
            > SINTERSTORE d b missing
            :0
            > EXISTS d
            :0
            ",
        );
    }

    #[test]
    fn mistakes_are_told_and_change_nothing() {
        check(
            "
            > SADD a 1
            :1
            > SET text v
            +OK
            > SUNION a text
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SINTER missing text
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SDIFFSTORE a a text
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SCARD a
            :1
            > SUNIONSTORE a
            -ERR wrong number of arguments for 'sunionstore' command
            ",
        );
    }

    /// Every combination of large and small sets, of integers and of text.
    #[test]
    fn combinations_agree_with_btree_sets() {
        let ranges = [(0, 700, 2), (0, 300, 3), (600, 900, 1), (0, 40, 5)];
        let mut scenario = Scenario::new();
        let mut models: Vec<(String, BTreeSet<String>)> = Vec::new();
        for (number, &(start, end, step)) in ranges.iter().enumerate() {
            for prefix in ["", "m"] {
                let name = format!("s{prefix}{number}");
                let mut model: BTreeSet<String> =
                    (start..end).step_by(step).map(|member| format!("{prefix}{member}")).collect();
                model.extend((0..10).map(|member| member.to_string()));
                let members: Vec<&str> = model.iter().map(String::as_str).collect();
                scenario.play(&format!("> SADD {name} {}\n:{}", members.join(" "), model.len()));
                models.push((name, model));
            }
        }
        let mut reply = |command: String| -> BTreeSet<String> {
            let reply = String::from_utf8(scenario.reply(&command, Protocol::Resp2)).expect("text");
            let members: Vec<String> = reply
                .split("\r\n")
                .filter(|line| !line.starts_with(['*', '$']) && !line.is_empty())
                .map(str::to_owned)
                .collect();
            let set: BTreeSet<String> = members.iter().cloned().collect();
            assert_eq!(set.len(), members.len(), "no member twice");
            set
        };
        for (a, first) in &models {
            for (b, second) in &models {
                assert_eq!(reply(format!("SINTER {a} {b}")), first & second);
                assert_eq!(reply(format!("SUNION {a} {b}")), first | second);
                assert_eq!(reply(format!("SDIFF {a} {b}")), first - second);
            }
            let all: Vec<&str> = models.iter().map(|(name, _)| name.as_str()).collect();
            let rest = models.iter().filter(|(name, _)| name != a);
            let others = rest.clone().fold(BTreeSet::new(), |others, (_, model)| &others | model);
            let names: Vec<&str> = rest.map(|(name, _)| name.as_str()).collect();
            assert_eq!(reply(format!("SDIFF {a} {}", names.join(" "))), first - &others);
            assert_eq!(reply(format!("SDIFF {a} s3 s3 sm3")), &(first - &models[6].1) - &models[7].1);
            let common = models.iter().fold(first.clone(), |common, (_, model)| &common & model);
            assert_eq!(reply(format!("SINTER {}", all.join(" "))), common);
        }
    }
}
