//! Libraries of functions: those that clients have loaded, and what each worker has of them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use dunlin_engine::{
    command::{CommandError, CommandResult, CommandTable},
    rdb::{Input, Output, Version, seal_dump, unseal_dump},
};
use dunlin_resp::ReplyBuffer;
use dunlin_scripting::{Caller, Function, LibraryMachine, LoadError, Loaded, LogLevel, STACK_BYTES, is_name};

use super::{MACHINE_BYTES_MAX, calls, judge};
use crate::config::words;

/// In front of a library in an RDB file or a dump; the other is of a format that was never released.
const FUNCTION: u8 = 245;
const FUNCTION_PRE_GA: u8 = 246;

/// How long a library may take to load.
const LOAD_TIMEOUT: Duration = Duration::from_millis(500);

/// A library.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) name: Vec<u8>,
    /// The text as it came.
    pub(crate) code: Vec<u8>,
    pub(crate) functions: Vec<Function>,
    /// Of each function, whether it keeps to the keys that a call declares.
    keeps_to_declared: Vec<bool>,
}

/// All libraries at one moment.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    by_name: BTreeMap<Vec<u8>, Arc<Library>>,
    /// By name in lower case: the library, and the function's place in it.
    functions: HashMap<Vec<u8>, (Arc<Library>, usize)>,
}

impl Libraries {
    /// The libraries, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Library>> {
        self.by_name.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn functions(&self) -> usize {
        self.functions.len()
    }

    /// Bytes of the texts.
    pub(crate) fn bytes(&self) -> usize {
        self.iter().map(|library| library.code.len() + size_of::<Library>()).sum()
    }

    fn is_current(&self, library: &Arc<Library>) -> bool {
        self.by_name.get(&library.name).is_some_and(|current| Arc::ptr_eq(current, library))
    }

    /// With one more library, in place of one of that name if there is.
    fn with(&self, library: Arc<Library>) -> Result<Self, CommandError> {
        let mut by_name = self.by_name.clone();
        by_name.insert(library.name.clone(), library);
        Self::of(by_name)
    }

    fn of(by_name: BTreeMap<Vec<u8>, Arc<Library>>) -> Result<Self, CommandError> {
        let mut functions = HashMap::new();
        for library in by_name.values() {
            for (place, function) in library.functions.iter().enumerate() {
                let key = function.name.to_ascii_lowercase();
                if functions.insert(key, (Arc::clone(library), place)).is_some() {
                    let name = String::from_utf8_lossy(&function.name);
                    return Err(CommandError::owned(format!("ERR Function {name} already exists")));
                }
            }
        }
        Ok(Self { by_name, functions })
    }
}

/// The libraries of all workers.
#[derive(Debug)]
pub(crate) struct LibraryCache {
    current: ArcSwap<Libraries>,
    /// Held by who replaces them.
    writer: Mutex<()>,
    /// Bytes of each worker's machine, as of its last call.
    machines: Box<[AtomicUsize]>,
}

impl LibraryCache {
    pub(crate) fn new(workers: usize) -> Self {
        let machines = (0..workers).map(|_| AtomicUsize::new(0)).collect();
        Self { current: ArcSwap::default(), writer: Mutex::default(), machines }
    }

    /// All of them now.
    pub(crate) fn now(&self) -> Arc<Libraries> {
        self.current.load_full()
    }

