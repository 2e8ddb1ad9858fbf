//! JSON.MERGE: RFC 7396, without recursion.

use super::{
    Refusal, places,
    set::{check_depth, new_member, outermost},
};
use crate::{
    Builder, DEPTH_MAX, Document, Kind, Location, ValueRef, packed::EMPTY_OBJECT, path::Path, value::Items,
};

/// Merges a patch into every match; a path without a match gets it as it is, as a new member. Returns whether there was
/// a place for it.
pub fn merge(document: &mut Document, path: &Path, patch: &Document) -> Result<bool, Refusal> {
    let locations = places(document, path)?;
    if locations.is_empty() {
        return Ok(match new_member(document, path)? {
            Some((object, name)) => {
                check_depth(&object, patch.root())?;
                document.set_member(&object, &name, patch);
                true
            }
            None => false,
        });
    }
    let deepest = locations.iter().map(Vec::len).max().unwrap_or(0);
    if deepest + patch.root().depth() >= DEPTH_MAX {
        return Err(Refusal::TooDeep);
    }
    let mut locations = if patch.root().is_object() { locations } else { outermost(locations) };
    // Matches below a match come first, while they are there.
    locations.sort_unstable();
    for location in locations.into_iter().rev() {
        merge_at(document, location, patch.root());
    }
    Ok(true)
}

fn merge_at(document: &mut Document, location: Location, patch: ValueRef<'_>) {
    let mut waiting = vec![(location, patch)];
    while let Some((location, patch)) = waiting.pop() {
        if !patch.is_object() {
            document.replace(&location, &Document::copied(patch));
            continue;
        }
        if !document.at(&location).is_some_and(|target| target.is_object()) {
            document.replace(&location, &Document::scalar(|out| out.push(EMPTY_OBJECT)));
        }
        // Removed members move others, so they go first; what comes after keeps the places of those that are there.
        let is_null = |value: &ValueRef<'_>| value.kind() == Kind::Null;
        for (name, _) in patch.items().filter(|(_, value)| is_null(value)) {
            if let Some((ordinal, _)) = document.at(&location).and_then(|target| target.find(name)) {
                document.remove(&below(&location, ordinal), 1);
            }
        }
        for (name, value) in patch.items().filter(|(_, value)| !is_null(value)) {
            match document.at(&location).and_then(|target| target.find(name)) {
                Some((ordinal, _)) => waiting.push((below(&location, ordinal), value)),
                None => document.set_member(&location, name, &without_nulls(value)),
            }
        }
    }
}

fn below(location: &[u32], ordinal: usize) -> Location {
    let mut below = location.to_vec();
    below.push(ordinal as u32);
    below
}

/// A copy of a value in which members that are null are left out, in objects that stand in nothing but objects.
fn without_nulls(value: ValueRef<'_>) -> Document {
    if !value.is_object() {
        return Document::copied(value);
    }
    let mut builder = Builder::new();
    let mut open: Vec<Items<'_>> = vec![value.items()];
    // An array is copied whole, with its nulls.
    let mut arrays = 0;
    builder.begin_object();
    while let Some(items) = open.last_mut() {
        let named = items.have_names();
        let Some((name, value)) = items.next() else {
            open.pop();
            arrays -= usize::from(arrays > 0);
            builder.end();
            continue;
        };
        if named {
            if arrays == 0 && value.kind() == Kind::Null {
                continue;
            }
            builder.name(name);
        }
        if value.is_object() || value.is_array() {
            if value.is_object() {
                builder.begin_object();
            } else {
                builder.begin_array();
            }
            if arrays > 0 || value.is_array() {
                arrays += 1;
            }
            open.push(value.items());
        } else {
            builder.scalar(value);
        }
    }
    builder.finish()
}
