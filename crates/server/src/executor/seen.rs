//! The log offsets that the replies of one call have seen, for those that are withheld.
//!
//! ```text
//! command ─▶ its record's end, or the marks of its keys ─▶ a mark for its reply
//! call    ─▶ replies in front whose marks are met leave; the rest waits for the greatest mark, each reply with its own
//! ```
//!
//! A worker notes this while its server keeps marks ([`SeenMarks`](crate::durability::SeenMarks)): after each command,
//! in the branch for clients that are sent pushes, so that other servers pay nothing for it.

use dunlin_engine::{
    command::{Entry, Run},
    keyspace::Key,
};
use dunlin_net::{Commitment, SeenReplies, SeenReply};
use dunlin_resp::{Mark, ReplyBuffer};

use super::Executor;
use crate::{durability::key_positions, session::Session, shared::Shared, workers::offload::Finished};

/// Whether commands of a call have looked at the data set, or have changed something that is recorded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SawData(u8);

impl SawData {
    const LAST: u8 = 1;
    const EARLIER: u8 = 2;

    /// A command that has, or none.
    pub(super) fn of(saw: bool) -> Self {
        Self(u8::from(saw))
    }

    /// The command at hand does.
    #[inline(always)]
    pub(crate) fn note(&mut self) {
        self.0 |= Self::LAST;
    }

    /// Whether one of them has.
    #[inline(always)]
    pub(super) fn any(self) -> bool {
        self.0 != 0
    }

    /// Whether one has since this was last asked.
    fn take_last(&mut self) -> bool {
        let has = self.0 & Self::LAST != 0;
        self.0 = if self.any() { Self::EARLIER } else { 0 };
        has
    }
}

/// The log offsets that the commands of a call have seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The offset that the command at hand has seen beside its own keys.
    mark: u64,
    /// The greatest mark of replies so far.
    greatest: u64,
    /// The worker's last record before the command at hand.
    logged_to: u64,
    /// The replies so far, each with the end of its command's.
    replies: Vec<(SeenReply, Mark)>,
    /// How many in front may leave.
    leaving: usize,
}

/// How much of the log a command has seen that has looked at the data set.
fn seen_by<'k>(
    shared: &Shared,
    entry: &Entry,
    words: &[&[u8]],
    keys: impl IntoIterator<Item = &'k [u8]>,
) -> u64 {
    match entry.command.run {
        Run::Read(_) | Run::Write(_) | Run::Block(_) => {
            let mut keys = keys.into_iter().peekable();
            match entry.has_undeclared_keys(words) || keys.peek().is_none() {
                true => u64::MAX,
                false => shared.durability.marks.seen(keys),
            }
        }
        Run::Keyspace(_) | Run::Exclusive(_) => u64::MAX,
        // The server's own say what they see; see `Executor::see`.
        Run::Host(_) | Run::Help(_) | Run::Container => 0,
    }
}

impl Executor {
    /// Keeps marks if this server withholds replies, or gives them up. To be called when that may have changed.
    pub(super) fn keep_marks(&mut self) {
        let durability = &self.shared.durability;
        let keeps = self.withholds_pushes() || durability.marks.are_wanted();
        match keeps {
            true => durability.marks.keep(|| durability.tail()),
            false => durability.marks.give_up(),
        }
        self.keeps_marks = keeps;
    }

    /// Keeps marks from now on: a client has chosen a durability of its own.
    pub(crate) fn want_marks(&mut self) {
        self.shared.durability.marks.want();
        self.keep_marks();
    }

    /// Notes that a transaction or a script runs a command.
    #[inline(never)]
    pub(crate) fn see(&mut self, entry: &Entry, words: &[&[u8]]) {
        if self.keeps_marks {
            let keys = key_positions(entry, words).map(|position| words[position]);
            self.seen.mark = self.seen.mark.max(seen_by(&self.shared, entry, words, keys));
        }
    }

    /// Notes that the command at hand has looked at more than its keys.
    pub(crate) fn see_everything(&mut self) {
        self.saw_data.note();
        self.seen.mark = u64::MAX;
    }

    /// How much of the log a client has seen by now.
    pub(super) fn seen_so_far(&self, session: &Session) -> u64 {
        if !session.notes_seen {
            return if self.saw_data.any() { u64::MAX } else { session.seen_to };
        }
        let logged_to = self.worker.propagation.logged_to();
        let own = if logged_to == self.seen.logged_to { 0 } else { logged_to };
        session.seen_to.max(self.seen.greatest).max(self.seen.mark).max(own)
    }

