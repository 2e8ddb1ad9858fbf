//! The process-wide source of 8 KiB pages for slabs and tables.
//!
//! ```text
//! region   4 MiB, mapped at once, aligned to 2 MiB, never unmapped while the pool lives
//! stretch  2 MiB = 256 pages, the unit of a huge page
//! page     8 KiB, in one of three states
//!
//!            take                    give_back                 trim
//!   cold ───────────▶ handed out ───────────────▶ warm ───────────────▶ cold
//!   (no memory        (owned by a     ◀──────────  (free, memory
//!    behind it)        `Page`)           take       still behind it)
//! ```
//!
//! `take` prefers warm pages (no page fault) and always the lowest stretch that has one: use stays dense, so huge pages
//! are full, and the high stretches drain first. `trim` is called by background work; it prefers stretches without a
//! page in use, which cost one system call and split no huge page. A stretch that is only partly free is trimmed when
//! enough of it is free to be worth losing its huge page. From then on no huge page may back the stretch, or the kernel
//! would quietly fill the holes again; it gets them back when it has become free as a whole.
//!
//! The first touch of a huge page costs its thread 0.2 ms, and 5 to 10 ms in a virtual machine whose
//! host has to find the memory first. So a growing pool asks, by [`PagePool::is_low`], to be warmed up ahead.
//!
//! Because regions stay mapped, prefetching a stale address is harmless.

use crate::bit_set::BitSet;
use crate::memory_map::{
    HUGE_BYTES, REGION_BYTES, discard, map_region, populate, prefer_huge_pages, unmap_region,
};
use crate::out_of_memory;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a page, and its alignment.
pub const PAGE_BYTES: usize = 8192;

const STRETCH_PAGES: usize = HUGE_BYTES / PAGE_BYTES;
const STRETCH_WORDS: usize = STRETCH_PAGES / 64;
/// Warm pages kept ahead of growth: a share of those in use, between half a stretch and 32 MiB.
const RESERVE_PAGES_MIN: usize = STRETCH_PAGES / 2;
const RESERVE_PAGES_MAX: usize = (32 << 20) / PAGE_BYTES;
const RESERVE_DIVISOR: usize = 128;
/// A partly used stretch keeps its huge page until this many of its pages are free: an eighth.
const STRETCH_TRIM_PAGES_MIN: usize = STRETCH_PAGES / 8;

const _: () = assert!(STRETCH_PAGES.is_multiple_of(64), "a stretch's pages fill whole words of a bit map");

/// A page handed out by a [`PagePool`]: [`PAGE_BYTES`] bytes, aligned to as many, owned by the holder of this.
///
/// The contents are unspecified: zeroes on the page's first handout, its last owner's bytes later. Give a page back
/// by [`PagePool::give_back_all`]; dropping it instead leaks the page until the pool ends. The holder of a page also
/// holds its pool alive.
#[derive(Debug)]
#[must_use = "a dropped page is lost to its pool"]
pub(crate) struct Page(NonNull<u8>);

// SAFETY: a page is plain memory with one owner.
unsafe impl Send for Page {}

impl Page {
    /// Turns the page into its address; [`Page::from_address`] is the way back.
    #[inline]
    pub(crate) fn into_address(self) -> NonNull<u8> {
        self.0
    }

    /// The page at an address.
    ///
    /// # Safety
    /// `address` came from [`Page::into_address`], and no other `Page` was made from it since.
    #[inline]
    pub(crate) unsafe fn from_address(address: NonNull<u8>) -> Self {
        Self(address)
    }
}

/// The memory that a pool holds, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolUsage {
    /// Address space mapped from the system.
    pub mapped_bytes: usize,
    /// In pages that have an owner.
    pub handed_out_bytes: usize,
    /// In returned pages whose memory was not given back to the system: [`PagePool::trim`] can free these.
    /// Neighbours of pages in use that a huge page makes resident unasked are not counted.
    pub free_resident_bytes: usize,
}

/// Hands out pages to the slabs and tables of a process. Shared by reference or `Arc`; one lock, taken once a page and not once a cell.
#[derive(Debug, Default)]
pub struct PagePool {
    state: Mutex<State>,
    /// Whether the reserve is short; a hint.
    low: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    stretches: Vec<Stretch>,
    /// Address divided by [`HUGE_BYTES`] → index into `stretches`.
    by_address: HashMap<usize, usize>,
    regions: Vec<Region>,
    /// Stretches with at least one warm page.
    with_warm: BitSet,
    /// Stretches with at least one cold page.
    with_cold: BitSet,
    handed_out: usize,
    warm: usize,
}

