//! The options of a client that is told when keys change (`CLIENT TRACKING`). `push::tracking` tells it.

use std::collections::BTreeSet;

/// Which of the keys that a client reads are tracked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Choice {
    /// All.
    #[default]
    All,
    /// Keys of commands behind `CLIENT CACHING YES`.
    OptIn,
    /// All but those of commands behind `CLIENT CACHING NO`.
    OptOut,
}

/// The options of `CLIENT TRACKING ON`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tracking {
    /// `BCAST`: all changes of keys with these prefixes, read or not.
    pub(crate) prefixes: Option<BTreeSet<Box<[u8]>>>,
    pub(crate) choice: Choice,
    /// `NOLOOP`: not the changes that it makes itself.
    pub(crate) no_loop: bool,
    /// The client that is told in its place, 0 for none.
    pub(crate) redirect: u64,
    /// `CLIENT CACHING` was said, for the next command.
    pub(crate) caching: bool,
}

impl Tracking {
    /// Whether the keys of the next command are to be tracked.
    pub(crate) fn tracks_next(&self) -> bool {
        self.prefixes.is_none()
            && match self.choice {
                Choice::All => true,
                Choice::OptIn => self.caching,
                Choice::OptOut => !self.caching,
            }
    }
}
