//! Integers as collections recognize them in text.

/// Longest text of an `i64`: a sign and 19 digits.
const TEXT_MAX: usize = 20;

/// The integer whose one canonical decimal text is `text`: an optional minus, no plus, no blanks, no leading
/// zeros, no `-0`. Printing the answer gives `text` back, which is why a listpack or an intset may keep the
/// integer in place of the text.
#[inline]
pub(crate) fn parse_integer(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > TEXT_MAX {
        return None;
    }
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() < TEXT_MAX => {}
        _ => return None,
    }
    // At most 19 digits, so below 10^19: no overflow of a u64.
    let mut magnitude = 0u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit);
    }
    if negative {
        (magnitude <= 1 << 63).then(|| (magnitude as i64).wrapping_neg())
    } else {
        i64::try_from(magnitude).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::parse_integer;

    #[test]
    fn parse_integer_takes_the_canonical_text_only() {
        for value in [0, 1, -1, 10, i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1] {
            assert_eq!(parse_integer(value.to_string().as_bytes()), Some(value));
        }
        for text in [
            "",
            "-",
            "+1",
            "-0",
            "00",
            "01",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "123456789012345678901",
        ] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
    }
}
