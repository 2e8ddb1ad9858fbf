//! [`Machine`]: a Lua state that runs scripts by their SHA-1.

use std::{
    collections::HashMap,
    ffi::{CStr, c_int},
    hash::{BuildHasherDefault, Hash, Hasher},
};

use dunlin_resp::{Protocol, ReplyBuffer};
use sha1::{Digest, Sha1};

use crate::{
    ScriptHost,
    api::hex,
    budget,
    cjson::Settings,
    collection::Heap,
    convert::{field_text, is_of_command, write_reply},
    proof::{self, KeyAccess},
    sandbox::{self, Purpose, Sandbox},
    stack::{Kind, Raised, Reference, Stack},
    state::{Call, LuaState},
};

/// The name of the chunk that a script is.
const SCRIPT_CHUNK: &CStr = c"@user_script";

/// The name of a script: the SHA-1 of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sha([u8; 20]);

impl Hash for Sha {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let first = self.0.first_chunk().expect("it is longer");
        state.write_u64(u64::from_ne_bytes(*first));
    }
}

/// A map from the names of scripts.
pub type ShaMap<V> = HashMap<Sha, V, BuildHasherDefault<ShaHasher>>;

/// A hasher for names of scripts. Such names are as good as random. An attacker who looks for names that are alike
/// must be able to load scripts, and can then do more harm by other means.
#[derive(Debug, Default)]
pub struct ShaHasher(u64);

impl Hasher for ShaHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// The value of a hexadecimal digit, by its byte; 255 for other bytes.
const DIGITS: [u8; 256] = {
    let mut digits = [u8::MAX; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value] as usize] = value as u8;
        digits[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

impl Sha {
    /// The name of a text.
    pub fn of(text: &[u8]) -> Self {
        Self(Sha1::digest(text).into())
    }

    /// Reads forty digits, in any letter case.
    pub fn parse(digits: &[u8]) -> Option<Self> {
        let digits: &[u8; 40] = digits.try_into().ok()?;
        let (mut sha, mut all) = ([0; 20], 0);
        for (byte, pair) in sha.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = [pair[0], pair[1]].map(|digit| DIGITS[usize::from(digit)]);
            *byte = high << 4 | low;
            all |= high | low;
        }
        (all < 16).then_some(Self(sha))
    }

    /// Forty lower-case digits.
    pub fn hex(&self) -> [u8; 40] {
        hex(&self.0)
    }
}

/// Why a script cannot be run at all: Lua's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError(pub Vec<u8>);

/// A Lua state and the parts that its calls have in common.
pub(crate) struct Core {
    pub(crate) state: LuaState,
    pub(crate) sandbox: Sandbox,
    /// The buffer into which commands write their replies.
    scratch: Option<ReplyBuffer>,
}

impl Core {
    pub(crate) fn new(used_bytes_max: usize, purpose: Purpose) -> Self {
        let state = LuaState::new(used_bytes_max);
        let sandbox = sandbox::set_up(&state, purpose);
        budget::watch(&state);
        state.note_empty();
        Self { state, sandbox, scratch: None }
    }

    /// Calls what `push` pushes, a function and its arguments, and appends its reply; or the line of the error
    /// that it has ended in, or that it returns. `name` is its name in errors.
    pub(crate) fn call<N: AsRef<[u8]>>(
        &mut self,
        name: impl FnOnce() -> N,
        push: impl FnOnce(Stack<'_>) -> c_int,
        host: &mut dyn ScriptHost,
        reply: &mut ReplyBuffer,
    ) -> Result<(), Vec<u8>> {
        let stack = self.state.stack();
        self.state.machine().json.set(Settings::default());
        stack.push_reference(&self.sandbox.error_handler);
        let arguments = push(stack);
        let mut call = Call { host, protocol: Protocol::Resp2, scratch: self.scratch.take() };
        let result = self.state.serve(&mut call, |stack| match stack.protected_call(arguments, 1, 1) {
            Ok(()) => match returned_error(stack) {
                Some(line) => Err(line),
                None => {
                    let protocol = stack.with_call(|call| call.protocol).unwrap_or_default();
                    let mut note_error = |line: &[u8]| {
                        stack.with_call(|call| call.host.note_error(line));
                    };
                    write_reply(stack, protocol, reply, &mut note_error).map_err(String::into_bytes)
                }
            },
            Err(Raised) => Err(raised_error(stack, name().as_ref())),
        });
        self.scratch = call.scratch.take();
        if let Err(line) = &result
            && !is_of_command(stack)
        {
            call.host.note_error(line);
        }
        stack.set_top(0);
        self.settle();
        result
    }

    /// After a call: nothing of it is left but garbage. Whether collection is due.
    pub(crate) fn settle(&mut self) -> bool {
        if self.state.machine().doom.take().is_some() {
            budget::watch(&self.state);
        }
        self.state.machine().steps.set(0);
        self.state.note_growth()
    }
}

/// A Lua state for scripts.
pub struct Machine {
    core: Core,
    scripts: ShaMap<Reference>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Machine").field("scripts", &self.scripts.len()).finish_non_exhaustive()
    }
}

