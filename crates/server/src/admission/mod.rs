//! Admission: whether a command may run now, decided in one place.
//!
//! ```text
//! conditions   what is the case: of the caller (not authenticated, in MULTI, …) and of the server (loading, paused, …)
//! concerns     which of these concern the command: computed once, kept in its entry of the command table
//!
//! conditions & concerns == 0  ─▶ run                    nearly always
//!              otherwise      ─▶ the checks of these bits, in the order of `CHECKS`; the first verdict counts
//! ```
//!
//! The decision is pure: it changes nothing, and asks [`Facts`] for everything that bits do not say. Clients,
//! transactions at EXEC, scripts and offloaded commands use the same table; their conditions differ.
//!
//! A new check is a variant of [`Check`], a row of [`CHECKS`], a line that sets its condition
//! (`executor/admission.rs`), and a test.

mod checks;
mod effects;
mod slots;
#[cfg(test)]
mod tests;

use std::time::Instant;

use dunlin_acl::Denial;
use dunlin_engine::command::{CommandError, Entry};

pub(crate) use self::checks::{CHECKS, CLUSTERDOWN, Check, MASTERDOWN, NOREPLICAS, READONLY};
pub(crate) use self::effects::Effects;
pub(crate) use self::slots::Slots;

/// The outcome for a command.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It runs.
    Run,
    /// The command waits for EXEC.
    Queue,
    /// The command is presented again later.
    Park(Wait),
    /// The command is answered with this error.
    Refuse(CommandError),
    /// The command is answered with this error, which is for the client's library: EXEC answers it as it is.
    Redirect(CommandError),
    /// The user may not run it: noted, and answered with an error.
    Deny(Denial),
}

/// The event for which a command waits before it is presented again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Room in the log, or in the queue of a snapshot.
    Room,
    /// The end of a pause; `None` for a moment beyond the clock.
    Pause(Option<Instant>),
}

/// The issuer of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Issuer {
    /// A client, for a command of its own.
    Client,
    /// A script or function, for a command that it calls.
    Script,
    /// The executor, for a command that was computed on another thread and is to be stored.
    Offload,
}

/// A set of conditions: a bit for each [`Check`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Conditions(u32);

impl Conditions {
    /// Only what is looked at anew for each command that it concerns.
    pub(crate) const ALWAYS: Self = Self::of(Check::LockedKeys);

    /// A single condition.
    pub(crate) const fn of(check: Check) -> Self {
        Self(1 << check as u32)
    }

    /// Both sets together.
    #[must_use]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The set with a condition if it is met.
    #[inline]
    #[must_use]
    pub(crate) const fn with(self, check: Check, is_met: bool) -> Self {
        Self(self.0 | (is_met as u32) << check as u32)
    }

    /// The set without a condition.
    #[must_use]
    pub(crate) const fn without(self, check: Check) -> Self {
        Self(self.0 & !Self::of(check).0)
    }

    /// Whether these conditions, and no others, are met and concern a command.
    #[inline]
    pub(crate) fn concern(self, entry: &Entry, these: Self) -> bool {
        self.0 & entry.concerns == these.0
    }

    /// Whether a condition is met.
    #[inline]
    pub(crate) const fn has(self, check: Check) -> bool {
        self.0 & Self::of(check).0 != 0
    }
}

/// The answers that a decision needs if a condition alone does not decide. The defaults are those of a caller that
/// neither queues, waits nor is paused.
pub(crate) trait Facts {
    /// The issuer of the command.
    fn issuer(&self) -> Issuer;

    /// Whether the caller's user may run the command with its words.
    fn check_access(&mut self, entry: &Entry) -> Result<(), Denial>;

    /// Whether commands are being queued for EXEC.
    fn is_queueing(&self) -> bool {
        false
    }

    /// The effects of the commands that this one runs: the queued ones, or those of a script. Asked for such commands only.
    fn brought(&self, _: &Entry) -> Effects {
        Effects::NONE
    }

    /// Whether more memory is in use than `maxmemory`, or than a database may take that the command fills, after all has been done
    /// about it.
    fn is_short_of_memory(&mut self, entry: &Entry) -> bool;

    /// Whether writes are refused since the last snapshot has failed.
    fn denies_unsaved_writes(&self) -> bool;

    /// Why writes are refused that the log cannot take.
    fn log_refusal(&self) -> CommandError;

    /// Whether the log takes more.
    fn log_has_room(&self) -> bool;

    /// Until when commands are held by CLIENT PAUSE, and whether all of them or only writes; `None` in place of the
    /// pause if it is over, and of a moment beyond the clock.
    fn pause(&self) -> Option<(PauseScope, Option<Instant>)> {
        None
    }

    /// Whether a script holds keys for long.
    fn are_keys_held_for_long(&self) -> bool;

    /// Why commands are refused that a script keeps out.
    fn busy(&self) -> CommandError;

    /// How long a command that a script keeps out waits; `None` once the script is slow, so that the command is refused.
    fn waits_for_script(&self) -> Option<Wait> {
        None
    }

    /// Whether the audit log would record the command, and cannot.
    fn is_refused_by_audit(&self, _: &Entry) -> bool {
        false
    }

    /// The verdict on a command that does not run on this node of a cluster, or not now.
    fn route(&mut self, _: &Entry) -> Option<Verdict> {
        None
    }

    /// Whether a command that is for a primary has to wait until this node may answer as one.
    fn waits_for_lease(&self, _: &Entry) -> bool {
        false
    }

    /// Why it does not wait any longer.
    fn lease_refusal(&self) -> Option<CommandError> {
        None
    }

    /// The node to which a client is to go with a command for the primary; or that it waits, while a failover decides
    /// that.
    fn redirection(&self, _: &Entry) -> Option<Verdict> {
        None
    }

    /// Whether the words ask for a wait (XREAD … BLOCK).
    fn asks_to_block(&self) -> Option<CommandError> {
        None
    }
}

/// Which commands a pause holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PauseScope {
    /// Commands that change something, or publish.
    Writes,
    /// All.
    Everything,
}

/// The conditions that concern a command, as its entry keeps them.
pub(crate) fn concerns(entry: &Entry) -> u32 {
    CHECKS.iter().filter(|row| (row.concerns)(entry)).fold(0, |bits, row| bits | Conditions::of(row.check).0)
}

/// Decides what becomes of a command.
#[inline]
pub(crate) fn decide(conditions: Conditions, entry: &Entry, facts: &mut dyn Facts) -> Verdict {
    let met = conditions.0 & entry.concerns;
    if met == 0 { Verdict::Run } else { first_verdict(met, entry, facts) }
}

/// The first verdict of the checks whose conditions are met and concern the command.
#[inline(never)]
fn first_verdict(mut met: u32, entry: &Entry, facts: &mut dyn Facts) -> Verdict {
    while met != 0 {
        let row = &CHECKS[met.trailing_zeros() as usize];
        met &= met - 1;
        if let Some(verdict) = (row.verdict)(entry, facts) {
            return verdict;
        }
    }
    Verdict::Run
}
