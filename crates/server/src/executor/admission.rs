//! Admission of a worker's commands: what is the case, the facts behind a decision, and the answer to a refusal.
//!
//! The decision itself is [`crate::admission`]'s.

use std::{borrow::Cow, sync::Arc, time::Instant};

use dunlin_acl::{Context, Denial, Denied, KeyAccess, Reason, User};
use dunlin_engine::{
    command::{CommandError, CommandResult, CommandTable, Entry, Flags, Run},
    glob,
    keyspace::{Inside, Key, slot},
};
use dunlin_resp::ReplyBuffer;
use dunlin_scripting::{ScriptFlags, Sha, Shebang};

use super::{Executor, Flow, Turn, audit::audited_as};
use crate::{
    access::{self, AclRequest},
    admission::{
        CLUSTERDOWN, Check, Conditions, Effects, Facts, Issuer, PauseScope, Slots, Verdict, Wait, decide,
    },
    config::Config,
    observe::client_line,
    push::pubsub::Kind,
    replicator::redirection,
    session::{ClientFlags, Session},
    shared::Shared,
};

/// The command or subcommand that a request names, if there is one that takes this number of words.
#[inline]
pub(super) fn resolve<'t>(
    table: &'t CommandTable,
    entry: Option<&'t Entry>,
    words: &[&[u8]],
) -> Result<&'t Entry, CommandError> {
    let mut entry = entry.ok_or_else(|| unknown_command(words))?;
    if !entry.subcommands.is_empty()
        && let Some(name) = words.get(1)
    {
        entry = table.find_subcommand(entry, name).ok_or_else(|| unknown_subcommand(entry, name))?;
    }
    if !entry.command.arity.accepts(words.len()) || matches!(entry.command.run, Run::Container) {
        return Err(CommandError::WrongArity(entry.full_name()));
    }
    Ok(entry)
}

/// The facts about a client's own command.
struct ClientFacts<'f, 'a, 'k> {
    executor: &'f mut Executor,
    shared: &'f Shared,
    session: &'f Session,
    words: &'f [&'a [u8]],
    keys: &'f [Key<'a>],
    inside: Option<&'f Inside<'k>>,
}

impl Facts for ClientFacts<'_, '_, '_> {
    fn issuer(&self) -> Issuer {
        Issuer::Client
    }

    fn check_access(&mut self, entry: &Entry) -> Result<(), Denial> {
        let database = self.session.next_database();
        self.session.user.decide(&AclRequest { entry, words: self.words, database })
    }

    fn is_queueing(&self) -> bool {
        self.session.queue.is_some()
    }

    fn brought(&self, entry: &Entry) -> Effects {
        brought(self.shared, self.session, entry, self.words)
    }

    fn is_short_of_memory(&mut self, entry: &Entry) -> bool {
        let session = self.session;
        match &session.queue {
            Some(queue) if entry.command.flags.has(Flags::RUNS_QUEUE) => {
                let effects = self.brought(entry);
                self.executor.is_short_for_queue(queue, effects, self.inside)
            }
            _ => self.executor.is_short_for(entry, self.words, session.next_database(), self.inside),
        }
    }

    fn denies_unsaved_writes(&self) -> bool {
        self.shared.denies_writes(self.executor.config.config())
    }

    fn log_refusal(&self) -> CommandError {
        self.shared.durability.refusal()
    }

    fn log_has_room(&self) -> bool {
        self.shared.durability.has_room()
    }

    fn pause(&self) -> Option<(PauseScope, Option<Instant>)> {
        self.shared.pause.in_force(self.executor.now.instant)
    }

    fn are_keys_held_for_long(&self) -> bool {
        self.shared.engine.keyspace.is_held_for_long()
    }

    fn busy(&self) -> CommandError {
        self.shared.running.busy()
    }

    fn waits_for_script(&self) -> Option<Wait> {
        (!self.shared.running.is_busy() && !self.executor.is_abandoned).then(|| self.executor.script_pause())
    }

    fn is_refused_by_audit(&self, entry: &Entry) -> bool {
        self.shared.audit.refuses() && audited_as(&self.shared.audit, entry, self.words).is_some()
    }

    fn route(&mut self, entry: &Entry) -> Option<Verdict> {
        self.executor.refresh_topology(self.shared);
        self.executor.route(self.session, entry, self.words, self.keys)
    }

    fn waits_for_lease(&self, entry: &Entry) -> bool {
        let is_primary = self.executor.topology.topology().is_some_and(|topology| topology.is_primary());
        let is_concerned = !entry.command.flags.has(Flags::RUNS_QUEUE)
            || self.session.queue.as_ref().is_some_and(|queue| {
                // Conditions name keys, too.
                queue.slots != Slots::None
                    || self.words.len() > 1
                    || self.brought(entry).has_any(Effects::CHANGES)
            });
        is_primary && is_concerned && self.shared.cluster.lease.serving_term() == 0
    }

    fn lease_refusal(&self) -> Option<CommandError> {
        self.shared.cluster.lease.is_long_gone().then_some(CLUSTERDOWN)
    }

    fn redirection(&self, entry: &Entry) -> Option<Verdict> {
        if entry.command.is_read_only() && self.session.flags.has(ClientFlags::READS_REPLICAS) {
            return None;
        }
        // Both ends are replicas for a moment, and would send the client to each other.
        if self.shared.replication.is_handing_over() {
            return Some(Verdict::Park(Wait::Pause(None)));
        }
        redirection(self.shared).map(Verdict::Refuse)
    }
}

