//! Lua for scripts and functions: the machine, its sandbox, its libraries, and how values cross the
//! border. Knows no keys, no clients and no threads: a [`ScriptHost`] runs the commands.
//!
//! ```text
//! Machine ─▶ State      Lua's own, its memory counted           state.rs
//!         ─▶ Heap       garbage, collected between calls        collection.rs
//!         ─▶ Stack      how values are read and made            stack.rs: pushes need room, asked for before
//!         ─▶ Budget     the work of a script before a check     budget.rs
//!         ─▶ Sandbox    protected globals and libraries         sandbox.rs, api.rs, strings.rs, cjson.rs, …
//!         ─▶ scripts    compiled, by SHA-1                      machine.rs
//!         ─▶ functions  of libraries, by name                   library.rs
//! ```

mod api;
mod bits;
mod blocks;
mod budget;
mod cjson;
mod cmsgpack;
mod collection;
mod convert;
mod library;
mod machine;
mod number;
mod packed;
mod pattern;
mod proof;
mod random;
mod sandbox;
mod shebang;
mod stack;
mod state;
mod strings;
mod tables;

use dunlin_resp::ReplyBuffer;

pub use api::REDIS_VERSION;
pub use collection::Heap;
pub use library::{Function, LibraryMachine, LoadError, Loaded, is_name};
pub use machine::{CompileError, Machine, Sha, ShaHasher, ShaMap};
pub use proof::{KeyAccess, Word};
pub use shebang::{ScriptFlags, Shebang, ShebangError};

/// The host of a running script.
pub trait ScriptHost {
    /// Runs a command and appends its reply to `reply`, in the protocol that it is set to. There is at
    /// least one word.
    fn call(&mut self, words: &[&[u8]], reply: &mut ReplyBuffer);

    /// Whether the script's user may run a command; `None` if there is no such command.
    fn may_call(&mut self, words: &[&[u8]]) -> Option<bool>;

    /// The script answers an error, or one among the elements of its reply, that none of its commands has answered.
    fn note_error(&mut self, _line: &[u8]) {}

    /// Writes a line to the host's log.
    fn log(&mut self, level: LogLevel, message: &[u8]);

    /// Changes the consumers of the effects from here on: bit 0 the append-only file, bit 1 replicas.
    fn set_replication(&mut self, targets: u8);

    /// Asked every [`INSTRUCTIONS`] instructions: with an answer the script ends, and that is its error.
    fn interrupted(&mut self) -> Option<&'static str>;
}

/// Instructions between two questions whether a script is to end.
pub const INSTRUCTIONS: u32 = 10_000;

/// Bytes of stack that a thread needs which compiles or runs scripts. All limits on nesting (200 levels of C's
/// functions, 200 of the parser, 1,000 of values that are read or written) are reached within a quarter of it. That
/// holds without optimization, too: the tests of this crate run on that much.
pub const STACK_BYTES: usize = 8 << 20;

/// The levels of a script's lines in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum LogLevel {
    Debug,
    Verbose,
    Notice,
    Warning,
}
