//! Compaction: cells of sparse pages move into fuller pages of their class, so that pages become empty.
//!
//! ```text
//! before   [x . . x . . .]  [x x x . x x .]  [x x x x . x x]
//!           sparse: leaves      takes one       takes one
//! after    (to the pool)    [x x x x x x .]  [x x x x x x x]
//! ```
//!
//! A page is left if less than an eighth of it is free. A cell moves only into a page that is at least as full as the
//! one that it leaves. So each move brings two pages further apart, and a walk over all pages ends.

use std::ptr;

use super::{CLASS_BYTES, CLASS_CELLS, CellPosition, FIRST_PAGE, Handle, NO_PAGE, Slab};

/// Pages that are looked at for room.
const TARGETS_MAX: usize = 16;

/// A walk over the cells of a slab that is under way, by [`Slab::visit_page`]: cells that it has yet to meet are moved only to
/// where it will meet them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellWalk {
    /// The cell that the walk visits next.
    pub next: CellPosition,
    /// The position at which the walk ends.
    pub end: CellPosition,
}

impl CellWalk {
    /// Whether cells of one page may move to another.
    fn allows(self, from: u32, to: u32) -> bool {
        let (next, end) = (self.next.page, self.end.page);
        let is_met = from < next || from >= end;
        is_met || from > next && to > next && to < end
    }
}

/// The result of [`Slab::compact`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    /// Cells that were moved.
    pub moved: usize,
    /// Pages that became empty.
    pub pages: usize,
    /// Live cells of pages that were looked at and left.
    pub left: usize,
}

impl Slab {
    /// Bytes of pages held beyond those of live cells: free cells, ends of pages, reserves. O(1).
    pub fn slack_bytes(&self) -> usize {
        self.page_bytes() - self.used_bytes()
    }

    /// Looks at `pages_max` pages from `from` on, and moves cells out of sparse ones until about `cells_max` have been
    /// moved, beside `walks` that are under way. `moved` is told of each, after its contents were copied: the old
    /// handle, and the new one. The next position; [`CellPosition::START`] behind the last page. O(pages + cells).
    pub fn compact(
        &mut self,
        from: CellPosition,
        (pages_max, cells_max): (usize, usize),
        walks: &[CellWalk],
        mut moved: impl FnMut(&Self, Handle, Handle),
    ) -> (CellPosition, Compacted) {
        let mut done = Compacted::default();
        let mut number = from.page;
        let end = FIRST_PAGE + self.pages.len() as u32;
        let mut seen = 0;
        while number < end {
            if seen == pages_max || done.moved >= cells_max {
                return (CellPosition { page: number, granule: 0 }, done);
            }
            self.evacuate(number, walks, &mut moved, &mut done);
            number += 1;
            seen += 1;
        }
        (CellPosition::START, done)
    }

    /// Moves the cells of a page elsewhere, as far as there is room.
    fn evacuate(
        &mut self,
        number: u32,
        walks: &[CellWalk],
        moved: &mut impl FnMut(&Self, Handle, Handle),
        done: &mut Compacted,
    ) {
        let state = self.pages[(number - FIRST_PAGE) as usize];
        if state.live == 0 {
            return;
        }
        let class = usize::from(state.class);
        let is_sparse = usize::from(state.live) * 8 < usize::from(CLASS_CELLS[class]) * 7;
        if !is_sparse {
            done.left += usize::from(state.live);
            return;
        }
        self.unlink_room(class, number);
        let allowed = |to| walks.iter().all(|walk| walk.allows(number, to));
        let Some(mut target) = self.target(class, state.live, allowed) else {
            self.link_room(class, number);
            done.left += usize::from(state.live);
            return;
        };
        let mut cells = Vec::with_capacity(state.live.into());
        self.visit_page(CellPosition { page: number, granule: 0 }, |cell| cells.push(cell));
        for cell in cells {
            if self.pages[(target - FIRST_PAGE) as usize].live == CLASS_CELLS[class] {
                let Some(next) = self.target(class, state.live, allowed) else { break };
                target = next;
            }
            let to = self.take_cell(class, target);
            // SAFETY: both cells belong to the slab and have the size of the class; one was free until now.
            unsafe {
                let (source, place) = (self.pointer(cell).as_ptr(), self.pointer(to).as_ptr());
                ptr::copy_nonoverlapping(source, place, CLASS_BYTES[class].into());
            }
            moved(self, cell, to);
            self.put_cell(number, cell.granule());
            done.moved += 1;
        }
        let live = self.pages[(number - FIRST_PAGE) as usize].live;
        if live == 0 {
            done.pages += 1;
            self.retire_page(class, number);
        } else {
            done.left += usize::from(live);
            self.link_room(class, number);
        }
    }

