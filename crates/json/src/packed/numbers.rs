//! Numbers in the packed form: as few bytes as hold them, and exactly the double that came.

use super::{DECIMAL, DOUBLE, INT, UINT};

/// Most bytes of a decimal's digits as an integer: more would take as long as the double itself.
const DECIMAL_BYTES_MAX: usize = 6;
/// Powers of ten that are doubles exactly: a division of two exact doubles rounds as the text's reading does.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];
const NEGATIVE: u8 = 0x80;

/// Appends an integer.
#[inline]
pub(crate) fn push_int(out: &mut Vec<u8>, number: i64) {
    if (0..=0x7f).contains(&number) {
        out.push(number as u8);
        return;
    }
    // A byte holds eight bits of which one is the sign.
    let bits = 65 - (number ^ (number >> 63)).leading_zeros() as usize;
    let bytes = bits.div_ceil(8);
    out.push(INT + bytes as u8 - 1);
    out.extend_from_slice(&number.to_le_bytes()[..bytes]);
}

/// Appends an integer that may be above `i64::MAX`.
pub(crate) fn push_uint(out: &mut Vec<u8>, number: u64) {
    match i64::try_from(number) {
        Ok(number) => push_int(out, number),
        Err(_) => {
            out.push(UINT);
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

/// The integer of these bytes.
#[inline]
pub(super) fn int_of(bytes: &[u8]) -> i64 {
    let mut padded = [if bytes[bytes.len() - 1] >= 0x80 { 0xff } else { 0 }; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(padded)
}

/// Appends a double, as a decimal of few digits if it is one.
pub(crate) fn push_double(out: &mut Vec<u8>, number: f64) {
    debug_assert!(number.is_finite());
    // Digits below 2^53 and the power are exact doubles, so their division rounds as reading the text does.
    if let Some((exponent, digits)) = decimal(number)
        && digits < 1 << (8 * DECIMAL_BYTES_MAX)
    {
        let start = out.len();
        push_decimal(out, digits, exponent, number.is_sign_negative());
        debug_assert_eq!(decimal_of(out[start + 1], &out[start + 2..]).to_bits(), number.to_bits());
        return;
    }
    out.push(DOUBLE);
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends the double *digits* / 10^*exponent*, of digits that are a double exactly: what the text with these digits reads as.
pub(crate) fn push_decimal(out: &mut Vec<u8>, mut digits: u64, mut exponent: u8, negative: bool) {
    debug_assert!(digits < 1 << (8 * DECIMAL_BYTES_MAX) && usize::from(exponent) < POWERS.len());
    // Equal values have equal bytes, so trailing zeros go.
    while exponent > 0 && digits.is_multiple_of(10) {
        (digits, exponent) = (digits / 10, exponent - 1);
    }
    let bytes = (64 - digits.leading_zeros() as usize).div_ceil(8).max(1);
    out.extend_from_slice(&[DECIMAL + bytes as u8 - 1, exponent | if negative { NEGATIVE } else { 0 }]);
    out.extend_from_slice(&digits.to_le_bytes()[..bytes]);
}

/// The exponent and digits of a double that is *digits* / 10^*exponent* in its shortest text; `None` for others.
fn decimal(number: f64) -> Option<(u8, u64)> {
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format_finite(number).as_bytes();
    let (mut digits, mut exponent, mut point) = (0u64, 0u8, false);
    for &byte in text {
        match byte {
            b'0'..=b'9' => {
                digits = digits.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
                exponent += u8::from(point);
            }
            b'.' => point = true,
            b'-' => {}
            _ => return None,
        }
    }
    // "3.0" is 3 / 10^0.
    if text.ends_with(b".0") {
        (digits, exponent) = (digits / 10, 0);
    }
    (usize::from(exponent) < POWERS.len()).then_some((exponent, digits))
}

/// The double of a decimal.
#[inline]
pub(super) fn decimal_of(exponent: u8, digits: &[u8]) -> f64 {
    let mut padded = [0; 8];
    padded[..digits.len()].copy_from_slice(digits);
    let number = u64::from_le_bytes(padded) as f64 / POWERS[usize::from(exponent & !NEGATIVE)];
    if exponent & NEGATIVE != 0 { -number } else { number }
}
