//! Operations that read.

use std::borrow::Borrow;

use super::{Answer, Refusal, answer_reads};
use crate::{
    Kind, ValueRef,
    path::{Budget, Path},
    write::{Layout, Writer, write_string},
};

fn path_of<P: Borrow<Path>>(path: &P) -> &Path {
    path.borrow()
}

/// JSON.GET: appends the text. Of one legacy path the first match; of one JSONPath an array of its matches; of several
/// paths an object of those, keyed by the paths' texts, all as arrays if one path is a JSONPath.
pub fn get<P: Borrow<Path>>(
    root: ValueRef<'_>,
    paths: &[P],
    layout: Layout<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let legacy = paths.iter().map(path_of).all(Path::is_legacy);
    let one = |value: ValueRef<'_>, depth: usize, out: &mut Vec<u8>| {
        Writer::new(value, layout, depth).write(out, usize::MAX);
    };
    let matches = |path: &Path, depth: usize, out: &mut Vec<u8>| -> Result<(), Refusal> {
        let mut budget = Budget::default();
        if legacy {
            let shown = if paths.len() == 1 { path.text() } else { path.given() };
            let values = path.values(root, &mut budget)?;
            let value = values.first().ok_or_else(|| Refusal::NoSuchPath(shown.to_vec()))?;
            one(*value, depth, out);
            return Ok(());
        }
        out.push(b'[');
        let mut first = true;
        path.evaluate(root, &mut budget, |_, value| {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            layout.break_line(depth + 1, out);
            one(value, depth + 1, out);
            true
        })?;
        if !first {
            layout.break_line(depth, out);
        }
        out.push(b']');
        Ok(())
    };
    if let [path] = paths {
        return matches(path_of(path), 0, out);
    }
    out.push(b'{');
    for (place, path) in paths.iter().map(path_of).enumerate() {
        if place > 0 && paths[..place].iter().any(|other| path_of(other).given() == path.given()) {
            continue;
        }
        if place > 0 {
            out.push(b',');
        }
        layout.break_line(1, out);
        write_string(path.given(), out);
        out.push(b':');
        out.extend_from_slice(layout.space);
        matches(path, 1, out)?;
    }
    layout.break_line(0, out);
    out.push(b'}');
    Ok(())
}

fn no_such_path(path: &Path) -> Refusal {
    Refusal::NoSuchPath(path.text().to_vec())
}

/// JSON.TYPE. `One(None)`: a legacy path without a match.
pub fn types(root: ValueRef<'_>, path: &Path) -> Result<Answer<Option<Kind>>, Refusal> {
    answer_reads(root, path, || Ok(None), |value| Ok(Some(value.kind())))
}

/// JSON.STRLEN: bytes of strings.
pub fn str_len(root: ValueRef<'_>, path: &Path) -> Result<Answer<usize>, Refusal> {
    let missing = || Err(no_such_path(path));
    answer_reads(root, path, missing, |value| match value.as_string() {
        Some(text) => Ok(text.len()),
        None => Err(Refusal::WrongType { expected: Kind::String, found: value.kind() }),
    })
}

/// JSON.OBJLEN. `One(None)`: a legacy path without a match.
pub fn obj_len(root: ValueRef<'_>, path: &Path) -> Result<Answer<Option<usize>>, Refusal> {
    answer_reads(
        root,
        path,
        || Ok(None),
        |value| {
            if value.is_object() {
                return Ok(Some(value.len()));
            }
            Err(Refusal::WrongType { expected: Kind::Object, found: value.kind() })
        },
    )
}

/// JSON.OBJKEYS. `One(None)`: a legacy path without a match.
pub fn obj_keys(root: ValueRef<'_>, path: &Path) -> Result<Answer<Option<Vec<Vec<u8>>>>, Refusal> {
    answer_reads(
        root,
        path,
        || Ok(None),
        |value| {
            if value.is_object() {
                return Ok(Some(value.items().map(|(name, _)| name.to_vec()).collect()));
            }
            Err(Refusal::NoSuchObject(path.text().to_vec()))
        },
    )
}