#[derive(Debug)]
struct Region(NonNull<u8>);

/// A page in neither map is handed out or on its way from warm to cold.
#[derive(Debug)]
struct Stretch {
    base: NonNull<u8>,
    warm: PageMap,
    cold: PageMap,
    /// Pages with an owner.
    used: usize,
    /// Huge pages were switched off because of holes.
    holed: bool,
}

// SAFETY: the addresses stand for mapped memory that belongs to the pool, usable from every thread.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Send for Stretch {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PageMap([u64; STRETCH_WORDS]);

impl PageMap {
    const NONE: Self = Self([0; STRETCH_WORDS]);
    const ALL: Self = Self([u64::MAX; STRETCH_WORDS]);

    fn contains(&self, page: usize) -> bool {
        self.0[page / 64] & (1 << (page % 64)) != 0
    }

    fn insert(&mut self, page: usize) {
        self.0[page / 64] |= 1 << (page % 64);
    }

    fn remove(&mut self, page: usize) {
        self.0[page / 64] &= !(1 << (page % 64));
    }

    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn take_lowest(&mut self) -> Option<usize> {
        let word = self.0.iter().position(|word| *word != 0)?;
        let page = word * 64 + self.0[word].trailing_zeros() as usize;
        self.remove(page);
        Some(page)
    }
}

/// Pages of one stretch that `trim` took out of circulation to discard them.
struct Discard {
    stretch: usize,
    base: NonNull<u8>,
    pages: PageMap,
    /// Warm pages among them.
    warm: usize,
    /// No page of the stretch is in use: discard it in one piece.
    whole: bool,
    /// Huge pages were switched off before.
    holed: bool,
}

impl PagePool {
    /// An empty pool; nothing is mapped before the first page is taken.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics in the middle of a change, so a poisoned lock guards sound data.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out a page; ends the process by [`out_of_memory`] when the system has none left. O(1), but
    /// for one system call per 512 fresh pages.
    pub(crate) fn take(&self) -> Page {
        let mut state = self.state();
        let page = state.take();
        if state.warm < state.reserve() && !self.is_low() {
            self.low.store(true, Ordering::Relaxed);
        }
        page
    }

    /// Whether fewer pages are warm than growth may soon want: time for [`warm_up`](Self::warm_up). O(1),
    /// without the lock.
    #[inline]
    pub fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// Puts memory behind stretches without a page in use until the reserve is whole, which may map new
    /// ones. The lock is not held during the system calls; each takes the kernel 0.2 ms, many times that
    /// if memory is new to the machine.
    pub fn warm_up(&self) {
        loop {
            let mut state = self.state();
            let missing = state.reserve().saturating_sub(state.warm);
            self.low.store(false, Ordering::Relaxed);
            if missing == 0 {
                return;
            }
            let index = state.withdraw_cold_stretch();
            let base = state.stretches[index].base;
            drop(state);
            // SAFETY: a stretch lies inside a region.
            let populated = unsafe { populate(base, HUGE_BYTES) };
            self.state().restore_stretch(index, populated);
            if !populated {
                return;
            }
        }
    }

    /// Takes a page back. O(1).
    #[cfg(test)]
    pub(crate) fn give_back(&self, page: Page) {
        self.state().give_back(page);
    }

    /// Takes many pages back under one lock.
    pub(crate) fn give_back_all(&self, pages: impl IntoIterator<Item = Page>) {
        let mut state = self.state();
        for page in pages {
            state.give_back(page);
        }
    }

    /// The memory that the pool holds now.
    pub fn usage(&self) -> PoolUsage {
        let state = self.state();
        PoolUsage {
            mapped_bytes: state.regions.len() * REGION_BYTES,
            handed_out_bytes: state.handed_out * PAGE_BYTES,
            free_resident_bytes: state.warm * PAGE_BYTES,
        }
    }

    /// How many warm pages growth may soon want: the reserve and a stretch, as fewer would be warmed up again
    /// at once. The caller of [`trim`](Self::trim) is to keep them.
    pub fn pages_to_keep(&self) -> usize {
        self.state().reserve() + STRETCH_PAGES
    }

