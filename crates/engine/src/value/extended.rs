//! Floating-point numbers of 80 bits, the `long double` of x86-64, in software: what `INCRBYFLOAT`
//! and its kin add up, so that `0.1 + 0.2` is `0.3` and every result is the one clients know.
//!
//! ```text
//! value = ± mantissa × 2^exponent     mantissa: 64 bits, its top bit set unless subnormal
//!                                     exponent: EXPONENT_MIN ..= EXPONENT_MAX
//! ```
//!
//! Reading, adding and printing are done exactly with integers of any length, then rounded once, to
//! the nearest, ties to even: what IEEE 754 asks of the hardware and of the C library.

use std::ops::{Add, Neg};

use num_bigint::BigUint;

/// Bits of the mantissa.
const MANTISSA_BITS: i64 = 64;
/// Exponent of the smallest numbers, subnormal ones included.
const EXPONENT_MIN: i64 = -16_445;
/// Exponent of the largest numbers.
const EXPONENT_MAX: i64 = 16_320;
/// Longest text that is read or printed.
const TEXT_BYTES_MAX: usize = 5 * 1024;
/// Decimal digits printed behind the point.
const FRACTION_DIGITS: u32 = 17;
/// Powers of ten (or of two, for hexadecimal text) beyond this leave the range of the type whatever
/// the digits are: twice what the longest text can make up for.
const POWER_MAX: i64 = 64 * 1024;

/// A number of 80 bits; not a NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtendedFloat {
    /// A finite one.
    Finite {
        /// Whether it is below zero, or minus zero.
        negative: bool,
        /// Its leading bits.
        mantissa: u64,
        /// The power of two that scales them.
        exponent: i64,
    },
    /// Infinity of either sign.
    Infinite,
}

/// A magnitude before it is rounded: `integer` × 2^`exponent`, and a little more if `inexact`.
struct Exact {
    integer: BigUint,
    exponent: i64,
    inexact: bool,
}

impl ExtendedFloat {
    /// Zero.
    pub const ZERO: Self = Self::Finite { negative: false, mantissa: 0, exponent: EXPONENT_MIN };

    /// The largest number; [`Neg`] makes the smallest one of it.
    pub const MAX: Self = Self::Finite { negative: false, mantissa: u64::MAX, exponent: EXPONENT_MAX };

