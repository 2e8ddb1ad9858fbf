//! SORT: the elements of a list, set or sorted set in order, or the values of other keys about them.
//!
//! ```text
//! elements ──BY──▶ weights ──▶ order ──LIMIT──▶ places ──GET──▶ reply or list
//! ```
//!
//! The elements are copied before weights are looked up: keys found by patterns are any keys, and
//! looking at them may remove expired ones. A request with patterns holds all stripes
//! (docs/decisions/0007).

mod options;
mod order;
mod pattern;

use dunlin_resp::ReplyBuffer;
use dunlin_structures::{Element, ListEnd};

use self::{
    options::{Get, Options, has_patterns, stored_at},
    order::{Texts, Weights, order, weight},
    pattern::Pattern,
};
use super::elements_about;
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, KeySpec, Run},
    context::{ExpiryChange, ReadContext, WriteContext},
    keyspace::EntryRef,
    notify::EventClass,
    value::{Collection, Layout, List, Object},
};

const PATTERNS: KeySpec = KeySpec::computed().accesses();

pub(in crate::commands) const SORT: Command = Command {
    name: "sort",
    summary: "Sorts the elements in a list, a set, or a sorted set, optionally storing the result.",
    since: "1.0.0",
    complexity: "O(n + m log m) for n elements of which m are returned",
    arity: Arity::AtLeast(2),
    run: Run::Write(sort),
    flags: Flags::DENY_OOM.and(Flags::DANGEROUS).and(Flags::ELEMENTS),
    keys: &[KeySpec::at(1).accesses(), PATTERNS, KeySpec::found_by(stored_at).overwrite().updates()],
    undeclared_keys: Some(has_patterns),
    args: &[
        Argument::key("key"),
        BY,
        LIMIT,
        GET,
        ORDER,
        ALPHA,
        Argument::key("destination").key_spec(2).after("STORE").optional(),
    ],
    ..Command::DEFAULT
};

pub(in crate::commands) const SORT_RO: Command = Command {
    name: "sort_ro",
    summary: "Sorts as SORT does, and never stores the result.",
    since: "7.0.0",
    run: Run::Read(sort_ro),
    flags: Flags::DANGEROUS.and(Flags::ELEMENTS),
    keys: &[KeySpec::at(1).accesses(), PATTERNS],
    args: &[Argument::key("key"), BY, LIMIT, GET, ORDER, ALPHA],
    ..SORT
};

const BY: Argument = Argument::pattern("by-pattern").key_spec(1).after("BY").optional();
const LIMIT: Argument = Argument::block("limit", &[Argument::integer("offset"), Argument::integer("count")])
    .after("LIMIT")
    .optional();
const GET: Argument =
    Argument::pattern("get-pattern").key_spec(1).after("GET").optional().multiple().multiple_token();
const ORDER: Argument =
    Argument::one_of("order", &[Argument::word("asc", "ASC"), Argument::word("desc", "DESC")]).optional();
const ALPHA: Argument = Argument::word("sorting", "ALPHA").optional();

/// The abilities of both kinds of context that the command needs.
trait Lookup {
    /// The entry of a key that is there and has not expired.
    fn entry(&mut self, key: &[u8]) -> Option<EntryRef<'_>>;
    /// Unix time in milliseconds.
    fn now_ms(&self) -> u64;
}

impl Lookup for ReadContext<'_> {
    fn entry(&mut self, key: &[u8]) -> Option<EntryRef<'_>> {
        self.find(key)
    }

    fn now_ms(&self) -> u64 {
        self.now_ms()
    }
}

impl Lookup for WriteContext<'_> {
    fn entry(&mut self, key: &[u8]) -> Option<EntryRef<'_>> {
        // The result is stored, and the record is the command itself: a replay, which knows no time, has to find the same.
        self.read_elements(key)
    }

    fn now_ms(&self) -> u64 {
        self.now_ms()
    }
}

/// The one entry that a command looks at.
struct Found<'a> {
    entry: Option<EntryRef<'a>>,
    now_ms: u64,
}

impl Lookup for Found<'_> {
    fn entry(&mut self, _: &[u8]) -> Option<EntryRef<'_>> {
        self.entry
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }
}

