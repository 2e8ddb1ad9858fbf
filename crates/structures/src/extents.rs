//! Large blocks for the general allocator: each is a run of pages of its own, an *extent*.
//!
//! ```text
//! region   64 MiB of address space, aligned to as many, mapped at once, never unmapped
//!          │ heads: 24 bytes a page │ extent │ extent │ …
//! extent   whole pages of a region: in use, or free
//! head     room for the owner of a page, found from any address in it; [`crate::Spans`] uses it
//!
//!            take                    give_back                 discard
//!   clean ───────────▶ in use ──────────────────▶ dirty ─────────────────▶ clean
//!   (no memory                        ◀──────────  (free, memory
//!    behind it)                         take        still behind it)
//! ```
//!
//! An allocator of size classes puts blocks of one class side by side in pages of megabytes. If values of all sizes
//! come and go, each class keeps pages of which most is free, and none can be given back: at a limit of 32 MB mimalloc
//! held 57 (docs/decisions/0065). Here what is free touches what is free, and all of it can go but for the dirty
//! extents, which are bounded. Address space may become fragmented, memory does not.
//!
//! Both kinds are taken by best fit, dirty ones first: they cost no page fault. Neighbours of one kind are one extent. O(log n)
//! in the number of free extents, under one lock, which is not held during system calls but for those that map a region.
//! Blocks above half a region are mappings of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    ptr::NonNull,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::memory_map::{discard, map, map_aligned, remap, unmap};

/// From this size on a block is worth pages of its own: rounding up to whole pages takes an eighth at most, a twentieth
/// on average. Blocks of 1 KiB and more below stand in spans ([`crate::Spans`]). Nodes of the trees here are smaller.
pub const EXTENT_BYTES_MIN: usize = 32 << 10;
/// The size of an extent is a multiple of this, which is its alignment, too.
pub const EXTENT_ALIGN: usize = 4096;
const REGION_BYTES: usize = 64 << 20;
const REGION_PAGES: usize = REGION_BYTES / EXTENT_ALIGN;
/// Bytes of the heads at the start of a region.
const HEADS_BYTES: usize = REGION_PAGES * size_of::<PageHead>();
/// Larger blocks are mappings of their own.
const SHARED_BYTES_MAX: usize = (REGION_BYTES - HEADS_BYTES) / 2;
/// How much is dirty at most: a share of what is in use, and a little.
const DIRTY_DIVISOR: usize = 32;
const DIRTY_BYTES_MIN: usize = 4 << 20;

const _: () =
    assert!(HEADS_BYTES.is_multiple_of(EXTENT_ALIGN) && SHARED_BYTES_MAX.is_multiple_of(EXTENT_ALIGN));

/// Bits of addresses that processes get.
const ADDRESS_BITS: u32 = 48;
/// A bit for each place that a region may have, set for those that are regions, of all [`Extents`].
static REGIONS: [AtomicU64; REGION_WORDS] = [const { AtomicU64::new(0) }; REGION_WORDS];
const REGION_WORDS: usize = (1 << ADDRESS_BITS) / REGION_BYTES / 64;

/// Whether an address is in a region, and its page has a head.
pub(crate) fn is_in_region(address: usize) -> bool {
    let place = address / REGION_BYTES;
    REGIONS.get(place / 64).is_some_and(|bits| bits.load(Relaxed) >> (place % 64) & 1 == 1)
}

fn note_region(address: usize) {
    let place = address / REGION_BYTES;
    if let Some(bits) = REGIONS.get(place / 64) {
        bits.fetch_or(1 << (place % 64), Relaxed);
    }
}

/// Room for the owner of a page of a region; extents themselves use none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageHead {
    /// Neighbours in the owner's list.
    pub(crate) next: *mut PageHead,
    pub(crate) prev: *mut PageHead,
    /// The number of the page in its region.
    page: u16,
    /// The owner's numbers.
    pub(crate) class: u8,
    pub(crate) shard: u8,
    pub(crate) free: u8,
    /// How many pages before this one the extent begins. In other pages than the first this is all that counts.
    pub(crate) back: u8,
}

