//! The Lua state and its stack: the one module that calls into Lua.
//!
//! Lua reports errors by `longjmp`, which must not leave Rust frames with something to drop behind.
//! Two rules keep it so:
//!
//! - What a [`Stack`] offers cannot raise: only raw accesses are made, and the allocator never refuses
//!   memory while Rust is at work ([`Machine::strict`]). A script is over its limit when Lua itself asks
//!   for memory: then only frames of C lie between the allocator and `lua_pcall`.
//! - A function for Lua is a [`native!`] shell around one that returns a `Result`; the shell raises
//!   when everything of Rust's is gone.

use std::{
    alloc::Layout,
    cell::{Cell, RefCell},
    ffi::{CStr, c_int, c_void},
    marker::PhantomData,
    ptr::{self, NonNull},
};

use dunlin_resp::{Protocol, ReplyBuffer};
use mlua_sys::{self as ffi, lua_State};

use crate::{Caller, blocks::Blocks, cjson::Settings, library::Registered, random::Random48};

/// A function for Lua.
pub(crate) type NativeFn = unsafe extern "C-unwind" fn(*mut lua_State) -> c_int;

/// An error is on its way; its value is on top of the stack.
#[derive(Debug)]
pub(crate) struct Raised;

/// How a function for Lua ends: with the number of its results, which are on top of the stack.
pub(crate) type NativeResult = Result<c_int, Raised>;

/// Makes a [`NativeFn`] of a `fn(Stack) -> NativeResult`.
macro_rules! native {
    ($function:path) => {{
        unsafe extern "C-unwind" fn shell(state: *mut mlua_sys::lua_State) -> std::ffi::c_int {
            // SAFETY: Lua calls with a live state; nothing is left to drop when the error is raised.
            unsafe { $crate::state::run_native(state, $function) }
        }
        shell as $crate::state::NativeFn
    }};
}
pub(crate) use native;

/// Runs the inside of a [`native!`] function and raises its error.
///
/// # Safety
/// `state` is the live state that has called; the caller has nothing to drop.
pub(crate) unsafe fn run_native(state: *mut lua_State, function: fn(Stack<'_>) -> NativeResult) -> c_int {
    // SAFETY: the caller vouches for the state, which has a machine from its first moment on.
    let results = unsafe {
        let stack = Stack::new(state);
        let strict = stack.machine().strict.replace(false);
        let results = function(stack).unwrap_or(-1);
        stack.machine().strict.set(strict);
        results
    };
    if results < 0 {
        // SAFETY: as above; an error value is on top of the stack.
        unsafe { ffi::lua_error(state) }
    }
    results
}

/// How far a heap grows until it is collected again, in hundredths of what was left: as Lua has it. Letting small heaps
/// grow farther saved nothing.
const PAUSE: c_int = 200;
/// Beyond half of its limit a heap is full: it is collected all the time, since garbage counts too, and Lua 5.1 does not
/// collect when memory is refused.
const PAUSE_FULL: c_int = 110;

/// What belongs to a state beside what Lua knows: reached from the allocator and from functions.
pub(crate) struct Machine {
    /// The state that it belongs to; null while that is being made.
    state: Cell<*mut lua_State>,
    /// Where its memory comes from.
    blocks: Blocks,
    /// Bytes that Lua has allocated.
    used_bytes: Cell<usize>,
    /// Bytes that it may allocate.
    used_bytes_max: Cell<usize>,
    /// Bytes that were left when a full heap was last emptied.
    kept_bytes: Cell<usize>,
    /// Whether the limit holds: not while Rust is at work.
    pub(crate) strict: Cell<bool>,
    /// What serves the running call; null between calls.
    call: Cell<*mut Call<'static>>,
    /// What `math.random` draws from.
    pub(crate) random: Cell<Random48>,
    /// How JSON is read and written.
    pub(crate) json: Cell<Settings>,
    /// What the library that is being loaded has registered.
    pub(crate) registered: RefCell<Option<Vec<Registered>>>,
    /// Whether the running script has been told to end: it is not let go on, whatever it catches.
    pub(crate) doomed: Cell<bool>,
}

impl Machine {
    /// Whether a block must not grow so far.
    #[inline]
    fn is_refused(&self, old: usize, new: usize) -> bool {
        new > old && self.used_bytes.get() + (new - old) > self.used_bytes_max.get()
    }

    /// Counts a block that was of `old` bytes, and is of `new`.
    #[inline]
    fn count(&self, old: usize, new: usize) {
        let used_bytes = self.used_bytes.get();
        let now_used_bytes = used_bytes - old + new;
        self.used_bytes.set(now_used_bytes);
        let is_full = self.is_full(now_used_bytes);
        if is_full != self.is_full(used_bytes) {
            self.set_pace(is_full);
        }
    }

    /// Whether a heap of that size is full: more than half of what it may be.
    #[inline]
    fn is_full(&self, used_bytes: usize) -> bool {
        used_bytes > self.used_bytes_max.get() / 2
    }

    /// Sets the pace of collection for a heap that has become full, which is collected from now on, or is full no more.
    #[cold]
    fn set_pace(&self, is_full: bool) {
        let state = self.state.get();
        if state.is_null() {
            return;
        }
        // SAFETY: the state is live: it frees itself last, when its heap has long been small. Only numbers are set,
        // which Lua allows at any time: the pause, and the size from which on it collects.
        unsafe {
            ffi::lua_gc(state, ffi::LUA_GCSETPAUSE, if is_full { PAUSE_FULL } else { PAUSE });
            if is_full {
                ffi::lua_gc(state, ffi::LUA_GCRESTART, 0);
            }
        }
    }
}

/// What serves a running script.
pub(crate) struct Call<'a> {
    pub(crate) caller: &'a mut dyn Caller,
    /// What replies are converted from (`redis.setresp`).
    pub(crate) protocol: Protocol,
    /// Where commands write their replies, kept from one to the next.
    pub(crate) scratch: Option<ReplyBuffer>,
}

