//! The longest common subsequence of two strings.
//!
//! The textbook dynamic program: `length[i][j]` is the length of the longest common subsequence of
//! the first `i` bytes of one and the first `j` of the other; walking it back from the far corner
//! gives the subsequence. If both ways back are equally long, the walk gives up a byte of the
//! second string: that decides which of several longest subsequences is answered, so it is part of
//! the protocol.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ReadContext, string_of},
    value::StringRef,
};

pub(super) const LCS: Command = Command {
    name: "lcs",
    summary: "Returns the longest common subsequence of the strings under two keys.",
    since: "7.0.0",
    group: Group::String,
    complexity: "O(n*m) in the lengths of the two strings",
    arity: Arity::AtLeast(3),
    run: Run::Read(lcs),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).through(1, 1).accesses()],
    args: &[
        Argument::key("key1"),
        Argument::key("key2"),
        Argument::word("len", "LEN").optional(),
        Argument::word("idx", "IDX").optional(),
        Argument::integer("len").after("MINMATCHLEN").optional(),
        Argument::word("withmatchlen", "WITHMATCHLEN").optional(),
    ],
    ..Command::DEFAULT
};

const EMPTY: StringRef<'_> = StringRef::Inline(&[]);

/// Pairs of bytes that are compared in the time that an element of a collection takes.
const CELLS_PER_VISIT: usize = 16;

