//! The values of an array that match.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::{Element, glob::Glob};
use memchr::memmem;
use regex::bytes::Regex;

use super::{parse_index, range::take_limit, regular_expression, reply_index, reply_value, visits};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::ReadContext,
    value::Array,
};

/// Predicates of a command.
const PREDICATES_MAX: usize = 250;
/// Bytes of values that are looked through in the time that visiting an element takes.
const BYTES_PER_VISIT: usize = 64;

pub(super) const ARGREP: Command = Command {
    name: "argrep",
    summary: "Returns the indexes of an array, in a range, whose values match.",
    since: "8.8.0",
    group: Group::Array,
    complexity: "O(p * n) for p predicates and n bytes of values",
    arity: Arity::AtLeast(6),
    run: Run::Read(argrep),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).accesses()],
    args: &[
        Argument::key("key"),
        Argument::string("start"),
        Argument::string("end"),
        Argument::one_of(
            "predicate",
            &[
                Argument::string("string").after("EXACT"),
                Argument::string("string").after("MATCH"),
                Argument::pattern("pattern").after("GLOB"),
                Argument::pattern("pattern").after("RE"),
            ],
        )
        .multiple(),
        Argument::one_of(
            "options",
            &[
                Argument::word("and", "AND"),
                Argument::word("or", "OR"),
                Argument::integer("limit").after("LIMIT"),
                Argument::word("withvalues", "WITHVALUES"),
                Argument::word("nocase", "NOCASE"),
            ],
        )
        .multiple()
        .optional(),
    ],
    ..Command::DEFAULT
};

/// A bound of the range.
#[derive(Clone, Copy)]
enum Bound {
    First,
    Last,
    At(u64),
}

impl Bound {
    fn parse(word: &[u8]) -> Result<Self, CommandError> {
        Ok(match word {
            b"-" => Self::First,
            b"+" => Self::Last,
            _ => Self::At(parse_index(word)?),
        })
    }

