//! Hints to the processor: "this line will be read soon", or written.

const CACHE_LINE_BYTES: usize = 64;

/// [`prefetch`] for all lines that `bytes` bytes from `start` on lie in, wherever in its line the first is.
#[inline(always)]
pub fn prefetch_span(start: *const u8, bytes: usize) {
    for_each_line(start, bytes, prefetch);
}

/// Asks for the cache line at `address` in every cache level. Never faults, at any address, and reads
/// nothing in the sense of the language; does nothing if there is no stable instruction for it.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no architectural effect: it neither faults nor changes memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        // SAFETY: as above; `prfm` only hints, and touches no register, flag or stack.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address,
                options(readonly, nostack, preserves_flags));
        }
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    let _ = address;
}

/// Does what [`prefetch_span`] does, for lines that will be written: no other processor keeps a copy of them. A store
/// that has to wait for its line holds up the release of the next lock, which waits for all stores.
#[inline(always)]
pub fn prefetch_span_for_write(start: *const u8, bytes: usize) {
    for_each_line(start, bytes, prefetch_for_write);
}

/// Gives the hint for an address in each line of a span; for one line twice, if the span ends in that of the last step.
#[inline(always)]
fn for_each_line(start: *const u8, bytes: usize, hint: impl Fn(*const u8)) {
    let last = bytes.saturating_sub(1);
    for line in 0..=last / CACHE_LINE_BYTES {
        hint(start.wrapping_add(line * CACHE_LINE_BYTES));
    }
    hint(start.wrapping_add(last));
}

/// Does what [`prefetch`] does, for a line that will be written.
#[inline(always)]
fn prefetch_for_write(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // The intrinsic becomes a hint to read if the target is not known to have the instruction; processors of 64
        // bits without it pass over it. SAFETY: a prefetch has no architectural effect: it neither faults nor changes
        // memory.
        unsafe {
            std::arch::asm!("prefetchw [{0}]", in(reg) address, options(readonly, nostack, preserves_flags));
        }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        // SAFETY: as above.
        unsafe {
            std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) address,
                options(readonly, nostack, preserves_flags));
        }
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    let _ = address;
}
