//! The checks, in the order in which they count.

use dunlin_engine::command::{Command, CommandError, Entry, Flags, Run};

use super::{Effects, Facts, Issuer, PauseScope, Verdict, Wait};

/// Why a command that writes is refused after a snapshot that failed.
pub(crate) const UNSAVED: CommandError = CommandError::text(
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.",
);

/// Why a replica's clients may not write.
pub(crate) const READONLY: CommandError =
    CommandError::text("READONLY You can't write against a read only replica.");
/// Why a replica's clients may not read data that may be stale.
pub(crate) const MASTERDOWN: CommandError =
    CommandError::text("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.");

/// Why clients may not write while there are fewer good replicas than `min-replicas-to-write`.
pub(crate) const NOREPLICAS: CommandError =
    CommandError::text("NOREPLICAS Not enough good replicas to write.");

/// Why a primary answers no client while it cannot know whether the shard goes on without it.
pub(crate) const CLUSTERDOWN: CommandError = CommandError::text(
    "CLUSTERDOWN The cluster is down: this primary does not reach the members of its shard that it needs",
);

/// A check: a condition, the commands that it concerns, and the verdict.
pub(crate) struct Row {
    /// Its condition. Invariant: its number is the row's place in the table.
    pub(crate) check: Check,
    /// Whether it concerns a command, whatever the words are.
    pub(crate) concerns: fn(&Entry) -> bool,
    /// The verdict on a command that it concerns while the condition is met; `None` to go on.
    pub(crate) verdict: fn(&Entry, &mut dyn Facts) -> Option<Verdict>,
}

/// The conditions, each with its place in [`CHECKS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Check {
    /// The client has to authenticate, and has not.
    Authentication,
    /// Commands are being queued: some cannot be.
    Nesting,
    /// A script calls: some commands are not for scripts.
    Script,
    /// There is something that the user may not do.
    Access,
    /// The server is a node of a cluster: other nodes have other slots.
    Slots,
    /// The server is a node of a cluster, and may not answer as a primary now.
    Lease,
    /// A script calls: no command waits.
    Blocking,
    /// A script calls that has promised to change nothing.
    ReadOnlyScript,
    /// The client listens, and could not tell messages from replies.
    Listening,
    /// The client watches others with MONITOR.
    Monitoring,
    /// The client takes redirections, and the server is a replica.
    Redirect,
    /// There are fewer good replicas than `min-replicas-to-write`.
    FewReplicas,
    /// The server is a replica that its clients may not write to.
    ReadOnlyReplica,
    /// The server is a replica whose link is down, and stale data are not served.
    StaleReplica,
    /// The data set is being loaded.
    Loading,
    /// The last snapshot has failed.
    Unsaved,
    /// There is a limit of memory.
    Memory,
    /// The queue of a snapshot is full.
    SnapshotQueue,
    /// The log cannot be written.
    LogFailure,
    /// The log has no room.
    LogRoom,
    /// Clients are paused.
    Pause,
    /// A script keeps all clients out of the keyspace.
    ClosedGate,
    /// A script may hold keys for long; always asked.
    LockedKeys,
    /// There is an audit log.
    Audit,
    /// Commands are being queued.
    Queue,
}

/// Whether a command is for all clients that let commands be queued, or only in their queue.
fn is_queued(entry: &Entry, facts: &dyn Facts) -> bool {
    facts.is_queueing() && !entry.command.flags.has(Flags::UNQUEUED)
}

/// Whether a command runs others: those that were queued, or those of a script.
pub(crate) fn runs_others(command: &Command) -> bool {
    command.flags.has(Flags::RUNS_QUEUE) || command.flags.has(Flags::RUNS_SCRIPT)
}

/// The effects of a command together with those that it runs.
fn effects(entry: &Entry, facts: &dyn Facts) -> Effects {
    let own = Effects::of(entry.command);
    if runs_others(entry.command) { own.and(facts.brought(entry)) } else { own }
}

fn has_any(entry: &Entry, facts: &dyn Facts, these: Effects) -> bool {
    effects(entry, facts).has_any(these)
}

/// Whether a command tells its client that something is wrong, though it needs nothing itself: PING, as in Redis.
fn is_health_check(entry: &Entry, facts: &dyn Facts) -> bool {
    entry.command.flags.has(Flags::HEALTH_CHECK) && facts.issuer() == Issuer::Client
}

/// Whether a command may change something, itself or by commands that it runs.
fn may_change(command: &Command) -> bool {
    command.may_write() || runs_others(command)
}

