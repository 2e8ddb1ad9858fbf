//! The large form of an array: pages of pairs in the order of their indexes.
//!
//! ```text
//! LeafMap   base │ page │ base │ page │ …         a page has the indexes from its base to the next one
//! page      a count │ listpack: index − base │ value │ …        up to PAGE_PAIRS_MAX pairs, PAGE_BYTES_MAX bytes
//! ```
//!
//! A page that is full is cut in the middle; one that grows at its end stays full, and the next begins behind its last
//! index. A larger value has a page of its own. Copies share pages and the leaves of the map; a change copies one page.
//!
//! Invariants: no page is empty; a page with more than [`PAGE_BYTES_MAX`] bytes has one pair; `count` and `page_bytes` are the sums over
//! the pages.

use dunlin_structures::{Element, LeafMap, Listpack};

use super::pairs::{self, Pairs};
use crate::value::shared::Shared;

/// Pairs of a page: a look-up goes over half of them.
pub(super) const PAGE_PAIRS_MAX: usize = 64;
/// Bytes of a page with more than one pair.
pub(super) const PAGE_BYTES_MAX: usize = 4096;
/// Pairs up to which a page is joined with a neighbour that has room for them.
const PAGE_PAIRS_MIN: usize = PAGE_PAIRS_MAX / 4;
/// Bytes of a page beside those of its listpack's block: two counts, and the listpack.
const PAGE_HEAD_BYTES: usize = 2 * size_of::<usize>() + size_of::<Listpack>();

type Page = Shared<Listpack>;

/// The large form of an array; see the module's head. Clones share its pages.
#[derive(Debug, Clone, Default)]
pub(super) struct Pages {
    map: LeafMap<u64, Page>,
    count: u64,
    page_bytes: usize,
    /// The index of the last value that was inserted; see [`super::Array::cursor`].
    pub(super) cursor: Option<u64>,
}

fn bytes_of(page: &Page) -> usize {
    PAGE_HEAD_BYTES + page.capacity()
}

/// How many pairs a page has.
fn len(listpack: &Listpack) -> usize {
    listpack.len() / 2
}

impl Pages {
    /// How many values there are.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// How many pages there are.
    pub(super) fn pages(&self) -> usize {
        self.map.len()
    }

    /// Bytes outside the head. O(1).
    pub(super) fn heap_bytes(&self) -> usize {
        self.map.heap_bytes() + self.page_bytes
    }

    /// A copy that shares nothing. O(n).
    pub(super) fn apart(&self) -> Self {
        let mut copy = Self { count: self.count, cursor: self.cursor, ..Self::default() };
        for (base, page) in self.map.iter() {
            let page = page.copied();
            copy.page_bytes += bytes_of(&page);
            copy.map.insert(*base, page);
        }
        copy
    }

    /// The largest index.
    pub(super) fn last_index(&self) -> Option<u64> {
        let (base, page) = self.map.last_key_value()?;
        Some(base.wrapping_add(pairs::last_offset(page.view(), page.view().first())?))
    }

