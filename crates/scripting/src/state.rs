//! The Lua state and its memory: Dunlin's own data of a state, and the allocator that counts.

use std::{
    alloc::Layout,
    cell::{Cell, RefCell},
    ffi::{c_int, c_void},
    ptr::{self, NonNull},
};

use dunlin_resp::{Protocol, ReplyBuffer};
use mlua_sys::{self as ffi, lua_State};

use crate::{
    ScriptHost,
    blocks::Blocks,
    budget,
    cjson::Settings,
    collection::Collection,
    library::Registered,
    random::Random48,
    stack::{ROOM, Stack},
};

/// How far a heap grows until it is collected again, in hundredths of what was left: as Lua has it. Letting small heaps
/// grow farther saved nothing.
const PAUSE: c_int = 200;
/// Beyond half of its limit a heap is full: it is collected all the time, since garbage counts too, and Lua 5.1 does not
/// collect when memory is refused.
const PAUSE_FULL: c_int = 110;

/// Dunlin's own data of a state: reached from the allocator and from functions.
pub(crate) struct Machine {
    /// The state that it belongs to; null while that is being made.
    state: Cell<*mut lua_State>,
    /// The source of its memory.
    blocks: Blocks,
    /// Bytes that Lua has allocated.
    used_bytes: Cell<usize>,
    /// Bytes that it may allocate.
    used_bytes_max: Cell<usize>,
    /// Bytes that were left when a full heap was last emptied.
    kept_bytes: Cell<usize>,
    /// Whether the limit holds: not while Rust is at work.
    pub(crate) strict: Cell<bool>,
    /// The running call; null between calls.
    call: Cell<*mut Call<'static>>,
    /// The generator behind `math.random`.
    pub(crate) random: Cell<Random48>,
    /// How JSON is read and written.
    pub(crate) json: Cell<Settings>,
    /// The functions that the library being loaded has registered.
    pub(crate) registered: RefCell<Option<Vec<Registered>>>,
    /// Why the running script has to end, once it has: it is not let go on, even if it catches the error.
    pub(crate) doom: Cell<Option<&'static str>>,
    /// Work of native functions, in steps, since it was last asked whether the script is to end.
    pub(crate) steps: Cell<u32>,
    /// Whether a chunk is being compiled: nothing is collected meanwhile.
    compiling: Cell<bool>,
    /// How far the collection between calls is.
    pub(crate) collection: Collection,
}

impl Machine {
    /// Whether a block must not grow to that size.
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
        let allocated = &self.collection.allocated;
        allocated.set(allocated.get() + new.saturating_sub(old) as u64);
        let is_full = self.is_full(now_used_bytes);
        if is_full != self.is_full(used_bytes) {
            self.set_pace(is_full);
        }
    }

    /// Whether a heap of that size is full: more than half of its limit.
    #[inline]
    fn is_full(&self, used_bytes: usize) -> bool {
        used_bytes > self.used_bytes_max.get() / 2
    }

    /// Sets the pace of collection for a heap that has become full, which is collected from now on, or is no longer
    /// full.
    #[cold]
    fn set_pace(&self, is_full: bool) {
        let state = self.state.get();
        if state.is_null() || self.compiling.get() {
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

    /// Lends the call of the running script, if one is running.
    #[inline]
    pub(crate) fn with_call<R>(&self, run: impl FnOnce(&mut Call<'_>) -> R) -> Option<R> {
        let call = self.call.replace(ptr::null_mut());
        // SAFETY: `LuaState::call` lends it for as long as it is set. The reference is taken out meanwhile: there is only
        // one.
        let result = run(unsafe { call.as_mut() }?);
        self.call.set(call);
        Some(result)
    }

    /// Collects nothing until [`Self::restart_collection`].
    pub(crate) fn stop_collection(&self) {
        self.compiling.set(true);
        // SAFETY: as in `set_pace`.
        unsafe { ffi::lua_gc(self.state.get(), ffi::LUA_GCSTOP, 0) };
    }

    /// Collects again, at the pace that the heap now needs.
    pub(crate) fn restart_collection(&self) {
        self.compiling.set(false);
        // SAFETY: as in `set_pace`.
        unsafe { ffi::lua_gc(self.state.get(), ffi::LUA_GCRESTART, 0) };
        self.set_pace(self.is_full(self.used_bytes.get()));
    }

    /// Bytes that are allocated.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.get()
    }

    /// Gives small blocks that are kept for the next script to the process's allocator.
    pub(crate) fn give_blocks_back(&self) {
        self.blocks.give_back_free();
    }

    /// Bytes that may still be allocated.
    pub(crate) fn free_bytes(&self) -> usize {
        self.used_bytes_max.get().saturating_sub(self.used_bytes.get())
    }

    /// Whether more is allocated than may be, which happens while Rust is at work.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.used_bytes.get() > self.used_bytes_max.get()
    }

    /// Most bytes that may be allocated.
    pub(crate) fn used_bytes_max(&self) -> usize {
        self.used_bytes_max.get()
    }
}

