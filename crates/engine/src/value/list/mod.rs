//! Lists: elements in the order they were given.
//!
//! ```text
//! listpack    as much as one block of a quicklist may hold (list-max-listpack-size), in Redis's bytes
//! quicklist   the rest: a deque of such blocks
//! ```
//!
//! As in Redis 7.2, a list becomes a quicklist before something is added that could be too much for one block, by an
//! estimate that leaves the elements' heads out. The list becomes a listpack again when its only block has come down to
//! half the limit: between the two its encoding stays.

mod stored;

use std::{iter, ops, sync::Arc};

use dunlin_resp::number::parse_integer;
use dunlin_structures::{
    BlockDeque, BlockLimit, BlockRef, DequeRange, Element, Elements, ListEnd, Listpack, ListpackRef,
    TakenBlocks,
};

pub(crate) use stored::write_block;

use super::{
    Collection, CollectionLimits, CollectionRef, Layout, Object, ObjectRef, Packed, PackedForm, Resources,
    packed, shared::Shared,
};

/// Most bytes of a listpack whose limit is a number of elements.
const COUNTED_BYTES_MAX: usize = 8192;
/// A listpack whose allocation is larger than this, and three times what it needs, gives the rest back. That of a smaller
/// one is the buffer of its edits.
const SLACK_BYTES_MIN: usize = packed::BUFFER_BYTES;

/// A list of byte strings.
#[derive(Debug, Clone)]
pub struct List {
    items: Items,
}

/// The deque has an allocation of its own so that small lists stay small.
#[derive(Clone)]
enum Items {
    Listpack(Listpack),
    Quicklist(Shared<BlockDeque>),
}

impl std::fmt::Debug for Items {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Listpack(listpack) => listpack.fmt(out),
            Self::Quicklist(deque) => out.debug_list().entries(deque.iter()).finish(),
        }
    }
}

impl Collection for List {
    type Ref<'a> = CollectionRef<'a, Self>;

    fn new(_: &Arc<Resources>) -> Self {
        Self::default()
    }

    #[inline]
    fn new_in_buffer(_: &Arc<Resources>) -> Self {
        Self::in_listpack(packed::new_listpack())
    }

    #[inline]
    fn of(object: &Object) -> Option<&Self> {
        match object {
            Object::List(list) => Some(list),
            _ => None,
        }
    }

    #[inline]
    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        match object {
            Object::List(list) => Some(list),
            _ => None,
        }
    }

    #[inline]
    fn of_ref(object: ObjectRef<'_>) -> Option<CollectionRef<'_, Self>> {
        CollectionRef::of(object)
    }

    fn into_object(self) -> Object {
        Object::List(self)
    }

    #[inline]
    fn outside_bytes(&self) -> usize {
        self.heap_bytes()
    }

    #[inline]
    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }

    #[inline]
    fn packed(&self) -> Option<Packed<'_>> {
        match &self.items {
            Items::Listpack(listpack) => Packed::new(PackedForm::List, listpack.bytes()),
            Items::Quicklist(_) => None,
        }
    }

    fn leave_buffer(&mut self) {
        if let Items::Listpack(listpack) = &mut self.items {
            packed::leave_buffer(listpack);
        }
    }

    #[inline]
    fn into_buffer(self) -> Option<Vec<u8>> {
        match self.items {
            Items::Listpack(listpack) => Some(listpack.into_buffer()),
            Items::Quicklist(_) => None,
        }
    }
}

impl Default for List {
    /// An empty list.
    fn default() -> Self {
        Self { items: Items::Listpack(Listpack::new()) }
    }
}

impl List {
    /// The elements of a listpack, which are in their place there.
    #[inline]
    pub(super) fn in_listpack(listpack: Listpack) -> Self {
        Self { items: Items::Listpack(listpack) }
    }

    /// The blocks of a quicklist, which can be copied in pieces.
    pub(super) fn deque(&self) -> Option<&BlockDeque> {
        match &self.items {
            Items::Listpack(_) => None,
            Items::Quicklist(deque) => Some(deque),
        }
    }

