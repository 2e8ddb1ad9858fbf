use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use proptest::prelude::*;

use super::*;

fn texts<'a>(elements: impl Iterator<Item = Element<'a>>) -> Vec<Vec<u8>> {
    elements.map(|element| element.text().into_owned()).collect()
}

/// Holds the deque to every invariant its documentation states.
fn check(deque: &BlockDeque, model: &[Vec<u8>]) {
    assert_eq!(deque.len(), model.len());
    assert!(deque.blocks.iter().all(|block| block.count > 0));
    let counts = deque.blocks().map(|block| match block {
        BlockRef::Packed(listpack) => crate::validate_listpack(listpack.bytes()).unwrap(),
        BlockRef::Plain(_) => 1,
    });
    assert!(counts.eq(deque.blocks.iter().map(Block::count)));
    assert_eq!(deque.block_bytes, deque.blocks.iter().map(Block::heap_bytes).sum::<usize>());
    assert_eq!(texts(deque.iter()), model);
    assert!(texts(deque.iter().rev()).iter().eq(model.iter().rev()));
}

fn shape(deque: &BlockDeque) -> String {
    let block = |block: BlockRef<'_>| match block {
        BlockRef::Packed(listpack) => texts(listpack.iter())
            .iter()
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .collect::<Vec<_>>()
            .join(" "),
        BlockRef::Plain(text) => format!("<{}>", text.len()),
    };
    deque.blocks().map(block).collect::<Vec<_>>().join(" | ")
}

fn of(limit: i64, texts: &str) -> BlockDeque {
    let mut deque = BlockDeque::new(BlockLimit::from_directive(limit));
    texts.split_whitespace().for_each(|text| deque.push_back(text.as_bytes()));
    deque
}

/// The blocks are those in DUMP of redis-server 7.0.15 after the same commands, with
/// `list-max-listpack-size 3`.
#[test]
fn blocks_split_and_merge_as_in_redis() {
    let mut list = of(3, "a b c d e f g h");
    assert_eq!(shape(&list), "a b c | d e f | g h");
    list.push_front(b"z");
    assert_eq!(shape(&list), "z | a b c | d e f | g h");
    list.insert_before(1, b"1");
    assert_eq!(shape(&list), "z 1 | a b c | d e f | g h", "a full block's border: the neighbour takes it");
    list.insert_after(7, b"2");
    assert_eq!(shape(&list), "z 1 | a b c | d e f | 2 g h");
    list.insert_after(7, b"3");
    assert_eq!(shape(&list), "z 1 | a b c | d e f | 3 | 2 g h", "both are full: a block between");
    list.insert_before(6, b"4");
    assert_eq!(shape(&list), "z 1 | a b c | d 4 | e f 3 | 2 g h", "in the middle: split, then merge");
    list.remove_equal(b"b", 1, ListEnd::Front);
    list.remove_equal(b"a", 1, ListEnd::Front);
    assert_eq!(shape(&list), "z 1 | c | d 4 | e f 3 | 2 g h", "removal merges nothing");
    list.trim(1..list.len() - 2);
    assert_eq!(shape(&list), "1 | c | d 4 | e f 3 | 2");
}

/// As above with `list-max-listpack-size -1`: elements of 1000 bytes, and one that just fits a block.
#[test]
fn blocks_of_four_kibibytes_are_filled_as_in_redis() {
    let counts = |list: &BlockDeque| list.blocks.iter().map(Block::count).collect::<Vec<_>>();
    let text = [b'x'; 1000];
    let mut list = of(-1, "");
    (0..10).for_each(|_| list.push_back(&text));
    assert_eq!(counts(&list), [4, 4, 2]);
    // A block of four takes 4023 bytes. By the estimate for insertion 74 more do not fit; by that for
    // merging the halves do, and the block has 4100 bytes. With a byte more, they stay apart.
    let mut apart = list.clone();
    assert!(apart.insert_before(1, &[b'y'; 75]));
    assert_eq!(counts(&apart), [2, 3, 4, 2]);
    assert!(list.insert_before(1, &[b'y'; 74]));
    assert_eq!(counts(&list), [5, 4, 2]);
    assert!(list.insert_before(6, &[b'y'; 80]));
    assert_eq!(counts(&list), [5, 2, 3, 2]);
    list.push_back(&text);
    list.push_back(&text);
    list.push_back(&[b'y'; 66]);
    assert_eq!(counts(&list), [5, 2, 3, 4, 1]);
}

