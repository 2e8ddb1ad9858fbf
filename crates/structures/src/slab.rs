//! Cells of 8 to 2048 bytes behind 32-bit handles: one slab per stripe, changed by one owner at a time.
//!
//! ```text
//! handle   page number (22 bits) | granule in page (10 bits)      granule = 8 bytes; 32 GiB per slab
//! page     cell cell cell cell … fresh ────────▶ end              cells of one size class
//!                 │         ▲
//!                 └─────────┘ free cells of the page, linked by the granule number in their first 2 bytes
//! class    room: doubly linked list of pages with a free or fresh cell; empty: at most one page in reserve
//! ```
//!
//! Free cells are listed by page, not by class (as mimalloc does it, Leijen et al., 2019), so a page knows when its
//! last cell is freed and goes back to the pool at once. A class keeps one empty page, so that a size that comes and
//! goes does not pull pages in and out. Size classes: every 8 bytes up to 256, then the largest sizes of which a whole
//! number fits a page, 6 to 12% apart up to 1 KiB. More classes would waste less inside cells, and more in pages that
//! are not full: each stripe has such a page for each class that it uses.
//!
//! Invariants: page numbers start at [`FIRST_PAGE`], so a handle is never 0. A page is in its class's `room`
//! list exactly when 0 < live < cells; `live == 0` means reserve or pool; `used_bytes` is the sum of the
//! class sizes of all live cells.

mod compaction;

pub use compaction::{CellWalk, Compacted};

use crate::page_pool::{PAGE_BYTES, Page, PagePool};
use crate::tiers::Tiers;
use std::num::NonZeroU32;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The largest size a slab serves; larger ones belong to the general allocator.
pub const CELL_BYTES_MAX: usize = 2048;

const GRANULE_BYTES: usize = 8;
const GRANULE_BITS: u32 = (PAGE_BYTES / GRANULE_BYTES).ilog2();
const FIRST_PAGE_LOG2: u32 = 6;
/// The lowest page number: it makes the numbers the indices of a [`Tiers`] without arithmetic.
const FIRST_PAGE: u32 = 1 << FIRST_PAGE_LOG2;
const PAGES_END: u32 = 1 << (32 - GRANULE_BITS);
const TIER_COUNT: usize = (PAGES_END.ilog2() - FIRST_PAGE_LOG2) as usize;

const FINE_BYTES_MAX: usize = 256;
const FINE_CLASSES: usize = FINE_BYTES_MAX / GRANULE_BYTES;
/// Cells per page of the classes above [`FINE_BYTES_MAX`].
const COARSE_CELLS: [usize; 21] =
    [30, 28, 26, 24, 22, 20, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4];
const CLASS_COUNT: usize = FINE_CLASSES + COARSE_CELLS.len();

/// Bytes of a cell by class.
const CLASS_BYTES: [u16; CLASS_COUNT] = {
    let mut bytes = [0; CLASS_COUNT];
    let mut class = 0;
    while class < CLASS_COUNT {
        bytes[class] = if class < FINE_CLASSES {
            ((class + 1) * GRANULE_BYTES) as u16
        } else {
            (PAGE_BYTES / COARSE_CELLS[class - FINE_CLASSES] / GRANULE_BYTES * GRANULE_BYTES) as u16
        };
        class += 1;
    }
    bytes
};

/// The smallest class that holds a number of granules.
const CLASS_OF_GRANULES: [u8; CELL_BYTES_MAX / GRANULE_BYTES + 1] = {
    let mut classes = [0; CELL_BYTES_MAX / GRANULE_BYTES + 1];
    let mut granules = 1;
    let mut class = 0;
    while granules < classes.len() {
        if granules * GRANULE_BYTES > CLASS_BYTES[class] as usize {
            class += 1;
        }
        classes[granules] = class as u8;
        granules += 1;
    }
    classes
};

const CLASS_CELLS: [u16; CLASS_COUNT] = {
    let mut cells = [0; CLASS_COUNT];
    let mut class = 0;
    while class < CLASS_COUNT {
        cells[class] = (PAGE_BYTES / CLASS_BYTES[class] as usize) as u16;
        class += 1;
    }
    cells
};

