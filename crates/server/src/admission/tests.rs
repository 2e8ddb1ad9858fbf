//! A test for each check, and one for their order.

use dunlin_acl::Reason;
use dunlin_engine::command::{CommandTable, Flags};
use dunlin_scripting::ScriptFlags;

use super::*;
use crate::commands;

/// Facts as a test sets them.
struct Given {
    caller: Issuer,
    denial: Option<Denial>,
    is_queueing: bool,
    brought: Effects,
    is_short_of_memory: bool,
    denies_unsaved_writes: bool,
    log_has_room: bool,
    pause: Option<PauseScope>,
    are_keys_held: bool,
    asks_to_block: bool,
    is_refused_by_audit: bool,
    is_elsewhere: bool,
    waits_for_script: bool,
    waits_for_lease: bool,
}

const NOTHING: Given = Given {
    caller: Issuer::Client,
    denial: None,
    is_queueing: false,
    brought: Effects::NONE,
    is_short_of_memory: false,
    denies_unsaved_writes: false,
    log_has_room: true,
    pause: None,
    are_keys_held: false,
    asks_to_block: false,
    is_refused_by_audit: false,
    is_elsewhere: false,
    waits_for_script: false,
    waits_for_lease: false,
};

const BUSY: CommandError = CommandError::text("BUSY");
const LOG: CommandError = CommandError::text("MISCONF log");
const MOVED: CommandError = CommandError::text("MOVED 1 host:7000");
const BLOCKS: CommandError = CommandError::text("ERR blocks");

impl Facts for Given {
    fn issuer(&self) -> Issuer {
        self.caller
    }

    fn check_access(&mut self, _: &Entry) -> Result<(), Denial> {
        self.denial.map_or(Ok(()), Err)
    }

    fn is_queueing(&self) -> bool {
        self.is_queueing
    }

    fn is_refused_by_audit(&self, _: &Entry) -> bool {
        self.is_refused_by_audit
    }

    fn route(&mut self, _: &Entry) -> Option<Verdict> {
        self.is_elsewhere.then_some(Verdict::Redirect(MOVED))
    }

    fn waits_for_lease(&self, _: &Entry) -> bool {
        self.waits_for_lease
    }

    fn brought(&self, _: &Entry) -> Effects {
        self.brought
    }

    fn is_short_of_memory(&mut self, _: &Entry) -> bool {
        self.is_short_of_memory
    }

    fn denies_unsaved_writes(&self) -> bool {
        self.denies_unsaved_writes
    }

    fn log_refusal(&self) -> CommandError {
        LOG
    }

    fn log_has_room(&self) -> bool {
        self.log_has_room
    }

    fn pause(&self) -> Option<(PauseScope, Option<Instant>)> {
        self.pause.map(|scope| (scope, None))
    }

    fn are_keys_held_for_long(&self) -> bool {
        self.are_keys_held
    }

    fn busy(&self) -> CommandError {
        BUSY
    }

    fn waits_for_script(&self) -> Option<Wait> {
        self.waits_for_script.then_some(Wait::Pause(None))
    }

    fn asks_to_block(&self) -> Option<CommandError> {
        self.asks_to_block.then_some(BLOCKS)
    }
}

fn find<'t>(table: &'t CommandTable, name: &str) -> &'t Entry {
    table.find_full(name.as_bytes()).unwrap_or_else(|| panic!("no command {name}"))
}

/// Expects these commands to get verdicts while one condition is met.
#[track_caller]
fn check(condition: Check, given: Given, expected: &[(&str, &str)]) {
    let table = commands::table();
    let mut given = given;
    for (names, text) in expected {
        for name in names.split(' ') {
            let verdict = decide(Conditions::of(condition), find(&table, name), &mut given);
            assert_eq!(shown(&verdict), *text, "{name}");
        }
    }
}

