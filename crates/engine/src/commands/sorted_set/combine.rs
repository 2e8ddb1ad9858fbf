//! Differences, intersections and unions of sorted sets, and of sets whose members score 1.

use dunlin_resp::{ReplyBuffer, number::write_double};
use dunlin_structures::Element;

use super::{MemberReply, range::store};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ReadContext, WriteContext},
    keyspace::EntryRef,
    value::{Gathered, Layout, Object, ObjectRef, Set, SortedSet, parse_float},
};

const NUMKEYS: Argument = Argument::integer("numkeys");
const WEIGHTS: Argument = Argument::integer("weight").after("WEIGHTS").optional().multiple();
const AGGREGATE: Argument = Argument::one_of(
    "aggregate",
    &[
        Argument::word("sum", "SUM"),
        Argument::word("min", "MIN"),
        Argument::word("max", "MAX"),
        Argument::word("count", "COUNT").since("8.8.0"),
    ],
)
.after("AGGREGATE")
.optional();
const WITHSCORES: Argument = Argument::word("withscores", "WITHSCORES").optional();

pub(super) const ZUNION: Command = Command {
    name: "zunion",
    summary: "Returns the members that are in any of the sorted sets.",
    since: "6.2.0",
    group: Group::SortedSet,
    complexity: "O(n + m log m) for n members in all sorted sets and m in the result",
    arity: Arity::AtLeast(3),
    run: Run::Read(zunion),
    keys: &[KeySpec::at(1).counted().accesses()],
    args: &[NUMKEYS, Argument::key("key").multiple(), WEIGHTS, AGGREGATE, WITHSCORES],
    ..Command::DEFAULT
};

pub(super) const ZUNIONSTORE: Command = Command {
    name: "zunionstore",
    summary: "Stores the members that are in any of the sorted sets.",
    since: "2.0.0",
    arity: Arity::AtLeast(4),
    run: Run::Write(zunionstore),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).overwrite().updates(), KeySpec::at(2).counted().accesses()],
    args: &[
        Argument::key("destination"),
        NUMKEYS,
        Argument::key("key").key_spec(1).multiple(),
        WEIGHTS,
        AGGREGATE,
    ],
    ..ZUNION
};

pub(super) const ZINTER: Command = Command {
    name: "zinter",
    summary: "Returns the members that are in all of the sorted sets.",
    complexity: "O(n k + m log m) for n members in the smallest of k sorted sets and m in the result",
    run: Run::Read(zinter),
    ..ZUNION
};

pub(super) const ZINTERSTORE: Command = Command {
    name: "zinterstore",
    summary: "Stores the members that are in all of the sorted sets.",
    complexity: ZINTER.complexity,
    run: Run::Write(zinterstore),
    ..ZUNIONSTORE
};

pub(super) const ZINTERCARD: Command = Command {
    name: "zintercard",
    summary: "Returns how many members are in all of the sorted sets.",
    since: "7.0.0",
    complexity: "O(n k) for n members in the smallest of k sorted sets",
    run: Run::Read(zintercard),
    args: &[NUMKEYS, Argument::key("key").multiple(), Argument::integer("limit").after("LIMIT").optional()],
    ..ZUNION
};

pub(super) const ZDIFF: Command = Command {
    name: "zdiff",
    summary: "Returns the members of the first sorted set that are in none of the others.",
    complexity: "O(n k + m log m) for n members in the first of k sorted sets and m in the result",
    run: Run::Read(zdiff),
    args: &[NUMKEYS, Argument::key("key").multiple(), WITHSCORES],
    ..ZUNION
};

pub(super) const ZDIFFSTORE: Command = Command {
    name: "zdiffstore",
    summary: "Stores the members of the first sorted set that are in none of the others.",
    since: "6.2.0",
    complexity: ZDIFF.complexity,
    run: Run::Write(zdiffstore),
    args: &[Argument::key("destination"), NUMKEYS, Argument::key("key").key_spec(1).multiple()],
    ..ZUNIONSTORE
};

/// The operation on several sorted sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// The aggregate of the scores of a member that is in several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
    /// The sum of the weights, whatever the scores.
    Count,
}

impl Aggregate {
    /// The share of an input in the aggregate; it may be no number.
    fn share(self, weight: f64, score: f64) -> f64 {
        match self {
            Self::Count => weight,
            Self::Sum | Self::Min | Self::Max => weight * score,
        }
    }

    fn of(self, present: f64, score: f64) -> f64 {
        match self {
            // Opposite infinities are 0 together, as in Redis.
            Self::Sum | Self::Count => or_zero(present + score),
            Self::Min => {
                if score < present {
                    score
                } else {
                    present
                }
            }
            Self::Max => {
                if score > present {
                    score
                } else {
                    present
                }
            }
        }
    }
}

