//! The requests to the system behind the page pool, ropes and extents, and nothing else.
//!
//! Under Miri, which knows no system calls, the general allocator stands in and advice is ignored.

use std::ptr::NonNull;

/// Bytes of a region: the pool asks the system for as many at once.
pub(crate) const REGION_BYTES: usize = 4 << 20;
/// Bytes of a huge page on x86-64 and on aarch64 with 4 KiB pages; regions are aligned to it.
pub(crate) const HUGE_BYTES: usize = 2 << 20;

const _: () = assert!(REGION_BYTES.is_multiple_of(HUGE_BYTES), "a region is whole huge pages");

/// Maps a zero-filled region aligned to [`HUGE_BYTES`], or `None` when the system has no memory left.
#[cfg(not(miri))]
pub(crate) fn map_region() -> Option<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    // The system aligns to 4 KiB only: map one huge page more, then cut off both ends.
    const MAPPED_BYTES: usize = REGION_BYTES + HUGE_BYTES;
    // SAFETY: a fresh private mapping at an address of the system's choice overlaps nothing.
    let mapped = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            MAPPED_BYTES,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }
    .ok()?
    .cast::<u8>();
    let head_bytes = mapped.align_offset(HUGE_BYTES);
    let tail_bytes = HUGE_BYTES - head_bytes;
    // A failed cut only leaves address space unused, never memory: its pages are not touched.
    // SAFETY: both ends lie inside the mapping just made and nothing refers to them.
    unsafe {
        if head_bytes > 0 {
            let _ = munmap(mapped.cast(), head_bytes);
        }
        if tail_bytes > 0 {
            let _ = munmap(mapped.add(head_bytes + REGION_BYTES).cast(), tail_bytes);
        }
        let region = NonNull::new(mapped.add(head_bytes))?;
        prefer_huge_pages(region, REGION_BYTES, true);
        Some(region)
    }
}

/// Gives a region back.
///
/// # Safety
/// `region` came from [`map_region`], and nothing refers to its memory now or later.
#[cfg(not(miri))]
pub(crate) unsafe fn unmap_region(region: NonNull<u8>) {
    // SAFETY: by the caller. An error could only mean that the region stays mapped.
    let _ = unsafe { rustix::mm::munmap(region.as_ptr().cast(), REGION_BYTES) };
}

/// Gives the memory behind an address range back; the range stays mapped and later reads as unspecified
/// bytes (zeroes on Linux).
///
/// # Safety
/// The range is whole pages of a region, or of an allocation, and its contents are not needed.
#[cfg(not(miri))]
pub(crate) unsafe fn discard(start: NonNull<u8>, bytes: usize) {
    use rustix::mm::{Advice, madvise};
    #[cfg(target_os = "linux")]
    const ADVICE: Advice = Advice::LinuxDontNeed;
    #[cfg(not(target_os = "linux"))]
    const ADVICE: Advice = Advice::DontNeed;
    // SAFETY: by the caller. On an error the memory merely stays resident.
    let _ = unsafe { madvise(start.as_ptr().cast(), bytes, ADVICE) };
}

/// Advises the system whether huge pages are wanted in a range. Only Linux listens; a kernel without huge pages
/// refuses, which changes nothing but speed.
///
/// # Safety
/// The range lies inside a region.
#[cfg(not(miri))]
pub(crate) unsafe fn prefer_huge_pages(start: NonNull<u8>, bytes: usize, wanted: bool) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        let advice = if wanted { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: this advice never changes contents.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, advice) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes, wanted);
}

/// Puts memory behind an address range, so that no thread waits for it later; returns whether the system did. Only
/// Linux (5.14) can.
///
/// # Safety
/// The range lies inside a region.
#[cfg(not(miri))]
pub(crate) unsafe fn populate(start: NonNull<u8>, bytes: usize) -> bool {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        // SAFETY: this advice never changes contents.
        unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) }.is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (start, bytes);
        false
    }
}

/// Reserves an address range of whole pages without memory behind it: it can neither be read nor written, and does not
/// count as memory that the process was promised. `None` if the system refuses.
#[cfg(not(miri))]
pub(crate) fn reserve(bytes: usize) -> Option<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // SAFETY: a fresh private mapping at an address of the system's choice overlaps nothing.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), MapFlags::PRIVATE) };
    NonNull::new(start.ok()?.cast())
}

/// Makes whole pages of a reserved range memory of zeros. Returns whether the system did.
///
/// # Safety
/// The range lies inside one that [`reserve`] returned.
#[cfg(not(miri))]
pub(crate) unsafe fn commit(start: NonNull<u8>, bytes: usize) -> bool {
    use rustix::mm::{MprotectFlags, mprotect};
    // SAFETY: by the caller. No reference into the range exists that could notice.
    unsafe { mprotect(start.as_ptr().cast(), bytes, MprotectFlags::READ | MprotectFlags::WRITE) }.is_ok()
}

/// Gives a reserved range back, with the memory behind it. That comes first, in steps: while the system takes pages
/// away, a thread that asks it for address space waits.
///
/// # Safety
/// The range is the whole one that [`reserve`] returned, and nothing refers to it now or later.
#[cfg(not(miri))]
pub(crate) unsafe fn unreserve(start: NonNull<u8>, bytes: usize) {
    const STEP_BYTES: usize = 1 << 20;
    for at in (0..bytes).step_by(STEP_BYTES) {
        // SAFETY: whole pages of the range, whose contents are not needed, by the caller.
        unsafe { discard(start.add(at), STEP_BYTES.min(bytes - at)) };
    }
    // SAFETY: by the caller. An error could only mean that the range stays mapped.
    let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), bytes) };
}

