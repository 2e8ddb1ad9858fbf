//! Unions.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::hyperloglog::{self, HyperLogLogUnion};

use super::{corrupt, hyperloglog_of};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::WriteContext,
    notify::EventClass,
};

/// The union of the HyperLogLogs under several keys; missing ones have no elements.
pub(super) fn union(
    context: &mut WriteContext<'_>,
    keys: &[&[u8]],
) -> Result<HyperLogLogUnion, CommandError> {
    let mut union = HyperLogLogUnion::default();
    for key in keys {
        let found = match context.string(key)? {
            Some(string) => {
                union.add(hyperloglog_of(string)?).map_err(corrupt)?;
                true
            }
            None => false,
        };
        context.count_lookup(key, found);
    }
    Ok(union)
}

pub(super) const PFMERGE: Command = Command {
    name: "pfmerge",
    summary: "Adds the elements of HyperLogLogs to another, which is created where its key is missing.",
    since: "2.8.9",
    group: Group::HyperLogLog,
    complexity: "O(n) in the number of keys",
    arity: Arity::AtLeast(2),
    run: Run::Write(pfmerge),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).read_write().accesses().inserts(), KeySpec::at(2).through(-1, 1).accesses()],
    args: &[Argument::key("destkey"), Argument::key("sourcekey").key_spec(1).optional().multiple()],
    ..Command::DEFAULT
};

fn pfmerge(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let keys = args.take_rest();
    let target = keys[0];
    let union = union(context, keys)?;
    let sparse_bytes_max = context.layout().limits.hll_sparse_max_bytes;
    let written = context.edit_string(target, |bytes| {
        if bytes.is_empty() {
            *bytes = hyperloglog::new_hyperloglog();
        }
        union.write_to(bytes, sparse_bytes_max)
    })?;
    written.map_err(corrupt)?;
    // Redis reports a merge under this name.
    context.notify(EventClass::String, "pfadd", target);
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn unions_are_stored() {
        check(
            "
            > PFADD a 1 2 3
            :1
            > PFADD b 3 4
            :1
            > PFMERGE d a b missing
            +OK
            > PFCOUNT d
            :4
            > PFMERGE d
            +OK
            > PFCOUNT d
            :4
            > PFDEBUG ENCODING d
            +sparse
            > PFDEBUG TODENSE b
            :1
            > PFMERGE d b
            +OK
            > PFDEBUG ENCODING d
            +dense
            > PFCOUNT d
            :4
            > PFMERGE new
            +OK
            > PFCOUNT new
            :0
            > SET t text
            +OK
            > PFMERGE t a
            -WRONGTYPE Key is not a valid HyperLogLog string value.
            > PFMERGE d a t
            -WRONGTYPE Key is not a valid HyperLogLog string value.
            ",
        );
    }
}
