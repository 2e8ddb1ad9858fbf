//! Edits of a packed value: the bytes that change are replaced, then the headers around them, from the inside out.
//!
//! An edit costs O(bytes behind it) and a header for each container around it; if the new value is as long as the old
//! one, nothing but those bytes is written.

use super::{
    Container, SAMPLE_EVERY, SCANNED_MAX, compare_names, item_bytes, push_header, sample_count, string_at,
    value_bytes,
};

/// A container on the way to the edited place.
struct Ancestor {
    /// Offset of its tag.
    at: usize,
    /// The item that the way goes through.
    ordinal: usize,
}

/// A change of the items of a container.
struct Splice<'a> {
    /// The first item that is replaced, and how many are.
    first: usize,
    removed: usize,
    /// The items that take their place.
    items: &'a [u8],
    added: usize,
}

/// The place of a value in its block.
///
/// # Panics
/// If there is no such value.
pub(crate) fn reference_value(bytes: &[u8], steps: &[u32]) -> usize {
    let mut at = 0;
    for &step in steps {
        at += Container::at(&bytes[at..]).expect("a step leads into a container").value_at(step as usize);
    }
    at
}

/// The containers on a way, from the outside in, and where it ends.
fn ancestors(bytes: &[u8], steps: &[u32]) -> (Vec<Ancestor>, usize) {
    let mut at = 0;
    let mut ancestors = Vec::with_capacity(steps.len());
    for &step in steps {
        let ordinal = step as usize;
        ancestors.push(Ancestor { at, ordinal });
        at += Container::at(&bytes[at..]).expect("a step leads into a container").value_at(ordinal);
    }
    (ancestors, at)
}

/// Puts a value into the place of the one that `steps` lead to.
pub(crate) fn replace(bytes: &mut Vec<u8>, steps: &[u32], value: &[u8]) {
    let (ancestors, at) = ancestors(bytes, steps);
    let old = value_bytes(&bytes[at..]);
    if old == value.len() {
        bytes[at..at + old].copy_from_slice(value);
        return;
    }
    put(bytes, at, old, value);
    fix(bytes, &ancestors, value.len() as isize - old as isize);
}

/// Removes the item that `steps` lead to.
///
/// # Panics
/// If there are no steps.
pub(crate) fn remove(bytes: &mut Vec<u8>, steps: &[u32], count: usize) {
    let (last, steps) = steps.split_last().expect("the root is no item");
    splice(bytes, steps, &Splice { first: *last as usize, removed: count, items: &[], added: 0 });
}

/// Puts items (of an object: names with values) before the item `at` of the container that `steps` lead to.
pub(crate) fn insert(bytes: &mut Vec<u8>, steps: &[u32], at: usize, items: &[u8], added: usize) {
    splice(bytes, steps, &Splice { first: at, removed: 0, items, added });
}

/// Replaces bytes. The vector grows to an eighth more than is needed, at most, and shrinks when a quarter of it is unused.
fn put(bytes: &mut Vec<u8>, at: usize, old: usize, new: &[u8]) {
    let len = bytes.len() - old + new.len();
    if len > bytes.capacity() {
        let spare = (len / 8).min(512);
        bytes.reserve_exact(len + spare - bytes.len());
    }
    let end = bytes.len();
    if new.len() > old {
        bytes.resize(len, 0);
        bytes.copy_within(at + old..end, at + new.len());
    } else {
        bytes.copy_within(at + old..end, at + new.len());
        bytes.truncate(len);
    }
    bytes[at..at + new.len()].copy_from_slice(new);
    if bytes.capacity() - len > len / 4 + 64 {
        bytes.shrink_to(len + len / 16);
    }
}