#[test]
fn large_elements_stand_alone() {
    let large = vec![b'x'; 5000];
    let mut list = of(-1, "a b c");
    list.push_back(&large);
    list.push_back(b"d");
    assert_eq!(shape(&list), "a b c | <5000> | d");
    assert!(list.insert_after(0, &large));
    assert_eq!(shape(&list), "a | <5000> | b c | <5000> | d");
    assert!(list.set(1, b"small"));
    assert_eq!(shape(&list), "a | small b c | <5000> | d");
    assert!(list.set(2, &large));
    assert_eq!(shape(&list), "a small | <5000> | c | <5000> | d");
    assert_eq!(list.get(2), Some(Element::String(&large)));
    assert_eq!(list.remove_equal(&large, 9, ListEnd::Back), 2);
    assert_eq!(shape(&list), "a small | c | d");
    assert_eq!(list.pop(ListEnd::Front, |element| element.text().into_owned()), Some(b"a".to_vec()));
    let all = list.to_listpack().unwrap();
    assert_eq!(texts(all.view().iter()), [&b"small"[..], b"c", b"d"]);
    assert_eq!(shape(&BlockDeque::from_listpack(all, list.limit())), "small c d");
}

#[test]
fn long_list_takes_little_more_than_its_elements() {
    let mut list = of(-2, "");
    let mut bytes = 0;
    for number in 0..300_000 {
        let text = format!("element:{number}").into_bytes();
        bytes += Element::String(&text).encoded_bytes();
        list.push_back(&text);
    }
    let overhead = list.memory_bytes() as f64 / bytes as f64;
    assert!(overhead < 1.015, "{overhead:.4}");
    assert_eq!(list.get(150_000).unwrap(), Element::String(b"element:150000"));
    while list.pop(ListEnd::Back, |_| ()).is_some() {}
    assert!(list.memory_bytes() <= 4 * size_of::<Block>(), "what is popped is given back");
}

#[derive(Clone, Debug)]
enum Edit {
    Push(bool, Vec<u8>),
    Pop(bool),
    Insert(bool, usize, Vec<u8>),
    Set(usize, Vec<u8>),
    RemoveRange(usize, usize),
    Trim(usize, usize),
    RemoveEqual(usize, usize, bool),
    Rebuild,
}

fn end(back: bool) -> ListEnd {
    if back { ListEnd::Back } else { ListEnd::Front }
}

fn edit() -> impl Strategy<Value = Edit> {
    let text = || {
        prop_oneof![
            6 => (0..30i64).prop_map(|number| number.to_string().into_bytes()),
            3 => prop::collection::vec(any::<u8>(), 0..900),
            1 => (4000..9000usize).prop_map(|length| vec![b'x'; length]),
        ]
    };
    let at = || 0..80usize;
    prop_oneof![
        8 => (any::<bool>(), text()).prop_map(|(back, text)| Edit::Push(back, text)),
        2 => any::<bool>().prop_map(Edit::Pop),
        8 => (any::<bool>(), at(), text()).prop_map(|(after, at, text)| Edit::Insert(after, at, text)),
        3 => (at(), text()).prop_map(|(at, text)| Edit::Set(at, text)),
        1 => (at(), 0..12usize).prop_map(|(at, count)| Edit::RemoveRange(at, count)),
        1 => (0..4usize, 0..4usize).prop_map(|(front, back)| Edit::Trim(front, back)),
        2 => (at(), 1..4usize, any::<bool>()).prop_map(|(at, count, back)| Edit::RemoveEqual(at, count, back)),
        1 => Just(Edit::Rebuild),
    ]
}

