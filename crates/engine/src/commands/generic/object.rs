//! How values are kept.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, KeySpec, Run},
    context::ReadContext,
    value::StringRef,
};

pub(super) const OBJECT: Command = Command {
    name: "object",
    summary: "Holds the commands that tell how values are kept.",
    since: "2.2.3",
    complexity: "Depends on the subcommand.",
    arity: Arity::AtLeast(2),
    run: Run::Container,
    subcommands: &[ENCODING, FREQ, HELP, IDLETIME, REFCOUNT],
    ..Command::DEFAULT
};

const SUBCOMMAND: Command = Command {
    since: "2.2.3",
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    keys: &[KeySpec::at(2)],
    args: &[Argument::key("key")],
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

const ENCODING: Command = Command {
    name: "encoding",
    summary: "Returns the encoding of the value under a key.",
    run: Run::Read(encoding),
    ..SUBCOMMAND
};

const FREQ: Command = Command {
    name: "freq",
    summary: "Returns how often the value under a key is used, on a logarithmic scale.",
    since: "4.0.0",
    run: Run::Read(frequency),
    ..SUBCOMMAND
};

const HELP: Command = Command {
    name: "help",
    summary: "Lists the subcommands.",
    since: "6.2.0",
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    run: Run::Help(&[
        "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "ENCODING <key>",
        "    The encoding of the value under <key>.",
        "FREQ <key>",
        "    How often <key> is used, on a logarithmic scale. Needs an LFU maxmemory policy.",
        "IDLETIME <key>",
        "    Seconds since <key> was last used. Needs a policy other than LFU.",
        "REFCOUNT <key>",
        "    How many references there are to the value under <key>.",
        "HELP",
        "    This text.",
    ]),
    flags: Flags::LOADING.and(Flags::STALE),
    ..Command::DEFAULT
};

const IDLETIME: Command = Command {
    name: "idletime",
    summary: "Returns how many seconds ago a key was last used.",
    run: Run::Read(idle_time),
    ..SUBCOMMAND
};

const REFCOUNT: Command = Command {
    name: "refcount",
    summary: "Returns how many references there are to the value under a key.",
    run: Run::Read(reference_count),
    ..SUBCOMMAND
};

fn encoding(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    match context.inspect_quietly(args.word()) {
        Some(entry) => reply.bulk(entry.encoding().as_bytes()),
        None => reply.null(),
    }
    Ok(())
}

fn frequency(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    const NO_LFU: CommandError = CommandError::text(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
         Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
    );
    match context.inspect_quietly(args.word()) {
        Some(entry) => reply.integer(context.frequency(entry).ok_or(NO_LFU)?.into()),
        None => reply.null(),
    }
    Ok(())
}

fn idle_time(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    const LFU: CommandError = CommandError::text(
        "ERR An LFU maxmemory policy is selected, idle time not tracked. \
         Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
    );
    match context.inspect_quietly(args.word()) {
        Some(entry) => reply.integer(context.idle_seconds(entry).ok_or(LFU)? as i64),
        None => reply.null(),
    }
    Ok(())
}

fn reference_count(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    /// Redis's reply for the small integers that it keeps once for all keys.
    const SHARED_FOREVER: i64 = i32::MAX as i64;
    match context.inspect_quietly(args.word()) {
        None => reply.null(),
        Some(entry) => {
            let text = (!entry.is_object()).then(|| entry.string());
            let shared = matches!(text, Some(StringRef::Integer(0..10_000)));
            reply.integer(if shared { SHARED_FOREVER } else { 1 });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::{Scenario, check};

    #[test]
    fn encodings_are_named() {
        let (short, long) = ("x".repeat(44), "x".repeat(45));
        check(&format!(
            "
            > OBJECT ENCODING k
            $-1
            3> OBJECT ENCODING k
            _
            > SET k -5
            +OK
            > OBJECT ENCODING k
            $3 int
            > SET k {short}
            +OK
            > OBJECT ENCODING k
            $6 embstr
            > SET k {long}
            +OK
            > OBJECT ENCODING k
            $3 raw
            "
        ));
    }

    #[test]
    fn idle_time_is_told_and_asking_is_no_use() {
        check(
            "
            > OBJECT IDLETIME k
            $-1
            > SET k v
            +OK
            > OBJECT IDLETIME k
            :0
            @ +81920
            > TTL k
            :-1
            > EXISTS k
            :1
            > OBJECT IDLETIME k
            :81
            > TOUCH k
            :1
            > OBJECT IDLETIME k
            :0
            ",
        );
    }

    #[test]
    fn no_touch_client_leaves_idle_times_alone() {
        let mut scenario = Scenario::new();
        scenario.play("> SET k v\n+OK\n> SET n 1\n+OK\n@ +81920");
        scenario.caller.no_touch = true;
        scenario.play("> GET k\n$1 v\n> GETRANGE k 0 0\n$1 v\n> OBJECT IDLETIME k\n:81");
        scenario.caller.no_touch = false;
        scenario.play("> GET k\n$1 v\n> OBJECT IDLETIME k\n:0\n> OBJECT IDLETIME n\n:81");
    }

    #[test]
    fn idle_time_under_lrm_is_that_since_the_last_change() {
        let mut scenario = Scenario::new();
        let long = "x".repeat(3000);
        scenario.policy.stamps_changes = true;
        scenario.caller.no_touch = true;
        scenario
            .play(&format!("> MSET k v n 1 e v d {long} s {long}\n+OK\n> RPUSH l a b\n:2\n> HSET h f 1\n:1"));
        scenario.play("> XADD x 1 a 1\n$3 1-0\n@ +81920");
        scenario
            .play(&format!("> GET k\n$1 v\n> TOUCH k l\n:2\n> GETRANGE s 0 0\n$1 x\n> GET d\n$3000 {long}"));
        scenario.play(
            "> LRANGE l 0 0\n*1 $1 a\n> HGET h f\n$1 1\n> XLEN x\n:1\n> GETEX k\n$1 v\n> SET k w NX\n$-1",
        );
        for key in ["k", "n", "e", "d", "s", "l", "h", "x"] {
            scenario.play(&format!("> OBJECT IDLETIME {key}\n:81"));
        }
        scenario.play(
            "> SET k v\n+OK\n> INCR n\n:2\n> EXPIRE e 1000\n:1\n> APPEND d x\n:3001\n> SETRANGE s 9 y\n:3000",
        );
        scenario.play("> LPOP l\n$1 a\n> HSET h f 2\n:0\n> XADD x 2 a 1\n$3 2-0");
        for key in ["k", "n", "e", "d", "s", "l", "h", "x"] {
            scenario.play(&format!("> OBJECT IDLETIME {key}\n:0"));
        }
    }

    #[test]
    fn expired_keys_can_stay_where_they_are() {
        let mut scenario = Scenario::new();
        scenario.caller.keep_expired = true;
        scenario.play("> SET k v PX 10\n+OK\n@ +10\n> GET k\n$-1\n> DBSIZE\n:1");
        scenario.caller.keep_expired = false;
        scenario.play("> GET k\n$-1\n> DBSIZE\n:0");
    }

    #[test]
    fn object_subcommands_answer_as_in_redis() {
        check(
            "
            > OBJECT FREQ k
            $-1
            > OBJECT REFCOUNT k
            $-1
            > SET k v
            +OK
            > OBJECT REFCOUNT k
            :1
            > OBJECT FREQ k
            -ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.
            > SET k 9999
            +OK
            > OBJECT REFCOUNT k
            :2147483647
            > OBJECT FREQ
            -ERR wrong number of arguments for 'object|freq' command
            ",
        );
    }
}