const _: () = {
    assert!(1 << GRANULE_BITS == PAGE_BYTES / GRANULE_BYTES, "granules of a page fill their bits");
    assert!(CLASS_BYTES[CLASS_COUNT - 1] as usize == CELL_BYTES_MAX, "the last class is the largest cell");
    assert!(CLASS_CELLS[CLASS_COUNT - 1] >= 2, "a page is never full and empty one step apart");
    assert!(1 << GRANULE_BITS < NO_GRANULE as usize, "no granule has the number that means none");
    assert!(CLASS_COUNT < VACANT as usize, "no class has the number that means none");
    let mut class = 1;
    while class < CLASS_COUNT {
        assert!(CLASS_BYTES[class] > CLASS_BYTES[class - 1], "classes ascend");
        class += 1;
    }
};

const NO_PAGE: u32 = 0;
const NO_GRANULE: u16 = u16::MAX;
/// `PageState::class` of a number that no page has.
const VACANT: u8 = u8::MAX;

/// The bytes that a cell for `size` bytes takes. O(1).
///
/// # Panics
/// When `size` is above [`CELL_BYTES_MAX`].
#[inline]
pub fn class_bytes(size: usize) -> usize {
    usize::from(CLASS_BYTES[class_of(size)])
}

#[inline]
fn class_of(size: usize) -> usize {
    usize::from(CLASS_OF_GRANULES[size.div_ceil(GRANULE_BYTES)])
}

/// The name of a cell in its slab. `Option<Handle>` takes four bytes too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(NonZeroU32);

impl Handle {
    /// The handle with a number that [`Handle::raw`] gave, or `None` if no handle has it (as with 0).
    #[inline]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match NonZeroU32::new(raw) {
            Some(number) if raw >= FIRST_PAGE << GRANULE_BITS => Some(Self(number)),
            _ => None,
        }
    }

    /// The handle as a number, never 0.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0.get()
    }

    #[inline]
    const fn new(page: u32, granule: u16) -> Self {
        match Self::from_raw((page << GRANULE_BITS) | granule as u32) {
            Some(handle) => handle,
            None => panic!("page numbers start at FIRST_PAGE"),
        }
    }

    #[inline]
    const fn page(self) -> u32 {
        self.raw() >> GRANULE_BITS
    }

    #[inline]
    const fn granule(self) -> u16 {
        (self.raw() & ((1 << GRANULE_BITS) - 1)) as u16
    }
}

/// How far a walk over the cells of a slab has come; see [`Slab::visit_page`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellPosition {
    page: u32,
    granule: u16,
}

impl CellPosition {
    /// Before all cells.
    pub const START: Self = Self { page: FIRST_PAGE, granule: 0 };

    /// Behind a cell.
    pub fn behind(cell: Handle) -> Self {
        Self { page: cell.page(), granule: cell.granule() + 1 }
    }
}

/// Page numbers → addresses: the part of a slab that other threads may look at while the owner changes it.
pub struct PageDirectory {
    pages: Tiers<AtomicPtr<u8>, TIER_COUNT, FIRST_PAGE_LOG2>,
}

impl PageDirectory {
    /// The present or former address of the cell of `handle`, or null-based nonsense when its page
    /// is gone: good for [`prefetch`](crate::prefetch()) and nothing else. O(1).
    #[inline]
    pub fn address(&self, handle: Handle) -> *const u8 {
        let base = self.base(handle.page());
        base.wrapping_add(usize::from(handle.granule()) * GRANULE_BYTES)
    }

    #[inline]
    fn base(&self, page: u32) -> *mut u8 {
        self.pages.get(page).map_or(ptr::null_mut(), |address| address.load(Ordering::Relaxed))
    }
}

/// The owner's record of the page of one number; 16 bytes.
#[derive(Debug, Clone, Copy)]
struct PageState {
    /// Neighbours in the room list of the class; `next` also links vacant numbers.
    next: u32,
    previous: u32,
    /// First free cell, by granule.
    free: u16,
    /// First granule never given out since the page was empty.
    fresh: u16,
    live: u16,
    class: u8,
}

const _: () = assert!(size_of::<PageState>() == 16, "page metadata stays at a fifth of a percent");

#[derive(Debug, Clone, Copy)]
struct Class {
    /// First page with room.
    room: u32,
    /// The empty page in reserve.
    empty: u32,
}

