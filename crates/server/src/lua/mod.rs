//! The scripts and functions that are there: their texts, their compiled forms, which of them are running. How they run, and what they may call,
//! is in [`crate::scripting`].

mod cache;
mod heaps;
pub(crate) mod key_access;
mod libraries;
mod library;
pub(crate) mod running;

use dunlin_engine::command::{Args, CommandError};
use dunlin_resp::number::parse_integer;
use dunlin_scripting::{CompileError, LogLevel, Shebang};

pub(crate) use self::{
    cache::{Compiled, CompiledScript, Script, ScriptCache},
    libraries::{Libraries, LibraryCache},
    library::{LibraryChange, LoadedLibraries, RestorePolicy},
    running::{Kind, RunningScripts},
};

/// Most memory that the scripts of one worker may take together, in bytes; and so its functions.
pub(crate) const MACHINE_BYTES_MAX: usize = 1 << 30;

/// Parts a script from its first line.
pub(crate) fn parse(text: &[u8]) -> Result<Shebang<'_>, CommandError> {
    Shebang::parse(text).map_err(|error| CommandError::owned(format!("ERR {error}")))
}

/// The reply about a script that cannot be compiled.
pub(crate) fn not_compiled(CompileError(message): CompileError) -> CommandError {
    CommandError::Text([b"ERR Error compiling script (new function): ", &message[..]].concat().into())
}

/// The words of a call.
pub(crate) struct Operands<'a> {
    /// All of them.
    pub(crate) words: &'a [&'a [u8]],
    /// The script, its name, or the function.
    pub(crate) name: &'a [u8],
    pub(crate) keys: &'a [&'a [u8]],
    pub(crate) arguments: &'a [&'a [u8]],
}

/// Reads the name, the number of keys, the keys and the arguments.
pub(crate) fn operands<'a>(
    args: &mut Args<'a>,
    not_integer: CommandError,
) -> Result<Operands<'a>, CommandError> {
    let name = args.word();
    let count = parse_integer(args.word()).ok_or(not_integer)?;
    let words = args.take_rest();
    if count > words.len() as i64 {
        return Err(CommandError::text("ERR Number of keys can't be greater than number of args"));
    }
    let count =
        usize::try_from(count).map_err(|_| CommandError::text("ERR Number of keys can't be negative"))?;
    let (keys, arguments) = words.split_at(count);
    Ok(Operands { words: args.words(), name, keys, arguments })
}

/// Writes a line of a script's to the log.
pub(crate) fn log(level: LogLevel, message: &[u8]) {
    let message = message.escape_ascii();
    match level {
        LogLevel::Debug => tracing::trace!("script: {message}"),
        LogLevel::Verbose => tracing::debug!("script: {message}"),
        LogLevel::Notice => tracing::info!("script: {message}"),
        LogLevel::Warning => tracing::warn!("script: {message}"),
    }
}