    /// No blocks, to be filled and handed to [`Self::from_blocks`].
    pub(crate) fn no_blocks(layout: Layout<'_>) -> BlockDeque {
        BlockDeque::new(block_limit(layout.limits))
    }

    /// A list of these blocks; a listpack if there is only one that may be.
    pub(crate) fn from_blocks(mut blocks: BlockDeque, layout: Layout<'_>) -> Self {
        let directive = layout.limits.list_max_listpack_size;
        let is_small = |listpack: &Listpack| !exceeds(directive, listpack.bytes().len(), || listpack.len());
        let items = match blocks.single_listpack().is_some_and(is_small) {
            true => blocks.take_single_listpack().map(Items::Listpack),
            false => None,
        };
        Self { items: items.unwrap_or_else(|| Items::Quicklist(Shared::new(blocks))) }
    }

    /// How many elements. O(1); in a listpack of 65,535 or more O(n).
    #[inline]
    pub fn len(&self) -> usize {
        match &self.items {
            Items::Listpack(listpack) => listpack.len(),
            Items::Quicklist(deque) => deque.len(),
        }
    }

    /// Whether there is nothing in it. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        match &self.items {
            Items::Listpack(listpack) => listpack.is_empty(),
            Items::Quicklist(deque) => deque.is_empty(),
        }
    }

    /// Bytes outside the list itself. O(1).
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        match &self.items {
            Items::Listpack(listpack) => listpack.capacity(),
            Items::Quicklist(deque) => size_of::<BlockDeque>() + deque.memory_bytes(),
        }
    }

    /// The blocks of a quicklist; a listpack counts as one.
    pub fn blocks(&self) -> impl Iterator<Item = BlockRef<'_>> {
        let (single, deque) = match &self.items {
            Items::Listpack(listpack) => (Some(BlockRef::Packed(listpack.view())), None),
            Items::Quicklist(deque) => (None, Some(deque.blocks())),
        };
        single.into_iter().chain(deque.into_iter().flatten())
    }

    /// The element with number `index`. O(blocks from the nearer end).
    pub fn get(&self, index: usize) -> Option<Element<'_>> {
        match &self.items {
            Items::Listpack(listpack) => listpack.view().get(i64::try_from(index).ok()?),
            Items::Quicklist(deque) => deque.get(index),
        }
    }

    /// The elements with these numbers, as far as they exist, from both ends. O(blocks from the nearer
    /// end) to begin with.
    pub fn range(&self, range: ops::Range<usize>) -> ListRange<'_> {
        let listpack = match &self.items {
            Items::Quicklist(deque) => return ListRange(Range::Quicklist(deque.range(range))),
            Items::Listpack(listpack) => listpack.view(),
        };
        let end = range.end.min(listpack.len());
        let left = end.saturating_sub(range.start);
        let start = if left > 0 { listpack.seek(range.start as i64) } else { None };
        let elements = start.map_or(listpack.iter(), |start| listpack.iter_from(start));
        ListRange(Range::Listpack { listpack, elements, left, end: Some(end) })
    }

    /// All elements, from both ends.
    pub fn iter(&self) -> ListRange<'_> {
        self.range(0..self.len())
    }

    /// The numbers of the elements whose text is `text`, from one end on. O(n).
    pub fn positions<'a>(
        &'a self,
        text: &'a [u8],
        from: ListEnd,
    ) -> impl Iterator<Item = Option<usize>> + 'a {
        let number = parse_integer(text);
        let len = self.len();
        let mut elements = self.iter();
        let mut passed = 0;
        iter::from_fn(move || {
            let (element, index) = match from {
                ListEnd::Front => (elements.next()?, passed),
                ListEnd::Back => (elements.next_back()?, len - 1 - passed),
            };
            passed += 1;
            let same = match element {
                Element::Integer(integer) => number == Some(integer),
                Element::String(own) => own == text,
            };
            Some(same.then_some(index))
        })
    }

    /// Adds elements at one end, one after the other. O(1) each.
    #[inline]
    pub fn push(&mut self, end: ListEnd, texts: &[&[u8]], layout: Layout<'_>) {
        self.expect(texts, layout.limits);
        match &mut self.items {
            Items::Listpack(listpack) => {
                for text in texts {
                    match end {
                        ListEnd::Front => listpack.push_front(*text),
                        ListEnd::Back => listpack.push(*text),
                    };
                }
            }
            Items::Quicklist(deque) => {
                let deque = &mut **deque;
                texts.iter().for_each(|text| deque.push(end, *text));
            }
        }
    }

    /// Shows the element at one end to `see`, then removes it. O(1).
    #[inline]
    pub fn pop<R>(&mut self, end: ListEnd, see: impl FnOnce(Element<'_>) -> R) -> Option<R> {
        match &mut self.items {
            Items::Listpack(listpack) => {
                let view = listpack.view();
                let position = match end {
                    ListEnd::Front => view.first(),
                    ListEnd::Back => view.last(),
                }?;
                let seen = see(view.element(position));
                listpack.remove(position);
                release_slack(listpack);
                Some(seen)
            }
            Items::Quicklist(deque) => deque.pop(end, see),
        }
    }

    /// Puts an element on one side of the first one whose text is `pivot`. Returns whether there is one. O(n).
    pub fn insert(&mut self, side: ListEnd, pivot: &[u8], text: &[u8], layout: Layout<'_>) -> bool {
        // As Redis does, which does not look for the pivot twice: even if there is none.
        self.expect(&[text], layout.limits);
        match &mut self.items {
            Items::Listpack(listpack) => {
                let Some(position) = listpack.view().find(pivot, 0) else { return false };
                match side {
                    ListEnd::Front => listpack.insert_before(position, text),
                    ListEnd::Back => listpack.insert_after(position, text),
                };
                true
            }
            Items::Quicklist(_) => {
                let place = self.positions(pivot, ListEnd::Front).flatten().next();
                place.is_some_and(|place| self.insert_beside(side, place, text, layout))
            }
        }
    }

    /// Puts an element on one side of the one with number `place`. Returns whether there is one. O(blocks from
    /// the nearer end); in a listpack O(n).
    pub fn insert_beside(&mut self, side: ListEnd, place: usize, text: &[u8], layout: Layout<'_>) -> bool {
        self.expect(&[text], layout.limits);
        match (&mut self.items, side) {
            (Items::Listpack(listpack), _) => {
                let position = i64::try_from(place).ok().and_then(|place| listpack.view().seek(place));
                let Some(position) = position else { return false };
                match side {
                    ListEnd::Front => listpack.insert_before(position, text),
                    ListEnd::Back => listpack.insert_after(position, text),
                };
                true
            }
            (Items::Quicklist(deque), ListEnd::Front) => deque.insert_before(place, text),
            (Items::Quicklist(deque), ListEnd::Back) => deque.insert_after(place, text),
        }
    }

    /// Puts an element in the place of the one with number `index`. Returns whether there is one.
    pub fn set(&mut self, index: usize, text: &[u8], layout: Layout<'_>) -> bool {
        self.expect(&[text], layout.limits);
        match &mut self.items {
            Items::Listpack(listpack) => {
                let position = i64::try_from(index).ok().and_then(|index| listpack.view().seek(index));
                position.map(|position| listpack.replace(position, text)).is_some()
            }
            Items::Quicklist(deque) => deque.set(index, text),
        }
    }

    /// Removes the elements with these numbers, as far as they exist. Returns how many.
    pub fn remove_range(&mut self, range: ops::Range<usize>) -> usize {
        self.take_range(range).0
    }

    /// Removes the elements with these numbers, as far as they exist; returns how many, and the blocks that are still
    /// to be freed.
    pub fn take_range(&mut self, range: ops::Range<usize>) -> (usize, TakenBlocks) {
        match &mut self.items {
            Items::Listpack(listpack) => {
                let start = i64::try_from(range.start).unwrap_or(i64::MAX);
                let removed = listpack.remove_range(start, range.end.saturating_sub(range.start));
                release_slack(listpack);
                (removed, TakenBlocks::default())
            }
            Items::Quicklist(deque) => deque.take_range(range),
        }
    }

    /// Removes up to `count` elements whose text is `text`, the nearest to `end` first. Returns how many. O(n).
    pub fn remove_equal(&mut self, text: &[u8], count: usize, end: ListEnd) -> usize {
        let listpack = match &mut self.items {
            Items::Quicklist(deque) => return deque.remove_equal(text, count, end),
            Items::Listpack(listpack) => listpack,
        };
        let mut removed = 0;
        match end {
            ListEnd::Front => {
                let mut from = listpack.view().first();
                while removed < count
                    && let Some(position) = listpack.view().find_from(from, text, 0)
                {
                    from = listpack.remove(position);
                    removed += 1;
                }
            }
            ListEnd::Back => {
                let mut from = listpack.view().last();
                while removed < count
                    && let Some(position) = from
                {
                    from = listpack.view().previous(position);
                    if listpack.view().element(position).eq_bytes(text) {
                        listpack.remove(position);
                        removed += 1;
                    }
                }
            }
        }
        release_slack(listpack);
        removed
    }

    /// Makes ready for elements that are about to be added: if they could be too much for a listpack,
    /// the list becomes a quicklist.
    #[inline]
    fn expect(&mut self, texts: &[&[u8]], limits: &CollectionLimits) {
        if let Items::Listpack(listpack) = &mut self.items {
            let bytes = listpack.bytes().len() + texts.iter().map(|text| text.len()).sum::<usize>();
            if exceeds(limits.list_max_listpack_size, bytes, || listpack.len() + texts.len()) {
                packed::leave_buffer(listpack);
                let deque = BlockDeque::from_listpack(std::mem::take(listpack), block_limit(limits));
                self.items = Items::Quicklist(Shared::new(deque));
            }
        }
    }

    /// Makes a quicklist a listpack again where so little is left: to be called once a command has removed
    /// what it removes.
    #[inline]
    pub fn settle(&mut self, layout: Layout<'_>) {
        let Items::Quicklist(deque) = &mut self.items else { return };
        let Some(listpack) = deque.single_listpack() else { return };
        let directive = layout.limits.list_max_listpack_size;
        let fits = match usize::try_from(directive) {
            Ok(elements_max) => deque.len() <= elements_max.max(1) / 2,
            Err(_) => listpack.bytes().len() <= BlockLimit::from_directive(directive).bytes_max() / 2,
        };
        if fits && let Some(listpack) = deque.take_single_listpack() {
            self.items = Items::Listpack(listpack);
        }
    }
}