/// A slab allocator; see the module's head.
///
/// The slab gives out memory without looking into it: the contents of a cell, and that it is only used between
/// [`allocate`](Self::allocate) and [`free`](Self::free), is the caller's business. Dropping the slab returns its pages
/// to the pool, with all cells in them; it may be sent to another thread for that.
pub struct Slab {
    pool: Arc<PagePool>,
    directory: Arc<PageDirectory>,
    /// By page number less [`FIRST_PAGE`].
    pages: Vec<PageState>,
    classes: [Class; CLASS_COUNT],
    vacant_number: u32,
    page_count: usize,
    used_bytes: usize,
}

impl Slab {
    /// An empty slab; takes its first page with the first cell.
    pub fn new(pool: Arc<PagePool>) -> Self {
        Self {
            pool,
            directory: Arc::new(PageDirectory { pages: Tiers::new() }),
            pages: Vec::new(),
            classes: [Class { room: NO_PAGE, empty: NO_PAGE }; CLASS_COUNT],
            vacant_number: NO_PAGE,
            page_count: 0,
            used_bytes: 0,
        }
    }

    /// The view for other threads' prefetches. The view may outlive the slab.
    pub fn directory(&self) -> &Arc<PageDirectory> {
        &self.directory
    }

    /// Bytes in live cells, each at its class's size. Exact.
    #[inline]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Bytes of pages held, reserves included.
    #[inline]
    pub fn page_bytes(&self) -> usize {
        self.page_count * PAGE_BYTES
    }

    /// Bytes of bookkeeping in the general allocator. O(1).
    pub fn overhead_bytes(&self) -> usize {
        let numbers = self.pages.len() as u32;
        let tiers = if numbers == 0 { 0 } else { (FIRST_PAGE + numbers).next_power_of_two() - FIRST_PAGE };
        size_of::<PageDirectory>()
            + tiers as usize * size_of::<AtomicPtr<u8>>()
            + self.pages.capacity() * size_of::<PageState>()
    }

    /// A cell of at least `size` bytes, aligned to 8, with unspecified contents. O(1); ends the process by
    /// [`out_of_memory`](crate::out_of_memory) when memory is used up, or the slab's 32 GiB are.
    ///
    /// # Panics
    /// When `size` is above [`CELL_BYTES_MAX`].
    #[inline]
    pub fn allocate(&mut self, size: usize) -> Handle {
        let class = class_of(size);
        let mut number = self.classes[class].room;
        if number == NO_PAGE {
            number = self.open_page(class);
        }
        let handle = self.take_cell(class, number);
        self.used_bytes += usize::from(CLASS_BYTES[class]);
        handle
    }

    /// A cell of a page in the room list of its class.
    #[inline]
    fn take_cell(&mut self, class: usize, number: u32) -> Handle {
        let page = &mut self.pages[(number - FIRST_PAGE) as usize];
        let granule = page.free;
        let granule = if granule != NO_GRANULE {
            let base = self.directory.base(number);
            // SAFETY: a listed granule starts a free cell of this page, which belongs to the slab, and whose
            // first two bytes `free` set to the next one.
            page.free = unsafe { base.add(usize::from(granule) * GRANULE_BYTES).cast::<u16>().read() };
            granule
        } else {
            let granule = page.fresh;
            page.fresh += CLASS_BYTES[class] / GRANULE_BYTES as u16;
            granule
        };
        page.live += 1;
        if page.live == CLASS_CELLS[class] {
            self.unlink_room(class, number);
        }
        Handle::new(number, granule)
    }

    /// Frees the cell that `allocate(size)` gave, or one of the same class. O(1). The last cell of a page
    /// takes the page with it, up to the one in reserve.
    ///
    /// # Panics
    /// When the handle's page is not one of this slab's, or of another class. Debug builds also notice a
    /// handle that names no cell, a page without live cells and the cell freed last.
    #[inline]
    pub fn free(&mut self, handle: Handle, size: usize) {
        let class = class_of(size);
        let number = handle.page();
        let granule = handle.granule();
        let page = &self.pages[(number - FIRST_PAGE) as usize];
        assert!(usize::from(page.class) == class, "a cell is freed with the size it was allocated with");
        debug_assert!(page.live > 0 && granule < page.fresh && granule != page.free, "the cell is live");
        debug_assert!(
            (usize::from(granule) * GRANULE_BYTES).is_multiple_of(usize::from(CLASS_BYTES[class])),
            "a handle names the start of a cell"
        );
        let live = self.put_cell(number, granule);
        self.used_bytes -= usize::from(CLASS_BYTES[class]);
        if live == 0 {
            self.unlink_room(class, number);
            self.retire_page(class, number);
        } else if live == CLASS_CELLS[class] - 1 {
            self.link_room(class, number);
        }
    }

