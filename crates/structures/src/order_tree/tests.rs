use std::collections::BTreeSet;

use proptest::prelude::*;

use super::node::Usage;
use super::*;

/// Members whose bytes are chosen by the test; a handle's number finds them.
#[derive(Default)]
struct Names(Vec<Vec<u8>>);

const BASE: u32 = 1 << 24;

impl Names {
    fn add(&mut self, name: impl Into<Vec<u8>>) -> Handle {
        self.0.push(name.into());
        Handle::from_raw(BASE + self.0.len() as u32 - 1).unwrap()
    }
}

impl Members for Names {
    fn bytes(&self, handle: Handle) -> &[u8] {
        &self.0[(handle.raw() - BASE) as usize]
    }
}

/// Holds the tree to every invariant its documentation states.
fn check(tree: &OrderTree, names: &Names) {
    fn below(node: &Node, edges: (bool, bool), usage: &mut Usage, order: &mut Vec<Scored>) -> usize {
        let inside = !edges.0 && !edges.1;
        match node {
            Node::Leaf(leaf) => {
                usage.leaves += 1;
                assert!(leaf.len() >= if inside { LEAF_MAX / 2 } else { 1 });
                order.extend((0..leaf.len()).map(|at| leaf.get(at)));
                0
            }
            Node::Inner(inner) => {
                usage.inners += 1;
                assert!(inner.len() >= if inside { FANOUT_MAX / 2 } else { 1 });
                let mut heights = BTreeSet::new();
                for index in 0..inner.len() {
                    let start = order.len();
                    let edges = (edges.0 && index == 0, edges.1 && index + 1 == inner.len());
                    heights.insert(below(inner.child(index), edges, usage, order));
                    assert_eq!(inner.first(index), order[start]);
                    assert_eq!(
                        inner.count_before(index + 1) - inner.count_before(index),
                        order.len() - start
                    );
                }
                assert_eq!(heights.len(), 1, "all leaves are equally deep");
                1 + heights.first().unwrap()
            }
        }
    }
    let (mut usage, mut order) = (Usage::default(), Vec::new());
    if let Some(root) = &tree.root {
        below(root, (true, true), &mut usage, &mut order);
        assert!(!matches!(root, Node::Inner(inner) if inner.len() < 2));
    }
    assert_eq!(usage, tree.usage);
    assert_eq!(order.len(), tree.len());
    assert!(order.is_sorted_by(|a, b| a.precedes(b.score, names.bytes(b.handle), names)));
    assert!(tree.iter().eq(order.iter().copied()));
    assert!(tree.iter().rev().eq(order.iter().rev().copied()));
}

