//! Decisions: a request goes in, and comes out allowed or denied for a reason.

use std::ops::ControlFlow;

use crate::KeyAccess;

/// The request that a decision is about. Keys, channels and databases are asked for only if they are restricted.
pub trait Request {
    /// The number of the command or subcommand.
    fn command(&self) -> usize;

    /// Whether every client may run it, before authentication too: `AUTH`, `HELLO`, `QUIT`.
    fn is_for_everyone(&self) -> bool;

    /// The word after the command's name.
    fn first_argument(&self) -> Option<&[u8]>;

    /// Shows each key with its position among the words and its use.
    fn keys(&self, visit: impl FnMut(usize, &[u8], KeyAccess) -> ControlFlow<Denial>) -> ControlFlow<Denial>;

    /// Shows each channel that is listened or published to, with its position, and whether it is a pattern.
    fn channels(&self, visit: impl FnMut(usize, &[u8], bool) -> ControlFlow<Denial>) -> ControlFlow<Denial>;

    /// Shows each database that it touches.
    fn databases(&self, visit: impl FnMut(Touched) -> ControlFlow<Denial>) -> ControlFlow<Denial>;
}

/// A database that a request touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touched {
    /// This one.
    One {
        /// The word that names it; 0 for the client's own.
        word: usize,
        /// Its number.
        number: i32,
    },
    /// Every one: `FLUSHALL`.
    All,
}

/// Why a request is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denial {
    /// The kind of its object.
    pub reason: Reason,
    /// The position of the key, channel or database among the words; 0 for the command, and for the client's own database.
    pub word: usize,
}

/// The kinds of reasons, in the order in which a selector looks for them. Of several selectors' reasons the last kind
/// counts: the others were farther from allowing the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A database.
    Database,
    /// The command.
    Command,
    /// A key.
    Key,
    /// A name and password that do not fit each other; never a decision's.
    Authentication,
    /// A channel.
    Channel,
    /// A certificate that names no enabled user; never a decision's.
    Certificate,
}

impl Reason {
    /// The name in `ACL LOG`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Key => "key",
            Self::Authentication => "auth",
            Self::Channel => "channel",
            Self::Database => "database",
            Self::Certificate => "tls-cert",
        }
    }
}

impl Denial {
    /// The one that says more: of a higher kind, or of a later word.
    pub(crate) fn or_later(self, other: Self) -> Self {
        let rank = |denial: &Self| (denial.reason, denial.word);
        if rank(&other) > rank(&self) { other } else { self }
    }
}
