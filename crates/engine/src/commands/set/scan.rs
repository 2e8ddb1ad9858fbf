//! Walking a set.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandResult, Group, KeySpec, Run},
    commands::scan::{Omission, scan_collection},
    context::ReadContext,
    value::Set,
};

pub(super) const SSCAN: Command = Command {
    name: "sscan",
    summary: "Returns some members of a set and a cursor to go on from.",
    since: "2.8.0",
    group: Group::Set,
    complexity: "O(COUNT) a call; O(n) for n members from the first call to the last",
    arity: Arity::AtLeast(3),
    run: Run::Read(sscan),
    keys: &[KeySpec::at(1).accesses()],
    args: &[
        Argument::key("key"),
        Argument::integer("cursor"),
        Argument::pattern("pattern").after("MATCH").optional(),
        Argument::integer("count").after("COUNT").optional(),
    ],
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

fn sscan(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    scan_collection(context, args, reply, Omission::None, Set::len, |set, cursor, found| {
        set.scan(cursor, |member| found.element(member, None::<fn(&mut ReplyBuffer)>))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dunlin_resp::Protocol;

    use crate::transcript::{Scenario, check};

    #[test]
    fn compact_sets_are_told_at_once() {
        check(
            "
            > SADD i 1 2 3
            :3
            > SSCAN i 0 COUNT 1
            *2 $1 0 *3 $1 1 $1 2 $1 3
            > SADD s one two three
            :3
            > SSCAN s 0 MATCH t*
            *2 $1 0 *2 $3 two $5 three
            > SSCAN missing 0
            *2 $1 0 *0
            ",
        );
    }

    #[test]
    fn large_sets_are_told_in_parts() {
        let mut scenario = Scenario::new();
        for number in 0..1000 {
            scenario.play(&format!("> SADD s member:{number}\n:1"));
        }
        let (mut cursor, mut found, mut calls) = ("0".to_owned(), BTreeSet::new(), 0);
        loop {
            let reply = scenario.reply(&format!("SSCAN s {cursor} MATCH *5"), Protocol::Resp2);
            let text = String::from_utf8(reply).expect("members are text here");
            let mut bulks =
                text.split("\r\n").filter(|line| !line.starts_with(['*', '$']) && !line.is_empty());
            cursor = bulks.next().expect("a cursor").to_owned();
            for member in bulks {
                assert!(
                    found.insert(member.to_owned()),
                    "{member} was told twice though nothing has changed"
                );
            }
            calls += 1;
            if cursor == "0" {
                break;
            }
        }
        let expected = (0..1000).filter(|number| number % 10 == 5).map(|number| format!("member:{number}"));
        assert_eq!(found, expected.collect());
        assert!((20..=150).contains(&calls), "about ten members a call: {calls} calls");
    }

    #[test]
    fn mistakes_are_told() {
        check(
            "
            > SSCAN missing x
            -ERR invalid cursor
            > SSCAN missing 0 NONSENSE
            *2 $1 0 *0
            > SADD s 1
            :1
            > SSCAN s 0 NONSENSE
            -ERR syntax error
            > SSCAN s 0 MATCH
            -ERR syntax error
            > SSCAN s 0 COUNT 0
            -ERR syntax error
            > SSCAN s 0 COUNT x
            -ERR value is not an integer or out of range
            > SSCAN s 0 NOVALUES
            -ERR NOVALUES option can only be used in HSCAN
            > SET text v
            +OK
            > SSCAN text 0
            -WRONGTYPE Operation against a key holding the wrong kind of value
            ",
        );
    }
}
