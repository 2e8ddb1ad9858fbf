//! How many members differences, intersections and unions have, without the members.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::{Element, hyperloglog::HyperLogLogUnion};

use super::combine::{SDIFF, borrowed, by_size, lookups, read_sets, total, without_others};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, KeySpec, Run},
    context::ReadContext,
    value::{Layout, Set},
};

const NUMKEYS: Argument = Argument::integer("numkeys");
const KEYS: Argument = Argument::key("key").multiple();
const LIMIT: Argument = Argument::integer("limit").after("LIMIT").optional();

pub(super) const SINTERCARD: Command = Command {
    name: "sintercard",
    summary: "Returns how many members are in all of the sets.",
    since: "7.0.0",
    complexity: "O(n × m) for n members of the smallest of m sets",
    arity: Arity::AtLeast(3),
    run: Run::Read(sintercard),
    keys: &[KeySpec::at(1).counted().accesses()],
    args: &[NUMKEYS, KEYS, LIMIT],
    tips: &[],
    ..SDIFF
};

pub(super) const SDIFFCARD: Command = Command {
    name: "sdiffcard",
    summary: "Returns how many members of the first set are in none of the others.",
    since: "8.10.0",
    complexity: "O(n) for n members in all sets",
    run: Run::Read(sdiffcard),
    ..SINTERCARD
};

pub(super) const SUNIONCARD: Command = Command {
    name: "sunioncard",
    summary: "Returns how many members are in any of the sets, or estimates that.",
    since: "8.10.0",
    complexity: "O(n) for n members in all sets",
    run: Run::Read(sunioncard),
    args: &[NUMKEYS, KEYS, Argument::word("approx", "APPROX").optional(), LIMIT],
    ..SINTERCARD
};

/// The arguments of the family.
struct Request<'a> {
    keys: &'a [&'a [u8]],
    /// The count at which counting ends.
    limit: usize,
    /// Whether an estimate will do.
    approximates: bool,
}