/// A score, or 0 if arithmetic gave none.
fn or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// A sorted set, or a set.
#[derive(Debug, Clone, Copy)]
enum Source<'a> {
    Missing,
    Set(&'a Set),
    SortedSet(&'a SortedSet),
}

/// An input and the factor of its scores.
#[derive(Debug, Clone, Copy)]
struct Input<'a> {
    source: Source<'a>,
    weight: f64,
}

/// The value of an entry that is a set of either kind, or missing.
fn either_set(entry: Option<EntryRef<'_>>) -> Result<Option<ObjectRef<'_>>, CommandError> {
    let Some(entry) = entry else { return Ok(None) };
    let object = entry.object().ok_or(CommandError::WrongType)?;
    match &*object {
        Object::Set(_) | Object::SortedSet(_) => Ok(Some(object)),
        _ => Err(CommandError::WrongType),
    }
}

impl<'a> Source<'a> {
    /// The contents of [`either_set`].
    fn of(object: Option<&'a Object>) -> Self {
        match object {
            Some(Object::Set(set)) => Self::Set(set),
            Some(Object::SortedSet(set)) => Self::SortedSet(set),
            _ => Self::Missing,
        }
    }

    fn len(self) -> usize {
        match self {
            Self::Missing => 0,
            Self::Set(set) => set.len(),
            Self::SortedSet(set) => set.len(),
        }
    }

    fn score(self, member: Element<'_>) -> Option<f64> {
        match self {
            Self::Missing => None,
            Self::Set(set) => set.contains_element(member).then_some(1.0),
            Self::SortedSet(set) => set.score_of_element(member),
        }
    }

    fn for_each(self, mut visit: impl FnMut(Element<'a>, f64)) {
        match self {
            Self::Missing => {}
            Self::Set(set) => set.for_each(|member| visit(member, 1.0)),
            Self::SortedSet(set) => set.for_each(visit),
        }
    }
}

/// The options behind the keys.
#[derive(Debug)]
struct Options {
    /// A factor for each input, if they were given.
    weights: Option<Vec<f64>>,
    aggregate: Aggregate,
    scores: bool,
}

impl Options {
    fn parse(
        args: &mut Args<'_>,
        operation: Operation,
        inputs: usize,
        stores: bool,
    ) -> Result<Self, CommandError> {
        let mut options = Self { weights: None, aggregate: Aggregate::Sum, scores: false };
        let combines_scores = operation != Operation::Difference;
        while !args.is_empty() {
            if combines_scores && args.token_with("WEIGHTS", inputs) {
                let weights = args.take(inputs).iter().map(|word| parse_float(word));
                let error = CommandError::text("ERR weight value is not a float");
                options.weights = Some(weights.collect::<Option<_>>().ok_or(error)?);
            } else if combines_scores && args.token_with("AGGREGATE", 1) {
                options.aggregate = match () {
                    () if args.token("SUM") => Aggregate::Sum,
                    () if args.token("MIN") => Aggregate::Min,
                    () if args.token("MAX") => Aggregate::Max,
                    () if args.token("COUNT") => Aggregate::Count,
                    () => return Err(CommandError::Syntax),
                };
            } else if !stores && args.token("WITHSCORES") {
                options.scores = true;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(options)
    }
}

fn zunion(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    answer(context, args, reply, Operation::Union)
}

fn zinter(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    answer(context, args, reply, Operation::Intersection)
}

fn zdiff(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    answer(context, args, reply, Operation::Difference)
}

fn zunionstore(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    combine_and_store(context, args, reply, Operation::Union, "zunionstore")
}

fn zinterstore(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    combine_and_store(context, args, reply, Operation::Intersection, "zinterstore")
}

fn zdiffstore(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    combine_and_store(context, args, reply, Operation::Difference, "zdiffstore")
}

fn answer(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    operation: Operation,
) -> CommandResult {
    let keys = parse_keys(args)?;
    let objects = read_objects(context, keys)?;
    let sources = sources_in(&objects);
    let options = Options::parse(args, operation, keys.len(), false)?;
    context.weigh(sources.iter().map(|source| source.len()).sum())?;
    let layout = context.layout();
    let result = combine(sources, &options, operation, layout).sort();
    let mut members = MemberReply::begin(reply, result.len(), options.scores);
    result.for_each(|member, score| members.member(Element::String(member), score));
    Ok(())
}

fn combine_and_store(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    operation: Operation,
    event: &'static str,
) -> CommandResult {
    let destination = args.word();
    let keys = parse_keys(args)?;
    context.check_entries(keys, |entry| either_set(Some(entry)).map(drop))?;
    let options = Options::parse(args, operation, keys.len(), true)?;
    let elements = |entries: &[Option<EntryRef<'_>>]| {
        sources_in(&objects_of(entries)).iter().map(|source| source.len()).sum()
    };
    let result = context.compute(keys, elements, |entries, layout| {
        combine(sources_in(&objects_of(entries)), &options, operation, layout).finish(layout)
    })?;
    if options.aggregate == Aggregate::Count && context.is_recorded() {
        record_members(context, destination, &result);
    }
    store(context, destination, result, event, reply);
    Ok(())
}

/// Records a result as commands that servers before Redis 8.8 know, which have no AGGREGATE COUNT.
fn record_members(context: &mut WriteContext<'_>, destination: &[u8], result: &SortedSet) {
    /// Members of one ZADD.
    const MEMBERS_MAX: usize = 512;
    if context.find(destination).is_some() {
        context.propagate(&[b"DEL", destination]);
    }
    let (mut scores, mut members) = (Vec::new(), Vec::new());
    result.for_each(|member, score| {
        let mut text = Vec::new();
        write_double(&mut text, score);
        scores.push(text);
        members.push(member.text().to_vec());
    });
    for (scores, members) in scores.chunks(MEMBERS_MAX).zip(members.chunks(MEMBERS_MAX)) {
        let pairs = scores.iter().zip(members).flat_map(|(score, member)| [&score[..], &member[..]]);
        let words: Vec<&[u8]> = [&b"ZADD"[..], destination].into_iter().chain(pairs).collect();
        context.propagate(&words);
    }
}

/// The values of entries that are known to be sets of either kind.
fn objects_of<'a>(entries: &[Option<EntryRef<'a>>]) -> Vec<Option<ObjectRef<'a>>> {
    entries.iter().map(|entry| either_set(*entry).unwrap_or(None)).collect()
}

fn sources_in<'o>(objects: &'o [Option<ObjectRef<'_>>]) -> Vec<Source<'o>> {
    objects.iter().map(|object| Source::of(object.as_deref())).collect()
}

fn zintercard(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let keys = parse_keys(args)?;
    let objects = read_objects(context, keys)?;
    let sources = sources_in(&objects);
    let mut limit = 0;
    while !args.is_empty() {
        if !args.token_with("LIMIT", 1) {
            return Err(CommandError::Syntax);
        }
        limit = args.integer_in(0..=i64::MAX, CommandError::text("ERR LIMIT can't be negative"));
        args.check()?;
    }
    let limit = if limit == 0 { usize::MAX } else { limit as usize };
    let smallest = sources.iter().map(|source| source.len()).min().unwrap_or(0);
    context.weigh(smallest.saturating_mul(sources.len()))?;
    let inputs = sources.into_iter().map(|source| Input { source, weight: 1.0 }).collect();
    let mut found = 0;
    intersect(by_size(inputs), Aggregate::Sum, |_, _| {
        found += 1;
        found < limit
    });
    reply.count(found);
    Ok(())
}

/// Reads `numkeys key [key …]`.
fn parse_keys<'a>(args: &mut Args<'a>) -> Result<&'a [&'a [u8]], CommandError> {
    let count = args.integer();
    args.check()?;
    if count < 1 {
        let name = String::from_utf8_lossy(args.words()[0]).to_ascii_lowercase();
        return Err(CommandError::owned(format!("ERR at least 1 input key is needed for '{name}' command")));
    }
    let keys = args.take(usize::try_from(count).unwrap_or(usize::MAX));
    args.check()?;
    Ok(keys)
}

