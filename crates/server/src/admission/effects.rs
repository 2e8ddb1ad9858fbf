//! [`Effects`]: what a command may do, together with the commands that it runs.
//!
//! ```text
//! SET, PFCOUNT, PUBLISH, …   the row of the command says it
//! EXEC                       all queued commands together
//! EVAL, EVALSHA, FCALL, …    the flags of the script; without a shebang, it may do anything, and its commands are asked one by one
//! ```
//!
//! A check that asks for the command's own properties alone would let scripts and transactions pass. Every such check asks
//! for effects instead.

use dunlin_engine::command::{Command, Flags};
use dunlin_scripting::ScriptFlags;

/// A set of effects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Effects(u8);

impl Effects {
    /// No effect.
    pub(crate) const NONE: Self = Self(0);
    /// Changes the contents of the data set, as far as the command says.
    pub(crate) const WRITES: Self = Self(1 << 0);
    /// Changes how the data set is stored, and not its contents.
    pub(crate) const STORES: Self = Self(1 << 1);
    /// Runs a script that does not say whether it writes.
    pub(crate) const MAY_WRITE: Self = Self(1 << 2);
    /// Sends a message to subscribers, here and at replicas.
    pub(crate) const PUBLISHES: Self = Self(1 << 3);
    /// May need memory.
    pub(crate) const NEEDS_MEMORY: Self = Self(1 << 4);
    /// Shows data that must not be stale.
    pub(crate) const NEEDS_FRESH_DATA: Self = Self(1 << 5);
    /// Needs the whole data set.
    pub(crate) const NEEDS_LOADED_DATA: Self = Self(1 << 6);

    /// All that may change the data set or its form.
    pub(crate) const CHANGES: Self = Self::WRITES.and(Self::STORES).and(Self::MAY_WRITE);
    /// All that replicas may learn of: a pause of writes holds it. Redis calls these commands `may_replicate`.
    pub(crate) const REPLICATES: Self = Self::CHANGES.and(Self::PUBLISHES);

    /// Both sets together.
    #[must_use]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The set with an effect if that is the case.
    #[must_use]
    const fn with(self, effect: Self, is_so: bool) -> Self {
        if is_so { self.and(effect) } else { self }
    }

    /// Whether one of `these` effects is in the set.
    pub(crate) const fn has_any(self, these: Self) -> bool {
        self.0 & these.0 != 0
    }

    /// The effects of a command itself.
    pub(crate) fn of(command: &Command) -> Self {
        let flags = command.flags;
        Self::NONE
            .with(Self::WRITES, command.is_write())
            .with(Self::STORES, command.may_write() && !command.is_write())
            .with(Self::PUBLISHES, flags.has(Flags::PUBLISHES))
            .with(Self::NEEDS_MEMORY, flags.has(Flags::DENY_OOM))
            .with(Self::NEEDS_FRESH_DATA, !flags.has(Flags::STALE))
            .with(Self::NEEDS_LOADED_DATA, !flags.has(Flags::LOADING))
    }

    /// The effects of a script, run by that command. `flags` are the script's; `None` if there is no such script.
    pub(crate) fn of_script(command: &Command, flags: Option<ScriptFlags>) -> Self {
        let Some(flags) = flags.filter(|flags| !flags.has(ScriptFlags::COMPATIBLE)) else {
            // The script's commands are asked whether data may be stale, and whether there is memory.
            return Self::NONE.with(Self::MAY_WRITE, !command.flags.has(Flags::READ_ONLY));
        };
        let writes = !flags.has(ScriptFlags::NO_WRITES);
        Self::NONE
            .with(Self::WRITES, writes)
            .with(Self::NEEDS_MEMORY, writes && !flags.has(ScriptFlags::ALLOW_OOM))
            .with(Self::NEEDS_FRESH_DATA, !flags.has(ScriptFlags::ALLOW_STALE))
    }
}