proptest! {
    #[test]
    fn edits_agree_with_a_vec_deque(
        limit in prop::sample::select(vec![-1, -2, 0, 1, 2, 3, 7, 1000]),
        edits in prop::collection::vec(edit(), 1..100),
    ) {
        let mut list = BlockDeque::new(BlockLimit::from_directive(limit));
        let mut model: VecDeque<Vec<u8>> = VecDeque::new();
        for edit in edits {
            match edit {
                Edit::Push(back, text) => {
                    list.push(end(back), &text);
                    if back { model.push_back(text) } else { model.push_front(text) }
                }
                Edit::Pop(back) => {
                    let popped = list.pop(end(back), |element| element.text().into_owned());
                    prop_assert_eq!(popped, if back { model.pop_back() } else { model.pop_front() });
                }
                Edit::Insert(after, at, text) => {
                    let done =
                        if after { list.insert_after(at, &text) } else { list.insert_before(at, &text) };
                    prop_assert_eq!(done, at < model.len());
                    if done {
                        model.insert(at + usize::from(after), text);
                    }
                }
                Edit::Set(at, text) => {
                    prop_assert_eq!(list.set(at, &text), at < model.len());
                    if let Some(place) = model.get_mut(at) {
                        *place = text;
                    }
                }
                Edit::RemoveRange(at, count) => {
                    let range = at.min(model.len())..(at + count).min(model.len());
                    let blocks = list.blocks().len();
                    let (removed, taken) = list.take_range(at..at + count);
                    prop_assert_eq!(removed, range.len());
                    prop_assert_eq!(list.blocks().len() + taken.len(), blocks, "blocks stay or are handed over");
                    model.drain(range);
                }
                Edit::Trim(front, back) => {
                    let keep = front..model.len().saturating_sub(back);
                    list.trim(keep.clone());
                    model.truncate(keep.end);
                    model.drain(..front.min(model.len()));
                }
                Edit::RemoveEqual(at, count, back) => {
                    let text = model.get(at).cloned().unwrap_or_default();
                    let mut places: Vec<usize> = (0..model.len()).filter(|&at| model[at] == text).collect();
                    if back {
                        places.reverse();
                    }
                    places.truncate(count);
                    prop_assert_eq!(list.remove_equal(&text, count, end(back)), places.len());
                    places.sort_unstable();
                    places.into_iter().rev().for_each(|at| drop(model.remove(at)));
                }
                Edit::Rebuild => {
                    let mut rebuilt = BlockDeque::new(list.limit());
                    for block in list.blocks() {
                        match block {
                            BlockRef::Packed(listpack) => {
                                rebuilt.push_packed(Listpack::from_bytes(listpack.bytes().to_vec()).unwrap());
                            }
                            BlockRef::Plain(text) => rebuilt.push_plain(text),
                        }
                    }
                    check(&list.clone(), model.make_contiguous());
                    list = rebuilt;
                }
            }
            check(&list, model.make_contiguous());
        }
        for index in 0..=model.len() {
            prop_assert_eq!(list.get(index).map(|element| element.text().into_owned()), model.get(index).cloned());
            let tail = texts(list.range(index..model.len() + 3));
            prop_assert!(tail.iter().eq(model.iter().skip(index)));
            let mut inner = list.range(index / 2..index);
            let mut seen = (Vec::new(), VecDeque::new());
            while let Some(element) = inner.next_back() {
                seen.1.push_front(element.text().into_owned());
                seen.0.extend(inner.next().map(|element| element.text().into_owned()));
            }
            prop_assert!(seen.0.iter().chain(&seen.1).eq(model.range(index / 2..index)));
        }
    }
}

/// Makes an edit without looking at the result.
fn apply(list: &mut BlockDeque, edit: &Edit) {
    match edit {
        Edit::Push(back, text) => list.push(end(*back), text),
        Edit::Pop(back) => _ = list.pop(end(*back), |_| ()),
        Edit::Insert(true, at, text) => _ = list.insert_after(*at, text),
        Edit::Insert(false, at, text) => _ = list.insert_before(*at, text),
        Edit::Set(at, text) => _ = list.set(*at, text),
        Edit::RemoveRange(at, count) => _ = list.take_range(*at..at + count),
        Edit::Trim(front, back) => list.trim(*front..list.len().saturating_sub(*back)),
        Edit::RemoveEqual(at, count, back) => {
            let text = list.get(*at).map(|element| element.text().into_owned()).unwrap_or_default();
            list.remove_equal(&text, *count, end(*back));
        }
        Edit::Rebuild => {
            let copy = list.clone();
            copy.carry_pasts(list);
            *list = copy;
        }
    }
}

/// The blocks that a past has given so far, beside those that it has to give.
struct Given {
    past: SharedPast,
    expected: Vec<Vec<Vec<u8>>>,
    given: Vec<Vec<Vec<u8>>>,
    noted_bytes: Arc<AtomicUsize>,
}