/// The verdict if something does not hold.
fn unless(holds: bool, refusal: impl FnOnce() -> CommandError) -> Option<Verdict> {
    (!holds).then(|| Verdict::Refuse(refusal()))
}

/// The verdict on a command that a script keeps out.
fn blocked_by_script(facts: &dyn Facts) -> Verdict {
    facts.waits_for_script().map_or_else(|| Verdict::Refuse(facts.busy()), Verdict::Park)
}

/// The checks in the order of Redis, as far as Redis has them; the first verdict counts.
pub(crate) const CHECKS: &[Row] = &[
    Row {
        check: Check::Authentication,
        concerns: |entry| !entry.command.flags.has(Flags::NO_AUTH),
        verdict: |_, _| unless(false, || CommandError::text("NOAUTH Authentication required.")),
    },
    Row {
        check: Check::Nesting,
        concerns: |entry| entry.command.flags.has(Flags::NO_MULTI),
        verdict: |_, _| unless(false, || CommandError::text("ERR Command not allowed inside a transaction")),
    },
    Row {
        check: Check::Script,
        concerns: |entry| entry.command.flags.has(Flags::NO_SCRIPT),
        verdict: |_, _| {
            unless(false, || CommandError::text("ERR This Redis command is not allowed from script"))
        },
    },
    Row {
        check: Check::Access,
        concerns: |_| true,
        verdict: |entry, facts| facts.check_access(entry).err().map(Verdict::Deny),
    },
    Row {
        check: Check::Slots,
        // Names of channels count as keys here. FLUSHALL and FLUSHDB concern all slots.
        concerns: |entry| {
            let command = entry.command;
            !command.keys.is_empty() || command.flags.has(Flags::RUNS_QUEUE) || command.is_exclusive()
        },
        verdict: |entry, facts| facts.route(entry),
    },
    Row {
        check: Check::Lease,
        // FLUSHALL and scripts may change keys that they do not name.
        concerns: |entry| !entry.command.keys.is_empty() || may_change(entry.command),
        // The command goes on when the lease is there again, or learns where the primary is.
        verdict: |entry, facts| {
            let waits = facts.waits_for_lease(entry);
            waits.then(|| facts.lease_refusal().map_or(Verdict::Park(Wait::Pause(None)), Verdict::Refuse))
        },
    },
    Row {
        check: Check::Blocking,
        concerns: |entry| matches!(entry.command.run, Run::Block(_)),
        verdict: |_, facts| facts.asks_to_block().map(Verdict::Refuse),
    },
    Row {
        check: Check::ReadOnlyScript,
        concerns: |entry| may_change(entry.command) || entry.command.flags.has(Flags::PUBLISHES),
        // Such scripts run while writes are paused, and so nothing that is held then may come from them.
        verdict: |_, _| {
            unless(false, || CommandError::text("ERR Write commands are not allowed from read-only scripts."))
        },
    },
    Row {
        check: Check::Listening,
        concerns: |entry| !entry.command.flags.has(Flags::FOR_LISTENERS),
        verdict: |entry, _| {
            unless(false, || {
                CommandError::owned(format!(
                    "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                     allowed in this context",
                    entry.full_name()
                ))
            })
        },
    },
    Row {
        check: Check::Monitoring,
        concerns: |entry| {
            let command = entry.command;
            may_change(command) || command.is_read_only() || command.flags.has(Flags::PUBLISHES)
        },
        verdict: |entry, facts| {
            let is_concerned = entry.command.is_read_only() || has_any(entry, facts, Effects::REPLICATES);
            unless(!is_concerned, || CommandError::text("ERR Replica can't interact with the keyspace"))
        },
    },
    Row {
        check: Check::Redirect,
        concerns: |entry| {
            let command = entry.command;
            command.is_write() || command.is_read_only() || runs_others(command)
        },
        verdict: |entry, facts| {
            let is_concerned = entry.command.is_read_only() || has_any(entry, facts, Effects::WRITES);
            if is_concerned { facts.redirection(entry) } else { None }
        },
    },
    Row {
        check: Check::FewReplicas,
        concerns: |entry| may_change(entry.command),
        verdict: |entry, facts| unless(!has_any(entry, facts, Effects::WRITES), || NOREPLICAS),
    },
    Row {
        check: Check::ReadOnlyReplica,
        concerns: |entry| may_change(entry.command),
        verdict: |entry, facts| unless(!has_any(entry, facts, Effects::WRITES), || READONLY),
    },
    Row {
        check: Check::StaleReplica,
        concerns: |entry| !entry.command.flags.has(Flags::STALE) || runs_others(entry.command),
        verdict: |entry, facts| {
            let holds = !has_any(entry, facts, Effects::NEEDS_FRESH_DATA);
            unless(holds, || match facts.issuer() {
                Issuer::Script => CommandError::text("ERR Can not execute the command on a stale replica"),
                Issuer::Client | Issuer::Offload => MASTERDOWN,
            })
        },
    },
    Row {
        check: Check::Loading,
        concerns: |entry| !entry.command.flags.has(Flags::LOADING) || runs_others(entry.command),
        verdict: |entry, facts| {
            let holds = !has_any(entry, facts, Effects::NEEDS_LOADED_DATA);
            unless(holds, || CommandError::text("LOADING Redis is loading the dataset in memory"))
        },
    },
    Row {
        check: Check::Unsaved,
        concerns: |entry| may_change(entry.command) || entry.command.flags.has(Flags::HEALTH_CHECK),
        verdict: |entry, facts| {
            let is_refused = has_any(entry, facts, Effects::WRITES) || is_health_check(entry, facts);
            unless(!(is_refused && facts.denies_unsaved_writes()), || UNSAVED)
        },
    },
    Row {
        check: Check::Memory,
        concerns: |entry| entry.command.flags.has(Flags::DENY_OOM) || runs_others(entry.command),
        // Room is made before scripts are looked up: their commands may need it.
        verdict: |entry, facts| {
            let is_refused = facts.is_short_of_memory(entry) && has_any(entry, facts, Effects::NEEDS_MEMORY);
            unless(!is_refused, || CommandError::OutOfMemory)
        },
    },
    Row {
        check: Check::SnapshotQueue,
        concerns: |entry| may_change(entry.command),
        // Commands of a transaction wait once, before the first of them runs.
        verdict: |entry, facts| {
            let waits = !is_queued(entry, facts) && has_any(entry, facts, Effects::CHANGES);
            waits.then_some(Verdict::Park(Wait::Room))
        },
    },
    Row {
        check: Check::LogFailure,
        concerns: |entry| may_change(entry.command) || entry.command.flags.has(Flags::HEALTH_CHECK),
        verdict: |entry, facts| {
            let is_refused = has_any(entry, facts, Effects::WRITES) || is_health_check(entry, facts);
            unless(!is_refused, || facts.log_refusal())
        },
    },
    Row {
        check: Check::LogRoom,
        concerns: |entry| may_change(entry.command),
        verdict: |entry, facts| {
            let waits = has_any(entry, facts, Effects::WRITES.and(Effects::MAY_WRITE));
            (waits && !facts.log_has_room()).then_some(Verdict::Park(Wait::Room))
        },
    },
    Row {
        check: Check::Pause,
        // CLIENT UNPAUSE has to get through, and acknowledgements of replicas: a failover waits for them during its pause.
        concerns: |entry| !entry.command.flags.has(Flags::UNPAUSED),
        verdict: |entry, facts| {
            let (scope, until) = facts.pause()?;
            let is_held = scope == PauseScope::Everything || has_any(entry, facts, Effects::REPLICATES);
            is_held.then_some(Verdict::Park(Wait::Pause(until)))
        },
    },
    Row {
        check: Check::ClosedGate,
        // Keys to be watched are in the keyspace; nothing else that commands for such moments touch is.
        concerns: |entry| {
            !entry.command.flags.has(Flags::ALLOW_BUSY) || entry.command.flags.has(Flags::WATCHES_KEYS)
        },
        verdict: |_, facts| Some(blocked_by_script(facts)),
    },
    Row {
        check: Check::LockedKeys,
        // Commands that look at all keys; those that close the gate, too.
        concerns: |entry| {
            let flags = entry.command.flags;
            matches!(entry.command.run, Run::Keyspace(_))
                || flags.has(Flags::WHOLE_KEYSPACE) && !flags.has(Flags::NO_SCRIPT)
        },
        verdict: |_, facts| facts.are_keys_held_for_long().then(|| blocked_by_script(facts)),
    },
    Row {
        check: Check::Audit,
        concerns: |_| true,
        verdict: |entry, facts| {
            let holds = !facts.is_refused_by_audit(entry);
            unless(holds, || {
                CommandError::text(
                    "ERR the audit log cannot be written, and commands that it records are refused",
                )
            })
        },
    },
    Row {
        check: Check::Queue,
        concerns: |entry| !entry.command.flags.has(Flags::UNQUEUED),
        verdict: |_, _| Some(Verdict::Queue),
    },
];
