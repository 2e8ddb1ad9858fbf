//! The stack of a Lua state: the one interface through which values are read and made.
//!
//! Lua checks nothing when a value is pushed: a push without room writes over foreign memory. So a [`Stack`] carries
//! how far it may grow:
//!
//! ```text
//! 1 … top        values, arguments first
//! top … limit    room: for pushes; `room(n)` gives a stack with at least n of it
//! + RESERVE      for the error that says there is no more
//! ```
//!
//! A native function begins with [`ROOM`] places beside its arguments, which is enough for one that neither loops over
//! pushes nor calls itself; every other asks [`Stack::room`] and goes on with the stack that it returns. Each push is
//! checked if debug assertions are on, which is so in all tests.
//!
//! Lua reports errors by `longjmp`, which must not leave Rust frames with something to drop behind. Two rules keep
//! it so:
//!
//! - Methods of a [`Stack`] cannot raise: only raw accesses are made, and the allocator never refuses memory while Rust
//!   is at work (`Machine::strict`). A script is over its limit when Lua itself asks for memory, when only
//!   frames of C lie between the allocator and `lua_pcall`, or when a native function looks ([`Stack::step`]).
//! - A function for Lua is a [`native!`] shell around one that returns a `Result`; the shell raises when everything
//!   of Rust's is gone.

use std::{
    ffi::{CStr, c_int, c_void},
    marker::PhantomData,
    ptr,
};

use mlua_sys::{self as ffi, lua_State};

use crate::state::{Call, Machine};

/// A function for Lua.
pub(crate) type NativeFn = unsafe extern "C-unwind" fn(*mut lua_State) -> c_int;

/// An error is on its way; its value is on top of the stack.
#[derive(Debug)]
pub(crate) struct Raised;

/// How a function for Lua ends: with the number of its results, which are on top of the stack.
pub(crate) type NativeResult = Result<c_int, Raised>;

/// Places that every native function has beside its arguments, and every state from its bottom on: of the 20 that Lua
/// promises, those that are not the reserve.
pub(crate) const ROOM: c_int = 16;
/// Places that are kept for an error.
const RESERVE: c_int = 4;

/// Makes a [`NativeFn`] of a `fn(Stack) -> NativeResult`.
macro_rules! native {
    ($function:path) => {{
        unsafe extern "C-unwind" fn shell(state: *mut mlua_sys::lua_State) -> std::ffi::c_int {
            // SAFETY: Lua calls with a live state; nothing is left to drop when the error is raised.
            unsafe { $crate::stack::run_native(state, $function) }
        }
        shell as $crate::stack::NativeFn
    }};
}
pub(crate) use native;

