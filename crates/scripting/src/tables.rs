//! Replaces those functions on tables whose originals a script can make write where it must not, or run for ever:
//! `unpack`, `table.insert` and `table.remove`; and a wrapper for those that call a function again and again.

use std::ffi::c_int;

use mlua_sys::{self as ffi, lua_State};

use crate::stack::{Kind, NativeFn, NativeResult, Raised, Stack, enter, native, run_native};

/// The functions that replace those of the library `table`, by name.
pub(crate) const FUNCTIONS: [(&str, NativeFn); 2] =
    [("insert", native!(insert)), ("remove", native!(remove))];

/// Most values that `unpack` answers: as many as a function may have on its stack.
const UNPACKED_MAX: i64 = 8_000;

/// An argument as C's `int`, which the originals count in; or `default` if there is none.
fn index(stack: Stack<'_>, at: c_int, default: i64) -> Result<i64, Raised> {
    stack.optional_integer(at, default).map(|value| i64::from(value as c_int))
}

/// `unpack`: the elements from one index to another.
pub(crate) fn unpack(stack: Stack<'_>) -> NativeResult {
    stack.table_argument(1)?;
    let first = index(stack, 2, 1)?;
    let last = index(stack, 3, stack.length(1) as i64)?;
    if first > last {
        return Ok(0);
    }
    // Of two numbers of 32 bits: no overflow.
    let count = last - first + 1;
    let room = c_int::try_from(count).ok().filter(|_| count <= UNPACKED_MAX);
    let room = room.and_then(|count| Some((stack.room_for_results(count)?, count)));
    let Some((stack, count)) = room else { return Err(stack.raise("too many results to unpack")) };
    (first..=last).for_each(|index| stack.raw_get_index(1, index as c_int));
    Ok(count)
}

/// `table.insert`: at the end, or at an index, from which on the elements move up.
fn insert(stack: Stack<'_>) -> NativeResult {
    stack.table_argument(1)?;
    let end = stack.length(1) as i64 + 1;
    let at = match stack.top() {
        2 => end,
        3 => i64::from(stack.integer_argument(2)? as c_int),
        _ => return Err(stack.raise("wrong number of arguments to 'insert'")),
    };
    for index in (at + 1..=end).rev() {
        stack.step(0)?;
        stack.raw_get_index(1, (index - 1) as c_int);
        stack.raw_set_index(1, index as c_int);
    }
    stack.raw_set_index(1, at as c_int);
    Ok(0)
}

/// `table.remove`: the last element, or the one at an index, behind which the elements move down.
fn remove(stack: Stack<'_>) -> NativeResult {
    stack.table_argument(1)?;
    let end = stack.length(1) as i64;
    let at = index(stack, 2, end)?;
    if !(1..=end).contains(&at) {
        return Ok(0);
    }
    stack.raw_get_index(1, at as c_int);
    for index in at..end {
        stack.step(0)?;
        stack.raw_get_index(1, (index + 1) as c_int);
        stack.raw_set_index(1, index as c_int);
    }
    stack.push_nil();
    stack.raw_set_index(1, end as c_int);
    Ok(1)
}

/// Steps of one call of a native function by another: any may be long, and no instruction of Lua is counted meanwhile.
const CALL_STEPS: usize = 1_000;

/// Replaces a function in the second place that is not Lua's by one that counts its calls. For `table.sort`, `foreach`
/// and `foreachi`, which may call it any number of times; of functions in Lua the instructions count.
pub(crate) fn count_calls(stack: Stack<'_>) {
    if stack.kind(2) == Kind::Function && stack.is_native(2) {
        stack.push_copy(2);
        stack.push_closure(counted, 1);
        stack.replace(2);
    }
}

/// Makes `table.sort` without a function compare by one that counts.
pub(crate) fn count_comparisons(stack: Stack<'_>) {
    if matches!(stack.kind(2), Kind::None | Kind::Nil) && stack.kind(1) == Kind::Table {
        stack.set_top(1);
        stack.push_native(less);
    }
    count_calls(stack);
}

/// Calls the function that is its upvalue, with the same arguments.
unsafe extern "C-unwind" fn counted(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls with a live state, 20 places, and nothing left to drop when an error passes.
    unsafe {
        let arguments = ffi::lua_gettop(state);
        run_native(state, |stack| {
            stack.steps(CALL_STEPS)?;
            stack.push_copy(ffi::lua_upvalueindex(1));
            stack.insert(1);
            Ok(0)
        });
        ffi::lua_call(state, arguments, ffi::LUA_MULTRET);
        ffi::lua_gettop(state)
    }
}

/// Whether its first argument is less than its second.
unsafe extern "C-unwind" fn less(state: *mut lua_State) -> c_int {
    // SAFETY: as in `counted`; the comparison may call a metamethod, and raise.
    unsafe {
        let is_less = ffi::lua_lessthan(state, 1, 2) != 0;
        enter(state, |stack| stack.push_boolean(is_less));
    }
    1
}
