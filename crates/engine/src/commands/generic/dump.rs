//! Values as bytes that another server understands, and back.

use dunlin_resp::{ReplyBuffer, SharedSlice, number::parse_integer};

use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, KeySpec, Run},
    context::{ExpiryChange, ReadContext, WriteContext},
    keyspace::EntryRef,
    notify::EventClass,
    rdb::{DumpError, read_dump},
};

pub(super) const DUMP: Command = Command {
    name: "dump",
    summary: "Returns the value under a key as bytes that RESTORE takes, here and on other servers.",
    since: "2.6.0",
    complexity: "O(n) in the size of the value",
    arity: Arity::Exactly(2),
    run: Run::Read(dump),
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key")],
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

pub(super) const RESTORE: Command = Command {
    name: "restore",
    summary: "Stores a value that DUMP returned.",
    since: "2.6.0",
    complexity: "O(n) in the size of the value; O(n log n) for sorted sets",
    arity: Arity::AtLeast(4),
    run: Run::Write(restore),
    flags: Flags::DENY_OOM.and(Flags::DANGEROUS),
    keys: &[KeySpec::at(1).overwrite().updates()],
    args: &[
        Argument::key("key"),
        Argument::integer("ttl"),
        Argument::string("serialized-value"),
        Argument::word("replace", "REPLACE").since("3.0.0").optional(),
        Argument::word("absttl", "ABSTTL").since("5.0.0").optional(),
        Argument::integer("seconds").after("IDLETIME").since("5.0.0").optional(),
        Argument::integer("frequency").after("FREQ").since("5.0.0").optional(),
    ],
    ..Command::DEFAULT
};

pub(super) const RESTORE_ASKING: Command = Command {
    name: "restore-asking",
    summary: "Stores a value that DUMP returned, into a slot that is being moved here.",
    since: "3.0.0",
    flags: Flags::DENY_OOM.and(Flags::DANGEROUS).and(Flags::ASKING),
    ..RESTORE
};

/// Bytes of a collection that are written or read in the time that visiting an element takes.
const BYTES_PER_VISIT: usize = 32;

fn dump(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    match context.find(args.word()) {
        None => reply.null(),
        Some(entry) => {
            let bytes = entry.object().map_or_else(|| entry.string().len(), |object| object.heap_bytes());
            context.weigh(bytes / BYTES_PER_VISIT)?;
            let dump = context.dump(entry);
            let length = dump.iter().map(SharedSlice::len).sum();
            match &dump[..] {
                [whole] if length < ReplyBuffer::SPLICE_BYTES_MIN => reply.bulk(whole),
                _ => reply.bulk_pieces(length, dump.into_iter().flat_map(in_pieces)),
            }
        }
    }
    Ok(())
}

/// A long run of bytes in pieces that are sent, and freed, one after the other.
fn in_pieces(bytes: SharedSlice) -> Vec<SharedSlice> {
    match bytes.len() {
        ..=ReplyBuffer::PIECE_BYTES => vec![bytes],
        _ => bytes.chunks(ReplyBuffer::PIECE_BYTES).map(|piece| piece.to_vec().into()).collect(),
    }
}

/// The options of RESTORE.
#[derive(Default)]
struct Options {
    replace: bool,
    /// The expiry is a unix time.
    absolute: bool,
    idle_seconds: Option<u64>,
    frequency: Option<u8>,
}

fn options(args: &mut Args<'_>) -> Result<Options, CommandError> {
    const IDLE: CommandError = CommandError::text("ERR Invalid IDLETIME value, must be >= 0");
    const FREQUENCY: CommandError = CommandError::text("ERR Invalid FREQ value, must be >= 0 and <= 255");
    let mut options = Options::default();
    while !args.is_empty() {
        if args.token("REPLACE") {
            options.replace = true;
        } else if args.token("ABSTTL") {
            options.absolute = true;
        } else if options.frequency.is_none() && args.token_with("IDLETIME", 1) {
            let seconds = args.integer();
            args.check()?;
            options.idle_seconds = Some(u64::try_from(seconds).map_err(|_| IDLE)?);
        } else if options.idle_seconds.is_none() && args.token_with("FREQ", 1) {
            let frequency = args.integer();
            args.check()?;
            options.frequency = Some(u8::try_from(frequency).map_err(|_| FREQUENCY)?);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(options)
}

fn restore(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    const BUSY: CommandError = CommandError::text("BUSYKEY Target key name already exists.");
    const NEGATIVE: CommandError = CommandError::text("ERR Invalid TTL value, must be >= 0");
    const FOOTER: CommandError = CommandError::text("ERR DUMP payload version or checksum are wrong");
    const FORMAT: CommandError = CommandError::text("ERR Bad data format");
    let &[key, ttl, payload] = args.take(3) else { unreachable!("its arity asks for three") };
    let options = options(args)?;
    let (database, now_ms) = (context.database(), context.now_ms());
    let found = !context.is_offloaded() && context.contains_in(database, key);
    if found && !options.replace {
        return Err(BUSY);
    }
    let ttl = parse_integer(ttl).ok_or(CommandError::NotInteger)?;
    let ttl = u64::try_from(ttl).map_err(|_| NEGATIVE)?;
    let relaxed = context.policy().relaxed_versions;
    let bytes = |_: &[Option<EntryRef<'_>>]| payload.len() / BYTES_PER_VISIT;
    let value = context.compute(&[], bytes, |_, layout| read_dump(payload, relaxed, layout))?;
    let value = value.map_err(|error| match error {
        DumpError::Footer => FOOTER,
        DumpError::Value(_) => FORMAT,
    })?;
    if value.foreign_type().is_some() && context.policy().refuses_foreign {
        return Err(FORMAT);
    }
    let expiry = match ttl {
        0 => None,
        at if options.absolute => Some(at),
        ttl => Some(
            context
                .clock_ms()
                .checked_add(ttl)
                .filter(|at| i64::try_from(*at).is_ok())
                .ok_or(CommandError::InvalidExpire("restore"))?,
        ),
    };
    let relative = expiry.filter(|_| !options.absolute);
    if expiry.is_some_and(|at| at <= now_ms) {
        if found {
            context.remove(key);
            context.record_removal(key);
            context.notify(EventClass::Generic, "del", key);
        }
    } else {
        let expiry = expiry.map_or(ExpiryChange::Clear, ExpiryChange::At);
        // A payload may be compressed.
        context.check_room(database, value.bytes())?;
        value.store(|value| context.set_value_in(database, key, value, expiry));
        context.set_usage(key, options.idle_seconds, options.frequency);
        if let Some(at) = relative.filter(|_| context.is_recorded()) {
            let mut at_ms = itoa::Buffer::new();
            let at_ms = at_ms.format(at).as_bytes();
            let words = args.words();
            context.propagate(&[&words[..2], &[at_ms], &words[3..], &[b"ABSTTL"]].concat());
        }
        if found {
            context.notify(EventClass::New, "new", key);
        }
        context.notify(EventClass::Generic, "restore", key);
    }
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use dunlin_resp::Protocol;

    use crate::{
        command::CommandTable,
        commands,
        rdb::{Version, seal_dump},
        transcript::Scenario,
    };

    /// Bytes as an inline request quotes them.
    fn quoted(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()
    }

    /// The reply of DUMP, quoted.
    fn dump(scenario: &mut Scenario, key: &str) -> String {
        let reply = scenario.reply(&format!("DUMP {key}"), Protocol::Resp2);
        let start = reply.iter().position(|byte| *byte == b'\n').expect("a bulk string") + 1;
        quoted(&reply[start..reply.len() - 2])
    }

    fn digest(scenario: &mut Scenario, key: &str) -> Vec<u8> {
        let table = CommandTable::new(&[commands::debug::COMMANDS]);
        scenario.reply_from(&table, &format!("DIGEST-VALUE {key}"), Protocol::Resp2)
    }

    /// DUMP of redis-server 7.0.15 after each command.
    const LIKE_REDIS: &[(&str, &str)] = &[
        ("SET k 5", "00c0050a00632f5f66832fb351"),
        ("SET k -129", "00c17fff0a001760822854808480"),
        ("SET k 70000", "00c2701101000a0001a408fe953095a5"),
        ("SET k 12345678901", "000b31323334353637383930310a00304e52d727176510"),
        ("SET k hello", "000568656c6c6f0a006372df766534200a"),
        ("SET k abcabcabcabcabcabcabcabcabcabc", "00c30b1e0361626361e00f020162630a008874be6d67e59d2a"),
        ("SADD k 1 2 3", "0b0e02000000030000000100020003000a00a5025ce26d6e4d1b"),
        (
            "SADD k 1 70000 -5000000000",
            "0b200800000003000000000efad5feffffff010000000000000070110100000000000a00efdd381b9dc91177",
        ),
        (
            "HSET k a 1 b 2 c text",
            "101a1a000000060081610201018162020201816302847465787405ff0a00682701786f4f13f3",
        ),
        ("SADD k a", "020101610a006296e97e44d21a6d"),
    ];

    #[test]
    fn dumps_have_the_bytes_of_redis() {
        for (command, expected) in LIKE_REDIS {
            let mut scenario = Scenario::new();
            scenario.reply(command, Protocol::Resp2);
            assert_eq!(dump(&mut scenario, "k").replace("\\x", ""), *expected, "{command}");
        }
    }

    #[test]
    fn restore_brings_back_what_dump_wrote() {
        let mut many = String::from("SADD k");
        (0..600).for_each(|number| many.push_str(&format!(" m{number}")));
        for command in [
            "SET k 5",
            "SET k -70000",
            "SET k 9223372036854775807",
            "SET k \"\"",
            "SET k hello",
            &format!("SET k {}", "long".repeat(5000)),
            "SADD k 1 2 3",
            "SADD k 1 70000 -5000000000",
            "SADD k a b 3",
            &many,
            "HSET k a 1 b 2 c text",
            "HSETEX k EX 100 FIELDS 2 a 1 b 2",
            &format!("HSET k a {} b 2", "v".repeat(100)),
        ] {
            let mut scenario = Scenario::new();
            scenario.reply(command, Protocol::Resp2);
            let payload = dump(&mut scenario, "k");
            scenario.play(&format!("> RESTORE copy 0 \"{payload}\"\n+OK"));
            assert_eq!(digest(&mut scenario, "k"), digest(&mut scenario, "copy"), "{command}");
            let encoding = |scenario: &mut Scenario, key| {
                scenario.reply(&format!("OBJECT ENCODING {key}"), Protocol::Resp2)
            };
            assert_eq!(encoding(&mut scenario, "k"), encoding(&mut scenario, "copy"), "{command}");
        }
    }

    #[test]
    fn refusals_come_in_the_order_of_redis() {
        let mut scenario = Scenario::new();
        scenario.play("> SET k v\n+OK");
        let good = dump(&mut scenario, "k");
        let mut no_type = vec![99];
        seal_dump(&mut no_type, Version::Redis(10));
        let no_type = quoted(&no_type);
        scenario.play(&format!(
            "
            > DUMP none
            $-1
            3> DUMP none
            _
            > RESTORE k x junk BUSY
            -ERR syntax error
            > RESTORE k x junk IDLETIME
            -ERR syntax error
            > RESTORE k x junk IDLETIME x
            -ERR value is not an integer or out of range
            > RESTORE k x junk IDLETIME -1
            -ERR Invalid IDLETIME value, must be >= 0
            > RESTORE k x junk FREQ 256
            -ERR Invalid FREQ value, must be >= 0 and <= 255
            > RESTORE k x junk FREQ -1
            -ERR Invalid FREQ value, must be >= 0 and <= 255
            > RESTORE k x junk FREQ 1 IDLETIME 1
            -ERR syntax error
            > RESTORE k x junk IDLETIME 1 FREQ 1
            -ERR syntax error
            > RESTORE k x junk
            -BUSYKEY Target key name already exists.
            > RESTORE k x junk REPLACE
            -ERR value is not an integer or out of range
            > RESTORE k -1 junk REPLACE
            -ERR Invalid TTL value, must be >= 0
            > RESTORE k 0 junk REPLACE
            -ERR DUMP payload version or checksum are wrong
            > RESTORE k 0 \"{good}x\" REPLACE
            -ERR DUMP payload version or checksum are wrong
            > RESTORE k 0 \"{no_type}\" REPLACE
            -ERR Bad data format
            > GET k
            $1 v
            > RESTORE k 0 \"{good}\" REPLACE FREQ 7
            +OK
            > RESTORE-ASKING k 0 \"{good}\" REPLACE
            +OK
            ",
        ));
    }

    #[test]
    fn expiry_and_idle_time_are_restored() {
        let mut scenario = Scenario::new();
        scenario.play("> SET v text\n+OK");
        let good = dump(&mut scenario, "v");
        scenario.play(&format!(
            "
            > RESTORE k 5000 \"{good}\"
            +OK
            > PTTL k
            :5000
            > RESTORE k 1700000009000 \"{good}\" ABSTTL REPLACE IDLETIME 100
            +OK
            > PTTL k
            :9000
            > OBJECT IDLETIME k
            :100
            > RESTORE k 0 \"{good}\" REPLACE IDLETIME 1000000000
            +OK
            > PTTL k
            :-1
            > OBJECT IDLETIME k
            :1000000000
            > RESTORE k 1 \"{good}\" ABSTTL REPLACE
            +OK
            > EXISTS k
            :0
            > RESTORE k 1 \"{good}\" ABSTTL
            +OK
            > EXISTS k
            :0
            > RESTORE k 9223372036854775807 \"{good}\"
            -ERR invalid expire time in 'restore' command
            > RESTORE k 9223372036854775807 \"{good}\" ABSTTL
            +OK
            > PEXPIRETIME k
            :9223372036854775807
            "
        ));
    }
}