/// Runs the inside of a native function and raises its error.
///
/// # Safety
/// As of [`enter`]; and the caller has nothing to drop.
pub(crate) unsafe fn run_native(
    state: *mut lua_State,
    function: impl FnOnce(Stack<'_>) -> NativeResult,
) -> c_int {
    // SAFETY: the caller vouches.
    let results = unsafe { enter(state, |stack| function(stack).unwrap_or(-1)) };
    if results < 0 {
        // SAFETY: the state is live; an error value is on top of its stack.
        unsafe { ffi::lua_error(state) }
    }
    results
}

/// Lets Rust work on the stack of a function that Lua has called; no memory is refused meanwhile.
///
/// # Safety
/// `state` is the live state that has called, and has a machine; there is room for 20 values above its top.
#[inline]
pub(crate) unsafe fn enter<R>(state: *mut lua_State, work: impl FnOnce(Stack<'_>) -> R) -> R {
    // SAFETY: the caller vouches.
    unsafe {
        let stack = Stack::new(state, ffi::lua_gettop(state) + ROOM);
        let strict = stack.machine().strict.replace(false);
        let result = work(stack);
        stack.machine().strict.set(strict);
        result
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
    /// The highest top that it may have.
    limit: c_int,
    alive: PhantomData<&'s ()>,
}

// Each of the calls below is made on a live state (`Stack::new`), with room on the stack (the head of this file says
// how), and is one that raises nothing but errors of memory, which the allocator does not let happen while Rust is at
// work.
#[allow(clippy::undocumented_unsafe_blocks, reason = "said of all of them above")]
impl<'s> Stack<'s> {
    /// # Safety
    /// `state` is live for `'s` and has a machine; there is room up to `limit`, and for the reserve above.
    #[inline]
    pub(crate) unsafe fn new(state: *mut lua_State, limit: c_int) -> Self {
        Self { state, limit, alive: PhantomData }
    }

    #[inline]
    pub(crate) fn machine(self) -> &'s Machine {
        let mut machine = ptr::null_mut();
        unsafe {
            ffi::lua_getallocf(self.state, &mut machine);
            &*machine.cast::<Machine>()
        }
    }

    /// Lends the call of the running script, if one is running.
    #[inline]
    pub(crate) fn with_call<R>(self, run: impl FnOnce(&mut Call<'_>) -> R) -> Option<R> {
        self.machine().with_call(run)
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

    /// This stack with room for at least `count` more values; `None` above Lua's limit (8,000 to a function).
    #[inline]
    #[must_use]
    pub(crate) fn room(self, count: c_int) -> Option<Self> {
        let limit = self.top().checked_add(count)?;
        if limit <= self.limit {
            return Some(self);
        }
        let has_room = unsafe { ffi::lua_checkstack(self.state, count.checked_add(RESERVE)?) != 0 };
        has_room.then_some(Self { limit, ..self })
    }

    /// This stack with room for `count` results, after which nothing may be pushed, not even an error.
    #[must_use]
    pub(crate) fn room_for_results(self, count: c_int) -> Option<Self> {
        let limit = self.top().checked_add(count)?;
        let has_room = unsafe { ffi::lua_checkstack(self.state, count) != 0 };
        has_room.then_some(Self { limit, ..self })
    }

    /// [`Self::room`], or the error that Lua raises.
    #[inline]
    pub(crate) fn room_or_raise(self, count: c_int, what: &str) -> Result<Self, Raised> {
        self.room(count).ok_or_else(|| self.raise(format!("stack overflow ({what})")))
    }

    /// Checks that one more value may be pushed.
    #[inline]
    fn claim(self) {
        debug_assert!(self.top() < self.limit, "a push without room: ask `room` first");
    }

    /// This stack, with the places that are kept for an error: they are above wherever it has grown to.
    #[inline]
    fn with_reserve(self) -> Self {
        Self { limit: self.limit.max(self.top()) + RESERVE, ..self }
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
        self.claim();
        unsafe { ffi::lua_pushnil(self.state) }
    }

    #[inline]
    pub(crate) fn push_boolean(self, value: bool) {
        self.claim();
        unsafe { ffi::lua_pushboolean(self.state, c_int::from(value)) }
    }

    #[inline]
    pub(crate) fn push_number(self, value: f64) {
        self.claim();
        unsafe { ffi::lua_pushnumber(self.state, value) }
    }

    #[inline]
    pub(crate) fn push_bytes(self, bytes: impl AsRef<[u8]>) {
        self.claim();
        let bytes = bytes.as_ref();
        unsafe { ffi::lua_pushlstring_(self.state, bytes.as_ptr().cast(), bytes.len()) }
    }

    pub(crate) fn push_pointer(self, pointer: *mut c_void) {
        self.claim();
        unsafe { ffi::lua_pushlightuserdata(self.state, pointer) }
    }

    pub(crate) fn push_native(self, function: NativeFn) {
        self.push_closure(function, 0);
    }

    /// A function with `upvalues` values from the stack.
    pub(crate) fn push_closure(self, function: NativeFn, upvalues: c_int) {
        debug_assert!(upvalues > 0 || self.top() < self.limit, "a push without room");
        unsafe { ffi::lua_pushcclosure(self.state, function, upvalues) }
    }

    #[inline]
    pub(crate) fn push_copy(self, at: c_int) {
        self.claim();
        unsafe { ffi::lua_pushvalue(self.state, at) }
    }

    /// An empty table with room for this many elements and fields.
    #[inline]
    pub(crate) fn push_table(self, elements: usize, fields: usize) {
        self.claim();
        let room = |count: usize| count.min(TABLE_ROOM_MAX) as c_int;
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
        self.claim();
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

    /// This place, counted from the bottom.
    #[inline]
    pub(crate) fn absolute(self, at: c_int) -> c_int {
        if at < 0 && at > ffi::LUA_REGISTRYINDEX { self.top() + at + 1 } else { at }
    }

    /// Replaces the key on top by the next key and its value. Returns whether there is one. The key
    /// is nil or one that this has pushed, of a table that was not changed since.
    #[inline]
    pub(crate) fn next(self, table: c_int) -> bool {
        self.claim();
        unsafe { ffi::lua_next(self.state, table) != 0 }
    }

    /// Pushes the metatable of a value, if it has one.
    #[inline]
    pub(crate) fn push_metatable(self, at: c_int) -> bool {
        self.claim();
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

    /// Compiles a chunk and pushes it as a function; on an error, its message. Only source is taken: compiled chunks
    /// could break out of the machine.
    ///
    /// No garbage is collected meanwhile: the parser of Lua 5.1 holds on to strings, the chunk's name first, that
    /// nothing else refers to. Memory is refused as to a script, which the parser reports like any mistake.
    pub(crate) fn load(self, source: &[u8], name: &CStr) -> Result<(), Raised> {
        self.claim();
        if source.len() > SOURCE_BYTES_MAX {
            self.push_bytes("chunk has too many bytes");
            return Err(Raised);
        }
        if source.first() == Some(&b'\x1b') {
            // Behind a blank it is source to Lua, and wrong.
            return self.load(&[b" ", source].concat(), name);
        }
        let machine = self.machine();
        let strict = machine.strict.replace(true);
        machine.stop_collection();
        let status =
            unsafe { ffi::luaL_loadbuffer(self.state, source.as_ptr().cast(), source.len(), name.as_ptr()) };
        machine.restart_collection();
        machine.strict.set(strict);
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
            // SAFETY: Lua gives `length` bytes, and hands the vector through that it was given.
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

    /// Lets a library of Lua's own put its functions in their usual place.
    pub(crate) fn open_library(self, open: NativeFn, name: &CStr) {
        self.push_native(open);
        self.push_bytes(name.to_bytes());
        assert!(self.protected_call(1, 0, 0).is_ok(), "Lua's libraries open");
    }

    /// Pushes `chunk:line: ` of the function at a level of the calls, or nothing if it is not known.
    pub(crate) fn push_position(self, level: c_int) {
        self.claim();
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
        let stack = self.with_reserve();
        stack.push_position(1);
        stack.push_bytes(message);
        stack.concatenate(2);
        Raised
    }

    /// Raises a message as it is.
    pub(crate) fn raise_plain(self, message: &str) -> Raised {
        self.with_reserve().push_bytes(message);
        Raised
    }

    /// Raises the table of an error, which `push` pushes with at most three places.
    pub(crate) fn raise_table(self, push: impl FnOnce(Self)) -> Raised {
        push(self.with_reserve());
        Raised
    }

    /// The complaint of Lua's libraries about an argument of the running function, which is called as its caller
    /// calls it: in `text:rep()` the text is not an argument.
    pub(crate) fn raise_argument(self, argument: c_int, message: &str) -> Raised {
        let (name, is_method) = self.name_of_running();
        match argument - c_int::from(is_method) {
            0 if is_method => self.raise(format!("calling '{name}' on bad self ({message})")),
            argument => self.raise(format!("bad argument #{argument} to '{name}' ({message})")),
        }
    }

    /// The complaint about an argument of the wrong type.
    pub(crate) fn raise_type(self, argument: c_int, expected: &str) -> Raised {
        let got = self.type_name(argument);
        self.raise_argument(argument, &format!("{expected} expected, got {got}"))
    }

    /// The caller's name for the running function, and whether as a method.
    fn name_of_running(self) -> (String, bool) {
        let mut record = std::mem::MaybeUninit::<ffi::lua_Debug>::zeroed();
        unsafe {
            if ffi::lua_getstack(self.state, 0, record.as_mut_ptr()) == 0 {
                return ("?".to_owned(), false);
            }
            ffi::lua_getinfo(self.state, c"n".as_ptr(), record.as_mut_ptr());
            let record = record.assume_init_ref();
            if record.name.is_null() {
                return ("?".to_owned(), false);
            }
            let name = CStr::from_ptr(record.name).to_string_lossy().into_owned();
            (name, CStr::from_ptr(record.namewhat) == c"method")
        }
    }

    /// An argument that is a string, or a number, which becomes one.
    #[inline]
    pub(crate) fn text_argument(self, at: c_int) -> Result<&'s [u8], Raised> {
        match self.kind(at) {
            Kind::String | Kind::Number => Ok(self.text(at)),
            _ => Err(self.raise_type(at, "string")),
        }
    }

    /// An argument that is a number, or a string that reads as one.
    #[inline]
    pub(crate) fn number_argument(self, at: c_int) -> Result<f64, Raised> {
        if self.is_numeric(at) { Ok(self.number(at)) } else { Err(self.raise_type(at, "number")) }
    }

    /// An argument that is a number, toward zero; numbers that no integer can be give the least.
    #[inline]
    pub(crate) fn integer_argument(self, at: c_int) -> Result<i64, Raised> {
        self.number_argument(at).map(to_integer)
    }

    /// [`Self::integer_argument`], or else `default` if there is none, or nil.
    #[inline]
    pub(crate) fn optional_integer(self, at: c_int, default: i64) -> Result<i64, Raised> {
        match self.kind(at) {
            Kind::None | Kind::Nil => Ok(default),
            _ => self.integer_argument(at),
        }
    }

    /// An argument that is a table.
    #[inline]
    pub(crate) fn table_argument(self, at: c_int) -> Result<(), Raised> {
        if self.kind(at) == Kind::Table { Ok(()) } else { Err(self.raise_type(at, "table")) }
    }

    /// The length of a string, or a border of a table: the result of `#`.
    #[inline]
    pub(crate) fn length(self, at: c_int) -> usize {
        unsafe { ffi::lua_objlen(self.state, at) }
    }

    /// Whether a value is a function that is not Lua's.
    pub(crate) fn is_native(self, at: c_int) -> bool {
        unsafe { ffi::lua_iscfunction(self.state, at) != 0 }
    }

    /// A block of memory that lives as long as the value that is pushed.
    pub(crate) fn push_block(self, bytes: usize) -> *mut u8 {
        self.claim();
        unsafe { ffi::lua_newuserdata(self.state, bytes).cast() }
    }
}

/// Toward zero; numbers that no integer can be become the least, as on the processors that Redis runs on.
#[inline]
pub(crate) fn to_integer(value: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&value) { value as i64 } else { i64::MIN }
}

/// Most elements or fields that a table is made with room for.
pub(crate) const TABLE_ROOM_MAX: usize = 1 << 20;

/// Longest source that is compiled, in bytes: the scanner counts in `int`.
pub(crate) const SOURCE_BYTES_MAX: usize = 256 << 20;

/// The place of a function.
pub(crate) struct Position {
    pub(crate) source: Vec<u8>,
    /// -1 if it is not known.
    pub(crate) line: i64,
    pub(crate) is_native: bool,
}

/// A value in the registry.
#[derive(Debug)]
pub(crate) struct Reference(c_int);
