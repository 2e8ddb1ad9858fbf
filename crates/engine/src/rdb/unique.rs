//! Whether elements differ.

use std::collections::HashSet;

use dunlin_structures::Element;

/// Up to this many elements are compared with one another; more are hashed.
const COMPARED_MAX: usize = 8;

/// An element by its text: a number that was kept as text is that number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Text<'a> {
    Integer(i64),
    Bytes(&'a [u8]),
}

impl<'a> From<Element<'a>> for Text<'a> {
    fn from(element: Element<'a>) -> Self {
        match (element, element.as_integer()) {
            (Element::String(text), None) => Text::Bytes(text),
            (_, integer) => Text::Integer(integer.expect("it is an integer, or spells one")),
        }
    }
}

/// Whether no two elements have the same text. O(n).
pub(crate) fn all_differ<'a>(elements: impl Iterator<Item = Element<'a>>) -> bool {
    let mut few = [Text::Integer(0); COMPARED_MAX];
    let mut count = 0;
    let mut many = HashSet::new();
    for text in elements.map(Text::from) {
        if count < COMPARED_MAX {
            if few[..count].contains(&text) {
                return false;
            }
            few[count] = text;
            count += 1;
            continue;
        }
        if many.is_empty() {
            many.extend(few);
        }
        if !many.insert(text) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twins_are_found_whatever_their_form_and_number() {
        let names: Vec<Vec<u8>> = (0..40).map(|number: i64| number.to_string().into_bytes()).collect();
        let distinct = || names.iter().map(|name| Element::String(name));
        for count in [0, 1, 2, 7, 8, 9, 20, 40] {
            assert!(all_differ(distinct().take(count)), "{count}");
            for twin in 0..count as i64 {
                assert!(
                    !all_differ(distinct().take(count).chain([Element::Integer(twin)])),
                    "{count} {twin}"
                );
            }
        }
    }
}