    /// Puts a cell that its owner has given up into the free list of its page; the live cells left there.
    #[inline]
    fn put_cell(&mut self, number: u32, granule: u16) -> u16 {
        let page = &mut self.pages[(number - FIRST_PAGE) as usize];
        let base = self.directory.base(number);
        // SAFETY: the page is one of the slab's (its class is not vacant), the granule lies inside it, and
        // its owner has given up the cell, which is at least 8 bytes long.
        unsafe { base.add(usize::from(granule) * GRANULE_BYTES).cast::<u16>().write(page.free) };
        page.free = granule;
        page.live -= 1;
        page.live
    }

    /// The address of the cell of `handle`. The address holds until the cell is freed or [`compact`](Self::compact)
    /// moves it. O(1).
    ///
    /// # Panics
    /// When the handle's page is not one of this slab's.
    #[inline]
    pub fn pointer(&self, handle: Handle) -> NonNull<u8> {
        let base = NonNull::new(self.directory.base(handle.page())).expect("the handle's page is the slab's");
        // SAFETY: a page is PAGE_BYTES long and a granule number is below PAGE_BYTES / GRANULE_BYTES.
        unsafe { base.add(usize::from(handle.granule()) * GRANULE_BYTES) }
    }

    /// Behind the cells of all pages there have been so far.
    pub fn end(&self) -> CellPosition {
        CellPosition { page: FIRST_PAGE + self.pages.len() as u32, granule: 0 }
    }

    /// Calls `visit` for the live cells of a page, from `from` on, in the order of their addresses, and answers where
    /// the next page begins. Cells stay where they are. So a walk from [`CellPosition::START`] up to [`Self::end`] as
    /// it was when it began, a page or a part of one at a time, meets once each cell that is live throughout. O(the
    /// page's cells).
    pub fn visit_page(&self, from: CellPosition, mut visit: impl FnMut(Handle)) -> CellPosition {
        let next = CellPosition { page: from.page + 1, granule: 0 };
        let state = self.pages.get((from.page - FIRST_PAGE) as usize);
        let Some(page) = state.filter(|page| page.live > 0) else { return next };
        let mut is_free = [0_u64; (PAGE_BYTES / GRANULE_BYTES) / u64::BITS as usize];
        let base = self.directory.base(from.page);
        let mut free = page.free;
        while free != NO_GRANULE {
            is_free[usize::from(free) / u64::BITS as usize] |= 1 << (u32::from(free) % u64::BITS);
            // SAFETY: as in `allocate`.
            free = unsafe { base.add(usize::from(free) * GRANULE_BYTES).cast::<u16>().read() };
        }
        let step = CLASS_BYTES[usize::from(page.class)] / GRANULE_BYTES as u16;
        for granule in (from.granule.next_multiple_of(step)..page.fresh).step_by(usize::from(step)) {
            if is_free[usize::from(granule) / u64::BITS as usize] >> (u32::from(granule) % u64::BITS) & 1 == 0
            {
                visit(Handle::new(from.page, granule));
            }
        }
        next
    }

    /// Gives the reserve pages back to the pool.
    pub fn release_spare(&mut self) {
        for class in 0..CLASS_COUNT {
            let number = std::mem::replace(&mut self.classes[class].empty, NO_PAGE);
            if number != NO_PAGE {
                self.close_page(number);
            }
        }
    }

    fn link_room(&mut self, class: usize, number: u32) {
        let next = std::mem::replace(&mut self.classes[class].room, number);
        if next != NO_PAGE {
            self.pages[(next - FIRST_PAGE) as usize].previous = number;
        }
        let page = &mut self.pages[(number - FIRST_PAGE) as usize];
        page.next = next;
        page.previous = NO_PAGE;
    }

    fn unlink_room(&mut self, class: usize, number: u32) {
        let PageState { next, previous, .. } = self.pages[(number - FIRST_PAGE) as usize];
        if previous == NO_PAGE {
            debug_assert_eq!(self.classes[class].room, number, "the first page of a list is its head");
            self.classes[class].room = next;
        } else {
            self.pages[(previous - FIRST_PAGE) as usize].next = next;
        }
        if next != NO_PAGE {
            self.pages[(next - FIRST_PAGE) as usize].previous = previous;
        }
    }

