//! Moving several elements from one list to another, or within one.
//!
//! ```text
//! source  a b c d     from the left, 3 elements:  a b c
//! OBO     one by one to the same end as they came from: they arrive in the other order  c b a
//!         to the other end:                             a b c
//! BULK    in one piece:                                 a b c
//! ```

use dunlin_resp::{Protocol, ReplyBuffer, SharedSlice};
use dunlin_structures::ListEnd;

use super::{
    discard, list_of, notify_pop, notify_push,
    pop::{ends, pop_word},
    reply_element,
    transfer::{LMOVE, Transfer},
};
use crate::{
    command::{Args, Argument, Arity, Blocking, Command, CommandError, CommandResult, Flags, Run, Wait},
    commands::timeout::parse_seconds,
    context::{ExpiryChange, WriteContext},
    value::{Layout, List, ValueType},
};

const ENDS: [Argument; 2] = [
    Argument::one_of("wherefrom", &[Argument::word("left", "LEFT"), Argument::word("right", "RIGHT")]),
    Argument::one_of("whereto", &[Argument::word("left", "LEFT"), Argument::word("right", "RIGHT")]),
];
const HOW_MANY: Argument = Argument::block(
    "how-many",
    &[
        Argument::one_of(
            "selector",
            &[Argument::integer("count").after("COUNT"), Argument::integer("exactly").after("EXACTLY")],
        ),
        Argument::one_of("ordering", &[Argument::word("obo", "OBO"), Argument::word("bulk", "BULK")]),
    ],
)
.optional();

pub(super) const LMOVEM: Command = Command {
    name: "lmovem",
    summary: "Takes elements from one end of a list, adds them to one of another, and returns them.",
    since: "8.10.0",
    complexity: "O(n) for n elements moved",
    arity: Arity::AtLeast(5),
    run: Run::Write(lmovem),
    args: &[Argument::key("source"), Argument::key("destination").key_spec(1), ENDS[0], ENDS[1], HOW_MANY],
    ..LMOVE
};

fn lmovem(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let transfer = Transfer::parse(args)?;
    let request = ManyTransfer::parse(transfer, args)?;
    if !request.run(context, reply)? {
        match request.is_exact {
            true => reply.null_array(),
            false => reply.array(0),
        }
    }
    Ok(())
}

pub(super) const BLMOVEM: Command = Command {
    name: "blmovem",
    summary: "Takes elements from one end of a list, adds them to one of another, and returns them, or waits for them.",
    arity: Arity::AtLeast(6),
    run: Run::Block(blmovem),
    flags: Flags::WRITE.and(Flags::DENY_OOM).and(Flags::BLOCKING),
    args: &[
        Argument::key("source"),
        Argument::key("destination").key_spec(1),
        ENDS[0],
        ENDS[1],
        Argument::double("timeout"),
        HOW_MANY,
    ],
    ..LMOVEM
};

fn blmovem<'a>(
    context: &mut WriteContext<'_>,
    args: &mut Args<'a>,
    reply: &mut ReplyBuffer,
) -> Result<Blocking<'a>, CommandError> {
    let source = &args.rest()[..1];
    let transfer = Transfer::parse(args)?;
    let timeout_ms = parse_seconds(&mut Args::new(args.take(1), 0), context.now_ms())?;
    let request = ManyTransfer::parse(transfer, args)?;
    // An offload thread holds no locks; the command has passed this test before.
    let is_reserved = !context.is_offloaded() && context.is_reserved(source[0], ValueType::List);
    if !is_reserved && request.run(context, reply)? {
        return Ok(Blocking::Done);
    }
    let elements_min = if request.is_exact { request.count } else { 1 };
    let Blocking::Wait(wait) =
        Blocking::wait_for(ValueType::List, source, timeout_ms, ReplyBuffer::null_array)
    else {
        unreachable!("it is a wait")
    };
    Ok(Blocking::Wait(Wait { elements_min, ..wait }))
}

/// From where to where elements move, and which.
struct ManyTransfer<'a> {
    transfer: Transfer<'a>,
    /// 1 or more.
    count: usize,
    /// Whether nothing moves if there are fewer.
    is_exact: bool,
    /// Whether the elements keep their order.
    in_bulk: bool,
}

