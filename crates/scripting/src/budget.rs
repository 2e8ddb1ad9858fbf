//! How much a script may do before it is asked whether it is to end, and how much memory it may take.
//!
//! ```text
//! instructions of Lua      counted by Lua, which calls the hook every INSTRUCTIONS    ─┐
//! work of native functions counted in steps, an element or some bytes each           ─┼─▶ ScriptHost::interrupted
//! large blocks of memory   counted by the allocator, where Lua itself asks for them   ─┘
//! ```
//!
//! So nothing that a script can call runs on without end if no command can stop it. Once it is to end, every line,
//! every step and every large block raises again: catching the error leads nowhere.

use std::ffi::c_int;

use mlua_sys::{self as ffi, lua_Debug, lua_State};

use crate::{
    INSTRUCTIONS,
    convert::push_error_table,
    stack::{Raised, Stack, enter},
    state::{LuaState, Machine},
};

/// From this size on a block counts as work.
pub(crate) const LARGE_BYTES: usize = 1 << 20;
/// Bytes copied or looked at that count as one step.
pub(crate) const STEP_BYTES: usize = 64;

/// Lua's message about memory that is refused.
pub(crate) const NO_MEMORY: &str = "not enough memory";

/// Makes Lua ask every [`INSTRUCTIONS`] whether the script is to end.
pub(crate) fn watch(state: &LuaState) {
    state.set_hook(hook, INSTRUCTIONS as c_int);
}

/// Ends the script if it is to end. Lua calls this every [`INSTRUCTIONS`].
unsafe extern "C-unwind" fn hook(state: *mut lua_State, _: *mut lua_Debug) {
    // SAFETY: Lua calls with a live state, 20 places and nothing left to drop when the error is raised.
    unsafe {
        if enter(state, |stack| stack.look_up()).is_err() {
            ffi::lua_error(state);
        }
    }
}

impl Stack<'_> {
    /// Counts a step of a native function that has made `result_bytes` of its result so far, outside of Lua's memory.
    #[inline]
    pub(crate) fn step(self, result_bytes: usize) -> Result<(), Raised> {
        self.steps(1)?;
        self.has_memory(result_bytes)
    }

    /// Work of a native function, in steps.
    #[inline]
    pub(crate) fn steps(self, count: usize) -> Result<(), Raised> {
        if self.machine().count_steps(count) { self.look_up() } else { Ok(()) }
    }

    /// Raises if the script has more memory than it may, or would with `more` bytes.
    #[inline]
    pub(crate) fn has_memory(self, more: usize) -> Result<(), Raised> {
        if self.machine().is_over() || more > self.machine().free_bytes() {
            return Err(self.raise_plain(NO_MEMORY));
        }
        Ok(())
    }

    /// Pushes a result of any length, if there is memory for it.
    pub(crate) fn push_result(self, bytes: impl AsRef<[u8]>) -> Result<(), Raised> {
        let bytes = bytes.as_ref();
        self.steps(bytes.len() / STEP_BYTES)?;
        self.has_memory(bytes.len())?;
        self.push_bytes(bytes);
        Ok(())
    }

    /// Raises if the script is to end.
    #[cold]
    fn look_up(self) -> Result<(), Raised> {
        let Some(text) = self.machine().ask() else { return Ok(()) };
        // SAFETY: the state is live; from now on at every line, so that catching the error leads nowhere.
        unsafe { ffi::lua_sethook(self.raw(), Some(hook), ffi::LUA_MASKLINE | ffi::LUA_MASKCOUNT, 1) };
        Err(self.raise_table(|stack| push_error_table(stack, format!("ERR {text}"))))
    }
}

impl Machine {
    /// Counts steps. Returns whether it is time to ask.
    #[inline]
    fn count_steps(&self, count: usize) -> bool {
        let steps = self.steps.get().saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        let is_due = steps >= INSTRUCTIONS;
        self.steps.set(if is_due { 0 } else { steps });
        is_due
    }

    /// Counts steps if nothing can be raised; why the script is to end, if it is.
    #[inline]
    pub(crate) fn ask_after_steps(&self, count: usize) -> Option<&'static str> {
        if self.count_steps(count) { self.ask() } else { None }
    }

    /// Why the script is to end, if it is.
    fn ask(&self) -> Option<&'static str> {
        let text = self.doom.get().or_else(|| self.with_call(|call| call.host.interrupted()).flatten());
        self.doom.set(text);
        text
    }

    /// Whether Lua may have a large block: not a script that is to end.
    #[cold]
    pub(crate) fn may_go_on(&self, bytes: usize) -> bool {
        self.ask_after_steps(bytes / STEP_BYTES).is_none()
    }
}