    /// Reads what C's `strtold` reads: decimal or hexadecimal digits with a point and an exponent, or
    /// infinity. `None` for anything else, blanks and NaN included, and for numbers that are too
    /// large or too small for the type.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() >= TEXT_BYTES_MAX {
            return None;
        }
        let (negative, unsigned) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        if unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity") {
            return Some(Self::Infinite);
        }
        let exact = match unsigned {
            [b'0', b'x' | b'X', digits @ ..] => Self::parse_digits(digits, 16)?,
            _ => Self::parse_digits(unsigned, 10)?,
        };
        match Self::round(negative, &exact) {
            Self::Infinite => None,
            Self::Finite { mantissa: 0, .. } if exact.inexact || exact.integer != BigUint::ZERO => None,
            finite => Some(finite),
        }
    }

    /// Digits of base 10 or 16 with an optional point and exponent.
    fn parse_digits(text: &[u8], radix: u32) -> Option<Exact> {
        let mark = if radix == 10 { b'e' } else { b'p' };
        let end = text.iter().position(|byte| byte.to_ascii_lowercase() == mark).unwrap_or(text.len());
        let (mantissa, power) = (&text[..end], text.get(end + 1..));
        let mut digits = Vec::with_capacity(mantissa.len());
        let mut behind_point = None;
        for &byte in mantissa {
            match (char::from(byte).to_digit(radix), behind_point) {
                (Some(digit), _) => {
                    digits.push(digit as u8);
                    behind_point = behind_point.map(|count| count + 1);
                }
                (None, None) if byte == b'.' => behind_point = Some(0i64),
                _ => return None,
            }
        }
        if digits.is_empty() {
            return None;
        }
        let power = power.map_or(Some(0), parse_power)?;
        let integer = BigUint::from_radix_be(&digits, radix)?;
        let fraction = behind_point.unwrap_or(0);
        if integer == BigUint::ZERO {
            return Some(Exact { integer, exponent: 0, inexact: false });
        }
        Some(if radix == 16 {
            Exact { integer, exponent: power - 4 * fraction, inexact: false }
        } else {
            scale_decimal(integer, power - fraction)
        })
    }

    /// The nearest number, ties to even.
    fn round(negative: bool, exact: &Exact) -> Self {
        let bits = exact.integer.bits() as i64;
        if bits == 0 {
            return Self::Finite { negative, mantissa: 0, exponent: EXPONENT_MIN };
        }
        let mut exponent = (exact.exponent + bits - MANTISSA_BITS).max(EXPONENT_MIN);
        let drop = exponent - exact.exponent;
        let mut mantissa = if drop <= 0 {
            debug_assert!(!exact.inexact, "an inexact magnitude has bits to spare");
            &exact.integer << drop.unsigned_abs()
        } else {
            round_shift(&exact.integer, drop as u64, exact.inexact)
        };
        if mantissa.bits() as i64 > MANTISSA_BITS {
            mantissa >>= 1u32;
            exponent += 1;
        }
        if exponent > EXPONENT_MAX {
            return Self::Infinite;
        }
        let mantissa = mantissa.iter_u64_digits().next().unwrap_or(0);
        Self::Finite { negative, mantissa, exponent }
    }

    /// Whether it is zero of either sign.
    pub fn is_zero(self) -> bool {
        matches!(self, Self::Finite { mantissa: 0, .. })
    }

    /// Whether it is below zero, or minus zero; infinity has lost its sign.
    pub fn is_negative(self) -> bool {
        matches!(self, Self::Finite { negative: true, .. })
    }

    /// The nearest number of double precision; infinity has the sign that is given.
    pub fn to_f64(self, negative_infinity: bool) -> f64 {
        match self {
            Self::Finite { negative, mantissa, exponent } => {
                // In two steps, because the smallest power may be out of range if the product is not.
                let half = exponent / 2;
                let magnitude =
                    mantissa as f64 * 2f64.powi(half as i32) * 2f64.powi((exponent - half) as i32);
                if negative { -magnitude } else { magnitude }
            }
            Self::Infinite if negative_infinity => f64::NEG_INFINITY,
            Self::Infinite => f64::INFINITY,
        }
    }

    /// The text that clients know: no exponent, at most 17 digits behind the point, no trailing
    /// zeros. `None` for infinity.
    pub fn to_text(self) -> Option<String> {
        let Self::Finite { negative, mantissa, exponent } = self else { return None };
        let scaled = BigUint::from(mantissa) * BigUint::from(10u32).pow(FRACTION_DIGITS);
        let scaled = if exponent >= 0 {
            scaled << exponent as u64
        } else {
            round_shift(&scaled, exponent.unsigned_abs(), false)
        };
        let digits = scaled.to_string();
        let fraction_digits = FRACTION_DIGITS as usize;
        let digits = format!("{digits:0>width$}", width = fraction_digits + 1);
        let (whole, fraction) = digits.split_at(digits.len() - fraction_digits);
        let fraction = fraction.trim_end_matches('0');
        let mut text = String::with_capacity(digits.len() + 2);
        if negative && scaled != BigUint::ZERO {
            text.push('-');
        }
        text.push_str(whole);
        if !fraction.is_empty() {
            text.push('.');
            text.push_str(fraction);
        }
        Some(text)
    }
}

impl Neg for ExtendedFloat {
    type Output = Self;

    fn neg(self) -> Self {
        match self {
            Self::Finite { negative, mantissa, exponent } => {
                Self::Finite { negative: !negative, mantissa, exponent }
            }
            Self::Infinite => Self::Infinite,
        }
    }
}

impl From<i64> for ExtendedFloat {
    /// The integer, which its mantissa holds.
    fn from(integer: i64) -> Self {
        let exact = Exact { integer: BigUint::from(integer.unsigned_abs()), exponent: 0, inexact: false };
        Self::round(integer < 0, &exact)
    }
}

impl ExtendedFloat {
    /// Whether it is not infinite.
    pub fn is_finite(self) -> bool {
        matches!(self, Self::Finite { .. })
    }

    /// Whether it is less than another; infinity is less than nothing.
    pub fn is_below(self, other: Self) -> bool {
        // Mantissas of equal exponents can be compared, and those of smaller ones are less: all have their highest bit set, but
        // those of the smallest exponent.
        let key = |number: Self| match number {
            Self::Finite { mantissa: 0, .. } => Some((0, 0, 0)),
            Self::Finite { negative: false, mantissa, exponent } => Some((1, exponent, i128::from(mantissa))),
            Self::Finite { negative: true, mantissa, exponent } => {
                Some((-1, -exponent, -i128::from(mantissa)))
            }
            Self::Infinite => None,
        };
        key(self).zip(key(other)).is_some_and(|(one, other)| one < other)
    }

