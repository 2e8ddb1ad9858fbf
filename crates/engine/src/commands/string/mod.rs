//! Commands on strings.

mod bounded;
mod compare;
mod counter;
mod get;
mod lcs;
#[cfg(test)]
mod long;
mod many;
mod range;
mod set;

use crate::command::Command;

/// The rows of the family.
pub(super) const COMMANDS: &[Command] = &[
    range::APPEND,
    counter::DECR,
    counter::DECRBY,
    compare::DELEX,
    compare::DELIFEQ,
    compare::DIGEST,
    get::GET,
    get::GETDEL,
    get::GETEX,
    range::GETRANGE,
    get::GETSET,
    counter::INCR,
    counter::INCRBY,
    counter::INCRBYFLOAT,
    bounded::INCREX,
    lcs::LCS,
    many::MGET,
    many::MSET,
    many::MSETEX,
    many::MSETNX,
    set::PSETEX,
    set::SET,
    set::SETEX,
    set::SETNX,
    range::SETRANGE,
    get::STRLEN,
    range::SUBSTR,
];
