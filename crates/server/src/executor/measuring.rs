//! The executor's notes on commands: times, errors, the slow log, hot keys.

use std::time::Instant;

use dunlin_engine::command::{Entry, Flags};

use super::{Executor, window::Window};
use crate::{
    observe::{
        command_log::{LogEntry, LogKind, shorten},
        command_stats::Measured,
        error_counts::ErrorSource,
    },
    session::Session,
    shared::Shared,
};

impl Executor {
    /// Ends the run of measured commands whose last one had these words, and logs that one if it is
    /// remarkable by itself.
    #[inline(never)]
    pub(crate) fn measure(
        &mut self,
        shared: &Shared,
        session: &Session,
        words: &[&[u8]],
        request_bytes: usize,
        reply_bytes: usize,
    ) {
        let Some(measured) = self.meter.finish() else { return };
        self.log_measured(shared, session, &measured, words, (request_bytes, reply_bytes), None);
    }

    /// Logs what was measured if it is remarkable, and notes what its keys have cost if a session collects that.
    pub(super) fn log_measured(
        &mut self,
        shared: &Shared,
        session: &Session,
        measured: &Measured,
        words: &[&[u8]],
        (request_bytes, reply_bytes): (usize, usize),
        event: Option<&'static str>,
    ) {
        let entry = &shared.commands.entries()[measured.index];
        if self.hot_keys.0.is_some() && measured.count == 1 {
            self.note_hot_keys(entry, words, measured.nanoseconds, (request_bytes + reply_bytes) as u64);
        }
        // A run of several has taken its time together: none of them is to blame.
        let nanoseconds = (measured.count == 1).then_some(measured.nanoseconds);
        let bytes = (request_bytes as u64, reply_bytes as u64);
        self.log_remarkable(shared, session, entry, words, (nanoseconds, bytes), event);
    }

    /// Logs a command that took long, if that is known, or has a large request or reply. `event` is what the latency
    /// monitor calls it, unless that follows from the command.
    pub(super) fn log_remarkable(
        &self,
        shared: &Shared,
        session: &Session,
        entry: &Entry,
        words: &[&[u8]],
        (nanoseconds, (request, response)): (Option<u64>, (u64, u64)),
        event: Option<&'static str>,
    ) {
        let thresholds = self.meter.thresholds();
        let time_s = self.caller.now_ms / 1000;
        let (took, is_timed) = (nanoseconds.unwrap_or(0), nanoseconds.is_some());
        if took / 1_000_000 >= thresholds.event_ms {
            let is_fast = entry.command.flags.has(Flags::FAST);
            let event = event.unwrap_or(if is_fast { "fast-command" } else { "command" });
            shared.stats.latency.record(event, time_s, took / 1_000_000);
        }
        if entry.command.flags.has(Flags::SKIP_SLOWLOG) {
            return;
        }
        let kinds = [
            (LogKind::Slow, is_timed && took >= thresholds.slow_ns, took / 1000),
            (LogKind::LargeRequest, request > thresholds.request_bytes, request),
            (LogKind::LargeReply, response > thresholds.reply_bytes, response),
        ];
        for (kind, _, value) in kinds.into_iter().filter(|(_, applies, _)| *applies) {
            let logged = LogEntry {
                id: 0,
                time_s,
                value,
                words: shorten(entry, words),
                peer: session.client.transport.peer_text(),
                client_name: session.client.names().name.clone(),
            };
            shared.stats.logs.add(kind, kind.entries_max(self.config.config()), logged);
        }
    }

    /// A script is about to call a command. Returns when that begins, if it is to be timed.
    #[inline]
    pub(crate) fn begin_call(&mut self, entry: &Entry) -> Option<Instant> {
        self.meter.begin_call(entry.index)
    }

    /// Counts a command that a script has called, and logs it if it is remarkable.
    #[inline]
    pub(crate) fn end_call(
        &mut self,
        shared: &Shared,
        session: &Session,
        (entry, words): (&Entry, &[&[u8]]),
        begun: Option<Instant>,
        reply_bytes: usize,
    ) {
        let nanoseconds = self.meter.end_call(entry.index, begun);
        if nanoseconds.is_some() || reply_bytes as u64 > self.meter.thresholds().reply_bytes {
            // Its request did not come over the network.
            self.log_remarkable(shared, session, entry, words, (nanoseconds, (0, reply_bytes as u64)), None);
        }
    }

    /// Notes the keys of a window for the recorder.
    #[cold]
    pub(super) fn note_keys(&self, shared: &Shared, window: &Window<'_>) {
        shared.key_samples.note(self.worker.id(), window.keys.iter().map(|key| key.bytes));
    }

    #[cold]
    pub(super) fn note_hot_keys(&mut self, entry: &Entry, words: &[&[u8]], nanoseconds: u64, bytes: u64) {
        let (worker, random) = (self.worker.id(), self.worker.random());
        let Some(session) = &self.hot_keys.0 else { return };
        let keys: Vec<&[u8]> = entry.key_positions(words).map(|at| words[at]).collect();
        session.note(worker, keys.iter().copied(), (nanoseconds, bytes), random);
    }

    /// Follows what has happened to the session of HOTKEYS.
    #[cold]
    pub(crate) fn refresh_hot_keys(&mut self) {
        let changes = self.shared.hot_keys.changes();
        let session = self.shared.hot_keys.session();
        self.hot_keys = (session.filter(|session| session.is_active(self.now.instant)), changes);
        self.meter.time_each(self.hot_keys.0.is_some(), self.config.config());
    }

    /// Counts an error reply to a command that has not run; `None` if there is no such command.
    #[cold]
    pub(crate) fn count_rejection(&self, entry: Option<&Entry>, line: &[u8]) {
        self.count_error(line, ErrorSource::Server);
        if let Some(entry) = entry {
            self.meter.statistics().commands[entry.index].rejected.add(1);
        }
    }

    /// Counts an error reply to a command that has run.
    #[cold]
    pub(crate) fn count_failure(&self, entry: &Entry, line: &[u8]) {
        self.count_error(line, ErrorSource::Server);
        self.count_failed(entry);
    }

    /// Counts a command that has failed and whose errors have been counted.
    #[cold]
    pub(super) fn count_failed(&self, entry: &Entry) {
        self.meter.statistics().commands[entry.index].failed.add(1);
    }

    /// Counts an error reply.
    #[cold]
    pub(crate) fn count_error(&self, line: &[u8], source: ErrorSource) {
        self.meter.statistics().errors.count(line, source);
    }
}
