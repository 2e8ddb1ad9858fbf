//! The meaning of a pattern, as simple as can be: by trying everything.

/// Whether a text matches, in time exponential in the number of stars.
pub(super) fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    // A star alone needs something to match; behind a match of something it does not.
    if text.is_empty() { pattern.is_empty() } else { matches_rest(pattern, text, ignore_case) }
}

fn matches_rest(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', b'*', ..] => matches_rest(&pattern[1..], text, ignore_case),
        [b'*', pattern @ ..] => {
            (0..=text.len()).any(|start| matches_rest(pattern, &text[start..], ignore_case))
        }
        _ => {
            let Some((first, rest)) = text.split_first() else { return false };
            let (holds, length) = matches_byte(pattern, *first, ignore_case);
            holds && matches_rest(&pattern[length..], rest, ignore_case)
        }
    }
}

/// Whether the first element of a pattern matches a byte, and the element's length.
fn matches_byte(pattern: &[u8], byte: u8, ignore_case: bool) -> (bool, usize) {
    let fold = |byte: u8| if ignore_case { byte.to_ascii_lowercase() } else { byte };
    let same = |other: u8| fold(other) == fold(byte);
    match pattern {
        [b'?', ..] => (true, 1),
        [b'\\', escaped, ..] => (same(*escaped), 2),
        [b'[', class @ ..] => {
            let is_negated = class.first() == Some(&b'^');
            let mut at = usize::from(is_negated);
            let mut is_member = false;
            loop {
                match class[at..] {
                    [] => return (is_member != is_negated, 1 + at),
                    [b'\\', escaped, ..] => {
                        is_member |= escaped == byte;
                        at += 2;
                    }
                    [b']', ..] => return (is_member != is_negated, 1 + at + 1),
                    [one, b'-', other, ..] => {
                        let signed = |byte: u8| i32::from(byte as i8);
                        let (low, high) =
                            if signed(one) > signed(other) { (other, one) } else { (one, other) };
                        is_member |= (signed(fold(low))..=signed(fold(high))).contains(&signed(fold(byte)));
                        at += 3;
                    }
                    [member, ..] => {
                        is_member |= same(member);
                        at += 1;
                    }
                }
            }
        }
        [other, ..] => (same(*other), 1),
        [] => (false, 0),
    }
}