/// The elements that move, in the order that they will have.
struct Moved {
    list: List,
    reply: Vec<SharedSlice>,
}

impl<'a> ManyTransfer<'a> {
    /// Reads `[COUNT count | EXACTLY count OBO | BULK]`; one element without.
    fn parse(transfer: Transfer<'a>, args: &mut Args<'a>) -> Result<Self, CommandError> {
        let (mut count, mut is_exact, mut in_bulk) = (1, false, false);
        if !args.is_empty() {
            is_exact = args.token_with("EXACTLY", 2);
            if !is_exact && !args.token_with("COUNT", 2) {
                return Err(CommandError::Syntax);
            }
            let not_positive = CommandError::text("ERR count should be greater than 0");
            count = args.integer_in(1..=i64::MAX, not_positive) as usize;
            args.check()?;
            in_bulk = args.token("BULK");
            if !in_bulk && !args.token("OBO") {
                return Err(CommandError::Syntax);
            }
        }
        args.finish()?;
        Ok(Self { transfer, count, is_exact, in_bulk })
    }

    /// Whether the elements arrive in the other order.
    fn reverses(&self) -> bool {
        !self.in_bulk && self.transfer.from == self.transfer.to
    }

    /// The elements of the source that move; `None` if they are too few.
    fn elements(&self, source: &List, protocol: Protocol, layout: Layout<'_>) -> Option<Moved> {
        if self.is_exact && source.len() < self.count {
            return None;
        }
        let elements = source.range(ends(source, self.count, self.transfer.from));
        let (mut list, mut reply, mut text) = (List::default(), ReplyBuffer::default(), Vec::new());
        reply.set_protocol(protocol);
        reply.array(elements.len());
        let end = if self.reverses() { ListEnd::Front } else { ListEnd::Back };
        elements.for_each(|element| {
            text.clear();
            element.write_text(&mut text);
            list.push(end, &[&text], layout);
        });
        list.iter().for_each(|element| reply_element(&mut reply, element));
        Some(Moved { list, reply: reply.take_pieces() })
    }

    /// Moves the elements and answers them. Returns whether there were enough.
    fn run(&self, context: &mut WriteContext<'_>, reply: &mut ReplyBuffer) -> Result<bool, CommandError> {
        let Transfer { source, destination, from, to } = self.transfer;
        // On an offload thread, only the view says what there is.
        if !context.is_offloaded() {
            let Some(list) = context.collection::<List>(source)? else { return Ok(false) };
            if self.is_exact && list.len() < self.count {
                return Ok(false);
            }
            context.collection::<List>(destination)?;
        }
        let protocol = reply.protocol();
        let prepared = match context.may_offload(self.count) {
            true => context.compute_offloaded(
                source,
                |entry| entry.and_then(list_of).map_or(0, |list| list.len().min(self.count)),
                |entry, layout| self.elements(&*entry.and_then(list_of)?, protocol, layout),
            )?,
            false => None,
        };
        let layout = context.layout();
        let moved = match prepared.flatten() {
            Some(moved) => Some(moved),
            None => {
                context.collection::<List>(source)?.and_then(|list| self.elements(&list, protocol, layout))
            }
        };
        let Some(Moved { list, reply: pieces }) = moved else { return Ok(false) };
        reply.append_pieces(&pieces);
        let is_empty = match source == destination {
            true => self.move_within(context, &list)?,
            false => self.move_between(context, list)?,
        };
        notify_push(context, to, destination);
        notify_pop(context, from, source, is_empty);
        Ok(true)
    }

    /// Moves elements to another list. Returns whether those were all of the source.
    fn move_between(&self, context: &mut WriteContext<'_>, moved: List) -> Result<bool, CommandError> {
        let Transfer { source, destination, from, to } = self.transfer;
        let (layout, count) = (context.layout(), moved.len());
        let outcome = context.edit(source, |list: &mut List| {
            let (_, taken) = list.take_range(ends(list, count, from));
            list.settle(layout);
            (taken, list.is_empty())
        })?;
        let Some((taken, is_empty)) = outcome else { return Ok(false) };
        discard(context, taken);
        let is_new = context.find(destination).is_none();
        if !context.is_recorded() && is_new {
            context.set_collection(destination, moved, ExpiryChange::Clear);
        } else {
            let texts = Texts::of(&moved, to);
            self.record(context, count, &texts);
            if is_new {
                context.set_collection(destination, moved, ExpiryChange::Clear);
            } else {
                let words = texts.words();
                context.edit_or_create(destination, |list: &mut List| list.push(to, &words, layout))?;
            }
        }
        // Elements have moved, though two keys have changed.
        context.count_changes(count);
        Ok(is_empty)
    }

