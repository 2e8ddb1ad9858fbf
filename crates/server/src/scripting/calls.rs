//! The calls of a running script: commands, under the locks of its keys.

use std::time::{Duration, Instant};

use dunlin_acl::{Context, Denial};
use dunlin_engine::{
    Environment, Request, Transaction,
    command::{Args, CommandError, CommandResult, Entry, Flags, Run},
};
use dunlin_resp::ReplyBuffer;
use dunlin_scripting::{LogLevel, ScriptFlags, ScriptHost, Sha};

use crate::{
    access::AclRequest,
    admission::{self, Check, Conditions, Facts, Slots, Verdict, decide},
    cluster::route::script_refusal,
    executor::{Handler, ServerContext, check_patterns, filled_database},
    lua::{
        self,
        running::{Due, KILLED_LINE, Kind, Running, Watch},
    },
    observe::error_counts::ErrorSource,
    push::monitor::{self, Origin},
    workers::WorkerMessage,
};

/// The append-only log, among the targets of `redis.set_repl`.
const REPL_AOF: u8 = 1;

/// A script at work for a client.
pub(super) struct Calls<'c, 'a, 'k> {
    context: &'c mut ServerContext<'a, 'k>,
    transaction: &'c mut Transaction<'k>,
    /// The database that the script has selected.
    database: usize,
    /// Whether commands that may change the data set are refused.
    read_only: bool,
    /// Whether memory is short, and commands that need more are refused until the first write.
    short_of_memory: bool,
    has_written: bool,
    /// Whether databases with a limit of their own are asked for room.
    keeps_limits: bool,
    /// The databases that had room when the script began to fill them.
    filled: Vec<usize>,
    /// The slot that its keys have to be in, on a node of a cluster.
    slots: Slots,
    may_cross_slots: bool,
    who: Who<'c>,
    /// The time, once the clock has been read.
    watch: Option<Watch>,
}

/// The name of a script.
#[derive(Debug, Clone, Copy)]
pub(super) enum Name<'c> {
    Script(Sha),
    Function(&'c [u8]),
}

impl Name<'_> {
    fn kind(&self) -> Kind {
        match self {
            Self::Script(_) => Kind::Script,
            Self::Function(_) => Kind::Function,
        }
    }

    fn text(&self) -> Vec<u8> {
        match self {
            Self::Script(sha) => sha.hex().to_vec(),
            Self::Function(name) => name.to_vec(),
        }
    }
}

/// Which script it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Who<'c> {
    pub(super) name: Name<'c>,
    pub(super) words: &'c [&'c [u8]],
}

impl<'c, 'a, 'k> Calls<'c, 'a, 'k> {
    pub(super) fn new(
        context: &'c mut ServerContext<'a, 'k>,
        transaction: &'c mut Transaction<'k>,
        flags: ScriptFlags,
        read_only: bool,
        short_of_memory: bool,
        slots: Slots,
        who: Who<'c>,
    ) -> Self {
        let database = context.session.database;
        let short_of_memory = short_of_memory && !flags.has(ScriptFlags::ALLOW_OOM);
        let is_free = ScriptFlags::COMPATIBLE;
        let may_cross_slots = flags.has(is_free)
            || flags.has(ScriptFlags::ALLOW_CROSS_SLOT_KEYS)
            || context.executor.may_cross_slots();
        Self {
            context,
            transaction,
            database,
            read_only,
            short_of_memory,
            has_written: false,
            keeps_limits: !flags.has(ScriptFlags::ALLOW_OOM),
            filled: Vec::new(),
            slots,
            may_cross_slots,
            who,
            watch: None,
        }
    }

    fn worker(&self) -> usize {
        self.context.executor.worker.id()
    }

    /// Ends its time: afterwards other threads need not know of it.
    pub(super) fn end(self) {
        // The commands of a transaction around it are recorded again.
        self.transaction.mute(false);
        if self.is_known() {
            self.context.shared.running.end(self.worker());
            self.context.executor.queues().hold_up(self.worker(), false);
        }
    }

    /// Shows one of its commands to monitors.
    #[cold]
    fn show(&mut self, entry: &Entry, words: &[&[u8]]) {
        let line = monitor::line(entry, words, self.database, Origin::Script);
        self.context.executor.show_line(line);
    }

