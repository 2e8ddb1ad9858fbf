//! Evaluation of compiled paths: depth first, in document order, on a stack of its own.
//!
//! A frame is a value whose chosen items are visited one after another; the location of the innermost item is kept as one
//! list of ordinals, which frames shorten to their own depth. A descending segment first takes its selector at a value,
//! then goes on to the value's items.

use super::{FILTER_DEPTH_MAX, Segment, Selector};
use crate::{ValueRef, value::Items};

/// Steps that an evaluation may still take. A step is an item looked at, or sixteen bytes compared.
#[derive(Debug, Clone)]
pub struct Budget {
    left: u64,
}

/// An evaluation has spent its budget: the path costs more than the documents are worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooExpensive;

impl Default for Budget {
    /// Enough for a pass over the largest documents with a filter; about a second.
    fn default() -> Self {
        Self::of(50_000_000)
    }
}

impl Budget {
    /// A budget of this number of steps.
    pub fn of(steps: u64) -> Self {
        Self { left: steps }
    }

    #[inline]
    pub(super) fn spend(&mut self, steps: u64) -> Result<(), TooExpensive> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(TooExpensive)
            }
        }
    }
}

/// Which items of a value come next.
enum Chosen<'p, 'a> {
    /// All, or those that pass the segment's filter.
    Items(Items<'a>, u32),
    Names(std::slice::Iter<'p, Box<[u8]>>),
    Indexes(std::slice::Iter<'p, i64>),
    Slice(std::iter::StepBy<std::ops::Range<usize>>),
    /// Each item, to whose descendants the segment's selector is applied too (`..`).
    Below(Items<'a>, u32),
}

struct Frame<'p, 'a> {
    value: ValueRef<'a>,
    /// The segment whose selector chooses.
    segment: usize,
    /// Ordinals that lead to the value.
    depth: usize,
    chosen: Chosen<'p, 'a>,
}

/// The item that an index means: from the end if negative; what would be before the first is the first.
pub(super) fn index_of(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { (len as i64).saturating_add(index).max(0) } else { index };
    usize::try_from(index).ok().filter(|&index| index < len)
}

fn bound(index: i64, len: usize) -> usize {
    let index = if index < 0 { (len as i64).saturating_add(index).max(0) } else { index };
    usize::try_from(index).unwrap_or(usize::MAX).min(len)
}

/// Shows what the segments match, from `start` on, to `visit`, until it returns false. `filters` counts those around.
pub(super) fn evaluate<'a>(
    segments: &[Segment],
    root: ValueRef<'a>,
    start: ValueRef<'a>,
    filters: usize,
    budget: &mut Budget,
    mut visit: impl FnMut(&[u32], ValueRef<'a>) -> bool,
) -> Result<(), TooExpensive> {
    debug_assert!(filters <= FILTER_DEPTH_MAX);
    let mut location: Vec<u32> = Vec::new();
    let mut frames: Vec<Frame<'_, 'a>> = Vec::new();
    // A value that segments before `segment` have matched, at the end of the location.
    let mut matched = Some((start, 0));
    loop {
        if let Some((value, segment)) = matched.take() {
            let Some(step) = segments.get(segment) else {
                if !visit(&location, value) {
                    return Ok(());
                }
                continue;
            };
            if step.descends {
                let chosen = Chosen::Below(value.items(), 0);
                frames.push(Frame { value, segment, depth: location.len(), chosen });
            }
            matched = select(step, segment, root, value, filters, location.len(), budget, &mut frames)?;
            continue;
        }
        let Some(frame) = frames.last_mut() else {
            return Ok(());
        };
        location.truncate(frame.depth);
        let segment = frame.segment;
        let next = match &mut frame.chosen {
            Chosen::Items(items, ordinal) | Chosen::Below(items, ordinal) => {
                items.next().map(|(_, value)| {
                    *ordinal += 1;
                    Some((*ordinal - 1, value))
                })
            }
            Chosen::Names(names) => names
                .next()
                .map(|name| frame.value.find(name).map(|(ordinal, value)| (ordinal as u32, value))),
            Chosen::Indexes(indexes) => indexes.next().map(|&index| {
                let index = index_of(index, frame.value.len())?;
                Some((index as u32, frame.value.item(index)?))
            }),
            Chosen::Slice(range) => range.next().map(|index| Some((index as u32, frame.value.item(index)?))),
        };
        let Some(next) = next else {
            frames.pop();
            continue;
        };
        budget.spend(1)?;
        let Some((ordinal, value)) = next else {
            continue;
        };
        let below = matches!(frame.chosen, Chosen::Below(..));
        if !below
            && let Selector::Filter(filter) = &segments[segment].selector
            && !filter.passes(root, value, filters, budget)?
        {
            continue;
        }
        location.push(ordinal);
        // Below a value the segment is taken again.
        matched = Some((value, if below { segment } else { segment + 1 }));
    }
}

/// Applies a selector to a value: a frame for what it chooses, or the value itself, if it passes a filter as a scalar.
#[allow(clippy::too_many_arguments, reason = "the state of one evaluation")]
fn select<'p, 'a>(
    step: &'p Segment,
    segment: usize,
    root: ValueRef<'a>,
    value: ValueRef<'a>,
    filters: usize,
    depth: usize,
    budget: &mut Budget,
    frames: &mut Vec<Frame<'p, 'a>>,
) -> Result<Option<(ValueRef<'a>, usize)>, TooExpensive> {
    let container = value.is_array() || value.is_object();
    let chosen = match &step.selector {
        Selector::Every if container => Chosen::Items(value.items(), 0),
        Selector::Filter(_) if container => Chosen::Items(value.items(), 0),
        Selector::Filter(filter) => {
            let passes = filter.passes(root, value, filters, budget)?;
            return Ok(passes.then_some((value, segment + 1)));
        }
        Selector::Names(names) if value.is_object() => Chosen::Names(names.iter()),
        Selector::Indexes(indexes) if value.is_array() => Chosen::Indexes(indexes.iter()),
        Selector::Slice { start, end, step } if value.is_array() => {
            let len = value.len();
            let range = bound(*start, len)..end.map_or(len, |end| bound(end, len));
            Chosen::Slice(range.step_by(*step))
        }
        _ => return Ok(None),
    };
    frames.push(Frame { value, segment, depth, chosen });
    Ok(None)
}