/// The beginning of an error, or what else a verdict is.
fn shown(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Run => "run".to_owned(),
        Verdict::Queue => "queue".to_owned(),
        Verdict::Park(Wait::Room) => "park: room".to_owned(),
        Verdict::Park(Wait::Pause(_)) => "park: pause".to_owned(),
        Verdict::Refuse(error) | Verdict::Redirect(error) => {
            let line = error.to_string();
            line.split(' ').take(2).collect::<Vec<_>>().join(" ")
        }
        Verdict::Deny(denial) => format!("deny: {}", denial.reason.name()),
    }
}

#[test]
fn checks_stand_at_their_numbers() {
    for (number, row) in CHECKS.iter().enumerate() {
        assert_eq!(row.check as usize, number, "{:?}", row.check);
    }
}

#[test]
fn admission_without_conditions_lets_everything_run() {
    let table = commands::table();
    for entry in table.entries() {
        assert_eq!(decide(Conditions::default(), entry, &mut { NOTHING }), Verdict::Run);
        assert_eq!(decide(Conditions::ALWAYS, entry, &mut { NOTHING }), Verdict::Run);
    }
}

#[test]
fn authentication_is_asked_of_all_but_the_handshake() {
    check(
        Check::Authentication,
        NOTHING,
        &[
            ("get set ping exec config|get acl|whoami", "NOAUTH Authentication"),
            ("auth hello quit reset", "run"),
        ],
    );
}

#[test]
fn nesting_refuses_what_cannot_be_queued() {
    check(Check::Nesting, NOTHING, &[("get multi exec subscribe", "run"), ("shutdown", "ERR Command")]);
}

#[test]
fn script_refuses_what_is_not_for_scripts() {
    check(
        Check::Script,
        NOTHING,
        &[("get set select publish", "run"), ("eval subscribe auth multi", "ERR This")],
    );
}

#[test]
fn access_is_asked_of_every_command() {
    check(Check::Access, NOTHING, &[("get config|set auth", "run")]);
    let denial = Some(Denial { reason: Reason::Key, word: 1 });
    check(Check::Access, Given { denial, ..NOTHING }, &[("get config|set exec", "deny: key")]);
}

#[test]
fn slots_are_asked_for_where_there_are_keys_or_channels() {
    check(Check::Slots, NOTHING, &[("get set exec", "run")]);
    check(
        Check::Slots,
        Given { is_elsewhere: true, ..NOTHING },
        &[
            (
                "get set mget watch exec eval ssubscribe spublish sunsubscribe clusterscan flushall flushdb",
                "MOVED 1",
            ),
            ("ping scan keys dbsize multi subscribe publish script|load cluster|nodes", "run"),
        ],
    );
}

#[test]
fn commands_with_keys_wait_for_a_lease() {
    check(Check::Lease, NOTHING, &[("get set exec", "run")]);
    check(
        Check::Lease,
        Given { waits_for_lease: true, ..NOTHING },
        &[
            ("get set mget watch exec eval fcall blpop spublish flushall flushdb", "park: pause"),
            ("ping info scan dbsize keys multi subscribe cluster|tell cluster|nodes replconf", "run"),
        ],
    );
}

#[test]
fn blocking_is_refused_to_scripts() {
    let asks = || Given { asks_to_block: true, caller: Issuer::Script, ..NOTHING };
    check(Check::Blocking, asks(), &[("xread xreadgroup", "ERR blocks"), ("get set", "run")]);
    check(Check::Blocking, NOTHING, &[("xread blpop", "run")]);
}

#[test]
fn read_only_scripts_change_nothing() {
    check(
        Check::ReadOnlyScript,
        Given { caller: Issuer::Script, ..NOTHING },
        &[("set del publish spublish pfcount", "ERR Write"), ("get ping echo", "run")],
    );
}

#[test]
fn listening_leaves_few_commands() {
    check(
        Check::Listening,
        NOTHING,
        &[
            ("subscribe unsubscribe psubscribe punsubscribe ssubscribe sunsubscribe ping quit reset", "run"),
            ("get set multi exec hello auth pubsub|channels publish", "ERR Can't"),
        ],
    );
}