    /// The value at an index. O(log n).
    pub(super) fn get(&self, index: u64) -> Option<Element<'_>> {
        let (base, page) = self.map.at_most(&index)?;
        pairs::get(page.view(), page.view().first(), index - base)
    }

    fn add_page(&mut self, base: u64, listpack: Listpack) {
        let page = Shared::new(listpack);
        self.page_bytes += bytes_of(&page);
        let before = self.map.insert(base, page);
        debug_assert!(before.is_none(), "two pages have the same base");
    }

    fn take_page(&mut self, base: u64) -> Page {
        let page = self.map.remove(&base).expect("the page was found under its base");
        self.page_bytes -= bytes_of(&page);
        page
    }

    /// Works on a page, which is copied first if it is shared.
    fn change<R>(&mut self, base: u64, work: impl FnOnce(&mut Listpack) -> R) -> Option<R> {
        let page = self.map.get_mut(&base)?;
        self.page_bytes -= bytes_of(page);
        let result = work(page);
        self.page_bytes += bytes_of(page);
        Some(result)
    }

    /// Puts a value at an index. Returns whether the place was empty. O(log n).
    pub(super) fn set(&mut self, index: u64, value: Element<'_>) -> bool {
        let Some((&base, page)) = self.map.at_most(&index) else {
            self.insert(index, value);
            return true;
        };
        let view = page.view();
        let Some(at) = pairs::find(view, view.first(), index - base) else {
            self.insert(index, value);
            return true;
        };
        let place = view.next(at);
        let before = place.map_or(0, |place| view.element(place).encoded_bytes());
        let is_alone = len(page) == 1;
        if is_alone || view.bytes().len() - before + value.encoded_bytes() <= PAGE_BYTES_MAX {
            self.change(base, |page| {
                place.into_iter().for_each(|place| page.replace(place, value));
                settle(page);
            });
        } else {
            self.change(base, |page| pairs::remove(page, page.view().first(), index - base, index - base));
            self.count -= 1;
            self.insert(index, value);
        }
        false
    }

    /// Puts a value at an index where there is none.
    fn insert(&mut self, index: u64, value: Element<'_>) {
        self.count += 1;
        loop {
            let Some((&base, page)) = self.map.at_most(&index) else {
                // The first page has all indexes before it.
                let mut listpack = Listpack::new();
                pairs::push(&mut listpack, index, value);
                return self.add_page(0, listpack);
            };
            let (view, offset) = (page.view(), index - base);
            let bytes = view.bytes().len() + pairs::pair_bytes(offset, value);
            if len(page) < PAGE_PAIRS_MAX && bytes <= PAGE_BYTES_MAX {
                self.change(base, |page| pairs::insert(page, page.view().first(), offset, value));
                return;
            }
            let last = pairs::last_offset(view, view.first()).unwrap_or_default();
            if last < offset {
                self.change(base, Listpack::shrink_to_fit);
                let next_base = base + last + 1;
                let mut listpack = Listpack::new();
                pairs::push(&mut listpack, index - next_base, value);
                return self.add_page(next_base, listpack);
            }
            self.split(base, offset);
        }
    }

    /// Cuts a page in the middle, or, if `offset` comes before all its pairs, hands them all to a page behind it, in whose place
    /// there is none then.
    fn split(&mut self, base: u64, offset: u64) {
        let page = self.take_page(base);
        let view = page.view();
        let first = view.first().map_or(0, |first| pairs::offset_at(view, first));
        let moves_all = offset < first;
        let kept = if moves_all { 0 } else { (len(&page) / 2).max(1) };
        let mut lower = Listpack::new();
        let mut all = Pairs::all(view, view.first(), 0);
        all.by_ref().take(kept).for_each(|(offset, value)| pairs::push(&mut lower, offset, value));
        let upper: Vec<_> = all.collect();
        if let Some((start, _)) = upper.first() {
            let mut listpack = Listpack::new();
            upper.iter().for_each(|(offset, value)| pairs::push(&mut listpack, offset - start, *value));
            listpack.shrink_to_fit();
            self.add_page(base + start, listpack);
        }
        if !lower.is_empty() {
            lower.shrink_to_fit();
            self.add_page(base, lower);
        }
    }

    /// Takes out the values at indexes from `low` to `high`. Returns how many. O(log n + pages).
    pub(super) fn remove(&mut self, low: u64, high: u64) -> u64 {
        let before = self.count;
        let from = self.map.at_most(&low).map_or(low, |(base, _)| *base);
        let touched: Vec<u64> = self.map.range(from..=high).map(|(base, _)| *base).collect();
        let mut edges = Vec::new();
        for base in touched {
            let Some(page) = self.map.get(&base) else { continue };
            let view = page.view();
            let first = view.first().map_or(0, |first| pairs::offset_at(view, first));
            let last = pairs::last_offset(view, view.first()).unwrap_or_default();
            if low <= base + first && base + last <= high {
                self.count -= len(page) as u64;
                self.take_page(base);
                continue;
            }
            let (low, high) = (low.saturating_sub(base), high - base);
            let removed = match last < low || high < first {
                true => 0,
                false => self
                    .change(base, |page| {
                        let removed = pairs::remove(page, page.view().first(), low, high);
                        settle(page);
                        removed
                    })
                    .unwrap_or(0),
            };
            self.count -= removed as u64;
            if self.map.get(&base).is_some_and(|page| page.is_empty()) {
                self.take_page(base);
            } else if removed > 0 {
                edges.push(base);
            }
        }
        edges.into_iter().for_each(|base| self.merge(base));
        before - self.count
    }

    /// Puts the pairs of a page with few of them into one beside it that has room.
    fn merge(&mut self, base: u64) {
        let few = |page: &Page| len(page) <= PAGE_PAIRS_MIN && page.bytes().len() <= PAGE_BYTES_MAX / 4;
        if !self.map.get(&base).is_some_and(few) {
            return;
        }
        let has_room = |(_, page): &(&u64, &Page)| {
            len(page) <= PAGE_PAIRS_MAX / 2 && page.bytes().len() <= PAGE_BYTES_MAX / 2
        };
        let before = base.checked_sub(1).and_then(|before| self.map.at_most(&before)).filter(has_room);
        let next = self.map.range(base..).nth(1).filter(has_room);
        let (lower, upper) = match (before, next) {
            (Some((before, _)), _) => (*before, base),
            (None, Some((next, _))) => (base, *next),
            (None, None) => return,
        };
        let page = self.take_page(upper);
        self.change(lower, |lower_page| {
            for (index, value) in Pairs::all(page.view(), page.view().first(), upper) {
                pairs::push(lower_page, index - lower, value);
            }
        });
    }

    /// The page with the first values at or behind an index, or the last before it.
    fn page_at(&self, index: u64, low: u64, high: u64, reversed: bool) -> Option<(u64, Pairs<'_>)> {
        let (base, page) = match reversed {
            true => self.map.at_most(&index)?,
            false => match self.map.at_most(&index) {
                Some(found) => found,
                None => self.map.range(index..).next()?,
            },
        };
        let view = page.view();
        let pairs = match high.checked_sub(*base) {
            Some(high) => Pairs::between(view, view.first(), *base, low.saturating_sub(*base), high),
            None => Pairs::none(),
        };
        Some((*base, pairs))
    }

    /// The values at indexes from `low` to `high`, in their order or the other way round. O(log n) to begin with.
    pub(super) fn range(&self, low: u64, high: u64, reversed: bool) -> PageRange<'_> {
        let begin = if reversed { high } else { low };
        let found = if low <= high { self.page_at(begin, low, high, reversed) } else { None };
        let (base, pairs) = found.map_or((None, Pairs::none()), |(base, pairs)| (Some(base), pairs));
        PageRange { pages: self, pairs, base, low, high, reversed }
    }
}