const _: () = assert!(size_of::<PageHead>() == 24 && REGION_PAGES <= 1 << u16::BITS);

/// The head of the page that an address is in.
#[inline]
pub(crate) fn page_head(block: NonNull<u8>) -> *mut PageHead {
    let address = block.as_ptr().expose_provenance();
    let page = address % REGION_BYTES / EXTENT_ALIGN;
    let region: *mut PageHead = std::ptr::with_exposed_provenance_mut(address & !(REGION_BYTES - 1));
    region.wrapping_add(page)
}

impl PageHead {
    /// Fills the heads of an extent's pages; that of the first.
    ///
    /// # Safety
    /// The extent is in a region, has `pages` pages, less than 256, and no other owner.
    pub(crate) unsafe fn lay_out(start: NonNull<u8>, pages: usize) -> *mut Self {
        let head = page_head(start);
        let page = (start.addr().get() % REGION_BYTES / EXTENT_ALIGN) as u16;
        for back in 0..pages {
            let none = std::ptr::null_mut();
            let fresh = Self { next: none, prev: none, page, class: 0, shard: 0, free: 0, back: back as u8 };
            // SAFETY: by the caller; each page of a region has a head.
            unsafe { head.add(back).write(fresh) };
        }
        head
    }

    /// The start of the extent of a head.
    ///
    /// # Safety
    /// The head was filled by [`Self::lay_out`], as that of a first page.
    #[inline]
    pub(crate) unsafe fn start(head: *mut Self) -> NonNull<u8> {
        let region = head.expose_provenance() & !(REGION_BYTES - 1);
        // SAFETY: by the caller. A region has no address 0.
        unsafe {
            let page = usize::from((*head).page);
            NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(region + page * EXTENT_ALIGN))
        }
    }
}

/// The memory that extents hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExtentUsage {
    /// In extents that have an owner.
    pub used_bytes: usize,
    /// In free extents whose memory was not given back to the system: [`Extents::discard_free`] does that.
    pub dirty_bytes: usize,
}

/// Hands out extents. The type may serve as a part of the global allocator: what it allocates itself is below
/// [`EXTENT_BYTES_MIN`].
#[derive(Debug, Default)]
pub struct Extents {
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Clean,
    Dirty,
}

#[derive(Debug, Default)]
struct State {
    /// By address, bytes and kind. Neighbours differ in kind.
    free: BTreeMap<usize, (usize, Kind)>,
    /// Bytes and address, for the best fit.
    clean: BTreeSet<(usize, usize)>,
    dirty: BTreeSet<(usize, usize)>,
    used_bytes: usize,
    dirty_bytes: usize,
}

/// The bytes of the pages that a block takes.
fn rounded(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(EXTENT_ALIGN)
}

