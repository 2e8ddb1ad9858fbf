//! The table `redis`, which is also `server`: how a script calls commands and learns of its host.

use dunlin_resp::Protocol;
use sha1::{Digest, Sha1};

use crate::{
    LogLevel,
    budget::STEP_BYTES,
    convert::{OF_COMMAND, Pushed, push_error_table, push_reply},
    library,
    number::format_general,
    stack::{Kind, NativeFn, NativeResult, Raised, Stack, native},
};

/// The version of Redis that scripts and clients see, since they choose features by it: the highest with no feature
/// that Dunlin lacks among those that they choose so (docs/decisions/0025).
pub const REDIS_VERSION: &str = "7.4.7";

/// Words of a call that need no memory of their own.
const WORDS_INLINE: usize = 16;

/// Fills a table for scripts, for functions, or for libraries while they load, and leaves it on the stack.
pub(crate) fn push_table(stack: Stack<'_>, audience: Audience) {
    let common = [("log", native!(log) as NativeFn)];
    let running = [
        ("call", native!(call) as NativeFn),
        ("pcall", native!(pcall)),
        ("setresp", native!(set_protocol)),
        ("error_reply", native!(error_reply)),
        ("status_reply", native!(status_reply)),
        ("sha1hex", native!(sha1hex)),
        ("set_repl", native!(set_replication)),
        ("acl_check_cmd", native!(check_access)),
    ];
    let scripts = [
        ("replicate_commands", native!(replicate_commands) as NativeFn),
        ("breakpoint", native!(breakpoint)),
        ("debug", native!(debug)),
    ];
    let loading = [("register_function", native!(library::register_function) as NativeFn)];
    let functions: &[&[(&str, NativeFn)]] = match audience {
        Audience::Scripts => &[&common, &running, &scripts],
        Audience::Functions => &[&common, &running],
        Audience::Loading => &[&common, &loading],
    };
    let levels = [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)];
    let version = [("REDIS_VERSION_NUM", version_number())];
    let targets =
        [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)];
    let numbers: &[&[(&str, u32)]] = match audience {
        Audience::Loading => &[&levels, &version],
        Audience::Scripts | Audience::Functions => &[&levels, &version, &targets],
    };
    stack.push_table(0, 32);
    for (name, function) in functions.iter().copied().flatten() {
        stack.push_native(*function);
        stack.raw_set_field(-2, name);
    }
    for (name, value) in numbers.iter().copied().flatten() {
        stack.push_number(f64::from(*value));
        stack.raw_set_field(-2, name);
    }
    stack.push_bytes(REDIS_VERSION);
    stack.raw_set_field(-2, "REDIS_VERSION");
}

/// The version as one number, a byte for each part.
fn version_number() -> u32 {
    REDIS_VERSION.split('.').fold(0, |number, part| number << 8 | part.parse::<u32>().unwrap_or(0))
}

/// The kind of code that finds the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Scripts.
    Scripts,
    /// Functions that run.
    Functions,
    /// Libraries that are loaded.
    Loading,
}

/// Pushes the table of an error; its text gets the code `ERR`.
fn push_error(stack: Stack<'_>, text: &str) {
    push_error_table(stack, format!("ERR {text}"));
}

/// Raises the table of an error.
pub(crate) fn raise_error(stack: Stack<'_>, text: &str) -> Raised {
    stack.raise_table(|stack| push_error(stack, text))
}

fn call(stack: Stack<'_>) -> NativeResult {
    if run_command(stack) { Err(Raised) } else { Ok(1) }
}

fn pcall(stack: Stack<'_>) -> NativeResult {
    run_command(stack);
    Ok(1)
}

/// Runs the command on the stack and pushes its reply. Returns whether that is an error.
fn run_command(stack: Stack<'_>) -> bool {
    let mut words = Words::default();
    if !words.read(stack) {
        return true;
    }
    let pushed = stack.with_call(|call| {
        let mut reply = call.scratch.take().unwrap_or_default();
        reply.set_protocol(call.protocol);
        call.host.call(words.get(), &mut reply);
        // Their places are room for the reply.
        stack.set_top(0);
        let pushed = if reply.is_contiguous() {
            push_reply(stack, reply.bytes())
        } else {
            push_reply(stack, &reply.chunks().collect::<Vec<_>>().concat())
        };
        reply.clear(SCRATCH_BYTES_MAX);
        call.scratch = Some(reply);
        pushed
    });
    match pushed {
        Some(Pushed::Error) => {
            stack.push_boolean(true);
            stack.raw_set_field(-2, OF_COMMAND);
            true
        }
        Some(Pushed::Value) => false,
        None => {
            push_error(stack, "redis.call/pcall can only be called inside a script invocation");
            true
        }
    }
}

/// Memory kept for the replies of a script's commands, in bytes.
const SCRATCH_BYTES_MAX: usize = 64 * 1024;

/// Most bytes of a line in the log: of the rest nothing is kept.
const LOGGED_BYTES_MAX: usize = 64 * 1024;

/// The words of a command.
#[derive(Default)]
struct Words<'s> {
    few: [&'s [u8]; WORDS_INLINE],
    many: Vec<&'s [u8]>,
    count: usize,
}

impl<'s> Words<'s> {
    fn get(&self) -> &[&'s [u8]] {
        if self.many.is_empty() { &self.few[..self.count] } else { &self.many }
    }