/// How large blocks may grow.
fn block_limit(limits: &CollectionLimits) -> BlockLimit {
    BlockLimit::from_directive(limits.list_max_listpack_size).with_plain_from(limits.list_packed_threshold)
}

/// Whether a listpack of that size is over the limit that the directive sets.
#[inline]
fn exceeds(directive: i64, bytes: usize, elements: impl FnOnce() -> usize) -> bool {
    match usize::try_from(directive) {
        Ok(elements_max) => bytes > COUNTED_BYTES_MAX || elements() > elements_max.max(1),
        Err(_) => bytes > BlockLimit::from_directive(directive).bytes_max(),
    }
}

fn release_slack(listpack: &mut Listpack) {
    if listpack.capacity() > SLACK_BYTES_MIN && listpack.bytes().len() < listpack.capacity() / 3 {
        listpack.shrink_to_fit();
    }
}

/// Elements of a list with consecutive numbers, from both ends.
#[derive(Clone)]
pub struct ListRange<'a>(Range<'a>);

#[derive(Clone)]
enum Range<'a> {
    Listpack {
        listpack: ListpackRef<'a>,
        elements: Elements<'a>,
        left: usize,
        /// Number of the element behind the last one, until a caller reads from the back.
        end: Option<usize>,
    },
    Quicklist(DequeRange<'a>),
}

