//! Commands of modules that this server lacks, in a primary's stream or in the log that this server made of one.
//!
//! What such a command does is not known. It is passed over, so that the rest of the stream arrives; values of modules that it names
//! are kept as they are, and marked as stale. A command is one of a module if this server does not know it and its name has a dot,
//! as modules name theirs (`FT.CREATE`): a command of Redis itself never has one, and ends a link if it is not known.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use dunlin_engine::{Engine, command::CommandTable};

/// Words behind a command's name that are looked at as names of keys.
const OPERANDS_MAX: usize = 64;
/// Modules that the log names one by one.
const MODULES_MAX: usize = 64;
/// Bytes of a command's name and of a key that are shown.
const SHOWN_BYTES_MAX: usize = 64;
/// While a script holds a key.
const PAUSE: Duration = Duration::from_millis(1);

/// The commands of modules that were passed over.
#[derive(Debug, Default)]
pub(crate) struct ModuleCommands {
    /// All of them.
    pub(crate) passed_over: AtomicU64,
    /// Kept values that they named, each counted once.
    pub(crate) stale: AtomicU64,
    /// The modules that the log has named.
    told: Mutex<BTreeSet<Vec<u8>>>,
}

impl ModuleCommands {
    /// Whether a request is a command of a module that is not here.
    pub(crate) fn has(commands: &CommandTable, words: &[&[u8]]) -> bool {
        words.first().is_some_and(|name| name.contains(&b'.') && commands.find_row(name).is_none())
    }

    /// Passes a command over: kept values that it names are stale from now on. `participant` is the caller's place in the gate,
    /// which it does not hold.
    pub(crate) fn pass_over(&self, engine: &Engine, participant: usize, database: usize, words: &[&[u8]]) {
        let [name, operands @ ..] = words else { return };
        self.passed_over.fetch_add(1, Relaxed);
        let mut stale = None;
        for operand in operands.iter().take(OPERANDS_MAX) {
            if mark(engine, participant, database, operand) {
                self.stale.fetch_add(1, Relaxed);
                stale.get_or_insert(*operand);
            }
        }
        self.report(name, stale);
    }

    /// A data set comes that has the changes of all commands so far.
    pub(crate) fn begin_anew(&self) {
        self.passed_over.store(0, Relaxed);
        self.stale.store(0, Relaxed);
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Names a module in the log, once, and again when a value of it becomes stale for the first time.
    fn report(&self, name: &[u8], stale: Option<&[u8]>) {
        let module = name.split(|byte| *byte == b'.').next().unwrap_or_default();
        let mut module = module[..module.len().min(SHOWN_BYTES_MAX)].to_ascii_uppercase();
        if stale.is_some() {
            module.push(b'.');
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= MODULES_MAX || !told.insert(module) {
            return;
        }
        let shown = |word: &[u8]| word[..word.len().min(SHOWN_BYTES_MAX)].escape_ascii().to_string();
        let name = shown(&name.to_ascii_uppercase());
        match stale {
            Some(key) => tracing::warn!(
                "'{name}' has changed the value of the key '{}', which is kept here as it was: it is stale. INFO counts such values (module_values_stale)",
                shown(key)
            ),
            None => tracing::warn!(
                "'{name}' is a command of a module that is not here: it is passed over, as all of that module are (module_commands_passed_over in INFO); \
                 module-data refuse ends the link instead"
            ),
        }
    }
}

/// Marks the value of a key, waiting for a script that holds it.
fn mark(engine: &Engine, participant: usize, database: usize, key: &[u8]) -> bool {
    loop {
        let inside = engine.keyspace.enter(participant);
        if let Some(is_new) = engine.mark_stale(database, key, &inside) {
            return is_new;
        }
        drop(inside);
        thread::sleep(PAUSE);
    }
}