impl Machine {
    /// A machine without scripts; they may take `used_bytes_max` bytes together.
    pub fn new(used_bytes_max: usize) -> Self {
        Self { core: Core::new(used_bytes_max, Purpose::Scripts), scripts: ShaMap::default() }
    }

    /// Its heap.
    pub fn heap(&self) -> Heap<'_> {
        Heap(&self.core.state)
    }

    /// Compiles a script, under this name. Its text is without a shebang line, though with the line
    /// break behind it, so that its lines keep their numbers.
    pub fn load(&mut self, sha: Sha, text: &[u8]) -> Result<(), CompileError> {
        self.core.state.empty_if_full();
        let stack = self.core.state.stack();
        let compiled = compile(stack, text, SCRIPT_CHUNK);
        if compiled.is_ok()
            && let Some(old) = self.scripts.insert(sha, stack.make_reference())
        {
            stack.drop_reference(old);
        }
        self.core.state.note_growth();
        compiled
    }

    /// Whether a script that is there calls only commands that `key_access` accepts, for all keys and arguments:
    /// proven from its code, so `false` may mean that it is not known.
    ///
    /// # Panics
    /// When it is not there.
    pub fn proves(&self, sha: &Sha, key_access: KeyAccess<'_>) -> bool {
        proof::holds(&self.dump(sha), key_access)
    }

    /// The compiled code of a script.
    pub(crate) fn dump(&self, sha: &Sha) -> Vec<u8> {
        let stack = self.core.state.stack();
        stack.push_reference(&self.scripts[sha]);
        let dump = stack.dump();
        stack.pop(1);
        dump
    }

    /// Runs a script that is there and appends its reply; or the line of the error that it has ended in,
    /// or that it answers.
    ///
    /// # Panics
    /// When it is not there.
    pub fn run(
        &mut self,
        sha: &Sha,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        host: &mut dyn ScriptHost,
        reply: &mut ReplyBuffer,
    ) -> Result<(), Vec<u8>> {
        self.core.state.empty_if_full();
        self.set_operands(keys, arguments);
        let script = &self.scripts[sha];
        let push = |stack: Stack<'_>| {
            stack.push_reference(script);
            0
        };
        let result = self.core.call(|| sha.hex(), push, host, reply);
        if self.heap().is_collection_due() {
            // The operands would stay until the next script.
            self.set_operands(&[], &[]);
        }
        result
    }

    /// Sets `KEYS` and `ARGV`.
    fn set_operands(&self, keys: &[&[u8]], arguments: &[&[u8]]) {
        let (stack, sandbox) = (self.core.state.stack(), &self.core.sandbox);
        stack.push_reference(&sandbox.globals);
        for (name, words) in [(&sandbox.keys, keys), (&sandbox.arguments, arguments)] {
            stack.push_reference(name);
            push_words(stack, words);
            stack.raw_set(-3);
        }
        stack.pop(1);
    }
}

/// Compiles a chunk and leaves it on the stack.
pub(crate) fn compile(stack: Stack<'_>, text: &[u8], name: &CStr) -> Result<(), CompileError> {
    stack.load(text, name).map_err(|Raised| {
        let message = stack.text(-1).to_vec();
        stack.pop(1);
        CompileError(message)
    })
}

pub(crate) fn push_words(stack: Stack<'_>, words: &[&[u8]]) {
    stack.push_table(words.len(), 0);
    for (index, word) in (1..).zip(words) {
        stack.push_bytes(word);
        stack.raw_set_index(-2, index);
    }
}

/// Returns the line of the error that the value on top is, if it is one.
fn returned_error(stack: Stack<'_>) -> Option<Vec<u8>> {
    (stack.kind(-1) == Kind::Table).then(|| field_text(stack, "err"))?
}

/// The line of the error that was raised and is on top: the message, the script, and the place.
fn raised_error(stack: Stack<'_>, name: &[u8]) -> Vec<u8> {
    if stack.kind(-1) != Kind::Table {
        if let Some(text) = stack.machine().doom.get() {
            // The script was refused memory for that.
            return format!("ERR {text}").into_bytes();
        }
        let message = stack.bytes(-1).unwrap_or(b"execution failure");
        let message = &message[..message.len().min(100)];
        return [b"ERR Error running script ", name, b", ", message].concat();
    }
    let field = |field: &str| {
        stack.raw_get_field(-1, field);
        let found = matches!(stack.kind(-1), Kind::String | Kind::Number).then(|| stack.text(-1).to_vec());
        stack.pop(1);
        found
    };
    let mut line = field("err").unwrap_or_else(|| b"ERR unknown error".to_vec());
    if let (Some(source), Some(number)) = (field("source"), field("line")) {
        line.extend([b" script: ", name, b", on ", &source, b":", &number, b"."].concat());
    }
    line
}