/// Maps whole pages of zeros, without huge pages: these would be resident if a part of them is in use. `None` if the
/// system has no memory left.
#[cfg(not(miri))]
pub(crate) fn map(bytes: usize) -> Option<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh private mapping at an address of the system's choice overlaps nothing.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
    let start = NonNull::new(start.ok()?.cast())?;
    // SAFETY: the range was just mapped.
    unsafe { prefer_huge_pages(start, bytes, false) };
    Some(start)
}

/// A mapping of `bytes` bytes, aligned to them, a power of two.
#[cfg(not(miri))]
pub(crate) fn map_aligned(bytes: usize) -> Option<NonNull<u8>> {
    use rustix::mm::munmap;
    let mapped = map(bytes.checked_mul(2)?)?;
    let before = mapped.as_ptr().align_offset(bytes);
    // A failed cut only leaves address space unused, never memory: its pages are not touched.
    // SAFETY: both ends lie inside the mapping just made and nothing refers to them.
    unsafe {
        if before > 0 {
            let _ = munmap(mapped.as_ptr().cast(), before);
        }
        let _ = munmap(mapped.add(before + bytes).as_ptr().cast(), bytes - before);
        Some(mapped.add(before))
    }
}

/// Gives a mapping back, and the memory behind it before that, as [`unreserve`] does.
///
/// # Safety
/// The mapping came from [`map`] or [`remap`] with `bytes` bytes, and nothing refers to it now or later.
#[cfg(not(miri))]
pub(crate) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: by the caller.
    unsafe { unreserve(start, bytes) };
}

/// Gives a mapping another size, perhaps at another address, without copying its bytes. `None` if the system does not:
/// other systems than Linux, or no memory is left.
///
/// # Safety
/// As for [`unmap`]; the result takes its place.
#[cfg(not(miri))]
pub(crate) unsafe fn remap(start: NonNull<u8>, bytes: usize, wanted: usize) -> Option<NonNull<u8>> {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{MremapFlags, mremap};
        // SAFETY: by the caller.
        let moved = unsafe { mremap(start.as_ptr().cast(), bytes, wanted, MremapFlags::MAYMOVE) };
        NonNull::new(moved.ok()?.cast())
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (start, bytes, wanted);
        None
    }
}

/// Bytes of a range of whole pages that have memory behind them, swapped out or not. Figures of a whole mapping, or of the process,
/// would count what other tests use at the same time.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn resident_bytes(start: usize, bytes: usize) -> usize {
    use std::os::unix::fs::FileExt;
    let page_bytes = rustix::param::page_size();
    let mut words = vec![0u8; bytes / page_bytes * 8];
    let file = std::fs::File::open("/proc/self/pagemap").unwrap();
    file.read_exact_at(&mut words, (start / page_bytes * 8) as u64).unwrap();
    // A word a page. The highest bit says that the page is in memory, the next one that it is swapped out.
    let words = words.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    words.filter(|word| word >> 62 != 0).count() * page_bytes
}

#[cfg(miri)]
pub(crate) use stand_in::{
    commit, discard, map, map_aligned, map_region, populate, prefer_huge_pages, remap, reserve, unmap,
    unmap_region, unreserve,
};

#[cfg(miri)]
mod stand_in {
    use super::{HUGE_BYTES, NonNull, REGION_BYTES};
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout() -> Layout {
        Layout::from_size_align(REGION_BYTES, HUGE_BYTES).expect("constant and valid")
    }

    pub(crate) fn map_region() -> Option<NonNull<u8>> {
        // SAFETY: the layout is not empty.
        NonNull::new(unsafe { alloc_zeroed(layout()) })
    }

    pub(crate) unsafe fn unmap_region(region: NonNull<u8>) {
        // SAFETY: `map_region` used the same layout.
        unsafe { dealloc(region.as_ptr(), layout()) };
    }

    fn range_layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 4096).expect("whole pages")
    }

    pub(crate) fn reserve(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: no caller reserves 0 bytes.
        NonNull::new(unsafe { alloc_zeroed(range_layout(bytes)) })
    }

    pub(crate) fn map(bytes: usize) -> Option<NonNull<u8>> {
        reserve(bytes)
    }

    pub(crate) fn map_aligned(bytes: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(bytes, bytes).expect("a power of two");
        // SAFETY: the layout is not empty.
        NonNull::new(unsafe { alloc_zeroed(layout) })
    }

    pub(crate) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
        // SAFETY: by the caller.
        unsafe { unreserve(start, bytes) };
    }

    pub(crate) unsafe fn remap(_start: NonNull<u8>, _bytes: usize, _wanted: usize) -> Option<NonNull<u8>> {
        None
    }

    pub(crate) unsafe fn commit(_start: NonNull<u8>, _bytes: usize) -> bool {
        true
    }

    pub(crate) unsafe fn unreserve(start: NonNull<u8>, bytes: usize) {
        // SAFETY: `reserve` used the same layout.
        unsafe { dealloc(start.as_ptr(), range_layout(bytes)) };
    }

    pub(crate) unsafe fn discard(_start: NonNull<u8>, _bytes: usize) {}

    pub(crate) unsafe fn populate(_start: NonNull<u8>, _bytes: usize) -> bool {
        true
    }

    pub(crate) unsafe fn prefer_huge_pages(_start: NonNull<u8>, _bytes: usize, _wanted: bool) {}
}