/// Lua's allocator: blocks that are counted.
unsafe extern "C" fn allocate(
    machine: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    // SAFETY: the state was made with a pointer to its machine, which outlives it.
    let machine = unsafe { &*machine.cast::<Machine>() };
    let block = block.cast::<u8>();
    if new == 0 {
        if !block.is_null() {
            machine.count(old, 0);
            // SAFETY: Lua tells the size that it was given, and has no use for the block.
            unsafe { machine.blocks.give(block, old) };
        }
        return ptr::null_mut();
    }
    let old = if block.is_null() { 0 } else { old };
    if machine.strict.get() && machine.is_refused(old, new) {
        return ptr::null_mut();
    }
    let result = match old {
        0 => machine.blocks.take(new),
        // SAFETY: as above.
        _ => unsafe { machine.blocks.resize(block, old, new) },
    };
    if result.is_null() {
        if machine.strict.get() {
            return ptr::null_mut();
        }
        std::alloc::handle_alloc_error(Layout::array::<u8>(new).unwrap_or(Layout::new::<u8>()));
    }
    machine.count(old, new);
    result.cast()
}

/// A Lua state of its own.
pub(crate) struct State {
    state: NonNull<lua_State>,
    machine: NonNull<Machine>,
}

// SAFETY: nothing outside refers to the state or its machine; both move to another thread together.
unsafe impl Send for State {}

impl State {
    /// An empty state that may take `used_bytes_max` bytes.
    pub(crate) fn new(used_bytes_max: usize) -> Self {
        let machine = Box::new(Machine {
            state: Cell::new(ptr::null_mut()),
            blocks: Blocks::default(),
            used_bytes: Cell::new(0),
            used_bytes_max: Cell::new(used_bytes_max),
            kept_bytes: Cell::new(0),
            strict: Cell::new(false),
            call: Cell::new(ptr::null_mut()),
            random: Cell::new(Random48::new(0)),
            json: Cell::default(),
            registered: RefCell::default(),
            doomed: Cell::new(false),
        });
        let machine = NonNull::from(Box::leak(machine));
        // SAFETY: the allocator gets the machine that it expects; it is freed after the state.
        let state = unsafe { ffi::lua_newstate(allocate, machine.as_ptr().cast()) };
        let state = NonNull::new(state).expect("memory is not refused outside of scripts");
        let state = Self { state, machine };
        state.machine().state.set(state.state.as_ptr());
        state
    }

