//! The parts that `SRANDMEMBER`, `HRANDFIELD` and `ZRANDMEMBER` share.

use crate::command::{Args, CommandError};

/// How many elements are drawn with repetition at most. Redis knows no limit, and runs out of memory; the
/// reply has to find room.
const REPEATED_MAX: i64 = 1 << 26;

/// Reads a count: of different elements, or negative of any.
pub(super) fn parse_count(args: &mut Args<'_>) -> i64 {
    let count = args.integer();
    if count == i64::MIN {
        args.fail(CommandError::text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    } else if count < -REPEATED_MAX {
        args.fail(CommandError::text("ERR value is out of range"));
    }
    count
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn random_member_commands_refuse_replies_larger_than_memory() {
        check(
            "
            > SRANDMEMBER s -67108864
            *0
            > SRANDMEMBER s -67108865
            -ERR value is out of range
            > HRANDFIELD h -67108865 WITHVALUES
            -ERR value is out of range
            > ZRANDMEMBER z -67108865
            -ERR value is out of range
            > ZRANDMEMBER z 9223372036854775807
            *0
            ",
        );
    }
}
