//! The executor's events for the audit log.

use dunlin_acl::Reason;
use dunlin_engine::command::Entry;
use dunlin_net::{Client, Transport};

use super::Executor;
use crate::{
    audit::{Audit, AuditOutcome, Event, Kind, Origin},
    session::Session,
};

/// The kind of event as which a command is recorded, if it is.
pub(super) fn audited_as(audit: &Audit, entry: &Entry, words: &[&[u8]]) -> Option<Kind> {
    if let Some(kind) = Kind::of_command(&entry.full_name())
        && audit.wants(kind)
    {
        return Some(kind);
    }
    let keys = entry.key_positions(words).map(|at| words[at]);
    (audit.wants(Kind::Command) && audit.wants_command(entry.index, keys)).then_some(Kind::Command)
}

/// The words of a command that its line shows: users, directives, keys, options, no values.
fn names<'w>(kind: Kind, entry: &Entry, words: &[&'w [u8]]) -> Vec<&'w [u8]> {
    let behind = words.get(entry.name_words()..).unwrap_or_default();
    match kind {
        Kind::Acl if entry.command.name == "setuser" => behind.iter().take(1).copied().collect(),
        Kind::Config => behind.iter().step_by(2).copied().collect(),
        Kind::Debug | Kind::Module => {
            behind.iter().take(usize::from(entry.container.is_none())).copied().collect()
        }
        Kind::Command => entry.key_positions(words).map(|at| words[at]).collect(),
        _ => behind.to_vec(),
    }
}

impl Executor {
    /// Records a command that is about to run, if it is to be recorded.
    #[cold]
    pub(crate) fn audit_command(&self, session: &Session, entry: &Entry, words: &[&[u8]]) {
        let Some(kind) = audited_as(&self.shared.audit, entry, words) else { return };
        let (names, command) = (names(kind, entry, words), entry.full_name());
        self.audit(session, kind, AuditOutcome::Begun, |event| {
            (event.command, event.names) = (&command, &names);
        });
    }

    /// Records that a client was let in.
    pub(crate) fn audit_success(&self, session: &Session, reason: &str) {
        self.audit(session, Kind::Auth, AuditOutcome::Success, |event| event.reason = reason);
    }

    /// Records a denial, or that a client was not let in.
    pub(super) fn audit_denial(&self, session: &Session, reason: Reason, object: &[u8], user: &[u8]) {
        let names = [object];
        if matches!(reason, Reason::Authentication | Reason::Certificate) {
            let reason = if reason == Reason::Certificate { "certificate" } else { "password" };
            return self.audit(session, Kind::Auth, AuditOutcome::Failure, |event| {
                (event.user, event.reason) = (user, reason);
            });
        }
        let last = session.last_command.map(|index| self.shared.commands.entries()[index].full_name());
        let command = last.unwrap_or_default();
        self.audit(session, Kind::Denied, AuditOutcome::Denied, |event| {
            (event.command, event.reason) = (&command, reason.name());
            if reason != Reason::Command {
                event.names = &names;
            }
        });
    }

    /// Records that a client has come or gone.
    pub(super) fn audit_connection(&self, session: &Session, outcome: AuditOutcome) {
        self.audit(session, Kind::Connection, outcome, |_| {});
    }

    fn audit<'e>(
        &self,
        session: &'e Session,
        kind: Kind,
        outcome: AuditOutcome,
        complete: impl FnOnce(&mut Event<'e>),
    ) {
        if !self.shared.audit.wants(kind) {
            return;
        }
        let client: &Client = &session.client;
        let address = client.transport.peer_text();
        let origin = match client.transport {
            Transport::Unix(_) => Origin::Unix,
            Transport::Tcp { .. } if client.is_tls => Origin::Tls,
            Transport::Tcp { .. } => Origin::Tcp,
        };
        let mut event = Event {
            kind,
            outcome,
            client: client.id(),
            address: "",
            origin: Some(origin),
            user: session.user.name(),
            command: "",
            reason: "",
            names: &[],
        };
        complete(&mut event);
        self.shared.audit.record(&Event { address: &address, ..event });
    }
}
