//! The general allocator: mimalloc, and extents for large blocks; their figures, and how they give memory back. If
//! another allocator serves the process (in tests), the figures mean little.

use std::{
    alloc::{GlobalAlloc, Layout},
    ffi::{CStr, c_char, c_int, c_long, c_void},
    io::Write,
    ptr::{self, NonNull},
};

use dunlin_structures::{EXTENT_ALIGN, EXTENT_BYTES_MIN, ExtentUsage, Extents};
use libmimalloc_sys as own;
use mimalloc::MiMalloc;

static EXTENTS: Extents = Extents::new();

/// The allocator of the process: `#[global_allocator]`. Large blocks are extents, so that memory does not stay if
/// values of all sizes come and go (docs/decisions/0065); all others are mimalloc's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allocator;

/// Whether a block is an extent: its layout alone decides, so that it goes back where it came from.
#[inline]
fn is_extent(layout: Layout) -> bool {
    layout.size() >= EXTENT_BYTES_MIN && layout.align() <= EXTENT_ALIGN
}

fn pointer(block: Option<NonNull<u8>>) -> *mut u8 {
    block.map_or(ptr::null_mut(), NonNull::as_ptr)
}

// SAFETY: blocks of a layout come from one of two allocators and go back to the same one; both keep what `GlobalAlloc` asks for.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_extent(layout) {
            return pointer(EXTENTS.take(layout.size(), false));
        }
        // SAFETY: the caller's.
        unsafe { MiMalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_extent(layout) {
            return pointer(EXTENTS.take(layout.size(), true));
        }
        // SAFETY: the caller's.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_extent(layout) {
            // SAFETY: the caller's; a block is not null.
            return unsafe { EXTENTS.give_back(NonNull::new_unchecked(block), layout.size()) };
        }
        // SAFETY: the caller's.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size is valid for the alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (is_extent(layout), is_extent(wanted)) {
            // SAFETY: the caller's.
            (false, false) => return unsafe { MiMalloc.realloc(block, layout, size) },
            (true, true) => {
                // SAFETY: the caller's; a block is not null.
                let resized = unsafe { EXTENTS.resize(NonNull::new_unchecked(block), layout.size(), size) };
                if let Some(resized) = resized {
                    return resized.as_ptr();
                }
            }
            _ => {}
        }
        // SAFETY: the two blocks do not overlap and have this size; the caller gives the former up.
        unsafe {
            let moved = self.alloc(wanted);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

/// `mi_option_purge_delay` of mimalloc 3, which the crate does not name: milliseconds until free memory may be given back.
const PURGE_DELAY: c_int = 15;
/// Longer than any server runs.
const PURGE_DELAY_NEVER_MS: c_long = 1 << 40;

/// From now on free memory stays until a thread calls [`collect`]. By itself mimalloc gives it back a second later, in
/// whichever thread frees something then: a worker would do so with hundreds of megabytes at once, and one that has
/// nothing to free never does.
pub(crate) fn leave_to_collect() {
    // SAFETY: it takes no pointers and may be called at any time; the option exists.
    unsafe { own::mi_option_set(PURGE_DELAY, PURGE_DELAY_NEVER_MS) };
}

/// Gives free memory back to the system: all of the process's but for memory that other threads have set aside for
/// small blocks.
pub(crate) fn collect() {
    // SAFETY: it takes no pointers and may be called at any time.
    unsafe { own::mi_collect(true) };
    EXTENTS.discard_free();
}

/// The statistics of both, as text for people.
pub(crate) fn report() -> Vec<u8> {
    unsafe extern "C" fn append(text: *const c_char, report: *mut c_void) {
        // SAFETY: mimalloc passes a C string, and the pointer that `report` was made from.
        unsafe { (*report.cast::<Vec<u8>>()).extend_from_slice(CStr::from_ptr(text).to_bytes()) };
    }
    let ExtentUsage { used_bytes, dirty_bytes } = EXTENTS.usage();
    let mut report = Vec::new();
    // A vector takes everything.
    let _ = writeln!(
        report,
        "blocks from {} KiB: {used_bytes} bytes in use, {dirty_bytes} bytes free and resident\nblocks below:",
        EXTENT_BYTES_MIN >> 10
    );
    // SAFETY: `append` is called only during this call, with the pointer to `report`.
    unsafe { own::mi_stats_print_out(Some(append), (&raw mut report).cast()) };
    report
}