    /// Moves elements within their list, which does not become empty: false.
    fn move_within(&self, context: &mut WriteContext<'_>, moved: &List) -> Result<bool, CommandError> {
        let Transfer { source, from, to, .. } = self.transfer;
        let (layout, count) = (context.layout(), moved.len());
        let is_whole = context.collection::<List>(source)?.is_some_and(|list| list.len() == count);
        if count == 1 && is_whole || !self.reverses() && (from == to || is_whole) {
            // Everything stays where it is.
            return Ok(false);
        }
        // A list that is taken whole must not go with its last element, where the record is run: its expiry stays.
        let recorded_to = if is_whole { opposite(to) } else { to };
        let texts = Texts::of(moved, recorded_to);
        if is_whole {
            record_push(context, source, recorded_to, &texts);
            record_pop(context, source, from, count);
        } else {
            self.record(context, count, &texts);
        }
        let taken = context.edit(source, |list: &mut List| {
            let (_, taken) = list.take_range(ends(list, count, from));
            list.push(to, &Texts::of(moved, to).words(), layout);
            list.settle(layout);
            taken
        })?;
        if let Some(taken) = taken {
            discard(context, taken);
        }
        context.count_changes(count);
        Ok(false)
    }

    /// Records the move in commands that servers before Redis 8.10 know.
    fn record(&self, context: &mut WriteContext<'_>, count: usize, texts: &Texts) {
        let Transfer { source, destination, from, to } = self.transfer;
        if count == 1 {
            context.propagate(&[b"LMOVE", source, destination, end_word(from), end_word(to)]);
        } else {
            record_pop(context, source, from, count);
            record_push(context, destination, to, texts);
        }
    }
}

/// Elements as they are pushed, one after the other.
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Whether the last one is pushed first.
    from_last: bool,
}

impl Texts {
    /// The elements of a list that are to stand in that order at an end of another.
    fn of(list: &List, end: ListEnd) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(list.len()));
        list.iter().for_each(|element| {
            element.write_text(&mut bytes);
            ends.push(bytes.len());
        });
        Self { bytes, ends, from_last: end == ListEnd::Front }
    }

    fn words(&self) -> Vec<&[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let mut words: Vec<&[u8]> =
            starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end]).collect();
        if self.from_last {
            words.reverse();
        }
        words
    }
}

fn record_pop(context: &mut WriteContext<'_>, key: &[u8], end: ListEnd, count: usize) {
    context.propagate(&[pop_word(end), key, itoa::Buffer::new().format(count).as_bytes()]);
}

fn record_push(context: &mut WriteContext<'_>, key: &[u8], end: ListEnd, texts: &Texts) {
    if context.is_recorded() {
        let name: &[u8] = match end {
            ListEnd::Front => b"LPUSH",
            ListEnd::Back => b"RPUSH",
        };
        context.propagate(&[&[name, key], &texts.words()[..]].concat());
    }
}

fn end_word(end: ListEnd) -> &'static [u8] {
    match end {
        ListEnd::Front => b"LEFT",
        ListEnd::Back => b"RIGHT",
    }
}