    /// Bytes of all machines.
    pub(crate) fn machine_bytes(&self) -> usize {
        self.machines.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Takes a library out.
    fn delete(&self, name: &[u8], record: impl FnOnce()) -> CommandResult {
        self.change(record, |libraries| {
            let mut by_name = libraries.by_name.clone();
            by_name.remove(name).ok_or(CommandError::text("ERR Library not found"))?;
            Libraries::of(by_name)
        })
    }

    /// Takes all out.
    pub(crate) fn flush(&self) {
        self.current.store(Arc::default());
    }

    /// Has these libraries in place of all others. One that does not load is an error, which is one line: if it were left out, the next
    /// snapshot would be without it.
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
        // Whoever reads a file may be on any thread: libraries need the stack that scripts are promised.
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("libraries".to_owned()).stack_size(STACK_BYTES);
            let thread = thread
                .spawn_scoped(scope, load)
                .map_err(|error| format!("there is no thread to load libraries of functions: {error}"))?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// All libraries as FUNCTION RESTORE takes them: as they stand in an RDB file, with a footer.
    pub(crate) fn dump(&self) -> Vec<u8> {
        let mut dump = Vec::new();
        let mut output = Output::new(&mut dump, None);
        for library in self.current.load().iter() {
            // Writing to a vector cannot fail.
            let _ = output.byte(FUNCTION);
            let _ = output.string(&library.code);
        }
        seal_dump(&mut dump, Version::Redis(10));
        dump
    }

    /// Changes them, and records that, in the order in which others see it.
    fn change(
        &self,
        record: impl FnOnce(),
        change: impl FnOnce(&Libraries) -> Result<Libraries, CommandError>,
    ) -> CommandResult {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&self.current.load())?;
        self.current.store(Arc::new(changed));
        record();
        Ok(())
    }
}

/// The first line of a library, understood.
struct Header<'a> {
    name: Vec<u8>,
    /// What follows the line, its line break included.
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
    known: Arc<Libraries>,
    loaded: HashMap<Vec<u8>, (Arc<Library>, Loaded)>,
}

impl LoadedLibraries {
    /// Lets go of what others have replaced or taken out.
    fn catch_up(&mut self, cache: &LibraryCache) {
        let current = cache.current.load();
        if Arc::ptr_eq(&current, &self.known) {
            return;
        }
        self.known = Arc::clone(&current);
        let gone = self.loaded.extract_if(|_, (library, _)| !current.is_current(library));
        for (_, (_, loaded)) in gone {
            if let Some(machine) = &mut self.machine {
                machine.unload(loaded);
            }
        }
    }

    fn machine(&mut self) -> &mut LibraryMachine {
        self.machine.get_or_insert_with(|| Box::new(LibraryMachine::new(MACHINE_BYTES_MAX)))
    }

    /// The function of that name, in a library that is loaded here.
    pub(super) fn find(&mut self, cache: &LibraryCache, name: &[u8]) -> Result<Callable, CommandError> {
        self.catch_up(cache);
        let (library, place) = match self.known.functions.get(name) {
            Some(found) => Some(found),
            None => self.known.functions.get(&name.to_ascii_lowercase()),
        }
        .cloned()
        .ok_or(CommandError::text("ERR Function not found"))?;
        if !self.loaded.contains_key(&library.name) {
            let code = Header::parse(&library.code)?.code;
            let (loaded, _) = self.machine().load(code, &mut Loader::new()).map_err(not_loaded)?;
            self.loaded.insert(library.name.clone(), (Arc::clone(&library), loaded));
        }
        Ok(Callable { library, place })
    }

