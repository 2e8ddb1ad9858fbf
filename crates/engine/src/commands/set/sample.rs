//! Members by chance.

use dunlin_resp::{Protocol, ReplyBuffer, SharedSlice};

use super::{reply_member, set_of};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    commands::draw::parse_count,
    context::{ExpiryChange, ReadContext, WriteContext},
    keyspace::EntryRef,
    notify::EventClass,
    propagation::removal_word,
    random::{Random, Selection},
    value::{Layout, Places, Set},
};

pub(super) const SPOP: Command = Command {
    name: "spop",
    summary: "Removes and returns members of a set, chosen at random.",
    since: "1.0.0",
    group: Group::Set,
    complexity: "O(count)",
    arity: Arity::AtLeast(2),
    run: Run::Write(spop),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().accesses().deletes()],
    args: &[Argument::key("key"), Argument::integer("count").optional().since("3.2.0")],
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

fn spop(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    if !args.is_empty() {
        return pop_many(context, key, args, reply);
    }
    let mut random = Random::new(context.random());
    let layout = context.layout();
    let popped = context.update(key, |set: &mut Set| {
        let member = set.random(&mut random).expect("a stored set has members").text().into_owned();
        set.remove(&member);
        set.settle(layout);
        (member, true)
    })?;
    match popped {
        Some(member) => {
            context.propagate(&[b"SREM", key, &member]);
            reply.bulk(&member);
            context.notify(EventClass::Set, "spop", key);
            context.notify_if_gone(key);
        }
        None => reply.null(),
    }
    Ok(())
}

fn pop_many(
    context: &mut WriteContext<'_>,
    key: &[u8],
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    if args.remaining() > 1 {
        return Err(CommandError::Syntax);
    }
    let not_positive = CommandError::text("ERR value is out of range, must be positive");
    let count = args.integer_in(0..=i64::MAX, not_positive) as usize;
    args.finish()?;
    if !context.is_offloaded() && context.collection::<Set>(key)?.is_none_or(|_| count == 0) {
        reply.set(0);
        return Ok(());
    }
    let mut random = Random::new(context.random());
    let protocol = reply.protocol();
    let visits = |entry: Option<EntryRef<'_>>| entry.and_then(set_of).map_or(0, |set| visits(&set, count));
    let popped = context.compute_offloaded(key, visits, |entry, layout| {
        let set = entry.and_then(set_of)?;
        Some(Popped::of(&set, count, &mut random, protocol, layout))
    })?;
    if let Some(popped) = popped.flatten() {
        return popped.finish(context, key, reply);
    }
    let Some(set) = context.collection::<Set>(key)? else { return Ok(()) };
    if count >= set.len() {
        let popped = set.len();
        reply.set(popped);
        set.for_each(|member| reply_member(reply, member));
        context.count_changes(popped);
        remove_all(context, key);
        return Ok(());
    }
    reply.set(count);
    let mut popped = Vec::with_capacity(count);
    set.sample(count, &mut random, |member| {
        reply_member(reply, member);
        popped.push(member.text().into_owned());
    });
    let layout = context.layout();
    context.edit(key, |set: &mut Set| {
        for member in &popped {
            set.remove(member);
        }
        set.settle(layout);
    })?;
    context.count_changes(popped.len());
    if context.is_recorded() {
        record_removal(context, key, &popped);
    }
    context.notify(EventClass::Set, "spop", key);
    Ok(())
}

/// Removes a set of which all members are popped.
fn remove_all(context: &mut WriteContext<'_>, key: &[u8]) {
    context.remove(key);
    context.propagate(&[removal_word(context.policy().lazyfree_server_del), key]);
    context.notify(EventClass::Set, "spop", key);
    context.notify(EventClass::Generic, "del", key);
}

/// How many members an offloaded pop of `count` of them visits.
fn visits(set: &Set, count: usize) -> usize {
    /// Drawing a member takes as long as coming upon this many: each draw waits for memory three times.
    const DRAWN: usize = 8;
    match count.min(set.len()) {
        _ if !set.is_in_table() => 0,
        popped if is_copied(set, popped) => popped,
        popped => popped.saturating_mul(DRAWN),
    }
}

/// Whether, if `popped` members go, those that stay are copied instead of removing the popped ones.
fn is_copied(set: &Set, popped: usize) -> bool {
    /// Members that stay for one that goes, at most.
    const STAYING_MAX: usize = 8;
    set.len() - popped <= popped.saturating_mul(STAYING_MAX)
}