/// The effects of the commands that a client's command runs: the queued ones, or those of a script. Libraries may have changed
/// since a call was queued, so the scripts of a queue are looked up anew.
pub(super) fn brought(shared: &Shared, session: &Session, entry: &Entry, words: &[&[u8]]) -> Effects {
    if entry.command.flags.has(Flags::RUNS_SCRIPT) {
        return Effects::of_script(entry.command, script_flags(shared, entry, words));
    }
    let Some(queue) = session.queue.as_ref().filter(|_| entry.command.flags.has(Flags::RUNS_QUEUE)) else {
        return Effects::NONE;
    };
    if !queue.has_scripts {
        return queue.effects;
    }
    let scripts =
        queue.requests(&shared.commands).filter(|(entry, _)| entry.command.flags.has(Flags::RUNS_SCRIPT));
    scripts.fold(queue.effects, |effects, (entry, words)| {
        effects.and(Effects::of_script(entry.command, script_flags(shared, entry, &words)))
    })
}

/// The flags of the script that a command is to run; `None` if there is no such script, or its first line cannot be understood.
fn script_flags(shared: &Shared, entry: &Entry, words: &[&[u8]]) -> Option<ScriptFlags> {
    let name = words.get(1).copied().unwrap_or_default();
    match entry.command.name {
        "eval" | "eval_ro" => Shebang::parse(name).ok().map(|shebang| shebang.flags),
        "evalsha" | "evalsha_ro" => Some(shared.scripts.get(&Sha::parse(name)?)?.flags),
        _ => shared.libraries.flags_of(name),
    }
}

/// The facts before something is stored or removed that was computed or sent apart from the worker.
pub(super) struct StoreFacts<'f> {
    pub(super) shared: &'f Shared,
    pub(super) now: Instant,
}

impl Facts for StoreFacts<'_> {
    fn issuer(&self) -> Issuer {
        Issuer::Offload
    }

    fn check_access(&mut self, _: &Entry) -> Result<(), Denial> {
        // Its user was asked before it began.
        Ok(())
    }

    fn is_short_of_memory(&mut self, _: &Entry) -> bool {
        false
    }

    fn denies_unsaved_writes(&self) -> bool {
        false
    }

    fn log_refusal(&self) -> CommandError {
        self.shared.durability.refusal()
    }

    fn log_has_room(&self) -> bool {
        self.shared.durability.has_room()
    }

    fn pause(&self) -> Option<(PauseScope, Option<Instant>)> {
        self.shared.pause.in_force(self.now)
    }

    fn are_keys_held_for_long(&self) -> bool {
        self.shared.engine.keyspace.is_held_for_long()
    }

    fn busy(&self) -> CommandError {
        self.shared.running.busy()
    }
}

/// Adds what may change from one command to the next: each fills the log and the queue of a snapshot.
#[inline]
fn add_room(mut conditions: Conditions, shared: &Shared) -> Conditions {
    if shared.engine.keyspace.snapshots().is_congested() {
        conditions = conditions.and(Conditions::of(Check::SnapshotQueue));
    }
    if shared.engine.log.is_on() && shared.durability.lacks_room() {
        conditions = conditions.and(Conditions::of(Check::LogRoom));
    }
    conditions
}

/// The conditions of the server that keep results from being stored or logged. The caller is inside the gate: a
/// failover, and a change of the role, close it after setting their state.
pub(super) fn storage_conditions(shared: &Shared, config: &Config) -> Conditions {
    let fails = shared.engine.log.is_on() && shared.durability.is_failing();
    // Data that were fresh when the command read them are not read again.
    let conditions = shared.replication.conditions(config).without(Check::StaleReplica);
    let conditions = conditions
        .with(Check::FewReplicas, shared.cluster.is_on() && shared.cluster.lacks_members())
        .with(Check::LogFailure, fails)
        .with(Check::Pause, shared.pause.is_set());
    add_room(conditions, shared)
}