    /// Makes a change, and has it recorded in its place among others; the name of a library that was loaded.
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
            LibraryChange::Delete { name } => cache.delete(name, record)?,
            LibraryChange::Flush => cache.change(record, |_| Ok(Libraries::default()))?,
            LibraryChange::Restore { dump, policy } => self.restore(cache, table, (dump, policy), record)?,
        }
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
        if !replace && self.known.by_name.contains_key(&name) {
            return Err(exists());
        }
        let machine = self.machine();
        let (loaded, functions) = machine.load(code, &mut Loader::new()).map_err(not_loaded)?;
        if functions.is_empty() {
            machine.unload(loaded);
            return Err(CommandError::text("ERR No functions registered"));
        }
        let prove = |function: &Function| {
            machine
                .proves(&loaded, &function.name, &|words, list| judge::keeps_to_declared(table, words, list))
        };
        let keeps_to_declared = functions.iter().map(prove).collect();
        let library =
            Arc::new(Library { name: name.clone(), code: text.to_vec(), functions, keeps_to_declared });
        let changed = cache.change(record, |libraries| {
            // Another worker may have been faster.
            if !replace && libraries.by_name.contains_key(&name) {
                return Err(exists());
            }
            libraries.with(Arc::clone(&library))
        });
        if let Err(error) = changed {
            self.machine().unload(loaded);
            return Err(error);
        }
        self.catch_up(cache);
        self.loaded.insert(name.clone(), (library, loaded));
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
        // Loaded apart first, so that a library that does not load spoils nothing.
        let (apart, mut loader) = (LibraryCache::new(1), Self::default());
        for code in &codes {
            loader.load(&apart, table, (code, false), || ())?;
        }
        let restored = apart.now();
        cache.change(record, |current| {
            let mut by_name = match policy {
                RestorePolicy::Flush => BTreeMap::new(),
                RestorePolicy::Append | RestorePolicy::Replace => current.by_name.clone(),
            };
            for (name, library) in &restored.by_name {
                let old = by_name.insert(name.clone(), Arc::clone(library));
                if old.is_some() && policy == RestorePolicy::Append {
                    return Err(CommandError::quoting_within("ERR Library ", name, " already exists"));
                }
            }
            Libraries::of(by_name)
        })
    }

    /// Calls a function that was found here.
    pub(super) fn call(
        &mut self,
        callable: &Callable,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        caller: &mut calls::Calls<'_, '_, '_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), Vec<u8>> {
        let (_, loaded) = &self.loaded[&callable.library.name];
        let machine = self.machine.as_mut().expect("the library is loaded in it");
        machine.call(loaded, &callable.function().name, keys, arguments, caller, reply)
    }

    /// Tells how much the machine takes.
    pub(super) fn publish_bytes(&self, cache: &LibraryCache, worker: usize) {
        let bytes = self.machine.as_ref().map_or(0, |machine| machine.used_bytes());
        cache.machines[worker].store(bytes, Ordering::Relaxed);
    }
}

/// What FUNCTION can change.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LibraryChange<'a> {
    /// One more library, or another in its place.
    Load { code: &'a [u8], replace: bool },
    /// One less.
    Delete { name: &'a [u8] },
    /// None at all.
    Flush,
    /// Those of a dump.
    Restore { dump: &'a [u8], policy: RestorePolicy },
}

/// What RESTORE does with the libraries that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestorePolicy {
    /// They are removed.
    Flush,
    /// They stay; one of the same name is an error.
    Append,
    /// They stay, but for those of the same name.
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

/// A function that can be called.
pub(super) struct Callable {
    library: Arc<Library>,
    place: usize,
}

impl Callable {
    pub(super) fn function(&self) -> &Function {
        &self.library.functions[self.place]
    }

    pub(super) fn keeps_to_declared(&self) -> bool {
        self.library.keeps_to_declared[self.place]
    }
}

fn not_loaded(error: LoadError) -> CommandError {
    let (before, message) = match error {
        LoadError::Compile(message) => ("ERR Error compiling function: ", message),
        LoadError::Run(message) => ("ERR Error registering functions: ", message),
    };
    CommandError::Text([before.as_bytes(), &message].concat().into())
}

/// What a library may ask for while it loads: hardly anything.
struct Loader {
    until: Instant,
}

impl Loader {
    fn new() -> Self {
        Self { until: Instant::now() + LOAD_TIMEOUT }
    }
}

impl Caller for Loader {
    fn call(&mut self, _: &[&[u8]], reply: &mut ReplyBuffer) {
        reply.error("ERR redis.call/pcall can only be called inside a script invocation");
    }

    fn may_call(&mut self, _: &[&[u8]]) -> Option<bool> {
        None
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        calls::log(level, message);
    }

    fn set_replication(&mut self, _: u8) {}

    fn interrupted(&mut self) -> Option<&'static str> {
        (Instant::now() >= self.until).then_some("FUNCTION LOAD timeout")
    }
}
