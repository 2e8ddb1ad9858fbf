//! [`LibraryMachine`]: a Lua state that holds libraries of functions.
//!
//! A library is a chunk that runs once, when it is loaded, and registers its functions; until then it finds
//! little more than `redis.register_function`. Later the same globals show it all that functions may use.

use std::{
    collections::HashMap,
    ffi::{CStr, c_int},
};

use dunlin_resp::{Protocol, ReplyBuffer};

use crate::{
    ScriptFlags, ScriptHost,
    api::raise_error,
    collection::Heap,
    machine::{Core, compile, push_words},
    proof::{self, KeyAccess},
    sandbox::Purpose,
    stack::{Kind, NativeResult, Raised, Reference, Stack},
    state::Call,
};

/// The name of the chunk that a library is.
const LIBRARY_CHUNK: &CStr = c"@user_function";

/// Facts about a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: Vec<u8>,
    /// Its author's description.
    pub description: Option<Vec<u8>>,
    /// Its author's promises.
    pub flags: ScriptFlags,
}

/// A function that has just been registered.
pub(crate) struct Registered {
    function: Function,
    callback: Reference,
}

/// Why a library cannot be loaded: Lua's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// The library does not compile.
    Compile(Vec<u8>),
    /// The library ended in an error.
    Run(Vec<u8>),
}

/// A library in a machine. To be unloaded from the machine it is in, or dropped with it.
#[derive(Debug)]
pub struct Loaded {
    callbacks: HashMap<Vec<u8>, Reference>,
}

/// A Lua state for libraries.
pub struct LibraryMachine {
    core: Core,
}

impl std::fmt::Debug for LibraryMachine {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("LibraryMachine").finish_non_exhaustive()
    }
}

impl LibraryMachine {
    /// A machine without libraries; they may take `used_bytes_max` bytes together.
    pub fn new(used_bytes_max: usize) -> Self {
        Self { core: Core::new(used_bytes_max, Purpose::Functions) }
    }

    /// Its heap.
    pub fn heap(&self) -> Heap<'_> {
        Heap(&self.core.state)
    }

    /// Loads a library, its text without the shebang line, and returns the functions that it has registered,
    /// in that order.
    pub fn load(
        &mut self,
        text: &[u8],
        host: &mut dyn ScriptHost,
    ) -> Result<(Loaded, Vec<Function>), LoadError> {
        let (state, sandbox) = (&self.core.state, &self.core.sandbox);
        state.empty_if_full();
        let stack = state.stack();
        stack.push_reference(&sandbox.error_handler);
        if let Err(error) = compile(stack, text, LIBRARY_CHUNK) {
            stack.set_top(0);
            state.note_growth();
            return Err(LoadError::Compile(error.0));
        }
        sandbox.show(stack, &sandbox.loading);
        *state.machine().registered.borrow_mut() = Some(Vec::new());
        let mut call = Call { host, protocol: Protocol::Resp2, scratch: None };
        let outcome = state.serve(&mut call, |stack| stack.protected_call(0, 0, 1));
        let registered = state.machine().registered.borrow_mut().take().unwrap_or_default();
        sandbox.show(stack, &sandbox.globals);
        let mut loaded = Loaded { callbacks: HashMap::new() };
        let mut functions = Vec::with_capacity(registered.len());
        for Registered { function, callback } in registered {
            loaded.callbacks.insert(function.name.clone(), callback);
            functions.push(function);
        }
        let message = outcome.is_err().then(|| error_message(stack));
        stack.set_top(0);
        self.core.settle();
        match message {
            None => Ok((loaded, functions)),
            Some(message) => {
                self.unload(loaded);
                Err(LoadError::Run(message))
            }
        }
    }

    /// Whether a function calls only commands that `key_access` accepts, for all keys and arguments, as
    /// [`crate::Machine::proves`] it of a script.
    ///
    /// # Panics
    /// When the library has no such function.
    pub fn proves(&self, library: &Loaded, name: &[u8], key_access: KeyAccess<'_>) -> bool {
        let stack = self.core.state.stack();
        stack.push_reference(&library.callbacks[name]);
        let dump = stack.dump();
        stack.pop(1);
        proof::holds_of_function(&dump, key_access)
    }

    /// Takes a library out. Its memory comes back when the heap is collected, which is due.
    pub fn unload(&mut self, library: Loaded) {
        let stack = self.core.state.stack();
        library.callbacks.into_values().for_each(|callback| stack.drop_reference(callback));
        self.core.state.note_release();
    }

    /// Calls a function of a library that is in this machine, as [`crate::Machine::run`] runs a script.
    ///
    /// # Panics
    /// When the library has no such function.
    pub fn call(
        &mut self,
        library: &Loaded,
        name: &[u8],
        keys: &[&[u8]],
        arguments: &[&[u8]],
        host: &mut dyn ScriptHost,
        reply: &mut ReplyBuffer,
    ) -> Result<(), Vec<u8>> {
        self.core.state.empty_if_full();
        let callback = &library.callbacks[name];
        let push = |stack: Stack<'_>| {
            stack.push_reference(callback);
            push_words(stack, keys);
            push_words(stack, arguments);
            2
        };
        self.core.call(|| name, push, host, reply)
    }
}