fn sort(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let mut options = Options::parse(args, true, context.caller().in_script)?;
    if has_patterns(args.words()) {
        let sorted = Sorted::of(context, key, &mut options)?;
        return match options.store {
            Some(destination) => {
                let list = sorted.list(context, &options, context.layout());
                store(context, destination, list, reply);
                Ok(())
            }
            None => {
                sorted.reply(context, &options, reply);
                Ok(())
            }
        };
    }
    context.check_entries(&[key], |_| Ok(()))?;
    let now_ms = context.now_ms();
    let elements = |entries: &[Option<EntryRef<'_>>]| entries[0].map_or(0, elements_about);
    let Some(destination) = options.store else {
        return context.examine(&[key], elements, |entries| {
            let mut found = Found { entry: entries[0], now_ms };
            let sorted = Sorted::of(&mut found, key, &mut options)?;
            sorted.reply(&mut found, &options, reply);
            Ok(())
        })?;
    };
    let list = context.compute(&[key], elements, |entries, layout| {
        let mut found = Found { entry: entries[0], now_ms };
        let sorted = Sorted::of(&mut found, key, &mut options)?;
        Ok::<_, CommandError>(sorted.list(&mut found, &options, layout))
    })??;
    store(context, destination, list, reply);
    Ok(())
}

/// Stores the sorted elements, and replies with their number.
fn store(context: &mut WriteContext<'_>, destination: &[u8], list: List, reply: &mut ReplyBuffer) {
    reply.count(list.len());
    context.count_changes(list.len());
    let (is_empty, was_there) = (list.is_empty(), context.find(destination).is_some());
    context.set_collection(destination, list, ExpiryChange::Clear);
    if !is_empty {
        context.notify(EventClass::List, "sortstore", destination);
    } else if was_there {
        context.notify(EventClass::Generic, "del", destination);
    }
}

fn sort_ro(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let mut options = Options::parse(args, false, context.caller().in_script)?;
    // Not `find`: what is looked up counts as a use of the key, which is only to happen once.
    let elements = context.peek(key).map_or(0, elements_about);
    context.weigh(elements)?;
    let sorted = Sorted::of(context, key, &mut options)?;
    sorted.reply(context, &options, reply);
    Ok(())
}

/// Elements, and their order in the reply.
#[derive(Debug)]
struct Sorted {
    elements: Texts,
    /// The elements of the reply, by index.
    order: Vec<usize>,
}

impl Sorted {
    fn of(context: &mut impl Lookup, key: &[u8], options: &mut Options<'_>) -> Result<Self, CommandError> {
        let elements = elements_of(context, key, options)?;
        let wanted = options.wanted(elements.len());
        if options.keep_order {
            return Ok(Self { elements, order: wanted.collect() });
        }
        let (places, found) = match options.by {
            None => (None, Texts::default()),
            Some(pattern) => {
                let (places, found) = weights_of(context, &elements, pattern);
                (Some(places), found)
            }
        };
        let weights = match &places {
            None if options.as_texts => Weights::Texts(&elements),
            None => Weights::Numbers(numbers(elements.iter().map(Some))?),
            Some(places) if options.as_texts => Weights::Optional(places, &found),
            Some(places) => {
                let texts = places.iter().map(|place| place.map(|place| found.get(place)));
                Weights::Numbers(numbers(texts)?)
            }
        };
        let order = order(&elements, &weights, options.descending, wanted);
        Ok(Self { elements, order })
    }

    /// Passes each item that the options ask for to `tell`, element by element, in order.
    fn tell(&self, context: &mut impl Lookup, options: &Options<'_>, mut tell: impl FnMut(Option<&[u8]>)) {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for at in &self.order {
            let element = self.elements.get(*at);
            if options.gets.is_empty() {
                tell(Some(element));
            }
            for get in &options.gets {
                match get {
                    Get::Itself => tell(Some(element)),
                    Get::Found(pattern) => {
                        value.clear();
                        let found = pattern
                            .is_some_and(|pattern| look_up(context, pattern, element, &mut key, &mut value));
                        tell(found.then_some(value.as_slice()));
                    }
                }
            }
        }
    }

    /// All that is asked for, as a list.
    fn list(&self, context: &mut impl Lookup, options: &Options<'_>, layout: Layout<'_>) -> List {
        let mut found = Texts::default();
        self.tell(context, options, |text| found.push(|out| out.extend_from_slice(text.unwrap_or_default())));
        let texts: Vec<&[u8]> = found.iter().collect();
        let mut list = List::new(layout.resources);
        list.push(ListEnd::Back, &texts, layout);
        list
    }

    fn reply(&self, context: &mut impl Lookup, options: &Options<'_>, reply: &mut ReplyBuffer) {
        reply.array(self.order.len() * options.gets.len().max(1));
        self.tell(context, options, |text| match text {
            Some(text) => reply.bulk(text),
            None => reply.null(),
        });
    }
}

/// Appends the text that a pattern finds for an element to `value`; returns whether there is one.
fn look_up(
    context: &mut impl Lookup,
    pattern: Pattern<'_>,
    element: &[u8],
    key: &mut Vec<u8>,
    value: &mut Vec<u8>,
) -> bool {
    let now_ms = context.now_ms();
    pattern.write_key(element, key);
    context.entry(key).is_some_and(|entry| pattern.write_value(entry, now_ms, value))
}

/// The text that a pattern finds for each element: its place among the texts, if there is one.
fn weights_of(
    context: &mut impl Lookup,
    elements: &Texts,
    pattern: Pattern<'_>,
) -> (Vec<Option<usize>>, Texts) {
    let (mut found, mut key) = (Texts::default(), Vec::new());
    let places = elements.iter().map(|element| {
        let mut is_there = false;
        let place = found.len();
        found.push(|out| is_there = look_up(context, pattern, element, &mut key, out));
        is_there.then_some(place)
    });
    (places.collect(), found)
}

