//! Bitmaps: strings read and written bit by bit.

use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

const UNIT: Arg = Maybe(50, &[Pick(&["BYTE", "BIT", "BITS"])]);
const FIELD_READ: Arg = OneOf(&[&[Word("GET"), BitType, FieldOffset]]);
const FIELD_WRITE: Arg = OneOf(&[
    &[Word("GET"), BitType, FieldOffset],
    &[Word("SET"), BitType, FieldOffset, Integer],
    &[Word("INCRBY"), BitType, FieldOffset, Integer],
    &[Word("INCRBY"), BitType, FieldOffset, SmallInteger],
    &[Word("OVERFLOW"), Pick(&["WRAP", "SAT", "FAIL", "WRAP", "SAT", "FAIL", "NONE"])],
]);

/// The table.
pub const FAMILY: Family = Family {
    name: "bitmap",
    private: false,
    rows: &[
        row("SET", 6, &[Key, Value]),
        row("SETRANGE", 3, &[Key, Offset, Value]),
        row("GET", 3, &[Key]),
        row("SETBIT", 14, &[Key, BitOffset, Pick(&["0", "1", "1", "1", "2"])]),
        row("GETBIT", 8, &[Key, BitOffset]),
        row("GETBIT", 2, &[Key, Integer]),
        row("BITCOUNT", 4, &[Key]),
        row("BITCOUNT", 10, &[Key, Index, Maybe(90, &[Index, UNIT])]),
        row("BITPOS", 3, &[Key, Pick(&["0", "1", "1", "2"])]),
        row("BITPOS", 10, &[Key, Pick(&["0", "1"]), Index, Maybe(70, &[Index, UNIT])]),
        row("BITOP", 10, &[Pick(&["AND", "OR", "XOR"]), Key, Repeat(1, 4, &[Key])]),
        row("BITOP", 2, &[Word("NOT"), Key, Key]),
        row("BITOP", 1, &[Word("NOT"), Key, Repeat(1, 3, &[Key])]),
        row("BITFIELD", 14, &[Key, Repeat(0, 5, &[FIELD_WRITE])]),
        row("BITFIELD", 2, &[Key, Repeat(1, 4, &[FIELD_READ])]),
        row("BITFIELD_RO", 4, &[Key, Repeat(0, 4, &[FIELD_READ])]),
        row("BITFIELD_RO", 1, &[Key, Repeat(1, 3, &[FIELD_WRITE])]),
    ],
};