impl Executor {
    /// Whether a client has yet to say who it is.
    #[inline]
    pub(crate) fn is_stranger(&self, session: &Session) -> bool {
        !session.authenticated && !self.shared.access.is_open()
    }

    /// Looks again at the conditions for a client's commands. To be called before a window of them, and after each
    /// command that changes the client or the server.
    #[inline]
    pub(super) fn refresh_conditions(&mut self, shared: &Shared, session: &mut Session) {
        self.refresh_access(session);
        session.refresh_conditions(shared.access.is_open());
        // Commands that nested polling lets in need next to nothing.
        let has_limit = self.config.config().limits_memory() && self.paused_script.is_none();
        let fails = shared.engine.log.is_on() && shared.durability.is_failing();
        let is_node = shared.cluster.is_on();
        let term = if is_node { shared.cluster.lease.serving_term() } else { 0 };
        if term != 0 {
            self.term.set(term);
        }
        session.conditions = session
            .conditions
            .and(shared.replication.conditions(self.config.config()))
            .with(Check::FewReplicas, self.lacks_replicas(shared, session, is_node))
            .with(
                Check::Redirect,
                session.flags.has(ClientFlags::CAN_REDIRECT) && shared.replication.is_replica() && !is_node,
            )
            .with(Check::Slots, is_node)
            .with(Check::Lease, is_node && term == 0)
            .with(Check::Loading, shared.loading.is_active())
            .with(Check::Unsaved, shared.persistence.has_failed())
            .with(Check::Memory, has_limit)
            .with(Check::LogFailure, fails)
            .with(Check::Audit, shared.audit.is_on())
            .with(Check::Pause, shared.pause.is_set());
    }

    /// Whether there are fewer replicas than a client's writes need: than they would wait for, or than the shard has to have.
    #[inline]
    pub(crate) fn lacks_replicas(&self, shared: &Shared, session: &Session, is_node: bool) -> bool {
        self.lacks_sync_replicas(shared, session) || is_node && shared.cluster.lacks_members()
    }

    /// Whether a client's writes would wait for replicas that are not there, and are to be refused instead.
    #[inline]
    fn lacks_sync_replicas(&self, shared: &Shared, session: &Session) -> bool {
        let config = self.config.config();
        shared.lacks_sync_replicas(session.sync_replicas(config), config)
    }