/// Gives back memory that a page no longer needs.
fn settle(page: &mut Listpack) {
    /// Bytes that are always allowed.
    const SLACK_BYTES: usize = 64;
    if page.capacity() > page.bytes().len() * 2 + SLACK_BYTES {
        page.shrink_to_fit();
    }
}

/// Values of pages in order.
pub(super) struct PageRange<'a> {
    pages: &'a Pages,
    pairs: Pairs<'a>,
    /// The base of the page that `pairs` are of; `None` at the end.
    base: Option<u64>,
    low: u64,
    high: u64,
    reversed: bool,
}

impl<'a> Iterator for PageRange<'a> {
    type Item = (u64, Element<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let next = if self.reversed { self.pairs.next_back() } else { self.pairs.next() };
            if next.is_some() {
                return next;
            }
            let base = self.base.take()?;
            let map = &self.pages.map;
            let (base, page) = match self.reversed {
                true => map.at_most(&base.checked_sub(1)?)?,
                false => map.range(base.checked_add(1)?..).next()?,
            };
            let (low, high) = (self.low.saturating_sub(*base), self.high.checked_sub(*base));
            // In ascending order the first page behind the range ends it; in descending order an empty part does.
            let high = high?;
            let view = page.view();
            if self.reversed && pairs::last_offset(view, view.first()).is_none_or(|last| last < low) {
                return None;
            }
            self.pairs = Pairs::between(view, view.first(), *base, low, high);
            self.base = Some(*base);
        }
    }
}

#[cfg(test)]
impl Pages {
    /// Checks the invariants.
    pub(super) fn assert_sound(&self) {
        let (mut count, mut bytes, mut last) = (0, 0, None);
        for (base, page) in self.map.iter() {
            assert!(!page.is_empty(), "a page is empty");
            assert!(len(page) <= PAGE_PAIRS_MAX);
            assert!(len(page) == 1 || page.bytes().len() <= PAGE_BYTES_MAX);
            count += len(page) as u64;
            bytes += bytes_of(page);
            for (index, _) in Pairs::all(page.view(), page.view().first(), *base) {
                assert!(index >= *base && last.is_none_or(|last| last < index));
                last = Some(index);
            }
        }
        assert_eq!((self.count, self.page_bytes, self.last_index()), (count, bytes, last));
    }
}