/// The text of the error on top.
fn error_message(stack: Stack<'_>) -> Vec<u8> {
    if stack.kind(-1) == Kind::Table {
        stack.raw_get_field(-1, "err");
    }
    match stack.kind(-1) {
        Kind::String | Kind::Number => stack.text(-1).to_vec(),
        _ => b"ERR unknown error".to_vec(),
    }
}

/// `redis.register_function`.
pub(crate) fn register_function(stack: Stack<'_>) -> NativeResult {
    let function = match stack.top() {
        1 if stack.kind(1) == Kind::Table => named(stack)?,
        1 => {
            let text = "calling redis.register_function with a single argument is only applicable to Lua \
                        table (representing named arguments).";
            return Err(raise_error(stack, text));
        }
        2 => positional(stack)?,
        _ => return Err(raise_error(stack, "wrong number of arguments to redis.register_function")),
    };
    // The callback is on top.
    let mut registered = stack.machine().registered.borrow_mut();
    let Some(registered) = &mut *registered else {
        let text = "redis.register_function can only be called on FUNCTION LOAD command";
        return Err(raise_error(stack, text));
    };
    if !is_name(&function.name) {
        let text = "Library names can only contain letters, numbers, or underscores(_) and must be at least one \
                    character long";
        return Err(raise_error(stack, text));
    }
    if registered.iter().any(|other| other.function.name == function.name) {
        return Err(raise_error(stack, "Function already exists in the library"));
    }
    registered.push(Registered { function, callback: stack.make_reference() });
    Ok(0)
}

/// Whether a library or a function may have a name.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

fn text_at(stack: Stack<'_>, at: c_int, refusal: &str) -> Result<Vec<u8>, Raised> {
    match stack.kind(at) {
        Kind::String | Kind::Number => {
            // A copy: a number that is read as text becomes one, which a walk over a table must not see.
            stack.push_copy(at);
            let text = stack.text(-1).to_vec();
            stack.pop(1);
            Ok(text)
        }
        _ => Err(raise_error(stack, refusal)),
    }
}

/// `(name, callback)`; leaves the callback on top.
fn positional(stack: Stack<'_>) -> Result<Function, Raised> {
    let name = text_at(stack, 1, "first argument to redis.register_function must be a string")?;
    if stack.kind(2) != Kind::Function {
        return Err(raise_error(stack, "second argument to redis.register_function must be a function"));
    }
    Ok(Function { name, description: None, flags: ScriptFlags::default() })
}

/// `{function_name = …, callback = …, flags = {…}, description = …}`; leaves the callback on top.
fn named(stack: Stack<'_>) -> Result<Function, Raised> {
    let (mut name, mut description, mut flags) = (None, None, ScriptFlags::default());
    let mut has_callback = false;
    // Below the walk over the table.
    stack.push_nil();
    stack.push_nil();
    while stack.next(1) {
        let is_text = matches!(stack.kind(-2), Kind::String | Kind::Number);
        let Some(key) = is_text.then(|| stack.bytes(-2).unwrap_or_default()) else {
            let text = "named argument key given to redis.register_function is not a string";
            return Err(raise_error(stack, text));
        };
        match key {
            b"function_name" => {
                let text = "function_name argument given to redis.register_function must be a string";
                name = Some(text_at(stack, -1, text)?);
            }
            b"description" => {
                let text = "description argument given to redis.register_function must be a string";
                description = Some(text_at(stack, -1, text)?);
            }
            b"callback" => {
                if stack.kind(-1) != Kind::Function {
                    let text = "callback argument given to redis.register_function must be a function";
                    return Err(raise_error(stack, text));
                }
                stack.push_copy(-1);
                stack.replace(2);
                has_callback = true;
            }
            b"flags" => flags = flags_of(stack)?,
            _ => {
                return Err(raise_error(stack, "unknown argument given to redis.register_function"));
            }
        }
        stack.pop(1);
    }
    let Some(name) = name else {
        return Err(raise_error(stack, "redis.register_function must get a function name argument"));
    };
    if !has_callback {
        return Err(raise_error(stack, "redis.register_function must get a callback argument"));
    }
    Ok(Function { name, description, flags })
}

/// The flags in the table on top.
fn flags_of(stack: Stack<'_>) -> Result<ScriptFlags, Raised> {
    if stack.kind(-1) != Kind::Table {
        let text = "flags argument to redis.register_function must be a table representing function flags";
        return Err(raise_error(stack, text));
    }
    let mut flags = ScriptFlags::default();
    for index in 1.. {
        stack.raw_get_index(-1, index);
        if stack.kind(-1) == Kind::Nil {
            break;
        }
        let Some(flag) = stack.bytes(-1).and_then(ScriptFlags::named) else {
            return Err(raise_error(stack, "unknown flag given"));
        };
        flags = flags.and(flag);
        stack.pop(1);
    }
    stack.pop(1);
    Ok(flags)
}