    /// Its stack.
    #[inline]
    pub(crate) fn stack(&self) -> Stack<'_> {
        // SAFETY: the state is live for as long as it is borrowed.
        unsafe { Stack::new(self.state.as_ptr()) }
    }

    /// What belongs to it.
    #[inline]
    pub(crate) fn machine(&self) -> &Machine {
        // SAFETY: it is freed with self.
        unsafe { self.machine.as_ref() }
    }

    /// Bytes that Lua has allocated.
    pub(crate) fn used_bytes(&self) -> usize {
        self.machine().used_bytes.get()
    }

    /// Calls the function below `arguments` values on the stack, which all are consumed, with `call` to
    /// serve it. On an error the value that `handler` (a place on the stack) has made of it is on top,
    /// or a string where even that failed.
    pub(crate) fn call(
        &self,
        arguments: c_int,
        results: c_int,
        handler: c_int,
        call: &mut Call<'_>,
    ) -> Result<(), Raised> {
        let machine = self.machine();
        assert!(machine.call.get().is_null(), "a script within a script");
        machine.call.set(ptr::from_mut(call).cast());
        machine.doomed.set(false);
        let outcome = self.stack().protected_call(arguments, results, handler);
        machine.call.set(ptr::null_mut());
        outcome
    }

    /// Collects all garbage of a heap that is full. To be called when no script is running.
    pub(crate) fn empty_if_full(&self) {
        let machine = self.machine();
        let used_bytes = machine.used_bytes.get();
        // What is left after one collection would be left after another.
        if machine.is_full(used_bytes) && used_bytes / 8 > machine.kept_bytes.get() / 7 {
            // SAFETY: the state is live, and memory is not refused outside of scripts.
            unsafe { ffi::lua_gc(self.state.as_ptr(), ffi::LUA_GCCOLLECT, 0) };
            machine.kept_bytes.set(machine.used_bytes.get());
        }
    }

    /// Has `hook` called every `instructions` instructions, in coroutines made from now on too.
    pub(crate) fn set_hook(&self, hook: ffi::lua_Hook, instructions: c_int) {
        // SAFETY: the state is live.
        unsafe { ffi::lua_sethook(self.state.as_ptr(), Some(hook), ffi::LUA_MASKCOUNT, instructions) };
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: both were made by `new` and are given up here.
        unsafe {
            ffi::lua_close(self.state.as_ptr());
            drop(Box::from_raw(self.machine.as_ptr()));
        }
    }
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    None,
    Nil,
    Boolean,
    LightUserdata,
    Number,
    String,
    Table,
    Function,
    Userdata,
    Thread,
}

/// A stack of values, from 1 at the bottom, or from -1 at the top. Places are the caller's business, as
/// in Lua's own interface: a place that does not exist must not be asked for.
#[derive(Clone, Copy)]
pub(crate) struct Stack<'s> {
    state: *mut lua_State,
    alive: PhantomData<&'s ()>,
}

// Each of the calls below is made on a live state (`Stack::new`), with room on the stack (every function
// has 20 places of its own; who needs more asks `ensure`), and is one that raises nothing but errors of
// memory, which the allocator does not let happen while Rust is at work.
#[allow(clippy::undocumented_unsafe_blocks, reason = "said of all of them above")]
impl<'s> Stack<'s> {
    /// # Safety
    /// `state` is live for `'s` and has a machine.
    #[inline]
    pub(crate) unsafe fn new(state: *mut lua_State) -> Self {
        Self { state, alive: PhantomData }
    }