#[test]
fn monitoring_leaves_the_keyspace_alone() {
    check(
        Check::Monitoring,
        NOTHING,
        &[("get set keys publish pfcount eval_ro", "ERR Replica"), ("ping info config|get exec", "run")],
    );
}

#[test]
fn admission_refuses_writes_on_replicas_and_with_few_replicas() {
    for (condition, error) in
        [(Check::FewReplicas, "NOREPLICAS Not"), (Check::ReadOnlyReplica, "READONLY You")]
    {
        check(
            condition,
            NOTHING,
            &[("set del flushall", error), ("get ping eval exec pfcount publish", "run")],
        );
        check(condition, Given { brought: Effects::WRITES, ..NOTHING }, &[("exec", error)]);
    }
}

#[test]
fn stale_replica_leaves_what_needs_no_data() {
    check(
        Check::StaleReplica,
        NOTHING,
        &[("get set dbsize ping", "MASTERDOWN Link"), ("info config|get auth replicaof", "run")],
    );
}

#[test]
fn loading_leaves_what_needs_no_data() {
    check(
        Check::Loading,
        NOTHING,
        &[("get set dbsize ping", "LOADING Redis"), ("info config|get auth multi exec", "run")],
    );
}

#[test]
fn unsaved_refuses_writes_and_tells_health_checks() {
    let denies = || Given { denies_unsaved_writes: true, ..NOTHING };
    check(
        Check::Unsaved,
        denies(),
        &[("set del flushall ping", "MISCONF Redis"), ("get eval exec pfcount config|set", "run")],
    );
    check(Check::Unsaved, Given { brought: Effects::WRITES, ..denies() }, &[("exec", "MISCONF Redis")]);
    check(Check::Unsaved, Given { caller: Issuer::Script, ..denies() }, &[("ping", "run")]);
    check(Check::Unsaved, NOTHING, &[("set ping", "run")]);
}

#[test]
fn memory_refuses_what_may_need_some() {
    let short = Given { is_short_of_memory: true, ..NOTHING };
    check(Check::Memory, short, &[("set lpush", "OOM command"), ("get del exec ping", "run")]);
    check(Check::Memory, NOTHING, &[("set", "run")]);
}

#[test]
fn memory_leaves_what_frees_or_reads_to_a_queue() {
    let short = || Given { is_short_of_memory: true, is_queueing: true, ..NOTHING };
    check(Check::Memory, short(), &[("set lpush", "OOM command"), ("get del ping exec eval", "run")]);
    check(
        Check::Memory,
        Given { brought: Effects::NEEDS_MEMORY, ..short() },
        &[("exec eval", "OOM command")],
    );
}

#[test]
fn snapshot_queue_holds_writes_once() {
    check(
        Check::SnapshotQueue,
        NOTHING,
        &[("set del pfcount", "park: room"), ("get ping exec eval eval_ro", "run")],
    );
    let queueing = || Given { is_queueing: true, brought: Effects::WRITES, ..NOTHING };
    check(Check::SnapshotQueue, queueing(), &[("set", "run"), ("exec", "park: room")]);
}

#[test]
fn log_failure_refuses_writes_and_tells_health_checks() {
    check(Check::LogFailure, NOTHING, &[("set del ping", "MISCONF log"), ("get eval exec pfcount", "run")]);
    check(Check::LogFailure, Given { brought: Effects::WRITES, ..NOTHING }, &[("exec", "MISCONF log")]);
    check(
        Check::LogFailure,
        Given { caller: Issuer::Script, ..NOTHING },
        &[("ping", "run"), ("set", "MISCONF log")],
    );
}

#[test]
fn log_room_holds_writes() {
    let full = || Given { log_has_room: false, ..NOTHING };
    check(Check::LogRoom, full(), &[("set", "park: room"), ("get ping exec eval pfcount", "run")]);
    check(Check::LogRoom, Given { brought: Effects::WRITES, ..full() }, &[("exec", "park: room")]);
    check(Check::LogRoom, NOTHING, &[("set", "run")]);
}