    /// Puts an empty page into the room list of a class: its reserve, or one from the pool.
    #[cold]
    #[inline(never)]
    fn open_page(&mut self, class: usize) -> u32 {
        let mut number = std::mem::replace(&mut self.classes[class].empty, NO_PAGE);
        if number == NO_PAGE {
            number = self.vacant_number;
            if number != NO_PAGE {
                self.vacant_number = self.pages[(number - FIRST_PAGE) as usize].next;
            } else {
                number = FIRST_PAGE + self.pages.len() as u32;
                if number >= PAGES_END {
                    crate::out_of_memory(PAGE_BYTES);
                }
                self.pages.push(PageState {
                    next: NO_PAGE,
                    previous: NO_PAGE,
                    free: NO_GRANULE,
                    fresh: 0,
                    live: 0,
                    class: VACANT,
                });
            }
            let (address, _) = self.directory.pages.ensure(number);
            address.store(self.pool.take().into_address().as_ptr(), Ordering::Relaxed);
            self.page_count += 1;
        }
        let page = &mut self.pages[(number - FIRST_PAGE) as usize];
        page.class = class as u8;
        page.free = NO_GRANULE;
        page.fresh = 0;
        debug_assert_eq!(page.live, 0, "an opened page is empty");
        self.link_room(class, number);
        number
    }

    /// Keeps an empty page as the reserve of its class, or gives it back.
    #[cold]
    #[inline(never)]
    fn retire_page(&mut self, class: usize, number: u32) {
        if self.classes[class].empty == NO_PAGE {
            self.classes[class].empty = number;
        } else {
            self.close_page(number);
        }
    }

    fn close_page(&mut self, number: u32) {
        let page = self.take_page(number).expect("a page that is closed was open");
        self.pool.give_back_all([page]);
        let vacant = self.vacant_number;
        let state = &mut self.pages[(number - FIRST_PAGE) as usize];
        state.class = VACANT;
        state.next = vacant;
        self.vacant_number = number;
        self.page_count -= 1;
    }