    fn is_known(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_known)
    }

    /// Lets others know of it.
    #[cold]
    fn become_known(&mut self, since: Instant) {
        let Who { name, words } = self.who;
        let words = words.iter().map(|word| word.to_vec()).collect();
        let running = Running { kind: name.kind(), name: name.text(), words, since };
        self.context.shared.running.begin(self.worker(), running, self.has_written);
        let queues = self.context.executor.queues();
        queues.hold_up(self.worker(), true);
        // The services may have connections to accept now.
        queues.send_to_services(WorkerMessage::HeldUp);
    }

    /// Makes clients that it keeps out be answered BUSY: those that wait look again.
    #[cold]
    fn become_busy(&mut self, after: Duration) {
        tracing::warn!(
            "Slow script detected: still in execution after {} milliseconds. It can be ended with {}. Script name is: {}.",
            after.as_millis(),
            self.who.name.kind().command(),
            self.who.name.text().escape_ascii()
        );
        self.context.shared.running.become_busy(self.worker());
        self.context.executor.queues().send_to_everyone(WorkerMessage::Unpaused);
    }

    /// Looks at the worker's other clients: those that need no keys are served, others wait, or are answered BUSY.
    #[cold]
    fn attend_to_others(&mut self) {
        let begun = Instant::now();
        let is_stopping = self.context.poll_nested();
        self.watch.as_mut().into_iter().for_each(|watch| watch.attended(begun));
        if is_stopping && !self.context.shared.running.stop(self.worker()) {
            self.context.executor.is_abandoned = true;
        }
    }

    /// Whether the databases that it fills may have no room.
    fn asks_databases(&self) -> bool {
        self.keeps_limits && self.context.executor.limits_databases()
    }

    /// The conditions for each command that the script calls.
    fn conditions(&self) -> Conditions {
        let shared = self.context.shared;
        let fails = shared.engine.log.is_on() && shared.durability.is_failing();
        Conditions::of(Check::Script)
            .and(Conditions::of(Check::Blocking))
            .with(Check::Access, self.context.session.conditions.has(Check::Access))
            .with(Check::ReadOnlyScript, self.read_only)
            .with(Check::Slots, shared.cluster.is_on())
            .with(Check::Unsaved, shared.persistence.has_failed())
            .with(Check::Memory, self.short_of_memory || self.asks_databases())
            .with(Check::LogFailure, fails)
            .with(Check::FewReplicas, !self.has_written && self.lacks_replicas())
            .and(self.role_conditions())
    }

    fn lacks_replicas(&self) -> bool {
        let shared = self.context.shared;
        self.context.executor.lacks_replicas(shared, self.context.session, shared.cluster.is_on())
    }

    /// The conditions of the server's role. A script that has written goes on to its end.
    fn role_conditions(&self) -> Conditions {
        match self.has_written {
            true => Conditions::default(),
            false => self.context.shared.replication.conditions(self.context.executor.config.config()),
        }
    }

    /// The command of a request, if a script may call it.
    fn admit(&mut self, words: &[&[u8]]) -> Result<&'k Entry, CommandError> {
        let entry = find(self.context, words)
            .ok_or(CommandError::text("ERR Unknown Redis command called from script"))?;
        if !entry.command.arity.accepts(words.len()) || matches!(entry.command.run, Run::Container) {
            return Err(CommandError::text("ERR Wrong number of args calling Redis command from script"));
        }
        let conditions = self.conditions();
        let shared = self.context.shared;
        let mut facts = ScriptFacts { calls: self, words };
        match decide(conditions, entry, &mut facts) {
            Verdict::Refuse(error) | Verdict::Redirect(error) => return Err(error),
            Verdict::Deny(denial) => {
                let (executor, session) = (&*self.context.executor, &*self.context.session);
                return Err(executor.deny(session, (entry, words), denial, Context::Script, self.database));
            }
            // Nothing of a script is queued or waits.
            Verdict::Run | Verdict::Queue | Verdict::Park(_) => {}
        }
        if entry.command.is_write() {
            if entry.command.flags.has(Flags::DENY_OOM) {
                let context = &mut *self.context;
                context.executor.is_short_for(entry, words, self.database, context.turn.inside.as_ref());
            }
            // A script that has begun to write goes on.
            self.short_of_memory = false;
            if self.is_known() && !shared.running.write(self.worker()) {
                return Err(CommandError::owned(format!("ERR {KILLED_LINE}")));
            }
            self.has_written = true;
        }
        Ok(entry)
    }

    fn run(&mut self, entry: &'k Entry, words: &[&[u8]], reply: &mut ReplyBuffer) -> CommandResult {
        let executor = &mut *self.context.executor;
        match entry.command.run.host() {
            Some(handler) => {
                let Handler(handler) = handler.downcast_ref().expect("the server's own handlers");
                let mark = reply.mark();
                let mut args = Args::new(words, entry.name_words());
                let flow = self.context.flow;
                let selected = std::mem::replace(&mut self.context.session.database, self.database);
                let result = handler(self.context, &mut args, reply);
                self.database = std::mem::replace(&mut self.context.session.database, selected);
                self.context.flow = flow;
                if result.is_err() {
                    reply.rewind(mark);
                }
                result
            }
            None => {
                check_patterns(self.context.session, &AclRequest { entry, words, database: self.database })?;
                let request = Request { entry, words, keys: &[], encoded: &[] };
                let (environment, worker) =
                    (Environment::new(&executor.policy, &executor.caller), &mut executor.worker);
                let result = self.transaction.run(&request, self.database, environment, worker, reply);
                executor.see(entry, words);
                result
            }
        }
    }
}

