//! Adding members and changing scores.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{
        Args, Argument, Arity, Command, CommandError, CommandResult, ElementWords, Flags, Group, KeySpec, Run,
    },
    context::WriteContext,
    notify::EventClass,
    value::{SortedSet, parse_float},
};

pub(super) const ZADD: Command = Command {
    name: "zadd",
    summary: "Adds members to a sorted set, or changes their scores; the sorted set is created where it is missing.",
    since: "1.2.0",
    group: Group::SortedSet,
    complexity: "O(log n) for each member given, with n members in the sorted set",
    arity: Arity::AtLeast(4),
    run: Run::Write(zadd),
    flags: Flags::DENY_OOM.and(Flags::FAST),
    keys: &[KeySpec::at(1).read_write().updates()],
    args: &[
        Argument::key("key"),
        Argument::one_of("condition", &[Argument::word("nx", "NX"), Argument::word("xx", "XX")])
            .optional()
            .since("3.0.2"),
        Argument::one_of("comparison", &[Argument::word("gt", "GT"), Argument::word("lt", "LT")])
            .optional()
            .since("6.2.0"),
        Argument::word("change", "CH").optional().since("3.0.2"),
        Argument::word("increment", "INCR").optional().since("3.0.2"),
        Argument::block("data", &[Argument::double("score"), Argument::string("member")]).multiple(),
    ],
    elements: Some(ElementWords::BEHIND_SCORES),
    ..Command::DEFAULT
};

pub(super) const ZINCRBY: Command = Command {
    name: "zincrby",
    summary: "Adds to the score of a member; a missing member counts from 0.",
    complexity: "O(log n) for n members",
    arity: Arity::Exactly(4),
    run: Run::Write(zincrby),
    keys: &[KeySpec::at(1).read_write().accesses().updates()],
    args: &[Argument::key("key"), Argument::double("increment"), Argument::string("member")],
    ..ZADD
};

/// Which members are added or changed, and how.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::commands) struct Conditions {
    /// Only members that are not there.
    pub(in crate::commands) new_only: bool,
    /// Only members that are there.
    pub(in crate::commands) existing_only: bool,
    /// Members that are there change only if the score grows.
    greater_only: bool,
    /// Members that are there change only if the score shrinks.
    less_only: bool,
    /// The score is added to the present one.
    increment: bool,
}

/// Counts of members by outcome.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::commands) struct AddCounts {
    /// Members that are new.
    pub(in crate::commands) added: usize,
    /// Members whose score is another one now.
    pub(in crate::commands) updated: usize,
    /// The score of the last member, if the conditions let it pass.
    score: Option<f64>,
}

impl Conditions {
    /// The score that a member gets: `None` if the conditions leave it alone.
    #[inline]
    fn decide(
        self,
        present: Option<f64>,
        score: f64,
        outcome: &mut AddCounts,
    ) -> Result<Option<f64>, CommandError> {
        outcome.score = None;
        let Some(present) = present else {
            if self.existing_only {
                return Ok(None);
            }
            outcome.added += 1;
            outcome.score = Some(score);
            return Ok(Some(score));
        };
        if self.new_only {
            return Ok(None);
        }
        let score = if self.increment { present + score } else { score };
        if score.is_nan() {
            return Err(CommandError::text("ERR resulting score is not a number (NaN)"));
        }
        if self.less_only && score >= present || self.greater_only && score <= present {
            return Ok(None);
        }
        outcome.score = Some(score);
        if score == present {
            return Ok(None);
        }
        outcome.updated += 1;
        Ok(Some(score))
    }
}

fn zadd(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    add(context, args, reply, false)
}

fn zincrby(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    add(context, args, reply, true)
}

