//! Loading libraries of functions, and each worker's compiled ones.

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use dunlin_engine::{
    command::{CommandError, CommandResult, CommandTable},
    rdb::{Input, unseal_dump},
};
use dunlin_resp::ReplyBuffer;
use dunlin_scripting::{
    Function, Heap, LibraryMachine, LoadError, Loaded, LogLevel, STACK_BYTES, ScriptHost, is_name,
};

use super::{
    MACHINE_BYTES_MAX, key_access,
    libraries::{Callable, Change, Library, LibraryCache, Missed},
    log,
};
use crate::config::words;

/// The opcode in front of a library in an RDB file or a dump; the other is of a format that was never released.
pub(crate) const FUNCTION: u8 = 245;
const FUNCTION_PRE_GA: u8 = 246;

/// How long a library may take to load.
const LOAD_TIMEOUT: Duration = Duration::from_millis(500);

impl LibraryCache {
    /// Puts these libraries in place of all others. A library that does not load is an error, which is one line: if it
    /// were left out, the next snapshot would be without it.
    pub(crate) fn replace_all(&self, table: &CommandTable, codes: &[Vec<u8>]) -> Result<(), String> {
        self.flush();
        if codes.is_empty() {
            return Ok(());
        }
        let load = || {
            let mut loader = LoadedLibraries::default();
            codes.iter().try_for_each(|code| {
                loader.load(self, table, (code, true), || ()).map(drop).map_err(|error| {
                    let first_line = code.split(|byte| *byte == b'\n').next().unwrap_or_default();
                    let reason = String::from_utf8_lossy(&error.line()).into_owned();
                    format!(
                        "the library of functions that begins with \"{}\" does not load: {reason}",
                        first_line.escape_ascii()
                    )
                })
            })
        };
        // Any thread may read a file: libraries need the stack that scripts are promised.
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("libraries".to_owned()).stack_size(STACK_BYTES);
            let thread = thread
                .spawn_scoped(scope, load)
                .map_err(|error| format!("there is no thread to load libraries of functions: {error}"))?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// The first line of a library, understood.
struct Header<'a> {
    name: Vec<u8>,
    /// The text behind the line, its line break included.
    code: &'a [u8],
}

impl<'a> Header<'a> {
    fn parse(text: &'a [u8]) -> Result<Self, CommandError> {
        let quoting = |before: &str, word: &[u8]| CommandError::quoting(before, word);
        let Some(rest) = text.strip_prefix(b"#!") else {
            return Err(CommandError::text("ERR Missing library metadata"));
        };
        const INVALID: CommandError = CommandError::text("ERR Invalid library metadata");
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or(INVALID)?;
        let (line, code) = rest.split_at(end);
        let mut words = words::split(line).map_err(|_| INVALID)?.into_iter();
        // Nothing but a blank behind the marker: an engine without a name.
        let is_named = line.first().is_some_and(|byte| !byte.is_ascii_whitespace());
        let engine = if is_named { words.next().unwrap_or_default() } else { Vec::new() };
        let mut name = None;
        for word in words {
            let is_name = word.get(..5).is_some_and(|head| head.eq_ignore_ascii_case(b"name="));
            if !is_name {
                return Err(quoting("ERR Invalid metadata value given: ", &word));
            }
            if name.replace(word[5..].to_vec()).is_some() {
                let text = "ERR Invalid metadata value, name argument was given multiple times";
                return Err(CommandError::text(text));
            }
        }
        let name = name.ok_or(CommandError::text("ERR Library name was not given"))?;
        if !is_name(&name) {
            return Err(CommandError::text(
                "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
            ));
        }
        if !engine.eq_ignore_ascii_case(b"lua") {
            return Err(CommandError::quoting_within("ERR Engine '", &engine, "' not found"));
        }
        Ok(Self { name, code })
    }
}

/// A worker's machine and the libraries it has loaded.
#[derive(Debug, Default)]
pub(crate) struct LoadedLibraries {
    /// Made when it is first needed.
    machine: Option<Box<LibraryMachine>>,
    /// The changes of the cache that it has followed, and the removals among them.
    version: u64,
    removals: u64,
    /// Functions that were called since the last change, by name in lower case. Only this worker counts them.
    callables: HashMap<Vec<u8>, Rc<Callable>>,
    /// By their numbers.
    loaded: HashMap<u64, (Arc<Library>, Loaded)>,
    /// A machine that was given up, to be freed where no client waits for it.
    retired: Option<Box<LibraryMachine>>,
}

impl LoadedLibraries {
    /// Lets go of libraries that others have replaced or taken out.
    #[inline]
    pub(crate) fn catch_up(&mut self, cache: &LibraryCache) {
        if let Some(missed) = cache.missed(self.version, self.removals) {
            self.follow(cache, missed);
        }
    }

