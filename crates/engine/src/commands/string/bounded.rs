//! Counters with bounds and an expiry, as rate limiters need them.

use std::{cmp::Ordering, mem};

use dunlin_resp::{ReplyBuffer, number::parse_integer};

use super::{counter::INCR, get::EXPIRATION, set::record_set};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, KeySpec, Run},
    commands::expiry::ExpiryOption,
    context::{ExpiryChange, WriteContext},
    notify::EventClass,
    value::{ExtendedFloat, NewString},
};

pub(super) const INCREX: Command = Command {
    name: "increx",
    summary: "Adds a number to the one under a key, within bounds, and changes when the key expires.",
    since: "8.8.0",
    arity: Arity::AtLeast(2),
    run: Run::Write(increx),
    keys: &[KeySpec::at(1).read_write().accesses().updates()],
    args: &[
        Argument::key("key"),
        Argument::one_of(
            "increment",
            &[Argument::double("float").after("BYFLOAT"), Argument::integer("integer").after("BYINT")],
        )
        .optional(),
        Argument::string("lowerbound").after("LBOUND").optional(),
        Argument::string("upperbound").after("UBOUND").optional(),
        Argument::word("saturate", "SATURATE").optional(),
        EXPIRATION,
        Argument::word("enx", "ENX").optional(),
    ],
    ..INCR
};

/// The options of INCREX as they were written.
#[derive(Debug, Default)]
struct Options<'a> {
    by_int: Option<&'a [u8]>,
    by_float: Option<&'a [u8]>,
    lower: Option<&'a [u8]>,
    upper: Option<&'a [u8]>,
    /// A result out of bounds becomes the bound.
    saturates: bool,
    expiry: ExpiryOption<'a>,
    /// A key that expires already keeps its time.
    only_new_expiry: bool,
}

impl<'a> Options<'a> {
    /// Reads the options, each of which may stand once and anywhere.
    fn read(args: &mut Args<'a>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        while !args.is_empty() {
            let is_repeated = if args.token_with("BYINT", 1) {
                options.by_int.replace(args.word()).is_some()
            } else if args.token_with("BYFLOAT", 1) {
                options.by_float.replace(args.word()).is_some()
            } else if args.token_with("LBOUND", 1) {
                options.lower.replace(args.word()).is_some()
            } else if args.token_with("UBOUND", 1) {
                options.upper.replace(args.word()).is_some()
            } else if args.token("SATURATE") {
                mem::replace(&mut options.saturates, true)
            } else if args.token("ENX") {
                mem::replace(&mut options.only_new_expiry, true)
            } else {
                let had_expiry = options.expiry != ExpiryOption::None;
                if !options.expiry.read(args, ("PERSIST", ExpiryOption::Persist)) {
                    return Err(CommandError::Syntax);
                }
                had_expiry
            };
            if is_repeated {
                return Err(CommandError::Syntax);
            }
        }
        args.check()?;
        if options.by_int.is_some() && options.by_float.is_some() {
            return Err(CommandError::Syntax);
        }
        match options.expiry {
            ExpiryOption::Persist if options.only_new_expiry => Err(CommandError::Syntax),
            ExpiryOption::None if options.only_new_expiry => {
                Err(CommandError::text("ERR ENX flag requires an expiration"))
            }
            _ => Ok(options),
        }
    }
}

/// Reads an integer, or an error that begins with `name`.
fn integer(word: &[u8], name: &str) -> Result<i64, CommandError> {
    let error = || CommandError::owned(format!("ERR {name} is not an integer or out of range"));
    parse_integer(word).ok_or_else(error)
}

/// The error of a range that holds no number.
const CROSSED: CommandError = CommandError::text("ERR LBOUND can't be greater than UBOUND");

/// An increment of integers within bounds.
struct Integers {
    amount: i64,
    lower: i64,
    upper: i64,
}

