//! Commands on keys of any type, and on databases as a whole.

mod database;
mod dump;
mod expire;
mod iterate;
mod object;
mod presence;
mod relocate;
mod sort;
mod ttl;

use crate::{
    command::{Args, Command, CommandError},
    keyspace::EntryRef,
};

/// The rows of the family.
pub(super) const COMMANDS: &[Command] = &[
    relocate::COPY,
    iterate::DBSIZE,
    presence::DEL,
    dump::DUMP,
    presence::EXISTS,
    expire::EXPIRE,
    expire::EXPIREAT,
    ttl::EXPIRETIME,
    database::FLUSHALL,
    database::FLUSHDB,
    iterate::KEYS,
    relocate::MOVE,
    object::OBJECT,
    expire::PERSIST,
    expire::PEXPIRE,
    expire::PEXPIREAT,
    ttl::PEXPIRETIME,
    ttl::PTTL,
    iterate::RANDOMKEY,
    relocate::RENAME,
    relocate::RENAMENX,
    dump::RESTORE,
    dump::RESTORE_ASKING,
    iterate::SCAN,
    sort::SORT,
    sort::SORT_RO,
    database::SWAPDB,
    presence::TOUCH,
    ttl::TTL,
    presence::TYPE,
    presence::UNLINK,
];

/// Roughly how many elements an entry's value has. O(1).
fn elements_about(entry: EntryRef<'_>) -> usize {
    const ELEMENT_BYTES: usize = 16;
    entry.object().map_or(0, |object| object.heap_bytes() / ELEMENT_BYTES)
}

/// Reads the number of a database.
fn database_index(args: &mut Args<'_>, databases: usize) -> Result<usize, CommandError> {
    const OUT_OF_INT: CommandError =
        CommandError::text("ERR value is out of range, value must between -2147483648 and 2147483647");
    let index = args.integer();
    args.check()?;
    i32::try_from(index).map_err(|_| OUT_OF_INT)?;
    in_range(index, databases)
}

/// The number of a database that exists.
fn in_range(index: i64, databases: usize) -> Result<usize, CommandError> {
    let index = usize::try_from(index).ok().filter(|index| *index < databases);
    index.ok_or(CommandError::text("ERR DB index is out of range"))
}