#[test]
fn pause_holds_writes_or_everything() {
    let all = Given { pause: Some(PauseScope::Everything), ..NOTHING };
    check(Check::Pause, all, &[("get set ping config|get", "park: pause"), ("client|unpause", "run")]);
    let writes = || Given { pause: Some(PauseScope::Writes), ..NOTHING };
    check(Check::Pause, writes(), &[("set publish pfcount", "park: pause"), ("get ping exec", "run")]);
    check(Check::Pause, Given { brought: Effects::WRITES, ..writes() }, &[("exec", "park: pause")]);
    check(Check::Pause, NOTHING, &[("set", "run")]);
}

#[test]
fn closed_gate_leaves_what_needs_no_keys() {
    check(
        Check::ClosedGate,
        NOTHING,
        &[("get set watch info", "BUSY"), ("multi auth script|kill function|kill discard", "run")],
    );
    check(
        Check::ClosedGate,
        Given { waits_for_script: true, ..NOTHING },
        &[("get set watch info", "park: pause"), ("multi auth script|kill cluster|tell", "run")],
    );
}

#[test]
fn locked_keys_refuse_what_looks_at_all() {
    let held = Given { are_keys_held: true, ..NOTHING };
    check(Check::LockedKeys, held, &[("keys scan dbsize", "BUSY"), ("get set ping", "run")]);
    check(Check::LockedKeys, NOTHING, &[("keys", "run")]);
    let waits = Given { are_keys_held: true, waits_for_script: true, ..NOTHING };
    check(Check::LockedKeys, waits, &[("keys scan dbsize", "park: pause"), ("get set ping", "run")]);
}

#[test]
fn queue_takes_all_but_what_ends_it() {
    check(
        Check::Queue,
        NOTHING,
        &[("get set subscribe", "queue"), ("exec discard multi watch quit reset", "run")],
    );
}

#[test]
fn audit_refuses_what_it_cannot_record() {
    check(Check::Audit, NOTHING, &[("get set flushall", "run")]);
    check(
        Check::Audit,
        Given { is_refused_by_audit: true, ..NOTHING },
        &[("get set flushall", "ERR the"), ("exec multi", "ERR the")],
    );
}

#[test]
fn first_check_in_the_table_counts() {
    let table = commands::table();
    let set = find(&table, "set");
    let mut given = Given {
        denial: Some(Denial { reason: Reason::Command, word: 0 }),
        is_short_of_memory: true,
        denies_unsaved_writes: true,
        log_has_room: false,
        pause: Some(PauseScope::Everything),
        ..NOTHING
    };
    let all = CHECKS.iter().fold(Conditions::default(), |all, row| all.and(Conditions::of(row.check)));
    let mut met = all.0;
    let mut verdicts = Vec::new();
    while met != 0 {
        verdicts.push(shown(&decide(Conditions(met), set, &mut given)));
        // The condition has ceased to be the case.
        let concerns = set.concerns & met;
        if concerns == 0 {
            break;
        }
        met &= !(1 << concerns.trailing_zeros());
    }
    verdicts.dedup();
    let expected = [
        "NOAUTH Authentication",
        "deny: command",
        "ERR Write",
        "ERR Can't",
        "ERR Replica",
        "NOREPLICAS Not",
        "READONLY You",
        "MASTERDOWN Link",
        "LOADING Redis",
        "MISCONF Redis",
        "OOM command",
        "park: room",
        "MISCONF log",
        "park: room",
        "park: pause",
        "BUSY",
        "queue",
        "run",
    ];
    assert_eq!(verdicts, expected);
}

/// A caller: a command, and what runs it.
struct Caller {
    name: &'static str,
    command: &'static str,
    issuer: Issuer,
    /// The flags of the script that the command runs; `None` if there is no such script.
    script: Option<&'static str>,
    /// The queued commands that it runs, each with the flags of its script behind a slash.
    queue: &'static [&'static str],
}

