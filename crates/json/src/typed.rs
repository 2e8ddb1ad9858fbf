//! Elements of typed arrays: FP16, BF16, FP32 and FP64, little-endian.

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

#[cfg(test)]
mod tests {
    use super::*;

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
