//! Ropes beside plain vectors.

use super::*;
use proptest::{collection::vec, prelude::*};

const SMALL: usize = 8;

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<u8>),
    Grow(usize),
    Write(usize, Vec<u8>),
    /// Begins anew with bytes that were copied, or taken over.
    Copy(Vec<u8>),
    Adopt(Vec<u8>),
    /// Keeps a clone, or a share of one chunk.
    Keep,
    Share(usize),
    /// Forgets the oldest clone.
    Forget,
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![4 => vec(any::<u8>(), 0..5), 2 => vec(any::<u8>(), 0..40), 1 => vec(any::<u8>(), SMALL)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => bytes().prop_map(Step::Append),
        2 => (0..60usize).prop_map(Step::Grow),
        4 => (any::<usize>(), bytes()).prop_map(|(at, bytes)| Step::Write(at, bytes)),
        1 => bytes().prop_map(Step::Copy),
        2 => bytes().prop_map(Step::Adopt),
        2 => Just(Step::Keep),
        2 => any::<usize>().prop_map(Step::Share),
        2 => Just(Step::Forget),
    ]
}

fn check<const CHUNK_BYTES: usize>(rope: &Rope<CHUNK_BYTES>, model: &[u8]) {
    assert_eq!(rope.to_vec(), model);
    assert_eq!((rope.len(), rope.is_empty()), (model.len(), model.is_empty()));
    assert!(*rope == *model);
    let changed: Vec<u8> =
        model.iter().rev().enumerate().map(|(at, byte)| byte ^ u8::from(at == 0)).rev().collect();
    assert!(model.is_empty() || *rope != *changed);
    assert_eq!(rope.chunks.len(), model.len().div_ceil(CHUNK_BYTES));
    assert_eq!(rope.chunk_heap_bytes, rope.chunks.iter().map(Chunk::heap_bytes).sum::<usize>());
    for (at, byte) in model.iter().enumerate() {
        assert_eq!(rope.get(at), Some(*byte));
    }
    assert_eq!(rope.get(model.len()), None);
}

proptest! {
    #[test]
    fn rope_is_a_vector_and_its_clones_stay_as_they_were(steps in vec(step(), 1..40)) {
        let (mut rope, mut model) = (Rope::<SMALL>::default(), Vec::new());
        let mut clones: Vec<(Rope<SMALL>, Vec<u8>)> = Vec::new();
        let mut shares = Vec::new();
        for step in steps {
            match step {
                Step::Append(bytes) => {
                    rope.append(&bytes);
                    model.extend(bytes);
                }
                Step::Grow(len) => {
                    rope.grow(len);
                    model.resize(model.len().max(len), 0);
                }
                Step::Write(at, bytes) => {
                    let at = at % (model.len() + 1);
                    let bytes = &bytes[..bytes.len().min(model.len() - at)];
                    rope.write(at, bytes);
                    model[at..at + bytes.len()].copy_from_slice(bytes);
                }
                Step::Copy(bytes) => (rope, model) = (Rope::from(&bytes[..]), bytes),
                Step::Adopt(bytes) => (rope, model) = (Rope::from(bytes.clone()), bytes),
                Step::Keep => clones.push((rope.clone(), model.clone())),
                Step::Share(at) if !model.is_empty() => {
                    let at = at % model.len();
                    let (chunk, range) = rope.chunks(at..at + 1).next().unwrap();
                    shares.push((chunk.share(), range.start, model[at]));
                }
                Step::Forget if !clones.is_empty() => drop(clones.remove(0)),
                Step::Share(_) | Step::Forget => {}
            }
            check(&rope, &model);
        }
        for (clone, model) in &clones {
            check(clone, model);
        }
        for (share, at, byte) in shares {
            prop_assert_eq!((*share).as_ref()[at], byte);
        }
    }

    #[test]
    fn ranges_are_read_in_order(model in bytes(), from in 0..50usize, to in 0..50usize, length in 0..30usize) {
        let rope = Rope::<SMALL>::from(&model[..]);
        let range = from.min(model.len())..to.min(model.len());
        let expected = model.get(range).unwrap_or_default();
        let slices: Vec<&[u8]> = rope.slices(from..to).collect();
        prop_assert!(slices.iter().all(|slice| !slice.is_empty()));
        prop_assert_eq!(slices.concat(), expected);
        let backwards: Vec<&[u8]> = rope.slices(from..to).rev().collect();
        prop_assert!(backwards.iter().eq(slices.iter().rev()));
        let mut out = vec![0; length];
        let read = rope.read(from, &mut out);
        prop_assert_eq!(&out[..read], rope.slices(from..from + length).collect::<Vec<_>>().concat());
    }
}

#[test]
fn rope_takes_no_memory_for_unwritten_bytes() {
    let mut rope = Rope::<4096>::default();
    rope.grow(1 << 30);
    assert_eq!(rope.heap_bytes(), rope.list_bytes());
    rope.write(1 << 20, b"x");
    assert_eq!(rope.chunk_heap_bytes, Chunk::new(vec![0; 4096]).heap_bytes());
    assert_eq!((rope.get(1 << 20), rope.get((1 << 20) - 1)), (Some(b'x'), Some(0)));
}

#[test]
fn rope_change_copies_one_of_many_shared_chunks() {
    let mut rope = Rope::<4096>::from(vec![7; 10 * 4096 + 5]);
    let clone = rope.clone();
    rope.write(3 * 4096 + 1, &[9, 9]);
    let same = |index: &usize| std::ptr::eq(rope.chunks[*index].bytes(), clone.chunks[*index].bytes());
    assert_eq!((0..11).filter(|index| !same(index)).collect::<Vec<_>>(), [3]);
    assert_eq!(clone.get(3 * 4096 + 1), Some(7));
}

#[test]
fn rope_changes_unshared_chunks_in_place() {
    let mut rope = Rope::<4096>::from(vec![7; 2 * 4096]);
    let place = rope.chunks[1].bytes().as_ptr();
    rope.write(4096, &[9; 4096]);
    rope.write(5000, &[8]);
    assert_eq!(rope.chunks[1].bytes().as_ptr(), place);
}

#[test]
fn small_pieces_grow_the_last_chunk_by_doubling() {
    let mut rope = Rope::<65536>::from(vec![7; 65536]);
    let mut capacities = Vec::new();
    for _ in 0..65536 / 64 {
        rope.append(&[1; 64]);
        let takes = rope.chunks[1].heap_bytes();
        if capacities.last() != Some(&takes) {
            capacities.push(takes);
        }
    }
    assert!(capacities.len() <= 5, "{capacities:?}");
    assert_eq!(rope.chunks.len(), 2);
}
