//! The general allocator: mimalloc, spans for blocks of 1 to 32 KiB, extents for larger ones; their figures, and how they give
//! memory back. If another allocator serves the process (in tests), the figures mean little.

use std::{
    alloc::{GlobalAlloc, Layout},
    ffi::{CStr, c_char, c_int, c_long, c_void},
    io::Write,
    ptr::{self, NonNull},
};

use dunlin_structures::{
    EXTENT_ALIGN, EXTENT_BYTES_MIN, ExtentUsage, Extents, Relocator, SPAN_ALIGN, SPAN_BYTES_ABOVE, SpanUsage,
    Spans,
};
use libmimalloc_sys as own;
use mimalloc::MiMalloc;

static EXTENTS: Extents = Extents::new();
static SPANS: Spans = Spans::new(&EXTENTS);

/// The allocator of the process: `#[global_allocator]`. Large blocks are extents, and those of some KiB stand in spans, so that memory
/// does not stay if values of all sizes come and go (docs/decisions/0065, docs/decisions/0079); small ones are mimalloc's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allocator;

/// The allocator that a block is from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    MiMalloc,
    Spans,
    Extents,
}

/// Returns the allocator of a block: its layout alone decides, so that it goes back where it came from.
#[inline]
fn home(layout: Layout) -> Home {
    let (size, align) = (layout.size(), layout.align());
    if size <= SPAN_BYTES_ABOVE {
        Home::MiMalloc
    } else if size < EXTENT_BYTES_MIN {
        if align <= SPAN_ALIGN { Home::Spans } else { Home::MiMalloc }
    } else if align <= EXTENT_ALIGN {
        Home::Extents
    } else {
        Home::MiMalloc
    }
}

fn pointer(block: Option<NonNull<u8>>) -> *mut u8 {
    block.map_or(ptr::null_mut(), NonNull::as_ptr)
}

// SAFETY: blocks of a layout come from one of three allocators and go back to the same one; all keep what `GlobalAlloc` asks for.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match home(layout) {
            // SAFETY: the caller's.
            Home::MiMalloc => unsafe { MiMalloc.alloc(layout) },
            Home::Spans => pointer(SPANS.take(layout.size())),
            Home::Extents => pointer(EXTENTS.take(layout.size(), false)),
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match home(layout) {
            // SAFETY: the caller's.
            Home::MiMalloc => unsafe { MiMalloc.alloc_zeroed(layout) },
            Home::Spans => {
                let block = SPANS.take(layout.size());
                if let Some(block) = block {
                    // SAFETY: the block has room for the layout, and no other owner.
                    unsafe { block.write_bytes(0, layout.size()) };
                }
                pointer(block)
            }
            Home::Extents => pointer(EXTENTS.take(layout.size(), true)),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's; a block is not null.
        unsafe {
            match home(layout) {
                Home::MiMalloc => MiMalloc.dealloc(block, layout),
                Home::Spans => SPANS.give_back(NonNull::new_unchecked(block), layout.size()),
                Home::Extents => EXTENTS.give_back(NonNull::new_unchecked(block), layout.size()),
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size is valid for the alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (home(layout), home(wanted)) {
            // SAFETY: the caller's.
            (Home::MiMalloc, Home::MiMalloc) => return unsafe { MiMalloc.realloc(block, layout, size) },
            (Home::Spans, Home::Spans) if Spans::fits(layout.size(), size) => return block,
            (Home::Extents, Home::Extents) => {
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

/// Moves blocks out of sparse spans. Blocks of other allocators stay.
pub(crate) fn relocator() -> Relocator {
    unsafe fn relocate(block: NonNull<u8>, bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: the caller owns the block, of that layout, and lets the new place stand for it.
        unsafe { SPANS.relocate(block, bytes) }
    }
    // SAFETY: spans move blocks to places of the same class, which the global allocator takes back.
    unsafe { Relocator::new(relocate) }
}

/// The memory of spans. O(1), some microseconds.
pub(crate) fn span_usage() -> SpanUsage {
    SPANS.usage()
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
    SPANS.release_empty();
    EXTENTS.discard_free();
}

/// Gives pages that the calling thread has set aside for small blocks, and that are empty, to the rest of the process, which gives them
/// back to the system with [`collect`].
pub(crate) fn collect_of_thread() {
    // SAFETY: it takes no pointers and may be called at any time.
    unsafe { own::mi_collect(false) };
}

/// The statistics of both, as text for people.
pub(crate) fn report() -> Vec<u8> {
    unsafe extern "C" fn append(text: *const c_char, report: *mut c_void) {
        // SAFETY: mimalloc passes a C string, and the pointer that `report` was made from.
        unsafe { (*report.cast::<Vec<u8>>()).extend_from_slice(CStr::from_ptr(text).to_bytes()) };
    }
    let ExtentUsage { used_bytes, dirty_bytes } = EXTENTS.usage();
    let spans = SPANS.usage();
    let mut report = Vec::new();
    // A vector takes everything.
    let _ = writeln!(
        report,
        "blocks from {} KiB and spans: {used_bytes} bytes in use, {dirty_bytes} bytes free and resident\n\
         spans, of blocks above {} bytes: {} bytes in use, {} beside them, {} empty\nblocks below:",
        EXTENT_BYTES_MIN >> 10,
        SPAN_BYTES_ABOVE,
        spans.used_bytes,
        spans.sparse_bytes,
        spans.empty_bytes
    );
    // SAFETY: `append` is called only during this call, with the pointer to `report`.
    unsafe { own::mi_stats_print_out(Some(append), (&raw mut report).cast()) };
    report
}