fn read_objects<'a>(
    context: &mut ReadContext<'a>,
    keys: &[&[u8]],
) -> Result<Vec<Option<ObjectRef<'a>>>, CommandError> {
    keys.iter().map(|key| either_set(context.find(key))).collect()
}

/// The inputs from the smallest to the largest: the order in which Redis adds scores up, which
/// decides how sums are rounded.
fn by_size(mut inputs: Vec<Input<'_>>) -> Vec<Input<'_>> {
    inputs.sort_by_key(|input| input.source.len());
    inputs
}

/// The members of the result, in no order yet.
fn combine(
    sources: Vec<Source<'_>>,
    options: &Options,
    operation: Operation,
    layout: Layout<'_>,
) -> Gathered {
    let mut gathered = Gathered::new(layout);
    let weight = |number: usize| options.weights.as_ref().map_or(1.0, |weights| weights[number]);
    let inputs = sources.into_iter().enumerate();
    let inputs: Vec<Input<'_>> =
        inputs.map(|(number, source)| Input { source, weight: weight(number) }).collect();
    match operation {
        Operation::Union => {
            for Input { source, weight } in by_size(inputs) {
                source.for_each(|member, score| {
                    let score = or_zero(options.aggregate.share(weight, score));
                    gathered.add(&member.text(), |present| match present {
                        Some(present) => options.aggregate.of(present, score),
                        None => score,
                    });
                });
            }
        }
        Operation::Intersection => intersect(by_size(inputs), options.aggregate, |member, score| {
            gathered.add(&member.text(), |_| score);
            true
        }),
        Operation::Difference => {
            let (first, others) = inputs.split_first().expect("there is a key");
            first.source.for_each(|member, score| {
                if others.iter().all(|other| other.source.score(member).is_none()) {
                    gathered.add(&member.text(), |_| score);
                }
            });
        }
    }
    gathered
}

/// Visits the members that are in all inputs, until `visit` has enough.
fn intersect<'a>(
    inputs: Vec<Input<'a>>,
    aggregate: Aggregate,
    mut visit: impl FnMut(Element<'a>, f64) -> bool,
) {
    let (smallest, others) = inputs.split_first().expect("there is a key");
    let mut goes_on = true;
    smallest.source.for_each(|member, score| {
        if !goes_on {
            return;
        }
        let mut total = or_zero(aggregate.share(smallest.weight, score));
        for other in others {
            let Some(score) = other.source.score(member) else { return };
            total = aggregate.of(total, aggregate.share(other.weight, score));
        }
        goes_on = visit(member, total);
    });
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn combining() {
        check(
            "
            > ZADD a 1 x 2 y 3 z
            :3
            > ZADD b 10 y 20 z 30 w
            :3
            > SADD s z w 7
            :3
            > ZUNION 2 a b WITHSCORES
            *8 $1 x $1 1 $1 y $2 12 $1 z $2 23 $1 w $2 30
            3> ZUNION 2 a s WEIGHTS 2 -1 AGGREGATE MIN WITHSCORES
            *5 *2 $1 7 ,-1 *2 $1 w ,-1 *2 $1 z ,-1 *2 $1 x ,2 *2 $1 y ,4
            > ZINTER 2 a b AGGREGATE MAX WITHSCORES
            *4 $1 y $2 10 $1 z $2 20
            > ZUNION 3 a b s AGGREGATE COUNT WITHSCORES
            *10 $1 7 $1 1 $1 x $1 1 $1 w $1 2 $1 y $1 2 $1 z $1 3
            3> ZUNION 3 a b s WEIGHTS 1 10 0.5 AGGREGATE count WITHSCORES
            *5 *2 $1 7 ,0.5 *2 $1 x ,1 *2 $1 w ,10.5 *2 $1 y ,11 *2 $1 z ,11.5
            > ZINTER 2 a b WEIGHTS 2 3 AGGREGATE COUNT WITHSCORES
            *4 $1 y $1 5 $1 z $1 5
            > ZINTER 3 a b s
            *1 $1 z
            > ZINTER 2 a missing
            *0
            > ZDIFF 2 a s WITHSCORES
            *4 $1 x $1 1 $1 y $1 2
            > ZINTERCARD 2 a b
            :2
            > ZINTERCARD 2 a b LIMIT 1
            :1
            > ZUNIONSTORE d 2 a b WEIGHTS 1 0
            :4
            > ZRANGE d 0 -1 WITHSCORES
            *8 $1 w $1 0 $1 x $1 1 $1 y $1 2 $1 z $1 3
            > ZINTERSTORE a 2 a b
            :2
            > ZDIFFSTORE a 2 a a
            :0
            > EXISTS a
            :0
            > ZADD i inf m
            :1
            > ZADD j -inf m
            :1
            > ZUNION 2 i j WITHSCORES
            *2 $1 m $1 0
            > ZUNION 1 i WEIGHTS 0 WITHSCORES
            *2 $1 m $1 0
            > ZUNION 1 a WEIGHTS -0 WITHSCORES
            *0
            > ZUNION 1 b WEIGHTS -0 WITHSCORES
            *6 $1 w $2 -0 $1 y $2 -0 $1 z $2 -0
            ",
        );
    }

    #[test]
    fn mistakes() {
        check(
            "
            > SET text v
            +OK
            > ZUNION 0 a
            -ERR at least 1 input key is needed for 'zunion' command
            > ZUNION x a
            -ERR value is not an integer or out of range
            > ZUNION 2 a
            -ERR syntax error
            > ZUNION 1 text NONSENSE
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > ZUNION 1 a NONSENSE
            -ERR syntax error
            > ZUNION 1 a WEIGHTS x
            -ERR weight value is not a float
            > ZUNION 1 a AGGREGATE AVERAGE
            -ERR syntax error
            > ZDIFF 1 a WEIGHTS 1
            -ERR syntax error
            > ZUNIONSTORE d 1 a WITHSCORES
            -ERR syntax error
            > ZINTERCARD 1 a LIMIT -1
            -ERR LIMIT can't be negative
            > ZINTERCARD 1 a WITHSCORES
            -ERR syntax error
            ",
        );
    }
}
