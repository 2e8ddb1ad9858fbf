//! The globals of scripts in their machine, and the protection of one script from another.
//!
//! Scripts of all clients share a machine, so nothing that outlives a script may be changed by it: the
//! globals and the libraries are *protected*. A protected table is an empty one in front of the real one,
//! which no script ever gets hold of:
//!
//! ```text
//! environment ─▶ {} ──__index──▶ {redis, string, pairs, KEYS, ARGV, …} ──__index──▶ error: no such global
//!                 └──__newindex─▶ error                │
//!                                     redis ─▶ {} ──__index──▶ {call, pcall, …}
//!                                               └──__newindex─▶ error
//! ```
//!
//! Functions that would go around a metatable (`rawset`, `table.insert`, `next` …) are replaced by ones that know
//! protected tables.

use std::ffi::{c_int, c_void};

use mlua_sys::{self as ffi, lua_State};

use crate::{
    api::{self, Audience},
    bits,
    budget::STEP_BYTES,
    cjson, cmsgpack, packed,
    random::Random48,
    stack::{
        Kind, NativeFn, NativeResult, Raised, Reference, SOURCE_BYTES_MAX, Stack, enter, native, run_native,
    },
    state::LuaState,
    strings, tables,
};

/// The globals of Lua that scripts get.
const GLOBALS: &[&str] = &[
    "_VERSION",
    "assert",
    "collectgarbage",
    "coroutine",
    "error",
    "gcinfo",
    "getmetatable",
    "ipairs",
    "load",
    "loadstring",
    "math",
    "next",
    "pairs",
    "pcall",
    "rawequal",
    "rawget",
    "rawset",
    "select",
    "setmetatable",
    "string",
    "table",
    "tonumber",
    "tostring",
    "type",
    "unpack",
    "xpcall",
];

/// Marks the metatable of a protected table: a key that no script can make.
static PROTECTED: u8 = 0;

const READ_ONLY: &str = "Attempt to modify a readonly table";

/// Native functions at most between an error and the line of Lua in its message.
const NATIVE_LEVELS_MAX: c_int = 4;

/// The use of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Scripts,
    Functions,
}

/// The references of a sandbox that has been set up.
pub(crate) struct Sandbox {
    /// The real table of globals.
    pub(crate) globals: Reference,
    /// The names of the tables of keys and of arguments, made once.
    pub(crate) keys: Reference,
    pub(crate) arguments: Reference,
    /// The globals that libraries find while they load.
    pub(crate) loading: Reference,
    /// The metatable of the table in front of the globals: its `__index` is the table that scripts see.
    front: Reference,
    /// The function that makes the table of an error out of any raised value.
    pub(crate) error_handler: Reference,
}

impl Sandbox {
    /// Makes scripts see other globals from now on, those of functions that exist already too.
    pub(crate) fn show(&self, stack: Stack<'_>, globals: &Reference) {
        stack.push_reference(&self.front);
        stack.push_reference(globals);
        stack.raw_set_field(-2, "__index");
        stack.pop(1);
    }
}