impl Integers {
    fn parse(options: &Options<'_>) -> Result<Self, CommandError> {
        let amount = options.by_int.map_or(Ok(1), |word| integer(word, "Increment"))?;
        let lower = options.lower.map_or(Ok(i64::MIN), |word| integer(word, "LBOUND"))?;
        let upper = options.upper.map_or(Ok(i64::MAX), |word| integer(word, "UBOUND"))?;
        if lower > upper { Err(CROSSED) } else { Ok(Self { amount, lower, upper }) }
    }

    /// Returns the new value and how much that adds, or `None` if it lies out of bounds.
    fn apply(&self, current: i64, saturates: bool) -> Result<Option<(i64, i64)>, CommandError> {
        let sum = i128::from(current) + i128::from(self.amount);
        let bounded = sum.clamp(self.lower.into(), self.upper.into());
        if bounded != sum && !saturates {
            return Ok(None);
        }
        let overflow = CommandError::text("ERR applied increment would overflow");
        let applied = i64::try_from(bounded - i128::from(current)).map_err(|_| overflow)?;
        Ok(Some((current.saturating_add(applied), applied)))
    }
}

/// A floating-point number, or an infinity with its sign.
#[derive(Debug, Clone, Copy)]
enum Extent {
    NegativeInfinity,
    Finite(ExtendedFloat),
    Infinity,
}

impl Extent {
    /// Reads a number, or an error that begins with `name`.
    fn parse(word: &[u8], name: &str) -> Result<Self, CommandError> {
        let error = || CommandError::owned(format!("ERR {name} is not a valid float"));
        Ok(Self::of(ExtendedFloat::parse(word).ok_or_else(error)?, word.starts_with(b"-")))
    }

    /// The number; an infinite one has the sign that is given.
    fn of(number: ExtendedFloat, is_negative: bool) -> Self {
        match number {
            ExtendedFloat::Infinite if is_negative => Self::NegativeInfinity,
            ExtendedFloat::Infinite => Self::Infinity,
            finite => Self::Finite(finite),
        }
    }

    fn rank(self) -> i8 {
        match self {
            Self::NegativeInfinity => -1,
            Self::Finite(_) => 0,
            Self::Infinity => 1,
        }
    }

    fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Finite(one), Self::Finite(other)) if one.is_below(other) => Ordering::Less,
            (Self::Finite(one), Self::Finite(other)) if other.is_below(one) => Ordering::Greater,
            (one, other) => one.rank().cmp(&other.rank()),
        }
    }

    /// The number, or `infinite` if it is none.
    fn finite(self, infinite: CommandError) -> Result<ExtendedFloat, CommandError> {
        match self {
            Self::Finite(number) => Ok(number),
            Self::NegativeInfinity | Self::Infinity => Err(infinite),
        }
    }
}

/// An increment of floating-point numbers within bounds.
struct Floats {
    amount: ExtendedFloat,
    lower: Extent,
    upper: Extent,
}

impl Floats {
    fn parse(amount: &[u8], options: &Options<'_>) -> Result<Self, CommandError> {
        let infinite = CommandError::text("ERR BYFLOAT increment cannot be Infinity");
        let amount = Extent::parse(amount, "Increment")?.finite(infinite)?;
        let bound = |word: Option<&[u8]>, name, limit| {
            word.map_or(Ok(Extent::Finite(limit)), |word| Extent::parse(word, name))
        };
        let lower = bound(options.lower, "LBOUND", -ExtendedFloat::MAX)?;
        let upper = bound(options.upper, "UBOUND", ExtendedFloat::MAX)?;
        match lower.compare(upper) {
            Ordering::Greater => Err(CROSSED),
            Ordering::Less | Ordering::Equal => Ok(Self { amount, lower, upper }),
        }
    }