/// The members that a set is to be left with.
enum Left {
    /// The members that stay, which were copied.
    Copied(Set),
    /// All but those at some places.
    AllBut(Places),
}

/// Members that an offloaded command popped from a view of a set.
struct Popped {
    count: usize,
    /// All of them, unless the set goes with them.
    members: Set,
    left: Left,
    reply: Vec<SharedSlice>,
}

impl Popped {
    fn of(set: &Set, count: usize, random: &mut Random, protocol: Protocol, layout: Layout<'_>) -> Self {
        let mut reply = ReplyBuffer::default();
        reply.set_protocol(protocol);
        let popped = count.min(set.len());
        reply.set(popped);
        let mut members = Set::for_members(count as u64, layout);
        let left = if count >= set.len() {
            set.for_each(|member| reply_member(&mut reply, member));
            Left::Copied(Set::default())
        } else if !is_copied(set, count) {
            set.sample(count, random, |member| {
                reply_member(&mut reply, member);
                members.insert_element(member, layout);
            });
            Left::AllBut(set.places(&members))
        } else {
            let mut rest = Set::for_members(u64::MAX, layout);
            let mut selection = Selection::new(count, set.len());
            set.for_each(|member| {
                if selection.takes(random) {
                    reply_member(&mut reply, member);
                    members.insert_element(member, layout);
                } else {
                    rest.insert_element(member, layout);
                }
            });
            Left::Copied(rest)
        };
        Self { count: popped, members, left, reply: reply.take_pieces() }
    }

    /// Leaves the rest under the key that all were found under.
    fn finish(self, context: &mut WriteContext<'_>, key: &[u8], reply: &mut ReplyBuffer) -> CommandResult {
        reply.append_pieces(&self.reply);
        context.count_changes(self.count);
        match self.left {
            Left::Copied(rest) if rest.is_empty() => {
                remove_all(context, key);
                return Ok(());
            }
            Left::Copied(rest) => context.set_collection(key, rest, ExpiryChange::Keep),
            Left::AllBut(places) => {
                context.edit(key, |set: &mut Set| set.doom(&self.members, &places))?;
                context.discard_other(places);
            }
        }
        if context.is_recorded() {
            let mut popped = Vec::with_capacity(RECORDED_MEMBERS_MAX);
            self.members.for_each(|member| {
                popped.push(member.text().into_owned());
                if popped.len() == RECORDED_MEMBERS_MAX {
                    record_removal(context, key, &popped);
                    popped.clear();
                }
            });
            record_removal(context, key, &popped);
        }
        context.discard(self.members);
        context.notify(EventClass::Set, "spop", key);
        Ok(())
    }
}

/// Members that one command of a record names.
const RECORDED_MEMBERS_MAX: usize = 1024;

/// Records that members were removed.
fn record_removal(context: &mut WriteContext<'_>, key: &[u8], members: &[Vec<u8>]) {
    for members in members.chunks(RECORDED_MEMBERS_MAX) {
        let mut words: Vec<&[u8]> = vec![b"SREM", key];
        words.extend(members.iter().map(Vec::as_slice));
        context.propagate(&words);
    }
}

pub(super) const SRANDMEMBER: Command = Command {
    name: "srandmember",
    summary: "Returns members of a set, chosen at random.",
    complexity: "O(|count|)",
    run: Run::Read(srandmember),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key"), Argument::integer("count").optional().since("2.6.0")],
    ..SPOP
};

