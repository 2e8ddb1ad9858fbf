//! Operations on arrays.

use super::{Answer, Refusal, answer_reads, answer_writes, set::check_depth};
use crate::{Document, Kind, ValueRef, path::Path};

/// JSON.ARRLEN.
pub fn arr_len(root: ValueRef<'_>, path: &Path) -> Result<Answer<usize>, Refusal> {
    let given = || path.given().to_vec();
    answer_reads(
        root,
        path,
        || Err(Refusal::NoSuchPath(given())),
        |value| {
            if value.is_array() { Ok(value.len()) } else { Err(Refusal::NoSuchArray(given())) }
        },
    )
}

/// JSON.ARRAPPEND: the new lengths.
pub fn arr_append(
    document: &mut Document,
    path: &Path,
    values: &[Document],
) -> Result<Answer<usize>, Refusal> {
    answer_writes(
        document,
        path,
        || Refusal::NoSuchArray(path.given().to_vec()),
        |location, value| {
            if !value.is_array() {
                return Ok(None);
            }
            check_depths(location, values)?;
            Ok(Some(()))
        },
        |document, location, ()| {
            let len = document.at(location).map_or(0, |array| array.len());
            document.insert_values(location, len, values);
            len + values.len()
        },
    )
}

/// JSON.ARRINSERT before an index, from the end if negative: the new lengths.
pub fn arr_insert(
    document: &mut Document,
    path: &Path,
    index: i64,
    values: &[Document],
) -> Result<Answer<usize>, Refusal> {
    answer_writes(
        document,
        path,
        || Refusal::NoSuchArray(path.text().to_vec()),
        |location, value| {
            if !value.is_array() {
                return Ok(None);
            }
            let len = value.len() as i64;
            if !(-len..=len).contains(&index) {
                return Err(Refusal::IndexOutOfBounds);
            }
            check_depths(location, values)?;
            Ok(Some(if index < 0 { len + index } else { index } as usize))
        },
        |document, location, at| {
            document.insert_values(location, at, values);
            document.at(location).map_or(0, |array| array.len())
        },
    )
}

fn check_depths(array: &[u32], values: &[Document]) -> Result<(), Refusal> {
    let mut location = array.to_vec();
    location.push(0);
    values.iter().try_for_each(|value| check_depth(&location, value.root()))
}

/// JSON.ARRPOP at an index, clamped to the array: what was taken out; `None` of an empty array.
pub fn arr_pop(
    document: &mut Document,
    path: &Path,
    index: i64,
) -> Result<Answer<Option<Document>>, Refusal> {
    answer_writes(
        document,
        path,
        || Refusal::NoSuchArray(path.text().to_vec()),
        |_, value| Ok(value.is_array().then_some(())),
        |document, location, ()| {
            let array = document.at(location)?;
            let last = array.len().checked_sub(1)? as i64;
            let index = if index < 0 { (last + 1).saturating_add(index).max(0) } else { index.min(last) };
            let popped = Document::copied(array.item(index as usize)?);
            let mut item = location.to_vec();
            item.push(index as u32);
            document.remove(&item, 1);
            Some(popped)
        },
    )
}

/// JSON.ARRTRIM to the items from `start` to `stop`, inclusive: the new lengths.
pub fn arr_trim(
    document: &mut Document,
    path: &Path,
    start: i64,
    stop: i64,
) -> Result<Answer<usize>, Refusal> {
    answer_writes(
        document,
        path,
        || Refusal::NoSuchArray(path.text().to_vec()),
        |_, value| Ok(value.is_array().then(|| value.len())),
        |document, location, len| {
            let place =
                |index: i64| if index < 0 { (len as i64).saturating_add(index).max(0) } else { index };
            let (start, stop) = (place(start), place(stop).min(len as i64 - 1));
            let (from, to) = if start > stop || start >= len as i64 { (0, 0) } else { (start, stop + 1) };
            let (from, to) = (from as usize, to as usize);
            let mut item = location.to_vec();
            item.push(to as u32);
            document.remove(&item, len - to);
            *item.last_mut().expect("an index was pushed") = 0;
            document.remove(&item, from);
            to - from
        },
    )
}

/// JSON.ARRINDEX: where an array has a value, from `start` to before `stop` (0: to its end); −1 if nowhere.
pub fn arr_index(
    root: ValueRef<'_>,
    path: &Path,
    value: &Document,
    start: i64,
    stop: i64,
) -> Result<Answer<i64>, Refusal> {
    let missing = || Err(Refusal::NoSuchPath(path.text().to_vec()));
    answer_reads(root, path, missing, |array| {
        if !array.is_array() {
            return Err(Refusal::WrongType { expected: Kind::Array, found: array.kind() });
        }
        let len = array.len() as i64;
        if len == 0 {
            return Ok(-1);
        }
        let place = |index: i64| if index < 0 { len.saturating_add(index).max(0) } else { index };
        // A start behind the end is the last item, as in RedisJSON.
        let start = place(start).min(len - 1);
        let stop = match stop {
            0 => len,
            stop => place(stop).min(len),
        };
        let mut items = array.items().zip(0i64..).skip(start as usize).take((stop - start).max(0) as usize);
        Ok(items.find(|((_, item), _)| item.is_same(&value.root())).map_or(-1, |(_, index)| index))
    })
}