/// Changes the number of items of a container.
fn splice(bytes: &mut Vec<u8>, steps: &[u32], change: &Splice<'_>) {
    let (ancestors, at) = ancestors(bytes, steps);
    let container = Container::at(&bytes[at..]).expect("a container is edited");
    let (object, old_count, old_bytes) = (container.is_object(), container.count(), container.bytes.len());
    let old_header = container.items;
    let from = container.item_at(change.first);
    let to = container.item_at(change.first + change.removed);
    let count = old_count - change.removed + change.added;

    // The sorted ordinals of the members that stay, as they will be.
    let mut order: Vec<u32> = Vec::new();
    let sorts = object && count > SCANNED_MAX;
    if sorts && old_count > SCANNED_MAX {
        order.reserve(count);
        for place in 0..old_count {
            let ordinal = container.sorted(place);
            if ordinal < change.first {
                order.push(ordinal as u32);
            } else if ordinal >= change.first + change.removed {
                order.push((ordinal - change.removed + change.added) as u32);
            }
        }
    }
    put(bytes, at + from, to - from, change.items);
    let items_len = old_bytes - old_header - (to - from) + change.items.len();
    let items = &bytes[at + old_header..at + old_header + items_len];

    let mut starts = Vec::with_capacity(count);
    let mut offset = 0;
    for _ in 0..count {
        starts.push(offset as u32);
        offset += item_bytes(object, &items[offset..]);
    }
    debug_assert_eq!(offset, items.len());
    if sorts {
        let name = |ordinal: u32| string_at(&items[starts[ordinal as usize] as usize..]).0;
        if old_count > SCANNED_MAX {
            for ordinal in change.first..change.first + change.added {
                let ordinal = ordinal as u32;
                let place = order.partition_point(|&other| compare_names(name(other), name(ordinal)).is_lt());
                order.insert(place, ordinal);
            }
        } else {
            order.extend(0..count as u32);
            order.sort_unstable_by(|&a, &b| compare_names(name(a), name(b)));
        }
    }
    let mut header = Vec::with_capacity(old_header + 16);
    let samples = (0..sample_count(count)).map(|sample| starts[(sample + 1) * SAMPLE_EVERY] as usize);
    push_header(&mut header, object, count, items.len(), samples, &order);
    let new_bytes = header.len() + items_len;
    put(bytes, at, old_header, &header);
    fix(bytes, &ancestors, new_bytes as isize - old_bytes as isize);
}

/// Writes the headers of the containers around a place anew whose bytes have become more by `change`.
fn fix(bytes: &mut Vec<u8>, ancestors: &[Ancestor], mut change: isize) {
    let mut header = Vec::new();
    let mut order = Vec::new();
    for ancestor in ancestors.iter().rev() {
        if change == 0 {
            return;
        }
        let at = ancestor.at;
        // The header still has the size before the edit: nothing behind the header may be read by it.
        let tag = bytes[at];
        let width = super::width_of(tag);
        let object = super::is_object(tag);
        let old_bytes = 1 + width + super::number_at(bytes, at + 1, width);
        let count = super::number_at(bytes, at + 1 + width, width);
        let samples_at = at + 1 + 2 * width;
        let sorted_width = super::sorted_width(object, count);
        let sorted_at = samples_at + sample_count(count) * width;
        let old_header = sorted_at + count * sorted_width - at;
        order.clear();
        if sorted_width > 0 {
            let ordinal =
                |place| super::number_at(bytes, sorted_at + place * sorted_width, sorted_width) as u32;
            order.extend((0..count).map(ordinal));
        }
        let items_bytes = (old_bytes - old_header).checked_add_signed(change).expect("items have a size");
        header.clear();
        let samples: Vec<usize> = (0..sample_count(count))
            .map(|sample| {
                let offset = super::number_at(bytes, samples_at + sample * width, width);
                let moves = (sample + 1) * SAMPLE_EVERY > ancestor.ordinal;
                if moves { offset.checked_add_signed(change).expect("an item has a place") } else { offset }
            })
            .collect();
        push_header(&mut header, object, count, items_bytes, samples.into_iter(), &order);
        if header.len() == old_header {
            bytes[at..at + old_header].copy_from_slice(&header);
        } else {
            put(bytes, at, old_header, &header);
        }
        change = (header.len() + items_bytes) as isize - old_bytes as isize;
    }
}