    /// The conditions for the next command of a client.
    #[inline]
    fn conditions<'k>(&self, shared: &'k Shared, session: &Session, turn: &mut Turn<'k>) -> Conditions {
        let mut conditions = add_room(session.conditions, shared);
        if turn.inside.is_none() {
            turn.inside = self.pass(&shared.engine.keyspace);
            conditions = conditions.with(Check::ClosedGate, turn.inside.is_none());
        }
        conditions
    }

    /// Looks at the conditions again after a command that has given its pass up: others may have closed the gate
    /// meanwhile to end what was admitted before.
    #[cold]
    pub(super) fn readmit(&mut self, shared: &Shared, session: &mut Session) {
        self.caller.admission = Some(shared.engine.log.admissions());
        self.refresh_conditions(shared, session);
    }

    /// Decides whether a client's command may run now.
    #[inline]
    pub(super) fn admit<'k>(
        &mut self,
        shared: &'k Shared,
        session: &Session,
        entry: &Entry,
        words: &[&[u8]],
        keys: &[Key<'_>],
        turn: &mut Turn<'k>,
    ) -> Verdict {
        let conditions = self.conditions(shared, session, turn);
        if conditions.concern(entry, Conditions::of(Check::Slots))
            && !entry.command.flags.has(Flags::RUNS_QUEUE)
            && self.serves(shared, keys)
        {
            return Verdict::Run;
        }
        let inside = turn.inside.as_ref();
        decide(conditions, entry, &mut ClientFacts { executor: self, shared, session, words, keys, inside })
    }

    /// Looks at the users again if they have changed, and at the rights of a session now. A change of the
    /// configuration counts as one of the users: a command that comes after the reply to CONFIG SET obeys it.
    #[inline]
    pub(crate) fn refresh_access(&mut self, session: &mut Session) {
        if session.access_version != self.shared.access.version() {
            self.follow_access(session);
        }
    }

    #[cold]
    fn follow_access(&mut self, session: &mut Session) {
        self.refresh_config();
        let access = &self.shared.access;
        // The version first: a change in between costs a second look, never a missed one.
        session.access_version = access.version();
        match access.newest(&session.user) {
            Some(user) => {
                let before = std::mem::replace(&mut session.user, user);
                self.check_subscriptions(session, &before);
            }
            None => {
                // The client is about to be closed; until then it has the rights of the default user, unauthenticated.
                session.user = access.default_user();
                session.authenticated = false;
                session.client.names().user.clear();
            }
        }
        session.refresh_conditions(access.is_open());
    }

    /// Closes a client whose user lost access to a subscribed channel. The change of the user has closed those that it
    /// found; here are those that have subscribed at the same time.
    fn check_subscriptions(&self, session: &Session, before: &User) {
        let user = &session.user;
        if session.subscriptions.is_none() || user.keeps_channels_of(before) {
            return;
        }
        let loses = |kind: Kind| {
            let names = session.subscribed(kind);
            names.iter().any(|name| !user.may_listen(name, kind == Kind::Pattern))
        };
        if Kind::ALL.into_iter().any(loses) {
            session.client.mark_killed();
            self.queues.kill(session.client.address);
        }
    }

    /// Parks a command, to be presented again later.
    #[cold]
    pub(super) fn park(&mut self, session: &mut Session, wait: Wait) -> Flow {
        match wait {
            Wait::Room => self.wait_for_room(session),
            Wait::Pause(until) => {
                session.flags.set(ClientFlags::BLOCKED, true);
                Flow::Postpone { until }
            }
        }
    }

    /// Notes that a client's user was denied something, and gives the error for it.
    #[cold]
    pub(crate) fn deny(
        &self,
        session: &Session,
        (entry, words): (&Entry, &[&[u8]]),
        denial: Denial,
        context: Context,
        database: usize,
    ) -> CommandError {
        let object = match denial.reason {
            Reason::Command => entry.full_name().into_bytes().into(),
            Reason::Database if denial.word == 0 => database.to_string().into_bytes().into(),
            _ => Cow::Borrowed(words.get(denial.word).copied().unwrap_or_default()),
        };
        self.note_denied(session, denial.reason, context, &object, session.user.name());
        access::error_in(context, denial, entry)
    }

    /// Counts a denial and notes it in the log of ACL.
    #[cold]
    pub(crate) fn note_denied(
        &self,
        session: &Session,
        reason: Reason,
        context: Context,
        object: &[u8],
        user: &[u8],
    ) {
        session.publish();
        let client = client_line::describe(&session.client, &self.shared.commands, self.now);
        self.audit_denial(session, reason, object, user);
        let denied = Denied {
            reason,
            context,
            object,
            user,
            client: &client,
            now_ms: self.now.unix_ms,
            steady_ms: self.now.steady_ms,
        };
        self.shared.access.note_denied(denied, self.config.config());
    }

    /// Answers a command that is for another node. A redirected command of a transaction spoils it; `EXEC` ends it, and
    /// is answered as any other command, so that libraries know where to go. If the slots went elsewhere after `MULTI`,
    /// `EXEC` gets what the commands got, though Redis would answer `EXECABORT`: the client did nothing wrong.
    #[cold]
    pub(super) fn redirect(
        &mut self,
        session: &mut Session,
        entry: &Entry,
        error: &CommandError,
        inside: Option<&Inside<'_>>,
        reply: &mut ReplyBuffer,
    ) -> Flow {
        if entry.command.flags.has(Flags::RUNS_QUEUE) {
            self.discard(session, inside);
            self.refresh_conditions(&Arc::clone(&self.shared), session);
        } else if let Some(queue) = &mut session.queue {
            let is_first = !std::mem::replace(&mut queue.aborted, true);
            let has_changed = self.shared.cluster.version() != queue.topology_version;
            queue.redirection.take_if(|first| **first != *error.line());
            if is_first && has_changed && error.line().starts_with(b"MOVED ") {
                queue.redirection = Some(error.line().into());
            }
        }
        let line = error.line();
        self.count_rejection(Some(entry), &line);
        session.note_failed_import(&line);
        reply.error(&line);
        Flow::Continue
    }

    /// Answers a command that is refused. A refused command of a transaction spoils it; `EXEC` ends it.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        session: &mut Session,
        entry: Option<&Entry>,
        error: &CommandError,
        inside: Option<&Inside<'_>>,
        reply: &mut ReplyBuffer,
    ) -> Flow {
        let mut line = error.line().into_owned();
        if entry.is_some_and(|entry| entry.command.flags.has(Flags::RUNS_QUEUE)) {
            self.discard(session, inside);
            self.refresh_conditions(&Arc::clone(&self.shared), session);
            let reason = line.strip_prefix(b"ERR ").unwrap_or(&line);
            line = [b"EXECABORT Transaction discarded because of: ", reason].concat();
        } else if let Some(queue) = &mut session.queue {
            (queue.aborted, queue.redirection) = (true, None);
        }
        self.count_rejection(entry, &line);
        session.note_failed_import(&line);
        reply.error(&line);
        Flow::Continue
    }
}