impl Extents {
    /// None yet; nothing is mapped before the first is taken.
    pub const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                free: BTreeMap::new(),
                clean: BTreeSet::new(),
                dirty: BTreeSet::new(),
                used_bytes: 0,
                dirty_bytes: 0,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics in the middle of a change, so a poisoned lock guards sound data.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a block of at least `bytes` bytes, which are zeros if they are to be; `None` if the system has no memory.
    pub fn take(&self, bytes: usize, is_zeroed: bool) -> Option<NonNull<u8>> {
        let bytes = rounded(bytes)?;
        if bytes > SHARED_BYTES_MAX {
            let block = map(bytes)?;
            self.state().used_bytes += bytes;
            return Some(block);
        }
        let mut state = self.state();
        let (at, kind) = match state.fit(bytes) {
            Some(found) => found,
            None => {
                let region = map_aligned(REGION_BYTES)?.as_ptr().expose_provenance();
                note_region(region);
                state.insert(region + HEADS_BYTES, REGION_BYTES - HEADS_BYTES, Kind::Clean);
                state.fit(bytes)?
            }
        };
        state.take(at, bytes);
        state.used_bytes += bytes;
        drop(state);
        let block = NonNull::new(std::ptr::with_exposed_provenance_mut(at))?;
        if is_zeroed && kind == Kind::Dirty {
            // SAFETY: the block is in use by the caller alone, and has `bytes` bytes.
            unsafe { block.write_bytes(0, bytes) };
        }
        Some(block)
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// The block came from [`Self::take`] with this size, or was given it by [`Self::resize`] since, and nothing refers
    /// to it now or later.
    pub unsafe fn give_back(&self, block: NonNull<u8>, bytes: usize) {
        let bytes = rounded(bytes).expect("it was taken with this size");
        let mut state = self.state();
        state.used_bytes -= bytes;
        if bytes > SHARED_BYTES_MAX {
            drop(state);
            // SAFETY: a mapping of its own, by the caller.
            unsafe { unmap(block, bytes) };
            return;
        }
        state.insert(block.as_ptr().expose_provenance(), bytes, Kind::Dirty);
        let limit = (state.used_bytes / DIRTY_DIVISOR).max(DIRTY_BYTES_MIN);
        if state.dirty_bytes > limit {
            drop(state);
            // Well below, so that this does not come with each block.
            self.discard_down_to(limit / 2);
        }
    }

    /// Gives a block another size, and perhaps another place, and keeps the bytes that both have; `None`, and nothing
    /// changed, if that would need a copy of them.
    ///
    /// # Safety
    /// As for [`Self::give_back`]. References to the block become references to the result.
    pub unsafe fn resize(&self, block: NonNull<u8>, bytes: usize, wanted: usize) -> Option<NonNull<u8>> {
        let (bytes, wanted) = (rounded(bytes)?, rounded(wanted)?);
        if bytes > SHARED_BYTES_MAX && wanted > SHARED_BYTES_MAX {
            // SAFETY: a mapping of its own, by the caller.
            let moved = unsafe { remap(block, bytes, wanted) }?;
            let mut state = self.state();
            state.used_bytes = state.used_bytes - bytes + wanted;
            return Some(moved);
        }
        if bytes > SHARED_BYTES_MAX || wanted > SHARED_BYTES_MAX {
            return None;
        }
        let start = block.as_ptr().expose_provenance();
        if wanted > bytes {
            let mut state = self.state();
            let more = wanted - bytes;
            let (behind, _) = state.free.get(&(start + bytes)).copied()?;
            if behind < more {
                return None;
            }
            state.take(start + bytes, more);
            state.used_bytes += more;
        } else if wanted < bytes {
            // SAFETY: the end of the block is whole pages, and nothing refers to it.
            unsafe { self.give_back(block.add(wanted), bytes - wanted) };
        }
        Some(block)
    }

    /// Gives the memory of all free extents back to the system.
    pub fn discard_free(&self) {
        self.discard_down_to(0);
    }

    /// The largest first: one system call gives back most.
    fn discard_down_to(&self, dirty_bytes: usize) {
        loop {
            let mut state = self.state();
            if state.dirty_bytes <= dirty_bytes {
                return;
            }
            let Some((bytes, at)) = state.dirty.last().copied() else { return };
            state.take(at, bytes);
            drop(state);
            let Some(start) = NonNull::new(std::ptr::with_exposed_provenance_mut(at)) else { return };
            // SAFETY: whole pages of a region, which are in no list: no other thread can take them.
            unsafe { discard(start, bytes) };
            self.state().insert(at, bytes, Kind::Clean);
        }
    }

    /// The memory that they hold now.
    pub fn usage(&self) -> ExtentUsage {
        let State { used_bytes, dirty_bytes, .. } = *self.state();
        ExtentUsage { used_bytes, dirty_bytes }
    }
}

impl State {
    fn by_size(&mut self, kind: Kind) -> &mut BTreeSet<(usize, usize)> {
        match kind {
            Kind::Clean => &mut self.clean,
            Kind::Dirty => &mut self.dirty,
        }
    }