/// The means of a running script: its caller, and its replies.
pub(crate) struct Call<'a> {
    pub(crate) host: &'a mut dyn ScriptHost,
    /// The protocol that replies are converted from (`redis.setresp`).
    pub(crate) protocol: Protocol,
    /// The buffer into which commands write their replies, kept from one to the next.
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
            // SAFETY: Lua passes the size that it was given, and has no use for the block.
            unsafe { machine.blocks.give(block, old) };
        }
        return ptr::null_mut();
    }
    let old = if block.is_null() { 0 } else { old };
    if machine.strict.get() {
        if machine.is_refused(old, new) {
            return ptr::null_mut();
        }
        if new >= budget::LARGE_BYTES && !machine.may_go_on(new) {
            return ptr::null_mut();
        }
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
pub(crate) struct LuaState {
    state: NonNull<lua_State>,
    machine: NonNull<Machine>,
}

// SAFETY: nothing outside refers to the state or its machine; both move to another thread together.
unsafe impl Send for LuaState {}

impl LuaState {
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
            doom: Cell::new(None),
            steps: Cell::new(0),
            compiling: Cell::new(false),
            collection: Collection::default(),
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
        // SAFETY: the state is live for as long as it is borrowed; outside of functions there are 20 places.
        unsafe { Stack::new(self.state.as_ptr(), ROOM) }
    }

    /// Its own data.
    #[inline]
    pub(crate) fn machine(&self) -> &Machine {
        // SAFETY: it is freed with self.
        unsafe { self.machine.as_ref() }
    }

    /// Bytes that Lua has allocated.
    pub(crate) fn used_bytes(&self) -> usize {
        self.machine().used_bytes.get()
    }

    /// Does some work, most of it in Lua, with `call` to serve it.
    pub(crate) fn serve<R>(&self, call: &mut Call<'_>, work: impl FnOnce(Stack<'_>) -> R) -> R {
        let machine = self.machine();
        assert!(machine.call.get().is_null(), "a script within a script");
        machine.call.set(ptr::from_mut(call).cast());
        let result = work(self.stack());
        machine.call.set(ptr::null_mut());
        result
    }

    /// The identity of the state.
    pub(crate) fn raw(&self) -> *mut lua_State {
        self.state.as_ptr()
    }

    /// Collects all garbage of a heap that is full, before a script begins in it. To be called when no script is running.
    pub(crate) fn empty_if_full(&self) {
        let machine = self.machine();
        let used_bytes = machine.used_bytes.get();
        // Objects that survive one collection would survive another.
        if machine.is_full(used_bytes) && used_bytes / 8 > machine.kept_bytes.get() / 7 {
            // SAFETY: the state is live, and memory is not refused outside of scripts.
            unsafe { ffi::lua_gc(self.state.as_ptr(), ffi::LUA_GCCOLLECT, 0) };
            machine.kept_bytes.set(machine.used_bytes.get());
            self.note_collected();
        }
    }

    /// Calls `hook` every `instructions` instructions, in coroutines made from now on too.
    pub(crate) fn set_hook(&self, hook: ffi::lua_Hook, instructions: c_int) {
        // SAFETY: the state is live.
        unsafe { ffi::lua_sethook(self.state.as_ptr(), Some(hook), ffi::LUA_MASKCOUNT, instructions) };
    }
}

impl Drop for LuaState {
    fn drop(&mut self) {
        // SAFETY: both were made by `new` and are given up here.
        unsafe {
            ffi::lua_close(self.state.as_ptr());
            drop(Box::from_raw(self.machine.as_ptr()));
        }
    }
}