fn lcs(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let not_strings = || CommandError::text("ERR The specified keys must contain string values");
    let mut string = |key| context.find(key).map(string_of).transpose().map_err(|_| not_strings());
    let (one, other) = (string(args.word()), string(args.word()));
    let (one, other) = (one?, other?);
    let (mut only_length, mut positions, mut with_lengths, mut shortest) = (false, false, false, 0);
    while !args.is_empty() {
        if args.token("IDX") {
            positions = true;
        } else if args.token("LEN") {
            only_length = true;
        } else if args.token("WITHMATCHLEN") {
            with_lengths = true;
        } else if args.token_with("MINMATCHLEN", 1) {
            shortest = args.integer().max(0) as usize;
            args.check()?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if only_length && positions {
        let text = "ERR If you want both the length and indexes, please just use IDX.";
        return Err(CommandError::text(text));
    }
    let (one, other) = (one.unwrap_or(EMPTY), other.unwrap_or(EMPTY));
    check_size(one.len(), other.len(), context.policy().string_bytes_max)?;

    let visits = one.len().saturating_mul(other.len()) / CELLS_PER_VISIT;
    context.weigh(visits.max((one.len() + other.len()) / CELLS_PER_VISIT))?;
    let (mut one_buffer, mut other_buffer) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (one, other) = (&*one.gathered(&mut one_buffer), &*other.gathered(&mut other_buffer));
    if only_length {
        reply.count(length(one, other));
        return Ok(());
    }
    let lengths = Lengths::new(one, other)?;
    let runs = lengths.runs(one, other);
    if !positions {
        let mut common = Vec::with_capacity(lengths.longest());
        runs.iter().rev().for_each(|run| common.extend_from_slice(&one[run.one..run.one + run.length]));
        reply.bulk(&common);
        return Ok(());
    }
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(runs.iter().filter(|run| run.length >= shortest).count());
    for run in runs.iter().filter(|run| run.length >= shortest) {
        reply.array(if with_lengths { 3 } else { 2 });
        for start in [run.one, run.other] {
            reply.array(2);
            reply.count(start);
            reply.count(start + run.length - 1);
        }
        if with_lengths {
            reply.count(run.length);
        }
    }
    reply.bulk(b"len");
    reply.count(lengths.longest());
    Ok(())
}

/// Refuses pairs of strings whose table would be larger than the largest string.
fn check_size(one: usize, other: usize, bytes_max: usize) -> CommandResult {
    if one.max(other) >= u32::MAX as usize - 1 {
        return Err(CommandError::text("ERR String too long for LCS"));
    }
    let cells = (one as u128 + 1) * (other as u128 + 1);
    if cells * size_of::<u32>() as u128 > bytes_max as u128 {
        let text = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
        return Err(CommandError::text(text));
    }
    Ok(())
}

/// The length alone: one row of the table is enough.
fn length(one: &[u8], other: &[u8]) -> usize {
    let mut row = vec![0u32; other.len() + 1];
    for byte in one {
        let mut diagonal = 0;
        for (at, candidate) in other.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if byte == candidate { diagonal + 1 } else { above.max(row[at]) };
            diagonal = above;
        }
    }
    row[other.len()] as usize
}

/// The table of the dynamic program.
struct Lengths {
    cells: Vec<u32>,
    columns: usize,
}

/// Bytes that both strings have in a row, as part of the subsequence.
#[derive(Debug, PartialEq, Eq)]
struct CommonRun {
    one: usize,
    other: usize,
    length: usize,
}

impl Lengths {
    fn new(one: &[u8], other: &[u8]) -> Result<Self, CommandError> {
        let columns = other.len() + 1;
        let mut cells = Vec::new();
        let text = "ERR Insufficient memory, failed allocating transient memory for LCS";
        cells.try_reserve_exact((one.len() + 1) * columns).map_err(|_| CommandError::text(text))?;
        cells.resize((one.len() + 1) * columns, 0);
        for (i, byte) in one.iter().enumerate() {
            let (above, below) = cells[i * columns..(i + 2) * columns].split_at_mut(columns);
            for (j, candidate) in other.iter().enumerate() {
                below[j + 1] = if byte == candidate { above[j] + 1 } else { above[j + 1].max(below[j]) };
            }
        }
        Ok(Self { cells, columns })
    }

    fn longest(&self) -> usize {
        self.cells.last().map_or(0, |length| *length as usize)
    }

    /// The runs of the subsequence, last one first.
    fn runs(&self, one: &[u8], other: &[u8]) -> Vec<CommonRun> {
        let mut runs: Vec<CommonRun> = Vec::new();
        let (mut i, mut j) = (one.len(), other.len());
        let mut running = false;
        while i > 0 && j > 0 {
            if one[i - 1] == other[j - 1] {
                (i, j) = (i - 1, j - 1);
                match runs.last_mut() {
                    Some(run) if running => *run = CommonRun { one: i, other: j, length: run.length + 1 },
                    _ => runs.push(CommonRun { one: i, other: j, length: 1 }),
                }
                running = true;
            } else {
                running = false;
                if self.cells[(i - 1) * self.columns + j] > self.cells[i * self.columns + j - 1] {
                    i -= 1;
                } else {
                    j -= 1;
                }
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::{Scenario, check};
    use proptest::prelude::*;

    #[test]
    fn lcs_gives_text_length_and_matches() {
        check(
            "
            > MSET one ohmytext other mynewtext
            +OK
            > LCS one other
            $6 mytext
            > LCS one other LEN
            :6
            > LCS one other IDX
            *4 $7 matches *2 *2 *2 :4 :7 *2 :5 :8 *2 *2 :2 :3 *2 :0 :1 $3 len :6
            3> LCS one other IDX
            %2 $7 matches *2 *2 *2 :4 :7 *2 :5 :8 *2 *2 :2 :3 *2 :0 :1 $3 len :6
            > LCS one other IDX MINMATCHLEN 4
            *4 $7 matches *1 *2 *2 :4 :7 *2 :5 :8 $3 len :6
            > LCS one other IDX MINMATCHLEN 4 WITHMATCHLEN
            *4 $7 matches *1 *3 *2 :4 :7 *2 :5 :8 :4 $3 len :6
            > LCS one other WITHMATCHLEN MINMATCHLEN -1
            $6 mytext
            > LCS one missing
            $0
            > LCS one missing IDX
            *4 $7 matches *0 $3 len :0
            > MSET n 1234 m 134
            +OK
            > LCS n m
            $3 134
            > MSET ab ab ba ba
            +OK
            > LCS ab ba
            $1 b
            > LCS ba ab
            $1 a
            ",
        );
    }

    #[test]
    fn lcs_refuses_what_makes_no_sense() {
        check(
            "
            > LCS a b LEN IDX
            -ERR If you want both the length and indexes, please just use IDX.
            > LCS a b FOO
            -ERR syntax error
            > LCS a b MINMATCHLEN
            -ERR syntax error
            > LCS a b MINMATCHLEN x
            -ERR value is not an integer or out of range
            > LCS a
            -ERR wrong number of arguments for 'lcs' command
            ",
        );
        let mut scenario = Scenario::new();
        scenario.policy.string_bytes_max = 100;
        scenario.play(
            "
            > MSET a 12345678 b 12345678
            +OK
            > LCS a b
            -ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len
            ",
        );
    }

    /// All subsequences of `one`, longest first found in `other`.
    fn naive_length(one: &[u8], other: &[u8]) -> usize {
        (0..1u32 << one.len())
            .filter(|chosen| {
                let mut rest = other.iter();
                let mut bytes = one.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1);
                bytes.all(|(_, byte)| rest.any(|candidate| candidate == byte))
            })
            .map(|chosen| chosen.count_ones() as usize)
            .max()
            .unwrap_or(0)
    }

    proptest! {
        #[test]
        fn lcs_is_the_longest(one in "[a-c]{0,10}", other in "[a-c]{0,12}") {
            let (one, other) = (one.as_bytes(), other.as_bytes());
            let expected = naive_length(one, other);
            prop_assert_eq!(length(one, other), expected);
            let lengths = Lengths::new(one, other).unwrap();
            prop_assert_eq!(lengths.longest(), expected);
            let runs = lengths.runs(one, other);
            prop_assert_eq!(runs.iter().map(|run| run.length).sum::<usize>(), expected);
            for run in &runs {
                prop_assert_eq!(&one[run.one..run.one + run.length], &other[run.other..run.other + run.length]);
            }
            for pair in runs.windows(2) {
                prop_assert!(pair[1].one + pair[1].length <= pair[0].one);
                prop_assert!(pair[1].other + pair[1].length <= pair[0].other);
            }
        }
    }
}
