//! Numbers of 1 to 64 bits, and the treatment of results that need more.

use dunlin_structures::bits::{self, FIELD_BITS_MAX};

use crate::command::CommandError;

/// The type of a field: `i` or `u` and a width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FieldType {
    signed: bool,
    pub(super) width: u32,
}

/// The treatment of a result that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overflow {
    /// Its low bits.
    Wrap,
    /// The nearest number that fits.
    Saturate,
    /// Nothing: the field stays as it is.
    Fail,
}

impl FieldType {
    /// Reads `i16` or `u8`; unsigned fields have at most 63 bits, so that every value is an integer
    /// of the protocol.
    pub(super) fn parse(text: &[u8]) -> Result<Self, CommandError> {
        let (signed, digits) = match text {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => (false, &[][..]),
        };
        let width_max = if signed { FIELD_BITS_MAX } else { FIELD_BITS_MAX - 1 };
        let width = dunlin_resp::number::parse_integer(digits).and_then(|width| u32::try_from(width).ok());
        match width.filter(|width| (1..=width_max).contains(width)) {
            Some(width) => Ok(Self { signed, width }),
            None => Err(CommandError::text(
                "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
            )),
        }
    }

    /// The number in a field.
    pub(super) fn read(self, bytes: &[u8], offset: u64) -> i64 {
        self.wrap(bits::read_field(bytes, offset, self.width))
    }

    /// The number that the low bits of `value` mean.
    fn wrap(self, value: u64) -> i64 {
        let unused = u64::BITS - self.width;
        if self.signed { ((value << unused) as i64) >> unused } else { (value << unused >> unused) as i64 }
    }

    /// `base` + `amount` as a number of this type; `None` if it does not fit and must.
    ///
    /// To set a field is to add to 0, and an unsigned field takes the amount for one of 64 bits without
    /// a sign: −1 is too large, not too small.
    pub(super) fn add(self, base: i64, amount: i64, overflow: Overflow) -> Option<i64> {
        let sum = i128::from(base) + i128::from(amount);
        self.fit(sum, overflow)
    }

    /// The number that a field is set to, see [`Self::add`].
    pub(super) fn convert(self, value: i64, overflow: Overflow) -> Option<i64> {
        if self.signed && self.width < FIELD_BITS_MAX && overflow == Overflow::Saturate {
            // The reference server takes the distance to the upper bound in 64 bits: if that wraps,
            // a number far too small saturates as one too large.
            let high = (1i64 << (self.width - 1)) - 1;
            if high.checked_sub(value).is_none() {
                return Some(high);
            }
        }
        self.fit(if self.signed { i128::from(value) } else { i128::from(value as u64) }, overflow)
    }

    fn fit(self, value: i128, overflow: Overflow) -> Option<i64> {
        let (low, high) = if self.signed {
            (-(1i128 << (self.width - 1)), (1i128 << (self.width - 1)) - 1)
        } else {
            (0, (1i128 << self.width) - 1)
        };
        if (low..=high).contains(&value) {
            return Some(value as i64);
        }
        match overflow {
            Overflow::Wrap => Some(self.wrap(value as u64)),
            Overflow::Saturate => Some(value.clamp(low, high) as i64),
            Overflow::Fail => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(text: &str) -> FieldType {
        FieldType::parse(text.as_bytes()).expect("a type")
    }

    #[test]
    fn types_are_a_letter_and_a_width() {
        assert_eq!(field("i64"), FieldType { signed: true, width: 64 });
        assert_eq!(field("u63"), FieldType { signed: false, width: 63 });
        for text in ["", "i", "u", "8", "u64", "i65", "u0", "i0", "u-1", "u08", "U8", "x8", "u8 "] {
            assert!(FieldType::parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn results_wrap_saturate_or_fail() {
        for (name, base, amount, wrapped, saturated) in [
            ("u8", 250, 10, 4, 255),
            ("u8", 5, -10, 251, 0),
            ("u2", 0, i64::MAX, 3, 3),
            ("u63", i64::MAX, 1, 0, i64::MAX),
            ("u1", 1, i64::MIN, 1, 0),
            ("i8", 120, 10, -126, 127),
            ("i8", -120, -10, 126, -128),
            ("i1", 0, 1, -1, 0),
            ("i64", i64::MAX, 1, i64::MIN, i64::MAX),
            ("i64", i64::MIN, -1, i64::MAX, i64::MIN),
        ] {
            let field = field(name);
            assert_eq!(field.add(base, amount, Overflow::Wrap), Some(wrapped), "{name} {base} {amount}");
            assert_eq!(
                field.add(base, amount, Overflow::Saturate),
                Some(saturated),
                "{name} {base} {amount}"
            );
            assert_eq!(field.add(base, amount, Overflow::Fail), None, "{name} {base} {amount}");
        }
    }

    #[test]
    fn setting_takes_the_amount_as_it_is() {
        assert_eq!(field("u8").convert(-1, Overflow::Saturate), Some(255), "too large, not too small");
        assert_eq!(field("u8").convert(-1, Overflow::Wrap), Some(255));
        assert_eq!(field("u8").convert(300, Overflow::Wrap), Some(44));
        assert_eq!(field("i8").convert(-129, Overflow::Saturate), Some(-128));
        assert_eq!(field("i8").convert(-128, Overflow::Fail), Some(-128));
        assert_eq!(field("u8").convert(256, Overflow::Fail), None);
    }
}