    /// Reads the arguments as the words of a command; `false`, with an error on the stack, if they cannot be.
    #[inline]
    fn read(&mut self, stack: Stack<'s>) -> bool {
        let count = stack.top();
        if count == 0 {
            push_error(stack, "Please specify at least one argument for this redis lib call");
            return false;
        }
        self.count = count as usize;
        if self.count > WORDS_INLINE {
            self.many.reserve_exact(self.count);
        }
        for at in 1..=count {
            let word = match stack.kind(at) {
                Kind::String => stack.text(at),
                Kind::Number => {
                    push_number_text(stack, stack.number(at));
                    stack.replace(at);
                    stack.text(at)
                }
                _ => {
                    push_error(stack, "Lua redis lib command arguments must be strings or integers");
                    return false;
                }
            };
            if self.count > WORDS_INLINE {
                self.many.push(word);
            } else {
                self.few[at as usize - 1] = word;
            }
        }
        true
    }
}

/// Pushes a number as commands read it: 17 significant digits, as C's `%.17g` writes them.
fn push_number_text(stack: Stack<'_>, number: f64) {
    const EXACT_MAX: f64 = 1e15;
    if number.fract() == 0.0 && number.abs() < EXACT_MAX && !(number == 0.0 && number.is_sign_negative()) {
        return stack.push_bytes(itoa::Buffer::new().format(number as i64));
    }
    stack.push_bytes(format_general(number, 17));
}

fn log(stack: Stack<'_>) -> NativeResult {
    let count = stack.top();
    if count < 2 {
        return Err(raise_error(stack, "redis.log() requires two arguments or more."));
    }
    if !stack.is_numeric(1) {
        return Err(raise_error(stack, "First argument must be a number (log level)."));
    }
    let level = match stack.number(1) as i64 {
        0 => LogLevel::Debug,
        1 => LogLevel::Verbose,
        2 => LogLevel::Notice,
        3 => LogLevel::Warning,
        _ => return Err(raise_error(stack, "Invalid debug level.")),
    };
    let mut message = Vec::new();
    for at in 2..=count {
        if at > 2 {
            message.push(b' ');
        }
        let room = LOGGED_BYTES_MAX.saturating_sub(message.len());
        let text = stack.text(at);
        message.extend_from_slice(&text[..text.len().min(room)]);
    }
    stack.with_call(|call| call.host.log(level, &message));
    Ok(0)
}

fn set_protocol(stack: Stack<'_>) -> NativeResult {
    if stack.top() != 1 {
        return Err(raise_error(stack, "redis.setresp() requires one argument."));
    }
    let protocol = match stack.number(1) as i64 {
        2 => Protocol::Resp2,
        3 => Protocol::Resp3,
        _ => return Err(raise_error(stack, "RESP version must be 2 or 3.")),
    };
    stack.with_call(|call| call.protocol = protocol);
    Ok(0)
}

fn error_reply(stack: Stack<'_>) -> NativeResult {
    let Some(text) = (stack.top() == 1).then(|| stack.bytes(1)).flatten() else {
        push_error(stack, "wrong number or type of arguments");
        return Ok(1);
    };
    push_error_table(stack, coded(text.strip_prefix(b"-").unwrap_or(text)));
    Ok(1)
}

/// An error with the code in front: a text of one word has none yet.
fn coded(text: &[u8]) -> Vec<u8> {
    let (code, text) = match text.iter().position(|byte| *byte == b' ') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (&b"ERR"[..], text),
    };
    let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let start = text.iter().position(|byte| !is_break(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_break(byte)).map_or(start, |last| last + 1);
    [code, b" ", &text[start..end]].concat()
}

fn status_reply(stack: Stack<'_>) -> NativeResult {
    if stack.top() != 1 || stack.kind(1) != Kind::String {
        push_error(stack, "wrong number or type of arguments");
        return Ok(1);
    }
    stack.push_table(0, 1);
    stack.push_copy(1);
    stack.raw_set_field(-2, "ok");
    Ok(1)
}

fn sha1hex(stack: Stack<'_>) -> NativeResult {
    if stack.top() != 1 {
        return Err(raise_error(stack, "wrong number of arguments"));
    }
    let text = stack.text(1);
    stack.steps(text.len() / STEP_BYTES)?;
    stack.push_bytes(hex(&Sha1::digest(text).into()));
    Ok(1)
}

/// Forty lower-case digits.
pub(crate) fn hex(digest: &[u8; 20]) -> [u8; 40] {
    let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
    std::array::from_fn(|at| digit(if at % 2 == 0 { digest[at / 2] >> 4 } else { digest[at / 2] & 15 }))
}

fn set_replication(stack: Stack<'_>) -> NativeResult {
    if stack.top() != 1 {
        return Err(raise_error(stack, "redis.set_repl() requires two arguments."));
    }
    let targets = stack.number(1) as i64;
    if !(0..=3).contains(&targets) {
        let text = "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
        return Err(raise_error(stack, text));
    }
    stack.with_call(|call| call.host.set_replication(targets as u8));
    Ok(0)
}

/// Effects are replicated, always.
fn replicate_commands(stack: Stack<'_>) -> NativeResult {
    stack.push_boolean(true);
    Ok(1)
}

/// There is no debugger: none is attached.
fn breakpoint(stack: Stack<'_>) -> NativeResult {
    stack.push_boolean(false);
    Ok(1)
}

fn debug(_: Stack<'_>) -> NativeResult {
    Ok(0)
}

fn check_access(stack: Stack<'_>) -> NativeResult {
    let mut words = Words::default();
    if !words.read(stack) {
        return Err(Raised);
    }
    match stack.with_call(|call| call.host.may_call(words.get())) {
        Some(Some(allowed)) => {
            stack.push_boolean(allowed);
            Ok(1)
        }
        Some(None) => Err(raise_error(stack, "Invalid command passed to redis.acl_check_cmd()")),
        None => Err(raise_error(stack, "redis.acl_check_cmd can only be called inside a script invocation")),
    }
}
