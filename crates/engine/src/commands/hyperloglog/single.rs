//! Adding elements and counting them.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::hyperloglog;

use super::{corrupt, hyperloglog_of, merge};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::WriteContext,
    notify::EventClass,
};

pub(super) const PFADD: Command = Command {
    name: "pfadd",
    summary: "Adds elements to a HyperLogLog, which is created where the key is missing; 1 if that changed it.",
    since: "2.8.9",
    group: Group::HyperLogLog,
    complexity: "O(1) per element",
    arity: Arity::AtLeast(2),
    run: Run::Write(pfadd),
    flags: Flags::DENY_OOM.and(Flags::FAST),
    keys: &[KeySpec::at(1).read_write().inserts()],
    args: &[Argument::key("key"), Argument::string("element").optional().multiple()],
    ..Command::DEFAULT
};

fn pfadd(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, elements) = (args.word(), args.take_rest());
    let changed = add(context, key, elements)?;
    if changed {
        context.notify(EventClass::String, "pfadd", key);
    }
    reply.integer(changed.into());
    Ok(())
}

/// Adds elements to the value of a key; returns whether that changed it, or created it.
fn add(context: &mut WriteContext<'_>, key: &[u8], elements: &[&[u8]]) -> Result<bool, CommandError> {
    let mut dense_changes = None;
    context.edit_string_in_place(key, |bytes| {
        dense_changes = hyperloglog::add_to_dense(bytes, elements);
        (dense_changes? > 0).then_some(((), true))
    });
    if let Some(changes) = dense_changes {
        context.count_changes(changes);
        return Ok(changes > 0);
    }
    // Missing or sparse. Most additions to a sketch change nothing, so that is found out first.
    if let Some(string) = context.string(key)? {
        let hyperloglog = hyperloglog_of(string)?;
        if elements.iter().all(|element| hyperloglog.covers(element) == Ok(true)) {
            return Ok(false);
        }
    }
    let sparse_bytes_max = context.layout().limits.hll_sparse_max_bytes;
    let mut changes = 0;
    let added = context.edit_string(key, |bytes| {
        if bytes.is_empty() {
            changes = 1;
            *bytes = hyperloglog::new_hyperloglog();
            hyperloglog::forget_cardinality(bytes);
        }
        // Elements that were added before the runs turned out to be broken stay, as in Redis.
        elements.iter().try_for_each(|element| {
            changes += usize::from(hyperloglog::add(bytes, element, sparse_bytes_max)?);
            Ok(())
        })
    })?;
    context.count_changes(changes);
    added.map(|()| true).map_err(corrupt)
}

pub(super) const PFCOUNT: Command = Command {
    name: "pfcount",
    summary: "Estimates how many different elements HyperLogLogs have together.",
    since: "2.8.9",
    group: Group::HyperLogLog,
    complexity: "O(1) for one key whose estimate is cached, otherwise O(n) in the number of keys",
    arity: Arity::AtLeast(2),
    // PFCOUNT keeps the estimate in the value.
    run: Run::Write(pfcount),
    flags: Flags::READ_ONLY,
    keys: &[KeySpec::at(1).through(-1, 1).read_write().accesses()],
    args: &[Argument::key("key").multiple()],
    ..Command::DEFAULT
};

fn pfcount(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let keys = args.take_rest();
    let &[key] = keys else {
        let union = merge::union(context, keys)?;
        reply.integer(union.estimate() as i64);
        return Ok(());
    };
    let estimate = match context.string(key)? {
        None => None,
        Some(string) => {
            let hyperloglog = hyperloglog_of(string)?;
            let cached = hyperloglog.cached().map(|cached| (cached, false));
            Some(match cached {
                Some(cached) => cached,
                None => (hyperloglog.estimate().map_err(corrupt)?, true),
            })
        }
    };
    context.count_lookup(key, estimate.is_some());
    if let Some((cardinality, true)) = estimate {
        context.edit_string_in_place(key, |bytes| {
            hyperloglog::cache_cardinality(bytes, cardinality);
            Some(((), true))
        });
    }
    reply.integer(estimate.map_or(0, |(cardinality, _)| cardinality as i64));
    Ok(())
}

#[cfg(test)]
mod tests {
    use dunlin_structures::hyperloglog::HyperLogLog;

    use crate::transcript::{Scenario, check};
    use dunlin_resp::Protocol;

    #[test]
    fn elements_are_added_and_counted() {
        check(
            "
            > PFADD k
            :1
            > PFADD k
            :0
            > PFCOUNT k
            :0
            > PFADD k a b c a
            :1
            > PFADD k b
            :0
            > PFCOUNT k
            :3
            > PFCOUNT missing
            :0
            > OBJECT ENCODING k
            $3 raw
            > PFADD other c d
            :1
            > PFCOUNT k other missing
            :4
            ",
        );
    }

    #[test]
    fn pfadd_and_pfcount_refuse_other_strings() {
        check(
            "
            > MSET n 5 t text
            +OK
            > SADD s a
            :1
            > PFADD n a
            -WRONGTYPE Key is not a valid HyperLogLog string value.
            > PFADD t
            -WRONGTYPE Key is not a valid HyperLogLog string value.
            > PFCOUNT s
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > PFCOUNT missing t
            -WRONGTYPE Key is not a valid HyperLogLog string value.
            > PFADD k a
            :1
            > SETRANGE k 16 \"\\x00\\x00\\x00\\x00\\x00\"
            :21
            > PFCOUNT k
            -INVALIDOBJ Corrupted HLL object detected
            > PFADD k b
            -INVALIDOBJ Corrupted HLL object detected
            > PFCOUNT k k
            -INVALIDOBJ Corrupted HLL object detected
            > PFMERGE d k
            -INVALIDOBJ Corrupted HLL object detected
            ",
        );
    }

    #[test]
    fn pfadd_leaves_a_refused_string_as_it_was() {
        check(
            "
            > SET t text
            +OK
            > PFADD t a
            -WRONGTYPE Key is not a valid HyperLogLog string value.
            > OBJECT ENCODING t
            $6 embstr
            ",
        );
    }

    #[test]
    fn pfcount_caches_its_estimate_until_a_change() {
        let mut scenario = Scenario::new();
        let cached = |scenario: &mut Scenario| {
            let reply = scenario.reply("GET k", Protocol::Resp2);
            let start = reply.windows(2).position(|pair| pair == b"\r\n").expect("a bulk string") + 2;
            HyperLogLog::read(&reply[start..reply.len() - 2]).expect("a HyperLogLog").cached()
        };
        scenario.play("> PFADD k a\n:1");
        assert_eq!(cached(&mut scenario), None);
        scenario.play("> PFCOUNT k\n:1");
        assert_eq!(cached(&mut scenario), Some(1));
        scenario.play("> PFADD k a\n:0");
        assert_eq!(cached(&mut scenario), Some(1));
        scenario.play("> PFADD k b\n:1");
        assert_eq!(cached(&mut scenario), None);
    }

    #[test]
    fn pfadd_turns_a_sketch_dense_at_the_threshold() {
        let mut scenario = Scenario::new();
        scenario.policy.collection_limits.hll_sparse_max_bytes = 20;
        scenario.play(
            "
            > PFADD k
            :1
            > PFDEBUG ENCODING k
            +sparse
            > PFADD k a
            :1
            > PFDEBUG ENCODING k
            +dense
            > PFADD k a
            :0
            > PFADD k b c
            :1
            > PFCOUNT k
            :3
            > STRLEN k
            :12304
            ",
        );
    }
}