    /// Removes the page of a number from the directory.
    fn take_page(&self, number: u32) -> Option<Page> {
        let address = self.directory.pages.get(number)?.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the directory held the address of a page from `into_address`, and no longer does.
        NonNull::new(address).map(|address| unsafe { Page::from_address(address) })
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let numbers = FIRST_PAGE..FIRST_PAGE + self.pages.len() as u32;
        self.pool.give_back_all(numbers.filter_map(|number| self.take_page(number)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn fill(slab: &Slab, handle: Handle, size: usize, byte: u8) {
        // SAFETY: the cell is live and holds at least `size` bytes.
        unsafe { slab.pointer(handle).as_ptr().write_bytes(byte, size) };
    }

    fn holds(slab: &Slab, handle: Handle, size: usize, byte: u8) -> bool {
        // SAFETY: the cell is live and `fill` wrote `size` bytes.
        let cell = unsafe { std::slice::from_raw_parts(slab.pointer(handle).as_ptr(), size) };
        cell.iter().all(|other| *other == byte)
    }

    #[test]
    fn classes_hold_their_sizes_and_waste_little() {
        for size in 1..=CELL_BYTES_MAX {
            let cell = class_bytes(size);
            assert!(cell >= size && cell.is_multiple_of(GRANULE_BYTES));
            // The cost of a size is its share of the page. Above 1024 bytes no class between fits once more.
            let cost = PAGE_BYTES / (PAGE_BYTES / cell);
            let best = PAGE_BYTES / (PAGE_BYTES / size.next_multiple_of(GRANULE_BYTES));
            assert!(cost * 100 <= best * 116, "{size} bytes cost {cost}, at best {best}");
        }
        assert_eq!(class_bytes(0), 8);
        assert_eq!((class_bytes(256), class_bytes(257), class_bytes(2048)), (256, 272, 2048));
    }

    #[test]
    #[should_panic]
    fn size_above_the_largest_is_refused() {
        class_bytes(CELL_BYTES_MAX + 1);
    }

    #[test]
    #[should_panic(expected = "the size it was allocated with")]
    fn cell_freed_as_another_class_is_noticed() {
        let mut slab = Slab::new(Arc::new(PagePool::new()));
        let handle = slab.allocate(16);
        slab.free(handle, 17);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "the cell is live")]
    fn cell_freed_twice_in_a_row_is_noticed() {
        let mut slab = Slab::new(Arc::new(PagePool::new()));
        let (handle, _other) = (slab.allocate(16), slab.allocate(16));
        slab.free(handle, 16);
        slab.free(handle, 16);
    }

    #[test]
    fn emptied_pages_go_back_but_for_one_in_reserve() {
        let pool = Arc::new(PagePool::new());
        let mut slab = Slab::new(pool.clone());
        let cells: Vec<Handle> = (0..10 * 128).map(|_| slab.allocate(64)).collect();
        assert_eq!((slab.page_bytes(), slab.used_bytes()), (10 * PAGE_BYTES, 10 * PAGE_BYTES));
        let old = cells[0];
        for handle in cells {
            slab.free(handle, 64);
        }
        assert_eq!((slab.page_bytes(), slab.used_bytes()), (PAGE_BYTES, 0));
        slab.release_spare();
        assert_eq!(pool.usage().handed_out_bytes, 0);
        assert!(slab.directory().address(old).addr() < PAGE_BYTES, "a stale handle has no page");
        let handle = slab.allocate(64);
        assert_eq!(slab.directory().address(handle), slab.pointer(handle).as_ptr().cast_const());
        let directory = slab.directory().clone();
        drop(slab);
        assert_eq!(pool.usage().handed_out_bytes, 0);
        directory.address(handle);
    }

    #[test]
    fn directory_may_be_read_while_the_slab_grows() {
        let mut slab = Slab::new(Arc::new(PagePool::new()));
        let pages = if cfg!(miri) { 200 } else { 5000 };
        let first = slab.allocate(2048);
        std::thread::scope(|scope| {
            let directory = slab.directory().clone();
            scope.spawn(move || {
                for step in 0..pages * 4 {
                    let handle = Handle::from_raw(first.raw() + (step << (GRANULE_BITS - 2))).unwrap();
                    crate::prefetch(directory.address(handle));
                }
            });
            for _ in 0..pages * 4 {
                slab.allocate(2048);
            }
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 64 }))]

        #[test]
        fn cells_never_overlap_and_are_counted_exactly(
            steps in proptest::collection::vec((0_u8..5, prop_oneof![1_usize..300, 1..=CELL_BYTES_MAX], any::<prop::sample::Index>()), 1..1500),
        ) {
            let pool = Arc::new(PagePool::new());
            let mut slab = Slab::new(pool.clone());
            let mut live: BTreeMap<Handle, (usize, u8)> = BTreeMap::new();
            let mut used = 0;
            for (count, (kind, size, index)) in steps.into_iter().enumerate() {
                if kind < 3 || live.is_empty() {
                    let byte = count as u8;
                    let handle = slab.allocate(size);
                    fill(&slab, handle, size, byte);
                    prop_assert!(live.insert(handle, (size, byte)).is_none(), "a live cell was given out");
                    used += class_bytes(size);
                } else if kind == 3 {
                    let (&handle, &(size, byte)) = live.iter().nth(index.index(live.len())).unwrap();
                    prop_assert!(holds(&slab, handle, size, byte), "a cell was overwritten");
                    slab.free(handle, size);
                    live.remove(&handle);
                    used -= class_bytes(size);
                } else {
                    slab.release_spare();
                }
                prop_assert_eq!(slab.used_bytes(), used);
                prop_assert_eq!(slab.page_bytes(), pool.usage().handed_out_bytes);
            }
            let mut visited = Vec::new();
            let mut at = CellPosition::START;
            while at < slab.end() {
                // In two parts if there is more than one cell.
                let before = visited.len();
                let next = slab.visit_page(at, |handle| visited.push(handle));
                at = if visited.len() > before + 1 {
                    visited.truncate(before + 1);
                    CellPosition::behind(visited[before])
                } else {
                    next
                };
            }
            prop_assert!(visited.into_iter().eq(live.keys().copied()), "a walk meets each live cell once");
            for (handle, (size, byte)) in live {
                prop_assert!(holds(&slab, handle, size, byte), "a cell was overwritten");
                slab.free(handle, size);
            }
            slab.release_spare();
            prop_assert_eq!((slab.used_bytes(), slab.page_bytes(), pool.usage().handed_out_bytes), (0, 0, 0));
        }
    }
}