    #[cold]
    fn follow(&mut self, cache: &LibraryCache, missed: Missed) {
        (self.version, self.removals) = (missed.version, missed.removals);
        self.callables.clear();
        let removed = missed.removed.unwrap_or_else(|| {
            let is_gone = |(library, _): &&(Arc<Library>, Loaded)| !cache.is_current(library);
            self.loaded.values().filter(is_gone).map(|(library, _)| library.id()).collect()
        });
        for id in removed {
            if let (Some((_, loaded)), Some(machine)) = (self.loaded.remove(&id), &mut self.machine) {
                machine.unload(loaded);
            }
        }
        if self.loaded.is_empty() {
            self.retired = self.machine.take().or(self.retired.take());
        }
    }

    /// The machine that was given up last.
    pub(crate) fn take_retired(&mut self) -> Option<Box<LibraryMachine>> {
        self.retired.take()
    }

    /// The heap of the machine, if there is one.
    #[inline]
    pub(crate) fn heap(&self) -> Option<Heap<'_>> {
        self.machine.as_ref().map(|machine| machine.heap())
    }

    /// How many libraries are loaded here.
    #[cfg(test)]
    pub(crate) fn loaded_count(&self) -> usize {
        self.loaded.len()
    }

    fn machine(&mut self) -> &mut LibraryMachine {
        self.machine.get_or_insert_with(|| Box::new(LibraryMachine::new(MACHINE_BYTES_MAX)))
    }

    /// The function of that name, in a library that is loaded here.
    pub(crate) fn find(&mut self, cache: &LibraryCache, name: &[u8]) -> Result<Rc<Callable>, CommandError> {
        self.catch_up(cache);
        if let Some(callable) = self.callables.get(name) {
            return Ok(Rc::clone(callable));
        }
        let name = name.to_ascii_lowercase();
        if let Some(callable) = self.callables.get(&name) {
            return Ok(Rc::clone(callable));
        }
        let callable = cache.find(&name).ok_or(CommandError::text("ERR Function not found"))?;
        let library = &callable.library;
        if !self.loaded.contains_key(&library.id()) {
            let code = Header::parse(&library.code)?.code;
            let (loaded, _) = self.machine().load(code, &mut Loader::new()).map_err(not_loaded)?;
            self.loaded.insert(library.id(), (Arc::clone(library), loaded));
        }
        let callable = Rc::new(callable);
        self.callables.insert(name, Rc::clone(&callable));
        Ok(callable)
    }

    /// Makes a change, and records it in its place among others. Returns the name of a library that was loaded.
    pub(crate) fn apply(
        &mut self,
        cache: &LibraryCache,
        table: &CommandTable,
        change: &LibraryChange<'_>,
        record: impl FnOnce(),
    ) -> Result<Option<Vec<u8>>, CommandError> {
        match *change {
            LibraryChange::Load { code, replace } => {
                return self.load(cache, table, (code, replace), record).map(Some);
            }
            LibraryChange::Delete { name } => cache.change(record, |current| {
                let is_there = current.contains(name);
                let removed = HashSet::from([name.to_vec()]);
                let change = Change { removed, ..Change::default() };
                is_there.then_some(change).ok_or(CommandError::text("ERR Library not found"))
            })?,
            LibraryChange::Flush => {
                cache.change(record, |_| Ok(Change { empties: true, ..Change::default() }))?;
            }
            LibraryChange::Restore { dump, policy } => self.restore(cache, table, (dump, policy), record)?,
        }
        self.catch_up(cache);
        Ok(None)
    }

    /// Loads a library here and takes it into the cache; its name.
    fn load(
        &mut self,
        cache: &LibraryCache,
        table: &CommandTable,
        (text, replace): (&[u8], bool),
        record: impl FnOnce(),
    ) -> Result<Vec<u8>, CommandError> {
        let Header { name, code } = Header::parse(text)?;
        let exists = || {
            let name = String::from_utf8_lossy(&name);
            CommandError::owned(format!("ERR Library '{name}' already exists"))
        };
        self.catch_up(cache);
        if !replace && cache.contains(&name) {
            return Err(exists());
        }
        let machine = self.machine();
        let (loaded, functions) = machine.load(code, &mut Loader::new()).map_err(not_loaded)?;
        if functions.is_empty() {
            machine.unload(loaded);
            return Err(CommandError::text("ERR No functions registered"));
        }
        let prove = |function: &Function| {
            machine.proves(&loaded, &function.name, &|words, list| {
                key_access::keeps_to_declared(table, words, list)
            })
        };
        let keeps_to_declared = functions.iter().map(prove).collect();
        let library = Arc::new(Library::new(name.clone(), text, functions, keeps_to_declared));
        let changed = cache.change(record, |current| {
            // Another worker may have been faster.
            if !replace && current.contains(&name) {
                return Err(exists());
            }
            let (removed, added) = (HashSet::from([name.clone()]), vec![Arc::clone(&library)]);
            Ok(Change { removed, added, ..Change::default() })
        });
        if let Err(error) = changed {
            self.machine().unload(loaded);
            return Err(error);
        }
        // Before a look at the libraries that others have taken out: it may be among them already.
        self.loaded.insert(library.id(), (library, loaded));
        self.catch_up(cache);
        Ok(name)
    }

