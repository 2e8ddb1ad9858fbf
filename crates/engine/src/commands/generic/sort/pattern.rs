//! Patterns of BY and GET: the place of something about an element.
//!
//! ```text
//! weight_*          the string under "weight_" with the element in place of the first star
//! object_*->field   a field of the hash under such a key
//! ```

use crate::{keyspace::EntryRef, value::Collection, value::Hash};

/// A pattern with a place for the element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pattern<'a> {
    before: &'a [u8],
    behind: &'a [u8],
    field: Option<&'a [u8]>,
}

impl<'a> Pattern<'a> {
    /// Reads a pattern; `None` if it has no star.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        const ARROW: &[u8] = b"->";
        let star = text.iter().position(|byte| *byte == b'*')?;
        let (before, behind) = (&text[..star], &text[star + 1..]);
        // An arrow without a field behind it belongs to the key.
        let arrow = behind.windows(ARROW.len()).position(|two| two == ARROW);
        let arrow = arrow.filter(|at| at + ARROW.len() < behind.len());
        Some(match arrow {
            None => Self { before, behind, field: None },
            Some(at) => Self { before, behind: &behind[..at], field: Some(&behind[at + ARROW.len()..]) },
        })
    }

    /// Writes the key for an element to `key`.
    pub(super) fn write_key(&self, element: &[u8], key: &mut Vec<u8>) {
        key.clear();
        for part in [self.before, element, self.behind] {
            key.extend_from_slice(part);
        }
    }

    /// Appends the value of such a key to `out`; returns whether there is one.
    pub(super) fn write_value(&self, entry: EntryRef<'_>, now_ms: u64, out: &mut Vec<u8>) -> bool {
        match (self.field, entry.object()) {
            (None, None) => entry.string().write_to(out),
            (Some(field), Some(object)) => match Hash::of(&object).and_then(|hash| hash.get(field, now_ms)) {
                Some(value) => value.write_text(out),
                None => return false,
            },
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_uses_the_first_star_and_the_first_arrow_after_it() {
        for (text, expected) in [
            ("nosort", None),
            ("a->b", None),
            ("w_*", Some(("w_x", None))),
            ("*", Some(("x", None))),
            ("*:*", Some(("x:*", None))),
            ("a->*->f", Some(("a->x", Some("f")))),
            ("w_*_z->f->g", Some(("w_x_z", Some("f->g")))),
            ("w_*->", Some(("w_x->", None))),
            ("w_*->*", Some(("w_x", Some("*")))),
        ] {
            let found = Pattern::parse(text.as_bytes()).map(|pattern| {
                let mut key = Vec::new();
                pattern.write_key(b"x", &mut key);
                (String::from_utf8(key).unwrap(), pattern.field)
            });
            let expected =
                expected.map(|(key, field): (&str, Option<&str>)| (key.to_owned(), field.map(str::as_bytes)));
            assert_eq!(found, expected, "{text}");
        }
    }
}