    /// The integer without what is behind the point, if it has 64 bits.
    pub fn truncated(self) -> Option<i64> {
        let Self::Finite { negative, mantissa, exponent } = self else { return None };
        let magnitude = match exponent {
            ..=-64 => 0,
            -63..=0 => mantissa >> -exponent,
            _ if mantissa == 0 => 0,
            _ => return None,
        };
        let magnitude = i128::from(magnitude);
        i64::try_from(if negative { -magnitude } else { magnitude }).ok()
    }

    /// The text of C's `%.17Lg`: 17 significant digits without zeros behind the last, an exponent if it is below -4 or
    /// above 16; `inf` for infinity.
    pub fn to_general_text(self) -> String {
        const DIGITS: i64 = 17;
        let Self::Finite { negative, mantissa, exponent } = self else { return "inf".to_owned() };
        let sign = if negative { "-" } else { "" };
        if mantissa == 0 {
            return format!("{sign}0");
        }
        let ten = |power: i64| BigUint::from(10u32).pow(power.max(0) as u32);
        // Of the first digit: at first from the number of bits, by log10(2).
        let bits = i64::from(u64::BITS - mantissa.leading_zeros()) - 1 + exponent;
        let mut scientific = (bits as f64 * std::f64::consts::LOG10_2).floor() as i64;
        let digits = loop {
            let power = DIGITS - 1 - scientific;
            let numerator = (BigUint::from(mantissa) << exponent.max(0) as u64) * ten(power);
            let denominator = (BigUint::from(1u32) << (-exponent).max(0) as u64) * ten(-power);
            let (quotient, rest) = (&numerator / &denominator, &numerator % &denominator);
            let twice = rest << 1u32;
            let is_odd = quotient.bit(0);
            let rounds_up = twice > denominator || twice == denominator && is_odd;
            let rounded = if rounds_up { quotient + 1u32 } else { quotient };
            let digits = rounded.to_string();
            match (digits.len() as i64).cmp(&DIGITS) {
                std::cmp::Ordering::Equal => break digits,
                std::cmp::Ordering::Less => scientific -= 1,
                std::cmp::Ordering::Greater => scientific += 1,
            }
        };
        let digits = digits.trim_end_matches('0');
        if (-4..DIGITS).contains(&scientific) {
            let text = match usize::try_from(scientific) {
                Ok(whole) if digits.len() <= whole + 1 => format!("{digits:0<width$}", width = whole + 1),
                Ok(whole) => format!("{}.{}", &digits[..whole + 1], &digits[whole + 1..]),
                Err(_) => format!("0.{}{digits}", "0".repeat((-scientific - 1) as usize)),
            };
            return format!("{sign}{text}");
        }
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let exponent_sign = if scientific < 0 { '-' } else { '+' };
        format!("{sign}{first}{point}{rest}e{exponent_sign}{:02}", scientific.abs())
    }
}

impl Add for ExtendedFloat {
    type Output = Self;

    /// The sum, rounded; infinite if it is too large.
    fn add(self, other: Self) -> Self {
        let (
            Self::Finite { negative: one_negative, mantissa: one, exponent: one_exponent },
            Self::Finite { negative: other_negative, mantissa: other, exponent: other_exponent },
        ) = (self, other)
        else {
            return Self::Infinite;
        };
        let exponent = one_exponent.min(other_exponent);
        let one = BigUint::from(one) << (one_exponent - exponent) as u64;
        let other = BigUint::from(other) << (other_exponent - exponent) as u64;
        let (negative, integer) = if one_negative == other_negative {
            (one_negative, one + other)
        } else if one >= other {
            (one_negative && one != other, one - other)
        } else {
            (other_negative, other - one)
        };
        Self::round(negative, &Exact { integer, exponent, inexact: false })
    }
}

/// A decimal exponent, cut off if it is far out of range anyway.
fn parse_power(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    let mut power = 0i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        power = (power * 10 + i64::from(digit)).min(POWER_MAX);
    }
    Some(if negative { -power } else { power })
}