    /// Loads the libraries of a dump, all or none.
    fn restore(
        &self,
        cache: &LibraryCache,
        table: &CommandTable,
        (dump, policy): (&[u8], RestorePolicy),
        record: impl FnOnce(),
    ) -> CommandResult {
        let codes = codes_of(dump)?;
        // Loaded into a library cache of its own first, so that a library that does not load spoils nothing.
        let (separate, mut loader) = (LibraryCache::new(1), Self::default());
        for code in &codes {
            loader.load(&separate, table, (code, false), || ())?;
        }
        let restored: Vec<_> = separate.now().iter().cloned().collect();
        cache.change(record, |current| {
            let taken = restored.iter().find(|library| current.contains(&library.name));
            if let (Some(library), RestorePolicy::Append) = (taken, policy) {
                return Err(CommandError::quoting_within("ERR Library ", &library.name, " already exists"));
            }
            Ok(Change {
                empties: policy == RestorePolicy::Flush,
                removed: restored.iter().map(|library| library.name.clone()).collect(),
                added: restored,
            })
        })
    }

    /// Calls a function that was found here.
    pub(crate) fn call(
        &mut self,
        callable: &Callable,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        caller: &mut impl ScriptHost,
        reply: &mut ReplyBuffer,
    ) -> Result<(), Vec<u8>> {
        let (_, loaded) = &self.loaded[&callable.library.id()];
        let machine = self.machine.as_mut().expect("the library is loaded in it");
        machine.call(loaded, &callable.function().name, keys, arguments, caller, reply)
    }
}

/// The change that FUNCTION makes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LibraryChange<'a> {
    /// A further library, or another in its place.
    Load { code: &'a [u8], replace: bool },
    /// A library goes.
    Delete { name: &'a [u8] },
    /// None at all.
    Flush,
    /// Libraries of a dump.
    Restore { dump: &'a [u8], policy: RestorePolicy },
}

impl LibraryChange<'_> {
    /// The texts of the libraries that it brings.
    pub(crate) fn texts(&self) -> Result<Vec<Vec<u8>>, CommandError> {
        match self {
            Self::Load { code, .. } => Ok(vec![code.to_vec()]),
            Self::Restore { dump, .. } => codes_of(dump),
            Self::Delete { .. } | Self::Flush => Ok(Vec::new()),
        }
    }
}

/// The treatment of existing libraries by RESTORE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestorePolicy {
    /// The libraries that are there are removed.
    Flush,
    /// The libraries that are there stay; one of the same name is an error.
    Append,
    /// The libraries that are there stay, but for those of the same name.
    Replace,
}

/// The texts in a dump.
fn codes_of(dump: &[u8]) -> Result<Vec<Vec<u8>>, CommandError> {
    const CORRUPT: CommandError = CommandError::text("ERR failed loading functions payload");
    let (body, _) = unseal_dump(dump, false)
        .map_err(|_| CommandError::text("ERR DUMP payload version or checksum are wrong"))?;
    let mut input = Input::new(body);
    let mut codes = Vec::new();
    while !input.is_at_end().map_err(|_| CORRUPT)? {
        match input.byte().map_err(|_| CORRUPT)? {
            FUNCTION => codes.push(input.string().map_err(|_| CORRUPT)?),
            FUNCTION_PRE_GA => {
                return Err(CommandError::text("ERR Pre-GA function format not supported"));
            }
            _ => return Err(CommandError::text("ERR given type is not a function")),
        }
    }
    Ok(codes)
}

fn not_loaded(error: LoadError) -> CommandError {
    let (before, message) = match error {
        LoadError::Compile(message) => ("ERR Error compiling function: ", message),
        LoadError::Run(message) => ("ERR Error registering functions: ", message),
    };
    CommandError::Text([before.as_bytes(), &message].concat().into())
}

/// The caller of a library that loads: it offers hardly anything.
struct Loader {
    until: Instant,
}

impl Loader {
    fn new() -> Self {
        Self { until: Instant::now() + LOAD_TIMEOUT }
    }
}

impl ScriptHost for Loader {
    fn call(&mut self, _: &[&[u8]], reply: &mut ReplyBuffer) {
        reply.error("ERR redis.call/pcall can only be called inside a script invocation");
    }

    fn may_call(&mut self, _: &[&[u8]]) -> Option<bool> {
        None
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        log(level, message);
    }

    fn set_replication(&mut self, _: u8) {}

    fn interrupted(&mut self) -> Option<&'static str> {
        (Instant::now() >= self.until).then_some("FUNCTION LOAD timeout")
    }
}