    /// The free extent that a block of `bytes` bytes is to come from.
    fn fit(&self, bytes: usize) -> Option<(usize, Kind)> {
        let best = |sizes: &BTreeSet<(usize, usize)>| sizes.range((bytes, 0)..).next().map(|(_, at)| *at);
        best(&self.dirty)
            .map(|at| (at, Kind::Dirty))
            .or_else(|| best(&self.clean).map(|at| (at, Kind::Clean)))
    }

    fn remove(&mut self, at: usize) -> Option<(usize, Kind)> {
        let (bytes, kind) = self.free.remove(&at)?;
        self.by_size(kind).remove(&(bytes, at));
        if kind == Kind::Dirty {
            self.dirty_bytes -= bytes;
        }
        Some((bytes, kind))
    }

    /// Takes the beginning of the free extent at an address.
    fn take(&mut self, at: usize, bytes: usize) {
        let Some((found, kind)) = self.remove(at) else { unreachable!("a free extent begins there") };
        if found > bytes {
            self.insert(at + bytes, found - bytes, kind);
        }
    }

    /// Adds a free extent, as one with its neighbours of the same kind.
    fn insert(&mut self, mut at: usize, mut bytes: usize, kind: Kind) {
        if let Some((&before, &(before_bytes, before_kind))) = self.free.range(..at).next_back()
            && before + before_bytes == at
            && before_kind == kind
        {
            self.remove(before);
            (at, bytes) = (before, before_bytes + bytes);
        }
        if let Some(&(behind_bytes, behind_kind)) = self.free.get(&(at + bytes))
            && behind_kind == kind
        {
            self.remove(at + bytes);
            bytes += behind_bytes;
        }
        self.free.insert(at, (bytes, kind));
        self.by_size(kind).insert((bytes, at));
        if kind == Kind::Dirty {
            self.dirty_bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A block, filled with a byte of its own.
    struct Filled {
        block: NonNull<u8>,
        bytes: usize,
        fill: u8,
    }

    // SAFETY: plain memory with one owner.
    unsafe impl Send for Filled {}

    impl Filled {
        fn take(extents: &Extents, bytes: usize, fill: u8) -> Self {
            let block = extents.take(bytes, fill.is_multiple_of(2)).unwrap();
            assert!(block.addr().get().is_multiple_of(EXTENT_ALIGN));
            let filled = Self { block, bytes, fill };
            if fill.is_multiple_of(2) {
                filled.check(0, bytes);
            }
            // SAFETY: it was taken with `bytes` bytes.
            unsafe { block.write_bytes(fill, bytes) };
            filled
        }

        fn check(&self, byte: u8, bytes: usize) {
            // SAFETY: the block has `bytes` bytes, and no other thread writes them.
            let contents = unsafe { std::slice::from_raw_parts(self.block.as_ptr(), bytes) };
            assert!(contents.iter().all(|found| *found == byte), "another block's bytes");
        }

        fn resize(&mut self, extents: &Extents, wanted: usize) {
            // SAFETY: `bytes` is its size, and only `self` refers to it.
            let Some(block) = (unsafe { extents.resize(self.block, self.bytes, wanted) }) else { return };
            self.block = block;
            self.check(self.fill, self.bytes.min(wanted));
            // SAFETY: it has `wanted` bytes now.
            unsafe { block.write_bytes(self.fill, wanted) };
            self.bytes = wanted;
        }

        fn give_back(self, extents: &Extents) {
            self.check(self.fill, self.bytes);
            // SAFETY: `bytes` is its size, and only `self` referred to it.
            unsafe { extents.give_back(self.block, self.bytes) };
        }
    }

    fn expect_sound(extents: &Extents, used: usize) {
        let state = extents.state();
        let mut before: Option<(usize, Kind)> = None;
        for (&at, &(bytes, kind)) in &state.free {
            assert!(
                before.is_none_or(|(end, other)| end < at || end == at && other != kind),
                "neighbours of one kind"
            );
            before = Some((at + bytes, kind));
        }
        let sum = |sizes: &BTreeSet<(usize, usize)>| sizes.iter().map(|(bytes, _)| bytes).sum::<usize>();
        assert_eq!(state.clean.len() + state.dirty.len(), state.free.len());
        assert_eq!(sum(&state.dirty), state.dirty_bytes);
        assert!(state.dirty_bytes <= (used / DIRTY_DIVISOR).max(DIRTY_BYTES_MIN) + SHARED_BYTES_MAX);
        assert_eq!(state.used_bytes, used);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn blocks_keep_their_bytes_and_free_neighbours_join(
            steps in prop::collection::vec((0..8_u8, 0..16_usize, 1..40_usize), 1..80)
        ) {
            let extents = Extents::new();
            let mut blocks: Vec<Filled> = Vec::new();
            for (number, (action, which, pages)) in steps.into_iter().enumerate() {
                let bytes = EXTENT_BYTES_MIN + pages * 5000;
                match (action, blocks.len()) {
                    (0..4, _) | (_, 0) => blocks.push(Filled::take(&extents, bytes, number as u8)),
                    (4..6, count) => blocks.swap_remove(which % count).give_back(&extents),
                    (6, count) => blocks[which % count].resize(&extents, bytes),
                    _ => extents.discard_free(),
                }
                expect_sound(&extents, blocks.iter().map(|block| rounded(block.bytes).unwrap()).sum());
            }
            blocks.into_iter().for_each(|block| block.give_back(&extents));
            extents.discard_free();
            let state = extents.state();
            prop_assert_eq!(state.dirty.len(), 0);
            prop_assert!(state.clean.iter().all(|(bytes, _)| *bytes == REGION_BYTES - HEADS_BYTES));
        }
    }

    #[test]
    fn large_blocks_are_mappings_of_their_own() {
        let extents = Extents::new();
        let mut block = Filled::take(&extents, SHARED_BYTES_MAX + 1, 7);
        block.resize(&extents, SHARED_BYTES_MAX + (4 << 20));
        assert_eq!(block.bytes, SHARED_BYTES_MAX + (4 << 20));
        block.resize(&extents, EXTENT_BYTES_MIN);
        assert_eq!(block.bytes, SHARED_BYTES_MAX + (4 << 20), "that takes a copy");
        block.give_back(&extents);
        assert_eq!(extents.usage(), ExtentUsage::default());
        assert!(extents.take(usize::MAX - 1, false).is_none());
    }

    #[test]
    fn dirty_memory_is_bounded() {
        let extents = Extents::new();
        let blocks: Vec<_> = (0..100).map(|fill| Filled::take(&extents, 100 << 10, fill)).collect();
        blocks.into_iter().for_each(|block| block.give_back(&extents));
        assert!(extents.usage().dirty_bytes <= DIRTY_BYTES_MIN);
        extents.discard_free();
        assert_eq!(extents.usage().dirty_bytes, 0);
    }

    #[test]
    fn threads_never_get_the_same_pages() {
        let extents = Extents::new();
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let extents = &extents;
                scope.spawn(move || {
                    let mut blocks: Vec<Filled> = Vec::new();
                    for step in 0..400_usize {
                        let mixed = (step * 7919 + thread * 104_729) % 1000;
                        if blocks.len() < 8 || mixed < 500 {
                            blocks.push(Filled::take(
                                extents,
                                EXTENT_BYTES_MIN + mixed * 100,
                                (thread * 64 + step % 64) as u8,
                            ));
                        }
                        if blocks.len() > 8 {
                            blocks.swap_remove(mixed % blocks.len()).give_back(extents);
                        }
                    }
                    blocks.into_iter().for_each(|block| block.give_back(extents));
                });
            }
        });
        assert_eq!(extents.usage().used_bytes, 0);
    }
}
