//! The general allocator, mimalloc, from outside: its own figures, and how it gives memory back. Where another
//! allocator serves the process (in tests), mimalloc's figures mean little.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};

use libmimalloc_sys as mimalloc;

/// `mi_option_purge_delay` of mimalloc 3, which the crate does not name: milliseconds until free memory may be given back.
const PURGE_DELAY: c_int = 15;
/// Longer than any server runs.
const PURGE_DELAY_NEVER_MS: c_long = 1 << 40;

/// From now on free memory stays until a thread calls [`collect`]. By itself mimalloc gives it back a second later, in
/// whichever thread frees something then: a worker would do so with hundreds of megabytes at once, and one that has
/// nothing to free never does.
pub(crate) fn leave_to_collect() {
    // SAFETY: it takes no pointers and may be called at any time; the option exists.
    unsafe { mimalloc::mi_option_set(PURGE_DELAY, PURGE_DELAY_NEVER_MS) };
}

/// Gives free memory back to the system: all of the process's but for memory that other threads have set aside for
/// small blocks.
pub(crate) fn collect() {
    // SAFETY: it takes no pointers and may be called at any time.
    unsafe { mimalloc::mi_collect(true) };
}

/// The allocator's own statistics, as text for people.
pub(crate) fn report() -> Vec<u8> {
    unsafe extern "C" fn append(text: *const c_char, report: *mut c_void) {
        // SAFETY: mimalloc passes a C string, and the pointer that `report` was made from.
        unsafe { (*report.cast::<Vec<u8>>()).extend_from_slice(CStr::from_ptr(text).to_bytes()) };
    }
    let mut report = Vec::new();
    // SAFETY: `append` is called only during this call, with the pointer to `report`.
    unsafe { mimalloc::mi_stats_print_out(Some(append), (&raw mut report).cast()) };
    report
}