const PLAIN: Caller = Caller { name: "", command: "", issuer: Issuer::Client, script: None, queue: &[] };

const fn plain(command: &'static str) -> Caller {
    Caller { name: command, command, ..PLAIN }
}

const fn script(name: &'static str, command: &'static str, flags: &'static str) -> Caller {
    Caller { name, command, script: Some(flags), ..PLAIN }
}

const fn exec(name: &'static str, queue: &'static [&'static str]) -> Caller {
    Caller { name, command: "exec", queue, ..PLAIN }
}

const fn of(issuer: Issuer, name: &'static str, command: &'static str) -> Caller {
    Caller { name, command, issuer, ..PLAIN }
}

/// The flags of a script in a word: `none` for no shebang.
fn flags(word: &str) -> ScriptFlags {
    let known = |flags: ScriptFlags, name: &str| flags.and(ScriptFlags::named(name.as_bytes()).unwrap());
    match word {
        "none" => ScriptFlags::COMPATIBLE,
        "" => ScriptFlags::default(),
        names => names.split(',').fold(ScriptFlags::default(), known),
    }
}

impl Caller {
    fn brought(&self, table: &CommandTable) -> Effects {
        let entry = find(table, self.command);
        if entry.command.flags.has(Flags::RUNS_SCRIPT) {
            return Effects::of_script(entry.command, self.script.map(flags));
        }
        let queued = self.queue.iter().map(|queued| {
            let (name, script) = queued.split_once('/').unwrap_or((queued, "none"));
            let command = find(table, name).command;
            let script = command
                .flags
                .has(Flags::RUNS_SCRIPT)
                .then(|| Effects::of_script(command, Some(flags(script))));
            Effects::of(command).and(script.unwrap_or_default())
        });
        queued.fold(Effects::NONE, Effects::and)
    }
}

/// All checks that depend on a command's effects, for all kinds of callers. Each column is a condition that is met: a
/// dot lets the command run, `P` holds it back, `E` refuses it.
#[test]
fn callers_meet_the_checks_by_their_effects() {
    const COLUMNS: [Check; 11] = [
        Check::Pause,
        Check::ReadOnlyReplica,
        Check::FewReplicas,
        Check::Unsaved,
        Check::LogFailure,
        Check::Memory,
        Check::StaleReplica,
        Check::Loading,
        Check::SnapshotQueue,
        Check::LogRoom,
        Check::Lease,
    ];
    #[rustfmt::skip]
    let rows: &[(Caller, &str)] = &[
        //                                              pause readonly few unsaved log oom stale loading queue room lease
        (plain("get"),                                                "......EE..P"),
        (plain("set"),                                                "PEEEEEEEPPP"),
        (plain("del"),                                                "PEEEE.EEPPP"),
        (plain("pfcount"),                                            "P.....EEP.P"),
        (plain("publish"),                                            "P.........."),
        (plain("ping"),                                               "...EE.EE..."),
        (plain("flushall"),                                           "PEEEE.EEPPP"),
        (plain("sort"),                                               "PEEEEEEEPPP"),
        (plain("sort_ro"),                                            "......EE..P"),
        (plain("blpop"),                                              "PEEEE.EEPPP"),
        (plain("migrate"),                                            "PEEEE.EEPPP"),
        (plain("function|load"),                                      "PEEEEEEEPPP"),
        (script("a script without flags", "eval", "none"),            "P......EPPP"),
        (script("by its name", "evalsha", "none"),                    "P......EPPP"),
        (script("read-only, without flags", "eval_ro", "none"),       ".......E..P"),
        (script("with flags", "eval", ""),                            "PEEEEEEEPPP"),
        (script("no-writes", "eval", "no-writes"),                    "......EE..P"),
        (script("no-writes by its name", "evalsha", "no-writes"),     "......EE..P"),
        (script("allow-oom", "eval", "allow-oom"),                    "PEEEE.EEPPP"),
        (script("allow-stale", "eval", "allow-stale"),                "PEEEEE.EPPP"),
        (script("both", "eval", "no-writes,allow-stale"),             ".......E..P"),
        (script("read-only, with flags", "evalsha_ro", ""),           "PEEEEEEEPPP"),
        (Caller { name: "unknown", command: "evalsha", ..PLAIN },     "P......EPPP"),
        (Caller { name: "unknown, read-only", command: "evalsha_ro", ..PLAIN }, ".......E..P"),
        (script("a function", "fcall", ""),                           "PEEEEEEEPPP"),
        (script("a function that reads", "fcall", "no-writes"),       "......EE..P"),
        (script("a function that reads", "fcall_ro", "no-writes"),    "......EE..P"),
        (Caller { name: "no function", command: "fcall", ..PLAIN },   "P......EPPP"),
        (exec("nothing", &[]),                                        "..........P"),
        (exec("a read", &["get"]),                                    "......EE..P"),
        (exec("a write", &["get", "set"]),                            "PEEEEEEEPPP"),
        (exec("a removal", &["del"]),                                 "PEEEE.EEPPP"),
        (exec("a change of form", &["pfcount"]),                      "P.....EEP.P"),
        (exec("a message", &["publish"]),                             "P.........P"),
        (exec("a script", &["eval"]),                                 "P......EPPP"),
        (exec("a script with flags", &["eval/"]),                     "PEEEEEEEPPP"),
        (exec("a script that reads", &["get", "evalsha/no-writes"]),  "......EE..P"),
        (exec("a function", &["fcall/allow-oom"]),                    "PEEEE.EEPPP"),
        (of(Issuer::Script, "a script's read", "get"),                "......EE..P"),
        (of(Issuer::Script, "a script's write", "set"),               "PEEEEEEEPPP"),
        (of(Issuer::Script, "a script's ping", "ping"),               "......EE..."),
        (of(Issuer::Offload, "a result", "sunionstore"),              "PEEEEEEEPPP"),
        (of(Issuer::Offload, "sent keys", "migrate"),                 "PEEEE.EEPPP"),
    ];
    let table = commands::table();
    for (caller, expected) in rows {
        let entry = find(&table, caller.command);
        let mut given = Given {
            caller: caller.issuer,
            brought: caller.brought(&table),
            is_short_of_memory: true,
            denies_unsaved_writes: true,
            log_has_room: false,
            pause: Some(PauseScope::Writes),
            waits_for_lease: true,
            ..NOTHING
        };
        let met = COLUMNS.map(|check| match decide(Conditions::of(check), entry, &mut given) {
            Verdict::Run => '.',
            Verdict::Park(_) => 'P',
            Verdict::Refuse(_) => 'E',
            verdict => panic!("{verdict:?}"),
        });
        assert_eq!(String::from_iter(met), *expected, "{} ({})", caller.name, caller.command);
    }
}

/// A check of a command's own properties would let commands pass that others bring along.
#[test]
fn admission_asks_commands_that_run_others_for_their_effects() {
    let table = commands::table();
    let asked = [
        Check::FewReplicas,
        Check::ReadOnlyReplica,
        Check::StaleReplica,
        Check::Loading,
        Check::Unsaved,
        Check::Memory,
        Check::SnapshotQueue,
        Check::LogFailure,
        Check::LogRoom,
        Check::Pause,
        Check::Lease,
        Check::Redirect,
    ];
    let mut others = 0;
    for entry in table.entries().iter().filter(|entry| checks::runs_others(entry.command)) {
        others += 1;
        for check in asked {
            assert!(
                Conditions::of(check).concern(entry, Conditions::of(check)),
                "{check:?} {}",
                entry.full_name()
            );
        }
    }
    assert_eq!(others, 7, "EXEC, EVAL, EVALSHA, FCALL and their read-only forms");
}
