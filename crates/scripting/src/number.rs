//! Numbers as C's library reads and writes them, and scripts see them.

use std::ffi::c_int;

/// A number with this many significant digits, as `%.*g` writes it.
pub(crate) fn format_general(number: f64, digits: c_int) -> Vec<u8> {
    let mut text = [0_u8; 64];
    // SAFETY: at most the given number of bytes is written; the format takes an int and a double.
    let length = unsafe {
        libc::snprintf(text.as_mut_ptr().cast(), text.len(), c"%.*g".as_ptr(), digits.clamp(0, 40), number)
    };
    text[..usize::try_from(length).unwrap_or(0).min(text.len() - 1)].to_vec()
}

/// The number that a text begins with, as `strtod` reads it, and how many bytes it takes.
pub(crate) fn parse_prefix(text: &[u8]) -> Option<(f64, usize)> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let length = text.iter().take_while(|byte| is_part(byte)).count();
    let mut terminated = text[..length].to_vec();
    terminated.push(0);
    let mut end = std::ptr::null_mut();
    // SAFETY: the text ends with a NUL, and `end` is set to a place within it.
    let (value, used) = unsafe {
        let start = terminated.as_ptr().cast();
        let value = libc::strtod(start, &mut end);
        (value, end.offset_from(start))
    };
    let used = usize::try_from(used).ok().filter(|used| *used > 0)?;
    Some((value, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_far_as_they_go() {
        let rows: [(&str, Option<(f64, usize)>); 6] = [
            ("12,3", Some((12.0, 2))),
            ("-1.5e3]", Some((-1500.0, 6))),
            ("0x10", Some((16.0, 4))),
            ("1e", Some((1.0, 1))),
            ("infinity", Some((f64::INFINITY, 8))),
            ("-", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_prefix(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn numbers_are_written_with_so_many_digits() {
        for (number, digits, expected) in
            [(0.1, 17, "0.10000000000000001"), (1e20, 17, "1e+20"), (3.0, 14, "3"), (-0.0, 17, "-0")]
        {
            assert_eq!(format_general(number, digits), expected.as_bytes());
        }
    }
}