impl<'a> Iterator for ListRange<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        match &mut self.0 {
            Range::Listpack { elements, left, .. } => {
                *left = left.checked_sub(1)?;
                elements.next()
            }
            Range::Quicklist(elements) => elements.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match &self.0 {
            Range::Listpack { left, .. } => *left,
            Range::Quicklist(elements) => elements.len(),
        };
        (left, Some(left))
    }
}

impl DoubleEndedIterator for ListRange<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Range::Listpack { listpack, elements, left, end } => {
                *left = left.checked_sub(1)?;
                if let Some(end) = end.take() {
                    *elements = elements.clone().through(listpack.seek(end as i64 - 1)?);
                }
                elements.next_back()
            }
            Range::Quicklist(elements) => elements.next_back(),
        }
    }
}

impl ExactSizeIterator for ListRange<'_> {}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::value::Stored;

    #[derive(Debug, Clone)]
    enum Edit {
        Push(bool, Vec<Vec<u8>>),
        Pop(bool),
        Insert(bool, usize, Vec<u8>),
        Set(usize, Vec<u8>),
        RemoveRange(usize, usize),
        RemoveEqual(usize, usize, bool),
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (-8i64..8).prop_map(|integer| integer.to_string().into_bytes()),
            1 => any::<i64>().prop_map(|integer| integer.to_string().into_bytes()),
            2 => prop::sample::select(vec!["", "00", "-0", "a", "an element"])
                .prop_map(|text| text.as_bytes().to_vec()),
            1 => (4000usize..9000).prop_map(|length| vec![b'x'; length]),
        ]
    }

    fn edit() -> impl Strategy<Value = Edit> {
        prop_oneof![
            6 => (any::<bool>(), prop::collection::vec(text(), 1..6)).prop_map(|(back, texts)| Edit::Push(back, texts)),
            4 => any::<bool>().prop_map(Edit::Pop),
            2 => (any::<bool>(), 0usize..40, text()).prop_map(|(after, at, text)| Edit::Insert(after, at, text)),
            2 => (0usize..40, text()).prop_map(|(at, text)| Edit::Set(at, text)),
            1 => (0usize..40, 0usize..10).prop_map(|(at, count)| Edit::RemoveRange(at, count)),
            1 => (0usize..40, 0usize..4, any::<bool>()).prop_map(|(at, count, back)| Edit::RemoveEqual(at, count, back)),
        ]
    }

    fn end(back: bool) -> ListEnd {
        if back { ListEnd::Back } else { ListEnd::Front }
    }

    proptest! {
        #[test]
        fn behaves_like_a_deque_across_the_thresholds(
            edits in prop::collection::vec(edit(), 1..80),
            directive in prop::sample::select(vec![-5, -2, -1, 0, 1, 3, 8]),
            plain_from in prop::sample::select(vec![0, 0, 5]),
        ) {
            let limits = CollectionLimits {
                list_max_listpack_size: directive,
                list_packed_threshold: plain_from,
                ..CollectionLimits::default()
            };
            let resources = Resources::for_tests();
            let layout = Layout { limits: &limits, resources: &resources };
            let mut list = List::default();
            let mut model: VecDeque<Vec<u8>> = VecDeque::new();
            for edit in edits {
                match edit {
                    Edit::Push(back, texts) => {
                        let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
                        list.push(end(back), &texts, layout);
                        for text in texts {
                            if back { model.push_back(text.to_vec()) } else { model.push_front(text.to_vec()) }
                        }
                    }
                    Edit::Pop(back) => {
                        let expected = if back { model.pop_back() } else { model.pop_front() };
                        prop_assert_eq!(list.pop(end(back), |element| element.text().into_owned()), expected);
                    }
                    Edit::Insert(after, at, text) => {
                        let pivot = model.get(at).cloned().unwrap_or_else(|| b"nowhere".to_vec());
                        let found = model.iter().position(|own| *own == pivot);
                        prop_assert_eq!(list.insert(end(after), &pivot, &text, layout), found.is_some());
                        if let Some(at) = found {
                            model.insert(at + usize::from(after), text);
                        }
                    }
                    Edit::Set(at, text) => {
                        prop_assert_eq!(list.set(at, &text, layout), at < model.len());
                        if let Some(own) = model.get_mut(at) {
                            *own = text;
                        }
                    }
                    Edit::RemoveRange(at, count) => {
                        let range = at.min(model.len())..(at + count).min(model.len());
                        prop_assert_eq!(list.remove_range(at..at + count), range.len());
                        model.drain(range);
                    }
                    Edit::RemoveEqual(at, count, back) => {
                        let text = model.get(at).cloned().unwrap_or_default();
                        let mut places: Vec<usize> = list.positions(&text, end(back)).flatten().collect();
                        let mut expected: Vec<usize> = (0..model.len()).filter(|&at| model[at] == text).collect();
                        if back {
                            expected.reverse();
                        }
                        prop_assert_eq!(&places, &expected);
                        places.truncate(count);
                        prop_assert_eq!(list.remove_equal(&text, count, end(back)), places.len());
                        places.sort_unstable();
                        places.into_iter().rev().for_each(|at| drop(model.remove(at)));
                    }
                }
                list.settle(layout);
                prop_assert_eq!(list.len(), model.len());
                prop_assert_eq!(list.is_empty(), model.is_empty());
                let told: Vec<Vec<u8>> = list.clone().iter().map(|element| element.text().into_owned()).collect();
                prop_assert!(told.iter().eq(model.iter()));
            }
            for start in 0..=model.len() {
                prop_assert_eq!(list.get(start).map(|element| element.text().into_owned()), model.get(start).cloned());
                for end in [start, start + 3, model.len()] {
                    let expected: Vec<_> = model.iter().take(end).skip(start).cloned().collect();
                    let told: Vec<_> = list.range(start..end).map(|element| element.text().into_owned()).collect();
                    prop_assert_eq!(&told, &expected);
                    let mut told: Vec<_> =
                        list.range(start..end).rev().map(|element| element.text().into_owned()).collect();
                    told.reverse();
                    prop_assert_eq!(&told, &expected);
                }
            }
        }
    }

    /// How many times `text` is pushed until the list is a quicklist, and how many are left when, popped
    /// from the back, it is a listpack again.
    fn turns(directive: i64, text: &[u8]) -> (usize, usize) {
        let limits = CollectionLimits { list_max_listpack_size: directive, ..CollectionLimits::default() };
        let resources = Resources::for_tests();
        let layout = Layout { limits: &limits, resources: &resources };
        let mut list = List::default();
        while list.encoding() == "listpack" {
            list.push(ListEnd::Back, &[text], layout);
        }
        let grown = list.len();
        while list.encoding() == "quicklist" && !list.is_empty() {
            list.pop(ListEnd::Back, |_| ());
            list.settle(layout);
        }
        (grown, list.len())
    }

    #[test]
    fn encodings_change_where_redis_changes_them() {
        // As Valkey 9.1 does, by its OBJECT ENCODING.
        assert_eq!(turns(-2, b"abcdefghij"), (683, 340));
        assert_eq!(turns(-1, b"abcdefghij"), (341, 170));
        assert_eq!(turns(-9, b"abcdefghij"), (5461, 2730));
        assert_eq!(turns(4, b"abcdefghij"), (5, 2));
        assert_eq!(turns(1, b"abcdefghij"), (2, 0));
        assert_eq!(turns(0, b"abcdefghij"), (2, 0));
        assert_eq!(turns(40_000, b"abcdefghij"), (683, 682));
    }
}