/// Weights as numbers; a missing one is 0.
fn numbers<'t>(texts: impl Iterator<Item = Option<&'t [u8]>>) -> Result<Vec<f64>, CommandError> {
    const NOT_NUMBERS: CommandError =
        CommandError::text("ERR One or more scores can't be converted into double");
    texts.map(|text| text.map_or(Some(0.0), weight).ok_or(NOT_NUMBERS)).collect()
}

/// The elements of the key to sort; none if there is no such key.
fn elements_of(
    context: &mut impl Lookup,
    key: &[u8],
    options: &mut Options<'_>,
) -> Result<Texts, CommandError> {
    let mut elements = Texts::default();
    let Some(entry) = context.entry(key) else { return Ok(elements) };
    let mut add = |element: Element<'_>| elements.push(|out| element.write_text(out));
    match &*entry.object().ok_or(CommandError::WrongType)? {
        Object::List(list) if options.keep_order && options.descending => {
            list.iter().rev().for_each(&mut add)
        }
        Object::List(list) => list.iter().for_each(&mut add),
        Object::Set(set) => {
            // The stored list, and the work of a script, must not depend on how the set happens to be laid
            // out.
            if options.keep_order && (options.store.is_some() || options.in_script) {
                (options.keep_order, options.as_texts, options.by) = (false, true, None);
            }
            set.for_each(&mut add);
        }
        Object::SortedSet(set) => {
            let reverse = options.keep_order && options.descending;
            set.for_range(0..set.len(), reverse, |member, _| add(member));
        }
        Object::Hash(_) | Object::Stream(_) | Object::Array(_) | Object::Json(_) | Object::Foreign(_) => {
            return Err(CommandError::WrongType);
        }
    }
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn numbers_and_texts() {
        check(
            "
            > RPUSH l 10 9 2.5 -1 9
            :5
            > SORT l
            *5 $2 -1 $3 2.5 $1 9 $1 9 $2 10
            > SORT l DESC LIMIT 1 2
            *2 $1 9 $1 9
            > SORT_RO l ALPHA
            *5 $2 -1 $2 10 $3 2.5 $1 9 $1 9
            > SORT l LIMIT 3 -1
            *2 $1 9 $2 10
            > SORT l LIMIT 9 1
            *0
            > SORT l BY nosort DESC
            *5 $1 9 $2 -1 $3 2.5 $1 9 $2 10
            > SORT l BY nosort LIMIT 0 2
            *2 $2 10 $1 9
            > SADD s c a b
            :3
            > SORT s ALPHA DESC
            *3 $1 c $1 b $1 a
            > SORT s
            -ERR One or more scores can't be converted into double
            > ZADD z 3 1 2 2 1 3
            :3
            > SORT z
            *3 $1 1 $1 2 $1 3
            > SORT z BY nosort
            *3 $1 3 $1 2 $1 1
            > SORT z BY nosort DESC LIMIT 0 2
            *2 $1 1 $1 2
            > SORT missing
            *0
            ",
        );
    }

    #[test]
    fn weights_and_values_lie_under_other_keys() {
        check(
            "
            > SADD s a b c
            :3
            > MSET w_a 3 w_b 2 w_c 1 v_a A v_c C
            +OK
            > HSET h_a w 1 v x
            :2
            > HSET h_b w 2
            :1
            > SORT s BY w_*
            *3 $1 c $1 b $1 a
            > SORT s BY w_* GET # GET v_* GET h_*->v GET nostar
            *12 $1 c $1 C $-1 $-1 $1 b $-1 $-1 $-1 $1 a $1 A $1 x $-1
            > SORT_RO s BY h_*->w DESC
            *3 $1 b $1 a $1 c
            > SORT s BY v_* ALPHA
            *3 $1 b $1 a $1 c
            > SORT s BY v_*
            -ERR One or more scores can't be converted into double
            > SORT s BY w_* GET v_* STORE d
            :3
            > LRANGE d 0 -1
            *3 $1 C $0  $1 A
            > SORT s BY nosort STORE s
            :3
            > LRANGE s 0 -1
            *3 $1 a $1 b $1 c
            > SORT missing STORE s
            :0
            > EXISTS s
            :0
            ",
        );
    }

    #[test]
    fn weights_that_have_expired_are_missing() {
        check(
            "
            > SADD s 1 2
            :2
            > SET w_1 5 PX 10
            +OK
            > HSETEX h_2 PX 10 FIELDS 1 f 5
            :1
            > SORT s BY w_* GET h_*->f
            *2 $1 5 $-1
            @ +10
            > SORT s BY w_* GET h_*->f
            *2 $-1 $-1
            > SORT_RO s BY w_*
            *2 $1 1 $1 2
            ",
        );
    }

    #[test]
    fn mistakes_are_told_in_their_order() {
        check(
            "
            > SET text v
            +OK
            > SORT text
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SORT text NONSENSE
            -ERR syntax error
            > SORT text LIMIT x 1
            -ERR value is not an integer or out of range
            > SORT text LIMIT 1
            -ERR syntax error
            > SORT text BY
            -ERR syntax error
            > SORT_RO text STORE d
            -ERR syntax error
            > HSET h f v
            :1
            > SORT h
            -WRONGTYPE Operation against a key holding the wrong kind of value
            ",
        );
    }
}