    /// Gives the memory of about `pages_max` free pages back to the system (a wholly free stretch is never cut, so up
    /// to 255 more). Returns how many resident pages that were; 0 means that nothing is worth a call. The lock is not
    /// held during the system calls, of which a free 2 MiB stretch takes the kernel tens of microseconds. How many to
    /// keep is the caller's policy, see [`pages_to_keep`](Self::pages_to_keep).
    pub fn trim(&self, pages_max: usize) -> usize {
        let discards = self.state().choose_discards(pages_max);
        let mut discarded = 0;
        for Discard { base, pages, warm, whole, holed, .. } in &discards {
            discarded += warm;
            // SAFETY: the chosen pages were free and `choose_discards` took them out of circulation, so
            // no slab owns them until they are put back below.
            unsafe {
                if *whole {
                    discard(*base, HUGE_BYTES);
                    if *holed {
                        prefer_huge_pages(*base, HUGE_BYTES, true);
                    }
                } else {
                    if !*holed {
                        prefer_huge_pages(*base, HUGE_BYTES, false);
                    }
                    for (first, len) in runs(pages) {
                        discard(base.add(first * PAGE_BYTES), len * PAGE_BYTES);
                    }
                }
            }
        }
        let mut state = self.state();
        for Discard { stretch, pages, .. } in discards {
            for (cold, page) in state.stretches[stretch].cold.0.iter_mut().zip(pages.0) {
                *cold |= page;
            }
            state.with_cold.insert(stretch);
        }
        discarded
    }
}

/// The runs of neighbouring pages in a map, as (first, length).
fn runs(map: &PageMap) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut next = 0;
    std::iter::from_fn(move || {
        let first = (next..STRETCH_PAGES).find(|page| map.contains(*page))?;
        let end = (first..STRETCH_PAGES).find(|page| !map.contains(*page)).unwrap_or(STRETCH_PAGES);
        next = end;
        Some((first, end - first))
    })
}

impl State {
    fn take(&mut self) -> Page {
        let (index, page) = match self.take_warm() {
            Some(found) => found,
            None => self.take_cold(),
        };
        self.handed_out += 1;
        let stretch = &mut self.stretches[index];
        stretch.used += 1;
        // SAFETY: the page number is below STRETCH_PAGES, so the address lies inside the stretch.
        Page(unsafe { stretch.base.add(page * PAGE_BYTES) })
    }

    fn take_warm(&mut self) -> Option<(usize, usize)> {
        let index = self.with_warm.lowest()?;
        let stretch = &mut self.stretches[index];
        let page = stretch.warm.take_lowest().expect("a stretch listed as warm has a warm page");
        if stretch.warm == PageMap::NONE {
            self.with_warm.remove(index);
        }
        self.warm -= 1;
        Some((index, page))
    }

    fn take_cold(&mut self) -> (usize, usize) {
        let index = match self.with_cold.lowest() {
            Some(index) => index,
            None => self.map_region(),
        };
        let stretch = &mut self.stretches[index];
        let page = stretch.cold.take_lowest().expect("a stretch listed as cold has a cold page");
        if stretch.cold == PageMap::NONE {
            self.with_cold.remove(index);
        }
        (index, page)
    }

    /// Warm pages that should be there for the next growth.
    fn reserve(&self) -> usize {
        (self.handed_out / RESERVE_DIVISOR).clamp(RESERVE_PAGES_MIN, RESERVE_PAGES_MAX)
    }

    /// Takes the lowest stretch that is cold as a whole out of circulation.
    fn withdraw_cold_stretch(&mut self) -> usize {
        let is_whole = |index: &usize| self.stretches[*index].cold == PageMap::ALL;
        let found = self.with_cold.ascending().find(is_whole);
        let index = found.unwrap_or_else(|| self.map_region());
        self.stretches[index].cold = PageMap::NONE;
        self.with_cold.remove(index);
        index
    }

    /// Puts a withdrawn stretch back, with or without memory behind it.
    fn restore_stretch(&mut self, index: usize, populated: bool) {
        let stretch = &mut self.stretches[index];
        if populated {
            stretch.warm = PageMap::ALL;
            self.with_warm.insert(index);
            self.warm += STRETCH_PAGES;
        } else {
            stretch.cold = PageMap::ALL;
            self.with_cold.insert(index);
        }
    }

