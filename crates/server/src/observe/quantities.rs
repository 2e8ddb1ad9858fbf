//! Quantities as operators read them: in the recorder's sentences, and in `dunlin top`.

/// Tenths of a microsecond in the unit in which they are read best.
pub fn latency(tenths: u32) -> String {
    match tenths {
        0..10_000 => format!("{} µs", tenths / 10),
        10_000..100_000 => format!("{:.2} ms", f64::from(tenths) / 10_000.0),
        100_000..10_000_000 => format!("{:.0} ms", f64::from(tenths) / 10_000.0),
        _ => format!("{:.1} s", f64::from(tenths) / 10_000_000.0),
    }
}

/// A number with its thousands apart.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes with the largest unit of 1024 that leaves a number of one or more.
pub fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["bytes", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "bytes" { format!("{bytes} bytes") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_the_unit_in_which_they_are_read_best() {
        for (tenths, text) in
            [(0, "0 µs"), (9_999, "999 µs"), (12_345, "1.23 ms"), (123_456, "12 ms"), (u32::MAX, "429.5 s")]
        {
            assert_eq!(latency(tenths), text);
        }
        assert_eq!([0, 999, 1_000, u64::MAX].map(count), ["0", "999", "1,000", "18,446,744,073,709,551,615"]);
        assert_eq!([0, 1_536, 1 << 42].map(bytes), ["0 bytes", "1.5 KiB", "4.0 TiB"]);
    }
}
