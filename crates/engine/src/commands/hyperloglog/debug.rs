//! Views for operators: registers, runs, encodings.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::hyperloglog::{self, HLL_REGISTERS, HyperLogLog, Run as RegisterRun};

use super::{corrupt, hyperloglog_of};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::WriteContext,
};

pub(super) const PFDEBUG: Command = Command {
    name: "pfdebug",
    summary: "Shows how a HyperLogLog is stored, or turns it dense.",
    since: "2.8.9",
    group: Group::HyperLogLog,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    run: Run::Write(pfdebug),
    flags: Flags::DENY_OOM.and(Flags::ADMIN),
    keys: &[KeySpec::at(2).read_write().accesses()],
    args: &[Argument::string("subcommand"), Argument::key("key")],
    ..Command::DEFAULT
};

fn pfdebug(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (subcommand, key) = (args.word(), args.word());
    if subcommand.eq_ignore_ascii_case(b"SIMD") {
        return simd(key, reply);
    }
    let string = context.string(key)?.ok_or(CommandError::text("ERR The specified key does not exist"))?;
    let hyperloglog = hyperloglog_of(string)?;
    match subcommand.to_ascii_uppercase().as_slice() {
        b"GETREG" => {
            reply.array(HLL_REGISTERS);
            let told = hyperloglog.for_each_register(|_, value| reply.integer(value.into()));
            told.map_err(corrupt)?;
            // As in Redis, a command that asks for registers converts the value to the dense form.
            make_dense(context, key)?;
        }
        b"DECODE" if hyperloglog.is_dense() => {
            return Err(CommandError::text("ERR HLL encoding is not sparse"));
        }
        b"DECODE" => reply.bulk(runs_text(hyperloglog).as_bytes()),
        b"ENCODING" => reply.simple(if hyperloglog.is_dense() { "dense" } else { "sparse" }),
        b"TODENSE" => reply.integer(make_dense(context, key)?.into()),
        _ => return Err(CommandError::quoting_within("ERR Unknown PFDEBUG subcommand '", subcommand, "'")),
    }
    Ok(())
}

/// `SIMD ON` and `SIMD OFF` choose between two codes for the same result; there is one here, which
/// is the answer to both.
fn simd(state: &[u8], reply: &mut ReplyBuffer) -> CommandResult {
    if !state.eq_ignore_ascii_case(b"ON") && !state.eq_ignore_ascii_case(b"OFF") {
        return Err(CommandError::text("ERR Argument must be ON or OFF"));
    }
    reply.simple("disabled");
    Ok(())
}

/// Turns the HyperLogLog under a key dense. Returns whether it was not.
fn make_dense(context: &mut WriteContext<'_>, key: &[u8]) -> Result<bool, CommandError> {
    let is_dense = match context.string(key)? {
        Some(string) => hyperloglog_of(string)?.is_dense(),
        None => true,
    };
    if !is_dense {
        context.edit_string(key, hyperloglog::make_dense)?.map_err(corrupt)?;
    }
    Ok(!is_dense)
}

/// `z:` and `Z:` for runs of zeros with their length, `v:` for runs of a value with both.
fn runs_text(hyperloglog: HyperLogLog<'_>) -> String {
    let runs = hyperloglog.runs().map(|run| match run {
        RegisterRun::Zero(len) => format!("z:{len}"),
        RegisterRun::LongZero(len) => format!("Z:{len}"),
        RegisterRun::Value(value, len) => format!("v:{value},{len}"),
    });
    runs.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn pfdebug_takes_a_hyperloglog_apart() {
        check(
            "
            > PFADD k a
            :1
            > PFDEBUG DECODE k
            $20 Z:12711 v:2,1 Z:3672
            > PFDEBUG encoding k
            +sparse
            > PFDEBUG TODENSE k
            :1
            > PFDEBUG TODENSE k
            :0
            > PFDEBUG DECODE k
            -ERR HLL encoding is not sparse
            > PFCOUNT k
            :1
            > PFDEBUG FOO k
            -ERR Unknown PFDEBUG subcommand 'FOO'
            > PFDEBUG ENCODING missing
            -ERR The specified key does not exist
            > PFDEBUG SIMD on
            +disabled
            > PFDEBUG SIMD maybe
            -ERR Argument must be ON or OFF
            > SET t text
            +OK
            > PFDEBUG FOO t
            -WRONGTYPE Key is not a valid HyperLogLog string value.
            ",
        );
    }
}