    /// Maps a region and returns the index of its first stretch.
    #[cold]
    fn map_region(&mut self) -> usize {
        let Some(region) = map_region() else { out_of_memory(REGION_BYTES) };
        self.regions.push(Region(region));
        let first = self.stretches.len();
        for offset in (0..REGION_BYTES).step_by(HUGE_BYTES) {
            // SAFETY: the offset is below the region's length.
            let base = unsafe { region.add(offset) };
            let index = self.stretches.len();
            self.by_address.insert(base.addr().get() / HUGE_BYTES, index);
            self.stretches.push(Stretch {
                base,
                warm: PageMap::NONE,
                cold: PageMap::ALL,
                used: 0,
                holed: false,
            });
            self.with_cold.insert(index);
        }
        first
    }

    fn give_back(&mut self, page: Page) {
        let address = page.into_address().addr().get();
        let index = *self.by_address.get(&(address / HUGE_BYTES)).expect("the page came from this pool");
        let stretch = &mut self.stretches[index];
        let number = address % HUGE_BYTES / PAGE_BYTES;
        assert!(!stretch.warm.contains(number) && !stretch.cold.contains(number), "a page came back twice");
        stretch.warm.insert(number);
        stretch.used -= 1;
        self.with_warm.insert(index);
        self.warm += 1;
        self.handed_out -= 1;
    }

    /// Takes free pages out of circulation: wholly free stretches first, then holes, each from the top.
    fn choose_discards(&mut self, pages_max: usize) -> Vec<Discard> {
        let mut discards = Vec::new();
        let mut left = pages_max;
        let candidates: Vec<usize> = self.with_warm.descending().collect();
        for whole in [true, false] {
            for &index in &candidates {
                if left == 0 {
                    return discards;
                }
                let stretch = &mut self.stretches[index];
                let warm = stretch.warm.count();
                let worthwhile = stretch.holed || warm >= STRETCH_TRIM_PAGES_MIN;
                if warm == 0 || whole != (stretch.used == 0) || !(whole || worthwhile) {
                    continue;
                }
                let mut pages = PageMap::NONE;
                if whole {
                    // Cold pages leave circulation too: the one system call below covers the whole stretch.
                    // (A page that another `trim` is discarding right now is in neither map; it may be
                    // discarded twice, but no slab can own it before that `trim` ends.)
                    let in_transit = STRETCH_PAGES - warm - stretch.cold.count();
                    if in_transit > 0 {
                        continue;
                    }
                    pages = PageMap::ALL;
                    stretch.cold = PageMap::NONE;
                    self.with_cold.remove(index);
                    stretch.warm = PageMap::NONE;
                    self.warm -= warm;
                    left = left.saturating_sub(warm);
                } else {
                    while left > 0
                        && let Some(page) = stretch.warm.take_lowest()
                    {
                        pages.insert(page);
                        self.warm -= 1;
                        left -= 1;
                    }
                }
                let holed = std::mem::replace(&mut stretch.holed, !whole);
                if stretch.warm == PageMap::NONE {
                    self.with_warm.remove(index);
                }
                discards.push(Discard {
                    stretch: index,
                    base: stretch.base,
                    pages,
                    warm: warm - stretch.warm.count(),
                    whole,
                    holed,
                });
            }
        }
        discards
    }
}

