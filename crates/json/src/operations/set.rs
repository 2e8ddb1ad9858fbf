//! Operations that put, remove and change values.

use super::{Answer, Refusal, answer_replacements, places};
use crate::{
    DEPTH_MAX, Document, Kind, Location, ValueRef,
    packed::{EMPTY_ARRAY, EMPTY_OBJECT, FALSE, TRUE},
    path::{NewMember, Path},
    write_text,
};

/// Whether JSON.SET wants the path to have no match, or to have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Condition {
    Always,
    IfMissing,
    IfThere,
}

/// Refuses a value that would stand too deep at a place.
pub(super) fn check_depth(location: &[u32], value: ValueRef<'_>) -> Result<(), Refusal> {
    // A scalar may stand in as many containers as there may be.
    if location.len() + value.depth() >= DEPTH_MAX { Err(Refusal::TooDeep) } else { Ok(()) }
}

/// JSON.SET of an existing key: puts the value in place of every match, or, if there is none, into the object that lacks
/// the path's last name. Returns whether it was set.
pub fn set(
    document: &mut Document,
    path: &Path,
    value: &Document,
    condition: Condition,
) -> Result<bool, Refusal> {
    if condition == Condition::IfMissing && !path.is_static() {
        return Err(Refusal::NotStatic);
    }
    let locations = places(document, path)?;
    if !locations.is_empty() {
        if condition == Condition::IfMissing {
            return Ok(false);
        }
        if let Some(deepest) = locations.iter().max_by_key(|location| location.len()) {
            check_depth(deepest, value.root())?;
        }
        let changes = outermost(locations).into_iter().map(|location| (location, Some(value.clone())));
        document.change_many(changes.collect());
        return Ok(true);
    }
    if condition == Condition::IfThere {
        return Ok(false);
    }
    match new_member(document, path)? {
        Some((object, name)) => {
            check_depth(&object, value.root())?;
            document.set_member(&object, &name, value);
            Ok(true)
        }
        None => Ok(false),
    }
}

/// The object and the name that a path without a match means; `None` if no object could get it.
pub(super) fn new_member(document: &Document, path: &Path) -> Result<Option<(Location, Vec<u8>)>, Refusal> {
    match path.new_member(document) {
        NewMember::Into(object, name) => Ok(Some((object, name.to_vec()))),
        NewMember::Nowhere => Ok(None),
        NewMember::OutOfRange => Err(Refusal::IndexOutOfRange),
        NewMember::NotStatic => Err(Refusal::NotStatic),
    }
}

/// The locations, sorted, without those below others.
pub(super) fn outermost(mut locations: Vec<Location>) -> Vec<Location> {
    locations.sort_unstable();
    let mut kept: Vec<Location> = Vec::with_capacity(locations.len());
    for location in locations {
        if kept.last().is_none_or(|outer| !location.starts_with(outer)) {
            kept.push(location);
        }
    }
    kept
}

/// JSON.DEL: removes all matches. `None`: the root is one of them, so the key goes.
pub fn delete(document: &mut Document, path: &Path) -> Result<Option<usize>, Refusal> {
    let locations = outermost(places(document, path)?);
    if locations.first().is_some_and(Vec::is_empty) {
        return Ok(None);
    }
    let count = locations.len();
    document.change_many(locations.into_iter().map(|location| (location, None)).collect());
    Ok(Some(count))
}

/// JSON.CLEAR: empties containers, makes numbers 0; how many changed.
pub fn clear(document: &mut Document, path: &Path) -> Result<usize, Refusal> {
    let mut changes = Vec::new();
    for location in outermost(places(document, path)?) {
        let value = document.at(&location).expect("a match has a place");
        let zero = value.as_number().is_some_and(|number| number.as_f64() == 0.0);
        let cleared = match value.kind() {
            Kind::Array if !value.is_empty() => EMPTY_ARRAY,
            Kind::Object if !value.is_empty() => EMPTY_OBJECT,
            Kind::Integer | Kind::Number if !zero => 0,
            _ => continue,
        };
        changes.push((location, Some(Document::scalar(|out| out.push(cleared)))));
    }
    let changed = changes.len();
    document.change_many(changes);
    Ok(changed)
}

/// JSON.TOGGLE: the new truth values.
pub fn toggle(document: &mut Document, path: &Path) -> Result<Answer<bool>, Refusal> {
    let missing = || Refusal::NoSuchBoolean(path.text().to_vec());
    answer_replacements(document, path, missing, |value| {
        let new = value
            .as_bool()
            .map(|old| (Document::scalar(|out| out.push(if old { FALSE } else { TRUE })), !old));
        Ok(new)
    })
}

/// JSON.STRAPPEND: the new lengths. `suffix` is a JSON string.
pub fn str_append(document: &mut Document, path: &Path, suffix: &Document) -> Result<Answer<usize>, Refusal> {
    let Some(suffix_text) = suffix.root().as_string() else {
        let mut found = Vec::new();
        write_text(suffix.root(), &mut found);
        return Err(Refusal::NotAString(found));
    };
    let missing = || Refusal::NoSuchString(path.text().to_vec());
    answer_replacements(document, path, missing, |value| {
        let whole = value.as_string().map(|text| [text, suffix_text].concat());
        Ok(whole.map(|text| (Document::string(&text), text.len())))
    })
}