    /// Returns the new value and how much that adds, or `None` if it lies out of bounds.
    fn apply(
        &self,
        current: ExtendedFloat,
        saturates: bool,
    ) -> Result<Option<(ExtendedFloat, ExtendedFloat)>, CommandError> {
        let sum = Extent::of(current + self.amount, self.amount.is_negative());
        let bound = if sum.compare(self.lower) == Ordering::Less {
            self.lower
        } else if sum.compare(self.upper) == Ordering::Greater {
            self.upper
        } else {
            let not_finite = CommandError::text("ERR increment would produce NaN or Infinity");
            return Ok(Some((sum.finite(not_finite)?, self.amount)));
        };
        if !saturates {
            return Ok(None);
        }
        const INFINITE: CommandError = CommandError::text("ERR applied increment would be Infinity");
        let bound = bound.finite(INFINITE)?;
        match bound + -current {
            ExtendedFloat::Infinite => Err(INFINITE),
            applied => Ok(Some((bound, applied))),
        }
    }
}

/// The text of a finite number.
fn text_of(number: ExtendedFloat) -> Result<String, CommandError> {
    number.to_text().ok_or(CommandError::text("ERR value cannot be Infinity"))
}

fn increx(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let options = Options::read(args)?;
    match options.by_float {
        None => {
            let change = Integers::parse(&options)?;
            let expiry = new_expiry(context, key, &options)?;
            let current = match context.string(key)? {
                Some(value) => value.integer().ok_or(CommandError::NotInteger)?,
                None => 0,
            };
            let outcome = change.apply(current, options.saturates)?;
            let (value, applied) = outcome.unwrap_or((current, 0));
            reply.array(2);
            reply.integer(value);
            reply.integer(applied);
            if outcome.is_some() {
                let mut text = itoa::Buffer::new();
                let stored = (NewString::Integer(value), text.format(value).as_bytes());
                store(context, key, stored, expiry, "incrby");
            }
        }
        Some(amount) => {
            let change = Floats::parse(amount, &options)?;
            let expiry = new_expiry(context, key, &options)?;
            let current = match context.string(key)? {
                // A number is never long enough to stand in chunks.
                Some(value) => value
                    .short_text(&mut itoa::Buffer::new())
                    .and_then(ExtendedFloat::parse)
                    .ok_or(CommandError::NotFloat)?,
                None => ExtendedFloat::ZERO,
            };
            if current == ExtendedFloat::Infinite {
                return Err(CommandError::text("ERR value cannot be Infinity"));
            }
            let outcome = change.apply(current, options.saturates)?;
            let (value, applied) = outcome.unwrap_or((current, ExtendedFloat::ZERO));
            let (value, applied) = (text_of(value)?, text_of(applied)?);
            reply.array(2);
            reply.double_text(&value);
            reply.double_text(&applied);
            if outcome.is_some() {
                let stored = (NewString::from_computed(value.as_bytes()), value.as_bytes());
                store(context, key, stored, expiry, "incrbyfloat");
            }
        }
    }
    Ok(())
}

/// The change of the key's expiry that the options ask for.
fn new_expiry(
    context: &mut WriteContext<'_>,
    key: &[u8],
    options: &Options<'_>,
) -> Result<ExpiryChange, CommandError> {
    let change = match options.expiry {
        ExpiryOption::None => return Ok(ExpiryChange::Keep),
        told => told.change(context.clock_ms(), "increx")?,
    };
    let expires =
        |context: &mut WriteContext<'_>| context.find(key).and_then(|entry| entry.expiry()).is_some();
    Ok(match change {
        ExpiryChange::At(_) if options.only_new_expiry && expires(context) => ExpiryChange::Keep,
        // Only a key that expires is made to persist.
        ExpiryChange::Clear if !expires(context) => ExpiryChange::Keep,
        change => change,
    })
}