impl Drop for State {
    fn drop(&mut self) {
        for region in &self.regions {
            // SAFETY: slabs and tables hold the pool by `Arc` as long as they own pages; a page that was
            // leaked instead of given back has no owner that could reach it.
            unsafe { unmap_region(region.0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Marks a page with a number, at both ends.
    fn mark(page: &Page, number: u64) {
        let first = page.0.cast::<u64>();
        // SAFETY: the page is owned by the test, PAGE_BYTES long and aligned.
        unsafe {
            first.write(number);
            first.add(PAGE_BYTES / 8 - 1).write(number);
        }
    }

    fn marks(page: &Page) -> (u64, u64) {
        let first = page.0.cast::<u64>();
        // SAFETY: as above, and mapped memory is initialized.
        unsafe { (first.read(), first.add(PAGE_BYTES / 8 - 1).read()) }
    }

    #[test]
    fn pages_are_aligned_zeroed_at_first_and_distinct() {
        let pool = PagePool::new();
        let pages: Vec<Page> = (0..1500).map(|_| pool.take()).collect();
        for (number, page) in pages.iter().enumerate() {
            assert!(page.0.addr().get().is_multiple_of(PAGE_BYTES));
            assert_eq!(marks(page), (0, 0));
            mark(page, number as u64 + 1);
        }
        for (number, page) in pages.iter().enumerate() {
            assert_eq!(marks(page), (number as u64 + 1, number as u64 + 1));
        }
        let usage = pool.usage();
        assert_eq!((usage.handed_out_bytes, usage.mapped_bytes), (1500 * PAGE_BYTES, 3 * REGION_BYTES));
        pool.give_back_all(pages);
    }

    #[test]
    fn returned_pages_are_taken_first_and_from_the_bottom() {
        let pool = PagePool::new();
        let mut pages: Vec<Page> = (0..600).map(|_| pool.take()).collect();
        let high = pages.remove(550);
        let low = pages.remove(10);
        let low_address = low.0;
        pool.give_back(high);
        pool.give_back(low);
        assert_eq!(pool.usage().free_resident_bytes, 2 * PAGE_BYTES);
        let again = pool.take();
        assert_eq!(again.0, low_address);
        pages.push(again);
        pool.give_back_all(pages);
        assert_eq!(pool.usage().handed_out_bytes, 0);
    }

    #[test]
    fn trim_returns_whole_stretches_first_and_holes_only_where_they_are_many() {
        let pool = PagePool::new();
        let mut pages: Vec<Page> = (0..3 * STRETCH_PAGES).map(|_| pool.take()).collect();
        // The third stretch becomes free, the second gets many holes, the first a few.
        pool.give_back_all(pages.split_off(2 * STRETCH_PAGES));
        let second = pages.split_off(STRETCH_PAGES);
        let mut kept = Vec::new();
        for (number, page) in second.into_iter().enumerate() {
            mark(&page, 77);
            if number % 2 == 0 { kept.push(page) } else { pool.give_back(page) }
        }
        pool.give_back_all(pages.drain(..STRETCH_TRIM_PAGES_MIN - 1));

        assert_eq!(pool.trim(1), STRETCH_PAGES, "a free stretch goes in one piece");
        assert_eq!(pool.trim(100), 100);
        assert_eq!(pool.trim(usize::MAX), STRETCH_PAGES / 2 - 100);
        assert_eq!(pool.trim(usize::MAX), 0, "the first stretch keeps its huge page");
        assert_eq!(pool.usage().free_resident_bytes, (STRETCH_TRIM_PAGES_MIN - 1) * PAGE_BYTES);
        assert!(kept.iter().all(|page| marks(page) == (77, 77)), "pages in use are left alone");

        let mapped = pool.usage().mapped_bytes;
        let again: Vec<Page> = (0..STRETCH_PAGES).map(|_| pool.take()).collect();
        assert_eq!(pool.usage().mapped_bytes, mapped, "discarded pages are used again");
        pool.give_back_all(again);
        pool.give_back_all(kept);
        pool.give_back_all(pages);
        pool.trim(usize::MAX);
        assert_eq!((pool.usage().handed_out_bytes, pool.usage().free_resident_bytes), (0, 0));
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn trimmed_memory_leaves_the_process() {
        let pool = PagePool::new();
        let mut pages: Vec<Page> = (0..2 * STRETCH_PAGES).map(|_| pool.take()).collect();
        let base = pages.iter().map(|page| page.0.addr().get()).min().unwrap();
        pages.iter().for_each(|page| mark(page, 1));
        let resident_bytes = || crate::memory_map::resident_bytes(base, REGION_BYTES);
        assert_eq!(resident_bytes(), REGION_BYTES);
        let mut number = 0;
        pages.retain(|page| {
            number += 1;
            let keep = number % 16 == 1;
            if !keep {
                // SAFETY: `retain` drops its page right after, which has no effect on the memory.
                pool.give_back(unsafe { Page::from_address(page.0) });
            }
            keep
        });
        pool.trim(usize::MAX);
        let left = resident_bytes();
        assert!(left <= REGION_BYTES / 4, "{left} bytes left");
        assert_eq!(marks(&pages[0]), (1, 1));
        pool.give_back_all(pages);
    }

    #[test]
    fn threads_may_share_a_pool() {
        let pool = PagePool::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let pool = &pool;
                scope.spawn(move || {
                    for round in 0..20 {
                        let pages: Vec<Page> = (0..40).map(|_| pool.take()).collect();
                        pages.iter().for_each(|page| mark(page, thread));
                        pool.trim(round);
                        assert!(pages.iter().all(|page| marks(page) == (thread, thread)));
                        pool.give_back_all(pages);
                    }
                });
            }
        });
        assert_eq!(pool.usage().handed_out_bytes, 0);
    }
}