fn opposite(end: ListEnd) -> ListEnd {
    match end {
        ListEnd::Front => ListEnd::Back,
        ListEnd::Back => ListEnd::Front,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dunlin_resp::Protocol;

    use crate::{
        context::Worker,
        offload::OffloadOutcome,
        transcript::{ConnectedHost, Records, Scenario, check},
    };

    #[test]
    fn lmovem_moves_one_by_one_or_in_bulk() {
        check(
            "
            > RPUSH a 1 2 3 4 5 6 7 8 9
            :9
            > LMOVEM a b LEFT LEFT
            *1 $1 1
            > LMOVEM a b LEFT LEFT COUNT 2 OBO
            *2 $1 3 $1 2
            > LMOVEM a b LEFT LEFT EXACTLY 2 BULK
            *2 $1 4 $1 5
            > LMOVEM a b right RIGHT count 2 obo
            *2 $1 9 $1 8
            > LRANGE b 0 -1
            *7 $1 4 $1 5 $1 3 $1 2 $1 1 $1 9 $1 8
            > LMOVEM b c RIGHT LEFT COUNT 3 OBO
            *3 $1 1 $1 9 $1 8
            > LMOVEM b c RIGHT RIGHT COUNT 2 BULK
            *2 $1 3 $1 2
            > LRANGE c 0 -1
            *5 $1 1 $1 9 $1 8 $1 3 $1 2
            > LMOVEM b c LEFT LEFT EXACTLY 3 OBO
            *-1
            3> LMOVEM b c LEFT LEFT EXACTLY 3 OBO
            _
            > LMOVEM b c LEFT RIGHT COUNT 3 BULK
            *2 $1 4 $1 5
            > EXISTS b
            :0
            > LMOVEM b c LEFT LEFT
            *0
            > LMOVEM b c LEFT LEFT COUNT 3 BULK
            *0
            > LMOVEM b c LEFT LEFT EXACTLY 1 BULK
            *-1
            > LLEN c
            :7
            ",
        );
    }

    #[test]
    fn lmovem_moves_within_a_list() {
        check(
            "
            > RPUSH a 1 2 3 4
            :4
            > EXPIRE a 100
            :1
            > LMOVEM a a LEFT LEFT EXACTLY 2 OBO
            *2 $1 2 $1 1
            > LMOVEM a a LEFT LEFT COUNT 2 BULK
            *2 $1 2 $1 1
            > LRANGE a 0 -1
            *4 $1 2 $1 1 $1 3 $1 4
            > LMOVEM a a LEFT RIGHT COUNT 3 BULK
            *3 $1 2 $1 1 $1 3
            > LRANGE a 0 -1
            *4 $1 4 $1 2 $1 1 $1 3
            > LMOVEM a a RIGHT LEFT COUNT 9 OBO
            *4 $1 4 $1 2 $1 1 $1 3
            > LMOVEM a a RIGHT RIGHT COUNT 9 OBO
            *4 $1 3 $1 1 $1 2 $1 4
            > LRANGE a 0 -1
            *4 $1 3 $1 1 $1 2 $1 4
            > TTL a
            :100
            ",
        );
    }

    #[test]
    fn lmovem_refuses_mistakes() {
        check(
            "
            > RPUSH a 1 2 3
            :3
            > SET text v
            +OK
            > LMOVEM a text LEFT LEFT
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > LMOVEM text a LEFT LEFT COUNT 2 BULK
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > LMOVEM missing text LEFT LEFT
            *0
            > LMOVEM a b LEFT
            -ERR wrong number of arguments for 'lmovem' command
            > LMOVEM a b UP LEFT
            -ERR syntax error
            > LMOVEM a b LEFT LEFT COUNT 2
            -ERR syntax error
            > LMOVEM a b LEFT LEFT COUNT 2 BULK extra
            -ERR syntax error
            > LMOVEM a b LEFT LEFT MANY 2 BULK
            -ERR syntax error
            > LMOVEM a b LEFT LEFT COUNT 2 HALF
            -ERR syntax error
            > LMOVEM a b LEFT LEFT COUNT 0 BULK
            -ERR count should be greater than 0
            > LMOVEM a b LEFT LEFT EXACTLY -1 BULK
            -ERR count should be greater than 0
            > LMOVEM a b LEFT LEFT COUNT x BULK
            -ERR count should be greater than 0
            > BLMOVEM a b LEFT LEFT x COUNT 1 BULK
            -ERR timeout is not a float or out of range
            > BLMOVEM a b LEFT LEFT -1
            -ERR timeout is negative
            > BLMOVEM a b LEFT LEFT 0 COUNT 1
            -ERR syntax error
            > LRANGE a 0 -1
            *3 $1 1 $1 2 $1 3
            ",
        );
    }

    #[test]
    fn blmovem_takes_what_is_there() {
        check(
            "
            > RPUSH a 1 2 3
            :3
            > BLMOVEM a b LEFT RIGHT 0
            *1 $1 1
            > BLMOVEM a b LEFT RIGHT 0 COUNT 9 BULK
            *2 $1 2 $1 3
            > BLMOVEM b a LEFT RIGHT 0 EXACTLY 3 OBO
            *3 $1 1 $1 2 $1 3
            ",
        );
    }

    /// Every form on lists of every size up to four: what the log's commands do is what the command did.
    #[test]
    fn lmovem_is_recorded_in_older_commands_that_do_the_same() {
        for (len, count) in (1..=4).flat_map(|len| (1..=4).map(move |count| (len, count))) {
            for (from, to) in [("LEFT", "LEFT"), ("LEFT", "RIGHT"), ("RIGHT", "LEFT"), ("RIGHT", "RIGHT")] {
                for (order, destination) in
                    [("OBO", "a"), ("BULK", "a"), ("OBO", "b"), ("BULK", "b"), ("OBO", "c"), ("BULK", "c")]
                {
                    let elements = ["1", "2", "x", "y"][..len].join(" ");
                    let setup = [
                        format!("RPUSH a {elements}"),
                        "PEXPIREAT a 1800000000000".to_owned(),
                        "RPUSH b 7 8".to_owned(),
                    ];
                    let line = format!("LMOVEM a {destination} {from} {to} COUNT {count} {order}");
                    let (mut scenario, records) = Scenario::recorded();
                    let mut replica = Scenario::new();
                    for line in &setup {
                        scenario.reply(line, Protocol::Resp2);
                        replica.reply(line, Protocol::Resp2);
                    }
                    records.take();
                    scenario.reply(&line, Protocol::Resp2);
                    for record in records.take() {
                        assert!(!record.contains("LMOVEM"), "{line}: {record}");
                        for command in
                            record.split("; ").filter(|command| !["MULTI", "EXEC"].contains(command))
                        {
                            replica.reply(command, Protocol::Resp2);
                        }
                    }
                    for key in ["a", "b", "c"] {
                        for question in [format!("LRANGE {key} 0 -1"), format!("PTTL {key}")] {
                            let replies = [&mut scenario, &mut replica]
                                .map(|scenario| scenario.reply(&question, Protocol::Resp2));
                            assert_eq!(replies[0], replies[1], "{line}: {question}");
                        }
                    }
                }
            }
        }
    }

    /// The reply and the record of a command on a list of 3,000, offloaded or not.
    fn told(visits_max: Option<usize>, line: &str) -> (Vec<u8>, Vec<String>, Vec<u8>) {
        let (mut scenario, records): (Scenario, Arc<Records>) = Scenario::recorded();
        let elements: Vec<String> = (0..3000).map(|number| number.to_string()).collect();
        scenario.reply(&format!("RPUSH a {}", elements.join(" ")), Protocol::Resp2);
        scenario.reply("RPUSH b x", Protocol::Resp2);
        records.take();
        scenario.caller.visits_max = visits_max;
        let mut reply = scenario.reply(line, Protocol::Resp2);
        if let Some(offloaded) = scenario.offloaded.take() {
            assert!(visits_max.is_some());
            let OffloadOutcome::Computed(computed) =
                offloaded.run(&scenario.engine, &mut Worker::new(9, 9), &ConnectedHost)
            else {
                panic!("it is to be run again");
            };
            scenario.computed = Some(Box::new(computed));
            reply = scenario.reply(line, Protocol::Resp2);
        } else {
            assert!(visits_max.is_none(), "{line} is offloaded");
        }
        scenario.caller.visits_max = None;
        let lists = ["LRANGE a 0 -1", "LRANGE b 0 -1", "LRANGE c 0 -1"];
        let lists = lists.map(|line| scenario.reply(line, Protocol::Resp2)).concat();
        (reply, records.take(), lists)
    }

    #[test]
    fn lmovem_of_many_elements_is_offloaded() {
        for line in [
            "LMOVEM a c LEFT LEFT COUNT 2500 OBO",
            "LMOVEM a b RIGHT LEFT EXACTLY 2500 BULK",
            "LMOVEM a a LEFT RIGHT COUNT 2500 BULK",
            "LMOVEM a a LEFT LEFT COUNT 9999 OBO",
            "BLMOVEM a b LEFT RIGHT 0 COUNT 2500 BULK",
        ] {
            assert_eq!(told(Some(1000), line), told(None, line), "{line}");
        }
    }
}