fn srandmember(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let mut random = Random::new(context.random());
    if args.is_empty() {
        let set = context.collection::<Set>(key)?;
        let set = set.as_deref();
        match set.and_then(|set| set.random(&mut random)) {
            Some(member) => reply_member(reply, member),
            None => reply.null(),
        }
        return Ok(());
    }
    let count = parse_count(args);
    args.finish()?;
    let Some(set) = context.collection::<Set>(key)?.filter(|_| count != 0) else {
        reply.array(0);
        return Ok(());
    };
    let wanted = count.unsigned_abs() as usize;
    context.weigh(wanted)?;
    if count > 0 {
        reply.array(wanted.min(set.len()));
        set.sample(wanted, &mut random, |member| reply_member(reply, member));
    } else {
        reply.array(wanted);
        for _ in 0..wanted {
            reply_member(reply, set.random(&mut random).expect("a stored set has members"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dunlin_resp::Protocol;

    use crate::{
        offload::OffloadOutcome,
        transcript::{ConnectedHost, Scenario, check},
    };

    /// The bulk strings of a reply.
    fn bulks(scenario: &mut Scenario, command: &str) -> Vec<String> {
        let reply =
            String::from_utf8(scenario.reply(command, Protocol::Resp3)).expect("members are text here");
        let lines = reply.split("\r\n");
        lines
            .filter(|line| !line.starts_with(['*', '$', '~', '_']) && !line.is_empty())
            .map(str::to_owned)
            .collect()
    }

    fn filled(size: usize, prefix: &str) -> Scenario {
        let mut scenario = Scenario::new();
        for number in 0..size {
            scenario.play(&format!("> SADD s {prefix}{number}\n:1"));
        }
        scenario
    }

    #[test]
    fn popping_takes_every_member_once() {
        for (size, prefix) in [(20, ""), (20, "m"), (500, "m"), (300, "")] {
            for count in ["", "1", "7", "100000"] {
                let mut scenario = filled(size, prefix);
                let mut popped = BTreeSet::new();
                while popped.len() < size {
                    let some = bulks(&mut scenario, &format!("SPOP s {count}"));
                    assert!(!some.is_empty());
                    for member in some {
                        assert!(popped.insert(member), "popped twice");
                    }
                    scenario.play(&format!("> SCARD s\n:{}", size - popped.len()));
                }
                scenario.play("> EXISTS s\n:0");
            }
        }
    }

    #[test]
    fn spop_of_many_removes_each_member_once() {
        for (count, left) in [(100, 1400), (1200, 300), (1500, 0)] {
            let mut scenario = filled(1500, "m");
            scenario.caller.visits_max = Some(100);
            let line = format!("SPOP s {count}");
            assert_eq!(scenario.reply(&line, Protocol::Resp2), b"", "the answer waits");
            let offloaded = scenario.offloaded.take().expect("offloaded");
            let OffloadOutcome::Computed(computed) =
                offloaded.run(&scenario.engine, &mut scenario.worker, &ConnectedHost)
            else {
                panic!("it stores something");
            };
            scenario.play("> SCARD s\n:1500");
            scenario.computed = Some(Box::new(computed));
            let popped = bulks(&mut scenario, &line);
            assert_eq!(popped.iter().collect::<BTreeSet<_>>().len(), count, "all different");
            scenario.play(&format!("> SCARD s\n:{left}"));
            for member in popped {
                scenario.play(&format!("> SISMEMBER s {member}\n:0"));
            }
            for reaped in [false, true] {
                let keyspace = &scenario.engine.keyspace;
                assert_eq!(keyspace.used_bytes(), keyspace.usage(None).bytes(), "reaped: {reaped}");
                scenario.expire();
            }
            scenario.play(&format!("> SCARD s\n:{left}"));
        }
    }

    #[test]
    fn drawing_leaves_the_set_alone() {
        for (size, prefix) in [(20, ""), (20, "m"), (500, "m")] {
            let mut scenario = filled(size, prefix);
            for count in [1, 3, size / 2, size, size + 10] {
                let drawn = bulks(&mut scenario, &format!("SRANDMEMBER s {count}"));
                assert_eq!(drawn.len(), count.min(size));
                assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), drawn.len(), "all different");
                assert_eq!(bulks(&mut scenario, &format!("SRANDMEMBER s -{count}")).len(), count);
            }
            let drawn: BTreeSet<String> =
                bulks(&mut scenario, &format!("SRANDMEMBER s -{}", size * 20)).into_iter().collect();
            assert_eq!(drawn.len(), size, "each member has its chance");
            scenario.play(&format!("> SCARD s\n:{size}"));
        }
    }

    #[test]
    fn edges() {
        check(
            "
            > SPOP missing
            $-1
            3> SPOP missing
            _
            3> SPOP missing 3
            ~0
            > SPOP missing -1
            -ERR value is out of range, must be positive
            > SPOP missing x
            -ERR value is out of range, must be positive
            > SPOP missing 1 2
            -ERR syntax error
            > SRANDMEMBER missing
            $-1
            3> SRANDMEMBER missing 3
            *0
            > SRANDMEMBER missing x
            -ERR value is not an integer or out of range
            > SRANDMEMBER missing 1 2
            -ERR syntax error
            > SRANDMEMBER missing -9223372036854775808
            -ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807
            > SADD s 1
            :1
            3> SRANDMEMBER s -3
            *3 $1 1 $1 1 $1 1
            3> SPOP s 0
            ~0
            3> SPOP s 5
            ~1 $1 1
            > SET text v
            +OK
            > SPOP text
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SPOP text 0
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SRANDMEMBER text 0
            -WRONGTYPE Operation against a key holding the wrong kind of value
            ",
        );
    }
}
