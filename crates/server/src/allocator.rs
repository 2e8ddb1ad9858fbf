//! The general allocator, mimalloc, from outside: what it says of itself, and how it gives memory back.
//! Where another allocator serves the process (in tests), mimalloc has little to tell.

use std::ffi::{CStr, c_char, c_void};

use libmimalloc_sys as mimalloc;

/// Gives memory that this thread's heap no longer needs back to the system.
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