    /// How much of the log an offloaded command of a client has seen. Its keys were looked at when it was begun.
    pub(super) fn seen_apart(&self, session: &Session, finished: &Finished) -> u64 {
        let words: Vec<&[u8]> = finished.words.iter().map(|word| &**word).collect();
        match session.unfinished.as_ref().map(|command| &self.shared.commands.entries()[command.index]) {
            Some(entry) if self.keeps_marks && entry.command.is_read_only() => {
                let keys = key_positions(entry, &words).map(|position| words[position]);
                seen_by(&self.shared, entry, &words, keys)
            }
            _ => u64::MAX,
        }
    }

    /// Notes how much of the log a client has seen after a call, for its messages.
    #[inline]
    pub(super) fn note_seen(&self, session: &mut Session) {
        if self.saw_data.any() && self.withholds_pushes() {
            session.seen_to = self.seen_so_far(session).min(self.shared.durability.tail());
        }
    }

    /// Begins a call whose replies are noted one by one.
    pub(super) fn begin_seen(&mut self) {
        let mut replies = std::mem::take(&mut self.seen.replies);
        replies.clear();
        let logged_to = self.worker.propagation.logged_to();
        self.seen = Seen { logged_to, replies, ..Seen::default() };
    }

    /// Notes what the command that has just run has seen. Its reply takes `own` bytes, with pushes of the other two
    /// lengths around it.
    pub(super) fn note_reply(
        &mut self,
        entry: Option<&Entry>,
        words: &[&[u8]],
        keys: &[Key<'_>],
        [before, own, behind]: [usize; 3],
        end: Mark,
    ) {
        let logged_to = self.worker.propagation.logged_to();
        let mut mark = std::mem::take(&mut self.seen.mark);
        if std::mem::replace(&mut self.seen.logged_to, logged_to) != logged_to {
            mark = mark.max(logged_to);
        }
        if self.saw_data.take_last()
            && let Some(entry) = entry
        {
            let entry = self.shared.commands.resolve(entry, words);
            let keys = keys.iter().map(|key| key.bytes);
            mark = mark.max(seen_by(&self.shared, entry, words, keys));
        }
        // A mark that was seen is before the log's end by now.
        let mark = mark.min(self.shared.durability.tail());
        self.seen.greatest = self.seen.greatest.max(mark);
        let parts = [(before, 0), (own, mark), (behind, 0)];
        let parts = parts.into_iter().filter(|(bytes, _)| *bytes > 0);
        self.seen.replies.extend(parts.map(|(bytes, mark)| (SeenReply { bytes, mark }, end)));
    }

    /// The commitment of the replies of a call, by what each has seen; those in front that wait for nothing may leave.
    #[cold]
    pub(super) fn commitment_of_seen(&mut self, session: &Session, reply: &ReplyBuffer) -> Commitment {
        let noted: usize = self.seen.replies.iter().map(|(reply, _)| reply.bytes).sum();
        if noted < reply.len() {
            // The line about input that is not a request has seen nothing.
            let rest = SeenReply { bytes: reply.len() - noted, mark: 0 };
            self.seen.replies.push((rest, reply.mark()));
        }
        let commitment = self.commitment_to(session, self.seen.greatest);
        let is_lead = self.commitment_to(session, 0) == Commitment::default();
        if commitment.mark > 0 && is_lead {
            let released = self.level_released(commitment.level);
            let waits = |(reply, _): &(SeenReply, Mark)| reply.mark > released;
            let first = self.seen.replies.iter().position(waits).unwrap_or(self.seen.replies.len());
            // A command's pushes stay with its reply.
            let end = self.seen.replies.get(first).map(|(_, end)| *end);
            self.seen.leaving = self.seen.replies[..first]
                .iter()
                .rposition(|(_, own)| Some(*own) != end)
                .map_or(0, |at| at + 1);
        }
        commitment
    }

    /// Hands out the replies of the call.
    pub(super) fn take_seen_replies(&mut self) -> SeenReplies {
        let (leaving, waiting) = self.seen.replies.split_at(self.seen.leaving);
        let replies = SeenReplies {
            leaving: leaving.last().map(|(_, end)| *end),
            waiting: waiting.iter().map(|(reply, _)| *reply).collect(),
        };
        self.seen.replies.clear();
        self.seen.leaving = 0;
        replies
    }
}
