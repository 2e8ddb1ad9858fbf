//! The part of HIMPORT that changes keys; the host completes the container with the commands on fieldsets.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ExpiryChange, WriteContext},
    value::{Collection, Hash},
};

/// `HIMPORT SET`, to be listed among the subcommands of the host's HIMPORT.
pub const SET: Command = Command {
    name: "set",
    summary: "Stores a hash with the fields of a fieldset, in place of a hash that is there.",
    since: "8.10.0",
    group: Group::Hash,
    complexity: "O(n) for n fields of the fieldset",
    arity: Arity::AtLeast(5),
    run: Run::Write(set),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(2).overwrite().updates()],
    args: &[Argument::key("key"), Argument::string("fieldset-name"), Argument::string("value").multiple()],
    ..Command::DEFAULT
};

/// Fields of one HSET of a record.
const RECORDED_FIELDS_MAX: usize = 1024;

fn set(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, name, values) = (args.word(), args.word(), args.take_rest());
    let fieldset = context.fieldset(name).ok_or(CommandError::text("ERR no such fieldset"))?;
    if fieldset.count() != values.len() {
        return Err(CommandError::text("ERR value count does not match fieldset field count"));
    }
    let replaces = context.collection::<Hash>(key)?.is_some();
    let pairs: Vec<&[u8]> = fieldset.names().zip(values).flat_map(|(field, value)| [field, *value]).collect();
    let (layout, now_ms) = (context.layout(), context.now_ms());
    let mut hash = Hash::new(context.resources());
    hash.expect(&pairs, layout);
    for pair in pairs.chunks_exact(2) {
        hash.set(pair[0], pair[1], ExpiryChange::Clear, now_ms, layout);
    }
    context.set_collection(key, hash, ExpiryChange::Clear);
    context.count_changes(values.len());
    if context.is_recorded() {
        record(context, key, replaces, &pairs);
    }
    context.notify_fields("hset", key, fieldset.names());
    reply.ok();
    Ok(())
}

/// Records a hash as commands that every server knows: other servers, and logs, know nothing of a client's fieldsets.
fn record(context: &mut WriteContext<'_>, key: &[u8], replaces: bool, pairs: &[&[u8]]) {
    if replaces {
        context.propagate(&[b"DEL", key]);
    }
    for pairs in pairs.chunks(2 * RECORDED_FIELDS_MAX) {
        context.propagate(&[&[b"HSET", key], pairs].concat());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        command::CommandTable,
        commands,
        transcript::{Records, Scenario},
    };

    const HIMPORT: Command = Command { name: "himport", subcommands: &[SET], ..Command::DEFAULT };

    /// A store whose client has prepared `s` with the fields `b` and `a`.
    fn prepared() -> (Scenario, Arc<Records>) {
        let (mut scenario, records) = Scenario::recorded();
        scenario.table = Arc::new(CommandTable::new(&[commands::FAMILIES, &[&[HIMPORT]]].concat()));
        scenario.worker.fieldsets.prepare(&scenario.caller, b"s", &[b"b", b"a"]).unwrap();
        (scenario, records)
    }

    #[test]
    fn himport_set_stores_a_hash_in_place_of_a_hash() {
        let (mut scenario, records) = prepared();
        scenario.play(
            "
            > HIMPORT SET h s 1 2
            +OK
            > HGETALL h
            *4 $1 b $1 1 $1 a $1 2
            > HSET h more x
            :1
            > EXPIRE h 100
            :1
            > HPEXPIRE h 100 FIELDS 1 a
            *1 :1
            > HIMPORT SET h s 3 4
            +OK
            > HGETALL h
            *4 $1 b $1 3 $1 a $1 4
            > TTL h
            :-1
            > HPTTL h FIELDS 1 a
            *1 :-1
            > OBJECT ENCODING h
            $8 listpack
            > SET text v
            +OK
            > HIMPORT SET text s 1 2
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > GET text
            $1 v
            > HIMPORT SET h nosuch 1 2
            -ERR no such fieldset
            > HIMPORT SET h s 1
            -ERR value count does not match fieldset field count
            > HIMPORT SET h s 1 2 3
            -ERR value count does not match fieldset field count
            > HGET h a
            $1 4
            > HIMPORT SET h s
            -ERR wrong number of arguments for 'himport|set' command
            ",
        );
        let records = records.take();
        assert_eq!(records[0], "HSET h b 1 a 2");
        assert_eq!(records[4], "MULTI; DEL h; HSET h b 3 a 4; EXEC");
        assert_eq!(records.len(), 6);
    }

    #[test]
    fn himport_set_keeps_to_the_encodings_and_records_large_hashes_in_parts() {
        let (mut scenario, records) = prepared();
        let names: Vec<String> = (0..2500).map(|number| format!("f{number}")).collect();
        let fields: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        scenario.worker.fieldsets.discard_all(&scenario.caller);
        scenario.worker.fieldsets.prepare(&scenario.caller, b"wide", &fields).unwrap_err();
        let fields = &fields[..1500];
        scenario.worker.fieldsets.prepare(&scenario.caller, b"wide", fields).unwrap();
        let values = vec!["v"; 1500].join(" ");
        scenario.play(&format!(
            "> HIMPORT SET h wide {values}\n+OK\n> OBJECT ENCODING h\n$9 hashtable\n> HLEN h\n:1500"
        ));
        let record = records.take().remove(0);
        let commands: Vec<&str> = record.split("; ").collect();
        assert_eq!(commands.len(), 4, "MULTI, two commands, EXEC");
        assert!(commands[1].starts_with("HSET h f0 v f1 v ") && commands[2].starts_with("HSET h f1024 v "));
    }
}