/// The facts about a command that a script calls.
struct ScriptFacts<'f, 'c, 'a, 'k> {
    calls: &'f mut Calls<'c, 'a, 'k>,
    words: &'f [&'f [u8]],
}

impl Facts for ScriptFacts<'_, '_, '_, '_> {
    fn issuer(&self) -> admission::Issuer {
        admission::Issuer::Script
    }

    fn check_access(&mut self, entry: &Entry) -> Result<(), Denial> {
        let request = AclRequest { entry, words: self.words, database: self.calls.database };
        self.calls.context.session.user.decide(&request)
    }

    fn route(&mut self, entry: &Entry) -> Option<Verdict> {
        let Calls { context, slots, may_cross_slots, .. } = &mut *self.calls;
        let (route, own) =
            context.executor.route_in_script(context.shared, context.session, entry, self.words);
        let refusal = script_refusal(route);
        if refusal.is_some() || *may_cross_slots {
            return refusal.map(Verdict::Redirect);
        }
        match slots.join(own) {
            Slots::Several(_) => Some(Verdict::Redirect(CommandError::text(
                "ERR Script attempted to access keys that do not hash to the same slot",
            ))),
            joined => {
                *slots = joined;
                None
            }
        }
    }

    fn is_short_of_memory(&mut self, entry: &Entry) -> bool {
        let Calls { context, database, short_of_memory, filled, .. } = &mut *self.calls;
        if *short_of_memory {
            return entry.command.is_write();
        }
        // Once in each database: a script that has begun to fill it goes on.
        let database = filled_database(entry, self.words, *database);
        if filled.contains(&database) {
            return false;
        }
        let context = &mut **context;
        let inside = context.turn.inside.as_ref();
        let is_short = context.executor.is_short_in(entry, self.words, database, inside);
        if !is_short {
            filled.push(database);
        }
        is_short
    }

    fn denies_unsaved_writes(&self) -> bool {
        let context = &self.calls.context;
        context.shared.denies_writes(context.executor.config.config())
    }

    fn log_refusal(&self) -> CommandError {
        self.calls.context.shared.durability.refusal()
    }

    fn log_has_room(&self) -> bool {
        true
    }

    fn are_keys_held_for_long(&self) -> bool {
        false
    }

    fn busy(&self) -> CommandError {
        self.calls.context.shared.running.busy()
    }

    fn asks_to_block(&self) -> Option<CommandError> {
        asks_to_block(self.words).then(|| {
            let text = " command is not allowed with BLOCK option from scripts";
            CommandError::quoting_within("ERR ", self.words[0], text)
        })
    }
}