/// `integer` × 10^`power`, exactly or with bits to spare.
fn scale_decimal(integer: BigUint, power: i64) -> Exact {
    // A number whose count of digits alone puts it beyond the type needs no arithmetic.
    const DECIMAL_POWER_MAX: i64 = 5_000;
    let leading = power + (integer.bits() as f64 * std::f64::consts::LOG10_2) as i64;
    if leading > DECIMAL_POWER_MAX {
        return Exact { integer: BigUint::from(1u32), exponent: 2 * EXPONENT_MAX, inexact: false };
    }
    if leading < -DECIMAL_POWER_MAX {
        return Exact { integer: BigUint::from(1u32), exponent: 2 * EXPONENT_MIN, inexact: false };
    }
    let scale = BigUint::from(10u32).pow(power.unsigned_abs() as u32);
    if power >= 0 {
        return Exact { integer: integer * scale, exponent: 0, inexact: false };
    }
    let spare = (MANTISSA_BITS + 2 + scale.bits() as i64 - integer.bits() as i64).max(0);
    let dividend = integer << spare as u64;
    let quotient = &dividend / &scale;
    let inexact = &quotient * &scale != dividend;
    Exact { integer: quotient, exponent: -spare, inexact }
}

/// `integer` / 2^`bits`, rounded to the nearest, ties to even; `inexact` says that the true number
/// is a little larger.
fn round_shift(integer: &BigUint, bits: u64, inexact: bool) -> BigUint {
    debug_assert!(bits > 0);
    let quotient = integer >> bits;
    let half = integer.bit(bits - 1);
    let beyond_half = inexact || integer.trailing_zeros().is_some_and(|zeros| zeros < bits - 1);
    if half && (beyond_half || quotient.bit(0)) { quotient + 1u32 } else { quotient }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(one: &str, other: &str) -> Option<String> {
        (ExtendedFloat::parse(one.as_bytes())? + ExtendedFloat::parse(other.as_bytes())?).to_text()
    }

    #[test]
    fn sums_print_as_clients_know_them() {
        for (one, other, expected) in [
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("3.0e3", "200", "3200"),
            ("5.0e3", "2.0e2", "5200"),
            ("0", "3.141592653589793238462643", "3.14159265358979324"),
            ("0", "1e30", "1000000000000000000024696061952"),
            ("0", "0x1p-3", "0.125"),
            ("0", "0x.8", "0.5"),
            ("0", "-1e-20", "0"),
            ("0", "-0", "0"),
            ("1", "-1", "0"),
            ("1e17", "0.1", "100000000000000000.1015625"),
            ("0", "1e-10", "0.0000000001"),
            ("-5", "2.25", "-2.75"),
            ("1.", ".5", "1.5"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551615", "2", "18446744073709551616"),
        ] {
            assert_eq!(sum(one, other).as_deref(), Some(expected), "{one} + {other}");
        }
    }

    #[test]
    fn extended_float_ends_at_the_range_of_redis() {
        let largest = "1.18973149535723176502e+4932";
        assert!(sum(largest, "0").is_some());
        assert_eq!(sum(largest, largest), None, "too large a sum");
        for text in ["1e4933", "1e99999999999999999999", "1e-5000", "1e-99999999999", "0x1p99999"] {
            assert_eq!(ExtendedFloat::parse(text.as_bytes()), None, "{text}");
        }
        assert!(ExtendedFloat::parse(b"3.6451995318824746025e-4951").is_some(), "the smallest number");
        assert_eq!(sum("0e99999999999", "0").as_deref(), Some("0"));
        assert_eq!(sum("inf", "1"), None);
    }

    #[test]
    fn extended_float_refuses_text_that_is_no_number() {
        for text in
            ["", "-", "+", ".", "e5", "1e", "1e+", "0x", "1 ", " 1", "1x", "nan", "1.2.3", "--1", "1_0"]
        {
            assert_eq!(ExtendedFloat::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(ExtendedFloat::parse(&[b'1'; TEXT_BYTES_MAX]), None, "too long");
    }

    proptest! {
        /// Every integer of 64 bits and every sum of two of them that still fits is exact.
        #[test]
        fn integers_are_exact(one in any::<i64>(), other in any::<i64>()) {
            let expected = i128::from(one) + i128::from(other);
            prop_assert_eq!(sum(&one.to_string(), &other.to_string()), Some(expected.to_string()));
        }

        /// Sums that an `f64` holds exactly are the same here.
        #[test]
        fn dyadic_sums_are_exact(one in -1_000_000i32..1_000_000, other in -1_000_000i32..1_000_000) {
            let (one, other) = (f64::from(one) / 1024.0, f64::from(other) / 1024.0);
            // Adding zero turns minus zero into zero.
            let expected = (one + other + 0.0).to_string();
            prop_assert_eq!(sum(&one.to_string(), &other.to_string()), Some(expected));
        }

        #[test]
        fn extended_float_parses_any_text_without_panic(text in "[-+0-9a-fx.ep]{0,40}") {
            if let Some(value) = ExtendedFloat::parse(text.as_bytes()) {
                value.to_text();
            }
        }
    }
}