/// Stores the value under the key, and records and reports that.
fn store(
    context: &mut WriteContext<'_>,
    key: &[u8],
    (value, text): (NewString<'_>, &[u8]),
    expiry: ExpiryChange,
    event: &'static str,
) {
    if let ExpiryChange::At(at) = expiry
        && at <= context.now_ms()
    {
        if context.remove(key) {
            context.record_removal(key);
            context.notify(EventClass::Generic, "del", key);
        }
        return;
    }
    context.set_string(key, value, expiry);
    // Sums may come out differently elsewhere, and servers before Redis 8.8 know no INCREX.
    record_set(context, key, text, expiry);
    context.notify(EventClass::String, event, key);
    match expiry {
        ExpiryChange::Keep => {}
        ExpiryChange::Clear => context.notify(EventClass::Generic, "persist", key),
        ExpiryChange::At(_) => context.notify(EventClass::Generic, "expire", key),
    }
}

#[cfg(test)]
mod tests {
    use dunlin_resp::Protocol;

    use crate::transcript::{Scenario, check};

    #[test]
    fn increx_adds_and_tells_what_it_added() {
        check(
            "
            > INCREX n
            *2 :1 :1
            > INCREX n BYINT 41
            *2 :42 :41
            > INCREX n byint -50
            *2 :-8 :-50
            > OBJECT ENCODING n
            $3 int
            > INCREX n BYFLOAT 0.5
            *2 $4 -7.5 $3 0.5
            3> INCREX n BYFLOAT 0.25
            *2 ,-7.25 ,0.25
            > INCREX n BYINT 1
            -ERR value is not an integer or out of range
            > SET n 0.1
            +OK
            > INCREX n BYFLOAT 0.2
            *2 $3 0.3 $3 0.2
            ",
        );
    }

    #[test]
    fn increx_stays_within_bounds() {
        check(
            "
            > INCREX n BYINT 5 LBOUND 10
            *2 :0 :0
            > EXISTS n
            :0
            > SET n 10
            +OK
            > INCREX n BYINT 5 UBOUND 15
            *2 :15 :5
            > INCREX n UBOUND 15
            *2 :15 :0
            > INCREX n BYINT 5 UBOUND 15 LBOUND 0 EX 10
            *2 :15 :0
            > TTL n
            :-1
            > INCREX n BYINT 100 UBOUND 80 SATURATE
            *2 :80 :65
            > INCREX n LBOUND 0 BYINT -100 SATURATE
            *2 :0 :-80
            > INCREX n BYINT 9 UBOUND -5 SATURATE
            *2 :-5 :-5
            > SET n 9223372036854775800
            +OK
            > INCREX n BYINT 9223372036854775800
            *2 :9223372036854775800 :0
            > INCREX n BYINT 9223372036854775800 SATURATE
            *2 :9223372036854775807 :7
            > INCREX n SATURATE
            *2 :9223372036854775807 :0
            > INCREX n SATURATE UBOUND -9223372036854775808
            -ERR applied increment would overflow
            > SET f 10.0
            +OK
            > INCREX f BYFLOAT 10 UBOUND 15.5
            *2 $2 10 $1 0
            > GET f
            $4 10.0
            > INCREX f BYFLOAT 10 UBOUND 15.5 SATURATE
            *2 $4 15.5 $3 5.5
            > INCREX f BYFLOAT -99 LBOUND -1.5 SATURATE
            *2 $4 -1.5 $3 -17
            > INCREX f BYFLOAT 1 LBOUND inf UBOUND inf
            *2 $4 -1.5 $1 0
            > INCREX f BYFLOAT 1 LBOUND -inf UBOUND +inf
            *2 $4 -0.5 $1 1
            > INCREX f BYFLOAT 1e4932 UBOUND 2e4931
            *2 $4 -0.5 $1 0
            > INCREX f BYFLOAT 1 LBOUND inf UBOUND inf SATURATE
            -ERR applied increment would be Infinity
            ",
        );
    }

    #[test]
    fn increx_saturates_at_the_ends_of_the_type() {
        let mut scenario = Scenario::new();
        let largest = "INCREX f BYFLOAT 1.1e4932 SATURATE";
        scenario.reply(largest, Protocol::Resp2);
        let reply = String::from_utf8(scenario.reply(largest, Protocol::Resp2)).expect("text");
        let value = reply.split("\r\n").nth(2).expect("a value");
        assert_eq!((value.len(), &value[..12]), (4933, "118973149535"));
    }

    #[test]
    fn increx_moves_keeps_and_clears_the_expiry() {
        check(
            "
            > INCREX n EX 100 ENX
            *2 :1 :1
            > TTL n
            :100
            > INCREX n EX 5 ENX
            *2 :2 :1
            > INCREX n
            *2 :3 :1
            > TTL n
            :100
            > INCREX n PX 5000
            *2 :4 :1
            > TTL n
            :5
            > INCREX n PERSIST
            *2 :5 :1
            > TTL n
            :-1
            > INCREX n PERSIST
            *2 :6 :1
            > INCREX n EXAT 1700000007
            *2 :7 :1
            > TTL n
            :7
            > INCREX n EXAT 1 ENX
            *2 :8 :1
            > INCREX n PXAT 1
            *2 :9 :1
            > EXISTS n
            :0
            > INCREX n PXAT 1
            *2 :1 :1
            > EXISTS n
            :0
            > INCREX n BYFLOAT 1.5 PX 100
            *2 $3 1.5 $3 1.5
            @ +100
            > EXISTS n
            :0
            ",
        );
    }

    #[test]
    fn increx_refuses_what_makes_no_sense() {
        check(
            "
            > SET s text
            +OK
            > RPUSH l a
            :1
            > INCREX l
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > INCREX l BYFLOAT 1
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > INCREX s
            -ERR value is not an integer or out of range
            > INCREX s BYFLOAT 1
            -ERR value is not a valid float
            > INCREX n FOO
            -ERR syntax error
            > INCREX n BYINT
            -ERR syntax error
            > INCREX n BYINT 1 BYFLOAT 1
            -ERR syntax error
            > INCREX n BYINT 1 BYINT 1
            -ERR syntax error
            > INCREX n SATURATE SATURATE
            -ERR syntax error
            > INCREX n EX 10 EX 10
            -ERR syntax error
            > INCREX n EX 10 PERSIST
            -ERR syntax error
            > INCREX n PERSIST PERSIST
            -ERR syntax error
            > INCREX n ENX PERSIST
            -ERR syntax error
            > INCREX n KEEPTTL
            -ERR syntax error
            > INCREX n ENX
            -ERR ENX flag requires an expiration
            > INCREX n BYINT 1.5
            -ERR Increment is not an integer or out of range
            > INCREX n BYFLOAT x
            -ERR Increment is not a valid float
            > INCREX n BYFLOAT nan
            -ERR Increment is not a valid float
            > INCREX n BYFLOAT -inf
            -ERR BYFLOAT increment cannot be Infinity
            > INCREX n LBOUND 1.5
            -ERR LBOUND is not an integer or out of range
            > INCREX n BYFLOAT 1 UBOUND x
            -ERR UBOUND is not a valid float
            > INCREX n LBOUND 2 UBOUND 1
            -ERR LBOUND can't be greater than UBOUND
            > INCREX n BYFLOAT 1 LBOUND 2 UBOUND 1.5
            -ERR LBOUND can't be greater than UBOUND
            > INCREX n BYFLOAT 1 LBOUND inf
            -ERR LBOUND can't be greater than UBOUND
            > INCREX n EX 0
            -ERR invalid expire time in 'increx' command
            > INCREX n EX x
            -ERR value is not an integer or out of range
            > EXISTS n
            :0
            > SET n -inf
            +OK
            > INCREX n BYFLOAT 0 LBOUND -100
            -ERR value cannot be Infinity
            > INCREX
            -ERR wrong number of arguments for 'increx' command
            ",
        );
    }
}