/// Whether a read of streams has the option to wait, which it would not be let to.
fn asks_to_block(words: &[&[u8]]) -> bool {
    let [name, rest @ ..] = words else { return false };
    if !name.eq_ignore_ascii_case(b"xread") && !name.eq_ignore_ascii_case(b"xreadgroup") {
        return false;
    }
    let mut rest = rest;
    while let [option, behind @ ..] = rest {
        let operands = match &option.to_ascii_lowercase()[..] {
            b"block" => return !behind.is_empty(),
            b"group" => 2,
            b"count" => 1,
            b"noack" => 0,
            _ => return false,
        };
        rest = behind.get(operands..).unwrap_or_default();
    }
    false
}

/// The command or subcommand of a request.
fn find<'k>(context: &ServerContext<'_, 'k>, words: &[&[u8]]) -> Option<&'k Entry> {
    let table = &context.shared.commands;
    let entry = table.find(words.first()?)?;
    match words.get(1) {
        Some(name) if !entry.subcommands.is_empty() => table.find_subcommand(entry, name),
        _ => Some(entry),
    }
}

impl ScriptHost for Calls<'_, '_, '_> {
    fn call(&mut self, words: &[&[u8]], reply: &mut ReplyBuffer) {
        let entry = match self.admit(words) {
            Ok(entry) => entry,
            Err(error) => {
                let line = error.line();
                let exists =
                    |entry: &&Entry| !matches!(entry.command.run, Run::Container) || words.len() == 1;
                self.context.executor.count_rejection(find(self.context, words).filter(exists), &line);
                return reply.error(&line);
            }
        };
        let words_of_row;
        let words = match (entry.renamed.is_some(), words) {
            (true, [_, operands @ ..]) => {
                // From here on it goes by the name that logs and replicas know.
                let name = entry.container.unwrap_or(entry.command).name.as_bytes();
                words_of_row = [&[name], operands].concat();
                &words_of_row[..]
            }
            _ => words,
        };
        if self.context.session.conditions.has(Check::Audit) {
            self.context.executor.audit_command(self.context.session, entry, words);
        }
        let begun = self.context.executor.begin_call(entry);
        let mark = reply.mark();
        let (is_watched, is_last) =
            (self.context.shared.monitor.is_watched(), monitor::is_shown_afterwards(entry));
        if is_watched && !is_last {
            self.show(entry, words);
        }
        let result = self.run(entry, words, reply);
        if is_watched && is_last {
            self.show(entry, words);
        }
        if let Err(error) = result {
            let line = error.line();
            self.context.executor.count_failure(entry, &line);
            reply.error(&line);
        }
        let context = &mut *self.context;
        let reply_bytes = reply.bytes_since(mark);
        context.executor.end_call(context.shared, context.session, (entry, words), begun, reply_bytes);
    }

    fn note_error(&mut self, line: &[u8]) {
        self.context.executor.count_error(line, ErrorSource::Script);
        self.context.has_failed = true;
    }

    fn may_call(&mut self, words: &[&[u8]]) -> Option<bool> {
        let entry = find(self.context, words)?;
        let request = AclRequest { entry, words, database: self.database };
        Some(self.context.session.user.decide(&request).is_ok())
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        lua::log(level, message);
    }

    fn set_replication(&mut self, targets: u8) {
        self.transaction.mute(targets & REPL_AOF == 0);
    }

    fn interrupted(&mut self) -> Option<&'static str> {
        let Some(watch) = &mut self.watch else {
            let threshold_ms = self.context.executor.config.config().busy_reply_threshold;
            self.watch = Some(Watch::new(threshold_ms, self.context.shared.cluster.is_on()));
            return None;
        };
        let since = watch.since();
        match watch.due() {
            Due::Nothing => {}
            Due::Known => {
                self.context.send_gathered();
                self.become_known(since);
            }
            Due::Marked => self.transaction.take_long(&self.context.executor.worker),
            Due::Busy(after) => self.become_busy(after),
            Due::Others => self.attend_to_others(),
        }
        if self.context.executor.is_abandoned {
            return Some("The server is shutting down.");
        }
        let is_killed = self.is_known() && self.context.shared.running.is_killed(self.worker());
        is_killed.then_some(KILLED_LINE)
    }
}