impl<'a> Request<'a> {
    /// Reads `numkeys key … [LIMIT limit]`, and `[APPROX]` if the command has it.
    fn read(args: &mut Args<'a>, has_approx: bool) -> Result<Self, CommandError> {
        let count = CommandError::text("ERR numkeys should be greater than 0");
        let count = args.integer_in(1..=i64::MAX, count);
        args.check()?;
        if count > args.remaining() as i64 {
            return Err(CommandError::text("ERR Number of keys can't be greater than number of args"));
        }
        let mut request = Self { keys: args.take(count as usize), limit: usize::MAX, approximates: false };
        while !args.is_empty() {
            if args.token_with("LIMIT", 1) {
                let limit = args.integer_in(0..=i64::MAX, CommandError::text("ERR LIMIT can't be negative"));
                args.check()?;
                request.limit = if limit == 0 { usize::MAX } else { limit as usize };
            } else if has_approx && args.token("APPROX") {
                request.approximates = true;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(request)
    }
}

fn sintercard(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let request = Request::read(args, false)?;
    let sets = read_sets(context, request.keys)?;
    let sets = borrowed(&sets);
    context.weigh(lookups(&sets))?;
    reply.count(intersection_len(&sets, request.limit));
    Ok(())
}

fn sdiffcard(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let request = Request::read(args, false)?;
    let sets = read_sets(context, request.keys)?;
    let sets = borrowed(&sets);
    context.weigh(total(&sets))?;
    reply.count(difference_len(&sets, context.layout(), request.limit));
    Ok(())
}

fn sunioncard(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let request = Request::read(args, true)?;
    let sets = read_sets(context, request.keys)?;
    let sets: Vec<&Set> = borrowed(&sets).into_iter().flatten().collect();
    let members = sets.iter().map(|set| set.len()).sum();
    // The members of a single set are counted already.
    if sets.len() > 1 {
        context.weigh(members)?;
    }
    reply.count(match request.approximates && sets.len() > 1 {
        true => estimated_union_len(&sets, request.limit),
        false => union_len(sets, context.layout(), request.limit),
    });
    Ok(())
}

/// How many members of a set count; counts no further than `limit`.
fn count_members(set: &Set, limit: usize, counts: impl Fn(Element<'_>) -> bool) -> usize {
    let (mut cursor, mut found) = (0, 0);
    loop {
        cursor = set.scan(cursor, |member| found += usize::from(counts(member)));
        if cursor == 0 || found >= limit {
            return found.min(limit);
        }
    }
}

/// How many members are in all sets; counts no further than `limit`.
fn intersection_len(sets: &[Option<&Set>], limit: usize) -> usize {
    let Some((smallest, others)) = by_size(sets) else { return 0 };
    count_members(smallest, limit, |member| others.iter().all(|other| other.contains_element(member)))
}

/// How many members of the first set are in no other; counts no further than `limit`.
fn difference_len(sets: &[Option<&Set>], layout: Layout<'_>, limit: usize) -> usize {
    without_others(sets, layout, |first, is_left| count_members(first, limit, is_left)).unwrap_or(0)
}

/// How many members are in any of the sets; counts no further than `limit`.
fn union_len(mut sets: Vec<&Set>, layout: Layout<'_>, limit: usize) -> usize {
    /// Sets of which each member is looked for in those before: with more, a copy of all members is faster.
    const LOOKED_UP_MAX: usize = 6;
    if sets.len() > LOOKED_UP_MAX {
        let mut union = Set::default();
        for set in sets {
            let mut cursor = 0;
            loop {
                cursor = set.scan(cursor, |member| {
                    union.insert_element(member, layout);
                });
                if union.len() >= limit {
                    return limit;
                }
                if cursor == 0 {
                    break;
                }
            }
        }
        return union.len();
    }
    sets.sort_by_key(|set| std::cmp::Reverse(set.len()));
    let mut found = sets.first().map_or(0, |largest| largest.len());
    for at in 1..sets.len() {
        if found >= limit {
            break;
        }
        let before = &sets[..at];
        let is_new = |member: Element<'_>| !before.iter().any(|set| set.contains_element(member));
        found += count_members(sets[at], limit - found, is_new);
    }
    found.min(limit)
}

/// An estimate by HyperLogLog of how many members are in any of the sets, with a standard error of 0.81 %, no larger
/// than `limit`.
fn estimated_union_len(sets: &[&Set], limit: usize) -> usize {
    let mut union = HyperLogLogUnion::default();
    for set in sets {
        set.for_each(|member| match member {
            Element::Integer(integer) => union.add_element(itoa::Buffer::new().format(integer).as_bytes()),
            Element::String(text) => union.add_element(text),
        });
        if union.estimate() >= limit as u64 {
            return limit;
        }
    }
    union.estimate() as usize
}

#[cfg(test)]
mod tests {
    use dunlin_resp::Protocol;

    use crate::transcript::{Scenario, check};

    #[test]
    fn cardinalities_of_small_sets() {
        check(
            "
            > SADD a 1 2 3 4
            :4
            > SADD b 2 3 x
            :3
            > SADD c 3 4
            :2
            > SINTERCARD 2 a b
            :2
            > SINTERCARD 2 a b LIMIT 1
            :1
            > SINTERCARD 2 a b LIMIT 0
            :2
            > SINTERCARD 2 a missing
            :0
            > SDIFFCARD 2 a b
            :2
            > SDIFFCARD 3 a b c
            :1
            > SDIFFCARD 2 a b LIMIT 1
            :1
            > SDIFFCARD 1 a LIMIT 9
            :4
            > SDIFFCARD 2 missing a
            :0
            > SDIFFCARD 2 a missing
            :4
            > SDIFFCARD 2 a a
            :0
            > SUNIONCARD 3 a b c
            :5
            > SUNIONCARD 3 c missing b LIMIT 3
            :3
            > SUNIONCARD 3 c missing b limit 9
            :4
            > SUNIONCARD 1 a LIMIT 3
            :3
            > SUNIONCARD 2 missing missing
            :0
            > SUNIONCARD 3 a b c APPROX
            :5
            3> SUNIONCARD 3 a b c LIMIT 2 APPROX
            :2
            > SUNIONCARD 1 a APPROX
            :4
            > SUNIONCARD 1 missing APPROX
            :0
            ",
        );
    }

    #[test]
    fn cardinalities_refuse_mistakes() {
        check(
            "
            > SET text v
            +OK
            > SADD a 1
            :1
            > SUNIONCARD 2 a text
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SDIFFCARD 2 missing text
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SINTERCARD 0 a
            -ERR numkeys should be greater than 0
            > SINTERCARD x a
            -ERR numkeys should be greater than 0
            > SUNIONCARD 0 a
            -ERR numkeys should be greater than 0
            > SINTERCARD 2 a
            -ERR Number of keys can't be greater than number of args
            > SINTERCARD 1 a LIMIT
            -ERR syntax error
            > SINTERCARD 1 a LIMIT -1
            -ERR LIMIT can't be negative
            > SINTERCARD 1 a LIMIT x
            -ERR LIMIT can't be negative
            > SINTERCARD 1 a OTHER 1
            -ERR syntax error
            > SDIFFCARD 1 a APPROX
            -ERR syntax error
            > SUNIONCARD 1 a APPROX LIMIT
            -ERR syntax error
            > SUNIONCARD 1
            -ERR wrong number of arguments for 'sunioncard' command
            ",
        );
    }

    /// The integer that a command replies.
    fn count(scenario: &mut Scenario, command: &str) -> usize {
        let reply = String::from_utf8(scenario.reply(command, Protocol::Resp2)).expect("text");
        reply.trim().strip_prefix(':').and_then(|count| count.parse().ok()).expect("an integer")
    }

    /// Sets with the members of `prefix` and every multiple of a number, below 3,000.
    fn of_multiples(prefix: &str) -> (Scenario, Vec<usize>) {
        let (mut scenario, steps) = (Scenario::new(), vec![2, 3, 5, 7, 11, 13, 17, 19]);
        for step in &steps {
            let members: Vec<String> =
                (0..3000).step_by(*step).map(|member| format!("{prefix}{member}")).collect();
            scenario.reply(&format!("SADD s{step} {}", members.join(" ")), Protocol::Resp2);
        }
        (scenario, steps)
    }

    #[test]
    fn cardinalities_of_large_sets_are_those_of_a_model() {
        for prefix in ["", "m"] {
            let (mut scenario, steps) = of_multiples(prefix);
            for many in 1..=steps.len() {
                let keys: Vec<String> = steps[..many].iter().map(|step| format!("s{step}")).collect();
                let keys = format!("{many} {}", keys.join(" "));
                let is_multiple =
                    |number: &usize, steps: &[usize]| steps.iter().any(|step| number.is_multiple_of(*step));
                let union = (0..3000).filter(|number| is_multiple(number, &steps[..many])).count();
                let left =
                    (0..3000).step_by(2).filter(|number| !is_multiple(number, &steps[1..many])).count();
                assert_eq!(count(&mut scenario, &format!("SUNIONCARD {keys}")), union);
                assert_eq!(count(&mut scenario, &format!("SDIFFCARD {keys}")), left);
                for limit in [1, 700, union - 1, union, union + 1] {
                    let expected = union.min(limit);
                    assert_eq!(count(&mut scenario, &format!("SUNIONCARD {keys} LIMIT {limit}")), expected);
                    let expected = left.min(limit);
                    assert_eq!(count(&mut scenario, &format!("SDIFFCARD {keys} LIMIT {limit}")), expected);
                }
                let estimate = count(&mut scenario, &format!("SUNIONCARD {keys} APPROX"));
                assert!(estimate.abs_diff(union) * 100 <= 4 * union, "{estimate} is no estimate of {union}");
                assert_eq!(count(&mut scenario, &format!("SUNIONCARD {keys} APPROX LIMIT 500")), 500);
            }
        }
    }

    #[test]
    fn cardinalities_of_large_sets_are_offloaded() {
        let (mut scenario, _) = of_multiples("m");
        scenario.caller.visits_max = Some(1000);
        for command in ["SUNIONCARD 2 s2 s3", "SUNIONCARD 2 s2 s3 APPROX", "SDIFFCARD 2 s2 s3"] {
            scenario.reply(command, Protocol::Resp2);
            assert!(scenario.offloaded.take().is_some(), "{command}");
        }
        assert_eq!(count(&mut scenario, "SUNIONCARD 1 s2"), 1500);
        assert!(scenario.offloaded.is_none(), "a single set is counted");
    }
}