impl Given {
    fn begin(list: &BlockDeque) -> Self {
        let noted_bytes = Arc::new(AtomicUsize::new(0));
        let noted = Arc::clone(&noted_bytes);
        let past = list.remember(move |bytes| _ = noted.fetch_add(bytes, Relaxed));
        Self { past, expected: list.blocks.iter().map(Self::texts).collect(), given: Vec::new(), noted_bytes }
    }

    fn texts(block: &Block) -> Vec<Vec<u8>> {
        match block.view() {
            BlockRef::Packed(listpack) => texts(listpack.iter()),
            BlockRef::Plain(text) => vec![text.to_vec()],
        }
    }

    fn take(&mut self, list: &BlockDeque, count: usize) {
        for _ in 0..count {
            let mut past = lock_past(&self.past);
            let before = past.kept_bytes();
            let list = list.has_past(&self.past).then_some(list);
            let Some((block, is_copy)) = past.give(list) else { return };
            assert_eq!(before - past.kept_bytes(), if is_copy { 0 } else { block.heap_bytes() });
            self.noted_bytes.fetch_sub(before - past.kept_bytes(), Relaxed);
            self.given.push(Self::texts(&block));
        }
    }

    /// Takes the rest.
    fn finish(mut self, list: &BlockDeque) {
        let left = lock_past(&self.past).left();
        self.take(list, left);
        assert!(self.given == self.expected, "{:?} instead of {:?}", self.given, self.expected);
        let mut past = lock_past(&self.past);
        assert_eq!((past.left(), past.give(Some(list)).is_none()), (0, true));
        assert_eq!(past.kept_bytes(), self.noted_bytes.load(Relaxed));
        past.end();
    }
}

proptest! {
    /// The blocks of an instant are given one by one as they were, in order, while the deque changes; two instants at
    /// once.
    #[test]
    fn snapshot_gives_the_blocks_of_its_instant(
        limit in prop::sample::select(vec![-1, 1, 2, 3, 7]),
        before in prop::collection::vec(edit(), 0..60),
        steps in prop::collection::vec((edit(), 0..4usize, any::<bool>()), 1..60),
    ) {
        let mut list = BlockDeque::new(BlockLimit::from_directive(limit));
        before.iter().for_each(|edit| apply(&mut list, edit));
        let mut running = vec![Given::begin(&list)];
        for (edit, count, first) in &steps {
            apply(&mut list, edit);
            let at = if *first { 0 } else { running.len() - 1 };
            running[at].take(&list, *count);
            if running.len() == 1 && *count == 3 {
                running.push(Given::begin(&list));
            }
        }
        running.into_iter().for_each(|past| past.finish(&list));
        list.push_back(b"new");
        prop_assert!(list.pasts.are_none(), "what is over is forgotten with the next change");
    }
}

/// A list that becomes compact takes its last block away from the deque.
#[test]
fn snapshot_outlives_the_deque() {
    let mut list = of(3, "a b c d e");
    let given = Given::begin(&list);
    list.remove_range(3..5);
    let listpack = list.take_single_listpack().unwrap();
    assert_eq!((listpack.len(), list.has_past(&given.past)), (3, false));
    given.finish(&list);
}

/// A list that no command changes has been in many snapshots.
#[test]
fn pasts_that_are_over_are_forgotten() {
    let mut list = of(2, "a b c d e");
    for _ in 0..3 {
        let given = Given::begin(&list);
        let noted_bytes = Arc::clone(&given.noted_bytes);
        given.finish(&list);
        assert_eq!((list.pasts.own().len(), Arc::strong_count(&noted_bytes)), (1, 1));
    }
}

/// Blocks that are cut off as a whole are not copied.
#[test]
fn blocks_cut_off_whole_are_not_copied() {
    let mut list = of(2, "a b c d e f g h");
    let BlockRef::Packed(third) = list.blocks[2].view() else { unreachable!() };
    let third = third.bytes().as_ptr();
    let given = Given::begin(&list);
    let (removed, taken) = list.take_range(1..8);
    assert_eq!((removed, taken.len()), (7, 0));
    let mut past = lock_past(&given.past);
    let kept: Vec<_> = std::iter::from_fn(|| past.give(Some(&list))).collect();
    let BlockRef::Packed(same) = kept[2].0.view() else { unreachable!() };
    assert_eq!((kept.len(), same.bytes().as_ptr()), (4, third));
}