    /// The fullest of some allowed pages with room that have at least `live_min` live cells.
    fn target(&self, class: usize, live_min: u16, allowed: impl Fn(u32) -> bool) -> Option<u32> {
        let mut best = None;
        let mut most = live_min;
        let mut number = self.classes[class].room;
        for _ in 0..TARGETS_MAX {
            if number == NO_PAGE {
                break;
            }
            let page = &self.pages[(number - FIRST_PAGE) as usize];
            if page.live >= most && allowed(number) {
                (best, most) = (Some(number), page.live);
            }
            number = page.next;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, sync::Arc};

    use proptest::prelude::*;

    use super::*;
    use crate::page_pool::{PAGE_BYTES, PagePool};

    /// Fills cells of a slab with numbers, and knows where they are.
    struct Model {
        slab: Slab,
        cells: HashMap<u64, (Handle, usize)>,
        by_handle: HashMap<Handle, u64>,
    }

    impl Model {
        fn new() -> Self {
            let slab = Slab::new(Arc::new(PagePool::new()));
            Self { slab, cells: HashMap::new(), by_handle: HashMap::new() }
        }

        fn add(&mut self, number: u64, size: usize) {
            let cell = self.slab.allocate(size);
            // SAFETY: the cell is live, and at least 8 bytes long.
            unsafe { self.slab.pointer(cell).cast::<u64>().write(number) };
            assert!(self.by_handle.insert(cell, number).is_none(), "a cell is given out once");
            self.cells.insert(number, (cell, size));
        }

        fn remove(&mut self, number: u64) {
            let Some((cell, size)) = self.cells.remove(&number) else { return };
            self.by_handle.remove(&cell);
            self.slab.free(cell, size);
        }

        fn compact(&mut self, pages_max: usize, cells_max: usize) -> Compacted {
            self.compact_beside(pages_max, cells_max, &[])
        }

        fn compact_beside(&mut self, pages_max: usize, cells_max: usize, walks: &[CellWalk]) -> Compacted {
            let mut sum = Compacted::default();
            let mut from = CellPosition::START;
            loop {
                let (cells, by_handle) = (&mut self.cells, &mut self.by_handle);
                let (next, done) =
                    self.slab.compact(from, (pages_max, cells_max), walks, |slab, old, new| {
                        let number = by_handle.remove(&old).expect("a live cell is moved");
                        // SAFETY: the cell is live, and its contents were copied.
                        assert_eq!(unsafe { slab.pointer(new).cast::<u64>().read() }, number);
                        assert!(by_handle.insert(new, number).is_none(), "into a free cell");
                        cells.get_mut(&number).expect("it is known").0 = new;
                    });
                sum.moved += done.moved;
                sum.pages += done.pages;
                sum.left += done.left;
                from = next;
                if next == CellPosition::START {
                    return sum;
                }
            }
        }

        fn check(&self) {
            for (number, (cell, _)) in &self.cells {
                // SAFETY: the cell is live, and was written.
                assert_eq!(unsafe { self.slab.pointer(*cell).cast::<u64>().read() }, *number);
            }
        }
    }

    #[test]
    fn compact_empties_sparse_pages() {
        let mut model = Model::new();
        (0..100_000).for_each(|number| model.add(number, 100));
        let full = model.slab.page_bytes();
        (0..100_000).filter(|number| number % 4 != 0).for_each(|number| model.remove(number));
        assert_eq!(model.slab.page_bytes(), full, "each page has live cells");
        let done = model.compact(100, 50);
        model.check();
        assert!(model.slab.page_bytes() < full / 100 * 30, "{} of {full}", model.slab.page_bytes());
        assert!((15_000..25_000).contains(&done.moved), "{done:?}");
        let again = model.compact(100, 50);
        assert!(again.moved < 300, "what is dense stays: {again:?}");
    }

    #[test]
    fn compact_leaves_a_lone_page_and_opens_none() {
        let mut model = Model::new();
        (0..20).for_each(|number| model.add(number, 1000));
        (0..20).filter(|number| number % 8 != 0).for_each(|number| model.remove(number));
        assert!(model.compact(10, 10).pages >= 1);
        assert_eq!(model.compact(10, 10).moved, 0);
        model.slab.release_spare();
        assert_eq!(model.slab.page_bytes(), PAGE_BYTES);
        model.check();
    }

    #[test]
    fn compact_beside_a_walk_hides_no_cell_from_it() {
        for pages_between in 1..6 {
            let mut model = Model::new();
            (0..20_000).for_each(|number| model.add(number, 100));
            (0..20_000).filter(|number| number % 3 != 0).for_each(|number| model.remove(number));
            let mut walk = CellWalk { next: CellPosition::START, end: model.slab.end() };
            let mut met = Vec::new();
            let mut fresh = 20_000;
            while walk.next < walk.end {
                for _ in 0..pages_between {
                    let mut cells = Vec::new();
                    walk.next = model.slab.visit_page(walk.next, |cell| cells.push(cell));
                    met.extend(cells.into_iter().map(|cell| model.by_handle[&cell]));
                }
                model.compact_beside(64, 64, &[walk]);
                // Cells that the walk need not meet come anywhere.
                (0..20).for_each(|number| model.add(fresh + number, 100));
                fresh += 20;
            }
            met.retain(|number| *number < 20_000);
            met.sort_unstable();
            met.dedup();
            assert_eq!(met, (0..20_000).step_by(3).collect::<Vec<u64>>(), "{pages_between}");
            model.check();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn compact_keeps_what_cells_hold(
            steps in proptest::collection::vec((0..4_u8, 0..400_u64, 8..2048_usize), 1..1500),
        ) {
            let mut model = Model::new();
            for (step, number, size) in steps {
                match step {
                    0 | 1 => {
                        model.remove(number);
                        // Few sizes, so that they share pages.
                        model.add(number, size.next_power_of_two().min(2048));
                    }
                    2 => model.remove(number),
                    _ => {
                        let (used, pages) = (model.slab.used_bytes(), model.slab.page_bytes());
                        model.compact(1 + number as usize % 7, 1 + size % 31);
                        prop_assert_eq!(model.slab.used_bytes(), used);
                        prop_assert!(model.slab.page_bytes() <= pages);
                    }
                }
            }
            model.check();
            let numbers: Vec<u64> = model.cells.keys().copied().collect();
            numbers.into_iter().for_each(|number| model.remove(number));
            model.slab.release_spare();
            prop_assert_eq!((model.slab.used_bytes(), model.slab.page_bytes()), (0, 0));
        }
    }
}