    #[inline]
    pub(crate) fn machine(self) -> &'s Machine {
        let mut machine = ptr::null_mut();
        unsafe {
            ffi::lua_getallocf(self.state, &mut machine);
            &*machine.cast::<Machine>()
        }
    }

    /// What serves the running script, if one is running.
    #[inline]
    pub(crate) fn with_call<R>(self, run: impl FnOnce(&mut Call<'_>) -> R) -> Option<R> {
        let cell = &self.machine().call;
        let call = cell.replace(ptr::null_mut());
        let call_mut = unsafe { call.as_mut() }?;
        // Taken out meanwhile, so that there is one reference to it.
        let result = run(call_mut);
        cell.set(call);
        Some(result)
    }

    /// The identity of the state.
    pub(crate) fn raw(self) -> *mut lua_State {
        self.state
    }

    #[inline]
    pub(crate) fn top(self) -> c_int {
        unsafe { ffi::lua_gettop(self.state) }
    }

    #[inline]
    pub(crate) fn set_top(self, top: c_int) {
        unsafe { ffi::lua_settop(self.state, top) }
    }

    #[inline]
    pub(crate) fn pop(self, count: c_int) {
        unsafe { ffi::lua_settop(self.state, -count - 1) }
    }

    /// Makes room for `count` more values; whether there is.
    #[inline]
    pub(crate) fn ensure(self, count: c_int) -> bool {
        unsafe { ffi::lua_checkstack(self.state, count) != 0 }
    }

    #[inline]
    pub(crate) fn kind(self, at: c_int) -> Kind {
        match unsafe { ffi::lua_type(self.state, at) } {
            ffi::LUA_TNIL => Kind::Nil,
            ffi::LUA_TBOOLEAN => Kind::Boolean,
            ffi::LUA_TLIGHTUSERDATA => Kind::LightUserdata,
            ffi::LUA_TNUMBER => Kind::Number,
            ffi::LUA_TSTRING => Kind::String,
            ffi::LUA_TTABLE => Kind::Table,
            ffi::LUA_TFUNCTION => Kind::Function,
            ffi::LUA_TUSERDATA => Kind::Userdata,
            ffi::LUA_TTHREAD => Kind::Thread,
            _ => Kind::None,
        }
    }

    /// Lua's name for the type of a value.
    pub(crate) fn type_name(self, at: c_int) -> &'static str {
        match self.kind(at) {
            Kind::None => "no value",
            Kind::Nil => "nil",
            Kind::Boolean => "boolean",
            Kind::LightUserdata | Kind::Userdata => "userdata",
            Kind::Number => "number",
            Kind::String => "string",
            Kind::Table => "table",
            Kind::Function => "function",
            Kind::Thread => "thread",
        }
    }

    /// The bytes of a string, for as long as the value is referred to. Strings do not move.
    #[inline]
    pub(crate) fn bytes(self, at: c_int) -> Option<&'s [u8]> {
        (self.kind(at) == Kind::String).then(|| self.text(at))
    }

    /// The bytes of a string, or of a number, which becomes a string.
    #[inline]
    pub(crate) fn text(self, at: c_int) -> &'s [u8] {
        let mut length = 0;
        unsafe {
            let bytes = ffi::lua_tolstring(self.state, at, &mut length);
            if bytes.is_null() { b"" } else { std::slice::from_raw_parts(bytes.cast(), length) }
        }
    }

    /// A number; of other values, 0.
    #[inline]
    pub(crate) fn number(self, at: c_int) -> f64 {
        unsafe { ffi::lua_tonumber(self.state, at) }
    }

    /// Whether a value is a number, or a string that reads as one.
    pub(crate) fn is_numeric(self, at: c_int) -> bool {
        unsafe { ffi::lua_isnumber(self.state, at) != 0 }
    }

    /// Whether a value is neither `nil` nor `false`.
    #[inline]
    pub(crate) fn boolean(self, at: c_int) -> bool {
        unsafe { ffi::lua_toboolean(self.state, at) != 0 }
    }

    /// The pointer of a light userdata.
    pub(crate) fn pointer(self, at: c_int) -> *mut c_void {
        unsafe { ffi::lua_touserdata(self.state, at) }
    }

    #[inline]
    pub(crate) fn push_nil(self) {
        unsafe { ffi::lua_pushnil(self.state) }
    }

    #[inline]
    pub(crate) fn push_boolean(self, value: bool) {
        unsafe { ffi::lua_pushboolean(self.state, c_int::from(value)) }
    }

    #[inline]
    pub(crate) fn push_number(self, value: f64) {
        unsafe { ffi::lua_pushnumber(self.state, value) }
    }

    #[inline]
    pub(crate) fn push_bytes(self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        unsafe { ffi::lua_pushlstring_(self.state, bytes.as_ptr().cast(), bytes.len()) }
    }

    pub(crate) fn push_pointer(self, pointer: *mut c_void) {
        unsafe { ffi::lua_pushlightuserdata(self.state, pointer) }
    }

    pub(crate) fn push_native(self, function: NativeFn) {
        self.push_closure(function, 0);
    }

    /// A function with `upvalues` values from the stack.
    pub(crate) fn push_closure(self, function: NativeFn, upvalues: c_int) {
        unsafe { ffi::lua_pushcclosure(self.state, function, upvalues) }
    }

    #[inline]
    pub(crate) fn push_copy(self, at: c_int) {
        unsafe { ffi::lua_pushvalue(self.state, at) }
    }

    /// An empty table with room for this many elements and fields.
    #[inline]
    pub(crate) fn push_table(self, elements: usize, fields: usize) {
        let room = |count: usize| count.min(1 << 20) as c_int;
        unsafe { ffi::lua_createtable(self.state, room(elements), room(fields)) }
    }

    pub(crate) fn insert(self, at: c_int) {
        unsafe { ffi::lua_insert(self.state, at) }
    }

    pub(crate) fn remove(self, at: c_int) {
        unsafe { ffi::lua_remove(self.state, at) }
    }

    pub(crate) fn replace(self, at: c_int) {
        unsafe { ffi::lua_replace(self.state, at) }
    }

    /// Replaces the key on top by its value in the table.
    #[inline]
    pub(crate) fn raw_get(self, table: c_int) {
        unsafe { ffi::lua_rawget_(self.state, table) }
    }

    /// Sets a field to the value on top, under the key below it, which is neither nil nor NaN.
    #[inline]
    pub(crate) fn raw_set(self, table: c_int) {
        unsafe { ffi::lua_rawset(self.state, table) }
    }

    #[inline]
    pub(crate) fn raw_get_index(self, table: c_int, index: c_int) {
        unsafe { ffi::lua_rawgeti_(self.state, table, index) }
    }

    #[inline]
    pub(crate) fn raw_set_index(self, table: c_int, index: c_int) {
        unsafe { ffi::lua_rawseti_(self.state, table, index) }
    }

    /// Pushes a field.
    #[inline]
    pub(crate) fn raw_get_field(self, table: c_int, name: impl AsRef<[u8]>) {
        let table = self.absolute(table);
        self.push_bytes(name);
        self.raw_get(table);
    }

    /// Sets a field to the value on top.
    #[inline]
    pub(crate) fn raw_set_field(self, table: c_int, name: impl AsRef<[u8]>) {
        let table = self.absolute(table);
        self.push_bytes(name);
        self.insert(-2);
        self.raw_set(table);
    }

    /// The same place, counted from the bottom.
    #[inline]
    pub(crate) fn absolute(self, at: c_int) -> c_int {
        if at < 0 && at > ffi::LUA_REGISTRYINDEX { self.top() + at + 1 } else { at }
    }

    /// Replaces the key on top by the next key and its value; whether there is one. The key is nil or
    /// one that this has pushed, of a table that was not changed since.
    #[inline]
    pub(crate) fn next(self, table: c_int) -> bool {
        unsafe { ffi::lua_next(self.state, table) != 0 }
    }

    /// Pushes the metatable of a value, if it has one.
    #[inline]
    pub(crate) fn push_metatable(self, at: c_int) -> bool {
        unsafe { ffi::lua_getmetatable(self.state, at) != 0 }
    }

    /// Makes the table on top the metatable of a value.
    pub(crate) fn set_metatable(self, at: c_int) {
        unsafe { ffi::lua_setmetatable(self.state, at) };
    }

    /// Makes the table on top the globals of the state.
    pub(crate) fn set_globals(self) {
        self.replace(ffi::LUA_GLOBALSINDEX);
    }

    /// Pushes the globals of the state.
    pub(crate) fn push_globals(self) {
        self.push_copy(ffi::LUA_GLOBALSINDEX);
    }

    /// Takes the value on top into the registry.
    pub(crate) fn make_reference(self) -> Reference {
        Reference(unsafe { ffi::luaL_ref(self.state, ffi::LUA_REGISTRYINDEX) })
    }

    /// Pushes a value of the registry.
    #[inline]
    pub(crate) fn push_reference(self, reference: &Reference) {
        self.raw_get_index(ffi::LUA_REGISTRYINDEX, reference.0);
    }

    /// Lets go of a value of the registry.
    pub(crate) fn drop_reference(self, reference: Reference) {
        unsafe { ffi::luaL_unref(self.state, ffi::LUA_REGISTRYINDEX, reference.0) };
    }

    /// Compiles a chunk and pushes it as a function; on an error, its message. Only source is taken:
    /// compiled chunks could break out of the machine.
    pub(crate) fn load(self, source: &[u8], name: &CStr) -> Result<(), Raised> {
        if source.first() == Some(&b'\x1b') {
            // Behind a blank it is source to Lua, and wrong.
            return self.load(&[b" ", source].concat(), name);
        }
        let status =
            unsafe { ffi::luaL_loadbuffer(self.state, source.as_ptr().cast(), source.len(), name.as_ptr()) };
        if status == 0 { Ok(()) } else { Err(Raised) }
    }

    /// The compiled code of the function on top.
    pub(crate) fn dump(self) -> Vec<u8> {
        unsafe extern "C-unwind" fn write(
            _: *mut lua_State,
            bytes: *const c_void,
            length: usize,
            dump: *mut c_void,
        ) -> c_int {
            // SAFETY: Lua gives so many bytes, and hands the vector through that it was given.
            unsafe {
                let bytes = std::slice::from_raw_parts(bytes.cast::<u8>(), length);
                (*dump.cast::<Vec<u8>>()).extend_from_slice(bytes);
            }
            0
        }
        let mut dump = Vec::new();
        unsafe { ffi::lua_dump_(self.state, write, (&raw mut dump).cast()) };
        dump
    }

    /// Calls the function below `arguments` values; errors end here, as `lua_pcall` has it.
    pub(crate) fn protected_call(
        self,
        arguments: c_int,
        results: c_int,
        handler: c_int,
    ) -> Result<(), Raised> {
        let strict = self.machine().strict.replace(true);
        let status = unsafe { ffi::lua_pcall(self.state, arguments, results, handler) };
        self.machine().strict.set(strict);
        if status == 0 { Ok(()) } else { Err(Raised) }
    }

    /// Has a library of Lua's own put its functions where it does.
    pub(crate) fn open_library(self, open: NativeFn, name: &CStr) {
        self.push_native(open);
        self.push_bytes(name.to_bytes());
        assert!(self.protected_call(1, 0, 0).is_ok(), "Lua's libraries open");
    }

    /// Pushes `chunk:line: ` of the function at a level of the calls, or nothing if it is not known.
    pub(crate) fn push_position(self, level: c_int) {
        unsafe { ffi::luaL_where(self.state, level) }
    }

    /// The chunk and the current line of the function at a level of the calls, and whether it is one
    /// of C.
    pub(crate) fn position(self, level: c_int) -> Option<Position> {
        let mut record = std::mem::MaybeUninit::<ffi::lua_Debug>::zeroed();
        unsafe {
            if ffi::lua_getstack(self.state, level, record.as_mut_ptr()) == 0 {
                return None;
            }
            ffi::lua_getinfo(self.state, c"Sl".as_ptr(), record.as_mut_ptr());
            let record = record.assume_init_ref();
            Some(Position {
                source: CStr::from_ptr(record.source).to_bytes().to_vec(),
                line: i64::from(record.currentline),
                is_native: CStr::from_ptr(record.what).to_bytes() == b"C",
            })
        }
    }

    /// Joins the `count` strings and numbers on top.
    pub(crate) fn concatenate(self, count: c_int) {
        unsafe { ffi::lua_concat(self.state, count) }
    }

    /// Raises a message, preceded by where the caller of the running function stands.
    pub(crate) fn raise(self, message: impl AsRef<[u8]>) -> Raised {
        self.push_position(1);
        self.push_bytes(message);
        self.concatenate(2);
        Raised
    }

    /// The complaint of Lua's libraries about an argument.
    pub(crate) fn raise_argument(self, argument: c_int, function: &str, message: &str) -> Raised {
        self.raise(format!("bad argument #{argument} to '{function}' ({message})"))
    }
}

/// Where a function stands.
pub(crate) struct Position {
    pub(crate) source: Vec<u8>,
    /// -1 where it is not known.
    pub(crate) line: i64,
    pub(crate) is_native: bool,
}

/// A value in the registry.
#[derive(Debug)]
pub(crate) struct Reference(c_int);
