//! Taking elements from the ends.

use std::ops::Range;

use dunlin_resp::{Protocol, ReplyBuffer, SharedSlice};
use dunlin_structures::ListEnd;

use super::{discard, list_of, notify_pop, parse_end, reply_element};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::WriteContext,
    keyspace::EntryRef,
    value::List,
};

pub(super) const LPOP: Command = Command {
    name: "lpop",
    summary: "Removes and returns the first elements of a list; the last one takes the list with it.",
    since: "1.0.0",
    group: Group::List,
    complexity: "O(count)",
    arity: Arity::AtLeast(2),
    run: Run::Write(lpop),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().accesses().deletes()],
    args: &[Argument::key("key"), Argument::integer("count").optional().since("6.2.0")],
    ..Command::DEFAULT
};

fn lpop(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    pop(context, args, reply, ListEnd::Front, "lpop")
}

pub(super) const RPOP: Command = Command {
    name: "rpop",
    summary: "Removes and returns the last elements of a list; the last one takes the list with it.",
    run: Run::Write(rpop),
    ..LPOP
};

fn rpop(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    pop(context, args, reply, ListEnd::Back, "rpop")
}

#[inline]
fn pop(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    end: ListEnd,
    name: &str,
) -> CommandResult {
    let key = args.word();
    if !args.is_empty() {
        return pop_counted(context, key, args, reply, end, name);
    }
    if !pop_one(context, key, reply, end)? {
        reply.null();
    }
    Ok(())
}

/// Answers and removes one element. Returns whether there was one.
#[inline]
pub(super) fn pop_one(
    context: &mut WriteContext<'_>,
    key: &[u8],
    reply: &mut ReplyBuffer,
    end: ListEnd,
) -> Result<bool, CommandError> {
    let layout = context.layout();
    let is_empty = context.edit(key, |list: &mut List| {
        list.pop(end, |element| reply_element(reply, element));
        list.settle(layout);
        list.is_empty()
    })?;
    if let Some(is_empty) = is_empty {
        notify_pop(context, end, key, is_empty);
    }
    Ok(is_empty.is_some())
}

fn pop_counted(
    context: &mut WriteContext<'_>,
    key: &[u8],
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    end: ListEnd,
    name: &str,
) -> CommandResult {
    if args.remaining() > 1 {
        return Err(CommandError::WrongArity(name.to_owned()));
    }
    let not_positive = CommandError::text("ERR value is out of range, must be positive");
    let count = args.integer_in(0..=i64::MAX, not_positive) as usize;
    args.finish()?;
    if !context.is_offloaded() {
        match context.collection::<List>(key)? {
            None => reply.null_array(),
            Some(_) if count == 0 => reply.array(0),
            Some(_) => return pop_told(context, key, count, reply, end),
        }
        return Ok(());
    }
    pop_told(context, key, count, reply, end)
}

/// [`pop_many`]; a long reply is written by an offload thread.
fn pop_told(
    context: &mut WriteContext<'_>,
    key: &[u8],
    count: usize,
    reply: &mut ReplyBuffer,
    end: ListEnd,
) -> CommandResult {
    let elements =
        |entry: Option<EntryRef<'_>>| entry.and_then(list_of).map_or(0, |list| list.len().min(count));
    let protocol = reply.protocol();
    let told = context.compute_offloaded(key, elements, |entry, _| {
        let mut reply = ReplyBuffer::default();
        reply.set_protocol(protocol);
        let list = entry.and_then(list_of)?;
        tell(&list, count, &mut reply, end);
        Some(reply.take_pieces())
    })?;
    let Some(told) = told.flatten() else { return pop_many(context, key, count, reply, end).map(drop) };
    reply.append_pieces(&told);
    remove_many(context, key, count, end, |_| ()).map(drop)
}

/// The numbers of up to `count` elements at an end.
pub(super) fn ends(list: &List, count: usize, end: ListEnd) -> Range<usize> {
    let (len, count) = (list.len(), count.min(list.len()));
    match end {
        ListEnd::Front => 0..count,
        ListEnd::Back => len - count..len,
    }
}