/// Fills an empty state.
pub(crate) fn set_up(state: &LuaState, purpose: Purpose) -> Sandbox {
    let stack = state.stack();
    for (open, name) in [
        (ffi::luaopen_base as NativeFn, c""),
        (ffi::luaopen_table, c"table"),
        (ffi::luaopen_string, c"string"),
        (ffi::luaopen_math, c"math"),
        (ffi::luaopen_os, c"os"),
    ] {
        stack.open_library(open, name);
    }
    let stack = stack.room(20).expect("an empty stack has room");
    stack.push_globals();
    let lua = stack.top();
    replace_functions(stack, lua);

    stack.push_table(0, 64);
    let globals = stack.top();
    for name in GLOBALS {
        stack.raw_get_field(lua, name);
        if stack.kind(-1) == Kind::Table {
            protect(stack);
        }
        stack.raw_set_field(globals, name);
    }
    for (name, push) in [
        ("bit", bits::push_table as fn(Stack<'_>)),
        ("cjson", cjson::push_table),
        ("cmsgpack", cmsgpack::push_table),
        ("struct", packed::push_table),
        ("os", |stack| {
            stack.push_table(0, 1);
            stack.push_globals();
            stack.raw_get_field(-1, "os");
            stack.raw_get_field(-1, "clock");
            stack.raw_set_field(-4, "clock");
            stack.pop(2);
        }),
    ] {
        push(stack);
        protect(stack);
        stack.raw_set_field(globals, name);
    }
    let audience = match purpose {
        Purpose::Scripts => Audience::Scripts,
        Purpose::Functions => Audience::Functions,
    };
    api::push_table(stack, audience);
    protect(stack);
    set_redis(stack, globals);
    demand_names(stack, globals);
    // In front of it all.
    stack.push_copy(globals);
    protect(stack);
    stack.push_copy(-1);
    stack.raw_set_field(globals, "_G");
    assert!(stack.push_metatable(-1), "it has just got one");
    let front = stack.make_reference();
    stack.set_globals();
    // The other globals, for libraries that load.
    stack.push_table(0, 2);
    let loading = stack.top();
    api::push_table(stack, Audience::Loading);
    demand_names(stack, stack.top());
    protect(stack);
    set_redis(stack, loading);
    demand_names(stack, loading);
    let loading = stack.make_reference();
    stack.push_native(native!(handle_error));
    let error_handler = stack.make_reference();
    let [keys, arguments] = ["KEYS", "ARGV"].map(|name| {
        stack.push_bytes(name);
        stack.make_reference()
    });
    stack.push_copy(globals);
    let globals = stack.make_reference();
    stack.set_top(0);
    Sandbox { globals, keys, arguments, loading, front, error_handler }
}

/// Puts the table on top under its two names.
fn set_redis(stack: Stack<'_>, globals: c_int) {
    stack.push_copy(-1);
    stack.raw_set_field(globals, "redis");
    stack.raw_set_field(globals, "server");
}

/// Makes it an error to ask a table for a name that it lacks.
fn demand_names(stack: Stack<'_>, table: c_int) {
    stack.push_table(0, 1);
    stack.push_native(native!(no_such_global));
    stack.raw_set_field(-2, "__index");
    stack.set_metatable(table);
}

/// Replaces those of Lua's functions that would go around the protection.
fn replace_functions(stack: Stack<'_>, lua: c_int) {
    // (library, name, replacement); the replaced function is the first upvalue.
    let replaced: &[(&str, &str, NativeFn)] = &[
        ("table", "foreach", calling),
        ("table", "foreachi", calling),
        ("table", "sort", sorting),
        ("", "rawset", guarded),
        ("", "setmetatable", guarded),
        ("table", "insert", guarded),
        ("table", "remove", guarded),
        ("table", "setn", guarded),
        ("", "getmetatable", metatable_of),
        ("", "rawget", seen_through),
        ("", "next", seen_through),
        ("", "pcall", protected_call),
        ("", "xpcall", handled_call),
        ("", "unpack", native!(tables::unpack)),
        ("", "load", native!(load)),
        ("", "loadstring", native!(load_string)),
        ("", "collectgarbage", native!(collect_garbage)),
        ("math", "random", native!(random)),
        ("math", "randomseed", native!(random_seed)),
    ];
    for (library, functions) in [("string", &strings::FUNCTIONS[..]), ("table", &tables::FUNCTIONS[..])] {
        stack.raw_get_field(lua, library);
        for (name, function) in functions {
            stack.push_native(*function);
            stack.raw_set_field(-2, name);
        }
        stack.pop(1);
    }
    // `pairs` hands out the plain `next`, for speed: it must not see a protected table.
    stack.raw_get_field(lua, "next");
    stack.raw_get_field(lua, "pairs");
    stack.push_closure(pairs, 2);
    stack.raw_set_field(lua, "pairs");
    for (library, name, replacement) in replaced {
        if library.is_empty() {
            stack.push_copy(lua);
        } else {
            stack.raw_get_field(lua, library);
        }
        stack.raw_get_field(-1, name);
        stack.push_closure(*replacement, 1);
        stack.raw_set_field(-2, name);
        stack.pop(1);
    }
    // The value of `getmetatable("")`; methods of strings are found past it.
    stack.push_bytes(b"");
    assert!(stack.push_metatable(-1), "strings have methods");
    stack.raw_get_field(lua, "string");
    protect(stack);
    stack.push_table(0, 1);
    stack.insert(-2);
    stack.raw_set_field(-2, "__index");
    protect(stack);
    stack.raw_set_field(-2, "__metatable");
    stack.pop(2);
}

/// Replaces the table on top by a protected one in front of it.
fn protect(stack: Stack<'_>) {
    stack.push_table(0, 0);
    stack.push_table(0, 4);
    stack.push_copy(-3);
    stack.raw_set_field(-2, "__index");
    stack.push_native(native!(read_only));
    stack.raw_set_field(-2, "__newindex");
    stack.push_boolean(false);
    stack.raw_set_field(-2, "__metatable");
    stack.push_pointer((&raw const PROTECTED).cast_mut().cast::<c_void>());
    stack.push_boolean(true);
    stack.raw_set(-3);
    stack.set_metatable(-2);
    stack.remove(-2);
}

/// Whether a value is a protected table.
fn is_protected(stack: Stack<'_>, at: c_int) -> bool {
    if stack.kind(at) != Kind::Table || !stack.push_metatable(at) {
        return false;
    }
    stack.push_pointer((&raw const PROTECTED).cast_mut().cast::<c_void>());
    stack.raw_get(-2);
    let protected = stack.boolean(-1);
    stack.pop(2);
    protected
}

/// Pushes the table behind a protected one.
fn push_real(stack: Stack<'_>, at: c_int) {
    stack.push_metatable(at);
    stack.raw_get_field(-1, "__index");
    stack.remove(-2);
}

fn read_only(stack: Stack<'_>) -> NativeResult {
    Err(stack.raise(READ_ONLY))
}

fn no_such_global(stack: Stack<'_>) -> NativeResult {
    let name = String::from_utf8_lossy(stack.bytes(2).unwrap_or_default()).into_owned();
    Err(stack.raise(format!("Script attempted to access nonexistent global variable '{name}'")))
}

/// Calls the function that is the upvalue `nth`, on the same stack: an error of it passes through. The function has to
/// be one of C's without upvalues of its own, since the running function stays what it was.
///
/// # Safety
/// `state` is live, runs a function with that upvalue, and the caller has nothing to drop.
unsafe fn call_original(state: *mut lua_State, nth: c_int) -> c_int {
    // SAFETY: the caller vouches.
    unsafe {
        let original = ffi::lua_tocfunction(state, ffi::lua_upvalueindex(nth));
        original.map_or(0, |original| original(state))
    }
}

/// Refuses a protected table in the first place.
fn guard(stack: Stack<'_>) -> NativeResult {
    if is_protected(stack, 1) { Err(stack.raise_plain(READ_ONLY)) } else { Ok(0) }
}

/// A function that changes its first argument, which must not be a protected table.
unsafe extern "C-unwind" fn guarded(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls with a live state and 20 places; nothing is left to drop when an error passes.
    unsafe {
        run_native(state, guard);
        call_original(state, 1)
    }
}

/// A function that calls its second argument again and again.
unsafe extern "C-unwind" fn calling(state: *mut lua_State) -> c_int {
    // SAFETY: as in `guarded`.
    unsafe {
        enter(state, tables::count_calls);
        call_original(state, 1)
    }
}

/// `table.sort`, which changes its first argument, and calls its second one.
unsafe extern "C-unwind" fn sorting(state: *mut lua_State) -> c_int {
    // SAFETY: as in `guarded`.
    unsafe {
        run_native(state, guard);
        enter(state, tables::count_comparisons);
        call_original(state, 1)
    }
}

/// `getmetatable`: a protected table looks as if it had none.
unsafe extern "C-unwind" fn metatable_of(state: *mut lua_State) -> c_int {
    fn hide(stack: Stack<'_>) -> bool {
        let is_protected = is_protected(stack, 1);
        if is_protected {
            stack.push_nil();
        }
        is_protected
    }
    // SAFETY: as in `guarded`.
    unsafe { if enter(state, hide) { 1 } else { call_original(state, 1) } }
}

/// A function that reads its first argument past metatables.
unsafe extern "C-unwind" fn seen_through(state: *mut lua_State) -> c_int {
    fn see(stack: Stack<'_>) {
        if is_protected(stack, 1) {
            push_real(stack, 1);
            stack.replace(1);
        }
    }
    // SAFETY: as in `guarded`.
    unsafe {
        enter(state, see);
        call_original(state, 1)
    }
}

/// `pairs`: goes over a copy of a protected table. The upvalues are `next` and the original.
unsafe extern "C-unwind" fn pairs(state: *mut lua_State) -> c_int {
    fn copy(stack: Stack<'_>) {
        if !is_protected(stack, 1) {
            return;
        }
        push_real(stack, 1);
        stack.push_table(0, 0);
        stack.push_nil();
        while stack.next(-3) {
            stack.push_copy(-2);
            stack.insert(-2);
            stack.raw_set(-4);
        }
        stack.replace(1);
        stack.set_top(1);
    }
    // SAFETY: as in `guarded`.
    unsafe {
        enter(state, copy);
        call_original(state, 2)
    }
}

/// `pcall`: of an error of `redis.call`, a table, it answers the text.
unsafe extern "C-unwind" fn protected_call(state: *mut lua_State) -> c_int {
    fn take_text(stack: Stack<'_>) {
        stack.raw_get_field(-1, "err");
        match stack.kind(-1) {
            Kind::String | Kind::Number => stack.replace(-2),
            _ => stack.pop(1),
        }
    }
    // SAFETY: Lua calls with a live state and 20 places; nothing here is to be dropped when an error passes. An error
    // takes fewer places than the called function.
    unsafe {
        ffi::luaL_checkany(state, 1);
        let arguments = ffi::lua_gettop(state) - 1;
        let failed = ffi::lua_pcall(state, arguments, ffi::LUA_MULTRET, 0) != 0;
        if failed && ffi::lua_type(state, -1) == ffi::LUA_TTABLE {
            enter(state, take_text);
        }
        put_outcome_first(state, !failed)
    }
}

/// `xpcall`: calls its first argument, with its second one to handle an error.
unsafe extern "C-unwind" fn handled_call(state: *mut lua_State) -> c_int {
    // SAFETY: as in `protected_call`.
    unsafe {
        ffi::luaL_checkany(state, 2);
        ffi::lua_settop(state, 2);
        ffi::lua_insert(state, 1);
        let failed = ffi::lua_pcall(state, 0, ffi::LUA_MULTRET, 1) != 0;
        ffi::lua_remove(state, 1);
        put_outcome_first(state, !failed)
    }
}

/// Whether it has gone well, and all that is on the stack. The original makes no sure of room: the called function may
/// have returned as many values as there is room for.
///
/// # Safety
/// `state` is live and the caller has nothing to drop.
unsafe fn put_outcome_first(state: *mut lua_State, went_well: bool) -> c_int {
    // SAFETY: the caller vouches; there is room for one or two values when all others are gone.
    unsafe {
        if ffi::lua_checkstack(state, 1) == 0 {
            ffi::lua_settop(state, 0);
            ffi::lua_pushboolean(state, 0);
            ffi::lua_pushstring_(state, c"stack overflow".as_ptr());
            return 2;
        }
        ffi::lua_pushboolean(state, c_int::from(went_well));
        ffi::lua_insert(state, 1);
        ffi::lua_gettop(state)
    }
}

/// `loadstring`, for source only.
fn load_string(stack: Stack<'_>) -> NativeResult {
    let source = stack.text_argument(1)?;
    let name = match stack.bytes(2) {
        Some(name) => chunk_name(name),
        None => chunk_name(source),
    };
    compile(stack, source, &name)
}

/// `load`, for source only: the pieces that a function answers, as many as make a source that may be compiled.
fn load(stack: Stack<'_>) -> NativeResult {
    if stack.kind(1) != Kind::Function {
        return Err(stack.raise_type(1, "function"));
    }
    let name = stack.bytes(2).map_or_else(|| chunk_name(b"=(load)"), chunk_name);
    let mut source = Vec::new();
    loop {
        stack.push_copy(1);
        if stack.protected_call(0, 1, 0).is_err() {
            stack.push_nil();
            stack.insert(-2);
            return Ok(2);
        }
        match stack.kind(-1) {
            Kind::Nil => break,
            Kind::String | Kind::Number if stack.text(-1).is_empty() => break,
            Kind::String | Kind::Number => {
                let piece = stack.text(-1);
                stack.steps(piece.len() / STEP_BYTES + 1)?;
                stack.has_memory(source.len() + piece.len())?;
                source.extend_from_slice(piece);
            }
            _ => {
                stack.push_nil();
                stack.push_bytes("reader function must return a string");
                return Ok(2);
            }
        }
        stack.pop(1);
        if source.len() > SOURCE_BYTES_MAX {
            break;
        }
    }
    compile(stack, &source, &name)
}

/// Pushes the function, or nil and a message.
fn compile(stack: Stack<'_>, source: &[u8], name: &std::ffi::CStr) -> NativeResult {
    match stack.load(source, name) {
        Ok(()) => Ok(1),
        Err(Raised) => {
            stack.push_nil();
            stack.insert(-2);
            Ok(2)
        }
    }
}

/// Up to the first NUL, at which Lua ends it too.
fn chunk_name(name: &[u8]) -> std::ffi::CString {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    std::ffi::CString::new(name).unwrap_or_default()
}

/// `collectgarbage`: options that would outlive the script (stopping, pacing) have no effect.
fn collect_garbage(stack: Stack<'_>) -> NativeResult {
    let state = stack.raw();
    // SAFETY: the state is live; collecting runs no code of a script.
    let collect = |what: c_int, data: c_int| unsafe { ffi::lua_gc(state, what, data) };
    let option = match stack.kind(1) {
        Kind::None | Kind::Nil => b"collect",
        _ => stack.text_argument(1)?,
    };
    if matches!(option, b"collect" | b"step") {
        stack.steps(stack.machine().used_bytes() / STEP_BYTES)?;
    }
    match option {
        b"collect" => stack.push_number(f64::from(collect(ffi::LUA_GCCOLLECT, 0))),
        b"count" => {
            let (kilobytes, rest) = (collect(ffi::LUA_GCCOUNT, 0), collect(ffi::LUA_GCCOUNTB, 0));
            stack.push_number(f64::from(kilobytes) + f64::from(rest) / 1024.0);
        }
        b"step" => {
            let size = stack.number(2).clamp(0.0, f64::from(i32::MAX)) as c_int;
            stack.push_boolean(collect(ffi::LUA_GCSTEP, size) != 0);
        }
        b"stop" | b"restart" | b"setpause" | b"setstepmul" => stack.push_number(0.0),
        other => {
            let message = format!("invalid option '{}'", String::from_utf8_lossy(other));
            return Err(stack.raise_argument(1, &message));
        }
    }
    Ok(1)
}

/// `math.random`, from a generator that is the machine's.
fn random(stack: Stack<'_>) -> NativeResult {
    let cell = &stack.machine().random;
    let mut generator = cell.get();
    let drawn = generator.next() % Random48::RANGE;
    cell.set(generator);
    let unit = f64::from(drawn) / f64::from(Random48::RANGE);
    let bound = |at: c_int| stack.number_argument(at).map(|bound| bound as i64);
    let (low, high) = match stack.top() {
        0 => {
            stack.push_number(unit);
            return Ok(1);
        }
        1 => (1, bound(1)?),
        2 => (bound(1)?, bound(2)?),
        _ => return Err(stack.raise("wrong number of arguments")),
    };
    if low > high {
        return Err(stack.raise_argument(stack.top(), "interval is empty"));
    }
    let width = (high as f64) - (low as f64) + 1.0;
    stack.push_number((unit * width).floor() + low as f64);
    Ok(1)
}

fn random_seed(stack: Stack<'_>) -> NativeResult {
    let seed = stack.number_argument(1)?;
    stack.machine().random.set(Random48::new(seed as i64 as u32));
    Ok(0)
}

/// Makes a table of any raised value, with its place: `{err = …, source = …, line = …}`.
fn handle_error(stack: Stack<'_>) -> NativeResult {
    // The innermost function of Lua, past those that call each other on its behalf.
    let position =
        (1..=NATIVE_LEVELS_MAX).map_while(|level| stack.position(level)).find(|found| !found.is_native);
    stack.set_top(1);
    if stack.kind(1) != Kind::Table || is_protected(stack, 1) {
        let text = match stack.kind(1) {
            Kind::String | Kind::Number => stack.text(1).to_vec(),
            Kind::Boolean => stack.boolean(1).to_string().into_bytes(),
            _ => stack.type_name(1).as_bytes().to_vec(),
        };
        stack.push_table(0, 3);
        stack.push_bytes([b"ERR ", text.as_slice()].concat());
        stack.raw_set_field(-2, "err");
        stack.replace(1);
    }
    if let Some(position) = position {
        stack.push_bytes(position.source);
        stack.raw_set_field(1, "source");
        stack.push_number(position.line as f64);
        stack.raw_set_field(1, "line");
    }
    Ok(1)
}
