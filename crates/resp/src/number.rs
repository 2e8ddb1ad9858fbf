//! Text of numbers, exactly as clients of the protocol expect it.

/// Longest text of an `i64`: a sign and 19 digits.
pub const INTEGER_TEXT_MAX: usize = 20;

/// Reads a decimal integer the strict way: an optional minus, no plus, no blanks, no leading
/// zeros, no `-0`, nothing behind it. `None` for anything else, overflow included.
///
/// This is the rule for arguments and for stored integers alike: a text that it accepts is the one
/// text that prints back from the number.
#[inline]
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [] => return None,
        [b'0'] => return if negative { None } else { Some(0) },
        [b'0', ..] => return None,
        _ if digits.len() > 19 => return None,
        _ => {}
    }
    let mut magnitude: u64 = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // At most 19 digits: below 10^19, which fits a u64.
        magnitude = magnitude * 10 + u64::from(digit);
    }
    if negative {
        (magnitude <= 1 << 63).then(|| (magnitude as i64).wrapping_neg())
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// Returns `value` as an integer if it is one of a magnitude below 2^52: those are kept and printed
/// as integers. Minus zero is 0.
#[inline]
pub fn exact_integer(value: f64) -> Option<i64> {
    const MAGNITUDE_END: f64 = (1_u64 << 52) as f64;
    (value.abs() < MAGNITUDE_END && value.trunc() == value).then_some(value as i64)
}

/// The shortest decimal text that reads back as `value`, laid out as Redis 7.2 and newer do (the
/// layout rules of the `fpconv` library). Plain digits for integers below 2^52 and while the number
/// is short, an exponent with its sign otherwise; `inf`, `-inf` and `nan` for the rest.
pub fn write_double(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        return out.extend_from_slice(b"nan");
    }
    if value.is_infinite() {
        return out.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
    }
    if value == 0.0 {
        return out.extend_from_slice(if value.is_sign_negative() { b"-0" } else { b"0" });
    }
    if let Some(integer) = exact_integer(value) {
        return out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
    }
    if value < 0.0 {
        out.push(b'-');
    }
    let (digits, exponent) = shortest_digits(value.abs());
    let count = digits.len() as i32;
    // Decimal exponent of the first digit.
    let scientific = exponent + count - 1;
    if exponent >= 0 && scientific < count + 7 {
        out.extend_from_slice(&digits);
        out.resize(out.len() + exponent as usize, b'0');
    } else if exponent < 0 && (exponent > -7 || scientific.abs() < 4) {
        let point = count + exponent;
        if point <= 0 {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + point.unsigned_abs() as usize, b'0');
            out.extend_from_slice(&digits);
        } else {
            out.extend_from_slice(&digits[..point as usize]);
            out.push(b'.');
            out.extend_from_slice(&digits[point as usize..]);
        }
    } else {
        out.push(digits[0]);
        if count > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        out.push(b'e');
        out.push(if scientific < 0 { b'-' } else { b'+' });
        out.extend_from_slice(itoa::Buffer::new().format(scientific.unsigned_abs()).as_bytes());
    }
}

/// The significant digits of a positive finite number without trailing zeros, and the power of ten
/// that scales them.
fn shortest_digits(value: f64) -> (Vec<u8>, i32) {
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format_finite(value).as_bytes();
    let (mantissa, mut exponent) = match text.iter().position(|&byte| byte == b'e') {
        Some(at) => {
            let exponent = std::str::from_utf8(&text[at + 1..]).ok().and_then(|text| text.parse().ok());
            (&text[..at], exponent.expect("ryu prints a decimal exponent"))
        }
        None => (text, 0),
    };
    let mut digits = Vec::with_capacity(17);
    let mut behind_point = false;
    for &byte in mantissa {
        if byte == b'.' {
            behind_point = true;
        } else {
            digits.push(byte);
            exponent -= i32::from(behind_point);
        }
    }
    let leading = digits.iter().take_while(|&&digit| digit == b'0').count();
    digits.drain(..leading);
    while digits.last() == Some(&b'0') {
        digits.pop();
        exponent += 1;
    }
    (digits, exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_read_strictly() {
        for (text, expected) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("-7", Some(-7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("18446744073709551616", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("+1", None),
            ("01", None),
            (" 1", None),
            ("1 ", None),
            ("1a", None),
            ("1.0", None),
        ] {
            assert_eq!(parse_integer(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn doubles_print_as_clients_expect() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (3.0e3, "3000"),
            (1e7, "10000000"),
            (-1e8, "-100000000"),
            (4503599627370495.0, "4503599627370495"),
            (4503599627370496.0, "4503599627370496"),
            (1e16, "1e+16"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-5, "0.00001"),
            (1e-7, "1e-7"),
            (1.25e-9, "1.25e-9"),
            (123456.789, "123456.789"),
            (17179869184.0, "17179869184"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            let mut out = Vec::new();
            write_double(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