/// Answers up to `count` elements, the one at the end first.
fn tell(list: &List, count: usize, reply: &mut ReplyBuffer, end: ListEnd) {
    let elements = list.range(ends(list, count, end));
    reply.array(elements.len());
    match end {
        ListEnd::Front => elements.for_each(|element| reply_element(reply, element)),
        ListEnd::Back => elements.rev().for_each(|element| reply_element(reply, element)),
    }
}

/// The command that takes elements from an end.
pub(super) fn pop_word(end: ListEnd) -> &'static [u8] {
    match end {
        ListEnd::Front => b"LPOP",
        ListEnd::Back => b"RPOP",
    }
}

/// Answers and removes up to `count` elements, the one at the end first. Returns how many.
pub(super) fn pop_many(
    context: &mut WriteContext<'_>,
    key: &[u8],
    count: usize,
    reply: &mut ReplyBuffer,
    end: ListEnd,
) -> Result<usize, CommandError> {
    remove_many(context, key, count, end, |list| tell(list, count, reply, end))
}

/// Removes up to `count` elements from one end of a list, which `see` sees before. Returns how many.
fn remove_many(
    context: &mut WriteContext<'_>,
    key: &[u8],
    count: usize,
    end: ListEnd,
    see: impl FnOnce(&List),
) -> Result<usize, CommandError> {
    let layout = context.layout();
    let outcome = context.edit(key, |list: &mut List| {
        see(list);
        let (removed, taken) = list.take_range(ends(list, count, end));
        list.settle(layout);
        (removed, taken, list.is_empty())
    })?;
    let Some((removed, taken, is_empty)) = outcome else { return Ok(0) };
    context.count_changes(removed);
    discard(context, taken);
    notify_pop(context, end, key, is_empty);
    Ok(removed)
}

pub(super) const LMPOP: Command = Command {
    name: "lmpop",
    summary: "Removes and returns elements from one end of the first list among several that is there.",
    since: "7.0.0",
    complexity: "O(n + m) for n keys and m elements returned",
    arity: Arity::AtLeast(4),
    run: Run::Write(lmpop),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).counted().read_write().accesses().deletes()],
    args: &[
        Argument::integer("numkeys"),
        Argument::key("key").multiple(),
        Argument::one_of("where", &[Argument::word("left", "LEFT"), Argument::word("right", "RIGHT")]),
        Argument::integer("count").after("COUNT").optional(),
    ],
    ..LPOP
};

fn lmpop(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let request = ManyKeys::parse(args)?;
    if !request.pop(context, reply, |_, _| false)? {
        reply.null_array();
    }
    Ok(())
}

/// The arguments of LMPOP and BLMPOP.
pub(super) struct ManyKeys<'a> {
    pub(super) keys: &'a [&'a [u8]],
    end: ListEnd,
    count: usize,
}