    fn index(self, len: u64) -> u64 {
        match self {
            Self::First => 0,
            Self::Last => len.saturating_sub(1),
            Self::At(index) => index,
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Exact,
    Match,
    Glob,
    Re,
}

/// The words behind the range.
struct Query<'a> {
    predicates: Vec<(Kind, &'a [u8])>,
    needs_all: bool,
    limit: usize,
    with_values: bool,
    ignores_case: bool,
}

impl<'a> Query<'a> {
    fn parse(args: &mut Args<'a>) -> Result<Self, CommandError> {
        let mut query = Self {
            predicates: Vec::new(),
            needs_all: false,
            limit: usize::MAX,
            with_values: false,
            ignores_case: false,
        };
        while !args.is_empty() {
            let kinds =
                [("EXACT", Kind::Exact), ("MATCH", Kind::Match), ("GLOB", Kind::Glob), ("RE", Kind::Re)];
            if let Some((_, kind)) = kinds.into_iter().find(|(token, _)| args.token_with(token, 1)) {
                if query.predicates.len() == PREDICATES_MAX {
                    return Err(CommandError::text("ERR too many predicates, maximum is 250"));
                }
                let pattern = args.word();
                if matches!(kind, Kind::Re) {
                    regular_expression::check_length(pattern)?;
                }
                query.predicates.push((kind, pattern));
            } else if args.token_with("LIMIT", 1) {
                query.limit = take_limit(args)?;
            } else if args.token("AND") {
                query.needs_all = true;
            } else if args.token("OR") {
                query.needs_all = false;
            } else if args.token("WITHVALUES") {
                query.with_values = true;
            } else if args.token("NOCASE") {
                query.ignores_case = true;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        if query.predicates.is_empty() { Err(CommandError::Syntax) } else { Ok(query) }
    }

    /// Elements that could be visited in the time that compiling takes, about.
    fn compile_visits(&self) -> usize {
        let visits = |(kind, pattern): &(Kind, &[u8])| match kind {
            Kind::Re => regular_expression::compile_visits(pattern),
            _ => pattern.len() / BYTES_PER_VISIT,
        };
        self.predicates.iter().map(visits).fold(0, usize::saturating_add)
    }

    fn compile(&self) -> Result<Vec<Predicate<'a>>, CommandError> {
        let expressions = self.predicates.iter().filter(|(kind, _)| matches!(kind, Kind::Re)).count();
        let compile = |(kind, pattern): &(Kind, &'a [u8])| {
            Ok(match (kind, self.ignores_case) {
                (Kind::Exact, ignores_case) => Predicate::Exact { text: pattern, ignores_case },
                (Kind::Match, false) => Predicate::Match(memmem::Finder::new(*pattern)),
                (Kind::Match, true) => {
                    let lower = pattern.to_ascii_lowercase();
                    Predicate::MatchIgnoringCase(memmem::Finder::new(&lower).into_owned())
                }
                (Kind::Glob, false) => Predicate::Glob(Glob::new(pattern)?),
                (Kind::Glob, true) => Predicate::Glob(Glob::ignoring_case(pattern)?),
                (Kind::Re, ignores_case) => {
                    Predicate::Re(regular_expression::compile(pattern, ignores_case, expressions)?)
                }
            })
        };
        self.predicates.iter().map(compile).collect()
    }
}

/// A predicate, ready to be evaluated.
enum Predicate<'a> {
    Exact { text: &'a [u8], ignores_case: bool },
    Match(memmem::Finder<'a>),
    MatchIgnoringCase(memmem::Finder<'static>),
    Glob(Glob),
    Re(Regex),
}

impl Predicate<'_> {
    /// Whether it is true of a text; `scratch` may be overwritten.
    fn admits(&self, text: &[u8], scratch: &mut Vec<u8>) -> bool {
        match self {
            Self::Exact { text: wanted, ignores_case: false } => text == *wanted,
            Self::Exact { text: wanted, ignores_case: true } => text.eq_ignore_ascii_case(wanted),
            Self::Match(finder) => finder.find(text).is_some(),
            Self::MatchIgnoringCase(finder) => {
                scratch.clear();
                scratch.extend(text.iter().map(u8::to_ascii_lowercase));
                finder.find(scratch).is_some()
            }
            Self::Glob(glob) => glob.matches(text),
            Self::Re(expression) => expression.is_match(text),
        }
    }
}

fn argrep(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, start, end) = (args.word(), Bound::parse(args.word())?, Bound::parse(args.word())?);
    let query = Query::parse(args)?;
    let array = context.collection::<Array>(key);
    let found = array.as_ref().ok().and_then(Option::as_deref);
    let len = found.map_or(0, Array::len);
    let (start, end) = (start.index(len), end.index(len));
    let (low, high) = (start.min(end), start.max(end));
    let each = found.map_or(0, |array| {
        let bytes = if array.is_empty() { 0 } else { array.heap_bytes() / BYTES_PER_VISIT };
        visits(array, low, high).saturating_add(bytes)
    });
    context.weigh(each.saturating_mul(query.predicates.len()).saturating_add(query.compile_visits()))?;
    let predicates = query.compile()?;
    let Some(array) = array? else {
        reply.array(0);
        return Ok(());
    };
    let (mut number, mut scratch) = (itoa::Buffer::new(), Vec::new());
    let mut admits = |value: &Element<'_>| {
        let text = match *value {
            Element::Integer(integer) => number.format(integer).as_bytes(),
            Element::String(text) => text,
        };
        let mut each = predicates.iter().map(|predicate| predicate.admits(text, &mut scratch));
        if query.needs_all { each.all(|admits| admits) } else { each.any(|admits| admits) }
    };
    let (mark, mut count) = (reply.mark(), 0);
    let found = array.range(low, high, start > end).filter(|(_, value)| admits(value)).take(query.limit);
    for (index, value) in found {
        if query.with_values {
            reply.array(2);
        }
        reply_index(reply, index);
        if query.with_values {
            reply_value(reply, Some(value));
        }
        count += 1;
    }
    reply.array_since(mark, count);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::{Scenario, check};

    #[test]
    fn argrep_finds_values() {
        check(
            "
            > ARMSET a 0 alpha 1 beta 2 alphabet 5 gamma 6 12
            :5
            > ARGREP a - + MATCH alpha
            *2 :0 :2
            > ARGREP a + - MATCH alpha WITHVALUES
            *2 *2 :2 $8 alphabet *2 :0 $5 alpha
            > ARGREP a 1 5 MATCH ALPHA
            *0
            > ARGREP a 1 5 MATCH ALPHA NOCASE
            *1 :2
            > ARGREP a - + EXACT 12 EXACT GAMMA NOCASE
            *2 :5 :6
            > ARGREP a - + GLOB *a* GLOB *t* AND
            *2 :1 :2
            > ARGREP a - + AND MATCH a OR LIMIT 9 GLOB b* LIMIT 1
            *1 :0
            > ARGREP a - + RE ^.{5}$ RE ^[0-9]+$
            *3 :0 :5 :6
            > ARGREP a - + RE ^B NOCASE
            *1 :1
            > ARGREP missing - + MATCH x
            *0
            ",
        );
    }

    #[test]
    fn argrep_refuses_what_it_does_not_understand() {
        let mut scenario = Scenario::new();
        scenario.play(
            "
            > ARSET a 0 x
            :1
            > ARGREP a - + LIMIT 1
            -ERR syntax error
            > ARGREP a - + MATCH x LIMIT
            -ERR syntax error
            > ARGREP a - + MATCH x LIMIT 0
            -ERR LIMIT must be positive
            > ARGREP a - + RE (
            -ERR invalid regular expression: Invalid regexp
            > ARGREP missing - + RE (
            -ERR invalid regular expression: Invalid regexp
            > ARGREP a x + MATCH x
            -ERR invalid array index
            > ARGREP a - + MATCH x FOO
            -ERR syntax error
            > SET text v
            +OK
            > ARGREP text - + MATCH x
            -WRONGTYPE Operation against a key holding the wrong kind of value
            ",
        );
        let predicates = " MATCH x".repeat(250);
        scenario.play(&format!("> ARGREP a - +{predicates}\n*1 :0"));
        scenario
            .play(&format!("> ARGREP a - +{predicates} MATCH x\n-ERR too many predicates, maximum is 250"));
        let long = "a".repeat(2049);
        scenario.play(&format!(
            "> ARGREP a - + RE {long}\n-ERR regular expression is too long, maximum is 2048 bytes"
        ));
    }
}
