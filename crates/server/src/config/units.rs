//! Numbers as configuration files spell them: plain integers, memory sizes with a suffix, octal permissions.

/// A decimal integer in its one canonical spelling: no sign `+`, no leading zeros, no blanks.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let value: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (value.to_string().as_bytes() == text).then_some(value)
}

/// A count of bytes: digits, then nothing or one of `b k kb m mb g gb` in any case. `k`, `m` and `g`
/// are powers of 1000, `kb`, `mb` and `gb` of 1024, as in redis.conf. Redis takes a suffix without
/// digits, an empty text and an overflow for a number; those are mistakes, and `None` here.
pub fn parse_memory(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, suffix) = text.split_at_checked(digits)?;
    let unit: u64 = match suffix.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1000 * 1000,
        b"mb" => 1 << 20,
        b"g" => 1000 * 1000 * 1000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    std::str::from_utf8(number).ok()?.parse::<u64>().ok()?.checked_mul(unit)
}

/// The shortest exact spelling with a suffix: `1gb`, `100mb`, `1000`.
pub fn print_memory(bytes: u64) -> String {
    for (shift, suffix) in [(30, "gb"), (20, "mb"), (10, "kb")] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{suffix}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Octal digits only.
pub fn parse_octal(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    if text.starts_with('+') {
        return None;
    }
    u32::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_has_suffixes() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1b", Some(1)),
            ("1k", Some(1000)),
            ("1kb", Some(1024)),
            ("3M", Some(3_000_000)),
            ("3Mb", Some(3 << 20)),
            ("2g", Some(2_000_000_000)),
            ("2GB", Some(2 << 30)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("99999999999gb", None),
            ("", None),
            ("kb", None),
            ("-1", None),
            ("+1", None),
            ("1.5g", None),
            ("1x", None),
            ("1 kb", None),
        ] {
            assert_eq!(parse_memory(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn integers_have_one_spelling() {
        for (text, expected) in [
            ("10", Some(10)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("+10", None),
            ("010", None),
            ("-0", None),
            (" 10", None),
            ("", None),
        ] {
            assert_eq!(parse_integer(text.as_bytes()), expected, "{text:?}");
        }
        assert_eq!(parse_octal(b"700"), Some(0o700));
        assert_eq!(parse_octal(b"9"), None);
        assert_eq!(parse_octal(b"+7"), None);
    }

    proptest! {
        #[test]
        fn printed_memory_parses_back(bytes: u64, shift in 0u32..40) {
            let bytes = bytes >> (shift / 2) << shift.min(30);
            prop_assert_eq!(parse_memory(print_memory(bytes).as_bytes()), Some(bytes));
        }
    }
}