impl<'a> ManyKeys<'a> {
    /// Reads the number of keys, the keys, the end and the count.
    pub(super) fn parse(args: &mut Args<'a>) -> Result<Self, CommandError> {
        let positive = |args: &mut Args<'a>, error| {
            let count = args.integer_in(1..=i64::MAX, CommandError::text(error));
            args.check().map(|()| count as usize)
        };
        let keys = positive(args, "ERR numkeys should be greater than 0")?;
        let keys = args.take(keys);
        args.check()?;
        let end = parse_end(args)?;
        let count = match args.token_with("COUNT", 1) {
            true => positive(args, "ERR count should be greater than 0")?,
            false => 1,
        };
        args.finish()?;
        Ok(Self { keys, end, count })
    }

    /// Answers and removes elements of the first list that is there and not for others. Returns
    /// whether there is one.
    pub(super) fn pop(
        &self,
        context: &mut WriteContext<'_>,
        reply: &mut ReplyBuffer,
        is_reserved: impl Fn(&mut WriteContext<'_>, &[u8]) -> bool,
    ) -> Result<bool, CommandError> {
        let mut found = None;
        // Apart, only the view says which list that is.
        if !context.is_offloaded() {
            for (at, key) in self.keys.iter().enumerate() {
                if context.collection::<List>(key)?.is_some() && !is_reserved(context, key) {
                    found = Some(at);
                    break;
                }
            }
            if found.is_none() {
                return Ok(false);
            }
        }
        let told = match context.may_offload(self.count) {
            true => self.told_apart(context, found, reply.protocol())?,
            false => None,
        };
        let at = found.expect("whoever is apart is told no answer");
        let key = self.keys[at];
        reply.array(2);
        reply.bulk(key);
        let removed = match told.filter(|told| told.at == at) {
            Some(told) => {
                reply.append_pieces(&told.reply);
                remove_many(context, key, self.count, self.end, |_| ())?
            }
            None => pop_many(context, key, self.count, reply, self.end)?,
        };
        let count = itoa::Buffer::new().format(removed).to_owned();
        context.propagate(&[pop_word(self.end), key, count.as_bytes()]);
        Ok(removed > 0)
    }

    /// The reply, if it is long enough to be offloaded.
    fn told_apart(
        &self,
        context: &mut WriteContext<'_>,
        found: Option<usize>,
        protocol: Protocol,
    ) -> Result<Option<Told>, CommandError> {
        let (end, count) = (self.end, self.count);
        let elements = |entries: &[Option<EntryRef<'_>>]| {
            let entry = found.and_then(|at| entries[at]);
            entry.and_then(list_of).map_or(0, |list| list.len().min(count))
        };
        let told = context.compute_all_offloaded(self.keys, elements, |entries, _| {
            let lists = entries.iter().enumerate().filter_map(|(at, entry)| Some((at, list_of((*entry)?)?)));
            let (at, list) = lists.into_iter().next()?;
            let mut reply = ReplyBuffer::default();
            reply.set_protocol(protocol);
            tell(&list, count, &mut reply, end);
            Some(Told { at, reply: reply.take_pieces() })
        })?;
        Ok(told.flatten())
    }
}

/// The elements of a list in a reply that was written on an offload thread.
struct Told {
    /// Which of the keys it is under.
    at: usize,
    reply: Vec<SharedSlice>,
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn elements_are_taken_from_both_ends() {
        check(
            "
            > RPUSH l a b 3 d e
            :5
            > LPOP l
            $1 a
            > RPOP l
            $1 e
            > RPOP l 2
            *2 $1 d $1 3
            > LPOP l 0
            *0
            > LPOP l 9
            *1 $1 b
            > EXISTS l
            :0
            > LPOP l
            $-1
            3> LPOP l
            _
            > LPOP l 1
            *-1
            3> LPOP l 1
            _
            ",
        );
    }

    #[test]
    fn lmpop_pops_from_the_first_list_present() {
        check(
            "
            > RPUSH b 1 2 3
            :3
            > LMPOP 3 a b c LEFT
            *2 $1 b *1 $1 1
            > LMPOP 3 a b c right COUNT 5
            *2 $1 b *2 $1 3 $1 2
            > LMPOP 3 a b c RIGHT
            *-1
            3> LMPOP 1 a LEFT COUNT 1
            _
            > LMPOP 0 a LEFT
            -ERR numkeys should be greater than 0
            > LMPOP x a LEFT
            -ERR numkeys should be greater than 0
            > LMPOP 2 a LEFT
            -ERR syntax error
            > LMPOP 1 a MIDDLE
            -ERR syntax error
            > LMPOP 1 a LEFT COUNT 0
            -ERR count should be greater than 0
            > LMPOP 1 a LEFT COUNT
            -ERR syntax error
            > LMPOP 1 a LEFT COUNT 1 COUNT 1
            -ERR syntax error
            > SET text v
            +OK
            > LMPOP 2 a text LEFT
            -WRONGTYPE Operation against a key holding the wrong kind of value
            ",
        );
    }

    #[test]
    fn mistakes_are_told() {
        check(
            "
            > SET text v
            +OK
            > LPOP text
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > LPOP text 1
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > LPOP text x
            -ERR value is out of range, must be positive
            > RPOP missing -1
            -ERR value is out of range, must be positive
            > RPOP missing 1 2
            -ERR wrong number of arguments for 'rpop' command
            ",
        );
    }
}
