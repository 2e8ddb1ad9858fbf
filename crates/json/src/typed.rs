//! Elements of typed arrays: FP16, BF16, FP32 and FP64, little-endian.

use crate::{Builder, Document, Items, Number, ValueRef};

/// The element of a typed array of that code (0 FP16, 1 BF16, 2 FP32, 3 FP64), as a double, exactly.
pub(crate) fn element(code: u8, bytes: &[u8]) -> f64 {
    match code {
        0 => half(u16::from_le_bytes([bytes[0], bytes[1]])),
        1 => f64::from(f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16)),
        2 => f64::from(f32::from_le_bytes(*bytes.first_chunk().expect("four bytes"))),
        _ => f64::from_le_bytes(*bytes.first_chunk().expect("eight bytes")),
    }
}

/// The double of a half-precision number (IEEE 754 binary16).
pub(crate) fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 != 0 { -1.0 } else { 1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f64::from(bits & 0x3ff);
    match exponent {
        0 => sign * fraction * 2f64.powi(-24),
        0x1f if fraction == 0.0 => sign * f64::INFINITY,
        0x1f => f64::NAN,
        _ => sign * (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

/// Appends an element of that code, rounded to the nearest, ties to even; false, and nothing appended, if it is too large.
fn push_element(code: u8, number: f64, out: &mut Vec<u8>) -> bool {
    match code {
        0 | 1 => match if code == 0 { narrowed(number, 10, -14, 15) } else { narrowed(number, 7, -126, 127) }
        {
            Some(bits) => out.extend_from_slice(&bits.to_le_bytes()),
            None => return false,
        },
        2 if (number as f32).is_infinite() => return false,
        2 => out.extend_from_slice(&(number as f32).to_le_bytes()),
        _ => out.extend_from_slice(&number.to_le_bytes()),
    }
    true
}

/// Rounds a finite double to 16 bits with `mantissa` bits of mantissa and exponents from `exponent_min` to `exponent_max`;
/// `None` if it is too large.
fn narrowed(number: f64, mantissa: u32, exponent_min: i32, exponent_max: i32) -> Option<u16> {
    let sign = u16::from(number.is_sign_negative()) << 15;
    let magnitude = number.abs();
    if magnitude == 0.0 {
        return Some(sign);
    }
    let mut exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(exponent_min);
    // Dividing by a power of two is exact.
    let mut units = (magnitude / 2f64.powi(exponent - mantissa as i32)).round_ties_even() as u16;
    if units >> (mantissa + 1) != 0 {
        units >>= 1;
        exponent += 1;
    }
    // The leading bit of a normal number adds one to the exponent's field.
    (exponent <= exponent_max).then(|| sign | ((((exponent - exponent_min) as u16) << mantissa) + units))
}

impl Document {
    /// The document with each array of nothing but doubles as a typed one of that code: 0 FP16, 1 BF16, 2 FP32, 3 FP64; `None`
    /// if a number is out of its range. Needs no stack. O(bytes)
    pub fn with_typed_arrays(&self, code: u8) -> Option<Self> {
        let mut builder = Builder::new();
        let mut open: Vec<Items<'_>> = Vec::new();
        begin(self.root(), code, &mut builder, &mut open)?;
        while let Some(items) = open.last_mut() {
            let named = items.have_names();
            match items.next() {
                Some((name, value)) => {
                    if named {
                        builder.name(name);
                    }
                    begin(value, code, &mut builder, &mut open)?;
                }
                None => {
                    open.pop();
                    builder.end();
                }
            }
        }
        Some(builder.finish())
    }
}

/// Appends a scalar or an array that becomes typed, or begins a container.
fn begin<'a>(value: ValueRef<'a>, code: u8, builder: &mut Builder, open: &mut Vec<Items<'a>>) -> Option<()> {
    let is_double = |(_, item): (_, ValueRef<'_>)| matches!(item.as_number(), Some(Number::Double(_)));
    if value.is_array() && !value.is_empty() && value.items().all(is_double) {
        let mut elements = Vec::new();
        for (_, item) in value.items() {
            if !push_element(code, item.as_number()?.as_f64(), &mut elements) {
                return None;
            }
        }
        builder.typed_array(code, &elements);
    } else if value.is_object() {
        builder.begin_object();
        open.push(value.items());
    } else if value.is_array() {
        builder.begin_array();
        open.push(value.items());
    } else {
        builder.scalar(value);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_narrowed_to_the_nearest() {
        for bits in 0..=u16::MAX {
            for code in [0, 1] {
                let number = element(code, &bits.to_le_bytes());
                let mut out = Vec::new();
                if number.is_finite() {
                    assert!(push_element(code, number, &mut out));
                    assert_eq!(out, bits.to_le_bytes(), "{number}");
                }
            }
        }
        let narrow = |code, number| {
            let mut out = Vec::new();
            push_element(code, number, &mut out).then(|| element(code, &out))
        };
        assert_eq!(narrow(0, 0.1), Some(0.099_975_585_937_5));
        assert_eq!(narrow(0, 2049.0), Some(2048.0), "ties to even");
        assert_eq!(narrow(0, 2051.0), Some(2052.0));
        assert_eq!((narrow(0, 65519.0), narrow(0, 65520.0)), (Some(65504.0), None));
        assert_eq!(narrow(0, -1e-9), Some(0.0));
        assert_eq!((narrow(1, 1e38).is_some(), narrow(1, 1e39), narrow(2, 1e39)), (true, None, None));
        assert_eq!(narrow(3, 1e300), Some(1e300));
    }

    #[test]
    fn arrays_of_doubles_become_typed() {
        let document =
            crate::parse(br#"{"v":[0.5,1.5],"mixed":[1,1.5],"ints":[1,2],"in":[[0.25],"x"]}"#).unwrap();
        let typed = document.with_typed_arrays(0).unwrap();
        let is_typed = |name: &[u8]| typed.root().find(name).unwrap().1.typed().is_some();
        assert!(is_typed(b"v") && !is_typed(b"mixed") && !is_typed(b"ints"));
        assert!(typed.at(&[3, 0]).unwrap().typed().is_some());
        assert_eq!(typed.text(), document.text());
        assert!(crate::parse(b"[1e30]").unwrap().with_typed_arrays(0).is_none());
    }

    #[test]
    fn halves_are_exact() {
        for (bits, number) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_953_125),
            (0x0001, 5.960_464_477_539_063e-8),
            (0x7bff, 65504.0),
        ] {
            assert_eq!(half(bits), number);
        }
        assert!(half(0x7e00).is_nan() && half(0x7c00).is_infinite());
    }
}