/// Whether a session's user may run SORT or SORT_RO with its patterns, which may lead to any key. The text is Redis's.
#[inline]
pub(crate) fn check_patterns(session: &Session, request: &AclRequest<'_>) -> CommandResult {
    let is_limited = session.conditions.has(Check::Access) || session.conditions.has(Check::Slots);
    if is_limited && request.entry.command.undeclared_keys.is_some() {
        return check_sort(session, request);
    }
    Ok(())
}

#[cold]
fn check_sort(session: &Session, request: &AclRequest<'_>) -> CommandResult {
    const BY: SortRefusals = SortRefusals {
        access: "ERR BY option of SORT denied due to insufficient ACL permissions.",
        slots: "ERR BY option of SORT denied in Cluster mode when keys formed by the pattern may be in different slots.",
    };
    const GET: SortRefusals = SortRefusals {
        access: "ERR GET option of SORT denied due to insufficient ACL permissions.",
        slots: "ERR GET option of SORT denied in Cluster mode when keys formed by the pattern may be in different slots.",
    };
    let (mut at, words) = (2, request.words);
    while let Some(word) = words.get(at) {
        let operand = words.get(at + 1).copied();
        let (pattern, step, texts) = match word.to_ascii_lowercase().as_slice() {
            b"by" => (operand.filter(|pattern| pattern.contains(&b'*')), 2, BY),
            b"get" => (operand, 2, GET),
            b"limit" => (None, 3, BY),
            b"store" => (None, 2, BY),
            b"asc" | b"desc" | b"alpha" => (None, 1, BY),
            // No option: the handler says so.
            _ => return Ok(()),
        };
        if let Some(pattern) = pattern {
            check_sort_pattern(session, request, pattern, &texts)?;
        }
        at += step;
    }
    Ok(())
}

/// Why a pattern of SORT is refused.
struct SortRefusals {
    access: &'static str,
    slots: &'static str,
}

fn check_sort_pattern(
    session: &Session,
    request: &AclRequest<'_>,
    pattern: &[u8],
    texts: &SortRefusals,
) -> CommandResult {
    let is_restricted = session.conditions.has(Check::Access);
    if is_restricted && !session.user.may_use_all_keys(request, KeyAccess::READ) {
        return Err(CommandError::text(texts.access));
    }
    // GET # is the element itself.
    if session.conditions.has(Check::Slots) && pattern != b"#" {
        let own = request.words.get(1).map(|key| slot(key));
        let other = glob::hash_tag(pattern).map(slot);
        if own != other {
            return Err(CommandError::text(texts.slots));
        }
    }
    Ok(())
}

/// How much of a stranger's words an error shows.
pub(crate) const QUOTED_BYTES_MAX: usize = 128;

/// Whether a line of an HTTP request has arrived in place of a command: a page may be using a user's
/// browser to send commands in the user's name. The lines are those that every such request has.
pub(super) fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

fn unknown_command(words: &[&[u8]]) -> CommandError {
    // As in Redis, a word ends at its first NUL here.
    let shown = |word: &[u8], room: usize| {
        let word = word.split(|byte| *byte == 0).next().unwrap_or_default();
        word[..word.len().min(room)].to_vec()
    };
    let mut text = shown(words[0], QUOTED_BYTES_MAX);
    text.extend_from_slice(b"', with args beginning with: ");
    let mut room = QUOTED_BYTES_MAX;
    for word in &words[1..] {
        if room == 0 {
            break;
        }
        let quoted = [b"'", shown(word, room).as_slice(), b"' "].concat();
        room = room.saturating_sub(quoted.len());
        text.extend_from_slice(&quoted);
    }
    CommandError::quoting("ERR unknown command '", &text)
}

fn unknown_subcommand(container: &Entry, name: &[u8]) -> CommandError {
    let container = container.command.name.to_uppercase();
    let shown = &name[..name.len().min(QUOTED_BYTES_MAX)];
    CommandError::quoting_within("ERR unknown subcommand '", shown, &format!("'. Try {container} HELP."))
}