fn add(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    increment: bool,
) -> CommandResult {
    let key = args.word();
    let mut conditions = Conditions { increment, ..Conditions::default() };
    let mut count_changes = false;
    loop {
        if args.token("NX") {
            conditions.new_only = true;
        } else if args.token("XX") {
            conditions.existing_only = true;
        } else if args.token("GT") {
            conditions.greater_only = true;
        } else if args.token("LT") {
            conditions.less_only = true;
        } else if args.token("CH") {
            count_changes = true;
        } else if args.token("INCR") {
            conditions.increment = true;
        } else {
            break;
        }
    }
    let pairs = args.take_rest();
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    let Conditions { new_only, existing_only, greater_only, less_only, increment } = conditions;
    if new_only && existing_only {
        return Err(CommandError::text("ERR XX and NX options at the same time are not compatible"));
    }
    if new_only && (greater_only || less_only) || greater_only && less_only {
        return Err(CommandError::text("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if increment && pairs.len() > 2 {
        return Err(CommandError::text("ERR INCR option supports a single increment-element pair"));
    }
    let outcome = match pairs {
        [score, member] => {
            let score = parse_float(score).ok_or(CommandError::NotFloat)?;
            put(context, key, conditions, [(score, *member)].into_iter())?
        }
        _ => {
            let scores = pairs.iter().step_by(2).map(|score| parse_float(score));
            let scores: Vec<f64> = scores.collect::<Option<_>>().ok_or(CommandError::NotFloat)?;
            let members = pairs.iter().skip(1).step_by(2).copied();
            put(context, key, conditions, scores.into_iter().zip(members))?
        }
    };
    match (increment, outcome.score) {
        (true, Some(score)) => reply.double(score),
        (true, None) => reply.null(),
        (false, _) => reply.count(outcome.added + if count_changes { outcome.updated } else { 0 }),
    }
    Ok(())
}

/// Gives members their scores, as far as the conditions allow.
pub(in crate::commands) fn put<'m>(
    context: &mut WriteContext<'_>,
    key: &[u8],
    conditions: Conditions,
    pairs: impl Iterator<Item = (f64, &'m [u8])>,
) -> Result<AddCounts, CommandError> {
    let layout = context.layout();
    let edit = |set: &mut SortedSet| {
        let (mut outcome, mut result) = (AddCounts::default(), Ok(()));
        for (score, member) in pairs {
            set.update(member, layout, |present| {
                conditions.decide(present, score, &mut outcome).unwrap_or_else(|error| {
                    result = Err(error);
                    None
                })
            });
        }
        (result.map(|()| outcome), outcome.added + outcome.updated > 0)
    };
    let outcome = if conditions.existing_only {
        context.update(key, edit)?.unwrap_or(Ok(AddCounts::default()))?
    } else {
        context.update_or_create(key, edit)??
    };
    context.count_changes(outcome.added + outcome.updated);
    if outcome.added + outcome.updated > 0 {
        let event = if conditions.increment { "zincr" } else { "zadd" };
        context.notify(EventClass::SortedSet, event, key);
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn adding_and_updating() {
        check(
            "
            > ZADD z 1 a 2 b
            :2
            > ZADD z 3 a 4 c
            :1
            > ZADD z CH 5 a 6 d
            :2
            > ZADD z NX 9 a 7 e
            :1
            > ZADD z XX CH 9 a 9 nobody
            :1
            > ZADD z GT CH 8 a 10 b
            :1
            > ZADD z LT CH 8 a 11 b
            :1
            > ZADD z GT 1 new
            :1
            > ZRANGE z 0 -1 WITHSCORES
            *12 $3 new $1 1 $1 c $1 4 $1 d $1 6 $1 e $1 7 $1 a $1 8 $1 b $2 10
            > ZADD z INCR 1.5 a
            $3 9.5
            3> ZADD z INCR 0.5 a
            ,10
            > ZADD z NX INCR 1 a
            $-1
            3> ZADD z XX INCR 1 nobody
            _
            > ZADD z XX 1 nobody
            :0
            > ZADD missing XX 1 a
            :0
            > EXISTS missing
            :0
            > ZINCRBY z 3 fresh
            $1 3
            > ZINCRBY z -1.25 fresh
            $4 1.75
            > OBJECT ENCODING z
            $8 listpack
            ",
        );
    }

    #[test]
    fn mistakes_are_told_and_change_nothing() {
        check(
            "
            > ZADD z 1 a 2
            -ERR syntax error
            > ZADD z NX CH
            -ERR syntax error
            > ZADD z NX XX 1 a
            -ERR XX and NX options at the same time are not compatible
            > ZADD z NX GT 1 a
            -ERR GT, LT, and/or NX options at the same time are not compatible
            > ZADD z GT LT 1 a
            -ERR GT, LT, and/or NX options at the same time are not compatible
            > ZADD z INCR 1 a 2 b
            -ERR INCR option supports a single increment-element pair
            > ZADD z 1 a x b
            -ERR value is not a valid float
            > ZADD z nan a
            -ERR value is not a valid float
            > EXISTS z
            :0
            > ZADD z inf a
            :1
            > ZINCRBY z -inf a
            -ERR resulting score is not a number (NaN)
            > ZSCORE z a
            $3 inf
            > SET text v
            +OK
            > ZADD text 1 a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > ZADD text XX 1 a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > ZADD text x a
            -ERR value is not a valid float
            ",
        );
    }
}