/// A sequence that looks random and is the same every time.
fn scramble(number: u64) -> u64 {
    let mixed = (number ^ number >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 11
}

fn bytes_an_element(tree: &OrderTree) -> f64 {
    tree.memory_bytes() as f64 / tree.len() as f64
}

#[test]
fn elements_take_at_most_sixteen_bytes() {
    const COUNT: u64 = 200_000;
    type Score = fn(u64) -> u64;
    let cases: [(&str, f64, Score); 4] = [
        ("ascending", 12.7, |number| number),
        ("descending", 12.7, |number| COUNT - number),
        ("random", 16.0, scramble),
        // Half at random, then ascending scores that all fall into one gap.
        ("a run in the middle", 16.0, |n| if n % 2 == 0 { scramble(n) } else { (1 << 52) + n }),
    ];
    for (name, limit, score) in cases {
        let mut names = Names::default();
        let mut tree = OrderTree::new();
        for number in 0..COUNT {
            let handle = names.add(number.to_be_bytes());
            tree.insert(score(number) as f64, handle, &names);
        }
        check(&tree, &names);
        let bytes = bytes_an_element(&tree);
        println!("{name}: {bytes:.2} bytes an element");
        assert!(bytes <= limit, "{name}: {bytes:.2} bytes an element");
        let rebuilt = OrderTree::from_sorted(&tree);
        check(&rebuilt, &names);
        assert!(bytes_an_element(&rebuilt) < 12.6);
    }
}

#[test]
fn equal_scores_are_ordered_by_bytes_and_both_zeros_are_equal() {
    let mut names = Names::default();
    let mut tree = OrderTree::new();
    let inputs =
        [("b", 0.0), ("a", -0.0), ("ab", 0.0), ("", -0.0), ("z", f64::NEG_INFINITY), ("c", f64::INFINITY)];
    for (name, score) in inputs {
        let handle = names.add(name);
        tree.insert(score, handle, &names);
    }
    let order: Vec<&[u8]> = tree.iter().map(|entry| names.bytes(entry.handle)).collect();
    assert_eq!(order, [&b"z"[..], b"", b"a", b"ab", b"b", b"c"]);
    assert_eq!((tree.count_below(0.0), tree.count_up_to(-0.0)), (1, 5));
    assert_eq!(tree.count_up_to(f64::INFINITY), 6);
    assert_eq!(tree.partition_point(|entry| entry.precedes(0.0, b"ab", &names)), 3);
}

#[test]
fn queue_keeps_its_nodes_full_and_gives_all_back() {
    let mut names = Names::default();
    let mut tree = OrderTree::new();
    for number in 0..60_000u32 {
        let handle = names.add(number.to_be_bytes());
        tree.insert(f64::from(number), handle, &names);
        if number >= 20_000 {
            let mut popped = None;
            assert_eq!(tree.remove_range(0..1, |entry| popped = Some(entry.score)), 1);
            assert_eq!(popped, Some(f64::from(number - 20_000)));
        }
    }
    check(&tree, &names);
    assert!(bytes_an_element(&tree) < 13.0);
    let mut sum = 0;
    assert_eq!(tree.remove_range(100..19_900, |_| sum += 1), 19_800);
    assert_eq!(sum, 19_800);
    check(&tree, &names);
    assert_eq!(tree.remove_range(0..usize::MAX, |_| ()), 200);
    assert_eq!((tree.len(), tree.memory_bytes()), (0, 0));
    check(&tree, &names);
}

#[test]
fn cut_of_a_large_part_takes_few_pieces() {
    let mut names = Names::default();
    let mut tree = OrderTree::from_sorted(
        (0..500_000u32)
            .map(|number| Scored { score: f64::from(number), handle: names.add(number.to_be_bytes()) }),
    );
    let before = tree.memory_bytes();
    let cut = tree.cut_range(1_000..499_000);
    check(&tree, &names);
    cut.iter().for_each(|tree| check(tree, &names));
    assert!(cut.len() < 4 * FANOUT_MAX, "{} pieces", cut.len());
    assert!(cut.iter().flatten().map(|entry| entry.score).eq((1_000..499_000).map(f64::from)));
    let after = tree.memory_bytes() + cut.iter().map(OrderTree::memory_bytes).sum::<usize>();
    assert!(after.abs_diff(before) < before / 100);
}

#[derive(Clone, Debug)]
enum Edit {
    /// Adds this many elements with scores from a start, in steps.
    Add(i32, i32, u16),
    Remove(prop::sample::Index),
    Update(prop::sample::Index, i32),
    RemoveRange(prop::sample::Index, u16),
    CutRange(prop::sample::Index, u16),
    RemoveEach(u8),
}

fn edit() -> impl Strategy<Value = Edit> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => (0..1000i32, -3..4i32, 0..600u16).prop_map(|(start, step, count)| Edit::Add(start, step, count)),
        3 => index().prop_map(Edit::Remove),
        3 => (index(), 0..1000i32).prop_map(|(at, score)| Edit::Update(at, score)),
        2 => (index(), 0..800u16).prop_map(|(at, count)| Edit::RemoveRange(at, count)),
        2 => (index(), 0..2000u16).prop_map(|(at, count)| Edit::CutRange(at, count)),
        1 => (2..9u8).prop_map(Edit::RemoveEach),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn edits_agree_with_a_sorted_vec(edits in prop::collection::vec(edit(), 1..40)) {
        let mut names = Names::default();
        let mut tree = OrderTree::new();
        let mut model: Vec<(i32, Vec<u8>, Handle)> = Vec::new();
        for edit in edits {
            match edit {
                Edit::Add(start, step, count) => for number in 0..i32::from(count) {
                    let score = start + number * step;
                    let name = scramble(names.0.len() as u64).to_be_bytes()[4..].to_vec();
                    let handle = names.add(name.clone());
                    tree.insert(f64::from(score), handle, &names);
                    let entry = (score, name, handle);
                    let at = model.partition_point(|other| *other < entry);
                    model.insert(at, entry);
                },
                Edit::Remove(at) => if !model.is_empty() {
                    let (score, _, handle) = model.remove(at.index(model.len()));
                    prop_assert!(!tree.remove(f64::from(score) + 0.5, handle, &names));
                    prop_assert!(tree.remove(f64::from(score), handle, &names));
                    prop_assert!(!tree.remove(f64::from(score), handle, &names));
                },
                Edit::Update(at, new) => if !model.is_empty() {
                    let (old, name, handle) = model.remove(at.index(model.len()));
                    // Half of them small steps, which mostly stay in place.
                    let new = if new % 2 == 0 { old + new % 5 - 2 } else { new };
                    prop_assert!(tree.update(f64::from(old), f64::from(new), handle, &names));
                    let entry = (new, name, handle);
                    let at = model.partition_point(|other| *other < entry);
                    model.insert(at, entry);
                },
                Edit::RemoveRange(at, count) => {
                    let start = at.index(model.len() + 1);
                    let end = start + usize::from(count);
                    let mut gone = Vec::new();
                    let removed = tree.remove_range(start..end, |entry| gone.push(entry.handle));
                    let expected: Vec<_> =
                        model.drain(start..end.min(model.len())).map(|entry| entry.2).collect();
                    prop_assert_eq!(removed, expected.len());
                    prop_assert_eq!(gone, expected);
                }
                Edit::CutRange(at, count) => {
                    let start = at.index(model.len() + 1);
                    let end = (start + usize::from(count)).min(model.len());
                    let cut = tree.cut_range(start..start + usize::from(count));
                    let mut gone = Vec::new();
                    for tree in &cut {
                        check(tree, &names);
                        prop_assert!(!tree.is_empty());
                        gone.extend(tree.iter().map(|entry| entry.handle));
                    }
                    prop_assert_eq!(gone, model.drain(start..end).map(|entry| entry.2).collect::<Vec<_>>());
                }
                Edit::RemoveEach(step) => {
                    let mut number = 0;
                    model.retain(|(score, _, handle)| {
                        number += 1;
                        let keep = number % usize::from(step) == 0;
                        assert!(keep || tree.remove(f64::from(*score), *handle, &names));
                        keep
                    });
                }
            }
            check(&tree, &names);
            prop_assert!(tree.iter().map(|entry| entry.handle).eq(model.iter().map(|entry| entry.2)));
        }
        for (rank, (score, name, handle)) in model.iter().enumerate() {
            let score = f64::from(*score);
            prop_assert_eq!(tree.rank(score, *handle, &names), Some(rank));
            prop_assert_eq!(tree.get(rank), Some(Scored { score, handle: *handle }));
            prop_assert_eq!(tree.partition_point(|entry| entry.precedes(score, name, &names)), rank);
            prop_assert_eq!(tree.run(rank).1[0], *handle);
        }
        prop_assert_eq!(tree.get(model.len()), None);
        for score in [-2000, 0, 17, 500, 999, 3000] {
            let below = model.partition_point(|entry| entry.0 < score);
            let up_to = model.partition_point(|entry| entry.0 <= score);
            prop_assert_eq!(tree.count_below(f64::from(score)), below);
            prop_assert_eq!(tree.count_up_to(f64::from(score)), up_to);
            let expected: Vec<_> = model[below..up_to].iter().map(|entry| entry.2).collect();
            let mut range = tree.range(below..up_to);
            let mut both_ends = (Vec::new(), Vec::new());
            while let Some(entry) = range.next() {
                both_ends.0.push(entry.handle);
                both_ends.1.extend(range.next_back().map(|entry| entry.handle));
            }
            both_ends.0.extend(both_ends.1.into_iter().rev());
            prop_assert_eq!(both_ends.0, expected);
        }
    }
}
