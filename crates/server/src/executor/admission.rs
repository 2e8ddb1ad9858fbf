//! Whether a command may run now: known, complete, let in, with memory, log and locks to be had.

use dunlin_engine::{
    command::{CommandError, Entry, Flags, Group, Run},
    keyspace::Inside,
};
use dunlin_resp::ReplyBuffer;

use super::{Executor, Flow, Turn};
use crate::{
    access, commands,
    executor::pause::Held,
    replication, scripting,
    session::{ClientFlags, Session},
    shared::Shared,
};

/// Why a command that writes is refused after a snapshot that failed.
pub(crate) const UNSAVED: CommandError = CommandError::text(
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.",
);

impl Executor {
    /// Whether a client has yet to say who it is.
    #[inline]
    pub(crate) fn is_stranger(&self, session: &Session) -> bool {
        !session.authenticated && !access::is_open(self.config.config())
    }

    /// Whether the command exists and may run now.
    #[inline]
    pub(super) fn admit<'t>(
        &mut self,
        shared: &'t Shared,
        session: &Session,
        entry: Option<&'t Entry>,
        words: &[&[u8]],
        inside: Option<&Inside<'_>>,
    ) -> Result<&'t Entry, CommandError> {
        let mut entry = entry.ok_or_else(|| unknown_command(words))?;
        if !entry.subcommands.is_empty()
            && let Some(name) = words.get(1)
        {
            entry = shared
                .commands
                .find_subcommand(entry, name)
                .ok_or_else(|| unknown_subcommand(entry, name))?;
        }
        if !entry.command.arity.accepts(words.len()) || matches!(entry.command.run, Run::Container) {
            return Err(CommandError::WrongArity(entry.full_name()));
        }
        if !session.authenticated
            && !entry.command.flags.has(Flags::NO_AUTH)
            && !access::is_open(self.config.config())
        {
            return Err(CommandError::text("NOAUTH Authentication required."));
        }
        if session.queue.is_some() && entry.command.flags.has(Flags::NO_MULTI) {
            return Err(CommandError::text("ERR Command not allowed inside a transaction"));
        }
        if session.is_restricted() {
            commands::check_restrictions(session, entry)?;
        }
        if shared.loading.is_active() && !entry.command.flags.has(Flags::LOADING) {
            return Err(CommandError::text("LOADING Redis is loading the dataset in memory"));
        }
        if shared.replication.restricts()
            && let Some(error) = replication::refusal(shared, self.config.config(), session, entry)
        {
            return Err(error);
        }
        // PFCOUNT writes what it may forget again.
        let writes = || commands::writes(session, entry) && !entry.command.is_read_only();
        if shared.persistence.has_failed()
            && (writes() || entry.command.name == "ping")
            && shared.denies_writes(self.config.config())
        {
            return Err(UNSAVED);
        }
        if (entry.command.flags.has(Flags::DENY_OOM) || session.queue.is_some())
            && self.over_memory_limit(words, inside)
            && session.queue.as_ref().is_none_or(|queue| queue.needs_memory(entry))
        {
            return Err(CommandError::OutOfMemory);
        }
        Ok(entry)
    }

    /// What becomes of a command that changes something while the log cannot be written, or has no room.
    #[inline]
    pub(super) fn is_held_by_log(
        &mut self,
        shared: &Shared,
        session: &mut Session,
        entry: &Entry,
        inside: Option<&Inside<'_>>,
        reply: &mut ReplyBuffer,
    ) -> Option<Flow> {
        let (durability, command) = (&shared.durability, entry.command);
        let ends_queue =
            || session.queue.as_ref().is_some_and(|queue| queue.writes && command.name == "exec");
        let writes = command.is_write() || ends_queue();
        // As in Redis, PING tells too that something is wrong.
        if durability.is_failing() && (writes || command.name == "ping") {
            let line = self.refuse(session, Some(entry), &durability.refusal(), inside);
            self.count_rejection(Some(entry), &line);
            reply.error(&line);
            return Some(Flow::Continue);
        }
        ((writes || scripting::may_write(command)) && !durability.has_room())
            .then(|| self.wait_for_room(session))
    }

    /// Whether a script that has been running for long keeps a command from running: it has closed the
    /// gate, or it holds stripes and the command looks at all of them.
    #[inline]
    pub(super) fn is_kept_out<'k>(&self, shared: &'k Shared, entry: &Entry, turn: &mut Turn<'k>) -> bool {
        if turn.inside.is_none() {
            turn.inside = self.pass(&shared.engine.keyspace);
        }
        if turn.inside.is_none() {
            // Keys to be watched are in the keyspace; nothing else that these commands touch is.
            return !entry.command.flags.has(Flags::ALLOW_BUSY) || entry.command.name == "watch";
        }
        let looks_at_all = matches!(entry.command.run, Run::Keyspace(_))
            || (entry.command.flags.has(Flags::WHOLE_KEYSPACE) && !entry.command.flags.has(Flags::NO_SCRIPT));
        looks_at_all && shared.engine.keyspace.is_held_for_long()
    }

    /// Whether a pause holds the command back. `CLIENT UNPAUSE` always passes, or nobody could end
    /// a pause of everything.
    #[cold]
    pub(super) fn postpone(&self, shared: &Shared, session: &mut Session, entry: &Entry) -> Option<Flow> {
        let (held, until) = shared.pause.in_force(self.now.instant)?;
        let ends_it = entry.command.name == "unpause" && entry.container.is_some();
        if ends_it || (held == Held::Writes && !commands::is_held_with_writes(session, entry)) {
            return None;
        }
        session.flags.set(ClientFlags::BLOCKED, true);
        Some(Flow::Postpone { until })
    }

    /// A command that writes waits while a snapshot has too much to write. Those of a transaction wait once,
    /// before the first runs.
    #[cold]
    pub(super) fn wait_for_snapshot(&mut self, session: &mut Session, entry: &Entry) -> Option<Flow> {
        let is_queued = session.queue.is_some() && !entry.command.flags.has(Flags::UNQUEUED);
        let command = entry.command;
        // The keys tell a script that is run from what is done with scripts.
        let is_script = command.group == Group::Scripting && !command.keys.is_empty();
        let writes = commands::writes(session, entry) || is_script && !command.flags.has(Flags::READ_ONLY);
        (!is_queued && writes).then(|| self.wait_for_room(session))
    }

    /// The line that tells why a command is refused. One of a transaction spoils it; `EXEC` ends it.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        session: &mut Session,
        entry: Option<&Entry>,
        error: &CommandError,
        inside: Option<&Inside<'_>>,
    ) -> Vec<u8> {
        let line = error.line().into_owned();
        if entry.is_some_and(|entry| entry.command.name == "exec") {
            self.discard(session, inside);
            let reason = line.strip_prefix(b"ERR ").unwrap_or(&line);
            return [b"EXECABORT Transaction discarded because of: ", reason].concat();
        }
        if let Some(queue) = &mut session.queue {
            queue.aborted = true;
        }
        line
    }
}

/// How much of a stranger's words an error shows.
pub(crate) const QUOTED_BYTES_MAX: usize = 128;

/// Whether a line of an HTTP request has arrived in place of a command: a page in somebody's browser
/// may be sending orders in his name. The lines are those that every such request has.
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
